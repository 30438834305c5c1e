"""Publications of clients' own topics: bound to their sources, no larger than they may be; ids as clients know them."""

from __future__ import annotations

import re

import msgspec
import pytest

from state.compiled_part import CompiledPart, LocalEntry
from state.config import parse
from state.distribution.assignment import Assignment, TypeGroups
from state.messages import Output, Record, read_members
from state.names import owned
from state.routing.envelope import input_topics, own_publications
from state.routing.junction import Junction
from state.routing.route import route
from state.routing.sharing import Sharing
from state.routing.snapshot import Snapshot
from state.space.boxes import Boxes
from state.space.grid import Grid
from state.space.packing import pack
from tests.simulation.wire import batch_of, outputs_of

TEXT = """
[overlay]
brokers = ["b1"]
[types.t.attributes]
x = { kind = "int", min = 0, max = 100 }
[security]
inboxes = "own"
[security.clients.shop]
sources = ["urn:shop", "urn:shop/*"]
[security.clients.sensor]
sources = ["urn:sensor:*"]
[limits]
event_bytes = 200
[limits.clients.shop]
event_bytes = 300
[limits.types.t]
event_bytes = 250
"""
CONFIG = parse(TEXT)
EVERY = Boxes.of([([0], [100])])
SHARED = parse(TEXT.split("[security]")[0])


def snapshot(entries, config=CONFIG, sharing=None):
    local = [
        LocalEntry(id, client, config.topics.deliver(client), None, pack(EVERY), groups=bool(sharing))
        for id, client in entries
    ]
    event_type = config.types["t"]
    junction = Junction.join(event_type, Grid.of(event_type), [CompiledPart.of(1, local, {}, [])])
    return Snapshot(config, "1.1", {"t": {"b1": junction}}, sharing or {})


def record(topic, source="urn:shop", offset=0, value=b'{"x": 1}', structured=False, **more):
    said = {"specversion": "1.0", "id": f"e{offset}", "type": "t", "broker": "b1", **more}
    said |= {"source": source} if source else {}
    if structured:
        headers = (("content-type", b"application/cloudevents+json"),)
        return Record(topic, 0, offset, 0, None, msgspec.json.encode(said | {"data": {"x": 1}}), headers)
    headers = tuple((f"ce_{name}", text.encode()) for name, text in said.items())
    return Record(topic, 0, offset, 0, None, value, headers)


def routed(records, made):
    """By record: the code that it is refused with, or the headers of what it led to."""
    found = {}
    for stamp, output in outputs_of(route(made, batch_of(records))):
        if stamp is not None:
            headers = dict(output.headers)
            code = headers.get("hilcast_code")
            found.setdefault(stamp, []).append(headers if code is None else code.decode())
    return found


@pytest.mark.parametrize("structured", [False, True])
@pytest.mark.parametrize(
    ("client", "source", "allowed"),
    [
        ("shop", "urn:shop", True),
        ("shop", "urn:shop/7", True),
        ("shop", "urn:shopper", False),
        ("shop", "shop", False),
        ("bob", "bob", True),
        ("bob", "bob/7", True),
        ("bob", "urn:shop", False),
        ("sensor", "urn:sensor:1", True),
    ],
)
def test_a_source_is_its_clients(client, source, allowed, structured):
    """An event is routed if its source is among those of the client in whose topic it is; else it is `not-yours`."""
    events = [record(f"hilcast.publications.{client}", source, structured=structured)]
    (what,) = routed(events, snapshot([("alice:s1", "alice")]))[0]
    if allowed:
        assert (what["hilcast_subscriptions"], what["hilcast_client"]) == (b"s1", b"alice")
    else:
        assert what == "not-yours"


FORGED = [
    [("ce_source", b"urn:shop")],
    [("CE_Source", b"urn:shop")],
    [("ce_source", b""), ("ce_source", b"urn:shop"), ("ce_source", b"bob")],
]


@pytest.mark.parametrize("structured", [False, True])
@pytest.mark.parametrize("forged", FORGED, ids=["first", "capital", "between"])
def test_no_header_names_the_source_of_another(forged, structured):
    """Of several headers the last counts, but whoever reads the delivery may take the first: none may be a lie."""
    event = record("hilcast.publications.bob", "bob", structured=structured)
    made = snapshot([("alice:s1", "alice")])
    assert routed([msgspec.structs.replace(event, headers=(*forged, *event.headers))], made)[0] == ["not-yours"]
    true = [("ce_source", b"bob/7"), ("ce_source", b""), ("x", b"urn:shop")]
    (what,) = routed([msgspec.structs.replace(event, headers=(*true, *event.headers))], made)[0]
    assert what["hilcast_client"] == b"alice"


@pytest.mark.parametrize(
    ("value", "allowed"),
    [
        (b'{"source": "urn:shop", REST, "source": "bob"}', False),
        (b'{"source": "urn:shop", REST, "\\u0073ource": "bob"}', False),
        (b'{"source": "bob/1", REST, "source": "bob"}', True),
        (b'{"source": "bob", REST, "more": {"source": "urn:shop"}}', True),
    ],
)
def test_no_member_names_the_source_of_another(value, allowed):
    """Of equal members the last counts, but not for every reader: none may be a lie, however it is written."""
    rest = b'"specversion": "1.0", "id": "e", "type": "t", "broker": "b1", "data": {"x": 1, "source": "urn:shop"}'
    event = record("hilcast.publications.bob", "bob", structured=True)
    made = snapshot([("alice:s1", "alice")])
    found = routed([msgspec.structs.replace(event, value=value.replace(b"REST", rest))], made)[0]
    assert (found != ["not-yours"]) == allowed


def test_a_source_that_is_not_named_is_the_clients_first():
    """The missing header is added, and counts for the delivery id; where there is no first one, the event is bad."""
    topics = [f"hilcast.publications.{client}" for client in ("shop", "bob", "sensor")]
    made = snapshot([("alice:s1", "alice")])
    found = routed([record(topic, None, i) for i, topic in enumerate(topics)], made)
    assert [found[i][0]["ce_source"] for i in (0, 1)] == [b"urn:shop", b"bob"]
    assert found[2] == ["bad-event"]
    said = routed([record(topics[0], "urn:shop", 0)], made)[0][0]
    assert said["hilcast_delivery"] == found[0][0]["hilcast_delivery"]
    assert routed([record(topics[0], None, structured=True)], made)[0] == ["bad-event"]


def test_events_are_no_larger_than_they_may_be():
    """The stricter of the client's limit and the type's counts, over key, value and headers; not for what we add."""
    made = snapshot([("alice:s1", "alice")])
    for client, source, limit in (("bob", "bob", 200), ("shop", "urn:shop", 250)):
        topic = f"hilcast.publications.{client}"
        least = record(topic, source, value=b'{"x": 1}')
        size = sum(len(name) + len(value) for name, value in least.headers) + len(least.value) + len("stamp0")
        for extra, refused in ((limit - size, False), (limit - size + 1, True)):
            event = msgspec.structs.replace(least, value=b'{"x": 1}' + b" " * extra)
            found = routed([event], made)[0]
            assert (found == ["over-quota"]) == refused, (client, extra)


def test_equal_ids_of_two_clients_are_two_deliveries():
    """Each client is told its own id, though both use the same one."""
    made = snapshot([(owned(client, "s1"), client) for client in ("alice", "bob")])
    found = routed([record("hilcast.publications.shop")], made)[0]
    assert {(h["hilcast_client"], h["hilcast_subscriptions"]) for h in found} == {(b"alice", b"s1"), (b"bob", b"s1")}


def test_shared_publications_are_not_read_and_own_ones_are():
    """With inboxes of clients' own the pattern of the query is theirs, and the shared topic is no input."""
    assert (input_topics(SHARED), own_publications(SHARED)) == (["hilcast.publications"], None)
    assert input_topics(CONFIG) == []
    pattern = re.compile(own_publications(CONFIG))
    names = [f"hilcast.publications{tail}" for tail in (".a-b_c", "", ".a.b", "x.a")]
    assert [bool(pattern.fullmatch(name)) for name in names] == [True, False, False, False]


def test_a_message_names_clients_of_one_set_only():
    """Members of a group who belong to different sets are named in different topics."""
    clients = ["ann", "bea", "cleo", "dora"]
    groups = TypeGroups(first=0, n=1, dims=[], cuts=[], cells=b"", labels=b"", members=b"\x01" * 4)
    sets = {"bea": "red", "cleo": "red"}
    assignment = Assignment(clients=clients, threshold=0.0, broadcast=0.0, types={"t": groups}, sets=sets)
    made = snapshot([(owned(c, "s"), c) for c in clients], sharing={"b1": Sharing(assignment)})
    outputs = [output for stamp, output in outputs_of(route(made, batch_of([record("hilcast.publications.shop")])))]
    named = {o.topic: set(read_members(dict(o.headers)["hilcast_members"])) for o in outputs if _is_shared(o)}
    assert named == {
        "hilcast.broadcast.b1": {"ann", "dora"},
        "hilcast.set.red.broadcast.b1": {"bea", "cleo"},
    }
    assert assignment.topics(CONFIG.topics, "b1") == {
        "hilcast.broadcast.b1": ["ann", "dora"],
        "hilcast.set.red.broadcast.b1": ["bea", "cleo"],
        "hilcast.group.b1.0": ["ann", "dora"],
        "hilcast.set.red.group.b1.0": ["bea", "cleo"],
    }
    assert Assignment.decode(assignment.encode()) == assignment


def _is_shared(output: Output) -> bool:
    return "hilcast_members" in dict(output.headers)
