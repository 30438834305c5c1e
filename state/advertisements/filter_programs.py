"""Trees as flat programs on words: one bit per conjunction of the other side, all tried at once.

[BADV06] §4.3 evaluates a stored tree once for every set of violating predicates, that is for every
conjunction of the filter that asks. Here bit k of a word stands for conjunction k: a leaf is the set of
conjunctions that do not violate it, AND and OR are `&` and `|`, and the tree overlaps if any bit is left.

    a AND (b OR (c AND d))

    and_leaf a   open_or   or_leaf b   open_and   and_leaf c   and_leaf d   close_and   close_or
        │                                             └── no bit left ──────────^          ^
        └── no bit left ───────────────────────────────────────────────────────────────────┴ end

An AND inside an OR starts with the bits that are still worth asking for: alive outside, and not yet won by an
earlier child. Where none is left, the rest of the AND is skipped.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from state.advertisements.normal import Shape, Structure
from state.advertisements.rows import Pool, grown
from state.arrays import Bools, Ints, Offsets
from state.kernels import njit

AND_LEAF, OR_LEAF, OPEN_OR, CLOSE_OR, OPEN_AND, CLOSE_AND = range(6)
DEPTH_MAX = 128
UNKNOWN = -1
"""A word that was not computed yet: all 64 bits, of which answers use 62."""
BITS = 62
BLOCK = 256
"""Trees that `all_overlapping` takes through a program together."""


class ShapeTable(Pool[Shape]):
    """The structures of a set of trees, as programs; trees of one structure share it."""

    def __init__(self) -> None:
        super().__init__(self.columns_of, np.int8, np.int32, np.int32)
        self.minimum = np.zeros(0, np.int64)

    def columns_of(self, shape: Shape) -> tuple[list[int], list[int], list[int]]:
        """Operations, the leaf that each one reads, and where to go on when an AND has no bit left."""
        program: list[list[int]] = []
        structure = shape.structure
        children = structure[1:] if structure != 0 and structure[0] == "&" else (structure,)
        leaf = _emit_all(children, 0, program, 0)
        assert leaf == shape.predicates
        return tuple(list(column) for column in zip(*program, strict=True)) or ([], [], [])  # type: ignore

    def _enter(self, shape: Shape) -> int:
        number = super()._enter(shape)
        self.minimum = grown(self.minimum, self.rows.size)
        self.minimum[number] = shape.minimum
        return number


def _emit_all(children: tuple[Structure, ...], leaf: int, program: list[list[int]], depth: int) -> int:
    """Append the children of an AND; every step that can leave no bit skips to what follows them."""
    assert depth < DEPTH_MAX
    steps = []
    for child in children:
        if child == 0:
            program.append([AND_LEAF, leaf, 0])
            leaf += 1
        else:
            program.append([OPEN_OR, 0, 0])
            leaf = _emit_any(child[1:], leaf, program, depth + 1)
            program.append([CLOSE_OR, 0, 0])
        steps.append(program[-1])
    for step in steps:
        step[2] = len(program)
    return leaf


def _emit_any(children: tuple[Structure, ...], leaf: int, program: list[list[int]], depth: int) -> int:
    assert depth < DEPTH_MAX
    for child in children:
        if child == 0:
            program.append([OR_LEAF, leaf, 0])
            leaf += 1
        else:
            program.append([OPEN_AND, 0, 0])
            leaf = _emit_all(child[1:], leaf, program, depth + 1)
            program.append([CLOSE_AND, 0, 0])
    return leaf


class Stored(NamedTuple):
    """The predicates of a `PredicateTable` as the kernels see them: predicate n is the closed spans
    start[n] .. start[n] + length[n] of `lows` and `highs`, on attribute dimension[n]."""

    dimension: Offsets
    start: Ints
    length: Offsets
    lows: Ints
    highs: Ints


class Asked(NamedTuple):
    """The filter that asks. Its leaves are sorted by dimension, those of dimension d are begin[d] ..
    begin[d + 1]; leaf j has the closed spans span[j] .. span[j + 1] and occurs in the conjunctions mask[j] of
    `full`."""

    begin: Ints
    span: Ints
    lows: Ints
    highs: Ints
    mask: Ints
    full: int


class Trees(NamedTuple):
    """Stored trees: tree i has the leaves start[i] .. start[i] + length[i] (length -1: there is no tree i);
    the last of these numbers is its shape s, whose program is op_start[s] .. op_start[s] + op_length[s]."""

    start: Ints
    length: Offsets
    leaves: Offsets
    op_start: Ints
    op_length: Offsets
    ops: NDArray[np.int8]
    reads: Offsets
    skips: Offsets


ByShape = tuple[Ints, Ints]
"""Trees in an order in which those of one shape stand together, and where those of each shape end."""


@njit
def word_of(number: int, memo: Ints, stored: Stored, asked: Asked) -> int:
    """Compute the conjunctions that do not violate a stored predicate, and keep it in the memo."""
    word = asked.full
    d = stored.dimension[number]
    for j in range(asked.begin[d], asked.begin[d + 1]):
        a, b = stored.start[number], asked.span[j]
        a_end, b_end = a + stored.length[number], asked.span[j + 1]
        apart = True
        while a < a_end and b < b_end:
            if stored.highs[a] < asked.lows[b]:
                a += 1
            elif asked.highs[b] < stored.lows[a]:
                b += 1
            else:
                apart = False
                break
        if apart:
            word &= ~asked.mask[j]
    memo[number] = word
    return word


@njit
def word_of_tree(tree: int, trees: Trees, stored: Stored, asked: Asked, memo: Ints, stack: Ints) -> int:
    """The conjunctions of the filter that asks that a tree overlaps. Cost: one look at each leaf that is reached."""
    start, length, leaves, op_start, op_length, ops, reads, skips = trees
    leaf = start[tree]
    shape = leaves[leaf + length[tree] - 1]
    origin = op_start[shape]
    step, end = origin, origin + op_length[shape]
    alive = asked.full
    depth = 0
    while step < end:
        op = ops[step]
        if op <= OR_LEAF:
            number = leaves[leaf + reads[step]]
            word = memo[number]
            if word == UNKNOWN:
                word = word_of(number, memo, stored, asked)
            alive = alive & word if op == AND_LEAF else alive | word
        elif op == OPEN_OR:
            stack[depth] = alive
            depth += 1
            alive = 0
        elif op == CLOSE_OR:
            depth -= 1
            alive &= stack[depth]
        elif op == OPEN_AND:
            stack[depth] = alive
            alive = stack[depth - 1] & ~alive
            depth += 1
        else:
            depth -= 1
            alive |= stack[depth]
        step = origin + skips[step] if alive == 0 and skips[step] else step + 1
    return alive


@njit
def first_overlapping(trees: Trees, stored: Stored, asked: Asked, memo: Ints, limit: int) -> tuple[int, int]:
    """Find the first tree below `limit` that overlaps the filter that asks.

    Return it (`limit` if there is none) and how many trees were evaluated. Cost: one look at each leaf that is reached.
    """
    stack = np.empty(DEPTH_MAX, np.int64)
    evaluated = 0
    for tree in range(limit):
        if trees.length[tree] < 0:
            continue
        evaluated += 1
        if word_of_tree(tree, trees, stored, asked, memo, stack):
            return tree, evaluated
    return limit, evaluated


@njit
def all_overlapping(trees: Trees, stored: Stored, asked: Asked, memo: Ints, by_shape: ByShape, hits: Bools) -> None:
    """Mark in `hits` all trees that overlap the filter that asks.

    `by_shape`: what `by_shape` says of these trees. Guarantee: those that `word_of_tree` leaves a bit of.
    Cost: a nanosecond or two for each leaf. Trees of one shape go through its program side by side, a block at a time,
    so that nothing but the words differs from one to the next; no step is skipped, for a skip that is guessed wrong
    costs more than it saves. That is worth the while where most trees are asked, and not for the first that overlaps.
    """
    for number in range(len(memo)):
        if memo[number] == UNKNOWN and stored.length[number] >= 0:
            word_of(number, memo, stored, asked)
    order, ends = by_shape
    alive, stack = np.empty(BLOCK, np.int64), np.empty((DEPTH_MAX, BLOCK), np.int64)
    begin = 0
    for shape in range(len(ends)):
        for first in range(begin, ends[shape], BLOCK):
            block = order[first : min(first + BLOCK, ends[shape])]
            _evaluate(trees.start[block], shape, trees, asked.full, memo, alive, stack)
            for i in range(len(block)):
                if alive[i]:
                    hits[block[i]] = True
        begin = ends[shape]


@njit
def by_shape(trees: Trees) -> ByShape:
    """The trees, those of one shape together, and where those of each shape end."""
    start, length, leaves = trees.start, trees.length, trees.leaves
    ends = np.zeros(len(trees.op_start) + 1, np.int64)
    for tree in range(len(start)):
        if length[tree] >= 0:
            ends[leaves[start[tree] + length[tree] - 1] + 1] += 1
    ends = np.cumsum(ends)
    order = np.empty(ends[-1], np.int64)
    for tree in range(len(start)):
        if length[tree] >= 0:
            shape = leaves[start[tree] + length[tree] - 1]
            order[ends[shape]] = tree
            ends[shape] += 1
    return order, ends[:-1]


@njit
def _evaluate(starts: Ints, shape: int, trees: Trees, full: int, memo: Ints, alive: Ints, stack: Ints) -> None:
    """Take trees of one shape, whose leaves begin at `starts`, through its program; what is left is in `alive`."""
    n, depth = len(starts), 0
    alive[:n] = full
    for step in range(trees.op_start[shape], trees.op_start[shape] + trees.op_length[shape]):
        op, leaf = trees.ops[step], trees.reads[step]
        if op == AND_LEAF:
            for i in range(n):
                alive[i] &= memo[trees.leaves[starts[i] + leaf]]
        elif op == OR_LEAF:
            for i in range(n):
                alive[i] |= memo[trees.leaves[starts[i] + leaf]]
        elif op == OPEN_OR:
            for i in range(n):
                stack[depth, i], alive[i] = alive[i], 0
            depth += 1
        elif op == CLOSE_OR:
            depth -= 1
            for i in range(n):
                alive[i] &= stack[depth, i]
        elif op == OPEN_AND:
            for i in range(n):
                stack[depth, i], alive[i] = alive[i], stack[depth - 1, i] & ~alive[i]
            depth += 1
        else:
            depth -= 1
            for i in range(n):
                alive[i] |= stack[depth, i]


@njit
def candidates(
    trees: Trees,
    minimum: Ints,
    stored: Stored,
    asked: Asked,
    memo: Ints,
    counts: Ints,
) -> None:
    """Add to counts[k] the trees that are candidates for conjunction k: |P| >= |P_vio| + |P_min|.

    [BADV06] §4.3; a predicate that occurs twice in a tree is counted twice.
    """
    start, length, leaves = trees.start, trees.length, trees.leaves
    for tree in range(len(start)):
        if length[tree] < 0:
            continue
        leaf, end = start[tree], start[tree] + length[tree] - 1
        spare = end - leaf - minimum[leaves[end]]
        for k in range(len(counts)):
            violated = 0
            for i in range(leaf, end):
                word = memo[leaves[i]]
                if word == UNKNOWN:
                    word = word_of(leaves[i], memo, stored, asked)
                violated += 1 - ((word >> k) & 1)
            if violated <= spare:
                counts[k] += 1
