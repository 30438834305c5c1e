"""Which of many geometries meet a space: subscriptions that an advertisement of a neighbour lets through, all at once.

boxes    every box of every geometry against every box of the space, up to the first that meets it
ranges   the space as one table; each range looks for the first that ends behind its start
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from state.arrays import Bools, Ints
from state.compiled_part import join_ranges
from state.kernels import njit
from state.space.boxes import Boxes
from state.space.packing import Geometry
from state.space.ranges import Ranges


def meeting(geometries: Sequence[Geometry], space: Sequence[Geometry]) -> Bools:
    """Tell for each geometry whether it has a point in common with any of `space`, all of one kind.

    Cost: one call of a kernel, O(boxes * boxes of the space), or O(ranges log ranges).

    >>> a, b = Boxes.of([([0], [3])]), Boxes.of([([8], [9]), ([5], [6])])
    >>> meeting([a, b, Boxes.empty(1)], [Boxes.of([([6], [7])]), Boxes.of([([4], [4])])])
    array([False,  True, False])
    """
    found = np.zeros(len(geometries), bool)
    owners = np.repeat(np.arange(len(geometries)), [len(one) for one in geometries])
    if not len(owners) or not any(map(len, space)):
        return found
    if isinstance(space[0], Ranges):
        asked = [one for one in geometries if isinstance(one, Ranges)]
        table = join_ranges([one for one in space if isinstance(one, Ranges)])
        starts, ends = (np.concatenate([getattr(one, side) for one in asked]) for side in ("starts", "ends"))
        first = np.minimum(np.searchsorted(table.ends, starts), len(table) - 1)
        hits = (table.starts[first] <= ends) & (table.ends[first] >= starts)
    else:
        d = space[0].d
        boxes = Boxes.concatenated([one for one in geometries if isinstance(one, Boxes)], d)
        other = Boxes.concatenated([one for one in space if isinstance(one, Boxes)], d)
        hits = _boxes_meeting(boxes.lows, boxes.highs, other.lows, other.highs)
    found[owners[hits]] = True
    return found


@njit
def _boxes_meeting(lows: Ints, highs: Ints, other_lows: Ints, other_highs: Ints) -> Bools:
    found = np.zeros(lows.shape[0], np.bool_)
    for i in range(lows.shape[0]):
        for j in range(other_lows.shape[0]):
            meets = True
            for k in range(lows.shape[1]):
                if lows[i, k] > other_highs[j, k] or highs[i, k] < other_lows[j, k]:
                    meets = False
                    break
            if meets:
                found[i] = True
                break
    return found
