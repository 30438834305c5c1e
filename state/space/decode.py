"""Batches of events to rank columns: the first step of routing a publication. Here JSON; `encodings/` has the others.

    values ──find members──> addresses ──read columns──> ranks           both compiled
                    └─ hard rows ──json.loads, places.attributes_of, points.rank_spans──┘       Python
    headers, keys ──distinct texts──> ranks                              Python, once per distinct text

What is read as an event, and what is not (docs/messages.md, `bad-event`):

    valid      a JSON object in UTF-8. Of equal keys the last counts, also if it is then of the wrong kind.
               Numbers of any size (`1e400`, 5,000 digits) and lone surrogates are JSON; as the value of an
               attribute they are absent (`ranks.py`)
    not valid  no value, an empty one, a byte order mark, bytes that are not UTF-8, NaN and Infinity, anything
               after the object, and nesting deeper than 128, which RFC 8259 §9 lets a reader refuse

Guarantee: equal, bit by bit, to reading each value with Python's `json`, `places.attributes_of` and
`points.rank_spans`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

import msgspec
import numpy as np

from state.arrays import Bools, Bytes, Ints
from state.space.boxes import Ranks
from state.space.encodings.encoded_batches import read_encoded, two_texts
from state.space.encodings.schemas import NO_SCHEMAS, Schemas
from state.space.event_type import Attribute, EventType, Format
from state.space.json_scan import DEPTH_MAX, HARD, INVALID, find_members, find_nested
from state.space.places import attributes_of, integer, value_of_text
from state.space.points import rank_spans
from state.space.rank_columns import KIND_CODES, read_categories, read_column, read_flat, read_one, read_whole, settle
from state.space.ranks import ABSENT, rank, read_decimal, text_rank
from state.space.text_hashes import place_points, trait_of

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["DEPTH_MAX", "RankBatch", "decode", "decode_arrow", "joined", "json_object", "rank_events", "warm"]

Event = Mapping[str, object]
Path = tuple[str, ...]
Reader = Callable[[bytes, int], Event]
Texts = Sequence[bytes | None]
"""What headers or keys hold, by row: a list, or an Arrow array of binary."""
Beside = Mapping[str, "Texts | pa.Array"]
"""By attribute that is not in the document: what its header or key holds, by row."""
_INT, _BYTE, _BOOL = np.dtype(np.int64), np.dtype(np.uint8), np.dtype(bool)
"""Made once: a call that is given a type has to make one."""


class RankBatch(msgspec.Struct, frozen=True, eq=False):
    """The ranks of a batch of events; row i is event i. A struct, which costs a small batch a tenth of a dataclass.

    Invariant (`check`): rows that are not valid are ABSENT throughout; lows never exceed highs.
    """

    ranks: Ranks
    """(n, d): the rank of each attribute, the lowest one where the event is imprecise."""
    valid: Bools
    """(n,): whether the value is an event at all."""
    highs: Ranks | None
    """(n, d): the highest ranks; None if no event of the batch is imprecise, so that they equal `ranks`."""
    data: Bytes
    offsets: Ints
    reader: Reader
    """How the bytes of row i become its attributes, by name."""
    unknown: Mapping[int, str] = {}
    """By row, which is not valid: why the schema that it was written with cannot be used."""
    awaited: Mapping[int, int] = {}
    """Those of them whose schema was not to be had now: its id."""
    starts: Ints | None = None
    """(d, n): the address in `data` where the value of each attribute begins; not above 0 where only `event` can tell.

    None: the events were not read from one run of bytes.
    """
    _events: dict[int, Event] = {}

    def __len__(self) -> int:
        return len(self.valid)

    def points(self, rows: Ints, traits: Ints, names: Sequence[str]) -> Ranks:
        """Some events as points: their ranks, and behind them the traits of texts (`text_hashes.py`).

        `traits`: column, steps and dimension of each, sorted; no attribute of theirs is imprecise. `names`: of the
        attributes. Cost: one pass over these texts; events that are not read from one run of bytes, or whose text has
        an escape, are read one by one.
        """
        if not len(traits):
            # Of one event there is one row.
            return self.ranks if len(rows) == len(self.ranks) == 1 else self.ranks.take(rows, axis=0)
        starts = self.starts if self.starts is not None else np.zeros(self.ranks.shape[::-1], np.int64)
        points = np.empty((len(rows), self.ranks.shape[1] + len(traits)), _INT)
        if place_points(self.ranks, starts, rows, traits, points):
            for column, steps, dimension in traits.tolist():
                left = (self.ranks[rows, column] != ABSENT) & (starts[column, rows] <= 0)
                for i in np.flatnonzero(left).tolist():
                    points[i, dimension] = trait_of(str(self.event(int(rows[i]))[names[column]]), steps)
        return points

    def value(self, i: int) -> bytes:
        """The bytes of event i as they came."""
        return self.data[self.offsets[i] : self.offsets[i + 1]].tobytes()

    def event(self, i: int) -> Event:
        """Event i, which must be valid, by names of attributes; read on first use, for what ranks cannot decide.

        Where every attribute is at the top of the document, it is the document itself.
        """
        assert self.valid[i], f"row {i} is not an event"
        if i not in self._events:
            self._events[i] = self.reader(self.value(i), i)
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


def decode(
    event_type: EventType,
    values: Sequence[bytes | None] | pa.Array,
    beside: Beside | None = None,
    schemas: Schemas = NO_SCHEMAS,
) -> RankBatch:
    """Read a batch of values in the format of their type, and of what stands beside them, into rank columns.

    Guarantee: as if each were read by itself with `json_object`, `places.attributes_of` and `points.rank_spans`. An
    attribute that is beside the document and of which nothing is given is absent.
    Cost: one pass over the bytes; a member whose key is not the next attribute in order is compared with all; each
    distinct text of a header or key is read once.

    >>> quote = EventType("quote", (Attribute("volume", "int"), Attribute("halted", "boolean")))
    >>> batch = decode(quote, [b'{"volume": 3.0, "halted": true}', b"[]"])
    >>> batch.ranks[0], batch.valid, batch.event(0)
    (array([3, 1]), array([ True, False]), {'volume': 3.0, 'halted': True})
    >>> nested = EventType("quote", (Attribute("volume", "int", path=("a", "b")), Attribute("id", "int", key=True)))
    >>> decode(nested, [b'{"a": {"b": 3}}'], {"id": [b"7"]}).event(0)
    {'volume': 3, 'id': 7}
    """
    if len(values) == 1 and values.__class__ is list and event_type.format == "json" and event_type.is_flat:
        layout = _layout(event_type.attributes)
        if layout.is_plain:
            return _decode_one(event_type, values[0] or b"", layout)
    if hasattr(values, "buffers"):
        return decode_arrow(event_type, values, beside, schemas)
    given = cast(Sequence[bytes | None], values)
    laid_out = _laid_out([value or b"" for value in given])
    if event_type.format == "json":
        return _decode(event_type, *laid_out, beside or {})
    present = np.array([value is not None for value in given], bool)
    return _decode_encoded(event_type, *laid_out, beside or {}, present, schemas)


def decode_arrow(
    event_type: EventType, array: pa.Array, beside: Beside | None = None, schemas: Schemas = NO_SCHEMAS
) -> RankBatch:
    """Read an Arrow array of binary or text values into rank columns; the values themselves are not copied.

    The batch keeps the array's buffers alive. Guarantee and cost as `decode`.
    """
    widths = {"binary": np.int32, "string": np.int32, "large_binary": np.int64, "large_string": np.int64}
    assert str(array.type) in widths, f"values must be binary, not {array.type}"
    _, offset_buffer, data_buffer = array.buffers()
    if len(array) == 0 or data_buffer is None:  # nothing, or nothing but null and empty values
        return decode(event_type, array.to_pylist(), beside, schemas)
    every = np.frombuffer(offset_buffer, widths[str(array.type)])
    offsets = every[array.offset : array.offset + len(array) + 1].astype(np.int64)
    present = array.is_valid().to_numpy(zero_copy_only=False) if array.null_count else None
    data = np.frombuffer(data_buffer, np.uint8)
    # Compiled code reads by address: this is what keeps it inside the values. (Those of a list are laid out by us.)
    assert 0 <= offsets[0] <= offsets[-1] <= len(data)
    assert (offsets[:-1] <= offsets[1:]).all()
    if event_type.format == "json":
        return _decode(event_type, data, offsets, beside or {}, present)
    return _decode_encoded(event_type, data, offsets, beside or {}, present, schemas)


def joined(event_type: EventType, n: int, parts: Sequence[tuple[Ints, RankBatch]]) -> RankBatch:
    """One batch of n events from several that have its rows between them, written in different formats."""
    lows = np.full((n, event_type.d), ABSENT, np.int64)
    highs, valid = lows.copy(), np.zeros(n, bool)
    part, place = np.zeros(n, np.int64), np.zeros(n, np.int64)
    unknown: dict[int, str] = {}
    awaited: dict[int, int] = {}
    for k, (rows, batch) in enumerate(parts):
        lows[rows], highs[rows] = batch.ranks, batch.ranks if batch.highs is None else batch.highs
        valid[rows], part[rows], place[rows] = batch.valid, k, np.arange(len(rows))
        unknown |= {int(rows[i]): why for i, why in batch.unknown.items()}
        awaited |= {int(rows[i]): id for i, id in batch.awaited.items()}
    nothing, offsets = np.empty(0, np.uint8), np.zeros(n + 1, np.int64)
    precise = bool((lows == highs).all())

    def read(_: bytes, i: int) -> Event:
        return parts[part[i]][1].event(int(place[i]))

    return RankBatch(lows, valid, None if precise else highs, nothing, offsets, read, unknown, awaited)


def rank_events(event_type: EventType, events: Sequence[Event | None]) -> RankBatch:
    """The batch of events that were read already, by names of attributes; None for what is no event.

    Differs from `decode`: one event after the other in Python, whatever they were written in.

    >>> quote = EventType("quote", (Attribute("volume", "int"),))
    >>> batch = rank_events(quote, [{"volume": 3.0}, None])
    >>> batch.ranks[0], batch.valid, batch.event(0)
    (array([3]), array([ True, False]), {'volume': 3.0})
    """
    n, d = len(events), event_type.d
    lows, highs = np.full((n, d), ABSENT, np.int64), np.full((n, d), ABSENT, np.int64)
    for row, event in enumerate(events):
        if event is not None:
            lows[row], highs[row] = rank_spans(event_type, event)
    valid = np.array([event is not None for event in events], bool)
    precise = bool((lows == highs).all())
    nothing, offsets = np.empty(0, np.uint8), np.zeros(n + 1, np.int64)
    return RankBatch(lows, valid, None if precise else highs, nothing, offsets, lambda _, i: cast(Event, events[i]))


def json_object(value: bytes | None) -> dict[str, object] | None:
    """Read one value by the rules of this page: the object, or None if it is not valid.

    An integer of more digits than Python converts (4,300) becomes an infinite float: no attribute holds it.

    >>> json_object(b'{"a": 1, "a": 2}'), json_object(b'{"a": NaN}')
    ({'a': 2}, None)
    """
    batch = decode(_NOTHING, [value])
    return cast(dict[str, object], batch.event(0)) if batch.valid[0] else None


def warm(formats: Collection[Format] = ()) -> None:
    """Compile all that reads events, JSON and these formats, or load it from the cache, before a batch needs it."""
    decode(EventType("", (Attribute("a", "int"), Attribute("b", "category", values=("c",)))), [b"{}"])
    decode(EventType("", (Attribute("a", "int", path=("b", "c")),)), [b"{}"])
    for several in ([b"{}"], [b"{}", b"{}"]):  # one by one, and a batch
        batch = decode(EventType("", (Attribute("a", "text"),)), several)
        batch.points(np.zeros(1, np.int64), np.array([[0, 1, 1]]), "a")
    for format in sorted(set(formats) - {"json"}):
        schema, value = two_texts(format)
        attributes = (Attribute("a", "text"), Attribute("b", "category", values=("c",)))
        assert decode(EventType("", attributes, format=format, schema=schema), [value]).valid.all()


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


@dataclass(frozen=True, slots=True, eq=False)
class _Layout:
    """Attributes, as `read_flat` takes them."""

    attributes: tuple[Attribute, ...]
    names: Bytes
    names_at: int
    """The address of `names`, which must therefore stay."""
    name_offsets: Ints
    kinds: Ints
    imprecise: Bools
    is_imprecise: bool
    categories: tuple[int, ...]
    """Their columns."""
    is_plain: bool
    """Whether no attribute is imprecise or a category."""

    @classmethod
    def of(cls, attributes: tuple[Attribute, ...]) -> _Layout:
        names, offsets = _laid_out([attribute.name.encode() for attribute in attributes])
        kinds = np.array([KIND_CODES[attribute.kind] for attribute in attributes], np.int64)
        imprecise = np.array([attribute.imprecise is not None for attribute in attributes], bool)
        categories = tuple(i for i, attribute in enumerate(attributes) if attribute.kind == "category")
        is_imprecise = bool(imprecise.any())
        is_plain = not is_imprecise and not categories
        at = names.ctypes.data
        return cls(attributes, names, at, offsets, kinds, imprecise, is_imprecise, categories, is_plain)


_LAYOUTS: dict[int, _Layout] = {}
"""By the id of the attributes, which a layout keeps: to hash them costs a batch of one more than to read it."""


def _layout(attributes: tuple[Attribute, ...]) -> _Layout:
    found = _LAYOUTS.get(id(attributes))
    if found is None:
        if len(_LAYOUTS) >= 256:
            _LAYOUTS.clear()
        found = _LAYOUTS[id(attributes)] = _Layout.of(attributes)
    return found


@dataclass(frozen=True, slots=True, eq=False)
class _Tree:
    """The members that lead to attributes, as `find_nested` takes them."""

    names: Bytes
    name_offsets: Ints
    children: Ints
    siblings: Ints
    columns: Ints
    order: Ints
    """By attribute: its row of `starts`; attributes of one path share a row, those beside the document have the last,
    which stays empty."""

    @classmethod
    def of(cls, attributes: tuple[Attribute, ...]) -> _Tree:
        wanted = dict.fromkeys(attribute.members for attribute in attributes if attribute.members)
        below: dict[Path, list[Path]] = {(): []}
        for path in wanted:
            for length in range(1, len(path) + 1):
                if path[:length] not in below:
                    below[path[:length]] = []
                    below[path[: length - 1]].append(path[:length])
        nodes = list(_downwards((), below))
        number = {path: k for k, path in enumerate(nodes)}
        row = {path: k for k, path in enumerate(path for path in nodes if path in wanted)}
        children, siblings = np.zeros(len(nodes), np.int64), np.zeros(len(nodes), np.int64)
        columns = np.zeros((len(nodes), 3), np.int64)
        for k, path in enumerate(nodes):
            ring = [number[child] for child in below[path]]
            children[k] = ring[0] if ring else 0
            siblings[ring] = ring[1:] + ring[:1]
            inside = [row[other] for other in _downwards(path, below) if other in wanted]
            columns[k] = min(inside, default=0), max(inside, default=-1) + 1, path in wanted
        block, offsets = _laid_out([path[-1].encode() if path else b"" for path in nodes])
        order = np.array([row.get(attribute.members, len(row)) for attribute in attributes], np.int64)
        return cls(block, offsets, children, siblings, columns, order)


def _downwards(path: Path, below: Mapping[Path, Sequence[Path]]) -> Iterator[Path]:
    """A path and all that lie below it, in the order in which attributes are declared: events often keep it."""
    yield path
    for child in below[path]:
        yield from _downwards(child, below)


@lru_cache(maxsize=256)
def _tree(attributes: tuple[Attribute, ...]) -> _Tree:
    return _Tree.of(attributes)


@lru_cache(maxsize=256)
def _category(attribute: Attribute) -> _Category:
    return _Category.of(attribute)


def _laid_out(values: list[bytes]) -> tuple[Bytes, Ints]:
    """Values one after another, and where each begins and the last ends."""
    if len(values) == 1:
        return np.frombuffer(values[0], np.uint8), np.array([0, len(values[0])])
    offsets = np.zeros(len(values) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, values), np.int64, len(values)), out=offsets[1:])
    return np.frombuffer(b"".join(values), np.uint8), offsets


# --- reading ------------------------------------------------------------------------------------------------


def _decode_one(event_type: EventType, value: bytes, layout: _Layout) -> RankBatch:
    """One flat document, as `_decode` reads it; here calls cost most, and there are as few as can be."""
    d, data = len(layout.kinds), np.frombuffer(value, _BYTE)
    offsets, starts, lows = np.empty(2, _INT), np.empty((d, 1), _INT), np.empty((1, d), _INT)
    valid = np.empty(1, _BOOL)
    if read_one(
        data, layout.names_at, layout.name_offsets, layout.kinds, layout.imprecise, offsets, starts, lows, valid
    ):
        return _decode(event_type, data, offsets, {})
    return RankBatch(lows, valid, None, data, offsets, _read_flat, starts=starts)


def _decode(
    event_type: EventType, data: Bytes, offsets: Ints, beside: Beside, present: Bools | None = None
) -> RankBatch:
    n, layout = len(offsets) - 1, _layout(event_type.attributes)
    status, lows = np.empty(n, np.uint8), np.empty((n, event_type.d), np.int64)
    highs = np.empty((n if layout.is_imprecise else 0, event_type.d), np.int64)
    valid = np.empty(n, bool)
    if event_type.is_flat and present is None:
        starts = np.empty((event_type.d, n), np.int64)
        read = (
            data,
            offsets,
            layout.names_at,
            layout.name_offsets,
            layout.kinds,
            layout.imprecise,
            starts,
            status,
            lows,
            highs,
        )
        if layout.categories:
            read_flat(*read)
            for column in layout.categories:
                _read_column(event_type.attributes[column], starts, column, status, lows, highs)
            hard = settle(status, starts, valid)
        else:
            hard = read_whole(*read, valid)
    else:
        starts = _find(event_type, data, offsets, status)
        if present is not None:
            status[~present] = INVALID
        _read_columns(event_type, beside, starts, status, lows, highs)
        hard = settle(status, starts, valid)
    reader = _reader(event_type, beside)
    if not hard:
        exact = not layout.is_imprecise or not (highs != lows).any()
        return RankBatch(lows, valid, None if exact else highs, data, offsets, reader, starts=starts)
    batch = RankBatch(lows, valid, None, data, offsets, reader)
    for i in np.flatnonzero(status == HARD).tolist():
        lows[i], high = rank_spans(event_type, batch.event(i))
        if layout.is_imprecise:
            highs[i] = high
    found = highs if layout.is_imprecise and (highs != lows).any() else None
    return msgspec.structs.replace(batch, starts=starts, highs=found)


def _read_columns(
    event_type: EventType, beside: Beside, starts: Ints, status: Bytes, lows: Ranks, highs: Ranks
) -> None:
    """Write the ranks of all columns, those of headers and keys among them."""
    for column, attribute in enumerate(event_type.attributes):
        if attribute.members:
            _read_column(attribute, starts, column, status, lows, highs)
        else:
            lows[:, column] = _ranks_of_texts(attribute, beside.get(attribute.name), len(status))
            lows[status == INVALID, column] = ABSENT
            if len(highs):
                highs[:, column] = lows[:, column]


def _decode_encoded(
    event_type: EventType, data: Bytes, offsets: Ints, beside: Beside, present: Bools | None, schemas: Schemas
) -> RankBatch:
    """Read values that are not JSON (`encodings/encoded_batches.py`)."""
    found = read_encoded(event_type, data, offsets, present, schemas)
    n = len(offsets) - 1
    for attribute in event_type.beside:
        column = event_type.dimension[attribute.name]
        ranks = _ranks_of_texts(attribute, beside.get(attribute.name), n)
        found.lows[:, column] = found.highs[:, column] = np.where(found.valid, ranks, ABSENT)

    def read(_: bytes, i: int) -> Event:
        return {**found.event(i), **_beside_at(event_type, beside, i)}

    highs = None if (found.lows == found.highs).all() else found.highs
    return RankBatch(found.lows, found.valid, highs, data, offsets, read, found.unknown, found.awaited)


def _find(event_type: EventType, data: Bytes, offsets: Ints, status: Bytes) -> Ints:
    """Where the value of each attribute begins in each row; writes what became of the row."""
    if event_type.is_flat:
        starts = np.empty((event_type.d, len(status)), np.int64)
        layout = _layout(event_type.attributes)
        find_members(data.ctypes.data, offsets, layout.names_at, layout.name_offsets, starts, status)
        return starts
    tree = _tree(event_type.attributes)
    starts = np.empty((int(tree.columns[0, 1]) + 1, len(status)), np.int64)
    find_nested(
        data.ctypes.data,
        offsets,
        tree.names.ctypes.data,
        tree.name_offsets,
        tree.children,
        tree.siblings,
        tree.columns,
        starts,
        status,
    )
    return starts[tree.order]


def _ranks_of_texts(attribute: Attribute, texts: Texts | pa.Array | None, n: int) -> Ranks:
    """The ranks of what a header or key holds, each distinct text read once."""
    if texts is None:
        return np.full(n, ABSENT, np.int64)
    assert len(texts) == n, f"{len(texts)} texts of {attribute.name} for {n} events"
    if hasattr(texts, "dictionary_encode"):
        encoded = texts.dictionary_encode()
        known = [rank(attribute, value_of_text(attribute, text)) for text in encoded.dictionary.to_pylist()]
        # a null has no index; -1 is the last
        codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        return np.array([*known, ABSENT], np.int64)[codes]
    of = {text: rank(attribute, value_of_text(attribute, text)) for text in set(texts)}
    return np.array([of[text] for text in texts], np.int64)


def _reader(event_type: EventType, beside: Beside) -> Reader:
    """How an event is read in Python: the document, and from it and what is beside it the attributes."""
    if event_type.is_flat:
        return _read_flat

    def read(value: bytes, i: int) -> Event:
        return {**attributes_of(event_type, _loads(value)), **_beside_at(event_type, beside, i)}

    return read


def _read_flat(value: bytes, _: int) -> Event:
    return _loads(value)


def _beside_at(event_type: EventType, beside: Beside, i: int) -> dict[str, object]:
    """What headers and key of row i hold of attributes."""
    found = {}
    for attribute in event_type.beside:
        texts = beside.get(attribute.name)
        given = None if texts is None else value_of_text(attribute, _text_at(texts, i))
        if given is not None:
            found[attribute.name] = given
    return found


def _text_at(texts: Texts | pa.Array, i: int) -> bytes | None:
    text: Any = texts[i]
    return cast(bytes | None, text.as_py() if hasattr(text, "as_py") else text)


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


def _loads(value: bytes) -> dict[str, object]:
    """Read a value that the scan found valid with Python's own reader."""
    text = value.decode()
    parse_float = read_decimal if _EXACTLY.search(value) else None
    try:
        return cast(dict[str, object], json.loads(text, parse_float=parse_float))
    except json.JSONDecodeError as error:
        raise AssertionError(f"the scanner let pass what is not JSON: {value!r}") from error
    except ValueError:  # an integer longer than Python converts
        return cast(dict[str, object], json.loads(text, parse_int=integer, parse_float=parse_float))
