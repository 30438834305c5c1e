"""Every reduction, half of them with advertisements, and groups, on Spark clusters and real services, while it changes.

Two deployments make the overlay, each on a cluster of its own: one by `hilcast run`, one by `spark-submit`. A cluster
is a master and workers with directories of their own: executors share Kafka, Redis and the checkpoint, nothing else;
not even this checkout, for our code comes from the driver. The checkpoints lie on a file system of another scheme.

Each event has subscriptions that must bring it and others that may, those that are being changed: what is possible are
the states between two fences. Missing is a must that was not delivered, wrong is what not even a may explains.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import sys
import time
from collections import defaultdict

import pytest
import redis

from benchmarks.workloads.mixed import events, filters
from infra.local import jars
from producers import cli
from state.config import load
from state.messages import read_members
from tests import oracle
from tests.integration.harness import ROOT, RunningJob, Wire
from tests.integration.spark_cluster import HOME, SparkCluster

BROKERS = ["b1", "b2", "b3", "b4", "b5"]
LINKS = [["b1", "b2"], ["b2", "b3"], ["b2", "b4"], ["b4", "b5"]]
VARIANTS = {
    "none": ("none", ""),
    "covering": ("covering", ""),
    "merging": ("merging", "budget = 0.3"),
    "mics": ("mics", ""),
    "mics-imperfect": ("mics", 'merging = "imperfect"\nbudget = 0.3'),
    "mics-indexed": ("mics", 'mode = "indexed"'),
    "negative-space": ("negative-space", ""),
    "negative-space-approximate": ("negative-space", 'mode = "approximate"\nk = 3'),
    "hybrid": ("hybrid", ""),
    "probabilistic": ("probabilistic", "error = 0.001"),
}
GROUPS = "[distribution.b2]\ngroups = 3\nregroup_s = 2\n[distribution.b5]\ngroups = 2\nbroadcast = 0.4\nregroup_s = 2\n"
STANDING = {"low": ("price < 500", ["b1", "b4"]), "high": ("NOT (price < 500)", ["b3", "b5"])}
"""Publishers whose advertisements stay: what each promises, and where."""
HOSTS = {"east": ["b1", "b2", "b3"], "west": ["b4", "b5"]}
BETWEEN = ("link.b2.b4", "link.b4.b2")
"""What the deployments tell each other of events."""
CHECKPOINT = "viewfs:///shared/{}"
"""Hadoop's own, mapped to a directory: to the job it is as foreign as `hdfs://`."""
NARROW, WIDE = (f"home_shards = 1\nwide_shards = 1\ndelivery_partitions = {n}" for n in (1, 2))
"""Beside them an index folder below where an executor runs: each has an index of its own, as a host would."""
TIMEOUT_S = 600.0
"""New executors start from nothing: interpreters, our code, kernels, index."""
IDS = 14
"""Subscriptions of each type; the first half stays as it was first."""
RATE = 60
"""Events of each type and second."""
CHANGES = 102
"""Changes of each type."""


def type_text(name, reduction, parameters, advertisements):
    return f"""
[types."{name}"]
reduction = "{reduction}"
advertisements = {str(advertisements).lower()}
cubes = 2
index = ["price", "volume"]
[types."{name}".parameters]
{parameters}
[types."{name}".attributes]
symbol = {{ kind = "text" }}
price = {{ kind = "float", min = 0, max = 1000 }}
volume = {{ kind = "int", min = 0, max = 1000000 }}
side = {{ kind = "category", values = ["buy", "sell", "none"] }}
"""


class Churn:
    """Clients and publishers, and what the possible states of the subscriptions let each event bring."""

    def __init__(self, services, folder, prefix, clusters):
        self.rng = random.Random(11)
        (folder / "shared").mkdir()
        for name, cluster in clusters.items():
            self.configure(services, folder, prefix, name, cluster)
        self.path = folder / "east.toml"
        self.types = load(self.path).types
        self.prefix, self.wire = prefix, Wire(services.kafka, prefix)
        some = self.types["none"]
        self.filter, self.event = filters(some, 5), events(some, 6)
        self.plain = {a.name: {"kind": a.kind, "values": list(a.values)} for a in some.attributes}
        self.possible = defaultdict(lambda: [None])
        """By (type, number): the filters that may be in force, read, None for none; the last one is the newest."""
        self.published = []
        """Since the last fence: type, id and event."""
        self.sent = self.changes = 0
        self.must, self.may = {}, {}
        self.lost = 0
        """Deliveries that `probabilistic` may lose, and lost."""

    def configure(self, services, folder, prefix, name, cluster):
        """Write the configuration of one deployment, hosting its brokers on its cluster."""
        where = {"name": name, "prefix": prefix, "kafka": services.kafka, "redis": services.redis}
        where |= {"checkpoint": CHECKPOINT.format(name), "hosts": HOSTS[name]}
        lines = ["[deployment]", *(f"{k} = {json.dumps(v)}" for k, v in where.items())]
        lines += ["[overlay]", f"brokers = {json.dumps(BROKERS)}", f"links = {json.dumps(LINKS)}"]
        lines += ["[settings]", NARROW, 'index_folder = "index"', f"master = {json.dumps(cluster.master)}"]
        spark = cluster.settings | {"spark.hadoop.fs.viewfs.mounttable.default.link./shared": f"file://{folder}/shared"}
        lines += ["[spark]", *(f"{json.dumps(k)} = {json.dumps(v)}" for k, v in spark.items()), GROUPS]
        for place, (type_name, variant) in enumerate(VARIANTS.items()):
            advertised = place % 2 == 1
            lines.append(type_text(f"{type_name}.advertised" if advertised else type_name, *variant, advertised))
        (folder / f"{name}.toml").write_text("\n".join(lines))

    # ── what happens ────────────────────────────────────────────────────────────────────────────────────────────

    def where(self, type_name, number):
        """The broker and the client of a subscription, the same for ever."""
        place = list(self.types).index(type_name) + number
        return BROKERS[place % len(BROKERS)], f"c{place % 7}"

    def advertise(self):
        for publisher, (text, brokers) in STANDING.items():
            for name in self.types:
                for broker in brokers:
                    value = {"publisher": publisher, "filter": text}
                    self.wire.send("advertisements", value, key=f"{broker}/{name}/{publisher}")

    def change(self, type_name, number):
        """Subscribe, replace, withdraw, or let expire; now and then an advertisement comes or goes."""
        broker, client = self.where(type_name, number)
        states, chance = self.possible[type_name, number], self.rng.random()
        key = f"{broker}/{type_name}/{type_name.replace('.', '-')}_{number}"
        self.changes += 1
        if chance < 0.3 and states[-1] is not None:
            self.wire.send("subscriptions", None, key=key)
            states.append(None)
            return
        value = {"client": client, "filter": self.filter(), "groups": number % 3 > 0}
        states.append(oracle.tree_of(value["filter"]))
        if 0.3 <= chance < 0.5 and number >= IDS // 2:
            value["ttl_ms"] = self.rng.randint(200, 3000)
            states.append(None)
        self.wire.send("subscriptions", value, key=key)
        if type_name.endswith(".advertised") and self.rng.random() < 0.2:
            gone = self.rng.random() < 0.5
            value = None if gone else {"publisher": "extra", "filter": self.filter()}
            at = f"{self.rng.choice(BROKERS)}/{type_name}/extra{self.rng.randint(0, 2)}"
            self.wire.send("advertisements", value, key=at)

    def publish(self, type_name):
        event, publisher, brokers = self.event(), "any", BROKERS
        if type_name.endswith(".advertised"):
            while not isinstance(event.get("price"), int | float):
                event = self.event()
            publisher = next(p for p, (text, _) in STANDING.items() if oracle.evaluate(text, event, self.plain))
            brokers = STANDING[publisher][1]
        id = str(self.sent)
        self.wire.publish(self.rng.choice(brokers), type_name, id, event, source=publisher, key=id)
        self.published.append((type_name, id, event))
        self.sent += 1

    def widen(self):
        """Have both deployments go on with delivery topics of two partitions, while events are on their way."""
        self.path.write_text(self.path.read_text().replace(NARROW, WIDE))
        assert cli.main(["apply", "--timeout", str(TIMEOUT_S), "--config", str(self.path)]) == 0

    def fence(self, job):
        """Let everything come into force; what was possible until now is decided for the events until now."""
        self.wire.flush()
        self.wire.routed(self.sent, timeout_s=TIMEOUT_S)
        job.wait(TIMEOUT_S)
        self.wire.drained(*BETWEEN, timeout_s=TIMEOUT_S)  # what crosses late would be judged by what comes then
        of_type = defaultdict(list)
        for (name, number), states in self.possible.items():
            of_type[name].append((number, states[:]))
            expiring = len(states) > 1 and states[-1] is None
            del states[: -2 if expiring else -1]  # one that expires may not have done so yet
        for name, id, event in self.published:
            for number, states in of_type[name]:
                held = [tree is not None and oracle.evaluate(tree, event, self.plain) for tree in states]
                named = (self.where(name, number)[1], id)
                if all(held):
                    self.must.setdefault(named, set()).add(f"{name.replace('.', '-')}_{number}")
                if any(held):
                    self.may.setdefault(named, set()).add(f"{name.replace('.', '-')}_{number}")
        self.published = []

    # ── what came ───────────────────────────────────────────────────────────────────────────────────────────────

    def compare(self):
        """Everything that came, by whichever topic, against what must and what may."""
        got, shared = defaultdict(set), 0
        for record in self.wire.read(*self.wire.under("deliver")):
            named = (record.header("hilcast_client"), record.header("ce_id"))
            got[named] |= set(record.header("hilcast_subscriptions").split(","))
        for record in self.wire.read(*self.wire.under("group", "broadcast")):
            shared += 1
            for client, ids in read_members(record.header("hilcast_members").encode()).items():
                got[client, record.header("ce_id")] |= set(ids.split(","))
        missing = {k: v - got[k] for k, v in self.must.items() if v - got[k]}
        lossy = {k: {id for id in v if id.startswith("probabilistic")} for k, v in missing.items()}
        self.lost = sum(map(len, lossy.values()))
        missing = {k: v - lossy[k] for k, v in missing.items() if v - lossy[k]}
        wrong = {k: v - self.may.get(k, set()) for k, v in got.items() if v - self.may.get(k, set())}
        assert not missing, f"{len(missing)} of {len(self.must)} missing: {list(missing.items())[:3]}"
        assert not wrong, f"{len(wrong)} wrong: {list(wrong.items())[:3]}"
        return shared


def steadily(churn, seconds, changes):
    """Publish at the rate for some seconds, with so many changes of each type in between."""
    names = list(churn.types)
    began = time.monotonic()
    rounds = round(seconds * 10)
    for i in range(rounds):
        for name in names:
            for _ in range(RATE // 10):
                churn.publish(name)
            for _ in range(changes * (i + 1) // rounds - changes * i // rounds):
                churn.change(name, churn.rng.randint(IDS // 2, IDS - 1))
        churn.wire._producer.poll(0)
        time.sleep(max(0.0, began + (i + 1) / 10 - time.monotonic()))
    churn.wire.flush()


class SubmittedJob(RunningJob):
    """The same job as `spark-submit` starts it (docs/operations.md)."""

    def __init__(self, path, cluster):
        super().__init__(path)
        self.master = cluster.master
        self.environment = {"PYSPARK_PYTHON": str(cluster.python), "PYSPARK_DRIVER_PYTHON": sys.executable}

    def command(self):
        main = ROOT / "infra" / "kubernetes" / "main.py"
        submit = [str(HOME / "bin" / "spark-submit"), "--master", self.master, "--jars", jars.spark_jars()]
        return [*submit, str(main), str(self.path)]


@pytest.mark.services
def test_no_reduction_has_a_gap_while_everything_changes(services, tmp_path, unique):
    """100 changes of each reduction under 60 events a second, then every fault: nothing missing, nothing wrong."""
    clusters = {name: SparkCluster(tmp_path / f"{name}-cluster") for name in HOSTS}
    cluster = clusters["east"]
    jobs = []
    try:
        churn = Churn(services, tmp_path, unique, clusters)
        job, other = RunningJob(churn.path), SubmittedJob(tmp_path / "west.toml", clusters["west"])
        job.environment = {"PYSPARK_PYTHON": str(cluster.python)}
        jobs = [job, other]
        cluster.add("one")
        cluster.add("two")
        clusters["west"].add("four")
        for each in jobs:
            each.launch()
        for each in jobs:
            each.until_ready(TIMEOUT_S)
        assert all(len(cluster.executors(name)) == 1 for name in ("one", "two")), "both work"
        assert len(clusters["west"].executors("four")) == 1
        assert not [line for each in clusters.values() for line in each.told()], "who lists processes learns no secret"
        through_changes(churn, job)
        through_faults(churn, job, cluster, services)
        assert [each.process.poll() for each in jobs] == [None, None], "no driver has ended"
        assert job.stop() == 0
        shipped = [path.parts for path in tmp_path.glob("*-cluster/*/app-*/*/hilcast-code")]
        each = {"one", "two", "three", "four"}
        assert each <= {part for parts in shipped for part in parts}, "each executor had our code"
        assert [path.name for path in (tmp_path / "shared" / "east").glob("owner.*")] == ["owner.1"]
        assert cli.main(["verify", "--config", str(churn.path)]) == 0
    finally:
        for each in jobs:
            each.end()
        for each in clusters.values():
            each.close()


def through_changes(churn, job):
    """Everything changes under events."""
    churn.advertise()
    for name in churn.types:
        for number in range(IDS):
            churn.change(name, number)
    churn.fence(job)
    steadily(churn, 2.0, CHANGES // 2)
    churn.widen()
    loaded = "loaded beforehand, executors: 2|not loaded before it is in force: 1 of 2 executors have it"
    assert re.search(f"generation 2 is ({loaded})", job.log.read_text()), "each was asked; one may be busy all the time"
    churn.fence(job)  # a fence now and then keeps apart what is possible
    steadily(churn, 2.0, CHANGES // 2)
    churn.fence(job)
    assert churn.compare() > 0, "some were served together"
    assert len(churn.must) > churn.sent / 5
    assert any(churn.may[k] - churn.must.get(k, set()) for k in churn.may), "something was changing"


def through_faults(churn, job, cluster, services):
    """An executor killed, a worker lost and another one added, Redis held and then emptied, the driver killed."""
    must = len(churn.must)
    (executor,) = cluster.executors("one")
    steadily(churn, 1.0, 10)
    os.kill(executor, signal.SIGKILL)
    steadily(churn, 1.0, 10)
    churn.fence(job)
    cluster.lose("two")
    redis.Redis.from_url(services.redis).client_pause(2000)
    steadily(churn, 1.0, 10)
    cluster.add("three")
    churn.fence(job)
    assert job.process.poll() is None, "the driver has not ended"

    job.kill()
    steadily(churn, 1.0, 10)
    job.start(TIMEOUT_S)
    redis.Redis.from_url(services.redis).flushall()
    steadily(churn, 1.0, 10)
    churn.fence(job)
    churn.compare()
    assert len(churn.must) > must
    assert churn.lost <= 0.05 * len(churn.must)
