"""`python -m streaming CONFIG` runs the job of a deployment."""

from __future__ import annotations

import sys

from infra.logs import set_up
from state.config import load
from state.errors import HilcastError


def main(arguments: list[str]) -> int:
    """Run; 0 when stopped in order, 1 on an error with a message, 2 on wrong usage."""
    if len(arguments) != 1:
        print("usage: python -m streaming CONFIG", file=sys.stderr)
        return 2
    try:
        config = load(arguments[0])
        set_up(config, "job")
        from streaming.job import Job  # Spark is loaded only where it is needed

        Job(config, arguments[0]).run()
    except HilcastError as error:
        print(f"hilcast: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
