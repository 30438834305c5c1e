"""The promise itself: an overlay of seven brokers on the real services against flooding, through every fault."""

from __future__ import annotations

import random
import shutil
import time
from collections import defaultdict

import pytest
import redis

from benchmarks.workloads.mixed import events, filters
from state.config import load
from tests import oracle
from tests.integration.harness import RunningJob, Wire

CONFIG = """
[deployment]
name = "main"
prefix = "{prefix}"
kafka = "{kafka}"
redis = "{redis}"
checkpoint = "checkpoint"
[overlay]
brokers = ["b1", "b2", "b3", "b4", "b5", "b6", "b7"]
links = [["b1", "b2"], ["b2", "b3"], ["b2", "b4"], ["b4", "b5"], ["b4", "b6"], ["b1", "b7"]]
[types."stock.quote"]
reduction = "{quote}"
cubes = 8
[types."stock.quote".attributes]
symbol = {{ kind = "text" }}
price = {{ kind = "float", min = 0, max = 1000 }}
volume = {{ kind = "int", min = 0, max = 1000000 }}
side = {{ kind = "category", values = ["buy", "sell", "none"] }}
at = {{ kind = "timestamp" }}
halted = {{ kind = "boolean" }}
[types.weather]
reduction = "{weather}"
matcher = "s-tree"
matcher_parameters = {{ fanout = 4 }}
cubes = 4
[types.weather.attributes]
station = {{ kind = "text" }}
celsius = {{ kind = "float", min = -40, max = 50 }}
warning = {{ kind = "category", values = ["none", "yellow", "red"] }}
[types.ticks]
reduction = "{ticks}"
cubes = 1
[types.ticks.attributes]
n = {{ kind = "int" }}
"""


class Drill:
    """Random clients on real topics, and what each must get."""

    def __init__(self, services, folder, prefix, seed=1):
        self.rng = random.Random(seed)
        self.folder, self.prefix, self.services = folder, prefix, services
        self.path = folder / "hilcast.toml"
        self.configure("mics", "negative-space", "hybrid")
        self.config = load(self.path)
        self.job = RunningJob(self.path)
        self.wire = Wire(services.kafka, prefix)
        self.filters = {name: filters(t, seed) for name, t in self.config.types.items()}
        self.events = {name: events(t, seed) for name, t in self.config.types.items()}
        self.plain = {
            name: {a.name: {"kind": a.kind, **({"values": list(a.values)} if a.values else {})} for a in t.attributes}
            for name, t in self.config.types.items()
        }
        self.live = {}
        self.expected = defaultdict(set)
        self.sent = 0
        self.matched = 0

    def configure(self, quote, weather, ticks):
        """Write the configuration with one reduction per type."""
        reductions = {"quote": quote, "weather": weather, "ticks": ticks}
        where = {"prefix": self.prefix, "kafka": self.services.kafka, "redis": self.services.redis}
        self.path.write_text(CONFIG.format(**where, **reductions))

    def more_of(self):
        """Further members of a subscription."""
        return {}

    def change(self, n, withdraw=0.25):
        for _ in range(n):
            broker = self.rng.choice(self.config.overlay.brokers)
            type_name = self.rng.choice(list(self.config.types))
            id = f"s{self.rng.randint(0, 60)}"
            if self.rng.random() < withdraw:
                self.wire.withdraw(broker, type_name, id)
                self.live.pop((broker, type_name, id), None)
                continue
            client, text = f"c{self.rng.randint(0, 12)}", self.filters[type_name]()
            self.wire.subscribe(broker, type_name, id, client, text, **self.more_of())
            self.live[broker, type_name, id] = (client, oracle.tree_of(text))
        self.wire.flush()

    def publish(self, n):
        for _ in range(n):
            type_name = self.rng.choice(list(self.config.types))
            event = self.events[type_name]()
            broker = self.rng.choice(self.config.overlay.brokers)
            self.wire.publish(broker, type_name, str(self.sent), event, key=str(self.rng.randint(0, 50)))
            hit = False
            for (_, of_type, id), (client, tree) in self.live.items():
                if of_type == type_name and oracle.evaluate(tree, event, self.plain[type_name]):
                    self.expected[client, str(self.sent)].add(id)
                    hit = True
            self.matched += hit
            self.sent += 1
        self.wire.flush()

    def compare(self):
        """Every delivery so far against the oracle; returns how many repeats there were."""
        self.wire.routed(self.sent)
        got, repeats, ids = {}, 0, {}
        for record in self.wire.read(*self.wire.under("deliver")):
            place = (record.header("hilcast_client"), record.header("ce_id"))
            assert record.topic == f"{self.prefix}.deliver.{place[0]}"
            names = set(record.header("hilcast_subscriptions").split(","))
            if place in got:
                repeats += 1
                assert ids[place] == record.header("hilcast_delivery")
            got.setdefault(place, names)
            ids[place] = record.header("hilcast_delivery")
        missing = {k: v for k, v in self.expected.items() if k not in got}
        wrong = {k: v for k, v in got.items() if k not in self.expected}
        assert not missing, f"{len(missing)} of {len(self.expected)} missing: {list(missing.items())[:3]}"
        assert not wrong, f"{len(wrong)} wrong: {list(wrong.items())[:3]}"
        assert got == dict(self.expected)
        assert len(set(ids.values())) == len(ids)
        return repeats


@pytest.mark.services
def test_overlay_equals_flooding_through_every_fault(services, tmp_path, unique):
    """Nothing is missing or wrong through changes, restart, kill -9, FLUSHALL, a lost checkpoint, a new reduction."""
    drill = Drill(services, tmp_path, unique)
    job = drill.job.start()
    try:
        drill.change(250, withdraw=0.1)
        job.wait()
        drill.publish(600)
        assert drill.compare() == 0
        assert drill.matched > drill.sent / 5

        drill.change(80)
        job.wait()
        drill.publish(300)
        drill.compare()

        drill.change(60)
        time.sleep(0.7)  # a batch is planned, not yet committed
        job.kill()
        job.start()
        job.wait()
        drill.publish(300)
        time.sleep(0.4)
        job.kill()
        job.start()
        drill.compare()

        redis.Redis.from_url(services.redis).flushall()
        drill.publish(200)
        drill.compare()
        drill.change(40)
        job.wait()
        drill.publish(200)
        drill.compare()

        job.stop()
        shutil.rmtree(tmp_path / "checkpoint")
        job.start()
        job.wait()
        drill.publish(200)
        drill.compare()

        assert job.stop() == 0
        drill.publish(100)  # while nobody routes
        drill.configure("covering", "none", "negative-space")
        job.start()
        drill.compare()
        drill.change(40)
        job.wait()
        drill.publish(200)
        drill.compare()
    finally:
        job.end()
