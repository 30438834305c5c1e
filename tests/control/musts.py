"""Checks of the protocol's musts, each a function that fails if the must is broken; `test_mutants.py` breaks them."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import msgspec
import redis

from state.compiled_part import CompiledPart, LocalEntry, compile_part
from state.config import parse
from state.control import handle as core
from state.control import home, part
from state.control.context import Context
from state.control.facts import Kind, decode_fact, ends
from state.control.home import Home
from state.control.part import Part
from state.control.protocol import Advertised, Amend, Change, Entry, Expire, Forget, Renew, Resync, decode, encode
from state.control.streams import Outbox, seeds
from state.errors import HilcastError
from state.index_delta import IndexDelta, encode_delta
from state.index_mark import Mark
from state.keys import Key, home_key, index_keys, shard
from state.messages import Output, Record
from state.redis_index import CLOSED, RedisIndex
from state.signing import Keyring, genuine
from state.space.boxes import Boxes
from state.space.packing import Packed, pack, unpack
from tests.simulation.invariants import check, home_keys
from tests.simulation.wire import Event
from tests.simulation.world import World

CONFIG = """
[deployment]
prefix = "{prefix}"
redis = "{redis}"
[overlay]
brokers = ["b1", "b2", "b3"]
links = [["b1", "b2"], ["b2", "b3"]]
[types.t]
reduction = "covering"
cubes = 16
index = ["x", "y"]
[types.t.attributes]
x = {{ kind = "int", min = 0, max = 100 }}
y = {{ kind = "int", min = 0, max = 100 }}
"""
SUBSCRIPTIONS = "hilcast.subscriptions"
ADVERTISEMENTS = "hilcast.advertisements"
WORDED = """
[overlay]
brokers = ["b1", "b2", "b3"]
links = [["b1", "b2"], ["b2", "b3"]]
[types.t]
reduction = "covering"
advertisements = true
[types.t.attributes]
title = { kind = "text" }
"""
PRUNED = """
[settings]
home_shards = 1
[overlay]
brokers = ["b1", "b2", "b3"]
links = [["b1", "b2"], ["b2", "b3"]]
[types.t]
cubes = 64
index = ["x", "y"]
advertisements = true
pruning = { advertisements = 1, subscriptions = 2 }
[types.t.attributes]
x = { kind = "int", min = 0, max = 63 }
y = { kind = "int", min = 0, max = 63 }
"""


def config_of(prefix="hilcast", url="redis://127.0.0.1:6379/0"):
    return parse(CONFIG.format(prefix=prefix, redis=url))


def subscribe(world, id, text, broker="b1", client=None, **more):
    return world.send(SUBSCRIPTIONS, f"{broker}/t/{id}", {"client": client or id, "filter": text, **more})


def got(world, x, y, broker="b3"):
    deliveries, _ = world.publish(Event("e", "t", broker, msgspec.json.encode({"x": x, "y": y})))
    return {d.client for d in deliveries}


def home_alone_decides_what_is_stale():
    """An older version, and an equal one with other content, change nothing."""
    world = World(config_of())
    subscribe(world, "s", "x < 5", version=5)
    world.settle()
    subscribe(world, "s", "x < 50", version=4)
    subscribe(world, "s", "x < 60", version=5)
    world.settle()
    assert got(world, 3, 3) == {"s"}
    assert got(world, 30, 3) == set()


def old_cubes_forget_a_replaced_filter():
    """A filter replaced by one in other cubes is gone from the cubes of the old one, at every broker."""
    world = World(config_of())
    subscribe(world, "s", "x < 5 AND y < 5")
    world.settle()
    subscribe(world, "s", "x > 95 AND y > 95")
    world.settle()
    assert got(world, 3, 3) == set()
    assert got(world, 98, 98) == {"s"}


def a_replacement_keeps_its_kind_of_key():
    """An event that matches the old and the new filter is delivered at every moment, wide or narrow."""
    for before, after in (("x < 5 AND y < 5", "x < 90"), ("x < 90", "x < 5 AND y < 5")):
        world = World(config_of())
        subscribe(world, "s", before)
        world.settle()
        subscribe(world, "s", after)
        deployment = world.deployments[0]
        for _ in range(8):
            deployment.step()
            _assert_kept_by_each_part(deployment)
        assert got(world, 3, 3) == {"s"}


def _assert_kept_by_each_part(deployment):
    """Whatever mixture of old and new parts a worker has loaded, the point (3, 3) finds the subscription."""
    for key in index_keys(deployment.config, ("b1",)):
        part = deployment.index[key]
        if "s" in part.ids:
            kinds = {k.is_wide for k in index_keys(deployment.config, ("b1",)) if "s" in deployment.index[k].ids}
            assert len(kinds) == 1
            seen = deployment.__dict__.setdefault("kinds", kinds)
            assert seen == kinds, "the subscription moved between cube and wide keys"


def a_tombstone_keeps_the_version():
    """What was withdrawn cannot come back under an older version."""
    world = World(config_of())
    subscribe(world, "s", "x < 5", version=5)
    world.send(SUBSCRIPTIONS, "b1/t/s", None)
    subscribe(world, "s", "x < 50", version=5)
    world.settle()
    assert got(world, 3, 3) == set()


def an_id_may_be_used_for_both_kinds():
    """A subscription and an advertisement of one id stand side by side, here and in the registry."""
    world = World(config_of())
    subscribe(world, "s", "x < 5")
    world.send(ADVERTISEMENTS, "b1/t/s", {"publisher": "p", "filter": "x > 9"})
    world.settle()
    assert {r.key for r in world.log.topics["hilcast.registry"]} == {b"subscription/b1/t/s", b"advertisement/b1/t/s"}
    world.send(SUBSCRIPTIONS, "b1/t/s", None)
    world.deployments[0].begin()
    world.settle()
    held = {a for p in world.deployments[0].index.values() for a in p.advertisements}
    assert held == {("p", "x > 9")}
    assert got(world, 3, 3) == set()


def _tell_home(world, message):
    key = str(home_key("b1", "t", "s", world.config))
    world.log.append(Output("hilcast.control", key.encode(), encode(message)))
    world.settle()


def only_the_version_that_lapsed_expires():
    """A timer of a version that was replaced ends nothing."""
    world = World(config_of())
    subscribe(world, "s", "x < 5", version=1, ttl_ms=5)
    subscribe(world, "s", "x < 50", version=2)
    world.settle()
    _tell_home(world, Expire(False, "s", 1))
    assert got(world, 30, 3) == {"s"}
    _tell_home(world, Expire(False, "s", 2))
    assert got(world, 30, 3) == set()


def only_a_tombstone_is_forgotten():
    """What lives again, or was withdrawn again since, is not forgotten when the first tombstone's time has passed."""
    world = World(config_of())
    subscribe(world, "s", "x < 5", version=1)
    world.settle()
    _tell_home(world, Forget(False, "s", 1))
    assert [r.value is None for r in world.log.topics["hilcast.registry"]] == [False]
    world.send(SUBSCRIPTIONS, "b1/t/s", None)
    world.settle()
    _tell_home(world, Forget(False, "s", 1))
    assert [r.value is None for r in world.log.topics["hilcast.registry"]] == [False, False]
    _tell_home(world, Forget(False, "s", 2))
    assert world.log.topics["hilcast.registry"][-1].value is None


def _change(sequence, added=(), removed=(), snapshot=False, generation=1, grid=None, source="b2/t/cube:0", **more):
    entries = [Entry(id, pack(box)) for id, box in added]
    return Change(
        source=source,
        generation=generation,
        sequence=sequence,
        grid=grid,
        snapshot=snapshot,
        entries=entries,
        removed=list(removed),
        **more,
    )


def _cube(hosts=()):
    context = Context(config_of(), 1, 0, hosts)
    return Part(Key("b1", "t", "cube:0"), None, context), context.dialect("t")


BOX = Boxes.of([([1, 1], [2, 2])])


def what_is_older_is_ignored():
    """A repeated message does not bring back what was removed."""
    cube, grid = _cube()
    cube.apply(_change(1, [("a", BOX)], grid=grid))
    cube.apply(_change(2, removed=["a"], grid=grid))
    cube.apply(_change(1, [("a", BOX)], grid=grid))
    assert cube.state.received["b2"] == {}
    cube.apply(_change(3, [("b", BOX)], snapshot=True, grid=grid))
    cube.apply(_change(4, removed=["b"], grid=grid))
    cube.apply(_change(3, [("b", BOX)], snapshot=True, grid=grid))
    assert cube.state.received["b2"] == {}
    assert not cube.incoming.gaps


def a_gap_asks_for_a_snapshot():
    """A missing message is noticed, nothing after it is applied, and a snapshot is asked for."""
    cube, grid = _cube()
    cube.apply(_change(1, [("a", BOX)], grid=grid))
    cube.apply(_change(3, [("c", BOX)], grid=grid))
    assert set(cube.state.received["b2"]) == {"a"}
    asked = [decode(o.value) for o in cube.finish().outputs if o.key == b"b2/t/cube:0"]
    assert any(isinstance(message, Resync) for message in asked)


def a_snapshot_replaces_what_was_said_before():
    """A snapshot of a higher generation is taken whole: what it does not name is gone."""
    cube, grid = _cube()
    cube.apply(_change(1, [("a", BOX)], grid=grid, advertised=[Advertised("b2/a", "p", "", pack(BOX))]))
    cube.apply(_change(1, [("b", BOX)], snapshot=True, generation=2, grid=grid))
    assert set(cube.state.received["b2"]) == {"b"}
    assert cube.state.advertised["b2"] == {}
    cube.apply(_change(2, [("a", BOX)], generation=1, grid=grid))
    assert set(cube.state.received["b2"]) == {"b"}


def a_homes_snapshot_leaves_what_other_homes_said():
    """A snapshot of one home key removes nothing of another's, though both are this broker's own clients'."""
    cube, grid = _cube()
    shards = cube.context.config.settings.home_shards
    ids = {shard(id, shards): id for id in map(str, range(100))}
    for number, id in ids.items():
        entry = LocalEntry(id, "c", "t", None, pack(BOX))
        cube.apply(_change(1, source=f"b1/t/home:{number}", grid=grid, local=[entry]))
    cube.apply(_change(2, source="b1/t/home:0", grid=grid, snapshot=True))
    assert set(cube.state.local) == set(ids.values()) - {ids[0]}


def a_snapshot_that_misses_a_piece_is_not_taken():
    """Of a snapshot in pieces none may be missing: it is asked for again, and nothing is removed meanwhile."""
    cube, grid = _cube()
    cube.apply(_change(1, [("a", BOX)], grid=grid))
    cube.apply(_change(2, [("b", BOX)], snapshot=True, grid=grid, piece=0, pieces=2))
    cube.apply(_change(2, [("b", BOX)], snapshot=True, grid=grid, piece=0, pieces=2))
    assert not cube.incoming.gaps
    cube.apply(_change(4, [("d", BOX)], snapshot=True, grid=grid, piece=2, pieces=3))
    assert cube.incoming.gaps == {"b2/t/cube:0"}
    assert set(cube.state.received["b2"]) == {"a"}
    # the next piece of one stream does not complete what was lost of a snapshot that began after it
    cube, grid = _cube()
    cube.apply(_change(1, [("a", BOX)], grid=grid))
    cube.apply(_change(2, [("c", BOX)], snapshot=True, grid=grid, piece=1, pieces=2))
    assert cube.incoming.gaps == {"b2/t/cube:0"}
    assert set(cube.state.received["b2"]) == {"a"}


def a_snapshot_fills_the_gap_before_it():
    """Where the snapshot comes in the very batch that saw the gap, nothing is asked for."""
    cube, grid = _cube()
    cube.apply(_change(2, [("a", BOX)], grid=grid))
    assert cube.incoming.gaps == {"b2/t/cube:0"}
    cube.apply(_change(3, [("b", BOX)], snapshot=True, grid=grid))
    assert not [o for o in cube.finish().outputs if isinstance(decode(o.value), Resync)]


def another_deployment_begins_with_a_snapshot():
    """What another deployment's key says is not the beginning of its stream unless it is a snapshot."""
    cube, grid = _cube(hosts=("b1",))
    cube.apply(_change(1, [("a", BOX)], grid=grid))
    assert cube.incoming.gaps == {"b2/t/cube:0"}
    cube.apply(_change(7, [("a", BOX)], snapshot=True, grid=grid))
    cube.apply(_change(8, [("b", BOX)], grid=grid))
    assert set(cube.state.received["b2"]) == {"a", "b"}


def a_request_in_another_dialect_is_not_answered():
    """Whoever speaks of another grid gets no snapshot: it would not understand it."""
    cube, grid = _cube()
    home = Home(Key("b1", "t", "home:0"), None, cube.context)
    cube.resync(Resync("b2/t/cube:0", "other"))
    home.resync(Resync("b1/t/cube:0", "other"))
    assert (cube.snapshots, home.snapshots) == (set(), set())
    cube.resync(Resync("b2/t/cube:0", grid))
    home.resync(Resync("b1/t/cube:0", grid))
    assert (cube.snapshots, home.snapshots) == ({"b2"}, {"cube:0"})


def another_grid_is_not_understood():
    """A message that speaks of another grid is not applied."""
    cube, _ = _cube()
    cube.apply(_change(1, [("a", BOX)], grid="other"))
    assert "b2" not in cube.state.received


def removals_travel_behind_all_additions():
    """When a change is too long for one message, nothing is removed before everything was added."""
    outbox = Outbox(Key("b1", "t", "cube:0"), 1, "grid", {})
    big = Packed(0, 2, b"\0" * 150_000, b"\0" * 150_000)
    gone = [f"b1/{i:060}" for i in range(10_000)]
    change = outbox.change("b2/t/cube:0", entries=[Entry("p", big), Entry("q", big)], removed=gone)
    messages = [m for _, m in change]
    assert [len(m.entries) for m in messages] == [1, 1, 0]
    assert messages[0].removed == []
    assert [id for m in messages for id in m.removed] == gone
    assert [m.sequence for m in messages] == [1, 2, 3]


def a_change_in_pieces_is_one_step():
    """Of a change that was cut into pieces nothing is applied before the last piece has come; repeats are none."""
    cube, grid = _cube()
    small = Boxes.of([([1, 1], [1, 1])])
    cube.apply(_change(1, [("a", BOX)], grid=grid))
    first = _change(2, [("a", small)], grid=grid, piece=0, pieces=2)
    last = _change(3, [("b", BOX)], grid=grid, piece=1, pieces=2)
    cube.apply(first)
    cube.apply(first)
    assert unpack(cube.state.received["b2"]["a"].geometry) == BOX
    cube.apply(last)
    assert unpack(cube.state.received["b2"]["a"].geometry) == small
    assert set(cube.state.received["b2"]) == {"a", "b"}


def promoted_before_removed_in_one_step():
    """Withdrawing what covers another never leaves a neighbour without the other, after any message."""
    world = World(config_of())
    subscribe(world, "wide", "x < 20 AND y < 20")
    subscribe(world, "narrow", "x < 5 AND y < 5")
    world.settle()
    world.send(SUBSCRIPTIONS, "b1/t/wide", None)
    while world.deployments[0].behind():
        world.deployments[0].step()
        assert "narrow" in got(world, 3, 3)
    assert got(world, 3, 3) == {"narrow"}
    assert got(world, 10, 10) == set()


def nothing_goes_back_where_it_came_from():
    """A neighbour is told nothing of what it said itself."""
    world = World(config_of())
    subscribe(world, "s", "x < 5 AND y < 5", broker="b1")
    world.settle()
    links = [(k.broker, n) for k, p in world.deployments[0].index.items() for n in p.links]
    assert set(links) == {("b2", "b1"), ("b3", "b2")}


def only_what_was_advertised_for_goes_there():
    """A subscription goes where an advertisement that it meets came from: when that comes, and until it goes."""
    world = World(parse(PRUNED.replace("pruning", "# pruning")))
    subscribe(world, "s", "x < 5 AND y < 5")
    world.send(ADVERTISEMENTS, "b3/t/far", {"publisher": "p", "filter": "x > 60"})
    world.settle()
    assert not any(part.links for part in world.deployments[0].index.values())
    world.send(ADVERTISEMENTS, "b3/t/near", {"publisher": "p", "filter": "x < 9"})
    world.settle()
    assert {k.broker for k, p in world.deployments[0].index.items() if p.links} == {"b2", "b3"}
    world.send(ADVERTISEMENTS, "b3/t/near", None)
    world.settle()
    assert not any(part.links for part in world.deployments[0].index.values())


def what_stands_for_others_has_no_words():
    """Of two filters with the same boxes one stands for both: its words must not keep the other from travelling on."""
    world = World(parse(WORDED))
    one, other = "The Silent River of Lima", "The Silent River of Oslo"
    world.send(ADVERTISEMENTS, "b2/t/both", {"publisher": "p", "filter": "title LIKE 'The%'"})
    world.send(ADVERTISEMENTS, "b3/t/other", {"publisher": "p", "filter": f"title = '{other}'"})
    for number, title in enumerate((one, other)):
        world.settle()
        world.send(SUBSCRIPTIONS, f"b1/t/{number}", {"client": f"c{number}", "filter": f"title = '{title}'"})
    world.settle()
    (outcome,) = world.publish_all([Event("e", "t", "b3", json.dumps({"title": other}).encode(), "p")])
    assert {delivery.client for delivery in outcome.deliveries} == {"c1"}


def a_new_generation_opens_with_snapshots():
    """After one deployment lost everything, the other's table is again what it says, without any new event."""
    world = World(config_of(), [("b1", "b2"), ("b3",)])
    subscribe(world, "s", "x < 5 AND y < 5")
    subscribe(world, "t", "x < 5 AND y < 5", broker="b3")
    world.settle()
    world.send(SUBSCRIPTIONS, "b1/t/s", None)
    deployment = world.deployments[0]
    deployment.positions[SUBSCRIPTIONS] = world.log.end(
        SUBSCRIPTIONS
    )  # the withdrawal was registered, then all was lost
    home = next(r for r in reversed(world.log.topics["hilcast.registry"]) if r.key == b"subscription/b1/t/s")
    fact = rebuild_fact(home.value, live=False)
    world.log.append(Output("hilcast.registry", home.key, fact))
    deployment.begin()
    world.settle()
    held = [k for k, p in world.deployments[1].index.items() if k.broker == "b3" and "b2" in p.links]
    boxes = [unpack(world.deployments[1].index[k].links["b2"]) for k in held]
    assert not any(len(b) for b in boxes), "b3 still holds what b1 withdrew"
    assert got(world, 3, 3, "b1") == {"t"}


def rebuild_fact(value, live):
    fact = msgspec.json.decode(value)
    return msgspec.json.encode({**fact, "live": live, "ended": "withdrawn", "version": fact["version"] + 1})


def records_are_applied_in_order():
    """Rows of a batch come in no order; they are applied by topic, partition and offset."""
    for seed in range(5):
        world = World(config_of())
        for i in range(12):
            subscribe(world, "s", f"x < {i + 1} AND y < 50")
        records = world.log.topics[SUBSCRIPTIONS]
        random.Random(seed).shuffle(records)
        world.settle()
        assert got(world, 11, 3) == {"s"}
        assert got(world, 12, 3) == set()
        assert len(world.log.topics["hilcast.receipts"]) == 12


def a_replay_writes_the_same_bytes():
    """Handling the same records on the same state gives the same state and the same outputs, bit for bit."""
    world = World(config_of())
    for i in range(30):
        subscribe(world, f"s{i}", f"x < {i % 7 + 1} AND y < {i % 5 + 1}")
    context = Context(world.deployments[0].config, 1, 3)
    records = list(world.log.topics[SUBSCRIPTIONS])
    by_key = {}
    for record in records:
        by_key.setdefault(world.deployments[0]._owner(record), []).append(record)
    for key, some in by_key.items():
        first, second = core.handle(key, None, some, context), core.handle(key, None, list(reversed(some)), context)
        assert (first.state, first.outputs) == (second.state, second.outputs)


def a_replay_of_the_inbox_is_not_new():
    """Reading an inbox again after everything was lost brings back nothing that was replaced or withdrawn."""
    world = World(config_of())
    subscribe(world, "s", "x < 5 AND y < 5")
    subscribe(world, "s", "x > 95 AND y > 95")
    subscribe(world, "gone", "x < 5 AND y < 5")
    world.send(SUBSCRIPTIONS, "b1/t/gone", None)
    world.settle()
    deployment = world.deployments[0]
    deployment.committed = {}
    deployment.begin()
    inbox = world.log.topics[SUBSCRIPTIONS][:]
    del world.log.topics[SUBSCRIPTIONS][1:]  # the first record comes alone, as in a batch cut short
    world.settle()
    assert got(world, 3, 3) == set()
    world.log.topics[SUBSCRIPTIONS][:] = inbox
    world.settle()
    assert got(world, 3, 3) == set()
    assert got(world, 98, 98) == {"s"}


def _seeded(*records, state=None):
    """What a part holds after these records of the control topic came in one batch of generation 2."""
    context = Context(config_of(), 2, 0)
    key = Key("b1", "t", "cube:0")
    given = [Record("hilcast.control", 0, i, 0, str(key).encode(), encode(m)) for i, m in enumerate(records)]
    result = core.handle(str(key), state, given, context)
    return result.state, Part(key, result.state, context).state.local


def _state_with(id):
    entry = LocalEntry(id, "c", "t", None, pack(BOX))
    return part.encode_state(part.PartState(local={id: entry}))


def a_seed_that_comes_again_is_no_new_beginning():
    """A key that has begun its generation keeps what came since, whoever writes its seed again."""
    seed = seeds(2, _state_with("a"))
    state, local = _seeded(*seed, *seed)
    assert set(local) == {"a"}
    entry = LocalEntry("b", "c", "t", None, pack(BOX))
    change = _change(1, generation=2, source="b1/t/home:0", grid=Context(config_of(), 2, 0).dialect("t"), local=[entry])
    state, local = _seeded(change, state=state)
    assert set(local) == {"a", "b"}
    state, local = _seeded(*seed, state=state)
    assert set(local) == {"a", "b"}


def only_the_seed_of_this_generation_counts():
    """A seed that an attempt before this one, or another driver, left in the topic is not taken for ours."""
    assert set(_seeded(*seeds(2, _state_with("a")), *seeds(1, _state_with("b")))[1]) == {"a"}
    assert set(_seeded(*seeds(2, _state_with("a")), *seeds(3, _state_with("b")))[1]) == {"a"}
    assert set(_seeded(*seeds(1, _state_with("b")))[1]) == set()


def amendments_belong_to_the_beginning():
    """What the registry said since a generation was built comes before what its inboxes say, once, and for it alone."""
    topics, config = config_of().topics, config_of()
    key, name = home_key("b1", "t", "a", config), b"b1/t/a"

    def facts(*records, generation, state=None):
        result = core.handle(str(key), state, list(records), Context(config, generation, 0))
        written = [output.value for output in result.outputs if output.topic == topics.registry]
        held = home.decode_state(result.state).facts[Kind.ADVERTISEMENT]
        return result.state, {id: fact.version for id, fact in held.items()}, written

    def sent(offset, version):
        value = msgspec.json.encode({"publisher": "p", "filter": f"x < {version}", "version": version})
        return Record(topics.advertisements, 0, offset, 0, name, value)

    def amended(generation, fact):
        return Record(topics.control, 0, 0, 0, str(key).encode(), encode(Amend(generation, True, "a", fact)))

    _, _, (first,) = facts(sent(0, 1), generation=1)
    state, held, _ = facts(amended(2, first), generation=2)
    assert held == {"a": 1}
    assert facts(amended(2, first), sent(1, 7), generation=2)[1] == {"a": 7}
    assert facts(amended(1, first), generation=2)[1] == {}
    state, held, _ = facts(sent(1, 7), generation=2, state=state)
    assert held == {"a": 7}
    assert facts(amended(2, None), generation=2, state=state)[1] == {"a": 7}


def a_state_of_another_format_is_not_read():
    """States and messages of another version are never guessed at: they raise `state-format`."""
    blob = _state_with("a")
    for read, good in ((part.decode_state, blob), (home.decode_state, home.encode_state(home.HomeState()))):
        assert not _unreadable(read, good)
        assert _unreadable(read, bytes([good[0] + 1]) + good[1:])
        assert _unreadable(read, good[:-1])
    assert _unreadable(decode, encode(Resync("b1/t/cube:0", "grid", format=9)))
    assert _unreadable(decode, b"damaged")


def _unreadable(read, blob):
    try:
        read(blob)
    except HilcastError as error:
        return error.code == "state-format"
    return False


def every_part_has_an_entry():
    """Every part of every broker has an index, even an empty one, so that lost never looks like empty."""
    world = World(config_of())
    assert set(world.deployments[0].index) == set(index_keys(config_of(), ("b1", "b2", "b3")))


# --- pruning --------------------------------------------------------------------------------------------------


def _pruned_world(*filters):
    """Subscriptions at b1, each pruned as far as the budget needs, and an advertisement at b3 of everything."""
    world = World(parse(PRUNED))
    world.send(ADVERTISEMENTS, "b3/t/all", {"publisher": "p", "filter": "TRUE"})
    world.settle()
    for i, text in enumerate(filters):
        subscribe(world, f"s{i}", text)
    world.settle()
    return world


def _routed(world, x, y, broker="b3", source="p"):
    return world.publish_all([Event("e", "t", broker, msgspec.json.encode({"x": x, "y": y}), source)])[0]


ROW, CELL = "x BETWEEN 1 AND 5 AND y BETWEEN 1 AND 2", "x BETWEEN 40 AND 41 AND y BETWEEN 40 AND 41"
WIDER = ((60, 1), (1, 60), (60, 41), (41, 60))
"""Points that only pruned forms of these two hold."""


def a_pruned_filter_is_told_wider_and_delivered_exactly():
    """A link carries what the pruned filter holds; the client gets only what its own filter holds."""
    world = _pruned_world(ROW, CELL)
    carried = [_routed(world, x, y) for x, y in WIDER]
    assert any(outcome.links for outcome in carried), "nothing was pruned"
    assert not any(outcome.deliveries for outcome in carried)
    assert {d.client for d in _routed(world, 1, 1).deliveries} == {"s0"}


def conformance_asks_the_advertisement_as_sent():
    """What only the pruned advertisement holds is refused; what it drew is taken."""
    world = _pruned_world(ROW)
    world.send(ADVERTISEMENTS, "b3/t/a", {"publisher": "q", "filter": "x < 9 AND y < 9"})
    world.settle()
    assert not _routed(world, 1, 1, source="q").refused
    assert _routed(world, 1, 60, source="q").refused
    assert _routed(world, 60, 1, source="q").refused


def pruning_does_not_spread_a_filter():
    """No pruning makes a filter touch more than an eighth of the cubes, whatever the budget."""
    # a column of one of the 64 cubes' width is 8 of them; the two outer values of it lie in two
    world = _pruned_world(*(f"x BETWEEN {i} AND {i + 12} AND y BETWEEN {i} AND {i + 12}" for i in (1, 20, 40)))
    for i in range(3):
        held = [k for k in index_keys(world.config, ("b1",)) if f"s{i}" in _cube_of(world, k).state.local]
        assert 0 < len(held) <= 8


def _cube_of(world, key):
    deployment = world.deployments[0]
    return Part(key, deployment.states.get(str(key)), deployment.context(0))


def what_was_told_of_a_pruned_filter_goes_with_it():
    """After a withdrawal no part of any broker holds anything of the filter, nor of what it was pruned to."""
    world = _pruned_world(ROW, CELL)
    for i in range(2):
        world.send(SUBSCRIPTIONS, f"b1/t/s{i}", None)
    world.settle()
    assert not any(_cube_of(world, k).state.local for k in index_keys(world.config, ("b1",)))
    assert not any(part.links for part in world.deployments[0].index.values())


def room_undoes_prunings():
    """When the budget has room again, neighbours are told the filter as it was sent."""
    world = _pruned_world(ROW, CELL)
    world.send(SUBSCRIPTIONS, "b1/t/s1", None)
    world.settle()
    assert not any(_routed(world, x, y).links for x, y in ((60, 1), (1, 60)))
    assert _routed(world, 1, 1).links


def a_snapshot_tells_what_travels():
    """A part that missed what home said gets the pruned form with the snapshot it asks for, and all parts agree."""
    world = _pruned_world(ROW)
    subscribe(world, "s1", CELL)
    start = world.log.end("hilcast.control")
    world.deployments[0].step()
    for record in world.log.topics["hilcast.control"][start:]:
        world.log.lose("hilcast.control", record.offset)
    dialect = world.deployments[0].context(0).dialect("t")
    for key in index_keys(world.config, ("b1",)):
        world.log.append(Output("hilcast.control", b"b1/t/home:0", encode(Resync(str(key), dialect))))
    world.settle()
    assert _routed(world, 1, 1).links
    assert any(_routed(world, x, y).links for x, y in WIDER), "parts have what was sent, not what travels"
    check(world)


def the_highest_version_can_be_withdrawn():
    """A subscription of version 2^63-1 goes without a version, for there is none above; nothing takes its place."""
    world = World(config_of())
    subscribe(world, "s", "x < 5", version=2**63 - 1)
    world.settle()
    assert got(world, 3, 3) == {"s"}
    subscribe(world, "s", "x < 9")
    world.settle()
    assert got(world, 7, 3) == set(), "no version is left for a replacement"
    world.send(SUBSCRIPTIONS, "b1/t/s", None)
    world.settle()
    assert got(world, 3, 3) == set()


def an_inbox_that_was_made_again_counts_anew():
    """Offsets of a topic that has another id are compared with nothing: what comes there is new."""
    world = World(config_of())
    for text in ("x < 5", "x < 6", "x < 7"):
        subscribe(world, "s", text)
    world.settle()
    world.log.renew(SUBSCRIPTIONS)
    deployment = world.deployments[0]
    deployment.renewed([SUBSCRIPTIONS])
    deployment.begin()
    subscribe(world, "s", "x > 50")
    world.settle()
    assert got(world, 3, 3) == set()
    assert got(world, 60, 3) == {"s"}


def what_is_quarantined_is_not_handled():
    """A record that no query could be got past changes nothing, and is answered."""
    world = World(config_of())
    record = subscribe(world, "s", "x < 5")
    world.quarantined.add(record.place)
    world.settle()
    assert got(world, 3, 3) == set()
    assert [dict(letter.headers)["hilcast_code"] for letter in world.log.topics["hilcast.deadletter"]] == [b"internal"]


# --- where records are signed --------------------------------------------------------------------------------

RING = Keyring((b"k" * 32,))


def _signed_world():
    world = World(config_of(), keyring=RING)
    subscribe(world, "s1", "x < 10")
    world.settle()
    return world


def a_forged_message_is_not_read():
    """What a key is told without the signature of a key of ours changes nothing, and is answered and counted."""
    world = _signed_world()
    told = world.log.topics["hilcast.control"]
    known = next(r for r in told if isinstance(m := decode(r.value), Change) and m.local and r.key.startswith(b"b1/"))
    change = decode(known.value)
    end = msgspec.structs.replace(change, sequence=change.sequence + 1, local=[], removed=["s1"])
    world.log.append(Output("hilcast.control", known.key, encode(end), known.headers))
    world.settle()
    assert got(world, 5, 5) == {"s1"}
    assert world.forged == 1


def all_that_keys_say_is_signed():
    """Every record of the control topic and of the registry can be told from one that nobody of ours wrote."""
    world = _signed_world()
    for topic in ("hilcast.control", "hilcast.registry"):
        assert world.log.topics[topic]
        assert all(genuine(record, RING) for record in world.log.topics[topic])


def the_end_of_a_fact_names_the_fact():
    """The null value that ends a fact, said again after the id was used anew, ends nothing."""
    world = _signed_world()
    world.send(SUBSCRIPTIONS, "b1/t/s1", None)
    world.settle()
    key = str(home_key("b1", "t", "s1", world.config)).encode()
    world.say(Output("hilcast.control", key, encode(Forget(False, "s1", 2))))
    world.settle()
    end = world.log.topics["hilcast.registry"][-1]
    assert end.value is None
    subscribe(world, "s1", "x < 20")
    world.settle()
    gone, fresh = (decode_fact(r.value) for r in world.log.topics["hilcast.registry"][-3::2])
    assert ends(end, gone)
    assert not ends(end, fresh)


def every_fact_is_written_again_by_its_home():
    """Asked to, a home key writes each of its facts again, ended ones too, signed with the key that signs now."""
    world = _signed_world()
    subscribe(world, "s2", "x < 20")
    world.send(SUBSCRIPTIONS, "b1/t/s2", None)
    world.settle()
    before = world.log.end("hilcast.registry")
    for key in home_keys(world.config, ("b1",)):
        world.say(Output("hilcast.control", str(key).encode(), encode(Renew())))
    world.settle()
    again = world.log.topics["hilcast.registry"][before:]
    assert sorted(record.key for record in again) == [b"subscription/b1/t/s1", b"subscription/b1/t/s2"]
    assert [decode_fact(r.value).live for r in sorted(again, key=lambda r: r.key)] == [True, False]
    assert got(world, 5, 5) == {"s1"}


# --- with a real Redis ---------------------------------------------------------------------------------------


def _empty_part():
    return compile_part(CompiledPart.of(2, [], {}, []))


def _refused(call):
    try:
        call()
    except HilcastError as error:
        return error.code
    return None


def redis_refuses_what_is_older(url, prefix):
    """A batch that was overtaken cannot put an old index over a new one."""
    index = RedisIndex(config_of(prefix, url))
    key = Key("b1", "t", "cube:0")
    index.publish({key: _empty_part()}, 2, 7)
    assert _refused(lambda: index.publish({key: _empty_part()}, 2, 6)) == "index-superseded"
    index.publish({key: _empty_part()}, 2, 7)  # a batch that is replayed
    assert index.vector(2)[1][str(key)].epoch == "2.7"
    loaded = index.load([key], 2)[0]
    assert loaded is not None
    assert loaded[0] == "2.7"


def who_was_superseded_writes_nothing(url, prefix):
    """A job whose generation was followed by another cannot write its index any more."""
    index = RedisIndex(config_of(prefix, url))
    key = Key("b1", "t", "cube:0")
    index.publish({key: _empty_part()}, 2, 1)  # written aside, while 1 is in force
    index.point(1, b"{}")
    index.publish({key: _empty_part()}, 1, 1)
    index.publish({key: _empty_part()}, 2, 2)
    index.point(2, b"{}")
    assert _refused(lambda: index.publish({key: _empty_part()}, 1, 2)) == "index-superseded"
    assert index.newest_generation() == 2
    index.retire(2, [key])
    assert index.vector(1)[1] == {}
    assert index.load([key], 1) == [None]
    assert index.load([key], 2) != [None]


def routing_never_goes_back_to_an_older_generation(url, prefix):
    """Who was superseded cannot have routing go by his generation again."""
    index = RedisIndex(config_of(prefix, url))
    assert index.current()[1] is None
    index.point(2, b"{}")
    assert _refused(lambda: index.point(1, b"{}")) == "index-superseded"
    index.point(2, b"{}")
    assert index.current()[1] == 2


def redis_of_another_life_does_not_count(url, prefix):
    """An entry written under another run of Redis, as after a restart from an old dump, counts as lost."""
    config = config_of(prefix, url)
    index = RedisIndex(config)
    keys = index_keys(config, ("b1",))
    index.publish(dict.fromkeys(keys, _empty_part()), 1, 1)
    assert index.missing(keys, 1) == []
    client = redis.Redis.from_url(url)
    client.hset(index.vector_key(1), str(keys[0]), f"1.1.{'0' * 40}")
    assert index.missing(keys, 1) == [keys[0]]
    assert index.missing(keys, 2) == keys


def damage_is_noticed(url, prefix):
    """An index that was changed in Redis by anybody else is not used."""
    index = RedisIndex(config_of(prefix, url))
    key = Key("b1", "t", "cube:0")
    index.publish({key: _empty_part()}, 1, 1)
    client = redis.Redis.from_url(url)
    name = f"{prefix}:b1:t:cube:0:index:1"
    blob = bytearray(client.get(name))
    blob[9] ^= 1  # the epoch it claims
    client.set(name, bytes(blob))
    assert index.load([key], 1) == [None]


def a_forged_index_is_not_used(url, prefix):
    """An index that is whole, but not signed for its place under this run of Redis, counts as lost, and is counted."""
    config = config_of(prefix, url)
    index, stranger = RedisIndex(config, keys=lambda: RING), RedisIndex(config)
    key, other = Key("b1", "t", "cube:0"), Key("b1", "t", "cube:1")
    client = redis.Redis.from_url(url)
    index.publish({key: _empty_part(), other: _empty_part()}, 1, 5)
    run, _ = index.vector(1)
    assert index.load([key], 1, run)[0] is not None
    assert index.load([key], 1, "another run") == [None]
    stranger.publish({key: _empty_part()}, 1, 6)
    assert index.load([key], 1, run) == [None]
    assert stranger.load([key], 1) != [None]
    client.set(f"{prefix}:b1:t:cube:0:index:1", client.get(f"{prefix}:b1:t:cube:1:index:1"))
    assert index.load([key], 1, run) == [None]
    assert index.forged == 3
    # what was forged does not stand against it, though it says to be newer
    assert _refused(lambda: index.publish({key: _empty_part()}, 1, 5)) is None
    assert index.load([key], 1, run)[0] is not None
    assert index.vector(1)[1][str(key)].epoch == "1.5"


def a_forged_pointer_is_not_followed(url, prefix):
    """Routing goes by no generation, and by no configuration, that nobody of ours has written."""
    config = config_of(prefix, url)
    index, stranger = RedisIndex(config, keys=lambda: RING), RedisIndex(config)
    client = redis.Redis.from_url(url)
    index.point(3, b"{}")
    assert (index.current()[1], index.configuration(3)) == (3, b"{}")
    client.hset(f"{prefix}:generations:main", "3", b'{"forged": 1}')
    assert index.configuration(3) is None
    stranger.point(99, b"{}")
    assert index.current()[1] is None
    assert stranger.current()[1] == 99
    assert index.newest_generation() == 0
    index.publish({Key("b1", "t", "cube:0"): _empty_part()}, 3, 1)
    index.point(3, b"{}")
    assert (index.current()[1], index.configuration(3), index.newest_generation()) == (3, b"{}", 3)


def every_write_counts_one_up(url, prefix):
    """The count of writes grows with each, and begins another lineage where it was lost."""
    index = RedisIndex(config_of(prefix, url))
    key = Key("b1", "t", "cube:0")
    marks = []
    for batch in (1, 1, 2):
        index.publish({key: _empty_part()}, 1, batch)
        marks.append(Mark.of(1, *index.vector(1)))
    assert [mark.writes for mark in marks] == [1, 2, 3]
    assert len({mark.lineage for mark in marks}) == 1
    index.disown(1)
    index.publish({key: _empty_part()}, 1, 3)
    after = Mark.of(1, *index.vector(1))
    assert after.writes == 1
    assert after.lineage not in ("", marks[0].lineage)
    assert after.is_behind(marks[2])
    assert marks[2].is_behind(after)


def who_knows_a_vector_reads_what_changed(url, prefix):
    """Whatever happens to Redis, a look from a vector that is known is the same as one at all of it; and it reads no
    field that was not written since, as long as nothing was lost.
    """
    config = config_of(prefix, url)
    index, client, rng = RedisIndex(config), redis.Redis.from_url(url), random.Random(5)
    keys = index_keys(config, ("b1", "b2"))
    vector, changes = index.vector_key(1), f"{prefix}:changes:main:1"
    known, lost, quick = index.look(1), True, 0
    for batch in range(1, 120):
        written = rng.sample(keys, rng.choice((0, 0, 1, 2, len(keys))))
        index.publish(dict.fromkeys(written, _empty_part()), 1, batch)
        if rng.random() < 0.2:
            index.close_destinations(1, {"x": str(batch)})
            written = [*written, CLOSED]
        sound = client.zcard(changes) == client.hlen(vector) - 1 > len(keys) - 1
        harms = (None, None, None, None, None, None, "field", "changes", "one", "vector", "all", "disown")
        harm = rng.choice(harms) if sound else None  # one at a time
        if harm == "field" and written:
            client.hdel(vector, str(written[0]))
        elif harm == "one" and written:
            client.zrem(changes, str(written[0]))
        elif harm in ("changes", "vector", "all"):
            client.delete(*{"changes": [changes], "vector": [vector], "all": [changes, vector]}[harm])
        elif harm == "disown":
            index.disown(1)
        look, whole = index.look(1, known), index.look(1)
        assert (look.run, look.versions) == (whole.run, whole.versions), (batch, harm)
        lost |= harm is not None or not client.exists(vector)
        if not lost:
            quick += 1
            assert look.changed == {str(field) for field in written}, "what was written, and nothing else, is read"
        if rng.random() < 0.8:
            known = look
            complete = client.zcard(changes) == client.hlen(vector) - 1
            lost = not complete
        else:
            lost = True
    assert quick > 10
    index.publish(dict.fromkeys(keys, _empty_part()), 1, 200)
    index.close_destinations(1, {})
    known = index.look(1)
    assert index.look(1, known).changed == frozenset()
    assert index.look(1, replace(known, run="another run")).changed is None
    assert index.look(2, known).versions == {}


def a_delta_is_written_on_what_it_was_made_from(url, prefix):
    """Whatever else Redis holds, or has lost, all of the index is written; a batch that is repeated writes nothing."""
    config, key = config_of(prefix, url), Key("b1", "t", "cube:0")
    index, client, wholes = RedisIndex(config, keys=lambda: RING), redis.Redis.from_url(url), []

    def part(stamp):
        return CompiledPart.of(2, [], {}, [], stamp)

    def write(since, stamp, batch):
        delta = encode_delta(IndexDelta(since=since, put=part(stamp)))

        def whole():
            wholes.append(stamp)
            return compile_part(part(stamp))

        written = index.publish_deltas(key, [delta], whole, 1, batch, {}, {})
        run, vector = index.vector(1)
        read = index.load([key], 1, run)[0]
        assert read is not None
        assert (read[0], read[1].stamp, vector[str(key)].epoch) == (f"1.{batch}", stamp, f"1.{batch}")
        found, wholes[:] = list(wholes), []
        assert written > 0 or not found
        return found

    index.publish({key: compile_part(part(b"a"))}, 1, 1)
    assert write(b"a", b"b", 2) == []
    assert write(b"a", b"c", 3) == [b"c"], "there is b"
    assert write(b"c", b"d", 4) == []
    before = index.vector(1)
    assert write(b"c", b"d", 4) == [], "it is there already"
    assert index.vector(1) == before
    client.delete(f"{prefix}:b1:t:cube:0:index:1")
    assert write(b"d", b"e", 5) == [b"e"], "the base is lost"
    client.delete(f"{prefix}:b1:t:cube:0:deltas:1")
    assert write(b"e", b"f", 6) == [b"f"], "the deltas are lost"
    client.hset(index.vector_key(1), str(key), f"1.6.{'0' * 40}")
    assert write(b"f", b"g", 7) == [b"g"], "it is of another run of Redis"
    client.hdel(index.vector_key(1), str(key))
    assert write(b"g", b"h", 8) == [b"h"], "the entry of the vector is lost"
    looked = index._head(key, 1)
    assert write(b"h", b"i", 9) == []
    index._head = lambda key, generation: looked
    assert write(b"h", b"k", 10) == [b"k"], "somebody else was faster"
    del index._head
    assert write(b"k", b"l", 11) == []
    assert _refused(lambda: write(b"l", b"m", 10)) == "index-superseded", (
        "it is signed by ours, though the base is older"
    )
    wholes.clear()
    assert write(b"l", b"m", 12) == []


PURE = [
    home_alone_decides_what_is_stale,
    a_tombstone_keeps_the_version,
    an_id_may_be_used_for_both_kinds,
    only_the_version_that_lapsed_expires,
    only_a_tombstone_is_forgotten,
    old_cubes_forget_a_replaced_filter,
    a_replacement_keeps_its_kind_of_key,
    what_is_older_is_ignored,
    a_gap_asks_for_a_snapshot,
    a_snapshot_replaces_what_was_said_before,
    a_homes_snapshot_leaves_what_other_homes_said,
    a_snapshot_that_misses_a_piece_is_not_taken,
    a_snapshot_fills_the_gap_before_it,
    another_deployment_begins_with_a_snapshot,
    a_request_in_another_dialect_is_not_answered,
    another_grid_is_not_understood,
    removals_travel_behind_all_additions,
    a_change_in_pieces_is_one_step,
    promoted_before_removed_in_one_step,
    nothing_goes_back_where_it_came_from,
    only_what_was_advertised_for_goes_there,
    what_stands_for_others_has_no_words,
    a_new_generation_opens_with_snapshots,
    records_are_applied_in_order,
    a_replay_writes_the_same_bytes,
    a_replay_of_the_inbox_is_not_new,
    a_seed_that_comes_again_is_no_new_beginning,
    only_the_seed_of_this_generation_counts,
    amendments_belong_to_the_beginning,
    a_state_of_another_format_is_not_read,
    every_part_has_an_entry,
    a_pruned_filter_is_told_wider_and_delivered_exactly,
    conformance_asks_the_advertisement_as_sent,
    pruning_does_not_spread_a_filter,
    what_was_told_of_a_pruned_filter_goes_with_it,
    room_undoes_prunings,
    a_snapshot_tells_what_travels,
    a_forged_message_is_not_read,
    all_that_keys_say_is_signed,
    the_end_of_a_fact_names_the_fact,
    every_fact_is_written_again_by_its_home,
    the_highest_version_can_be_withdrawn,
    an_inbox_that_was_made_again_counts_anew,
    what_is_quarantined_is_not_handled,
]
ON_REDIS = [
    redis_refuses_what_is_older,
    who_was_superseded_writes_nothing,
    routing_never_goes_back_to_an_older_generation,
    redis_of_another_life_does_not_count,
    damage_is_noticed,
    a_forged_index_is_not_used,
    a_forged_pointer_is_not_followed,
    every_write_counts_one_up,
    who_knows_a_vector_reads_what_changed,
    a_delta_is_written_on_what_it_was_made_from,
]
