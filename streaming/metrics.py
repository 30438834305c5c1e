"""Live figures as Prometheus text, and health, on a port of the driver if `[settings] metrics_port` is set."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import redis

from state.config import Config
from streaming.health import LIVE, READY, Health

Sample = tuple[str, dict[str, str], float]

HELP = {
    "events_routed_total": "publications routed",
    "events_unmatched_total": "publications that matched nobody",
    "copies_total": "deliveries written",
    "link_copies_total": "publications that crossed a link",
    "link_wasted_total": "publications that crossed a link for nothing",
    "dead_letters_total": "publications refused",
    "waiting_total": "publications set aside until their schema can be had",
    "internal_total": "inputs whose handling failed inside: a bug of ours each",
    "forged_total": "control and registry records and index entries that nobody of ours has signed",
    "control_messages_total": "entries and ranges sent to neighbours",
    "control_messages_offered_total": "entries and ranges that would have been sent without reductions",
    "control_messages_saved": "the latter without the former; below 0 where reductions took more than they saved",
    "refused_total": "control events refused because of who sent them or how many, by code",
    "prunings_total": "filters that were pruned for neighbours, by kind",
    "distribution_messages_total": "messages that a broker with groups sent, by method",
    "distribution_saved_total": "copies that one message for several clients saved, by method",
    "distribution_discarded_total": "copies that readers of shared topics threw away, by method",
    "distribution_spared_total": "copies that readers of a group were spared, by unicast instead",
    "undeliverable_total": "deliveries that became dead letters, because their destination takes nothing now",
    "quarantined_total": "records that a query could not be got past: a bug of ours each",
    "lost_total": "records that Kafka deleted before a query, or who waits for schemas, had read them",
    "entries_touched_total": "entries of parts that changes were about, at each broker that they reached",
    "state_bytes_read_total": "bytes of parts' states that were unpacked; what a worker has kept is not",
    "state_bytes_written_total": "bytes of parts' states that were packed",
    "index_bytes_written_total": "bytes of the index that were written to Redis",
    "own_index_total": "workers that made an index of their own: no room for a shared one, or who builds it is stopped",
    "batch_seconds": "duration of the last batch",
    "lag": "records not read yet",
}
_NAMES = {
    "routed": "events_routed_total",
    "unmatched": "events_unmatched_total",
    "copies": "copies_total",
    "dead_letters": "dead_letters_total",
    "waiting": "waiting_total",
    "internal": "internal_total",
    "forged": "forged_total",
    "undeliverable": "undeliverable_total",
    "entries_sent": "control_messages_total",
    "entries_offered": "control_messages_offered_total",
    "entries_touched": "entries_touched_total",
    "state_bytes_read": "state_bytes_read_total",
    "state_bytes_written": "state_bytes_written_total",
    "index_bytes_written": "index_bytes_written_total",
    "own_index": "own_index_total",
}
_LINKS = {"link": "link_copies_total", "link_wasted": "link_wasted_total"}


def samples(figures: dict[str, str]) -> Iterable[Sample]:
    """Figures of the running job as samples.

    >>> found = list(samples({"routed": "7", "link:b1>b2": "3", "distribution:b1:group_saved": "5"}))
    >>> [sample for sample in found if sample[2]]  # doctest: +NORMALIZE_WHITESPACE
    [('events_routed_total', {}, 7.0), ('distribution_saved_total', {'broker': 'b1', 'method': 'group'}, 5.0),
     ('link_copies_total', {'link': 'b1>b2'}, 3.0)]
    """
    # a counter is there from its 0 on, so that its first increase can be seen
    for name, metric in _NAMES.items():
        yield metric, {}, float(figures.get(name, 0))
    offered, sent = (float(figures.get(name, 0)) for name in ("entries_offered", "entries_sent"))
    yield "control_messages_saved", {}, offered - sent
    for name, text in sorted(figures.items()):
        kind, _, what = name.partition(":")
        if kind in _LINKS:
            yield _LINKS[kind], {"link": what}, float(text)
        elif kind == "pruned":
            yield "prunings_total", {"kind": what}, float(text)
        elif kind == "refused":
            yield "refused_total", {"code": what}, float(text)
        elif kind in ("lost", "quarantined"):
            yield f"{kind}_total", {"query": what}, float(text)
        elif kind == "distribution":
            broker, _, counted = what.partition(":")
            method, _, figure = counted.partition("_")
            yield f"distribution_{figure or 'messages'}_total", {"broker": broker, "method": method}, float(text)
        elif kind in ("batch_seconds", "lag"):
            yield kind, {"query": what}, float(text)


def render(found: Iterable[Sample], deployment: str) -> str:
    """Prometheus text.

    >>> print(render([("copies_total", {}, 3.0)], "main"), end="")
    # HELP hilcast_copies_total deliveries written
    # TYPE hilcast_copies_total counter
    hilcast_copies_total{deployment="main"} 3
    """
    by_name: dict[str, list[tuple[dict[str, str], float]]] = {}
    for name, labels, value in found:
        by_name.setdefault(name, []).append((labels, value))
    lines = []
    for name, values in by_name.items():
        kind = "counter" if name.endswith("_total") else "gauge"
        lines += [f"# HELP hilcast_{name} {HELP[name]}", f"# TYPE hilcast_{name} {kind}"]
        for labels, value in values:
            text = ",".join(f'{k}="{v}"' for k, v in {"deployment": deployment, **labels}.items())
            lines.append(f"hilcast_{name}{{{text}}} {int(value) if value.is_integer() else value}")
    return "\n".join(lines) + "\n"


class MetricsServer:
    """Answers GET /metrics, /live and /ready on loopback, or where it is told to listen.

    503 while Redis, which has the figures, is away, or the job is not as `health.py` says it should; else 404.
    """

    def __init__(self, config: Config, figures: Callable[[], dict[str, str]], health: Health) -> None:
        deployment = config.deployment.name

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path == "/metrics":
                    self._metrics()
                elif self.path in (LIVE, READY):
                    is_well, said = health.answer(self.path)
                    self._say(200 if is_well else 503, "application/json", json.dumps(said) + "\n")
                else:
                    self.send_error(404)

            def _metrics(self) -> None:
                try:
                    now = figures()
                except redis.RedisError as error:
                    self.send_error(503, f"redis-away ({type(error).__name__})")
                    return
                self._say(200, "text/plain; version=0.0.4", render(samples(now), deployment))

            def _say(self, status: int, kind: str, text: str) -> None:
                body = text.encode()
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                return None

        self._server = ThreadingHTTPServer((config.settings.metrics_host, config.settings.metrics_port or 0), Handler)
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
