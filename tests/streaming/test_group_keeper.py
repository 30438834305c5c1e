"""What the keeper of groups finds in Kafka when it begins, whoever wrote it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from state.config import parse
from state.messages import Record, Span, read_spans, write_spans
from streaming import group_keeper
from streaming.group_keeper import GroupKeeper

CONFIG = parse("""
[overlay]
brokers = ["b1"]
links = []
[types.t.attributes]
x = { kind = "int" }
[distribution.b1]
groups = 2
""")
SPANS = [Span("hilcast.group.b1.0", 3)]


def keeper(monkeypatch, records):
    """One that reads these records of `groups`; it, and what it wrote."""
    written = []
    monkeypatch.setattr(group_keeper, "open_transport", lambda config: SimpleNamespace())
    monkeypatch.setattr(group_keeper, "every", lambda transport, topic: iter(records))
    made = GroupKeeper(CONFIG, 1, None, None, lambda *record: written.append(record), lambda: None)
    return made, written


def record(offset, key, value):
    return Record("hilcast.groups", 0, offset, 0, key, value)


@pytest.mark.parametrize(
    "junk", [b"", b"{", b"[]", b"\xff", b"[" * 5000, b'{"spans": [{"topic": 1}]}'], ids=lambda junk: repr(junk[:12])
)
def test_a_strangers_record_does_not_keep_the_job_from_starting(monkeypatch, junk):
    """What a client was told before it counts, and is said again; junk under no client's key is left alone."""
    told = write_spans(CONFIG.topics, "b1", "ann", SPANS)
    records = [
        record(0, told.key, told.value),
        record(1, told.key, junk),
        record(2, b"\xff", junk),
        record(3, None, junk),
    ]
    made, written = keeper(monkeypatch, records)
    assert made._read_spans() == {("b1", "ann"): SPANS}
    assert written[0] == (told.topic, told.key, told.value)
    assert read_spans(record(4, *written[0][1:])) == SPANS
    assert {key for _, key, _ in written} == {told.key}


def test_what_was_said_after_junk_counts(monkeypatch):
    """A good record behind a bad one needs no repair."""
    told = write_spans(CONFIG.topics, "b1", "ann", SPANS)
    made, written = keeper(monkeypatch, [record(0, told.key, b"{"), record(1, told.key, told.value)])
    assert made._read_spans() == {("b1", "ann"): SPANS}
    assert written == []
