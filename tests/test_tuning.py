"""What the router chooses itself: when, what, and that it stays with it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from state.config import Config, Fitted, parse
from state.errors import ConfigError
from state.space.boxes import Boxes
from state.space.event_type import Attribute, EventType
from state.space.grid import Grid
from state.space.ranks import ABSENT, PRESENT_MAX
from state.tuning import CUBE_SUBSCRIPTIONS, EVENTS_MIN, Seen, choose_dimensions, tune

FILE = """
[overlay]
brokers = ["b1", "b2"]
links = [["b1", "b2"]]
[types.t]
index = "auto"
[types.t.attributes]
a = { kind = "int", min = 0, max = 999 }
b = { kind = "int", min = 0, max = 999, cells = "quantile" }
c = { kind = "int", min = 0, max = 999 }
d = { kind = "int", min = 0, max = 999 }
[types.fixed]
cubes = 8
index = ["x"]
[types.fixed.attributes]
x = { kind = "int" }
"""


def config() -> Config:
    return parse(FILE)


def events(seed: int, low: int = 0, high: int = 1000, n: int = 500) -> np.ndarray:
    return np.random.default_rng(seed).integers(low, high, (n, 4))


def boxes_on(column: int, n: int = 40) -> Boxes:
    """Subscriptions that ask for a narrow span of one attribute, and anything of the others."""
    lows, highs = np.full((n, 4), ABSENT, np.int64), np.full((n, 4), PRESENT_MAX, np.int64)
    lows[:, column] = np.arange(n) * 20
    highs[:, column] = lows[:, column] + 9
    return Boxes(lows, highs)


def test_cubes_follow_the_subscriptions_and_do_not_swing() -> None:
    """They grow and shrink by steps; between the two steps nothing is chosen anew."""
    now, chosen = config(), []
    for cubes in (0, 10, 33, 60, 100, 200, 300, 120, 70, 64, 20, 0):
        now = now.fitted_with(tune(now, {"t": Seen(cubes * CUBE_SUBSCRIPTIONS)}))
        chosen.append(now.types["t"].cubes)
    assert chosen == [16, 16, 64, 64, 64, 256, 256, 256, 256, 64, 64, 16]


def test_a_grid_of_few_cells_has_no_more_cubes() -> None:
    """`bits` that were asked for bound the cubes."""
    small = parse(FILE.replace('index = "auto"', 'index = ["a"]\nbits = 5'))
    assert tune(small, {"t": Seen(10**7)}) == {}


def test_a_type_that_leaves_nothing_open_is_left_alone() -> None:
    """What a file says stays, whatever is seen."""
    assert "fixed" not in tune(config(), {"fixed": Seen(10**6)})


def test_cells_are_moved_when_publications_have_moved() -> None:
    """Fitted once enough was seen; kept while the sample changes by chance; moved when it is another distribution."""
    now = config()
    assert tune(now, {"t": Seen(0, events(1, n=EVENTS_MIN - 1))}) == {}
    first = tune(now, {"t": Seen(0, events(1))})
    assert list(first["t"].quantiles) == ["b"]
    now = now.fitted_with(first)
    assert all(tune(now, {"t": Seen(0, events(seed))}) == first for seed in range(2, 40))
    assert tune(now, {}) == first
    second = tune(now, {"t": Seen(0, events(2, 600, 700))})
    assert second != first
    grid = Grid.of(now.fitted_with(second).types["t"])
    inside = [start for start in grid.starts[grid.dimensions.index("b")].tolist() if 600 <= start < 700]
    assert len(inside) > 0.9 * 2**grid.k


def test_dimensions_are_those_that_subscriptions_ask_for() -> None:
    """Chosen by selectivity once enough is known; kept unless others are twice as good."""
    now = config()
    assert Grid.of(now.types["t"]).dimensions == ("a", "b", "c")
    assert tune(now, {"t": Seen(10, events(1), boxes_on(3, 10))})["t"].index == []
    chosen = tune(now, {"t": Seen(40, events(1), boxes_on(3))})
    assert chosen["t"].index == ["d"]
    now = now.fitted_with(chosen)
    assert Grid.of(now.types["t"]).dimensions == ("d",)
    assert tune(now, {"t": Seen(40, events(2), boxes_on(3))})["t"].index == ["d"]
    assert tune(now, {"t": Seen(40, events(2), boxes_on(0))})["t"].index == ["a"]


def test_choices_are_in_common_and_make_a_generation() -> None:
    """They travel with the configuration, change its fingerprint, and nothing else of it."""
    before = config()
    chosen = tune(before, {"t": Seen(100_000, events(1), boxes_on(3))})
    after = before.fitted_with(chosen)
    assert before.adopting(after.shared) == after
    assert before.adopting(after.shared).shared == after.shared
    assert after.fingerprint() != before.fingerprint()
    assert after.fitted_with({}).shared == before.shared
    assert after.fitted_with({}) == before


def test_choices_that_a_file_does_not_leave_open_are_dropped() -> None:
    """A file that says a number counts, whatever was chosen before."""
    chosen = {"t": Fitted(64, ["d"], {"b": [1, 2], "a": [3]}), "gone": Fitted(64), "fixed": Fitted(64, ["x"])}
    assert config().fitted_with(chosen).fitted == {"t": Fitted(64, ["d"], {"b": [1, 2]})}
    closed = parse(FILE.replace('index = "auto"', 'index = ["a"]\ncubes = 4').replace(', cells = "quantile"', ""))
    assert closed.fitted_with(chosen).fitted == {}


@pytest.mark.parametrize(
    "forged", ["[]", '{"t": {"cubes": 3}}', '{"t": {"index": ["a", "a"]}}', '{"t": {"quantiles": {"b": [2, 1]}}}']
)
def test_impossible_choices_are_refused(forged: str) -> None:
    """A record of the registry that no router writes is a fault, not a crash."""
    shared = config().shared.decode()[:-1] + f', "fitted": {forged}}}'
    with pytest.raises(ConfigError, match="fitted"):
        config().adopting(shared.encode())


def test_a_file_cannot_say_what_was_chosen() -> None:
    """`fitted` is no table of a file."""
    with pytest.raises(ConfigError, match="fitted: unknown key"):
        parse(FILE + "\n[fitted.t]\ncubes = 64")


@given(
    st.lists(st.tuples(*[st.tuples(st.integers(0, 9), st.integers(0, 9))] * 4), min_size=1, max_size=6),
    st.lists(st.tuples(*[st.integers(0, 9)] * 4), min_size=1, max_size=12),
    st.integers(1, 4),
)
@settings(max_examples=100, deadline=None, derandomize=True)
def test_choice_of_dimensions_is_by_selectivity(
    subscriptions: list[tuple[tuple[int, int], ...]], sample: list[tuple[int, ...]], count: int
) -> None:
    """[MICS09] §5: the chosen attributes admit the fewest (subscription, event) pairs, counted one by one."""
    event_type = EventType("t", tuple(Attribute(n, "int") for n in "abcd"))
    boxes = Boxes.of([([min(p) for p in s], [max(p) for p in s]) for s in subscriptions])
    chosen = choose_dimensions(event_type, boxes, np.array(sample, np.int64), count)
    admitted = {
        name: sum(min(s[i]) <= event[i] <= max(s[i]) for s in subscriptions for event in sample)
        for i, name in enumerate("abcd")
    }
    everything = len(subscriptions) * len(sample)
    ranking = sorted("abcd", key=lambda name: (admitted[name], name))
    useful = [name for name in ranking[:count] if admitted[name] < everything]
    assert list(chosen) == (useful or ranking[:1])
