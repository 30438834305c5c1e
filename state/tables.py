"""Reading TOML tables strictly: every fault is noted with its place, and reading goes on.

A *reader* takes a raw value and returns it checked, or raises ValueError with what is wrong. `Table.take`
notes that under the key's place and goes on with the default, so that one run reports everything.
"""

from __future__ import annotations

import datetime
import difflib
import json
import math
import re
from collections.abc import Callable, Mapping
from typing import TypeVar

from state.secrets import redacted

T = TypeVar("T")
D = TypeVar("D")
Reader = Callable[[object], T]
Scalar = str | int | float | bool


class Table:
    """A table being read; a key that was never taken is unknown at the `end`.

    >>> faults = []
    >>> table = Table({"groups": "3", "treshold": 0.5}, "distribution.b1", faults)
    >>> table.take("groups", integer(1, 9), 1), table.take("threshold", fraction, 0.0)
    (1, 0.0)
    >>> table.end()
    >>> for fault in faults: print(fault)
    distribution.b1.groups: must be an integer from 1 to 9, not '3'
    distribution.b1.treshold: unknown key; did you mean 'threshold'?
    """

    def __init__(self, raw: Mapping[str, object] | None, place: str, faults: list[str]) -> None:
        self.raw = raw or {}
        self.is_sound = raw is not None
        self.place = place
        self.faults = faults
        self.taken: set[str] = set()

    def at(self, key: str) -> str:
        """The place of a key as one would write it in TOML: `types."stock.quote".cubes`."""
        quoted = key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else json.dumps(key, ensure_ascii=False)
        return f"{self.place}.{quoted}" if self.place else quoted

    def fault(self, key: str, reason: str) -> None:
        self.faults.append(f"{self.at(key)}: {reason}")

    def need(self, *keys: str) -> None:
        """Note each of these keys that is missing, unless the table itself is at fault."""
        for key in keys:
            if self.is_sound and key not in self.raw:
                self.fault(key, "missing")

    def take(self, key: str, read: Reader[T], default: D) -> T | D:
        """The value of a key as `read` understands it; the default where it is missing or at fault."""
        self.taken.add(key)
        if key not in self.raw:
            return default
        try:
            return read(self.raw[key])
        except ValueError as error:
            self.fault(key, str(error))
            return default

    def table(self, key: str) -> Table:
        """The table under a key; an empty one where it is missing or at fault."""
        missing: dict[str, object] = {}
        return Table(self.take(key, table, None if key in self.raw else missing), self.at(key), self.faults)

    def tables(self) -> list[tuple[str, Table]]:
        """All tables below, for tables whose keys are names; what is no table is noted and left out."""
        below = [(key, self.table(key)) for key in self.raw]
        return [(key, one) for key, one in below if isinstance(self.raw[key], dict)]

    def end(self) -> None:
        """Note every key that nobody took."""
        for key in self.raw:
            if key not in self.taken:
                near = difflib.get_close_matches(key, sorted(self.taken), 1)
                self.fault(key, f"unknown key; did you mean {near[0]!r}?" if near else "unknown key")


def table(value: object) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise ValueError(f"must be a table, not {shown(value)}")
    return value


def text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"must be text, not {shown(value)}")
    return value


def boolean(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"must be true or false, not {shown(value)}")
    return value


def integer(low: int, high: int) -> Reader[int]:
    def read(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise ValueError(f"must be an integer from {low} to {high}, not {shown(value)}")
        return value

    return read


def number(low: float, *, above: bool = False, below: float = math.inf) -> Reader[float]:
    """A finite number from `low` on, or `above` it, and below a limit.

    >>> number(0, above=True)(2)
    2.0
    """
    words = (
        f"must be a number {'above' if above else 'from'} {low:g}{f' and below {below:g}' if below < math.inf else ''}"
    )

    def read(value: object) -> float:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not low <= value < below or (above and value == low):  # type: ignore[operator]
            raise ValueError(f"{words}, not {shown(value)}")
        return float(value)  # type: ignore[arg-type]

    return read


def fraction(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise ValueError(f"must be a number from 0 to 1, not {shown(value)}")
    return float(value)


def choice(*choices: str) -> Reader[str]:
    def read(value: object) -> str:
        if not isinstance(value, str) or value not in choices:
            raise ValueError(f"must be one of {', '.join(choices)}, not {shown(value)}")
        return value

    return read


def named(pattern: re.Pattern[str]) -> Reader[str]:
    """Text that matches a pattern as a whole."""

    def read(value: object) -> str:
        if not pattern.fullmatch(text(value)):
            raise ValueError(f"must match {pattern.pattern}, not {shown(value)}")
        return text(value)

    return read


def list_of(item: Reader[T], distinct: bool = True) -> Reader[tuple[T, ...]]:
    """A list of what `item` reads; every item at fault is named."""

    def read(value: object) -> tuple[T, ...]:
        if not isinstance(value, list):
            raise ValueError(f"must be a list, not {shown(value)}")
        items: list[T] = []
        faults: list[str] = []
        for number, raw in enumerate(value, 1):
            try:
                items.append(item(raw))
            except ValueError as error:
                faults.append(f"item {number}: {error}")
                continue
            if distinct and items[-1] in items[:-1]:
                faults.append(f"item {number}: {items[-1]!r} is given twice")
        if faults:
            raise ValueError("; ".join(faults))
        return tuple(items)

    return read


def flat(table: Table) -> dict[str, Scalar]:
    """All settings of a table; `security.protocol = ...` unquoted is a table to TOML, and means the same."""
    settings: dict[str, Scalar] = {}
    for key, value in table.raw.items():
        if isinstance(value, dict):
            below = flat(Table(value, table.at(key), table.faults))
            found = {f"{key}.{name}": setting for name, setting in below.items()}
        else:
            found = {key: table.take(key, scalar, "")}
        for name in found:
            if name in settings:
                table.fault(name, "is given twice")
        settings |= found
    return settings


def scalar(value: object) -> Scalar:
    if not isinstance(value, str | int | float | bool):
        raise ValueError("must be text, a number, true or false")
    return value


def scalar_text(value: Scalar) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def shown(value: object) -> str:
    """A value in a message: as TOML writes it where that is short, and never with a URL's password."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    whole = repr(redacted(value) if isinstance(value, str) else value)
    return whole if len(whole) <= 60 else f"{whole[:57]}..."
