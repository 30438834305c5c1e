"""JSON of control events: read whole or not at all, whatever its unknown members hold.

    fast     msgspec, which refuses what no 64-bit reader takes: `1e400`, 5,000 digits, `"\\ud800"`
    again    Python's `json`, where msgspec refused: these are JSON (RFC 8259), and an ignored member may hold them

Of duplicate keys the last wins. `NaN`, `Infinity`, a byte order mark and bytes that are not UTF-8 are not JSON. What is
nested deeper than `JSON_DEPTH_MAX` is not read (RFC 8259 §9 lets a reader refuse it): everything that walks a value
afterwards, `repr` included, stays far from Python's own limit. Events have a reader of their own, which keeps the same
rules (`space/decode.py`). Nothing here needs numpy: clients' packages reach it.
"""

from __future__ import annotations

import json
import re

import msgspec

from state.limits import JSON_DEPTH_MAX

DIGITS_MAX = 4300
"""Digits of an integer that Python converts; a longer one reads as infinite, which no member may be."""
_BRACKETS = re.compile(rb'"(?:[^"\\]|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)
"""A string, also one that does not end (else each quote of it would be tried again); an opening, a closing bracket."""


def read_json(value: bytes) -> object:
    """The value that these bytes are; ValueError says why they are none.

    >>> read_json(b'{"note": 1e400, "note": "\\\\ud800", "a": 1}')["a"]
    1
    >>> read_json(b'{"a": NaN}')
    Traceback (most recent call last):
    ValueError: NaN is not JSON
    """
    if _is_deep(value):
        raise ValueError(f"nested deeper than {JSON_DEPTH_MAX} levels")
    try:
        return msgspec.json.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return json.loads(value.decode(), parse_int=_integer, parse_constant=_no_number)


def _is_deep(value: bytes) -> bool:
    """Whether brackets are nested beyond the limit, those in strings aside."""
    if value.count(b"[") + value.count(b"{") <= JSON_DEPTH_MAX:
        return False
    depth = 0
    for found in _BRACKETS.finditer(value):
        byte = value[found.start()]
        if byte in b"[{":
            depth += 1
            if depth > JSON_DEPTH_MAX:
                return True
        elif byte in b"]}":
            depth -= 1
    return False


def _integer(digits: str) -> int | float:
    return int(digits) if len(digits) <= DIGITS_MAX else float(digits)


def _no_number(name: str) -> object:
    raise ValueError(f"{name} is not JSON")
