"""From the records of the inboxes and their receipts to the history of every subscription and advertisement.

    inbox record ── its first receipt ──┬─ accepted, replaced ──> a new stand, unless it repeats the one that stands
                                        ├─ withdrawn ───────────> nothing stands
                                        ├─ refused ─────────────> no change, unless another configuration took it up
                                        └─ none yet ────────────> possible from now on, never certain
    expired receipt, or its time is up ────────────────────────> nothing stands

It is told as one configuration has it, in its era (`eras.py`): a registration for a broker or type that it lacks lies
dormant, as does one whose filter it cannot read; another `refused` receipt says so.

Pure: records in, claims out. What Kafka has deleted of an inbox is filled in from the registry. That may be all of it:
an inbox that was deleted and made again counts from 0 again, and receipts of both name the same offsets:

    fact of the registry      its record is not held: nothing at that offset, or one of another time ──> recalled
    receipt of such a place   of the record that is held there, if it names its key and was written after the first one
                              of the inbox; else of a fact that is recalled
"""

from __future__ import annotations

import contextlib
from array import array
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np

from producers.verify.eras import Era
from producers.verify.held import Answer, Held, Receipts
from state.config import Config
from state.control.facts import Fact, decode_fact
from state.errors import HilcastError
from state.filters.cloudevents import read_filter
from state.filters.tree import Filter
from state.flooding import NEVER, Claim, ControlHistory, Stand
from state.formats import UNREADABLE
from state.messages import Record, owner_of, read_registration, speaker, split_key
from state.names import parted
from state.space.event_type import EventType

Key = tuple[str, str, str]
"""Broker, type, id."""


def read_facts(records: Iterable[Record]) -> list[tuple[str, Key, Fact]]:
    """Kind, key and fact of every registry record that holds one."""
    return [found for found in map(read_fact, records) if found is not None]


def read_fact(record: Record) -> tuple[str, Key, Fact] | None:
    """Kind, key and fact of a registry record; None of one that holds another thing."""
    kind, *key = (record.key or b"").decode("utf-8", "replace").split("/")
    if record.value is not None and len(key) == 3 and kind in ("subscription", "advertisement"):
        with contextlib.suppress(*UNREADABLE):  # the job passes over it, too
            return kind, (key[0], key[1], key[2]), decode_fact(record.value)
    return None


class Written(msgspec.Struct, frozen=True, gc=False):
    """A filter as it was sent: of very many most of the bytes are saved, and most of the time where few are asked."""

    sent: object
    type: EventType

    def __call__(self) -> Filter | None:
        """Read it; None if it cannot be read any more."""
        try:
            return read_filter(self.sent, self.type)
        except HilcastError:
            return None


@dataclass(slots=True)
class _History:
    """The stands of one key so far, and whether a receipt would now be a repeat."""

    stands: list[Stand] = field(default_factory=list)
    version: int | None = None
    """Of what stands; None while nothing does."""
    expires_ms: float | None = None
    expired_ms: float | None = None
    """When the receipt of the expiry was written."""


class HistoryReader:
    """Folds one inbox."""

    def __init__(
        self,
        config: Config,
        inbox: str,
        records: Held,
        receipts: Receipts,
        control: ControlHistory,
        facts: Sequence[tuple[str, Key, Fact]] = (),
        era: Era | None = None,
    ) -> None:
        """`era`: the time of this configuration; None where it is only known to be that of now."""
        self._config = config
        self._era = era or Era(config)
        self._inbox = inbox
        self._records = records
        self._receipts = receipts
        self._advertisements, client = speaker(inbox, config)
        kind = "advertisement" if self._advertisements else "subscription"
        self._deleted = [
            ((broker, type_name, parted(id)[1]), fact)
            for of, (broker, type_name, id), fact in facts
            if of == kind and records.time_of(fact.offset) != fact.timestamp_ms and parted(id)[0] == client
        ]
        if any(self._is_of_another(fact) for _, fact in self._deleted):
            self._receipts = self._told_apart()
        self._names: dict[str, str] = {}
        """Names that occur often, each once."""
        self._moments, self._in_force = self._forces(control)

    def _is_of_another(self, fact: Fact) -> bool:
        """Whether the record of a fact, which is not held, may have been one of an inbox that this one came after."""
        return fact.offset >= self._records.first

    def _told_apart(self) -> Receipts:
        """The receipts, those of an inbox that was there before under places of their own (`_earlier`)."""
        since = min(self._records.times_ms[:1], default=NEVER)
        found = Receipts()
        for (topic, partition, offset), answer in self._receipts:
            held = self._records.at(offset)
            named = None if held is None else (held.key or b"").decode("utf-8", "replace")
            present = answer.at_ms >= since and held is not None and answer.key in (None, named)
            of = topic if present or topic != self._inbox else _earlier(answer.key)
            found.add((of, partition, offset), answer)
        return found

    def _forces(self, control: ControlHistory) -> tuple[array[float], array[float]]:
        """Every moment at which something was said, in order; and when that was in force, all looked up at once."""
        facts = np.array([fact.timestamp_ms for _, fact in self._deleted], np.float64)
        said = (np.array(self._records.times_ms, np.float64), facts, self._receipts.times_ms())
        moments = np.unique(np.concatenate(said))
        return array("d", moments.tobytes()), array("d", control.in_force(moments).tobytes())

    def _force(self, at_ms: float) -> float:
        """When what was said at one of these moments was in force."""
        return self._in_force[bisect_left(self._moments, at_ms)]

    def claims(self) -> list[Claim]:
        """The history of every key."""
        histories: dict[Key, _History] = defaultdict(_History)
        for key, fact in self._deleted:
            self._recall(histories[key], key, fact)
        for record in self._records:
            try:
                broker, type_name, id = split_key(record.key)
            except HilcastError:
                continue  # refused as bad-key: it never stood
            key = self._name(broker), self._name(type_name), id
            self._apply(histories[key], key, record)
        claims = []
        for key in list(histories):
            history = histories.pop(key)  # what was folded is not kept beside what became of it
            self._expire(history, NEVER)
            if history.stands:
                claims.append(Claim(*key, tuple(history.stands)))
        return claims

    def _name(self, name: str) -> str:
        return self._names.setdefault(name, name)

    def _recall(self, history: _History, key: Key, fact: Fact) -> None:
        """A fact whose inbox record is deleted; what was before it is not known."""
        if not history.stands and fact.owner is not None and not self._is_out(key):
            history.stands.append(Stand(-NEVER, -NEVER, fact.owner, self._destination(fact.owner, fact.sink)))
        now, place = float(fact.timestamp_ms), fact.origin
        in_force_ms = self._force(now)
        if self._is_of_another(fact):
            # when its records were read nobody knows, only when they were answered
            place = (_earlier("/".join(key)), fact.partition, fact.offset)
            answers = _unrefused(self._receipts.of(place))
            in_force_ms = self._force(answers[0].at_ms) if answers else NEVER
        if fact.live and fact.owner is not None:
            told = self._receipts.of(place)
            written = self._filter(fact.sent, key[1])
            if self._is_dormant(key, written, told):
                self._stand(history, Stand(now, in_force_ms), fact.version)
                return
            destination = self._destination(fact.owner, fact.sink)
            self._stand(history, Stand(now, in_force_ms, fact.owner, destination, written), fact.version)
            history.expires_ms = None if fact.expires_ms is None else float(fact.expires_ms)
            self._note_expiry(history, told)
            self._note_refusal(history, now, told)
        else:
            self._withdraw(history, now, in_force_ms, answered=True)

    def _apply(self, history: _History, key: Key, record: Record) -> None:
        told = self._receipts.of(record.place)
        answers = _unrefused(told)
        now = float(record.timestamp_ms)
        if not answers and told:
            return  # refused
        kind = answers[0].kind if answers else None
        version = answers[0].version if answers else None
        # refused at first, and read once more by another configuration, it was said when that one took it
        again = len(answers) < len(told)
        in_force_ms = NEVER if kind is None else self._force(answers[0].at_ms if again else now)
        if record.value is None:
            self._withdraw(history, now, in_force_ms, answered=kind is not None)
            return
        if kind in ("withdrawn", "expired") or (
            kind == "accepted" and version is not None and version == history.version
        ):
            return  # the very same event again: it is answered by what became of it, and changes nothing
        owner, destination, written, ttl_ms = self._read(record, key)
        if kind is not None and self._is_dormant(key, written, told):
            self._stand(history, Stand(now, in_force_ms), version)
            return
        if owner is None or self._is_out(key):
            return
        if kind is None:
            history.stands.append(Stand(now, NEVER, owner, destination, written))
            return
        self._stand(history, Stand(now, in_force_ms, owner, destination, written), version)
        if ttl_ms is not None:
            history.expires_ms = now + ttl_ms
            self._note_expiry(history, told)
        self._note_refusal(history, now, told)

    def _is_out(self, key: Key) -> bool:
        """Whether a configuration that was in force, and is not merely that of now, lacks the broker or the type."""
        broker, type_name, _ = key
        known = broker in self._config.overlay.brokers and type_name in self._config.types
        return self._config.version > 0 and not known

    def _is_dormant(self, key: Key, written: Written | None, told: Sequence[Answer]) -> bool:
        """Whether a registration that was accepted once is certain to be nothing to this configuration."""
        if self._is_out(key):
            return True
        if self._config.version == 0 or not self._refusals(told):
            return False
        return written is None or written() is None

    def _refusals(self, told: Sequence[Answer]) -> list[float]:
        """When what had been accepted was refused, perhaps by this configuration.

        One that refuses says so before it is in force, and not before it is announced.
        """
        answers = _unrefused(told)
        return [one.at_ms for one in answers if one.kind == "refused" and one.at_ms >= self._era.since_ms]

    def _note_refusal(self, history: _History, now: float, told: Sequence[Answer]) -> None:
        """What this configuration, or the next one, has refused is dormant, for a while or for good."""
        refusals = self._refusals(told)
        if refusals:
            first = min(refusals)
            history.stands.append(Stand(now if first <= self._era.in_force_ms else first, NEVER))

    def _withdraw(self, history: _History, now: float, in_force_ms: float, answered: bool) -> None:
        if answered:
            self._expire(history, now)
            history.version = None
        history.stands.append(Stand(now, in_force_ms))

    def _stand(self, history: _History, stand: Stand, version: int | None) -> None:
        self._expire(history, stand.since_ms)
        history.stands.append(stand)
        history.version = version

    def _note_expiry(self, history: _History, told: Sequence[Answer]) -> None:
        expired = [one.at_ms for one in told if one.kind == "expired"]
        history.expired_ms = expired[0] if expired and history.expires_ms is not None else None

    def _expire(self, history: _History, now: float) -> None:
        """End what expired before the change of this moment: by its receipt, or perhaps if only its time was up.

        A receipt of the expiry proves that it came before the change, though it may have been written after.
        """
        if history.expires_ms is None:
            return
        if history.expired_ms is not None:
            since = min(history.expires_ms, history.expired_ms)
            history.stands.append(Stand(since, self._force(history.expired_ms)))
            history.version = None
        elif history.expires_ms <= now:
            history.stands.append(Stand(history.expires_ms, NEVER))
        history.expires_ms = history.expired_ms = None

    def _read(self, record: Record, key: Key) -> tuple[str | None, str, Written | None, int | None]:
        """Owner, destination, filter and time to live; the filter of what cannot be read any more is None."""
        try:
            event = read_registration(record, self._config)
        except HilcastError:
            owner = owner_of(record, self._config)
            return owner, self._destination(owner or "", None), None, None
        owner = self._name(event.owner or "")
        return owner, self._destination(owner, event.sink), self._filter(event.filter, key[1]), event.ttl_ms

    def _destination(self, owner: str, sink: str | None) -> str:
        return "" if self._advertisements else self._name(sink or self._config.topics.deliver(owner))

    def _filter(self, sent: object, type_name: str) -> Written | None:
        event_type = self._config.types.get(type_name)
        return None if event_type is None else Written(sent, event_type)


def _unrefused(answers: Sequence[Answer]) -> Sequence[Answer]:
    """Receipts from the first on that does not refuse."""
    first = next((i for i, answer in enumerate(answers) if answer.kind != "refused"), len(answers))
    return answers[first:]


def _earlier(key: str | None) -> str:
    """The topic under which receipts of a key are kept that an inbox had of the same name; no topic is called so."""
    return f"/{key or ''}"


def sinks(config: Config, records: Iterable[Record]) -> set[str]:
    """Every further topic that a subscription has named as its destination."""
    found = set()
    for record in records:
        value = record.value or b""
        if b"sink" not in value and b"\\" not in value:
            continue  # without an escape there is no other way to write the name of the field
        try:
            event = read_registration(record, config)
        except HilcastError:
            continue
        if event.sink is not None:
            found.add(event.sink)
    return found
