"""Groups of a broker over its types, and sharing by them: everybody interested is served once, nobody else is named."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from state.config import Distribution, parse
from state.distribution.assignment import BROADCAST, Assignment
from state.distribution.broker_groups import BrokerGroups, cell_grid
from state.filters.geometry import geometry
from state.filters.grammar import parse as parse_filter
from state.messages import read_members, write_members
from state.routing.sharing import Sharing
from state.space.decode import decode
from tests.simulation.world import World

CONFIG = """
[overlay]
brokers = ["b1"]
[types.t]
cubes = 4
[types.t.attributes]
x = { kind = "int", min = 0, max = 15 }
y = { kind = "int", min = 0, max = 15 }
[types.u.attributes]
z = { kind = "text" }
"""
TYPES = parse(CONFIG).types
FIGURES = ["unicast", "unicast_spared", "group", "group_saved", "group_discarded"]
FIGURES += ["broadcast", "broadcast_saved", "broadcast_discarded"]

filters = st.tuples(st.integers(0, 15), st.integers(0, 6), st.integers(0, 15), st.integers(0, 6)).map(
    lambda f: f"x BETWEEN {f[0]} AND {f[0] + f[1]} AND y BETWEEN {f[2]} AND {f[2] + f[3]}"
)
subscriptions = st.lists(st.tuples(st.sampled_from("abcdef"), filters, st.booleans()), min_size=1, max_size=12)


def boxes(text, name="t"):
    return geometry(parse_filter(text, TYPES[name]), TYPES[name]).boxes


def grouping_of(given, distribution):
    grouping = BrokerGroups(distribution, TYPES)
    for i, (client, text, groups) in enumerate(given):
        if groups:
            grouping.put("t", f"s{i}", client, boxes(text))
    return grouping


def junction_of(given):
    world = World(parse(CONFIG))
    for i, (client, text, groups) in enumerate(given):
        value = {"client": client, "filter": text, "groups": groups}
        world.send("hilcast.subscriptions", f"b1/t/s{i}", value)
    world.settle()
    return world.deployments[0].junctions("t")["b1"]


@settings(max_examples=60, deadline=None)
@given(
    subscriptions,
    st.integers(1, 4),
    st.sampled_from([0.0, 0.3, 1.0]),
    st.sampled_from([None, 0.0, 0.5, 1.0]),
    st.sampled_from(["forgy", "pairwise", "spanning-tree"]),
)
def test_everybody_interested_is_served_once_and_by_a_topic_it_reads(given, n, threshold, broadcast, clustering):
    """Single deliveries and named members together are the matches, each once; those named read the topic."""
    distribution = Distribution(n, threshold, broadcast, clustering)
    grouping = grouping_of(given, distribution)
    grouping.settle()
    assignment = Assignment.decode(grouping.assignment().encode())
    readers = assignment.readers()
    junction = junction_of(given)
    values = [b'{"x": %d, "y": %d}' % (x, y) for x in range(0, 16, 3) for y in range(0, 16, 2)]
    batch = decode(TYPES["t"], values)
    ranks, matches = batch.ranks, junction.interested(batch, np.arange(len(values)))
    shared = Sharing(assignment).share(junction, "t", ranks, matches)
    served = [(int(r), junction.roll.id(int(n))) for r, n, s in zip(*matches, shared.single, strict=True) if s]
    for message in shared.messages:
        assert set(message.matched) <= set(readers[message.group])
        for client, ids in message.matched.items():
            for id in ids:
                served.append((message.row, id))
                assert given[int(id[1:])][0] == client
                assert given[int(id[1:])][2], "opted in"
    assert sorted(served) == sorted((int(r), junction.roll.id(int(n))) for r, n in zip(*matches, strict=True))
    assert len({(m.row, m.group) for m in shared.messages}) == len(shared.messages)
    if shared.figures:
        assert shared.figures == counted_by_hand(shared, assignment, junction, ranks, matches)
    else:
        assert not shared.messages


def counted_by_hand(shared, assignment, junction, ranks, matches):
    """What each method did, event by event and client by client."""
    counted = dict.fromkeys(FIGURES, 0)
    for message in shared.messages:
        method = "broadcast" if message.group == BROADCAST else "group"
        readers = assignment.readers()[message.group]
        counted[method] += 1
        counted[f"{method}_saved"] += len(message.matched) - 1
        counted[f"{method}_discarded"] += sum(client not in message.matched for client in readers)
    pairs = list(zip(matches.rows.tolist(), matches.numbers.tolist(), shared.single.tolist(), strict=True))
    groups = assignment.types["t"]
    cells = np.frombuffer(groups.cells, "<i8").tolist()
    for row in set(matches.rows.tolist()):
        interested = {junction.roll.client(int(n)) for r, n, _ in pairs if r == row and junction.grouped[n]}
        alone = {junction.roll.client(int(n)) for r, n, single in pairs if r == row and single and junction.grouped[n]}
        counted["unicast"] += len(alone)
        cell = int(cell_grid(TYPES["t"], np.empty((0, 2), np.int64)).cells_of(ranks[row : row + 1])[0])
        label = np.frombuffer(groups.labels, "<i8")[cells.index(cell)] if cell in cells else -1
        members = set(assignment.readers().get(groups.first + label, ())) if label >= 0 else set()
        if not [m for m in shared.messages if m.row == row] and members & interested:
            counted["unicast_spared"] += len(members - interested)
    return counted


@settings(max_examples=40, deadline=None)
@given(subscriptions, st.lists(st.integers(0, 11), max_size=6), subscriptions)
def test_groups_follow_subscriptions(given, gone, more):
    """After changes the assignment names as readers of a group exactly clients with a box in one of its cells."""
    grouping = grouping_of(given, Distribution(3))
    grouping.settle()
    for i in gone:
        grouping.drop("t", f"s{i}")
    for i, (client, text, _) in enumerate(more):
        grouping.put("t", f"s{i}", client, boxes(text))
    grouping.settle()
    assignment = grouping.assignment()
    live = {f"s{i}": (c, t) for i, (c, t, g) in enumerate(given) if g and i not in gone}
    live |= {f"s{i}": (c, t) for i, (c, t, _) in enumerate(more)}
    assert assignment.clients == sorted({client for client, _ in live.values()})
    groups = assignment.types["t"]
    grid = cell_grid(TYPES["t"], np.empty((0, 2), np.int64))
    cells, labels = np.frombuffer(groups.cells, "<i8"), np.frombuffer(groups.labels, "<i8")
    for number, row in enumerate(assignment.members("t")):
        mine = cells[labels == number]
        expected = {client for client, text in live.values() if grid.meets(mine, boxes(text)).any()}
        assert {assignment.clients[i] for i in np.flatnonzero(row)} == expected


def test_nothing_changes_without_a_change():
    """`settle` tells of a change once, and of none where there is none."""
    grouping = grouping_of([("a", "x < 3", True)], Distribution(2))
    assert grouping.settle()
    assert not grouping.settle()
    grouping.drop("t", "unknown")
    assert not grouping.settle()
    grouping.drop("t", "s0")
    assert grouping.settle()
    assert grouping.assignment().readers() == {}


def test_groups_are_formed_anew_when_publications_move():
    """Publications that leave the cells of the groups make them form anew, where the publications are."""
    grouping = BrokerGroups(Distribution(1), TYPES)
    for i, low in enumerate([0, 8]):
        for client in "abc":
            grouping.put("t", f"{client}{i}", client, boxes(f"x BETWEEN {low} AND {low + 1}"))
    points = decode(TYPES["t"], [b'{"x": 0, "y": 0}', b'{"x": 1, "y": 3}'] * 600).ranks
    grouping.observe("t", points)
    grouping.settle()
    elsewhere = decode(TYPES["t"], [b'{"x": 8, "y": 0}', b'{"x": 9, "y": 3}'] * 1500).ranks
    grouping.observe("t", elsewhere)
    assert grouping.settle()
    label = Sharing(grouping.assignment())._types["t"]
    cells = label.grid.cells_of(elsewhere)
    assert np.isin(cells, label.cells).all()


@pytest.mark.parametrize(
    ("clients", "parts", "better"),
    [(10, 5, lambda t: t > 0.2), (399, 7, lambda t: t <= 1 / 7), (20, 1, lambda t: t == 0.15)],
)
def test_a_threshold_is_fitted_as_groups_live(clients, parts, better):
    """To a small group less goes than by the paper's t, to a large one more; t stays where no other one saves, and a
    number that was given stays anyway. `settle` tells of a new t, once.
    """
    values = [b'{"x": %d, "y": 0}' % (i % parts) for i in range(300)]
    for threshold in ("fit", 0.15):
        groups = BrokerGroups(Distribution(1, threshold), TYPES)
        for i in range(clients):
            groups.put("t", f"s{i}", f"c{i}", boxes(f"x = {i % parts}"))
        assert groups.settle()
        groups.observe("t", decode(TYPES["t"], values[:30]).ranks)
        groups.settle()
        assert groups.assignment().threshold == 0.15, "too little was seen"
        groups.observe("t", decode(TYPES["t"], values).ranks)
        changed = groups.settle()
        found = groups.assignment().threshold
        assert better(found) if threshold == "fit" else found == 0.15
        assert changed == (found != 0.15)
        groups.observe("t", decode(TYPES["t"], values).ranks)
        assert not groups.settle()


def test_types_do_not_share_topics_and_text_can_be_grouped():
    """Each type has group numbers of its own, text included, and a client of both is a reader of both."""
    grouping = BrokerGroups(Distribution(2, broadcast=0.5), TYPES)
    grouping.put("t", "s", "a", boxes("x < 3"))
    grouping.put("u", "s", "a", boxes("z = 'hello'", "u"))
    grouping.settle()
    assignment = grouping.assignment()
    readers = assignment.readers()
    assert readers[BROADCAST] == ["a"]
    assert {n for n in readers if n != BROADCAST} == {
        groups.first + i for groups in assignment.types.values() for i in range(groups.n)
    }
    assert assignment.types["u"].first == 2


@given(
    st.dictionaries(
        st.sampled_from([f"client-{i}" * 4 for i in range(40)]),
        st.lists(st.sampled_from([f"s{i}" * 20 for i in range(60)]), min_size=1, unique=True),
        max_size=40,
    )
)
@settings(max_examples=30, deadline=None)
def test_members_come_back(matched):
    """Reading what was written names the same clients and ids, in as many headers as Kafka's room asks for."""
    headers = write_members(matched)
    read = {}
    for header, clients in headers:
        assert len(header) <= 16 * 1024
        members = read_members(header)
        assert list(members) == clients
        assert not set(members) & set(read)
        read |= members
    assert {c: ids.split(",") for c, ids in read.items()} == {c: sorted(ids) for c, ids in matched.items()}


@pytest.mark.parametrize("value", ["yes", 1, [], {}])
def test_groups_must_be_a_boolean(value):
    """Anything but true or false is refused, and so is an opt-in beside a sink."""
    world = World(parse(CONFIG))
    world.send("hilcast.subscriptions", "b1/t/s", {"client": "a", "filter": "x < 3", "groups": value})
    world.send("hilcast.subscriptions", "b1/t/s", {"client": "a", "filter": "x < 3", "groups": True, "sink": "x"})
    world.settle()
    receipts = [record.value for record in world.log.topics["hilcast.receipts"]]
    assert [b'"code":"bad-value"' in text for text in receipts] == [True, True]
