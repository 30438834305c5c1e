"""What `inspect` and `status` show of group and broadcast topics: who reads them, and what they saved.

Redis  the assignment in force (members), and the live figures of each method
Kafka  the topic `groups`: spans that are open, those of clients that are about to leave a topic included
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import redis

from producers.client.groups import read_spans
from producers.commands.output import table
from producers.commands.reading import every
from producers.transport import open_transport
from state.broker.sharing import BROADCAST, Assignment
from state.config import Config
from state.errors import HilcastError
from state.messages import Record, Span
from state.redis_index import RedisIndex

FIGURES = ("unicast", "group", "broadcast", "saved", "discarded")
"""Messages sent by each method, copies that sharing saved, copies that clients threw away."""


def describe_sharing(config: Config, brokers: Iterable[str]) -> dict[str, dict[str, Any]]:
    """By broker with groups, among these: its shared topics with members and open spans, and its figures."""
    chosen = [broker for broker in brokers if broker in config.distribution]
    if not chosen:
        return {}
    open_spans, unknown = _spans_open(config)
    index = RedisIndex(config)
    try:
        figures = {name: float(value) for name, value in index.figures().items() if name.startswith("distribution:")}
        packed = {broker: index.load_groups(broker) for broker in chosen}
    except redis.RedisError as error:
        raise HilcastError(
            "redis-away", f"Redis does not answer ({type(error).__name__}): see `hilcast doctor`"
        ) from error
    finally:
        index.close()
    found = {}
    for broker in chosen:
        loaded = packed[broker]
        assignment = None if loaded is None else Assignment.decode(loaded[1])
        spans = None if open_spans is None else open_spans.get(broker, Counter())
        found[broker] = {
            "topics": shared_topics(config, broker, assignment, spans),
            **{name: int(figures.get(f"distribution:{broker}:{name}", 0)) for name in FIGURES},
            **({} if unknown is None else {"spans_unknown": unknown}),
        }
    return found


def shared_topics(
    config: Config, broker: str, assignment: Assignment | None, spans: Mapping[str, int] | None
) -> list[dict[str, Any]]:
    """The shared topics of a broker: groups in order, the broadcast topic, then topics that clients are leaving."""
    topics = config.topics
    types = {} if assignment is None else assignment.types
    numbered = {groups.first + i: name for name, groups in types.items() for i in range(groups.n)}
    readers = {} if assignment is None else assignment.readers()
    named: dict[str, tuple[str | None, int]] = {
        topics.group(broker, number): (numbered[number], len(readers.get(number, ()))) for number in sorted(numbered)
    }
    if BROADCAST in readers:
        named[topics.broadcast(broker)] = (None, len(readers[BROADCAST]))
    for topic in sorted(spans or ()):
        named.setdefault(topic, (None, 0))
    return [
        {"topic": topic, "type": type_name, "members": members, "spans_open": None if spans is None else spans[topic]}
        for topic, (type_name, members) in named.items()
    ]


def count_open(records: Iterable[Record]) -> dict[str, Counter[str]]:
    """By broker, then topic: how many clients have an open span, from the records of the topic `groups`."""
    latest: dict[bytes, list[Span]] = {record.key or b"": read_spans(record) for record in records}
    found: dict[str, Counter[str]] = {}
    for key, spans in latest.items():
        broker = key.decode("utf-8", "replace").partition("/")[0]
        found.setdefault(broker, Counter()).update(span.topic for span in spans if span.end is None)
    return found


def _spans_open(config: Config) -> tuple[dict[str, Counter[str]] | None, str | None]:
    """Open spans, or why they are not known: what Redis holds is worth showing while Kafka is away."""
    transport = open_transport(config)
    try:
        return count_open(every(transport, config.topics.groups)), None
    except HilcastError as error:
        return None, str(error)
    finally:
        transport.close()


def sharing_for_people(found: Mapping[str, Mapping[str, Any]], type_name: str | None = None) -> list[str]:
    """Tables of topics and figures; of one type only if it is given."""
    topics = [
        [broker, topic["topic"], topic["type"], topic["members"], topic["spans_open"]]
        for broker, sharing in found.items()
        for topic in sharing["topics"]
        if type_name is None or topic["type"] in (type_name, None)
    ]
    figures = [[broker, *(sharing[name] for name in FIGURES)] for broker, sharing in found.items()]
    text = ["", table(["broker", "shared topic", "type", "members", "spans open"], topics)] if topics else []
    text += ["", table(["broker", "unicast", "group", "broadcast", "copies saved", "thrown away"], figures)]
    reasons = {sharing["spans_unknown"] for sharing in found.values() if "spans_unknown" in sharing}
    return [*text, *(f"open spans are not known: {reason}" for reason in sorted(reasons))]


def summed(raw: Mapping[str, float]) -> dict[str, int]:
    """The figures of all brokers together; nothing if no broker has groups.

    >>> summed({"distribution:b1:group": 2.0, "distribution:b2:group": 3.0, "events": 9.0})["group"]
    5
    """
    counted = {name: value for name, value in raw.items() if name.startswith("distribution:")}
    if not counted:
        return {}
    return {name: int(sum(v for key, v in counted.items() if key.endswith(f":{name}"))) for name in FIGURES}
