"""Failures in the same place, narrowed to a record: what the driver makes of what was in hand."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException

from state.config import parse
from state.errors import HilcastError
from streaming import careful
from streaming.boot import Boot
from streaming.careful import Hand, pieces
from streaming.checkpoint import Checkpoint
from streaming.folders import Directory
from streaming.last_resort import LastResort

CONFIG = parse("""
[overlay]
brokers = ["b1"]
links = []
[types.t.attributes]
x = { kind = "int" }
""")
BOOT = Boot(CONFIG, 1)


class Notes:
    """The note of what is in hand."""

    def __init__(self):
        self.held: list[tuple[str, int, int]] = []

    def in_hand(self, query):
        return self.held

    def take_in_hand(self, query, places):
        assert not self.held
        self.held = list(places)
        return True

    def put_down(self, query):
        self.held = []


def place(n):
    return ("t", 0, n)


@pytest.fixture
def world(tmp_path):
    checkpoint, notes, counted = Checkpoint(Directory(tmp_path)), Notes(), []
    resort = LastResort("route", notes, checkpoint, counted.append)
    return SimpleNamespace(resort=resort, notes=notes, checkpoint=checkpoint, counted=counted)


def live(world, n, poison):
    """One life of a query that meets a batch of n records, of which some are deadly; whether it ends the batch."""
    boot = world.resort.told(BOOT)
    deadly = {place(i) for i in poison} - boot.quarantined
    batch = [place(i) for i in range(n)]
    if not boot.careful:
        return not deadly
    for rows in pieces(batch, boot.suspects):
        world.notes.take_in_hand("route", [batch[row] for row in rows])
        if deadly & {batch[row] for row in rows}:
            return False
        world.notes.put_down("route")
    return True


def lives(world, n, poison):
    """Lives until one ends the batch; how many there were."""
    for count in range(1, 100):
        if live(world, n, poison):
            world.resort.ended()
            return count
        world.resort.failed(progressed=False)
    raise AssertionError("it is never got past")


@pytest.mark.parametrize("poison", [{0}, {1999}, {700}, {3, 4}, {10, 900, 1800}, set()], ids=str)
def test_the_records_that_do_it_are_quarantined_and_no_others(world, poison):
    """Three failures, then piece by piece: each deadly record is found, written down and counted; the rest goes on."""
    count = lives(world, 2000, poison)
    assert world.resort.quarantined == {place(i) for i in poison}
    assert sum(world.counted) == len(poison)
    assert count <= 4 + 4 * len(poison)
    assert not world.resort.told(BOOT).careful
    again = LastResort("route", world.notes, world.checkpoint, world.counted.append)
    assert again.quarantined == world.resort.quarantined
    assert LastResort("control", world.notes, world.checkpoint, world.counted.append).quarantined == frozenset()


def test_failures_in_other_places_do_not_add_up(world):
    """A query that ends batches between its failures is never done carefully."""
    for _ in range(20):
        world.resort.failed(progressed=True)
        world.resort.failed(progressed=False)
        assert not world.resort.told(BOOT).careful


def test_what_fails_with_nothing_in_hand_is_no_record(world):
    """Kafka or Redis away: nobody is suspect, and after a while it goes on as before."""
    for _ in range(3):
        world.resort.failed(progressed=False)
    assert world.resort.told(BOOT).careful
    for _ in range(3):
        world.resort.failed(progressed=False)
    assert not world.resort.told(BOOT).careful
    assert world.resort.quarantined == frozenset()


def test_somebody_who_was_in_hand_once_is_not_quarantined(world):
    """One death with a record in hand proves nothing: another one may have been the cause of it."""
    for _ in range(3):
        world.resort.failed(progressed=False)
    for n in range(10):
        world.notes.held = [place(n)]
        world.resort.failed(progressed=False)
    assert world.resort.quarantined == frozenset()


def test_records_that_only_do_it_together_go_together(world):
    """Each alone is harmless: what was in hand when it failed goes whole, once its members were tried alone."""
    for _ in range(3):
        world.resort.failed(progressed=False)
    for _ in range(3):
        world.notes.held = [place(1), place(2)]
        world.resort.failed(progressed=False)
    assert world.resort.quarantined == {place(1), place(2)}


def test_pieces_are_all_rows_once_and_suspects_alone(monkeypatch):
    """In order, nothing left out, nothing twice, none too long; a suspect shares its piece with nobody."""
    monkeypatch.setattr(careful, "PIECE", 5)
    rng = random.Random(3)
    for _ in range(200):
        batch = [place(i) for i in range(rng.randint(0, 40))]
        suspects = frozenset(rng.sample(batch, rng.randint(0, len(batch))))
        found = pieces(batch, suspects)
        assert [row for rows in found for row in rows] == list(range(len(batch)))
        assert all(1 <= len(rows) <= 5 for rows in found)
        assert all(len(rows) == 1 for rows in found for row in rows if batch[row] in suspects)


@pytest.mark.parametrize(
    ("error", "left"),
    [
        (RuntimeError("a bug"), True),
        (KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)), True),
        (KafkaException(KafkaError(KafkaError._TIMED_OUT)), False),
        (KafkaException(KafkaError(KafkaError.NOT_ENOUGH_REPLICAS)), False),
        (MemoryError(), False),
        (HilcastError("index-superseded", "another job"), False),
    ],
    ids=["a bug", "too large", "away", "replicas", "memory", "another job"],
)
def test_a_note_is_left_only_where_the_record_is_to_blame(error, left):
    """What another moment or another machine would not meet leaves nobody suspect."""
    notes = Notes()
    hand = Hand(CONFIG, notes, "route")
    hand.take([place(1)])
    hand.failed(error)
    assert notes.held == ([place(1)] if left else [])
