"""A console on any source, and a real browser to look at it: Chromium, where it is found, driven by playwright."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import threading

import uvicorn

from producers.console.doorkeeper import Doorkeeper
from producers.console.poller import Poller
from producers.console.server import application

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
FLAGS += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
TIMEOUT_MS = 60_000
"""A busy machine may take its time."""


def chromium() -> str | None:
    """Where Chromium is: HILCAST_CHROMIUM, else the first of its names on the path."""
    return os.environ.get("HILCAST_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


@contextlib.contextmanager
def launched():
    """A browser."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()


@contextlib.contextmanager
def opened(browser, scheme="light", size=(1280, 800), motion="no-preference"):
    """A page; what its console says as an error is kept in `page.faults`."""
    context = browser.new_context(
        color_scheme=scheme, viewport={"width": size[0], "height": size[1]}, reduced_motion=motion
    )
    context.set_default_timeout(TIMEOUT_MS)
    page = context.new_page()
    page.faults = []
    page.on("pageerror", lambda error: page.faults.append(str(error)))
    page.on("console", lambda said: page.faults.append(said.text) if said.type == "error" else None)
    try:
        yield page
    finally:
        context.close()


@contextlib.contextmanager
def served(source, client=None, door=None):
    """A console on a source, on a free port of loopback; its address."""
    listening = socket.create_server(("127.0.0.1", 0))
    poller = Poller(source, source.config)
    door = door or Doorkeeper("127.0.0.1", None)
    app = application(poller, door, client, ending=lambda: server.should_exit)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False, timeout_graceful_shutdown=2))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(10)
