"""Confluent's wire format: which schema a record was written with stands before its value.

Avro      00 | id, 4 bytes | value
Protobuf  00 | id, 4 bytes | n, then n indexes of messages (zigzag; a single 00 means [0]) | value
"""

from __future__ import annotations

MAGIC = 0
HEAD_BYTES = 5
INDEXES_MAX = 64
"""Messages in each other that a list of indexes may name."""


def framed(schema_id: int, value: bytes, indexes: tuple[int, ...] | None = None) -> bytes:
    """A value with the id of its schema before it; `indexes` for Protobuf.

    >>> framed(258, b"x").hex(), framed(1, b"x", (0,)).hex(), framed(1, b"x", (2, 0)).hex()
    ('000000010278', '00000000010078', '000000000104040078')
    """
    head = bytes([MAGIC]) + schema_id.to_bytes(4, "big")
    if indexes is None:
        return head + value
    numbers = (0,) if indexes == (0,) else tuple(2 * number for number in (len(indexes), *indexes))
    return head + b"".join(map(_varint, numbers)) + value


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def read_id(data: bytes) -> int:
    """The id of the schema. Raises ValueError if it is not in the wire format."""
    if len(data) < HEAD_BYTES or data[0] != MAGIC:
        raise ValueError("the value does not begin with a zero byte and the id of a schema (Confluent's wire format)")
    return int.from_bytes(data[1:HEAD_BYTES], "big")


def read_indexes(data: bytes, at: int = HEAD_BYTES) -> tuple[tuple[int, ...], int]:
    """The indexes of a Protobuf message, and where its value begins. Raises ValueError.

    >>> read_indexes(framed(1, b"x", (2, 0)))
    ((2, 0), 8)
    """
    count, at = _number(data, at)
    if count == 0:
        return (0,), at
    if not 0 < count <= INDEXES_MAX:
        raise ValueError(f"a list of {count} message indexes")
    indexes = []
    for _ in range(count):
        index, at = _number(data, at)
        indexes.append(index)
    return tuple(indexes), at


def _number(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 35, 7):
        if at >= len(data):
            break
        value |= (data[at] & 0x7F) << shift
        at += 1
        if data[at - 1] < 0x80:
            return value >> 1 ^ -(value & 1), at
    raise ValueError("a list of message indexes that is cut short")
