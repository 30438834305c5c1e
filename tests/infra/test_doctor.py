"""The doctor tells what is well, what is not, and what to do."""

from __future__ import annotations

import time

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from infra import doctor
from infra.doctor import Check, checks
from infra.kafka.topic_keeper import TopicKeeper
from infra.local.ports import free_port
from state.config import Config, parse
from tests.services import Services


def configured(kafka: str, redis: str, prefix: str = "hilcast") -> Config:
    return parse(f"""
        [deployment]
        prefix = "{prefix}"
        kafka = "{kafka}"
        redis = "{redis}"
        [overlay]
        brokers = ["b1"]
        [types.t.attributes]
        price = {{ kind = "float" }}
    """)


def by_name(found: list[Check]) -> dict[str, Check]:
    return {check.name: check for check in found}


def test_all_is_well_with_the_services_of_the_run(services: Services, unique: str) -> None:
    """With everything in place no check fails; a topic that is missing is named with the command for it."""
    admin = AdminClient({"bootstrap.servers": services.kafka})
    for made in admin.create_topics([NewTopic(unique, 1, 1)]).values():
        made.result(30)
    found = checks(configured(services.kafka, services.redis), [unique])
    assert [check for check in found if not check.ok or check.advice] == []
    assert by_name(found)["Kafka version"].detail == "4.3"
    assert len(by_name(found)) == len(found) == 15
    assert by_name(found)["inboxes"].detail.startswith("shared: whoever may write there speaks for every client")
    lacking = by_name(checks(configured(services.kafka, services.redis), [unique, f"{unique}.b"]))
    assert lacking["topics"] == Check("topics", False, f"1 of 2 missing: {unique}.b", "run `hilcast topics`")


def test_topics_that_somebody_else_made(services: Services, unique: str) -> None:
    """Every setting that breaks a promise is found, all at once, each with the command that mends it; what is well is
    not named, nor a topic of a source.
    """
    config = configured(services.kafka, services.redis, unique)
    delete, late = {"cleanup.policy": "delete"}, {"message.timestamp.type": "LogAppendTime"}
    made = [
        NewTopic(config.topics.subscriptions, 3, 1, config=late),
        NewTopic(config.topics.advertisements, 1, 1),
        NewTopic(config.topics.registry, 1, 1, config=late | delete),
        NewTopic(config.topics.control, 1, 1, config=late),
        NewTopic(config.topics.receipts, 1, 1, config=late | {"max.message.bytes": "2000000"}),
    ]
    admin = AdminClient({"bootstrap.servers": services.kafka})
    for answer in admin.create_topics(made).values():
        answer.result(30)
    keeper = TopicKeeper(config)
    assert {(f.topic.rpartition(".")[2], f.what.split()[0]) for f in keeper.faults()} == {
        ("subscriptions", "it"),
        ("advertisements", "message.timestamp.type"),
        ("registry", "cleanup.policy"),
        ("control", "max.message.bytes"),
    }
    found = by_name(checks(config))["topic settings"]
    assert not found.ok
    for command in ("--delete --topic", "--add-config cleanup.policy=compact", "max.message.bytes=", "LogAppendTime"):
        assert command in found.advice
    assert config.topics.receipts not in found.detail


def test_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Kafka and Redis the checks say so, no check raises, and no password is in them."""
    monkeypatch.setattr(doctor, "_TIMEOUT_S", 1.0)
    kafka, redis = f"127.0.0.1:{free_port()}", f"redis://:hush@127.0.0.1:{free_port()}/0"
    found = checks(configured(kafka, redis), ["t"])
    ill = {check.name for check in found if not check.ok}
    assert ill == {
        "Kafka",
        "Kafka version",
        "topics",
        "topic settings",
        "rights in Kafka",
        "Redis",
        "Redis version",
        "Redis memory",
        "clock",
    }
    assert all(check.advice for check in found if not check.ok)
    assert "hilcast up" in by_name(found)["Kafka"].advice
    assert "hush" not in repr(found)


def test_what_the_router_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Packages of the base and of the router are looked for, those of the other extras are not."""
    wanted = [
        "msgspec>=0.20",
        'no-spark==1; extra == "router"',
        'no-plots; extra == "bench"',
        'hilcast[a]; extra == "router"',
    ]
    monkeypatch.setattr(doctor.importlib.metadata, "requires", lambda name: wanted)
    found = doctor._packages()
    assert (found.ok, found.detail) == (False, "not installed: no-spark")
    assert "pip install 'hilcast[router]'" in found.advice


def test_no_java_and_no_jars(
    services: Services, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """What is missing on this machine is told apart from what is missing elsewhere."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("HILCAST_JARS", str(tmp_path_factory.mktemp("empty")))
    found = [check for check in checks(configured(services.kafka, services.redis)) if not check.ok]
    assert [check.name.split()[0] for check in found] == ["Java", "jars", "jars"]
    assert "JAVA_HOME" in found[0].advice
    assert "make setup" in found[1].advice


@pytest.mark.parametrize(
    ("check", "ok"),
    [
        (doctor._redis_version("6.0.16"), False),
        (doctor._redis_version("6.2"), True),
        (doctor._redis_version("7.0.15"), True),
        (
            doctor._redis_memory({"maxmemory": 1 << 20, "maxmemory_human": "1M", "maxmemory_policy": "allkeys-lru"}),
            False,
        ),
        (
            doctor._redis_memory({"maxmemory": 1 << 20, "maxmemory_human": "1M", "maxmemory_policy": "noeviction"}),
            True,
        ),
        (doctor._redis_memory({"maxmemory": 0, "maxmemory_policy": "allkeys-lru"}), True),
        (doctor._clock(-60.0), False),
        (doctor._clock(60.0), False),
        (doctor._clock(0.2), True),
    ],
)
def test_limits(check: Check, ok: bool) -> None:
    """Old Redis, eviction and wrong clocks are told, each with advice; the rest is not."""
    assert check.ok is ok
    assert bool(check.advice) is not ok


def test_the_clock_is_compared_with_now(services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that is an hour off is seen."""
    now = time.time
    monkeypatch.setattr(doctor.time, "time", lambda: now() - 3600)
    found = by_name(checks(configured(services.kafka, services.redis)))["clock"]
    assert not found.ok
    assert "3600" in found.detail
