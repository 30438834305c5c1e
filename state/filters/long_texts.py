"""Long texts, and long beginnings of texts, that a filter asks for: its boxes with their traits as further dimensions.

A box says `text in [rank, rank]` for every text that shares 7 bytes; `state/space/text_hashes.py` says why that is not
enough, and what stands beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from state.arrays import Ints
from state.filters.like import Like
from state.filters.tree import And, Filter, Operator, Predicate
from state.space.boxes import Boxes
from state.space.event_type import EventType
from state.space.ranks import TEXT_BYTES, Span, text_is_exact, text_rank
from state.space.text_hashes import WHOLE, prefix_span, steps_of, text_hash

TEXTS_MAX = 16
"""Texts of one `IN` for which a box is kept each; more are left to the filter."""


class Asked(NamedTuple):
    """The column of an attribute, and the texts of which it must be one; or the text that it must begin with."""

    column: int
    texts: tuple[str, ...]
    prefix: bool = False

    @property
    def steps(self) -> int:
        """The steps of the trait that tells most."""
        return steps_of(self.texts[0]) if self.prefix else WHOLE

    def spans(self, steps: int, low: int, high: int) -> list[Span]:
        """Where this trait lies of a text that is asked for; `low` to `high`: what its rank is limited to."""
        if self.prefix:
            return [prefix_span(self.texts[0], steps)]
        hashes = [text_hash(text) for text in self.texts if low <= text_rank(text) <= high]
        return [(found, found) for found in hashes]


def asked_texts(filter: Filter, event_type: EventType) -> Asked | None:
    """The texts of which an event must have one to satisfy a filter, where ranks do not tell them apart.

    >>> from state.filters.grammar import parse
    >>> from state.space.event_type import Attribute
    >>> page = EventType("page", (Attribute("url", "text"), Attribute("x", "int")))
    >>> asked_texts(parse("x > 5 AND url = 'https://shop/items/7'", page), page)
    Asked(column=0, texts=('https://shop/items/7',), prefix=False)
    >>> asked_texts(parse("x > 5 AND url LIKE 'https://shop/%/7'", page), page)
    Asked(column=0, texts=('https://shop/',), prefix=True)
    >>> asked_texts(parse("x > 5 OR url = 'https://shop/items/7'", page), page)
    """
    children = filter.children if isinstance(filter, And) else (filter,)
    leaves = (_asked(child, event_type) for child in children if isinstance(child, Predicate))
    found = [asked for asked in leaves if asked is not None]
    return min(found, key=lambda asked: (asked.prefix, len(asked.texts), -len(asked.texts[0])), default=None)


def _asked(leaf: Predicate, event_type: EventType) -> Asked | None:
    column = event_type.dimension[leaf.attribute]
    if event_type.attributes[column].kind != "text":
        return None
    texts = tuple(value for value in leaf.values if isinstance(value, str))
    if leaf.operator is Operator.LIKE:
        like = Like.of(*texts)
        if not like.is_literal:
            is_long = len(like.prefix.encode()) > TEXT_BYTES
            return Asked(column, (like.prefix,), True) if is_long else None
        texts = (like.prefix,)
    elif leaf.operator not in (Operator.EQ, Operator.IN):
        return None
    return Asked(column, texts) if len(texts) <= TEXTS_MAX and not all(map(text_is_exact, texts)) else None


def with_traits(boxes: Boxes, more: int, spans: Mapping[int, tuple[int, Sequence[Span]]]) -> tuple[Boxes, Ints]:
    """Boxes with so many more dimensions, and for each the row it came from.

    `spans`: by row, one of the further dimensions and where it must lie there. Guarantee: an event that lies in the box
    of a row, and has such a trait, lies in one that came from it. A row of several spans comes once for each; of none
    it stays as it is.
    """
    counts = np.ones(len(boxes), np.int64)
    counts[list(spans)] = [max(1, len(each)) for _, each in spans.values()]
    source = np.repeat(np.arange(len(boxes)), counts)
    wider, ends = boxes.take(source).widened(boxes.d + more), np.cumsum(counts)
    for row, (dimension, each) in spans.items():
        if each:
            at, column = slice(ends[row] - len(each), ends[row]), boxes.d + dimension
            wider.lows[at, column], wider.highs[at, column] = [low for low, _ in each], [high for _, high in each]
    return wider, source
