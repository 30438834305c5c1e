"""The reductions by their names in the configuration: made empty, or from what `encode()` packed."""

from __future__ import annotations

from typing import Any

from state.errors import HilcastError
from state.reductions.covering import Covering
from state.reductions.hybrid import Hybrid
from state.reductions.mics import Mics
from state.reductions.mics_high_dimensions import IndexedMics
from state.reductions.negative_space import NegativeSpace
from state.reductions.none import Unreduced
from state.reductions.parameters import forwards_ranges
from state.reductions.probabilistic import Probabilistic
from state.reductions.rectangle_merging import RectangleMerging
from state.reductions.reduction import Reduction
from state.space.event_type import EventType
from state.space.grid import Grid
from state.space.packing import Geometry

_CLASSES: dict[str, Any] = {
    "none": Unreduced,
    "covering": Covering,
    "merging": RectangleMerging,
    "mics": Mics,
    "negative-space": NegativeSpace,
    "probabilistic": Probabilistic,
    "hybrid": Hybrid,
}


def create(event_type: EventType, domain: Geometry) -> Reduction:
    """An empty reduction of the type's kind over one cube."""
    reduction: Reduction = _class(event_type)(domain, event_type.parameters, **_more(event_type))
    return reduction


def restore(event_type: EventType, domain: Geometry, blob: bytes) -> Reduction:
    """The reduction that `encode()` packed."""
    reduction: Reduction = _class(event_type).decode(blob, domain, event_type.parameters, **_more(event_type))
    return reduction


def _class(event_type: EventType) -> Any:
    try:
        found = _CLASSES[event_type.reduction]
    except KeyError:
        raise HilcastError("bad-config", f"unknown reduction {event_type.reduction!r}") from None
    return IndexedMics if found is Mics and not forwards_ranges(event_type) else found


def _more(event_type: EventType) -> dict[str, Any]:
    """What the reduction needs besides its domain: subscription indexing [MICS09 §5] needs the grid."""
    if event_type.reduction == "mics" and not forwards_ranges(event_type):
        return {"grid": _grid(event_type)}
    return {}


def _grid(event_type: EventType) -> Grid:
    """The grid of a type, built once in a process."""
    known = _GRIDS.get(event_type.name)
    if known is None or known[0] != event_type:
        known = _GRIDS[event_type.name] = (event_type, Grid.of(event_type))
    return known[1]


_GRIDS: dict[str, tuple[EventType, Grid]] = {}
