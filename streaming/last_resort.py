"""The last resort: a batch that fails again and again is done piece by piece, until the record at fault stands alone.

What fails inside the core is answered there (`state/control/narrowing.py`, `state/routing/route.py`). This is for what
nobody can catch: a worker that dies of a record, or a record whose outputs Kafka will not take.

    failed three times in the same place ──> careful: one piece at a time, with a note in Redis of what is in hand
    failed again, and a note is left     ──> what it names is suspect, and handled one by one
    failed again, with one in hand       ──> once more; then it is quarantined: a dead letter `internal`, said, counted
    a batch ended                        ──> as before, with what is quarantined left out

A worker that waits for Kafka, Redis or memory takes its note back before it gives up: nobody is suspect for that. What
is quarantined is written down in the checkpoint, so that a replay leaves out the same.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace

import redis

from infra.logs import logger
from state.redis_index import RedisIndex
from streaming.boot import Boot, Place
from streaming.checkpoint import Checkpoint

FAILURES_MAX = 3
"""Failures in the same place until it is looked for what does it."""
STRIKES = 2
"""So often something must be in hand, alone, when the query fails."""
IN_VAIN_MAX = 3
"""Careful lives that fail with nothing in hand: then it is no record that does it."""
_log = logger("last resort")


class LastResort:
    """What is known of the failures of one query."""

    def __init__(self, query: str, index: RedisIndex, checkpoint: Checkpoint, count: Callable[[int], None]) -> None:
        """`count` is told how many records were quarantined."""
        self._query, self._redis, self._checkpoint, self._count = query, index, checkpoint, count
        self.quarantined = frozenset(checkpoint.quarantined(query))
        self.careful = False
        self._suspects: frozenset[Place] = frozenset()
        self._failures = 0
        """In the same place."""
        self._in_vain = 0
        self._strikes: Counter[frozenset[Place]] = Counter()

    def told(self, boot: Boot) -> Boot:
        """What the workers of the next life are told; whatever was in hand in the last one is not any more."""
        if self.careful:
            self._put_down()
        return replace(boot, careful=self.careful, suspects=self._suspects, quarantined=self.quarantined)

    def failed(self, progressed: bool) -> None:
        """A life of the query has failed; `progressed`: after it had ended a batch."""
        self._failures = 1 if progressed else self._failures + 1
        if not self.careful:
            if self._failures >= FAILURES_MAX:
                self.careful = True
                _log.error(
                    "the %s query has failed %d times in the same place: it goes on piece by piece, to find why",
                    self._query,
                    self._failures,
                )
            return
        held = self._in_hand()
        if held:
            self._strike(held)
            return
        self._in_vain += 1
        if self._in_vain >= IN_VAIN_MAX:
            _log.error("no record is at fault for the failures of the %s query", self._query)
            self._forget()

    def ended(self) -> bool:
        """Told that a batch has ended; whether the query is to be started anew, to go on as it did before."""
        was, self._failures = self.careful, 0
        if was:
            _log.warning("the %s query is past the place where it failed", self._query)
            self._forget()
        return was

    def _strike(self, held: frozenset[Place]) -> None:
        alone = len(held) == 1 or held <= self._suspects
        self._strikes[held] += 1
        if not alone:
            self._suspects |= held
        elif self._strikes[held] >= STRIKES:
            self._quarantine(held)

    def _quarantine(self, places: Iterable[Place]) -> None:
        found = sorted(places)
        for topic, partition, offset in found:
            _log.error(
                "QUARANTINE: the %s query cannot be got past the record at %s/%d offset %d: it becomes a dead letter",
                self._query,
                topic,
                partition,
                offset,
            )
        self.quarantined |= frozenset(found)
        self._checkpoint.quarantine(self._query, self.quarantined)
        self._count(len(found))
        self._suspects = frozenset()
        self._strikes.clear()

    def _forget(self) -> None:
        self.careful, self._suspects, self._in_vain, self._failures = False, frozenset(), 0, 0
        self._strikes.clear()

    def _in_hand(self) -> frozenset[Place]:
        try:
            return frozenset(self._redis.in_hand(self._query))
        except redis.RedisError:
            return frozenset()  # away: then it is that which fails

    def _put_down(self) -> None:
        with contextlib.suppress(redis.RedisError):  # away: its workers wait for it, and find no note in the end
            self._redis.put_down(self._query)
