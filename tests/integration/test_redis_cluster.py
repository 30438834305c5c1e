"""The index in a real Redis Cluster of three nodes: one slot for a prefix, which may move under a running job."""

from __future__ import annotations

import pytest
import redis

from producers import cli
from state.compiled_part import CompiledPart, compile_part
from state.config import parse
from state.keys import index_keys
from state.redis_index import RedisIndex
from state.redis_retry import redis_retried
from tests.integration.harness import RunningJob, Wire
from tests.integration.redis_cluster import RedisCluster

CONFIG = """
[deployment]
prefix = "{prefix}"
kafka = "{kafka}"
redis = "{redis}"
checkpoint = "checkpoint"
[overlay]
brokers = ["b1", "b2"]
links = [["b1", "b2"]]
[types.t]
cubes = 4
[types.t.attributes]
x = {{ kind = "int", min = 0, max = 100 }}
"""


@pytest.mark.services
def test_an_index_and_a_job_in_a_cluster(services, tmp_path, unique):
    """Everything that is written lies in one slot; where that moves to another node, what was written counts as lost
    until it is written again, and a job goes on by itself.
    """
    with RedisCluster(tmp_path / "cluster") as cluster:
        text = CONFIG.format(prefix=unique, kafka=services.kafka, redis=cluster.url)
        _the_index(cluster, parse(text.replace(unique, f"{unique}i")))
        path = tmp_path / "hilcast.toml"
        path.write_text(text)
        job, wire = RunningJob(path), Wire(services.kafka, unique)
        try:
            job.start()
            wire.subscribe("b2", "t", "s", "ann", "x >= 10")
            job.wait()
            sent = 0
            for _ in range(2):
                for x in range(20):
                    wire.publish("b1", "t", str(sent), {"x": x})
                    sent += 1
                wire.flush()
                wire.routed(sent)
                ids = {int(r.header("ce_id")) for r in wire.read("deliver.ann")}
                assert ids == {id for id in range(sent) if id % 20 >= 10}
                cluster.move(unique, (cluster.holder(unique) + 1) % 3)
            assert cli.main(["inspect", "b2", "--json", "--config", str(path)]) == 0
            assert cli.main(["verify", "--config", str(path)]) == 0
        finally:
            job.end()


def _the_index(cluster, config):
    """Written, read, superseded and retired as on one Redis; then its slot moves."""
    index, prefix = RedisIndex(config), config.deployment.prefix
    keys, part = index_keys(config, config.overlay.brokers), compile_part(CompiledPart.of(1, [], {}, []))
    for generation in (1, 2):
        index.publish(dict.fromkeys(keys, part), generation, 1)
        index.point(generation, config.shared)
    index.publish_groups("b1", 2, b"x", {"g": ["ann"]})
    index.close_destinations(2, {"x": "narrow"})
    index.count({"routed": 3})
    index.retire(2, keys)
    known = index.look(2)
    assert (known.in_force, index.missing(keys, 2), index.look(2, known).changed) == (2, [], frozenset())
    assert None not in index.load(keys, 2)
    assert index.look(1).versions == {}
    before = cluster.holder(prefix)
    assert [bool(n) for n in cluster.sizes()] == [node == before for node in range(3)], "all of it is on one node"
    cluster.move(prefix, (before + 1) % 3)
    moved = redis_retried(lambda: index.look(2, known), say=lambda line: None)
    assert moved.run != known.run
    assert moved.in_force is None, "it was written under another run"
    assert index.missing(keys, 2) == keys
    index.publish(dict.fromkeys(keys, part), 2, 2)
    index.point(2, config.shared)
    assert (index.current()[1], index.missing(keys, 2)) == (2, [])
    cluster.nodes[cluster.holder(prefix)].flushall()
    assert index.current()[1] is None
    index.close()
    with pytest.raises(redis.ConnectionError, match="no node"):
        RedisIndex(parse(CONFIG.format(prefix=prefix, kafka="h:1", redis="redis+cluster://127.0.0.1:1"))).current()
