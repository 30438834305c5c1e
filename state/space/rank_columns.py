"""Columns of ranks, read from where `json_scan.py` found the values.

One compiled loop per attribute. The bytes are known to be JSON, so a string ends at its quote and a number at
the first byte that is none of it; what is of another kind than the attribute is ABSENT.

A row is *hard*, and left to Python's `json` (`decode.py`), if a float attribute has a number that `decimal_scan.py`
calls hard, or an escape inside a timestamp or inside what may be a long category value.
"""

from __future__ import annotations

import numpy as np

from state.arrays import Bools, Bytes, Ints
from state.kernels import njit
from state.space.boxes import Ranks
from state.space.decimal_scan import rank_at
from state.space.json_scan import (
    DEPTH_MAX,
    FINE,
    HARD,
    INVALID,
    find_members,
    same_bytes,
    scan_key,
    scan_separator,
    skip_space,
    skip_value,
)
from state.space.memory import byte_at
from state.space.ranks import ABSENT, TEXT_BYTES

KIND_CODES = {"int": 0, "float": 1, "boolean": 2, "category": 3, "timestamp": 4, "text": 5}
_INT, _FLOAT, _BOOLEAN, _CATEGORY, _TIMESTAMP, _TEXT = range(6)

_FAR = 2**62
"""An end for checks that are known to succeed before it."""
_HEX = np.array([int(chr(byte), 16) if chr(byte) in "0123456789abcdefABCDEF" else 0 for byte in range(256)])
_MONTH_DAYS = np.array([31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])
_SIGN = np.uint64(1 << 63)
_U8 = np.uint64(8)


@njit
def read_column(
    kind: int,
    imprecise: bool,
    starts: Ints,
    column: int,
    status: Bytes,
    lows: Ranks,
    highs: Ranks,
) -> None:
    """Write the ranks of an attribute of any kind but category; `highs` has no rows if all are precise."""
    stack = np.empty(DEPTH_MAX, np.uint8)
    for row in range(len(status)):
        low = high = ABSENT
        i = starts[column, row]
        if i != 0 and status[row] == FINE:
            if imprecise and byte_at(abs(i)) == 123:  # {
                low, high, hard = _interval_at(kind, i + 1, stack)
            else:
                low, hard = _scalar_at(kind, i)
                high = low
            if hard:
                status[row] = HARD
        lows[row, column] = low
        if len(highs) > 0:
            highs[row, column] = high


@njit
def read_flat(
    data: Bytes,
    offsets: Ints,
    names: int,
    name_offsets: Ints,
    kinds: Ints,
    imprecise: Bools,
    starts: Ints,
    status: Bytes,
    lows: Ranks,
    highs: Ranks,
) -> None:
    """Find the members of flat documents and write the ranks of all columns but categories: one call for a batch."""
    # its address, taken here: in Python it costs more than all the rest of a small batch
    find_members(data.ctypes.data, offsets, names, name_offsets, starts, status)
    for column in range(len(kinds)):
        if kinds[column] != _CATEGORY:
            read_column(kinds[column], imprecise[column], starts, column, status, lows, highs)


@njit
def settle(status: Bytes, starts: Ints, valid: Bools) -> int:
    """Say which rows are events, and forget where the values of hard ones begin; return how many are hard."""
    hard = 0
    for row in range(len(status)):
        valid[row] = status[row] != INVALID
        hard += status[row] == HARD
        if status[row] != FINE:
            # A key with an escape may be any attribute.
            starts[:, row] = 0
    return hard


@njit
def read_whole(
    data: Bytes,
    offsets: Ints,
    names: int,
    name_offsets: Ints,
    kinds: Ints,
    imprecise: Bools,
    starts: Ints,
    status: Bytes,
    lows: Ranks,
    highs: Ranks,
    valid: Bools,
) -> int:
    """`read_flat`, then `settle`: where no attribute is a category, a small batch costs one call."""
    read_flat(data, offsets, names, name_offsets, kinds, imprecise, starts, status, lows, highs)
    return settle(status, starts, valid)


@njit
def read_one(
    data: Bytes,
    names: int,
    name_offsets: Ints,
    kinds: Ints,
    imprecise: Bools,
    offsets: Ints,
    starts: Ints,
    lows: Ranks,
    valid: Bools,
) -> int:
    """`read_whole` of one document, none of whose attributes is imprecise; says where it begins and ends, too."""
    offsets[0], offsets[1] = 0, len(data)
    status, highs = np.empty(1, np.uint8), np.empty((0, len(kinds)), np.int64)
    return read_whole(data, offsets, names, name_offsets, kinds, imprecise, starts, status, lows, highs, valid)


@njit
def read_categories(
    values: int,
    value_offsets: Ints,
    value_ranks: Ranks,
    value_places: Ints,
    starts: Ints,
    column: int,
    status: Bytes,
    lows: Ranks,
    highs: Ranks,
) -> None:
    """Write the ranks of a category: the declared place of each value.

    The declared values lie at address `values`, sorted by text rank, which finds them: those of up to 7 bytes
    have ranks of their own, and longer ones with the same rank are compared.
    """
    for row in range(len(status)):
        i = starts[column, row]
        place = ABSENT
        if i != 0 and status[row] == FINE and byte_at(abs(i)) == 34:  # "
            rank = _text_rank_at(i + 1) if i > 0 else _escaped_text_rank_at(-i + 1)
            at = np.searchsorted(value_ranks, rank)
            while at < len(value_ranks) and value_ranks[at] == rank:
                value, value_end = values + value_offsets[at], values + value_offsets[at + 1]
                if value_end - value <= TEXT_BYTES:
                    place = value_places[at]
                elif i < 0:
                    status[row] = HARD
                elif same_bytes(i + 1, _closing_quote(i + 1), value, value_end):
                    place = value_places[at]
                at += 1
        lows[row, column] = place
        if len(highs) > 0:
            highs[row, column] = place


@njit
def _scalar_at(kind: int, i: int) -> tuple[int, bool]:
    """The rank of the value at `i` (at -i: a string with an escape), and whether it is hard."""
    byte = byte_at(abs(i))
    if kind in (_INT, _FLOAT):
        if byte == 45 or 48 <= byte <= 57:  # -, 0 to 9
            return rank_at(i, kind == _FLOAT)
    elif kind == _BOOLEAN:
        if byte == 116 or byte == 102:  # true, false
            return int(byte == 116), False
    elif byte == 34:  # "
        if kind == _TEXT:
            return (_text_rank_at(i + 1) if i > 0 else _escaped_text_rank_at(-i + 1)), False
        if i < 0:
            return ABSENT, True
        return _timestamp_at(i + 1, _closing_quote(i + 1)), False
    return ABSENT, False


@njit
def _interval_at(kind: int, i: int, stack: Bytes) -> tuple[int, int, bool]:
    """The ranks of `{"min": x, "max": y}`, read from behind the brace; of equal keys the last counts."""
    low = high = ABSENT
    hard = closed = False
    if byte_at(skip_space(i, _FAR)) == 125:  # }
        return ABSENT, ABSENT, False
    while not closed:
        key, key_end, escaped, i = scan_key(i, _FAR)
        start = i
        i, value_escaped = skip_value(i, _FAR, stack, 1)
        if escaped:
            hard = True
        elif key_end - key == 3 and byte_at(key) == 109:  # m
            rank, unsure = _scalar_at(kind, -start if value_escaped else start)
            if byte_at(key + 1) == 105 and byte_at(key + 2) == 110:  # in
                low = rank
                hard = hard or unsure
            elif byte_at(key + 1) == 97 and byte_at(key + 2) == 120:  # ax
                high = rank
                hard = hard or unsure
        i, closed = scan_separator(i, _FAR, 125)
    if low == ABSENT or high == ABSENT or low > high:
        return ABSENT, ABSENT, hard
    return low, high, hard


# --- text ---------------------------------------------------------------------------------------------------


@njit
def _closing_quote(i: int) -> int:
    """Where a string without escapes ends."""
    while byte_at(i) != 34:
        i += 1
    return i


@njit
def _text_rank_at(i: int) -> int:
    """The rank of a string without escapes, as `ranks.text_rank` defines it, from behind its quote."""
    head = np.uint64(0)
    length = 0
    while length <= TEXT_BYTES and byte_at(i + length) != 34:
        head, length = _append(head, length, byte_at(i + length))
    return rank_of_text(head, length)


@njit
def _append(head: np.uint64, length: int, byte: int) -> tuple[np.uint64, int]:
    if length < TEXT_BYTES:
        head = head << _U8 | np.uint64(byte)
    return head, length + 1


@njit
def rank_of_text(head: np.uint64, length: int) -> int:
    """The rank of a text whose first bytes are `head`. To take 2^63 off is to flip the highest bit."""
    for _ in range(length, TEXT_BYTES):
        head = head << _U8
    return int(np.int64((head << _U8 | np.uint64(min(length, TEXT_BYTES + 1) + 1)) ^ _SIGN))


@njit
def _escaped_text_rank_at(i: int) -> int:
    """The rank of a string with escapes, undone on the way; ABSENT if one of them is a lone surrogate."""
    head = np.uint64(0)
    length = 0
    while byte_at(i) != 34:
        if byte_at(i) != 92:  # backslash
            head, length = _append(head, length, byte_at(i))
            i += 1
            continue
        point, i = _unescape(i + 1)
        if 0xD800 <= point <= 0xDFFF:
            return ABSENT
        if point < 0x80:
            head, length = _append(head, length, point)
            continue
        if point < 0x800:
            head, length = _append(head, length, 0xC0 | point >> 6)
        elif point < 0x10000:
            head, length = _append(head, length, 0xE0 | point >> 12)
            head, length = _append(head, length, 0x80 | (point >> 6 & 0x3F))
        else:
            head, length = _append(head, length, 0xF0 | point >> 18)
            head, length = _append(head, length, 0x80 | (point >> 12 & 0x3F))
            head, length = _append(head, length, 0x80 | (point >> 6 & 0x3F))
        head, length = _append(head, length, 0x80 | (point & 0x3F))
    return rank_of_text(head, length)


@njit
def _unescape(i: int) -> tuple[int, int]:
    """The character of the escape whose letter is at `i`, and what follows; a surrogate pair is one."""
    letter = byte_at(i)
    if letter == 117:  # u
        point = _hex4(i + 1)
        if 0xD800 <= point <= 0xDBFF and byte_at(i + 5) == 92 and byte_at(i + 6) == 117:
            second = _hex4(i + 7)
            if 0xDC00 <= second <= 0xDFFF:
                return 0x10000 + ((point - 0xD800) << 10) + (second - 0xDC00), i + 11
        return point, i + 5
    if letter == 98:  # b
        letter = 8
    elif letter == 102:  # f
        letter = 12
    elif letter == 110:  # n
        letter = 10
    elif letter == 114:  # r
        letter = 13
    elif letter == 116:  # t
        letter = 9
    return letter, i + 1


@njit
def _hex4(i: int) -> int:
    return _HEX[byte_at(i)] << 12 | _HEX[byte_at(i + 1)] << 8 | _HEX[byte_at(i + 2)] << 4 | _HEX[byte_at(i + 3)]


# --- time ---------------------------------------------------------------------------------------------------


@njit
def _timestamp_at(i: int, end: int) -> int:
    """The microseconds of `YYYY-MM-DDThh:mm:ss[.f...](Z|+hh:mm)`, as `ranks.timestamp_micros`, or ABSENT."""
    if end - i < 20 or byte_at(i + 4) != 45 or byte_at(i + 7) != 45:  # -
        return ABSENT
    if byte_at(i + 13) != 58 or byte_at(i + 16) != 58:  # :
        return ABSENT
    if byte_at(i + 10) != 84 and byte_at(i + 10) != 116 and byte_at(i + 10) != 32:  # T, t, space
        return ABSENT
    century, years, month, day = _two_at(i), _two_at(i + 2), _two_at(i + 5), _two_at(i + 8)
    hour, minute, second = _two_at(i + 11), _two_at(i + 14), _two_at(i + 17)
    if min(century, years, hour, minute, second) < 0 or hour > 23 or minute > 59 or second > 60:
        return ABSENT
    year = century * 100 + years
    if month < 1 or month > 12 or day < 1:
        return ABSENT
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if day > _MONTH_DAYS[month - 1] + (month == 2 and leap):
        return ABSENT
    i, micros = _fraction_at(i + 19)
    offset = _offset_at(i, end)
    if i < 0 or offset == ABSENT:
        return ABSENT
    minutes = _days(year, month, day) * 1440 + hour * 60 + minute - offset
    if second == 60 and minutes % 1440 != 1439:
        return ABSENT
    return (minutes * 60 + second) * 1_000_000 + micros


@njit
def _two_at(i: int) -> int:
    """The number of two digits, or -1."""
    a, b = byte_at(i) - 48, byte_at(i + 1) - 48
    return a * 10 + b if 0 <= a <= 9 and 0 <= b <= 9 else -1


@njit
def _fraction_at(i: int) -> tuple[int, int]:
    """The microseconds of `.f...`, finer ones cut: (after it or -1, microseconds)."""
    if byte_at(i) != 46:  # .
        return i, 0
    micros, unit = 0, 100_000
    i += 1
    start = i
    while 48 <= byte_at(i) <= 57:
        micros += unit * (byte_at(i) - 48)
        unit //= 10
        i += 1
    return (-1 if i == start else i), micros


@njit
def _offset_at(i: int, end: int) -> int:
    """The minutes of `Z` or `+hh:mm`, which must be all that is left; else ABSENT."""
    if i < 0:
        return ABSENT
    if end - i == 1 and (byte_at(i) == 90 or byte_at(i) == 122):  # Z, z
        return 0
    if end - i != 6 or (byte_at(i) != 43 and byte_at(i) != 45) or byte_at(i + 3) != 58:  # + - :
        return ABSENT
    hours, minutes = _two_at(i + 1), _two_at(i + 4)
    if hours < 0 or hours > 23 or minutes < 0 or minutes > 59:
        return ABSENT
    return hours * 60 + minutes if byte_at(i) == 43 else -(hours * 60 + minutes)


@njit
def _days(year: int, month: int, day: int) -> int:
    """Days since 1970-01-01, in years that begin in March (see `ranks.py`)."""
    if month > 2:
        month -= 3
    else:
        month += 9
        year -= 1
    before = 365 * year + year // 4 - year // 100 + year // 400
    return before + (153 * month + 2) // 5 + day - 1 - 719_468
