"""How compiled kernels are declared: one decorator, so that every kernel is cached and holds no lock.

numba writes its cache beside the module or, if that cannot be written (a read-only install), where
`NUMBA_CACHE_DIR` says; with neither it raises at import. Then the kernels are compiled anew in each process.
No `parallel=True` anywhere: Spark's workers are forked, and their tasks already use every core.

What numba keeps it knows by the file and the code of the function itself. But what a kernel calls is compiled into it:

    matched() in one file ──calls──> inside() in another      that one changes: what is kept of matched() is old

So a kernel is known here by all that it refers to (`meaning`), and an update in place never runs what it has replaced.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any, TypeVar

import numba
import numpy as np
from numba.core.caching import FunctionCache

F = TypeVar("F", bound=Callable[..., Any])
OURS = __name__.partition(".")[0]
"""The package whose functions and constants a kernel is compiled with; what others bring has a version of its own."""


def njit(function: F) -> F:
    """Compile `function` with numba: cached on disk where that is possible, without the interpreter lock."""
    kernel = numba.njit(nogil=True)(function)
    try:
        kernel._cache = _Kept(function)
    except RuntimeError as error:
        if "no locator available" not in str(error):
            raise
    return kernel  # type: ignore[no-any-return]


class _Kept(FunctionCache):
    """What is kept of a kernel, under its meaning. That is asked for when the kernel is first called: all is there."""

    def _index_key(self, signature: Any, codegen: Any) -> tuple[Any, ...]:
        return (*super()._index_key(signature, codegen), meaning(self._py_func))


def meaning(function: Callable[..., Any]) -> str:
    """A hash of the code of a function and of all that it refers to, the functions among it in the same way.

    Guarantee: another one where a function or a constant of ours changes that it is compiled with; the same in every
    process and on every host of one version of Python. Cost: some 0.1 ms, once for each kernel and signature.
    """
    said = hashlib.sha256()
    todo, seen = [function], {_name(function)}
    while todo:
        one = todo.pop()
        said.update(_name(one).encode())
        for code in _codes(one.__code__):
            said.update(code.co_code)
            said.update("".join(_constant(c) for c in code.co_consts if not isinstance(c, CodeType)).encode())
            for name, value in _named(code.co_names, one.__globals__):
                inner = _function_in(value)
                if inner is None:
                    said.update(f"{name}={_constant(value)};".encode())
                elif _name(inner) not in seen:
                    seen.add(_name(inner))
                    todo.append(inner)
    return said.hexdigest()


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _codes(inner)


def _named(names: tuple[str, ...], known: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """What these names of a function's code mean; of modules of ours the members that may be meant."""
    for name in names:
        if name not in known:
            continue
        value = known[name]
        if not isinstance(value, ModuleType):
            yield name, value
        elif value.__name__.partition(".")[0] == OURS:
            yield from ((f"{name}.{member}", getattr(value, member)) for member in names if hasattr(value, member))


def _function_in(value: Any) -> FunctionType | None:
    """The function of ours behind a name: itself, a kernel, or what writes an intrinsic."""
    for inner in (value, getattr(value, "py_func", None), getattr(value, "_defn", None)):
        if isinstance(inner, FunctionType) and inner.__module__.partition(".")[0] == OURS:
            return inner
    return None


def _constant(value: Any) -> str:
    """What is compiled in of a constant; of what is none, such as a type, its name."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{value.shape}{hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()}"
    if isinstance(value, tuple | frozenset):
        each = [_constant(one) for one in value]
        return f"({','.join(each if isinstance(value, tuple) else sorted(each))})"  # a set has no order of its own
    if value is None or isinstance(value, bool | int | float | str | bytes | np.generic):
        return repr(value)
    return str(getattr(value, "__qualname__", type(value).__qualname__))


def _name(function: Callable[..., Any]) -> str:
    return f"{function.__module__}.{function.__qualname__}"
