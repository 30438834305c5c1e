"""`verify` over a simulated overlay: the router's own core in memory, its topics read as Kafka's would be.

The simulation routes with the index of the moment, batches come in any order, deployments are slow and fast, so that
publications fall into every gap that a change has. Whatever it does right must be accepted; whatever is then spoiled
must be found.
"""

from __future__ import annotations

import json
import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.workloads.mixed import events, filters
from producers.client.membership import Spans
from producers.verify import Verification, history
from producers.verify.held import Held
from producers.verify.histories import Histories
from producers.verify.history import read_facts
from producers.verify.shared_deliveries import opted, served
from state.config import parse
from state.control.protocol import Expire, encode
from state.flooding import Delivered
from state.keys import home_key
from state.messages import Output, Span, delivery_id, event_digest, write_members
from state.routing.envelope import input_topics
from state.space.places import placed
from tests.simulation.world import World

TEXT = """
[deployment]
prefix = "p"
[overlay]
brokers = ["b1", "b2", "b3", "b4"]
links = [["b1", "b2"], ["b2", "b3"], ["b2", "b4"]]
[types.quote]
cubes = 2
reduction = "none"
[types.quote.attributes]
price = { kind = "int", min = 0, max = 20 }
symbol = { kind = "text" }
[[sources]]
topic = "legacy"
broker = "b4"
type = "quote"
"""
CONFIG = parse(TEXT)
PLACED = parse(
    TEXT.replace("max = 20 }", 'max = 20, path = "in.\\"a.b\\".price" }')
    .replace('kind = "text" }', 'kind = "text", header = "x-symbol" }')
    .replace('topic = "legacy"\nbroker = "b4"', 'pattern = "leg.*"\nbroker_header = "x-broker"')
)
"""The same type, its attributes elsewhere; the source is a pattern, and its records say where they enter."""
ALONE = [("b1", "b2", "b3", "b4")]
SPLIT = [("b1", "b2"), ("b3", "b4")]


class MemoryTransport:
    """Reads the topics of a simulated world; every partition is the first."""

    def __init__(self, log):
        self.log = log

    def topics(self):
        return set(self.log.topics)

    def partitions(self, topic):
        return (0,) if topic in self.log.topics else ()

    def span(self, topic, partition):
        records = self.log.topics[topic]
        return (records[0].offset, records[-1].offset + 1) if records else (0, 0)

    def read(self, starts):
        return MemoryReader(
            [r for (topic, _), at in starts.items() for r in self.log.topics[topic] if r.offset >= at], dict(starts)
        )


class MemoryReader:
    def __init__(self, records, positions):
        self.records, self.positions = records, positions

    def poll(self, timeout_s):
        given, self.records = self.records, []
        self.positions |= {(record.topic, record.partition): record.offset + 1 for record in given}
        return given

    def position(self, partition):
        return self.positions[partition]

    def close(self):
        pass


class Running:
    """A simulated overlay, routed by the real door, whose jobs also write their progress as the real ones do."""

    def __init__(self, hosting=ALONE, seed=0, config=CONFIG, sharing=False):
        self.rng = random.Random(seed)
        self.sharing = sharing
        """Whether clients opt in, and are served through shared topics now and then."""
        self.spans = {"alice": [], "bob": []}
        self.config = config
        self.world = World(config.with_topics(["legacy", "shared", "p.x"]), hosting)
        self.log, self.topics = self.world.log, config.topics
        self.filter, self.event = filters(config.types["quote"], seed), events(config.types["quote"], seed)
        self.read = [dict.fromkeys(input_topics(d.config), 0) for d in self.world.deployments]
        self.sent = 0
        self.taken = {}
        """By deployment that says so: the version of the configuration that it goes by."""
        for topic in (self.topics.subscriptions, self.topics.advertisements, self.topics.control):
            self.log.topics[topic]
        for deployment in self.world.deployments:
            self._progress(deployment, "control", deployment.positions)

    def _append(self, topic, value, key=None, headers=()):
        body = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
        return self.log.append(Output(topic, key, body, tuple(headers)))

    def _progress(self, deployment, query, offsets):
        line = {"deployment": deployment.config.deployment.name, "query": query, "offsets": {}}
        line["hosts"] = list(deployment.config.deployment.hosts)
        line["offsets"] = {topic: {"0": offset} for topic, offset in offsets.items()}
        if deployment.name in self.taken:
            line["configuration"] = self.taken[deployment.name]
        self._append(self.topics.progress, line)

    # ── what happens ────────────────────────────────────────────────────────────────────────────────────────────

    def change(self):
        broker, id = self.rng.choice(self.config.overlay.brokers), f"s{self.rng.randint(0, 4)}"
        if self.rng.random() < 0.3:
            self.world.send(self.topics.subscriptions, f"{broker}/quote/{id}", None)
            return
        value = {"client": self.rng.choice(["alice", "bob"]), "filter": self.filter()}
        if self.rng.random() < 0.15:
            value["filter"] = "price <"
        if self.rng.random() < 0.2:
            value["sink"] = "shared"
        elif self.sharing and self.rng.random() < 0.7:
            value["groups"] = True
        if self.rng.random() < 0.3:
            value["ttl_ms"] = self.rng.randint(1, 60)
        if self.rng.random() < 0.3:
            value["version"] = self.rng.randint(0, 6)
        self.world.send(self.topics.subscriptions, f"{broker}/quote/{id}", value)

    def expire(self):
        """The timer: tell home of what is due."""
        for kind, broker, type_name, id, fact in self.world.facts():
            if fact.live and fact.expires_ms is not None and fact.expires_ms <= self.log.now_ms:
                key = str(home_key(broker, type_name, id, self.config))
                self._append(
                    self.topics.control, encode(Expire(kind == "advertisement", id, fact.version)), key.encode()
                )

    def publish(self):
        self.sent += 1
        chance = self.rng.random()
        document, beside, key = placed(self.config.types["quote"], self.event())
        if chance < 0.1:
            given = [("x-broker", b"b4")] if self.config.patterns else []
            self._append("legacy", document, key or b"k", [*beside, *given])
        elif chance < 0.15:
            self._append(self.topics.publications, b"no json", None, self._headers("b1"))
        else:
            headers = [*self._headers(self._broker()), *beside]
            self._append(self.topics.publications, document, key or b"k", headers)

    def _broker(self):
        return self.rng.choice([*self.config.overlay.brokers, "nowhere"])

    def _headers(self, broker):
        named = {"specversion": "1.0", "id": str(self.sent), "source": "test", "type": "quote", "broker": broker}
        return [(f"ce_{name}", value.encode()) for name, value in named.items()]

    def control(self):
        deployment = self.rng.choice(self.world.deployments)
        deployment.step(self.rng)
        self._progress(deployment, "control", deployment.positions)

    def route(self, number=None):
        """One batch of one deployment's route query."""
        number = self.rng.randrange(len(self.world.deployments)) if number is None else number
        deployment, read = self.world.deployments[number], self.read[number]
        records = [record for topic in read for record in self.log.topics[topic][read[topic] :]]
        for output in self._shared(deployment.routed(records) if records else []):
            self.log.append(output)
        for record in records:
            read[record.topic] += 1
        self._progress(deployment, "route", read)

    def _shared(self, outputs):
        """Serve some clients through topics that they read; the rest is as it was."""
        together = {}
        for output in outputs:
            headers = dict(output.headers)
            client = headers.get("hilcast_client", b"").decode()
            choices = [t for t, _, end in self.spans.get(client, []) if end is None]
            if client and output.topic == self.topics.deliver(client) and choices and self.rng.random() < 0.8:
                kept = tuple(h for h in output.headers if not h[0].startswith("hilcast_"))
                event = event_digest(headers["ce_source"], headers["ce_id"]).hex().encode()
                message = (self.rng.choice(choices), output.key, output.value, kept, event)
                named = together.setdefault(message, {}).setdefault(client, [])
                named += headers["hilcast_subscriptions"].decode().split(",")
            else:
                yield output
        for (topic, key, value, kept, event), matched in together.items():
            for members, _ in write_members(matched):
                yield Output(topic, key, value, (*kept, ("hilcast_members", members), ("hilcast_event", event)))

    def regroup(self):
        """Let a client read one more shared topic, or one less."""
        client, topic = self.rng.choice(["alice", "bob"]), self.rng.choice(["p.group.b1.0", "p.broadcast.b1"])
        end = len(self.log.topics[topic])
        known = self.spans[client]
        if any(t == topic and stop is None for t, _, stop in known):
            self.spans[client] = [(t, f, end if t == topic and stop is None else stop) for t, f, stop in known]
        else:
            known.append((topic, end, None))
        self.announce(client)

    def announce(self, client):
        told = [{"topic": t, "first": f} | ({} if end is None else {"end": end}) for t, f, end in self.spans[client]]
        self._append(self.topics.groups, {"spans": told} if told else None, f"b1/{client}".encode())

    def live(self, steps):
        """Let things happen in any order."""
        actions = [self.change, self.publish, self.publish, self.control, self.control, self.route, self.expire]
        actions += [self.regroup] if self.sharing else []
        for _ in range(steps):
            self.rng.choice(actions)()

    def rest(self):
        """Let the control plane come to rest, as `hilcast wait` would see it, then route all that is left."""
        while any(d.behind() for d in self.world.deployments):
            for deployment in self.world.deployments:
                deployment.step()
                self._progress(deployment, "control", deployment.positions)
        for _ in range(4):
            for number in range(len(self.world.deployments)):
                self.route(number)

    def verify(self, **more):
        return Verification(self.config, MemoryTransport(self.log), **more).run()

    def deliveries(self):
        return [r for t in sorted(self.log.topics) if t == "shared" or ".deliver." in t for r in self.log.topics[t]]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([ALONE, SPLIT]), st.booleans(), st.sampled_from([CONFIG, PLACED]))
def test_what_the_core_does_right_is_accepted_at_every_moment(seed, hosting, sharing, config):
    """In the middle of everything and at rest, nothing that the router's core did is called missing or wrong."""
    running = Running(hosting, seed, config, sharing=sharing)
    running.live(60)
    midway = running.verify()
    assert midway.ok, midway.findings
    running.rest()
    running.live(40)
    running.rest()
    at_rest = running.verify()
    assert at_rest.ok, at_rest.findings
    assert at_rest.pending == 0
    assert at_rest.published == running.sent


def standing(hosting=ALONE, seed=1, publications=60, sharing=False, config=CONFIG):
    """Subscriptions in force, then publications: nothing is undecided."""
    running = Running(hosting, seed, config, sharing=sharing)
    for number, broker in enumerate(("b1", "b2", "b3", "b4", "b4")):
        value = {"client": "alice" if number % 2 else "bob", "filter": ["price < 12", "price > 6"][number % 2]}
        value |= {"groups": True} if sharing else {}
        running.world.send(running.topics.subscriptions, f"{broker}/quote/s{number}", value)
    running.rest()
    for _ in range(3 if sharing else 0):
        running.regroup()
    for _ in range(publications):
        running.publish()
    running.rest()
    return running


def test_filters_are_read_once_and_only_those_that_publications_met(monkeypatch):
    """Of forty subscriptions thirty were withdrawn before anything was published: their filters nobody reads."""
    running = Running()
    for number in range(40):
        value = {"client": "alice", "filter": f"price < {number}"}
        running.world.send(running.topics.subscriptions, f"b1/quote/s{number}", value)
    running.rest()
    for number in range(30):
        running.world.send(running.topics.subscriptions, f"b1/quote/s{number}", None)
    running.rest()
    for number in range(5):
        running.sent = number
        running._append(running.topics.publications, {"price": number}, b"k", running._headers("b3"))
    running.rest()
    read, whole = [], history.read_filter
    monkeypatch.setattr(history, "read_filter", lambda sent, *more: read.append(sent) or whole(sent, *more))
    found = running.verify()
    assert found.ok
    assert found.expected == 5
    assert sorted(read) == [f"price < {number}" for number in range(30, 40)]


def test_of_facts_only_those_are_kept_whose_record_is_gone():
    """What an inbox holds is not held twice; once Kafka has deleted the record, the registry stands in for it."""
    running = standing()
    topic = running.topics.subscriptions
    for deleted in (0, 2):
        running.log.topics[topic] = running.log.topics[topic][deleted:]
        reading = Verification(running.config, MemoryTransport(running.log))
        registry = list(reading._registry())
        histories = Histories([running.config], [], [], reading._times)
        histories.records = {inbox: Held(reading._read(inbox)) for inbox in histories.inboxes()}
        others = histories.keep_facts(registry)
        assert len(histories._facts[topic]) == deleted
        assert len(others) == len(registry) - len(read_facts(registry))
        assert reading.run().ok


@pytest.mark.parametrize("hosting", [ALONE, SPLIT])
def test_after_the_fence_nothing_is_undecided(hosting):
    """What is sent after everything was in force is decided, delivery by delivery; a client's parts are united."""
    running = standing(hosting)
    found = running.verify()
    assert found.ok
    assert found.expected > 20
    assert found.refused > 0
    # the clock of an existing producer is not trusted to the second: what it sent is undecided for a while
    legacy = [r for r in running.deliveries() if dict(r.headers)["ce_source"] == b"kafka:legacy"]
    events = {(r.topic, dict(r.headers)["ce_id"]) for r in legacy}
    assert found.undecided == len(events) == found.delivered - found.expected


@pytest.mark.parametrize("config", [CONFIG, PLACED])
@pytest.mark.parametrize("hosting", [ALONE, SPLIT])
def test_each_dropped_delivery_is_found(hosting, config):
    """Whichever delivery is taken away, it is missing (or, if another part of it is left, its ids are)."""
    running = standing(hosting, config=config)
    decided = [r for r in running.deliveries() if dict(r.headers)["ce_source"] == b"test"]
    for record in [r for r in decided if r.offset > 0][::7]:
        topic = running.log.topics[record.topic]
        running.log.topics[record.topic] = [r for r in topic if r is not record]
        found = running.verify()
        assert not found.ok
        assert found.missing + found.missing_ids >= 1
        running.log.topics[record.topic] = topic
    assert running.verify().ok


def test_wrong_altered_and_repeated_deliveries_are_found():
    """A delivery to the wrong client, one with other bytes, and a repeat are each told apart."""
    running = standing()
    record = next(r for r in running.deliveries() if dict(r.headers)["ce_source"] == b"test")
    wrong = tuple((n, b"eve" if n == "hilcast_client" else v) for n, v in record.headers)
    running.log.append(Output("p.deliver.eve", record.key, record.value, wrong))
    assert running.verify().wrong >= 1
    running.log.topics.pop("p.deliver.eve")
    running.log.append(Output(record.topic, record.key, b"{}", record.headers))
    assert running.verify().wrong == 1
    running.log.topics[record.topic].pop()
    running.log.append(Output(record.topic, record.key, record.value, record.headers))
    repeated = running.verify()
    assert (repeated.ok, repeated.repeats) == (True, 1)


def test_a_lost_dead_letter_is_found():
    """A publication that cannot be used and has no dead letter has vanished."""
    running = standing()
    running.log.topics[running.topics.deadletter].pop()
    assert running.verify().unanswered == 1


def test_what_is_not_routed_is_pending():
    """Publications that no route query has finished are pending, not missing."""
    running = standing()
    for _ in range(10):
        running.publish()
    found = running.verify()
    assert (found.ok, found.pending) == (True, 10)


def test_a_publication_on_its_way_to_another_deployment_is_judged_by_its_last_routing():
    """What crossed a link may meet subscriptions that came after its first routing, and is pending until it arrives."""
    running = Running(SPLIT)
    running.world.send(running.topics.subscriptions, "b4/quote/s1", {"client": "alice", "filter": "price = 3"})
    running.rest()
    running._append(running.topics.publications, {"price": 3}, None, running._headers("b1"))
    running.route(0)
    on_its_way = running.verify()
    assert (on_its_way.ok, on_its_way.pending, on_its_way.expected) == (True, 1, 0)
    running.world.send(running.topics.subscriptions, "b4/quote/s2", {"client": "bob", "filter": "price > 2"})
    running.world.settle()
    running.route(1)
    found = running.verify()
    assert found.ok, found.findings
    assert (found.pending, found.expected, found.delivered, found.undecided) == (0, 1, 2, 1)


def test_only_what_was_published_since_then_is_judged():
    """Earlier publications and their deliveries are left out, an earlier fault too."""
    running = standing()
    for topic in [t for t in running.log.topics if ".deliver." in t]:
        running.log.topics[topic].clear()
    assert running.verify().missing > 0
    since = running.log.now_ms
    for _ in range(20):
        running.publish()
    running.rest()
    found = running.verify(since_ms=since)
    assert found.ok
    assert 0 < found.published <= 20


def test_a_margin_makes_more_undecided():
    """If clocks may be far apart nothing that is near a change is decided."""
    running = standing()
    found = running.verify(margin_ms=10**6)
    assert found.ok
    assert (found.expected, found.undecided > 20) == (0, True)


def test_subscriptions_whose_inbox_was_deleted_are_known_from_the_registry():
    """After Kafka has deleted the inbox and its receipts, the registry tells what stands; nothing is wrong then."""
    running = standing()
    running.world.send(running.topics.subscriptions, "b1/quote/late", {"client": "carol", "filter": "price = 1"})
    running.rest()
    for topic in (running.topics.subscriptions, running.topics.receipts):
        last = running.log.topics[topic][-1]
        running.log.topics[topic] = [msgspec.structs.replace(last)]
    for _ in range(20):
        running.publish()
    running.rest()
    found = running.verify()
    assert found.ok
    assert found.delivered > 20


def test_a_destination_whose_beginning_was_deleted_is_judged_from_there():
    """What Kafka has deleted of a delivery topic is not missing; what is missing after that is."""
    running = standing()
    topic = max((t for t in running.log.topics if ".deliver." in t), key=lambda t: len(running.log.topics[t]))
    first = len(running.log.topics[topic])
    for _ in range(40):
        running.publish()
    running.rest()
    whole = running.log.topics[topic]
    running.log.topics[topic] = whole[first // 2 :]
    assert running.verify().ok
    later = next(r for r in whole[first:] if dict(r.headers)["ce_source"] == b"test")
    running.log.topics[topic] = [r for r in whole[first // 2 :] if r is not later]
    found = running.verify()
    assert (found.ok, found.missing) == (False, 1)


# ── shared topics ───────────────────────────────────────────────────────────────────────────────────────────────


def shared_messages(running):
    return [
        record
        for topic in ("p.group.b1.0", "p.broadcast.b1")
        for record in running.log.topics[topic]
        if dict(record.headers)["ce_source"] == b"test"
    ]


def test_a_lost_message_of_a_group_is_missing_for_whom_it_names():
    """Whichever message of a shared topic is taken away, each client that it named is missing it (or ids of it)."""
    running = standing(sharing=True)
    assert running.verify().ok
    assert len(shared_messages(running)) > 20
    for record in [r for r in shared_messages(running) if r.offset > 0][::5]:
        topic = running.log.topics[record.topic]
        running.log.topics[record.topic] = [r for r in topic if r is not record]
        found = running.verify()
        named = dict(record.headers)["hilcast_members"].count(b"=")
        assert found.missing + found.missing_ids >= named
        running.log.topics[record.topic] = topic


@pytest.mark.parametrize("members", [b"alice=s1;eve=s1", b"bob=s1"])
def test_a_message_that_names_a_client_that_did_not_want_it_is_wrong(members):
    """A client that never asked, or ids of somebody else, in a shared message are found."""
    running = standing(sharing=True)
    record = shared_messages(running)[0]
    headers = tuple((n, members if n == "hilcast_members" else v) for n, v in record.headers)
    running.log.append(Output(record.topic, record.key, record.value, headers))
    found = running.verify()
    assert found.wrong + found.wrong_ids == 1


def test_a_message_that_its_client_was_not_told_to_read_is_not_delivered():
    """Outside of the client's spans a message is wrong where it stands, and missing where the client reads."""
    running = standing(sharing=True)
    delivered = running.verify().delivered
    for client in ("alice", "bob"):
        running.spans[client] = []
        running.announce(client)
    found = running.verify()
    assert found.wrong > 20
    assert found.missing + found.missing_ids > 20
    assert found.delivered >= delivered
    assert {f.topic for f in found.findings if f.kind == "wrong"} <= {"p.group.b1.0", "p.broadcast.b1"}


def test_a_copy_in_a_group_and_one_alone_are_one_delivery():
    """Served twice, by its own topic and by a shared one, a client has the delivery and one repeat."""
    running = standing(sharing=True)
    record = shared_messages(running)[0]
    before = running.verify()
    client, _, ids = dict(record.headers)["hilcast_members"].decode().split(";")[0].partition("=")
    source, id = (dict(record.headers)[f"ce_{name}"] for name in ("source", "id"))
    headers = [(n, v) for n, v in record.headers if not n.startswith("hilcast_")]
    headers += [("hilcast_delivery", delivery_id(event_digest(source, id), client).encode())]
    headers += [("hilcast_subscriptions", ids.encode()), ("hilcast_client", client.encode())]
    running.log.append(Output(f"p.deliver.{client}", record.key, record.value, tuple(headers)))
    found = running.verify()
    assert (found.ok, found.delivered, found.repeats) == (True, before.delivered, before.repeats + 1)


def test_what_was_deleted_of_a_shared_topic_is_not_missing():
    """From a shared topic whose beginning Kafka deleted any member may have been served; spans of it are gone too."""
    running = standing(sharing=True)
    topic = max(("p.group.b1.0", "p.broadcast.b1"), key=lambda t: len(running.log.topics[t]))
    first = len(running.log.topics[topic])
    for _ in range(40):
        running.publish()
    running.rest()
    whole, low = running.log.topics[topic], first // 2
    assert low > 5
    running.log.topics[topic] = whole[low:]
    for client, known in running.spans.items():
        running.spans[client] = [(t, max(f, low) if t == topic else f, end) for t, f, end in known]
        running.announce(client)
    found = running.verify()
    assert found.ok, found.findings
    lost = next(r for r in whole[first:] if dict(r.headers)["ce_source"] == b"test")
    running.log.topics[topic] = [r for r in whole[low:] if r is not lost]
    assert running.verify().missing + running.verify().missing_ids > 0


def test_who_may_have_been_served_together_is_known_from_either_record():
    """Clients that ever opted in are found in the inbox, or in the registry once the inbox is deleted."""
    running = Running()
    for client, more in (("alice", {"groups": True}), ("bob", {}), ("carol", {"groups": True, "sink": "x"})):
        running.world.send(
            running.topics.subscriptions, f"b1/quote/{client}", {"client": client, "filter": "TRUE"} | more
        )
    running.world.send(running.topics.subscriptions, "b1/quote/bad", {"groups": True})
    running.rest()
    inbox = running.log.topics[running.topics.subscriptions]
    facts = [fact for _, _, fact in read_facts(running.log.topics[running.topics.registry])]
    assert opted(CONFIG, inbox, []) == opted(CONFIG, [], facts) == opted(CONFIG, inbox, facts) == {"alice"}


def test_spans_are_asked_for_only_where_kafka_still_holds_messages():
    """A message that was deleted after it was read may have lost its span with it; any other must lie in one."""
    spans = Spans()
    spans.replace("b1", [Span("p.group.b1.0", 4, 6), Span("p.group.b1.1", 0)])
    copy = Delivered("p.group.b1.0", "alice", b"s", b"1", "d", "s1", b"c")
    copies = [(("p.group.b1.0", 0, offset), copy) for offset in range(8)]
    found = served(CONFIG, copies, {"alice": spans}, {("p.group.b1.0", 0): 2})
    own, there = "p.deliver.alice", "p.group.b1.0"
    assert [d.topic for d in found] == [own, own, there, there, own, own, there, there]
    assert [d.topic for d in served(CONFIG, copies, {"bob": spans}, {("p.group.b1.0", 0): 0})] == [there] * 8
    elsewhere = [((topic, 1, offset), copy) for (topic, _, offset), copy in copies]
    found = served(CONFIG, elsewhere, {"alice": spans}, {("p.group.b1.0", 1): 0})
    assert [d.topic for d in found] == [there] * 8, "a span is of one partition"
