"""Further nodes beside the one local Kafka, for more topics than one process may have files open.

    LocalServices' node: controller and broker 1 ──> as many more brokers as are asked for, each a process of its own

Kafka spreads the topics that are made from then on over all of them.
"""

from __future__ import annotations

import contextlib
import re
import resource
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka.admin import AdminClient

from infra.local import jars, java
from infra.local.kafka_broker import cluster_id
from infra.local.ports import free_port
from infra.local.services import LocalServices

START_S = 180.0
KEPT_FREE = 2500
"""Files that a node has open beside one for each topic: jars, connections, topics of Kafka's own and of ours."""


def nodes_for(topics: int) -> int:
    """How many nodes may have so many topics, as the limit of open files stands."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    room = topics if limit == resource.RLIM_INFINITY else limit - KEPT_FREE
    return -(-topics // max(1, room))


@contextlib.contextmanager
def further_nodes(services: LocalServices, count: int, heap_mb: int) -> Iterator[None]:
    """So many more brokers, until this is left."""
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for number in range(2, 2 + count):
            processes.append(_start(services.data, number, heap_mb))
        _until_there(services.kafka, 1 + count)
        yield
    finally:
        for process in processes:
            process.kill()  # what it held is gone with its folder
            process.wait(30.0)


def _start(data: Path, number: int, heap_mb: int) -> subprocess.Popen[bytes]:
    first, folder = data / "kafka", data / f"kafka{number}"
    folder.mkdir()
    at = f"127.0.0.1:{free_port()}"
    changed = {
        "process.roles": "broker",
        "node.id": str(number),
        "listeners": f"CLIENTS://{at}",
        "advertised.listeners": f"CLIENTS://{at}",
        "log.dirs": str(folder / "log"),
    }
    lines = (first / "server.properties").read_text()
    for name, value in changed.items():
        lines = re.sub(rf"^{re.escape(name)}=.*$", f"{name}={value}", lines, flags=re.MULTILINE)
    properties = folder / "server.properties"
    properties.write_text(lines)
    program = [str(java.find().path), f"-Xmx{heap_mb}m", "-cp", jars.broker_classpath()]
    cluster = cluster_id(first / "log")
    assert cluster is not None, "the first node runs"
    form = ["kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(properties)]
    subprocess.run([*program, *form], check=True, capture_output=True, cwd=folder)
    with (folder / "kafka.out").open("wb") as out:
        command = [*program, "kafka.Kafka", str(properties)]
        return subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, cwd=folder)


def _until_there(kafka: str, count: int) -> None:
    admin, deadline = AdminClient({"bootstrap.servers": kafka}), time.monotonic() + START_S
    while len(admin.list_topics(timeout=10.0).brokers) < count:
        assert time.monotonic() < deadline, "the further nodes did not come"
        time.sleep(0.2)
