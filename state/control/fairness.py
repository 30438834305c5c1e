"""Fair taking: how much of each client's inboxes one control batch takes.

    waiting   alice 2, bob 1,000,000, carol 400          limit 1,000
    taken     alice 2, bob 598,       carol 400          nobody gets less than an equal share, as far as he has it

Guarantee: of n clients that have something waiting each is given at least `limit // n` records, or one, or all that
it has. So a client with k records waiting has them taken within ceil(k / max(1, limit // n)) batches, whatever others
send. A batch has at most `limit` records of inboxes, or one of each inbox where those are more.
"""

from __future__ import annotations

from collections.abc import Mapping


def shares(waiting: Mapping[str, int], limit: int) -> dict[str, int]:
    """Divide a limit: equal shares, and what somebody does not need goes to the others.

    Cost: O(n log n). What is left by rounding goes to those who wait for most.

    >>> shares({"alice": 2, "bob": 1_000_000, "carol": 400}, 1000)
    {'alice': 2, 'carol': 400, 'bob': 598}
    """
    taken: dict[str, int] = {}
    left = limit
    for i, (name, n) in enumerate(sorted(waiting.items(), key=lambda item: (item[1], item[0]))):
        taken[name] = min(n, max(1, left // (len(waiting) - i)))
        left -= min(left, taken[name])
    return taken


def taken(spans: Mapping[str, Mapping[str, tuple[int, int]]], limit: int | None) -> dict[str, int]:
    """By topic: up to which offset a batch takes it; `spans`: by client and topic what is waiting.

    The share of a client is divided among its inboxes in the same way.

    >>> taken({"alice": {"s.alice": (5, 7), "a.alice": (0, 90)}, "bob": {"s.bob": (0, 999)}}, 20)
    {'s.alice': 7, 'a.alice': 8, 's.bob': 10}
    """
    if limit is None:
        return {topic: end for inboxes in spans.values() for topic, (_, end) in inboxes.items()}
    of_client = shares({client: sum(b - a for a, b in some.values()) for client, some in spans.items()}, limit)
    ends: dict[str, int] = {}
    for client, inboxes in spans.items():
        of_inbox = shares({topic: end - start for topic, (start, end) in inboxes.items()}, of_client[client])
        ends |= {topic: inboxes[topic][0] + n for topic, n in of_inbox.items()}
    return ends
