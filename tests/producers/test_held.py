"""What `verify` holds of big topics, packed, against lists and dictionaries of whole records."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from producers.client.inbox import Receipt
from producers.verify.held import Answer, Held, Receipts, held_times, read_receipts
from state.messages import Record

some_bytes = st.none() | st.binary(max_size=5)
headers = st.lists(st.tuples(st.text(max_size=3), some_bytes), max_size=2).map(tuple)
bodies = st.lists(st.tuples(st.integers(1, 3), st.integers(0, 2**41), some_bytes, some_bytes, headers), max_size=8)


def records_of(drawn, first=0):
    found, offset = [], first
    for step, at, key, value, given_headers in drawn:
        offset += step
        found.append(Record("in", 0, offset, at, key, value, given_headers))
    return found


@given(bodies, bodies)
def test_records_come_out_as_they_went_in(some, more):
    """All of them, equal and in order, found by offset too, also when others were added later."""
    before = records_of(some)
    after = records_of(more, before[-1].offset if before else 0)
    held, every = Held(before), before + after
    assert (list(held), held.end) == (before, before[-1].offset + 1 if before else None)
    held.add(after)
    by_offset = {record.offset: record for record in every}
    assert (list(held), len(held), held.first) == (every, len(every), every[0].offset if every else 0)
    assert list(held.times_ms) == [record.timestamp_ms for record in every]
    for offset in range(40):
        record = by_offset.get(offset)
        assert (held.at(offset), held.time_of(offset)) == (record, record and record.timestamp_ms)


places = st.tuples(st.sampled_from(["in", "out"]), st.integers(0, 1), st.integers(0, 4))
answers = st.builds(
    Answer,
    st.integers(0, 50).map(float),
    st.sampled_from(["accepted", "refused", "expired"]),
    st.none() | st.integers(0, 2**53),
    st.none() | st.text(max_size=4),
)


@given(st.lists(st.tuples(places, answers), max_size=12))
def test_receipts_are_found_by_what_they_answer(said):
    """Those of a place in the order in which they were written, whenever it is asked; and all of them."""
    receipts, by_place = Receipts(), defaultdict(list)
    for place, answer in said:
        receipts.add(place, answer)
        by_place[place].append(answer)
        assert receipts.of(place) == tuple(by_place[place])
    assert receipts.of(("nowhere", 0, 0)) == ()
    told = defaultdict(list)
    for place, answer in receipts:
        told[place].append(answer)
    assert (told, len(receipts)) == (by_place, len(said))
    assert sorted(receipts.times_ms()) == sorted(answer.at_ms for _, answer in said)


def test_numbers_that_kafka_does_not_have_are_no_receipts():
    """What somebody else has written with offsets and versions beyond all bounds is passed over whole."""
    good = Receipt("accepted", "b1/t/s", 3, "b1", "1.1", None, None, "in", 0, 7)
    strange = [
        Receipt("accepted", "b1/t/s", version, "b1", "1.1", None, None, "in", 0, offset)
        for version, offset in ((2**63, 7), (3, 2**63), (3, -(2**63) - 1))
    ]
    records = [Record("r", 0, n, 5, None, one.json().encode()) for n, one in enumerate([*strange, good])]
    receipts = read_receipts(records)
    assert (len(receipts), receipts.of(("in", 0, 7))) == (1, (Answer(5.0, "accepted", 3, "b1/t/s"),))


@given(bodies)
def test_times_are_pairs_of_numbers(drawn):
    """Offset and time of each record, nothing else."""
    records = records_of(drawn)
    pairs = np.array([[record.offset, record.timestamp_ms] for record in records], np.float64).reshape(-1, 2)
    assert np.array_equal(held_times(records), pairs)
