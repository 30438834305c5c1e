"""The compiled index: what the route query needs of each part, packed for Redis.

    part blob (Redis, one per cube or wide key)
        local:  boxes, owner of each box, and per owner: id, client, destination, residual filter
        links:  per neighbour, all it asked for as one set of boxes or ranges
        advertisements entered here: publisher and filter
        stamp:  which state of the part this is of (`state/control/journal.py`)

Boxes of a cube are clipped to it and a point lies in exactly one cube, so joining the parts (`junction.py`) changes
no answer. In the blob boxes are packed by columns (`space/packing.py`), clients and destinations stand once, each entry
having the number of a pair of them, and texts are compressed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache

import msgspec
import numpy as np
import pyarrow as pa

from state import formats
from state.arrays import Ints
from state.reductions.interval_table import closed
from state.space.boxes import Boxes
from state.space.packing import (
    BOXES,
    Packed,
    pack,
    pack_boxes,
    pack_numbers,
    unpack,
    unpack_boxes,
    unpack_numbers,
)
from state.space.ranges import Ranges

FORMAT = 3
COLUMNS_MIN = 32
"""Boxes for which columns pay: few are kept as they are."""
COMPRESSED_MIN = 512
"""Bytes of texts that are worth compressing."""
EXPANDED_MAX = 256
"""What a byte of LZ4 stands for at most: damaged bytes must not ask for all the memory there is."""
NOTHING = b""
"""The stamp of a part that was told nothing yet."""
IMPRECISE_RANGES_MAX = 64
"""Ranges that an imprecise event is looked up by; more would be closed gaps, a superset."""


class LocalEntry(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A subscription of a client of this broker, in one cube."""

    id: str
    client: str
    destination: str
    """The topic its deliveries go to."""
    residual: str | None
    """The filter, where boxes alone cannot decide: always, or only for imprecise events."""
    geometry: Packed
    exact: bool = True
    """Whether the boxes decide for events whose values are points."""
    groups: bool = False
    """Whether its client may be served through group and broadcast topics."""
    wider: Packed | None = None
    """The geometry of its travelling form, where it was pruned (`control/travelling.py`); None: the same."""
    wording: str | None = None
    """Its travelling form in words, where boxes alone do not decide what it overlaps (`control/placement.py`)."""

    @property
    def travelling(self) -> Packed:
        """The geometry that neighbours are told: never less than what was sent."""
        return self.geometry if self.wider is None else self.wider


class CompiledPart(msgspec.Struct, kw_only=True):
    """The index of one cube or wide key."""

    d: int
    ids: list[str]
    clients: list[str]
    destinations: list[str]
    residuals: dict[int, str]
    """Filter text by owner, where boxes alone cannot decide."""
    doubtful: list[int]
    """Owners whose boxes are a superset even for points."""
    boxes: Packed
    owners: bytes
    links: dict[str, Packed]
    advertisements: list[tuple[str, str]]
    grouped: list[int] = []
    """Owners whose clients may be served through group and broadcast topics."""
    stamp: bytes = NOTHING
    """Two indexes of a part in one generation with the same stamp are the same."""

    @property
    def size(self) -> int:
        """Bytes that it takes where nothing is packed: texts and boxes."""
        texts = (self.ids, self.clients, self.destinations, self.residuals.values())
        boxes = (self.boxes, *self.links.values())
        return sum(len(text) for some in texts for text in some) + sum(packed.size for packed in boxes)

    @classmethod
    def of(
        cls,
        d: int,
        local: Sequence[LocalEntry],
        links: Mapping[str, Sequence[Packed]],
        advertisements: Iterable[tuple[str, str]],
        stamp: bytes = NOTHING,
    ) -> CompiledPart:
        counts = [len(entry.geometry.lows) // (8 * d) for entry in local]
        owners = np.repeat(np.arange(len(local)), counts)
        return cls(
            d=d,
            ids=[entry.id for entry in local],
            clients=[entry.client for entry in local],
            destinations=[entry.destination for entry in local],
            residuals={i: entry.residual for i, entry in enumerate(local) if entry.residual is not None},
            doubtful=[i for i, entry in enumerate(local) if not entry.exact],
            boxes=joined([entry.geometry for entry in local]) if local else pack(Boxes.empty(d)),
            owners=owners.astype("<i4").tobytes(),
            links={n: joined(packed) for n, packed in sorted(links.items()) if packed},
            advertisements=sorted(advertisements),
            grouped=[i for i, entry in enumerate(local) if entry.groups],
            stamp=stamp,
        )

    def entries(self) -> list[LocalEntry]:
        """The subscriptions one by one: what `of` was given, as far as routing goes by it."""
        doubtful, grouped = set(self.doubtful), set(self.grouped)
        of_box = np.frombuffer(self.owners, "<i4")
        ends = (np.searchsorted(of_box, np.arange(len(self.ids) + 1)) * self.d * 8).tolist()
        lows, highs = self.boxes.lows, self.boxes.highs
        return [
            LocalEntry(
                id, self.clients[i], self.destinations[i], self.residuals.get(i),
                Packed(BOXES, self.d, lows[a:b], highs[a:b]), i not in doubtful, i in grouped,
            )
            for i, (id, a, b) in enumerate(zip(self.ids, ends, ends[1:], strict=False))
        ]  # fmt: skip


class _Texts(msgspec.Struct, array_like=True, frozen=True):
    """All that is text in an index."""

    ids: list[str]
    recipients: list[tuple[str, str]]
    """Pairs of a client and a destination, each once."""
    residuals: dict[int, str]
    advertisements: list[tuple[str, str]]


class _Stored(msgspec.Struct, array_like=True, frozen=True):
    """An index as it is stored."""

    d: int
    texts: bytes
    texts_bytes: int
    """How many they are once they are decompressed; 0: they are not compressed."""
    recipients: bytes
    """By entry: the place of its pair; as `pack_numbers` packs them, like all numbers here."""
    sizes: bytes
    """By entry: how many boxes it has."""
    doubtful: list[int]
    grouped: list[int]
    boxes: Packed
    links: dict[str, Packed]
    stamp: bytes


_texts = msgspec.msgpack.Decoder(_Texts)


def compile_part(part: CompiledPart) -> bytes:
    """Pack an index. Guarantee: equal parts give equal bytes, which `load_part` makes the same part of."""
    return formats.write(FORMAT, _packed(part))


def compile_stamped(part: CompiledPart, stamped: Callable[[bytes, bytes], bytes]) -> tuple[bytes, bytes]:
    """Pack an index with a new stamp, which `stamped` makes of the one that it has and of what it is; both of them."""
    stored = _packed(part)
    stamp = stamped(part.stamp, formats.write(FORMAT, stored))
    return formats.write(FORMAT, msgspec.structs.replace(stored, stamp=stamp)), stamp


def _packed(part: CompiledPart) -> _Stored:
    pairs: dict[tuple[str, str], int] = {}
    recipients = [pairs.setdefault(pair, len(pairs)) for pair in zip(part.clients, part.destinations, strict=True)]
    written = msgspec.msgpack.encode(_Texts(part.ids, list(pairs), part.residuals, part.advertisements))
    is_long = len(written) >= COMPRESSED_MIN
    owners = np.frombuffer(part.owners, "<i4")
    assert (owners[1:] >= owners[:-1]).all(), "boxes stand in the order of their owners"
    return _Stored(
        d=part.d,
        texts=_codec().compress(written, asbytes=True) if is_long else written,
        texts_bytes=len(written) if is_long else 0,
        recipients=pack_numbers(recipients),
        sizes=pack_numbers(np.bincount(owners, minlength=len(part.ids))),
        doubtful=part.doubtful,
        grouped=part.grouped,
        boxes=_stored(part.boxes),
        links={neighbour: _stored(packed) for neighbour, packed in part.links.items()},
        stamp=part.stamp,
    )


def load_part(blob: bytes) -> CompiledPart:
    """The index that `compile_part` packed; `state-format` where these bytes are none."""
    stored = formats.read("an index", FORMAT, blob, _Stored)
    try:
        texts = _texts.decode(_expanded(stored.texts, stored.texts_bytes))
        n = len(texts.ids)
        recipients, sizes = _numbers(stored.recipients, n), _numbers(stored.sizes, n)
        boxes = _loaded(stored.boxes, stored.d)
        pairs = [texts.recipients[code] for code in recipients.tolist()]
    except (*formats.UNREADABLE, IndexError, OSError) as error:
        raise formats.unreadable("an index", str(error)) from error
    if sizes.max(initial=0) > boxes.size or sizes.sum() * 16 * stored.d != boxes.size:
        raise formats.unreadable("an index", f"{sizes.sum()} boxes expected in {boxes.size} bytes")
    return CompiledPart(
        d=stored.d,
        ids=texts.ids,
        clients=[client for client, _ in pairs],
        destinations=[destination for _, destination in pairs],
        residuals=texts.residuals,
        doubtful=stored.doubtful,
        boxes=boxes,
        owners=np.repeat(np.arange(n), sizes).astype("<i4").tobytes(),
        links={neighbour: _loaded(packed, stored.d) for neighbour, packed in stored.links.items()},
        advertisements=texts.advertisements,
        grouped=stored.grouped,
        stamp=stored.stamp,
    )


@cache
def _codec() -> pa.Codec:
    return pa.Codec("lz4_raw")


def _expanded(texts: bytes, size: int) -> bytes:
    if not size:
        return texts
    if size > EXPANDED_MAX * len(texts):
        raise formats.unreadable("an index", f"{len(texts)} bytes for {size} of texts")
    found: bytes = _codec().decompress(texts, size, asbytes=True)
    return found


def _numbers(blob: bytes, n: int) -> Ints:
    numbers, end = unpack_numbers(blob, n)
    if end != len(blob):
        raise formats.unreadable("an index", f"{n} numbers in {end} bytes of {len(blob)}")
    return numbers


def _stored(packed: Packed) -> Packed:
    """Many boxes by columns, in `highs` alone; all else as it is."""
    boxes = unpack(packed)
    if not isinstance(boxes, Boxes) or len(boxes) < COLUMNS_MIN:
        return packed
    return Packed(BOXES, packed.d, b"", pack_boxes(boxes))


def _loaded(stored: Packed, d: int) -> Packed:
    """What `_stored` was given."""
    by_columns = stored.kind == BOXES and not stored.lows and stored.highs
    packed = pack(unpack_boxes(stored.highs)) if by_columns else stored
    whole = len(packed.lows) == len(packed.highs) and d > 0 and len(packed.lows) % (8 * d) == 0
    if packed.kind == BOXES and (packed.d != d or not whole):
        raise formats.unreadable("an index", f"{packed.size} bytes of boxes of {packed.d} dimensions")
    return packed


def join_ranges(ranges: list[Ranges]) -> Ranges:
    """The union of several sets of ranges, sorted and disjoint."""
    if not ranges:
        return Ranges.empty()
    return closed(np.concatenate([r.starts for r in ranges]), np.concatenate([r.ends for r in ranges]))


def overlap_ranges(a: Ranges, b: Ranges) -> bool:
    """Whether two sorted, disjoint sets of ranges have an index in common."""
    first = np.searchsorted(b.ends, a.starts)
    inside = first < len(b)
    return bool((b.starts[first[inside]] <= a.ends[inside]).any())


def joined(packed: Sequence[Packed]) -> Packed:
    """The union of some geometry, all boxes or all ranges; boxes are only put one after the other, as they are."""
    kind, d = packed[0].kind, packed[0].d
    assert all(one.kind == kind for one in packed), "a link is kept as boxes or as ranges"
    if kind == BOXES:
        return Packed(kind, d, b"".join([one.lows for one in packed]), b"".join([one.highs for one in packed]))
    return pack(join_ranges([ranges for one in packed if isinstance(ranges := unpack(one), Ranges)]))
