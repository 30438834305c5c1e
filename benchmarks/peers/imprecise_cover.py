"""Publications that are boxes, against the union of what a neighbour asked for.

[RSPC06] §1: the subsumption question serves imprecise publications too, by asking whether a set of subscriptions covers
the publication's box. Here it is asked for links; who among the subscribers of a broker is concerned is the matchers'
question (`match_boxes`, one subscription at a time).

    possible   some box meets the publication      it may concern somebody there
    certain    the boxes together cover it         whatever its true values are, somebody there wants it
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from state.reductions.hybrid import proving
from state.reductions.judging import verdict
from state.reductions.parameters import HybridSettings
from state.reductions.rspc import seed_of
from state.space.boxes import Boxes


def concerned(
    publications: Boxes,
    union: Boxes,
    mode: Literal["possible", "certain"] = "possible",
    budget: int = HybridSettings.budget,
) -> NDArray[np.bool_]:
    """Tell for each publication whether it concerns `union`: meets it (possible) or is covered by it (certain).

    Differs: the paper covers only, with a probability of error; here both are exact within `budget` pieces a
    publication, and one that is still undecided counts as concerned: a false alarm rather than a loss.
    Cost: O(publications * boxes * d), and the judgement of each publication that is not met by nothing.

    >>> halves = Boxes.of([([0, 0], [5, 9]), ([4, 0], [9, 9])])
    >>> publications = Boxes.of([([1, 1], [8, 8]), ([8, 8], [12, 12]), ([10, 0], [11, 0])])
    >>> concerned(publications, halves).tolist(), concerned(publications, halves, "certain").tolist()
    ([True, True, False], [True, False, False])
    """
    rules = proving(HybridSettings(budget, error=0.5, trials_max=0))
    answers = np.zeros(len(publications), bool)
    for i, (low, high) in enumerate(publications):
        meeting = np.flatnonzero(((union.lows <= high) & (union.highs >= low)).all(axis=1))
        if mode == "possible" or len(meeting) == 0:
            answers[i] = len(meeting) > 0
            continue
        found = verdict(rules, low, high, union.lows[meeting], union.highs[meeting], seed_of("", low, high))
        answers[i] = found.covered or found.step == "budget"
    return answers
