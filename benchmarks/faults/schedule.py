"""Which fault comes when: every kind once in a drawn order, then again in another."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

SEEDS = 1_000_003


def schedule(kinds: Sequence[str], faults: int, seed: int) -> Iterator[tuple[str, int]]:
    """So many faults, each with a seed of its own, which is enough to repeat it.

    >>> list(schedule(["kill-jvm", "redis-emptied"], 3, 7))
    [('redis-emptied', 7000021), ('kill-jvm', 7000022), ('kill-jvm', 7000023)]
    """
    rng = random.Random(seed)
    bag: list[str] = []
    for number in range(faults):
        if not bag:
            bag = sorted(kinds)
            rng.shuffle(bag)
        yield bag.pop(), seed * SEEDS + number
