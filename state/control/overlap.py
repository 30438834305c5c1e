"""Overlap of advertisements and subscriptions: which of many filters share an event with one.

A filter is asked about as it lies in a part: its geometry there, and its *wording* where boxes alone do not decide
(text of more than 7 bytes, LIKE). Boxes say no first, and the wordings, compared as [BADV06] §4 does, after them:

    title = 'The Silent River of Lima' AND price < 9         ┌─ no box in common ───────────────────────> no
    title = 'The Silent River of Oslo' AND price > 5   ──────┼─ boxes meet, one of them has no wording ─> overlap
                                                             └─ boxes meet, both have one ──> trees ────> either

`Side` is one side of the question: all that an interface advertised, or all that it asks for. A new subscription asks
the first for any (First of [BADV06] §6.2), a new or ended advertisement the second for every one (All).

`Sides` keeps them from batch to batch in memory. A side is known by its stamp, a hash of all that ever changed it,
which is part of the part's state: one that does not have the stamp of the state is built anew.

Guarantee: no overlap is ever denied; the answers depend on what a side holds, and not on how it came to hold it.
Differs: in a cube two filters are said to overlap whose boxes meet there and whose wordings share an event anywhere.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple

import msgspec
import numpy as np

from state.advertisements.filter_index import FilterIndex
from state.advertisements.normal import Normal, Normaliser
from state.arrays import Ints
from state.filters.grammar import parse
from state.reductions.entry_rows import EntryRows
from state.space.boxes import Boxes
from state.space.event_type import EventType
from state.space.packing import Geometry, Packed, pack
from state.space.ranges import Ranges

SIDES_MAX = 50_000
"""Filters of all sides that one process keeps between batches: some kilobytes each."""
WORDING_BYTES_MAX = 8192
"""A longer wording does not travel, and boxes decide: an entry and its two geometries must fit a message. Admitted
filters have half of it; printing may make them longer."""
WORDINGS_MAX = 4096
"""Wordings of a type that are remembered as they were read."""
_STAMP_BYTES = 16
_NO_ROWS = np.empty(0, np.int64)


class Asked(NamedTuple):
    """A filter as it lies in a part."""

    geometry: Geometry
    wording: str | None = None
    """In words, where boxes alone do not decide; None: boxes do."""
    packed: Packed | None = None
    """The geometry as it came, where it goes on as it is."""


class Wordings:
    """Reads wordings of one type, each once while it is remembered."""

    def __init__(self, event_type: EventType) -> None:
        self._type = event_type
        self._normal = Normaliser(event_type)
        self.read = lru_cache(maxsize=WORDINGS_MAX)(self._read)

    def _read(self, wording: str) -> Normal:
        return self._normal(parse(wording, self._type, limits=False))


class Side:
    """Filters by id, that tell which of them overlap another.

    Cost: a change O(log n), and some 50 us for a wording; a question what the boxes that meet cost, and nanoseconds
    for each wording up to the first that overlaps (All: for every one, and for each answer as much again, and the first
    after a change one look at each; `python -m benchmarks.advertisements broker`).

    >>> from state.space.event_type import Attribute, EventType
    >>> book = EventType("book", (Attribute("title", "text"),))
    >>> side, somewhere = Side(book, Wordings(book)), Boxes.everything(1)
    >>> side.put("a", Asked(somewhere, "title = 'a long title'"))
    >>> side.first(Asked(somewhere, "title LIKE '%long%'")), side.first(Asked(somewhere, "title LIKE '%short'"))
    (True, False)
    >>> side.put("b", Asked(somewhere))
    >>> side.all(Asked(somewhere, "title LIKE '%short'"))
    {'b'}
    """

    def __init__(self, event_type: EventType, wordings: Wordings, d: int | None = None) -> None:
        self._wordings = wordings
        self.asked: dict[str, Asked] = {}
        d = event_type.d if d is None else d
        self._plain, self._worded = EntryRows(d), EntryRows(d)
        """The boxes (ranges are boxes of one dimension) of filters without a wording, and with one."""
        self._trees = FilterIndex(event_type)
        self._starts: Ints | None = None
        """Where the boxes of each tree begin, by its row, while nothing changes."""
        self._names: set[str] = set()
        """The ids of all trees, as long."""

    def __len__(self) -> int:
        return len(self.asked)

    def put(self, id: str, asked: Asked) -> None:
        """Take a filter in; one under the same id is replaced."""
        self.drop(id)
        self.asked[id], self._starts = asked, None
        if asked.wording is None:
            self._plain.add(id, _boxes(asked.geometry))
        else:
            boxes = self._sound(asked)
            self._worded.add(id, boxes)
            if len(boxes):
                self._trees.add(id, self._wordings.read(asked.wording))

    def drop(self, id: str) -> None:
        """Take a filter out, if it is there."""
        asked, self._starts = self.asked.pop(id, None), None
        if asked is not None:
            (self._plain if asked.wording is None else self._worded).remove(id)
            self._trees.remove(id)

    def first(self, asked: Asked) -> bool:
        """Whether any filter overlaps `asked`."""
        boxes = self._sound(asked)
        if any(self._plain.meets(low, high) for low, high in boxes):
            return True
        if asked.wording is None:
            return any(self._worded.meets(low, high) for low, high in boxes)
        question = self._wordings.read(asked.wording)
        found = self._trees.overlapping(question, first=True).get("", [])
        if not found or self._worded.touching(self._worded.starts(found), boxes).all():
            return bool(found)
        return len(self._fitting(question, boxes)) > 0  # the one that was found lies elsewhere: all are asked for

    def all(self, asked: Asked) -> set[str]:
        """The ids of all filters that overlap `asked`."""
        boxes = self._sound(asked)
        found = _meeting(self._plain, boxes)
        if asked.wording is None:
            found |= _meeting(self._worded, boxes)
        else:
            fitting = self._named(self._fitting(self._wordings.read(asked.wording), boxes))
            found = found | fitting if found else fitting
        return found

    def _sound(self, asked: Asked) -> Boxes:
        """Its boxes; none where its words contradict each other: it shares an event with nobody."""
        boxes = _boxes(asked.geometry)
        never = asked.wording is not None and self._wordings.read(asked.wording).never
        return Boxes.empty(boxes.d) if never else boxes

    def _fitting(self, question: Normal, boxes: Boxes) -> Ints:
        """The rows of the trees that overlap both in words and in boxes."""
        found = self._trees.rows(question)
        if not found:
            return _NO_ROWS
        rows, group = found[""], self._trees.groups[""]
        if self._starts is None:
            there = np.flatnonzero(group.rows.count[: group.rows.size] >= 0)
            names = group.ids[there].tolist()
            self._starts, self._names = np.zeros(group.rows.size, np.int64), set(names)
            self._starts[there] = self._worded.starts(names)
        return rows[self._worded.touching(self._starts[rows], boxes)]

    def _named(self, rows: Ints) -> set[str]:
        """The ids of some trees: of most, a copy of all without the others, which costs a third."""
        if not len(rows):
            return set()
        group = self._trees.groups[""]
        if 2 * len(rows) < len(self._names):
            return set(group.ids[rows].tolist())
        others = group.rows.count[: group.rows.size] >= 0
        others[rows] = False
        found = self._names.copy()
        found.difference_update(group.ids[others.nonzero()[0]].tolist())
        return found

    def check(self) -> None:
        """Assert every invariant."""
        self._trees.check()
        for rows in (self._plain, self._worded):
            rows.check()
        worded = {id for id, asked in self.asked.items() if asked.wording is not None}
        assert set(self._worded.entries) == worded
        assert set(self._trees.ids()) == {id for id, boxes in self._worded.entries.items() if len(boxes)}
        assert set(self._plain.entries) == self.asked.keys() - worded
        assert self._starts is None or self._names == set(self._trees.ids())


def _meeting(rows: EntryRows, boxes: Boxes) -> set[str]:
    met = [rows.meeting(low, high) for low, high in boxes] if len(rows) else []
    return set(rows.ids(np.concatenate(met))) if met else set()


class Sides:
    """The sides that a process keeps between batches, least recently used first."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, str], tuple[bytes, Side]] = OrderedDict()
        self.size = 0
        """Filters of all of them."""
        self.built = 0
        """Sides that were not kept, and built anew."""

    def take(self, name: tuple[str, str], stamp: bytes) -> Side | None:
        """Hand out a side that has this stamp; it is kept no longer until it is given back."""
        stamped, side = self._kept.pop(name, (b"", None))
        self.size -= 0 if side is None else len(side)
        return side if stamped == stamp else None

    def keep(self, name: tuple[str, str], stamp: bytes, side: Side) -> None:
        """Keep a side; others go if there are too many."""
        assert name not in self._kept, "a side was taken before it is given back"
        self._kept[name] = stamp, side
        self.size += len(side)
        while self.size > SIDES_MAX:
            _, (_, gone) = self._kept.popitem(last=False)
            self.size -= len(gone)


def stamped(stamp: bytes, changes: Mapping[str, Asked | None]) -> bytes:
    """The stamp of a side after these changes.

    >>> one = stamped(b"", {"a": Asked(Boxes.everything(1)), "b": None})
    >>> one == stamped(b"", {"b": None, "a": Asked(Boxes.everything(1))}), one == stamped(b"", {"b": None})
    (True, False)
    """
    found = blake2b(stamp, digest_size=_STAMP_BYTES)
    for id, asked in sorted(changes.items(), key=_by_id):
        told = None if asked is None else (asked.wording, pack(asked.geometry))
        found.update(_encoder.encode((id, told)))
    return found.digest()


def applied(side: Side, changes: Iterable[tuple[str, Asked | None]]) -> None:
    """Bring a side up to date."""
    for id, asked in changes:
        if asked is None:
            side.drop(id)
        else:
            side.put(id, asked)


_encoder = msgspec.msgpack.Encoder()


def _by_id(item: tuple[str, object]) -> str:
    return item[0]


def _boxes(geometry: Geometry) -> Boxes:
    if isinstance(geometry, Ranges):
        return Boxes(geometry.starts.reshape(-1, 1), geometry.ends.reshape(-1, 1))
    return geometry
