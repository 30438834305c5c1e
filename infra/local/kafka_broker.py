"""A local Kafka: one KRaft node, broker and controller in one process, on loopback.

DATA/kafka/server.properties      written anew at every start
DATA/kafka/log/                   what the broker keeps; formatted once, never again while it holds records
DATA/logs/kafka.log, kafka.out    the broker's log; what the JVM itself says

With credentials (`hilcast up --secure`) its one listener is SASL over TLS, Kafka's own authorizer is on, and who has no
ACL may do nothing. Its super user logs in by PLAIN, whose one password is in server.properties; all others by SCRAM.
"""

from __future__ import annotations

import base64
import re
import shutil
import subprocess
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from infra.kafka.scram import MECHANISM
from infra.local import class_archive, jars, java, ports
from infra.local.credentials import BOOTSTRAP, Credentials
from infra.local.process import Process
from infra.secret_files import write_secret
from state.errors import HilcastError

_START_S = 180.0  # measured: 3 s alone, 32 s among eight busy neighbours on two cores
_STOP_S = 20.0
HEAP_MB = 512
"""Enough for some thousand topics; with 10,000 a node did little but collect garbage."""

_SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "CLIENTS",
    # A topic that nobody declared is a mistake to be seen, not to be made true.
    "auto.create.topics.enable": "false",
    # A lone consumer need not wait for others to join its group.
    "group.initial.rebalance.delay.ms": "0",
    # One node can hold one replica; few partitions make the first commit and the stop quick.
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "4",
    # A broker that was killed is let in again when the session of its last life is over (9 s by default).
    "broker.session.timeout.ms": "4000",
    "broker.heartbeat.interval.ms": "1000",
    # The registry is a compacted topic.
    "log.cleaner.enable": "true",
}

_PLAIN = {"listener.security.protocol.map": "CONTROLLER:PLAINTEXT,CLIENTS:PLAINTEXT"}
_SECURE = {
    "listener.security.protocol.map": "CONTROLLER:SASL_SSL,CLIENTS:SASL_SSL",
    "sasl.enabled.mechanisms": f"{MECHANISM},PLAIN",
    "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "sasl.mechanism.controller.protocol": "PLAIN",
    "ssl.keystore.type": "PEM",
    "ssl.truststore.type": "PEM",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": f"User:{BOOTSTRAP}",
    "allow.everyone.if.no.acl.found": "false",
}
_LOGIN = "org.apache.kafka.common.security"

_LOGGING = """\
status = error
shutdownHook = disable
rootLogger.level = info
rootLogger.appenderRef.file.ref = file
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {log}
appender.file.filePattern = {log}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = [%d{{ISO8601}}] %p %m (%c)%n
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 20MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 3
"""


class LocalKafka:
    """One Kafka broker of this project in the folder `data`, at one loopback address."""

    def __init__(
        self,
        data: Path,
        address: str,
        credentials: Credentials | None = None,
        jvm: Sequence[str] | None = None,
        heap_mb: int = HEAP_MB,
    ) -> None:
        """`jvm`: options of its Java, instead of those that make it start quickly."""
        host, self.port = ports.split(address, "kafka")
        self.host = ports.loopback(host, "kafka")
        self._at = f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
        self._credentials = credentials
        self._jvm = jvm
        self._heap_mb = heap_mb
        # one that is secured is not the one that is open, though both are at one port
        self.address = self._at if credentials is None else f"SASL_SSL://{self._at}"
        logs = data.absolute() / "logs"
        self._folder = data.absolute() / "kafka"
        self._kept = self._folder / "log"
        self._properties = self._folder / "server.properties"
        self.log = logs / "kafka.log"
        self.process = Process("kafka", self._folder / "kafka.pid", logs / "kafka.out")

    def start(self) -> bool:
        """Start it unless it runs; return whether it was started. It answers when this returns.

        Guarantee: records of earlier runs are kept; a folder that holds records is never formatted.
        """
        if self.process.serves(self.address):
            return False
        program = [str(java.find().path), f"-Xmx{self._heap_mb}m", "-XX:+ExitOnOutOfMemoryError"]
        classes = ["-cp", jars.broker_classpath()]
        ports.require_free(self.host, self.port, "kafka")
        self._folder.mkdir(parents=True, exist_ok=True)
        self.log.parent.mkdir(parents=True, exist_ok=True)
        write_secret(self._properties, self._settings(ports.free_port()).encode())
        logging = self._folder / "log4j2.properties"
        logging.write_text(_LOGGING.format(log=self.log), encoding="utf-8")
        program.append(f"-Dlog4j2.configurationFile={logging}")
        if not formatted(self._kept):
            self._format([*program, *classes])
        program += class_archive.options(class_archive.path("kafka")) if self._jvm is None else self._jvm
        command = [*program, *classes, "kafka.Kafka", str(self._properties)]
        self.process.bring_up(command, self.address, self._folder, self._await, _STOP_S)
        return True

    def stop(self) -> bool:
        """Stop it if it runs; return whether it did."""
        return self.process.stop(_STOP_S)

    def answers(self) -> bool:
        """Return whether our broker, and not some other, answers at the address."""
        if self.process.running() is None or not ports.answers(self.host, self.port):
            return False
        entry = {} if self._credentials is None else self._credentials.kafka(BOOTSTRAP)
        settings = {"bootstrap.servers": self._at, "log_level": 0, "socket.timeout.ms": 5000}
        admin = AdminClient({**settings, **entry})
        try:
            return bool(admin.list_topics(timeout=5).cluster_id == cluster_id(self._kept))
        except KafkaException:
            return False

    def _settings(self, controller_port: int) -> str:
        shown = f"[{self.host}]" if ":" in self.host else self.host
        settings = _SETTINGS | (_PLAIN if self._credentials is None else _secured(self._credentials))
        settings |= {
            "listeners": f"CLIENTS://{self._at},CONTROLLER://{shown}:{controller_port}",
            "advertised.listeners": f"CLIENTS://{self._at}",
            "controller.quorum.voters": f"1@{shown}:{controller_port}",
            "log.dirs": str(self._kept),
        }
        return "".join(f"{name}={_escaped(value)}\n" for name, value in settings.items())

    def _format(self, program: list[str]) -> None:
        name = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode("ascii").rstrip("=")
        # A name that begins with a dash would be read as an option.
        name = name.replace("-", "_")
        # Too short a life to be worth a compiler: 1.0 s instead of 1.7 s.
        program = [program[0], "-XX:TieredStopAtLevel=1", *program[1:]]
        command = [*program, "kafka.tools.StorageTool", "format", "-t", name, "-c", str(self._properties)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=self._folder)
        if done.returncode != 0:
            said = (done.stderr + done.stdout).strip()
            raise HilcastError("kafka-failed", f"cannot format {self._kept}: {said[-600:]}")

    def _await(self) -> None:
        deadline = time.monotonic() + _START_S
        while not self.answers():
            if self.process.running() is None:
                raise HilcastError("kafka-failed", f"Kafka ended at once; the end of {self.log}:\n{self._last_words()}")
            if time.monotonic() > deadline:
                raise HilcastError("kafka-failed", f"Kafka does not answer at {self.address}; see {self.log}")
            time.sleep(0.05)

    def _last_words(self) -> str:
        logged = Process("kafka", self.process.pid_file, self.log).last_words(4)
        return f"{logged}\n{self.process.last_words(4)}"


def _secured(credentials: Credentials) -> dict[str, str]:
    """The settings that hold secrets or their places."""
    password = credentials.password(BOOTSTRAP)
    plain = (
        f"{_LOGIN}.plain.PlainLoginModule required"
        f' username="{BOOTSTRAP}" password="{password}" user_{BOOTSTRAP}="{password}";'
    )
    return _SECURE | {
        "ssl.keystore.location": str(credentials.server),
        "ssl.truststore.location": str(credentials.authority),
        "listener.name.clients.plain.sasl.jaas.config": plain,
        "listener.name.controller.plain.sasl.jaas.config": plain,
        f"listener.name.clients.{MECHANISM.lower()}.sasl.jaas.config": f"{_LOGIN}.scram.ScramLoginModule required;",
    }


def formatted(folder: Path) -> bool:
    """Return whether Kafka's folder is ready; clear away what a killed format left.

    Guarantee: False means that the folder is absent now. A folder that holds records but has lost its cluster
    id is left as it is: `bad-data`.
    """
    if cluster_id(folder) is not None:
        return True
    records = [path for path in folder.glob("*/*.log") if path.stat().st_size > 0]
    if records:
        raise HilcastError(
            "bad-data",
            f"{folder} holds records ({records[0].relative_to(folder)}) but no readable meta.properties, so"
            " it is neither used nor erased: put meta.properties back from a copy, or remove the folder if"
            " its records are not needed",
        )
    shutil.rmtree(folder, ignore_errors=True)
    return False


def cluster_id(folder: Path) -> str | None:
    """Return the cluster id of a formatted folder, or None."""
    try:
        text = (folder / "meta.properties").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, NotADirectoryError):
        return None
    found = re.search(r"^cluster\.id=(\S+)$", text, re.MULTILINE)
    # Kafka writes the fields in any order; a file cut short lacks one of them.
    whole = all(re.search(rf"^{key}=\S+$", text, re.MULTILINE) for key in ("version", r"node\.id", r"directory\.id"))
    return found.group(1) if found and whole else None


def _escaped(value: str) -> str:
    r"""Return a value as a Java properties file needs it.

    >>> print(_escaped("a\\b"))
    a\\b
    """
    return value.replace("\\", "\\\\")
