"""An event that fails inside the door of routing stands alone in the end: it is said, and the rest goes its way."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from state.fitting import record_bytes
from state.limits import OUTPUT_BYTES_MAX
from state.messages import Output
from state.routing import assemble, route
from state.routing.assemble import Assembly, row_bytes
from tests.routing.test_route import PUBLICATIONS, batch, ce, snapshot_of

FILTERS = {f"s{i}": (f"b{i % 3 + 1}", f"c{i % 4}", f"x < {7 * i}") for i in range(9)}


def events(n, seed):
    rng = random.Random(seed)
    return [
        {"headers": ce(str(i), f"b{rng.randint(1, 3)}"), "value": b'{"x": %d}' % rng.randint(0, 80), "key": b"%d" % i}
        for i in range(n)
    ]


def written(routing):
    """What goes out, without the routing log, whose lines stand for slices."""
    rows = [row for out in routing.batches() for row in out.to_pylist()]
    return sorted((r for r in rows if r["topic"] != "hilcast.routed"), key=repr)


def lines(routing):
    return [r["value"] for out in routing.batches() for r in out.to_pylist() if r["topic"] == "hilcast.routed"]


def failing(monkeypatch, name, poison, error):
    """Let one stage of routing raise whenever a batch has an event of these ids."""
    real = getattr(route, name)

    def broken(*given):
        table = given[0] if isinstance(given[0], pa.RecordBatch) else given[0].table
        if set(table.column("key").to_pylist()) & poison:
            raise error("found by an event")
        return real(*given)

    monkeypatch.setattr(route, name, broken)


@pytest.mark.parametrize("stage", ["read", "claim", "dead_letters"])
@pytest.mark.parametrize("error", [RuntimeError, AssertionError, RecursionError, pa.ArrowInvalid])
@pytest.mark.parametrize("bad", [{0}, {19}, {3, 4}, {1, 7, 8, 15}, set(range(20))], ids=str)
def test_an_event_that_fails_inside_is_a_dead_letter_and_the_rest_is_routed(monkeypatch, stage, error, bad):
    """The others' copies are those that they have alone; those that fail have one letter each and are counted."""
    snapshot, records = snapshot_of(FILTERS), events(20, len(bad))
    alone = written(route.route(snapshot, batch([r for i, r in enumerate(records) if i not in bad])))
    failing(monkeypatch, stage, {b"%d" % i for i in bad}, error)
    routing = route.route(snapshot, batch(records))
    rows = written(routing)
    letters = [r for r in rows if {h["key"]: h["value"] for h in r["headers"]}.get("hilcast_code") == b"internal"]
    assert [r for r in rows if r not in letters] == alone
    assert sorted(r["key"] for r in letters) == sorted(b"%d" % i for i in bad)
    assert routing.figures["internal"] == routing.figures["dead_letters"] == len(routing.faults) == len(bad)
    assert routing.figures["routed"] == 20
    assert all(error.__name__ in line and PUBLICATIONS in line for line in routing.faults)
    (line,) = lines(route.route(snapshot, batch(records)))
    assert b'"first":0,"last":19' in line
    assert b'"events":20' in line


def test_a_copy_that_cannot_be_built_is_a_dead_letter(monkeypatch):
    """Where building rows fails, all rows that can be built go out, and the event of the others is said once."""
    snapshot, records = snapshot_of(FILTERS), events(20, 1)
    whole = written(route.route(snapshot, batch(records)))
    real = Assembly._batch

    def broken(self, kind, a, b):
        if (kind.rows[a:b] == 5).any():
            raise ValueError("found by a row")
        return real(self, kind, a, b)

    monkeypatch.setattr(Assembly, "_batch", broken)
    routing = route.route(snapshot, batch(records))
    rows = written(routing)
    letters = [r for r in rows if r["topic"] == "hilcast.deadletter"]
    assert [r["key"] for r in letters] == [b"5"]
    assert [r for r in rows if r not in letters] == [r for r in whole if r["key"] != b"5"]
    assert (routing.figures["internal"], len(routing.faults)) == (1, 1)


def test_a_batch_too_large_for_its_columns_goes_in_halves(monkeypatch):
    """Where only the whole batch fails, nothing is left out."""
    snapshot, records = snapshot_of(FILTERS), events(20, 2)
    whole = written(route.route(snapshot, batch(records)))
    real = assemble._Headers.__init__

    def full(self, outgoing, envelopes):
        if len(envelopes) > 6:
            raise pa.ArrowCapacityError("2 GB")
        real(self, outgoing, envelopes)

    monkeypatch.setattr(assemble._Headers, "__init__", full)
    routing = route.route(snapshot, batch(records))
    assert written(routing) == whole
    assert routing.faults == []


def test_what_the_machine_lacks_is_no_fault_of_an_event(monkeypatch):
    """Without memory nothing is left out: the batch is to be tried again."""
    snapshot = snapshot_of({})
    failing(monkeypatch, "claim", {b"1"}, MemoryError)
    with pytest.raises(MemoryError):
        route.route(snapshot, batch(events(4, 1)))


def test_headers_that_are_no_text_do_not_stop_a_batch():
    """A header whose name is no UTF-8, which no Kafka client writes, costs its own event at most."""
    good = events(3, 3)
    table = batch([*good, {"headers": [("name", b"x"), *ce("3")], "value": b"{}", "key": b"3"}])
    names = table.column("headers").flatten().field("key")
    data = bytearray(names.buffers()[2].to_pybytes())
    at = bytes(data).index(b"name" + b"ce_")
    data[at : at + 4] = b"\xff\xfe\xff\xfe"
    broken = pa.Array.from_buffers(pa.string(), len(names), [None, names.buffers()[1], pa.py_buffer(bytes(data))])
    flat = pa.StructArray.from_arrays(
        [broken, table.column("headers").flatten().field("value")], names=["key", "value"]
    )
    lists = pa.ListArray.from_arrays(table.column("headers").offsets, flat)
    table = table.set_column(5, "headers", lists)
    routing = route.route(snapshot_of({"s1": ("b1", "alice", "x IS NULL")}), table)
    sizes = [row_bytes(out) for out in routing.batches()]
    assert (np.concatenate(sizes) <= OUTPUT_BYTES_MAX).all()


def test_the_size_of_a_row_is_that_of_its_record():
    """What the adapter measures by columns is what the core measures record by record."""
    routing = route.route(snapshot_of(FILTERS), batch(events(30, 4)))
    for out in routing.batches():
        for row, size in zip(out.to_pylist(), row_bytes(out).tolist(), strict=True):
            headers = tuple((h["key"], h["value"]) for h in row["headers"])
            assert size == record_bytes(Output(row["topic"], row["key"], row["value"], headers))
