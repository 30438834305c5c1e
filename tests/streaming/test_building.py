"""What the tasks of a build do, one by one as Spark would have them done, and what is said of how far it is."""

from __future__ import annotations

import random
import time
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from pyspark.serializers import CPickleSerializer

from state.config import parse
from state.control.context import Context
from state.control.facts import Fact, Kind, Name
from state.control.rebuild import by_home_key, parts_of, rebuild
from state.errors import HilcastError
from state.keys import Key
from streaming import building
from streaming.boot import Boot
from streaming.building import Builder, Estimate, Rest, Spark
from streaming.checkpoint import Checkpoint
from streaming.folders import Directory

CONFIG = parse("""
[overlay]
brokers = ["b1", "b2", "b3"]
links = [["b1", "b2"], ["b2", "b3"]]
[types.t]
cubes = 16
[types.t.attributes]
x = { kind = "int", min = 0, max = 100 }
y = { kind = "int", min = 0, max = 100 }
[types.u.attributes]
x = { kind = "int" }
""")


def fact(filter, offset):
    return Fact(
        version=1, owner="c", filter=f'"{filter}"', ttl_ms=None, expires_ms=None, sink=None, content=b"1",
        topic="hilcast.subscriptions", partition=0, offset=offset, timestamp_ms=0, live=True,
    )  # fmt: skip


def facts(n):
    rng, found = random.Random(n), []
    for i in range(n):
        low = rng.randrange(90)
        text = f"x BETWEEN {low} AND {low + rng.randrange(10)} AND y < {rng.randrange(100)}" if i % 7 else "nothing = 1"
        found.append(("subscription", f"b{rng.randint(1, 3)}", "t", f"s{i}", fact(text, i)))
    return found


class Kept:
    """Redis and Kafka, as far as a build writes to them."""

    def __init__(self):
        self.indexes, self.states, self.flushed = {}, {}, 0

    def publish(self, indexes, number, batch, forwarding, reduced):
        self.indexes |= {str(key): blob for key, blob in indexes.items()}

    def send(self, key, seed):
        assert seed.pieces == 1
        self.states[key] = seed.blob

    def flush(self):
        self.flushed += 1

    def close(self):
        pass


@pytest.fixture
def kept(monkeypatch):
    """Every builder of this test writes there."""
    kept = Kept()
    monkeypatch.setattr(building, "RedisIndex", lambda config, keys: kept)
    monkeypatch.setattr(building, "DriverWriter", lambda config: kept)
    monkeypatch.setattr(building, "_builders", {})
    return kept


def by_tasks(by_home, boot, tasks):
    """As Spark does it: chunks and parts in any order, by workers that know nothing of each other."""
    rng, parts, rest = random.Random(1), parts_of(Context(boot.config, boot.generation, 0)), Rest()
    told = [[] for _ in range(tasks)]
    chunks = building._chunks(by_home)
    for chunk in rng.sample(chunks, len(chunks)):
        packed = [building._packed(key, by_home[key]) for key in chunk]
        found, packed = building._restore(boot, parts, tasks, packed)
        rest.add(found)
        for number, some in packed:
            told[number].append(some)
        building._builders.clear()
    done = 0
    for number in rng.sample(range(tasks), tasks):
        rng.shuffle(told[number])
        done += building._settle(boot, parts, tasks, building._taken(told, number))
        building._builders.clear()
    assert done == len(parts)
    assert not any(told), "what a task was given is kept no longer"
    return rest


@pytest.mark.parametrize("tasks", [1, 5, 21])
def test_tasks_leave_what_the_rebuild_makes(kept, monkeypatch, tasks):
    """Seeds and indexes are the same bytes, whoever makes which of them, and the same is answered."""
    monkeypatch.setattr(building, "CHUNK_FACTS", 10)
    whole = rebuild(facts(120), Context(CONFIG, 4, 0))
    by_home, displaced = by_home_key(facts(120), Context(CONFIG, 4, 0))
    rest = by_tasks(by_home, Boot(CONFIG, 4), tasks)
    assert (kept.states, kept.indexes) == (whole.states, whole.indexes)
    assert sorted(map(repr, displaced + rest.outputs)) == sorted(map(repr, whole.outputs))
    assert rest.topics == whole.topics
    assert kept.flushed >= tasks, "a task has written what it has done"


class InProcess(Spark):
    """Spark whose tasks run here, in any order; what goes to them and comes back is pickled."""

    def _each(self, task, given):
        wire = CPickleSerializer()
        jobs = list(enumerate(wire.dumps((task, one)) for one in given))
        for n, job in random.Random(3).sample(jobs, len(jobs)):
            building._builders.clear()
            done, one = wire.loads(job)
            yield n, wire.loads(wire.dumps(done(one)))


@pytest.mark.parametrize("width", [1, 5])
def test_by_spark_all_is_what_the_rebuild_makes(kept, monkeypatch, width):
    """From facts to seeds and indexes, whichever task ends first; and it is known how far all is."""
    monkeypatch.setattr(building, "CHUNK_FACTS", 10)
    whole, steps = rebuild(facts(120), Context(CONFIG, 4, 0)), []
    by_home, displaced = by_home_key(facts(120), Context(CONFIG, 4, 0))
    parts, boot = parts_of(Context(CONFIG, 4, 0)), Boot(CONFIG, 4)
    rest = InProcess(None, None, width).built(by_home, parts, boot, lambda *step: steps.append(step))
    assert (kept.states, kept.indexes, rest.topics) == (whole.states, whole.indexes, whole.topics)
    assert sorted(map(repr, displaced + rest.outputs)) == sorted(map(repr, whole.outputs))
    assert [step for step in steps if step[1] == step[2]] == [
        ("registrations", 120, 120),
        ("parts", len(parts), len(parts)),
    ]


@pytest.mark.parametrize("width", [1, 2])
def test_what_the_next_task_is_given_is_made_while_others_run(monkeypatch, width):
    """So that no worker waits for it; of one more than may run, since it takes room. A failure begins no more."""
    made, running, most, ahead = [], [], [], []

    def job(self, task, one):
        made.append(one)
        return task, one

    def only(context, given):
        task, one = given
        running.append(one)
        most.append(len(running))
        ahead.append(len(made) - len(most))
        time.sleep(0.01)
        running.remove(one)
        return task(one)

    monkeypatch.setattr(Spark, "_job", job)
    monkeypatch.setattr(building, "_only", only)
    spark = Spark(SimpleNamespace(setLocalProperty=lambda name, value: None), nullcontext, width)
    assert sorted(spark._each(lambda one: 2 * one, range(20))) == [(n, 2 * n) for n in range(20)]
    assert max(most) <= width
    assert max(ahead) <= width, "those that are about to begin, and one"

    def failing(one):
        raise ValueError(one)

    made.clear()
    with pytest.raises(ValueError, match=r"0|1"):
        list(spark._each(failing, range(20)))
    assert len(made) <= width + 1


def test_few_are_built_here_and_many_by_spark(kept, monkeypatch):
    """By how many facts and parts there are; what is built here is the same."""

    class Spark:
        def built(self, *_):
            return "by Spark"

    by_home, _ = by_home_key(facts(60), Context(CONFIG, 4, 0))
    parts = len(parts_of(Context(CONFIG, 4, 0))) * 3
    monkeypatch.setattr(building, "HERE_MAX", 60 + parts - 1)
    assert building.build(by_home, Boot(CONFIG, 4), Spark(), lambda *_: None) == "by Spark"
    monkeypatch.setattr(building, "HERE_MAX", 60 + parts)
    steps = []
    rest = building.build(by_home, Boot(CONFIG, 4), Spark(), lambda *step: steps.append(step))
    whole = rebuild(facts(60), Context(CONFIG, 4, 0))
    assert (kept.states, kept.indexes, rest.topics) == (whole.states, whole.indexes, whole.topics)
    assert [step for step in steps if step[1] == step[2]] == [
        ("registrations", 60, 60),
        ("parts", parts // 3, parts // 3),
    ]


def test_homes_are_kept_whole(monkeypatch):
    """A chunk ends behind the home with which it has enough; every home is in one."""
    monkeypatch.setattr(building, "CHUNK_FACTS", 3)
    homes = {
        Key("b1", "t", f"home:{i}"): [(Name(Kind.SUBSCRIPTION, "s"), None)] * n for i, n in enumerate([2, 2, 9, 1])
    }
    assert [[key.number for key in chunk] for chunk in building._chunks(homes)] == [[0, 1], [2], [3]]
    assert building._chunks({}) == [[]]


def test_a_builder_is_kept_for_its_generation(kept):
    """From task to task of one generation, and not beyond."""
    first = building._builder(Boot(CONFIG, 4))
    assert building._builder(Boot(CONFIG, 4)) is first
    assert isinstance(building._builder(Boot(CONFIG, 5)), Builder)
    assert len(building._builders) == 1


def test_what_is_left_is_estimated():
    """Every five seconds; by what this step took so far."""
    now, said = [0.0], []
    estimate = Estimate(said.append, lambda: now[0])
    for now[0], done in [(1.0, 10), (4.9, 20), (6.0, 30), (7.0, 31), (12.0, 60)]:
        estimate("parts", done, 120)
    assert said == [
        "rebuilding: 30 of 120 parts; about 18 s left of this",
        "rebuilding: 60 of 120 parts; about 12 s left of this",
    ]


def test_what_spark_does_not_build_the_driver_does(kept, monkeypatch):
    """Whatever Spark had; but not where a newer index is in force."""

    class Spark:
        def built(self, *_):
            raise raised

    monkeypatch.setattr(building, "HERE_MAX", 0)
    by_home, _ = by_home_key(facts(30), Context(CONFIG, 4, 0))
    raised = HilcastError("index-superseded", "by 9")
    with pytest.raises(HilcastError, match="by 9"):
        building.build(by_home, Boot(CONFIG, 4), Spark(), lambda *_: None)
    assert not kept.states
    raised = ValueError("a worker died")
    building.build(by_home, Boot(CONFIG, 4), Spark(), lambda *_: None)
    whole = rebuild(facts(30), Context(CONFIG, 4, 0))
    assert (kept.states, kept.indexes) == (whole.states, whole.indexes)


def test_a_number_that_was_begun_is_used_up(tmp_path):
    """Whatever became of it, and in the next life too."""
    checkpoint = Checkpoint(Directory(tmp_path))
    assert checkpoint.attempted() == 0
    checkpoint.attempt(7)
    checkpoint.close()
    again = Checkpoint(Directory(tmp_path))
    assert again.attempted() == 7
    again.close()
