"""Signatures: what they cover, how keys are read, and that none of them shows."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from state.control.agreed import Agreements, Claim, claim_record, configuration_record
from state.errors import HilcastError
from state.messages import Output, Record
from state.signing import SIGNATURE, Keyring, genuine, is_aged, is_signed, read_key, read_keys, signed
from state.topics import Topics

ONE, TWO = b"1" * 16, b"2" * 32
maybe = st.none() | st.binary(max_size=5)
outputs = st.builds(
    Output,
    st.sampled_from(["a", "ab"]),
    maybe,
    maybe,
    st.lists(st.tuples(st.sampled_from(["x", "xy"]), maybe), max_size=2).map(tuple),
)


def read(output):
    return Record(output.topic, 0, 7, 0, output.key, output.value, output.headers)


def naive(key, output):
    """The same signature, written down as it is told."""
    text = b""
    headers = [part for name, value in output.headers for part in (name.encode(), value)]
    for part in [output.topic.encode(), output.key, output.value, *headers]:
        text += (2**64 - 1 if part is None else len(part)).to_bytes(8, "big") + (part or b"")
    return hashlib.blake2b(text, key=key, digest_size=16, person=b"record").digest()


@given(outputs)
def test_a_signature_is_what_it_is_told_to_be(output):
    """The header holds the keyed digest over topic, key, value and all other headers, each with its length."""
    found = signed(output, Keyring((ONE,)))
    assert found.headers == (*output.headers, (SIGNATURE, naive(ONE, output)))


@given(outputs, outputs)
def test_a_signature_is_for_one_record(one, other):
    """Put on another record, in whatever it differs, a signature is not believed."""
    ring = Keyring((ONE,))
    taken = signed(one, ring).headers[-1]
    moved = Output(other.topic, other.key, other.value, (*other.headers, taken))
    assert genuine(read(moved), ring) == (one == other)


@given(outputs)
def test_who_has_another_key_is_not_believed(output):
    """Only the keys of the ring are believed, the older ones too; what has no signature is not, unless it may lack."""
    old, new, both = Keyring((ONE,)), Keyring((TWO,)), Keyring((TWO, ONE))
    record = read(signed(output, old))
    assert (genuine(record, old), genuine(record, new), genuine(record, both)) == (True, False, True)
    assert (is_aged(record, old), is_aged(record, both)) == (False, True)
    bare = read(output)
    assert [genuine(bare, ring) for ring in (None, old, Keyring((ONE,), unsigned=True))] == [True, False, True]
    assert not genuine(record, Keyring((TWO,), unsigned=True))


def test_what_is_signed_anew_has_one_signature():
    """Signing what is signed replaces its signature."""
    once = signed(Output("t", b"k", b"v"), Keyring((ONE,)))
    assert signed(once, Keyring((TWO,))) == signed(Output("t", b"k", b"v"), Keyring((TWO,)))


def test_keys_are_read_as_they_are_given():
    """Hexadecimal digits mean bytes; all else is taken as it is; what is too short is refused without being quoted."""
    assert read_key(b"0f" * 16 + b"\n") == b"\x0f" * 16
    assert read_key(b"correct horse battery") == b"correct horse battery"
    assert len(read_key(b"x" * 200)) == 64
    assert read_keys(b"0f" * 16 + b"\n\n" + b"correct horse battery\n") == (b"\x0f" * 16, b"correct horse battery")
    with pytest.raises(HilcastError, match="signing-key: a signing key of 6 bytes") as refused:
        read_key(b"hushme")
    assert "hushme" not in str(refused.value)


def test_a_keyring_does_not_show_its_keys():
    """Neither its text nor that of what holds it has a key in it."""
    ring = Keyring((b"planted-secret-01", b"planted-secret-02"))
    assert "planted" not in f"{ring!r} {ring} {[ring]}"


def test_what_was_agreed_on_does_not_go_back():
    """A configuration of a lower version, or a claim of a lower generation, said again, changes nothing."""
    known = Agreements()
    assert known.take(*configuration_record(3, b'{"a":1}')) is True
    assert known.take(*configuration_record(2, b'{"a":0}')) is False
    assert (known.version, known.record(b"configuration")) == (3, configuration_record(3, b'{"a":1}'))
    assert known.take(*claim_record("main", Claim(5))) is True
    assert known.take(*claim_record("main", Claim(4))) is False
    assert known.take(*claim_record("main", Claim(5, file="x"))) is True
    assert known.record(b"generation/main") == claim_record("main", Claim(5, file="x"))
    assert known.take(b"subscription/b1/t/s1", b"{}") is None


def test_only_what_the_job_writes_to_itself_is_signed():
    """Clients need no key: receipts, deliveries and links bear no signature."""
    topics = Topics("p")
    assert [is_signed(t, topics) for t in (topics.control, topics.registry)] == [True, True]
    others = (topics.receipts, topics.deliver("c"), topics.link("a", "b"), topics.deadletter, topics.subscriptions)
    assert not any(is_signed(t, topics) for t in others)
