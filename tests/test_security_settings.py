"""Who may do what, as the configuration says it: what is read, what is refused, what begins a new generation."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from state.changes import changes
from state.config import Config, load, parse
from state.control.facts import Fact
from state.errors import ConfigError
from state.security_settings import Client, Limits, Quota, Security, Signing, Sink
from state.topics import INBOXES, Topics

SMALL = """
[overlay]
brokers = ["b1"]
[types.t.attributes]
x = { kind = "int" }
"""
OWN = '[security]\ninboxes = "own"\n'
WHOLE = """
[security]
inboxes = "own"
dead_letters = "reference"
job = "User:router"
operators = ["User:ops", "User:eve"]
[security.clients.shop]
principal = "User:CN=shop,O=x"
sources = ["urn:shop", "urn:shop/*"]
groups = "team-a"
[security.clients.bob]
[[sinks]]
topic = "alerts.eu"
clients = ["shop", "bob"]
[limits]
subscriptions = 1000
share = 0.25
[limits.clients.shop]
subscriptions = 5000
[limits.types.t]
boxes = 7
[signing]
key_file = "signing.key"
"""


def small(text: str) -> Config:
    return parse(SMALL + text)


def faults(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        small(text)
    return caught.value.faults


def test_everything_is_read_as_it_is_written() -> None:
    """Every table of the security settings arrives as its typed form; what a client's table leaves out is its name."""
    config = small(WHOLE)
    shop = Client("User:CN=shop,O=x", ("urn:shop", "urn:shop/*"), "team-a")
    bob = Client("User:bob", ("bob", "bob/*"))
    operators = ("User:ops", "User:eve")
    assert config.security == Security("own", "reference", "User:router", operators, {"shop": shop, "bob": bob})
    assert config.sinks == (Sink("alerts.eu", ("shop", "bob")),)
    assert config.signing == Signing("signing.key", None)
    assert config.limits == Limits(
        Quota(subscriptions=1000, share=0.25),
        {"shop": Quota(subscriptions=5000, share=0.25)},
        {"t": Quota(boxes=7)},
    )


def test_nothing_said_is_as_before() -> None:
    """A file without these tables shares its inboxes, limits nothing, grants every sink, and signs nothing."""
    config = small("")
    assert (config.security, config.sinks, config.limits, config.signing) == (Security(), (), Limits(), None)
    assert not config.security.own
    assert not config.limits.any
    assert config.grants("anything", "anybody")
    assert config.shared == parse(SMALL).shared


def test_what_decides_begins_a_new_generation_and_nothing_else_does() -> None:
    """Inboxes, sources, sinks and limits change the fingerprint; principals, operators, sets, keys do not."""
    own = '[security]\ninboxes = "own"\n'
    plain = small("").fingerprint()
    assert (
        small('[security]\njob = "User:x"\noperators = ["User:y"]\ndead_letters = "reference"').fingerprint() == plain
    )
    assert small('[signing]\nkey_file = "k"').fingerprint() == plain
    assert small('[security.clients.a]\ngroups = "s"\nprincipal = "User:b"').fingerprint() == plain
    other = [
        own,
        own + '[security.clients.a]\nsources = ["s"]',
        '[[sinks]]\ntopic = "x"\nclients = ["a"]',
        '[[sinks]]\ntopic = "x"\nclients = ["b"]',
        "[limits]\nboxes = 3",
        own + "[limits.clients.a]\nboxes = 3",
        "[limits.types.t]\nboxes = 3",
    ]
    assert len({plain, *(small(text).fingerprint() for text in other)}) == len(other) + 1


def test_all_of_it_but_the_key_is_in_common(tmp_path: Path) -> None:
    """Another deployment adopts inboxes, sinks and limits; the place of the signing key stays each deployment's own."""
    file = tmp_path / "hilcast.toml"
    file.write_text(SMALL + WHOLE)
    config = load(file)
    assert config.signing == Signing(str(tmp_path / "signing.key"), None)
    assert b"signing" not in config.shared
    other = small('[signing]\nkey_file = "mine"').adopting(config.shared)
    assert (other.security, other.sinks, other.limits) == (config.security, config.sinks, config.limits)
    assert other.signing == Signing("mine", None)
    assert other.fingerprint() == config.fingerprint()
    assert config.adopting(config.shared).signing == config.signing


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('[security]\ninboxes = "mine"', "security.inboxes: must be one of shared, own"),
        ("[security]\ninbox = 1", "security.inbox: unknown key; did you mean 'inboxes'?"),
        ('[security]\njob = "hilcast"', "security.job: must be a principal of Kafka such as User:alice"),
        ('[security]\noperators = ["User:*"]', "security.operators: item 1: must be a principal"),
        ('[security.clients."a.b"]', 'security.clients."a.b": the name of a client must match'),
        ('[security.clients.a]\nsources = ["x*y"]', "security.clients.a.sources: item 1: must be a ce_source"),
        ("[security.clients.a]\nsources = []", "security.clients.a.sources: must name at least one source"),
        ('[[sinks]]\ntopic = "x"', "sinks[1].clients: missing"),
        ('[[sinks]]\ntopic = "hilcast.deliver.x"\nclients = ["a"]', "sinks[1].topic: 'hilcast.deliver.x' is under"),
        ('[[sinks]]\ntopic = "hilcast_control"\nclients = ["a"]', "sinks[1].topic: 'hilcast_control' is under"),
        ('[[sinks]]\ntopic = "__x"\nclients = ["a"]', "sinks[1].topic: '__x' is Kafka's own"),
        (
            '[[sinks]]\ntopic = "in"\nclients = ["a"]\n[[sources]]\npattern = "i."\nbroker = "b1"\ntype = "t"',
            "sinks[1].topic: 'in' is a source",
        ),
        ('[[sinks]]\ntopic = "x"\nclients = ["a"]\n[[sinks]]\ntopic = "x"\nclients = ["b"]', "sinks[2].topic: 'x' is"),
        ("[limits]\npredicates = 65", "limits.predicates: must be an integer from 0 to 64"),
        ("[limits]\nshare = 1.5", "limits.share: must be a number from 0 to 1"),
        ("[limits]\nsubscriptions = 1", 'limits.subscriptions: needs inboxes = "own"'),
        ("[limits.types.t]\nchanges_per_minute = 1", 'limits.types.t.changes_per_minute: needs inboxes = "own"'),
        ("[limits.clients.a]\nboxes = 1", 'limits.clients: needs inboxes = "own"'),
        ("[limits.types.u]\nboxes = 1", "limits.types.u: is no event type"),
        (OWN + "[limits.clients.a]\nbox = 1", "limits.clients.a.box: unknown key; did you mean 'boxes'?"),
        ('[signing]\nkey_file = ""', "signing.key_file: must name a file"),
        ('[security.clients.a]\nprincipal = "User:hilcast"', "security.clients.a.principal: User:hilcast is the job's"),
        ("[security.clients.hilcast]\n", "security.clients.hilcast.principal: User:hilcast is the job's"),
        ('[security]\noperators = ["User:hilcast"]', "security.operators: User:hilcast is the job's"),
        ("[settings]\nidle_topic_hours = 0", "settings.idle_topic_hours: must be a number above 0"),
    ],
)
def test_each_fault_is_named_with_its_place(text: str, fault: str) -> None:
    """Whatever is wrong with these tables is one fault, at its place."""
    (found,) = faults(text)
    assert found.startswith(fault), found


def test_sinks_are_granted_by_name_once_anything_is_said() -> None:
    """With one `[[sinks]]`, or inboxes of one's own, only what is listed is granted."""
    config = small('[[sinks]]\ntopic = "x"\nclients = ["a"]')
    cases = {(topic, client): config.grants(topic, client) for topic, client in product("xy", "ab")}
    assert cases == {("x", "a"): True, ("x", "b"): False, ("y", "a"): False, ("y", "b"): False}
    assert not small('[security]\ninboxes = "own"').grants("x", "a")


def test_the_stricter_limit_counts() -> None:
    """For every pair of client and type each limit is the least of the client's (or everybody's) and the type's."""
    values = (None, 1, 2)
    for every, client, type in product(values, values, values):
        limits = Limits(Quota(boxes=every), {"a": Quota(boxes=client)}, {"t": Quota(boxes=type)})
        for name, of in (("a", client), ("b", every)):
            assert limits.of(name, "u").boxes == of
            assert limits.of(name, "t").boxes == min([v for v in (of, type) if v is not None], default=None)


def test_inbox_topics_and_whose_they_are() -> None:
    """A client's inboxes are told apart from each other, from shared ones and from every other topic of the prefix."""
    topics = Topics("a.subscriptions")
    for kind, client in product(INBOXES, ("bob", "a-b_c", "subscriptions")):
        assert topics.client_of(topics.inbox(kind, client)) == (kind, client)
    others = [topics.subscriptions, topics.publications, topics.receipts_of("bob"), topics.deliver("bob"), "other"]
    others += [topics.link("b1", "b2"), "b.subscriptions.x", f"{topics.subscriptions}.a.b", f"{topics.subscriptions}."]
    assert [topics.client_of(topic) for topic in others] == [None] * len(others)


def test_apply_tells_what_changes_and_what_falls_asleep() -> None:
    """Every change of who may do what is a line; registrations that it forbids are named before it is done."""
    fact = Fact(
        version=1, owner="bob", filter='"x < 5"', ttl_ms=None, expires_ms=None, sink="alerts.eu", content=b"",
        topic="t", partition=0, offset=0, timestamp_ms=0, live=True,
    )  # fmt: skip
    own = ("subscription", "b1", "t", "bob:s1", fact)
    shared = ("subscription", "b1", "t", "s1", fact)
    before, after = small(""), small(WHOLE)
    found = changes(before, after, [own, shared])
    assert found.lines == [
        "+ client shop",
        "+ client bob",
        "~ inboxes: shared -> own",
        "~ dead_letters: whole -> reference",
        "~ job: User:hilcast -> User:router",
        "~ operators: () -> ('User:ops', 'User:eve')",
        "+ sink alerts.eu",
        "~ limits",
    ]
    assert (found.dormant, found.awake) == (["b1/t/s1"], ["b1/t/bob:s1"])
    ungranted = small(WHOLE.replace('clients = ["shop", "bob"]', 'clients = ["shop"]'))
    assert changes(after, ungranted, [own]).dormant == ["b1/t/bob:s1"]
    assert changes(after, ungranted, [own]).lines == ["~ sink alerts.eu: clients"]
