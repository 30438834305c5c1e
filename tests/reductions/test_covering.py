"""The baselines, `none` and pairwise covering, under the contract: one by one, many at once, who leaves with whom."""

from random import Random

from state.reductions.covering import Covering
from state.reductions.none import Unreduced
from state.space.boxes import Boxes
from tests.reductions.contract import BoxSpace, Contract, machine

SPACE, LINE = BoxSpace((0, 0), (4, 4)), BoxSpace((0,), (9,), boxes_max=1)


def contract(made: type[Covering] | type[Unreduced], space: BoxSpace) -> Contract:
    domain = Boxes.of([(space.low, space.high)])
    return Contract(make=lambda: made(domain), decode=lambda blob: made.decode(blob, domain), space=space)


CONTRACT, NESTED, NONE = contract(Covering, SPACE), contract(Covering, LINE), contract(Unreduced, SPACE)

TestCovering = machine(CONTRACT).TestCase
TestCoveringOfIntervals = machine(NESTED).TestCase
TestNone = machine(NONE).TestCase

WIDE, NARROW, OTHER = (Boxes.of([([low], [high])]) for low, high in ((0, 9), (2, 3), (20, 30)))


class AtOnce(Covering):
    """Covering that judges however few entries in one pass."""

    many = 1


AT_ONCE = contract(AtOnce, SPACE)
TestCoveringAtOnce = machine(AT_ONCE).TestCase


def covering() -> Covering:
    reduction = Covering(Boxes.everything(1))
    reduction.update({"wide": WIDE, "narrow": NARROW})
    return reduction


def test_an_entry_and_what_it_covers_leave_in_one_step():
    """Both withdrawn at once, in either order: only the one that was forwarded is removed, nothing is left."""
    for removed in (["wide", "narrow"], ["narrow", "wide"]):
        reduction = covering()
        delta = reduction.update({}, removed)
        reduction.check()
        assert (delta.added, delta.removed, reduction.forwarded()) == ({}, ("wide",), {})


def test_an_entry_leaves_while_what_it_covered_is_replaced():
    """The replacement is forwarded in the step that removes its coverer."""
    reduction = covering()
    delta = reduction.update({"narrow": OTHER}, ["wide"])
    reduction.check()
    assert (delta.added, delta.removed) == ({"narrow": OTHER}, ("wide",))


def test_both_are_replaced_in_one_step():
    """Coverer and covered may change places."""
    reduction = covering()
    delta = reduction.update({"wide": NARROW, "narrow": WIDE})
    reduction.check()
    assert (delta.added, delta.removed) == ({"narrow": WIDE}, ("wide",))


def test_a_decoded_one_promotes_in_the_same_order():
    """Entries that changed their coverer are promoted in the same order before and after `decode`."""
    kept = Covering(Boxes.everything(1))
    spans = {"low": (0, 4), "high": (5, 9), "in high": (6, 7), "in low": (1, 2), "all": (0, 9)}
    for id, (first, last) in spans.items():
        kept.update({id: Boxes.of([([first], [last])])})
    decoded = Covering.decode(kept.encode(), Boxes.everything(1))
    deltas = [reduction.update({}, ["all", "high", "low"]) for reduction in (kept, decoded)]
    assert [list(delta.added) for delta in deltas] == [["in high", "in low"]] * 2
    assert kept.encode() == decoded.encode()


def test_many_at_once_are_judged_as_one_by_one():
    """Equal deltas, in the same order, and equal bytes, whether a step is one pass or many judgements."""
    retired = 0.0
    for seed in range(9):
        random, last = Random(seed), (4, 40, 400)[seed % 3]
        domain = Boxes.of([([0, 0], [last, last])])
        at_once, one_by_one = AtOnce(domain), Covering(domain)
        one_by_one.many = 10**9
        live: list[str] = []
        for _ in range(6):
            added = {f"e{random.randrange(900)}": drawn(random, last) for _ in range(random.choice([3, 40, 400]))}
            removed = random.sample(live, min(len(live), random.choice([0, 5, 60])))
            deltas = [reduction.update(added, removed) for reduction in (at_once, one_by_one)]
            assert list(deltas[0].added.items()) == list(deltas[1].added.items())
            assert deltas[0].removed == deltas[1].removed
            assert at_once.encode() == one_by_one.encode()
            live = list(at_once._active.entries | at_once._passive.entries)
        at_once.check()
        retired += at_once.stats()["retired"]
    assert retired > 0, "this shows little"


def drawn(random: Random, last: int) -> Boxes:
    """An entry of up to three boxes, most of them small: few are covered, many are alike."""
    boxes = []
    for _ in range(random.randrange(4)):
        lows = [random.randrange(last + 1) for _ in SPACE.low]
        boxes.append(tuple([low, min(last, low + random.choice([0, 0, 1, 4, last // 4]))] for low in lows))
    return SPACE._disjoint(boxes)
