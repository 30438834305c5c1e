"""What subscribers and advertisers have in common: a connection, an inbox, withdrawing, and an end."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from infra.kafka import Name, Transport, open_transport
from producers.client.registrar import TIMEOUT_S, Receipt, Registrar
from state.config import Config

Filter = str | dict[str, object] | list[object]
"""Text, or the CloudEvents JSON form."""


class Registering:
    """Sends control events to one inbox; a transport that was given stays open, one that was named is closed."""

    def __init__(self, config: Config, inbox: str, transport: Transport | Name) -> None:
        self._owned = isinstance(transport, str)
        self._transport = open_transport(config, transport) if isinstance(transport, str) else transport
        self._registrar = Registrar(config, self._transport, inbox)

    def withdraw(
        self, broker: str, type: str, id: str, *, version: int | None = None, timeout_s: float = TIMEOUT_S
    ) -> Receipt:
        """Withdraw what was registered under this id and wait for the receipt."""
        return self._registrar.send(broker, type, id, None, version).receipt(timeout_s)

    def close(self) -> None:
        self._registrar.close()
        if self._owned:
            self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
