"""The packages hold the product only: every module is reached from something that somebody starts or imports."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.house.test_rules import PACKAGES, ROOT, sources

ENTRIES = (
    "hilcast.py",
    "infra/kubernetes/main.py",
    "infra/local/__main__.py",
    "producers/__init__.py",
    "producers/cli.py",
    "producers/demo/__main__.py",
    "streaming/__main__.py",
    "streaming/daemon.py",
)
"""What is run or imported from outside: the job and its workers, the command line, the client library."""
COMMAND = re.compile(r"(\w+):\w+")
"""How the command line names what it imports when a command is chosen."""


def modules() -> dict[str, Path]:
    """The modules of the packages, by dotted name."""
    found = {}
    for path in sources():
        parts = path.relative_to(ROOT).with_suffix("").parts
        if parts[0] in PACKAGES:
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def named_in(path: Path) -> set[str]:
    """Dotted names that a module imports, anywhere in it, and what it names in strings."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names.add(node.value)
            if path == ROOT / "producers" / "cli.py" and (command := COMMAND.fullmatch(node.value)):
                names.add(f"producers.commands.{command[1]}")
    return names


def with_parents(name: str) -> list[str]:
    """A name and the packages that are imported with it."""
    parts = name.split(".")
    return [".".join(parts[:n]) for n in range(1, len(parts) + 1)]


def test_every_module_is_reached():
    """Walking the imports from the entry points visits every module of the four packages."""
    known = modules()
    waiting = [ROOT / entry for entry in ENTRIES]
    reached: set[Path] = set()
    while waiting:
        path = waiting.pop()
        if path not in reached:
            reached.add(path)
            waiting += [known[name] for full in named_in(path) for name in with_parents(full) if name in known]
    used = {name for path in reached for name, own in known.items() if own == path}
    used |= {parent for name in used for parent in with_parents(name)}
    assert not sorted(set(known) - used)
