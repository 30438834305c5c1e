"""Events with bytes changed, cut, doubled or moved: mostly JSON no more, sometimes other JSON."""

from __future__ import annotations

import random
from collections.abc import Sequence

ALPHABET = b'{}[]",:\\0123456789.eE+-truefalsn \t\n\x00\x1f\x7f\x80\xbf\xc3\xa9\xed\xa0\xf0\x9f\xff'


def mutated(draw: random.Random, seeds: Sequence[str], count: int, copied: int) -> list[bytes | None]:
    """So many of them, each from one of the seeds; a piece that is doubled has at most `copied` bytes."""
    values: list[bytes | None] = []
    for _ in range(count):
        value = bytearray(draw.choice(seeds).encode())
        for _ in range(draw.randint(1, 3)):
            at, other = draw.randrange(len(value)), draw.randrange(len(value))
            match draw.randrange(5):
                case 0:
                    value[at] = draw.choice(ALPHABET)
                case 1:
                    value.insert(at, draw.choice(ALPHABET))
                case 2:
                    del value[at : at + draw.choice((1, 1, 2, 50))]
                case 3:
                    value[at:at] = value[other : other + draw.randint(1, copied)]
                case _:
                    value[at], value[other] = value[other], value[at]
            value = value or bytearray(b"{")
        values.append(bytes(value))
    return values
