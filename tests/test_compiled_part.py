"""The index of a part comes back from its packed form, and what is damaged is refused."""

from __future__ import annotations

from contextlib import suppress

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from state import formats
from state.compiled_part import (
    COLUMNS_MIN,
    COMPRESSED_MIN,
    CompiledPart,
    LocalEntry,
    compile_part,
    load_part,
)
from state.errors import HilcastError
from state.space.boxes import Boxes
from state.space.packing import Packed, pack
from state.space.ranges import Ranges

TEXTS = st.text(max_size=6)


def boxes(n: int, d: int, seed: int) -> Packed:
    draws = np.random.default_rng(seed).integers(-(2**40), 2**40, (n, 2, d))
    return pack(Boxes(draws.min(axis=1), draws.max(axis=1)))


@st.composite
def parts(draw: st.DrawFn) -> CompiledPart:
    """Parts: entries without boxes and with many, few recipients and many, links of boxes and of ranges."""
    d, count = draw(st.integers(1, 3)), draw(st.sampled_from([0, 1, 3, 80]))
    few = draw(st.booleans())
    local = [
        LocalEntry(
            f"s{i}" + draw(TEXTS), "c" if few else draw(TEXTS), "t" if few else draw(TEXTS),
            draw(st.none() | TEXTS), boxes(draw(st.sampled_from([0, 1, COLUMNS_MIN])), d, i), draw(st.booleans()),
            draw(st.booleans()),
        )
        for i in range(count)
    ]  # fmt: skip
    sizes = draw(st.lists(st.sampled_from([1, COLUMNS_MIN - 1, COLUMNS_MIN, 300]), max_size=3))
    links = {f"n{i}": [boxes(n, d, i)] for i, n in enumerate(sizes)}
    if draw(st.booleans()):
        links["r"] = [pack(Ranges(np.array([3, 9]), np.array([5, 2**50])))]
    return CompiledPart.of(d, local, links, draw(st.lists(st.tuples(TEXTS, TEXTS), max_size=2)), draw(st.binary()))


@settings(max_examples=100, deadline=None)
@given(parts())
def test_a_part_comes_back(part: CompiledPart) -> None:
    """What is packed is unpacked as it was, and packed again it is the same bytes."""
    blob = compile_part(part)
    assert load_part(blob) == part
    assert compile_part(load_part(blob)) == blob


@settings(max_examples=150, deadline=None)
@given(parts(), st.data())
def test_a_damaged_part_is_refused_or_is_a_part(part: CompiledPart, data: st.DataObject) -> None:
    """Bytes that are cut, or changed anywhere, raise `state-format`, or make a part whose entries can be read."""
    blob = compile_part(part)
    with pytest.raises(HilcastError, match=r"^state-format: "):
        load_part(blob[: data.draw(st.integers(0, len(blob) - 1))])
    changed = bytearray(blob)
    changed[data.draw(st.integers(0, len(blob) - 1))] ^= data.draw(st.integers(1, 255))
    with suppress(HilcastError):
        load_part(bytes(changed)).entries()


def test_many_boxes_of_few_recipients_take_a_fraction_of_their_raw_bytes() -> None:
    """Ids apart, an entry of a point, a width that all share and a client of many takes a few bytes."""
    n = 5000
    lows = np.stack([np.arange(n) % 100 * 2**50, np.arange(n) * 7 % 60_000], axis=1)
    geometry = [pack(Boxes(low[None], low[None] + [[0, 50]])) for low in lows]
    local = [LocalEntry(f"s{i}", f"c{i % 9}", f"deliver.c{i % 9}", None, one) for i, one in enumerate(geometry)]
    part = CompiledPart.of(2, local, {"b2": geometry}, [])
    assert part.size > 80 * n
    assert len(compile_part(part)) < 16 * n


def test_texts_that_claim_to_be_huge_are_refused() -> None:
    """A damaged length must not ask for all the memory there is."""
    local = [LocalEntry(f"s{i}", "c", "t", None, boxes(1, 1, i)) for i in range(COMPRESSED_MIN)]
    stored = msgspec.msgpack.decode(formats.opened("an index", 3, compile_part(CompiledPart.of(1, local, {}, []))))
    stored[2] = 2**40
    with pytest.raises(HilcastError, match=r"^state-format: an index: \d+ bytes for 1099511627776 of texts"):
        load_part(formats.write(3, stored))
