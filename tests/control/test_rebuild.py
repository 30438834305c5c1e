"""A generation made piece by piece, in any order, by anybody, is the one that is made in one go."""

from __future__ import annotations

import json
import random
from collections import defaultdict

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from state.config import parse
from state.control.context import Context
from state.control.facts import Fact, Kind, Name
from state.control.protocol import Resync, decode, encode
from state.control.rebuild import Rebuilt, by_home_key, greetings, parts_of, rebuild, restored, settled
from state.keys import Key
from state.messages import own_receipts
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
