"""Whatever the job warns of stands in the runbook: somebody who sees a line must find what to do."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RUNBOOK = re.sub(r"\s+", " ", (ROOT / "docs" / "operations.md").read_text())
LEVELS = ("warning", "error", "critical")


def warnings() -> list[str]:
    """The fixed part of each warning and error of the job: the longest stretch without a placeholder."""
    found = set()
    for path in [
        *(ROOT / "streaming").rglob("*.py"),
        *(ROOT / "infra").glob("*.py"),
        *(ROOT / "infra/kafka").glob("*.py"),
    ]:
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in LEVELS
                and isinstance(node.func.value, ast.Name)
                and node.func.value.id.endswith("_log")
                and isinstance(node.args[0], ast.Constant)
            ):
                longest = max(re.split(r"%[.\d]*[a-z]", str(node.args[0].value)), key=len).strip(" ,:;")
                found.add(longest)
    return sorted(found - {""})


@pytest.mark.parametrize("said", warnings())
def test_every_warning_of_the_job_is_in_the_runbook(said: str) -> None:
    """`docs/operations.md` quotes it as it is said."""
    assert said in RUNBOOK
