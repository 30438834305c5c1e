"""From inbox records and receipts to the history of a key, case by case."""

from __future__ import annotations

import json

from producers.client.inbox import Receipt
from producers.verify.held import Held, read_receipts
from producers.verify.history import HistoryReader, read_facts, sinks
from state.config import parse
from state.control.facts import Fact, encode_fact
from state.filters.grammar import parse as parse_filter
from state.flooding import NEVER, Stand
from state.messages import Record

CONFIG = parse("""
[deployment]
prefix = "p"
[overlay]
brokers = ["b1"]
[types.t.attributes]
n = { kind = "int" }
""")
INBOX = "p.subscriptions"
DELAY_MS = 100.0
"""How long a change of these tests takes to be in force."""


class Slow:
    """A control plane in which everything is in force after a while."""

    def in_force(self, said_ms):
        return said_ms + DELAY_MS


def said(offset, at, filter="n < 5", key=b"b1/t/s1", client="alice", **more):
    value = None if filter is None else json.dumps({"client": client, "filter": filter, **more}).encode()
    return Record(INBOX, 0, offset, at, key, value)


def told(offset, at, kind, version=1, code=None):
    receipt = Receipt(kind, "b1/t/s1", version, "b1", "1.1", code, None, INBOX, 0, offset)
    return Record("p.receipts", 0, offset, at, b"alice", receipt.json().encode())


def history(records, receipts, facts=(), config=CONFIG):
    claims = HistoryReader(config, INBOX, Held(records), read_receipts(receipts), Slow(), facts).claims()
    return {(c.broker, c.type, c.id): [opened(stand) for stand in c.stands] for c in claims}


def opened(stand):
    """A stand with its filter read."""
    return stand._replace(filter=stand.filter and stand.filter())


def standing(at, text, in_force=None, client="alice", destination=None):
    force = at + DELAY_MS if in_force is None else in_force
    return Stand(at, force, client, destination or f"p.deliver.{client}", parse_filter(text, CONFIG.types["t"]))


def test_accepted_replaced_withdrawn():
    """Each answered change is a stand of its own, from its record's time on."""
    records = [said(0, 10), said(1, 20, "n > 7", client="bob", sink="shared"), said(2, 30, None)]
    receipts = [told(0, 11, "accepted"), told(1, 21, "replaced", 2), told(2, 31, "withdrawn", 3)]
    assert history(records, receipts) == {
        ("b1", "t", "s1"): [standing(10, "n < 5"), standing(20, "n > 7", None, "bob", "shared"), Stand(30, 130)]
    }


def test_refused_changes_nothing():
    """A refused event, and one whose key cannot be read, leave no trace."""
    records = [said(0, 10), said(1, 20, "n <"), said(2, 30, key=b"nonsense")]
    receipts = [told(0, 11, "accepted"), told(1, 21, "refused", None, "filter-syntax")]
    assert history(records, receipts) == {("b1", "t", "s1"): [standing(10, "n < 5")]}


def test_the_same_event_again_extends_nothing():
    """A repeat is answered as accepted with the version that stands: neither a new stand nor a new time to live."""
    records = [said(0, 10, ttl_ms=50, version=4), said(1, 40, ttl_ms=50, version=4)]
    receipts = [told(0, 11, "accepted", 4), told(1, 41, "accepted", 4), told(0, 62, "expired", 4)]
    assert history(records, receipts) == {("b1", "t", "s1"): [standing(10, "n < 5"), Stand(60, 162)]}


def test_a_repeat_of_what_has_ended_revives_nothing():
    """The very same event after its expiry is answered as expired."""
    records = [said(0, 10, ttl_ms=5, version=4), said(1, 40, ttl_ms=5, version=4)]
    receipts = [told(0, 11, "accepted", 4), told(0, 16, "expired", 4), told(1, 41, "expired", 4)]
    assert history(records, receipts)["b1", "t", "s1"] == [standing(10, "n < 5"), Stand(15, 116)]


def test_an_event_without_an_answer_may_be_in_force_and_never_certainly():
    """It may have reached the index before its receipt was written."""
    records = [said(0, 10), said(1, 20, "n > 7"), said(2, 30, None)]
    assert history(records, [told(0, 11, "accepted")]) == {
        ("b1", "t", "s1"): [standing(10, "n < 5"), standing(20, "n > 7", NEVER), Stand(30, NEVER)]
    }


def test_its_time_may_be_up_before_the_receipt_says_so():
    """Without the receipt of its expiry a subscription may have ended when its time was up, or may stand."""
    assert history([said(0, 10, ttl_ms=5)], [told(0, 11, "accepted")])["b1", "t", "s1"] == [
        standing(10, "n < 5"),
        Stand(15, NEVER),
    ]


def test_a_replacement_in_time_prevents_the_expiry():
    """What is replaced before its time is up does not expire then; what is replaced later may have, for a while."""
    records = [said(0, 10, ttl_ms=50), said(1, 40, "n > 7")]
    receipts = [told(0, 11, "accepted"), told(1, 41, "replaced", 2)]
    assert history(records, receipts)["b1", "t", "s1"] == [standing(10, "n < 5"), standing(40, "n > 7")]
    late = [said(0, 10, ttl_ms=20), said(1, 40, "n > 7")]
    assert history(late, receipts)["b1", "t", "s1"] == [
        standing(10, "n < 5"),
        Stand(30, NEVER),
        standing(40, "n > 7"),
    ]


def test_a_clock_that_is_ahead_may_expire_early():
    """An expiry that was told before its time counts from when it was told."""
    receipts = [told(0, 11, "accepted"), told(0, 50, "expired")]
    assert history([said(0, 10, ttl_ms=60)], receipts)["b1", "t", "s1"][1] == Stand(50, 150)


def test_what_a_configuration_made_dormant_may_stand_or_not():
    """A refusal after the acceptance tells of a changed configuration; from then on either is possible."""
    receipts = [told(0, 11, "accepted"), told(0, 99, "refused", 1, "filter-attribute")]
    assert history([said(0, 10)], receipts)["b1", "t", "s1"] == [standing(10, "n < 5"), Stand(10, NEVER)]


def test_a_filter_that_cannot_be_read_any_more_is_unknown():
    """An attribute that the configuration no longer has leaves the owner known and the filter not."""
    found = history([said(0, 10, "gone = 1")], [told(0, 11, "accepted")])["b1", "t", "s1"]
    assert found == [Stand(10, 110, "alice", "p.deliver.alice", None)]
    elsewhere = history([said(0, 10, key=b"b9/t/s1")], [told(0, 11, "accepted")])["b9", "t", "s1"]
    assert elsewhere == [Stand(10, 110, "alice", "p.deliver.alice", None)]


def fact_of(offset, at, live=True, filter='"n < 5"', **more):
    made = {"version": 1, "owner": "alice", "filter": filter, "ttl_ms": None, "expires_ms": None, "sink": None}
    made |= {"content": b"", "topic": INBOX, "partition": 0, "offset": offset, "timestamp_ms": at, "live": live}
    return made | more


def fact(*place, **more):
    return encode_fact(Fact(**fact_of(*place, **more)))


def test_of_an_inbox_that_was_made_again_the_registry_tells_what_was_before():
    """Its offsets count from 0 again, so that facts and receipts of both name the same places; none is mistaken."""

    def other(offset, at, kind):
        receipt = Receipt(kind, "b1/t/s2", 1, "b1", "1.1", None, None, INBOX, 0, offset)
        return Record("p.receipts", 0, 90 + offset, at, b"alice", receipt.json().encode())

    facts = [
        ("subscription", ("b1", "t", "s1"), Fact(**fact_of(0, 10))),
        ("subscription", ("b1", "t", "s2"), Fact(**fact_of(1, 15, ttl_ms=50, expires_ms=65))),
        ("subscription", ("b1", "t", "s1"), Fact(**fact_of(7, 20, filter='"n > 7"', version=2))),
        ("subscription", ("b1", "t", "s1"), Fact(**fact_of(1, 60, filter='"n = 3"', version=4))),
    ]
    records = [said(0, 50, "n = 2"), said(1, 60, "n = 3")]
    receipts = [told(0, 11, "accepted"), other(1, 16, "accepted"), told(7, 30, "replaced", 2)]
    receipts += [told(0, 51, "replaced", 3), told(1, 61, "replaced", 4), other(1, 70, "expired")]
    found = history(records, receipts, facts)
    unknown = Stand(-NEVER, -NEVER, "alice", "p.deliver.alice")
    assert found["b1", "t", "s1"] == [
        unknown,
        standing(10, "n < 5", 111),
        standing(20, "n > 7", 130),
        standing(50, "n = 2"),
        standing(60, "n = 3"),
    ]
    assert found["b1", "t", "s2"] == [unknown, standing(15, "n < 5", 116), Stand(65, 170)]


def test_what_an_inbox_that_is_gone_held_and_nobody_answered_is_never_certain():
    """When it was read is not known; and of an inbox that was made again nothing may be held yet."""
    facts = [("subscription", ("b1", "t", "s1"), Fact(**fact_of(4, 10)))]
    assert history([], [], facts)["b1", "t", "s1"][1:] == [standing(10, "n < 5", NEVER)]
    assert history([], [told(4, 30, "accepted")], facts)["b1", "t", "s1"][1:] == [standing(10, "n < 5", 130)]


def test_the_registry_fills_in_what_kafka_has_deleted():
    """Facts older than the inbox count, with the unknown before them; younger ones are the inbox's own affair."""
    registry = [
        Record("p.registry", 0, 0, 11, b"subscription/b1/t/s1", fact(3, 10, expires_ms=60)),
        Record("p.registry", 0, 1, 12, b"subscription/b1/t/s2", fact(4, 12, live=False)),
        Record("p.registry", 0, 2, 13, b"subscription/b1/t/s3", fact(9, 30)),
        Record("p.registry", 0, 3, 14, b"advertisement/b1/t/s4", fact(2, 5)),
        Record("p.registry", 0, 4, 15, b"generation/main", b'{"generation": 1}'),
        Record("p.registry", 0, 5, 16, b"subscription/b1/t/s5", None),
    ]
    records = [said(9, 30, key=b"b1/t/s3")]
    found = history(records, [told(9, 31, "accepted")], read_facts(registry))
    unknown = Stand(-NEVER, -NEVER, "alice", "p.deliver.alice", None)
    assert found == {
        ("b1", "t", "s1"): [unknown, standing(10, "n < 5"), Stand(60, NEVER)],
        ("b1", "t", "s2"): [unknown, Stand(12, 112)],
        ("b1", "t", "s3"): [standing(30, "n < 5")],
    }


def test_receipts_that_are_none_are_passed_over():
    """Whatever else stands on the receipts topic is not taken for an answer."""
    strange = [Record("p.receipts", 0, i, 5, None, value) for i, value in enumerate((None, b"{}", b"[", b"[1]"))]
    assert not read_receipts(strange)


def test_sinks_are_the_further_destinations():
    """Only what a readable subscription names."""
    records = [said(0, 1, sink="shared"), said(1, 2), said(2, 3, None), said(3, 4, sink="p.deliver.x")]
    assert sinks(CONFIG, records) == {"shared"}
