"""TOML that is written reads as what it was."""

from __future__ import annotations

import tomllib

from hypothesis import given
from hypothesis import strategies as st

from infra.local.toml_text import written

scalars = (
    st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
    | st.datetimes()
    | st.dates()
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('ab. "\u00e9', max_size=3), inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(st.text('ab.-\\"\n', max_size=4), values, max_size=4))
def test_what_is_written_reads_the_same(tables):
    """Any tables of TOML's kinds come back as they were, keys in need of quotes and tables in lists included."""
    assert tomllib.loads(written(tables)) == tables
