"""Who of a broker's clients reads which shared topic: what grouping decides and routing goes by ([STREE03] §4)."""

from __future__ import annotations

import msgspec
import numpy as np

from state import formats
from state.arrays import Bools
from state.topics import Topics

FORMAT = 1
BROADCAST = -1
"""The number that stands for the broadcast topic among those of groups."""


def shared_topic(topics: Topics, broker: str, number: int, set: str | None = None) -> str:
    """The topic of a group of a broker, or of its broadcast; of clients of one set, where they have sets.

    >>> shared_topic(Topics("p"), "b1", 3), shared_topic(Topics("p"), "b1", BROADCAST)
    ('p.group.b1.3', 'p.broadcast.b1')
    """
    return topics.broadcast(broker, set) if number == BROADCAST else topics.group(broker, number, set)


class TypeGroups(msgspec.Struct, kw_only=True):
    """The groups of one type at a broker, packed."""

    first: int
    """The number of its first group topic."""
    n: int
    dims: list[int]
    cuts: list[bytes]
    cells: bytes
    labels: bytes
    members: bytes
    """One byte per group and client."""


class Assignment(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Who of a broker's clients reads which shared topic."""

    clients: list[str]
    threshold: float
    broadcast: float | None
    types: dict[str, TypeGroups]
    sets: dict[str, str] | msgspec.UnsetType = msgspec.UNSET
    """By client that belongs to one: the set beyond which nobody may see what it gets. A group, or the broadcast, then
    has a topic for each set."""
    lanes: int = 1
    """Partitions of each shared topic that messages are written to: those that readers have spans of."""

    @classmethod
    def nobody(cls) -> Assignment:
        """That of a broker without groups: everybody is served alone."""
        return cls(clients=[], threshold=0.0, broadcast=None, types={})

    def encode(self) -> bytes:
        return formats.write(FORMAT, self)

    @classmethod
    def decode(cls, blob: bytes) -> Assignment:
        return formats.read("an assignment", FORMAT, blob, cls)

    def set_of(self, client: str) -> str | None:
        return None if self.sets is msgspec.UNSET else self.sets.get(client)

    def topics(self, topics: Topics, broker: str) -> dict[str, list[str]]:
        """By shared topic: the clients that read it, all of one set.

        >>> clients = Assignment(clients=["a", "b"], threshold=0.0, broadcast=0.5, types={}, sets={"b": "s"})
        >>> clients.topics(Topics("p"), "b1")
        {'p.broadcast.b1': ['a'], 'p.set.s.broadcast.b1': ['b']}
        """
        found: dict[str, list[str]] = {}
        for number, clients in sorted(self.readers().items()):
            for client in clients:
                found.setdefault(shared_topic(topics, broker, number, self.set_of(client)), []).append(client)
        return found

    def members(self, type_name: str) -> Bools:
        """Bool (groups, clients): who reads the topic of each group of a type."""
        groups = self.types[type_name]
        return np.frombuffer(groups.members, bool).reshape(groups.n, len(self.clients))

    def readers(self) -> dict[int, list[str]]:
        """By number of a group topic, and BROADCAST if there is one: the clients that read it."""
        readers = {} if self.broadcast is None else {BROADCAST: list(self.clients)}
        for name, groups in self.types.items():
            for i, row in enumerate(self.members(name)):
                readers[groups.first + i] = [self.clients[c] for c in np.flatnonzero(row)]
        return {number: clients for number, clients in readers.items() if clients}
