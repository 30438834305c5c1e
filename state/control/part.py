"""Cube and wide keys: the geometry of one part of a type at one broker.

    homes ─────────┐                                      ┌──> index of this part (Redis)
                   ├─> interfaces: what each asked for ───┤
    neighbour n ───┘                                      └──> for each neighbour m: reduction over everything that
                                                               the other interfaces asked for ──Delta──> m

    apply     take a message of a stream (`streams.py`); once a step is whole, do what it says to the interface it came
              from, and note what changed
    advance   for each neighbour: what changed at all other interfaces ──> what advertisements let through ──> reduction
              ──> one message, if it must hold anything else than before
    finish    advance, add what was heard to the state or seal it (`journal.py`), say what changed of the index
              (`index_changes.py`)

All messages of a batch are folded into one net change per interface, and the change is applied as one step: what a
reduction promotes is added in the same message that removes what it had been covering.

Where the type asks for advertisements, an entry goes to neighbour m only if it overlaps an advertisement that came from
m (`selection.py`): decided on boxes (or ranges) and, where these are not exact, on the wordings that travel with
them; never less than the truth. A neighbour is told wordings while it is told every entry. Once a reduction withholds
one, what it is told stands for more than the wordings say, and it is told geometry alone:

    title = 'The Silent River of Lima'  ──same boxes──  title = 'The Silent River of Oslo'      forwarded: the first,
                                                                                                without its wording
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice, repeat
from typing import TypeVar
from weakref import proxy

import msgspec
import numpy as np

from state import formats
from state.compiled_part import NOTHING, CompiledPart, LocalEntry, compile_part
from state.control import journal
from state.control.context import Context, Result
from state.control.fates import READABLE_MAX, READABLE_RANGED_MAX, count, fates
from state.control.index_changes import IndexChanges
from state.control.journal import Heard
from state.control.overlap import Asked, Side
from state.control.protocol import Advertised, Change, Entry, Resync, encode
from state.control.selection import ADVERTISED, ASKED, Selection, empty_side
from state.control.streams import Incoming, Outbox, Position
from state.index_delta import encode_delta
from state.keys import Key, home_shard
from state.messages import Output
from state.reductions.catalogue import create, restore
from state.reductions.parameters import forwards_ranges, forwards_whole, range_cap
from state.reductions.reduction import Delta, Fate, Reduction
from state.space.boxes import Boxes
from state.space.packing import Geometry, Packed, geometries, pack, pack_each, unpack
from state.space.ranges import Ranges

FORMAT = 8
"""Of the state; to be counted up as well when a reduction packs its own state in another way."""
LOCAL = ""
"""The interface of this broker's own clients and publishers."""
T = TypeVar("T")


class PartState(msgspec.Struct):
    """Everything a part keeps between batches."""

    local: dict[str, LocalEntry] = {}
    received: dict[str, dict[str, Entry]] = {}
    """What each neighbour asked for."""
    advertised: dict[str, dict[str, Advertised]] = {}
    """Advertisements by the interface they came from."""
    incoming: dict[str, Position] = {}
    """How far the streams to here have come, by source key."""
    pending: dict[str, list[Change]] = {}
    """By source key: the pieces of a step that is not whole yet."""
    sequences: dict[str, int] = {}
    """Of the outgoing streams, by receiving key."""
    reductions: dict[str, bytes] = {}
    """By neighbour, packed."""
    selected: dict[str, list[str]] = {}
    """Ids that an advertisement of that neighbour let through when this was sealed, where the type asks for them."""
    stamps: dict[str, bytes] = {}
    """Of the sides that `selection.py` keeps in memory."""
    withheld: list[str] = []
    """Neighbours from which something was withheld since this generation began: they are told no wordings."""
    stamp: bytes = NOTHING
    """Of the index (`journal.py`)."""


class Part:
    """One cube or wide key: in each batch `apply` changes, then `finish`.

    Invariant between batches: a function of the bytes that it was made of or has finished with, and of nothing else.
    """

    def __init__(self, key: Key, blob: bytes | None, context: Context) -> None:
        self.key = key
        self.context = context
        self.blob = blob
        self.type = context.config.types[key.type]
        self.grid = context.grids[key.type]
        self.dialect = context.dialect(key.type)
        self.state, steps = (PartState(), 0) if blob is None else opened_state(blob)
        self.neighbours = context.config.overlay.neighbours(key.broker)
        self.ranges = forwards_ranges(self.type)
        self.incoming = Incoming(
            self.state.incoming, self.state.pending, self.dialect, context.generation, context.hosts
        )
        self.told: list[tuple[str, Change | Resync]] = []
        """By receiving key: what it is to be told."""
        self.changed: dict[str, dict[str, Asked | None]] = {}
        """By interface: ids in the namespace of the reductions, with what is asked for now or None."""
        self.ads_changed: dict[str, dict[str, Advertised | None]] = {}
        """By interface: ids of advertisements, with what they are now or None."""
        self.ads_before: dict[str, dict[str, Advertised]] = {}
        """By interface: those of them that there were before this batch, as they were."""
        this = proxy(self)  # no cycle: what is kept no longer is gone at once, however rarely garbage is collected
        self.selection = Selection(
            str(key),
            self.state.selected,
            self.state.stamps,
            context.sides,
            partial(_empty_side, key.type, context),
            lambda kind, interface: this._content(kind, interface),
        )
        self.snapshots: set[str] = set()
        """Neighbours that want everything."""
        self.dirty = blob is None
        """Whether the index is another than it was."""
        self._heard: list[Heard] = []
        """What was applied in this batch."""
        interfaces = [LOCAL, *self.state.received] if self.type.advertisements else []
        self._asking = {interface: self._asking_of(interface) for interface in interfaces}
        """By interface, where advertisements are asked for: how many entries it has that are not empty."""
        self._index = IndexChanges(self.type.d, self.state.local, self.state.received)
        self._reductions: dict[str, Reduction] = {}
        """Those that were unpacked in this batch."""
        self._moved: set[str] = set()
        """Neighbours whose reduction is ahead of its packed form."""
        self._lasting: set[str] = set()
        """Neighbours towards which this batch has changed the fate of no entry that there was before."""
        self.figures: dict[str, int] = {}
        if blob is not None:
            self.repeat(steps)
            self._figure("state_bytes_read", len(blob))

    @classmethod
    def of(cls, key: Key, blob: bytes | None, context: Context) -> Part:
        """The part of these bytes: the one that is kept, if it has seen their beginning, or one unpacked from them.

        Cost: that of the steps that it has not seen.
        """
        kept = None if blob is None else context.parts.take(str(key), blob)
        if blob is None or kept is None:
            return cls(key, blob, context)
        part, seen = kept
        part.context, part.blob, part.figures = context, blob, {}
        part.repeat(seen)
        part._figure("state_bytes_read", len(blob) - seen)
        return part

    def repeat(self, at: int) -> None:
        """Do again what the state has heard from a place on; what is then to be said was said."""
        assert self.blob is not None
        for step, heard in journal.steps(self.blob, at):
            self.dirty = False
            for message in heard:
                if isinstance(message, Change):
                    self.apply(message)
                else:
                    self.resync(message)
            self.advance()
            if self.dirty:
                self.state.stamp = journal.stamped(self.state.stamp, step)
        self.figures, self.dirty = {}, False

    # ── what the interfaces ask for ─────────────────────────────────────────────────────────────────────────────

    def apply(self, message: Change) -> None:
        """Apply the step that this message makes whole, if it does."""
        self._heard.append(message)
        pieces = self.incoming.take(message)
        for piece in pieces:
            self._change(piece)
        if pieces and message.snapshot:
            self._keep_only(pieces)

    def _keep_only(self, snapshot: list[Change]) -> None:
        """Forget what the stream said before its snapshot and the snapshot does not say again."""
        origin = Key.parse(snapshot[0].source)
        ids = {x.id for piece in snapshot for x in piece.local} | {x.id for piece in snapshot for x in piece.entries}
        ad_ids = {x.id for piece in snapshot for x in piece.advertised}
        ads = self.state.advertised.get(self._interface(origin), {})
        if origin.is_home:
            shards = self.context.config.settings.home_shards
            said = [id for id in self.state.local if home_shard(id, shards) == origin.number]
            said_ads = [id for id in ads if home_shard(id.split("/")[1], shards) == origin.number]
        else:
            said, said_ads = list(self.state.received.get(origin.broker, {})), list(ads)
        self._remove(origin, [id for id in said if id not in ids])
        self._unadvertise(origin, [id for id in said_ads if id not in ad_ids])

    def _change(self, message: Change) -> None:
        origin = Key.parse(message.source)
        interface = self._interface(origin)
        self.dirty = True
        if message.local:
            ids = [local.id for local in message.local]
            self._index.touch(ids)
            self._count_asking(LOCAL, ids, -1)
            self.state.local.update(zip(ids, message.local, strict=True))
            self._count_asking(LOCAL, ids, 1)
            travelling = [local.travelling for local in message.local]
            self._note(LOCAL, message.local, self._geometries(travelling), repeat(None) if self.ranges else travelling)
        if message.entries:
            ids = [entry.id for entry in message.entries]
            self._index.touch_received(interface, ids)
            self._count_asking(interface, ids, -1)
            self.state.received.setdefault(interface, {}).update(zip(ids, message.entries, strict=True))
            self._count_asking(interface, ids, 1)
            packed = [entry.geometry for entry in message.entries]
            self._note(interface, message.entries, geometries(packed), packed)
        for advertised in message.advertised:
            self._note_ad(interface, advertised.id, advertised)
            self.state.advertised.setdefault(interface, {})[advertised.id] = advertised
        self._remove(origin, message.removed)
        self._unadvertise(origin, message.unadvertised)

    def _remove(self, origin: Key, ids: Iterable[str]) -> None:
        interface = self._interface(origin)
        held = self.state.local if origin.is_home else self.state.received.get(interface, {})
        there = [id for id in dict.fromkeys(ids) if id in held]
        if not there:
            return
        if origin.is_home:
            self._index.touch(there)
        else:
            self._index.touch_received(interface, there)
        self._count_asking(interface, there, -1)
        for id in there:
            del held[id]
        self.changed.setdefault(interface, {}).update(dict.fromkeys(self._names(interface, there)))

    def _asking_of(self, interface: str, ids: Iterable[str] | None = None) -> int:
        """How many of these entries, or of all, there are that are not empty."""
        if interface == LOCAL:
            local = self.state.local
            return sum(local[id].travelling.size > 0 for id in (local if ids is None else ids) if id in local)
        received = self.state.received.get(interface, {})
        return sum(received[id].geometry.size > 0 for id in (received if ids is None else ids) if id in received)

    def _count_asking(self, interface: str, ids: Iterable[str], sign: int) -> None:
        """Before some entries change, and after: so that nothing has to look at all of them."""
        if self.type.advertisements:
            self._asking[interface] = self._asking.get(interface, 0) + sign * self._asking_of(interface, set(ids))

    def _unadvertise(self, origin: Key, ids: Iterable[str]) -> None:
        interface = self._interface(origin)
        held = self.state.advertised.get(interface, {})
        for id in ids:
            if id in held:
                self._note_ad(interface, id, None)
                del held[id]

    def _interface(self, origin: Key) -> str:
        return LOCAL if origin.is_home else origin.broker

    def _note(
        self,
        interface: str,
        entries: Sequence[LocalEntry | Entry],
        asked: Iterable[Geometry],
        packed: Iterable[Packed | None],
    ) -> None:
        """What is asked for now, as geometry and as it came."""
        names = self._names(interface, [entry.id for entry in entries])
        wordings = (entry.wording for entry in entries)
        self.changed.setdefault(interface, {}).update(zip(names, map(Asked, asked, wordings, packed), strict=True))

    def _note_ad(self, interface: str, id: str, advertised: Advertised | None) -> None:
        """An advertisement is about to change: what it was counts if nothing was noted of it in this batch."""
        changed = self.ads_changed.setdefault(interface, {})
        before = self.state.advertised.get(interface, {}).get(id)
        if id not in changed and before is not None:
            self.ads_before.setdefault(interface, {})[id] = before
        changed[id] = advertised

    def _names(self, interface: str, ids: list[str]) -> list[str]:
        """Ids as the reductions know them: BROKER/ID for subscriptions; ranges are told apart by their interface."""
        if interface == LOCAL:
            before = f"{self.key.broker}/"
        elif self.ranges:
            before = f"{interface}>"
        else:
            return ids
        return [before + id for id in ids]

    def _geometries(self, packed: Sequence[Packed]) -> list[Geometry]:
        """What is asked for here as the reductions take it, of boxes."""
        some = geometries(packed)
        if not self.ranges:
            return some
        cap, interval = range_cap(self.type), self._interval()
        found: list[Geometry] = []
        for boxes in some:
            assert isinstance(boxes, Boxes)
            # where an attribute has fewer values than cells, a value's empty cells may lie beyond the cube's border
            found.append(self.grid.ranges(boxes, cap).clipped(*interval))
        return found

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

    # ── what each neighbour must hold ───────────────────────────────────────────────────────────────────────────

    def resync(self, message: Resync) -> None:
        """Send a neighbour everything it should hold from here."""
        self._heard.append(message)
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

    def finish(self) -> Result:
        """Decide what each neighbour must now hold, say what changed of the index, and write down what was heard."""
        concerned = [n for n in self.neighbours if self._concerns(n)]
        changed, heard = self.changed, self._heard
        touched = sum(map(len, changed.values())) + sum(map(len, self.ads_changed.values()))
        ads = self._advertisements() if LOCAL in self.ads_changed else None
        before, since = self._index.taken(), self.state.stamp
        outputs = [Output(self.context.topics.control, to.encode(), encode(said)) for to, said in self.advance()]
        step = journal.packed(heard)
        if heard and self.dirty:
            self.state.stamp = journal.stamped(since, step)
        result = Result(self._written(step if heard else b""), outputs, figures=self.figures)
        if heard and self.dirty:
            result.deltas = [encode_delta(self._index.delta(before, (since, self.state.stamp), ads))]
        elif self.dirty:
            result.index = compile_part(self.compiled())
        self.dirty = False
        result.forwarding = self.forwarding([n for n in concerned if self._shows(n, changed)])
        result.reduced = self.reduced(concerned)
        self._figure("entries_touched", touched)
        self._figure("index_bytes_written", sum(map(len, result.deltas)) + len(result.index or b""))
        return result

    def _written(self, step: bytes) -> bytes:
        """The state after a step: what it was and what was heard, or sealed anew."""
        if self.blob is not None and not step:
            return self.blob
        share, least = self.context.sealed_share, self.context.sealed_min
        state = None if self.blob is None else journal.grown(self.blob, step, share, least)
        before = 0 if self.blob is None or state is None else len(self.blob)
        self.blob = self.encoded() if state is None else state
        self._figure("state_bytes_written", len(self.blob) - before)
        return self.blob

    def advance(self) -> list[tuple[str, Change | Resync]]:
        """Decide what each neighbour must now hold, and what to tell which key; then there is nothing left to say."""
        for source in sorted(self.incoming.gaps):
            self.told.append((source, Resync(str(self.key), self.dialect)))
        outbox = Outbox(self.key, self.context.generation, self.dialect, self.state.sequences)
        self._lasting = set()
        if self.type.advertisements:
            self._begin_selection()
        for neighbour in self.neighbours:
            self._forward(neighbour, outbox)
        self.selection.end()
        told, self.told = self.told, []
        self.rest()
        return told

    def said_to(self, neighbour: str) -> list[tuple[str, Change | Resync]]:
        """What one neighbour is told of all that was heard since the last rest, once it is all that it will be told of.

        For a generation (`rebuild.py`): each neighbour is asked for once, then it is time to `rest`.
        """
        assert not self.type.advertisements, "what is let through depends on what the neighbour says"
        assert not self.incoming.gaps, "nothing is missed here"
        outbox = Outbox(self.key, self.context.generation, self.dialect, self.state.sequences, cut=False)
        self._forward(neighbour, outbox)
        told, self.told = self.told, []
        return told

    def rest(self) -> None:
        """There is nothing left to say of what was heard."""
        self.changed, self.ads_changed, self.ads_before = {}, {}, {}
        self.incoming.gaps, self.snapshots, self._heard = set(), set(), []
        self._index.taken()

    def _begin_selection(self) -> None:
        """Say what this step changes, and what advertisements of neighbours were before it."""
        advertised: dict[str, dict[str, Asked | None]] = {}
        for neighbour in self.ads_changed.keys() & set(self.neighbours):
            ads = self.ads_changed[neighbour]
            now = self._advertised({id: ad for id, ad in ads.items() if ad is not None})
            advertised[neighbour] = {id: now.get(id) for id in ads}
        before = {n: self._advertised(ads) for n, ads in self.ads_before.items()}
        self.selection.begin(self.changed, advertised, before, (LOCAL, *self.neighbours))

    def encoded(self) -> bytes:
        """The state of this key, sealed."""
        moved = {neighbour: self.reduction(neighbour).encode() for neighbour in self._moved}
        # in one order, whenever each of them was packed: a worker that kept them all the time writes the same bytes
        self.state.reductions = dict(sorted({**self.state.reductions, **moved}.items()))
        self._moved = set()
        if self.type.advertisements:
            self.state.selected = self.selection.packed()
        return encode_state(self.state)

    def _concerns(self, neighbour: str) -> bool:
        """Whether this batch can have changed what is forwarded to a neighbour."""
        return any(interface != neighbour for interface in self.changed) or neighbour in self.ads_changed

    def _shows(self, neighbour: str, changed: Mapping[str, Mapping[str, Asked | None]]) -> bool:
        """Whether what is shown of a neighbour can be another than before this batch.

        Not so where entries only came, behind those that are shown, and nothing became of the others.
        """
        if neighbour not in self._lasting:
            return True
        shown = self._shown(neighbour)
        others = [some for interface, some in changed.items() if interface != neighbour]
        return any(None in some.values() or not shown.keys().isdisjoint(some) for some in others)

    def forwarding(self, neighbours: Iterable[str]) -> dict[str, dict[str, Fate]]:
        """What became of the entries offered to these neighbours; of many, the oldest are shown."""
        told = {}
        for neighbour in neighbours:
            selected = self.selection.selected(neighbour) if self.type.advertisements else None
            told[neighbour] = fates(self.reduction(neighbour), self._shown(neighbour), selected)
        return told

    def _shown(self, neighbour: str) -> dict[str, Packed]:
        """The entries offered to a neighbour that people are told of."""
        shown = (READABLE_RANGED_MAX if self.ranges else READABLE_MAX) // max(1, len(self.neighbours))
        local = {id: e.travelling for id, e in islice(self.state.local.items(), shown)}
        entries = dict(zip(self._names(LOCAL, list(local)), local.values(), strict=True))
        for interface, received in self.state.received.items():
            if interface != neighbour:
                some = {id: e.geometry for id, e in islice(received.items(), shown - len(entries))}
                entries |= zip(self._names(interface, list(some)), some.values(), strict=True)
        return entries

    def reduced(self, neighbours: Iterable[str]) -> dict[str, dict[str, int]]:
        """What the reductions towards these neighbours hold, in numbers (`fates.py`)."""
        return {n: count(self.reduction(n), self._held_back(n), self._bytes(n)) for n in neighbours}

    def _bytes(self, neighbour: str) -> int:
        """Of a reduction as it was sealed last; of one that never was, as it is in memory."""
        return len(self.state.reductions.get(neighbour, b"")) or int(self.reduction(neighbour).stats()["bytes"])

    def _held_back(self, neighbour: str) -> int | None:
        """How many entries meet no advertisement of a neighbour; None where that is not asked."""
        if not self.type.advertisements:
            return None
        asked = sum(n for interface, n in self._asking.items() if interface != neighbour)
        return asked - len(self.selection.selected(neighbour))

    def compiled(self) -> CompiledPart:
        """What the route query needs of this part."""
        return CompiledPart.of(
            self.type.d,
            [e for e in self.state.local.values() if e.geometry.size],  # the others are here for neighbours only
            {n: [e.geometry for e in entries.values()] for n, entries in self.state.received.items()},
            self._advertisements(),
            self.state.stamp,
        )

    def _advertisements(self) -> list[tuple[str, str]]:
        """What publishers here have promised."""
        return [(a.publisher, a.filter) for a in self.state.advertised.get(LOCAL, {}).values()]

    def _forward(self, neighbour: str, outbox: Outbox) -> None:
        """Tell a neighbour what it must hold from now on, if that is not what it holds."""
        added, removed = self._inputs(neighbour)
        snapshot = neighbour in self.snapshots
        ads = _from_others(self.ads_changed, neighbour)
        if not (added or removed or ads or snapshot):
            return
        delta = self._reduce(neighbour, added, removed)
        if delta.lasting and not self.type.advertisements:
            self._lasting.add(neighbour)
        entries, gone = self._told(neighbour, added, delta), list(delta.removed)
        if snapshot:
            entries, gone = self._everything_told(neighbour), []
            ads = {**_from_others(self.state.advertised, neighbour)}
        elif not (entries or gone or ads):
            return
        self.told += outbox.change(
            str(self.key.at(neighbour)),
            snapshot=snapshot,
            entries=entries,
            removed=gone,
            advertised=[ad.travelling for ad in ads.values() if ad is not None],
            unadvertised=[id for id, ad in ads.items() if ad is None],
        )

    def _told(self, neighbour: str, added: dict[str, Asked], delta: Delta) -> list[Entry]:
        """The entries of a message: what the reduction adds, with wordings while nothing is withheld."""
        if self.ranges:
            return list(map(Entry, delta.added, pack_each(list(delta.added.values()))))
        if not self._tells_wordings(neighbour):
            return [Entry(id, _packed(geometry, added.get(id))) for id, geometry in delta.added.items()]
        if int(self.reduction(neighbour).stats()["withheld"]):
            # from now on what was told with a wording stands for more than that
            self.state.withheld.append(neighbour)
            worded = {id for id, one in self._offered(neighbour).items() if one.wording is not None}
            forwarded = self.reduction(neighbour).forwarded().items()
            entries = delta.added | {id: geometry for id, geometry in forwarded if id in worded}
            return [Entry(id, pack(geometry)) for id, geometry in entries.items()]
        # all is forwarded; another wording may have the geometry that there was
        assert delta.added.keys() <= added.keys(), "nothing comes back where nothing is withheld"
        return [Entry(id, _packed(one.geometry, one), one.wording) for id, one in added.items()]

    def _everything_told(self, neighbour: str) -> list[Entry]:
        """All entries that a neighbour should hold."""
        worded = self._offered(neighbour) if self._tells_wordings(neighbour) else {}
        return [
            Entry(id, pack(geometry), worded[id].wording if id in worded else None)
            for id, geometry in self.reduction(neighbour).forwarded().items()
        ]

    def _tells_wordings(self, neighbour: str) -> bool:
        return self.type.advertisements and forwards_whole(self.type) and neighbour not in self.state.withheld

    def _reduce(self, neighbour: str, asked: dict[str, Asked], removed: list[str]) -> Delta:
        """Let the reduction towards a neighbour decide, and count what it was offered and what it sends."""
        reduction, added = self.reduction(neighbour), {id: one.geometry for id, one in asked.items()}
        before = self._ranges_of(reduction)
        delta = reduction.update(added, removed)
        self._moved.add(neighbour)
        offered = len(added) + len(removed)
        if self.ranges:
            # what is sent are ranges: those that came, and those that went with an entry that was there before
            came = sum(len(ranges) for ranges in added.values())
            offered = came + (before + came - self._ranges_of(reduction))
        self._count(offered, len(delta.added) + len(delta.removed))
        return delta

    def _ranges_of(self, reduction: Reduction) -> int:
        return int(reduction.stats()["ranges"]) if self.ranges else 0

    def _count(self, received: int, sent: int) -> None:
        self._figure("entries_offered", received)
        self._figure("entries_sent", sent)

    def _figure(self, name: str, n: int) -> None:
        self.figures[name] = self.figures.get(name, 0) + n

    # ── advertisements ──────────────────────────────────────────────────────────────────────────────────────────

    def _inputs(self, neighbour: str) -> tuple[dict[str, Asked], list[str]]:
        """What changes in the reduction towards `neighbour`: entries of every other interface."""
        changes = _from_others(self.changed, neighbour)
        if self.type.advertisements:
            return self.selection.let_through(neighbour, changes)
        there = {id: one for id, one in changes.items() if one is not None and len(one.geometry)}
        return there, [] if len(there) == len(changes) else [id for id in changes if id not in there]

    def _offered(self, neighbour: str) -> dict[str, Asked]:
        """Everything that the interfaces other than `neighbour` ask for."""
        interfaces = [LOCAL, *(interface for interface in self.state.received if interface != neighbour)]
        return {id: asked for interface in interfaces for id, asked in self._content(ASKED, interface)}

    def _content(self, kind: str, interface: str) -> Iterator[tuple[str, Asked]]:
        """What an interface asks for, or what it advertised, by id."""
        if kind == ADVERTISED:
            yield from self._advertised(self.state.advertised.get(interface, {})).items()
        elif interface == LOCAL:
            local = self.state.local
            some = self._geometries([entry.travelling for entry in local.values()])
            for name, one, asked in zip(self._names(LOCAL, list(local)), some, local.values(), strict=True):
                yield name, Asked(one, asked.wording)
        else:
            received = self.state.received.get(interface, {})
            for name, entry in zip(self._names(interface, list(received)), received.values(), strict=True):
                yield name, Asked(unpack(entry.geometry), entry.wording)

    def _advertised(self, ads: Mapping[str, Advertised]) -> dict[str, Asked]:
        some = self._geometries([ad.geometry for ad in ads.values()])
        return {id: Asked(one, ad.wording) for (id, ad), one in zip(ads.items(), some, strict=True)}


def encode_state(state: PartState) -> bytes:
    return journal.sealed(FORMAT, msgspec.msgpack.encode(state))


def decode_state(blob: bytes) -> PartState:
    """The state as it was when it was sealed last; `Part` repeats what was heard since."""
    return opened_state(blob)[0]


def opened_state(blob: bytes) -> tuple[PartState, int]:
    """The same, and where what was heard since begins."""
    packed, steps = journal.opened(FORMAT, blob)
    try:
        return msgspec.msgpack.decode(packed, type=PartState), steps
    except formats.UNREADABLE as error:
        raise formats.unreadable(journal.WHAT, str(error)) from error


def _empty_side(type_name: str, context: Context) -> Side:
    event_type = context.config.types[type_name]
    return empty_side(event_type, context.wordings(type_name), forwards_ranges(event_type))


def _packed(geometry: Geometry, asked: Asked | None) -> Packed:
    """Geometry that goes out, as it came in where it is the same."""
    if asked is None or asked.packed is None or asked.geometry is not geometry:
        return pack(geometry)
    return asked.packed


def _from_others(by_interface: Mapping[str, Mapping[str, T]], neighbour: str) -> dict[str, T]:
    """What comes from every interface but a neighbour's own."""
    return {id: x for interface, some in by_interface.items() if interface != neighbour for id, x in some.items()}
