"""Batches of JSON events to rank columns: the first step of routing a publication.

    values ──find members──> addresses ──read columns──> ranks           both compiled
                    └─ hard rows ──json.loads, ranks.rank_spans──┘       Python

What is read as an event, and what is not (docs/messages.md, `bad-event`):

    valid      a JSON object in UTF-8. Of equal keys the last counts, also if it is then of the wrong kind.
               Numbers of any size (`1e400`, 5,000 digits) and lone surrogates are JSON; as the value of an
               attribute they are absent (`ranks.py`)
    not valid  no value, an empty one, a byte order mark, bytes that are not UTF-8, NaN and Infinity, anything
               after the object, and nesting deeper than 128, which RFC 8259 §9 lets a reader refuse

Guarantee: equal, bit by bit, to reading each value with Python's `json` and `ranks.rank_spans`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, cast

import numpy as np

from state.arrays import Bools, Bytes, Ints
from state.space.boxes import Ranks
from state.space.event_type import Attribute, EventType
from state.space.json_scan import DEPTH_MAX, HARD, INVALID, find_members
from state.space.points import rank_spans
from state.space.rank_columns import KIND_CODES, read_categories, read_column
from state.space.ranks import ABSENT, read_decimal, text_rank

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["DEPTH_MAX", "RankBatch", "decode", "decode_arrow", "json_object", "warm"]

Event = dict[str, object]


@dataclass(frozen=True, eq=False)
class RankBatch:
    """The ranks of a batch of events; row i is event i.

    Invariant (`check`): rows that are not valid are ABSENT throughout; lows never exceed highs.
    """

    ranks: Ranks
    """(n, d): the rank of each attribute, the lowest one where the event is imprecise."""
    valid: Bools
    """(n,): whether the value is an event at all."""
    highs: Ranks | None
    """(n, d): the highest ranks; None if no event of the batch is imprecise, so that they equal `ranks`."""
    data: Bytes = field(repr=False)
    offsets: Ints = field(repr=False)
    _events: dict[int, Event] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return len(self.valid)

    def value(self, i: int) -> bytes:
        """The bytes of event i as they came."""
        return self.data[self.offsets[i] : self.offsets[i + 1]].tobytes()

    def event(self, i: int) -> Event:
        """Event i, which must be valid, read on first use, for what ranks cannot decide."""
        assert self.valid[i], f"row {i} is not an event"
        if i not in self._events:
            self._events[i] = _loads(self.value(i))
        return self._events[i]

    def check(self) -> None:
        """Assert the invariant."""
        assert self.ranks.dtype == np.int64
        assert len(self.ranks) == len(self.valid) == len(self.offsets) - 1
        assert (self.ranks[~self.valid] == ABSENT).all()
        if self.highs is not None:
            assert self.highs.shape == self.ranks.shape
            assert (self.ranks <= self.highs).all()
            assert ((self.ranks == ABSENT) == (self.highs == ABSENT)).all()


def decode(event_type: EventType, values: Sequence[bytes | None] | pa.Array) -> RankBatch:
    """Read a batch of JSON values into rank columns.

    Guarantee: as if each were read by itself with `json_object` and `ranks.rank_spans`.
    Cost: one pass over the bytes; a member whose key is not the next attribute in order is compared with all.

    >>> quote = EventType("quote", (Attribute("volume", "int"), Attribute("halted", "boolean")))
    >>> batch = decode(quote, [b'{"volume": 3.0, "halted": true}', b"[]"])
    >>> batch.ranks[0], batch.valid, batch.event(0)
    (array([3, 1]), array([ True, False]), {'volume': 3.0, 'halted': True})
    """
    if hasattr(values, "buffers"):
        return decode_arrow(event_type, values)
    present = [value or b"" for value in cast(Sequence[bytes | None], values)]
    return _decode(event_type, *_laid_out(present))


def decode_arrow(event_type: EventType, array: pa.Array) -> RankBatch:
    """Read an Arrow array of binary or text values into rank columns; the values themselves are not copied.

    The batch keeps the array's buffers alive. Guarantee and cost as `decode`.
    """
    widths = {"binary": np.int32, "string": np.int32, "large_binary": np.int64, "large_string": np.int64}
    assert str(array.type) in widths, f"values must be binary, not {array.type}"
    _, offset_buffer, data_buffer = array.buffers()
    if len(array) == 0 or data_buffer is None:  # nothing, or nothing but null and empty values
        return decode(event_type, [None] * len(array))
    every = np.frombuffer(offset_buffer, widths[str(array.type)])
    offsets = every[array.offset : array.offset + len(array) + 1].astype(np.int64)
    present = array.is_valid().to_numpy(zero_copy_only=False) if array.null_count else None
    return _decode(event_type, np.frombuffer(data_buffer, np.uint8), offsets, present)


def json_object(value: bytes | None) -> Event | None:
    """Read one value by the rules of this page: the object, or None if it is not valid.

    An integer of more digits than Python converts (4,300) becomes an infinite float: no attribute holds it.

    >>> json_object(b'{"a": 1, "a": 2}'), json_object(b'{"a": NaN}')
    ({'a': 2}, None)
    """
    batch = decode(_NOTHING, [value])
    return batch.event(0) if batch.valid[0] else None


def warm() -> None:
    """Compile all that reads events, or load it from the cache, before the first batch needs it."""
    decode(EventType("", (Attribute("a", "int"), Attribute("b", "category", values=("c",)))), [b"{}"])


_NOTHING = EventType("", ())


# --- an event type, laid out for compiled code --------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class _Category:
    """The values of a category, sorted by their ranks as text, and the declared place of each."""

    values: Bytes
    offsets: Ints
    ranks: Ranks
    places: Ints

    @classmethod
    def of(cls, attribute: Attribute) -> _Category:
        order = sorted(range(len(attribute.values)), key=lambda place: text_rank(attribute.values[place]))
        values, offsets = _laid_out([attribute.values[place].encode() for place in order])
        ranks = np.array([text_rank(attribute.values[place]) for place in order], np.int64)
        return cls(values, offsets, ranks, np.array(order, np.int64))


@lru_cache(maxsize=256)
def _names(attributes: tuple[Attribute, ...]) -> tuple[Bytes, Ints]:
    return _laid_out([attribute.name.encode() for attribute in attributes])


@lru_cache(maxsize=256)
def _category(attribute: Attribute) -> _Category:
    return _Category.of(attribute)


def _laid_out(values: list[bytes]) -> tuple[Bytes, Ints]:
    """Values one after another, and where each begins and the last ends."""
    offsets = np.zeros(len(values) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, values), np.int64, len(values)), out=offsets[1:])
    return np.frombuffer(b"".join(values), np.uint8), offsets


# --- reading ------------------------------------------------------------------------------------------------


def _decode(event_type: EventType, data: Bytes, offsets: Ints, present: Bools | None = None) -> RankBatch:
    # Compiled code reads by address: this is what keeps it inside the values.
    assert 0 <= offsets[0] <= offsets[-1] <= len(data)
    assert (offsets[:-1] <= offsets[1:]).all()
    n, d = len(offsets) - 1, event_type.d
    starts, status = np.empty((d, n), np.int64), np.empty(n, np.uint8)
    names, name_offsets = _names(event_type.attributes)
    find_members(data.ctypes.data, offsets, names.ctypes.data, name_offsets, starts, status)
    if present is not None:
        status[~present] = INVALID
    imprecise = any(attribute.imprecise for attribute in event_type.attributes)
    lows, highs = np.empty((n, d), np.int64), np.empty((n if imprecise else 0, d), np.int64)
    for column, attribute in enumerate(event_type.attributes):
        _read_column(attribute, starts, column, status, lows, highs)
    batch = RankBatch(lows, status != INVALID, highs if imprecise else None, data, offsets)
    for i in np.flatnonzero(status == HARD).tolist():
        lows[i], high = rank_spans(event_type, batch.event(i))
        if imprecise:
            highs[i] = high
    return batch if imprecise and (highs != lows).any() else replace(batch, highs=None)


def _read_column(
    attribute: Attribute,
    starts: Ints,
    column: int,
    status: Bytes,
    lows: Ranks,
    highs: Ranks,
) -> None:
    if attribute.kind == "category":
        known = _category(attribute)
        values = known.values.ctypes.data
        read_categories(values, known.offsets, known.ranks, known.places, starts, column, status, lows, highs)
    else:
        imprecise = attribute.imprecise is not None
        read_column(KIND_CODES[attribute.kind], imprecise, starts, column, status, lows, highs)


_EXACTLY = re.compile(rb"[0-9.]{16}|[0-9][eE]")
"""What every number has whose double may not be all there is to know of it (`ranks.read_decimal`)."""


def _loads(value: bytes) -> Event:
    """Read a value that the scan found valid with Python's own reader."""
    text = value.decode()
    parse_float = read_decimal if _EXACTLY.search(value) else None
    try:
        return cast(Event, json.loads(text, parse_float=parse_float))
    except json.JSONDecodeError as error:
        raise AssertionError(f"the scanner let pass what is not JSON: {value!r}") from error
    except ValueError:  # an integer longer than Python converts
        return cast(Event, json.loads(text, parse_int=_integer, parse_float=parse_float))


def _integer(digits: str) -> int | float:
    # Beyond 400 digits nothing fits an attribute; `float` then says infinite at once.
    return int(digits) if len(digits) <= 400 else float(digits)
