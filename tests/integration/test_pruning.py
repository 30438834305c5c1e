"""Pruning in the running job: the sample of a generation decides, in the driver, in workers, and after a restart."""

from __future__ import annotations

import json

import pytest

from infra.kafka.topic_keeper import TopicKeeper
from state.config import load
from tests.integration.harness import RunningJob, Wire

CONFIG = """
[deployment]
prefix = "{prefix}"
kafka = "{kafka}"
redis = "{redis}"
checkpoint = "checkpoint"
[settings]
home_shards = 1
wide_shards = 1
[overlay]
brokers = ["b1", "b2"]
links = [["b1", "b2"]]
[types.t]
cubes = 1
index = ["x", "y"]
[types.t.pruning]
subscriptions = 1
[types.t.attributes]
x = {{ kind = "int", min = 0, max = 100 }}
y = {{ kind = "int", min = 0, max = 100 }}
"""


@pytest.mark.services
def test_links_carry_the_pruned_filter_and_clients_get_their_own(services, tmp_path, unique):
    """What was published before a generation began decides what is pruned in it, also after a restart."""
    path = tmp_path / "hilcast.toml"
    path.write_text(CONFIG.format(prefix=unique, kafka=services.kafka, redis=services.redis))
    TopicKeeper(load(path)).ensure_needed()
    wire, job = Wire(services.kafka, unique), RunningJob(path)

    def publish(**events):
        for id, (x, y) in events.items():
            wire.publish("b2", "t", id, {"x": x, "y": y})
        wire.flush()

    def carried():
        return {record.header("ce_id") for record in wire.read("link.b2.b1")}

    def generation():
        return json.loads((tmp_path / "checkpoint" / "generation.json").read_text())

    # x < 9 holds of many publications, y < 9 of few: the first is not worth its predicate
    publish(**{f"sample{i}": (i % 9, 50) for i in range(60)})
    try:
        job.start()
        begun = generation()
        assert sorted(event["x"] for event in begun["samples"]["t"]) == sorted(i % 9 for i in range(60))
        wire.subscribe("b1", "t", "s1", "c1", "x < 9 AND y < 9")
        wire.flush()
        job.wait()
        publish(both=(1, 1), column=(1, 50), row=(50, 1))
        wire.routed(63)
        assert carried() == {"both", "row"}
        job.kill()

        job.start()  # goes on with the same generation, whatever was published meanwhile
        wire.withdraw("b1", "t", "s1")
        wire.subscribe("b1", "t", "s2", "c1", "x < 7 AND y < 7")
        wire.flush()
        job.wait()
        publish(both2=(2, 2), column2=(2, 60), row2=(60, 2))
        wire.routed(66)
        assert generation() == begun
        assert carried() == {"both", "row", "both2", "row2"}
        assert {record.header("ce_id") for record in wire.read("deliver.c1")} == {"both", "both2"}
    finally:
        job.end()
