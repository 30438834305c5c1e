"""What the tests of the simulator share: the oracle as judge, and short configurations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from benchmarks.workloads import mixed
from state.config import Config
from tests import oracle
from tests.simulation.drill import Report, run
from tests.simulation.scenario import Action, Scenario


def plain_types(config: Config) -> dict[str, dict[str, dict[str, Any]]]:
    """Event types as the oracle reads them."""
    return {
        name: {a.name: {"kind": a.kind, "values": list(a.values), "imprecise": a.imprecise} for a in t.attributes}
        for name, t in config.types.items()
    }


def judge(config: Config) -> Callable[[str, str, Mapping[str, object]], bool]:
    """The oracle's reading of filters, each read once."""
    types = plain_types(config)
    tree = cache(oracle.tree_of)
    return lambda type_name, text, event: oracle.evaluate(tree(text), event, types[type_name])


def perform(scenario: Scenario) -> Report:
    """Run a scenario with the oracle as judge; raises Failure."""
    return run(scenario, mixed, judge(scenario.configs()[0]))


def plane(*links: str, cubes: int = 16, reduction: str = "covering", more: str = "", settings: str = "") -> str:
    """The configuration of one type with two integers; links as `a-b`, the first broker first."""
    pairs = [link.split("-") for link in links]
    brokers = list(dict.fromkeys(broker for pair in pairs for broker in pair))
    return f"""
[settings]
{settings}
[overlay]
brokers = {brokers}
links = {pairs}
[types.t]
reduction = "{reduction}"
cubes = {cubes}
index = ["x", "y"]
{more}
[types.t.attributes]
x = {{ kind = "int", min = 0, max = 100 }}
y = {{ kind = "int", min = 0, max = 100 }}
"""


def scenario(
    configs: list[str], hosting: list[tuple[str, ...]], *actions: Action, message_bytes: int = 512 * 1024
) -> Scenario:
    return Scenario(0, tuple(configs), tuple(hosting), message_bytes, actions)
