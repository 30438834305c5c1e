"""Run every compiled kernel once on a little data, so that the first real batch does not pay for it.

Spark forks the Python workers of a query from one daemon: what is warm there is warm in each (`streaming/daemon.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pyarrow as pa

from state.compiled_part import CompiledPart, LocalEntry
from state.config import Config
from state.control.overlap import Asked, Wordings
from state.control.selection import empty_side
from state.counting_sort import warm as warm_sort
from state.filters.geometry import geometry
from state.filters.grammar import parse
from state.filters.residual_programs import warm as warm_programs
from state.matchers.bitmap import warm as warm_bitmap
from state.names import FORMAT_HEADER
from state.reductions.catalogue import create, restore
from state.reductions.entry_rows import warm as warm_rows
from state.reductions.group_covering import GroupCovering
from state.reductions.group_covering import warm as warm_groups
from state.reductions.negative_space import warm as warm_negative_space
from state.reductions.parameters import forwards_ranges, range_cap
from state.reductions.withholding import MANY
from state.routing.envelope import INPUT
from state.routing.junction import Junction
from state.routing.route import route
from state.routing.snapshot import Snapshot
from state.routing.sweep import FEW
from state.space.boxes import Boxes
from state.space.decode import warm as warm_decode
from state.space.event_type import FORMATS, EventType, Format
from state.space.grid import Grid
from state.space.grid import warm as warm_grid
from state.space.packing import Geometry, pack
from state.space.ranges import Ranges

ROUTING, CONTROL = 0, 1
"""The halves: all that the workers of a query need, and of what both need the one half first, the other one last."""


def warm(config: Config, half: int | None = None) -> None:
    """Put one subscription and a few events of each type through everything that is compiled.

    `half`: that half of it alone. Two processes that each do one compile side by side what both then have.
    """
    halves = _halves(config)
    for piece in [*halves[ROUTING], *halves[CONTROL]] if half is None else halves[half]:
        piece()


def _halves(config: Config) -> tuple[list[Callable[[], object]], list[Callable[[], object]]]:
    """What there is to be done, in halves that take about as long to compile."""
    types = list(config.types.values())
    negative = any(event_type.reduction == "negative-space" for event_type in types)
    # a filter is mapped in both: the second half begins with that, the first one comes to it later
    mapped = [partial(_entry, event_type, Grid.of(event_type)) for event_type in types]
    at_control = [partial(_warm_control, event_type) for event_type in types]
    at_routing = [partial(_warm_routing, config, event_type) for event_type in types]
    decoded = partial(warm_decode, _formats(config))
    routing: list[Callable[[], object]] = [warm_grid, warm_sort, warm_bitmap, decoded, *at_routing]
    # control's alone, and compiled in this half: the other one has enough to do
    routing += [warm_negative_space] if negative else []
    control: list[Callable[[], object]] = [*mapped, warm_rows, warm_programs, *at_control, warm_grid, warm_sort]
    return [*routing, warm_programs], [*control, *([warm_negative_space] if negative else [])]


def _entry(event_type: EventType, grid: Grid) -> tuple[str, Boxes, Geometry, Geometry]:
    """A filter of everything: in words, as boxes, as its reduction takes it, and the domain of that."""
    name = event_type.attributes[0].name
    everything = f'"{name}" IS NULL OR EXISTS "{name}"'
    boxes = geometry(parse(everything, event_type), event_type).boxes
    if not forwards_ranges(event_type):
        return everything, boxes, boxes, Boxes.everything(event_type.d)
    whole = Ranges(np.array([0]), np.array([2**grid.index_bits - 1]))
    return everything, boxes, grid.ranges(boxes, range_cap(event_type)), whole


def _warm_control(event_type: EventType) -> None:
    grid = Grid.of(event_type)
    everything, boxes, entry, domain = _entry(event_type, grid)
    grid.cubes_touched(boxes)
    reduction = create(event_type, domain)
    reduction.update({"a": entry, "b": entry})
    reduction.update({}, ["a"])
    reduction.update({str(i): entry for i in range(MANY)})
    if isinstance(reduction, GroupCovering):
        warm_groups()
    restore(event_type, domain, reduction.encode())
    side = empty_side(event_type, Wordings(event_type), forwards_ranges(event_type))
    for wording in (None, everything):
        side.put("a", Asked(domain, wording))
        side.first(Asked(entry, wording))
        side.all(Asked(entry, wording))


def _warm_routing(config: Config, event_type: EventType) -> None:
    grid = Grid.of(event_type)
    everything, boxes, entry, _ = _entry(event_type, grid)
    links = {neighbour: [pack(entry)] for neighbour in config.overlay.brokers}
    local = [LocalEntry("s", "c", "t", None, pack(boxes))]
    part = CompiledPart.of(event_type.d, local, links, [("publisher", everything)])
    junction = Junction.join(event_type, grid, [part])
    hosted = dict.fromkeys(config.deployment.hosts, junction)
    snapshot = Snapshot(config, "", {event_type.name: hosted})
    batch = _publications(config, event_type.name)
    for events in (batch, batch.slice(0, FEW)):
        for _ in route(snapshot, events).batches():
            pass


def _formats(config: Config) -> set[Format]:
    """What events may be written in, by what the configuration says; whoever has a registry may take any."""
    sources = [*config.sources, *(pattern.source for pattern in config.patterns)]
    named = {event_type.format for event_type in config.types.values()} | {source.format for source in sources}
    return {format for format in FORMATS if format in named or config.schemas is not None}


def _publications(config: Config, type_name: str) -> pa.RecordBatch:
    """Events that enter at the first hosted broker; JSON, whatever their type says, for all are matched alike."""
    said = {"specversion": "1.0", "id": "1", "source": "publisher", "type": type_name}
    said["broker"] = config.deployment.hosts[0]
    headers = [{"key": f"ce_{name}", "value": value.encode()} for name, value in said.items()]
    if config.types[type_name].format != "json":
        headers.append({"key": FORMAT_HEADER, "value": b"json"})
    rows = [
        {"topic": "t", "partition": 0, "offset": i, "key": b"", "value": value, "headers": headers}
        for i, value in enumerate([b'{"a": 1}', b'{"b": "x"}'] * FEW)
    ]
    return pa.RecordBatch.from_pylist(rows, INPUT)
