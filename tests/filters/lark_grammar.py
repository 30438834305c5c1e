"""The filter language as lark reads it from `filter.lark`: what the parser written by hand is judged by.

    read(text) ──> what was written, with every position, depth and count    or the words of the refusal

It shares no code with `state/filters/grammar.py`: lark's LALR(1) parser, its tables made from the grammar, and its own
account of which tokens would have been right.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from lark import Lark, Token, Transformer
from lark.common import LexerConf
from lark.exceptions import UnexpectedToken
from lark.lexer import Lexer, LexerState

TERMINALS = {
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
SPOKEN = {
    "NAME": "an attribute",
    "COMPARISON": "a comparison",
    "NUMBER": "a number",
    "TEXT": "text in single quotes",
    "LPAR": "(",
    "COMMA": ",",
    "RPAR": ")",
    **{terminal: word for word, terminal in TERMINALS.items()},
    "$END": "the end",
}
"""Terminals as people call them, in the order in which a message lists them."""
LITERALS: dict[str, Callable[[str], str | int | float | bool]] = {
    "NUMBER": lambda token: float(token) if set(token) & set(".eE") else int(token),
    "TEXT": lambda token: unquoted(token),
    "TRUE": lambda _: True,
    "FALSE": lambda _: False,
}


class Node(NamedTuple):
    """A filter as it was written."""

    kind: str  # true, and, or, not, group, predicate
    children: tuple[Any, ...]
    depth: int
    predicates: int


class Leaf(NamedTuple):
    """A predicate: its operator as words, each literal with the place where it begins."""

    name: str
    words: tuple[str, ...]
    literals: tuple[tuple[str | int | float | bool, int], ...]
    position: int
    depth: int = 0
    predicates: int = 1


class Refused(Exception):
    """A text that is no filter: why, and the character at fault."""

    def __init__(self, reason: str, position: int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.position = position


def read(text: str) -> Node | Leaf:
    """Parse by the grammar; raises Refused."""
    try:
        return parser().parse(text)  # type: ignore[return-value]
    except UnexpectedToken as error:
        raise refusal(text, error) from None


class Reductions:
    """What lark calls for each rule, with the tokens and results that it joins; named like the rules."""

    def start(self, children: list[Any]) -> Any:
        return children[0]

    def everything(self, _: list[Token]) -> Node:
        return Node("true", (), 0, 0)

    def all_of(self, children: list[Any]) -> Node:
        return joined("and", children)

    def any_of(self, children: list[Any]) -> Node:
        return joined("or", children)

    def group(self, children: list[Any]) -> Node:
        (child,) = children
        return Node("group", (child,), child.depth + 1, child.predicates)

    def negation(self, children: list[Any]) -> Node:
        child = children[1]
        bracketed = isinstance(child, Node) and child.kind == "group"
        return Node("not", (child,), child.depth + (not bracketed), child.predicates)

    def predicate(self, tokens: list[Token]) -> Leaf:
        name, *rest = tokens
        words, literals = [], []
        for token in rest:
            if token.type in LITERALS:
                literals.append((LITERALS[token.type](token.value), token.start_pos))
            else:
                words.append(token.value if token.type == "COMPARISON" else token.type)
        text = unquoted(name.value) if name.type == "QUOTED_NAME" else name.value
        return Leaf(text, tuple(words), tuple(literals), name.start_pos)


def joined(kind: str, children: list[Any]) -> Node:
    depth = max(child.depth for child in children)
    return Node(kind, tuple(children), depth, sum(child.predicates for child in children))


def unquoted(token: str) -> str:
    return token[1:-1].replace(token[0] * 2, token[0])


class Tokens(Lexer):
    """The grammar's terminals as one regular expression, with the blanks before each."""

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
                terminal = TERMINALS.get(value.upper(), terminal)
            yield Token(terminal, value, start)
        blanks = self.blanks.match(text, position)
        assert blanks is not None
        if blanks.end() < len(text):
            raise stray(text, blanks.end())


def grammar() -> str:
    return Path(__file__).with_name("filter.lark").read_text("utf-8")


@cache
def parser() -> Lark:
    return Lark(grammar(), parser="lalr", lexer=Tokens, transformer=Reductions(), maybe_placeholders=False)


def plain(algorithm: str) -> Callable[[str], Node | Leaf]:
    """The grammar used the plain way: lark's lexer, a tree of lark's first, then a Transformer over it."""

    def keyword(token: Token) -> Token:
        terminal = TERMINALS.get(token.upper())
        return token if terminal is None else Token.new_borrow_pos(terminal, token.value, token)

    reader = Lark(
        grammar(), parser=algorithm, lexer="basic", lexer_callbacks={"NAME": keyword}, maybe_placeholders=False
    )
    rules = {name: rule for name, rule in vars(Reductions).items() if not name.startswith("__")}
    transformer = type("Reduced", (Transformer,), rules)()
    return lambda text: transformer.transform(reader.parse(text))  # type: ignore[no-any-return]


def shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:59] + "…"


def stray(text: str, position: int) -> Refused:
    character = text[position]
    if character in "'\"":
        return Refused(f"the quote {character} is never closed", position)
    return Refused(f"{shown(character)} has no meaning here", position)


def refusal(text: str, error: UnexpectedToken) -> Refused:
    expected = expectation(error.accepts)
    if error.token.type == "$END":
        return Refused(f"the filter ends where {expected} was expected", len(text))
    hint = "; nothing equals NULL, use IS NULL" if error.token.type == "NULL" and "NULL" not in error.accepts else ""
    found = shown(str(error.token.value))
    return Refused(f"found {found} where {expected} was expected{hint}", error.token.start_pos)


def expectation(terminals: set[str]) -> str:
    words = [word for terminal, word in SPOKEN.items() if terminal in terminals]
    assert words, terminals
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
