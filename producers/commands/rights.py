"""`acl` and `client add`: who may do what, as Kafka keeps it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from infra.kafka.acl import Acls, UnguardedError, commands
from infra.kafka.scram import MECHANISM, ScramUsers, new_password
from infra.kafka.topic_keeper import TopicKeeper
from infra.secret_files import write_secret
from producers.cli import config_path
from producers.commands.output import print_json, table
from state.access import Difference, Grant, clients_of, compared, grants, of_client, reaches, unexpressed
from state.config import Config, load
from state.errors import HilcastError
from state.names import NAME
from state.topics import destination
from state.topics import of_client as topics_of


def acl(chosen: argparse.Namespace) -> int:
    """Print what the configuration implies; with --apply have Kafka grant it, with --prune take back the rest."""
    config = load(config_path(chosen))
    if chosen.prune and not chosen.apply:
        raise HilcastError("bad-usage", "--prune goes with --apply")
    if not chosen.apply:
        wanted = grants(config, chosen.client)
        _show(wanted, config, chosen)
        return 0
    wanted, found = difference(config, chosen.client)
    # what is given reaches beyond the prefix only in sources and sinks, and those are other people's: never taken back
    taken = [grant for grant in found.surplus if _is_below(grant, config)] if chosen.prune else []
    rights = Acls(config)
    rights.give(found.missing)
    rights.take(taken)
    if chosen.json:
        told = {"granted": found.missing, "taken": taken, "surplus": [g for g in found.surplus if g not in taken]}
        print_json({name: [grant._asdict() for grant in some] for name, some in told.items()})
    else:
        print(f"{len(found.missing)} granted, {len(wanted) - len(found.missing)} were there, {len(taken)} taken back")
        for grant in found.surplus:
            if grant not in taken:
                print(f"beyond the configuration: {_line(grant)}")
        _notes(config)
    return 0


def difference(config: Config, clients: list[str] | None = None) -> tuple[list[Grant], Difference]:
    """What should be granted, and how what is granted differs from it; clients are also those that have inboxes."""
    known = clients_of(config.topics, TopicKeeper(config).existing()) if config.security.own else set()
    wanted = grants(config, known | set(clients or ()))
    return wanted, compared(wanted, Acls(config).there(), config.deployment.prefix)


def _is_below(grant: Grant, config: Config) -> bool:
    """Whether a right is about what is under the prefix and nothing else."""
    return reaches(grant, config.deployment.prefix) and grant.name.startswith(f"{config.deployment.prefix}.")


def _show(wanted: list[Grant], config: Config, chosen: argparse.Namespace) -> None:
    if chosen.json:
        print_json({"grants": [grant._asdict() for grant in wanted], "notes": unexpressed(config)})
    elif chosen.commands:
        print("\n".join(commands(wanted, config.deployment.kafka)))
    else:
        shown = [(g.principal, g.resource, g.name + ("*" if g.pattern == "prefixed" else "")) for g in wanted]
        rows = [
            [*place, ", ".join(g.operation for g, at in zip(wanted, shown, strict=True) if at == place)]
            for place in dict.fromkeys(shown)
        ]
        print(table(["principal", "of", "name", "may"], rows))
        _notes(config)


def _notes(config: Config) -> None:
    for line in unexpressed(config):
        print(f"not in this list: {line}", file=sys.stderr)


def _line(grant: Grant) -> str:
    star = "*" if grant.pattern == "prefixed" else ""
    return f"{grant.principal} may {grant.operation} {grant.resource} {grant.name}{star}"


# ── clients ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def client_add(chosen: argparse.Namespace) -> int:
    """Create a client's topics and, where Kafka guards them, its rights and its password."""
    config = load(config_path(chosen))
    name = chosen.name
    if not NAME.fullmatch(name):
        raise HilcastError("bad-usage", f"the name of a client must match {NAME.pattern}, not {name!r}")
    _check_principal(config, name)
    deliveries = {config.topics.deliver(name): destination(config, config.topics.deliver(name))}
    created = TopicKeeper(config).create(topics_of(config, name) if config.security.own else deliveries)
    print(f"topics: {', '.join(created) or 'all are there'}")
    rights = of_client(config, name)
    try:
        Acls(config).give(rights)
        print(f"rights of {config.security.client(name).principal}: {len(rights)} granted")
    except UnguardedError as error:
        print(f"rights: none granted, for {error.reason}")
    if "sasl.mechanism" in config.kafka or "sasl.mechanisms" in config.kafka:
        _password(config, name, chosen.password_file)
    return 0


def _check_principal(config: Config, name: str) -> None:
    """Refuse a client that would be somebody who may do more than a client."""
    principal = config.security.client(name).principal
    others = {config.security.job: "the job's", f"User:{config.kafka.get('sasl.username')}": "your own"}
    if principal in others:
        raise HilcastError("bad-usage", f"the client {name} would be {principal}, which is {others[principal]}")


def _password(config: Config, name: str, file: Path | None) -> None:
    """Give the client a password, unless it has one: that of the file, or a new one, which is told once."""
    kind, _, user = config.security.client(name).principal.partition(":")
    if kind != "User":
        print(f"password: none made, for {kind}:{user} is no user")
        return
    users = ScramUsers(config)
    given = _read_password(file) if file is not None and file.exists() else None
    if given is None and users.exists(user):
        print(f"password: {user} has one already")
        return
    password = given or new_password()
    if given is None and file is not None:
        write_secret(file, password.encode())
    users.put({user: password})
    where = "that of" if given else "a new one is in"
    print(f"password ({MECHANISM}): {f'{where} {file}' if file is not None else password}")


def _read_password(file: Path) -> str:
    password = file.read_text(encoding="utf-8").rstrip("\n")
    if not password:
        raise HilcastError("bad-usage", f"{file} holds no password")
    return password
