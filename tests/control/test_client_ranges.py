"""Ranges that a client made for its subscription are checked when they arrive."""

from __future__ import annotations

import json

from state.config import parse
from state.filters.geometry import geometry
from state.filters.grammar import parse as parse_filter
from state.space.grid import Grid
from state.space.mapping import map_subscription
from tests.simulation.world import World

CONFIG = """
[overlay]
brokers = ["b1"]
[types.t.attributes]
x = { kind = "int", min = 0, max = 1023 }
"""


def answer(filter_text, mapped_text):
    config = parse(CONFIG)
    event_type = config.types["t"]
    boxes = geometry(parse_filter(mapped_text, event_type), event_type).boxes
    ranges = map_subscription(Grid.of(event_type), boxes)
    world = World(config)
    world.send("hilcast.subscriptions", "b1/t/s", {"client": "a", "filter": filter_text, "ranges": ranges})
    world.settle()
    (record,) = world.log.topics["hilcast.receipts"]
    receipt = json.loads(record.value)
    return receipt["kind"], receipt["code"]


def test_ranges_must_cover_the_filter():
    """Ranges of the filter, or of a wider one, are accepted; those that would miss some of it are refused."""
    assert answer("x BETWEEN 100 AND 199", "x BETWEEN 100 AND 199") == ("accepted", None)
    assert answer("x BETWEEN 100 AND 199", "x BETWEEN 50 AND 250") == ("accepted", None)
    assert answer("x BETWEEN 100 AND 199", "x BETWEEN 101 AND 199") == ("refused", "bad-value")
