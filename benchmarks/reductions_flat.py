"""Whether adding and removing one entry costs the same however many are held, for every reduction.

    python -m benchmarks.reductions_flat
    python -m benchmarks.reductions_flat --reductions covering hybrid --sizes 1000 10000 --budget 60
    python -m benchmarks.reductions_flat --bulk

Boxes of 3 dimensions, 2^20 values each, in four densities:

    narrow  sides up to 2 % of the domain: at 50,000 held a box meets a few others
    medium  sides up to 20 %: a point lies in 1 box where 1,000 are held, and in 50 where 50,000 are: next to nothing
            is covered at first, and nearly everything in the end
    dense   sides up to 50 %: in 15 boxes, and in 750
    wide    both ends drawn from the whole domain: most boxes meet, few contain many
    even    sides that shrink as entries grow in number: a point lies in 5 boxes, or `--depth`, whatever the size

Of the first four the same sides are held at all sizes, so the entries that one meets grow with their number, and what a
method does for each of these as well: their ratios say what a broker pays that gets more of the same. `even` holds that
still. Its ratios say what a reduction's structures cost by themselves: that is what is claimed to be flat. Each of its
sizes is a run of its own.

Entries come in steps of 1,000 until so many are held; then single ones are added and removed in turn, and timed by the
processor, mean and worst, but for the first twenty, which may still pay for the steps. Wanted: the last
size within 3 times the first. A reduction that has used up its budget is left there, "not ended". `bulk` is what the
steps of 1,000 cost an entry, up to the last size; `judged`, at each size, the judgements that one added and one removed
ask for, where a method counts them: of a ratio, what is more work and what is dearer work.

`--bulk`: instead, what an entry costs where the last size comes in one update. Beside that what is not the reduction's:
numpy's sort of the same boxes by all their ends, its sort of the Hilbert ranges that `mics` is given instead (some
hundred for an entry; of a tenth of the entries), what it takes to make those ranges, as indexed `mics` does itself, and
what to make so many ids and boxes, to go through them and to put them into another dict. Where the budget would not do,
by what a tenth of the entries took to make and to take in, it is what that tenth, or a hundredth, took, with their
number. `--budget` is for one density of one reduction, then, so that all of it ends within five minutes.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from benchmarks.report import show
from state.reductions.catalogue import create
from state.reductions.parameters import MicsSettings, forwards_ranges, range_cap
from state.reductions.reduction import Reduction
from state.space.boxes import Boxes
from state.space.event_type import Attribute, EventType
from state.space.grid import Grid
from state.space.packing import Geometry
from state.space.ranges import Ranges

SIDE = 1 << 20
D = 3
STEP = 1000
WITHIN = 3
"""How many times the first size's cost the last may be."""

REDUCTIONS: dict[str, tuple[str, dict[str, object]]] = {
    "none": ("none", {}),
    "covering": ("covering", {}),
    "merging": ("merging", {}),
    "mics": ("mics", {}),
    "mics-indexed": ("mics", {"mode": "indexed"}),
    "negative": ("negative-space", {}),
    "negative-k": ("negative-space", {"mode": "approximate"}),
    "probabilistic": ("probabilistic", {}),
    "hybrid": ("hybrid", {}),
}

DENSITIES = {"narrow": 0.02, "medium": 0.2, "dense": 0.5, "wide": None, "even": None}
DEPTH = 5
"""Boxes that hold a point where they lie evenly. Of 20, 1,000 boxes are wider than a quarter of the domain, and most of
them lie at its faces: that is a density of its own."""
FIRST = 20
"""Single changes that are not counted."""


@dataclass
class Cost:
    """What was measured at one size, in microseconds of the processor."""

    insert: float
    insert_worst: float
    remove: float
    remove_worst: float
    bulk: float
    judged: float | None
    """Judgements that one added and one removed took, where the method counts them."""


def drawn(density: str, count: int, seed: int, held: int, depth: float = DEPTH) -> Boxes:
    """Boxes of one density, of which so many are held at a time."""
    generator = np.random.default_rng(seed)
    share = DENSITIES[density]
    if density == "even":
        return _evenly(generator, count, depth / held)
    if share is None:
        ends = np.sort(generator.integers(0, SIDE, (count, D, 2)), axis=2)
        return Boxes(np.ascontiguousarray(ends[:, :, 0]), np.ascontiguousarray(ends[:, :, 1]))
    sides = generator.integers(1, int(share * SIDE), (count, D))
    lows = (generator.random((count, D)) * (SIDE - sides)).astype(np.int64)
    return Boxes(lows, lows + sides - 1)


def _evenly(generator: np.random.Generator, count: int, share: float) -> Boxes:
    """Boxes that hold such a share of all points each, on average, cut off at the domain's faces wherever they meet it:
    so a point at a face is in no fewer than others.

    A side u of such a box, as a share of the domain, holds a point with probability u / (1 + u); of sides up to `most`
    that is 1 - ln(1 + most) / most on average.
    """
    wanted, least, most = share ** (1 / D), 0.0, 100.0
    while most - least > 1e-9:
        middle = (least + most) / 2
        least, most = (middle, most) if 1 - math.log1p(middle) / middle < wanted else (least, middle)
    sides = generator.integers(1, int(most * SIDE), (count, D))
    lows = (generator.random((count, D)) * (SIDE + sides - 1)).astype(np.int64) - sides + 1
    return Boxes(np.maximum(lows, 0), np.minimum(lows + sides, SIDE) - 1)


class Run:
    """One reduction under one density, growing."""

    def __init__(
        self, name: str, density: str, sizes: list[int], singles: int, seed: int, depth: float = DEPTH
    ) -> None:
        reduction, parameters = REDUCTIONS[name]
        attributes = tuple(Attribute(n, "int", min=0, max=SIDE - 1) for n in "xyz")
        type = EventType("flat", attributes, reduction=reduction, parameters=parameters, bits=8, cubes=1)
        self.grid, self.cap = Grid.of(type), range_cap(type)
        self.ranged = forwards_ranges(type)
        domain: Geometry = Boxes.of([([0] * D, [SIDE - 1] * D)])
        if self.ranged:
            domain = Ranges(np.array([0]), np.array([2**self.grid.index_bits - 1]))
        self.reduction: Reduction = create(type, domain)
        self.sizes, self.singles = sizes, singles
        self.boxes = drawn(density, max(sizes) + (singles + FIRST) * len(sizes), seed, max(sizes), depth)
        self.random = random.Random(seed)
        self.next = 0
        self.live: list[str] = []
        self.bulk_s = 0.0

    def entry(self, i: int) -> Geometry:
        box = self.boxes.take(slice(i, i + 1))  # type: ignore[arg-type]
        return self.grid.ranges(box, self.cap) if self.ranged else box

    def fresh(self, count: int) -> dict[str, Geometry]:
        numbers = range(self.next, self.next + count)
        self.next += count
        self.live += [f"b/{i}" for i in numbers]
        return {f"b/{i}": self.entry(i) for i in numbers}

    def measured(self, deadline: float) -> list[Cost | None]:
        """The cost at each size; None where the budget ended before."""
        found: list[Cost | None] = []
        for size in self.sizes:
            while len(self.live) < size and time.process_time() < deadline:
                news = self.fresh(min(STEP, size - len(self.live)))
                self.bulk_s += _timed(lambda: self.reduction.update(news))  # noqa: B023  runs now
            reached = len(self.live) >= size
            found.append(self.at_this_size(size, deadline) if reached else None)
        return found

    def at_this_size(self, size: int, deadline: float) -> Cost | None:
        bulk = 1e6 * self.bulk_s / size
        inserts, removals, before = [], [], self.judged()
        for _ in range(FIRST + self.singles):
            news = self.fresh(1)
            inserts.append(_timed(lambda: self.reduction.update(news)))  # noqa: B023  runs now
            i = self.random.randrange(len(self.live))
            self.live[i], self.live[-1] = self.live[-1], self.live[i]
            gone = [self.live.pop()]
            removals.append(_timed(lambda: self.reduction.update({}, gone)))  # noqa: B023
            if time.process_time() > deadline and len(inserts) > FIRST + 10:
                break
        insert, remove = 1e6 * np.array(inserts[FIRST:]), 1e6 * np.array(removals[FIRST:])
        judged = None if before is None else ((self.judged() or 0) - before) / len(inserts)
        return Cost(float(insert.mean()), float(insert.max()), float(remove.mean()), float(remove.max()), bulk, judged)

    def judged(self) -> float | None:
        """Judgements so far, of the methods that tell which step decided."""
        counts = [count for name, count in self.reduction.stats().items() if name.startswith("decided_")]
        return sum(counts) if counts else None


def _timed(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def in_bulk(name: str, density: str, size: int, budget: float, seed: int) -> str:
    """Microseconds an entry of one update of so many, or of a tenth or a hundredth."""
    for count in (size // 100, size // 10, size):
        begun = time.process_time()
        run = Run(name, density, [count], 0, seed)
        news = run.fresh(count)
        spent = _timed(lambda: run.reduction.update(news))  # noqa: B023  runs now
        told(f"{name}, {density}: {count:,} in {spent:.2f} s")
        # Ranges of wide boxes take longer to make than to take in.
        if 10 * (time.process_time() - begun) > budget:
            break
    return f"{1e6 * spent / count:,.1f}{'' if count == size else f' ({count:,})'}"


def told(line: str) -> None:
    """How far it is, for who waits."""
    print(line, file=sys.stderr, flush=True)


def beside_bulk(densities: list[str], size: int, seed: int) -> list[list[str]]:
    """The same for what is no work of a reduction: a sort, and the objects that come and go."""
    rows = [["np.lexsort of all ends"], ["ids and boxes: made"], ["gone through"], ["into another dict"]]
    sorted_ranges, made = ["np.argsort of all ranges"], ["ranges that mics-indexed makes"]
    for density in densities:
        boxes = drawn(density, size, seed, size)
        columns = np.concatenate([boxes.lows, boxes.highs], axis=1).T
        run = Run("none", density, [size], 0, seed)
        news = run.fresh(size)
        works: list[Callable[[], object]] = [
            lambda: np.lexsort(columns),  # noqa: B023  all of them run now
            lambda: Run.fresh(run, size),  # noqa: B023
            lambda: sum(len(entry) for entry in news.values()),  # noqa: B023
            lambda: {id: entry for id, entry in news.items() if entry is not None},  # noqa: B023
        ]
        few = Run("mics", density, [size // 10], 0, seed).fresh(size // 10)
        starts = np.concatenate([entry.starts for entry in few.values() if isinstance(entry, Ranges)])
        spent = min(_timed(lambda: np.argsort(starts, kind="stable")) for _ in range(3))  # noqa: B023  runs now
        grid, cap, some = run.grid, MicsSettings.cap, boxes.take(np.arange(size // 10))
        made.append(f"{1e6 * _timed(lambda: grid.ranges_of_each(some, cap)) / len(some):.2f}")  # noqa: B023  runs now
        sorted_ranges.append(f"{1e6 * spent / len(few):.2f}")
        for row, work in zip(rows, works, strict=True):
            run.next = 0
            row.append(f"{min(1e6 * _timed(work) / size for _ in range(1 if row is rows[1] else 3)):.2f}")
    return [*rows, sorted_ranges, made]


def row(name: str, costs: list[Cost | None]) -> list[object]:
    cells: list[object] = [name]
    for each in ("insert", "remove"):
        values = [getattr(cost, each) if cost else None for cost in costs]
        cells += ["not ended" if value is None else value for value in values]
        last, first = values[-1], values[0]
        ratio = last / first if last is not None and first is not None else None
        cells.append("-" if ratio is None else f"{ratio:.1f} x{'' if ratio <= WITHIN else ' !'}")
    worst = [max(cost.insert_worst, cost.remove_worst) for cost in costs if cost]
    bulk = [cost.bulk for cost in costs if cost]
    judged = [f"{cost.judged:.1f}" for cost in costs if cost and cost.judged is not None]
    return [*cells, max(worst, default=0.0), bulk[-1] if bulk else "-", " / ".join(judged) or "-"]


def measured(name: str, density: str, given: argparse.Namespace) -> list[Cost | None]:
    """The cost at each size: of one run that grows, or where what is drawn depends on the size of one run for each."""
    found: list[Cost | None] = []
    for sizes in [[size] for size in given.sizes] if density == "even" else [given.sizes]:
        run = Run(name, density, sizes, given.singles, given.seed, given.depth)
        found += run.measured(time.process_time() + (given.budget or 120))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reductions_flat", description=__doc__.split("\n")[0])
    parser.add_argument("--reductions", nargs="*", choices=REDUCTIONS, default=list(REDUCTIONS))
    parser.add_argument("--densities", nargs="*", choices=DENSITIES, default=list(DENSITIES))
    parser.add_argument("--sizes", nargs="*", type=int, default=[1_000, 10_000, 50_000])
    parser.add_argument("--singles", type=int, default=500, help="entries added and removed at each size (500)")
    parser.add_argument(
        "--budget", type=float, help="seconds of the processor for a line (120), or with --bulk a cell (6)"
    )
    parser.add_argument("--depth", type=float, default=DEPTH, help="even: boxes that hold a point (5)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--bulk", action="store_true", help="what the last size costs in one update")
    given = parser.parse_args()
    for name in given.reductions:  # compiled or loaded before the clock runs
        Run(name, "dense", [2 * STEP], 20, 0).measured(time.process_time() + 60)
    if given.bulk:
        size, rest = given.sizes[-1], (given.budget or 6, given.seed)
        rows = [[n, *(in_bulk(n, density, size, *rest) for density in given.densities)] for n in given.reductions]
        rows += beside_bulk(given.densities, size, given.seed)
        show(f"{size:,} in one update: us for one entry", ("", *given.densities), rows)
        return
    sizes = [f"{size:,}" for size in given.sizes]
    head = ("", *(f"add {size}" for size in sizes), "ratio", *(f"remove {size}" for size in sizes), "ratio", "worst")
    for density in given.densities:
        rows = []
        for name in given.reductions:
            told(f"{density}: {name}")
            rows.append(row(name, measured(name, density, given)))
        show(f"{density}: us for one entry", (*head, "bulk", "judged"), rows)


if __name__ == "__main__":
    main()
