"""Events whose schema cannot be had yet, in the simulated world: set aside, given back, refused; judged by an oracle.

The registry comes and goes, schemas are registered late or never, and both the route query and whoever keeps the
waiting events die anywhere between two writes.
"""

from __future__ import annotations

import json
import random
import struct
from collections import defaultdict

import pytest

import producers.verify
from producers.verify import Verification
from state.config import parse
from state.messages import Output, Record
from state.routing import waiting_room
from state.routing.route import route
from state.routing.waiting_room import WaitingRoom, place_of
from state.set_aside import OURS, OUTCOME
from state.space.encodings.schemas import Schema
from state.space.encodings.wire import framed
from tests.producers.test_verify import MemoryTransport
from tests.simulation.wire import batch_of, outputs_of
from tests.simulation.world import World

CONFIG = """
[deployment]
prefix = "p"
[overlay]
brokers = ["b1", "b2"]
links = [["b1", "b2"]]
[schemas]
url = "http://127.0.0.1:1"
wait_ms = 40
[types.order]
cubes = 4
format = "avro"
[types.order.attributes]
total = { kind = "float", min = 0, max = 10 }
[[sources]]
topic = "orders"
broker = "b1"
type = "order"
"""
WANTED = {"many": ("b1", "total > 4", lambda total: total > 4), "few": ("b2", "total < 7", lambda total: total < 7)}
NEVER = 4
"""A schema that nobody registers."""


def schema(id):
    fields = [{"name": "total", "type": "double"}]
    return Schema("avro", json.dumps({"type": "record", "name": f"O{id}", "fields": fields}))


class Registry:
    """Schemas that are registered; while it is away, those that somebody has had."""

    def __init__(self):
        self.registered, self.shelf, self.up = set(), set(), True

    def of(self, ids):
        found = {id for id in ids if id in self.shelf or (self.up and id in self.registered)}
        self.shelf |= found
        return {id: schema(id) for id in found}


class Keeper:
    """Drives the room of one deployment as `streaming/waiting_keeper.py` does, on the topics of the world."""

    def __init__(self, world, deployment):
        self.world, self.committed = world, 0
        topics, name = deployment.config.topics, deployment.name
        self.waiting, self.waited = topics.waiting(name), topics.waited(name)
        self.restart()

    def restart(self):
        self.room, self.at = WaitingRoom(self.waited, 40), self.committed

    def step(self, crash=None):
        log = self.world.log
        end = log.end(self.waiting) if crash is None else crash.randint(self.at, log.end(self.waiting))
        assert self.room.take(log.topics[self.waiting][self.at : end]) == 0
        self.at = end
        left = self.room.leave(set(self.world.schemas.of(self.room.schemas)), log.now_ms)
        self.room.check()
        if crash is not None:
            left = left[: crash.randint(0, len(left))]
        for output in left:
            log.append(output)
        if crash is not None:
            self.restart()
        else:
            self.committed = self.room.low


class Shop:
    """A world with orders, all of them sent to `orders` or to a client's publications at b1."""

    def __init__(self, seed, split, crashes):
        self.rng, self.crashes = random.Random(seed), crashes
        self.world = World(parse(CONFIG), [("b1",), ("b2",)] if split else None)
        self.registry = self.world.schemas = Registry()
        self.log, self.topics, self.sent = self.world.log, self.world.config.topics, {}
        self.keepers = [Keeper(self.world, d) for d in self.world.deployments]
        for client, (broker, text, _) in WANTED.items():
            self.world.send("p.subscriptions", f"{broker}/order/{client}", {"client": client, "filter": text})
        for topic in (self.topics.subscriptions, self.topics.advertisements, self.topics.control):
            self.log.topics[topic]
        self.world.settle()
        for _ in range(3):
            for deployment in self.world.deployments:
                self.progress(deployment, "control", deployment.positions)

    def progress(self, deployment, query, offsets):
        line = {"deployment": deployment.name, "query": query, "hosts": list(deployment.hosts)}
        line["offsets"] = {topic: {"0": offset} for topic, offset in offsets.items()}
        self.log.append(Output(self.topics.progress, None, json.dumps(line).encode()))

    def send(self):
        number, id, total = len(self.sent), self.rng.randint(1, NEVER), self.rng.randrange(20) / 2
        value, key = framed(id, struct.pack("<d", total)), b"k%d" % number
        if self.rng.random() < 0.5:
            record = self.log.append(
                Output("orders", key, value, (("hilcast_topic", b"mine"), ("note", b"%d" % number)))
            )
        else:
            said = {"id": str(number), "source": "test", "type": "order", "specversion": "1.0", "broker": "b1"}
            headers = tuple((f"ce_{name}", text.encode()) for name, text in said.items())
            record = self.log.append(Output(self.topics.publications, key, value, (*headers, ("note", b"%d" % number))))
        self.sent[number] = (record, id, total)

    def route(self):
        deployment = self.rng.choice(self.world.deployments)
        if not deployment.behind_in_routing():
            return
        if self.crashes and self.rng.random() < 0.4:
            deployment.route(self.rng, crash=True)
            return
        deployment.route(self.rng if self.crashes else None)
        self.progress(deployment, "route", deployment.routed_to)

    def keep(self):
        keeper = self.rng.choice(self.keepers)
        keeper.step(self.rng if self.crashes and self.rng.random() < 0.4 else None)

    def toggle(self):
        self.registry.up = not self.registry.up

    def register(self):
        self.registry.registered.add(self.rng.randint(1, NEVER - 1))

    def live(self, steps):
        actions = [self.send] * 4 + [self.route] * 3 + [self.keep] * 3 + [self.toggle, self.register]
        for _ in range(steps):
            self.rng.choice(actions)()

    def rest(self):
        """Let everything come to an end: time passes until nobody waits any more."""
        self.crashes = False
        for _ in range(200):
            for keeper in self.keepers:
                keeper.step()
            behind = [d for d in self.world.deployments if d.behind_in_routing()]
            for deployment in behind:
                deployment.route()
                self.progress(deployment, "route", deployment.routed_to)
            if not behind and not any(keeper.room for keeper in self.keepers):
                return
            self.log.now_ms += 10
        raise AssertionError("somebody waits for ever")

    def copies(self, topic):
        """Of each event, by the number in its note: the copies there, in order."""
        found = defaultdict(list)
        for record in self.log.topics[topic]:
            found[int(dict(record.headers)["note"])].append(record)
        return found

    def letters(self):
        """Of each event: codes and places of its dead letters."""
        said = {n: [dict(r.headers) for r in some] for n, some in self.copies(self.topics.deadletter).items()}
        return {
            n: [(h["hilcast_code"], (h["hilcast_topic"].decode(), 0, int(h["hilcast_offset"]))) for h in some]
            for n, some in said.items()
        }

    def verified(self, monkeypatch):
        monkeypatch.setattr(producers.verify, "prompt_schemas", lambda config, strict: self)
        return Verification(self.world.config, MemoryTransport(self.log)).run()

    def of(self, ids):
        """What the registry has, for who judges."""
        return {id: schema(id) for id in ids if id in self.registry.registered | self.registry.shelf}


@pytest.mark.parametrize("split", [False, True], ids=["alone", "split"])
@pytest.mark.parametrize("crashes", [False, True], ids=["calm", "crashes"])
@pytest.mark.parametrize("seed", range(6))
def test_every_event_is_delivered_or_refused(seed, split, crashes, monkeypatch):
    """Nothing is lost, whoever dies: to all that want it, byte for byte, or a dead letter that names where it was sent.

    What nobody registered is refused. Without a crash nothing comes twice, and what waited for one schema keeps the
    order of its topic.
    """
    shop = Shop(seed, split, crashes)
    shop.live(120)
    assert shop.verified(monkeypatch).ok
    shop.rest()
    letters = shop.letters()
    waited = set()
    for name, records in shop.log.topics.items():
        waited |= {place_of(record) for record in records if name.startswith("p.waited.")}
    assert len(waited) > 5
    for client, (_, _, wants) in WANTED.items():
        copies = shop.copies(shop.topics.deliver(client))
        for number, (sent, id, total) in shop.sent.items():
            got, refused = copies[number], letters.get(number, [])
            if id == NEVER or not wants(total):
                assert not got
            elif not got:
                assert refused
            assert all((r.key, r.value) == (sent.key, sent.value) for r in got)
            assert all(r.headers.count(("note", b"%d" % number)) == 1 for r in got)
            assert not {name for r in got for name, _ in r.headers} & {*OURS, OUTCOME}
            assert crashes or len(got) <= 1
            if not split and not crashes:
                assert bool(got) == (not refused and wants(total))
        for topic in ("orders", shop.topics.publications):
            for id in range(1, NEVER):
                some = [n for n in copies if copies[n] and shop.sent[n][1] == id and shop.sent[n][0].topic == topic]
                order = [n for n in some if shop.sent[n][0].place in waited]
                assert crashes or order == sorted(order)
    for number, (sent, id, _) in shop.sent.items():
        places = {place for code, place in letters.get(number, [])}
        assert {code for code, _ in letters.get(number, [])} <= {b"unknown-schema"}
        assert (sent.place in places) if id == NEVER else places <= {sent.place} | waited
        assert crashes or len(letters.get(number, [])) <= 1
    judged = shop.verified(monkeypatch)
    assert judged.ok, judged.findings
    assert (judged.pending, judged.published) == (0, len(shop.sent))


def test_a_delivery_that_is_lost_after_a_wait_is_found(monkeypatch):
    """`verify` asks for what waited once it was routed, and not before."""
    shop = Shop(1, False, False)
    shop.registry.registered = {1}
    shop.registry.up = False
    while not any(id == 1 and total > 4 and r.topic != "orders" for r, id, total in shop.sent.values()):
        shop.send()
    shop.route()
    assert (shop.verified(monkeypatch).ok, shop.verified(monkeypatch).pending) == (True, len(shop.sent))
    shop.registry.up = True
    shop.rest()
    assert shop.verified(monkeypatch).expected > 0
    shop.log.topics[shop.topics.deliver("many")] = [
        r for r in shop.log.topics[shop.topics.deliver("many")] if dict(r.headers)["ce_source"] != b"test"
    ]
    assert shop.verified(monkeypatch).missing > 0


def test_lines_and_figures_of_what_waits():
    """The routing log and the figures tell how many were set aside; those are neither unmatched nor routed yet."""
    shop = Shop(2, False, False)
    for _ in range(10):
        shop.send()
    deployment = shop.world.deployments[0]
    records = [record for record, _, _ in shop.sent.values()]
    routing = route(deployment.snapshot(), batch_of(records))
    lines = [json.loads(o.value) for _, o in outputs_of(routing) if o.topic == shop.topics.routed]
    assert (sum(line["events"] for line in lines), sum(line["waiting"] for line in lines)) == (10, 10)
    assert sum(line["unmatched"] for line in lines) == 0
    assert (routing.figures["waiting"], routing.figures["routed"], routing.figures["dead_letters"]) == (10, 0, 0)


FORGED = [
    (),
    (("note", b"1"),),
    tuple(zip(OURS, (b"orders", b"0", b"0", b"1", b""), strict=True)),
    (*zip(OURS, (b"orders", b"x", b"0", b"1", b""), strict=True), (OUTCOME, b"had")),
    (*zip(OURS, (b"orders", b"0", b"-1", b"1", b""), strict=True), (OUTCOME, b"had")),
    (*zip(OURS, (b"\xff", b"0", b"99999999999999999999", None, b""), strict=True), (OUTCOME, b"had")),
    (*zip(OURS, (b"orders", b"0", b"0", b"1", b""), strict=True), (OUTCOME, b"perhaps")),
]


@pytest.mark.parametrize("headers", FORGED)
def test_what_nobody_set_aside_is_refused_where_it_stands(headers):
    """A record of the topic that the driver did not write is one dead letter, and in the room it is passed over."""
    shop = Shop(3, True, False)
    deployment = shop.world.deployments[1]
    topic = shop.topics.waited(deployment.name)
    routing = route(deployment.snapshot(), batch_of([Record(topic, 0, 7, 0, b"k", framed(1, b""), headers)]))
    letters = [dict(o.headers) for _, o in outputs_of(routing) if o.topic == shop.topics.deadletter]
    assert [(one["hilcast_code"], one["hilcast_topic"], one["hilcast_offset"]) for one in letters] == [
        (b"bad-event", topic.encode(), b"7")
    ]
    assert not routing.faults
    room = WaitingRoom(topic, 40)
    set_aside = not headers or headers[-1][0] == OUTCOME or place_of(Record("t", 0, 0, 0, None, b"", headers)) is None
    assert room.take([Record("t", 0, 0, 0, None, b"", headers)]) == set_aside
    assert room.low == (1 if set_aside else 0)


def test_a_room_holds_so_much_and_forgets_nothing(monkeypatch):
    """It is full by bytes, says so, and what it holds bounds what may be committed."""
    monkeypatch.setattr(waiting_room, "ROOM_BYTES", 1000)
    room = WaitingRoom("out", 40)
    said = [tuple(zip(OURS, (b"in", b"0", b"%d" % n, b"%d" % (n % 2), b""), strict=True)) for n in range(10)]
    at = [Record("t", 0, n, 100 + n, b"", b"v" * 100, headers) for n, headers in enumerate(said)]
    taken = 0
    while not room.is_full:
        room.take([at[taken]])
        taken += 1
    assert 2 < taken < 10
    assert (room.low, room.schemas, room.due_ms) == (0, {0, 1}, 140)
    left = room.leave({1}, None)
    assert [dict(output.headers)["hilcast_offset"] for output in left] == [b"%d" % n for n in range(1, taken, 2)]
    assert {dict(output.headers)[OUTCOME] for output in left} == {b"had"}
    assert (room.low, room.is_full) == (0, False)
    assert [dict(o.headers)[OUTCOME] for o in room.leave({1}, 142)] == [b"vain", b"vain"]
    room.leave((), 200)
    assert (room.low, len(room), room.due_ms) == (taken, 0, None)
    room.check()


def test_what_was_had_and_got_lost_again_waits_on(monkeypatch):
    """Given back because its schema was had, and the worker does not find it: set aside again, since the first time."""
    shop = Shop(4, False, False)
    shop.send()
    (sent, id, _), keeper = shop.sent[0], shop.keepers[0]
    shop.route()
    shop.registry.registered.add(id)
    keeper.step()
    shop.registry.registered.clear()
    shop.registry.shelf.clear()
    shop.route()
    first, second = shop.log.topics[keeper.waiting]
    assert place_of(first) == place_of(second) == sent.place
    assert dict(second.headers)["hilcast_since"] == b"%d" % first.timestamp_ms
    assert second.headers[:-1] == first.headers[:-1]
    shop.rest()
    assert shop.letters() == {0: [(b"unknown-schema", sent.place)]}
