"""A junction that lives through changes, against the parts themselves read one by one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from state.compiled_part import CompiledPart, LocalEntry
from state.config import parse
from state.index_delta import IndexDelta, amended
from state.keys import Key
from state.routing.junction import Junction, NumberedBoxes
from state.space.boxes import Boxes
from state.space.decode import decode
from state.space.grid import Grid
from state.space.packing import RANGES, Packed, pack
from state.space.ranges import Ranges

CONFIG = parse("""
[overlay]
brokers = ["b1", "b2"]
links = [["b1", "b2"]]
[types.t]
cubes = 4
[types.t.attributes]
x = { kind = "int", min = 0, max = 7 }
y = { kind = "int", min = 0, max = 7 }
""")
TYPE = CONFIG.types["t"]
TYPES = [TYPE, replace(TYPE, matcher="s-tree", matcher_parameters={"skew": 0.3, "fanout": 2})]
"""The same with each matcher; a tree of two entries a node is packed anew every few changes."""
GRID = Grid.of(TYPE)
POINTS = [(x, y) for x in range(8) for y in range(8)]
BATCH = decode(TYPE, [b'{"x": %d, "y": %d}' % point for point in POINTS])

SPAN = st.tuples(st.integers(0, 7), st.integers(0, 7)).map(sorted)
BOX = st.tuples(SPAN, SPAN)
ENTRY = st.tuples(
    st.lists(BOX, min_size=1, max_size=2),
    st.sampled_from(["ann", "bob"]),
    st.sampled_from([None, "x = 3", "y < 2"]),
    st.booleans(),
    st.booleans(),
)
PART = st.tuples(
    st.dictionaries(st.sampled_from("abcdef"), ENTRY, max_size=4),
    st.lists(BOX, max_size=4),
    st.lists(st.tuples(st.integers(0, 15), st.integers(0, 15)).map(sorted), max_size=3),
    st.lists(st.sampled_from([("p", "x < 4"), ("q", "EXISTS y"), ("p", "y = 1")]), unique=True, max_size=2),
)


def ranks(value):
    return int(decode(TYPE, [b'{"x": %d}' % value]).ranks[0, 0])


def boxes_of(boxes):
    lows = [[ranks(x[0]), ranks(y[0])] for x, y in boxes]
    highs = [[ranks(x[1]), ranks(y[1])] for x, y in boxes]
    return Boxes(np.array(lows, np.int64).reshape(-1, 2), np.array(highs, np.int64).reshape(-1, 2))


def compiled(drawn, stamp=b""):
    entries, link, ranges, advertisements = drawn
    local = [
        LocalEntry(id, client, f"deliver.{client}", residual, pack(boxes_of(boxes)), residual is None, groups and exact)
        for id, (boxes, client, residual, exact, groups) in sorted(entries.items())
    ]
    links = {}
    if link:
        links["boxes"] = [pack(boxes_of([box])) for box in link]
    if ranges:
        links["ranges"] = [pack(Ranges(np.array([a]), np.array([b]))) for a, b in ranges]
    return CompiledPart.of(2, local, links, advertisements, stamp)


def difference(before, after, since, stamp):
    """What leads from one drawn part to another."""
    entries = {id: entry for id, entry in after[0].items() if before[0].get(id) != entry}
    gone, put = list(before[1]), []
    for box in after[1]:
        if box in gone:
            gone.remove(box)
        else:
            put.append(box)
    made = compiled((entries, put, after[2], after[3]), stamp)
    if not after[2]:
        made.links["ranges"] = Packed(RANGES, 1, b"", b"")
    return IndexDelta(
        since=since,
        put=made,
        gone=[id for id in before[0] if id not in after[0]],
        links_gone={"boxes": pack(boxes_of(gone))} if gone else {},
        advertised=sorted(before[3]) != sorted(after[3]),
    )


def alive(junction):
    """By number that is in use: the id."""
    return {number: junction.roll.id(number) for number in set(junction._local.matcher.boxes()[1].tolist())}


def inside(point, boxes):
    return any(x[0] <= point[0] <= x[1] and y[0] <= point[1] <= y[1] for x, y in boxes)


def agree(junction, parts):
    """All that a junction answers, against the drawn parts."""
    junction.check()
    (rows, numbers), roll = junction.interested(BATCH, np.arange(len(BATCH))), junction.roll
    got = sorted(
        (row, roll.id(n), roll.client(n), roll.destination(n), roll.text.values[n] >= 0,
         n in set(junction.doubtful.tolist()), bool(junction.grouped[n]))
        for row, n in zip(rows.tolist(), numbers.tolist(), strict=True)
    )  # fmt: skip
    wanted = sorted(
        (row, id, client, f"deliver.{client}", residual is not None, residual is not None, groups and exact)
        for entries, _, _, _ in parts.values()
        for id, (boxes, client, residual, exact, groups) in entries.items()
        for row, point in enumerate(POINTS)
        if inside(point, boxes)
    )
    assert got == wanted
    every = np.unique(numbers)
    recipients, *table = (column.tolist() for column in junction.recipients(every))
    assert [junction.roll.id(number).encode() for number in every.tolist()] == junction.ids_of(every).to_pylist()
    assert [(table[0][at].decode(), table[1][at].decode()) for at in recipients] == [
        (junction.roll.client(number), junction.roll.destination(number)) for number in every.tolist()
    ]
    index = GRID.index(BATCH.ranks)
    link = [inside(point, boxes) for point in POINTS for boxes in [[b for p in parts.values() for b in p[1]]]]
    assert junction.wanted("boxes", BATCH.ranks, index).tolist() == link
    spans = [span for p in parts.values() for span in p[2]]
    assert junction.wanted("ranges", BATCH.ranks, index).tolist() == [
        any(a <= at <= b for a, b in spans) for at in index.tolist()
    ]
    held = {ad for p in parts.values() for ad in p[3]}
    rules = {"x < 4": lambda x, y: x < 4, "EXISTS y": lambda x, y: True, "y = 1": lambda x, y: y == 1}
    for publisher in ("p", "q"):
        conforming = junction.conforming(BATCH, np.arange(len(POINTS)), [publisher] * len(POINTS))
        assert conforming.tolist() == [any(p == publisher and rules[t](*at) for p, t in held) for at in POINTS]


@pytest.mark.parametrize("event_type", TYPES, ids=lambda event_type: event_type.matcher)
@settings(max_examples=120, deadline=None)
@given(changes=st.lists(st.dictionaries(st.sampled_from("123"), PART, min_size=1, max_size=3), min_size=1, max_size=5))
def test_a_junction_answers_as_its_parts_do_after_every_change(event_type, changes):
    """Whatever parts are replaced by, answers are those of the parts now, and numbers that stay are kept."""
    junction = Junction(event_type, GRID)
    parts = {}
    for change in changes:
        roll, before = junction.roll, alive(junction)
        same = {
            (key, id)
            for key in parts
            for id, entry in parts[key][0].items()
            if key not in change or change[key][0].get(id) == entry
        }
        parts |= change
        junction.update({Key("b1", "t", key): compiled(part) for key, part in change.items()})
        agree(junction, parts)
        if junction.roll is roll:  # else most numbers were gone, and all are new
            kept = sum(alive(junction).get(number) == id for number, id in before.items())
            assert kept >= len(same)


@pytest.mark.parametrize("event_type", TYPES, ids=lambda event_type: event_type.matcher)
@settings(max_examples=120, deadline=None)
@given(
    first=PART,
    changes=st.lists(st.tuples(PART, st.booleans(), st.booleans()), min_size=1, max_size=6),
)
def test_a_junction_that_takes_in_deltas_answers_as_its_parts_do(event_type, first, changes):
    """Deltas, one by one or several at once, with wholes between them: answers are those of the part now, and so is
    the part that deltas make of a base.
    """
    junction, key = Junction(event_type, GRID), Key("b1", "t", "1")
    junction.update({key: compiled(first, b"0")})
    now, base, waiting = first, compiled(first, b"0"), []
    for i, (after, whole, wait) in enumerate(changes):
        stamp = str(i + 1).encode()
        delta = difference(now, after, base.stamp, stamp)
        now, base = after, amended(base, [delta])
        assert {entry.id: entry for entry in base.entries()} == {e.id: e for e in compiled(after).entries()}
        if whole:
            junction.update({key: compiled(now, stamp)})
            waiting = []
        else:
            waiting.append(delta)
            if wait:
                continue
            junction.change({key: waiting})
            assert junction.stamp(key) == stamp
            waiting = []
        if i % 2:  # a check folds what it looks at
            agree(junction, {"1": now})
    junction.change({key: waiting})
    agree(junction, {"1": now})


def test_a_delta_of_another_state_is_not_taken_in():
    """What was not made from what is held would leave something wrong behind: that is our own bug."""
    junction, key = Junction(TYPE, GRID), Key("b1", "t", "1")
    part = ({"a": ([([0, 7], [0, 7])], "ann", None, True, False)}, [], [], [])
    junction.update({key: compiled(part, b"0")})
    with pytest.raises(AssertionError):
        junction.change({key: [difference(part, part, b"1", b"2")]})


@pytest.mark.parametrize("event_type", TYPES, ids=lambda event_type: event_type.matcher)
def test_only_what_differs_is_changed(event_type):
    """Of a thousand entries in a part, one that is replaced is one removal and one insertion."""
    drawn = {f"s{i}": ([([i % 8, 7], [i // 8 % 8, 7])], "ann", None, True, False) for i in range(200)}
    junction = Junction(event_type, GRID)
    key = Key("b1", "t", "1")
    junction.update({key: compiled((drawn, [([i % 8, 7], [i // 8 % 8, 7]) for i in range(64)], [], []))})
    changed: list[tuple[int, int]] = []
    original = NumberedBoxes.change

    def counting(self, gone, boxes, numbers):
        changed.append((len(gone), len(boxes)))
        original(self, gone, boxes, numbers)

    after = drawn | {"s7": ([([0, 0], [0, 0])], "bob", None, True, False)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NumberedBoxes, "change", counting)
        junction.update({key: compiled((after, [([i % 8, 6], [i // 8 % 8, 7]) for i in range(64)][:1], [], []))})
        assert changed == [(1, 1), (64, 1)]
        junction.update({key: compiled((after, [([0, 6], [0, 7])], [], []))})
        assert changed[2:] == [(0, 0)], "equal links and equal entries"
    agree(junction, {"1": (after, [([0, 6], [0, 7])], [], [])})


def test_filters_that_nobody_uses_are_forgotten():
    """Compiled filters go when numbers are given anew, which is once more are gone than are left."""
    junction = Junction(TYPE, GRID)
    key = Key("b1", "t", "1")
    parts = ({"a": ([([0, 7], [0, 7])], "ann", "x = 3", True, False)}, [], [], [("p", "y = 1")])
    junction.update({key: compiled(parts)})
    agree(junction, {"1": parts})
    assert (set(junction._filters), set(junction._advertised)) == ({"x = 3"}, {"y = 1"})
    junction.update({key: compiled(({}, [], [], []))})
    assert not junction._filters
    assert not junction._advertised
    assert not junction._prepared


@pytest.mark.parametrize("text", ["x <", "", "nothing = 1", "(" * 50_000, None])
def test_a_filter_that_cannot_be_read_harms_nobody_else(text):
    """An entry that no control plane of ours lets through gets nothing, is said once, and all others are served."""
    junction, key = Junction(TYPE, GRID), Key("b1", "t", "1")
    bad = LocalEntry("bad", "eve", "deliver.eve", text, pack(boxes_of([([0, 7], [0, 7])])), exact=False)
    good = LocalEntry("good", "ann", "deliver.ann", "x = 3", pack(boxes_of([([0, 7], [0, 7])])), exact=False)
    promised = [("p", "x < 4"), *([] if text is None else [("q", text)])]
    junction.update({key: CompiledPart.of(2, [bad, good], {}, promised)})
    assert len(junction.faults) == len(promised)
    found = junction.interested(BATCH, np.arange(len(BATCH)))
    held = found.take(junction.holds(found, BATCH, points=True))
    assert set(junction.doubtful.tolist()) == {0, 1}
    assert {junction.roll.id(number) for number in held.numbers.tolist()} == {"good"}
    assert {POINTS[row][0] for row in held.rows.tolist()} == {3}
    rows = np.arange(len(POINTS))
    assert junction.conforming(BATCH, rows, ["p"] * len(rows)).tolist() == [x < 4 for x, _ in POINTS]
    junction.check()
    junction.faults.clear()
    junction.update({key: CompiledPart.of(2, [good], {}, [])})
    assert not junction.faults
    assert not junction.conforming(BATCH, rows, ["q"] * len(rows)).any()
