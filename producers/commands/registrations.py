"""`subscribe`, `unsubscribe`, `advertise`, `unadvertise`: send, wait for the receipt, print it; and `wait`."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

from producers.cli import complain, config_path
from producers.client.advertiser import Advertiser
from producers.client.inbox import Receipt, RefusedError
from producers.client.subscriber import Subscriber
from producers.client.waiting import BehindError
from producers.client.waiting import wait as wait_in_force
from producers.commands.output import print_json
from state.config import load


def subscribe(chosen: argparse.Namespace) -> int:
    with Subscriber(load(config_path(chosen)), chosen.client) as subscriber:
        request = subscriber.request(
            chosen.broker,
            chosen.type,
            chosen.filter,
            id=chosen.id,
            version=chosen.version,
            ttl_ms=_milliseconds(chosen.ttl),
            sink=chosen.sink,
            groups=chosen.groups,
            mapping=chosen.mapping,
        )
        return _print(lambda: request.receipt(chosen.timeout))


def unsubscribe(chosen: argparse.Namespace) -> int:
    with Subscriber(load(config_path(chosen)), chosen.client) as subscriber:
        return _print(
            lambda: subscriber.withdraw(
                chosen.broker, chosen.type, chosen.id, version=chosen.version, timeout_s=chosen.timeout
            )
        )


def advertise(chosen: argparse.Namespace) -> int:
    with Advertiser(load(config_path(chosen)), chosen.publisher, client=chosen.client) as advertiser:
        request = advertiser.request(
            chosen.broker,
            chosen.type,
            chosen.filter,
            id=chosen.id,
            version=chosen.version,
            ttl_ms=_milliseconds(chosen.ttl),
        )
        return _print(lambda: request.receipt(chosen.timeout))


def unadvertise(chosen: argparse.Namespace) -> int:
    with Advertiser(load(config_path(chosen)), chosen.client) as advertiser:
        return _print(
            lambda: advertiser.withdraw(
                chosen.broker, chosen.type, chosen.id, version=chosen.version, timeout_s=chosen.timeout
            )
        )


def _milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else max(1, round(seconds * 1000))


def _print(answered: Callable[[], Receipt]) -> int:
    """Print the receipt as the JSON that it is; a refusal also as a sentence."""
    try:
        receipt = answered()
    except RefusedError as refused:
        print(refused.receipt.json(), flush=True)
        return complain(str(refused))
    print(receipt.json(), flush=True)
    return 0


def wait(chosen: argparse.Namespace) -> int:
    """Wait for the fence; say who is behind if it takes too long."""
    began = time.monotonic()
    try:
        wait_in_force(load(config_path(chosen)), chosen.timeout, client=chosen.client)
    except BehindError as error:
        if chosen.json:
            behind = [{"broker": b.broker, "deployment": b.deployment, "missing": b.missing} for b in error.behind]
            print_json({"in_force": False, "behind": behind})
        return complain(str(error))
    seconds = round(time.monotonic() - began, 3)
    if chosen.json:
        print_json({"in_force": True, "seconds": seconds, "behind": []})
    else:
        print(f"in force everywhere ({seconds:.1f} s)")
    return 0
