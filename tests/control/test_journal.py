"""The state of a part: what was sealed and what was heard since; parts that a process keeps; what a change costs."""

import random
from contextlib import suppress

import pytest

from state.compiled_part import LocalEntry, load_part
from state.config import parse
from state.control import journal, part
from state.control.context import Context
from state.control.handle import handle, whole_index
from state.control.journal import Kept
from state.control.part import Part
from state.control.protocol import Change, Entry, Resync, encode
from state.errors import HilcastError, StateUnreadable
from state.index_delta import amended, decode_delta
from state.keys import Key
from state.messages import Record
from state.space.boxes import Boxes
from state.space.packing import pack

KEY = Key("b", "t", "cube:0")
CONFIG = """
[overlay]
brokers = ["a", "b", "c"]
links = [["a", "b"], ["b", "c"]]
[types.t]
reduction = "{reduction}"
cubes = 1
advertisements = {advertisements}
[types.t.attributes]
x = {{ kind = "int", min = 0, max = 1048575 }}
"""
COSTS = ("entries_touched", "state_bytes_read", "state_bytes_written", "index_bytes_written")


def context_of(reduction="covering", share=journal.SEALED_SHARE, advertisements="false", least=0):
    made = Context(parse(CONFIG.format(reduction=reduction, advertisements=advertisements)), 1, 1)
    made.sealed_share, made.sealed_min = share, least
    return made


def box(low, width=1):
    return Boxes.of([([low], [low + width - 1])])


def local(id, low, width=1):
    return LocalEntry(id, "client", "topic", None, pack(box(low, width)))


class Streams:
    """What homes and neighbours say to one part, numbered, as records of the control topic."""

    def __init__(self, context):
        self.context = context
        self.offset, self.sequences = 0, {}

    def change(self, source="b/t/home:0", **changes):
        self.sequences[source] = self.sequences.get(source, 0) + 1
        dialect = self.context.dialect("t")
        said = Change(source=source, generation=1, sequence=self.sequences[source], grid=dialect, **changes)
        return self.record(said)

    def record(self, message):
        self.offset += 1
        return Record(self.context.topics.control, 0, self.offset, 0, str(KEY).encode(), encode(message))

    def drawn(self, draw):
        """Anything that a part may be told."""
        id, low, width = f"s{draw.randrange(12)}", draw.randrange(40), draw.randint(1, 9)
        if draw.random() < 0.1:
            return self.record(Resync("a/t/cube:0", self.context.dialect("t")))
        if draw.random() < 0.3:
            return self.change(removed=[id])
        if draw.random() < 0.6:
            return self.change(local=[local(id, low, width)])
        geometry = box(low, width)
        if self.context.config.types["t"].reduction == "mics":
            geometry = self.context.grids["t"].ranges(geometry)
        return self.change("a/t/cube:0", entries=[Entry(f"a/{id}", pack(geometry))])


@pytest.mark.parametrize(
    "reduction", ["none", "covering", "merging", "mics", "negative-space", "probabilistic", "hybrid"]
)
def test_whoever_handles_a_batch_says_and_keeps_the_same(reduction):
    """Processes that have seen all, some or none of the batches before write the same state and say the same."""
    draw = random.Random(7)
    one = context_of(reduction, share=2)
    streams = Streams(one)
    workers = [Kept(), Kept(), Kept()]
    state, sealings = None, 0
    for _ in range(40):
        records = [streams.drawn(draw) for _ in range(draw.randint(1, 3))]
        results = []
        # the first has seen every batch, the second some of them, the third none
        for n in (0, 1, 2) if draw.random() < 0.4 else (0, 2):
            one.parts = workers[n] if n < 2 else Kept()
            results.append(handle(str(KEY), state, records, one))
        assert len({result.state for result in results}) == 1
        assert all(result.outputs == results[0].outputs for result in results)
        assert all((result.index, result.deltas) == (results[0].index, results[0].deltas) for result in results)
        sealings += state is None or not results[0].state.startswith(state)
        state = results[0].state
    assert 1 < sealings < 40
    kept = workers[0].take(str(KEY), state)[0]
    assert kept.encoded() == Part(KEY, state, one).encoded()


def test_a_batch_that_is_repeated_begins_with_the_bytes_it_is_given():
    """What a failed batch left in memory is ahead of its state, and is not used."""
    context = context_of(share=1)
    streams = Streams(context)
    first = handle(str(KEY), None, [streams.change(local=[local(f"s{i}", 10 * i) for i in range(9)])], context)
    records = [streams.change(local=[local("s0", 500)], removed=["s1"])]
    once = handle(str(KEY), first.state, records, context)
    again = handle(str(KEY), first.state, records, context)
    assert (once.state, once.outputs, once.deltas) == (again.state, again.outputs, again.deltas)
    assert once.deltas
    assert again.figures["state_bytes_read"] == len(first.state)


def test_what_fails_inside_leaves_nothing_behind(monkeypatch):
    """A part whose handling raised is unpacked anew by the next batch."""
    context = context_of(share=1)
    streams = Streams(context)
    state = handle(str(KEY), None, [streams.change(local=[local("s", 1)])], context).state
    bad, good = streams.change(local=[local("t", 3)]), streams.change(local=[local("u", 5)])
    with monkeypatch.context() as patch:
        patch.setattr(Part, "_forward", lambda self, *_: 1 / len({} if self.changed else "a"))
        left = handle(str(KEY), state, [bad], context)
    assert left.state == state
    assert left.figures["internal"] == 1
    after = handle(str(KEY), state, [good], context)
    assert set(Part(KEY, after.state, context).state.local) == {"s"}  # a gap: what was left out is asked for again


def test_what_is_small_is_sealed_at_every_step():
    """Below the least size nothing is left to be repeated; from there on steps are appended."""
    context = context_of(share=1, least=journal.SEALED_MIN)
    streams = Streams(context)
    state = None
    for n, sealed in ((9, True), (1, True), (400, True), (1, False)):
        change = streams.change(local=[local(f"s{streams.offset}-{i}", i) for i in range(n)])
        state = handle(str(KEY), state, [change], context).state
        packed, steps = journal.opened(part.FORMAT, state)
        assert (steps == len(state)) is sealed
        assert sealed or len(packed) >= journal.SEALED_MIN


def test_a_damaged_step_is_not_guessed_at():
    """A state that is cut short or damaged anywhere is unreadable."""
    context = context_of(share=1)
    streams = Streams(context)
    whole = handle(str(KEY), None, [streams.change(local=[local(f"s{i}", 10 * i) for i in range(9)])], context).state
    grown = handle(str(KEY), whole, [streams.change(removed=["s1"])], context).state
    assert grown.startswith(whole)
    assert len(grown) > len(whole)
    for at in range(len(whole)):
        with suppress(HilcastError):  # any other error fails here
            part.decode_state(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
        with pytest.raises(HilcastError, match=r"^state-format: "):
            part.decode_state(whole[:at])
    long = journal.grown(grown, journal.packed([Resync(f"a/t/cube:{i}", "") for i in range(200)]), share=0, least=0)
    assert len(long) < len(grown) + journal.COMPRESSED_MIN
    for at in range(len(grown), len(long)):
        with suppress(HilcastError):
            journal.steps(long[:at] + bytes([long[at] ^ 0x55]) + long[at + 1 :], len(whole))
    another = streams.change(removed=["s2"])
    for damaged in (grown[:-1], grown[: len(whole) + 2], whole[:-1], grown + b"\x01", b"\x03\x00"):
        context.parts = Kept()
        with pytest.raises(StateUnreadable):
            handle(str(KEY), damaged, [another], context)


def test_what_is_kept_is_bounded():
    """Beyond so many bytes of state, before they are compressed, those go that were not asked for the longest."""
    a, b, c = (journal.sealed(part.FORMAT, bytes(size)) for size in (400, 400, 100))
    assert len(a) < 100
    kept = Kept(bytes_max=1000)
    kept.keep("a", a, 1)
    kept.keep("b", b, 2)
    assert kept.take("a", a + b"more") == (1, len(a))
    kept.keep("a", journal.grown(a, bytes(200), share=0, least=0), 3)
    assert (len(kept), kept.size) == (2, 1000)
    kept.keep("c", c, 4)
    assert kept.take("b", b) is None
    assert kept.take("a", a) is None
    assert (len(kept), kept.size) == (1, 100)


def costs_of(count):
    """What replacing one subscription among so many costs, by figure."""
    context = context_of()
    streams = Streams(context)
    one = Part(KEY, None, context)
    message = Change(
        source="b/t/home:0", generation=1, sequence=1, grid=context.dialect("t"),
        local=[local(f"s{i}", 10 * i) for i in range(count)],
    )  # fmt: skip
    streams.sequences["b/t/home:0"] = 1
    one.apply(message)
    state = one.finish().state
    context.parts.keep(str(KEY), state, one)
    result = handle(str(KEY), state, [streams.change(local=[local("s3", 31)])], context)
    assert result.state.startswith(state)
    return {name: result.figures[name] for name in COSTS}


def test_a_change_costs_what_it_concerns():
    """Replacing one subscription among 1,000 and among 100,000 touches, reads and writes the same, of the index too."""
    few, many = costs_of(1000), costs_of(100_000)
    # how many there are is said to people, in numbers of another length
    assert 0 < many.pop("index_bytes_written") - few.pop("index_bytes_written") < 20
    assert few == many
    assert few["state_bytes_written"] < 200


def test_what_is_written_of_an_index_is_what_changed():
    """A delta of one subscription among 100,000 is a few hundred bytes, and makes of the index what the state is."""
    context = context_of()
    streams = Streams(context)
    state = handle(str(KEY), None, [streams.change(local=[local(f"s{i}", 10 * i) for i in range(300)])], context).state
    base = load_part(whole_index(KEY, state, context))
    for record in (streams.change(local=[local("s3", 31)]), streams.change(removed=["s4", "s5"])):
        result = handle(str(KEY), state, [record], context)
        assert result.index is None
        assert sum(map(len, result.deltas)) < 600
        base, state = amended(base, map(decode_delta, result.deltas)), result.state
        assert base == load_part(whole_index(KEY, state, context))


def test_a_state_is_sealed_now_and_then():
    """What is packed in the long run is a few times what was heard, whatever there is."""
    context = context_of()
    streams = Streams(context)
    state = handle(str(KEY), None, [streams.change(local=[local(f"s{i}", 10 * i) for i in range(300)])], context).state
    begun, written, heard = len(state), 0, 0
    packed = len(journal.opened(part.FORMAT, state)[0])
    for i in range(400):
        record = streams.change(local=[local(f"s{i % 300}", 10 * i + 1)])
        result = handle(str(KEY), state, [record], context)
        state = result.state
        written += result.figures["state_bytes_written"]
        heard += len(record.value)
    assert written < (journal.SEALED_SHARE + 2) * heard
    assert len(state) < 2 * begun + packed // journal.SEALED_SHARE
    assert set(part.decode_state(state).local) == {f"s{i}" for i in range(300)}
