"""What tells the entries of a part apart."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from state.compiled_part import CompiledPart, LocalEntry
from state.routing.roll import entry_digests
from state.space.boxes import Boxes
from state.space.packing import pack

D = 2
BOX = st.tuples(st.integers(0, 1), st.integers(0, 1)).map(lambda low: (list(low), [5, 5]))
ENTRY = st.builds(
    LocalEntry,
    id=st.sampled_from(["a", "b", "a:b"]),
    client=st.sampled_from(["", "c", "cd"]),
    destination=st.sampled_from(["d", "", "cd"]),
    residual=st.sampled_from([None, "", "x = 1"]),
    geometry=st.lists(BOX, min_size=1, max_size=2).map(lambda boxes: pack(Boxes.of(boxes))),
    exact=st.booleans(),
    groups=st.booleans(),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(ENTRY, max_size=8))
def test_entries_have_one_digest_where_they_say_the_same(entries):
    """Two entries are equal if their digests are, whatever they differ in, and wherever they stand."""
    part = CompiledPart.of(D, entries, {}, [])
    digests = [row.tobytes() for row in entry_digests(part)]
    assert part.entries() == entries
    for one, of_one in zip(entries, digests, strict=True):
        assert [of_one == of_other for of_other in digests] == [one == other for other in entries]
        assert entry_digests(CompiledPart.of(D, [one], {}, []))[0].tobytes() == of_one
