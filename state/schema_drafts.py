"""A type for `hilcast.toml` from a schema: an attribute for each single value, categories from enums, with comments."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from state.limits import PATH_MAX
from state.space.encodings.avro_schema import RECORD, Type, branches
from state.space.encodings.leaves import Leaf
from state.space.encodings.protobuf_schema import TIMESTAMP, WRAPPERS, is_repeated, leaf_of

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor

Path = tuple[str, ...]
Found = tuple[Path, str, tuple[str, ...]]
"""A path, the kind of what is there, and the values of a category."""


def draft_avro(file: str, type: Type) -> str:
    """The text of a type for events of this Avro schema.

    >>> from state.space.encodings.avro_schema import parse
    >>> print(draft_avro("o.avsc", parse('{"type": "record", "name": "O", "fields": [{"name": "x", "type": "int"}]}')))
    # from o.avsc; read it, leave out what nobody filters by, and give numbers and times a min and a max
    [types."O"]
    format = "avro"
    schema = "o.avsc"
    <BLANKLINE>
    [types."O".attributes]
    x = { kind = "int" }
    <BLANKLINE>
    """
    return _text(file, "avro", type.name or "event", "", list(_avro(type, (), ())))


def draft_protobuf(file: str, message: Descriptor) -> str:
    """The text of a type for events of this message."""
    return _text(file, "protobuf", message.full_name, message.full_name, list(_protobuf(message, (), ())))


def _avro(type: Type, path: Path, behind: tuple[str, ...]) -> Iterator[Found]:
    for one in branches(type):
        if one.code == RECORD and one.name not in behind and len(path) < PATH_MAX:
            for name, of in one.fields:
                yield from _avro(of, (*path, name), (*behind, one.name))
        leaf = one.leaf()
        if path and leaf is not None and leaf.kinds():
            yield _found(path, leaf)


def _protobuf(message: Descriptor, path: Path, behind: tuple[str, ...]) -> Iterator[Found]:
    if message.full_name in behind or len(path) >= PATH_MAX:
        return
    for field in message.fields:
        here = (*path, field.name)
        if is_repeated(field) or field.type == 10:
            continue
        if field.type != 11:
            leaf = leaf_of(field)
            if leaf.kinds():
                yield _found(here, leaf)
        elif field.message_type.full_name == TIMESTAMP:
            yield here, "timestamp", ()
        elif field.message_type.full_name in WRAPPERS:
            leaf = leaf_of(field.message_type.fields_by_name["value"])
            if leaf.kinds():
                yield _found(here, leaf)
        else:
            yield from _protobuf(field.message_type, here, (*behind, message.full_name))


def _found(path: Path, leaf: Leaf) -> Found:
    kind = leaf.kinds()[0]
    return path, kind, tuple(leaf.symbols.values()) if kind == "category" else ()


def _text(file: str, format: str, name: str, message: str, found: list[Found]) -> str:
    head = re.sub(r"[^A-Za-z0-9_.-]", "_", name)[:64]
    lines = [
        f"# from {file}; read it, leave out what nobody filters by, and give numbers and times a min and a max",
        f'[types."{head}"]',
        f'format = "{format}"',
        f"schema = {json.dumps(file)}",
        *([f"message = {json.dumps(message)}"] if message else []),
        "",
        f'[types."{head}".attributes]',
    ]
    taken: set[str] = set()
    for path, kind, values in found:
        short = path[-1] if path[-1] not in taken else ".".join(path)
        if short in taken:
            lines.append(f"# {'.'.join(path)} can be of several kinds: the first counts")
            continue
        taken.add(short)
        parts = [f'kind = "{kind}"']
        if values:
            parts.append(f"values = {json.dumps(list(values), ensure_ascii=False)}")
        if path != (short,):
            parts.append(f"path = {json.dumps('.'.join(_part(part) for part in path), ensure_ascii=False)}")
        key = short if re.fullmatch(r"[A-Za-z0-9_-]+", short) else json.dumps(short, ensure_ascii=False)
        lines.append(f"{key} = {{ {', '.join(parts)} }}")
    return "\n".join(lines) + "\n"


def _part(part: str) -> str:
    return part if re.fullmatch(r"[^\".]+", part) else json.dumps(part, ensure_ascii=False)
