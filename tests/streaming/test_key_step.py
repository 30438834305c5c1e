"""One key's batch, from records to state and Redis, as the control query does it."""

import random
from base64 import b64decode
from types import SimpleNamespace

import pandas as pd
import pytest

from state.control.part import Part
from state.control.protocol import Republish
from state.fitting import held
from state.limits import CLIPPED_BYTES, FLOOD_RECORD_BYTES
from state.messages import Record, content_bytes
from state.redis_index import RedisIndex
from streaming import key_step
from tests.control.musts import config_of
from tests.control.test_journal import KEY, Streams, context_of, local
from tests.simulation.invariants import comparable


class State:
    """A row of Spark's state store."""

    def __init__(self):
        self.exists, self.get = False, None

    def update(self, row):
        self.exists, self.get = True, row


def frames(*records, rows=3):
    """Records as PySpark hands them over: some rows a frame, each packed into one column."""
    for first in range(0, len(records), rows):
        packed = [
            [r.topic.encode(), *(str(n).encode() for n in (*r.place[1:], 0)), r.key, r.value, b"id"]
            for r in records[first : first + rows]
        ]
        yield pd.DataFrame({key_step.RECORD: packed})


def test_in_a_flood_large_control_events_are_cut_and_nothing_else_is():
    """Of one key's records of a batch, in any order: the large ones of inboxes, once all of them are too much."""
    topics = config_of("p", "redis://localhost").topics
    inbox, control = topics.subscriptions, topics.control
    sizes = [FLOOD_RECORD_BYTES // 2, FLOOD_RECORD_BYTES * 2, 0, FLOOD_RECORD_BYTES * 3]
    made = [Record(topic, 0, i, 0, b"k", b"v" * size) for topic in (inbox, control) for i, size in enumerate(sizes)]
    of_inboxes = sum(content_bytes(record) for record in made if record.topic == inbox)
    for seed in range(20):
        random.Random(seed).shuffle(made)
        for flood, cut in ((of_inboxes, False), (of_inboxes - 1, True)):
            read = {}
            found = held(key_step._records(frames(*made), read, own=True), topics, flood)
            assert [record.place for record in found] == [record.place for record in made]
            assert dict(read.keys()) == {inbox: "id", control: "id"}
            for before, after in zip(made, found, strict=True):
                large = before.topic == inbox and len(before.value) > FLOOD_RECORD_BYTES
                assert len(after.value) == (CLIPPED_BYTES if cut and large else len(before.value))


@pytest.mark.services
def test_a_batch_writes_what_it_changed(services, unique, monkeypatch):
    """The first write of a part is whole, then deltas of a few hundred bytes; all of it on request, or once Redis has
    lost it; the figure is of what was written, and what can be read is always the state.
    """
    index, context = RedisIndex(config_of(unique, services.redis)), context_of()
    worker = SimpleNamespace(redis=index, boot=SimpleNamespace(generation=1), context=context)
    streams, state = Streams(context), State()

    def written():
        return float(index.figures().get("index_bytes_written", 0))

    def batch(number, *records):
        monkeypatch.setattr(key_step, "_batch", lambda: number)
        before = written()
        key_step._applied(worker, str(KEY), list(records), state, context)
        run, _ = index.vector(1)
        epoch, read = index.load([KEY], 1, run)[0]
        assert epoch == f"1.{number}"
        assert comparable(read) == comparable(Part(KEY, b64decode(state.get[2]), context).compiled())
        return written() - before

    everything = batch(1, streams.change(local=[local(f"s{i}", 10 * i) for i in range(2000)]))
    assert everything > 10_000
    assert batch(2, streams.change(local=[local("s3", 31)])) < 600
    assert batch(3, streams.change(removed=["s4"]), streams.change(local=[local("new", 7)])) < 600
    assert batch(4, streams.record(Republish())) > 10_000
    assert batch(5, streams.change(local=[local("s3", 32)])) < 600
    index.disown(1)
    assert batch(6, streams.change(local=[local("s3", 33)])) > 10_000
    assert batch(7, streams.change(local=[local("s3", 34)])) < 600
    assert float(index.figures()["entries_touched"]) == 2006
    index.close()
