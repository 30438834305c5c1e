"""Advertising: what a publisher promises all its events satisfy, entered at a broker."""

from __future__ import annotations

from infra.kafka import Name, Transport
from producers.client.inbox import TIMEOUT_S, Filter, Receipt, Registrant, Request
from state.config import Config


class Advertiser(Registrant):
    """Advertises for one publisher, which is the `ce_source` of its events.

    Where clients have inboxes of their own, `client` says whose it is sent by; without, the publisher is a client.

    with Advertiser(config, "exchange") as advertiser:
        advertiser.advertise("b1", "stock.quote", "price < 1000")
    """

    def __init__(
        self,
        config: Config,
        publisher: str,
        *,
        client: str | None = None,
        transport: Transport | Name = "confluent",
    ) -> None:
        super().__init__(config, "advertisements", client or publisher, transport)
        self.publisher = publisher

    def advertise(
        self,
        broker: str,
        type: str,
        filter: Filter,
        *,
        id: str | None = None,
        version: int | None = None,
        ttl_ms: int | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> Receipt:
        """Advertise, or replace the advertisement of this id, and wait for the receipt; `RefusedError` if it is
        refused.
        """
        return self.request(broker, type, filter, id=id, version=version, ttl_ms=ttl_ms).receipt(timeout_s)

    def request(
        self,
        broker: str,
        type: str,
        filter: Filter,
        *,
        id: str | None = None,
        version: int | None = None,
        ttl_ms: int | None = None,
    ) -> Request:
        """The same without waiting: ask the request for its receipt later."""
        value: dict[str, object] = {"publisher": self.publisher, "filter": filter}
        if ttl_ms is not None:
            value["ttl_ms"] = ttl_ms
        return self._inbox.send(broker, type, id, value, version)
