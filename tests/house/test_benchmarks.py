"""The benchmarks as commands: each says what it can show, and a race that finds other matches does not pass."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.matchers import assert_equal
from state.matchers.matcher import Matches

ROOT = Path(__file__).parents[2]
ROWS = re.findall(r"^\| (`.*?`) \|", (ROOT / "benchmarks/README.md").read_text(), re.MULTILINE)
NAMES = [name for row in ROWS for name in re.findall(r"`(\w+)`", row)]


def test_the_table_names_every_benchmark() -> None:
    """Every file of the folder is in the README's table, but for the shared code that it names apart."""
    files = {path.stem for path in (ROOT / "benchmarks").glob("*.py")}
    assert set(NAMES) == files - {"bulk_index", "kafka_nodes", "report"}


@pytest.mark.parametrize("name", NAMES)
def test_help_says_what_a_benchmark_shows_and_runs_nothing(name, monkeypatch, capsys) -> None:
    """`--help` prints the usage and leaves at once, as the README promises.

    In this process, as `python -m` would run it: an interpreter for each would import the same again and again.
    """
    monkeypatch.setattr(sys, "argv", [f"benchmarks/{name}.py", "--help"])
    monkeypatch.delitem(sys.modules, f"benchmarks.{name}", raising=False)
    with pytest.raises(SystemExit) as left:
        runpy.run_module(f"benchmarks.{name}", run_name="__main__", alter_sys=True)
    assert not left.value.code
    assert capsys.readouterr().out.startswith("usage:")


def _matches(*pairs: tuple[int, int]) -> Matches:
    rows, ids = np.array(pairs, np.int64).reshape(-1, 2).T
    return Matches(rows, ids)


@pytest.mark.parametrize(
    "theirs",
    [_matches(), _matches((0, 1)), _matches((0, 1), (2, 7)), _matches((0, 1), (2, 8), (3, 1))],
    ids=["nothing", "the last events lost", "another id", "one too many"],
)
def test_a_race_notices_other_matches(theirs: Matches) -> None:
    """A peer that loses matches at the end, or finds nothing at all, fails the race; events it was not given are
    not asked for."""
    ours = _matches((0, 1), (2, 8), (5, 3))
    assert_equal(ours, _matches((0, 1), (2, 8)), 5)
    with pytest.raises(AssertionError):
        assert_equal(ours, theirs, 5)
