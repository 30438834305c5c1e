"""TOML from tables: what `tomllib` reads, written."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Mapping

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def written(tables: Mapping[str, object]) -> str:
    """The text that reads as these tables; tables in lists stand in one line each.

    >>> print(written({"a": 1, "b": {"c.d": "x", "e": {"f": [1.5, {"g": True}]}}}), end="")
    a = 1
    <BLANKLINE>
    [b]
    "c.d" = "x"
    <BLANKLINE>
    [b.e]
    f = [1.5, {g = true}]
    """
    return "".join(_lines(tables, ()))


def _lines(table: Mapping[str, object], path: tuple[str, ...]) -> list[str]:
    below = {key: value for key, value in table.items() if isinstance(value, Mapping)}
    own = [f"{_key(key)} = {_value(value)}\n" for key, value in table.items() if key not in below]
    lines = [f"\n[{'.'.join(map(_key, path))}]\n"] if path and (own or not below) else []
    lines += own
    for key, value in below.items():
        lines += _lines(value, (*path, key))
    return lines


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _text(key)


def _text(text: str) -> str:
    # JSON's escapes are TOML's, but for two that TOML has no short form of
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case str():
            return _text(value)
        case datetime.datetime() | datetime.date() | datetime.time():
            return value.isoformat()
        case int() | float():
            return repr(value)
        case list() | tuple():
            return f"[{', '.join(map(_value, value))}]"
        case Mapping():
            return "{" + ", ".join(f"{_key(key)} = {_value(item)}" for key, item in value.items()) + "}"
    raise AssertionError(f"{value!r} is not of TOML")
