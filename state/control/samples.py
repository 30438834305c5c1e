"""What is known of publications when a generation begins: a sample of each type, by which pruning judges selectivity.

    last publications ──abridged──> generation.json, Boot ──> Context ──> Observations, one per type

A sample is part of its generation and never changes within it: a batch that is replayed decides as it did. [BADV06]
§2.3 counts matches while publications pass; here the workers that decide see none, and would all have seen different
ones. A type of which nothing was published has a uniform sample instead.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from state.advertisements.observations import Observations
from state.config import Config
from state.errors import HilcastError
from state.messages import Record
from state.publications import format_of, read_publication, types_of_sources
from state.space.cells import uniform_starts
from state.space.encodings.documents import read_document
from state.space.encodings.schemas import NO_SCHEMAS, Schemas
from state.space.event_type import Attribute, EventType, Pruning
from state.space.places import attributes_of
from state.space.ranks import grid_span, unrank

SAMPLE_MAX = 500
"""Publications of a type in its sample."""
TEXT_MAX = 200
"""Characters of a text that a sample keeps: it goes to every worker, whatever publishers send."""

Sample = Sequence[Mapping[str, object]]


def samples_of(
    records: Iterable[Record],
    config: Config,
    schemas: Schemas = NO_SCHEMAS,
    types: Mapping[str, EventType] | None = None,
) -> dict[str, list[dict[str, object]]]:
    """The last publications of these types, or of each that is pruned, of these records; the unreadable is left out."""
    types = pruned_types(config) if types is None else types
    found: dict[str, deque[dict[str, object]]] = {name: deque(maxlen=SAMPLE_MAX) for name in types}
    sources = types_of_sources(config)
    for record in records:
        name, value = read_publication(record, sources)
        document = (
            _decoded(types[name].written_in(format_of(record, config)), value, schemas) if name in types else None
        )
        if isinstance(document, dict):
            found[name].append(abridged(_attributes(types[name], document, record), types[name]))
    return {name: list(some) for name, some in found.items()}


def _attributes(event_type: EventType, document: dict[str, object], record: Record) -> Mapping[str, object]:
    if event_type.is_flat:
        return document
    return attributes_of(event_type, document, dict(record.headers), record.key)


def pruned_types(config: Config) -> dict[str, EventType]:
    """The types that have a budget of pruning."""
    return {name: event_type for name, event_type in config.types.items() if event_type.pruning != Pruning()}


def _decoded(event_type: EventType, value: bytes, schemas: Schemas) -> object:
    """What is not written as it should be is nothing."""
    try:
        if event_type.format != "json":
            return read_document(event_type, value, schemas, attributes_only=True)
        return msgspec.json.decode(value)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError, HilcastError):
        return None


def abridged(event: Mapping[str, object], event_type: EventType) -> dict[str, object]:
    """What a publication says of the attributes of its type, long texts cut.

    Intervals count as absent here, as anything does that is no single value.

    >>> t = EventType("t", (Attribute("x", "int"), Attribute("name", "text")))
    >>> abridged({"x": 3, "name": "a" * 300, "other": [1, 2]}, t) == {"x": 3, "name": "a" * 200}
    True
    """
    known = {a.name: event.get(a.name) for a in event_type.attributes}
    return {
        name: value[:TEXT_MAX] if isinstance(value, str) else value
        for name, value in known.items()
        if isinstance(value, str | int | float)
    }


def observed(event_type: EventType, sample: Sample) -> Observations:
    """A sample ready to be counted on; a uniform one where there is none."""
    observations = Observations(event_type, SAMPLE_MAX)
    for event in list(sample)[-SAMPLE_MAX:] or uniform(event_type):
        observations.observe(event)
    return observations


def uniform(event_type: EventType) -> list[dict[str, object]]:
    """Publications spread evenly over the domain of each attribute; the same in every process.

    Each attribute takes every place of an even division (`state/space/cells.py`) about once, in an order of its own.
    """
    rng = random.Random(f"uniform {event_type.name}")
    columns = {a.name: [unrank(a, r) for r in rng.sample(_places(a), SAMPLE_MAX)] for a in event_type.attributes}
    return [{name: column[i] for name, column in columns.items()} for i in range(SAMPLE_MAX)]


def _places(attribute: Attribute) -> list[int]:
    """Ranks that divide the domain evenly; those that the lowest cell shares with absence stand for the least value."""
    lowest = grid_span(attribute)[0]
    return [max(start, lowest) for start in uniform_starts(attribute, SAMPLE_MAX.bit_length()).tolist()]
