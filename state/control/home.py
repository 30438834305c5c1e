"""Home keys: each owns the ids whose hash falls to it, and alone decides what becomes of them.

    inbox ──> home ──┬─> receipt           the one answer
                     ├─> registry          the accepted fact, from which everything can be rebuilt
                     └─> cubes of old and new, one message each, the filter clipped to the cube (maybe to nothing)

Versions: an event older than the highest version accepted on its key, or equally old with other content, is stale; the
very same event is a repeat and is answered again. Without a version it is the last accepted + 1. Withdrawals leave a
tombstone that keeps the version. What a replay reads again (its offset is not beyond the recorded one, in the same
topic) is never new.

Where a type has a budget, home prunes filters for neighbours when a batch is through (`travelling.py`): a filter then
has two forms, the one that was sent and the one that travels, and its parts are told the geometry of both
(`placement.py`).

With inboxes of their own, clients have namespaces of their own (`names.owned`): a record can name nothing but what is
its client's, and the answer goes to that client alone. What the configuration no longer allows lies dormant.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from state import formats
from state.compiled_part import LocalEntry
from state.control import journal
from state.control.context import Context, Result
from state.control.facts import Fact, Kind, Name, decode_fact, encode_fact, ending
from state.control.placement import Placement, Placing
from state.control.protocol import Advertised, Amend, Change, Expire, Forget, Resync, encode
from state.control.quotas import Changes, Quotas, recent
from state.control.streams import Outbox
from state.control.travelling import Filters, Travelling, TravellingState
from state.errors import ENVIRONMENT, HilcastError
from state.filters.tree import Filter
from state.fitting import dead_letter
from state.keys import Key
from state.messages import (
    VERSION_MAX,
    Output,
    Record,
    Registration,
    addressee,
    owner_of,
    permit,
    read_registration,
    receipt,
    speaker,
)
from state.names import parted
from state.space.boxes import Boxes
from state.space.packing import pack

FORMAT = 4
"""3: filters that imprecise events cannot be held against are refused, those of before too. 4: compressed."""

WHAT = "the state of a home key"
COUNTED = ("not-yours", "sink-refused", "over-quota")
"""Refusals that are counted by code as well: somebody tries what he may not."""
Entry = LocalEntry | Advertised
"""What a part is told of one registration."""


class HomeState(msgspec.Struct):
    """Everything a home key keeps between batches."""

    facts: dict[Kind, dict[str, Fact]] = msgspec.field(default_factory=lambda: {kind: {} for kind in Kind})
    """By id; an id may be used once for each kind."""
    travelling: TravellingState = msgspec.field(default_factory=TravellingState)
    sequences: dict[str, int] = {}
    """Of the outgoing streams, by part."""
    changes: Changes | msgspec.UnsetType = msgspec.UNSET
    """Where changes are limited: when each client's last ones were (`quotas.py`)."""


class Home:
    """One home key for the length of one batch: `apply` records, then `finish`."""

    def __init__(self, key: Key, blob: bytes | None, context: Context) -> None:
        self.key = key
        self.context = context
        self.type = context.config.types[key.type]
        self.grid = context.grids[key.type]
        self.dialect = context.dialect(key.type)
        self.state = HomeState() if blob is None else decode_state(blob)
        self.filters = Filters(self.type)
        self.placing = Placing(key, context.config, self.grid)
        self.travelling = Travelling(
            self.state.travelling, self.state.facts, self.filters, self.placing, context, key.type
        )
        self.quotas = Quotas(context.config, key.type, self.grid, self.state.facts)
        self.outputs: list[Output] = []
        self.topics: set[str] = set()
        self.puts: dict[str, dict[Name, Entry]] = {}
        self.drops: dict[str, set[Name]] = {}
        """By part: what it is told in the end of this batch."""
        self.snapshots: set[str] = set()
        self.entered: set[Name] = set()
        """Registrations whose filter came in this batch."""
        self.figures: dict[str, int] = {}
        self.faults: list[str] = []

    # ── events ──────────────────────────────────────────────────────────────────────────────────────────────────

    def register(self, record: Record) -> None:
        """Answer one record of an inbox."""
        registration: Registration | None = None
        try:
            try:
                registration = read_registration(record, self.context.config)
            except HilcastError:
                self._change(record)
                raise
            self._decide(registration, record)
        except HilcastError as error:
            self._refuse(record, registration, error)

    def expire(self, message: Expire) -> None:
        """End a version whose time to live has passed; anything newer stays."""
        name = Name(Kind.of(message.advertisement), message.id)
        fact = self._fact(name)
        if fact is None or not fact.live or fact.version != message.version:
            return
        self.quotas.count(name.kind, self._client(name, fact), -1)
        self._end(name, fact, "expired")
        self._answer("expired", name, fact, fact.origin)

    def forget(self, message: Forget) -> None:
        """Drop a tombstone whose stated time has passed."""
        name = Name(Kind.of(message.advertisement), message.id)
        fact = self._fact(name)
        if fact is None or fact.live or fact.version != message.version:
            return
        del self.state.facts[name.kind][name.id]
        headers = () if self.context.keyring is None else ending(fact)
        self.outputs.append(Output(self.context.topics.registry, name.in_registry(self.key), None, headers))

    def renew(self) -> None:
        """Write every fact again. Only home does: what anybody else wrote could come behind a newer one."""
        for kind, facts in self.state.facts.items():
            for id, fact in facts.items():
                self._register(Name(kind, id), fact)

    def resync(self, message: Resync) -> None:
        """Send a part everything it should have from here."""
        if message.grid == self.dialect:
            self.snapshots.add(Key.parse(message.source).part)

    def restore(self, name: Name, fact: Fact) -> None:
        """Take a fact of the registry as it is; a filter the configuration no longer allows lies dormant."""
        # other deployments are told part by part: a filter that changed its kind of key would be gone for a moment
        wide = fact.wide if fact.grid == self.grid.hash else None
        fact.parts, fact.wide = [], None
        self.state.facts[name.kind][name.id] = fact
        if fact.recent is not msgspec.UNSET:
            self.quotas.recall(self._changes(), self._client(name, fact), fact.recent)
        if not fact.live:
            return
        try:
            permit(name.id, name.kind is Kind.ADVERTISEMENT, fact.owner or "", fact.sink, self.context.config)
            placement = self.placing(name, self.filters.sent(fact.sent), wide=wide)
        except ENVIRONMENT:
            raise
        except HilcastError as error:
            self._answer("refused", name, fact, fact.origin, error)
            return
        except Exception as error:  # our own bug must not keep a generation from beginning
            reason = f"handling it failed inside: {type(error).__name__}"
            self._answer("refused", name, fact, fact.origin, HilcastError("internal", reason))
            self.faults.append(f"{self.key}: {name.kind} {name.id} lies dormant: {type(error).__name__}: {error}")
            return
        self._enter(name, fact, placement)

    def amend(self, message: Amend) -> None:
        """Take what the registry says of an id since this generation was built from it."""
        name = Name(Kind.of(message.advertisement), message.id)
        known = self.state.facts[name.kind].pop(name.id, None)
        self.quotas.recount()
        if known is not None:
            for part in known.parts:
                self._drop(part, name)
            self.travelling.leave(name)
            self.entered.discard(name)
        if message.fact is not None:
            self.restore(name, decode_fact(message.fact))

    # ── decisions ───────────────────────────────────────────────────────────────────────────────────────────────

    def _fact(self, name: Name) -> Fact | None:
        return self.state.facts[name.kind].get(name.id)

    def _decide(self, event: Registration, record: Record) -> None:
        name = Name(Kind.of(event.advertisement), event.id)
        known = self._fact(name)
        content = event.content()
        if known is not None and self._counts_alike(known, record) and record.offset <= known.offset:
            # a replay after a lost checkpoint or a crash reads again what is already recorded
            if record.offset == known.offset:
                self._answer(_answer_kind(known), name, known, record.place)
            return
        self._change(record)
        last = -1 if known is None else known.version
        version = event.version if event.version is not None else max(last, 0) + 1
        if known is not None and event.version is not None and version <= last:
            if version == last and content == known.content:
                self._answer(_answer_kind(known), name, known, record.place)
                return
            raise HilcastError("stale-version", f"version {version} is not newer than {last}")
        if version > VERSION_MAX and event.withdraw:
            version = last  # what has the highest version must not stay for ever
        if version > VERSION_MAX:
            raise HilcastError("bad-value", "no version is left above 2^63-1; withdraw it and take another id")
        if event.withdraw:
            self._withdraw(name, known, version, content, record)
        else:
            self._accept(name, known, event, version, content, record)

    def _counts_alike(self, known: Fact, record: Record) -> bool:
        """Whether the offsets of a fact and of a record are of one topic, and not of one that was made again since."""
        present = self.context.topic_ids.get(record.topic)
        same = known.topic_id is None or present is None or known.topic_id == present
        return same and (known.topic, known.partition) == record.place[:2]

    def _accept(
        self, name: Name, known: Fact | None, event: Registration, version: int, content: bytes, record: Record
    ) -> None:
        live = known if known is not None and known.live else None
        sent = self.filters.sent(event.filter)
        client = parted(name.id)[0] or event.owner or ""
        self.quotas.registration(name.kind, client, sent, new=live is None)
        placement = self.placing(name, sent, wide=live.wide if live else None, ranges=event.ranges)
        if name.kind is Kind.SUBSCRIPTION:
            self._judge(event.sink or self.context.topics.deliver(event.owner or ""), live)
        self.quotas.again(record, client, self.context.topic_ids)
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
            topic_id=self.context.topic_ids.get(record.topic),
            recent=self._recent(client),
        )
        self.state.facts[name.kind][name.id] = fact
        self.quotas.count(name.kind, client, live is None)
        self._enter(name, fact, placement)
        self._register(name, fact)
        self._answer("accepted" if live is None else "replaced", name, fact, record.place)

    def _judge(self, destination: str, live: Fact | None) -> None:
        """Refuse what cannot be delivered to; where it is delivered to already is not judged again."""
        if self.context.destinations is None or (live is not None and self._destination(live) == destination):
            return
        reason = self.context.destinations(destination)
        if reason is not None:
            raise HilcastError("sink-refused", f"nothing can be delivered to {destination!r}: {reason}")

    def _withdraw(self, name: Name, known: Fact | None, version: int, content: bytes, record: Record) -> None:
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
            topic_id=self.context.topic_ids.get(record.topic),
            recent=self._recent(parted(name.id)[0] or ""),
        )
        self.state.facts[name.kind][name.id] = fact
        if known is not None and known.live:
            self.quotas.count(name.kind, self._client(name, known), -1)
        self._end(name, fact, "withdrawn")
        self._answer("withdrawn", name, fact, record.place)

    def _enter(self, name: Name, fact: Fact, placement: Placement) -> None:
        """A filter is in force from now on."""
        self.travelling.enter(name, placement)
        self.entered.add(name)
        self._put(name, fact, placement)
        if name.kind is Kind.SUBSCRIPTION:
            self.topics.add(self._destination(fact))

    def _end(self, name: Name, fact: Fact, how: str) -> None:
        """A filter is in force no longer."""
        for part in fact.parts:
            self._drop(part, name)
        self.travelling.leave(name)
        self.entered.discard(name)
        fact.live, fact.ended, fact.parts, fact.wide = False, how, [], None
        self._register(name, fact)

    def _change(self, record: Record) -> None:
        """Count a control event that is new here, or raise that it is one too many."""
        _, client = speaker(record.topic, self.context.config)
        if client is not None and self.quotas.of(client).changes_per_minute is not None:
            self.quotas.change(self._changes(), client, record.timestamp_ms)

    def _changes(self) -> Changes:
        if self.state.changes is msgspec.UNSET:
            self.state.changes = {}
        return self.state.changes

    def _recent(self, client: str) -> list[int] | msgspec.UnsetType:
        """What a fact tells of its client's changes, where they are limited."""
        known = {} if self.state.changes is msgspec.UNSET else self.state.changes
        return recent(known[client]) if client in known else msgspec.UNSET

    def _client(self, name: Name, fact: Fact) -> str:
        """Whose quota a registration is counted to."""
        return parted(name.id)[0] or fact.owner or ""

    def _refuse(self, record: Record, event: Registration | None, error: HilcastError) -> None:
        known = None if event is None else self._fact(Name(Kind.of(event.advertisement), event.id))
        owner = known.owner if event is not None and event.withdraw and known is not None else None
        self.outputs.append(refusal(record, self.context, error, owner, None if event is None else event.version))
        if error.code != "stale-version":
            self.outputs.append(dead_letter(self.context.config, record, error.code, error.reason))
        self.figures["refused"] = self.figures.get("refused", 0) + 1
        if error.code in COUNTED:
            self.figures[f"refused:{error.code}"] = self.figures.get(f"refused:{error.code}", 0) + 1

    # ── what parts are told ─────────────────────────────────────────────────────────────────────────────────────

    def _put(self, name: Name, fact: Fact, placement: Placement, before: Placement | None = None) -> None:
        """Tell the parts what they should have of a filter; `before`: what they have, where that is known."""
        parts = placement.parts
        for part in fact.parts:
            if part not in parts:
                self._drop(part, name)
        for part in parts:
            entry = self._entry(name, fact, part, placement)
            if before is None or part not in fact.parts or entry != self._entry(name, fact, part, before):
                self.drops.get(part, set()).discard(name)
                self.puts.setdefault(part, {})[name] = entry
        fact.parts = parts
        fact.wide, fact.grid = placement.wide, self.grid.hash

    def _drop(self, part: str, name: Name) -> None:
        self.puts.get(part, {}).pop(name, None)
        self.drops.setdefault(part, set()).add(name)

    def _entry(self, name: Name, fact: Fact, part: str, placement: Placement) -> Entry:
        owner, residual = fact.owner or "", placement.residual
        travelling = placement.travelling.get(part)
        if travelling is None:
            travelling = Boxes.empty(self.type.d)
        if name.kind is Kind.ADVERTISEMENT:
            return Advertised(self._everywhere(name), owner, residual or "", pack(travelling), placement.wording)
        sent = placement.sent.get(part)
        if sent is None:
            sent = Boxes.empty(self.type.d)
        return LocalEntry(
            name.id,
            owner,
            self._destination(fact),
            residual,
            pack(sent),
            placement.exact,
            fact.groups,
            None if travelling == sent else pack(travelling),
            placement.wording,
        )

    def _destination(self, fact: Fact) -> str:
        return fact.sink or self.context.topics.deliver(fact.owner or "")

    def _everywhere(self, name: Name) -> str:
        """The id of an advertisement that is the same at every broker."""
        return f"{self.key.broker}/{name.id}"

    def _settle(self) -> None:
        """Bring what travels within its budgets, and tell the parts what changed by that."""
        for kind in Kind:
            before, pruned = self.travelling.settle(kind)
            for id, form in before.items():
                self._put_again(Name(kind, id), form)
            if pruned:
                self.figures[f"pruned:{kind}s"] = pruned

    def _put_again(self, name: Name, before: Filter | None) -> None:
        """Tell the parts the travelling form that a filter has now; `before`: the one that it had."""
        fact = self.state.facts[name.kind][name.id]
        known = None if name in self.entered else self._place(name, fact, before)
        self._put(name, fact, self._place(name, fact, self.travelling.form(name)), known)

    def _place(self, name: Name, fact: Fact, travelling: Filter | None) -> Placement:
        return self.placing(name, self.filters.sent(fact.sent), travelling, wide=fact.wide)

    def everything(self, part: str) -> dict[Name, Entry]:
        """What a part should have from here."""
        return {
            name: self._entry(name, fact, part, self._place(name, fact, self.travelling.form(name)))
            for name, fact in self._facts()
            if part in fact.parts
        }

    def _facts(self) -> Iterator[tuple[Name, Fact]]:
        return ((Name(kind, id), fact) for kind in Kind for id, fact in self.state.facts[kind].items())

    # ── effects ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _answer(
        self,
        kind: str,
        name: Name,
        fact: Fact,
        origin: tuple[str, int, int],
        error: HilcastError | None = None,
    ) -> None:
        self.outputs.append(
            receipt(
                self.context.topics,
                kind=kind,
                key=f"{self.key.broker}/{self.key.type}/{parted(name.id)[1]}",
                owner=fact.owner,
                version=fact.version,
                broker=self.key.broker,
                epoch=self.context.epoch,
                origin=origin,
                code=None if error is None else error.code,
                reason=None if error is None else error.reason,
                client=addressee(name.id, fact.owner, name.kind is Kind.ADVERTISEMENT, self.context.config),
            )
        )

    def _register(self, name: Name, fact: Fact) -> None:
        fact.deployment, fact.generation = self.context.config.deployment.name, self.context.generation
        self.outputs.append(Output(self.context.topics.registry, name.in_registry(self.key), encode_fact(fact)))

    def finish(self) -> Result:
        """Emit the changes of this batch, and pack the state."""
        control = self.context.topics.control
        self.outputs += [Output(control, to.encode(), encode(change)) for to, change in self.tell()]
        return Result(self.encoded(), self.outputs, topics=self.topics, figures=self.figures, faults=self.faults)

    def tell(self) -> list[tuple[str, Change]]:
        """Decide what each part is told of this batch, one stream each; then there is nothing left to say."""
        self._settle()
        if self.state.changes is not msgspec.UNSET:
            self.quotas.forget_old(self.state.changes)
        for part in self.snapshots:
            self.puts[part] = self.everything(part)
        outbox = Outbox(self.key, self.context.generation, self.dialect, self.state.sequences)
        parts = sorted({*self.puts, *self.drops, *self.snapshots})
        return [told for part in parts for told in self._told(part, outbox)]

    def encoded(self) -> bytes:
        """The state of this key, packed."""
        return encode_state(self.state)

    def _told(self, part: str, outbox: Outbox) -> list[tuple[str, Change]]:
        snapshot = part in self.snapshots
        puts = list(self.puts.get(part, {}).values())
        drops = [] if snapshot else sorted(self.drops.get(part, set()))
        if not (puts or drops or snapshot):
            return []
        return outbox.change(
            str(Key(self.key.broker, self.key.type, part)),
            snapshot=snapshot,
            local=[x for x in puts if isinstance(x, LocalEntry)],
            advertised=[x for x in puts if isinstance(x, Advertised)],
            removed=[name.id for name in drops if name.kind is Kind.SUBSCRIPTION],
            unadvertised=[self._everywhere(name) for name in drops if name.kind is Kind.ADVERTISEMENT],
        )


def refusal(record: Record, context: Context, error: HilcastError, owner: str | None, version: int | None) -> Output:
    """The `refused` receipt of a control event, with as much of it as can be read."""
    owner = owner or owner_of(record, context.config)
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
        client=speaker(record.topic, context.config)[1],
    )


def _answer_kind(fact: Fact) -> str:
    return "accepted" if fact.live else fact.ended or "withdrawn"


def encode_state(state: HomeState) -> bytes:
    """Compressed: facts look much alike, and all of them go through Spark, there and back, whenever one changes."""
    return journal.sealed(FORMAT, msgspec.msgpack.encode(state))


def decode_state(blob: bytes) -> HomeState:
    packed, end = journal.opened(FORMAT, blob, WHAT)
    if end != len(blob):
        raise formats.unreadable(WHAT, f"{len(blob)} bytes, {end} expected")
    try:
        return msgspec.msgpack.decode(packed, type=HomeState)
    except formats.UNREADABLE as error:
        raise formats.unreadable(WHAT, str(error)) from error
