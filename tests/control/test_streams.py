"""Both ends of a stream: whatever is lost, repeated or cut, the receiver has what was said, or knows it has not."""

from __future__ import annotations

import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from state.control import streams
from state.control.protocol import Change, Entry, decode, encode
from state.control.streams import Incoming, Outbox, seeded, seeds
from state.keys import Key
from state.space.packing import Packed

SOURCE, TARGET = Key("b2", "t", "cube:0"), "b1/t/cube:0"
NOTHING = Packed(0, 1, b"", b"")
ITEM_BYTES = len(msgspec.msgpack.encode(Entry("a", NOTHING)))


class Sender:
    """What a key says to another: ids that come and go; a snapshot says all of them."""

    def __init__(self, generation=1):
        self.ids, self.generation, self.sequences = {}, generation, {}

    def say(self, added, removed, snapshot=False):
        self.ids = {id: None for id in self.ids if id not in removed} | dict.fromkeys(added)
        told = list(self.ids) if snapshot else added
        outbox = Outbox(SOURCE, self.generation, "grid", self.sequences)
        entries = [Entry(id, NOTHING) for id in told]
        sent = outbox.change(TARGET, snapshot=snapshot, entries=entries, removed=() if snapshot else removed)
        return [decode(encode(message)) for _, message in sent]


class Receiver:
    """What another key has of it, kept by a plain set."""

    def __init__(self, hosts=("b1", "b2")):
        self.positions, self.waiting, self.ids, self.hosts = {}, {}, set(), hosts

    def hear(self, messages):
        incoming = Incoming(self.positions, self.waiting, "grid", 1, self.hosts)
        for message in messages:
            pieces = incoming.take(message)
            if pieces and message.snapshot:
                self.ids = set()
            for piece in pieces:
                self.ids |= {entry.id for entry in piece.entries}
            for piece in pieces:
                self.ids -= set(piece.removed)
        return bool(incoming.gaps)


IDS = st.lists(st.sampled_from("abcdefgh"), max_size=5, unique=True)
STEPS = st.lists(st.tuples(IDS, IDS, st.booleans()), min_size=1, max_size=8)


@settings(max_examples=300, deadline=None)
@given(STEPS, st.randoms(use_true_random=False), st.integers(1, 3))
def test_what_is_lost_is_noticed_and_what_is_repeated_is_harmless(steps, rng, items):
    """After any losses and repeats, in any batches: a snapshot was asked for, or both ends agree; with it they do."""
    sender, receiver = Sender(), Receiver()
    said, asked = [], False
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streams, "MESSAGE_BYTES_MAX", ITEM_BYTES * items)
        for added, removed, snapshot in steps:
            said += sender.say([id for id in added if id not in removed], removed, snapshot)
        heard = []
        for number, message in enumerate(said):
            heard += [message] * rng.choice((0, 1, 1, 1, 1, 2))
            if rng.random() < 0.3:
                heard += said[: number + 1][-3:]  # a batch is written again
        cut = rng.randint(0, len(heard))
        asked = receiver.hear(heard[:cut]) | receiver.hear(heard[cut:])
        last = said[-1]
        if not asked and receiver.positions.get(str(SOURCE)) == (last.generation, last.sequence):
            assert receiver.ids == set(sender.ids)
        receiver.hear(sender.say([], [], snapshot=True))
    assert receiver.ids == set(sender.ids)
    assert not receiver.waiting


@settings(max_examples=100, deadline=None)
@given(STEPS, st.integers(1, 3))
def test_a_stream_without_faults_is_applied_step_by_step(steps, items):
    """However a change is cut, what is there after its last piece is what was said, and in between what was before."""
    sender, receiver = Sender(), Receiver()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streams, "MESSAGE_BYTES_MAX", ITEM_BYTES * items)
        for added, removed, snapshot in steps:
            before = set(sender.ids)
            *early, last = sender.say([id for id in added if id not in removed], removed, snapshot)
            for message in early:
                assert not receiver.hear([message])
                assert receiver.ids == before
            assert not receiver.hear([last])
            assert receiver.ids == set(sender.ids)


def test_pieces_are_numbered_and_hold_no_more_than_fits(monkeypatch):
    """Every piece is a message of its own with the next number; additions are spread, removals behind them."""
    monkeypatch.setattr(streams, "MESSAGE_BYTES_MAX", 2 * ITEM_BYTES)
    messages = Sender().say(list("abcde"), ["z"])
    assert [(m.piece, m.pieces, m.sequence) for m in messages] == [(0, 3, 1), (1, 3, 2), (2, 3, 3)]
    assert [len(m.entries) for m in messages] == [2, 2, 1]
    assert [m.removed for m in messages] == [[], [], ["z"]]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text(max_size=40), max_size=30), st.lists(st.text(max_size=40), max_size=30), st.integers(50, 400))
def test_lists_are_cut_by_what_they_take_on_the_wire(added, removed, size):
    """Pieces together say everything, in order; none but that of one item takes more than the limit and a head."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streams, "MESSAGE_BYTES_MAX", size)
        outbox = Outbox(SOURCE, 1, "grid", {})
        entries = [Entry(id, NOTHING) for id in added]
        pieces = [m for _, m in outbox.change(TARGET, entries=entries, removed=removed, unadvertised=removed)]
    assert [x for piece in pieces for x in piece.entries] == entries
    assert [x for piece in pieces for x in piece.removed] == removed
    assert [x for piece in pieces for x in piece.unadvertised] == removed
    for piece in pieces:
        items = len(piece.entries) + len(piece.removed) + len(piece.unadvertised)
        assert items <= 1 or len(encode(piece)) <= size + 60


def test_a_higher_generation_begins_with_its_snapshot():
    """A sender that began anew counts from 1 again; what it said before is older, and its first change alone a gap."""
    receiver = Receiver()
    old, new = Sender(1), Sender(2)
    first = old.say(["a"], [])
    assert not receiver.hear(first)
    assert receiver.hear(new.say(["b"], []))
    assert not receiver.hear(new.say(["c"], [], snapshot=True))
    assert not receiver.hear([*first, *old.say(["d"], [])])
    assert receiver.ids == {"b", "c"}


def test_a_stranger_begins_with_a_snapshot():
    """The first word of another deployment's key must be a snapshot; that of a hosted one need not."""
    messages = Sender().say(["a"], [])
    assert not Receiver(hosts=("b1", "b2")).hear(messages)
    assert Receiver(hosts=("b1",)).hear(messages)


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=40), st.integers(1, 9), st.randoms(use_true_random=False))
def test_seeds_are_put_together_again(blob, size, rng: random.Random):
    """A state cut into any number of seeds is that state, in any order and repeated; of another generation none."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streams, "MESSAGE_BYTES_MAX", size)
        cut = seeds(3, blob)
    assert all(len(seed.blob) <= size for seed in cut)
    mixed = [*cut, *cut, *seeds(2, b"older")]
    rng.shuffle(mixed)
    assert seeded(mixed, 3) == blob
    assert seeded(mixed, 4) is None


def test_a_seed_that_misses_a_piece_is_not_taken(monkeypatch):
    """Half a state is never begun with, and does not keep a whole one out; nor does one that cannot be read."""
    monkeypatch.setattr(streams, "MESSAGE_BYTES_MAX", 2)
    half = seeds(1, b"state")[1:]
    assert seeded(half, 1) is None
    whole = seeds(1, b"other state")
    assert seeded([*half, *whole, *half], 1) == b"other state"
    assert seeded([*seeds(1, b"x"), *whole], 1, lambda blob: blob != b"x") == b"other state"
    assert seeded(seeds(1, b"x"), 1, lambda blob: blob != b"x") is None


def test_a_change_is_written_as_ever():
    """A change is an array on the wire: what an older version of this format wrote reads as it did."""
    change = Change(source="b/t/cube:1", generation=2, sequence=3, grid="g", piece=1, pieces=2, removed=["a"])
    written = encode(change)
    assert written.hex() == "9ea66368616e676502aa622f742f637562653a310203a167c20102909091a1619090"
    assert decode(written) == change
