"""Cells of one attribute: where each of the 2^k intervals of its ranks begins ([MICS09] §3.2).

    starts   ABSENT ........ starts[1] ........ starts[2] ........        starts[2^k - 1] ........ PRESENT_MAX
             └── cell 0 ───┘└──── cell 1 ─────┘                           └── cell 2^k - 1 ──────────────────┘

Cell c is the closed interval of ranks from `starts[c]` to `starts[c + 1] - 1`: every rank lies in one cell,
what lies outside `min` and `max` in the first or the last. An attribute of fewer values than cells gives
each value a block of cells with one start (a boolean: half of them each); all but the last cell of a block
are empty.

ABSENT shares a cell, or a block, with the lowest values. A cell of its own would be exact for absent
attributes, but every predicate (they all need a value) would then cut the grid above it, and even `price <
500` would have the ranges of two faces instead of one.

Uniform cells are uniform in value, not in rank:

    kind                min and max     only one of them      neither
    int, float          equal steps     40 octaves from it    40 octaves to either side of 0
    timestamp           equal steps     50 years from it      the years 2000 to 2049
    text                equal steps of rank                   equal steps of 0-9 A-Z a-z, 3 characters
    category, boolean                                         equal blocks of values, in their order

Quantile cells ([MICS09] §6.3) begin where a sample of publications says, finer where more of them are.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache

import numpy as np

from state.limits import CELL_BITS_MAX
from state.space.boxes import Ranks
from state.space.event_type import Attribute
from state.space.ranks import ABSENT, PRESENT_MAX, PRESENT_MIN, float_rank, grid_span, text_rank

_OCTAVES = 40
_SYMBOLS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_SYMBOLS_PER_START = 3
_YEAR_2000 = 946_684_800_000_000  # microseconds since 1970
QUANTILES = 256
"""Shares that publications are divided into: more than a sample can tell apart."""
_FIFTY_YEARS = 1_577_923_200_000_000  # 2000-01-01 to 2050-01-01


@lru_cache(maxsize=1024)
def uniform_starts(attribute: Attribute, k: int) -> Ranks:
    """Return where the 2^k uniform cells of an attribute begin; the table above says what uniform means.

    Guarantee: sorted, `starts[0]` is ABSENT, and computed exactly, so equal on every machine. Not to be written to: it
    is computed once, for the fractions of 2^10 cells take 0.4 ms and more.

    >>> uniform_starts(Attribute("volume", "int", min=0, max=999), 2).tolist()[1:]
    [250, 500, 750]
    >>> uniform_starts(Attribute("halted", "boolean"), 2).tolist()[1:]
    [-9223372036854775808, 1, 1]
    """
    assert 1 <= k <= CELL_BITS_MAX, k
    bounded = attribute.min is not None and attribute.max is not None
    if attribute.kind == "text" and attribute.min is None and attribute.max is None:
        starts = [_text_start(Fraction(c, 2**k)) for c in range(1, 2**k)]
    elif attribute.kind in ("int", "float") and not bounded:
        starts = [_octave_start(attribute, Fraction(c, 2**k)) for c in range(1, 2**k)]
    elif attribute.kind == "float":
        low, high = Fraction(_number(attribute.min)), Fraction(_number(attribute.max))
        starts = [float_rank(float(low + (high - low) * c / 2**k)) for c in range(1, 2**k)]
    else:
        low_rank, high_rank = _rank_span(attribute)
        count = high_rank - low_rank + 1
        starts = [low_rank + ((c * count) >> k) for c in range(1, 2**k)]
    lowest = grid_span(attribute)[0]
    cells = np.array([ABSENT, *(ABSENT if start <= lowest else start for start in starts)], np.int64)
    cells.setflags(write=False)
    return cells


def _number(value: int | float | str | None) -> int | float:
    assert isinstance(value, int | float), f"the configuration lets no such bound pass: {value!r}"
    return value


def _rank_span(attribute: Attribute) -> tuple[int, int]:
    low, high = grid_span(attribute)
    if attribute.kind == "timestamp":
        if attribute.min is None:
            low = _YEAR_2000 if attribute.max is None else max(high - _FIFTY_YEARS, PRESENT_MIN)
        if attribute.max is None:
            high = low + _FIFTY_YEARS - 1
    return low, high


def _octave_start(attribute: Attribute, share: Fraction) -> int:
    """The rank where `share` of the cells lie below, for a number without `min` or without `max`.

    The scale is x -> 2^x - 1, linear within an octave: exact arithmetic, where a power function is not.
    """
    if attribute.min is not None:
        value = Fraction(_number(attribute.min)) + _octaves(share * _OCTAVES)
    elif attribute.max is not None:
        value = Fraction(_number(attribute.max)) - _octaves((1 - share) * _OCTAVES)
    else:
        position = (2 * share - 1) * _OCTAVES
        value = _octaves(position) if position >= 0 else -_octaves(-position)
    if attribute.kind == "float":
        return float_rank(float(value))
    return min(max(value.__floor__(), PRESENT_MIN), PRESENT_MAX)


def _octaves(position: Fraction) -> Fraction:
    whole = position.__floor__()
    return Fraction(2**whole) * (1 + position - whole) - 1


def _text_start(share: Fraction) -> int:
    """The rank of the text at `share` of all texts of 0-9 A-Z a-z; trailing zeros say nothing."""
    number = (share * len(_SYMBOLS) ** _SYMBOLS_PER_START).__floor__()
    text = ""
    for _ in range(_SYMBOLS_PER_START):
        number, symbol = divmod(number, len(_SYMBOLS))
        text = _SYMBOLS[symbol] + text
    return text_rank(text.rstrip("0"))


def quantiles(values: Ranks) -> tuple[int, ...]:
    """The ranks that divide `values` into `QUANTILES` equal shares; absent ones do not count.

    Implements [MICS09] §6.3, which says what variable cells are for, not how to choose them: here each attribute by
    itself, by a sample. Guarantee: `QUANTILES - 1` of them, sorted; none where nothing is present. Equal ones are a
    value that has several shares; the lowest value is no border, and ABSENT stands for it.
    """
    present = np.sort(values[values != ABSENT])
    if len(present) == 0:
        return ()
    dividing = present[(np.arange(1, QUANTILES) * len(present)) // QUANTILES]
    dividing[dividing == present[0]] = ABSENT
    return tuple(dividing.tolist())


def quantile_starts(dividing: tuple[int, ...], k: int) -> Ranks:
    """Return where 2^k cells begin that have equal shares of what these ranks divide; within a share in even steps.

    Guarantee: sorted, `starts[0]` is ABSENT, computed exactly. A value of several shares has a block of cells.

    >>> quantile_starts((10, 20, 30, 40), 1).tolist()[1:], quantile_starts((100, 100, 1000), 2).tolist()[1:]
    ([25], [100, 100, 1000])
    """
    assert 1 <= k <= CELL_BITS_MAX, k
    n, shares = 2**k, len(dividing) + 1
    edges = [ABSENT, *dividing, PRESENT_MAX]
    starts = [ABSENT]
    for cell in range(1, n):
        share, step = divmod(cell * shares, n)
        low, high = edges[share], edges[share + 1]
        inside = low != ABSENT and share < shares - 1  # the outermost shares have no end that means anything
        starts.append(low + (high - low) * step // n if inside else low)
    return np.array(starts, np.int64)


def moved(dividing: tuple[int, ...], values: Ranks) -> float:
    """How far values are from being divided evenly by these ranks: the Kolmogorov-Smirnov distance, 0 to 1.

    That is the greatest difference, over all of these ranks, between the share of the values below one and the share
    that it stands for. Cost: O((n + QUANTILES) log n).

    >>> moved((10, 20, 30), np.array([5, 15, 25, 35])), moved((10, 20, 30), np.array([11, 12, 13, 14]))
    (0.0, 0.5)
    """
    present = np.sort(values[values != ABSENT])
    if len(present) == 0 or not dividing:
        return 0.0
    distinct, first = np.unique(np.array(dividing, np.int64), return_index=True)
    distinct, first = distinct[distinct != ABSENT], first[distinct != ABSENT]
    below = np.searchsorted(present, distinct, side="left") / len(present)
    upto = np.searchsorted(present, distinct, side="right") / len(present)
    share = (first + 1) / (len(dividing) + 1)
    # a value of several shares spans them: no distance where its own share lies between
    return float(np.maximum(below - share, share - upto).max(initial=0.0))
