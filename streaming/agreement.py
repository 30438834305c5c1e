"""Which configuration a deployment goes by: its file, or what all deployments have agreed on since.

    the file is the one with which it was started last     what is agreed counts: it may have been changed since
    the file is another one                                the file counts, and all deployments follow it
    it is started for the first time                       it joins: the overlay and types are those that are agreed

That a changed file counts is `[settings] changed_file = "apply"`. With `"follow"` what is agreed counts always, and is
said; with `"wait"` a job whose file says something else routes nothing until that is agreed, by `hilcast apply`.

What is said of sources and groups of brokers that others host is always theirs. Sources whose records name their broker
in a header are in common, as types are.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, cast

from state.config import Config
from state.control.agreed import Agreed, Claim

CORE = ("overlay", "types", "settings", "security", "sinks", "limits")
"""What is one for all brokers."""
OWN = ("deployment", "kafka", "redis", "spark", "schemas", "signing")
"""What is each deployment's own."""


def file_hash(config: Config) -> str:
    """What tells one file from another, as far as deployments have it in common."""
    return hashlib.sha256(config.shared).hexdigest()[:16]


def proposal(config: Config, agreed: Agreed | None, claim: Claim | None) -> tuple[Config, bytes | None]:
    """What a deployment that starts with this file goes by, and what it proposes to the others, if anything."""
    if agreed is None:
        return config, config.shared
    there = bytes(agreed.shared)
    if claim is not None and claim.file == file_hash(config):
        return config.adopting(there, agreed.version), None
    wanted = merged(config, there, joining=claim is None or config.settings.changed_file != "apply")
    if _ordered(wanted) == _ordered(there):
        return config.adopting(there, agreed.version), None
    return config.adopting(wanted, agreed.version), wanted


def not_agreed(file: Config, shared: bytes) -> list[str]:
    """The tables of a file that are one for all brokers, and others in a configuration in common."""
    ours, theirs = json.loads(file.shared), json.loads(shared)
    # as text, for the order of types and attributes counts
    return [name for name in CORE if json.dumps(ours.get(name)) != json.dumps(theirs.get(name))]


def merged(config: Config, there: bytes, *, joining: bool) -> bytes:
    """What is agreed, with what this file says of the hosted brokers; unless `joining`, with its overlay and types."""
    ours, theirs = cast(dict[str, Any], json.loads(config.shared)), cast(dict[str, Any], json.loads(there))
    core = theirs if joining else ours
    result: dict[str, Any] = {name: core[name] for name in CORE if name in core}
    brokers, hosts = result["overlay"]["brokers"], config.deployment.hosts
    groups = {b: t for b, t in theirs.get("distribution", {}).items() if b not in hosts and b in brokers}
    groups |= {b: t for b, t in ours.get("distribution", {}).items() if b in hosts}
    sources = [s for s in theirs.get("sources", []) if s.get("broker") in set(brokers) - set(hosts)]
    # where a header names the broker, it is everybody's
    sources += [s for s in core.get("sources", []) if s.get("broker") is None]
    sources += [s for s in ours.get("sources", []) if s.get("broker") in hosts]
    # what the router chose stays, where it still may choose
    fitted = {name: chosen for name, chosen in theirs.get("fitted", {}).items() if name in result["types"]}
    if fitted:
        result["fitted"] = fitted
    if groups:
        result["distribution"] = groups
    if sources:
        result["sources"] = sources
    return json.dumps(result, separators=(",", ":")).encode()


def own_changes(file: Config, config: Config) -> list[str]:
    """The tables that are a deployment's own and not as they were: they are read when it starts, and only then."""
    return [name for name in OWN if getattr(file, name) != getattr(config, name)]


def _ordered(shared: bytes) -> str:
    """Equal for what is the same; the order of types and attributes counts, for a grid may go by it."""
    return json.dumps(dict(sorted(json.loads(shared).items())))
