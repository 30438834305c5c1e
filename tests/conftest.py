"""Fixtures of all tests, and the order of their files."""

from __future__ import annotations

import os

import pytest

from tests.services import services, unique

# Kafka and Spark live for a minute or two here: what the second compiler costs them it never gives back
os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=128m -XX:+UseSerialGC")

__all__ = ["services", "unique"]

SECONDS = {
    "tests/integration/test_cluster.py": 340,
    "tests/integration/test_overlay.py": 280,
    "tests/integration/test_groups.py": 210,
    "tests/integration/test_deployments.py": 180,
    "tests/integration/test_security.py": 170,
    "tests/integration/test_cli.py": 130,
    "tests/integration/test_own_inboxes.py": 125,
    "tests/integration/test_campaign.py": 120,
    "tests/integration/test_console.py": 105,
    "tests/integration/test_formats.py": 95,
    "tests/integration/test_faults.py": 90,
    "tests/integration/test_apply.py": 85,
    "tests/integration/test_messages.py": 85,
    "tests/integration/test_two_brokers.py": 75,
    "tests/integration/test_tour.py": 40,
    "tests/integration/test_redis_cluster.py": 25,
    "tests/simulation/test_seeds.py": 100,
    "tests/benchmarks/test_claims.py": 35,
    "tests/streaming/test_host_index.py": 25,
    "tests/benchmarks/test_tree_overlap.py": 20,
    "tests/simulation/test_own_inboxes.py": 20,
    "tests/control/test_journal.py": 20,
    "tests/simulation/test_sharing.py": 15,
}
"""What the longest files take in a run of all, about."""
OTHERS_S = {True: 12, False: 4}
"""What any other one takes that waits for services, and that computes."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that wait for services and files that compute beside each other from beginning to end, the longest first.

    Who waits leaves the processor to who computes. At the end only short ones are left, so that all workers end
    together. Cost: none to a run of one file; tests of a file stay in order.
    """
    files: dict[str, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.nodeid.partition("::")[0], []).append(item)
    waits = {name: all(item.get_closest_marker("services") for item in some) for name, some in files.items()}
    seconds = {name: SECONDS.get(name, OTHERS_S[waits[name]]) for name in files}
    begins = {}
    for kind in (True, False):
        names = sorted((name for name in files if waits[name] is kind), key=lambda name: -seconds[name])
        done = 0
        for name in names:
            begins[name] = done / sum(seconds[other] for other in names)
            done += seconds[name]
    items[:] = [item for name in sorted(files, key=begins.__getitem__) for item in files[name]]
