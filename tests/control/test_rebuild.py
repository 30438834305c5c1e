"""A generation made piece by piece, in any order, by anybody, is the one that is made in one go."""

from __future__ import annotations

import json
import random
from collections import defaultdict

import numpy as np
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from state.config import parse
from state.control.context import Context
from state.control.facts import Fact, Kind, Name
from state.control.protocol import Resync, decode, encode
from state.control.rebuild import (
    Rebuilt,
    _in_waves,
    _swept,
    by_home_key,
    greetings,
    parts_of,
    rebuild,
    restored,
    settled,
)
from state.keys import Key
from state.messages import own_receipts
from state.space.boxes import Boxes
from state.space.packing import unpack
from tests.simulation.scenario import REDUCTIONS

CONFIG = """
[deployment]
name = "d"
hosts = {hosts}
[overlay]
brokers = ["b1", "b2", "b3", "b4"]
links = [["b1", "b2"], ["b2", "b3"], ["b2", "b4"]]
[settings]
home_shards = 2
wide_shards = 2
[types.t]
cubes = {cubes}
bits = 4
index = ["x", "y"]
advertisements = {advertisements}
{reduction}
{prune}
[types.t.attributes]
x = {{ kind = "int", min = 0, max = 15 }}
y = {{ kind = "int", min = 0, max = 15 }}
s = {{ kind = "text" }}
"""
SPANS = st.tuples(st.integers(0, 15), st.integers(0, 15)).map(sorted)
FILTERS = st.one_of(
    st.tuples(SPANS, SPANS).map(lambda b: "x BETWEEN {} AND {} AND y BETWEEN {} AND {}".format(*b[0], *b[1])),
    st.sampled_from(
        ["s LIKE 'a%'", "s = 'a long text' OR x = 3", "x > 2", "nowhere = 1", "x <", "s = 'abc' AND y < 9"]
    ),
)


@st.composite
def generations(draw):
    """A configuration, and what the registry says."""
    advertisements = draw(st.booleans())
    reduction = draw(st.sampled_from(sorted(REDUCTIONS)))
    parameters = draw(st.sampled_from(REDUCTIONS[reduction]))
    text = CONFIG.format(
        hosts=json.dumps(draw(st.sampled_from([["b1", "b2", "b3", "b4"], ["b2"], ["b1", "b3"]]))),
        cubes=draw(st.sampled_from([1, 4, 16])),
        advertisements=str(advertisements).lower(),
        reduction=f'reduction = "{reduction}"',
        prune="pruning.subscriptions = 3" if draw(st.booleans()) else "",
    )
    config = parse(text + (f"[types.t.parameters]\n{parameters}\n" if parameters else ""))
    facts = []
    for i in range(draw(st.integers(0, 25))):
        kind = draw(
            st.sampled_from(["subscription", "subscription", "advertisement"] if advertisements else ["subscription"])
        )
        broker = draw(st.sampled_from(["b1", "b2", "b3", "b4", "gone"]))
        facts.append((kind, broker, "t", f"i{i}", fact(draw(FILTERS), i, live=draw(st.integers(0, 5)) > 0)))
    return config, facts, draw(st.integers(0, 2**32))


def fact(filter, offset, *, live):
    return Fact(
        version=1, owner=f"c{offset % 3}", filter=json.dumps(filter) if live else None, ttl_ms=None, expires_ms=None,
        sink=None, content=b"", topic="hilcast.subscriptions", partition=0, offset=offset, timestamp_ms=0, live=live,
        ended=None if live else "withdrawn",
    )  # fmt: skip


def copied(facts):
    return [(*names, Fact(**{f: getattr(one, f) for f in one.__struct_fields__})) for *names, one in facts]


def in_pieces(config, facts, seed):
    """Homes and parts in any order, each by a process of its own; what is told goes over the wire."""
    rng, context = random.Random(seed), Context(config, 3, 0)
    by_home, displaced = by_home_key(copied(facts), context)
    rebuilt, told = Rebuilt(outputs=displaced), defaultdict(list)
    for key in rng.sample(sorted(by_home), len(by_home)):
        home = restored(key, rng.sample(by_home[key], len(by_home[key])), Context(config, 3, 0).of_everyone())
        if key.broker in context.hosts:
            rebuilt.take(home)
        for target, change in home.told:
            to = Key.parse(target)
            told[to.type, to.part].append((target, decode(encode(change))))
    for part in rng.sample(parts_of(context), len(parts_of(context))):
        context = Context(config, 3, 0)
        for one in settled(part, rng.sample(told[part], len(told[part])), context, context.of_everyone()):
            rebuilt.take(one)
    rebuilt.topics |= own_receipts(rebuilt.outputs, context.topics)
    return rebuilt


@given(generations())
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_pieces_in_any_order_are_the_whole(drawn):
    """States, indexes and what people read of them are the same bytes; the same is answered."""
    config, facts, seed = drawn
    whole, pieces = rebuild(copied(facts), Context(config, 3, 0)), in_pieces(config, facts, seed)
    assert pieces.states == whole.states
    assert pieces.indexes == whole.indexes
    assert (pieces.forwarding, pieces.reduced, pieces.topics) == (whole.forwarding, whole.reduced, whole.topics)
    assert sorted(map(repr, pieces.outputs)) == sorted(map(repr, whole.outputs))


def test_who_is_greeted():
    """Each part at each border to another deployment, both ways; nobody where one deployment has it all."""
    text = CONFIG.format(hosts='["b1", "b3"]', cubes=4, advertisements="false", reduction="", prune="")
    said = list(greetings(Context(parse(text), 3, 0)))
    parts = {f"cube:{i}" for i in range(4)} | {"wide:0", "wide:1"}
    assert {(str(to), message.source) for to, message in said} == {
        pair for a in ("b1", "b3") for p in parts
        for pair in ((f"{a}/t/{p}", f"b2/t/{p}"), (f"b2/t/{p}", f"{a}/t/{p}"))
    }  # fmt: skip
    assert all(isinstance(message, Resync) for _, message in said)
    alone = text.replace('hosts = ["b1", "b3"]', 'hosts = ["b1", "b2", "b3", "b4"]')
    assert not list(greetings(Context(parse(alone), 3, 0)))


def test_names_are_restored_in_the_order_of_their_inbox():
    """However the facts of a home come: what was registered first comes first."""
    config = parse(CONFIG.format(hosts='["b1"]', cubes=4, advertisements="false", reduction="", prune=""))
    facts = [(Name(Kind.SUBSCRIPTION, f"i{i}"), fact("x < 3", i, live=True)) for i in range(6)]
    homes = [
        restored(Key("b1", "t", "home:0"), some, Context(config, 3, 0).of_everyone()) for some in (facts, facts[::-1])
    ]
    assert homes[0].state == homes[1].state
    assert homes[0].told == homes[1].told


EXACT = {"none", "covering", "negative-space"}
"""Reductions whose neighbours hold just what was asked for, whatever came when."""


@given(generations())
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_one_message_a_link_says_what_waves_say(drawn):
    """Each broker holds of each neighbour all that the brokers behind it ask for, told in one message.

    Held against the waves in which keys tell each other: where the reduction is exact, the same region.
    """
    config, facts, _ = drawn
    type = config.types["t"]
    assume(not type.advertisements and type.reduction != "probabilistic")
    context = Context(config, 3, 0)
    everyone = context.of_everyone()
    told = defaultdict(lambda: defaultdict(list))
    for key, some in sorted(by_home_key(copied(facts), context)[0].items()):
        for target, change in restored(key, some, everyone).told:
            told[Key.parse(target).part][Key.parse(target)].append(change)
    for part, messages in told.items():
        asked = {key.broker: [x.travelling for c in some for x in c.local] for key, some in messages.items()}
        swept = _swept(("t", part), dict(messages), everyone)
        waves = _in_waves(messages, everyone)
        assert swept.keys() == waves.keys()
        for key, cube in swept.items():
            assert cube.state.local == waves[key].state.local
            for neighbour in cube.neighbours:
                source = str(key.at(neighbour))
                behind = [b for b in config.overlay.brokers if neighbour in config.overlay.path(key.broker, b)]
                wanted = [one for b in behind for one in cube._geometries(asked.get(b, [])) if len(one)]
                held = [unpack(e.geometry) for e in cube.state.received.get(neighbour, {}).values()]
                before = [unpack(e.geometry) for e in waves[key].state.received.get(neighbour, {}).values()]
                assert cube.state.incoming.get(source, (3, 0)) == (3, int(bool(wanted)))
                points = corners([*wanted, *held, *before])
                assert not (inside(points, wanted) & ~inside(points, held)).any()
                if type.reduction in EXACT:
                    assert (inside(points, held) == inside(points, before)).all()


def corners(some):
    """Points such that two unions of these regions are the same if they hold the same of them."""
    if not some:
        return np.empty((0, 1), np.int64)
    spans = [spans_of(one) for one in some]
    lows, highs = (np.concatenate(each) for each in zip(*spans, strict=True))
    axes = [np.unique(np.concatenate([lows[:, j], highs[:, j][highs[:, j] < 2**62] + 1])) for j in range(lows.shape[1])]
    return np.stack([axis.ravel() for axis in np.meshgrid(*axes)], axis=1)


def inside(points, some):
    found = np.zeros(len(points), bool)
    for one in some:
        for low, high in zip(*spans_of(one), strict=True):
            found |= ((points >= low) & (points <= high)).all(axis=1)
    return found


def spans_of(one):
    if isinstance(one, Boxes):
        return one.lows, one.highs
    return one.starts.reshape(-1, 1), one.ends.reshape(-1, 1)
