"""One broker and type, ready to route: all its compiled parts joined, and kept joined while parts change.

    parts (compiled_part.py)  ──update──>  subscriptions   number ─> id, client, destination, filter
                                           matcher         boxes of subscriptions, by number
                                           links           per neighbour: boxes under numbers of their own,
                                                           or one table of ranges

Of a subscription the *id* is what its client calls it, the *entry* its place in a part, the *number* what a junction
calls it: one small integer for as long as its entry does not change.

A part that changed is compared with what it was; only the entries that differ are taken out and put in. So a change
costs what it concerns, not what there is: numbers of what stays are kept, those of what went are used again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from state.advertisements.conformance import Promises
from state.arrays import Bools, Ints
from state.compiled_part import IMPRECISE_RANGES_MAX, CompiledPart, join_ranges, overlap_ranges
from state.errors import HilcastError
from state.filters.evaluate import Holds
from state.filters.evaluate import compile as compile_filter
from state.filters.grammar import parse
from state.filters.long_texts import asked_texts, with_hashes
from state.filters.residual_programs import OPEN, YES, Program, Programs
from state.filters.tree import Filter
from state.keys import Key
from state.matchers import matcher_of
from state.names import parted
from state.reductions.interval_table import CompiledTable
from state.space.boxes import Boxes
from state.space.decode import RankBatch
from state.space.event_type import EventType
from state.space.grid import Grid
from state.space.packing import BOXES, Packed, unpack
from state.space.ranges import Ranges
from state.space.ranks import ABSENT, PRESENT_MAX

_NONE: Ints = np.empty(0, np.int64)


class Pairs(NamedTuple):
    """Pairs of an event and a subscription: the row of one, the number of the other at its junction."""

    rows: Ints
    numbers: Ints

    @classmethod
    def none(cls) -> Pairs:
        return cls(_NONE, _NONE)

    def take(self, some: Ints | Bools) -> Pairs:
        """These of the pairs."""
        return Pairs(self.rows[some], self.numbers[some])

    def joined(self, other: Pairs) -> Pairs:
        """The pairs of both, one after the other."""
        return Pairs(np.concatenate([self.rows, other.rows]), np.concatenate([self.numbers, other.numbers]))


class NumberedBoxes:
    """A matcher whose boxes come and go under numbers that are used again."""

    def __init__(self, event_type: EventType, more: int = 0) -> None:
        self.matcher = matcher_of(event_type, more)
        self.numbers = 0
        """Numbers ever given out: all are below."""
        self._free: list[int] = []
        self._dead = 0

    def take(self, n: int) -> Ints:
        """Give out n numbers."""
        again = [self._free.pop() for _ in range(min(n, len(self._free)))]
        fresh = np.arange(self.numbers, self.numbers + n - len(again))
        self.numbers += len(fresh)
        return np.concatenate([np.array(again, np.int64), fresh])

    def change(self, gone: Ints, boxes: Boxes, numbers: Ints) -> None:
        """Take out all boxes of the numbers `gone`, then put in boxes under their numbers. Cost: that of the change."""
        before = len(self.matcher)
        if len(gone):
            self.matcher.remove(gone)
            self._dead += before - len(self.matcher)
        if len(boxes):
            self.matcher.insert(boxes, numbers)
        if self._dead > len(self.matcher):
            self.matcher.resort()
            self._dead = 0

    def free(self, gone: Ints) -> None:
        """Take numbers back, after `change`."""
        self._free += gone.tolist()


@dataclass
class _Placed:
    """A part and the numbers of what it holds."""

    part: CompiledPart
    numbers: Ints
    """By entry: the number of the subscription."""
    links: dict[str, Ints]
    """By neighbour: the number of each box of the link."""


@dataclass
class Junction:
    """One broker and type, ready to route: who here is interested, and which links want it.

    Invariant: answers as a junction that was joined anew from the same parts.
    """

    event_type: EventType
    grid: Grid
    ids: list[str] = field(default_factory=list)
    """By number; numbers that are free have an empty id and no box."""
    clients: list[str] = field(default_factory=list)
    destinations: list[str] = field(default_factory=list)
    residuals: dict[int, Callable[[Mapping[str, object]], bool]] = field(default_factory=dict)
    doubtful: Ints = field(default_factory=lambda: _NONE)
    """Numbers of subscriptions whose boxes are a superset even for points."""
    _doubted: Bools = field(default_factory=lambda: np.empty(0, bool))
    """The same by number."""
    grouped: Bools = field(default_factory=lambda: np.empty(0, bool))
    """By number: whether the client may be served through group and broadcast topics."""
    link_boxes: dict[str, NumberedBoxes] = field(default_factory=dict)
    link_ranges: dict[str, CompiledTable] = field(default_factory=dict)
    promises: Promises = field(init=False)
    """The advertisements that entered here."""
    faults: list[str] = field(default_factory=list)
    """Lines for the log, until somebody says them and clears this: entries whose filter cannot be read.

    Control lets no such entry through; should one be here all the same, it gets nothing, and everybody else all.
    """
    version: int = 0
    """Of the subscriptions: what was computed by number holds as long as it stays."""
    _local: NumberedBoxes = field(init=False)
    """In the dimensions of the attributes, then the hashes of the texts."""
    _text_columns: list[int] = field(init=False)
    _hashed: set[int] = field(default_factory=set)
    """Those of them whose hash some box has asked for."""
    _placed: dict[Key, _Placed] = field(default_factory=dict)
    _texts: dict[int, str] = field(default_factory=dict)
    """By number: the text of the residual filter."""
    _programs: Programs = field(default_factory=Programs)
    """By number: the doubtful filters, for compiled code."""
    _filters: dict[str, tuple[Filter, Holds]] = field(default_factory=dict)
    """By text: every filter that is checked here, read and compiled once."""

    def __post_init__(self) -> None:
        self.promises = Promises(self.event_type)
        # An interval of texts may look like a point, and has no hash.
        texts = [attribute.kind == "text" and attribute.imprecise is None for attribute in self.event_type.attributes]
        self._text_columns = [column for column, is_text in enumerate(texts) if is_text]
        self._local = NumberedBoxes(self.event_type, len(self._text_columns))

    @classmethod
    def join(cls, event_type: EventType, grid: Grid, parts: Iterable[CompiledPart]) -> Junction:
        """Join the parts of one broker and type. Cost: O(boxes log boxes), and a parse for each filter."""
        self = cls(event_type, grid)
        self.update({Key("", event_type.name, str(i)): part for i, part in enumerate(parts)})
        return self

    # ── change ──────────────────────────────────────────────────────────────────────────────────────────────────

    def update(self, parts: Mapping[Key, CompiledPart]) -> None:
        """Take these parts in the place of those of the same key.

        Cost: one comparison of each entry of these parts with what it was; O(changed log changed) for what differs.
        """
        before = {key: self._placed.get(key) for key in parts}
        changed = {key: part for key, part in parts.items() if (was := before[key]) is None or was.part is not part}
        if not changed:
            return
        for key, part in changed.items():
            self._placed[key] = _Placed(part, _NONE, {})
        self._update_local(changed, before)
        self._update_links(changed, before)
        advertised = any(
            (was := before[key]) is None or was.part.advertisements != changed[key].advertisements for key in changed
        )
        if advertised:
            self._advertise()
        used = {text for placed in self._placed.values() for _, text in placed.part.advertisements}
        used.update(self._texts.values())
        self._filters = {text: read for text, read in self._filters.items() if text in used}

    def _update_local(self, changed: Mapping[Key, CompiledPart], before: Mapping[Key, _Placed | None]) -> None:
        gone, boxes, numbers = [], [], []
        new: list[tuple[CompiledPart, Ints, Ints]] = []
        for key, part in changed.items():
            was = before[key]
            same = np.full(len(part.ids), -1) if was is None else _same_entries(was, part)
            fresh = np.flatnonzero(same < 0)
            if was is not None:
                gone.append(np.setdiff1d(was.numbers, same))
            same[fresh] = self._local.take(len(fresh))
            self._placed[key].numbers = same
            new.append((part, fresh, same))
            rows, entry = unpack(part.boxes), np.frombuffer(part.owners, "<i4")
            assert isinstance(rows, Boxes)
            mine = np.ones(len(entry), bool) if was is None else np.isin(entry, fresh)
            hashed, source = self._with_hashes(part, rows.take(mine), entry[mine])
            boxes.append(hashed)
            numbers.append(same[entry[mine]][source])
        away = np.concatenate([_NONE, *gone])
        if not len(away) and not any(len(fresh) for _, fresh, _ in new):
            return
        d = self.event_type.d + len(self._text_columns)
        self._local.change(away, Boxes.concatenated(boxes, d), np.concatenate(numbers))
        self._register(away, new)
        self._local.free(away)

    def _with_hashes(self, part: CompiledPart, boxes: Boxes, entries: Ints) -> tuple[Boxes, Ints]:
        """Boxes of entries with the hashes of the long texts that they ask for, and the row that each came from."""
        if not self._text_columns:
            return boxes, np.arange(len(boxes))
        asked = {}
        doubtful = set(part.doubtful)
        for row, entry in enumerate(entries.tolist()):
            read = self._read(part.residuals.get(entry, "")) if entry in doubtful else None
            texts = None if read is None else asked_texts(read[0], self.event_type)
            if texts is not None and texts[0] in self._text_columns:
                asked[row] = texts
                self._hashed.add(texts[0])
        return with_hashes(boxes, asked, self._text_columns)

    def _register(self, away: Ints, new: list[tuple[CompiledPart, Ints, Ints]]) -> None:
        """Write down what the numbers stand for now."""
        room = self._local.numbers - len(self.ids)
        for column in (self.ids, self.clients, self.destinations):
            column += [""] * room
        doubtful = np.zeros(self._local.numbers, bool)
        doubtful[self.doubtful] = True
        self.grouped = np.append(self.grouped, np.zeros(room, bool))
        doubtful[away] = self.grouped[away] = False
        for number in away.tolist():
            self.ids[number] = self.clients[number] = self.destinations[number] = ""
            self.residuals.pop(number, None)
            self._texts.pop(number, None)
            self._programs.drop(number)
        imprecise = any(attribute.imprecise for attribute in self.event_type.attributes)
        for part, fresh, numbers in new:
            uncertain = set(part.doubtful)
            for entry, number in zip(fresh.tolist(), numbers[fresh].tolist(), strict=True):
                self.ids[number], self.clients[number] = parted(part.ids[entry])[1], part.clients[entry]
                self.destinations[number] = part.destinations[entry]
                doubted = entry in uncertain
                if doubted or imprecise or entry in part.residuals:
                    doubtful[number] = not self._ask(number, part.residuals.get(entry, ""), doubted) or doubted
            self.grouped[numbers[np.intersect1d(part.grouped, fresh).astype(np.int64)]] = True
        self.doubtful, self._doubted = np.flatnonzero(doubtful), doubtful
        self.version += 1
        for cached in ("id_column", "_recipients"):
            self.__dict__.pop(cached, None)

    def _update_links(self, changed: Mapping[Key, CompiledPart], before: Mapping[Key, _Placed | None]) -> None:
        parts = [*changed.values(), *(was.part for was in before.values() if was is not None)]
        for neighbour in sorted({n for part in parts for n in part.links}):
            kinds = {part.links[neighbour].kind for part in parts if neighbour in part.links}
            assert len(kinds) == 1, "a link is kept as boxes or as ranges"
            if BOXES in kinds:
                self._update_boxes(neighbour, changed, before)
            else:
                self._join_ranges(neighbour)

    def _update_boxes(
        self, neighbour: str, changed: Mapping[Key, CompiledPart], before: Mapping[Key, _Placed | None]
    ) -> None:
        link = self.link_boxes.setdefault(neighbour, NumberedBoxes(self.event_type))
        gone, boxes, numbers = [], [], []
        for key, part in changed.items():
            packed, was = part.links.get(neighbour), before[key]
            old, of_old = (
                (None, _NONE) if was is None else (was.part.links.get(neighbour), was.links.get(neighbour, _NONE))
            )
            same = _same_boxes(old, of_old, packed)
            gone.append(np.setdiff1d(of_old, same))
            fresh = np.flatnonzero(same < 0)
            same[fresh] = link.take(len(fresh))
            if packed is not None:
                self._placed[key].links[neighbour] = same
                rows = unpack(packed)
                assert isinstance(rows, Boxes)
                boxes.append(rows.take(fresh))
                numbers.append(same[fresh])
        away = np.concatenate([_NONE, *gone])
        link.change(away, Boxes.concatenated(boxes, self.event_type.d), np.concatenate([_NONE, *numbers]))
        link.free(away)

    def _join_ranges(self, neighbour: str) -> None:
        packed = [placed.part.links.get(neighbour) for placed in self._placed.values()]
        ranges = [unpack(one) for one in packed if one is not None]
        self.link_ranges[neighbour] = CompiledTable(join_ranges([r for r in ranges if isinstance(r, Ranges)]))

    def _advertise(self) -> None:
        self.promises = Promises(self.event_type)
        every = {advertisement for placed in self._placed.values() for advertisement in placed.part.advertisements}
        for i, (publisher, text) in enumerate(sorted(every)):
            read = self._read(text)
            if read is None:
                self.faults.append(f"an advertisement of {publisher[:80]!r} cannot be read: {text[:80]!r}")
            else:
                self.promises.add(str(i), publisher, *read)

    def _ask(self, number: int, text: str, doubted: bool) -> bool:
        """Have a number decided by its filter; tell whether that can be read. If not, the number gets nothing."""
        read = self._read(text)
        if read is None:
            who = f"{self.ids[number]} of {self.clients[number]}"
            self.faults.append(f"the filter of {who} cannot be read: {text[:80]!r}")
            self.residuals[number] = _nobody
            return False
        self._texts[number], self.residuals[number] = text, read[1]
        if doubted:
            self._programs.put(number, Program(read[0], self.event_type))
        return True

    def _read(self, text: str) -> tuple[Filter, Holds] | None:
        if text not in self._filters:
            try:
                # printing may have lengthened an admitted filter beyond the limits of admission
                filter = parse(text, self.event_type, limits=False)
            except (HilcastError, RecursionError):
                return None
            self._filters[text] = filter, compile_filter(filter, self.event_type)
        return self._filters[text]

    # ── ask ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def conforming(self, batch: RankBatch, rows: Ints, publishers: Sequence[str]) -> Bools:
        """Tell for some rows of a batch, each of a publisher, whether an advertisement that entered here holds."""

        def text(attribute: str, some: Ints) -> list[object]:
            return [batch.event(row).get(attribute) for row in rows[some].tolist()]

        held = self.promises.conforms_batch(publishers, batch.ranks[rows], text)
        if batch.highs is not None:
            for i in np.flatnonzero((batch.highs[rows] != batch.ranks[rows]).any(axis=1)).tolist():
                held[i] = self.promises.conforms(publishers[i], batch.event(int(rows[i])))
        return held

    @cached_property
    def id_column(self) -> pa.Array:
        """Ids by number, for gathering."""
        return pa.array([id.encode() for id in self.ids], pa.binary())

    @cached_property
    def _recipients(self) -> tuple[list[tuple[str, str]], Ints]:
        """The distinct pairs of client and destination, and by number which of them it is."""
        own: dict[tuple[str, str], int] = {}
        pairs = zip(self.clients, self.destinations, strict=True)
        codes = [own.setdefault(pair, len(own)) for pair in pairs]
        return list(own), np.array(codes, np.int64)

    def recipients(self, table: dict[tuple[str, str], int]) -> Ints:
        """By number the place of its client and destination in `table`, which grows as needed."""
        pairs, codes = self._recipients
        return np.array([table.setdefault(pair, len(table)) for pair in pairs], np.int64)[codes]

    def interested(self, batch: RankBatch, rows: Ints) -> Pairs:
        """Some events of a batch, by place among `rows`, and subscriptions whose boxes hold.

        `doubtful` ones are still to be checked exactly. `rows`: near each other, where they follow each other.
        """
        ranks = batch.ranks[rows]
        if self._text_columns:
            d = self.event_type.d
            ranks = np.full((len(rows), d + len(self._text_columns)), ABSENT, np.int64)
            ranks[:, :d] = batch.ranks[rows]
            for i, column in enumerate(self._text_columns):
                if column in self._hashed:
                    ranks[:, d + i] = batch.text_hashes(column, self.event_type.attributes[column].name)[rows]
        return Pairs(*self._local.matcher.match(ranks, near=True))

    def exactly(self, found: Pairs, batch: RankBatch) -> Pairs:
        """Those of the pairs of points and subscriptions whose boxes hold for which the filter does."""
        doubted = np.flatnonzero(self._doubted[found.numbers]) if len(self.doubtful) else _NONE
        if not len(doubted):
            return found
        keep = np.ones(len(found.rows), bool)
        keep[doubted] = self.holds(found.take(doubted), batch, points=True)
        return found.take(keep)

    def holds(self, pairs: Pairs, batch: RankBatch, points: bool) -> Bools:
        """Decide exactly, by the filter itself, where boxes cannot: the edge is where delivery becomes exact.

        `points`: whether no event is imprecise. Then compiled programs decide what they can; all that is left is asked
        of the filter, event by event.
        """
        answers = np.full(len(pairs.rows), OPEN, np.uint8)
        if points and batch.starts is not None:
            answers = self._programs.decide(pairs.rows, pairs.numbers, batch.ranks, batch.starts)
        left = np.flatnonzero(answers == OPEN)
        each = zip(pairs.rows[left].tolist(), pairs.numbers[left].tolist(), strict=True)
        answers[left] = [self.residuals[number](batch.event(row)) for row, number in each]
        return answers == YES

    def touched(self, lows: Ints, highs: Ints) -> Pairs:
        """Imprecise events and subscriptions whose boxes meet; every one is still to be checked exactly."""
        # A value between two texts may be any, and have any hash.
        more = len(lows), len(self._text_columns)
        lows, highs = np.hstack([lows, np.full(more, ABSENT)]), np.hstack([highs, np.full(more, PRESENT_MAX)])
        return Pairs(*self._local.matcher.match_boxes(lows, highs))

    def wanted(self, neighbour: str, ranks: Ints, index: Ints) -> Bools:
        """For each event whether the link to `neighbour` wants it; may be a superset, never less.

        `index`: the events' Hilbert indices.
        """
        if neighbour in self.link_boxes:
            return self.link_boxes[neighbour].matcher.match_any(ranks, near=True)
        if neighbour in self.link_ranges:
            return self.link_ranges[neighbour].lookup(index)
        return np.zeros(len(ranks), bool)

    def wanted_boxes(self, neighbour: str, lows: Ints, highs: Ints) -> Bools:
        """The same for imprecise events: whether anything the link asked for meets the event's box."""
        wanted = np.zeros(len(lows), bool)
        if neighbour in self.link_boxes:
            wanted[self.link_boxes[neighbour].matcher.match_boxes(lows, highs).rows] = True
        elif neighbour in self.link_ranges:
            table = self.link_ranges[neighbour].ranges
            for i, (low, high) in enumerate(zip(lows, highs, strict=True)):
                box = Boxes(low.reshape(1, -1), high.reshape(1, -1))
                wanted[i] = overlap_ranges(self.grid.ranges(box, IMPRECISE_RANGES_MAX), table)
        return wanted

    def check(self) -> None:
        """Assert that the numbers are those of the parts, each once, and that the matchers are sound."""
        given = np.concatenate([_NONE, *(placed.numbers for placed in self._placed.values())])
        assert len(np.unique(given)) == len(given)
        assert len(self.ids) == len(self.clients) == len(self.destinations) == len(self.grouped) == self._local.numbers
        assert {number for number, id in enumerate(self.ids) if id} <= set(given.tolist())
        for boxes in (self._local, *self.link_boxes.values()):
            boxes.matcher.check()
        for neighbour, link in self.link_boxes.items():
            numbers = np.concatenate([_NONE, *(p.links.get(neighbour, _NONE) for p in self._placed.values())])
            assert len(np.unique(numbers)) == len(numbers) == len(link.matcher)


def _nobody(event: Mapping[str, object]) -> bool:
    return False


def _same_entries(was: _Placed, part: CompiledPart) -> Ints:
    """By entry of a part its number, if it was there with equal boxes and equal words; else -1."""
    known = {id: (i, int(number)) for i, (id, number) in enumerate(zip(was.part.ids, was.numbers, strict=True))}
    old, new = _Entries(was.part), _Entries(part)
    same = np.full(len(part.ids), -1, np.int64)
    for i, id in enumerate(part.ids):
        found = known.get(id)
        if found is not None and old.entry(found[0]) == new.entry(i):
            same[i] = found[1]
    return same


class _Entries:
    """The entries of a part, to be compared one by one."""

    def __init__(self, part: CompiledPart) -> None:
        self.part = part
        self.doubtful, self.grouped = set(part.doubtful), set(part.grouped)
        of_box = np.frombuffer(part.owners, "<i4")
        self.ends = (np.searchsorted(of_box, np.arange(len(part.ids) + 1)) * part.d * 8).tolist()

    def entry(self, i: int) -> tuple[object, ...]:
        part, a, b = self.part, self.ends[i], self.ends[i + 1]
        return (
            part.clients[i], part.destinations[i], part.residuals.get(i), i in self.doubtful, i in self.grouped,
            part.boxes.lows[a:b], part.boxes.highs[a:b],
        )  # fmt: skip


def _same_boxes(old: Packed | None, numbers: Ints, new: Packed | None) -> Ints:
    """For each box of `new` the number of an equal box of `old`, each number once; else -1."""
    if new is None:
        return _NONE
    if old is None:
        return np.full(len(new.lows) // (8 * new.d), -1, np.int64)
    if old == new:
        return numbers.copy()
    number = dict(zip(_rows(old), numbers.tolist(), strict=True))
    return np.array([number.pop(row, -1) for row in _rows(new)], np.int64)


def _rows(packed: Packed) -> list[bytes]:
    """Each box as bytes."""
    boxes = unpack(packed)
    assert isinstance(boxes, Boxes)
    rows = np.concatenate([boxes.lows, boxes.highs], axis=1)
    return [row.tobytes() for row in rows.view(f"V{16 * packed.d}")[:, 0]]
