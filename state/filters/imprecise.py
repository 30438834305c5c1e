"""Imprecise events: an attribute given as an interval, `{"min": 3, "max": 5}`, where the event type allows it.

[RSPC06] §1 lets a publication be a box and calls it matched when a subscription covers it. Here each attribute says
which it wants: `certain`, the filter must hold whatever the value really is, or `possible`, it may hold.

             certain a                 the event is the box; the filter holds of the shaded part
        ┌──────────────────┐
     p  │▒▒▒▒▒▒▒▒▒▒│       │           only certain attributes     the whole box must be shaded
     o  │▒▒▒▒▒▒▒▒▒▒└───────┤           only possible ones          some point of it must be
     s. │        │▒▒▒▒▒▒▒▒▒│           both                        above every a some p: as in this picture
        └──────────────────┘

Differs: the paper knows only covering. An interval is judged as a whole, not predicate by predicate: of
`a < 5 OR a >= 5` it is certain, and of `a < 3 AND a > 4` not even possible. Only int, float and timestamp attributes
can be imprecise (`state/config.py`); their ranks are exact, and so is this.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod

import numpy as np

from state.errors import HilcastError
from state.filters.disjoint import disjoint_union
from state.filters.geometry import region
from state.filters.tree import And, Filter, Predicate, conjunction, disjunction, predicates
from state.space.boxes import Boxes
from state.space.event_type import EventType
from state.space.ranks import PRESENT_MAX, PRESENT_MIN, Span, rank_span

_BOXES_MAX = 100_000

Holds = Callable[[Mapping[str, object]], bool]


def imprecise_names(filter: Filter, event_type: EventType) -> tuple[str, ...]:
    """The attributes of the filter that events may give as an interval."""
    used = {predicate.attribute for predicate in predicates(filter)}
    return tuple(a.name for a in event_type.attributes if a.imprecise is not None and a.name in used)


def spread(event: Mapping[str, object], names: tuple[str, ...], event_type: EventType) -> dict[str, Span]:
    """Those of the attributes that this event gives as an interval, with their ranks: ABSENT for a faulty one.

    >>> from state.space.event_type import Attribute
    >>> spread({"a": {"min": 3, "max": 5}}, ("a",), EventType("t", (Attribute("a", "int", imprecise="certain"),)))
    {'a': (3, 5)}
    """
    given = [name for name in names if isinstance(event.get(name), Mapping)]
    return {name: rank_span(event_type.attribute(name), event[name]) for name in given}


def possible_boxes(boxes: Boxes, event_type: EventType) -> Boxes:
    """Widen the boxes of a filter by what imprecise events can add: along `possible` attributes to all that is present.

    Guarantee: whatever event satisfies the filter and another one, the widened boxes meet those of the other. An
    interval may touch both `a < 3` and `a > 7`, which no value does.
    """
    lows, highs = boxes.lows.copy(), boxes.highs.copy()
    for column, attribute in enumerate(event_type.attributes):
        if attribute.imprecise == "possible":
            present = highs[:, column] >= PRESENT_MIN
            lows[present, column] = np.minimum(lows[present, column], PRESENT_MIN)
            highs[present, column] = PRESENT_MAX
    return Boxes(lows, highs)


def holds_of_box(
    filter: Filter,
    event: Mapping[str, object],
    spans: Mapping[str, Span],
    event_type: EventType,
    compiled: Callable[[Predicate], Holds],
) -> bool:
    """Tell whether the filter holds of an event with intervals, as its attributes want it.

    `compiled` evaluates predicates on the attributes that are not intervals; what remains is geometry in the others.
    Guarantee: exact. Cost: that of the boxes of the filter in those dimensions.
    """
    rest = _remaining(filter, event, spans, compiled)
    if isinstance(rest, bool):
        return rest
    attributes = tuple(a for a in event_type.attributes if a.name in spans)
    boxes = region(rest, EventType(event_type.name, attributes), _BOXES_MAX)
    if boxes is None:
        raise HilcastError("filter-limit", f"more than {_BOXES_MAX} boxes in {len(attributes)} dimensions")
    low, high = np.array([spans[a.name] for a in attributes], dtype=np.int64).T
    inside = boxes.clipped(low, high)
    certain = [k for k, a in enumerate(attributes) if a.imprecise == "certain"]
    if not certain or len(inside) == 0:
        return len(inside) > 0
    return _covers(
        Boxes(inside.lows[:, certain], inside.highs[:, certain]), Boxes(low[None, certain], high[None, certain])
    )


def _remaining(
    filter: Filter, event: Mapping[str, object], spans: Mapping[str, Span], compiled: Callable[[Predicate], Holds]
) -> Filter | bool:
    """The filter with every predicate that this event decides replaced by its answer."""
    if isinstance(filter, Predicate):
        return filter if filter.attribute in spans else compiled(filter)(event)
    every = isinstance(filter, And)
    left = []
    for child in filter.children:
        rest = _remaining(child, event, spans, compiled)
        if rest is not every and isinstance(rest, bool):
            return rest
        if not isinstance(rest, bool):
            left.append(rest)
    if not left:
        return every
    return conjunction(left) if every else disjunction(left)


def _covers(boxes: Boxes, whole: Boxes) -> bool:
    """Whether boxes inside one box fill it: disjoint, they do exactly if they have as many points."""
    corners = disjoint_union(boxes.lows, boxes.highs, _BOXES_MAX)
    if corners is None:
        raise HilcastError("filter-limit", f"more than {_BOXES_MAX} boxes")
    return sum(map(_points, Boxes(*corners))) == sum(map(_points, whole))


def _points(corners: tuple[np.ndarray, np.ndarray]) -> int:
    low, high = corners
    return prod(int(b) - int(a) + 1 for a, b in zip(low, high, strict=True))  # beyond 64 bits
