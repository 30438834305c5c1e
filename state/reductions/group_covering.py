"""Active and passive entries, where a passive one is covered by a *group* of active ones.

What [RSPC06] §2 and §5 ask of a broker, apart from how the question "is it covered?" is answered: `probabilistic.py`
and `hybrid.py` answer it.

    active   A  B  C        passive  p by {A, B},  q by {C}
    remove A:  p is asked again, q is not; p is promoted in the step that removes A if B alone does not cover it
    add D around C:  C is retired (corollary 2), and q is by {D} from then on
    add r by {A, B}, around C:  r is withheld, and C, which A and B cover as well, is retired

An entry may have several disjoint boxes; it is covered iff each of them is. Each passive entry knows a group that
covers it, so a removal asks again just what it may have uncovered.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

import msgspec
import numpy as np

from state.arrays import Floats
from state.reductions.active_boxes import ActiveBoxes, delta_of
from state.reductions.packing import pack_entries, unpack_entries_and
from state.reductions.reduction import Decision, Delta
from state.reductions.rspc import Verdict, seed_of
from state.space.boxes import Boxes, Ranks
from state.space.packing import Geometry

FORMAT = 1


class Judge(Protocol):
    """How the question is answered: do the rows `lows..highs` cover the box `low..high`?"""

    steps: tuple[str, ...]
    """The names of the steps that may decide."""

    def __call__(self, low: Ranks, high: Ranks, lows: Ranks, highs: Ranks, seed: int) -> Verdict: ...


class _Counters(msgspec.Struct):
    """What was done since the beginning; part of the state, so that a restart does not forget it."""

    decided: dict[str, int]
    """By step, one a box."""
    trials: int = 0
    retired: int = 0
    promoted: int = 0
    cap_error_max: float = 0.0
    cap_error_sum: float = 0.0


class _Extra(msgspec.Struct, array_like=True):
    active: int
    groups: list[list[int]]
    """For each passive entry the positions of the active ones that cover it."""
    counters: _Counters


class GroupCovering:
    """Withholds an entry when a group of active ones covers it, as far as `judge` can tell.

    Cost: O(active boxes * d) and one judgement for each box of a new entry; a removal judges again what it covered.
    """

    def __init__(self, domain: Geometry, judge: Judge) -> None:
        assert isinstance(domain, Boxes)
        assert len(domain) == 1
        self._domain, self._judge = domain, judge
        self._entries: dict[str, Boxes] = {}
        self._numbers: dict[str, int] = {}
        self._ids: dict[int, str] = {}
        self._next = 0
        self._active = ActiveBoxes(domain.d)
        self._group: dict[str, tuple[str, ...]] = {}
        self._covers: dict[str, dict[str, None]] = {}
        self._counters = _Counters(dict.fromkeys(judge.steps, 0))

    # --- changes

    def update(self, added: Mapping[str, Geometry], removed: Iterable[str] = ()) -> Delta:
        """Apply one change as one step; of what is to be judged the larger comes first."""
        news: dict[str, Boxes] = {}
        for id, boxes in added.items():
            assert isinstance(boxes, Boxes)
            if self._entries.get(id) != boxes:
                news[id] = boxes
        touched: dict[str, Boxes | None] = {}
        orphans: dict[str, None] = {}
        gone = [id for id in dict.fromkeys(removed) if id not in added and id in self._entries]
        for id in [*gone, *(id for id in news if id in self._entries)]:
            orphans |= self._take_out(id, touched)
        again = {id: self._entries[id] for id in orphans if id in self._entries}
        for id, boxes in self._largest_first(news | again):
            self._put_in(id, boxes, touched)
        self._counters.promoted += sum(1 for id in again if id in self._numbers)
        return delta_of(touched, self._entries, self._numbers)

    def _largest_first(self, entries: dict[str, Boxes]) -> list[tuple[str, Boxes]]:
        if len(entries) < 2:
            return list(entries.items())
        whole = _sides(self._domain)
        sizes = {id: float((_sides(boxes) / whole).prod(axis=1).sum()) for id, boxes in entries.items()}
        return sorted(entries.items(), key=lambda entry: (-sizes[entry[0]], entry[0]))

    def _take_out(self, id: str, touched: dict[str, Boxes | None]) -> dict[str, None]:
        """Remove an entry; return the passive ids whose group it was in."""
        boxes = self._entries.pop(id)
        if id not in self._numbers:
            self._let_go(id)
            return {}
        touched.setdefault(id, boxes)
        self._deactivate(id)
        orphans = self._covers.pop(id, {})
        for orphan in orphans:
            self._let_go(orphan)
        return orphans

    def _let_go(self, id: str) -> None:
        """A passive entry leaves its group, if an earlier removal of the same step has not made it leave."""
        for coverer in self._group.pop(id, ()):
            if coverer in self._covers:
                self._covers[coverer].pop(id, None)

    def _deactivate(self, id: str) -> None:
        number = self._numbers.pop(id)
        del self._ids[number]
        self._active.remove(number)

    def _put_in(self, id: str, boxes: Boxes, touched: dict[str, Boxes | None]) -> None:
        self._entries[id] = boxes
        group: dict[str, None] = {}
        for low, high in boxes:
            verdict, by = self._ask(id, low, high)
            self._count(verdict)
            if not verdict.covered:
                self._activate(id, boxes, touched)
                return
            group |= dict.fromkeys(by)
        self._withhold(id, tuple(group))
        if len(group) > 1:
            # What lies inside the new entry is covered by its group too; the group itself must stay.
            for inner in self._inside(boxes):
                if inner not in group:
                    self._retire(inner, tuple(group), touched)

    def _ask(self, id: str, low: Ranks, high: Ranks) -> tuple[Verdict, list[str]]:
        lows, highs, owners = self._active.meeting(low, high)
        verdict = self._judge(low, high, lows, highs, seed_of(id, low, high))
        return verdict, [self._ids[owner] for owner in owners[verdict.by].tolist()]

    def _count(self, verdict: Verdict) -> None:
        counters = self._counters
        counters.decided[verdict.step] += 1
        counters.trials += verdict.trials
        if verdict.step == "cap":
            counters.cap_error_max = max(counters.cap_error_max, verdict.error)
            counters.cap_error_sum += verdict.error

    def _withhold(self, id: str, group: tuple[str, ...]) -> None:
        self._group[id] = group
        for coverer in group:
            self._covers.setdefault(coverer, {})[id] = None

    def _activate(self, id: str, boxes: Boxes, touched: dict[str, Boxes | None]) -> None:
        for inner in self._inside(boxes):
            self._retire(inner, (id,), touched)
        touched.setdefault(id, None)
        self._numbers[id], self._ids[self._next] = self._next, id
        self._active.add(self._next, boxes)
        self._next += 1

    def _inside(self, boxes: Boxes) -> list[str]:
        """The active entries each box of which lies inside one of `boxes` (corollary 2)."""
        found: dict[int, int] = {}
        for low, high in boxes:
            lows, highs, owners = self._active.meeting(low, high)
            for owner in owners[((lows >= low) & (highs <= high)).all(axis=1)].tolist():
                found[owner] = found.get(owner, 0) + 1
        ids = {self._ids[owner]: count for owner, count in sorted(found.items())}
        return [id for id, count in ids.items() if count == len(self._entries[id])]

    def _retire(self, id: str, group: tuple[str, ...], touched: dict[str, Boxes | None]) -> None:
        """An active entry becomes passive; in the groups it was in, its own group stands for it."""
        touched.setdefault(id, self._entries[id])
        self._deactivate(id)
        for heir in self._covers.pop(id, {}):
            members = [group if member == id else (member,) for member in self._group[heir]]
            self._withhold(heir, tuple(dict.fromkeys(member for part in members for member in part)))
        self._withhold(id, group)
        self._counters.retired += 1

    # --- questions

    def decide(self, entry: Geometry) -> Decision:
        """Say what adding `entry` would mean now; changes nothing. The draws are those of an entry without an id."""
        assert isinstance(entry, Boxes)
        group: dict[str, None] = {}
        reason = "there is nothing in it"
        for low, high in entry:
            verdict, by = self._ask("", low, high)
            reason = verdict.reason
            if not verdict.covered:
                return Decision(False, reason=reason, witness=verdict.witness)
            group |= dict.fromkeys(by)
        return Decision(True, tuple(group), reason)

    def forwarded(self) -> dict[str, Geometry]:
        return {id: self._entries[id] for id in self._numbers}

    def group(self, id: str) -> tuple[str, ...] | None:
        """The active entries that cover a passive one together; None for an active or unknown one."""
        return self._group.get(id)

    def stats(self) -> dict[str, int | float]:
        """Figures for people: also which step decided how many boxes, and what the cap of trials cost.

        `cap_error_max` is the largest error that a "covered" at the cap would have had (it was forwarded instead);
        `cap_error_sum` the expected number of losses that forwarding avoided, at most.
        """
        counters = self._counters
        size = sum(b.lows.nbytes + b.highs.nbytes for b in self._entries.values())
        return {
            "entries": len(self._entries),
            "forwarded": len(self._numbers),
            "withheld": len(self._group),
            "bytes": size + 8 * sum(len(group) for group in self._group.values()),
            "trials": counters.trials,
            "retired": counters.retired,
            "promoted": counters.promoted,
            "cap_error_max": counters.cap_error_max,
            "cap_error_sum": counters.cap_error_sum,
            **{f"decided_{step}": count for step, count in counters.decided.items()},
        }

    def check(self) -> None:
        """Every entry is active or has a group of active ones that meets each of its boxes; links are mutual."""
        assert set(self._numbers) | set(self._group) == set(self._entries)
        assert not set(self._numbers) & set(self._group)
        assert {number: id for id, number in self._numbers.items()} == self._ids
        assert sorted(self._active.owner_numbers()) == sorted(self._ids)
        for id, number in self._numbers.items():
            assert len(self._entries[id])
            assert self._active.boxes_of(number) == self._entries[id]
        for id, group in self._group.items():
            assert len(set(group)) == len(group)
            assert all(coverer in self._numbers and id in self._covers[coverer] for coverer in group)
            for low, high in self._entries[id]:
                assert any(len(self._entries[coverer].clipped(low, high)) for coverer in group)
        for coverer, ids in self._covers.items():
            assert all(coverer in self._group[id] for id in ids)

    # --- state

    def encode(self) -> bytes:
        active = {id: self._entries[id] for id in self._numbers}
        passive = {id: self._entries[id] for id in self._group}
        position = {id: i for i, id in enumerate(active)}
        groups = [[position[coverer] for coverer in self._group[id]] for id in passive]
        extra = _Extra(len(active), groups, self._counters)
        return pack_entries(FORMAT, active | passive, msgspec.msgpack.encode(extra))

    def _restore(self, blob: bytes) -> None:
        """Become what `encode` packed; `self` is new."""
        self._entries, packed = unpack_entries_and(FORMAT, blob)
        extra = msgspec.msgpack.decode(packed, type=_Extra)
        ids = list(self._entries)
        for number, id in enumerate(ids[: extra.active]):
            self._numbers[id], self._ids[number] = number, id
        self._active.fill([self._entries[id] for id in ids[: extra.active]])
        self._next = extra.active
        for id, group in zip(ids[extra.active :], extra.groups, strict=True):
            self._withhold(id, tuple(ids[position] for position in group))
        # Steps that this version knows and the writer did not start at 0.
        extra.counters.decided = {step: extra.counters.decided.get(step, 0) for step in self._judge.steps}
        self._counters = extra.counters


def _sides(boxes: Boxes) -> Floats:
    # Unsigned subtraction wraps to the true width: a side may be wider than int64, and narrower than a float's steps.
    return (boxes.highs.view(np.uint64) - boxes.lows.view(np.uint64)).astype(np.float64) + 1.0
