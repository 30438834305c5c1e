"""Extents: the values of one attribute that a predicate allows, and when two of them exclude each other.

[BADV06] §4.2 calls a predicate *violating* when no value satisfies both it and a predicate of the other
side, and gives the rules for sixteen pairs of operators in Table 1. Here each predicate is turned into the
set of values it allows, and two predicates violate each other exactly if their sets have nothing in common:
one rule for every pair of operators and every kind.

    price < 15     [lowest, 15)                         title = 'Emma'      ['Emma', 'Emma\\0')
    price != 5     [lowest, 5)  [5+, highest]           title LIKE 'Em%'    ['Em', 'En')
    price IS NULL  absent                               title LIKE '%ma'    ['', end)  and LIKE '%ma'

Spans are half open. Numbers, booleans, categories and timestamps are ranks (`state.space.ranks`); text is
kept as text, because ranks hold seven bytes of it and two long titles would never exclude each other. The
text right after `s` is `s + '\\0'`, so half open spans of text are exact as well.

Differs from Table 1: its rows for NOTEQUALS/NOTEQUALS (loses overlaps), EQUALS/GREATERTHAN (`greater` is
`greater or equal`) and GREATERTHAN/LESSTHAN (`o` is the successor of `o`) are misprinted; sets have no such
rows to get wrong.
Left out: deciding whether patterns that are not prefixes exclude a span, or more than one other pattern at
a time; there the answer is "they do not", so that no overlap is ever lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any

from state.filters.geometry import intervals
from state.filters.like import Like, Part
from state.filters.tree import Operator, Predicate
from state.space.event_type import Attribute
from state.space.ranks import ABSENT, PRESENT_MAX, PRESENT_MIN, float_rank, present_span, timestamp_micros


class _End:
    """What every text is below; there is one, `END`."""

    def __lt__(self, other: object) -> bool:
        return False

    def __gt__(self, other: object) -> bool:
        return other is not self

    def __le__(self, other: object) -> bool:
        return other is self

    def __ge__(self, other: object) -> bool:
        return True

    def __repr__(self) -> str:
        return "END"


END = _End()
Span = tuple[Any, Any]
"""Half open: ranks (integers), or texts with END as the highest bound."""
Spans = tuple[Span, ...]
"""Sorted, disjoint, not touching, none empty."""

_MEETING_COST_MAX = 100_000


@dataclass(frozen=True, slots=True)
class Extent:
    """The values of one attribute that satisfy a predicate, or several predicates at once.

    A present value belongs to it if a span holds it and it fits all of `likes` and none of `unlikes`.
    Invariant: patterns occur with text only, and never where every span is a single value: those are decided.
    """

    absent: bool
    spans: Spans
    likes: tuple[Like, ...] = ()
    unlikes: tuple[Like, ...] = ()

    @property
    def empty(self) -> bool:
        return not self.absent and not self.spans

    @property
    def patterned(self) -> bool:
        return bool(self.likes or self.unlikes)

    def check(self) -> None:
        """Assert the invariant."""
        assert all(low < high for low, high in self.spans)
        assert all(high < low for (_, high), (low, _) in pairwise(self.spans)), self.spans
        assert not (self.patterned and is_points(self.spans))


NOTHING = Extent(False, ())
ABSENCE = Extent(True, ())


def extent(predicate: Predicate, attribute: Attribute) -> Extent:
    """Return the values that a predicate allows.

    Guarantee: exact; of patterns other than prefixes the spans are a superset and the pattern is kept.
    Where an attribute may be given as an interval and is read as "possible", one publication can satisfy
    predicates that share no value: there every predicate that some value satisfies allows all of them.

    >>> price = Attribute("price", "int")
    >>> extent(Predicate("price", Operator.BETWEEN, (5, 9)), price).spans
    ((5, 10),)
    >>> extent(Predicate("title", Operator.LIKE, ("Em%",)), Attribute("title", "text")).spans
    (('Em', 'En'),)
    """
    if predicate.operator is Operator.IS_NULL:
        return ABSENCE
    if attribute.kind == "text":
        found = _text_extent(predicate)
    else:
        spans = intervals(predicate, attribute).spans
        found = Extent(False, _meet(tuple((low, high + 1) for low, high in spans), _present(attribute)))
    if attribute.imprecise == "possible" and found.spans:
        return Extent(False, _present(attribute))
    return found


def everything(attribute: Attribute) -> Extent:
    """All values of an attribute, absent included: what no predicate restricts."""
    return Extent(True, _present(attribute))


def both(one: Extent, other: Extent) -> Extent:
    """The values in both. Guarantee: NOTHING if the two are known to exclude each other."""
    absent, spans = one.absent and other.absent, _meet(one.spans, other.spans)
    if not (one.patterned or other.patterned):
        return Extent(absent, spans)
    likes = tuple(dict.fromkeys(one.likes + other.likes))
    unlikes = tuple(dict.fromkeys(one.unlikes + other.unlikes))
    if is_points(spans):
        return Extent(absent, tuple(span for span in spans if _fits(span[0], likes, unlikes)))
    if not all(patterns_meet(a, b) for a, b in combinations(likes, 2)):
        return Extent(absent, ())
    return Extent(absent, spans, likes, unlikes)


def either(one: Extent, other: Extent) -> Extent:
    """The values in one of two extents without patterns."""
    assert not one.patterned
    assert not other.patterned
    return Extent(one.absent or other.absent, _join(one.spans, other.spans))


def disjoint(one: Extent, other: Extent) -> bool:
    """Tell whether no value is in both: whether their predicates violate each other, [BADV06] §4.2.

    Guarantee: True is a proof; without patterns False is one too.
    """
    if one.absent and other.absent:
        return False
    if not (one.patterned or other.patterned):
        return not _meet(one.spans, other.spans)
    for text, rest in ((one, other), (other, one)):
        if not text.patterned and len(text.spans) == 1 and is_points(text.spans):
            return not holds(rest, text.spans[0][0])  # the common case, a pattern against `=`
    return both(one, other).empty


def holds(extent: Extent, value: Any) -> bool:
    """Tell whether a present value, a rank or a text, is in an extent."""
    inside = any(low <= value < high for low, high in extent.spans)
    return inside and (not extent.patterned or _fits(value, extent.likes, extent.unlikes))


def is_points(spans: Spans) -> bool:
    """Tell whether every span holds a single value.

    >>> is_points((("a", "a\\0"),)), is_points((("a", "b"),))
    (True, False)
    """
    return all(high == (low + "\0" if isinstance(low, str) else low + 1) for low, high in spans)


def patterns_meet(one: Like, other: Like) -> bool:
    """Tell whether some text fits both patterns.

    With a `%` in both only their beginnings and their ends can exclude each other: what stands between fits
    side by side. Without one, the text has a length, and the other's parts are placed leftmost.
    Guarantee: False is a proof; True is one too, except for pairs of patterns of more than 100,000 places.

    >>> patterns_meet(Like.of("%ab"), Like.of("%b")), patterns_meet(Like.of("%ab"), Like.of("%ba"))
    (True, False)
    """
    if len(one.parts) > 1 and len(other.parts) > 1:
        heads, tails = (one.parts[0], other.parts[0]), (one.parts[-1], other.parts[-1])
        return _alike(*heads) and _alike(tails[0][::-1], tails[1][::-1])
    if len(one.parts) > 1:
        one, other = other, one
    whole, parts = one.parts[0], other.parts
    if len(parts) == 1:
        return len(whole) == len(parts[0]) and _alike(whole, parts[0])
    if len(whole) * sum(map(len, parts)) > _MEETING_COST_MAX:
        return True
    return _placed(whole, parts)


def _placed(whole: Part, parts: tuple[Part, ...]) -> bool:
    position, end = len(parts[0]), len(whole) - len(parts[-1])
    if position > end or not _alike(whole, parts[0]) or not _alike(whole[end:], parts[-1]):
        return False
    for part in parts[1:-1]:
        places = range(position, end - len(part) + 1)
        place = next((i for i in places if _alike(whole[i : i + len(part)], part)), None)
        if place is None:
            return False
        position = place + len(part)
    return True


def _alike(one: Part, other: Part) -> bool:
    return all(a is None or b is None or a == b for a, b in zip(one, other, strict=False))


def _fits(text: str, likes: tuple[Like, ...], unlikes: tuple[Like, ...]) -> bool:
    return all(like.matches(text) for like in likes) and not any(like.matches(text) for like in unlikes)


# --- text ---------------------------------------------------------------------------------------------------

_ALL_TEXT: Spans = (("", END),)


def _text_extent(predicate: Predicate) -> Extent:
    values: tuple[Any, ...] = predicate.values
    match predicate.operator:
        case Operator.IS_NOT_NULL:
            return Extent(False, _ALL_TEXT)
        case Operator.EQ | Operator.IN:
            return Extent(False, _joined((value, value + "\0") for value in sorted(set(values))))
        case Operator.LT:
            return Extent(False, _span("", values[0]))
        case Operator.LE:
            return Extent(False, _span("", values[0] + "\0"))
        case Operator.BETWEEN:
            return Extent(False, _span(values[0], values[1] + "\0"))
        case Operator.LIKE:
            return _like_extent(Like.of(*values))
        case _:
            opposite = _text_extent(predicate.negated())
            if opposite.patterned:
                return Extent(False, _ALL_TEXT, (), opposite.likes)
            return Extent(False, _outside(opposite.spans))


def _like_extent(like: Like) -> Extent:
    if like.is_literal:
        return Extent(False, _span(like.prefix, like.prefix + "\0"))
    spans = _span(like.prefix, _after_prefix(like.prefix))
    return Extent(False, spans) if like.is_prefix else Extent(False, spans, (like,))


def _after_prefix(prefix: str) -> Any:
    """The lowest text above all that begin with `prefix`."""
    for i in range(len(prefix) - 1, -1, -1):
        code = ord(prefix[i]) + 1
        if code == 0xD800:
            code = 0xE000  # surrogates are no characters, and a bound must be a text
        if code <= 0x10FFFF:
            return prefix[:i] + chr(code)
    return END


def _span(low: Any, high: Any) -> Spans:
    return ((low, high),) if low < high else ()


def _outside(spans: Spans) -> Spans:
    lows: list[Any] = ["", *(high for _, high in spans)]
    highs: list[Any] = [*(low for low, _ in spans), END]
    return tuple((low, high) for low, high in zip(lows, highs, strict=True) if low < high)


# --- ranks --------------------------------------------------------------------------------------------------


def _edges() -> dict[str, tuple[int, int]]:
    """Ranks that values of a kind really reach: beyond lie infinities, and years RFC 3339 cannot write."""
    last = timestamp_micros("9999-12-31T23:59:59.999999-23:59")
    first = timestamp_micros("0000-01-01T00:00:00+23:59")
    assert first is not None
    assert last is not None
    greatest = float_rank(1.7976931348623157e308)
    return {
        "int": (PRESENT_MIN, PRESENT_MAX),
        "float": (-greatest, greatest),
        "timestamp": (first, last),
    }


_EDGES = _edges()


def _present(attribute: Attribute) -> Spans:
    if attribute.kind == "text":
        return _ALL_TEXT
    low, high = _EDGES.get(attribute.kind) or present_span(attribute)
    assert low > ABSENT
    return ((low, high + 1),) if low <= high else ()


# --- spans --------------------------------------------------------------------------------------------------


def _meet(one: Spans, other: Spans) -> Spans:
    result: list[Span] = []
    i = j = 0
    while i < len(one) and j < len(other):
        low = max(one[i][0], other[j][0])
        one_high, other_high = one[i][1], other[j][1]
        high = one_high if one_high < other_high else other_high
        if low < high:
            result.append((low, high))
        if one_high < other_high:
            i += 1
        else:
            j += 1
    return tuple(result)


def _join(one: Spans, other: Spans) -> Spans:
    return _joined(iter(sorted(one + other)))


def _joined(spans: Iterator[Span]) -> Spans:
    """Join sorted spans that overlap or touch."""
    result: list[Span] = []
    for low, high in spans:
        if result and not result[-1][1] < low:
            result[-1] = result[-1][0], max(high, result[-1][1])
        else:
            result.append((low, high))
    return tuple(result)
