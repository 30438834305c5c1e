"""The oracle of the matchers: boxes as Python tuples, compared one by one. Imports nothing of ours."""

from __future__ import annotations


class Naive:
    """A list of (low corner, high corner, owner)."""

    def __init__(self) -> None:
        self.boxes: list[tuple[list[int], list[int], int]] = []

    def insert(self, lows: list[list[int]], highs: list[list[int]], owners: list[int]) -> None:
        self.boxes += list(zip(lows, highs, owners, strict=True))

    def remove(self, owners: list[int]) -> None:
        self.boxes = [box for box in self.boxes if box[2] not in owners]

    def owners_of(self, point: list[int]) -> list[int]:
        """Owners of the boxes that hold one point, sorted, each once."""
        return sorted({owner for low, high, owner in self.boxes if holds(low, high, point)})

    def match(self, points: list[list[int]]) -> list[tuple[int, int]]:
        return [(row, owner) for row, point in enumerate(points) for owner in self.owners_of(point)]

    def possible(self, lows: list[list[int]], highs: list[list[int]]) -> list[tuple[int, int]]:
        """Pairs (query, owner) where a box of the owner and the query share a point."""
        pairs = set()
        for row, (query_low, query_high) in enumerate(zip(lows, highs, strict=True)):
            for low, high, owner in self.boxes:
                sides = zip(low, high, query_low, query_high, strict=True)
                if all(max(a, qa) <= min(z, qz) for a, z, qa, qz in sides):
                    pairs.add((row, owner))
        return sorted(pairs)


def holds(low: list[int], high: list[int], point: list[int]) -> bool:
    return all(a <= x <= z for a, x, z in zip(low, point, high, strict=True))
