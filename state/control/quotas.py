"""Quotas: what a client may have and do at one home key, and the `over-quota` of what is more.

    changes_per_minute   counted by the broker's clock, over any minute; what is over is refused and not counted
    subscriptions        live ones (and as many advertisements again); a replacement or withdrawal is never over
    predicates, boxes    of one filter, as it was sent
    share                of the content space, of one subscription: the share of the grid's cells that it touches

All of a client's registrations of a broker and type are at one home key (`keys.home_shard`), so that counting there is
exact. What counts is in the state and in the records, so that a replay decides alike. Each fact says how many changes
its client had made of late, so that a new generation, which begins with the facts, goes on counting: within ten seconds
as before, and never less strictly. Events that were refused after a client's last fact are not known to it.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Mapping

from state.advertisements.queue import size
from state.config import Config
from state.control.facts import Fact, Kind
from state.errors import HilcastError
from state.filters.geometry import geometry
from state.filters.tree import Filter
from state.keys import is_wide
from state.messages import Record
from state.names import parted
from state.security_settings import Quota
from state.space.grid import Grid

MINUTE_MS = 60_000
SLOT_MS = 10_000

Changes = dict[str, list[int]]
"""By client: when its last changes were, oldest first, as many as it may make in a minute."""


def recent(times: list[int]) -> list[int]:
    """The changes of a minute in short: when the last one was, and how many there were in its ten seconds and in those
    before.

    >>> recent([1_000, 56_000, 60_000, 61_000])
    [61000, 2, 1, 0, 0, 0, 0, 0]
    """
    newest = times[-1]
    slots = [0] * (MINUTE_MS // SLOT_MS + 1)
    for time in times:
        if newest - time < MINUTE_MS:
            slots[newest // SLOT_MS - time // SLOT_MS] += 1
    return [newest, *slots]


def recalled(told: list[int], limit: int) -> list[int]:
    """Times of changes that were told in short, oldest first: none earlier than it was, nor by ten seconds later.

    Told in short again they are the same: however many generations begin, it does not add up.

    >>> recalled([61000, 2, 1, 0, 0, 0, 0, 0], 9)
    [59999, 61000, 61000]
    """
    newest, *slots = told
    ends = [min(newest, (newest // SLOT_MS - slot + 1) * SLOT_MS - 1) for slot in range(len(slots))]
    times = [end for end, count in zip(ends, slots, strict=True) for _ in range(min(count, limit))]
    return times[:limit][::-1]


class Quotas:
    """The quotas of all clients at one home key, for the length of one batch."""

    def __init__(self, config: Config, type_name: str, grid: Grid, facts: Mapping[Kind, Mapping[str, Fact]]) -> None:
        self._limits = config.limits
        self._type = config.types[type_name]
        self._grid = grid
        self._facts = facts
        self._live: dict[tuple[Kind, str], int] = {}
        """Live registrations by client, once they were asked for."""
        self._last: dict[str, int] = {}
        """By inbox: the last offset that made a fact before this batch, once it was asked for."""
        self._newest_ms = 0

    def of(self, client: str) -> Quota:
        return self._limits.of(client, self._type.name)

    def change(self, changes: Changes, client: str, now_ms: int) -> None:
        """Note a control event of a client, or raise that it is one too many.

        Guarantee: of the events of any minute no more than the limit are not refused here. Records of two inboxes are
        not in the order of their times: the latest times are kept, whatever came first.

        >>> from state.config import parse
        >>> config = parse('''[overlay]\\nbrokers = ["b"]\\n[types.t.attributes]\\nx = { kind = "int" }
        ... [security]\\ninboxes = "own"\\n[limits]\\nchanges_per_minute = 2''')
        >>> quotas, changes = Quotas(config, "t", Grid.of(config.types["t"]), {}), {}
        >>> for now in (0, 1, 60_000): quotas.change(changes, "alice", now)
        >>> changes
        {'alice': [1, 60000]}
        """
        limit = self.of(client).changes_per_minute
        if limit is None:
            return
        self._newest_ms = max(self._newest_ms, now_ms)
        times = changes.setdefault(client, [])
        if len(times) >= limit and times[-limit] > now_ms - MINUTE_MS:
            raise HilcastError("over-quota", f"more than {limit} changes of {client} in a minute")
        insort(times, now_ms)
        del times[:-limit]

    def recall(self, changes: Changes, client: str, told: list[int]) -> None:
        """Take up what a fact tells of the changes of its client, unless something later is known."""
        limit = self.of(client).changes_per_minute
        if limit is not None and (client not in changes or changes[client][-1] <= told[0]):
            changes[client] = recalled(told, limit)

    def forget_old(self, changes: Changes) -> None:
        """Leave out what no minute can reach any more that a record still to come may be judged by."""
        for client, times in list(changes.items()):
            if times[-1] < self._newest_ms - 2 * MINUTE_MS:
                del changes[client]

    def registration(self, kind: Kind, client: str, filter: Filter, *, new: bool) -> None:
        """Raise `over-quota` if a client may not have this registration."""
        quota = self.of(client)
        if new and quota.subscriptions is not None and self.live(kind, client) >= quota.subscriptions:
            raise HilcastError("over-quota", f"{client} has {quota.subscriptions} live {kind}s, as many as it may have")
        predicates = size(filter) if quota.predicates is not None else 0
        if quota.predicates is not None and predicates > quota.predicates:
            raise HilcastError("over-quota", f"{predicates} predicates are more than {quota.predicates}")
        if quota.boxes is None and quota.share is None:
            return
        boxes = geometry(filter, self._type).boxes
        if quota.boxes is not None and len(boxes) > quota.boxes:
            raise HilcastError("over-quota", f"{len(boxes)} boxes are more than {quota.boxes}")
        if quota.share is not None and kind is Kind.SUBSCRIPTION:
            touched = [int(cube) for cube in self._grid.cubes_of(boxes)]
            share = self._grid.share(boxes, touched, wide=is_wide(len(touched), self._type.cubes))
            if share > quota.share:
                raise HilcastError("over-quota", f"{share:.3g} of the content space is more than {quota.share:g}")

    def again(self, record: Record, client: str, ids: Mapping[str, str]) -> None:
        """Raise `over-quota` for what was refused so before, and is read again by a new generation.

        A home key takes the records of an inbox in order, and so do its facts stand in the registry. So what comes
        before a record that made a fact, and made none, was refused; and by what the client has now it might not be.
        `ids`: Kafka's ids of the inboxes, as far as they are known: one that was made again counts anew.
        """
        quota = self.of(client)
        if quota.subscriptions is None and quota.changes_per_minute is None:
            return
        topic = record.topic
        if topic not in self._last:
            every = (fact for facts in self._facts.values() for fact in facts.values())
            mine = (f for f in every if f.topic == topic and f.topic_id in (None, ids.get(topic, f.topic_id)))
            self._last[topic] = max((fact.offset for fact in mine), default=-1)
        if record.offset < self._last[topic]:
            raise HilcastError("over-quota", f"{client} had as much as it may have when this came")

    def live(self, kind: Kind, client: str) -> int:
        """How many live registrations a client has here. Cost: O(registrations) once a batch and client."""
        if (kind, client) not in self._live:
            facts = self._facts.get(kind, {})
            self._live[kind, client] = sum(f.live for id, f in facts.items() if (parted(id)[0] or f.owner) == client)
        return self._live[kind, client]

    def count(self, kind: Kind, client: str, more: int) -> None:
        """A client has one more, or one less."""
        if (kind, client) in self._live:
            self._live[kind, client] += more

    def recount(self) -> None:
        self._live.clear()
