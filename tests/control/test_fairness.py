"""Fair taking against a naive dealer, who deals the records of a batch one by one, in turns."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from state.control.fairness import shares, taken

WAITING = st.dictionaries(st.sampled_from("abcdefgh"), st.integers(1, 60), min_size=1)


def dealt(waiting, limit):
    """One record to everybody who still waits, in turns, until the limit is reached; the last turn may be cut."""
    got = dict.fromkeys(waiting, 0)
    while True:
        hungry = [name for name in waiting if got[name] < waiting[name]]
        if not hungry or sum(got.values()) + len(hungry) > max(limit, len(waiting)):
            return got
        for name in hungry:
            got[name] += 1


@given(WAITING, st.integers(1, 300))
@settings(max_examples=300, deadline=None)
def test_nobody_gets_less_than_by_turns(waiting, limit):
    """Everybody gets at least what dealing in turns gives him, nobody more than he has, all together not too much."""
    got, turns = shares(waiting, limit), dealt(waiting, limit)
    assert all(turns[name] <= got[name] <= waiting[name] for name in waiting)
    assert sum(got.values()) <= max(limit, len(waiting))
    assert sum(got.values()) >= min(limit, sum(waiting.values()))


@given(st.integers(1, 40), st.integers(2, 200), st.integers(1, 5))
@settings(max_examples=100, deadline=None)
def test_batches_that_a_client_waits_behind_a_flood(mine, limit, flooders):
    """However much others send, k records are taken within ceil(k / max(1, limit // n)) batches."""
    spans = {f"f{i}": {f"s.f{i}": (0, 10**9)} for i in range(flooders)}
    start, batches = 0, 0
    while start < mine:
        ends = taken({**spans, "me": {"s.me": (start, mine)}}, limit)
        assert sum(end - spans[t[2:]][t][0] for t, end in ends.items() if t != "s.me") <= max(limit, flooders)
        spans = {name: {t: (ends[t], 10**9) for t in some} for name, some in spans.items()}
        start, batches = ends["s.me"], batches + 1
    share = max(1, limit // (flooders + 1))
    assert batches <= -(-mine // share)


@given(st.dictionaries(st.sampled_from("abc"), st.integers(0, 30), min_size=1), st.integers(1, 50))
def test_both_inboxes_of_a_client_go_on(inboxes, limit):
    """A client's share is divided among its inboxes, so that a flood of one does not stop the other."""
    spans = {"me": {topic: (5, 6 + n) for topic, n in inboxes.items()}, "you": {"z": (0, 1000)}}
    ends = taken(spans, limit)
    assert all(5 < ends[topic] <= 6 + n for topic, n in inboxes.items())
    assert taken(spans, None) == {**{topic: 6 + n for topic, n in inboxes.items()}, "z": 1000}
