"""What benchmarks claim of the papers holds at small sizes, and a claim that does not hold fails the command."""

from __future__ import annotations

import pytest

from benchmarks import advertisements, distribution, engines, mics, negative_space, probabilistic, report

COMMANDS = {
    "mics": (mics.main, ["--scale", "0.02", "table3", "figure7", "figure11", "cells"]),
    "mics over seeds": (mics.main, ["--scale", "0.02", "--seeds", "5", "figure12"]),
    "negative space": (
        negative_space.main,
        ["--subscriptions", "600", "example", "bounds", "table2", "figure10", "figure11", "figure12"],
    ),
    "probabilistic": (probabilistic.main, ["--runs", "10", "--subscriptions", "500", "figure5", "figure7", "figure9"]),
    "distribution": (distribution.main, ["topics"]),
    "advertisements": (advertisements.main, ["broker", "--advertisements", "200"]),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_claims_hold_at_small_sizes(name, tmp_path, monkeypatch):
    """Every claim that is made of what is counted, not of times."""
    monkeypatch.setattr(report, "OUT", tmp_path)
    main, arguments = COMMANDS[name]
    main([*arguments, "--strict"])


def test_a_claim_that_does_not_hold_fails_the_command(capsys):
    """With `--strict`; what is told as not reproduced does not."""
    report.claim("water runs uphill", False)
    report.unmet("tea is cold", "tried: waiting")
    report.conclude(strict=False)
    report.claim("water runs downhill", True)
    report.conclude(strict=True)
    report.claim("water runs uphill", False)
    with pytest.raises(SystemExit, match="water runs uphill"):
        report.conclude(strict=True)
    report.conclude(strict=True)
    assert "tea is cold: NOT REPRODUCED" in capsys.readouterr().out


def test_a_box_that_is_split_without_need_fails_the_command(tmp_path, monkeypatch):
    """Propositions are checked with a number that can fail: a tree that cuts what a subscription does not meet."""

    class Careless(negative_space.NegativeTree):
        def subtract(self, low, high):
            super().subtract(low, high)
            for far, _ in self.boxes():
                super().subtract(far, far)
                break

    monkeypatch.setattr(report, "OUT", tmp_path)
    monkeypatch.setattr(negative_space, "NegativeTree", Careless)
    with pytest.raises(SystemExit, match="proposition 3"):
        negative_space.main(["--subscriptions", "30", "bounds", "--strict"])


def hurried(monkeypatch):
    """Engines are asked and warmed for a moment: what is compared was answered before that."""
    for name in ("SECONDS", "WARM"):
        monkeypatch.setattr(engines, name, 0.01)


def test_engines_answer_alike(tmp_path, monkeypatch, capsys):
    """Every engine that runs in Python, on every workload, with answers compared event by event."""
    monkeypatch.setattr(report, "OUT", tmp_path)
    hurried(monkeypatch)
    engines.main(["--least", "60", "--most", "60", "--without", "event-ruler"])
    told = capsys.readouterr().out
    assert told.count("60 rules;") == len(engines.WORKLOADS)
    assert (tmp_path / "engines.png").exists()


def test_an_engine_that_answers_otherwise_is_noticed(monkeypatch):
    """A race ends where answers differ."""
    hurried(monkeypatch)
    monkeypatch.setattr(engines.SQLite, "answer", lambda self, values: [[] for _ in values])
    with pytest.raises(AssertionError, match="SQLite answers otherwise"):
        engines.main(["--least", "60", "--most", "60", "--without", "event-ruler", "loop", "DuckDB", "--seed", "2"])
