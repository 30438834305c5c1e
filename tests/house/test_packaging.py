"""Source distribution and wheel: complete, and of use outside the checkout, for clients and for the router."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from state.config import load
from state.space.grid import Grid
from tests.house.test_rules import PACKAGES, ROOT, tracked
from tests.producers.worlds import text

BUILD = "import sys; from setuptools import build_meta; print(getattr(build_meta, sys.argv[1])(sys.argv[2]))"
SITE = Path("lib", f"python{sys.version_info.major}.{sys.version_info.minor}", "site-packages")


def project():
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def run(*command, cwd, **environ):
    """Run a program with nothing of this checkout in its environment; return what it printed."""
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "HILCAST_CONFIG")}
    done = subprocess.run(
        [str(word) for word in command], cwd=cwd, env=clean | environ, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def sdist(tmp_path_factory):
    """The source distribution of what is in version control, built aside so that nothing is left in the checkout."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("sdist")
    for path in tracked():
        copy = source / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    return out / run(sys.executable, "-c", BUILD, "build_sdist", out, cwd=source).splitlines()[-1]


@pytest.fixture(scope="module")
def wheel(sdist, tmp_path_factory):
    """The wheel, built from the source distribution alone."""
    source, out = tmp_path_factory.mktemp("unpacked"), tmp_path_factory.mktemp("wheel")
    with tarfile.open(sdist) as packed:
        packed.extractall(source, filter="data")
    (folder,) = source.iterdir()
    return out / run(sys.executable, "-c", BUILD, "build_wheel", out, cwd=folder).splitlines()[-1]


@pytest.fixture(scope="module")
def client(wheel, tmp_path_factory):
    """A fresh environment with the wheel and the packages of its base, as `pip install hilcast` leaves it."""
    folder = tmp_path_factory.mktemp("client")
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder)
    installing = ["install", "--quiet", "--no-deps", "--no-index", "--disable-pip-version-check", wheel]
    run(sys.executable, "-m", "pip", "--python", folder / "bin" / "python", *installing, cwd=folder)
    for requirement in project()["dependencies"]:
        base = importlib.metadata.distribution(re.split(r"[^\w-]", requirement)[0])
        for name in {file.parts[0] for file in base.files or () if file.parts[0] != ".."}:
            (folder / SITE / name).symlink_to(base.locate_file(name))
    return folder


def test_the_wheel_is_complete(wheel):
    """It holds every module of the packages, `hilcast`, and all that they read beside themselves; nothing else."""
    with zipfile.ZipFile(wheel) as packed:
        held = {name for name in packed.namelist() if ".dist-info/" not in name}
    files = {str(path.relative_to(ROOT)) for path in tracked()}
    modules = {name for name in files if name.endswith(".py") and name.split("/")[0] in (*PACKAGES, "hilcast.py")}
    assert modules <= held
    assert held <= files
    assert {name.split("/")[0] for name in held} == {*PACKAGES, "hilcast.py"}
    read = {"state/py.typed", "infra/jars.toml", "producers/console/static/index.html"}
    read |= {name for name in files if name.startswith("producers/console/static/")}
    assert read | {name for name in files if name.startswith("infra/") and name.endswith(".toml")} <= held


def test_the_wheel_asks_clients_for_the_base_alone(wheel):
    """Without an extra the metadata require what the project calls its dependencies; each extra is there."""
    with zipfile.ZipFile(wheel) as packed:
        (name,) = [name for name in packed.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = packed.read(name).decode()
    required = re.findall(r"^Requires-Dist: (.*)$", metadata, re.M)
    plain = {re.split(r"[^\w-]", line)[0] for line in required if "extra ==" not in line}
    assert plain == {re.split(r"[^\w-]", line)[0] for line in project()["dependencies"]}
    assert set(re.findall(r"^Provides-Extra: (.*)$", metadata, re.M)) == set(project()["optional-dependencies"])


def test_a_client_runs_outside_the_checkout(client, tmp_path):
    """With the base alone the library is imported from where it was installed, and the command prints its help."""
    library = "from hilcast import Advertiser, Publisher, Subscriber, load, wait; import hilcast, sys; "
    told = run(
        client / "bin" / "python", "-c", library + "print(hilcast.__file__, 'numpy' in sys.modules)", cwd=tmp_path
    )
    assert told.split() == [str(client / SITE / "hilcast.py"), "False"]
    assert "COMMAND" in run(client / "bin" / "hilcast", "--help", cwd=tmp_path)
    shutil.copy(ROOT / "hilcast.toml", tmp_path)
    refused = subprocess.run([client / "bin" / "hilcast", "verify"], cwd=tmp_path, capture_output=True, text=True)
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
    assert refused.stderr.endswith("pip install 'hilcast[router]'\n")


def test_the_commands_of_clients_need_only_the_base(client, services, unique, tmp_path):
    """With the base alone, and a Kafka whose router is away, every command of a client does its part."""
    (tmp_path / "hilcast.toml").write_text(text(services, unique))

    def hilcast(*arguments):
        done = subprocess.run(
            [client / "bin" / "hilcast", *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=60
        )
        return done.returncode, done.stdout + done.stderr

    code, created = hilcast("topics")
    assert code == 0
    assert f"{unique}.subscriptions" in created
    place = ("-b", "b1", "-t", "quote")
    assert hilcast("publish", *place, "--id", "e1", '{"price": 1}') == (0, "hilcast#e1\n")
    assert hilcast("tail", "alice", "--once") == (0, "")
    for command in (
        ("subscribe", *place, "-c", "alice", "price < 5"),
        ("unsubscribe", *place, "s1"),
        ("advertise", *place, "-p", "exchange", "price < 5"),
        ("unadvertise", *place, "a1"),
    ):
        code, said = hilcast(*command, "--timeout", "0.1")
        assert (code, said.split(":")[1]) == (1, " unanswered"), said
    code, said = hilcast("wait", "--timeout", "0.1")
    assert (code, said.split(":")[1]) == (1, " behind"), said
    assert "b1: no deployment hosts it" in said


def test_a_router_runs_outside_the_checkout(client, tmp_path):
    """With the packages of the router beside it, the wheel has the job, the filter language and every command."""
    packages = str(importlib.metadata.distribution("pyspark").locate_file(""))
    program = """
import streaming.job
from state.config import load
from state.filters.grammar import parse
print(streaming.job.__file__)
print(parse("price < 5", load("hilcast.toml").types["stock.quote"]))
"""
    shutil.copy(ROOT / "hilcast.toml", tmp_path)
    job, tree = run(client / "bin" / "python", "-c", program, cwd=tmp_path, PYTHONPATH=packages).splitlines()
    assert job == str(client / SITE / "streaming" / "job.py")
    assert "price" in tree
    hilcast = client / "bin" / "hilcast"
    assert "Java" in run(hilcast, "doctor", "--help", cwd=tmp_path, PYTHONPATH=packages)
    grid = json.loads(run(hilcast, "grid", "stock.quote", cwd=tmp_path, PYTHONPATH=packages))
    assert grid["hash"] == Grid.of(load(ROOT / "hilcast.toml").types["stock.quote"]).hash
