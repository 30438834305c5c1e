"""A Kafka of three nodes on loopback, each broker and controller, so that one of them may be lost.

    node 1 ─┐
    node 2 ─┼─ three replicas of every partition, two of which must have a record before it counts
    node 3 ─┘

Only for `python -m benchmarks.campaign --nodes 3`; what a laptop runs is one node (`infra/local/kafka_broker.py`).
"""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from infra.local import jars, java
from infra.local.kafka_broker import cluster_id
from infra.local.ports import free_port
from infra.local.process import Process
from infra.local.redis_server import LocalRedis

NODES = (1, 2, 3)
START_S = 300.0
STOP_S = 20.0
CLUSTER = "campaignOfThreeNodes00"
"""A cluster id: 22 letters of base 64."""
SETTINGS = {
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "CLIENTS",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,CLIENTS:PLAINTEXT",
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.num.partitions": "4",
    "broker.session.timeout.ms": "4000",
    "broker.heartbeat.interval.ms": "1000",
}


class ThreeNodes:
    """Three nodes of Kafka and one Redis; used in place of `LocalServices`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self._ports = {node: (free_port(), free_port()) for node in NODES}
        self.kafka = ",".join(f"127.0.0.1:{clients}" for clients, _ in self._ports.values())
        self.redis = f"redis://127.0.0.1:{free_port()}/0"
        self._redis = LocalRedis(self.folder, self.redis)
        self._nodes = {
            node: Process(f"kafka{node}", self._of(node) / "kafka.pid", self._of(node) / "out.log") for node in NODES
        }
        self._admin = AdminClient({"bootstrap.servers": self.kafka, "log_level": 0})

    def _of(self, node: int) -> Path:
        return self.folder / f"kafka{node}"

    def up(self) -> None:
        """Start what does not run; all answer when this returns."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._redis.start()
        for node, process in self._nodes.items():
            if process.running() is None:
                self._start(node, process)
        deadline = time.monotonic() + START_S
        while not self._complete():
            assert time.monotonic() < deadline, f"Kafka's three nodes do not answer, see {self.folder}"
            time.sleep(0.2)

    def down(self) -> None:
        """Stop everything."""
        for process in self._nodes.values():
            process.stop(STOP_S)
        self._redis.stop()

    def pid(self) -> int | None:
        """The process of the node that leads the newest deployment's control topic."""
        topics = self._admin.list_topics(timeout=30.0).topics
        newest = max((name for name in topics if name.endswith(".control")), key=len, default=None)
        leader = topics[newest].partitions[0].leader if newest else NODES[0]
        known = self._nodes[leader].running() if leader in self._nodes else None
        return None if known is None else known.pid

    def _complete(self) -> bool:
        try:
            return len(self._admin.list_topics(timeout=5.0).brokers) == len(NODES)
        except KafkaException:
            return False

    def _start(self, node: int, process: Process) -> None:
        folder, (clients, controller) = self._of(node), self._ports[node]
        folder.mkdir(exist_ok=True)
        voters = ",".join(f"{each}@127.0.0.1:{port}" for each, (_, port) in self._ports.items())
        settings = SETTINGS | {
            "node.id": str(node),
            "listeners": f"CLIENTS://127.0.0.1:{clients},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"CLIENTS://127.0.0.1:{clients}",
            "controller.quorum.voters": voters,
            "log.dirs": str(folder / "log"),
        }
        properties = folder / "server.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        program = [str(java.find().path), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", jars.broker_classpath()]
        if cluster_id(folder / "log") is None:
            format = ["kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c", str(properties)]
            subprocess.run([*program, *format], check=True, capture_output=True, cwd=folder)
        process.launch([*program, "kafka.Kafka", str(properties)], f"127.0.0.1:{clients}", folder)
