"""What the page may do with `--write`: subscribe, withdraw and publish, through the client library, as one client."""

from __future__ import annotations

from typing import Any

import msgspec

from producers.client.inbox import RefusedError
from producers.client.publisher import Publisher
from producers.client.subscriber import Subscriber
from state.config import Config
from state.errors import HilcastError

TIMEOUT_S = 30.0


def act(config: Config, client: str, what: str, asked: dict[str, Any]) -> dict[str, Any]:
    """Do what was asked and return the receipt, or the name of what was published.

    Raises HilcastError; a refusal is the answer that it is.
    """
    broker, type_name = str(asked.get("broker", "")), str(asked.get("type", ""))
    name = str(asked["id"]) if asked.get("id") else None
    if what == "publish":
        with Publisher(config, broker=broker, type=type_name, source=client) as publisher:
            id = publisher.publish(str(asked.get("event", "")), id=name)
        return {"name": f"{client}#{id}"}
    with Subscriber(config, client) as subscriber:
        try:
            if what == "withdraw":
                receipt = subscriber.withdraw(broker, type_name, name or "", timeout_s=TIMEOUT_S)
            elif what == "subscribe":
                text = str(asked.get("filter", ""))
                receipt = subscriber.subscribe(broker, type_name, text, id=name, timeout_s=TIMEOUT_S)
            else:
                raise HilcastError("bad-value", f"{what!r} is nothing that a client does")
        except RefusedError as refused:
            receipt = refused.receipt
    return {"receipt": msgspec.to_builtins(receipt)}
