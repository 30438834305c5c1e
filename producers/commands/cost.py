"""`cost`: what a filter would cost, before it is sent; its share of publications is counted on those in Kafka."""

from __future__ import annotations

import argparse
import dataclasses
from itertools import islice

from infra.kafka import open_transport
from infra.kafka.reading import newest
from infra.schema_registry import prompt_schemas
from producers.cli import config_path
from producers.commands.open_choices import with_choices
from producers.commands.output import print_json, table
from producers.verify.independent_reader import read_publication
from state.config import Config, load
from state.cost import Cost, Sample, measured
from state.cost import cost as cost_of
from state.errors import HilcastError
from state.filters.grammar import parse
from state.plain_events import plain_event
from state.space.event_type import EventType
from state.space.grid import Grid
from state.topics import published

LOOKED_AT_MAX = 100_000
"""Publications that are looked at to find some of the type."""


def cost(chosen: argparse.Namespace) -> int:
    """Print what the filter would cost."""
    config = with_choices(load(config_path(chosen)))
    event_type = config.types.get(chosen.type)
    if event_type is None:
        raise HilcastError("unknown-type", f"{chosen.type!r} is none of {', '.join(config.types)}")
    tree, grid = parse(chosen.filter, event_type), Grid.of(event_type)
    found = cost_of(tree, event_type, grid)
    events, note = sample_of(config, event_type, chosen.sample)
    sample = measured(tree, event_type, grid, events)
    if chosen.json:
        print_json(as_json(found, sample, note))
    else:
        print(for_people(found, sample, note))
    return 0


def sample_of(config: Config, event_type: EventType, count: int) -> tuple[list[dict[str, object] | None], str]:
    """The newest publications of a type, by attributes, and in words why there are fewer, or none."""
    if count == 0:
        return [], "no sample was asked for"
    events: list[dict[str, object] | None] = []
    schemas = prompt_schemas(config, strict=True)
    try:
        transport = open_transport(config)
        try:
            config = config.with_topics(transport.topics())
            sources = {source.topic: source for source in config.sources if source.type == event_type.name}
            others = {source.topic for source in config.sources} - set(sources)
            topics = [topic for topic in published(config) if topic not in others]
            for record in islice(newest(transport, topics), LOOKED_AT_MAX):
                found = read_publication(record, config, sources.get(record.topic))
                if found.type == event_type.name and found.fault is None:
                    written = event_type.written_in(found.format)
                    events.append(plain_event(written, found.value, found.beside, schemas))
                if len(events) == count:
                    break
        finally:
            transport.close()
    except HilcastError as error:
        if error.code not in ("kafka-away", "kafka-read"):
            raise
        return [], error.reason
    return events, "" if events else f"no publication of {event_type.name} is in Kafka"


def as_json(found: Cost, sample: Sample, note: str) -> dict[str, object]:
    """Everything by name; `share` is the estimate, `share_from` what it rests on."""
    counted = sample.publications > 0
    return {
        **dataclasses.asdict(found),
        "share": sample.share if counted else found.cells_share,
        "share_from": "publications" if counted else "cells",
        "crossing_share": sample.crossing_share if counted else None,
        "sample": dataclasses.asdict(sample),
        "note": note,
    }


def for_people(found: Cost, sample: Sample, note: str) -> str:
    """One line for each thing to know."""
    exact = "exact" if found.exact else "a superset, checked by the filter itself"
    touched = f"{found.cubes:,} of {found.cubes_total:,}"
    ranges = f"{found.ranges:,}"
    if found.ranges_uncapped != found.ranges:
        ranges += f" (uncapped {found.ranges_uncapped:,}), {found.over_coverage:.2f} times the cells needed"
    rows = [
        ["filter", found.filter],
        ["predicates", f"{found.predicates:,} in {found.conjunctions:,} conjunctions"],
        ["boxes", f"{found.boxes:,}, {exact}: {found.why}"],
        ["cubes touched", touched + (", so it goes to a wide key" if found.wide else "")],
        ["Hilbert ranges", f"{ranges}, on {', '.join(found.dimensions)}"],
        ["neighbours get", found.forwards],
        ["estimated share", _share(found, sample, note)],
    ]
    return table(["", ""], rows).strip("\n")


def _share(found: Cost, sample: Sample, note: str) -> str:
    if sample.publications:
        counted = f"{sample.matching:,} of the newest {sample.publications:,} publications match"
        return f"{sample.share:.2%}: {counted}; a link would carry {sample.crossing_share:.2%}"
    return f"{found.cells_share:.2%} of the grid's cells, as if events lay evenly in them; not counted: {note}"
