"""Groups of clients that live: formed once, changed with every subscription, and watched for when to form them anew.

[STREE03] §4: the event space is divided into n subsets S_1 .. S_n, each with a multicast group of all clients that
have a box in it, and the rest S_0, the catch-all. Here S_q is a set of grid cells, groups are numbered 0 .. n-1,
and the catch-all is -1.

    subscriptions ──form──> cells of the grid with their clients ──clustering──> group of each kept cell
          ├── add, remove:  counts of boxes per (cell, client) change, and with them the members of the groups
    publications ──observe──> how often each cell is hit ──> waste now, against the waste when formed

Differs: the paper takes groups as given and cites others for incremental change. Here the members of a group follow
every subscription at once; which cells it has changes only by forming anew, when `drifted` says so.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from state.arrays import Bools, Floats, Ints
from state.distribution.cell_grid import CellGrid, best_cells
from state.distribution.clustering import CLUSTERINGS, expected_waste, unions, waste
from state.space.boxes import Boxes, Ranks

CATCH_ALL = -1
CELLS_KEPT = 200
"""T of the paper."""


@dataclass(eq=False)
class Groups:
    """The present groups of one broker and type.

    Guarantee: a client with a box that meets a cell of a group is a member of the group, and nobody else is.
    Deterministic: the same subscriptions and observations in the same order give the same groups.
    """

    grid: CellGrid
    cells: Ints
    """The kept cells, sorted."""
    labels: Ints
    """Group of each kept cell."""
    weights: Floats
    """p of every cell of the grid, as it was when the groups were formed."""
    n: int
    boxes: Boxes
    owners: Ints
    clients: Ints
    """The live subscriptions: box i belongs to subscription `owners[i]` of client `clients[i]`."""
    holding: Ints
    """holding[c, client]: boxes of the client that meet kept cell c."""
    seen: Ints
    """Publications observed in each cell since the groups were formed."""
    waste_formed: float = 0.0
    catch_all_formed: float = 0.0
    _members: Bools | None = field(default=None, repr=False)

    @classmethod
    def form(
        cls,
        grid: CellGrid,
        boxes: Boxes,
        owners: Ints,
        clients: Ints,
        weights: Floats,
        n: int,
        method: str = "pairwise",
        cells_kept: int = CELLS_KEPT,
    ) -> Groups:
        """Cluster the cells that count most into at most n groups; `weights` is p of every cell of the grid.

        Implements [STREE03] A.2 step 0 and the named clustering. Differs: the paper prefers Forgy's for its speed;
        at T = 200 pairwise grouping is as fast here, and wastes least (`benchmarks/distribution.py waste`).
        Cost: `CellGrid.interest` and the clustering.
        """
        owners, clients = _each(boxes, owners), _each(boxes, clients)
        assert weights.shape == (len(grid),), "one weight per cell"
        kept = best_cells(weights, grid.interest(boxes, clients), cells_kept)
        holding = _holding(grid, kept, boxes, clients, int(clients.max(initial=-1)) + 1)
        n = min(n, len(kept))
        labels = CLUSTERINGS[method](weights[kept], holding > 0, n) if n else np.empty(0, np.int64)
        order = np.argsort(kept)
        seen = np.zeros(len(grid), np.int64)
        groups = cls(grid, kept[order], labels[order], weights, n, boxes, owners, clients, holding[order], seen)
        groups.waste_formed, groups.catch_all_formed = groups.waste(), groups.catch_all_share()
        return groups

    def reformed(self, n: int, method: str = "pairwise", cells_kept: int = CELLS_KEPT, memory: float = 0.5) -> Groups:
        """Form the groups anew from what lives now; p is what was observed since, mixed with `memory` of the old p."""
        observed = self.seen.sum()
        now = self.seen / observed if observed else self.weights
        weights = memory * self.weights + (1 - memory) * now
        live = self.boxes, self.owners, self.clients
        return Groups.form(self.grid, *live, weights, n, method, cells_kept)

    def group_of(self, points: Ranks) -> Ints:
        """Return the group of each publication, CATCH_ALL for those in no group's cells."""
        return group_of_cells(self.cells, self.labels, self.grid.cells_of(points))

    def members(self) -> Bools:
        """M_q: bool (groups, clients)."""
        if self._members is None:
            self._members = unions(self.holding > 0, self.labels, self.n)
        return self._members

    def interested(self, points: Ranks) -> Ints:
        """How many clients have a box that holds each publication. Cost: O(points * boxes * dimensions)."""
        order = np.argsort(self.clients, kind="stable")
        lows, highs = self.boxes.lows[order], self.boxes.highs[order]
        first = np.flatnonzero(np.diff(self.clients[order], prepend=-1))
        found = np.zeros(len(points), np.int64)
        if len(first):
            for i, point in enumerate(points):
                holds = ((lows <= point) & (point <= highs)).all(axis=1)
                found[i] = np.logical_or.reduceat(holds, first).sum()
        return found

    def add(self, boxes: Boxes, owners: Ints, clients: Ints) -> None:
        """Add subscriptions; clients may be new. Cost: O(kept cells * boxes)."""
        owners, clients = _each(boxes, owners), _each(boxes, clients)
        new = int(clients.max(initial=-1)) + 1 - self.holding.shape[1]
        if new > 0:
            self.holding = np.pad(self.holding, ((0, 0), (0, new)))
        self.holding += _holding(self.grid, self.cells, boxes, clients, self.holding.shape[1])
        self.boxes = self.boxes.joined(boxes)
        self.owners = np.concatenate([self.owners, owners])
        self.clients = np.concatenate([self.clients, clients])
        self._members = None

    def remove(self, owners: Ints) -> None:
        """Withdraw subscriptions, all their boxes; unknown ones are ignored. Cost: O(kept cells * boxes gone)."""
        gone = np.isin(self.owners, owners)
        lost = self.boxes.take(gone)
        self.holding -= _holding(self.grid, self.cells, lost, self.clients[gone], self.holding.shape[1])
        self.boxes = Boxes(self.boxes.lows[~gone], self.boxes.highs[~gone])
        self.owners, self.clients = self.owners[~gone], self.clients[~gone]
        self._members = None

    def observe(self, points: Ranks) -> None:
        """Count publications by cell."""
        self.seen += np.bincount(self.grid.cells_of(points), minlength=len(self.grid))

    def _share(self) -> Floats:
        """p now: observed, once there is anything; until then that of the forming."""
        observed = self.seen.sum()
        return self.seen / observed if observed else self.weights

    def waste(self) -> float:
        """Wasted messages per publication, were every publication in a group's cells sent to the group."""
        return waste(self._share()[self.cells], self.holding > 0, self.labels, self.n) if self.n else 0.0

    def expected_waste(self) -> Floats:
        """EW of each group ([STREE03] A.2)."""
        return expected_waste(self._share()[self.cells], self.holding > 0, self.labels, self.n)

    def catch_all_share(self) -> float:
        """Share of the publications that no group takes."""
        return float(1.0 - self._share()[self.cells].sum())

    def drifted(self, tolerance: float = 0.25, observed_min: int = 1000) -> bool:
        """Tell whether to form the groups anew: waste or catch-all has grown by more than `tolerance` since.

        Waste is measured against the members a message has on average, so that a waste near zero may double
        without alarm. Publications count once `observed_min` were seen; changes of subscriptions count at once.
        """
        if 0 < self.seen.sum() < observed_min:
            return False
        share = self._share()[self.cells]
        reached = float((share * self.members().sum(axis=1)[self.labels]).sum()) if self.n else 0.0
        worse = self.waste() - self.waste_formed > tolerance * max(self.waste_formed, 0.1 * reached)
        missed = self.catch_all_share() - self.catch_all_formed > tolerance
        return worse or missed

    def check(self) -> None:
        """Assert that counts and members are those of the live subscriptions, recomputed."""
        self.boxes.check()
        assert len(self.boxes) == len(self.owners) == len(self.clients)
        assert (np.diff(self.cells) > 0).all()
        assert len(self.labels) == len(self.cells)
        assert set(self.labels.tolist()) == set(range(self.n))
        width = self.holding.shape[1]
        assert np.array_equal(self.holding, _holding(self.grid, self.cells, self.boxes, self.clients, width))
        meeting = self.grid.meets(self.cells, self.boxes)
        for group in range(self.n):
            clients = self.clients[meeting[self.labels == group].any(axis=0)]
            assert np.array_equal(np.flatnonzero(self.members()[group]), np.unique(clients))


def group_of_cells(kept: Ints, labels: Ints, cells: Ints) -> Ints:
    """The group of each of some cells: that of the kept cell it is, CATCH_ALL for the others."""
    if len(kept) == 0:
        return np.full(len(cells), CATCH_ALL)
    at = np.minimum(np.searchsorted(kept, cells), len(kept) - 1)
    return np.where(kept[at] == cells, labels[at], CATCH_ALL)


def _each(boxes: Boxes, numbers: Ints) -> Ints:
    """One number per box, as int64."""
    numbers = np.ascontiguousarray(numbers, dtype=np.int64)
    assert numbers.shape == (len(boxes),), "one number per box"
    return numbers


def _holding(grid: CellGrid, cells: Ints, boxes: Boxes, clients: Ints, n_clients: int) -> Ints:
    """Count, for each of some cells and each client, the boxes of the client that meet the cell."""
    holding = np.zeros((n_clients, len(cells)), np.int64)
    np.add.at(holding, clients, grid.meets(cells, boxes).T)
    return np.ascontiguousarray(holding.T)
