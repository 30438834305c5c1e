"""How a generation takes over, step by step, beside a Kafka that does not always answer."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

from state.config import parse
from state.control.facts import Fact
from state.errors import HilcastError
from streaming.generations import Built, changed
from streaming.succession import Succession

CONFIG = parse("""
[overlay]
brokers = ["b1"]
links = []
[types.t.attributes]
x = { kind = "int" }
""")
CONTROL = CONFIG.topics.control


def fact(version):
    return Fact(
        version=version, owner="c", filter='"x < 5"', ttl_ms=None, expires_ms=None, sink=None, content=b"",
        topic="t", partition=0, offset=version, timestamp_ms=0, live=True,
    )  # fmt: skip


class Around:
    """A job around a succession: writes down what happens, and fails where it is told to."""

    def __init__(self):
        self.did: list[str] = []
        self.fail: dict[str, list[HilcastError]] = {}
        self.built = {("subscription", "b1", "t", "old"): fact(1), ("subscription", "b1", "t", "same"): fact(2)}
        now = {key: f for key, f in self.built.items() if key[3] == "same"}
        self.registry = SimpleNamespace(
            facts=now | {("subscription", "b1", "t", "new"): fact(3), ("subscription", "b9", "t", "far"): fact(4)},
            catch_up_quietly=lambda: self.does("read"),
        )
        self.writer = SimpleNamespace(
            send=lambda key, message: self.did.append(f"say {message.id} {message.fact is not None}"),
            flush=lambda: self.does("flush"),
        )
        self.redis = SimpleNamespace(missing=lambda keys, generation: [])
        self.topics = SimpleNamespace(ensure_needed=lambda config: self.does("topics"))
        self.checkpoint = SimpleNamespace(begin=lambda generation: self.does("checkpoint"))
        self.transport = SimpleNamespace(partitions=lambda topic: (0,), span=lambda topic, number: (0, 10))
        self.listener = SimpleNamespace(
            reached={},
            hold=lambda query: self.does("hold"),
            release=lambda query, config, number: self.does("release"),
        )
        self.queries = SimpleNamespace(
            stop=lambda query: self.does(f"stop {query}"),
            succeed=lambda boot, generation: self.does("start control"),
            adopt=lambda boot: self.does("adopt"),
            runs=lambda query: self.routes,
            prepare=lambda boot: self.does("load") or self.trouble,
        )
        self.routes, self.trouble = True, ""

    def does(self, what):
        self.did.append(what)
        if self.fail.get(what):
            raise self.fail[what].pop()

    def next(self, config):
        return 2

    def claim(self, config, number):
        self.does("claim")

    def build(self, config, number):
        self.does("build")
        return Built(SimpleNamespace(number=number), self.built, {})

    def greet(self, config, number):
        self.does("greet")

    def boot(self, config, number):
        return None

    routing = boot

    def put_in_force(self, config, number):
        self.does("in force")

    def run(self, *, alone=False):
        """Step until it is in force; control has read everything once it runs."""
        succession = Succession(self, self.queries, self.listener, CONFIG, alone=alone)
        for _ in range(1000):
            if "start control" in self.did:
                self.listener.reached["control"] = {"offsets": {CONTROL: {"0": 10}}}
            if succession.step():
                return succession
            time.sleep(0.001)
        raise AssertionError(self.did)


def test_the_order_in_which_a_generation_takes_over():
    """Nothing is committed from before control stops until the new index is in force; what is new is said first."""
    around = Around()
    around.run()
    assert around.did == [
        *("topics", "build", "load", "claim", "hold", "stop control"),
        *("read", "say new True", "say old False", "flush"),
        *("greet", "start control", "topics", "checkpoint", "in force", "release", "adopt"),
    ]


def test_one_that_is_alone_is_claimed_before_it_is_built():
    """Where no control query runs nothing can change meanwhile: it is in force as soon as it is built."""
    around = Around()
    around.run(alone=True)
    assert [w for w in around.did if w not in ("topics",)] == [
        *("claim", "build", "load", "greet", "checkpoint", "in force", "start control", "adopt"),
    ]


def test_where_nothing_is_routed_nobody_loads_it_before():
    """At a first start no index is in use: who routes loads it when it begins."""
    around = Around()
    around.routes = False
    around.run(alone=True)
    assert "load" not in around.did


def test_one_that_cannot_be_loaded_before_is_in_force_all_the_same(caplog):
    """Routing then waits for it once; the reason is said."""
    around = Around()
    around.trouble = "no worker could be had"
    around.run()
    assert "in force" in around.did
    assert "not loaded before it is in force: no worker could be had" in caplog.text


@pytest.mark.parametrize("step", ["claim", "read", "flush", "greet", "adopt"])
def test_from_the_claim_on_kafka_is_waited_for(step):
    """What Kafka does not let be done now is done later, in the same order."""
    around, away = Around(), HilcastError("kafka-away", "for a moment")
    around.fail[step] = [away, away]
    assert around.run().claimed
    assert around.did.count(step) == 3
    assert around.did[-1] == "adopt"


def test_one_that_cannot_be_built_changes_nothing():
    """A failure before the claim is told, and the generation in force goes on."""
    around = Around()
    around.fail["build"] = [HilcastError("kafka-away", "for good")]
    with pytest.raises(HilcastError, match="for good"):
        around.run()
    assert "claim" not in around.did
    assert "stop control" not in around.did


def test_what_the_registry_says_since():
    """Facts that came, were replaced by equal ones that were read anew, or went; the same object is the same fact."""
    same, before = fact(1), {("s", "b1", "t", "gone"): fact(2)}
    before["s", "b1", "t", "same"] = same
    now = {("s", "b1", "t", "same"): same, ("s", "b1", "t", "came"): fact(3)}
    assert [(key[3], f is None) for key, f in changed(before, now)] == [("came", False), ("gone", True)]
