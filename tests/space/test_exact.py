"""Int attributes read decimals exactly, in the compiled scan, in Python's reading, and in filters: by `Decimal`."""

from __future__ import annotations

from decimal import Context, Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from state.filters.evaluate import compile, matches_batch
from state.filters.grammar import parse
from state.plain_events import plain_event
from state.space.decode import decode
from state.space.encodings.leaves import Leaf
from state.space.event_type import Attribute, EventType
from state.space.points import ranks
from state.space.ranks import ABSENT, read_decimal

TYPE = EventType("t", (Attribute("n", "int"), Attribute("x", "float")))
WIDE = Context(prec=200)
DECIMALS = st.one_of(
    st.builds(lambda n, e: f"{n}e{e}", st.integers(-(10**22), 10**22), st.integers(-25, 25)),
    st.builds(lambda n, f: f"{n}.{f:020d}", st.integers(-(2**63) - 2, 2**63 + 2), st.sampled_from([0, 1, 5 * 10**19])),
    st.builds(lambda n, e: f"{n * 10**e}.0e-{e}", st.integers(-(2**63) - 2, 2**63 + 2), st.integers(1, 30)),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
)


def oracle(text):
    """The integer that a number is, or None."""
    number = Decimal(text)
    whole = number.to_integral_value(context=WIDE) if number.adjusted() < 30 else None
    return int(whole) if whole is not None and WIDE.compare(whole, number) == 0 and abs(whole) < 2**63 else None


@settings(max_examples=500, deadline=None)
@given(DECIMALS)
def test_an_integer_is_what_the_decimal_is(text):
    """Scan, rank of the event that Python reads, and filter agree with `Decimal`; a float has the nearest double."""
    value = f'{{"n": {text}, "x": {text}}}'.encode()
    batch = decode(TYPE, [value])
    expected = oracle(text)
    assert batch.ranks[0, 0] == (ABSENT if expected is None else expected)
    assert ranks(TYPE, batch.event(0)).tolist() == batch.ranks[0].tolist()
    for filter in ("n IS NULL", "n IS NOT NULL", f"n = {expected or 0}", f"n > {(expected or 0) - 1}", "n < 0"):
        tree = parse(filter, TYPE)
        assert compile(tree, TYPE)(batch.event(0)) == matches_batch(tree, batch.ranks, TYPE)[0]
    assert compile(parse(f"n = {expected}", TYPE) if expected is not None else parse("n IS NULL", TYPE), TYPE)(
        batch.event(0)
    )
    assert float(read_decimal(text)) == float(text)


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("9007199254740992.5", None),
        ("123456789012345678.0", 123456789012345678),
        ("9223372036854775807.0", 2**63 - 1),
        ("-9223372036854775807.000", 1 - 2**63),
        ("9223372036854775808.0", None),
        ("1e3", 1000),
        ("1E+18", 10**18),
        ("1e19", None),
        ("3.00000000000000000000001", None),
        ("1e-400", None),
        ("0e-400", 0),
        ("-0.0", 0),
        ("1e00000000000000000000003", 1000),
        ("1e99999999999999999999", None),
        ("1e-99999999999999999999", None),
        ("0." + "0" * 400 + "5e401", 5),
        ("5" + "0" * 400 + "e-400", 5),
        ("5" + "0" * 400 + "1e-401", None),
    ],
)
def test_numbers_that_a_double_would_misread(text, whole):
    """Each is the integer that it is, and none where it is none."""
    batch = decode(TYPE, [f'{{"n": {text}}}'.encode()])
    assert batch.ranks[0, 0] == (ABSENT if whole is None else whole)
    assert ranks(TYPE, batch.event(0))[0] == batch.ranks[0, 0]


BESIDE = EventType("t", (Attribute("n", "int", header="n"), Attribute("x", "float", key=True)))


@settings(max_examples=300, deadline=None)
@given(DECIMALS)
def test_headers_keys_and_the_judge_read_as_exactly(text):
    """A number in a header or key has the rank that it has in a document; the naive reader agrees on both."""
    inside, beside = decode(TYPE, [f'{{"n": {text}, "x": {text}}}'.encode()]), {"n": text.encode(), "x": text.encode()}
    expected = inside.ranks[0].tolist()
    batch = decode(BESIDE, [b"{}"], {name: [given] for name, given in beside.items()})
    assert batch.ranks[0].tolist() == expected
    assert ranks(BESIDE, batch.event(0)).tolist() == expected
    for event in (plain_event(TYPE, inside.value(0), {}), plain_event(BESIDE, b"{}", beside)):
        assert ranks(TYPE, event).tolist() == expected


def test_a_decimal_of_avro_that_is_not_whole_is_no_integer():
    """Though its nearest double is one."""
    leaf, unscaled = Leaf("bytes", "decimal", scale=1), 90071992547409925
    value = leaf.value(unscaled.to_bytes(9, "big", signed=True))
    assert ranks(TYPE, {"n": value, "x": value}).tolist() == ranks(TYPE, {"x": 9007199254740992.0}).tolist()
