"""`publish` and `tail`: events in, deliveries out."""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from collections.abc import Iterator

import msgspec

from producers.cli import complain, config_path
from producers.client.delivery import Delivery
from producers.client.publisher import Publisher
from producers.client.subscriber import Subscriber
from producers.commands.output import Style, print_json
from state.config import load
from state.errors import HilcastError


def publish(chosen: argparse.Namespace) -> int:
    """Publish the argument, or every line of standard input that is not empty; lines leave as they came."""
    config = load(config_path(chosen))
    is_json = chosen.type not in config.types or config.types[chosen.type].format == "json"
    lines = _lines() if chosen.event == "-" else iter([chosen.event.encode()])
    headers = dict(_header(text) for text in chosen.header)
    given = {"broker": chosen.broker, "type": chosen.type, "source": chosen.source, "client": chosen.client}
    with Publisher(config, **given) as publisher:
        for number, line in enumerate(lines, 1):
            if number > 1 and chosen.id is not None:
                raise HilcastError(
                    "bad-event", "one --id cannot name several events: leave it out, and each gets its own"
                )
            if not _is_object(line):
                print(f"hilcast: event {number} is not a JSON object and will be refused (bad-event)", file=sys.stderr)
            # text is written in the format of its type
            event = line if is_json else line.decode("utf-8", "replace")
            print(f"{publisher.source}#{publisher.publish(event, id=chosen.id, key=chosen.key, headers=headers)}")
    return 0


def _header(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise HilcastError("bad-event", f"a header is NAME=VALUE, not {text!r}")
    return name, value


def _lines() -> Iterator[bytes]:
    for line in sys.stdin.buffer:
        if line.strip():
            yield line.strip()


def _is_object(value: bytes) -> bool:
    try:
        return isinstance(msgspec.json.decode(value), dict)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False


def tail(chosen: argparse.Namespace) -> int:
    """Show deliveries until told to end."""
    config = load(config_path(chosen))
    style = Style()
    shown = 0
    with Subscriber(config, chosen.client, sinks=chosen.sink) as subscriber:
        every = subscriber.present() if chosen.once else subscriber.deliveries(quiet_s=chosen.timeout)
        try:
            for delivery in itertools.islice(every, chosen.count):
                shown += 1
                if chosen.json:
                    print_json(as_json(delivery))
                else:
                    print(as_line(delivery, style), flush=True)
        except KeyboardInterrupt:
            return 0  # the ordinary end of watching
    if chosen.count is not None and shown < chosen.count:
        return complain(f"too-few: {shown} of {chosen.count} deliveries came")
    return 0


def as_line(delivery: Delivery, style: Style) -> str:
    """A delivery for people."""
    at = time.strftime("%H:%M:%S", time.localtime(delivery.record.timestamp_ms / 1000))
    value = delivery.value.decode("utf-8", "replace")
    if not value.lstrip().startswith("{"):
        said = _event(delivery)
        value = value if said is None else json.dumps(said, ensure_ascii=False)
    where = f"{delivery.broker} {delivery.type}"
    ids = ",".join(delivery.subscriptions)
    event = f"{delivery.source}#{delivery.event_id}"
    return "  ".join([style("2", at), style("36", where), value, style("2", event), style("32", ids)])


def as_json(delivery: Delivery) -> dict[str, object]:
    """A delivery for programs; `value` as text, byte for byte where it is UTF-8."""
    record = delivery.record
    return {
        "delivery": delivery.id,
        "client": delivery.client,
        "subscriptions": list(delivery.subscriptions),
        "epoch": delivery.epoch,
        "source": delivery.source,
        "id": delivery.event_id,
        "type": delivery.type,
        "broker": delivery.broker,
        "event": _event(delivery),
        "value": delivery.value.decode("utf-8", "replace"),
        "key": None if delivery.key is None else delivery.key.decode("utf-8", "replace"),
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
    }


def _event(delivery: Delivery) -> dict[str, object] | None:
    try:
        return delivery.event
    except (ValueError, HilcastError):
        return None
