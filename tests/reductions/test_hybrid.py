"""Hybrid: exact, whatever the budget; and which step decided."""

from __future__ import annotations

import itertools
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from state.errors import HilcastError
from state.reductions.hybrid import Hybrid
from state.reductions.probabilistic import Probabilistic
from state.space.boxes import Boxes
from state.space.ranks import ABSENT, PRESENT_MAX
from state.space.subtraction import COVERED, EXHAUSTED, UNCOVERED, covers, subtract
from tests.reductions.contract import BoxSpace, Contract, machine
from tests.reductions.test_probabilistic import Guessing

DOMAIN = Boxes.of([([0, 0], [4, 4])])
SPACE = BoxSpace((0, 0), (4, 4))
CUBE = BoxSpace((-1, 0, 5), (1, 2, 7), boxes_max=2)
CUBE_DOMAIN = Boxes.of([([-1, 0, 5], [1, 2, 7])])
TIGHT = {"budget": 2, "trials_max": 3}
BARE = {"budget": 1, "trials_max": 0}

CONTRACT = Contract(
    make=lambda: Hybrid(DOMAIN), decode=lambda blob: Hybrid.decode(blob, DOMAIN), space=SPACE, complete=True
)
IN_3D = Contract(
    make=lambda: Hybrid(CUBE_DOMAIN),
    decode=lambda blob: Hybrid.decode(blob, CUBE_DOMAIN),
    space=CUBE,
    complete=True,
    examples=25,
)
OVER_BUDGET = Contract(
    make=lambda: Hybrid(DOMAIN, TIGHT), decode=lambda blob: Hybrid.decode(blob, DOMAIN, TIGHT), space=SPACE, examples=25
)
NO_TRIALS = Contract(
    make=lambda: Hybrid(DOMAIN, BARE), decode=lambda blob: Hybrid.decode(blob, DOMAIN, BARE), space=SPACE, examples=15
)


class AtOnce(Hybrid):
    """Hybrid that takes however few entries in together."""

    many = 1


AT_ONCE = Contract(
    make=lambda: AtOnce(DOMAIN),
    decode=lambda blob: AtOnce.decode(blob, DOMAIN),
    space=SPACE,
    complete=True,
    examples=25,
)

TestHybrid = machine(CONTRACT).TestCase
TestHybridAtOnce = machine(AT_ONCE).TestCase
TestHybridIn3D = machine(IN_3D).TestCase
TestHybridOverBudget = machine(OVER_BUDGET).TestCase
TestHybridWithoutTrials = machine(NO_TRIALS).TestCase


@pytest.mark.parametrize("method", [Hybrid, Probabilistic, Guessing])
def test_many_at_once_are_judged_as_one_by_one(method: type[Hybrid] | type[Probabilistic]) -> None:
    """Equal deltas, in the same order, and equal bytes, whether a step is one pass or judgement by judgement; and
    however many of those that lost a coverer are judged in one call."""
    ends: dict[str, float] = {}
    mended = 0
    for seed, last in enumerate((6, 40, 400)):
        random, domain = Random(seed), Boxes.of([([0, 0], [last, last])])
        at_once, one_by_one = method(domain), method(domain)
        at_once.many, one_by_one.many = 1, 10**9
        one_by_one.again_max = 1
        live: list[str] = []
        for _ in range(4):
            added = {f"e{random.randrange(300)}": _drawn(random, last) for _ in range(random.choice([3, 40, 150]))}
            removed = random.sample(live, min(len(live), random.choice([0, 5, 40])))
            others = [id for id in at_once._passive.entries if id not in {*added, *removed}]
            again = {heir for heir in others if not set(removed).isdisjoint(at_once._group(heir))}
            deltas = [reduction.update(added, removed) for reduction in (at_once, one_by_one)]
            assert list(deltas[0].added.items()) == list(deltas[1].added.items())
            assert deltas[0].removed == deltas[1].removed
            assert at_once.encode() == one_by_one.encode()
            live = list(at_once._active.entries | at_once._passive.entries)
            mended += sum(id in at_once._passive for id in again)
        at_once.check()
        for name, count in at_once.stats().items():
            ends[name] = ends.get(name, 0) + count
    by_group = ends.get("decided_subtraction", 0) + ends.get("decided_trials", 0)
    assert min(ends["decided_corner"], ends["decided_corollary_1"], ends["retired"], by_group) > 0, "this shows little"
    assert min(mended, ends["promoted"]) > 0, "this shows little of removals"


def _drawn(random: Random, last: int) -> Boxes:
    """An entry, most often of one box: some lie in others, some in several."""
    if random.random() < 0.1:
        return Boxes.empty(2)
    lows = [random.randrange(last + 1) for _ in range(2)]
    sides = [sorted((low, min(last, low + random.randrange(last // 3 + 1)))) for low in lows]
    box = ([low for low, _ in sides], [high for _, high in sides])
    if random.random() < 0.8 or sides[0][1] == last:
        return Boxes.of([box])
    beside = ([sides[0][1] + 1, 0], [last, last // 2])
    return Boxes.of([box, beside])


def test_nobody_is_in_a_group_who_could_be_left_out() -> None:
    """However an entry came by its group: by its own judgement, handed down, or mended when one of it went."""
    random, domain = Random(7), Boxes.of([([0, 0], [60, 60])])
    hybrid = Hybrid(domain)
    live: list[str] = []
    shared = 0
    for step in range(60):
        added = {f"e{step}.{i}": _drawn(random, 60) for i in range(random.choice([1, 10, 50]))}
        hybrid.update(added, random.sample(live, min(len(live), 15)))
        live = list(hybrid._active.entries | hybrid._passive.entries)
        for id, boxes in hybrid._passive.entries.items():
            group = hybrid._group(id)
            if any(len(each) > 1 for each in (boxes, *(hybrid._active.entries[member] for member in group))):
                continue  # of two boxes of an entry one may be needed, and the other one do for somebody else's
            shared += len(group) > 2
            for member in group:
                others = [hybrid._active.entries[other] for other in group if other != member]
                assert not covers(Boxes.concatenated(others, 2), boxes.lows[0], boxes.highs[0], 10_000)
    assert hybrid.stats()["retired"] > 10
    assert shared > 100


def test_the_larger_comes_first_among_high_ranks() -> None:
    """Of one step's entries the larger is judged first, also where sides are narrower than a float's steps there."""
    offset = 2**62
    hybrid = Hybrid(Boxes.of([([offset] * 2, [offset + 99] * 2)]))
    hybrid.update(
        {"a": Boxes.of([([offset + 2] * 2, [offset + 3] * 2)]), "b": Boxes.of([([offset] * 2, [offset + 9] * 2)])}
    )
    assert list(hybrid.forwarded()) == ["b"]
    assert hybrid.stats()["retired"] == 0


# --- subtraction --------------------------------------------------------------------------------------------

sides = st.tuples(st.integers(0, 4), st.integers(0, 4)).map(sorted)
plain_boxes = st.tuples(sides, sides, sides)


def points_of(box: tuple[list[int], ...]) -> set[tuple[int, ...]]:
    return set(itertools.product(*(range(a, b + 1) for a, b in box)))


@given(plain_boxes, st.lists(plain_boxes, max_size=8), st.integers(1, 400))
@settings(max_examples=300, deadline=None)
def test_subtraction_equals_enumeration(
    box: tuple[list[int], ...], rows: list[tuple[list[int], ...]], budget: int
) -> None:
    """COVERED and UNCOVERED are what enumeration says, and the point left is uncovered; a budget may say neither."""
    left = points_of(box).difference(*(points_of(row) for row in rows))
    low, high = np.array(box).T.copy()
    ends = Boxes.of([([a for a, _ in row], [b for _, b in row]) for row in rows], d=3)
    point, used = np.empty(3, np.int64), np.zeros(len(ends), bool)
    answer, pieces = subtract(low, high, ends.lows, ends.highs, budget, point, used)
    assert pieces <= budget
    if answer == EXHAUSTED:
        assert pieces == budget
    elif left:
        assert answer == UNCOVERED
        assert tuple(point.tolist()) in left
    else:
        assert answer == COVERED
        taken = [points_of(row) for row, was_used in zip(rows, used.tolist(), strict=True) if was_used]
        assert points_of(box) <= set().union(*taken)


def test_subtraction_at_the_ends_of_the_ranks() -> None:
    """Boxes that reach the lowest and the highest rank are subtracted without wrapping round."""
    whole = Boxes.everything(2)
    halves = Boxes.of([([ABSENT, ABSENT], [0, PRESENT_MAX]), ([1, ABSENT], [PRESENT_MAX, PRESENT_MAX])])
    assert covers(halves, whole.lows[0], whole.highs[0], 100)
    holed = Boxes.of([([ABSENT, ABSENT], [0, PRESENT_MAX]), ([1, ABSENT], [PRESENT_MAX, PRESENT_MAX - 1])])
    assert covers(holed, whole.lows[0], whole.highs[0], 100) is False
    assert covers(halves, whole.lows[0], whole.highs[0], 1) is None


# --- which step decided -------------------------------------------------------------------------------------


def pinwheel() -> dict[str, Boxes]:
    """Four boxes around a hole of one point, (5, 5) in [0, 10]^2: no fast answer sees the hole from around it."""
    return {
        "a": Boxes.of([([0, 0], [4, 6])]),
        "b": Boxes.of([([0, 6], [6, 10])]),
        "c": Boxes.of([([6, 4], [10, 10])]),
        "d": Boxes.of([([4, 0], [10, 4])]),
    }


def test_the_step_that_decided_is_reported() -> None:
    """Each step of the order is counted where it is the one that decides."""
    h = Hybrid(Boxes.of([([0, 0], [10, 10])]))
    h.update(pinwheel())
    assert h.decide(Boxes.of([([1, 1], [3, 3])])).reason.startswith("one active box")
    around = h.decide(Boxes.of([([1, 1], [9, 9])]))
    assert not around.covered
    assert around.witness == (5, 5)
    h.update({"e": Boxes.of([([5, 5], [5, 5])])})
    closed = h.decide(Boxes.of([([1, 1], [9, 9])]))
    assert closed.covered
    assert set(closed.by) == set("abcde")
    h.update({"x": Boxes.of([([1, 1], [9, 9])]), "y": Boxes.of([([1, 1], [2, 2])])})
    stats = h.stats()
    assert stats["decided_subtraction"] >= 1
    assert stats["decided_corollary_1"] == 1
    assert stats["withheld"] == 2
    decided = sum(count for name, count in stats.items() if name.startswith("decided_"))
    assert decided == 7


def test_beyond_the_budget_guesses_prove_and_the_rest_is_forwarded() -> None:
    """A budget of one piece leaves the question to guesses: a witness where there is one, and never "covered"."""
    domain = Boxes.of([([0, 0], [10, 10])])
    h = Hybrid(domain, {"budget": 1, "trials_max": 100_000, "error": 1e-9})
    h.update(pinwheel())
    around = h.decide(Boxes.of([([1, 1], [9, 9])]))
    assert around.witness == (5, 5)
    assert around.reason.startswith("guess")
    h.update({"e": Boxes.of([([5, 5], [5, 5])])})
    assert h.update({"x": Boxes.of([([1, 1], [9, 9])])}).added.keys() == {"x"}
    assert h.stats()["decided_budget"] == 1


def test_a_retired_entry_leaves_in_the_same_step() -> None:
    """Corollary 2: an active entry inside a new one is removed by the delta that adds the new one."""
    h = Hybrid(Boxes.of([([0, 0], [10, 10])]))
    h.update({"small": Boxes.of([([2, 2], [3, 3])])})
    h.update({"within": Boxes.of([([2, 2], [2, 3])])})
    delta = h.update({"large": Boxes.of([([0, 0], [5, 5])])})
    assert set(delta.added) == {"large"}
    assert delta.removed == ("small",)
    assert h.fate("small").by == h.fate("within").by == ("large",)
    back = h.update({}, ["large"])
    assert set(back.added) == {"small"}
    assert back.removed == ("large",)


def test_what_lies_inside_a_withheld_entry_is_retired_to_its_group() -> None:
    """An entry that a group covers is withheld, and an active one inside it, which the group covers too, leaves."""
    h = Hybrid(Boxes.of([([0, 0], [10, 10])]))
    h.update({"across": Boxes.of([([4, 4], [6, 6])]), "inner": Boxes.of([([4, 5], [6, 5])])})
    h.update({"left": Boxes.of([([0, 0], [5, 10])])})
    h.update({"right": Boxes.of([([5, 0], [10, 10])])})
    assert "across" in h.forwarded()
    delta = h.update({"new": Boxes.of([([3, 3], [7, 7])])})
    assert not delta.added
    assert delta.removed == ("across",)
    assert set(h.fate("across").by) == set(h.fate("inner").by) == {"left", "right"}
    back = h.update({}, ["right"])
    assert set(back.added) == {"new"}
    assert h.fate("across").by == ("new",)


def test_only_what_was_covered_is_judged_again() -> None:
    """Removing an entry judges again just the passive ones in whose group it was."""
    h = Hybrid(Boxes.of([([0], [100])]))
    h.update({"a": Boxes.of([([0], [40])]), "b": Boxes.of([([60], [100])])})
    h.update({"in a": Boxes.of([([3], [9])]), "in b": Boxes.of([([70], [80])])})
    before = sum(count for name, count in h.stats().items() if name.startswith("decided_"))
    assert set(h.update({}, ["a"]).added) == {"in a"}
    after = sum(count for name, count in h.stats().items() if name.startswith("decided_"))
    assert after - before == 1
    assert h.stats()["promoted"] == 1


def test_full_ranks_and_many_entries() -> None:
    """A thousand entries over all ranks, then all but ten removed: sound, and nothing is lost at their corners."""
    random = Random(3)
    h = Hybrid(Boxes.everything(3))

    def side() -> list[int]:
        return sorted(random.choice([ABSENT, PRESENT_MAX, random.randint(ABSENT, PRESENT_MAX)]) for _ in range(2))

    entries = {}
    for i in range(1000):
        ends = [side() for _ in range(3)]
        entries[f"e{i}"] = Boxes.of([([a for a, _ in ends], [b for _, b in ends])])
    h.update(entries)
    h.check()
    assert h.stats()["withheld"] > 300
    h.update({}, [f"e{i}" for i in range(990)])
    h.check()
    for i in range(990, 1000):
        corners = np.concatenate([entries[f"e{i}"].lows, entries[f"e{i}"].highs])
        held = np.zeros(2, bool)
        for boxes in h.forwarded().values():
            held |= boxes.contains(corners)  # type: ignore[union-attr]
        assert held.all()


# --- bytes --------------------------------------------------------------------------------------------------


def test_another_format_is_refused() -> None:
    """Bytes of another format, or none, raise instead of being read."""
    for blob in (b"", b"\x07abc"):
        with pytest.raises(HilcastError, match="state-format"):
            Hybrid.decode(blob, DOMAIN)
