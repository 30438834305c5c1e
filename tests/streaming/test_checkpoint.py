"""The checkpoint directory: damaged files, an unclean boot, topics that were made again."""

from __future__ import annotations

import pytest

from state.errors import HilcastError
from streaming import checkpoint
from streaming.checkpoint import Checkpoint, Generation

FIRST = Generation(3, "abc", "{}", {"t": []})


def opened(folder, monkeypatch, boot="boot-1"):
    monkeypatch.setattr(checkpoint, "_boot", lambda: boot)
    monkeypatch.setattr(checkpoint, "_is_java", lambda pid: False)
    return Checkpoint(str(folder))


def lose(kept):
    """Go without closing: the lock of a process ends with it."""
    kept._lock.close()


def test_an_unclean_boot_is_noticed(tmp_path, monkeypatch):
    """Only if the host went down under a job: not after a clean end, not after a kill on a host that stayed up."""
    kept = opened(tmp_path, monkeypatch)
    assert not kept.power_lost()
    kept.record(4242)
    kept.close()
    kept = opened(tmp_path, monkeypatch, "boot-2")
    assert not kept.power_lost(), "it was closed"
    kept.record(4242)
    lose(kept)
    kept = opened(tmp_path, monkeypatch, "boot-2")
    assert not kept.power_lost(), "the host stayed up"
    lose(kept)
    kept = opened(tmp_path, monkeypatch, "boot-3")
    assert kept.power_lost()
    lose(kept)
    kept = opened(tmp_path, monkeypatch, "boot-3")
    assert kept.power_lost(), "until somebody has taken it up"
    kept.record(4243)
    lose(kept)
    assert not opened(tmp_path, monkeypatch, "boot-3").power_lost()


def test_a_lock_without_a_boot_tells_nothing(tmp_path, monkeypatch):
    """A lock that an older version wrote is no unclean boot."""
    (tmp_path / "lock").write_text("12 34\n")
    assert not opened(tmp_path, monkeypatch).power_lost()


@pytest.mark.parametrize("text", ["", "{", '{"number": 3}', "[]", '{"number": 3, "fingerprint": "a", "x": 1}', "null"])
def test_a_damaged_generation_counts_as_lost(tmp_path, monkeypatch, text):
    """A file cut short by a full disk is no reason not to start: everything is in the registry."""
    (tmp_path / "generation.json").write_text(text)
    kept = opened(tmp_path, monkeypatch)
    assert kept.generation() is None
    kept.begin(FIRST)
    assert kept.generation() == FIRST


@pytest.mark.parametrize("text", ["", "{", "[]", "null"])
@pytest.mark.parametrize("which", ["topics", "followed"])
def test_topics_are_remembered(tmp_path, monkeypatch, text, which):
    """By name and id; nothing is known where the file is missing or damaged. Those of patterns stand apart."""
    kept = opened(tmp_path, monkeypatch)
    assert getattr(kept, which)() == {}
    (tmp_path / f"{which}.json").write_text(text)
    assert getattr(kept, which)() == {}
    getattr(kept, f"keep_{which}")({"a": "1"})
    kept.close()
    again = opened(tmp_path, monkeypatch)
    assert getattr(again, which)() == {"a": "1"}
    assert getattr(again, "topics" if which == "followed" else "followed")() == {}


def test_the_route_query_begins_anew_when_an_input_was_made_again(tmp_path, monkeypatch):
    """Offsets of the old topic mean nothing in the new one: same names, another id, another folder."""
    kept = opened(tmp_path, monkeypatch)
    first = kept.route({"publications": "id1"})
    assert kept.route({"publications": "id1"}) == first
    assert kept.route({"publications": "id2"}) != first


def test_one_job_at_a_time(tmp_path, monkeypatch):
    """A second job on the same directory is refused."""
    first = opened(tmp_path, monkeypatch)
    with pytest.raises(HilcastError, match="checkpoint-locked"):
        opened(tmp_path, monkeypatch)
    first.close()
    opened(tmp_path, monkeypatch)
