"""`size`: cores, memory, Redis and partitions for so many subscriptions, events and brokers, by what was measured."""

from __future__ import annotations

import argparse
import tomllib
from pathlib import Path

from producers.commands.output import print_json, table
from state.sizing import INDEX_MAX, Asked, Fit, Size
from state.sizing import size as size_of

DATA = Path(__file__).with_name("size.toml")
"""Written by `python -m benchmarks.scale --write`."""


def size(chosen: argparse.Namespace) -> int:
    """Print what a router needs."""
    asked = Asked(
        chosen.subscriptions, chosen.events_per_s, chosen.brokers, chosen.forwarded, chosen.deployments or None
    )
    found = size_of(asked, fit())
    if chosen.json:
        print_json(found.as_json())
    else:
        print(for_people(found))
    return 0


def fit() -> Fit:
    """The lines that ship with this version."""
    return Fit.read(tomllib.loads(DATA.read_text())["fit"])


def for_people(found: Size) -> str:
    """A table, and what to know of it."""
    off = {name: f"+-{error:.0%} at {found.points[name]} points" for name, error in found.errors.items()}
    rows = [
        ["deployments", f"{found.deployments:,}", f"of {found.brokers_each:,} brokers each"],
        ["of each deployment", "", ""],
        ["  entries", f"{found.entries_each:,}", "in its brokers' indexes"],
        ["  driver", f"{found.driver_mb:,} MB", "and one core"],
        ["  executors", f"{found.executors:,}", f"{found.executor_cores} cores, {found.executor_mb:,} MB each"],
        ["  cores that route", f"{found.route_cores:,}", off["event"]],
        ["  the index of a host", f"{found.index_mb:,} MB", f"{off['index']}; in `/dev/shm`, shared by its workers"],
        ["  a route worker", f"{found.worker_mb:,} MB", f"{off['worker']}; beside the index"],
        ["  Redis", f"{found.redis_mb:,} MB", off["redis"]],
        ["  a new generation", f"{found.rebuild_s:,} s", f"{off['rebuild']}; of one core, while routing goes on"],
        [
            "partitions",
            f"{found.partitions:,}",
            "of publications and links: `[settings] partitions`",
        ],
    ]
    lines = [table(["what", "needed", ""], rows)]
    if found.index_mb > INDEX_MAX:
        lines.append(f"an index of more than {INDEX_MAX:,} MB with one broker each: reduce more (--forwarded), or")
        lines.append("make more brokers of it")
    lines += [f"extrapolated, {said}" for said in found.extrapolated]
    return "\n".join(lines)
