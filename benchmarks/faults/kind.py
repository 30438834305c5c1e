"""What a fault is, and all kinds of them by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.faults.scene import Scene

KINDS: dict[str, Fault] = {}
LOOPS = 4
"""A query that failed so often since everything was healed will fail for ever."""


class Fault:
    """One kind of fault. Everything drawn comes from `scene.rng`, so that a seed names it.

    `prepare` may take its time while all is well; `strike` does the damage and returns; `heal` undoes it, or does what
    the runbook has a person do; `after` tells what is not as it should be, once routing went on.
    """

    name = ""
    expects = "routing may pause, nothing is lost"
    bound_s = 60.0
    """The longest pause that is promised, on a machine of one's own."""
    loops = LOOPS
    """How often a query may fail by this, after everything was healed."""
    nodes = 1
    """How many nodes of Kafka it needs."""
    ends = False
    """Whether the job may end by this, and is started again as a supervisor would."""

    @property
    def dear(self) -> bool:
        """Whether the job is started anew, which takes longer than anything else."""
        return self.ends

    def impossible(self) -> str | None:
        """Why it cannot be done on this machine; None if it can."""
        return None

    def prepare(self, scene: Scene) -> None:
        """Make ready."""

    def strike(self, scene: Scene) -> None:
        """Do the damage."""

    def heal(self, scene: Scene) -> None:
        """Undo it."""

    def after(self, scene: Scene) -> list[str]:
        """What is not as this fault expects, beyond what the judge finds."""
        return []


def known(*faults: Fault) -> None:
    """Make these kinds known by their names."""
    for fault in faults:
        assert fault.name not in KINDS, fault.name
        KINDS[fault.name] = fault


class Together(Fault):
    """Several faults at once, judged once: for records that are only sent there is nothing to undo in between."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        self.faults = faults
        self.name = "+".join(fault.name for fault in faults)
        self.expects = "; ".join(dict.fromkeys(fault.expects for fault in faults))
        self.bound_s = max(fault.bound_s for fault in faults)
        self.loops = max(fault.loops for fault in faults)
        self.ends = any(fault.ends for fault in faults)
        self.nodes = max(fault.nodes for fault in faults)

    def prepare(self, scene: Scene) -> None:
        for fault in self.faults:
            fault.prepare(scene)

    def strike(self, scene: Scene) -> None:
        for fault in self.faults:
            fault.strike(scene)

    def heal(self, scene: Scene) -> None:
        for fault in self.faults:
            fault.heal(scene)

    def after(self, scene: Scene) -> list[str]:
        return [finding for fault in self.faults for finding in fault.after(scene)]


def fault_of(name: str) -> Fault:
    """The fault of a name; names joined by `+` are several at once."""
    parts = [KINDS[part] for part in name.split("+")]
    return parts[0] if len(parts) == 1 else Together(parts)
