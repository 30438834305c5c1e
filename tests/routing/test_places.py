"""Attributes in headers and keys, and sources that say themselves where they enter, through the door of routing."""

from __future__ import annotations

import json
import random

import pytest

from state.config import parse
from state.control.samples import samples_of
from state.distribution.regrouping import Regrouping
from state.messages import Record
from tests.routing.test_route import ce, hosting, routed
from tests.simulation.world import World

CONFIG = parse("""
[overlay]
brokers = ["b1", "b2", "b3"]
links = [["b1", "b2"], ["b2", "b3"]]
[types.order]
cubes = 4
[types.order.pruning]
subscriptions = 100
[types.order.attributes]
total = { kind = "float", min = 0, max = 100, path = "order.total" }
region = { kind = "category", values = ["EU", "US"], header = "x-region" }
id = { kind = "int", min = 0, max = 100, key = true }
[distribution.b1]
groups = 2
[[sources]]
pattern = 'orders\\..*'
broker_header = "x-broker"
type = "order"
""").with_topics({"orders.de", "orders.fr", "payments"})
FILTERS = {
    "cheap": ("b1", "total < 50 AND region = 'EU'"),
    "named": ("b3", "id BETWEEN 10 AND 60"),
    "nameless": ("b2", "id IS NULL AND NOT (region = 'US')"),
}


@pytest.fixture(scope="module")
def snapshot():
    world = World(CONFIG)
    for client, (broker, text) in FILTERS.items():
        world.send("hilcast.subscriptions", f"{broker}/order/s", {"client": client, "filter": text})
    world.settle()
    return world.deployments[0].snapshot()


def wanted_by(total, region, id):
    """Who wants an order, said by hand."""
    cheap = total is not None and total < 50 and region == "EU"
    named = id is not None and 10 <= id <= 60
    return {name for name, wants in (("cheap", cheap), ("named", named), ("nameless", id is None and region == "EU"))
            if wants}  # fmt: skip


def test_filters_name_attributes_wherever_they_are(snapshot):
    """Each of 300 orders goes to whom its path, header and key say, the last header of a name counting."""
    rng = random.Random(8)
    records, expected = [], {}
    for i in range(300):
        total, region = rng.choice([None, 10, 49.5, 80]), rng.choice(["EU", "US", "XX", None])
        id = rng.choice([None, 5, 10, 33, 61])
        beside = [("x-region", b"US"), ("X-Region", b"US")] if rng.random() < 0.5 else []
        if region is None:
            beside = []
        else:
            beside.append(("x-region", region.encode()))
        key = b"no number" if id is None else str(id).encode()
        value = json.dumps({"order": {"total": total, "id": 33}, "region": "EU", "id": 33, "n": i}).encode()
        headers = ce(str(i), f"b{rng.randint(1, 3)}", "order")
        records.append({"key": key, "value": value, "headers": [*beside, *headers, ("x-more", b"1")]})
        for client in wanted_by(total, region if region != "XX" else None, id):
            expected[client, str(i)] = (key, value, [*beside, *headers, ("x-more", b"1")])
    found = {}
    for topic, key, value, headers in routed(snapshot, records):
        if topic.startswith("hilcast.deliver."):
            client = topic.removeprefix("hilcast.deliver.")
            found[client, dict(headers)["ce_id"].decode()] = (key, value, headers[:-4])
    assert found == expected
    assert len({client for client, _ in found}) == 3


def test_what_crossed_a_link_is_read_alike_at_the_other_end(snapshot):
    """A copy on a link has key, value and headers, so that another deployment decides as the first one did."""
    east, west = hosting(snapshot, "b1", "b2"), hosting(snapshot, "b3")
    headers = [*ce("1", "b1", "order"), ("x-region", b"US")]
    record = {"key": b"33", "value": b'{"order": {"total": 99}}', "headers": headers}
    (copy,) = [row for row in routed(east, [record]) if row[0] == "hilcast.link.b2.b3"]
    assert copy[1:] == (b"33", record["value"], record["headers"])
    again = {"topic": copy[0], "key": copy[1], "value": copy[2], "headers": copy[3]}
    (delivery,) = [row for row in routed(west, [again]) if row[0].startswith("hilcast.deliver.")]
    assert (delivery[0], delivery[1:3]) == ("hilcast.deliver.named", (b"33", record["value"]))


def test_structured_events_have_headers_too(snapshot):
    """In structured mode paths begin at `data`; headers and key are the record's."""
    said = {"specversion": "1.0", "id": "e", "source": "q", "type": "order", "broker": "b3"}
    value = json.dumps({**said, "data": {"order": {"total": 7}}, "order": {"total": 99}}).encode()
    headers = [("content-type", b"application/cloudevents+json"), ("x-region", b"EU")]
    record = {"value": value, "key": b"70", "headers": headers}
    assert {row[0] for row in routed(snapshot, [record]) if ".deliver." in row[0]} == {"hilcast.deliver.cheap"}


def test_records_of_a_source_say_where_they_enter(snapshot):
    """The header names the broker, of several the last; none is `bad-event`, an unknown one `unknown-broker`."""
    value, region = b'{"order": {"total": 1}}', ("x-region", b"EU")
    brokers = [[b"b3"], [b"b1", b"b2"], [], [b""], [b"b9"], [b"\xff"], [b"b1"]]
    records = [
        {"topic": "orders.fr", "value": value, "key": b"1", "headers": [region, *(("x-broker", b) for b in given)]}
        for given in brokers
    ]
    records[-1]["headers"].append(("ce_broker", b"b2"))
    rows = routed(snapshot, records)
    letters = [dict(h) for t, _, _, h in rows if t == "hilcast.deadletter"]
    codes = {int(letter["hilcast_offset"]): letter["hilcast_code"] for letter in letters}
    assert codes == {2: b"bad-event", 3: b"bad-event", 4: b"unknown-broker", 5: b"unknown-broker"}
    entered = {dict(h)["ce_id"]: dict(h)["ce_broker"] for t, _, _, h in rows if t == "hilcast.deliver.cheap"}
    assert entered == {b"0/0": b"b3", b"0/1": b"b2", b"0/6": b"b2"}
    links = {(t, dict(h)["ce_id"]) for t, _, _, h in rows if ".link." in t}
    assert links == {("hilcast.link.b3.b2", b"0/0"), *(("hilcast.link.b2.b1", id) for id in entered)}


def test_many_brokers_in_headers_cost_what_they_are(snapshot):
    """Each of 20,000 records names a broker that does not exist; each is answered."""
    records = [{"topic": "orders.de", "value": b"{}", "headers": [("x-broker", b"x%d" % i)]} for i in range(20_000)]
    rows = routed(snapshot, records)
    assert sum(topic == "hilcast.deadletter" for topic, _, _, _ in rows) == 20_000


def test_samples_and_groups_read_the_same_places():
    """What pruning and groups are judged by are the attributes, by name, wherever they are."""
    headers = (("ce_type", b"order"), ("x-region", b"US"), ("x-region", b"EU"))
    values = [b'{"order": {"total": %d}, "id": 9}' % i for i in range(5)]
    records = [Record("hilcast.publications", 0, i, 0, b"%d" % i, value, headers) for i, value in enumerate(values)]
    assert samples_of(records, CONFIG)["order"] == [{"total": i, "region": "EU", "id": i} for i in range(5)]
    regrouping = Regrouping(CONFIG, {})
    regrouping.observe(records)
    points = regrouping._brokers["b1"].groups._states["order"].points
    assert points[:, 1:].tolist() == [[0, i] for i in range(5)]


def test_groups_see_topics_that_a_pattern_matches_later():
    """What a topic holds counts from when it is known to be a source, and not before."""
    record = Record("orders.es", 0, 0, 0, b"7", b'{"order": {"total": 3}}', (("x-region", b"EU"),))
    regrouping = Regrouping(CONFIG, {})
    for read_by, seen in ((None, 0), (CONFIG.with_topics({"orders.es"}), 1)):
        regrouping.observe([record], read_by=read_by)
        points = regrouping._brokers["b1"].groups._states["order"].points
        assert (0 if points is None else len(points)) == seen
