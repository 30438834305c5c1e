"""What the driver looks after, with everything around it made by hand."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException

from state.config import Config, parse
from state.errors import HilcastError
from streaming import watch
from streaming.boot import Boot
from streaming.registry import Aged
from streaming.watch import Watch

CONFIG = parse("""
[overlay]
brokers = ["b1"]
links = []
[types.t.attributes]
x = { kind = "int" }
""")


class Around:
    """Stand-ins for all that the watch works with; each notes that it was asked, and fails if it is told to."""

    def __init__(self):
        self.asked: list[str] = []
        self.fail: dict[str, Exception] = {}
        self.pointed: int | None = 1
        self.cluster: set[str] = set()
        self.routed: list[list[str]] = []
        self.observed: list[Config] = []
        self.ids = {"hilcast.registry": "r1", "hilcast.subscriptions": "s1"}
        self.found = dict(self.ids)
        self.failures = 0
        self.marked = True
        self.disowned: list[int] = []
        self.unfit: dict[str, str] = {}
        self.closed: list[dict[str, str]] = []
        self.held: dict[tuple[str, int], int] = {}

    def did(self, what, answer=None):
        self.asked.append(what)
        if what in self.fail:
            raise self.fail[what]
        return answer

    def watch(self, config=CONFIG, facts=None):
        return Watch(
            Boot(config, 1, topic_ids=self.ids),
            registry=SimpleNamespace(
                catch_up=lambda: self.did("registry", []),
                overwritten=list,
                facts=facts or {},
                forged=0,
                aged=lambda config: Aged([], []),
            ),
            timers=SimpleNamespace(next_ms=None),
            clock=None,
            ended=lambda: 0,
            groups=SimpleNamespace(tick=lambda ended: self.did("groups"), topics=set, sources=self.observed.append),
            listener=SimpleNamespace(latest={}, batches={"route": 1}),
            redis=SimpleNamespace(
                current=lambda: ("run", self.pointed),
                point=lambda generation, shared: setattr(self, "pointed", generation),
                missing=lambda keys, generation, whole: self.did("redis", []),
                closed_missing=lambda generation: False,
                disown=self.disowned.append,
                close_destinations=lambda generation, closed: self.closed.append(dict(closed)),
            ),
            topics=SimpleNamespace(
                ids=lambda names: {**self.found, **{name: f"{name}'s" for name in names if name in self.cluster}},
                ensure_needed=lambda but, own: self.did("topics", []),
                recreate=lambda names: self.did("destinations", ([], {})),
                unfit=lambda names: self.unfit,
                existing=lambda: self.cluster,
                held_back=lambda names: {place: at for place, at in self.held.items() if place[0] in set(names)},
            ),
            failures=lambda: self.failures,
            mark=lambda: self.marked,
            route=lambda config, ids: self.routed.append([source.topic for source in config.sources]),
            writer=SimpleNamespace(send=lambda key, message: None, flush=lambda: None, nudge=lambda timeout_s: None),
        )


PATTERNS = parse("""
[overlay]
brokers = ["b1"]
links = []
[types.t.attributes]
x = { kind = "int" }
[[sources]]
pattern = "orders.*"
broker = "b1"
type = "t"
""")
ALL = ["registry", "redis", "groups", "topics", "destinations"]


def test_every_duty_has_its_time(monkeypatch):
    """The registry is followed at every look, Redis and groups each second, topics every five."""
    around, now = Around(), [100.0]
    monkeypatch.setattr(watch.time, "monotonic", lambda: now[0])
    made = around.watch()
    for now[0], asked in ((100.0, ALL), (100.3, ALL[:1]), (101.2, ALL[:3]), (105.4, ALL)):
        around.asked.clear()
        made.look()
        assert around.asked == asked


@pytest.mark.parametrize(
    "error",
    [HilcastError("kafka-away", "no answer"), KafkaException(KafkaError(KafkaError._TIMED_OUT))],
    ids=["ours", "librdkafka's"],
)
def test_what_kafka_does_not_allow_is_told_once_and_keeps_nothing_else_from_being_done(error, caplog):
    """A registry that cannot be read is said, not at every look; topics that had gone are still recreated."""
    around = Around()
    around.fail = {"registry": error, "groups": error}
    made = around.watch()
    logging.getLogger("hilcast.watch").addHandler(caplog.handler)
    made.look()
    made.look()
    logging.getLogger("hilcast.watch").removeHandler(caplog.handler)
    assert around.asked == [*ALL, "registry"]
    assert len({record.getMessage() for record in caplog.records}) == 1
    assert len(caplog.records) <= 2  # the handler of the root may see it, too


def test_what_is_no_trouble_of_kafka_ends_the_job():
    """An error of another kind is not swallowed."""
    around = Around()
    around.fail = {"redis": HilcastError("state-format", "foreign")}
    with pytest.raises(HilcastError, match="state-format"):
        around.watch().look()


def test_topics_that_a_pattern_matches_are_routed_from_the_next_look(monkeypatch):
    """What appears becomes a source, what goes leaves, and the sink of a live subscription is never one."""
    around, now = Around(), [100.0]
    monkeypatch.setattr(watch.time, "monotonic", lambda: now[0])
    fact = {"owner": "c", "live": True, "sink": "orders.sink"}
    made = around.watch(PATTERNS, {("subscription", "b1", "t", "s"): SimpleNamespace(**fact)})
    for now[0], cluster in ((100.0, {"orders.de", "orders.sink"}), (106.0, {"orders.de", "orders.fr"}), (112.0, set())):
        around.cluster = cluster | {"hilcast.routed", "other"}
        made.look()
    assert around.routed == [["orders.de"], ["orders.de", "orders.fr"], []]
    assert [[source.topic for source in config.sources] for config in around.observed] == around.routed, "groups see it"
    plain = Around()
    plain.watch().look()
    assert plain.routed == [], "without a pattern nobody is told"


def test_a_lost_inbox_or_registry_stops_the_job_and_is_not_made_again(monkeypatch):
    """Twice unseen is lost; at once, if Kafka has another topic of that name. Before that nothing is created."""
    around, now = Around(), [100.0]
    monkeypatch.setattr(watch.time, "monotonic", lambda: now[0])
    made = around.watch()
    del around.found["hilcast.subscriptions"]
    made.look()
    around.found = dict(around.ids)
    now[0] += 6
    made.look()  # it was only not known for a moment
    del around.found["hilcast.subscriptions"]
    now[0] += 6
    made.look()
    now[0] += 6
    around.asked.clear()
    with pytest.raises(HilcastError, match=r"topic-lost: hilcast\.subscriptions do not exist any more"):
        made.look()
    assert "topics" not in around.asked
    other = Around()
    other.found["hilcast.registry"] = "r2"
    with pytest.raises(HilcastError, match=r"topic-lost: hilcast\.registry were deleted and made again"):
        other.watch().look()


def test_leases_end_by_kafkas_time():
    """What is due is asked of Kafka's clock, whatever the driver's says; without an answer nothing ends."""
    around, fired = Around(), []
    made = around.watch()
    made.timers = SimpleNamespace(next_ms=5_000, fire=lambda now_ms, facts: fired.append(now_ms))
    made.clock = SimpleNamespace(due=lambda at_ms: None)
    made.look()
    assert fired == []
    made.clock = SimpleNamespace(due=lambda at_ms: around.did("clock", 5_001))
    around.fail["clock"] = HilcastError("kafka-away", "no answer")
    made.look()
    assert fired == []
    around.fail.clear()
    made.look()
    assert fired == [5_001]


def test_an_emptied_redis_is_told_again_what_is_in_force():
    """Without the pointer every route task waits: the watch sees to it beside the parts."""
    around = Around()
    around.pointed = None
    around.watch().look()
    assert around.pointed == 1


def test_destinations_are_looked_at_when_the_route_query_has_failed(monkeypatch):
    """Not after five seconds but at the next look, and all of them; what is unfit is told to the workers."""
    around, now = Around(), [100.0]
    monkeypatch.setattr(watch.time, "monotonic", lambda: now[0])
    fact = SimpleNamespace(owner="c", live=True, sink="alerts")
    made = around.watch(facts={("subscription", "b1", "t", "s"): fact})
    made.look()
    now[0] = 102.0
    around.asked.clear()
    made.look()
    assert "destinations" not in around.asked
    around.failures, around.unfit = 1, {"alerts": "it is compacted"}
    made.look()
    assert around.closed == [{}, {"alerts": "it is compacted"}]
    now[0] = 103.5
    around.asked.clear()
    made.look()
    assert "destinations" not in around.asked, "it was looked for once"


def test_an_older_index_is_disowned():
    """Nobody may go by what is older than what was in force: it is dropped, so that it is written again."""
    around = Around()
    around.watch().look()
    assert around.disowned == []
    around.marked = False
    around.watch().look()
    assert around.disowned == [1]


def test_a_transaction_that_nobody_ends_is_said(monkeypatch, caplog):
    """One that is open at two looks at the same place is named; one that moves on, or is not of our input, is not."""
    around, now = Around(), [100.0]
    monkeypatch.setattr(watch.time, "monotonic", lambda: now[0])
    made = around.watch()
    said = []
    for now[0], offset in ((100.0, 7), (106.0, 9), (112.0, 9), (130.0, 9), (140.0, None)):
        caplog.clear()
        around.held = {} if offset is None else {("hilcast.publications", 2): offset, ("other", 0): 1}
        made.look()
        said.append([line for line in caplog.messages if "open transaction" in line])
    assert [len(lines) for lines in said] == [0, 0, 1, 1, 0]
    assert "hilcast.publications/2 from offset 9:" in said[2][0]
