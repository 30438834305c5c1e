"""Code broken on purpose: one place of one function, found by its syntax, replaced while a check runs.

    Mutant("state.control.home", "Home._decide", "version <= last", "version < 0")

The place is an expression or a statement that stands exactly once in the function, however it is laid out. Only the
code of that one function is exchanged, so that everybody who has imported it, or its class, runs the broken one.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
from pathlib import Path
from types import CodeType, FunctionType


class Misfit(Exception):
    """A mutant that does not fit the code: it is to be brought up to date."""


class Mutant:
    """One function with one expression or statement replaced, for the length of a `with`."""

    def __init__(self, module: str, function: str, old: str, new: str) -> None:
        self.module, self.name, self.old, self.new = module, function, old, new

    def __str__(self) -> str:
        return f"{self.module}:{self.name}: {self.old!r} -> {self.new!r}"

    def __enter__(self) -> Mutant:
        module = importlib.import_module(self.module)
        self._function = _function(module, self.name)
        self._code = self._function.__code__
        broken = mutated(Path(module.__file__ or "").read_text(), self.name, self.old, self.new)
        self._function.__code__ = _code(compile(broken, module.__file__ or "", "exec", dont_inherit=True), self.name)
        return self

    def __exit__(self, *_: object) -> None:
        self._function.__code__ = self._code


def mutated(source: str, function: str, old: str, new: str) -> ast.Module:
    """The module with `old` replaced by `new` in a function; `Misfit` unless it is there once."""
    tree = ast.parse(source)
    place = _Replace(ast.dump(_syntax(old)), _syntax(new))
    place.visit(_definition(tree, function))
    if place.found != 1:
        raise Misfit(f"{old!r} stands {place.found} times in {function}, not once: bring the mutant up to date")
    return ast.fix_missing_locations(tree)


def _syntax(text: str) -> ast.AST:
    """An expression, or else a statement."""
    (statement,) = ast.parse(text).body
    return statement.value if isinstance(statement, ast.Expr) else statement


class _Replace(ast.NodeTransformer):
    """Replaces everything that has the syntax of a pattern, and counts it."""

    def __init__(self, pattern: str, replacement: ast.AST) -> None:
        self.pattern, self.replacement, self.found = pattern, replacement, 0

    def visit(self, node: ast.AST) -> ast.AST:
        if ast.dump(node) == self.pattern:
            self.found += 1
            return ast.copy_location(self.replacement, node)
        return self.generic_visit(node)


def _definition(tree: ast.Module, name: str) -> ast.AST:
    found: list[ast.AST] = [tree]
    for step in name.split("."):
        inside = [n for node in found for n in getattr(node, "body", ())]
        found = [n for n in inside if isinstance(n, ast.FunctionDef | ast.ClassDef) and n.name == step]
    if len(found) != 1:
        raise Misfit(f"there is no {name} any more: bring the mutant up to date")
    return found[0]


def _function(module: object, name: str) -> FunctionType:
    found: object = functools.reduce(inspect.getattr_static, name.split("."), module)
    while not isinstance(found, FunctionType):
        # of a property, a cached property, a class method
        found = next(x for n in ("fget", "func", "__func__") if (x := getattr(found, n, None)) is not None)
    return found


def _code(code: CodeType, name: str) -> CodeType:
    waiting = [code]
    while waiting:
        one = waiting.pop()
        if one.co_qualname == name:
            return one
        waiting += [inner for inner in one.co_consts if isinstance(inner, CodeType)]
    raise Misfit(f"there is no code of {name}")
