"""What became of the entries of a part towards a neighbour: a bounded excerpt, for `explain` and for Redis.

The forwarding state itself is in the state of the part; this is made of it when it changed. What may become of an entry
is `Fate`, which reductions tell; the command line makes words of it. The same in numbers (`count`) is of all entries.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from state.reductions.reduction import Fate, Reduction
from state.space.packing import Packed

READABLE_MAX = 1000
"""Readable hashes show at most this many entries of a part."""
READABLE_RANGED_MAX = 200
"""The same where entries are ranges: each has many, and what carries it can be found from the link's own table."""

HELD_BACK = Fate("held-back")


def fates(
    reduction: Reduction, entries: Mapping[str, Packed], selected: Collection[str] | None = None
) -> dict[str, Fate]:
    """What a reduction does with these of its entries; `selected`: those that an advertisement lets through.

    Cost: O(entries), and what `Reduction.fates` costs.
    """
    offered = [id for id, packed in entries.items() if packed.size and (selected is None or id in selected)]
    held_back = [] if selected is None else [id for id in entries if id not in selected]
    return reduction.fates(offered) | dict.fromkeys(held_back, HELD_BACK)


def count(reduction: Reduction, held_back: int | None, size: int) -> dict[str, int]:
    """What a reduction holds, in numbers; none if it was offered nothing.

    received         entries that the broker's other interfaces asked for
    held_back        of these: no advertisement that came from the neighbour meets them (types with advertisements)
    forwarded        entries (mics: ranges; merging: rectangles) that the neighbour was told
    withheld         entries (mics: ranges; merging: boxes) that these make unnecessary
    ranges           mics: ranges that the entries were mapped to
    negative_boxes   negative space: boxes of what no forwarded entry covers (hybrid keeps none between decisions)
    bytes            size of the reduction's state, as it was packed last

    Cost: O(entries), less than that of the encoding.
    """
    stats = reduction.stats()
    received = int(stats["entries"]) + (held_back or 0)
    if not received:
        return {}
    told = {"received": received} | ({} if held_back is None else {"held_back": held_back})
    told |= {"forwarded": int(stats["forwarded"]), "withheld": int(stats["withheld"])}
    return told | {name: int(stats[name]) for name in ("ranges", "negative_boxes") if name in stats} | {"bytes": size}
