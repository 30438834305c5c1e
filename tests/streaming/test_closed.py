"""The driver's list of destinations that take nothing, with Kafka and Redis made by hand."""

from __future__ import annotations

from streaming import closed
from streaming.closed import ClosedDestinations


class Kafka:
    """Topics that exist, may not be made, or are unfit; notes what was asked about."""

    def __init__(self, *topics):
        self.topics, self.refused, self.bad = set(topics), {}, {}
        self.asked: list[set[str]] = []

    def recreate(self, names):
        missing = set(names) - self.topics
        made = sorted(missing - set(self.refused))
        self.topics.update(made)
        return made, {name: self.refused[name] for name in missing if name in self.refused}

    def unfit(self, names):
        self.asked.append(set(names))
        return {name: self.bad[name] for name in names if name in self.bad}


class Redis:
    """What the workers were told, each time; and whether it is lost."""

    def __init__(self):
        self.told, self.lost = [], False

    def close_destinations(self, generation, closed):
        self.told.append(dict(closed))
        self.lost = False

    def closed_missing(self, generation):
        return self.lost


def look(made, wanted, **more):
    found = made.look(wanted, **more)
    made.tell()
    return found


def test_a_destination_is_closed_and_opened_as_it_is():
    """Missing is made again; what may not be made, or is unfit, is closed until it is fit; told when it changes."""
    kafka, redis = Kafka("a", "b", "c"), Redis()
    made = ClosedDestinations(kafka, redis, 1)
    assert look(made, {"a", "b", "c"}) == []
    assert redis.told == [{}]
    kafka.bad = {"b": "it is compacted"}
    kafka.topics.discard("a")
    kafka.topics.discard("c")
    kafka.refused = {"c": "not allowed"}
    assert look(made, {"a", "b", "c"}) == ["a"]
    look(made, {"a", "b", "c"})
    assert redis.told[1:] == [{"b": "it is compacted", "c": "not allowed"}]
    kafka.bad, kafka.refused = {}, {}
    assert look(made, {"a", "b", "c"}) == ["c"]
    assert redis.told[2:] == [{}]


def test_what_redis_lost_is_told_again():
    """A list that Redis has lost is written anew; an empty one need not be."""
    kafka, redis = Kafka("a"), Redis()
    made = ClosedDestinations(kafka, redis, 1)
    look(made, {"a"})
    redis.lost = True
    look(made, {"a"})
    assert len(redis.told) == 1
    kafka.bad = {"a": "narrow"}
    look(made, {"a"})
    redis.lost = True
    look(made, {"a"})
    assert redis.told[1:] == [{"a": "narrow"}] * 2


def test_many_destinations_are_looked_at_in_turns(monkeypatch):
    """Some at a time, each in its turn, closed ones always; all at once when the query has failed."""
    monkeypatch.setattr(closed, "AT_ONCE", 3)
    names = {f"t{i}" for i in range(8)}
    kafka = Kafka(*names)
    kafka.bad = {"t1": "narrow"}
    made = ClosedDestinations(kafka, Redis(), 1)
    for _ in range(4):
        look(made, names)
    assert set().union(*kafka.asked[:3]) == names
    assert all("t1" in asked for asked in kafka.asked)
    assert max(map(len, kafka.asked)) <= 4
    look(made, names, all_of_them=True)
    assert kafka.asked[-1] == names


def test_nobody_waits_for_a_destination_that_is_not_wanted_any_more():
    """A closed destination of which the last subscription went is forgotten."""
    kafka, redis = Kafka("a", "b"), Redis()
    kafka.bad = {"a": "narrow"}
    made = ClosedDestinations(kafka, redis, 1)
    look(made, {"a", "b"})
    look(made, {"b"})
    assert redis.told == [{"a": "narrow"}, {}]


def test_whether_many_destinations_are_there_is_asked_in_turns(monkeypatch):
    """Of so many that they are not asked for at once: all of them in LOOKS looks, and at once when the query failed."""
    monkeypatch.setattr(closed, "THERE_AT_ONCE", 2)
    names = {f"t{i:03}" for i in range(95)}
    kafka, asked = Kafka(*names), []
    recreate = kafka.recreate
    kafka.recreate = lambda some: asked.append(set(some)) or recreate(some)
    made = ClosedDestinations(kafka, Redis(), 1)
    for _ in range(closed.LOOKS):
        look(made, names)
    assert set().union(*asked) == names
    assert max(map(len, asked)) == 10
    kafka.topics -= {"t003", "t090"}
    assert look(made, names, all_of_them=True) == ["t003", "t090"]
    assert asked[-1] == names
    for gone in sorted(names)[:50]:
        look(made, names - {gone})
        assert gone not in asked[-1]
