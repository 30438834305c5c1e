"""Hilbert ranges in words: what is said agrees with the ranges, and the explanation says them so."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest

from producers.commands.explain import for_people
from producers.commands.output import Style
from producers.commands.range_words import RangeWords, is_range
from state.reductions.interval_table import range_ids
from state.space.boxes import Boxes
from state.space.event_type import Attribute, EventType
from tests.test_explain import ask, subscribe, world_of

NUMBERS = tuple(Attribute(name, "int", min=0, max=31) for name in "abc")


@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_the_box_around_ranges_holds_them(dimensions):
    """Every point whose index lies in a range lies in the box that is named; number and share are the ranges' own."""
    words, draw = RangeWords(EventType("t", NUMBERS[:dimensions], cubes=2)), random.Random(dimensions)
    points = np.array([[draw.randrange(32) for _ in range(dimensions)] for _ in range(400)])
    for _ in range(30):
        corners = [sorted(draw.sample(range(32), 2)) for _ in range(dimensions)]
        boxes = Boxes.of([([low for low, _ in corners], [high for _, high in corners])])
        ranges = words.grid.ranges(boxes)
        low, high = words.around(ranges)
        held = points[ranges.contains(words.grid.index(points))]
        assert ((held >= low) & (held <= high)).all()
        share = ranges.cells / 2**words.grid.index_bits
        assert words.say(ranges).startswith(f"{len(ranges):,} range")
        assert f"{share:.1%}".replace("%", " %") in words.say(ranges) or share < 0.01
        assert words.named(range_ids(ranges)) == words.say(ranges)
        assert all(map(is_range, range_ids(ranges)))


def test_an_explanation_has_no_hexadecimal_unless_it_is_asked_for():
    """Under mics links and brokers are told in numbers and shares, with the box they come from; else range by range."""
    world = world_of("mics")
    for i, broker in enumerate(("b1", "b3", "b4")):
        subscribe(world, broker, f"s{i}", f"x BETWEEN {i} AND {i + 4} AND y BETWEEN 1 AND 6")
    world.settle()
    found = ask(world, {"x": 3, "y": 3}, "s1")
    said = for_people(found, None, Style(), RangeWords(world.config.types["t"]))
    assert "0000000" not in said
    assert "% of the space, within x" in said
    assert "ranges of the boxes  x 1 to 5, y 1 to 6" in said
    assert "0000000" in for_people(found, None, Style())
    # an event outside: all ranges are told, each on a line of its own or together
    outside = ask(world, {"x": 7, "y": 7}, "s1")
    together = for_people(outside, None, Style(), RangeWords(world.config.types["t"])).splitlines()
    assert len(together) < len(for_people(outside, None, Style()).splitlines())
    assert any(re.search(r"b2 -> b1 .* ranges, .* of the space", line) for line in together)
