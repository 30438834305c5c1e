"""The messages that users see: control events in, receipts, dead letters and deliveries out (`docs/messages.md`).

Pure codecs: a `Record` is what a Kafka client read, an `Output` what one is to write. Everything that can be wrong
with a control event is found here or in the filter language, and raised as a `HilcastError` with its stable code.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from state.config import Config, Topics
from state.errors import HilcastError
from state.formats import UNREADABLE
from state.json_text import read_json
from state.limits import (
    FLOOD_RECORD_BYTES,
    HEADER_OVERHEAD_BYTES,
    INBOX_BYTES_MAX,
    PUBLISHER_BYTES_MAX,
    QUOTED_MAX,
    REASON_BYTES_MAX,
    RECEIPT_KEY_MAX,
)
from state.names import NAME, TOPIC_NAME, TYPE_NAME, owned, parted

VERSION_MAX = 2**63 - 1
TTL_MS_MAX = 10**15
SUBSCRIPTIONS_BYTES_MAX = 16 * 1024

Headers = tuple[tuple[str, bytes | None], ...]


TRUNCATED = "hilcast_truncated"
"""The header that says what of a record was cut: of a dead letter, or of one that is larger than any that is taken."""


class Record(msgspec.Struct, frozen=True, gc=False):
    """One Kafka record as it was read. Quick to make: whole topics are read record by record."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()

    @property
    def place(self) -> tuple[str, int, int]:
        """What orders the records of a batch: a key's rows come in no order across topics."""
        return (self.topic, self.partition, self.offset)


@dataclass(frozen=True, slots=True)
class Output:
    """One Kafka record to write."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    partition: int | None = None
    """None: Kafka chooses."""


class Registration(msgspec.Struct, frozen=True, gc=False):
    """A control event that is well formed: a subscription or an advertisement, or its withdrawal.

    `owner` is the client of a subscription or the publisher of an advertisement; None on a withdrawal.
    """

    advertisement: bool
    broker: str
    type: str
    id: str
    """As it is kept: with inboxes of their own it is in the client's namespace (`names.owned`)."""
    version: int | None
    withdraw: bool = False
    owner: str | None = None
    filter: object = None
    ttl_ms: int | None = None
    sink: str | None = None
    ranges: str | None = None
    """Client-made Hilbert ranges with the hash of their grid [MICS09 §6.1]; checked, never trusted for delivery."""
    groups: bool = False
    """Whether the client also reads group and broadcast topics, so that it may be served through them."""

    def content(self) -> bytes:
        """A digest of everything but the version: two events of one version are the same event if these agree."""
        parts = [self.withdraw, self.owner, self.filter, self.ttl_ms, self.sink, *([True] if self.groups else [])]
        return hashlib.blake2b(msgspec.json.encode(parts, order="deterministic"), digest_size=12).digest()


def header_bytes(headers: Headers) -> int:
    """Bytes of headers with what Kafka adds to each."""
    if not headers:
        return 0
    names = sum(len(name.encode("utf-8", "replace")) for name, _ in headers)
    return names + sum(len(value or b"") for _, value in headers) + HEADER_OVERHEAD_BYTES * len(headers)


def content_bytes(record: Record | Output) -> int:
    """Bytes of key, value and headers."""
    return len(record.key or b"") + len(record.value or b"") + header_bytes(record.headers)


def quoted(given: str | bytes) -> str:
    """What somebody sent as a reason quotes it.

    >>> quoted("b9"), quoted("x" * 300) == repr("x" * 200) + "…"
    ("'b9'", True)
    """
    return repr(given) if len(given) <= QUOTED_MAX else f"{given[:QUOTED_MAX]!r}…"


def cut(text: str, size: int) -> str:
    """A text, cut to so many bytes of UTF-8 at the border of a character.

    >>> cut("grün", 3), cut("grün", 4)
    ('gr', 'grü')
    """
    return text.encode("utf-8", "replace")[:size].decode("utf-8", "ignore")


def split_key(key: bytes | None) -> tuple[str, str, str]:
    """Take `BROKER/TYPE/ID` apart.

    >>> split_key(b"b1/stock.quote/s1")
    ('b1', 'stock.quote', 's1')
    """
    try:
        parts = (key or b"").decode().split("/")
    except UnicodeDecodeError:
        raise HilcastError("bad-key", f"not UTF-8: {quoted(key or b'')}; expected BROKER/TYPE/ID") from None
    legal = len(parts) == 3 and NAME.fullmatch(parts[0]) and TYPE_NAME.fullmatch(parts[1]) and NAME.fullmatch(parts[2])
    if not legal:
        shown = "null" if key is None else quoted("/".join(parts))
        raise HilcastError(
            "bad-key", f"{shown} is not BROKER/TYPE/ID (names of A-Z a-z 0-9 _ -, at most 64 characters)"
        )
    return parts[0], parts[1], parts[2]


def speaker(topic: str, config: Config) -> tuple[bool, str | None]:
    """Whether an inbox is one of advertisements, and the client that alone speaks there; None: everybody does.

    >>> from state.config import parse
    >>> text = '[overlay]\\nbrokers = ["b1"]\\n[types.t.attributes]\\nx = { kind = "int" }\\n'
    >>> speaker("hilcast.advertisements.alice", parse(text + '[security]\\ninboxes = "own"'))
    (True, 'alice')
    """
    if not config.security.own:
        return topic == config.topics.advertisements, None
    kind, client = config.topics.client_of(topic) or (None, None)
    return kind == "advertisements", client


def read_registration(record: Record, config: Config) -> Registration:
    """Read a record of an inbox, or raise the `HilcastError` that its receipt and dead letter will carry."""
    advertisement, client = speaker(record.topic, config)
    broker, type_name, id = split_key(record.key)
    id = id if client is None else owned(client, id)
    if broker not in config.overlay.brokers:
        raise HilcastError("unknown-broker", f"{broker!r} is not a broker of this overlay")
    if type_name not in config.types:
        raise HilcastError("unknown-type", f"{type_name!r} is not a configured event type")
    truncated = record.headers and any(name == TRUNCATED for name, _ in record.headers)
    if truncated or content_bytes(record) > INBOX_BYTES_MAX:
        more = f"more than {INBOX_BYTES_MAX} bytes, or in a flood more than {FLOOD_RECORD_BYTES}"
        raise HilcastError("too-large", f"key, value and headers have {more}")
    if record.value is None:
        version = _header_version(record.headers)
        return Registration(advertisement, broker, type_name, id, version, withdraw=True)
    value = _json_object(record.value)
    owner = _speaks(value, advertisement, client, config)
    version = _version(value.get("version"))
    ttl_ms = _ttl(value.get("ttl_ms"))
    sink = None if advertisement else _sink(value.get("sink"), owner, config)
    if "filter" not in value:
        raise HilcastError("bad-value", "the field 'filter' is missing")
    filter = _filter(value["filter"])
    ranges = value.get("ranges")
    if ranges is not None and not (isinstance(ranges, str) and ranges.isascii()):
        raise HilcastError("bad-value", "'ranges' must be text made by the client-side mapping")
    return Registration(
        advertisement, broker, type_name, id, version, False, owner, filter, ttl_ms, sink, ranges,
        groups=not advertisement and _groups(value.get("groups"), sink),
    )  # fmt: skip


def owner_of(record: Record, config: Config) -> str | None:
    """Whom a refused record is of: the client whose inbox it is in, or whom it names, if that can be read."""
    advertisement, client = speaker(record.topic, config)
    if client is not None:
        return client
    try:
        value = _json_object(record.value or b"")
        return _owner(value, "publisher" if advertisement else "client")
    except HilcastError:
        return None


def _json_object(value: bytes) -> dict[str, object]:
    try:
        decoded = read_json(value)
    except ValueError as error:
        raise HilcastError("bad-json", f"the value is not JSON: {error}") from None
    if not isinstance(decoded, dict):
        raise HilcastError("bad-value", f"the value must be a JSON object, not {type(decoded).__name__}")
    return decoded


def _speaks(value: dict[str, object], advertisement: bool, client: str | None, config: Config) -> str:
    """Whom a registration is for: the client or publisher that it names; in an inbox of one's own only oneself."""
    field = "publisher" if advertisement else "client"
    if client is None:
        return _owner(value, field)
    if value.get(field) is None:
        owner = config.security.source_of(client) if advertisement else client
        if owner is None:
            raise HilcastError(
                "bad-value", f"the field {field!r} is missing, and {client} has no source that is given whole"
            )
        return owner
    owner = _owner(value, field)
    if not may_speak(client, advertisement, owner, config):
        raise HilcastError("not-yours", f"{field} {quoted(owner)} is not of {client}, whose inbox this is")
    return owner


def may_speak(client: str, advertisement: bool, owner: str, config: Config) -> bool:
    """Whether a client may register for this client or publisher."""
    return config.security.may_publish(client, owner) if advertisement else owner == client


def permit(id: str, advertisement: bool, owner: str, sink: str | None, config: Config) -> None:
    """Raise why a registration of another time may not be in force under this configuration, if it may not."""
    client = parted(id)[0]
    if config.security.own != (client is not None):
        came, are = ("shared", "each client's own") if client is None else ("each client's own", "shared")
        raise HilcastError("not-yours", f"it came when inboxes were {came}, and they are {are} now: send it again")
    if client is not None and not may_speak(client, advertisement, owner, config):
        raise HilcastError("not-yours", f"{quoted(owner)} is not of {client} any more")
    if sink is not None:
        check_sink(sink, owner, config)


def _owner(value: dict[str, object], field: str) -> str:
    owner = value.get(field)
    if not isinstance(owner, str) or not owner:
        raise HilcastError("bad-value", f"the field {field!r} must be text that is not empty")
    if field == "client" and not NAME.fullmatch(owner):
        raise HilcastError(
            "bad-value", f"client {quoted(owner)} is not a name (A-Z a-z 0-9 _ -, at most 64 characters)"
        )
    if len(_encoded(owner, field)) > PUBLISHER_BYTES_MAX:
        raise HilcastError("bad-value", f"publisher {quoted(owner)} has more than {PUBLISHER_BYTES_MAX} bytes")
    return owner


def _encoded(text: str, field: str) -> bytes:
    """UTF-8 of a text that JSON may have given as half of a surrogate pair, which is no character."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise HilcastError("bad-value", f"{field!r} holds half of a surrogate pair, which is no character") from None


def _filter(filter: object) -> str | dict[str, object] | list[object]:
    if not isinstance(filter, str | dict | list):
        raise HilcastError("bad-value", "'filter' must be text or a CloudEvents filter object")
    try:
        msgspec.json.encode(filter)
    except UnicodeEncodeError:
        raise HilcastError("filter-syntax", "half of a surrogate pair is no character") from None
    return filter


def _version(version: object) -> int | None:
    if version is None:
        return None
    if isinstance(version, bool) or not isinstance(version, int) or not 0 <= version <= VERSION_MAX:
        raise HilcastError("bad-value", f"'version' must be an integer from 0 to 2^63-1, not {str(version)[:80]!r}")
    return version


def _header_version(headers: Headers) -> int | None:
    given = [value for name, value in headers if name == "hilcast_version"]
    if not given:
        return None
    text = given[-1] or b""
    if not re.fullmatch(rb"[0-9]{1,19}", text) or int(text) > VERSION_MAX:
        raise HilcastError(
            "bad-value", f"header hilcast_version must be an integer from 0 to 2^63-1, not {text[:80]!r}"
        )
    return int(text)


def _ttl(ttl_ms: object) -> int | None:
    if ttl_ms is None:
        return None
    if isinstance(ttl_ms, bool) or not isinstance(ttl_ms, int) or not 0 < ttl_ms <= TTL_MS_MAX:
        raise HilcastError("bad-value", f"'ttl_ms' must be a whole number from 1 to 10^15, not {str(ttl_ms)[:80]!r}")
    return ttl_ms


def _sink(sink: object, client: str, config: Config) -> str | None:
    if sink is None:
        return None
    if not isinstance(sink, str) or not TOPIC_NAME.fullmatch(sink):
        raise HilcastError("bad-value", f"'sink' must be a legal topic name, not {str(sink)[:80]!r}")
    prefix = config.deployment.prefix
    if not is_sink(sink, prefix):
        raise HilcastError("bad-value", f"'sink' {sink!r} may not lie under the prefix {prefix!r} or start with '__'")
    if config.reads(sink):
        raise HilcastError("bad-value", f"'sink' {sink!r} is a source: what is delivered there would enter again")
    check_sink(sink, client, config)
    return sink


def check_sink(sink: str, client: str, config: Config) -> None:
    """Raise `sink-refused` unless a client's subscriptions may deliver to a topic outside the prefix."""
    if not config.grants(sink, client):
        raise HilcastError("sink-refused", f"{client} may not deliver to {sink!r}: no [[sinks]] grants it")


def is_sink(topic: str, prefix: str) -> bool:
    """Whether subscriptions may deliver there: a legal name, not under the prefix, none of Kafka's own."""
    # '.' and '_' are one character to Kafka's metric names, so a topic that differs only there may not be created
    collides = topic.replace("_", ".").startswith(f"{prefix}.".replace("_", "."))
    return bool(TOPIC_NAME.fullmatch(topic)) and not collides and not topic.startswith("__")


def _groups(groups: object, sink: str | None) -> bool:
    if groups is None:
        return False
    if not isinstance(groups, bool):
        raise HilcastError("bad-value", f"'groups' must be true or false, not {str(groups)[:80]!r}")
    if groups and sink is not None:
        raise HilcastError("bad-value", "'groups' and 'sink' exclude each other: a sink is the one place to deliver to")
    return groups


def receipt(
    topics: Topics,
    *,
    kind: str,
    key: str | None,
    owner: str | None,
    version: int | None,
    broker: str | None,
    epoch: str,
    origin: tuple[str, int, int],
    code: str | None = None,
    reason: str | None = None,
    client: str | None = None,
) -> Output:
    """The one answer to a control event; `origin` names the input that is answered. It fits, whatever was sent.

    `client`: whose own answers it goes to; None: everybody's.
    """
    topic, partition, offset = origin
    value = {
        "kind": kind,
        "key": key if key is None or len(key) <= RECEIPT_KEY_MAX else f"{key[:RECEIPT_KEY_MAX]}…",
        "version": version,
        "broker": broker,
        "epoch": epoch,
        "code": code,
        "reason": None if reason is None else cut(reason, REASON_BYTES_MAX),
        "topic": topic,
        "partition": partition,
        "offset": offset,
    }
    place = topics.receipts if client is None else topics.receipts_of(client)
    return Output(place, None if owner is None else owner.encode(), msgspec.json.encode(value))


def own_receipts(outputs: Iterable[Output], topics: Topics) -> set[str]:
    """Topics of clients' own answers that must exist before these are written."""
    head = topics.receipts_of("")
    return {output.topic for output in outputs if output.topic.startswith(head)}


def addressee(id: str, owner: str | None, advertisement: bool, config: Config) -> str | None:
    """Whose own answers a receipt goes to, where clients have some; None: everybody's.

    A registration of the time when inboxes were shared is in no namespace: its client is whom it named.
    """
    if not config.security.own:
        return None
    return parted(id)[0] or (owner if owner is not None and not advertisement and NAME.fullmatch(owner) else None)


REASONS = {
    "filter-syntax": "the filter cannot be read",
    "filter-type": "a value of the filter is of the wrong kind",
    "filter-attribute": "the filter names an unknown attribute",
    "filter-limit": "the filter is too long or too deep",
    "unknown-broker": "it names no broker of this overlay",
    "unknown-type": "it names no configured event type",
    "unknown-schema": "it names a schema that cannot be had",
    "bad-key": "the key is not BROKER/TYPE/ID",
    "bad-json": "the value is not JSON",
    "bad-value": "a field is missing, of the wrong kind or impossible",
    "stale-grid": "client-made ranges of another grid",
    "bad-event": "it is no event of its type",
    "not-advertised": "no advertisement of its publisher holds",
    "too-large": "it is larger than what is taken, or would not fit once routed",
    "internal": "handling it failed inside",
    "not-yours": "it speaks for somebody else than the client whose inbox it is in",
    "sink-refused": "nothing may be delivered to its sink",
    "over-quota": "it is more than its client may have or do",
}
"""What a dead letter says by code where it may quote nothing of the original."""


def dead_letter_headers(code: str, reason: str, topic: str, partition: int, offset: int) -> Headers:
    """What a dead letter adds to the headers of the original."""
    return (
        ("hilcast_code", code.encode()),
        ("hilcast_reason", cut(reason, REASON_BYTES_MAX).encode()),
        ("hilcast_topic", topic.encode()),
        ("hilcast_partition", str(partition).encode()),
        ("hilcast_offset", str(offset).encode()),
    )


def event_digest(source: bytes, id: bytes) -> bytes:
    """16 bytes that stand for one publication; the first half of a delivery id."""
    return hashlib.blake2b(len(source).to_bytes(4, "big") + source + id, digest_size=16).digest()


def delivery_id(event: bytes, client: str) -> str:
    """Equal on every repeat: depends on source, id and client only, never on batch, offset or time.

    >>> delivery_id(event_digest(b"s", b"1"), "alice") == delivery_id(event_digest(b"s", b"1"), "alice")
    True
    """
    return hashlib.blake2b(event + client.encode(), digest_size=16).hexdigest()


def joined_ids(ids: list[str]) -> str:
    """Matched subscription ids, sorted, comma separated, cut at 16 KB with an ellipsis.

    >>> joined_ids(["s2", "s1"])
    's1,s2'
    """
    text = ",".join(sorted(set(ids)))
    if len(text) <= SUBSCRIPTIONS_BYTES_MAX:
        return text
    cut = text.rfind(",", 0, SUBSCRIPTIONS_BYTES_MAX - 3)
    return text[: cut + 1] + "…"


# ── one message for several clients ─────────────────────────────────────────────────────────────────────────────────


def write_members(matched: Mapping[str, Sequence[str]]) -> list[tuple[bytes, list[str]]]:
    """The header `hilcast_members` of a message for these clients, and whom it names; several where one is too long.

    >>> write_members({"bob": ["s3"], "alice": ["s2", "s1"]})
    [(b'alice=s1,s2;bob=s3', ['alice', 'bob'])]
    """
    headers: list[tuple[bytes, list[str]]] = []
    texts: list[str] = []
    clients: list[str] = []
    size = 0
    for client in sorted(matched):
        text = f"{client}={joined_ids(list(matched[client]))}"
        if texts and size + len(text) + 1 > SUBSCRIPTIONS_BYTES_MAX:
            headers.append((";".join(texts).encode(), clients))
            texts, clients, size = [], [], 0
        texts.append(text)
        clients.append(client)
        size += len(text) + 1
    return [*headers, (";".join(texts).encode(), clients)] if texts else headers


def read_members(header: bytes) -> dict[str, str]:
    """Whom a message of a group or broadcast topic is for: by client the ids that matched, comma separated.

    >>> read_members(b"alice=s1,s2;bob=s3")
    {'alice': 's1,s2', 'bob': 's3'}
    """
    entries = (entry.partition("=") for entry in header.decode().split(";") if entry)
    return {client: ids for client, _, ids in entries}


class Span(msgspec.Struct, frozen=True, omit_defaults=True):
    """A client may be served through this topic: from an offset on, and once it has left, up to another."""

    topic: str
    first: int
    end: int | None = None
    """The offset after the last message that can name it; None while more may come."""
    partition: int = 0


class Membership(msgspec.Struct, frozen=True):
    """The value of a record of the topic `groups`, whose key is BROKER/CLIENT."""

    spans: list[Span]


def write_spans(topics: Topics, broker: str, client: str, spans: Sequence[Span]) -> Output:
    """The record of the topic `groups` that tells a client what to read; a null value where there is nothing."""
    value = msgspec.json.encode(Membership(list(spans))) if spans else None
    return Output(topics.groups, f"{broker}/{client}".encode(), value)


def read_reader(record: Record) -> tuple[str, str]:
    """The broker and the client of a record of the topic `groups`."""
    broker, _, client = (record.key or b"").decode("utf-8", "replace").partition("/")
    return broker, client


def read_spans(record: Record) -> list[Span]:
    """The spans of a record of the topic `groups`; none if its value is null.

    What cannot be read is an error: going on without its spans would lose deliveries in silence.
    """
    if record.value is None:
        return []
    try:
        return msgspec.json.decode(record.value, type=Membership).spans
    except UNREADABLE as error:
        place = f"{record.topic}/{record.partition} offset {record.offset}"
        raise HilcastError("bad-value", f"the spans at {place} cannot be read ({error}): was it the router?") from None
