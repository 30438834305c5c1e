"""How the control query's own source plans its batches: whole of control, fair of inboxes, by the ids of topics."""

from __future__ import annotations

import json

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from state.config import parse
from state.errors import HilcastError
from state.messages import Record
from state.topics import Found as Kept
from streaming import inbox_source
from streaming.inbox_source import Found, InboxReader, Spans, planned

CONFIG = parse("""
[settings]
inbox_records_per_batch = 10
[overlay]
brokers = ["b1"]
[types.t.attributes]
x = { kind = "int" }
[security]
inboxes = "own"
""")
CONTROL = "hilcast.control"
ALICE, BOB, ADS = "hilcast.subscriptions.alice", "hilcast.subscriptions.bob", "hilcast.advertisements.bob"
GOOD = {"message.timestamp.type": "LogAppendTime", "cleanup.policy": "delete"}


class Cluster:
    """Topics of a cluster, in place of Kafka."""

    def __init__(self, monkeypatch):
        self.topics = {CONTROL: ("c", 7, GOOD, 1), ALICE: ("a", 3, GOOD, 1)}
        self.lows, self.asked, self.now = {}, [], [0.0]
        monkeypatch.setattr(inbox_source, "TopicKeeper", lambda config: self)
        monkeypatch.setattr(inbox_source, "open_transport", lambda config: self)
        monkeypatch.setattr(inbox_source.time, "monotonic", lambda: self.now[0])
        monkeypatch.setattr(Found, "ends", lambda found, topics: {t: self.topics[t][1] for t in topics})
        monkeypatch.setattr(Found, "firsts", lambda found, topics: {t: self.lows.get(t, 0) for t in topics})
        monkeypatch.setattr(inbox_source, "set_up", lambda config, name: None)

    def existing(self):
        return set(self.topics)

    def ids(self, names):
        return {name: self.topics[name][0] for name in names if name in self.topics}

    def found(self, names):
        self.asked.append(sorted(names))
        there = {name: self.topics[name] for name in names if name in self.topics}
        return {name: Kept(id, partitions, 1, kept) for name, (id, _, kept, partitions) in there.items()}

    def reader(self, starting=None, lossy=False):
        return InboxReader(CONFIG, json.dumps(starting or {CONTROL: {"0": 2}, ALICE: {"0": -2}}), 10, 2, lossy)


@pytest.fixture
def cluster(monkeypatch):
    return Cluster(monkeypatch)


LIMIT = ReadMaxRows(10)


def test_a_batch_takes_all_of_control_and_a_share_of_each_inbox(cluster):
    """Floods do not crowd out others, nor the control topic, of which all is taken."""
    reader = cluster.reader()
    cluster.topics |= {CONTROL: ("c", 500, GOOD, 1), BOB: ("b", 1000, GOOD, 1), ADS: ("d", 50, GOOD, 1)}
    start = reader.initialOffset()
    assert start == {CONTROL: {"0": 2, "id": "c"}, ALICE: {"0": 0, "id": "a"}}
    end = reader.latestOffset(start, LIMIT)
    assert {topic: at["0"] for topic, at in end.items()} == {CONTROL: 500, ALICE: 3, BOB: 4, ADS: 3}
    parts = [span for part in reader.partitions(start, end) for span in part.spans]
    assert {(s["topic"], s["first"], s["end"]) for s in parts} == {
        (CONTROL, 2, 500), (ALICE, 0, 3), (BOB, 0, 4), (ADS, 0, 3),
    }  # fmt: skip
    whole = reader.latestOffset(start, ReadAllAvailable())
    assert {topic: at["0"] for topic, at in whole.items()} == {CONTROL: 500, ALICE: 3, BOB: 1000, ADS: 50}
    assert {t: at["0"] for t, at in reader.reportLatestOffset().items()} == {CONTROL: 500, ALICE: 3, BOB: 1000, ADS: 50}


def test_an_inbox_that_comes_later_is_read_from_its_beginning(cluster):
    """It is seen at the next look, and nothing of it is passed over."""
    reader = cluster.reader()
    start = reader.latestOffset(reader.initialOffset(), LIMIT)
    cluster.topics[BOB] = ("b", 2, GOOD, 1)
    end = reader.latestOffset(start, LIMIT)
    assert end[BOB] == {"0": 2, "id": "b"}
    (part,) = reader.partitions(start, end)
    assert part.spans == [{"topic": BOB, "first": 0, "end": 2, "id": "b"}]


def test_an_inbox_that_is_gone_is_let_go_and_one_made_again_begins_anew(cluster):
    """A topic of the same name with another id is another one, even if it is as long."""
    reader = cluster.reader()
    start = reader.latestOffset(reader.initialOffset(), LIMIT)
    gone = cluster.topics.pop(ALICE)
    without = reader.latestOffset(start, LIMIT)
    assert ALICE not in without
    assert reader.partitions(start, without) == []
    # a batch that was planned while it was there, and is repeated now that it is not
    assert reader.partitions({}, {ALICE: {"0": 3, "id": "a"}}) == []
    cluster.topics[ALICE] = ("a2", *gone[1:])
    cluster.now[0] += 10
    again = reader.latestOffset(start, LIMIT)
    assert again[ALICE] == {"0": 3, "id": "a2"}
    (part,) = reader.partitions(start, again)
    assert (part.spans[0]["first"], part.spans[0]["id"]) == (0, "a2")


@pytest.mark.parametrize(
    ("kept", "partitions"),
    [
        ({**GOOD, "message.timestamp.type": "CreateTime"}, 1),
        ({**GOOD, "cleanup.policy": "compact"}, 1),
        (GOOD, 3),
    ],
)
def test_an_inbox_that_is_not_kept_as_it_must_be_is_left_alone(cluster, kept, partitions, caplog):
    """Its records are not read, it is said once, and is read once it is right; others are read all the time."""
    reader = cluster.reader()
    cluster.topics[BOB] = ("b", 2, kept, partitions)
    for _ in range(3):
        end = reader.latestOffset({}, LIMIT)
        assert (BOB in end, end[ALICE]["0"]) == (False, 3)
    assert sum(BOB in asked for asked in cluster.asked) == 1


def test_what_kafka_deleted_unread_is_a_loss_unless_it_may_be(cluster):
    """The query stops with the words that the job knows a loss by; told to go on, it does."""
    start, end = {ALICE: {"0": 0, "id": "a"}}, {ALICE: {"0": 3, "id": "a"}}
    cluster.lows[ALICE] = 2
    with pytest.raises(HilcastError, match="some data may have been missed"):
        cluster.reader().partitions(start, end)
    assert len(cluster.reader(lossy=True).partitions(start, end)) == 1


def test_records_arrive_as_they_are(cluster, monkeypatch):
    """Keys, values, headers, times and the id of the topic come out of a task in order, in columns."""
    records = [
        Record(ALICE, 0, i, 1000 + i, b"k" if i else None, None if i else b"v", (("h", None),) * i) for i in range(3)
    ]
    monkeypatch.setattr(inbox_source, "between", lambda transport, spans: iter(records))
    monkeypatch.setattr(Cluster, "close", lambda self: None, raising=False)
    monkeypatch.setattr(inbox_source, "ROWS", 2)
    batches = list(cluster.reader().read(Spans([{"topic": ALICE, "first": 0, "end": 3, "id": "a"}])))
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert [len(batch) for batch in batches] == [2, 1]
    assert rows == [
        {
            "topic": r.topic, "partition": 0, "offset": r.offset, "timestamp_ms": r.timestamp_ms, "key": r.key,
            "value": r.value, "headers": [{"key": n, "value": v} for n, v in r.headers], "topic_id": "a",
        }
        for r in records
    ]  # fmt: skip


def test_a_plan_only_goes_forward():
    """Whatever is waiting, no topic is taken back behind where it was."""
    ids = {CONTROL: "c", ALICE: "a"}
    start = {CONTROL: {"0": 9, "id": "c"}, ALICE: {"0": 5, "id": "a"}}
    end = planned(CONFIG, start, ids, {CONTROL: 4, ALICE: 2}, 10)
    assert end == start


def test_what_is_too_large_is_clipped_before_it_is_gathered(cluster, monkeypatch):
    """Of a flood of large records a task holds little: pieces of them, in batches of bounded bytes."""
    sizes = [1_200_000, 50_000, 100] * 5
    records = [Record(ALICE, 0, i, 1000, b"k", b"v" * size, ()) for i, size in enumerate(sizes)]
    monkeypatch.setattr(inbox_source, "between", lambda transport, spans: iter(records))
    monkeypatch.setattr(Cluster, "close", lambda self: None, raising=False)
    monkeypatch.setattr(inbox_source, "BYTES", 100_000)
    part = Spans([{"topic": ALICE, "first": 0, "end": len(sizes), "id": "a"}])
    batches = list(cluster.reader().read(part))
    assert [len(value) for batch in batches for value in batch.column("value").to_pylist()] == [4096, 50_000, 100] * 5
    assert all(batch.nbytes < 200_000 for batch in batches)
