"""The filter language (docs/filters.md): text to the one tree.

    text ──tokens──> words ──parser──> what was written ──check──> tree, NOT at the leaves, flat
      │    one regular expression      places, depth, count       attribute, kind, limits    │
      └──literals only, where a text of the same form was read before (`forms.py`)───────────┘

The parser is written by hand: it takes each token once, keeps a stack of its own and never backtracks, so a
hostile text costs what a friendly one of the same length costs. Where a token begins is asked only of a text
that is refused, and found by cutting it up again. Faults are reported in this order: size, syntax, depth and
number of predicates, then attributes and kinds from left to right. The grammar as such is
`tests/filters/filter.lark`, by which the tests judge every answer and every message.

Numbers are SQL's: an optional sign right before digits, `5` `-5` `+5` `5.` `.5` `1e3`; without point and
exponent it is an integer. Keywords are reserved: an attribute called `in` is written `"in"`.

Depth counts each bracket and each NOT that encloses a predicate; `NOT (` is one step. `IN (…)` opens no step.
Left out of SQL: arithmetic, functions, comparison of two attributes, sub-selects, comments.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import accumulate, islice, product
from typing import NamedTuple

import msgspec

from state.errors import FilterError
from state.filters.checking import BYTES_MAX, DEPTH_MAX, PREDICATES_MAX, Scalar, checked, limited, shown
from state.filters.forms import (
    NUMBER,
    NUMERALS,
    WORDS_MAX,
    cut,
    form_of,
    known_forms,
    quoted_text,
    remember,
    spelled_number,
)
from state.filters.tree import TRUE, Filter, Operator, conjunction, disjunction, negated
from state.space.event_type import EventType

KEYWORDS = frozenset({"AND", "OR", "NOT", "BETWEEN", "IN", "LIKE", "ESCAPE", "IS", "NULL", "EXISTS", "TRUE", "FALSE"})
"""Reserved words."""

_COMPARISONS = {o.value: o for o in Operator if not o.value[0].isalpha()} | {"<>": Operator.NE}
# Every spelling of a keyword, ASCII in any case: upper() would make keywords of other letters as well, the
# dotless i of Turkish becomes I.
_WORDS = {"".join(letters): word for word in KEYWORDS for letters in product(*((c, c.lower()) for c in word))}
_WORDS |= {mark: mark for mark in ("(", ")", ",", *_COMPARISONS)}

_LEXEME = re.compile(rf"""[<>]=|<>|!=|[=<>(),]|{NUMBER}|'(?:[^']|'')*+'|"(?:[^"]|"")*+"|[^\W0-9]\w*""")
# Any other character is a token too, which nothing expects; the end is an empty one.
_TOKEN = re.compile(rf"[ \t\r\n\f\v]*+({_LEXEME.pattern}|(?s:.)|\Z)")

# What a message says was expected.
_TERM = "an attribute, (, NOT or EXISTS"
_FIRST_TERM = "an attribute, (, NOT, TRUE or EXISTS"
_OPERATOR = "a comparison, NOT, BETWEEN, IN, LIKE or IS"
_LITERAL = "a number, text in single quotes, TRUE or FALSE"


def parse(text: str, event_type: EventType, limits: bool = True) -> Filter:
    """Read a filter for events of this type.

    `limits=False` is for text that `to_text` made of an admitted filter: printing may have made it longer.

    Guarantee: a tree or FilterError, whatever the text; printing the tree and parsing that gives it again.
    Cost: O(length), with a length of at most 4096 bytes.

    >>> from state.space.event_type import Attribute, EventType
    >>> quote = EventType("quote", (Attribute("price", "float"), Attribute("symbol", "text")))
    >>> tree = parse("price < 100 AND NOT (symbol IN ('IBM','SAP') OR EXISTS symbol)", quote)
    >>> [child.operator.value for child in tree.children]
    ['<', 'NOT IN', 'IS NULL']
    >>> parse("price IS 5", quote)
    Traceback (most recent call last):
    state.errors.FilterError: filter-syntax: found '5' where NOT or NULL was expected (at character 10)
    """
    _judge_size(text, limits)
    words, literals = cut(text)
    forms = known_forms(event_type)
    form = forms.get(words)
    tree = None if form is None else form.filled(literals)
    if tree is not None:
        return tree
    what = written(text, limits)
    tree = admitted(what, event_type) if limits else _tree(what.node, event_type)
    if form is None and len(words) <= WORDS_MAX and what.depth <= DEPTH_MAX and what.predicates <= PREDICATES_MAX:
        form = form_of(tree, _places(what.node, text), event_type)
        if form is not None:
            remember(forms, words, form)
    return tree


class Leaf(msgspec.Struct, frozen=True, gc=False):
    """A predicate as it was written, before attribute and kinds are looked at."""

    name: str
    operator: Operator
    literals: Sequence[Scalar]
    text: str
    place: int
    """The number of the token that is its name."""

    def at(self, literal: int | None) -> int:
        """Where in the text its name begins (None), or one of its literals."""
        tokens = list(_TOKEN.finditer(self.text))[self.place :]
        literals = [token for token in tokens[1:] if _literal(token[1]) is not None]
        return (tokens[0] if literal is None else literals[literal]).start(1)


class Branch(msgspec.Struct, frozen=True, gc=False):
    """Some parts as they were written together; of a NOT there is one, of TRUE none."""

    kind: str  # true, and, or, not
    children: Sequence[Node]


Node = Leaf | Branch


class Written(NamedTuple):
    """A filter as it was written; brackets are gone, what they enclose stands together."""

    node: Node
    depth: int
    """Levels of brackets and NOT."""
    predicates: int


def written(text: str, limits: bool = True) -> Written:
    """Parse without an event type; only size and syntax are judged."""
    _judge_size(text, limits)
    tokens = _TOKEN.findall(text)
    if _WORDS.get(tokens[0]) == "TRUE":
        if tokens[1]:
            raise _unexpected(text, 1, "the end")
        return Written(Branch("true", ()), 0, 0)
    return _disjunction(text, tokens)


def _judge_size(text: str, limits: bool) -> None:
    if text.isascii() and len(text) <= BYTES_MAX:
        return
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise FilterError("filter-syntax", "half of a surrogate pair is no character", error.start) from None
    if limits:
        limited("bytes of UTF-8", size, BYTES_MAX)


def admitted(what: Written, event_type: EventType, depth: int = 0, predicates: int = 0) -> Filter:
    """Apply limits and event type; `depth` and `predicates` is what surrounds the text in a JSON filter."""
    limited("levels of brackets and NOT", depth + what.depth, DEPTH_MAX)
    limited("predicates", predicates + what.predicates, PREDICATES_MAX)
    return _tree(what.node, event_type)


def number(text: str) -> int | float | None:
    """What a text spells as a number literal, or None."""
    return spelled_number(text) if re.fullmatch(NUMBER, text) else None


def _tree(node: Node, event_type: EventType) -> Filter:
    if isinstance(node, Leaf):
        return checked(node.name, node.operator, node.literals, event_type, node.at)
    match node.kind:
        case "and":
            return conjunction([_tree(child, event_type) for child in node.children])
        case "or":
            return disjunction([_tree(child, event_type) for child in node.children])
        case "not":
            return negated(_tree(node.children[0], event_type))
        case _:
            return TRUE


# --- the parser ---------------------------------------------------------------------------------------------


def _disjunction(text: str, tokens: list[str]) -> Written:
    """The whole of a filter but TRUE: terms, joined by AND, OR and brackets, which lie on a stack of their own."""
    around: list[tuple[list[Node], list[Node], int, int]] = []
    any_of: list[Node] = []  # conjunctions that are complete
    all_of: list[Node] = []  # terms of the one that is not
    nots = level = i = depth = predicates = 0
    while True:
        word = _WORDS.get(tokens[i])
        if word == "NOT":
            nots += 1
            i += 1
            continue
        if word == "(":
            around.append((any_of, all_of, nots, level))
            level += nots or 1  # a NOT with its bracket is one step
            any_of, all_of, nots = [], [], 0
            i += 1
            continue
        leaf, i = _predicate(text, tokens, i)
        predicates += 1
        if level + nots > depth:
            depth = level + nots
        node: Node = leaf
        while True:
            for _ in range(nots):
                node = Branch("not", (node,))
            all_of.append(node)
            nots = 0
            word = _WORDS.get(tokens[i])
            if word != ")" or not around:
                break
            node = _joined(any_of, all_of)
            any_of, all_of, nots, level = around.pop()
            i += 1
        if word == "OR":
            any_of.append(all_of[0] if len(all_of) == 1 else Branch("and", all_of))
            all_of = []
        elif word != "AND":
            if tokens[i] or around:
                raise _unfinished(text, tokens, i, leaf, bool(around))
            return Written(_joined(any_of, all_of), depth, predicates)
        i += 1


def _joined(any_of: list[Node], all_of: list[Node]) -> Node:
    last = all_of[0] if len(all_of) == 1 else Branch("and", all_of)
    return Branch("or", [*any_of, last]) if any_of else last


def _predicate(text: str, tokens: list[str], i: int) -> tuple[Leaf, int]:
    """One predicate from token i on, and the number of the token behind it."""
    name = _name(tokens[i])
    if name is None:
        if _WORDS.get(tokens[i]) != "EXISTS":
            raise _unexpected(text, i, _TERM if i else _FIRST_TERM)
        name = _name(tokens[i + 1])
        if name is None:
            raise _unexpected(text, i + 1, "an attribute")
        return Leaf(name, Operator.IS_NOT_NULL, (), text, i + 1), i + 2
    operator = _COMPARISONS.get(tokens[i + 1])
    if operator is None:
        return _worded(text, tokens, i, name)
    value = _literal(tokens[i + 2])
    if value is None:
        raise _unexpected(text, i + 2, _LITERAL)
    return Leaf(name, operator, (value,), text, i), i + 3


def _worded(text: str, tokens: list[str], place: int, name: str) -> tuple[Leaf, int]:
    """A predicate whose operator is a word."""
    i = place + 1
    word = _WORDS.get(tokens[i])
    if word == "IS":
        return _null(text, tokens, place, name)
    negative = word == "NOT"
    if negative:
        i += 1
        word = _WORDS.get(tokens[i])
    literals: list[Scalar] = []
    match word:
        case "BETWEEN":
            i = _take(text, tokens, i + 1, literals)
            if _WORDS.get(tokens[i]) != "AND":
                raise _unexpected(text, i, "AND")
            i = _take(text, tokens, i + 1, literals)
            operator = Operator.NOT_BETWEEN if negative else Operator.BETWEEN
        case "IN":
            if tokens[i + 1] != "(":
                raise _unexpected(text, i + 1, "(")
            i = _take(text, tokens, i + 2, literals)
            while tokens[i] == ",":
                i = _take(text, tokens, i + 1, literals)
            if tokens[i] != ")":
                raise _unexpected(text, i, ", or )")
            i += 1
            operator = Operator.NOT_IN if negative else Operator.IN
        case "LIKE":
            i = _take(text, tokens, i + 1, literals)
            if _WORDS.get(tokens[i]) == "ESCAPE":
                if not tokens[i + 1].startswith("'") or tokens[i + 1] == "'":
                    raise _unexpected(text, i + 1, "text in single quotes")
                i = _take(text, tokens, i + 1, literals)
            operator = Operator.NOT_LIKE if negative else Operator.LIKE
        case _:
            raise _unexpected(text, i, "BETWEEN, IN or LIKE" if negative else _OPERATOR)
    return Leaf(name, operator, literals, text, place), i


def _null(text: str, tokens: list[str], place: int, name: str) -> tuple[Leaf, int]:
    negative = _WORDS.get(tokens[place + 2]) == "NOT"
    i = place + 2 + negative
    if _WORDS.get(tokens[i]) != "NULL":
        raise _unexpected(text, i, "NULL" if negative else "NOT or NULL")
    return Leaf(name, Operator.IS_NOT_NULL if negative else Operator.IS_NULL, (), text, place), i + 1


def _take(text: str, tokens: list[str], i: int, literals: list[Scalar]) -> int:
    """Take the literal that token i must be; the number of the next token."""
    value = _literal(tokens[i])
    if value is None:
        raise _unexpected(text, i, _LITERAL)
    literals.append(value)
    return i + 1


@lru_cache(maxsize=1024)
def _name(token: str) -> str | None:
    """The name that a token is, or None."""
    first = token[:1]
    if first == '"':
        return token[1:-1].replace('""', '"') if len(token) > 1 else None
    # What begins with a letter, an underscore or a digit that is none of 0 to 9 is a name to the expression.
    if not (first.isalnum() or first == "_") or first in NUMERALS or token in _WORDS:
        return None
    return token


def _literal(token: str) -> Scalar | None:
    """The value that a token is, or None."""
    first = token[:1]
    if first == "'":
        return quoted_text(token)
    if first in NUMERALS:
        return spelled_number(token)
    word = _WORDS.get(token)
    return True if word == "TRUE" else False if word == "FALSE" else None


def _places(node: Node, text: str) -> list[list[int]]:
    """Of each predicate, which of the literals of a text are its own; TRUE and FALSE are words and have no number."""
    tokens = _TOKEN.findall(text)
    numbers = list(accumulate((_literal(token) is not None and token not in _WORDS for token in tokens), initial=0))
    every = []
    for leaf in _leaves(node):
        own = [i for i in range(leaf.place + 1, len(tokens)) if _literal(tokens[i]) is not None][: len(leaf.literals)]
        every.append([numbers[i] for i in own if tokens[i] not in _WORDS])
    return every


def _leaves(node: Node) -> Iterator[Leaf]:
    if isinstance(node, Leaf):
        yield node
    else:
        for child in node.children:
            yield from _leaves(child)


# --- messages -----------------------------------------------------------------------------------------------


def _unexpected(text: str, i: int, expected: str) -> FilterError:
    """The error of a text whose token i is none of what is expected there."""
    match = next(islice(_TOKEN.finditer(text), i, None))
    token, position = match[1], match.start(1)
    if not token:
        return FilterError("filter-syntax", f"the filter ends where {expected} was expected", len(text))
    if not _LEXEME.fullmatch(token):
        if token in "'\"":
            return FilterError("filter-syntax", f"the quote {token} is never closed", position)
        return FilterError("filter-syntax", f"{shown(token)} has no meaning here", position)
    null = _WORDS.get(token) == "NULL" and "NULL" not in expected
    hint = "; nothing equals NULL, use IS NULL" if null else ""
    return FilterError("filter-syntax", f"found {shown(token)} where {expected} was expected{hint}", position)


def _unfinished(text: str, tokens: list[str], i: int, last: Leaf, bracketed: bool) -> FilterError:
    """The error of a text that neither ends nor goes on behind a term, whose last predicate this is."""
    if tokens[i] == (")" if not bracketed else ""):
        return _unexpected(text, i, ")" if bracketed else "the end")
    like = last.operator in (Operator.LIKE, Operator.NOT_LIKE) and len(last.literals) == 1 and tokens[i - 1] != ")"
    words = [*([")"] if bracketed else []), *(["ESCAPE"] if like else []), "AND", "OR"]
    words += [] if bracketed else ["the end"]
    return _unexpected(text, i, f"{', '.join(words[:-1])} or {words[-1]}")
