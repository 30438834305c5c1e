"""Rows that go out, gathered from columns, against the same rows made one by one."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from state.config import parse
from state.routing import assemble
from state.routing.assemble import Assembly, Outgoing, fixed
from state.routing.envelope import HEADER, read

CONFIG = parse("""
[overlay]
brokers = ["b1"]
links = []
[types.t.attributes]
x = { kind = "int" }
""")
NAMES = st.sampled_from(["a", "", "hilcast_x", "ce_id", "ä" * 30])
VALUES = st.one_of(st.none(), st.binary(max_size=40))
HEADERS = st.lists(st.tuples(NAMES, VALUES), max_size=5)
ALIKE = st.lists(NAMES, max_size=4).flatmap(
    lambda names: st.lists(st.tuples(*[st.tuples(st.just(name), VALUES) for name in names]), min_size=1, max_size=6)
)
"""Rows whose headers have the same names."""
EXTRAS = (("hilcast_one", [b"", b"1" * 40, b"2"]), ("hilcast_two", [b"x"]))


def records(rows):
    return pa.RecordBatch.from_arrays(
        [
            pa.array(["in"] * len(rows), pa.string()),
            pa.array([0] * len(rows), pa.int32()),
            pa.array(range(len(rows)), pa.int64()),
            pa.array([None if i % 2 else b"k%d" % i for i in range(len(rows))], pa.binary()),
            pa.array([b"v%d" % i for i in range(len(rows))], pa.binary()),
            pa.array([None if h is None else [{"key": k, "value": v} for k, v in h] for h in rows], pa.list_(HEADER)),
        ],
        names=["topic", "partition", "offset", "key", "value", "headers"],
    )


@pytest.mark.parametrize(
    ("rows", "alike"),
    [
        ([[("a", b"1"), ("b", b"")], [("a", b"22"), ("b", None)]], 2),
        ([[], []], 0),
        ([[("a", b"1")], [("b", b"1")]], -1),
        ([[("ab", b""), ("c", b"")], [("a", b""), ("bc", b"")]], -1),
        ([[("a", b"1")], [("a", b"1"), ("a", b"2")], []], -1),
        ([[("hilcast_x", b"1"), ("a", b"1")], [("hilcast_x", b"1"), ("a", b"1")]], -1),
    ],
)
def test_rows_with_the_same_names_are_known(rows, alike):
    """Names are written once for all rows only where no row lacks one, has another, or is not passed on whole."""
    assert assemble._Headers(Outgoing(), read(records(rows), CONFIG)).alike == alike


@pytest.mark.parametrize("limit", [1, 100, 1 << 20])
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_rows_are_their_input_with_extra_headers(limit, data):
    """Each row has its input's key, value and kept headers and its own extras, whatever a batch may hold."""
    rows = data.draw(st.one_of(st.lists(st.one_of(st.none(), HEADERS), min_size=1, max_size=6), ALIKE))
    envelopes = read(records(rows), CONFIG)
    gained = data.draw(st.dictionaries(st.integers(0, len(rows) - 1), HEADERS.map(lambda h: [(k, b"g") for k, _ in h])))
    envelopes.gain(gained)
    outgoing = Outgoing()
    topics = [outgoing.code("z"), outgoing.code("y")]
    firsts = [outgoing.pool(values) for _, values in EXTRAS]
    wanted = []
    for width in data.draw(st.lists(st.sampled_from([0, 1, 2]), max_size=4)):
        picks = data.draw(st.lists(st.tuples(*[st.integers(0, n) for n in (len(rows) - 1, 1, 2)]), max_size=6))
        extras = [
            (EXTRAS[0][0], np.array([firsts[0] + value for _, _, value in picks], np.int64)),
            (EXTRAS[1][0], np.full(len(picks), firsts[1])),
        ]
        outgoing.add(
            np.array([row for row, _, _ in picks], np.int64),
            np.array([topics[topic] for _, topic, _ in picks], np.int64),
            dict(extras[:width]),
        )
        for row, topic, value in picks:
            kept = [(k, v) for k, v in rows[row] or [] if not k.startswith("hilcast_")] + gained.get(row, [])
            more = [(EXTRAS[0][0], EXTRAS[0][1][value]), (EXTRAS[1][0], b"x")][:width]
            key = None if row % 2 else b"k%d" % row
            wanted.append(("zy"[topic], key, b"v%d" % row, [*kept, *more]))
    got = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(assemble, "BATCH_BYTES", limit)
        for batch in Assembly(outgoing, envelopes).batches():
            batch.validate(full=True)
            assert batch.num_rows
            got += [
                (r["topic"], r["key"], r["value"], [(h["key"], h["value"]) for h in r["headers"]])
                for r in batch.to_pylist()
            ]
    assert sorted(got, key=repr) == sorted(wanted, key=repr)


def test_a_batch_holds_about_its_limit(monkeypatch):
    """Rows are cut where the limit is reached, and a row above it goes alone: no column outgrows Arrow's 2 GB."""
    monkeypatch.setattr(assemble, "BATCH_BYTES", 10)
    cuts = list(assemble._chunks(np.array([4, 6, 1, 30, 5, 5, 5], np.int64)))
    assert cuts == [(0, 2), (2, 3), (3, 4), (4, 6), (6, 7)]


def test_a_matrix_is_a_column():
    """Every row of a matrix of bytes is one value."""
    assert fixed(np.frombuffer(b"abcdef", np.uint8).reshape(3, 2)).to_pylist() == [b"ab", b"cd", b"ef"]
    assert fixed(np.empty((0, 32), np.uint8)).to_pylist() == []
