"""The order in which boxes are stored: alike boxes side by side, so that whole blocks of them can be ruled out.

Centres along a Hilbert curve, as in [STREE03] §1's Hilbert-packed R-tree. Differs, for subscriptions are not
the small squares of that literature:

    1. by *signature*: which dimensions a box constrains at all. Next to a box that spans everything in a dimension
       no box of the block can be ruled out by that dimension, so wide ones stand apart from narrow ones.
    2. within a signature along the curve, each axis scaled by the mean width of the boxes in it: a block of boxes
       that are points in one dimension and wide in another should be thin in the one and long in the other.

Coordinates are ranks among the corners (quantiles), never values: int64 ranks of floats or text are not evenly spread.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from state.arrays import Bools, Floats, Ints
from state.counting_sort import stable_order
from state.kernels import njit
from state.space.boxes import Ranks
from state.space.hilbert import encode
from state.space.ranks import ABSENT, PRESENT_MAX

SAMPLE = 8192
"""Corners per dimension that stand for all of them where quantiles are taken."""
CURVE_DIMENSIONS = 6
"""The curve visits at most this many dimensions, the narrowest: more would get less than two bits each."""
BLOCK = 64
"""Boxes per block: finer differences than one block do not matter."""

Shares = NDArray[np.float32]


def sample_corners(lows: Ranks, highs: Ranks, size: int = SAMPLE) -> Ranks:
    """Return about `size` places where boxes begin or end in one dimension, sorted.

    A box ends after its `high`, so places are lows and highs + 1; the ends of the rank space are no corners.
    """
    step = max(1, 2 * len(lows) // size)
    begins, ends = lows[::step], highs[step // 2 :: step]
    places = np.concatenate([begins[begins > ABSENT], ends[ends < PRESENT_MAX] + 1])
    places.sort()
    return places


def search_tree(places: Ranks) -> Ranks:
    """Lay sorted places out as a complete binary tree: root at 1, children of k at 2k and 2k + 1, 2^levels slots.

    It is filled up with the highest rank, which a search may count: who asks takes the lesser of that and all places.
    The next node is computed from the comparison, so that there is no branch to guess wrong: a binary search measured
    40 ns and more, this one 5, and several overlap.
    """
    levels = max(1, len(places).bit_length())
    full = np.full(2**levels - 1, PRESENT_MAX)
    full[: len(places)] = places
    tree = np.zeros(2**levels, np.int64)
    for level in range(levels):
        tree[2**level : 2 ** (level + 1)] = full[2 ** (levels - level - 1) - 1 :: 2 ** (levels - level)]
    return tree


def spatial_order(lows: Ranks, highs: Ranks) -> Ints:
    """Return the permutation that puts alike boxes side by side.

    Cost: O(n * d * log SAMPLE) and one sort; a second for the signatures if there are several.
    """
    n, d = lows.shape
    if n <= BLOCK or d == 0:
        return np.arange(n)
    centres, widths = _quantile_space(np.ascontiguousarray(lows), np.ascontiguousarray(highs))
    narrow = widths < 0.5
    if (narrow == narrow[:, :1]).all():
        return stable_order(_curve_key(centres, widths))  # all of one kind, as most often
    mean_width = np.array([w[s].mean() if s.any() else 1.0 for w, s in zip(widths, narrow, strict=True)])
    signature = _signatures(narrow, mean_width)
    order = np.argsort(signature, kind="stable")
    bounds = np.flatnonzero(np.diff(signature[order], prepend=-1, append=-2))
    for first, end in pairwise(bounds):
        rows = order[first:end]
        if len(rows) > BLOCK:
            order[first:end] = rows[stable_order(_curve_key(centres[:, rows], widths[:, rows]))]
    return order


def _quantile_space(lows: Ranks, highs: Ranks) -> tuple[Shares, Shares]:
    """Centres and widths of the boxes, per dimension, in shares of the corners."""
    n, d = lows.shape
    centres, widths = np.empty((d, n), np.float32), np.empty((d, n), np.float32)
    for j in range(d):
        places = sample_corners(lows[:, j], highs[:, j])
        _place(lows, highs, j, search_tree(places), len(places), centres[j], widths[j])
    return centres, widths


@njit
def _place(lows: Ranks, highs: Ranks, j: int, tree: Ranks, size: int, centres: Shares, widths: Shares) -> None:
    """Write centre and width of each box in dimension j, among `size` places that are laid out as a tree."""
    slots, levels = np.uint64(len(tree)), 0
    while len(tree) >> levels > 1:
        levels += 1
    whole, all_places = np.float32(2 * size + 1), np.float32(size + 1)
    for i in range(len(lows)):
        low, high, before, after = lows[i, j], highs[i, j], np.uint64(1), np.uint64(1)
        for _ in range(levels):
            before += before + np.uint64(tree[before] < low)
            after += after + np.uint64(tree[after] <= high)
        first, last = min(int(before - slots), size), min(int(after - slots), size)
        begin, end = np.float32(first), np.float32(last)
        centres[i], widths[i] = (begin + end) / whole, (end - begin) / all_places


def _signatures(narrow: Bools, mean_width: Floats) -> Ints:
    """Number the sets of narrow dimensions, smallest sets of boxes reduced to their narrowest dimension."""
    ranked = np.argsort(mean_width, kind="stable")[:62]
    mask = np.zeros(narrow.shape[1], np.int64)
    for bit, j in enumerate(ranked):
        mask |= narrow[j].astype(np.int64) << bit
    _, number, count = np.unique(mask, return_inverse=True, return_counts=True)
    # A handful of boxes does not fill a block: such sets go by their lowest bit, the narrowest dimension.
    small = count[number] < 2 * BLOCK
    lowest = mask & -mask
    return np.unique(np.where(small, -lowest, mask), return_inverse=True)[1].astype(np.int64)


def _curve_key(centres: Shares, widths: Shares) -> Ints:
    """Position of each centre on the curve through the narrowest dimensions, scaled by their widths."""
    mean = np.maximum(widths.mean(axis=1, dtype=np.float64), BLOCK / centres.shape[1])
    dims = np.argsort(mean, kind="stable")[:CURVE_DIMENSIONS]
    dims = dims[mean[dims] < 0.75] if (mean[dims] < 0.75).any() else dims[:1]
    k = min(62 // len(dims), 16)
    scale = (2**k - 1) * mean[dims[0]] / mean[dims]
    points = (centres[dims].T * scale).astype(np.int64)
    return encode(points, k)
