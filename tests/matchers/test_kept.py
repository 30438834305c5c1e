"""Matchers on a shelf of real files: what is opened answers as what was kept, through any changes of either."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from state.matchers.bitmap import BitmapMatcher
from state.matchers.matcher import SharedMatcher
from state.space.boxes import Boxes
from streaming.host_files import HostFiles
from tests.matchers.naive import Naive
from tests.matchers.test_contract import (
    ANY_SMALL,
    CoarseBitmap,
    SmallSTree,
    agree,
    as_boxes,
    make_coarse,
    some_boxes,
)

KINDS = [BitmapMatcher, CoarseBitmap, SmallSTree]
STEP = st.tuples(
    st.sampled_from(["insert", "remove", "resort"]), some_boxes(2, ANY_SMALL, most=6), st.sets(st.integers(0, 6))
)


def empty(kind):
    return kind(Boxes.empty(2), np.empty(0, np.int64))


def opened(kind, kept, folder):
    """What another process makes of it: the description as bytes, the arrays from the files."""
    matcher = empty(kind)
    matcher.open(msgspec.msgpack.decode(msgspec.msgpack.encode(kept)), HostFiles(folder))
    return matcher


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@given(steps=st.lists(STEP, max_size=6), points=st.lists(st.tuples(ANY_SMALL, ANY_SMALL), max_size=5))
@settings(max_examples=40, deadline=None)
def test_what_is_opened_answers_as_what_was_kept(tmp_path_factory, kind, steps, points):
    """After every change the matcher is kept and opened; the next change is made to the opened one, and the one that
    was opened before still answers as it did.
    """
    folder = tmp_path_factory.mktemp("shelf")
    with pytest.MonkeyPatch.context() as patch:
        if kind is CoarseBitmap:
            make_coarse(patch)
        shelf, matcher, naive = HostFiles(folder), empty(kind), Naive()
        for what, (lows, highs), some in steps:
            before, answers = opened(kind, matcher.keep(shelf), folder), naive.match(points)
            if what == "insert":
                owners = [i % 7 for i in range(len(lows))]
                naive.insert(lows, highs, owners)
                matcher.insert(as_boxes(lows, highs, 2), np.array(owners, np.int64))
            elif what == "remove":
                naive.remove(some)
                matcher.remove(np.array(sorted(some), np.int64))
            else:
                matcher.resort()
            kept = matcher.keep(shelf)
            agree(matcher, naive, points)
            matcher.check()
            matcher = opened(kind, kept, folder)
            matcher.check()
            agree(matcher, naive, points)
            boxes, owners = matcher.boxes_of(np.array(sorted(some), np.int64))
            every, of_every = matcher.boxes()
            mine = np.isin(of_every, sorted(some))
            assert sorted(listed(boxes, owners)) == sorted(listed(every.take(mine), of_every[mine]))
            array = np.array(points, np.int64).reshape(-1, 2)
            assert list(zip(*(side.tolist() for side in before.match(array)), strict=True)) == answers


def listed(boxes, owners):
    return list(zip(boxes.lows.tolist(), boxes.highs.tolist(), owners.tolist(), strict=True))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_small_change_writes_little(tmp_path, kind):
    """Of 20,000 boxes one that goes and one that comes cost less than a fortieth of what they all cost."""
    shelf, matcher = HostFiles(tmp_path), empty(kind)
    assert isinstance(matcher, SharedMatcher)
    at = np.random.default_rng(1).integers(0, 10**6, (20_000, 2))
    matcher.insert(Boxes(at, at + 1000), np.arange(len(at)))
    matcher.keep(shelf)
    whole = shelf.written
    for gone in (5, 6):
        before = shelf.written
        matcher.remove(np.array([gone]))
        matcher.insert(Boxes(at[:1], at[:1]), np.array([20_000 + gone]))
        kept = matcher.keep(shelf)
    assert shelf.written - before < whole / 40
    before = shelf.written
    assert matcher.keep(shelf) == kept
    assert shelf.written == before, "what has not changed is not written again"
