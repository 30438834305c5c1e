"""The roll of a junction: what the numbers of its subscriptions stand for, as columns.

    number ──> id        the id as it is kept, and how many bytes of that are the client's namespace
           ──> recipient ──> client, destination
           ──> text      ──> the filter that decides where boxes cannot, -1: none
           ──> flags     GROUPED, DOUBTED, UNREADABLE
           ──> digest    of all that the entry says: two entries are equal if their digests are

Every column only grows. Recipients and texts are found again among what is added at one time, and not beyond that: the
same client may stand there twice, which who asks must not mind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from state.arrays import Bools, Bytes, Ints, Words
from state.compiled_part import CompiledPart
from state.digests import entry_digests as digests_of
from state.hash_lanes import DIGEST_BYTES
from state.shelf import Column, KeptColumn, KeptTexts, Shelf, Texts

GROUPED, DOUBTED, UNREADABLE = 1, 2, 4
"""Whose client may be served through shared topics; whose boxes are a superset even for points; whose filter cannot be
read, and who gets nothing."""
NO_TEXT = -1
_TOLD = 4
"""In what is hashed of an entry: a filter decides, if only an empty one."""


class KeptRoll(msgspec.Struct, array_like=True, frozen=True):
    """How a roll is found on a shelf."""

    texts: list[KeptTexts]
    columns: list[KeptColumn]

    def names(self) -> list[str]:
        """What it needs of the shelf."""
        return [name for one in self.texts for name in one.names()] + [column.name for column in self.columns]


class Roll:
    """By number: who has a subscription, where its deliveries go, and what decides about it."""

    def __init__(self) -> None:
        self.ids, self.clients, self.destinations, self.texts = Texts(), Texts(), Texts(), Texts()
        self.skip, self.flags = Column(np.uint8), Column(np.uint8)
        self.recipient, self.text = Column(np.int32), Column(np.int32)
        self.digest = Column(np.uint64)

    @property
    def _texts(self) -> tuple[Texts, ...]:
        return self.ids, self.clients, self.destinations, self.texts

    @property
    def _columns(self) -> tuple[Column, ...]:
        return self.skip, self.flags, self.recipient, self.text, self.digest

    def __len__(self) -> int:
        return len(self.flags)

    def add(self, part: CompiledPart, entries: Ints, digests: Words, unreadable: set[int]) -> None:
        """Write down entries of a part under the next numbers, in their order, which is that of the part."""
        ids, clients, destinations = _chosen(entries, part.ids, part.clients, part.destinations)
        self.ids.add(ids)
        self.skip.add(np.array([id.rfind(":") + 1 for id in ids], np.uint8))
        codes, pairs = _recipients(clients, destinations)
        self.recipient.add(codes + len(self.clients))
        self.clients.add(client for client, _ in pairs)
        self.destinations.add(destination for _, destination in pairs)
        place = np.full(len(part.ids), -1)
        place[entries] = np.arange(len(entries))
        where, texts = np.full(len(entries), NO_TEXT), dict[str, int]()
        for entry, text in sorted(part.residuals.items()):
            if place[entry] >= 0:
                where[place[entry]] = texts.setdefault(text, len(texts)) + len(self.texts)
        self.text.add(where)
        self.texts.add(texts)
        flags = np.zeros(len(entries), np.uint8)
        for some, flag in ((part.grouped, GROUPED), (part.doubtful, DOUBTED), (unreadable, DOUBTED | UNREADABLE)):
            at = place[list(some)]
            flags[at[at >= 0]] |= flag
        self.flags.add(flags)
        self.digest.add(digests.ravel())

    def compacted(self, old: Ints) -> Roll:
        """The same for some of the numbers, in this order, with no client and no text that none of them has."""
        fresh = Roll()
        fresh.ids.add(self.ids[number] for number in old.tolist())
        for mine, column in ((fresh.skip, self.skip), (fresh.flags, self.flags)):
            mine.add(column.values[old])
        recipients, codes = np.unique(self.recipient.values[old], return_inverse=True)
        fresh.recipient.add(codes)
        fresh.clients.add(self.clients[code] for code in recipients.tolist())
        fresh.destinations.add(self.destinations[code] for code in recipients.tolist())
        texts, codes = np.unique(self.text.values[old], return_inverse=True)
        none = int(len(texts) > 0 and texts[0] == NO_TEXT)
        fresh.text.add(codes - none)
        fresh.texts.add(self.texts[code] for code in texts[none:].tolist())
        fresh.digest.add(self.digests(old).ravel())
        return fresh

    # ── ask ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def digests(self, numbers: Ints) -> Words:
        """(n, 2): what tells the entries of some numbers apart from all others."""
        return self.digest.values.reshape(-1, 2)[numbers]

    def named(self, numbers: Ints, ids: Sequence[str]) -> Bools:
        """For some numbers whether theirs is one of these ids, as they are kept. Cost: a look at each."""
        every = self.ids.gathered(numbers, np.zeros(len(numbers), np.uint8))
        return np.asarray(pc.is_in(every, pa.array([id.encode() for id in ids], pa.binary())))

    def having(self, flag: int) -> Bools:
        """By number: whether it has a flag."""
        return (self.flags.values & flag) != 0

    def ids_of(self, numbers: Ints) -> pa.Array:
        """The ids of some numbers as their clients know them."""
        return self.ids.gathered(numbers, self.skip.values[numbers])

    def recipients(self, numbers: Ints) -> tuple[Ints, pa.Array, pa.Array]:
        """For some numbers the place of client and destination in two columns, which follow."""
        codes = self.recipient.values[numbers]
        there = np.zeros(len(self.clients), bool)
        there[codes] = True
        found = np.flatnonzero(there)
        whole = np.zeros(len(found), np.uint8)
        return (
            (np.cumsum(there) - 1)[codes],
            self.clients.gathered(found, whole),
            self.destinations.gathered(found, whole),
        )

    def places(self, clients: Mapping[str, int]) -> Ints:
        """By number: the place of its client among some, -1 where it is none of them."""
        known = [clients.get(self.clients[code], -1) for code in range(len(self.clients))]
        return np.array(known, np.int64)[self.recipient.values]

    def id(self, number: int) -> str:
        """The id of one number as its client knows it."""
        return self.ids[number][int(self.skip.values[number]) :]

    def client(self, number: int) -> str:
        """The client of one number."""
        return self.clients[int(self.recipient.values[number])]

    def destination(self, number: int) -> str:
        """The topic of one number."""
        return self.destinations[int(self.recipient.values[number])]

    # ── keep ────────────────────────────────────────────────────────────────────────────────────────────────────

    def keep(self, shelf: Shelf) -> KeptRoll:
        """Write down what the shelf has not got, and go on with its arrays."""
        texts, columns = (texts.kept(shelf) for texts in self._texts), (column.kept(shelf) for column in self._columns)
        return KeptRoll(list(texts), list(columns))

    def open(self, kept: KeptRoll, shelf: Shelf) -> None:
        """Be what was kept."""
        for texts, kept_texts in zip(self._texts, kept.texts, strict=True):
            texts.open(kept_texts, shelf)
        for column, kept_column in zip(self._columns, kept.columns, strict=True):
            column.open(kept_column, shelf)

    def check(self) -> None:
        """Assert that all columns are of one length, and that codes stand for something."""
        n = len(self)
        assert {len(self.ids), len(self.skip), len(self.recipient), len(self.text), len(self.digest) / 2} == {n}
        assert len(self.clients) == len(self.destinations)
        if n:
            assert 0 <= self.recipient.values.min() <= self.recipient.values.max() < len(self.clients)
            assert NO_TEXT <= self.text.values.min() <= self.text.values.max() < len(self.texts)


def _chosen(entries: Ints, *columns: list[str]) -> list[list[str]]:
    """These of the entries in each column."""
    if len(entries) == len(columns[0]):
        return list(columns)  # all of them
    chosen = entries.tolist()
    return [[column[entry] for entry in chosen] for column in columns]


def _recipients(clients: list[str], destinations: list[str]) -> tuple[Ints, list[tuple[str, str]]]:
    """By entry which pair of client and destination it has, and the pairs, each once."""
    pairs: dict[tuple[str, str], int] = {}
    codes = [pairs.setdefault(pair, len(pairs)) for pair in zip(clients, destinations, strict=True)]
    return np.array(codes, np.int64), list(pairs)


def entry_digests(part: CompiledPart) -> Words:
    """(n, 2): for each entry 16 bytes of BLAKE2b over all that it says: texts by their own digests, and its boxes.

    Cost: some 0.3 us for each, compiled, and a digest for each recipient and each text.
    """
    n = len(part.ids)
    if not n:
        return np.empty((0, 2), np.uint64)
    codes, pairs = _recipients(part.clients, part.destinations)
    write = msgspec.msgpack.Encoder().encode
    beside = np.zeros((n, 2 * DIGEST_BYTES + 1), np.uint8)
    beside[:, :DIGEST_BYTES] = np.stack([_digest(write(pair)) for pair in pairs])[codes]
    for entry, text in part.residuals.items():
        beside[entry, DIGEST_BYTES:-1] = _digest(text.encode())
    for some, flag in ((part.grouped, GROUPED), (part.doubtful, DOUBTED), (list(part.residuals), _TOLD)):
        beside[some, -1] |= flag
    ends = np.searchsorted(np.frombuffer(part.owners, "<i4"), np.arange(n + 1)) * (8 * part.d)
    corners = [np.frombuffer(corner, np.uint8) for corner in (part.boxes.lows, part.boxes.highs)]
    return digests_of(pa.array(part.ids, pa.string()), beside, ends, *corners)


def _digest(told: bytes) -> Bytes:
    return np.frombuffer(blake2b(told, digest_size=DIGEST_BYTES).digest(), np.uint8)
