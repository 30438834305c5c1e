"""Which delivery topics are removed: never one that somebody may still read or be served by."""

from __future__ import annotations

from itertools import product

from state.config import parse
from state.control.facts import Fact
from state.idle_topics import HOUR_MS, idle

CONFIG = parse("""
[settings]
idle_topic_hours = 200
tombstone_hours = 300
[overlay]
brokers = ["b1", "b2"]
links = [["b1", "b2"]]
[types.t.attributes]
x = { kind = "int" }
""")
NOW = 1000 * HOUR_MS


def fact(owner, live, at_h, expires_h=None, ended=None):
    return Fact(
        version=1, owner=owner, filter=None, ttl_ms=None, expires_ms=None if expires_h is None else expires_h * HOUR_MS,
        sink=None, content=b"", topic="t", partition=0, offset=0, timestamp_ms=at_h * HOUR_MS, live=live, ended=ended,
    )  # fmt: skip


def test_only_what_nobody_can_need_is_removed():
    """Live, dormant or ended a short time ago keeps a topic, whatever else its client had; so does one message."""
    facts = [
        fact("live", True, 1),
        fact("live", False, 1, ended="withdrawn"),
        fact("late", False, 801, ended="withdrawn"),
        fact("gone", False, 799, ended="withdrawn"),
        fact("lapsed", False, 1, expires_h=900, ended="expired"),
        fact("lapsed-long-ago", False, 1, expires_h=700, ended="expired"),
        fact("withdrawn-before-its-time", False, 1, expires_h=900, ended="withdrawn"),
    ]
    names = {f.owner for f in facts} | {"forgotten", "unread"}
    empty = {f"hilcast.deliver.{name}" for name in names - {"unread"}} | {"hilcast.receipts.gone", "other"}
    found = {topic.removeprefix("hilcast.deliver.") for topic in idle(CONFIG, empty, facts, NOW)}
    assert found == {"gone", "lapsed-long-ago", "withdrawn-before-its-time", "forgotten"}


def test_against_every_moment():
    """By the broker's clock alone: a topic goes exactly when the stated hours have passed since the last end."""
    for ended, now in product(range(0, 500, 50), range(0, 1000, 50)):
        found = idle(CONFIG, ["hilcast.deliver.c"], [fact("c", False, ended, ended="withdrawn")], now * HOUR_MS)
        assert bool(found) == (now - ended >= 200)


def test_not_where_others_may_be_delivering():
    """A deployment that hosts not all brokers removes nothing, nor does one that is not told to."""
    text = '[deployment]\nhosts = ["b1"]\n[settings]\nidle_topic_hours = 168\n[overlay]\nbrokers = ["b1", "b2"]\n'
    text += 'links = [["b1", "b2"]]\n[types.t.attributes]\nx = { kind = "int" }'
    assert idle(parse(text), ["hilcast.deliver.c"], [], NOW) == []
    assert idle(parse(text.replace("idle_topic_hours = 168", "")), ["hilcast.deliver.c"], [], NOW) == []
