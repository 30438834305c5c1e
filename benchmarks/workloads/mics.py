"""The workloads of [MICS09] §7, and what its experiments share: timing, tables, pictures.

Subscriptions are boxes of cells of a grid of 256 intervals per dimension: the lower bound is drawn, uniformly or by
a Zipf law, and the size added (cut at the border). The paper gives no exponent; ours is 1.0 over the 256 positions.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from state.space.boxes import Boxes
from state.space.hilbert import encode
from state.space.ranges import Ranges, boxes_ranges

K = 8
SIDE = 2**K
ZIPF_EXPONENT = 1.0
LAWS = ("zipf", "uniform")


def positions(random: np.random.Generator, law: str, n: int, d: int) -> np.ndarray:
    """n points of d coordinates, each 0 ... 255 by its law."""
    if law == "uniform":
        return random.integers(0, SIDE, (n, d))
    weights = 1.0 / np.arange(1, SIDE + 1) ** ZIPF_EXPONENT
    return random.choice(SIDE, (n, d), p=weights / weights.sum())


@dataclass(frozen=True)
class Workload:
    """n subscriptions of one size."""

    law: str
    n: int
    d: int
    size: int
    seed: int = 1

    @cached_property
    def boxes(self) -> Boxes:
        lows = positions(np.random.default_rng(self.seed), self.law, self.n, self.d)
        return Boxes(lows, np.minimum(lows + self.size - 1, SIDE - 1))

    @cached_property
    def ranges(self) -> list[Ranges]:
        """The Hilbert ranges of each box."""
        return [boxes_ranges(low[None], high[None], K) for low, high in self.boxes]

    @cached_property
    def columns(self) -> tuple[np.ndarray, np.ndarray]:
        """All starts and all ends, subscription by subscription."""
        return np.concatenate([r.starts for r in self.ranges]), np.concatenate([r.ends for r in self.ranges])

    @property
    def domain(self) -> tuple[int, int]:
        return 0, 2 ** (K * self.d) - 1


def publications(law: str, n: int, d: int, seed: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """n publications as cells, and their Hilbert indices."""
    cells = positions(np.random.default_rng(seed), law, n, d)
    return cells, encode(cells, K)


def cpu(run: Callable[[], object], repeats: int = 1) -> float:
    """CPU seconds of this process for one run, the best of some."""
    best = float("inf")
    for _ in range(repeats):
        begun = time.process_time()
        run()
        best = min(best, time.process_time() - begun)
    return best
