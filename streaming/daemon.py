"""The process that Spark forks its Python workers from, with everything imported and every kernel compiled."""

from __future__ import annotations

import os

from pyspark.daemon import manager

import streaming.control
import streaming.route  # noqa: F401 imported here so that every worker has it
from infra.schema_registry import RegistrySchemas
from state.config import from_shared
from state.warm import warm
from streaming.settings import QUERY_VARIABLE, WARM_VARIABLE

CONTROL_NICENESS = 5
"""Routing goes first where both queries want the processor: about three parts of four."""


if __name__ == "__main__":
    if os.environ.get(QUERY_VARIABLE) == "control":
        os.nice(CONTROL_NICENESS)
    shared = os.environ.get(WARM_VARIABLE)
    if shared:
        config = from_shared(shared.encode())
        warm(config)
        if any(one.format != "json" and one.own_schema is None for one in config.types.values()):
            RegistrySchemas.prepare()
    manager()
