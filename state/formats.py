"""The first byte of everything that is packed: its format number, written and judged in one place.

    format (1 byte) | msgpack, or columns of the writer's own

What was written by another version, cut short or damaged is never guessed at: it raises `state-format`, the one code
for bytes that this version cannot read, and the caller decides what stands in for them.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from state.errors import HilcastError

T = TypeVar("T")
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What msgspec raises for bytes that are not what they should be; text that is no UTF-8 is none of its own errors."""


def unreadable(what: str, reason: str) -> HilcastError:
    """The error of bytes that this version cannot read."""
    return HilcastError("state-format", f"{what}: {reason}")


def opened(what: str, format: int, blob: bytes) -> bytes:
    """What follows the format number.

    >>> opened("a table", 1, b"\\x01rest")
    b'rest'
    >>> opened("a table", 2, b"\\x01rest")
    Traceback (most recent call last):
    state.errors.HilcastError: state-format: a table: of format 1, this reads 2
    """
    if not blob or blob[0] != format:
        raise unreadable(what, f"of format {blob[0] if blob else 'none'}, this reads {format}")
    return blob[1:]


def write(format: int, value: object) -> bytes:
    """A value as msgpack behind its format number."""
    return bytes([format]) + msgspec.msgpack.encode(value)


def read(what: str, format: int, blob: bytes, type: type[T]) -> T:
    """The value that `write` wrote."""
    try:
        return msgspec.msgpack.decode(opened(what, format, blob), type=type)
    except UNREADABLE as error:
        raise unreadable(what, str(error)) from error
