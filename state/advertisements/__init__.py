"""Boolean advertisements, [BADV06]: who needs a subscription, and how to remember less.

| module | what | paper |
|---|---|---|
| `overlap.py` | `OverlapIndex`: which advertisements and subscriptions overlap; the way in | §4 |
| `conformance.py` | `Promises`: does a publication keep what its publisher advertised | §3.3 |
| `pruning.py` | `AdvertisementPruning`, `SubscriptionPruning`: smaller filters within a budget | §5, §2.3 |
| `extents.py` | the values that a predicate allows; violating predicates | §4.2, Table 1 |
| `normal.py` | filters in the form in which comparing predicate by predicate is exact | |
| `index.py`, `programs.py`, `predicates.py`, `rows.py` | filters stored so that they can be asked and changed | §4.3 |
| `counting.py` | the algorithm as printed, and the conjunctive one it is compared with | §4.4, §6.3 |
| `queue.py`, `ranking.py`, `observations.py` | which pruning does the least harm | §5.3 to 5.5 |
"""
