"""Overlap of advertisements and subscriptions where boxes are not exact, against every event of a small space."""

from __future__ import annotations

import itertools
import json
import random
from functools import cache

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from state.compiled_part import LocalEntry
from state.config import parse
from state.control import overlap as overlap_module
from state.control.context import Context
from state.control.handle import handle
from state.control.overlap import WORDING_BYTES_MAX, Asked, Side, Sides, Wordings, stamped
from state.control.part import Part
from state.control.placement import named
from state.control.plausible import implausible
from state.control.protocol import Advertised, Change, Entry, Resync, decode, encode
from state.filters import grammar
from state.filters.geometry import geometry
from state.keys import Key
from state.messages import Record
from state.space.boxes import Boxes
from state.space.packing import pack
from tests import oracle
from tests.advertisements.witnesses import TYPE, Grid, filters, leaves
from tests.simulation.invariants import check
from tests.simulation.wire import Event
from tests.simulation.world import World

GRID = Grid()


def asked(text, event_type=TYPE, worded=None):
    """A filter as a part has it: everywhere, and in words where it mentions text or is not exact."""
    tree = grammar.parse(text, event_type)
    shape = geometry(tree, event_type)
    if worded is None:
        worded = "t" in named(tree) or not shape.exact
    return Asked(shape.boxes, text if worded else None)


IDS = st.sampled_from("abcdef")


class SideAgainstEveryEvent(RuleBasedStateMachine):
    """A side under random changes, asked for any and for all, against every event of a small space."""

    def __init__(self):
        super().__init__()
        self.side = Side(TYPE, Wordings(TYPE))
        self.held = {}

    @rule(id=IDS, text=filters(max_leaves=4))
    def put(self, id, text):
        self.side.put(id, asked(text))
        self.held[id] = text

    @rule(id=IDS)
    def drop(self, id):
        self.side.drop(id)
        self.held.pop(id, None)

    @rule(text=filters(max_leaves=4))
    def ask(self, text):
        expected = {id for id, other in self.held.items() if GRID.overlap(text, other)}
        assert self.side.all(asked(text)) == expected
        assert self.side.first(asked(text)) == bool(expected)

    @rule(text=filters(leaves(like=True), max_leaves=4))
    def ask_with_like(self, text):
        found = self.side.all(asked(text))
        assert {id for id, other in self.held.items() if GRID.overlap(text, other)} <= found
        assert self.side.first(asked(text)) == bool(found)
        # a new advertisement that says so lets an entry through: that one would have to say the same
        turned = Side(TYPE, Wordings(TYPE))
        turned.put("q", asked(text))
        assert {id for id, other in self.held.items() if turned.first(asked(other))} == found

    @invariant()
    def sound(self):
        self.side.check()
        assert set(self.side.asked) == set(self.held)


TestSide = SideAgainstEveryEvent.TestCase
TestSide.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)


@pytest.mark.parametrize("other", ["TRUE", "t = 'abcdefgh'"])
def test_words_that_contradict_each_other_overlap_nothing(other):
    """Their boxes may be those of others, as ranks know the first bytes of a text alone; asked, and asking."""
    never = "t = 'abcdefgh' AND t = 'abcdefgi'"
    for held, question in ((other, never), (never, other)):
        side = Side(TYPE, Wordings(TYPE))
        side.put("a", asked(held))
        side.check()
        assert (side.first(asked(question)), side.all(asked(question))) == (False, set())


def test_without_a_wording_boxes_decide():
    """Two titles that share their first seven bytes have one box: only words tell them apart."""
    one, other = "t = 'abcdefgh'", "t = 'abcdefgi'"
    side = Side(TYPE, Wordings(TYPE))
    side.put("a", asked(one))
    assert not side.first(asked(other))
    assert side.first(asked(other, worded=False))
    side.put("a", asked(one, worded=False))
    assert side.first(asked(other))


def test_what_overlaps_elsewhere_does_not_count_here():
    """Boxes and words are of one pair: one filter meets by boxes, another by words, and neither overlaps."""
    side, left, right = Side(TYPE, Wordings(TYPE)), asked("n < 2 AND t = 'abcdefgh'"), asked("n > 5")
    side.put("boxes", asked("n < 2 AND t = 'abcdefgi'"))
    side.put("words", Asked(right.geometry, "t = 'abcdefgh'"))
    assert not side.first(left)
    assert side.all(left) == set()
    side.put("both", left)
    assert side.first(left)
    assert side.all(left) == {"both"}


# --- sides in memory ----------------------------------------------------------------------------------------------


def test_a_side_is_known_by_its_stamp(monkeypatch):
    """Handed out once, only under the stamp it was given back with; the least recently used go when there are many."""
    monkeypatch.setattr(overlap_module, "SIDES_MAX", 2)
    sides, side = Sides(), Side(TYPE, Wordings(TYPE))
    side.put("a", asked("n = 1"))
    sides.keep(("k", "x"), b"1", side)
    assert sides.take(("k", "x"), b"1") is side
    assert sides.take(("k", "x"), b"1") is None
    sides.keep(("k", "x"), b"1", side)
    assert sides.take(("k", "x"), b"2") is None
    for name in "xyz":
        other = Side(TYPE, Wordings(TYPE))
        other.put("a", asked("n = 1"))
        sides.keep(("k", name), b"1", other)
    assert (sides.size, sides.take(("k", "x"), b"1")) == (2, None)
    assert sides.take(("k", "z"), b"1") is not None


def test_stamps_tell_every_change_apart():
    """Ids, geometry, words and removals all count, and where one ends and the next begins."""
    here, there = Boxes.of([([1], [2])]), Boxes.of([([1], [3])])
    changes = [
        {}, {"a": Asked(here)}, {"a": Asked(there)}, {"a": Asked(here, "x")}, {"a": None}, {"b": Asked(here)},
        {"a": Asked(here), "b": Asked(here)}, {"ab": Asked(here)}, {"a": Asked(here, "")},
    ]  # fmt: skip
    stamps = [stamped(b"0", one) for one in changes] + [stamped(b"1", one) for one in changes]
    assert len(set(stamps)) == len(stamps)


# --- one part -----------------------------------------------------------------------------------------------------

CONFIG = """
[settings]
home_shards = 1
wide_shards = 1
[overlay]
brokers = {brokers}
links = {links}
[types.t]
reduction = "{reduction}"
advertisements = true
cubes = {cubes}
bits = 3
index = ["price"]
parameters = {{ {parameters} }}
[types.t.attributes]
title = {{ kind = "text" }}
price = {{ kind = "int", min = 0, max = 15 }}
"""
LINE = [["a", "b"], ["b", "c"]]
STAR = [["m", "a"], ["m", "b"], ["m", "c"], ["c", "d"]]


def config_of(reduction="none", links=LINE, cubes=1, parameters=""):
    brokers = list(dict.fromkeys(itertools.chain(*links)))
    return parse(CONFIG.format(brokers=brokers, links=links, reduction=reduction, cubes=cubes, parameters=parameters))


KEY = Key("b", "t", "cube:0")
SILENT, RIVER = "title = 'The Silent River of Lima'", "title = 'The Silent River of Oslo'"


class Bench:
    """The cube key of broker b between a and c; what c was told, by id."""

    def __init__(self, reduction="none", parameters=""):
        self.config = config_of(reduction, parameters=parameters)
        self.type = self.config.types["t"]
        self.context = Context(self.config, 1, 1)
        self.state, self.offset, self.sequences, self.told = None, 0, {}, {}

    def send(self, source="b/t/home:0", **changes):
        self.sequences[source] = self.sequences.get(source, 0) + 1
        dialect = self.context.dialect("t")
        self.deliver(Change(source=source, generation=1, sequence=self.sequences[source], grid=dialect, **changes))

    def deliver(self, message):
        self.offset += 1
        record = Record(self.context.topics.control, 0, self.offset, 0, str(KEY).encode(), encode(message))
        result = handle(str(KEY), self.state, [record], self.context)
        self.state = result.state
        for output in result.outputs:
            told = decode(output.value)
            if output.key == b"c/t/cube:0":
                self.told = ({} if told.snapshot else self.told) | {entry.id: entry.wording for entry in told.entries}
                for id in told.removed:
                    del self.told[id]

    def local(self, id, text):
        boxes = pack(geometry(grammar.parse(text, self.type), self.type).boxes)
        self.send(local=[LocalEntry(id, "client", self.context.topics.deliver("client"), text, boxes, wording=text)])

    def received(self, id, text, wording=None):
        boxes = pack(geometry(grammar.parse(text, self.type), self.type).boxes)
        self.send("a/t/cube:0", entries=[Entry(id, boxes, wording)])

    def advertised(self, id, text, source="c/t/cube:0"):
        boxes = pack(geometry(grammar.parse(text, self.type), self.type).boxes)
        self.send(source, advertised=[Advertised(id, "p", "", boxes, text)])


def test_words_decide_for_own_clients_and_for_neighbours():
    """What a broker's clients and what a neighbour asks for goes on where the words overlap, with its words."""
    bench = Bench()
    bench.advertised("c/1", SILENT)
    bench.local("s1", SILENT)
    bench.local("s2", RIVER)
    bench.received("a/s3", SILENT, SILENT)
    bench.received("a/s4", RIVER, RIVER)
    bench.received("a/s5", RIVER)
    assert bench.told == {"b/s1": SILENT, "a/s3": SILENT, "a/s5": None}
    bench.advertised("c/2", "title LIKE '%Oslo'")
    assert bench.told == {"b/s1": SILENT, "a/s3": SILENT, "a/s5": None, "b/s2": RIVER, "a/s4": RIVER}
    bench.send("c/t/cube:0", unadvertised=["c/1"])
    assert bench.told == {"b/s2": RIVER, "a/s4": RIVER, "a/s5": None}


def test_an_advertisement_that_changes_is_asked_in_both_its_forms():
    """What only the old form let through goes, what only the new one does comes, in one step."""
    bench = Bench()
    bench.local("s1", SILENT)
    bench.local("s2", RIVER)
    bench.advertised("c/1", SILENT)
    assert bench.told == {"b/s1": SILENT}
    bench.advertised("c/1", RIVER)
    assert bench.told == {"b/s2": RIVER}


def test_other_words_with_the_same_boxes_are_told():
    """A replacement may change nothing but the words: the neighbour decides by the new ones."""
    bench = Bench("covering")
    bench.advertised("c/1", "title LIKE 'The%'")
    bench.local("s1", SILENT)
    assert bench.told == {"b/s1": SILENT}
    bench.local("s1", RIVER)
    assert bench.told == {"b/s1": RIVER}


@pytest.mark.parametrize("reduction", ["covering", "negative-space", "hybrid", "probabilistic"])
def test_what_stands_for_others_has_no_words(reduction):
    """Once an entry is withheld because boxes cover it, words of what covers it would lose it: they are recalled."""
    bench = Bench(reduction)
    bench.advertised("c/1", "title LIKE 'The%'")
    bench.local("s1", SILENT)
    bench.local("s0", "title = 'The Endless Song of Cairo'")
    assert set(bench.told.values()) == {SILENT, "title = 'The Endless Song of Cairo'"}
    bench.local("s2", RIVER)
    assert bench.told == {"b/s0": None, "b/s1": None}
    bench.deliver(Resync("c/t/cube:0", bench.context.dialect("t")))
    assert bench.told == {"b/s0": None, "b/s1": None}
    bench.send(removed=["s1"])
    assert bench.told == {"b/s0": None, "b/s2": None}


def test_a_snapshot_has_the_words():
    """A neighbour that asks for everything is told what it was told one by one."""
    bench = Bench()
    bench.advertised("c/1", SILENT)
    bench.local("s1", SILENT)
    bench.received("a/s3", SILENT)
    before, bench.told = bench.told, {}
    bench.deliver(Resync("c/t/cube:0", bench.context.dialect("t")))
    assert bench.told == before == {"b/s1": SILENT, "a/s3": None}


def test_sides_stay_in_memory():
    """A batch after the first builds nothing anew; another process does, and says the same."""
    bench = Bench()
    for i in range(20):
        bench.advertised(f"c/{i}", f"title = 'The Silent River of {i}'")
    bench.local("s0", "title = 'The Silent River of 0'")
    built = bench.context.sides.built
    for i in range(1, 30):
        bench.local(f"s{i}", f"title = 'The Silent River of {i}'")
    bench.advertised("c/0", SILENT)
    assert bench.context.sides.built == built
    bench.advertised("c/0", "title = 'The Silent River of 0'")
    bench.context = Context(bench.config, 1, 1)
    bench.local("s0", RIVER)
    assert set(bench.told) == {f"b/s{i}" for i in range(1, 20)}
    assert bench.context.sides.built > 0


@pytest.mark.parametrize(
    "wording", ["nonsense", "title = 5", "other = 'x'", "(" * 8000, "title = '" + "x" * WORDING_BYTES_MAX + "'"]
)
def test_words_that_cannot_be_read_are_refused(wording):
    """They never reach a state: the message that brings them cannot be true."""
    bench = Bench()
    everything = pack(Boxes.everything(2))
    local = LocalEntry("s", "client", bench.context.topics.deliver("client"), None, everything, wording=wording)
    dialect = bench.context.dialect("t")
    for source, items in (
        ("b/t/home:0", {"local": [local]}),
        ("a/t/cube:0", {"entries": [Entry("a/s", everything, wording)]}),
        ("a/t/cube:0", {"advertised": [Advertised("a/s", "p", "", everything, wording)]}),
    ):
        change = Change(source=source, generation=1, sequence=1, grid=dialect, **items)
        assert "in words" in implausible(KEY, change, bench.context)


# --- a whole overlay ----------------------------------------------------------------------------------------------

TITLES = [f"The {word} of {place}" for word in ("Silent River", "Silent Song") for place in ("Lima", "Oslo", "Rome")]
PLAIN = {"title": {"kind": "text"}, "price": {"kind": "int"}}
TEXTS = [None, "", "A short one", *(title + tail for title in TITLES for tail in ("", "\0"))]
EVENTS = [
    {name: value for name, value in (("title", title), ("price", price)) if value is not None}
    for title in TEXTS
    for price in (None, 0, 4, 5, 9, 10, 15)
]
MODES = [
    ("none", ""), ("covering", ""), ("merging", ""), ("mics", ""), ("mics", 'mode = "indexed"'),
    ("negative-space", ""), ("hybrid", ""),
]  # fmt: skip


@cache
def truth(text):
    """The events of the small space that satisfy a filter."""
    return frozenset(i for i, event in enumerate(EVENTS) if oracle.evaluate(oracle.tree_of(text), event, PLAIN))


def drawn(rng, like):
    title = rng.choice(TITLES)
    about = [f"title = '{title}'", f"title <> '{title}'", f"title < '{title}'", f"title IN ('{title}', 'A short one')"]
    about += ["title LIKE 'The Silent S%'", "title LIKE 'A%'"]
    about += [f"title LIKE '%{rng.choice(('Lima', 'Oslo'))}'", "title NOT LIKE '%Song%'"] if like else []
    some = [rng.choice(about), rng.choice(("price < 5", "price BETWEEN 5 AND 9", "price > 9", "price IS NULL"))]
    return rng.choice((some[0], some[0], some[1], " AND ".join(some), " OR ".join(some)))


class Market:
    """A world with clients and publishers at every broker, who come, change their minds and go."""

    def __init__(self, reduction, parameters, seed, like, cubes):
        self.rng, self.like = random.Random(seed), like
        self.world = World(config_of(reduction, STAR, cubes, parameters))
        self.brokers = self.world.deployments[0].config.overlay.brokers
        self.filters = {"subscriptions": {}, "advertisements": {}}

    def change(self):
        kind = self.rng.choice(("subscriptions", "subscriptions", "advertisements"))
        broker, id = self.rng.choice(self.brokers), f"{kind[0]}{self.rng.randrange(4)}"
        text = drawn(self.rng, self.like) if self.rng.random() < 0.75 else None
        owner = {"client" if kind == "subscriptions" else "publisher": f"{broker}-{id}"}
        self.world.send(f"hilcast.{kind}", f"{broker}/t/{id}", text and {**owner, "filter": text})
        self.filters[kind].pop((broker, id), None)
        if text is not None:
            self.filters[kind][broker, id] = text

    def check_deliveries(self):
        """Every publisher sends what it may, and everybody gets what they asked for."""
        events = []
        for (broker, id), text in self.filters["advertisements"].items():
            allowed = sorted(truth(text))
            for i in self.rng.sample(allowed, min(6, len(allowed))):
                events.append((i, Event("e", "t", broker, json.dumps(EVENTS[i]).encode(), f"{broker}-{id}")))
        for (i, _), outcome in zip(events, self.world.publish_all([e for _, e in events]), strict=True):
            assert not outcome.refused
            wanted = {f"{b}-{id}" for (b, id), text in self.filters["subscriptions"].items() if i in truth(text)}
            assert {delivery.client for delivery in outcome.deliveries} == wanted, EVENTS[i]

    def held_in_excess(self):
        """Subscriptions that a broker holds of a neighbour: how many there are, and how many must be."""
        overlay, states = self.world.deployments[0].config.overlay, self.world.deployments[0].states
        held, due, context = 0, 0, self.world.deployments[0].context(0)
        for here, there in itertools.permutations(self.brokers, 2):
            if there not in overlay.neighbours(here):
                continue
            ids = set()
            for key, blob in states.items():
                if Key.parse(key).broker == there and not Key.parse(key).is_home:
                    ids |= set(Part(Key.parse(key), blob, context).state.received.get(here, {}))
            beyond = [b for b in self.brokers if there in overlay.path(here, b)]
            ads = [truth(text) for (b, _), text in self.filters["advertisements"].items() if b in beyond]
            subscriptions = {k: text for k, text in self.filters["subscriptions"].items() if k[0] not in beyond}
            must = {f"{b}/{id}" for (b, id), text in subscriptions.items() if any(truth(text) & ad for ad in ads)}
            assert must <= ids, "an overlap was denied"
            held, due = held + len(ids), due + len(must)
        return held, due


@pytest.mark.parametrize("cubes", [1, 8])
@pytest.mark.parametrize(("reduction", "parameters"), MODES, ids=[" ".join(mode).strip() for mode in MODES])
def test_no_delivery_is_lost_by_words(reduction, parameters, cubes):
    """Through comings and goings of subscriptions and advertisements, under every reduction, LIKE included."""
    market = Market(reduction, parameters, cubes, like=True, cubes=cubes)
    for _ in range(12):
        for _ in range(market.rng.choice((1, 1, 4, 12))):
            market.change()
        market.world.settle()
        market.check_deliveries()
    check(market.world)


def test_a_broker_holds_what_overlaps_and_nothing_else():
    """Without LIKE, and with nothing withheld: at every broker exactly the subscriptions that overlap by evaluation."""
    market = Market("none", "", 3, like=False, cubes=8)
    held = due = 0
    for _ in range(20):
        for _ in range(6):
            market.change()
        market.world.settle()
        now = market.held_in_excess()
        held, due = held + now[0], due + now[1]
    assert held == due > 100


def test_memory_changes_nothing_that_is_said(monkeypatch):
    """States and messages are the same bytes, whether sides are found in memory or built anew each time."""

    def played():
        market = Market("covering", "", 5, like=True, cubes=1)
        for _ in range(8):
            for _ in range(5):
                market.change()
            market.world.settle()
        deployment = market.world.deployments[0]
        return deployment.states, [record.value for record in market.world.log.topics["hilcast.control"]]

    kept = played()
    monkeypatch.setattr(Sides, "take", lambda self, name, stamp: self._kept.pop(name, None) and None)
    assert played() == kept
