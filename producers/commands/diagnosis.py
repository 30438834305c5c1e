"""`verify` and `doctor`: is what happened right, and is what is needed there."""

from __future__ import annotations

import argparse
import dataclasses
import sys

from producers.cli import config_path
from producers.commands.output import Style, print_json, table
from state.config import load
from state.flooding import NEVER, Judgement
from state.topics import needed


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
    word = style("32", "nothing missing, nothing wrong") if judgement.ok else style("31", "not as it should be")
    return "\n".join([*lines, word])


def doctor(chosen: argparse.Namespace) -> int:
    """Print every check with what to do; 1 if one fails."""
    from infra.doctor import checks

    config = load(config_path(chosen))
    found = checks(config, needed(config))
    if chosen.json:
        print_json([dataclasses.asdict(check) for check in found])
    else:
        style = Style()
        for check in found:
            print(f"{style('32', 'ok  ') if check.ok else style('31', 'FAIL')}  {check.name}: {check.detail}")
            if check.advice:
                print(f"      {style('33', check.advice)}")
    return 0 if all(check.ok for check in found) else 1
