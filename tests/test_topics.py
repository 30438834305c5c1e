"""Topics as they are found against topics as they are needed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from state.config import parse
from state.topics import Found, faults, guarded, needed

CONFIG = parse("""
[overlay]
brokers = ["b1", "b2"]
links = [["b1", "b2"]]
[types.t.attributes]
x = { kind = "int" }
[distribution.b1]
groups = 2
[[sources]]
topic = "legacy"
broker = "b1"
type = "t"
""")
WELL = {name: Found("id", kept.partitions, 3, dict(kept.settings)) for name, kept in needed(CONFIG).items()}
ILL = [
    ("hilcast.subscriptions", {"partitions": 3}, True),
    ("hilcast.control", {"partitions": 2}, True),
    ("hilcast.link.b1.b2", {"partitions": 2}, False),
    ("hilcast.publications", {"partitions": 0}, False),
    ("hilcast.registry", {"cleanup.policy": "delete"}, True),
    ("hilcast.registry", {"cleanup.policy": "compact,delete"}, True),
    ("hilcast.groups", {"cleanup.policy": "delete"}, True),
    ("hilcast.control", {"cleanup.policy": "compact"}, True),
    ("hilcast.publications", {"cleanup.policy": "compact,delete"}, True),
    ("hilcast.receipts", {"max.message.bytes": "1000"}, True),
    ("hilcast.publications", {"message.timestamp.type": "CreateTime"}, True),
    ("hilcast.registry", {"min.insync.replicas": "4"}, True),
    ("hilcast.registry", {"replication": 1}, False),
]


def changed(topic, change):
    found = WELL[topic]
    for name, value in change.items():
        if name in ("partitions", "replication"):
            found = replace(found, **{name: value})
        else:
            found = replace(found, settings={**found.settings, name: value})
    return WELL | {topic: found}


def test_what_we_make_is_well():
    """The topics that the job creates have no faults, on one node or on many; nor has what does not exist."""
    for nodes in (1, 3):
        assert faults(CONFIG, WELL, nodes) == []
    assert faults(CONFIG, {}, 3) == []


@pytest.mark.parametrize(("topic", "change", "fatal"), ILL, ids=lambda value: str(value))
def test_each_fault_is_found_with_its_command(topic, change, fatal):
    """One change is one fault of that topic, with a command that names it; it is fatal if a promise is broken."""
    (fault,) = faults(CONFIG, changed(topic, change), 3)
    assert (fault.topic, fault.fatal) == (topic, fatal)
    assert topic in fault.mend
    assert "kafka-" in fault.mend


@pytest.mark.parametrize(
    ("topic", "change"),
    [
        ("hilcast.publications", {"partitions": 12}),
        ("legacy", {"partitions": 5, "cleanup.policy": "compact", "message.timestamp.type": "CreateTime"}),
        ("hilcast.receipts", {"max.message.bytes": "99999999", "retention.ms": "-1"}),
        ("hilcast.registry", {"min.insync.replicas": "2"}),
    ],
)
def test_what_breaks_no_promise_is_no_fault(topic, change):
    """More partitions of publications, a source kept as its owner likes, room for more: all of it is allowed."""
    assert faults(CONFIG, changed(topic, change), 3) == []


def test_all_faults_at_once():
    """Every topic that is wrong is told in one look."""
    all_wrong = {name: replace(found, partitions=7) for name, found in WELL.items()}
    allowed = {"hilcast.publications", "legacy"}
    assert {fault.topic for fault in faults(CONFIG, all_wrong, 3)} == set(WELL) - allowed


def test_what_must_not_be_lost():
    """Whatever comes in and whatever is the truth is guarded; what the job writes for others is not."""
    names = {name.removeprefix("hilcast.") for name in guarded(CONFIG)}
    assert names == {
        *("registry", "control", "subscriptions", "advertisements", "publications", "legacy", "groups"),
    }
