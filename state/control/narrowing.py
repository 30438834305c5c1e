"""A batch that fails inside is halved until the records that do it stand alone: all but those are applied.

    8 records fail ──> 4 are applied | 4 fail ──> 2 are applied | 2 fail ──> 1 is applied | 1 is left out

Each half begins with the state that what came before it has left, as if the batch had been cut there; batches may be
cut anywhere. What raises is our own bug, found by somebody's record: it is counted, said in a log line, and answered
with the code `internal`. A wedge would be worse: the batch would be replayed, and fail again, for ever.

Guarantee: the same state and records give the same bytes. Cost: none where nothing fails; else at most twice the
logarithm of the batch, for each record that is left out, in attempts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from state.control.context import Result
from state.errors import ENVIRONMENT, StateUnreadable

T = TypeVar("T")
Attempt = Callable[[bytes | None, Sequence[T]], Result]
"""Apply items to a state; whatever raises has changed nothing."""
LeftOut = Callable[[bytes | None, T, Exception], Result]
"""Answer one item that cannot be applied; the state stays."""


def narrowed(state: bytes | None, items: Sequence[T], attempt: Attempt[T], left_out: LeftOut[T]) -> Result:
    """Apply all items that can be applied, in their order, and answer the others."""
    try:
        return attempt(state, items)
    except (*ENVIRONMENT, StateUnreadable):
        raise
    except Exception as error:
        if len(items) <= 1:
            return left_out(state, items[0], error) if items else Result(state)
    half = len(items) // 2
    first = narrowed(state, items[:half], attempt, left_out)
    return first.then(narrowed(first.state, items[half:], attempt, left_out))
