"""What a deployment goes by that starts with a file, beside what is agreed already."""

from __future__ import annotations

import json

import msgspec
import pytest

from state.config import Fitted, parse
from state.control.agreed import Agreed, Claim
from streaming.agreement import file_hash, merged, not_agreed, own_changes, proposal

TEXT = """
[deployment]
hosts = {hosts}
[overlay]
brokers = ["b1", "b2"]
links = [["b1", "b2"]]
[types.t]
reduction = "{reduction}"
[types.t.attributes]
x = {{ kind = "int" }}
y = {{ kind = "int" }}
{more}
"""


def config(reduction="covering", hosts='["b1"]', more=""):
    return parse(TEXT.format(reduction=reduction, hosts=hosts, more=more))


def agreed(config, version=3):
    return Agreed(version, msgspec.Raw(config.shared))


def test_the_first_deployment_proposes_its_file():
    """Where nothing is agreed the file is."""
    assert proposal(config(), None, None) == (config(), config().shared)


def test_a_changed_file_is_followed_and_an_unchanged_one_follows():
    """A file that is not the one of the last start is newer; one that is may be older than what is agreed."""
    first, second = config(), config("mics")
    taken, proposed = proposal(second, agreed(first), Claim(1, file=file_hash(first)))
    assert (taken.types["t"].reduction, proposed is not None) == ("mics", True)
    taken, proposed = proposal(first, agreed(second), Claim(1, file=file_hash(first)))
    assert (taken.types["t"].reduction, taken.version, proposed) == ("mics", 3, None)


def test_who_comes_along_joins_and_adds_what_its_brokers_have():
    """A first start takes overlay and types as they are; groups and sources of its own brokers it brings along."""
    groups = "[distribution.{0}]\ngroups = 2\n[[sources]]\ntopic = 'of-{0}'\nbroker = '{0}'\ntype = 't'"
    there = config(more=groups.format("b1"))
    here = config("mics", hosts='["b2"]', more=groups.format("b2"))
    taken, proposed = proposal(here, agreed(there), None)
    assert taken.types["t"].reduction == "covering"
    assert set(taken.distribution) == {"b1", "b2"}
    assert [source.topic for source in taken.sources] == ["of-b1", "of-b2"]
    assert json.loads(proposed)["types"] == json.loads(there.shared)["types"]
    again, nothing = proposal(here, Agreed(4, msgspec.Raw(proposed)), Claim(1, configuration=4, file=file_hash(here)))
    assert (again.shared, nothing) == (taken.shared, None)


def test_the_order_of_attributes_is_a_difference():
    """Which attributes a grid has may go by their order."""
    x, y = b'"x":{"kind":"int"}', b'"y":{"kind":"int"}'
    swapped = config().shared.replace(x + b"," + y, y + b"," + x)
    assert swapped != config().shared
    assert proposal(config(), Agreed(1, msgspec.Raw(swapped)), Claim(1))[1] is not None
    assert [a.name for a in config().adopting(swapped).types["t"].attributes] == ["y", "x"]


SOURCE = """
[[sources]]
pattern = "{name}.*"
{broker}
type = "t"
"""


def sources(shared):
    return [source["pattern"] for source in json.loads(shared).get("sources", [])]


def test_sources_whose_records_name_their_broker_are_everybodys():
    """One who joins does not take them away; one whose file has changed does. Those of a broker are its host's."""
    of_b1, in_header = 'broker = "b1"', 'broker_header = "x"'
    both = SOURCE.format(name="fixed", broker=of_b1) + SOURCE.format(name="named", broker=in_header)
    there = config(more=both).shared
    here = config(hosts='["b2"]', more=SOURCE.format(name="own", broker='broker = "b2"'))
    assert sources(merged(here, there, joining=True)) == ["fixed.*", "named.*", "own.*"]
    assert sources(merged(here, there, joining=False)) == ["fixed.*", "own.*"]


def test_who_starts_again_does_not_propose_another_order():
    """What both have agreed on stays, whichever of them starts."""
    files = [
        config(hosts=f'["{host}"]', more=SOURCE.format(name=f"of-{host}", broker=f'broker = "{host}"'))
        for host in ("b1", "b2")
    ]
    both = Agreed(2, msgspec.Raw(merged(files[1], files[0].shared, joining=True)))
    for file in files:
        taken, proposed = proposal(file, both, Claim(1, configuration=2, file=file_hash(file)))
        assert proposed is None
        assert [pattern.pattern for pattern in taken.patterns] == ["of-b1.*", "of-b2.*"]


def test_what_the_router_chose_stays_when_a_file_changes():
    """As far as the file leaves it open; a file that says it counts."""
    there = config().fitted_with({"t": Fitted(64)})
    changed, proposed = proposal(config("mics"), agreed(there), Claim(1, file="another"))
    assert (changed.types["t"].cubes, json.loads(proposed)["fitted"]) == (64, {"t": {"cubes": 64}})
    taken, nothing = proposal(config(), agreed(there), Claim(1, file="another"))
    assert (taken.types["t"].cubes, nothing) == (64, None)
    text = TEXT.replace("[types.t]", "[types.t]\ncubes = 4").format(reduction="mics", hosts='["b1"]', more="")
    said, _ = proposal(parse(text), agreed(there), Claim(1, file="another"))
    assert (said.types["t"].cubes, said.fitted) == (4, {})


def test_who_may_do_what_is_one_for_all():
    """Who joins takes it as it is agreed; who starts with another file has all take his. Nothing of it gets lost."""
    more = '[security]\ninboxes = "own"\n[[sinks]]\ntopic = "out"\nclients = ["a"]\n[limits]\nboxes = 3'
    there, without = config(more=more), config(hosts='["b2"]')
    joined, proposed = proposal(without, agreed(there), None)
    assert (joined.security, joined.sinks, joined.limits) == (there.security, there.sinks, there.limits)
    assert proposed is None
    changed, proposed = proposal(config("mics", more=more), agreed(config()), Claim(1, file="another"))
    assert (changed.security.own, json.loads(proposed)["sinks"]) == (True, [{"topic": "out", "clients": ["a"]}])
    dropped, _ = proposal(without, agreed(there), Claim(1, file="another"))
    assert (dropped.security.own, dropped.sinks, dropped.limits.any) == (False, (), False)


def test_what_a_restart_alone_takes_is_named():
    """Keys elsewhere, another password: no record of the registry changes them, as it does overlay and types."""
    before = config(more='[signing]\nkey_file = "/a"\n[kafka]\n"sasl.password" = "p"')
    assert own_changes(config("mics", more='[signing]\nkey_file = "/a"\n[kafka]\n"sasl.password" = "p"'), before) == []
    assert own_changes(config(more='[signing]\nkey_file = "/b"'), before) == ["kafka", "signing"]


@pytest.mark.parametrize("changed_file", ["follow", "wait"])
def test_a_changed_file_may_give_way(changed_file):
    """Then overlay and types are as agreed; what it says of its own brokers is still its to say."""
    more = f"[settings]\nchanged_file = '{changed_file}'\n" + SOURCE.format(name="mine", broker='broker = "b1"')
    file, there = config("mics", more=more), config()
    taken, proposed = proposal(file, agreed(there), Claim(1, file="another"))
    assert taken.types["t"].reduction == "covering"
    assert [pattern.pattern for pattern in taken.patterns] == ["mine.*"]
    assert json.loads(proposed)["types"] == json.loads(there.shared)["types"]
    assert not_agreed(file, there.shared) == ["types"]
    assert not_agreed(config(more=more), proposed) == []


def test_another_order_of_types_is_not_what_was_agreed():
    """A grid may go by the order of attributes; what each deployment has for itself is not looked at."""
    there = config().shared
    swapped = there.replace(b'"x":{"kind":"int"},"y":{"kind":"int"}', b'"y":{"kind":"int"},"x":{"kind":"int"}')
    assert swapped != there
    assert not_agreed(config(), swapped) == ["types"]
    assert not_agreed(config(hosts='["b2"]', more="[settings]\ntune_s = 5"), there) == []
