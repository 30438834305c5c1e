"""Clients that are served through group and broadcast topics; the test plays the router, in memory and on Kafka."""

from __future__ import annotations

import random
import threading

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hilcast import Subscriber
from infra.kafka import open_transport
from infra.kafka.topic_keeper import TopicKeeper
from producers.client import membership, subscriber
from producers.client.membership import Spans
from state.config import parse
from state.errors import HilcastError
from state.messages import Membership, Output, Span
from tests.producers.memory import MemoryKafka
from tests.producers.test_transport import BOTH
from tests.producers.worlds import TEXT, delivered, grouped, text

CONFIG = parse(TEXT.format(prefix="p", kafka="nowhere:1", redis="redis://nowhere:1/0"))
TOPICS = CONFIG.topics
SHARED = (TOPICS.group("b1", 0), TOPICS.group("b1", 1), TOPICS.broadcast("b1"), TOPICS.group("b2", 0))


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    """Look for topics at every turn, so that nothing depends on the clock."""
    monkeypatch.setattr(subscriber, "LOOK_S", 0.0)
    monkeypatch.setattr(membership, "LOOK_S", 0.0)
    monkeypatch.setattr(subscriber, "POLL_S", 0.01)


# ── spans ───────────────────────────────────────────────────────────────────────────────────────────────────────

PLACES = [("g", 0), ("g", 1), ("h", 0)]
spans = st.builds(
    lambda place, first, size: Span(place[0], first, None if size is None else first + size, place[1]),
    st.sampled_from(PLACES), st.integers(0, 8), st.none() | st.integers(0, 4),
)  # fmt: skip


@given(st.dictionaries(st.sampled_from(["b1", "b2"]), st.lists(spans, max_size=4)), st.integers(0, 15))
def test_the_next_offset_is_the_first_that_some_span_holds(by_broker, position):
    """Offset by offset: the first one from a position on that lies in a span of the partition, of whichever broker."""
    known = Spans()
    for broker, of in by_broker.items():
        known.replace(broker, [Span("other", 3)])
        assert known.replace(broker, of)
        assert not known.replace(broker, list(of))
    every = [span for of in by_broker.values() for span in of if span.end is None or span.end > span.first]
    assert known.places() == sorted({(span.topic, span.partition) for span in every})
    for place in PLACES:
        here = [span for span in every if (span.topic, span.partition) == place]
        inside = [
            offset for offset in range(position, 40)
            if any(s.first <= offset and (s.end is None or offset < s.end) for s in here)
        ]  # fmt: skip
        assert known.next(place, position) == (inside[0] if inside else None)
        if here:
            open_ended = any(span.end is None for span in here)
            assert known.end(place) == (None if open_ended else max(span.end for span in here))


# ── a router in memory ──────────────────────────────────────────────────────────────────────────────────────────


class Router:
    """Opens and closes spans, and serves alice and bob through whatever they may read, as the router's rules are."""

    def __init__(self, seed, groups_exist=True):
        self.rng = random.Random(seed)
        self.kafka = MemoryKafka(most=self.rng.randint(1, 4))
        self.spans = {(b, c): [] for b in ("b1", "b2") for c in ("alice", "bob")}
        self.wanted: list[dict[str, set[str]]] = []
        """By event: the ids that each client must see."""
        if groups_exist:
            self.kafka.make(TOPICS.groups)

    def announce(self, broker, client):
        self.kafka.make(TOPICS.groups)
        known = self.spans[broker, client]
        value = msgspec.json.encode(Membership(known)) if known else None
        self.kafka.append(Output(TOPICS.groups, f"{broker}/{client}".encode(), value))

    def serving(self, client):
        return sorted({s.topic for of, known in self.spans.items() if of[1] == client for s in known if s.end is None})

    def regroup(self):
        """Open a span, close one, or say the same again."""
        (broker, client), known = self.rng.choice(sorted(self.spans.items()))
        opened = [i for i, span in enumerate(known) if span.end is None]
        closed = [t for t in SHARED if f".{broker}" in t and t not in [known[i].topic for i in opened]]
        chance = self.rng.random()
        if chance < 0.6 and closed:
            topic = self.rng.choice(closed)
            self.kafka.make(topic)
            self.spans[broker, client] = [*known, Span(topic, self.kafka.end(topic))]
        elif chance < 0.9 and opened:
            i = self.rng.choice(opened)
            ended = Span(known[i].topic, known[i].first, self.kafka.end(known[i].topic))
            self.spans[broker, client] = [*known[:i], ended, *known[i + 1 :]]
        self.announce(broker, client)

    def publish(self, event=None):
        """One event for some clients, each by unicast or by a topic that it reads; perhaps an event of before again."""
        if event is None:
            event = len(self.wanted)
            self.wanted.append({})
        for client in ("alice", "bob"):
            if self.rng.random() < 0.7:
                self.wanted[event].setdefault(client, set()).add(f"s{self.rng.randint(1, 3)}")
        by_topic: dict[str, dict] = {}
        for client, ids in self.wanted[event].items():
            own = TOPICS.deliver(client)
            by_topic.setdefault(self.rng.choice([own, *self.serving(client)]), {})[client] = sorted(ids)
        for topic, matched in by_topic.items():
            self.kafka.make(topic)
            if topic in SHARED:
                self._share(topic, event, matched)
            else:
                ((client, ids),) = matched.items()
                self.kafka.append(delivered(CONFIG, client, str(event), ",".join(ids)))

    def _share(self, topic, event, matched):
        cut = [{client: ids} for client, ids in matched.items()] if self.rng.random() < 0.5 else [matched]
        for part in cut:
            self.kafka.append(grouped(topic, str(event), part))

    def again(self):
        if self.wanted:
            self.publish(self.rng.randrange(len(self.wanted)))

    def others(self):
        """Traffic of a shared topic that names neither; it may lie in a span or outside."""
        made = [topic for topic in SHARED if topic in self.kafka.logs]
        if made:
            self.kafka.append(grouped(self.rng.choice(made), f"x{self.rng.random()}", {"carol": ["c"]}))

    def act(self):
        self.rng.choice(
            [self.regroup, self.regroup, self.publish, self.publish, self.publish, self.again, self.others]
        )()

    def expected(self, since=0):
        return {
            str(event): tuple(sorted(clients["alice"]))
            for event, clients in enumerate(self.wanted)
            if "alice" in clients and event >= since
        }


def events(found):
    """By event its ids; fails if an event is there twice."""
    assert len({d.event_id for d in found}) == len(found)
    return {d.event_id: d.subscriptions for d in found}


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 10**9), st.booleans())
@example(0, False)
def test_through_any_regrouping_a_client_gets_everything_once(seed, groups_exist):
    """Whatever opens, closes and repeats while the client reads: none missing, none wrong, none twice, all ids."""
    router = Router(seed, groups_exist)
    found = []
    with Subscriber(CONFIG, "alice", transport=router.kafka) as alice:
        for _ in range(router.rng.randint(1, 60)):
            router.act()
            if router.rng.random() < 0.4:
                found += alice.poll()
        found += alice.present()
        assert events(found) == router.expected()
        assert list(alice.present()) == []
    assert router.kafka.open == 0


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10**9))
def test_from_the_end_on_nothing_is_missed(seed):
    """A client that begins at the end gets exactly what was sent afterwards, in spans of before and later ones."""
    router = Router(seed)
    router.again = router.publish
    for _ in range(router.rng.randint(0, 30)):
        router.act()
    since, found = len(router.wanted), []
    with Subscriber(CONFIG, "alice", start="end", transport=router.kafka) as alice:
        for _ in range(router.rng.randint(1, 30)):
            router.act()
            if router.rng.random() < 0.4:
                found += alice.poll()
        found += alice.present()
        assert events(found) == router.expected(since)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10**9))
def test_what_was_committed_is_not_given_again(seed):
    """Over many lives, each beginning where the last one stored, every event is given in one of them only."""
    router = Router(seed)
    router.again = router.publish
    found = []
    for _ in range(router.rng.randint(1, 6)):
        with Subscriber(CONFIG, "alice", start="stored", transport=router.kafka) as alice:
            for _ in range(router.rng.randint(0, 12)):
                router.act()
                if router.rng.random() < 0.4:
                    found += alice.poll()
            deliveries = alice.present()
            found += [d for _, d in zip(range(router.rng.randint(0, 5)), deliveries, strict=False)]
            alice.commit()
    with Subscriber(CONFIG, "alice", start="stored", transport=router.kafka) as alice:
        found += alice.present()
    assert events(found) == router.expected()


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**9))
def test_held_back_deliveries_have_all_their_ids_and_are_not_committed(seed):
    """With `unite_s` copies by several topics are one delivery; what is held back is given again in the next life."""
    router = Router(seed)
    with Subscriber(CONFIG, "alice", start="stored", transport=router.kafka, unite_s=1000.0) as alice:
        for _ in range(20):
            router.act()
            assert alice.poll() == []
        alice.commit()
    with Subscriber(CONFIG, "alice", start="stored", transport=router.kafka, unite_s=1000.0) as alice:
        assert events(list(alice.present())) == router.expected()


# ── single facts ────────────────────────────────────────────────────────────────────────────────────────────────


def announced(kafka, *spans, key=b"b1/alice"):
    kafka.make(TOPICS.groups)
    kafka.append(Output(TOPICS.groups, key, msgspec.json.encode(Membership(list(spans)))))


def test_a_topic_is_left_when_its_spans_have_ended():
    """Once the end of its last span is reached nothing more is read of a topic; gaps between spans are not read."""
    kafka = MemoryKafka(most=1)
    topic = SHARED[0]
    kafka.make(topic)
    for number in range(40):
        kafka.append(grouped(topic, str(number), {"alice" if number in (3, 12) else "bob": ["s1"]}))
    announced(kafka, Span(topic, 2, 5), Span(topic, 11, 14))
    with Subscriber(CONFIG, "alice", transport=kafka) as alice:
        assert [d.event_id for d in alice.present()] == ["3", "12"]
        assert alice.poll() == []
        assert alice.discarded == 4
        assert kafka.given == 1 + 6, "the announcement, and the spans"


def test_what_it_threw_away_is_counted():
    """Messages that do not name the client are discarded; repeats, and what others got alone, are not."""
    kafka = MemoryKafka()
    topic = SHARED[2]
    kafka.make(topic)
    for members in ({"alice": ["s1"]}, {"bob": ["s1"]}, {"bob": ["s1"], "alice": ["s2"]}, {"alice2": ["s1"]}):
        kafka.append(grouped(topic, "e", members))
    announced(kafka, Span(topic, 0))
    with Subscriber(CONFIG, "alice", transport=kafka) as alice:
        (delivery,) = alice.present()
        assert (delivery.subscriptions, alice.repeats, alice.discarded) == (("s1", "s2"), 1, 2)


def test_what_the_router_did_not_write_is_not_given():
    """A message without its headers, or whose event is no digest, is nobody's."""
    kafka = MemoryKafka()
    topic = SHARED[0]
    kafka.make(topic)
    whole = grouped(topic, "e", {"alice": ["s1"]})
    for broken in (
        ("hilcast_members", None),
        ("hilcast_event", None),
        ("hilcast_event", b"xyz"),
        ("hilcast_event", b""),
    ):
        headers = tuple((name, broken[1] if name == broken[0] else value) for name, value in whole.headers)
        kafka.append(Output(topic, whole.key, whole.value, headers))
    announced(kafka, Span(topic, 0))
    with Subscriber(CONFIG, "alice", transport=kafka) as alice:
        assert list(alice.present()) == []


def test_spans_that_kafka_has_deleted_are_not_waited_for(monkeypatch):
    """A span whose messages are all deleted is passed over; of one that is half deleted the rest is read."""
    monkeypatch.setattr(subscriber, "SILENCE_S", 1000.0)
    kafka = MemoryKafka()
    gone, half = SHARED[:2]
    kafka.make(gone, half)
    for number in range(4):
        kafka.append(grouped(gone, f"g{number}", {"alice": ["s1"]}))
        kafka.append(grouped(half, f"h{number}", {"alice": ["s1"]}))
    kafka.lows |= {gone: 4, half: 2}
    announced(kafka, Span(gone, 0, 4), Span(half, 0))
    with Subscriber(CONFIG, "alice", transport=kafka) as alice:
        assert [d.event_id for d in alice.present()] == ["h2", "h3"]
    assert kafka.read_of == {TOPICS.groups, half}


def test_spans_of_others_and_spans_that_are_gone_are_not_read():
    """Only its own key counts, at every broker; after a null value nothing of that broker is read."""
    kafka = MemoryKafka()
    kafka.make(*SHARED)
    for topic in SHARED:
        kafka.append(grouped(topic, topic, {"alice": ["s1"]}))
    announced(kafka, Span(SHARED[0], 0), key=b"b1/bob")
    announced(kafka, Span(SHARED[1], 0))
    announced(kafka, Span(SHARED[3], 0), key=b"b2/alice")
    kafka.append(Output(TOPICS.groups, b"b1/alice", None))
    with Subscriber(CONFIG, "alice", transport=kafka) as alice:
        assert [d.event_id for d in alice.present()] == [SHARED[3]]


def test_spans_that_cannot_be_read_are_an_error():
    """A client that cannot know where to read says so, instead of missing deliveries in silence."""
    kafka = MemoryKafka()
    kafka.make(TOPICS.groups)
    kafka.append(Output(TOPICS.groups, b"b1/bob", b"no json"))
    kafka.append(Output(TOPICS.groups, b"b1/alice", b'{"spans": 3}'))
    with (
        Subscriber(CONFIG, "alice", transport=kafka) as alice,
        pytest.raises(HilcastError, match=r"bad-value.*offset 1"),
    ):
        alice.poll()


# ── on Kafka ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def config(services, unique):
    config = parse(text(services, unique) + "[distribution.b1]\ngroups = 2\n")
    keeper = TopicKeeper(config)
    keeper.ensure_needed()
    keeper.ensure([config.topics.deliver("alice"), *(config.topics.group("b1", n) for n in (0, 1))])
    return config


class Script:
    """A router on Kafka that does what the test says, line by line."""

    def __init__(self, config):
        self.config, self.wire = config, open_transport(config)
        self.spans: list[Span] = []
        self.numbers = iter(range(10**6))

    def end(self, n):
        return self.wire.span(self.config.topics.group("b1", n), 0)[1]

    def announce(self):
        value = msgspec.json.encode(Membership(self.spans)) if self.spans else None
        self.wire.send(Output(self.config.topics.groups, b"b1/alice", value)).place()

    def opened(self, n):
        self.spans.append(Span(self.config.topics.group("b1", n), self.end(n)))
        self.announce()

    def closed(self, n):
        topic = self.config.topics.group("b1", n)
        self.spans = [
            Span(s.topic, s.first, self.end(n)) if s.topic == topic and s.end is None else s for s in self.spans
        ]
        self.announce()

    def shared(self, n, *members, event=None):
        """An event for these members, in as many messages."""
        event = event or f"g{next(self.numbers)}"
        for matched in members:
            self.wire.send(grouped(self.config.topics.group("b1", n), event, matched)).place()
        return event

    def alone(self, event=None, ids="s1"):
        event = event or f"u{next(self.numbers)}"
        self.wire.send(delivered(self.config, "alice", event, ids)).place()
        return event

    def play(self, pause):
        """Every move that the router makes; returns what alice must get."""
        alice, bob = {"alice": ["s1"]}, {"bob": ["s9"]}
        wanted = [self.alone()]
        self.shared(0, bob)  # before she reads there
        self.opened(0)
        wanted += [self.shared(0, alice), self.shared(0, bob, alice)]  # the second is cut in two
        pause()
        self.shared(0, bob)
        wanted += [self.alone(), self.shared(0, {**alice, **bob})]
        repeated = wanted[-1]
        self.opened(1)  # moves to another group; messages on their way still come by the old one
        wanted += [self.shared(1, alice), self.shared(0, alice)]
        pause()
        self.shared(1, {**alice, **bob}, event=repeated)
        self.alone(event=repeated, ids="s1,s2")
        self.closed(0)
        self.shared(0, bob)
        wanted += [self.shared(1, alice)]
        pause()
        self.opened(0)  # and back, past what she need not read
        self.closed(1)
        self.shared(1, bob)
        wanted += [self.shared(0, bob, {**alice}), self.shared(0, alice)]
        return wanted, repeated


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.parametrize("paced", [True, False])
def test_opened_closed_moved_repeated_and_cut_on_kafka(config, name, paced):
    """While the client reads, and if it comes when all is over: none missing, none wrong, none twice."""
    script = Script(config)
    here, go = threading.Event(), threading.Event()

    def pause():
        if paced:
            here.set()
            go.wait(30)
            go.clear()

    played = []
    playing = threading.Thread(target=lambda: played.append(script.play(pause)), daemon=True)
    found = []
    playing.start()
    if not paced:
        playing.join()
    with Subscriber(config, "alice", transport=name, start="stored") as alice:
        while playing.is_alive():
            found += alice.poll(0.5)
            if here.is_set() and len(found) >= 3:
                here.clear()
                go.set()
        found += alice.present()
        alice.commit()
        wanted, repeated = played[0]
        assert sorted(events(found)) == sorted(wanted)
        assert events(found)[repeated] == ("s1", "s2")
        assert alice.repeats == 2
        assert alice.discarded >= 3
    late = script.shared(0, {"alice": ["s1"]})
    with Subscriber(config, "alice", transport=name, start="stored") as alice:
        assert [d.event_id for d in alice.present()] == [late]
    with Subscriber(config, "alice", transport=name, start="end") as alice:
        latest = script.shared(0, {"bob": ["s9"]}, {"alice": ["s1"]})
        assert [d.event_id for d in alice.poll(20)] == [latest]
    script.wire.close()
