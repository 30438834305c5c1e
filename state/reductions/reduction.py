"""What every reduction owes a broker: decide which entries a neighbour must hold, without a gap.

A cube keeps one reduction per neighbour. What goes in are *entries*: everything that the broker's other interfaces
asked for, each under an id. What comes out is the `Delta` that brings the neighbour up to date: entries to
add and ids to remove. The neighbour applies a delta as one step, additions before removals.

    other interfaces ──update(added, removed)──> Reduction ──Delta──> neighbour
                                                     └── forwarded(): what the neighbour now holds

An entry's boxes, or ranges, share no point: filters give them so, and what counts hits relies on it. An entry may be
empty: a filter clipped to a cube that it does not meet.

Two families share the interface. *Box* reductions (none, covering, merging, negative-space, probabilistic, hybrid) take
and forward `Boxes`, an entry going whole under its own id, or joined with others by merging. *Range* reductions (mics)
take and forward `Ranges`, and a forwarded entry is one Hilbert range whose id is made from its ends: anonymous, as in
[MICS09].
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

import msgspec

from state.space.packing import Geometry

NAMED_MAX = 8
"""Ids that one fate names; the others are counted."""


@dataclass(frozen=True)
class Delta:
    """What a neighbour must do, as one step: add these entries, then remove those ids.

    An id that is both held and added is replaced. An id stands in `added` or in `removed`, never in both.
    """

    added: dict[str, Geometry] = field(default_factory=dict)
    removed: tuple[str, ...] = ()
    lasting: bool = field(default=False, compare=False, repr=False)
    """Whether every entry that there was before has the fate that it had; False: that is not known."""

    def __bool__(self) -> bool:
        return bool(self.added or self.removed)


@dataclass(frozen=True)
class Decision:
    """What a reduction would do with an entry now: `covered`, and why, for people (`explain`, `inspect`)."""

    covered: bool
    by: tuple[str, ...] = ()
    """Ids that cover it, where the method knows them."""
    reason: str = ""
    witness: tuple[int, ...] | None = None
    """A point that nothing covers, where the method has one."""


class Fate(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What became of an entry towards a neighbour, and under which ids the neighbour holds it.

    forwarded, nobody named     the neighbour holds it as it is, under its own id
    forwarded, by ranges        the neighbour holds just these
    covered, by ids             withheld: these, forwarded, contain it between them; none: not known which
    merged, by ids              others have a share in what the neighbour holds
    held-back                   no advertisement that came from the neighbour meets it
    """

    how: Literal["forwarded", "covered", "merged", "held-back"]
    by: tuple[str, ...] = ()
    """At most `NAMED_MAX` ids."""
    more: int = 0
    """How many more there are."""

    @classmethod
    def of(cls, how: Literal["forwarded", "covered", "merged"], ids: Sequence[str]) -> Fate:
        """The fate by these ids, of which the first are named."""
        return cls(how, tuple(ids[:NAMED_MAX]), max(0, len(ids) - NAMED_MAX))

    def carriers(self, id: str) -> tuple[str, ...]:
        """The ids under which the neighbour holds the entry `id`, as far as they are named.

        >>> Fate("forwarded").carriers("b1/s1"), Fate("covered", ("b1/s7",), 3).carriers("b1/s1")
        (('b1/s1',), ('b1/s7',))
        """
        return (id,) if self.how == "forwarded" and not self.by else self.by


@runtime_checkable
class Reduction(Protocol):
    """Entries towards one neighbour in one cube.

    Guarantee, after every update: the union of `forwarded()` contains the union of the live entries (the opt-in
    `probabilistic` aside, within its bound), and is inside it for exact reductions.
    Deterministic: the same updates in the same order give the same deltas and the same `encode()` bytes, in any
    process (so no `hash()`, no set order, no clock, no unseeded draw).
    """

    def update(self, added: Mapping[str, Geometry], removed: Iterable[str] = ()) -> Delta:
        """Apply one change as one step; an id in `added` that is live is replaced.

        Of `removed`, what is not live and what is said again is ignored, and so is what stands in `added`. Asserts,
        before anything changes, that the boxes of each entry are disjoint, or its ranges sorted and disjoint.
        """
        ...

    def decide(self, entry: Geometry) -> Decision:
        """Say what adding `entry` would mean now; changes nothing."""
        ...

    def forwarded(self) -> dict[str, Geometry]:
        """Everything the neighbour holds after the deltas so far."""
        ...

    def fate(self, id: str) -> Fate:
        """What became of a live entry."""
        ...

    def fates(self, ids: Sequence[str]) -> dict[str, Fate]:
        """What became of live entries, side by side; where it is dear to know who covers, the first are named."""
        ...

    def stats(self) -> dict[str, int | float]:
        """Figures for people: at least `entries`, `forwarded`, `withheld`, `bytes`."""
        ...

    def check(self) -> None:
        """Assert every invariant."""
        ...

    def encode(self) -> bytes:
        """Pack the whole state; the first byte is the format number."""
        ...


def add(reduction: Reduction, id: str, entry: Geometry) -> Delta:
    """Add one entry."""
    return reduction.update({id: entry})


def remove(reduction: Reduction, id: str) -> Delta:
    """Remove one entry."""
    return reduction.update({}, (id,))
