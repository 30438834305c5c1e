"""The index of a route worker beside a Redis that loses parts."""

from __future__ import annotations

import random
from types import SimpleNamespace

import numpy as np
import pytest
import redis
from confluent_kafka import KafkaError, KafkaException

from infra.schema_registry import beside_schemas
from state.compiled_part import CompiledPart, LocalEntry, compile_part
from state.config import parse
from state.control.handle import handle, whole_index
from state.control.journal import Kept
from state.control.part import Part
from state.control.protocol import Republish
from state.distribution.assignment import Assignment
from state.index_delta import IndexDelta, encode_delta
from state.index_mark import Mark
from state.keys import Key, index_keys
from state.redis_index import WRITES, Holding, Loaded, Look, RedisIndex, Version
from state.routing.junction import Junction
from state.routing.roll import DOUBTED, GROUPED, NO_TEXT
from state.signing import Keyring
from state.space.boxes import Boxes
from state.space.decode import decode
from state.space.packing import pack
from streaming import index_cache
from streaming.boot import Boot
from streaming.host_files import HostFiles
from streaming.index_cache import Held, IndexCache
from tests.control.test_journal import KEY, Streams, context_of
from tests.simulation.invariants import comparable

TEXT = """
[overlay]
brokers = ["b1", "b2"]
links = [["b1", "b2"]]
[types.t]
cubes = 4
[types.t.attributes]
x = { kind = "int" }
"""
CONFIG = parse(TEXT)


@pytest.fixture(autouse=True, params=["alone", "shared"])
def on_this_host(request, tmp_path, monkeypatch):
    """Every test twice: with an index of the worker's own, and with one that it shares; return a folder for that."""

    def folder_for(config, look):
        return tmp_path / "home" / f"{look.generation}-{look.run}" if request.param == "shared" else None

    monkeypatch.setattr(index_cache, "folder_for", folder_for)
    return tmp_path if request.param == "shared" else None


def cached(boot, committed=lambda: None):
    """A cache, and what the driver has committed as far as it is told."""
    cache = IndexCache(boot)
    cache._committed = SimpleNamespace(mark=committed)
    return cache


def part(*local):
    return CompiledPart.of(1, list(local), {}, [])


def loaded(epoch, compiled):
    """A part that was read whole."""
    return Loaded(epoch, Holding(compiled.stamp, 0), compiled, [])


def test_parts_that_came_before_a_lost_one_are_joined_later():
    """When one of two changed parts cannot be loaded, the other is not taken for joined."""
    cache = cached(Boot(CONFIG, 1))
    parts = {key: part() for key in index_keys(CONFIG, CONFIG.overlay.brokers)}
    versions = {str(key): Version(1, 0, "run") for key in parts}
    lost: set[Key] = set()
    cache.redis = SimpleNamespace(
        current=lambda: ("run", 1),
        configuration=lambda generation: CONFIG.shared,
        look=lambda generation, known=None: Look("run", 1, generation, versions),
        follow=lambda held, generation, run: [
            None if key in lost else loaded(versions[str(key)].epoch, parts[key]) for key in held
        ],
    )
    asked = []
    cache._ask = asked.append
    assert cache._refresh() == ""
    first, last = (next(key for key in parts if key.broker == b and key.type == "t") for b in ("b1", "b2"))
    for key in (first, last):
        parts[key] = part(LocalEntry("a", "ann", "t", None, pack(Boxes.everything(1))))
        versions[str(key)] = Version(1, 1, "run")
    lost.add(last)
    assert "lost or damaged" in cache._refresh()
    assert asked == [last]
    lost.clear()
    assert cache._refresh() == ""
    for broker in ("b1", "b2"):
        junction = cache._held.snapshot.junctions["t"][broker]
        assert len(junction.interested(decode(CONFIG.types["t"], [b"{}"] * 3), np.arange(3))[0]) == 3


def test_another_generation_is_taken_up_whole():
    """While the next generation is not complete, or its configuration is not there, the one that is held stays."""
    cache = cached(Boot(CONFIG, 1))
    more = parse(TEXT + "y = { kind = 'int' }")
    vectors = {1: {str(key): Version(1, 0, "run") for key in index_keys(CONFIG, ("b1", "b2"))}, 2: {}}
    now, configurations = [1], {1: CONFIG.shared}
    cache.redis = SimpleNamespace(
        current=lambda: ("run", now[0]),
        configuration=configurations.get,
        look=lambda generation, known=None: Look("run", now[0], generation, vectors[generation]),
        follow=lambda held, generation, run: [
            loaded(f"{generation}.0", CompiledPart.of(generation, [], {}, [])) for _ in held
        ],
    )
    assert cache._refresh() == ""
    now[0] = 2
    assert "not complete" in cache._refresh()
    configurations[2] = more.shared
    assert "not complete" in cache._refresh()
    assert cache._held.generation == 1
    vectors[2] = {str(key): Version(2, 0, "run") for key in index_keys(more, ("b1", "b2"))}
    assert cache._refresh() == ""
    assert cache._held.snapshot.epoch == "2.0"
    assert len(cache._held.snapshot.config.types["t"].attributes) == 2


def test_a_generation_is_held_before_it_is_in_force_and_nobody_goes_by_it():
    """What is prepared is loaded once; until it is in force the one before is gone by, and then at most what changed
    since is loaded, by this worker and by others that share what it has.
    """
    cache, other = cached(Boot(CONFIG, 1)), cached(Boot(CONFIG, 1))
    keys = index_keys(CONFIG, ("b1", "b2"))
    vectors = {n: {str(key): Version(n, 0, "run") for key in keys} for n in (1, 2)}
    now, read = [1], []

    def follow(held, generation, run):
        read.extend((generation, key) for key in held)
        return [loaded(vectors[generation][str(key)].epoch, CompiledPart.of(1, [], {}, [])) for key in held]

    for one in (cache, other):
        one.redis = SimpleNamespace(
            current=lambda: ("run", now[0]),
            configuration={1: CONFIG.shared}.get,  # that of the second is there when it is in force
            look=lambda generation, known=None: Look("run", now[0], generation, vectors[generation]),
            follow=follow,
        )
        assert one._refresh() == ""
    assert not cache.prepare(3, CONFIG.shared, patience_s=0.0), "it gives up, and nothing is changed by that"
    read.clear()
    assert cache.prepare(2, CONFIG.shared)
    assert sorted(read, key=str) == sorted(((2, key) for key in keys), key=str)
    for one in (cache, other):
        assert one._refresh() == ""
        assert one._held.snapshot.epoch == "1.0"
    changed = keys[0]
    vectors[2][str(changed)] = Version(2, 1, "run")
    now[0] = 2
    read.clear()
    for one in (cache, other):
        one.redis.configuration = {2: CONFIG.shared}.get
        assert one._refresh() == ""
        assert one._held.snapshot.epoch == "2.1"
        if one is cache:
            assert read == [(2, changed)]
    if index_cache.folder_for(CONFIG, Look("run", 2, 2, vectors[2])) is not None:
        assert read == [(2, changed)], "the other one maps it"


def test_topics_that_a_pattern_matches_are_sources_of_every_generation():
    """What the query reads is a source as the generation in force says, though the configuration names no topic."""
    patterns = [f"{TEXT}[[sources]]\npattern = '{p}'\nbroker = 'b1'\ntype = 't'\n" for p in ("orders.*", "pay.*")]
    configs = {number: parse(text) for number, text in enumerate(patterns, 1)}
    cache, now = cached(Boot(configs[1].with_topics(["orders.de"]), 1)), [1]

    def versions(number):
        return {str(key): Version(number, 0, "run") for key in index_keys(CONFIG, ("b1", "b2"))}

    cache.redis = SimpleNamespace(
        current=lambda: ("run", now[0]),
        configuration=lambda generation: configs[generation].shared,
        look=lambda generation, known=None: Look("run", now[0], generation, versions(generation)),
        follow=lambda held, generation, run: [loaded(f"{generation}.0", CompiledPart.of(1, [], {}, [])) for _ in held],
    )

    def read(*topics):
        return [source.topic for source in cache.snapshot(topics).config.sources]

    assert read("hilcast.publications", "orders.de") == ["orders.de"]
    assert read("hilcast.publications", "orders.fr", "pay.me") == ["orders.fr"]
    now[0] = 2
    assert read("hilcast.publications", "orders.fr", "pay.me") == ["pay.me"]


def test_an_index_that_is_behind_what_was_committed_is_waited_for():
    """A whole index that lacks a write that was said to be in force, or is of another lineage or run, is not taken."""
    committed = [None]
    cache = cached(Boot(CONFIG, 1), lambda: committed[0])
    versions = {str(key): Version(1, 0, "run") for key in index_keys(CONFIG, CONFIG.overlay.brokers)}
    versions[WRITES] = Version(0, 10, "x")
    cache.redis = SimpleNamespace(
        current=lambda: ("run", 1),
        configuration=lambda generation: CONFIG.shared,
        look=lambda generation, known=None: Look("run", 1, generation, versions),
        follow=lambda held, generation, run: [loaded("1.0", part()) for _ in held],
    )
    older = "redis holds an older index than was in force"
    for mark, why in (
        (Mark(1, 11, "x", "run"), older),
        (None, ""),
        (Mark(1, 10, "x", "run"), ""),
        (Mark(1, 11, "x", "run"), older),
        (Mark(1, 9, "x", "run"), ""),
        (Mark(1, 9, "y", "run"), older),
        (Mark(1, 9, "x", "other"), older),
        (Mark(2, 1, "x", "run"), older),
    ):
        committed[0] = mark
        assert cache._refresh() == why, mark
    committed[0] = Mark(1, 12, "x", "run")
    versions[WRITES] = Version(0, 12, "x")
    assert cache._refresh() == ""

    def away():
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    cache._committed = SimpleNamespace(mark=away)
    assert cache._refresh() == "kafka does not say what is in force (_TIMED_OUT)"


def test_where_entries_are_signed_an_older_one_is_not_taken_for_a_newer():
    """What is genuine, but older than what is held under the same run of Redis, was put back by somebody: not used."""
    held = Held(CONFIG, 1, beside_schemas(CONFIG))
    key = held.keys[0]
    held.run, held._parts[key] = "run", ("1.7", Holding(b"", 0))
    told = [held.is_older(key, run, epoch) for run, epoch in (("run", "1.6"), ("run", "1.7"), ("other", "1.6"))]
    assert told == [True, False, False]
    assert not held.is_older(held.keys[1], "run", "1.0")


class Counted(dict):
    """Versions, and how many of them were asked for."""

    asked = 0

    def get(self, field, default=None):
        self.asked += 1
        return super().get(field, default)

    def __getitem__(self, field):
        self.asked += 1
        return super().__getitem__(field)


def test_a_task_looks_at_what_was_written_since_and_at_nothing_else(on_this_host):
    """Of 4,096 parts a task asks for none where nothing was written, and for one where one was; what could not be
    loaded is not taken for held.
    """
    config = parse(TEXT.replace("cubes = 4", "cubes = 2048"))
    cache = cached(Boot(config, 1))
    keys = index_keys(config, config.overlay.brokers)
    versions = Counted({str(key): Version(1, 0, "run") for key in keys})
    versions[WRITES] = Version(0, len(keys), "x")
    changed, lost, loads, known_ones = [frozenset()], set(), [], []

    def look(generation, known=None):
        known_ones.append(known)
        return Look("run", 1, generation, versions, None if known is None else changed[0])

    def follow(held, generation, run):
        loads.append(list(held))
        return [None if key in lost else loaded(versions[str(key)].epoch, part()) for key in held]

    cache.redis = SimpleNamespace(
        current=lambda: ("run", 1), configuration=lambda generation: config.shared, look=look, follow=follow
    )
    cache._ask = lambda key: None

    def refreshed(*written, batch=0):
        for key in written:
            versions[str(key)] = Version(1, batch, "run")
        changed[0], versions.asked = frozenset(map(str, written)), 0
        loads.clear()
        return cache._refresh(), versions.asked

    assert refreshed()[0] == ""
    assert sum(map(len, loads)) == len(keys) > 4096
    assert refreshed() == ("", 1), "the count of writes"
    assert not loads
    why, asked = refreshed(keys[7], batch=1)
    few = 8 if on_this_host is None else 9  # who builds looks once more, under the lock
    assert (why, loads, asked < few) == ("", [[keys[7]]], True), asked
    assert cache._held.snapshot.epoch == "1.1"
    lost.add(keys[9])
    assert "lost or damaged" in refreshed(keys[8], keys[9], batch=2)[0]
    lost.clear()
    assert refreshed()[0] == ""
    assert known_ones[-1] is None, "all of it is read after what failed"
    assert loads == [[keys[8], keys[9]]]
    assert cache._held.snapshot.epoch == "1.2"


class Writer:
    """One part of the control query on a real Redis: what `streaming/key_step.py` does; batches are repeated."""

    def __init__(self, index, reduction, draw):
        self.index, self.draw = index, draw
        self.context = context_of(reduction, share=2)
        self.streams = Streams(self.context)
        self.state, self.batch, self.sizes = None, 0, []

    def batch_of(self, *records):
        """Handle a batch, publish, and perhaps die before the state is kept: then it is repeated, or another one is."""
        self.batch += 1
        before, given = dict(self.streams.sequences), records
        while True:
            records = records or [self.streams.drawn(self.draw) for _ in range(self.draw.randint(1, 3))]
            result = handle(str(KEY), self.state, records, self.context)
            self.publish(result)
            if (result.index or result.deltas) and self.draw.random() < 0.8:
                break
            self.context.parts = self.draw.choice((self.context.parts, Kept()))
            if self.draw.random() < 0.3:
                # as when a record was found that nobody can get past; what it did in Redis goes with the next write
                self.streams.sequences, records = dict(before), given
        self.state = result.state

    def publish(self, result):
        def whole():
            return whole_index(KEY, result.state, self.context)

        if result.index is not None:
            self.index.publish({KEY: result.index}, 1, self.batch)
            self.sizes.append((True, len(result.index)))
        elif result.deltas:
            size = self.index.publish_deltas(KEY, result.deltas, whole, 1, self.batch, {}, {})
            self.sizes.append((False, size))

    def right(self):
        """The index of what was published last."""
        return comparable(Part(KEY, self.state, self.context).compiled())


class Reader:
    """A route worker: it follows the part now and then, and takes in what leads on from what it holds.

    With a folder, each time as another process does that opens what was kept there.
    """

    def __init__(self, index, context, folder):
        self.index, self.context, self.folder = index, context, folder
        self.held, self.junction, self.part, self.led = None, None, None, 0

    def refresh(self):
        """Take in what there is; return why that cannot be had."""
        run, vector = self.index.vector(1)
        version = vector.get(str(KEY))
        if version is None or version.run != run:
            return "not complete"
        (found,) = self.index.follow({KEY: self.held}, 1, run)
        if found is None or int(found.epoch.split(".")[1]) < version.batch:
            return "lost"
        if self.junction is None:
            self.junction = Junction(self.context.config.types["t"], self.context.grids["t"])
        if found.part is not None:
            self.junction.update({KEY: found.whole()})
        else:
            self.junction.change({KEY: found.deltas})
            self.led += 1
        self.held = found.holding
        if self.folder is not None:
            kept = self.junction.keep(HostFiles(self.folder))
            about = self.junction.event_type, self.junction.grid
            self.junction = Junction.opened(*about, kept, HostFiles(self.folder))
        return ""

    def seen(self):
        """What it goes by."""
        self.junction.check()
        return comparable(part_of(self.junction, KEY))


def part_of(junction, key):
    """The one part of a junction, put together again from its matchers and its roll."""
    roll, (boxes, numbers), entries = junction.roll, junction._local.matcher.boxes(), []
    for n in np.unique(numbers).tolist():
        text, flags = int(roll.text.values[n]), int(roll.flags.values[n])
        residual = None if text == NO_TEXT else roll.texts[text]
        who, geometry = (roll.ids[n], roll.client(n), roll.destination(n)), pack(boxes.take(numbers == n))
        entries.append(LocalEntry(*who, residual, geometry, not flags & DOUBTED, bool(flags & GROUPED)))
    assert len({entry.id for entry in entries}) == len(entries), "an entry that is held twice"
    links = {n: [pack(link.matcher.boxes()[0])] for n, link in junction.link_boxes.items()}
    links |= {n: [pack(ranges) for ranges in link.parts.values()] for n, link in junction._link_ranges.items()}
    promised = [one for some in junction._promised.values() for one in some]
    return CompiledPart.of(junction.event_type.d, entries, links, promised, junction.stamp(key))


@pytest.mark.services
@pytest.mark.parametrize("ring", [None, Keyring((b"k" * 32,))], ids=["plain", "signed"])
@pytest.mark.parametrize("reduction", ["covering", "mics"])
def test_base_and_deltas_are_the_part_whatever_happens_to_redis(services, unique, reduction, ring, on_this_host):
    """Batches repeated as they were and otherwise, an index lost, cut or damaged, another run, wholes on request:
    whoever reads has exactly the part, or knows that it has not.
    """
    draw = random.Random(f"{reduction} {ring}")
    config = parse(f"[deployment]\nprefix = '{unique}'\nredis = '{services.redis}'\n{TEXT}")
    index, client = RedisIndex(config, keys=lambda: ring), redis.Redis.from_url(services.redis)
    writer = Writer(index, reduction, draw)
    readers = [Reader(index, writer.context, on_this_host) for _ in range(3)]
    base, deltas = (f"{unique}:{KEY.broker}:{KEY.type}:{KEY.part}:{what}:1" for what in ("index", "deltas"))
    harms = ("none",) * 12 + ("base", "deltas", "cut", "damage", "vector", "run", "all")
    waited = 0
    for _ in range(150):
        writer.batch_of()
        harm = draw.choice(harms)
        if harm in ("base", "deltas"):
            client.delete(base if harm == "base" else deltas)
        elif harm == "cut":
            client.rpop(deltas) if client.llen(deltas) > 1 else None
        elif harm == "damage" and client.llen(deltas) > 1:
            client.lset(deltas, -1, client.lindex(deltas, -1)[:-1] + b"?")
        elif harm == "vector":
            client.hdel(index.vector_key(1), str(KEY))
        elif harm == "run":
            client.hset(index.vector_key(1), str(KEY), f"1.{writer.batch}.{'0' * 40}")
        elif harm == "all":
            client.delete(base, deltas, index.vector_key(1))
        for reader in readers:
            if draw.random() < 0.5:
                continue
            why = reader.refresh()
            if why:
                waited += 1
                writer.batch_of(writer.streams.record(Republish()))
                why = reader.refresh()
            assert why == ""
            assert reader.seen() == writer.right(), harm
    assert waited > 3
    assert sum(not whole and size < 1000 for whole, size in writer.sizes) > 50, "most of what was written are deltas"
    assert sum(reader.led for reader in readers) > 30, "and most of what was taken in"


@pytest.mark.services
@pytest.mark.parametrize("ring", [None, Keyring((b"k" * 32,))], ids=["plain", "signed"])
def test_what_is_told_beside_the_index_is_there(services, unique, ring, on_this_host):
    """From a real Redis: a worker has closed destinations and assignments as they were told last; where Redis has lost
    them, the driver sees that it has, and tells them again.
    """
    groups = "[distribution.b1]\ngroups = 2\n"
    config = parse(f"[deployment]\nprefix = '{unique}'\nredis = '{services.redis}'\n{TEXT}{groups}")
    cache, index = cached(Boot(config, 1)), RedisIndex(config, keys=lambda: ring)
    cache.redis = RedisIndex(config, keys=lambda: ring)
    index.publish({key: compile_part(part()) for key in index_keys(config, config.overlay.brokers)}, 1, 0)
    index.point(1, config.shared)
    for closed in ({}, {"d.ann": "narrow"}, {"d.ann": "narrow", "d.bob": "gone"}, {"d.bob": "gone"}, {}):
        index.close_destinations(1, closed)
        assert index.load_closed(1, index.run_id())[1] == closed
        assert not index.closed_missing(1)
        assert cache._refresh() == ""
        assert cache._held.snapshot.closed == closed
    index.close_destinations(1, {"d.ann": "narrow"})
    index._client.delete(f"{unique}:closed:{config.deployment.name}:1")
    assert index.closed_missing(1)
    assignment = Assignment.nobody().encode()
    index.publish_groups("b1", 1, assignment, {})
    assert index.load_groups("b1", 1, index.run_id())[1] == assignment
    cache.close()
    index.close()


@pytest.mark.services
def test_a_worker_takes_in_a_delta_from_redis(services, unique, on_this_host):
    """From a real Redis: what changed of one part is taken in as it is, and events go by it from the next task on.

    Once the delta is lost, who has nothing of it asks for it; what a host shares has it still.
    """
    config = parse(f"[deployment]\nprefix = '{unique}'\nredis = '{services.redis}'\n{TEXT}")
    cache, index = cached(Boot(config, 1)), RedisIndex(config)
    keys = index_keys(config, config.overlay.brokers)
    index.publish({key: compile_part(part()) for key in keys}, 1, 0)
    index.point(1, config.shared)
    assert cache._refresh() == ""
    key = next(key for key in keys if key.broker == "b1" and key.type == "t")
    entry = LocalEntry("a", "ann", "t", None, pack(Boxes.everything(1)))
    delta = encode_delta(IndexDelta(since=b"", put=CompiledPart.of(1, [entry], {}, [], b"1")))
    assert index.publish_deltas(key, [delta], lambda: pytest.fail("it follows"), 1, 1, {}, {}) == len(delta)
    assert cache._refresh() == ""
    junction = cache._held.snapshot.junctions["t"]["b1"]
    assert junction.stamp(key) == b"1"
    assert cache._held.snapshot.epoch == "1.1"
    assert len(junction.interested(decode(config.types["t"], [b"{}"] * 3), np.arange(3))[0]) == 3
    index._client.delete(f"{unique}:{key.broker}:{key.type}:{key.part}:deltas:1")
    if on_this_host is not None:
        another = cached(Boot(config, 1))
        assert another._refresh() == ""
        assert another._held.snapshot.junctions["t"]["b1"].stamp(key) == b"1"
        another.close()
    cache.close()  # the last one of its host
    asked, fresh = [], cached(Boot(config, 1))
    fresh._ask = asked.append
    assert "lost or damaged" in fresh._refresh()
    assert asked == [key]
    index.close()
