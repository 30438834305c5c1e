"""A forger in the world: whoever may write to the control topic and the registry, and has no key, changes nothing."""

from __future__ import annotations

import random

import msgspec
import pytest

from state.control.protocol import Change, Republish, Resync, Seed, decode, encode
from state.errors import HilcastError
from state.messages import Output
from state.signing import Keyring, signed
from tests.simulation.test_world import Drill, config_of

KEY, OTHER, OLD = (bytes([n]) * 32 for n in (1, 2, 3))
RING = Keyring((KEY,))


class Forger:
    """Says what it likes where it may not: with no signature, another key's, or that of another record."""

    def __init__(self, world, seed):
        self.world, self.rng = world, random.Random(seed)
        self.control, self.registry = world.config.topics.control, world.config.topics.registry

    def speak(self):
        """One record that is not genuine; the number of them that a deployment will count."""
        records = [r for r in self.world.log.topics[self.control] if r.value is not None]
        known = self.rng.choice(records)
        value = self.rng.choice((self._altered, self._next, self._invented))(known)
        output = Output(self.control, known.key, value)
        way = self.rng.randrange(3)
        if way == 1:
            output = signed(output, Keyring((OTHER,)))
        elif way == 2 and value != known.value:
            output = Output(self.control, known.key, value, known.headers)
        self.world.log.append(output)

    def _altered(self, known):
        at = self.rng.randrange(len(known.value))
        return known.value[:at] + bytes([known.value[at] ^ 1]) + known.value[at + 1 :]

    def _next(self, known):
        """What its source would say next, or much later: a gap, if anybody believed it."""
        try:
            message = decode(known.value)
        except HilcastError:
            return b""  # what another forgery left there
        if not isinstance(message, Change):
            return encode(Seed(99, 0, 1, b"\x01"))
        far = self.rng.choice((1, 1000))
        return encode(msgspec.structs.replace(message, sequence=message.sequence + far, removed=["s1", "s2", "s3"]))

    def _invented(self, known):
        return encode(self.rng.choice((Republish(), Resync((known.key or b"").decode(), "x"))))

    def lie(self):
        """A fact that nobody registered, or the end of one that stands."""
        facts = [r for r in self.world.log.topics[self.registry] if r.value is not None]
        if facts:
            known = self.rng.choice(facts)
            value = self.rng.choice((None, known.value.replace(b'"live":true', b'"live":false'), known.value + b" "))
            self.world.log.append(Output(self.registry, known.key, value, known.headers if value else ()))

    def repeat(self):
        """A record as it was, signature and all: it is genuine, and old."""
        known = self.rng.choice(self.world.log.topics[self.control])
        self.world.log.append(Output(self.control, known.key, known.value, known.headers))


@pytest.mark.parametrize("seed", range(3))
def test_a_forger_changes_nothing(seed):
    """Forged, altered and repeated records in any place lead to the deliveries that there would be without them."""
    hosting = [("b1", "b2"), ("b3", "b4", "b5", "b6", "b7")]
    drill = Drill(seed, config_of("covering"), hosting, keyring=RING)
    forger = Forger(drill.world, seed)
    for round_number in range(2):
        for _ in range(25):
            drill.change()
            forger.rng.choice((forger.speak, forger.lie, forger.repeat))()
            deployment = drill.rng.choice(drill.world.deployments)
            deployment.step(drill.rng, crash=drill.rng.random() < 0.2)
        drill.world.settle()
        drill.compare(15)
        drill.world.deployments[round_number].begin()
        drill.world.settle()
        drill.compare(15)
    assert drill.world.forged > 5


def test_a_forged_number_opens_no_gap():
    """A forged message with a later number leads to one dead letter, and to no request and no snapshot."""
    drill = Drill(1, config_of("covering"), keyring=RING)
    for _ in range(10):
        drill.change()
    drill.world.settle()
    topics, log = drill.config.topics, drill.world.log
    known = next(r for r in log.topics[topics.control] if isinstance(decode(r.value), Change))
    late = msgspec.structs.replace(decode(known.value), sequence=10_000)
    before, letters = log.end(topics.control), log.end(topics.deadletter)
    log.append(Output(topics.control, known.key, encode(late), known.headers))
    drill.world.settle()
    assert (log.end(topics.control), log.end(topics.deadletter)) == (before + 1, letters + 1)
    assert dict(log.topics[topics.deadletter][-1].headers)["hilcast_code"] == b"forged"
    assert drill.world.forged == 1


def test_a_key_is_changed_without_a_stop():
    """While both keys are believed, one deployment may sign with the new one and another with the old one."""
    drill = Drill(5, config_of("covering"), [("b1", "b2"), ("b3", "b4", "b5", "b6", "b7")], keyring=Keyring((OLD, KEY)))
    for ring in (Keyring((OLD, KEY)), Keyring((KEY, OLD)), Keyring((KEY, OLD))):
        first, second = drill.world.deployments
        first._life.keyring, second._life.keyring = ring, drill.world.keyring
        for _ in range(15):
            drill.change()
        drill.world.settle()
        drill.compare(10)
        drill.world.keyring = ring
    assert drill.world.forged == 0


def test_without_a_key_nothing_is_signed():
    """A world without a key writes byte for byte what one with a key writes, but for the signatures."""
    plain, keyed = (Drill(3, config_of("mics"), keyring=ring) for ring in (None, RING))
    for drill in (plain, keyed):
        for _ in range(20):
            drill.change()
        drill.world.settle()
    for topic in (plain.config.topics.control, plain.config.topics.registry):
        here, there = plain.world.log.topics[topic], keyed.world.log.topics[topic]
        assert [(r.key, r.value) for r in here] == [(r.key, r.value) for r in there]
        assert all(r.headers == () for r in here)
        assert all([name for name, _ in r.headers] == ["hilcast_signature"] for r in there)
    assert len(plain.world.log.topics[plain.config.topics.control]) > 20
