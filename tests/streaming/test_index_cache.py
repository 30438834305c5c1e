"""The index of a route worker beside a Redis that loses parts."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
from confluent_kafka import KafkaError, KafkaException

from infra.schema_registry import beside_schemas
from state.compiled_part import CompiledPart, LocalEntry
from state.config import parse
from state.index_mark import Mark
from state.keys import Key, index_keys
from state.redis_index import WRITES, Look, Version
from state.space.boxes import Boxes
from state.space.decode import decode
from state.space.packing import pack
from streaming.boot import Boot
from streaming.index_cache import Held, IndexCache

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


def cached(boot, committed=lambda: None):
    """A cache, and what the driver has committed as far as it is told."""
    cache = IndexCache(boot)
    cache._committed = SimpleNamespace(mark=committed)
    return cache


def part(*local):
    return CompiledPart.of(1, list(local), {}, [])


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
        load=lambda keys, generation, run: [
            None if key in lost else (versions[str(key)].epoch, parts[key]) for key in keys
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
        load=lambda keys, generation, run: [(f"{generation}.0", CompiledPart.of(generation, [], {}, [])) for _ in keys],
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
        load=lambda keys, generation, run: [(f"{generation}.0", CompiledPart.of(generation, [], {}, [])) for _ in keys],
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
        load=lambda keys, generation, run: [("1.0", part()) for key in keys],
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
    held.run, held._parts[key] = "run", ("1.7", part())
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


def test_a_task_looks_at_what_was_written_since_and_at_nothing_else():
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

    def load(keys, generation, run):
        loads.append(list(keys))
        return [None if key in lost else (versions[str(key)].epoch, part()) for key in keys]

    cache.redis = SimpleNamespace(
        current=lambda: ("run", 1), configuration=lambda generation: config.shared, look=look, load=load
    )
    cache._ask = lambda key: None

    def refreshed(*written, batch=0):
        for key in written:
            versions[str(key)] = Version(1, batch, "run")
        changed[0], versions.asked = frozenset(map(str, written)), 0
        loads.clear()
        return cache._refresh(), versions.asked

    assert refreshed()[0] == ""
    assert len(loads[0]) == len(keys) > 4096
    assert refreshed() == ("", 1), "the count of writes"
    assert not loads
    why, asked = refreshed(keys[7], batch=1)
    assert (why, loads, asked < 8) == ("", [[keys[7]]], True), asked
    assert cache._held.snapshot.epoch == "1.1"
    lost.add(keys[9])
    assert "lost or damaged" in refreshed(keys[8], keys[9], batch=2)[0]
    lost.clear()
    assert refreshed()[0] == ""
    assert known_ones[-1] is None, "all of it is read after what failed"
    assert loads == [[keys[8], keys[9]]]
    assert cache._held.snapshot.epoch == "1.2"
