"""Destinations that were fit when they were accepted, and are not any more: closed, so that nobody else waits for them.

    deleted, and may not be made again ─┐
    compacted, made narrow              ├──> closed: said, and told to the route workers (by Redis); what is for them
    rights to write withdrawn          ─┘    becomes a dead letter `sink-refused`
    fit again                          ────> open: said; deliveries go there again

A sink of Spark that cannot write one record fails its whole batch, again and again. So the driver looks at the
destinations that are in use: some at a time, and at all of them when the route query has failed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection

from infra.kafka.topic_keeper import TopicKeeper
from infra.logs import logger
from state.redis_index import RedisIndex

AT_ONCE = 200
"""Destinations that are looked at in one go; closed ones besides."""
THERE_AT_ONCE = 1000
"""The same of whether they exist: that is asked of so many in one go, and of all in LOOKS looks at most."""
LOOKS = 10
SAID_MAX = 5
_log = logger("watch")


class ClosedDestinations:
    """Which destinations are closed now, for the route workers of one generation."""

    def __init__(self, topics: TopicKeeper, redis: RedisIndex, generation: int) -> None:
        self.closed: dict[str, str] = {}
        self._topics, self._redis, self._generation = topics, redis, generation
        self._told: dict[str, str] | None = None
        """What the route workers were told last."""
        self._next = {"there": "", "fit": ""}
        """Where in the order of names the next look begins."""
        self._names: list[str] = []
        """Those that were wanted last, sorted."""

    def look(self, wanted: Collection[str], *, all_of_them: bool = False) -> list[str]:
        """Make the destinations that are missing, open and close what there is to; return what was made.

        Cost: questions to Kafka about some of them by name, or about all of them.
        """
        if len(wanted) != len(self._names) or not all(name in wanted for name in self._names):
            self._names = sorted(wanted)
        names = self._names
        share = max(THERE_AT_ONCE, -(-len(names) // LOOKS))
        closed = [name for name in self.closed if name in wanted]
        made, refused = self._topics.recreate({*(names if all_of_them else self._turn("there", share)), *closed})
        some = names if all_of_them else self._turn("fit", AT_ONCE)
        asked = {*some, *closed} - set(refused)
        found = refused | self._topics.unfit(asked)
        kept = {name: why for name, why in self.closed.items() if name in wanted and name not in asked}
        self._say(kept | found)
        self.closed = kept | found
        return made

    def tell(self) -> None:
        """Tell the route workers, if they do not know."""
        lost = bool(self.closed) and self._redis.closed_missing(self._generation)
        if self.closed != (self._told or {}) or self._told is None or lost:
            self._redis.close_destinations(self._generation, self.closed)
            self._told = dict(self.closed)

    def _turn(self, what: str, most: int) -> list[str]:
        """The next few names, round and round."""
        names = self._names
        first = bisect_right(names, self._next[what])
        some = [*names[first : first + most], *names[: max(0, min(first, first + most - len(names)))]]
        self._next[what] = some[-1] if some else ""
        return some

    def _say(self, found: dict[str, str]) -> None:
        fresh = [name for name in found if self.closed.get(name) != found[name]]
        for name in fresh[:SAID_MAX]:
            _log.error("nothing can be delivered to %s, what is for it becomes dead letters: %s", name, found[name])
        if len(fresh) > SAID_MAX:
            _log.error("nor to %d other destinations", len(fresh) - SAID_MAX)
        for name in [name for name in self.closed if name not in found][:SAID_MAX]:
            _log.warning("%s is delivered to again", name)
