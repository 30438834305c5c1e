"""Fixtures of all tests, and the order of their files."""

from __future__ import annotations

import os

import pytest

from tests.services import services, unique

# Kafka and Spark live for a minute or two here: what the second compiler costs them it never gives back
os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=128m -XX:+UseSerialGC")

__all__ = ["services", "unique"]

LONGEST = (
    "tests/control/test_mutants.py",
    "tests/matchers/test_contract.py",
    "tests/control/test_forwarding.py",
    "tests/test_explain.py",
    "tests/integration/test_cluster.py",
    "tests/integration/test_overlay.py",
    "tests/integration/test_groups.py",
    "tests/integration/test_deployments.py",
    "tests/integration/test_security.py",
    "tests/integration/test_cli.py",
    "tests/integration/test_own_inboxes.py",
    "tests/integration/test_campaign.py",
    "tests/integration/test_console.py",
    "tests/integration/test_formats.py",
    "tests/integration/test_faults.py",
    "tests/integration/test_apply.py",
    "tests/integration/test_messages.py",
    "tests/integration/test_two_brokers.py",
    "tests/integration/test_tour.py",
    "tests/integration/test_redis_cluster.py",
)
"""The longest files come first, of those without services and then of those with: all workers then end together.

Files of one long test are not among the last: a worker is given its next file while it still has two tests to do.
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files without services first, for they compile the kernels that every job needs; of each kind the longest first.

    Cost: none to a run of one file, whose tests stay in order.
    """
    places = {name: place for place, name in enumerate(LONGEST)}

    def order(item: pytest.Item) -> tuple[bool, int]:
        name = item.nodeid.partition("::")[0]
        return item.get_closest_marker("services") is not None, places.get(name, len(places))

    items.sort(key=order)
