"""The parameters that the operations page lists are those that the reductions take, with their defaults."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from dataclasses import asdict, fields
from pathlib import Path

import pytest

from state.errors import ConfigError, HilcastError
from state.reductions.catalogue import create
from state.reductions.parameters import SETTINGS, check_parameters, forwards_ranges, read
from state.space.boxes import Boxes
from state.space.event_type import Attribute, EventType
from state.space.ranges import Ranges

PAGE = Path(__file__).parents[2] / "docs" / "operations.md"
ROW = re.compile(r"^\| `([a-z-]+)` \| `([a-z_]+)` \| (?:`([^`]*)`)? ?\|", re.M)
TAKEN: dict[str, dict[str, object]] = {
    reduction: {f.name: f.default for f in fields(settings)} for reduction, settings in SETTINGS.items()
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
    assert check_parameters(of_type(reduction, given)) == []
    for name in ("colour", *(n for n in ("mode", "error", "k") if n not in given)):
        assert check_parameters(of_type(reduction, {name: 1}))


def of_type(reduction: str, parameters: dict[str, object]) -> EventType:
    return EventType("t", (Attribute("a", "int", min=0, max=9),), reduction=reduction, parameters=parameters)


WRONG: list[tuple[str, dict[str, object], str]] = [
    ("none", {"k": 1}, "parameters.k: unknown key"),
    ("covering", {"mode": "exact"}, "parameters.mode: unknown key"),
    ("mics", {"merging": "nearly"}, "parameters.merging: must be one of perfect, imperfect, not 'nearly'"),
    ("mics", {"merging": "imperfect"}, "parameters.merging: 'imperfect' needs one of 'gap_cells' and 'budget'"),
    (
        "mics",
        {"merging": "imperfect", "gap_cells": 1, "budget": 1.0},
        "parameters.merging: 'imperfect' needs one of 'gap_cells' and 'budget'",
    ),
    ("mics", {"gap_cells": 3}, "parameters.gap_cells: needs merging = 'imperfect'"),
    (
        "mics",
        {"merging": "imperfect", "gap_cells": True},
        "parameters.gap_cells: must be an integer from 1 to 9223372036854775807, not true",
    ),
    (
        "mics",
        {"merging": "imperfect", "gap_cells": 2**63},
        "parameters.gap_cells: must be an integer from 1 to 9223372036854775807, not 9223372036854775808",
    ),
    (
        "mics",
        {"merging": "imperfect", "gap_cells": 1, "mode": "indexed"},
        "parameters.merging: 'imperfect' needs mode = 'projected': indexed entries are forwarded whole",
    ),
    (
        "mics",
        {"merging": "imperfect", "budget": float("nan")},
        "parameters.budget: must be a number above 0, not nan",
    ),
    ("mics", {"merging": "imperfect", "budget": 0}, "parameters.budget: must be a number above 0, not 0"),
    ("mics", {"cap": 0}, "parameters.cap: must be an integer from 1 to 9223372036854775807, not 0"),
    ("mics", {"mode": "both"}, "parameters.mode: must be one of projected, indexed, not 'both'"),
    ("mics", {"exact": 3}, "parameters.exact: must be one of pairwise, negative-space, hybrid, not 3"),
    (
        "mics",
        {"exact": "guess", "mode": "indexed"},
        "parameters.exact: must be one of pairwise, negative-space, hybrid, not 'guess'",
    ),
    ("mics", {"colour": "blue"}, "parameters.colour: unknown key"),
    ("mics", {"gap_cell": 3}, "parameters.gap_cell: unknown key; did you mean 'gap_cells'?"),
    ("merging", {"budget": -1}, "parameters.budget: must be a number from 0, not -1"),
    ("merging", {"budget": "much"}, "parameters.budget: must be a number from 0, not 'much'"),
    ("merging", {"budget": True}, "parameters.budget: must be a number from 0, not true"),
    ("merging", {"gap": 1}, "parameters.gap: unknown key"),
    ("negative-space", {"mode": "fuzzy"}, "parameters.mode: must be one of exact, approximate, not 'fuzzy'"),
    ("negative-space", {"k": 0}, "parameters.k: must be an integer from 1 to 9223372036854775807, not 0"),
    ("negative-space", {"k": True}, "parameters.k: must be an integer from 1 to 9223372036854775807, not true"),
    ("negative-space", {"choice": "luck"}, "parameters.choice: must be one of benefit-cost, benefit, cost, not 'luck'"),
    ("negative-space", {"dynamic": 1}, "parameters.dynamic: must be true or false, not 1"),
    ("negative-space", {"cuts": []}, "parameters.cuts: must be one of largest-first, in-order, not []"),
    (
        "negative-space",
        {"merge_budget": -1},
        "parameters.merge_budget: must be an integer from 0 to 9223372036854775807, not -1",
    ),
    ("negative-space", {"rebuild": "often"}, "parameters.rebuild: must be a number from 0, not 'often'"),
    ("negative-space", {"rebuild": float("nan")}, "parameters.rebuild: must be a number from 0, not nan"),
    ("negative-space", {"rebuild": float("inf")}, "parameters.rebuild: must be a number from 0, not inf"),
    (
        "negative-space",
        {"max_boxes": 2.5},
        "parameters.max_boxes: must be an integer from 0 to 9223372036854775807, not 2.5",
    ),
    ("negative-space", {"retire": "yes"}, "parameters.retire: must be true or false, not 'yes'"),
    ("negative-space", {"speed": 9}, "parameters.speed: unknown key"),
    ("hybrid", {"budget": 0}, "parameters.budget: must be an integer from 1 to 9223372036854775807, not 0"),
    ("hybrid", {"budget": True}, "parameters.budget: must be an integer from 1 to 9223372036854775807, not true"),
    ("hybrid", {"error": 0}, "parameters.error: must be a number from 1e-300 and below 1, not 0"),
    ("hybrid", {"error": 1}, "parameters.error: must be a number from 1e-300 and below 1, not 1"),
    ("hybrid", {"trials_max": -1}, "parameters.trials_max: must be an integer from 0 to 9223372036854775807, not -1"),
    ("hybrid", {"cap": 3}, "parameters.cap: unknown key"),
    ("probabilistic", {"error": 0}, "parameters.error: must be a number from 1e-300 and below 1, not 0"),
    ("probabilistic", {"error": 1.5}, "parameters.error: must be a number from 1e-300 and below 1, not 1.5"),
    ("probabilistic", {"error": 5e-324}, "parameters.error: must be a number from 1e-300 and below 1, not 5e-324"),
    ("probabilistic", {"error": "x"}, "parameters.error: must be a number from 1e-300 and below 1, not 'x'"),
    (
        "probabilistic",
        {"trials_max": 0},
        "parameters.trials_max: must be an integer from 1 to 9223372036854775807, not 0",
    ),
    (
        "probabilistic",
        {"trials_max": 2**63},
        "parameters.trials_max: must be an integer from 1 to 9223372036854775807, not 9223372036854775808",
    ),
    ("probabilistic", {"k": 3}, "parameters.k: unknown key"),
]


@pytest.mark.parametrize(("reduction", "parameters", "fault"), WRONG)
def test_a_wrong_parameter_is_named_with_its_value(reduction: str, parameters: dict[str, object], fault: str) -> None:
    """Each fault names the parameter, what it may be and what it is; making the reduction with it is refused."""
    wrong = of_type(reduction, parameters)
    assert check_parameters(wrong) == [fault]
    domain = Ranges.of([(0, 9)]) if forwards_ranges(wrong) else Boxes.of([([0], [9])])
    with pytest.raises(ConfigError, match=r"^bad-config: 1 fault") as refused:
        create(wrong, domain)
    assert refused.value.faults == [fault]


GOOD: list[tuple[str, dict[str, object]]] = [
    ("mics", {"merging": "imperfect", "budget": 0.2, "cap": 64, "mode": "projected", "exact": "pairwise"}),
    ("mics", {"mode": "indexed", "exact": "negative-space"}),
    ("merging", {"budget": 0.5}),
    ("negative-space", {"mode": "approximate", "k": 7, "rebuild": 2}),
]


@pytest.mark.parametrize(("reduction", "parameters"), GOOD)
def test_good_parameters_are_taken(reduction: str, parameters: dict[str, object]) -> None:
    """What was given is what is read, and the rest has its default."""
    assert check_parameters(of_type(reduction, parameters)) == []
    assert asdict(read(SETTINGS[reduction], parameters)) == TAKEN[reduction] | parameters


def test_all_faults_come_at_once() -> None:
    """Two wrong parameters are two faults, at the place that the configuration gives them."""
    faults = check_parameters(of_type("negative-space", {"k": -1, "mode": 3}), "types.t.parameters")
    assert [fault.split(":")[0] for fault in faults] == ["types.t.parameters.mode", "types.t.parameters.k"]


def test_an_unknown_reduction_is_refused() -> None:
    """Neither its parameters nor the reduction itself can be had."""
    for ask in (check_parameters, lambda unknown: create(unknown, Boxes.of([([0], [9])]))):
        with pytest.raises(HilcastError, match=r"^bad-config: unknown reduction 'magic'"):
            ask(of_type("magic", {}))


def test_parameters_are_read_without_numpy() -> None:
    """A configuration is checked, by clients too, without loading what reductions compute with."""
    script = "import sys, state.reductions.parameters; print([m for m in ('numpy', 'numba') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], cwd=PAGE.parents[1], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr
