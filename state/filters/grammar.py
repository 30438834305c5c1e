"""The filter language (docs/filters.md): text to the one tree.

    text ──lexer──> tokens ──LALR(1)──> what was written ──check──> tree, NOT at the leaves, flat
          filter.lark                   positions, depth, count    attribute, kind, limits

The parser is lark's LALR: it keeps a stack of its own, takes each token once, and never backtracks, so a
hostile text costs what a friendly one of the same length costs. Faults are reported in this order: size,
syntax, depth and number of predicates, then attributes and kinds from left to right.

Numbers are SQL's: an optional sign right before digits, `5` `-5` `+5` `5.` `.5` `1e3`; without point and
exponent it is an integer. Keywords are reserved: an attribute called `in` is written `"in"`.

Depth counts each bracket and each NOT that encloses a predicate; `NOT (` is one step. `IN (…)` opens no step.
Left out of SQL: arithmetic, functions, comparison of two attributes, sub-selects, comments.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from lark import Lark, Token
from lark.common import LexerConf
from lark.exceptions import UnexpectedToken
from lark.lexer import Lexer, LexerState

from state.errors import FilterError
from state.filters.checking import BYTES_MAX, DEPTH_MAX, PREDICATES_MAX, Literal, checked, limited, shown
from state.filters.tree import TRUE, Filter, Operator, conjunction, disjunction, negated
from state.space.event_type import EventType

KEYWORDS = {
    "NOT": "NOT",
    "BETWEEN": "BETWEEN",
    "IN": "IN",
    "LIKE": "LIKE",
    "IS": "IS",
    "NULL": "NULL",
    "TRUE": "TRUE",
    "FALSE": "FALSE",
    "EXISTS": "_EXISTS",
    "ESCAPE": "_ESCAPE",
    "AND": "_AND",
    "OR": "_OR",
}
"""Reserved words and the terminal of each (lark leaves those with an underscore out of what it reduces)."""

_OPERATORS = {tuple(operator.value.split()): operator for operator in Operator} | {
    ("<>",): Operator.NE,
    (): Operator.IS_NOT_NULL,  # EXISTS
}
_WORDS = {
    "NAME": "an attribute",
    "COMPARISON": "a comparison",
    "NUMBER": "a number",
    "TEXT": "text in single quotes",
    "LPAR": "(",
    "COMMA": ",",
    "RPAR": ")",
    **{terminal: word for word, terminal in KEYWORDS.items()},
    "$END": "the end",
}
"""Terminals as people call them, in the order in which a message lists them."""


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
    if not limits:
        return _tree(written(text, limits), event_type)
    return admitted(written(text), event_type)


class Written(NamedTuple):
    """A filter as it was written: what lark reduces to, before attributes and kinds are looked at."""

    kind: str  # true, and, or, not, group, predicate
    children: tuple[Written, ...]
    depth: int
    predicates: int
    operator: Operator | None = None
    name: str = ""
    literals: tuple[Literal, ...] = ()
    position: int | None = None


def written(text: str, limits: bool = True) -> Written:
    """Parse without an event type; only size and syntax are judged."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise FilterError("filter-syntax", "half of a surrogate pair is no character", error.start) from None
    if limits:
        limited("bytes of UTF-8", size, BYTES_MAX)
    try:
        return _parser().parse(text)  # type: ignore[return-value]
    except UnexpectedToken as error:
        raise _syntax_error(text, error) from None


def admitted(node: Written, event_type: EventType, depth: int = 0, predicates: int = 0) -> Filter:
    """Apply limits and event type; `depth` and `predicates` is what surrounds the text in a JSON filter."""
    limited("levels of brackets and NOT", depth + node.depth, DEPTH_MAX)
    limited("predicates", predicates + node.predicates, PREDICATES_MAX)
    return _tree(node, event_type)


def _tree(node: Written, event_type: EventType) -> Filter:
    match node.kind:
        case "predicate":
            assert node.operator is not None
            return checked(node.name, node.operator, node.literals, event_type, node.position)
        case "and":
            return conjunction(_tree(child, event_type) for child in node.children)
        case "or":
            return disjunction(_tree(child, event_type) for child in node.children)
        case "not":
            return negated(_tree(node.children[0], event_type))
        case "group":
            return _tree(node.children[0], event_type)
        case _:
            return TRUE


class _Reductions:
    """What lark calls for each rule, with the tokens and results that it joins; named like the rules."""

    def start(self, children: list[Written]) -> Written:
        return children[0]

    def everything(self, _: list[Token]) -> Written:
        return Written("true", (), 0, 0)

    def all_of(self, children: list[Written]) -> Written:
        return _joined("and", children)

    def any_of(self, children: list[Written]) -> Written:
        return _joined("or", children)

    def group(self, children: list[Written]) -> Written:
        (child,) = children
        return Written("group", (child,), child.depth + 1, child.predicates)

    def negation(self, children: list[Token | Written]) -> Written:
        child = children[1]
        assert isinstance(child, Written)
        return Written("not", (child,), child.depth + (child.kind != "group"), child.predicates)

    def predicate(self, tokens: list[Token]) -> Written:
        name, *rest = tokens
        words, literals = [], []
        for token in rest:
            if token.type in _LITERALS:
                literals.append(Literal(_LITERALS[token.type](token.value), token.start_pos))
            else:
                words.append(token.value if token.type == "COMPARISON" else token.type)
        operator = _OPERATORS[tuple(words)]
        text = _unquoted(name.value) if name.type == "QUOTED_NAME" else name.value
        return Written("predicate", (), 0, 1, operator, text, tuple(literals), name.start_pos)


def _joined(kind: str, children: list[Written]) -> Written:
    depth = max(child.depth for child in children)
    return Written(kind, tuple(children), depth, sum(child.predicates for child in children))


def _unquoted(token: str) -> str:
    return token[1:-1].replace(token[0] * 2, token[0])


def _number(token: str) -> int | float:
    return float(token) if any(c in token for c in ".eE") else int(token)


def number(text: str) -> int | float | None:
    """What a text spells as a number literal, or None."""
    return _number(text) if re.fullmatch(_parser().get_terminal("NUMBER").pattern.value, text) else None


class _Tokens(Lexer):
    """The grammar's terminals as one regular expression, with the blanks before each.

    Takes half the time of lark's own lexer, which matches blanks apart and counts lines.
    """

    __future_interface__ = 2  # lark then passes its state as it is

    def __init__(self, conf: LexerConf) -> None:
        terminals = {terminal.name: terminal.pattern.to_regexp() for terminal in conf.terminals}
        blanks = "|".join(terminals.pop(name) for name in conf.ignore)
        each = "|".join(f"(?P<{name}>{pattern})" for name, pattern in terminals.items())
        self.blanks = re.compile(f"(?:{blanks})?")
        self.token = re.compile(f"(?:{blanks})?(?:{each})")

    def lex(self, lexer_state: LexerState, parser_state: object) -> Iterator[Token]:
        text, position = lexer_state.text.text, 0
        assert isinstance(text, str)
        while match := self.token.match(text, position):
            terminal = match.lastgroup
            assert terminal is not None
            start, position = match.span(terminal)
            value = text[start:position]
            # Outside ASCII, upper() makes keywords of other letters: the dotless i of Turkish becomes I.
            if terminal == "NAME" and value.isascii():
                terminal = KEYWORDS.get(value.upper(), terminal)
            yield Token(terminal, value, start)
        blanks = self.blanks.match(text, position)
        assert blanks is not None
        if blanks.end() < len(text):
            raise _stray(text, blanks.end())


@cache
def _parser() -> Lark:
    # Read once in each process, at the first filter: some 50 ms.
    return Lark(
        files(__package__).joinpath("filter.lark").read_text("utf-8"),
        parser="lalr",
        lexer=_Tokens,
        transformer=_Reductions(),
        maybe_placeholders=False,
    )


def _stray(text: str, position: int) -> FilterError:
    character = text[position]
    if character in "'\"":
        return FilterError("filter-syntax", f"the quote {character} is never closed", position)
    return FilterError("filter-syntax", f"{shown(character)} has no meaning here", position)


def _syntax_error(text: str, error: UnexpectedToken) -> FilterError:
    expected = _expectation(error.accepts)
    if error.token.type == "$END":
        return FilterError("filter-syntax", f"the filter ends where {expected} was expected", len(text))
    hint = "; nothing equals NULL, use IS NULL" if error.token.type == "NULL" and "NULL" not in error.accepts else ""
    found = shown(str(error.token.value))
    return FilterError("filter-syntax", f"found {found} where {expected} was expected{hint}", error.token.start_pos)


def _expectation(terminals: set[str]) -> str:
    words = [word for terminal, word in _WORDS.items() if terminal in terminals]
    assert words, terminals
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


_LITERALS: dict[str, Callable[[str], str | int | float | bool]] = {
    "NUMBER": _number,
    "TEXT": _unquoted,
    "TRUE": lambda _: True,
    "FALSE": lambda _: False,
}
