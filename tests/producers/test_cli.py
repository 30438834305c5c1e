"""The command line without a job: usage, configuration, messages, and what needs only Kafka and Redis."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest

from infra.kafka import open_transport
from infra.kafka.topic_keeper import TopicKeeper
from infra.local.ports import free_port
from producers import cli
from producers.commands import live
from producers.commands.output import Style
from state.compiled_part import CompiledPart, LocalEntry, compile_part
from state.config import load, parse
from state.control.fates import READABLE_MAX
from state.distribution.assignment import Assignment, TypeGroups
from state.keys import Key
from state.lanes import cores
from state.messages import Membership, Output, Span
from state.redis_index import RedisIndex
from state.space.boxes import Boxes
from state.space.grid import Grid
from state.space.packing import pack
from state.topics import needed
from tests.producers.test_transport import read
from tests.producers.worlds import answer, configured, delivered, grouped, text

COMMANDS = ("up", "down", "topics", "run", "wait", "subscribe", "unsubscribe", "advertise", "unadvertise", "publish")
COMMANDS += ("tail", "status", "inspect", "explain", "cost", "grid", "verify", "doctor", "ui")
ROOT = Path(cli.__file__).parents[1]


@pytest.fixture
def here(services, unique, tmp_path, monkeypatch):
    """A folder with a configuration on the real services, whose topics exist."""
    (tmp_path / "hilcast.toml").write_text(text(services, unique))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HILCAST_CONFIG", raising=False)
    return configured(services, unique)


@pytest.fixture
def wire(here):
    opened = open_transport(here)
    yield opened
    opened.close()


def run(*arguments):
    return cli.main(list(arguments))


# ── usage and configuration ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["fly"],
        ["subscribe", "-b", "b1"],
        ["wait", "--timeout", "-1"],
        ["tail", "alice", "--count", "0"],
        ["verify", "--since", "yesterday"],
        ["verify", "--since", "2026-01-01T00:00:00"],
    ],
)
def test_wrong_usage_is_two(arguments, capsys):
    """What the commands do not understand ends with 2 and a usage line."""
    with pytest.raises(SystemExit) as ended:
        run(*arguments)
    assert ended.value.code == 2
    assert "usage: hilcast" in capsys.readouterr().err


def test_every_command_of_the_contract_is_there(capsys):
    """The help names every command."""
    with pytest.raises(SystemExit) as ended:
        run("--help")
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    for command in COMMANDS:
        assert f"\n    {command} " in shown


def test_a_client_can_fetch_the_grid(tmp_path, monkeypatch, capsys):
    """What `grid` prints is a grid of which ranges are made that the router of this configuration takes."""
    monkeypatch.chdir(tmp_path)
    Path("hilcast.toml").write_text(
        '[overlay]\nbrokers = ["b1"]\n[types.t.attributes]\nx = { kind = "int", min = 0, max = 9 }'
    )
    assert run("grid", "t") == 0
    fetched = Grid.from_description(json.loads(capsys.readouterr().out))
    assert fetched.hash == Grid.of(load("hilcast.toml").types["t"]).hash
    assert run("grid", "u") == 1
    assert "unknown-type" in capsys.readouterr().err


def test_the_configuration_is_found_in_the_promised_order(tmp_path, monkeypatch, capsys):
    """`--config` before or after the command, else HILCAST_CONFIG, else ./hilcast.toml."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HILCAST_CONFIG", raising=False)
    for arguments, environment, expected in (
        (["status"], None, "hilcast.toml"),
        (["status"], "e.toml", "e.toml"),
        (["status", "--config", "c.toml"], "e.toml", "c.toml"),
        (["--config", "c.toml", "status"], "e.toml", "c.toml"),
    ):
        if environment is not None:
            monkeypatch.setenv("HILCAST_CONFIG", environment)
        assert run(*arguments) == 1
        assert f"{expected}: No such file" in capsys.readouterr().err


def test_faults_of_a_configuration_are_told_without_a_traceback(tmp_path, capsys):
    """A bad configuration ends with 1, the code, and every fault."""
    path = tmp_path / "bad.toml"
    path.write_text('[overlay]\nbrokers = ["b1"]\nlinks = [["b1", "b2"]]\n')
    assert run("topics", "--config", str(path)) == 1
    said = capsys.readouterr().err
    assert said.startswith("hilcast: bad-config:")
    assert "'b2' is not in overlay.brokers" in said
    assert "types: missing" in said


@pytest.mark.parametrize(
    "arguments",
    [
        ["status"],
        ["wait", "--timeout", "1"],
        ["subscribe", "-b", "b1", "-t", "quote", "-c", "alice", "price < 5"],
        ["publish", "-b", "b1", "-t", "quote", "{}"],
        ["tail", "alice", "--once"],
        ["verify"],
    ],
)
def test_without_kafka_every_command_says_what_to_do(services, tmp_path, arguments, capsys, monkeypatch):
    """Kafka away: one sentence with the code and the address, exit code 1."""
    monkeypatch.setattr("infra.kafka.confluent._TIMEOUT_S", 0.5)
    path = tmp_path / "hilcast.toml"
    path.write_text(text(services, "p").replace(services.kafka, f"127.0.0.1:{free_port()}"))
    assert run(*arguments, "--config", str(path)) == 1
    said = capsys.readouterr().err
    assert said.startswith("hilcast: kafka-away: Kafka at 127.0.0.1:")
    assert "hilcast up" in said
    assert len(said.strip().splitlines()) == 1


def test_without_redis_inspect_says_so(services, tmp_path, capsys):
    """Redis away: one sentence with the code, exit code 1."""
    path = tmp_path / "hilcast.toml"
    path.write_text(text(services, "p").replace(services.redis, f"redis://127.0.0.1:{free_port()}/0"))
    assert run("inspect", "--config", str(path)) == 1
    assert capsys.readouterr().err.startswith("hilcast: redis-away:")


@pytest.mark.parametrize(
    "arguments", [["wait"], ["status"], ["subscribe", "-b", "b1", "-t", "quote", "-c", "a", "TRUE"]]
)
def test_without_topics_the_command_that_makes_them_is_named(services, tmp_path, unique, arguments, capsys):
    """Nothing is sent, and nothing created by accident."""
    path = tmp_path / "hilcast.toml"
    path.write_text(text(services, unique))
    assert run(*arguments, "--config", str(path)) == 1
    said = capsys.readouterr().err
    assert "kafka-topic" in said
    assert "hilcast topics" in said


# ── topics and doctor ───────────────────────────────────────────────────────────────────────────────────────────


def test_topics_are_created_once(services, unique, tmp_path, capsys, monkeypatch):
    """`hilcast topics` names what it created, and the second time that all is there."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hilcast.toml").write_text(text(services, unique))
    assert run("topics", "--json") == 0
    created = json.loads(capsys.readouterr().out)["created"]
    assert created == sorted(needed(parse(text(services, unique))))
    assert run("topics") == 0
    assert capsys.readouterr().out == "all topics are there\n"


def test_the_topics_of_a_configuration_follow_from_it(services, unique):
    """Sources and groups need topics of their own; the truth is compacted, and everything bears the broker's time."""
    source = '[[sources]]\ntopic = "old"\nbroker = "b2"\ntype = "quote"\n'
    config = parse(text(services, unique))
    plain = needed(config)
    assert set(needed(parse(text(services, unique) + source))) - set(plain) == {"old"}
    grouped = needed(parse(text(services, unique) + "[distribution.b1]\ngroups = 3\n"))
    assert set(grouped) - set(plain) == {config.topics.groups}
    names = [
        "subscriptions",
        "advertisements",
        "registry",
        "publications",
        "control",
        "receipts",
        "deadletter",
        "routed",
        "progress",
    ]
    links = [config.topics.link(a, b) for pair in config.overlay.links for a, b in (pair, pair[::-1])]
    assert set(plain) == {*(f"{unique}.{name}" for name in names), *links}
    compacted = {name for name, kept in grouped.items() if kept.settings.get("cleanup.policy") == "compact"}
    assert compacted == {config.topics.registry, config.topics.groups}
    assert {kept.settings["message.timestamp.type"] for kept in grouped.values()} == {"LogAppendTime"}
    assert {name: kept.partitions for name, kept in grouped.items() if kept.lanes} == {
        config.topics.publications: cores(config),
        **dict.fromkeys(links, 1),
    }
    laned = needed(replace(config, settings=replace(config.settings, partitions=5)))
    lanes = {name: kept.partitions for name, kept in laned.items() if kept.partitions != 1}
    assert lanes == dict.fromkeys([config.topics.publications, *links], 5)


def test_the_doctor_prints_checks_with_advice(here, capsys):
    """Well: 0. With a topic missing: 1, the check and what to do."""
    assert run("doctor", "--json") == 0
    assert all(check["ok"] for check in json.loads(capsys.readouterr().out))
    keeper = TopicKeeper(here)
    keeper.admin.delete_topics([here.topics.routed])[here.topics.routed].result()
    assert run("doctor") == 1
    shown = capsys.readouterr().out
    assert f"FAIL  topics: 1 of {len(needed(here))} missing: {here.topics.routed}" in shown
    assert "run `hilcast topics`" in shown


# ── control events ──────────────────────────────────────────────────────────────────────────────────────────────


def answering(config, kind, **more):
    """Answer the first control event from another thread, as a router would."""

    def work():
        transport = open_transport(config)
        reader = transport.read({(config.topics.subscriptions, 0): 0, (config.topics.advertisements, 0): 0})
        while not (records := reader.poll(0.2)):
            pass
        transport.send(answer(config, records[0].place, kind, **more)).place()
        seen.extend(records)
        reader.close()
        transport.close()

    seen = []
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread, seen


def test_subscribe_prints_the_receipt(here, capsys):
    """The receipt is printed as the JSON that it is; options arrive in the event."""
    thread, seen = answering(here, "accepted", version=7)
    arguments = ["-b", "b2", "-t", "quote", "-c", "alice", "--id", "s1", "--ttl", "1.5", "--version", "7"]
    assert run("subscribe", *arguments, "--sink", "elsewhere", "price < 5") == 0
    thread.join()
    receipt = json.loads(capsys.readouterr().out)
    assert (receipt["kind"], receipt["version"]) == ("accepted", 7)
    assert (receipt["topic"], receipt["partition"], receipt["offset"]) == (here.topics.subscriptions, 0, 0)
    assert seen[0].key == b"b2/quote/s1"
    sent = {"client": "alice", "filter": "price < 5", "ttl_ms": 1500, "version": 7, "sink": "elsewhere"}
    assert json.loads(seen[0].value) == sent


def test_a_client_opts_in_to_groups(here, capsys):
    """`--groups` says so in the event; the router, not the client, refuses it together with a sink."""
    thread, seen = answering(here, "accepted")
    assert run("subscribe", "-b", "b2", "-t", "quote", "-c", "alice", "--groups", "--sink", "x", "price < 5") == 0
    thread.join()
    assert json.loads(seen[0].value) == {"client": "alice", "filter": "price < 5", "groups": True, "sink": "x"}


def test_a_refusal_is_printed_and_is_one(here, capsys):
    """A refused receipt: its JSON on standard output, code and reason in a sentence, exit code 1."""
    thread, _ = answering(here, "refused", code="filter-type", reason="'x' is no number")
    assert run("advertise", "-b", "b1", "-t", "quote", "-p", "exchange", "price < 'x'") == 1
    thread.join()
    said = capsys.readouterr()
    assert json.loads(said.out)["code"] == "filter-type"
    assert said.err == "hilcast: filter-type: 'x' is no number\n"


def test_withdrawals_are_sent_with_their_version(here, capsys):
    """Unsubscribing sends a null value, and its version as a header."""
    thread, seen = answering(here, "withdrawn")
    assert run("unsubscribe", "-b", "b1", "-t", "quote", "s1", "--version", "9") == 0
    thread.join()
    assert (seen[0].key, seen[0].value, seen[0].headers) == (b"b1/quote/s1", None, (("hilcast_version", b"9"),))
    assert json.loads(capsys.readouterr().out)["kind"] == "withdrawn"


def test_without_a_job_it_is_sent_and_unanswered(here, wire, capsys):
    """At the timeout: exit code 1 and the words; the event was sent."""
    assert run("unadvertise", "-b", "b1", "-t", "quote", "a1", "--timeout", "0.5") == 1
    assert "unanswered: sent, unanswered" in capsys.readouterr().err
    assert wire.span(here.topics.advertisements, 0)[1] == 1


def test_waiting_names_who_is_behind(here, capsys):
    """Without a deployment every broker is behind, by name."""
    assert run("wait", "--timeout", "0.3") == 1
    said = capsys.readouterr().err
    for broker in ("b1", "b2", "b3"):
        assert f"{broker}: no deployment hosts it" in said
    assert run("wait", "--timeout", "0.3", "--json") == 1
    found = json.loads(capsys.readouterr().out)
    assert [b["broker"] for b in found["behind"]] == ["b1", "b2", "b3"]
    assert found["in_force"] is False


# ── events ──────────────────────────────────────────────────────────────────────────────────────────────────────


def publications(here, wire, count):
    starts = {(here.topics.publications, p): 0 for p in wire.partitions(here.topics.publications)}
    return sorted(read(wire, starts, count), key=lambda record: record.timestamp_ms)


def test_publish_sends_the_argument_or_every_line(here, wire, capsys, monkeypatch):
    """One event by argument, one per line of standard input; each leaves as it was written and is named SOURCE#ID."""
    assert run("publish", "-b", "b1", "-t", "quote", "--id", "e1", "--source", "me", '{ "price": 1 }') == 0
    assert capsys.readouterr().out == "me#e1\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"price": 2}\n\n  {"price": 3}\n')))
    assert run("publish", "-b", "b2", "-t", "quote", "-k", "IBM") == 0
    names = capsys.readouterr().out.splitlines()
    sent = publications(here, wire, 3)
    assert [record.value for record in sent] == [b'{ "price": 1 }', b'{"price": 2}', b'{"price": 3}']
    assert [f"hilcast#{dict(r.headers)['ce_id'].decode()}" for r in sent[1:]] == names
    assert {r.key for r in sent[1:]} == {b"IBM"}


def test_publish_warns_of_what_will_be_refused(here, wire, capsys):
    """What is no JSON object is sent all the same: it is the router that refuses, with a dead letter."""
    assert run("publish", "-b", "b1", "-t", "quote", "[1]") == 0
    assert "bad-event" in capsys.readouterr().err
    assert publications(here, wire, 1)[0].value == b"[1]"


def test_one_id_is_for_one_event(here, capsys, monkeypatch):
    """An id cannot name two lines."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"{}\n{}\n")))
    assert run("publish", "-b", "b1", "-t", "quote", "--id", "e1", "-") == 1
    assert "one --id cannot name several events" in capsys.readouterr().err


def test_tail_shows_deliveries_without_repeats(here, wire, capsys):
    """From the beginning, repeats removed; as lines or as JSON; `--count` that is not reached is 1."""
    TopicKeeper(here).ensure([here.topics.deliver("alice")])
    for output in (delivered(here, "alice", "e1", "s1"), delivered(here, "alice", "e1", "s1")):
        wire.send(output).place()
    wire.send(delivered(here, "alice", "e2", "s1,s2", value=b'{"price": 2}')).place()
    assert run("tail", "alice", "--once") == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert 'b1 quote  {"price": 2}  test#e2  s1,s2' in lines[1]
    assert run("tail", "alice", "--count", "1", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["id"], found["event"], found["subscriptions"]) == ("e1", {"price": 1}, ["s1"])
    assert (found["value"], found["key"], found["topic"]) == ('{"price": 1}', "k", here.topics.deliver("alice"))
    assert run("tail", "alice", "--count", "3", "--timeout", "0.5") == 1
    assert "2 of 3 deliveries came" in capsys.readouterr().err
    assert run("tail", "nobody", "--once") == 0
    assert capsys.readouterr().out == ""


def test_tail_shows_what_came_through_groups(here, wire, capsys):
    """What a shared topic holds for the client is shown, with its own ids; what names others is not."""
    topic = here.topics.group("b1", 0)
    TopicKeeper(here).ensure([topic, here.topics.groups, here.topics.deliver("alice")])
    spans = msgspec.json.encode(Membership([Span(topic, 1)]))
    wire.send(Output(here.topics.groups, b"b1/alice", spans)).place()
    wire.send(delivered(here, "alice", "e0", "s1")).place()
    for event, members in (
        ("e1", {"bob": ["s9"]}),
        ("e2", {"alice": ["s1", "s2"], "bob": ["s9"]}),
        ("e3", {"bob": ["s9"]}),
    ):
        wire.send(grouped(topic, event, members)).place()
    assert run("tail", "alice", "--once", "--json") == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert sorted((d["id"], d["subscriptions"]) for d in found) == [("e0", ["s1"]), ("e2", ["s1", "s2"])]


# ── looking ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_looking_at_nothing_is_no_error(here, capsys):
    """Before anything has run, status, inspect and verify show emptiness."""
    assert run("status") == 0
    assert "no deployment has run here yet" in capsys.readouterr().out
    assert run("inspect", "b2", "--json") == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["subscriptions"], found["parts"], found["epoch"]) == (0, 0, None)
    assert [n["neighbour"] for n in found["neighbours"]] == ["b1", "b3"]
    assert run("inspect") == 0
    assert "not complete in this Redis" in capsys.readouterr().out
    assert run("verify", "--json") == 0
    judged = json.loads(capsys.readouterr().out)
    assert (judged["ok"], judged["published"], judged["missing"]) == (True, 0, 0)


def test_inspect_shows_what_reductions_hold(here, capsys):
    """Summed over parts, of each part where the type is given; figures of some reductions where they are told."""
    index = RedisIndex(here)
    entries = [LocalEntry(f"s{i}", "alice", "topic", None, pack(Boxes.everything(2))) for i in range(READABLE_MAX + 5)]
    parts = {Key("b2", "quote", "cube:0"): entries, Key("b2", "quote", "cube:1"): entries[:7]}
    blobs = {key: compile_part(CompiledPart.of(2, local, {}, [])) for key, local in parts.items()}
    told = {"received": 5, "forwarded": 3, "withheld": 2, "bytes": 1000}
    first, second = parts
    more = {"b1": {**told, "negative_boxes": 7}, "b3": told}
    index.publish(blobs, 1, 1, reduced={first: more, second: {"b1": told, "b3": {}}})
    index.point(1, here.shared)
    index.close()
    assert run("inspect", "b2", "quote", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["subscriptions"] == READABLE_MAX + 5
    one, three = found["neighbours"]
    nobody = {"asked_by_neighbour": 0, "kind": "boxes"}
    assert one == {"neighbour": "b1", "negative_boxes": 7, **{name: 2 * n for name, n in told.items()}, **nobody}
    assert three == {"neighbour": "b3", **told, **nobody}
    by_part = {p["part"]: p["neighbours"] for p in found["by_part"]}
    assert by_part["cube:0"][0] == {"neighbour": "b1", **more["b1"], **nobody}
    assert by_part["cube:1"][1] == {"neighbour": "b3", **dict.fromkeys(told, 0), **nobody}
    assert run("inspect", "b2", "quote") == 0
    shown = capsys.readouterr().out
    assert re.search(r"from +to +type +received +forwarded +withheld +negative boxes +bytes +asked by it\n", shown)
    assert re.search(r"b2 +b1 +quote +10 +6 +4 +7 +2,000 +0 boxes\n", shown)
    assert re.search(r"cube:0 +b3 +5 +3 +2 +- +1,000 +0 boxes\n", shown)


def test_inspect_says_what_neighbours_asked_for(here, capsys):
    """In words, how many and within which box; with --ranges each one."""
    index, key = RedisIndex(here), Key("b2", "quote", "cube:0")
    boxes = Boxes.of([([0, 0], [5, 9]), ([7, 0], [8, 3])])
    ranges = Grid.of(here.types["quote"]).ranges(Boxes.everything(2)).clipped(0, 1023)
    links = {"b1": [pack(boxes)], "b3": [pack(ranges)]}
    index.publish({key: compile_part(CompiledPart.of(2, [], links, []))}, 1, 1)
    index.point(1, here.shared)
    index.close()
    assert run("inspect", "b2", "quote") == 0
    shown = capsys.readouterr().out
    assert re.search(r"b1 +2 boxes, within price ", shown)
    assert re.search(r"b3 +1 range, 0\.10 % of the space, within ", shown)
    assert run("inspect", "b2", "quote", "--ranges", "--json") == 0
    asked = json.loads(capsys.readouterr().out)["asked"]
    assert len(asked["b1"]) == 2
    assert asked["b3"] == ["0000000000000000-00000000000003ff"]


def test_status_tells_of_a_generation_that_is_built(here, capsys):
    """Its number, which need not be the next, and how far its index is; nothing once it is in force."""
    index = RedisIndex(here)
    blob = compile_part(CompiledPart.of(2, [], {}, []))
    index.publish({Key("b2", "quote", "cube:0"): blob}, 1, 1)
    index.point(1, here.shared)
    index.publish({Key("b2", "quote", f"cube:{i}"): blob for i in range(2)}, 3, 0)
    assert run("status", "--json") == 0
    told = json.loads(capsys.readouterr().out)["figures"]["building"]
    assert re.fullmatch(r"generation 3: 2 of \d+ parts", told)
    index.point(3, here.shared)
    index.close()
    assert run("status", "--json") == 0
    assert "building" not in json.loads(capsys.readouterr().out)["figures"]


def test_status_is_shown_again_and_again(here, capsys, monkeypatch):
    """With --watch it looks until it is told to stop, as often as it is asked to."""
    waits = []

    def slept(seconds):
        waits.append(seconds)
        if len(waits) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(live, "time", SimpleNamespace(sleep=slept, time=time.time))
    assert run("status", "--watch", "0.5", "--json") == 130
    assert len(capsys.readouterr().out.splitlines()) == 3
    assert set(waits) == {0.5}


DISTRIBUTED = ("unicast", "unicast_spared", "group", "group_saved", "group_discarded")
DISTRIBUTED += ("broadcast", "broadcast_saved", "broadcast_discarded")
BY_METHOD = {
    "unicast": {"messages": 10, "saved": 0, "discarded": 0, "spared": 11},
    "group": {"messages": 12, "saved": 13, "discarded": 14, "spared": 0},
    "broadcast": {"messages": 15, "saved": 16, "discarded": 17, "spared": 0},
}


@pytest.fixture
def sharing(services, unique, here, tmp_path, wire):
    """The same overlay with groups at b1, an assignment in Redis, spans in Kafka, and figures of two brokers."""
    written = text(services, unique) + "[distribution.b1]\ngroups = 2\n[distribution.b3]\ngroups = 1\n"
    (tmp_path / "hilcast.toml").write_text(written)
    config = parse(written)
    TopicKeeper(config).ensure_needed()
    members = np.array([[1, 1, 0], [0, 1, 1]], bool).tobytes()
    quote = TypeGroups(first=4, n=2, dims=[], cuts=[], cells=b"", labels=b"", members=members)
    assignment = Assignment(clients=["alice", "bob", "carol"], threshold=0.1, broadcast=0.5, types={"quote": quote})
    index = RedisIndex(config)
    index.publish_groups("b1", 1, assignment.encode(), {})
    index.point(1, config.shared)
    index.count({f"distribution:b1:{name}": 10 + i for i, name in enumerate(DISTRIBUTED)})
    index.count({"distribution:b3:group": 7, "events": 1})
    index.close()
    group, left = config.topics.group("b1", 4), config.topics.group("b1", 1)
    told = {"b1/alice": [Span(left, 0), Span(group, 0)], "b1/bob": [Span(group, 3), Span(left, 0, 2)]}
    told |= {"b3/dora": [Span(config.topics.group("b3", 0), 0)]}
    for key, spans in [("b1/alice", []), *told.items(), ("b3/dora", None)]:
        value = None if spans is None else msgspec.json.encode(Membership(spans))
        wire.send(Output(config.topics.groups, key.encode(), value)).place()
    return config


def test_inspect_shows_groups_and_what_they_saved(sharing, capsys):
    """Members from Redis, open spans from Kafka, also of a topic that is being left; and the figures of the methods."""
    assert run("inspect", "b1", "--json") == 0
    (found,) = json.loads(capsys.readouterr().out)
    topics = sharing.topics
    rows = [(t["topic"], t["type"], t["members"], t["spans_open"]) for t in found["distribution"].pop("topics")]
    assert rows == [
        (topics.group("b1", 4), "quote", 2, 2),
        (topics.group("b1", 5), "quote", 2, 0),
        (topics.broadcast("b1"), None, 3, 0),
        (topics.group("b1", 1), None, 0, 1),
    ]
    assert found["distribution"] == {"methods": BY_METHOD, "threshold": 0.1}
    assert run("inspect", "--json") == 0
    one, two, three = json.loads(capsys.readouterr().out)
    assert one["distribution"]["methods"] == BY_METHOD
    assert (three["distribution"]["methods"]["group"]["messages"], three["distribution"]["topics"]) == (7, [])
    assert three["distribution"]["threshold"] is None
    assert "distribution" not in two
    assert run("inspect", "b1", "quote") == 0
    shown = capsys.readouterr().out
    assert re.search(r"broker +method +messages +copies saved +thrown away +spared\n", shown)
    assert re.search(r"b1 +unicast +10 +0 +0 +11\nb1 +group +12 +13 +14 +0\nb1 +broadcast +15 +16 +17 +0\n", shown)
    assert re.search(rf"b1 +{re.escape(topics.group('b1', 4))} +quote +2 +2\n", shown)
    assert "b1: a group is used if 10 % of its members are interested\n" in shown


def test_status_shows_what_each_method_did_at_each_broker(sharing, capsys):
    """The same figures as inspect, of all brokers that have groups."""
    assert run("status", "--json") == 0
    figures = json.loads(capsys.readouterr().out)["figures"]
    assert set(figures["distribution"]) == {"b1", "b3"}
    assert figures["distribution"]["b1"] == BY_METHOD
    assert figures["distribution"]["b3"]["group"]["messages"] == 7
    assert run("status") == 0
    assert re.search(r"b1 +group +12 +13 +14 +0\n", capsys.readouterr().out)


def test_inspect_shows_what_redis_holds_while_kafka_is_away(services, sharing, tmp_path, capsys, monkeypatch):
    """Open spans are then not known, and it says so."""
    monkeypatch.setattr("infra.kafka.confluent._TIMEOUT_S", 0.5)
    path = tmp_path / "hilcast.toml"
    path.write_text(path.read_text().replace(services.kafka, f"127.0.0.1:{free_port()}"))
    assert run("inspect", "b1") == 0
    assert "open spans are not known: kafka-away" in capsys.readouterr().out
    assert run("inspect", "b1", "quote", "--json") == 0
    found = json.loads(capsys.readouterr().out)["distribution"]
    assert [(t["members"], t["spans_open"]) for t in found["topics"]] == [(2, None), (2, None), (3, None)]


def test_inspect_refuses_names_that_are_not_there(here, capsys):
    """An unknown broker or type is named with those that exist."""
    assert run("inspect", "b9") == 1
    assert "unknown-broker: 'b9' is none of b1, b2, b3" in capsys.readouterr().err
    assert run("inspect", "b1", "weather") == 1
    assert "unknown-type" in capsys.readouterr().err


def test_verify_ends_with_one_if_something_is_wrong(here, wire, capsys):
    """A delivery of what was never published is wrong: told, counted, exit code 1."""
    TopicKeeper(here).ensure([here.topics.deliver("alice")])
    wire.send(delivered(here, "alice", "ghost", "s1")).place()
    assert run("verify") == 1
    shown = capsys.readouterr().out
    assert "wrong: test#ghost for alice" in shown
    assert "not as it should be" in shown
    assert run("verify", "--json") == 1
    judged = json.loads(capsys.readouterr().out)
    assert (judged["wrong"], judged["findings"][0]["kind"]) == (1, "wrong")


def test_a_reader_that_leaves_is_no_error(here, wire):
    """`hilcast tail | head -1` ends quietly."""
    TopicKeeper(here).ensure([here.topics.deliver("alice")])
    for number in range(200):
        wire.send(delivered(here, "alice", f"e{number}", "s1", value=b'{"x": "' + b"y" * 2000 + b'"}'))
    wire.flush()
    command = f"{sys.executable} -m producers.cli tail alice --once | head -1"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=120, env=environment)
    assert done.stdout.count("\n") == 1
    assert done.stderr == ""


def test_colours_only_where_they_are_wanted(monkeypatch):
    """No escape sequences unless it is a terminal, and none there with NO_COLOR."""

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert Style(io.StringIO())("31", "x") == "x"
    assert Style(Terminal())("31", "x") == "\x1b[31mx\x1b[0m"
    monkeypatch.setenv("NO_COLOR", "1")
    assert Style(Terminal())("31", "x") == "x"
