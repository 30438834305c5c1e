"""What a fault is, and all kinds of them by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.faults.scene import Scene

KINDS: dict[str, Fault] = {}


class Fault:
    """One kind of fault. Everything drawn comes from `scene.rng`, so that a seed names it.

    `prepare` may take its time while all is well; `strike` does the damage and returns; `heal` undoes it, or does what
    the runbook has a person do; `after` tells what is not as it should be, once routing went on.
    """

    name = ""
    expects = "routing may pause, nothing is lost"
    bound_s = 60.0
    """The longest pause that is promised, on a machine of one's own."""
    ends = False
    """Whether the job may end by this, and is started again as a supervisor would."""

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
