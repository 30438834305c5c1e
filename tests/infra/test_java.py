"""Which Java is taken, and what is said when there is none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from infra.local import java
from state.errors import HilcastError

ROOT = Path(__file__).parents[2]


def fake(folder: Path, says: str, code: int = 0) -> Path:
    """Write a `java` that only says something."""
    folder.mkdir(parents=True)
    program = folder / "java"
    program.write_text(f"#!/bin/sh\necho '{says}' >&2\nexit {code}\n")
    program.chmod(0o755)
    return program


def test_the_java_of_this_machine_is_found() -> None:
    """The tests themselves run on a Java of a supported release."""
    found = java.find()
    assert found.release in (17, 21)
    assert os.access(found.path, os.X_OK)


@pytest.mark.parametrize("release", [17, 21])
def test_java_home_goes_before_the_path(tmp_path: Path, release: int) -> None:
    """JAVA_HOME wins, because pyspark takes it too."""
    home = fake(tmp_path / "home" / "bin", f'openjdk version "{release}.0.1" 2025-01-01')
    fake(tmp_path / "path", 'openjdk version "17.0.1" 2025-01-01')
    found = java.find({"JAVA_HOME": str(tmp_path / "home"), "PATH": str(tmp_path / "path")})
    assert found == java.Java(home, release)


def test_no_java_at_all() -> None:
    """Without a path and without JAVA_HOME the message says what to install."""
    with pytest.raises(HilcastError, match=r"java-missing: no java .*17 or 21.*JAVA_HOME"):
        java.find({"PATH": ""})


def test_java_home_without_java(tmp_path: Path) -> None:
    """A wrong JAVA_HOME is named and not passed over, because pyspark would fail on it later."""
    fake(tmp_path / "path", 'openjdk version "17.0.1" 2025-01-01')
    with pytest.raises(HilcastError, match="java-missing: JAVA_HOME=/nowhere has no bin/java"):
        java.find({"JAVA_HOME": "/nowhere", "PATH": str(tmp_path / "path")})


@pytest.mark.parametrize("text", ['java version "1.8.0_402"', 'openjdk version "11.0.2"', 'openjdk version "25"'])
def test_a_java_of_another_release(tmp_path: Path, text: str) -> None:
    """Releases that Spark and Kafka do not both run on are refused by number."""
    fake(tmp_path / "path", text)
    with pytest.raises(HilcastError, match=r"java-version: .* is Java (8|11|25): .*17 or 21"):
        java.find({"PATH": str(tmp_path / "path")})


def test_a_java_that_only_complains(tmp_path: Path) -> None:
    """A stub that fails counts as none, and its words are passed on."""
    fake(tmp_path / "path", "No Java runtime present", code=1)
    with pytest.raises(HilcastError, match=r"java-missing: .*No Java runtime present"):
        java.find({"PATH": str(tmp_path / "path")})


def test_setup_without_java_ends_with_the_message(tmp_path: Path) -> None:
    """`make setup` on a machine without Java: exit code 1 and one line for people, no traceback."""
    environ = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    done = subprocess.run(
        [sys.executable, "-m", "infra.local", "setup"],
        env=environ | {"PATH": str(tmp_path)},
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("java-missing: ")
    assert len(done.stderr.splitlines()) == 1
