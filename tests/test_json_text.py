"""JSON of control events: what Python's own reader takes, within the depth, is taken; nothing else is."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from state.json_text import read_json
from state.limits import JSON_DEPTH_MAX

TEXTS = st.text(alphabet=st.characters(exclude_categories=()), max_size=6)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=12,
)


@settings(max_examples=300, deadline=None)
@given(VALUES)
def test_what_python_writes_is_read(value):
    """Whatever JSON can hold, lone surrogates included, is read as Python's own reader reads it."""
    assert read_json(json.dumps(value).encode()) == value


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=30) | st.text('[]{}":,\\ue019-+.NaInfity', max_size=30).map(str.encode))
def test_what_is_no_json_is_refused_with_a_reason(value):
    """Any other bytes raise a ValueError, and only those that Python's reader, without NaN, refuses as well."""
    try:
        expected = json.loads(value.decode(), parse_constant=lambda name: {}[name])
    except (ValueError, KeyError):
        with pytest.raises(ValueError, match=r"."):
            read_json(value)
    else:
        assert read_json(value) == expected


@pytest.mark.parametrize("member", [b"1e400", b"-" + b"9" * 5000, b'"\\ud800"', b'{"x": [1e999]}'])
def test_an_ignored_member_may_hold_what_no_reader_takes(member):
    """Numbers beyond a double or of 5,000 digits, and half of a surrogate pair, are JSON; the rest is read."""
    assert read_json(b'{"note": ' + member + b', "a": 1, "a": 2}')["a"] == 2


@pytest.mark.parametrize(
    "value", [b'{"a": NaN}', b'{"a": 1e400, "b": -Infinity}', b"\xef\xbb\xbf{}", b'{"a": "\xff"}', b""]
)
def test_what_is_not_json_stays_so(value):
    """NaN, Infinity, a byte order mark, bytes that are not UTF-8 and nothing at all are refused."""
    with pytest.raises(ValueError, match=r"."):
        read_json(value)


@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}")])
def test_depth_is_bounded(opening, closing):
    """As many levels as the limit says are read, one more is not, nor any number of them."""
    for depth in (1, 127, JSON_DEPTH_MAX):
        assert read_json(opening * depth + b"1" + closing * depth) is not None
    for depth in (JSON_DEPTH_MAX + 1, 946, 992, 5000, 200_000):
        with pytest.raises(ValueError, match="deeper than 128"):
            read_json(opening * depth + b"1" + closing * depth)


def test_brackets_in_strings_are_no_depth():
    """A thousand brackets in a text, behind quotes that are escaped or not, are one value."""
    text = '[{"' * 1000 + "\\"
    assert read_json(json.dumps([text, text]).encode()) == [text, text]
    with pytest.raises(ValueError, match=r"."):
        read_json(b'"' + b'\\"[' * 300_000)
