"""The oracle itself, against what the contract says in so many words, and the product beside it."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

from state.filters.evaluate import matches
from state.filters.grammar import parse
from state.space.event_type import Attribute, EventType
from tests import oracle

PLAIN: dict[str, dict[str, Any]] = {
    "symbol": {"kind": "text"},
    "price": {"kind": "float"},
    "volume": {"kind": "int"},
    "side": {"kind": "category", "values": ["sell", "buy"]},
    "at": {"kind": "timestamp"},
    "halted": {"kind": "boolean"},
}
QUOTE = EventType("quote", tuple(Attribute(n, a["kind"], values=tuple(a.get("values", ()))) for n, a in PLAIN.items()))


def test_the_oracle_imports_nothing_of_ours() -> None:
    """Standard library and the `hilbertcurve` package: what it shares with the product cannot hide a fault."""
    tree = ast.parse(Path(oracle.__file__).read_text("utf-8"))
    imported = {
        name.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names])
    }
    assert imported <= {
        "__future__",
        "itertools",
        "math",
        "collections",
        "datetime",
        "fractions",
        "typing",
        "hilbertcurve",
    }


@pytest.mark.parametrize(
    ("filter", "event", "expected"),
    [
        # absent: a predicate is false and so is its negation; IS NULL is the only one that holds
        ("NOT (price < 5)", {}, False),
        ("NOT (price < 5)", {"price": 7}, True),
        ("price < 5 OR price >= 5", {}, False),
        ("price IS NULL", {"price": None}, True),
        ("price IS NULL", {"price": "7"}, True),
        ("NOT EXISTS price", {}, True),
        ("NOT EXISTS price", {"price": 0}, False),
        ("NOT (price < 5 AND volume < 5)", {"volume": 9}, True),
        ("NOT (price < 5 AND volume < 5)", {"volume": 1}, False),
        ("NOT (price < 5 OR volume < 5)", {"volume": 9}, False),
        ("price != 5", {}, False),
        ("NOT price IN (1, 2)", {}, False),
        # numbers: exact
        ("volume < 1.5", {"volume": 1}, True),
        ("volume < 1.5", {"volume": 2}, False),
        ("volume = 3", {"volume": 3.0}, True),
        ("volume IS NULL", {"volume": 3.5}, True),
        ("volume IS NULL", {"volume": 2**63}, True),
        ("volume = 9223372036854775807", {"volume": 2**63 - 1}, True),
        ("volume IS NULL", {"volume": -(2**63)}, True),
        ("price = 0.1", {"price": 0.1}, True),
        ("price < 9007199254740993", {"price": 2**53}, True),
        ("price = 9007199254740993", {"price": 2**53 + 1}, False),
        ("price = 9007199254740992", {"price": 2**53 + 1}, True),
        ("price IS NULL", {"price": 10**400}, True),
        ("price < 1" + "0" * 400, {"price": 1e308}, True),
        ("price IS NULL", {"price": True}, True),
        ("volume IS NULL", {"volume": True}, True),
        ("price = 0", {"price": -0.0}, True),
        ("price BETWEEN 9 AND 5", {"price": 7}, False),
        ("price NOT BETWEEN 9 AND 5", {"price": 7}, True),
        # categories in declared order, booleans
        ("side < 'buy'", {"side": "sell"}, True),
        ("side IS NULL", {"side": "hold"}, True),
        ("side LIKE '%u%'", {"side": "buy"}, True),
        ("halted != true", {"halted": False}, True),
        ("halted IN (true)", {"halted": 1}, False),
        # text by code point, LIKE spans the whole value
        ("symbol < 'a'", {"symbol": "Z"}, True),
        ("symbol > '\uffff'", {"symbol": "\U00010000"}, True),
        ("symbol = 'é'", {"symbol": "e\u0301"}, False),
        ("symbol LIKE 'b'", {"symbol": "abc"}, False),
        ("symbol LIKE '_b%'", {"symbol": "abc"}, True),
        ("symbol LIKE '5!%' ESCAPE '!'", {"symbol": "5%"}, True),
        ("symbol LIKE '5!%' ESCAPE '!'", {"symbol": "50"}, False),
        ("symbol LIKE '%'", {"symbol": ""}, True),
        ("symbol LIKE '%'", {}, False),
        # timestamps need an offset; finer than microseconds is cut
        ("at = '2024-01-01T00:00:00Z'", {"at": "2024-01-01T01:00:00+01:00"}, True),
        ("at IS NULL", {"at": "2024-01-01T00:00:00"}, True),
        ("at = '2024-01-01T00:00:00.000001Z'", {"at": "2024-01-01T00:00:00.0000019Z"}, True),
        ("at < '1970-01-01T00:00:00Z'", {"at": "1969-12-31T23:59:59.999999Z"}, True),
        ("at IS NULL", {"at": "2023-02-29T00:00:00Z"}, True),
        # extra members are no attributes
        ("TRUE", {"whatever": [1, 2]}, True),
    ],
)
def test_what_the_contract_says(filter: str, event: dict[str, Any], expected: bool) -> None:
    """The sentences of the contract's section on filters, one by one."""
    assert oracle.evaluate(filter, event, PLAIN) is expected
    assert matches(parse(filter, QUOTE), event, QUOTE) is expected


def test_hilbert_ranges_of_the_smallest_curve() -> None:
    """On the 2 x 2 curve of the package (0,0) (0,1) (1,1) (1,0) the left column is one range, the diagonal two."""
    assert oracle.hilbert_indices([0, 0], [1, 1], bits=1) == [0, 1, 2, 3]
    assert oracle.hilbert_ranges([0, 0], [0, 1], bits=1) == [(0, 1)]
    assert oracle.as_ranges([0, 2, 3, 3, 7]) == [(0, 0), (2, 3), (7, 7)]
    assert oracle.hilbert_ranges([3], [5], bits=4) == [(3, 5)]


def test_expected_deliveries_flood_the_overlay() -> None:
    """Matching subscriptions anywhere in the overlay get it once per destination; others, other types, do not."""
    subscriptions = [
        {"broker": "b3", "type": "quote", "client": "alice", "id": "s1", "filter": "price < 5"},
        {"broker": "b1", "type": "quote", "client": "alice", "id": "s2", "filter": {"exact": {"side": "buy"}}},
        {"broker": "b2", "type": "quote", "client": "bob", "id": "s3", "filter": "price < 5", "sink": "shared"},
        {"broker": "b2", "type": "trade", "client": "bob", "id": "s4", "filter": "TRUE"},
        {"broker": "b4", "type": "quote", "client": "carol", "id": "s5", "filter": "TRUE"},
    ]
    publications = [
        {"broker": "b1", "type": "quote", "source": "p", "id": "1", "data": {"price": 3, "side": "buy"}},
        {"broker": "b3", "type": "quote", "source": "p", "id": "2", "data": {"price": 9}},
    ]
    arguments = (["b1", "b2", "b3", "b4"], [["b1", "b2"], ["b2", "b3"]], {"quote": PLAIN, "trade": PLAIN})
    found = oracle.expected_deliveries(*arguments, subscriptions, publications)
    assert found == {("alice", "hilcast.deliver.alice", "p", "1"), ("bob", "shared", "p", "1")}
    advertised = {"quote": [{"broker": "b1", "publisher": "q", "filter": "TRUE"}]}
    assert oracle.expected_deliveries(*arguments, subscriptions, publications, advertised) == set()
