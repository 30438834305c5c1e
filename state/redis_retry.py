"""Calls to Redis that may fail for a moment: it is away, full, read-only, loading, or another one takes its place."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import TypeVar

import redis

T = TypeVar("T")

_PASSING = (
    *("READONLY", "OOM", "NOAUTH", "WRONGPASS", "NOPERM", "LOADING", "MASTERDOWN", "MISCONF", "NOREPLICAS"),
    *("CLUSTERDOWN", "TRYAGAIN", "BUSY"),
)
"""Words by which a Redis refuses that another one, or the same a while later, will not refuse."""


def redis_retried(call: Callable[[], T], *, say: Callable[[str], None], first_wait_s: float = 0.2) -> T:
    """Repeat `call` until Redis does it: while it is away, full, read-only or loading the caller waits, and says so."""
    wait_s, told = first_wait_s, ""
    while True:
        try:
            done = call()
            if told:
                say("redis is back")
            return done
        except redis.RedisError as error:
            if not passing(error):
                raise
            if trouble(error) != told:
                told = trouble(error)
                say(f"redis is away, waiting for it: {told}")
            time.sleep(wait_s)
            wait_s = min(wait_s * 1.5, 2.0)


def passing(error: redis.RedisError) -> bool:
    """Whether this trouble is of a moment, or of one Redis among several: to wait and to connect anew may end it.

    >>> passing(redis.TimeoutError()), passing(redis.ResponseError("OOM command not allowed"))
    (True, True)
    >>> passing(redis.ResponseError("ERR @user_script: 10: -READONLY You can't write against a read only replica."))
    True
    >>> passing(redis.ResponseError("WRONGTYPE Operation against a key"))
    False
    """
    if isinstance(error, redis.ConnectionError | redis.TimeoutError):
        return True
    return isinstance(error, redis.ResponseError) and trouble(error) != type(error).__name__


def trouble(error: redis.RedisError) -> str:
    """One word for what is wrong: Redis's own, if it is one that is known."""
    found = [word for word in _PASSING if re.search(rf"(^|-){word}\b", str(error))]
    return found[0] if found else type(error).__name__
