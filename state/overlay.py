"""The overlay: an acyclic, connected graph of brokers.

Between two brokers of such a tree there is one path, so what is forwarded to all neighbours but the one it
came from reaches every broker exactly once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

Neighbours = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Overlay:
    """Brokers and undirected links. Invariant (`check`): a tree.

    >>> overlay = Overlay(("a", "b", "c"), (("a", "b"), ("b", "c")))
    >>> overlay.neighbours("b"), overlay.diameter()
    (('a', 'c'), 2)
    """

    brokers: tuple[str, ...]
    links: tuple[tuple[str, str], ...]

    @cached_property
    def _neighbours(self) -> Neighbours:
        return _neighbours(self.brokers, self.links)

    def neighbours(self, broker: str) -> tuple[str, ...]:
        """The brokers linked to this one, sorted."""
        return self._neighbours[broker]

    def outward(self) -> Mapping[str, str | None]:
        """Every broker, the nearest to the first one first, each with the one before it on the way from there."""
        return _reached(self.brokers[0], self._neighbours)

    def path(self, origin: str, target: str) -> tuple[str, ...]:
        """The brokers on the way from one broker to another, both included. Cost: one walk over the tree."""
        return tuple(_path(origin, target, self._neighbours))

    def diameter(self) -> int:
        """The number of links on the longest path: from the broker farthest from any, to its own farthest."""
        end = list(_reached(self.brokers[0], self._neighbours))[-1]
        other = list(_reached(end, self._neighbours))[-1]
        return len(self.path(end, other)) - 1

    def check(self) -> None:
        """Assert the invariant."""
        assert not faults(self.brokers, self.links)


def faults(brokers: tuple[str, ...], links: Iterable[tuple[str, str]]) -> list[str]:
    """Say everything that keeps brokers and links from being a tree; a cycle is named.

    >>> faults(("a", "b", "c"), [("a", "b"), ("b", "c"), ("c", "a")])
    ['cycle c - b - a - c; an overlay is acyclic']
    """
    found: list[str] = []
    good: list[tuple[str, str]] = []
    for a, b in links:
        unknown = [broker for broker in (a, b) if broker not in brokers]
        if unknown:
            found.append(f"[{a!r}, {b!r}]: {unknown[0]!r} is not in overlay.brokers")
        elif a == b:
            found.append(f"[{a!r}, {b!r}] links a broker to itself")
        elif (a, b) in good or (b, a) in good:
            found.append(f"[{a!r}, {b!r}] is given twice")
        elif path := _path(a, b, _neighbours(brokers, good)):
            found.append(f"cycle {' - '.join([*path, a])}; an overlay is acyclic")
        else:
            good.append((a, b))
    reached = _reached(brokers[0], _neighbours(brokers, good)) if brokers else {}
    apart = ", ".join(repr(broker) for broker in brokers if broker not in reached)
    if apart and not found:  # after another fault it would only say that the faulty link is missing
        found.append(f"not connected: no path from {brokers[0]!r} to {apart}")
    return found


def _neighbours(brokers: Iterable[str], links: Iterable[tuple[str, str]]) -> Neighbours:
    near: dict[str, list[str]] = {broker: [] for broker in brokers}
    for a, b in links:
        near[a].append(b)
        near[b].append(a)
    return {broker: tuple(sorted(others)) for broker, others in near.items()}


def _reached(start: str, neighbours: Neighbours) -> dict[str, str | None]:
    """Every broker that can be reached, nearest first, each with the one before it on the way."""
    before: dict[str, str | None] = {start: None}
    waiting = [start]
    for broker in waiting:
        for neighbour in neighbours[broker]:
            if neighbour not in before:
                before[neighbour] = broker
                waiting.append(neighbour)
    return before


def _path(origin: str, target: str, neighbours: Neighbours) -> list[str]:
    """The brokers from one to another, both included; empty if there is no way."""
    before = _reached(target, neighbours)
    if origin not in before:
        return []
    path: list[str] = []
    broker: str | None = origin
    while broker is not None:
        path.append(broker)
        broker = before[broker]
    return path
