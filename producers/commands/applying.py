"""`apply` and `rebuild`: the running deployments take a configuration, or begin a generation, without a stop."""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import asdict

from infra.kafka import open_transport
from infra.kafka.reading import every, newest
from infra.kafka.transport import Transport
from infra.signing_keys import keyring
from producers.cli import config_path
from producers.commands.output import print_json
from producers.fence import Fence
from state.changes import Changes, changes
from state.config import Config, load
from state.control.agreed import CONFIGURATION, Agreed, Agreements, configuration_record
from state.control.facts import Fact, decode_fact
from state.errors import HilcastError
from state.messages import Output
from state.signing import SIGNATURE, genuine_ones, signed

SHOWN_MAX = 10
POLL_S = 0.5


def apply(chosen: argparse.Namespace) -> int:
    """Print what changes; unless it is only asked for, have it taken, and wait until it is in force."""
    config = load(config_path(chosen))
    transport = open_transport(config)
    try:
        agreements, facts = _read(transport, config)
        agreed = _agreed(agreements)
        before = config.adopting(bytes(agreed.shared), agreed.version)
        config = config.fitted_with(before.fitted)  # what the router chose stays
        found = changes(before, config, [(*key, fact) for key, fact in facts.items()])
        for name in _elsewhere(agreements, config):
            reason = "[signing] of this file is not what it was started with; if it should be, start it anew"
            print(f"needs-restart: deployment {name}: {reason}", file=sys.stderr)
        if not chosen.json:
            print(_for_people(found))
        if chosen.dry_run or not found:
            if chosen.json:
                print_json({"version": agreed.version, "changes": asdict(found), "applied": False})
            return 0
        version = _send(transport, config, agreed.version + 1, config.shared)
        version = _until_taken(transport, config, version, chosen.timeout)
        if chosen.json:
            print_json({"version": version, "changes": asdict(found), "applied": True})
        else:
            print(f"version {version} of the configuration is in force")
        return 0
    finally:
        transport.close()


def rebuild(chosen: argparse.Namespace) -> int:
    """Have every deployment begin a generation beside the one in force, with the configuration that it has."""
    config = load(config_path(chosen))
    transport = open_transport(config)
    try:
        agreed = _agreed(_read(transport, config)[0])
        version = _send(transport, config, agreed.version + 1, bytes(agreed.shared))
        _until_in_force(transport, config, version, chosen.timeout)
        print_json({"version": version}) if chosen.json else print("a new generation is in force")
        return 0
    finally:
        transport.close()


def _read(transport: Transport, config: Config) -> tuple[Agreements, dict[tuple[str, str, str, str], Fact]]:
    agreements = Agreements()
    facts: dict[tuple[str, str, str, str], Fact] = {}
    for record in genuine_ones(every(transport, config.topics.registry), keyring(config)):
        key = record.key or b""
        if agreements.take(key, record.value) is not None:
            continue
        kind, *rest = key.decode("utf-8", "replace").split("/")
        if kind in ("subscription", "advertisement") and len(rest) == 3:
            name = (kind, rest[0], rest[1], rest[2])
            facts.pop(name, None)
            if record.value is not None:
                facts[name] = decode_fact(record.value)
    return agreements, facts


def _elsewhere(agreements: Agreements, config: Config) -> list[str]:
    """Deployments that have their signing keys, or none, elsewhere than this file says: no record can change that."""
    place = "" if config.signing is None else config.signing.place
    return sorted(name for name, claim in agreements.claims.items() if place and claim.signing != place)


def _agreed(agreements: Agreements) -> Agreed:
    if agreements.agreed is None:
        raise HilcastError("not-running", "no job has run with this prefix yet: start it with `hilcast run`")
    return agreements.agreed


def _send(transport: Transport, config: Config, version: int, shared: bytes) -> int:
    ring = keyring(config)
    last = next(newest(transport, [config.topics.registry]), None)
    if ring is None and last is not None and any(name == SIGNATURE for name, _ in last.headers):
        raise HilcastError("signing-key", "records of this overlay are signed, and this configuration has no [signing]")
    transport.send(signed(Output(config.topics.registry, *configuration_record(version, shared)), ring))
    transport.flush()
    return version


def _until_taken(transport: Transport, config: Config, version: int, timeout_s: float) -> int:
    """Return the version under which this configuration is in force; `overtaken` if another one was sent beside it."""
    _until_in_force(transport, config, version, timeout_s)
    sent = _sent(transport, config, version)
    if all(shared == config.shared for shared in sent):
        return version
    if sent[-1] != config.shared:
        reason = (
            f"another configuration was sent as version {version} at the same time, and counts: look, and apply again"
        )
        raise HilcastError("overtaken", reason)
    # some may have taken the other one: deployments then agree on the last under the next version
    _until_in_force(transport, config, version + 1, timeout_s)
    return version + 1


def _sent(transport: Transport, config: Config, version: int) -> list[bytes]:
    """Every configuration that was sent under a version, as far as the registry has them still."""
    found = []
    for record in genuine_ones(every(transport, config.topics.registry), keyring(config)):
        agreements = Agreements()
        if record.key == CONFIGURATION and agreements.take(record.key, record.value) and agreements.version == version:
            found.append(bytes(_agreed(agreements).shared))
    return found


def _until_in_force(transport: Transport, config: Config, version: int, timeout_s: float) -> None:
    """Return when every broker's deployment goes by this version, and all is in force."""
    fence, deadline = Fence(config), time.monotonic() + timeout_s
    try:
        while behind := _behind(fence, config, version):
            refusals = _read(transport, config)[0].refusals
            refused = {name: refusals[name].faults for name in refusals if refusals[name].version == version}
            if refused:
                reasons = [f"{name}: {fault}" for name, faults in refused.items() for fault in faults]
                raise HilcastError("bad-config", "not taken:\n  " + "\n  ".join(reasons))
            if time.monotonic() > deadline:
                who = ", ".join(behind)
                raise HilcastError("timeout", f"version {version} is sent, and not yet in force at: {who}")
            time.sleep(POLL_S)
        for late in fence.wait(max(1.0, deadline - time.monotonic())):
            print(late, file=sys.stderr)
            raise HilcastError("timeout", f"version {version} is taken, and not yet in force everywhere")
    finally:
        fence.close()


def _behind(fence: Fence, config: Config, version: int) -> list[str]:
    """Brokers whose deployment does not go by this version yet; a broker nobody hosts cannot be waited for."""
    best: dict[str, int] = {}
    for deployment in fence.deployments().values():
        for broker in deployment.hosts:
            best[broker] = max(best.get(broker, 0), deployment.configuration)
    if not best:
        return list(config.overlay.brokers)
    return [broker for broker, taken in best.items() if taken < version and broker in config.overlay.brokers]


def _for_people(found: Changes) -> str:
    if not found:
        return "nothing changes"
    lines = list(found.lines)
    lines += [f"  topics created: {_some(found.topics)}"] if found.topics else []
    lines += [f"  parts of the index built anew: {found.parts}"]
    for noun, names in (("become dormant", found.dormant), ("are in force again", found.awake)):
        lines += [f"  registrations that {noun}: {len(names)}: {_some(names)}"] if names else []
    return "\n".join(lines)


def _some(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN_MAX} more" if len(names) > SHOWN_MAX else ""
    return ", ".join(names[:SHOWN_MAX]) + more
