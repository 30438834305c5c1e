"""Limits that several modules keep, each with its reason. Those of one structure alone stand with it."""

from __future__ import annotations

# ── sizes of records: what may come in, and how much larger it may be when it goes out ──────────────────────────

INPUT_BYTES_MAX = 1_048_588
"""Kafka's default limit of one record batch: what publishers may send."""
HEADROOM_BYTES = 64 * 1024
"""What our headers may add: output topics and the sink allow this much more."""
OUTPUT_BYTES_MAX = INPUT_BYTES_MAX + HEADROOM_BYTES
"""The largest record batch that output topics take."""
INBOX_BYTES_MAX = INPUT_BYTES_MAX
"""Key, value and headers of one subscription or advertisement, unpacked: what a client that does not compress could
send. With `[settings] control_records_per_batch` it bounds what a control batch holds, however well records compress.
"""
FLOOD_BYTES = 256 * 1024 * 1024
"""What one key may be sent by the inboxes in a batch, before the large ones among its records are cut, too: a worker
holds all of them at once. With 100,000 registrations of 400 bytes it is sent some 5 MB.
"""
FLOOD_RECORD_BYTES = 16 * 1024
"""What is large then: a filter of 4,096 bytes takes less in every spelling but the longest."""
CLIPPED_BYTES = 4096
"""What is kept of key and value of a control record that is larger than any that is taken."""
RECORD_OVERHEAD_BYTES = 128
"""What Kafka adds to a batch of one record: 61 bytes of the batch and at most 36 of the record."""
HEADER_OVERHEAD_BYTES = 10
"""What it adds to each header: two lengths."""
GEOMETRY_BYTES_MAX = 448 * 1024
"""The boxes of one filter: a control message has them in two forms and cannot cut them. 1,024 boxes of 28 attributes
take as much.
"""

# ── texts: what we quote of others, and what others may call themselves ─────────────────────────────────────────

PUBLISHER_BYTES_MAX = 4096
"""The name of an advertisement's publisher: it stands in the registry, in states and in receipts' keys."""
RECEIPT_KEY_MAX = 256
"""Characters of a key in a receipt; a legal one has 194 at most."""
QUOTED_MAX = 200
"""Characters of what a reason quotes."""
REASON_BYTES_MAX = 2000
"""A reason in a receipt or dead letter."""
JSON_DEPTH_MAX = 128
"""Levels of brackets in a value that is read; `space/json_scan.py` has the like for events."""

PATH_MAX = 32
"""How deep an attribute may lie in its document."""

# ── grids ───────────────────────────────────────────────────────────────────────────────────────────────────────

DIMENSIONS_MAX = 6
"""Attributes of a grid: for so many dimensions the Hilbert curve has tables."""
INDEX_BITS_MAX = 63
"""Bits of a Hilbert index: it is a signed 64-bit integer."""
CELL_BITS_MAX = 16
"""Cells are listed, and a grid's description carries the lists: 65,536 per attribute at most."""
CUBES_MAX = 4096
CUBES_DEFAULT = 16
"""Cubes of a type: each is a key with state of its own at every broker, and a line of the version vector that every
route task reads."""

# ── the fence ───────────────────────────────────────────────────────────────────────────────────────────────────

ENTRY_ROUNDS = 2
"""What every control event needs at its own broker: its home, then the cubes that it touches."""
REPAIR_ROUNDS = 2
"""What a gap in a stream needs beyond that: the request, and the snapshot that answers it."""


def fence_rounds(diameter: int, advertised: bool) -> int:
    """How often `hilcast wait` looks where topics end: as often as a consequence can have steps.

    A control event causes others, a hop at a time; where a type has advertisements, a consequence may travel there and
    back.

    >>> fence_rounds(4, advertised=False), fence_rounds(4, advertised=True)
    (8, 12)
    """
    return (2 if advertised else 1) * diameter + ENTRY_ROUNDS + REPAIR_ROUNDS
