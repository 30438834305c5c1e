"""Marks of an index, against all that can happen to a Redis: what is committed is never had by an older one."""

from __future__ import annotations

import random
from copy import deepcopy

import pytest

from state.config import parse
from state.index_mark import Mark, Marks, is_whole
from state.keys import index_keys
from state.redis_index import WRITES, Version

CONFIG = parse("""
[overlay]
brokers = ["b1"]
[types.t]
cubes = 2
[types.t.attributes]
x = { kind = "int" }
""")
KEYS = index_keys(CONFIG, ("b1",))


class Redis:
    """One process: a run, and a vector as the script keeps it."""

    def __init__(self, run, rng):
        self.run, self.rng, self.vector = run, rng, {}

    def write(self, key, batch):
        self.vector[str(key)] = Version(1, batch, self.run)
        writes = self.vector.get(WRITES) or Version(0, 0, f"{self.rng.random()}")
        self.vector[WRITES] = Version(0, writes.batch + 1, writes.run)

    @property
    def whole(self):
        return is_whole(self.run, self.vector, KEYS)

    @property
    def mark(self):
        return Mark.of(1, self.run, self.vector)


@pytest.mark.parametrize("seed", range(20))
def test_whoever_goes_by_marks_never_goes_by_an_index_that_lacks_what_was_committed(seed):
    """Writes, emptied, restarted, failed over, put back from any copy: a whole index that passes has all batches that
    were committed; and after any of it the driver's mending leads to one that passes.
    """
    rng = random.Random(seed)
    redis, marks = Redis("r0", rng), Marks()
    copies, committed, runs, passed = [], {}, 0, 0
    for batch in range(400):
        chance = rng.random()
        if chance < 0.05:
            copies.append(deepcopy(redis))
        elif chance < 0.08 and copies:
            redis = deepcopy(rng.choice(copies))
        elif chance < 0.1:
            redis.vector.clear()
        elif chance < 0.12:
            runs += 1
            redis.run = f"r{runs}"
        else:
            some = [key for key in KEYS if rng.random() < 0.4]
            # a key whose part is not there as it should be is asked to write it again
            for key in KEYS:
                version = redis.vector.get(str(key))
                if key in some or version is None or version.run != redis.run:
                    redis.write(key, batch)
                    committed[key] = batch
        if not marks.take(redis.mark, redis.whole):
            redis.vector.clear()  # disowned
        lacking = [key for key in committed if redis.vector.get(str(key), Version(1, -1, "")).batch < committed[key]]
        if redis.whole and not redis.mark.is_behind(marks.committed):
            assert not lacking
            passed += 1
    assert passed > 200


def test_a_mark_that_is_no_mark_yet():
    """Before anything was committed any index passes; one to which nothing was written has none."""
    assert not Mark.of(1, "r", {}).is_behind(None)
    assert Mark.of(1, "r", {}).is_behind(Mark(1, 1, "x", "r"))
