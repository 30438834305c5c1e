"""The counting algorithm as [BADV06] §4.4 prints it: hit vector, candidates by P_min, evaluation.

    P'_vio of the filter that asks: one set of violating predicates per conjunction
      └─ per set: hit vector     for each violating predicate, + 1 for every occurrence in a tree
                  candidates     trees with |P| >= hits + |P_min|
                  evaluation     of the candidates, violating predicates false, all others true

Fed with conjunctions only it is the conjunctive algorithm that the paper compares with (§6.3): there |P_min|
is |P|, so the candidates are the trees without a hit, and nothing is left to evaluate.

It answers what `filter_index.py` answers, in a way that is measured against it. It is a snapshot: it
holds while the index that it was taken from is not changed.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from state.advertisements.filter_index import FilterIndex
from state.advertisements.filter_programs import DEPTH_MAX, Asked, Stored, Trees, word_of_tree
from state.advertisements.normal import Normal
from state.kernels import njit


@njit
def _count(
    violating: NDArray[np.int64],
    start: NDArray[np.int64],
    trees: NDArray[np.int32],
    hits: NDArray[np.int16],
) -> None:
    for number in violating:
        for i in range(start[number], start[number + 1]):
            hits[trees[i]] += 1


@njit
def _evaluate(
    trees: Trees, stored: Stored, asked: Asked, words: NDArray[np.int64], passed: NDArray[np.bool_], first: bool
) -> int:
    """Mark in `passed` those of the trees that are not marked yet and true, or stop at the first one and return it."""
    stack = np.empty(DEPTH_MAX, np.int64)
    for tree in range(len(passed)):
        if trees.length[tree] >= 0 and not passed[tree] and word_of_tree(tree, trees, stored, asked, words, stack):
            if first:
                return tree
            passed[tree] = True
    return len(passed)


class CountingSnapshot:
    """One group of a `FilterIndex`, arranged for counting: for each predicate the trees that contain it.

    Guarantee: `overlapping` returns what the index does.
    Cost, per set of violating predicates: O(their occurrences + trees + leaves of candidates).
    """

    def __init__(self, index: FilterIndex, group: str = "") -> None:
        self._index = index
        self._group = index.groups[group]
        rows = self._group.rows
        live = np.flatnonzero(rows.count[: rows.size] >= 0)
        occurrences = rows.count[live].astype(np.int64) - 1  # the last number of a row is its shape
        ends = rows.start[live] + occurrences
        shapes = rows.columns[0][ends]
        self.spare = np.full(rows.size, -1, np.int64)
        """|P| - |P_min| of each tree: how many violating predicates it bears; -1 where there is no tree."""
        self.spare[live] = occurrences - index.shapes.minimum[shapes]
        places = rows.places(live)
        predicates = np.delete(rows.columns[0][places], np.cumsum(occurrences + 1) - 1)
        owners = np.repeat(live, occurrences)
        self._trees = owners[np.argsort(predicates, kind="stable")].astype(np.int32)
        counts = np.bincount(predicates, minlength=index.predicates.rows.size)
        self._start = np.concatenate([[0], np.cumsum(counts)])
        self.candidates = 0
        """Candidates evaluated so far, by all questions."""

    @property
    def associations(self) -> int:
        return len(self._trees)

    def overlapping(self, filter: Normal, first: bool = False) -> list[str]:
        """Return the ids that overlap `filter`; with `first` one of them, if there is any."""
        by_leaf = [self._index.predicates.violating(leaf) for leaf in filter.leaves]
        found = np.zeros(len(self.spare), bool)
        for members in filter.shape.conjunctions:
            violating = np.unique(np.concatenate([by_leaf[i] for i in members])) if members else _NONE
            candidates = self._candidates(violating) & ~found  # what overlaps by one set needs no other
            self.candidates += int(np.count_nonzero(candidates))
            found |= self._evaluated(candidates, violating, first)
            if first and found.any():
                return [self._group.ids[int(np.argmax(found))]]
        ids: list[str] = self._group.ids[np.flatnonzero(found)].tolist()
        return ids

    def _candidates(self, violating: NDArray[np.int64]) -> NDArray[np.bool_]:
        hits = np.zeros(len(self.spare), np.int16)
        _count(violating, self._start, self._trees, hits)
        return hits <= self.spare

    def _evaluated(self, candidates: NDArray[np.bool_], violating: NDArray[np.int64], first: bool) -> NDArray[np.bool_]:
        if not self.spare.any():
            return candidates  # conjunctions: a tree that is not hit is true
        words = np.ones(self._index.predicates.rows.size, np.int64)
        words[violating] = 0
        passed = ~candidates
        trees, stored = self._index.trees(self._group), self._index.stored()
        row = _evaluate(trees, stored, _ONE_BIT, words, passed, first)
        if first:
            return np.arange(len(passed)) == row
        return passed & candidates


_NONE = np.zeros(0, np.int64)
_ONE_BIT = Asked(_NONE, _NONE, _NONE, _NONE, _NONE, 1)
"""What the evaluation needs of a filter whose violating predicates are known: a single bit."""
