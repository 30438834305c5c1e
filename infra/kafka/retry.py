"""Calls to Kafka that may fail for a moment: a leader that has just been chosen, a coordinator that is loading."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from confluent_kafka import KafkaException

from state.errors import HilcastError

T = TypeVar("T")


def retried(call: Callable[[], T], timeout_s: float = 30.0) -> T:
    """Repeat `call` until it succeeds; after `timeout_s` its last error is raised.

    That is a `KafkaException` or `kafka-away`; any other error is not one of a moment, and is raised at once.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return call()
        except KafkaException:
            if time.monotonic() > deadline:
                raise
        except HilcastError as error:
            if error.code != "kafka-away" or time.monotonic() > deadline:
                raise
        time.sleep(0.2)
