"""Reading the registry: the facts from which everything can be rebuilt, and what deployments have agreed on."""

from __future__ import annotations

from collections.abc import Iterable

from infra.kafka import Transport
from infra.kafka.reading import Follower
from state.config import Config
from state.control.agreed import Agreements
from state.control.facts import Fact, decode_fact, encode_fact, newer

FactKey = tuple[str, str, str, str]
"""Kind (`subscription` or `advertisement`), broker, type, id."""


class RegistryReader:
    """Follows the registry from its beginning; of the records of a key the newest is its fact."""

    def __init__(self, config: Config, transport: Transport) -> None:
        self.facts: dict[FactKey, Fact] = {}
        self.agreements = Agreements()
        self._follower = Follower(transport, config.topics.registry)
        self._changed: dict[FactKey, None] = {}
        self._overwritten: dict[FactKey, None] = {}

    def catch_up(self) -> list[FactKey]:
        """Read to the present end; return the keys that changed.

        Guarantee: after an error they are returned by the next call that succeeds.
        """
        for record in self._follower.catch_up():
            if not self.agreements.take(record.key or b"", record.value):
                self._take(record.key or b"", record.value)
        changed, self._changed = self._changed, {}
        return list(changed)

    def catch_up_quietly(self) -> None:
        """Read to the present end; what changed is returned by the next `catch_up`."""
        self._changed |= dict.fromkeys(self.catch_up())

    def overwritten(self) -> list[tuple[bytes, bytes]]:
        """Records to write again: an older fact of a superseded driver came late, and compaction would keep that."""
        keys, self._overwritten = self._overwritten, {}
        return [("/".join(key).encode(), encode_fact(self.facts[key])) for key in keys if key in self.facts]

    def _take(self, key: bytes, value: bytes | None) -> None:
        kind, *rest = key.decode("utf-8", "replace").split("/")
        if kind not in ("subscription", "advertisement") or len(rest) != 3:
            return
        name = (kind, rest[0], rest[1], rest[2])
        if value is None:
            self.facts.pop(name, None)
        else:
            known, later = self.facts.get(name), decode_fact(value)
            self.facts[name] = newer(known, later)
            if self.facts[name] is known:
                self._overwritten[name] = None
                return
        self._changed[name] = None

    def close(self) -> None:
        self._follower.close()


def sinks(facts: Iterable[Fact]) -> set[str]:
    """The topics that live subscriptions are delivered to instead of their client's own."""
    return {fact.sink for fact in facts if fact.live and fact.sink is not None}
