"""A short piece of the fault campaign: real Kafka, Redis and Spark under load, judged by the oracle and by `verify`."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import campaign
from benchmarks.faults.figures import explain
from benchmarks.faults.world import TEST

SEED = 19
PLAN = [
    "huge-key+deep-json+huge-publisher+huge-headers+huge-publication-key+control-forged+version-max+junk+sink-invalid",
    "redis-stale",
    "kill-worker+redis-damaged",
    "sink-compacted-later",
]
"""Hostile input of every sort at once, then faults of Redis, of workers and of a sink in use: 13 in all."""


@pytest.mark.services
def test_a_short_campaign(tmp_path: Path) -> None:
    """After each fault: a probe is delivered, all is answered, nothing is missing and nothing wrong."""
    plan = [[(kind, SEED + i)] for i, kind in enumerate(PLAN)]
    outcomes = campaign.campaign(plan, TEST, tmp_path, lambda outcome, log: None)
    assert [outcome.kind for outcome in outcomes] == PLAN
    failed = [outcome for outcome in outcomes if not outcome.ok]
    assert not failed, "\n".join(explain(outcome, True, str(tmp_path)) for outcome in failed)
    assert all(outcome.verdict.expected > 0 for outcome in outcomes)
