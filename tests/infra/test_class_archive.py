"""Archives of classes: a JVM takes its classes from one, and passes over one that does not fit."""

from __future__ import annotations

import subprocess

import pytest

from infra.local import class_archive, jars, java

LOADED = "source: shared objects file (top)"


def tool(classes: str, *options: str) -> subprocess.CompletedProcess[str]:
    program = [str(java.find().path), *options, "-cp", classes, "kafka.tools.StorageTool", "random-uuid"]
    return subprocess.run(program, capture_output=True, text=True, timeout=120)


@pytest.fixture(scope="module")
def archive():
    """The one that set-up has made."""
    found = class_archive.path("kafka")
    assert found.is_file(), "`make setup` makes it"
    return found


def test_a_jvm_takes_its_classes_from_the_archive(archive):
    """With the class path that it was made with, classes come from it."""
    assert LOADED in tool(jars.broker_classpath(), f"-XX:SharedArchiveFile={archive}", "-Xlog:class+load").stdout


def test_a_jvm_passes_over_an_archive_that_does_not_fit(archive, tmp_path):
    """Another class path, or no archive at all: the program runs all the same, and nothing but it is heard."""
    other = jars.broker_classpath().replace(":", f":{tmp_path}:", 1)
    strange = tmp_path / "strange.jsa"
    strange.write_bytes(b"\0" * 100_000)
    for classes, file in ((other, archive), (jars.broker_classpath(), strange)):
        done = tool(classes, *class_archive.options(file))
        assert done.returncode == 0, done.stderr
        assert len(done.stdout.split()) == 1, done.stdout


def test_set_up_leaves_archives_that_are_there(archive, capsys):
    """Nothing is made where nothing is missing."""
    written = archive.stat().st_mtime_ns
    class_archive.prepare(["kafka"])
    assert archive.stat().st_mtime_ns == written
    assert not capsys.readouterr().err
