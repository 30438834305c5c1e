"""The command `hilcast`: arguments in, exit code out.

0 done, 1 refused or failed with a message, 2 wrong usage. What a command does is in `producers/commands/`, imported
when it is chosen: `hilcast --help` is quick, and where only what clients need is installed, their commands work and the
others say which extra they need.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import os
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from infra.extras import Extra, require
from state.errors import HilcastError
from state.space.event_type import FORMATS

PROGRAM = "hilcast"
OWN = "needed where clients have inboxes of their own"
DEFAULT_CONFIG = "hilcast.toml"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    chosen = parser().parse_args(arguments)
    module, function = chosen.does.split(":")
    try:
        if chosen.extra is not None:
            require(chosen.extra)
        run: Callable[[argparse.Namespace], int] = getattr(
            importlib.import_module(f"producers.commands.{module}"), function
        )
        code = run(chosen)
        sys.stdout.flush()
        return code
    except HilcastError as error:
        return complain(str(error))
    except BrokenPipeError:
        # whoever read our output has seen enough; the interpreter must not complain about it at its end either
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        said = _of_the_world(error)
        if said is None:
            raise
        return complain(said)


def complain(text: str) -> int:
    """One message on standard error; the exit code that goes with it."""
    print(f"{PROGRAM}: {text}", file=sys.stderr)
    return 1


def _of_the_world(error: Exception) -> str | None:
    """What to say of an error of Kafka's or Redis's client that nobody translated; None if it is a bug of ours."""
    origin = type(error).__module__.split(".")[0]
    if origin in ("confluent_kafka", "cimpl", "kafka"):
        return f"kafka-failed: {error}"
    if origin == "redis":
        return f"redis-away: Redis does not answer as it should ({type(error).__name__}): see `hilcast doctor`"
    return None


def config_path(chosen: argparse.Namespace) -> Path:
    """The configuration: `--config`, else `HILCAST_CONFIG`, else `./hilcast.toml`."""
    given: str | None = getattr(chosen, "config", None)
    return Path(given or os.environ.get("HILCAST_CONFIG") or DEFAULT_CONFIG)


def parser() -> argparse.ArgumentParser:
    """All commands with their arguments."""
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument(
        "--config",
        metavar="FILE",
        default=argparse.SUPPRESS,
        help="the configuration; else HILCAST_CONFIG, else ./hilcast.toml",
    )
    top = argparse.ArgumentParser(
        prog=PROGRAM, description="Content-based publish/subscribe on Kafka, Spark and Redis.", parents=[shared]
    )
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)

    def add(
        name: str, does: str, help: str, *, json: bool = False, extra: Extra | None = None
    ) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=help, description=help[0].upper() + help[1:] + ".", parents=[shared])
        made.set_defaults(does=does, extra=extra)
        if json:
            made.add_argument("--json", action="store_true", help="print JSON")
        return made

    _add_services(add)
    _add_rights(add)
    _add_control(add)
    _add_events(add)
    _add_looking(add)
    return top


Add = Callable[..., argparse.ArgumentParser]


def _add_services(add: Add) -> None:
    for name, help in (("up", "start local Kafka and Redis for this configuration"), ("down", "stop them")):
        made = add(name, f"running:{name}", help, extra="router")
        made.add_argument(
            "--data", type=Path, metavar="DIR", help="where they live; default var/local by the configuration"
        )
        if name == "up":
            made.add_argument(
                "--secure",
                action="store_true",
                help="SASL over TLS, Kafka's authorizer, Redis with users; prints a configuration for each principal",
            )
    add("topics", "running:topics", "create the topics that the configuration needs", json=True)
    add("run", "running:run", "run the streaming job in the foreground; SIGTERM stops it", extra="router")
    made = add(
        "apply",
        "applying:apply",
        "have the running deployments take this configuration without a stop; print what changes",
        json=True,
        extra="router",
    )
    made.add_argument("--dry-run", action="store_true", help="only print what would change")
    made.add_argument("--timeout", type=_seconds, default=300.0, metavar="S", help="until it is in force (300)")
    made = add(
        "rebuild", "applying:rebuild", "begin a new generation beside the one in force", json=True, extra="router"
    )
    made.add_argument("--timeout", type=_seconds, default=300.0, metavar="S", help="until it is in force (300)")
    made = add("wait", "registrations:wait", "return when everything sent so far is in force everywhere", json=True)
    made.add_argument("-c", "--client", help="wait for what this client sent; where clients have inboxes of their own")
    made.add_argument("--timeout", type=_seconds, default=60.0, metavar="S", help="give up after S seconds (60)")


def _add_rights(add: Add) -> None:
    made = add("acl", "rights:acl", "print the ACLs that the configuration implies, or have Kafka keep them", json=True)
    made.add_argument("--apply", action="store_true", help="grant what is missing; nothing is taken back")
    made.add_argument("--prune", action="store_true", help="with --apply: take back all else under the prefix")
    made.add_argument("--commands", action="store_true", help="print them as commands of kafka-acls.sh")
    made.add_argument("--client", action="append", default=[], metavar="NAME", help="also those of this client")
    made = add("client", "rights:client_add", "create a client's topics, its rights and its password in Kafka")
    made.add_argument("action", choices=["add"])
    made.add_argument("name", metavar="NAME")
    made.add_argument(
        "--password-file",
        type=Path,
        metavar="FILE",
        help="its password; made and written there if it is missing. Without: made, and printed once",
    )


def _add_control(add: Add) -> None:
    def common(made: argparse.ArgumentParser) -> None:
        made.add_argument("-b", "--broker", required=True)
        made.add_argument("-t", "--type", required=True)
        made.add_argument("--version", type=int, metavar="N")
        made.add_argument(
            "--timeout", type=_seconds, default=60.0, metavar="S", help="wait S seconds for the receipt (60)"
        )

    made = add("subscribe", "registrations:subscribe", "enter a subscription, or replace its filter; print the receipt")
    common(made)
    made.add_argument("-c", "--client", required=True)
    made.add_argument("--id", help="of the subscription; one is made if none is given")
    made.add_argument("--ttl", type=_seconds, metavar="S", help="let it expire after S seconds")
    made.add_argument("--sink", metavar="TOPIC", help="deliver to this topic instead of the client's own")
    made.add_argument(
        "--groups",
        action="store_true",
        help="let the client be served through group and broadcast topics, whose readers see others' events and names",
    )
    grids = "on the grid of the `configuration`, or on the one that the running router describes in `redis`"
    helped = f"send its Hilbert ranges along, made {grids}"
    made.add_argument("--mapping", type=_grid_from, default=False, metavar="GRID", help=helped)
    made.add_argument("filter", metavar="FILTER", help="such as \"price < 100 AND symbol IN ('IBM', 'SAP')\"")
    made = add("unsubscribe", "registrations:unsubscribe", "withdraw a subscription; print the receipt")
    common(made)
    made.add_argument("-c", "--client", default="", help=f"whose it is; {OWN}")
    made.add_argument("id", metavar="ID")
    made = add("advertise", "registrations:advertise", "enter or replace an advertisement; print the receipt")
    common(made)
    made.add_argument("-p", "--publisher", required=True, help="the source of its events (ce_source)")
    made.add_argument("-c", "--client", help=f"who sends it; {OWN}, and the publisher is not a client's name")
    made.add_argument("--id", help="of the advertisement; one is made if none is given")
    made.add_argument("--ttl", type=_seconds, metavar="S", help="let it expire after S seconds")
    made.add_argument("filter", metavar="FILTER")
    made = add("unadvertise", "registrations:unadvertise", "withdraw an advertisement; print the receipt")
    common(made)
    made.add_argument("-c", "--client", default="", help=f"whose it is; {OWN}")
    made.add_argument("id", metavar="ID")


def _add_events(add: Add) -> None:
    made = add(
        "publish", "events:publish", "publish one event, or one per line of standard input; print SOURCE#ID of each"
    )
    made.add_argument("-b", "--broker", required=True)
    made.add_argument("-t", "--type", required=True)
    made.add_argument("--id", help="of the event (ce_id); one is made if none is given")
    made.add_argument("--source", metavar="S", help="of the event (ce_source); default hilcast, or the client's first")
    made.add_argument("-c", "--client", help=f"who publishes it; {OWN}, and the source is not a client's name")
    made.add_argument("-k", "--key", help="of the Kafka record: events of one key stay in order")
    made.add_argument("-H", "--header", action="append", default=[], metavar="NAME=VALUE", help="travels with it")
    made.add_argument("event", nargs="?", default="-", metavar="JSON | -")
    made = add("tail", "events:tail", "show the deliveries of a client, from the beginning and as they come", json=True)
    made.add_argument("client", metavar="CLIENT")
    made.add_argument("--sink", action="append", default=[], metavar="TOPIC", help="read this destination too")
    made.add_argument("--once", action="store_true", help="end where the topic ends now")
    made.add_argument("--count", type=_count, metavar="N", help="end after N deliveries")
    made.add_argument(
        "--timeout", type=_seconds, metavar="S", help="end when none came for S seconds; 1 if --count is not reached"
    )


def _add_looking(add: Add) -> None:
    """What looks at the router or computes as it does, and so needs what the router needs."""
    add = partial(add, extra="router")
    made = add(
        "status", "live:status", "show live figures: routed, copies, control messages, batch times, lag", json=True
    )
    made.add_argument(
        "--watch", nargs="?", type=_seconds, const=2.0, metavar="S", help="again every S seconds (2) until Ctrl-C"
    )
    made = add("inspect", "inspecting:inspect", "show what brokers hold", json=True)
    made.add_argument("broker", nargs="?", metavar="BROKER")
    made.add_argument("type", nargs="?", metavar="TYPE")
    made.add_argument("--ranges", action="store_true", help="with TYPE: every box and range that neighbours asked for")
    made = add("type", "drafting:draft", "print a type for hilcast.toml from a schema, or from a sample of a topic")
    given = made.add_mutually_exclusive_group(required=True)
    given.add_argument("--from", dest="origin", metavar="FILE", help="an Avro schema, a .proto or a descriptor set")
    given.add_argument("--sample", metavar="TOPIC", help="the newest events of a topic")
    made.add_argument(
        "--format", choices=FORMATS, help="what the topic is written in; default: what the configuration says of it"
    )
    made.add_argument("--schema", metavar="FILE", help="the schema of the topic; default: each event names its own")
    made.add_argument("--message", metavar="NAME", help="which message of a Protobuf schema")
    _add_asking(add)
    _add_console(add)
    made = add(
        "verify",
        "diagnosis:verify",
        "recompute deliveries by flooding and compare; 1 if any is missing or wrong",
        json=True,
    )
    made.add_argument(
        "--since", type=_moment, metavar="TIME", help="judge what was published from then on (RFC 3339, or seconds ago)"
    )
    made.add_argument(
        "--margin-ms", type=float, default=0.0, metavar="MS", help="how far clocks of Kafka brokers may be apart (0)"
    )
    add("doctor", "diagnosis:doctor", "check Java, jars, Kafka, Redis, topics, versions; say what to do", json=True)


def _add_asking(add: Add) -> None:
    made = add(
        "explain",
        "explain:explain",
        "say why an event does or does not reach a subscription, predicate by predicate and hop by hop",
        json=True,
    )
    made.add_argument("event", type=_event, metavar="EVENT", help="JSON (also a structured CloudEvent), or SOURCE#ID")
    made.add_argument(
        "subscription", type=_key, metavar="SUBSCRIPTION", help="BROKER/TYPE/ID; with inboxes of clients' own CLIENT:ID"
    )
    made.add_argument("-b", "--broker", help="where it enters; else the event's own, else the subscription's broker")
    made.add_argument("-t", "--type", help="of the event; else its own, else that of the subscription")
    made.add_argument("--source", default=PROGRAM, metavar="S", help="publisher of an event given as JSON (hilcast)")
    made.add_argument("--ranges", action="store_true", help="show every Hilbert range instead of words on them")
    made = add(
        "cost",
        "cost:cost",
        "say what a filter would cost: boxes, ranges, cubes touched, estimated share of publications",
        json=True,
    )
    made.add_argument("-t", "--type", required=True)
    made.add_argument(
        "--sample",
        type=_any_count,
        default=1000,
        metavar="N",
        help="count on the newest N publications (1000); 0: none",
    )
    made.add_argument("filter", metavar="FILTER")
    made = add(
        "size",
        "size:size",
        "say what a router needs: cores, memory, Redis, partitions, and how sure that is",
        json=True,
    )
    made.add_argument("--subscriptions", type=_count, required=True, metavar="N")
    made.add_argument("--events-per-s", type=_rate, required=True, metavar="R")
    made.add_argument("--brokers", type=_count, required=True, metavar="B")
    helped = "the share of the subscriptions that neighbours are told (1: nothing is reduced); `hilcast inspect` has it"
    made.add_argument("--forwarded", type=_share, default=1.0, metavar="F", help=helped)
    helped = "split the brokers over so many (as few as there must be)"
    made.add_argument("--deployments", type=_count, metavar="D", help=helped)
    made = add("grid", "grid:grid", "print the Hilbert grid of a type as JSON, for clients that map by themselves")
    made.add_argument("type", metavar="TYPE")


def _add_console(add: Add) -> None:
    made = add("ui", "ui:ui", "serve the live console for the browser, on loopback and read-only", extra="ui")
    made.add_argument("--host", default="127.0.0.1", metavar="A", help="another address needs a token (127.0.0.1)")
    made.add_argument("--port", type=_port, default=8765, metavar="N", help="0: any that is free (8765)")
    made.add_argument("--token", metavar="T", help="whoever comes must know it; made for addresses beyond loopback")
    made.add_argument("--write", action="store_true", help="let the page subscribe, withdraw and publish")
    made.add_argument("-c", "--client", help="as whom, with --write")


def _port(text: str) -> int:
    value = int(text)
    if not 0 <= value < 65536:
        raise argparse.ArgumentTypeError(f"must be a port, not {text!r}")
    return value


def _event(text: str) -> str:
    if not text.lstrip().startswith("{") and "#" not in text:
        raise argparse.ArgumentTypeError(f"must be a JSON object or SOURCE#ID, not {text!r}")
    return text


def _key(text: str) -> tuple[str, str, str]:
    from state.messages import split_key
    from state.names import owned, parted

    head, slash, id = text.rpartition("/")
    client, own = parted(id)
    try:
        broker, type_name, id = split_key(f"{head}{slash}{own}".encode())
        if client is not None:
            split_key(f"{head}{slash}{client}".encode())
    except HilcastError as error:
        raise argparse.ArgumentTypeError(error.reason) from None
    return broker, type_name, id if client is None else owned(client, id)


def _any_count(text: str) -> int:
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"must be at least 0, not {text!r}")
    return value


def _grid_from(text: str) -> bool | str:
    """What the client library calls it (`producers/client/mapping_option.py`)."""
    if text not in ("configuration", "redis"):
        raise argparse.ArgumentTypeError(f"must be `configuration` or `redis`, not {text!r}")
    return text == "configuration" or text


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < 1e9:
        raise argparse.ArgumentTypeError(f"must be a number of seconds, not {text!r}")
    return value


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {text!r}")
    return value


def _rate(text: str) -> float:
    value = float(text)
    if not 0 < value < 1e12:
        raise argparse.ArgumentTypeError(f"must be a number of events, not {text!r}")
    return value


def _share(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"must be a share from 0 to 1, not {text!r}")
    return value


def _moment(text: str) -> float:
    """Milliseconds since 1970 of a time, or of so many seconds ago."""
    try:
        return (time.time() - float(text)) * 1000
    except ValueError:
        pass
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be an RFC 3339 time or a number of seconds, not {text!r}") from None
    if moment.tzinfo is None:
        raise argparse.ArgumentTypeError(f"needs an offset, such as {text}Z")
    return moment.timestamp() * 1000


if __name__ == "__main__":
    sys.exit(main())
