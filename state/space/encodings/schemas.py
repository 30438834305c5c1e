"""Where the schemas of publications come from: a file that the configuration names, or a registry, by id.

A schema is plain data here, as it came. What is made of it for the attributes of a type is `encoded_batches.py`.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

from state.space.encodings import avro_schema
from state.space.encodings import protobuf_schema as protobuf

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor


@dataclass(frozen=True)
class Schema:
    """A schema as its owner gave it; its text form tells two apart, but does not show them."""

    kind: Literal["avro", "protobuf", "other"]
    text: str = field(default="", repr=False)
    """Of Avro: JSON."""
    references: tuple[str, ...] = field(default=(), repr=False)
    """Of Avro: schemas that it uses, those that others need first."""
    files: tuple[bytes, ...] = field(default=(), repr=False)
    """Of Protobuf: serialised FileDescriptorProtos, the schema itself first."""
    message: str = ""
    """Of Protobuf from a file: the full name of the message; else indexes in the record say which it is."""
    digest: str = field(init=False, compare=False)

    def __post_init__(self) -> None:
        digest = hashlib.blake2b(digest_size=8)
        for part in (*(text.encode() for text in (self.text, *self.references)), *self.files):
            digest.update(part)
            digest.update(b"\0")
        object.__setattr__(self, "digest", digest.hexdigest())

    def avro(self) -> avro_schema.Type:
        """The type that it describes. Raises ValueError."""
        if self.kind != "avro":
            raise ValueError("it is no Avro schema")
        return avro_schema.parse(self.text, self.references)

    def messages(self) -> protobuf.Messages:
        """All messages of a Protobuf schema. Raises ValueError."""
        if self.kind != "protobuf":
            raise ValueError("it is no Protobuf schema")
        return protobuf.messages_of(self.files)

    def protobuf(self, indexes: tuple[int, ...] = (0,)) -> Descriptor:
        """The message that it names, or that indexes name. Raises ValueError."""
        messages = self.messages()
        return messages.message(self.message) if self.message else messages.at(messages.files[0], indexes)


def packed(schema: Schema) -> bytes:
    """A schema as bytes, for who keeps it elsewhere.

    >>> unpacked(packed(Schema("avro", '"string"'))) == Schema("avro", '"string"')
    True
    """
    files = [base64.b64encode(file).decode() for file in schema.files]
    said = {"kind": schema.kind, "text": schema.text, "references": schema.references, "files": files}
    return json.dumps({**said, "message": schema.message}).encode()


def unpacked(data: bytes) -> Schema:
    """The other way. Raises ValueError."""
    try:
        said = json.loads(data)
        files = tuple(base64.b64decode(file) for file in said["files"])
        return Schema(said["kind"], said["text"], tuple(said["references"]), files, said["message"])
    except (KeyError, TypeError) as error:
        raise ValueError(f"not a schema: {error}") from error


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


NO_SCHEMAS = NoSchemas()
