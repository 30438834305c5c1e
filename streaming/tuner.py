"""When the router looks whether cubes, dimensions and cells should be chosen anew, and what it looks at.

    every `tune_s`: live facts of the registry, the last publications ──> `state/tuning.py` ──> another choice, or none

The deployment that hosts the overlay's first broker does, for all. While subscriptions are coming or going in number it
waits: what was right for half of them would be chosen anew at once.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from confluent_kafka import KafkaException

from infra.kafka import Transport
from infra.logs import logger
from state.config import Config, Fitted
from state.control.facts import Fact
from state.control.travelling import Filters
from state.errors import HilcastError
from state.filters.geometry import geometry
from state.space.boxes import Boxes
from state.space.decode import rank_events
from state.space.event_type import EventType
from state.tuning import Seen, tune
from streaming.registry import FactKey
from streaming.sampling import sample

STEADY = 0.1
"""A number of subscriptions that changed by more than this share since the last look is still on its way."""
LOOKS_MAX = 10
"""Looks after which it is judged however it changes."""
BOXES_OF = 1000
"""Subscriptions of a type whose filters are looked at."""
_log = logger("tuner")


class Tuner:
    """Looks now and then; `look` returns what is to be chosen instead of what is, or None."""

    def __init__(self, transport: Transport, clock: Callable[[], float] = time.monotonic) -> None:
        self._transport, self._clock = transport, clock
        self._next = clock()
        self._counts: Counter[str] = Counter()
        self._unsteady = 0

    def look(self, config: Config, facts: Mapping[FactKey, Fact]) -> dict[str, Fitted] | None:
        """What to choose for the types of this configuration, if it differs from what is chosen and it is time."""
        if not is_chooser(config) or config.settings.tune_s == 0 or self._clock() < self._next:
            return None
        self._next = self._clock() + config.settings.tune_s
        counts = Counter(key[2] for key, fact in facts.items() if key[0] == "subscription" and fact.live)
        if not self._is_steady(counts):
            return None
        try:
            chosen = tune(config, self._seen(config, counts, facts))
        except (KafkaException, HilcastError) as error:
            _log.warning("nothing is chosen now, the last publications cannot be read: %s", error)
            return None
        return chosen if chosen != config.fitted else None

    def _is_steady(self, counts: Counter[str]) -> bool:
        before, self._counts = self._counts, counts
        steady = all(abs(counts[name] - before[name]) <= STEADY * before[name] for name in {*counts, *before})
        self._unsteady = 0 if steady else self._unsteady + 1
        return steady or self._unsteady >= LOOKS_MAX

    def _seen(self, config: Config, counts: Counter[str], facts: Mapping[FactKey, Fact]) -> dict[str, Seen]:
        watched = {name: one for name, one in config.types.items() if _needs_events(one)}
        samples = sample(config, self._transport, watched)
        seen = {name: Seen(counts[name]) for name in config.types}
        for name, event_type in watched.items():
            events = rank_events(event_type, samples.get(name, [])).ranks
            boxes = _boxes(event_type, name, facts) if "index" in event_type.auto else None
            seen[name] = Seen(counts[name], events, boxes)
        return seen


def is_chooser(config: Config) -> bool:
    """Whether this deployment chooses for all."""
    return config.overlay.brokers[0] in config.deployment.hosts


def _needs_events(event_type: EventType) -> bool:
    return "index" in event_type.auto or any(a.cells == "quantile" for a in event_type.attributes)


def _boxes(event_type: EventType, name: str, facts: Mapping[FactKey, Fact]) -> Boxes:
    """The boxes of some live subscriptions of a type, spread over all of them."""
    live = [fact for key, fact in facts.items() if key[0] == "subscription" and key[2] == name and fact.live]
    some = list(_geometries(event_type, live[:: max(1, len(live) // BOXES_OF)]))
    return Boxes.concatenated(some, event_type.d)


def _geometries(event_type: EventType, facts: Iterable[Fact]) -> Iterable[Boxes]:
    filters = Filters(event_type)
    for fact in facts:
        try:
            yield geometry(filters.sent(fact.sent), event_type).boxes
        except HilcastError:  # dormant
            continue
