"""Beside the engines that people would pick: JSON bytes in, ids of rules out, on one thread.

    python -m benchmarks.engines                                 2,000 to 100,000 rules
    python -m benchmarks.engines --most 1000000 ranges           one workload, up to a million rules
    python -m benchmarks.engines --without event-ruler           without Java, and without fetching its jars

Workloads: *ranges*, three attributes, each between two values; *short text*, a code of at most 7 bytes and a range;
*long text*, a URL and a range; *prefixes*, what a URL begins with and a range; *equalities*, two codes and a number.
Every event meets about three rules.

    ours          decoded, matched and, where boxes are not exact, judged as in a route task; batches of 10,000, 100, 1
    event-ruler   its own jar, in a JVM of its own on one thread (`benchmarks/peers/EventRuler.java`)
    DuckDB        events as a column of JSON, rules as a table, one join for a batch; one thread
    SQLite        a prepared statement an event; ranges by its R*Tree, text and equalities by an index over columns
                  (prefixes here and in DuckDB: by equality with what the event begins with, at each length there is)
    rtree         libspatialindex, an event at a time; only where rules are boxes
    loop          every rule compiled by us to a Python function, one after the other

Each runs in a process of its own, is given as many events as it answers in some seconds, and must answer as the loop
does, or as ours where the loop would take too long. Build: from the rules as text or columns to an engine. All events
are asked once before they are timed, for seconds at most: ours reads a filter that needs a second look when it is first
asked for, which the figures leave out.
Memory: what the process grew by meanwhile. Ratio: ours in batches of 10,000 to theirs. Times are of the processor (of
event-ruler: of its one thread, without the JVM's own), so that other work on the machine counts for little.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import duckdb
import numpy as np
import orjson
import pyarrow as pa
from matplotlib import pyplot
from rtree import index as rtree_index

from benchmarks.report import save, show, title
from infra import versions
from infra.local import jars, java
from state.compiled_part import CompiledPart, LocalEntry
from state.errors import HilcastError
from state.filters.evaluate import compile
from state.filters.geometry import geometry
from state.filters.grammar import parse
from state.routing.junction import Junction
from state.space.decode import decode
from state.space.event_type import Attribute, EventType
from state.space.grid import Grid
from state.space.packing import pack

SIZES = (2_000, 10_000, 100_000, 1_000_000)
EVENTS = 20_000
CHECKED = 200
"""Events whose answers are compared, or as many as an engine answers in `SECONDS`."""
SECONDS = 1.0
WARM = 3.0
"""Seconds at most in which an engine is asked before the clock runs."""
DOMAIN = 1_000_000
MEETING = 3
"""Rules that an event meets, about."""
MOST: dict[tuple[str, str], int] = {
    ("event-ruler", "ranges"): 2_000,
    ("event-ruler", ""): 100_000,
    ("loop", ""): 10_000,
}
"""Rules beyond which an engine is not asked: it would not end."""


class Begins(str):
    """What a text begins with."""


Rule = dict[str, Any]
"""By attribute: a value that it equals, the two that it lies between, or what it begins with."""
Answer = list[int]


class Work(NamedTuple):
    """Rules and events of one workload."""

    name: str
    type: EventType
    rules: list[Rule]
    events: list[bytes]


# --- workloads ----------------------------------------------------------------------------------------------------


def _range(draw: random.Random, share: float) -> tuple[int, int]:
    width = int(DOMAIN * share)
    low = draw.randrange(DOMAIN - width)
    return low, low + width


def ranges(n: int, draw: random.Random) -> Work:
    """Three attributes between two values each."""
    share = (MEETING / n) ** (1 / 3)
    rules: list[Rule] = [{name: _range(draw, share) for name in "xyz"} for _ in range(n)]
    events = [{name: draw.randrange(DOMAIN) for name in "xyz"} for _ in range(EVENTS)]
    return _work("ranges", dict.fromkeys("xyz", "int"), rules, events)


def _texts(name: str, n: int, draw: random.Random, text: Callable[[int], str]) -> Work:
    values = max(1, n // (2 * MEETING))
    rules: list[Rule] = [{"text": text(draw.randrange(values)), "x": _range(draw, 0.5)} for _ in range(n)]
    events = [{"text": text(draw.randrange(values)), "x": draw.randrange(DOMAIN)} for _ in range(EVENTS)]
    return _work(name, {"text": "text", "x": "int"}, rules, events)


def short_text(n: int, draw: random.Random) -> Work:
    """A code of at most 7 bytes and a range."""
    return _texts("short text", n, draw, lambda i: f"C{i}")


def long_text(n: int, draw: random.Random) -> Work:
    """A URL and a range."""
    return _texts("long text", n, draw, lambda i: f"https://shop.example/catalogue/items/{i}")


def prefixes(n: int, draw: random.Random) -> Work:
    """The beginning of a URL, of several lengths, and a range."""
    work = _texts("prefixes", n, draw, lambda i: f"https://shop.example/{'catalogue/' * (i % 4)}items/{i}/")
    for rule in work.rules:
        rule["text"] = Begins(rule["text"])
    events = [orjson.loads(event) for event in work.events]
    return work._replace(events=[orjson.dumps({**e, "text": f"{e['text']}p{draw.randrange(99)}"}) for e in events])


def equalities(n: int, draw: random.Random) -> Work:
    """Two codes and a number."""
    side = max(1, round((n / MEETING) ** (1 / 3)))
    every = [
        {"a": f"a{draw.randrange(side)}", "b": f"b{draw.randrange(side)}", "x": draw.randrange(side)}
        for _ in range(n + EVENTS)
    ]
    return _work("equalities", {"a": "text", "b": "text", "x": "int"}, every[:n], every[n:])


def _work(name: str, kinds: dict[str, str], rules: list[Rule], events: Sequence[dict[str, Any]]) -> Work:
    attributes = tuple(Attribute(attribute, kind) for attribute, kind in kinds.items())  # type: ignore[arg-type]
    return Work(name, EventType("event", attributes, cubes=1), rules, [orjson.dumps(event) for event in events])


WORKLOADS = {
    "ranges": ranges, "short-text": short_text, "long-text": long_text, "prefixes": prefixes,
    "equalities": equalities
}  # fmt: skip


def filter_text(rule: Rule) -> str:
    """A rule as a filter of ours."""
    parts = []
    for name, value in rule.items():
        if isinstance(value, tuple):
            parts.append(f"{name} BETWEEN {value[0]} AND {value[1]}")
        elif isinstance(value, Begins):
            parts.append(f"{name} LIKE '{value}%'")
        else:
            parts.append(f"{name} = {repr(value) if isinstance(value, str) else value}")
    return " AND ".join(parts)


# --- engines ------------------------------------------------------------------------------------------------------


class Engine(Protocol):
    """Answers batches of JSON with the sorted numbers of the rules that hold for each event."""

    batches: tuple[int, ...] = (1,)

    def __init__(self, work: Work) -> None:
        """Build; the clock runs."""
        ...

    def answer(self, values: list[bytes]) -> list[Answer]:
        """The rules that hold for each event."""
        ...


class Ours(Engine):
    """As a route task does it: `decode`, `Junction.matching`."""

    batches = (10_000, 100, 1)

    def __init__(self, work: Work) -> None:
        self.type = work.type
        local = []
        for number, rule in enumerate(work.rules):
            text = filter_text(rule)
            found = geometry(parse(text, work.type), work.type)
            residual = None if found.exact else text
            local.append(LocalEntry(str(number), "c", "t", residual, pack(found.boxes), found.exact))
        part = CompiledPart.of(work.type.d, local, {}, [])
        self.junction = Junction.join(work.type, Grid.of(work.type), [part])
        self.rule = np.array([int(id) for id in self.junction.ids_of(np.arange(len(self.junction.roll))).to_pylist()])

    def pairs(self, values: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
        """Events and rules that hold, side by side."""
        batch = decode(self.type, values)
        found = self.junction.matching(batch, np.arange(len(batch)))
        return found.rows, self.rule[found.numbers]

    def answer(self, values: list[bytes]) -> list[Answer]:
        answers: list[Answer] = [[] for _ in values]
        for row, rule in zip(*(column.tolist() for column in self.pairs(values)), strict=True):
            answers[row].append(rule)
        return [sorted(answer) for answer in answers]


class Loop(Engine):
    """Every rule as a Python function."""

    def __init__(self, work: Work) -> None:
        self.rules = [compile(parse(filter_text(rule), work.type), work.type) for rule in work.rules]

    def answer(self, values: list[bytes]) -> list[Answer]:
        events = [orjson.loads(value) for value in values]
        return [[i for i, holds in enumerate(self.rules) if holds(event)] for event in events]


class DuckDB(Engine):
    """One join for a batch."""

    batches = (10_000, 100)

    def __init__(self, work: Work) -> None:
        self.connection = duckdb.connect(config={"threads": 1})
        columns: dict[str, Any] = {"id": np.arange(len(work.rules))}
        conditions, read, also = [], [], ""
        for attribute in work.type.attributes:
            name, values = attribute.name, [rule[attribute.name] for rule in work.rules]
            kind = "VARCHAR" if attribute.kind == "text" else "BIGINT"
            read.append(f"(value->>'$.{name}')::{kind} AS {name}")
            if isinstance(values[0], tuple):
                columns[f"{name}_low"], columns[f"{name}_high"] = (np.array(side) for side in zip(*values, strict=True))
                conditions.append(f"e.{name} >= r.{name}_low AND e.{name} <= r.{name}_high")
            else:
                columns[name] = list(map(str, values)) if kind == "VARCHAR" else values
                conditions.append(f"e.{name} = r.{name}")
            if isinstance(values[0], Begins):
                also = f" CROSS JOIN (SELECT DISTINCT length({name}) AS n FROM rules) AS lengths"
                read[-1] = f"substr(value->>'$.{name}', 1, n::BIGINT) AS {name}"
                conditions.append("e.long >= e.n")
                read.append(f"n, length(value->>'$.{name}') AS long")
        given = pa.table(columns)
        self.connection.register("given", given)
        self.connection.execute("CREATE TABLE rules AS SELECT * FROM given")
        self.connection.unregister("given")
        self.query = (
            f"SELECT e.row, r.id FROM (SELECT row, {', '.join(read)} FROM events{also}) e JOIN rules r"
            f" ON {' AND '.join(conditions)}"
        )

    def answer(self, values: list[bytes]) -> list[Answer]:
        texts = pa.array([value.decode() for value in values])
        self.connection.register("events", pa.table({"row": np.arange(len(values)), "value": texts}))
        found = self.connection.execute(self.query).fetchnumpy()
        answers: list[Answer] = [[] for _ in values]
        for row, id in zip(found["row"].tolist(), found["id"].tolist(), strict=True):
            answers[row].append(id)
        return [sorted(answer) for answer in answers]


class SQLite(Engine):
    """A prepared statement an event."""

    def __init__(self, work: Work) -> None:
        self.connection = sqlite3.connect(":memory:")
        spread = [a.name for a in work.type.attributes if isinstance(work.rules[0][a.name], tuple)]
        equal = [a.name for a in work.type.attributes if a.name not in spread]
        columns = [*equal, *(f"{name}_{side}" for name in spread for side in ("low", "high"))]
        self.connection.execute(f"CREATE TABLE rules (id INTEGER PRIMARY KEY, {', '.join(columns)})")
        rows = (
            [
                number,
                *(str(rule[name]) if isinstance(rule[name], str) else rule[name] for name in equal),
                *(end for name in spread for end in rule[name]),
            ]
            for number, rule in enumerate(work.rules)
        )
        self.connection.executemany(f"INSERT INTO rules VALUES (?{', ?' * len(columns)})", rows)
        begun = [name for name in equal if isinstance(work.rules[0][name], Begins)]
        for name in begun:
            self.connection.execute(f"CREATE TABLE lengths AS SELECT DISTINCT length({name}) AS n FROM rules")
        exact = [
            f"{name} IN (SELECT substr(:{name}, 1, n) FROM lengths WHERE n <= length(:{name}))"
            if name in begun
            else f"{name} = :{name}"
            for name in equal
        ]
        exact += [f"{name}_low <= :{name} AND {name}_high >= :{name}" for name in spread]
        self.query = f"SELECT id FROM rules WHERE {' AND '.join(exact)} ORDER BY id"
        if equal:
            self.connection.execute(f"CREATE INDEX by_value ON rules ({', '.join(columns)})")
        else:
            # its floats have 32 bits and may be a little too wide: the exact columns decide
            ends = ", ".join(f"{name}_low, {name}_high" for name in spread)
            self.connection.execute(f"CREATE VIRTUAL TABLE tree USING rtree(id, {ends})")
            self.connection.execute(f"INSERT INTO tree SELECT id, {ends} FROM rules")
            near = " AND ".join(f"tree.{name}_low <= :{name} AND tree.{name}_high >= :{name}" for name in spread)
            sure = " AND ".join(f"rules.{name}_low <= :{name} AND rules.{name}_high >= :{name}" for name in spread)
            self.query = f"SELECT rules.id FROM tree JOIN rules USING (id) WHERE {near} AND {sure} ORDER BY rules.id"

    def answer(self, values: list[bytes]) -> list[Answer]:
        execute = self.connection.execute
        return [[id for (id,) in execute(self.query, orjson.loads(value))] for value in values]


class RTree(Engine):
    """libspatialindex."""

    def __init__(self, work: Work) -> None:
        self.names = [a.name for a in work.type.attributes]
        ends = np.array([[rule[name] for name in self.names] for rule in work.rules], np.float64)
        properties = rtree_index.Property(dimension=len(self.names))
        whole = np.arange(len(work.rules)), np.ascontiguousarray(ends[:, :, 0]), np.ascontiguousarray(ends[:, :, 1])
        self.index = rtree_index.Index(whole, properties=properties)

    def answer(self, values: list[bytes]) -> list[Answer]:
        events = [orjson.loads(value) for value in values]
        points = [[event[name] for name in self.names] for event in events]
        return [sorted(self.index.intersection((*point, *point))) for point in points]


ENGINES: dict[str, type[Engine]] = {
    "ours": Ours, "DuckDB": DuckDB, "SQLite": SQLite, "rtree": RTree, "loop": Loop
}  # fmt: skip


# --- measuring ----------------------------------------------------------------------------------------------------


class Measured(NamedTuple):
    """What an engine did."""

    build_s: float
    megabytes: float
    rates: dict[int, float]
    """Events a second by size of the batch."""
    answers: list[Answer]


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def measured(engine: type[Engine], work: Work) -> Measured:
    """Build an engine and ask it, in this process."""
    before, begun = _resident(), time.process_time()
    built = engine(work)
    build_s, grown = time.process_time() - begun, _resident() - before
    answers: list[Answer] = []
    begun = time.process_time()
    while len(answers) < CHECKED and (not answers or time.process_time() - begun < SECONDS):
        answers += built.answer(work.events[len(answers) : len(answers) + 1])
    ask = built.pairs if isinstance(built, Ours) else built.answer
    return Measured(build_s, grown / 1e6, {n: _rate(ask, work.events, n) for n in built.batches}, answers)


def _rate(ask: Callable[[list[bytes]], object], events: list[bytes], size: int) -> float:
    """Events a second, in batches of one size, for some seconds; all that `WARM` allows are asked once before."""
    cuts = [events[i : i + size] for i in range(0, len(events), size)]
    begun = time.process_time()
    for cut in cuts:
        ask(cut)
        if time.process_time() - begun > WARM:
            break
    done, at, begun = 0, 0, time.process_time()
    while (spent := time.process_time() - begun) < SECONDS:
        ask(cuts[at % len(cuts)])
        done, at = done + len(cuts[at % len(cuts)]), at + 1
    return done / spent


def apart(engine: type[Engine], work: Work) -> Measured:
    """The same in a process of its own, so that memory is its own."""
    context = multiprocessing.get_context("fork")
    receiving, sending = context.Pipe(duplex=False)
    process = context.Process(target=lambda: sending.send(measured(engine, work)))
    process.start()
    sending.close()
    try:
        return Measured(*receiving.recv())
    finally:
        process.join()


def event_ruler(work: Work) -> Measured:
    """event-ruler in a JVM on one thread."""
    jars.fetch(versions.RULER)
    classpath = os.pathsep.join(map(str, jars.paths(versions.RULER)))
    source = Path(__file__).parent / "peers" / "EventRuler.java"
    with tempfile.TemporaryDirectory() as folder:
        rules, events, answers = (Path(folder) / name for name in ("rules", "events", "answers"))
        rules.write_text("".join(f"{i}\t{json.dumps(_ruler(rule))}\n" for i, rule in enumerate(work.rules)))
        events.write_bytes(b"\n".join(work.events[:2000]))
        one_thread = ["-XX:+UseSerialGC", "-XX:ActiveProcessorCount=1"]
        command = [str(java.find().path), *one_thread, "-cp", classpath, str(source)]
        command += [str(path) for path in (rules, events, answers)]
        told = subprocess.run([*command, str(SECONDS)], check=True, capture_output=True, text=True).stdout.split()
        lines = answers.read_text().split("\n")[:CHECKED]
    found = [sorted(map(int, line.split())) for line in lines]
    return Measured(float(told[0]), int(told[1]) / 1e6, {1: float(told[2])}, found)


def _ruler(rule: Rule) -> dict[str, Any]:
    """A rule in event-ruler's language."""
    return {
        name: [{"numeric": [">=", value[0], "<=", value[1]]}]
        if isinstance(value, tuple)
        else [{"prefix": value} if isinstance(value, Begins) else _literal(value)]
        for name, value in rule.items()
    }


def _literal(value: Any) -> Any:
    return value if isinstance(value, str) else {"numeric": ["=", value]}


def race(work: Work, names: Sequence[str]) -> dict[str, Measured]:
    """Every engine on one workload; equal answers are asserted."""
    results: dict[str, Measured] = {}
    n = len(work.rules)
    for name in names:
        most = MOST.get((name, work.name), MOST.get((name, ""), SIZES[-1]))
        if n > most or (name == "rtree" and work.name != "ranges"):
            continue
        results[name] = event_ruler(work) if name == "event-ruler" else apart(ENGINES[name], work)
        ours, theirs = results["ours"].answers, results[name].answers
        assert ours[: len(theirs)] == theirs[: len(ours)], f"{name} answers otherwise"
    rows = []
    fastest = max(results["ours"].rates.values())
    for name, one in results.items():
        rates = [f"{one.rates[size]:,.0f}" if size in one.rates else "" for size in Ours.batches]
        ratio = "" if name == "ours" else f"{fastest / max(one.rates.values()):,.1f}"
        compared = len(one.answers)
        rows.append([name, *rates, f"{one.build_s:,.2f}", f"{one.megabytes:,.0f}", ratio, compared])
    heads = [f"events/s, batches of {size:,}" for size in Ours.batches]
    met = np.mean([len(answer) for answer in results["ours"].answers])
    show(
        f"{work.name}, {n:,} rules; {met:.1f} of them hold for an event",
        ["", *heads, "build, s", "MB", "ours is faster by", "answers compared"],
        rows,
    )
    return results


def picture(results: dict[tuple[str, int], dict[str, Measured]]) -> None:
    """Events a second by rules, a panel a workload."""
    names = list(dict.fromkeys(name for name, _ in results))
    figure, axes = pyplot.subplots(1, len(names), figsize=(4.5 * len(names), 4), squeeze=False, layout="constrained")
    for axis, name in zip(axes[0], names, strict=True):
        lines: dict[str, tuple[list[int], list[float]]] = {}
        for (work, n), race in results.items():
            for engine, one in race.items() if work == name else ():
                for size, rate in one.rates.items():
                    label = f"{engine}, batches of {size:,}" if len(one.rates) > 1 else engine
                    xs, ys = lines.setdefault(label, ([], []))
                    xs.append(n)
                    ys.append(rate)
        for label, (xs, ys) in lines.items():
            axis.plot(xs, ys, "-o", ms=3, label=label)
        axis.set(title=name, xlabel="rules", ylabel="events/s", xscale="log", yscale="log")
        axis.legend(fontsize=6)
    save(figure, "engines")


def main(given: Sequence[str] | None = None) -> None:
    """Race the engines that were not left out on the workloads that were named."""
    every = ("ours", "event-ruler", *(name for name in ENGINES if name != "ours"))
    parser = argparse.ArgumentParser(prog="python -m benchmarks.engines", description=__doc__.splitlines()[0])
    parser.add_argument("workloads", nargs="*", choices=[[], *WORKLOADS], default=[])
    parser.add_argument("--most", type=int, default=100_000, help="rules at most (default 100,000)")
    parser.add_argument("--least", type=int, default=2_000, help="rules at least (default 2,000)")
    parser.add_argument("--without", nargs="+", default=[], choices=every[1:], help="engines to leave out")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(given)
    names = [name for name in every if name not in options.without]
    if "event-ruler" in names:
        try:
            jars.fetch(versions.RULER)
        except HilcastError as error:
            parser.exit(1, f"event-ruler cannot be had: {error}; leave it out: --without event-ruler\n")
    results = {}
    for name in options.workloads or WORKLOADS:
        for n in sorted({options.least, *(size for size in SIZES if options.least <= size <= options.most)}):
            results[name, n] = race(WORKLOADS[name](n, random.Random(options.seed)), names)
    title("what it shows")
    slower = [f"{engine} on {w}, {n:,} rules" for (w, n), one in results.items() for engine in ahead(one)]
    print("  ahead of ours in batches of 10,000: " + ("; ".join(slower) if slower else "nobody"))
    picture(results)


def ahead(results: dict[str, Measured]) -> list[str]:
    """The engines that answer more events a second than ours at its best."""
    best = max(results["ours"].rates.values())
    return [name for name, one in results.items() if max(one.rates.values()) > best]


if __name__ == "__main__":
    main()
