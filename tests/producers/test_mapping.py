"""Clients that map their subscriptions themselves: what goes on the wire, and where the grid comes from."""

from __future__ import annotations

import json

import pytest

from hilcast import RefusedError, Subscriber
from infra.local.ports import free_port
from producers import cli
from producers.client.mapper import RANGES_MAX, Mapper
from state.config import parse
from state.errors import HilcastError
from state.redis_index import RedisIndex
from state.space.boxes import Boxes
from state.space.grid import Grid
from state.space.mapping import map_subscription, read_subscription_mapping
from state.space.ranks import ABSENT
from tests.producers.test_client import Answering
from tests.producers.worlds import answer, configured, text

PLAIN = """
[deployment]
redis = "redis://127.0.0.1:{port}/0"
[overlay]
brokers = ["b1"]
[types.t]
index = ["x", "y"]
bits = 4
cubes = 1
[types.t.attributes]
x = {{ kind = "int", min = 0, max = 15 }}
y = {{ kind = "int", min = 0, max = 15, imprecise = "possible" }}
"""


@pytest.fixture
def plain():
    return parse(PLAIN.format(port=free_port()))


@pytest.fixture
def config(services, unique):
    return configured(services, unique)


def describe(config, **changes):
    """Let Redis describe the grids of the configuration, with other bits if given; the grid of `quote`."""
    quote = config.types["quote"]
    grid = Grid.of(type(quote)(quote.name, quote.attributes, cubes=quote.cubes, **changes))
    index = RedisIndex(config)
    index.describe_grids({"quote": grid})
    index.close()
    return grid


# ── the mapper by itself ────────────────────────────────────────────────────────────────────────────────────────


def test_ranges_are_those_of_the_filter(plain):
    """On the grid of the configuration, and never more than the cap; a filter that cannot be read has none."""
    mapper, grid = Mapper(plain), Grid.of(plain.types["t"])
    ranges = read_subscription_mapping(mapper.ranges("t", "x BETWEEN 2 AND 3 AND y <= 1"), grid)
    assert ranges == grid.ranges(Boxes.of([([2, ABSENT + 1], [3, 1])]))
    assert read_subscription_mapping(mapper.ranges("t", [{"exact": {"x": 2}}]), grid) == grid.ranges(
        Boxes.of([([2, ABSENT], [2, 2**63 - 1])])
    )
    fine = parse(PLAIN.format(port=free_port()).replace("bits = 4", "bits = 10").replace("max = 15", "max = 1023"))
    grid, most = Grid.of(fine.types["t"]), Boxes.of([([1, 1], [1021, 1021])])
    text = Mapper(fine).ranges("t", "x BETWEEN 1 AND 1021 AND y BETWEEN 1 AND 1021")
    assert len(read_subscription_mapping(text, grid, most)) <= RANGES_MAX < len(grid.ranges(most))
    assert mapper.ranges("t", "x <") is None


def test_a_type_that_is_not_there_and_redis_away(plain):
    """Both are said: mapping was asked for and cannot be done."""
    with pytest.raises(HilcastError, match="unknown-type: 'u' is none of t"):
        Mapper(plain).ranges("u", "x = 1")
    with pytest.raises(HilcastError, match="redis-away"):
        Mapper(plain, "redis").ranges("t", "x = 1")


def test_the_grid_of_redis_is_fetched_once_and_again_when_forgotten(config):
    """What the running router describes counts, also where the configuration at hand says something else."""
    mapper = Mapper(config, "redis")
    with pytest.raises(HilcastError, match=f"unknown-type: no grid under {config.deployment.prefix}:grid:quote"):
        mapper.grid("quote")
    first = describe(config, bits=3)
    assert mapper.grid("quote").hash == first.hash != Grid.of(config.types["quote"]).hash
    assert mapper.ranges("quote", "price < 3").startswith(f"hs1.{first.hash}")
    second = describe(config, bits=4)
    assert mapper.grid("quote").hash == first.hash
    mapper.forget("quote")
    assert mapper.grid("quote").hash == second.hash


# ── on the wire ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_subscriptions_are_mapped_on_demand(config):
    """With `mapping` the ranges of the filter go along, and a filter that cannot be read goes as it is."""
    grid = Grid.of(config.types["quote"])
    with (
        Answering(config, config.topics.subscriptions, lambda record: [answer(config, record.place)]) as router,
        Subscriber(config, "alice") as alice,
    ):
        alice.subscribe("b1", "quote", "price < 3")
        alice.subscribe("b1", "quote", "price < 3", mapping=True)
        alice.replace("b1", "quote", "s", "price < 4", mapping=True)
        alice.subscribe("b1", "quote", "price <", mapping=True)
        sent = [json.loads(record.value).get("ranges") for record in router.seen]
    assert (sent[0], sent[3]) == (None, None)
    assert all(len(read_subscription_mapping(text, grid)) > 0 for text in sent[1:3])


def test_ranges_of_an_old_grid_are_made_again(config):
    """A client that maps on the grid of Redis learns of a new one by the refusal, and its subscription is accepted."""
    first = describe(config, bits=3)
    now = [first]

    def reply(record):
        try:
            read_subscription_mapping(json.loads(record.value)["ranges"], now[0])
        except HilcastError as error:
            return [answer(config, record.place, "refused", code=error.code, reason=error.reason)]
        return [answer(config, record.place)]

    with (
        Answering(config, config.topics.subscriptions, reply) as router,
        Subscriber(config, "alice") as alice,
    ):
        assert alice.subscribe("b1", "quote", "price < 3", mapping="redis").kind == "accepted"
        now[0] = describe(config, bits=4)
        assert alice.subscribe("b1", "quote", "price < 3", id="again", version=5, mapping="redis").kind == "accepted"
        keys = [(record.key, json.loads(record.value).get("version")) for record in router.seen[1:]]
        assert keys == [(b"b1/quote/again", 5)] * 2
        now[0] = first  # Redis still describes the other: there is nothing to make the ranges of
        with pytest.raises(RefusedError, match="stale-grid"):
            alice.subscribe("b1", "quote", "price < 3", mapping="redis")
        assert len(router.seen) == 4
        with pytest.raises(RefusedError, match="stale-grid"):
            alice.subscribe("b1", "quote", "price < 3", mapping=True)
        assert len(router.seen) == 5


def test_the_command_line_maps_on_demand(services, unique, config, tmp_path, capsys):
    """`subscribe --mapping` does what the library does; a grid is the one or the other."""
    path = tmp_path / "hilcast.toml"
    path.write_text(text(services, unique))
    describe(config)
    target = ["-b", "b1", "-t", "quote", "--config", str(path)]
    with Answering(config, config.topics.subscriptions, lambda record: [answer(config, record.place)]) as router:
        assert cli.main(["subscribe", *target, "-c", "alice", "--mapping", "configuration", "price < 3"]) == 0
    grid = Grid.of(config.types["quote"])
    everything = map_subscription(grid, Boxes.everything(2))
    assert json.loads(router.seen[0].value)["ranges"] != everything
    assert len(read_subscription_mapping(json.loads(router.seen[0].value)["ranges"], grid)) > 0
    with pytest.raises(SystemExit) as ended:
        cli.main(["subscribe", *target, "-c", "alice", "--mapping", "mars", "price < 3"])
    assert ended.value.code == 2
    assert "must be `configuration` or `redis`" in capsys.readouterr().err
