"""The compiled index of a million subscriptions at once, from columns: for measurements.

What `rebuild` makes of one registration after the other under the reduction `none`, made part by part from arrays, with
no state of brokers beside it. It is an index to route with, not a generation to go on from.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from state.arrays import Ints
from state.compiled_part import CompiledPart, compile_part
from state.config import Config
from state.keys import Key, index_parts, is_wide, wide_part
from state.space.boxes import Boxes
from state.space.grid import Grid
from state.space.packing import Packed, pack


@dataclass(frozen=True)
class Subscriptions:
    """Subscriptions of one type side by side, each an exact filter of one box."""

    boxes: Boxes
    ids: list[str]
    clients: list[str]
    brokers: Ints
    """By subscription: the number of its broker in the overlay."""


def bulk_index(config: Config, type_name: str, subscriptions: Subscriptions) -> Iterator[tuple[Key, bytes]]:
    """Compile every part of every broker, one after the other.

    Guarantee: a junction of these parts answers as one of the parts that `rebuild` makes with reduction `none`.
    Cost: O(cubes * subscriptions) comparisons, compiled; memory for one part at a time.
    """
    grid = Grid.of(config.types[type_name])
    touched = _touched(subscriptions.boxes, grid)
    wide = np.array([is_wide(int(n), grid.cubes) for n in touched.sum(axis=0)], bool)
    shards = {int(row): wide_part(subscriptions.ids[row], config) for row in np.flatnonzero(wide).tolist()}
    beyond = _beyond(config)
    for part in index_parts(config, type_name):
        if part.startswith("wide:"):
            rows = np.array([row for row, shard in shards.items() if shard == part], np.int64)
            boxes = subscriptions.boxes.take(rows)
        else:
            cube = int(part.split(":")[1])
            rows = np.flatnonzero(touched[cube] & ~wide)
            low, high = grid.cube_box(cube)
            boxes = Boxes(
                np.maximum(subscriptions.boxes.lows[rows], low), np.minimum(subscriptions.boxes.highs[rows], high)
            )
        brokers = subscriptions.brokers[rows]
        for number, broker in enumerate(config.overlay.brokers):
            here = np.flatnonzero(brokers == number)
            links = {
                neighbour: pack(boxes.take(np.isin(brokers, there))) for neighbour, there in beyond[broker].items()
            }
            compiled = _part(config, subscriptions, rows[here], pack(boxes.take(here)), links)
            yield Key(broker, type_name, part), compile_part(compiled)


def _part(
    config: Config, subscriptions: Subscriptions, rows: Ints, boxes: Packed, links: dict[str, Packed]
) -> CompiledPart:
    clients = [subscriptions.clients[row] for row in rows.tolist()]
    return CompiledPart(
        d=boxes.d,
        ids=[subscriptions.ids[row] for row in rows.tolist()],
        clients=clients,
        destinations=[config.topics.deliver(client) for client in clients],
        residuals={},
        doubtful=[],
        boxes=boxes,
        owners=np.arange(len(rows)).astype("<i4").tobytes(),
        links={neighbour: packed for neighbour, packed in sorted(links.items()) if packed.size},
        advertisements=[],
    )


def _touched(boxes: Boxes, grid: Grid) -> NDArray[np.bool_]:
    """Bool (cubes, boxes): which cubes each box touches."""
    touched = np.ones((grid.cubes, len(boxes)), bool)
    for cube in range(grid.cubes):
        low, high = grid.cube_box(cube)
        for column in grid.columns:
            touched[cube] &= (boxes.lows[:, column] <= high[column]) & (boxes.highs[:, column] >= low[column])
    return touched


def _beyond(config: Config) -> dict[str, dict[str, list[int]]]:
    """By broker and neighbour: the numbers of the brokers on the neighbour's side."""
    overlay = config.overlay
    beyond: dict[str, dict[str, list[int]]] = {}
    for broker in overlay.brokers:
        beyond[broker] = {}
        for neighbour in overlay.neighbours(broker):
            side = [neighbour]
            for other in side:
                side += [n for n in overlay.neighbours(other) if n not in side and n != broker]
            beyond[broker][neighbour] = [overlay.brokers.index(b) for b in side]
    return beyond
