"""Kafka in memory, behind the client library's protocol: one partition a topic, a log that grows while it is read."""

from __future__ import annotations

from dataclasses import dataclass

from state.messages import Record


class MemoryKafka:
    """Topics, what consumer groups stored, and a transport on them; a poll gives `most` records at most."""

    def __init__(self, most=3):
        self.logs: dict[str, list[Record]] = {}
        self.lows: dict[str, int] = {}
        self.stored: dict[str, dict] = {}
        self.most = most
        self.open = 0
        self.given = 0
        self.read_of: set[str] = set()

    def make(self, *topics):
        for topic in topics:
            self.logs.setdefault(topic, [])
            self.lows.setdefault(topic, 0)

    def append(self, output):
        log = self.logs[output.topic]
        log.append(Record(output.topic, 0, len(log), len(log), output.key, output.value, output.headers))
        return len(log) - 1

    def end(self, topic):
        return len(self.logs[topic])

    # ── the protocol ────────────────────────────────────────────────────────────────────────────────────────────

    def topics(self):
        return set(self.logs)

    def partitions(self, topic):
        return (0,) if topic in self.logs else ()

    def span(self, topic, partition):
        return self.lows[topic], len(self.logs[topic])

    def create(self, topics):
        self.make(*topics)

    def send(self, output):
        return MemorySending((output.topic, 0, self.append(output)))

    def flush(self, timeout_s=30.0):
        pass

    def read(self, starts):
        self.read_of |= {topic for topic, _ in starts}
        return MemoryReader(self, dict(starts))

    def committed(self, group, partitions):
        stored = self.stored.get(group, {})
        return {partition: stored[partition] for partition in partitions if partition in stored}

    def commit(self, group, offsets):
        self.stored.setdefault(group, {}).update(offsets)

    def close(self):
        pass


@dataclass(frozen=True)
class MemorySending:
    """A record that has arrived."""

    at: tuple[str, int, int]

    def place(self, timeout_s=30.0):
        return self.at


class MemoryReader:
    """Reads forward; takes turns among its partitions."""

    def __init__(self, kafka, positions):
        self.kafka, self.positions = kafka, positions
        kafka.open += 1

    def poll(self, timeout_s):
        found = []
        for partition in list(self.positions):
            at = max(self.positions[partition], self.kafka.lows[partition[0]])
            found += self.kafka.logs[partition[0]][at : at + self.kafka.most - len(found)]
        for record in found:
            self.positions[record.topic, 0] = record.offset + 1
        # whoever was served waits for the others
        self.positions = dict(
            sorted(self.positions.items(), key=lambda item: any(r.topic == item[0][0] for r in found))
        )
        self.kafka.given += len(found)
        return found

    def position(self, partition):
        return max(self.positions[partition], self.kafka.lows[partition[0]])

    def close(self):
        self.kafka.open -= 1
