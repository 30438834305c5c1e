"""Publish, subscribe and advertise through a hilcast overlay: what an application imports.

A first use, with `config = load("hilcast.toml")`:

    with Subscriber(config, "alice") as alice:
        alice.subscribe("b1", "stock.quote", "price < 100 AND symbol IN ('IBM', 'SAP')")
        wait(config)
        with Publisher(config, broker="b3", type="stock.quote", source="exchange") as exchange:
            exchange.publish({"symbol": "IBM", "price": 99.5})
        for delivery in alice:
            print(delivery.event, delivery.subscriptions)

Needs what `pip install hilcast` brings and nothing of the router: no Spark, no numpy, no Redis.
"""

from __future__ import annotations

from producers.client.advertiser import Advertiser
from producers.client.delivery import Delivery
from producers.client.inbox import Receipt, RefusedError, Request, UnansweredError
from producers.client.publisher import Publisher
from producers.client.subscriber import Subscriber
from producers.client.waiting import BehindError, wait
from state.config import Config, load
from state.errors import ConfigError, HilcastError

__all__ = [
    "Advertiser",
    "BehindError",
    "Config",
    "ConfigError",
    "Delivery",
    "HilcastError",
    "Publisher",
    "Receipt",
    "RefusedError",
    "Request",
    "Subscriber",
    "UnansweredError",
    "load",
    "wait",
]
