"""Exact matching, raced: bitmaps against S-tree, packed R-tree, libspatialindex and a linear scan.

    python -m benchmarks.matchers                     everything, sizes that finish in about two minutes
    python -m benchmarks.matchers race links          some of it
    python -m benchmarks.matchers --full race         all workloads at 10^6 boxes too (needs 6 GB, some ten minutes)

Workloads, on the unit cube in ranks of 2^40: *uniform*, centres uniform, mean volume 10^-4; *zipf*, centres and events
Zipf(1.0) over 1,000 hot positions per dimension, same sides; *wide*, lower end Zipf(1.0), size uniform in the rest,
events uniform; *equality*, a point in the first dimension (ten boxes a value), 0.3 wide in the others; *some*, two
of the dimensions constrained, 0.05 wide. Times are CPU time of this process, one thread, best of some, the sorted
output included. Whatever is compared runs on the same data, and equal results are asserted: for each peer on as
many events as it is given. `rtree` is libspatialindex by its bulk interface, `linear` numpy over columns.
The picture of the race goes to `benchmarks/out/matchers.png`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
from matplotlib import pyplot
from rtree import index as rtree_index

from benchmarks.peers.linear_scan import LinearMatcher
from benchmarks.peers.packed_rtree import PackedTreeMatcher
from benchmarks.report import save, show
from state.matchers.bitmap import BitmapMatcher
from state.matchers.box_tree import TreeMatcher, search
from state.matchers.matcher import Matcher, Matches
from state.matchers.scan import united
from state.matchers.stree import STreeMatcher
from state.reductions.interval_table import CompiledTable
from state.space.boxes import Boxes
from state.space.event_type import Attribute, EventType
from state.space.grid import Grid
from state.space.ranks import ABSENT, PRESENT_MAX

UNIT = 2**40
HOT = 1000
DEFAULT = [
    ("uniform", 2, 100_000),
    ("uniform", 4, 100_000),
    ("zipf", 4, 100_000),
    ("wide", 4, 100_000),
    ("equality", 4, 100_000),
    ("some", 10, 100_000),
    ("uniform", 10, 100_000),
    ("uniform", 4, 1_000_000),
]
FULL = [
    *DEFAULT[:-1],
    ("wide", 2, 100_000),
    ("zipf", 10, 100_000),
    ("uniform", 2, 1_000_000),
    ("uniform", 4, 1_000_000),
    ("zipf", 4, 1_000_000),
    ("wide", 4, 1_000_000),
    ("uniform", 10, 1_000_000),
]
ASKED = {
    ("uniform", 4, 1_000_000): {"s-tree": 3, "packed": 3, "rtree": 50, "linear": 100},
    ("zipf", 4, 1_000_000): {"s-tree": 3, "packed": 3, "rtree": 50, "linear": 100},
    ("uniform", 10, 100_000): {"rtree": 100},
}
"""How many times faster the bitmap matcher must be."""


# --- workloads ----------------------------------------------------------------------------------------------------


def boxes_of(law: str, d: int, n: int, seed: int = 1) -> Boxes:
    """n boxes of d dimensions by one of the laws."""
    rng = np.random.default_rng(seed)
    if law == "some":
        low = rng.random((n, d))
        chosen = rng.random((n, d)).argsort(axis=1) < 2
        lows, highs = _ranks(low), _ranks(np.minimum(low + 0.05, 1))
        return Boxes(np.where(chosen, lows, ABSENT), np.where(chosen, highs, PRESENT_MAX))
    if law == "wide":
        low = (rng.choice(HOT, (n, d), p=_zipf()) + rng.random((n, d))) / HOT
        return Boxes(_ranks(low), _ranks(low + (1 - low) * rng.random((n, d))))
    if law == "equality":
        low = 0.7 * rng.random((n, d))
        high = low + 0.3
        low[:, 0] = high[:, 0] = rng.integers(0, n // 10, n) / (n // 10)
        return Boxes(_ranks(low), _ranks(high))
    centre = rng.random((n, d)) if law == "uniform" else _hot(rng, n, d)
    half = (1e-4) ** (1 / d) * rng.uniform(0.5, 1.5, (n, d)) / 2
    return Boxes(_ranks(np.clip(centre - half, 0, 1)), _ranks(np.clip(centre + half, 0, 1)))


def events_of(law: str, d: int, n_boxes: int, n: int, seed: int = 2) -> np.ndarray:
    """n events for such boxes."""
    rng = np.random.default_rng(seed)
    place = _hot(rng, n, d) if law == "zipf" else rng.random((n, d))
    if law == "equality":
        place[:, 0] = rng.integers(0, n_boxes // 10, n) / (n_boxes // 10)
    return _ranks(place)


def _ranks(values: np.ndarray) -> np.ndarray:
    return (values * UNIT).astype(np.int64)


def _zipf() -> np.ndarray:
    weights = 1.0 / np.arange(1, HOT + 1)
    return weights / weights.sum()


def _hot(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    """Places near 1,000 positions per dimension, scattered over it, some of them hot."""
    scattered = np.random.default_rng(99).permutation(HOT)
    return (scattered[rng.choice(HOT, (n, d), p=_zipf())] + rng.random((n, d))) / HOT


# --- peers --------------------------------------------------------------------------------------------------------


class RTree:
    """libspatialindex through `rtree`, bulk built and bulk asked; its ids are sorted as ours are."""

    def __init__(self, boxes: Boxes, owners: np.ndarray) -> None:
        properties = rtree_index.Property(dimension=boxes.d)
        mins, maxs = boxes.lows.astype(np.float64), boxes.highs.astype(np.float64)
        self._index = rtree_index.Index((owners, mins, maxs), properties=properties, interleaved=True)

    def match(self, points: np.ndarray) -> Matches:
        at = points.astype(np.float64)
        ids, counts = self._index.intersection_v(at, at)
        ends = np.cumsum(counts.astype(np.int64))
        return united([(ends - counts.astype(np.int64), ends, ids.astype(np.int64))])


PEERS: dict[str, tuple[Callable[[Boxes, np.ndarray], object], float]] = {
    "bitmap": (BitmapMatcher, 0.5),
    "s-tree": (STreeMatcher, 0.3),
    "packed": (PackedTreeMatcher, 0.3),
    "rtree": (RTree, 1.0),
    "linear": (LinearMatcher, 0.5),
}
"""Each with about how many seconds of events it is given."""


def cpu(run: Callable[[], object]) -> tuple[float, object]:
    """CPU seconds of this process for one run, and what it returned."""
    begun = time.process_time()
    result = run()
    return time.process_time() - begun, result


def rate(matcher: Matcher | RTree, events: np.ndarray, seconds: float) -> tuple[float, Matches, int]:
    """Events per CPU second, on as many of the events as fit the time, best of three; their matches; how many."""
    took, matches = cpu(lambda: matcher.match(events[:20]))
    n = int(min(len(events), max(20, 20 * seconds / max(took, 1e-6) / 3)))
    best = float("inf")
    for _ in range(3):
        took, matches = cpu(lambda: matcher.match(events[:n]))
        best = min(best, took)
    return n / best, matches, n  # type: ignore[return-value]


def warm() -> None:
    """Compile every kernel, so that no race pays for it."""
    boxes, events = boxes_of("uniform", 3, 500), events_of("uniform", 3, 500, 5)
    for kind in (BitmapMatcher, STreeMatcher, PackedTreeMatcher):
        matcher = kind(boxes, np.arange(500))
        matcher.match(events)
        matcher.match_any(events)
        matcher.remove(np.arange(3))


# --- races --------------------------------------------------------------------------------------------------------


def race(workloads: list[tuple[str, int, int]]) -> None:
    """Events per second of every matcher on every workload."""
    speeds: dict[str, dict[str, float]] = {}
    for law, d, n in workloads:
        # libspatialindex has no boxes without an end, and takes minutes to answer wide ones at this size.
        peers = [p for p in PEERS if p != "rtree" or not (law == "some" or (law == "wide" and n > 100_000))]
        boxes, owners, events = boxes_of(law, d, n), np.arange(n), events_of(law, d, n, 10_000)
        sorting, _ = cpu(lambda boxes=boxes: np.lexsort(np.concatenate([boxes.lows, boxes.highs], axis=1).T))
        rows, ours, base, most = [], None, 0.0, 0
        for name in peers:
            kind, seconds = PEERS[name]
            built, matcher = cpu(lambda kind=kind, boxes=boxes, owners=owners: kind(boxes, owners))
            speed, matches, given = rate(matcher, events, seconds)  # type: ignore[arg-type]
            if ours is None:
                ours, base, most = matches, speed, given
            else:
                assert_equal(ours, matches, min(most, given))
            speeds.setdefault(f"{law}, {d}-D, {n:,}", {})[name] = speed
            asked = ASKED.get((law, d, n), {}).get(name)
            verdict = "" if asked is None else f"{asked}: {'yes' if base / speed >= asked else 'NO'}"
            memory = f"{matcher.memory() / n:.0f}" if hasattr(matcher, "memory") else "-"
            visited = f"{_visited(matcher, events[:200]):.0f}" if isinstance(matcher, TreeMatcher) else ""
            ratio = f"{base / speed:.1f}" if name != "bitmap" else ""
            rows.append([name, f"{speed:,.0f}", ratio, verdict, f"{built:.2f}", memory, visited])
            del matcher
        assert ours is not None
        per_event = len(ours.ids) / most
        title = f"{law}, {d}-D, {n:,} boxes; {per_event:,.1f} matches per event; lexsort of the corners {sorting:.2f} s"
        head = ["", "events/s", "bitmap is x times", "asked", "build s", "bytes/box", "nodes/event"]
        show(title, head, rows)
        built = float(rows[0][4])
        print(f"  build of the bitmaps: {built / sorting:.1f} lexsorts (asked: under 10)", flush=True)
    draw(speeds)


def _visited(matcher: TreeMatcher, events: np.ndarray) -> float:
    """Mean number of nodes that a search looks at: the paper's measure of a packing."""
    return float(search(matcher.tree.nodes, matcher.tree.alive, events, events)[2].mean())


def draw(speeds: dict[str, dict[str, float]]) -> None:
    """One group of bars per workload, on a logarithmic scale; a peer that was left out has none."""
    figure, axes = pyplot.subplots(figsize=(10, 0.8 * len(speeds) + 1))
    for place, name in enumerate(PEERS):
        rates = [of_peer.get(name, 0.0) for of_peer in speeds.values()]
        axes.barh(np.arange(len(speeds)) + 0.16 * (place - 2), rates, 0.15, label=name)
    axes.set_yticks(range(len(speeds)), [*speeds])
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlabel("events per CPU second")
    axes.legend()
    save(figure, "matchers")


def assert_equal(ours: Matches, theirs: Matches, n: int) -> None:
    """Assert that a peer found the same for the first n events, which both were given."""
    a, b = np.searchsorted(ours.rows, n), np.searchsorted(theirs.rows, n)
    assert np.array_equal(ours.rows[:a], theirs.rows[:b])
    assert np.array_equal(ours.ids[:a], theirs.ids[:b])


def wide_outputs(n: int = 100_000) -> None:
    """Wide subscriptions: what pairs cost with many owners and with few, and what a yes or no costs."""
    boxes, events = boxes_of("wide", 4, n), events_of("wide", 4, n, 2000)
    clients = np.random.default_rng(3).integers(0, 1000, n)
    rows = []
    for owners, of in ((np.arange(n), f"{n:,} owners"), (clients, "1,000 owners"), (clients % 10, "10 owners")):
        matcher = BitmapMatcher(boxes, owners)
        speed, matches, given = rate(matcher, events, 0.5)
        rows.append([f"pairs, {of}", f"{speed:,.0f}", f"{len(matches.ids) / given:,.0f} ids"])
        assert_equal(matches, LinearMatcher(boxes, owners).match(events[:20]), 20)
    took, _ = cpu(lambda: matcher.match_any(events))
    rows.append(["any", f"{len(events) / took:,.0f}", ""])
    show(f"what is asked for: wide, 4-D, {n:,} boxes", ["output", "events/s", "per event"], rows)


def changes(n: int = 200_000) -> None:
    """Inserts, removals and resort, and what they leave of the speed."""
    boxes, events = boxes_of("uniform", 4, n), events_of("uniform", 4, n, 5000)
    extra = boxes_of("uniform", 4, n // 10, seed=5)
    matcher = BitmapMatcher(boxes, np.arange(n))
    rows = [["built", "", f"{rate(matcher, events, 0.3)[0]:,.0f}"]]
    took, _ = cpu(lambda: matcher.insert(extra, n + np.arange(len(extra))))
    rows.append(
        [f"insert of {len(extra):,} at once", f"{took / len(extra) * 1e6:.2f}", f"{rate(matcher, events, 0.3)[0]:,.0f}"]
    )
    some = boxes_of("uniform", 4, 1000, seed=6)

    def one_by_one() -> None:
        for i in range(1000):
            matcher.insert(Boxes(some.lows[i : i + 1], some.highs[i : i + 1]), np.array([2 * n + i]))

    took, _ = cpu(one_by_one)
    rows.append(["insert of 1,000 one by one", f"{took / 1000 * 1e6:.0f}", f"{rate(matcher, events, 0.3)[0]:,.0f}"])
    matcher.remove(np.array([0]))
    took, _ = cpu(lambda: matcher.remove(np.arange(1, n // 10)))
    rows.append([f"removal of {n // 10:,}", f"{took / (n // 10) * 1e6:.2f}", f"{rate(matcher, events, 0.3)[0]:,.0f}"])
    took, _ = cpu(matcher.resort)
    rows.append(["resort", f"{took / len(matcher) * 1e6:.2f}", f"{rate(matcher, events, 0.3)[0]:,.0f}"])
    show(f"changes: uniform, 4-D, {n:,} boxes", ["", "us per box", "events/s after"], rows)


def small() -> None:
    """The cost of a call: few boxes, batches of the route query's sizes."""
    rows = []
    for n in (0, 1, 10, 60, 1000):
        matcher = BitmapMatcher(boxes_of("uniform", 6, max(n, 1)), np.arange(max(n, 1)))
        if n == 0:
            matcher.remove(np.array([0]))
        cells = [f"{n:,}"]
        for batch in (1, 100, 10_000):
            events = events_of("uniform", 6, n, batch)
            repeats = max(10, 30_000 // batch)
            for ask in (matcher.match, matcher.match_any):
                took, _ = cpu(lambda ask=ask, repeats=repeats, events=events: [ask(events) for _ in range(repeats)])
                cells.append(f"{took / repeats * 1e6:,.0f}")
        rows.append(cells)
    head = ["boxes", *(f"{what} {batch:,}" for batch in (1, 100, 10_000) for what in ("match", "any"))]
    show("small sets, 6-D: microseconds for a batch of so many events", head, rows)


def links(sizes: tuple[int, ...] = (100, 3000, 30_000)) -> None:
    """What serves the links of a broker: the same bitmaps, or look-ups in Hilbert ranges ([MICS09] Algorithm 2)?

    A look-up takes much the same time whatever the boxes, a bitmap the longer the more there are.
    `docs/architecture.md` says which wins where, and what the router does.
    """
    rows = []
    for d in (2, 3, 4):
        attributes = tuple(Attribute(f"a{j}", "int", min=0, max=UNIT - 1) for j in range(d))
        grid = Grid.of(EventType("links", attributes, index=tuple(a.name for a in attributes)))
        for law in ("uniform", "wide"):
            for n in sizes:
                rows.append(_links(grid, law, d, n))
    head = ["law", "d", "boxes/link", "ranges/link", "index", "3 look-ups", "3 any", "winner"]
    head += ["too many %", "table KB", "bitmap KB", "table build", "bitmap build"]
    show(
        "three links: nanoseconds per event; a range look-up needs the index once, and lets too much through",
        head,
        rows,
    )


def _links(grid: Grid, law: str, d: int, n: int) -> list[str]:
    boxes = [boxes_of(law, d, n, seed=10 + link) for link in range(3)]
    events = events_of(law, d, n, 20_000)
    table_build, tables = cpu(lambda: [CompiledTable(grid.ranges(b)) for b in boxes])
    bitmap_build, matchers = cpu(lambda: [BitmapMatcher(b, np.arange(n)) for b in boxes])
    indices = grid.index(events)

    def best(run: Callable[[], object]) -> tuple[float, object]:
        results = [cpu(run) for _ in range(3)]
        return min(took for took, _ in results) / len(events) * 1e9, results[0][1]

    index_ns, _ = best(lambda: grid.index(events))
    lookup_ns, through = best(lambda: np.stack([t.lookup(indices) for t in tables], axis=1))  # type: ignore[attr-defined]
    any_ns, exact = best(lambda: np.stack([m.match_any(events) for m in matchers], axis=1))  # type: ignore[attr-defined]
    assert not (exact & ~through).any()  # type: ignore[operator]
    excess = 100 * float((through & ~exact).sum()) / max(1, int(through.sum()))  # type: ignore[operator, attr-defined]
    ranges = sum(len(t) for t in tables) // 3  # type: ignore[attr-defined, arg-type]
    winner = "ranges" if index_ns + lookup_ns < any_ns else "bitmap"
    table_kb = sum(t.nbytes for t in tables) / 3e3  # type: ignore[attr-defined]
    bitmap_kb = sum(m.memory() for m in matchers) / 3e3  # type: ignore[attr-defined]
    speeds = [f"{ns:,.0f}" for ns in (index_ns, lookup_ns, any_ns)]
    builds = [f"{1e3 * s / 3:,.0f} ms" for s in (table_build, bitmap_build)]
    return [
        law,
        f"{d}",
        f"{n:,}",
        f"{ranges:,}",
        *speeds,
        winner,
        f"{excess:.1f}",
        f"{table_kb:,.0f}",
        f"{bitmap_kb:,.0f}",
        *builds,
    ]


SECTIONS = {"race": None, "output": wide_outputs, "changes": changes, "small": small, "links": links}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("sections", nargs="*", choices=[[], *SECTIONS], default=[])
    parser.add_argument("--full", action="store_true", help="all workloads at 10^6 boxes, too")
    arguments = parser.parse_args()
    warm()
    for name in arguments.sections or SECTIONS:
        section = SECTIONS[name]
        if section is None:
            race(FULL if arguments.full else DEFAULT)
        else:
            section()


if __name__ == "__main__":
    main()
