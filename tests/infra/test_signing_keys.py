"""Where signing keys come from, and that a changed one is taken up."""

from __future__ import annotations

import logging
import os

import pytest

from infra.logs import logger
from infra.signing_keys import VARIABLE, SigningKeys
from state.config import parse
from state.errors import HilcastError

HEAD = '[overlay]\nbrokers = ["b1"]\n[types.t.attributes]\nx = { kind = "int" }\n'
ONE, TWO = "0a" * 16, "0b" * 16


def keys_of(tmp_path, more):
    return SigningKeys(parse(HEAD + more, tmp_path))


def put(path, text):
    """Replace a file as one should: aside, then renamed."""
    aside = path.with_suffix(".new")
    aside.write_text(text)
    os.replace(aside, path)


def test_without_the_table_nothing_is_signed(tmp_path):
    """No `[signing]`, no keyring, whatever the environment holds."""
    assert keys_of(tmp_path, "").current() is None


def test_a_key_is_read_from_its_file_and_again_when_it_changes(tmp_path):
    """The order of a change: believed, then used, then the old one is no longer believed; at no moment neither is."""
    put(tmp_path / "a.key", ONE)
    keys = keys_of(tmp_path, "[signing]\nkey_file = 'a.key'\nprevious_file = 'old.key'")
    one, two = bytes.fromhex(ONE), bytes.fromhex(TWO)
    assert keys.current().keys == (one,)
    put(tmp_path / "old.key", f"{TWO}\n")
    assert keys.current().keys == (one, two)
    put(tmp_path / "old.key", f"{TWO}\n{ONE}\n")
    assert keys.current().keys == (one, two, one)
    put(tmp_path / "a.key", TWO)
    assert keys.current().keys == (two, two, one)
    (tmp_path / "old.key").unlink()
    assert keys.current().keys == (two,)


def test_a_key_that_cannot_be_read_any_more_stays(tmp_path):
    """A file that is gone or cut short leaves what there was; the next good one counts."""
    put(tmp_path / "a.key", ONE)
    keys = keys_of(tmp_path, "[signing]\nkey_file = 'a.key'")
    (tmp_path / "a.key").unlink()
    assert keys.current().keys == (bytes.fromhex(ONE),)
    put(tmp_path / "a.key", "short")
    assert keys.current().keys == (bytes.fromhex(ONE),)
    put(tmp_path / "a.key", TWO)
    assert keys.current().keys == (bytes.fromhex(TWO),)


def test_the_environment_may_hold_the_key(tmp_path, monkeypatch):
    """Without a key_file the variable counts; without either it is said what is missing."""
    with pytest.raises(HilcastError, match=f"signing-key: .*{VARIABLE} is not set"):
        keys_of(tmp_path, "[signing]")
    monkeypatch.setenv(VARIABLE, ONE)
    assert keys_of(tmp_path, "[signing]\nunsigned = true").current().keys == (bytes.fromhex(ONE),)


def test_a_key_that_was_read_is_masked_in_every_line(tmp_path, caplog):
    """Once a key is known here, no logger of ours lets it through."""
    put(tmp_path / "a.key", TWO)
    keys_of(tmp_path, "[signing]\nkey_file = 'a.key'")
    with caplog.at_level(logging.INFO, "hilcast.test"):
        logger("test").info("it is %s, you know", TWO)
    assert caplog.messages == ["it is ***, you know"]
