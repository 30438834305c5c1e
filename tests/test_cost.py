"""What a filter costs, against naive counts on a grid small enough to list."""

from __future__ import annotations

import itertools
import json
import random

import pytest

from hilcast import Publisher
from infra.local.ports import free_port
from producers import cli
from state.config import parse as parse_config
from state.control.context import Context
from state.control.facts import Kind, Name
from state.control.home import Home
from state.cost import Sample, cost, measured
from state.filters.grammar import parse
from state.keys import Key
from state.plain_events import plain_event
from state.space.grid import Grid
from state.space.points import ranks
from tests import oracle
from tests.producers.worlds import TEXT, configured

CONFIG = """
[overlay]
brokers = ["b1"]
links = []
[types.t]
reduction = "{reduction}"
cubes = {cubes}
bits = 3
index = ["x", "y"]
{parameters}
[types.t.attributes]
x = {{ kind = "int", min = 0, max = 7, imprecise = "possible" }}
y = {{ kind = "int", min = 0, max = 7 }}
name = {{ kind = "text" }}
"""
ATTRIBUTES = {
    "x": {"kind": "int", "min": 0, "max": 7, "imprecise": "possible"},
    "y": {"kind": "int", "min": 0, "max": 7},
    "name": {"kind": "text"},
}
FILTERS = [
    "TRUE", "x < 4", "x = 2 AND y = 3", "x IN (1, 3, 5) OR y > 5", "x != 4", "x IS NULL", "x < 2 AND x > 5",
    "x BETWEEN 2 AND 5 AND y BETWEEN 2 AND 5 AND name LIKE 'a%'", "name = 'a long name' OR x = 1",
    "(x = 1 OR y = 1) AND (x = 2 OR y = 2)",
]  # fmt: skip


def config_of(reduction="covering", cubes=16, parameters=""):
    return parse_config(CONFIG.format(reduction=reduction, cubes=cubes, parameters=parameters))


def found_of(text, config=None):
    quote = (config or config_of()).types["t"]
    return cost(parse(text, quote), quote, Grid.of(quote))


@pytest.mark.parametrize("cubes", [1, 4, 16, 64])
@pytest.mark.parametrize("text", FILTERS)
def test_it_is_placed_as_home_places_it(text, cubes):
    """Cubes, wide or not, and exactness are those of the home key that would accept the subscription."""
    config = config_of(cubes=cubes)
    found = found_of(text, config)
    home = Home(Key("b1", "t", "home:0"), None, Context(config, 1, 1))
    placement = home.placing(Name(Kind.SUBSCRIPTION, "id"), home.filters.sent(text))
    assert found.wide == placement.wide
    assert found.exact == placement.exact
    if not found.wide:
        assert found.cubes == len(placement.sent)
    assert found.cubes_total == cubes


@pytest.mark.parametrize("text", [text for text in FILTERS if "name" not in text])
def test_ranges_are_those_of_the_cells(text):
    """Without a cap the ranges hold exactly the cells in which some value satisfies the filter, counted one by one."""
    config = config_of(cubes=1)
    grid = Grid.of(config.types["t"])
    points = list(itertools.product([None, *range(8)], repeat=2))
    events = [{name: v for name, v in zip("xy", point, strict=True) if v is not None} for point in points]
    quote = config.types["t"]
    holding = [event for event in events if oracle.evaluate(text, event, ATTRIBUTES)]
    cells = {int(grid.index(ranks(quote, event)[None])[0]) for event in holding}
    found = found_of(text, config)
    assert found.ranges == found.ranges_uncapped == len(oracle.as_ranges(cells))
    assert found.cells_share == len(cells) / 64
    assert found.over_coverage == 1.0


def test_a_cap_costs_cells():
    """Under a cap there are fewer ranges, and what they cover too much is told; the cap is one for each cube."""
    capped = found_of("x != 4 AND y != 4", config_of("mics", 1, "parameters = { cap = 2 }"))
    assert capped.ranges == 2 < capped.ranges_uncapped
    assert capped.over_coverage > 1
    assert capped.forwards == "ranges"
    narrow = found_of("x != 4 AND y != 4 AND x < 4", config_of("mics", 64, "parameters = { cap = 1 }"))
    assert narrow.wide
    small = found_of("x = 1 AND y < 4", config_of("mics", 64, "parameters = { cap = 1 }"))
    assert not small.wide
    assert small.ranges == small.cubes


def test_why_it_is_exact_or_not():
    """A superset says which of its reasons it has: text, conjunctions, or boxes."""
    assert found_of("x < 3 AND name = 'short'").why == "every predicate is decided by ranks"
    text = found_of("x < 3 AND name = 'longer than 7'")
    assert (text.exact, text.boxes) == (False, 1)
    assert text.why.endswith("name = 'longer than 7'")
    many = " AND ".join(f"(x = {i} OR y = {i})" for i in range(8))
    assert found_of(many).conjunctions == 256
    assert found_of(many).why == "256 conjunctions, more than 128: covered by its bounding box"
    values = ", ".join(str(2 * i) for i in range(40))
    assert found_of(f"x IN ({values}) AND y IN ({values})").why == "more than 1,024 boxes: covered by its bounding box"
    nothing = found_of("x < 3 AND x > 5")
    assert (nothing.boxes, nothing.cubes, nothing.ranges, nothing.cells_share) == (0, 0, 0, 0.0)
    assert nothing.why == "a contradiction: no event can match"


@pytest.mark.parametrize("reduction", ["covering", "mics"])
@pytest.mark.parametrize("text", FILTERS)
def test_measured_by_the_oracle(text, reduction):
    """Matching publications are counted as the oracle counts; a link carries them all and maybe more."""
    draw = random.Random(2)
    events = []
    for _ in range(200):
        event = {"x": draw.randrange(9), "y": draw.randrange(9), "name": draw.choice(["a", "b", "a long name"])}
        if draw.random() < 0.2:
            event["x"] = {"min": event["x"], "max": event["x"] + 2}
        if draw.random() < 0.2:
            event.pop(draw.choice("xy"))
        events.append(event)
    quote = config_of(reduction, parameters="parameters = { cap = 2 }" if reduction == "mics" else "").types["t"]
    values = [json.dumps(event).encode() for event in events] + [b"[]", b"no JSON", b""]
    read = [plain_event(quote, value, {}) for value in values]
    sample = measured(parse(text, quote), quote, Grid.of(quote), read)
    assert sample.publications == 200
    assert sample.matching == sum(oracle.evaluate(text, event, ATTRIBUTES) for event in events)
    assert sample.matching <= sample.crossing <= 200
    assert sample.share == sample.matching / 200
    if text in ("x < 4", "x = 2 AND y = 3") and reduction == "covering":
        assert sample.crossing == sample.matching


def test_nothing_to_measure():
    """Of no publications the share is nothing, not an error."""
    quote = config_of().types["t"]
    assert measured(parse("x < 4", quote), quote, Grid.of(quote), []) == Sample(0, 0, 0)
    assert (Sample(0, 0, 0).share, Sample(0, 0, 0).crossing_share) == (0.0, 0.0)


# ── the command, on real Kafka ──────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def here(services, unique, tmp_path, monkeypatch):
    """A folder with a configuration on the real services, whose topics exist."""
    text = TEXT.format(prefix=unique, kafka=services.kafka, redis=services.redis)
    (tmp_path / "hilcast.toml").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HILCAST_CONFIG", raising=False)
    return configured(services, unique)


def answered(capsys, *arguments):
    assert cli.main(["cost", "-t", "quote", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_share_is_counted_on_the_newest_publications(here, capsys):
    """With publications in Kafka the share is that of the newest ones; of other types and unreadable ones, nothing."""
    nothing = answered(capsys, "price < 10")
    assert (nothing["share_from"], nothing["share"]) == ("cells", nothing["cells_share"])
    assert nothing["note"] == "no publication of quote is in Kafka"
    with Publisher(here, broker="b1", type="quote", source="test") as publisher:
        for _ in range(40):
            publisher.publish({"price": 1}, key="k")
        for i in range(20):
            publisher.publish({"price": i, "symbol": "a long name" if i < 2 else "IBM"}, key="k")
        publisher.publish({"price": 1}, type="unknown", key="k")
        publisher.publish("[]", key="k")
    found = answered(capsys, "price < 10 AND symbol = 'a long name'", "--sample", "21")
    assert found["sample"] == {"publications": 20, "matching": 2, "crossing": 2}
    assert (found["share"], found["share_from"], found["exact"]) == (0.1, "publications", False)
    every = answered(capsys, "price < 10")
    assert every["sample"]["publications"] == 60
    assert every["share"] == 50 / 60
    assert answered(capsys, "price < 10", "--sample", "0")["share_from"] == "cells"
    assert cli.main(["cost", "-t", "quote", "price < 10"]) == 0
    shown = capsys.readouterr().out
    for text in ("50 of the newest 60 publications match", "Hilbert ranges", "cubes touched", "1, exact"):
        assert text in shown


def test_without_kafka_the_cells_are_counted(services, unique, tmp_path, capsys):
    """When Kafka is away the share is that of the cells, and that is said."""
    text = TEXT.format(prefix=unique, kafka=f"127.0.0.1:{free_port()}", redis=services.redis)
    (tmp_path / "hilcast.toml").write_text(text)
    found = answered(capsys, "price < 500", "--config", str(tmp_path / "hilcast.toml"))
    assert found["share_from"] == "cells"
    assert "does not answer" in found["note"]
    assert 0.4 < found["share"] < 0.6


def test_refusals_of_cost(here, capsys):
    """An unknown type or a bad filter ends with 1 and its code; a missing argument with 2."""
    assert cli.main(["cost", "-t", "nothing", "TRUE"]) == 1
    assert "unknown-type" in capsys.readouterr().err
    assert cli.main(["cost", "-t", "quote", "price <"]) == 1
    assert "filter-syntax" in capsys.readouterr().err
    for arguments in (["cost", "TRUE"], ["cost", "-t", "quote", "TRUE", "--sample", "-1"]):
        with pytest.raises(SystemExit) as ended:
            cli.main(arguments)
        assert ended.value.code == 2
