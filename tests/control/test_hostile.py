"""No record, however made, stops a key: each is answered, what is said fits Kafka, and the next is handled."""

from __future__ import annotations

import msgspec
import pytest

from state.config import parse
from state.control.context import Context
from state.control.handle import handle
from state.fitting import misfits, record_bytes
from state.keys import UNROUTABLE, home_key
from state.limits import OUTPUT_BYTES_MAX, PUBLISHER_BYTES_MAX
from state.messages import Record
from state.topics import Topics

CONFIG = parse(
    """
[overlay]
brokers = ["b1", "b2"]
links = [["b1", "b2"]]
[types.t]
cubes = 4
[types.t.attributes]
x = { kind = "int", min = 0, max = 100 }
"""
)
TOPICS = Topics("hilcast")
CONTEXT = Context(CONFIG, 1, 0)
HOME = home_key("b1", "t", "s1", CONFIG)
GOOD = b'{"client": "alice", "filter": "x < 5"}'


def inbox(value, key=b"b1/t/s1", offset=0, topic=TOPICS.subscriptions, headers=()):
    return Record(topic, 0, offset, 1000 + offset, key, value, headers)


def answers(result):
    """Kind and code of each receipt, then the codes of the dead letters."""
    receipts = [msgspec.json.decode(o.value) for o in result.outputs if o.topic == TOPICS.receipts]
    letters = [dict(o.headers)["hilcast_code"].decode() for o in result.outputs if o.topic == TOPICS.deadletter]
    return [(receipt["kind"], receipt["code"]) for receipt in receipts], letters


@pytest.mark.parametrize(
    "key", [b"\xff" * 600_000, b"b1/" + b"x" * 900_000, "ü".encode() * 400_000], ids=["no UTF-8", "ASCII", "long UTF-8"]
)
@pytest.mark.parametrize("value", [GOOD, b"x" * 400_000], ids=["good", "no JSON"])
def test_a_huge_key_is_answered_by_records_that_fit(key, value):
    """A key of any length and bytes gets one receipt and one dead letter, and both fit."""
    result = handle(UNROUTABLE, None, [inbox(value, key)], CONTEXT)
    assert answers(result) == ([("refused", "bad-key")], ["bad-key"])
    assert not misfits(result.outputs, TOPICS)


def test_a_letter_is_cut_value_first_then_headers_then_key():
    """What does not fit is cut in this order, and the letter says what; what has room stays."""
    small, large = ("small", b"1"), ("large", b"h" * 2_000_000)
    for record, said in [
        (inbox(b"x" * 2_000_000, b"bad", headers=(small,)), b"value"),
        (inbox(b"x" * 100, b"bad", headers=(large, small)), b"headers"),
        (inbox(b"x" * 100, b"k" * 2_000_000, headers=(large,)), b"value,headers,key"),
        (inbox(b"x" * 100, b"bad", headers=(small,)), None),
    ]:
        (letter,) = [o for o in handle(UNROUTABLE, None, [record], CONTEXT).outputs if o.topic == TOPICS.deadletter]
        assert record_bytes(letter) <= OUTPUT_BYTES_MAX
        assert dict(letter.headers).get("hilcast_truncated") == said
        assert (small in letter.headers) == (small in record.headers)
        assert record.key.startswith(letter.key)
        assert record.value.startswith(letter.value)


def test_a_publisher_has_a_name_of_bounded_length():
    """A name of 4096 bytes is taken, and all that follows from it fits; a longer one is a bad value."""
    for size, expected in [(PUBLISHER_BYTES_MAX, "accepted"), (PUBLISHER_BYTES_MAX + 1, "refused")]:
        value = msgspec.json.encode({"publisher": "p" * size, "filter": "x < 5"})
        result = handle(str(HOME), None, [inbox(value, topic=TOPICS.advertisements)], CONTEXT)
        ((kind, _),), _ = answers(result)
        assert kind == expected
    assert answers(result) == ([("refused", "bad-value")], ["bad-value"])


def test_reasons_are_cut():
    """However long a reason is, its receipt and its dead letter hold 2,000 bytes of it, whole characters all."""
    value = msgspec.json.encode({"client": "alice", "filter": {"ü" * 3000: 1}})
    result = handle(str(HOME), None, [inbox(value)], CONTEXT)
    for output in result.outputs:
        reason = dict(output.headers).get("hilcast_reason") or msgspec.json.decode(output.value)["reason"].encode()
        assert 0 < len(reason.decode().encode()) <= 2000
