"""Destinations that take nothing now: what was for them becomes dead letters, and nobody else notices."""

from __future__ import annotations

import random
from dataclasses import replace

from state.config import Distribution
from state.distribution.broker_groups import BrokerGroups
from state.routing.route import route
from state.routing.sharing import Sharing
from state.space.boxes import Boxes
from tests.routing.test_route import batch, ce, snapshot_of

FILTERS = {f"s{i}": (f"b{i % 3 + 1}", f"c{i % 4}", f"x < {7 * i}") for i in range(9)}
BOB = "hilcast.deliver.c1"


def events(n):
    rng = random.Random(7)
    return [
        {"headers": ce(str(i), f"b{rng.randint(1, 3)}"), "value": b'{"x": %d}' % rng.randint(0, 80), "key": b"%d" % i}
        for i in range(n)
    ]


def written(routing):
    return [row for out in routing.batches() for row in out.to_pylist()]


def test_what_was_for_a_closed_destination_is_a_dead_letter_with_all_that_it_would_have_said():
    """All other rows are those of an open world; a letter has the delivery's headers, its place and the reason."""
    snapshot, records = snapshot_of(FILTERS), batch(events(40))
    open_rows = written(route(snapshot, records))
    routing = route(replace(snapshot, closed={BOB: "it is compacted", "elsewhere": "gone"}), records)
    rows = written(routing)
    letters = [row for row in rows if row["topic"] == "hilcast.deadletter"]
    assert sorted((r for r in rows if r not in letters), key=repr) == sorted(
        (r for r in open_rows if r["topic"] != BOB), key=repr
    )
    meant = {row["key"]: row for row in open_rows if row["topic"] == BOB}
    assert sorted(meant) == sorted(row["key"] for row in letters)
    assert len(letters) > 5
    for letter in letters:
        delivery, n = meant[letter["key"]], len(meant[letter["key"]]["headers"])
        assert (letter["value"], letter["headers"][:n]) == (delivery["value"], delivery["headers"])
        assert {h["key"]: h["value"] for h in letter["headers"][n:]} == {
            "hilcast_code": b"sink-refused",
            "hilcast_reason": b"it is compacted",
            "hilcast_topic": b"hilcast.publications",
            "hilcast_partition": b"0",
            "hilcast_offset": letter["key"],
            "hilcast_destination": BOB.encode(),
        }
    assert routing.figures["undeliverable"] == routing.figures["dead_letters"] == len(letters)
    assert routing.figures["copies"] == sum(row["topic"].startswith("hilcast.deliver.") for row in rows)


def test_a_group_whose_topic_takes_nothing_is_served_one_by_one():
    """A closed group or broadcast topic means everybody's own topic; those of other brokers do not matter."""
    filters = {f"s{i}": ("b1", client, "x < 50") for i, client in enumerate(["ann", "bob"])}
    snapshot = snapshot_of(filters, grouped=("ann", "bob"))
    grouping = BrokerGroups(Distribution(1, threshold=0.0), snapshot.config.types)
    for id, (_, client, _) in filters.items():
        grouping.put("t", id, client, Boxes.everything(1))
    grouping.settle()
    shared = replace(snapshot, sharing={"b1": Sharing(grouping.assignment())})
    own = {"hilcast.deliver.ann", "hilcast.deliver.bob"}
    for topic, expected in (
        ("hilcast.group.b1.0", own),
        ("hilcast.broadcast.b1", own),
        ("hilcast.group.b11.0", {"hilcast.group.b1.0"}),
    ):
        rows = written(
            route(
                replace(shared, closed={topic: "gone"}),
                batch([{"headers": ce("1"), "value": b'{"x": 5}', "key": None}]),
            )
        )
        assert {row["topic"] for row in rows} - {"hilcast.routed"} == expected


def test_a_letter_of_a_closed_destination_fits():
    """The largest event that is admitted still fits as a dead letter, whatever the reason says."""
    snapshot = replace(snapshot_of({"s": ("b1", "c1", "x < 5")}), closed={BOB: "no" * 5000})
    for size in range(1_040_000, 1_100_000, 4_000):
        record = {"headers": ce("1"), "value": b'{"x": 1, "pad": "%s"}' % (b"p" * size), "key": None}
        rows = written(route(snapshot, batch([record])))  # asserts that all fit
        assert [row["topic"] for row in rows].count("hilcast.deadletter") == 1


def test_a_quarantined_event_is_a_dead_letter_and_the_rest_is_routed():
    """What no query could be got past is not looked at: letter `internal`, said; all others as they are alone."""
    snapshot, records = snapshot_of(FILTERS), events(20)
    alone = written(route(snapshot, batch([r for i, r in enumerate(records) if i not in (3, 11)])))
    poisoned = frozenset({("hilcast.publications", 0, 3), ("hilcast.publications", 0, 11), ("other", 0, 4)})
    routing = route(replace(snapshot, quarantined=poisoned), batch(records))
    rows = written(routing)
    letters = [row for row in rows if row["topic"] == "hilcast.deadletter"]
    assert sorted(row["key"] for row in letters) == [b"11", b"3"]
    assert all({"key": "hilcast_code", "value": b"internal"} in row["headers"] for row in letters)
    copies = [row for row in rows if row not in letters and row["topic"] != "hilcast.routed"]
    assert sorted(copies, key=repr) == sorted((r for r in alone if r["topic"] != "hilcast.routed"), key=repr)
    assert len(routing.faults) == 2
