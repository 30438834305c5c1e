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
from state.space.packing import pack_boxes, pack_entries, unpack_boxes, unpack_entries


def drawn(n: int, d: int, spread: int, seed: int) -> Boxes:
    draws = np.random.default_rng(seed).integers(-spread, spread, (n, 2, d))
    return Boxes(draws.min(axis=1), draws.max(axis=1))


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 700), st.integers(1, 3), st.integers(1, 2**40), st.integers(0, 2**32))
def test_packed_boxes_come_back(n: int, d: int, spread: int, seed: int) -> None:
    """Boxes survive packing, with few distinct values (by table) and many (raw), and never take more than raw."""
    boxes = drawn(n, d, spread, seed)
    blob = pack_boxes(boxes)
    assert unpack_boxes(blob) == boxes
    assert len(blob) <= 8 + 2 * d * (1 + 8 * n)


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
