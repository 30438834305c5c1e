"""Running jobs on the real services, and a Kafka client that is not ours to look at them from outside."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from infra.local import class_archive
from producers.fence import Fence
from state.config import load

ROOT = Path(__file__).parents[2]


class RunningJob:
    """One `python -m streaming` on a configuration file, as `hilcast run` starts it."""

    def __init__(self, config_path: Path) -> None:
        self.path = config_path
        self.log = config_path.with_suffix(".log")
        self.environment: dict[str, str] = {}
        """Variables of its own."""
        self.process: subprocess.Popen[bytes] | None = None

    def command(self) -> list[str]:
        return [sys.executable, "-m", "streaming", str(self.path)]

    def launch(self) -> RunningJob:
        """Start it, and do not wait."""
        command = self.command()
        environment = {**os.environ, **class_archive.spark_environment(), **self.environment}
        self.output = self.log.with_suffix(".out")
        with self.log.open("ab") as log, self.output.open("wb") as out:
            self.process = subprocess.Popen(
                command,
                stdout=out,
                stderr=log,
                cwd=ROOT,
                env=environment,
                start_new_session=True,
            )
        return self

    def start(self, timeout_s: float = 240.0) -> RunningJob:
        """Start it; return when it is ready."""
        return self.launch().until_ready(timeout_s)

    def until_ready(self, timeout_s: float = 240.0) -> RunningJob:
        """Return when what was launched is ready."""
        deadline = time.monotonic() + timeout_s
        while b"ready" not in self.output.read_bytes():
            assert self.process.poll() is None, self.tail()
            assert time.monotonic() < deadline, self.tail()
            time.sleep(0.2)
        return self

    def stop(self, timeout_s: float = 180.0) -> int:
        """SIGTERM, and the exit code."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout_s)

    def kill(self) -> None:
        """`kill -9` of the driver alone; its JVM lives on for a moment, as it would in life."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(30.0)

    def tail(self) -> str:
        return self.log.read_text(errors="replace")[-3000:]

    def end(self) -> None:
        """Leave nothing running, whatever happened."""
        if self.process is not None and self.process.poll() is None:
            try:
                self.stop()
            except subprocess.TimeoutExpired:
                self.kill()

    def wait(self, timeout_s: float = 120.0) -> None:
        """The fence: everything sent so far is in force everywhere."""
        fence = Fence(load(self.path))
        behind = fence.wait(timeout_s)
        fence.close()
        assert not behind, f"{'; '.join(map(str, behind))}\n{self.tail()}"


@dataclass(frozen=True)
class Seen:
    """One record as a foreign client sees it."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]] = field(default_factory=list)
    time_ms: int = 0

    def header(self, name: str) -> str | None:
        found = [value for key, value in self.headers if key == name]
        return None if not found or found[-1] is None else found[-1].decode()

    @property
    def json(self) -> dict[str, object]:
        return json.loads(self.value or b"null")


class Wire:
    """Plain Kafka, with nothing of ours between."""

    def __init__(self, kafka: str, prefix: str) -> None:
        self.prefix = prefix
        self._producer = Producer({"bootstrap.servers": kafka, "linger.ms": 2, "message.max.bytes": 2_000_000})
        self._consumer = Consumer(
            {"bootstrap.servers": kafka, "group.id": f"{prefix}-wire", "enable.auto.commit": False}
        )

    def send(self, topic, value, key=None, headers=()):
        """Send one record to PREFIX.topic (or to another topic, given with a leading slash)."""
        name = topic[1:] if topic.startswith("/") else f"{self.prefix}.{topic}"
        failed = []
        if isinstance(value, dict):
            value = json.dumps(value)
        while True:
            try:
                self._producer.produce(
                    name, value=value, key=key, headers=list(headers), callback=lambda e, m: e and failed.append(e)
                )
                break
            except BufferError:
                self._producer.poll(0.1)
        return failed

    def flush(self):
        assert self._producer.flush(30.0) == 0

    def subscribe(self, broker, type_name, id, client, filter, **more):
        self.send("subscriptions", {"client": client, "filter": filter, **more}, key=f"{broker}/{type_name}/{id}")

    def withdraw(self, broker, type_name, id):
        self.send("subscriptions", None, key=f"{broker}/{type_name}/{id}")

    def publish(self, broker, type_name, id, event, source="test", key=None):
        headers = [("ce_specversion", b"1.0"), ("ce_id", id.encode()), ("ce_source", source.encode())]
        headers += [("ce_type", type_name.encode()), ("ce_broker", broker.encode())]
        value = event if isinstance(event, bytes | str) else json.dumps(event)
        self.send("publications", value, key=key, headers=headers)

    def topics(self):
        return set(self._consumer.list_topics(timeout=10.0).topics)

    def under(self, *kinds):
        """The topics of these kinds (deliver, group, ...) that exist, as `read` takes them."""
        return sorted(f"/{t}" for t in self.topics() if t.startswith(tuple(f"{self.prefix}.{k}." for k in kinds)))

    def read(self, *topics, timeout_s=60.0):
        """Every record of these topics, from the beginning to their present ends, topic by topic and in order."""
        names = [topic[1:] if topic.startswith("/") else f"{self.prefix}.{topic}" for topic in topics]
        known = self._consumer.list_topics(timeout=10.0).topics
        starts, ends = [], {}
        for name in names:
            for number in known[name].partitions if name in known else ():
                low, end = self._consumer.get_watermark_offsets(TopicPartition(name, number), timeout=10.0)
                if low < end:
                    starts.append(TopicPartition(name, number, low))
                    ends[name, number] = end
        seen = {}
        self._consumer.assign(starts)
        deadline = time.monotonic() + timeout_s
        while ends:
            assert time.monotonic() < deadline, f"not read to the end: {ends}"
            for message in self._consumer.consume(1000, timeout=0.1):
                assert message.error() is None, message.error()
                place = (message.topic(), message.partition())
                if message.offset() + 1 >= ends.get(place, 2**62):
                    del ends[place]
                content = (message.key(), message.value(), message.headers() or [])
                record = Seen(*place, message.offset(), *content, message.timestamp()[1])
                seen.setdefault(place, []).append(record)
        self._consumer.unassign()
        return [record for place in sorted(seen) for record in seen[place]]

    def until(self, topic, enough, timeout_s=90.0):
        """Read a topic again and again until `enough(records)` holds; return the records."""
        deadline = time.monotonic() + timeout_s
        while True:
            name = topic[1:] if topic.startswith("/") else f"{self.prefix}.{topic}"
            records = self.read(topic) if name in self.topics() else []
            if enough(records):
                return records
            assert time.monotonic() < deadline, f"{topic}: {[r.value for r in records][-5:]}"
            time.sleep(0.3)

    def routed(self, count, timeout_s=120.0):
        """Wait until the routing log accounts for `count` publications, whoever routed them."""

        def enough(records):
            covered = {}
            for record in records:
                line = record.json
                if line["topic"] == f"{self.prefix}.publications":
                    place = line["partition"]
                    covered.setdefault(place, set()).update(range(line["first"], line["last"] + 1))
            return sum(map(len, covered.values())) >= count

        return self.until("routed", enough, timeout_s)

    def drained(self, *topics, timeout_s=120.0):
        """Wait until the routing log accounts for everything that these topics hold."""

        def enough(records):
            places = {(r.json["topic"], r.json["partition"]): 0 for r in records}
            for record in records:
                line = record.json
                place = line["topic"], line["partition"]
                places[place] = max(places[place], line["last"] + 1)
            return all(places.get((r.topic, r.partition), 0) > r.offset for r in self.read(*topics))

        return self.until("routed", enough, timeout_s)
