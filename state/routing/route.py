"""The door of routing: one Arrow batch of publications in, everything it leads to out. Pure, for whoever drives it.

    batch ── envelope.read ──> admission.claim ──┬─ by type ─> admission.examine ─> sweep ─> sharing ─> delivery ──┐
                                                 └─ refused ─────────────────────────┐                             │
    batches <── assemble.build ──────────────────────────────── dead letters, log <──┴─────────────────────────────┘

Values leave as they came, byte for byte. One line a partition goes to the routing log, one dead letter for every event
that cannot be used. The route query (`streaming/route.py`), the simulated world and the tests all come in here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import pyarrow as pa

from state.arrays import Bools, Ints
from state.messages import Output
from state.routing.admission import claim, dead_letters, examine
from state.routing.assemble import Outgoing, build, plain
from state.routing.delivery import unite, write_deliveries, write_messages
from state.routing.envelope import Envelopes, Refusal, read
from state.routing.junction import Junction, Pairs
from state.routing.sharing import Shared
from state.routing.snapshot import Snapshot
from state.routing.sweep import Swept, sweep


@dataclass(frozen=True)
class Routing:
    """What one batch leads to."""

    figures: Mapping[str, int]
    """To be added to the live figures: `routed`, `unmatched`, `dead_letters`, `copies`, `link:A>B`, `link_wasted:A>B`,
    `distribution:BROKER:...`."""
    _outgoing: Outgoing
    _envelopes: Envelopes
    _rest: Sequence[Output]

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows to write, (topic, key, value, headers), some 64 MB at a time: built as they are asked for."""
        yield from build(self._outgoing, self._envelopes)
        rest = plain(self._rest)
        if rest is not None:
            yield rest


def route(snapshot: Snapshot, batch: pa.RecordBatch) -> Routing:
    """Route one Arrow batch, (topic, partition, offset, key, value, headers), with the index of one moment.

    Guarantee: every event that this deployment answers for is delivered to all it concerns and sent over every link
    that wants it, or gets one dead letter, or counts as unmatched. The same batch and snapshot give the same bytes.
    Cost: vectorised over the events; Python loops only over types, brokers, links and what is refused.
    """
    envelopes = read(batch, snapshot.config)
    claimed = claim(envelopes, snapshot)
    outgoing = Outgoing()
    routed = [_route_type(snapshot, envelopes, name, rows, outgoing) for name, rows in claimed.by_type.items()]
    refused = dict(claimed.refused)
    for one in routed:
        refused |= one.refused
    letters = dead_letters(envelopes, refused, snapshot.config.topics)
    reached = np.zeros(len(envelopes), bool)
    for rows in [np.array(list(refused), np.int64), *(one.reached for one in routed)]:
        reached[rows] = True
    unmatched = claimed.mine & ~reached
    figures = Counter(routed=int(claimed.mine.sum()), unmatched=int(unmatched.sum()), dead_letters=len(letters))
    for one in routed:
        figures.update(one.figures)
    return Routing(figures, outgoing, envelopes, letters + _log(snapshot, envelopes, claimed.mine, unmatched))


@dataclass(frozen=True)
class _TypeRouted:
    """What became of the events of one type, beside what goes out."""

    reached: Ints
    """Rows of the batch that were delivered here, or have gone to a broker of another deployment."""
    refused: Mapping[int, Refusal]
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
    copies = write_messages(outgoing, envelopes, snapshot, rows, messages)
    copies += write_deliveries(outgoing, envelopes, snapshot, rows[deliveries.rows], deliveries)
    away = [crossing for (_, target), crossing in swept.links.items() if target not in snapshot.hosts]
    named = np.array([message.row for some in messages.values() for message in some], np.int64)
    reached = rows[np.concatenate([*away, named, deliveries.rows])]
    return _TypeRouted(reached, examined.refused, _figures(swept, shared) | {"copies": copies})


def _share(
    snapshot: Snapshot,
    junctions: Mapping[str, Junction],
    type_name: str,
    ranks: Ints,
    matches: Mapping[str, Pairs],
) -> dict[str, Shared]:
    """By broker: what the distribution method makes of its matches, where it has one and there are any."""
    return {
        broker: sharing.share(junctions[broker], type_name, ranks, matches[broker])
        for broker, sharing in snapshot.sharing.items()
        if broker in matches and len(matches[broker].rows)
    }


def _write_links(outgoing: Outgoing, snapshot: Snapshot, rows: Ints, swept: Swept) -> None:
    for (origin, target), crossing in swept.links.items():
        code = outgoing.code(snapshot.config.topics.link(origin, target))
        outgoing.add(rows[crossing], np.full(len(crossing), code, np.int64))


def _figures(swept: Swept, shared: Mapping[str, Shared]) -> dict[str, int]:
    figures = {f"link:{origin}>{target}": len(crossing) for (origin, target), crossing in swept.links.items()}
    figures |= {f"link_wasted:{origin}>{target}": wasted for (origin, target), wasted in swept.wasted.items()}
    for broker, one in shared.items():
        figures |= {f"distribution:{broker}:{name}": count for name, count in one.figures.items()}
    return figures


def _log(snapshot: Snapshot, envelopes: Envelopes, mine: Bools, unmatched: Bools) -> list[Output]:
    """One line for each partition: how far it was read, by which index, and how many events nobody wanted."""
    table, config = envelopes.table, snapshot.config
    partitions = np.asarray(table.column("partition").to_numpy(zero_copy_only=False), np.int64)
    offsets = np.asarray(table.column("offset").to_numpy(zero_copy_only=False), np.int64)
    place = envelopes.topic.codes * (2**31) + partitions
    lines = []
    for code in np.unique(place).tolist():
        here = place == code
        topic, partition = envelopes.topic.texts[code >> 31], code & (2**31 - 1)
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
        lines.append(Output(config.topics.routed, f"{topic}/{partition}".encode(), msgspec.json.encode(line)))
    return lines
