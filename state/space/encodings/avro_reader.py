"""Avro values one at a time, in plain Python: what `hilcast tail` shows and `hilcast verify` goes by.

Reads what `avro_scan.py` scans, by other means: it recurses where the scan has a stack, and makes objects. The limits
are the same. Public decoders have none: a body of a type that contains itself takes them as deep as it likes.
"""

from __future__ import annotations

import struct
from collections.abc import Collection

from state.space.encodings.avro_schema import (
    ARRAY,
    BOOLEAN,
    BYTES,
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
from state.space.encodings.leaves import DEPTH_MAX, STEPS_FREE, STEPS_PER_BYTE

Path = tuple[str, ...]


def read_avro(type: Type, data: bytes, only: Collection[Path] | None = None, *, maps: bool = True) -> object:
    """The value as JSON would have it (`leaves.py`); where `only` is given, of texts those at its paths, and no arrays.

    Without `maps` a map is the array of its values: an object is then what a path can lead into.
    Raises ValueError if the bytes are not a value of the type, and nothing else. What is skipped is not looked into.

    >>> from state.space.encodings.avro_schema import parse
    >>> read_avro(parse('{"type": "array", "items": "string"}'), bytes([2, 4, 104, 105, 0]))
    ['hi']
    """
    reading = _Reading(data, only, maps)
    value = reading.value(type, (), 0)
    if reading.at != len(data):
        raise ValueError(f"{len(data) - reading.at} bytes are left over")
    return value


class _Reading:
    def __init__(self, data: bytes, only: Collection[Path] | None, maps: bool) -> None:
        self.at = 0
        self._data, self._maps = data, maps
        self._only = None if only is None else frozenset(only)
        self._steps = STEPS_FREE + STEPS_PER_BYTE * len(data)

    def value(self, type: Type, path: Path | None, depth: int) -> object:
        """Read one value; `path` is None inside arrays and maps."""
        self._steps -= 1
        if self._steps < 0:
            raise ValueError("too many items that take no bytes")
        if type.code == UNION:
            branch = self._long()
            if not 0 <= branch < len(type.below):
                raise ValueError(f"branch {branch} of a union of {len(type.below)}")
            return self.value(type.below[branch], path, depth)
        if type.code in (RECORD, ARRAY, MAP):
            if depth == DEPTH_MAX:
                raise ValueError(f"nested deeper than {DEPTH_MAX}")
            return self._nested(type, path, depth + 1)
        return self._scalar(type, path)

    def _nested(self, type: Type, path: Path | None, depth: int) -> object:
        if type.code == RECORD:
            return {name: self.value(of, None if path is None else (*path, name), depth) for name, of in type.fields}
        items: list[object] = []
        named: dict[str, object] = {}
        while (count := self._long()) != 0:
            if count < 0:
                self._long()
            for _ in range(abs(count)):
                if type.code == MAP:
                    key = self._take(self._long())
                    named[key.decode("utf-8", "replace")] = self.value(type.below[0], None, depth)
                else:
                    items.append(self.value(type.below[0], None, depth))
        if self._only is not None:
            return None  # no path leads into them
        if type.code == MAP:
            return named if self._maps else list(named.values())
        return items

    def _scalar(self, type: Type, path: Path | None) -> object:
        leaf = type.leaf()
        if type.code == NULL or leaf is None:
            return None
        if type.code == LONG:
            return leaf.value(self._long())
        if type.code == ENUM:
            number = self._long()
            if not 0 <= number < len(type.symbols):
                raise ValueError(f"symbol {number} of an enum of {len(type.symbols)}")
            return leaf.value(number)
        if type.code == BOOLEAN:
            return leaf.value(self._take(1) != b"\0")
        if type.code in (FLOAT, DOUBLE):
            form = "<f" if type.code == FLOAT else "<d"
            return leaf.value(struct.unpack(form, self._take(struct.calcsize(form)))[0])
        data = self._take(type.size if type.code == FIXED else self._long())
        if self._only is not None and path not in self._only:
            return None
        if type.code == STRING:
            return leaf.value(data.decode())  # a UnicodeDecodeError is a ValueError
        assert type.code in (BYTES, FIXED)
        return leaf.value(data)

    def _long(self) -> int:
        value = 0
        for shift in range(0, 70, 7):
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value >= 2**64:
                    break
                return value >> 1 ^ -(value & 1)
        raise ValueError("a number of more than 64 bits")

    def _take(self, size: int) -> bytes:
        if not 0 <= size <= len(self._data) - self.at:
            raise ValueError("the value is cut short")
        self.at += size
        return self._data[self.at - size : self.at]
