"""Which Python workers Spark uses, on a real Spark."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from infra.local import class_archive

SCRIPT = """
import os
import sys
from pathlib import Path

from state.config import parse
from streaming.settings import QUERY_VARIABLE, session

spark = session(parse(Path(sys.argv[1]).read_text()))
context = spark.sparkContext
found = []
for query in ("control", "route"):
    context.environment[QUERY_VARIABLE] = query
    of_sql = spark.range(0, 1, 1, 1).mapInPandas(lambda frames: (f.assign(id=os.getppid()) for f in frames), "id long")
    found.append({row.id for row in of_sql.collect()})
    found.append(set(context.parallelize([0], 1).map(lambda _: os.getppid()).collect()))
spark.stop()
print("daemons", found[0] == found[1], found[2] == found[3], len(set().union(*found)))
"""
TEXT = """
[settings]
master = "local[1]"
[overlay]
brokers = ["b1"]
[types.t.attributes]
x = { kind = "int" }
"""


@pytest.mark.services
def test_generations_are_built_by_the_workers_of_the_control_query(tmp_path):
    """SQL and other jobs have one daemon for each query: no build starts another while routing waits for it."""
    (tmp_path / "hilcast.toml").write_text(TEXT)
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "hilcast.toml")]
    environment = {**os.environ, **class_archive.spark_environment()}
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines()[-1] == "daemons True True 2"
