"""The names that users choose: brokers, clients, ids, deployments, event types, topics.

Patterns, without anchors: use `fullmatch`. They are simple enough to mean the same in Java's regular expressions.
"""

from __future__ import annotations

import re

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""Brokers, clients, ids, deployments: parts of topic names, and of keys that are joined with `/`."""
TYPE_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
"""Event types, and the prefix of a deployment's topics."""
TOPIC_NAME = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9_.-]{1,249}")
"""What Kafka takes for a topic's name."""
ID = re.compile(rf"(?:{NAME.pattern}:)?{NAME.pattern}")
"""An id as it is kept: with inboxes of their own, clients have namespaces of their own (`owned`)."""
ENVELOPE_HEADERS = ("ce_specversion", "ce_id", "ce_source", "ce_type", "ce_broker")
"""What an event says of itself, as record headers: CloudEvents in binary mode."""
OUR_HEADERS = "hilcast_"
"""Headers of this beginning are ours to write, and not passed on."""
UNREADABLE = "\ufffd"
"""Stands in a header's name for bytes that are no UTF-8: Kafka takes any, and its clients put this in their place."""
FORMAT_HEADER = "ce_dataformat"
"""An extension of CloudEvents: what the value is written in, where that is not what its type says."""


def owned(client: str, id: str) -> str:
    """The id under which a registration of a client is kept, so that two clients may use the same one.

    >>> owned("alice", "s1")
    'alice:s1'
    """
    return f"{client}:{id}"


def parted(id: str) -> tuple[str | None, str]:
    """The client in whose namespace an id is, None if it is in none, and the id as its client knows it.

    >>> parted("alice:s1"), parted("s1")
    (('alice', 's1'), (None, 's1'))
    """
    client, colon, own = id.rpartition(":")
    return (client, own) if colon else (None, id)
