"""The README of `state`: its example runs."""

from __future__ import annotations

import doctest
from pathlib import Path


def test_readme_of_state_is_true() -> None:
    """The way from a filter text to Hilbert ranges in `state/README.md` gives what is printed there."""
    readme = Path(__file__).parents[2] / "state" / "README.md"
    result = doctest.testfile(str(readme), module_relative=False)
    assert result.attempted >= 10
    assert result.failed == 0
