"""Facts: what is known of each registration, live or ended, and their form in the registry.

    registry   subscription/b1/stock.quote/s1    ──>  {"version": 3, "owner": "alice", "filter": "\\"price > 5\\"", ...}
               advertisement/b1/stock.quote/s1   ──>  an id may be used once for each kind

Home alone writes facts. Everything else can be rebuilt from them.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import msgspec

from state.keys import Key
from state.messages import Headers, Record

ENDS = "hilcast_ends"
"""The header of a null value in the registry that says which fact it ends; only where records are signed."""
FORMAT = 1
"""Of the JSON in the registry; what an older version wrote stays readable."""


_FORMAT_MEMBER = f',"format":{FORMAT}}}'.encode()
"""The last member of a fact."""


class Kind(StrEnum):
    """What can be registered, by its name in the registry; advertisements come first wherever both are gone through."""

    ADVERTISEMENT = "advertisement"
    SUBSCRIPTION = "subscription"

    @classmethod
    def of(cls, advertisement: bool) -> Kind:
        return cls.ADVERTISEMENT if advertisement else cls.SUBSCRIPTION


class Name(NamedTuple):
    """What tells one registration from all others of its broker and type.

    >>> Name(Kind.SUBSCRIPTION, "s1").in_registry(Key("b1", "stock.quote", "home:3"))
    b'subscription/b1/stock.quote/s1'
    """

    kind: Kind
    id: str

    def in_registry(self, home: Key) -> bytes:
        """The key of its fact in the registry."""
        return f"{self.kind}/{home.broker}/{home.type}/{self.id}".encode()


class Fact(msgspec.Struct, kw_only=True):
    """What home knows of one registration, live or ended."""

    version: int
    owner: str | None
    filter: str | None
    """The filter as JSON, as it was sent."""
    ttl_ms: int | None
    expires_ms: int | None
    sink: str | None
    content: bytes
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    live: bool
    ended: str | None = None
    """`withdrawn` or `expired`, once it is not live."""
    wide: bool | None = None
    """The kind of key that has its geometry; it stays the same for as long as this is replaced on one grid."""
    grid: str | None = None
    """The grid on which `wide` was decided."""
    parts: list[str] = []
    """Where its geometry is: `cube:n`, `wide:n`."""
    groups: bool = False
    """Whether its client may be served through group and broadcast topics."""
    topic_id: str | None = None
    """Kafka's id of the inbox that `offset` counts in: a topic that was deleted and made again has another. None: not
    known."""
    deployment: str | None = None
    """Who wrote it, and in which `generation`; None: a version that did not say."""
    generation: int = 0
    recent: list[int] | msgspec.UnsetType = msgspec.UNSET
    """Where changes are limited: how many its client had made of late (`quotas.py`), for a new generation to know."""

    @property
    def origin(self) -> tuple[str, int, int]:
        """The record of an inbox that made it what it is: topic, partition, offset."""
        return (self.topic, self.partition, self.offset)

    @property
    def sent(self) -> object:
        """The filter as it was sent, as JSON read."""
        return msgspec.json.decode(self.filter or "null")


def encode_fact(fact: Fact) -> bytes:
    """A fact as readable JSON for the registry; its parts are left out, since they follow from filter and kind."""
    known = msgspec.json.encode(msgspec.structs.replace(fact, parts=[]))
    return known[:-1] + _FORMAT_MEMBER


def decode_fact(value: bytes) -> Fact:
    """A fact of the registry; one of `formats.UNREADABLE` if it is none."""
    return msgspec.json.decode(value, type=Fact)


def newer(known: Fact | None, later: Fact) -> Fact:
    """Of two facts of one key the one that counts; `later` stands behind `known` in the registry.

    The later one does, unless the same deployment wrote it in an older generation: a driver that was superseded and
    had not noticed. What it took from an inbox the generation in force takes as well. Kafka's compaction knows
    nothing of this and keeps the last record: whoever sees an older one come late writes the newer one again.
    Facts of different deployments are compared by their place alone: a broker that moves begins to count anew.

    >>> def fact(generation, version, deployment="main"):
    ...     return Fact(version=version, owner="c", filter=None, ttl_ms=None, expires_ms=None, sink=None, content=b"",
    ...         topic="t", partition=0, offset=version, timestamp_ms=0, live=True, deployment=deployment,
    ...         generation=generation)
    >>> newer(fact(2, 5), fact(1, 6)).version, newer(fact(2, 5), fact(2, 6)).version
    (5, 6)
    >>> newer(fact(7, 5), fact(1, 6, "other")).version, newer(None, fact(1, 6)).version
    (6, 6)
    """
    if known is None or known.deployment != later.deployment:
        return later
    return known if later.generation < known.generation else later


def ending(fact: Fact) -> Headers:
    """What a null value says of the fact that it ends: the input that made it what it was. Said again later, it ends
    nothing that came since.
    """
    return ((ENDS, f"{fact.topic}/{fact.partition}/{fact.offset}/{fact.topic_id or ''}/{fact.version}".encode()),)


def ends(record: Record, fact: Fact) -> bool:
    """Whether a null value of the registry ends this fact; one that names none ends whatever there is."""
    named = tuple(header for header in record.headers if header[0] == ENDS)
    return not named or named == ending(fact)
