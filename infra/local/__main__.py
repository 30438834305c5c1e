"""`python -m infra.local setup | up | down | status | watch | lock`: what the Makefile needs."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from infra import versions
from infra.local import class_archive, jars, java
from infra.local import redis_server as redis
from infra.local.services import LocalServices
from state.errors import HilcastError


def setup(job_only: bool) -> None:
    """Check Java and Redis, fetch the jars and make the archives of classes that are missing; quick when nothing is.

    An image of the job alone (`job_only`) needs neither the broker's jars nor a Redis.
    """
    java.find()
    for wanted in [versions.CONNECTOR] if job_only else jars.SETS:
        jars.fetch(wanted)
    if not job_only:
        redis.find()
    class_archive.prepare(["spark"] if job_only else class_archive.NAMES)


def main(arguments: list[str]) -> int:
    """Run one of the actions; 1 with a message when it is refused."""
    parser = argparse.ArgumentParser(prog="python -m infra.local", description=__doc__)
    parser.add_argument("action", choices=["setup", "up", "down", "status", "watch", "lock"])
    parser.add_argument("--job-only", action="store_true", help="setup: only what the streaming job needs")
    parser.add_argument("--data", type=Path, default=Path("var/local"))
    parser.add_argument("--kafka", default="127.0.0.1:9092")
    parser.add_argument("--redis", default="redis://127.0.0.1:6379/0")
    chosen = parser.parse_args(arguments)
    try:
        services = LocalServices(chosen.data, kafka=chosen.kafka, redis=chosen.redis, say=print)
        if chosen.action == "setup":
            setup(chosen.job_only)
        elif chosen.action == "lock":
            sys.stdout.write(jars.lock())
        elif chosen.action == "up":
            services.up()
        elif chosen.action == "watch":
            sys.stdin.read()  # ends when the program at the other end of the pipe does
            services.down()
        elif chosen.action == "down":
            services.down()
        else:
            for each in services.status():
                state = f"runs, pid {each.pid}" if each.running else "stopped"
                print(f"{each.name} at {each.address}: {state}; log {each.log}")
    except HilcastError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
