"""Who may do what, on a secured Kafka and Redis: a job, two clients, an intruder with a password, and an operator.

Everything that is allowed works; everything that is forbidden is tried, and fails. One `hilcast up --secure`, one job.
"""

from __future__ import annotations

import json
import os
import re
import socket
import ssl
import threading
import time
import tomllib
from pathlib import Path

import msgspec
import pytest
import redis as redis_client
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from infra.kafka import open_transport
from infra.kafka.acl import Acls
from infra.kafka.dialects import librdkafka
from infra.kafka.reading import every
from infra.kafka.scram import ScramUsers
from infra.local.ports import free_port
from infra.secret_files import write_secret
from producers.cli import main
from state.access import Grant
from state.config import load
from state.control.protocol import Change, decode, encode
from state.errors import HilcastError
from state.messages import Output
from state.redis_index import RedisIndex
from state.signing import Keyring, genuine
from tests.house.test_documentation import blocks
from tests.integration.shell import ROOT, Shell

PLANTED = "planted-registry-secret"
MORE = f"""
home_shards = 2
wide_shards = 1
idle_topic_hours = 0.003
[types.t]
cubes = 2
[types.t.attributes]
x = {{ kind = "int", min = 0, max = 100 }}
[types.promised]
cubes = 1
advertisements = true
[types.promised.attributes]
x = {{ kind = "int", min = 0, max = 100 }}
[schemas]
url = "http://me:{PLANTED}@127.0.0.1:1"
[[sinks]]
topic = "sec-alerts"
clients = ["bob"]
[limits.clients.mallory]
subscriptions = 3
changes_per_minute = 20
[security.clients.mallory]
"""
"""What these tests need beyond the tour of docs/security.md; it stands behind `[settings]` of the example."""
TIMEOUT = ["--timeout", "150"]


class Secured:
    """The tour of docs/security.md, typed block by block; the configurations of all principals, and the job."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.blocks = [code for kind, code in blocks(ROOT / "docs/security.md") if kind == "bash"]
        text = (ROOT / "hilcast.toml").read_text() + MORE
        text = text.replace(":9092", f":{free_port()}").replace(":6379", f":{free_port()}")
        (folder / "hilcast.toml").write_text(text.replace("trigger_ms = 500", "trigger_ms = 200"))
        self.data = folder / "var" / "secured"
        self.base = self.data / "hilcast.toml"
        self.shell = Shell(folder)
        self.log, self.output = self.data / "job.log", self.data / "job.out"

    def type_next(self) -> str:
        """Type the next block of the tour; return what was said."""
        # on a machine that has much else to do a minute may be short
        block = re.sub(
            r"\bhilcast (wait|apply|subscribe)\b(?!.*--timeout)", r"hilcast \1 --timeout 240", self.blocks.pop(0)
        )
        return self.shell.type(block)

    def job_runs(self) -> bool:
        return self.shell.process.poll() is None and self.shell.type("kill -0 $JOB && echo runs").strip() == "runs"

    def end(self) -> None:
        self.shell.end()
        if self.base.exists():
            self.services("down")

    def path(self, who: str) -> Path:
        return self.data / "secure" / f"{who}.toml"

    def config(self, who: str):
        return load(self.path(who))

    def run(self, who: str, *words: str) -> int:
        """A command as one principal."""
        return main([*words, "--config", str(self.path(who))])

    def services(self, *words: str) -> int:
        return main([*words, "--data", str(self.data), "--config", str(self.base)])

    def produce(self, who: str, topic: str, key: str | None, value: bytes | None, headers=()) -> KafkaError | None:
        """Write one record as a principal; the error, if it was not taken."""
        told = []
        producer = Producer({**librdkafka(self.config(who)), "message.timeout.ms": 15_000})
        try:
            producer.produce(topic, value, key, headers=list(headers), on_delivery=lambda error, _: told.append(error))
            producer.flush(20)
        except KafkaException as error:
            return error.args[0]
        return told[0]

    def admin(self, who: str) -> AdminClient:
        return AdminClient(librdkafka(self.config(who)))

    def read(self, who: str, topic: str) -> list:
        transport = open_transport(self.config(who))
        try:
            return list(every(transport, topic))
        finally:
            transport.close()

    def figures(self) -> dict[str, str]:
        index = RedisIndex(self.config("router"))
        try:
            return index.figures()
        finally:
            index.close()


def until(true, what: str, timeout_s: float = 90.0):
    """Wait for something that must come; return what it was."""
    deadline = time.monotonic() + timeout_s
    while not (found := true()):
        assert time.monotonic() < deadline, what
        time.sleep(0.3)
    return found


@pytest.fixture(scope="module")
def secured(tmp_path_factory):
    """Secured services and a job on them: the first block of the tour."""
    made = Secured(tmp_path_factory.mktemp("secured"))
    try:
        made.type_next()
        yield made
    finally:
        made.end()


def words(capsys) -> str:
    return capsys.readouterr().out


@pytest.mark.services
def test_the_tour_works_as_printed(secured):
    """A stranger who types the blocks of docs/security.md sees all that the README's tour shows, with own inboxes."""
    said = "".join(secured.type_next() for _ in range(len(secured.blocks) - 1))
    assert '"kind":"accepted","key":"b1/stock.quote/s1"' in said
    assert "from urn:bob" in said
    assert "from urn:alice" not in said, "neither delivered nor, by its headers alone, in what is shown of dead letters"
    assert "hilcast_subscriptions=s1" in said
    assert {"hilcast_code=filter-syntax", "hilcast_code=not-yours"} <= set(re.split(r"[,\s]", said))
    assert said.count("not allowed\n") == 3, (
        "reading, subscribing and granting that are not Bob's and not an operator's"
    )
    assert '"country": "DE"' in said
    assert "ce_source=kafka:shop.orders" in said
    assert '"country": "FR"' not in said
    assert "nothing missing, nothing wrong" in said


@pytest.mark.services
def test_everything_that_is_allowed_works(secured, capsys):
    """Clients subscribe, advertise, publish, wait, read and withdraw; an operator looks at all of it."""
    run, topics = secured.run, secured.config("router").topics
    subscribe = ("subscribe", *TIMEOUT, "-b", "b1", "-t")
    assert run("alice", *subscribe, "t", "-c", "alice", "--id", "s1", "x < 10") == 0
    assert run("bob", *subscribe, "t", "-c", "bob", "--id", "s1", "x < 50") == 0
    assert run("bob", *subscribe, "t", "-c", "bob", "--id", "s2", "--sink", "sec-alerts", "x < 50") == 0
    assert run("alice", *subscribe, "promised", "-c", "alice", "--id", "p1", "x > 5") == 0
    promise = ("advertise", *TIMEOUT, "-b", "b2", "-t", "promised", "-p", "urn:bob", "-c", "bob", "--id", "a1")
    assert run("bob", *promise, "x > 0") == 0
    assert run("alice", "wait", *TIMEOUT) == 0
    assert run("ops", "wait", *TIMEOUT) == 0
    publish = ("publish", "-c", "bob", "-b", "b2", "-t")
    assert run("bob", *publish, "t", "--source", "urn:bob", "--id", "e1", '{"x": 5}') == 0
    assert run("bob", *publish, "t", "--source", "urn:bob/7", "--id", "e2", '{"x": 30}') == 0
    assert run("bob", *publish, "promised", "--source", "urn:bob", "--id", "e3", '{"x": 9}') == 0
    words(capsys)
    assert run("alice", "tail", "alice", "--count", "3", *TIMEOUT, "--json") == 0
    seen = [json.loads(line) for line in words(capsys).splitlines()]
    seen = {(d["id"], tuple(d["subscriptions"])) for d in seen}
    assert seen == {("quote-urn:bob", ("s1",)), ("e1", ("s1",)), ("e3", ("p1",))}
    assert run("bob", "tail", "bob", "--count", "3", *TIMEOUT, "--json") == 0
    assert {json.loads(line)["id"] for line in words(capsys).splitlines()} >= {"e1", "e2"}
    assert run("bob", "unsubscribe", *TIMEOUT, "-c", "bob", "-b", "b1", "-t", "t", "s1") == 0
    assert len(secured.read("ops", "sec-alerts")) == 2
    assert {record.topic for record in secured.read("alice", topics.receipts_of("alice"))} == {"hilcast.receipts.alice"}
    words(capsys)
    for command in (("status", "--json"), ("inspect", "--json"), ("verify", "--json")):
        assert run("ops", *command) == 0, command
        assert words(capsys), command
    run("ops", "doctor", "--json")
    ill = [check["name"] for check in json.loads(words(capsys)) if not check["ok"]]
    assert ill == ["schema registry"], "but for the one that nobody started"


@pytest.mark.services
def test_a_client_is_added_while_the_job_runs(secured, capsys):
    """Its topics, rights and password come by one command, twice if need be; then it is served, without a restart."""
    for taken in ("router", "bootstrap", "a.b", "", "alice/x"):
        assert secured.run("bootstrap", "client", "add", taken) == 1, taken
    idler = ("client", "add", "idler", "--password-file", str(secured.folder / "idler.password"))
    assert secured.run("bootstrap", *idler) == 0
    file = secured.folder / "yves.password"
    for _ in range(2):
        assert secured.run("bootstrap", "client", "add", "yves", "--password-file", str(file)) == 0
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.read_text() not in words(capsys)
    text = secured.path("alice").read_text()
    password = tomllib.loads(text)["kafka"]["sasl.password"]
    secured.path("yves").write_text(text.replace(password, file.read_text()).replace('"alice"', '"yves"', 1))
    assert secured.config("yves").kafka["sasl.username"] == "yves"
    assert secured.run("yves", "subscribe", *TIMEOUT, "-b", "b2", "-t", "t", "-c", "yves", "--id", "s1", "x = 77") == 0
    assert secured.run("yves", "wait", *TIMEOUT) == 0
    assert secured.run("yves", "publish", "-b", "b1", "-t", "t", "--source", "yves", "--id", "z", '{"x": 77}') == 0
    assert secured.run("yves", "tail", "yves", "--count", "1", *TIMEOUT) == 0


# ── what Kafka refuses ──────────────────────────────────────────────────────────────────────────────────────────────

DENIED = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    KafkaError._AUTHENTICATION,
    KafkaError.UNKNOWN_TOPIC_OR_PART,  # who may not see a topic is told that there is none
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
}
OURS = ("control", "registry", "receipts", "receipts.alice", "deliver.alice", "link.b1.b2", "routed", "progress")
INBOXES = ("subscriptions.alice", "advertisements.alice", "publications.alice")
KINDS = ("subscriptions", "advertisements", "publications", "deliver", "receipts")
MINE = ("subscriptions.mallory", "publications.mallory", "deliver.mallory", "receipts.mallory")
GROUPS = ("route.main", "client.alice", "client.mallory2")
FORBIDDEN = [
    *(("mallory", "write", f"hilcast.{name}") for name in (*OURS, *INBOXES, "deadletter")),
    *(("mallory", "read", f"hilcast.{name}") for name in (*OURS, *INBOXES, "deadletter")),
    *(("mallory", operation, "sec-alerts") for operation in ("write", "read")),
    *(("mallory", "join", f"hilcast.{name}") for name in ("control.main", "route.main", "client.alice", "reader")),
    ("mallory", "create", "hilcast.deliver.mallory2"),
    ("mallory", "create", "anything"),
    ("mallory", "delete", "hilcast.deliver.alice"),
    ("mallory", "delete", "hilcast.subscriptions.mallory"),
    *(("ops", "write", f"hilcast.{name}") for name in (*OURS, *INBOXES, "deadletter") if name != "registry"),
    ("ops", "delete", "hilcast.registry"),
    ("ops", "join", "hilcast.control.main"),
    *(("router", "write", f"hilcast.{name}") for name in INBOXES),
    ("router", "delete", "hilcast.registry"),
    *((who, what, "") for who in ("mallory", "ops", "router") for what in ("grant", "password")),
    *(("mallory", "join", f"hilcast.client.{name}") for name in ("mallory2", "alice.app", "")),
    *(("mallory", what, f"hilcast.{name}") for what in ("commit", "look", "drop") for name in GROUPS),
    *(("mallory", what, f"hilcast.{name}") for what in ("erase", "alter", "widen") for name in (*OURS, *MINE)),
    *(("mallory", "transact", name) for name in ("hilcast", "hilcast.route.main", "mallory")),
    *(("ops", what, f"hilcast.{name}") for what in ("erase", "alter", "widen") for name in ("registry", "control")),
    *(("ops", what, "hilcast.control.main") for what in ("commit", "drop")),
    *(("router", what, "hilcast.registry") for what in ("erase", "widen")),
    ("router", "widen", "hilcast.deliver.alice"),
    *(("router", "alter", f"hilcast.{name}") for name in ("registry", "control", "receipts.alice")),
    ("router", "delete", "hilcast.receipts.alice"),
    ("impostor", "write", "hilcast.subscriptions.alice"),
    ("nobody", "read", "hilcast.deliver.alice"),
]
"""Who, what, with which topic or group: each must fail."""


def tried(secured, who: str, what: str, names: list[str]) -> dict[str, KafkaError | None]:
    """Try one thing with all of these; by name the error, or None where it was let through."""
    entry = {"log_level": 0, "socket.timeout.ms": 5_000}
    settings = {**librdkafka(secured.config(who)), **entry, "group.id": f"hilcast.client.{who}"}
    ways = {
        "write": _write,
        "read": _read,
        "join": _join,
        "create": _create,
        "delete": _delete,
        "commit": _commit,
        "look": _look,
        "drop": _drop,
        "erase": _erase,
        "alter": _alter,
        "widen": _widen,
        "transact": _transact,
    }
    if what in ways:
        return ways[what](settings, names)
    try:
        if what == "grant":
            Acls(secured.config(who)).give([Grant(f"User:{who}", "topic", "prefixed", "hilcast.", "write")])
        else:
            ScramUsers(secured.config(who)).put({"alice": "taken-over"})
    except HilcastError as error:
        code = KafkaError.CLUSTER_AUTHORIZATION_FAILED if error.code == "not-allowed" else KafkaError.UNKNOWN
        return dict.fromkeys(names, KafkaError(code))
    return dict.fromkeys(names)


def _without_group(settings):
    return {name: value for name, value in settings.items() if name != "group.id"}


def _write(settings, names):
    told = dict.fromkeys(names)
    producer = Producer({**_without_group(settings), "message.timeout.ms": 5_000})
    for name in names:
        producer.produce(name, b"v", "k", on_delivery=lambda error, message: told.update({message.topic(): error}))
    assert producer.flush(20) == 0
    return told


def _read(settings, names):
    """Ask where each ends, which takes the right to see it; read those that can be seen."""
    admin = AdminClient(_without_group(settings))
    ends = admin.list_offsets({TopicPartition(name, 0): OffsetSpec.latest() for name in names}, request_timeout=5.0)
    told = {place.topic: _failure(answer) for place, answer in ends.items()}
    seen = [name for name, error in told.items() if error is None]
    consumer = Consumer({**settings, "enable.partition.eof": True})
    consumer.assign([TopicPartition(name, 0, 0) for name in seen])
    deadline = time.monotonic() + 20
    while seen and time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is not None and message.topic() in seen:
            seen.remove(message.topic())
            passed = message.error() is None or message.error().code() == KafkaError._PARTITION_EOF
            told[message.topic()] = None if passed else message.error()
    consumer.close()
    assert not seen, f"neither read nor refused: {seen}"
    return told


def _join(settings, groups):
    consumers = {group: Consumer({**settings, "group.id": group}) for group in groups}
    told = dict.fromkeys(groups)
    for consumer in consumers.values():
        consumer.subscribe(["hilcast.deliver.mallory"])
    deadline = time.monotonic() + 20
    while any(error is None for error in told.values()) and time.monotonic() < deadline:
        for group, consumer in consumers.items():
            message = consumer.poll(0.1)
            told[group] = told[group] or (None if message is None else message.error())
    for consumer in consumers.values():
        consumer.close()
    return told


def _create(settings, names):
    admin = AdminClient(_without_group(settings))
    return {n: _failure(made) for n, made in admin.create_topics([NewTopic(n, 1, 1) for n in names]).items()}


def _delete(settings, names):
    admin = AdminClient(_without_group(settings))
    return {name: _failure(answer) for name, answer in admin.delete_topics(names).items()}


def _commit(settings, groups):
    """Put a group elsewhere: with its readers it would pass over, or read again, what is there."""
    admin = AdminClient(_without_group(settings))
    place = [TopicPartition("hilcast.control", 0, 0)]
    moves = {g: admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(g, place)])[g] for g in groups}
    return {group: _failure(answer) or answer.result().topic_partitions[0].error for group, answer in moves.items()}


def _look(settings, groups):
    admin = AdminClient(_without_group(settings))
    return {g: _failure(admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(g)])[g]) for g in groups}


def _drop(settings, groups):
    admin = AdminClient(_without_group(settings))
    return {group: _failure(answer) for group, answer in admin.delete_consumer_groups(groups).items()}


def _erase(settings, names):
    admin = AdminClient(_without_group(settings))
    answers = admin.delete_records([TopicPartition(name, 0, 0) for name in names], request_timeout=10.0)
    return {place.topic: _failure(answer) for place, answer in answers.items()}


def _alter(settings, names):
    """Have Kafka forget what is there at once."""
    admin = AdminClient(_without_group(settings))
    entry = ConfigEntry("retention.ms", "1", incremental_operation=AlterConfigOpType.SET)
    asked = [ConfigResource(ResourceType.TOPIC, name, incremental_configs=[entry]) for name in names]
    return {resource.name: _failure(answer) for resource, answer in admin.incremental_alter_configs(asked).items()}


def _widen(settings, names):
    admin = AdminClient(_without_group(settings))
    answers = admin.create_partitions([NewPartitions(name, 9) for name in names])
    return {name: _failure(answer) for name, answer in answers.items()}


def _transact(settings, ids):
    """Have a transactional id: whoever takes one that is in use fences its owner."""
    told = {}
    for id in ids:
        try:
            Producer({**_without_group(settings), "transactional.id": id}).init_transactions(10)
            told[id] = None
        except KafkaException as error:
            told[id] = error.args[0]
    return told


def _failure(answer) -> KafkaError | None:
    try:
        answer.result(20)
    except KafkaException as error:
        return error.args[0]
    return None


@pytest.mark.services
def test_everything_that_is_forbidden_fails(secured):
    """Each line of the table is tried, with a good password, a wrong one or none; Kafka lets none of them through."""
    tables = secured.path("alice").read_text()
    password = tomllib.loads(tables)["kafka"]["sasl.password"]
    secured.path("impostor").write_text(tables.replace(password, "a-guess"))
    secured.path("nobody").write_text(tables.replace("SASL_SSL", "PLAINTEXT"))
    own = ["hilcast.receipts.alice", "hilcast.deliver.alice"]
    assert tried(secured, "alice", "read", own) == dict.fromkeys(own), "what is allowed goes through the same doors"
    assert tried(secured, "alice", "write", ["hilcast.subscriptions.alice"]) == {"hilcast.subscriptions.alice": None}
    seen = set(secured.admin("mallory").list_topics(timeout=10).topics)
    assert seen <= {"hilcast.control", *(f"hilcast.{kind}.mallory" for kind in KINDS)}, "nobody sees who else there is"
    assert len(seen) >= len(KINDS)
    passed = []
    for who, what in dict.fromkeys((who, what) for who, what, _ in FORBIDDEN):
        names = [name for one, other, name in FORBIDDEN if (one, other) == (who, what)]
        for name, error in tried(secured, who, what, names).items():
            outside = who in ("impostor", "nobody")  # who does not get in is not told why, and waits in vain
            if error is None or not (outside or error.code() in DENIED):
                passed.append((who, what, name, None if error is None else error.str()))
    assert passed == []


@pytest.mark.services
def test_redis_lets_nobody_do_more_than_he_may(secured):
    """Without a password nobody enters; the operator's user reads below the prefix; the job's writes there only."""
    job, ops = secured.config("router"), secured.config("ops")
    url = job.deployment.redis
    allowed = redis_client.Redis.from_url(url, **job.redis)
    reader = redis_client.Redis.from_url(url, **ops.redis)
    assert allowed.set("hilcast:probe", "1")
    assert reader.get("hilcast:probe") == b"1"
    allowed.delete("hilcast:probe")
    forbidden = [
        (redis_client.Redis.from_url(url), ("GET", "hilcast:help")),
        (redis_client.Redis.from_url(url, username="router", password="a-guess"), ("GET", "hilcast:help")),
        (reader, ("SET", "hilcast:probe", "1")),
        (reader, ("DEL", "hilcast:help")),
        (reader, ("GET", "other:key")),
        (reader, ("FLUSHALL",)),
        (allowed, ("SET", "other:key", "1")),
        (allowed, ("FLUSHALL",)),
        (allowed, ("CONFIG", "GET", "*")),
        (allowed, ("ACL", "LIST")),
        (allowed, ("KEYS", "*")),
    ]
    for client, command in forbidden:
        with pytest.raises(
            redis_client.RedisError, match=r"HELLO|NOAUTH|WRONGPASS|NOPERM|no permissions|invalid|required"
        ):
            client.execute_command(*command)


class Encrypted(threading.Thread):
    """Speaks TLS before a Redis that does not: what a client sees is a Redis with TLS."""

    def __init__(self, certificate: Path, port: int) -> None:
        super().__init__(daemon=True)
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificate)
        self._behind = port
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self.start()

    def run(self):
        while True:
            near, _ = self._socket.accept()
            threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, plain):
        try:
            near = self._context.wrap_socket(plain, server_side=True)
        except OSError:
            return
        far = socket.create_connection(("127.0.0.1", self._behind))
        threading.Thread(target=_pump, args=(far, near), daemon=True).start()
        _pump(near, far)


def _pump(one, other):
    try:
        while data := one.recv(65536):
            other.sendall(data)
    except OSError:
        pass
    finally:
        other.close()


@pytest.mark.services
def test_redis_by_tls(secured):
    """With rediss:// and the authority's certificate the index is read and written; without it nobody is trusted."""
    text = secured.path("router").read_text()
    url = secured.config("router").deployment.redis
    proxy = Encrypted(secured.data / "secure" / "server.pem", int(url.rsplit(":", 1)[1].partition("/")[0]))
    secret = url.replace("redis://", "rediss://").replace(url.rsplit(":", 1)[1], f"{proxy.port}/0")
    trusted = text.replace(url, secret).replace(
        "[redis]\n", f'[redis]\nssl_ca_certs = "{secured.data}/secure/ca.pem"\n'
    )
    secured.path("tls").write_text(trusted)
    index = RedisIndex(secured.config("tls"))
    assert index.ping()
    index.count({"tls_probe": 1})
    assert index.figures()["tls_probe"] == "1"
    secured.path("tls").write_text(text.replace(url, secret))
    with pytest.raises(redis_client.ConnectionError, match="certificate"):
        RedisIndex(secured.config("tls")).ping()


# ── what the router refuses ─────────────────────────────────────────────────────────────────────────────────────────


def named(record) -> bool:
    """Whether it is one of the publications that name another's source."""
    return dict(record.headers).get("ce_id") == b"forged"


def receipts(secured, who: str) -> list[dict]:
    return [json.loads(r.value) for r in secured.read(who, f"hilcast.receipts.{who}")]


@pytest.mark.services
def test_what_is_said_in_ones_own_inbox_is_not_believed_of_others(secured):
    """Naming another client, another's source, a sink that is not granted, or flooding leads to a code."""
    said = {
        "for-alice": {"client": "alice", "filter": "x < 10"},
        "sink": {"filter": "x < 10", "sink": "sec-alerts"},
        "sink2": {"filter": "x < 10", "sink": "hilcast.control"},
    }
    for id, value in said.items():
        assert (
            secured.produce("mallory", "hilcast.subscriptions.mallory", f"b1/t/{id}", json.dumps(value).encode())
            is None
        )
    for i in range(30):
        value = json.dumps({"filter": f"x = {i}"}).encode()
        assert secured.produce("mallory", "hilcast.subscriptions.mallory", f"b1/t/f{i}", value) is None
    headers = {"specversion": "1.0", "id": "forged", "source": "urn:bob", "type": "t", "broker": "b1"}
    written = [(f"ce_{name}", text.encode()) for name, text in headers.items()]
    twice = [*written, ("ce_source", b"mallory"), ("hilcast_client", b"alice"), ("hilcast_delivery", b"0" * 32)]
    for forged in (written, twice):
        assert secured.produce("mallory", "hilcast.publications.mallory", None, b'{"x": 5}', forged) is None
    until(lambda: len(receipts(secured, "mallory")) >= 33, "receipts of all that mallory said")
    found = {r["key"].rsplit("/", 1)[1]: r for r in receipts(secured, "mallory")}
    assert [found[id]["code"] for id in said] == ["not-yours", "sink-refused", "bad-value"]
    codes = [found[f"f{i}"]["code"] for i in range(30)]
    assert codes.count(None) == 3, "as many subscriptions as it may have"
    assert set(codes) == {None, "over-quota"}
    letters = until(
        lambda: (
            len(found := [r for r in secured.read("ops", "hilcast.deadletter") if (r.headers and named(r))]) >= 2
            and found
        ),
        "the dead letters of both publications",
    )
    assert {dict(letter.headers)["hilcast_code"] for letter in letters} == {b"not-yours"}
    assert secured.run("alice", "wait", *TIMEOUT) == 0
    assert secured.run("ops", "verify", "--json") == 0


@pytest.mark.services
def test_what_is_forged_is_not_used(secured):
    """Who may write everywhere, but has no key, is not believed: control, registry and index go on as they were."""
    before = float(secured.figures().get("forged", 0))
    control = [r for r in secured.read("ops", "hilcast.control") if r.value]
    known = next(r for r in control if isinstance(m := decode(r.value), Change) and m.local)
    change = decode(known.value)
    end = msgspec.structs.replace(change, sequence=change.sequence + 50, removed=[e.id for e in change.local])
    fact = next(r for r in secured.read("ops", "hilcast.registry") if r.key.startswith(b"subscription/"))
    forged = [
        Output("hilcast.control", known.key, encode(end)),
        Output("hilcast.control", known.key, encode(end), known.headers),
        Output("hilcast.registry", fact.key, None),
        Output("hilcast.registry", b"configuration", b'{"version": 999, "shared": {}}'),
    ]
    for one in forged:
        assert secured.produce("bootstrap", one.topic, one.key.decode(), one.value, one.headers) is None
    until(lambda: float(secured.figures().get("forged", 0)) >= before + len(forged), "all of them counted")
    config = secured.config("router")
    link = redis_client.Redis.from_url(config.deployment.redis, **config.redis)
    name = next(link.scan_iter(match="hilcast:b1:t:cube:*:index:*"))
    generation = name.decode().rsplit(":", 1)[1]
    field = "/".join(name.decode().split(":")[1:3]) + "/" + ":".join(name.decode().split(":")[3:5])
    run = link.hget(f"hilcast:vector:main:{generation}", field).decode().split(".", 2)[2]
    link.set(name, b"\x00" * 40)
    link.hset(f"hilcast:vector:main:{generation}", field, f"{generation}.99999.{run}")
    alice = ("publish", "-b", "b2", "-t", "t", "--source", "alice", "--id", "after", '{"x": 4}')
    assert secured.run("alice", *alice) == 0
    assert secured.run("alice", "tail", "alice", "--count", "4", *TIMEOUT) == 0
    assert secured.run("ops", "verify", "--json") == 0
    assert secured.job_runs()


@pytest.mark.services
def test_another_key_signs_without_a_stop(secured):
    """Under way another key is believed, then used; all that the old one signed is written again; then it goes."""
    folder = secured.data / "secure"
    old, new = (folder / "signing.key").read_text(), "5e" * 32

    def put(name, *keys):
        write_secret(folder / name, "\n".join(keys).encode())

    def signed_with(key):
        ring = Keyring((bytes.fromhex(key),))
        last = {record.key: record for record in secured.read("ops", "hilcast.registry")}
        return [genuine(record, ring) for record in last.values() if record.value is not None]

    subscribe = ("subscribe", *TIMEOUT, "-b", "b2", "-t", "t", "-c", "alice", "--id")
    forged = secured.figures().get("forged", "0")
    put("signing.previous", new)
    assert secured.run("alice", *subscribe, "k1", "x = 1") == 0
    assert signed_with(old).count(True) > 3
    put("signing.previous", new, old)
    put("signing.key", new)
    until(lambda: all(signed_with(new)), "every fact signed with the new key")
    (folder / "signing.previous").unlink()
    assert secured.run("alice", *subscribe, "k2", "x = 2") == 0
    assert secured.run("alice", "wait", *TIMEOUT) == 0
    assert secured.figures().get("forged", "0") == forged
    assert secured.run("ops", "verify", "--json") == 0


# ── topics that nobody uses ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.services
def test_topics_of_who_holds_nothing_go_while_the_job_runs(secured):
    """An empty one goes after the stated time; one that holds a message stays, and so does one that is in use; who
    comes back has his again, and loses nothing.
    """
    assert secured.run("yves", "unsubscribe", *TIMEOUT, "-c", "yves", "-b", "b2", "-t", "t", "s1") == 0

    def existing():
        return set(secured.admin("bootstrap").list_topics(timeout=10).topics)

    until(lambda: "hilcast.deliver.idler" not in existing(), "the topic of who never had anything")
    assert "hilcast.deliver.idler" in secured.log.read_text(), "the job said so"
    assert {"hilcast.deliver.yves", "hilcast.deliver.alice", "hilcast.subscriptions.idler"} <= existing()
    admin = secured.admin("bootstrap")
    fences = admin.describe_configs([ConfigResource(ResourceType.TOPIC, "hilcast.deliver.yves")])
    assert [f.result()["min.insync.replicas"].value for f in fences.values()] == ["1"], "not even fenced"
    said = json.dumps({"filter": "x = 88"}).encode()
    assert secured.produce("bootstrap", "hilcast.subscriptions.idler", "b1/t/s1", said) is None
    assert secured.run("bootstrap", "wait", *TIMEOUT) == 0
    alice = ("publish", "-b", "b2", "-t", "t", "--source", "alice", "--id", "back", '{"x": 88}')
    assert secured.run("alice", *alice) == 0
    until(
        lambda: "hilcast.deliver.idler" in existing() and secured.read("ops", "hilcast.deliver.idler"), "its delivery"
    )
    assert secured.run("ops", "verify", "--json") == 0


# ── secrets ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def command_lines(session: int) -> list[bytes]:
    """Of every process of a session, and of everybody below it."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if os.getsid(int(entry.name)) == session:
                    found.append((entry / "cmdline").read_bytes())
            except (OSError, ProcessLookupError):
                continue
    return found


@pytest.mark.services
def test_no_secret_is_anywhere(secured, capsys):
    """Passwords and the signing key stand in no log, no checkpoint, no topic, no key of Redis, and no command line."""
    folder = secured.data / "secure"
    secrets = {path.read_bytes() for path in folder.glob("*.password")} | {PLANTED.encode()}
    secrets.add((folder / "signing.key").read_bytes())
    assert len(secrets) >= 8
    assert folder.stat().st_mode & 0o777 == 0o700
    assert all(path.stat().st_mode & 0o077 == 0 for path in folder.iterdir() if path.suffix in (".password", ".pem"))

    def clean(what: str, content: bytes) -> None:
        assert not [secret for secret in secrets if secret in content], what

    logs = [*(secured.data / "logs").iterdir(), secured.log, secured.output]
    files = [path for path in (secured.data / "var" / "checkpoint").rglob("*") if path.is_file()]
    assert len(files) > 10
    for path in [*logs, *files]:
        clean(str(path), path.read_bytes())
    for topic in secured.admin("bootstrap").list_topics(timeout=10).topics:
        for record in secured.read("bootstrap", topic):
            clean(topic, b"".join([record.key or b"", record.value or b"", *(v or b"" for _, v in record.headers)]))
    config = secured.config("router")
    link = redis_client.Redis.from_url(config.deployment.redis, **config.redis)
    for name in link.scan_iter():
        kind = link.type(name)
        found = {
            b"string": lambda name: [link.get(name)],
            b"hash": lambda name: [part for item in link.hgetall(name).items() for part in item],
            b"zset": lambda name: link.zrange(name, 0, -1),
            b"list": lambda name: link.lrange(name, 0, -1),
            b"set": lambda name: list(link.smembers(name)),
        }[kind](name)
        clean(name.decode(), b"\n".join([name, *found]))
    lines = command_lines(os.getsid(secured.shell.process.pid))
    assert sum(b"python" in line or b"java" in line for line in lines) > 2
    for each in ("kafka", "redis"):
        lines += command_lines(os.getsid(json.loads((secured.data / each / f"{each}.pid").read_text())["pid"]))
    for line in lines:
        clean("a command line", line)
    assert secured.services("up", "--secure") == 0
    clean("what `up` prints", capsys.readouterr().out.encode())


@pytest.mark.services
def test_the_tour_ends_as_printed(secured):
    """The job stops cleanly when it is told to, and the services with it: the last block of the tour."""
    secured.type_next()
    assert secured.blocks == []
    assert not (secured.data / "kafka" / "kafka.pid").exists()
