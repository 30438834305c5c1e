"""Kafka and Redis as the console reads them: connections that stay open, and bounds on everything."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import replace

import redis

from infra.kafka import Transport, open_transport
from infra.kafka.transport import Partition, Reader
from infra.schema_registry import prompt_schemas
from producers.commands.inspecting import Part, PartReader
from producers.commands.live import drivers, lags, open_admin
from producers.commands.open_choices import with_choices
from producers.console.poller import Standing, Tail
from producers.verify.shared_deliveries import shared_topics
from state.compiled_part import CompiledPart
from state.config import Config
from state.errors import HilcastError
from state.keys import Key
from state.messages import Record
from state.redis_index import RedisIndex, Version, away
from state.reductions.reduction import Fate
from state.space.encodings.schemas import Schemas
from state.topics import published

DELIVERY_TOPICS_MAX = 32
"""Delivery topics that are followed; of more, the first by name."""
ANSWER_TOPICS_MAX, INPUT_TOPICS_MAX = 32, 64
"""The same of topics of receipts, and of topics by which publications enter."""
FIRST = 200
"""Records of a partition that are read at the beginning, the newest."""
AHEAD_MAX = 400
"""Records of a partition that are read in one poll; of more, the newest."""
FIRST_WAIT_S = 2.0
"""A new reader has to find its way first."""
REGISTRY_POLLS = 5
"""Handfuls of the registry that are read in one poll, some ten thousand records each."""
TOPICS_EVERY = 10
"""Polls between two looks for new topics."""
PARTS_KEPT = 128
"""Compiled parts that are kept for whoever asks next."""
LOOK_S = 1.0
"""How old the version vector may be that an answer goes by."""


class LiveSource:
    """Reads the services that a configuration names."""

    def __init__(self, config: Config, transport: Transport | None = None) -> None:
        self.config = config
        self.index = KeptIndex(config)
        self._readers: dict[str, PartReader] = {}
        self._transport: Transport = open_transport(config) if transport is None else transport
        self._admin = open_admin(config)
        self._tail: Reader | None = None
        self._positions: dict[Partition, int] = {}
        self._registry: Reader | None = None
        self._followed = (0, 0)
        self._sourced = config
        """With the sources that patterns match now."""
        self._looks = 0

    # ── Redis ───────────────────────────────────────────────────────────────────────────────────────────────────

    def configuration(self) -> Config:
        return with_choices(self.config)

    def standings(self, deployments: Sequence[str]) -> dict[str, Standing]:
        try:
            return {name: self._standing(self._reader(name).index) for name in deployments}
        except redis.RedisError as error:
            raise away(error) from error

    def _standing(self, index: RedisIndex) -> Standing:
        run, generation = index.current()
        versions = {} if generation is None else index.vector(generation)[1]
        return Standing(run, generation, versions, index.building(generation), index.figures())

    def _reader(self, deployment: str) -> PartReader:
        if deployment not in self._readers:
            named = replace(self.config, deployment=replace(self.config.deployment, name=deployment))
            self._readers[deployment] = PartReader(named, timeout_s=2.0)
        return self._readers[deployment]

    def parts(self, keys: Sequence[Key], standing: Standing) -> dict[Key, Part]:
        try:
            reader = self._reader(self.config.deployment.name)
            return reader.read(keys, (standing.run, standing.versions), local=False)
        except redis.RedisError as error:
            raise away(error) from error

    # ── Kafka ───────────────────────────────────────────────────────────────────────────────────────────────────

    def groups(self) -> tuple[dict[tuple[str, str], int], dict[str, bool]]:
        return lags(self.config, self._transport, self._admin), drivers(self.config, self._admin)

    def registry(self) -> list[Record]:
        topic, wait_s = self.config.topics.registry, 0.1
        if self._registry is None:
            wait_s = FIRST_WAIT_S
            starts = {(topic, p): self._transport.span(topic, p)[0] for p in self._transport.partitions(topic)}
            if not starts:
                return []
            self._registry = self._transport.read(starts)
        records: list[Record] = []
        for _ in range(REGISTRY_POLLS):
            found = self._registry.poll(wait_s)
            records += found
            wait_s = 0.1
            if not found:
                break
        return records

    def tail(self) -> Tail:
        if self._looks % TOPICS_EVERY == 0:
            self._look_for_topics()
        self._looks += 1
        ends = {partition: self._transport.span(*partition)[1] for partition in self._positions}
        passed_over = 0
        jumped = self._tail is None
        for partition, end in ends.items():
            behind = end - self._positions[partition]
            if behind > AHEAD_MAX:
                passed_over += behind - AHEAD_MAX
                self._positions[partition] = end - AHEAD_MAX
                jumped = True
        if jumped and self._positions:
            self._reopen()
        return Tail(self._read(ends), ends, passed_over, self._followed, self._sourced)

    def _read(self, ends: dict[Partition, int]) -> list[Record]:
        records: list[Record] = []
        for _ in range(20):
            if self._tail is None or all(self._positions[p] >= end for p, end in ends.items()):
                break
            found = self._tail.poll(0.1)
            records += found
            for record in found:
                self._positions[record.topic, record.partition] = record.offset + 1
            if not found:
                # transactions leave offsets without a record
                self._positions = {p: max(at, self._tail.position(p)) for p, at in self._positions.items()}
        return sorted(records, key=lambda record: (record.timestamp_ms, record.topic, record.offset))

    def _reopen(self) -> None:
        if self._tail is not None:
            self._tail.close()
        self._tail = self._transport.read(self._positions)

    def _look_for_topics(self) -> None:
        existing = self._transport.topics()
        config, topics = self.config.with_topics(existing), self.config.topics
        self._sourced = config
        own = sorted(name for name in existing if name.startswith(topics.deliver("")))
        destinations = [*own, *shared_topics(config, existing)]
        followed = destinations[:DELIVERY_TOPICS_MAX]
        self._followed = (len(followed), len(destinations))
        answers = [topics.receipts, *sorted(name for name in existing if name.startswith(topics.receipts_of("")))]
        inputs = published(config)[:INPUT_TOPICS_MAX]
        wanted = [topics.progress, topics.deadletter, *answers[:ANSWER_TOPICS_MAX], *inputs, *followed]
        fresh = {
            (topic, p): None
            for topic in wanted
            if topic in existing
            for p in self._transport.partitions(topic)
            if (topic, p) not in self._positions
        }
        for partition in fresh:
            low, end = self._transport.span(*partition)
            self._positions[partition] = max(low, end - FIRST)
        if fresh:
            self._reopen()

    def schemas(self) -> Schemas:
        return prompt_schemas(self.config, strict=False)

    def close(self) -> None:
        for reader in (self._tail, self._registry):
            if reader is not None:
                reader.close()
        self._transport.close()
        for part_reader in self._readers.values():
            part_reader.close()
        self.index.close()


class KeptIndex:
    """Compiled parts, kept as long as Redis has no newer version; for several threads."""

    def __init__(self, config: Config) -> None:
        self._index = RedisIndex(config, timeout_s=5.0)
        self._kept: OrderedDict[Key, tuple[str, CompiledPart]] = OrderedDict()
        self._lock = threading.Lock()
        self._looked = -LOOK_S
        self._standing: tuple[str, Mapping[str, Version]] = ("", {})

    def _versions(self) -> tuple[str, Mapping[str, Version]]:
        """The Redis that is up now and the versions in force, as they were a moment ago."""
        if time.monotonic() - self._looked > LOOK_S:
            run, generation = self._index.current()
            self._standing = (run, {}) if generation is None else self._index.vector(generation)
            self._looked = time.monotonic()
        return self._standing

    def part(self, key: Key) -> CompiledPart | None:
        try:
            run, versions = self._versions()
            version = versions.get(str(key))
            if version is not None and version.run != run:
                return None  # of a Redis before a restart: the router does not use it
            epoch = self._index.meta(key).get("epoch")
            with self._lock:
                kept = self._kept.get(key)
            if epoch is None or (kept is not None and kept[0] == epoch):
                return None if epoch is None or kept is None else kept[1]
            loaded = self._index.newest([key])[0]
        except redis.RedisError as error:
            raise away(error) from error
        if loaded is not None:
            with self._lock:
                self._kept[key] = loaded
                self._kept.move_to_end(key)
                while len(self._kept) > PARTS_KEPT:
                    self._kept.popitem(last=False)
        return None if loaded is None else loaded[1]

    def fates(self, key: Key, neighbour: str, entries: Sequence[str]) -> list[Fate | None]:
        try:
            return self._index.forwarding(key, neighbour, entries)
        except redis.RedisError as error:
            raise away(error) from error

    def close(self) -> None:
        self._index.close()


def open_source(config: Config) -> LiveSource:
    """The services, which must answer now: who starts a console wants to know at once."""
    source = LiveSource(config)
    try:
        source.standings([config.deployment.name])
        source.groups()
    except HilcastError:
        source.close()
        raise
    return source
