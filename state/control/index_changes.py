"""What a batch changes of the index of a part, and what the index is in numbers.

Before anything of it changes, what there was is noted, once a batch; at its end that is compared with what there is.
Cost: that of what was touched, whatever there is. Tables of ranges are joined anew where any of them changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from state.compiled_part import CompiledPart, LocalEntry, joined
from state.control.protocol import Entry
from state.index_delta import IndexDelta
from state.space.packing import RANGES, Packed, unpack

EMPTY_TABLE = Packed(RANGES, 1, b"", b"")


@dataclass
class Before:
    """What was touched, as it was; None: it was not there."""

    local: dict[str, LocalEntry | None] = field(default_factory=dict)
    received: dict[str, dict[str, Entry | None]] = field(default_factory=dict)
    """By neighbour."""


class IndexChanges:
    """Follows the entries of a part, which others change; it reads them alone."""

    def __init__(self, d: int, local: Mapping[str, LocalEntry], received: Mapping[str, Mapping[str, Entry]]) -> None:
        self._d = d
        self._local, self._received = local, received
        self._before = Before()
        self._counts: Counter[str] | None = None
        """What there is, in numbers (with >NEIGHBOUR: what it asks for); counted once somebody asks, kept up since."""

    def touch(self, ids: Iterable[str]) -> None:
        """Some subscriptions are about to change."""
        before, held = self._before.local, self._local
        before.update({id: held.get(id) for id in ids if id not in before})

    def touch_received(self, neighbour: str, ids: Iterable[str]) -> None:
        """Some of what a neighbour asked for is about to change."""
        before, held = self._before.received.setdefault(neighbour, {}), self._received.get(neighbour, {})
        before.update({id: held.get(id) for id in ids if id not in before})

    def taken(self) -> Before:
        """What was touched since this was last asked."""
        before, self._before = self._before, Before()
        if self._counts is not None:
            self._counts.subtract(_counted(entry for entry in before.local.values() if entry is not None))
            self._counts.update(_counted(self._local[id] for id in before.local if id in self._local))
            for neighbour, was in before.received.items():
                held = self._received.get(neighbour, {})
                self._counts[f">{neighbour}"] += _size(held[id] for id in was if id in held)
                self._counts[f">{neighbour}"] -= _size(entry for entry in was.values() if entry is not None)
        return before

    def delta(self, before: Before, stamps: tuple[bytes, bytes], ads: list[tuple[str, str]] | None) -> IndexDelta:
        """What changed of the index since `before`; `stamps`: of what it was, and of what it is; `ads`: if changed."""
        put, gone = self._entries(before)
        links: dict[str, list[Packed]] = {}
        links_gone: dict[str, Packed] = {}
        for neighbour, was in before.received.items():
            old, new = self._asked(neighbour, was)
            if any(one.kind == RANGES for one in (*old, *new)):
                every = [entry.geometry for entry in self._received.get(neighbour, {}).values()]
                links[neighbour] = every or [EMPTY_TABLE]
            elif old or new:
                links[neighbour] = new
                links_gone |= {neighbour: joined(old)} if old else {}
        made = CompiledPart.of(self._d, put, links, ads or [], stamps[1])
        counts = self._counted()
        shown = {"boxes": counts["boxes"] // (8 * self._d), "links": sum(map(bool, self._received.values()))}
        return IndexDelta(
            since=stamps[0],
            put=made,
            gone=gone,
            links_gone=links_gone,
            advertised=ads is not None,
            counts={name: counts[name] for name in COUNTED}
            | shown
            | ({} if ads is None else {"advertisements": len(ads)}),
            asked={n: self._asked_now(made.links.get(n), counts[f">{n}"]) for n in links},
        )

    def _asked_now(self, table: Packed | None, size: int) -> int:
        """How many boxes or ranges a link asks for."""
        return len(unpack(table)) if table is not None and table.kind == RANGES else size // (8 * self._d)

    def _entries(self, before: Before) -> tuple[list[LocalEntry], list[str]]:
        """Subscriptions that are new or another, and ids of those that went."""
        put, gone = [], []
        for id, was in before.local.items():
            now = self._local.get(id)
            if now is not None and now.geometry.size:  # the others are here for neighbours only
                if now != was:
                    put.append(now)
            elif was is not None and was.geometry.size:
                gone.append(id)
        return put, gone

    def _asked(self, neighbour: str, was: Mapping[str, Entry | None]) -> tuple[list[Packed], list[Packed]]:
        """What a neighbour asks for no longer, and what it asks for besides."""
        old, new = [], []
        held = self._received.get(neighbour, {})
        for id, entry in was.items():
            before = None if entry is None else entry.geometry
            now = held[id].geometry if id in held else None
            if before != now:
                old += [before] if before is not None and before.size else []
                new += [now] if now is not None and now.size else []
        return old, new

    def _counted(self) -> Counter[str]:
        if self._counts is None:
            self._counts = _counted(self._local.values())
            self._counts.update({f">{n}": _size(entries.values()) for n, entries in self._received.items()})
        return self._counts


COUNTED = ("subscriptions", "residual")


def _counted(entries: Iterable[LocalEntry]) -> Counter[str]:
    """How many subscriptions, bytes of their boxes' lower corners, and filters still to be asked there are."""
    some = [(len(lows), entry.residual) for entry in entries if (lows := entry.geometry.lows)]
    residual = sum([text is not None for _, text in some])
    return Counter({"subscriptions": len(some), "boxes": sum([size for size, _ in some]), "residual": residual})


def _size(entries: Iterable[Entry]) -> int:
    return sum([len(entry.geometry.lows) for entry in entries])
