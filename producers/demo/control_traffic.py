"""How much the reduction saved, counted on the control topic.

Without one every entry of a home goes to every broker: it crosses each link of the overlay once. What the brokers
told their neighbours stands beside it on the same topic.
"""

from __future__ import annotations

from typing import NamedTuple

from infra.kafka import Transport
from infra.kafka.reading import every
from state.config import Config
from state.control.protocol import Change, decode
from state.errors import HilcastError
from state.keys import Key


class ControlCount(NamedTuple):
    """Entries (filters, or parts of them in one cube, and their removals) told across links."""

    sent: int
    unreduced: int
    """What it would have been with the reduction `none`."""


def count_control(config: Config, transport: Transport) -> ControlCount:
    """Count what is on the control topic; the snapshots with which a generation opens are left out."""
    sent = entered = 0
    for record in every(transport, config.topics.control):
        change = _change(record.value)
        if change is None or change.snapshot:
            continue
        if Key.parse(change.source).is_home:
            entered += len(change.local) + len(change.removed)
        else:
            sent += len(change.entries) + len(change.removed)
    return ControlCount(sent, entered * len(config.overlay.links))


def _change(value: bytes | None) -> Change | None:
    try:
        message = decode(value or b"")
    except HilcastError:
        return None
    return message if isinstance(message, Change) else None
