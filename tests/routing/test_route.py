"""One Arrow batch through the door of routing, row by row against a plain reading of the same records."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import numpy as np
import pyarrow as pa

from state.config import Distribution, parse
from state.distribution.broker_groups import BrokerGroups
from state.fitting import record_bytes
from state.limits import OUTPUT_BYTES_MAX
from state.messages import Output, delivery_id, event_digest
from state.routing import sweep
from state.routing.envelope import HEADER
from state.routing.route import route
from state.routing.sharing import Sharing
from state.space.boxes import Boxes
from tests import oracle
from tests.simulation.world import World

CONFIG = """
[overlay]
brokers = ["b1", "b2", "b3"]
links = [["b1", "b2"], ["b2", "b3"]]
[types.t]
cubes = 4
[types.t.attributes]
x = { kind = "int", min = 0, max = 100 }
[[sources]]
topic = "legacy"
broker = "b2"
type = "t"
"""
PUBLICATIONS = "hilcast.publications"


def snapshot_of(filters, grouped=()):
    config = parse(CONFIG)
    world = World(config)
    for id, (broker, client, text) in filters.items():
        value = {"client": client, "filter": text, "groups": client in grouped}
        world.send("hilcast.subscriptions", f"{broker}/t/{id}", value)
    world.settle()
    return replace(world.deployments[0].snapshot(), epoch="1.7")


def hosting(snapshot, *hosts):
    """The same index, as a deployment that hosts fewer brokers has it."""
    deployment = replace(snapshot.config.deployment, hosts=hosts)
    return replace(snapshot, config=replace(snapshot.config, deployment=deployment))


def batch(records):
    columns = {
        "topic": pa.array([r.get("topic", PUBLICATIONS) for r in records], pa.string()),
        "partition": pa.array([0] * len(records), pa.int32()),
        "offset": pa.array(range(len(records)), pa.int64()),
        "key": pa.array([r.get("key") for r in records], pa.binary()),
        "value": pa.array([r.get("value") for r in records], pa.binary()),
        "headers": pa.array(
            [None if r["headers"] is None else [{"key": k, "value": v} for k, v in r["headers"]] for r in records],
            pa.list_(HEADER),
        ),
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def routed(snapshot, records):
    rows = []
    for out in route(snapshot, batch(records)).batches():
        for row in out.to_pylist():
            headers = [(h["key"], h["value"]) for h in row["headers"] or []]
            rows.append((row["topic"], row["key"], row["value"], headers))
    return rows


def ce(id, broker="b1", type_name="t", **more):
    made = {"ce_specversion": b"1.0", "ce_id": id.encode(), "ce_source": b"s", "ce_type": type_name.encode()}
    return [*made.items(), ("ce_broker", broker.encode()), *more.items()]


FILTERS = {
    "s1": ("b1", "ann", "x < 50"),
    "s2": ("b3", "ann", "x < 20"),
    "s3": ("b3", "bob", "x BETWEEN 10 AND 60"),
}


def test_rows_equal_a_plain_reading():
    """Every link copy and delivery of a random batch is exactly what reading it record by record gives."""
    snapshot = snapshot_of(FILTERS)
    rng = random.Random(4)
    records, expected = [], []
    for i in range(200):
        x, broker = rng.randint(0, 70), f"b{rng.randint(1, 3)}"
        extra = [("note", rng.choice([b"", None, b"\xff"]))] * rng.randint(0, 2)
        headers = [("hilcast_epoch", b"forged"), *extra, *ce(str(i), broker)]
        value, key = json.dumps({"x": x}).encode(), rng.choice([None, b"", b"k"])
        records.append({"key": key, "value": value, "headers": headers})
        kept = headers[1:]
        expected += [(t, key, value, kept) for t in links(x, broker)]
        for client, ids in wanted(x).items():
            ours = [
                ("hilcast_delivery", delivery_id(event_digest(b"s", str(i).encode()), client).encode()),
                ("hilcast_subscriptions", ids.encode()),
                ("hilcast_client", client.encode()),
                ("hilcast_epoch", b"1.7"),
            ]
            expected.append((f"hilcast.deliver.{client}", key, value, kept + ours))
    got = [row for row in routed(snapshot, records) if row[0] != "hilcast.routed"]
    assert sorted(got, key=repr) == sorted(expected, key=repr)
    for copies in ([row[0] for row in got if len(row[3]) < 9], [row[0] for row in got if len(row[3]) >= 9]):
        assert copies == sorted(copies)


def test_rows_do_not_depend_on_the_order_of_matching(monkeypatch):
    """Whatever order the events of a batch are matched in, the same rows go out in the same order, byte for byte."""
    rng = random.Random(5)
    filters = {
        f"s{i}": (f"b{rng.randint(1, 3)}", f"c{rng.randint(1, 5)}", f"x BETWEEN {i} AND {i + 9}") for i in range(60)
    }
    snapshot = snapshot_of(filters | {"g": ("b2", "ann", "x < 5"), "h": ("b2", "bob", "x < 9")}, grouped={"ann", "bob"})
    records = [
        {"value": json.dumps({"x": rng.randint(0, 80)}).encode(), "headers": ce(str(i), f"b{rng.randint(1, 3)}")}
        for i in range(sweep.FEW + 60)
    ]
    usual = sweep._order
    got = routed(snapshot, records)
    assert len(got) > 300
    orders = [
        lambda _, __, events: np.arange(len(events)),
        lambda _, __, events: np.arange(len(events))[::-1],
        lambda _, __, events: np.random.default_rng(1).permutation(len(events)),
        lambda _, grid, events: np.argsort(grid.index(events.ranks), kind="stable"),
        usual,
    ]
    for order in orders:
        monkeypatch.setattr(sweep, "_order", order)
        assert routed(snapshot, records) == got


def wanted(x):
    found = {}
    for id, holds, client in (("s1", x < 50, "ann"), ("s2", x < 20, "ann"), ("s3", 10 <= x <= 60, "bob")):
        if holds:
            found.setdefault(client, []).append(id)
    return {client: ",".join(ids) for client, ids in found.items()}


def links(x, broker):
    at_b1, at_b3 = x < 50, x < 20 or 10 <= x <= 60
    crossed = []
    if broker != "b1" and at_b1:
        crossed += ["b2.b1"] if broker == "b2" else ["b3.b2", "b2.b1"]
    if broker != "b3" and at_b3:
        crossed += ["b2.b3"] if broker == "b2" else ["b1.b2", "b2.b3"]
    return [f"hilcast.link.{c}" for c in crossed]


PROMISED = """
[overlay]
brokers = ["b1", "b2"]
links = [["b1", "b2"]]
[types.t]
advertisements = true
[types.t.attributes]
x = { kind = "int", imprecise = "certain" }
name = { kind = "text" }
"""


def test_a_batch_conforms_event_by_event():
    """What no advertisement of its publisher at its entry broker holds is refused, text and intervals included."""
    config = parse(PROMISED)
    world = World(config)
    promises = {
        "b1/t/a": ("p", "x < 5 AND name LIKE 'abcdefgh%z'"),
        "b1/t/b": ("q", "x BETWEEN 10 AND 20"),
        "b2/t/c": ("p", "x > 50"),
        "b1/t/d": ("p", "x > 90"),
    }
    for key, (publisher, text) in promises.items():
        world.send("hilcast.advertisements", key, {"publisher": publisher, "filter": text})
    world.settle()
    snapshot = world.deployments[0].snapshot()
    plain = {a.name: {"kind": a.kind} for a in config.types["t"].attributes}
    rng = random.Random(7)
    records, refused = [], []
    for i in range(300):
        broker, source = rng.choice(["b1", "b2"]), rng.choice(["p", "q", "r"])
        low = rng.choice([3, 5, 10, 15, 20, 60, 95])
        name = rng.choice(["abcdefghz", "abcdefgh", "abcdefghijz", "z", None])
        high = rng.choice([low, low, low + 4])
        held = any(
            key.startswith(broker)
            and publisher == source
            and all(oracle.evaluate(text, {"x": x, "name": name}, plain) for x in range(low, high + 1))
            for key, (publisher, text) in promises.items()
        )
        x = low if high == low else {"min": low, "max": high}
        headers = [(k, source.encode() if k == "ce_source" else v) for k, v in ce(str(i), broker)]
        records.append({"value": json.dumps({"x": x, "name": name}).encode(), "headers": headers})
        refused += [] if held else [i]
    rows = routed(snapshot, records)
    letters = [dict(headers) for topic, _, _, headers in rows if topic == "hilcast.deadletter"]
    assert {h["hilcast_code"] for h in letters} == {b"not-advertised"}
    assert [int(h["hilcast_offset"]) for h in letters] == refused
    assert 30 < len(refused) < 270


def test_a_group_gets_one_message_that_names_its_members():
    """Clients that opted in and read a group topic are named in one message; the others keep their own topics."""
    filters = {f"s{i}": ("b1", client, "x < 50") for i, client in enumerate(["ann", "bob", "cy", "ann"])}
    filters["t1"] = ("b3", "ann", "x < 50")
    snapshot = snapshot_of(filters, grouped=("ann", "bob"))
    grouping = BrokerGroups(Distribution(1, threshold=0.0), snapshot.config.types)
    for id in ("s0", "s1", "s3"):
        grouping.put("t", id, filters[id][1], Boxes.everything(1))
    grouping.settle()
    shared = replace(snapshot, sharing={"b1": Sharing(grouping.assignment())})
    records = [{"value": b'{"x": 5}', "headers": ce("1")}, {"value": b'{"x": 60}', "headers": ce("2")}]
    rows = [row for row in routed(shared, records) if "link" not in row[0] and "routed" not in row[0]]
    by_topic = {topic: dict(headers) for topic, _, _, headers in rows}
    assert len(rows) == len(by_topic) == 3
    ann, cy, group = (by_topic[t] for t in ("hilcast.deliver.ann", "hilcast.deliver.cy", "hilcast.group.b1.0"))
    assert ann["hilcast_subscriptions"] == b"t1", "at another broker, which has no groups"
    assert cy["hilcast_subscriptions"] == b"s2"
    assert group["hilcast_members"] == b"ann=s0,s3;bob=s1"
    assert group["hilcast_event"] == event_digest(b"s", b"1").hex().encode()
    assert group["hilcast_epoch"] == b"1.7"
    assert not {"hilcast_client", "hilcast_delivery"} & set(group)
    figures = route(shared, batch(records)).figures
    assert figures["distribution:b1:group"] == 1
    assert figures["distribution:b1:group_saved"] == 1


def test_copies_keep_the_order_of_their_input():
    """Events of several types reach a shared destination in the order in which they stand in their partition."""
    two = CONFIG + '[types.u]\ncubes = 1\n[types.u.attributes]\nx = { kind = "int" }\n'
    config = parse(two)
    world = World(config)
    for type_name in ("t", "u"):
        world.send("hilcast.subscriptions", f"b1/{type_name}/s", {"client": "ann", "filter": "TRUE"})
    world.settle()
    records = [{"value": b"{}", "headers": ce(str(i), "b3", "tu"[i % 3 % 2])} for i in range(30)]
    rows = routed(world.deployments[0].snapshot(), records)
    ids = [int(dict(headers)["ce_id"]) for topic, _, _, headers in rows if topic == "hilcast.deliver.ann"]
    assert ids == list(range(30))


def test_what_cannot_be_used_becomes_one_dead_letter_each():
    """Missing headers, null lists, other brokers and types, no JSON: each is answered once, and nothing else is."""
    snapshot = snapshot_of(FILTERS)
    records = [
        {"value": b"{}", "headers": None},
        {"value": b"{}", "headers": ce("1", broker="b9")},
        {"value": b"{}", "headers": ce("2", type_name="u")},
        {"value": b"[]", "headers": ce("3")},
        {"value": None, "headers": ce("4")},
        {"value": b'{"x": "y"}', "headers": ce("5")},
        {"value": b'{"x": 5}', "headers": ce("6")},
    ]
    rows = routed(snapshot, records)
    letters = [dict(headers) for topic, _, _, headers in rows if topic == "hilcast.deadletter"]
    codes = [(h["hilcast_offset"], h["hilcast_code"]) for h in letters]
    expected = ["bad-event", "unknown-broker", "unknown-type", "bad-event", "bad-event"]
    assert codes == [(str(i).encode(), code.encode()) for i, code in enumerate(expected)]
    (line,) = [json.loads(value) for topic, _, value, _ in rows if topic == "hilcast.routed"]
    assert (line["events"], line["unmatched"], line["first"], line["last"]) == (7, 1, 0, 6)
    assert route(snapshot, batch(records)).figures["dead_letters"] == 5


def test_sources_and_structured_events():
    """Plain JSON of a configured topic gains its headers; a structured event is read from its value and kept whole."""
    snapshot = snapshot_of(FILTERS)
    event = {"specversion": "1.0", "id": "e", "source": "q", "type": "t", "broker": "b3", "data": {"x": 55}}
    structured = json.dumps(event).encode()
    records = [
        {"topic": "legacy", "value": b'{"x": 55}', "headers": None},
        {"value": structured, "headers": [("content-type", b"application/cloudevents+json")]},
    ]
    rows = {(value, topic): headers for topic, _, value, headers in routed(snapshot, records)}
    legacy = rows[b'{"x": 55}', "hilcast.deliver.bob"]
    gained = {"ce_specversion": b"1.0", "ce_id": b"0/0", "ce_source": b"kafka:legacy", "ce_type": b"t"}
    assert legacy[:5] == [*gained.items(), ("ce_broker", b"b2")]
    kept = rows[structured, "hilcast.deliver.bob"]
    assert kept[0] == ("content-type", b"application/cloudevents+json")
    assert dict(kept)["hilcast_delivery"].decode() == delivery_id(event_digest(b"q", b"e"), "bob")


def test_a_batch_for_other_deployments_is_passed_over():
    """Events that enter at brokers of another deployment are left to it, bad ones included."""
    snapshot = hosting(snapshot_of(FILTERS), "b3")
    records = [{"value": b"{", "headers": ce("1")}, {"value": b"{}", "headers": ce("2", broker="nobody")}]
    rows = routed(snapshot, records)
    assert [row[0] for row in rows] == ["hilcast.routed"]
    assert json.loads(rows[0][2])["events"] == 0


def test_key_and_headers_count_for_the_limit():
    """An event whose key or headers would not fit once routed is refused, its letter is cut to fit, others go on."""
    snapshot = snapshot_of(FILTERS)
    value = b'{"x": 15}'
    records = [
        {"key": b"k" * 1_150_000, "value": value, "headers": ce("key")},
        {"value": value, "headers": [*ce("header"), ("note", b"n" * 3_000_000)]},
        {"value": value, "headers": [*ce("headers"), *[("n" * 1000, b"")] * 1500]},
        {"value": value, "headers": [*ce("dropped"), ("hilcast_mapping", b"n" * 3_000_000)]},
        {"value": value + b" " * 1_200_000, "headers": ce("type", type_name="unknown")},
        {"value": value, "headers": [("note", b"n" * 3_000_000)]},
        {"value": value, "headers": ce("good")},
    ]
    rows = [Output(topic, key, value, tuple(headers)) for topic, key, value, headers in routed(snapshot, records)]
    assert max(map(record_bytes, rows)) <= OUTPUT_BYTES_MAX
    letters = [dict(row.headers) for row in rows if row.topic == "hilcast.deadletter"]
    codes = ["too-large", "too-large", "too-large", "unknown-type", "bad-event"]
    assert [letter["hilcast_code"].decode() for letter in letters] == codes
    assert all("hilcast_truncated" in letter for letter in letters)
    delivered = {dict(row.headers)["ce_id"] for row in rows if row.topic == "hilcast.deliver.bob"}
    assert delivered == {b"dropped", b"good"}
