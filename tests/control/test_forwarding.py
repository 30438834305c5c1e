"""What a cube says of its entries is true of what its neighbours hold, under every reduction."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest
import redis

from state.compiled_part import LocalEntry
from state.config import parse
from state.control import part
from state.control.context import Context
from state.control.facts import Fact
from state.control.fates import HELD_BACK, READABLE_MAX, READABLE_RANGED_MAX
from state.control.handle import handle, whole_index
from state.control.part import decode_state
from state.control.protocol import Advertised, Change, Entry, Republish, decode, encode
from state.control.rebuild import rebuild
from state.keys import Key
from state.messages import Record
from state.redis_index import RedisIndex
from state.reductions.reduction import Fate
from state.space.boxes import Boxes
from state.space.packing import pack, unpack

CONFIG = """
[deployment]
prefix = "{prefix}"
redis = "{redis}"
[overlay]
brokers = ["a", "b", "c"]
links = [["a", "b"], ["b", "c"]]
[types.t]
reduction = "{reduction}"
advertisements = {advertisements}
cubes = 1
bits = 3
index = ["x", "y"]
parameters = {{ {parameters} }}
[types.t.attributes]
x = {{ kind = "int", min = 0, max = 7 }}
y = {{ kind = "int", min = 0, max = 7 }}
"""
REDUCTIONS = ["none", "covering", "merging", "mics", "negative-space", "probabilistic", "hybrid"]
MODES = [
    *((reduction, "") for reduction in REDUCTIONS),
    ("mics", 'merging = "imperfect", gap_cells = 3'),
    ("mics", 'mode = "indexed"'),
    ("mics", 'mode = "indexed", exact = "negative-space"'),
    ("negative-space", 'mode = "approximate", k = 2'),
]
KEY = Key("b", "t", "cube:0")
FORWARDED, UNNAMED = Fate("forwarded"), Fate("covered")


class Bench:
    """One cube key at b, between a and c, driven by hand; what a and c were told is kept by plain dictionaries."""

    def __init__(
        self, reduction, advertisements="false", prefix="hilcast", redis="redis://127.0.0.1:6379/0", parameters=""
    ):
        text = CONFIG.format(
            reduction=reduction, advertisements=advertisements, prefix=prefix, redis=redis, parameters=parameters
        )
        self.config = parse(text)
        self.context = Context(self.config, 1, 1)
        self.grid = self.context.grids["t"]
        self.state, self.offset, self.result = None, 0, None
        self.sequences, self.said, self.counted, self.held = {}, {}, {}, {"a": {}, "c": {}}

    def change(self, source="b/t/home:0", **changes):
        self.sequences[source] = self.sequences.get(source, 0) + 1
        return Change(
            source=source, generation=1, sequence=self.sequences[source], grid=self.context.dialect("t"), **changes
        )  # fmt: skip

    def send(self, *messages):
        records = []
        for message in messages:
            self.offset += 1
            records.append(Record(self.context.topics.control, 0, self.offset, 0, str(KEY).encode(), encode(message)))
        self.result = handle(str(KEY), self.state, records, self.context)
        self.state = self.result.state
        self.said |= self.result.forwarding
        self.counted |= self.result.reduced
        for output in self.result.outputs:
            told, here = decode(output.value), self.held[Key.parse(output.key.decode()).broker]
            here |= {entry.id: unpack(entry.geometry) for entry in told.entries}
            for id in told.removed:
                here.pop(id, None)

    @property
    def index(self):
        """All of the index."""
        return whole_index(KEY, self.state, self.context)

    def subscribe(self, id, box):
        entry = LocalEntry(id, "client", "topic", None, pack(box))
        self.send(self.change(local=[entry]))


def fact(text, offset):
    """A live subscription as the registry has it."""
    return Fact(
        version=1, owner="client", filter=json.dumps(text), ttl_ms=None, expires_ms=None, sink=None, content=b"",
        topic="hilcast.subscriptions", partition=0, offset=offset, timestamp_ms=0, live=True,
    )  # fmt: skip


def box(x, y, width=1, height=1):
    return Boxes.of([([x, y], [x + width - 1, y + height - 1])])


def cells(geometry, grid):
    """Every point of 8 x 8 that a geometry holds, one by one."""
    points = np.array([(x, y) for x in range(8) for y in range(8)])
    inside = geometry.contains(points) if isinstance(geometry, Boxes) else geometry.contains(grid.index(points))
    return {tuple(point) for point in points[inside].tolist()}


def check_true(bench, live):
    """`live`: by neighbour the boxes offered to it, by the id that reductions know."""
    for neighbour, offered in live.items():
        said, held = bench.said.get(neighbour, {}), bench.held[neighbour]
        assert set(said) == set(offered)
        for id, boxes in offered.items():
            fate = said[id]
            named = fate.carriers(id)
            assert set(named) <= set(held), f"{id} {fate}"
            assert fate == UNNAMED or named
            if fate.how == "forwarded":
                assert cells(boxes, bench.grid) == _union(bench, held, named)
            elif not fate.more and fate != UNNAMED:
                assert cells(boxes, bench.grid) <= _union(bench, held, named), f"{id} {fate}"
                # what several are merged into goes under the id of one of them
                assert id not in held or (fate.how == "merged" and id in named)


def _union(bench, held, ids):
    return set().union(*(cells(held[id], bench.grid) for id in ids))


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_what_is_said_is_what_the_neighbours_hold(reduction):
    """After each of many changes, everyone named as carrying an entry is held by the neighbour and covers it."""
    draw = random.Random(5)
    bench = Bench(reduction)
    local, received = {}, {}
    for step in range(60):
        area = box(draw.randrange(6), draw.randrange(6), draw.randint(1, 3), draw.randint(1, 3))
        if draw.random() < 0.5:
            id = f"s{draw.randrange(8)}"
            if draw.random() < 0.3:
                local.pop(f"b/{id}", None)
                bench.send(bench.change(removed=[id]))
            else:
                local[f"b/{id}"] = area
                bench.subscribe(id, area)
        else:
            geometry = bench.grid.ranges(area) if reduction == "mics" else area
            id = f"r{step % 5}" if reduction == "mics" else f"a/r{step % 5}"
            received[f"a>{id}" if reduction == "mics" else id] = area
            bench.send(bench.change("a/t/cube:0", entries=[Entry(id, pack(geometry))]))
        check_true(bench, {"c": local | received, "a": local})
    if reduction != "none":
        assert any(fate.how != "forwarded" for fate in bench.said["c"].values())


def check_counted(bench, live, ranged):
    """The figures of each neighbour against plain counting: ids offered, what it holds; its state takes some bytes."""
    for neighbour, offered in live.items():
        told, held = bench.counted.get(neighbour, {}), bench.held[neighbour]
        if not offered:
            assert told == {}
            continue
        assert (told["received"], told["forwarded"]) == (len(offered), len(held))
        assert told["bytes"] > 0
        if ranged:
            mapped = sum(len(bench.grid.ranges(boxes)) for boxes in offered.values())
            assert (told["ranges"], told["withheld"]) == (mapped, mapped - len(held))
        else:
            assert told["withheld"] == len(offered) - len(held)


@pytest.mark.parametrize(("reduction", "parameters"), MODES, ids=[" ".join(mode).strip() for mode in MODES])
def test_the_figures_are_those_of_plain_counting(reduction, parameters):
    """Under every reduction and mode, after each of many changes, and after being published again."""
    draw = random.Random(3)
    bench = Bench(reduction, parameters=parameters)
    ranged = reduction == "mics" and "indexed" not in parameters
    local, received = {}, {}
    for _ in range(40):
        area = box(draw.randrange(6), draw.randrange(6), draw.randint(1, 3), draw.randint(1, 3))
        id = f"{draw.randrange(6)}"
        if draw.random() < 0.25:
            local.pop(f"b/{id}", None)
            bench.send(bench.change(removed=[id]))
        elif draw.random() < 0.6:
            local[f"b/{id}"] = area
            bench.subscribe(id, area)
        else:
            received[id] = area
            geometry = bench.grid.ranges(area) if ranged else area
            bench.send(bench.change("a/t/cube:0", entries=[Entry(f"a/{id}", pack(geometry))]))
        check_counted(bench, {"a": local, "c": local | received}, ranged)
    before, bench.counted = bench.counted, {}
    bench.send(Republish())
    assert bench.counted == before
    assert (bench.counted["c"]["withheld"] > 0) == (reduction != "none")
    assert ("negative_boxes" in bench.counted["c"]) == (reduction == "negative-space")
    bench.send(bench.change(removed=[id.removeprefix("b/") for id in local]))
    check_counted(bench, {"a": {}, "c": received}, ranged)


@pytest.mark.parametrize(("reduction", "parameters"), MODES, ids=[" ".join(mode).strip() for mode in MODES])
def test_what_was_offered_and_sent_is_counted_alike(reduction, parameters):
    """Entries, or ranges where those are forwarded: what nobody covers is offered and sent to both neighbours, what is
    covered is offered and not sent.
    """
    bench = Bench(reduction, parameters=parameters)
    ranged = reduction == "mics" and "indexed" not in parameters
    for x, y in ((0, 0), (6, 0), (0, 6), (6, 6)):
        bench.subscribe(f"{x}{y}", box(x, y))
        assert (bench.result.figures["entries_offered"], bench.result.figures["entries_sent"]) == (2, 2)
    bench.subscribe("00", box(1, 1))  # instead of another: a neighbour that is told ranges forgets one, and learns one
    replaced = bench.result.figures
    assert (replaced["entries_offered"], replaced["entries_sent"]) == ((4, 4) if ranged else (2, 2))
    bench.subscribe("again", box(1, 1))
    covered = bench.result.figures
    assert (covered["entries_offered"], covered["entries_sent"]) == (2, 2 if reduction == "none" else 0)
    bench.send(bench.change(removed=["66", "again"]))
    gone = bench.result.figures
    assert (gone["entries_offered"], gone["entries_sent"]) == (4, 4 if reduction == "none" else 2)


def test_negative_boxes_are_those_of_what_nothing_covers():
    """One box in the middle of a plane leaves four around it; the whole plane leaves none."""
    bench = Bench("negative-space")
    bench.subscribe("middle", box(3, 3))
    assert bench.counted["a"]["negative_boxes"] == 4
    bench.subscribe("all", Boxes.everything(2))
    assert (bench.counted["a"]["negative_boxes"], bench.counted["a"]["received"]) == (0, 2)


def test_what_advertisements_hold_back_is_counted():
    """Received entries are forwarded, withheld or held back; an advertisement lets go of what it meets."""
    bench = Bench("covering", "true")
    bench.subscribe("left", box(0, 0, 2, 2))
    bench.subscribe("inside", box(0, 0))
    bench.subscribe("right", box(5, 5))
    told = {"received": 3, "held_back": 3, "forwarded": 0, "withheld": 0}
    assert {name: bench.counted["c"][name] for name in told} == told
    advertised = Advertised("c/ad", "publisher", "x < 3", pack(box(0, 0, 3, 8)))
    bench.send(bench.change("c/t/cube:0", advertised=[advertised]))
    told = {"received": 3, "held_back": 1, "forwarded": 1, "withheld": 1}
    assert {name: bench.counted["c"][name] for name in told} == told
    assert bench.counted["a"]["held_back"] == 3


def test_a_rebuilt_generation_has_the_same_figures():
    """What the registry is folded into tells of itself what the changes one by one told."""
    context = Bench("covering").context
    filters = {"large": "x < 4", "small": "x = 1", "other": "y > 6"}
    facts = [("subscription", "b", "t", id, fact(text, i)) for i, (id, text) in enumerate(filters.items())]
    rebuilt = rebuild(facts, context)
    told, states = rebuilt.reduced[str(KEY)], decode_state(rebuilt.states[str(KEY)]).reductions
    assert {n: f["bytes"] for n, f in told.items()} == {n: len(blob) for n, blob in states.items()}
    assert {n: {name: f[name] for name in ("received", "forwarded", "withheld")} for n, f in told.items()} == {
        "a": {"received": 3, "forwarded": 2, "withheld": 1},
        "c": {"received": 3, "forwarded": 2, "withheld": 1},
    }


def test_the_words():
    """Covered by one, by several together, merged, forwarded: each reduction says what its method does."""
    for reduction, expected in (
        ("none", FORWARDED),
        ("covering", FORWARDED),
        ("merging", Fate("merged", ("b/left",))),
        ("hybrid", Fate("covered", ("b/left", "b/right"))),
        ("negative-space", Fate("covered", ("b/left", "b/right"))),
    ):
        bench = Bench(reduction)
        bench.subscribe("left", box(0, 0, 3, 8))
        bench.subscribe("right", box(3, 0, 3, 8))
        bench.subscribe("middle", box(2, 2, 2, 2))
        assert _in_order(bench.said["a"]["b/middle"]) == expected, reduction
    bench = Bench("mics")
    bench.subscribe("first", box(0, 0, 2, 2))
    assert bench.said["c"]["b/first"] == Fate("forwarded", ("0000000000000000-0000000000000003",))
    bench.subscribe("whole", box(0, 0, 8, 8))
    assert bench.said["c"]["b/first"] == Fate("merged", ("0000000000000000-000000000000003f",))


def _in_order(fate):
    """The fate with the ids that it names in the order of the alphabet."""
    return Fate(fate.how, tuple(sorted(fate.by)), fate.more)


def test_what_no_advertisement_meets_is_held_back():
    """With advertisements, an entry that meets none from a neighbour is said to be held back, until one comes."""
    bench = Bench("covering", "true")
    bench.subscribe("s", box(0, 0))
    assert bench.said["c"] == bench.said["a"] == {"b/s": HELD_BACK}
    advertised = Advertised("c/ad", "publisher", "x < 3", pack(box(0, 0, 3, 8)))
    bench.send(bench.change("c/t/cube:0", advertised=[advertised]))
    assert bench.said == {"c": {"b/s": FORWARDED}, "a": {"b/s": HELD_BACK}}
    bench.send(bench.change("c/t/cube:0", unadvertised=["c/ad"]))
    assert bench.said["c"] == {"b/s": HELD_BACK}


def test_only_neighbours_concerned_are_told_of():
    """A change from a neighbour says nothing of that neighbour; a request to publish says all."""
    bench = Bench("covering")
    bench.subscribe("s", box(0, 0))
    assert set(bench.result.forwarding) == {"a", "c"}
    bench.send(bench.change("a/t/cube:0", entries=[Entry("a/r", pack(box(0, 0)))]))
    both = {"b/s": FORWARDED, "a/r": Fate("covered", ("b/s",))}
    assert bench.result.forwarding == {"c": both}
    bench.send(Republish())
    assert bench.result.forwarding == {"a": {"b/s": FORWARDED}, "c": both}


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_many_entries_are_not_all_shown(reduction):
    """What is said of a part is bounded, however many entries it has."""
    bench = Bench(reduction)
    entries = [LocalEntry(f"s{i}", "c", "t", None, pack(box(i % 8, i // 8 % 8))) for i in range(READABLE_MAX + 100)]
    bench.send(bench.change(local=entries))
    bound = READABLE_RANGED_MAX if reduction == "mics" else READABLE_MAX
    assert sum(map(len, bench.said.values())) == bound


@pytest.mark.parametrize(("reduction", "parameters"), MODES)
@pytest.mark.parametrize("advertisements", ["false", "true"])
def test_what_is_not_said_again_is_still_true(reduction, parameters, advertisements, monkeypatch):
    """A batch leaves out a neighbour only if what was said of it last is what the state would say now."""
    monkeypatch.setattr(part, "READABLE_MAX", 12)
    monkeypatch.setattr(part, "READABLE_RANGED_MAX", 12)
    for seed in range(2):
        rng, bench, last, ids = random.Random(seed), Bench(reduction, advertisements, parameters=parameters), 0, []
        if advertisements == "true":
            promised = [Advertised(f"{n}/ad", "p", "x < 6", pack(box(0, 0, 6, 8))) for n in "ac"]
            bench.send(*(bench.change(f"{ad.id[0]}/t/cube:0", advertised=[ad]) for ad in promised))
        for _ in range(20):
            news = [f"s{last + i}" for i in range(rng.choice((1, 3, 33)))]
            last += len(news)
            again = rng.sample(ids, min(len(ids), 2)) if rng.random() < 0.3 else []
            gone = [id for id in rng.sample(ids, min(len(ids), 3)) if id not in again] if rng.random() < 0.3 else []
            ids = [id for id in ids if id not in gone] + news
            boxes = {id: box(rng.randrange(5), rng.randrange(5), rng.choice((1, 1, 1, 3)), 1) for id in (*news, *again)}
            if rng.random() < 0.1:
                boxes[news[0]] = Boxes.empty(2)
            if rng.random() < 0.3 and reduction != "mics":
                entries = [Entry(f"a/r{last}.{i}", pack(box(rng.randrange(8), rng.randrange(8)))) for i in range(9)]
                bench.send(bench.change("a/t/cube:0", entries=entries))
                assert bench.said == part.Part(KEY, bench.state, bench.context).forwarding(bench.said)
            local = [LocalEntry(id, "client", "topic", None, pack(one)) for id, one in boxes.items()]
            bench.send(bench.change(local=local, removed=gone))
            assert bench.said == part.Part(KEY, bench.state, bench.context).forwarding("ac")


@pytest.mark.parametrize("reduction", ["none", "covering"])
def test_what_is_behind_those_that_are_shown_says_nothing(reduction, monkeypatch):
    """Entries that come behind those that are shown, and cover none, have nothing said of the part."""
    monkeypatch.setattr(part, "READABLE_MAX", 4)
    bench = Bench(reduction)
    for i in range(8):
        bench.subscribe(f"s{i}", box(i, 0))
        assert set(bench.result.forwarding) == ({"a", "c"} if i < 2 else set())
    bench.subscribe("wide", box(0, 0, 8, 1))
    assert set(bench.result.forwarding) == (set() if reduction == "none" else {"a", "c"})
    assert set(bench.result.reduced) == {"a", "c"}


def test_redis_keeps_the_fates(services, unique):
    """Published as JSON; what is said of one neighbour replaces what was said of it, and leaves that of others."""
    bench = Bench("covering", prefix=unique, redis=services.redis)
    index = RedisIndex(bench.config)
    bench.subscribe("s", box(0, 0))
    bench.subscribe("t", box(0, 0, 2, 2))
    index.publish({KEY: bench.index}, 1, 1, {KEY: bench.result.forwarding})
    covered = Fate("covered", ("b/t",))
    assert index.forwarding(KEY, "a", ["b/s", "b/t", "b/u"]) == [covered, FORWARDED, None]
    client = redis.Redis.from_url(services.redis)
    name = f"{unique}:b:t:cube:0:forwarding:a"
    assert json.loads(client.hget(name, "b/s")) == {"how": "covered", "by": ["b/t"]}
    client.hset(name, "b/t", "forwarded, in the words of another version")
    assert index.forwarding(KEY, "a", ["b/s", "b/t"]) == [covered, None]
    index.publish({KEY: bench.index}, 1, 2, {KEY: {"c": {"b/t": FORWARDED}}})
    assert index.forwarding(KEY, "c", ["b/s", "b/t"]) == [None, FORWARDED]
    assert index.forwarding(KEY, "a", ["b/s"]) == [covered]
    assert index.forwarding(KEY, "nobody", ["b/s"]) == [None]
    assert index.forwarding(KEY, "a", []) == []
    index.close()


def test_redis_keeps_the_figures(services, unique):
    """Readable numbers under a key that the help names; publishing replaces those of the neighbours that it names."""
    bench = Bench("covering", prefix=unique, redis=services.redis)
    index = RedisIndex(bench.config)
    bench.subscribe("s", box(0, 0))
    bench.subscribe("t", box(0, 0, 2, 2))
    index.publish({KEY: bench.index}, 1, 1, reduced={KEY: bench.result.reduced})
    both = [(KEY, "a"), (KEY, "c")]
    assert index.reduced(both) == [bench.counted["a"], bench.counted["c"]]
    client = redis.Redis.from_url(services.redis, decode_responses=True)
    assert client.hget(f"{unique}:b:t:cube:0:reduction:a", "withheld") == "1"
    assert "PART:reduction:NEIGHBOUR" in client.get(f"{unique}:help")
    index.publish({KEY: bench.index}, 1, 2, reduced={KEY: {"c": {}}})
    assert index.reduced([*both, (KEY, "nobody")]) == [bench.counted["a"], {}, {}]
    index.close()
    client.close()


@pytest.mark.parametrize("reduction", ["covering", "mics"])
def test_what_people_read_changes_with_the_index(reduction, services, unique):
    """Written by difference, it says the same as if all of it had been written."""
    bench = Bench(reduction, prefix=unique, redis=services.redis)
    index, client = RedisIndex(bench.config), redis.Redis.from_url(services.redis, decode_responses=True)
    draw, wholes = random.Random(4), 0

    def whole():
        nonlocal wholes
        wholes += 1
        return bench.index

    def read():
        names = {what: f"{unique}:b:t:cube:0:{what}" for what in ("meta", "local", "links")}
        said = {what: client.hgetall(name) for what, name in names.items()}
        return said | {"meta": {name: text for name, text in said["meta"].items() if name != "built"}}

    for batch in range(1, 60):
        id, where = f"s{draw.randrange(9)}", box(draw.randrange(8), draw.randrange(8))
        asked = where if reduction == "covering" else bench.grid.ranges(where)
        bench.send(_drawn(bench, draw, id, where, asked))
        index.publish_deltas(KEY, bench.result.deltas, whole, 1, batch, {}, {})
        by_difference = read()
        index.publish({KEY: bench.index}, 1, batch)
        assert read() == by_difference
    assert wholes < 5
    index.close()
    client.close()


def _drawn(bench, draw, id, where, asked):
    kind = draw.randrange(4)
    if kind == 0:
        return bench.change(local=[LocalEntry(id, "client", "topic", draw.choice((None, "x = 3")), pack(where))])
    if kind == 1:
        return bench.change(removed=[id])
    if kind == 2:
        return bench.change("a/t/cube:0", entries=[Entry(f"a/{id}", pack(asked))])
    return bench.change("a/t/cube:0", removed=[f"a/{id}"])
