"""Destinations are judged before a subscription is accepted, and not again afterwards."""

from __future__ import annotations

import json

import msgspec

from state.config import parse
from state.control.context import Context
from state.control.handle import handle
from state.messages import Record

CONFIG = parse("""
[overlay]
brokers = ["b1"]
links = []
[types.t]
cubes = 2
[types.t.attributes]
x = { kind = "int" }
""")
KEY = "b1/t/home:0"


class Judge:
    """Refuses what it is told to refuse, and notes what it was asked."""

    def __init__(self, *refused):
        self.refused, self.asked = set(refused), []

    def __call__(self, topic):
        self.asked.append(topic)
        return "no" if topic in self.refused else None


def sent(offset, id="s1", **value):
    value = {"client": "alice", "filter": "x > 5", **value}
    topic = CONFIG.topics.subscriptions
    return Record(topic, 0, offset, 1000, f"b1/t/{id}".encode(), json.dumps(value).encode())


def handled(judge, state, *records):
    result = handle(KEY, state, list(records), Context(CONFIG, 1, 1, destinations=judge))
    receipts = [json.loads(o.value) for o in result.outputs if o.topic == CONFIG.topics.receipts]
    letters = [dict(o.headers)["hilcast_code"] for o in result.outputs if o.topic == CONFIG.topics.deadletter]
    facts = [o for o in result.outputs if o.topic == CONFIG.topics.registry]
    return result, [(r["kind"], r["code"]) for r in receipts], letters, facts


def test_a_sink_that_cannot_be_written_is_refused():
    """Receipt and dead letter with `sink-refused`, no fact, nothing to create; the next subscription is accepted."""
    judge = Judge("alerts.eu")
    result, receipts, letters, facts = handled(judge, None, sent(0, sink="alerts.eu"), sent(1, "s2", sink="alerts_eu"))
    assert receipts == [("refused", "sink-refused"), ("accepted", None)]
    assert letters == [b"sink-refused"]
    assert [o.key for o in facts] == [b"subscription/b1/t/s2"]
    assert result.topics == {"alerts_eu"}


def test_delivery_topics_are_judged_like_sinks():
    """A client whose own topic cannot be is refused, too; an advertisement has no destination."""
    judge = Judge("hilcast.deliver.alice")
    assert handled(judge, None, sent(0))[1] == [("refused", "sink-refused")]
    advertised = msgspec.structs.replace(sent(0, publisher="p"), topic=CONFIG.topics.advertisements)
    judge.asked.clear()
    handled(judge, None, advertised)
    assert judge.asked == []


def test_what_was_accepted_is_not_judged_again():
    """A replay, a repeat and a new filter to the same destination ask nothing; another destination is judged, and if it
    is refused the old filter stands.
    """
    judge = Judge()
    first, *_ = handled(judge, None, sent(0, sink="a", version=1))
    assert judge.asked == ["a"]
    judge.refused = {"a", "b"}
    for record in (sent(0, sink="a", version=1), sent(1, sink="a", version=1)):
        assert handled(judge, first.state, record)[1] == [("accepted", None)]
    assert handled(judge, first.state, sent(2, sink="a", filter="x > 9"))[1] == [("replaced", None)]
    assert judge.asked == ["a"]
    result, receipts, *_ = handled(judge, first.state, sent(3, sink="b"))
    assert receipts == [("refused", "sink-refused")]
    assert result.topics == set()


def test_a_bad_filter_asks_nobody():
    """What is refused anyway creates no topic."""
    judge = Judge()
    assert handled(judge, None, sent(0, sink="a", filter="x >"))[1] == [("refused", "filter-syntax")]
    assert judge.asked == []
