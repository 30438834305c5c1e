"""Addresses of local services: only loopback, and only ports that are free."""

from __future__ import annotations

import random
import socket

from state.errors import HilcastError

_LOOPBACK = {"127.0.0.1": "127.0.0.1", "localhost": "127.0.0.1", "::1": "::1"}
# Below the range from which kernels take ports for outgoing connections, or one of those may come between.
_PORTS = range(20000, 30000)
_draw = random.SystemRandom()
_given: set[int] = set()


def free_port() -> int:
    """Return a port of loopback that nobody listens on, never the same twice in one process."""
    for _ in range(len(_PORTS)):
        port = _draw.choice(_PORTS)
        if port not in _given and not taken("127.0.0.1", port):
            _given.add(port)
            return port
    raise HilcastError("port-taken", f"no free port between {_PORTS.start} and {_PORTS.stop - 1}")


def taken(host: str, port: int) -> bool:
    """Return whether a service could not listen on this address now."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        # As servers do: connections of an earlier run that still linger are no obstacle.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return True
    return False


def answers(host: str, port: int) -> bool:
    """Return whether somebody accepts connections there."""
    try:
        with socket.create_connection((host, port), timeout=1):
            return True
    except OSError:
        return False


def loopback(host: str, what: str) -> str:
    """Return the numeric loopback address, or raise `not-local`: nothing is started that others can reach.

    >>> loopback("localhost", "kafka")
    '127.0.0.1'
    """
    if host not in _LOOPBACK:
        raise HilcastError(
            "not-local",
            f"deployment.{what} is at {host!r}, not on this machine: start it there, or set its address to 127.0.0.1",
        )
    return _LOOPBACK[host]


def split(address: str, what: str) -> tuple[str, int]:
    """Return host and port of one `host:port`.

    >>> split("127.0.0.1:9092", "kafka"), split("[::1]:9092", "kafka")
    (('127.0.0.1', 9092), ('::1', 9092))
    """
    host, colon, port = address.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536 or "," in address:
        raise HilcastError("not-local", f"deployment.{what} is {address!r}: a local one needs exactly one HOST:PORT")
    return host.strip("[]"), int(port)


def require_free(host: str, port: int, what: str) -> None:
    """Raise `port-taken` with what to do if somebody is there."""
    if taken(host, port):
        raise HilcastError(
            "port-taken",
            f"{host}:{port} is in use by another program, so {what} cannot start there: stop that program, or"
            f" set deployment.{what} to another port (if it is the {what} you mean to use, nothing needs to"
            " be started)",
        )
