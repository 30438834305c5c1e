"""Two configurations that are sent at the same time: one counts everywhere, and whoever sent the other is told."""

from __future__ import annotations

import pytest

from producers.commands import applying
from state.config import parse
from state.control.agreed import Agreements, configuration_record
from state.errors import HilcastError
from state.messages import Output
from tests.producers.memory import MemoryKafka

TEXT = """
[overlay]
brokers = ["b1"]
links = []
[types.t]
reduction = "{}"
[types.t.attributes]
x = {{ kind = "int" }}
"""
OURS, THEIRS = parse(TEXT.format("mics")), parse(TEXT.format("covering"))
REGISTRY = OURS.topics.registry


def taken(*sent):
    agreements = Agreements()
    for version, config in sent:
        assert agreements.take(*configuration_record(version, config.shared)) is not None
    return agreements


def test_the_last_of_one_version_counts_and_is_contested():
    """Equal ones are no contest, a repeat of one does not end it, a higher version does."""
    assert not taken((3, OURS), (3, OURS)).contested
    found = taken((3, OURS), (3, THEIRS))
    assert (found.contested, bytes(found.agreed.shared)) == (True, THEIRS.shared)
    assert taken((3, OURS), (3, THEIRS), (3, THEIRS)).contested
    assert not taken((3, OURS), (3, THEIRS), (4, THEIRS)).contested
    late = taken((3, OURS), (4, THEIRS), (3, OURS))
    assert (late.contested, late.version) == (False, 4)


@pytest.fixture
def until(monkeypatch):
    """Everything that is waited for comes into force at once; the versions that were waited for."""
    waited = []
    monkeypatch.setattr(applying, "_until_in_force", lambda transport, config, version, timeout: waited.append(version))
    return waited


def kafka(*sent):
    memory = MemoryKafka()
    memory.make(REGISTRY)
    for version, config in sent:
        memory.append(Output(REGISTRY, *configuration_record(version, config.shared)))
    return memory


def test_one_alone_is_in_force_under_its_version(until):
    """Whatever was agreed before and after."""
    there = kafka((2, THEIRS), (3, OURS), (4, THEIRS))
    assert applying._until_taken(there, OURS, 3, 1.0) == 3
    assert until == [3]


def test_who_was_overtaken_is_told(until):
    """The other one counts: nothing is said to be in force that is not."""
    with pytest.raises(HilcastError) as caught:
        applying._until_taken(kafka((3, OURS), (3, THEIRS)), OURS, 3, 1.0)
    assert caught.value.code == "overtaken"


def test_who_overtook_waits_for_the_next_version(until):
    """Some may have taken the other one under this version."""
    assert applying._until_taken(kafka((3, THEIRS), (3, OURS)), OURS, 3, 1.0) == 4
    assert until == [3, 4]
