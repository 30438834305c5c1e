"""Merging by minimum bounding rectangle ([MICS09] §3.6, figure 5b): the imperfect baseline of merging.

Boxes are gathered in groups, and a neighbour gets the bounding rectangle of each. That is one box however
many it stands for, and it also covers space that nobody asked for: the excess that MICS avoids (figure 5c).

       ┌───┐                     ┌─────────┐
       │ a │ ┌───┐    becomes    │ a . . . │     extra: every dot
       └───┘ │ b │               │ . . . b │
             └───┘               └─────────┘

Which boxes to group well is NP-complete (the paper's [15]); here a box joins, of all groups, the one whose rectangle
grows over the least space that neither held, if that is at most `budget` times what the two hold. With a budget
of 0 only such boxes merge that make a rectangle exactly: perfect merging, as far as rectangles can.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from state.arrays import Bools, Floats
from state.errors import HilcastError
from state.reductions.packing import pack_entries, unpack_entries_and
from state.reductions.reduction import Decision, Delta
from state.space.boxes import Boxes, Ranks
from state.space.packing import Geometry, pack_numbers, unpack_numbers

FORMAT = 1
Member = tuple[str, int]
"""An entry's id and the number of one of its boxes."""


class _Rectangles:
    """The rectangles of all groups in flat arrays, for one vectorised look at all of them."""

    def __init__(self, d: int) -> None:
        self.lows = np.empty((16, d), np.int64)
        self.highs = np.empty((16, d), np.int64)
        self.n = 0

    def append(self, low: Ranks, high: Ranks) -> None:
        if self.n == len(self.lows):
            self.lows = np.concatenate([self.lows, np.empty_like(self.lows)])
            self.highs = np.concatenate([self.highs, np.empty_like(self.highs)])
        self.lows[self.n], self.highs[self.n] = low, high
        self.n += 1

    def delete(self, at: int) -> None:
        """Fill the hole with the last one."""
        self.n -= 1
        self.lows[at], self.highs[at] = self.lows[self.n], self.highs[self.n]

    def box(self, at: int) -> Boxes:
        return Boxes(self.lows[at : at + 1].copy(), self.highs[at : at + 1].copy())


def _volumes(lows: Ranks, highs: Ranks) -> Floats:
    """Cells of each box, 0 if it is upside down, as floats: sides of 2^64 in many dimensions fit."""
    # Unsigned subtraction wraps to the true width; floats subtracted would lose it, ranks being up to 2^63.
    sides = (highs.view(np.uint64) - lows.view(np.uint64)).astype(np.float64) + 1.0
    return np.where(highs >= lows, sides, 0.0).prod(axis=1)  # type: ignore[no-any-return]


def added_space(lows: Ranks, highs: Ranks, low: Ranks, high: Ranks) -> tuple[Floats, Floats]:
    """For each rectangle: the space its bounding with one more box adds beyond both, and the space both hold."""
    bounding = _volumes(np.minimum(lows, low), np.maximum(highs, high))
    common = _volumes(np.maximum(lows, low), np.minimum(highs, high))
    both = _volumes(lows, highs) + _volumes(low[None, :], high[None, :]) - common
    return bounding - both, both


def makes_rectangles(lows: Ranks, highs: Ranks, low: Ranks, high: Ranks) -> Bools:
    """For each rectangle: whether it and one more box, that does not lie in it, are a rectangle, in integers."""
    inside = ((lows >= low) & (highs <= high)).all(axis=1)
    alike = ((lows != low) | (highs != high)).sum(axis=1) <= 1
    start, end = np.maximum(lows, low), np.minimum(highs, high)
    return inside | (alike & ((start <= end) | (start - 1 == end)).all(axis=1))


class RectangleMerging:
    """Forwards the bounding rectangles of groups of boxes, each under the id of the group's first member.

    Implements [MICS09] figure 5b. A group that loses a member is taken apart and its members are placed anew, so
    that nothing remains of what was withdrawn.
    Guarantee: superset; each merge adds at most `budget` times what it merges.
    Cost: O(groups * d) a box, vectorised; a removal that of the group's members.

    >>> merging = RectangleMerging(Boxes.of([([0, 0], [9, 9])]), {"budget": 0.5})
    >>> a, b = Boxes.of([([0, 0], [1, 3])]), Boxes.of([([2, 1], [3, 3])])
    >>> delta = merging.update({"a": a, "b": b})
    >>> {id: (box.lows.tolist(), box.highs.tolist()) for id, box in delta.added.items()}
    {'0.a': ([[0, 0]], [[3, 3]])}
    """

    def __init__(self, domain: Geometry, parameters: Mapping[str, object] | None = None) -> None:
        assert isinstance(domain, Boxes)
        faults = self.check_parameters(parameters or {})
        if faults:
            raise HilcastError("bad-config", "; ".join(faults))
        self.domain = domain
        self.budget = float((parameters or {}).get("budget", 0.0))  # type: ignore[arg-type]
        self._entries: dict[str, Boxes] = {}
        self._groups: list[list[Member]] = []
        """Members of each group, the one that it is named after first; the rows of `_rectangles`."""
        self._rows: dict[str, int] = {}
        """The row of each group."""
        self._rectangles = _Rectangles(domain.d)
        self._merged = 0

    @staticmethod
    def check_parameters(parameters: Mapping[str, object]) -> list[str]:
        """The faults of the parameters: `budget`, a number from 0, is the only one."""
        faults = [f"parameter {name!r} is unknown" for name in parameters if name != "budget"]
        budget = parameters.get("budget", 0)
        is_number = isinstance(budget, int | float) and not isinstance(budget, bool)
        if not is_number or not 0 <= budget < float("inf"):  # type: ignore[operator]
            faults.append(f"parameter 'budget' is {budget!r}, not a number from 0")
        return faults

    def update(self, added: Mapping[str, Geometry], removed: Iterable[str] = ()) -> Delta:
        """Add, replace and remove entries; the neighbour's rectangles change by the difference."""
        gone = {id for id in removed if id in self._entries and id not in added}
        gone |= {id for id in added if id in self._entries}
        before: dict[str, Boxes | None] = {}
        homeless = self._take_apart(gone, before)
        for id in gone:
            del self._entries[id]
        for id, boxes in added.items():
            assert isinstance(boxes, Boxes)
            self._entries[id] = boxes
            homeless += [(id, i) for i in range(len(boxes))]
        for member in homeless:
            self._place(member, before)
        return self._delta(before)

    def _delta(self, before: dict[str, Boxes | None]) -> Delta:
        new: dict[str, Geometry] = {}
        removed = []
        for name, old in before.items():
            now = self._rectangles.box(self._rows[name]) if name in self._rows else None
            if now is None and old is not None:
                removed.append(name)
            elif now is not None and (old is None or old != now):
                new[name] = now
        return Delta(new, tuple(removed))

    def _take_apart(self, gone: set[str], before: dict[str, Boxes | None]) -> list[Member]:
        """Dissolve every group with a member that goes; return the members that stay."""
        hit = [members for members in self._groups if any(id in gone for id, _ in members)] if gone else []
        for members in hit:
            name = _group_id(members)
            at, last = self._rows.pop(name), len(self._groups) - 1
            before.setdefault(name, self._rectangles.box(at))
            if at < last:
                self._groups[at] = self._groups[last]
                self._rows[_group_id(self._groups[at])] = at
            self._groups.pop()
            self._rectangles.delete(at)
        return [member for members in hit for member in members if member[0] not in gone]

    def _place(self, member: Member, before: dict[str, Boxes | None]) -> None:
        """Add one box to a group that holds it, to the one that grows least, or make it a group."""
        low, high = self._box(member)
        at = self._holding(low, high)
        if at is None:
            at = self._cheapest(low, high)
        if at is None:
            self._rows[_group_id([member])] = len(self._groups)
            before.setdefault(_group_id([member]), None)
            self._groups.append([member])
            self._rectangles.append(low, high)
            return
        before.setdefault(_group_id(self._groups[at]), self._rectangles.box(at))
        self._groups[at].append(member)
        self._rectangles.lows[at] = np.minimum(self._rectangles.lows[at], low)
        self._rectangles.highs[at] = np.maximum(self._rectangles.highs[at], high)
        self._merged += 1

    def _cheapest(self, low: Ranks, high: Ranks) -> int | None:
        """The group whose rectangle would grow over the least space, if that is within the budget."""
        n = self._rectangles.n
        if n == 0:
            return None
        lows, highs = self._rectangles.lows[:n], self._rectangles.highs[:n]
        extra, both = added_space(lows, highs, low, high)
        # Volumes are rounded; that must not let a merge pass for perfect.
        if self.budget:
            extra = np.where(extra <= self.budget * both, extra, np.inf)
        else:
            extra = np.where(makes_rectangles(lows, highs, low, high), 0.0, np.inf)
        best = int(np.argmin(extra))
        return best if np.isfinite(extra[best]) else None

    def _box(self, member: Member) -> tuple[Ranks, Ranks]:
        boxes = self._entries[member[0]]
        return boxes.lows[member[1]], boxes.highs[member[1]]

    def decide(self, entry: Geometry) -> Decision:
        """Covered if each of its boxes lies in one rectangle."""
        assert isinstance(entry, Boxes)
        by: list[str] = []
        for low, high in entry:
            held = self._holding(low, high)
            if held is None:
                return Decision(False, tuple(by), "a box lies in no single rectangle")
            by.append(_group_id(self._groups[held]))
        return Decision(True, tuple(dict.fromkeys(by)), "every box lies in one rectangle")

    def _holding(self, low: Ranks, high: Ranks) -> int | None:
        """The first group whose rectangle holds a box."""
        n = self._rectangles.n
        inside = (self._rectangles.lows[:n] <= low).all(axis=1) & (self._rectangles.highs[:n] >= high).all(axis=1)
        return int(np.argmax(inside)) if inside.any() else None

    def rectangles(self) -> Boxes:
        """What is forwarded, as one set of boxes; they may overlap."""
        n = self._rectangles.n
        return Boxes(self._rectangles.lows[:n].copy(), self._rectangles.highs[:n].copy())

    def forwarded(self) -> dict[str, Geometry]:
        return {name: self._rectangles.box(at) for name, at in self._rows.items()}

    def stats(self) -> dict[str, int | float]:
        boxes = sum(len(boxes) for boxes in self._entries.values())
        return {
            "entries": len(self._entries),
            "forwarded": len(self._groups),
            "withheld": boxes - len(self._groups),
            "bytes": 16 * self.domain.d * (boxes + len(self._groups)),
            "merged": self._merged,
        }

    def check(self) -> None:
        """Assert: every box is in one group, and each rectangle bounds its members exactly."""
        members = [member for group in self._groups for member in group]
        assert sorted(members) == sorted((id, i) for id, boxes in self._entries.items() for i in range(len(boxes)))
        assert self._rows == {_group_id(group): at for at, group in enumerate(self._groups)}
        for at, group in enumerate(self._groups):
            boxes = [self._box(member) for member in group]
            assert (np.min([low for low, _ in boxes], axis=0) == self._rectangles.lows[at]).all()
            assert (np.max([high for _, high in boxes], axis=0) == self._rectangles.highs[at]).all()

    def encode(self) -> bytes:
        """Pack the entries, and for each group its members as positions among all boxes."""
        first, positions = 0, {}
        for id, boxes in self._entries.items():
            positions.update({(id, i): first + i for i in range(len(boxes))})
            first += len(boxes)
        numbers = [self._merged, len(self._groups), *(len(group) for group in self._groups)]
        numbers += [positions[member] for group in self._groups for member in group]
        return pack_entries(FORMAT, self._entries, pack_numbers(numbers))

    @classmethod
    def decode(cls, blob: bytes, domain: Geometry, parameters: Mapping[str, object] | None = None) -> RectangleMerging:
        """The reduction that `encode` packed."""
        self = cls(domain, parameters)
        self._entries, extra = unpack_entries_and(FORMAT, blob)
        members = [(id, i) for id, boxes in self._entries.items() for i in range(len(boxes))]
        head, at = unpack_numbers(extra, 2)
        self._merged, count = int(head[0]), int(head[1])
        sizes, at = unpack_numbers(extra, count, at)
        positions, _ = unpack_numbers(extra, len(members), at)
        for group in np.split(positions, np.cumsum(sizes)[:-1]) if count else []:
            self._groups.append([members[position] for position in group.tolist()])
            self._rows[_group_id(self._groups[-1])] = len(self._rows)
            boxes = [self._box(member) for member in self._groups[-1]]
            self._rectangles.append(
                np.min([low for low, _ in boxes], axis=0), np.max([high for _, high in boxes], axis=0)
            )
        return self


def _group_id(members: list[Member]) -> str:
    """The id of a group: the number and the id of its first member's box, unlike that of any other group."""
    id, number = members[0]
    return f"{number}.{id}"
