"""The parameters of every reduction, declared once: name, reader, default. Imports nothing heavy.

`[types.NAME.parameters]` of the configuration is read here, by the readers of `state/tables.py`: a field of a class of
settings is a parameter, its reader judges what was given, and what is not given has the field's default.

    raw table ──check_parameters──> faults, each with its place        (state/config.py, at start)
              ──read──────────────> settings, typed                    (a reduction, when it is made)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from state.errors import ConfigError, HilcastError
from state.space.event_type import EventType
from state.tables import Reader, Table, boolean, integer, number
from state.tables import choice as one_of

S = TypeVar("S", bound="NoSettings")
T = TypeVar("T")
D = TypeVar("D")

INTEGER_MAX = 2**63 - 1
ERROR_MIN = 1e-300
"""The least error that may be asked for: parts of it are positive floats still."""

_ERROR = number(ERROR_MIN, below=1)


def _parameter(read: Reader[T], default: D) -> Any:
    """A field that is a parameter."""
    return field(default=default, metadata={"read": read})


# --- the parameters of each reduction -----------------------------------------------------------------------


@dataclass(frozen=True)
class NoSettings:
    """The settings of `none` and `covering`: there are none. The others are made of it."""

    @classmethod
    def conflicts(cls, given: Mapping[str, object]) -> list[tuple[str, str]]:
        """What is wrong with parameters that are good one by one: the name of one and the reason."""
        return []


@dataclass(frozen=True)
class MicsSettings(NoSettings):
    """The settings of `mics`."""

    mode: str = _parameter(one_of("projected", "indexed"), "projected")
    """Attributes outside the grid are dropped, or checked exactly ([MICS09] §5)."""
    exact: str = _parameter(one_of("pairwise", "negative-space", "hybrid"), "pairwise")
    """Indexed: the exact phase."""
    merging: str = _parameter(one_of("perfect", "imperfect"), "perfect")
    """Whether ranges are joined across gaps, given by one of the next two."""
    gap_cells: int | None = _parameter(integer(1, INTEGER_MAX), None)
    """Imperfect: join across gaps of up to so many cells."""
    budget: float | None = _parameter(number(0, above=True), None)
    """Imperfect: join while the extra cells are at most this share of the covered ones."""
    cap: int = _parameter(integer(1, INTEGER_MAX), 256)
    """Ranges that a subscription becomes at most: the mapping joins its smallest gaps."""

    @classmethod
    def conflicts(cls, given: Mapping[str, object]) -> list[tuple[str, str]]:
        bounds = [name for name in ("gap_cells", "budget") if name in given]
        merging = given.get("merging", "perfect")
        faults = []
        if merging == "imperfect" and len(bounds) != 1:
            faults.append(("merging", "'imperfect' needs one of 'gap_cells' and 'budget'"))
        if merging == "perfect" and bounds:
            faults.append((bounds[0], "needs merging = 'imperfect'"))
        if merging == "imperfect" and given.get("mode") == "indexed":
            faults.append(("merging", "'imperfect' needs mode = 'projected': indexed entries are forwarded whole"))
        return faults


@dataclass(frozen=True)
class NegativeSpaceSettings(NoSettings):
    """The settings of `negative-space`."""

    mode: str = _parameter(one_of("exact", "approximate"), "exact")
    """"approximate": at most `k` new boxes an entry."""
    k: int = _parameter(integer(1, INTEGER_MAX), 50)
    choice: str = _parameter(one_of("benefit-cost", "benefit", "cost"), "benefit-cost")
    """Which boxes the approximate mode cuts first."""
    dynamic: bool = _parameter(boolean, False)
    """Whether the threshold follows the number of boxes: ζ(i) = k·i - m."""
    cuts: str = _parameter(one_of("largest-first", "in-order"), "largest-first")
    """How a box is split: "in-order" of the dimensions as in figure 4."""
    merge_budget: int = _parameter(integer(0, INTEGER_MAX), 1)
    """Rounds of sweeps, one over each dimension, that one merging may take; 0: never merge."""
    rebuild: float = _parameter(number(0), 1.0)
    """Rebuild once as many active entries were withdrawn as this share of those left; 0: never."""
    max_boxes: int | None = _parameter(integer(0, INTEGER_MAX), None)
    """Negative boxes beyond which entries are not cut out any more, in both modes; 0: no limit; None: 24 for each
    entry, 96 while that is no more than 64,000, 20,000 at least. What removals give back may be a quarter more."""
    retire: bool = _parameter(boolean, True)
    """Whether an active entry that lies inside a new one is withdrawn."""


@dataclass(frozen=True)
class HybridSettings(NoSettings):
    """The settings of `hybrid`."""

    budget: int = _parameter(integer(1, INTEGER_MAX), 20_000)
    """Pieces that one box may be cut into: about a millisecond a box."""
    error: float = _parameter(_ERROR, 0.001)
    """After that guesses look for a witness, until an uncovered part would be missed with this probability ..."""
    trials_max: int = _parameter(integer(0, INTEGER_MAX), 2_000)
    """... or so many were made."""


@dataclass(frozen=True)
class ProbabilisticSettings(NoSettings):
    """The settings of `probabilistic`."""

    error: float = _parameter(_ERROR, 0.001)
    """The probability δ with which an entry that is not covered may be withheld."""
    trials_max: int = _parameter(integer(1, INTEGER_MAX), 20_000)
    """The guesses a box may cost: about a millisecond. Where the error asks for more, the entry is forwarded."""


@dataclass(frozen=True)
class MergingSettings(NoSettings):
    """The settings of `merging`."""

    budget: float = _parameter(number(0), 0.0)
    """Extra space that a merge may add, as a share of what it merges; 0: only boxes that make one box exactly."""


SETTINGS: dict[str, type[NoSettings]] = {
    "none": NoSettings,
    "covering": NoSettings,
    "merging": MergingSettings,
    "mics": MicsSettings,
    "negative-space": NegativeSpaceSettings,
    "probabilistic": ProbabilisticSettings,
    "hybrid": HybridSettings,
}
"""What a configuration can choose as `reduction`, and what each is tuned by."""


# --- reading them -------------------------------------------------------------------------------------------


def check_parameters(event_type: EventType, place: str = "parameters") -> list[str]:
    """The faults in the type's parameters, in words; none is good.

    >>> given = {"merging": "imperfect", "kap": 3, "budget": -1}
    >>> for fault in check_parameters(EventType("t", (), reduction="mics", parameters=given)): print(fault)
    parameters.budget: must be a number above 0, not -1
    parameters.kap: unknown key; did you mean 'cap'?
    """
    try:
        settings = SETTINGS[event_type.reduction]
    except KeyError:
        raise HilcastError("bad-config", f"unknown reduction {event_type.reduction!r}") from None
    faults: list[str] = []
    _taken(settings, Table(event_type.parameters, place, faults))
    return faults


def read(settings: type[S], parameters: Mapping[str, object] | None) -> S:
    """The settings that `parameters` ask for; raises ConfigError with all faults."""
    faults: list[str] = []
    found = _taken(settings, Table(parameters, "parameters", faults))
    if faults:
        raise ConfigError(faults)
    return found


def _taken(settings: type[S], table: Table) -> S:
    values = {f.name: table.take(f.name, f.metadata["read"], f.default) for f in fields(settings)}
    table.end()
    for name, reason in settings.conflicts(table.raw):
        table.fault(name, reason)
    return settings(**values)


# --- what others ask of them --------------------------------------------------------------------------------


def forwards_ranges(event_type: EventType) -> bool:
    """Whether the type's reduction speaks of Hilbert ranges instead of boxes."""
    return event_type.reduction == "mics" and event_type.parameters.get("mode", "projected") == "projected"


def range_cap(event_type: EventType) -> int:
    """How many Hilbert ranges a subscription may become in one cube; beyond that the smallest gaps are closed."""
    cap = event_type.parameters.get("cap", MicsSettings.cap)
    assert isinstance(cap, int)
    return cap


def forwards_whole(event_type: EventType) -> bool:
    """Whether what the type's reduction forwards are entries as they are, each under its own id."""
    return not forwards_ranges(event_type) and event_type.reduction != "merging"
