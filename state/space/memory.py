"""Two primitives for compiled code: the byte at an address, and an address as a pointer.

A scanner that hands an array from function to function pays for it at every call: numba counts references,
atomically, unless it can prove that it need not. Taking the address once and passing integers made the JSON
scanner some six times as fast. The price is that nothing checks an address: the scanners' own `i < end` does,
and the caller vouches that all from start to end is his (`decode.py` asserts it).

A pointer is what `numba.carray` makes an array of. To hand over one array of addresses costs a fifth of handing over
what lies there array by array (`state/matchers/segment.py`).
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic


@intrinsic
def byte_at(context: Any, address: Any) -> Any:
    """The byte at an address, as int64. Only in compiled code."""

    def load(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], ir.IntType(8).as_pointer())
        return builder.zext(builder.load(pointer), ir.IntType(64))

    return types.int64(types.int64), load


@intrinsic
def pointer_at(context: Any, address: Any) -> Any:
    """An address as a pointer. Only in compiled code."""

    def point(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], ir.IntType(8).as_pointer())

    return types.voidptr(types.int64), point
