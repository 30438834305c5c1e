"""Generations: one life of the control state. That of the checkpoint is continued, or a new one begins.

registry ─> rebuild ─> topics, index in Redis ─> seeds of the states on the control topic ─> checkpoint
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass

from infra.kafka import Transport
from infra.kafka.retry import retried
from infra.kafka.topic_keeper import TopicKeeper
from infra.logs import logger
from state.config import Config
from state.control.context import Context
from state.control.rebuild import FORMATS, Rebuilt, rebuild
from state.control.streams import seeds
from state.keys import Key
from state.redis_index import RedisIndex, patiently
from streaming.checkpoint import Checkpoint, Generation
from streaming.offsets import Offsets
from streaming.registry import RegistryReader, generation_record
from streaming.sampling import sample
from streaming.writer import DriverWriter

PROGRESS_S = 5.0
Seeded = dict[str, dict[str, int]]
"""By topic and partition: how far the control query must read until the states of a new generation are in."""
_log = logger("generation")


@dataclass(frozen=True)
class Generations:
    """Everything that a generation is made from and written to."""

    config: Config
    checkpoint: Checkpoint
    registry: RegistryReader
    transport: Transport
    topics: TopicKeeper
    redis: RedisIndex
    writer: DriverWriter

    def begin(self, offsets: Offsets) -> tuple[Generation, Seeded]:
        """Continue the generation of the checkpoint, or begin a new one from the registry, which has been read."""
        known = self.checkpoint.generation()
        claimed = self.registry.generations.get(self.config.deployment.name, 0)
        fingerprint = f"{self.config.fingerprint()}:{FORMATS}:{','.join(sorted(self.config.deployment.hosts))}"
        if known is not None and known.fingerprint == fingerprint and known.number == claimed:
            _log.info("continuing generation %d", known.number)
            return known, {}
        # Redis may outlive the Kafka that it belonged to, and would refuse an index that looks older
        stored = patiently(self.redis.newest_generation, say=_log.warning)
        number = max(claimed, known.number if known else 0, stored) + 1
        _log.info("beginning generation %d from %d registered facts", number, len(self.registry.facts))
        claim = generation_record(self.config.deployment.name, number, fingerprint)
        self.writer.produce(self.config.topics.registry, *claim)
        self.writer.flush()
        starting = offsets.begin()
        samples = retried(lambda: sample(self.config, self.transport))
        context = Context(self.config, number, 0, samples=samples)
        facts = ((*key, fact) for key, fact in self.registry.facts.items())
        self._install(rebuild(facts, context, _Progress()), number)
        generation = Generation(number, fingerprint, json.dumps(starting), samples)
        self.checkpoint.begin(generation)
        control = self.config.topics.control
        return generation, {control: offsets.ends(control)}

    def _install(self, rebuilt: Rebuilt, number: int) -> None:
        """Put a new generation in place: topics, index, then the seeds of the states and the first words to others."""
        self.topics.ensure(rebuilt.topics)
        keys = {Key.parse(text): blob for text, blob in rebuilt.indexes.items()}
        forwarding = {Key.parse(text): told for text, told in rebuilt.forwarding.items()}
        reduced = {Key.parse(text): told for text, told in rebuilt.reduced.items()}

        def publish() -> None:
            self.redis.publish(keys, number, 0, forwarding, reduced)
            self.redis.retire(keys)

        patiently(publish, say=_log.warning)
        for text, blob in rebuilt.states.items():
            for seed in seeds(number, blob):
                self.writer.send(text, seed)
        for output in rebuilt.outputs:
            self.writer.produce(output.topic, output.key, output.value)
        self.writer.flush()


class _Progress:
    """Says every few seconds how far a long step is."""

    def __init__(self) -> None:
        self.said = time.monotonic()

    def __call__(self, what: str, done: int, total: int) -> None:
        if time.monotonic() - self.said > PROGRESS_S:
            self.said = time.monotonic()
            _log.info("rebuilding: %d of %d %s", done, total, what)
