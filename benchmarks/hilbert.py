"""Hilbert index of a batch of points: ours against the `hilbertcurve` package and against numpy.

    python -m benchmarks.hilbert

Both others run in the same process on the same points, and the indices must be equal. The package works on
Python integers, one point at a time, so it gets a part of the batch and its time is per point. The numpy
column is Skilling's transform vectorised over the batch, in chunks that stay in the cache: what one would
write without a compiler. Times are CPU time of the process, the best of several runs. The picture goes to
`benchmarks/out/hilbert.png`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
from hilbertcurve.hilbertcurve import HilbertCurve
from matplotlib import pyplot

from benchmarks.report import save
from state.space.hilbert import decode, encode

POINTS = 1_000_000
PACKAGE_POINTS = 2_000
CURVES = [(2, 8), (2, 16), (3, 8), (4, 8), (4, 15), (5, 8), (6, 10)]
TARGET = 300  # times the package in 4-D with k = 8


def numpy_skilling(points: np.ndarray, k: int, chunk: int = 16_384) -> np.ndarray:
    """Skilling's AxestoTranspose and the interleaving of bits, on columns, without branches."""
    out = np.empty(len(points), np.int64)
    columns = np.ascontiguousarray(points.T, dtype=np.int32 if k < 31 else np.int64)
    for i in range(0, len(points), chunk):
        _numpy_chunk([column[i : i + chunk].copy() for column in columns], k, out[i : i + chunk])
    return out


def _numpy_chunk(x: list[np.ndarray], k: int, out: np.ndarray) -> None:
    d = len(x)
    turn = np.zeros_like(x[0])
    for bit in range(k - 1, 0, -1):
        low = (1 << bit) - 1
        for i in range(d):
            is_set = (x[i] >> bit) & 1
            inverted = -is_set & low  # all lower bits where the bit is set
            if i:
                exchanged = (x[0] ^ x[i]) & (inverted ^ low)
                x[i] ^= exchanged
                inverted |= exchanged
            x[0] ^= inverted
    for i in range(1, d):
        x[i] ^= x[i - 1]
    for bit in range(k - 1, 0, -1):
        turn ^= -((x[d - 1] >> bit) & 1) & ((1 << bit) - 1)
    out[:] = 0
    for i in range(d):
        x[i] ^= turn
    for bit in range(k - 1, -1, -1):
        for i in range(d):
            out <<= 1
            out |= (x[i] >> bit) & 1


def best_ns(run: Callable[[], object], points: int, repeats: int) -> float:
    """CPU nanoseconds per point, the best of `repeats` runs after one to warm up."""
    run()
    times = []
    for _ in range(repeats):
        begun = time.process_time()
        run()
        times.append(time.process_time() - begun)
    return min(times) / points * 1e9


def measure(d: int, k: int) -> dict[str, float]:
    """Time all of them on one curve and assert that they agree."""
    points = np.random.default_rng(d * 100 + k).integers(0, 2**k, (POINTS, d))
    some = points[:PACKAGE_POINTS].tolist()
    package = HilbertCurve(k, d)
    indices = encode(points, k)
    assert indices[:PACKAGE_POINTS].tolist() == [package.distance_from_point(point) for point in some]
    assert (indices == numpy_skilling(points, k)).all()
    assert (decode(indices, d, k) == points).all()
    return {
        "package": best_ns(lambda: [package.distance_from_point(p) for p in some], PACKAGE_POINTS, 3),
        "numpy": best_ns(lambda: numpy_skilling(points, k), POINTS, 2),
        "encode": best_ns(lambda: encode(points, k), POINTS, 7),
        "decode": best_ns(lambda: decode(indices, d, k), POINTS, 5),
    }


def draw(rows: dict[tuple[int, int], dict[str, float]]) -> None:
    """One group of bars per curve, on a logarithmic scale."""
    figure, axes = pyplot.subplots(figsize=(8, 4))
    for place, name in enumerate(("package", "numpy", "encode")):
        heights = [row[name] for row in rows.values()]
        label = {"package": "hilbertcurve", "numpy": "numpy, vectorised", "encode": "hilcast"}[name]
        axes.bar(np.arange(len(rows)) + 0.27 * (place - 1), heights, 0.25, label=label)
    axes.set_yscale("log")
    axes.set_xticks(range(len(rows)), [f"d={d} k={k}" for d, k in rows])
    axes.set_ylabel("ns per point")
    axes.set_title(f"Hilbert index of {POINTS:,} points")
    axes.legend()
    save(figure, "hilbert")


def main() -> None:
    """Print a row per curve, then the ratio that was asked for."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    print(f"ns per point, {POINTS:,} points ({PACKAGE_POINTS:,} for the package); equal indices asserted\n")
    print(f"{'d':>2} {'k':>3} {'package':>9} {'numpy':>7} {'encode':>7} {'decode':>7}   x package  x numpy")
    rows = {}
    for d, k in CURVES:
        row = rows[d, k] = measure(d, k)
        ratios = f"{row['package'] / row['encode']:>10,.0f} {row['numpy'] / row['encode']:>8.1f}"
        print(
            f"{d:>2} {k:>3} {row['package']:>9,.0f} {row['numpy']:>7.1f} {row['encode']:>7.1f}"
            f" {row['decode']:>7.1f}  {ratios}"
        )
    ratio = rows[4, 8]["package"] / rows[4, 8]["encode"]
    print(f"\n4-D, k=8: {ratio:,.0f} times the package (asked for: {TARGET})")
    draw(rows)


if __name__ == "__main__":
    main()
