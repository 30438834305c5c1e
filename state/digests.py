"""BLAKE2b over columns: the ids of a whole batch of deliveries without a Python object for each.

`state.messages.event_digest` and `delivery_id` say what the ids are; these are the same ids, by the thousand. The
hash is RFC 7693 with a digest of 16 bytes and no key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from state.arrays import Bytes, Ints, Offsets, Words
from state.columns import column, copy
from state.kernels import njit

if TYPE_CHECKING:
    import pyarrow as pa

DIGEST_BYTES = 16
BLOCK_BYTES = 128
_WORDS = BLOCK_BYTES // 8


_IV = np.array(
    [
        0x6A09E667F3BCC908, 0xBB67AE8584CAA73B, 0x3C6EF372FE94F82B, 0xA54FF53A5F1D36F1,
        0x510E527FADE682D1, 0x9B05688C2B3E6C1F, 0x1F83D9ABFB41BD6B, 0x5BE0CD19137E2179,
    ],
    np.uint64,
)  # fmt: skip
_SIGMA = np.array(
    [
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
        [14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3],
        [11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4],
        [7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8],
        [9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13],
        [2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9],
        [12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11],
        [13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10],
        [6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5],
        [10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0],
    ],
    np.uint64,  # unsigned: a signed index is checked for being negative
)
_ROUNDS = 12
_PARAMETERS = np.uint64(0x01010000 ^ DIGEST_BYTES)
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)


def event_digests(sources: pa.Array, ids: pa.Array) -> Bytes:
    """Digests of many publications, (n, 16): `state.messages.event_digest` of each.

    >>> import pyarrow as pa
    >>> from state.messages import event_digest
    >>> event_digests(pa.array([b"s"]), pa.array([b"1"]))[0].tobytes() == event_digest(b"s", b"1")
    True
    """
    out = np.empty((len(ids), DIGEST_BYTES), np.uint8)
    _event_digests(*column(sources), *column(ids), out)
    return out


def delivery_ids(events: Bytes, event_of: Ints, clients: pa.Array, client_of: Ints) -> Bytes:
    """Ids of many deliveries, (n, 32), in hexadecimal letters: `state.messages.delivery_id` of each.

    Delivery i is of the publication with digest `events[event_of[i]]` to `clients[client_of[i]]`.
    """
    out = np.empty((len(event_of), 2 * DIGEST_BYTES), np.uint8)
    _delivery_ids(events, event_of, *column(clients), client_of, out)
    return out


def hexadecimal(digests: Bytes) -> Bytes:
    """Each row in hexadecimal letters, twice as wide."""
    return _HEX[np.stack([digests >> 4, digests & 15], axis=2).reshape(len(digests), 2 * digests.shape[1])]


@njit
def _event_digests(sources: Bytes, source_at: Offsets, ids: Bytes, id_at: Offsets, out: Bytes) -> None:
    scratch, h = np.zeros(_WORDS, np.uint64), np.empty(8, np.uint64)
    digests = out.view(np.uint64)
    for i in range(len(out)):
        a, b = source_at[i + 1] - source_at[i], id_at[i + 1] - id_at[i]
        scratch = _room(scratch, 4 + a + b)
        text = scratch.view(np.uint8)
        for j in range(4):
            text[j] = (a >> (24 - 8 * j)) & 255
        copy(sources, source_at[i], source_at[i + 1], text, 4)
        copy(ids, id_at[i], id_at[i + 1], text, 4 + a)
        _blake2b(scratch, 4 + a + b, h)
        digests[i, 0], digests[i, 1] = h[0], h[1]


@njit
def _delivery_ids(
    events: Bytes, event_of: Ints, clients: Bytes, client_at: Offsets, client_of: Ints, out: Bytes
) -> None:
    scratch, h = np.zeros(_WORDS, np.uint64), np.empty(8, np.uint64)
    four, mask = np.uint64(4), np.uint64(15)
    for i in range(len(out)):
        c = client_of[i]
        n = client_at[c + 1] - client_at[c]
        scratch = _room(scratch, DIGEST_BYTES + n)
        text = scratch.view(np.uint8)
        for j in range(DIGEST_BYTES):
            text[j] = events[event_of[i], j]
        copy(clients, client_at[c], client_at[c + 1], text, DIGEST_BYTES)
        _blake2b(scratch, DIGEST_BYTES + n, h)
        for j in range(8):
            shift = np.uint64(8 * j)
            x, y = h[0] >> shift, h[1] >> shift
            out[i, 2 * j], out[i, 2 * j + 1] = _HEX[(x >> four) & mask], _HEX[x & mask]
            out[i, 16 + 2 * j], out[i, 17 + 2 * j] = _HEX[(y >> four) & mask], _HEX[y & mask]


@njit
def _room(scratch: Words, n: int) -> Words:
    """A buffer of whole blocks for n bytes, all zero."""
    words = max(1, (n + BLOCK_BYTES - 1) // BLOCK_BYTES) * _WORDS
    if words != len(scratch):
        return np.zeros(words, np.uint64)
    scratch[:] = 0
    return scratch


@njit
def _blake2b(message: Words, n: int, h: Words) -> None:
    """Hash n bytes, in whole blocks padded with zeros, into the words `h` (RFC 7693 §3.3)."""
    h[:] = _IV
    h[0] ^= _PARAMETERS
    blocks = len(message) // _WORDS
    for block in range(blocks):
        last = block == blocks - 1
        _compress(h, message, block * _WORDS, n if last else (block + 1) * BLOCK_BYTES, last)


@njit
def _turned(x: np.uint64, by: int) -> np.uint64:
    return (x >> np.uint64(by)) | (x << np.uint64(64 - by))


@njit
def _mix(
    a: np.uint64, b: np.uint64, c: np.uint64, d: np.uint64, x: np.uint64, y: np.uint64
) -> tuple[np.uint64, np.uint64, np.uint64, np.uint64]:
    a = a + b + x
    d = _turned(d ^ a, 32)
    c = c + d
    b = _turned(b ^ c, 24)
    a = a + b + y
    d = _turned(d ^ a, 16)
    c = c + d
    b = _turned(b ^ c, 63)
    return a, b, c, d


@njit
def _compress(h: Words, message: Words, first: int, counted: int, last: bool) -> None:
    base = np.uint64(first)
    v0, v1, v2, v3, v4, v5, v6, v7 = h[0], h[1], h[2], h[3], h[4], h[5], h[6], h[7]
    v8, v9, v10, v11, v12, v13, v14, v15 = _IV[0], _IV[1], _IV[2], _IV[3], _IV[4], _IV[5], _IV[6], _IV[7]
    v12 ^= np.uint64(counted)
    if last:
        v14 = ~v14
    for r in range(_ROUNDS):
        s = _SIGMA[r % 10]
        v0, v4, v8, v12 = _mix(v0, v4, v8, v12, message[base + s[0]], message[base + s[1]])
        v1, v5, v9, v13 = _mix(v1, v5, v9, v13, message[base + s[2]], message[base + s[3]])
        v2, v6, v10, v14 = _mix(v2, v6, v10, v14, message[base + s[4]], message[base + s[5]])
        v3, v7, v11, v15 = _mix(v3, v7, v11, v15, message[base + s[6]], message[base + s[7]])
        v0, v5, v10, v15 = _mix(v0, v5, v10, v15, message[base + s[8]], message[base + s[9]])
        v1, v6, v11, v12 = _mix(v1, v6, v11, v12, message[base + s[10]], message[base + s[11]])
        v2, v7, v8, v13 = _mix(v2, v7, v8, v13, message[base + s[12]], message[base + s[13]])
        v3, v4, v9, v14 = _mix(v3, v4, v9, v14, message[base + s[14]], message[base + s[15]])
    h[0] ^= v0 ^ v8
    h[1] ^= v1 ^ v9
    h[2] ^= v2 ^ v10
    h[3] ^= v3 ^ v11
    h[4] ^= v4 ^ v12
    h[5] ^= v5 ^ v13
    h[6] ^= v6 ^ v14
    h[7] ^= v7 ^ v15
