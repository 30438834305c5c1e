"""Files that hold secrets."""

from __future__ import annotations

import os
from pathlib import Path


def write_secret(path: Path, content: bytes) -> None:
    """Write a file that nobody but its owner can read at any moment, all of it or nothing."""
    aside = path.with_name(f".{path.name}.new")
    aside.unlink(missing_ok=True)
    handle = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(handle, "wb") as out:
        out.write(content)
    aside.rename(path)
