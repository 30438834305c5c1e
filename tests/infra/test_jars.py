"""Fetching jars: with the real Ivy, from a registry that is a folder, so that no network is needed."""

from __future__ import annotations

import hashlib
import io
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from infra import versions
from infra.local import jars
from infra.local.progress_bar import Progress
from infra.versions import Coordinate, JarSet
from state.errors import HilcastError

POOL = Coordinate("org.apache.commons", "commons-pool2", "2.13.1")
TINY = JarSet("tiny-1", (POOL,), transitive=False)
NAME = "commons-pool2-2.13.1.jar"


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """A registry with one jar, an empty home for jars, and a function that writes the lock file."""
    source = next(path for path in jars.paths(versions.CONNECTOR) if path.name == NAME)
    (tmp_path / "registry").mkdir()
    shutil.copy(source, tmp_path / "registry" / NAME)
    settings = tmp_path / "ivysettings.xml"
    settings.write_text(
        '<ivysettings><settings defaultResolver="here"/><resolvers><filesystem name="here">'
        f'<artifact pattern="{tmp_path}/registry/[artifact]-[revision].[ext]"/>'
        "</filesystem></resolvers></ivysettings>"
    )
    monkeypatch.setenv("HILCAST_IVY_SETTINGS", str(settings))
    monkeypatch.setenv("HILCAST_JARS", str(tmp_path / "jars"))
    monkeypatch.setattr(jars, "_LOCK_FILE", tmp_path / "jars.toml")

    def expect(digest: str) -> None:
        (tmp_path / "jars.toml").write_text(f'["{TINY.name}"]\n"{NAME}" = "{digest}"\n')

    expect(hashlib.sha256(source.read_bytes()).hexdigest())
    return expect


def test_a_set_is_fetched_once(registry: Callable[[str], None], tmp_path: Path) -> None:
    """A missing set is fetched whole, a half-filled folder counts as missing, a whole one is left alone."""
    half = tmp_path / "jars" / TINY.name
    half.mkdir(parents=True)
    (half / NAME).write_bytes(b"half a jar")
    assert jars.missing(TINY) == [NAME]
    with pytest.raises(HilcastError, match=r"jars-missing: 1 of 1 .*make setup"):
        jars.paths(TINY)
    assert jars.fetch(TINY) is True
    assert [path.read_bytes()[:2] for path in jars.paths(TINY)] == [b"PK"]
    assert jars.fetch(TINY) is False
    assert not (tmp_path / "jars" / ".fetch").exists()
    (half / NAME).unlink()  # a jar that somebody removed is noticed
    assert jars.missing(TINY) == [NAME]


def test_other_content_is_refused(registry: Callable[[str], None], tmp_path: Path) -> None:
    """A jar that is not the pinned one is not put in place."""
    registry("0" * 64)
    with pytest.raises(HilcastError, match=rf"jars-unavailable: 1 jar.*{NAME}"):
        jars.fetch(TINY)
    assert jars.missing(TINY) == [NAME]
    assert not (tmp_path / "jars" / TINY.name).exists()


def test_a_registry_without_the_jar(registry: Callable[[str], None], tmp_path: Path) -> None:
    """What cannot be resolved is named, with the log and what to try."""
    (tmp_path / "registry" / NAME).unlink()
    with pytest.raises(HilcastError, match=r"jars-unavailable: .*commons-pool2.*\.log.*HILCAST_IVY_SETTINGS"):
        jars.fetch(TINY)


@pytest.mark.parametrize("wanted", jars.SETS, ids=lambda wanted: wanted.name)
def test_the_lock_file_follows_the_versions(wanted: JarSet) -> None:
    """Every coordinate of versions.py has its jar in jars.toml, and every digest is one."""
    locked = jars.digests(wanted)
    assert {f"{c.artifact}-{c.version}.jar" for c in wanted.roots} <= locked.keys()
    assert all(len(digest) == 64 and int(digest, 16) >= 0 for digest in locked.values())
    assert wanted.transitive or len(locked) == len(wanted.roots)


def test_the_connector_is_that_of_pyspark() -> None:
    """The jars and the Python package are of one version of Spark, and `spark.jars` names all four."""
    assert [Path(path).is_file() for path in jars.spark_jars().split(",")] == [True] * 4
    import pyspark

    assert pyspark.__version__ == versions.SPARK


def test_a_bar_on_a_terminal_and_lines_elsewhere() -> None:
    """On a terminal one line is redrawn; elsewhere a line comes every five seconds at most; then the last."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    shown, logged = Terminal(), io.StringIO()
    for out in (shown, logged):
        ticks = iter(range(0, 100, 2))
        bar = Progress("fetching", total=4, out=out, clock=lambda ticks=ticks: float(next(ticks)))
        for name in ("a", "b", "c", "d", "one too many"):
            bar.step(name)
        bar.done()
    assert shown.getvalue().count("\r") == 6
    assert "[#######-----------------------] 1/4 a" in shown.getvalue()
    assert shown.getvalue().endswith("fetching: 4 of 4, 12 s\n")
    assert logged.getvalue().splitlines() == ["fetching: 3 of 4, 6 s", "fetching: 4 of 4, 12 s"]
