"""What a change asks for does not grow with what is held, where entries lie as densely: judgements, and nodes visited.

Counts, not times: those are `python -m benchmarks.reductions_flat`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest

from benchmarks.reductions_flat import STEP, WITHIN, D, Run, drawn
from state.reductions import row_tree
from state.reductions.row_tree import LEAST, MOST, NONE, RowTree
from state.reductions.withholding import Withholding

Corners = tuple[np.ndarray, np.ndarray]
NO_FLOOR, NO_CEILING = np.full(D, LEAST), np.full(D, MOST)
QUESTIONS: dict[str, Callable[[np.ndarray, np.ndarray], Corners]] = {
    "meets": lambda low, high: (np.concatenate([NO_FLOOR, low]), np.concatenate([high, NO_CEILING])),
    "contains": lambda low, high: (np.concatenate([NO_FLOOR, high]), np.concatenate([low, NO_CEILING])),
    "inside": lambda low, high: (np.concatenate([low, NO_FLOOR]), np.concatenate([NO_CEILING, high])),
}
FEW, MANY = 1_000, 16_000
CHANGES = 300


@cache
def grown(name: str, held: int) -> Run:
    """A reduction that holds so many entries, evenly spread."""
    run = Run(name, "even", [held], CHANGES, seed=3)
    while len(run.live) < held:
        run.reduction.update(run.fresh(STEP))
    return run


def counted(name: str, held: int, counts: tuple[str, ...]) -> float:
    """What is counted of an entry that comes and one that goes, on average."""
    run = grown(name, held)
    before = run.reduction.stats()
    for _ in range(CHANGES):
        run.reduction.update(run.fresh(1))
        run.reduction.update({}, [run.live.pop(run.random.randrange(len(run.live)))])
    after = run.reduction.stats()
    return sum(after[name] - before[name] for name in counts if name in after) / CHANGES


def visited(tree: RowTree, floor: np.ndarray, ceiling: np.ndarray) -> int:
    """The nodes that a question looks into."""
    todo, seen = [0], 0
    while todo:
        node = todo.pop()
        if row_tree._may_hold.py_func(tree._bounds, node, floor, ceiling):
            seen += 1
            todo += [int(child) for child in tree._links[node, :2] if child != NONE]
    return seen


@pytest.mark.parametrize("name", ["hybrid", "probabilistic"])
def test_judgements_are_as_many(name: str) -> None:
    """An entry that comes and one that goes ask for as many judgements among 16 times as many others."""
    decided = tuple(count for count in grown(name, FEW).reduction.stats() if count.startswith("decided_"))
    few, many = counted(name, FEW, decided), counted(name, MANY, decided)
    assert few > 1
    assert many < 1.5 * few


@pytest.mark.parametrize("name", ["negative", "negative-k"])
def test_as_many_are_asked_again(name: str) -> None:
    """What a removal may have uncovered is as many entries."""
    few, many = counted(name, FEW, ("reexamined",)), counted(name, MANY, ("reexamined",))
    assert few > 0
    assert many < WITHIN * few


@pytest.mark.parametrize("name", ["covering", "hybrid"])
@pytest.mark.parametrize("question", QUESTIONS)
def test_as_many_nodes_are_visited(name: str, question: str) -> None:
    """A question to the tree of active boxes looks into a few nodes more: what is far away is passed over at once."""
    means = []
    for held in (FEW, MANY):
        reduction = grown(name, held).reduction
        assert isinstance(reduction, Withholding)
        tree = RowTree(reduction._active._points, reduction._active.live())
        asked = drawn("even", 100, seed=8, held=held)
        means.append(np.mean([visited(tree, *QUESTIONS[question](low, high)) for low, high in asked]))
    assert means[1] < WITHIN * means[0]
    assert means[1] < MANY / 100
