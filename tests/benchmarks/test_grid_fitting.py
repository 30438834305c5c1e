"""Fitted grids: cells that follow a sample."""

from __future__ import annotations

import numpy as np

from benchmarks.peers.grid_fitting import fit
from state.space.boxes import Boxes
from state.space.event_type import Attribute, EventType
from state.space.grid import Grid
from state.space.ranks import ABSENT

SMALL = EventType(
    "small",
    (
        Attribute("ignored", "int"),
        Attribute("x", "int", min=0, max=15),
        Attribute("flag", "boolean"),
        Attribute("y", "float", min=0, max=8),
        Attribute("kind", "category", values=("a", "b", "c")),
    ),
    index=("x", "y"),
    bits=3,
    cubes=4,
)


def test_variable_cells_have_fewer_false_positives() -> None:
    """[MICS09] §6.3: as many cells, fitted to Zipf publications, let through fewer false positives."""
    random = np.random.default_rng(5)
    event_type = EventType("z", tuple(Attribute(n, "int", min=0, max=9999) for n in "ab"), index=("a", "b"), bits=5)
    grid = Grid.of(event_type)
    publications = np.minimum(random.zipf(1.4, (6000, 2)) * 3 + random.integers(0, 3, (6000, 2)), 9999)
    fitted = fit(grid, publications[:3000])
    lows = np.minimum(random.zipf(1.4, (40, 2)) * 3, 9000)
    forwarded = {"uniform": 0, "variable": 0}
    matched = 0
    for low in lows:
        box = Boxes(low[None], low[None] + 30)
        matched += int(box.contains(publications[3000:]).sum())
        for name, each in (("uniform", grid), ("variable", fitted)):
            indices = each.index(publications[3000:])
            forwarded[name] += int(each.ranges(box).contains(indices).sum())
    assert matched > 0
    assert matched <= forwarded["variable"]
    assert forwarded["variable"] - matched < (forwarded["uniform"] - matched) / 2


def test_fit_keeps_what_the_sample_does_not_show() -> None:
    """A dimension that is absent in the whole sample keeps its uniform cells."""
    grid = Grid.of(SMALL)
    sample = np.array([[0, v, 0, ABSENT, 0] for v in range(100)])
    fitted = fit(grid, sample)
    assert (fitted.starts[1] == grid.starts[1]).all()
    assert fitted.starts[0].tolist() == [ABSENT, 12, 25, 37, 50, 62, 75, 87]
