"""Topics that may be delivered to, on a real broker and beside one that does not answer."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from types import SimpleNamespace

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from infra.kafka import destinations
from infra.kafka.destinations import Destinations
from infra.kafka.topic_keeper import CHANGED_MAX, RefusedError, TopicKeeper
from state.config import parse
from state.errors import HilcastError
from state.limits import OUTPUT_BYTES_MAX
from state.topics import Topics
from tests.producers.worlds import configured, text

ROOM = {"max.message.bytes": str(OUTPUT_BYTES_MAX)}


@pytest.mark.services
def test_sinks_on_a_real_broker(services, unique):
    """A new sink is created and fit; its twin by `.` and `_`, a compacted or narrow one, an impossible name and one
    that looks like ours are refused, each with its reason.
    """
    config = configured(services, unique)
    admin = AdminClient({"bootstrap.servers": services.kafka})
    made = [
        NewTopic(f"{unique}-compacted", 1, 1, config=ROOM | {"cleanup.policy": "compact"}),
        NewTopic(f"{unique}-narrow", 1, 1, config={"max.message.bytes": "2000"}),
        NewTopic(f"{unique}-theirs", 3, 1, config=ROOM),
    ]
    for answer in admin.create_topics(made).values():
        answer.result(30)
    keeper = TopicKeeper(config)
    judge = Destinations(keeper, say=lambda line: None)
    assert judge(f"x{unique}.alerts.eu") is None
    assert judge(f"x{unique}.alerts.eu") is None
    assert f"x{unique}.alerts.eu" in keeper.existing()
    assert judge(f"{unique}-theirs") is None
    for topic, reason in (
        (f"x{unique}.alerts_eu", "collides"),
        (f"{unique}-compacted", "compacted"),
        (f"{unique}-narrow", "max.message.bytes is 2000"),
        ("no topic!", "cannot create"),
        (f"{unique}_deliver_bob", "cannot tell it from"),
    ):
        assert reason in (judge(topic) or ""), topic
    for made in admin.create_topics(
        [NewTopic(config.topics.deliver("eve"), 1, 1, config=ROOM | {"cleanup.policy": "compact"})]
    ).values():
        made.result(30)
    assert "compacted" in (judge(config.topics.deliver("eve")) or "")
    assert keeper.unfit([f"{unique}-theirs", f"{unique}-narrow", "nowhere"]).keys() == {f"{unique}-narrow"}
    made, refused = keeper.recreate([config.topics.deliver("cy"), f"x{unique}.alerts_eu"])
    assert (made, list(refused)) == ([config.topics.deliver("cy")], [f"x{unique}.alerts_eu"])
    assert judge(config.topics.deliver("bob")) is None
    assert config.topics.deliver("bob") not in keeper.existing(), "it is created when the subscription is accepted"


@pytest.mark.services
def test_topics_are_given_the_lanes_that_they_lack(services, unique):
    """Publications and links, and nothing else; none is taken away, and that they have more is said."""
    config = configured(services, unique, create=False)
    topics = config.topics

    def keeper(partitions):
        return TopicKeeper(replace(config, settings=replace(config.settings, partitions=partitions)))

    def lanes():
        found = keeper(None).partitions()
        return {name: found[name] for name in (topics.publications, topics.link("b1", "b2"), topics.control)}

    keeper(1).ensure_needed()
    assert lanes() == dict.fromkeys(lanes(), 1)
    assert keeper(3).ensure_needed() == [], "nothing is created"
    wide = {topics.publications: 3, topics.link("b1", "b2"): 3, topics.control: 1}
    assert lanes() == wide
    assert keeper(3).faults() == []
    keeper(2).ensure_needed()
    assert lanes() == wide
    faults = keeper(2).faults()
    assert {fault.topic for fault in faults} >= {topics.publications, topics.link("b1", "b2")}
    assert not any(fault.fatal for fault in faults)
    missing = {fault.what for fault in keeper(4).faults() if fault.topic == topics.publications}
    assert missing == {"it has 3 of 4 partitions"}


@pytest.mark.services
def test_delivery_topics_are_given_the_lanes_that_they_lack(services, unique):
    """Those that are there grow when the job looks at them and when the configuration is taken; none gets fewer."""
    config = configured(services, unique, create=False)
    ann, bob, cy = (config.topics.deliver(name) for name in ("ann", "bob", "cy"))

    def keeper(lanes):
        return TopicKeeper(replace(config, settings=replace(config.settings, delivery_partitions=lanes)))

    def lanes():
        return keeper(None).partitions(names=[ann, bob, cy])

    keeper(None).ensure([ann, bob])
    assert lanes() == {ann: 1, bob: 1}
    keeper(3).ensure_needed(own=False)
    assert lanes() == {ann: 1, bob: 1}, "not at every look"
    (fault,) = (fault for fault in keeper(3).faults() if fault.topic == ann)
    assert (fault.what, fault.fatal) == ("of topics such as this, 2 have less than 3 partitions", False)
    keeper(None).ensure_needed(config=keeper(3).config)
    assert lanes() == {ann: 3, bob: 3}
    assert keeper(4).recreate([ann, cy]) == ([cy], {})
    keeper(2).ensure([ann, bob, cy])
    keeper(2).ensure_needed()
    assert lanes() == {ann: 4, bob: 3, cy: 4}


def test_many_topics_are_made_in_parts():
    """No request is for more than Kafka takes, and each topic is asked for once."""
    config, asked, there = parse(text(SimpleNamespace(kafka="127.0.0.1:1", redis="redis://127.0.0.1:1/0"), "p")), [], {}

    def make(new, **_):
        asked.append(len(new))
        there.update((topic.topic, 1) for topic in new)
        done = {topic.topic: Future() for topic in new}
        for future in done.values():
            future.set_result(None)
        return done

    keeper = TopicKeeper(config)
    keeper.admin = SimpleNamespace(create_topics=make)
    keeper.partitions = lambda timeout_s=0.0, names=(): {name: there[name] for name in names if name in there}
    names = [config.topics.deliver(f"c{i}") for i in range(CHANGED_MAX * 2 + 1)]
    assert (keeper.ensure(names), keeper.ensure(names)) == ({}, {})
    assert (asked, sorted(there)) == ([CHANGED_MAX, CHANGED_MAX, 1], sorted(names))


class Keeper:
    """Answers as it is told."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = self.listed = 0
        self.config = SimpleNamespace(
            deployment=SimpleNamespace(prefix="hilcast"),
            topics=Topics("hilcast"),
            settings=SimpleNamespace(delivery_retention_hours=1, delivery_partitions=None),
        )

    def create(self, topics):
        self.asked += 1
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer

    def rehearse(self, topic):
        self.create({topic: None})

    def existing(self):
        self.listed += 1
        return {"hilcast.deliver.theirs"}

    def unfit(self, topics, unseen=None):
        answer = self.answers.pop(0)
        return {} if answer is None else dict.fromkeys(topics, answer)


def test_nobody_is_refused_because_kafka_is_away(monkeypatch):
    """It is waited for, which is said once; what it says then counts."""
    monkeypatch.setattr(destinations.time, "sleep", lambda s: None)
    said = []
    keeper = Keeper(HilcastError("kafka-away", "no"), HilcastError("kafka-away", "no"), None, None)
    assert Destinations(keeper, said.append)("a") is None
    assert len(said) == 1


def test_a_refusal_is_remembered_for_a_moment(monkeypatch):
    """The same batch is answered alike; later, when somebody has mended it, it is asked again."""
    now = [0.0]
    monkeypatch.setattr(destinations.time, "monotonic", lambda: now[0])
    keeper = Keeper(RefusedError("kafka-topic", "not allowed"), None, None)
    judge = Destinations(keeper, lambda line: None)
    now[0] = 100.0
    assert judge("a") == judge("a") == "not allowed"
    now[0] = 110.0
    assert judge("a") is None


def test_a_topic_that_may_not_be_written_is_refused():
    """That it exists is not enough."""
    reason = "the job may not write to it"
    assert Destinations(Keeper(None, reason), lambda line: None)("a") == reason


def test_the_right_to_create_is_asked_once_and_after_doubt(monkeypatch):
    """Thousands of clients cost one question; after a failure it is asked again, and clients are refused."""
    keeper = Keeper(None, RefusedError("kafka-topic", "not allowed"))
    judge = Destinations(keeper, lambda line: None)
    assert [judge(f"hilcast.deliver.c{i}") for i in range(5)] == [None] * 5
    assert (keeper.asked, keeper.listed) == (1, 1)
    judge.doubt()
    assert judge("hilcast.deliver.c1") == "not allowed"


def test_a_delivery_topic_that_somebody_else_made_is_judged():
    """One that is there already is looked at, as a sink is."""
    judge = Destinations(Keeper(None, "it is compacted"), lambda line: None)
    assert judge("hilcast.deliver.theirs") == "it is compacted"
    assert judge("hilcast.deliver.ours") is None
