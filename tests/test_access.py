"""Who may do what, against a table that was written by hand."""

from __future__ import annotations

import pytest

from state.access import CLUSTER, Grant, compared, grants, of_client, unexpressed
from state.config import parse

BASE = """
[overlay]
brokers = ["b1", "b2"]
links = [["b1", "b2"]]
[types.t.attributes]
x = { kind = "int" }
[[sources]]
topic = "legacy.quotes"
broker = "b1"
type = "t"
"""
OWN = """
[distribution.b1]
groups = 2
[[sinks]]
topic = "alerts.eu"
clients = ["alice"]
[schemas]
url = "http://127.0.0.1:8081"
[security]
inboxes = "own"
job = "User:router"
operators = ["User:ops"]
[security.clients.alice]
[security.clients.bob]
principal = "User:robert"
groups = "team"
"""
WHO = ("User:router", "User:ops", "User:alice", "User:robert", "User:eve")
TABLE = """
topic hilcast.subscriptions.alice      r       r       w       -       -
topic hilcast.advertisements.alice     r       r       w       -       -
topic hilcast.publications.alice       r       r       w       -       -
topic hilcast.subscriptions.bob        r       r       -       w       -
topic hilcast.subscriptions.bobby      r       r       -       -       -
topic hilcast.subscriptions            -       r       -       -       -
topic hilcast.publications             -       r       -       -       -
topic hilcast.receipts                 w       r       -       -       -
topic hilcast.receipts.alice           w       r       r       -       -
topic hilcast.receipts.bob             w       r       -       r       -
topic hilcast.deliver.alice            w       r       r       -       -
topic hilcast.deliver.bob              w       r       -       r       -
topic hilcast.deliver.bobby            w       r       -       -       -
topic hilcast.control                  rw      r       -       -       -
topic hilcast.registry                 rw      rw      -       -       -
topic hilcast.groups                   rw      r       r       r       -
topic hilcast.group.b1.0               w       r       r       -       -
topic hilcast.broadcast.b1             w       r       r       -       -
topic hilcast.set.team.group.b1.0      w       r       -       r       -
topic hilcast.set.team.broadcast.b1    w       r       -       r       -
topic hilcast.set.teams.group.b1.0     w       r       -       -       -
topic hilcast.link.b1.b2               rw      r       -       -       -
topic hilcast.waiting.main             rw      r       -       -       -
topic hilcast.waited.main              rw      r       -       -       -
topic hilcast.routed                   w       r       -       -       -
topic hilcast.progress                 w       r       -       -       -
topic hilcast.deadletter               w       r       -       -       -
topic legacy.quotes                    r       r       -       -       -
topic alerts.eu                        w       r       -       -       -
topic orders                           -       -       -       -       -
topic hilcast                          -       -       -       -       -
topic hilcastle.deliver.x              -       -       -       -       -
group hilcast.control.main             r       -       -       -       -
group hilcast.client.alice             r       -       r       -       -
group hilcast.client.alice.app         r       -       r       -       -
group hilcast.client.alicek            r       -       -       -       -
group hilcast.client.bob               r       -       -       r       -
group shop                             -       -       -       -       -
"""


def allowed(given, who, operation, resource, name):
    """A plain reading of ACLs: one that fits is enough."""
    return any(g.principal == who and g.operation == operation and g.covers(resource, name) for g in given)


@pytest.mark.parametrize("line", TABLE.strip().splitlines(), ids=lambda line: line.split()[1])
def test_reading_and_writing(line):
    """Each principal may read and write what the table says, and nothing else."""
    resource, name, *rights = line.split()
    given = grants(parse(BASE + OWN))
    found = ["".join(o[0] for o in ("read", "write") if allowed(given, who, o, resource, name)) or "-" for who in WHO]
    assert found == rights


def test_what_else_may_be_done():
    """Topics are created by the job and by operators, deleted by the job; the cluster is looked at by operators."""
    given = grants(parse(BASE + OWN))
    creating = {who for who in WHO if allowed(given, who, "create", "topic", "hilcast.deliver.new")}
    deleting = {who for who in WHO if allowed(given, who, "delete", "topic", "hilcast.deliver.new")}
    assert (creating, deleting) == ({"User:router", "User:ops"}, {"User:router"})
    assert not [g for g in given if g.operation == "delete" and g.covers("topic", "hilcast.registry")]
    assert {g for g in given if g.resource == "cluster"} == {
        Grant("User:ops", "cluster", "literal", CLUSTER, "describe")
    }
    # what the fence asks for
    for who in ("User:alice", "User:robert"):
        assert allowed(given, who, "describe", "topic", "hilcast.control")
        assert allowed(given, who, "describe", "group", "hilcast.control.main")
        assert not allowed(given, who, "describe", "topic", "hilcast.registry")


def test_partitions_of_deliveries_are_given_where_that_is_set():
    """The job may alter topics of deliveries where they may have several; else it has no need to."""
    for more, may in (("", False), ("[settings]\ndelivery_partitions = 2\n", True)):
        given = grants(parse(BASE + OWN + more))
        assert allowed(given, "User:router", "alter", "topic", "hilcast.deliver.alice") is may
        assert allowed(given, "User:router", "alter", "topic", "hilcast.link.b1.b2")


def test_nobody_is_granted_a_prefix_that_ends_inside_a_name():
    """What is granted by a prefix ends where a name ends."""
    assert all(g.name.endswith(".") for g in grants(parse(BASE + OWN)) if g.pattern == "prefixed")


def test_shared_inboxes_are_everybodys():
    """Clients of shared inboxes write to the same topics and read the same receipts; that is what `shared` means."""
    config = parse(BASE + "[security]\noperators = ['User:ops']\n")
    given = grants(config, ["alice", "bob"])
    for who in ("User:alice", "User:bob"):
        assert allowed(given, who, "write", "topic", "hilcast.subscriptions")
        assert allowed(given, who, "read", "topic", "hilcast.receipts")
    assert allowed(given, "User:alice", "read", "topic", "hilcast.deliver.alice")
    assert not allowed(given, "User:alice", "read", "topic", "hilcast.deliver.bob")
    assert allowed(given, "User:hilcast", "read", "topic", "hilcast.subscriptions")
    assert len(unexpressed(config)) == 1


def test_clients_that_the_file_does_not_name_have_rights_too():
    """A client that was added later has its name as principal, and the same rights as others."""
    config = parse(BASE + OWN)
    assert set(of_client(config, "zoe")) == set(grants(config, ["zoe"])) - set(grants(config))
    assert {g.principal for g in of_client(config, "zoe")} == {"User:zoe"}


@pytest.mark.parametrize(
    ("pattern", "prefix"),
    [
        (r"legacy\..*", "legacy."),
        ("a-b.*", "a-b"),
        (r"x\.y\..+", "x.y."),
        ("a|b", None),
        ("a.c.*", None),
        ("[q].*", None),
    ],
)
def test_patterns_of_sources(pattern, prefix):
    """A pattern that means `whatever begins so` is granted as a prefix; of any other it is said what to do."""
    text = BASE.replace('topic = "legacy.quotes"', f"pattern = '{pattern}'") + OWN
    given = [g for g in grants(parse(text)) if not g.name.startswith("hilcast.") and g.operation == "read"]
    names = {g.name for g in given if g.principal == "User:router" and g.resource == "topic"}
    assert names == (set() if prefix is None else {prefix})
    assert len(unexpressed(parse(text))) == (prefix is None)


def test_what_is_there_is_compared_with_what_should_be():
    """Missing is what is not granted; beyond is what reaches into the prefix and is not wanted; others' is not told."""
    wanted = grants(parse(BASE + OWN))
    beyond = [
        Grant("User:eve", "topic", "literal", "hilcast.deliver.alice", "read"),
        Grant("User:eve", "topic", "literal", "*", "write"),
        Grant("User:eve", "topic", "prefixed", "hil", "read"),
        Grant("User:eve", "group", "prefixed", "hilcast.client.", "all"),
    ]
    others = [
        Grant("User:eve", "topic", "prefixed", "orders.", "read"),
        Grant("User:eve", "topic", "literal", "hilcast", "read"),
        Grant("User:ops", "cluster", "literal", CLUSTER, "alter"),
    ]
    found = compared(wanted, [*wanted[3:], *beyond, *others], "hilcast")
    assert (found.missing, found.surplus) == (wanted[:3], sorted(beyond))
