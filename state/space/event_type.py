"""Event types: named content spaces, each a list of attributes with kinds and domains.

`hilcast.toml` describes them (`state/config.py` reads and checks it); everything else receives an `EventType`.
The order of attributes is the order of the dimensions of every box, point and rank vector of the type.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from state.limits import CUBES_DEFAULT
from state.names import FORMAT_HEADER

if TYPE_CHECKING:
    from state.space.encodings.schemas import Schema

Format = Literal["json", "avro", "protobuf"]
FORMATS: tuple[Format, ...] = ("json", "avro", "protobuf")
Kind = Literal["int", "float", "boolean", "category", "timestamp", "text"]


def format_named(name: bytes | None) -> Format | None:
    """The format that a header names; None for none of ours."""
    return next((format for format in FORMATS if format.encode() == name), None)


_MEDIA: dict[str, Format] = {
    "application/json": "json", "text/json": "json", "application/avro": "avro", "avro/binary": "avro",
    "application/protobuf": "protobuf", "application/x-protobuf": "protobuf",
    "application/vnd.google.protobuf": "protobuf",
}  # fmt: skip


def format_of_media(content_type: str) -> Format | None:
    """The format that a content type (`datacontenttype` of CloudEvents) means; None for none of ours.

    >>> format_of_media("application/json; charset=utf-8"), format_of_media("application/vnd.shop.order+avro")
    ('json', 'avro')
    """
    media = content_type.partition(";")[0].strip().lower()
    return _MEDIA.get(media) or next((format for format in FORMATS if media.endswith(f"+{format}")), None)


def format_said(headers: Iterable[tuple[str, bytes | None]]) -> Format | None:
    """What the headers of a record say that its value is written in: `ce_dataformat` first, then its content type.

    >>> format_said([("Content-Type", b"application/avro")]), format_said([("ce_dataformat", b"other")])
    ('avro', None)
    """
    said, content_type = None, b""
    for name, value in headers:
        if name == FORMAT_HEADER:
            said = value
        elif name.lower() == "content-type":
            content_type = value or b""
    return format_named(said) or format_of_media(content_type.decode("utf-8", "replace"))


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
    cells: Literal["uniform", "quantile"] = "uniform"
    """Where the cells of the grid begin: in even steps, or where the publications that are seen are ([MICS09] §6.3)."""

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
    cubes: int = CUBES_DEFAULT
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
    auto: frozenset[str] = frozenset()
    """What the running router chooses by what it sees (`state/tuning.py`): `cubes`, `index`."""
    quantiles: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """By attribute with `cells = "quantile"`: ranks that divide its publications evenly, once some were seen."""

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

    @property
    def is_open(self) -> bool:
        """Whether it leaves a choice to the router."""
        return bool(self.auto) or any(attribute.cells == "quantile" for attribute in self.attributes)

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
