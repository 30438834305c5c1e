"""Lanes: how many partitions a topic of ours has, and which of them a copy is written to.

    publications   partition 0 ──> route task ──> link.b1.b2   partition 0 ──> route task of the next deployment
                   partition 1 ──> route task ──>              partition 1 ──> ...
                   partition 2 ──> route task ──>              partition 2

Every partition is read by a task of its own, so a deployment routes in as many lanes as its input has. A copy for a
link, a shared topic or a client goes to the lane of its input: what stands in one partition goes on in one partition,
hop by hop, and so in order. The publication's key could not do that: Kafka scatters records without one over all
partitions, and clients hash keys in different ways. Where keys choose the input partition, equal keys stay together all
the same.
"""

from __future__ import annotations

import os
import re
import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from state.config import Config

UNKNOWN_CORES = 4
"""Lanes of publications where nothing says how many cores there are."""
_LOCAL = re.compile(r"local(?:\[(\d+|\*)(?:,\s*\d+)?\])?")


def publication_lanes(config: Config) -> int:
    """Partitions of `publications`, and of clients' own: what is set, else as many as the job has cores."""
    return config.settings.partitions or cores(config)


def shared_lanes(config: Config) -> int:
    """Partitions of links and of topics that clients share: what is set, else one.

    One is the default because whoever reads such a topic by himself may know of no other.
    """
    return config.settings.partitions or 1


def delivery_lanes(config: Config) -> int:
    """Partitions of the delivery topics that the router makes, one for each client: what is set, else one.

    One is the default because a topic for each client is many topics, and one partition has an order of its own.
    """
    return config.settings.delivery_partitions or 1


def cores(config: Config) -> int:
    """The cores that the Spark master of a configuration has: of this machine, or as `[spark]` says.

    >>> from state.config import parse
    >>> text = '[overlay]\\nbrokers = ["b1"]\\n[types.t.attributes]\\nx = { kind = "int" }\\n[settings]\\nmaster = '
    >>> cores(parse(text + '"local[1]"')), cores(parse(text + '"spark://h:7077"\\n[spark]\\n"spark.cores.max" = 12'))
    (1, 12)
    """
    local = _LOCAL.fullmatch(config.settings.master)
    if local is not None:
        here = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return here if local[1] == "*" else max(1, min(here, int(local[1] or 1)))
    given = [config.spark.get(name, "") for name in ("spark.cores.max", "spark.executor.instances")]
    each = config.spark.get("spark.executor.cores", "")
    if given[0].isdigit():
        return max(1, int(given[0]))
    return max(1, int(given[1]) * int(each)) if given[1].isdigit() and each.isdigit() else UNKNOWN_CORES


def first_lane(topic: str) -> int:
    """Where the lanes of an input topic begin: topics of one partition, which are many, do not all share a lane.

    Guarantee: depends on the name alone, so that a repeat of a batch writes to the same partitions.
    """
    return zlib.crc32(topic.encode())
