"""A stranger's tour by the command line alone: services up, the job in the foreground, and all one can do with it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request

import pytest
import redis

from hilcast import Publisher, Subscriber, load, wait
from infra.local.ports import free_port
from tests.integration.harness import ROOT

TEXT = """
[deployment]
name = "tour"
prefix = "tour"
kafka = "127.0.0.1:{kafka}"
redis = "redis://127.0.0.1:{redis}/0"
checkpoint = "checkpoint"
[overlay]
brokers = ["b1", "b2", "b3"]
links = [["b1", "b2"], ["b2", "b3"]]
[types."stock.quote"]
reduction = "negative-space"
cubes = 2
[types."stock.quote".attributes]
symbol = {{ kind = "text" }}
price = {{ kind = "float", min = 0, max = 1000 }}
[types.reading]
reduction = "none"
advertisements = true
cubes = 1
[types.reading.attributes]
celsius = {{ kind = "int" }}
[settings]
trigger_ms = 200
home_shards = 2
wide_shards = 1
metrics_port = {metrics}
"""


WAITING = ("subscribe", "unsubscribe", "advertise", "unadvertise", "wait")


class Tour:
    """A folder with a configuration, and `hilcast` run in it."""

    def __init__(self, folder):
        self.folder = folder
        self.environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        self.environment.pop("HILCAST_CONFIG", None)
        self.path = folder / "hilcast.toml"
        self.path.write_text(TEXT.format(kafka=free_port(), redis=free_port(), metrics=free_port()))
        self.job = None

    def command(self, name, *arguments):
        # the first batch of a job on a busy machine may take longer than a user would wait
        timeout = ["--timeout", "200"] if name in WAITING else []
        return [sys.executable, "-m", "producers.cli", name, *timeout, *arguments]

    def hilcast(self, *arguments, input=None, timeout=240):
        return subprocess.run(
            self.command(*arguments),
            cwd=self.folder,
            env=self.environment,
            input=input,
            capture_output=True,
            text=True,
            timeout=timeout,
        )

    def done(self, *arguments, **more):
        """Run a command that must end with 0; its output."""
        ended = self.hilcast(*arguments, **more)
        assert ended.returncode == 0, f"{arguments}: {ended.stdout}{ended.stderr}{self.log()}"
        return ended.stdout

    def log(self):
        path = self.folder / "job.err"
        return path.read_text(errors="replace")[-3000:] if path.exists() else ""

    def start(self):
        with (self.folder / "job.out").open("wb") as out, (self.folder / "job.err").open("wb") as err:
            self.job = subprocess.Popen(
                self.command("run"),
                cwd=self.folder,
                env=self.environment,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        deadline = time.monotonic() + 300
        while b"ready" not in (self.folder / "job.out").read_bytes():
            assert self.job.poll() is None, self.log()
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.2)

    def stop(self):
        if self.job is not None and self.job.poll() is None:
            self.job.send_signal(signal.SIGTERM)
            try:
                self.job.wait(120)
            except subprocess.TimeoutExpired:
                self.job.kill()
                self.job.wait(30)
        return None if self.job is None else self.job.returncode

    def tail(self, client, count, *more):
        lines = self.done("tail", client, "--count", str(count), "--timeout", "120", "--json", *more).splitlines()
        return [json.loads(line) for line in lines]

    def verified(self):
        """`verify` once everything is routed."""
        deadline = time.monotonic() + 120
        while True:
            judged = json.loads(self.done("verify", "--json"))
            if judged["pending"] == 0 or time.monotonic() > deadline:
                return judged
            time.sleep(0.5)


@pytest.fixture(scope="module")
def tour(tmp_path_factory):
    """Services and job by `hilcast up` and `hilcast run`; ended by SIGTERM and `hilcast down`."""
    made = Tour(tmp_path_factory.mktemp("tour"))
    shown = made.done("up")
    assert "kafka started at 127.0.0.1" in shown
    try:
        assert "already runs" in made.done("up")
        made.start()
        yield made
        assert made.stop() == 0, made.log()
    finally:
        made.stop()
        shown = made.done("down")
    assert "kafka stopped" in shown
    assert "kafka was not running" in made.done("down")


pytestmark = pytest.mark.services


def test_filters_find_their_events(tour):
    """Subscribe at one broker, publish at another: the client gets what matches, once, and verify agrees."""
    receipt = json.loads(
        tour.done("subscribe", "-b", "b1", "-t", "stock.quote", "-c", "alice", "--id", "s1", "price < 100")
    )
    assert (receipt["kind"], receipt["key"], receipt["version"]) == ("accepted", "b1/stock.quote/s1", 1)
    tour.done("subscribe", "-b", "b3", "-t", "stock.quote", "-c", "alice", "--id", "s2", "symbol LIKE 'I%'")
    refused = tour.hilcast("subscribe", "-b", "b1", "-t", "stock.quote", "-c", "alice", "--id", "s3", "price <")
    assert refused.returncode == 1
    assert json.loads(refused.stdout)["code"] == "filter-syntax"
    assert refused.stderr.startswith("hilcast: filter-syntax: ")
    assert "in force everywhere" in tour.done("wait")
    tour.done("publish", "-b", "b2", "-t", "stock.quote", "--id", "e1", '{"symbol": "IBM", "price": 40}')
    lines = '{"symbol": "SAP", "price": 60}\n{"symbol": "SAP", "price": 600}\n{"symbol": "IBM", "price": 700}\n'
    names = tour.done("publish", "-b", "b3", "-t", "stock.quote", input=lines).split()
    first, *others = tour.tail("alice", 3)
    found = {(d["id"], tuple(d["subscriptions"])) for d in (first, *others)}
    assert found == {("e1", ("s1", "s2")), (names[0][8:], ("s1",)), (names[2][8:], ("s2",))}
    judged = tour.verified()
    assert (judged["expected"], judged["delivered"], judged["undecided"]) == (3, 3, 0)


def test_replacing_withdrawing_and_expiring(tour):
    """A replaced filter, a withdrawn subscription and one whose time is up no longer bring what they brought."""
    for id, more in (("r1", []), ("r2", []), ("r3", ["--ttl", "2"])):
        tour.done("subscribe", "-b", "b2", "-t", "stock.quote", "-c", "bob", "--id", id, *more, "price = 1")
    again = ["subscribe", "-b", "b2", "-t", "stock.quote", "-c", "bob", "--id", "r1", "price = 2"]
    assert json.loads(tour.done(*again))["kind"] == "replaced"
    gone = json.loads(tour.done("unsubscribe", "-b", "b2", "-t", "stock.quote", "r2"))
    assert (gone["kind"], gone["version"]) == ("withdrawn", 2)
    deadline = time.monotonic() + 120
    while "r3" in json.loads(tour.done("inspect", "b2", "stock.quote", "--json"))["local"]:
        assert time.monotonic() < deadline, "the subscription does not expire"
        time.sleep(0.5)
    tour.done("wait")
    tour.done("publish", "-b", "b1", "-t", "stock.quote", "--id", "one", '{"price": 1}')
    tour.done("publish", "-b", "b1", "-t", "stock.quote", "--id", "two", '{"price": 2}')
    (found,) = tour.tail("bob", 1)
    assert (found["id"], found["subscriptions"]) == ("two", ["r1"])
    assert tour.verified()["ok"]
    assert len(tour.done("tail", "bob", "--once").splitlines()) == 1


def test_where_advertising_is_a_duty(tour):
    """An event without an advertisement becomes a dead letter; with one it is delivered."""
    tour.done("subscribe", "-b", "b3", "-t", "reading", "-c", "carol", "--id", "w1", "celsius > 30")
    tour.done("advertise", "-b", "b1", "-t", "reading", "-p", "roof", "--id", "a1", "celsius < 50")
    tour.done("wait")
    for id, celsius in (("warm", 40), ("boiling", 90)):
        tour.done("publish", "-b", "b1", "-t", "reading", "--source", "roof", "--id", id, f'{{"celsius": {celsius}}}')
    (found,) = tour.tail("carol", 1)
    assert found["id"] == "warm"
    judged = tour.verified()
    assert judged["ok"]
    assert judged["refused"] == 1
    assert json.loads(tour.done("unadvertise", "-b", "b1", "-t", "reading", "a1"))["kind"] == "withdrawn"


@pytest.mark.parametrize("transport", ["confluent", "kafka-python"])
def test_the_library_over_both_clients(tour, transport):
    """The same few lines of Python work with either Kafka client."""
    config, name = load(tour.path), f"dora-{transport}"
    with (
        Subscriber(config, name, transport=transport) as dora,
        Publisher(config, broker="b3", type="stock.quote", source=name, transport=transport) as publisher,
    ):
        assert dora.subscribe("b1", "stock.quote", "price BETWEEN 7 AND 8", timeout_s=200).kind == "accepted"
        wait(config, 200)
        ids = [publisher.publish({"price": price, "from": name}, key="k") for price in (6, 7, 8, 9)]
        publisher.flush()
        found = []
        for delivery in dora.deliveries(quiet_s=120):
            found.append(delivery.event_id)
            if len(found) == 2:
                break
    assert found == ids[1:3]


def test_looking_at_it(tour):
    """Status shows figures, batches and no lag; inspect what brokers hold; the doctor is content."""
    shown = json.loads(tour.done("status", "--json"))
    assert {q["query"]: q["lag"] for q in shown["queries"]} == {"control": 0, "route": 0}
    assert shown["figures"]["routed"] >= 10
    assert shown["figures"]["copies"] >= 5
    assert "b1 > b2" in tour.done("status")
    broker = json.loads(tour.done("inspect", "b1", "stock.quote", "--json"))
    assert broker["local"]["s1"].startswith("alice -> tour.deliver.alice")
    assert broker["parts_in_use"] == broker["parts_wanted"]
    assert all(n["forwarded"] > 0 for n in broker["neighbours"])
    assert "forwarded" in tour.done("inspect")
    assert "FAIL" not in tour.done("doctor")
    with urllib.request.urlopen(f"http://127.0.0.1:{load(tour.path).settings.metrics_port}/metrics") as answer:
        metrics = dict(line.rsplit(" ", 1) for line in answer.read().decode().splitlines() if line[0] != "#")
    assert float(metrics['hilcast_events_routed_total{deployment="tour"}']) == shown["figures"]["routed"]
    assert 'hilcast_link_wasted_total{deployment="tour",link="b1>b2"}' in metrics


def test_what_the_reductions_hold(tour):
    """Entries are received, and forwarded or withheld; Redis has the same figures, and again after it was emptied."""
    for id, text in (("wide", "price < 50 OR price >= 50 OR price IS NULL"), ("narrow", "price = 3")):
        tour.done("subscribe", "-b", "b1", "-t", "stock.quote", "-c", "erin", "--id", id, text)
    tour.done("wait")
    before = json.loads(tour.done("inspect", "b1", "stock.quote", "--json"))
    (towards,) = before["neighbours"]
    assert towards["received"] == towards["forwarded"] + towards["withheld"]
    assert min(towards["withheld"], towards["bytes"]) > 0
    client = redis.Redis.from_url(load(tour.path).deployment.redis, decode_responses=True)

    def stored():
        names = client.keys("tour:b1:stock.quote:*:reduction:b2")
        return [client.hgetall(name) for name in sorted(names)]

    assert sum(int(part["received"]) for part in stored()) == towards["received"]
    assert sum(int(part["negative_boxes"]) for part in stored()) == towards["negative_boxes"]
    kept = stored()
    client.flushall()
    deadline = time.monotonic() + 120
    while stored() != kept:
        assert time.monotonic() < deadline, f"the figures do not come back: {stored()}"
        time.sleep(0.5)
    client.close()
    tour.done("wait")
    assert json.loads(tour.done("inspect", "b1", "stock.quote", "--json"))["neighbours"] == before["neighbours"]
    tour.done("unsubscribe", "-b", "b1", "-t", "stock.quote", "wide")


def test_one_job_at_a_time(tour):
    """A second job on the same checkpoint is refused with a message."""
    second = tour.hilcast("run")
    assert second.returncode == 1
    assert "checkpoint-locked" in second.stderr


def test_in_the_end_everything_was_right(tour):
    """All that this module did, recomputed by flooding: nothing missing, nothing wrong."""
    shown = tour.done("verify")
    assert "nothing missing, nothing wrong" in shown


def test_explaining_and_costing(tour):
    """A published event is explained hop by hop from the job's index; a filter's share is counted on what was sent."""
    tour.done("subscribe", "-b", "b1", "-t", "stock.quote", "-c", "erin", "--id", "why", "price BETWEEN 11 AND 12")
    tour.done("wait")
    (name,) = tour.done("publish", "-b", "b3", "-t", "stock.quote", '{"symbol": "IBM", "price": 11.5}').split()
    found = json.loads(tour.done("explain", name, "b1/stock.quote/why", "--json"))
    assert (found["matches"], found["reaches"], found["path"]) == (True, True, ["b3", "b2", "b1"])
    assert {hop["carried"] for hop in found["hops"]} == {True}
    assert {(s["broker"], s["towards"], s["how"]) for s in found["forwarding"]} == {
        ("b1", "b2", "covered by b1/s1"),
        ("b2", "b3", "forwarded"),
    }
    cost = json.loads(tour.done("cost", "-t", "stock.quote", "price BETWEEN 11 AND 12", "--json"))
    assert (cost["share_from"], cost["sample"]["matching"] >= 1) == ("publications", True)
