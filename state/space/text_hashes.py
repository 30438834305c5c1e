"""Text as one number that its first seven bytes do not decide: a hash, for equality among texts that share a rank.

URLs of one site share their first 7 bytes and so their rank (`ranks.py`). A junction that holds filters which ask for
such texts keeps the hash of each as one more dimension of their boxes, and gives each event that of its own text:

    text = 'https://shop/items/7' AND x < 5      text   [rank, rank]   x [.., 5)   hash of text   [h, h]
    text LIKE 'https://shop/%'  AND x < 5               [rank, rank]     [.., 5)                  [everything]

Two texts may share a hash, so the filter itself still decides. FNV-1a of the UTF-8, 64 bits: a few lines, and equal in
every process.
"""

from __future__ import annotations

import numpy as np

from state.arrays import Bools, Ints
from state.kernels import njit
from state.space.boxes import Ranks
from state.space.memory import byte_at
from state.space.ranks import ABSENT

_SEED, _PRIME, _BITS = 0xCBF29CE484222325, 0x100000001B3, 2**64 - 1


def text_hash(text: str) -> int:
    """The hash of a text, as a rank that is never ABSENT.

    >>> text_hash(""), text_hash("https://shop/items/7") == text_hash("https://shop/items/8")
    (-3750763034362895579, False)
    """
    found = _SEED
    for byte in text.encode():
        found = (found ^ byte) * _PRIME & _BITS
    found -= (found >> 63) << 64
    return found if found != ABSENT else ABSENT + 1


@njit
def hash_texts(starts: Ints, ranks: Ranks, hashes: Ints, left: Bools) -> None:
    """Write the hash of each event's text; `left`: those that only the event itself can tell.

    `starts`: as `json_scan.find_members` leaves them for this attribute; what is absent has no hash.
    """
    for row in range(len(ranks)):
        hashes[row], left[row] = ABSENT, False
        if ranks[row] == ABSENT:
            continue
        i = starts[row]
        if i <= 0 or byte_at(i) != 34:  # "
            left[row] = True
            continue
        found = np.uint64(_SEED)
        i += 1
        byte = byte_at(i)
        while byte != 34:
            found = (found ^ np.uint64(byte)) * np.uint64(_PRIME)
            i += 1
            byte = byte_at(i)
        signed = np.int64(found)
        hashes[row] = signed if signed != ABSENT else ABSENT + 1
