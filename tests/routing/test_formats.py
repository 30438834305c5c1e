"""Events in several formats, through the door of routing: what ranks cannot decide is decided alike in all of them."""

from __future__ import annotations

import io
import json
import random

import fastavro
import pytest

from state.config import parse
from tests.routing.test_route import ce, routed
from tests.simulation.world import World

SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "to", "type": {"type": "record", "name": "To", "fields": [{"name": "name", "type": "string"}]}},
        {"name": "total", "type": "double"},
    ],
}
CONFIG = f"""
[overlay]
brokers = ["b1", "b2"]
links = [["b1", "b2"]]
[types.order]
cubes = 4
format = "avro"
schema = {{ avro = '{json.dumps(SCHEMA)}' }}
[types.order.attributes]
name = {{ kind = "text", path = "to.name" }}
total = {{ kind = "float", min = 0, max = 100 }}
region = {{ kind = "text", header = "x-region" }}
"""
SAID = {
    "avro": [[], [("ce_dataformat", b"other")], [("content-type", b"application/avro")], [("content-type", None)]],
    "json": [
        [("ce_dataformat", b"json")],
        [("Content-Type", b"application/json; charset=utf-8")],
        [("content-type", b"application/avro"), ("content-type", b"application/vnd.shop+json")],
        [("content-type", b"application/avro"), ("ce_dataformat", b"json")],
    ],
}
"""How a record may say that it is written so, where its type is Avro."""
NAMES = ["Berkshire Hathaway", "Berkshire Hathaway Energy", "Berkshire", 'Berkshire "Hathaway"', "Berkshire Häfen"]
WANTED = {
    "whole": lambda name, region: name == NAMES[0],
    "begins": lambda name, region: name.startswith("Berkshire Hath"),
    "beside": lambda name, region: region == NAMES[0] and name != NAMES[0],
}
FILTERS = {
    "whole": "name = 'Berkshire Hathaway'",
    "begins": "name LIKE 'Berkshire Hath%'",
    "beside": "region = 'Berkshire Hathaway' AND NOT (name = 'Berkshire Hathaway')",
}


@pytest.fixture(scope="module")
def snapshot():
    world = World(parse(CONFIG))
    for client, text in FILTERS.items():
        world.send("hilcast.subscriptions", "b2/order/" + client, {"client": client, "filter": text})
    world.settle()
    return world.deployments[0].snapshot()


def avro(document):
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(SCHEMA), document)
    return out.getvalue()


@pytest.mark.parametrize("formats", [("avro",), ("json",), ("avro", "json")], ids="-".join)
def test_long_texts_are_decided_in_every_format(snapshot, formats):
    """Names with a common beginning, in Avro, in JSON and mixed, some in a header: each goes to whom it says.

    A header of ours, or the content type, tells which it is; a content type of neither tells nothing.
    """
    rng, records, expected = random.Random(3), [], set()
    for i in range(200):
        name, region, format = rng.choice(NAMES), rng.choice(NAMES), rng.choice(formats)
        document = {"to": {"name": name}, "total": 7.5}
        value = avro(document) if format == "avro" else json.dumps({**document, "region": "x", "name": "x"}).encode()
        headers = [*ce(str(i), rng.choice(["b1", "b2"]), "order"), ("x-region", region.encode())]
        headers += rng.choice(SAID[format])
        records.append({"value": value, "headers": headers})
        expected |= {(client, str(i)) for client, wants in WANTED.items() if wants(name, region)}
    rows = routed(snapshot, records)
    found = {
        (topic.removeprefix("hilcast.deliver."), dict(headers)["ce_id"].decode())
        for topic, _, _, headers in rows
        if topic.startswith("hilcast.deliver.")
    }
    assert found == expected
    assert {client for client, _ in found} == set(WANTED)
    assert not [topic for topic, *_ in rows if topic == "hilcast.deadletter"]


def test_what_a_source_is_written_in_is_known_behind_a_link():
    """The next deployment does not know the source: the copy on the link says what its value is written in."""
    text = CONFIG.replace('format = "avro"\n', "")
    source = '[[sources]]\ntopic = "orders"\nbroker = "b1"\ntype = "order"\nformat = "avro"\n'
    world = World(parse(text + source), [("b1",), ("b2",)])
    world.send("hilcast.subscriptions", "b2/order/s", {"client": "c", "filter": "name = 'Berkshire' AND total > 5"})
    world.settle()
    first, second = (deployment.snapshot() for deployment in world.deployments)
    values = [avro({"to": {"name": name}, "total": 7.5}) for name in NAMES]
    crossed = list(routed(first, [{"topic": "orders", "value": value, "headers": []} for value in values]))
    links = [row for row in crossed if row[0] == "hilcast.link.b1.b2"]
    assert values[2] in [value for _, _, value, _ in links]
    assert {dict(headers)["ce_dataformat"] for _, _, _, headers in links} == {b"avro"}
    records = [{"topic": topic, "value": value, "headers": list(headers)} for topic, _, value, headers in links]
    rows = routed(second, records)
    assert [value for topic, _, value, _ in rows if topic == "hilcast.deliver.c"] == [values[2]]
    assert not [topic for topic, *_ in rows if topic == "hilcast.deadletter"]
