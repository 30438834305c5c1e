"""Decimal numbers in bytes to ranks, compiled.

A JSON number is read once into a sign, at most 19 significant digits and a power of ten. An int attribute
takes what that is exactly, if it is an integer; a float attribute takes the nearest double, by the method of
Lemire, "Number parsing at a gigabyte per second" (Software: Practice and Experience 51(8), 2021): a product
with a 128-bit power of ten.

Differs: that paper proves how seldom the product leaves the rounding open. Here it is only known to err by
less than two units, and whenever that could change the rounding the number is called *hard*; so is what is
subnormal or infinite, has a power of ten that the table lacks, or more than 19 digits of which the others
count. The row is then read with Python's own `float`: exact, and rarely needed.
"""

from __future__ import annotations

import numpy as np

from state.arrays import Ints, Words
from state.kernels import njit
from state.space.memory import byte_at
from state.space.ranks import ABSENT, PRESENT_MAX

DIGITS_MAX = 19
"""Decimal digits that always fit 64 bits."""
EXPONENT_MIN, EXPONENT_MAX = -342, 308
"""Beyond these every number of 19 digits is zero, subnormal or infinite."""
_EXPONENT_FAR = 1_000_000

_U1, _U10, _U32, _U52, _U63 = np.uint64(1), np.uint64(10), np.uint64(32), np.uint64(52), np.uint64(63)
_LOW_HALF = np.uint64(0xFFFF_FFFF)
_ALL_ONES = np.uint64(0xFFFF_FFFF_FFFF_FFFF)
_FRACTION = np.uint64((1 << 52) - 1)
_MANTISSA_END = np.uint64(1 << 53)
_INT_MAX = np.uint64(PRESENT_MAX)


def _powers_of_ten() -> tuple[Words, Words, Ints]:
    """The first 128 bits of each power of ten, cut, as two words; and its binary exponent."""
    high, low, exponent = [], [], []
    for e in range(EXPONENT_MIN, EXPONENT_MAX + 1):
        # 10^e as a fraction with so many more bits that the cut is the true one.
        scaled = 10**e << 128 if e >= 0 else (1 << 2048) // 10**-e
        binary = scaled.bit_length() - 1 - (128 if e >= 0 else 2048)
        top = scaled >> (scaled.bit_length() - 128)
        high.append(top >> 64)
        low.append(top & (2**64 - 1))
        exponent.append(binary)
    return np.array(high, np.uint64), np.array(low, np.uint64), np.array(exponent, np.int64)


_POWER_HIGH, _POWER_LOW, _POWER_EXPONENT = _powers_of_ten()


@njit
def skip_number(i: int, end: int) -> int:
    """Check the JSON number at address `i`: the address after it, or -1."""
    if i < end and byte_at(i) == 45:  # -
        i += 1
    start = i
    i = _skip_digits(i, end)
    if i == start or (byte_at(start) == 48 and i - start > 1):
        return -1
    if i < end and byte_at(i) == 46:  # .
        start = i + 1
        i = _skip_digits(start, end)
        if i == start:
            return -1
    if i < end and (byte_at(i) == 101 or byte_at(i) == 69):  # e E
        i += 1
        if i < end and (byte_at(i) == 43 or byte_at(i) == 45):  # + -
            i += 1
        start = i
        i = _skip_digits(start, end)
        if i == start:
            return -1
    return i


@njit
def _skip_digits(i: int, end: int) -> int:
    while i < end and 48 <= byte_at(i) <= 57:
        i += 1
    return i


@njit
def rank_at(i: int, is_float: bool) -> tuple[int, bool]:
    """Read the number at address `i`, known to be one and to be followed by another byte: (rank, hard)."""
    digits, power, count = np.uint64(0), 0, 0
    cut, whole = False, True
    negative = byte_at(i) == 45  # -
    if negative:
        i += 1
    while True:
        byte = byte_at(i)
        if 48 <= byte <= 57:
            if count < DIGITS_MAX:
                digits = digits * _U10 + np.uint64(byte - 48)
                count += digits != 0
                power -= not whole
            else:
                power += whole
                cut = cut or byte != 48
        elif byte == 46:  # .
            whole = False
        else:
            break
        i += 1
    if byte == 101 or byte == 69:  # e E
        power += _exponent_at(i + 1)
    return _number_rank(is_float, negative, digits, power, cut)


@njit
def _exponent_at(i: int) -> int:
    minus = byte_at(i) == 45
    if minus or byte_at(i) == 43:  # - +
        i += 1
    exponent = 0
    while 48 <= byte_at(i) <= 57:
        if exponent < _EXPONENT_FAR:
            exponent = exponent * 10 + byte_at(i) - 48
        i += 1
    return -exponent if minus else exponent


@njit
def _number_rank(is_float: bool, negative: bool, digits: np.uint64, power: int, cut: bool) -> tuple[int, bool]:
    """The rank of a number that was read, and whether it is hard (then there is no rank yet)."""
    if not is_float:
        # Digits were cut behind the 19th, and not all zeros: a fraction, or beyond 64 bits.
        rank = np.int64(ABSENT) if cut else _whole_number(digits, power)
        return int(-rank if negative and rank != ABSENT else rank), False
    bits, hard = _double_bits(digits, power)
    if cut:
        # The number lies between its first 19 digits and the next number of 19 digits; rounding keeps order.
        above, also_hard = _double_bits(digits + _U1, power)
        hard = hard or also_hard or bits != above
    if hard:
        return ABSENT, True
    rank = np.int64(bits)
    return int(-rank if negative else rank), False


@njit
def _whole_number(digits: np.uint64, power: int) -> np.int64:
    """The integer digits * 10^power, exactly; ABSENT if it is none or beyond 63 bits."""
    if digits == 0:
        return np.int64(0)
    while power < 0 and digits % _U10 == 0:
        digits //= _U10
        power += 1
    if power < 0 or power > DIGITS_MAX:
        return np.int64(ABSENT)
    for _ in range(power):
        if digits > _INT_MAX // _U10:
            return np.int64(ABSENT)
        digits *= _U10
    return np.int64(digits) if digits <= _INT_MAX else np.int64(ABSENT)


@njit
def _double_bits(digits: np.uint64, power: int) -> tuple[np.uint64, bool]:
    """The bits of the double nearest to digits * 10^power, and whether it is too hard to tell here.

        digits, shifted to 64 bits  x  first 128 bits of 10^power  =  192 bits; the first 128 are kept

    The kept product is too small by less than 2 units of its last place: one for the cut of the power (times
    digits < 2^64), one for the cut of the product. The rounding depends on that only if the product is in the
    middle between two doubles, or one unit below.
    """
    if digits == 0:
        return np.uint64(0), False
    if power < EXPONENT_MIN or power > EXPONENT_MAX:
        return np.uint64(0), True
    normal, zeros = _normalised(digits)
    high, low = _multiply(normal, _POWER_HIGH[power - EXPONENT_MIN])
    carry, _ = _multiply(normal, _POWER_LOW[power - EXPONENT_MIN])
    low = low + carry
    if low < carry:
        high = high + _U1
    top = high >> _U63
    dropped = _U10 + top
    middle = _U1 << (dropped - _U1)
    rest = high & ((_U1 << dropped) - _U1)
    if (rest == middle and low == 0) or (rest == middle - _U1 and low == _ALL_ONES):
        return np.uint64(0), True
    mantissa = (high >> dropped) + ((rest >> (dropped - _U1)) & _U1)
    exponent = _POWER_EXPONENT[power - EXPONENT_MIN] + 63 - zeros + np.int64(top) + 1023
    if mantissa == _MANTISSA_END:
        mantissa = mantissa >> _U1
        exponent += 1
    if exponent < 1 or exponent > 2046:
        return np.uint64(0), True
    return np.uint64(exponent) << _U52 | (mantissa & _FRACTION), False


@njit
def _normalised(word: np.uint64) -> tuple[np.uint64, int]:
    """Shift a word, not zero, to the left until its highest bit is set: (word, how far)."""
    zeros = 0
    for step in (32, 16, 8, 4, 2, 1):
        if word >> np.uint64(64 - step) == 0:
            word = word << np.uint64(step)
            zeros += step
    return word, zeros


@njit
def _multiply(a: np.uint64, b: np.uint64) -> tuple[np.uint64, np.uint64]:
    """The 128-bit product of two words: (high word, low word)."""
    a_high, a_low, b_high, b_low = a >> _U32, a & _LOW_HALF, b >> _U32, b & _LOW_HALF
    first, second = a_high * b_low, a_low * b_high
    middle = (a_low * b_low >> _U32) + (first & _LOW_HALF) + (second & _LOW_HALF)
    return a_high * b_high + (first >> _U32) + (second >> _U32) + (middle >> _U32), a * b
