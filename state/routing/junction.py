"""One broker and type, ready to route: all its compiled parts joined, and kept joined while parts change.

    parts (compiled_part.py)  ──update──>  roll       number ─> id, client, destination, filter      (roll.py)
                                           matcher    boxes of subscriptions, by number    (numbered_boxes.py)
                                           links      per neighbour: boxes under numbers of their own,
                                                      or one table of ranges

Of a subscription the *id* is what its client calls it, the *entry* its place in a part, the *number* what a junction
calls it: one small integer for as long as its entry does not change.

A part that changed comes as deltas (`state/index_delta.py`) to who holds what they were made from: then nothing else is
looked at. A part that comes whole is compared with what is held of it. Either way only the entries that differ are
taken out and put in. Nothing else is kept of a part: what is held of it is found by the code beside each number.

All of it is arrays and a few small tables. `keep` writes to a shelf what that has not got, and `opened` makes the same
junction of it in any process: so the workers of a host share one copy. Filters are read by each when they are asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from state.advertisements.conformance import Promises
from state.arrays import Bools, Bytes, Ints, Words
from state.compiled_part import IMPRECISE_RANGES_MAX, CompiledPart, join_ranges, overlap_ranges
from state.errors import HilcastError
from state.filters.evaluate import Holds
from state.filters.evaluate import compile as compile_filter
from state.filters.geometry import beyond_boxes
from state.filters.grammar import parse
from state.filters.long_texts import Asked, asked_texts, with_traits
from state.filters.residual_programs import EVERY, OPEN, YES, Program, Programs
from state.filters.tree import Filter
from state.index_delta import IndexDelta
from state.keys import Key
from state.matchers.matcher import SharedMatcher
from state.reductions.interval_table import CompiledTable
from state.routing.few_events import FEW_EVENTS, ROOM, match_few
from state.routing.numbered_boxes import NO_NUMBERS, KeptBoxes, NumberedBoxes, paired, rows_of, together
from state.routing.roll import DOUBTED, GROUPED, NO_TEXT, UNREADABLE, KeptRoll, Roll, entry_digests
from state.shelf import Shelf
from state.space.boxes import Boxes
from state.space.decode import RankBatch
from state.space.event_type import EventType
from state.space.grid import Grid
from state.space.packing import BOXES, Packed, unpack
from state.space.ranges import Ranges
from state.space.ranks import ABSENT, PRESENT_MAX
from state.space.text_hashes import Trait

_INT = np.dtype(np.int64)

Advertisement = tuple[str, str]
"""Publisher and filter."""
TRAITS_MAX = 24
"""Traits of a junction up to which a prefix of another length gets one of its own; then a shorter one serves."""


class Pairs(NamedTuple):
    """Pairs of an event and a subscription: the row of one, the number of the other at its junction."""

    rows: Ints
    numbers: Ints

    @classmethod
    def none(cls) -> Pairs:
        return cls(NO_NUMBERS, NO_NUMBERS)

    def take(self, some: Ints | Bools) -> Pairs:
        """These of the pairs."""
        return Pairs(self.rows[some], self.numbers[some])

    def joined(self, other: Pairs) -> Pairs:
        """The pairs of both, one after the other."""
        return Pairs(np.concatenate([self.rows, other.rows]), np.concatenate([self.numbers, other.numbers]))


class KeptRanges(msgspec.Struct, array_like=True, frozen=True):
    """How the ranges of a link are found on a shelf: starts and ends of all parts, and how many are of each."""

    arrays: str
    counts: dict[int, int]
    """By code of a part."""


class KeptJunction(msgspec.Struct, array_like=True, frozen=True):
    """How a junction is found on a shelf."""

    parts: list[tuple[str, bytes]]
    """By code: name and stamp."""
    roll: KeptRoll
    local: KeptBoxes
    link_boxes: dict[str, KeptBoxes]
    link_ranges: dict[str, KeptRanges]
    traits: list[Trait]
    promised: dict[int, list[Advertisement]]

    def names(self) -> set[str]:
        """All that it needs of the shelf."""
        boxes = [name for one in (self.local, *self.link_boxes.values()) for name in one.names()]
        return {*self.roll.names(), *boxes, *(ranges.arrays for ranges in self.link_ranges.values())}


class _Ranged:
    """What a link asks for in ranges: those of each part, and the table of all."""

    def __init__(self) -> None:
        self.parts: dict[int, Ranges] = {}
        """By code of a part."""
        self.kept: KeptRanges | None = None
        """Where these are kept."""

    @cached_property
    def table(self) -> CompiledTable:
        return CompiledTable(join_ranges(list(self.parts.values())))

    def put(self, part: int, packed: Packed | None) -> None:
        """Have these ranges of a part, or none."""
        ranges = Ranges.empty() if packed is None else unpack(packed)
        assert isinstance(ranges, Ranges)
        if ranges == self.parts.get(part, Ranges.empty()):
            return
        self.parts[part] = ranges
        self.kept = None
        self.__dict__.pop("table", None)

    def keep(self, shelf: Shelf) -> KeptRanges:
        if self.kept is None:
            every = list(self.parts.values())
            arrays = [together([ranges.starts for ranges in every]), together([ranges.ends for ranges in every])]
            counts = {part: len(ranges) for part, ranges in self.parts.items()}
            self.open(KeptRanges(shelf.keep(arrays), counts), shelf)
        assert self.kept is not None
        return self.kept

    def open(self, kept: KeptRanges, shelf: Shelf) -> None:
        starts, ends = shelf.read(kept.arrays)
        first = 0
        for part, count in kept.counts.items():
            self.parts[part] = Ranges(starts[first : first + count], ends[first : first + count])
            first += count
        self.kept = kept


class Junction:
    """One broker and type, ready to route: who here is interested, and which links want it.

    Invariant: answers as a junction that was joined anew from the same parts.
    """

    def __init__(self, event_type: EventType, grid: Grid) -> None:
        self.event_type, self.grid = event_type, grid
        self.roll = Roll()
        self.link_boxes: dict[str, NumberedBoxes] = {}
        self.promises = Promises(event_type)
        """The advertisements that entered here."""
        self.faults: list[str] = []
        """Lines for the log, until somebody says them and clears this: entries whose filter cannot be read.

        Control lets no such entry through; should one be here all the same, it gets nothing, and everybody else all.
        """
        self.version = 0
        """Of the subscriptions: what was computed by number holds as long as it stays."""
        self._names = [attribute.name for attribute in event_type.attributes]
        self._traits: list[Trait] = []
        """Of texts, that some box has asked for."""
        self._local = NumberedBoxes(event_type)
        """In the dimensions of the attributes, then the traits."""
        self._link_ranges: dict[str, _Ranged] = {}
        self._codes: dict[str, int] = {}
        """By part: the number that stands for it."""
        self._stamps: dict[int, bytes] = {}
        """By code of a part: which state of it is held."""
        self._promised: dict[int, list[Advertisement]] = {}
        """By code of a part: the advertisements."""
        self._advertised: dict[str, tuple[Filter, Holds] | None] = {}
        """By text: the same, read and compiled."""
        self._forget_filters()

    def _forget_filters(self) -> None:
        self._filters: dict[str, Filter | None] = {}
        """By text: filters of subscriptions, each read once; None: it cannot be read."""
        self._prepared: set[int] = set()
        """Numbers that were asked for."""
        self._residuals: dict[int, Holds] = {}
        """By number: their filters as functions, where no program decided: few need one, which takes a kilobyte."""
        self._programs = Programs()
        """By number: those of them that are doubtful, for compiled code."""

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
        changed = {self._codes.setdefault(key.part, len(self._codes)): part for key, part in parts.items()}
        self._update_local(changed)
        for neighbour in sorted({n for part in changed.values() for n in part.links} | self._neighbours()):
            self._update_link(neighbour, changed)
        self._promise({code: part.advertisements for code, part in changed.items()})
        self._stamps |= {code: part.stamp for code, part in changed.items()}
        self._compact()

    def change(self, deltas: Mapping[Key, Sequence[IndexDelta]]) -> None:
        """Take in what changed of parts that are held, each delta made from what the one before it made.

        Cost: O(changed log changed), and one pass of numpy over the numbers of a part and over its ids.
        """
        promised = {}
        for key, some in deltas.items():
            code = self._codes[key.part]
            for delta in some:
                assert self._stamps[code] == delta.since, "a change of another index than is held"
                self._change_local(code, delta)
                self._change_links(code, delta)
                self._stamps[code] = delta.stamp
                if delta.advertised:
                    promised[code] = delta.put.advertisements
        self._promise(promised)
        self._compact()

    def stamp(self, key: Key) -> bytes | None:
        """Which state of a part is held; None: none is."""
        code = self._codes.get(key.part)
        return None if code is None else self._stamps[code]

    def _neighbours(self) -> set[str]:
        return {*self.link_boxes, *self._link_ranges}

    def _update_local(self, changed: Mapping[int, CompiledPart]) -> None:
        gone, new = [], []
        for code, part in changed.items():
            held = np.unique(self._local.of(code)[1])
            digests = entry_digests(part)
            same = paired(self.roll.digests(held), digests)
            gone.append(np.delete(held, same[same >= 0]))
            new.append(self._numbered(code, part, np.flatnonzero(same < 0), digests))
        self._change_boxes(together(gone), new)

    def _change_local(self, code: int, delta: IndexDelta) -> None:
        every = np.flatnonzero(self._local.parts.values == code)
        named = every[self.roll.named(every, [*delta.gone, *delta.put.ids])]
        gone = np.unique(self._local.matcher.boxes_of(named)[1])  # others of these ids went before
        fresh = np.arange(len(delta.put.ids))
        self._change_boxes(gone, [self._numbered(code, delta.put, fresh, entry_digests(delta.put))])

    def _numbered(self, code: int, part: CompiledPart, fresh: Ints, digests: Words) -> tuple[Boxes, Ints]:
        """Give numbers to entries of a part, and write down what they stand for; return their boxes, by number."""
        rows, entry = unpack(part.boxes), np.frombuffer(part.owners, "<i4")
        assert isinstance(rows, Boxes)
        fresh = np.intersect1d(fresh, entry)  # an entry without a box gets nothing, and no number
        number = np.full(len(part.ids), -1, np.int64)
        number[fresh] = self._local.take(code, len(fresh))
        self.roll.add(part, fresh, digests[fresh], self._unreadable(part, fresh))
        mine = number[entry] >= 0
        if not mine.all():
            rows, entry = rows.take(mine), entry[mine]
        wider, source = self._with_traits(part, rows, entry)
        return wider, number[entry][source]

    def _change_boxes(self, gone: Ints, new: Sequence[tuple[Boxes, Ints]]) -> None:
        d = self.event_type.d + len(self._traits)
        boxes = Boxes.concatenated([boxes.widened(d) for boxes, _ in new], d)
        if len(gone) or len(boxes):
            self._local.change(gone, boxes, together([numbers for _, numbers in new]))
            self._renumbered()

    def _unreadable(self, part: CompiledPart, entries: Ints) -> set[int]:
        """Those of the entries that a filter must decide about which cannot be read."""
        found, uncertain = set[int](), set(part.doubtful)
        imprecise = any(attribute.imprecise for attribute in self.event_type.attributes)
        if not imprecise and not uncertain and not part.residuals:
            return found
        for entry in entries.tolist():
            if imprecise or entry in uncertain or entry in part.residuals:
                text = part.residuals.get(entry, "")
                if self._read(text) is None:
                    found.add(entry)
                    who = f"{part.ids[entry]} of {part.clients[entry]}"
                    self.faults.append(f"the filter of {who} cannot be read: {text[:80]!r}")
        return found

    def _with_traits(self, part: CompiledPart, boxes: Boxes, entries: Ints) -> tuple[Boxes, Ints]:
        """Boxes of entries with the traits of the long texts that they ask for, and the row that each came from."""
        spans = {}
        doubtful = set(part.doubtful)
        for row, entry in enumerate(entries.tolist()) if doubtful else ():
            read = self._read(part.residuals.get(entry, "")) if entry in doubtful else None
            asked = None if read is None else asked_texts(read, self.event_type)
            trait = None if asked is None else self._trait(asked)
            if asked is not None and trait is not None:
                low, high = int(boxes.lows[row, asked.column]), int(boxes.highs[row, asked.column])
                spans[row] = trait, asked.spans(self._traits[trait][1], low, high)
        if not self._traits:
            return boxes, np.arange(len(boxes))
        return with_traits(boxes, len(self._traits), spans)

    def _trait(self, asked: Asked) -> int | None:
        """Which of the traits tells texts apart that are asked for so; a new one, where there is room for it."""
        if self.event_type.attributes[asked.column].imprecise is not None:
            return None  # An interval of texts may look like a point, and has no trait.
        wanted = asked.column, asked.steps
        if wanted in self._traits:
            return self._traits.index(wanted)
        if not asked.prefix or len(self._traits) < TRAITS_MAX:
            self._traits.append(wanted)
            self._local.widen(len(self._traits))
            self.__dict__.pop("_trait_table", None)
            return len(self._traits) - 1
        shorter = [trait for trait in self._traits if trait[0] == asked.column and trait[1] < asked.steps]
        return self._traits.index(max(shorter)) if shorter else None

    @cached_property
    def _trait_table(self) -> Ints:
        """Column, steps and dimension of each trait, sorted."""
        d = self.event_type.d
        table = sorted((*trait, d + i) for i, trait in enumerate(self._traits))
        return np.array(table, np.int64).reshape(-1, 3)

    def _renumbered(self) -> None:
        """Numbers stand for something else, or more of them for something."""
        self.version += 1
        for cached in ("grouped", "_doubted", "doubtful"):
            self.__dict__.pop(cached, None)

    def _compact(self) -> None:
        """Number anew where most numbers are gone; what was read of filters goes with them."""
        if self._local.is_sparse:
            self._local, old = self._local.compacted()
            self.roll = self.roll.compacted(old)
            self._forget_filters()
            self._renumbered()
        for neighbour, link in self.link_boxes.items():
            if link.is_sparse:
                self.link_boxes[neighbour] = link.compacted()[0]

    def _update_link(self, neighbour: str, changed: Mapping[int, CompiledPart]) -> None:
        kinds = {part.links[neighbour].kind for part in changed.values() if neighbour in part.links}
        assert len(kinds) <= 1, "a link is kept as boxes or as ranges"
        if kinds == {BOXES} or neighbour in self.link_boxes:
            assert neighbour not in self._link_ranges, "a link is kept as boxes or as ranges"
            self._update_boxes(neighbour, changed)
        else:
            ranged = self._link_ranges.setdefault(neighbour, _Ranged())
            for code, part in changed.items():
                ranged.put(code, part.links.get(neighbour))

    def _update_boxes(self, neighbour: str, changed: Mapping[int, CompiledPart]) -> None:
        link = self.link_boxes.setdefault(neighbour, NumberedBoxes(self.event_type))
        gone, boxes, numbers = [], [], []
        for code, part in changed.items():
            now = self._boxes(part.links.get(neighbour))
            was, held = link.of(code)
            if not len(was):
                boxes.append(now)
                numbers.append(link.take(code, len(now)))
                continue
            same = paired(rows_of(was), rows_of(now))
            gone.append(np.delete(held, same[same >= 0]))
            fresh = np.flatnonzero(same < 0)
            boxes.append(now.take(fresh))
            numbers.append(link.take(code, len(fresh)))
        link.change(together(gone), Boxes.concatenated(boxes, self.event_type.d), together(numbers))

    def _change_links(self, code: int, delta: IndexDelta) -> None:
        put, gone = delta.put.links, delta.links_gone
        for neighbour in sorted(put.keys() | gone.keys()):
            if neighbour in put and put[neighbour].kind != BOXES:
                self._link_ranges.setdefault(neighbour, _Ranged()).put(code, put[neighbour])
                continue
            link = self.link_boxes.setdefault(neighbour, NumberedBoxes(self.event_type))
            boxes = self._boxes(put.get(neighbour))
            away = link.equal_to(code, self._boxes(gone.get(neighbour)))
            link.change(away, boxes, link.take(code, len(boxes)))

    def _boxes(self, packed: Packed | None) -> Boxes:
        boxes = Boxes.empty(self.event_type.d) if packed is None else unpack(packed)
        assert isinstance(boxes, Boxes)
        return boxes.owned()

    def _promise(self, promised: Mapping[int, list[Advertisement]]) -> None:
        if any(self._promised.get(code, []) != some for code, some in promised.items()):
            self._promised |= promised
            self._advertise()

    def _advertise(self) -> None:
        self.promises = Promises(self.event_type)
        every = {advertisement for some in self._promised.values() for advertisement in some}
        known = self._advertised
        self._advertised = {text: known[text] if text in known else self._promise_of(text) for _, text in every}
        for i, (publisher, text) in enumerate(sorted(every)):
            read = self._advertised[text]
            if read is not None:
                self.promises.add(str(i), publisher, *read)
            elif text not in known:
                self.faults.append(f"an advertisement of {publisher[:80]!r} cannot be read: {text[:80]!r}")

    def _promise_of(self, text: str) -> tuple[Filter, Holds] | None:
        read = self._parsed(text)
        return None if read is None else (read, compile_filter(read, self.event_type))

    # ── filters ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _parsed(self, text: str) -> Filter | None:
        try:
            # printing may have lengthened an admitted filter beyond the limits of admission
            return parse(text, self.event_type, limits=False)
        except (HilcastError, RecursionError):
            return None

    def _read(self, text: str) -> Filter | None:
        if text not in self._filters:
            self._filters[text] = self._parsed(text)
        return self._filters[text]

    def _prepare(self, numbers: Ints) -> bool:
        """Read the filters of some numbers, as far as that is not done; tell whether any was not."""
        fresh = sorted(set(numbers.tolist()).difference(self._prepared))
        for number in fresh:
            read = self._filter(number)
            if read is not None and int(self.roll.flags.values[number]) & DOUBTED:
                # It is asked of points in a box of its own alone.
                self._programs.put(number, Program(beyond_boxes(read, self.event_type), self.event_type))
        self._prepared.update(fresh)
        return bool(fresh)

    def _filter(self, number: int) -> Filter | None:
        """The filter of a number; None if it cannot be read."""
        flags, code = int(self.roll.flags.values[number]), int(self.roll.text.values[number])
        return None if flags & UNREADABLE else self._read("" if code == NO_TEXT else self.roll.texts[code])

    def _residual(self, number: int) -> Holds:
        """The filter of a number as a function; what cannot be read holds for nobody."""
        if number not in self._residuals:
            read = self._filter(number)
            self._residuals[number] = _nobody if read is None else compile_filter(read, self.event_type)
        return self._residuals[number]

    # ── ask ─────────────────────────────────────────────────────────────────────────────────────────────────────

    @cached_property
    def grouped(self) -> Bools:
        """By number: whether the client may be served through group and broadcast topics."""
        return self.roll.having(GROUPED)

    @cached_property
    def _doubted(self) -> Bools:
        return self.roll.having(DOUBTED)

    @cached_property
    def doubtful(self) -> Ints:
        """Numbers of subscriptions whose boxes are a superset even for points."""
        return np.flatnonzero(self._doubted)

    def ids_of(self, numbers: Ints) -> pa.Array:
        """The ids of some numbers."""
        return self.roll.ids_of(numbers)

    def recipients(self, numbers: Ints) -> tuple[Ints, pa.Array, pa.Array]:
        """For some numbers the place of client and destination in two columns, which follow."""
        return self.roll.recipients(numbers)

    def conforming(self, batch: RankBatch, rows: Ints, publishers: Sequence[str]) -> Bools:
        """Tell for some rows of a batch, each of a publisher, whether an advertisement that entered here holds."""

        def text(attribute: str, some: Ints) -> list[object]:
            return [batch.event(row).get(attribute) for row in rows[some].tolist()]

        held = self.promises.conforms_batch(publishers, batch.ranks[rows], text)
        if batch.highs is not None:
            for i in np.flatnonzero((batch.highs[rows] != batch.ranks[rows]).any(axis=1)).tolist():
                held[i] = self.promises.conforms(publishers[i], batch.event(int(rows[i])))
        return held

    @property
    def matchers(self) -> list[SharedMatcher]:
        """What is asked of events: of the clients here, and of links that are kept as boxes."""
        return [self._local.matcher, *(link.matcher for link in self.link_boxes.values())]

    @property
    def has_ranges(self) -> bool:
        """Whether a link is kept as ranges."""
        return bool(self._link_ranges)

    def interested(self, batch: RankBatch, rows: Ints, ranks: Ints | None = None) -> Pairs:
        """Some events of a batch, by place among `rows`, and subscriptions whose boxes hold.

        `doubtful` ones are still to be checked exactly. `rows`: near each other, where they follow each other; `ranks`:
        theirs, for who has them in this order.
        """
        points = ranks
        if points is None or self._traits:
            points = batch.points(rows, self._trait_table, self._names)
        # Rows are near each other by rank, and texts that traits tell apart share theirs.
        return Pairs(*self._local.matcher.match(points, near=not self._traits))

    def matching(self, batch: RankBatch, rows: Ints, ranks: Ints | None = None) -> Pairs:
        """Rows of a batch and the subscriptions whose filter holds, of events that are points.

        Guarantee: `exactly` of what is `interested`, in the same order. `ranks`: as there. Few events cost one call.
        """
        if len(rows) <= FEW_EVENTS and batch.starts is not None:
            places = getattr(self._local.matcher, "places", None)
            if places is not None:
                pairs, programs = np.empty((2, ROOM), _INT), self._programs.address()
                n = match_few(
                    places(), self._trait_table, programs, self._doubted, batch.ranks, batch.starts, rows, pairs
                )
                if n >= 0:
                    return Pairs(pairs[0, :n], pairs[1, :n])
        found = self.interested(batch, rows, ranks)
        return self.exactly(Pairs(rows[found.rows], found.numbers), batch)

    def exactly(self, found: Pairs, batch: RankBatch) -> Pairs:
        """Those of the pairs of points and subscriptions whose boxes hold for which the filter does."""
        if not len(self.doubtful):
            return found
        if batch.starts is None:
            return found.take(self._judged(found, batch, np.where(self._doubted[found.numbers], OPEN, YES)))
        answers, yes, left = self._decided(found, batch, batch.starts, self._doubted)
        if left:
            return found.take(self._judged(found, batch, answers))
        return found if yes == len(answers) else found.take(answers == YES)

    def holds(self, pairs: Pairs, batch: RankBatch, points: bool) -> Bools:
        """Decide exactly, by the filter itself, where boxes cannot: the edge is where delivery becomes exact.

        `points`: whether no event is imprecise. Then compiled programs decide what they can; all that is left is asked
        of the filter, event by event.
        """
        if points and batch.starts is not None:
            return self._judged(pairs, batch, self._decided(pairs, batch, batch.starts, EVERY)[0])
        return self._judged(pairs, batch, np.full(len(pairs.rows), OPEN, np.uint8))

    def _decided(self, pairs: Pairs, batch: RankBatch, starts: Ints, doubted: Bools) -> tuple[Bytes, int, int]:
        """What compiled programs say; those that are asked for the first time are read."""
        found = self._programs.decide(pairs.rows, pairs.numbers, batch.ranks, starts, doubted)
        if found[2] and self._prepare(pairs.numbers[found[0] == OPEN]):
            return self._programs.decide(pairs.rows, pairs.numbers, batch.ranks, starts, doubted)
        return found

    def _judged(self, pairs: Pairs, batch: RankBatch, answers: Bytes) -> Bools:
        """The answers, where those that are OPEN are asked of the filter."""
        left = np.flatnonzero(answers == OPEN)
        each = zip(pairs.rows[left].tolist(), pairs.numbers[left].tolist(), strict=True)
        answers[left] = [self._residual(number)(batch.event(row)) for row, number in each]
        return answers == YES

    def touched(self, lows: Ints, highs: Ints) -> Pairs:
        """Imprecise events and subscriptions whose boxes meet; every one is still to be checked exactly."""
        # A value between two texts may be any, and have any trait.
        more = len(lows), len(self._traits)
        lows, highs = np.hstack([lows, np.full(more, ABSENT)]), np.hstack([highs, np.full(more, PRESENT_MAX)])
        return Pairs(*self._local.matcher.match_boxes(lows, highs))

    def wanted(self, neighbour: str, ranks: Ints, index: Ints) -> Bools:
        """For each event whether the link to `neighbour` wants it; may be a superset, never less.

        `index`: the events' Hilbert indices.
        """
        if neighbour in self.link_boxes:
            return self.link_boxes[neighbour].matcher.match_any(ranks, near=True)
        if neighbour in self._link_ranges:
            return self._link_ranges[neighbour].table.lookup(index)
        return np.zeros(len(ranks), bool)

    def wanted_boxes(self, neighbour: str, lows: Ints, highs: Ints) -> Bools:
        """The same for imprecise events: whether anything the link asked for meets the event's box."""
        wanted = np.zeros(len(lows), bool)
        if neighbour in self.link_boxes:
            wanted[self.link_boxes[neighbour].matcher.match_boxes(lows, highs).rows] = True
        elif neighbour in self._link_ranges:
            table = self._link_ranges[neighbour].table.ranges
            for i, (low, high) in enumerate(zip(lows, highs, strict=True)):
                box = Boxes(low.reshape(1, -1), high.reshape(1, -1))
                wanted[i] = overlap_ranges(self.grid.ranges(box, IMPRECISE_RANGES_MAX), table)
        return wanted

    # ── keep ────────────────────────────────────────────────────────────────────────────────────────────────────

    def keep(self, shelf: Shelf) -> KeptJunction:
        """Write down what the shelf has not got, and go on with its arrays; what was read of filters is forgotten.

        Cost: that of what changed since it was kept last; the ranges of a link that changed; a bit for each box.
        """
        self._forget_filters()
        return KeptJunction(
            [(part, self._stamps[code]) for part, code in self._codes.items()],
            self.roll.keep(shelf),
            self._local.keep(shelf),
            {neighbour: link.keep(shelf) for neighbour, link in self.link_boxes.items()},
            {neighbour: link.keep(shelf) for neighbour, link in self._link_ranges.items()},
            self._traits,
            {code: some for code, some in self._promised.items() if some},
        )

    @classmethod
    def opened(
        cls, event_type: EventType, grid: Grid, kept: KeptJunction, shelf: Shelf, before: Junction | None = None
    ) -> Junction:
        """The junction that was kept, with what another one `before` it has read of the same filters.

        Cost: that of mapping its arrays; each advertisement is read.
        """
        self = cls(event_type, grid)
        self._codes = {part: code for code, (part, _) in enumerate(kept.parts)}
        self._stamps = {code: stamp for code, (_, stamp) in enumerate(kept.parts)}
        self.roll.open(kept.roll, shelf)
        self._traits = list(kept.traits)
        self._local.widen(len(self._traits))
        self._local.open(kept.local, shelf)
        for neighbour, boxes in kept.link_boxes.items():
            self.link_boxes[neighbour] = NumberedBoxes(event_type)
            self.link_boxes[neighbour].open(boxes, shelf)
        for neighbour, ranges in kept.link_ranges.items():
            self._link_ranges[neighbour] = _Ranged()
            self._link_ranges[neighbour].open(ranges, shelf)
        self._promised = dict(kept.promised)
        if before is not None:
            self._advertised = before._advertised
            if before.roll.flags.is_same(self.roll.flags):  # numbers stand for what they stood for
                self._filters, self._residuals = before._filters, before._residuals
                self._prepared, self._programs = before._prepared, before._programs
        self._advertise()
        self.faults.clear()  # who kept it has said them
        return self

    def check(self) -> None:
        """Assert that every number is of one part and stands for something, and that the matchers are sound."""
        self.roll.check()
        assert len(self.roll) == self._local.numbers
        assert not self._local.is_sparse
        for boxes in (self._local, *self.link_boxes.values()):
            boxes.check()
            assert not len(boxes.parts) or 0 <= boxes.parts.values.min() <= boxes.parts.values.max() < len(self._codes)
        for link in self.link_boxes.values():
            assert len(link.matcher) == link.live


def _nobody(event: Mapping[str, object]) -> bool:
    return False
