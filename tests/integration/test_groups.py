"""Group and broadcast topics on the real services, read span by span with a client that is not ours."""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict

import pytest
import redis

from hilcast import Subscriber
from producers import cli
from producers.client.delivery import header
from state.config import load
from state.messages import read_members
from tests.integration.harness import Wire
from tests.integration.test_overlay import Drill

GROUPS = """
[distribution.b2]
groups = 4
threshold = 0.1
regroup_s = 1
[distribution.b4]
groups = 2
threshold = 0.0
broadcast = 0.3
clustering = "forgy"
regroup_s = 1
"""


class Sharing(Drill):
    """The drill of the overlay with most clients opting in, and two brokers that have groups."""

    def __init__(self, services, folder, prefix):
        super().__init__(services, folder, prefix, seed=3)
        self.messages = Counter()
        """Messages of shared topics, by kind of topic, as of the last comparison."""

    def configure(self, *reductions, distribution=GROUPS):
        super().configure(*reductions)
        self.path.write_text(self.path.read_text() + distribution)

    def more_of(self):
        return {"groups": self.rng.random() < 0.8}

    def spans(self):
        """By client: topic and partition, first offset and end of each of its spans."""
        last = {record.key.decode(): record for record in self.wire.read("groups")}
        found = defaultdict(list)
        for key, record in last.items():
            for span in record.json["spans"] if record.value is not None else []:
                place = span["topic"], span.get("partition", 0)
                found[key.split("/")[1]].append((place, span["first"], span.get("end")))
        return found

    def compare(self):
        """Everything by unicast, group or broadcast against the oracle; a message names a client inside its spans."""
        self.wire.routed(self.sent)
        got = defaultdict(set)
        for record in self.wire.read(*self.wire.under("deliver")):
            place = (record.header("hilcast_client"), record.header("ce_id"))
            got[place] |= set(record.header("hilcast_subscriptions").split(","))
        records = self.wire.read(*self.wire.under("group", "broadcast"))
        spans = self.spans()
        self.messages = Counter(record.topic.split(".")[1] for record in records)
        for record in records:
            for client, ids in read_members((record.header("hilcast_members") or "").encode()).items():
                got[client, record.header("ce_id")] |= set(ids.split(","))
                assert any(
                    place == (record.topic, record.partition) and first <= record.offset < (end or 2**62)
                    for place, first, end in spans[client]
                ), f"{client} does not read {record.topic} at {record.offset}: {spans[client]}"
        missing = {k: v - got.get(k, set()) for k, v in self.expected.items() if v - got.get(k, set())}
        wrong = {k: v - self.expected.get(k, set()) for k, v in got.items() if v - self.expected.get(k, set())}
        assert not missing, f"{len(missing)} of {len(self.expected)} missing: {list(missing.items())[:3]}"
        assert not wrong, f"{len(wrong)} wrong: {list(wrong.items())[:3]}"

    def ask_clients(self):
        """What the client library gives each client, once, is what the oracle expects; `verify` agrees."""
        config = load(self.path)
        for client in sorted({client for client, _ in self.expected}):
            with Subscriber(config, client) as subscriber:
                given = list(subscriber.present())
            got = {header(d.headers, "ce_id"): set(d.subscriptions) for d in given}
            assert got == {event: ids for (of, event), ids in self.expected.items() if of == client}
            assert len(got) == len(given), "each once"
        assert cli.main(["verify", "--config", str(self.path)]) == 0

    def check_saved(self, capsys, timeout_s=30.0):
        """What `inspect` says each method saved is what lies in the topics: members of a message, less the message."""
        counted = {broker: {method: Counter() for method in ("group", "broadcast")} for broker in ("b2", "b4")}
        for record in self.wire.read(*self.wire.under("group", "broadcast")):
            method, broker = record.topic.removeprefix(f"{self.wire.prefix}.").split(".")[:2]
            named = len(read_members((record.header("hilcast_members") or "").encode()))
            counted[broker][method].update({"messages": 1, "saved": named - 1})
        deadline = time.monotonic() + timeout_s  # figures come with the end of a task, its messages a little before
        while True:
            shown = {}
            for broker in counted:
                assert cli.main(["inspect", broker, "--json", "--config", str(self.path)]) == 0
                shown[broker] = json.loads(capsys.readouterr().out)[0]["distribution"]["methods"]
            told = {b: {m: {n: shown[b][m][n] for n in ("messages", "saved")} for m in counted[b]} for b in counted}
            if told == {b: {m: {"messages": 0, "saved": 0} | c for m, c in by.items()} for b, by in counted.items()}:
                return
            assert time.monotonic() < deadline, (told, counted)
            time.sleep(0.5)

    def settle(self, holds, timeout_s=60.0):
        """Publish a little until the spans are as they should be: they are closed by what is routed."""
        deadline = time.monotonic() + timeout_s
        while not holds(self.spans()):
            assert time.monotonic() < deadline, dict(self.spans())
            self.publish(5)
            time.sleep(0.5)


def open_topics(spans):
    return {topic for client in spans.values() for (topic, _), _, end in client if end is None}


def open_lanes(spans):
    return {lane for client in spans.values() for (_, lane), _, end in client if end is None}


@pytest.mark.services
def test_shared_topics_lose_nothing_while_groups_change(services, tmp_path, unique, capsys):
    """Unicast, group and broadcast together are what the oracle expects, through regrouping and every fault; before
    the first fault, what each method is said to have saved is what it saved.
    """
    drill = Sharing(services, tmp_path, unique)
    job = drill.job.start()
    try:
        drill.change(250, withdraw=0.1)
        job.wait()
        drill.settle(lambda spans: any(".broadcast." in t for t in open_topics(spans)))
        drill.publish(200)
        drill.compare()
        assert drill.messages["group"] > 10
        assert drill.messages["broadcast"] > 0

        for _ in range(4):  # regrouping goes on under the events
            drill.change(40, withdraw=0.4)
            job.wait()
            drill.publish(60)
            time.sleep(1.0)
            drill.publish(60)
        drill.compare()
        drill.check_saved(capsys)

        drill.change(30)
        job.wait()
        drill.publish(100)
        time.sleep(0.4)
        job.kill()
        job.start()
        redis.Redis.from_url(services.redis).flushall()
        drill.publish(100)
        drill.compare()
        before = drill.messages.total()
        drill.settle(lambda _: drill.compare() or drill.messages.total() > before)

        job.stop()
        lanes = "[settings]\npartitions = 3\n" + GROUPS.split("[distribution.b4]")[0]
        drill.configure("mics", "negative-space", "hybrid", distribution=lanes)
        job.start()
        drill.settle(lambda spans: not any(".b4" in topic for topic in open_topics(spans)))
        drill.settle(lambda spans: open_lanes(spans) == {0, 1, 2})
        drill.wire = Wire(services.kafka, unique)  # a producer looks for new partitions every few minutes
        drill.publish(200)
        drill.compare()
        assert {record.partition for record in drill.wire.read(*drill.wire.under("group"))} == {0, 1, 2}
        drill.ask_clients()
    finally:
        job.end()
