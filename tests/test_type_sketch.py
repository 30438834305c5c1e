"""Types proposed from samples, read back by the configuration itself; and how far events are from their type."""

from __future__ import annotations

import json
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from state.config import parse
from state.plain_events import plain_event
from state.space.event_type import Attribute, EventType
from state.space.ranks import ABSENT, rank
from state.type_sketch import ATTRIBUTES_MAX, CATEGORY_MAX, likeness, sketch, unlike

OVERLAY = '[overlay]\nbrokers = ["b"]\n'


def proposed(documents, name="t"):
    """The type that the configuration makes of a proposal."""
    return parse(OVERLAY + sketch(name, documents)).types[name]


NAMES = st.one_of(st.sampled_from(["a", "b", "a.b", 'say "hi"', "té", "\\", "x y", "min"]), st.text(max_size=3))
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.integers(0, 3),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=4),
    st.sampled_from(["DE", "FR", "\x7f", "2026-01-02T03:04:05Z", "2026-01-02T03:04:05.5+01:00"]),
    st.lists(st.integers(), max_size=2),
)
DOCUMENTS = st.recursive(
    st.dictionaries(NAMES, VALUES, max_size=4),
    lambda inner: st.dictionaries(NAMES, VALUES | inner, max_size=4),
    max_leaves=8,
)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.lists(DOCUMENTS, min_size=1, max_size=6), st.integers(1, 8))
def test_a_proposal_is_a_configuration_that_reads_what_it_was_made_from(some, times):
    """Whatever documents hold, the text is accepted, and each value of a proposed attribute is read as present."""
    documents = some * times
    text = sketch('odd "name"', documents)
    if " = { kind = " not in text:
        return  # nothing of a kind was found, and a type needs an attribute
    event_type = parse(OVERLAY + text.replace('odd \\"name\\"', "t")).types["t"]
    for document in documents:
        event = plain_event(event_type, json.dumps(document).encode(), {})
        assert event is not None
        for attribute in event_type.attributes:
            if attribute.name in event and not isinstance(event[attribute.name], dict):
                assert rank(attribute, event[attribute.name]) != ABSENT, (attribute, event)


def orders(n, seed=1):
    """Orders as a shop writes them."""
    draw = random.Random(seed)
    return [
        {
            "id": i,
            "order": {
                "customer": {"country": draw.choice(["DE", "FR", "US"]), "name": f"customer {draw.randrange(10**6)}"},
                "total": round(draw.uniform(1, 500), 2),
                "at": f"2026-0{draw.randint(1, 9)}-01T00:00:00Z",
                "express": draw.random() < 0.1,
                "lines": [{"sku": "x"}],
                "total_net": {"total": 3},
            },
            "mixed": draw.choice([1, "one"]),
        }
        for i in range(n)
    ]


def test_kinds_values_ranges_and_places():
    """Enumerations become categories, times timestamps, numbers ranges; what has no kind is named with the reason."""
    event_type = proposed(orders(400))
    kinds = {a.name: (a.kind, a.members) for a in event_type.attributes}
    assert kinds == {
        "id": ("int", ("id",)),
        "country": ("category", ("order", "customer", "country")),
        "name": ("text", ("order", "customer", "name")),
        "order_total": ("float", ("order", "total")),
        "at": ("timestamp", ("order", "at")),
        "express": ("boolean", ("order", "express")),
        "order_total_net_total": ("int", ("order", "total_net", "total")),
    }
    assert event_type.attribute("country").values == ("DE", "FR", "US")
    assert (event_type.attribute("id").min, event_type.attribute("id").max) == (0, 399)
    text = sketch("t", orders(400))
    assert "#   order.lines: an array" in text
    assert "#   mixed: not of one kind (a number, text)" in text


def test_the_index_is_the_most_selective():
    """What divides events finely comes first, and what all share is not in it."""
    draw = random.Random(2)
    documents = [
        {"same": 5, "half": draw.random() < 0.5, "fine": draw.randrange(1000), "coarse": draw.choice("ABCD"), "no": "x"}
        for _ in range(400)
    ]
    assert proposed(documents).index == ("fine", "coarse", "half")


def test_few_values_that_come_again_are_a_category():
    """Texts are declared as values only where each was seen several times."""
    assert proposed([{"x": f"v{i % 3}"} for i in range(12)]).attribute("x").kind == "category"
    assert proposed([{"x": f"v{i % 3}"} for i in range(11)]).attribute("x").kind == "text"
    many = CATEGORY_MAX + 1
    assert proposed([{"x": f"v{i % many}"} for i in range(10 * many)]).attribute("x").kind == "text"


def test_a_proposal_is_no_longer_than_people_read():
    """The members that most documents have are proposed; the others are counted."""
    documents = [{f"m{i}": 1 for i in range(200)}, {f"m{i}": 2 for i in range(ATTRIBUTES_MAX)}]
    event_type = proposed(documents)
    assert {a.name for a in event_type.attributes} == {f"m{i}" for i in range(ATTRIBUTES_MAX)}
    assert "more" in sketch("t", documents).splitlines()[-1]


QUOTE = EventType(
    "quote",
    (
        Attribute("price", "float", min=0, max=100),
        Attribute("at", "int", min=0, max=10, imprecise="possible"),
        Attribute("side", "category", values=("buy", "sell")),
    ),
)


def test_likeness_counts_what_is_absent_and_what_lies_beyond():
    """By hand: missing, of another kind, undeclared, outside min and max, and an interval that touches the grid."""
    events = [
        {"price": 5, "at": {"min": -3, "max": 0}, "side": "buy"},
        {"price": 500.0, "at": {"min": 11, "max": 12}, "side": "hold"},
        {"price": "5", "at": -1},
        {"at": {"min": 9, "max": 3}},
    ]
    found = {one.attribute: (one.absent, one.beyond) for one in likeness(QUOTE, events)}
    assert found == {"price": (0.5, 0.25), "at": (0.25, 0.5), "side": (0.75, 0.0)}
    assert unlike(likeness(QUOTE, events)) == [
        "price is absent, or of another kind, in 50% of them",
        "price is outside min and max in 25% of them",
        "at is outside min and max in 50% of them",
        "side is absent, or of another kind, in 75% of them",
    ]


def test_events_that_look_like_their_type_are_not_spoken_of():
    """Nothing is said of what is as described, nor of no events at all."""
    assert unlike(likeness(QUOTE, [{"price": 1, "at": 1, "side": "sell"}] * 4)) == []
    assert likeness(QUOTE, []) == []


def test_events_look_like_what_was_proposed_from_them():
    """The documents of a sample are all present and inside the grid of its own proposal."""
    documents = orders(100)
    event_type = proposed(documents)
    events = [plain_event(event_type, json.dumps(document).encode(), {}) for document in documents]
    assert {(one.absent, one.beyond) for one in likeness(event_type, events)} == {(0.0, 0.0)}
