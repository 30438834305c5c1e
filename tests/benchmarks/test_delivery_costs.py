"""The account of the distribution method: every copy counted."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.peers.delivery_costs import account
from state.distribution.groups import CATCH_ALL
from state.distribution.method import CostModel, choose
from tests.distribution.test_method import THRESHOLDS, batches


@given(batch=batches(), threshold=THRESHOLDS, loud=THRESHOLDS, seed=st.integers(0, 99))
@settings(max_examples=100, deadline=None)
def test_the_ledger_counts_every_copy(batch, threshold, loud, seed):
    """Copies and bytes written, useful and thrown away are those of handing each copy over one by one."""
    interested, groups, members, listeners = batch
    sizes = np.random.default_rng(seed).integers(1, 100, len(groups))
    rows, clients = np.nonzero(interested)
    choice = choose(rows, clients, groups, members, threshold, listeners, loud)
    ledger = account(choice, rows, clients, members, sizes, listeners)
    written, written_bytes, useful, discarded, discarded_bytes = 0, 0, 0, 0, 0
    for e, size in enumerate(sizes.tolist()):
        audiences = [[c] for c in choice.unicast_clients[choice.unicast_rows == e].tolist()]
        if choice.group[e] != CATCH_ALL:
            audiences.append(np.flatnonzero(members[choice.group[e]]).tolist())
        if choice.broadcast[e]:
            audiences.append(np.flatnonzero(listeners).tolist())
        got = set()
        for audience in audiences:
            written, written_bytes = written + 1, written_bytes + size
            for client in audience:
                good = interested[e, client] and client not in got
                got.add(client)
                useful += good
                discarded += not good
                discarded_bytes += 0 if good else size
    counted = (ledger.copies_written, ledger.bytes_written, ledger.copies_useful)
    assert counted == (written, written_bytes, useful)
    assert (ledger.copies_discarded, ledger.bytes_discarded) == (discarded, discarded_bytes)
    assert ledger.cost(CostModel(2.0, 0.5)) == 2.0 * written_bytes + 0.5 * discarded_bytes
