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
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np

from infra.kafka.transport import Place
from producers.client.inbox import Receipt
from producers.verify.eras import Era
from state.config import Config
from state.control.facts import Fact, decode_fact
from state.errors import HilcastError
from state.filters.cloudevents import read_filter
from state.filters.tree import Filter
from state.flooding import NEVER, Claim, ControlHistory, Stand
from state.formats import UNREADABLE
from state.messages import Record, owner_of, read_registration, speaker, split_key
from state.names import parted

Key = tuple[str, str, str]
"""Broker, type, id."""
Receipts = Mapping[Place, Sequence[tuple[float, Receipt]]]
"""By the input that is answered: when each receipt was written, and what it says."""


def read_receipts(records: Iterable[Record]) -> Receipts:
    """Receipts by the place that they answer, in order."""
    found: dict[Place, list[tuple[float, Receipt]]] = defaultdict(list)
    for record in records:
        try:
            receipt = msgspec.json.decode(record.value or b"", type=Receipt)
        except UNREADABLE:
            continue  # not written by a control query
        found[receipt.place].append((record.timestamp_ms, receipt))
    return found


def read_facts(records: Iterable[Record]) -> list[tuple[str, Key, Fact]]:
    """Kind, key and fact of every registry record that holds one."""
    found = []
    for record in records:
        kind, *key = (record.key or b"").decode("utf-8", "replace").split("/")
        if record.value is not None and len(key) == 3 and kind in ("subscription", "advertisement"):
            with contextlib.suppress(*UNREADABLE):  # the job passes over it, too
                found.append((kind, (key[0], key[1], key[2]), decode_fact(record.value)))
    return found


@dataclass
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
        records: Sequence[Record],
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
        held = {record.offset: record.timestamp_ms for record in records}
        self._first = records[0].offset if records else 0
        self._deleted = [
            ((broker, type_name, parted(id)[1]), fact)
            for of, (broker, type_name, id), fact in facts
            if of == kind and held.get(fact.offset) != fact.timestamp_ms and parted(id)[0] == client
        ]
        if any(self._is_of_another(fact) for _, fact in self._deleted):
            self._receipts = self._told_apart()
        self._force = self._forces(control)

    def _is_of_another(self, fact: Fact) -> bool:
        """Whether the record of a fact, which is not held, may have been one of an inbox that this one came after."""
        return fact.offset >= self._first

    def _told_apart(self) -> Receipts:
        """The receipts, those of an inbox that was there before under places of their own (`_earlier`)."""
        since = self._records[0].timestamp_ms if self._records else NEVER
        keys = {record.offset: (record.key or b"").decode("utf-8", "replace") for record in self._records}
        found: dict[Place, list[tuple[float, Receipt]]] = defaultdict(list)
        for (topic, partition, offset), answers in self._receipts.items():
            for at, receipt in answers:
                present = at >= since and offset in keys and receipt.key in (None, keys[offset])
                of = topic if present or topic != self._inbox else _earlier(receipt.key)
                found[of, partition, offset].append((at, receipt))
        return found

    def _forces(self, control: ControlHistory) -> dict[float, float]:
        """When a change of each moment was in force, all looked up at once."""
        times = {float(record.timestamp_ms) for record in self._records}
        times |= {float(fact.timestamp_ms) for _, fact in self._deleted}
        times |= {at for answers in self._receipts.values() for at, receipt in answers if receipt.kind == "expired"}
        times |= {answers[0][0] for answers in map(self._answers, self._receipts) if answers}
        moments = sorted(times)
        return dict(zip(moments, control.in_force(np.array(moments, np.float64)).tolist(), strict=True))

    def claims(self) -> list[Claim]:
        """The history of every key."""
        histories: dict[Key, _History] = defaultdict(_History)
        for key, fact in self._deleted:
            self._recall(histories[key], key, fact)
        for record in self._records:
            try:
                key = split_key(record.key)
            except HilcastError:
                continue  # refused as bad-key: it never stood
            self._apply(histories[key], key, record)
        for history in histories.values():
            self._expire(history, NEVER)
        return [Claim(*key, tuple(history.stands)) for key, history in histories.items() if history.stands]

    def _recall(self, history: _History, key: Key, fact: Fact) -> None:
        """A fact whose inbox record is deleted; what was before it is not known."""
        if not history.stands and fact.owner is not None and not self._is_out(key):
            history.stands.append(Stand(-NEVER, -NEVER, fact.owner, self._destination(fact.owner, fact.sink)))
        now, place = float(fact.timestamp_ms), fact.origin
        in_force_ms = self._force[now]
        if self._is_of_another(fact):
            # when its records were read nobody knows, only when they were answered
            place = (_earlier("/".join(key)), fact.partition, fact.offset)
            answers = self._answers(place)
            in_force_ms = self._force[answers[0][0]] if answers else NEVER
        if fact.live and fact.owner is not None:
            written = self._filter(msgspec.json.decode(fact.filter or "null"), key[1])
            if self._is_dormant(key, written, place):
                self._stand(history, Stand(now, in_force_ms), fact.version)
                return
            destination = self._destination(fact.owner, fact.sink)
            self._stand(history, Stand(now, in_force_ms, fact.owner, destination, written), fact.version)
            history.expires_ms = None if fact.expires_ms is None else float(fact.expires_ms)
            self._note_expiry(history, place)
            self._note_refusal(history, now, place)
        else:
            self._withdraw(history, now, in_force_ms, answered=True)

    def _apply(self, history: _History, key: Key, record: Record) -> None:
        answers = self._answers(record.place)
        now = float(record.timestamp_ms)
        if not answers and self._receipts.get(record.place):
            return  # refused
        kind = answers[0][1].kind if answers else None
        version = answers[0][1].version if answers else None
        # refused at first, and read once more by another configuration, it was said when that one took it
        again = bool(answers) and answers[0] != self._receipts[record.place][0]
        in_force_ms = NEVER if kind is None else self._force[answers[0][0] if again else now]
        if record.value is None:
            self._withdraw(history, now, in_force_ms, answered=kind is not None)
            return
        if kind in ("withdrawn", "expired") or (
            kind == "accepted" and version is not None and version == history.version
        ):
            return  # the very same event again: it is answered by what became of it, and changes nothing
        owner, destination, written, ttl_ms = self._read(record, key)
        if kind is not None and self._is_dormant(key, written, record.place):
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
            self._note_expiry(history, record.place)
        self._note_refusal(history, now, record.place)

    def _is_out(self, key: Key) -> bool:
        """Whether a configuration that was in force, and is not merely that of now, lacks the broker or the type."""
        broker, type_name, _ = key
        known = broker in self._config.overlay.brokers and type_name in self._config.types
        return self._config.version > 0 and not known

    def _is_dormant(self, key: Key, written: Filter | None, place: Place) -> bool:
        """Whether a registration that was accepted once is certain to be nothing to this configuration."""
        unreadable = self._config.version > 0 and written is None
        return self._is_out(key) or (unreadable and bool(self._refusals(place)))

    def _answers(self, place: Place) -> Sequence[tuple[float, Receipt]]:
        """The receipts of a record from the first on that does not refuse it."""
        answers = self._receipts.get(place, ())
        first = next((i for i, (_, receipt) in enumerate(answers) if receipt.kind != "refused"), len(answers))
        return answers[first:]

    def _refusals(self, place: Place) -> list[float]:
        """When what had been accepted was refused, perhaps by this configuration.

        One that refuses says so before it is in force, and not before it is announced.
        """
        answers = self._answers(place)
        return [at for at, receipt in answers if receipt.kind == "refused" and at >= self._era.since_ms]

    def _note_refusal(self, history: _History, now: float, place: Place) -> None:
        """What this configuration, or the next one, has refused is dormant, for a while or for good."""
        refusals = self._refusals(place)
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

    def _note_expiry(self, history: _History, place: Place) -> None:
        told = [at for at, receipt in self._receipts.get(place, ()) if receipt.kind == "expired"]
        history.expired_ms = told[0] if told and history.expires_ms is not None else None

    def _expire(self, history: _History, now: float) -> None:
        """End what expired before the change of this moment: by its receipt, or perhaps if only its time was up.

        A receipt of the expiry proves that it came before the change, though it may have been written after.
        """
        if history.expires_ms is None:
            return
        if history.expired_ms is not None:
            since = min(history.expires_ms, history.expired_ms)
            history.stands.append(Stand(since, self._force[history.expired_ms]))
            history.version = None
        elif history.expires_ms <= now:
            history.stands.append(Stand(history.expires_ms, NEVER))
        history.expires_ms = history.expired_ms = None

    def _read(self, record: Record, key: Key) -> tuple[str | None, str, Filter | None, int | None]:
        """Owner, destination, filter and time to live; a filter that cannot be read any more is None."""
        try:
            event = read_registration(record, self._config)
        except HilcastError:
            owner = owner_of(record, self._config)
            return owner, self._destination(owner or "", None), None, None
        owner = event.owner or ""
        return owner, self._destination(owner, event.sink), self._filter(event.filter, key[1]), event.ttl_ms

    def _destination(self, owner: str, sink: str | None) -> str:
        return "" if self._advertisements else sink or self._config.topics.deliver(owner)

    def _filter(self, written: object, type_name: str) -> Filter | None:
        event_type = self._config.types.get(type_name)
        try:
            return None if event_type is None else read_filter(written, event_type)
        except HilcastError:
            return None


def _earlier(key: str | None) -> str:
    """The topic under which receipts of a key are kept that an inbox had of the same name; no topic is called so."""
    return f"/{key or ''}"


def sinks(config: Config, records: Iterable[Record]) -> set[str]:
    """Every further topic that a subscription has named as its destination."""
    found = set()
    for record in records:
        try:
            event = read_registration(record, config)
        except HilcastError:
            continue
        if event.sink is not None:
            found.add(event.sink)
    return found
