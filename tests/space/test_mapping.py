"""Mappings that clients make: what goes out comes back, and nothing else is taken for one."""

from __future__ import annotations

import base64
import itertools
import json
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from state.errors import HilcastError
from state.space.boxes import Boxes
from state.space.event_type import Attribute, EventType
from state.space.grid import Grid
from state.space.mapping import (
    map_event,
    map_events,
    map_subscription,
    read_event_mapping,
    read_event_mappings,
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
OTHER = GRID.fit(np.array([[1, 2, 3], [4, 5, 6]]))
HEAD = f"hs1.{GRID.hash}."

rank = st.one_of(st.integers(-5, 1005), st.integers(ABSENT, PRESENT_MAX), st.just(ABSENT))
vectors = st.lists(st.tuples(rank, rank, rank), min_size=1, max_size=8)


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


@given(vectors)
@settings(max_examples=100, deadline=None)
def test_events_come_back(batch: list[tuple[int, ...]]) -> None:
    """Ranks and index of every event survive; the header is ASCII, of one length, and the same in every batch."""
    ranks = np.array(batch, np.int64)
    headers = map_events(GRID, ranks)
    read = read_event_mappings(headers, GRID)
    assert read.mapped.all()
    assert (read.ranks == ranks).all()
    assert (read.indices == GRID.index(ranks)).all()
    assert all(header.isascii() and len(header) == len(headers[0]) for header in headers)
    assert headers[0] == map_event(GRID, ranks[0])


def test_event_header_is_what_the_module_says() -> None:
    """A client of any language can write it: prefix, hash, base64 of little-endian index and ranks, filled up."""
    ranks = np.array([5, 700, ABSENT], np.int64)
    payload = struct.pack("<4q", int(GRID.index(ranks[None])[0]), 5, 700, ABSENT) + b"\0"
    assert map_event(GRID, ranks) == f"he1.{GRID.hash}.".encode() + base64.b64encode(payload)


@given(vectors, st.lists(st.sampled_from(["keep", "none", "old", "cut", "garbage", "lie"]), min_size=8))
@settings(max_examples=100, deadline=None)
def test_bad_headers_are_ignored_and_spoil_nothing(batch: list[tuple[int, ...]], faults: list[str]) -> None:
    """In a mixed batch just the sound headers of this grid are read; the others are None when read alone."""
    ranks = np.array(batch, np.int64)
    headers: list[bytes | None] = []
    for row, fault in zip(ranks, faults, strict=False):
        good = map_event(GRID, row)
        index = int(GRID.index(row[None])[0]) ^ 1
        lie = base64.b64encode(struct.pack("<4q", index, *(int(r) for r in row)) + b"\0")
        broken = {
            "keep": good,
            "none": None,
            "old": map_event(OTHER, row),
            "cut": good[:-1],
            "garbage": good[:-3] + b"*" + good[-2:],
            "lie": good[: len(HEAD)] + lie,
        }
        headers.append(broken[fault])
    read = read_event_mappings(headers, GRID)
    kept = [fault == "keep" for _, fault in zip(ranks, faults, strict=False)]
    assert read.mapped.tolist() == kept
    assert (read.ranks[kept] == ranks[kept]).all()
    assert (read.indices == np.where(kept, GRID.index(ranks), -1)).all()
    assert (read.ranks[~read.mapped] == ABSENT).all()
    for header, keep in zip(headers, kept, strict=True):
        assert (read_event_mapping(header, GRID) is not None) == keep


@given(st.binary(max_size=80))
@settings(max_examples=200, deadline=None)
def test_random_bytes_are_no_mapping(data: bytes) -> None:
    """Bytes that no client made are ignored as an event's mapping and `bad-value` as a subscription's."""
    assert read_event_mapping(data, GRID) is None
    assert read_event_mapping(f"he1.{GRID.hash}.".encode() + data, GRID) is None
    with pytest.raises(HilcastError) as caught:
        read_subscription_mapping(data, GRID)
    assert caught.value.code == "bad-value"


def test_padding_must_be_zero() -> None:
    """The bytes that fill up the payload say nothing and must be zero, so one mapping has one text."""
    payload = struct.pack("<4q", int(GRID.index(np.array([[1, 2, 3]]))[0]), 1, 2, 3) + b"\1"
    assert read_event_mapping(f"he1.{GRID.hash}.".encode() + base64.b64encode(payload), GRID) is None


def test_no_headers() -> None:
    """An empty batch, and one without any mapping, are read as such."""
    assert read_event_mappings([], GRID).ranks.shape == (0, 3)
    assert not read_event_mappings([None, b""], GRID).mapped.any()


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
