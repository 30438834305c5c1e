"""A tree of ANDs and ORs over spans of ranks, written as numbers, to disjoint boxes: one call of compiled code.

    price < 5 AND (volume > 9 OR side = 'buy')

    AND leaves branches   k exact spans low high   OR leaves branches   k exact spans low high   k exact spans low high
     0    1       1       0   1     1   ..   4      1    2      0       1   1     1   10  ..     2   1     1   0    0

A node is written before its leaves, its leaves before its branches. Here the spans of one dimension right under a node
become one set, and the tree becomes a program for a stack of sets of boxes, which `disjoint.py` runs.
"""

from __future__ import annotations

from array import array

import numpy as np

from state.arrays import Ints
from state.filters.disjoint import INTERSECT, NOWHERE, PRODUCT, SKIP, UNITE, run
from state.kernels import njit
from state.space.boxes import Ranks

AND, OR = 0, 1


def boxes_of(tree: list[int], d: int, cap: int) -> tuple[Ranks, bool] | None:
    """The disjoint boxes of a tree, low corners and high corners (2, n, d), and whether they are exact.

    Exact: if all that they were made of is, or if there are none. None if at any point there are more than `cap` boxes.
    Cost: compiled, at most O(cap^2 * d) for each node.

    >>> boxes_of([OR, 2, 0, 0, 1, 1, 4, 6, 0, 0, 2, 1, 2, 7, 9], 1, 9)
    (array([[[1],
            [4]],
    <BLANKLINE>
           [[2],
            [9]]]), False)
    """
    # by an array of Python's own, which takes a list of integers several times as fast as numpy does
    corners, count, exact = _boxes_of(np.frombuffer(array("q", tree), np.int64), d, cap)
    return None if count < 0 else (corners, exact)


@njit
def _boxes_of(tree: Ints, d: int, cap: int) -> tuple[Ranks, int, bool]:
    program = np.empty(3 * len(tree) + 3, np.int64)
    return run(program[: written(tree, program)], d, cap)


@njit
def written(tree: Ints, program: Ints) -> int:
    """Write the program of a tree; return how long it is, at most three times the tree."""
    room = len(tree) // 3 + 1
    stack = np.empty((5, room), np.int64)
    kinds, left, sets, skip, certain = stack[0], stack[1], stack[2], stack[3], stack[4]
    one, other = np.empty(len(tree), np.int64), np.empty(len(tree), np.int64)
    at = end = 0
    top = -1
    while at < len(tree):
        kind, leaves, branches = tree[at], tree[at + 1], tree[at + 2]
        first, at = at + 3, _after(tree, at + 3, leaves)
        begun, top = end, top + 1
        kinds[top], left[top], sets[top], skip[top], certain[top] = kind, branches, branches, -1, 1
        if kind == AND:
            program[end], program[end + 1], program[end + 2] = PRODUCT, 1, 0
            end += 3
        nothing = False
        leaf = first
        for i in range(leaves):
            certain[top] &= tree[leaf + 1]
            if not _came_before(tree, first, i, tree[leaf]):
                n = _gathered(tree, leaf, leaves - i, kind, one, other)
                if kind == AND:
                    nothing = nothing or n == 0
                    program[begun + 2] += 1
                elif n > 0:
                    program[end], program[end + 1], program[end + 2] = PRODUCT, 1, 1
                    sets[top] += 1
                    end += 3
                if kind == AND or n > 0:
                    program[end], program[end + 1] = tree[leaf], n
                    _copy(one, 0, program, end + 2, 2 * n)
                    end += 2 + 2 * n
            leaf += 3 + 2 * tree[leaf + 2]
        if kind == AND:
            program[begun + 1] = certain[top]
            if nothing:
                program[begun], end, left[top] = NOWHERE, begun + 1, 0
                for _ in range(branches):
                    at = _behind(tree, at)
        while top >= 0 and left[top] == 0:  # a node that is complete
            if kinds[top] == OR:
                program[end], program[end + 1], program[end + 2] = UNITE, certain[top], sets[top]
                end += 3
            while skip[top] >= 0:
                before = program[skip[top]]
                program[skip[top]], skip[top] = end, before
            top -= 1
            if top >= 0:
                left[top] -= 1
                if kinds[top] == AND:
                    program[end], program[end + 1], program[end + 2] = INTERSECT, SKIP, skip[top]
                    skip[top], end = end + 2, end + 3
    return end


@njit
def _after(tree: Ints, at: int, leaves: int) -> int:
    """What follows so many leaves."""
    for _ in range(leaves):
        at += 3 + 2 * tree[at + 2]
    return at


@njit
def _behind(tree: Ints, at: int) -> int:
    """What follows a node and all below it."""
    nodes = 1
    while nodes > 0:
        nodes += tree[at + 2] - 1
        at = _after(tree, at + 3, tree[at + 1])
    return at


@njit
def _came_before(tree: Ints, at: int, leaves: int, k: int) -> bool:
    """Whether one of the first leaves of a node is of this dimension."""
    for _ in range(leaves):
        if tree[at] == k:
            return True
        at += 3 + 2 * tree[at + 2]
    return False


@njit
def _gathered(tree: Ints, at: int, leaves: int, kind: int, one: Ints, other: Ints) -> int:
    """Write to `one` what the leaves from here on leave of the dimension of the first; return how many spans."""
    k, n = tree[at], tree[at + 2]
    _copy(tree, at + 3, one, 0, 2 * n)
    for _ in range(1, leaves):
        at += 3 + 2 * tree[at + 2]
        if tree[at] == k:
            spans = tree[at + 3 : at + 3 + 2 * tree[at + 2]]
            n = _common(one[: 2 * n], spans, other) if kind == AND else _united(one[: 2 * n], spans, other)
            _copy(other, 0, one, 0, 2 * n)
    return n


@njit
def _copy(source: Ints, start: int, target: Ints, at: int, count: int) -> None:
    """Number by number, for slices are looked at for overlaps."""
    for i in range(count):
        target[at + i] = source[start + i]


@njit
def _common(one: Ints, other: Ints, out: Ints) -> int:
    """What is in both of two sorted lists of spans; return how many they are."""
    i = j = n = 0
    while i < len(one) and j < len(other):
        low, high = max(one[i], other[j]), min(one[i + 1], other[j + 1])
        if low <= high:
            out[2 * n], out[2 * n + 1] = low, high
            n += 1
        if one[i + 1] < other[j + 1]:
            i += 2
        else:
            j += 2
    return n


@njit
def _united(one: Ints, other: Ints, out: Ints) -> int:
    """What is in either of two sorted lists of spans, those that touch joined; return how many they are."""
    i = j = n = 0
    while i < len(one) or j < len(other):
        if j == len(other) or (i < len(one) and one[i] <= other[j]):
            low, high = one[i], one[i + 1]
            i += 2
        else:
            low, high = other[j], other[j + 1]
            j += 2
        # low - 1 is asked for where something lies below
        if n > 0 and (low <= out[2 * n - 1] or low - 1 == out[2 * n - 1]):
            out[2 * n - 1] = max(out[2 * n - 1], high)
        else:
            out[2 * n], out[2 * n + 1] = low, high
            n += 1
    return n
