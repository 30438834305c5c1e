"""`verify` and `doctor`: is what happened right, and is what is needed there."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from itertools import islice
from typing import TYPE_CHECKING

from infra.kafka import open_transport
from infra.kafka.reading import newest
from infra.schema_registry import prompt_schemas
from producers.cli import config_path
from producers.commands.output import Style, print_json, table
from producers.verify.independent_reader import read_publication
from state.config import Config, load
from state.flooding import NEVER, Judgement
from state.plain_events import plain_event
from state.topics import needed, published
from state.type_sketch import likeness, unlike

if TYPE_CHECKING:
    from infra.doctor import Check


def verify(chosen: argparse.Namespace) -> int:
    """Compare what was delivered with flooding; 1 if something is missing or wrong."""
    from producers.verify import verify as judged

    since = -NEVER if chosen.since is None else chosen.since
    tell = (lambda line: print(line, file=sys.stderr, flush=True)) if sys.stderr.isatty() else (lambda line: None)
    judgement = judged(load(config_path(chosen)), since_ms=since, margin_ms=chosen.margin_ms, say=tell)
    if chosen.json:
        print_json({**figures(judgement), "ok": judgement.ok, "findings": [f._asdict() for f in judgement.findings]})
    else:
        print(report(judgement, Style()))
    return 0 if judgement.ok else 1


def figures(judgement: Judgement) -> dict[str, int]:
    """All counts by name."""
    names = [field.name for field in dataclasses.fields(judgement) if field.name != "findings"]
    return {name: getattr(judgement, name) for name in names}


_ALWAYS = ("published", "expected", "delivered", "missing", "wrong", "repeats", "undecided")
_FAULTS = ("missing", "wrong", "missing_ids", "wrong_ids", "unanswered")


def report(judgement: Judgement, style: Style) -> str:
    """The judgement for people: the counts that matter or are not zero, the first findings, and one word."""
    rows = []
    for name, count in figures(judgement).items():
        if name in _ALWAYS or count:
            shown = f"{count:,}"
            rows.append([name.replace("_", " "), style("31", shown) if name in _FAULTS and count else shown])
    lines = [table(["", ""], rows).strip("\n")]
    lines += [f"  {finding}" for finding in judgement.findings]
    if judgement.unjudged:
        held = "may have been routed by a configuration that the registry no longer holds: not judged"
        lines.append(f"{judgement.unjudged:,} publications {held}")
    word = style("32", "nothing missing, nothing wrong") if judgement.ok else style("31", "not as it should be")
    return "\n".join([*lines, word])


LOOKED_AT = 2_000
"""Publications, the newest ones, that are held against their types."""
UNREAD_SHARE = 0.2
"""From this share on it is said that events are not written in the format of their type."""


def looks(config: Config) -> list[Check]:
    """One check for each type of which something was published lately: do its events still look like it?

    It never fails: what is absent may be meant so, and nothing is lost beyond the grid. It says what to look at.
    """
    from infra.doctor import Check

    transport, schemas = open_transport(config), prompt_schemas(config, strict=True)
    try:
        config = config.with_topics(transport.topics())
        sources = {source.topic: source for source in config.sources}
        events: dict[str, list[dict[str, object] | None]] = {}
        for record in islice(newest(transport, published(config)), LOOKED_AT):
            found = read_publication(record, config, sources.get(record.topic))
            if found.fault is None:
                written = config.types[found.type].written_in(found.format)
                event = plain_event(written, found.value, found.beside, schemas)
                events.setdefault(found.type, []).append(event)
    finally:
        transport.close()
    checks = []
    for name, seen in sorted(events.items()):
        read = [event for event in seen if event is not None]
        said = unlike(likeness(config.types[name], read))
        if len(read) <= (1 - UNREAD_SHARE) * len(seen):
            said.insert(0, f"{1 - len(read) / len(seen):.0%} of the newest {len(seen):,} are not of their format")
        detail = f"the newest {len(read):,} look like their type"
        advice = "see what producers send now, and `hilcast type --sample` for what it would look like"
        checks.append(Check(f"events {name}", True, "; ".join(said) or detail, advice if said else ""))
    return checks


def doctor(chosen: argparse.Namespace) -> int:
    """Print every check with what to do; 1 if one fails."""
    from infra.doctor import checks

    config = load(config_path(chosen))
    found = checks(config, needed(config))
    if all(check.ok for check in found if check.name in ("Kafka", "topics", "schema registry")):
        found += looks(config)
    if chosen.json:
        print_json([dataclasses.asdict(check) for check in found])
    else:
        style = Style()
        for check in found:
            print(f"{style('32', 'ok  ') if check.ok else style('31', 'FAIL')}  {check.name}: {check.detail}")
            if check.advice:
                print(f"      {style('33', check.advice)}")
    return 0 if all(check.ok for check in found) else 1
