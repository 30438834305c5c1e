"""The house rules, kept by a test so that nobody has to remember them."""

from __future__ import annotations

import ast
import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ALLOWED = {
    "pyproject.toml", "README.md", "streaming", "state", "producers", "tests", "infra", "docs", "benchmarks",
    "Makefile", "hilcast.py", "hilcast.toml", "CHANGELOG.md", "LICENSE",
}  # fmt: skip
PACKAGES = ("state", "streaming", "producers", "infra")
FUNCTION_LINES_MAX = 70


def tracked() -> list[Path]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / line for line in listed.splitlines() if (ROOT / line).is_file()]


def sources() -> list[Path]:
    return [path for path in tracked() if path.suffix == ".py"]


def test_the_root_holds_only_what_belongs_there():
    """Nothing stands at the root but what the house rules name."""
    assert {p.relative_to(ROOT).parts[0] for p in tracked() if p.relative_to(ROOT).parts[0][0] != "."} <= ALLOWED


def test_every_folder_says_what_it_is():
    """Each package and top folder has a README of about one screen."""
    for folder in ("state", "streaming", "producers", "infra", "tests", "benchmarks"):
        lines = (ROOT / folder / "README.md").read_text().splitlines()
        assert 5 <= len(lines) <= 110, folder


def test_functions_fit_a_screen():
    """No function is longer than 70 lines."""
    long = []
    for path in sources():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and node.end_lineno - node.lineno > FUNCTION_LINES_MAX:
                long.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.name}")
    assert not long, long


FORBIDDEN = {
    "a pickle": r"\bpickle\b",
    "an unfinished place": r"\b(TODO|FIXME|XXX)\b|NotImplementedError",
    "a bare except": r"^\s*except( Exception)?:\s*(pass)?$",
    "a skipped test": r"pytest\.mark\.(skip|xfail)",
    "an eval": r"(?<![\w.])eval\(",
}


@pytest.mark.parametrize("what", FORBIDDEN)
def test_nowhere_is(what):
    """None of the things that the house rules forbid stands anywhere in the code."""
    found = []
    for path in sources():
        if path == Path(__file__) or (what == "an eval" and "tests" in path.parts):
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if re.search(FORBIDDEN[what], line) and not line.lstrip().startswith(("#", '"""')):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()}")
    assert not found, found


def test_every_public_module_says_what_it_is():
    """Each module of the packages opens with a docstring."""
    bare = [
        str(path.relative_to(ROOT))
        for path in sources()
        if path.relative_to(ROOT).parts[0] in PACKAGES and path.read_text().strip()
        if ast.get_docstring(ast.parse(path.read_text())) is None
    ]
    assert not bare, bare


SAME_NAME = {
    "__init__.py": "Python's",
    "__main__.py": "Python's",
    "cells.py": "of a grid that is a curve (MICS09), of one whose cells are clustered (STREE03): both papers' word",
    "cost.py": "the command, and what it shows",
    "delivery.py": "what routing writes, and how the client library reads it",
    "explain.py": "the command, and what it shows",
    "grid.py": "the command, and what it shows",
    "route.py": "the query, and the door that it calls",
}
"""Names that more than one module of the packages may have, each with the reason."""


def test_a_module_can_be_called_by_its_name():
    """No two modules of the packages have one name, but for those that are named with a reason."""
    names = Counter(path.name for path in sources() if path.relative_to(ROOT).parts[0] in PACKAGES)
    assert not sorted({name for name, times in names.items() if times > 1} - set(SAME_NAME))


def test_the_job_says_things_through_its_log():
    """Nothing of the job but its command prints to standard error: lines have time, level and who says it."""
    printing = []
    for path in sources():
        if path.relative_to(ROOT).parts[0] != "streaming" or path.name == "__main__.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            printed = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
            if printed and any(keyword.arg == "file" for keyword in node.keywords):
                printing.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert not printing, printing


def test_every_test_states_the_fact_it_proves():
    """Each test function has a docstring."""
    silent = []
    for path in sources():
        if path.relative_to(ROOT).parts[0] != "tests":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_") and not ast.get_docstring(node):
                silent.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.name}")
    assert not silent, silent


def test_the_oracle_imports_nothing_of_ours():
    """The reference shares no code with what it judges."""
    tree = ast.parse((ROOT / "tests" / "oracle.py").read_text())
    names = {n.name for node in ast.walk(tree) if isinstance(node, ast.Import) for n in node.names}
    names |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert not {name for name in names if name.split(".")[0] in (*PACKAGES, "tests", "benchmarks")}


def test_every_core_package_has_a_job():
    """Each of the six core packages is imported by the product itself."""
    text = "\n".join(path.read_text() for path in sources() if path.relative_to(ROOT).parts[0] in PACKAGES)
    for module in ("pyspark", "confluent_kafka", "kafka", "sortedcontainers", "redis"):
        assert re.search(rf"^\s*(from|import) {module}\b", text, re.M), module
    judges = "\n".join(path.read_text() for path in sources())
    assert re.search(r"^\s*(from|import) hilbertcurve\b", judges, re.M)
