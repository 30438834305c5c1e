"""`explain`: why an event does or does not reach a subscription, from what Kafka and Redis hold.

The event is JSON, or is looked up by SOURCE#ID, newest first; the subscription is its last fact in the registry.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import redis

from infra.kafka import Transport, open_transport
from infra.kafka.reading import every, newest
from infra.schema_registry import prompt_schemas
from infra.signing_keys import keyring
from producers.cli import config_path
from producers.commands.open_choices import with_choices
from producers.commands.output import Style, table
from producers.commands.range_words import RangeWords, is_range
from producers.verify.independent_reader import read_publication
from state.compiled_part import CompiledPart
from state.config import Config, load
from state.control.facts import decode_fact
from state.errors import HilcastError
from state.explain import NOT_REACHED, Event, Explanation, Hop, Registered, Seen, Stand, explained
from state.flooding import Publication
from state.keys import Key
from state.messages import Record
from state.plain_events import Beside, plain_attributes
from state.redis_index import RedisIndex, Version
from state.reductions.parameters import forwards_ranges
from state.reductions.reduction import Fate
from state.signing import genuine_ones
from state.space.decode import json_object
from state.space.encodings.documents import read_document
from state.topics import published

JSON_ID = "(not published)"


def explain(chosen: argparse.Namespace) -> int:
    """Print the explanation; 0 whatever it says."""
    config = with_choices(load(config_path(chosen)))
    transport = open_transport(config)
    try:
        event = read_event(chosen, config, transport)
        subscription, advertisements = read_registry(transport, config, chosen.subscription, event.type)
    finally:
        transport.close()
    index = RedisLook(config)
    try:
        found = explained(config, event, subscription, advertisements, index)
    finally:
        index.close()
    if chosen.json:
        # an event may hold numbers of any size and half characters, which only Python's own writer can write
        print(json.dumps(as_json(found, index.fault)), flush=True)
    else:
        ranged = config.types.get(chosen.subscription[1])
        say = None if chosen.ranges or ranged is None or not forwards_ranges(ranged) else RangeWords(ranged)
        text = for_people(found, index.fault, Style(), say)
        print(text.encode("utf-8", "backslashreplace").decode())
    return 0


# ── the event ───────────────────────────────────────────────────────────────────────────────────────────────────


def read_event(chosen: argparse.Namespace, config: Config, transport: Transport) -> Event:
    """The event that EVENT names, entered where and as what the options say, else as it stands.

    JSON that says neither is taken as an event of the subscription's type that enters at its own broker.
    """
    if not chosen.event.lstrip().startswith("{"):
        return _published(chosen, config, transport)
    broker, type_name, _ = chosen.subscription
    return event_of(config, chosen.event, broker, type_name, chosen.source, entered=chosen.broker, called=chosen.type)


def event_of(
    config: Config,
    text: str,
    broker: str,
    type_name: str,
    source: str,
    *,
    entered: str | None = None,
    called: str | None = None,
) -> Event:
    """The event that JSON, or a structured CloudEvent, says.

    `broker`, `type_name` and `source` are what it gets where it does not say them; `entered` and `called` count even
    where it says another broker or type.
    """
    value = json_object(text.encode("utf-8", "replace"))
    if value is None:
        raise HilcastError("bad-event", "EVENT is not a JSON object (NaN and Infinity are not JSON)")
    if "specversion" not in value or "data" not in value:
        type_name = called or type_name
        return Event(entered or broker, type_name, source, JSON_ID, _attributes(config, type_name, value, {}))
    data = value["data"]
    if not isinstance(data, dict):
        raise HilcastError("bad-event", "the data of the structured CloudEvent is not a JSON object")
    type_name = called or str(value.get("type", type_name))
    return Event(
        entered or str(value.get("broker", broker)),
        type_name,
        str(value.get("source", source)),
        str(value.get("id", JSON_ID)),
        _attributes(config, type_name, data, {}),
    )


def _attributes(config: Config, type_name: str, document: dict[str, object], beside: Beside) -> dict[str, object]:
    """The attributes of an event by name: its document where that has them, or where its type is not known."""
    event_type = config.types.get(type_name)
    if event_type is None or event_type.is_flat:
        return document
    return plain_attributes(event_type, document, beside)


def _published(chosen: argparse.Namespace, config: Config, transport: Transport) -> Event:
    """The newest publication of that source and id."""
    wanted = chosen.event.encode()
    config = config.with_topics(transport.topics())
    sources = {source.topic: source for source in config.sources}
    for record in newest(transport, published(config)):
        found = read_publication(record, config, sources.get(record.topic))
        if found.source + b"#" + found.id != wanted:
            continue
        if found.fault is not None and not (chosen.broker and chosen.type):
            raise HilcastError(
                found.fault, f"the publication at {_place(record)} is refused by the router: see dead letters"
            )
        type_name = chosen.type or found.type
        document = _document(config, type_name, found)
        if document is None:
            raise HilcastError("bad-event", f"the publication at {_place(record)} is not a JSON object")
        attributes = _attributes(config, type_name, document, found.beside)
        source, id = found.source.decode("utf-8", "replace"), found.id.decode("utf-8", "replace")
        return Event(chosen.broker or found.broker, type_name, source, id, attributes)
    raise HilcastError("unknown-event", f"no publication {chosen.event!r} is in Kafka (SOURCE#ID, or JSON)")


def _document(config: Config, type_name: str, found: Publication) -> dict[str, object] | None:
    """What a publication says, in whatever it is written; of a type that is not known as JSON.

    Of other formats it is what the router looks at: no path leads into a map, though it looks like an object.
    """
    event_type = config.types.get(type_name)
    written = None if event_type is None else event_type.written_in(found.format)
    if written is None or written.format == "json":
        return json_object(found.value)
    return read_document(written, found.value, prompt_schemas(config, strict=True), attributes_only=True)


def _place(record: Record) -> str:
    return f"{record.topic}/{record.partition} offset {record.offset}"


# ── the registry and the index ──────────────────────────────────────────────────────────────────────────────────


def read_registry(
    transport: Transport, config: Config, key: tuple[str, str, str], type_name: str
) -> tuple[Registered, list[Registered]]:
    """The subscription, and the advertisements of a type; the last record of a key counts."""
    wanted = "/".join(("subscription", *key)).encode()
    facts: dict[bytes, bytes | None] = {}
    for record in genuine_ones(every(transport, config.topics.registry), keyring(config)):
        name = record.key or b""
        if name == wanted or (name.startswith(b"advertisement/") and name.split(b"/")[2:3] == [type_name.encode()]):
            facts[name] = record.value
    known = {name.decode(): decode_fact(value) for name, value in facts.items() if value is not None}
    if wanted.decode() not in known:
        form = "BROKER/TYPE/CLIENT:ID" if config.security.own else "BROKER/TYPE/ID"
        raise HilcastError("unknown-subscription", f"{'/'.join(key)} is not in the registry ({form})")
    subscription = Registered(*key, known.pop(wanted.decode()))
    advertisements = [Registered(*_names(name), fact) for name, fact in sorted(known.items())]
    return subscription, advertisements


def _names(name: str) -> tuple[str, str, str]:
    _, broker, type_name, id = name.split("/")
    return broker, type_name, id


class RedisLook:
    """The index in Redis, read part by part; once Redis fails, nothing more is known."""

    def __init__(self, config: Config) -> None:
        self._index = RedisIndex(config)
        self._vector: tuple[str, Mapping[str, Version]] | None = None
        self._parts: dict[Key, CompiledPart | None] = {}
        self.fault: str | None = None

    def part(self, key: Key) -> CompiledPart | None:
        if key not in self._parts and self.fault is None:
            try:
                self._parts[key] = self._load(key)
            except redis.RedisError as error:
                self._failed(error)
        return self._parts.get(key)

    def _load(self, key: Key) -> CompiledPart | None:
        if self._vector is None:
            run, generation = self._index.current()
            self._vector = (run, {}) if generation is None else self._index.vector(generation)
        run, versions = self._vector
        version = versions.get(str(key))
        if version is not None and version.run != run:
            return None  # of a Redis before a restart: the router does not use it
        loaded = self._index.newest([key])[0]
        return None if loaded is None else loaded[1]

    def fates(self, key: Key, neighbour: str, entries: Sequence[str]) -> list[Fate | None]:
        if self.fault is None:
            try:
                return self._index.forwarding(key, neighbour, entries)
            except redis.RedisError as error:
                self._failed(error)
        return [None] * len(entries)

    def _failed(self, error: redis.RedisError) -> None:
        self.fault = f"Redis does not answer ({type(error).__name__}): see `hilcast doctor`"

    def close(self) -> None:
        self._index.close()


def as_json(found: Explanation, fault: str | None) -> dict[str, object]:
    """Everything by name; what is not known is null."""
    predicates = [{**p._asdict(), "value": plain(p.value)} for p in found.predicates]
    event = {**dataclasses.asdict(found.event), "attributes": plain(found.event.attributes)}
    stands = [{**vars(stand), "how": words(stand.how)} for stand in found.forwarding]
    said = {**dataclasses.asdict(found), "event": event, "predicates": predicates, "forwarding": stands}
    return {**said, "redis": fault or "ok"}


def plain(value: object) -> object:
    """A value of an event as JSON can say it: what was too large for a number is text."""
    if isinstance(value, Mapping):
        return {name: plain(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


# ── words ───────────────────────────────────────────────────────────────────────────────────────────────────────

_SEEN = {
    Seen.COVERED_BY_LARGER: "covered, by a larger entry there",
    Seen.EQUAL_HELD: "forwarded, or an equal entry was",
    Seen.NOT_HELD: "not forwarded: nothing that was asked for there holds it",
    Seen.NEVER_CAME: "it did not come here",
}


def words(how: Fate | Seen | None, say: RangeWords | None = None) -> str | None:
    """What became of an entry, in words; with `say` also the ranges by which others hold it.

    >>> words(Fate("covered", ("b1/s7", "b2/s1"), 3)), words(Fate("forwarded"))
    ('covered by b1/s7, b2/s1 and 3 more together', 'forwarded')
    """
    if how is None or isinstance(how, Seen):
        return None if how is None else _SEEN[how]
    if how.how == "held-back":
        return "held back: no advertisement from there meets it"
    listed = ", ".join(how.by) + (f" and {how.more} more" if how.more else "")
    if say is not None and how.by and all(map(is_range, how.by)):
        listed = say.named(how.by, how.more)
    if how.how == "covered":
        several = " together" if len(how.by) + how.more != 1 else ""
        return f"covered by {listed or 'forwarded entries'}{several}"
    if how.how == "merged":
        return f"merged into {listed}"
    return f"forwarded as {listed}" if listed else "forwarded"


# ── for people ──────────────────────────────────────────────────────────────────────────────────────────────────


def for_people(found: Explanation, fault: str | None, style: Style, say: RangeWords | None = None) -> str:
    """The explanation as text: the verdict first, then what it rests on. `say`: ranges are said in words."""
    event = found.event
    yes_no = {True: style("32", "yes"), False: style("31", "no"), None: style("33", "not known")}
    lines = [
        f"subscription  {found.subscription} of {found.client or '-'} ({found.state}): {found.filter or '-'}",
        f"event         {event.source}#{event.id} of {event.type}, entered at {event.broker}",
        f"matches       {yes_no[found.matches]}: {found.because}",
        f"reaches       {yes_no[found.reaches]}: {_verdict(found)}",
    ]
    if found.predicates:
        rows = [["yes" if p.holds else "no", p.predicate, _saw(p.value)] for p in found.predicates]
        lines += ["", table(["holds", "predicate", "saw"], rows)]
    if found.conformance is not None:
        lines += ["", *_conformance(found, yes_no)]
    lines += ["", f"path  {' -> '.join(found.path)}"]
    if found.hops:
        hops = [[f"{h.origin} -> {h.target}", _taken(h), h.part, *_held(h, say), h.why] for h in found.hops]
        lines.append(table(["link", "event", "part", "entry", "that holds it", "why"], hops))
    if found.forwarding:
        lines += ["", table(["told", "part", "entry", "what became of it"], list(_fates(found, say)))]
        if say is not None and found.boxes:
            more = f" and {found.boxes_total - len(found.boxes):,} more" * (found.boxes_total > len(found.boxes))
            lines += ["", f"ranges of the boxes  {'; '.join(found.boxes)}{more} (all of them: --ranges)"]
    if fault is not None:
        lines += ["", style("33", fault)]
    return "\n".join(lines)


def _taken(hop: Hop) -> str:
    if hop.why == NOT_REACHED:
        return "not reached"
    return {True: "carried", False: "stopped", None: "not known"}[hop.carried]


def _held(hop: Hop, say: RangeWords | None) -> tuple[str | None, str | None]:
    """The entry of a hop and what it asks for; a range says itself."""
    if hop.entry is None or hop.asked != f"range {hop.entry}":
        return hop.entry, hop.asked
    return (hop.entry, "a Hilbert range") if say is None else ("a range", say.named([hop.entry]))


def _fates(found: Explanation, say: RangeWords | None) -> Iterator[list[str | None]]:
    """What became of each entry; with `say` ranges of one broker, neighbour and part are said together."""
    together: dict[tuple[str, str, str], list[Stand]] = {}
    for stand in found.forwarding:
        together.setdefault((stand.broker, stand.towards, stand.part), []).append(stand)
    for (broker, towards, part), stands in together.items():
        ranges = [stand for stand in stands if say is not None and stand.entry is not None and is_range(stand.entry)]
        for stand in stands:
            if stand not in ranges:
                yield [f"{broker} -> {towards}", part, stand.entry, words(stand.how, say) or "not known"]
        if ranges and say is not None:
            ids = sorted({stand.entry.rpartition(">")[2] for stand in ranges if stand.entry is not None})
            told = Counter(_in_a_word(stand.how) for stand in ranges)
            said = ", ".join(f"{n:,} {how}" if len(told) > 1 else how for how, n in told.items())
            yield [f"{broker} -> {towards}", part, say.named(ids), said]


def _in_a_word(how: Fate | Seen | None) -> str:
    """What became of a range, without which others have a share in it."""
    return how.how if isinstance(how, Fate) else words(how) or "not known"


def _conformance(found: Explanation, yes_no: dict[bool | None, str]) -> list[str]:
    assert found.conformance is not None
    conformance = found.conformance
    lines = [f"advertised by {conformance.publisher} at {found.event.broker}  {yes_no[conformance.conforms]}"]
    if conformance.advertisements:
        rows = [["yes" if a.holds else "no", a.id, a.filter] for a in conformance.advertisements]
        lines.append(table(["holds", "advertisement", "filter"], rows))
    return lines


def _saw(value: object) -> str:
    return "absent" if value is None else json.dumps(plain(value), ensure_ascii=False)


def _verdict(found: Explanation) -> str:
    """What decides whether the event would be delivered now."""
    if not found.matches:
        return "it does not match"
    if found.conformance is not None and not found.conformance.conforms:
        return f"refused at {found.event.broker} (not-advertised)"
    for hop in found.hops:
        if hop.carried is not True:
            return f"at {hop.origin} -> {hop.target}: {hop.why}"
    if found.reaches is None:
        return f"the index of {found.path[-1]} is not known"
    return "carried by every link" if found.reaches else f"it is not in force at {found.path[-1]} yet"
