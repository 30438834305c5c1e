"""Every client with inboxes of its own, on the real services: one job, clients that come while it runs, and rivals."""

from __future__ import annotations

import json

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from hilcast import Publisher, RefusedError, Subscriber, wait
from infra.kafka.topic_keeper import TopicKeeper
from producers import cli
from producers.verify import verify
from state.config import load
from state.topics import of_client
from tests.integration.harness import RunningJob, Wire

CONFIG = """
[deployment]
prefix = "{prefix}"
kafka = "{kafka}"
redis = "{redis}"
checkpoint = "checkpoint"
[settings]
inbox_records_per_batch = 40
[overlay]
brokers = ["b1", "b2"]
links = [["b1", "b2"]]
[types.t]
cubes = 4
index = ["x", "y"]
[types.t.attributes]
x = {{ kind = "int", min = 0, max = 100 }}
y = {{ kind = "int", min = 0, max = 100 }}
[security]
inboxes = "own"
[security.clients.shop]
sources = ["urn:shop", "urn:shop/*"]
[[sinks]]
topic = "{prefix}-alerts"
clients = ["alice"]
[limits]
subscriptions = 3
event_bytes = 1000
"""
FLOOD = 400


class World:
    """The job, its topics, and plain Kafka."""

    def __init__(self, services, folder, prefix):
        self.path = folder / "hilcast.toml"
        self.path.write_text(CONFIG.format(prefix=prefix, kafka=services.kafka, redis=services.redis))
        self.config = load(self.path)
        self.wire, self.job = Wire(services.kafka, prefix), RunningJob(self.path)

    def invite(self, *clients):
        """What `hilcast client add` does."""
        for client in clients:
            TopicKeeper(self.config).create(of_client(self.config, client))

    def say(self, client, id, value, broker="b1"):
        self.wire.send(f"subscriptions.{client}", value, key=f"{broker}/t/{id}")

    def publish(self, id, value, broker="b2", client="shop", source="urn:shop"):
        headers = {"ce_specversion": "1.0", "ce_id": id, "ce_type": "t", "ce_broker": broker}
        headers |= {} if source is None else {"ce_source": source}
        self.wire.send(f"publications.{client}", json.dumps(value), headers=list(headers.items()))
        self.wire.flush()

    def got(self, client, *ids):
        """What a client has got once these events are there: the ids of its subscriptions by event."""
        topic = f"deliver.{client}"
        records = self.wire.until(topic, lambda seen: set(ids) <= {record.header("ce_id") for record in seen})
        return {record.header("ce_id"): record.header("hilcast_subscriptions") for record in records}

    def receipts(self, client, enough):
        return [r.json for r in self.wire.until(f"receipts.{client}", lambda seen: len(seen) >= enough)]


@pytest.fixture(scope="module")
def world(services, tmp_path_factory):
    made = World(services, tmp_path_factory.mktemp("own"), "towninboxes")
    made.job.start()
    made.invite("alice", "bob", "shop", "mallory")
    yield made
    made.job.end()


@pytest.mark.services
def test_two_clients_may_use_the_same_id(world):
    """Each has its own subscription `s1`, gets what it asked for under that name, and is answered by itself."""
    world.say("alice", "s1", {"filter": "x < 50"})
    world.say("bob", "s1", {"client": "bob", "filter": "x >= 50"})
    world.wire.flush()
    world.job.wait()
    world.publish("low", {"x": 1})
    world.publish("high", {"x": 99})
    assert world.got("alice", "low") == {"low": "s1"}
    assert world.got("bob", "high") == {"high": "s1"}
    for client in ("alice", "bob"):
        (said,) = world.receipts(client, 1)
        assert (said["kind"], said["key"]) == ("accepted", "b1/t/s1")
    # nobody can withdraw, replace or speak for what is not his
    world.say("mallory", "s1", None)
    world.say("mallory", "s1", {"client": "alice", "filter": "FALSE OR x > 1000", "version": 9})
    world.wire.flush()
    world.job.wait()
    said = [(r["kind"], r["code"]) for r in world.receipts("mallory", 2)]
    assert said == [("withdrawn", None), ("refused", "not-yours")]
    world.publish("low2", {"x": 2})
    assert world.got("alice", "low2")["low2"] == "s1"
    (letter,) = world.wire.read("deadletter")
    assert (letter.header("hilcast_code"), letter.header("hilcast_topic")) == (
        "not-yours",
        f"{world.config.deployment.prefix}.subscriptions.mallory",
    )


@pytest.mark.services
def test_a_client_that_comes_later_needs_no_restart(world):
    """The library makes its inboxes; `wait` does not return before its first subscription is in force."""
    with Subscriber(world.config, "carol") as carol:
        assert carol.subscribe("b1", "t", "y = 7", id="s1").kind == "accepted"
        wait(world.config, client="carol")
        with Publisher(world.config, broker="b2", type="t", client="dora") as dora:
            dora.publish({"x": 1, "y": 7}, id="seven")
        delivery = next(iter(carol))
        assert (delivery.event_id, delivery.source, tuple(delivery.subscriptions)) == ("seven", "dora", ("s1",))
        with pytest.raises(RefusedError, match="sink-refused"):
            carol.subscribe("b1", "t", "y = 8", sink=f"{world.config.deployment.prefix}-alerts")
    arguments = ["--config", str(world.path), "-b", "b1", "-t", "t"]
    assert cli.main(["subscribe", *arguments, "-c", "erik", "--id", "e1", "y = 9"]) == 0
    assert cli.main(["wait", "--config", str(world.path)]) == 0
    assert cli.main(["publish", *arguments, "-c", "shop", "--id", "nine", '{"y": 9}']) == 0
    assert world.got("erik", "nine") == {"nine": "e1"}
    assert cli.main(["unsubscribe", *arguments, "-c", "erik", "e1"]) == 0


@pytest.mark.services
def test_what_is_not_theirs_or_too_much_is_refused(world):
    """A fourth subscription, an event that is too large and a source of another are refused with their codes."""
    with Subscriber(world.config, "bob") as bob:
        for id in ("s2", "s3"):
            bob.subscribe("b1", "t", "x = 1000", id=id)
        with pytest.raises(RefusedError, match="over-quota"):
            bob.subscribe("b1", "t", "x = 1000", id="s4")
        assert bob.subscribe("b1", "t", "x >= 60", id="s1").kind == "replaced"
        bob.subscribe("b2", "t", "x = 1000", id="s4")
    world.publish("large", {"x": 99, "more": "x" * 1000})
    world.publish("forged", {"x": 99}, client="mallory")
    world.publish("unsaid", {"x": 99}, client="mallory", source=None)
    world.publish("below", {"x": 99}, source="urn:shop/7")
    assert {"below", "unsaid"} <= set(world.got("bob", "below", "unsaid"))

    def refused(records):
        return {r.header("ce_id"): r.header("hilcast_code") for r in records if r.header("ce_id")}

    letters = world.wire.until("deadletter", lambda seen: len(refused(seen)) >= 2)  # of two partitions, so of two tasks
    assert refused(letters) == {"large": "over-quota", "forged": "not-yours"}


@pytest.mark.services
def test_a_flood_does_not_hold_up_others(world):
    """Of a flood a batch takes no more than its share: what another sends behind it is answered before most of it."""
    for i in range(FLOOD):
        world.say("mallory", "m1", {"filter": f"x = {i % 90}"})
    world.wire.flush()
    world.say("alice", "s2", {"filter": "y > 90"})
    world.wire.flush()
    world.job.wait()
    flood = world.receipts("mallory", FLOOD + 2)[-FLOOD:]
    batches = [int(said["epoch"].split(".")[1]) for said in flood]
    taken = {batch: batches.count(batch) for batch in set(batches)}
    assert max(taken.values()) <= 40
    (mine,) = [said for said in world.receipts("alice", 2) if said["key"] == "b1/t/s2"]
    behind = sum(batch > int(mine["epoch"].split(".")[1]) for batch in batches)
    assert behind > FLOOD // 2


@pytest.mark.services
def test_an_inbox_that_is_not_kept_as_it_must_be_is_not_read(world):
    """One with the producer's own times could outwit quotas: the job says so and reads all others."""
    admin = AdminClient({"bootstrap.servers": world.config.deployment.kafka})
    topic = world.config.topics.inbox("subscriptions", "zoe")
    admin.create_topics([NewTopic(topic, 1, 1, config={"message.timestamp.type": "CreateTime"})])[topic].result()
    world.say("zoe", "z1", {"filter": "TRUE"})
    world.say("alice", "s3", {"filter": "y > 95"})
    world.wire.flush()
    assert len(world.receipts("alice", 3)) == 3
    assert f"{world.config.deployment.prefix}.receipts.zoe" not in world.wire.topics() or not world.wire.read(
        "receipts.zoe"
    )
    assert "an inbox is not read" in world.job.log.read_text()
    admin.delete_topics([topic])[topic].result()


@pytest.mark.services
def test_everything_is_right_after_a_restart(world):
    """State goes on where it was with inboxes that came while it ran; `verify` finds nothing missing or wrong."""
    assert world.job.stop() == 0
    world.job.start()
    world.say("carol", "s1", {"filter": "y = 17"})
    world.wire.flush()
    world.job.wait()
    world.publish("last", {"x": 99, "y": 17})
    assert world.got("carol", "last")["last"] == "s1"
    assert world.got("bob", "last")["last"] == "s1"
    judged = verify(world.config)
    assert (judged.missing, judged.wrong, judged.unanswered) == (0, 0, 0)
    assert judged.expected > 0
