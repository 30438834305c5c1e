"""BLAKE2b over columns: the ids of a whole batch of deliveries without a Python object for each.

`state.messages.event_digest` and `delivery_id` say what the ids are; these are the same ids, by the thousand. The
hash is RFC 7693 with a digest of 16 bytes and no key. What fits a block, nearly all does, is hashed several at a time
(`state/hash_lanes.py`); what is longer, one by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from state.arrays import Bytes, Ints, Offsets, Words
from state.columns import column, copy, copy_at
from state.hash_lanes import BLOCK_BYTES, DIGEST_BYTES, IV, LANES, PARAMETERS, ROUNDS, SIGMA, hash_lanes
from state.kernels import njit

if TYPE_CHECKING:
    import pyarrow as pa

_WORDS = BLOCK_BYTES // 8
_IV = np.array(IV, np.uint64)
_SIGMA = np.array(SIGMA, np.uint64)  # unsigned: a signed index is checked for being negative
_PARAMETERS = np.uint64(PARAMETERS)
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
    words = np.ascontiguousarray(events).view(np.uint64)
    _delivery_ids(words, event_of, *column(clients), client_of, out.view(np.uint64))
    return out


def entry_digests(ids: pa.Array, beside: Bytes, ends: Ints, lows: Bytes, highs: Bytes) -> Words:
    """Digests of some entries, (n, 2): of each its id, its row of `beside`, and the bytes of its boxes.

    Entry i has the bytes `ends[i]` to `ends[i + 1]` of either corner.
    """
    out = np.empty((len(ids), 2), np.uint64)
    _entry_digests(*column(ids), beside, ends, lows, highs, out)
    return out


def hexadecimal(digests: Bytes) -> Bytes:
    """Each row in hexadecimal letters, twice as wide."""
    return _HEX[np.stack([digests >> 4, digests & 15], axis=2).reshape(len(digests), 2 * digests.shape[1])]


@njit
def _event_digests(sources: Bytes, source_at: Offsets, ids: Bytes, id_at: Offsets, out: Bytes) -> None:
    blocks, sizes, found = (
        np.zeros(LANES * _WORDS, np.uint64),
        np.zeros(LANES, np.int64),
        np.zeros(2 * LANES, np.uint64),
    )
    text, digests, n = blocks.view(np.uint8), out.view(np.uint64), len(out)
    for first in range(0, n, LANES):
        many = min(LANES, n - first)
        blocks[:] = 0
        for lane in range(many):
            i = first + lane
            a, b = source_at[i + 1] - source_at[i], id_at[i + 1] - id_at[i]
            sizes[lane] = 4 + a + b
            if sizes[lane] <= BLOCK_BYTES:
                _put_event(sources, source_at, ids, id_at, i, text, lane * BLOCK_BYTES)
        hash_lanes(blocks, sizes, found)
        for lane in range(many):
            i = first + lane
            digests[i, 0], digests[i, 1] = found[2 * lane], found[2 * lane + 1]
            if sizes[lane] > BLOCK_BYTES:
                scratch, h = _room(sizes[lane]), np.empty(8, np.uint64)
                _put_event(sources, source_at, ids, id_at, i, scratch.view(np.uint8), 0)
                _blake2b(scratch, sizes[lane], h)
                digests[i, 0], digests[i, 1] = h[0], h[1]


@njit
def _entry_digests(
    ids: Bytes, id_at: Offsets, beside: Bytes, ends: Ints, lows: Bytes, highs: Bytes, out: Words
) -> None:
    scratch, h, told = _room(0), np.empty(8, np.uint64), beside.shape[1]
    from_ids, from_beside, from_lows, from_highs = (
        ids.ctypes.data, beside.ctypes.data, lows.ctypes.data, highs.ctypes.data,
    )  # fmt: skip
    for i in range(len(out)):
        name, boxes = int(id_at[i + 1] - id_at[i]), ends[i + 1] - ends[i]
        size = 8 + name + told + 2 * boxes
        words = (size + BLOCK_BYTES - 1) // BLOCK_BYTES * _WORDS
        if words > len(scratch):
            scratch = _room(2 * size)
        scratch[:words] = 0
        scratch[0] = name
        to = scratch.ctypes.data + 8
        copy_at(from_ids + id_at[i], to, name)
        copy_at(from_beside + i * told, to + name, told)
        copy_at(from_lows + ends[i], to + name + told, boxes)
        copy_at(from_highs + ends[i], to + name + told + boxes, boxes)
        _blake2b(scratch[:words], size, h)
        out[i, 0], out[i, 1] = h[0], h[1]


@njit
def _put_event(sources: Bytes, source_at: Offsets, ids: Bytes, id_at: Offsets, i: int, text: Bytes, to: int) -> None:
    """Write what is hashed of event i: the length of its source in four bytes, its source, its id."""
    a = source_at[i + 1] - source_at[i]
    for j in range(4):
        text[to + j] = (a >> (24 - 8 * j)) & 255
    copy(sources, source_at[i], source_at[i + 1], text, to + 4)
    copy(ids, id_at[i], id_at[i + 1], text, to + 4 + a)


@njit
def _delivery_ids(
    events: Words, event_of: Ints, clients: Bytes, client_at: Offsets, client_of: Ints, out: Words
) -> None:
    blocks, sizes, found = (
        np.zeros(LANES * _WORDS, np.uint64),
        np.zeros(LANES, np.int64),
        np.zeros(2 * LANES, np.uint64),
    )
    text, n = blocks.view(np.uint8), len(out)
    for first in range(0, n, LANES):
        many = min(LANES, n - first)
        blocks[:] = 0
        for lane in range(many):
            e, c = event_of[first + lane], client_of[first + lane]
            sizes[lane] = DIGEST_BYTES + client_at[c + 1] - client_at[c]
            if sizes[lane] <= BLOCK_BYTES:
                blocks[lane * _WORDS], blocks[lane * _WORDS + 1] = events[e, 0], events[e, 1]
                copy(clients, client_at[c], client_at[c + 1], text, lane * BLOCK_BYTES + DIGEST_BYTES)
        hash_lanes(blocks, sizes, found)
        for lane in range(many):
            i = first + lane
            x, y = found[2 * lane], found[2 * lane + 1]
            if sizes[lane] > BLOCK_BYTES:
                e, c = event_of[i], client_of[i]
                scratch, h = _room(sizes[lane]), np.empty(8, np.uint64)
                scratch[0], scratch[1] = events[e, 0], events[e, 1]
                copy(clients, client_at[c], client_at[c + 1], scratch.view(np.uint8), DIGEST_BYTES)
                _blake2b(scratch, sizes[lane], h)
                x, y = h[0], h[1]
            out[i, 0], out[i, 1] = _letters(x), _letters(x >> np.uint64(32))
            out[i, 2], out[i, 3] = _letters(y), _letters(y >> np.uint64(32))


@njit
def _letters(x: np.uint64) -> np.uint64:
    """The lower four bytes of a word in hexadecimal letters: each byte becomes two, the higher digit first."""
    x &= np.uint64(0xFFFFFFFF)
    x = (x | x << np.uint64(16)) & np.uint64(0x0000FFFF0000FFFF)
    x = (x | x << np.uint64(8)) & np.uint64(0x00FF00FF00FF00FF)
    digits = (x >> np.uint64(4)) & np.uint64(0x000F000F000F000F) | (x & np.uint64(0x000F000F000F000F)) << np.uint64(8)
    above_nine = (digits + np.uint64(0x0606060606060606)) >> np.uint64(4) & np.uint64(0x0101010101010101)
    return digits + np.uint64(0x3030303030303030) + above_nine * np.uint64(39)  # "a" is 39 beyond "9" + 1


@njit
def _room(n: int) -> Words:
    """Whole blocks for n bytes, all zero."""
    return np.zeros((n + BLOCK_BYTES - 1) // BLOCK_BYTES * _WORDS, np.uint64)


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
    for r in range(ROUNDS):
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
