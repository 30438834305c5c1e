"""The wire, message by message, with a client that is not ours: every row of the table of codes, every header."""

from __future__ import annotations

import json
import time
import uuid

import pytest
import redis

from hilcast import Subscriber
from producers.client.mapper import Mapper
from state.config import load, parse
from state.space.grid import Grid
from tests.house.test_documentation import ROOT, blocks
from tests.integration.harness import RunningJob, Wire

pytestmark = pytest.mark.services

CONFIG = """
[deployment]
prefix = "{prefix}"
kafka = "{kafka}"
redis = "{redis}"
checkpoint = "checkpoint"
[overlay]
brokers = ["b1", "b2", "b3"]
links = [["b1", "b2"], ["b2", "b3"]]
[types."stock.quote"]
cubes = 4
[types."stock.quote".attributes]
symbol = {{ kind = "text" }}
price = {{ kind = "float", min = 0, max = 1000 }}
side = {{ kind = "category", values = ["buy", "sell"] }}
at = {{ kind = "timestamp" }}
[types.offer]
advertisements = true
cubes = 4
[types.offer.attributes]
price = {{ kind = "float", min = 0, max = 100 }}
[types.reading]
reduction = "mics"
cubes = 16
[types.reading.attributes]
low = {{ kind = "int", min = 0, max = 100, imprecise = "possible" }}
sure = {{ kind = "float", min = 0, max = 100, imprecise = "certain" }}
[[sources]]
topic = "{prefix}-legacy"
broker = "b3"
type = "stock.quote"
"""
QUOTE = "stock.quote"


@pytest.fixture(scope="module")
def job(services, tmp_path_factory):
    folder = tmp_path_factory.mktemp("messages")
    prefix = f"m{uuid.uuid4().hex[:10]}"
    path = folder / "hilcast.toml"
    path.write_text(CONFIG.format(prefix=prefix, kafka=services.kafka, redis=services.redis))
    running = RunningJob(path).start()
    running.wire = Wire(services.kafka, prefix)
    yield running
    running.end()


def answers(job, key, count=1):
    """Receipts to a key, in order, at least `count`."""
    mine = lambda records: [r.json for r in records if r.json["key"] == key]  # noqa: E731
    return mine(job.wire.until("receipts", lambda records: len(mine(records)) >= count))


def letters(job, topic, marker):
    """Dead letters whose value or key holds a marker."""

    def mine(records):
        return [r for r in records if marker in (r.value or b"") + (r.key or b"")]

    return mine(job.wire.until("deadletter", lambda records: mine(records)))


def deliveries(job, topic, count, marker=None):
    def mine(records):
        return [r for r in records if marker is None or r.header("ce_id") == marker]

    return mine(job.wire.until(topic, lambda records: len(mine(records)) >= count))


REFUSED = {
    "filter-syntax": {"client": "x", "filter": "price <"},
    "filter-type": {"client": "x", "filter": "price < 'a'"},
    "filter-attribute": {"client": "x", "filter": "prize < 3"},
    "filter-limit": {"client": "x", "filter": " OR ".join(["price < 3"] * 65)},
    "bad-json": "{no json",
    "bad-value": {"client": "bob smith", "filter": "price < 3"},
    "bad-value-list": "[1]",
    "bad-value-client": {"filter": "price < 3"},
    "bad-value-filter": {"client": "x"},
    "bad-value-version": {"client": "x", "filter": "price < 3", "version": -1},
    "bad-value-ttl": {"client": "x", "filter": "price < 3", "ttl_ms": "long"},
    "stale-grid": {"client": "x", "filter": "price < 3", "ranges": "hs1.0000000000000000.ZGM="},
}


def test_refused_control_events_get_a_receipt_and_a_dead_letter(job):
    """Each way a control event can be wrong has its code, a refused receipt and exactly one dead letter."""
    for name, value in REFUSED.items():
        job.wire.send("subscriptions", value, key=f"b1/{QUOTE}/r-{name}", headers=[("x", b"1"), ("x", None)])
    for key in ("nonsense", "b1/stock.quote", f"b9/{QUOTE}/r", "b1/unknown/r", f"b1/{QUOTE}/r r"):
        job.wire.send("subscriptions", {"client": "x", "filter": "price < 3"}, key=key)
    job.wire.flush()
    for name in REFUSED:
        code = "-".join(name.split("-")[:2])
        receipt = answers(job, f"b1/{QUOTE}/r-{name}")[0]
        assert (receipt["kind"], receipt["code"]) == ("refused", code), receipt
        found = letters(job, "subscriptions", f"r-{name}".encode())
        exact = [r for r in found if r.key == f"b1/{QUOTE}/r-{name}".encode()]
        assert [r.header("hilcast_code") for r in exact] == [code]
        assert exact[0].header("hilcast_offset") == str(receipt["offset"])
        assert exact[0].headers[:2] == [("x", b"1"), ("x", None)]
    expected = {"nonsense": "bad-key", "b1/stock.quote": "bad-key", f"b9/{QUOTE}/r": "unknown-broker"}
    expected |= {"b1/unknown/r": "unknown-type", f"b1/{QUOTE}/r r": "bad-key"}
    for key, code in expected.items():
        assert [r["code"] for r in answers(job, key)] == [code]


def test_filter_errors_tell_the_position(job):
    """A filter that does not parse is answered with the place of the fault."""
    job.wire.subscribe("b1", QUOTE, "position", "x", "price < 3 AND AND")
    job.wire.flush()
    assert "15" in answers(job, f"b1/{QUOTE}/position")[0]["reason"]


def test_versions(job):
    """Newer replaces, older is stale, the same is a repeat, equal with other content is stale, none is last + 1."""
    key = f"b2/{QUOTE}/versions"
    send = lambda **more: job.wire.subscribe("b2", QUOTE, "versions", "vera", **more)  # noqa: E731
    send(filter="price < 3", version=7)
    send(filter="price < 3", version=7)
    send(filter="price < 4", version=7)
    send(filter="price < 5", version=6)
    send(filter="price < 6")
    job.wire.send("subscriptions", None, key=key, headers=[("hilcast_version", b"5")])
    job.wire.send("subscriptions", None, key=key, headers=[("hilcast_version", b"20")])
    send(filter="price < 7", version=20)
    send(filter="price < 8")
    job.wire.send("subscriptions", None, key=f"b2/{QUOTE}/unknown-one")
    job.wire.flush()
    got = [(r["kind"], r["code"], r["version"]) for r in answers(job, key, 9)]
    assert got == [
        ("accepted", None, 7),
        ("accepted", None, 7),
        ("refused", "stale-version", 7),
        ("refused", "stale-version", 6),
        ("replaced", None, 8),
        ("refused", "stale-version", 5),
        ("withdrawn", None, 20),
        ("refused", "stale-version", 20),
        ("accepted", None, 21),
    ]
    assert [r["kind"] for r in answers(job, f"b2/{QUOTE}/unknown-one")] == ["withdrawn"]
    assert not [r for r in job.wire.read("deadletter") if r.key == key.encode()]


def test_a_delivery_carries_the_publication_as_it_was(job):
    """Key, value and headers pass unchanged, incoming hilcast_* are dropped, ours are added, links carry none."""
    wire = job.wire
    wire.subscribe("b1", QUOTE, "d1", "dora", "price < 100")
    wire.subscribe("b3", QUOTE, "d0", "dora", "symbol = 'IBM'")
    wire.subscribe("b2", QUOTE, "d2", "dora", "price < 100", sink=f"{wire.prefix}-shared")
    wire.flush()
    job.wait()
    value = b' { "price" : 42.50, "symbol":"IBM", "extra": {"deep": [1]} , "price": 42.5}'
    headers = [("ce_specversion", b"1.0"), ("trace", b"\xff\x00"), ("hilcast_client", b"forged"), ("trace", None)]
    headers += [("ce_id", b"d-1"), ("ce_source", b"dora's"), ("ce_type", QUOTE.encode()), ("ce_broker", b"b2")]
    wire.send("publications", value, key=b"\x00key", headers=headers)
    wire.flush()
    (seen,) = deliveries(job, "deliver.dora", 1, "d-1")
    assert (seen.key, seen.value) == (b"\x00key", value)
    kept = [h for h in headers if not h[0].startswith("hilcast_")]
    assert seen.headers[: len(kept)] == kept
    added = dict(seen.headers[len(kept) :])
    assert set(added) == {"hilcast_delivery", "hilcast_subscriptions", "hilcast_client", "hilcast_epoch"}
    assert added["hilcast_subscriptions"] == b"d0,d1"
    assert added["hilcast_client"] == b"dora"
    (shared,) = deliveries(job, f"/{wire.prefix}-shared", 1, "d-1")
    assert shared.header("hilcast_subscriptions") == "d2"
    assert shared.header("hilcast_delivery") == seen.header("hilcast_delivery")
    crossed = [r for r in wire.read("link.b2.b1") if r.header("ce_id") == "d-1"]
    assert [(r.key, r.value, r.headers) for r in crossed] == [(b"\x00key", value, kept)]
    assert len([r for r in wire.read("link.b2.b3") if r.header("ce_id") == "d-1"]) == 1


def test_structured_mode_and_sources(job):
    """Structured events stay structured; plain JSON of a configured topic gains the missing headers."""
    wire = job.wire
    wire.subscribe("b1", QUOTE, "z1", "zoe", "price > 900")
    wire.flush()
    job.wait()
    event = {"specversion": "1.0", "id": "st-1", "source": "s", "type": QUOTE, "broker": "b3", "data": {"price": 950}}
    wire.send("publications", event, headers=[("Content-Type", b"application/CloudEvents+json; charset=utf-8")])
    wire.send(f"/{wire.prefix}-legacy", '{"price": 960}')
    wire.flush()
    seen = wire.until("deliver.zoe", lambda records: len(records) >= 2)
    by_value = {json.dumps(r.json, sort_keys=True): r for r in seen}
    structured = by_value[json.dumps(event, sort_keys=True)]
    assert structured.header("ce_id") is None
    legacy = by_value['{"price": 960}']
    wanted = {"ce_source": f"kafka:{wire.prefix}-legacy", "ce_id": "0/0", "ce_type": QUOTE, "ce_broker": "b3"}
    assert {name: legacy.header(name) for name in wanted} == wanted


BAD_EVENTS = {
    "no-id": ({"ce_id": None}, b"{}", "bad-event"),
    "no-source": ({"ce_source": b""}, b"{}", "bad-event"),
    "list": ({}, b"[1]", "bad-event"),
    "nan": ({}, b'{"price": NaN}', "bad-event"),
    "empty": ({}, b"", "bad-event"),
    "null": ({}, None, "bad-event"),
    "broker": ({"ce_broker": b"b77"}, b"{}", "unknown-broker"),
    "type": ({"ce_type": b"no.such"}, b"{}", "unknown-type"),
    "not-advertised": ({"ce_type": b"offer"}, b'{"price": 1}', "not-advertised"),
}


def test_bad_publications_become_dead_letters(job):
    """Each unusable publication leads to exactly one dead letter with its code; a wrong attribute is only absent."""
    base = {"ce_specversion": b"1.0", "ce_source": b"bad", "ce_type": QUOTE.encode(), "ce_broker": b"b1"}
    for name, (change, value, _) in BAD_EVENTS.items():
        headers = {**base, "ce_id": name.encode(), **change}
        job.wire.send(
            "publications", value, key=f"bad-{name}", headers=[h for h in headers.items() if h[1] is not None]
        )
    job.wire.publish("b1", QUOTE, "fine", {"price": "text", "at": 5}, key="bad-fine")
    job.wire.flush()
    for name, (_, value, code) in BAD_EVENTS.items():
        found = [r for r in letters(job, "publications", f"bad-{name}".encode()) if r.key == f"bad-{name}".encode()]
        assert [(r.header("hilcast_code"), r.value) for r in found] == [(code, value)]
        assert found[0].header("hilcast_topic") == f"{job.wire.prefix}.publications"
    assert not [r for r in job.wire.read("deadletter") if r.key == b"bad-fine"]


def test_advertised_publications_pass(job):
    """With advertisements on, what its publisher advertised at the entry broker passes, and nothing else."""
    wire = job.wire
    wire.subscribe("b3", "offer", "o1", "olga", "price < 50")
    wire.send("advertisements", {"publisher": "shop", "filter": "price < 20"}, key="b1/offer/a1")
    wire.flush()
    assert answers(job, "b1/offer/a1")[0]["kind"] == "accepted"
    job.wait()
    wire.publish("b1", "offer", "in", {"price": 10}, source="shop")
    wire.publish("b1", "offer", "out", {"price": 30}, source="shop", key="offer-out")
    wire.publish("b2", "offer", "elsewhere", {"price": 10}, source="shop", key="offer-elsewhere")
    wire.flush()
    assert len(deliveries(job, "deliver.olga", 1, "in")) == 1
    for key in (b"offer-out", b"offer-elsewhere"):
        assert [r.header("hilcast_code") for r in letters(job, "publications", key)] == ["not-advertised"]
    assert [r.header("ce_id") for r in wire.read("deliver.olga")] == ["in"]


def test_imprecise_publications(job):
    """An interval that touches several cubes is delivered once, with all that it may (or must) match; a faulty one is
    absent, and where the type allows none it is of the wrong kind.
    """
    wire = job.wire
    wanted = {"r1": "low < 10 AND sure < 90", "r2": "low > 90 AND sure < 90", "r3": "low = 50 AND sure < 20"}
    wanted |= {"r4": "sure IS NULL AND low = 3", "r5": "low BETWEEN 30 AND 31"}
    for id, text in wanted.items():
        wire.subscribe("b1", "reading", id, "ida", text)
    wire.subscribe("b1", QUOTE, "r6", "ida", "price IS NULL AND symbol = 'blur'")
    wire.flush()
    job.wait()
    events = {
        "wide": {"low": {"min": 2, "max": 98}, "sure": {"min": 15, "max": 25}},
        "narrow": {"low": {"min": 30, "max": 30}, "sure": 5},
        "faulty": {"low": 3, "sure": {"min": 9, "max": 1}},
        "nobody": {"low": {"min": 32, "max": 49}, "sure": {"min": 0, "max": 99}},
    }
    for id, event in events.items():
        wire.publish("b3", "reading", id, event, source="blur")
    wire.publish("b3", QUOTE, "quote", {"symbol": "blur", "price": {"min": 1, "max": 2}}, source="blur")
    wire.flush()
    wire.until("deliver.ida", lambda records: len(records) >= 4)
    wire.routed(len(wire.read("publications")))
    found = [(r.header("ce_id"), r.header("hilcast_subscriptions")) for r in wire.read("deliver.ida")]
    assert sorted(found) == [("faulty", "r4"), ("narrow", "r5"), ("quote", "r6"), ("wide", "r1,r2,r5")]
    crossed = [r.header("ce_id") for r in wire.read("link.b3.b2") if r.header("ce_source") == "blur"]
    assert len(crossed) == len(set(crossed))


def test_time_to_live(job):
    """A subscription ends when its time to live has passed since the broker's timestamp, with an expired receipt."""
    wire = job.wire
    wire.subscribe("b2", QUOTE, "brief", "tim", "price > 0", ttl_ms=4000)
    wire.flush()
    assert [r["kind"] for r in answers(job, f"b2/{QUOTE}/brief", 2)] == ["accepted", "expired"]
    job.wait()
    wire.publish("b2", QUOTE, "late", {"price": 1})
    wire.publish("b2", QUOTE, "mark", {"price": 950})
    wire.flush()
    deliveries(job, "deliver.zoe", 1, "mark")
    assert "late" not in [r.header("ce_id") for r in wire.read("deliver.tim")]


def test_publications_near_the_limit_do_not_stop_the_query(job):
    """What Kafka takes in is routed even when our headers make it larger than what Kafka takes in by default."""
    wire = job.wire
    wire.subscribe("b3", QUOTE, "big", "bigclient", "symbol = 'BIG'")
    wire.flush()
    job.wait()
    value = json.dumps({"symbol": "BIG", "pad": "x" * 1_048_300})
    wire.publish("b1", QUOTE, "big-1", value)
    wire.publish("b1", QUOTE, "big-2", {"symbol": "BIG"})
    wire.flush()
    seen = wire.until("deliver.bigclient", lambda records: len(records) >= 2)
    assert sorted(len(r.value) for r in seen)[-1] == len(value)


def test_a_deleted_delivery_topic_does_not_stop_the_others(job, services):
    """A delivery topic deleted under the job comes back, and everybody goes on receiving."""
    from confluent_kafka.admin import AdminClient

    wire = job.wire
    wire.subscribe("b1", QUOTE, "gone", "gus", "symbol = 'GUS'")
    wire.subscribe("b1", QUOTE, "stays", "sam", "symbol = 'GUS'")
    wire.flush()
    job.wait()
    admin = AdminClient({"bootstrap.servers": services.kafka})
    for deleted in admin.delete_topics([f"{wire.prefix}.deliver.gus"]).values():
        deleted.result()
    time.sleep(1.0)
    wire.publish("b2", QUOTE, "g1", {"symbol": "GUS"})
    wire.flush()
    assert len(deliveries(job, "deliver.sam", 1, "g1")) == 1
    assert len(deliveries(job, "deliver.gus", 1, "g1")) >= 1


def test_the_routing_log_counts_everything(job):
    """Every publication of the topic stands in exactly the slices of the routing log, and the unmatched are counted."""
    wire = job.wire
    sent = len(wire.read("publications"))
    lines = [r.json for r in wire.routed(sent)]
    mine = [line for line in lines if line["topic"] == f"{wire.prefix}.publications"]
    covered = {(line["partition"], o) for line in mine for o in range(line["first"], line["last"] + 1)}
    assert len(covered) == sent
    assert sum(line["unmatched"] for line in mine) >= 1


def test_client_made_ranges_of_this_grid_are_accepted(job):
    """A subscription may bring Hilbert ranges made on the grid that Redis describes."""
    from state.filters.geometry import geometry
    from state.filters.grammar import parse
    from state.space.mapping import map_subscription

    event_type = load(job.path).types[QUOTE]
    held = redis.Redis.from_url(load(job.path).deployment.redis)
    grid = Grid.from_description(json.loads(held.get(f"{job.wire.prefix}:grid:{QUOTE}")))
    text = map_subscription(grid, geometry(parse("price < 3", event_type), event_type).boxes)
    job.wire.subscribe("b1", QUOTE, "mapped", "max", "price < 3", ranges=text)
    job.wire.flush()
    assert [r["kind"] for r in answers(job, f"b1/{QUOTE}/mapped")] == ["accepted"]


def test_a_header_of_the_client_decides_nothing(job):
    """Events with a header of ours are delivered by their values, and without it; ranges of an old grid are refused."""
    config, wire = load(job.path), job.wire
    old = Mapper(parse(job.path.read_text().replace("max = 1000", "max = 500")))
    low, high = b'{"price": 42}', b'{"price": 420}'
    with Subscriber(config, "mia") as mia:
        assert mia.subscribe("b1", QUOTE, "price < 100", id="mapped-too", mapping="redis").kind == "accepted"
    wire.subscribe("b1", QUOTE, "mapped-old", "mia", "price < 100", ranges=old.ranges(QUOTE, "price < 100"))
    wire.flush()
    assert [r["code"] for r in answers(job, f"b1/{QUOTE}/mapped-old")] == ["stale-grid"]
    job.wait()
    for value, name in ((low, "low"), (high, "high")):
        given = {"specversion": "1.0", "id": f"{name}-mapped", "source": "mapper", "type": QUOTE, "broker": "b3"}
        headers = [(f"ce_{header}", text.encode()) for header, text in given.items()]
        mapped = (("hilcast_mapping", b"he1.\xff\x00"), ("hilcast_mapping", None))
        wire.send("publications", value, headers=[*mapped, *headers])
    wire.flush()
    wire.publish("b3", QUOTE, "low-last", low, source="mapper")
    wire.flush()
    wire.until("deliver.mia", lambda records: len(records) >= 2)
    wire.routed(len(wire.read("publications")))
    seen = wire.read("deliver.mia")
    assert {r.header("ce_id") for r in seen} == {"low-mapped", "low-last"}
    assert {r.header("hilcast_subscriptions") for r in seen} == {"mapped-too"}
    crossed = [r for r in wire.read("link.b3.b2") if r.header("ce_source") == "mapper"]
    assert not [r for r in (*seen, *crossed) if "hilcast_mapping" in dict(r.headers)]


def test_the_example_of_the_client_library_runs(job, capsys):
    """The program in the README of `producers` prints the one delivery, as it stands there."""
    (code,) = [text for kind, text in blocks(ROOT / "producers" / "README.md") if kind == "python"]
    exec(compile(code.replace('"hilcast.toml"', repr(str(job.path))), "producers/README.md", "exec"), {})
    assert capsys.readouterr().out.startswith("{'symbol': 'IBM', 'price': 42.5}")
