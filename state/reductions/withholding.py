"""What every reduction of whole entries does: keep them active or passive, and say each change of that as one step.

An entry is *active* (forwarded, under its own id) or *passive* (withheld, because active ones cover it). A passive
one knows the *group* of active ones that covers it, where the method names them, so that a removal asks again just
what it may have uncovered ([RSPC06] §5).

    active   A  B  C        passive  p by {A, B},  q by {C}
    remove A:  p is judged again, q is not; p is promoted in the step that removes A if B alone does not cover it
    add D around C:  C is retired (corollary 2), and q is by {D} from then on
    add r by {A, B}, around C:  r is withheld, and C, which A and B cover as well, is retired

A method supplies the judge: is this entry covered, and by whom? `covering.py`, `hybrid.py`, `probabilistic.py`,
`mics_high_dimensions.py` and `negative_space.py` do.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from itertools import compress
from typing import Any, ClassVar, Self

import msgspec
import numpy as np

from state import formats
from state.arrays import Bools, Ints
from state.formats import unreadable
from state.reductions.arrivals import Arrivals, entry_boxes
from state.reductions.cover_links import CoverLinks
from state.reductions.entry_rows import EntryRows, Taken
from state.reductions.reduction import Decision, Delta, Fate
from state.space.boxes import Boxes
from state.space.packing import Geometry, PackedEntries, pack_numbers, unpack_entries, unpack_numbers

FORMAT = 7
"""6: nobody is in a group who could be left out; before that groups were larger. 7: of those that would do, others."""
MANY = 32
"""Entries that come together from which on one pass is the cheaper way."""
EMPTY = Decision(True, reason="there is nothing in it")
FORWARDED = Fate("forwarded")
COVERED = Fate("covered")

Counts = dict[str, int | float]
"""What was done since the beginning, by name: figures for people."""


class _State(msgspec.Struct, array_like=True):
    active: PackedEntries
    passive: PackedEntries
    groups: bytes
    """For each passive entry how many cover it, then their positions among the active ones."""
    counts: Counts
    own: bytes
    """The method's own."""


class Withholding(ABC):
    """Entries towards one neighbour; those that the method finds covered are withheld.

    Guarantee: each entry is active, or the judge found it covered by active ones that still are or were replaced by
    ones that cover them. Exact where the judge is never wrong about "covered".
    Cost: a judgement for each new entry, of several the larger first, and for each that a removal may have uncovered;
    one question to the tree of the active boxes for what a new active one contains. Many that come together are
    judged in compiled passes, and what Python does of it, to gather them and to tell them, is some microsecond each.
    """

    counted: ClassVar[tuple[str, ...]] = ()
    """The method's own counts."""
    many: int = MANY
    """Entries that come together from which on a method with a way to take in many takes it."""
    retires: bool = True
    """Whether an active entry that a new one contains is withdrawn."""
    names_coverers: ClassVar[bool] = False
    """Whether an entry's fate is another one only where some entry left, was replaced or retired."""

    def __init__(self, domain: Geometry) -> None:
        assert isinstance(domain, Boxes)
        assert len(domain) == 1, "the domain is one box: the cube"
        self._domain = domain
        self._active, self._passive = EntryRows(domain.d), EntryRows(domain.d)
        self._links = CoverLinks()
        """The active entries that cover a passive one, where the method names them."""
        self._active.moved, self._passive.moved = self._links.coverers_moved, self._links.heirs_moved
        self._counts: Counts = dict.fromkeys((*self.counted, "retired", "promoted"), 0)
        self._before: dict[str, Boxes | None] = {}
        """What the neighbour held, for every entry that the step under way made active or passive."""

    # --- what a method supplies

    @abstractmethod
    def _judge(self, id: str, boxes: Boxes, counts: Counts) -> Decision:
        """Whether the active entries cover an entry with boxes, and which of them do; counts what was done."""

    def _own(self) -> bytes:
        """What the method keeps besides the entries, packed."""
        return b""

    def _restore_own(self, blob: bytes) -> None:  # noqa: B027 most methods keep nothing of their own
        """Become what `_own` packed; the entries are restored already."""

    # --- changes

    def update(self, added: Mapping[str, Geometry], removed: Iterable[str] = ()) -> Delta:
        """Apply one change as one step; of what is to be judged the larger comes first."""
        self._before = {}
        leaving = [id for id in dict.fromkeys(removed) if id not in added and self._entry(id) is not None]
        active, passive = self._active.entries, self._passive.entries
        none_known = active.keys().isdisjoint(added.keys()) and passive.keys().isdisjoint(added.keys())
        known = [] if none_known else [id for id in added if id in active or id in passive]
        same = {id for id in known if self._entry(id) == added[id]}
        leaving += [id for id in known if id not in same]
        changed = {id: boxes for id, boxes in added.items() if id not in same} if same else added
        news = Arrivals.of(changed, self._domain.d)
        self._admit(news)
        again, retired = self._take_out(leaving) if leaving else {}, self._counts["retired"]
        self._put_in_all(news.and_also(again).largest_first(self._domain))
        self._counts["promoted"] += sum(id in self._active for id in again)
        if leaving:
            self._settle()
        return self._delta(self.names_coverers and not leaving and self._counts["retired"] == retired)

    def _admit(self, news: Arrivals) -> None:  # noqa: B027 most methods take what lies anywhere
        """Assert what a method asks of entries that come, before anything is changed."""

    def _entry(self, id: str) -> Boxes | None:
        boxes = self._active.entries.get(id)
        return self._passive.entries.get(id) if boxes is None else boxes

    def _take_out(self, ids: Sequence[str]) -> dict[str, Boxes]:
        """Remove entries; take out and return the passive ones whose group they were in."""
        orphans: dict[str, None] = {}
        for id in ids:
            if id in self._active:
                heirs = self._links.leave(self._active.row(id))
                self._deactivate(id)
                orphans |= dict.fromkeys(self._passive.owners(heirs))
            else:
                self._drop(id)
        return {id: self._drop(id) for id in orphans if id in self._passive}

    def _drop(self, id: str) -> Boxes:
        """A passive entry leaves, and with it its group."""
        boxes = self._passive.entries[id]
        if len(boxes):
            self._links.cut(self._passive.row(id))
        return self._passive.remove(id)

    def _settle(self) -> None:  # noqa: B027 most methods have nothing to do
        """What a method does when entries left and the others are judged, before the step is told."""

    def _put_in_all(self, entries: Arrivals) -> None:
        """Judge entries in their order; a method may have a way to judge many at once."""
        for id, boxes in entries:
            self._put_in(id, boxes)

    def _took_in(self, entries: Arrivals, taken: Taken | None) -> None:
        """Note what a pass of `EntryRows` did with entries, but for the empty ones; None: there are no others."""
        withheld = entries.sizes == 0
        if taken is None:
            self._passive.extend(entries.where(withheld))
            return
        filled, withheld = ~withheld, withheld.copy()
        withheld[filled] = taken.covered
        if taken.left:
            ends = np.zeros(len(entries), np.int64)
            ends[filled] = np.diff(taken.ends, prepend=0)
            self._took_in_for(entries, withheld, taken, np.cumsum(ends))
            return
        news = dict.fromkeys(compress(entries.ids, (~withheld).tolist()))
        # `|` keeps the place of what is known on its left, and the value of what is known on its right
        self._before = self._before | news | self._before
        begins = self._passive.extend(entries.where(withheld))
        self._links.link_all(begins[filled[withheld]], taken.members, taken.ends[taken.covered])

    def _took_in_for(self, entries: Arrivals, withheld: Bools, taken: Taken, ends: Ints) -> None:
        """The same where active ones left for new ones."""
        passive = {}
        for (id, boxes), is_withheld in zip(entries, withheld.tolist(), strict=True):
            if is_withheld:
                passive[id] = boxes
            for inner, inside, _ in taken.left.get(id, ()):
                self._before.setdefault(inner, inside)
                passive[inner] = inside
            if not is_withheld:
                self._before.setdefault(id, None)
        self._passive.extend(Arrivals.of(passive, self._domain.d))
        for id, begin, end in zip(entries.ids, [0, *ends.tolist()], ends.tolist(), strict=False):
            group = taken.members[begin:end]
            if len(group):
                self._links.link(self._passive.row(id), group)
            for inner, _, row in taken.left.get(id, ()):
                self._hand_down(row, inner, group if len(group) else np.array([self._active.row(id)]))

    def _put_in(self, id: str, boxes: Boxes) -> None:
        found = self._judge(id, boxes, self._counts) if len(boxes) else EMPTY
        if not found.covered:
            self._activate(id, boxes)
            return
        self._passive.add(id, boxes)
        if not found.by:
            return
        group = self._active.starts(found.by)
        self._links.link(self._passive.row(id), group)
        if len(group) > 1:
            # What lies inside the new entry is covered by its group too; the group itself must stay.
            for inner in self._active.inside(boxes):
                if inner not in found.by:
                    self._retire(inner, group)

    def _activate(self, id: str, boxes: Boxes) -> None:
        inside = self._active.inside(boxes) if self.retires else []
        for inner in inside:
            self._before.setdefault(inner, self._active.entries[inner])
        self._before.setdefault(id, None)
        self._active.add(id, boxes)
        for inner in inside:
            self._retire(inner, np.array([self._active.row(id)]))

    def _deactivate(self, id: str) -> Boxes:
        boxes = self._active.remove(id)
        self._before.setdefault(id, boxes)
        return boxes

    def _retire(self, id: str, group: Ints) -> None:
        """An active entry becomes passive; active ones that begin at `group` stand for it."""
        self._passive.add(id, self._active.entries[id])
        self._hand_down(self._active.row(id), id, group)
        self._deactivate(id)

    def _hand_down(self, row: int, id: str, group: Ints) -> None:
        """In the groups that an entry was in, active at that row, its own group stands for it from now on."""
        self._links.stand_in(row, group)
        if len(group):
            self._links.link(self._passive.row(id), group)
        self._counts["retired"] += 1

    def _group(self, id: str) -> tuple[str, ...]:
        """The active entries that cover a passive one, where the method names them."""
        if not len(self._passive.entries.get(id, ())):
            return ()
        return tuple(self._active.owners(self._links.group(self._passive.row(id))))

    def _delta(self, lasting: bool = False) -> Delta:
        """The step from what the neighbour held to what is active now."""
        added: dict[str, Geometry] = {}
        removed = []
        active = self._active.entries
        if list(self._before.values()).count(None) == len(self._before):  # all new, as where many come to few
            added = {id: now for id in self._before if (now := active.get(id)) is not None}
            self._before = {}
            return Delta(added, (), lasting)
        for id, before in self._before.items():
            now = active.get(id)
            if now is None and before is not None:
                removed.append(id)
            elif now is not None and (before is None or before != now):
                added[id] = now
        self._before = {}
        return Delta(added, tuple(removed), lasting)

    # --- questions

    def decide(self, entry: Geometry) -> Decision:
        """Say what adding `entry` would mean now; changes nothing."""
        boxes = entry_boxes(entry)
        return self._judge("", boxes, dict.fromkeys(self._counts, 0)) if len(boxes) else EMPTY

    def forwarded(self) -> dict[str, Geometry]:
        return dict(self._active.entries)

    def fate(self, id: str) -> Fate:
        return FORWARDED if id in self._active.entries else Fate.of("covered", self._group(id))

    def fates(self, ids: Sequence[str]) -> dict[str, Fate]:
        active, passive = self._active.entries, self._passive.entries
        withheld = [id for id in ids if id not in active]
        # What is not known here, either, is told as what nobody is named for: a part may show it before it comes.
        linked = [id for id in withheld if id in passive and len(passive[id])]
        members, ends = self._links.groups_of(self._passive.starts(linked))
        names = self._active.owners(members)
        groups = zip(linked, [0, *ends.tolist()], ends.tolist(), strict=False)
        fates = {id: Fate.of("covered", names[begin:end]) for id, begin, end in groups}
        return {id: FORWARDED if id in active else fates.get(id, COVERED) for id in ids}

    def stats(self) -> dict[str, int | float]:
        """Figures for people: also what the method counts."""
        return {
            "entries": len(self._active) + len(self._passive),
            "forwarded": len(self._active),
            "withheld": len(self._passive),
            "bytes": 16 * self._domain.d * (self._active.size + self._passive.size) + self._links.bytes,
            **self._counts,
        }

    def check(self) -> None:
        """Assert: every entry is active, or empty, or its group is active and meets each of its boxes; links agree."""
        self._active.check()
        self._passive.check()
        assert not self._active.entries.keys() & self._passive.entries.keys()
        assert all(len(boxes) for boxes in self._active.entries.values())
        self._links.check()
        linked = 0
        for id, boxes in self._passive.entries.items():
            group = self._group(id)
            linked += len(group)
            assert all(coverer in self._active for coverer in group)
            for low, high in boxes if group else ():
                assert any(len(self._active.entries[coverer].clipped(low, high)) for coverer in group)
        assert linked == len(self._links)

    # --- state

    def encode(self) -> bytes:
        """Pack the whole state; the first byte is the format number."""
        linked = self._linked()
        members, ends = self._links.groups_of(self._passive.starts(list(self._passive.entries))[linked])
        sizes = np.zeros(len(linked), np.int64)
        sizes[linked] = np.diff(ends, prepend=0)
        # Entries lie in their order, so that of two the earlier one begins before the other.
        positions = np.searchsorted(self._active.starts(list(self._active.entries)), members)
        groups = pack_numbers(np.concatenate([sizes, positions]))
        active, passive = self._active.packed(), self._passive.packed()
        return formats.write(FORMAT, _State(active, passive, groups, self._counts, self._own()))

    def _linked(self) -> Bools:
        """Which of the passive entries may have a group: an empty one has none."""
        entries = self._passive.entries
        return np.fromiter((len(boxes.lows) > 0 for boxes in entries.values()), bool, len(entries))

    @classmethod
    def decode(cls, blob: bytes, domain: Geometry, parameters: Mapping[str, object] | None = None, **more: Any) -> Self:
        """The reduction that `encode` packed; everything else must be what it was made with."""
        made = cls(domain, parameters, **more)  # type: ignore[call-arg]
        made._restore(formats.read("a reduction", FORMAT, blob, _State))
        return made

    def _restore(self, state: _State) -> None:
        for rows, packed in ((self._active, state.active), (self._passive, state.passive)):
            rows.fill(*unpack_entries(packed, self._domain.d))
        active, linked = self._active.starts(list(self._active.entries)), self._linked()
        sizes, at = unpack_numbers(state.groups, len(linked))
        members, at = unpack_numbers(state.groups, int(sizes.sum()), at)
        wrong = at != len(state.groups) or members.max(initial=-1) >= len(active) or members.min(initial=0) < 0
        if wrong or sizes[~linked].any():
            raise unreadable("a reduction", f"groups of {len(active)} active entries")
        heirs = self._passive.starts(list(self._passive.entries))[linked]
        self._links.link_all(heirs, active[members], np.cumsum(sizes[linked]))
        # Counts that this version knows and the writer did not start at 0.
        self._counts = {name: state.counts.get(name, 0) for name in self._counts}
        self._restore_own(state.own)
