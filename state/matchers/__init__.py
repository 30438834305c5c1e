"""Matchers: who holds an event (`matcher.py`), one module per method; a type names the one of its junctions.

| name | module | paper |
|---|---|---|
| `bitmap` | `bitmap.py`, on `segment.py`, `order.py` and `scan.py` | ours |
| `s-tree` | `stree.py`, on `box_tree.py` | [STREE03] §3 |
"""

from __future__ import annotations

from typing import Any

import numpy as np

from state.errors import HilcastError
from state.matchers.bitmap import BitmapMatcher
from state.matchers.matcher import SharedMatcher
from state.matchers.stree import STreeMatcher
from state.space.boxes import Boxes
from state.space.event_type import EventType

_CLASSES: dict[str, Any] = {"bitmap": BitmapMatcher, "s-tree": STreeMatcher}


def matcher_of(event_type: EventType, more: int = 0) -> SharedMatcher:
    """An empty matcher of the kind that the type asks for; `more`: dimensions beside those of the attributes."""
    try:
        kind = _CLASSES[event_type.matcher]
    except KeyError:
        raise HilcastError("bad-config", f"unknown matcher {event_type.matcher!r}") from None
    matcher: SharedMatcher = kind(
        Boxes.empty(event_type.d + more), np.empty(0, np.int64), **event_type.matcher_parameters
    )
    return matcher


__all__ = ["matcher_of"]
