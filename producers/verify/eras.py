"""Which configuration a publication was routed by: from the registry, and from what deployments say of themselves.

The configuration in common is a record of the registry; deployments follow it one by one, each at a moment of its own:

    configuration  announced ────── taken by the first ────── in force: taken by all
    publication                sent ─────── routed              before: the old one   after: the new one
                                                                in between: either of them

A line of `progress` names the version that its deployment went by when it was written; whatever is sent later is routed
there by that version, or a later one. Versions that the registry no longer holds (it is compacted) have had their time,
too: what they may have routed cannot be judged.

Pure: records in, eras out.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import msgspec

from producers.progress_lines import progress_lines
from state.config import Config
from state.control.agreed import CONFIGURATION, Agreed, Refusal
from state.errors import ConfigError
from state.flooding import NEVER
from state.formats import UNREADABLE
from state.messages import Record
from state.space.event_type import EventType, Pruning


@dataclass(frozen=True)
class Era:
    """The time of one configuration."""

    config: Config | None
    """None: it is no longer held."""
    since_ms: float = -NEVER
    """Nobody can have gone by it before."""
    in_force_ms: float = NEVER
    """Everybody goes by it from here on, or by a later one."""
    until_ms: float = NEVER
    """Nobody goes by it any more."""

    def may_have_routed(self, sent_ms: float, routed_ms: float) -> bool:
        """Tell whether this may be what a publication was routed by that was sent and last routed then.

        Guarantee: eras overlap, so each publication has one; also where its own clock says that it was sent later.
        """
        return routed_ms >= self.since_ms and min(sent_ms, routed_ms) <= self.until_ms


class _Announced(NamedTuple):
    """A configuration that all deployments were to take."""

    version: int
    at_ms: float
    shared: bytes


class _Said(NamedTuple):
    """While a deployment said that it hosts these brokers and goes by this version."""

    deployment: str
    hosts: tuple[str, ...]
    version: int
    first_ms: float
    last_ms: float


class Configurations:
    """All configurations that the registry holds, and when deployments took them."""

    def __init__(self, file: Config, registry: Iterable[Record], progress: Iterable[Record]) -> None:
        """`file`: for what is a deployment's own; and for everything, where no job has announced a configuration."""
        records = list(registry)
        self._file = file
        self._said = _said(progress)
        self._announced = _announced(records)
        self._configs = {one: _adopted(file, one) for one in self._announced}
        self._refused = self._refused_by_all(_refusals(records))
        self._end = max((record.offset + 1 for record in records), default=0)

    def eras(self) -> list[Era]:
        """Every configuration that may have routed something, in order; equal ones that follow each other are one."""
        if not self._announced:
            return [Era(self._file)]
        eras: list[Era] = []
        first, taken = self._announced[0], self._taken()
        before = _Announced(0, -NEVER, b"")
        for one in self._announced:
            in_force_ms = self._in_force_ms(one)
            if one.version > before.version + 1:
                eras.append(Era(None, before.at_ms, until_ms=in_force_ms))
            if one.version not in self._refused:
                since_ms = -NEVER if one == first and one.version == 1 else one.at_ms
                until_ms = min((self._in_force_ms(each) for each in taken if each.version > one.version), default=NEVER)
                eras.append(Era(self._configs[one], since_ms, in_force_ms, until_ms))
            before = one
        return _united(eras)

    def mixed(self) -> list[tuple[float, float]]:
        """From when until when deployments went by different configurations."""
        found = []
        for one in self._taken():
            first_ms = min((said.first_ms for said in self._said if said.version >= one.version), default=NEVER)
            found.append((first_ms, self._in_force_ms(one)))
        return [(first, last) for first, last in found if first < last]

    def _taken(self) -> list[_Announced]:
        return [one for one in self._announced if one.version not in self._refused]

    def unread(self, registry: Iterable[Record]) -> list[Era]:
        """What was announced since the registry was read: its topics were not looked for, so it cannot be judged by."""
        return [Era(None, one.at_ms) for one in _announced(r for r in registry if r.offset >= self._end)]

    def _in_force_ms(self, announced: _Announced) -> float:
        """When everybody went by this version, or a later one; `NEVER` if that is not known to have happened.

        A broker's deployment is the first to say so of those that host it, as for `hilcast wait`. A deployment that was
        heard of since, and only with older ones, has not followed, unless others have its brokers now.
        """
        config = self._configs[announced]
        taken = [said for said in self._said if said.version >= announced.version]
        brokers = {b for said in self._said for b in said.hosts} if config is None else set(config.overlay.brokers)
        each = [min((said.first_ms for said in taken if broker in said.hosts), default=NEVER) for broker in brokers]
        names, hosted = {said.deployment for said in taken}, {broker for said in taken for broker in said.hosts}
        others = [said for said in self._said if said.deployment not in names and not hosted.issuperset(said.hosts)]
        left = any(said.last_ms >= announced.at_ms for said in others)
        return NEVER if left else max([announced.at_ms, *each])

    def _refused_by_all(self, refusals: set[tuple[str, int]]) -> set[int]:
        """Versions that nobody took, because every deployment that is heard of has refused them."""
        names, taken = {said.deployment for said in self._said}, {said.version for said in self._said}
        versions = {version for _, version in refusals} - taken
        return {version for version in versions if names and all((name, version) in refusals for name in names)}


def _said(progress: Iterable[Record]) -> list[_Said]:
    """What deployments said of themselves, once for each thing that they said."""
    found: dict[tuple[str, tuple[str, ...], int], tuple[float, float]] = {}
    for record, line in progress_lines(progress):
        if line.configuration is not None:
            what, at_ms = (line.deployment, tuple(line.hosts), line.configuration), float(record.timestamp_ms)
            first, last = found.get(what, (NEVER, -NEVER))
            found[what] = (min(first, at_ms), max(last, at_ms))
    return [_Said(*what, *times) for what, times in found.items()]


def _announced(records: Iterable[Record]) -> list[_Announced]:
    """What deployments were to take, by version: one that comes after a later version changes nothing."""
    found: list[_Announced] = []
    for record in records:
        if record.key != CONFIGURATION or record.value is None:
            continue
        with contextlib.suppress(*UNREADABLE):  # deployments pass over it, too
            agreed = msgspec.json.decode(record.value, type=Agreed)
            said = _Announced(agreed.version, float(record.timestamp_ms), bytes(agreed.shared))
            is_new = all((one.version, one.shared) != (said.version, said.shared) for one in found)
            if is_new and said.version >= max((one.version for one in found), default=0):
                found.append(said)
    return found


def _refusals(records: Iterable[Record]) -> set[tuple[str, int]]:
    """Deployments, each with a version that it has refused."""
    found = set()
    for record in records:
        kind, _, name = (record.key or b"").decode("utf-8", "replace").partition("/")
        if kind == "refusal" and record.value is not None:
            with contextlib.suppress(*UNREADABLE):
                found.add((name, msgspec.json.decode(record.value, type=Refusal).version))
    return found


def _adopted(file: Config, announced: _Announced) -> Config | None:
    """The file with what was in common then; None where it cannot be read with it."""
    deployment = dict(cast(dict[str, Any], file.tables.get("deployment", {})))
    deployment.pop("hosts", None)  # the brokers that this one hosts now need not have been there
    with contextlib.suppress(ConfigError, KeyError, TypeError, ValueError):  # the job would not take it either
        anywhere = replace(file, tables={**file.tables, "deployment": deployment})
        return anywhere.adopting(announced.shared, announced.version)
    return None


def _united(eras: Sequence[Era]) -> list[Era]:
    """Eras whose configurations make the same of everything, and follow each other, as one."""
    found: list[Era] = []
    for era in eras:
        last = found[-1] if found else None
        if last is not None and _judged(last.config) == _judged(era.config):
            found[-1] = replace(last, until_ms=max(last.until_ms, era.until_ms))
        else:
            found.append(era)
    return found


def _judged(config: Config | None) -> tuple[object, ...]:
    """All of a configuration that a judgement can depend on."""
    if config is None:
        return ()
    types = {name: _plain(event_type) for name, event_type in config.types.items()}
    return (
        config.overlay, types, config.sources, config.patterns, config.security, config.sinks, config.limits
    )  # fmt: skip


def _plain(event_type: EventType) -> EventType:
    """A type without what only says how its events are matched; a reduction that may lose is something else."""
    reduction = event_type.reduction if event_type.reduction == "probabilistic" else ""
    return replace(
        event_type,
        reduction=reduction,
        parameters={},
        cubes=1,
        index=(),
        bits=None,
        pruning=Pruning(),
        matcher="",
        matcher_parameters={},
        auto=frozenset(),
        quantiles={},
    )
