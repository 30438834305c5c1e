"""What docstrings, comments and pages name is in the repository."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import Counter
from pathlib import Path

from tests.house.test_rules import ROOT, sources, tracked

FILE = re.compile(r"(?<![\w/.$*{<>-])((?:[\w.-]+/)*[\w-]+\.(?:py|md|toml|lark|sh|yaml))(?![\w/(])")
"""A file as people write it: `rank_columns.py`, `docs/filters.md`, `state/space/grid.py`."""


def prose(path: Path) -> set[str]:
    """The docstrings, the strings that stand alone, and the comments of a module."""
    source = path.read_text()
    lines = {
        token.string
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines.add(node.value.value)
    return lines


def stands(name: str, at: Path, paths: set[str], names: Counter[str]) -> bool:
    """Whether a file is meant that is there: by its path from the root, from a folder above, or as the only one."""
    folders = [folder.relative_to(ROOT) for folder in at.parents if folder.is_relative_to(ROOT)]
    return any(str(folder / name) in paths for folder in folders) or names[name] == 1


def test_every_file_named_in_prose_exists():
    """A file that a docstring or a comment names exists, and is the only one that can be meant."""
    listed = [path.relative_to(ROOT) for path in tracked()]
    paths, names = {str(path) for path in listed}, Counter(path.name for path in listed)
    lost = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in sources()
        for text in prose(path)
        for name in FILE.findall(text)
        if not stands(name, path, paths, names)
    }
    assert not sorted(lost)
