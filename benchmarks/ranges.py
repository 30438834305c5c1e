"""Boxes to Hilbert ranges: the walk down the curve against an enumeration of cells with numpy.

    python -m benchmarks.ranges

The enumeration lists the cells, encodes them (with our own compiled `encode`, the fastest there is here),
sorts and splits: idiomatic and vectorised. Both run on the same random boxes in one process and must give
equal ranges. The column `paper` is [MICS09] table 1 (2 GHz Core 2 Duo), k = 8 as there; `eq. 3` its
expected number of ranges. The second table shortens lists to a cap: how many cells are covered per cell of
the box, by closing the smallest gaps of the exact list and by the walk within a budget, which does not need
that list. Times are CPU time of the process. The picture goes to `benchmarks/out/ranges.png`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
from matplotlib import pyplot

from benchmarks.peers.range_counts import box_ranges, expected_ranges, over_coverage
from benchmarks.report import save
from state.space.hilbert import curve, encode
from state.space.ranges import (
    EFFORT_MIN,
    EFFORT_PER_RANGE,
    Ranges,
    _cover_all,
    _joined,
    capped,
)

K = 8
BOXES = {2: 200, 3: 100, 4: 40}
SIDES = (2, 4, 8, 16, 64)
PAPER_MS = {
    2: {2: 0.1, 4: 0.1, 8: 0.3, 16: 1.0},
    3: {2: 0.1, 4: 0.3, 8: 1.9, 16: 12.8},
    4: {2: 0.1, 4: 1.1, 8: 10.2, 16: 124.1},
}
TARGETS = {16: 4, 64: 20}  # times the enumeration, in 4-D
CAPS = (16, 64, 256)

Box = tuple[np.ndarray, np.ndarray]


def enumeration(low: np.ndarray, high: np.ndarray, k: int) -> Ranges:
    """List the cells of the box, encode, sort, and split where neighbours are not consecutive."""
    cells = np.indices(high - low + 1).reshape(len(low), -1).T + low
    indices = np.sort(encode(cells, k))
    split = np.flatnonzero(np.diff(indices) != 1)
    return Ranges(indices[np.r_[0, split + 1]], indices[np.r_[split, len(indices) - 1]])


def random_boxes(d: int, side: int, count: int) -> list[Box]:
    lows = np.random.default_rng(d * 1000 + side).integers(0, 2**K - side + 1, (count, d))
    return [(low, low + side - 1) for low in lows]


def mean_ms(run: Callable[[np.ndarray, np.ndarray], object], boxes: list[Box], repeats: int = 3) -> float:
    """CPU milliseconds per box, the best of `repeats` passes after one box to warm up."""
    run(*boxes[0])
    times = []
    for _ in range(repeats):
        begun = time.process_time()
        for box in boxes:
            run(*box)
        times.append(time.process_time() - begun)
    return min(times) / len(boxes) * 1e3


def race(d: int, side: int) -> dict[str, float]:
    """Walk and enumerate the same boxes; assert equal ranges."""
    large = side**d > 10**6
    boxes = random_boxes(d, side, 4 if large else BOXES[d])
    walked = [box_ranges(*box, K) for box in boxes]
    assert all(ranges == enumeration(*box, K) for ranges, box in zip(walked, boxes, strict=True))
    return {
        "ranges": float(np.mean([len(ranges) for ranges in walked])),
        "expected": expected_ranges(*boxes[0]),
        "walk": mean_ms(lambda low, high: box_ranges(low, high, K), boxes),
        "enumeration": mean_ms(lambda low, high: enumeration(low, high, K), boxes, 1 if large else 3),
    }


def budgeted(low: np.ndarray, high: np.ndarray, cap: int) -> Ranges:
    """What `box_ranges` does where the exact list would be too long."""
    nodes = max(EFFORT_PER_RANGE * cap, EFFORT_MIN)
    return capped(_joined(*_cover_all(low[None], high[None], K, curve(len(low)).child, nodes)), cap)


def shorten(d: int, side: int, cap: int) -> tuple[float, float, float, float]:
    """Over-coverage and time of both ways to obey a cap."""
    boxes = random_boxes(d, side, 4 if side**d > 10**6 else 20)

    def covered(run: Callable[[np.ndarray, np.ndarray], Ranges]) -> float:
        return float(np.mean([over_coverage(run(*box), *(c[None] for c in box)) for box in boxes]))

    def exact(low: np.ndarray, high: np.ndarray) -> Ranges:
        return capped(box_ranges(low, high, K), cap)

    def within(low: np.ndarray, high: np.ndarray) -> Ranges:
        return budgeted(low, high, cap)

    return covered(exact), mean_ms(exact, boxes), covered(within), mean_ms(within, boxes)


def draw(rows: dict[tuple[int, int], dict[str, float]]) -> None:
    """Time over side, a colour per number of dimensions."""
    figure, axes = pyplot.subplots(figsize=(7, 4.5))
    for d in BOXES:
        colour = f"C{d - 2}"
        for name, style in (("walk", "-o"), ("enumeration", "--s")):
            times = [rows[d, side][name] for side in SIDES]
            axes.plot(SIDES, times, style, color=colour, label=f"{d}-D {name}")
        axes.plot(list(PAPER_MS[d]), list(PAPER_MS[d].values()), ":x", color=colour, label=f"{d}-D paper")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlabel("side of the box, cells of 256")
    axes.set_ylabel("ms per box")
    axes.legend(fontsize=8)
    save(figure, "ranges")


def main() -> None:
    """Print the race, the ratios that were asked for, and what a cap costs."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    print(f"ms per box, k = {K}, random places; equal ranges asserted\n")
    print(f"{'d':>2} {'side':>4} {'ranges':>9} {'eq. 3':>9} {'walk':>9} {'numpy':>10} {'ratio':>7} {'paper':>7}")
    rows = {}
    for d in BOXES:
        for side in SIDES:
            row = rows[d, side] = race(d, side)
            paper = PAPER_MS[d].get(side, "")
            print(
                f"{d:>2} {side:>4} {row['ranges']:>9,.0f} {row['expected']:>9,.0f} {row['walk']:>9.4f}"
                f" {row['enumeration']:>10.3f} {row['enumeration'] / row['walk']:>7.1f} {paper:>7}"
            )
    for side, target in TARGETS.items():
        ratio = rows[4, side]["enumeration"] / rows[4, side]["walk"]
        print(f"4-D, side {side}: {ratio:.1f} times the enumeration (asked for: {target})")
    print("\ncells covered per cell of the box, and ms, under a cap\n")
    print(f"{'d':>2} {'side':>4} {'cap':>5}   exact, then gaps     within a budget")
    for d, side in ((2, 64), (3, 16), (3, 64), (4, 16), (4, 64)):
        for cap in CAPS:
            over, ms, over_within, ms_within = shorten(d, side, cap)
            print(f"{d:>2} {side:>4} {cap:>5}   {over:>6.2f} {ms:>9.3f}     {over_within:>6.2f} {ms_within:>9.3f}")
    draw(rows)


if __name__ == "__main__":
    main()
