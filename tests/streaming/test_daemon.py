"""The process that Spark forks its workers from, as it is when it begins to."""

from __future__ import annotations

import gc
import runpy

from streaming.host_index import FOLDER_VARIABLE
from streaming.settings import QUERY_VARIABLE, WARM_VARIABLE

SEEN_MAX = 1000
"""Objects that the collector sees in a new worker, at most; all that is imported are some 150,000."""


def test_workers_are_forked_with_what_is_imported_out_of_sight_of_the_collector(monkeypatch):
    """PySpark collects garbage after every task of a worker: it would look at all of that each time."""
    seen, hidden = [], []

    def manager():
        seen.append(len(gc.get_objects()))
        hidden.append(gc.get_freeze_count())

    monkeypatch.setattr("pyspark.daemon.manager", manager)
    for variable in (WARM_VARIABLE, FOLDER_VARIABLE, QUERY_VARIABLE):
        monkeypatch.delenv(variable, raising=False)
    try:
        runpy.run_module("streaming.daemon", run_name="__main__")
    finally:
        gc.unfreeze()
    assert seen[0] < SEEN_MAX
    assert hidden[0] > 50 * SEEN_MAX


def test_nobody_looks_for_garbage_while_a_control_task_runs(monkeypatch):
    """Workers of the control query are forked with the collector off; PySpark calls it after every task."""
    enabled = []
    monkeypatch.setattr("pyspark.daemon.manager", lambda: enabled.append(gc.isenabled()))
    monkeypatch.setattr("os.nice", lambda _: 0)
    for variable in (WARM_VARIABLE, FOLDER_VARIABLE):
        monkeypatch.delenv(variable, raising=False)
    try:
        for query in ("route", "control"):
            monkeypatch.setenv(QUERY_VARIABLE, query)
            runpy.run_module("streaming.daemon", run_name="__main__")
    finally:
        gc.enable()
        gc.unfreeze()
    assert enabled == [True, False]
