"""What is kept of a compiled kernel is used only while all that was compiled into it is the same."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from state.digests import _delivery_ids, _event_digests
from state.kernels import meaning

ROOT = Path(__file__).parents[1]
INNER = """
from numba.extending import intrinsic
from numba import types
from state.kernels import njit
ORDER = ({order},)
@intrinsic
def zero(context):
    def write(lowering, builder, __, arguments):
        return lowering.get_constant(types.int64, {zero})
    return types.int64(), write
@njit
def inner(x):
    return x + {inner} + ORDER[0] + zero()
"""
OUTER = """
from state.inside import inner
from state.kernels import njit
@njit
def outer(x):
    return inner(x)
print(outer(1), sum(outer.stats.cache_hits.values()))
"""


def run(folder: Path, **values: int) -> tuple[int, int]:
    """What the outer kernel says in a process of its own, and how often it was found; the inner one as given."""
    package = folder / "state"
    (package / "inside.py").write_text(INNER.format(**{"order": 0, "zero": 0, "inner": 0, **values}))
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    ran = subprocess.run(
        [sys.executable, "-m", "state.outside"], cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    said, found = ran.stdout.split()
    return int(said), int(found)


def test_a_kernel_is_compiled_anew_where_what_it_calls_has_changed(tmp_path):
    """A function in another file, a constant and an intrinsic that it uses; where nothing changed it is found."""
    package = tmp_path / "state"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "kernels.py").write_text((ROOT / "state/kernels.py").read_text())
    (package / "outside.py").write_text(OUTER)
    assert run(tmp_path) == (1, 0)
    assert run(tmp_path) == (1, 1)
    assert run(tmp_path, inner=10) == (11, 0)
    assert run(tmp_path, order=20) == (21, 0)
    assert run(tmp_path, zero=40) == (41, 0)
    assert run(tmp_path) == (1, 1)


def test_the_meaning_of_a_kernel_is_the_same_in_every_process():
    """Executors find under it what the driver has compiled; two kernels have two."""
    ask = "from state.digests import _delivery_ids as k; from state.kernels import meaning; print(meaning(k.py_func))"
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    ran = subprocess.run(
        [sys.executable, "-c", ask], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == meaning(_delivery_ids.py_func)
    assert meaning(_event_digests.py_func) != meaning(_delivery_ids.py_func)
