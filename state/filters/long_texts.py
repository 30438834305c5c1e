"""Long texts that a filter asks for by name, and its boxes with their hashes as further dimensions.

A box says `text in [rank, rank]` for every text that shares 7 bytes; `state/space/text_hashes.py` says why that is not
enough, and what stands beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from state.arrays import Ints
from state.filters.tree import And, Filter, Operator, Predicate
from state.space.boxes import Boxes
from state.space.event_type import EventType
from state.space.ranks import ABSENT, PRESENT_MAX, text_is_exact, text_rank
from state.space.text_hashes import text_hash

TEXTS_MAX = 16
"""Texts of one `IN` for which a box is kept each; more are left to the filter."""

Asked = tuple[int, tuple[str, ...]]
"""The column of an attribute, and the texts of which it must have one."""


def asked_texts(filter: Filter, event_type: EventType) -> Asked | None:
    """The texts of which an event must have one to satisfy a filter, where ranks do not tell them apart.

    >>> from state.filters.grammar import parse
    >>> from state.space.event_type import Attribute
    >>> page = EventType("page", (Attribute("url", "text"), Attribute("x", "int")))
    >>> asked_texts(parse("x > 5 AND url = 'https://shop/items/7'", page), page)
    (0, ('https://shop/items/7',))
    >>> asked_texts(parse("x > 5 OR url = 'https://shop/items/7'", page), page)
    """
    found: list[Asked] = []
    for child in filter.children if isinstance(filter, And) else (filter,):
        if not isinstance(child, Predicate) or child.operator not in (Operator.EQ, Operator.IN):
            continue
        column = event_type.dimension[child.attribute]
        texts = tuple(value for value in child.values if isinstance(value, str))
        is_text = event_type.attributes[column].kind == "text" and len(texts) <= TEXTS_MAX
        if is_text and not all(map(text_is_exact, texts)):
            found.append((column, texts))
    return min(found, key=lambda asked: len(asked[1]), default=None)


def with_hashes(boxes: Boxes, asked: Mapping[int, Asked], columns: Sequence[int]) -> tuple[Boxes, Ints]:
    """Boxes with one more dimension for each of `columns`: the hash of its text; and for each the row it came from.

    `asked`: by row, what its filter asks for. Guarantee: an event that satisfies the filter of a row and lies in its
    box lies in one that came from it. A row of several texts comes once for each that lies in it.
    """
    hashes = {row: _hashes(boxes, row, *texts) for row, texts in asked.items()}
    counts = np.ones(len(boxes), np.int64)
    counts[list(hashes)] = [max(1, len(each)) for each in hashes.values()]
    source = np.repeat(np.arange(len(boxes)), counts)
    ends = np.cumsum(counts)
    lows, highs = np.full((len(source), len(columns)), ABSENT), np.full((len(source), len(columns)), PRESENT_MAX)
    for row, each in hashes.items():
        if each:
            at, column = slice(ends[row] - len(each), ends[row]), columns.index(asked[row][0])
            lows[at, column] = highs[at, column] = each
    return Boxes(np.hstack([boxes.lows[source], lows]), np.hstack([boxes.highs[source], highs])), source


def _hashes(boxes: Boxes, row: int, column: int, texts: tuple[str, ...]) -> list[int]:
    """The hashes of those texts that lie in a box; none: the box stays as it is."""
    low, high = int(boxes.lows[row, column]), int(boxes.highs[row, column])
    return [text_hash(text) for text in texts if low <= text_rank(text) <= high]
