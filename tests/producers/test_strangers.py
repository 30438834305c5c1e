"""What strangers write where only the router may: nobody who looks from outside trips over it."""

from __future__ import annotations

import json

from producers.progress_lines import progress_lines
from producers.verify.held import read_receipts
from producers.verify.history import read_facts
from producers.verify.route_log import RouteLog, control_progress
from producers.verify.shared_deliveries import read_memberships
from state.messages import Record, Span, write_spans
from state.topics import Topics

TOPICS = Topics("hilcast")
JUNK = [
    b"", None, b"\xff\xfe", b"{", b"[]", b"null", b"5", b'"x"', b"[" * 100_000, b'{"kind": 5}', b'{"query": "route"}',
    b'{"query": "control", "deployment": [], "hosts": 5, "offsets": {}}', b'{"spans": [{"topic": 1}]}',
    b'{"query": "route", "deployment": "d", "hosts": ["b1"], "offsets": {"t": {"x": 1}}}',
    b'{"query": "route", "deployment": "d", "hosts": ["b1"], "offsets": {}, "configuration": "new"}',
    b'{"topic": "t", "partition": 0, "first": -5, "last": 3}',
    b'{"topic": "t", "partition": "0", "first": 0, "last": 3}',
]  # fmt: skip
KEYS = [None, b"", b"\xff", b"subscription/b1/t/s1", b"advertisement/b1/t/s1", b"b1/ann", b"/"]
LINE = {"deployment": "main", "query": "route", "hosts": ["b1"], "offsets": {"t": {"0": 7}}, "batch_ms": 5, "rows": 3}


def records(*good: bytes, key: bytes | None = None) -> list[Record]:
    """Junk under every key, the good ones in the middle, junk again."""
    junk = [(k, value) for k in KEYS for value in JUNK]
    every = [*junk, *((key, value) for value in good), *junk]
    return [Record("hilcast.any", 0, n, 1000 + n, k, value) for n, (k, value) in enumerate(every)]


def test_lines_of_progress_and_routed_are_found_among_junk():
    """What the router wrote is read as if nothing else were there."""
    route, control = (json.dumps({**LINE, "query": query}).encode() for query in ("route", "control"))
    assert [line.query for _, line in progress_lines(records(route, control))] == ["route", "control"]
    (found,) = control_progress(records(route, control))
    assert (found.deployment, found.hosts, dict(found.offsets)) == ("main", ("b1",), {"t": 7})
    log = RouteLog(records(route))
    assert log.topics() == {"t"}
    log.add(records(b'{"topic": "t", "partition": 0, "first": 2, "last": 3, "epoch": "1.1"}'))
    assert [time < 1e15 for time in log.routed_ms(("t", 0), 6).tolist()] == [False, False, True, True, False, False]


def test_a_line_as_status_shows_it_is_the_one_that_was_written():
    """Nothing that `status` and the console show is lost on the way."""
    ((record, line),) = progress_lines(records(json.dumps(LINE).encode()))
    assert {**line.plain(record), **LINE, "time_ms": record.timestamp_ms} == line.plain(record)


def test_receipts_facts_and_spans_are_found_among_junk():
    """Junk is no receipt and no fact; of spans, what was said before it counts."""
    told = write_spans(TOPICS, "b1", "ann", [Span("hilcast.group.b1.0", 3)])
    assert not read_receipts(records())
    assert not read_facts(records())
    before = [Record("hilcast.groups", 0, n, n, told.key, value) for n, value in enumerate([told.value, *JUNK[2:7]])]
    assert read_memberships(before)["ann"].places() == [("hilcast.group.b1.0", 0)]
