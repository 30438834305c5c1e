"""The running job takes other configurations while publications flow: nothing stops, nothing is lost."""

from __future__ import annotations

import json
import signal
import threading
import time

import pytest

from infra.kafka.topic_keeper import TopicKeeper
from producers.cli import main
from state.config import load
from state.space.ranks import ABSENT
from tests.integration.harness import RunningJob, Wire

CONFIG = """
[deployment]
prefix = "{prefix}"
kafka = "{kafka}"
redis = "{redis}"
checkpoint = "checkpoint"
[settings]
home_shards = 2
wide_shards = 1
tune_s = 1
changed_file = "{changed_file}"
[overlay]
brokers = {brokers}
links = {links}
[types.t]
reduction = "{reduction}"
cubes = {cubes}
[types.t.attributes]
x = {{ kind = "int", min = 0, max = 100, cells = "{cells}" }}
y = {{ kind = "int", min = 0, max = 100 }}
{more}
"""
FIRST = {
    "brokers": '["b1", "b2"]',
    "links": '[["b1", "b2"]]',
    "reduction": "covering",
    "cubes": 4,
    "more": "",
    "cells": "uniform",
    "changed_file": "apply",
}


class Publishing(threading.Thread):
    """Publishes events of x = 5 and x = 50 at b2, one after another, until it is told to stop."""

    def __init__(self, wire):
        super().__init__(daemon=True)
        self.wire, self.sent, self.stopping = wire, 0, threading.Event()

    def run(self):
        while not self.stopping.wait(0.02):
            self.wire.publish("b2", "t", f"e{self.sent}", {"x": (5, 50)[self.sent % 2], "y": 1})
            self.sent += 1


def judge(wire, publishing, since):
    """Everything that was published was delivered to whom it concerned while it concerned them, and to nobody else."""
    publishing.stopping.set()
    publishing.join()
    publishing.wire.flush()
    wire.routed(publishing.sent + 1)
    ids = [record.header("ce_id") for record in wire.read("deliver.c1")]
    assert set(ids) == {f"e{i}" for i in range(0, publishing.sent, 2)}
    assert {record.header("ce_id") for record in wire.read("deliver.c4")} == {"u1"}
    third = {int(record.header("ce_id")[1:]) for record in wire.read("deliver.c3")}
    assert third, "it was in force while b3 was there"
    assert all(i % 2 for i in third)
    assert min(third) <= since + 2


def until_moved(path, capsys):
    """Wait until the router has moved the cells of x to where its values are: below 50, and from there on."""
    deadline, starts = time.monotonic() + 120, set()
    while starts != {ABSENT, 50}:
        assert time.monotonic() < deadline, "the cells were not moved"
        time.sleep(0.5)
        capsys.readouterr()
        assert main(["grid", "t", "--config", str(path)]) == 0
        starts = set(json.loads(capsys.readouterr().out)["starts"][0][1:])


def launch_until(job, *said):
    """Start a life of the job; return once it has said these, one after another."""
    heard = job.log.stat().st_size
    job.launch()
    return hear(job, heard, *said)


def hear(job, heard, *said):
    """Wait until what a job says behind `heard` bytes has these, one after another; how far that is."""
    deadline = time.monotonic() + 60
    for one in said:
        while (at := job.log.read_bytes().find(one.encode(), heard)) < 0:
            assert job.process.poll() is None, job.tail()
            assert time.monotonic() < deadline, f"not said: {one}\n{job.tail()}"
            time.sleep(0.2)
        heard = at + len(one)
    return heard


def who_waits(job, write, run):
    """A job whose file is another one starts nothing, and has nobody take it, until it is told to."""
    assert job.stop() == 0
    write(cubes=1, cells="quantile", reduction="mics", changed_file="wait")
    waits = "waiting: [types] of the file is not as the deployments agreed"
    launch_until(job, waits)
    assert job.stop() == 0, "nothing holds up who only waits"
    heard = launch_until(job, waits)
    assert run("apply", "--dry-run")[1]["changes"]["lines"], "nobody else has taken the file"
    job.process.send_signal(signal.SIGHUP)
    hear(job, heard, "is to be taken by all deployments", "starting Spark")
    assert run("apply", "--dry-run")[1]["changes"]["lines"] == []


@pytest.mark.services
def test_configurations_change_without_a_stop(services, tmp_path, unique, capsys):
    """Reduction, cubes, cells, attributes, brokers, links, types change under load; one job, one life."""
    path = tmp_path / "hilcast.toml"

    def write(**changes):
        path.write_text(CONFIG.format(prefix=unique, kafka=services.kafka, redis=services.redis, **FIRST | changes))

    def run(*words):
        capsys.readouterr()
        code = main([*words, "--config", str(path), "--json"])
        return code, json.loads(capsys.readouterr().out)

    write()
    TopicKeeper(load(path)).ensure_needed()
    wire, job = Wire(services.kafka, unique), RunningJob(path)
    publishing = Publishing(Wire(services.kafka, unique))
    try:
        job.start()
        wire.subscribe("b1", "t", "low", "c1", "x < 10")
        wire.subscribe("b1", "t", "y", "c2", "y > 50")
        wire.flush()
        job.wait()
        publishing.start()

        write(reduction="mics", cubes=1024)  # so many parts that the workers build them
        code, told = run("apply", "--dry-run")
        assert (code, told["applied"], told["changes"]["lines"]) == (0, False, ["~ type t: reduction, cubes"])
        code, told = run("apply", "--timeout", "120")
        assert (code, told["applied"]) == (0, True)
        assert run("apply")[1]["changes"]["lines"] == []

        more = 'z = { kind = "int" }\n[types.u.attributes]\nx = { kind = "int" }'
        write(brokers='["b1", "b2", "b3"]', links='[["b1", "b2"], ["b2", "b3"]]', more=more)
        code, told = run("apply", "--timeout", "120")
        assert code == 0
        assert "+ broker b3" in told["changes"]["lines"]
        assert f"{unique}.link.b2.b3" in told["changes"]["topics"]
        wire.subscribe("b3", "t", "third", "c3", "x = 50 AND y = 1 AND z IS NULL")
        wire.subscribe("b3", "u", "new", "c4", "x > 3")
        wire.flush()
        job.wait()
        since = publishing.sent
        wire.publish("b1", "u", "u1", {"x": 7})
        wire.flush()
        wire.until("deliver.c4", lambda records: len(records) == 1)
        wire.until("deliver.c3", lambda records: len(records) > 3)

        write(cubes=1, cells="quantile")  # b3 and the type u go: what is registered there falls asleep
        code, told = run("apply", "--timeout", "120")
        assert code == 0
        assert told["changes"]["dormant"] == ["b3/t/third", "b3/u/new"]
        write(cubes=1, cells="quantile", reduction="none")
        job.process.send_signal(signal.SIGHUP)  # it reads its file again
        deadline = time.monotonic() + 120
        while run("apply", "--dry-run")[1]["changes"]["lines"]:
            assert time.monotonic() < deadline, "the file was not read again"
            time.sleep(0.5)
        assert run("rebuild", "--timeout", "120")[0] == 0
        until_moved(path, capsys)
        assert run("apply", "--timeout", "120")[1]["changes"]["lines"] == []
        time.sleep(2.0)
        judge(wire, publishing, since)
        code, found = run("verify")  # all of it, each by the configuration that was in force
        assert (code, found["ok"], found["unjudged"]) == (0, True, 0), found["findings"]
        assert found["expected"] > publishing.sent / 4
        assert job.process.poll() is None, "it is the same life of the job"

        who_waits(job, write, run)
    finally:
        publishing.stopping.set()
        job.end()
