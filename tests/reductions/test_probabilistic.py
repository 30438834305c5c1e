"""Probabilistic: one-sided, its loss within the bound; at the cap it forwards."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from state.arrays import Words
from state.errors import HilcastError
from state.reductions.probabilistic import Probabilistic
from state.reductions.rspc import seed_of, words_of
from state.space.boxes import Boxes
from tests.reductions.contract import BoxSpace, Contract, machine

DOMAIN = Boxes.of([([0, 0], [4, 4])])
SPACE = BoxSpace((0, 0), (4, 4))
CUBE_DOMAIN = Boxes.of([([-1, 0, 5], [1, 2, 7])])
SURE = {"error": 1e-6}


class Guessing(Probabilistic):
    """Probabilistic that subtracts nothing: guesses decide, as in the paper."""

    compared_max = 0


CONTRACT = Contract(
    make=lambda: Guessing(DOMAIN, SURE),
    decode=lambda blob: Guessing.decode(blob, DOMAIN, SURE),
    space=SPACE,
    guarantee="one-sided",
)
IN_3D = Contract(
    make=lambda: Guessing(CUBE_DOMAIN, SURE),
    decode=lambda blob: Guessing.decode(blob, CUBE_DOMAIN, SURE),
    space=BoxSpace((-1, 0, 5), (1, 2, 7), boxes_max=2),
    guarantee="one-sided",
    examples=25,
)
AT_THE_CAP = Contract(
    make=lambda: Guessing(DOMAIN, {"trials_max": 1}),
    decode=lambda blob: Guessing.decode(blob, DOMAIN, {"trials_max": 1}),
    space=SPACE,
    guarantee="exact",
    examples=25,
)

SUBTRACTING = Contract(
    make=lambda: Probabilistic(CUBE_DOMAIN),
    decode=lambda blob: Probabilistic.decode(blob, CUBE_DOMAIN),
    space=BoxSpace((-1, 0, 5), (1, 2, 7), boxes_max=2),
    guarantee="exact",
    examples=25,
)

TestProbabilisticThatSubtracts = machine(SUBTRACTING).TestCase
TestProbabilisticIn3D = machine(IN_3D).TestCase
TestProbabilisticAtTheCap = machine(AT_THE_CAP).TestCase
"""With one trial allowed, only exact answers withhold: the contract is that of an exact reduction."""


class TestProbabilistic(machine(CONTRACT).TestCase):  # type: ignore[misc]
    """The contract, one-sided, and no state lost: with δ = 10^-6 and about 10^4 judgements the odds are 1 in 100."""

    def runTest(self) -> None:
        super().runTest()
        assert CONTRACT.tally.states > 100
        assert CONTRACT.tally.states_lost == 0


def pinwheel() -> dict[str, Boxes]:
    """Four boxes around a hole of one point, (500, 500) in [0, 1000]^2."""
    return {
        "a": Boxes.of([([0, 0], [499, 500])]),
        "b": Boxes.of([([0, 501], [500, 1000])]),
        "c": Boxes.of([([501, 500], [1000, 1000])]),
        "d": Boxes.of([([500, 0], [1000, 499])]),
    }


SQUARE = Boxes.of([([0, 0], [1000, 1000])])
MIDDLE = Boxes.of([([400, 400], [600, 600])])


def test_at_the_cap_it_forwards_and_says_what_the_cap_costs() -> None:
    """A gap of one point in 201 x 201 asks for more trials than allowed: forwarded, and the error there is told."""
    p = Guessing(SQUARE, {"trials_max": 1000})
    p.update(pinwheel())
    assert set(p.update({"s": MIDDLE}).added) == {"s"}
    stats = p.stats()
    assert stats["decided_cap"] == 1
    left = 1000 - stats["trials"]
    assert left >= 500
    assert stats["cap_error_max"] == pytest.approx((1 - 1 / 201**2) ** left, rel=1e-6)
    assert stats["cap_error_sum"] == stats["cap_error_max"]
    closed = Guessing(SQUARE, {"trials_max": 1000})
    closed.update(pinwheel() | {"e": Boxes.of([([500, 500], [500, 500])])})
    assert set(closed.update({"s": MIDDLE}).added) == {"s"}, "covered in truth, but that is not shown in 1000 trials"


def test_what_is_soon_subtracted_is_a_proof() -> None:
    """What Eq. (1) asks too many trials for is decided for certain where few boxes meet it, both ways."""
    p = Probabilistic(SQUARE, {"trials_max": 1000})
    p.update(pinwheel())
    around = p.decide(MIDDLE)
    assert (around.covered, around.witness) == (False, (500, 500))
    p.update({"e": Boxes.of([([500, 500], [500, 500])])})
    assert set(p.decide(MIDDLE).by) == set("abcde")
    assert not p.update({"s": MIDDLE})
    assert p.stats()["decided_subtraction"] == 1


def test_within_the_cap_it_withholds_and_promotes() -> None:
    """With trials enough the covered entry is withheld by its group, and promoted when one of the group goes."""
    p = Guessing(SQUARE, {"trials_max": 10**6})
    p.update(pinwheel() | {"e": Boxes.of([([500, 500], [500, 500])])})
    assert not p.update({"s": MIDDLE})
    assert set(p.fate("s").by) == set("abcde")
    delta = p.update({}, ["e"])
    assert set(delta.added) == {"s"}
    assert delta.removed == ("e",)
    assert p.stats()["promoted"] == 1


def test_a_chain_loses_what_its_first_hop_loses() -> None:
    """Brokers with the same active entries draw the same points: what the first forwards reaches the last."""
    rows = {
        "a": Boxes.of([([0, 0], [399, 599])]),
        "b": Boxes.of([([0, 600], [499, 1000])]),
        "c": Boxes.of([([500, 300], [1000, 1000])]),
        "d": Boxes.of([([400, 0], [1000, 299])]),
    }
    brokers = [Guessing(SQUARE, {"error": 0.3}) for _ in range(4)]
    for broker in brokers:
        broker.update(rows)
    lost = 0
    for i in range(300):
        added = {f"s{i}": Boxes.of([([100, 100], [900, 900])])}
        hops = 0
        for broker in brokers:
            delta = broker.update(added)
            broker.update({}, list(added))
            if not delta.added:
                break
            hops += 1
        assert hops in (0, len(brokers))
        lost += hops == 0
    assert 0 < lost < 140, "at δ = 0.3 the first hop loses some, at most 30 % and five deviations"


def test_an_entry_of_several_boxes_is_covered_iff_each_is() -> None:
    """One uncovered box of an entry forwards it whole."""
    p = Probabilistic(SQUARE)
    p.update({"left": Boxes.of([([0, 0], [400, 1000])]), "right": Boxes.of([([600, 0], [1000, 1000])])})
    both = Boxes.of([([10, 10], [20, 20]), ([700, 10], [720, 20])])
    assert p.decide(both).covered
    assert set(p.decide(both).by) == {"left", "right"}
    out = Boxes.of([([10, 10], [20, 20]), ([500, 10], [720, 20])])
    decision = p.decide(out)
    assert not decision.covered
    assert decision.witness is not None
    assert 500 <= decision.witness[0] < 600


def test_draws_belong_to_the_subscription() -> None:
    """The seed depends on the id and on both corners, and on nothing else."""
    low, high = np.array([0, 1]), np.array([5, 6])
    assert seed_of("a", low, high) == seed_of("a", low.copy(), high.copy())
    others = [seed_of("b", low, high), seed_of("a", low + 1, high), seed_of("a", low, high + 1)]
    assert len({seed_of("a", low, high), *others}) == 4


@pytest.mark.parametrize(("method", "expected"), [(Probabilistic, []), (Guessing, [["s"]])])
def test_a_removal_that_subtraction_decides_asks_for_no_word(
    monkeypatch: pytest.MonkeyPatch, method: type[Probabilistic], expected: list[list[str]]
) -> None:
    """What seeds have of an id is made where draws may decide, and only there; the entry stays withheld either way."""
    p = method(Boxes.of([([0, 0], [99, 99])]))
    p.update({"a": Boxes.of([([0, 0], [60, 99])]), "b": Boxes.of([([40, 5], [99, 99])])})
    p.update({"c": Boxes.of([([55, 0], [99, 90])]), "s": Boxes.of([([30, 10], [70, 20])])})
    (other,) = {*p.fate("s").by} - {"a"}
    asked: list[list[str]] = []

    def noted(ids: Sequence[str]) -> Words:
        asked.append(list(ids))
        return words_of(ids)

    monkeypatch.setattr("state.reductions.group_covering.words_of", noted)
    assert p.update({}, [other]).added.keys() == set()
    assert {*p.fate("s").by} == {"a", "b", "c"} - {other}
    assert asked == expected


def test_the_least_error_that_may_be_asked_for_is_met_by_forwarding() -> None:
    """The strictest parameters are no error: what would need more trials than allowed is forwarded."""
    p = Probabilistic(SQUARE, {"error": 1e-300, "trials_max": 1000})
    p.update(pinwheel())
    assert set(p.update({"s": MIDDLE}).added) == {"s"}


def test_another_format_is_refused() -> None:
    """Bytes of another format, or none, raise instead of being read."""
    for blob in (b"", b"\x07abc"):
        with pytest.raises(HilcastError, match="state-format"):
            Probabilistic.decode(blob, DOMAIN)


def test_of_very_many_boxes_the_largest_are_asked(monkeypatch) -> None:
    """What they cover is withheld; what only the others cover is forwarded, undecided; a witness is outside of all."""
    monkeypatch.setattr("state.reductions.probabilistic.ROWS_MAX", 2)
    domain = Boxes.of([([0, 0], [99, 99])])

    def among(*boxes: tuple[list[int], list[int]]) -> Probabilistic:
        p = Guessing(domain)
        p.update({f"b{i}": Boxes.of([box]) for i, box in enumerate(boxes)})
        assert p.stats()["forwarded"] == len(boxes)
        return p

    halves = ([0, 0], [50, 99]), ([45, 0], [99, 60])
    corner = ([50, 55], [99, 99])
    p = among(*halves, corner)
    assert p.decide(Boxes.of([([10, 10], [90, 59])])).covered
    undecided = p.decide(Boxes.of([([10, 10], [90, 90])]))
    assert (undecided.covered, undecided.witness) == (False, None)
    assert "others were not asked" in undecided.reason
    p.update({"middle": Boxes.of([([10, 10], [90, 90])])})
    assert p.stats()["decided_rows"] == 1
    open_corner = among(*halves, ([60, 61], [99, 80])).decide(Boxes.of([([10, 10], [90, 95])]))
    assert open_corner.witness is None or open_corner.witness[1] > 60
    p.check()
