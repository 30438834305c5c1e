"""The compiled index: what the route query needs of each part, packed for Redis.

    part blob (Redis, one per cube or wide key)
        local:  boxes, owner of each box, and per owner: id, client, destination, residual filter
        links:  per neighbour, all it asked for as one set of boxes or ranges
        advertisements entered here: publisher and filter
        stamp:  which state of the part this is of (`state/control/journal.py`)

Boxes of a cube are clipped to it and a point lies in exactly one cube, so joining the parts (`junction.py`) changes
no answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np

from state import formats
from state.reductions.interval_table import closed
from state.space.boxes import Boxes
from state.space.packing import BOXES, Packed, pack, unpack
from state.space.ranges import Ranges

FORMAT = 2
NOTHING = b""
"""The stamp of a part that was told nothing yet."""
IMPRECISE_RANGES_MAX = 64
"""Ranges that an imprecise event is looked up by; more would be closed gaps, a superset."""


class LocalEntry(msgspec.Struct, array_like=True, frozen=True):
    """A subscription of a client of this broker, in one cube."""

    id: str
    client: str
    destination: str
    """The topic its deliveries go to."""
    residual: str | None
    """The filter, where boxes alone cannot decide: always, or only for imprecise events."""
    geometry: Packed
    exact: bool = True
    """Whether the boxes decide for events whose values are points."""
    groups: bool = False
    """Whether its client may be served through group and broadcast topics."""
    wider: Packed | None = None
    """The geometry of its travelling form, where it was pruned (`control/travelling.py`); None: the same."""
    wording: str | None = None
    """Its travelling form in words, where boxes alone do not decide what it overlaps (`control/placement.py`)."""

    @property
    def travelling(self) -> Packed:
        """The geometry that neighbours are told: never less than what was sent."""
        return self.geometry if self.wider is None else self.wider


class CompiledPart(msgspec.Struct, kw_only=True):
    """The index of one cube or wide key."""

    d: int
    ids: list[str]
    clients: list[str]
    destinations: list[str]
    residuals: dict[int, str]
    """Filter text by owner, where boxes alone cannot decide."""
    doubtful: list[int]
    """Owners whose boxes are a superset even for points."""
    boxes: Packed
    owners: bytes
    links: dict[str, Packed]
    advertisements: list[tuple[str, str]]
    grouped: list[int] = []
    """Owners whose clients may be served through group and broadcast topics."""
    stamp: bytes = NOTHING
    """Two indexes of a part in one generation with the same stamp are the same."""

    @classmethod
    def of(
        cls,
        d: int,
        local: Sequence[LocalEntry],
        links: Mapping[str, Sequence[Packed]],
        advertisements: Iterable[tuple[str, str]],
        stamp: bytes = NOTHING,
    ) -> CompiledPart:
        counts = [len(entry.geometry.lows) // (8 * d) for entry in local]
        owners = np.repeat(np.arange(len(local)), counts)
        return cls(
            d=d,
            ids=[entry.id for entry in local],
            clients=[entry.client for entry in local],
            destinations=[entry.destination for entry in local],
            residuals={i: entry.residual for i, entry in enumerate(local) if entry.residual is not None},
            doubtful=[i for i, entry in enumerate(local) if not entry.exact],
            boxes=joined([entry.geometry for entry in local]) if local else pack(Boxes.empty(d)),
            owners=owners.astype("<i4").tobytes(),
            links={n: joined(packed) for n, packed in sorted(links.items()) if packed},
            advertisements=sorted(advertisements),
            grouped=[i for i, entry in enumerate(local) if entry.groups],
            stamp=stamp,
        )

    def entries(self) -> list[LocalEntry]:
        """The subscriptions one by one: what `of` was given, as far as routing goes by it."""
        doubtful, grouped = set(self.doubtful), set(self.grouped)
        of_box = np.frombuffer(self.owners, "<i4")
        ends = (np.searchsorted(of_box, np.arange(len(self.ids) + 1)) * self.d * 8).tolist()
        lows, highs = self.boxes.lows, self.boxes.highs
        return [
            LocalEntry(
                id, self.clients[i], self.destinations[i], self.residuals.get(i),
                Packed(BOXES, self.d, lows[a:b], highs[a:b]), i not in doubtful, i in grouped,
            )
            for i, (id, a, b) in enumerate(zip(self.ids, ends, ends[1:], strict=False))
        ]  # fmt: skip


def compile_part(part: CompiledPart) -> bytes:
    return formats.write(FORMAT, part)


def load_part(blob: bytes) -> CompiledPart:
    return formats.read("an index", FORMAT, blob, CompiledPart)


def join_ranges(ranges: list[Ranges]) -> Ranges:
    """The union of several sets of ranges, sorted and disjoint."""
    if not ranges:
        return Ranges.empty()
    return closed(np.concatenate([r.starts for r in ranges]), np.concatenate([r.ends for r in ranges]))


def overlap_ranges(a: Ranges, b: Ranges) -> bool:
    """Whether two sorted, disjoint sets of ranges have an index in common."""
    first = np.searchsorted(b.ends, a.starts)
    inside = first < len(b)
    return bool((b.starts[first[inside]] <= a.ends[inside]).any())


def joined(packed: Sequence[Packed]) -> Packed:
    """The union of some geometry, all boxes or all ranges; boxes are only put one after the other, as they are."""
    kind, d = packed[0].kind, packed[0].d
    assert all(one.kind == kind for one in packed), "a link is kept as boxes or as ranges"
    if kind == BOXES:
        return Packed(kind, d, b"".join([one.lows for one in packed]), b"".join([one.highs for one in packed]))
    return pack(join_ranges([ranges for one in packed if isinstance(ranges := unpack(one), Ranges)]))
