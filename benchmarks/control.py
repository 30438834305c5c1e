"""What each reduction saves of the control traffic, on the papers' workloads, in one simulated overlay of 7 brokers.

    python -m benchmarks.control                        all workloads, in about two minutes
    python -m benchmarks.control stock auction          some of them
    python -m benchmarks.control --full                 eight times the subscriptions
    python -m benchmarks.control --batch 1 stock        every subscription in a batch of its own
    python -m benchmarks.control --links mics           false positives link by link

Subscriptions come in batches; then a fifth of them leaves and a tenth is replaced; then events are published. All of it
goes through the real core (`tests/simulation/world.py`): homes, cubes, wide keys, one message per cube, neighbour and
batch. Counted is what one broker says to another, and every reduction is held against `none`:

    messages    records of the control topic between brokers
    entries     what they add and remove; an entry is a subscription in a cube, for projected `mics` one Hilbert range
    KB          their length, which is what ranges and boxes can be compared by
    held        entries that the brokers hold for their neighbours at the end

Deliveries must be those of flooding, by evaluating every filter on every event; `probabilistic` may lose some, and says
how many. A false positive is an event on a link beyond which nobody wants it: of mapping to cells (`mics`), of text
longer than 7 bytes and LIKE (every reduction, `none` too). Grids have the dimensions that they have by default.

    workload   subscriptions                                                      publications
    mics       [MICS09] §7: boxes of 4 cells a side, Zipf, on 256 x 256           the same law
    negative   [NEG08] §5: Zipf 0.3 lower ends, uniform sizes, 2 dimensions       uniform; the paper has none
    stream     [RSPC06] Table 8, scenario 1-2: 10 attributes, few of them asked   uniform; the paper has none
    stock      [STREE03] §5: stubs of the network are spread over the brokers     one mode
    auction    [BADV06] §6.1, classes S1 to S3                                    offers of books
    mixed      of no paper: every operator and kind, from small pools             the same pools

Left out: advertisements (`benchmarks/advertisements.py`), so the auction's subscriptions go everywhere. No paper prints
figures for an overlay of this kind; its own claims about each structure are in the benchmark of that structure.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import msgspec
import numpy as np
from matplotlib import pyplot

from benchmarks.negative_space import SIDE as NEGATIVE_SIDE
from benchmarks.negative_space import Workload as NegativeWorkload
from benchmarks.probabilistic import SIDE as STREAM_SIDE
from benchmarks.probabilistic import stream
from benchmarks.report import save, show, table
from benchmarks.workloads import mixed, stock
from benchmarks.workloads.auction import AUCTION, Auction
from benchmarks.workloads.mics import Workload as MicsWorkload
from benchmarks.workloads.mics import positions
from state.config import Config, parse
from state.control.journal import SEALED_MIN
from state.control.protocol import Change, decode
from state.filters.evaluate import compile
from state.filters.grammar import parse as parse_filter
from state.filters.printing import to_text
from state.keys import Key
from state.space.event_type import Attribute, EventType
from tests.simulation.wire import Event
from tests.simulation.world import World

OVERLAY = """
[overlay]
brokers = ["b1", "b2", "b3", "b4", "b5", "b6", "b7"]
links = [["b1", "b2"], ["b1", "b3"], ["b2", "b4"], ["b2", "b5"], ["b3", "b6"], ["b3", "b7"]]
[types.any.attributes]
x = { kind = "int" }
"""
BROKERS = tuple(f"b{i}" for i in range(1, 8))
REDUCTIONS: dict[str, tuple[str, dict[str, object]]] = {
    "none": ("none", {}),
    "covering": ("covering", {}),
    "merging": ("merging", {}),
    "merging imperfect": ("merging", {"budget": 0.1}),
    "mics projected": ("mics", {}),
    "mics imperfect": ("mics", {"merging": "imperfect", "budget": 0.1, "cap": 16}),
    "mics indexed": ("mics", {"mode": "indexed"}),
    "negative exact": ("negative-space", {}),
    "negative approximate": ("negative-space", {"mode": "approximate", "k": 10}),
    "probabilistic": ("probabilistic", {"error": 0.001}),
    "hybrid": ("hybrid", {}),
}
BITS = 5
"""Bits of a grid's dimension, but for the workload whose paper says 8: 32^3 cells."""
LOSSY = frozenset({"probabilistic"})
LEAVE, REPLACE = 0.2, 0.1
Values = Mapping[str, object]


# --- workloads ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Asked:
    """A workload: filters with the brokers they are placed at, those of later replacements, and events."""

    type: EventType
    filters: list[str]
    brokers: list[str]
    later: list[str]
    events: list[Values]

    @cached_property
    def entries(self) -> list[str]:
        """Where each event enters the overlay."""
        return [BROKERS[i] for i in np.random.default_rng(5).integers(0, len(BROKERS), len(self.events))]

    @cached_property
    def wanted(self) -> dict[str, list[int]]:
        """By filter text: the events that satisfy it."""
        found = {}
        for text in dict.fromkeys([*self.filters, *self.later]):
            holds = compile(parse_filter(text, self.type), self.type)
            found[text] = [i for i, event in enumerate(self.events) if holds(event)]
        return found


def anywhere(n: int) -> list[str]:
    return [BROKERS[i] for i in np.random.default_rng(4).integers(0, len(BROKERS), n)]


def of_boxes(type_name: str, lows: np.ndarray, highs: np.ndarray, points: np.ndarray, n: int, side: int) -> Asked:
    """Boxes and points of whole numbers 0 to `side` in every dimension, the first `n` as subscriptions."""
    names = [f"x{j}" for j in range(lows.shape[1])]
    kind = EventType(type_name, tuple(Attribute(name, "int", min=0, max=side) for name in names))

    def text(low: Sequence[int], high: Sequence[int]) -> str:
        sides = list(zip(names, low, high, strict=True))
        asked = [(name, a, b) for name, a, b in sides if a > 0 or b < side] or sides[:1]
        return " AND ".join(f"{name} BETWEEN {a} AND {b}" for name, a, b in asked)

    texts = [text(low, high) for low, high in zip(lows.tolist(), highs.tolist(), strict=True)]
    events = [dict(zip(names, point, strict=True)) for point in points.tolist()]
    return Asked(kind, texts[:n], anywhere(n), texts[n:], events)


def mics(n: int, more: int, events: int) -> Asked:
    boxes = MicsWorkload("zipf", n + more, 2, 4).boxes
    points = positions(np.random.default_rng(2), "zipf", events, 2)
    asked = of_boxes("mics", boxes.lows, boxes.highs, points, n, 255)
    return replace(asked, type=replace(asked.type, bits=8))


def negative(n: int, more: int, events: int) -> Asked:
    lows, highs = NegativeWorkload(unit=1).draw(2, n + more)
    points = np.random.default_rng(2).integers(0, NEGATIVE_SIDE + 1, (events, 2))
    return of_boxes("negative", lows, highs, points, n, NEGATIVE_SIDE)


def rspc_stream(n: int, more: int, events: int) -> Asked:
    lows, highs = stream(10, n + more, seed=1)
    points = np.random.default_rng(2).integers(0, STREAM_SIDE, (events, 10))
    return of_boxes("stream", lows, highs, points, n, STREAM_SIDE - 1)


def stock_market(n: int, more: int, events: int) -> Asked:
    network = stock.network(1)
    drawn = stock.subscriptions(network, n + more, 1)
    order = np.random.default_rng(3).permutation(n + more)
    texts = [stock.filter_text(drawn.boxes.lows[i], drawn.boxes.highs[i]) for i in order]
    stubs = network.stub[drawn.nodes[order]]
    brokers = [BROKERS[s * len(BROKERS) // (network.stub.max() + 1)] for s in stubs[:n]]
    points = stock.publications(events, 1, 1)
    return Asked(stock.STOCK, texts[:n], brokers, texts[n:], [stock.event(point) for point in points])


def auction(n: int, more: int, events: int) -> Asked:
    drawn = Auction(seed=1)
    texts = [to_text(filter) for filter in drawn.subscriptions(n + more)]
    kind = replace(AUCTION, advertisements=False)
    return Asked(kind, texts[:n], anywhere(n), texts[n:], list(drawn.publications(events)))


def every_operator(n: int, more: int, events: int) -> Asked:
    kind = EventType(
        "mixed",
        (
            Attribute("symbol", "text"),
            Attribute("price", "float", min=0, max=1000),
            Attribute("volume", "int", min=0, max=1_000_000),
            Attribute("side", "category", values=("buy", "sell", "none")),
            Attribute("halted", "boolean"),
        ),
    )
    text, event = mixed.filters(kind, 1), mixed.events(kind, 1)
    texts = [text() for _ in range(n + more)]
    return Asked(kind, texts[:n], anywhere(n), texts[n:], [event() for _ in range(events)])


WORKLOADS: dict[str, tuple[Callable[[int, int, int], Asked], int]] = {
    "mics": (mics, 500),
    "negative": (negative, 500),
    "stream": (rspc_stream, 250),
    "stock": (stock_market, 250),
    "auction": (auction, 60),
    "mixed": (every_operator, 250),
}
"""Each with the subscriptions of a quick run: the dearer its boxes are to exact negative space, the fewer."""
FULL = 8


# --- one run ------------------------------------------------------------------------------------------------


@dataclass
class Traffic:
    """What brokers said to each other in one phase."""

    messages: int = 0
    entries: int = 0
    bytes: int = 0


@dataclass
class Run:
    """One workload under one reduction."""

    coming: Traffic
    changing: Traffic
    held: int = 0
    seconds: float = 0.0
    """CPU time of the control plane, and of the index that routing uses."""
    crossed: Counter[tuple[str, str]] = field(default_factory=Counter)
    false: Counter[tuple[str, str]] = field(default_factory=Counter)
    expected: int = 0
    missing: int = 0

    @property
    def worst(self) -> str:
        """The link with the largest share of false positives."""
        shares = {link: self.false[link] / n for link, n in self.crossed.items()}
        link = max(shares, key=lambda link: (shares[link], link), default=None)
        return f"{link[0]}-{link[1]} {shares[link]:.1%}" if link is not None and shares[link] else "-"


class Eavesdropper:
    """Reads the control topic on, and keeps what each stream between two brokers has told its receiver to hold."""

    def __init__(self, world: World) -> None:
        self._records = world.log.topics[world.config.topics.control]
        self._read = 0
        self._held: dict[tuple[str, str], set[str]] = {}

    def listen(self) -> Traffic:
        """The traffic since the last time."""
        heard = Traffic()
        for record in self._records[self._read :]:
            message, target = decode(record.value or b""), Key.parse((record.key or b"").decode())
            if not isinstance(message, Change) or Key.parse(message.source).broker == target.broker:
                continue
            held = self._held.setdefault((message.source, str(target)), set())
            if message.snapshot and message.piece == 0:
                held.clear()
            held |= {entry.id for entry in message.entries}
            held -= set(message.removed)
            heard.messages += 1
            heard.entries += len(message.entries) + len(message.removed)
            heard.bytes += len(record.value or b"")
        self._read = len(self._records)
        return heard

    @property
    def held(self) -> int:
        return sum(map(len, self._held.values()))


def configured(asked: Asked, name: str) -> Config:
    reduction, parameters = REDUCTIONS[name]
    kind = replace(asked.type, reduction=reduction, parameters=parameters, bits=asked.type.bits or BITS)
    return replace(parse(OVERLAY), types={kind.name: kind})


def run(asked: Asked, name: str, batch: int) -> Run:
    """Let subscriptions come, leave and change; publish; compare with flooding."""
    world = World(configured(asked, name), sealed_min=SEALED_MIN, workers=1)
    ears, topic = Eavesdropper(world), world.config.topics.subscriptions
    now: dict[str, str] = {}
    begun = time.process_time()

    def settled(steps: Sequence[tuple[int, str | None]]) -> Traffic:
        for first in range(0, len(steps), batch):
            for i, text in steps[first : first + batch]:
                key = f"{asked.brokers[i]}/{asked.type.name}/s{i}"
                world.send(topic, key, None if text is None else {"client": f"c{i}", "filter": text})
            world.settle()
        now.update({f"s{i}": text for i, text in steps if text is not None})
        for i, text in steps:
            if text is None:
                del now[f"s{i}"]
        return ears.listen()

    coming = settled(list(enumerate(asked.filters)))
    changing = settled(list(changes(asked)))
    result = Run(coming, changing, ears.held, time.process_time() - begun)
    facts = {id: msgspec.json.decode(fact.filter) for _, _, _, id, fact in world.facts() if fact.live and fact.filter}
    assert facts == now, f"{name}: subscriptions were refused"
    judge(world, asked, name, now, result)
    return result


def changes(asked: Asked) -> Iterator[tuple[int, str | None]]:
    """Who leaves (None) and who asks for something else, in an order drawn from a seed."""
    n = len(asked.filters)
    leave, other = int(LEAVE * n), min(int(REPLACE * n), len(asked.later))
    chosen = np.random.default_rng(6).permutation(n)[: leave + other]
    steps: list[tuple[int, str | None]] = [(int(i), None) for i in chosen[:leave]]
    steps += [(int(i), text) for i, text in zip(chosen[leave:], asked.later, strict=False)]
    for at in np.random.default_rng(7).permutation(len(steps)):
        yield steps[at]


def judge(world: World, asked: Asked, name: str, now: Mapping[str, str], result: Run) -> None:
    """Publish everything: who got what, and which link carried what nobody beyond it wants."""
    overlay = world.config.overlay
    beyond = {
        (a, b): {z for z in BROKERS if z != a and overlay.path(a, z)[1] == b}
        for a in BROKERS
        for b in overlay.neighbours(a)
    }
    expected: set[tuple[str, str]] = set()
    wanting: list[set[str]] = [set() for _ in asked.events]
    for id, text in now.items():
        for i in asked.wanted[text]:
            expected.add((id, f"e{i}"))
            wanting[i].add(asked.brokers[int(id[1:])])
    events = [
        Event(f"e{i}", asked.type.name, broker, msgspec.json.encode(values))
        for i, (broker, values) in enumerate(zip(asked.entries, asked.events, strict=True))
    ]
    got: set[tuple[str, str]] = set()
    for i, outcome in enumerate(world.publish_all(events)):
        got |= {(id, f"e{i}") for delivery in outcome.deliveries for id in delivery.subscriptions}
        result.crossed.update(outcome.links)
        result.false.update(link for link in outcome.links if not wanting[i] & beyond[link])
    result.expected, result.missing = len(expected), len(expected - got)
    assert got <= expected, f"{name}: delivered what flooding does not: {sorted(got - expected)[:3]}"
    assert name in LOSSY or not result.missing, f"{name}: lost {sorted(expected - got)[:3]}"


# --- tables -------------------------------------------------------------------------------------------------


def share(value: int, of: int) -> str:
    return f"{100 * value / of:.0f} %" if of else "-"


def traffic_table(heading: str, runs: Mapping[str, Run], of: Callable[[Run], Traffic]) -> None:
    base, rows = of(runs["none"]), []
    for name, run in runs.items():
        heard = of(run)
        kb = heard.bytes // 1000
        rows.append(
            (
                *(name, heard.messages, share(heard.messages, base.messages)),
                *(heard.entries, share(heard.entries, base.entries), kb, share(heard.bytes, base.bytes)),
            )
        )
    show(heading, ("reduction", "messages", "of none", "entries", "of none", "KB", "of none"), rows)


def rest_table(heading: str, runs: Mapping[str, Run], asked: Asked) -> None:
    rows = []
    for name, run in runs.items():
        crossed, false = run.crossed.total(), run.false.total()
        lost = f"{run.missing:,} of {run.expected:,}" if run.missing else 0
        rows.append(
            (
                *(name, run.held, share(run.held, runs["none"].held), crossed / len(asked.events)),
                *(f"{false / max(1, crossed):.2%}", run.worst, lost, run.seconds),
            )
        )
    head = ("reduction", "held", "of none", "links an event", "false", "worst link", "lost", "CPU s")
    show(heading, head, rows)


def links_table(runs: Mapping[str, Run]) -> None:
    links = sorted({link for run in runs.values() for link in run.crossed})
    print("\n  false positives of the events on each link")
    rows = [(name, *(f"{run.false[link]:,} of {run.crossed[link]:,}" for link in links)) for name, run in runs.items()]
    table(("reduction", *(f"{a}-{b}" for a, b in links)), rows)


def picture(found: Mapping[str, Mapping[str, Run]]) -> None:
    """What each reduction sends in all, in % of `none`: a group of bars for each workload."""
    figure, axes = pyplot.subplots(figsize=(11, 4.5))
    names = [name for name in REDUCTIONS if name != "none"]
    for k, name in enumerate(names):
        heights = []
        for runs in found.values():
            sent = {n: runs[n].coming.bytes + runs[n].changing.bytes for n in ("none", name)}
            heights.append(100 * sent[name] / max(1, sent["none"]))
        axes.bar(np.arange(len(found)) + k / (len(names) + 1), heights, 0.9 / (len(names) + 1), label=name)
    axes.axhline(100, color="black", linewidth=0.8)
    axes.set_yscale("log")
    axes.set_xticks(np.arange(len(found)) + 0.4, list(found))
    axes.set_ylabel("bytes of control messages, % of none")
    axes.legend(fontsize=8, ncols=2)
    save(figure, "control")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.control", description=__doc__.splitlines()[0])
    parser.add_argument("workloads", nargs="*", help=f"some of {', '.join(WORKLOADS)}; all of them if none is named")
    parser.add_argument("--full", action="store_true", help=f"{FULL} times the subscriptions")
    parser.add_argument("--subscriptions", type=int, default=0, help="how many come (by workload, 60 to 500)")
    parser.add_argument("--events", type=int, default=500, help="how many are published (500)")
    parser.add_argument("--batch", type=int, default=50, help="control events of clients a batch (50)")
    parser.add_argument("--links", action="store_true", help="false positives link by link")
    given = parser.parse_args()
    unknown = [name for name in given.workloads if name not in WORKLOADS]
    if unknown:
        parser.error(f"no workload {', '.join(unknown)}; there are {', '.join(WORKLOADS)}")
    found: dict[str, dict[str, Run]] = {}
    for name in given.workloads or WORKLOADS:
        draw, quick = WORKLOADS[name]
        n = given.subscriptions or quick * (FULL if given.full else 1)
        asked = draw(n, int(REPLACE * n), given.events)
        runs = found[name] = {reduction: run(asked, reduction, given.batch) for reduction in REDUCTIONS}
        traffic_table(f"{name}: {n:,} subscriptions come, {given.batch} a batch", runs, lambda r: r.coming)
        left, other = int(LEAVE * n), int(REPLACE * n)
        traffic_table(f"{name}: {left:,} leave, {other:,} are replaced", runs, lambda r: r.changing)
        rest_table(f"{name}: at rest, {len(asked.events):,} events, deliveries as by flooding", runs, asked)
        if given.links:
            links_table(runs)
    picture(found)


if __name__ == "__main__":
    main()
