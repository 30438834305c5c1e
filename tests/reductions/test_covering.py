"""Pairwise covering, where one step takes out an entry together with what it covers."""

from state.reductions.covering import Covering
from state.space.boxes import Boxes

WIDE, NARROW, OTHER = (Boxes.of([([low], [high])]) for low, high in ((0, 9), (2, 3), (20, 30)))


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
