"""The parameters that the operations page lists are those that the reductions take, with their defaults."""

from __future__ import annotations

import re
import tomllib
from dataclasses import fields
from pathlib import Path

import pytest

from state.reductions import check_parameters, hybrid, mics, negative_space, probabilistic
from state.space.event_type import Attribute, EventType

PAGE = Path(__file__).parents[2] / "docs" / "operations.md"
ROW = re.compile(r"^\| `([a-z-]+)` \| `([a-z_]+)` \| (?:`([^`]*)`)? ?\|", re.M)
TAKEN: dict[str, dict[str, object]] = {
    "none": {},
    "covering": {},
    "mics": {f.name: f.default for f in fields(mics.Parameters)} | {"cap": mics.RANGE_CAP},
    "negative-space": {f.name: f.default for f in fields(negative_space.Settings)},
    "hybrid": {"budget": hybrid.BUDGET, "error": hybrid.ERROR, "trials_max": hybrid.TRIALS_MAX},
    "probabilistic": {"error": probabilistic.ERROR, "trials_max": probabilistic.TRIALS_MAX},
}


def listed(reduction: str) -> dict[str, object]:
    """The page's parameters of one reduction, and their defaults; None where there is none."""
    rows = [(name, default) for of, name, default in ROW.findall(PAGE.read_text()) if of == reduction]
    return {name: tomllib.loads(f"x = {default}")["x"] if default else None for name, default in rows}


@pytest.mark.parametrize("reduction", TAKEN)
def test_the_page_lists_every_parameter_and_its_default(reduction: str) -> None:
    """No parameter is missing or invented, every default is the code's, and the defaults are accepted as given."""
    assert listed(reduction) == TAKEN[reduction]
    given = {name: value for name, value in TAKEN[reduction].items() if value is not None}
    of_type = EventType("t", (Attribute("a", "int", min=0, max=9),), reduction=reduction, parameters=given)
    assert check_parameters(of_type) == []
    for name in ("colour", *(n for n in ("mode", "error", "k") if n not in given)):
        assert check_parameters(EventType("t", of_type.attributes, reduction=reduction, parameters={name: 1}))
