"""Conformance: one publication, and a batch, against the oracle."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from state.advertisements.conformance import Promises, conforms
from state.filters.grammar import parse
from state.space.points import ranks
from tests import oracle
from tests.advertisements.witnesses import PLAIN, TYPE, VALUES, filters, leaves

PUBLISHERS = ["p", "q", "nobody"]
promised = st.lists(st.tuples(st.sampled_from(["p", "q"]), filters(leaves(like=True), max_leaves=4)), max_size=5)
events = st.fixed_dictionaries({}, optional={name: st.sampled_from(values) for name, values in VALUES.items()})
published = st.lists(st.tuples(st.sampled_from(PUBLISHERS), events), min_size=1, max_size=10)


@settings(max_examples=120, deadline=None)
@given(promised, published)
def test_a_publication_conforms_if_an_advertisement_of_its_publisher_holds(
    advertised: list[tuple[str, str]], batch: list[tuple[str, dict[str, Any]]]
) -> None:
    """One by one and as a batch: some advertisement of the same publisher holds, by the oracle."""
    promises = Promises(TYPE)
    for i, (publisher, text) in enumerate(advertised):
        promises.add(f"a{i}", publisher, parse(text, TYPE))
    promises.check()
    expected = [
        any(publisher == of and oracle.evaluate(text, event, PLAIN) for of, text in advertised)
        for publisher, event in batch
    ]
    assert [promises.conforms(publisher, event) for publisher, event in batch] == expected
    found = promises.conforms_batch(
        [publisher for publisher, _ in batch],
        np.array([ranks(TYPE, event) for _, event in batch]),
        lambda name, rows: [batch[row][1].get(name) for row in rows],
    )
    assert found.tolist() == expected


def test_advertisements_come_and_go() -> None:
    """A replaced or removed advertisement promises nothing any more, whoever made it."""
    promises = Promises(TYPE)
    promises.add("a", "p", parse("n = 1", TYPE))
    promises.add("a", "q", parse("n = 2", TYPE))
    assert not promises.conforms("p", {"n": 1})
    assert promises.conforms("q", {"n": 2})
    assert len(promises) == 1
    assert promises.remove("a")
    assert not promises.remove("a")
    assert not promises.conforms("q", {"n": 2})
    promises.check()


def test_one_publication_against_one_advertisement() -> None:
    """The plain function is the filter's own evaluation."""
    assert conforms(parse("n IS NULL OR n < 2", TYPE), {}, TYPE)
    assert not conforms(parse("n != 2", TYPE), {}, TYPE)
