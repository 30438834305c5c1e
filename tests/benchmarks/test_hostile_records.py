"""The campaign's hostile records, through both doors of the core: each is answered once, and what is said fits Kafka.

On real services the campaign sends the same lists one by one, with a probe after each.
"""

from __future__ import annotations

import json
import random
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks.faults import one_by_one
from benchmarks.faults.world import SHORT, Deployment
from producers.verify.independent_reader import read_delivered, read_publication
from state.config import load
from state.control.context import Context
from state.control.handle import handle
from state.filters.grammar import parse
from state.fitting import misfits
from state.flooding import NOTHING, Claim, Stand, judge
from state.keys import UNROUTABLE, home_key
from state.limits import OUTPUT_BYTES_MAX
from state.messages import Record
from state.names import NAME, TYPE_NAME
from state.routing.assemble import row_bytes
from state.routing.route import route
from tests.routing.test_route import batch
from tests.simulation.world import World

KEY = re.compile(f"({NAME.pattern})/({TYPE_NAME.pattern})/({NAME.pattern})")
NOWHERE = SimpleNamespace(kafka="127.0.0.1:1", redis="redis://127.0.0.1:1/0")
CONTROL = ("odd_keys", "odd_values", "odd_filters", "tombstones", "times")
EVENTS = ("odd_events", "odd_headers", "odd_structures", "odd_filters")
FILTERS = (
    "TRUE",
    "symbol = 'x' OR price > 0",
    "symbol LIKE '" + "%a" * 400 + "%b'",
    "symbol LIKE '%_%x' OR symbol IS NULL",
    "NOT (symbol = 'mallory') AND volume IS NULL",
    "price < 1 OR price >= 1",
    "EXISTS side",
)


class Stage:
    """A scene without services: what is sent to it is kept."""

    def __init__(self, folder: Path) -> None:
        self.deployment = Deployment(NOWHERE, folder / "deployment", "play", SHORT)  # type: ignore[arg-type]
        self.rng = random.Random(14)
        self.load = SimpleNamespace(send=self._send, produce=self._produce, control=[], odd={})
        self.judge = SimpleNamespace(strange=[])
        self.sent: list[tuple[str, bytes | None, bytes | None, list]] = []

    def _send(self, topic, key, value, lapses_s=0.0, headers=(), timestamp_ms=0):
        raw = key.encode() if isinstance(key, str) else key
        text = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
        self.sent.append((topic, raw, text, list(headers)))
        return SimpleNamespace(key=raw)

    def _produce(self, topic, key, value, headers=(), placed=None, timestamp_ms=0):
        self.sent.append((topic, key, value, list(headers)))

    def records(self, name: str) -> list[tuple[str, bytes | None, bytes | None, list]]:
        names = list(getattr(one_by_one, name)(self))
        assert len(names) > 3
        return self.sent


def owner(key: bytes | None, config) -> str:
    """The key that the control query gives a record to."""
    try:
        found = KEY.fullmatch((key or b"").decode())
    except UnicodeDecodeError:
        found = None
    if found is None or found[1] not in config.overlay.brokers or found[2] not in config.types:
        return UNROUTABLE
    return str(home_key(found[1], found[2], found[3], config))


@pytest.mark.parametrize("name", CONTROL)
def test_every_hostile_control_record_is_answered_and_fits(name: str, tmp_path: Path) -> None:
    """One receipt each, a dead letter for those refused, nothing `internal`, nothing that Kafka would not take."""
    stage = Stage(tmp_path)
    config = load(stage.deployment.path)
    states: dict[str, bytes | None] = {}
    for offset, (topic, key, value, headers) in enumerate(stage.records(name)):
        if topic == "publications":
            continue
        at = owner(key, config)
        record = Record(f"play.{topic}", 0, offset, 1000 + offset, key, value, tuple(headers))
        result = handle(at, states.get(at), [record], Context(config, 1, 0))
        states[at] = result.state
        assert not misfits(result.outputs, config.topics), (topic, key)
        receipts = [json.loads(o.value) for o in result.outputs if o.topic == config.topics.receipts]
        assert [r["offset"] for r in receipts] == [offset], (topic, (key or b"")[:50], (value or b"")[:80])
        codes = [dict(o.headers)["hilcast_code"] for o in result.outputs if o.topic == config.topics.deadletter]
        assert b"internal" not in codes, ((key or b"")[:50], (value or b"")[:80])
        assert len(codes) == (receipts[0]["kind"] == "refused" and receipts[0]["code"] != "stale-version")


@pytest.mark.parametrize("name", EVENTS)
def test_every_hostile_event_is_routed_or_refused_and_fits(name: str, tmp_path: Path) -> None:
    """No event fails inside, whatever the filters look at; each is counted as routed, and every row fits."""
    stage = Stage(tmp_path)
    events = [
        {"topic": "play.publications", "key": key, "value": value, "headers": headers}
        for topic, key, value, headers in stage.records(name)
        if topic == "publications"
    ]
    config = load(stage.deployment.path)
    world = World(config)
    for n, text in enumerate(FILTERS):
        world.send("play.subscriptions", f"b{n % 5 + 1}/q0/s{n}", {"client": f"c{n}", "filter": text})
    world.settle()
    routing = route(world.deployments[0].snapshot(), batch(events))
    rows = list(routing.batches())
    assert routing.faults == []
    assert routing.figures["routed"] == len(events)
    assert all((row_bytes(out) <= OUTPUT_BYTES_MAX).all() for out in rows)
    written = [row for out in rows for row in out.to_pylist()]
    letters = [row for row in written if row["topic"] == "play.deadletter"]
    assert all({"key": "hilcast_code", "value": b"internal"} not in row["headers"] for row in letters)
    judgement = judged(config, events, written, letters)
    assert judgement.ok, judgement.findings
    assert judgement.refused == len(letters)


def judged(config, events, written, letters):
    """What `hilcast verify` says of these rows, by code that it does not share with the router."""

    def record(row, offset):
        headers = [(h["key"], h["value"]) if isinstance(h, dict) else h for h in row["headers"] or []]
        return Record(row["topic"], 0, offset, 5, row["key"], row["value"], tuple(headers))

    codes = {}
    for letter in letters:
        said = {h["key"]: h["value"] for h in letter["headers"]}
        codes[int(said["hilcast_offset"])] = said["hilcast_code"].decode()
    publications = [
        replace(read_publication(record(event, n), config), routed_ms=6.0, complete=True, refused=codes.get(n))
        for n, event in enumerate(events)
    ]
    deliveries = [d for row in written if ".deliver." in row["topic"] for d in read_delivered(record(row, 0))]
    claims = [
        Claim(
            f"b{n % 5 + 1}", "q0", f"s{n}", (NOTHING, Stand(1.0, 2.0, f"c{n}", f"play.deliver.c{n}", of(text, config)))
        )
        for n, text in enumerate(FILTERS)
    ]
    return judge(config.types, publications, deliveries, claims)


def of(text, config):
    return parse(text, config.types["q0"])
