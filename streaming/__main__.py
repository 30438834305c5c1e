"""`python -m streaming CONFIG` runs the job of a deployment; `python -m streaming topics CONFIG` creates its topics."""

from __future__ import annotations

import sys

from state.config import load
from state.errors import HilcastError
from streaming.topics import TopicKeeper


def main(arguments: list[str]) -> int:
    """Run; 0 when stopped in order, 1 on an error with a message, 2 on wrong usage."""
    if len(arguments) not in (1, 2) or (len(arguments) == 2 and arguments[0] != "topics"):
        print("usage: python -m streaming [topics] CONFIG", file=sys.stderr)
        return 2
    try:
        config = load(arguments[-1])
        if len(arguments) == 2:
            for name in TopicKeeper(config).ensure_needed():
                print(name)
            return 0
        from streaming.job import Job  # Spark is loaded only where it is needed

        Job(config, arguments[-1]).run()
    except HilcastError as error:
        print(f"hilcast: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
