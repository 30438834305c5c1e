"""What choices of the distribution method cost, copy by copy: by this account `benchmarks/distribution.py` compares.

The router itself fits its threshold to shares alone (`state.distribution.method.fitted`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from state.arrays import Bools, Ints
from state.distribution.groups import CATCH_ALL
from state.distribution.method import Choice, CostModel, sizes_of


@dataclass(frozen=True)
class Ledger:
    """What a batch of choices costs, in copies and bytes."""

    copies_written: int
    bytes_written: int
    copies_useful: int
    copies_discarded: int
    bytes_discarded: int

    def cost(self, model: CostModel) -> float:
        return model.write * self.bytes_written + model.discard * self.bytes_discarded


def account(
    choice: Choice, rows: Ints, clients: Ints, members: Bools, sizes: Ints, listeners: Bools | None = None
) -> Ledger:
    """Count what a choice for the interested pairs writes and wastes; `sizes` are the bytes of each event."""
    n = len(choice.group)
    unicasts = np.bincount(choice.unicast_rows, minlength=n)
    to_group = choice.group != CATCH_ALL
    written = unicasts + to_group + choice.broadcast
    audience = 0 if listeners is None else int(listeners.sum())
    read = unicasts + sizes_of(choice.group, members) + choice.broadcast * audience
    useful = np.bincount(rows, minlength=n)
    discarded = read - useful
    return Ledger(
        int(written.sum()),
        int((written * sizes).sum()),
        int(useful.sum()),
        int(discarded.sum()),
        int((discarded * sizes).sum()),
    )
