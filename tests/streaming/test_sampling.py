"""The sample that a generation begins with, from real topics and through the checkpoint."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from confluent_kafka import Producer

from infra.kafka import open_transport
from infra.kafka.topic_keeper import TopicKeeper
from state.config import parse
from streaming.checkpoint import Checkpoint, Generation
from streaming.folders import Directory
from streaming.sampling import LOOK, sample

CONFIG = """
[deployment]
kafka = "{kafka}"
prefix = "{prefix}"
[overlay]
brokers = ["b1"]
links = []
[types.t]
{pruning}
[types.t.attributes]
x = {{ kind = "int", min = 0, max = 100 }}
[types.other.attributes]
x = {{ kind = "int" }}
"""


@pytest.mark.services
def test_the_last_publications_are_read_from_all_partitions(services, unique):
    """Of every partition the last records count, of pruned types alone; without a budget nothing is read."""
    config = parse(CONFIG.format(kafka=services.kafka, prefix=unique, pruning="pruning = { subscriptions = 5 }"))
    TopicKeeper(config).ensure_needed()
    transport = open_transport(config)
    assert sample(config, transport) == {"t": []}
    producer = Producer({"bootstrap.servers": services.kafka})
    for i in range(LOOK + 10):
        headers = {"ce_type": b"other" if i % 2 else b"t"}
        producer.produce(config.topics.publications, json.dumps({"x": i}), str(i), headers=headers)
    producer.flush()
    seen = [event["x"] for event in sample(config, transport)["t"]]
    assert len(seen) == 500
    assert all(x % 2 == 0 for x in seen)
    assert len(set(seen)) == 500
    assert sample(replace(config, types={"other": config.types["other"]}), transport) == {}
    transport.close()


def test_a_generation_keeps_its_sample(tmp_path):
    """What a generation decides by is what it began with, read again from the checkpoint; older ones have none."""
    checkpoint = Checkpoint(Directory(tmp_path))
    begun = Generation(3, "f", "{}", {"t": [{"x": 1, "name": "\u00e9", "price": 0.1}]})
    checkpoint.begin(begun)
    assert checkpoint.generation() == begun
    (tmp_path / "generation.json").write_text('{"number": 2, "fingerprint": "f", "starting_offsets": "{}"}')
    assert checkpoint.generation() == Generation(2, "f", "{}", {})
    checkpoint.close()
