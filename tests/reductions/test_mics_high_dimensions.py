"""The three ways of §5 against plain containment of points in boxes, in more dimensions than are indexed."""

from __future__ import annotations

import itertools
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from state.errors import HilcastError
from state.reductions.mics_high_dimensions import (
    IndexedMics,
    RangeIndex,
    negative_space,
    pairwise,
)
from state.space.boxes import Boxes
from state.space.event_type import Attribute, EventType
from state.space.grid import Grid
from state.tuning import choose_dimensions
from tests.reductions.contract import BoxSpace, Contract, _drawn, machine

SIDE, D = 4, 3
TYPE = EventType(
    "t", tuple(Attribute(name, "int", min=0, max=SIDE - 1) for name in "xyz"), index=("x", "y"), bits=1, cubes=1
)
GRID = Grid.of(TYPE)
"""Two of three dimensions, two cells each: every box shares cells with most others, and z is projected away."""
POINTS = np.array(list(itertools.product(range(SIDE), repeat=D)), np.int64)
SPACE = BoxSpace((0,) * D, (SIDE - 1,) * D)
CUBE = Boxes.of([([0] * D, [SIDE - 1] * D)])


def contract(name, **more) -> Contract:
    parameters = {"mode": "indexed", "exact": name}
    return Contract(
        make=lambda: IndexedMics(CUBE, parameters, grid=GRID),
        decode=lambda blob: IndexedMics.decode(blob, CUBE, parameters, grid=GRID),
        space=SPACE,
        guarantee="exact",
        **more,
    )


CONTRACT = contract("pairwise")
NEGATIVE = contract("negative-space", complete=True)
HYBRID = contract("hybrid", complete=True)


class AtOnce(IndexedMics):
    """Indexed mics that takes however few entries in together."""

    many = 1
    part = 10**9


PAIRWISE = {"mode": "indexed"}
AT_ONCE = Contract(
    make=lambda: AtOnce(CUBE, PAIRWISE, grid=GRID),
    decode=lambda blob: AtOnce.decode(blob, CUBE, PAIRWISE, grid=GRID),
    space=SPACE,
    guarantee="exact",
)
TestPairwise = machine(CONTRACT).TestCase
TestPairwiseAtOnce = machine(AT_ONCE).TestCase
TestNegativeSpace = machine(NEGATIVE).TestCase
TestHybrid = machine(HYBRID).TestCase


@pytest.mark.parametrize("seed", range(3))
def test_many_at_once_are_judged_as_one_by_one(seed: int) -> None:
    """Equal deltas, in the same order, equal bytes and an equal index: so do the candidates that each had."""
    random, whole = (
        Random(seed),
        EventType(
            "t", tuple(Attribute(name, "int", min=0, max=15) for name in "xy"), index=("x", "y"), bits=3, cubes=1
        ),
    )
    domain, grid = Boxes.of([([0, 0], [15, 15])]), Grid.of(whole)
    at_once, one_by_one = (IndexedMics(domain, PAIRWISE, grid=grid) for _ in range(2))
    at_once.many, one_by_one.many, at_once.part = 1, 10**9, 10**9
    live: list[str] = []
    space = BoxSpace((0, 0), (15, 15), boxes_max=2)
    for _ in range(12):
        added = {f"e{random.randrange(200)}": _drawn(space, random) for _ in range(random.choice([1, 40, 120]))}
        removed = random.sample(live, min(len(live), random.choice([0, 5, 40])))
        deltas = [reduction.update(added, removed) for reduction in (at_once, one_by_one)]
        assert list(deltas[0].added.items()) == list(deltas[1].added.items())
        assert deltas[0].removed == deltas[1].removed
        assert at_once.encode() == one_by_one.encode()
        assert ranges_of(at_once) == ranges_of(one_by_one)
        at_once.check()
        live = [id for id in {**dict.fromkeys(live), **added} if id in added or id not in removed]
    stats = at_once.stats()
    assert min(stats["covered"], stats["retired"], stats["candidates"] - stats["covered"]) > 3, "this shows little"


def ranges_of(reduction: IndexedMics) -> list[tuple[int, int, str]]:
    """What the index holds; numbers rise with how many came together, and are nobody's business."""
    starts, ends, owners = (column.tolist() for column in reduction._index.columns())
    return sorted((start, end, reduction._active.id(n)) for start, end, n in zip(starts, ends, owners, strict=True))


some_entries = st.lists(SPACE.entries(), max_size=6)


def entry_numbers(entries, boxes, shares) -> set[int]:
    return {i for i, entry in enumerate(entries) if shares(SPACE.points(entry), SPACE.points(boxes))}


def cells(points) -> set[tuple[int, int]]:
    """The cells of the grid that points fall in, by hand: halves of x and y."""
    return {(p[0] * 2 // SIDE, p[1] * 2 // SIDE) for p in points}


@given(some_entries, SPACE.entries())
@settings(deadline=None, max_examples=60)
def test_candidates_are_those_that_share_a_cell(entries, boxes) -> None:
    """Phase 1 finds exactly the entries with a common cell."""
    index = RangeIndex(GRID)
    index.add_all(dict(enumerate(entries)))
    index.check()
    single = RangeIndex(GRID)
    for number, entry in enumerate(entries):
        single.add(number, entry)
    expected = entry_numbers(entries, boxes, lambda a, b: bool(cells(a) & cells(b)))
    assert set(index.candidates(boxes).tolist()) == expected
    assert set(single.candidates(boxes).tolist()) == expected


@given(SPACE.entries(), SPACE.entries().filter(len))
@settings(deadline=None, max_examples=100)
def test_exact_phases(candidates, entry) -> None:
    """Negative space answers for the union; pairwise says yes only where the union covers; who is named covers it."""
    covered = SPACE.points(entry) <= SPACE.points(candidates)
    together, by_pairs = negative_space(candidates, entry), pairwise(candidates, entry)
    assert (together is not None) == covered
    assert covered or by_pairs is None
    for rows in (together, by_pairs):
        assert rows is None or SPACE.points(entry) <= SPACE.points(candidates.take(rows))
    assert pairwise(entry, entry).tolist() == list(range(len(entry)))


def test_candidates_are_counted() -> None:
    """Decisions of updates count the candidates they examined; far entries are not among them."""
    indexed = IndexedMics(CUBE, {"mode": "indexed"}, grid=GRID)
    far, near = Boxes.of([([3, 3, 0], [3, 3, 3])]), Boxes.of([([0, 0, 0], [1, 1, 1])])
    indexed.update({"far": far, "near": near})
    assert indexed.stats()["candidates"] == 0
    indexed.update({"in": Boxes.of([([0, 0, 0], [0, 0, 0])])})
    assert indexed.stats()["candidates"] == 1
    assert indexed.stats()["evaluated"] == 3
    assert indexed.stats()["covered"] == 1
    assert indexed.decide(near).by == ("near",)


def test_what_a_new_entry_covers_is_taken_back() -> None:
    """A wider entry retires the active ones inside it, and its withdrawal promotes them, each in one step."""
    indexed = IndexedMics(CUBE, {"mode": "indexed"}, grid=GRID)
    inner, wide = Boxes.of([([0, 0, 0], [1, 1, 1])]), Boxes.of([([0, 0, 0], [2, 2, 2])])
    indexed.update({"inner": inner})
    delta = indexed.update({"wide": wide})
    assert (list(delta.added), delta.removed) == (["wide"], ("inner",))
    delta = indexed.update({}, ["wide"])
    assert (list(delta.added), delta.removed) == (["inner"], ("wide",))
    assert indexed.stats()["retired"] == indexed.stats()["promoted"] == 1


def test_a_wide_entry_is_indexed_by_few_ranges() -> None:
    """Also where no cap is set an entry has at most 256 ranges, as in the projected mode; a cap of one's own holds."""
    fine = EventType("f", tuple(Attribute(n, "int", min=0, max=255) for n in "xyz"), bits=8, cubes=1)
    wide = Boxes.of([([3, 5, 7], [201, 230, 190])])
    assert len(Grid.of(fine).ranges(wide)) > 1000
    for parameters, cap in (({"mode": "indexed"}, 256), ({"mode": "indexed", "cap": 300}, 300)):
        indexed = IndexedMics(Boxes.of([([0] * 3, [255] * 3)]), parameters, grid=Grid.of(fine))
        indexed.update({"wide": wide})
        assert indexed.stats()["ranges"] == len(Grid.of(fine).ranges(wide, cap)) <= cap
        assert indexed.decide(Boxes.of([([3, 5, 7], [3, 5, 7])])).by == ("wide",)


@pytest.mark.parametrize("blob", [b"", b"\x07abc"])
def test_another_format_is_refused(blob) -> None:
    """Bytes of another format, or none, raise instead of being read."""
    with pytest.raises(HilcastError, match="state-format"):
        IndexedMics.decode(blob, CUBE, {"mode": "indexed"}, grid=GRID)


def test_greedy_dimensions_lower_the_candidates() -> None:
    """§5: indexing the most selective attributes leaves fewer candidates than indexing the least selective."""
    random = np.random.default_rng(5)
    names = "abcd"
    many = EventType("m", tuple(Attribute(n, "int", min=0, max=255) for n in names), bits=4, cubes=1)
    widths = np.array([200, 4, 150, 8])
    lows = (random.random((300, 4)) * (256 - widths)).astype(np.int64)
    boxes = Boxes(lows, lows + widths - 1)
    sample = random.integers(0, 256, (500, 4))
    chosen = choose_dimensions(many, boxes, sample, 2)
    assert set(chosen) == {"b", "d"}
    counts = []
    for index in (chosen, ("a", "c")):
        listing = RangeIndex(Grid.of(EventType("m", many.attributes, index=index, bits=4, cubes=1)))
        listing.add_all({i: Boxes(boxes.lows[i : i + 1], boxes.highs[i : i + 1]) for i in range(300)})
        counts.append(
            sum(len(listing.candidates(Boxes(boxes.lows[i : i + 1], boxes.highs[i : i + 1]))) for i in range(50))
        )
    assert counts[0] < counts[1] / 4
