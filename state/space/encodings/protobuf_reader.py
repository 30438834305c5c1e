"""Protobuf values one at a time, in plain Python: what `hilcast tail` shows and `hilcast verify` goes by.

Reads what `protobuf_scan.py` scans, by other means: it recurses along descriptors and makes dictionaries.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from state.space.encodings.leaves import timestamp_text
from state.space.encodings.protobuf_schema import TIMESTAMP, WRAPPERS, Path, is_repeated, leaf_of

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor

DEPTH_MAX = 100
"""Of messages and groups in each other, as in protobuf's own readers."""

_WIRE = {1: 1, 2: 5, 6: 1, 7: 5, 15: 5, 16: 1, 9: 2, 11: 2, 12: 2, 10: 3}
"""By type of field; 0 for the others."""
_FORM = {1: "<d", 2: "<f", 6: "<Q", 7: "<I", 15: "<i", 16: "<q"}
_MESSAGE, _GROUP, _ENUM = 11, 10, 14

Fields = dict[str, object]


def read_protobuf(
    message: Descriptor, data: bytes, only: Collection[Path] | None = None, *, maps: bool = True
) -> Fields:
    """The message as JSON would have it (`leaves.py`), by field names; with `only`, what lies at or above these paths.

    Without `maps` a map is the array of its entries: an object is then what a path can lead into.
    Raises ValueError if the bytes are no such message, and nothing else. What is skipped is not looked into.
    """
    fields: Fields = {}
    wanted = None if only is None else frozenset(only)
    _merge(message, data, fields, wanted, (), 0)
    return _finished(message, fields, wanted, (), maps)


def at_path(fields: Fields, path: Path) -> object:
    """What lies at a path; None if it is not there."""
    found: object = fields
    for name in path:
        if not isinstance(found, Mapping):
            return None
        found = found.get(name)
    return found


def _merge(
    message: Descriptor, data: bytes, fields: Fields, only: frozenset[Path] | None, at: Path, depth: int
) -> None:
    """Add the fields of a message to those that were read before: raw values, messages as dictionaries."""
    if depth > DEPTH_MAX:
        raise ValueError(f"nested deeper than {DEPTH_MAX}")
    i = 0
    while i < len(data):
        number, wire, i = _tag(data, i)
        field = message.fields_by_number.get(number)
        start = i
        i = _after(data, i, number, wire)
        if field is None:
            continue
        packed = is_repeated(field) and wire == 2 and _WIRE.get(field.type, 0) not in (2, 3)
        if not packed and wire != _WIRE.get(field.type, 0):
            continue
        path = (*at, field.name)
        wanted = only is None or any(one[: len(path)] == path for one in only)
        if not wanted and field.containing_oneof is None:
            continue
        items = _packed(field, data[start:i]) if packed else [_raw(field, data, start, i)]
        for raw in items:
            if field.type == _ENUM and field.enum_type.is_closed and raw not in field.enum_type.values_by_number:
                continue
            _put(field, raw, fields, only if wanted else frozenset(), path, depth)


def _put(
    field: FieldDescriptor, raw: object, fields: Fields, only: frozenset[Path] | None, path: Path, depth: int
) -> None:
    if field.containing_oneof is not None:
        for other in field.containing_oneof.fields:
            if other.number != field.number:
                fields.pop(other.name, None)
    if field.type == _MESSAGE and (only is None or only):
        assert isinstance(raw, bytes)
        repeated = is_repeated(field)
        below: Fields = {} if repeated else fields.get(field.name, {})  # type: ignore[assignment]
        _merge(field.message_type, raw, below, only, path, depth + 1)
        raw = below
    if is_repeated(field):
        fields.setdefault(field.name, []).append(raw)  # type: ignore[attr-defined]
    else:
        fields[field.name] = raw


def _finished(message: Descriptor, fields: Fields, only: frozenset[Path] | None, at: Path, maps: bool) -> Fields:
    """The fields as JSON values, defaults included."""
    made: Fields = {}
    for field in message.fields:
        path = (*at, field.name)
        if only is not None and not any(one[: len(path)] == path for one in only):
            continue
        if is_repeated(field):
            raws: list[object] = fields.get(field.name, [])  # type: ignore[assignment]
            items = [_value(field, raw, only, path, maps) for raw in raws]
            made[field.name] = _as_map(items) if maps and _is_map(field) else items
        elif field.name in fields:
            made[field.name] = _value(field, fields[field.name], only, path, maps)
        elif not field.has_presence:
            made[field.name] = leaf_of(field).value(field.default_value)
    return made


def _value(field: FieldDescriptor, raw: object, only: frozenset[Path] | None, path: Path, maps: bool) -> object:
    if field.type != _MESSAGE:
        leaf = leaf_of(field)
        return leaf.value(raw.decode() if leaf.raw == "text" else raw)  # type: ignore[attr-defined,arg-type]
    below = _finished(field.message_type, raw, only, path, maps)  # type: ignore[arg-type]
    if field.message_type.full_name == TIMESTAMP:
        seconds, nanos = below["seconds"], below["nanos"]
        assert isinstance(seconds, int)
        assert isinstance(nanos, int)
        return timestamp_text(seconds * 1_000_000 + nanos // 1000) if 0 <= nanos < 10**9 else None
    return below["value"] if field.message_type.full_name in WRAPPERS else below


def _is_map(field: FieldDescriptor) -> bool:
    return field.type == _MESSAGE and bool(field.message_type.GetOptions().map_entry)


def _as_map(items: list[object]) -> Fields:
    return {str(one["key"]): one.get("value") for one in items}  # type: ignore[index,attr-defined]


# --- the wire -----------------------------------------------------------------------------------------------


def _tag(data: bytes, i: int) -> tuple[int, int, int]:
    bits, i = _varint(data, i)
    if not 8 <= bits < 2**32:
        raise ValueError(f"no field has the tag {bits}")
    return bits >> 3, bits & 7, i


def _varint(data: bytes, i: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if i >= len(data):
            raise ValueError("the value is cut short")
        value |= (data[i] & 0x7F) << shift
        i += 1
        if data[i - 1] < 0x80:
            if value >= 2**64:
                break
            return value, i
    raise ValueError("a number of more than 64 bits")


def _after(data: bytes, i: int, number: int, wire: int) -> int:
    """Where the field ends whose tag was read."""
    groups: list[int] = []
    while True:
        if wire == 3:
            groups.append(number)
            if len(groups) > DEPTH_MAX:
                raise ValueError(f"groups nested deeper than {DEPTH_MAX}")
        elif wire == 4:
            if not groups or groups.pop() != number:
                raise ValueError("the end of a group that is not open")
        elif wire == 0:
            i = _varint(data, i)[1]
        elif wire == 2:
            size, i = _varint(data, i)
            i += size
        elif wire in (1, 5):
            i += 8 if wire == 1 else 4
        else:
            raise ValueError(f"no wire type {wire}")
        if i > len(data):
            raise ValueError("the value is cut short")
        if not groups:
            return i
        number, wire, i = _tag(data, i)


def _raw(field: FieldDescriptor, data: bytes, start: int, end: int) -> object:
    if field.type in _FORM:
        return struct.unpack(_FORM[field.type], data[start:end])[0]
    if _WIRE.get(field.type, 0) == 2:
        return data[_varint(data, start)[1] : end]
    if field.type == _GROUP:
        return b""
    return _number(field.type, _varint(data, start)[0])


def _number(type: int, bits: int) -> int | bool:
    """A number as its type writes it in a varint."""
    match type:
        case 5 | 14:  # int32, enum
            return (bits + 2**31) % 2**32 - 2**31
        case 3:  # int64
            return bits - 2**64 if bits >= 2**63 else bits
        case 13:  # uint32
            return bits % 2**32
        case 17:  # sint32
            bits %= 2**32
            return bits >> 1 ^ -(bits & 1)
        case 18:  # sint64
            return bits >> 1 ^ -(bits & 1)
        case 8:
            return bits != 0
        case _:
            return bits


def _packed(field: FieldDescriptor, framed: bytes) -> list[object]:
    """The items of a packed field: one after another behind their common size."""
    data, items, i = framed[_varint(framed, 0)[1] :], [], 0
    while i < len(data):
        size = struct.calcsize(_FORM[field.type]) if field.type in _FORM else _varint(data, i)[1] - i
        if i + size > len(data):
            raise ValueError("the value is cut short")
        items.append(_raw(field, data, i, i + size))
        i += size
    return items
