"""What `hilcast doctor` looks at: each part of the outside world, whether it will do, and what to do if not.

Nothing here changes anything. A check that needs another one (topics need Kafka) says so instead of failing
in its own words.
"""

from __future__ import annotations

import importlib.metadata
import random
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import redis as redis_client
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from hilbertcurve.hilbertcurve import HilbertCurve
from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaError
from redis.backoff import NoBackoff
from redis.retry import Retry

from infra import versions
from infra.extras import PACKAGES
from infra.kafka import open_transport
from infra.kafka.acl import Acls, UnguardedError
from infra.kafka.dialects import kafka_python, librdkafka
from infra.kafka.topic_keeper import TopicKeeper
from infra.local import jars, java
from infra.schema_registry import RegistrySchemas
from infra.signing_keys import keyring
from state.access import clients_of, compared, grants
from state.config import Config
from state.errors import HilcastError
from state.redis_client import open_redis
from state.secrets import redacted
from state.space.grid import Grid
from state.space.hilbert import encode

_CLOCK_S = 5.0
_TIMEOUT_S = 5.0
_INSTALL = "run `make setup`, or `pip install 'hilcast[router]'`"


@dataclass(frozen=True)
class Check:
    """One look at one thing; `advice` is empty when it is well."""

    name: str
    ok: bool
    detail: str
    advice: str = ""


def checks(config: Config, topics: Iterable[str] = ()) -> list[Check]:
    """Return one check per part, in the order in which to mend them; `topics` are those that ought to exist.

    Guarantee: nothing is changed, nothing is raised for what is merely missing, and no secret of the
    configuration gets into a check.
    """
    reached, there = _kafka(config)
    return [
        _java(),
        *(_jars(wanted) for wanted in jars.SETS),
        _packages(),
        reached,
        _kafka_version(config) if reached.ok else _depends("Kafka version", "Kafka"),
        _topics(sorted(topics), there) if reached.ok else _depends("topics", "Kafka"),
        _topic_settings(config) if reached.ok else _depends("topic settings", "Kafka"),
        _inboxes(config, there) if reached.ok or not config.security.own else _depends("inboxes", "Kafka"),
        _rights(config, there) if reached.ok else _depends("rights in Kafka", "Kafka"),
        *_signing(config),
        *_redis(config),
        *_registry(config),
        *_grids(config),
    ]


def _depends(name: str, on: str) -> Check:
    return Check(name, False, f"not known: {on} does not answer", f"see {on}")


def _java() -> Check:
    return _tried("Java", lambda: (lambda found: f"{found.release}, {found.path}")(java.find()))


def _jars(wanted: versions.JarSet) -> Check:
    return _tried(f"jars {wanted.name}", lambda: f"{len(jars.paths(wanted))} in {jars.home()}")


def _tried(name: str, look: Callable[[], str]) -> Check:
    try:
        return Check(name, True, look())
    except HilcastError as error:
        fault, _, advice = error.reason.partition(": ")
        return Check(name, False, fault, advice)


def _packages() -> Check:
    name = "Python packages"
    try:
        wanted = importlib.metadata.requires("hilcast") or []
    except importlib.metadata.PackageNotFoundError:
        return Check(name, False, "hilcast is not installed", _INSTALL)
    found: dict[str, str | None] = {}
    for line in wanted:
        package, extra = re.split(r"[^A-Za-z0-9._-]", line, maxsplit=1)[0], re.search(r"extra == ['\"]([\w-]+)", line)
        if package == "hilcast" or (extra is not None and extra[1] not in PACKAGES):
            continue
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = None
    absent = [package for package, version in found.items() if version is None]
    if absent:
        return Check(name, False, f"not installed: {', '.join(absent)}", _INSTALL)
    if found.get("pyspark") != versions.SPARK:
        detail = f"pyspark is {found.get('pyspark')}, the connector's jars are for {versions.SPARK}"
        return Check(name, False, detail, f"pip install pyspark=={versions.SPARK}")
    return Check(name, True, f"{len(found)} installed, pyspark {versions.SPARK}")


def _kafka(config: Config) -> tuple[Check, set[str]]:
    address = config.deployment.kafka
    try:
        seen = AdminClient(librdkafka(config) | {"log_level": 0}).list_topics(timeout=_TIMEOUT_S)
    except KafkaException as error:
        advice = "run `hilcast up`, or look at deployment.kafka and the kafka.* settings"
        return Check("Kafka", False, f"{address} does not answer ({error.args[0].str()})", advice), set()
    detail = f"{address}, {len(seen.brokers)} broker(s), {len(seen.topics)} topic(s)"
    return Check("Kafka", True, detail), set(seen.topics)


def _kafka_version(config: Config) -> Check:
    name = "Kafka version"
    advice = f"use Kafka {_dotted(versions.KAFKA_MIN)} or newer; {versions.KAFKA} is the one of our tests"
    limit_ms = int(_TIMEOUT_S * 1000)
    try:
        admin = KafkaAdminClient(**kafka_python(config), request_timeout_ms=limit_ms)
        try:
            broker = admin.describe_cluster()["brokers"][0]["broker_id"]
            version = tuple(admin.get_broker_version_data(broker).broker_version)
        finally:
            admin.close()
    except (KafkaError, ValueError) as error:
        return Check(name, False, f"not known ({type(error).__name__})", "look at the kafka.* settings")
    ok = version >= versions.KAFKA_MIN
    return Check(name, ok, _dotted(version), "" if ok else advice)


def _topics(wanted: list[str], there: set[str]) -> Check:
    absent = [topic for topic in wanted if topic not in there]
    if not absent:
        return Check("topics", True, f"all {len(wanted)} there")
    more = f" and {len(absent) - 3} more" if len(absent) > 3 else ""
    detail = f"{len(absent)} of {len(wanted)} missing: {', '.join(absent[:3])}{more}"
    return Check("topics", False, detail, "run `hilcast topics`")


def _topic_settings(config: Config) -> Check:
    name = "topic settings"
    try:
        keeper = TopicKeeper(config)
        keeper.config = config.with_own(keeper.existing())
        found = keeper.faults()
    except (KafkaException, HilcastError) as error:
        return Check(name, False, f"not known ({error})", "see Kafka; it takes the right to describe topics")
    if not found:
        return Check(name, True, "as they must be")
    ok = not any(fault.fatal for fault in found)
    return Check(
        name,
        ok,
        "; ".join(f"{fault.topic}: {fault.what}" for fault in found),
        "\n      ".join(fault.mend for fault in found),
    )


def _rights(config: Config, there: Iterable[str]) -> Check:
    """Whether Kafka grants what the configuration implies, and no more of what is ours."""
    name, own = "rights in Kafka", config.security.own
    clients = clients_of(config.topics, there) if own else set()
    wanted = grants(config, clients)
    try:
        found = compared(wanted, Acls(config).there(), config.deployment.prefix)
    except UnguardedError as error:
        # with shared inboxes nobody was promised anything
        advice = "set authorizer.class.name in Kafka, or clients can write to each other's inboxes"
        return Check(name, not own, error.reason, advice if own else "")
    except HilcastError as error:
        return Check(name, False, f"not known ({error})", "look as an operator, who may describe the cluster")
    if not found.missing and not found.surplus:
        return Check(name, True, "as the configuration has them")
    if not own and not found.surplus and len(found.missing) == len(wanted):
        return Check(name, True, "none of ours are set; with shared inboxes nobody was promised anything")
    counts = f"{len(found.missing)} missing, {len(found.surplus)} too much"
    such = ", such as " + " ".join([*found.missing, *found.surplus][0])
    return Check(name, False, counts + such, "run `hilcast acl --apply` (with --prune: what is too much goes)")


def _signing(config: Config) -> list[Check]:
    """Whether there is a key, where there should be one."""
    if config.signing is None:
        return []

    def look() -> str:
        ring = keyring(config)
        assert ring is not None, "there is a table of it"
        believed = f"{len(ring.keys)} believed" + (", and what is unsigned" if ring.unsigned else "")
        return f"one key signs, {believed}"

    return [_tried("signing", look)]


def _inboxes(config: Config, there: set[str]) -> Check:
    """Who speaks for whom; and whether somebody writes where nobody reads."""
    name, topics = "inboxes", config.topics
    if not config.security.own:
        # said, not advised: for trying out it is right
        detail = "shared: whoever may write there speaks for every client, and reads everybody's receipts"
        return Check(name, True, f'{detail}; [security] inboxes = "own" ends that')
    clients = {owner[1] for topic in there if (owner := topics.client_of(topic)) is not None}
    shared = (topics.subscriptions, topics.advertisements, topics.publications)
    unread = [topic for topic in shared if topic in there and _holds(config, topic)]
    if unread:
        advice = "whoever writes there is to use topics of its own, as docs/messages.md says"
        return Check(name, False, f"each client's own, but there are records in {', '.join(unread)}: not read", advice)
    return Check(name, True, f"each client's own, {len(clients)} client(s)")


def _holds(config: Config, topic: str) -> bool:
    transport = open_transport(config)
    try:
        return any(low < end for low, end in (transport.span(topic, p) for p in transport.partitions(topic)))
    finally:
        transport.close()


def _redis(config: Config) -> list[Check]:
    limits: dict[str, Any] = {
        "socket_timeout": _TIMEOUT_S,
        "socket_connect_timeout": _TIMEOUT_S,
        "retry": Retry(NoBackoff(), 0),
    }
    with open_redis(config, **limits) as link:
        try:
            info, seconds = link.info(), link.time()
        except redis_client.RedisError as error:
            advice = "run `hilcast up`, or look at deployment.redis and the redis.* settings"
            return [
                Check("Redis", False, f"does not answer ({type(error).__name__})", advice),
                *(_depends(name, "Redis") for name in ("Redis version", "Redis memory", "clock")),
            ]
    return [
        Check("Redis", True, f"{info['used_memory_human']} used, up {info['uptime_in_seconds']} s"),
        _redis_version(str(info["redis_version"])),
        _redis_memory(info),
        _clock(seconds[0] + seconds[1] / 1e6 - time.time()),
    ]


def _redis_version(text: str) -> Check:
    version = tuple(int(part) for part in re.findall(r"\d+", text)[:3])
    ok = version >= versions.REDIS_MIN
    return Check("Redis version", ok, text, "" if ok else f"use {_dotted(versions.REDIS_MIN)} or newer")


def _redis_memory(info: Mapping[str, Any]) -> Check:
    policy = str(info.get("maxmemory_policy", "noeviction"))
    limit = int(info.get("maxmemory", 0))
    ok = limit == 0 or policy == "noeviction"
    detail = f"limit {info.get('maxmemory_human') if limit else 'none'}, {policy}"
    return Check(
        "Redis memory",
        ok,
        detail,
        "" if ok else "set maxmemory-policy noeviction, or the index is lost bit by bit",
    )


def _registry(config: Config) -> list[Check]:
    """Nothing where no registry is configured."""
    if config.schemas is None:
        return []
    name, address = "schema registry", redacted(config.schemas.url)
    try:
        RegistrySchemas(replace(config.schemas, wait_ms=int(_TIMEOUT_S * 1000))).answers()
    except HilcastError as error:
        return [Check(name, False, error.reason, _INSTALL)]
    except OSError as error:
        advice = "look at [schemas]; until it answers, events that name a schema that was not seen are dead letters"
        return [Check(name, False, f"{address} does not answer ({error})", advice)]
    return [Check(name, True, f"{address} answers")]


def _grids(config: Config) -> list[Check]:
    """One check per type: our compiled curve gives the indices of the `hilbertcurve` package, which clients may use."""
    return [_grid(name, Grid.of(event_type)) for name, event_type in config.types.items()]


def _grid(name: str, grid: Grid) -> Check:
    title = f"grid of {name}"
    if grid.d == 1:
        return Check(title, True, f"one dimension, {grid.k} bits, hash {grid.hash}", "")
    rng = random.Random(grid.hash)
    points = [[rng.randrange(2**grid.k) for _ in range(grid.d)] for _ in range(64)]
    ours = encode(np.array(points, np.int64), grid.k).tolist()
    theirs = [int(index) for index in HilbertCurve(grid.k, grid.d).distances_from_points(points)]
    same = ours == theirs
    detail = f"{grid.d} dimensions, {grid.k} bits, hash {grid.hash}" if same else "indices differ from hilbertcurve's"
    return Check(title, same, detail, "" if same else "install the pinned packages again: make setup")


def _clock(ahead_s: float) -> Check:
    ok = abs(ahead_s) <= _CLOCK_S
    detail = f"Redis's is {abs(ahead_s):.1f} s {'ahead' if ahead_s > 0 else 'behind'}"
    return Check(
        "clock",
        ok,
        detail,
        "" if ok else "set the clocks (NTP): times to live are measured on several machines",
    )


def _dotted(version: tuple[int, ...]) -> str:
    """Return a version as people write it.

    >>> _dotted((6, 2))
    '6.2'
    """
    return ".".join(map(str, version))
