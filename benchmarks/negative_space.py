"""The experiments of [NEG08], and what was added to them, on the code that brokers run.

    python -m benchmarks.negative_space [COMMAND ...] [--zipf S] [--unit N] [--seed N] [--subscriptions N]

    example   figures 2 and 5: three subscriptions
    table1    negative boxes of the exact algorithm, under several readings of the workload
    table2    the same for the approximate one, k = 50
    bounds    propositions 2 to 4, theorems 1 and 2: beside what happens
    figure10  redundant subscriptions found: subsumption against pairwise covering, exact
    figure11  the same, approximate
    figure12  figures 12 and 13: the effect of k
    figure14  figures 14 and 15: the selection metric
    merging   boxes before and after merging (the paper's future work)
    churn     many unsubscriptions, in 2 to 5 dimensions (the paper's future work), and when to rebuild
    speed     against a numpy column scan (4-D), a scan in plain Python (3-D), and exact against approximate

Without a command all of them run. Pictures go to `benchmarks/out/negative_space_*.png`. Times are CPU times.

As "paper" stand only numbers of its text and tables; for its figures the trends that the text states are checked.
Readings of what the paper does not say: the exponent of the Zipf law for the lower ends (value v has weight
1 / (v + 1)^S; `--zipf`, 0.3 by default, which with real ends comes nearest to Table 1 of those with a law at all);
whether ends are real (`--unit` steps to one, 2^20 by default) or integers (`--unit 1`); figures 12 to 15 are in 3-D,
k = 50. Tables and figures cut boxes in the order of figure 4, without merging, retiring or a cap, one subscription
at a time. `speed` draws with S = 1.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib import pyplot as plt
from numpy.typing import NDArray

from benchmarks.report import add_seeds, claim, conclude, over_seeds, save, show, title, unmet
from state.reductions.negative_space import NegativeSpace
from state.reductions.negative_tree import NegativeTree, merged_boxes
from state.space.boxes import Boxes

SIDE = 1000
MARKS = (2000, 4000, 6000, 8000, 10000)
TABLE1 = {
    2: (181, 118, 81, 73, 66),
    3: (15983, 20154, 19667, 20756, 22230),
    4: (364740, 665000, None, None, None),
}
TABLE2 = {
    2: (367, 405, 430, 438, 443),
    3: (27928, 30221, 31755, 33071, 34079),
    4: (13455, 23414, 32148, 39969, 47064),
}
K = 50
"""The paper's k."""
TRIED = "tried: five readings of the workload (ends, exponents), cuts in order, figure 8 as corrected"
READINGS = ((0.0, 1), (0.0, 1 << 20), (0.3, 1 << 20), (0.7, 1 << 20), (1.0, 1 << 20))
AS_PAPER: dict[str, object] = {
    "cuts": "in-order",
    "merge_budget": 0,
    "retire": False,
    "rebuild": 0,
    "max_boxes": 0,
}
Ends = NDArray[np.int64]


@dataclass(frozen=True)
class Workload:
    """Subscriptions of §5: a Zipf lower end x in every dimension, a uniform size in [0, 1000 - x]."""

    zipf: float = 0.3
    unit: int = 1 << 20
    seed: int = 1

    def draw(self, d: int, n: int) -> tuple[Ends, Ends]:
        random = np.random.default_rng(self.seed)
        weights = 1.0 / np.arange(1, SIDE + 2) ** self.zipf
        low = random.choice(SIDE + 1, (n, d), p=weights / weights.sum()).astype(np.int64)
        size = np.floor(random.random((n, d)) * (SIDE - low + (self.unit == 1)) * self.unit).astype(np.int64)
        return low * self.unit, low * self.unit + size

    def cube(self, d: int) -> Boxes:
        return Boxes.of([([0] * d, [SIDE * self.unit] * d)])

    def __str__(self) -> str:
        return f"S = {self.zipf:g}, {'integer' if self.unit == 1 else 'real'} ends"


def timed(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


# --- the example, tables 1 and 2 ----------------------------------------------------------------------------


def example(options: argparse.Namespace) -> None:
    """Figures 2 and 5."""
    title("figures 2 and 5: s1, s2, and s3 that only both cover")
    tree = NegativeTree(Boxes.of([([0, 0], [1000, 1000])]), largest_first=False)
    corners = {
        "s1": ([175, 180], [510, 680]),
        "s2": ([405, 110], [840, 540]),
        "s3": ([380, 230], [720, 495]),
    }
    stated = {"s1": ("forwarded", 4), "s2": ("forwarded", 7), "s3": ("subsumed", 7)}
    _, axes = plt.subplots(1, 3, figsize=(12, 4))
    for axis, (name, (a, b)) in zip(axes, corners.items(), strict=True):
        low, high = np.array(a), np.array(b)
        answer = "subsumed" if tree.covered(low, high) else "forwarded"
        tree.subtract(low, high)
        print(f"  {name}: {answer}, {len(tree)} negative boxes   (paper: {stated[name][0]}, {stated[name][1]})")
        assert (answer, len(tree)) == stated[name]
        for c, e in tree.boxes():
            axis.add_patch(plt.Rectangle(c, *(e - c), fill=False, edgecolor="tab:red"))
        axis.add_patch(plt.Rectangle(low, *(high - low), alpha=0.4, label=name))
        axis.set(xlim=(-10, 1010), ylim=(-10, 1010), title=f"after {name}")
    save(plt.gcf(), "negative_space_example")


def counts(workload: Workload, d: int, marks: Sequence[int], k: int | None) -> list[int]:
    """The number of negative boxes at each of the marks, cut in order; k: approximate."""
    n = marks[-1]
    tree = NegativeTree(workload.cube(d), largest_first=False)
    low, high = workload.draw(d, n)
    found = []
    for i in range(n):
        if not tree.covered(low[i], high[i]):
            if k is None:
                tree.subtract(low[i], high[i])
            else:
                tree.subtract_best(low[i], high[i], k)
        if i + 1 in marks:
            found.append(len(tree))
    return found


def table(options: argparse.Namespace, name: str, paper: dict[int, tuple[int | None, ...]], k: int | None) -> None:
    readings = [Workload(zipf, unit, options.seed) for zipf, unit in READINGS]
    marks = [mark for mark in MARKS if mark <= options.subscriptions]
    if not marks:
        print(f"not below {MARKS[0]:,} subscriptions, where the paper's columns begin")
        return
    print(f"{'':24s}" + "".join(f"{mark:>10,}" for mark in marks))
    misfit = dict.fromkeys(map(str, readings), 0.0)
    cells = 0
    plt.figure(figsize=(8, 5))
    for d, stated in paper.items():
        print(
            f"{d}-D  paper" + " " * 14 + "".join(f"{'-' if c is None else f'{c:,}':>10}" for c in stated[: len(marks)])
        )
        known = [c for c in stated[: len(marks)] if c is not None]
        cells += len(known)
        for reading in readings:
            ours = counts(reading, d, marks[: len(known)], k)
            print(f"     {reading!s:19s}" + "".join(f"{c:>10,}" for c in ours))
            misfit[str(reading)] += sum(abs(math.log(c / p)) for c, p in zip(ours, known, strict=True))
            colour = f"C{readings.index(reading)}"
            plt.plot(MARKS[: len(ours)], ours, ".:", color=colour, label=str(reading) if d == 2 else None)
        plt.plot(MARKS[: len(known)], known, "ko-", linewidth=2, label="paper" if d == 2 else None)
        plt.text(MARKS[0], known[0], f"{d}-D  ", ha="right")
    best = min(misfit, key=lambda reading: misfit[reading])
    print("\nmean factor from the paper: ", end="")
    print("; ".join(f"{reading}: {math.exp(total / cells):.2f}" for reading, total in misfit.items()))
    print(f"nearest: {best}")
    plt.yscale("log")
    plt.xlabel("subscriptions")
    plt.ylabel("negative boxes")
    plt.legend(fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    save(plt.gcf(), f"negative_space_{name}")


def table1(options: argparse.Namespace) -> None:
    """Table 1; the 4-D row of the paper ends at 4,000 subscriptions, out of memory."""
    title("table 1: negative boxes, exact (cuts in order, as figure 4)")
    table(options, "table1", TABLE1, None)


def table2(options: argparse.Namespace) -> None:
    """Table 2."""
    title("table 2: negative boxes, approximate, k = 50 (figure 8 as corrected)")
    table(options, "table2", TABLE2, K)
    n = min(MARKS[0], options.subscriptions)
    pairs = {d: [counts(options.workload, d, [n], k)[0] for k in (None, K)] for d in TABLE2}
    for d, (exact, approximate) in pairs.items():
        print(f"{d}-D, {n:,} subscriptions, {options.workload}: exact {exact:,}, approximate {approximate:,}")
    claim(
        "significantly fewer boxes in 4-D: at most a fifth of those of the exact algorithm",
        5 * pairs[4][1] <= pairs[4][0],
    )
    claim("fewer than k n boxes, in 2-D to 4-D", max(boxes for _, boxes in pairs.values()) < K * n)
    here = ", ".join(f"{boxes / exact - 1:+.0%} in {d}-D" for d, (exact, boxes) in pairs.items() if d < 4)
    unmet("more boxes than the exact algorithm in 2-D (+103 %) and 3-D (+75 %)", f"here {here}; {TRIED}")
    unmet("the numbers of Table 2", TRIED)
    print("In 2-D no subscription meets boxes enough to reach k, so that figure 8 changes nothing there. The paper's")
    print(
        "excess over Table 1 in 2-D and 3-D does not come out of the algorithm it prints, under any of these readings."
    )
    print("In 4-D the paper has fewer than all of these readings; S = 1 comes nearest, which is farthest off in 3-D.")


# --- figures 10 to 15 ---------------------------------------------------------------------------------------


def contained(low: Ends, high: Ends) -> NDArray[np.bool_]:
    """For each subscription, whether a single earlier one covers it."""
    found = np.zeros(len(low), bool)
    for i in range(1, len(low)):
        inside = low[:i, 0] <= low[i, 0]
        inside &= high[:i, 0] >= high[i, 0]
        for j in range(1, low.shape[1]):
            inside &= low[:i, j] <= low[i, j]
            inside &= high[:i, j] >= high[i, j]
        found[i] = inside.any()
    return found


def run(space: NegativeSpace, low: Ends, high: Ends) -> Iterator[dict[str, int | float]]:
    """Subscribe one at a time; yield the figures at every twentieth of the way."""
    step = max(1, len(low) // 20)
    for i in range(len(low)):
        space.update({f"{i:06d}": Boxes(low[i : i + 1], high[i : i + 1])})
        if (i + 1) % step == 0:
            yield space.stats()


def redundancy(options: argparse.Namespace, name: str, parameters: dict[str, object]) -> None:
    """Withheld by subsumption and by covering, in 2, 3 and 4 dimensions."""
    n = options.subscriptions
    more, fewer_in_higher, shares, extra = True, True, [], []
    print(f"{'':6s}{'subsumption':>14s}{'covering':>12s}{'CPU s':>8s}   of {n:,}; {options.workload}")
    last = (n, n)
    for d in (2, 3, 4):
        low, high = options.workload.draw(d, n)
        space = NegativeSpace(options.workload.cube(d), parameters)
        series: list[int | float] = []
        seconds = timed(lambda: series.extend(s["withheld"] for s in run(space, low, high)))  # noqa: B023  runs now
        pairs = np.cumsum(contained(low, high))
        print(f"{d}-D   {int(series[-1]):>14,}{pairs[-1]:>12,}{seconds:>8.1f}")
        marks = [(i + 1) * (n // 20) for i in range(len(series))]
        plt.plot(marks, series, "-", label=f"{d}-D, subsumption")
        plt.plot(marks, pairs[np.array(marks) - 1], "--", label=f"{d}-D, covering")
        more &= all(a >= b for a, b in zip(series, pairs[np.array(marks) - 1], strict=True))
        more &= series[-1] > pairs[-1] or (d == 4 and n < MARKS[1])
        fewer_in_higher &= series[-1] <= last[0] and pairs[-1] <= last[1]
        last = int(series[-1]), int(pairs[-1])
        shares.append(series[-1] / n)
        extra.append(series[-1] / max(1, pairs[-1]))
    claim("subsumption always finds more than covering: never less, and more at the end (4-D: of 4,000)", more)
    claim("both find fewer in higher dimensions", fewer_in_higher)
    if n >= MARKS[0]:
        claim("substantially more in higher dimensions: a tenth more at least in 3-D and 4-D", min(extra[1:]) >= 1.1)
        here = ", ".join(f"{share - 1:.0%} in {d}-D" for d, share in zip((2, 3, 4), extra, strict=True))
        tried = f"here they are, of those that one covers, {here}; tried: this reading of the workload"
        unmet("two or more subsume more than one covers", tried)
    if n >= MARKS[-1]:
        claim("more than 95 % are subsumed in 2-D, of 10,000", shares[0] > 0.95)
    plt.xlabel("subscriptions")
    plt.ylabel("redundant ones found")
    plt.legend()
    save(plt.gcf(), f"negative_space_{name}")


def figure10(options: argparse.Namespace) -> None:
    """Figure 10; what is found does not depend on how boxes are cut, so the default, quicker cuts are used."""
    title("figure 10: redundant subscriptions found, exact")
    redundancy(options, "figure10", {"rebuild": 0, "max_boxes": 0, "retire": False})


def figure11(options: argparse.Namespace) -> None:
    """Figure 11."""
    title("figure 11: redundant subscriptions found, approximate, k = 50")
    redundancy(options, "figure11", AS_PAPER | {"mode": "approximate"})


def variants(
    options: argparse.Namespace, name: str, named: dict[str, dict[str, object]]
) -> dict[str, tuple[float, float]]:
    """Run variants of the approximate algorithm in 3-D; return what each found beyond covering, and its boxes."""
    n = options.subscriptions
    low, high = options.workload.draw(3, n)
    _, (left, right) = plt.subplots(1, 2, figsize=(11, 4))
    result = {}
    print(
        f"{'':26s}{'found beyond covering':>22s}{'negative boxes':>16s}{'CPU s':>8s}   3-D, {n:,}; {options.workload}"
    )
    for label, parameters in named.items():
        space = NegativeSpace(options.workload.cube(3), AS_PAPER | {"mode": "approximate"} | parameters)
        series: list[dict[str, int | float]] = []
        seconds = timed(lambda: series.extend(run(space, low, high)))  # noqa: B023  runs now
        found, boxes = series[-1]["covered_together"], series[-1]["negative_boxes"]
        print(f"  {label:24s}{int(found):>22,}{int(boxes):>16,}{seconds:>8.1f}")
        marks = [(i + 1) * (n // 20) for i in range(len(series))]
        left.plot(marks, [s["covered_together"] for s in series], label=label)
        right.plot(marks, [s["negative_boxes"] for s in series], label=label)
        result[label] = (found, boxes)
    left.set(xlabel="subscriptions", ylabel="found beyond covering")
    right.set(xlabel="subscriptions", ylabel="negative boxes")
    left.legend()
    save(plt.gcf(), f"negative_space_{name}")
    return result


def figure12(options: argparse.Namespace) -> None:
    """Figures 12 and 13, the dynamic threshold of §4 beside them."""
    title("figures 12 and 13: the effect of k")
    named: dict[str, dict[str, object]] = {f"k = {k}": {"k": k} for k in (10, 50, 100)}
    named |= {f"dynamic, k = {k}": {"k": k, "dynamic": True} for k in (2, 10)}
    got = variants(options, "figure12", named)
    (ten, few), (fifty, some), (hundred, many) = (got[f"k = {k}"] for k in (10, 50, 100))
    claim("more k, more found", ten < fifty <= hundred)
    claim("from 10 to 50 a considerable improvement: a tenth more at least", fifty >= 1.1 * ten)
    claim("from 50 to 100 no considerable one: less than a tenth more", hundred < 1.1 * fifty)
    claim("boxes grow with k", few < some < many)
    unmet("from 50 to 100 considerably", f"here by {many / some - 1:.0%}, after {some / few - 1:.0%} from 10 to 50")


def figure14(options: argparse.Namespace) -> None:
    """Figures 14 and 15, with the paper's k and a smaller one: at 50 few subscriptions have to choose."""
    for k in (50, 10):
        title(f"figures 14 and 15: the selection metric, k = {k}")
        labels = {"benefit / cost": "benefit-cost", "benefit": "benefit", "1 / cost": "cost"}
        got = variants(
            options, f"figure14_k{k}", {label: {"k": k, "choice": choice} for label, choice in labels.items()}
        )
        (both, fewest), (benefit, fewer), (cost, _) = got.values()
        claim(f"k = {k}: benefit / cost finds most", both >= max(benefit, cost))
        claim(f"k = {k}: and makes the fewest boxes", fewest <= min(boxes for _, boxes in got.values()))
        better = benefit >= cost and fewer <= got["1 / cost"][1]
        claim(f"k = {k}: benefit alone does better than 1 / cost, in both", better)


# --- the bounds of §3 -------------------------------------------------------------------------------------------


def bounds(options: argparse.Namespace) -> None:
    """Propositions 2 to 4 and theorems 1 and 2, computed beside what happens."""
    title("the bounds of §3: splits, pieces and boxes")
    heads = ("d", "subscriptions", "splits / boxes met, most", "new boxes / splits, most", "2d - 1", "boxes",
             "(2n + 1)^d")  # fmt: skip
    rows = []
    for d, most in ((1, 300), (2, 300), (3, 300), (4, 100)):
        n = min(most, options.subscriptions)
        low, high = options.workload.draw(d, n)
        splits, pieces, boxes, ranges = bounds_of(options.workload.cube(d), low, high)
        rows.append((d, n, splits, pieces, 2 * d - 1, boxes, float((2 * n + 1) ** d)))
        claim(f"proposition 2, {d}-D: a split makes at most 2d - 1 new boxes", pieces <= 2 * d - 1)
        claim(f"proposition 3, {d}-D: one subscription splits at most the boxes that it meets", splits <= 1)
        claim(f"proposition 4, {d}-D: n ranges cut each dimension into at most 2n + 1", max(ranges) <= 2 * n + 1)
        claim(f"theorems 1 and 2, {d}-D: at most (2n + 1)^d boxes, n of them positive", boxes <= (2 * n + 1) ** d - n)
    show("what happened, and the bounds", heads, rows)


def bounds_of(cube: Boxes, low: Ends, high: Ends) -> tuple[float, float, int, list[int]]:
    """Of boxes added one by one: most splits per box met, most new boxes per split, most boxes; ranges by dimension.

    A split is a box that was there and is there no longer, so that one which the subscription does not meet, or which
    is cut without need, shows. Proposition 3 itself (at most m splits of m boxes) could not fail.
    """
    tree = NegativeTree(cube, largest_first=False)
    splits, pieces, most = 0.0, 0.0, 1
    for a, b in zip(low, high, strict=True):
        before = tree.boxes()
        met = len(before.clipped(a, b))
        tree.subtract(a, b)
        gone = len(_rows(before) - _rows(tree.boxes()))
        splits = max(splits, gone / met if met else gone * np.inf if gone else 0.0)
        if gone:
            pieces = max(pieces, (len(tree) - len(before)) / gone)
        most = max(most, len(tree))
    ranges = []
    for j in range(cube.d):
        starts = np.unique(np.concatenate([cube.lows[:, j], low[:, j], high[:, j] + 1]))
        ranges.append(int((starts <= cube.highs[0, j]).sum()))
    return splits, pieces, most, ranges


def _rows(boxes: Boxes) -> set[bytes]:
    """Each box as bytes."""
    return {row.tobytes() for row in np.hstack([boxes.lows, boxes.highs])}


# --- beyond the paper ---------------------------------------------------------------------------------------


def merging(options: argparse.Namespace) -> None:
    """Boxes with and without merging, in both orders of cuts."""
    title("merging neighbours (future work of §7), exact")
    workload = Workload(1.0, options.workload.unit, options.seed)
    print(f"{'':26s}{'boxes':>10s}{'merged at the end':>19s}{'merged as they grow':>21s}   CPU s   {workload}")
    for d, n in ((2, 10000), (3, 10000), (4, 10000), (5, 300)):
        low, high = workload.draw(d, n)
        for cuts in ("in-order", "largest-first"):
            plain = NegativeSpace(workload.cube(d), AS_PAPER | {"cuts": cuts})
            grown = NegativeSpace(workload.cube(d), AS_PAPER | {"cuts": cuts, "merge_budget": 1})
            a = timed(lambda: list(run(plain, low, high)))  # noqa: B023  runs now
            b = timed(lambda: list(run(grown, low, high)))  # noqa: B023  runs now
            assert plain.forwarded() == grown.forwarded()
            at_end = len(merged_boxes(plain.tree.boxes(), 4 * d))
            print(
                f"  {d}-D {n:>6,}, {cuts:13s}{len(plain.tree):>10,}{at_end:>19,}{len(grown.tree):>21,}"
                f"   {a:.2f} | {b:.2f}"
            )


def churned(
    space: NegativeSpace, low: Ends, high: Ends, moves: list[tuple[int, bool]]
) -> tuple[int, int, NDArray[np.int64]]:
    """Play adds and withdrawals; messages sent, the sum of what was held, and who lives."""
    messages = held = 0
    live: dict[int, None] = {}
    for i, comes in moves:
        if comes:
            delta = space.update({f"{i:06d}": Boxes(low[i : i + 1], high[i : i + 1])})
            live[i] = None
        else:
            delta = space.update({}, [f"{i:06d}"])
            del live[i]
        messages += len(delta.added) + len(delta.removed)
        held += len(space.forwarded())
    return messages, held, np.array(sorted(live))


def moves_of(n: int, share: float, seed: int) -> list[tuple[int, bool]]:
    """n arrivals; after each, with probability `share`, one of those that live, drawn evenly, goes."""
    random = np.random.default_rng(seed)
    live: list[int] = []
    moves = []
    for i in range(n):
        live.append(i)
        moves.append((i, True))
        while live and random.random() < share:
            position = int(random.integers(len(live)))
            live[position], live[-1] = live[-1], live[position]
            moves.append((live.pop(), False))
    return moves


CHURN: dict[str, dict[str, object]] = {
    "exact, as the paper": AS_PAPER,
    "exact": {"rebuild": 0},
    "exact, rebuild 1": {"rebuild": 1},
    "approximate, as the paper": AS_PAPER | {"mode": "approximate"},
    "approximate": {"mode": "approximate", "rebuild": 0},
    "approximate, rebuild 1": {"mode": "approximate", "rebuild": 1},
    "approximate, rebuild 0.25": {"mode": "approximate", "rebuild": 0.25},
}


UNBOUNDED = {("exact, as the paper", 5), ("approximate, as the paper", 4), ("approximate, as the paper", 5)}
"""Not run: millions of boxes. Figure 9 gives back fragments that nothing joins, and later entries cut them further."""


def churn(options: argparse.Namespace) -> None:
    """A workload with many unsubscriptions; the neighbour's union is compared with the live one on sampled points."""
    title("many unsubscriptions: arrivals, each followed by a withdrawal with probability 0.45")
    workload = Workload(1.0, options.workload.unit, options.seed)
    heads = ("live", "held at end", "held on average", "messages", "rebuilds", "boxes", "CPU s")
    print(f"{'':31s}" + "".join(f"{h:>{w}s}" for h, w in zip(heads, (7, 12, 17, 10, 10, 9, 8), strict=True)))
    for d, n in ((2, 1500), (3, 1000), (4, 1000), (5, 500)):
        low, high = workload.draw(d, n)
        moves = moves_of(n, 0.45, options.seed)
        print(f"{d}-D, {n:,} arrivals, {workload}")
        for label, parameters in CHURN.items():
            if (label, d) in UNBOUNDED:
                continue
            space = NegativeSpace(workload.cube(d), parameters)
            start = time.process_time()
            messages, held, live = churned(space, low, high, moves)
            seconds = time.process_time() - start
            stats = space.stats()
            assert_nothing_lost(space, low[live], high[live], options.seed)
            print(
                f"  {label:29s}{len(live):>7,}{stats['forwarded']:>12,}{held / len(moves):>17,.1f}{messages:>10,}"
                f"{stats['rebuilds_kept']:>6,}/{stats['rebuilds']:<3,}{stats['negative_boxes']:>9,}{seconds:>8.1f}"
            )
    print(
        "\nA rebuild is worth it, and kept (kept/tried above), where the neighbour then holds fewer entries by at least"
    )
    print("as many as it is sent; `held on average` is what the neighbour matches every publication against.")


def assert_nothing_lost(space: NegativeSpace, low: Ends, high: Ends, seed: int) -> None:
    """Assert that random points of live subscriptions lie in something forwarded."""
    random = np.random.default_rng(seed)
    rows = random.integers(len(low), size=500)
    points = random.integers(low[rows], high[rows], endpoint=True)
    held = [boxes for boxes in space.forwarded().values() if isinstance(boxes, Boxes)]
    forwarded = Boxes(np.concatenate([b.lows for b in held]), np.concatenate([b.highs for b in held]))
    assert forwarded.contains(points).all(), "a point of a live subscription is not forwarded"


# --- speed --------------------------------------------------------------------------------------------------


def column_scan(cube: Boxes, low: Ends, high: Ends) -> tuple[list[bool], int]:
    """The exact algorithm on columns of numpy arrays: every box is compared with every subscription."""
    d = cube.d
    size, capacity = 1, 1 << 10
    lows, highs = np.empty((d, capacity), np.int64), np.empty((d, capacity), np.int64)
    lows[:, 0], highs[:, 0] = cube.lows[0], cube.highs[0]
    answers = []
    for a, b in zip(low, high, strict=True):
        meets = lows[0, :size] <= b[0]
        meets &= highs[0, :size] >= a[0]
        for j in range(1, d):
            meets &= lows[j, :size] <= b[j]
            meets &= highs[j, :size] >= a[j]
        hits = np.flatnonzero(meets)
        answers.append(len(hits) == 0)
        if not len(hits):
            continue
        pieces = column_pieces(lows[:, hits], highs[:, hits], a, b)
        new = pieces.shape[2]
        need = size - len(hits) + new
        if max(need, size) > capacity:
            capacity = 2 * max(need, size)
            lows, highs = (
                np.concatenate([x, np.empty((d, capacity - x.shape[1]), np.int64)], 1) for x in (lows, highs)
            )
        # Into the places of the hits first, then at the end; places left over are filled from the end.
        places = np.concatenate([hits, np.arange(size, size + max(0, new - len(hits)))])[:new]
        lows[:, places], highs[:, places] = pieces
        if new < len(hits):
            holes, keep = hits[new:], np.ones(size, bool)
            keep[holes] = False
            tail = np.flatnonzero(keep[need:]) + need
            lows[:, holes[holes < need]], highs[:, holes[holes < need]] = lows[:, tail], highs[:, tail]
        size = need
    return answers, size


def column_pieces(lows: Ends, highs: Ends, a: Ends, b: Ends) -> Ends:
    """What is left of boxes (columns) outside [a, b], dimension by dimension; shape (2, d, pieces)."""
    parts = []
    for j in range(len(a)):
        below = lows[j] < a[j]
        part = np.stack([lows[:, below], highs[:, below]])
        part[1, j] = a[j] - 1
        parts.append(part)
        lows[j] = np.maximum(lows[j], a[j])
        above = highs[j] > b[j]
        part = np.stack([lows[:, above], highs[:, above]])
        part[0, j] = b[j] + 1
        parts.append(part)
        highs[j] = np.minimum(highs[j], b[j])
    return np.concatenate(parts, axis=2)


def python_scan(cube: Boxes, low: Ends, high: Ends) -> tuple[list[bool], int]:
    """The exact algorithm in 3-D as one would write it first: a list of boxes, scanned by a comprehension."""
    boxes = [(*cube.lows[0].tolist(), *cube.highs[0].tolist())]
    answers = []
    for (a, b, c), (e, f, g) in zip(low.tolist(), high.tolist(), strict=True):
        hits = [
            i
            for i, (p, q, r, x, y, z) in enumerate(boxes)
            if p <= e and x >= a and q <= f and y >= b and r <= g and z >= c
        ]
        answers.append(not hits)
        new = [piece for i in hits for piece in python_pieces(list(boxes[i]), (a, b, c), (e, f, g))]
        for i in reversed(hits):
            boxes[i] = boxes[-1]
            boxes.pop()
        boxes += new
    return answers, len(boxes)


def python_pieces(box: list[int], low: tuple[int, ...], high: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """What is left of a box outside [low, high], dimension by dimension."""
    d = len(low)
    for j in range(d):
        if box[j] < low[j]:
            yield (*box[: d + j], low[j] - 1, *box[d + j + 1 :])
            box[j] = low[j]
        if box[d + j] > high[j]:
            yield (*box[:j], high[j] + 1, *box[j + 1 :])
            box[d + j] = high[j]


def tree_run(cube: Boxes, low: Ends, high: Ends, largest_first: bool) -> tuple[list[bool], int]:
    tree = NegativeTree(cube, largest_first)
    answers = []
    for a, b in zip(low, high, strict=True):
        covered = tree.covered(a, b)
        answers.append(covered)
        if not covered:
            tree.subtract(a, b)
    return answers, len(tree)


def race(name: str, rivals: dict[str, Callable[[], tuple[list[bool], int]]], target: float) -> None:
    """Time each; assert equal answers; print the ratio to the first."""
    first: tuple[float, list[bool]] | None = None
    for label, rival in rivals.items():
        start = time.process_time()
        answers, boxes = rival()
        seconds = time.process_time() - start
        first = first or (seconds, answers)
        assert answers == first[1], f"{label} decides otherwise"
        ratio = first[0] / seconds
        print(f"  {label:34s}{seconds:>8.2f} s{boxes:>10,} boxes{ratio:>8.1f} x")
    print(f"  {name}: asked for at least {target:g} x; equal answers: yes")


def speed(options: argparse.Namespace) -> None:
    """The races."""
    workload, n = Workload(1.0, options.workload.unit, options.seed), options.subscriptions
    title(f"speed, exact: {n:,} subscriptions, {workload}")
    tree_run(workload.cube(2), *workload.draw(2, 50), True)  # compiled or loaded before the clock runs
    for d, scan, label, target in (
        (4, column_scan, "numpy column scan", 1.5),
        (3, python_scan, "linear scan in Python", 20),
    ):
        cube, (low, high) = workload.cube(d), workload.draw(d, n)
        race(
            f"{d}-D",
            {
                label: lambda: scan(cube, low, high),  # noqa: B023  runs now
                "tree, cuts in order": lambda: tree_run(cube, low, high, False),  # noqa: B023
                "tree, largest cut first": lambda: tree_run(cube, low, high, True),  # noqa: B023
            },
            target,
        )
    title(f"speed, exact against approximate k = 50, 4-D: {n:,} updates of a reduction")
    speed_approximate(workload, n, "as the paper", AS_PAPER)
    for drawn in (workload, options.workload):
        speed_approximate(drawn, n, "as by default", {})
        speed_approximate(drawn, n, "without a limit of boxes", {"max_boxes": 0})


def speed_approximate(workload: Workload, n: int, how: str, base: dict[str, object]) -> None:
    """Exact against approximate, as reductions, one update per subscription; the better of two turns each."""
    low, high = workload.draw(4, n)
    stats: dict[str, dict[str, int | float]] = {}
    seconds = {"exact": math.inf, "approximate": math.inf}
    for mode in ("exact", "approximate") * 2:
        space = NegativeSpace(workload.cube(4), base | {"mode": mode})
        spent = timed(lambda: list(run(space, low, high)))  # noqa: B023  runs now
        seconds[mode], stats[mode] = min(seconds[mode], spent), space.stats()
    exact, approximate = stats["exact"], stats["approximate"]
    covered = exact["covered_together"]
    redundant = covered - approximate["covered_together"] - approximate["covered_by_one"]
    print(
        f"  {how}, {workload}: exact {seconds['exact']:.2f} s, {exact['negative_boxes']:,} boxes; "
        f"approximate {seconds['approximate']:.2f} s, {approximate['negative_boxes']:,} boxes: "
        f"{seconds['exact'] / seconds['approximate']:.1f} x"
        f"\n      forwarded although covered: {redundant:,} of {n:,} ({redundant / n:.1%}), "
        f"{redundant / covered:.1%} of what is covered"
    )


_ALL = (example, table1, table2, bounds, figure10, figure11, figure12, figure14, merging, churn, speed)
COMMANDS = {f.__name__: f for f in _ALL}


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.negative_space", description=__doc__.split("\n")[0])
    parser.add_argument("commands", nargs="*", metavar="COMMAND", help=", ".join(COMMANDS))
    parser.add_argument("--zipf", type=float, default=0.3)
    parser.add_argument("--unit", type=int, default=1 << 20)
    parser.add_argument("--subscriptions", type=int, default=10_000)
    add_seeds(parser)
    options = parser.parse_args(given)
    unknown = [name for name in options.commands if name not in COMMANDS]
    if unknown:
        parser.error(f"no such command: {', '.join(unknown)}")

    def run(seed: int) -> None:
        options.seed, options.workload = seed, Workload(options.zipf, options.unit, seed)
        for name in options.commands or COMMANDS:
            COMMANDS[name](options)

    over_seeds(run, options.seed, options.seeds)
    conclude(options.strict)


if __name__ == "__main__":
    main()
