"""Probabilistic subsumption: an entry is withheld when random guesses find no point of it uncovered.

Implements [RSPC06]: the decision is that of `rspc.py`; active and passive entries are `withholding.py`, cancelling and
expiry (§5: the passive ones that a cancelled one covered are judged again) `group_covering.py`. Opt-in, for it may
lose: an entry that is not covered is withheld with probability at most `error`. `hybrid.py` loses nothing.

Draws are seeded from the entry's id and from what is judged of it. So a replay decides the same; and brokers along a
chain that hold the same active entries draw the same points: what the first of them forwards, the others forward too
(`chain_loss.py`).
"""

from __future__ import annotations

from collections.abc import Mapping

from state.reductions.group_covering import GroupCovering, counted
from state.reductions.judging import Rules
from state.reductions.parameters import ProbabilisticSettings, read
from state.reductions.rspc import STEPS
from state.space.packing import Geometry

COMPARED_MAX = 20_000
"""Numbers that subtraction may compare before the paper's steps: some 20 us."""
ROWS_MAX = 256
"""Active boxes that one judgement goes by; of more that meet an entry, the ones that share most with it."""


class Probabilistic(GroupCovering):
    """Forwards what is not covered by a group of other entries, as far as guesses tell.

    Parameters: `error`, the probability δ with which an entry that is not covered may be withheld (0.001);
    `trials_max`, the guesses a box may cost (20,000): where the error asks for more, the entry is forwarded, and
    `stats()` says what withholding would have cost (`cap_error_max`).
    Guarantee: what is forwarded is inside the union of the live entries; each judgement of a box that is not covered
    withholds it, and the active entries inside it, with probability <= `error`. An entry is judged when it comes and
    whenever one of its group goes.
    Differs: corners are looked at before the conflict table: one that lies in no active box is a proof. Of more than
    `ROWS_MAX` active boxes that meet a box the largest are asked. What these do not cover is forwarded, which loses
    nothing. So a judgement asks no more of them, however many there are. And where few boxes in few dimensions meet it,
    they are subtracted first (`COMPARED_MAX`): that is done sooner than the guesses that the true bound asks for, and
    is a proof either way. Where it comes to no end, as with many boxes in fifteen dimensions, the paper's steps decide.

    >>> from state.space.boxes import Boxes
    >>> p = Probabilistic(Boxes.of([([0, 0], [99, 99])]))
    >>> left, right = Boxes.of([([0, 0], [50, 99])]), Boxes.of([([40, 0], [99, 99])])
    >>> sorted(p.update({"left": left, "right": right, "middle": Boxes.of([([30, 10], [70, 20])])}).added)
    ['left', 'right']
    >>> p.fate("middle").by
    ('right', 'left')
    >>> delta = p.update({}, ["left"])
    >>> sorted(delta.added), delta.removed
    (['middle'], ('left',))
    """

    counted = counted((*STEPS, "rows", "subtraction"))
    compared_max: int = COMPARED_MAX

    def __init__(self, domain: Geometry, parameters: Mapping[str, object] | None = None) -> None:
        settings = read(ProbabilisticSettings, parameters)
        super().__init__(domain, Rules(False, self.compared_max, float(settings.error), settings.trials_max, ROWS_MAX))
