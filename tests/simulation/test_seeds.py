"""A minute of the simulator: scenarios drawn from seeds, judged by the oracle; and what it does when one fails."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import soak
from benchmarks.workloads import mixed
from state.control.part import Part
from tests.simulation.drill import Failure
from tests.simulation.scenario import Size, draw
from tests.simulation.worlds import perform

ROOT = Path(__file__).parents[2]
SEEDS = range(32)
SAME = """
from benchmarks.workloads import mixed
from tests.simulation.scenario import Size, draw
from tests.simulation.worlds import perform
scenario = draw(13, mixed, Size.of(13))
print(scenario)
print(perform(scenario))
"""


@pytest.mark.parametrize(("seed", "brokers"), [*((seed, None) for seed in SEEDS), (7, 100)])
def test_every_delivery_of_a_seed_equals_flooding(seed, brokers):
    """Through delays, repeats, crashes, lost checkpoints and a lost index, in overlays of 2 to 100 brokers.

    If it fails: `python -m benchmarks.soak --seed SEED --once` shows it again and looks for a shorter way to it.
    """
    report = perform(draw(seed, mixed, Size.of(seed, brokers))).figures
    assert min(report["events compared at rest"], report["events compared in between"], report["batches"]) > 0
    assert min(report["slices judged"], report["deliveries judged"]) > 0


def test_the_seeds_draw_what_the_simulator_promises():
    """Every reduction, several deployments, small and large overlays, advertisements and every fault are among them."""
    scenarios = [draw(seed, mixed, Size.of(seed)) for seed in SEEDS]
    types = [t for s in scenarios for config in s.configs() for t in config.types.values()]
    reductions = {t.reduction for t in types}
    assert reductions == {"none", "covering", "merging", "mics", "negative-space", "probabilistic", "hybrid"}
    assert {t.advertisements for t in types} == {True, False}
    assert {bool(s.configs()[0].sources) for s in scenarios} == {True, False}
    attributes = [attribute for t in types for attribute in t.attributes]
    assert {len(a.members) for a in attributes} == {0, 1, 2, 3, 4}
    assert {(a.header is not None, a.key) for a in attributes} == {(False, False), (True, False), (False, True)}
    assert {t.format for t in types} == {"json", "avro"}
    assert {len(s.hosting) for s in scenarios} >= {1, 2, 3, 4}
    assert {config.settings.partitions for s in scenarios for config in s.configs()} == {None, 2, 3}
    sizes = [len(s.configs()[0].overlay.brokers) for s in scenarios]
    assert (min(sizes), max(sizes) > 80) == (2, True)
    happens = {type(action).__name__ for s in scenarios for action in s.actions}
    assert happens >= {
        "Register",
        "Withdraw",
        "Lapse",
        "LapseAll",
        "Renew",
        "Zombie",
        "Publish",
        "Step",
        "Restart",
        "Begin",
        "Compact",
        "Fence",
        "Rest",
    }
    assert happens >= {"LoseIndex", "LoseMessage", "Nonsense", "Regroup"}
    tables = [table for s in scenarios for table in s.configs()[0].distribution.values()]
    assert {table.threshold for table in tables} == {0.0, 0.15, 0.5, "fit"}


def test_a_seed_is_the_same_in_every_process():
    """The scenario and all that comes of it do not depend on the order of sets or on addresses."""
    said = [
        subprocess.run(
            [sys.executable, "-c", SAME],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": number, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for number in ("1", "2")
    ]
    assert said[0] == said[1] != ""


def test_a_fault_is_found_printed_and_replayed(monkeypatch, capsys):
    """With a core that forgets to remove, seeds fail; the message names the seed, which fails in the same way again."""
    monkeypatch.setattr(Part, "_remove", lambda self, origin, ids: None)
    monkeypatch.setattr(soak, "SHORTEN_S", 3.0)
    failed = []
    for seed in (4, 4):
        with pytest.raises(Failure, match=f"seed {seed}, action [0-9]+: ") as failure:
            perform(draw(seed, mixed, Size.of(seed)))
        failed.append((failure.value.number, failure.value.why))
    assert failed[0] == failed[1]
    monkeypatch.setattr(sys, "argv", ["soak", "--seed", "4", "--once"])
    assert soak.main() == 1
    shown = capsys.readouterr().out
    assert "FAILED seed 4, action" in shown
    assert "again:  python -m benchmarks.soak --seed 4 --once" in shown
    assert "are enough" in shown
