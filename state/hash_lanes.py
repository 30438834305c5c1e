"""BLAKE2b of several short messages at once: one in each lane of the processor's wide registers.

    block 0   word 0 word 1 ...          lane 0   lane 1   lane 2   lane 3
    block 1   word 0 word 1 ...    v0      ·        ·        ·        ·        each step of the hash is done
    ...                            v1      ·        ·        ·        ·        for all lanes together

A hash is one chain of steps that wait for each other, so that alone it leaves most of a core idle: by scalars a block
takes some 190 ns, by lanes less than half. Written as vectors of LLVM, which every processor has or is given.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic

from state.arrays import Ints, Words
from state.kernels import njit

LANES = 4
DIGEST_BYTES = 16
BLOCK_BYTES = 128
IV = (
    0x6A09E667F3BCC908, 0xBB67AE8584CAA73B, 0x3C6EF372FE94F82B, 0xA54FF53A5F1D36F1,
    0x510E527FADE682D1, 0x9B05688C2B3E6C1F, 0x1F83D9ABFB41BD6B, 0x5BE0CD19137E2179,
)  # fmt: skip
SIGMA = (
    (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
    (14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3),
    (11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4),
    (7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8),
    (9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13),
    (2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9),
    (12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11),
    (13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10),
    (6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5),
    (10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0),
)
PARAMETERS = 0x01010000 ^ DIGEST_BYTES
_WORDS = BLOCK_BYTES // 8
ROUNDS = 12
_COLUMNS_AND_DIAGONALS = (
    (0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15),
    (0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14),
)  # fmt: skip
_WORD = ir.IntType(64)
_VECTOR = ir.VectorType(_WORD, LANES)
_WIDTH = 8 * LANES
_FIRST = np.array([IV[0] ^ PARAMETERS, *IV[1:], *IV], np.uint64)
_ORDERS = _WIDTH * np.array(SIGMA)
"""By round: how far into the message the words are that it takes."""


@njit
def hash_lanes(blocks: Words, sizes: Ints, digests: Words) -> None:
    """Hash one message a lane: `sizes[lane]` bytes of its block, the rest of which is zero, to two words of `digests`.

    Of a lane with more bytes than a block what comes out means nothing.
    """
    assert len(blocks) == LANES * _WORDS
    assert len(sizes) == LANES
    assert len(digests) == 2 * LANES
    v, message = np.empty(LANES * 16, np.uint64), np.empty(LANES * _WORDS, np.uint64)
    for i in range(16):
        for lane in range(LANES):
            v[LANES * i + lane], message[LANES * i + lane] = _FIRST[i], blocks[_WORDS * lane + i]
    for lane in range(LANES):
        v[LANES * 12 + lane] ^= np.uint64(sizes[lane])
        v[LANES * 14 + lane] = ~v[LANES * 14 + lane]
    for turn in range(ROUNDS):
        _round(v.ctypes.data, message.ctypes.data, _ORDERS[turn % 10].ctypes.data)
    for lane in range(LANES):
        digests[2 * lane] = _FIRST[0] ^ v[lane] ^ v[8 * LANES + lane]
        digests[2 * lane + 1] = _FIRST[1] ^ v[LANES + lane] ^ v[9 * LANES + lane]


@intrinsic
def _round(context: Any, state: Any, message: Any, order: Any) -> Any:
    """One round of RFC 7693 §3.2: 16 vectors of the state, those of the message, the order that it takes these in."""

    def write(lowering: Any, builder: Any, __: Any, arguments: Any) -> Any:
        places = [_vector_at(builder, arguments[0], ir.Constant(_WORD, _WIDTH * i)) for i in range(16)]
        v = [builder.load(place, align=8) for place in places]
        for k, (a, b, c, d) in enumerate(_COLUMNS_AND_DIAGONALS):
            for step, (by_d, by_b) in enumerate(((32, 24), (16, 63))):
                at = builder.load(_place(builder, arguments[2], ir.Constant(_WORD, 8 * (2 * k + step)), _WORD))
                word = builder.load(_vector_at(builder, arguments[1], at), align=8)
                v[a] = builder.add(builder.add(v[a], v[b]), word)
                v[d] = _turned(builder, builder.xor(v[d], v[a]), by_d)
                v[c] = builder.add(v[c], v[d])
                v[b] = _turned(builder, builder.xor(v[b], v[c]), by_b)
        for place, word in zip(places, v, strict=True):
            builder.store(word, place, align=8)
        return lowering.get_dummy_value()

    return types.void(types.intp, types.intp, types.intp), write


def _place(builder: Any, address: Any, offset: Any, kind: Any) -> Any:
    return builder.inttoptr(builder.add(address, offset), kind.as_pointer())


def _vector_at(builder: Any, address: Any, offset: Any) -> Any:
    return _place(builder, address, offset, _VECTOR)


def _all(word: int) -> Any:
    return ir.Constant(_VECTOR, [word] * LANES)


def _turned(builder: Any, word: Any, by: int) -> Any:
    return builder.or_(builder.lshr(word, _all(by)), builder.shl(word, _all(64 - by)))
