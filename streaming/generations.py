"""Generations: one life of the control state. That of the checkpoint is continued, or a new one is made.

registry ─> homes, parts (`building.py`) ─> index in Redis, aside; seeds of the states on the control topic; topics

Nothing goes by a new generation before it is put in force (`succession.py`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import msgspec

from infra.kafka import Transport
from infra.kafka.retry import retried
from infra.kafka.topic_keeper import TopicKeeper
from infra.logs import logger
from state.config import Config
from state.control.agreed import Claim, claim_record
from state.control.context import Context
from state.control.facts import Fact
from state.control.rebuild import FORMATS, FactOf, by_home_key, greetings
from state.errors import ConfigError
from state.fitting import misfits
from state.keys import index_keys
from state.messages import own_receipts
from state.redis_index import RedisIndex
from state.redis_retry import redis_retried
from state.topics import inboxes
from streaming import dying
from streaming.boot import Boot
from streaming.building import Estimate, Spark, build
from streaming.checkpoint import Checkpoint, Generation
from streaming.key_step import STATE_FORMAT
from streaming.offsets import Offsets
from streaming.registry import FactKey, RegistryReader, sinks
from streaming.sampling import sample
from streaming.source_topics import followed
from streaming.writer import DriverWriter

Seeded = dict[str, dict[str, int]]
"""By topic and partition: how far the control query must read until the states of a new generation are in."""
_log = logger("generation")


def fingerprint(config: Config) -> str:
    """What a generation is made for: configuration, formats, and the brokers that are hosted."""
    return f"{config.fingerprint()}:{FORMATS}.{STATE_FORMAT}:{','.join(sorted(config.deployment.hosts))}"


@dataclass(frozen=True)
class Built:
    """A generation that stands aside, complete."""

    generation: Generation
    facts: dict[FactKey, Fact]
    """What it was made from."""
    seeded: Seeded


@dataclass
class Generations:
    """Everything that a generation is made from and written to."""

    checkpoint: Checkpoint
    registry: RegistryReader
    transport: Transport
    topics: TopicKeeper
    redis: RedisIndex
    writer: DriverWriter
    file: str
    """A hash of the file with which this deployment was started."""
    ids: Mapping[str, str]
    """Kafka's ids of the topics that must not be lost."""
    renewed: frozenset[str]
    """Topics that were deleted and made again since the last life, and have not been begun anew."""
    committed: int = 0
    """The generation whose index was last said to be in force: whoever routes goes by no earlier one."""
    spark: Callable[[], Spark] | None = None
    """What large generations are built by."""

    def boot(self, config: Config, number: int) -> Boot:
        """What the workers of a generation are told."""
        return Boot(config, number, topic_ids=self.ids)

    def routing(self, config: Config, number: int) -> Boot:
        """What the workers of its route query are told: with the topics that patterns match now.

        Later ones are found by the watch.
        """
        found, ids = retried(lambda: followed(config, self.topics, sinks(self.registry.facts.values())))
        return replace(self.boot(found, number), followed_ids=ids)

    def known(self, config: Config) -> Generation | None:
        """The generation of the checkpoint, if it can be continued."""
        known = self.checkpoint.generation()
        claim = self.registry.agreements.claims.get(config.deployment.name)
        if known is None or claim is None or known.number != claim.generation:
            return None
        # clients' own inboxes are told apart by the query's own source
        renewed = self.renewed & {config.topics.control, *inboxes(config)}
        if self.checkpoint.power_lost():
            _log.warning("the machine went down under the last life: its checkpoint may lack what was done")
            return None
        return None if renewed or known.fingerprint != fingerprint(config) else known

    def next(self, config: Config) -> int:
        """The number of the generation after all that were."""
        claim = self.registry.agreements.claims.get(config.deployment.name)
        known = self.checkpoint.generation()
        # Redis may outlive the Kafka that it belonged to, and would refuse an index that looks older
        stored = redis_retried(self.redis.newest_generation, say=_log.warning)
        # what was begun and not ended may still be written: its seeds must not be taken for those of another attempt
        begun = self.checkpoint.attempted()
        return max(claim.generation if claim else 0, known.number if known else 0, stored, begun, self.committed) + 1

    def claim(self, config: Config, number: int) -> None:
        """From here on no other generation of this deployment is continued: not by us, nor by anybody else."""
        place = "" if config.signing is None else config.signing.place
        claim = Claim(number, fingerprint(config), config.version, self.file, place)
        self.writer.produce(config.topics.registry, *claim_record(config.deployment.name, claim))
        self.writer.flush()
        dying.at("generation-claimed")

    def is_whole(self, config: Config) -> bool:
        """Whether routing can go on by the generation that Redis says is in force."""
        _, current = self.redis.current()
        shared = None if current is None else self.redis.configuration(current)
        if current is None or shared is None:
            return False
        try:
            then = config.adopting(shared)
        except ConfigError:  # of a version that wrote configurations in another way
            return False
        return not self.redis.missing(index_keys(then, then.deployment.hosts), current)

    def build(self, config: Config, number: int) -> Built:
        """Make a generation from the registry, which has been read, and put it aside."""
        self.checkpoint.attempt(number)
        facts = dict(self.registry.facts)
        _log.info("building generation %d from %d registered facts", number, len(facts))
        offsets = Offsets(config, self.transport)
        offsets.renewed = self.renewed
        starting = offsets.begin()
        samples = retried(lambda: sample(config, self.transport))
        # a fact is changed by who takes it up; the registry keeps its own
        copies = ((*key, msgspec.structs.replace(fact)) for key, fact in facts.items())
        self._install(copies, replace(self.boot(config, number), samples=samples))
        generation = Generation(number, fingerprint(config), json.dumps(starting), samples)
        control = config.topics.control
        return Built(generation, facts, {control: offsets.ends(control)})

    def _install(self, facts: Iterable[FactOf], boot: Boot) -> None:
        """Put a new generation in place, aside: index, seeds of the states, topics; then answer what lies dormant."""
        by_home, outputs = by_home_key(facts, Context(boot.config, boot.generation, 0))
        rest = build(by_home, boot, None if self.spark is None else self.spark(), Estimate())
        for line in rest.faults:
            _log.error("%s", line)
        outputs += rest.outputs
        for reason in self.topics.ensure(rest.topics | own_receipts(outputs, boot.config.topics)).values():
            _log.warning("%s", reason)  # it was fit once; what is for it becomes dead letters (`closed.py`)
        assert not misfits(outputs, boot.config.topics), "what would not fit is cut or split where it is made"
        for output in outputs:
            self.writer.produce(output.topic, output.key, output.value)
        self.writer.flush()
        dying.at("generation-seeded")

    def greet(self, config: Config, number: int) -> None:
        """Begin the streams to and from other deployments anew, once the generation before says nothing any more."""
        for key, message in greetings(Context(config, number, 0)):
            self.writer.send(str(key), message)
        self.writer.flush()

    def put_in_force(self, config: Config, number: int) -> None:
        """Have routing go by a generation whose index is complete, and drop those before it."""
        self.renewed = frozenset()
        redis_retried(lambda: self.redis.point(number, config.shared), say=_log.warning)
        dying.at("generation-in-force")
        redis_retried(lambda: self.redis.retire(number, index_keys(config, config.deployment.hosts)), say=_log.warning)


def changed(before: dict[FactKey, Fact], now: dict[FactKey, Fact]) -> Iterable[tuple[FactKey, Fact | None]]:
    """What the registry says that it did not say before; None: nothing any more.

    A fact that was read again is another object, so that the same one is the same fact.
    """
    for key, fact in now.items():
        if before.get(key) is not fact:
            yield key, fact
    for key in before:
        if key not in now:
            yield key, None
