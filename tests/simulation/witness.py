"""Events that satisfy a filter, made from its boxes: a random event would rarely meet a narrow filter."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from state.filters.cloudevents import read_filter
from state.filters.geometry import geometry
from state.space.boxes import Boxes
from state.space.event_type import Attribute, EventType
from state.space.ranks import ABSENT, rank, unrank


def boxes_of(texts: Sequence[str], event_type: EventType) -> Boxes:
    """The part of the space where all of these filters may hold."""
    found = Boxes.everything(event_type.d)
    for text in texts:
        shape = geometry(read_filter(text, event_type), event_type).boxes
        parts = [shape.clipped(low, high) for low, high in found]
        found = Boxes.empty(event_type.d)
        for part in parts:
            found = found.joined(part)
    return found


def witness(
    boxes: Boxes, event_type: EventType, base: Mapping[str, object], rng: random.Random
) -> dict[str, object] | None:
    """An event in one of the boxes, as much like `base` as they allow; None if there is no box.

    The ends of a box are chosen more often than its inside: that is where routing would be off by one.
    """
    if len(boxes) == 0:
        return None
    row = rng.randrange(len(boxes))
    event = dict(base)
    for k, attribute in enumerate(event_type.attributes):
        low, high = int(boxes.lows[row, k]), int(boxes.highs[row, k])
        if low <= rank(attribute, event.get(attribute.name)) <= high and rng.random() < 0.5:
            continue
        value = _value(attribute, low, high, rng)
        if value is not None:
            event[attribute.name] = value
        elif low == ABSENT:
            event.pop(attribute.name, None)
    return event


def _value(attribute: Attribute, low: int, high: int, rng: random.Random) -> object:
    """A value with a rank from `low` to `high`, if one is found quickly."""
    tries = [low, high, min(low + 1, high), max(high - 1, low), rng.randint(low, high)]
    rng.shuffle(tries)
    return next((value for place in tries if (value := unrank(attribute, place)) is not None), None)
