"""A short fault campaign on the real services, and the campaign's own parts."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.campaign import campaign
from benchmarks.faults.figures import again, summary
from benchmarks.faults.kind import KINDS
from benchmarks.faults.scene import Outcome
from benchmarks.faults.schedule import schedule
from benchmarks.faults.world import SHORT

PASSING = (
    "kill-driver",
    "kill-worker",
    "kill-daemon",
    "kill-redis",
    "stop-redis",
    "redis-emptied",
    "redis-dump",
    "sink-invalid",
)
"""What is drawn here: kinds that were seen to pass. The list grows until it holds every kind that fits the time."""
SEED = 14


@pytest.mark.services
def test_a_short_campaign_loses_nothing(tmp_path: Path) -> None:
    """Twelve seeded faults under load: nothing missing, wrong or unanswered, and routing goes on each time."""
    plan = list(schedule(PASSING, 12, SEED))
    outcomes = campaign(plan, SHORT, tmp_path, short=True)
    summary(outcomes)
    failed = {again(o, True): [*o.findings, *o.verdict.missing, *o.verdict.wrong, *o.verdict.unanswered][:5]
              for o in outcomes if not o.ok}  # fmt: skip
    assert not failed
    assert [outcome.kind for outcome in outcomes] == [kind for kind, _ in plan]
    assert sum(outcome.verdict.expected for outcome in outcomes) > 1000


def test_a_schedule_is_its_seed() -> None:
    """The same seed draws the same faults with the same seeds, and every kind comes before any comes twice."""
    once, again_ = (list(schedule(list(KINDS), 100, 5)) for _ in range(2))
    assert once == again_
    assert {kind for kind, _ in once[: len(KINDS)]} == set(KINDS)
    assert len({seed for _, seed in once}) == 100


def test_every_kind_says_what_it_expects() -> None:
    """Each kind is known by its name, with what is expected of the router and how long it may pause."""
    for name, fault in KINDS.items():
        assert fault.name == name
        assert fault.expects
        assert fault.bound_s > 0


def test_an_outcome_that_lacks_anything_is_no_good() -> None:
    """Missing, wrong, unanswered or any finding makes a fault a failed one, and the repeat is a command."""
    outcome = Outcome("kill-jvm", 7)
    assert outcome.ok
    outcome.verdict.unanswered.append("x")
    assert not outcome.ok
    assert again(outcome, short=True) == "python -m benchmarks.campaign --only kill-jvm --seed 7 --short"
