"""Archives of loaded classes, by which the JVMs of Spark and of the local Kafka start in about half the processor time.

    <environment>/share/hilcast/
      classes/spark-ID.jsa, kafka-ID.jsa      ID: of the Java and the class path that made them

Each is written by the JVM itself (`-XX:ArchiveClassesAtExit`) as it ends, after it has done once what a job or a broker
does (`python -m infra.local.class_archive spark FILE`), and is put in place once that JVM has ended well. Java compares
it with itself and with its class path, and goes on without one that does not fit, only more slowly.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from infra.local import jars, java
from infra.local.locks import alone_in

NAMES = ("spark", "kafka")
MAKE_S = 300.0
MAKING = 2
"""Counted up when what is archived changes: one that was made otherwise is not taken for it."""
BRIEF = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For a JVM whose life is too short to be worth the second compiler."""
_ADVICE = "set HILCAST_JARS to a folder that can be written"


def path(name: str) -> Path:
    """Where the archive of this Java and these jars is, or would be."""
    program = _java()
    made_of = f"{program} {program.stat().st_mtime_ns} {sys.prefix} {jars.home()} {MAKING}"
    return jars.home() / "classes" / f"{name}-{hashlib.sha256(made_of.encode()).hexdigest()[:12]}.jsa"


@cache
def _java() -> Path:
    return java.find().path.resolve()


def options(archive: Path) -> list[str]:
    """What a JVM is told to use an archive, if it is there; of one that does not fit it says nothing.

    >>> options(Path("/nowhere/spark.jsa"))
    []
    """
    return [f"-XX:SharedArchiveFile={archive}", "-Xlog:cds*=off"] if archive.is_file() else []


def spark_environment() -> dict[str, str]:
    """What `python -m streaming` is told of the jars that Spark needs and of the archive, if there is one."""
    told = {"HILCAST_SPARK_JARS": jars.spark_jars()}
    archive = path("spark")
    return told | ({"HILCAST_SPARK_CLASSES": str(archive)} if archive.is_file() else {})


def prepare(names: Iterable[str] = NAMES) -> None:
    """Make the archives that are missing, side by side; quick when none is.

    An archive is a shortcut: where one cannot be made that is said, and everything works without it.
    """
    if all(path(name).is_file() for name in names):
        return
    with alone_in(jars.home() / "classes", _ADVICE):
        missing = [name for name in names if not path(name).is_file()]
        making = {name: _making(name) for name in missing}
        for name, process in making.items():
            print(f"preparing quick starts of {name}, once", file=sys.stderr, flush=True)
            try:
                code = process.wait(MAKE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                code = process.wait()
            if code == 0 and _aside(name).is_file():
                _aside(name).rename(path(name))
            else:
                print(f"{name} starts more slowly: no archive of its classes, see {_log(name)}", file=sys.stderr)


def _aside(name: str) -> Path:
    return path(name).with_suffix(".part")


def _log(name: str) -> Path:
    return jars.home() / "classes" / f"{name}.log"


def _making(name: str) -> subprocess.Popen[bytes]:
    """A process whose JVM writes the archive aside as it ends."""
    _aside(name).unlink(missing_ok=True)
    with _log(name).open("wb") as out:
        command = [sys.executable, "-m", "infra.local.class_archive", name, str(_aside(name))]
        return subprocess.Popen(command, stdout=out, stderr=out, cwd=Path(__file__).parents[2])


def _exercise_kafka(archive: Path) -> None:
    """A broker from its format to its orderly end, with a topic and some records."""
    from confluent_kafka import Consumer, Producer

    from infra.local.kafka_broker import LocalKafka
    from infra.local.ports import free_port

    with tempfile.TemporaryDirectory() as folder:
        broker = LocalKafka(
            Path(folder), f"127.0.0.1:{free_port()}", jvm=[*BRIEF.split(), f"-XX:ArchiveClassesAtExit={archive}"]
        )
        broker.start()
        try:
            producer = Producer({"bootstrap.servers": broker.address, "compression.type": "lz4"})
            for i in range(100):
                producer.produce("t", key=str(i), value=b"x" * 100)
            producer.flush(30.0)
            consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "g", "auto.offset.reset": "earliest"})
            consumer.subscribe(["t"])
            consumer.consume(100, timeout=30.0)
            consumer.commit()
            consumer.close()
        finally:
            broker.process.stop(MAKE_S)


def _exercise_spark(archive: Path) -> None:
    """Both queries of a job in small, on a broker of its own, from a session to its end."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_SUBMIT_ARGS"] = (
        f"--driver-class-path {jars.spark_class_path()} "
        f'--conf "spark.driver.extraJavaOptions={BRIEF} -XX:ArchiveClassesAtExit={archive}" pyspark-shell'
    )
    from pyspark import SparkContext

    from infra.local import spark_exercise
    from infra.local.kafka_broker import LocalKafka
    from infra.local.ports import free_port

    with tempfile.TemporaryDirectory() as folder:
        broker = LocalKafka(Path(folder), f"127.0.0.1:{free_port()}", jvm=BRIEF.split())
        broker.start()
        try:
            spark_exercise.run(broker.address)
        finally:
            broker.process.stop(MAKE_S)
    jvm = SparkContext._gateway
    jvm.shutdown()
    jvm.proc.stdin.close()  # on which it ends, and writes the archive
    if code := jvm.proc.wait(MAKE_S):
        raise SystemExit(code)


def main(arguments: list[str]) -> int:
    """Have a JVM write one archive."""
    exercise = {"kafka": _exercise_kafka, "spark": _exercise_spark}[arguments[0]]
    exercise(Path(arguments[1]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
