"""Hilbert ranges in words: how many, which share of the type's space, the box around them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from state.errors import HilcastError
from state.explain import box_text
from state.reductions.interval_table import range_of
from state.space.boxes import Boxes
from state.space.event_type import EventType
from state.space.grid import Grid
from state.space.hilbert import decode
from state.space.ranges import Ranges

CELLS_MAX = 4096
"""Cells by which the box around ranges is found: it may be a little too large, never too small."""


class RangeWords:
    """Says ranges of one type's grid.

    >>> from state.space.event_type import Attribute
    >>> from state.space.ranks import ABSENT, PRESENT_MAX
    >>> price, volume = Attribute("price", "float", min=0, max=100), Attribute("volume", "int", min=0, max=999)
    >>> words = RangeWords(EventType("quote", (price, volume), cubes=4))
    >>> words.say(words.grid.ranges(Boxes.of([([ABSENT, 0], [PRESENT_MAX, 499])])))
    '2 ranges, 50.0 % of the space, within volume absent or up to 499'
    """

    def __init__(self, event_type: EventType) -> None:
        self.event_type, self.grid = event_type, Grid.of(event_type)

    def say(self, ranges: Ranges, more: int = 0) -> str:
        """Some ranges, and how many more there are of which only the number is known."""
        total = len(ranges) + more
        counted = f"{total:,} range{'' if total == 1 else 's'}"
        if more or not len(ranges):
            return counted
        share = ranges.cells / 2**self.grid.index_bits
        low, high = self.around(ranges)
        return f"{counted}, {percent(share)} of the space, within {box_text(self.event_type, low, high)}"

    def around(self, ranges: Ranges) -> tuple[np.ndarray, np.ndarray]:
        """A box around ranges, in ranks. Guarantee: every point whose index is in a range lies in it."""
        grid = self.grid
        level = max(1, min(grid.k, (CELLS_MAX.bit_length() - 1) // grid.d))
        shift = grid.index_bits - grid.d * level
        prefixes = np.unique(_spans(ranges.starts >> shift, ranges.ends >> shift))
        cells = decode(prefixes, grid.d, level)
        ((low, high),) = Boxes.everything(self.event_type.d)
        for i, column in enumerate(grid.columns):
            first = int(cells[:, i].min()) << (grid.k - level)
            last = ((int(cells[:, i].max()) + 1) << (grid.k - level)) - 1
            low[column] = grid.starts[i, first]
            if last + 1 < 2**grid.k:
                high[column] = max(int(grid.starts[i, last + 1]) - 1, int(low[column]))
        return low, high

    def named(self, ids: Sequence[str], more: int = 0) -> str:
        """The same of ranges that are given by their ids."""
        return self.say(Ranges.of(sorted(map(range_of, ids))), more)


def percent(share: float) -> str:
    """A share as people say it; what is not nothing is not said to be.

    >>> percent(0.5), percent(0.0004), percent(1e-9), percent(0)
    ('50.0 %', '0.04 %', 'less than 0.01 %', '0.0 %')
    """
    if 0 < share < 0.0001:
        return "less than 0.01 %"
    return f"{share:.2%}".replace("%", " %") if 0 < share < 0.01 else f"{share:.1%}".replace("%", " %")


def is_range(entry: str) -> bool:
    """Whether an entry, or what came of it over links (`b2>...`), is named by a range.

    >>> is_range("b3>000000000000001f-0000000000000fff"), is_range("b3/s1")
    (True, False)
    """
    try:
        range_of(entry.rpartition(">")[2])
    except HilcastError:
        return False
    return True


def _spans(firsts: np.ndarray, lasts: np.ndarray) -> np.ndarray:
    """Every number from each first to its last."""
    return np.concatenate([np.arange(a, b + 1) for a, b in zip(firsts.tolist(), lasts.tolist(), strict=True)])
