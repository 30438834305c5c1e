"""Filters: parsed and checked, mapped to boxes, evaluated.

    python -m benchmarks.filters

Parsing runs beside the two plain ways to use the same public library (lark): the LALR parser that first builds a
tree and then walks it with a Transformer, and lark's default, the Earley parser, with the same Transformer. All read
the same grammar and end in the same check of attributes, kinds and limits; the trees must be equal.
Evaluation runs beside sqlite, which reads the very same filters as WHERE clauses over the same events in memory,
once per event (a table of one row) and once for the batch; who matches must be equal. The share of matches is printed.
Times are CPU times, the best of several rounds taken in turns. The picture goes to `benchmarks/out/filters.png`.
"""

from __future__ import annotations

import argparse
import random
import sqlite3
import time
from collections.abc import Callable
from contextlib import suppress
from importlib.resources import files
from typing import Any

import numpy as np
from lark import Lark, Token, Transformer
from matplotlib import pyplot

from benchmarks.report import save
from state.errors import FilterError
from state.filters import grammar
from state.filters.evaluate import compile, matches_batch
from state.filters.geometry import geometry
from state.filters.grammar import admitted, parse
from state.filters.printing import to_text
from state.filters.tree import Filter
from state.space.event_type import Attribute, EventType
from state.space.points import ranks

FILTERS = 1000
EVALUATED = 100
EVENTS = 5000
ROUNDS = 5
TARGET = 2000  # five-predicate filters parsed and checked, each second
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


def quote(draw: random.Random) -> dict[str, Any]:
    return {
        "symbol": draw.choice(SYMBOLS),
        "price": draw.uniform(0, 100),
        "volume": draw.randrange(1_000_000),
        "side": draw.choice(["buy", "sell"]),
        "at": time_text(draw),
    }


def keyword(token: Token) -> Token:
    terminal = grammar.KEYWORDS.get(token.upper())
    return token if terminal is None else Token.new_borrow_pos(terminal, token.value, token)


def alternative(parser: str) -> Callable[[str], Filter]:
    """The same grammar, used the plain way: a tree of lark's first, then a Transformer over it."""
    plain = Lark(
        files("state.filters").joinpath("filter.lark").read_text("utf-8"),
        parser=parser,
        lexer="basic",
        lexer_callbacks={"NAME": keyword},
        maybe_placeholders=False,
    )
    rules = {name: rule for name, rule in vars(grammar._Reductions).items() if not name.startswith("__")}
    transformer = type("Reduced", (Transformer,), rules)()

    def read(text: str) -> Filter:
        return admitted(transformer.transform(plain.parse(text)), QUOTE)

    return read


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
    lalr, earley = alternative("lalr"), alternative("earley")
    few = texts[: len(texts) // 20]  # the Earley parser is too slow for all of them
    times, trees = cpu_times(
        {
            "hilcast": lambda: [parse(text, QUOTE) for text in texts],
            "lark LALR, tree, Transformer": lambda: [lalr(text) for text in texts],
            "lark Earley, tree, Transformer": lambda: [earley(text) for text in few],
        }
    )
    for found in trees.values():
        assert found == trees["hilcast"][: len(found)]
    return {name: len(trees[name]) / seconds for name, seconds in times.items()}


def after_parsing(trees: list[Filter]) -> None:
    """What else is done with a filter once: printed, mapped, compiled."""
    geometry(trees[0], QUOTE)  # compiles the kernels
    times, results = cpu_times(
        {
            "printed": lambda: [to_text(tree) for tree in trees],
            "mapped to boxes": lambda: [geometry(tree, QUOTE) for tree in trees],
            "compiled": lambda: [compile(tree, QUOTE) for tree in trees],
        }
    )
    for name, seconds in times.items():
        print(f"  {name:18}{seconds / len(trees) * 1e6:8.1f} us a filter")
    found = results["mapped to boxes"]
    print(
        f"  boxes: {np.mean([len(g.boxes) for g in found]):.1f} a filter, at most {max(len(g.boxes) for g in found)};"
        f" exact without a second look: {np.mean([g.exact for g in found]):.0%}"
    )


def evaluation(texts: list[str], events: list[dict[str, Any]]) -> None:
    """One event at a time, and a batch of rank columns, beside sqlite on the same filters and events."""
    trees = [parse(text, QUOTE) for text in texts]
    points = np.array([ranks(QUOTE, event) for event in events])
    symbols = [event["symbol"] for event in events]
    table = sqlite3.connect(":memory:")
    table.execute("CREATE TABLE event (symbol TEXT, price REAL, volume INTEGER, side TEXT, at TEXT)")
    table.executemany("INSERT INTO event VALUES (:symbol, :price, :volume, :side, :at)", events)
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
            found.append([cursor.execute(select, event).fetchone() is not None for event in some])
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
    print(f"  target {TARGET} filters/s: {'reached' if rates['hilcast'] >= TARGET else 'MISSED'}")
    print("then")
    after_parsing([parse(text, QUOTE) for text in texts])
    print("evaluated")
    evaluation(texts[:EVALUATED], [quote(draw) for _ in range(EVENTS)])
    print(f"hostile: worst admission {admission(hostile(draw)) * 1e3:.1f} ms")
    picture(rates)


if __name__ == "__main__":
    main()
