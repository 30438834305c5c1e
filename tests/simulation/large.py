"""Sources of the console that are large and cost little: brokers and figures made up, an index made in bulk."""

from __future__ import annotations

import json
import random
import time
from collections import Counter

import numpy as np

from benchmarks.bulk_index import Subscriptions, bulk_index
from producers.console.poller import Standing, Tail
from state.compiled_part import CompiledPart, load_part
from state.config import parse
from state.control.facts import Fact, encode_fact
from state.keys import index_keys
from state.messages import Record
from state.redis_index import Version
from state.space.boxes import Boxes
from state.space.encodings.schemas import NO_SCHEMAS
from state.space.ranks import float_rank
from tests.simulation.source import RUN, shown_part

TYPE = """
[types.quote]
reduction = "none"
index = ["price", "volume"]
cubes = {cubes}
[types.quote.attributes]
price = {{ kind = "float", min = 0, max = 1000 }}
volume = {{ kind = "int", min = 0, max = 1000000 }}
[settings]
home_shards = 1
wide_shards = 1
"""


def tree_config(brokers, cubes=1, seed=5):
    """A configuration of so many brokers, linked at random."""
    draw = random.Random(seed)
    names = [f"b{i}" for i in range(brokers)]
    links = [[name, draw.choice(names[max(0, i - 12) : i])] for i, name in enumerate(names) if i]
    return parse(f"[overlay]\nbrokers = {json.dumps(names)}\nlinks = {json.dumps(links)}\n{TYPE.format(cubes=cubes)}")


class LargeSource:
    """A source with a given index and made-up figures, which grow from one look to the next."""

    def __init__(self, config, index, registered=()):
        self.config, self.index = config, self
        self._index = index
        self._records = [fact_record(i, *names) for i, names in enumerate(registered)]
        self._versions = {str(key): Version(1, 1, RUN) for key in index}
        self._looks = 0
        self.asked: Counter[str] = Counter()

    def part(self, key):
        self.asked["part"] += 1
        return self._index.get(key)

    def fates(self, key, neighbour, entries):
        return [None] * len(entries)

    def configuration(self):
        return self.config

    def standings(self, deployments):
        self._looks += 1
        figures = Counter(routed=self._looks * 900, copies=self._looks * 400)
        for i, pair in enumerate(self.config.overlay.links):
            for a, b in (pair, pair[::-1]):
                figures[f"link:{a}>{b}"] = self._looks * (i % 9)
                figures[f"link_wasted:{a}>{b}"] = self._looks * (i % 9) * (i % 3) // 4
        texts = {name: str(n) for name, n in figures.items()}
        return {name: Standing(RUN, 1, self._versions, None, texts) for name in deployments}

    def parts(self, keys, standing):
        self.asked["parts"] += len(keys)
        near = self.config.overlay.neighbours
        told = {"received": 12, "forwarded": 5, "withheld": 7, "bytes": 900}
        return {k: shown_part(k, self._index[k], Version(1, 1, RUN), dict.fromkeys(near(k.broker), told)) for k in keys}

    def registry(self):
        some, self._records = self._records[:20_000], self._records[20_000:]
        return some

    def tail(self):
        now = int(time.time() * 1000)
        line = {"deployment": "main", "query": "route", "hosts": list(self.config.overlay.brokers), "rows": 900}
        line |= {"epoch": "1.1", "batch_ms": 300 + self._looks % 50}
        progress = Record(self.config.topics.progress, 0, self._looks, now, None, json.dumps(line).encode())
        return Tail([progress], {(self.config.topics.publications, 0): self._looks * 900}, 0, (32, 500), self.config)

    def groups(self):
        return {("main", "route"): 0, ("main", "control"): 0}, {"main": True}

    def schemas(self):
        return NO_SCHEMAS

    def close(self):
        pass


def fact_record(offset, broker, type_name, id, client, text):
    """What the registry says of a live subscription."""
    fact = Fact(
        version=1, owner=client, filter=json.dumps(text), ttl_ms=None, expires_ms=None, sink=None, content=b"",
        topic="t", partition=0, offset=offset, timestamp_ms=0, live=True,
    )  # fmt: skip
    key = f"subscription/{broker}/{type_name}/{id}".encode()
    return Record("hilcast.registry", 0, offset, 0, key, encode_fact(fact))


def hundred_brokers(brokers=100):
    """Many brokers, each with an empty index and some subscriptions in the registry."""
    config = tree_config(brokers)
    nothing = CompiledPart.of(2, [], {}, [])
    names = [
        (broker, "quote", f"s{n}", f"c{n}", "price < 5")
        for i, broker in enumerate(config.overlay.brokers)
        for n in range(i % 17)
    ]
    return LargeSource(config, dict.fromkeys(index_keys(config, config.overlay.brokers), nothing), names)


def many_subscriptions(count=100_000, brokers=3):
    """One type with so many subscriptions, of one box each."""
    config = tree_config(brokers, cubes=64)
    draw = np.random.default_rng(3)
    price, volume = draw.uniform(0, 960, count), draw.integers(0, 950_000, count)
    wide, deep = draw.uniform(1, 40, count), draw.integers(1, 50_000, count)
    lows = np.column_stack([_float_ranks(price), volume]).astype(np.int64)
    highs = np.column_stack([_float_ranks(price + wide), volume + deep]).astype(np.int64)
    ids = [f"s{i}" for i in range(count)]
    of = np.arange(count) % brokers
    clients = [f"c{i % 500}" for i in range(count)]
    subscriptions = Subscriptions(Boxes(lows, highs), ids, clients, of)
    index = {key: load_part(blob) for key, blob in bulk_index(config, "quote", subscriptions)}
    names = config.overlay.brokers
    registered = [(names[of[i]], "quote", ids[i], clients[i], "price < 5") for i in range(count)]
    return LargeSource(config, index, registered)


def _float_ranks(values):
    return np.array([float_rank(float(value)) for value in values], np.int64)


__all__ = ["LargeSource", "hundred_brokers", "many_subscriptions", "tree_config"]
