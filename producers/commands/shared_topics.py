"""What `inspect` and `status` show of group and broadcast topics: who reads them, and what they saved.

Redis  the assignment in force (members), and the live figures of each method
Kafka  the topic `groups`: spans that are open, those of clients that are about to leave a topic included
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import redis

from infra.kafka import open_transport
from infra.kafka.reading import every
from producers.commands.output import table
from state.config import Config
from state.distribution.assignment import BROADCAST, Assignment, shared_topic
from state.errors import HilcastError
from state.messages import Record, Span, read_spans
from state.redis_index import RedisIndex, away

METHODS = ("unicast", "group", "broadcast")
FIGURES = ("messages", "saved", "discarded", "spared")
"""Of a method: messages sent, copies that one message for several clients saved, copies that readers threw away of it;
of unicast also those that they were spared, because too few of a group were interested (`state/routing/sharing.py`)."""


def describe_sharing(config: Config, brokers: Iterable[str]) -> dict[str, dict[str, Any]]:
    """By broker with groups, among these: its shared topics with members and open spans, t in force, its figures."""
    chosen = [broker for broker in brokers if broker in config.distribution]
    if not chosen:
        return {}
    open_spans, unknown = _spans_open(config)
    index = RedisIndex(config)
    try:
        figures = {name: float(value) for name, value in index.figures().items() if name.startswith("distribution:")}
        _, generation = index.current()
        packed = {b: None if generation is None else index.load_groups(b, generation) for b in chosen}
    except redis.RedisError as error:
        raise away(error) from error
    finally:
        index.close()
    found = {}
    for broker in chosen:
        loaded = packed[broker]
        assignment = None if loaded is None else Assignment.decode(loaded[1])
        spans = None if open_spans is None else open_spans.get(broker, Counter())
        found[broker] = {
            "topics": shared_topics(config, broker, assignment, spans),
            "threshold": None if assignment is None else assignment.threshold,
            "methods": methods(figures, broker),
            **({} if unknown is None else {"spans_unknown": unknown}),
        }
    return found


def methods(figures: Mapping[str, float], broker: str) -> dict[str, dict[str, int]]:
    """What each method did at a broker, from the live figures.

    >>> methods({"distribution:b1:group": 2.0, "distribution:b1:group_saved": 5.0}, "b1")["group"]
    {'messages': 2, 'saved': 5, 'discarded': 0, 'spared': 0}
    """
    return {
        method: {
            name: int(figures.get(f"distribution:{broker}:{method}{'' if name == 'messages' else '_' + name}", 0))
            for name in FIGURES
        }
        for method in METHODS
    }


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
    if assignment is not None and assignment.sets is not msgspec.UNSET:
        named = _by_set(config, broker, assignment, numbered)
    for topic in sorted(spans or ()):
        named.setdefault(topic, (None, 0))
    return [
        {"topic": topic, "type": type_name, "members": members, "spans_open": None if spans is None else spans[topic]}
        for topic, (type_name, members) in named.items()
    ]


def _by_set(
    config: Config, broker: str, assignment: Assignment, numbered: Mapping[int, str]
) -> dict[str, tuple[str | None, int]]:
    """By shared topic, where each set of clients has its own: the type, and how many read it."""
    sets, numbers = {assignment.set_of(client) for client in assignment.clients}, list(assignment.readers())
    of_number = {shared_topic(config.topics, broker, n, of): numbered.get(n) for n in numbers for of in sets}
    return {t: (of_number[t], len(clients)) for t, clients in assignment.topics(config.topics, broker).items()}


def count_open(records: Iterable[Record]) -> dict[str, Counter[str]]:
    """By broker, then topic: how many clients have an open span, from the records of the topic `groups`."""
    latest: dict[bytes, list[Span]] = {record.key or b"": read_spans(record) for record in records}
    found: dict[str, Counter[str]] = {}
    for key, spans in latest.items():
        broker = key.decode("utf-8", "replace").partition("/")[0]
        found.setdefault(broker, Counter()).update({span.topic for span in spans if span.end is None})
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
    text = ["", table(["broker", "shared topic", "type", "members", "spans open"], topics)] if topics else []
    text += ["", *(_threshold_for_people(broker, sharing["threshold"]) for broker, sharing in found.items())]
    text += ["", methods_for_people({broker: sharing["methods"] for broker, sharing in found.items()})]
    reasons = {sharing["spans_unknown"] for sharing in found.values() if "spans_unknown" in sharing}
    return [*text, *(f"open spans are not known: {reason}" for reason in sorted(reasons))]


def _threshold_for_people(broker: str, threshold: float | None) -> str:
    """
    >>> _threshold_for_people("b1", 0.15)
    'b1: a group is used if 15 % of its members are interested'
    """
    if threshold is None:
        return f"{broker}: no groups yet"
    share = "never used" if threshold > 1 else f"used if {100 * threshold:.3g} % of its members are interested"
    return f"{broker}: a group is {share}"


def methods_for_people(found: Mapping[str, Mapping[str, Mapping[str, int]]]) -> str:
    """A table with one line for each broker and method."""
    heads = ["broker", "method", "messages", "copies saved", "thrown away", "spared"]
    rows = [[b, method, *(f[n] for n in FIGURES)] for b, by_method in found.items() for method, f in by_method.items()]
    return table(heads, rows)


def by_broker(figures: Mapping[str, float]) -> dict[str, dict[str, dict[str, int]]]:
    """What each method did at each broker that has groups.

    >>> by_broker({"distribution:b2:unicast": 3.0, "events": 9.0})["b2"]["unicast"]["messages"]
    3
    """
    brokers = sorted({name.split(":")[1] for name in figures if name.startswith("distribution:")})
    return {broker: methods(figures, broker) for broker in brokers}
