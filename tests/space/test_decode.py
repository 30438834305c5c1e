"""Decoding of JSON batches, against an oracle of its own: Python's `json`, `Fraction` and `datetime`."""

from __future__ import annotations

import json
import math
import random
import struct
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from state.space.decode import DEPTH_MAX, RankBatch, decode, decode_arrow, json_object, warm
from state.space.event_type import Attribute, EventType
from tests.space.mutations import mutated

ABSENT = -(2**63)
SIDES = ("sell", "buy", "", "a long value, 1", "a long value, 2", "été", "été à la plage")
TYPE = EventType(
    "all",
    (
        Attribute("n", "int"),
        Attribute("x", "float"),
        Attribute("b", "boolean"),
        Attribute("side", "category", values=SIDES),
        Attribute("at", "timestamp"),
        Attribute("té", "text"),
    ),
)
IMPRECISE = EventType(
    "imprecise",
    (
        Attribute("n", "int", imprecise="possible"),
        Attribute("x", "float", imprecise="certain"),
        Attribute("at", "timestamp", imprecise="possible"),
        Attribute("té", "text"),
    ),
)
PLAIN = EventType("plain", tuple(attribute for attribute in TYPE.attributes if attribute.kind != "category"))
"""No category and nothing imprecise: of such a type one event alone is read in one call."""


# --- the oracle: docs/messages.md and docs/filters.md, naively ----------------------------------------------


class _NotJson(Exception):
    pass


def _refuse(constant: str) -> None:
    raise _NotJson(constant)


def _exact(digits: str) -> Fraction:
    return Fraction(digits) if len(digits) < 4000 else Fraction(10**4000)  # as absent as the true value


def _decimal(text: str) -> Fraction:
    """A number with a fraction or an exponent, exactly; what is far beyond all attributes is as absent elsewhere."""
    mantissa, _, exponent = text.lower().partition("e")
    number, power = Decimal(mantissa), max(-5000, min(5000, int(exponent or "0")))
    return Fraction(number) * Fraction(10) ** power if number else Fraction(0)


def oracle_event(value: bytes | None) -> dict[str, object] | None:
    """The event of a value, or None; nesting is counted on the text, outside of strings."""
    try:
        text = (value or b"").decode("utf-8", "strict")
    except UnicodeDecodeError:
        return None
    depth = deepest = 0
    inside = backslash = False
    for character in text:
        if inside:
            inside = backslash or character != '"'
            backslash = character == "\\" and not backslash
        else:
            inside = character == '"'
            depth += (character in "[{") - (character in "]}")
            deepest = max(deepest, depth)
    if deepest > 128:
        return None
    try:
        event = json.loads(text, parse_constant=_refuse, parse_int=_exact, parse_float=_decimal)
    except (json.JSONDecodeError, _NotJson):
        return None
    return event if isinstance(event, dict) else None


def oracle_rank(kind: str, value: object) -> int:
    if kind == "boolean":
        return int(value) if isinstance(value, bool) else ABSENT
    if kind == "category":
        return SIDES.index(value) if isinstance(value, str) and value in SIDES else ABSENT
    if kind == "text":
        return _oracle_text(value) if isinstance(value, str) else ABSENT
    if kind == "timestamp":
        return _oracle_time(value) if isinstance(value, str) else ABSENT
    if not isinstance(value, Fraction):
        return ABSENT
    if kind == "int":
        return int(value) if value.denominator == 1 and abs(value) < 2**63 else ABSENT
    try:
        double = float(value)
    except OverflowError:
        return ABSENT
    (bits,) = struct.unpack("<q", struct.pack("<d", abs(double)))
    return -bits if double < 0 else bits


def _oracle_text(text: str) -> int:
    if any("\ud800" <= character <= "\udfff" for character in text):
        return ABSENT
    data = text.encode()
    return int.from_bytes((data + b"\0" * 7)[:7] + bytes([min(len(data), 8) + 1]), "big") - 2**63


def _oracle_time(text: str) -> int:
    """Only the forms that the strategies make: `datetime` reads them, once the fraction has six digits."""
    if not text.isascii() or len(text) < 20 or text[10] not in "Tt ":
        return ABSENT
    head, tail = text[:19].replace("t", "T").replace(" ", "T"), text[19:]
    fraction, offset = "", tail
    if tail.startswith("."):
        digits = len(tail[1:]) - len(tail[1:].lstrip("0123456789"))
        fraction, offset = tail[1 : 1 + digits], tail[1 + digits :]
        if not fraction:
            return ABSENT
    if offset not in ("Z", "z") and not (len(offset) == 6 and offset[0] in "+-" and offset[3] == ":"):
        return ABSENT
    try:
        moment = datetime.strptime(f"{head}+0000", "%Y-%m-%dT%H:%M:%S%z")
        shift = timedelta(0)
        if offset not in ("Z", "z"):
            clock = datetime.strptime(offset[1:], "%H:%M")
            shift = timedelta(hours=clock.hour, minutes=clock.minute) * (-1 if offset[0] == "+" else 1)
    except ValueError:
        return ABSENT
    if len(head) != 19 or not all(head[i].isdigit() for i in (0, 5, 8, 11, 14, 17)):
        return ABSENT
    return (moment - datetime(1970, 1, 1, tzinfo=UTC) + shift) // timedelta(microseconds=1) + int(
        (fraction + "000000")[:6]
    )


def oracle_span(attribute: Attribute, value: object) -> tuple[int, int]:
    if attribute.imprecise and isinstance(value, dict):
        low, high = (oracle_rank(attribute.kind, value.get(end)) for end in ("min", "max"))
        return (low, high) if ABSENT < low <= high else (ABSENT, ABSENT)
    return (oracle_rank(attribute.kind, value),) * 2


def assert_as_oracle(event_type: EventType, values: list[bytes | None], batch: RankBatch) -> None:
    batch.check()
    highs = batch.ranks if batch.highs is None else batch.highs
    for i, value in enumerate(values):
        event = oracle_event(value)
        assert bool(batch.valid[i]) == (event is not None), value
        for column, attribute in enumerate(event_type.attributes):
            expected = oracle_span(attribute, (event or {}).get(attribute.name))
            assert (batch.ranks[i, column], highs[i, column]) == expected, (value, attribute)


# --- values that meet every path ----------------------------------------------------------------------------

DIGITS = st.text("0123456789", min_size=1, max_size=25)
NUMBERS = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.floats(-1000, 1000).map(lambda x: f"{x:.3f}"),
    st.integers(-(2**70), 2**70).map(str),
    st.integers(-3, 3).map(str),
    st.builds(lambda s, d: s + (d.lstrip("0") or "0"), st.sampled_from(["", "-"]), DIGITS),
    st.builds(lambda d, f: f"{d.lstrip('0') or '0'}.{f}", DIGITS, DIGITS),
    st.builds(lambda d, f, e: f"{d.lstrip('0') or '0'}.{f}e{e:+}", DIGITS, DIGITS, st.integers(-400, 400)),
    st.builds(lambda d, e: f"{d.lstrip('0') or '0'}E{e}", DIGITS, st.integers(-30, 30)),
    # Integers half way between two doubles, and just beside.
    st.builds(
        lambda m, e, o: str(((2 * m + 1) << e) + o),
        st.integers(2**52, 2**53),
        st.integers(0, 10),
        st.integers(-1, 1),
    ),
    st.sampled_from(["-0", "-0.0", "1e400", "-1e400", "1e-400", "4.9e-324", "2.2250738585072011e-308", "3.0", "3.5"]),
    st.sampled_from(
        ["9223372036854775807", "-9223372036854775808", "9223372036854775807.0", "1" * 5000, "0e999999999"]
    ),
    st.builds(
        lambda n, zeros, e: f"{n}.{'0' * zeros}{'1' if e == 0 else ''}",
        st.integers(2**52, 2**63 + 5),
        st.integers(1, 30),
        st.integers(0, 3),
    ),
    st.builds(lambda n, e: f"{n * 10**e}e-{e:03}", st.integers(-(2**63) - 3, 2**63 + 3), st.integers(0, 30)),
    st.sampled_from(["9007199254740992.5", "123456789012345678.0", "1e3", "1E-400", "1e99999999999999999999", "10e-1"]),
    st.sampled_from(["9007199254740993.0", "1.7976931348623158e308", "1.7976931348623159e308", "0." + "0" * 400 + "1"]),
)
TEXTS = st.text(alphabet='a\0b"\\/\n\u20e9é€\U0001f600', max_size=9)
TIMES = st.builds(
    lambda d, sep, f, z: d.isoformat(sep) + f + z,
    st.datetimes(datetime(2, 1, 1), datetime(9998, 12, 31)).map(lambda d: d.replace(microsecond=0)),
    st.sampled_from("Tt "),
    st.sampled_from(["", ".5", ".123456", ".1234567899", "."]),
    st.sampled_from(["Z", "z", "+00:00", "-23:59", "+05:30", "+24:00", "", "+0000"]),
)


@st.composite
def strings(draw: st.DrawFn) -> str:
    """A JSON string in one of the ways to write it."""
    text = draw(st.one_of(TEXTS, TIMES, st.sampled_from(SIDES)))
    how = draw(st.sampled_from(["plain", "ascii", "escapes", "surrogate"]))
    if how == "plain":
        return json.dumps(text, ensure_ascii=False)
    if how == "ascii":
        return json.dumps(text)
    if how == "escapes":
        units = struct.unpack(f">{len(text.encode('utf-16-be')) // 2}H", text.encode("utf-16-be"))
        return '"' + "".join(f"\\u{unit:04X}" for unit in units) + '"'
    return json.dumps(text)[:-1] + draw(st.sampled_from(["\\ud800", "\\udc00x", "\\ud83d\\u0041", "\\/"])) + '"'


LEAVES = st.one_of(NUMBERS, strings(), st.sampled_from(["true", "false", "null"]))
SPACES = st.sampled_from(["", "", "", " ", "\t\n\r "])


def _object(members: list[tuple[str, str]], space: str) -> str:
    return "{" + space + f"{space},{space}".join(f"{k}{space}:{space}{v}" for k, v in members) + space + "}"


def objects(keys: st.SearchStrategy[str], values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.builds(_object, st.lists(st.tuples(keys, values), max_size=6), SPACES)


VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: "[" + ",".join(items) + "]"),
        objects(st.sampled_from(['"min"', '"max"', '"mix"', '"ma\\u0078"']), inner),
    ),
    max_leaves=4,
)
KEYS = st.sampled_from(['"n"', '"x"', '"b"', '"side"', '"at"', '"té"', '"other"', '"\\u006e"', '""'])
EVENTS = st.builds(lambda a, o, b: (a + o + b).encode(), SPACES, objects(KEYS, VALUES), SPACES)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.lists(EVENTS, max_size=4))
def test_a_batch_has_the_ranks_that_its_events_have(values: list[bytes]) -> None:
    """Whatever way events are written, their columns are what reading each alone, naively, gives."""
    assert_as_oracle(TYPE, values, decode(TYPE, values))


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.lists(EVENTS, max_size=4))
def test_imprecise_events_are_boxes(values: list[bytes]) -> None:
    """Intervals, written in any way, malformed ones included, give the low and high ranks of the oracle."""
    assert_as_oracle(IMPRECISE, values, decode(IMPRECISE, values))


@settings(max_examples=300, deadline=None, derandomize=True)
@given(EVENTS)
def test_one_event_alone(value: bytes) -> None:
    """An event of a plain type has the ranks of the oracle, and all else that it has in a batch of two."""
    assert_one_as_two(value)


def assert_one_as_two(value: bytes) -> None:
    one, two = decode(PLAIN, [value]), decode(PLAIN, [value, value])
    assert_as_oracle(PLAIN, [value], one)
    assert one.offsets.tolist() == [0, len(value)]
    assert one.valid.tolist() == two.valid[:1].tolist()
    # an address is negative where the text has an escape
    where = [
        [abs(start) - batch.data.ctypes.data if start else None for start in batch.starts[:, 0].tolist()]
        for batch in (one, two)
    ]
    assert where[0] == where[1]


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.lists(NUMBERS, min_size=1, max_size=20))
def test_numbers_are_the_nearest_double(numbers: list[str]) -> None:
    """Every number in decimal has exactly the rank of the double (or integer) Python reads."""
    values: list[bytes | None] = [f'{{"n":{number},"x":{number}}}'.encode() for number in numbers]
    assert_as_oracle(TYPE, values, decode(TYPE, values))


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        ("9223372036854774784.0", 2**63 - 1024),
        ("9223372036854775295.0", 2**63 - 513),
        ("9223372036854775807.0", 2**63 - 1),
        ("9223372036854777856.0", ABSENT),
        ("-9223372036854777856.0", ABSENT),
        ("1e19", ABSENT),
        ("18446744073709549568.0", ABSENT),
        ("1e18", 10**18),
        ("4503599627370496.5", ABSENT),
        ("2251799813685248.5", ABSENT),
        ("9007199254740993.0", 2**53 + 1),
        ("0.9999999999999999", ABSENT),
        ("0.99999999999999999", ABSENT),
        ("5e-324", ABSENT),
        ("1e-400", ABSENT),
    ],
)
def test_integers_written_with_a_point(number: str, expected: int) -> None:
    """For an int attribute such a number counts if it is exactly an integer in range, whatever its double is."""
    values: list[bytes | None] = [f'{{"n":{number}}}'.encode()]
    assert decode(TYPE, values).ranks[0, 0] == expected
    assert_as_oracle(TYPE, values, decode(TYPE, values))


def test_mutated_events() -> None:
    """30,000 events with bytes changed, cut, doubled or moved are valid if they are JSON, with equal ranks."""
    draw = random.Random(7)
    seeds = [
        '{"n":12,"x":-0.25e2,"b":true,"side":"buy","at":"2026-01-02T03:04:05.25Z","té":"IBM é€😀"}',
        '{ "x" : {"min":1.5,"max":2}, "n":{"max":9,"min":-3,"y":[{"z":[]},null]}, "té":"\\u00e9\\ud83d\\ude00" }',
        '{"other":[1,2,{"a":{"b":[true,false,null,"x\\"y"]}}],"side":"a long value, 2","n":9007199254740993}',
    ]
    values = mutated(draw, seeds, 30_000, 12)
    for event_type in (TYPE, IMPRECISE):
        batch = decode(event_type, values)
        assert_as_oracle(event_type, values, batch)
        assert 2_000 < batch.valid.sum() < 28_000, "mutations must make both"
    for value in values[:3000]:
        assert_one_as_two(value)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.binary(max_size=40))
@example(b'{"n":1}')
def test_any_bytes(value: bytes) -> None:
    """Random bytes are refused or read, never anything else."""
    assert_as_oracle(
        TYPE, [value, b"{" + value, b'{"n":' + value], decode(TYPE, [value, b"{" + value, b'{"n":' + value])
    )


@pytest.mark.parametrize(
    ("value", "valid"),
    [
        (b"{}", True),
        (b" \t\r\n{ } ", True),
        (None, False),
        (b"", False),
        (b"null", False),
        (b"[]", False),
        (b'"{}"', False),
        (b"\xef\xbb\xbf{}", False),
        ("{}".encode("utf-16"), False),
        (b"{}{}", False),
        (b"{}\x00", False),
        (b"{}\x0c", False),
        (b'{"n":NaN}', False),
        (b'{"n":-Infinity}', False),
        (b'{"n":1e400}', True),
        (b'{"n":' + b"9" * 5000 + b"}", True),
        (b'{"n":01}', False),
        (b'{"n":+1}', False),
        (b'{"n":1.}', False),
        (b'{"n":.5}', False),
        (b'{"n":1e}', False),
        (b'{"n":0x1}', False),
        (b'{"n":1,}', False),
        (b'{"n":[1,]}', False),
        (b"{'n':1}", False),
        (b"{n:1}", False),
        (b'{"n":1 "x":2}', False),
        (b'{"n":tru}', False),
        (b'{"n":nulll}', False),
        (b'{"\xc3\xa9":1}', True),
        (b'{"\xc3":1}', False),
        (b'{"\xc0\xaf":1}', False),
        (b'{"\xed\xa0\x80":1}', False),
        (b'{"\xf4\x90\x80\x80":1}', False),
        (b'{"a":"\\ud800"}', True),
        (b'{"a":"\\u12g4"}', False),
        (b'{"a":"\\x41"}', False),
        (b'{"a":"\n"}', False),
        (b'{"a":"\x7f"}', True),
        (b'{"a":"', False),
        (b'{"a":"\\', False),
        (b'{"a":"\\u00', False),
    ],
)
def test_decided_cases(value: bytes | None, valid: bool) -> None:
    """What is an event and what is not, case by case; a list, an Arrow array and one value say the same."""
    assert decode(TYPE, [value]).valid.tolist() == [valid]
    assert decode_arrow(TYPE, pa.array([value], pa.binary())).valid.tolist() == [valid]
    assert (json_object(value) is not None) == valid


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_nesting_has_one_limit(opening: str, closing: str) -> None:
    """128 levels are read, 129 are not, 5,000 or 500,000 do not crash; brackets inside text do not count."""
    for depth, valid in ((127, True), (128, False), (5_000, False), (500_000, False)):
        inner = opening * depth + "1" + closing * depth
        for key in ("other", "n", "té"):
            value = f'{{"{key}": {inner}}}'.encode()
            assert decode(TYPE, [value]).valid.tolist() == [valid]
            assert decode(TYPE, [value[: len(value) // 2]]).valid.tolist() == [False]
    assert DEPTH_MAX == 128
    text = b'{"other": "' + b"[" * 5000 + b'"}'
    assert decode(TYPE, [text]).valid.tolist() == [True]


def test_the_last_of_equal_keys_counts() -> None:
    """Also if it is of the wrong kind, or if the key is written with an escape."""
    values = [b'{"n":1,"n":2}', b'{"n":1,"n":"x"}', b'{"n":1,"\\u006e":2}', b'{"\\u006e":1,"n":2}']
    assert decode(TYPE, values).ranks[:, 0].tolist() == [2, ABSENT, 2, 2]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-01T00:00:00.1Z", 100_000),
        ("1969-12-31T23:59:59.9999999Z", -1),
        ("2016-12-31T23:59:60.25Z", 1_483_228_800_250_000),
        ("2017-01-01T00:59:60+01:00", 1_483_228_800_000_000),
        ("2016-12-31T22:29:60-01:30", 1_483_228_800_000_000),
        ("2016-12-31T23:58:60Z", ABSENT),
        ("2016-12-31T23:59:60+01:00", ABSENT),
        ("2016-12-31T23:59:61Z", ABSENT),
        ("0000-01-01T00:00:00Z", -62_167_219_200_000_000),
        ("0000-02-29T00:00:00Z", -62_162_121_600_000_000),
        ("9999-12-31T23:59:59.999999-23:59", 253_402_387_139_999_999),
        ("1900-02-29T00:00:00Z", ABSENT),
        ("2000-02-29T00:00:00Z", 951_782_400_000_000),
        ("1970-01-01T24:00:00Z", ABSENT),
        ("1970-01-01T00:60:00Z", ABSENT),
        ("1970-00-01T00:00:00Z", ABSENT),
        ("1970-01-00T00:00:00Z", ABSENT),
        ("1970-13-01T00:00:00Z", ABSENT),
        ("1970-01-01T00:00:00+24:00", ABSENT),
        ("1970-01-01T00:00:00+23:60", ABSENT),
        ("1970-01-01T00:00:00ZZ", ABSENT),
        ("1970-01-01T00:00:00.", ABSENT),
        ("1970-01-01T00:00:00.5", ABSENT),
        ("1970-01-01T00:00:0:Z", ABSENT),
        ("1970-01-01_00:00:00Z", ABSENT),
        ("197/-01-01T00:00:00Z", ABSENT),
    ],
)
def test_times_at_the_borders(text: str, expected: int) -> None:
    """Leap seconds, leap days, year 0 and impossible fields are read in batches as they are decided."""
    escaped = "".join(f"\\u{ord(character):04x}" for character in text)
    values = [f'{{"at":"{text}"}}'.encode(), f'{{"at":"{escaped}"}}'.encode()]
    assert decode(TYPE, values).ranks[:, 4].tolist() == [expected, expected]


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("\\ud83d\\ude00", "\U0001f600"),
        ("\\uD83D\\uDE00x", "\U0001f600x"),
        ("\\ud83d\\ud83d", None),
        ("\\ud83d\\ud83d\\ude00", None),
        ("\\ude00\\ud83d", None),
        ("\\ud83dude00", None),
        ("\\ud83d\\n", None),
        ("long enough \\udfff", None),
        ("\\ud7ff\\ue000", "\ud7ff\ue000"),
        ("\\u0000\\u007f\\u0080", "\0\x7f\x80"),
        ("\\u07ff\\u0800", "\u07ff\u0800"),
        ("\\uffff\\ud800\\udc00", "\uffff\U00010000"),
        ("\\udbff\\udfff", "\U0010ffff"),
        ('\\"\\\\\\/\\b\\f\\n', '"\\/\b\f\n'),
        ("\\r\\t", "\r\t"),
    ],
)
def test_escapes(written: str, text: str | None) -> None:
    """Every escape means its character, two surrogates one; a surrogate by itself makes the text absent."""
    batch = decode(TYPE, [f'{{"té":"{written}"}}'.encode()])
    assert batch.valid.all()
    assert batch.ranks[0, 5] == (ABSENT if text is None else _oracle_text(text))


def test_events_are_read_on_demand() -> None:
    """`event` gives the object, the same one each time, and `value` the bytes as they came."""
    batch = decode(TYPE, [b'{"n": 1, "more": [null]}', b"x", b'{"n": ' + b"9" * 5000 + b"}"])
    assert batch.event(0) == {"n": 1, "more": [None]}
    assert batch.event(0) is batch.event(0)
    assert batch.value(1) == b"x"
    assert batch.event(2) == {"n": math.inf}
    assert len(batch) == 3
    with pytest.raises(AssertionError):
        batch.event(1)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.lists(st.none() | EVENTS, max_size=6), st.data(), st.sampled_from([pa.binary(), pa.large_binary()]))
def test_arrow_arrays_are_read_in_place(values: list[bytes | None], data: st.DataObject, kind: pa.DataType) -> None:
    """Any slice of an Arrow array gives what the list of its values gives, nulls included, without a copy."""
    low = data.draw(st.integers(0, len(values)))
    high = data.draw(st.integers(low, len(values)))
    array = pa.array(values, kind)[low:high]
    batch = decode(TYPE, array)
    assert_as_oracle(TYPE, values[low:high], batch)
    if len(batch.data):
        assert batch.data.ctypes.data == array.buffers()[2].address


def test_a_null_with_bytes_under_it_is_no_event() -> None:
    """Arrow may leave bytes where a value is null; they do not count."""
    full = pa.array([b'{"n":1}', b'{"n":2}', b'{"n":' + b"1" * 30 + b".5}"], pa.binary())
    bitmap = pa.py_buffer(bytes([0b001]))
    array = pa.Array.from_buffers(pa.binary(), 3, [bitmap, *full.buffers()[1:]])
    for event_type in (TYPE, IMPRECISE):
        batch = decode(event_type, array)
        batch.check()
        assert batch.valid.tolist() == [True, False, False]
        assert batch.ranks[:, 0].tolist() == [1, ABSENT, ABSENT]


def test_no_value_is_read_beyond_its_end() -> None:
    """An event cut anywhere, with its rest right behind it in memory, is judged by what it holds itself."""
    text = (
        '{"n":-12.5e+3,"x":{"min":1,"max":2},"b":true,"at":"2026-01-02T03:04:05Z",'
        '"té":"é\\ud83d\\ude00","z":[{},null,false]}'
    )
    whole = text.encode()
    for cut in range(len(whole)):
        values: list[bytes | None] = [whole[:cut], whole[cut:], whole[:cut] + b"}", whole]
        assert_as_oracle(IMPRECISE, values, decode(IMPRECISE, values))


def test_ordinary_events_never_reach_python() -> None:
    """No event as programs write them, doubles at full length and escaped text included, is read as an object."""
    draw = random.Random(5)
    sent = [
        {
            "n": draw.randrange(-(10**18), 10**18),
            "x": draw.choice([draw.random(), draw.uniform(-1e9, 1e9), draw.gauss(0, 1e-9), round(draw.random(), 2)]),
            "b": draw.random() < 0.5,
            "side": draw.choice(SIDES[:3]),
            "at": f"2026-0{draw.randint(1, 9)}-1{draw.randint(0, 9)}T12:00:00.{draw.randrange(10**6):06}Z",
            "té": draw.choice(["IBM", "Größe", "longer than seven", "a\nb", "😀"]),
            "note": {"tags": ["a", "b"], "rest": None},
        }
        for _ in range(2_000)
    ]
    values: list[bytes | None] = [json.dumps(event, ensure_ascii=draw.random() < 0.5).encode() for event in sent]
    values = [value.replace(b'"t\\u00e9"', '"té"'.encode()) for value in values if value is not None]
    batch = decode(TYPE, values)
    assert_as_oracle(TYPE, values, batch)
    assert batch.valid.all()
    assert not batch._events


def test_highs_only_where_needed() -> None:
    """A batch without a real interval has no second array, whatever the type allows."""
    assert decode(IMPRECISE, [b'{"n":{"min":1,"max":1}}', b'{"n":1}']).highs is None
    batch = decode(IMPRECISE, [b'{"n":{"min":1,"max":2}}', b'{"n":1}'])
    assert batch.highs is not None
    assert batch.highs[:, 0].tolist() == [2, 1]
    assert decode(TYPE, [b'{"n":{"min":1,"max":2}}']).ranks[0, 0] == ABSENT


def test_batches_of_no_rows_and_types_of_no_attributes() -> None:
    """The empty batch and the empty type have shapes that fit."""
    warm()
    assert decode(TYPE, []).ranks.shape == (0, 6)
    assert decode(IMPRECISE, pa.array([], pa.binary())).ranks.shape == (0, 4)
    assert decode(EventType("none", ()), [b"{}", b""]).ranks.shape == (2, 0)
    assert decode(TYPE, pa.array([None, None], pa.binary())).valid.tolist() == [False, False]


def test_many_attributes_and_values_in_any_order() -> None:
    """Names that share beginnings and categories with many long values are told apart, in any order."""
    names = [f"a{'b' * (i % 5)}{i // 5}" for i in range(40)]
    declared = tuple(f"a long value {i}" for i in range(50)) + tuple(f"v{i}" for i in range(50))
    event_type = EventType("wide", tuple(Attribute(name, "category", values=declared) for name in names))
    draw = random.Random(3)
    for _ in range(50):
        order, chosen = draw.sample(names, 30), draw.choices([*declared, "undeclared", "a long value "], k=30)
        batch = decode(event_type, [json.dumps(dict(zip(order, chosen, strict=True))).encode()])
        expected = np.full(40, ABSENT)
        for name, value in zip(order, chosen, strict=True):
            expected[names.index(name)] = declared.index(value) if value in declared else ABSENT
        assert batch.ranks[0].tolist() == expected.tolist()
