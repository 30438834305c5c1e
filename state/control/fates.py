"""What became of each entry towards a neighbour, in words: for `explain`, `inspect` and whoever looks into Redis.

    forwarded                          the neighbour holds it as it is
    covered by b1/s7                   withheld: this entry, forwarded, contains it
    covered by b1/s7, b2/s1 together   withheld: these contain it between them
    forwarded as 00..1f-00..ff         ranges ([MICS09]): the neighbour holds just these
    merged into 00..00-00..ff          ranges: others have a share in what the neighbour holds
    held back: ...                     no advertisement that came from the neighbour meets it

The forwarding state itself is in the state of the cube key; this is a bounded excerpt of it, made when it changed.
The same in numbers (`count`) is of all entries.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import islice

import numpy as np

from state.reductions.covering import Covering
from state.reductions.group_covering import GroupCovering
from state.reductions.interval_table import range_ids
from state.reductions.mics import Mics
from state.reductions.negative_space import NegativeSpace
from state.reductions.reduction import Reduction
from state.space.packing import Packed, unpack
from state.space.ranges import Ranges

READABLE_MAX = 1000
"""Readable hashes show at most this many entries of a part."""
READABLE_RANGED_MAX = 200
"""The same where entries are ranges: each has many, and what carries it can be found from the link's own table."""
NAMED_MAX = 8
"""Ids that one text names; the others are counted."""
ASKED_MAX, SCANS_MAX = 30, 200_000
"""Where the reduction does not keep who covers what: entries to ask for, and boxes to look at for that."""

FORWARDED, COVERED, MERGED = "forwarded", "covered by ", "merged into "
FORWARDED_AS = "forwarded as "
TOGETHER = " together"
UNNAMED = "covered by forwarded entries" + TOGETHER
NOT_ADVERTISED = "held back: no advertisement from there meets it"


def describe(
    reduction: Reduction, entries: Mapping[str, Packed], selected: Collection[str] | None = None
) -> dict[str, str]:
    """Say what a reduction does with these of its entries; `selected`: those that an advertisement lets through.

    Cost: O(entries), and one pass over the live ranges (mics) or over `SCANS_MAX` boxes (negative space) at most.
    """
    offered = {id: packed for id, packed in entries.items() if packed.size and (selected is None or id in selected)}
    texts = _of_ranges(reduction, list(offered)) if isinstance(reduction, Mics) else _of_boxes(reduction, offered)
    held_back = [] if selected is None else [id for id in entries if id not in selected]
    return texts | dict.fromkeys(held_back, NOT_ADVERTISED)


def count(reduction: Reduction, held_back: int | None, size: int) -> dict[str, int]:
    """What a reduction holds, in numbers; none if it was offered nothing.

    received         entries that the broker's other interfaces asked for
    held_back        of these: no advertisement that came from the neighbour meets them (types with advertisements)
    forwarded        entries (mics: ranges) that the neighbour was told
    withheld         entries (mics: ranges) that these make unnecessary
    ranges           mics: ranges that the entries were mapped to
    negative_boxes   negative space: boxes of what no forwarded entry covers (hybrid keeps none between decisions)
    bytes            size of the reduction's state; `size` is that of its encoding

    Cost: O(entries), less than that of the encoding.
    """
    stats = reduction.stats()
    received = int(stats["entries"]) + (held_back or 0)
    if not received:
        return {}
    told = {"received": received} | ({} if held_back is None else {"held_back": held_back})
    told |= {"forwarded": int(stats["forwarded"]), "withheld": int(stats["withheld"])}
    return told | {name: int(stats[name]) for name in ("ranges", "negative_boxes") if name in stats} | {"bytes": size}


def carriers(id: str, text: str) -> tuple[str, ...]:
    """The ids under which the neighbour holds an entry, as far as its text names them.

    >>> carriers("b1/s1", "forwarded"), carriers("b1/s1", "covered by b1/s7, b2/s1 and 3 more together")
    (('b1/s1',), ('b1/s7', 'b2/s1'))
    """
    if text == FORWARDED:
        return (id,)
    for head in (FORWARDED_AS, COVERED, MERGED):
        if text.startswith(head) and text != UNNAMED:
            listed = text.removeprefix(head).removesuffix(TOGETHER).split(" and ")[0]
            return tuple(listed.split(", "))
    return ()


def _named(ids: Collection[str]) -> str:
    """Some ids, and how many more there are."""
    shown = ", ".join(list(ids)[:NAMED_MAX])
    return shown if len(ids) <= NAMED_MAX else f"{shown} and {len(ids) - NAMED_MAX} more"


def _covered(by: Collection[str]) -> str:
    return f"{COVERED}{_named(by)}{TOGETHER if len(by) > 1 else ''}" if by else UNNAMED


def _of_boxes(reduction: Reduction, offered: Mapping[str, Packed]) -> dict[str, str]:
    forwarded = reduction.forwarded()
    asks = min(ASKED_MAX, SCANS_MAX // max(1, len(forwarded)))
    texts = {}
    for id, packed in offered.items():
        if id in forwarded:
            texts[id] = FORWARDED
        elif isinstance(reduction, Covering):
            texts[id] = _covered([by] if (by := reduction.coverer(id)) is not None else [])
        elif isinstance(reduction, GroupCovering):
            texts[id] = _covered(reduction.group(id) or ())
        elif isinstance(reduction, NegativeSpace) and asks > 0:
            asks -= 1
            texts[id] = _covered(reduction.decide(unpack(packed)).by)
        else:
            texts[id] = UNNAMED
    return texts


def _of_ranges(reduction: Mics, ids: list[str]) -> dict[str, str]:
    """All entries side by side: where each range lies in the table, and what of an entry's rows to name."""
    table, entries = reduction.table(), reduction.ranges_of(ids)
    if not entries:
        return {}
    starts = np.concatenate([ranges.starts for ranges in entries.values()])
    ends = np.concatenate([ranges.ends for ranges in entries.values()])
    sizes = np.array([len(ranges) for ranges in entries.values()])
    owners = np.repeat(np.arange(len(sizes)), sizes)
    at = np.searchsorted(table.starts, starts, side="right") - 1
    alone = np.bincount(owners[(table.starts[at] == starts) & (table.ends[at] == ends)], minlength=len(sizes))
    # ranges of an entry are sorted, so those in one range of the table stand together
    first = np.ones(len(at), bool)
    first[1:] = (at[1:] != at[:-1]) | (owners[1:] != owners[:-1])
    at, owners = at[first], owners[first]
    counts = np.bincount(owners, minlength=len(sizes))
    offsets = np.cumsum(counts) - counts
    shown = np.arange(len(at)) - offsets[owners] < NAMED_MAX
    names = iter(range_ids(Ranges(table.starts[at[shown]], table.ends[at[shown]])))
    texts = {}
    for id, count, whole in zip(entries, counts.tolist(), (alone == sizes).tolist(), strict=True):
        listed = ", ".join(islice(names, min(count, NAMED_MAX)))
        more = f" and {count - NAMED_MAX} more" if count > NAMED_MAX else ""
        texts[id] = (FORWARDED_AS if whole else MERGED) + listed + more
    return texts
