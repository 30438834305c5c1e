"""The server: a page and its files, one stream per page, and answers to what is asked.

Slow work (Redis, Kafka, geometry) is done in threads, `THREADS` at a time whatever the number of viewers.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import anyio
import anyio.to_thread
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from producers.console import asking, views
from producers.console.acting import act
from producers.console.doorkeeper import COOKIE, SAFE, Doorkeeper
from producers.console.poller import Poller
from state.config import Config
from state.errors import HilcastError

T = TypeVar("T")

STATIC = Path(__file__).parent / "static"
THREADS = 3
VIEWERS_MAX = 50
BODY_MAX = 200_000
MINUTES = 10.0
STREAM_S = 0.25
"""How often a stream looks whether the poller has news."""


class Console:
    """What answers; one for a running `hilcast ui`."""

    def __init__(self, poller: Poller, door: Doorkeeper, client: str | None, ending: Callable[[], bool]) -> None:
        self.poller, self.door = poller, door
        self._ending = ending
        self.client = client
        """Who acts, with `--write`; None: nobody."""
        self._limit: anyio.CapacityLimiter | None = None
        self._verifying = asyncio.Lock()
        self._viewers = 0

    @property
    def config(self) -> Config:
        """As it is in force."""
        return self.poller.known.config

    async def _in_thread(self, work: Callable[[], T]) -> T:
        if self._limit is None:
            self._limit = anyio.CapacityLimiter(THREADS)
        return await anyio.to_thread.run_sync(work, limiter=self._limit)

    def _reading(self, work: Callable[[], T]) -> T:
        """Do something with what the poller knows, while it does not change."""
        with self.poller.lock:
            return work()

    # ── the stream ──────────────────────────────────────────────────────────────────────────────────────────────

    async def stream(self, request: Request) -> Response:
        if self._viewers >= VIEWERS_MAX:
            return PlainTextResponse(f"{VIEWERS_MAX} pages look already", 503)
        return StreamingResponse(self._events(), media_type="text/event-stream")

    async def _events(self) -> AsyncIterator[str]:
        self._viewers += 1
        sent: dict[str, int] | None = None
        seen = -1
        try:
            with self.poller.watched():
                greeted: Config | None = None
                while not self._ending():
                    if greeted is not self.config:
                        greeted, sent, seen = self.config, None, -1
                        greeting = views.hello(greeted, write=self.client is not None, client=self.client)
                        yield _event("hello", greeting | {"page": self.door.page})
                    if self.poller.known.seq not in (0, seen):
                        seen = self.poller.known.seq
                        told = await self._in_thread(partial(self._live, sent))
                        sent = sent or {}
                        for kind, items in told["items"].items():
                            if items:
                                sent[kind] = items[-1]["n"]
                        yield _event("live", told)
                    await asyncio.sleep(STREAM_S)
        finally:
            self._viewers -= 1

    def _live(self, sent: dict[str, int] | None) -> dict[str, Any]:
        return self._reading(lambda: views.live(self.poller.known, self.poller.links, sent))

    # ── what is asked ───────────────────────────────────────────────────────────────────────────────────────────

    async def broker(self, request: Request) -> Response:
        name = request.path_params["broker"]
        return await self._answer(lambda: self._reading(lambda: views.broker_view(self.poller.known, name)))

    async def link(self, request: Request) -> Response:
        a, b = request.path_params["a"], request.path_params["b"]
        known, links = self.poller.known, self.poller.links
        return await self._answer(lambda: self._reading(lambda: views.link_view(known, links, a, b)))

    async def space(self, request: Request) -> Response:
        asked = dict(request.query_params)

        def draw() -> dict[str, Any]:
            plane = self._reading(
                lambda: asking.plane_of(
                    self.poller.known, asked.get("type", ""), asked.get("x", ""), asked.get("y", ""), asked.get("pin")
                )
            )
            broker, neighbour = asked.get("broker") or None, asked.get("neighbour") or None
            return asking.space(self.config, plane, self.poller.source.index, broker, neighbour)

        return await self._answer(draw)

    async def filter(self, request: Request) -> Response:
        asked = await _body(request)
        names = [str(asked.get(name, "")) for name in ("type", "filter", "x", "y")]

        def judge() -> dict[str, Any]:
            events = self._reading(lambda: list(self.poller.known.events.values()))
            return asking.judge_filter(self.config, events, *names)

        return await self._answer(judge)

    async def event(self, request: Request) -> Response:
        asked = await _body(request)
        known = self.poller.known

        def follow() -> dict[str, Any]:
            event = self._reading(lambda: asking.read_asked(known, asked))
            return asking.follow(self.config, self.poller.source.index, event)

        return await self._answer(follow)

    async def why(self, request: Request) -> Response:
        asked = await _body(request)
        known = self.poller.known

        def explain() -> dict[str, Any]:
            event = self._reading(lambda: asking.read_asked(known, asked))
            key = str(asked.get("subscription", ""))
            subscription, advertisements = self._reading(lambda: asking.parties(known, event, key))
            return asking.why(self.config, self.poller.source.index, event, subscription, advertisements)

        return await self._answer(explain)

    async def verify(self, request: Request) -> Response:
        asked = await _body(request)
        given = asked.get("minutes")
        minutes = min(max(given if isinstance(given, int | float) else MINUTES, 0.1), 10_000.0)
        if self._verifying.locked():
            return _refused(HilcastError("busy", "a verdict is being reached already"), 409)
        async with self._verifying:
            return await self._answer(lambda: asking.verdict(self.config, minutes))

    async def act(self, request: Request) -> Response:
        if self.client is None:
            return _refused(HilcastError("read-only", "start the console with --write to let it act"), 403)
        client, what, asked = self.client, request.path_params["what"], await _body(request)
        return await self._answer(lambda: act(self.config, client, what, asked))

    async def _answer(self, work: Callable[[], dict[str, Any]]) -> Response:
        try:
            return _json(await self._in_thread(work))
        except HilcastError as error:
            return _refused(error, 400)

    async def page(self, request: Request) -> Response:
        return Response((STATIC / "index.html").read_bytes(), media_type="text/html")


def _event(name: str, value: object) -> str:
    return f"event: {name}\ndata: {_text(value)}\n\n"


def _json(value: object) -> Response:
    return Response(_text(value), media_type="application/json")


def _text(value: object) -> str:
    # an event may hold half characters, which only Python's own writer can write
    return json.dumps(value, separators=(",", ":"))


def _refused(error: HilcastError, status: int) -> Response:
    return JSONResponse({"code": error.code, "reason": error.reason}, status_code=status)


async def _body(request: Request) -> dict[str, Any]:
    """The JSON object of a request; nothing where it is none, or too long."""
    given = b""
    async for chunk in request.stream():
        given += chunk
        if len(given) > BODY_MAX:
            return {}
    try:
        value = json.loads(given or b"{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


class Guarded:
    """Asks the doorkeeper before anything else; every answer carries the headers that keep a page to itself."""

    def __init__(self, app: ASGIApp, door: Doorkeeper) -> None:
        self._app, self._door = app, door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)

        async def sending(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [
                    *message["headers"],
                    *((name.lower().encode(), value.encode()) for name, value in SAFE.items()),
                ]
            await send(message)

        cookie = request.cookies.get(COOKIE)
        given = request.query_params.get("token")
        refusal = self._door.refusal(request.method, request.headers, cookie)
        answer: Response | None = None
        if refusal is not None and refusal[0] == 401 and self._door.admits(given):
            answer = RedirectResponse("/", 303)
            answer.set_cookie(COOKIE, given or "", httponly=True, samesite="strict")
        elif refusal is not None:
            answer = PlainTextResponse(refusal[1], refusal[0])
        await (self._app if answer is None else answer)(scope, receive, sending)


def application(
    poller: Poller,
    door: Doorkeeper,
    client: str | None = None,
    ending: Callable[[], bool] = lambda: False,
) -> ASGIApp:
    """Everything, as ASGI. Streams last until `ending`, or until whoever looks has gone."""
    console = Console(poller, door, client, ending)

    @contextlib.asynccontextmanager
    async def life(app: Starlette) -> AsyncIterator[None]:
        yield
        await anyio.to_thread.run_sync(poller.close)

    routes = [
        Route("/", console.page),
        Route("/api/stream", console.stream),
        Route("/api/broker/{broker}", console.broker),
        Route("/api/link/{a}/{b}", console.link),
        Route("/api/space", console.space),
        Route("/api/filter", console.filter, methods=["POST"]),
        Route("/api/event", console.event, methods=["POST"]),
        Route("/api/why", console.why, methods=["POST"]),
        Route("/api/verify", console.verify, methods=["POST"]),
        Route("/api/act/{what}", console.act, methods=["POST"]),
        Mount("/static", StaticFiles(directory=STATIC)),
    ]
    return Guarded(Starlette(routes=routes, lifespan=life), door)
