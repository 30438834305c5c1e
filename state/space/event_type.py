"""Event types: named content spaces, each a list of attributes with kinds and domains.

`hilcast.toml` describes them (`state/config.py` reads and checks it); everything else receives an `EventType`.
The order of attributes is the order of the dimensions of every box, point and rank vector of the type.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from state.space.encodings.schemas import Schema

Format = Literal["json", "avro", "protobuf"]
FORMATS: tuple[Format, ...] = ("json", "avro", "protobuf")
Kind = Literal["int", "float", "boolean", "category", "timestamp", "text"]


def format_named(name: bytes | None) -> Format | None:
    """The format that a header names; None for none of ours."""
    return next((format for format in FORMATS if format.encode() == name), None)


DIMENSIONS_DEFAULT = 3
"""Of the Hilbert grid of a type that names none: as in [MICS09] tables 2 and 3. Each one more multiplies the ranges."""


@dataclass(frozen=True, slots=True)
class Attribute:
    """One attribute: `min` and `max` shape the grid only; what lies outside falls into the edge cells."""

    name: str
    kind: Kind
    min: int | float | str | None = None
    max: int | float | str | None = None
    values: tuple[str, ...] = ()
    """The declared values of a category, in order."""
    imprecise: Literal["certain", "possible"] | None = None
    """How a publication may give this attribute as an interval; None: it may not."""
    path: tuple[str, ...] | None = None
    """The members of the document on the way to it, from the top; None: the one of its own name."""
    header: str | None = None
    """The record header that holds it, instead of the document."""
    key: bool = False
    """Whether the record's key holds it, instead of the document."""

    @property
    def members(self) -> tuple[str, ...]:
        """The way to it in a document; empty if it is in none.

        >>> Attribute("country", "text", path=("order", "country")).members, Attribute("a.b", "int").members
        (('order', 'country'), ('a.b',))
        >>> Attribute("region", "text", header="x-region").members
        ()
        """
        if self.header is not None or self.key:
            return ()
        return (self.name,) if self.path is None else self.path


@dataclass(frozen=True, slots=True)
class Pruning:
    """The most predicates that the filters of one home key may use as neighbours are told them; None: as they are."""

    advertisements: int | None = None
    subscriptions: int | None = None


@dataclass(frozen=True)
class EventType:
    """A content space; `dimension["price"]` is the column of an attribute in every box and rank vector."""

    name: str
    attributes: tuple[Attribute, ...]
    reduction: str = "covering"
    parameters: dict[str, object] = field(default_factory=dict)
    advertisements: bool = False
    cubes: int = 16
    """Number of cubes, a power of two: the unit of state, index and parallelism."""
    index: tuple[str, ...] = ()
    """Attributes of the Hilbert grid, at most 6; empty: chosen by `state.space.grid`."""
    bits: int | None = None
    """Bits per dimension of the Hilbert grid; None: chosen by `state.space.grid`."""
    pruning: Pruning = Pruning()
    """Budgets of pruning ([BADV06] §5, §2.3)."""
    matcher: str = "bitmap"
    """How a junction finds the boxes that hold an event: `state.matchers`."""
    matcher_parameters: dict[str, Any] = field(default_factory=dict)
    """Of the S-tree ([STREE03] §3): `skew`, `fanout`."""
    format: Format = "json"
    """What the values of its publications are written in; a source may say otherwise."""
    schema: Schema | None = None
    """A schema file; those in another format, or without one, name their schema, in Confluent's wire format."""
    subject: str | None = None
    """Where the registry has the schema that publishers of ours write with."""

    @property
    def d(self) -> int:
        return len(self.attributes)

    @cached_property
    def dimension(self) -> dict[str, int]:
        return {attribute.name: i for i, attribute in enumerate(self.attributes)}

    @cached_property
    def is_flat(self) -> bool:
        """Whether every attribute is the member of its own name, at the top of the document."""
        return all(attribute.members == (attribute.name,) for attribute in self.attributes)

    @cached_property
    def beside(self) -> tuple[Attribute, ...]:
        """The attributes that are in headers or in the key."""
        return tuple(attribute for attribute in self.attributes if not attribute.members)

    def written_in(self, format: Format | None) -> EventType:
        """The type as seen by events in another format; a schema file is of one format."""
        if format is None or format == self.format:
            return self
        return replace(self, format=format)

    @property
    def own_schema(self) -> Schema | None:
        """The schema file that the events are written with; None: each names its schema itself."""
        return self.schema if self.schema is not None and self.schema.kind == self.format else None

    def attribute(self, name: str) -> Attribute:
        return self.attributes[self.dimension[name]]
