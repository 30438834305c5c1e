"""Advertising: what a publisher promises all its events satisfy, entered at a broker."""

from __future__ import annotations

from types import TracebackType

from producers.client.registrar import TIMEOUT_S, Receipt, Registrar, Request
from producers.transport import Name, Transport, open_transport
from state.config import Config


class Advertiser:
    """Advertises for one publisher, which is the `ce_source` of its events.

    with Advertiser(config, "exchange") as advertiser:
        advertiser.advertise("b1", "stock.quote", "price < 1000")
    """

    def __init__(self, config: Config, publisher: str, *, transport: Transport | Name = "confluent") -> None:
        self.publisher = publisher
        self._owned = isinstance(transport, str)
        self._transport = open_transport(config, transport) if isinstance(transport, str) else transport
        self._registrar = Registrar(config, self._transport, config.topics.advertisements)

    def advertise(
        self,
        broker: str,
        type: str,
        filter: str | dict[str, object] | list[object],
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
        filter: str | dict[str, object] | list[object],
        *,
        id: str | None = None,
        version: int | None = None,
        ttl_ms: int | None = None,
    ) -> Request:
        """The same without waiting: ask the request for its receipt later."""
        value: dict[str, object] = {"publisher": self.publisher, "filter": filter}
        if ttl_ms is not None:
            value["ttl_ms"] = ttl_ms
        return self._registrar.send(broker, type, id, value, version)

    def withdraw(
        self, broker: str, type: str, id: str, *, version: int | None = None, timeout_s: float = TIMEOUT_S
    ) -> Receipt:
        """Withdraw an advertisement and wait for the receipt."""
        return self._registrar.send(broker, type, id, None, version).receipt(timeout_s)

    def close(self) -> None:
        self._registrar.close()
        if self._owned:
            self._transport.close()

    def __enter__(self) -> Advertiser:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
