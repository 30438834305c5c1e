"""Home keys: each owns the ids whose hash falls to it, and alone decides what becomes of them.

    inbox ──> home ──┬─> receipt           the one answer
                     ├─> registry          the accepted fact, from which everything can be rebuilt
                     └─> cubes of old and new, one message each, the filter clipped to the cube (maybe to nothing)

Versions: an event older than the highest version accepted on its key, or equally old with other content, is stale; the
very same event is a repeat and is answered again. Without a version it is the last accepted + 1. Withdrawals leave a
tombstone that keeps the version. What a replay reads again (its offset is not beyond the recorded one) is never new.

Types with a budget have their filters pruned for neighbours when a batch is through (`pruning.py`): the change that
brings a filter to a cube then has two geometries, the exact one for local clients and the wider one for neighbours.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import msgspec

from state.advertisements.queue import Degradation, size
from state.compiled_part import LocalEntry
from state.control.context import Context, Result
from state.control.protocol import Advertised, Change, Expire, Forget, Outbox, Resync, encode
from state.control.travelling import RANKED_MAX, REFRESH_SHARE, Settling, Travelling, by_rank, by_selectivity
from state.errors import HilcastError
from state.filters.cloudevents import read_filter
from state.filters.geometry import geometry
from state.filters.grammar import parse
from state.filters.imprecise import possible_boxes
from state.filters.printing import to_text
from state.filters.tree import Filter
from state.keys import Key, is_wide, wide_key
from state.messages import (
    Output,
    Record,
    Registration,
    dead_letter,
    owner_of,
    read_registration,
    receipt,
)
from state.space.boxes import Boxes
from state.space.event_type import Pruning
from state.space.mapping import read_subscription_mapping
from state.space.packing import pack

FORMAT = 1


class Fact(msgspec.Struct, kw_only=True):
    """What home knows of one id, live or withdrawn."""

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


class HomeState(msgspec.Struct):
    """Facts by id (advertisements under `a/ID`, subscriptions under `s/ID`) and the numbers of the outgoing streams."""

    facts: dict[str, Fact] = {}
    sequences: dict[str, int] = {}
    travelling: dict[str, Travelling] = {}
    """What neighbours are told of each filter, where there is a budget; what holds for no event is told nobody."""
    ranked: int = 0
    """Subscriptions that there were when advertisements were last ranked, and how often any changed since."""
    changes: int = 0


@dataclass(frozen=True)
class Placement:
    """A filter's geometry, cut up by the parts it touches."""

    wide: bool
    boxes: dict[str, Boxes]
    residual: str | None
    exact: bool = True
    predicates: int = 0
    travels: dict[str, Boxes] | None = None
    """What neighbours are told, where that is more."""

    @property
    def parts(self) -> list[str]:
        return list(dict.fromkeys([*self.boxes, *(self.travels or ())]))


class Home:
    """One home key for the length of one batch: `apply` records, then `finish`."""

    def __init__(self, key: Key, blob: bytes | None, context: Context) -> None:
        self.key = key
        self.context = context
        self.type = context.config.types[key.type]
        self.grid = context.grids[key.type]
        self.dialect = context.dialect(key.type)
        self.state = HomeState() if blob is None else _decode(blob)
        self.outputs: list[Output] = []
        self.topics: set[str] = set()
        self.puts: dict[str, dict[str, LocalEntry | Advertised]] = {}
        self.drops: dict[str, set[str]] = {}
        self.snapshots: set[str] = set()
        self.figures: dict[str, int] = {}
        self.entered: set[str] = set()
        """Slots whose filter came in this batch."""
        self._trees: dict[str, Filter] = {}
        """By text: filters that were read in this batch for pruning."""

    # ── events ──────────────────────────────────────────────────────────────────────────────────────────────────

    def register(self, record: Record) -> None:
        """Answer one record of an inbox."""
        origin = (record.topic, record.partition, record.offset)
        registration: Registration | None = None
        try:
            registration = read_registration(record, self.context.config)
            self._decide(registration, record, origin)
        except HilcastError as error:
            self._refuse(record, registration, origin, error)

    def expire(self, message: Expire) -> None:
        """End a version whose time to live has passed; anything newer stays."""
        slot = _slot(message.advertisement, message.id)
        fact = self.state.facts.get(slot)
        if fact is None or not fact.live or fact.version != message.version:
            return
        self._end(slot, fact, "expired")
        self._answer("expired", slot, fact, (fact.topic, fact.partition, fact.offset))

    def forget(self, message: Forget) -> None:
        """Drop a tombstone whose stated time has passed."""
        slot = _slot(message.advertisement, message.id)
        fact = self.state.facts.get(slot)
        if fact is None or fact.live or fact.version != message.version:
            return
        del self.state.facts[slot]
        self.outputs.append(Output(self.context.topics.registry, self._registry_key(slot), None))

    def resync(self, message: Resync) -> None:
        """Send a cube everything it should have from here."""
        if message.grid == self.dialect:
            self.snapshots.add(Key.parse(message.source).part)

    def restore(self, slot: str, fact: Fact) -> None:
        """Take a fact of the registry as it is; a filter the configuration no longer allows lies dormant."""
        # other deployments are told part by part: a filter that changed its kind of key would be gone for a moment
        kind = fact.wide if fact.grid == self.grid.hash else None
        fact.parts, fact.wide = [], None
        self.state.facts[slot] = fact
        if not fact.live:
            return
        try:
            placement = self._place(slot, msgspec.json.decode(fact.filter or "null"), kind)
        except HilcastError as error:
            self._answer("refused", slot, fact, (fact.topic, fact.partition, fact.offset), error)
            return
        self._enter(slot, placement)
        self._put(slot, fact, placement)
        if slot.startswith("s/"):
            self.topics.add(self._destination(fact))

    # ── decisions ───────────────────────────────────────────────────────────────────────────────────────────────

    def _decide(self, event: Registration, record: Record, origin: tuple[str, int, int]) -> None:
        slot = _slot(event.advertisement, event.id)
        known = self.state.facts.get(slot)
        content = event.content()
        if known is not None and (known.topic, known.partition) == origin[:2] and record.offset <= known.offset:
            # a replay after a lost checkpoint or a crash reads again what is already recorded
            if record.offset == known.offset:
                self._answer(_answer_kind(known), slot, known, origin)
            return
        last = -1 if known is None else known.version
        version = event.version if event.version is not None else max(last, 0) + 1
        if known is not None and event.version is not None and version <= last:
            if version == last and content == known.content:
                self._answer(_answer_kind(known), slot, known, origin)
                return
            raise HilcastError("stale-version", f"version {version} is not newer than {last}")
        if version > 2**63 - 1:
            raise HilcastError("bad-value", "no version is left above 2^63-1")
        if event.withdraw:
            self._withdraw(slot, known, version, content, record)
        else:
            self._accept(slot, known, event, version, content, record)

    def _accept(
        self, slot: str, known: Fact | None, event: Registration, version: int, content: bytes, record: Record
    ) -> None:
        live = known if known is not None and known.live else None
        placement = self._place(slot, event.filter, live.wide if live else None, event.ranges)
        fact = Fact(
            version=version,
            owner=event.owner,
            filter=msgspec.json.encode(event.filter).decode(),
            ttl_ms=event.ttl_ms,
            expires_ms=None if event.ttl_ms is None else record.timestamp_ms + event.ttl_ms,
            sink=event.sink,
            content=content,
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            timestamp_ms=record.timestamp_ms,
            live=True,
            parts=[] if live is None else live.parts,
            groups=event.groups,
        )
        self.state.facts[slot] = fact
        self._enter(slot, placement)
        self._put(slot, fact, placement)
        if not event.advertisement:
            self.topics.add(self._destination(fact))
        self._register(slot, fact)
        self._answer("accepted" if live is None else "replaced", slot, fact, record.place)

    def _withdraw(self, slot: str, known: Fact | None, version: int, content: bytes, record: Record) -> None:
        fact = Fact(
            version=version,
            owner=None if known is None else known.owner,
            filter=None,
            ttl_ms=None,
            expires_ms=None,
            sink=None,
            content=content,
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            timestamp_ms=record.timestamp_ms,
            live=False,
            parts=[] if known is None else known.parts,
        )
        self.state.facts[slot] = fact
        self._end(slot, fact, "withdrawn")
        self._answer("withdrawn", slot, fact, record.place)

    def _end(self, slot: str, fact: Fact, how: str) -> None:
        for part in fact.parts:
            self._drop(part, slot)
        self._leave(slot)
        fact.live, fact.ended, fact.parts, fact.wide = False, how, [], None
        self._register(slot, fact)

    def _refuse(
        self, record: Record, event: Registration | None, origin: tuple[str, int, int], error: HilcastError
    ) -> None:
        slot = None if event is None else _slot(event.advertisement, event.id)
        known = None if slot is None else self.state.facts.get(slot)
        owner = known.owner if event is not None and event.withdraw and known is not None else None
        self.outputs.append(refusal(record, self.context, error, owner, None if event is None else event.version))
        if error.code != "stale-version":
            self.outputs.append(dead_letter(self.context.topics, record, error.code, error.reason))
        self.figures["refused"] = self.figures.get("refused", 0) + 1

    # ── geometry ────────────────────────────────────────────────────────────────────────────────────────────────

    def _place(
        self,
        slot: str,
        filter_value: object,
        wide: bool | None,
        ranges: str | None = None,
        travelling: str | None = None,
    ) -> Placement:
        """Cut a filter up by the parts it touches; `travelling`: what neighbours are told instead of it.

        A filter that would touch more than 1/8 of the cubes goes to a wide key. A replacement stays with the kind its
        predecessor had: cube and wide keys change at different moments, and an event that matches both filters must
        find one of them at every moment.
        """
        tree = self._sent(filter_value)
        shape = geometry(tree, self.type)
        if ranges is not None:
            read_subscription_mapping(ranges, self.grid, shape.boxes)
        told = shape.boxes
        if travelling is not None:
            told = geometry(self._parsed(travelling), self.type).boxes
            assert not shape.exact or told.contains(shape.boxes.lows).all(), "pruning may only widen"
        if slot.startswith("a/"):
            promised = possible_boxes(told, self.type)
            boxes = {f"cube:{c}": self._clip(promised, int(c)) for c in self.grid.cubes_of(promised)}
            shards = range(self.context.config.settings.wide_shards)
            boxes |= {f"wide:{i}": promised for i in shards}
            return Placement(True, boxes, to_text(tree), predicates=size(tree) if len(shape.boxes) else 0)
        touched = self.grid.cubes_of(shape.boxes)
        if wide is None:
            wide = is_wide(len(touched), self.type.cubes)
        imprecise = any(attribute.imprecise for attribute in self.type.attributes)
        return Placement(
            wide,
            self._cut(slot, shape.boxes, wide),
            to_text(tree) if imprecise or not shape.exact else None,
            shape.exact,
            size(tree),
            None if travelling is None else self._cut(slot, told, wide),
        )

    def _cut(self, slot: str, boxes: Boxes, wide: bool) -> dict[str, Boxes]:
        """The boxes of a subscription by part, for one kind of key."""
        if wide:
            part = wide_key(self.key.broker, self.key.type, slot[2:], self.context.config).part
            return {part: boxes} if len(boxes) else {}
        clipped = {f"cube:{c}": self._clip(boxes, int(c)) for c in self.grid.cubes_of(boxes)}
        return {part: b for part, b in clipped.items() if len(b)}

    def _clip(self, boxes: Boxes, cube: int) -> Boxes:
        return boxes.clipped(*self.grid.cube_box(cube))

    def _destination(self, fact: Fact) -> str:
        return fact.sink or self.context.topics.deliver(fact.owner or "")

    def _put(self, slot: str, fact: Fact, placement: Placement, before: Placement | None = None) -> None:
        """Send the parts what they should have of a filter; `before`: what they have, where that is known."""
        parts = placement.parts
        for part in fact.parts:
            if part not in parts:
                self._drop(part, slot)
        for part in parts:
            entry = self._entry(slot, fact, part, placement)
            if before is None or part not in fact.parts or entry != self._entry(slot, fact, part, before):
                self.drops.get(part, set()).discard(slot)
                self.puts.setdefault(part, {})[slot] = entry
        fact.parts = parts
        fact.wide, fact.grid = placement.wide, self.grid.hash

    def _entry(self, slot: str, fact: Fact, part: str, placement: Placement) -> LocalEntry | Advertised:
        owner, residual = fact.owner or "", placement.residual
        nothing = Boxes.empty(self.type.d)
        boxes = placement.boxes.get(part, nothing)
        if slot.startswith("a/"):
            return Advertised(f"{self.key.broker}/{slot[2:]}", owner, residual or "", pack(boxes))
        told = boxes if placement.travels is None else placement.travels.get(part, nothing)
        return LocalEntry(
            slot[2:],
            owner,
            self._destination(fact),
            residual,
            pack(boxes),
            placement.exact,
            fact.groups,
            None if told == boxes else pack(told),
        )

    def _drop(self, part: str, slot: str) -> None:
        self.puts.get(part, {}).pop(slot, None)
        self.drops.setdefault(part, set()).add(slot)

    # ── what travels ────────────────────────────────────────────────────────────────────────────────────────────

    def _budget(self, slot: str) -> int | None:
        budgets = self.type.pruning
        return budgets.advertisements if slot.startswith("a/") else budgets.subscriptions

    def _enter(self, slot: str, placement: Placement) -> None:
        """A filter came: it travels as it was sent, until this batch is through."""
        self._leave(slot)
        self.entered.add(slot)
        if self._budget(slot) is not None and placement.boxes and placement.predicates:
            self.state.travelling[slot] = Travelling(placement.predicates)

    def _leave(self, slot: str) -> None:
        self.state.travelling.pop(slot, None)
        self.entered.discard(slot)
        self.state.changes += slot.startswith("s/") and self.type.pruning.advertisements is not None

    def _prune(self) -> None:
        """Bring what travels within its budgets, and send again what changed by that."""
        self._rank_anew()
        for kind, name in (("a/", "advertisements"), ("s/", "subscriptions")):
            budget = self._budget(kind)
            if budget is None:
                continue
            held = {slot: one for slot, one in self.state.travelling.items() if slot.startswith(kind)}
            settling = Settling(held, budget, self)
            for slot, before in settling.settle().items():
                self._send_again(slot, before)
            if settling.pruned:
                self.figures[f"pruned:{name}"] = settling.pruned

    def _send_again(self, slot: str, before: str | None) -> None:
        fact, now = self.state.facts[slot], self.state.travelling[slot].text
        filter_value = msgspec.json.decode(fact.filter or "null")
        known = None
        if slot not in self.entered:
            known = self._place(slot, filter_value, fact.wide, travelling=before)
        self._put(slot, fact, self._place(slot, filter_value, fact.wide, travelling=now), known)

    def _rank_anew(self) -> None:
        """Forget what is known of the harm to advertisements, once many subscriptions have changed."""
        if self.state.changes <= REFRESH_SHARE * self.state.ranked:
            return
        for slot, one in self.state.travelling.items():
            if slot.startswith("a/"):
                one.harm = None
        self.state.ranked, self.state.changes = sum(1 for _ in self._subscriptions()), 0

    def _subscriptions(self) -> Iterator[str]:
        return (slot for slot, fact in self.state.facts.items() if slot.startswith("s/") and fact.live and fact.parts)

    def travelling(self, slot: str, text: str | None) -> Filter:
        """The filter of a slot after the pruning that made this text; None: as it was sent."""
        if text is not None:
            return self._parsed(text)
        return self._sent(msgspec.json.decode(self.state.facts[slot].filter or "null"))

    def admits(self, slot: str, pruned: Filter) -> bool:
        """Whether what a pruning makes stays with the kind of key that the filter has."""
        if slot.startswith("a/") or self.state.facts[slot].wide:
            return True
        touched = self._touched(pruned)
        return not is_wide(touched, self.type.cubes) or touched <= self._touched(self.travelling(slot, None))

    def degradation(self, slot: str) -> Degradation:
        """The measure of harm for filters of this kind."""
        return self._harm_to_advertisements if slot.startswith("a/") else self._harm_to_subscriptions

    @cached_property
    def _harm_to_subscriptions(self) -> Degradation:
        return by_selectivity(*self.context.observed(self.key.type))

    @cached_property
    def _harm_to_advertisements(self) -> Degradation:
        slots = list(self._subscriptions())
        some = slots[:: max(1, -(-len(slots) // RANKED_MAX))]
        return by_rank(self.type, (self.travelling(slot, None) for slot in some), *self.context.observed(self.key.type))

    def _touched(self, filter: Filter) -> int:
        return len(self.grid.cubes_of(geometry(filter, self.type).boxes))

    def _parsed(self, text: str) -> Filter:
        """A filter that was printed by us."""
        if text not in self._trees:
            self._trees[text] = parse(text, self.type, limits=False)
        return self._trees[text]

    def _sent(self, filter_value: object) -> Filter:
        """A filter as clients send it; read once a batch where it is pruned and so asked for again."""
        if not isinstance(filter_value, str) or self.type.pruning == Pruning():
            return read_filter(filter_value, self.type)
        name = f"sent {filter_value}"
        if name not in self._trees:
            self._trees[name] = read_filter(filter_value, self.type)
        return self._trees[name]

    # ── effects ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _answer(
        self,
        kind: str,
        slot: str,
        fact: Fact,
        origin: tuple[str, int, int],
        error: HilcastError | None = None,
    ) -> None:
        self.outputs.append(
            receipt(
                self.context.topics,
                kind=kind,
                key=f"{self.key.broker}/{self.key.type}/{slot[2:]}",
                owner=fact.owner,
                version=fact.version,
                broker=self.key.broker,
                epoch=self.context.epoch,
                origin=origin,
                code=None if error is None else error.code,
                reason=None if error is None else error.reason,
            )
        )

    def _registry_key(self, slot: str) -> bytes:
        kind = "advertisement" if slot.startswith("a/") else "subscription"
        return f"{kind}/{self.key.broker}/{self.key.type}/{slot[2:]}".encode()

    def _register(self, slot: str, fact: Fact) -> None:
        self.outputs.append(Output(self.context.topics.registry, self._registry_key(slot), encode_fact(fact)))

    def finish(self) -> Result:
        """Emit the changes of this batch, one stream each, and pack the state."""
        self._prune()
        outbox = Outbox(str(self.key), self.context.generation, self.dialect, self.state.sequences)
        messages: list[tuple[str, Change]] = []
        for part in self.snapshots:
            self.puts[part] = self._everything(part)
        for part in sorted({*self.puts, *self.drops, *self.snapshots}):
            messages += self._messages(outbox, part)
        for target, message in messages:
            self.outputs.append(Output(self.context.topics.control, target.encode(), encode(message)))
        blob = bytes([FORMAT]) + msgspec.msgpack.encode(self.state)
        return Result(blob, self.outputs, None, self.topics, self.figures)

    def _messages(self, outbox: Outbox, part: str) -> list[tuple[str, Change]]:
        snapshot = part in self.snapshots
        puts = list(self.puts.get(part, {}).values())
        drops = [] if snapshot else sorted(self.drops.get(part, set()))
        if not (puts or drops or snapshot):
            return []
        target = str(Key(self.key.broker, self.key.type, part))
        return outbox.change(
            target,
            snapshot=snapshot,
            local=[x for x in puts if isinstance(x, LocalEntry)],
            advertised=[x for x in puts if isinstance(x, Advertised)],
            removed=[slot[2:] for slot in drops if slot.startswith("s/")],
            unadvertised=[f"{self.key.broker}/{slot[2:]}" for slot in drops if slot.startswith("a/")],
        )

    def _everything(self, part: str) -> dict[str, LocalEntry | Advertised]:
        entries = {}
        for slot, fact in self.state.facts.items():
            if part in fact.parts:
                told = self.state.travelling[slot].text if slot in self.state.travelling else None
                placement = self._place(slot, msgspec.json.decode(fact.filter or "null"), fact.wide, travelling=told)
                entries[slot] = self._entry(slot, fact, part, placement)
        return entries


def refusal(record: Record, context: Context, error: HilcastError, owner: str | None, version: int | None) -> Output:
    """The `refused` receipt of a control event, with as much of it as can be read."""
    owner = owner or owner_of(record, record.topic == context.topics.advertisements)
    key = None if record.key is None else record.key.decode("utf-8", "replace")
    broker = None if key is None else key.split("/")[0]
    return receipt(
        context.topics,
        kind="refused",
        key=key,
        owner=owner,
        version=version,
        broker=broker if broker in context.config.overlay.brokers else None,
        epoch=context.epoch,
        origin=record.place,
        code=error.code,
        reason=error.reason,
    )


def encode_fact(fact: Fact) -> bytes:
    """A fact as readable JSON for the registry; its parts are left out, since they follow from filter and kind."""
    return msgspec.json.encode({**msgspec.structs.asdict(fact), "parts": [], "format": FORMAT})


def decode_fact(value: bytes) -> Fact:
    return msgspec.json.decode(value, type=Fact)


def _answer_kind(fact: Fact) -> str:
    return "accepted" if fact.live else fact.ended or "withdrawn"


def _slot(advertisement: bool, id: str) -> str:
    return f"{'a' if advertisement else 's'}/{id}"


def _decode(blob: bytes) -> HomeState:
    assert blob[0] == FORMAT, f"home state of format {blob[0]}, this is {FORMAT}"
    return msgspec.msgpack.decode(blob[1:], type=HomeState)
