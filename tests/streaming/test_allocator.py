"""What the C library does with the memory that a batch no longer needs."""

from __future__ import annotations

import subprocess
import sys

AGAIN = """
import resource, numpy as np
from streaming import allocator
allocator.keep()
def batch():
    arrays = [np.ones(8 << 20, np.uint8) for _ in range(4)]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
batch(); batch()
before = batch()
print(batch() - before)
allocator.give_back()
print(batch() - before)
"""
FAULTS_MAX = 100
"""Pages that are touched beside the arrays; those themselves have 8,192 of the ordinary size."""


def test_a_batch_gets_the_memory_of_the_one_before():
    """No page is asked of the system twice, until what is kept was given back."""
    told = subprocess.run([sys.executable, "-c", AGAIN], capture_output=True, text=True, check=True).stdout.split()
    again, anew = map(int, told)
    assert again < FAULTS_MAX
    assert anew > again
