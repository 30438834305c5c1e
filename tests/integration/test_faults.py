"""Faults of the world around a job, on the real services: answered or said, and what comes next is delivered."""

from __future__ import annotations

import json

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from producers.verify import verify
from state.config import load
from tests.integration.harness import RunningJob, Wire

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
cubes = 2
[types.t.attributes]
x = {{ kind = "int" }}
[settings]
master = "local[2]"
on_data_loss = "continue"
"""


class Faults:
    """One job, a client that is not ours, and a probe that tells whether it still routes."""

    def __init__(self, services, folder, prefix):
        self.services, self.prefix, self.path = services, prefix, folder / "hilcast.toml"
        self.configure()
        self.config = load(self.path)
        self.wire = Wire(services.kafka, prefix)
        self.admin = AdminClient({"bootstrap.servers": services.kafka})
        self.job = RunningJob(self.path)
        self.probes = 0

    def configure(self):
        where = {"prefix": self.prefix, "kafka": self.services.kafka, "redis": self.services.redis}
        self.path.write_text(CONFIG.format(**where))

    def create(self, topic, partitions=1, **settings):
        settings = {name.replace("_", "."): value for name, value in settings.items()}
        for made in self.admin.create_topics([NewTopic(topic, partitions, 1, config=settings)]).values():
            made.result(30)

    def receipt(self, id):
        """The last answer to this id: kind and code."""
        found = self.wire.until("receipts", lambda records: any(r.json["key"] == f"b1/t/{id}" for r in records))
        last = [r.json for r in found if r.json["key"] == f"b1/t/{id}"][-1]
        return last["kind"], last["code"]

    def probe(self):
        """A subscription, the fence, a publication: delivered."""
        self.probes += 1
        name = f"probe{self.probes}"
        self.wire.subscribe("b2", "t", name, name, f"x = {self.probes}")
        self.wire.flush()
        self.job.wait()
        self.wire.publish("b1", "t", name, {"x": self.probes})
        self.wire.flush()
        self.wire.until(f"deliver.{name}", lambda records: [r.header("ce_id") for r in records] == [name])

    def transaction(self, number):
        return Producer({"bootstrap.servers": self.services.kafka, "transactional.id": f"{self.prefix}{number}"})


def sinks_that_cannot_be(faults):
    """A twin by `.` and `_`, a compacted and a narrow one are refused with `sink-refused`; the rest goes on."""
    prefix = f"x{faults.prefix}"
    faults.create(f"{prefix}-compacted", cleanup_policy="compact", max_message_bytes="2000000")
    faults.create(f"{prefix}-narrow", max_message_bytes="1000")
    sinks = {"s1": f"{prefix}.alerts.eu", "s2": f"{prefix}.alerts_eu"}
    sinks |= {"s3": f"{prefix}-compacted", "s4": f"{prefix}-narrow", "s5": f"{prefix}.fit"}
    for id, sink in sinks.items():
        faults.wire.subscribe("b1", "t", id, "ann", "x > 1000", sink=sink)
        faults.wire.flush()
        faults.receipt(id)
    answers = {id: faults.receipt(id) for id in sinks}
    refused = ("refused", "sink-refused")
    accepted = ("accepted", None)
    assert answers == {"s1": accepted, "s2": refused, "s3": refused, "s4": refused, "s5": accepted}
    letters = [r for r in faults.wire.read("deadletter") if r.header("hilcast_code") == "sink-refused"]
    assert len(letters) == 3
    faults.probe()
    faults.wire.publish("b1", "t", "to-sinks", {"x": 1001})
    faults.wire.flush()
    for sink in (sinks["s1"], sinks["s5"]):
        faults.wire.until(f"/{sink}", lambda records: [r.header("ce_id") for r in records] == ["to-sinks"])


def what_a_producer_took_back(faults):
    """Aborted publications and subscriptions count for nothing, to routing as to `verify`; the fence passes the marks
    of transactions, also where one is the last thing in a topic.
    """
    producer = faults.transaction(1)
    producer.init_transactions()
    headers = {"ce_specversion": "1.0", "ce_source": "test", "ce_type": "t", "ce_broker": "b1"}
    for id, end in (("kept", producer.commit_transaction), ("taken-back", producer.abort_transaction)):
        producer.begin_transaction()
        value = json.dumps({"client": id, "filter": "x > 2000"})
        producer.produce(f"{faults.prefix}.subscriptions", value, f"b1/t/{id}")
        producer.flush()
        end()
    faults.job.wait()
    assert faults.receipt("kept") == ("accepted", None)
    for id, end in (("kept", producer.commit_transaction), ("taken-back", producer.abort_transaction)):
        producer.begin_transaction()
        producer.produce(
            f"{faults.prefix}.publications", b'{"x": 2001}', headers=list({**headers, "ce_id": id}.items()), partition=0
        )
        producer.flush()
        end()
    faults.probe()
    faults.wire.until("deliver.kept", lambda records: [r.header("ce_id") for r in records] == ["kept"])
    assert "taken-back" not in {r.json["key"].split("/")[2] for r in faults.wire.read("receipts")}
    judgement = verify(faults.config)
    assert judgement.ok, judgement.findings


def input_that_kafka_deleted(faults):
    """It is told from other failures and said with its offsets; the query goes on behind the gap, as it was set."""
    assert faults.job.stop() == 0
    topic = f"{faults.prefix}.publications"
    for i in range(40):
        faults.wire.publish("b1", "t", f"lost{i}", {"x": 1}, key=str(i))
    faults.wire.flush()
    places = [TopicPartition(topic, partition, -1) for partition in (0, 1)]
    for answer in faults.admin.delete_records(places).values():
        answer.result(30)
    faults.job.start()
    faults.probe()
    said = [line for line in faults.job.log.read_text().splitlines() if "goes on behind a gap" in line]
    assert len(said) == 1
    assert "40 records are lost to it" in said[0]
    assert f"{topic}/0: offsets " in said[0]


def an_inbox_that_is_gone(faults):
    """The job stops and says so, and nothing is put in its place."""
    topic = f"{faults.prefix}.subscriptions"
    faults.admin.delete_topics([topic])[topic].result(30)
    assert faults.job.process.wait(90.0) == 1
    assert f"topic-lost: {topic}" in faults.job.tail()
    assert topic not in faults.wire.topics()


@pytest.mark.services
def test_faults_of_the_world(services, tmp_path, unique):
    """Every fault is answered or said with its code, and a probe sent after it is delivered."""
    faults = Faults(services, tmp_path, unique)
    try:
        faults.job.start()
        sinks_that_cannot_be(faults)
        what_a_producer_took_back(faults)
        input_that_kafka_deleted(faults)
        an_inbox_that_is_gone(faults)
    finally:
        faults.job.end()


@pytest.mark.services
def test_topics_that_break_a_promise_are_refused_at_start(services, tmp_path, unique):
    """All faults at once, each with the command that mends it, before anything runs."""
    faults = Faults(services, tmp_path, unique)
    faults.create(f"{unique}.subscriptions", 3)
    faults.create(f"{unique}.registry", message_timestamp_type="LogAppendTime")
    assert faults.job.launch().process.wait(60.0) == 1
    said = faults.job.tail()
    assert "hilcast: topic-settings: " in said
    for fault in ("it has 3 partitions", "cleanup.policy is delete", "message.timestamp.type is CreateTime"):
        assert fault in said
    assert "kafka-configs.sh" in said
