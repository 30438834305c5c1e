"""What the C library is told of the memory of a route worker, where it can be told.

By itself it hands what a batch no longer needs back to the system, which has to clear it again for the next batch: at
100,000 subscriptions that was a fourteenth of the processor time of an event. It costs some 25 MB a worker to keep it.
"""

from __future__ import annotations

import contextlib
import ctypes

MMAP_THRESHOLD, TRIM_THRESHOLD = -3, -1
"""The names of two settings, as `mallopt` knows them."""
OF_ITS_OWN_BYTES = 32 << 20
"""An array from this size on is handed back at once; the C library takes no more than this."""
KEPT_BYTES = 128 << 20
"""What is kept at most of what nobody uses, where that lies at the end."""


def keep() -> None:
    """Have this process, and those that it forks, keep memory for the next batch."""
    with contextlib.suppress(AttributeError):
        library = ctypes.CDLL(None)
        library.mallopt(MMAP_THRESHOLD, OF_ITS_OWN_BYTES)
        library.mallopt(TRIM_THRESHOLD, KEPT_BYTES)


def give_back() -> None:
    """Give what was needed for once, to build an index, back to the system."""
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
