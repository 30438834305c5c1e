"""The names of numpy arrays in signatures, each with one meaning everywhere."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
"""Ranks, rows, owners, indices: whatever is counted or looked up."""
Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Bytes = NDArray[np.uint8]
Words = NDArray[np.uint64]
"""64 bits at a time: bitmaps and hashes."""
Offsets = NDArray[np.int32]
"""Where the values of an Arrow column begin."""
