"""Overlap decided by trying every event of a small product of domains, with the oracle's own evaluation.

The domains hold, beside every literal that the filters use, one value of every gap between literals, and absent: an
event outside of them satisfies exactly the predicates that some event inside does. So without LIKE "no witness" means
that there is none at all; with LIKE only a witness proves something.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from state.space.event_type import Attribute, EventType
from tests import oracle

Bools = NDArray[np.bool_]

TYPE = EventType(
    "small",
    (
        Attribute("n", "int"),
        Attribute("t", "text"),
        Attribute("c", "category", values=("low", "mid", "top")),
        Attribute("b", "boolean"),
    ),
)
PLAIN: dict[str, dict[str, Any]] = {
    "n": {"kind": "int"},
    "t": {"kind": "text"},
    "c": {"kind": "category", "values": ["low", "mid", "top"]},
    "b": {"kind": "boolean"},
}
TEXTS = ["a", "ab", "abcdefgh", "abcdefgi", "b"]
VALUES: dict[str, list[Any]] = {
    "n": [None, -1, 0, 1, 2, 3, 4],
    "t": [None, "", *(text + tail for text in TEXTS for tail in ("", "\0"))],
    "c": [None, "low", "mid", "top"],
    "b": [None, False, True],
}
LITERALS = {
    "n": ["0", "1", "2", "3", "1.5"],
    "t": [f"'{text}'" for text in TEXTS],
    "c": ["'low'", "'mid'", "'top'"],
    "b": ["true", "false"],
}
PATTERNS = ["a%", "%b", "_", "a_", "%a%", "a%b", "ab", "%", "__%"]
NAMES = tuple(VALUES)


@dataclass(frozen=True)
class Grid:
    """Every combination of some attributes' values."""

    names: tuple[str, ...] = NAMES

    def truth(self, text: str) -> Bools:
        """Which events of the grid satisfy a filter, as an array with one axis per attribute."""
        return self._truth(oracle.parse(text))[0]

    def overlap(self, one: str, other: str) -> bool:
        """Whether some event satisfies both."""
        return bool((self.truth(one) & self.truth(other)).any())

    def _truth(self, tree: oracle.Tree) -> tuple[Bools, Bools]:
        """Where the tree is true, and where it is false; nowhere both, and unknown elsewhere."""
        shape = tuple(len(VALUES[name]) for name in self.names)
        match tree:
            case ("true",):
                return np.ones(shape, bool), np.zeros(shape, bool)
            case ("group", inner):
                return self._truth(inner)
            case ("not", inner):
                true, false = self._truth(inner)
                return false, true
            case ("and" | "or" as word, parts):
                each = [self._truth(part) for part in parts]
                some, every = np.logical_or.reduce, np.logical_and.reduce
                trues, falses = [t for t, _ in each], [f for _, f in each]
                return (every(trues), some(falses)) if word == "and" else (some(trues), every(falses))
            case ("leaf", name, *_):
                axis = [1] * len(shape)
                axis[self.names.index(name)] = len(VALUES[name])
                true, false = _answers(*tree[1:4], tuple(tree[4]))
                return np.broadcast_to(true.reshape(axis), shape), np.broadcast_to(false.reshape(axis), shape)
        raise AssertionError(tree)


@lru_cache(maxsize=4096, typed=True)
def _answers(name: str, operator: str, negated: bool, literals: tuple[Any, ...]) -> tuple[Bools, Bools]:
    leaf = ("leaf", name, operator, negated, list(literals))
    events = [{name: value} for value in VALUES[name]]
    true, false = ([oracle.evaluate(tree, event, PLAIN) for event in events] for tree in (leaf, ("not", leaf)))
    return np.array(true), np.array(false)


@st.composite
def leaves(draw: st.DrawFn, names: tuple[str, ...] = NAMES, like: bool = False) -> str:
    """One predicate as text."""
    name = draw(st.sampled_from(names))
    literal = st.sampled_from(LITERALS[name])
    no = draw(st.sampled_from(["", "NOT "]))
    forms = ["compare", "compare", "in", "null"] + ["between"] * (name != "b")
    forms += ["like", "like"] * (like and name in "tc")
    match draw(st.sampled_from(forms)):
        case "compare":
            operators = ["=", "!=", "<", "<=", ">", ">="][: 2 if name == "b" else 6]
            return f"{name} {draw(st.sampled_from(operators))} {draw(literal)}"
        case "in":
            return f"{name} {no}IN ({', '.join(draw(st.lists(literal, min_size=1, max_size=3)))})"
        case "null":
            return f"{name} IS {no}NULL"
        case "between":
            return f"{name} {no}BETWEEN {draw(literal)} AND {draw(literal)}"
    return f"{name} {no}LIKE '{draw(st.sampled_from(PATTERNS))}'"


def filters(leaf: st.SearchStrategy[str] | None = None, max_leaves: int = 8) -> st.SearchStrategy[str]:
    """Filters as text: TRUE, predicates, and trees of them."""

    def grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        several = st.lists(inner, min_size=2, max_size=3)
        return st.one_of(
            several.map(lambda parts: f"({' AND '.join(parts)})"),
            several.map(lambda parts: f"({' OR '.join(parts)})"),
            inner.map(lambda part: f"NOT ({part})"),
        )

    leaf = leaves() if leaf is None else leaf
    return st.one_of(st.just("TRUE"), *[st.recursive(leaf, grown, max_leaves=max_leaves)] * 15)


def conjunctions(leaf: st.SearchStrategy[str] | None = None) -> st.SearchStrategy[str]:
    """Conjunctions as text; attributes may be restricted more than once."""
    leaf = leaves() if leaf is None else leaf
    return st.lists(leaf, min_size=1, max_size=6).map(" AND ".join)
