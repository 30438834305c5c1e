"""Avro schemas (specification 1.12): read, searched by path, and compiled for `avro_scan.py`.

    {"type": "record", "name": "Order", "fields": [...]}  ──parse──>  Type  ──program──>  arrays of numbers

A publication is read by the schema that it was written with, and attributes by their paths in it: no reader's schema,
no defaults, no aliases are needed. Paths descend through records, and through unions into every branch that is one.

Left out: paths into maps and arrays. What lies there is checked and skipped.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from state.space.encodings.leaves import Leaf, Slot
from state.space.event_type import Attribute

NULL, BOOLEAN, LONG, FLOAT, DOUBLE, BYTES, STRING, FIXED, ENUM, ARRAY, MAP, UNION, RECORD = range(13)
"""What a type is, as the scan knows it; int and long are written alike."""

SCHEMA_BYTES_MAX = 1_000_000
TYPES_MAX = 20_000
"""Of one schema: what is larger is refused."""
FIXED_MAX = 2**31 - 1

_PRIMITIVES = {
    "null": NULL, "boolean": BOOLEAN, "int": LONG, "long": LONG, "float": FLOAT, "double": DOUBLE, "bytes": BYTES,
    "string": STRING,
}  # fmt: skip
_LOGICAL_OF = {
    LONG: (
        "timestamp-millis", "timestamp-micros", "timestamp-nanos", "local-timestamp-millis", "local-timestamp-micros",
        "local-timestamp-nanos", "date",
    ),
    BYTES: ("decimal",),
    FIXED: ("decimal", "uuid"),
}  # fmt: skip
_RAW_OF = {BOOLEAN: "boolean", LONG: "int", FLOAT: "float", DOUBLE: "double", STRING: "text", ENUM: "symbol"}
_RAW_OF |= {BYTES: "bytes", FIXED: "bytes"}


@dataclass(eq=False, slots=True)
class Type:
    """A type of a schema; a named one may contain itself."""

    code: int
    name: str = ""
    size: int = 0
    """Of a fixed."""
    symbols: tuple[str, ...] = ()
    fields: tuple[tuple[str, Type], ...] = field(default=(), repr=False)
    below: tuple[Type, ...] = field(default=(), repr=False)
    """The items of an array, the values of a map, the branches of a union."""
    logical: str = ""
    scale: int = 0
    precision: int = 0

    def leaf(self) -> Leaf | None:
        """What a single value of this type is; None if it is none."""
        if self.code not in _RAW_OF:
            return None
        return Leaf(_RAW_OF[self.code], self.logical, dict(enumerate(self.symbols)), self.scale)  # type: ignore[arg-type]

    def member(self, name: str) -> Type | None:
        """The field of a record."""
        return next((type for known, type in self.fields if known == name), None)


def parse(text: str, references: Sequence[str] = ()) -> Type:
    """Read a schema; `references` are schemas whose named types it uses, those that others need first.

    Raises ValueError with what is wrong.

    >>> parse('{"type": "record", "name": "a.B", "fields": [{"name": "x", "type": ["null", "int"]}]}').member("x").code
    11
    """
    reading = _Reading()
    for reference in references:
        reading.document(reference)
    return reading.document(text)


class _Reading:
    """One schema being read: the names that are known so far."""

    def __init__(self) -> None:
        self._names: dict[str, Type] = {}
        self._types = 0

    def document(self, text: str) -> Type:
        if len(text) > SCHEMA_BYTES_MAX:
            raise ValueError(f"a schema of {len(text)} characters, more than {SCHEMA_BYTES_MAX}")
        try:
            return self._type(json.loads(text), "")
        except json.JSONDecodeError as error:
            if text.strip() in _PRIMITIVES:
                return Type(_PRIMITIVES[text.strip()])
            raise ValueError(f"not JSON: {error}") from error
        except RecursionError as error:
            raise ValueError("nested too deep") from error

    def _type(self, raw: object, namespace: str) -> Type:
        self._types += 1
        if self._types > TYPES_MAX:
            raise ValueError(f"more than {TYPES_MAX} types")
        if isinstance(raw, str):
            return self._named(raw, namespace)
        if isinstance(raw, list):
            if not raw:
                raise ValueError("a union without branches")
            return Type(UNION, below=tuple(self._type(one, namespace) for one in raw))
        if not isinstance(raw, dict):
            raise ValueError(f"a type must be a name, a list or an object, not {raw!r}")
        kind = raw.get("type")
        if isinstance(kind, dict | list):
            return self._type(kind, namespace)
        if kind in ("record", "error", "enum", "fixed"):
            return self._define(raw, str(kind), namespace)
        if kind == "array":
            return Type(ARRAY, below=(self._type(_need(raw, "items"), namespace),))
        if kind == "map":
            return Type(MAP, below=(self._type(_need(raw, "values"), namespace),))
        if not isinstance(kind, str):
            raise ValueError(f"a type without a name: {json.dumps(raw)[:80]}")
        found = self._named(kind, namespace)
        return _with_logical(Type(found.code), raw) if kind in _PRIMITIVES else found

    def _named(self, name: str, namespace: str) -> Type:
        if name in _PRIMITIVES:
            return Type(_PRIMITIVES[name])
        for full in (name,) if "." in name or not namespace else (f"{namespace}.{name}", name):
            if full in self._names:
                return self._names[full]
        raise ValueError(f"no type {name!r} is known")

    def _define(self, raw: dict[str, object], kind: str, namespace: str) -> Type:
        name = _need(raw, "name")
        if not isinstance(name, str):
            raise ValueError(f"a name must be text, not {name!r}")
        given = raw.get("namespace", namespace)
        space = name.rpartition(".")[0] if "." in name else given if isinstance(given, str) else ""
        full = name if "." in name or not space else f"{space}.{name}"
        if full in self._names:
            raise ValueError(f"{full!r} is defined twice")
        if kind == "fixed":
            size = _need(raw, "size")
            if not isinstance(size, int) or not 0 <= size <= FIXED_MAX:
                raise ValueError(f"the size of {full!r} must be a number of bytes, not {size!r}")
            made = self._names[full] = _with_logical(Type(FIXED, full, size), raw)
            return made
        if kind == "enum":
            symbols = _need(raw, "symbols")
            if not isinstance(symbols, list) or not all(isinstance(symbol, str) for symbol in symbols):
                raise ValueError(f"the symbols of {full!r} must be a list of texts")
            made = self._names[full] = Type(ENUM, full, symbols=tuple(symbols))
            return made
        made = self._names[full] = Type(RECORD, full)
        made.fields = tuple(self._fields(_need(raw, "fields"), full, space))
        return made

    def _fields(self, raw: object, record: str, namespace: str) -> Iterator[tuple[str, Type]]:
        if not isinstance(raw, list):
            raise ValueError(f"the fields of {record!r} must be a list")
        for one in raw:
            if not isinstance(one, dict) or not isinstance(one.get("name"), str):
                raise ValueError(f"a field of {record!r} without a name")
            yield one["name"], self._type(_need(one, "type"), namespace)


def _need(raw: dict[str, object], key: str) -> object:
    if key not in raw:
        raise ValueError(f"{key!r} is missing in {json.dumps(raw)[:80]}")
    return raw[key]


def _with_logical(type: Type, raw: dict[str, object]) -> Type:
    """A logical type that does not fit is ignored, as the specification asks."""
    logical = raw.get("logicalType")
    if not isinstance(logical, str) or logical not in _LOGICAL_OF.get(type.code, ()):
        return type
    scale, precision = raw.get("scale", 0), raw.get("precision", 0)
    if logical == "decimal":
        sound = isinstance(scale, int) and isinstance(precision, int) and 0 <= scale <= precision <= 10_000
        if not sound or precision == 0:
            return type
        type.scale, type.precision = scale, precision  # type: ignore[assignment]
    if logical == "uuid" and type.code == FIXED and type.size != 16:
        return type
    type.logical = logical
    return type


# --- where attributes are -----------------------------------------------------------------------------------


def branches(type: Type) -> Iterator[Type]:
    """What a value of this type can be, once unions are looked through."""
    if type.code == UNION:
        for branch in type.below:
            yield from branches(branch)
    else:
        yield type


def at_path(type: Type, path: Sequence[str]) -> list[Type]:
    """What can stand at a path, in every branch that has it."""
    here = list(branches(type))
    for name in path:
        below = [member for one in here if (member := one.member(name)) is not None]
        here = [one for member in below for one in branches(member)]
    return here


def leaves_of(type: Type, attribute: Attribute) -> list[Leaf]:
    """The single values that an attribute can be, those of an interval's ends included."""
    found = at_path(type, attribute.members)
    if attribute.imprecise is not None:
        found += [end for one in list(found) for name in ("min", "max") for end in at_path(one, (name,))]
    return [leaf for one in found if (leaf := one.leaf()) is not None]


# --- for the scan -------------------------------------------------------------------------------------------


@dataclass
class Program:
    """A schema as the scan reads it: nodes by number, those on the way to attributes apart from those to be skipped.

    `children[firsts[i] : firsts[i] + counts[i]]` are the fields, branches or items of node i.
    """

    codes: list[int] = field(default_factory=list)
    arguments: list[int] = field(default_factory=list)
    """The size of a fixed, the number of symbols of an enum."""
    firsts: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    children: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    """Where a leaf is written down; -1: nowhere."""
    kinds: list[int] = field(default_factory=list)
    """Which of `leaves` it is."""
    leaves: list[Leaf] = field(default_factory=list)
    slots: list[Slot] = field(default_factory=list)
    """By attribute."""
    width: int = 0
    """Positions in use."""
    root: int = 0


def program(type: Type, attributes: Sequence[Attribute]) -> Program:
    """Compile a schema for these attributes. Cost: linear in the schema, and in the ways to attributes."""
    return _Compiling(type, attributes).made


class _Compiling:
    def __init__(self, type: Type, attributes: Sequence[Attribute]) -> None:
        self.made = Program()
        self._skipped: dict[int, int] = {}
        self._positions: dict[tuple[str, ...], int] = {}
        wanted: set[tuple[str, ...]] = set()
        for attribute in attributes:
            self.made.slots.append(self._slot(type, attribute, wanted))
        self.made.width = len(self._positions)
        self.made.root = self._node(type, (), wanted)

    def _slot(self, type: Type, attribute: Attribute, wanted: set[tuple[str, ...]]) -> Slot:
        path = attribute.members
        if not path or not at_path(type, path):
            return Slot()
        wanted.add(path)
        point = self._positions.setdefault(path, len(self._positions))
        ends = []
        for name in ("min", "max"):
            if attribute.imprecise is not None and at_path(type, (*path, name)):
                wanted.add((*path, name))
                ends.append(Slot(self._positions.setdefault((*path, name), len(self._positions))))
        return Slot(point, low=ends[0], high=ends[1]) if len(ends) == 2 else Slot(point)

    def _new(self, type: Type) -> int:
        made = self.made
        made.codes.append(type.code)
        made.arguments.append(type.size if type.code == FIXED else len(type.symbols))
        for column in (made.firsts, made.counts):
            column.append(0)
        for column in (made.positions, made.kinds):
            column.append(-1)
        return len(made.codes) - 1

    def _adopt(self, node: int, children: list[int]) -> int:
        self.made.firsts[node], self.made.counts[node] = len(self.made.children), len(children)
        self.made.children += children
        return node

    def _node(self, type: Type, path: tuple[str, ...], wanted: set[tuple[str, ...]]) -> int:
        """The node of a type at a path."""
        if not any(one[: len(path)] == path for one in wanted):
            return self._skip(type)
        if type.code == UNION:
            return self._adopt(self._new(type), [self._node(one, path, wanted) for one in type.below])
        if type.code == RECORD:
            longer = {one for one in wanted if len(one) > len(path)}
            return self._adopt(self._new(type), [self._node(of, (*path, name), longer) for name, of in type.fields])
        leaf = type.leaf()
        if leaf is None or path not in wanted:
            return self._skip(type)
        node = self._new(type)
        self.made.positions[node] = self._positions[path]
        self.made.kinds[node] = len(self.made.leaves)
        self.made.leaves.append(leaf)
        return node

    def _skip(self, type: Type) -> int:
        """The node of a type of which nothing is wanted; one for each type, so that it may contain itself."""
        if id(type) in self._skipped:
            return self._skipped[id(type)]
        node = self._skipped[id(type)] = self._new(type)
        below = type.below or tuple(of for _, of in type.fields)
        return self._adopt(node, [self._skip(one) for one in below])
