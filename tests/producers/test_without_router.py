"""What a client needs: the library and its commands where nothing of the router is installed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from infra.extras import PACKAGES

ROOT = Path(__file__).parents[2]
BASE = {"confluent-kafka": "confluent_kafka", "msgspec": "msgspec"}
"""What the base of the distribution is imported as."""


def project():
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def names(requirements):
    """Distributions that requirements name, with what stands in brackets: `kafka-python[lz4]>=3` is two."""
    return {name for line in requirements for name in re.split(r"[<>=!~]", line)[0].strip("]").split("[")}


@pytest.fixture(scope="module")
def seen():
    """What the program of a client found where only the base is installed."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.producers.without_router", *BASE.values()],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_clients_need_only_the_base(seen):
    """With nothing but the base a client subscribes, advertises, publishes and receives, and loads nothing else."""
    assert names(project()["dependencies"]) == set(BASE)
    assert seen["receipts"] == ["accepted", "accepted"]
    assert seen["delivered"] == [{"price": 1}, ["s1"]]
    assert seen["wait"] is True
    assert seen["foreign"] == []


def test_what_is_not_installed_is_named_with_its_extra(seen):
    """Mapping by the client and the other Kafka client are refused with what to install."""
    mapping, transport = seen["lacking"]
    assert mapping.startswith("packages-missing: not installed: ")
    assert "numpy" in mapping
    assert mapping.endswith("pip install 'hilcast[router]'")
    assert transport == "packages-missing: not installed: kafka, lz4; this needs pip install 'hilcast[kafka-python]'"


def test_commands_that_need_the_router_say_so_in_one_line(seen):
    """Exit code 1 and one line that names the extra, no traceback."""
    assert len(seen["commands"]) == 9
    for code, said in seen["commands"].values():
        assert code == 1
        assert said.startswith("hilcast: packages-missing: ")
        assert said.endswith("pip install 'hilcast[router]'\n")
        assert said.count("\n") == 1


@pytest.mark.parametrize("extra", PACKAGES)
def test_extras_are_what_the_project_says(extra):
    """The packages that are looked for are those that the extra brings, no more and no less."""
    wanted = names(project()["optional-dependencies"][extra])
    if "router" in wanted:
        wanted = wanted - {"router"} | names(project()["optional-dependencies"]["router"])
    if "hilcast" in wanted:  # an extra that contains another: its name stands in the brackets
        assert wanted >= {"kafka-python", "formats"}
        wanted -= {"hilcast", "formats"}  # `formats` is looked for by itself, and is no distribution
    installed = dict(packages_distributions())
    # several distributions share the package `google`
    installed |= {"google.protobuf": ["protobuf"]}
    looked_for = {installed[package][0].lower().replace("_", "-") for package in PACKAGES[extra]}
    assert looked_for == wanted
