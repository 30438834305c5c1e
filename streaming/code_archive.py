"""Our code on its way to executors: packed by the driver, unpacked by Spark in the folder where an executor works.

    driver     state, streaming, infra, as it runs them ──> an archive, `spark.archives`
    executor   ./hilcast-code, on its PYTHONPATH: never another version than the driver's
               its Python and the packages of the extra `router` are there already: the image, or an archive of yours

Compiled kernels travel with the code that they were compiled from, so no executor compiles what the driver has. Numba
takes one for its source by the time of the source, which an archive does not keep to the nanosecond: `restore` does.
"""

from __future__ import annotations

import json
import os
import tarfile
from io import BytesIO
from pathlib import Path

FOLDER = "hilcast-code"
"""What it is called where an executor works."""
PACKAGES = ("infra", "state", "streaming")
ROOT = Path(__file__).parents[1]
_STAMPS = "stamps.json"
_LEFT_OUT = (".md", ".yaml")


def pack(path: Path) -> None:
    """Write the archive.

    Cost: some 4 MB, most of it kernels, and a second.
    """
    stamps: dict[str, int] = {}
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        for file in _files():
            name = file.relative_to(ROOT).as_posix()
            stamps[name] = file.stat().st_mtime_ns
            archive.add(file, name, recursive=False)
        said = json.dumps(stamps).encode()
        entry = tarfile.TarInfo(_STAMPS)
        entry.size = len(said)
        archive.addfile(entry, BytesIO(said))


def _files() -> list[Path]:
    found = (file for package in PACKAGES for file in sorted((ROOT / package).rglob("*")))
    return [file for file in found if file.is_file() and file.suffix not in _LEFT_OUT]


def restore() -> None:
    """Give sources the times that they had where their kernels were compiled; nothing where they were not unpacked."""
    stamps = ROOT / _STAMPS
    if stamps.is_file():
        for name, stamp in json.loads(stamps.read_text()).items():
            os.utime(ROOT / name, ns=(stamp, stamp))
