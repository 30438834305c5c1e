"""What workers do beforehand, as Spark has them do it."""

from __future__ import annotations

from types import SimpleNamespace

import pyarrow as pa
import pytest

from state.config import parse
from streaming import warm_up
from streaming.boot import Boot

CONFIG = '[overlay]\nbrokers = ["b1"]\n[types.t.attributes]\nx = { kind = "int" }'


@pytest.mark.parametrize("held", [True, False])
def test_a_task_says_who_holds_a_generation(monkeypatch, held):
    """A row for each that it was given, with the executor's name, which is the same for all of its workers."""
    asked = []
    keeper = SimpleNamespace(prepare=lambda generation, shared: asked.append((generation, shared)) or held)
    monkeypatch.setattr(warm_up, "cache", lambda boot: keeper)
    monkeypatch.setattr(warm_up.time, "sleep", lambda s: None)
    boot = Boot(parse(CONFIG), 3)
    given = [pa.RecordBatch.from_pydict({"id": [0]}), pa.RecordBatch.from_pydict({"id": [1]})]
    told = [row for batch in warm_up._prepare(boot, given) for row in batch.to_pylist()]
    assert [row["held"] for row in told] == [held] * 2
    assert len({row["executor"] for row in told}) == 1
    assert asked == [(3, boot.config.shared)]
