"""Where the schemas of publications come from: a file that the configuration names, or a registry, by id.

A schema is plain data here, as it came. What is made of it for the attributes of a type is kept (`reading.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol


@dataclass(frozen=True)
class Schema:
    """A schema as its owner gave it."""

    kind: Literal["avro", "protobuf", "other"]
    text: str = field(default="", repr=False)
    """Of Avro: JSON."""
    references: tuple[str, ...] = field(default=(), repr=False)
    """Of Avro: schemas that it uses, those that others need first."""
    files: tuple[bytes, ...] = field(default=(), repr=False)
    """Of Protobuf: serialised FileDescriptorProtos, the schema itself first."""
    message: str = ""
    """Of Protobuf from a file: the full name of the message; else indexes in the record say which it is."""


class Schemas(Protocol):
    """A registry as routing sees it."""

    def of(self, ids: Collection[int]) -> Mapping[int, Schema]:
        """The schemas of these ids, as far as they can be had.

        Guarantee: bounded in time for all ids together; what was had once comes at once.
        """


class NoSchemas:
    """No registry: no id is known."""

    def of(self, ids: Collection[int]) -> Mapping[int, Schema]:
        return {}
