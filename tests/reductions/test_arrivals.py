"""Entries side by side: their flat arrays are those of the entries, in whatever order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from state.reductions.arrivals import Arrivals
from state.space.boxes import Boxes
from tests.reductions.contract import BoxSpace

SPACE = BoxSpace((0, 0), (3, 3), boxes_max=3)  # 16 points, so that shares are exact
DOMAIN = Boxes.of([([0, 0], [3, 3])])
entries = st.dictionaries(st.text("ab", max_size=4), SPACE.entries(), max_size=12)


def assert_flat(arrivals: Arrivals, expected: dict[str, Boxes]) -> None:
    assert dict(arrivals) == expected
    assert list(arrivals.ids) == list(expected)
    assert arrivals.sizes.tolist() == [len(boxes) for boxes in expected.values()]
    assert arrivals.boxes == Boxes.concatenated(list(expected.values()), 2)


@given(entries, st.data())
@settings(deadline=None)
def test_flat_arrays_are_those_of_the_entries(given_entries: dict[str, Boxes], data: st.DataObject) -> None:
    """All, some, a span, those with boxes, and with others behind them: also where flat arrays were made before."""
    arrivals = Arrivals.of(given_entries, 2)
    if data.draw(st.booleans()):
        assert_flat(arrivals, given_entries)
    items = list(given_entries.items())
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=len(items), max_size=len(items))), bool)
    assert_flat(arrivals.where(mask), {id: boxes for (id, boxes), kept in zip(items, mask, strict=True) if kept})
    assert_flat(arrivals.filled(), {id: boxes for id, boxes in items if len(boxes)})
    begin, end = sorted(data.draw(st.tuples(st.integers(0, len(items)), st.integers(0, 20))))
    if begin <= len(items):
        assert_flat(arrivals.span(begin, end), dict(items[begin:end]))
    assert_flat(arrivals.and_also({"c": DOMAIN}), given_entries | {"c": DOMAIN})
    points = {id: len(SPACE.points(boxes)) for id, boxes in items}
    by_size = sorted(items, key=lambda item: (-points[item[0]], item[0]))
    assert_flat(arrivals.largest_first(DOMAIN), dict(by_size))


def test_what_kernels_cannot_take_is_copied() -> None:
    """Boxes in read-only memory are put into memory of their own; others stay as they came."""
    plain, fixed = (Boxes.of([([0, i], [1, i])]) for i in (1, 2))
    fixed.lows.flags.writeable = False
    arrivals = Arrivals.of({"plain": plain, "fixed": fixed}, 2)
    assert arrivals.each[0] is plain
    assert arrivals.each[1].lows.flags.carray
    assert arrivals.each[1] == fixed


def test_an_entry_that_overlaps_itself_is_refused() -> None:
    """As `reduction.py` says."""
    with pytest.raises(AssertionError, match="overlap"):
        Arrivals.of({"a": Boxes.of([([0, 0], [2, 2]), ([2, 2], [3, 3])])}, 2)
