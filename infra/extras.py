"""What an installation may lack: the extras of the distribution, and the packages that each brings.

`pip install hilcast` is for clients: confluent-kafka and msgspec. The rest is asked for by name, and whoever needs what
is not there is told the name.
"""

from __future__ import annotations

import importlib.util
from typing import Literal

from state.errors import HilcastError

Extra = Literal["router", "kafka-python", "formats", "ui"]

PACKAGES: dict[Extra, tuple[str, ...]] = {
    "formats": ("attrs", "authlib", "cachetools", "certifi", "fastavro", "google.protobuf", "httpx2"),
    "kafka-python": ("kafka", "lz4"),
    "router": (
        "hilbertcurve", "hiredis", "kafka", "numba", "numpy",
        "pandas", "pyarrow", "pyspark", "redis", "sortedcontainers",
    ),
}  # fmt: skip
PACKAGES["ui"] = (*PACKAGES["router"], "starlette", "uvicorn")
"""By extra, what its packages are imported as (`pyproject.toml`; a test compares the two)."""


def require(extra: Extra) -> None:
    """Raise `packages-missing`, with what to install, if something of an extra is not there. Imports nothing."""
    absent = [package for package in PACKAGES[extra] if not _is_there(package)]
    if absent:
        advice = f"pip install 'hilcast[{extra}]'"
        raise HilcastError("packages-missing", f"not installed: {', '.join(absent)}; this needs {advice}")


def _is_there(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:  # nor is the package above it
        return False
