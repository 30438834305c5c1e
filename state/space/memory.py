"""Primitives for compiled code: the byte at an address, some bytes to another address, an address as a pointer.

A scanner that hands an array from function to function pays for it at every call: numba counts references,
atomically, unless it can prove that it need not. Taking the address once and passing integers made the JSON
scanner some six times as fast. The price is that nothing checks an address: the scanners' own `i < end` does,
and the caller vouches that all from start to end is his (`decode.py` asserts it).

A pointer is what `numba.carray` makes an array of. To hand over one array of addresses costs a fifth of handing over
what lies there array by array (`state/matchers/segment.py`).

Bytes that are moved by a number that is known when it is compiled take one load and one store: a copy of some tens of
bytes is a few of them (`state/columns.py`), where a loop over bytes spends most of its time on the last few.
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


def _moved(size: int, builder: Any, addresses: Any) -> None:
    kind = ir.VectorType(ir.IntType(8), size).as_pointer()
    source, target = (builder.inttoptr(address, kind) for address in addresses)
    builder.store(builder.load(source, align=1), target, align=1)


@intrinsic
def move_16(context: Any, source: Any, target: Any) -> Any:
    """Copy 16 bytes from one address to another. Only in compiled code."""

    def move(lowering: Any, builder: Any, _: Any, arguments: Any) -> Any:
        _moved(16, builder, arguments)
        return lowering.get_dummy_value()

    return types.void(types.int64, types.int64), move


@intrinsic
def move_8(context: Any, source: Any, target: Any) -> Any:
    """Copy 8 bytes from one address to another. Only in compiled code."""

    def move(lowering: Any, builder: Any, _: Any, arguments: Any) -> Any:
        _moved(8, builder, arguments)
        return lowering.get_dummy_value()

    return types.void(types.int64, types.int64), move


@intrinsic
def move_4(context: Any, source: Any, target: Any) -> Any:
    """Copy 4 bytes from one address to another. Only in compiled code."""

    def move(lowering: Any, builder: Any, _: Any, arguments: Any) -> Any:
        _moved(4, builder, arguments)
        return lowering.get_dummy_value()

    return types.void(types.int64, types.int64), move


@intrinsic
def move_1(context: Any, source: Any, target: Any) -> Any:
    """Copy a byte from one address to another. Only in compiled code."""

    def move(lowering: Any, builder: Any, _: Any, arguments: Any) -> Any:
        _moved(1, builder, arguments)
        return lowering.get_dummy_value()

    return types.void(types.int64, types.int64), move


@intrinsic
def pointer_at(context: Any, address: Any) -> Any:
    """An address as a pointer. Only in compiled code."""

    def point(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], ir.IntType(8).as_pointer())

    return types.voidptr(types.int64), point


@intrinsic
def prefetch(context: Any, address: Any) -> Any:
    """Ask for the memory around an address, and do not wait for it; it may be any. Only in compiled code."""

    def ask(lowering: Any, builder: Any, _: Any, arguments: Any) -> Any:
        number, pointer = ir.IntType(32), ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
        # to be read, to stay in all caches, as data
        how = [ir.Constant(number, one) for one in (0, 3, 1)]
        asked = builder.module.declare_intrinsic("llvm.prefetch", [pointer], kind)
        builder.call(asked, [builder.inttoptr(arguments[0], pointer), *how])
        return lowering.get_dummy_value()

    return types.void(types.int64), ask
