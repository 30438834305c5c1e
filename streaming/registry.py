"""Reading the registry: the facts from which everything can be rebuilt, and what deployments have agreed on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from infra.kafka import Transport
from infra.kafka.reading import Follower, every
from infra.logs import logger
from infra.signing_keys import SigningKeys
from state.config import Config
from state.control.agreed import Agreements
from state.control.facts import Fact, decode_fact, encode_fact, ends, newer
from state.formats import UNREADABLE
from state.keys import Key, home_key
from state.messages import Record
from state.signing import genuine, is_aged

FactKey = tuple[str, str, str, str]
"""Kind (`subscription` or `advertisement`), broker, type, id."""
_log = logger("registry")


class Aged(NamedTuple):
    """What another key than the present one has signed."""

    homes: list[Key]
    """Home keys that have such facts: they write them anew themselves."""
    records: list[tuple[bytes, bytes]]
    """Records that no home key writes."""


class RegistryReader:
    """Follows the registry from its beginning; of the records of a key the newest is its fact.

    Where there is a signing key, a record that is not signed with it is passed over, counted and said.
    """

    def __init__(self, config: Config, transport: Transport, keys: SigningKeys | None = None) -> None:
        self.facts: dict[FactKey, Fact] = {}
        self.agreements = Agreements()
        self.forged = 0
        """Records that nobody of ours has written."""
        self._topic, self._transport = config.topics.registry, transport
        self._keys = keys or SigningKeys(config)
        self._aged = False
        """Whether something was read that another key than the present one has signed."""
        self._ring = self._keys.current()
        self._follower = Follower(transport, config.topics.registry)
        self._changed: dict[FactKey, None] = {}
        self._overwritten: dict[FactKey, None] = {}
        self._agreed_overwritten: set[bytes] = set()

    def catch_up(self) -> list[FactKey]:
        """Read to the present end; return the keys that changed.

        Guarantee: after an error they are returned by the next call that succeeds.
        """
        ring, before = self._keys.current(), self.forged
        for record in self._follower.catch_up():
            if not genuine(record, ring):
                self.forged += 1
                continue
            self._aged |= ring is not None and is_aged(record, ring)
            taken = self.agreements.take(record.key or b"", record.value)
            if taken is None:
                self._take(record)
            elif not taken:
                self._agreed_overwritten.add(record.key or b"")
        if self.forged > before:
            _log.error(
                "%d records of the registry are not signed with a key of this deployment, and not used",
                self.forged - before,
            )
        changed, self._changed = self._changed, {}
        return list(changed)

    def catch_up_quietly(self) -> None:
        """Read to the present end; what changed is returned by the next `catch_up`."""
        self._changed |= dict.fromkeys(self.catch_up())

    def overwritten(self) -> list[tuple[bytes, bytes]]:
        """Records to write again: an older one came late, and compaction would keep that."""
        keys, self._overwritten = self._overwritten, {}
        again = [("/".join(key).encode(), encode_fact(self.facts[key])) for key in keys if key in self.facts]
        keys_agreed, self._agreed_overwritten = self._agreed_overwritten, set()
        return again + [self.agreements.record(key) for key in sorted(keys_agreed)]

    def aged(self, config: Config) -> Aged:
        """What is this deployment's to sign anew; each is given once.

        Cost: the registry is read once more after the key was changed, and nothing otherwise.
        """
        ring = self._keys.current()
        if ring is None or not (self._aged or ring != self._ring):
            return Aged([], [])
        last: dict[bytes, Record] = {}
        for record in every(self._transport, self._topic):
            if genuine(record, ring):
                last[record.key or b""] = record
        self._aged, self._ring = False, ring
        homes: dict[Key, None] = {}
        records: list[tuple[bytes, bytes]] = []
        for key, record in last.items():
            if record.value is None or not is_aged(record, ring):
                continue
            home = _writer_of(key, config)
            if isinstance(home, Key):
                homes[home] = None
            elif home:
                records.append((key, record.value))
        return Aged(sorted(homes), records)

    def _take(self, record: Record) -> None:
        kind, *rest = (record.key or b"").decode("utf-8", "replace").split("/")
        if kind not in ("subscription", "advertisement") or len(rest) != 3:
            return
        name = (kind, rest[0], rest[1], rest[2])
        known = self.facts.get(name)
        if record.value is None:
            if known is not None and not ends(record, known):
                self._overwritten[name] = None  # it ended another one, and was said again
                return
            self.facts.pop(name, None)
        else:
            try:
                fact = decode_fact(record.value)
            except UNREADABLE as error:
                _log.error("the registry's record at offset %d is no fact, and passed over: %s", record.offset, error)
                return
            self.facts[name] = newer(known, fact)
            if self.facts[name] is known:
                self._overwritten[name] = None
                return
        self._changed[name] = None

    def close(self) -> None:
        self._follower.close()


def _writer_of(key: bytes, config: Config) -> Key | bool:
    """The home key of ours that writes this record of the registry; True: the driver does; False: it is not ours.

    What belongs to no broker is of who hosts the first one, as in the inboxes.
    """
    kind, *rest = key.decode("utf-8", "replace").split("/")
    hosts, brokers = config.deployment.hosts, config.overlay.brokers
    if kind in ("generation", "refusal"):
        return rest == [config.deployment.name]
    if len(rest) != 3 or rest[0] not in brokers or rest[1] not in config.types:
        return brokers[0] in hosts
    return home_key(rest[0], rest[1], rest[2], config) if rest[0] in hosts else False


def sinks(facts: Iterable[Fact]) -> set[str]:
    """The topics that live subscriptions are delivered to instead of their client's own."""
    return {fact.sink for fact in facts if fact.live and fact.sink is not None}
