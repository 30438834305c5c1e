"""`python -m producers.demo [--events N] [--seed N] [--keep] [--ui]`"""

from __future__ import annotations

import argparse
import signal
import sys

from producers.demo.scenes import play
from state.errors import HilcastError


def main() -> int:
    """Play the demo; 0 only if nothing was missing and nothing wrong."""
    parser = argparse.ArgumentParser(prog="python -m producers.demo", description=__doc__)
    parser.add_argument("--events", type=int, default=70, metavar="N", help="publications of each half (70)")
    parser.add_argument("--seed", type=int, default=7, metavar="N", help="of the random quotes (7)")
    parser.add_argument("--keep", action="store_true", help="keep data and logs in var/demo")
    parser.add_argument("--ui", action="store_true", help="then go on, with the console in the browser, until Ctrl-C")
    chosen = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # to be told to go is to stop in order
    try:
        return 0 if play(chosen.events, chosen.seed, chosen.keep, chosen.ui) else 1
    except HilcastError as error:
        print(f"hilcast: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
