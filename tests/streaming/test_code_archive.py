"""Our code on its way to executors: whole, with its kernels, and these are taken for those of their sources."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile

from state.config import parse
from state.space.grid import warm
from streaming import code_archive
from streaming.settings import SPARK, _shipped, is_local, spark_settings
from tests.test_config import SMALL

COUNT = """
import json, sys
from streaming import code_archive
code_archive.restore()
import streaming.control, streaming.route
from state.redis_index import RedisIndex
from state.space import grid
grid.warm()
used = [one.stats for one in vars(grid).values() if hasattr(one, "stats")]
hits, misses = (sum(sum(getattr(one, name).values()) for one in used) for name in ("cache_hits", "cache_misses"))
print(json.dumps([code_archive.__file__, grid.__file__, hits, misses]))
"""


def test_what_is_unpacked_is_what_runs_and_nothing_is_compiled_again(tmp_path):
    """Code and kernels come from the archive, though it keeps times to the second only."""
    warm()  # what the driver does before
    code_archive.pack(tmp_path / "code.tar.gz")
    unpacked = tmp_path / code_archive.FOLDER
    with tarfile.open(tmp_path / "code.tar.gz") as archive:
        archive.extractall(unpacked, filter="data")
    for path in unpacked.rglob("*.py"):
        os.utime(path, (1, 1))
    environment = {**os.environ, "PYTHONPATH": code_archive.FOLDER}
    command = [sys.executable, "-c", COUNT]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    *files, hits, misses = json.loads(done.stdout)
    assert all(file.startswith(str(unpacked)) for file in files)
    assert (hits > 0, misses) == (True, 0)


def test_archives_of_the_deployment_stay_beside_ours():
    """An environment that somebody packed for executors comes with our code, not instead of it."""
    settings = _shipped("environment.tar.gz#environment")
    theirs, ours = settings["spark.archives"].split(",")
    assert theirs == "environment.tar.gz#environment"
    assert ours.endswith(f"#{code_archive.FOLDER}")
    assert settings["spark.executorEnv.PYTHONPATH"] == code_archive.FOLDER


def test_settings_follow_the_master_and_the_checkpoint():
    """On one machine all stays on loopback; on a directory files are written without child processes."""
    manager = "spark.sql.streaming.checkpointFileManagerClass"
    here = spark_settings(parse(SMALL), "local[4]")
    there = spark_settings(parse(SMALL + '[spark]\n"spark.scheduler.mode" = "FIFO"\n'), "spark://h:7077")
    assert here["spark.driver.host"] == "127.0.0.1"
    assert "spark.driver.host" not in there
    assert here[manager].endswith("FileSystemBasedCheckpointFileManager")
    assert set(SPARK) <= set(there)
    assert (there["spark.master"], there["spark.scheduler.mode"]) == ("spark://h:7077", "FIFO")
    assert json.loads(there["spark.executorEnv.HILCAST_WARM"])["overlay"]
    assert [is_local(m) for m in ("local", "local[2]", "local-cluster[2,1,512]", "spark://h:1")] == [
        True,
        True,
        False,
        False,
    ]
