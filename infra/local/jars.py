"""Fetch the jars of the Kafka broker and of Spark's Kafka connector, once, with the Ivy inside pyspark.

    <environment>/share/hilcast/          or $HILCAST_JARS
      kafka-broker-4.3.0/*.jar            complete once `.complete` is there
      spark-connector-4.2.0/*.jar
      .fetch/                             Ivy's cache and log, and the folder being filled; gone after success

A set of jars is filled aside, compared with the digests of `infra/jars.toml` and only then renamed into
place, so a fetch that was killed leaves nothing that looks whole, and the next one resumes from Ivy's cache.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from xml.sax.saxutils import quoteattr

from infra import versions
from infra.local import java
from infra.local.locks import alone_in
from infra.local.progress_bar import Progress
from infra.versions import JarSet
from state.errors import HilcastError

SETS = (versions.BROKER, versions.CONNECTOR)
_LOCK_FILE = Path(versions.__file__).with_name("jars.toml")
_COMPLETE = ".complete"
_ADVICE = (
    "check the network; behind a proxy set JAVA_TOOL_OPTIONS (-Dhttps.proxyHost=… -Dhttps.proxyPort=…); "
    "behind a mirror set HILCAST_IVY_SETTINGS to an ivysettings.xml; without any network copy the folder "
    "of another machine and set HILCAST_JARS to it"
)


def home() -> Path:
    """Return the folder of all jar sets: `HILCAST_JARS`, else inside the virtual environment."""
    chosen = os.environ.get("HILCAST_JARS", "")
    return Path(chosen).absolute() if chosen else Path(sys.prefix) / "share" / "hilcast"


def digests(jars: JarSet) -> dict[str, str]:
    """Return the expected file names of a set with their SHA-256."""
    locked = tomllib.loads(_LOCK_FILE.read_text(encoding="utf-8"))
    return dict(locked.get(jars.name, {}))


def missing(jars: JarSet) -> list[str]:
    """Return the file names of a set that are not in place; empty when it is whole.

    Cost: one look per file; the digests were compared when the set was put in place.
    """
    folder = home() / jars.name
    names = sorted(digests(jars))
    if not (folder / _COMPLETE).exists():
        return names
    return [name for name in names if not (folder / name).is_file()]


def paths(jars: JarSet) -> list[Path]:
    """Return the jars of a set, sorted, or raise `jars-missing`."""
    absent = missing(jars)
    if absent:
        raise HilcastError(
            "jars-missing",
            f"{len(absent)} of {len(digests(jars))} jars of {jars.name} are not in {home()}: run `make setup`"
            " (or `python -m infra.local setup`)",
        )
    return [home() / jars.name / name for name in sorted(digests(jars))]


def broker_classpath() -> str:
    """Return the class path of the Kafka broker."""
    return os.pathsep.join(map(str, paths(versions.BROKER)))


def spark_jars() -> str:
    """Return the value of `spark.jars` (and of `HILCAST_SPARK_JARS`) for Spark to read and write Kafka."""
    return ",".join(map(str, paths(versions.CONNECTOR)))


def spark_class_path() -> str:
    """Return the same jars as a class path: a JVM that has them there finds their classes in its archive."""
    return spark_jars().replace(",", os.pathsep)


def fetch(jars: JarSet) -> bool:
    """Put a set in place if it is not; return whether anything had to be fetched.

    Guarantee: on return every jar is there with its expected digest; on an error nothing half-made is in
    place; processes that fetch at the same time wait for one another.
    """
    if not missing(jars):
        return False
    with alone_in(home(), "set HILCAST_JARS to a folder that can be written"):
        if not missing(jars):
            return False
        work = home() / ".fetch"
        aside = work / jars.name
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        _run_ivy(jars, aside, work)
        _verify(jars, aside)
        (aside / _COMPLETE).touch()
        shutil.rmtree(home() / jars.name, ignore_errors=True)
        aside.rename(home() / jars.name)
        shutil.rmtree(work)
    return True


def lock() -> str:
    """Resolve every set afresh and return the text of `jars.toml` for it."""
    lines = ["# SHA-256 of every jar, by set. Written by `python -m infra.local lock`; see versions.py.\n"]
    with alone_in(home(), "set HILCAST_JARS to a folder that can be written"):
        work = home() / ".fetch"
        for jars in (*SETS, versions.RULER):
            aside = work / jars.name
            shutil.rmtree(aside, ignore_errors=True)
            aside.mkdir(parents=True)
            _run_ivy(jars, aside, work)
            lines.append(f'\n["{jars.name}"]\n')
            lines += [f'"{path.name}" = "{_digest(path)}"\n' for path in sorted(aside.glob("*.jar"))]
        shutil.rmtree(work)
    return "".join(lines)


def ivy_file(jars: JarSet) -> str:
    """Return the ivy.xml that asks for the roots of a set."""
    rows = [
        f"<dependency org={quoteattr(c.group)} name={quoteattr(c.artifact)} rev={quoteattr(c.version)}"
        f' conf="default->default" transitive="{str(jars.transitive).lower()}"/>'
        for c in jars.roots
    ]
    return (
        f'<ivy-module version="2.0"><info organisation="hilcast" module={quoteattr(jars.name)}/>'
        f'<configurations><conf name="default"/></configurations>'
        f"<dependencies>{''.join(rows)}</dependencies></ivy-module>\n"
    )


def _ivy() -> Path:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise HilcastError("packages-missing", "pyspark is not installed: run `make setup`")
    found = sorted(Path(spec.origin).parent.glob("jars/ivy-*.jar"))
    if not found:
        raise HilcastError("packages-missing", f"no jars/ivy-*.jar beside {spec.origin}: reinstall pyspark")
    return found[-1]


def _run_ivy(jars: JarSet, into: Path, work: Path) -> None:
    wanted = work / f"{jars.name}.xml"
    wanted.write_text(ivy_file(jars), encoding="utf-8")
    command = [str(java.find().path), "-jar", str(_ivy()), "-cache", str(work / "cache"), "-ivy", str(wanted)]
    settings = os.environ.get("HILCAST_IVY_SETTINGS", "")
    if settings:
        command += ["-settings", settings]
    command += ["-confs", "default", "-retrieve", f"{into}/[artifact]-[revision](-[classifier]).[ext]"]
    log = work / f"{jars.name}.log"
    # Ivy names each module twice: when it is found, and when its jar has come.
    progress = Progress(f"fetching {jars.name}", total=2 * max(len(digests(jars)), len(jars.roots)))
    with (
        open(log, "w", encoding="utf-8") as kept,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace") as ivy,
    ):
        assert ivy.stdout is not None
        for line in ivy.stdout:
            kept.write(line)
            told = re.search(r"(?:found |\[SUCCESSFUL \] )[^#]+#([^;]+;[^ !]+)", line)
            if told:
                progress.step(told.group(1).replace(";", " "))
    progress.done()
    if ivy.returncode != 0:
        raise HilcastError("jars-unavailable", f"{_last_words(log)} (all of it: {log}): {_ADVICE}")


def _last_words(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    told = [line.strip(" \t:") for line in lines if "UNRESOLVED" in line or "not found" in line or "ERROR" in line]
    return "; ".join((told or lines or ["nothing"])[-3:])


def _verify(jars: JarSet, folder: Path) -> None:
    expected = digests(jars)
    if not expected:
        raise HilcastError("jars-unavailable", f"{_LOCK_FILE} has no {jars.name}: run `python -m infra.local lock`")
    got = {path.name: _digest(path) for path in folder.glob("*.jar")}
    wrong = sorted(name for name in expected.keys() | got.keys() if expected.get(name) != got.get(name))
    if wrong:
        raise HilcastError(
            "jars-unavailable",
            f"{len(wrong)} jar(s) missing, unexpected or of another content, such as {wrong[0]}:"
            f" remove {home() / '.fetch'} and try again; if it stays, the registry serves other files than"
            " those that were pinned",
        )


def _digest(path: Path) -> str:
    with open(path, "rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


if __name__ == "__main__":
    # beside the installation of packages (Makefile): what cannot be had `infra.local setup` says, which tries again
    with contextlib.suppress(HilcastError):
        for wanted in SETS:
            fetch(wanted)
