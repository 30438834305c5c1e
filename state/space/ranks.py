"""Ranks: every attribute value as one order-preserving int64.

The ground under [MICS09] §3 and [NEG08] §2, which speak of ordered domains: here each kind of value has one
map into int64, so that all geometry is on closed boxes of integers (`boxes.py`).

    kind       rank of a value                                           lowest .. highest rank
    int        the integer itself                                        -(2^63-1) .. 2^63-1
    float      the bits of the double, sign and magnitude made linear    full
    boolean    false 0, true 1                                           0 .. 1
    category   the place in the declared order                           0 .. n-1
    timestamp  microseconds since 1970-01-01T00:00:00Z                   full
    text       first 7 bytes of its UTF-8, then its length (at most 8)   full

ABSENT, below all of them, is what is missing, null, or of the wrong kind. What counts as which kind is
docs/filters.md:

    int        3, 3.0 and 3e0, but not 3.5, true, or what lies beyond +-(2^63-1); read exactly, however it is
               written: 9223372036854775807.0 is 2^63-1, and 9007199254740992.5 is no integer (`Exact`)
    float      the nearest double of any number; -0.0 is 0.0; 1e400 and NaN are absent. Infinities do not
               occur in JSON; `float_rank` still maps them in order
    timestamp  RFC 3339 text with an offset, `t`, `z` and a space for `T` allowed; finer than microseconds is
               cut towards the past; second 60 only in the last minute of a UTC day, and then read as the
               first second of the next day
    text       any; a lone surrogate (`"\\ud800"` in JSON) has no UTF-8 and is absent

`min` and `max` of an attribute shape the grid (`grid_span`) and never restrict values: what lies outside
has its own rank. Whole events: `points.py`, batches of them `decode.py`; nothing here needs numpy, so that a
client can read its configuration without it. Left out: collation and Unicode normalisation of text.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Mapping
from datetime import date, datetime

from state.space.event_type import Attribute

ABSENT = -(2**63)
"""The lowest rank of every attribute: missing, null, or of the wrong kind."""
PRESENT_MIN = ABSENT + 1
PRESENT_MAX = 2**63 - 1

Span = tuple[int, int]
"""A closed interval of ranks, low <= high."""

ABSENT_SPAN: Span = (ABSENT, ABSENT)
TEXT_BYTES = 7
"""Bytes of text that a rank holds; texts up to this length have a rank of their own."""

_SIGN = 1 << 63
_DOUBLE, _BITS_OF_DOUBLE = struct.Struct("<d").pack, struct.Struct("<q").unpack
_MICROS_PER_DAY = 86_400_000_000
_DAYS_BEFORE_1970 = 719_468  # from 0000-03-01, where the years of `_days` begin
_ORDINAL_1970, _ORDINAL_MAX = date(1970, 1, 1).toordinal(), date.max.toordinal()
_RFC_3339 = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt ]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]+))?"
    r"(?:[Zz]|([+-])([0-9]{2}):([0-9]{2}))"
)


# --- numbers as they were written ---------------------------------------------------------------------------


class Exact(float):
    """A JSON number whose nearest double does not tell which integer it is, or that it is none."""

    __slots__ = ("whole",)
    whole: int | None

    def __new__(cls, value: float, whole: int | None) -> Exact:
        made = super().__new__(cls, value)
        made.whole = whole
        return made

    def __deepcopy__(self, memo: object) -> Exact:
        return self  # it cannot change


def read_decimal(text: str) -> float:
    """A JSON number with a fraction or an exponent: the nearest double, which knows the integer it stands for.

    >>> read_decimal("1e3"), read_decimal("9007199254740992.5").whole, read_decimal("123456789012345678.0").whole
    (1000.0, None, 123456789012345678)
    """
    nearest = float(text)
    if len(text) <= 16 and "e" not in text and "E" not in text:
        return nearest  # doubles tell decimals of 15 digits apart
    whole = _whole(text)
    told = int(nearest) if nearest.is_integer() else None
    return nearest if told == whole else Exact(nearest, whole)


def _whole(text: str) -> int | None:
    """The integer that a number is exactly, if it is one within +-(2^63-1)."""
    mantissa, _, exponent = text.lower().partition("e")
    integer, _, fraction = mantissa.removeprefix("-").partition(".")
    digits = (integer + fraction).lstrip("0")
    kept = digits.rstrip("0")
    if not kept:
        return 0
    far = exponent.lstrip("+-").lstrip("0")
    if len(far) > 9:
        return None  # no value has so many zeros
    power = len(digits) - len(kept) - len(fraction) + (-1 if exponent.startswith("-") else 1) * int(far or "0")
    if power < 0 or len(kept) + power > 19:
        return None
    value = int(kept) * 10**power
    return (-value if text.startswith("-") else value) if value <= PRESENT_MAX else None


# --- values to ranks ----------------------------------------------------------------------------------------


def rank(attribute: Attribute, value: object) -> int:
    """Return the rank of a decoded JSON value; ABSENT if it is None or of the wrong kind.

    Guarantee: order preserving; equal ranks mean equal values, except texts beyond 7 bytes that share those.

    >>> volume, symbol = Attribute("volume", "int"), Attribute("symbol", "text")
    >>> rank(volume, 3.0), rank(volume, 3.5) == ABSENT, rank(volume, True) == ABSENT
    (3, True, True)
    >>> rank(symbol, "IBM") < rank(symbol, "IBM ") < rank(symbol, "SAP")
    True
    """
    if attribute.kind == "category":
        return _category_rank(attribute, value)
    return _RANK_OF_KIND[attribute.kind](value)


def rank_span(attribute: Attribute, value: object) -> Span:
    """Return the interval of ranks that a decoded JSON value stands for.

    That is one rank or, where the attribute is `imprecise`, all from `{"min": ...` to `"max": ...}`.
    Guarantee: (ABSENT, ABSENT) if either end is absent or min > max; further members are ignored.

    >>> rank_span(Attribute("at", "int", imprecise="possible"), {"min": 3, "max": 5})
    (3, 5)
    """
    if attribute.imprecise is None or not isinstance(value, Mapping):
        point = rank(attribute, value)
        return point, point
    low, high = rank(attribute, value.get("min")), rank(attribute, value.get("max"))
    if low == ABSENT or high == ABSENT or low > high:
        return ABSENT_SPAN
    return low, high


def _int_rank(value: object) -> int:
    if isinstance(value, Exact):
        value = value.whole
    elif isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not PRESENT_MIN <= value <= PRESENT_MAX:
        return ABSENT
    return value


def _float_rank(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return ABSENT
    try:
        nearest = float(value)
    except OverflowError:
        return ABSENT
    return float_rank(nearest) if math.isfinite(nearest) else ABSENT


def _boolean_rank(value: object) -> int:
    return int(value) if isinstance(value, bool) else ABSENT


def _category_rank(attribute: Attribute, value: object) -> int:
    if not isinstance(value, str) or value not in attribute.values:
        return ABSENT
    return attribute.values.index(value)


def _timestamp_rank(value: object) -> int:
    micros = timestamp_micros(value) if isinstance(value, str) else None
    return ABSENT if micros is None else micros


def _text_rank(value: object) -> int:
    if not isinstance(value, str):
        return ABSENT
    try:
        return text_rank(value)
    except UnicodeEncodeError:
        return ABSENT


_RANK_OF_KIND: dict[str, Callable[[object], int]] = {
    "int": _int_rank,
    "float": _float_rank,
    "boolean": _boolean_rank,
    "timestamp": _timestamp_rank,
    "text": _text_rank,
}


# --- ranks to values ----------------------------------------------------------------------------------------


def unrank(attribute: Attribute, rank: int) -> object:
    """Return a value that has this rank, or None: absent, or a rank that no value has (7 of a boolean).

    Guarantee: what is not None has exactly this rank again, so a witness found in rank space is an event. A
    rank of long text gives one of the texts that share it.

    >>> unrank(Attribute("at", "timestamp"), 1_500_000)
    '1970-01-01T00:00:01.500000Z'
    >>> unrank(Attribute("symbol", "text"), text_rank("IBM"))
    'IBM'
    """
    low, high = present_span(attribute)
    if not low <= rank <= high:
        return None
    match attribute.kind:
        case "int":
            return rank
        case "float":
            value = float_unrank(rank)
            return value if math.isfinite(value) else None
        case "boolean":
            return rank == 1
        case "category":
            return attribute.values[rank]
        case "timestamp":
            return _timestamp_text(rank)
        case "text":
            return _text_of_rank(rank)


# --- doubles ------------------------------------------------------------------------------------------------


def float_rank(value: float) -> int:
    """Return the rank of a double: its bits, counted down from 0 for negative ones; neighbours differ by 1.

    >>> float_rank(-0.0), float_rank(5e-324), float_rank(-5e-324), float_rank(1.0) == 0x3FF << 52
    (0, 1, -1, True)
    """
    assert not math.isnan(value), "NaN has no place in the order"
    (bits,) = _BITS_OF_DOUBLE(_DOUBLE(value))
    return bits if bits >= 0 else -_SIGN - bits  # type: ignore[no-any-return]


def float_unrank(rank: int) -> float:
    """Return the double of a rank; NaN beyond the ranks of the infinities."""
    bits = rank if rank >= 0 else _SIGN - rank
    return float(struct.unpack(">d", (bits & (2 * _SIGN - 1)).to_bytes(8, "big"))[0])


# --- time ---------------------------------------------------------------------------------------------------


def timestamp_micros(text: str) -> int | None:
    """Return the microseconds since 1970 of an RFC 3339 text, or None if it is not one or has no offset.

    Differs: RFC 3339 allows second 60 only where a leap second was really inserted; here at the end of any
    UTC day, because that needs no table. It shares its microseconds with the first second of the next day,
    as in POSIX time.

    >>> timestamp_micros("1970-01-01T01:00:00.0000019+01:00"), timestamp_micros("1970-01-01T00:00:00")
    (1, None)
    """
    if len(text) == 20 and text[4] == text[7] == "-" and text[13] == text[16] == ":" and text[10::9] == "TZ":
        # Whole seconds of UTC, as most are written: Python's own reader, a fifth of the cost. What it refuses (leap
        # seconds, the year 0), and the hour 24 that it may take, is left to ours.
        try:
            at = datetime.fromisoformat(text)
        except ValueError:
            pass
        else:
            if text[11:13] != "24":
                clock = at.hour * 3600 + at.minute * 60 + at.second
                return ((at.toordinal() - _ORDINAL_1970) * 86_400 + clock) * 1_000_000
    match = _RFC_3339.fullmatch(text)
    if match is None:
        return None
    years, months, days, hours, minutes, seconds, fraction, sign, offset_hour, offset_minute = match.groups()
    year, month, day, hour, minute, second = int(years), int(months), int(days), int(hours), int(minutes), int(seconds)
    if not 1 <= month <= 12 or day < 1 or (day > 28 and day > _days_in_month(year, month)):
        return None
    if hour > 23 or minute > 59 or second > 60:
        return None
    past = _days(year, month, day) * 1440 + hour * 60 + minute
    if sign:
        if int(offset_hour) > 23 or int(offset_minute) > 59:
            return None
        offset = int(offset_hour) * 60 + int(offset_minute)
        past += offset if sign == "-" else -offset
    if second == 60 and past % 1440 != 1439:
        return None
    return (past * 60 + second) * 1_000_000 + (int(fraction[:6].ljust(6, "0")) if fraction else 0)


def _days_in_month(year: int, month: int) -> int:
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return 29 if month == 2 and leap else (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)[month - 1]


def _days(year: int, month: int, day: int) -> int:
    """Days since 1970-01-01 in the Gregorian calendar, year 0 included (RFC 3339 has it, `datetime` not).

    Counted in years that begin in March: the leap day is the last one, and month lengths follow one formula.
    """
    year, month = (year, month - 3) if month > 2 else (year - 1, month + 9)
    before = 365 * year + year // 4 - year // 100 + year // 400
    return before + (153 * month + 2) // 5 + day - 1 - _DAYS_BEFORE_1970


def _timestamp_text(micros: int) -> str | None:
    """RFC 3339 in UTC; None outside the years 0000 to 9999 that it can write."""
    days, rest = divmod(micros, _MICROS_PER_DAY)
    ordinal = days + _ORDINAL_1970
    if 1 <= ordinal <= _ORDINAL_MAX:
        day = date.fromordinal(ordinal).isoformat()
    elif -366 < ordinal < 1:  # Python's calendar has no year 0: it is as the year 400
        day = f"0000{date.fromordinal(ordinal + 146_097).isoformat()[4:]}"
    else:
        return None
    seconds, fraction = divmod(rest, 1_000_000)
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{day}T{clock}" + (f".{fraction:06}Z" if fraction else "Z")


# --- text ---------------------------------------------------------------------------------------------------


def text_rank(text: str) -> int:
    """Return the rank of a text: 7 bytes of its UTF-8, padded with zeros, and one of min(length, 8) + 1.

        'IBM'   49 42 4D 00 00 00 00 | 04      as an unsigned number, minus 2^63

    Byte order of UTF-8 is code point order; of two with the same padded bytes the longer is the greater.
    Differs: the design takes the first 8 bytes, which cannot tell `'a'` from `'a\\0'`, so no text would be
    exact. With one byte for the length every text of up to 7 bytes is: `symbol = 'IBM'` needs no second look.
    Guarantee: `a < b` gives `text_rank(a) <= text_rank(b)`, and equality only if both are longer than 7 bytes
    and share these. Raises UnicodeEncodeError for a lone surrogate.

    >>> text_rank("") == PRESENT_MIN
    True
    """
    data = text.encode()
    head = int.from_bytes(data[:TEXT_BYTES].ljust(TEXT_BYTES, b"\0"), "big")
    return (head << 8 | min(len(data), TEXT_BYTES + 1) + 1) - _SIGN


def text_is_exact(text: str) -> bool:
    """Tell whether no other text has the rank of this one."""
    return len(text.encode()) <= TEXT_BYTES


def text_prefix_span(prefix: str) -> tuple[int, int, bool]:
    """Return the lowest and highest rank of texts that begin with `prefix`, and whether all texts between do.

    >>> low, high, exact = text_prefix_span("IB")
    >>> low <= text_rank("IBM, the company") <= high < text_rank("IC"), exact
    (True, True)
    """
    low = text_rank(prefix)
    data = prefix.encode()
    if len(data) > TEXT_BYTES:
        return low, low, False
    head = int.from_bytes(data.ljust(TEXT_BYTES, b"\xff"), "big")
    return low, (head << 8 | TEXT_BYTES + 2) - _SIGN, True


# What can follow text cut after its 7th byte: a character, or the rest of one for every first byte of UTF-8.
_ENDINGS = (b"0", b"\x80", b"\xa0\x80", b"\x80\x80", b"\x90\x80\x80", b"\x80\x80\x80")


def _text_of_rank(rank: int) -> str | None:
    head, length = divmod(rank + _SIGN, 256)
    data, length = head.to_bytes(TEXT_BYTES, "big"), length - 1
    endings = _ENDINGS if length > TEXT_BYTES else (b"",)
    for ending in endings:
        try:
            text = (data[:length] + ending).decode()
        except UnicodeDecodeError:
            continue
        if text_rank(text) == rank:
            return text
    return None


# --- spans --------------------------------------------------------------------------------------------------


def present_span(attribute: Attribute) -> Span:
    """Return the lowest and highest rank that a present value can have."""
    match attribute.kind:
        case "boolean":
            return 0, 1
        case "category":
            return 0, len(attribute.values) - 1
        case _:
            return PRESENT_MIN, PRESENT_MAX


def grid_span(attribute: Attribute) -> Span:
    """Return the ranks of `min` and `max`, each where given, else of the present span."""
    low, high = present_span(attribute)
    if attribute.min is not None:
        low = rank(attribute, attribute.min)
    if attribute.max is not None:
        high = rank(attribute, attribute.max)
    assert ABSENT < low <= high, f"the configuration lets no such domain pass: {attribute}"
    return low, high


def last_int_at_most(literal: int | float, inclusive: bool) -> int:
    """Return the greatest integer that is `<= literal` (`<` if not inclusive), not clipped to what has a rank.

    The literal is compared exactly with what the attribute can hold (docs/filters.md): `volume < 1.5` means
    `volume <= 1`.

    >>> last_int_at_most(1.5, inclusive=False)
    1
    """
    if literal.__class__ is int:
        return literal if inclusive else literal - 1  # type: ignore[return-value]
    assert math.isfinite(literal), "refused before: an overflowing literal"
    return math.floor(literal) if inclusive else math.ceil(literal) - 1


def last_float_at_most(literal: int | float, inclusive: bool) -> int:
    """Return the greatest rank of a double that is `<= literal` (`<` if not inclusive), not clipped to the present.

    Compared exactly: a double is below 2^53 + 1 exactly if it is at most 2^53.

    >>> float_unrank(last_float_at_most(2**53 + 1, inclusive=False)) == 2.0**53
    True
    """
    if literal.__class__ is float:  # a double itself
        return float_rank(literal) if inclusive else float_rank(literal) - 1
    try:
        nearest = float(literal)
    except OverflowError:
        return PRESENT_MAX if literal > 0 else ABSENT
    # Python compares int with float exactly: this tells on which side of the literal its nearest double lies.
    holds = nearest <= literal if inclusive else nearest < literal
    return float_rank(nearest) if holds else float_rank(nearest) - 1
