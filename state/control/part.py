"""Part and wide keys: the geometry of one part of a type at one broker.

    homes ─────────┐                                      ┌──> index of this part (Redis)
                   ├─> interfaces: what each asked for ───┤
    neighbour n ───┘                                      └──> for each neighbour m: reduction over everything that
                                                               the other interfaces asked for ──Delta──> m

All messages of a batch are folded into one net change per interface, and the change is applied as one step: what a
reduction promotes is added in the same message that removes what it had been covering.

Where the type asks for advertisements, an entry goes to neighbour m only if it meets an advertisement that came from
m. Overlap is decided on boxes (or ranges): exact where the geometry is, and never less than the truth.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, islice

import msgspec
import numpy as np

from state.compiled_part import CompiledPart, LocalEntry, compile_part
from state.control.context import Context, Result
from state.control.fates import READABLE_MAX, READABLE_RANGED_MAX, count, describe
from state.control.overlap import meeting
from state.control.protocol import Advertised, Change, Entry, Outbox, Resync, encode
from state.keys import Key, shard
from state.messages import Output
from state.reductions.catalogue import create, restore
from state.reductions.parameters import forwards_ranges, range_cap
from state.reductions.reduction import Reduction
from state.space.boxes import Boxes
from state.space.packing import Geometry, Packed, pack, unpack
from state.space.ranges import Ranges

FORMAT = 1
LOCAL = ""
"""The interface of this broker's own clients and publishers."""


class PartState(msgspec.Struct):
    """Everything a part keeps between batches."""

    local: dict[str, LocalEntry] = {}
    received: dict[str, dict[str, Entry]] = {}
    """What each neighbour asked for."""
    advertised: dict[str, dict[str, Advertised]] = {}
    """Advertisements by the interface they came from."""
    incoming: dict[str, tuple[int, int]] = {}
    """Generation and sequence last applied, by source key."""
    pending: dict[str, list[Change]] = {}
    """Parts of a snapshot that is not complete yet."""
    sequences: dict[str, int] = {}
    reductions: dict[str, bytes] = {}
    selected: dict[str, list[str]] = {}
    """Ids that an advertisement of that neighbour lets through; only for types with advertisements."""


class Part:
    """One cube or wide key for the length of one batch: `apply` changes, then `finish`."""

    def __init__(self, key: Key, blob: bytes | None, context: Context) -> None:
        self.key = key
        self.context = context
        self.type = context.config.types[key.type]
        self.grid = context.grids[key.type]
        self.dialect = context.dialect(key.type)
        self.state = PartState() if blob is None else decode_state(blob)
        self.neighbours = context.config.overlay.neighbours(key.broker)
        self.ranges = forwards_ranges(self.type)
        self.outputs: list[Output] = []
        self.changed: dict[str, dict[str, Geometry | None]] = {}
        """By interface: ids in the namespace of the reductions, with their new geometry or None."""
        self.ads_changed: dict[str, dict[str, Advertised | None]] = {}
        self.resyncs: set[str] = set()
        self.snapshots: set[str] = set()
        self.dirty = blob is None
        self._reductions: dict[str, Reduction] = {}
        """Those that were unpacked in this batch."""
        self._moved: set[str] = set()
        """Neighbours whose reduction is ahead of its packed form."""
        self.figures: dict[str, int] = {}

    # ── incoming streams ────────────────────────────────────────────────────────────────────────────────────────

    def apply(self, message: Change) -> None:
        """Apply one message of a stream if it is the next one; ask for a snapshot at a gap.

        A change that was cut into parts waits until it is whole: an entry that an early part replaces may have been
        covering one that a later part brings.
        """
        if message.grid != self.dialect:
            return  # of another configuration; its sender will open a new generation when it restarts
        source = message.source
        generation, sequence = self._position(source)
        here = (message.generation, message.sequence)
        if here <= (generation, sequence):
            return
        opens = message.snapshot and message.part == 0
        parts = [] if message.part == 0 else self.state.pending.get(source, [])
        if (not opens and here != (generation, sequence + 1)) or len(parts) != message.part:
            self.resyncs.add(source)
            return
        self.state.incoming[source] = here
        self.state.pending.pop(source, None)
        parts.append(message)
        if len(parts) < message.parts:
            self.state.pending[source] = parts
        elif message.snapshot:
            self.resyncs.discard(source)
            self._replace(source, parts)
        else:
            for part in parts:
                self._change(part)

    def _position(self, source: str) -> tuple[int, int]:
        known = self.state.incoming.get(source)
        if known is not None:
            return known
        # a key of this deployment begins its streams with the generation; another one's begins with a snapshot
        hosted = Key.parse(source).broker in self.context.hosts
        return (self.context.generation if hosted else 0, 0)

    def _replace(self, source: str, parts: list[Change]) -> None:
        """Let a snapshot replace everything this stream said before, as one step."""
        origin = Key.parse(source)
        if origin.is_home:
            shards = self.context.config.settings.home_shards
            held = [id for id in self.state.local if shard(id, shards) == origin.number]
            held_ads = [
                id for id in self.state.advertised.get(LOCAL, {}) if shard(id.split("/")[1], shards) == origin.number
            ]
        else:
            held = list(self.state.received.get(origin.broker, {}))
            held_ads = list(self.state.advertised.get(origin.broker, {}))
        kept = {x.id for part in parts for x in part.local} | {x.id for part in parts for x in part.entries}
        kept_ads = {x.id for part in parts for x in part.advertised}
        for part in parts:
            self._change(part)
        self._remove(origin, [id for id in held if id not in kept])
        self._unadvertise(origin, [id for id in held_ads if id not in kept_ads])

    def _change(self, message: Change) -> None:
        origin = Key.parse(message.source)
        interface = LOCAL if origin.is_home else origin.broker
        self.dirty = True
        for local in message.local:
            self.state.local[local.id] = local
            self._note(LOCAL, local.id, self._geometry(local.told))
        for entry in message.entries:
            self.state.received.setdefault(interface, {})[entry.id] = entry
            self._note(interface, entry.id, unpack(entry.geometry))
        for advertised in message.advertised:
            self.state.advertised.setdefault(interface, {})[advertised.id] = advertised
            self.ads_changed.setdefault(interface, {})[advertised.id] = advertised
        self._remove(origin, message.removed)
        self._unadvertise(origin, message.unadvertised)

    def _remove(self, origin: Key, ids: Iterable[str]) -> None:
        interface = LOCAL if origin.is_home else origin.broker
        held = self.state.local if origin.is_home else self.state.received.get(interface, {})
        for id in ids:
            if held.pop(id, None) is not None:
                self._note(interface, id, None)

    def _unadvertise(self, origin: Key, ids: Iterable[str]) -> None:
        interface = LOCAL if origin.is_home else origin.broker
        held = self.state.advertised.get(interface, {})
        for id in ids:
            if held.pop(id, None) is not None:
                self.ads_changed.setdefault(interface, {})[id] = None

    def _note(self, interface: str, id: str, geometry: Geometry | None) -> None:
        self.changed.setdefault(interface, {})[self._name(interface, id)] = geometry

    def _name(self, interface: str, id: str) -> str:
        """Ids as the reductions know them: BROKER/ID for subscriptions; ranges are told apart by their interface."""
        if interface == LOCAL:
            return f"{self.key.broker}/{id}"
        return f"{interface}>{id}" if self.ranges else id

    def _geometry(self, packed: Packed) -> Geometry:
        boxes = unpack(packed)
        if not self.ranges:
            return boxes
        assert isinstance(boxes, Boxes)
        ranges = self.grid.ranges(boxes, range_cap(self.type))
        # where an attribute has fewer values than cells, a value's empty cells may lie beyond the cube's border
        first, last = self._interval()
        starts, ends = np.maximum(ranges.starts, first), np.minimum(ranges.ends, last)
        return Ranges(starts[starts <= ends], ends[starts <= ends])

    # ── the other side of a stream ──────────────────────────────────────────────────────────────────────────────

    def resync(self, message: Resync) -> None:
        """Send a neighbour everything it should hold from here."""
        broker = Key.parse(message.source).broker
        if message.grid == self.dialect and broker in self.neighbours:
            self.snapshots.add(broker)

    def reduction(self, neighbour: str) -> Reduction:
        """The reduction towards one neighbour, unpacked."""
        if neighbour not in self._reductions:
            blob, domain = self.state.reductions.get(neighbour), self._domain()
            made = create(self.type, domain) if blob is None else restore(self.type, domain, blob)
            self._reductions[neighbour] = made
        return self._reductions[neighbour]

    def _interval(self) -> tuple[int, int]:
        """The Hilbert indices of this part: of its cube, or all of them."""
        whole = (0, 2**self.grid.index_bits - 1)
        return whole if self.key.is_wide else self.grid.cube_range(self.key.number)

    def _domain(self) -> Geometry:
        if self.ranges:
            first, last = self._interval()
            return Ranges(np.array([first], np.int64), np.array([last], np.int64))
        if self.key.is_wide:
            return Boxes.everything(self.type.d)
        low, high = self.grid.cube_box(self.key.number)
        return Boxes(low.reshape(1, -1), high.reshape(1, -1))

    def finish(self) -> Result:
        """Decide what each neighbour must now hold, compile the index, pack the state."""
        concerned = [n for n in self.neighbours if self._concerns(n)]
        outputs = self.advance()
        state = self.encoded()
        index = compile_part(self.compiled()) if self.dirty else None
        told, reduced = self.forwarding(concerned), self.reduced(concerned)
        return Result(state, outputs, index, set(), self.figures, told, reduced)

    def advance(self) -> list[Output]:
        """Decide what each neighbour must now hold, and what to tell it; then there is nothing left to say."""
        for source in sorted(self.resyncs):
            request = Resync(str(self.key), self.dialect)
            self.outputs.append(Output(self.context.topics.control, source.encode(), encode(request)))
        outbox = Outbox(str(self.key), self.context.generation, self.dialect, self.state.sequences)
        for neighbour in self.neighbours:
            self._forward(neighbour, outbox)
        outputs, self.outputs = self.outputs, []
        self.changed, self.ads_changed = {}, {}
        self.resyncs, self.snapshots = set(), set()
        return outputs

    def encoded(self) -> bytes:
        """The state of this key, packed."""
        for neighbour in sorted(self._moved):
            self.state.reductions[neighbour] = self.reduction(neighbour).encode()
        self._moved = set()
        return encode_state(self.state)

    def _concerns(self, neighbour: str) -> bool:
        """Whether this batch can have changed what is forwarded to a neighbour."""
        return any(interface != neighbour for interface in self.changed) or neighbour in self.ads_changed

    def forwarding(self, neighbours: Iterable[str]) -> dict[str, dict[str, str]]:
        """What became of the entries offered to these neighbours, in words; of many, the oldest are shown."""
        shown = (READABLE_RANGED_MAX if self.ranges else READABLE_MAX) // max(1, len(self.neighbours))
        told = {}
        for neighbour in neighbours:
            local = ((LOCAL, id, e.told) for id, e in self.state.local.items())
            received = (
                (interface, id, e.geometry)
                for interface, entries in self.state.received.items()
                if interface != neighbour
                for id, e in entries.items()
            )
            entries = {self._name(i, id): packed for i, id, packed in islice(chain(local, received), shown)}
            selected = set(self.state.selected.get(neighbour, ())) if self.type.advertisements else None
            told[neighbour] = describe(self.reduction(neighbour), entries, selected)
        return told

    def reduced(self, neighbours: Iterable[str]) -> dict[str, dict[str, int]]:
        """What the reductions towards these neighbours hold, in numbers (`forwarding.py`)."""
        return {
            n: count(self.reduction(n), self._held_back(n), len(self.state.reductions.get(n, b""))) for n in neighbours
        }

    def _held_back(self, neighbour: str) -> int | None:
        """How many entries meet no advertisement of a neighbour; None where that is not asked."""
        if not self.type.advertisements:
            return None
        asked = sum(e.told.size > 0 for e in self.state.local.values())
        for interface, entries in self.state.received.items():
            asked += sum(e.geometry.size > 0 for e in entries.values()) if interface != neighbour else 0
        return asked - len(self.state.selected.get(neighbour, ()))

    def compiled(self) -> CompiledPart:
        """What the route query needs of this part."""
        return CompiledPart.of(
            self.type.d,
            [e for e in self.state.local.values() if e.geometry.size],  # the others are here for neighbours only
            {n: [e.geometry for e in entries.values()] for n, entries in self.state.received.items()},
            [(a.publisher, a.filter) for a in self.state.advertised.get(LOCAL, {}).values()],
        )

    def _forward(self, neighbour: str, outbox: Outbox) -> None:
        added, removed = self._inputs(neighbour)
        snapshot = neighbour in self.snapshots
        ads = {
            id: ad
            for interface, changes in self.ads_changed.items()
            if interface != neighbour
            for id, ad in changes.items()
        }
        if not (added or removed or ads or snapshot):
            return
        reduction = self.reduction(neighbour)
        before = self._ranges_of(reduction)
        delta = reduction.update(added, removed)
        self._moved.add(neighbour)
        offered = len(added) + len(removed)
        if self.ranges:
            # what is sent are ranges: those that came, and those that went with an entry that was there before
            came = sum(len(ranges) for ranges in added.values())
            offered = came + (before + came - self._ranges_of(reduction))
        self._count(offered, len(delta.added) + len(delta.removed))
        entries = reduction.forwarded() if snapshot else delta.added
        if snapshot:
            ads = {
                id: ad
                for interface, held in self.state.advertised.items()
                if interface != neighbour
                for id, ad in held.items()
            }
        elif not (delta or ads):
            return
        messages = outbox.change(
            str(self.key.at(neighbour)),
            snapshot=snapshot,
            entries=[Entry(id, pack(geometry)) for id, geometry in entries.items()],
            removed=[] if snapshot else list(delta.removed),
            advertised=[ad.abroad for ad in ads.values() if ad is not None],
            unadvertised=[id for id, ad in ads.items() if ad is None],
        )
        for target, message in messages:
            self.outputs.append(Output(self.context.topics.control, target.encode(), encode(message)))

    def _ranges_of(self, reduction: Reduction) -> int:
        return int(reduction.stats()["ranges"]) if self.ranges else 0

    def _count(self, received: int, sent: int) -> None:
        self.figures["entries_offered"] = self.figures.get("entries_offered", 0) + received
        self.figures["entries_sent"] = self.figures.get("entries_sent", 0) + sent

    # ── advertisements ──────────────────────────────────────────────────────────────────────────────────────────

    def _inputs(self, neighbour: str) -> tuple[dict[str, Geometry], list[str]]:
        """What changes in the reduction towards `neighbour`: entries of every other interface."""
        changes = {
            id: geometry
            for interface, ids in self.changed.items()
            if interface != neighbour
            for id, geometry in ids.items()
        }
        if not self.type.advertisements:
            there = {id: g for id, g in changes.items() if g is not None and len(g)}
            return there, [id for id in changes if id not in there]
        selected = dict.fromkeys(self.state.selected.get(neighbour, []))
        fresh = set(changes)
        if neighbour in self.ads_changed:
            changes = {**dict.fromkeys(selected), **self._offered(neighbour)} | {
                id: None for id, g in changes.items() if g is None
            }
        there = {id: g for id, g in changes.items() if g is not None and len(g)}
        meets = meeting(list(there.values()), self._advertised_space(neighbour) if there else [])
        through = {id for id, met in zip(there, meets.tolist(), strict=True) if met}
        added: dict[str, Geometry] = {}
        removed: list[str] = []
        for id in changes:
            if id in through:
                if id in fresh or id not in selected:
                    added[id] = there[id]
                selected[id] = None
            elif id in selected:
                removed.append(id)
                del selected[id]
        self.state.selected[neighbour] = list(selected)
        return added, removed

    def _offered(self, neighbour: str) -> dict[str, Geometry]:
        """Everything that the interfaces other than `neighbour` ask for."""
        offered = {self._name(LOCAL, id): self._geometry(e.told) for id, e in self.state.local.items()}
        for interface, entries in self.state.received.items():
            if interface != neighbour:
                offered |= {self._name(interface, id): unpack(e.geometry) for id, e in entries.items()}
        return offered

    def _advertised_space(self, neighbour: str) -> list[Geometry]:
        return [self._geometry(a.geometry) for a in self.state.advertised.get(neighbour, {}).values()]


def encode_state(state: PartState) -> bytes:
    return bytes([FORMAT]) + msgspec.msgpack.encode(state)


def decode_state(blob: bytes) -> PartState:
    assert blob[0] == FORMAT, f"cube state of format {blob[0]}, this is {FORMAT}"
    return msgspec.msgpack.decode(blob[1:], type=PartState)
