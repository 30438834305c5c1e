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
ENVELOPE_HEADERS = ("ce_specversion", "ce_id", "ce_source", "ce_type", "ce_broker")
"""What an event says of itself, as record headers: CloudEvents in binary mode."""
OUR_HEADERS = "hilcast_"
"""Headers of this beginning are ours to write, and not passed on."""
FORMAT_HEADER = "ce_dataformat"
"""An extension of CloudEvents: what the value is written in, where that is not what its type says."""
