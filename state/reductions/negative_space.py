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

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import compress

import msgspec
import numpy as np

from state import formats
from state.arrays import Bools, Ints
from state.reductions.arrivals import Arrivals
from state.reductions.entry_rows import EntryRows
from state.reductions.entry_rows import warm as warm_rows
from state.reductions.group_pass import GroupTree
from state.reductions.negative_pass import CuttingTree
from state.reductions.negative_space_approximate import ApproximateSpace, boxes_allowed
from state.reductions.negative_tree import NegativeTree
from state.reductions.negative_tree import warm as warm_tree
from state.reductions.parameters import NegativeSpaceSettings, read
from state.reductions.reduction import Decision, Fate
from state.reductions.withholding import Counts, Withholding
from state.space.boxes import Boxes, Ranks
from state.space.packing import Geometry

FORMAT = 5
"""3: the cap of boxes rises with the entries, and what removals give back may exceed it by a share. 5: the cap is
higher while entries are few."""
RESERVE = 4
"""What removals give back may exceed the cap of boxes by this part of it: the space is not built anew for each."""
WITNESSES_MAX = 64
"""Negative points that `decide` tries as a witness: where not all is cut out, one may be covered."""
GIVEN_MAX = 64
"""Boxes that a hole may leave negative while each is asked whom it uncovers; beyond that, the hole is."""
GRID_MAX = 1 << 22
"""Cells up to which `check` computes the volume of a union."""
ASKED_MAX, SCANS_MAX = 30, 200_000
"""Who covers what is not kept: passive entries that `fates` asks it for, and boxes to look at for that."""


# --- the exact space ----------------------------------------------------------------------------------------


class ExactSpace:
    """The negative space of the boxes that are cut out: exactly what none of them covers.

    Which active boxes are cut out are the marks of their rows.
    """

    def __init__(
        self, domain: Boxes, largest_first: bool = True, max_boxes: int | None = None, merge_sweeps: int = 0
    ) -> None:
        self._domain = domain
        self._max_boxes, self._merge_sweeps = max_boxes, merge_sweeps
        self.tree = CuttingTree(domain, largest_first)
        self.joined = 0
        """How many boxes merging has saved so far."""

    def __len__(self) -> int:
        return len(self.tree)

    def subscribe(self, boxes: Boxes, live: int) -> Bools:
        """Cut an active entry out (figure 6, lines 8 to 14); say which of its boxes fitted under the cap.

        `live`: the entries that there are, this one among them, on which the cap may depend.
        """
        cap = boxes_allowed(self._max_boxes, live)
        cut = np.array([self.tree.subtract(low, high, cap) for low, high in boxes], bool)
        self.joined += self.tree.merge_if_grown(self._merge_sweeps)
        return cut

    def subscribe_all(self, news: Arrivals, active: EntryRows, live: int) -> Bools:
        """Cut the first of some entries of one box each out, and let `active` take them in; which of them are covered.

        As far as that is all there is to do. All of `active` is cut out; `live`: the entries that there were.
        """
        caps = [boxes_allowed(self._max_boxes, live + 1 + i) for i in range(len(news))]
        limits = np.array([-1 if cap is None else cap for cap in caps], np.int64)

        def judge(rows: GroupTree, first: int) -> Bools:
            covered, _, saved = self.tree.cut_out(rows, first, limits, self._merge_sweeps)
            self.joined += saved
            return covered

        return active.take_in_marked(news, judge)

    def give_back(self, boxes: Boxes, active: EntryRows, live: int) -> Boxes | None:
        """Make negative what only `boxes` had covered (figure 7, lines 6 to 20); not in `active` any more.

        Returns what became negative; None: not known, for the space was built anew.
        Differs: the larger overlaps are subtracted first; if more is withdrawn than stays, or if the cap and its
        reserve are exceeded, the space is built anew from what stays, with half the cap.
        Cost: that of finding what overlaps, and O(overlapping entries * pieces), a box; built anew, that of all active
        ones, but then as many boxes must be given back before it happens again as half the cap and its reserve.
        """
        cap = boxes_allowed(self._max_boxes, live)
        if len(boxes) > active.marked:
            self._build(active, cap)
            return None
        given = []
        for i, (low, high) in enumerate(boxes):
            met = active.meeting(low, high)
            others = active.boxes(met[active.marks(met)]).joined(Boxes(boxes.lows[:i], boxes.highs[:i]))
            left = self._uncovered(low, high, others, cap)
            if left is None:
                # Half the cap leaves room for what the next cancellations give back.
                self._build(active, (cap or 0) // 2)
                return None
            self.tree.add(left)
            given.append(left)
        self.joined += self.tree.merge_if_grown(self._merge_sweeps)
        return Boxes.concatenated(given, self._domain.d)

    def _uncovered(self, low: Ranks, high: Ranks, others: Boxes, cap: int | None) -> Boxes | None:
        """What `others` leave of a box, or None above the cap and its reserve."""
        room = None if cap is None else max(1, cap + cap // RESERVE - len(self.tree))
        hole = NegativeTree(Boxes(low[None], high[None]), self.tree.largest_first)
        others = others.clipped(low, high)
        for i in _largest_first(others, self._domain):
            if len(hole) == 0:
                break
            if not hole.subtract(others.lows[i], others.highs[i], room):
                return None
        if self._merge_sweeps:
            hole.merge(self._merge_sweeps)
        return hole.boxes()

    def _build(self, active: EntryRows, boxes_max: int | None) -> None:
        self.tree, cut = self._built(active, boxes_max)
        active.mark(cut)

    def _built(self, active: EntryRows, boxes_max: int | None) -> tuple[CuttingTree, Bools]:
        """The cube without the boxes of `active`, the larger cut out first, and which of them fitted."""
        tree = CuttingTree(self._domain, self.tree.largest_first)
        boxes = active.boxes()
        cut = np.zeros(len(boxes), bool)
        for i in _largest_first(boxes, self._domain):
            cut[i] = tree.subtract(boxes.lows[i], boxes.highs[i], boxes_max)
            tree.merge_if_grown(self._merge_sweeps)
        return tree, cut

    def tidy(self, active: EntryRows, live: int) -> None:
        """Build the space anew if that takes fewer boxes and leaves no more of `active` uncut."""
        tree, cut = self._built(active, boxes_allowed(self._max_boxes, live))
        if len(tree) < len(self.tree) and int(cut.sum()) >= active.marked:
            self.tree = tree
            active.mark(cut)

    def check(self, active: EntryRows) -> None:
        """Assert that what is negative and what is cut out are disjoint and together the cube.

        The volumes are compared where the union of the boxes has at most `GRID_MAX` cells.
        """
        cut = active.boxes().take(active.marks())
        assert all(self.tree.covered(low, high) for low, high in cut), "a box that is cut out is negative"
        union = _union_volume(cut)
        if union is not None:
            cube = NegativeTree(self._domain).volume()
            assert self.tree.volume() + union == cube, "negative + covered is not the cube"


def _largest_first(boxes: Boxes, domain: Boxes) -> Ints:
    """The positions of boxes by their volume, the larger first."""
    return np.argsort(-(boxes.sides() / domain.sides()).prod(axis=1), kind="stable")


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
    warm_rows()
    warm_tree()
    for mode in ("exact", "approximate"):
        space = NegativeSpace(Boxes.of([([0], [99])]), {"mode": mode, "max_boxes": 2})
        space.many = 2
        space.update({str(i): Boxes.of([([10 * i], [10 * i + i])]) for i in range(9)})
        space.update({}, ["7"])


# --- the reduction ------------------------------------------------------------------------------------------


class _Own(msgspec.Struct, array_like=True):
    cut: bytes
    space: bytes
    joined: int


COVERED, FORWARD = Decision(True), Decision(False)
NOBODY = np.empty(0, np.int64)
"""Who covers an entry is not kept."""


class NegativeSpace(Withholding):
    """Entries towards one neighbour, those withheld that the forwarded ones cover together.

    Guarantee: the union of what is forwarded is the union of the live entries, in both modes; exact (below
    its cap of boxes) withholds everything that what is forwarded covers, approximate at least what one entry
    covers.
    Cost of adding: a walk of the tree and O(hits) cuts; of withdrawing: subtracting what overlaps what went, and
    judging what it uncovered; now and then O(n log n) for all n negative boxes, to merge them or to build their tree
    anew, paid by as many cuts. Many at once, exact, are compiled passes as long as all that is active is cut out.
    Differs from the other methods that withhold: who covers whom is not kept, so what a removal touches is judged
    again.

    >>> space = NegativeSpace(Boxes.of([([0, 0], [1000, 1000])]))
    >>> s1, s2 = Boxes.of([([175, 180], [510, 680])]), Boxes.of([([405, 110], [840, 540])])
    >>> s3 = Boxes.of([([380, 230], [720, 495])])
    >>> sorted(space.update({"s1": s1, "s2": s2, "s3": s3}).added)
    ['s1', 's2']
    >>> delta = space.update({}, ["s1"])
    >>> sorted(delta.added), delta.removed
    (['s3'], ('s1',))
    """

    counted = ("withdrawn", "reexamined", "covered_by_one", "covered_together", "rebuilds", "rebuilds_kept")

    def __init__(self, domain: Geometry, parameters: Mapping[str, object] | None = None) -> None:
        super().__init__(domain)
        self.settings = read(NegativeSpaceSettings, parameters)
        self.retires = self.settings.retire
        self._exact: ExactSpace | None = None
        self._approximate: ApproximateSpace | None = None
        if self.settings.mode == "exact":
            self._exact = ExactSpace(self._domain, *self._cuts())
        else:
            self._approximate = self._fresh_approximate()

    def _cuts(self) -> tuple[bool, int | None, int]:
        s = self.settings
        return s.cuts == "largest-first", s.max_boxes, s.merge_budget * self._domain.d

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

    @property
    def _live(self) -> int:
        return len(self._active) + len(self._passive)

    # --- changes

    def _admit(self, news: Arrivals) -> None:
        """All lie in the cube."""
        boxes = news.boxes
        inside = (boxes.lows >= self._domain.lows).all() and (boxes.highs <= self._domain.highs).all()
        assert inside, "an entry leaves the cube"

    def _take_out(self, ids: Sequence[str]) -> dict[str, Boxes]:
        """Remove entries and give their space back; take out and return the passive entries touched."""
        holes: dict[str, Boxes] = {}
        cut = []
        for id in ids:
            if id in self._passive:
                self._passive.remove(id)
                continue
            cut.append(self._active.marks_of(id))
            holes[id] = self._deactivate(id)
        if not holes:
            return {}
        self._counts["withdrawn"] += len(holes)
        hole = Boxes.concatenated(list(holes.values()), self._domain.d)
        given: Boxes | None = None
        if self._approximate is not None:
            given = self._approximate.give_back(list(holes), self._active)
        if self._exact is not None:
            given = self._exact.give_back(hole.take(np.concatenate(cut)), self._active, self._live)
        touched = self._touched(hole, given)
        self._counts["reexamined"] += len(touched)
        return {id: self._passive.remove(id) for id in touched}

    def _touched(self, hole: Boxes, given: Boxes | None) -> list[str]:
        """The passive entries that a hole may have uncovered, `given` being what became negative by it.

        A box of a passive entry is withheld because nothing of it is negative, or because one entry contains it: it is
        asked again if it meets what became negative, or lies inside what went. Differs: figure 7 asks all that meet
        the hole, of which there are many more where entries lie upon each other.
        """
        if not len(self._passive):
            return []
        if given is None or len(given) > GIVEN_MAX * len(hole):
            rows = [self._passive.meeting(low, high) for low, high in hole]
        else:
            rows = [self._passive.meeting(low, high) for low, high in given]
            rows += [self._passive.within(low, high) for low, high in hole]
        return self._passive.ids(np.concatenate(rows))

    def _judge(self, id: str, boxes: Boxes, counts: Counts) -> Decision:
        """Whether every box is inside one box of an entry, or meets nothing negative.

        Pairs are asked first, as in [NEG08] §5. Passive entries count, last, because they are covered
        themselves. The exact space asks no pairs, unless the cap left active boxes that are not cut out.
        """
        asks_pairs = self._active.size > self._active.marked
        by_one = True
        for low, high in boxes:
            if asks_pairs and self._active.containing(low, high) >= 0:
                continue
            if self.tree.covered(low, high):
                by_one = False
            elif not asks_pairs or self._passive.containing(low, high) < 0:
                return FORWARD
        counts["covered_by_one" if by_one else "covered_together"] += 1
        return COVERED

    def _put_in_all(self, entries: Arrivals) -> None:
        """Those of one box by compiled passes, where there are many and nothing is active that is not cut out."""
        at = 0
        while self._exact is not None and len(entries) - at >= self.many and self._active.size == self._active.marked:
            several = np.flatnonzero(entries.sizes[at : at + self._live + self.many] != 1)
            some = entries.span(at, at + (int(several[0]) if len(several) else self._live + self.many))
            done = 0
            if len(some):
                covered = self._exact.subscribe_all(some, self._active, self._live)
                done = len(covered)
                some = some.span(0, done)
                self._counts["covered_together"] += int(covered.sum())
                for id in compress(some.ids, (~covered).tolist()):
                    self._before.setdefault(id, None)
                self._passive.extend(some.where(covered))
            at += done
            if at < len(entries) and (not len(some) or done < len(some)):
                self._put_in(entries.ids[at], entries.each[at])
                at += 1
        super()._put_in_all(entries.span(at, len(entries)) if at else entries)

    def _activate(self, id: str, boxes: Boxes) -> None:
        """Cut an entry out; withdraw the active entries inside it, before it is among them.

        One that is not cut out cannot take over what is: nobody would give that space back.
        """
        cut = None
        if self._exact is not None:
            cut = self._exact.subscribe(boxes, self._live + 1)
        if self._approximate is not None:
            self._approximate.subscribe(id, boxes, self._live + 1)
        is_cut = cut is None or bool(cut.all())
        for inner in self._active.inside(boxes) if self.retires else ():
            if not is_cut and self._active.marks_of(inner).any():
                continue
            if self._approximate is not None:
                self._approximate.hand_over(inner, id)
            self._retire(inner, NOBODY)
        self._before.setdefault(id, None)
        self._active.add(id, boxes, cut)

    def _settle(self) -> None:
        """Recompute active and passive from all entries, once enough was withdrawn ([NEG08] §4, end).

        Worth it, and then done, if the neighbour holds fewer entries after it by at least as many as it must
        be sent. All of it travels in the Delta of this update.
        """
        share, withdrawn = self.settings.rebuild, self._counts["withdrawn"]
        if share == 0 or withdrawn == 0 or withdrawn < share * len(self._active):
            return
        given = {name: value for name, value in asdict(self.settings).items() if value is not None}
        aside = NegativeSpace(self._domain, given)
        aside._put_in_all(self._by_size(self._active.entries | self._passive.entries))
        sent = sum(id not in self._active for id in aside._active.entries)
        self._counts["withdrawn"] = 0
        self._counts["rebuilds"] += 1
        if len(self._active) - len(aside._active) < max(sent, 1):
            self._tidy()
            return
        for id in self._active.entries | aside._active.entries:
            self._before.setdefault(id, self._active.entries.get(id))
        self._active, self._passive, self._links = aside._active, aside._passive, aside._links
        self._exact, self._approximate = aside._exact, aside._approximate
        self._counts["rebuilds_kept"] += 1

    def _by_size(self, entries: dict[str, Boxes]) -> Arrivals:
        return Arrivals.of(entries, self._domain.d).largest_first(self._domain)

    def _tidy(self) -> None:
        """Cut the same active entries out of a fresh cube, if that takes fewer boxes: nothing has to be sent."""
        if self._exact is not None:
            self._exact.tidy(self._active, self._live)
        if self._approximate is not None:
            fresh = self._fresh_approximate()
            for id, boxes in self._by_size(self._active.entries):
                fresh.subscribe(id, boxes, self._live)
            fresh.joined += self._approximate.joined
            if len(fresh) < len(self._approximate):
                self._approximate = fresh

    # --- questions

    def decide(self, entry: Geometry) -> Decision:
        """Say whether `entry` would be withheld: by whom, or with a point that nothing covers."""
        found = super().decide(entry)
        assert isinstance(entry, Boxes)
        if found.covered:
            by = self._coverers(entry.owned())
            return Decision(True, by, "covered by these" if by else "empty")
        witness = self._witness(entry.owned())
        if witness is None:
            return Decision(False, reason="no cover is known: part of it was never cut out of the negative space")
        return Decision(False, reason="a point of it is covered by nothing", witness=witness)

    def _coverers(self, covered: Boxes) -> tuple[str, ...]:
        """Active entries that cover boxes: one for each box, or else all that meet them."""
        rows = [self._active.containing(low, high) for low, high in covered]
        if rows and min(rows) >= 0:
            return tuple(self._active.ids(np.array(rows)))
        met = [self._active.meeting(low, high) for low, high in covered]
        return tuple(self._active.ids(np.concatenate(met))) if met else ()

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

    def fate(self, id: str) -> Fate:
        passive = self._passive.entries.get(id)
        return Fate("forwarded") if passive is None else Fate.of("covered", self._coverers(passive))

    def fates(self, ids: Sequence[str]) -> dict[str, Fate]:
        """Who covers is looked for: for some entries only. Cost: at most `SCANS_MAX` boxes looked at."""
        passive = [id for id in ids if id in self._passive]
        asked = set(passive[: min(ASKED_MAX, SCANS_MAX // max(1, len(self._active)))])
        unnamed = set(passive) - asked
        return {id: Fate("covered") if id in unnamed else self.fate(id) for id in ids}

    def stats(self) -> dict[str, int | float]:
        """Counts of entries and boxes, the bytes of all boxes, and what was done so far."""
        taken, uncut = 0, self._active.size - self._active.marked
        if self._approximate is not None:
            taken, uncut = self._approximate.taken, self._approximate.uncut(self._active.entries)
        told = super().stats()
        del told["withdrawn"]
        return told | {
            "bytes": told["bytes"] + 16 * self._domain.d * (len(self.tree) + taken),
            "negative_boxes": len(self.tree),
            "taken_boxes": taken,
            "uncut_boxes": uncut,
            "merged": self._space.joined,
        }

    def check(self) -> None:
        """Assert every invariant: what is negative and what is covered are disjoint and make the cube."""
        super().check()
        self.tree.check()
        assert not len(self._links)
        for id, boxes in self._passive.entries.items():
            found = not len(boxes) or self._judge(id, boxes, dict.fromkeys(self._counts, 0)).covered
            assert found or self._truly_covered(boxes), f"{id} is withheld and not covered"
        if self._exact is not None:
            self._exact.check(self._active)
        if self._approximate is not None:
            self._approximate.check(self._domain, self._active.entries)

    def _truly_covered(self, boxes: Boxes) -> bool:
        """Whether the active boxes leave nothing of `boxes`: beyond the cap, the space may not know."""
        left = NegativeTree(boxes)
        for low, high in boxes:
            for other_low, other_high in self._active.boxes(self._active.meeting(low, high)):
                left.subtract(other_low, other_high)
        return len(left) == 0

    # --- state

    def _own(self) -> bytes:
        cut = np.packbits(self._active.marks()).tobytes()
        space = self.tree.encode() if self._approximate is None else self._approximate.encode()
        return formats.write(FORMAT, _Own(cut, space, self._space.joined))

    def _restore_own(self, blob: bytes) -> None:
        own = formats.read("a negative space", FORMAT, blob, _Own)
        cut = np.unpackbits(np.frombuffer(own.cut, np.uint8))
        if len(own.cut) != (self._active.size + 7) // 8:
            raise formats.unreadable("a negative space", f"{len(cut)} marks of {self._active.size} boxes")
        self._active.mark(cut[: self._active.size].astype(bool))
        if self._exact is not None:
            self._exact.tree = CuttingTree.decode(own.space)
        if self._approximate is not None:
            self._approximate.restore(own.space)
        self._space.joined = own.joined
