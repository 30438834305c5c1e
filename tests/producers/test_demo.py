"""The parts of the demo that need no services."""

from __future__ import annotations

import os

import pytest

from producers.demo import stage
from producers.demo.cast import CONFIG, OVERLAY, REFUSED, REPLACED, TYPE, WISHES, WITHDRAWN, quotes
from producers.demo.control_traffic import ControlCount, count_control
from producers.demo.scenes import summary
from producers.demo.stage import Narrator
from state.config import parse
from state.errors import FilterError
from state.filters.evaluate import matches
from state.filters.grammar import parse as parse_filter
from state.flooding import Judgement
from tests.producers.test_verify import MemoryTransport, standing

WORLD = parse(CONFIG.format(kafka="127.0.0.1:1", redis="redis://127.0.0.1:2/0"))


def test_the_picture_shows_the_overlay():
    """Every broker is in the picture, and there are as many strokes as links."""
    assert all(broker in OVERLAY for broker in WORLD.overlay.brokers)
    strokes = OVERLAY.count("──") + OVERLAY.count("\\") + OVERLAY.count("/") + OVERLAY.count("│")
    assert strokes == len(WORLD.overlay.links)
    assert len(WORLD.overlay.brokers) >= 5
    assert WORLD.overlay.diameter() == 4


def test_the_cast_fits_the_configuration():
    """All wishes are accepted by the language, but the one that must be refused; those that change exist before."""
    for wish in (*WISHES, REPLACED):
        assert wish.broker in WORLD.overlay.brokers
        parse_filter(wish.filter, WORLD.types[TYPE])
    with pytest.raises(FilterError, match="filter-type"):
        parse_filter(REFUSED.filter, WORLD.types[TYPE])
    entered = {(wish.client, wish.broker, wish.id) for wish in WISHES}
    assert len(entered) == len(WISHES)
    assert {(w.client, w.broker, w.id) for w in (REPLACED, WITHDRAWN)} <= entered


def test_every_wish_meets_some_quote():
    """With the default seed each filter matches at least one of the quotes of the first half, and none matches all."""
    quote = quotes(7)
    made = [quote() for _ in range(70)]
    for wish in WISHES:
        held = [matches(parse_filter(wish.filter, WORLD.types[TYPE]), event, WORLD.types[TYPE]) for event in made]
        assert any(held), wish
        assert not all(held), wish


def test_the_reduction_is_measured_against_none():
    """With `none` the count of what was told equals the count of what would have been told without reduction."""
    running = standing()
    count = count_control(running.config, MemoryTransport(running.log))
    assert count.sent > 0
    assert count.sent == count.unreduced


def test_the_summary_has_every_figure():
    """Published, expected, delivered, missing, wrong, repeats, control messages saved."""
    judgement = Judgement(published=10, expected=7, delivered=6, missing=1, wrong=2, repeats=3, undecided=4)
    lines = "\n".join(summary(WORLD, judgement, ControlCount(30, 60), 12))
    for words in ("published", "expected deliveries", "delivered", "4 undecided", "missing", "wrong", "repeats"):
        assert words in lines
    assert "of 60 without reduction: 50 % saved" in lines
    assert "of 60 by flooding: 80 % saved" in lines


def test_a_step_is_told_and_its_result_given(capsys):
    """A step that ends well is ticked off; one that fails is crossed out and its error passed on."""
    narrator = Narrator()
    assert narrator.during("adding", lambda: 1 + 1) == 2
    with pytest.raises(ZeroDivisionError):
        narrator.during("dividing", lambda: 1 // 0)
    shown = capsys.readouterr().out
    assert "✓ adding" in shown
    assert "✗ dividing" in shown
    assert "\x1b" not in shown


def test_a_long_step_is_never_silent(capsys, monkeypatch):
    """While a step runs the narrator says so again and again, with the job's own last words."""
    monkeypatch.setattr(stage, "TELL_S", 0.01)
    told = stage.threading.Event()

    def news():
        told.set()
        return "starting Spark"

    Narrator().during("waiting", lambda: told.wait(20), news)
    assert "… waiting (0 s) starting Spark" in capsys.readouterr().out


def test_only_what_dead_runs_left_is_swept(tmp_path, monkeypatch):
    """Folders of a demo that still runs stay; those of one that is gone, and may have been killed, are removed."""
    monkeypatch.setattr(stage, "FOLDER", tmp_path)
    for name, owner in (("run-me", stage._self()), ("run-dead", "999999999 never"), ("run-odd", "?")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "owner").write_text(owner)
    stage._sweep()
    assert sorted(os.listdir(tmp_path)) == ["run-me", "run-odd"]
