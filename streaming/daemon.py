"""The process that Spark forks the Python workers of a query from, with all that they need imported and compiled."""

from __future__ import annotations

import gc
import os

from pyspark.daemon import manager

from streaming import allocator, code_archive

code_archive.restore()  # before anything with kernels is imported

from infra.schema_registry import RegistrySchemas  # noqa: E402
from state.config import from_shared  # noqa: E402
from state.warm import CONTROL, ROUTING, warm  # noqa: E402
from streaming.host_index import FOLDER_VARIABLE, leave  # noqa: E402
from streaming.settings import QUERY_VARIABLE, WARM_VARIABLE  # noqa: E402

_query = os.environ.get(QUERY_VARIABLE)
# imported here so that every worker has it; what the other query needs, pandas above all, costs a start a second
if _query != "route":
    import streaming.building
    import streaming.control
if _query != "control":
    import streaming.route  # noqa: F401

HALVES = {"route": ROUTING, "control": CONTROL}
CONTROL_NICENESS = 5
"""Routing goes first where both queries want the processor: about three parts of four."""


if __name__ == "__main__":
    if _query == "control":
        os.nice(CONTROL_NICENESS)
        # workers inherit it. In a batch entries come into being by the hundred thousand and refer to nothing that
        # refers to them; after every task PySpark collects by itself
        gc.disable()
    else:
        allocator.keep()
    shared = os.environ.get(WARM_VARIABLE)
    if shared:
        config = from_shared(shared.encode())
        warm(config, HALVES.get(_query or ""))
        if any(one.format != "json" and one.own_schema is None for one in config.types.values()):
            RegistrySchemas.prepare()
    # PySpark collects garbage after every task of a worker: of all that is imported, 0.1 s each time, and no page of it
    # would stay shared
    gc.collect()
    gc.freeze()
    try:
        manager()
    finally:
        # whatever has ended the job: it is told by the end of our input, or by a signal
        leave(os.environ.get(FOLDER_VARIABLE))
