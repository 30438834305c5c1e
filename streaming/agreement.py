"""Which configuration a deployment goes by: its file, or what all deployments have agreed on since.

    the overlay, types and shards    are the same for all: what is agreed counts, unless the file has been changed;
                                     so are sources whose records name their broker
    sources and groups of a broker   are a matter of who hosts it: the file counts, unless something newer was agreed

A file that differs from the one with which the deployment was started last is newer than what is agreed: the rest of
the overlay follows it. A deployment that is started for the first time joins what is there.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, cast

from state.config import Config
from state.control.agreed import Agreed, Claim


def file_hash(config: Config) -> str:
    """What tells one file from another, as far as deployments have it in common."""
    return hashlib.sha256(config.shared).hexdigest()[:16]


def proposal(config: Config, agreed: Agreed | None, claim: Claim | None) -> tuple[Config, bytes | None]:
    """What a deployment that starts with this file goes by, and what it proposes to the others, if anything."""
    if agreed is None:
        return config, config.shared
    there = bytes(agreed.shared)
    if claim is not None and claim.file == file_hash(config) and claim.configuration < agreed.version:
        return config.adopting(there, agreed.version), None
    first = claim is None or claim.file == file_hash(config)
    wanted = merged(config, there, joining=first)
    if _same(wanted, there):
        return config.adopting(there, agreed.version), None
    return config.adopting(wanted, agreed.version), wanted


def merged(config: Config, there: bytes, *, joining: bool) -> bytes:
    """What is agreed, with what this file says of the hosted brokers; unless `joining`, with its overlay and types."""
    ours, theirs = cast(dict[str, Any], json.loads(config.shared)), cast(dict[str, Any], json.loads(there))
    core = theirs if joining else ours
    result: dict[str, Any] = {name: core[name] for name in ("overlay", "types", "settings") if name in core}
    brokers, hosts = result["overlay"]["brokers"], config.deployment.hosts
    groups = {b: t for b, t in theirs.get("distribution", {}).items() if b not in hosts and b in brokers}
    groups |= {b: t for b, t in ours.get("distribution", {}).items() if b in hosts}
    sources = [s for s in theirs.get("sources", []) if s.get("broker") in set(brokers) - set(hosts)]
    # where a header names the broker, it is everybody's
    sources += [s for s in core.get("sources", []) if s.get("broker") is None]
    sources += [s for s in ours.get("sources", []) if s.get("broker") in hosts]
    if groups:
        result["distribution"] = groups
    if sources:
        result["sources"] = sources
    return json.dumps(result, separators=(",", ":")).encode()


def _same(one: bytes, other: bytes) -> bool:
    """Whether nothing differs but who stands before whom among the hosts of sources."""
    return _in_order(one) == _in_order(other)


def _in_order(shared: bytes) -> dict[str, Any]:
    found = cast(dict[str, Any], json.loads(shared))
    return {**found, "sources": sorted(found.get("sources", []), key=lambda source: source.get("broker") or "")}
