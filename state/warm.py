"""Run every compiled kernel once on a little data, so that the first real batch does not pay for it.

Spark forks its Python workers from one daemon: what is warm there is warm in every worker (`streaming/daemon.py`).
"""

from __future__ import annotations

import numpy as np

from state.compiled_part import CompiledPart, LocalEntry
from state.config import Config
from state.control.overlap import meeting
from state.digests import warm as warm_digests
from state.filters.geometry import geometry
from state.filters.grammar import parse
from state.reductions.catalogue import create, restore
from state.reductions.negative_space import warm as warm_negative_space
from state.reductions.parameters import forwards_ranges, range_cap
from state.routing.junction import Junction
from state.space.boxes import Boxes
from state.space.decode import decode
from state.space.decode import warm as warm_decode
from state.space.grid import Grid
from state.space.grid import warm as warm_grid
from state.space.packing import Geometry, pack
from state.space.ranges import Ranges


def warm(config: Config) -> None:
    """Put one subscription and one event of each type through everything that is compiled."""
    warm_grid()
    warm_decode()
    warm_digests()
    if any(event_type.reduction == "negative-space" for event_type in config.types.values()):
        warm_negative_space()
    for event_type in config.types.values():
        grid = Grid.of(event_type)
        name = event_type.attributes[0].name
        boxes = geometry(parse(f'"{name}" IS NULL OR EXISTS "{name}"', event_type), event_type).boxes
        grid.cubes_of(boxes)
        domain: Geometry = Boxes.everything(event_type.d)
        entry: Geometry = boxes
        if forwards_ranges(event_type):
            whole = Ranges(np.array([0]), np.array([2**grid.index_bits - 1]))
            domain, entry = whole, grid.ranges(boxes, range_cap(event_type))
        reduction = create(event_type, domain)
        reduction.update({"a": entry, "b": entry})
        reduction.update({}, ["a"])
        restore(event_type, domain, reduction.encode())
        meeting([entry], [domain])
        local = [LocalEntry("s", "c", "t", None, pack(boxes))]
        part = CompiledPart.of(event_type.d, local, {"n": [pack(entry)]}, [])
        junction = Junction.join(event_type, grid, [part])
        batch = decode(event_type, [b'{"a": 1}', b'{"b": "x"}'] * 8)
        junction.interested(batch.ranks)
        junction.wanted("n", batch.ranks, grid.index(batch.ranks))
