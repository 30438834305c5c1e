"""Streams: the numbered messages from one key to another, at both their ends.

    home or part ──Outbox──> (generation, 1), (generation, 2), ... ──Incoming──> part

The sender numbers what it says to each receiver and cuts what is too long for one message into pieces. The receiver
takes what comes next, ignores what is older, waits for the last piece, takes any newer snapshot, and notices a gap.
That makes repeats harmless and losses visible.

    1  2  3a 3b 4     applied: 1, 2, 3 (once 3b came), 4
    1  1  2           the second 1 is older: ignored
    1  3              a gap: 3 is not applied, and a snapshot is asked for
    1  3  4S          the snapshot is everything the stream has said; 5 is next
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from state.compiled_part import LocalEntry
from state.control.protocol import Advertised, Change, Entry, Seed
from state.keys import Key

MESSAGE_BYTES_MAX = 512 * 1024
"""A change whose items are longer than this, as they are written, is cut: additions first, then removals."""

Position = tuple[int, int]
"""Generation and sequence: how far a stream has come."""
Lists = dict[str, Sequence[Any]]
"""The lists of a change by their names, additions before removals."""
_encoder = msgspec.msgpack.Encoder()


class Outbox:
    """The sending end of all streams of one key."""

    def __init__(
        self, source: Key, generation: int, dialect: str, sequences: dict[str, int], *, cut: bool = True
    ) -> None:
        """`cut=False`: for what goes through no topic, whatever its length."""
        self._cut = cut
        self._source = str(source)
        self._generation = generation
        self._dialect = dialect
        self._sequences = sequences
        """By receiver: the number of the last message."""

    def change(
        self,
        target: str,
        *,
        snapshot: bool = False,
        local: Sequence[LocalEntry] = (),
        entries: Sequence[Entry] = (),
        removed: Sequence[str] = (),
        advertised: Sequence[Advertised] = (),
        unadvertised: Sequence[str] = (),
    ) -> list[tuple[str, Change]]:
        """Messages that bring `target` up to date in one step: all additions come before any removal."""
        additions: Lists = {"local": local, "entries": entries, "advertised": advertised}
        cut = _pieces if self._cut else _whole
        pieces = cut(additions | {"removed": removed, "unadvertised": unadvertised})
        messages = []
        for i, piece in enumerate(pieces):
            self._sequences[target] = self._sequences.get(target, 0) + 1
            message = Change(
                source=self._source,
                generation=self._generation,
                sequence=self._sequences[target],
                grid=self._dialect,
                snapshot=snapshot,
                piece=i,
                pieces=len(pieces),
                local=piece.get("local", []),
                entries=piece.get("entries", []),
                advertised=piece.get("advertised", []),
                removed=piece.get("removed", []),
                unadvertised=piece.get("unadvertised", []),
            )
            messages.append((target, message))
        return messages


class Incoming:
    """The receiving end of all streams towards one key, for the length of one batch.

    `positions` and `waiting` (the pieces of a step that is not whole yet) are by source, and part of the key's state.
    """

    def __init__(
        self,
        positions: dict[str, Position],
        waiting: dict[str, list[Change]],
        dialect: str,
        generation: int,
        hosts: Iterable[str],
    ) -> None:
        self._positions = positions
        self._waiting = waiting
        self._dialect = dialect
        self._generation = generation
        self._hosts = frozenset(hosts)
        self.gaps: set[str] = set()
        """Sources of which something was missed: they are to be asked for a snapshot."""

    def take(self, message: Change) -> list[Change]:
        """The pieces of the step that this message makes whole; none, if there is nothing to apply (yet).

        A step that was cut waits for its last piece: an entry that an early piece replaces may have been covering
        one that a later piece brings.
        """
        if message.grid != self._dialect:
            return []  # of another configuration; its sender will open a new generation when it restarts
        source, here = message.source, (message.generation, message.sequence)
        generation, sequence = self._position(source)
        if here <= (generation, sequence):
            return []
        opens = message.snapshot and message.piece == 0
        pieces = [] if message.piece == 0 else self._waiting.get(source, [])
        if (not opens and here != (generation, sequence + 1)) or len(pieces) != message.piece:
            self.gaps.add(source)
            return []
        self._positions[source] = here
        self._waiting.pop(source, None)
        pieces = [*pieces, message]
        if len(pieces) < message.pieces:
            self._waiting[source] = pieces
            return []
        if message.snapshot:
            self.gaps.discard(source)
        return pieces

    def _position(self, source: str) -> Position:
        known = self._positions.get(source)
        if known is not None:
            return known
        # a key of this deployment begins its streams with the generation; another one's begins with a snapshot
        return (self._generation if Key.parse(source).broker in self._hosts else 0, 0)


# ── cutting ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def seeds(generation: int, blob: bytes) -> list[Seed]:
    """Cut a state into messages that fit Kafka's limit."""
    cuts = [blob[i : i + MESSAGE_BYTES_MAX] for i in range(0, len(blob), MESSAGE_BYTES_MAX)] or [b""]
    return [Seed(generation, i, len(cuts), cut) for i, cut in enumerate(cuts)]


def seeded(
    seeds: Iterable[Seed], generation: int, readable: Callable[[bytes], bool] = lambda blob: True
) -> bytes | None:
    """The state that these messages bring to a generation, however often each of them came; None: none of them does.

    Pieces of one state have their number in common; of several states the first that is whole and `readable` counts.

    >>> seeded([*seeds(2, b"old"), *seeds(3, b"new"), *seeds(3, b"new")], 3)
    b'new'
    """
    states: dict[int, dict[int, bytes]] = {}
    for seed in seeds:
        if seed.generation == generation:
            states.setdefault(seed.pieces, {}).setdefault(seed.piece, seed.blob)
    for number, pieces in states.items():
        blob = b"".join(pieces[i] for i in sorted(pieces))
        if len(pieces) == number and readable(blob):
            return blob
    return None


def _whole(lists: Lists) -> list[dict[str, list[Any]]]:
    return [{name: list(items) for name, items in lists.items()}]


def _pieces(lists: Lists) -> list[dict[str, list[Any]]]:
    """Cut lists, in their order, into messages of items that take no more than fits; at least one item each.

    Cost: everything is written once more than it would be, to know its length; item by item where it is to be cut.
    """
    if len(_encoder.encode(list(lists.values()))) <= MESSAGE_BYTES_MAX:
        return _whole(lists)
    pieces: list[dict[str, list[Any]]] = [{}]
    size = 0
    for name, items in lists.items():
        for item in items:
            length = len(_encoder.encode(item))
            if size and size + length > MESSAGE_BYTES_MAX:
                pieces.append({})
                size = 0
            pieces[-1].setdefault(name, []).append(item)
            size += length
    return pieces
