"""A Redis Cluster of three processes of the same `redis-server`, each with a third of the slots."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import redis
from redis.crc import key_slot

from infra.local import redis_server
from infra.local.ports import free_port, taken

SLOTS = 16384
BUS = 10_000
"""So far above its port a node talks to the others."""
OUTGOING = 32_768
"""From here on kernels take ports for outgoing connections, and one of those may come between."""


class RedisCluster:
    """Started when it is entered, ended when it is left."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports: list[int] = []
        self.processes: list[subprocess.Popen[bytes]] = []
        self.nodes: list[redis.Redis] = []

    @property
    def url(self) -> str:
        return "redis+cluster://" + ",".join(f"127.0.0.1:{port}" for port in self.ports)

    def __enter__(self) -> RedisCluster:
        server = redis_server.find()
        while len(self.ports) < 3:
            port = free_port()
            if port + BUS < OUTGOING and not taken("127.0.0.1", port + BUS):
                self.ports.append(port)
        for port in self.ports:
            home = self.folder / str(port)
            home.mkdir(parents=True)
            options = ["--port", str(port), "--bind", "127.0.0.1", "--cluster-enabled", "yes", "--save", ""]
            options += ["--cluster-node-timeout", "20000"]
            with (home / "log").open("wb") as log:
                self.processes.append(subprocess.Popen([str(server), *options], cwd=home, stdout=log, stderr=log))
        self.nodes = [redis.Redis(port=port, socket_timeout=30.0) for port in self.ports]
        self._until(lambda: all(node.ping() for node in self.nodes))
        for number, node in enumerate(self.nodes):
            first, end = SLOTS * number // 3, SLOTS * (number + 1) // 3
            node.execute_command("CLUSTER ADDSLOTS", *range(first, end))
            node.execute_command("CLUSTER MEET", "127.0.0.1", self.ports[0])
        self._until(lambda: all(b"cluster_state:ok" in self._info(node) for node in self.nodes))
        return self

    def __exit__(self, *_: object) -> None:
        for node in self.nodes:
            node.close()
        for process in self.processes:
            process.kill()
            process.wait(30.0)

    def _info(self, node: redis.Redis) -> bytes:
        found = node.execute_command("CLUSTER INFO")
        return found if isinstance(found, bytes) else "\r\n".join(f"{k}:{v}" for k, v in found.items()).encode()

    def _until(self, holds, timeout_s: float = 90.0) -> None:
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                if holds():
                    return
            except redis.RedisError:
                pass
            assert time.monotonic() < deadline, [path.read_text()[-500:] for path in self.folder.glob("*/log")]
            time.sleep(0.1)

    def holder(self, prefix: str) -> int:
        """Which of the nodes has the keys of a prefix."""
        slot = key_slot(f"{{{prefix}}}".encode())
        counts = [int(node.execute_command("CLUSTER COUNTKEYSINSLOT", slot)) for node in self.nodes]
        assert sum(map(bool, counts)) == 1, f"keys of {prefix} by node: {counts}"
        return max(range(3), key=counts.__getitem__)

    def sizes(self) -> list[int]:
        """How many keys each node has."""
        return [int(node.dbsize()) for node in self.nodes]

    def move(self, prefix: str, to: int) -> None:
        """Give the slot of a prefix, with all its keys, to another node."""
        slot, origin = key_slot(f"{{{prefix}}}".encode()), self.holder(prefix)
        ids = [node.execute_command("CLUSTER MYID").decode() for node in self.nodes]
        self.nodes[to].execute_command("CLUSTER SETSLOT", slot, "IMPORTING", ids[origin])
        self.nodes[origin].execute_command("CLUSTER SETSLOT", slot, "MIGRATING", ids[to])
        while keys := self.nodes[origin].execute_command("CLUSTER GETKEYSINSLOT", slot, 1000):
            keys = [key if isinstance(key, bytes) else key.encode() for key in keys]
            self.nodes[origin].execute_command("MIGRATE", "127.0.0.1", self.ports[to], "", 0, 60000, "KEYS", *keys)
        for node in (self.nodes[to], self.nodes[origin], *self.nodes):
            node.execute_command("CLUSTER SETSLOT", slot, "NODE", ids[to])
