"""Live figures as Prometheus text, and health: what a scraper and a probe read on the port."""

from __future__ import annotations

import json
import os
import re
import subprocess
import urllib.error
import urllib.request

import pytest
import redis

from infra.local.ports import free_port
from state.config import parse
from streaming.health import SILENT_S, Health
from streaming.metrics import HELP, MetricsServer, render, samples

CONFIG = """
[deployment]
name = "main"
[overlay]
brokers = ["b1"]
[types.t.attributes]
x = {{ kind = "int" }}
[settings]
metrics_port = {port}
"""
FIGURES = {
    "routed": "123456789",
    "unmatched": "1",
    "copies": "9",
    "dead_letters": "2",
    "entries_offered": "5",
    "entries_sent": "8",
    "link:b1>b2": "3",
    "link_wasted:b1>b2": "1",
    "batch_seconds:route": "0.25",
    "lag:control": "4",
    "pruned:subscriptions": "6",
    "refused:over-quota": "2",
    "lost:route": "7",
    "quarantined:route": "1",
    **{f"distribution:b1:{name}": "1" for name in ("unicast", "unicast_spared", "group", "group_saved")},
    "distribution:b1:broadcast_discarded": "1",
}
LINE = re.compile(r'hilcast_(\w+)\{((?:\w+="[^"]*",?)+)\} (-?[0-9.e+]+)')


def read(text):
    """Samples of Prometheus text, read without our code: (name, labels) -> value, and the type of each name."""
    found, kinds = {}, {}
    for line in text.splitlines():
        if line.startswith("# TYPE"):
            _, _, name, kind = line.split()
            kinds[name.removeprefix("hilcast_")] = kind
        elif not line.startswith("#"):
            name, labels, value = LINE.fullmatch(line).groups()
            found[name, tuple(sorted(re.findall(r'(\w+)="([^"]*)"', labels)))] = float(value)
    return found, kinds


def test_every_figure_has_a_sample_and_every_sample_a_help():
    """All names with help come out of a full set of figures, and nothing else; counters never go down."""
    found, kinds = read(render(samples(FIGURES), "main"))
    assert {name for name, _ in found} == set(kinds) == set(HELP)
    main = ("deployment", "main")
    assert found["events_routed_total", (main,)] == 123456789
    assert found["link_wasted_total", (main, ("link", "b1>b2"))] == 1
    assert found["lag", (main, ("query", "control"))] == 4
    assert found["distribution_saved_total", (("broker", "b1"), main, ("method", "group"))] == 1
    # what may go down is no counter
    assert (found["control_messages_saved", (main,)], kinds["control_messages_saved"]) == (-3, "gauge")
    assert {name for name, kind in kinds.items() if kind == "counter"} == {n for n in HELP if n.endswith("_total")}


def test_a_scraper_reads_what_is_true_now():
    """GET /metrics gives the figures of the moment, 503 while Redis is away, any other path 404."""
    port = free_port()
    now, away = {"routed": "1"}, []

    def figures():
        if away:
            raise redis.ConnectionError(away)
        return now

    server = MetricsServer(parse(CONFIG.format(port=port)), figures, Health())
    try:
        for count in ("1", "2"):
            now["routed"] = count
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
                assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
                found, _ = read(answer.read().decode())
            assert {name: value for (name, _), value in found.items() if value} == {"events_routed_total": float(count)}
            assert ("copies_total", (("deployment", "main"),)) in found, "counters begin with 0"
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=10)
        away.append("gone")
        with pytest.raises(urllib.error.HTTPError, match="503: redis-away"):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10)
    finally:
        server.close()
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10)


def asked(port, path):
    """The status of a GET, and what was said."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def test_a_probe_learns_whether_the_job_lives_and_is_ready():
    """Live as long as the JVM is; ready in that stage alone, and not when nothing was heard of the driver for long."""
    now = [100.0]
    health = Health(clock=lambda: now[0])
    server = MetricsServer(parse(CONFIG.format(port=0)), dict, health)
    try:
        assert asked(server.port, "/live") == (200, {"live": True, "jvm": None})
        assert asked(server.port, "/ready")[0] == 503
        for stage in ("standing by", "building a generation", "restarting", "stopping"):
            health.say(stage)
            status, said = asked(server.port, "/ready")
            assert (status, said["ready"], said["stage"]) == (503, False, stage)
        queries = {"control": {"runs": True, "lag": 0}, "route": {"runs": True, "lag": 7}}
        health.say("ready", 3, queries)
        said = {"ready": True, "stage": "ready", "generation": 3, "queries": queries, "said_s": 0.0}
        assert asked(server.port, "/ready") == (200, said)
        now[0] += SILENT_S
        assert asked(server.port, "/ready")[0] == 503
        assert asked(server.port, "/live")[0] == 200, "it may be busy"
        health.jvm = os.getpid()
        assert asked(server.port, "/live")[0] == 200
        child = subprocess.Popen(["true"])
        child.wait()
        health.jvm = child.pid
        assert asked(server.port, "/live") == (503, {"live": False, "jvm": child.pid})
    finally:
        server.close()
