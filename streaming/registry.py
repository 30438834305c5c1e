"""Reading the registry: the facts from which everything can be rebuilt, and the generation of each deployment."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from infra.kafka import Transport
from infra.kafka.reading import Follower
from state.config import Config
from state.control.facts import Fact, decode_fact

FactKey = tuple[str, str, str, str]
"""Kind (`subscription` or `advertisement`), broker, type, id."""


class RegistryReader:
    """Follows the registry from its beginning; the last record of a key is its fact."""

    def __init__(self, config: Config, transport: Transport) -> None:
        self.facts: dict[FactKey, Fact] = {}
        self.generations: dict[str, int] = {}
        self._follower = Follower(transport, config.topics.registry)
        self._changed: dict[FactKey, None] = {}

    def catch_up(self) -> list[FactKey]:
        """Read to the present end; return the keys that changed.

        Guarantee: after an error they are returned by the next call that succeeds.
        """
        for record in self._follower.catch_up():
            touched = self._take(record.key or b"", record.value)
            if touched is not None:
                self._changed[touched] = None
        changed, self._changed = self._changed, {}
        return list(changed)

    def _take(self, key: bytes, value: bytes | None) -> FactKey | None:
        kind, *rest = key.decode().split("/")
        if kind == "generation" and value is not None:
            self.generations[rest[0]] = int(msgspec.json.decode(value)["generation"])
            return None
        if kind not in ("subscription", "advertisement") or len(rest) != 3:
            return None
        fact_key = (kind, rest[0], rest[1], rest[2])
        if value is None:
            self.facts.pop(fact_key, None)
        else:
            self.facts[fact_key] = decode_fact(value)
        return fact_key

    def close(self) -> None:
        self._follower.close()


def sinks(facts: Iterable[Fact]) -> set[str]:
    """The topics that live subscriptions are delivered to instead of their client's own."""
    return {fact.sink for fact in facts if fact.live and fact.sink is not None}


def generation_record(deployment: str, generation: int, fingerprint: str) -> tuple[bytes, bytes]:
    """Key and value of the record by which a deployment claims a generation."""
    value = {"generation": generation, "fingerprint": fingerprint}
    return f"generation/{deployment}".encode(), msgspec.json.encode(value)
