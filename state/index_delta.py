"""What changed of a part's index from one state of the part to the next, and how an index is kept as base and deltas.

    head      stamp of what there is now, bytes of base and deltas                  (Redis, one of each per part)
    base      everything, under a stamp
    deltas    since ──> stamp   since ──> stamp   ...      each made from exactly the state that the one before made

        base a     a ──> b     b ──> c          who holds b takes the last delta, who holds nothing all three
        base d     c ──> d                      folded; who holds c still need not load the base

A *stamp* names a state of a part: it is made of everything that the part was told (`control/journal.py`), so that
whoever repeats a batch with other records makes another one. A delta is added only where the stamp that it was made
from stands at the head; everywhere else the whole is written. Who reads follows the stamps from what it holds, and
loads the base where they do not lead on. So base and deltas need not be read at one moment, nor be trusted to fit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

import msgspec
import numpy as np

from state import formats
from state.compiled_part import CompiledPart
from state.space.packing import BOXES, Packed

FORMAT = 1
FOLDED_SHARE = 2
"""Deltas are folded into a new base once they are longer than this part of it."""
FOLDED_MIN = 4096
"""Bytes of deltas that are never worth a new base."""


class IndexDelta(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What one step changed of a part's index."""

    since: bytes
    """The stamp of the index that it was made from."""
    put: CompiledPart
    """Subscriptions that are new, or other than they were; boxes that links ask for besides, and tables of ranges in
    place of those that there were; under the stamp of the index that it makes."""
    gone: list[str] = []
    """Ids of subscriptions that are here no longer."""
    links_gone: dict[str, Packed] = {}
    """By neighbour: boxes that it does not ask for any more; of equal ones, as many as stand here."""
    advertised: bool = False
    """Whether the advertisements of `put` are now all that there are; otherwise there is no change of them."""
    counts: dict[str, int] = {}
    """What there is now, in numbers, for people."""
    asked: dict[str, int] = {}
    """By neighbour of `put` and `links_gone`: how many boxes or ranges it asks for now, for people."""

    @property
    def stamp(self) -> bytes:
        """The stamp of the index that it makes."""
        return self.put.stamp


def encode_delta(delta: IndexDelta) -> bytes:
    return formats.write(FORMAT, delta)


def decode_delta(blob: bytes) -> IndexDelta:
    return formats.read("a change of an index", FORMAT, blob, IndexDelta)


def amended(part: CompiledPart, deltas: Iterable[IndexDelta]) -> CompiledPart:
    """An index after some deltas. Cost: that of the whole; who routes takes in each delta by itself (`junction.py`)."""
    for delta in deltas:
        assert part.stamp == delta.since, "a change of another index"
        entries = {entry.id: entry for entry in part.entries()}
        entries |= {entry.id: entry for entry in delta.put.entries()}
        for id in delta.gone:
            entries.pop(id, None)
        advertisements = delta.put.advertisements if delta.advertised else part.advertisements
        links = _links(part, delta)
        part = CompiledPart.of(part.d, list(entries.values()), links, advertisements, delta.stamp)
    return part


def _links(part: CompiledPart, delta: IndexDelta) -> dict[str, list[Packed]]:
    links = {neighbour: [packed] for neighbour, packed in part.links.items()}
    for neighbour in delta.put.links.keys() | delta.links_gone.keys():
        put, gone = delta.put.links.get(neighbour), delta.links_gone.get(neighbour)
        if put is not None and put.kind != BOXES:
            links[neighbour] = [put]
            continue
        held = links.get(neighbour, [])
        links[neighbour] = [*(held if gone is None else [without(one, gone) for one in held]), *([put] if put else [])]
    return {neighbour: some for neighbour, some in links.items() if any(one.size for one in some)}


def box_rows(packed: Packed) -> list[bytes]:
    """Each box as bytes."""
    lows, highs = (np.frombuffer(side, "<i8").reshape(-1, packed.d) for side in (packed.lows, packed.highs))
    both = np.concatenate([lows, highs], axis=1)
    return [row.tobytes() for row in both.view(f"V{16 * packed.d}")[:, 0]] if len(both) else []


def without(held: Packed, gone: Packed) -> Packed:
    """Boxes less some of them; of equal ones, as many go as are named."""
    left = Counter(box_rows(gone))
    keep = np.ones(len(held.lows) // (8 * held.d), bool)
    for i, row in enumerate(box_rows(held)):
        if left[row]:
            left[row] -= 1
            keep[i] = False
    lows, highs = (np.frombuffer(side, "<i8").reshape(-1, held.d)[keep].tobytes() for side in (held.lows, held.highs))
    return Packed(held.kind, held.d, lows, highs)


# ── base and deltas ─────────────────────────────────────────────────────────────────────────────────────────────────


class Head(NamedTuple):
    """What stands before the deltas of a part."""

    stamp: bytes
    base_bytes: int
    """Of the base, as deltas would tell it: packed it takes less."""
    delta_bytes: int
    """Of those that came after the base."""

    def __bytes__(self) -> bytes:
        return f"{self.base_bytes} {self.delta_bytes} {self.stamp.hex()}".encode()

    @classmethod
    def parse(cls, text: bytes) -> Head | None:
        """The head that these bytes are; None where they are none.

        >>> Head.parse(bytes(Head(b"ab", 100, 20))), Head.parse(b"?")
        (Head(stamp=b'ab', base_bytes=100, delta_bytes=20), None)
        """
        try:
            base_bytes, delta_bytes, stamp = text.decode().split(" ")
            return cls(bytes.fromhex(stamp), int(base_bytes), int(delta_bytes))
        except ValueError:
            return None

    @classmethod
    def of(cls, whole: CompiledPart, deltas: Sequence[bytes]) -> tuple[Head, Sequence[bytes]]:
        """The head of a new base, and those of the deltas that lead to it that are worth keeping beside it."""
        worth = sum(map(len, deltas)) <= max(FOLDED_MIN, whole.size // FOLDED_SHARE)
        return cls(whole.stamp, whole.size, 0), deltas if worth else ()

    def after(self, deltas: Sequence[IndexDelta], size: int, least: int = FOLDED_MIN) -> Head | None:
        """The head once these deltas of some bytes are added; None: the whole is to be written.

        Guarantee: only where the first was made from exactly what there is. `least`: another one in tests alone.
        """
        if not deltas or deltas[0].since != self.stamp or led_on(self.stamp, deltas) is None:
            return None
        longer = self.delta_bytes + size
        if longer > max(least, self.base_bytes // FOLDED_SHARE):
            return None
        return Head(deltas[-1].stamp, self.base_bytes, longer)


def led_on(stamp: bytes, deltas: Sequence[IndexDelta]) -> list[IndexDelta] | None:
    """Those of the deltas that lead on from a state; None where they do not follow each other, or do not know it."""
    if any(one.stamp != two.since for one, two in pairwise(deltas)):
        return None
    for i, delta in enumerate(deltas):
        if delta.since == stamp:
            return list(deltas[i:])
    return [] if not deltas or deltas[-1].stamp == stamp else None
