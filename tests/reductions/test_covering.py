"""The baselines, `none` and pairwise covering, under the contract; and an entry that leaves with what it covers."""

from state.reductions.covering import Covering
from state.reductions.none import Unreduced
from state.space.boxes import Boxes
from tests.reductions.contract import BoxSpace, Contract, assert_same_in_any_process, machine

SPACE, LINE = BoxSpace((0, 0), (4, 4)), BoxSpace((0,), (9,), boxes_max=1)


def contract(made: type[Covering] | type[Unreduced], space: BoxSpace) -> Contract:
    domain = Boxes.of([(space.low, space.high)])
    return Contract(make=lambda: made(domain), decode=lambda blob: made.decode(blob, domain), space=space)


CONTRACT, NESTED, NONE = contract(Covering, SPACE), contract(Covering, LINE), contract(Unreduced, SPACE)

TestCovering = machine(CONTRACT).TestCase
TestCoveringOfIntervals = machine(NESTED).TestCase
TestNone = machine(NONE).TestCase

WIDE, NARROW, OTHER = (Boxes.of([([low], [high])]) for low, high in ((0, 9), (2, 3), (20, 30)))


def covering() -> Covering:
    reduction = Covering(Boxes.everything(1))
    reduction.update({"wide": WIDE, "narrow": NARROW})
    return reduction


def test_covering_is_the_same_in_any_process():
    """Processes with other string hashes come to the same deltas and bytes."""
    assert_same_in_any_process("tests.reductions.test_covering")


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
