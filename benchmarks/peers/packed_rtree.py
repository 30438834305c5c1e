"""The Hilbert-packed R-tree: the peer that [STREE03] §1 names beside the S-tree.

Bottom-up: boxes in curve order, `fanout` of them to a leaf, and so on up to one root. Differs: the order is that of
`order.py`, the same as the bitmap matcher's, so that a comparison of the two compares structures, not orders.
"""

from __future__ import annotations

import numpy as np

from state.arrays import Ints
from state.matchers.box_tree import Nodes, TreeMatcher, interleaved, no_nodes
from state.matchers.order import spatial_order
from state.space.boxes import Boxes, Ranks


class PackedTreeMatcher(TreeMatcher):
    """An R-tree packed full along a Hilbert curve.

    Guarantee: exact. Cost: build, one sort; search, every node whose bounding box holds the event: the overlap
    of those boxes grows with d.

    >>> m = PackedTreeMatcher(Boxes.of([([0, 0], [3, 3]), ([2, 2], [9, 9])]), np.array([7, 5]))
    >>> m.match(np.array([[1, 1], [2, 3], [8, 0]]))
    Matches(rows=array([0, 1, 1]), ids=array([7, 5, 7]))
    """

    def __init__(self, boxes: Boxes, owners: Ints, fanout: int = 16) -> None:
        super().__init__(boxes, owners, fanout)

    def pack(self, boxes: Boxes) -> Nodes:
        if len(boxes) == 0:
            return no_nodes(boxes.d)
        order = spatial_order(boxes.lows, boxes.highs)
        corners = [interleaved(boxes, order)]
        # corners[k] are the entries of level k, and the boxes of the nodes of level k - 1; leaves are level 0.
        while len(corners) == 1 or len(corners[-1]) > 1:
            starts = np.arange(0, len(corners[-1]), self.fanout)
            corners.append(_bounding(corners[-1], starts))
        from_root = range(len(corners) - 2, -1, -1)
        first, below = [], []
        entries, nodes = 0, 0
        for k in from_root:
            nodes += len(corners[k + 1])
            first.append(entries + np.arange(0, len(corners[k]), self.fanout))
            below.append(order if k == 0 else nodes + np.arange(len(corners[k])))
            entries += len(corners[k])
        firsts = np.concatenate(first)
        return Nodes(
            firsts,
            np.append(firsts[1:], entries),
            np.arange(len(firsts)) >= len(firsts) - len(first[-1]),
            np.concatenate([corners[k] for k in from_root]),
            np.concatenate(below),
        )


def _bounding(corners: Ranks, starts: Ints) -> Ranks:
    """Bounding boxes of the runs of entries that start there."""
    out = np.empty((len(starts), corners.shape[1]), np.int64)
    out[:, 0::2] = np.minimum.reduceat(corners[:, 0::2], starts, axis=0)
    out[:, 1::2] = np.maximum.reduceat(corners[:, 1::2], starts, axis=0)
    return out
