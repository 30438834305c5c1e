"""Commands where events are Avro or Protobuf, by a schema file or by a registry, on Kafka in memory."""

from __future__ import annotations

import argparse
import io
import json

import fastavro
import pytest

from hilcast import Publisher
from producers.client.delivery import Delivery
from producers.client.encoding import Encoder
from producers.commands import cost, diagnosis, drafting, explain
from producers.verify.independent_reader import read_publication
from state.config import load, parse
from state.errors import HilcastError
from state.messages import Output
from state.space.encodings.schemas import Schema
from state.space.encodings.wire import framed
from state.space.event_type import EventType
from state.type_sketch import sketch
from tests.infra.fake_registry import FakeRegistry
from tests.producers.memory import MemoryKafka
from tests.space.test_protobuf import shop

ORDER = {
    "type": "record", "name": "Order", "fields": [
        {"name": "to", "type": {"type": "record", "name": "To", "fields": [
            {"name": "country", "type": {"type": "enum", "name": "C", "symbols": ["DE", "FR"]}},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}}]}},
        {"name": "total", "type": "double"},
        {"name": "more", "type": {"type": "map", "values": "int"}},
    ],
}  # fmt: skip
CONFIG = """
[overlay]
brokers = ["b1"]
[schemas]
url = "{url}"
wait_ms = 0
[types.order]
format = "avro"
[types.order.attributes]
country = {{ kind = "text", path = "to.country" }}
total = {{ kind = "float", min = 0, max = 100 }}
inside = {{ kind = "int", path = "more.x" }}
more = {{ kind = "int", imprecise = "possible" }}
[[sources]]
topic = "orders"
broker = "b1"
type = "order"
"""


@pytest.fixture
def registry():
    with FakeRegistry() as made:
        yield made


@pytest.fixture
def config(registry):
    return parse(CONFIG.format(url=registry.url))


@pytest.fixture
def kafka(registry, monkeypatch):
    """Twenty orders by a schema of the registry, whose map holds what attributes would have, if paths led into maps."""
    made = MemoryKafka()
    made.make("hilcast.publications", "orders", "plain")
    id = registry.add("orders-value", {"schema": json.dumps(ORDER)})
    for i in range(20):
        made.append(Output("orders", None, framed(id, avro(i)), ()))
        made.append(Output("plain", None, avro(i), ()))
    for command in (cost, diagnosis, drafting, explain):
        monkeypatch.setattr(command, "open_transport", lambda config: made)
    return made


def avro(i):
    out = io.BytesIO()
    document = {"to": {"country": "DE" if i % 4 else "FR", "at": 1_700_000_000_000 + i}, "total": 5.5 * i}
    fastavro.schemaless_writer(out, fastavro.parse_schema(ORDER), {**document, "more": {"x": 1, "min": 1, "max": 3}})
    return out.getvalue()


def test_explain_sees_what_the_router_sees(kafka, config):
    """No path leads into a map, nor is a map with `min` and `max` an interval."""
    chosen = argparse.Namespace(
        event="kafka:orders#0/3", broker=None, type=None, source="s", subscription=("b1", "order", "s1")
    )
    event = explain.read_event(chosen, config, kafka)
    assert event.attributes == {"country": "DE", "total": 16.5}


def test_cost_and_doctor_read_every_format(kafka, config):
    """Shares are counted on what events say; the doctor sees that a map is no number, and that totals fit."""
    events, _ = cost.sample_of(config, config.types["order"], 100)
    assert [event["total"] for event in events] == [5.5 * i for i in reversed(range(20))]
    (check,) = diagnosis.looks(config)
    assert check.detail == (
        "inside is absent, or of another kind, in 100% of them; more is absent, or of another kind, in 100% of them"
    )


def test_doctor_says_when_events_are_of_another_format(kafka, config):
    """A producer that went over to JSON is named, with its share."""
    for _ in range(10):
        kafka.append(Output("orders", None, b'{"total": 5}', ()))
    (check,) = diagnosis.looks(config)
    assert check.detail.startswith("33% of the newest 30 are not of their format; ")
    assert check.ok


def test_a_registry_that_is_away_is_no_verdict(kafka, config, registry):
    """Judges say that it is away, and do not take events for unreadable; nothing is asked for at every event."""
    registry.down = True
    with pytest.raises(HilcastError, match="registry-away"):
        cost.sample_of(config, config.types["order"], 100)
    assert len(registry.asked) <= 2


def drafted(tmp_path, registry, *words):
    path = tmp_path / "hilcast.toml"
    path.write_text(CONFIG.format(url=registry.url))
    given = dict(zip(words[::2], words[1::2], strict=True))
    chosen = argparse.Namespace(config=str(path), origin=None, sample=None, format=None, schema=None, message=None)
    for name, value in given.items():
        setattr(chosen, name, value)
    return chosen


@pytest.mark.parametrize("by", ["configuration", "options", "file"])
def test_a_type_from_a_sample_of_avro(kafka, registry, tmp_path, capsys, by):
    """As the configuration says of the topic, by the id in each event, or by a file: the proposal reads every event."""
    (tmp_path / "order.avsc").write_text(json.dumps(ORDER))
    given = {
        "configuration": ("sample", "orders"),
        "options": ("sample", "orders", "format", "avro"),
        "file": ("sample", "plain", "schema", str(tmp_path / "order.avsc")),
    }[by]
    assert drafting.draft(drafted(tmp_path, registry, *given)) == 0
    text = capsys.readouterr().out
    assert "more: an array" in text
    file = tmp_path / "new.toml"
    more = "" if by == "file" else f'[schemas]\nurl = "{registry.url}"\n'
    file.write_text(f'[overlay]\nbrokers = ["b1"]\n{more}{text}')
    (made,) = load(file).types.values()
    assert made.format == "avro"
    assert {a.name: (a.kind, a.members) for a in made.attributes} == {
        "country": ("category", ("to", "country")), "at": ("timestamp", ("to", "at")), "total": ("float", ("total",)),
    }  # fmt: skip
    assert made.attribute("country").values == ("DE", "FR")


def test_a_type_from_a_sample_of_protobuf():
    """Fields as protobuf reads them; no path is proposed into a repeated field, and what cannot be read is left out."""
    written = EventType("", (), format="protobuf", schema=shop())
    values = [b"\x08" + bytes([i]) + b"\x1a\x02\x01\x02\x22\x01x" for i in range(1, 100)]
    documents = drafting.sampled(written, [*values, b"\xff"], None)
    assert len(documents) == 99
    text = sketch("t", documents, ['format = "protobuf"'])
    assert '[types."t"]\nformat = "protobuf"\n' in text
    assert 'x = { kind = "int", min = 1, max = 99 }' in text
    assert "many: an array" in text


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (("sample", "plain"), "no-sample: plain holds no json"),
        (("sample", "orders", "format", "protobuf"), "no-sample: orders holds no protobuf"),
        (("origin", "x.avsc", "format", "avro"), "--from is a schema itself"),
        (("sample", "plain", "schema", "{folder}/order.avsc", "format", "protobuf"), "is of avro"),
        (("sample", "plain", "schema", "{folder}/missing.avsc"), "bad-schema"),
    ],
)
def test_what_no_type_can_be_made_from_is_said(kafka, registry, tmp_path, words, fault):
    """With a code, and what to give."""
    (tmp_path / "order.avsc").write_text(json.dumps(ORDER))
    with pytest.raises(HilcastError, match=fault):
        drafting.draft(drafted(tmp_path, registry, *(word.format(folder=tmp_path) for word in words)))


# ── publishers and subscribers ──────────────────────────────────────────────────────────────────────────────────


def test_what_publishers_write_says_its_content_type(kafka, config, registry):
    """`datacontenttype` of CloudEvents: subscribers and judges read by it, JSON too, whatever the type says."""
    registry.add("order", {"schema": json.dumps(ORDER)})
    document = {"to": {"country": "FR", "at": "2026-01-02T03:04:05Z"}, "total": 7, "more": {"a": 1}}
    with Publisher(config, broker="b1", type="order", transport=kafka) as publisher:
        publisher.publish(document)
        publisher.publish(json.dumps(document).encode(), headers={"content-type": "application/json; charset=utf-8"})
    first, second = kafka.logs["hilcast.publications"]
    assert dict(first.headers)["content-type"] == b"application/avro"
    for record in (first, second):
        said = Delivery(record, "d", "c", set(), Encoder(config)).event
        assert (said["to"]["country"], said["more"]) == ("FR", {"a": 1})
    assert [read_publication(record, config).format for record in (first, second)] == ["avro", "json"]


def test_the_last_content_type_counts(kafka, config):
    """As for every header: a delivery is structured only if the last one says so."""
    value = b'{"specversion": "1.0", "data": {"x": 1}}'
    kinds = [("content-type", b"application/cloudevents+json"), ("Content-Type", b"application/json")]
    kafka.append(Output("orders", None, value, tuple(kinds)))
    kafka.append(Output("orders", None, value, tuple(reversed(kinds))))
    events = [Delivery(record, "d", "c", set()).event for record in kafka.logs["orders"][-2:]]
    assert events == [json.loads(value), {"x": 1}]


def test_schemas_are_compared_by_what_they_hold():
    """Two that are written alike are one."""
    assert Schema("avro", '"int"') == Schema("avro", '"int"') != Schema("avro", '"long"')
