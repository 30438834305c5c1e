"""When the router looks whether it should choose anew, and what it asks for."""

from __future__ import annotations

import pytest

from infra.kafka.transport import away
from state import tuning
from state.config import Fitted, parse
from state.control.facts import Fact
from streaming import tuner
from streaming.tuner import LOOKS_MAX, Tuner

TEXT = """
[deployment]
hosts = {hosts}
[settings]
tune_s = {tune_s}
[overlay]
brokers = ["b1", "b2"]
links = [["b1", "b2"]]
[types.t]
index = "auto"
[types.t.attributes]
x = {{ kind = "int" }}
a = {{ kind = "int" }}
b = {{ kind = "int" }}
y = {{ kind = "int" }}
[types.u.attributes]
x = {{ kind = "int" }}
"""


def config(hosts='["b1"]', tune_s=10):
    return parse(TEXT.format(hosts=hosts, tune_s=tune_s))


def facts(n, name="u", filter='"x > 3"'):
    live = Fact(
        version=1, owner="c", filter=filter, ttl_ms=None, expires_ms=None, sink=None, content=b"", topic="in",
        partition=0, offset=0, timestamp_ms=0, live=True,
    )  # fmt: skip
    return {("subscription", "b1", name, f"s{i}"): live for i in range(n)}


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    monkeypatch.setattr(tuner, "sample", lambda config, transport, types: {name: [] for name in types})
    monkeypatch.setattr(tuning, "CUBE_SUBSCRIPTIONS", 1000)
    return Clock()


def test_a_growing_number_is_left_alone_until_it_rests(clock):
    """Looked at every `tune_s`; chosen once two looks agree."""
    looks = Tuner(None, clock)
    assert looks.look(config(), facts(10_000)) is None
    assert looks.look(config(), facts(40_000)) is None, "it is not time yet"
    clock.now = 10.0
    assert looks.look(config(), facts(40_000)) is None, "it grew"
    clock.now = 20.0
    assert looks.look(config(), facts(41_000)) == {"u": Fitted(64)}
    clock.now = 30.0
    assert looks.look(config().fitted_with({"u": Fitted(64)}), facts(41_000)) is None, "it is chosen"


def test_a_number_that_never_rests_is_judged_all_the_same(clock):
    """After so many looks."""
    looks, found = Tuner(None, clock), []
    for i in range(LOOKS_MAX):
        clock.now = 10.0 * i
        found.append(looks.look(config(), facts(40_000 if i % 2 else 50_000)))
    assert found == [None] * (LOOKS_MAX - 1) + [{"u": Fitted(64)}]


def test_one_deployment_chooses(clock):
    """That of the overlay's first broker, unless it is not to."""
    for other in (config('["b2"]'), config(tune_s=0)):
        looks = Tuner(None, clock)
        assert [looks.look(other, facts(40_000)) for _ in range(3)] == [None] * 3


def test_dimensions_are_chosen_by_filters_and_publications(clock, monkeypatch):
    """Of the facts those that can be read; what is dormant does not count."""
    events = [{"x": 1, "y": i} for i in range(300)]
    monkeypatch.setattr(tuner, "sample", lambda config, transport, types: dict.fromkeys(types, events))
    (dormant,) = facts(1, filter='"z = 1"').values()
    some = {**facts(30, "t", '"y BETWEEN 3 AND 9"'), ("subscription", "b2", "t", "bad"): dormant}
    looks = Tuner(None, clock)
    assert looks.look(config(), some) is None
    clock.now = 10.0
    assert looks.look(config(), some) == {"t": Fitted(index=["y"])}


def test_kafka_away_is_no_reason_to_end(clock, monkeypatch):
    """It is looked again later."""

    def fails(*_):
        raise away("127.0.0.1:1", "gone")

    monkeypatch.setattr(tuner, "sample", fails)
    assert Tuner(None, clock).look(config(), {}) is None
