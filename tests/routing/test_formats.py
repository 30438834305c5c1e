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
    """Names with a common beginning, in Avro, in JSON and mixed, some in a header: each goes to whom it says."""
    rng, records, expected = random.Random(3), [], set()
    for i in range(200):
        name, region, format = rng.choice(NAMES), rng.choice(NAMES), rng.choice(formats)
        document = {"to": {"name": name}, "total": 7.5}
        value = avro(document) if format == "avro" else json.dumps({**document, "region": "x", "name": "x"}).encode()
        headers = [*ce(str(i), rng.choice(["b1", "b2"]), "order"), ("x-region", region.encode())]
        headers += [("ce_dataformat", b"json")] if format == "json" else []
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
