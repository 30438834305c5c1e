"""Whether a client maps its subscriptions itself; `mapper.py` does it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from infra.extras import require
from state.config import Config

if TYPE_CHECKING:
    from producers.client.mapper import Mapper

Mapped = bool | Literal["redis"]
"""Not at all; on the grid of the configuration; on the grid that the running router describes in Redis."""


def open_mapper(config: Config, mapping: Mapped) -> Mapper | None:
    """A mapper, if one is wanted. Raises `packages-missing` where only what clients need is installed."""
    if mapping is False:
        return None
    # the filter language and the grid, which those who do not map need neither install nor load
    require("router")
    from producers.client.mapper import Mapper

    return Mapper(config, "redis" if mapping == "redis" else "configuration")
