"""Reductions: which entries a neighbour must hold (`interface.py`), one module per method.

| name | module | paper |
|---|---|---|
| `none`, `covering` | `none.py`, `covering.py` | baselines |
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from state.errors import HilcastError
from state.reductions.covering import Covering
from state.reductions.interface import Geometry, Reduction
from state.reductions.none import Unreduced
from state.space.event_type import EventType

_CLASSES: dict[str, Callable[[EventType], Any]] = {
    "none": lambda event_type: Unreduced,
    "covering": lambda event_type: Covering,
}


def forwards_ranges(event_type: EventType) -> bool:
    """Whether the type's reduction speaks of Hilbert ranges instead of boxes."""
    return event_type.reduction == "mics"


def create(event_type: EventType, domain: Geometry) -> Reduction:
    """An empty reduction of the type's kind over one cube."""
    reduction: Reduction = _class(event_type)(domain, event_type.parameters)
    return reduction


def restore(event_type: EventType, domain: Geometry, blob: bytes) -> Reduction:
    """The reduction that `encode()` packed."""
    reduction: Reduction = _class(event_type).decode(blob, domain, event_type.parameters)
    return reduction


def check_parameters(event_type: EventType) -> list[str]:
    """Faults in the type's `parameters`, in words; none is good."""
    faults: list[str] = _class(event_type).check_parameters(event_type.parameters)
    return faults


def _class(event_type: EventType) -> Any:
    try:
        return _CLASSES[event_type.reduction](event_type)
    except KeyError:
        raise HilcastError("bad-config", f"unknown reduction {event_type.reduction!r}") from None


__all__ = ["check_parameters", "create", "forwards_ranges", "restore"]
