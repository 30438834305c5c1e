"""`status`: what the running deployments do, from Redis, the progress topic and the consumer groups."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Mapping
from typing import Any

import redis
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException
from confluent_kafka.admin import AdminClient

from infra.kafka import Transport, open_transport
from infra.kafka.dialects import librdkafka
from infra.kafka.reading import between
from infra.kafka.transport import away, missing_topic
from producers.cli import config_path
from producers.commands.output import Style, print_json, table
from producers.commands.shared_topics import by_broker, methods_for_people
from producers.progress_lines import progress_lines
from state.config import Config, load
from state.keys import index_keys
from state.redis_index import RedisIndex

ALWAYS = ("routed", "unmatched", "copies", "dead_letters", "entries_offered", "entries_sent")
"""Figures that are shown from the beginning, and again when Redis was emptied."""
RECENT = 300
"""Lines of the progress topic that are looked at."""
_TIMEOUT_S = 10.0


def status(chosen: argparse.Namespace) -> int:
    """Print the figures; with `--watch` again and again, on a terminal in place."""
    config = load(config_path(chosen))
    transport = open_transport(config)
    try:
        while True:
            found = looked(config, transport)
            if chosen.json:
                print_json(found)
            else:
                clear = "\x1b[H\x1b[2J" if chosen.watch is not None and Style().on else ""
                print(clear + _for_people(found), flush=True)
            if chosen.watch is None:
                return 0
            time.sleep(chosen.watch)
    finally:
        transport.close()


def looked(config: Config, transport: Transport) -> dict[str, object]:
    """What `status` shows, as it is now."""
    if not transport.partitions(config.topics.progress):
        raise missing_topic(config.topics.progress)
    return {
        "deployment": config.deployment.name,
        "figures": figures(config),
        "queries": queries(recent_batches(config, transport), lags(config, transport)),
    }


# ── figures of this deployment ──────────────────────────────────────────────────────────────────────────────────────


def figures(config: Config) -> dict[str, object]:
    """The counts that the job keeps in Redis, and what follows from them; why there are none if Redis is away."""
    index = RedisIndex(config, timeout_s=2.0)
    try:
        building = index.building(index.current()[1])
        parts = len(index_keys(config, config.deployment.hosts))
        said = {} if building is None else {"building": f"generation {building[0]}: {building[1]} of {parts} parts"}
        return said | counted(index.figures())
    except redis.RedisError as error:
        return {"redis": f"away ({type(error).__name__})"}
    finally:
        index.close()


def counted(stored: Mapping[str, str]) -> dict[str, object]:
    """The counts of a deployment as they are stored, by name.

    `entries_saved` is what neighbours were not sent of what they would have been without reductions, entry by entry (or
    range by range). Where what covered much is withdrawn again and again, it may be below 0.
    """
    raw = {name: float(value) for name, value in stored.items()}
    named = {**dict.fromkeys(ALWAYS, 0.0), **{name: value for name, value in raw.items() if ":" not in name}}
    counts: dict[str, object] = {name: _whole(value) for name, value in sorted(named.items())}
    counts["links"] = {
        name.removeprefix("link:"): {"crossed": _whole(n), "wasted": _whole(raw.get(f"link_wasted:{name[5:]}", 0.0))}
        for name, n in sorted(raw.items())
        if name.startswith("link:")
    }
    if shared := by_broker(raw):
        counts["distribution"] = shared
    offered, sent = raw.get("entries_offered", 0.0), raw.get("entries_sent", 0.0)
    counts["entries_saved"] = _whole(offered - sent)
    counts |= {f"pruned_{name[7:]}": _whole(n) for name, n in sorted(raw.items()) if name.startswith("pruned:")}
    counts |= {f"refused_{name[8:]}": _whole(n) for name, n in sorted(raw.items()) if name.startswith("refused:")}
    counts |= {f"lost_{name[5:]}": _whole(n) for name, n in sorted(raw.items()) if name.startswith("lost:")}
    return counts


def _whole(value: float) -> int | float:
    return int(value) if value.is_integer() else value


# ── queries of all deployments ──────────────────────────────────────────────────────────────────────────────────────


def recent_batches(config: Config, transport: Transport) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """The last lines of the progress topic, by deployment and query, oldest first, each with its time."""
    topic = config.topics.progress
    low, end = transport.span(topic, 0)
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    newest = between(transport, {(topic, 0): (max(low, end - RECENT), end)}, sample=True)
    for record, line in progress_lines(newest):
        found.setdefault((line.deployment, line.query), []).append(line.plain(record))
    return found


def lags(config: Config, transport: Transport, admin: AdminClient | None = None) -> dict[tuple[str, str], int]:
    """By deployment and query: how many records of its input it has not committed yet, as any lag tool shows them."""
    admin = admin or open_admin(config)
    try:
        return {
            (name, query): _lag(admin, transport, f"{config.deployment.prefix}.{query}.{name}")
            for name, query in _groups(config, admin)
        }
    except KafkaException as error:
        raise away(config.deployment.kafka, error.args[0].str()) from error


def drivers(config: Config, admin: AdminClient | None = None) -> dict[str, bool]:
    """By deployment that ever ran: whether a driver has its lease, which is a membership of its control group."""
    admin = admin or open_admin(config)
    try:
        names = {
            f"{config.deployment.prefix}.control.{name}": name
            for name, query in _groups(config, admin)
            if query == "control"
        }
        if not names:
            return {}
        asked = admin.describe_consumer_groups(sorted(names), request_timeout=_TIMEOUT_S)
        return {names[group]: bool(found.result().members) for group, found in asked.items()}
    except KafkaException as error:
        raise away(config.deployment.kafka, error.args[0].str()) from error


def open_admin(config: Config) -> AdminClient:
    """What asks Kafka about groups; it may be kept and asked again."""
    return AdminClient({**librdkafka(config), "log_level": 0})


def _groups(config: Config, admin: AdminClient) -> list[tuple[str, str]]:
    """Deployment and query of every group of ours."""
    listed = admin.list_consumer_groups(request_timeout=_TIMEOUT_S).result()
    heads = {query: f"{config.deployment.prefix}.{query}." for query in ("control", "route", "waiting")}
    return sorted(
        (group.group_id.removeprefix(head), query)
        for group in listed.valid
        for query, head in heads.items()
        if group.group_id.startswith(head)
    )


def _lag(admin: AdminClient, transport: Transport, group: str) -> int:
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)], request_timeout=_TIMEOUT_S)
    missing = 0
    for place in asked[group].result().topic_partitions:
        missing += max(0, transport.span(place.topic, place.partition)[1] - max(0, place.offset))
    return missing


def queries(
    batches: Mapping[tuple[str, str], list[dict[str, Any]]], lag: Mapping[tuple[str, str], int]
) -> list[dict[str, object]]:
    """One line for each query of each deployment.

    >>> line = {"epoch": "1.7", "batch_ms": 120, "rows": 5, "hosts": ["b1"], "time_ms": 1000.0}
    >>> queries({("main", "route"): [line]}, {("main", "route"): 3})[0]["lag"]
    3
    """
    found = []
    now_ms = time.time() * 1000
    for deployment, query in sorted({*batches, *lag}):
        lines = batches.get((deployment, query), [])
        times = [line["batch_ms"] for line in lines]
        last = lines[-1] if lines else None
        found.append(
            {
                "deployment": deployment,
                "query": query,
                "hosts": last["hosts"] if last else [],
                "epoch": last["epoch"] if last else None,
                "lag": lag.get((deployment, query), 0),
                "batches": len(lines),
                "rows": sum(line["rows"] for line in lines),
                "batch_ms_last": times[-1] if times else None,
                "batch_ms_median": statistics.median(times) if times else None,
                "batch_ms_max": max(times, default=None),
                "last_batch_s_ago": round((now_ms - last["time_ms"]) / 1000, 1) if last else None,
            }
        )
    return found


# ── for people ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _for_people(found: Mapping[str, Any]) -> str:
    heads = ["deployment", "query", "epoch", "lag", "batch ms", "median", "max", "rows", "last, s ago", "brokers"]
    rows = [
        [
            q["deployment"],
            q["query"],
            q["epoch"],
            q["lag"],
            q["batch_ms_last"],
            q["batch_ms_median"],
            q["batch_ms_max"],
            q["rows"],
            q["last_batch_s_ago"],
            " ".join(q["hosts"]),
        ]
        for q in found["queries"]
    ]
    queries = table(heads, rows) if rows else "no deployment has run here yet: start one with `hilcast run`"
    counts = dict(found["figures"])
    links, shared = counts.pop("links", {}), counts.pop("distribution", {})
    text = [queries, "", f"deployment {found['deployment']}, since Redis was last emptied"]
    text.append(table(["", ""], [[name.replace("_", " "), value] for name, value in counts.items()]).lstrip("\n"))
    if links:
        crossed = [[name.replace(">", " > "), n["crossed"], n["wasted"]] for name, n in links.items()]
        text += ["", table(["link", "crossed", "for nothing"], crossed)]
    if shared:
        text += ["", methods_for_people(shared)]
    return "\n".join(text)
