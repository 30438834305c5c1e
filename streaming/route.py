"""The route query: publications through the cached index to links and clients, stateless, by Arrow batches.

    publications, [[sources]], links from other deployments
        ──> envelope.read ──> decode to ranks ──> state.routing.sweep.route ──> assemble.build ──> one Kafka sink

Values leave as they came, byte for byte. One line a slice goes to the routing log, one dead letter for every event that
cannot be used. `mapInArrow` rows reach Kafka at the end of the task, together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import partial

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from state.arrays import Bools, Ints
from state.config import Config
from state.digests import delivery_ids, event_digests, hexadecimal
from state.distribution.assignment import BROADCAST
from state.limits import HEADROOM_BYTES, INPUT_BYTES_MAX
from state.messages import Output, dead_letter_headers, joined_ids, write_members
from state.routing.assemble import Outgoing, build, fixed, plain
from state.routing.envelope import Column, Envelopes, read
from state.routing.junction import Junction
from state.routing.sweep import Routed, route
from state.space.decode import RankBatch, decode_arrow
from streaming.boot import Boot
from streaming.index_cache import IndexCache, Snapshot, cache
from streaming.settings import sink_options, source_options

OUTPUT = "topic string, key binary, value binary, headers array<struct<key: string, value: binary>>"
OVERHEAD_BYTES = 2048
"""What Kafka adds to a record and a batch, and our small headers, generously."""
_NOBODY: Ints = np.empty(0, np.int64)


def input_topics(config: Config) -> list[str]:
    """What the route query reads: publications, topics of existing producers, links from other deployments."""
    hosts = config.deployment.hosts
    links = [config.topics.link(a, b) for b in hosts for a in config.overlay.neighbours(b) if a not in hosts]
    return sorted({config.topics.publications, *(source.topic for source in config.sources), *links})


def records(spark: SparkSession, config: Config, starting_offsets: str) -> DataFrame:
    """The input of the route query."""
    reader = (
        spark.readStream.format("kafka")
        .options(**source_options(config))
        .option("subscribe", ",".join(input_topics(config)))
        .option("startingOffsets", starting_offsets)
    )
    if config.settings.max_offsets_per_trigger is not None:
        reader = reader.option("maxOffsetsPerTrigger", config.settings.max_offsets_per_trigger)
    return reader.load().select("topic", "partition", "offset", "key", "value", "headers")


def start(
    spark: SparkSession, boot: Boot, starting_offsets: str, checkpoint: str, name: str = "route"
) -> StreamingQuery:
    """Start the route query."""
    return (
        records(spark, boot.config, starting_offsets)
        .mapInArrow(partial(route_batches, boot), OUTPUT)
        .writeStream.format("kafka")
        .options(**sink_options(boot.config))
        .option("checkpointLocation", checkpoint)
        # the log of offsets is written beside the batch, not before it; a crash repeats more, loses nothing
        .option("asyncProgressTrackingEnabled", "true")
        .queryName(name)
        .start()
    )


def route_batches(boot: Boot, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Route the Arrow batches of one task with the index that is in force at its start."""
    worker = cache(boot)
    snapshot: Snapshot | None = None
    for batch in batches:
        if batch.num_rows == 0:
            continue
        if snapshot is None:
            snapshot = worker.snapshot()
        yield from Slice(worker, snapshot, batch).route()


class Slice:
    """One Arrow batch on its way through the router."""

    def __init__(self, worker: IndexCache, snapshot: Snapshot, batch: pa.RecordBatch) -> None:
        self.config = worker.config
        self.worker = worker
        self.snapshot = snapshot
        self.envelopes: Envelopes = read(batch, worker.config)
        self.outgoing = Outgoing()
        self.letters: list[Output] = []
        n = len(self.envelopes)
        self.mine = np.zeros(n, bool)
        self.reached = np.zeros(n, bool)
        """Delivered here, or gone to a broker of another deployment."""
        self.figures: dict[str, int] = defaultdict(int)

    def route(self) -> Iterator[pa.RecordBatch]:
        """Everything this slice leads to."""
        for type_name, rows in self._by_type().items():
            self._route_type(type_name, rows)
        for row in sorted(self.envelopes.bad):
            self._letter(row, *self.envelopes.bad[row])
        logged = self._log()
        yield from build(self.outgoing, self.envelopes)
        rest = plain(self.letters + logged)
        if rest is not None:
            yield rest
        self._count()

    # ── whose event is it ───────────────────────────────────────────────────────────────────────────────────────

    def _by_type(self) -> dict[str, Ints]:
        """Rows this deployment routes, by type; what names no valid broker is answered by the first broker's host."""
        envelopes, config = self.envelopes, self.config
        first = config.overlay.brokers[0] in self.worker.hosts
        hosted = np.array([text in self.worker.hosts for text in envelopes.broker.texts] + [False])
        known = np.array([text in config.overlay.brokers for text in envelopes.broker.texts] + [False])
        here, valid = hosted[envelopes.broker.codes], known[envelopes.broker.codes]
        self.mine = here | (~valid if first else np.zeros(len(here), bool))
        if envelopes.bad:
            envelopes.bad = {row: why for row, why in envelopes.bad.items() if self.mine[row]}
        for row in np.flatnonzero(self.mine & ~valid).tolist():
            name = envelopes.broker[row]
            envelopes.bad.setdefault(row, ("unknown-broker", f"{name!r} is not a broker of this overlay"))
        usable = self.mine.copy()
        usable[list(envelopes.bad)] = False
        by_type = {}
        for code, name in enumerate([*envelopes.type.texts, ""]):
            rows = np.flatnonzero(usable & (envelopes.type.codes == (code if name else -1)))
            if name in config.types:
                by_type[name] = rows
                continue
            for row in rows.tolist():
                envelopes.bad[row] = ("unknown-type", f"{name!r} is not a configured event type")
        return {name: rows for name, rows in by_type.items() if len(rows)}

    # ── one type ────────────────────────────────────────────────────────────────────────────────────────────────

    def _route_type(self, type_name: str, rows: Ints) -> None:
        event_type = self.config.types[type_name]
        values = self.envelopes.values
        batch = decode_arrow(event_type, values if len(rows) == len(self.envelopes) else values.take(pa.array(rows)))
        for i in np.flatnonzero(~batch.valid):
            self.envelopes.bad[int(rows[i])] = ("bad-event", "the value is not a JSON object")
        usable = batch.valid.copy()
        junctions = self.snapshot.junctions[type_name]
        if event_type.advertisements:
            usable &= self._conforming(junctions, rows, batch)
        usable &= self._fitting(rows)
        entered = self._entered(rows, usable)
        routed = route(self.worker.tree, self.worker.hosts, junctions, batch, entered)
        self._links(routed, rows)
        self._share(routed, junctions, type_name, rows, batch)
        self._deliver(routed, junctions, rows)

    def _entered(self, rows: Ints, usable: Bools) -> dict[tuple[str, str | None], Ints]:
        """Rows of this type by where they stand and where they came from."""
        broker, origin = self.envelopes.broker, self.envelopes.origin
        place = broker.codes[rows] * (len(origin.texts) + 1) + origin.codes[rows] + 1
        place[~usable] = -1
        entered = {}
        for code in np.unique(place[usable]).tolist():
            members = np.flatnonzero(place == code)
            at = int(rows[members[0]])
            entered[broker[at] or "", origin[at]] = members
        return entered

    def _conforming(self, junctions: Mapping[str, Junction], rows: Ints, batch: RankBatch) -> Bools:
        """Events that an advertisement of their publisher at their entry broker holds; the others are refused."""
        ok = np.ones(len(rows), bool)
        for (broker, origin), members in self._entered(rows, batch.valid).items():
            if origin is not None:
                continue  # it was checked where it entered
            sources, _ = self.envelopes.identity(rows[members])
            publishers = [source.decode("utf-8", "replace") for source in sources.to_pylist()]
            ok[members] = junctions[broker].conforming(batch, members, publishers)
            for i in np.flatnonzero(~ok[members]).tolist():
                reason = f"no advertisement of {publishers[i]!r} at {broker} holds for this event"
                self.envelopes.bad[int(rows[members[i]])] = ("not-advertised", reason)
        return ok

    def _fitting(self, rows: Ints) -> Bools:
        """Events that still fit Kafka's limit with our headers added."""
        value = self.envelopes.table.column("value")
        sizes = np.diff(np.frombuffer(value.buffers()[1], np.int32, len(value) + 1, value.offset * 4))[rows]
        suspects = np.flatnonzero(sizes > (INPUT_BYTES_MAX + HEADROOM_BYTES) // 2)
        ok = np.ones(len(rows), bool)
        for i in suspects.tolist():
            row = int(rows[i])
            size = _record_bytes(self.envelopes.table, row)
            if size + OVERHEAD_BYTES + 17 * 1024 > INPUT_BYTES_MAX + HEADROOM_BYTES:
                ok[i] = False
                self.envelopes.bad[row] = ("too-large", f"{size} bytes do not fit once routed")
        return ok

    # ── what goes out ───────────────────────────────────────────────────────────────────────────────────────────

    def _links(self, routed: Routed, rows: Ints) -> None:
        for (origin, target), crossing in routed.links.items():
            code = self.outgoing.code(self.config.topics.link(origin, target))
            self.outgoing.add(rows[crossing], np.full(len(crossing), code, np.int64))
            self.figures[f"link:{origin}>{target}"] += len(crossing)
            if target not in self.worker.hosts:
                self.reached[rows[crossing]] = True
        for (origin, target), wasted in routed.wasted.items():
            self.figures[f"link_wasted:{origin}>{target}"] += wasted

    def _share(
        self,
        routed: Routed,
        junctions: Mapping[str, Junction],
        type_name: str,
        rows: Ints,
        batch: RankBatch,
    ) -> None:
        """Serve clients together where the distribution method says so; what is left goes to clients' own topics."""
        written: list[tuple[int, int, bytes]] = []
        for broker, sharing in sorted(self.snapshot.sharing.items()):
            found, owners = routed.matches.get(broker, (_NOBODY, _NOBODY))
            if not len(found):
                continue
            shared = sharing.share(junctions[broker], type_name, batch.ranks, found, owners)
            for name, count in shared.figures.items():
                self.figures[f"distribution:{broker}:{name}"] += count
            routed.matches[broker] = found[shared.single], owners[shared.single]
            for message in shared.messages:
                code = self.outgoing.code(self._shared_topic(broker, message.number))
                row = int(rows[message.row])
                written += [(row, code, header) for header, _ in write_members(message.matched)]
        if written:
            self._write_shared(written)

    def _shared_topic(self, broker: str, number: int) -> str:
        topics = self.config.topics
        return topics.broadcast(broker) if number == BROADCAST else topics.group(broker, number)

    def _write_shared(self, written: list[tuple[int, int, bytes]]) -> None:
        out = self.outgoing
        rows = np.array([row for row, _, _ in written], np.int64)
        distinct, inverse = _distinct(rows, len(self.envelopes))
        digests = fixed(hexadecimal(event_digests(*self.envelopes.identity(distinct))))
        same = np.zeros(len(written), np.int64)
        extras = {
            "hilcast_members": out.pool([header for _, _, header in written]) + np.arange(len(written)),
            "hilcast_event": out.pool(digests) + inverse,
            "hilcast_epoch": out.pool([self.snapshot.epoch.encode()]) + same,
        }
        out.add(rows, np.array([code for _, code, _ in written], np.int64), extras)
        self.reached[rows] = True
        self.figures["copies"] += len(written)

    def _deliver(self, routed: Routed, junctions: Mapping[str, Junction], rows: Ints) -> None:
        """One delivery per event, client and destination, whichever brokers matched."""
        events, targets, ids = [], [], []
        table: dict[tuple[str, str], int] = {}
        for broker, (found, owners) in sorted(routed.matches.items()):
            if not len(found):
                continue
            junction = junctions[broker]
            codes = junction.target_codes(table)
            events.append(found)
            targets.append(codes[owners])
            ids.append(junction.id_column.take(pa.array(owners)))
        if not events:
            return
        event, target = np.concatenate(events), np.concatenate(targets)
        pair = event * len(table) + target
        order = np.argsort(pair, kind="stable")
        pair = pair[order]
        first = np.flatnonzero(np.diff(pair, prepend=-1))
        matched = _matched(pa.concat_arrays(ids), order, first)
        unique = pair[first]
        self._write(rows[unique // len(table)], unique % len(table), matched, list(table))

    def _write(self, rows: Ints, targets: Ints, matched: pa.Array, table: list[tuple[str, str]]) -> None:
        out = self.outgoing
        codes = np.array([out.code(destination) for _, destination in table], np.int64)
        clients = pa.array([client.encode() for client, _ in table], pa.binary())
        distinct, inverse = _distinct(rows, len(self.envelopes))
        digests = event_digests(*self.envelopes.identity(distinct))
        each, same = np.arange(len(rows)), np.zeros(len(rows), np.int64)
        extras = {
            "hilcast_delivery": out.pool(fixed(delivery_ids(digests, inverse, clients, targets))) + each,
            "hilcast_subscriptions": out.pool(matched) + each,
            "hilcast_client": out.pool(clients) + targets,
            "hilcast_epoch": out.pool([self.snapshot.epoch.encode()]) + same,
        }
        if self.snapshot.stale:
            extras["hilcast_stale"] = out.pool([b"true"]) + same
        out.add(rows, codes[targets], extras)
        self.reached[rows] = True
        self.figures["copies"] += len(rows)

    def _letter(self, row: int, code: str, reason: str) -> None:
        table = self.envelopes.table
        value = table.column("value")[row].as_py()
        headers = table.column("headers")[row].as_py() or []
        if code == "too-large":
            value = (value or b"")[: INPUT_BYTES_MAX // 2]
        topic, partition, offset = (table.column(c)[row].as_py() for c in ("topic", "partition", "offset"))
        extra = dead_letter_headers(code, reason, topic, partition, offset)
        kept = tuple((h["key"], h["value"]) for h in headers)
        self.letters.append(
            Output(self.config.topics.deadletter, table.column("key")[row].as_py(), value, (*kept, *extra))
        )
        self.reached[row] = True

    # ── the routing log ─────────────────────────────────────────────────────────────────────────────────────────

    def _log(self) -> list[Output]:
        table = self.envelopes.table
        topics = Column.of(table.column("topic").cast(pa.binary()))
        partitions = np.asarray(table.column("partition").to_numpy(zero_copy_only=False), np.int64)
        offsets = np.asarray(table.column("offset").to_numpy(zero_copy_only=False), np.int64)
        place = topics.codes * (2**31) + partitions
        lines = []
        for code in np.unique(place).tolist():
            here = place == code
            topic, partition = topics.texts[code >> 31], code & (2**31 - 1)
            mine = here & self.mine
            line = {
                "topic": topic,
                "partition": partition,
                "first": int(offsets[here].min()),
                "last": int(offsets[here].max()),
                "epoch": self.snapshot.epoch,
                "events": int(mine.sum()),
                "unmatched": int((mine & ~self.reached).sum()),
                "deployment": self.config.deployment.name,
            }
            key = f"{topic}/{partition}".encode()
            lines.append(Output(self.config.topics.routed, key, msgspec.json.encode(line)))
        return lines

    def _count(self) -> None:
        self.figures["routed"] += int(self.mine.sum())
        self.figures["unmatched"] += int((self.mine & ~self.reached).sum())
        self.figures["dead_letters"] += len(self.letters)
        self.worker.count(self.figures)


def _distinct(rows: Ints, limit: int) -> tuple[Ints, Ints]:
    """The distinct numbers, which are below `limit`, and the place of each among them."""
    there = np.zeros(limit, bool)
    there[rows] = True
    return np.flatnonzero(there), (np.cumsum(there) - 1)[rows]


def _matched(ids: pa.Array, order: Ints, first: Ints) -> pa.Array:
    """The ids of each delivery in one text: `ids[order]` in groups that begin at `first`."""
    ends = np.append(first[1:], len(order))
    several = np.flatnonzero(ends - first > 1)
    if not len(several):
        return ids.take(pa.array(order[first]))
    where = order[first]
    where[several] = len(ids) + np.arange(len(several))
    members = ids.take(pa.array(order[_spread(first[several], (ends - first)[several])])).to_pylist()
    texts, at = [], 0
    for size in (ends - first)[several].tolist():
        texts.append(joined_ids([id.decode() for id in members[at : at + size]]).encode())
        at += size
    return pa.concat_arrays([ids, pa.array(texts, pa.binary())]).take(pa.array(where))


def _spread(starts: Ints, counts: Ints) -> Ints:
    """For each i the numbers starts[i], starts[i]+1, ... counts[i] of them, one after the other.

    >>> _spread(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    ends = np.cumsum(counts)
    return np.arange(int(counts.sum())) + np.repeat(starts - ends + counts, counts)


def _record_bytes(table: pa.RecordBatch, row: int) -> int:
    headers = table.column("headers")[row].as_py() or []
    size = sum(len(h["key"].encode()) + len(h["value"] or b"") + 10 for h in headers)
    return size + len(table.column("key")[row].as_py() or b"") + len(table.column("value")[row].as_py() or b"")
