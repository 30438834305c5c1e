"""Ids of whole columns against the same ids made one by one."""

from __future__ import annotations

from hashlib import blake2b
from itertools import pairwise

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from state.columns import column
from state.digests import delivery_ids, entry_digests, event_digests, hexadecimal
from state.messages import delivery_id, event_digest

# around the edges of one and two blocks of 128 bytes, where 4 or 16 bytes come first
TEXTS = st.one_of(
    st.binary(max_size=4),
    st.sampled_from([0, 1, 111, 112, 113, 123, 124, 125, 127, 128, 129, 239, 240, 241, 252, 300]).map(
        lambda n: bytes(range(256))[:n] if n <= 256 else b"\xfe" * n
    ),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(TEXTS, TEXTS), max_size=8), st.integers(0, 3))
def test_digests_of_a_column_are_those_of_its_events(events, skipped):
    """A batch of digests is `event_digest` of each event, also in a column that is a slice of another."""
    sources = pa.array([b"before"] * skipped + [source for source, _ in events], pa.binary())[skipped:]
    ids = pa.array([id for _, id in events], pa.binary())
    digests = event_digests(sources, ids)
    assert [row.tobytes() for row in digests] == [event_digest(*event) for event in events]
    assert [row.tobytes() for row in hexadecimal(digests)] == [event_digest(*e).hex().encode() for e in events]


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_ids_of_a_column_are_those_of_its_deliveries(data):
    """A batch of delivery ids is `delivery_id` of each pair of event and client, whatever its length."""
    events = data.draw(st.lists(TEXTS, min_size=1, max_size=4))
    clients = data.draw(st.lists(st.one_of(st.text(max_size=3), TEXTS.map(lambda b: b.hex())), min_size=1, max_size=4))
    pairs = data.draw(
        st.lists(st.tuples(st.integers(0, len(events) - 1), st.integers(0, len(clients) - 1)), max_size=10)
    )
    digests = event_digests(pa.array([b"s"] * len(events), pa.binary()), pa.array(events, pa.binary()))
    event_of, client_of = np.array(pairs, np.int64).reshape(-1, 2).T.copy()
    encoded = pa.array([client.encode() for client in clients], pa.binary())
    made = delivery_ids(digests, event_of, encoded, client_of)
    wanted = [delivery_id(event_digest(b"s", events[e]), clients[c]) for e, c in pairs]
    assert [row.tobytes().decode() for row in made] == wanted


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(TEXTS.map(bytes.hex), st.integers(0, 3)), min_size=1, max_size=8), st.integers(0, 40))
def test_digests_of_entries_are_those_of_all_their_bytes(entries, told):
    """A batch of digests is BLAKE2b of each: how long its id is, its id, what is said beside it, its boxes."""
    counts = np.array([16 * boxes for _, boxes in entries])
    ends = np.append(0, np.cumsum(counts))
    rng = np.random.default_rng(told)
    lows, highs = (np.frombuffer(rng.bytes(int(ends[-1])), np.uint8) for _ in range(2))
    beside = rng.integers(0, 256, (len(entries), told), np.uint8)
    made = entry_digests(pa.array([id for id, _ in entries], pa.string()), beside, ends, lows, highs)
    for row, (id, _), said, (a, b) in zip(made, entries, beside, pairwise(ends), strict=True):
        content = len(id).to_bytes(8, "little") + id.encode() + said.tobytes() + bytes(lows[a:b]) + bytes(highs[a:b])
        assert row.tobytes() == blake2b(content, digest_size=16).digest()


def test_a_column_reads_null_as_empty_and_knows_its_slice():
    """Offsets are those of the slice, into the bytes of the whole."""
    data, offsets = column(pa.array([b"xx", b"ab", None, b"c"], pa.binary())[1:])
    assert [data[a:b].tobytes() for a, b in pairwise(offsets)] == [b"ab", b"", b"c"]
    assert column(pa.array([], pa.binary()))[1].tolist() == [0]
    assert column(pa.array([None, None], pa.binary()))[1].tolist() == [0, 0, 0]
