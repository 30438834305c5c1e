"""Columns of leaves to columns of ranks: what a scan found, as `ranks.py` would rank the JSON value it stands for.

Numbers, symbols, times and texts are ranked a column at a time. What is rare (decimals, UUIDs in bytes, times and dates
as text) is made a value and ranked by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from state.arrays import Bools, Bytes, Ints
from state.kernels import njit
from state.space.boxes import Ranks
from state.space.encodings.leaves import MICROS_MAX, MICROS_MIN, Leaf, Slot, timestamp_text
from state.space.event_type import Attribute
from state.space.json_scan import same_bytes, skip_character
from state.space.memory import byte_at
from state.space.rank_columns import rank_of_text
from state.space.ranks import ABSENT, PRESENT_MAX, TEXT_BYTES, rank, text_rank

_SECONDS_MIN, _SECONDS_MAX = MICROS_MIN // 1_000_000, MICROS_MAX // 1_000_000
_U8 = np.uint64(8)
_2_63 = 2.0**63


@dataclass(frozen=True, eq=False)
class Leaves:
    """What a scan found in a batch of values: by position and row."""

    found: Ints
    """Which of `kinds`; -1: nothing."""
    bits: Ints
    """The value in 64 bits, or the address of its bytes."""
    sizes: Ints
    """How many bytes they are."""
    valid: Bools
    kinds: Sequence[Leaf]
    slots: Sequence[Slot]
    """By attribute."""
    memory: Bytes
    """Keeps alive what addresses point into."""

    def check_texts(self) -> None:
        """Make rows invalid in which a text that is read is not UTF-8."""
        texts = np.array([leaf.raw == "text" for leaf in self.kinds], bool)
        for position in range(len(self.found)):
            _check_utf8(self.found[position], self.bits[position], self.sizes[position], texts, self.valid)
        self.found[:, ~self.valid] = -1

    def value(self, attribute: Attribute, slot: Slot, row: int) -> object:
        """The JSON value of an attribute in one row; None for none."""
        point = self._point(slot, row)
        if point is not None or slot.low is None or slot.high is None or attribute.imprecise is None:
            return point
        ends = {"min": self._point(slot.low, row), "max": self._point(slot.high, row)}
        return None if None in ends.values() else ends

    def _point(self, slot: Slot, row: int) -> object:
        if slot.point < 0 or self.found[slot.point, row] < 0:
            return None
        bits = int(self.bits[slot.point, row])
        if slot.nanos >= 0:
            return timestamp_text(_micros(bits, int(self.bits[slot.nanos, row])))
        leaf = self.kinds[self.found[slot.point, row]]
        return leaf.of_bits(bits, self._bytes(leaf, slot.point, row))

    def _bytes(self, leaf: Leaf, position: int, row: int) -> bytes:
        if leaf.raw not in ("text", "bytes") or self.sizes[position, row] == 0:
            return b""
        start = int(self.bits[position, row]) - self.memory.ctypes.data
        return self.memory[start : start + int(self.sizes[position, row])].tobytes()

    def spans(self, attribute: Attribute, slot: Slot) -> tuple[Ranks, Ranks]:
        """The lowest and the highest rank of an attribute in every row."""
        low = self._ranks(attribute, slot)
        if slot.low is None or slot.high is None or attribute.imprecise is None:
            return low, low
        first, last = self._ranks(attribute, slot.low), self._ranks(attribute, slot.high)
        interval = (low == ABSENT) & (first != ABSENT) & (last != ABSENT) & (first <= last)
        return np.where(interval, first, low), np.where(interval, last, low)

    def _ranks(self, attribute: Attribute, slot: Slot) -> Ranks:
        if slot.point < 0 or not len(self.valid):
            return np.full(len(self.valid), ABSENT, np.int64)
        found = self.found[slot.point]
        first, last = int(found.min()), int(found.max())
        if first == last >= 0:  # the ordinary case: every row has it, and of one kind
            return self._rank_leaf(attribute, self.kinds[first], slot, slice(None))
        ranks = np.full(len(self.valid), ABSENT, np.int64)
        for kind in range(max(0, first), last + 1):
            rows = np.flatnonzero(found == kind)
            if len(rows):
                ranks[rows] = self._rank_leaf(attribute, self.kinds[kind], slot, rows)
        return ranks

    def _rank_leaf(self, attribute: Attribute, leaf: Leaf, slot: Slot, rows: Ints | slice) -> Ranks:
        bits = self.bits[slot.point][rows]
        if slot.nanos >= 0:
            if attribute.kind == "timestamp":
                return _of_seconds(bits, self.bits[slot.nanos][rows])
        elif leaf.raw == "symbol":
            return _of_symbols(attribute, leaf, bits)
        elif attribute.kind not in leaf.kinds():
            return np.full(len(bits), ABSENT, np.int64)
        elif not leaf.logical and attribute.kind in ("int", "float", "boolean"):
            return _of_numbers(attribute.kind, leaf.raw, bits)
        elif leaf.logical in _PER_MICRO and attribute.kind == "timestamp":
            return _of_times(leaf.logical, bits)
        elif leaf.raw == "text" and attribute.kind in ("text", "category"):
            return _of_texts(attribute, bits, self.sizes[slot.point][rows])
        each = np.arange(len(self.valid))[rows].tolist()
        return np.array([rank(attribute, self._point(slot, row)) for row in each], np.int64)


# --- numbers ------------------------------------------------------------------------------------------------


def _of_numbers(kind: str, raw: str, bits: Ints) -> Ranks:
    if raw == "boolean":
        return (bits != 0).astype(np.int64)
    if raw in ("int", "uint"):
        if kind == "int":  # as an unsigned number, what is negative here lies beyond
            return np.where(bits < 0, ABSENT, bits) if raw == "uint" else bits  # -2^63 is absent anyway
        return _of_doubles(bits.astype(np.float64) if raw == "int" else bits.view(np.uint64).astype(np.float64))
    doubles = bits.view(np.float64) if raw == "double" else _singles(bits)
    if kind == "float":
        return _of_doubles(doubles)
    whole = np.isfinite(doubles) & (np.floor(doubles) == doubles) & (np.abs(doubles) < _2_63)
    return np.where(whole, np.where(whole, doubles, 0.0).astype(np.int64), ABSENT)


def _singles(bits: Ints) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    return (bits & 0xFFFF_FFFF).astype(np.uint32).view(np.float32).astype(np.float64)


def _of_doubles(doubles: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> Ranks:
    """As `ranks.float_rank`: the bits, counted down from 0 for negative ones."""
    bits = np.ascontiguousarray(doubles).view(np.int64)
    ranks = np.where(bits >= 0, bits, -(bits & 0x7FFF_FFFF_FFFF_FFFF))
    return np.where(np.isfinite(doubles), ranks, ABSENT)


# --- time ---------------------------------------------------------------------------------------------------

_PER_MICRO = {"timestamp-millis": (1000, 1), "timestamp-micros": (1, 1), "timestamp-nanos": (1, 1000)}
"""How many microseconds a unit is, or how many units one microsecond."""


def _of_times(logical: str, bits: Ints) -> Ranks:
    factor, divisor = _PER_MICRO[logical]
    low, high = MICROS_MIN // factor * divisor, (MICROS_MAX + 1) // factor * divisor - 1
    # nanoseconds of 64 bits end before these years do
    inside = (bits >= max(low, ABSENT)) & (bits <= min(high, PRESENT_MAX))
    return np.where(inside, np.where(inside, bits, 0) * factor // divisor, ABSENT)


def _of_seconds(seconds: Ints, nanos: Ints) -> Ranks:
    inside = (seconds >= _SECONDS_MIN) & (seconds <= _SECONDS_MAX) & (nanos >= 0) & (nanos < 1_000_000_000)
    return np.where(inside, np.where(inside, seconds, 0) * 1_000_000 + nanos // 1000, ABSENT)


def _micros(seconds: int, nanos: int) -> int:
    """Of a Protobuf Timestamp; far away for what is none."""
    return seconds * 1_000_000 + nanos // 1000 if 0 <= nanos < 1_000_000_000 else MICROS_MAX + 1


# --- text ---------------------------------------------------------------------------------------------------


def _of_symbols(attribute: Attribute, leaf: Leaf, numbers: Ints) -> Ranks:
    known = np.array(sorted(leaf.symbols), np.int64)
    ranks = np.array([rank(attribute, leaf.symbols[number]) for number in known.tolist()] + [ABSENT], np.int64)
    at = np.searchsorted(known, numbers)
    there = at < len(known)
    there[there] = known[at[there]] == numbers[there]
    return ranks[np.where(there, at, len(known))]


def _of_texts(attribute: Attribute, starts: Ints, sizes: Ints) -> Ranks:
    ranks = np.empty(len(starts), np.int64)
    if attribute.kind == "text":
        _text_ranks(starts, sizes, ranks)
        return ranks
    values, offsets, value_ranks, places = _declared(attribute)
    _category_places(starts, sizes, values.ctypes.data, offsets, value_ranks, places, ranks)
    return ranks


@lru_cache(maxsize=256)
def _declared(attribute: Attribute) -> tuple[Bytes, Ints, Ranks, Ints]:
    """The values of a category one after another, sorted by their ranks as text, and the declared place of each."""
    order = sorted(range(len(attribute.values)), key=lambda place: text_rank(attribute.values[place]))
    written = [attribute.values[place].encode() for place in order]
    offsets = np.cumsum([0, *map(len, written)]).astype(np.int64)
    ranks = np.array([text_rank(attribute.values[place]) for place in order], np.int64)
    return np.frombuffer(b"".join(written) or b"\0", np.uint8), offsets, ranks, np.array(order, np.int64)


@njit
def _text_rank(start: int, size: int) -> int:
    head = np.uint64(0)
    for k in range(min(size, TEXT_BYTES)):
        head = head << _U8 | np.uint64(byte_at(start + k))
    return rank_of_text(head, size)


@njit
def _text_ranks(starts: Ints, sizes: Ints, ranks: Ranks) -> None:
    for row in range(len(starts)):
        ranks[row] = _text_rank(starts[row], sizes[row])


@njit
def _category_places(
    starts: Ints, sizes: Ints, values: int, offsets: Ints, value_ranks: Ranks, places: Ints, ranks: Ranks
) -> None:
    for row in range(len(starts)):
        ranks[row] = ABSENT
        rank = _text_rank(starts[row], sizes[row])
        at = np.searchsorted(value_ranks, rank)
        while at < len(value_ranks) and value_ranks[at] == rank:
            value, value_end = values + offsets[at], values + offsets[at + 1]
            if same_bytes(starts[row], starts[row] + sizes[row], value, value_end):
                ranks[row] = places[at]
            at += 1


@njit
def _check_utf8(found: Ints, starts: Ints, sizes: Ints, texts: Bools, valid: Bools) -> None:
    for row in range(len(found)):
        if found[row] < 0 or not texts[found[row]]:
            continue
        i, end = starts[row], starts[row] + sizes[row]
        while 0 <= i < end:
            i = i + 1 if byte_at(i) < 128 else skip_character(i, end)
        if i < 0:
            valid[row] = False
