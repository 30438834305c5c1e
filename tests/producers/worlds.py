"""Configurations on the real services, and a stand-in for the router that answers by hand."""

from __future__ import annotations

import json

from infra.kafka.topic_keeper import TopicKeeper
from state.config import Config, parse
from state.messages import Output, delivery_id, event_digest, write_members

TEXT = """
[deployment]
name = "main"
prefix = "{prefix}"
kafka = "{kafka}"
redis = "{redis}"
[overlay]
brokers = ["b1", "b2", "b3"]
links = [["b1", "b2"], ["b2", "b3"]]
[types.quote]
cubes = 2
[types.quote.attributes]
price = {{ kind = "float", min = 0, max = 1000 }}
symbol = {{ kind = "text" }}
"""


def text(services, prefix: str) -> str:
    return TEXT.format(prefix=prefix, kafka=services.kafka, redis=services.redis)


def configured(services, prefix: str, create: bool = True) -> Config:
    """A configuration whose topics exist."""
    config = parse(text(services, prefix))
    if create:
        TopicKeeper(config).ensure_needed()
    return config


def answer(config, place, kind="accepted", **more) -> Output:
    """The receipt that the router would write for the control event at a place."""
    topic, partition, offset = place
    value = {"kind": kind, "key": "b1/quote/s1", "version": 1, "broker": "b1", "epoch": "1.1", "code": None}
    value |= {"reason": None, "topic": topic, "partition": partition, "offset": offset, **more}
    return Output(config.topics.receipts, b"alice", json.dumps(value).encode())


def delivered(config, client, event_id, ids, value=b'{"price": 1}', topic=None) -> Output:
    """A delivery as the router would write it."""
    headers = [("ce_specversion", b"1.0"), ("ce_id", event_id.encode()), ("ce_source", b"test")]
    headers += [("ce_type", b"quote"), ("ce_broker", b"b1")]
    id = delivery_id(event_digest(b"test", event_id.encode()), client)
    headers += [("hilcast_delivery", id.encode()), ("hilcast_subscriptions", ids.encode())]
    headers += [("hilcast_client", client.encode()), ("hilcast_epoch", b"1.1")]
    return Output(topic or config.topics.deliver(client), b"k", value, tuple(headers))


def grouped(topic, event_id, matched, value=b'{"price": 1}') -> Output:
    """A message for several clients as the router would write it; `matched`: by client the ids."""
    headers = [("ce_specversion", b"1.0"), ("ce_id", event_id.encode()), ("ce_source", b"test")]
    headers += [("ce_type", b"quote"), ("ce_broker", b"b1")]
    ((members, _),) = write_members(matched)
    digest = event_digest(b"test", event_id.encode()).hex().encode()
    headers += [("hilcast_members", members), ("hilcast_event", digest), ("hilcast_epoch", b"1.1")]
    return Output(topic, b"k", value, tuple(headers))
