"""Which topics the route query reads, with Spark made by hand."""

from __future__ import annotations

from types import SimpleNamespace

from state.config import parse
from streaming import queries
from streaming.boot import Boot
from streaming.checkpoint import Generation
from streaming.queries import Queries

CONFIG = parse("""
[overlay]
brokers = ["b1"]
links = []
[types.t.attributes]
x = { kind = "int" }
[[sources]]
pattern = "orders.*"
broker = "b1"
type = "t"
""")


class Query:
    """A query that runs until it is stopped."""

    def __init__(self):
        self.isActive = True

    def stop(self):
        self.isActive = False


def test_the_route_query_is_started_anew_when_its_topics_change(monkeypatch):
    """It begins at once, where its group stands on the new set, with a checkpoint of its own; else it is left alone."""
    started = []

    def begin(spark, boot, starting, checkpoint):
        started.append(([source.topic for source in boot.config.sources], starting, checkpoint))
        return Query()

    monkeypatch.setattr(queries.route, "start", begin)
    monkeypatch.setattr(queries.control, "start", lambda *given: Query())
    context = SimpleNamespace(setLocalProperty=lambda name, value: None, environment={})
    made = Queries(
        SimpleNamespace(sparkContext=context),
        Boot(CONFIG, 1),
        Generation(1, "", "{}"),
        SimpleNamespace(control=lambda n: "", route=lambda topics: f"of {len(topics)}"),
        SimpleNamespace(resume=lambda query, topics: ",".join(topics)),
    )
    made.start()
    own = CONFIG.topics.publications
    for cluster in (set(), {"orders.de"}, {"orders.de", "else"}, {"orders.de", "orders.fr"}, {"orders.fr"}):
        made.follow(CONFIG.with_topics(cluster))
        made.restart_failed()
        assert made.all_run()
    assert started == [
        ([], own, "of 1"),
        (["orders.de"], f"{own},orders.de", "of 2"),
        (["orders.de", "orders.fr"], f"{own},orders.de,orders.fr", "of 3"),
        (["orders.fr"], f"{own},orders.fr", "of 2"),
    ]
