"""Reductions: which entries a neighbour must hold (`reduction.py`), one module per method.

`parameters.py` says what a configuration can choose, `catalogue.py` makes what it chose.

| name | module | paper |
|---|---|---|
| `none`, `covering` | `none.py`, `covering.py` | baselines |
| `merging` | `rectangle_merging.py` | [MICS09] figure 5b |
| `mics` | `mics.py`, on `interval_table.py` and `live_ranges.py`; indexed: `mics_high_dimensions.py` | [MICS09] |
| `negative-space` | `negative_space.py`, `negative_space_approximate.py`, on `negative_tree.py` | [NEG08] |
| `probabilistic`, `hybrid` | `probabilistic.py`, `hybrid.py`, on `group_covering.py` and `rspc.py` | [RSPC06] |

All but `merging` and projected `mics` withhold whole entries: what they share is `withholding.py`, on `entry_rows.py`.
"""
