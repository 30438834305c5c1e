"""A junction on a shelf of real files, against the parts themselves and against one that was never kept."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from state.keys import Key
from state.routing.junction import Junction, KeptJunction
from streaming.host_files import HostFiles
from tests.routing.test_junction import BATCH, GRID, PART, TYPES, agree, compiled, difference

CHANGES = st.lists(st.dictionaries(st.sampled_from("123"), PART, min_size=1, max_size=3), min_size=1, max_size=5)


def opened(event_type, kept, folder, before=None):
    """What another process makes of it."""
    read = msgspec.msgpack.decode(msgspec.msgpack.encode(kept), type=KeptJunction)
    return Junction.opened(event_type, GRID, read, HostFiles(folder), before)


def held(junction):
    found = junction.matching(BATCH, np.arange(len(BATCH)))
    return sorted((row, junction.roll.id(n)) for row, n in zip(*(side.tolist() for side in found), strict=True))


@pytest.mark.parametrize("event_type", TYPES, ids=lambda event_type: event_type.matcher)
@settings(max_examples=60, deadline=None)
@given(changes=CHANGES)
def test_what_is_opened_answers_as_what_was_kept(tmp_path_factory, event_type, changes):
    """Every change is made by one that was opened, and seen by a reader that goes from one to the next; what a reader
    had before answers as it did.
    """
    folder = tmp_path_factory.mktemp("shelf")
    junction, reader, parts, plain = Junction(event_type, GRID), None, {}, Junction(event_type, GRID)
    shelf = HostFiles(folder)
    for change in changes:
        before, answers = reader, None if reader is None else held(reader)
        parts |= change
        now = {Key("b1", "t", key): compiled(part) for key, part in change.items()}
        plain.update(now)
        junction.update(now)
        kept = junction.keep(shelf)
        agree(junction, parts)
        reader = opened(event_type, kept, folder, before)
        agree(reader, parts)
        assert held(reader) == held(plain)
        if before is not None:
            assert held(before) == answers
        shelf = HostFiles(folder)
        junction = Junction.opened(event_type, GRID, kept, shelf)


@pytest.mark.parametrize("event_type", TYPES, ids=lambda event_type: event_type.matcher)
@settings(max_examples=60, deadline=None)
@given(first=st.tuples(PART, PART), changes=st.lists(st.tuples(st.sampled_from("12"), PART, st.booleans()), max_size=6))
def test_what_is_opened_takes_in_deltas(tmp_path_factory, event_type, first, changes):
    """One that was opened holds the states that were kept, and takes in what leads on from them, now and then a whole;
    what a reader had before answers as it did.
    """
    folder, junction, parts = (
        tmp_path_factory.mktemp("shelf"),
        Junction(event_type, GRID),
        dict(zip("12", first, strict=True)),
    )
    keys, stamps = {part: Key("b1", "t", part) for part in "12"}, {"1": b"first", "2": b"first"}
    junction.update({keys[part]: compiled(drawn, stamps[part]) for part, drawn in parts.items()})
    for i, (part, after, whole) in enumerate(changes):
        kept = junction.keep(HostFiles(folder))
        before, junction = opened(event_type, kept, folder), opened(event_type, kept, folder)
        answers, stamp = held(before), str(i).encode()
        assert {one: junction.stamp(keys[one]) for one in "12"} == stamps
        if whole:
            junction.update({keys[part]: compiled(after, stamp)})
        else:
            junction.change({keys[part]: [difference(parts[part], after, stamps[part], stamp)]})
        parts[part], stamps[part] = after, stamp
        agree(junction, parts)
        assert held(before) == answers
    agree(opened(event_type, junction.keep(HostFiles(folder)), folder), parts)
    assert junction.stamp(Key("b1", "t", "3")) is None


def test_a_small_change_writes_what_it_concerns(tmp_path):
    """One subscription of 4,000 that is replaced costs less than a twentieth of what they all cost, time and again."""
    drawn = {f"s{i}": ([([i % 8, 7], [i // 8 % 8, 7])], "ann", None, True, False) for i in range(4000)}
    link, key, shelf = [([i % 8, 7], [i // 8 % 8, 7]) for i in range(64)], Key("b1", "t", "1"), HostFiles(tmp_path)
    junction = Junction(TYPES[0], GRID)
    junction.update({key: compiled((drawn, link, [], []))})
    kept = junction.keep(shelf)
    whole = shelf.written
    for i in range(20):
        drawn[f"s{i}"] = ([([0, i % 8], [0, 0])], "bob", "x = 3", True, False)
        junction = Junction.opened(TYPES[0], GRID, kept, shelf)
        junction.update({key: compiled((drawn, link, [], []))})
        before, kept = shelf.written, junction.keep(shelf)
        # the first removal of a segment makes an index of it
        assert shelf.written - before < whole / 20 or i == 0
    agree(Junction.opened(TYPES[0], GRID, kept, HostFiles(tmp_path)), {"1": (drawn, link, [], [])})


def test_what_was_read_of_filters_goes_over_to_the_next(tmp_path):
    """A reader that goes to the next epoch reads no filter again that it has read, and forgets all where numbers are
    new.
    """
    drawn = {f"s{i}": ([([0, 7], [0, 7])], "ann", "x = 3", True, False) for i in range(4)}
    key, shelf, junction = Key("b1", "t", "1"), HostFiles(tmp_path), Junction(TYPES[0], GRID)
    junction.update({key: compiled((drawn, [], [], [("p", "y = 1")]))})
    first = opened(TYPES[0], junction.keep(shelf), tmp_path)
    assert not first._prepared
    agree(first, {"1": (drawn, [], [], [("p", "y = 1")])})
    assert held(first) == [(row, f"s{i}") for row in range(24, 32) for i in range(4)]
    assert len(first._prepared) == 4
    del drawn["s0"]
    junction.update({key: compiled((drawn, [], [], [("p", "y = 1")]))})
    second = opened(TYPES[0], junction.keep(shelf), tmp_path, first)
    assert second._prepared is first._prepared
    assert second._advertised["y = 1"] is first._advertised["y = 1"]
    junction.update({key: compiled(({"s9": drawn["s3"]}, [], [], []))})
    third = opened(TYPES[0], junction.keep(shelf), tmp_path, second)
    assert not third._prepared
    assert held(third) == [(row, "s9") for row in range(24, 32)]
