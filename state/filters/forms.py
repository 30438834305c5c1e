"""Forms: what filters have in common that differ in their literals only, read once.

    price < 5 AND symbol = 'IBM'  ─┐   words     'price < ' ' AND symbol = '    parsed, checked and made a tree once
    price < 7 AND symbol = 'SAP'  ─┘   literals  7  'SAP'                       put in its place each, if it fits

Very many subscriptions of a type are few forms: whoever writes them has a program for it. A text of a known form is
cut at its literals by one regular expression, and never goes through the parser.

Why that is the same tree: between literals stand whole tokens, as the parser's own expression would cut them (names
take all digits that follow, quotes are closed, signs belong to numbers), and what a parser does with tokens does not
depend on what the literals among them are worth. A literal that does not fit its attribute is no business of a form:
the parser reads the text then, and says where the fault is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from math import isfinite
from typing import Any, NamedTuple

from state.filters.tree import And, Filter, Operator, Or, Predicate, Timestamp, Value, predicates
from state.space.event_type import Attribute, EventType
from state.space.ranks import timestamp_micros

NUMBER = r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
NUMERALS = frozenset("0123456789+-.")

_BETWEEN = r"""(?:[^\W0-9]\w*+[ \t\r\n\f\v<>=!(),]*+|[ \t\r\n\f\v<>=!(),]++|"(?:[^"]|"")*+")*+"""
_CUT = re.compile(rf"({_BETWEEN})('[^']*+(?:''[^']*+)*+'|{NUMBER}|(?s:.)|\Z)")
"""What is between two literals, and the literal behind it; a character that begins neither stands for one."""

WORDS_MAX = 130
"""Pieces of a text whose form is kept: 64 predicates have two literals each at most, but for long lists."""
FORMS_MAX = 1024
TYPES_MAX = 64
"""Forms kept of a type, and types: then all are forgotten, and read again."""

Words = tuple[str, ...]


def cut(text: str) -> tuple[Words, tuple[str, ...]]:
    """The words between literals, and the literals; together they are the text. Only the last literal is empty.

    >>> cut("a5 < -5.e3 AND b = 'it''s'")
    (('a5 < ', ' AND b = ', ''), ('-5.e3', "'it''s'", ''))
    """
    words, literals = zip(*_CUT.findall(text), strict=True)
    # A text that ends with words has its end matched twice; without this one that goes on would have the same words.
    return (words[:-1], literals[:-1]) if len(words) > 1 and not literals[-2] else (words, literals)


def quoted_text(token: str) -> str | None:
    """The text that a token is, or None."""
    return token[1:-1].replace("''", "'") if token[:1] == "'" and len(token) > 1 else None


def spelled_number(token: str) -> int | float | None:
    """The number that a token is, or None."""
    if token[:1] not in NUMERALS or not (len(token) > 1 or token.isdigit()):
        return None
    return float(token) if "." in token or "e" in token or "E" in token else int(token)


class _Slot(NamedTuple):
    """A predicate whose values are literals, in some places of the text."""

    name: str
    operator: Operator
    value: Callable[[str], Value | None]
    only: int
    """The place of its literal, if there is one; else -1."""
    places: Sequence[int]


class Form:
    """One tree without its literals."""

    def __init__(self, slots: list[_Slot | Predicate], shape: object) -> None:
        self._slots = slots
        self._shape = shape

    def filled(self, literals: Sequence[str]) -> Filter | None:
        """The tree with these literals; None if one of them does not fit."""
        leaves: list[Filter] = []
        for slot in self._slots:
            if slot.__class__ is Predicate:
                leaves.append(slot)  # type: ignore[arg-type]
                continue
            name, operator, value, only, places = slot  # type: ignore[misc]
            if only >= 0:
                one = value(literals[only])
                if one is None:
                    return None
                leaves.append(Predicate(name, operator, (one,)))
                continue
            values = tuple([value(literals[place]) for place in places])
            if None in values:
                return None
            leaves.append(Predicate(name, operator, values))  # type: ignore[arg-type]
        return _built(self._shape, leaves)


def form_of(tree: Filter, places: Sequence[Sequence[int]], event_type: EventType) -> Form | None:
    """The form of a tree; `places`: of each predicate's literals among all, those that are words left out.

    None for what is seldom written: LIKE with ESCAPE, whose two literals are checked together.
    """
    slots: list[_Slot | Predicate] = []
    for leaf, at in zip(predicates(tree), places, strict=True):
        if not at:  # IS NULL, = TRUE: always the same
            slots.append(leaf)
            continue
        like = leaf.operator in (Operator.LIKE, Operator.NOT_LIKE)
        if len(at) != len(leaf.values) or (like and len(at) > 1):
            return None
        value = quoted_text if like else _reader(event_type.attribute(leaf.attribute))
        slots.append(_Slot(leaf.attribute, leaf.operator, value, at[0] if len(at) == 1 else -1, at))
    numbers = iter(range(len(slots)))
    return Form(slots, _shape(tree, numbers.__next__))


def _reader(attribute: Attribute) -> Callable[[str], Value | None]:
    """What gives the value of this attribute that a literal is, or None."""
    if attribute.kind == "text":
        return quoted_text
    if attribute.kind in ("int", "float"):
        return _finite_number
    if attribute.kind == "category":
        return _spellings(attribute.values).get
    assert attribute.kind == "timestamp", "TRUE and FALSE are words, and no literals"
    return _spelled_time


def _spelled_time(token: str) -> Timestamp | None:
    # A quote inside is no part of a time, once or twice.
    micros = timestamp_micros(token[1:-1]) if token[:1] == "'" and len(token) > 1 else None
    return None if micros is None else Timestamp(micros)


@lru_cache(maxsize=TYPES_MAX)
def _spellings(values: tuple[str, ...]) -> dict[str, str]:
    """The values of a category by the one literal that each is."""
    return {"'" + value.replace("'", "''") + "'": value for value in values}


def _finite_number(token: str) -> int | float | None:
    """`spelled_number`, but for what overflows a double; all that an attribute of numbers asks of a literal."""
    if not token.isascii():
        return None
    if token.isdigit():
        return int(token)
    try:
        # A literal that is none of digits begins as no word does that Python takes for a number, such as `nan`.
        value = float(token)
    except ValueError:
        return None
    if "." in token or "e" in token or "E" in token:
        return value if isfinite(value) else None
    return int(token)


def _shape(tree: Filter, number: Callable[[], int]) -> object:
    """A tree with numbers for its leaves, from left to right."""
    if isinstance(tree, Predicate):
        return number()
    return type(tree), [_shape(child, number) for child in tree.children]


def _built(shape: Any, leaves: list[Filter]) -> Filter:
    if shape.__class__ is int:
        return leaves[shape]
    kind: type[And | Or]
    kind, children = shape
    return kind(tuple([leaves[c] if c.__class__ is int else _built(c, leaves) for c in children]))


class _Known(NamedTuple):
    event_type: EventType
    forms: dict[Words, Form]


_known: dict[int, _Known] = {}


def known_forms(event_type: EventType) -> dict[Words, Form]:
    """The forms that were seen of a type: by the very object, which is kept, so that no other has its id."""
    known = _known.get(id(event_type))
    if known is None:
        if len(_known) >= TYPES_MAX:
            _known.clear()
        known = _known[id(event_type)] = _Known(event_type, {})
    return known.forms


def remember(forms: dict[Words, Form], words: Words, form: Form) -> None:
    """Keep a form."""
    if len(forms) >= FORMS_MAX:
        forms.clear()
    forms[words] = form
