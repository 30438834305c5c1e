"""Boxes of all parts of a junction under numbers of their own, and which of them are new in a part that changed.

A number is given out once: it never stands for anything else. So what was written down about numbers is only added to,
and may be read by others meanwhile (`state/shelf.py`). Once more numbers are gone than are left everything is numbered
anew (`compacted`): a number costs a constant share of that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from state.arrays import Ints, Words
from state.matchers import matcher_of
from state.shelf import Column, KeptColumn, Shelf
from state.space.boxes import Boxes
from state.space.event_type import EventType

NO_NUMBERS: Ints = np.empty(0, np.int64)
_MIX = np.uint64(0x9E3779B97F4A7C15)


class KeptBoxes(msgspec.Struct, array_like=True, frozen=True):
    """How numbered boxes are found on a shelf."""

    matcher: Any
    parts: KeptColumn
    live: int
    dead_boxes: int

    def names(self) -> list[str]:
        """What it needs of the shelf; all texts in what a matcher says of itself are names."""
        waiting, found = [self.matcher], [self.parts.name]
        for one in waiting:
            if isinstance(one, list | tuple):
                waiting += one
            elif isinstance(one, str):
                found.append(one)
        return found


class NumberedBoxes:
    """A matcher whose boxes come and go under numbers, each of a part."""

    def __init__(self, event_type: EventType, more: int = 0) -> None:
        self.event_type, self.more = event_type, more
        self.matcher = matcher_of(event_type, more)
        self.parts = Column(np.int32)
        """By number: the code of its part."""
        self.live = 0
        """Numbers that have boxes."""
        self._dead_boxes = 0

    @property
    def numbers(self) -> int:
        """Numbers ever given out: all are below."""
        return len(self.parts)

    def take(self, part: int, n: int) -> Ints:
        """Give out n numbers for boxes of a part, to be put in by `change`."""
        first = self.numbers
        self.parts.add(np.full(n, part, np.int32))
        self.live += n
        return np.arange(first, first + n)

    def change(self, gone: Ints, boxes: Boxes, numbers: Ints) -> None:
        """Take out all boxes of the numbers `gone`, each given once, then put in boxes under their numbers.

        Cost: that of the change.
        """
        before = len(self.matcher)
        if len(gone):
            self.matcher.remove(gone)
            self._dead_boxes += before - len(self.matcher)
            self.live -= len(gone)
        if len(boxes):
            self.matcher.insert(boxes, numbers)
        if self._dead_boxes > len(self.matcher):
            self.matcher.resort()
            self._dead_boxes = 0

    def widen(self, more: int) -> None:
        """Have so many dimensions beside those of the attributes; the boxes that are here span the further ones."""
        self.more = more
        self.matcher.widen(self.event_type.d + more)

    def of(self, part: int) -> tuple[Boxes, Ints]:
        """The boxes of a part, and the number of each. Cost: a pass over the numbers, and that of its boxes."""
        return self.matcher.boxes_of(np.flatnonzero(self.parts.values == part))

    def equal_to(self, part: int, boxes: Boxes) -> Ints:
        """For boxes that are of a part the number of each, every number once. Cost: a look-up of each."""
        near = np.unique(self.matcher.match(boxes.lows).ids)
        held, numbers = self.matcher.boxes_of(near[self.parts.values[near] == part])
        places = paired(rows_of(held), rows_of(boxes))
        assert (places >= 0).all(), "a box that goes is held"
        return numbers[places]

    @property
    def is_sparse(self) -> bool:
        """Whether most numbers are gone: it is time to be `compacted`."""
        return self.numbers > 2 * self.live

    def compacted(self) -> tuple[NumberedBoxes, Ints]:
        """The same boxes under numbers without gaps, and by new number the old one. Cost: that of a build."""
        boxes, owners = self.matcher.boxes()
        old, numbers = np.unique(owners, return_inverse=True)
        fresh = NumberedBoxes(self.event_type, self.more)
        fresh.parts.add(self.parts.values[old])
        fresh.live = len(old)
        fresh.matcher.insert(boxes, numbers)
        return fresh, old

    def keep(self, shelf: Shelf) -> KeptBoxes:
        """Write down what the shelf has not got, and go on with its arrays."""
        return KeptBoxes(self.matcher.keep(shelf), self.parts.kept(shelf), self.live, self._dead_boxes)

    def open(self, kept: KeptBoxes, shelf: Shelf) -> None:
        """Be what was kept."""
        self.matcher.open(kept.matcher, shelf)
        self.parts.open(kept.parts, shelf)
        self.live, self._dead_boxes = kept.live, kept.dead_boxes

    def check(self) -> None:
        """Assert that every number that counts has boxes, and no other."""
        self.matcher.check()
        owners = self.matcher.boxes()[1]
        assert len(np.unique(owners)) == self.live <= self.numbers
        assert not len(owners) or 0 <= owners.min() <= owners.max() < self.numbers


def rows_of(boxes: Boxes) -> Words:
    """Each box as one row of words."""
    return np.concatenate([boxes.lows, boxes.highs], axis=1).view(np.uint64)


def paired(old: Words, new: Words) -> Ints:
    """For each row of `new` the place of an equal row of `old`, each place once; -1 where there is none left.

    Found by a hash, and then compared: rows that only share a hash count as different. Cost: two sorts of hashes.

    >>> paired(np.array([[1, 2], [3, 4], [1, 2]], np.uint64), np.array([[3, 4], [1, 2], [5, 6]], np.uint64)).tolist()
    [1, 0, -1]
    """
    found = np.full(len(new), -1, np.int64)
    if not len(old) or not len(new):
        return found
    (of_old, old_order), (of_new, new_order) = _hashed(old), _hashed(new)
    first = np.searchsorted(of_new, of_new)  # the k-th of equal hashes takes the k-th
    at = np.searchsorted(of_old, of_new) + np.arange(len(new)) - first
    there = at < len(old)
    there[there] = of_old[at[there]] == of_new[there]
    places = old_order[at[there]]
    same = (old[places] == new[new_order[there]]).all(axis=1)
    found[new_order[there][same]] = places[same]
    return found


def _hashed(rows: Words) -> tuple[Words, Ints]:
    hashes = np.zeros(len(rows), np.uint64)
    for column in range(rows.shape[1]):
        hashes = (hashes ^ rows[:, column]) * _MIX
        hashes ^= hashes >> np.uint64(29)
    order = np.argsort(hashes, kind="stable")
    return hashes[order], order


def together(each: Sequence[Ints]) -> Ints:
    """Some arrays of numbers one behind the other."""
    return np.concatenate([NO_NUMBERS, *each])
