"""What all inboxes hold, and the claims that each configuration makes of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from producers.verify.eras import Era
from producers.verify.history import HistoryReader, Key, Receipts
from producers.verify.shared_deliveries import opted
from state.config import Config
from state.control.facts import Fact
from state.flooding import Claim, ControlHistory, Progress, Times
from state.messages import Record, speaker
from state.topics import inboxes


class Histories:
    """Everything that was registered; read step by step, in the order of `Verification.run`."""

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
        self.receipts: Receipts = {}
        self.facts: Sequence[tuple[str, Key, Fact]] = ()
        self.records: Mapping[str, Sequence[Record]] = {}

    def inboxes(self) -> list[str]:
        """All of them, by whichever configuration."""
        return list(dict.fromkeys(inbox for config in self._configs for inbox in inboxes(config)))

    def claims(self, era: Era, config: Config) -> tuple[list[Claim], list[Claim]]:
        """Subscriptions and advertisements, as the configuration of an era has them."""
        control = self._control(config)
        found: dict[bool, list[Claim]] = {False: [], True: []}
        for advertisements, claims in found.items():
            for inbox in inboxes_of(config, advertisements=advertisements):
                reader = HistoryReader(config, inbox, self.records[inbox], self.receipts, control, self.facts, era)
                claims += reader.claims()
        return found[False], found[True]

    def members(self) -> set[str]:
        """Every client that has let itself be served through shared topics at some time."""
        found: set[str] = set()
        for config in self._configs:
            for inbox in inboxes_of(config, advertisements=False):
                found |= opted(config, self.records[inbox], ())
            found |= opted(config, (), (fact for _, _, fact in self.facts))
        return found

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
