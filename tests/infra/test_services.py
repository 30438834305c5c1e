"""The local services, for real: Kafka and Redis started, used, broken and stopped."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from redis import AuthenticationError, Redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from infra.local.kafka_broker import LocalKafka
from infra.local.ports import free_port
from infra.local.process import Process, born
from infra.local.redis_server import LocalRedis
from infra.local.services import LocalServices
from state.errors import HilcastError
from tests.services import Services

ROOT = Path(__file__).parents[2]


def create(kafka: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka})
    for made in admin.create_topics([NewTopic(topic, 1, 1)]).values():
        made.result(30)


def produce(kafka: str, topic: str, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": kafka})
    producer.produce(topic, value)
    assert producer.flush(30) == 0


def consume(kafka: str, topic: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": f"{topic}.reader", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    values: list[bytes] = []
    deadline = time.monotonic() + 30
    while len(values) < count and time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            values.append(message.value())
    consumer.close()
    return values


def pids(services: LocalServices) -> list[int]:
    return [each.pid for each in services.status() if each.pid is not None]


@pytest.fixture
def own(tmp_path: Path) -> Iterator[LocalServices]:
    """Services of one test, in a folder whose name has a space, stopped even if the test fails."""
    local = LocalServices.on_free_ports(tmp_path / "my data")
    yield local
    local.down()


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[LocalRedis]:
    """A Redis of one test, not started."""
    local = LocalRedis(tmp_path, f"redis://127.0.0.1:{free_port()}/0")
    yield local
    local.stop()


def test_a_message_goes_through_the_shared_services(services: Services, unique: str) -> None:
    """What is produced comes back, and Redis keeps a value: the services of the run are real."""
    create(services.kafka, unique)
    produce(services.kafka, unique, b"hello")
    assert consume(services.kafka, unique, 1) == [b"hello"]
    with Redis.from_url(services.redis) as link:
        link.set(unique, "1", ex=60)
        assert link.get(unique) == b"1"


def test_a_topic_that_nobody_made_is_not_made(services: Services, unique: str) -> None:
    """Automatic creation of topics is off."""
    producer = Producer({"bootstrap.servers": services.kafka, "message.timeout.ms": 1000})
    failed = []
    producer.produce(unique, b"x", on_delivery=lambda error, _: failed.append(error))
    producer.flush(20)
    assert [error is None for error in failed] == [False]
    assert unique not in AdminClient({"bootstrap.servers": services.kafka}).list_topics(timeout=10).topics


def test_one_life_of_the_services(own: LocalServices) -> None:
    """From a half-written folder to a clean stop: started twice, killed, restarted, stopped, damaged.

    One test, because a start costs seconds: each step proves one sentence of its own.
    """
    kept = own.data / "kafka" / "log"
    kept.mkdir(parents=True)
    (kept / "bootstrap.checkpoint").write_bytes(b"half")
    (kept / "meta.properties").write_text("version=1\n")
    own.up()  # what a killed format left is formatted again
    first = pids(own)
    assert [(each.running, each.answers) for each in own.status()] == [(True, True)] * 2

    own.up()  # a second up changes nothing
    other = LocalServices(own.data, kafka=own.kafka, redis=own.redis)
    other.up()  # nor does one of another program
    assert pids(own) == pids(other) == first
    with other:
        pass  # leaving a `with` that started nothing stops nothing
    assert pids(own) == first

    moved = LocalServices(own.data, kafka=own.kafka, redis=f"redis://127.0.0.1:{free_port()}/0")
    with pytest.raises(HilcastError, match="services-moved"):
        moved.up()  # a changed address is refused while the old one runs
    assert pids(own) == first

    create(own.kafka, "t")
    produce(own.kafka, "t", b"1")
    os.kill(first[0], signal.SIGKILL)
    while own.status()[0].running:
        time.sleep(0.02)
    assert (own.data / "kafka" / "kafka.pid").exists() is False  # the dead one's file is cleared away
    own.up()  # the broker is started again, Redis is left alone
    assert pids(own)[1] == first[1]
    produce(own.kafka, "t", b"2")
    assert consume(own.kafka, "t", 2) == [b"1", b"2"]  # and nothing was lost

    last = pids(own)
    own.down()
    assert [born(pid) for pid in last] == [None, None]  # down leaves no process
    assert "shut down" in (own.data / "logs" / "kafka.log").read_text()  # a clean stop, in the log
    own.down()  # and may be repeated

    (kept / "meta.properties").rename(own.data / "meta.away")
    with pytest.raises(HilcastError, match=r"bad-data: .*holds records"):
        own.up()
    assert pids(own) == []  # the Redis that had come up went down again
    assert (kept / "t-0" / f"{0:020}.log").stat().st_size > 0  # and nothing was erased


def test_services_end_with_the_program_that_was_killed(tmp_path: Path) -> None:
    """Tied services do not outlive their program, even after `kill -9`."""
    program = textwrap.dedent(f"""
        import json, time
        from pathlib import Path
        from infra.local.services import LocalServices
        services = LocalServices.on_free_ports(Path({str(tmp_path)!r}))
        services.up()
        print(json.dumps([each.pid for each in services.status()]), flush=True)
        time.sleep(600)
    """)
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, cwd=ROOT, text=True) as run:
        assert run.stdout is not None
        started = json.loads(run.stdout.readline())
        lives = {pid: born(pid) for pid in started}
        run.kill()
    deadline = time.monotonic() + 40
    while any(born(pid) == life for pid, life in lives.items()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert all(lives.values())
    assert [pid for pid, life in lives.items() if born(pid) == life] == []


def test_a_stale_pid_file_names_nobody(redis: LocalRedis) -> None:
    """A pid that another program has now is not taken for ours, and that program is not ended."""
    with subprocess.Popen(["sleep", "60"]) as stranger:
        redis.process.pid_file.parent.mkdir(parents=True)
        for text in (
            json.dumps({"pid": stranger.pid, "born": "another boot/1", "address": str(redis.address)}),
            str(stranger.pid),
            '{"pid": ',
            "",
        ):
            redis.process.pid_file.write_text(text)
            assert redis.process.running() is None
            assert redis.stop() is False
            redis.process.pid_file.write_text(text)
            assert redis.start() is True
            assert redis.stop() is True
        assert stranger.poll() is None
        stranger.kill()


def test_a_service_that_does_not_listen_is_ended_by_force(tmp_path: Path) -> None:
    """What ignores SIGTERM is gone after its time all the same."""
    script = "trap '' TERM; echo ready; while :; do sleep 0.05; done"
    process = Process("stubborn", tmp_path / "stubborn.pid", tmp_path / "stubborn.log")
    known = process.launch(["sh", "-c", script], "nowhere", tmp_path)
    while "ready" not in process.last_words():
        time.sleep(0.01)
    assert process.stop(grace_s=0.3) is True
    assert born(known.pid) is None


@pytest.mark.parametrize("service", ["kafka", "redis"])
def test_a_taken_port_is_named(service: str, tmp_path: Path) -> None:
    """If somebody else listens there, the message says where and what to do, and nothing is left running."""
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", 0))
        stranger.listen()
        port = stranger.getsockname()[1]
        local: LocalKafka | LocalRedis
        if service == "kafka":
            local = LocalKafka(tmp_path, f"127.0.0.1:{port}")
        else:
            local = LocalRedis(tmp_path, f"redis://127.0.0.1:{port}")
        with pytest.raises(HilcastError, match=rf"port-taken: 127.0.0.1:{port} .*set deployment.{service}"):
            local.start()
        assert local.process.running() is None


def test_a_service_that_ends_at_once_shows_its_last_words(redis: LocalRedis, monkeypatch: pytest.MonkeyPatch) -> None:
    """If Redis refuses its settings, the end of its log is in the message."""
    monkeypatch.setattr(LocalRedis, "_settings", lambda self, tls: "no-such-setting yes\n")
    with pytest.raises(HilcastError, match=r"(?s)redis-failed: .*no-such-setting"):
        redis.start()
    assert redis.process.running() is None


@pytest.mark.parametrize("user", ["", "anna"])
def test_a_password_is_asked_for_and_never_shown(user: str, tmp_path: Path) -> None:
    """A Redis URL with a password makes a Redis that asks for it; no process list and no text shows it."""
    port, secret = free_port(), 'wo rd"1\\'
    local = LocalRedis(tmp_path, f"redis://{user}:wo%20rd%221%5C@127.0.0.1:{port}/0")
    try:
        local.start()
        with Redis(port=port, retry=Retry(NoBackoff(), 0)) as link, pytest.raises(AuthenticationError):
            link.ping()
        with Redis(port=port, username=user or None, password=secret) as link:
            assert link.ping()
        command = Path(f"/proc/{local.process.running().pid}/cmdline")
        if command.exists():
            assert b"wo rd" not in command.read_bytes()
        assert "wo rd" not in repr(local.address) + str(local.address) + local.process.log.read_text()
        assert (tmp_path / "redis" / "redis.conf").stat().st_mode & 0o077 == 0
    finally:
        local.stop()


@pytest.mark.parametrize(
    ("kafka", "redis", "what"),
    [
        ("kafka.example.org:9092", "redis://127.0.0.1:1/0", "kafka.example.org"),
        ("127.0.0.1:1,127.0.0.1:2", "redis://127.0.0.1:1/0", "exactly one HOST:PORT"),
        ("127.0.0.1", "redis://127.0.0.1:1/0", "exactly one HOST:PORT"),
        ("127.0.0.1:99999", "redis://127.0.0.1:1/0", "exactly one HOST:PORT"),
        ("127.0.0.1:1", "rediss://127.0.0.1:1/0", "rediss"),
        ("127.0.0.1:1", "redis://cache.example.org:1/0", "cache.example.org"),
        ("127.0.0.1:1", "redis://127.0.0.1:1/db", "no URL"),
        ("127.0.0.1:1", "unix:///tmp/redis.sock", "unix"),
    ],
)
def test_what_is_not_on_this_machine_is_not_started(kafka: str, redis: str, what: str, tmp_path: Path) -> None:
    """Addresses that are not one loopback port are refused before anything happens."""
    with pytest.raises(HilcastError, match=rf"not-local: .*{what}"):
        LocalServices(tmp_path / "d", kafka=kafka, redis=redis)
    assert not (tmp_path / "d").exists()


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """A data folder under a file is refused with advice."""
    (tmp_path / "file").touch()
    with pytest.raises(HilcastError, match=r"bad-data: cannot write .*--data"):
        LocalServices.on_free_ports(tmp_path / "file" / "d").up()


def test_free_ports_differ() -> None:
    """Ports are given once, and are free when they are given."""
    ports = [free_port() for _ in range(50)]
    assert len(set(ports)) == 50
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", ports[0]))


def test_kcat_is_served(services: Services, unique: str) -> None:
    """A client that is not ours speaks with the broker (only where kcat is installed)."""
    create(services.kafka, unique)
    kcat = shutil.which("kcat")
    if kcat is None:
        produce(services.kafka, unique, b"k")
    else:
        subprocess.run([kcat, "-P", "-b", services.kafka, "-t", unique], input=b"k", check=True, timeout=30)
    assert consume(services.kafka, unique, 1) == [b"k"]
