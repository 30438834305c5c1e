"""Headers of mapped events: what publishers write is read, and nothing else is taken for one."""

from __future__ import annotations

import base64
import struct

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.peers.event_headers import map_event, map_events, read_event_mapping, read_event_mappings
from benchmarks.peers.grid_fitting import fit
from state.space.event_type import Attribute, EventType
from state.space.grid import Grid
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
HEAD = f"he1.{GRID.hash}."

rank = st.one_of(st.integers(-5, 1005), st.integers(ABSENT, PRESENT_MAX), st.just(ABSENT))
vectors = st.lists(st.tuples(rank, rank, rank), min_size=1, max_size=8)


def test_event_header_is_what_the_module_says() -> None:
    """A client of any language can write it: prefix, hash, base64 of little-endian index and ranks, filled up."""
    ranks = np.array([5, 700, ABSENT], np.int64)
    payload = struct.pack("<4q", int(GRID.index(ranks[None])[0]), 5, 700, ABSENT) + b"\0"
    assert map_event(GRID, ranks) == f"he1.{GRID.hash}.".encode() + base64.b64encode(payload)


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
    """Bytes that no client made are ignored."""
    assert read_event_mapping(data, GRID) is None
    assert read_event_mapping(f"he1.{GRID.hash}.".encode() + data, GRID) is None


def test_padding_must_be_zero() -> None:
    """The bytes that fill up the payload say nothing and must be zero, so one mapping has one text."""
    payload = struct.pack("<4q", int(GRID.index(np.array([[1, 2, 3]]))[0]), 1, 2, 3) + b"\1"
    assert read_event_mapping(f"he1.{GRID.hash}.".encode() + base64.b64encode(payload), GRID) is None


def test_no_headers() -> None:
    """An empty batch, and one without any mapping, are read as such."""
    assert read_event_mappings([], GRID).ranks.shape == (0, 3)
    assert not read_event_mappings([None, b""], GRID).mapped.any()
