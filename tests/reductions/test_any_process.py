"""Reductions come to the same deltas and bytes in processes with other hashes of strings, all contracts at once.

Two processes replay every contract: to start one takes longer than to replay one.
"""

from __future__ import annotations

import pytest

from tests.reductions.contract import Named, replays, replays_elsewhere

SAME: list[Named] = [
    ("test_contract", "CONTRACT"),
    ("test_covering", "CONTRACT"),
    ("test_hybrid", "CONTRACT"),
    ("test_mics", "BUDGET"),
    ("test_mics", "CONTRACT"),
    ("test_mics_high_dimensions", "CONTRACT"),
    ("test_negative_space", "APPROXIMATE"),
    ("test_negative_space", "EXACT"),
    ("test_probabilistic", "CONTRACT"),
    ("test_rectangle_merging", "CONTRACT"),
]
OTHER: Named = ("test_contract", "HASH_ORDER")
"""A reduction whose bytes depend on the order of a set."""


@pytest.fixture(scope="module")
def elsewhere() -> list[dict[str, list[str]]]:
    return [replays_elsewhere([*SAME, OTHER], hash_seed) for hash_seed in ("1", "2")]


@pytest.mark.parametrize("contract", SAME, ids=".".join)
def test_the_same_in_any_process(contract: Named, elsewhere: list[dict[str, list[str]]]) -> None:
    """Processes with other string hashes come to the same deltas and bytes as this one."""
    ((name, here),) = replays([contract]).items()
    assert [found[name] for found in elsewhere] == [here, here], "another process came to other bytes"


def test_the_order_of_a_set_is_caught(elsewhere: list[dict[str, list[str]]]) -> None:
    """Bytes that depend on string hashes are not the same in all processes."""
    ((name, here),) = replays([OTHER]).items()
    assert [found[name] for found in elsewhere] != [here, here]
