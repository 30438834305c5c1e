"""Every code block of README and docs is executed here, or by the tour on the real services."""

from __future__ import annotations

import ast
import doctest
import json
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("*/README.md")])
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
TOURED = {"README.md", "producers/README.md", "docs/security.md"}
"""Pages whose shell and Python blocks the integration tests run on the real services."""


def blocks(page: Path) -> list[tuple[str, str]]:
    return BLOCK.findall(page.read_text())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_code_blocks_run(page):
    """Python blocks pass as doctests, JSON and TOML blocks parse, shell blocks stand only where a test runs them."""
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    parser = doctest.DocTestParser()
    for kind, text in blocks(page):
        if kind == "python" and str(page.relative_to(ROOT)) not in TOURED:
            assert ">>>" in text, f"a Python block of {page.name} that nothing can run"
            runner.run(parser.get_doctest(text, {}, page.name, str(page), 0))
        elif kind == "json":
            json.loads(text)
        elif kind == "toml":
            tomllib.loads(text)
        else:
            assert kind == "" or str(page.relative_to(ROOT)) in TOURED, f"{page.name}: a {kind} block that is not run"
    assert runner.summarize(verbose=False).failed == 0


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    """Every relative link of a page names a file that is there."""
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name}: {target}"


CELL_CHARACTERS_MAX = 200
"""Of a cell of a table, as a reader sees it: links without where they lead."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_tables_fit_a_screen(page):
    """No cell of a table is longer than two hundred characters."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", BLOCK.sub("", page.read_text()))
    cells = [cell.strip() for row in re.findall(r"^\|(.*)\|$", text, re.M) for cell in re.split(r"(?<!\\)\|", row)]
    long = [cell for cell in cells if len(cell) > CELL_CHARACTERS_MAX]
    assert not long, long


def defined(path: Path) -> set[str]:
    """The functions, classes and methods of a module, methods as Class.method."""
    top = [n for n in ast.parse(path.read_text()).body if isinstance(n, ast.FunctionDef | ast.ClassDef)]
    inner = {f"{c.name}.{m.name}" for c in top for m in c.body if isinstance(c, ast.ClassDef) and hasattr(m, "name")}
    return {n.name for n in top} | inner


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_names_are_where_links_say(page):
    """A link from a name in code to a module leads to a module that defines this name."""
    for name, target in re.findall(r"\[`([\w.]+)`\]\(([^)]+\.py)\)", page.read_text()):
        assert name in defined(page.parent / target), f"{page.name}: {name} is not in {target}"


@pytest.mark.parametrize("key", ["MICS09", "NEG08", "RSPC06", "STREE03", "BADV06"])
def test_every_module_that_cites_a_paper_is_listed(key):
    """Where the docstring of a module of `state` or of a peer names a paper, references.md lists it there."""
    section = (ROOT / "docs" / "references.md").read_text().split(f"## {key}\n")[1].split("\n## ")[0]
    folders = (ROOT / "state", ROOT / "benchmarks" / "peers")
    modules = [path for folder in folders for path in folder.rglob("*.py") if path.name != "__init__.py"]
    citing = [path for path in modules if f"[{key}]" in (ast.get_docstring(ast.parse(path.read_text())) or "")]
    assert citing
    assert not [str(path) for path in citing if f"/{path.relative_to(ROOT)})" not in section]
