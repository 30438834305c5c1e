"""Boxes and entries come back from their packed form, and what is damaged is refused."""

from __future__ import annotations

from contextlib import suppress

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from state.errors import HilcastError
from state.space.boxes import Boxes
from state.space.packing import (
    RANGES,
    Geometry,
    Packed,
    geometries,
    pack,
    pack_boxes,
    pack_each,
    pack_entries,
    unpack,
    unpack_boxes,
    unpack_entries,
)
from state.space.ranges import Ranges
from state.space.ranks import ABSENT, PRESENT_MAX


def drawn(n: int, d: int, spread: int, seed: int) -> Boxes:
    draws = np.random.default_rng(seed).integers(-spread, spread, (n, 2, d))
    return Boxes(draws.min(axis=1), draws.max(axis=1))


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 700), st.integers(1, 3), st.integers(1, 2**40), st.integers(0, 2**32))
def test_packed_boxes_come_back(n: int, d: int, spread: int, seed: int) -> None:
    """Boxes survive packing, with few distinct values (by table) and many, and take no more than raw and a head."""
    boxes = drawn(n, d, spread, seed)
    blob = pack_boxes(boxes)
    assert unpack_boxes(blob) == boxes
    assert len(blob) <= 8 + 2 * d * (9 + 8 * n)


SIDES = st.sampled_from(
    [ABSENT, ABSENT + 1, -256, -1, 0, 1, 255, 256, 65_535, 65_536, 2**56, PRESENT_MAX - 1, PRESENT_MAX]
)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(st.tuples(SIDES, SIDES), min_size=2, max_size=2), max_size=12), st.integers(1, 40))
def test_boxes_at_the_ends_of_all_ranks_come_back(sides: list[list[tuple[int, int]]], times: int) -> None:
    """Columns that take 0, 1, 2, .. 8 bytes, and boxes as wide as all ranks, whose width is no int64."""
    boxes = Boxes.of([([min(s) for s in box], [max(s) for s in box]) for box in sides] * times, 2)
    assert unpack_boxes(pack_boxes(boxes)) == boxes


def test_a_column_takes_the_bytes_that_its_values_differ_in() -> None:
    """Points of few values: a table for the low corners, nothing for the high ones; a face that all share: nothing."""
    n = 10_000
    lows = np.stack([np.arange(n) % 300 * 2**40, np.full(n, ABSENT), np.arange(n) % 300 + 2**60], axis=1)
    highs = np.stack([lows[:, 0], np.full(n, PRESENT_MAX), lows[:, 2] + 7 + np.arange(n) % 2], axis=1)
    boxes = Boxes(lows, highs)
    blob = pack_boxes(boxes)
    assert unpack_boxes(blob) == boxes
    # two bytes in the first and the third dimension, one more for how wide the latter is
    assert 5 * n < len(blob) < 5 * n + 8 * 300 + 100


def test_a_damaged_count_of_boxes_is_refused_before_room_is_made_for_it() -> None:
    """Boxes that are all the same have columns of no bytes, but for the first."""
    blob = pack_boxes(Boxes.of([([1, 1], [5, 5])] * 3))
    with pytest.raises(HilcastError, match=r"^state-format: "):
        unpack_boxes((2**32 - 1).to_bytes(4, "little") + blob[4:])
    with pytest.raises(HilcastError, match=r"^state-format: "):
        unpack_boxes(blob[:4] + (2**32 - 1).to_bytes(4, "little") + blob[8:])


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 40), st.integers(1, 3), st.sampled_from([3, 2**40]), st.data())
def test_damaged_boxes_are_refused_or_are_boxes(n: int, d: int, spread: int, data: st.DataObject) -> None:
    """Bytes that are cut, or changed anywhere, raise `state-format` or are still boxes."""
    blob = pack_boxes(drawn(n, d, spread, 1))
    with pytest.raises(HilcastError, match=r"^state-format: "):
        unpack_boxes(blob[: data.draw(st.integers(0, len(blob) - 1))])
    changed = bytearray(blob)
    changed[data.draw(st.integers(0, len(blob) - 1))] ^= data.draw(st.integers(1, 255))
    # Any other error, or boxes that are none, fail here.
    with suppress(HilcastError):
        unpack_boxes(bytes(changed)).check()


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(st.tuples(st.integers(1, 2**40), st.integers(0, 2**20)), max_size=3), max_size=150))
def test_many_are_packed_and_unpacked_as_each_is(tables: list[list[tuple[int, int]]]) -> None:
    """Tables of ranges, single ones and none, side by side: the same bytes, the same ranges, in memory of their own."""
    ranges: list[Geometry] = []
    for table in tables:
        ends = np.cumsum(np.array([(gap, size) for gap, size in table], np.int64).reshape(-1, 2))
        ranges.append(Ranges(ends[0::2].copy(), ends[1::2].copy()))
    for some in (ranges, [one for one in ranges if len(one) == 1]):
        each = [pack(one) for one in some]
        assert pack_each(some) == each
        for back in (geometries(pack_each(some)), geometries(each), geometries(each)):
            assert back == some == [unpack(packed) for packed in each]


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(0, 3), max_size=150), st.integers(1, 3))
def test_boxes_of_many_are_unpacked_as_each_is(sizes: list[int], d: int) -> None:
    """Entries of some boxes, and of none; kernels can take their memory."""
    some = [drawn(n, d, 9, i) for i, n in enumerate(sizes)]
    back = geometries([pack(one) for one in some])
    assert back == some
    assert all(isinstance(one, Boxes) and one.owned() is one for one in back)


def test_a_damaged_range_among_many_is_refused() -> None:
    """Whatever byte of one is another one: the same error as for it alone, or the same ranges."""
    good = [pack(Ranges.of([(start, start + 300)])) for start in (5, 200, 2**40)]
    for at in range(len(good[1].lows)):
        for value in (0, 1, 0x7F, 0x80, 0xFF):
            lows = good[1].lows[:at] + bytes([value]) + good[1].lows[at + 1 :]
            fresh = [Packed(RANGES, 1, one, b"") for one in (good[0].lows, lows, good[2].lows)]
            try:
                alone = unpack(fresh[1])
            except HilcastError as error:
                with pytest.raises(HilcastError, match=error.code):
                    geometries(fresh)
            else:
                assert geometries(fresh)[1] == alone


def test_entries_come_back_in_their_order() -> None:
    """Ids, their boxes and their order survive; an entry may be empty."""
    entries = {"b": drawn(3, 2, 9, 1), "none": Boxes.empty(2), "a": drawn(1, 2, 9, 2)}
    back, together = unpack_entries(pack_entries(entries, 2), 2)
    assert list(back.items()) == list(entries.items())
    assert together == Boxes.concatenated(list(entries.values()), 2)
    assert unpack_entries(pack_entries({}, 2), 2) == ({}, Boxes.empty(2))


def test_entries_that_do_not_add_up_are_refused() -> None:
    """Another number of dimensions, an id given twice, sizes that are not those of the boxes."""
    packed = pack_entries({"a": drawn(3, 2, 9, 1), "b": drawn(1, 2, 9, 2)}, 2)
    replace = msgspec.structs.replace
    wrong = [replace(packed, ids=["a", "a"]), replace(packed, ids=["a"]), replace(packed, sizes=b"\x03\x02")]
    for damaged, d in [(packed, 3), *((one, 2) for one in wrong)]:
        with pytest.raises(HilcastError, match=r"^state-format: "):
            unpack_entries(damaged, d)


def test_geometry_is_equal_by_what_it_holds() -> None:
    """Both signs: of the two it is `!=` that msgspec would answer by itself."""
    for make in (lambda: drawn(3, 2, 9, 1), lambda: Ranges.of([(1, 2), (4, 5)])):
        one, same = make(), make()
        assert one is not same
        assert one == same
        assert not one != same  # noqa: SIM202
    assert drawn(3, 2, 9, 1) != drawn(3, 2, 9, 2)
    assert Ranges.of([(1, 2)]) != Ranges.of([(1, 3)])
    assert drawn(3, 2, 9, 1) != "boxes"
