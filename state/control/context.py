"""What a key needs to know besides its own state: configuration, grids, and the epoch of this step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from state.advertisements.normal import Normaliser
from state.advertisements.observations import Observations
from state.config import Config, Topics
from state.control.journal import SEALED_MIN, SEALED_SHARE, Kept
from state.control.overlap import Sides, Wordings
from state.control.samples import Sample, observed
from state.messages import Output
from state.reductions.parameters import forwards_ranges
from state.reductions.reduction import Fate
from state.signing import Keyring
from state.space.grid import Grid


@dataclass
class Context:
    """One control batch: every key handled in it has the same generation and epoch."""

    config: Config
    generation: int
    batch: int
    hosts: tuple[str, ...] = ()
    samples: Mapping[str, Sample] = field(default_factory=dict)
    """Publications by type, as they were when the generation began; the same for every batch of it."""
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    """Kafka's ids of the inboxes, by topic, where they are known: a topic that was made again counts from 0 again."""
    destinations: Callable[[str], str | None] | None = field(default=None, repr=False)
    """Says why nothing may be delivered to a topic, or None; not given: everything may. What it says is not part of
    what a replay repeats: a destination that was accepted is not judged again."""
    keyring: Keyring | None = field(default=None, repr=False)
    """What control and registry records are signed with, and judged by; None: they are not. A batch that is repeated
    after the key was changed is signed anew: that is no part of what a replay repeats."""
    quarantined: frozenset[tuple[str, int, int]] = frozenset()
    """Records, by topic, partition and offset, that are not handled: they are answered as if that failed inside."""
    sides: Sides = field(default_factory=Sides, repr=False)
    """What this process keeps from batch to batch to decide overlaps with (`selection.py`)."""
    parts: Kept[Any] = field(default_factory=Kept, repr=False)
    """Parts that this process keeps unpacked from batch to batch (`journal.py`)."""
    sealed_share: int = SEALED_SHARE
    """How long a part's state may grow before everything is packed again; another one in tests alone."""
    sealed_min: int = SEALED_MIN
    """Bytes below which a part's state is packed again at every step; another one in tests alone."""
    _observed: dict[str, tuple[Observations, Normaliser]] = field(default_factory=dict, repr=False)
    _wordings: dict[str, Wordings] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self.hosts = self.hosts or self.config.deployment.hosts

    @cached_property
    def topics(self) -> Topics:
        return Topics(self.config.deployment.prefix)

    @cached_property
    def grids(self) -> dict[str, Grid]:
        return {name: Grid.of(event_type) for name, event_type in self.config.types.items()}

    def dialect(self, type_name: str) -> str:
        """What both ends of a stream must have in common to understand each other, as every message names it.

        That is the grid, whether neighbours are told boxes or ranges, and over how many wide keys ids are spread.
        """
        told = "ranges" if forwards_ranges(self.config.types[type_name]) else "boxes"
        return f"{self.grids[type_name].hash}/{told}/{self.config.settings.wide_shards}"

    @property
    def epoch(self) -> str:
        return f"{self.generation}.{self.batch}"

    def observed(self, type_name: str) -> tuple[Observations, Normaliser]:
        """The sample of a type ready to be counted on, and what turns predicates into what is counted."""
        if type_name not in self._observed:
            event_type = self.config.types[type_name]
            self._observed[type_name] = (
                observed(event_type, self.samples.get(type_name, ())),
                Normaliser(event_type),
            )
        return self._observed[type_name]

    def wordings(self, type_name: str) -> Wordings:
        """The reader of wordings of a type."""
        if type_name not in self._wordings:
            self._wordings[type_name] = Wordings(self.config.types[type_name])
        return self._wordings[type_name]

    def at(self, generation: int, batch: int) -> Context:
        """The same configuration at another epoch of the same life; grids are shared, not built again."""
        return self._shared(replace(self, generation=generation, batch=batch))

    def of_everyone(self) -> Context:
        """The same epoch, with every broker of the overlay hosted."""
        return self._shared(replace(self, hosts=self.config.overlay.brokers))

    def _shared(self, other: Context) -> Context:
        other.__dict__["grids"] = self.grids
        return other


@dataclass
class Result:
    """What handling a batch of records did to one key."""

    state: bytes | None
    outputs: list[Output] = field(default_factory=list)
    index: bytes | None = None
    """The compiled index to publish, where all of it was asked for."""
    deltas: list[bytes] = field(default_factory=list)
    """What changed of the index (`state/index_delta.py`), after `index` if there is one."""
    topics: set[str] = field(default_factory=set)
    """Delivery topics that must exist before the outputs are written."""
    figures: dict[str, int] = field(default_factory=dict)
    """What people want to count: control messages sent, saved, refused ..."""
    forwarding: dict[str, dict[str, Fate]] = field(default_factory=dict)
    """By neighbour towards which something changed: what became of each entry (`fates.py`)."""
    reduced: dict[str, dict[str, int]] = field(default_factory=dict)
    """By the same neighbours: the same in numbers."""
    faults: list[str] = field(default_factory=list)
    """Lines for the log: one for each record whose handling failed inside (code `internal`), one for all that were
    forged."""

    def then(self, later: Result) -> Result:
        """This result and that of what was handled after it, in one."""
        return Result(
            later.state,
            self.outputs + later.outputs,
            self.index if later.index is None else later.index,
            [] if later.index is not None else self.deltas + later.deltas,
            self.topics | later.topics,
            dict(Counter(self.figures) + Counter(later.figures)),
            self.forwarding | later.forwarding,
            self.reduced | later.reduced,
            self.faults + later.faults,
        )
