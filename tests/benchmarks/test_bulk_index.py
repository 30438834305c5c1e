"""The index of many subscriptions at once against the index of one after the other."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.bulk_index import Subscriptions, bulk_index
from state.compiled_part import load_part
from state.config import parse
from state.control.context import Context
from state.control.facts import Fact
from state.control.rebuild import rebuild
from state.filters.geometry import geometry
from state.filters.grammar import parse as parse_filter
from state.keys import Key, index_keys
from state.space.boxes import Boxes
from state.space.packing import unpack

CONFIG = parse("""
[overlay]
brokers = ["b1", "b2", "b3", "b4"]
links = [["b1", "b2"], ["b2", "b3"], ["b2", "b4"]]
[types.t]
reduction = "none"
cubes = 16
index = ["x", "y"]
[types.t.attributes]
x = { kind = "int", min = 0, max = 15 }
name = { kind = "text" }
y = { kind = "float", min = 0, max = 1 }
""")
TYPE = CONFIG.types["t"]
SPAN = st.tuples(st.integers(0, 15), st.integers(0, 15)).map(sorted)
SUBSCRIPTION = st.tuples(SPAN, SPAN, st.sampled_from(["a", "b"]), st.integers(0, 3), st.sampled_from(["ann", "bob"]))


def fact(offset, client, text):
    return Fact(
        version=1, owner=client, filter=json.dumps(text), ttl_ms=None, expires_ms=None, sink=None, content=b"",
        topic="t", partition=0, offset=offset, timestamp_ms=0, live=True,
    )  # fmt: skip


def entries(blob):
    """What a part says, in any order."""
    part = load_part(blob)
    boxes = unpack(part.boxes)
    owners = np.frombuffer(part.owners, "<i4")
    local = sorted(
        (part.ids[o], part.clients[o], part.destinations[o], low.tolist(), high.tolist())
        for o, low, high in zip(owners, boxes.lows, boxes.highs, strict=True)
    )
    links = {
        n: sorted(zip(g.lows.tolist(), g.highs.tolist(), strict=True))
        for n, g in ((n, unpack(packed)) for n, packed in part.links.items())
    }
    return local, links, part.residuals, part.doubtful, part.grouped, part.advertisements


@settings(max_examples=60, deadline=None)
@given(st.lists(SUBSCRIPTION, max_size=12))
def test_bulk_is_rebuild_without_reduction(drawn):
    """Every part holds the same entries and links as the part that the rebuild makes, wide ones included."""
    texts = [
        f"x BETWEEN {x[0]} AND {x[1]} AND y BETWEEN {y[0] / 16} AND {y[1] / 16} AND name = '{name}'"
        for x, y, name, _, _ in drawn
    ]
    shapes = [geometry(parse_filter(text, TYPE), TYPE) for text in texts]
    assert all(shape.exact and len(shape.boxes) == 1 for shape in shapes)
    boxes = Boxes(
        np.concatenate([np.empty((0, 3), np.int64), *(s.boxes.lows for s in shapes)]),
        np.concatenate([np.empty((0, 3), np.int64), *(s.boxes.highs for s in shapes)]),
    )
    ids = [f"s{i}" for i in range(len(drawn))]
    clients = [client for _, _, _, _, client in drawn]
    brokers = np.array([broker for _, _, _, broker, _ in drawn], np.int64)
    made = dict(bulk_index(CONFIG, "t", Subscriptions(boxes, ids, clients, brokers)))
    facts = [
        ("subscription", f"b{b + 1}", "t", id, fact(i, client, text))
        for i, (b, id, client, text) in enumerate(zip(brokers.tolist(), ids, clients, texts, strict=True))
    ]
    wanted = rebuild(facts, Context(CONFIG, 1, 0)).indexes
    assert set(made) == set(index_keys(CONFIG, CONFIG.overlay.brokers)) == {Key.parse(key) for key in wanted}
    for key, blob in made.items():
        assert entries(blob) == entries(wanted[str(key)]), key


@pytest.mark.parametrize("broker", ["b1", "b2", "b3", "b4"])
def test_a_link_asks_for_what_lies_beyond(broker):
    """One subscription at a broker is asked for on exactly the links that lead there."""
    shape = geometry(parse_filter("x = 3 AND y = 0.5 AND name = 'a'", TYPE), TYPE)
    at = np.array([int(broker[1]) - 1])
    made = bulk_index(CONFIG, "t", Subscriptions(shape.boxes, ["s"], ["ann"], at))
    asked = {(key.broker, n) for key, blob in made for n in load_part(blob).links}
    path = {"b1": {("b2", "b1"), ("b3", "b2"), ("b4", "b2")}, "b2": {("b1", "b2"), ("b3", "b2"), ("b4", "b2")}}
    path |= {"b3": {("b1", "b2"), ("b2", "b3"), ("b4", "b2")}, "b4": {("b1", "b2"), ("b2", "b4"), ("b3", "b2")}}
    assert asked == path[broker]
