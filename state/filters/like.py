"""LIKE patterns, compiled by us: `%` is any text, `_` any one character, ESCAPE makes either mean itself.

    'ab%c_d%e'   ->   'ab'  %  'c?d'  %  'e'      first part at the start, last at the end,
                                                  each one between at its leftmost place after the one before

Leftmost is right, because what follows a part can only gain by an earlier place. No regular expressions: time
is linear in the text (`str.find` where a part has no `_`; else one bit per character of the part, shifted
along the text).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

Part = tuple[str | None, ...]
"""Characters between two `%`; None is `_`."""


@dataclass(frozen=True)
class Like:
    """A compiled pattern; `parts` has one more element than the pattern has `%`.

    >>> Like.of("a!%%_", "!").parts
    (('a', '%'), (None,))
    >>> Like.of("a%_c").matches("abbc"), Like.of("a%_c").matches("ac")
    (True, False)
    """

    parts: tuple[Part, ...]

    @classmethod
    def of(cls, pattern: str, escape: str | None = None) -> Like:
        """Compile a pattern whose escapes were checked (`checking.py`)."""
        if escape is None and "_" not in pattern:
            return cls(tuple(map(tuple, pattern.split("%"))))
        parts: list[list[str | None]] = [[]]
        characters = iter(pattern)
        for c in characters:
            if c == escape:
                parts[-1].append(next(characters))
            elif c == "%":
                parts.append([])
            else:
                parts[-1].append(None if c == "_" else c)
        return cls(tuple(map(tuple, parts)))

    @property
    def prefix(self) -> str:
        """The text that every match begins with: all before the first wildcard."""
        first = self.parts[0]
        return _text(first[: first.index(None)] if None in first else first)

    @property
    def is_literal(self) -> bool:
        """Only `prefix` itself matches."""
        return len(self.parts) == 1 and None not in self.parts[0]

    @property
    def is_prefix(self) -> bool:
        """Everything that begins with `prefix` matches, and nothing else."""
        return len(self.parts) > 1 and None not in self.parts[0] and not any(self.parts[1:])

    @cached_property
    def matches(self) -> Callable[[str], bool]:
        """Tell whether the whole of a text fits. Cost: O(length of the text)."""
        if self.is_literal:
            return self.prefix.__eq__
        if self.is_prefix:
            prefix = self.prefix
            return lambda text: text.startswith(prefix)
        if len(self.parts) == 1:
            whole = self.parts[0]
            return lambda text: len(text) == len(whole) and _fits(whole, text, 0)
        first, last = self.parts[0], self.parts[-1]
        between = [_finder(part) for part in self.parts[1:-1] if part]

        def matches(text: str) -> bool:
            position, end = len(first), len(text) - len(last)
            if position > end or not _fits(first, text, 0) or not _fits(last, text, end):
                return False
            for find in between:
                position = find(text, position, end)
                if position < 0:
                    return False
            return True

        return matches


def _text(part: Part) -> str:
    return "".join(c for c in part if c is not None)


def _fits(part: Part, text: str, start: int) -> bool:
    return all(c is None or c == text[start + i] for i, c in enumerate(part))


def _finder(part: Part) -> Callable[[str, int, int], int]:
    """Return a function that gives the end of the leftmost place of `part` in text[start:end], or -1."""
    if None not in part:
        wanted = _text(part)

        def find(text: str, start: int, end: int) -> int:
            found = text.find(wanted, start, end)
            return found if found < 0 else found + len(wanted)

        return find
    anywhere = sum(1 << i for i, c in enumerate(part) if c is None)
    places = {c: anywhere | sum(1 << i for i, other in enumerate(part) if other == c) for c in part if c is not None}
    whole = 1 << (len(part) - 1)

    def shift(text: str, start: int, end: int) -> int:
        begun = 0  # bit i: the last i + 1 characters fit the first i + 1 of the part
        for i in range(start, end):
            begun = (begun << 1 | 1) & places.get(text[i], anywhere)
            if begun & whole:
                return i + 1
        return -1

    return shift
