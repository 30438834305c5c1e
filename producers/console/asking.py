"""What is computed when somebody asks: a plane of the content space, a filter, an event, an explanation, a verdict.

Each is what a command says (`cost`, `explain`, `verify`), of what the poller has read and the index in Redis.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from infra.kafka import open_transport
from producers.commands.cost import as_json as cost_json
from producers.commands.diagnosis import figures as judged_figures
from producers.commands.explain import as_json as explained_json
from producers.commands.explain import event_of, plain
from producers.console.plane import Plane
from producers.console.poller import Known, SeenEvent
from producers.verify import verify
from state.config import Config
from state.cost import cost, measured
from state.errors import FilterError, HilcastError
from state.explain import Event, Index, Registered, box_text, explained
from state.filters.evaluate import compile as compile_filter
from state.filters.geometry import geometry
from state.filters.grammar import parse
from state.keys import Key, index_parts
from state.messages import split_key
from state.space.event_type import EventType
from state.space.grid import Grid
from state.trace import traced

PARTS_MAX = 320
"""Parts of the index that one picture is made of."""
BOXES_SHOWN = 64
MATCHES_SHOWN = 100
VERIFY_RECORDS_MAX = 300_000
"""Records that a verdict asked for on the page may read; beyond it, the command is the place."""


def type_of(config: Config, name: str) -> EventType:
    found = config.types.get(name)
    if found is None:
        raise HilcastError("unknown-type", f"{name!r} is none of {', '.join(config.types)}")
    return found


def plane_of(known: Known, type_name: str, x: str, y: str, pin: str | None) -> Plane:
    """A plane of a type, through a recent event if one is named."""
    event = None if not pin else known.event(pin)
    if event is not None and event.type != type_name:
        raise HilcastError("unknown-event", f"{pin!r} is of type {event.type}")
    return plane_through(type_of(known.config, type_name), x, y, event)


def plane_through(event_type: EventType, x: str, y: str, event: SeenEvent | None = None) -> Plane:
    for name in (x, y):
        if name not in event_type.dimension:
            raise HilcastError("filter-attribute", f"{name!r} is no attribute of {event_type.name}")
    return Plane(event_type, x, y, None if event is None else (event.low, event.high))


def space(config: Config, plane: Plane, index: Index, broker: str | None, neighbour: str | None) -> dict[str, Any]:
    """The plane with all that is drawn on it: one broker's subscriptions or all, what a neighbour was told."""
    if broker is not None and broker not in config.overlay.brokers:
        raise HilcastError("unknown-broker", f"{broker!r} is none of this overlay")
    name = plane.event_type.name
    parts = index_parts(config, name)
    asked = list(config.overlay.brokers) if broker is None else [broker]
    some = asked[: max(1, PARTS_MAX // len(parts))]
    held = {b: [p for part in parts if (p := index.part(Key(b, name, part))) is not None] for b in some}
    told = None
    if broker is not None and neighbour:
        if neighbour not in config.overlay.neighbours(broker):
            raise HilcastError("unknown-link", f"{broker} and {neighbour} are not linked")
        there = [p for part in parts if (p := index.part(Key(neighbour, name, part))) is not None]
        told = {"from": broker, "to": neighbour, **plane.travelling(there, broker)}
    return {
        "type": name, "axes": plane.describe(), "curve": plane.curve(),
        "cubes": [[cube, *box] for cube, box in plane.cubes()], "cubes_total": plane.grid.cubes,
        "subscriptions": plane.subscriptions(held), "told": told,
        "brokers": [len(some), len(asked)], "pinned": plane.pin is not None,
        "parts": [sum(map(len, held.values())), len(some) * len(parts)],
    }  # fmt: skip


# ── a filter ────────────────────────────────────────────────────────────────────────────────────────────────────


def judge_filter(
    config: Config, seen: Sequence[SeenEvent], type_name: str, text: str, x: str, y: str
) -> dict[str, Any]:
    """A filter as it is typed: its fault and where that is; or what it costs, and which of these events match."""
    event_type = type_of(config, type_name)
    try:
        tree = parse(text, event_type)
    except FilterError as error:
        return {"ok": False, "code": error.code, "reason": error.reason, "position": error.position}
    grid = Grid.of(event_type)
    found = cost(tree, event_type, grid)
    events = [event for event in seen if event.type == type_name]
    sample = measured(tree, event_type, grid, [dict(event.attributes) for event in events])
    holds = compile_filter(tree, event_type)
    plane = plane_through(event_type, x, y)
    boxes = geometry(tree, event_type).boxes
    return {
        "ok": True,
        "cost": cost_json(found, sample, "" if events else f"no publication of {type_name} came by yet"),
        "matching": [event.name for event in events if holds(event.attributes)],
        "of": len(events),
        "boxes": [plane.shadow(low, high) for low, high in boxes.take(np.arange(min(len(boxes), BOXES_SHOWN)))],
        "words": [box_text(event_type, low, high) for low, high in boxes.take(np.arange(min(len(boxes), 8)))],
    }


# ── an event ────────────────────────────────────────────────────────────────────────────────────────────────────


def read_asked(known: Known, asked: Mapping[str, Any]) -> Event:
    """The event that a page asks about: one that came by, by name, or JSON that was typed."""
    if asked.get("name"):
        seen = known.event(str(asked["name"]))
        return Event(asked.get("broker") or seen.broker, seen.type, seen.source, seen.id, seen.attributes)
    broker, type_name = str(asked.get("broker", "")), str(asked.get("type", ""))
    type_of(known.config, type_name)
    return event_of(known.config, str(asked.get("event", "")), broker, type_name, str(asked.get("source") or "hilcast"))


def follow(config: Config, index: Index, event: Event) -> dict[str, Any]:
    """Which subscriptions an event meets, and the way it takes."""
    found = traced(config, event, index)
    order = {broker: i for i, broker in enumerate(found.reached)}
    return {
        "event": {**dataclasses.asdict(event), "attributes": plain(event.attributes)},
        "admitted": found.admitted,
        "reached": list(found.reached),
        "passages": [{**dataclasses.asdict(p), "hop": order[p.origin]} for p in found.passages],
        "matches": [dataclasses.asdict(m) for m in found.matches[:MATCHES_SHOWN]],
        "matching": found.matching,
        "unknown": list(found.unknown),
    }


def parties(known: Known, event: Event, key: str) -> tuple[Registered, list[Registered]]:
    """A subscription, and the advertisements that may let the event in."""
    subscription = known.registered("subscription", *split_key(key.encode("utf-8", "replace")))
    return subscription, list(known.registrations("advertisement", event.broker, event.type))


def why(
    config: Config, index: Index, event: Event, subscription: Registered, advertisements: Sequence[Registered]
) -> dict[str, Any]:
    """The explanation of `hilcast explain`."""
    return explained_json(explained(config, event, subscription, advertisements, index), None)


# ── a verdict ───────────────────────────────────────────────────────────────────────────────────────────────────


def verdict(config: Config, minutes: float) -> dict[str, Any]:
    """`hilcast verify` of the last minutes, if the topics are small enough to be read for it."""
    transport = open_transport(config)
    try:
        ours = [topic for topic in transport.topics() if config.topics.owns(topic)]
        held = 0
        for topic in ours:
            for partition in transport.partitions(topic):
                low, end = transport.span(topic, partition)
                held += end - low
    finally:
        transport.close()
    if held > VERIFY_RECORDS_MAX:
        raise HilcastError(
            "too-large", f"Kafka holds {held:,} records, more than the {VERIFY_RECORDS_MAX:,} that a page may have "
            "read: run `hilcast verify`",
        )  # fmt: skip
    began = time.monotonic()
    judgement = verify(config, since_ms=(time.time() - 60 * minutes) * 1000)
    return {
        "ok": judgement.ok,
        "minutes": minutes,
        "records": held,
        "seconds": round(time.monotonic() - began, 1),
        "figures": judged_figures(judgement),
        "findings": [str(finding) for finding in judgement.findings],
    }
