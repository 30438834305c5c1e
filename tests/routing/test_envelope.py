"""The headers of a batch, found by a compiled scan, against a plain reading of each record."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from state.config import parse
from state.names import ENVELOPE_HEADERS
from state.routing.envelope import INPUT, read

CONFIG = parse("""
[overlay]
brokers = ["b1"]
links = []
[types.t.attributes]
x = { kind = "int" }
""")
NAMES = st.sampled_from(
    [*ENVELOPE_HEADERS, "ce_i", "ce_idx", "CE_ID", "hilcast_", "hilcast_epoch", "hilcast", "Hilcast_x", ""]
)
VALUES = st.sampled_from([None, b"", b"1", b"b1", b"t"])
HEADERS = st.one_of(st.none(), st.lists(st.tuples(NAMES, VALUES), max_size=7))


def batch(rows):
    headers = [None if h is None else [{"key": k, "value": v} for k, v in h] for h in rows]
    records = [
        {"topic": "in", "partition": 0, "offset": i, "key": None, "value": b'{"x": 1}', "headers": h}
        for i, h in enumerate(headers)
    ]
    return pa.RecordBatch.from_pylist(records, INPUT)


@settings(max_examples=300, deadline=None)
@given(st.lists(HEADERS, max_size=5), st.integers(0, 2))
def test_headers_are_those_of_each_record(rows, skipped):
    """Of equal names the last counts, empty is missing, hilcast_* is dropped: also in a slice of a larger batch."""
    envelopes = read(batch([[("ce_id", b"before"), ("hilcast_epoch", b"x")]] * skipped + rows)[skipped:], CONFIG)
    kept_end = 0
    for row, given_headers in enumerate(rows):
        last = dict(given_headers or [])
        assert envelopes.broker[row] == (
            (last["ce_broker"] or b"").decode() if last.get("ce_broker") is not None else None
        )
        for name in ENVELOPE_HEADERS:
            assert bool(envelopes.missing[name][row]) == (not last.get(name)), name
        assert envelopes.id[row].as_py() == last.get("ce_id")
        assert envelopes.source[row].as_py() == last.get("ce_source")
        kept = envelopes.kept[kept_end : kept_end + envelopes.kept_counts[row]].tolist()
        kept_end += len(kept)
        passed = [(envelopes.names[i].as_py(), envelopes.contents[i].as_py()) for i in kept]
        assert passed == [(k, v) for k, v in given_headers or [] if not k.startswith("hilcast_")]
    assert kept_end == len(envelopes.kept)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.sampled_from(["content-type", "Content-Type", "CONTENT-TYPE", "content_type", "kontent-type"]), max_size=3
    )
)
def test_the_content_type_is_found_in_any_letters(names):
    """A structured event is read by its value whatever case its header's name has; others are not."""
    value = b'{"specversion":"1.0","id":"7","source":"s","type":"t","broker":"b1","data":{"x":2}}'
    table = batch([[(name, b"application/cloudevents+json") for name in names]])
    table = table.set_column(4, "value", pa.array([value], pa.binary()))
    envelopes = read(table, CONFIG)
    structured = any(name.lower() == "content-type" for name in names)
    assert envelopes.values[0].as_py() == (b'{"x":2}' if structured else value)
    assert (envelopes.broker[0] == "b1") == structured


def test_a_header_whose_name_was_no_text_is_refused_alone():
    """Kafka's clients put U+FFFD for what is no UTF-8: that event is bad, those around it are not, in a slice too."""
    good = [(name, b"b1" if name == "ce_broker" else b"t") for name in ENVELOPE_HEADERS]
    rows = [good, [*good, ("x\ufffd", b"1")], good, [("\u00ef", b"1"), *good], [("a\ufffdb", None)]]
    assert sorted(read(batch(rows), CONFIG).refused) == [1, 4]
    assert sorted(read(batch([*rows, *rows])[3:], CONFIG).refused) == [1, 3, 6]
    assert {why.code for why in read(batch(rows), CONFIG).refused.values()} == {"bad-event"}
