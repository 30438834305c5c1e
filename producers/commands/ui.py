"""`ui`: the console in the browser, until Ctrl-C."""

from __future__ import annotations

import argparse
import contextlib
import secrets
import socket

import uvicorn

from producers.cli import config_path
from producers.console.doorkeeper import Doorkeeper, is_loopback
from producers.console.live_source import open_source
from producers.console.poller import Poller
from producers.console.server import application
from state.config import Config, load
from state.errors import HilcastError
from state.names import NAME


def ui(chosen: argparse.Namespace) -> int:
    """Serve the console; 0 when it is told to stop."""
    if chosen.write and not NAME.fullmatch(chosen.client or ""):
        raise HilcastError("bad-value", "--write needs --client NAME, as whom the page subscribes and publishes")
    token = chosen.token
    if token is None and not is_loopback(chosen.host):
        token = secrets.token_urlsafe(24)
    serve(load(config_path(chosen)), chosen.host, chosen.port, token, chosen.client if chosen.write else None)
    return 0


def serve(config: Config, host: str, port: int, token: str | None, client: str | None) -> None:
    """Serve until a signal comes; says where, once it can be reached."""
    listening = _listen(host, port)
    door = Doorkeeper(host, token)
    source = open_source(config)
    poller = Poller(source, source.configuration())
    address = f"[{host}]" if ":" in host else host
    query = "" if token is None else f"?token={token}"
    mode = f"writes as {client}" if client else "read-only"
    print(f"console at http://{address}:{listening.getsockname()[1]}/{query} ({mode}; Ctrl-C ends it)", flush=True)
    settings = uvicorn.Config(
        application(poller, door, client, ending=lambda: server.should_exit),
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=2,
        server_header=False,
    )
    server = uvicorn.Server(settings)
    with contextlib.suppress(KeyboardInterrupt):  # how one ends it
        server.run(sockets=[listening])


def _listen(host: str, port: int) -> socket.socket:
    """A socket on the address, so that it is known before anything is printed whether it is free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        raise HilcastError("address", f"cannot serve at {host}:{port}: {error.strerror}; see --port") from error
    return listening
