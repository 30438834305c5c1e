"""Text as numbers that its first seven bytes do not decide: what keeps texts apart that share a rank.

URLs of one site share their first 7 bytes and so their rank (`ranks.py`). A junction that holds filters which ask for
such texts, or for such beginnings, keeps a *trait* of each as one more dimension of their boxes, and gives each event
those of its own text:

    text = 'https://shop/items/7'                    the hash of the whole text            [h, h]
    text LIKE 'https://shop/item%'                   the hash of so many bytes in front, and the six behind them:
                └── 12 ────┘└ 6 ┘                    [h '/item' 00, h '/item' FF]

So a prefix is a range, and prefixes whose lengths differ by a few bytes share a dimension. Two texts may share a trait,
so the filter itself still decides. FNV-1a of the UTF-8, 64 bits: a few lines, and equal in every process.
"""

from __future__ import annotations

import numpy as np

from state.arrays import Ints
from state.kernels import njit
from state.space.boxes import Ranks
from state.space.memory import byte_at
from state.space.ranks import ABSENT, Span

WHOLE = 1 << 40
"""The steps of the trait that is the hash of the whole text."""
STEP = 6
"""Bytes of one step, and bytes that stand behind a hash of 15 bits."""

Trait = tuple[int, int]
"""The column of a text, and how many steps are hashed."""

_SEED, _PRIME, _BITS = 0xCBF29CE484222325, 0x100000001B3, 2**64 - 1
_HEAD_AT, _HEAD = 40, 0x7FFF
"""Which bits of a hash stand in front of bytes: 15, so that no trait is negative, and none is ABSENT."""


def text_hash(text: str) -> int:
    """The hash of a text, as a rank that is never ABSENT.

    >>> text_hash(""), text_hash("https://shop/items/7") == text_hash("https://shop/items/8")
    (-3750763034362895579, False)
    """
    found = _hashed(text.encode())
    found -= (found >> 63) << 64
    return found if found != ABSENT else ABSENT + 1


def trait_of(text: str, steps: int) -> int:
    """The trait of a text; ABSENT if it is shorter than the steps.

    >>> trait_of("https://shop/items/7", 9) == ABSENT, trait_of("https://shop", WHOLE) == text_hash("https://shop")
    (True, True)
    """
    if steps == WHOLE:
        return text_hash(text)
    return prefix_span(text, steps)[0] if len(text.encode()) >= STEP * steps else ABSENT


def steps_of(prefix: str) -> int:
    """The steps for which a prefix says most: all of it but one to six bytes.

    >>> steps_of("https:/"), steps_of("https://shop"), steps_of("https://shop/")
    (1, 1, 2)
    """
    return (len(prefix.encode()) - 1) // STEP


def prefix_span(prefix: str, steps: int) -> Span:
    """Between which a trait lies of any text that begins so; the prefix has as many bytes as the steps.

    >>> low, high = prefix_span("https://shop/i", 2)
    >>> low < trait_of("https://shop/items", 2) < high, low <= trait_of("https://shop/other", 2) <= high
    (True, False)
    """
    data, at = prefix.encode(), STEP * steps
    assert at <= len(data)
    head, behind = _hashed(data[:at]) >> _HEAD_AT & _HEAD, data[at : at + STEP]
    low = head << 8 * STEP | int.from_bytes(behind.ljust(STEP, b"\0"))
    return low, low | (1 << 8 * (STEP - len(behind))) - 1


def _hashed(data: bytes) -> int:
    found = _SEED
    for byte in data:
        found = (found ^ byte) * _PRIME & _BITS
    return found


@njit
def place_points(ranks: Ranks, starts: Ints, rows: Ints, traits: Ints, points: Ranks) -> int:
    """Write some events as points: their ranks, and the traits of their texts; return how many texts are left.

    `starts`: as `json_scan.find_members` leaves them. `traits`: column, steps and dimension of each, sorted. Of what is
    absent, and of a text that only the event itself can tell, a trait is ABSENT.
    """
    left = 0
    for i in range(len(rows)):
        row, column = rows[i], -1
        at, behind, found = 0, 0, np.uint64(_SEED)
        for j in range(ranks.shape[1]):
            points[i, j] = ranks[row, j]
        for k in range(len(traits)):
            points[i, traits[k, 2]] = ABSENT
            if traits[k, 0] != column:
                column, found = traits[k, 0], np.uint64(_SEED)
                present = ranks[row, column] != ABSENT
                at = starts[column, row] + 1 if present else 0
                behind = at
                left += present and at <= 1
            if at <= 1:
                continue
            end = behind + STEP * traits[k, 1]
            byte = byte_at(at)
            while byte != 34 and at < end:  # "
                found = (found ^ np.uint64(byte)) * np.uint64(_PRIME)
                at += 1
                byte = byte_at(at)
            if traits[k, 1] == WHOLE:
                signed = np.int64(found)
                points[i, traits[k, 2]] = signed if signed != ABSENT else ABSENT + 1
            elif at == end:
                points[i, traits[k, 2]] = _piece(found, at)
    return left


@njit
def _piece(found: np.uint64, at: int) -> int:
    """15 bits of a hash, and the bytes that follow in the text."""
    value, ended = np.int64((found >> np.uint64(_HEAD_AT)) & np.uint64(_HEAD)), False
    for i in range(STEP):
        byte = 0 if ended else byte_at(at + i)
        ended = ended or byte == 34  # "
        value = value << 8 | (0 if ended else byte)
    return int(value)
