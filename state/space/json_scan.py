"""Where the attributes of JSON events are: one compiled pass over the bytes, which also checks them.

Every byte is looked at once. The scan tells whether a value is a JSON object (RFC 8259, in valid UTF-8) and
notes at which address the value of each attribute begins; `rank_columns.py` then reads only these.

    {"symbol":"IBM","price":101.5,"note":{"a":[1,2]}}
              │             │            └─ checked and skipped
              └─ symbol     └─ price

Differs from a parser: nothing is made an object, and members that are no attributes cost their bytes only.
"""

from __future__ import annotations

import numpy as np

from state.arrays import Bytes, Ints
from state.kernels import njit
from state.space.decimal_scan import skip_number
from state.space.memory import byte_at

INVALID, FINE, HARD = 0, 1, 2
"""What became of a row: not a JSON object; a JSON object; one that compiled code cannot read exactly."""
DEPTH_MAX = 128
"""How deep objects and arrays may lie in each other; deeper is not read as JSON."""

# Bytes that a string may hold as they are: no quote, backslash, control or part of a longer character.
_PLAIN = np.array([0x20 <= byte < 0x80 and byte not in b'"\\' for byte in range(256)])
_HEX = np.array([chr(byte) in "0123456789abcdefABCDEF" for byte in range(256)])
_ESCAPES = np.array([byte in b'"\\/bfnrt' for byte in range(256)])


@njit
def find_members(
    base: int,
    offsets: Ints,
    names: int,
    name_offsets: Ints,
    starts: Ints,
    status: Bytes,
) -> None:
    """Check every event from `base + offsets[i]` to `base + offsets[i + 1]` and find its attributes.

    `names`: the address of the attributes' names, cut at `name_offsets`. `starts[a, i]` becomes the address
    where the value of attribute a begins (of several, the last), minus that address if it is a string with an
    escape, and 0 if there is none. A key with an escape may be any attribute: such a row is HARD.
    """
    d = len(name_offsets) - 1
    stack = np.empty(DEPTH_MAX, np.uint8)
    starts[:] = 0
    for row in range(len(offsets) - 1):
        status[row] = INVALID
        i, end = skip_space(base + offsets[row], base + offsets[row + 1]), base + offsets[row + 1]
        if i >= end or byte_at(i) != 123:  # {
            continue
        outcome, expected = FINE, 0
        i = skip_space(i + 1, end)
        closed = i < end and byte_at(i) == 125  # }
        if closed:
            i += 1
        while not closed:
            key, key_end, escaped, i = scan_key(i, end)
            if i < 0:
                break
            if escaped:
                outcome = HARD
            start = i
            i, escaped = skip_value(i, end, stack, 1)
            if i < 0:
                break
            # Most events have their attributes in one order: the one after the last found is tried first.
            for step in range(d):
                attribute = expected + step - (d if expected + step >= d else 0)
                name, name_end = names + name_offsets[attribute], names + name_offsets[attribute + 1]
                if same_bytes(key, key_end, name, name_end):
                    starts[attribute, row] = -start if escaped else start
                    expected = attribute + 1
                    break
            i, closed = scan_separator(i, end, 125)
            if i < 0:
                break
        if i >= 0 and skip_space(i, end) == end:
            status[row] = outcome


@njit
def find_nested(
    base: int,
    offsets: Ints,
    names: int,
    name_offsets: Ints,
    children: Ints,
    siblings: Ints,
    columns: Ints,
    starts: Ints,
    status: Bytes,
) -> None:
    """As `find_members`, for attributes that lie in objects below: those on the way are descended, in the same pass.

    Members that lead somewhere are the nodes of a tree, numbered from the root downwards:

        node 0           children[k]  the first child of node k, 0 if it has none
        ├─ 1 order       siblings[k]  the next child of the same parent, after the last again the first
        │  └─ 2 country  columns[k]   rows of `starts` below node k, and whether the first is of the member itself:
        └─ 3 price                    (first, behind the last, itself)

    A member that comes again replaces the one before wholly: what was found below that is forgotten.
    """
    stack, above = np.empty(DEPTH_MAX, np.uint8), np.empty((DEPTH_MAX, 2), np.int64)
    starts[:] = 0
    for row in range(len(offsets) - 1):
        status[row] = INVALID
        i, end = skip_space(base + offsets[row], base + offsets[row + 1]), base + offsets[row + 1]
        if i >= end or byte_at(i) != 123:  # {
            continue
        outcome, depth, node, expected = FINE, 1, 0, children[0]
        i, closed = _enter(i, end)
        while True:
            if closed:
                depth -= 1
                if depth == 0:
                    break
                node, expected = above[depth, 0], above[depth, 1]
            else:
                key, key_end, escaped, i = scan_key(i, end)
                if i < 0:
                    break
                if escaped:
                    outcome = HARD
                start = i
                found = _child(key, key_end, names, name_offsets, children[node], expected, siblings)
                if found > 0:
                    expected = siblings[found]
                    for column in range(columns[found, 0], columns[found, 1]):
                        starts[column, row] = 0
                    if children[found] > 0 and i < end and byte_at(i) == 123:  # {
                        if columns[found, 2]:
                            starts[columns[found, 0], row] = start
                        above[depth, 0], above[depth, 1] = node, expected
                        depth, node, expected = depth + 1, found, children[found]
                        i, closed = _enter(i, end)
                        continue
                i, escaped = skip_value(i, end, stack, depth)
                if i < 0:
                    break
                if found > 0 and columns[found, 2]:
                    starts[columns[found, 0], row] = -start if escaped else start
            i, closed = scan_separator(i, end, 125)
            if i < 0:
                break
        if i >= 0 and skip_space(i, end) == end:
            status[row] = outcome


@njit
def _enter(i: int, end: int) -> tuple[int, bool]:
    """Step into the object at `i`: where its first key is, or after it if it is empty."""
    i = skip_space(i + 1, end)
    if i < end and byte_at(i) == 125:  # }
        return i + 1, True
    return i, False


@njit
def _child(key: int, key_end: int, names: int, name_offsets: Ints, first: int, expected: int, siblings: Ints) -> int:
    """The child that a key names, or 0; the expected one is tried first, for most events keep one order."""
    if first == 0:
        return 0
    at = expected
    while True:
        if same_bytes(key, key_end, names + name_offsets[at], names + name_offsets[at + 1]):
            return at
        at = siblings[at]
        if at == expected:
            return 0


@njit
def scan_key(i: int, end: int) -> tuple[int, int, bool, int]:
    """Scan `"key" :` to the value behind it: (first byte, end, has an escape, where the value is or -1)."""
    i = skip_space(i, end)
    if i >= end or byte_at(i) != 34:  # "
        return 0, 0, False, -1
    key = i + 1
    key_end, escaped = skip_string(key, end)
    if key_end < 0:
        return 0, 0, False, -1
    i = skip_space(key_end + 1, end)
    if i >= end or byte_at(i) != 58:  # :
        return 0, 0, False, -1
    return key, key_end, escaped, skip_space(i + 1, end)


@njit
def scan_separator(i: int, end: int, closing: int) -> tuple[int, bool]:
    """Scan what stands after a member: a comma (False) or the closing byte (True), or neither (-1)."""
    i = skip_space(i, end)
    if i < end and byte_at(i) == 44:  # ,
        return i + 1, False
    if i < end and byte_at(i) == closing:
        return i + 1, True
    return -1, False


@njit
def same_bytes(start: int, end: int, other: int, other_end: int) -> bool:
    """Tell whether two stretches of memory hold the same bytes."""
    if end - start != other_end - other:
        return False
    while start < end and byte_at(start) == byte_at(other):
        start += 1
        other += 1
    return start == end


@njit
def skip_space(i: int, end: int) -> int:
    while i < end and (byte_at(i) == 32 or byte_at(i) == 10 or byte_at(i) == 13 or byte_at(i) == 9):
        i += 1
    return i


@njit
def skip_value(i: int, end: int, stack: Bytes, depth: int) -> tuple[int, bool]:
    """Check any value inside `depth` open objects: (after it or -1, is a string with an escape)."""
    if i >= end:
        return -1, False
    if byte_at(i) == 34:  # "
        i, escaped = skip_string(i + 1, end)
        return (i + 1 if i >= 0 else -1), escaped
    if byte_at(i) == 123 or byte_at(i) == 91:  # { [
        return _skip_nested(i, end, stack, depth), False
    return _skip_leaf(i, end), False


@njit
def _skip_nested(i: int, end: int, stack: Bytes, depth: int) -> int:
    """Check an object or array inside `depth` open objects: after it or -1.

    The stack holds the opening bytes of what is open; a closing byte is its opening one plus 2.
    """
    outside = depth
    while True:
        i = skip_space(i, end)
        if i >= end:
            return -1
        opening = byte_at(i)
        if opening == 123 or opening == 91:  # { [
            if depth == DEPTH_MAX:
                return -1
            stack[depth] = opening
            depth += 1
            i = skip_space(i + 1, end)
            if i < end and byte_at(i) == opening + 2:
                i += 1
                depth -= 1
            elif opening == 91:
                continue
            else:
                _, _, _, i = scan_key(i, end)
                if i < 0:
                    return -1
                continue
        else:
            i = _skip_leaf(i, end)
            if i < 0:
                return -1
        closed = True
        while closed and depth > outside:
            i, closed = scan_separator(i, end, stack[depth - 1] + 2)
            if i < 0:
                return -1
            depth -= closed
        if depth == outside:
            return i
        if stack[depth - 1] == 123:
            _, _, _, i = scan_key(i, end)
            if i < 0:
                return -1


@njit
def _skip_leaf(i: int, end: int) -> int:
    """Check a string, number, true, false or null: after it or -1."""
    byte = byte_at(i)
    if byte == 34:  # "
        i, _ = skip_string(i + 1, end)
        return i + 1 if i >= 0 else -1
    if byte == 45 or 48 <= byte <= 57:  # -, 0 to 9
        return skip_number(i, end)
    if end - i < 4:
        return -1
    if byte == 116:
        return i + 4 if _three(i, 114, 117, 101) else -1  # true
    if byte == 110:
        return i + 4 if _three(i, 117, 108, 108) else -1  # null
    if byte == 102 and end - i >= 5 and byte_at(i + 4) == 101:
        return i + 5 if _three(i, 97, 108, 115) else -1  # false
    return -1


@njit
def _three(i: int, a: int, b: int, c: int) -> bool:
    return byte_at(i + 1) == a and byte_at(i + 2) == b and byte_at(i + 3) == c


@njit
def skip_string(i: int, end: int) -> tuple[int, bool]:
    """Check a string from behind its opening quote: (where its closing quote is or -1, has an escape)."""
    escaped = False
    while i < end:
        byte = byte_at(i)
        if _PLAIN[byte]:
            i += 1
        elif byte == 34:  # "
            return i, escaped
        elif byte == 92:  # backslash
            escaped = True
            i = _skip_escape(i + 1, end)
        else:
            i = skip_character(i, end)
        if i < 0:
            return -1, False
    return -1, False


@njit
def _skip_escape(i: int, end: int) -> int:
    if i >= end:
        return -1
    if _ESCAPES[byte_at(i)]:
        return i + 1
    if byte_at(i) != 117 or end - i < 5:  # u
        return -1
    for j in range(i + 1, i + 5):
        if not _HEX[byte_at(j)]:
            return -1
    return i + 5


@njit
def skip_character(i: int, end: int) -> int:
    """Check a character of two to four bytes: no overlong form, no surrogate, nothing above U+10FFFF."""
    first = byte_at(i)
    low, high = 0x80, 0xBF
    if 0xC2 <= first <= 0xDF:
        more = 1
    elif 0xE0 <= first <= 0xEF:
        more = 2
        if first == 0xE0:
            low = 0xA0
        elif first == 0xED:
            high = 0x9F
    elif 0xF0 <= first <= 0xF4:
        more = 3
        if first == 0xF0:
            low = 0x90
        elif first == 0xF4:
            high = 0x8F
    else:
        return -1
    if end - i <= more or byte_at(i + 1) < low or byte_at(i + 1) > high:
        return -1
    for j in range(i + 2, i + more + 1):
        if byte_at(j) < 0x80 or byte_at(j) > 0xBF:
            return -1
    return i + more + 1
