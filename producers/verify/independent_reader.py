"""Publications and deliveries as an independent reader understands them: one record at a time, no Arrow, no Spark."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator

import msgspec

from producers.client.delivery import header, read_shared
from state.config import Config, Source
from state.flooding import Delivered, Publication
from state.messages import Record, delivery_id
from state.names import OUR_HEADERS, UNREADABLE
from state.plain_events import beside_of
from state.space.event_type import Format, format_said

ATTRIBUTES = ("specversion", "id", "source", "type", "broker")


class _Structured(msgspec.Struct):
    """The attributes of a structured CloudEvent; `data` is kept as it was written."""

    specversion: object = None
    id: object = None
    source: object = None
    type: object = None
    broker: object = None
    data: msgspec.Raw = msgspec.Raw(b"null")


def read_publication(record: Record, config: Config, source: Source | None = None) -> Publication:
    """Read a record of `publications`, or of a source topic, which supplies what the headers lack."""
    structured = _is_structured(record)
    found, value = _structured(record) if structured else (_headers(record), record.value or b"")
    if source is not None and not structured:
        defaults = {
            "specversion": b"1.0",
            "id": f"{record.partition}/{record.offset}".encode(),
            "source": f"kafka:{record.topic}".encode(),
            "type": source.type.encode(),
            "broker": (source.broker or "").encode() or dict(record.headers).get(source.broker_header or "") or None,
        }
        found = {name: found[name] or defaults[name] for name in ATTRIBUTES}
    kind, client = config.topics.client_of(record.topic) or ("", "")
    if kind == "publications" and not structured and found["source"] is None:
        found["source"] = (config.security.source_of(client) or "").encode() or None
    broker, type_name = _text(found["broker"]), _text(found["type"])
    return Publication(
        source=found["source"] or b"",
        id=found["id"] or b"",
        broker=broker,
        type=type_name,
        value=value,
        content=content(record),
        sent_ms=float(record.timestamp_ms),
        beside=beside_of(config.types[type_name], record.headers, record.key) if type_name in config.types else {},
        format="json" if structured else _format(record, source),
        fault=_misnamed(record)
        or _fault(found, broker, type_name, config)
        or _foreign(record, found["source"], type_name, config),
        size=len(record.key or b"") + len(record.value or b"") + _header_bytes(record.headers),
    )


def _header_bytes(headers: Iterable[tuple[str, bytes | None]]) -> int:
    return sum(len(name.encode("utf-8", "replace")) + len(value or b"") for name, value in headers)


def read_delivered(record: Record) -> list[Delivered]:
    """Read a record of a delivery topic or a sink, or of a topic that clients share: a delivery to each client that it
    names, at its topic. None for what the router did not write.
    """
    shared = read_shared(record)
    if shared is not None:
        event, members = shared
        named = {client: (delivery_id(event, client), ids) for client, ids in members.items()}
    else:
        delivery, client = header(record.headers, "hilcast_delivery"), header(record.headers, "hilcast_client")
        if delivery is None or client is None:
            return []
        named = {client: (delivery, header(record.headers, "hilcast_subscriptions") or "")}
    (source, id), same = identity(record), content(record)
    stale = header(record.headers, "hilcast_stale") == "true"
    return [
        Delivered(record.topic, client, source, id, delivery, ids, same, stale)
        for client, (delivery, ids) in named.items()
    ]


def identity(record: Record) -> tuple[bytes, bytes]:
    """Source and id of a routed record."""
    found = _structured(record)[0] if _is_structured(record) else _headers(record)
    return found["source"] or b"", found["id"] or b""


def content(record: Record) -> bytes:
    """A digest of key and value."""
    digest = hashlib.blake2b(b"-" if record.key is None else b"+" + len(record.key).to_bytes(4, "big"), digest_size=12)
    digest.update(record.key or b"")
    digest.update(b"-" if record.value is None else b"+" + record.value)
    return digest.digest()


def _headers(record: Record) -> dict[str, bytes | None]:
    last = dict(record.headers)
    return {name: last.get(f"ce_{name}") or None for name in ATTRIBUTES}


def _is_structured(record: Record) -> bool:
    kinds = [value or b"" for name, value in record.headers if name.lower() == "content-type"]
    return bool(kinds) and kinds[-1].lower().startswith(b"application/cloudevents")


def _structured(record: Record) -> tuple[dict[str, bytes | None], bytes]:
    try:
        event = msgspec.json.decode(record.value or b"", type=_Structured)
        given, data = {name: getattr(event, name) for name in ATTRIBUTES}, bytes(event.data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        given, data = _structured_plainly(record.value or b"")
    return {name: _whole(value) for name, value in given.items()}, data


def _structured_plainly(value: bytes) -> tuple[dict[str, object], bytes]:
    """The same of what msgspec does not read and is JSON all the same: half of a surrogate pair somewhere."""
    try:
        event = json.loads(value.decode(), parse_constant=_refuse)
    except (ValueError, RecursionError):
        event = None
    if not isinstance(event, dict):
        return dict.fromkeys(ATTRIBUTES), b""
    return {name: event.get(name) for name in ATTRIBUTES}, json.dumps(event.get("data")).encode()


def _refuse(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


def _whole(text: object) -> bytes | None:
    """A text that can be sent; half of a surrogate pair is none."""
    try:
        return text.encode() or None if isinstance(text, str) else None
    except UnicodeEncodeError:
        return None


def _text(value: bytes | None) -> str:
    return (value or b"").decode("utf-8", "replace")


def _format(record: Record, source: Source | None) -> Format | None:
    """What a value is written in, where that is not what its type says."""
    return source.format if source is not None and source.format else format_said(record.headers)


def _foreign(record: Record, source: bytes | None, type_name: str, config: Config) -> str | None:
    """Why a publication is refused by who may do what."""
    kind, client = config.topics.client_of(record.topic) or ("", "")
    if config.security.own and kind == "publications":
        named = [_text(source), *_named_besides(record)]
        if not all(config.security.may_publish(client, one) for one in named):
            return "not-yours"
    limit = config.limits.of(client, type_name).event_bytes
    kept = [(name, value) for name, value in record.headers if not name.startswith(OUR_HEADERS)]
    size = _header_bytes(kept) + len(record.key or b"") + len(record.value or b"")
    return "over-quota" if limit is not None and size > limit else None


def _named_besides(record: Record) -> Iterator[str]:
    """Sources that a record names in any place, as a reader might take them."""
    yield from (_text(value) for name, value in record.headers if name.lower() == "ce_source" and value)
    if _is_structured(record):
        try:
            members = json.loads(_text(record.value), object_pairs_hook=_Members, parse_int=float)
        except (ValueError, RecursionError):
            return
        if isinstance(members, _Members):
            yield from (text for name, text in members if name == "source" and isinstance(text, str))


class _Members(list[tuple[str, object]]):
    """The members of a JSON object, none left out."""


def _misnamed(record: Record) -> str | None:
    return "bad-event" if any(UNREADABLE in name for name, _ in record.headers) else None


def _fault(found: dict[str, bytes | None], broker: str, type_name: str, config: Config) -> str | None:
    if any(found[name] is None for name in ATTRIBUTES):
        return "bad-event"
    if broker not in config.overlay.brokers:
        return "unknown-broker"
    return None if type_name in config.types else "unknown-type"
