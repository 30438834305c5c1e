"""A JSON object in the format of its type: what publishers of ours send.

The other way round from `leaves.py`: times are RFC 3339 text, symbols their names, decimals numbers. Of a union the
first branch that takes the value is written; of a record every field must be there, or may be null.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Mapping
from decimal import Decimal

from state.errors import HilcastError
from state.space.encodings.avro_schema import (
    ARRAY,
    BOOLEAN,
    DOUBLE,
    ENUM,
    FIXED,
    FLOAT,
    LONG,
    MAP,
    NULL,
    RECORD,
    STRING,
    UNION,
    Type,
)
from state.space.encodings.schemas import Schema
from state.space.ranks import timestamp_micros


def write_document(schema: Schema, document: Mapping[str, object]) -> bytes:
    """The document as the schema writes it. Raises `bad-event` if it is not of it."""
    try:
        if schema.kind == "avro":
            return write_avro(schema.avro(), document)
        return _write_protobuf(schema, document)
    except (ValueError, TypeError, OverflowError, RecursionError, struct.error) as error:
        raise HilcastError("bad-event", f"the event is not of its {schema.kind} schema: {error}") from error


def _write_protobuf(schema: Schema, document: Mapping[str, object]) -> bytes:
    from google.protobuf import json_format, message_factory

    message = message_factory.GetMessageClass(schema.protobuf())()
    try:
        json_format.ParseDict(dict(document), message)
    except json_format.ParseError as error:
        raise ValueError(str(error)) from error
    return bytes(message.SerializeToString(deterministic=True))


def write_avro(type: Type, value: object) -> bytes:
    """A value of a type. Raises ValueError if it is none.

    >>> from state.space.encodings.avro_schema import parse
    >>> write_avro(parse('["null", "string"]'), "hi").hex()
    '02046869'
    """
    if type.code == UNION:
        return _write_union(type, value)
    if type.code == RECORD:
        given = _mapping(value, type.name)
        return b"".join(_write_field(name, of, given.get(name)) for name, of in type.fields)
    if type.code == ARRAY:
        if not isinstance(value, list):
            raise ValueError(f"{value!r} is no list")
        items = b"".join(write_avro(type.below[0], item) for item in value)
        return (_long(len(value)) + items if value else b"") + b"\0"
    if type.code == MAP:
        named = _mapping(value, "map")
        items = b"".join(_sized(name.encode()) + write_avro(type.below[0], item) for name, item in named.items())
        return (_long(len(named)) + items if named else b"") + b"\0"
    return _write_scalar(type, value)


def _write_field(name: str, of: Type, value: object) -> bytes:
    try:
        return write_avro(of, value)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


def _write_union(type: Type, value: object) -> bytes:
    for branch, of in enumerate(type.below):
        try:
            return _long(branch) + write_avro(of, value)
        except (ValueError, struct.error, OverflowError):
            continue
    raise ValueError(f"{value!r} is of no branch of the union")


def _mapping(value: object, name: str) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{value!r} is no object ({name})")
    return value


def _write_scalar(type: Type, value: object) -> bytes:
    if type.logical:
        value = _plain(type, value)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if type.code == NULL and value is None:
        return b""
    if type.code == BOOLEAN and isinstance(value, bool):
        return bytes([value])
    if type.code == LONG and is_number and value == int(value) and -(2**63) <= value < 2**63:  # type: ignore[operator,call-overload]
        return _long(int(value))  # type: ignore[call-overload]
    if type.code in (FLOAT, DOUBLE) and is_number:
        return struct.pack("<f" if type.code == FLOAT else "<d", value)
    if type.code == STRING and isinstance(value, str):
        return _sized(value.encode())
    if type.code == ENUM and value in type.symbols:
        return _long(type.symbols.index(value))  # type: ignore[arg-type]
    if isinstance(value, bytes) and type.code != STRING:
        if type.code != FIXED:
            return _sized(value)
        if len(value) == type.size:
            return value
    raise ValueError(f"{value!r} is not of its type")


def _plain(type: Type, value: object) -> object:
    """What a logical type writes for a JSON value."""
    if type.logical == "decimal" and isinstance(value, int | float) and not isinstance(value, bool):
        unscaled = int((Decimal(str(value)) * 10**type.scale).to_integral_value())
        size = type.size if type.code == FIXED else unscaled.bit_length() // 8 + 1
        return unscaled.to_bytes(size, "big", signed=True)
    if not isinstance(value, str):
        return value
    if type.logical == "uuid":
        return uuid.UUID(value).bytes
    text = f"{value}T00:00:00" if type.logical == "date" else value
    micros = timestamp_micros(text if "timestamp" in type.logical and "local" not in type.logical else f"{text}Z")
    if micros is None:
        raise ValueError(f"{value!r} is no {type.logical}")
    if type.logical == "date":
        return micros // 86_400_000_000
    per_second = {"millis": 1000, "micros": 10**6, "nanos": 10**9}[type.logical.rpartition("-")[2]]
    return micros * per_second // 1_000_000


def _long(value: int) -> bytes:
    bits, out = (value << 1 ^ value >> 63) % 2**64, bytearray()
    while bits >= 0x80:
        out.append(bits & 0x7F | 0x80)
        bits >>= 7
    return bytes([*out, bits])


def _sized(data: bytes) -> bytes:
    return _long(len(data)) + data
