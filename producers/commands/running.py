"""`up`, `down`, `topics`, `run`: the services, the topics, and the job itself as a program of its own."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from infra.kafka.acl import Acls
from infra.kafka.scram import ScramUsers
from infra.kafka.topic_keeper import TopicKeeper
from producers.cli import config_path
from producers.commands.output import print_json
from state.access import grants
from state.config import Config, load
from state.errors import HilcastError
from state.topics import of_client

if TYPE_CHECKING:
    from infra.local.services import LocalServices

ROOT = Path(__file__).parents[2]


def up(chosen: argparse.Namespace) -> int:
    """Start what does not run, create the topics, print the addresses."""
    config = load(config_path(chosen))
    services = _services(chosen, config)
    services.up()
    if chosen.secure:
        _furnish(services, config, config_path(chosen))
    else:
        TopicKeeper(config).ensure_needed()
    return 0


def _furnish(services: LocalServices, config: Config, path: Path) -> None:
    """Give a secured Kafka its users, topics and rights, and each of them a configuration to work with."""
    from infra.local.credentials import BOOTSTRAP, INSPECTOR, user_of

    held = services.credentials
    assert held is not None, "secured services have credentials"
    security, directory, url = config.security, path.resolve().parent, services.redis
    job, operators = user_of(security.job), [user_of(principal) for principal in security.operators]
    clients = {name: user_of(client.principal) for name, client in security.clients.items()}
    for user in {BOOTSTRAP, INSPECTOR} & {job, *operators, *clients.values()}:
        raise HilcastError("bad-config", f"[security]: the name {user!r} is taken here by a user of Kafka or Redis")
    files = {}
    for user in dict.fromkeys([BOOTSTRAP, job, *operators, *clients.values()]):
        redis_user = job if user == job else INSPECTOR if user in operators else None
        signs = user == job or user in operators
        files[user] = held.write_configuration(config, directory, user, url=url, redis_user=redis_user, signs=signs)
    bootstrap = load(files[BOOTSTRAP])
    ScramUsers(bootstrap).put({user: held.password(user) for user in files if user != BOOTSTRAP})
    keeper = TopicKeeper(bootstrap)
    keeper.ensure_needed()
    for name in clients if security.own else ():
        keeper.create(of_client(bootstrap, name))
    Acls(bootstrap).give(grants(bootstrap))
    if not url.startswith("rediss:"):
        print("redis speaks no TLS: the redis-server that was found was built without it")
    print("credentials and configurations, each for one principal:")
    for user, file in files.items():
        print(f"  {user}: --config {file}")


def down(chosen: argparse.Namespace) -> int:
    """Stop what runs."""
    _services(chosen, load(config_path(chosen))).down()
    return 0


def _services(chosen: argparse.Namespace, config: Config) -> LocalServices:
    from infra.local.services import DATA, LocalServices

    data = chosen.data or config_path(chosen).resolve().parent / DATA
    guarded = None
    if getattr(chosen, "secure", False):
        guarded = config.security.job.partition(":")[2], config.deployment.prefix
    return LocalServices(data, kafka=config.deployment.kafka, redis=config.deployment.redis, say=print, guarded=guarded)


def topics(chosen: argparse.Namespace) -> int:
    """Create what is missing, and say what was."""
    created = TopicKeeper(load(config_path(chosen))).ensure_needed()
    if chosen.json:
        print_json({"created": created})
    else:
        print("\n".join(created) if created else "all topics are there")
    return 0


def run(chosen: argparse.Namespace) -> int:
    """Become the streaming job.

    This process is replaced, not given a child: signals, exit code and output are the job's own, and `kill -9` of this
    process leaves no job behind that nobody watches.
    """
    path = config_path(chosen)
    load(path)
    environment = _environment()
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(sys.executable, _job(path), environment)


def job_command(path: Path) -> tuple[list[str], dict[str, str]]:
    """The command of the streaming job and its environment, for whoever starts it as a child."""
    return _job(path), _environment()


def _job(path: Path) -> list[str]:
    # -P: a folder `state` where the user happens to stand must not be taken for ours
    return [sys.executable, "-P", "-m", "streaming", str(path)]


def _environment() -> dict[str, str]:
    """Ours, with the packages on the path of Spark's workers too, and the jars that Spark needs for Kafka."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path}
    if not environment.get("HILCAST_SPARK_JARS"):
        from infra.local import class_archive

        environment |= class_archive.spark_environment()
    return environment
