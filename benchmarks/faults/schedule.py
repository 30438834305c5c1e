"""Which fault comes when: every kind once in a drawn order, then again in another; and what is judged together."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence

SEEDS = 1_000_003

Drawn = tuple[str, int]
"""A kind, and a seed of its own, which is enough to repeat it."""


def schedule(kinds: Mapping[str, int], faults: int, seed: int) -> Iterator[Drawn]:
    """So many faults of these kinds, each so often in every turn as the mapping says.

    >>> list(schedule({"kill-jvm": 1, "redis-emptied": 2}, 4, 7))
    [('redis-emptied', 7000021), ('kill-jvm', 7000022), ('redis-emptied', 7000023), ('redis-emptied', 7000024)]
    """
    rng = random.Random(seed)
    bag: list[str] = []
    for number in range(faults):
        if not bag:
            bag = sorted(kind for kind, times in kinds.items() for _ in range(times))
            rng.shuffle(bag)
        yield bag.pop(), seed * SEEDS + number


def rounds(drawn: Sequence[Drawn], together: int) -> list[list[Drawn]]:
    """The same faults, so many at a time judged together.

    >>> rounds([("a", 1), ("b", 2), ("c", 3)], 2)
    [[('a', 1), ('b', 2)], [('c', 3)]]
    """
    return [list(drawn[at : at + together]) for at in range(0, len(drawn), together)]
