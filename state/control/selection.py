"""Which entries of a part the advertisements of each neighbour let through ([BADV06] §1: subscriptions go only where an
overlapping advertisement came from).

    an entry came or changed            it asks what the neighbour advertised: is there any that it overlaps?
    an advertisement came, or ended     it asks what the other interfaces ask for: which of these does it overlap?
                                        These are let through, or, where it ended, asked anew; no others are

Both are questions to a `Side` (`overlap.py`); the sides are in memory from batch to batch, their stamps in the state.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from state.control.overlap import Asked, Side, Sides, Wordings, applied, stamped
from state.space.event_type import EventType

Changes = Mapping[str, Asked | None]
"""By id: what is asked now; None: nothing any more."""
ASKED, ADVERTISED = "asked", "advertised"
"""Two sides of each interface."""


class Selection:
    """The choice of one part: in each batch `begin` with what changed, ask for each neighbour, `end`."""

    def __init__(
        self,
        key: str,
        selected: dict[str, list[str]],
        stamps: dict[str, bytes],
        sides: Sides,
        empty: Callable[[], Side],
        content: Callable[[str, str], Iterable[tuple[str, Asked]]],
    ) -> None:
        """`content(ASKED or ADVERTISED, interface)`: what a side holds, after the changes of this batch."""
        self._key = key
        self._selected = {neighbour: dict.fromkeys(ids) for neighbour, ids in selected.items()}
        self._stamps = stamps
        self._sides = sides
        self._empty = empty
        self._content = content
        self._live: dict[str, Side] = {}
        self._advertised: Mapping[str, Changes] = {}
        self._before: Mapping[str, Mapping[str, Asked]] = {}
        self._interfaces: tuple[str, ...] = ()

    def begin(
        self,
        asked: Mapping[str, Changes],
        advertised: Mapping[str, Changes],
        before: Mapping[str, Mapping[str, Asked]],
        interfaces: Iterable[str],
    ) -> None:
        """Take what a step changes, by interface; `before`: the advertisements that changed, as they were."""
        self._advertised, self._before, self._interfaces = advertised, before, tuple(interfaces)
        for kind, by_interface in ((ASKED, asked), (ADVERTISED, advertised)):
            for interface, changes in by_interface.items():
                self._change(f"{kind} {interface}", changes)

    def _change(self, name: str, changes: Changes) -> None:
        stamp = self._stamps.get(name, b"")
        side = self._sides.take((self._key, name), stamp)
        if side is not None:
            applied(side, changes.items())
            self._live[name] = side
        self._stamps[name] = stamped(stamp, changes)

    def let_through(self, neighbour: str, changes: Changes) -> tuple[dict[str, Asked], list[str]]:
        """What the reduction towards a neighbour gets, and loses, by these changes and by those of advertisements."""
        selected = self._selected.setdefault(neighbour, {})
        reached, doubtful = self._reached(neighbour)
        asked = {**changes, **{id: one for id, one in reached.items() if id not in changes}}
        added: dict[str, Asked] = {}
        removed: list[str] = []
        for id, one in asked.items():
            if self._overlaps(neighbour, one, id in changes or id in doubtful):
                if id in changes or id not in selected:
                    assert one is not None
                    added[id] = one
                selected[id] = None
            elif id in selected:
                removed.append(id)
                del selected[id]
        return added, removed

    def selected(self, neighbour: str) -> Collection[str]:
        """The ids that go to a neighbour."""
        return self._selected.get(neighbour, {})

    def packed(self) -> dict[str, list[str]]:
        """All ids that go to each neighbour, as the state keeps them."""
        return {neighbour: list(ids) for neighbour, ids in self._selected.items()}

    def _overlaps(self, neighbour: str, one: Asked | None, doubtful: bool) -> bool:
        """Whether an advertisement of a neighbour overlaps an entry; where one that came does, none has to be asked."""
        if one is None or len(one.geometry) == 0:
            return False
        return not doubtful or self._side(ADVERTISED, neighbour).first(one)

    def _reached(self, neighbour: str) -> tuple[dict[str, Asked], set[str]]:
        """What the advertisements of a neighbour that changed overlap, or did; and the ids of what they now may not."""
        now = [one for one in self._advertised.get(neighbour, {}).values() if one is not None]
        before = list(self._before.get(neighbour, {}).values())
        reached: dict[str, Asked] = {}
        doubtful: set[str] = set()
        for interface in self._interfaces if now or before else ():
            if interface == neighbour:
                continue
            side = self._side(ASKED, interface)
            if len(now) + len(before) > len(side):
                sure, rest = set[str](), set(side.asked)
            else:
                sure = set().union(*map(side.all, now))
                rest = set().union(*map(side.all, before)) - sure
            doubtful |= rest
            reached.update((id, side.asked[id]) for id in sorted(sure | rest))
        return reached, doubtful

    def _side(self, kind: str, interface: str) -> Side:
        name = f"{kind} {interface}"
        if name not in self._live:
            side = self._sides.take((self._key, name), self._stamps.get(name, b""))
            if side is None:
                side = self._empty()
                self._sides.built += 1
                applied(side, self._content(kind, interface))
            self._live[name] = side
        return self._live[name]

    def end(self) -> None:
        """Give the sides back: the next batch finds them."""
        for name, side in self._live.items():
            self._sides.keep((self._key, name), self._stamps.get(name, b""), side)
        self._live = {}
        self._advertised, self._before = {}, {}


def empty_side(event_type: EventType, wordings: Wordings, ranges: bool) -> Side:
    """A side of a part that holds nothing."""
    return Side(event_type, wordings, 1 if ranges else event_type.d)
