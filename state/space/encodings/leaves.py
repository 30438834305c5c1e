"""Leaves: the single values at the ends of paths, as a schema describes them and as a scan finds them.

Every leaf of a schema stands for one JSON value, and everything that docs/filters.md says of JSON values then holds:

    Avro                                 Protobuf                          JSON value
    boolean                              bool                              true, false
    int, long                            (u|s)int32/64, (s)fixed32/64      a number, exact
    float, double                        float, double                     a number; NaN and infinities: none
    decimal (bytes, fixed)                                                 a number, exact
    string                               string                            text
    enum                                 enum                              text: the symbol
    uuid (string, fixed)                                                   text
    date                                                                   text: 2026-11-17
    timestamp-millis, -micros, -nanos    google.protobuf.Timestamp         text: RFC 3339 in UTC, years 0000 to 9999
    local-timestamp-…                                                      text without an offset
                                         google.protobuf.StringValue, …    what it wraps
    null, bytes, fixed, array, map,      bytes, repeated, map,             none: the attribute is absent
    record, duration                     other messages

A record or message with members `min` and `max` is an interval where the attribute is `imprecise`.
"""

from __future__ import annotations

import math
import struct
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from state.space.event_type import Attribute
from state.space.ranks import Exact, unrank

Raw = Literal["int", "uint", "double", "float", "boolean", "text", "symbol", "bytes"]
"""What a scan writes down: a number of 64 bits, or where bytes begin and how many they are."""

DEPTH_MAX = 128
"""How deep values may lie in each other, as in JSON."""
STEPS_FREE, STEPS_PER_BYTE = 65_536, 16
"""Values that may be read of a body, and for each of its bytes: in Avro some take none."""
MICROS_MIN, MICROS_MAX = -62_167_219_200_000_000, 253_402_300_799_999_999
"""0000-01-01 to 9999-12-31, as far as RFC 3339 can write."""

_AT = Attribute("", "timestamp")


@dataclass(frozen=True)
class Leaf:
    """A kind of single value in a schema."""

    raw: Raw
    logical: str = ""
    """The logical type that decides what it stands for; none: itself."""
    symbols: Mapping[int, str] = field(default_factory=dict)
    """Of an enum: the names by number."""
    scale: int = 0
    """Of a decimal."""

    def value(self, raw: int | float | bool | bytes | str) -> object:
        """The JSON value of what was read; None where there is none.

        >>> Leaf("int", "timestamp-millis").value(1500), Leaf("bytes", "decimal", scale=2).value(b"\\x00\\xff")
        ('1970-01-01T00:00:01.500000Z', 2.55)
        """
        if self.logical:
            return _LOGICAL[self.logical](raw, self)
        if self.raw == "symbol":
            return self.symbols.get(raw)  # type: ignore[arg-type]
        if self.raw == "bytes" or (isinstance(raw, float) and not math.isfinite(raw)):
            return None
        return raw

    def of_bits(self, bits: int, taken: bytes) -> object:
        """The JSON value of what a scan wrote down: 64 bits, or the bytes that it points at."""
        match self.raw:
            case "uint":
                return self.value(bits % 2**64)
            case "double":
                return self.value(struct.unpack("<d", struct.pack("<q", bits))[0])
            case "float":
                return self.value(struct.unpack("<f", struct.pack("<q", bits)[:4])[0])
            case "boolean":
                return self.value(bits != 0)
            case "text":
                return self.value(taken.decode())
            case "bytes":
                return self.value(taken)
            case _:
                return self.value(bits)

    def kinds(self) -> tuple[str, ...]:
        """The kinds of attributes that some of its values can have."""
        if self.logical:
            return _LOGICAL_KINDS[self.logical]
        return _RAW_KINDS[self.raw]


def timestamp_text(micros: int) -> str | None:
    """RFC 3339 of microseconds since 1970; None beyond what it can write."""
    written = unrank(_AT, micros) if MICROS_MIN <= micros <= MICROS_MAX else None
    return None if written is None else str(written)


def _timestamp(per_second: int) -> Callable[[object, Leaf], object]:
    def read(raw: object, _: Leaf) -> object:
        assert isinstance(raw, int)
        return timestamp_text(raw * 1_000_000 // per_second)

    return read


def _local_timestamp(per_second: int) -> Callable[[object, Leaf], object]:
    def read(raw: object, leaf: Leaf) -> object:
        written = _timestamp(per_second)(raw, leaf)
        return None if written is None else str(written).removesuffix("Z")

    return read


def _date(raw: object, _: Leaf) -> object:
    assert isinstance(raw, int)
    written = timestamp_text(raw * 86_400_000_000)
    return None if written is None else written[:10]


def _decimal(raw: object, leaf: Leaf) -> object:
    """Integers stay integers, as `3.0` is for an int attribute; others are the nearest double."""
    assert isinstance(raw, bytes)
    unscaled, unit = int.from_bytes(raw, "big", signed=True), 10**leaf.scale
    if unscaled % unit == 0:
        return unscaled // unit
    try:
        nearest = unscaled / unit
    except OverflowError:
        return None
    # a double may look whole where the decimal is not
    return Exact(nearest, None) if nearest.is_integer() else nearest


def _uuid(raw: object, _: Leaf) -> object:
    assert isinstance(raw, bytes)
    return str(uuid.UUID(bytes=raw))


_LOGICAL: dict[str, Callable[[object, Leaf], object]] = {
    "timestamp-millis": _timestamp(1000),
    "timestamp-micros": _timestamp(1_000_000),
    "timestamp-nanos": _timestamp(1_000_000_000),
    "local-timestamp-millis": _local_timestamp(1000),
    "local-timestamp-micros": _local_timestamp(1_000_000),
    "local-timestamp-nanos": _local_timestamp(1_000_000_000),
    "date": _date,
    "decimal": _decimal,
    "uuid": _uuid,
}
_LOGICAL_KINDS: dict[str, tuple[str, ...]] = {
    "timestamp-millis": ("timestamp", "text", "category"),
    "timestamp-micros": ("timestamp", "text", "category"),
    "timestamp-nanos": ("timestamp", "text", "category"),
    "local-timestamp-millis": ("text", "category"),
    "local-timestamp-micros": ("text", "category"),
    "local-timestamp-nanos": ("text", "category"),
    "date": ("text", "category"),
    "decimal": ("float", "int"),
    "uuid": ("text", "category"),
}
_RAW_KINDS: dict[str, tuple[str, ...]] = {
    "int": ("int", "float"),
    "uint": ("int", "float"),
    "double": ("float", "int"),
    "float": ("float", "int"),
    "boolean": ("boolean",),
    "text": ("text", "category", "timestamp"),
    "symbol": ("category", "text"),
    "bytes": (),
}


@dataclass(frozen=True, slots=True)
class Slot:
    """Where a scan puts an attribute: positions in its columns, -1 for none."""

    point: int = -1
    nanos: int = -1
    """Of a Protobuf Timestamp, whose seconds are at `point`."""
    low: Slot | None = None
    high: Slot | None = None
    """Of a record that may stand for an interval."""


def can_match(attribute: Attribute, leaves: list[Leaf]) -> bool:
    """Tell whether one of these leaves can ever be a value of the attribute."""
    return any(attribute.kind in leaf.kinds() for leaf in leaves)
