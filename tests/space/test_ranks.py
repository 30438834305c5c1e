"""Ranks: order, kinds and exact comparison, each against Python's own ordering of the values themselves."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta, timezone
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from state.space.event_type import Attribute, EventType
from state.space.points import rank_spans, ranks
from state.space.ranks import (
    ABSENT,
    PRESENT_MAX,
    PRESENT_MIN,
    float_rank,
    float_unrank,
    grid_span,
    last_float_at_most,
    last_int_at_most,
    present_span,
    rank,
    rank_span,
    text_is_exact,
    text_prefix_span,
    text_rank,
    timestamp_micros,
    unrank,
)

INT = Attribute("n", "int")
FLOAT = Attribute("x", "float")
BOOLEAN = Attribute("b", "boolean")
SIDE = Attribute("side", "category", values=("sell", "buy", ""))
AT = Attribute("at", "timestamp")
TEXT = Attribute("t", "text")
ATTRIBUTES = (INT, FLOAT, BOOLEAN, SIDE, AT, TEXT)

# One to four byte characters and a NUL: short texts that collide, and whose 7th byte is inside a character.
TEXTS = st.text(alphabet="a\0bé€\U0001f600", max_size=10)
BORDERS = [0, 1, 3, 2**53 - 1, 2**53, 2**53 + 1, 2**53 + 2, 2**62, 2**63 - 1, 2**63, 2**64, 10**18, 10**400]
INTEGERS = st.one_of(st.sampled_from([s * b for b in BORDERS for s in (1, -1)]), st.integers(-(2**70), 2**70))
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
NUMBERS = st.one_of(INTEGERS, FLOATS, st.integers(-5, 5), st.sampled_from([-0.5, 0.5, 1.5, 2.0**53, 2.0**63]))
JSON_VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, st.sampled_from([math.inf, -math.inf, "\ud800"]), TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(st.text(max_size=3), inner, max_size=2)),
    max_leaves=3,
)


def _naive_kind(attribute: Attribute, value: object) -> bool:
    """Whether docs/filters.md lets the value count as of the attribute's kind, written out case by case."""
    if type(value) is bool:
        return attribute.kind == "boolean"
    if type(value) in (int, float) and attribute.kind == "int":
        return abs(value) != math.inf and Fraction(value).denominator == 1 and abs(Fraction(value)) < 2**63
    if type(value) in (int, float) and attribute.kind == "float":
        # The greatest double, and half a step above it: what lies beyond rounds to infinity.
        return abs(value) != math.inf and abs(Fraction(value)) < 2**1024 - 2**970
    if type(value) is str:
        surrogate = any("\ud800" <= character <= "\udfff" for character in value)
        return (attribute.kind == "category" and value in ("sell", "buy", "")) or (
            attribute.kind == "text" and not surrogate
        )
    return False


@settings(max_examples=400, deadline=None)
@given(st.sampled_from([INT, FLOAT, BOOLEAN, SIDE, TEXT]), JSON_VALUES)
def test_a_value_is_present_exactly_if_it_is_of_the_kind(attribute: Attribute, value: object) -> None:
    """Any JSON value has a rank in the present span if it is of the attribute's kind, else it is absent."""
    low, high = present_span(attribute)
    assert (low <= rank(attribute, value) <= high) == _naive_kind(attribute, value)
    assert (rank(attribute, value) == ABSENT) != _naive_kind(attribute, value)


@pytest.mark.parametrize(
    ("attribute", "value", "expected"),
    [
        (INT, 3.0, 3),
        (INT, -0.0, 0),
        (INT, 2**63 - 1, PRESENT_MAX),
        (INT, -(2**63) + 1, PRESENT_MIN),
        (INT, -(2**63), ABSENT),
        (INT, 9223372036854775807.0, ABSENT),
        (INT, 1e300, ABSENT),
        (INT, math.inf, ABSENT),
        (INT, "3", ABSENT),
        (FLOAT, -0.0, 0),
        (FLOAT, 0, 0),
        (FLOAT, 5e-324, 1),
        (FLOAT, 10**400, ABSENT),
        (FLOAT, math.inf, ABSENT),
        (FLOAT, math.nan, ABSENT),
        (FLOAT, True, ABSENT),
        (BOOLEAN, False, 0),
        (BOOLEAN, True, 1),
        (BOOLEAN, 1, ABSENT),
        (SIDE, "sell", 0),
        (SIDE, "", 2),
        (SIDE, "SELL", ABSENT),
        (TEXT, "", PRESENT_MIN),
        (TEXT, "\ud800", ABSENT),
        (AT, 0, ABSENT),
        (AT, "1970-01-01T00:00:00Z", 0),
    ],
)
def test_decided_cases(attribute: Attribute, value: object, expected: int) -> None:
    """Each case that a reader of the contract could ask about has the rank that the module's page says."""
    assert rank(attribute, value) == expected


@settings(max_examples=300, deadline=None)
@given(FLOATS, FLOATS)
def test_floats_keep_their_order(a: float, b: float) -> None:
    """Ranks of doubles compare as the doubles do; both zeros are one."""
    assert (float_rank(a) < float_rank(b)) == (a < b)
    assert (float_rank(a) == float_rank(b)) == (a == b)


@settings(max_examples=300, deadline=None)
@given(FLOATS)
def test_neighbouring_doubles_have_neighbouring_ranks(a: float) -> None:
    """No rank lies between two doubles, so subtracting boxes leaves no slivers that no event can be in."""
    assert float_rank(math.nextafter(a, math.inf)) == float_rank(a) + 1
    assert float_unrank(float_rank(a)) == a
    assert float_rank(-math.inf) < float_rank(a) < float_rank(math.inf)
    assert float_unrank(float_rank(math.inf)) == math.inf


@settings(max_examples=500, deadline=None)
@given(TEXTS, TEXTS)
def test_text_keeps_code_point_order(a: str, b: str) -> None:
    """Ranks of texts never contradict code point order, and tell apart all texts of up to 7 bytes."""
    if a < b:
        assert text_rank(a) <= text_rank(b)
    if a != b and text_rank(a) == text_rank(b):
        assert len(a.encode()) > 7
        assert len(b.encode()) > 7
        assert a.encode()[:7] == b.encode()[:7]
    assert text_is_exact(a) == (len(a.encode()) <= 7)
    assert PRESENT_MIN <= text_rank(a) <= PRESENT_MAX


@settings(max_examples=500, deadline=None)
@given(TEXTS, TEXTS)
def test_prefix_span_holds_what_begins_so(prefix: str, other: str) -> None:
    """The span of a prefix holds every text that begins with it and, where it says exact, no other."""
    low, high, exact = text_prefix_span(prefix)
    assert low <= text_rank(prefix + other) <= high
    assert low <= text_rank(prefix + "\U0010ffff" * 4) <= high
    assert exact == (len(prefix.encode()) <= 7)
    if exact and low <= text_rank(other) <= high:
        assert other.startswith(prefix)


OFFSETS = st.integers(-23 * 60 - 59, 23 * 60 + 59).map(lambda minutes: timezone(timedelta(minutes=minutes)))


@settings(max_examples=300, deadline=None)
@given(st.datetimes(datetime(2, 1, 1), datetime(9998, 12, 31), timezones=OFFSETS))
def test_timestamps_are_microseconds(moment: datetime) -> None:
    """A time with any offset has the rank that `datetime` counts, in every form RFC 3339 allows for it."""
    expected = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    text = moment.isoformat(timespec="microseconds")
    assert rank(AT, text) == expected
    assert rank(AT, text.replace("T", "t")) == rank(AT, text.replace("T", " ")) == expected
    assert rank(AT, unrank(AT, expected)) == expected
    assert datetime.fromisoformat(str(unrank(AT, expected))) == moment


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-01T00:00:00.1Z", 100_000),
        ("1970-01-01T00:00:00.0000009Z", 0),
        ("1969-12-31T23:59:59.9999999Z", -1),
        ("1969-12-31T23:59:59.9999991Z", -1),
        ("1970-01-01T00:00:00-00:00", 0),
        ("1970-01-01t00:00:00z", 0),
        ("2016-12-31T23:59:60Z", 1_483_228_800_000_000),
        ("2016-12-31T23:59:60.25Z", 1_483_228_800_250_000),
        ("2017-01-01T00:59:60+01:00", 1_483_228_800_000_000),
        ("0000-01-01T00:00:00Z", -62_167_219_200_000_000),
        ("2000-02-29T00:00:00Z", 951_782_400_000_000),
        ("9999-12-31T23:59:59.999999Z", 253_402_300_799_999_999),
    ],
)
def test_timestamp_borders(text: str, expected: int) -> None:
    """Cut fractions, leap seconds, year 0 and the last microsecond of RFC 3339 are where they belong."""
    assert timestamp_micros(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "1970-01-01T00:00:00",
        "1970-01-01",
        "1970-01-01T00:00Z",
        "1970-1-1T00:00:00Z",
        "1970-13-01T00:00:00Z",
        "1970-00-01T00:00:00Z",
        "1970-01-00T00:00:00Z",
        "1970-02-29T00:00:00Z",
        "1900-02-29T00:00:00Z",
        "1970-04-31T00:00:00Z",
        "1970-01-01T24:00:00Z",
        "1970-01-01T00:60:00Z",
        "1970-01-01T00:00:61Z",
        "1970-01-01T12:00:60Z",
        "1970-01-01T23:59:60+01:00",
        "1970-01-01T00:00:00.Z",
        "1970-01-01T00:00:00,5Z",
        "1970-01-01T00:00:00+24:00",
        "1970-01-01T00:00:00+00:60",
        "1970-01-01T00:00:00+0000",
        "1970-01-01T00:00:00+00",
        "1970-01-01_00:00:00Z",
        "+1970-01-01T00:00:00Z",
        "19700101T000000Z",
        "١٩٧٠-01-01T00:00:00Z",
        "1970-01-01T00:00:00ZZ",
        "1970-01-01T00:00:00Z\n",
        " 1970-01-01T00:00:00Z",
        "",
    ],
)
def test_what_is_not_rfc_3339_is_absent(text: str) -> None:
    """Without an offset, with impossible fields or in another notation, a time is no time."""
    assert timestamp_micros(text) is None
    assert rank(AT, text) == ABSENT


@settings(max_examples=500, deadline=None)
@given(
    st.datetimes().map(lambda at: at.replace(microsecond=0).isoformat() + "Z"),
    st.lists(st.tuples(st.integers(0, 18), st.sampled_from("0123456789-:TW ")), max_size=3),
)
@example("2026-01-31T24:00:00Z", [])
@example("2016-12-31T23:59:60Z", [])
@example("0000-01-01T00:00:00Z", [])
@example("2026-W05-1T12:00:00Z", [])
def test_whole_seconds_are_read_as_with_a_fraction(text: str, wrong: list[tuple[int, str]]) -> None:
    """The quick way of whole seconds of UTC takes and refuses what the long way does, which `.0` leads to."""
    for place, character in wrong:
        text = text[:place] + character + text[place + 1 :]
    assert timestamp_micros(text) == timestamp_micros(text[:-1] + ".0Z")


@settings(max_examples=500, deadline=None)
@given(st.sampled_from([INT, FLOAT]), NUMBERS, NUMBERS)
def test_comparison_with_numbers_is_exact(attribute: Attribute, value: object, literal: float) -> None:
    """The last rank of `<` and `<=` parts exactly the values that compare so as rational numbers."""
    place = rank(attribute, value)
    assume(place != ABSENT)
    held = Fraction(float(value) if attribute is FLOAT else value)

    last = last_int_at_most if attribute is INT else last_float_at_most
    assert (place <= last(literal, inclusive=False)) == (held < Fraction(literal))
    assert (place <= last(literal, inclusive=True)) == (held <= Fraction(literal))


@settings(max_examples=500, deadline=None)
@given(st.integers(-62_167_219_200_000_000 - 10**13, 253_402_300_799_999_999 + 10**13))
@example(-62_167_219_200_000_000)
@example(-62_167_219_200_000_001)
@example(-62_135_596_800_000_001)
@example(253_402_300_799_999_999)
@example(253_402_300_800_000_000)
def test_times_are_written_as_they_are_read(micros: int) -> None:
    """From the first microsecond of the year 0 to the last of 9999; nothing outside."""
    text = unrank(AT, micros)
    inside = -62_167_219_200_000_000 <= micros <= 253_402_300_799_999_999
    assert (text is not None) == inside
    assert not inside or timestamp_micros(text) == micros


RANKS = st.one_of(st.integers(ABSENT, PRESENT_MAX), st.integers(-5, 5), TEXTS.map(text_rank), FLOATS.map(float_rank))


@settings(max_examples=500, deadline=None)
@given(st.sampled_from(ATTRIBUTES), RANKS)
def test_unrank_gives_a_value_of_that_rank(attribute: Attribute, place: int) -> None:
    """What `unrank` returns has the rank it was asked for, so a witness in rank space is a real event."""
    value = unrank(attribute, place)
    assert value is None or rank(attribute, value) == place


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(ATTRIBUTES), JSON_VALUES)
def test_every_rank_of_a_value_can_be_unranked(attribute: Attribute, value: object) -> None:
    """A rank that some value has gives a value again; None means that there is none, or absence."""
    place = rank(attribute, value)
    assert (unrank(attribute, place) is None) == (place == ABSENT)


def test_cut_characters_are_completed() -> None:
    """A rank that ends inside a character, whatever its first byte, is given back as some real text."""
    for first in "aé\u0800\ud7ff\ue000\U00010000\U00040000\U0010ffff":
        for filled in range(8):
            place = text_rank("x" * filled + first * 5)
            assert text_rank(str(unrank(TEXT, place))) == place


IMPRECISE = Attribute("x", "float", imprecise="possible")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"min": 1, "max": 2.0}, (float_rank(1.0), float_rank(2.0))),
        ({"min": 2, "max": 2, "unit": "m"}, (float_rank(2.0), float_rank(2.0))),
        (2, (float_rank(2.0), float_rank(2.0))),
        ({"min": 3, "max": 2}, (ABSENT, ABSENT)),
        ({"min": 3}, (ABSENT, ABSENT)),
        ({"min": 1, "max": "2"}, (ABSENT, ABSENT)),
        ({"min": 1, "max": 10**400}, (ABSENT, ABSENT)),
        ({"min": {"min": 1, "max": 1}, "max": 2}, (ABSENT, ABSENT)),
        ([1, 2], (ABSENT, ABSENT)),
        (None, (ABSENT, ABSENT)),
    ],
)
def test_imprecise_values_are_intervals(value: object, expected: tuple[int, int]) -> None:
    """An interval has the ranks of its ends; a malformed one is absent, and any for a precise attribute."""
    assert rank_span(IMPRECISE, value) == expected
    assert isinstance(value, int | float) or rank_span(FLOAT, value) == (ABSENT, ABSENT)


def test_vectors_are_in_order_of_attributes() -> None:
    """Vectors follow the order of the attributes; what the event lacks is absent, extras are ignored."""
    event_type = EventType("t", (INT, SIDE, IMPRECISE))
    event = {"side": "buy", "x": {"min": 0, "max": 5e-324}, "extra": 1}
    assert ranks(event_type, event).tolist() == [ABSENT, 1, 0]
    lows, highs = rank_spans(event_type, event)
    assert lows.tolist() == [ABSENT, 1, 0]
    assert highs.tolist() == [ABSENT, 1, 1]
    assert lows.dtype == highs.dtype == np.int64


def test_grid_spans() -> None:
    """`min` and `max` bound the grid, each where given; the rest is what values can be."""
    assert grid_span(Attribute("n", "int", min=0, max=9)) == (0, 9)
    assert grid_span(Attribute("n", "int", min=0)) == (0, PRESENT_MAX)
    assert grid_span(Attribute("x", "float", max=1.0)) == (PRESENT_MIN, float_rank(1.0))
    assert grid_span(Attribute("at", "timestamp", min="1970-01-01T00:00:00Z")) == (0, PRESENT_MAX)
    assert grid_span(BOOLEAN) == (0, 1)
    assert grid_span(SIDE) == (0, 2)
