"""Mappings that clients make: what goes out comes back, and nothing else is taken for one."""

from __future__ import annotations

import base64
import itertools
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.peers.grid_fitting import fit
from state.errors import HilcastError
from state.space.boxes import Boxes
from state.space.event_type import Attribute, EventType
from state.space.grid import Grid
from state.space.mapping import (
    map_subscription,
    read_subscription_mapping,
)
from state.space.ranges import RANGES_MAX, Ranges
from state.space.ranks import ABSENT, PRESENT_MAX

TYPE = EventType(
    "quote",
    (
        Attribute("price", "float", min=0, max=100),
        Attribute("volume", "int", min=0, max=1000),
        Attribute("at", "timestamp"),
    ),
    index=("volume", "price"),
    bits=4,
)
GRID = Grid.of(TYPE)
OTHER = fit(GRID, np.array([[1, 2, 3], [4, 5, 6]]))
HEAD = f"hs1.{GRID.hash}."

rank = st.one_of(st.integers(-5, 1005), st.integers(ABSENT, PRESENT_MAX), st.just(ABSENT))


def varints(numbers: list[int]) -> bytes:
    """The encoding of the payload, written down a second time."""
    out = b""
    for number in numbers:
        while number >= 128:
            out += bytes([number % 128 + 128])
            number //= 128
        out += bytes([number])
    return out


def field(numbers: list[int]) -> str:
    return HEAD + base64.b64encode(varints(numbers)).decode()


@given(st.binary(max_size=80))
@settings(max_examples=200, deadline=None)
def test_random_bytes_are_no_mapping(data: bytes) -> None:
    """Bytes that no client made are `bad-value` as a subscription's mapping."""
    with pytest.raises(HilcastError) as caught:
        read_subscription_mapping(data, GRID)
    assert caught.value.code == "bad-value"


@given(st.lists(st.tuples(st.tuples(rank, rank), st.tuples(rank, rank)), max_size=4), st.sampled_from([None, 1, 3]))
@settings(max_examples=100, deadline=None)
def test_subscriptions_come_back(sides: list[tuple[tuple[int, int], ...]], cap: int | None) -> None:
    """The ranges of any boxes survive, cap or not, and are found to cover the filter they were made of."""
    boxes = Boxes.of([([min(a), min(b), ABSENT], [max(a), max(b), PRESENT_MAX]) for a, b in sides], d=3)
    text = map_subscription(GRID, boxes, cap)
    assert text.isascii()
    assert read_subscription_mapping(text, GRID, boxes) == GRID.ranges(boxes, cap)
    assert read_subscription_mapping(text.encode(), GRID) == GRID.ranges(boxes, cap)
    assert read_subscription_mapping(json.loads(json.dumps(text)), GRID, boxes) == GRID.ranges(boxes, cap)


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 20)), max_size=12))
@settings(max_examples=200, deadline=None)
def test_payload_is_what_the_module_says(pairs: list[tuple[int, int]]) -> None:
    """Gaps and lengths, summed up by hand, give the ranges; what leaves the grid of 256 cells is refused."""
    at, covered = 0, set()
    for gap, more in pairs:
        covered |= set(range(at + gap, at + gap + more + 1))
        at += gap + more + 1
    text = field([number for pair in pairs for number in pair])
    if at > 256:
        with pytest.raises(HilcastError, match="bad-value"):
            read_subscription_mapping(text, GRID)
    else:
        ranges = read_subscription_mapping(text, GRID)
        ranges.check()
        assert {i for a, b in ranges for i in range(a, b + 1)} == covered
        assert (ranges.starts[1:] - ranges.ends[:-1] > 1).all()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hs1",
        "hs2." + GRID.hash + ".",
        "he1." + GRID.hash + ".",
        "hs1.short.AAAA",
        HEAD + "A",
        HEAD + "AAA",
        HEAD + "A*AA",
        HEAD + "ÄÖ==",
        field([1]),
        field([0, 256]),
        field([256, 0]),
        field([2**62, 0]),
        field([2**70, 0]),
        HEAD + base64.b64encode(b"\x80").decode(),
        HEAD + base64.b64encode(b"\x80\x00\x01").decode(),
    ],
)
def test_malformed_subscriptions_are_bad_values(text: str) -> None:
    """Each way of being malformed is `bad-value`."""
    with pytest.raises(HilcastError) as caught:
        read_subscription_mapping(text, GRID)
    assert caught.value.code == "bad-value"


def test_too_many_ranges_are_a_bad_value() -> None:
    """One range more than `RANGES_MAX`, all of them inside the grid, is refused."""
    grid = Grid.of(EventType("quote", TYPE.attributes, index=("volume", "price"), bits=10))
    for count in (RANGES_MAX, RANGES_MAX + 1):
        text = f"hs1.{grid.hash}." + base64.b64encode(b"\1\0" * count).decode()
        if count == RANGES_MAX:
            assert len(read_subscription_mapping(text, grid)) == RANGES_MAX
        else:
            with pytest.raises(HilcastError, match="bad-value"):
                read_subscription_mapping(text, grid)


def test_another_grid_is_stale() -> None:
    """Ranges of another grid are refused with `stale-grid`, and both grids are named."""
    everything = Boxes.everything(3)
    with pytest.raises(HilcastError) as caught:
        read_subscription_mapping(map_subscription(OTHER, everything), GRID)
    assert caught.value.code == "stale-grid"
    assert OTHER.hash in caught.value.reason
    assert GRID.hash in caught.value.reason


def test_ranges_must_cover_the_filter() -> None:
    """With the filter's boxes at hand, ranges that leave out a cell of it are refused."""
    boxes = Boxes.of([([0, 100, ABSENT], [PRESENT_MAX, 300, PRESENT_MAX])])
    ranges = list(GRID.ranges(boxes))
    first, last = ranges[0]
    numbers = [first + 1, last - first - 1]
    for (_, before), (start, end) in itertools.pairwise(ranges):
        numbers += [start - before - 1, end - start]
    assert len(read_subscription_mapping(field(numbers), GRID)) == len(ranges)
    with pytest.raises(HilcastError, match="do not cover"):
        read_subscription_mapping(field(numbers), GRID, boxes)
    assert read_subscription_mapping(field([0, 255]), GRID, boxes) == Ranges.of([(0, 255)])
    with pytest.raises(HilcastError, match="do not cover"):
        read_subscription_mapping(field([]), GRID, boxes)


def test_wide_indices_fit() -> None:
    """The last index of a grid of 60 bits goes out and comes back."""
    attributes = tuple(Attribute(f"a{i}", "int") for i in range(5))
    grid = Grid.of(EventType("t", attributes, index=tuple(a.name for a in attributes), bits=12))
    corner = Boxes.of([([ABSENT] * 5, [PRESENT_MAX] * 5)])
    text = map_subscription(grid, corner)
    assert list(read_subscription_mapping(text, grid)) == [(0, 2**60 - 1)]
    numbers = varints([2**60 - 1, 0])
    single = f"hs1.{grid.hash}." + base64.b64encode(numbers).decode()
    assert list(read_subscription_mapping(single, grid)) == [(2**60 - 1, 2**60 - 1)]
