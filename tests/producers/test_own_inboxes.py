"""Clients with inboxes of their own: where they write, where they look for answers, and whom the fence waits for."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from infra.doctor import _inboxes
from producers import fence
from producers.client.advertiser import Advertiser
from producers.client.publisher import Publisher
from producers.client.subscriber import Subscriber
from producers.fence import Fence
from producers.verify.held import Held, read_receipts
from producers.verify.history import HistoryReader, read_facts
from producers.verify.independent_reader import read_publication
from producers.verify.shared_deliveries import shared_topics
from state.config import parse
from state.control.context import Context
from state.control.handle import handle
from state.errors import HilcastError
from state.flooding import ControlHistory
from state.keys import home_key
from state.messages import Output, Record
from streaming.progress import Committer, _end_offsets, _lag
from tests.producers.memory import MemoryKafka

TEXT = """
[overlay]
brokers = ["b1", "b2"]
links = [["b1", "b2"]]
[types.t.attributes]
x = { kind = "int" }
"""
OWN = """
[security]
inboxes = "own"
[security.clients.shop]
sources = ["urn:shop", "urn:shop/*"]
[limits]
event_bytes = 200
"""
CONFIG = parse(TEXT + OWN)
TOPICS = CONFIG.topics


class Closed(MemoryKafka):
    """A Kafka that lets nobody make topics."""

    def create(self, topics):
        raise HilcastError("kafka-topic", f"not allowed: {', '.join(topics)}")


def answered(kafka, inbox, receipts):
    """Let the router answer what stands in an inbox; the first answer makes the topic."""
    kafka.make(receipts)
    for record in kafka.logs[inbox][kafka.end(receipts) :]:
        said = {"kind": "accepted", "key": record.key.decode(), "version": 1, "broker": "b1", "epoch": "1.1"}
        said |= {"code": None, "reason": None, "topic": inbox, "partition": 0, "offset": record.offset}
        kafka.append(Output(receipts, b"alice", json.dumps(said).encode()))


def test_a_client_makes_its_inbox_and_is_answered_by_itself():
    """A subscription goes to the client's own inbox; its receipt is found though its topic came only with it."""
    kafka = MemoryKafka()
    with Subscriber(CONFIG, "alice", transport=kafka) as alice:
        request = alice.request("b1", "t", "x < 5", id="s1")
        assert set(kafka.logs) == {TOPICS.inbox("subscriptions", "alice")}
        answered(kafka, TOPICS.inbox("subscriptions", "alice"), TOPICS.receipts_of("alice"))
        assert request.receipt(1.0).key == "b1/t/s1"
        again = alice.request("b1", "t", "x < 6", id="s1")
        answered(kafka, TOPICS.inbox("subscriptions", "alice"), TOPICS.receipts_of("alice"))
        assert again.receipt(1.0).offset == 1


def test_a_client_that_may_not_make_topics_is_told_who_does():
    """Where Kafka refuses, the error names the command; a name that is none of a client is said to be so."""
    with (
        Subscriber(CONFIG, "alice", transport=Closed()) as alice,
        pytest.raises(HilcastError, match="client add alice"),
    ):
        alice.request("b1", "t", "x < 5")
    with Advertiser(CONFIG, "urn:shop", transport=Closed()) as shop, pytest.raises(HilcastError, match="say whose"):
        shop.request("b1", "t", "x < 5")


def test_publishers_and_advertisers_write_as_their_client():
    """Events and advertisements go to the topics of the client; without a source they are of its first."""
    kafka = MemoryKafka()
    with Publisher(CONFIG, broker="b1", type="t", client="shop", transport=kafka) as shop:
        shop.publish({"x": 1})
        shop.publish({"x": 2}, source="urn:shop/7")
    with Publisher(CONFIG, broker="b1", type="t", source="bob", transport=kafka) as bob:
        bob.publish({"x": 3})
    with Advertiser(CONFIG, "urn:shop", client="shop", transport=kafka) as advertiser:
        advertiser.request("b1", "t", "x < 5")
    sources = {t: [dict(r.headers)["ce_source"] for r in log] for t, log in kafka.logs.items() if "publications" in t}
    assert sources == {
        TOPICS.inbox("publications", "shop"): [b"urn:shop", b"urn:shop/7"],
        TOPICS.inbox("publications", "bob"): [b"bob"],
    }
    assert kafka.end(TOPICS.inbox("advertisements", "shop")) == 1


@pytest.mark.parametrize(
    ("client", "seen", "waited"),
    [
        (None, ["alice", "bob"], ["alice", "bob"]),
        ("alice", ["alice", "bob"], ["alice"]),
        (None, ["bob"], ["bob"]),
        ("carol", ["bob"], []),
    ],
)
def test_whom_the_fence_waits_for(monkeypatch, client, seen, waited):
    """Everybody whose inboxes may be seen, or one client; and always the control topic. An unread inbox is behind."""
    topics = {TOPICS.inbox("subscriptions", name): None for name in seen}
    topics |= {TOPICS.inbox("publications", "shop"): None, TOPICS.subscriptions: None, TOPICS.control: None}
    kafka = SimpleNamespace(
        list_topics=lambda timeout: SimpleNamespace(topics=topics),
        get_watermark_offsets=lambda place, timeout: (0, 4),
        close=lambda: None,
    )
    monkeypatch.setattr(fence, "Consumer", lambda settings: kafka)
    monkeypatch.setattr(fence, "AdminClient", lambda settings: None)
    made = Fence(CONFIG, client)
    ends = made._ends()
    assert ends == {**{TOPICS.inbox("subscriptions", name): 4 for name in waited}, TOPICS.control: 4}
    commits = {"main": fence.Deployed(["b1", "b2"], {TOPICS.control: 4}, 0)}
    monkeypatch.setattr(made, "deployments", lambda: commits)
    assert [behind.missing for behind in made._behind(ends)] == [4 * len(waited)] * (2 if waited else 0)


def test_the_fence_waits_for_what_is_behind_an_open_transaction(monkeypatch):
    """Whoever leaves a transaction open in an inbox must not make `wait` return before others' changes are read."""

    def consumer(settings):
        stable, end = 3, 5  # the transaction begins at 3; somebody else's subscription is at 4
        seen = stable if settings.get("isolation.level", "read_committed") == "read_committed" else end
        return SimpleNamespace(get_watermark_offsets=lambda place, timeout: (0, seen), close=lambda: None)

    monkeypatch.setattr(fence, "Consumer", consumer)
    monkeypatch.setattr(fence, "AdminClient", lambda settings: None)
    made = Fence(parse(TEXT))
    read = dict.fromkeys((TOPICS.subscriptions, TOPICS.advertisements, TOPICS.control), 3)
    monkeypatch.setattr(made, "deployments", lambda: {"main": fence.Deployed(["b1", "b2"], read, 0)})
    assert [behind.missing for behind in made.wait(timeout_s=0.0)] == [6, 6]


def test_commits_name_hosts_where_a_client_may_look():
    """All hosts stand at the control topic, which everybody may describe; what stands still is not committed again."""
    made = []
    committer = Committer(CONFIG, "control", made.append)
    offsets = {TOPICS.control: {"0": 5}, TOPICS.inbox("subscriptions", "alice"): {"0": 2}}
    committer.commit(offsets)
    committer.commit({**offsets, TOPICS.inbox("subscriptions", "bob"): {"0": 1}})
    told = [{place.topic: (place.offset, place.metadata) for place in batch} for batch in made]
    hosts = json.dumps({"hosts": ["b1", "b2"], "configuration": 0}, separators=(",", ":"))
    assert told[0] == {TOPICS.control: (5, hosts), TOPICS.inbox("subscriptions", "alice"): (2, "")}
    assert told[1] == {TOPICS.control: (5, hosts), TOPICS.inbox("subscriptions", "bob"): (1, "")}
    shared = Committer(parse(TEXT), "control", made.append)
    shared.commit({topic: {"0": 1} for topic in (TOPICS.subscriptions, TOPICS.advertisements, TOPICS.control)})
    assert all("hosts" in json.loads(place.metadata) for place in made[-1])


def test_offsets_of_our_own_source_are_read_like_sparks():
    """Kafka's ids of the topics are left out, and what is behind is counted from what the source reports."""
    end = {"a": {"0": 3, "id": "x"}, "b": {"0": 9, "id": "y"}}
    latest = {"a": {"0": 10, "id": "x"}, "b": {"0": 9, "id": "y"}, "c": {"0": 2, "id": "z"}}
    source = {"endOffset": json.dumps(end), "latestOffset": json.dumps(latest)}
    assert _end_offsets({"sources": [source]}) == {"a": {"0": 3}, "b": {"0": 9}}
    assert (_lag(source), _lag({**source, "metrics": {"maxOffsetsBehindLatest": "4"}})) == (7, 4)


def test_verify_knows_whose_a_registration_is():
    """Of two clients with one id each history is its own, and what was refused in an inbox never stood."""
    said = {
        "alice": [("s1", {"filter": "x < 5"})],
        "bob": [("s1", {"filter": "x > 5"}), ("s2", {"client": "alice", "filter": "TRUE"})],
    }
    outputs, inboxes = [], {}
    for client, values in said.items():
        topic = TOPICS.inbox("subscriptions", client)
        inboxes[topic] = [
            Record(topic, 0, i, 1000 + i, f"b1/t/{id}".encode(), json.dumps(v).encode())
            for i, (id, v) in enumerate(values)
        ]
        key = str(home_key("b1", "t", f"{client}:s1", CONFIG))
        outputs += handle(key, None, inboxes[topic], Context(CONFIG, 1, 1)).outputs
    written = [Record(o.topic, 0, i, 2000, o.key, o.value) for i, o in enumerate(outputs)]
    receipts = read_receipts([r for r in written if r.topic.startswith(TOPICS.receipts)])
    facts = read_facts([r for r in written if r.topic == TOPICS.registry])
    control = ControlHistory(CONFIG.overlay.brokers, {TOPICS.control: (0, [])}, [], 1)
    for kept in (True, False):  # also where Kafka has deleted the inboxes, and only the registry knows
        found = {}
        for topic, records in inboxes.items():
            reader = HistoryReader(CONFIG, topic, Held(records if kept else []), receipts, control, facts)
            found[topic] = {(c.id, stand.owner) for c in reader.claims() for stand in c.stands if stand.owner}
        assert found == {t: {("s1", t.rsplit(".", 1)[1])} for t in inboxes}


@pytest.mark.parametrize(
    ("client", "source", "value", "fault"),
    [
        ("shop", b"urn:shop", b"{}", None),
        ("shop", None, b"{}", None),
        ("shop", b"other", b"{}", "not-yours"),
        ("bob", b"bob/1", b"{}", None),
        ("bob", b"bob/1", b"{}" + b" " * 200, "over-quota"),
    ],
)
def test_verify_knows_what_must_be_refused(client, source, value, fault):
    """An independent reader finds the same fault as the router, and the source that was not said."""
    headers = [("ce_specversion", b"1.0"), ("ce_id", b"1"), ("ce_type", b"t"), ("ce_broker", b"b1")]
    headers += [] if source is None else [("ce_source", source)]
    record = Record(TOPICS.inbox("publications", client), 0, 0, 0, None, value, tuple(headers))
    found = read_publication(record, CONFIG)
    assert (found.fault, found.source) == (fault, source or b"urn:shop")


def test_shared_topics_of_sets_are_found():
    """Group and broadcast topics of sets are read like those of everybody."""
    names = [TOPICS.group("b1", 3), TOPICS.broadcast("b1", "red"), TOPICS.group("b2", 0, "red")]
    assert shared_topics(CONFIG, [*names, TOPICS.deliver("set"), f"{TOPICS.prefix}.set.red"]) == sorted(names)


def test_doctor_tells_of_records_where_nobody_reads(monkeypatch):
    """With inboxes of clients' own a record in a shared one is a fault; else clients are counted."""
    monkeypatch.setattr("infra.doctor._holds", lambda config, topic: topic == TOPICS.publications)
    mine = {TOPICS.inbox("subscriptions", name) for name in ("a", "b")}
    assert (_inboxes(CONFIG, mine).ok, _inboxes(CONFIG, mine).detail) == (True, "each client's own, 2 client(s)")
    assert TOPICS.publications in _inboxes(CONFIG, {*mine, TOPICS.publications}).detail
    assert not _inboxes(CONFIG, {*mine, TOPICS.publications}).ok
