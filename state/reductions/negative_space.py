"""Negative space: an entry is withheld iff the forwarded entries *together* cover it.

Implements [NEG08] §3 (subscription forwarding, figure 6; unsubscription, figure 7) exactly on integer boxes,
and with `mode = "approximate"` §4 (`negative_space_approximate.py`). The negative boxes and their tree are in
`negative_tree.py`.

    update ──> withdraw: give space back, find the passive entries it touches
           ──> subscribe each new and touched entry, largest first:
                   nothing of it negative ──> passive (withheld)
                   else                   ──> active (forwarded), taken out of the negative space
           ──> one Delta: what is active now and was not, and the reverse

An entry may consist of several disjoint boxes; it is covered iff all of them are. Beyond the paper: entries
of one update are taken largest first, an active entry that a new one contains is retired, neighbouring
negative boxes are merged, and the number of boxes has a cap, after which entries are forwarded without being
cut out. Left out: sending (figure 6 line 15, figure 9 line 16), which is the broker's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict

import msgspec
import numpy as np

from state.arrays import Bools, Floats, Ints
from state.errors import HilcastError
from state.reductions.active_boxes import contained, containing, meeting
from state.reductions.negative_space_approximate import ApproximateSpace
from state.reductions.negative_tree import NegativeTree, concatenated, own, pack_boxes, split, unpack_boxes, volume
from state.reductions.negative_tree import warm as warm_tree
from state.reductions.parameters import NegativeSpaceSettings, read
from state.reductions.reduction import Decision, Delta
from state.space.boxes import Boxes, Ranks
from state.space.packing import Geometry

FORMAT = 1
WITNESSES_MAX = 64
"""Negative points that `decide` tries as a witness: where not all is cut out, one may be covered."""
GRID_MAX = 1 << 22
"""Cells up to which `check` computes the volume of a union."""


# --- entries in flat arrays ---------------------------------------------------------------------------------


class Rows:
    """Entries by id, in the order of their coming, and their boxes in flat arrays that compiled scans read.

    A removed entry leaves dead rows (owner -1) until the arrays are full, and then written anew.
    """

    def __init__(self, d: int) -> None:
        self.entries: dict[str, Boxes] = {}
        self._start: dict[str, int] = {}
        self._ids: dict[int, str] = {}
        self.uncut = 0
        """How many boxes are not cut out of the negative space."""
        self._allocate(d, 16)

    def _allocate(self, d: int, capacity: int) -> None:
        self._lows, self._highs = np.empty((capacity, d), np.int64), np.empty((capacity, d), np.int64)
        self._owners, self._cut = np.empty(capacity, np.int64), np.empty(capacity, bool)
        self._n = self.uncut = 0

    def __len__(self) -> int:
        return len(self.entries)

    def __contains__(self, id: str) -> bool:
        return id in self.entries

    def add(self, id: str, boxes: Boxes, cut: Bools | None = None) -> None:
        """Take an entry in; `cut` says which of its boxes are cut out of the negative space."""
        assert id not in self.entries
        n = len(boxes)
        if self._n + n > len(self._owners):
            live = self.rows()
            self.load(self.entries, self.boxes(live), self._cut[live], n)
        start, end = self._n, self._n + n
        self._lows[start:end], self._highs[start:end] = boxes.lows, boxes.highs
        self._owners[start:end] = start
        self._cut[start:end] = False if cut is None else cut
        self.entries[id], self._start[id] = boxes, start
        if n:
            self._ids[start] = id
        self._n = end
        self.uncut += n if cut is None else n - int(cut.sum())

    def load(self, entries: dict[str, Boxes], boxes: Boxes, cut: Bools | None, room: int = 0) -> None:
        """Hold just `entries`, whose boxes are `boxes` in their order, with room for more."""
        n = len(boxes)
        self._allocate(boxes.d, 2 * (n + room) + 16)
        counts = np.array([len(own) for own in entries.values()], np.int64)
        starts = np.cumsum(counts) - counts
        self._lows[:n], self._highs[:n] = boxes.lows, boxes.highs
        self._owners[:n] = np.repeat(starts, counts)
        self._cut[:n] = False if cut is None else cut
        self._n, self.uncut = n, n if cut is None else n - int(cut.sum())
        self.entries = entries
        self._start = dict(zip(entries, starts.tolist(), strict=True))
        self._ids = {start: id for id, start in self._start.items() if len(entries[id])}

    def remove(self, id: str) -> Boxes:
        """Remove an entry; its boxes."""
        boxes, start = self.entries.pop(id), self._start.pop(id)
        if len(boxes):
            del self._ids[start]
            self._owners[start : start + len(boxes)] = -1
            self.uncut -= len(boxes) - int(self._cut[start : start + len(boxes)].sum())
        return boxes

    def cut_of(self, id: str) -> Bools:
        """Which boxes of an entry are cut out."""
        start = self._start[id]
        return self._cut[start : start + len(self.entries[id])].copy()

    def set_cut(self, rows: Ints, cut: Bools) -> None:
        """Say anew which of all live `rows` are cut out."""
        self._cut[rows] = cut
        self.uncut = len(cut) - int(cut.sum())

    def rows(self, cut_only: bool = False) -> Ints:
        """All live rows."""
        live = self._owners[: self._n] >= 0
        return np.flatnonzero(live & self._cut[: self._n] if cut_only else live)

    def boxes(self, rows: Ints) -> Boxes:
        return Boxes(self._lows[rows], self._highs[rows])

    def ids(self, rows: Ints) -> list[str]:
        """The entries that own `rows`, each once, in the order of their coming."""
        return [self._ids[owner] for owner in np.unique(self._owners[rows]).tolist()]

    def meeting(self, low: Ranks, high: Ranks, cut_only: bool = False) -> Ints:
        rows = meeting(*self._arrays(), low, high)
        return rows[self._cut[rows]] if cut_only else rows

    def containing(self, low: Ranks, high: Ranks) -> int:
        return containing(*self._arrays(), low, high, 0)

    def contained(self, low: Ranks, high: Ranks) -> Ints:
        return contained(*self._arrays(), low, high)

    def inside(self, boxes: Boxes) -> list[str]:
        """The entries all of whose boxes lie inside one of `boxes` each."""
        rows = np.concatenate([self.contained(low, high) for low, high in boxes])
        if len(rows) == 0:
            return []
        owners, counts = np.unique(self._owners[rows], return_counts=True)
        ids = [self._ids[owner] for owner in owners.tolist()]
        return [id for id, count in zip(ids, counts, strict=True) if count == len(self.entries[id])]

    def _arrays(self) -> tuple[Ranks, Ranks, Ints]:
        return self._lows[: self._n], self._highs[: self._n], self._owners[: self._n]

    def check(self) -> None:
        assert self.uncut == len(self.rows()) - len(self.rows(cut_only=True))
        for id, boxes in self.entries.items():
            start = self._start[id]
            rows = np.arange(start, start + len(boxes))
            assert self.boxes(rows) == boxes
            assert (self._owners[rows] == start).all()
        assert len(self.rows()) == sum(len(boxes) for boxes in self.entries.values())


# --- the exact space ----------------------------------------------------------------------------------------


class ExactSpace:
    """The negative space of the boxes that are cut out: exactly what none of them covers."""

    def __init__(
        self, domain: Boxes, largest_first: bool = True, boxes_max: int | None = None, merge_sweeps: int = 0
    ) -> None:
        self._domain = domain
        self._boxes_max, self._merge_sweeps = boxes_max, merge_sweeps
        self.tree = NegativeTree(domain, largest_first)
        self.joined = 0
        """How many boxes merging has saved so far."""

    def __len__(self) -> int:
        return len(self.tree)

    def subscribe(self, boxes: Boxes) -> Bools:
        """Cut an active entry out (figure 6, lines 8 to 14); say which of its boxes fitted under the cap."""
        cut = np.array([self.tree.subtract(low, high, self._boxes_max) for low, high in boxes], bool)
        self.joined += self.tree.merge_if_grown(self._merge_sweeps)
        return cut

    def give_back(self, boxes: Boxes, active: Rows) -> None:
        """Make negative what only `boxes` had covered (figure 7, lines 6 to 20); not in `active` any more.

        Differs: the larger overlaps are subtracted first; if more is withdrawn than stays, or if the cap is
        exceeded, the space is built anew from what stays.
        Cost: O(active + overlapping entries * pieces) a box.
        """
        if len(boxes) > len(active.rows(cut_only=True)):
            self._build(active, self._boxes_max)
            return
        for i, (low, high) in enumerate(boxes):
            others = active.boxes(active.meeting(low, high, cut_only=True)).joined(
                Boxes(boxes.lows[:i], boxes.highs[:i])
            )
            left = self._uncovered(low, high, others)
            if left is None:
                # Half the cap leaves room for what the next cancellations give back.
                self._build(active, (self._boxes_max or 0) // 2)
                return
            self.tree.add(left)
        self.joined += self.tree.merge_if_grown(self._merge_sweeps)

    def _uncovered(self, low: Ranks, high: Ranks, others: Boxes) -> Boxes | None:
        """What `others` leave of a box, or None above the cap."""
        room = None if self._boxes_max is None else max(1, self._boxes_max - len(self.tree))
        hole = NegativeTree(Boxes(low[None], high[None]), self.tree.largest_first)
        others = others.clipped(low, high)
        for i in np.argsort(-_shares(others), kind="stable"):
            if len(hole) == 0:
                break
            if not hole.subtract(others.lows[i], others.highs[i], room):
                return None
        if self._merge_sweeps:
            hole.merge(self._merge_sweeps)
        return hole.boxes()

    def _build(self, active: Rows, boxes_max: int | None) -> None:
        self.tree, cut = self._built(active, boxes_max)
        active.set_cut(active.rows(), cut)

    def _built(self, active: Rows, boxes_max: int | None) -> tuple[NegativeTree, Bools]:
        """The cube without the boxes of `active`, the larger cut out first, and which of them fitted."""
        tree = NegativeTree(self._domain, self.tree.largest_first)
        boxes = active.boxes(active.rows())
        cut = np.zeros(len(boxes), bool)
        for i in np.argsort(-_shares(boxes), kind="stable"):
            cut[i] = tree.subtract(boxes.lows[i], boxes.highs[i], boxes_max)
            tree.merge_if_grown(self._merge_sweeps)
        return tree, cut

    def tidy(self, active: Rows) -> None:
        """Build the space anew if that takes fewer boxes and leaves no more of `active` uncut."""
        tree, cut = self._built(active, self._boxes_max)
        if len(tree) < len(self.tree) and len(cut) - int(cut.sum()) <= active.uncut:
            self.tree = tree
            active.set_cut(active.rows(), cut)

    def check(self, active: Rows) -> None:
        """Assert that what is negative and what is cut out are disjoint and together the cube.

        The volumes are compared where the union of the boxes has at most `GRID_MAX` cells.
        """
        cut = active.boxes(active.rows(cut_only=True))
        assert all(self.tree.covered(low, high) for low, high in cut), "a box that is cut out is negative"
        union = _union_volume(cut)
        if union is not None:
            assert self.tree.volume() + union == volume(self._domain), "negative + covered is not the cube"


def _shares(boxes: Boxes) -> Floats:
    """Each box's share of the whole rank space: a volume that cannot overflow."""
    sides = (boxes.highs.view(np.uint64) - boxes.lows.view(np.uint64)).astype(float) + 1.0
    return (sides * 2.0**-64).prod(axis=1)  # type: ignore[no-any-return]


def _largest_first(entries: Mapping[str, Boxes], d: int) -> list[str]:
    """The ids of entries, the larger first, equally large ones by id."""
    if len(entries) < 2:
        return list(entries)
    shares = _shares(concatenated(list(entries.values()), d))
    owners = np.repeat(np.arange(len(entries)), [len(boxes) for boxes in entries.values()])
    sizes = np.bincount(owners, shares, len(entries))
    return [id for _, id in sorted(zip((-sizes).tolist(), entries, strict=True))]


def _union_volume(boxes: Boxes) -> int | None:
    """The exact volume of the union of boxes by compressed coordinates, or None above `GRID_MAX` cells."""
    edges = []
    for lows, highs in zip(boxes.lows.T.tolist(), boxes.highs.T.tolist(), strict=True):
        edges.append(sorted({*lows, *(high + 1 for high in highs)}))
    shape = tuple(max(len(e) - 1, 0) for e in edges)
    if np.prod(shape, dtype=float) > GRID_MAX:
        return None
    covered = np.zeros(shape, bool)
    positions = [{edge: i for i, edge in enumerate(e)} for e in edges]
    for low, high in zip(boxes.lows.tolist(), boxes.highs.tolist(), strict=True):
        covered[tuple(slice(p[a], p[b + 1]) for p, a, b in zip(positions, low, high, strict=True))] = True
    total = 0
    for cell in np.argwhere(covered).tolist():
        points = 1
        for e, i in zip(edges, cell, strict=True):
            points *= e[i + 1] - e[i]
        total += points
    return total


def warm() -> None:
    """Compile or load every kernel of both modes."""
    warm_tree()
    for mode in ("exact", "approximate"):
        space = NegativeSpace(Boxes.of([([0], [99])]), {"mode": mode, "max_boxes": 2})
        space.update({str(i): Boxes.of([([10 * i], [10 * i + i])]) for i in range(9)})
        space.update({}, ["7"])


# --- the reduction ------------------------------------------------------------------------------------------


class _Packed(msgspec.Struct, array_like=True):
    active: list[str]
    passive: list[str]
    counts: list[int]
    boxes: bytes
    cut: bytes
    space: bytes
    joined: int
    counters: dict[str, int]


_COUNTERS = (
    "withdrawn",
    "reexamined",
    "covered_by_one",
    "covered_together",
    "retired",
    "rebuilds",
    "rebuilds_kept",
)


class NegativeSpace:
    """Entries towards one neighbour, those withheld that the forwarded ones cover together.

    Guarantee: the union of what is forwarded is the union of the live entries, in both modes; exact (below
    its cap of boxes) withholds everything that what is forwarded covers, approximate at least what one entry
    covers. Cost of adding: a walk of the tree and O(hits) cuts; of withdrawing: a scan of the entries and of
    what overlaps the withdrawn one.

    >>> space = NegativeSpace(Boxes.of([([0, 0], [1000, 1000])]))
    >>> s1, s2 = Boxes.of([([175, 180], [510, 680])]), Boxes.of([([405, 110], [840, 540])])
    >>> s3 = Boxes.of([([380, 230], [720, 495])])
    >>> sorted(space.update({"s1": s1, "s2": s2, "s3": s3}).added)
    ['s1', 's2']
    >>> delta = space.update({}, ["s1"])
    >>> sorted(delta.added), delta.removed
    (['s3'], ('s1',))
    """

    def __init__(self, domain: Geometry, parameters: Mapping[str, object] | None = None) -> None:
        assert isinstance(domain, Boxes)
        assert len(domain) == 1, "the domain is one box: the cube"
        self.settings = read(NegativeSpaceSettings, parameters)
        self._domain = domain
        self._active, self._passive = Rows(domain.d), Rows(domain.d)
        self._exact: ExactSpace | None = None
        self._approximate: ApproximateSpace | None = None
        self._start_space()
        self._counters = dict.fromkeys(_COUNTERS, 0)
        self._before: dict[str, Boxes | None] = {}
        """What the neighbour held, for every entry that the update under way made active or passive."""

    def _start_space(self) -> None:
        if self.settings.mode == "exact":
            self._exact = ExactSpace(self._domain, *self._cuts())
        else:
            self._approximate = self._fresh_approximate()

    def _cuts(self) -> tuple[bool, int | None, int]:
        s = self.settings
        return s.cuts == "largest-first", s.max_boxes or None, s.merge_budget * self._domain.d

    def _fresh_approximate(self) -> ApproximateSpace:
        s = self.settings
        return ApproximateSpace(self._domain, *self._cuts(), s.k, s.choice, s.dynamic)

    @property
    def tree(self) -> NegativeTree:
        """The negative space towards this neighbour."""
        return self._space.tree

    @property
    def _space(self) -> ExactSpace | ApproximateSpace:
        space = self._exact if self._exact is not None else self._approximate
        assert space is not None
        return space

    # --- changes

    def update(self, added: Mapping[str, Geometry], removed: Iterable[str] = ()) -> Delta:
        """Apply one change as one step ([NEG08] figures 6 to 9).

        Differs: entries are subscribed largest first, whatever their order in `added`; the new ones of a step
        compete with the passive ones that it uncovered, so that the Delta is small and never repeats itself.
        """
        self._before = {}
        fresh: dict[str, Boxes] = {}
        for id, boxes in added.items():
            assert isinstance(boxes, Boxes)
            boxes = Boxes(own(boxes.lows), own(boxes.highs))
            assert (boxes.lows >= self._domain.lows).all(), f"{id} leaves the cube"
            assert (boxes.highs <= self._domain.highs).all(), f"{id} leaves the cube"
            if self._entry(id) != boxes:
                fresh[id] = boxes
        gone = [id for id in dict.fromkeys(removed) if id not in added and self._entry(id) is not None]
        leaving = gone + [id for id in fresh if self._entry(id) is not None]
        withdrawn = self._withdraw(leaving)
        self._subscribe_all(withdrawn | fresh)
        if leaving:
            self._rebuild_if_worth_it()
        return self._delta()

    def _entry(self, id: str) -> Boxes | None:
        boxes = self._active.entries.get(id)
        return self._passive.entries.get(id) if boxes is None else boxes

    def _withdraw(self, ids: list[str]) -> dict[str, Boxes]:
        """Remove entries and give their space back; take out and return the passive entries touched."""
        holes, cut, active = [], [], []
        for id in ids:
            if id in self._passive:
                self._passive.remove(id)
                continue
            active.append(id)
            cut.append(self._active.cut_of(id))
            holes.append(self._active.remove(id))
            self._before.setdefault(id, holes[-1])
        if not active:
            return {}
        self._counters["withdrawn"] += len(active)
        hole = concatenated(holes, self._domain.d)
        if self._approximate is not None:
            self._approximate.give_back(active)
        if self._exact is not None:
            was_cut = np.concatenate(cut)
            self._exact.give_back(hole.take(was_cut), self._active)
        touched = [self._passive.meeting(low, high) for low, high in hole]
        ids = self._passive.ids(np.concatenate(touched))
        self._counters["reexamined"] += len(ids)
        return {id: self._passive.remove(id) for id in ids}

    def _subscribe_all(self, entries: Mapping[str, Boxes]) -> None:
        """Subscribe entries, the larger first, equally large ones by their ids."""
        for id in _largest_first(entries, self._domain.d):
            self._subscribe(id, entries[id])

    def _subscribe(self, id: str, boxes: Boxes) -> None:
        if self._covered(boxes, count=True):
            self._passive.add(id, boxes)
            return
        self._before.setdefault(id, None)
        cut = None
        if self._exact is not None:
            cut = self._exact.subscribe(boxes)
        if self._approximate is not None:
            self._approximate.subscribe(id, boxes, len(self._active) + len(self._passive) + 1)
        if self.settings.retire:
            self._retire_inside(id, boxes, cut is None or bool(cut.all()))
        self._active.add(id, boxes, cut)

    def _covered(self, boxes: Boxes, count: bool = False) -> bool:
        """Whether every box is inside one box of an entry, or meets nothing negative.

        Pairs are asked first, as in [NEG08] §5. Passive entries count, last, because they are covered
        themselves. The exact space asks no pairs, unless the cap left active boxes that are not cut out.
        """
        asks_pairs = self._active.uncut > 0
        by_one = True
        for low, high in boxes:
            if asks_pairs and self._active.containing(low, high) >= 0:
                continue
            if self.tree.covered(low, high):
                by_one = False
            elif not asks_pairs or self._passive.containing(low, high) < 0:
                return False
        if count:
            self._counters["covered_by_one" if by_one else "covered_together"] += 1
        return True

    def _retire_inside(self, id: str, boxes: Boxes, is_cut: bool) -> None:
        """Withdraw the active entries inside the new one, before it is among them.

        A new one that is not cut out cannot take over what is: nobody would give that space back.
        """
        for old in self._active.inside(boxes):
            if not is_cut and self._active.cut_of(old).any():
                continue
            if self._approximate is not None:
                self._approximate.hand_over(old, id)
            retired = self._active.remove(old)
            self._before.setdefault(old, retired)
            self._passive.add(old, retired)
            self._counters["retired"] += 1

    def _rebuild_if_worth_it(self) -> None:
        """Recompute active and passive from all entries, once enough was withdrawn ([NEG08] §4, end).

        Worth it, and then done, if the neighbour holds fewer entries after it by at least as many as it must
        be sent. All of it travels in the Delta of this update.
        """
        share, withdrawn = self.settings.rebuild, self._counters["withdrawn"]
        if share == 0 or withdrawn == 0 or withdrawn < share * len(self._active):
            return
        aside = NegativeSpace(self._domain, asdict(self.settings))
        aside._subscribe_all(self._active.entries | self._passive.entries)
        sent = sum(id not in self._active for id in aside._active.entries)
        self._counters["withdrawn"] = 0
        self._counters["rebuilds"] += 1
        if len(self._active) - len(aside._active) < max(sent, 1):
            self._tidy()
            return
        for id in self._active.entries | aside._active.entries:
            self._before.setdefault(id, self._active.entries.get(id))
        self._active, self._passive = aside._active, aside._passive
        self._exact, self._approximate = aside._exact, aside._approximate
        self._counters["rebuilds_kept"] += 1

    def _tidy(self) -> None:
        """Cut the same active entries out of a fresh cube, if that takes fewer boxes: nothing has to be sent."""
        if self._exact is not None:
            self._exact.tidy(self._active)
        if self._approximate is not None:
            fresh = self._fresh_approximate()
            for id in _largest_first(self._active.entries, self._domain.d):
                fresh.subscribe(id, self._active.entries[id], len(self._active) + len(self._passive))
            fresh.joined += self._approximate.joined
            if len(fresh) < len(self._approximate):
                self._approximate = fresh

    def _delta(self) -> Delta:
        added: dict[str, Geometry] = {}
        removed = []
        for id in sorted(self._before):
            before, now = self._before[id], self._active.entries.get(id)
            if now is None and before is not None:
                removed.append(id)
            elif now is not None and (before is None or before != now):
                added[id] = now
        self._before = {}
        return Delta(added, tuple(removed))

    # --- questions

    def decide(self, entry: Geometry) -> Decision:
        """Say whether `entry` would be withheld: by whom, or with a point that nothing covers."""
        assert isinstance(entry, Boxes)
        entry = Boxes(own(entry.lows), own(entry.highs))
        if self._covered(entry):
            rows = [self._active.containing(low, high) for low, high in entry]
            if rows and min(rows) >= 0:
                return Decision(True, tuple(self._active.ids(np.array(rows))), "inside boxes of these")
            meeting = [self._active.meeting(low, high) for low, high in entry]
            by = self._active.ids(np.concatenate(meeting)) if meeting else []
            return Decision(True, tuple(by), "covered by these together" if by else "empty")
        witness = self._witness(entry)
        if witness is None:
            return Decision(False, reason="no cover is known: part of it was never cut out of the negative space")
        return Decision(False, reason="a point of it is covered by nothing", witness=witness)

    def _witness(self, entry: Boxes) -> tuple[int, ...] | None:
        looked_at = 0
        for low, high in entry:
            for point in self.tree.meeting(low, high).lows:
                looked_at += 1
                if self._active.containing(point, point) < 0:
                    return tuple(point.tolist())
                if looked_at == WITNESSES_MAX:
                    return None
        return None

    def forwarded(self) -> dict[str, Geometry]:
        """Everything the neighbour holds."""
        return dict(self._active.entries)

    def stats(self) -> dict[str, int | float]:
        """Counts of entries and boxes, the bytes of all boxes, and what was done so far."""
        held = (*self._active.entries.values(), *self._passive.entries.values())
        taken, uncut = 0, self._active.uncut
        if self._approximate is not None:
            taken, uncut = self._approximate.taken, self._approximate.uncut(self._active.entries)
        boxes = sum(len(b) for b in held) + len(self.tree) + taken
        return {
            "entries": len(held),
            "forwarded": len(self._active),
            "withheld": len(self._passive),
            "bytes": boxes * 16 * self._domain.d,
            "negative_boxes": len(self.tree),
            "taken_boxes": taken,
            "uncut_boxes": uncut,
            "merged": self._space.joined,
            **{name: value for name, value in self._counters.items() if name != "withdrawn"},
        }

    def check(self) -> None:
        """Assert every invariant: what is negative and what is covered are disjoint and make the cube."""
        self._active.check()
        self._passive.check()
        self.tree.check()
        assert not self._active.entries.keys() & self._passive.entries.keys()
        for id, boxes in self._passive.entries.items():
            assert self._covered(boxes) or self._truly_covered(boxes), f"{id} is withheld and not covered"
        if self._exact is not None:
            self._exact.check(self._active)
        if self._approximate is not None:
            self._approximate.check(self._domain, self._active.entries)

    def _truly_covered(self, boxes: Boxes) -> bool:
        """Whether the active boxes leave nothing of `boxes`: beyond the cap, the space may not know."""
        left = NegativeTree(boxes)
        for low, high in boxes:
            for other in self._active.meeting(low, high):
                left.subtract(*next(iter(self._active.boxes(np.array([other])))))
        return len(left) == 0

    # --- state

    def encode(self) -> bytes:
        """Pack the whole state; the first byte is the format number."""
        entries = [*self._active.entries.values(), *self._passive.entries.values()]
        cut = [self._active.cut_of(id) for id in self._active.entries] or [np.zeros(0, bool)]
        packed = _Packed(
            active=list(self._active.entries),
            passive=list(self._passive.entries),
            counts=[len(b) for b in entries],
            boxes=pack_boxes(concatenated(entries, self._domain.d)),
            cut=np.packbits(np.concatenate(cut)).tobytes(),
            space=self.tree.encode() if self._approximate is None else self._approximate.encode(),
            joined=self._space.joined,
            counters=self._counters,
        )
        return bytes([FORMAT]) + msgspec.msgpack.encode(packed)

    @classmethod
    def decode(cls, blob: bytes, domain: Geometry, parameters: Mapping[str, object] | None = None) -> NegativeSpace:
        """The reduction that `encode` packed; `domain` and `parameters` must be those it was made with."""
        if not blob or blob[0] != FORMAT:
            raise HilcastError("bad-state", f"a negative space of format {blob[:1].hex() or 'nothing'}")
        packed = msgspec.msgpack.decode(blob[1:], type=_Packed)
        made = cls(domain, parameters)
        made._counters = packed.counters
        boxes, _ = unpack_boxes(packed.boxes)
        cut = np.unpackbits(np.frombuffer(packed.cut, np.uint8)).astype(bool)
        entries = split(boxes, packed.active + packed.passive, packed.counts)
        n = sum(packed.counts[: len(packed.active)])
        passive = {id: entries.pop(id) for id in packed.passive}
        made._active.load(entries, Boxes(boxes.lows[:n], boxes.highs[:n]), cut[:n])
        made._passive.load(passive, Boxes(boxes.lows[n:], boxes.highs[n:]), None)
        if made._exact is not None:
            made._exact.tree, made._exact.joined = NegativeTree.decode(packed.space), packed.joined
        if made._approximate is not None:
            made._approximate.restore(packed.space)
            made._approximate.joined = packed.joined
        return made
