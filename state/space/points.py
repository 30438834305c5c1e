"""One event as a point of the rank space, or as a box where some of its attributes are intervals."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from state.space.boxes import Ranks
from state.space.event_type import EventType
from state.space.ranks import rank_span


def rank_spans(event_type: EventType, event: Mapping[str, object]) -> tuple[Ranks, Ranks]:
    """Return the lowest and the highest rank of every attribute of one event (not equal: imprecise)."""
    spans = [rank_span(attribute, event.get(attribute.name)) for attribute in event_type.attributes]
    both = np.array(spans, dtype=np.int64).reshape(-1, 2)
    return np.ascontiguousarray(both[:, 0]), np.ascontiguousarray(both[:, 1])


def ranks(event_type: EventType, event: Mapping[str, object]) -> Ranks:
    """Return the rank vector of one event, the low end where it is imprecise. Batches: `decode.py`."""
    return rank_spans(event_type, event)[0]
