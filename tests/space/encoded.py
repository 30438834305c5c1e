"""What tests of Avro and of Protobuf have in common: reading at paths, naively, and how rows are compared."""

from __future__ import annotations

from typing import Any

from state.errors import HilcastError
from state.space.decode import RankBatch, decode
from state.space.encodings.documents import read_document
from state.space.encodings.schemas import Schema
from state.space.event_type import EventType
from state.space.points import rank_spans

Spans = tuple[list[int], list[int]]


class Known:
    """A registry in memory."""

    def __init__(self, schemas: dict[int, Schema]) -> None:
        self.schemas = schemas

    def of(self, ids: Any) -> dict[int, Schema]:
        return {id: self.schemas[id] for id in ids if id in self.schemas}


def member(said: Any, path: tuple[str, ...]) -> Any:
    """What stands at a path; None if it does not lead there."""
    for name in path:
        said = said.get(name) if isinstance(said, dict) else None
    return said


def expected(event_type: EventType, said: Any) -> Spans:
    """The lowest and the highest ranks of a document."""
    low, high = rank_spans(event_type, {a.name: member(said, a.members) for a in event_type.attributes})
    return low.tolist(), high.tolist()


def assert_row(event_type: EventType, batch: RankBatch, row: int, said: Any) -> None:
    """A row has the ranks of this document, and so has what is read of it on demand."""
    spans = expected(event_type, said)
    assert batch.valid[row]
    highs = batch.ranks if batch.highs is None else batch.highs
    assert (batch.ranks[row].tolist(), highs[row].tolist()) == spans
    low, high = rank_spans(event_type, batch.event(row))
    assert (low.tolist(), high.tolist()) == spans


def judged_alike(event_type: EventType, value: bytes) -> RankBatch:
    """The scan and the plain reader agree on these bytes: both refuse them, or both read the same."""
    batch = decode(event_type, [value])
    batch.check()
    try:
        document, refused = read_document(event_type, value, attributes_only=True), ""
    except HilcastError as error:
        document, refused = None, error.code
    if document is None:
        assert (refused, batch.valid.tolist()) == ("bad-event", [False])
    else:
        assert_row(event_type, batch, 0, document)
    return batch
