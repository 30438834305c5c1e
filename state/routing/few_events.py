"""A few events matched in one call of compiled code: of a small batch, calls and the arrays between them cost most.

    ranks, texts ──points with traits──> boxes that hold ──second looks──> events and subscriptions
      `text_hashes.place_points`     `scan.collect_few`   `residual_programs.decide_each`

What it cannot do it says, and the same is then done step by step (`junction.py`): a text with an escape, a filter that
was not read yet or that no program decides, more pairs than there is room for.
"""

from __future__ import annotations

import numpy as np

from state.arrays import Bools, Ints
from state.filters.residual_programs import YES, decide_each, laid_out_at
from state.kernels import njit
from state.matchers.scan import collect_few
from state.space.boxes import Ranks
from state.space.text_hashes import place_points

FEW_EVENTS = 16
"""Events up to which it pays."""
ROOM = 256
"""Pairs for which there is room."""


@njit
def match_few(
    segments: Ints,
    traits: Ints,
    programs: Ints,
    doubted: Bools,
    ranks: Ranks,
    starts: Ints,
    rows: Ints,
    pairs: Ints,
) -> int:
    """Write rows and owners whose boxes and filters hold into the two rows of `pairs`; return how many, or -1.

    `segments`, `programs`: where they lie. -1: this is not the way to ask.
    """
    points = np.empty((len(rows), ranks.shape[1] + len(traits)), np.int64)
    if place_points(ranks, starts, rows, traits, points) > 0:
        return -1
    found = collect_few(segments, points, pairs)
    if found > pairs.shape[1]:
        return -1
    for i in range(found):
        pairs[0, i] = rows[pairs[0, i]]
    places, code, literals, ends = laid_out_at(programs)
    answers = np.empty(found, np.uint8)
    yes, left = decide_each(
        pairs[0, :found], pairs[1, :found], ranks, starts, doubted, places, code, literals, ends, answers
    )
    if left > 0:
        return -1
    if yes < found:
        at = 0
        for i in range(found):
            pairs[0, at], pairs[1, at] = pairs[0, i], pairs[1, i]
            at += answers[i] == YES
    return yes
