"""One key's batch, from records to state and Redis, as the control query does it."""

from base64 import b64decode
from types import SimpleNamespace

import pytest

from state.control.part import Part
from state.control.protocol import Republish
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
