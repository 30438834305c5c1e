"""One small job with a Redis of its own: pruning by the sample of its generation, then routing while Redis is away."""

from __future__ import annotations

import json

import pytest

from infra.kafka.topic_keeper import TopicKeeper
from infra.local.ports import free_port
from infra.local.redis_server import LocalRedis
from state.config import load
from tests.integration.harness import RunningJob, Wire

CONFIG = """
[deployment]
prefix = "{prefix}"
kafka = "{kafka}"
redis = "{redis}"
checkpoint = "checkpoint"
stale = "route"
[settings]
home_shards = 1
wide_shards = 1
[overlay]
brokers = ["b1", "b2"]
links = [["b1", "b2"]]
[types.pruned]
cubes = 1
index = ["x", "y"]
[types.pruned.pruning]
subscriptions = 1
[types.pruned.attributes]
x = {{ kind = "int", min = 0, max = 100 }}
y = {{ kind = "int", min = 0, max = 100 }}
[types.t]
cubes = 1
[types.t.attributes]
x = {{ kind = "int" }}
"""


class World:
    """The job, which no test has started yet, its Redis, and plain Kafka."""

    def __init__(self, services, folder, prefix):
        url = f"redis://127.0.0.1:{free_port()}/0"
        self.redis, self.folder = LocalRedis(folder / "redis", url), folder
        self.path = folder / "hilcast.toml"
        self.path.write_text(CONFIG.format(prefix=prefix, kafka=services.kafka, redis=url))
        TopicKeeper(load(self.path)).ensure_needed()
        self.wire, self.job = Wire(services.kafka, prefix), RunningJob(self.path)
        self.sent = 0

    def publish(self, **events):
        """Events of the type that is pruned, by their ids."""
        for id, (x, y) in events.items():
            self.wire.publish("b2", "pruned", id, {"x": x, "y": y})
        self.wire.flush()
        self.sent += len(events)

    def carried(self):
        return {record.header("ce_id") for record in self.wire.read("link.b2.b1")}

    def generation(self):
        return json.loads((self.folder / "checkpoint" / "generation.json").read_text())


@pytest.fixture(scope="module")
def world(services, tmp_path_factory):
    made = World(services, tmp_path_factory.mktemp("two"), "ttwobrokers")
    try:
        made.redis.start()
        yield made
    finally:
        made.job.end()
        made.redis.stop()


@pytest.mark.services
def test_links_carry_the_pruned_filter_and_clients_get_their_own(world):
    """What was published before a generation began decides what is pruned in it, in the driver, in workers, and after
    a restart.
    """
    job, wire = world.job, world.wire
    # x < 9 holds of many publications, y < 9 of few: the first is not worth its predicate
    world.publish(**{f"sample{i}": (i % 9, 50) for i in range(60)})
    job.start()
    begun = world.generation()
    assert sorted(event["x"] for event in begun["samples"]["pruned"]) == sorted(i % 9 for i in range(60))
    wire.subscribe("b1", "pruned", "s1", "c1", "x < 9 AND y < 9")
    wire.flush()
    job.wait()
    world.publish(both=(1, 1), column=(1, 50), row=(50, 1))
    wire.routed(world.sent)
    assert world.carried() == {"both", "row"}
    job.kill()

    job.start()  # goes on with the same generation, whatever was published meanwhile
    wire.withdraw("b1", "pruned", "s1")
    wire.subscribe("b1", "pruned", "s2", "c1", "x < 7 AND y < 7")
    wire.flush()
    job.wait()
    world.publish(both2=(2, 2), column2=(2, 60), row2=(60, 2))
    wire.routed(world.sent)
    assert world.generation() == begun
    assert world.carried() == {"both", "row", "both2", "row2"}
    assert {record.header("ce_id") for record in wire.read("deliver.c1")} == {"both", "both2"}


@pytest.mark.services
def test_who_prefers_it_is_served_by_the_last_known_index(world):
    """With stale = "route" events are delivered while Redis is away, and marked; afterwards they are as ever."""
    wire, sent = world.wire, []

    def marks(enough):
        """Publish one event after another, to one partition, until the marks of the deliveries are `enough`."""

        def asked(records):
            wire.publish("b1", "t", str(len(sent)), {"x": len(sent)}, key="k")
            wire.flush()
            sent.append(None)
            return enough([r.header("hilcast_stale") for r in records])

        return wire.until("deliver.ann", asked)

    if world.job.process is None:
        world.job.start()  # this test alone
    wire.subscribe("b2", "t", "s", "ann", "x >= 0")
    world.job.wait()
    assert {r.header("hilcast_stale") for r in marks(lambda found: len(found) > 5)} == {None}
    world.redis.stop()
    marks(lambda found: "true" in found)
    world.redis.start()
    marks(lambda found: found and found[-1] is None)
    wire.routed(world.sent + len(sent))
    ids = [int(r.header("ce_id")) for r in wire.read("deliver.ann")]
    assert sorted(set(ids)) == list(range(len(sent)))
