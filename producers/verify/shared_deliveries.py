"""Deliveries through group and broadcast topics, as `verify` counts them.

To a client these topics stand for its own: what names it is delivered to it, if it was told to read there.

    a message of group.b1.0 names alice ──┬─ in a span of hers ──> delivered, as if it stood in deliver.alice
                                          └─ in none ────────────> she never sees it: wrong where it stands, and missing

Pure: records in, deliveries out.
"""

from __future__ import annotations

import contextlib
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping

from infra.kafka.transport import Partition, Place
from producers.client.membership import Spans
from state.config import Config
from state.control.facts import Fact
from state.errors import HilcastError
from state.flooding import NEVER, Delivered
from state.messages import Record, read_reader, read_registration, read_spans
from state.names import NAME


def shared_topics(config: Config, existing: Iterable[str]) -> list[str]:
    """The group and broadcast topics among these, sorted."""
    name = NAME.pattern
    prefix = re.escape(config.deployment.prefix)
    shared = re.compile(rf"{prefix}\.(set\.{name}\.)?(group\.{name}\.\d+|broadcast\.{name})")
    return sorted(topic for topic in existing if shared.fullmatch(topic))


def read_memberships(records: Iterable[Record]) -> dict[str, Spans]:
    """By client its spans, from the records of the topic `groups`."""
    found: dict[str, Spans] = defaultdict(Spans)
    for record in records:
        broker, client = read_reader(record)
        with contextlib.suppress(HilcastError):  # a stranger's: what was said before it counts
            found[client].replace(broker, read_spans(record))
    return dict(found)


def served(
    config: Config,
    copies: Iterable[tuple[Place, Delivered]],
    memberships: Mapping[str, Spans],
    held: Mapping[Partition, int],
) -> list[Delivered]:
    """Copies of shared topics, each with its place, as deliveries to the clients' own topics.

    Spans are forgotten with the messages that they hold, so below `held`, the first offset that Kafka has of a
    partition after the spans were read, none is asked for. What lies in no span stays at its topic, where nobody wants
    it.
    """
    nobody = Spans()
    found = []
    for (topic, partition, offset), copy in copies:
        spans = memberships.get(copy.client, nobody)
        seen = spans.next((topic, partition), offset) == offset or offset < held[topic, partition]
        found.append(copy._replace(topic=config.topics.deliver(copy.client)) if seen else copy)
    return found


def opted(config: Config, inbox: Iterable[Record], facts: Iterable[Fact]) -> set[str]:
    """Every client that has let itself be served through shared topics at some time."""
    found = {fact.owner for fact in facts if fact.groups and fact.owner is not None}
    for record in inbox:
        try:
            event = read_registration(record, config)
        except HilcastError:
            continue
        if event.groups and event.owner is not None:
            found.add(event.owner)
    return found


def cut_for_members(
    config: Config, cut: Mapping[str, float], shared: Iterable[str], members: Iterable[str]
) -> dict[str, float]:
    """From when on deliveries can be demanded: what Kafka deleted of a shared topic may have served any member."""
    since = max((cut[topic] for topic in shared if topic in cut), default=-NEVER)
    own = {config.topics.deliver(client) for client in members} if since > -NEVER else set()
    return {topic: max(cut.get(topic, -NEVER), since if topic in own else -NEVER) for topic in {*cut, *own}}
