"""The door of routing: one Arrow batch of publications in, everything it leads to out. Pure, for whoever drives it.

    batch ── envelope.read ──> admission.claim ──┬─ by type ─> admission.examine ─> sweep ─> sharing ─> delivery ──┐
                                                 └─ refused ─────────────────────────┐                             │
    batches <── Assembly ────────────────────────────────────── dead letters, log <──┴─────────────────────────────┘

Values leave as they came, byte for byte. One line a partition goes to the routing log, one dead letter for every event
that cannot be used; one whose schema cannot be had yet is set aside, and comes again (`waiting_room.py`). The route
query (`streaming/route.py`), the simulated world and the tests all come in here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import msgspec
import numpy as np
import pyarrow as pa

from state.arrays import Bools, Ints
from state.errors import ENVIRONMENT, Quarantined
from state.fitting import misfits
from state.lanes import shared_lanes
from state.messages import Output
from state.routing.admission import Claimed, claim, dead_letters, examine, letter_of
from state.routing.assemble import Assembly, Outgoing, plain
from state.routing.delivery import unite, write_deliveries, write_messages
from state.routing.envelope import Column, Envelopes, Refusal, read
from state.routing.junction import Junction, Pairs
from state.routing.sharing import Shared
from state.routing.snapshot import Snapshot
from state.routing.sweep import Swept, sweep
from state.routing.waiting_room import Returned, returned, set_aside


class Routing:
    """What one batch leads to."""

    def __init__(self, snapshot: Snapshot, batch: pa.RecordBatch, slices: list[_Slice], faults: Faults) -> None:
        self._config = snapshot.config
        self._table = batch
        self._slices = slices
        self.figures: Counter[str] = Counter()
        """To be added to the live figures once all batches are built: `routed`, `unmatched`, `dead_letters`,
        `internal`, `waiting`, `copies`, `undeliverable`, `link:A>B`, `link_wasted:A>B`, `distribution:BROKER:...`."""
        self.faults: list[str] = []
        """Lines for the log, one for each event whose routing failed inside (code `internal`)."""
        mine, unmatched, waiting = (np.zeros(batch.num_rows, bool) for _ in range(3))
        for one in slices:
            self.figures.update(one.figures)
            mine[one.first : one.first + len(one.mine)] = one.mine
            unmatched[one.first : one.first + len(one.mine)] = one.unmatched
            waiting[[one.first + row for row in one.waiting]] = True
        mine[list(faults)] = True
        self.figures["routed"] += len(faults)
        topic = slices[0].topic if len(slices) == 1 and not faults else None
        self._rest = [output for one in slices for output in (*one.letters, *one.waiting.values())]
        self._rest += self._internal(faults)
        self._rest += _log(snapshot, batch, topic or _topic(batch), mine, unmatched, waiting)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows to write, (topic, key, value, headers), some 16 MB at a time: built as they are asked for."""
        failed: Faults = {}
        for one in self._slices:
            yield from one.assembly.batches()
            failed |= {one.first + row: error for row, error in one.assembly.failed.items()}
        rest = plain(self._rest + self._internal(failed))
        if rest is not None:
            yield rest

    def _internal(self, faults: Faults) -> list[Output]:
        """The dead letters of events whose routing failed inside; each is counted and said."""
        letters = []
        for row, error in sorted(faults.items()):
            name = type(error).__name__
            why = Refusal("internal", f"routing it failed inside: {name}")
            try:
                sent = returned(self._table.slice(row, 1), self._config).table
                letters.append(letter_of(sent, 0, why, self._config))
            except Exception:  # headers that cannot even be read
                letters.append(letter_of(self._table, row, why, self._config, with_headers=False))
            place = "/".join(str(self._table.column(c)[row].as_py()) for c in ("topic", "partition"))
            offset = self._table.column("offset")[row].as_py()
            self.faults.append(f"the event at {place} offset {offset} is not routed: {name}: {error}")
        if letters:
            self.figures.update(dead_letters=len(letters), internal=len(letters))
        return letters


Faults = dict[int, Exception]
"""By row of the batch: what was raised."""


@dataclass(frozen=True)
class _Slice:
    """What a run of rows, from `first` on, leads to."""

    first: int
    topic: Column | None
    """Where each row stands; None where some have stood elsewhere."""
    mine: Bools
    unmatched: Bools
    assembly: Assembly
    letters: list[Output]
    waiting: Mapping[int, Output]
    """By row: what is set aside."""
    figures: Mapping[str, int]


def route(snapshot: Snapshot, batch: pa.RecordBatch) -> Routing:
    """Route one Arrow batch, (topic, partition, offset, key, value, headers), with the index of one moment.

    Guarantee: every event that this deployment answers for is delivered to all it concerns and sent over every link
    that wants it, or gets one dead letter, or counts as unmatched, or is set aside and comes again. The same batch and
    snapshot give the same bytes.
    Everything fits Kafka. No event stops the others: a batch that fails inside is halved until those that do it stand
    alone; they become dead letters `internal`, and the rest is routed as it would be without them.
    Cost: vectorised over the events; Python loops only over types, brokers, links and what is refused.
    """
    faults: Faults = {}
    slices = _narrowed(snapshot, batch, 0, faults)
    return Routing(snapshot, batch, slices, faults)


def _narrowed(snapshot: Snapshot, batch: pa.RecordBatch, first: int, faults: Faults) -> list[_Slice]:
    """Route the rows of a batch that can be routed, as a whole or half by half; `first`: where it begins."""
    try:
        return [_routed(snapshot, batch, first)]
    except ENVIRONMENT:
        raise
    except Exception as error:
        if batch.num_rows <= 1:
            faults[first] = error
            return []
    half = batch.num_rows // 2
    halves = (np.arange(half), np.arange(half, batch.num_rows))
    return [
        one for rows in halves for one in _narrowed(snapshot, batch.take(pa.array(rows)), first + int(rows[0]), faults)
    ]


def _routed(snapshot: Snapshot, batch: pa.RecordBatch, first: int) -> _Slice:
    if snapshot.quarantined and not snapshot.quarantined.isdisjoint(places(batch)):
        raise Quarantined("no query could be got past it")
    config, back = snapshot.config, returned(batch, snapshot.config)
    envelopes = read(back.table, config)
    _refuse(envelopes, back, snapshot)
    claimed = claim(envelopes, snapshot)
    outgoing = Outgoing()
    routed = [_route_type(snapshot, envelopes, name, rows, outgoing) for name, rows in claimed.by_type.items()]
    refused = dict(claimed.refused)
    for one in routed:
        refused |= one.refused
    waiting = set_aside(back, {row: id for one in routed for row, id in one.awaited.items()}, config)
    letters = dead_letters(back.table, {row: why for row, why in refused.items() if row not in waiting}, config)
    assert not misfits(letters, config.topics), "a dead letter is cut to what fits"
    reached = np.zeros(len(envelopes), bool)
    for rows in [np.array(list(refused), np.int64), *(one.reached for one in routed)]:
        reached[rows] = True
    unmatched, topic = claimed.mine & ~reached, envelopes.topic if back.table is batch else None
    figures = _counted(claimed, unmatched, letters, waiting)
    for one in routed:
        figures.update(one.figures)
    assembly = Assembly(outgoing, envelopes)
    return _Slice(first, topic, claimed.mine, unmatched, assembly, letters, waiting, figures)


def _refuse(envelopes: Envelopes, back: Returned, snapshot: Snapshot) -> None:
    """What nobody of ours has set aside is refused here, whatever broker it names."""
    for row, why in back.spoiled.items():
        envelopes.refused[row] = why
        envelopes.broker.put(row, snapshot.config.deployment.hosts[0])


def _counted(claimed: Claimed, unmatched: Bools, letters: list[Output], waiting: Mapping[int, Output]) -> Counter[str]:
    figures = Counter(routed=int(claimed.mine.sum()) - len(waiting), unmatched=int(unmatched.sum()))
    return figures + Counter(dead_letters=len(letters), waiting=len(waiting))


def places(batch: pa.RecordBatch) -> list[tuple[str, int, int]]:
    """Topic, partition and offset of each row."""
    columns = (batch.column(name).to_pylist() for name in ("topic", "partition", "offset"))
    return list(zip(*columns, strict=True))


def _topic(batch: pa.RecordBatch) -> Column:
    return Column.of(batch.column("topic").cast(pa.binary()))


@dataclass(frozen=True)
class _TypeRouted:
    """What became of the events of one type, beside what goes out."""

    reached: Ints
    """Rows of the batch that were delivered here, or have gone to a broker of another deployment."""
    refused: Mapping[int, Refusal]
    awaited: Mapping[int, int]
    """Those of them whose schema was not to be had: its id."""
    figures: Mapping[str, int]


def _route_type(
    snapshot: Snapshot, envelopes: Envelopes, type_name: str, rows: Ints, outgoing: Outgoing
) -> _TypeRouted:
    junctions = snapshot.junctions[type_name]
    examined = examine(envelopes, snapshot, type_name, rows)
    swept = sweep(snapshot.tree, snapshot.hosts, junctions, examined.events, examined.entered)
    shared = _share(snapshot, junctions, type_name, examined.events.ranks, swept.matches)
    messages = {broker: one.messages for broker, one in shared.items()}
    single = {b: pairs.take(shared[b].single) if b in shared else pairs for b, pairs in swept.matches.items()}
    deliveries = unite(single, junctions)
    _write_links(outgoing, snapshot, rows, swept)
    shared_copies = write_messages(outgoing, envelopes, snapshot, rows, messages)
    written = write_deliveries(outgoing, envelopes, snapshot, rows[deliveries.rows], deliveries)
    away = [crossing for (_, target), crossing in swept.links.items() if target not in snapshot.hosts]
    named = np.array([message.row for some in messages.values() for message in some], np.int64)
    reached = rows[np.concatenate([*away, named, deliveries.rows])]
    figures = {"copies": shared_copies + written.copies}
    if written.refused:
        figures |= {"undeliverable": written.refused, "dead_letters": written.refused}
    return _TypeRouted(reached, examined.refused, examined.awaited, _figures(swept, shared) | figures)


def _share(
    snapshot: Snapshot,
    junctions: Mapping[str, Junction],
    type_name: str,
    ranks: Ints,
    matches: Mapping[str, Pairs],
) -> dict[str, Shared]:
    """By broker: what the distribution method makes of its matches, where it has one and there are any.

    A broker one of whose shared topics takes nothing now serves everybody by himself.
    """
    return {
        broker: sharing.share(junctions[broker], type_name, ranks, matches[broker])
        for broker, sharing in snapshot.sharing.items()
        if broker in matches and len(matches[broker].rows) and not _is_shut(snapshot, broker)
    }


def _is_shut(snapshot: Snapshot, broker: str) -> bool:
    topics = snapshot.config.topics
    groups = topics.group(broker, 0).removesuffix("0")
    return any(topic.startswith(groups) or topic == topics.broadcast(broker) for topic in snapshot.closed)


def _write_links(outgoing: Outgoing, snapshot: Snapshot, rows: Ints, swept: Swept) -> None:
    for (origin, target), crossing in swept.links.items():
        code = outgoing.code(snapshot.config.topics.link(origin, target), shared_lanes(snapshot.config))
        outgoing.add(rows[crossing], np.full(len(crossing), code, np.int64))


def _figures(swept: Swept, shared: Mapping[str, Shared]) -> dict[str, int]:
    figures = {f"link:{origin}>{target}": len(crossing) for (origin, target), crossing in swept.links.items()}
    figures |= {f"link_wasted:{origin}>{target}": wasted for (origin, target), wasted in swept.wasted.items()}
    for broker, one in shared.items():
        figures |= {f"distribution:{broker}:{name}": count for name, count in one.figures.items()}
    return figures


def _log(
    snapshot: Snapshot, table: pa.RecordBatch, topics: Column, mine: Bools, unmatched: Bools, waiting: Bools
) -> list[Output]:
    """One line for each partition: how far it was read, by which index, how many events nobody wanted or now wait."""
    config = snapshot.config
    partitions = np.asarray(table.column("partition").to_numpy(zero_copy_only=False), np.int64)
    offsets = np.asarray(table.column("offset").to_numpy(zero_copy_only=False), np.int64)
    place = topics.codes * (2**31) + partitions
    lines = []
    for code in np.unique(place).tolist():
        here = place == code
        topic, partition = topics.texts[code >> 31], code & (2**31 - 1)
        line = {
            "topic": topic,
            "partition": partition,
            "first": int(offsets[here].min()),
            "last": int(offsets[here].max()),
            "epoch": snapshot.epoch,
            "events": int((here & mine).sum()),
            "unmatched": int((here & unmatched).sum()),
            "deployment": config.deployment.name,
        }
        if waiting[here].any():
            line["waiting"] = int(waiting[here].sum())
        lines.append(Output(config.topics.routed, f"{topic}/{partition}".encode(), msgspec.json.encode(line)))
    return lines
