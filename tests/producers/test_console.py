"""The console's data against naive counts of the simulated world, and its geometry against points drawn at random."""

from __future__ import annotations

import json
import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from producers.console import asking, views
from producers.console.layout import crossings, layout
from producers.console.plane import OWNERS_MAX, Axis, Plane, axes_of, joined, uncovered
from producers.console.poller import EVENTS_KEPT, KEPT, PARTS_PER_POLL, Poller
from state.config import parse
from state.errors import HilcastError
from state.filters.evaluate import matches
from state.filters.geometry import geometry
from state.filters.grammar import parse as parse_filter
from state.keys import Key, index_keys
from state.overlay import Overlay
from state.space.boxes import Boxes
from state.space.cells import quantiles, uniform_starts
from state.space.event_type import Attribute, EventType
from state.space.grid import Grid
from state.space.hilbert import encode
from state.space.packing import unpack
from state.space.points import rank_spans
from state.space.ranks import ABSENT, PRESENT_MAX, rank
from tests.simulation.large import LargeSource, many_subscriptions, tree_config
from tests.simulation.source import SimulatedSource
from tests.simulation.world import World

CONFIG = """
[overlay]
brokers = ["b1", "b2", "b3", "b4"]
links = [["b1", "b2"], ["b2", "b3"], ["b2", "b4"]]
[types.t]
reduction = "{reduction}"
cubes = 16
index = ["x", "y"]
[types.t.attributes]
x = {{ kind = "float", min = 0, max = 100 }}
y = {{ kind = "int", min = 0, max = 99 }}
side = {{ kind = "category", values = ["buy", "sell"] }}
[settings]
home_shards = 1
wide_shards = 1
"""


def polled(reduction="covering", subscriptions=20, events=40, seed=1):
    """A world with subscriptions and events, and a poller that has looked once at each stage."""
    draw = random.Random(seed)
    source = SimulatedSource(World(parse(CONFIG.format(reduction=reduction))))
    poller = Poller(source, source.config)
    for i in range(subscriptions):
        low, high = sorted(draw.sample(range(100), 2))
        text = f"x BETWEEN {low} AND {high} AND y <= {draw.randrange(100)}"
        source.subscribe(f"b{1 + i % 4}", "t", f"s{i}", f"c{i % 5}", text)
    source.settle()
    poller.poll()
    made = [
        (f"e{n}", "t", f"b{1 + n % 4}", {"x": draw.uniform(0, 100), "y": draw.randrange(100), "side": "buy"}, "p")
        for n in range(events)
    ]
    source.publish([*made, ("bad", "nothing", "b1", {}, "p")])
    poller.poll()
    return source, poller


# ── where brokers stand ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("brokers", [1, 2, 5, 30, 100])
def test_no_two_links_cross(brokers):
    """Any tree is laid out within the unit square, without crossings and with brokers apart from each other."""
    for seed in range(3):
        overlay = tree_config(brokers, seed=seed).overlay
        found = layout(overlay)
        places = np.array([found[b] for b in overlay.brokers])
        assert ((places >= 0) & (places <= 1)).all()
        number = {b: i for i, b in enumerate(overlay.brokers)}
        links = np.array([[number[a], number[b]] for a, b in overlay.links], np.int64).reshape(-1, 2)
        assert crossings(places, links) == 0
        if brokers > 1:
            apart = np.sqrt(((places[:, None] - places[None]) ** 2).sum(axis=2)) + 9 * np.eye(brokers)
            assert apart.min() > 0.1 / brokers


def test_a_crossing_is_seen():
    """The count of crossings tells two links that cross from two that share a broker."""
    places = np.array([[0.0, 0.0], [1.0, 1.0], [0.0, 1.0], [1.0, 0.0]])
    assert crossings(places, np.array([[0, 1], [2, 3]])) == 1
    assert crossings(places, np.array([[0, 1], [1, 3]])) == 0


def test_the_layout_does_not_change():
    """The same overlay is laid out the same way each time."""
    overlay = Overlay(("a", "b", "c"), (("a", "b"), ("b", "c")))
    assert layout(overlay) == layout(overlay)


# ── axes ────────────────────────────────────────────────────────────────────────────────────────────────────────

ATTRIBUTES = [
    Attribute("a", "float", min=-5, max=20),
    Attribute("b", "int", min=0, max=999),
    Attribute("c", "int", min=3, max=5),
    Attribute("d", "category", values=("x", "y", "z")),
    Attribute("e", "boolean"),
    Attribute("f", "timestamp", min="2020-01-01T00:00:00Z", max="2030-01-01T00:00:00Z"),
    Attribute("g", "text"),
    Attribute("h", "float"),
]


@pytest.mark.parametrize("attribute", ATTRIBUTES, ids=lambda a: f"{a.kind} {a.name}")
@pytest.mark.parametrize("bits", [3, 8])
def test_an_axis_is_monotone_and_agrees_with_cells(attribute, bits):
    """Higher ranks never stand before lower ones; every cell of a coarser grid begins where it should."""
    axis, draw = Axis(attribute, uniform_starts(attribute, bits)), random.Random(3)
    values = {"float": lambda: draw.uniform(-9, 30), "int": lambda: draw.randrange(-9, 1100)}
    values |= {"category": lambda: draw.choice("xyz"), "boolean": lambda: draw.random() < 0.5}
    values |= {"timestamp": lambda: f"20{draw.randrange(10, 40)}-01-01T00:00:00Z"}
    values |= {"text": lambda: "".join(draw.choices("abcXYZ059", k=4))}
    ranks = sorted({rank(attribute, values[attribute.kind]()) for _ in range(60)} | {ABSENT, PRESENT_MAX})
    places = [axis.start(r) for r in ranks]
    assert places == sorted(places)
    assert all(0 <= p <= 1 for p in places)
    assert all(axis.end(r) >= axis.start(r) for r in ranks)
    for cell in range(1, 2**bits):
        if axis.starts[cell] > axis.starts[cell - 1]:
            assert axis.start(int(axis.starts[cell])) == pytest.approx(cell / 2**bits, abs=1e-9)


def test_cells_that_are_not_even_are_drawn_even():
    """On a grid by quantiles each cell takes the same room, whatever its width in values."""
    price = Attribute("price", "float", min=0, max=1000, cells="quantile")
    shares = quantiles(np.array([rank(price, float(v)) for v in (*range(100), *range(100, 1000, 9))]))
    event_type = EventType("t", (price,), quantiles={"price": shares}, bits=4, cubes=1)
    axis, grid = axes_of(event_type)["price"], Grid.of(event_type)
    assert axis.starts.tolist() == grid.starts[0].tolist()
    places = [axis.start(int(start)) for start in grid.starts[0]]
    assert places == pytest.approx([c / 16 for c in range(16)])
    assert axis.start(rank(price, 500.0)) > 0.7 > 0.5 > axis.start(rank(price, 50.0))


def test_a_value_stands_where_its_share_of_the_span_is():
    """On a bounded axis values are linear; categories have equal blocks."""
    price, side = (Axis(a, uniform_starts(a, 8)) for a in (ATTRIBUTES[0], ATTRIBUTES[3]))
    for value in (-5.0, 0.0, 3.3, 12.5, 20.0):
        assert price.start(rank(ATTRIBUTES[0], value)) == pytest.approx((value + 5) / 25, abs=1e-6)
    assert side.span(1, 1) == pytest.approx((1 / 3, 2 / 3), abs=1 / 256)
    assert price.middle(ABSENT) is None
    assert [text for _, text in side.ticks()] == ["x", "y", "z"]


# ── rectangles ──────────────────────────────────────────────────────────────────────────────────────────────────

SIDE = st.tuples(st.integers(0, 8), st.integers(1, 8)).map(lambda s: (s[0] / 8, min(1.0, (s[0] + s[1]) / 8)))
RECTANGLE = st.tuples(SIDE, SIDE).map(lambda r: (r[0][0], r[1][0], r[0][1], r[1][1]))


@settings(max_examples=200, deadline=None)
@given(st.lists(RECTANGLE, max_size=12))
def test_what_is_uncovered_is_in_no_rectangle(rectangles):
    """A point of the square lies in exactly one uncovered rectangle, or in some of the given ones."""
    free = uncovered(rectangles)
    for i in range(16):
        for j in range(16):
            x, y = (i + 0.5) / 16, (j + 0.5) / 16
            held = [r for r in rectangles if r[0] <= x <= r[2] and r[1] <= y <= r[3]]
            outside = [r for r in free if r[0] <= x <= r[2] and r[1] <= y <= r[3]]
            assert len(outside) == (0 if held else 1)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(0, 3), st.integers(0, 3)), max_size=6))
def test_joined_pieces_hold_the_same_points(pieces):
    """Joining pieces changes neither what they hold nor adds to their number."""
    boxes = Boxes.of([([x, y], [x + w, y + h]) for x, y, w, h in pieces], 2)
    points = np.array([[x, y] for x in range(9) for y in range(9)])
    together = joined(boxes)
    assert len(together) <= len(boxes)
    assert (together.contains(points) == boxes.contains(points)).all()


def test_a_box_cut_by_cubes_is_one_again():
    """The pieces of a box in the cubes of a grid join to the box itself."""
    event_type = EventType("t", (Attribute("x", "int", min=0, max=99), Attribute("y", "int", min=0, max=99)), cubes=16)
    box = Boxes.of([([10, 20], [80, 70])])
    pieces = list(Grid.of(event_type).cut(box).values())
    assert len(pieces) > 3
    assert joined(Boxes.concatenated(pieces, 2)) == box


# ── the plane ───────────────────────────────────────────────────────────────────────────────────────────────────


def plane_of(source, pin=None):
    return Plane(source.config.types["t"], "x", "y", pin)


def test_the_curve_visits_every_cell_once_by_steps_of_one():
    """On a grid of two dimensions the curve is one run; consecutive cells are neighbours."""
    source, _ = polled(subscriptions=0, events=0)
    curve = plane_of(source).curve()
    (run,) = curve["runs"]
    assert len({tuple(cell) for cell in run}) == curve["side"] ** 2
    steps = np.abs(np.diff(np.array(run), axis=0)).sum(axis=1)
    assert (steps == 1).all()
    other = Plane(source.config.types["t"], "x", "side")
    assert other.curve() is None


def test_cubes_fill_the_plane():
    """The shadows of the cubes of a two-dimensional grid cover the square without overlap."""
    source, _ = polled(subscriptions=0, events=0)
    shadows = [box for _, box in plane_of(source).cubes()]
    assert len(shadows) == 16
    assert sum((x1 - x0) * (y1 - y0) for x0, y0, x1, y1 in shadows) == pytest.approx(1)
    assert uncovered(shadows) == []


@pytest.mark.parametrize("pinned", [False, True])
def test_what_is_drawn_is_what_the_filters_say(pinned):
    """Each subscription's rectangles are the shadows of its filter's boxes, also where a cut meets all of them."""
    source, poller = polled()
    event = next(iter(poller.known.events.values()))
    plane = plane_of(source, (event.low, event.high) if pinned else None)
    said = asking.space(source.config, plane, source, None, None)
    drawn = {(one["broker"], one["id"]): set(map(tuple, one["boxes"])) for one in said["subscriptions"]["drawn"]}
    for kind, broker, _, id, fact in source.world.facts():
        assert kind == "subscription"
        boxes = geometry(parse_filter(json.loads(fact.filter), plane.event_type), plane.event_type).boxes
        expected = {plane.shadow(low, high) for low, high in boxes}
        assert drawn.get((broker, id), set()) == expected
    assert (said["subscriptions"]["sampled"], said["subscriptions"]["total"]) == (20, 20)


def test_a_cut_leaves_out_what_it_does_not_meet():
    """A subscription that asks for another value of an attribute outside the plane is not drawn in the cut."""
    source = SimulatedSource(World(parse(CONFIG.format(reduction="covering"))))
    source.subscribe("b1", "t", "buyer", "c", "x < 50 AND side = 'buy'")
    source.subscribe("b1", "t", "seller", "c", "x < 50 AND side = 'sell'")
    source.settle()
    low, high = rank_spans(source.config.types["t"], {"x": 99.0, "y": 1, "side": "buy"})
    cut = asking.space(source.config, plane_of(source, (low, high)), source, "b1", None)
    assert [one["id"] for one in cut["subscriptions"]["drawn"]] == ["buyer"]
    assert cut["pinned"]


@pytest.mark.parametrize("reduction", ["mics", "covering", "negative-space"])
def test_what_travels_is_what_the_neighbour_holds(reduction):
    """Cells are covered by the share that the neighbour's ranges cover; boxes and negative space are exact."""
    source, _ = polled(reduction)
    plane = plane_of(source)
    told = asking.space(source.config, plane, source, "b2", "b1")["told"]
    there = [source.part(key) for key in index_keys(source.config, ("b1",))]
    held = [unpack(part.links["b2"]) for part in there if "b2" in part.links]
    assert told["total"] == sum(map(len, held))
    draw = np.random.default_rng(1)
    if reduction == "mics":
        grid, side = plane.grid, told["side"]
        shares = {(i, j): share for i, j, share in told["cells"]}
        k = grid.k
        cells = np.array([[i, j] for i in range(2**k) for j in range(2**k)])[:: 2 ** max(0, 2 * k - 14)]
        covered = np.zeros(len(cells), bool)
        for ranges in held:
            covered |= ranges.contains(encode(cells, k))
        for (i, j), inside in zip(cells.tolist(), covered.tolist(), strict=True):
            share = shares.get((i >> (k - side.bit_length() + 1), j >> (k - side.bit_length() + 1)), 0.0)
            assert share > 0 if inside else share < 1
        return
    boxes = Boxes.concatenated(held, 3)
    for x, y in draw.uniform(0, 1, (200, 2)).tolist():
        free = any(r[0] <= x <= r[2] and r[1] <= y <= r[3] for r in told["negative"]["boxes"])
        shaded = any(s[0] <= x <= s[2] and s[1] <= y <= s[3] for s in (plane.shadow(low, high) for low, high in boxes))
        assert free != shaded
    assert told["negative"]["total"] == len(told["negative"]["boxes"])


def test_a_large_type_is_sampled_and_says_so():
    """Of many subscriptions the same few are drawn each time, and the number of all is told."""
    source = many_subscriptions(3000)
    plane = Plane(source.config.types["quote"], "price", "volume")
    said = asking.space(source.config, plane, source, None, None)["subscriptions"]
    assert (said["sampled"], said["total"]) == (OWNERS_MAX, 3000)
    assert said == asking.space(source.config, plane, source, None, None)["subscriptions"]


def test_names_of_a_plane_are_checked():
    """Unknown types, attributes, brokers, links and events are refused with their codes."""
    source, poller = polled(events=3)
    known = poller.known
    plane = plane_of(source)
    for code, ask in (
        ("unknown-type", lambda: asking.plane_of(known, "no", "x", "y", None)),
        ("filter-attribute", lambda: asking.plane_of(known, "t", "x", "no", None)),
        ("unknown-event", lambda: asking.plane_of(known, "t", "x", "y", "p#no")),
        ("unknown-broker", lambda: asking.space(source.config, plane, source, "b9", None)),
        ("unknown-link", lambda: asking.space(source.config, plane, source, "b1", "b3")),
        ("unknown-link", lambda: views.link_view(known, poller.links, "b1", "b3")),
        ("unknown-broker", lambda: views.broker_view(known, "b9")),
    ):
        with pytest.raises(HilcastError) as refused:
            ask()
        assert refused.value.code == code


# ── the poller ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("reduction", ["covering", "mics"])
def test_the_overlay_is_what_the_world_counts(reduction):
    """Subscriptions, clients, crossings and deliveries are those of a naive count of the topics."""
    source, poller = polled(reduction)
    told = views.live(poller.known, poller.links, None)
    log = source.world.log.topics
    for name in source.config.overlay.brokers:
        own = [fact for _, broker, _, _, fact in source.world.facts() if broker == name and fact.live]
        assert told["brokers"][name]["subscriptions"] == len(own)
        assert told["brokers"][name]["clients"] == len({fact.owner for fact in own})
        assert told["brokers"][name]["parts"] == [17, 17]
        assert told["brokers"][name]["state"] == "ok"
    crossed = {(a, b): n for a, b, n, *_ in told["links"]}
    figures = source.figures["d0"]
    assert crossed == {(a, b): figures[f"link:{a}>{b}"] for a, b in poller.links}
    assert sum(crossed.values()) > 0
    delivered = sum(len(records) for topic, records in log.items() if ".deliver." in topic)
    assert told["totals"]["copies"] == delivered == told["seen"]["deliveries"]
    assert (told["seen"]["letters"], told["items"]["letters"][0]["code"]) == (1, "unknown-type")
    assert told["seen"]["receipts"] == 20
    assert told["followed"] == [len([t for t in log if ".deliver." in t])] * 2


def test_a_broker_and_a_link_on_a_click():
    """A broker tells its registrations and letters, a link what its reductions received, forwarded and withheld."""
    source, poller = polled()
    broker = views.broker_view(poller.known, "b1")
    filters = {id: json.loads(f.filter) for _, b, _, id, f in source.world.facts() if b == "b1"}
    assert {one["id"] for one in broker["subscriptions"]} == set(filters)
    assert broker["letters"][0]["name"] == "p#bad"
    assert [pair[1] for pair in broker["clients"]] == [
        n for _, n in Counter(f.owner for _, b, _, _, f in source.world.facts() if b == "b1").most_common()
    ]
    link = views.link_view(poller.known, poller.links, "b1", "b2")
    there = link["ways"][0]["types"][0]
    parts = source.parts(index_keys(source.config, ("b1",)), source.standings(["d0"])["d0"])
    for name in ("received", "forwarded", "withheld"):
        assert there[name] == sum(part.reduced["b2"].get(name, 0) for part in parts.values())
    assert there["received"] > 0
    assert link["ways"][1]["crossed"] == source.figures["d0"]["link:b2>b1"]


def test_only_what_changed_is_read_again():
    """A poll reads the parts whose version changed, no others, and tells items once."""
    source, poller = polled(events=5)
    before = source.asked["parts"]
    poller.poll()
    assert source.asked["parts"] == before
    source.subscribe("b1", "t", "more", "c", "x BETWEEN 1 AND 2 AND y = 3")
    source.settle()
    poller.poll()
    assert before < source.asked["parts"] < before + 40
    seen = {kind: items[-1]["n"] for kind, items in poller.known.items.items() if items}
    told = views.live(poller.known, poller.links, seen)
    assert not any(told["items"].values())
    assert "lines" not in told


def test_a_poll_has_bounds():
    """Parts are read some at a time until all are known; items and events are kept up to their number."""
    config = tree_config(PARTS_PER_POLL + 20, cubes=1)
    empty = many_subscriptions(1, 1).part(Key("b0", "quote", "wide:0"))
    source = LargeSource(config, dict.fromkeys(index_keys(config, config.overlay.brokers), empty))
    poller = Poller(source, config)
    reads = []
    for _ in range(4):
        before = source.asked["parts"]
        poller.poll()
        reads.append(source.asked["parts"] - before)
    assert max(reads) == PARTS_PER_POLL
    assert sum(reads) == len(poller.known.parts) == 2 * len(config.overlay.brokers)
    _, crowded = polled(subscriptions=3, events=EVENTS_KEPT + 60)
    assert len(crowded.known.events) == EVENTS_KEPT
    assert len(crowded.known.items["deliveries"]) <= KEPT


def test_withdrawn_and_replaced_are_counted_once():
    """A replacement counts once, a withdrawal not at all, whatever the number of polls."""
    source, poller = polled(subscriptions=4, events=0)
    source.subscribe("b1", "t", "s0", "other", "x < 3")
    source.world.send(source.config.topics.subscriptions, "b2/t/s1", None)
    source.settle()
    poller.poll()
    poller.poll()
    told = views.live(poller.known, poller.links, None)["brokers"]
    assert [told[b]["subscriptions"] for b in ("b1", "b2", "b3", "b4")] == [1, 0, 1, 1]
    assert poller.known.clients["b1"] == {"other": 1}


def test_a_stopped_deployment_and_a_lost_part_are_seen():
    """Without a lease brokers are stopped; with missing parts they wait; without Redis nothing is known."""
    source, poller = polled(events=2)
    source.lost = {Key("b3", "t", "cube:5")}
    poller.poll()
    told = views.live(poller.known, poller.links, None)["brokers"]
    assert (told["b3"]["state"], told["b3"]["parts"], told["b1"]["state"]) == ("waiting", [16, 17], "ok")
    source.stopped = {"d0"}
    for _ in range(6):
        poller.poll()
    assert {b["state"] for b in views.live(poller.known, poller.links, None)["brokers"].values()} == {"stopped"}
    source.stopped = set()

    def away(deployments):
        raise HilcastError("redis-away", "Redis does not answer")

    source.standings = away
    for _ in range(6):
        poller.poll()
    told = views.live(poller.known, poller.links, None)
    assert {b["state"] for b in told["brokers"].values()} == {"unknown"}
    assert told["faults"] == {"redis": "redis-away: Redis does not answer"}


def test_another_generation_brings_its_configuration():
    """What the router chose anew is gone by, and parts that it has no more are forgotten."""
    source, poller = polled(subscriptions=4, events=3)
    fewer = parse(CONFIG.format(reduction="covering").replace("cubes = 16", "cubes = 4"))
    (deployment,) = source.world.deployments
    deployment.begin(fewer)
    poller.poll()
    assert poller.known.config.types["t"].cubes == 4
    assert {key.part for key in poller.known.parts} == {"wide:0", *(f"cube:{i}" for i in range(4))}
    told = views.live(poller.known, poller.links, None)["brokers"]
    assert {(b["state"], *b["parts"]) for b in told.values()} == {("ok", 5, 5)}


def test_rates_are_taken_over_a_window():
    """A rate is the increase over the last ten seconds or so, divided by the time between."""
    source, poller = polled(events=0)
    times = iter([1000.0 + 2 * i for i in range(20)])
    poller._now = lambda: next(times)
    for _ in range(10):
        source.figures["d0"]["routed"] += 6
        poller.poll()
    assert views.rates(poller.known)["routed"] == 3.0
    source.figures["d0"]["routed"] = 0
    poller.poll()
    assert views.rates(poller.known)["routed"] == 0.0


# ── trying ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_filter_is_judged_on_what_came_by():
    """Matching events are those that the filter holds for; a fault has its position."""
    source, poller = polled()
    events = list(poller.known.events.values())
    text = "x < 40 AND y > 20"
    found = asking.judge_filter(source.config, events, "t", text, "x", "y")
    tree = parse_filter(text, source.config.types["t"])
    expected = [e.name for e in events if matches(tree, e.attributes, source.config.types["t"])]
    assert (found["matching"], found["of"]) == (expected, len(events))
    assert found["cost"]["sample"]["matching"] == len(expected) > 0
    wrong = asking.judge_filter(source.config, events, "t", "x < 40 AND z > 20", "x", "y")
    assert (wrong["ok"], wrong["code"], wrong["position"]) == (False, "filter-attribute", 11)


def test_an_event_is_followed_and_explained():
    """An event that came by, or that is typed, meets the subscriptions whose filters hold; one of them says why."""
    source, poller = polled()
    known = poller.known
    name = next(item["name"] for item in known.items["deliveries"])
    event = asking.read_asked(known, {"name": name})
    found = asking.follow(source.config, source, event)
    got = {id for item in known.items["deliveries"] if item["name"] == name for id in item["subscriptions"].split(",")}
    assert {m["id"] for m in found["matches"]} == got
    first = found["matches"][0]
    key = f"{first['broker']}/t/{first['id']}"
    why = asking.why(source.config, source, event, *asking.parties(known, event, key))
    assert (why["matches"], why["reaches"]) == (True, True)
    typed = asking.read_asked(known, {"event": '{"x": -1}', "type": "t", "broker": "b4"})
    assert (typed.broker, typed.attributes) == ("b4", {"x": -1})
    assert asking.follow(source.config, source, typed)["matching"] == 0
    for code, asked in (("unknown-subscription", "b1/t/no"), ("bad-key", "nonsense")):
        with pytest.raises(HilcastError) as refused:
            asking.parties(known, event, asked)
        assert refused.value.code == code
