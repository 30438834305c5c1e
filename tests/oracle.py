"""The naive reference: what must come out, computed the slow and obvious way. Imports nothing of ours.

    refusal("price <", QUOTE)                     the code a filter is refused with, or None
    evaluate("price < 5", {"price": 3}, QUOTE)    whether an event satisfies a filter
    hilbert_ranges([0, 0], [1, 2], bits=2)        the cells of a box as closed ranges of Hilbert indices
    expected_deliveries(brokers, links, types, subscriptions, publications)
                                                  who must get what, by flooding the overlay

An event type is a plain dict, `{"price": {"kind": "float"}, "side": {"kind": "category", "values": [...]}}`,
an event the decoded JSON, a filter its text or its decoded CloudEvents form.

Written from the contract alone: a recursive descent parser; Kleene's three values (absent is unknown, only
what is true in the end matches) where the product pushes NOT to the leaves; fractions where it uses ranks; a
table where it runs through a pattern.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from fractions import Fraction
from typing import Any

Type = Mapping[str, Mapping[str, Any]]
Tree = tuple[Any, ...]
"""("true",), ("and" | "or", trees), ("not" | "group", tree), ("leaf", name, operator, negated, literals)"""


class Refused(Exception):
    """A filter that must be refused, with its code."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


# --- reading filters ---------------------------------------------------------------------------------------

KEYWORDS = {"AND", "OR", "NOT", "BETWEEN", "IN", "LIKE", "ESCAPE", "IS", "NULL", "EXISTS", "TRUE", "FALSE"}
DIGITS = "0123456789"


def tokens(text: str) -> list[tuple[str, Any]]:
    """Split a filter into (kind, value); kinds: name, quoted, text, number, operator, keyword, end."""
    result: list[tuple[str, Any]] = []
    i = 0
    while i < len(text):
        c = text[i]
        if c in " \t\r\n\f\v":
            i += 1
        elif c in "'\"":
            value, i = quoted(text, i)
            result.append(("text" if c == "'" else "quoted", value))
        elif c == "_" or (c.isalnum() and c not in DIGITS):
            end = i
            while end < len(text) and (text[end] == "_" or text[end].isalnum()):
                end += 1
            word = text[i:end]
            upper = "".join(chr(ord(x) - 32) if "a" <= x <= "z" else x for x in word)
            result.append(("keyword", upper) if upper in KEYWORDS else ("name", word))
            i = end
        elif text[i : i + 2] in ("<=", ">=", "<>", "!="):
            result.append(("operator", "!=" if text[i : i + 2] == "<>" else text[i : i + 2]))
            i += 2
        elif c in "=<>(),":
            result.append(("operator", c))
            i += 1
        else:
            value, i = number(text, i)
            result.append(("number", value))
    return [*result, ("end", None)]


def quoted(text: str, start: int) -> tuple[str, int]:
    quote, i, value = text[start], start + 1, ""
    while i < len(text):
        if text[i] != quote:
            value += text[i]
            i += 1
        elif text[i + 1 : i + 2] == quote:
            value += quote
            i += 2
        else:
            return value, i + 1
    raise Refused("filter-syntax")


def number(text: str, start: int) -> tuple[int | float, int]:
    def digits(i: int) -> int:
        while i < len(text) and text[i] in DIGITS:
            i += 1
        return i

    i = start + (text[start] in "+-")
    whole = digits(i)
    end = digits(whole + 1) if text[whole : whole + 1] == "." else whole
    if whole == i and end <= whole + 1:
        raise Refused("filter-syntax")
    if text[end : end + 1] in ("e", "E"):
        exponent = end + 1 + (text[end + 1 : end + 2] in ("+", "-"))
        if digits(exponent) > exponent:
            end = digits(exponent)
    written = text[start:end]
    return (int(written) if end == whole else float(written)), end


class Descent:
    """Recursive descent over the tokens; one method per rule."""

    def __init__(self, text: str) -> None:
        self.tokens = tokens(text)
        self.i = 0

    def take(self, kind: str, *values: str) -> Any:
        """The next token's value if it is of this kind (and one of these values), else None, not taken."""
        found, value = self.tokens[self.i]
        if found != kind or (values and value not in values):
            return None
        self.i += 1
        return value

    def need(self, kind: str, *values: str) -> Any:
        value = self.take(kind, *values)
        if value is None:
            raise Refused("filter-syntax")
        return value

    def whole(self) -> Tree:
        tree = ("true",) if self.take("keyword", "TRUE") else self.joined("OR", lambda: self.joined("AND", self.term))
        if self.tokens[self.i][0] != "end":
            raise Refused("filter-syntax")
        return tree

    def joined(self, word: str, part: Any) -> Tree:
        parts = [part()]
        while self.take("keyword", word):
            parts.append(part())
        return parts[0] if len(parts) == 1 else (word.lower(), parts)

    def term(self) -> Tree:
        if self.take("keyword", "NOT"):
            return ("not", self.term())
        if self.take("operator", "("):
            tree = self.joined("OR", lambda: self.joined("AND", self.term))
            self.need("operator", ")")
            return ("group", tree)
        if self.take("keyword", "EXISTS"):
            return ("leaf", self.name(), "null", True, [])
        return self.leaf()

    def name(self) -> str:
        if self.tokens[self.i][0] == "quoted":
            return str(self.need("quoted"))
        return str(self.need("name"))

    def leaf(self) -> Tree:
        name = self.name()
        operator = self.take("operator", "=", "!=", "<", "<=", ">", ">=")
        if operator:
            return ("leaf", name, operator, False, [self.literal()])
        if self.take("keyword", "IS"):
            negated = bool(self.take("keyword", "NOT"))
            self.need("keyword", "NULL")
            return ("leaf", name, "null", negated, [])
        negated = bool(self.take("keyword", "NOT"))
        operator = self.need("keyword", "BETWEEN", "IN", "LIKE").lower()
        if operator == "between":
            low = self.literal()
            self.need("keyword", "AND")
            return ("leaf", name, operator, negated, [low, self.literal()])
        if operator == "like":
            pattern = [self.literal()]
            if self.take("keyword", "ESCAPE"):
                pattern.append(self.need("text"))
            return ("leaf", name, operator, negated, pattern)
        self.need("operator", "(")
        literals = [self.literal()]
        while self.take("operator", ","):
            literals.append(self.literal())
        self.need("operator", ")")
        return ("leaf", name, operator, negated, literals)

    def literal(self) -> Any:
        kind, value = self.tokens[self.i]
        if kind in ("text", "number"):
            self.i += 1
            return value
        return self.need("keyword", "TRUE", "FALSE") == "TRUE"


def parse(text: str) -> Tree:
    """Read a filter; raises Refused("filter-syntax" or "filter-limit" for its size)."""
    if any(0xD800 <= ord(c) < 0xE000 for c in text):
        raise Refused("filter-syntax")
    if len(text.encode()) > 4096:
        raise Refused("filter-limit")
    return Descent(text).whole()


def from_json(value: Any) -> Tree:
    """Read a (valid) CloudEvents JSON filter."""
    if isinstance(value, list):
        return ("and", [from_json(element) for element in value])
    ((dialect, body),) = value.items()
    if dialect in ("all", "any"):
        return ("and" if dialect == "all" else "or", [from_json(element) for element in body])
    if dialect == "not":
        return ("not", from_json(body))
    if dialect == "sql":
        return parse(body)
    return ("and", [("leaf", name, dialect, False, [text]) for name, text in body.items()])


def refusal(text: str, type: Type) -> str | None:
    """The code that a filter text must be refused with, or None: size, syntax, limits, then left to right."""
    try:
        tree = parse(text)
        if nesting(tree) > 32 or len(list(leaves(tree))) > 64:
            raise Refused("filter-limit")
        for leaf in leaves(tree):
            check_leaf(leaf, type)
    except Refused as refused:
        return refused.code
    return None


def nesting(tree: Tree) -> int:
    """Levels of brackets and NOT; NOT with its bracket is one."""
    match tree:
        case ("and" | "or", parts):
            return max((nesting(part) for part in parts), default=0)
        case ("not", ("group", inner)) | ("not" | "group", inner):
            return 1 + nesting(inner)
    return 0


def leaves(tree: Tree) -> Iterable[Tree]:
    match tree:
        case ("leaf", *_):
            yield tree
        case ("and" | "or", parts):
            for part in parts:
                yield from leaves(part)
        case ("not" | "group", inner):
            yield from leaves(inner)


def check_leaf(leaf: Tree, type: Type) -> None:
    _, name, operator, _, literals = leaf
    if name not in type:
        raise Refused("filter-attribute")
    kind = type[name]["kind"]
    if operator == "like":
        if kind not in ("text", "category") or not isinstance(literals[0], str):
            raise Refused("filter-type")
        if len(literals) == 2:
            like_pieces(*literals)
        return
    if kind == "boolean" and operator in ("<", "<=", ">", ">=", "between"):
        raise Refused("filter-type")
    for literal in literals:
        numeric = isinstance(literal, int | float) and not isinstance(literal, bool)
        fits = {
            "int": numeric and math.isfinite(literal) if isinstance(literal, float) else numeric,
            "float": numeric and math.isfinite(literal) if isinstance(literal, float) else numeric,
            "boolean": isinstance(literal, bool),
            "category": isinstance(literal, str) and literal in type[name].get("values", ()),
            "timestamp": isinstance(literal, str) and micros(literal) is not None,
            "text": isinstance(literal, str),
        }[kind]
        if not fits:
            raise Refused("filter-type")


# --- values ------------------------------------------------------------------------------------------------


def value_of(raw: Any, attribute: Mapping[str, Any]) -> Any:
    """What an event's value counts as: something that compares exactly, or None for absent."""
    numeric = isinstance(raw, int | float) and not isinstance(raw, bool)
    if isinstance(raw, float) and not math.isfinite(raw):
        return None
    match attribute["kind"]:
        case "int":
            exact = Fraction(raw) if numeric else None
            usable = exact is not None and exact.denominator == 1 and abs(exact) <= 2**63 - 1
            return exact if usable else None
        case "float":
            if not numeric or abs(raw) >= 2**1024 - 2**970:  # rounds to infinity
                return None
            return Fraction(float(raw))
        case "boolean":
            return raw if isinstance(raw, bool) else None
        case "category":
            return attribute["values"].index(raw) if isinstance(raw, str) and raw in attribute["values"] else None
        case "timestamp":
            return micros(raw) if isinstance(raw, str) else None
        case "text":
            if not isinstance(raw, str) or any(0xD800 <= ord(c) < 0xE000 for c in raw):
                return None
            return [ord(c) for c in raw]
    raise AssertionError(attribute)


def literal_of(literal: Any, attribute: Mapping[str, Any]) -> Any:
    if attribute["kind"] in ("int", "float"):
        return Fraction(literal)
    return value_of(literal, attribute)


def micros(text: str) -> int | None:
    """RFC 3339 with an offset to microseconds since 1970, finer ones cut; None for anything else."""
    shape = "dddd-dd-ddTdd:dd:dd"
    head, rest = text[: len(shape)], text[len(shape) :]
    if len(head) < len(shape):
        return None
    for c, wanted in zip(head, shape, strict=True):
        if not (c in DIGITS if wanted == "d" else c in "Tt " if wanted == "T" else c == wanted):
            return None
    year, month, day = int(head[:4]), int(head[5:7]), int(head[8:10])
    hour, minute, second = int(head[11:13]), int(head[14:16]), int(head[17:19])
    fraction = ""
    if rest.startswith("."):
        while rest[1 + len(fraction) : 2 + len(fraction)] in tuple(DIGITS):
            fraction += rest[1 + len(fraction)]
        if not fraction:
            return None
        rest = rest[1 + len(fraction) :]
    offset = 0
    if rest not in ("Z", "z"):
        if len(rest) != 6 or rest[0] not in "+-" or rest[3] != ":" or not all(rest[i] in DIGITS for i in (1, 2, 4, 5)):
            return None
        if int(rest[1:3]) > 23 or int(rest[4:]) > 59:
            return None
        offset = (int(rest[1:3]) * 60 + int(rest[4:])) * (1 if rest[0] == "+" else -1)
    if hour > 23 or minute > 59 or second > 60:
        return None
    try:
        # 400 years always have the same number of days; `date` itself has no year 0.
        days = date(2000 + year % 400, month, day).toordinal() + (year // 400 - 5) * 146_097
    except ValueError:
        return None
    minutes = (days - date(1970, 1, 1).toordinal()) * 1440 + hour * 60 + minute - offset
    if second == 60 and minutes % 1440 != 1439:
        return None
    return (minutes * 60 + second) * 10**6 + int((fraction + "000000")[:6])


# --- evaluation --------------------------------------------------------------------------------------------


def tree_of(filter: str | Tree | dict[str, Any] | list[Any]) -> Tree:
    """The tree of a filter, once for many evaluations."""
    if isinstance(filter, tuple):
        return filter
    return parse(filter) if isinstance(filter, str) else from_json(filter)


def evaluate(filter: str | Tree | dict[str, Any] | list[Any], event: Mapping[str, Any], type: Type) -> bool:
    """Tell whether an event satisfies a filter: its text, its tree, or its CloudEvents form."""
    filter = tree_of(filter)
    choices = {
        name: interval_candidates(filter, name, event[name], attribute)
        for name, attribute in type.items()
        if attribute.get("imprecise") and isinstance(event.get(name), dict)
    }
    choices = {name: candidates for name, candidates in choices.items() if candidates}
    certain = [name for name in choices if type[name]["imprecise"] == "certain"]
    possible = [name for name in choices if name not in certain]
    return all(
        any(
            truth(filter, event, type, dict(zip([*certain, *possible], (*sure, *maybe), strict=True))) is True
            for maybe in itertools.product(*(choices[name] for name in possible))
        )
        for sure in itertools.product(*(choices[name] for name in certain))
    )


def interval_candidates(tree: Tree, name: str, raw: Any, attribute: Mapping[str, Any]) -> list[Any]:
    """Values of an interval among which each way to answer occurs: its ends, and all around each literal."""
    low, high = (value_of(raw.get(end), attribute) for end in ("min", "max"))
    if low is None or high is None or low > high:
        return []
    values = {low, high}
    for leaf in leaves(tree):
        for literal in leaf[4] if leaf[1] == name else ():
            exact = literal_of(literal, attribute)
            if attribute["kind"] == "float":
                near = float(max(min(exact, high), low))
                around = [near, math.nextafter(near, -math.inf), math.nextafter(near, math.inf)]
                values |= {Fraction(double) for double in around if math.isfinite(double)}
            else:
                values |= {math.floor(exact) + step for step in (-1, 0, 1)}
    return sorted(value for value in values if low <= value <= high)


def truth(tree: Tree, event: Mapping[str, Any], type: Type, known: Mapping[str, Any]) -> bool | None:
    """True, False, or None for unknown; `known` are values chosen from intervals."""
    match tree:
        case ("true",):
            return True
        case ("group", inner):
            return truth(inner, event, type, known)
        case ("not", inner):
            value = truth(inner, event, type, known)
            return None if value is None else not value
        case ("and" | "or" as word, parts):
            deciding = word == "or"
            values = [truth(part, event, type, known) for part in parts]
            if deciding in values:
                return deciding
            return None if None in values else not deciding
        case ("leaf", name, operator, negated, literals):
            attribute = type[name]
            value = known[name] if name in known else value_of(event.get(name), attribute)
            if operator == "null":
                return (value is None) != negated
            if value is None:
                return None
            return compare(operator, event[name], value, literals, attribute) != negated
    raise AssertionError(tree)


def compare(operator: str, raw: Any, value: Any, literals: Sequence[Any], attribute: Mapping[str, Any]) -> bool:
    match operator:
        case "like":
            return like(raw, *literals)
        case "prefix":
            return str(raw).startswith(literals[0])
        case "suffix":
            return str(raw).endswith(literals[0])
    if operator == "exact" and isinstance(literals[0], str) and attribute["kind"] in ("int", "float", "boolean"):
        literals = [{"true": True, "false": False}.get(literals[0]) if attribute["kind"] == "boolean"
                    else number(literals[0], 0)[0]]  # fmt: skip
    wanted = [literal_of(literal, attribute) for literal in literals]
    match operator:
        case "=" | "exact":
            return bool(value == wanted[0])
        case "!=":
            return bool(value != wanted[0])
        case "<":
            return bool(value < wanted[0])
        case "<=":
            return bool(value <= wanted[0])
        case ">":
            return bool(value > wanted[0])
        case ">=":
            return bool(value >= wanted[0])
        case "in":
            return any(value == each for each in wanted)
        case "between":
            return bool(wanted[0] <= value <= wanted[1])
    raise AssertionError(operator)


def like_pieces(pattern: str, escape: str | None = None) -> list[str]:
    """The pattern as a list of: "%", "_", and "=c" for a character that means itself."""
    if escape is not None and len(escape) != 1:
        raise Refused("filter-syntax")
    pieces, i = [], 0
    while i < len(pattern):
        if pattern[i] == escape:
            i += 1
            if pattern[i : i + 1] not in ("%", "_", escape):
                raise Refused("filter-syntax")
            pieces.append("=" + pattern[i])
        else:
            pieces.append(pattern[i] if pattern[i] in "%_" else "=" + pattern[i])
        i += 1
    return pieces


def like(text: str, pattern: str, escape: str | None = None) -> bool:
    """Fill the table `reach[j]`: the pattern so far fits the first j characters."""
    reach = [True] + [False] * len(text)
    for piece in like_pieces(pattern, escape):
        if piece == "%":
            reach = list(itertools.accumulate(reach, lambda a, b: a or b))
        else:
            fits = [piece == "_" or piece == "=" + c for c in text]
            reach = [False] + [reach[j] and fits[j] for j in range(len(text))]
    return reach[-1]


# --- the Hilbert grid --------------------------------------------------------------------------------------


def hilbert_indices(low: Sequence[int], high: Sequence[int], bits: int) -> list[int]:
    """The sorted Hilbert indices of all cells of a closed box, each by the `hilbertcurve` package."""
    from hilbertcurve.hilbertcurve import HilbertCurve

    cells = itertools.product(*(range(a, b + 1) for a, b in zip(low, high, strict=True)))
    if len(low) == 1:
        return [cell[0] for cell in cells]
    curve = HilbertCurve(bits, len(low))
    return sorted(int(curve.distance_from_point(list(cell))) for cell in cells)


def as_ranges(indices: Iterable[int]) -> list[tuple[int, int]]:
    """Sorted closed ranges of a set of integers."""
    result: list[tuple[int, int]] = []
    for index in sorted(set(indices)):
        if result and index == result[-1][1] + 1:
            result[-1] = (result[-1][0], index)
        else:
            result.append((index, index))
    return result


def hilbert_ranges(low: Sequence[int], high: Sequence[int], bits: int) -> list[tuple[int, int]]:
    """The Hilbert ranges of a closed box of cells."""
    return as_ranges(hilbert_indices(low, high, bits))


# --- the overlay -------------------------------------------------------------------------------------------


def reachable(broker: str, brokers: Iterable[str], links: Iterable[Sequence[str]]) -> set[str]:
    """The brokers that a flood from `broker` gets to, itself included."""
    known = set(brokers)
    reached = {broker} & known
    links = list(links)
    while True:
        further = {b for a, c in links for b in (a, c) if (a in reached or c in reached) and b in known}
        if further <= reached:
            return reached
        reached |= further


def expected_deliveries(
    brokers: Iterable[str],
    links: Iterable[Sequence[str]],
    types: Mapping[str, Type],
    subscriptions: Iterable[Mapping[str, Any]],
    publications: Iterable[Mapping[str, Any]],
    advertisements: Mapping[str, Iterable[Mapping[str, Any]]] | None = None,
    prefix: str = "hilcast",
) -> set[tuple[str, str, str, str]]:
    """Who must get what: flood every publication to every broker, where each subscription is tried.

    A subscription is a dict of `broker`, `type`, `client`, `filter` and perhaps `sink`; a publication of
    `broker`, `type`, `source`, `id`, `data`. `advertisements`: for each type that asks for them its
    advertisements, dicts of `broker`, `publisher`, `filter`; what none at its broker promised is refused.
    Returns (client, destination topic, source, id), each once however many subscriptions of the client match.
    """
    brokers, links = list(brokers), list(links)
    subscriptions = [{**s, "filter": tree_of(s["filter"])} for s in subscriptions]
    result = set()
    for publication in publications:
        type, data = publication["type"], publication["data"]
        if type not in types or not isinstance(data, dict):
            continue
        if advertisements is not None and type in advertisements:
            promised = [
                a
                for a in advertisements[type]
                if a["broker"] == publication["broker"] and a["publisher"] == publication["source"]
            ]
            if not any(evaluate(a["filter"], data, types[type]) for a in promised):
                continue
        reached = reachable(publication["broker"], brokers, links)
        for s in subscriptions:
            if s["broker"] in reached and s["type"] == type and evaluate(s["filter"], data, types[type]):
                destination = s.get("sink") or f"{prefix}.deliver.{s['client']}"
                result.add((s["client"], destination, publication["source"], publication["id"]))
    return result
