"""Filters: parsed and checked, mapped to boxes, cubes and ranges, evaluated.

    python -m benchmarks.filters

Parsing runs beside lark, which reads the same language from its grammar (`tests/filters/filter.lark`) in three ways: an
LALR parser with a lexer of one regular expression that reduces at once, the LALR parser that first builds a tree and
then walks it with a Transformer, and lark's default, the Earley parser, with the same Transformer. All end in the same
check of attributes and kinds; the trees must be equal. Ours is run twice: by its parser alone, and as it is asked,
where texts that differ in their literals only are read by the form they have in common (`state/filters/forms.py`).
Then what registering a filter costs, step by step: "placed" is what a home key does of it
(`state/control/placement.py`), without and with ranges that its client has made, which are checked; "registered" all
that the core does for one record (`state/control/handle.py`).
Evaluation runs beside sqlite, which reads the very same filters as WHERE clauses over the same events in memory,
once per event (a table of one row) and once for the batch; who matches must be equal. One in eight attributes is absent
(NULL in sqlite). The share of matches is printed.
Times are CPU times, the best of several rounds taken in turns. The picture goes to `benchmarks/out/filters.png`.
"""

from __future__ import annotations

import argparse
import json
import random
import sqlite3
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
from matplotlib import pyplot

from benchmarks.report import save
from state.config import parse as parse_config
from state.control.context import Context
from state.control.facts import Kind, Name
from state.control.handle import handle
from state.control.placement import Placing
from state.control.travelling import Filters
from state.errors import FilterError
from state.filters.checking import checked
from state.filters.evaluate import compile, matches_batch
from state.filters.geometry import geometry
from state.filters.grammar import admitted, parse, written
from state.filters.printing import to_text
from state.filters.tree import Filter, Operator, conjunction, disjunction, negated
from state.keys import Key
from state.messages import Record
from state.space.event_type import Attribute, EventType
from state.space.mapping import map_subscription
from state.space.points import ranks
from tests.filters import lark_grammar

FILTERS = 1000
EVALUATED = 100
EVENTS = 5000
ROUNDS = 5
ABSENT_SHARE = 0.125
TARGET = 20_000  # filters parsed, checked and mapped, each second
RANGES = 64
SYMBOLS = ["IBM", "SAP", "ORCL", "MSFT", "AAPL", "GOOG", "AMZN", "SIE.DE", "Berkshire Hathaway", "Berkshire Partners"]
QUOTE = EventType(
    "stock.quote",
    (
        Attribute("symbol", "text"),
        Attribute("price", "float"),
        Attribute("volume", "int"),
        Attribute("side", "category", values=("buy", "sell")),
        Attribute("at", "timestamp"),
    ),
)


CONFIG = replace(
    parse_config(
        '[overlay]\nbrokers = ["b1"]\n[settings]\nhome_shards = 1\n[types.t.attributes]\nx = { kind = "int" }'
    ),
    types={QUOTE.name: QUOTE},
)


def time_text(draw: random.Random) -> str:
    return f"2026-{draw.randint(1, 12):02}-{draw.randint(1, 28):02}T{draw.randint(0, 23):02}:00:00Z"


def five_predicates(draw: random.Random) -> str:
    """Five predicates, one for each attribute, in the shapes that people write."""
    names = draw.sample(SYMBOLS, 3)
    low, volume = draw.uniform(0, 60), draw.randrange(500_000)
    symbol = draw.choice(
        [
            f"symbol IN ('{names[0]}', '{names[1]}', '{names[2]}')",
            f"symbol != '{names[0]}'",
            f"symbol LIKE '{names[0][0]}%'",
        ]
    )
    price = draw.choice([f"price < {low + 40:.2f}", f"price BETWEEN {low:.2f} AND {low + 40:.2f}"])
    size = draw.choice([f"volume >= {volume}", f"NOT volume < {volume}"])
    when = draw.choice([f"at > '{time_text(draw)}'", f"at <= '{time_text(draw)}'"])
    side = draw.choice(["side = 'buy'", "side <> 'buy'"])
    return draw.choice(
        [
            f"{symbol} AND {price} AND {size} AND {side} AND {when}",
            f"{price} AND ({symbol} OR {size}) AND ({side} OR {when})",
            f"{symbol} AND ({price} OR {size} AND {side}) AND {when}",
        ]
    )


def three_ranges(draw: random.Random) -> str:
    """A box of three attributes: what most subscriptions of the papers' workloads are."""
    price, volume = draw.uniform(0, 99), draw.randrange(999_000)
    low, high = sorted((time_text(draw), time_text(draw)))
    return (
        f"price BETWEEN {price:.2f} AND {price + 1:.2f} AND volume BETWEEN {volume} AND {volume + 1000}"
        f" AND at BETWEEN '{low}' AND '{high}'"
    )


def quote(draw: random.Random) -> dict[str, Any]:
    """An event; one in eight attributes is absent."""
    every = {
        "symbol": draw.choice(SYMBOLS),
        "price": draw.uniform(0, 100),
        "volume": draw.randrange(1_000_000),
        "side": draw.choice(["buy", "sell"]),
        "at": time_text(draw),
    }
    return {name: value for name, value in every.items() if draw.random() >= ABSENT_SHARE}


OPERATORS = {tuple(o.value.split()): o for o in Operator} | {("<>",): Operator.NE, (): Operator.IS_NOT_NULL}


def checked_tree(node: lark_grammar.Node | lark_grammar.Leaf) -> Filter:
    """What lark has read, checked as ours is."""
    if isinstance(node, lark_grammar.Leaf):
        return checked(node.name, OPERATORS[node.words], [value for value, _ in node.literals], QUOTE)
    children = [checked_tree(child) for child in node.children]
    match node.kind:
        case "and":
            return conjunction(children)
        case "or":
            return disjunction(children)
        case "not":
            return negated(children[0])
        case _:
            return children[0]


def cpu_times(jobs: dict[str, Callable[[], Any]]) -> tuple[dict[str, float], dict[str, Any]]:
    """Best CPU time of each job, rounds taken in turns, and what each returned."""
    times, results = dict.fromkeys(jobs, float("inf")), {}
    for _ in range(ROUNDS):
        for name, job in jobs.items():
            start = time.process_time()
            results[name] = job()
            times[name] = min(times[name], time.process_time() - start)
    return times, results


def parsing(texts: list[str]) -> dict[str, float]:
    """Filters a second, parsed and checked."""
    lalr, earley = lark_grammar.plain("lalr"), lark_grammar.plain("earley")
    few = texts[: len(texts) // 20]  # the Earley parser is too slow for all of them
    lark_grammar.read(texts[0])  # makes its tables
    times, trees = cpu_times(
        {
            "hilcast": lambda: [parse(text, QUOTE) for text in texts],
            "hilcast, every form new": lambda: [admitted(written(text), QUOTE) for text in texts],
            "lark LALR, reduced at once": lambda: [checked_tree(lark_grammar.read(text)) for text in texts],
            "lark LALR, tree, Transformer": lambda: [checked_tree(lalr(text)) for text in texts],
            "lark Earley, tree, Transformer": lambda: [checked_tree(earley(text)) for text in few],
        }
    )
    for found in trees.values():
        assert found == trees["hilcast"][: len(found)]
    return {name: len(trees[name]) / seconds for name, seconds in times.items()}


def registration(i: int, text: str) -> Record:
    """What a client sends to register a filter."""
    key, value = f"b1/{QUOTE.name}/s{i}", {"client": f"c{i % 50}", "filter": text}
    return Record(CONFIG.topics.subscriptions, 0, i, 0, key.encode(), json.dumps(value).encode(), ())


def steps(texts: list[str], label: str) -> None:
    """What registering a filter costs: parsed, checked, mapped; and what else is done with one; beside the target."""
    context = Context(CONFIG, 0, 0)
    grid, home = context.grids[QUOTE.name], Key("b1", QUOTE.name, "home:0")
    filters, placing, name = Filters(QUOTE), Placing(home, CONFIG, grid), Name(Kind.SUBSCRIPTION, "s1")
    records = [registration(i, text) for i, text in enumerate(texts)]
    nodes = [written(text) for text in texts]
    trees = [admitted(node, QUOTE) for node in nodes]
    found = [geometry(tree, QUOTE) for tree in trees]  # compiles the kernels
    assert not handle(str(home), None, records, context).figures, "none is refused"
    mapped = [map_subscription(grid, g.boxes) for g in found]
    grid.ranges(found[0].boxes, RANGES), grid.cubes_of(found[0].boxes), grid.cut(found[0].boxes)
    times, _ = cpu_times(
        {
            "parsed": lambda: [written(text) for text in texts],
            "checked": lambda: [admitted(node, QUOTE) for node in nodes],
            "mapped to boxes": lambda: [geometry(tree, QUOTE) for tree in trees],
            "parsed, checked, mapped": lambda: [geometry(parse(text, QUOTE), QUOTE) for text in texts],
            "parsed, placed": lambda: [placing(name, filters.sent(text)) for text in texts],
            "the same, client's ranges": lambda: [
                placing(name, filters.sent(text), ranges=ranges) for text, ranges in zip(texts, mapped, strict=True)
            ],
            "registered": lambda: handle(str(home), None, records, context),
            "cubes found": lambda: [grid.cubes_of(g.boxes) for g in found],
            "boxes cut by cubes": lambda: [grid.cut(g.boxes) for g in found],
            f"at most {RANGES} ranges": lambda: [grid.ranges(g.boxes, RANGES) for g in found],
            "printed": lambda: [to_text(tree) for tree in trees],
            "compiled": lambda: [compile(tree, QUOTE) for tree in trees],
        }
    )
    print(f"{label}, {np.mean([*map(len, texts)]):.0f} characters")
    for name, seconds in times.items():
        print(f"  {name:26}{seconds / len(texts) * 1e6:8.1f} us a filter {len(texts) / seconds:10.0f} filters/s")
    for what in ("parsed, checked, mapped", "parsed, placed"):
        reached = len(texts) / times[what] >= TARGET
        print(f"  target {TARGET} filters/s {what}: {'reached' if reached else 'MISSED'}")
    print(
        f"  boxes: {np.mean([len(g.boxes) for g in found]):.1f} a filter, at most {max(len(g.boxes) for g in found)};"
        f" exact without a second look: {np.mean([g.exact for g in found]):.0%}"
    )


def evaluation(texts: list[str], events: list[dict[str, Any]]) -> None:
    """One event at a time, and a batch of rank columns, beside sqlite on the same filters and events."""
    trees = [parse(text, QUOTE) for text in texts]
    points = np.array([ranks(QUOTE, event) for event in events])
    symbols = [event.get("symbol", "") for event in events]
    table = sqlite3.connect(":memory:")
    table.execute("CREATE TABLE event (symbol TEXT, price REAL, volume INTEGER, side TEXT, at TEXT)")
    nulls = [{a.name: event.get(a.name) for a in QUOTE.attributes} for event in events]
    table.executemany("INSERT INTO event VALUES (:symbol, :price, :volume, :side, :at)", nulls)
    one = sqlite3.connect(":memory:")  # keeps its prepared statements
    names = ", ".join(f":{a.name} AS {a.name}" for a in QUOTE.attributes)
    # sqlite's LIKE ignores the case of ASCII letters unless told otherwise.
    for connection in (table, one):
        connection.execute("PRAGMA case_sensitive_like = ON")
    some = events[: EVENTS // 20]

    def one_by_one() -> list[list[bool]]:
        return [[holds(event) for event in some] for holds in (compile(tree, QUOTE) for tree in trees)]

    def sqlite_one_by_one() -> list[list[bool]]:
        found = []
        for text in texts:
            select = f"SELECT 1 FROM (SELECT {names}) WHERE {text}"
            cursor = one.cursor()
            found.append([cursor.execute(select, event).fetchone() is not None for event in nulls[: len(some)]])
        return found

    def batch() -> list[list[bool]]:
        return [
            matches_batch(tree, points, QUOTE, lambda _, rows: [symbols[row] for row in rows]).tolist()
            for tree in trees
        ]

    def sqlite_batch() -> list[list[bool]]:
        return [[hit == 1 for (hit,) in table.execute(f"SELECT ({text}) FROM event")] for text in texts]

    times, answers = cpu_times(
        {"one": one_by_one, "sqlite one": sqlite_one_by_one, "batch": batch, "sqlite batch": sqlite_batch}
    )
    assert answers["batch"] == answers["sqlite batch"]
    assert answers["one"] == answers["sqlite one"] == [row[: len(some)] for row in answers["batch"]]
    for name, count in (("one", len(some)), ("batch", len(events))):
        ours, theirs = times[name] / count / len(texts), times[f"sqlite {name}"] / count / len(texts)
        print(f"  {name:8}{ours * 1e9:10.0f} ns an event   sqlite {theirs * 1e9:8.0f} ns   {theirs / ours:6.1f} times")
    print(f"  match rate {np.mean(answers['batch']):.1%}, {len(texts)} filters, {len(events)} events")


def hostile(draw: random.Random) -> list[str]:
    """Filters at the limits, and texts that are no filters."""
    ranges = [f"({draw.choice(['price', 'volume'])} BETWEEN {i} AND {i * 7 % 31})" for i in range(64)]
    return [
        " OR ".join(ranges),
        " AND ".join(f"(price = {i} OR volume = {i})" for i in range(32)),
        " AND ".join(f"(price < {i} OR volume < {9 - i} OR side = 'buy')" for i in range(4)),
        "price IN (" + ",".join(str(i) for i in range(0, 2000, 2))[:4000].rstrip(",") + ")",
        " OR ".join(f"(price NOT IN ({i},3,5,7) AND volume NOT IN ({i},2,4,6) AND at IS NOT NULL)" for i in range(9)),
        f"symbol LIKE '{'%_a' * 1300}'",
        "(" * 4096,
        "NOT " * 1024,
        "'" * 4095,
        "price < 1 AND " * 290,
    ]


def admission(texts: list[str]) -> float:
    """The worst CPU time to admit or refuse a hostile filter: parsed, checked, mapped."""
    worst = 0.0
    for text in texts:
        start = time.process_time()
        with suppress(FilterError):
            geometry(parse(text, QUOTE), QUOTE)
        worst = max(worst, time.process_time() - start)
    return worst


def picture(rates: dict[str, float]) -> None:
    figure, axes = pyplot.subplots(figsize=(7, 2.2), layout="constrained")
    axes.barh(list(rates)[::-1], list(rates.values())[::-1])
    axes.axvline(TARGET, color="black", linewidth=0.8)
    axes.set_xscale("log")
    axes.set_xlabel("five-predicate filters parsed and checked per second")
    save(figure, "filters")


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    draw = random.Random(1)
    texts = [five_predicates(draw) for _ in range(FILTERS)]
    print(f"parsed and checked, {FILTERS} filters of five predicates, {np.mean([*map(len, texts)]):.0f} characters")
    rates = parsing(texts)
    for name, rate in rates.items():
        print(f"  {name:32}{rate:10.0f} filters/s   hilcast is {rates['hilcast'] / rate:5.1f} times this")
    steps(texts, "five predicates")
    steps([three_ranges(draw) for _ in range(FILTERS)], "three ranges")
    print("evaluated")
    evaluation(texts[:EVALUATED], [quote(draw) for _ in range(EVENTS)])
    print(f"hostile: worst admission {admission(hostile(draw)) * 1e3:.1f} ms")
    picture(rates)


if __name__ == "__main__":
    main()
