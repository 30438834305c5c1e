"""Boolean advertisements, [BADV06]: what a publisher promises, and how filters become smaller within a budget.

| module | what | paper | in the router |
|---|---|---|---|
| `conformance.py` | `Promises`: does an event keep what its publisher promised | §3.3 | routing, for every event |
| `queue.py` | which predicates can be left out, in which order | §5.5 | home prunes by it |
| `ranking.py` | the harm to an advertisement: its overlapping rank | §5.3, §5.4 | home, for advertisements |
| `observations.py` | the harm to a subscription: how often a filter holds | §2.3 | home, for subscriptions |
| `filter_index.py` | which of many filters overlap one, as trees (`filter_programs.py`) | §4.3, §4.4 | parts ask it |
| `predicates.py`, `rows.py` | the predicates of many filters, and those that one violates | §4.2 | under these two |
| `extents.py` | the values that a predicate allows; violating predicates | §4.2, Table 1 | under all of these |
| `normal.py` | filters in the form in which comparing predicate by predicate is exact | | under all of these |

Whether an advertisement and a subscription overlap is decided on boxes first (`state/control/overlap.py`). The
paper's counting and pruning of a whole index are rivals, in `benchmarks/peers`: `tree_overlap.py`,
`boolean_counting.py`, `index_pruning.py`.
"""
