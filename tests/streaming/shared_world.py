"""An index that several workers of one host share, beside a Redis that is only said to be there.

What a part holds is a function of its key and of the batch that wrote it, so that every process can say for itself what
it should hold; the batch of each part stands in a file. Deltas lead from any batch to any later one.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from state.compiled_part import CompiledPart, LocalEntry
from state.config import parse
from state.index_delta import IndexDelta, without
from state.keys import index_keys
from state.redis_index import WRITES, Holding, Loaded, Look, Version
from state.routing.junction import Junction
from state.space.boxes import Boxes
from state.space.decode import decode
from state.space.grid import Grid
from state.space.packing import pack
from streaming.boot import Boot
from streaming.index_cache import IndexCache

TEXT = """
[overlay]
brokers = ["b1", "b2"]
links = [["b1", "b2"]]
[settings]
index_folder = "FOLDER"
[types.t]
cubes = 4
[types.t.attributes]
x = { kind = "int", min = 0, max = 63 }
"""
EVENTS = [b'{"x": %d}' % x for x in range(64)]
FOLDED = 5
"""After every so many batches there is a new base, and no delta leads to it."""


def configured(folder: Path):
    return parse(TEXT.replace("FOLDER", str(folder)))


def made(key, batch: int, entries: int = 12) -> CompiledPart:
    """What a part holds after a batch: of a dozen subscriptions two or so are other ones than the batch before."""
    local, links = [], []
    for i in range(entries):
        chance = random.Random(f"{key}/{i}/{(batch + i) // 6}")
        low = chance.randrange(64)
        box = decode_box(low, min(63, low + chance.randrange(8)))
        residual = f"x = {low}" if chance.random() < 0.3 else None
        local.append(LocalEntry(f"s{i}", f"c{chance.randrange(3)}", "t", residual, box, residual is None))
        links.append(decode_box(low, low))
    asked, promised = {"b2" if key.broker == "b1" else "b1": links}, [("p", f"x < {batch % 5 + 1}")]
    return CompiledPart.of(1, local, asked, promised, stamp_of(key, batch))


def stamp_of(key, batch: int) -> bytes:
    return f"{key} {batch}".encode()


def difference(before: CompiledPart, after: CompiledPart) -> IndexDelta:
    """What leads from one state of a part to another."""
    was, now = ({entry.id: entry for entry in part.entries()} for part in (before, after))
    entries = [entry for id, entry in now.items() if was.get(id) != entry]
    put = {n: [without(after.links[n], before.links[n])] for n in after.links}
    return IndexDelta(
        since=before.stamp,
        put=CompiledPart.of(1, entries, put, after.advertisements, after.stamp),
        gone=[id for id in was if id not in now],
        links_gone={n: without(before.links[n], after.links[n]) for n in after.links},
        advertised=before.advertisements != after.advertisements,
    )


_RANKS = decode(configured(Path("/nowhere")).types["t"], EVENTS).ranks[:, 0]


def decode_box(low: int, high: int):
    return pack(Boxes(_RANKS[low].reshape(1, 1).copy(), _RANKS[high].reshape(1, 1).copy()))


class World:
    """Redis, as far as a worker asks it: versions in a file, contents by `made`."""

    def __init__(self, folder: Path, generation: int = 1) -> None:
        self.config = configured(folder / "shared")
        self.keys = index_keys(self.config, self.config.overlay.brokers)
        self.path, self.generation = folder / "versions.json", generation
        self.run, self.lineage = "run", "lineage"
        self.loads: list[list] = []
        self.led: list[tuple] = []
        """Parts that were followed from what was held, and the state that was."""
        self.lost: set = set()
        self.cut: set = set()
        """Parts whose last delta is lost."""
        if not self.path.exists():
            self.write({str(key): 0 for key in self.keys})

    def batches(self) -> dict[str, int]:
        return json.loads(self.path.read_text())

    def write(self, batches: dict[str, int]) -> None:
        aside = self.path.with_suffix(".new")
        aside.write_text(json.dumps(batches))
        aside.rename(self.path)

    def change(self, *keys) -> None:
        batches = self.batches()
        newest = max(batches.values()) + 1
        self.write(batches | {str(key): newest for key in keys})

    def look(self, generation, known=None) -> Look:
        batches = self.batches()
        versions = {field: Version(generation, batch, self.run) for field, batch in batches.items()}
        versions[WRITES] = Version(0, sum(batches.values()), self.lineage)
        changed = None
        if known is not None and known.run == self.run and known.generation == generation:
            changed = frozenset(f for f in batches if known.versions.get(f) != versions[f])
        return Look(self.run, self.generation, generation, versions, changed)

    def follow(self, held, generation, run):
        self.loads.append(list(held))
        batches = {key: self.batches()[str(key)] - (key in self.cut) for key in held}
        return [
            None if key in self.lost else self._followed(key, holding, generation, batches[key])
            for key, holding in held.items()
        ]

    def _followed(self, key, holding, generation, batch) -> Loaded:
        epoch, now, since = f"{generation}.{batch}", Holding(stamp_of(key, batch), batch), None
        if holding is not None:
            since = int(holding.stamp.rpartition(b" ")[2])
            assert holding == (stamp_of(key, since), since), "a state of another part"
        if since is not None and since // FOLDED == batch // FOLDED and since <= batch:
            self.led.append((key, holding))
            return Loaded(epoch, now, None, deltas_of(key, since, batch))
        base = batch // FOLDED * FOLDED
        return Loaded(epoch, now, made(key, base), deltas_of(key, base, batch))

    def worker(self) -> IndexCache:
        """A worker of this host."""
        cache = IndexCache(Boot(self.config, 1))
        cache._committed = SimpleNamespace(mark=lambda: None)
        cache._ask = lambda key: None
        cache.counted = []
        cache.count = cache.counted.append
        cache.redis = SimpleNamespace(
            current=lambda: (self.run, self.generation),
            configuration=lambda generation: self.config.shared,
            look=self.look,
            follow=self.follow,
        )
        return cache


def deltas_of(key, since: int, batch: int) -> list[IndexDelta]:
    """What leads from one batch to another, in as many steps."""
    return [difference(made(key, n), made(key, n + 1)) for n in range(since, batch)]


def answers(junction: Junction):
    """All that a junction says of all events there are."""
    batch = decode(junction.event_type, EVENTS)
    found = junction.matching(batch, np.arange(len(EVENTS)))
    roll = junction.roll
    pairs = sorted(
        (row, roll.id(n), roll.client(n), roll.destination(n))
        for row, n in zip(found.rows.tolist(), found.numbers.tolist(), strict=True)
    )
    index = junction.grid.index(batch.ranks)
    links = {n: junction.wanted(n, batch.ranks, index).tolist() for n in ("b1", "b2")}
    kept = junction.conforming(batch, np.arange(len(EVENTS)), ["p"] * len(EVENTS)).tolist()
    return pairs, links, kept


def should(config, held):
    """By broker: what a junction that is joined anew from parts of these versions says."""
    event_type = config.types["t"]
    found = {}
    for broker in config.overlay.brokers:
        junction = Junction(event_type, Grid.of(event_type))
        parts = {k: made(k, int(epoch.split(".")[1])) for k, (epoch, _) in held.items() if k.broker == broker}
        junction.update(parts)
        found[broker] = answers(junction)
    return found


def says(cache: IndexCache):
    """By broker: what a worker says."""
    return {broker: answers(junction) for broker, junction in cache._held.snapshot.junctions["t"].items()}
