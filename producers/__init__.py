"""What clients import: publish, subscribe and advertise through a hilcast overlay.

A first use, with `config = load("hilcast.toml")`:

    with Subscriber(config, "alice") as alice:
        alice.subscribe("b1", "stock.quote", "price < 100 AND symbol IN ('IBM', 'SAP')")
        wait(config)
        with Publisher(config, broker="b3", type="stock.quote", source="exchange") as exchange:
            exchange.publish({"symbol": "IBM", "price": 99.5})
        for delivery in alice:
            print(delivery.event, delivery.subscriptions)
"""

from __future__ import annotations

from infra.kafka import Transport, open_transport
from producers.client.advertiser import Advertiser
from producers.client.delivery import Delivery
from producers.client.publisher import Publisher
from producers.client.registrar import Receipt, RefusedError, Request, UnansweredError
from producers.client.subscriber import Subscriber
from producers.client.waiting import BehindError, wait
from state.config import load

__all__ = [
    "Advertiser",
    "BehindError",
    "Delivery",
    "Publisher",
    "Receipt",
    "RefusedError",
    "Request",
    "Subscriber",
    "Transport",
    "UnansweredError",
    "load",
    "open_transport",
    "wait",
]
