"""Succession: a generation is built beside the one in force, and takes its place without a stop of routing.

    build      from what the registry says now, in a thread; routing and control go on as they are
    load       a worker of the route query has its index before anybody goes by it; where that fails, routing waits
               for it once it is in force
    claim      from here on the old one is never continued: a crash ends in a new generation from the registry
    control    the old control query stops; what the registry said since is amended (`Amend`), other deployments are
               greeted; the new one starts
    settle     until what was amended is in force in the new index, as `hilcast wait` judges it; nothing that control
               does in the meantime is committed, so that nobody believes it to be in force
    in force   the checkpoint is the new one's, and routing goes by it from its next task on

Routing never stops: each task goes by one generation, the old one or the new one, and both are complete at the moment
they change places.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

from confluent_kafka import KafkaException

from infra.kafka.transport import away
from infra.logs import logger
from state.config import Config
from state.control.facts import encode_fact
from state.control.protocol import Amend, Republish
from state.errors import HilcastError
from state.keys import home_key, index_keys
from state.redis_retry import redis_retried
from streaming import dying
from streaming.boot import Boot
from streaming.checkpoint import Generation
from streaming.generations import Built, Generations, Seeded, changed
from streaming.offsets import Offsets
from streaming.progress import ProgressListener
from streaming.queries import Queries

AGAIN_TICKS = 20
"""Steps after which something is tried again."""
_log = logger("generation")


class Succession:
    """One generation on its way; `step` now and then until it is in force."""

    def __init__(
        self, generations: Generations, queries: Queries, listener: ProgressListener, config: Config, *, alone: bool
    ) -> None:
        """`alone`: no control query runs, so that nothing can have changed since the registry was read."""
        self.config = config
        self.number = generations.next(config)
        self.failure: HilcastError | None = None
        self.claimed = False
        """Whether the one before is never continued: a failure from here on ends the job, which then begins anew."""
        self._generations, self._queries, self._listener = generations, queries, listener
        self._offsets = Offsets(config, generations.transport)
        self._built: Built | None = None
        self._thread = threading.Thread(target=self._build, name="build", daemon=True)
        self._steps = self._alone() if alone else self._beside()
        if alone:
            generations.claim(config, self.number)
        self._thread.start()

    @property
    def generation(self) -> Generation:
        assert self._built is not None, "asked once it is built"
        return self._built.generation

    @property
    def seeded(self) -> Seeded:
        """How far control must read until the states of this generation are in."""
        assert self._built is not None, "asked once it is built"
        return self._built.seeded

    def step(self) -> bool:
        """Do what can be done now; True once the generation is in force."""
        return next(self._steps, True)

    def _build(self) -> None:
        try:
            self._generations.topics.ensure_needed(config=self.config)
            self._built = self._generations.build(self.config, self.number)
        except HilcastError as error:
            self.failure = error
        except KafkaException as error:
            self.failure = away(self.config.deployment.kafka, str(error))

    def _until_built(self) -> Iterator[bool]:
        while self._thread.is_alive():
            yield False
        if self.failure is not None:
            raise self.failure
        assert self._built is not None, "the thread that builds has ended in another way than it should"

    def _until_loaded(self) -> Iterator[bool]:
        """Who routes need not load it when it is in force."""
        if not self._queries.runs("route"):
            return
        failed: list[str] = []
        thread = threading.Thread(target=lambda: failed.append(self._queries.prepare(self._boot())), daemon=True)
        thread.start()
        while thread.is_alive():
            yield False
        why = failed[0] if failed else "it cannot be asked for"
        if why:
            _log.warning("generation %d is not loaded before it is in force: %s", self.number, why)

    def _alone(self) -> Iterator[bool]:
        yield from self._until_built()
        yield from self._until_loaded()
        yield from self._insistently(self._greet)
        yield from self._insistently(self._widen)
        self._put_in_force()
        self._take_over()
        self._adopt()
        yield True

    def _beside(self) -> Iterator[bool]:
        yield from self._until_built()
        yield from self._until_loaded()
        self.claimed = True
        yield from self._insistently(lambda: self._generations.claim(self.config, self.number))
        self._listener.hold("control")
        self._queries.stop("control")
        yield from self._insistently(self._amend)
        yield from self._insistently(self._greet)
        self._take_over()
        yield from self._until_settled()
        yield from self._until_whole()
        yield from self._insistently(self._widen)
        self._put_in_force()
        self._listener.release("control", self.config, self.number)
        yield from self._insistently(self._adopt)
        yield True

    def _insistently(self, call: Callable[[], None]) -> Iterator[bool]:
        """Do something until Kafka lets it be done: from the claim on there is no way back."""
        while True:
            try:
                call()
                return
            except KafkaException as error:
                trouble = str(error)
            except HilcastError as error:
                if not error.code.startswith("kafka-"):
                    raise
                trouble = str(error)
            _log.warning("generation %d waits for Kafka: %s", self.number, trouble)
            for _ in range(AGAIN_TICKS):
                yield False

    def _adopt(self) -> None:
        self._queries.adopt(self._generations.routing(self.config, self.number))

    def _boot(self) -> Boot:
        return self._generations.boot(self.config, self.number)

    def _amend(self) -> None:
        """Say what the registry says since the generation was built from it."""
        assert self._built is not None
        registry, writer = self._generations.registry, self._generations.writer
        registry.catch_up_quietly()
        hosts, types, n = self.config.deployment.hosts, self.config.types, 0
        for (kind, broker, type_name, id), fact in changed(self._built.facts, registry.facts):
            if broker in hosts and type_name in types:
                said = None if fact is None else encode_fact(fact)
                message = Amend(self.number, kind == "advertisement", id, said)
                writer.send(str(home_key(broker, type_name, id, self.config)), message)
                n += 1
        writer.flush()
        dying.at("generation-amended")
        _log.info("generation %d takes over; %d facts are new since it was built", self.number, n)

    def _greet(self) -> None:
        self._generations.greet(self.config, self.number)

    def _widen(self) -> None:
        """Give topics that clients got meanwhile as many partitions as they will be written to in."""
        self._generations.topics.ensure_needed(config=self.config)

    def _take_over(self) -> None:
        self._queries.succeed(self._boot(), self.generation)

    def _until_settled(self) -> Iterator[bool]:
        control = self.config.topics.control
        ends: dict[str, dict[str, int]] = {}
        for _ in range(self.config.fence_rounds()):
            yield from self._insistently(lambda: ends.update({control: self._offsets.ends(control)}))
            while not self._offsets.reached(self._listener.reached.get("control"), ends):
                yield False

    def _until_whole(self) -> Iterator[bool]:
        """Redis may have lost what was put aside."""
        keys = index_keys(self.config, self.config.deployment.hosts)
        while missing := redis_retried(lambda: self._generations.redis.missing(keys, self.number), say=_log.warning):
            for key in missing:
                self._generations.writer.send(str(key), Republish())
            yield from self._insistently(self._generations.writer.flush)
            for _ in range(AGAIN_TICKS):
                yield False

    def _put_in_force(self) -> None:
        self._generations.checkpoint.begin(self.generation)
        dying.at("generation-recorded")
        self._generations.put_in_force(self.config, self.number)
        _log.info("generation %d is in force", self.number)
