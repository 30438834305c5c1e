"""How compiled kernels are declared: one decorator, so that every kernel is cached and holds no lock.

numba writes its cache beside the module or, if that cannot be written (a read-only install), where
`NUMBA_CACHE_DIR` says; with neither it raises at import. Then the kernels are compiled anew in each process.
No `parallel=True` anywhere: Spark's workers are forked, and their tasks already use every core.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba

F = TypeVar("F", bound=Callable[..., Any])


def njit(function: F) -> F:
    """Compile `function` with numba: cached on disk where that is possible, without the interpreter lock."""
    try:
        return numba.njit(cache=True, nogil=True)(function)  # type: ignore[no-any-return]
    except RuntimeError as error:
        if "no locator available" not in str(error):
            raise
        return numba.njit(nogil=True)(function)  # type: ignore[no-any-return]
