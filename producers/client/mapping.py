"""Whether a client maps its events and subscriptions itself; `mapper.py` does it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from state.config import Config

if TYPE_CHECKING:
    from producers.client.mapper import Mapper

Mapped = bool | Literal["redis"]
"""Not at all; on the grid of the configuration; on the grid that the running router describes in Redis."""


def open_mapper(config: Config, mapping: Mapped) -> Mapper | None:
    """A mapper, if one is wanted."""
    if mapping is False:
        return None
    # compiled code, which those who do not map need not load
    from producers.client.mapper import Mapper

    return Mapper(config, "redis" if mapping == "redis" else "configuration")
