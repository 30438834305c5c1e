"""What a router needs: the formula follows what is asked, and says where nothing was measured."""

from __future__ import annotations

import json
import math
import tomllib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.scale import Measured, fitted
from benchmarks.scale import fit as fit_again
from producers.cli import main
from producers.commands.size import DATA, fit
from state.sizing import DRIVER_HEAP, HEADROOM, INDEX_MAX, Asked, entries_of, executor_mb, size
from streaming.settings import SPARK

ASKED = st.builds(
    Asked,
    subscriptions=st.integers(1, 10**8),
    events_per_s=st.floats(1, 1e7),
    brokers=st.integers(1, 500),
    forwarded=st.floats(0, 1),
)


@settings(deadline=None)
@given(ASKED)
def test_what_is_found_carries_what_is_asked(asked):
    """Cores, tasks and brokers are enough; an index that is too large is one of a single broker."""
    found, lines = size(asked, fit()), fit()
    micros = lines.event.at(math.log10(max(10, asked.subscriptions)))
    assert found.route_cores * HEADROOM >= asked.events_per_s * micros / 1e6 * 0.999999
    assert found.executors * found.executor_cores >= found.route_cores
    assert found.partitions >= found.route_cores
    assert found.deployments * found.brokers_each >= asked.brokers
    assert found.deployments <= asked.brokers
    assert found.index_mb <= INDEX_MAX + 1 or found.brokers_each == 1
    assert found.executor_mb > found.index_mb + found.executor_cores * found.worker_mb
    assert bool(found.extrapolated) == any(
        value > most
        for value, most in (
            (asked.subscriptions, lines.measured["subscriptions"]),
            (found.entries_each, lines.measured["entries"]),
            (found.route_cores, lines.measured["cores"]),
        )
    )


@settings(deadline=None)
@given(ASKED, st.integers(2, 10))
def test_more_never_needs_less(asked, times):
    """Of subscriptions, with the brokers split alike: no figure falls."""
    few = Asked(asked.subscriptions, asked.events_per_s, asked.brokers, asked.forwarded, 1)
    many = Asked(asked.subscriptions * times, asked.events_per_s, asked.brokers, asked.forwarded, 1)
    a, b = size(few, fit()), size(many, fit())
    for name in ("entries_each", "route_cores", "index_mb", "worker_mb", "redis_mb", "rebuild_s", "executor_mb"):
        if name != "executor_mb" or a.executor_cores == b.executor_cores:
            assert getattr(a, name) <= getattr(b, name)


@settings(deadline=None)
@given(ASKED, st.integers(2, 4))
def test_one_more_worker_costs_no_more_index(asked, cores):
    """The workers of a host share one index: another one costs what it has for itself."""
    found = size(asked, fit())
    one, more = (executor_mb(found.index_mb, found.worker_mb, n, 1) for n in (1, cores))
    assert more - one == (cores - 1) * found.worker_mb


def test_entries_are_counted_as_brokers_hold_them():
    """One broker of four: a quarter its own, the rest for links; of these a tenth where they are reduced."""
    assert entries_of(Asked(400, 1, 4), 1) == 400
    assert entries_of(Asked(400, 1, 4, 0.1), 1) == 130
    assert entries_of(Asked(400, 1, 4, 0.1), 4) == 520


def test_a_line_is_found_again():
    """From its own points exactly; noise shows in its error; nothing falls below 0."""
    line = fitted([(x, 3 + 2 * x) for x in (1, 10, 100)])
    assert (round(line.base, 6), round(line.slope, 6), line.error) == (3, 2, 0)
    assert fitted([(1, 10), (2, 12), (4, 11)]).error > 0
    assert fitted([(1, 5), (2, 4)]).slope == 0
    assert fitted([(1, 1), (10, 100)]).base == 0


def test_the_lines_that_ship_are_those_of_the_measurements_beside_them():
    """Fitted anew from the same file they come out the same: nobody wrote them by hand."""
    kept = tomllib.loads(DATA.read_text())
    found = [Measured(**one) for one in kept["route"]]
    rebuilds = [(one["subscriptions"], one["seconds"]) for one in kept["rebuild"]]
    assert fit_again(found, rebuilds, kept["machine"]["cores"]) == kept["fit"]


def test_the_heap_is_the_one_that_spark_is_given():
    """The formula counts what `streaming/settings.py` sets."""
    assert SPARK["spark.driver.memory"] == f"{DRIVER_HEAP // 1024}g"


def test_the_command_says_what_is_needed(capsys):
    """For people and as JSON; a hundred million subscriptions are split, and said to be extrapolated."""
    asked = ["size", "--subscriptions", "100000000", "--events-per-s", "1000000", "--brokers", "200"]
    assert main([*asked, "--forwarded", "0.1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["deployments"] > 1
    assert any(said.startswith("subscriptions: 100,000,000") for said in found["extrapolated"])
    assert set(found["errors"]) == {"index", "worker", "redis", "event", "rebuild"}
    assert main([*asked[:2], "200000000", *asked[3:]]) == 0
    out = capsys.readouterr().out
    assert "extrapolated" in out
    assert "reduce more" in out
    assert main(["size", "--subscriptions", "1000", "--events-per-s", "10", "--brokers", "2"]) == 0
    assert "extrapolated" not in capsys.readouterr().out


@pytest.mark.parametrize("wrong", [["--forwarded", "2"], ["--events-per-s", "0"], ["--brokers", "0"], []])
def test_wrong_usage_is_refused(wrong, capsys):
    """With 2, as every command."""
    given = {"--subscriptions": "10", "--events-per-s": "1", "--brokers": "3"} if wrong else {}
    given |= dict([wrong]) if wrong else {}
    with pytest.raises(SystemExit) as left:
        main(["size", *(word for pair in given.items() for word in pair)])
    assert left.value.code == 2
