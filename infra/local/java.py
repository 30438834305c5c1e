"""Find the Java that runs Kafka and Spark: `JAVA_HOME` if set, else `java` on the path, as pyspark does."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from infra import versions
from state.errors import HilcastError

_ADVICE = (
    "install a Java runtime of release "
    + " or ".join(map(str, versions.JAVA))
    + " (Debian: openjdk-17-jre-headless; macOS: brew install openjdk@17) and put it on the PATH,"
    " or set JAVA_HOME to it"
)


@dataclass(frozen=True)
class Java:
    """A usable `java` and its release (17 or 21)."""

    path: Path
    release: int


def release_of(text: str) -> int | None:
    """Return the release in what `java -version` prints, or None.

    >>> release_of('openjdk version "17.0.15" 2025-04-15')
    17
    >>> release_of('java version "1.8.0_402"')
    8
    """
    found = re.search(r'version "(\d+)(?:\.(\d+))?', text)
    if found is None:
        return None
    first, second = found.groups()
    return int(second) if first == "1" and second is not None else int(first)


def find(environ: Mapping[str, str] | None = None) -> Java:
    """Return the Java to use, or raise `java-missing` or `java-version` with what to do.

    Guarantee: the one that pyspark will start with the same environment.
    """
    environ = os.environ if environ is None else environ
    home = environ.get("JAVA_HOME", "")
    if home:
        path, origin = Path(home) / "bin" / "java", f"JAVA_HOME={home}"
        if not os.access(path, os.X_OK):
            raise HilcastError("java-missing", f"{origin} has no bin/java: {_ADVICE}")
    else:
        on_path = shutil.which("java", path=environ.get("PATH", ""))
        if on_path is None:
            raise HilcastError("java-missing", f"no java on the PATH and no JAVA_HOME: {_ADVICE}")
        path, origin = Path(on_path), on_path
    return Java(path, _checked_release(path, origin))


def _checked_release(path: Path, origin: str) -> int:
    try:
        done = subprocess.run([str(path), "-version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise HilcastError("java-missing", f"{origin} does not run ({error}): {_ADVICE}") from error
    # macOS ships a `java` that only says that there is none.
    said = (done.stderr + done.stdout).strip()
    release = release_of(said) if done.returncode == 0 else None
    if release is None:
        raise HilcastError("java-missing", f"{origin} does not run ({said[:200]}): {_ADVICE}")
    if release not in versions.JAVA:
        raise HilcastError("java-version", f"{origin} is Java {release}: {_ADVICE}")
    return release
