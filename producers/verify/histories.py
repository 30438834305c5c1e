"""What all inboxes hold, and the claims that each configuration makes of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from producers.verify.eras import Era
from producers.verify.held import Held, Receipts
from producers.verify.history import HistoryReader, Key, read_fact
from producers.verify.shared_deliveries import opted
from state.config import Config
from state.control.facts import Fact
from state.flooding import Claim, ControlHistory, Progress, Times
from state.messages import Record, speaker
from state.names import parted
from state.topics import inboxes


class Histories:
    """Everything that was registered; read step by step, in the order of `Verification.run`.

    Cost: what `Held` and `Receipts` hold of each record of an inbox; of the registry only facts without such a record.
    """

    def __init__(
        self,
        configs: Sequence[Config],
        progress: Sequence[Progress],
        mixed: Sequence[tuple[float, float]],
        times_of: Callable[[str], Times],
    ) -> None:
        """`mixed`: from when until when deployments went by different configurations."""
        self._configs = configs
        self._progress, self._mixed = progress, mixed
        self._reached = {topic for line in progress for topic in line.offsets}
        waited = dict.fromkeys(topic for config in configs for topic in self._waited(config))
        self._times = {topic: times_of(topic) for topic in waited}
        self.receipts = Receipts()
        self.records: Mapping[str, Held] = {}
        self._facts: dict[str, list[tuple[str, Key, Fact]]] = {}
        """By inbox."""
        self._grouped: set[str] = set()
        """Whom facts say to be served through shared topics."""

    def inboxes(self) -> list[str]:
        """All of them, by whichever configuration."""
        return list(dict.fromkeys(inbox for config in self._configs for inbox in inboxes(config)))

    def keep_facts(self, registry: Iterable[Record]) -> list[Record]:
        """Keep the facts that some inbox may have had the record of and does not hold; return the other records.

        `records` hold what the inboxes held before: where Kafka deletes one meanwhile, it is known all the same.
        """
        others, kept = [], {inbox: list[tuple[str, Key, Fact]]() for inbox in self.inboxes()}
        of: dict[tuple[str, str | None], dict[str, None]] = {}
        for config in self._configs:
            for inbox in inboxes(config):
                advertisements, client = speaker(inbox, config)
                kind = "advertisement" if advertisements else "subscription"
                of.setdefault((kind, client), {})[inbox] = None
        for record in registry:
            found = read_fact(record)
            if found is None:
                others.append(record)
                continue
            kind, (_, _, id), fact = found
            if fact.groups and fact.owner is not None:
                self._grouped.add(fact.owner)
            for inbox in of.get((kind, parted(id)[0]), ()):
                if self.records[inbox].time_of(fact.offset) != fact.timestamp_ms:
                    kept[inbox].append(found)
        self._facts = kept
        return others

    def read_on(self, read: Callable[[str, int | None], Iterable[Record]]) -> None:
        """Hold what came to the inboxes since they were read, and let go of facts of that."""
        for inbox, held in self.records.items():
            held.add(read(inbox, held.end))
            facts = self._facts[inbox]
            self._facts[inbox] = [f for f in facts if held.time_of(f[2].offset) != f[2].timestamp_ms]

    def claims(self, era: Era, config: Config) -> tuple[list[Claim], list[Claim]]:
        """Subscriptions and advertisements, as the configuration of an era has them."""
        control = self._control(config)
        found: dict[bool, list[Claim]] = {False: [], True: []}
        for advertisements, claims in found.items():
            for inbox in inboxes_of(config, advertisements=advertisements):
                records, facts = self.records[inbox], self._facts[inbox]
                claims += HistoryReader(config, inbox, records, self.receipts, control, facts, era).claims()
        return found[False], found[True]

    def members(self) -> Iterator[str]:
        """Every client that has let itself be served through shared topics at some time; read when it is asked."""
        yield from self._grouped
        for config in self._configs:
            for inbox in inboxes_of(config, advertisements=False):
                yield from opted(config, self.records[inbox], ())

    def _control(self, config: Config) -> ControlHistory:
        """When what was said was in force."""
        times = {topic: self._times[topic] for topic in self._waited(config)}
        return ControlHistory(config.overlay.brokers, times, self._progress, config.fence_rounds(), self._mixed)

    def _waited(self, config: Config) -> list[str]:
        """What counts for being in force; a client's own inbox that nobody reads yet holds up none."""
        own = config.security.own
        return [*(i for i in inboxes(config) if not own or i in self._reached), config.topics.control]


def inboxes_of(config: Config, *, advertisements: bool) -> list[str]:
    """Those of one kind, everybody's or each client's own."""
    return [topic for topic in inboxes(config) if speaker(topic, config)[0] == advertisements]
