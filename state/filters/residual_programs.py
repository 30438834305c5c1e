"""Second looks at filters, compiled: what boxes leave open is decided over the bytes of the events themselves.

Texts beyond 7 bytes share ranks, so `symbol = 'Berkshire Hathaway'` needs a look at the text. Here that look is a small
program over one event: its ranks, and the bytes of its texts where the scanner found them (`state/space/decode.py`).

    price < 5 AND (symbol = 'a long text' OR symbol LIKE 'another long%')

        RANK price [lowest, 5)   TEXT = 'a long text'   TEXT LIKE 'another long%'   ANY 2   ALL 2

UTF-8 in byte order is text in code point order, so bytes are compared as they are. What they cannot tell is OPEN, and
left to the filter in Python: a text with an escape, a key with one, a value that is no text, an attribute that is not
in the document, and LIKE beyond a prefix.
"""

from __future__ import annotations

import numpy as np
from numba import carray

from state.arrays import Bools, Bytes, Ints
from state.filters.geometry import intervals
from state.filters.like import Like
from state.filters.tree import And, Filter, Operator, Predicate
from state.kernels import njit
from state.space.boxes import Ranks
from state.space.event_type import EventType
from state.space.memory import byte_at, pointer_at

NO, YES, OPEN = 0, 1, 2
"""What a program says of an event."""
STEPS_MAX = 256
"""Of a program; a longer one is left to the filter."""

EVERY: Bools = np.empty(0, np.bool_)
"""Numbers that are not in here are doubted."""

_BYTE = np.dtype(np.uint8)
_RANK, _EQUAL, _PREFIX, _AT_MOST, _AT_LEAST, _ALL, _ANY, _NOT = range(8)


class Program:
    """A filter as steps on a stack of answers; `literals` are the texts that they name by number."""

    def __init__(self, filter: Filter, event_type: EventType) -> None:
        self.code: list[int] = []
        self.literals: list[bytes] = []
        self.steps = 0
        self._type = event_type
        self.complete = self._write(filter) and self.steps <= STEPS_MAX
        """Whether the whole filter could be written down; if not, the program says OPEN."""

    def _write(self, filter: Filter) -> bool:
        if isinstance(filter, Predicate):
            return self._leaf(filter)
        for child in filter.children:
            if not self._write(child):
                return False
        self._step(_ALL if isinstance(filter, And) else _ANY, len(filter.children))
        return True

    def _step(self, *code: int) -> None:
        self.code += code
        self.steps += 1

    def _leaf(self, predicate: Predicate) -> bool:
        column = self._type.dimension[predicate.attribute]
        attribute = self._type.attributes[column]
        found = intervals(predicate, attribute)
        if found.exact:
            self._step(_RANK, column, len(found.spans), *(end for span in found.spans for end in span))
            return True
        assert attribute.kind == "text", "other kinds share no ranks"
        negative = predicate.operator in _NEGATIVE
        operator = _NEGATIVE.get(predicate.operator, predicate.operator)
        values = [value for value in predicate.values if isinstance(value, str)]
        match operator:
            case Operator.LIKE:
                like = Like.of(*values)
                if not (like.is_prefix or like.is_literal):
                    return False
                self._text(_EQUAL if like.is_literal else _PREFIX, column, [like.prefix])
            case Operator.BETWEEN:
                self._text(_AT_LEAST, column, values[:1])
                self._text(_AT_MOST, column, values[1:])
                self._step(_ALL, 2)
            case Operator.EQ | Operator.IN:
                self._text(_EQUAL, column, values)
            case Operator.LE:
                self._text(_AT_MOST, column, values)
            case _:
                self._text(_AT_LEAST, column, values)
        if negative:
            self._step(_NOT)
        return True

    def _text(self, step: int, column: int, texts: list[str]) -> None:
        first = len(self.literals)
        self.literals += sorted(text.encode() for text in texts)
        self._step(step, column, first, len(self.literals))


_NEGATIVE = {
    Operator.NE: Operator.EQ,
    Operator.NOT_IN: Operator.IN,
    Operator.NOT_LIKE: Operator.LIKE,
    Operator.NOT_BETWEEN: Operator.BETWEEN,
    Operator.LT: Operator.GE,
    Operator.GT: Operator.LE,
}
"""Operators that are written as the opposite of another; both need a value, and only values are compared."""


class Programs:
    """The programs of many filters, by number, laid out for compiled code. Numbers come and go.

    What goes leaves a gap; once there are more gaps than programs everything is laid out anew.
    """

    def __init__(self) -> None:
        self._held: dict[int, Program] = {}
        self._gone = 0
        self._fresh: dict[int, Program] = {}
        self._address: Ints | None = None
        self._anew()

    def put(self, number: int, program: Program) -> None:
        """Hold a program under a number."""
        self.drop(number)
        if program.complete:
            self._held[number] = self._fresh[number] = program

    def drop(self, number: int) -> None:
        """Forget a number, if it is held."""
        if self._held.pop(number, None) is not None and self._fresh.pop(number, None) is None:
            self._places[number] = -1
            self._gone += 1

    def decide(
        self, rows: Ints, numbers: Ints, ranks: Ranks, starts: Ints, doubted: Bools = EVERY
    ) -> tuple[Bytes, int, int]:
        """Tell for each pair of an event's row and a number whether the filter holds: NO, YES or OPEN.

        `starts[a, i]`: as `json_scan.find_members` leaves them. `doubted`, by number: whether the filter is to be
        asked, else YES. Returns the answers, how many are YES, and how many OPEN. Guarantee: what is not OPEN is what
        the filter says. Cost: O(steps) a pair, compiled.
        """
        self.address()
        answers = np.empty(len(rows), _BYTE)
        counts = decide_each(
            rows, numbers, ranks, starts, doubted, self._places, self._code, self._bytes, self._ends, answers
        )
        return answers, *counts

    def address(self) -> Ints:
        """Where all that is held lies, as `laid_out_at` reads it. Whoever keeps it keeps this too, and asks again."""
        if self._fresh or self._gone > len(self._held):
            self._lay_out()
            self._address = None
        if self._address is None:
            every = (self._places, self._code, self._bytes, self._ends)
            self._address = np.array([end for one in every for end in (len(one), one.ctypes.data)], np.int64)
        return self._address

    def _anew(self) -> None:
        self._fresh, self._gone = dict(self._held), 0
        self._address = None
        self._places = np.full(0, -1, np.int64)
        self._code, self._bytes, self._ends = np.empty(0, np.int64), np.empty(0, np.uint8), np.zeros(1, np.int64)

    def _lay_out(self) -> None:
        """Write down what came since. Cost: that of what came, and of a copy of what is there."""
        if self._gone > len(self._held):
            self._anew()
        if not self._fresh:
            return
        code: list[int] = []
        literals: list[bytes] = []
        places: dict[int, int] = {}
        at, first = len(self._code), len(self._ends) - 1
        for number, program in self._fresh.items():
            places[number] = at
            written = [len(program.code), first + len(literals), *program.code]
            literals += program.literals
            code += written
            at += len(written)
        room = max(places) + 1 - len(self._places)
        self._places = np.append(self._places, np.full(max(room, 0), -1, np.int64))
        self._places[list(places)] = list(places.values())
        self._code = np.append(self._code, np.array(code, np.int64))
        ends = np.cumsum(np.array([len(one) for one in literals], np.int64)) + self._ends[-1]
        self._ends = np.append(self._ends, ends)
        self._bytes = np.append(self._bytes, np.frombuffer(b"".join(literals), np.uint8))
        self._fresh = {}


def warm() -> None:
    """Compile what decides."""
    programs = Programs()
    programs.decide(
        np.zeros(1, np.int64), np.zeros(1, np.int64), np.zeros((1, 1), np.int64), np.zeros((1, 1), np.int64)
    )


@njit
def laid_out_at(place: Ints) -> tuple[Ints, Ints, Bytes, Ints]:
    """Places, code, texts and where each of these ends: the same arrays, not copied."""
    return (
        carray(pointer_at(place[1]), place[0], np.int64),
        carray(pointer_at(place[3]), place[2], np.int64),
        carray(pointer_at(place[5]), place[4], np.uint8),
        carray(pointer_at(place[7]), place[6], np.int64),
    )


@njit
def decide_each(
    rows: Ints,
    numbers: Ints,
    ranks: Ranks,
    starts: Ints,
    doubted: Bools,
    places: Ints,
    code: Ints,
    literals: Bytes,
    ends: Ints,
    answers: Bytes,
) -> tuple[int, int]:
    """Write the answers; return how many are YES and how many OPEN."""
    stack, yes, left = np.empty(STEPS_MAX, np.bool_), 0, 0
    for pair in range(len(rows)):
        row, number = rows[pair], numbers[pair]
        if number < len(doubted) and not doubted[number]:
            answers[pair] = YES
            yes += 1
            continue
        answers[pair] = OPEN
        left += 1
        if number >= len(places) or places[number] < 0:
            continue
        at = places[number]
        end, base = at + 2 + code[at], code[at + 1]
        at, top = at + 2, 0
        while at < end:
            step = code[at]
            if step == _RANK:
                rank, spans = ranks[row, code[at + 1]], code[at + 2]
                stack[top] = False
                for span in range(at + 3, at + 3 + 2 * spans, 2):
                    if code[span] <= rank <= code[span + 1]:
                        stack[top] = True
                at, top = at + 3 + 2 * spans, top + 1
            elif step == _NOT:
                stack[top - 1] = not stack[top - 1]
                at += 1
            elif step in (_ALL, _ANY):
                top -= code[at + 1]
                answer = step == _ALL
                for i in range(top, top + code[at + 1]):
                    answer = (answer and stack[i]) if step == _ALL else (answer or stack[i])
                stack[top] = answer
                at, top = at + 2, top + 1
            else:
                start = starts[code[at + 1], row]
                if start <= 0 or byte_at(start) != 34:  # "
                    break
                stack[top] = _holds(step, start + 1, base + code[at + 2], base + code[at + 3], literals, ends)
                at, top = at + 4, top + 1
        if at == end:
            answers[pair] = YES if stack[0] else NO
            yes += stack[0]
            left -= 1
    return yes, left


@njit
def _holds(step: int, start: int, first: int, last: int, literals: Bytes, ends: Ints) -> bool:
    """One look at the text from `start` on; of several literals, which are sorted, one may be equal."""
    if step == _PREFIX:
        return _compared(start, literals, ends[first], ends[first + 1], True) == 0
    if step == _AT_MOST:
        return _compared(start, literals, ends[first], ends[first + 1], False) <= 0
    if step == _AT_LEAST:
        return _compared(start, literals, ends[first], ends[first + 1], False) >= 0
    while first < last:
        middle = (first + last) // 2
        order = _compared(start, literals, ends[middle], ends[middle + 1], False)
        if order == 0:
            return True
        if order < 0:
            last = middle
        else:
            first = middle + 1
    return False


@njit
def _compared(start: int, literals: Bytes, at: int, end: int, prefix: bool) -> int:
    """The order of a text without escapes, which a quote ends, and a literal; a prefix is equal to what it begins."""
    while at < end:
        byte = byte_at(start)
        if byte == 34:  # "
            return -1
        if byte != literals[at]:
            return -1 if byte < literals[at] else 1
        start += 1
        at += 1
    return 0 if prefix or byte_at(start) == 34 else 1
