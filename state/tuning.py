"""What a running router chooses by itself, from what is registered and published: cubes, dimensions, cells.

    live subscriptions, a sample of publications ──> tune ──> Fitted, by type ──> the configuration in common

A type leaves a choice to the router with `cubes = "auto"`, `index = "auto"` or, for an attribute, `cells =
"quantile"`. What is chosen is part of the configuration that deployments have in common, so that all of them have one
grid; a new choice is a new version of it, and takes effect by a new generation. Each choice is kept until another one
is better by a stated measure: a generation costs more than a choice that is a little off.

Left out: when to look, and who does (`streaming/tuner.py`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from state.arrays import Ints
from state.config import Config, Fitted
from state.limits import CUBES_DEFAULT, DIMENSIONS_MAX
from state.space.boxes import Boxes, Ranks
from state.space.cells import moved, quantiles
from state.space.event_type import DIMENSIONS_DEFAULT, EventType
from state.space.grid import default_dimensions

CUBE_SUBSCRIPTIONS = 8000
"""Subscriptions of a type for each of its cubes. A filter that touches several cubes is handled in each of them, at
every broker: 100,000 narrow filters take three times as long to come into force with 128 cubes as with 16, and so do
1,000 changes of them. Larger parts take longer to unpack for one change (`python -m benchmarks.updates --cubes N`).
"""
CUBES_AUTO_MAX = 1024
PARTS_MAX = 2**16
"""Cubes of all types at all brokers, beyond which nothing is divided further: each is a key of the control state."""
CUBES_FACTOR = 4
"""The number of cubes changes when it is this many times too small or too large."""
EVENTS_MIN = 200
"""Publications without which nothing is judged by them."""
SUBSCRIPTIONS_MIN = 20
"""Subscriptions without which dimensions are not chosen."""
MOVED_MAX = 0.2
"""The Kolmogorov-Smirnov distance from which cells are moved. A sample of 500 is this far off by chance never."""
BETTER = 0.5
"""Dimensions change where others admit at most this share of what the present ones admit."""


@dataclass(frozen=True)
class Seen:
    """What is known of a type when it is looked at."""

    subscriptions: int = 0
    """Live ones, in the whole overlay."""
    events: Ranks = field(default_factory=lambda: np.empty((0, 0), np.int64))
    """The last publications, one rank vector each."""
    boxes: Boxes | None = None
    """Of some of the subscriptions."""


def tune(config: Config, seen: Mapping[str, Seen]) -> dict[str, Fitted]:
    """What is to be chosen for each type that leaves a choice; equal to `config.fitted` where nothing should change.

    Guarantee: a function of its arguments. A type of which nothing is known keeps what it has.
    """
    chosen: dict[str, Fitted] = {}
    for name, event_type in config.types.items():
        known = config.fitted.get(name, Fitted())
        what = seen.get(name, Seen())
        fitted = Fitted(
            _cubes(config, event_type, what.subscriptions) if "cubes" in event_type.auto else None,
            _index(event_type, known, what) if "index" in event_type.auto else [],
            _quantiles(event_type, known, what.events),
        )
        if fitted != Fitted():
            chosen[name] = fitted
    return chosen


def _cubes(config: Config, event_type: EventType, subscriptions: int) -> int | None:
    """None: as many as where nothing is said."""
    present = event_type.cubes
    wanted = wanted_cubes(subscriptions, len(config.overlay.brokers) * len(config.types))
    if event_type.bits is not None:  # a grid of so many cells has no more cubes
        dimensions = len(event_type.index or default_dimensions(event_type))
        wanted = min(wanted, 2 ** min(dimensions * event_type.bits, 62))
    if present // CUBES_FACTOR < wanted < present * CUBES_FACTOR:
        wanted = present
    return None if wanted == CUBES_DEFAULT else wanted


def wanted_cubes(subscriptions: int, places: int) -> int:
    """How many cubes so many subscriptions should have, in an overlay of so many brokers times types.

    >>> wanted_cubes(0, 7), wanted_cubes(100_000, 7), wanted_cubes(10**7, 7), wanted_cubes(10**7, 300)
    (16, 16, 1024, 128)
    """
    most = 2 ** int(math.log2(max(PARTS_MAX // places, CUBES_DEFAULT)))
    wanted = 2 ** max(0, math.ceil(math.log2(max(subscriptions, 1) / CUBE_SUBSCRIPTIONS)))
    return max(CUBES_DEFAULT, min(wanted, most, CUBES_AUTO_MAX))


def _index(event_type: EventType, known: Fitted, seen: Seen) -> list[str]:
    """The dimensions, most selective first; none: as where nothing is said."""
    if seen.boxes is None or len(seen.boxes) < SUBSCRIPTIONS_MIN or len(seen.events) < EVENTS_MIN:
        return known.index
    present = known.index or default_dimensions(event_type)
    shares = admitted(event_type, seen.boxes, seen.events)
    best = choose_dimensions(event_type, seen.boxes, seen.events)
    if _product(event_type, shares, best) > BETTER * _product(event_type, shares, present):
        return known.index
    return list(best)


def _product(event_type: EventType, shares: Ints, names: Sequence[str]) -> float:
    """The share that all of these attributes admit together, as if they were independent."""
    total = float(max(shares.max(), 1))
    return math.prod(shares[event_type.dimension[name]] / total for name in names)


def admitted(event_type: EventType, subscriptions: Boxes, events: Ranks) -> Ints:
    """By attribute: pairs of a subscription and an event that its interval of this attribute admits.

    Cost: O((n + m) log m) per attribute.
    """
    counts = np.empty(event_type.d, np.int64)
    for column in range(event_type.d):
        values = np.sort(events[:, column])
        below = np.searchsorted(values, subscriptions.lows[:, column], side="left")
        upto = np.searchsorted(values, subscriptions.highs[:, column], side="right")
        counts[column] = (upto - below).sum()
    return counts


def choose_dimensions(
    event_type: EventType, subscriptions: Boxes, sample: Ranks, count: int = DIMENSIONS_DEFAULT
) -> tuple[str, ...]:
    """Return the `count` attributes most selective for these subscriptions, the most selective first.

    Implements [MICS09] §5: the greedy choice of index dimensions. The selectivity of an attribute is the
    share of a sample of publications (rank vectors) that a subscription's interval admits, averaged over
    the subscriptions: the smaller, the more selective. Attributes that exclude nothing are left out, unless
    all do. Ties go by declared order. Cost: `admitted`.
    """
    assert 1 <= count <= DIMENSIONS_MAX, count
    assert len(subscriptions) > 0, "selectivity needs subscriptions"
    assert len(sample) > 0, "selectivity needs a sample of publications"
    counts = admitted(event_type, subscriptions, sample)
    everything = len(sample) * len(subscriptions)
    best = sorted(range(event_type.d), key=lambda column: int(counts[column]))[:count]
    selective = [column for column in best if counts[column] < everything] or best[:1]
    return tuple(event_type.attributes[column].name for column in selective)


def _quantiles(event_type: EventType, known: Fitted, events: Ranks) -> dict[str, list[int]]:
    """By attribute with such cells: what divides its publications; as it was where they have not moved."""
    chosen = {}
    for column, attribute in enumerate(event_type.attributes):
        if attribute.cells != "quantile":
            continue
        before = known.quantiles.get(attribute.name, [])
        values = events[:, column] if len(events) >= EVENTS_MIN else np.empty(0, np.int64)
        now = quantiles(values)
        if now and (not before or moved(tuple(before), values) > MOVED_MAX):
            before = list(now)
        if before:
            chosen[attribute.name] = before
    return chosen
