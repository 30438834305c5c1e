"""Protobuf schemas: descriptor sets, searched by path, and compiled for `protobuf_scan.py`.

    shop.desc  ──messages_of──>  Descriptor of shop.Order  ──program──>  arrays of numbers

A path descends through singular messages; field names are those of the .proto file. What is not on the way to an
attribute is skipped by its length, and not looked into.

    present     a field that was written; a field without presence (proto3, not `optional`) whose message is there has
                its default (0, "", false, the enum's first), as the producer's own readers see it
    absent      a message, an `optional` or a proto2 field that was not written; a member of a oneof that is not the one

Left out: paths into repeated fields, maps and groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from state.space.encodings.leaves import Leaf, Slot
from state.space.event_type import Attribute

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor

TIMESTAMP = "google.protobuf.Timestamp"
WRAPPERS = tuple(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
DESCRIPTORS_BYTES_MAX = 10_000_000

(INT32, INT64, UINT32, UINT64, SINT32, SINT64, BOOL, ENUM, FIXED32, SFIXED32, FLOAT, FIXED64, SFIXED64, DOUBLE, STRING,
 BYTES, MESSAGE, OTHER) = range(18)  # fmt: skip
"""How a field is written, as the scan knows it; OTHER: only that it is there counts, for its oneof."""

VARINT, WORD, SIZED, GROUP, GROUP_END, HALF_WORD = range(6)
"""Wire types."""

# by the numbers of FieldDescriptorProto.Type: code, wire type, what the scan writes down
_TYPES = {
    1: (DOUBLE, WORD, "double"), 2: (FLOAT, HALF_WORD, "float"), 3: (INT64, VARINT, "int"), 4: (UINT64, VARINT, "uint"),
    5: (INT32, VARINT, "int"), 6: (FIXED64, WORD, "uint"), 7: (FIXED32, HALF_WORD, "int"), 8: (BOOL, VARINT, "boolean"),
    9: (STRING, SIZED, "text"), 10: (OTHER, GROUP, ""), 11: (MESSAGE, SIZED, ""), 12: (BYTES, SIZED, "bytes"),
    13: (UINT32, VARINT, "int"), 14: (ENUM, VARINT, "symbol"), 15: (SFIXED32, HALF_WORD, "int"),
    16: (SFIXED64, WORD, "int"), 17: (SINT32, VARINT, "int"), 18: (SINT64, VARINT, "int"),
}  # fmt: skip

Path = tuple[str, ...]


def messages_of(files: Iterable[bytes]) -> Messages:
    """The messages of serialised FileDescriptorProtos, in any order. Raises ValueError with what is wrong."""
    from google.protobuf import descriptor_pb2
    from google.protobuf.message import DecodeError

    try:
        return Messages([descriptor_pb2.FileDescriptorProto.FromString(one) for one in files])
    except DecodeError as error:
        raise ValueError(f"not a file descriptor: {error}") from error


def files_of_set(data: bytes) -> tuple[bytes, ...]:
    """The files of a descriptor set (`protoc --include_imports --descriptor_set_out`). Raises ValueError."""
    from google.protobuf import descriptor_pb2
    from google.protobuf.message import DecodeError

    if len(data) > DESCRIPTORS_BYTES_MAX:
        raise ValueError(f"a descriptor set of {len(data)} bytes, more than {DESCRIPTORS_BYTES_MAX}")
    try:
        found = descriptor_pb2.FileDescriptorSet.FromString(data)
    except DecodeError as error:
        raise ValueError(f"not a descriptor set: {error}") from error
    if not found.file:
        raise ValueError("a descriptor set without files")
    return tuple(file.SerializeToString() for file in found.file)


class Messages:
    """The messages of some files, in a pool of their own: two schemas may name different things alike."""

    def __init__(self, files: list) -> None:  # type: ignore[type-arg]
        from google.protobuf import descriptor_pool

        self.pool = descriptor_pool.DescriptorPool()
        self._waiting = {file.name: file for file in files}
        self.files = list(self._waiting)
        for name in self.files:
            self._add(name, ())

    def _add(self, name: str, behind: tuple[str, ...]) -> None:
        """Add a file after those that it imports."""
        from google.protobuf import descriptor_pb2

        if name in behind:
            raise ValueError(f"{name!r} imports itself")
        try:
            self.pool.FindFileByName(name)
            return
        except KeyError:
            pass
        file = self._waiting.get(name)
        if file is None:
            file = descriptor_pb2.FileDescriptorProto()
            _well_known(name).CopyToProto(file)
        for imported in file.dependency:
            self._add(imported, (*behind, name))
        try:
            self.pool.Add(file)
            self.pool.FindFileByName(name)
        except (TypeError, KeyError) as error:
            raise ValueError(f"{name!r} cannot be used: {error}") from error

    def message(self, name: str) -> Descriptor:
        """A message by its full name."""
        try:
            return self.pool.FindMessageTypeByName(name)
        except KeyError:
            known = ", ".join(sorted(one.full_name for one in self.top())) or "none"
            raise ValueError(f"no message {name!r}; there are {known[:500]}") from None

    def top(self) -> list[Descriptor]:
        """The messages that stand at the top of the given files."""
        return [one for name in self.files for one in self.pool.FindFileByName(name).message_types_by_name.values()]

    def at(self, file: str, indexes: Sequence[int]) -> Descriptor:
        """The message that Confluent's list of indexes names: each one inside the message before."""
        protos = self.pool.FindFileByName(file)
        siblings = list(protos.message_types_by_name.values())
        found = None
        for index in indexes:
            if not 0 <= index < len(siblings):
                raise ValueError(f"no message {list(indexes)} in {file!r}")
            found = siblings[index]
            siblings = list(found.nested_types)
        if found is None:
            raise ValueError("a list of message indexes that is empty")
        return found


def _well_known(name: str):  # type: ignore[no-untyped-def]
    """A file that protobuf itself brings along."""
    import importlib

    if name.startswith("google/protobuf/") and name.endswith(".proto"):
        try:
            return importlib.import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2").DESCRIPTOR
        except ImportError:
            pass
    raise ValueError(f"the import {name!r} is missing (protoc --include_imports)")


# --- where attributes are -----------------------------------------------------------------------------------


def is_repeated(field: FieldDescriptor) -> bool:
    return bool(field.is_repeated)


def field_at(message: Descriptor, path: Path) -> FieldDescriptor | None:
    """The singular field at a path; None if there is none. A Timestamp or a wrapper is one value: none is inside."""
    found: FieldDescriptor | None = None
    for name in path:
        if found is not None and (found.type != 11 or _is_single(found.message_type)):
            return None
        below = message if found is None else found.message_type
        found = below.fields_by_name.get(name)
        if found is None or is_repeated(found) or found.type == 10:
            return None
    return found


def _is_single(message: Descriptor) -> bool:
    return message.full_name == TIMESTAMP or message.full_name in WRAPPERS


@dataclass(frozen=True, slots=True)
class Place:
    """Where an attribute is, by paths to scalar fields; empty for none."""

    point: Path = ()
    nanos: Path = ()
    low: Place | None = None
    high: Place | None = None

    def paths(self) -> Iterator[Path]:
        """All of them."""
        yield from (path for path in (self.point, self.nanos) if path)
        for end in (self.low, self.high):
            if end is not None:
                yield from end.paths()


NOWHERE = Place()


def place_of(message: Descriptor, attribute: Attribute) -> Place:
    """Where the attribute lies: a scalar, a Timestamp, what a wrapper wraps, or a message with `min` and `max`."""
    path = attribute.members
    found = _single(message, path)
    if found != NOWHERE or attribute.imprecise is None:
        return found
    low, high = _single(message, (*path, "min")), _single(message, (*path, "max"))
    return NOWHERE if NOWHERE in (low, high) else Place(low=low, high=high)


def _single(message: Descriptor, path: Path) -> Place:
    field = field_at(message, path) if path else None
    if field is None:
        return NOWHERE
    if field.type != 11:
        return Place(path)
    if field.message_type.full_name == TIMESTAMP:
        return Place((*path, "seconds"), (*path, "nanos"))
    return Place((*path, "value")) if field.message_type.full_name in WRAPPERS else NOWHERE


def leaf_of(field: FieldDescriptor) -> Leaf:
    """What a single value of a scalar field is."""
    names: dict[int, str] = {}
    for value in field.enum_type.values if field.type == 14 else ():
        names.setdefault(value.number, value.name)  # of aliases the first
    return Leaf(_TYPES[field.type][2], symbols=names)  # type: ignore[arg-type]


def kinds_of(message: Descriptor, attribute: Attribute) -> tuple[str, ...]:
    """The kinds that what lies at the attribute's place can have."""
    place = place_of(message, attribute)
    if place.nanos or (place.low is not None and place.low.nanos):
        return ("timestamp", "text")
    at = place.point or (place.low.point if place.low is not None else ())
    if not at:
        return ()
    field = field_at(message, at) or field_at(message, at[:-1])
    assert field is not None
    return leaf_of(field.message_type.fields_by_name["value"] if field.type == 11 else field).kinds()


# --- for the scan -------------------------------------------------------------------------------------------


@dataclass
class Program:
    """Messages on the way to attributes as the scan reads them: nodes by number, the top one first.

    `first[i]` to `first[i] + count[i]` are the entries of node i: the fields of it that concern an attribute. What lies
    below an entry has consecutive nodes and positions, so that a oneof can take it back.
    """

    first: list[int] = field(default_factory=list)
    count: list[int] = field(default_factory=list)
    entries: list[tuple[int, ...]] = field(default_factory=list)
    """Number, wire type, code, kind of leaf, position, node, end of nodes, first and end of positions, oneof (0: none),
    first and end of the numbers of a closed enum."""
    numbers: list[int] = field(default_factory=list)
    """The numbers of closed enums: others count as not written."""
    defaults: list[tuple[int, int, int]] = field(default_factory=list)
    """Position, node and kind of leaf of every field without presence."""
    leaves: list[Leaf] = field(default_factory=list)
    slots: list[Slot] = field(default_factory=list)
    width: int = 0


def program(message: Descriptor, attributes: Sequence[Attribute]) -> Program:
    """Compile a message for these attributes. Cost: linear in the ways to attributes."""
    places = [place_of(message, attribute) for attribute in attributes]
    making = _Compiling({path for place in places for path in place.paths()})
    making.node(message, ())
    making.made.slots = [making.slot(place) for place in places]
    return making.made


class _Compiling:
    def __init__(self, wanted: set[Path]) -> None:
        self.made = Program()
        self._wanted = wanted
        self._positions: dict[Path, int] = {}

    def slot(self, place: Place) -> Slot:
        ends = [None if end is None else self.slot(end) for end in (place.low, place.high)]
        return Slot(self._positions.get(place.point, -1), self._positions.get(place.nanos, -1), *ends)

    def node(self, message: Descriptor, path: Path) -> int:
        """Add a message and all below it; its entries come in one piece, after those of what lies below."""
        node = len(self.made.first)
        self.made.first.append(0)
        self.made.count.append(0)
        fields = [f for f in message.fields if any(w[: len(path) + 1] == (*path, f.name) for w in self._wanted)]
        oneofs = {f.containing_oneof.full_name: n for n, f in enumerate(fields, 1) if f.containing_oneof is not None}
        entries = [self._entry(f, (*path, f.name), node, oneofs) for f in fields]
        rivals = [
            f
            for f in message.fields
            if f not in fields and f.containing_oneof is not None and f.containing_oneof.full_name in oneofs
        ]
        for f in rivals:
            wire = _TYPES[f.type][1]
            entries.append((f.number, wire, OTHER, -1, -1, 0, 0, 0, 0, oneofs[f.containing_oneof.full_name], 0, 0))
        self.made.first[node], self.made.count[node] = len(self.made.entries), len(entries)
        self.made.entries += entries
        return node

    def _entry(self, f: FieldDescriptor, path: Path, node: int, oneofs: dict[str, int]) -> tuple[int, ...]:
        code, wire, _ = _TYPES[f.type]
        oneof = 0 if f.containing_oneof is None else oneofs[f.containing_oneof.full_name]
        begin = self.made.width
        if code == MESSAGE:
            below = self.node(f.message_type, path)
            return f.number, wire, code, -1, -1, below, len(self.made.first), begin, self.made.width, oneof, 0, 0
        position = self._positions[path] = self.made.width
        self.made.width += 1
        kind = len(self.made.leaves)
        self.made.leaves.append(leaf_of(f))
        if not f.has_presence:
            self.made.defaults.append((position, node, kind))
        first = len(self.made.numbers)
        if code == ENUM and f.enum_type.is_closed:
            self.made.numbers += sorted({value.number for value in f.enum_type.values})
        last = len(self.made.numbers)
        return f.number, wire, code, kind, position, 0, 0, begin, self.made.width, oneof, first, last
