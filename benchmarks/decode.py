"""JSON events to rank columns: `state.space.decode` against reading every event into objects first.

    python -m benchmarks.decode [EVENTS]

100,000 events of 5 attributes (text, float, int, category, timestamp). The alternatives read each value with a
public JSON library and take the ranks in one Python loop that is written for these five attributes alone, as one
would by hand: no dispatch by kind, `datetime` for time, `struct` for doubles, and none of the rarer rules.
`objects only` is what a library needs before that loop. `headers` are the ranks that clients mapped themselves
([MICS09] §6.1), read and checked instead of the events. `nested` are the same attributes two and three objects deep,
among members that nobody asked for; `flat, as long` has those members too, as text beside the attributes, so that the
two have equal bytes: asked for are 1.5 times its time a byte. All ranks are asserted equal. Times are CPU times, the
best of a few rounds taken in turns, so that a busy machine slows all sides alike. The picture goes to
`benchmarks/out/decode.png`.
"""

from __future__ import annotations

import argparse
import json
import random
import struct
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import msgspec
import numpy as np
import orjson
import pyarrow as pa
from matplotlib import pyplot

from benchmarks.peers.event_headers import read_event_mappings
from benchmarks.report import save
from state.space.boxes import Ranks
from state.space.decode import decode, decode_arrow, warm
from state.space.event_type import Attribute, EventType
from state.space.grid import Grid
from state.space.mapping import map_events
from state.space.ranks import ABSENT

SIDES = ("buy", "sell")
QUOTE = EventType(
    "stock.quote",
    (
        Attribute("symbol", "text"),
        Attribute("price", "float", min=0, max=1000),
        Attribute("volume", "int", min=0, max=1_000_000),
        Attribute("side", "category", values=SIDES),
        Attribute("at", "timestamp"),
    ),
)
NESTED = EventType(
    "stock.trade",
    tuple(
        replace(attribute, path=("trade", "instrument" if attribute.name == "symbol" else "terms", attribute.name))
        for attribute in QUOTE.attributes
    ),
)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
ROUNDS = 5
TARGET = 3  # times json.loads and a loop; 5 is aimed at
NESTED_MAX = 1.5  # times the flat time a byte


def quotes(count: int) -> list[bytes]:
    """Quotes as a Python producer writes them; prices have the 15 to 17 digits of a double."""
    draw = random.Random(1)
    return [
        json.dumps(
            {
                "symbol": "".join(draw.choices("ABCDEFGHIJ", k=draw.randint(1, 5))),
                "price": draw.uniform(0, 1000),
                "volume": draw.randrange(1_000_000),
                "side": draw.choice(SIDES),
                "at": (EPOCH + timedelta(microseconds=draw.randrange(2 * 10**15))).isoformat(),
            }
        ).encode()
        for _ in range(count)
    ]


def trades(values: list[bytes]) -> list[bytes]:
    """The same quotes as nested documents."""
    made = []
    for value in values:
        quote = json.loads(value)
        instrument = {"isin": "DE0007164600", "symbol": quote.pop("symbol"), "venues": [{"mic": "XETR"}]}
        made.append(json.dumps({"version": 3, "trade": {"instrument": instrument, "terms": quote}}).encode())
    return made


def padded(values: list[bytes], lengths: list[int]) -> list[bytes]:
    """The same quotes, flat, each with a text that makes it as long as asked."""
    return [
        value[:-1] + b', "note": "' + b"x" * (length - len(value) - 12) + b'"}'
        for value, length in zip(values, lengths, strict=True)
    ]


def by_hand(values: list[bytes], loads: Callable[[bytes], dict[str, object]]) -> Ranks:
    """The idiomatic way: objects first, then one loop."""
    ranks = np.empty((len(values), 5), np.int64)
    places = {side: place for place, side in enumerate(SIDES)}
    for row, value in enumerate(values):
        event = loads(value)
        ranks[row] = (
            _text(event.get("symbol")),
            _double(event.get("price")),
            _integer(event.get("volume")),
            places.get(event.get("side"), ABSENT),  # type: ignore[call-overload]
            _micros(event.get("at")),
        )
    return ranks


def _text(value: object) -> int:
    if not isinstance(value, str):
        return ABSENT
    data = value.encode()
    return int.from_bytes(data[:7].ljust(7, b"\0") + bytes((min(len(data), 8) + 1,)), "big") - 2**63


def _double(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return ABSENT
    bits: int = struct.unpack("<q", struct.pack("<d", value))[0]
    return bits if bits >= 0 else -(bits & 0x7FFF_FFFF_FFFF_FFFF)


def _integer(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) >= 2**63:
        return ABSENT
    return value


def _micros(value: object) -> int:
    if not isinstance(value, str):
        return ABSENT
    try:
        return (datetime.fromisoformat(value) - EPOCH) // MICROSECOND
    except (TypeError, ValueError):
        return ABSENT


class Quote(msgspec.Struct):
    """What msgspec can be told in advance."""

    symbol: str
    price: float
    volume: int
    side: str
    at: str


def draw(best: dict[str, float], count: int) -> None:
    """One bar for each way."""
    figure, axes = pyplot.subplots(figsize=(8, 3.5))
    axes.barh([*best][::-1], [seconds / count * 1e9 for seconds in best.values()][::-1])
    axes.set_xlabel("ns per event of 5 attributes")
    save(figure, "decode")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("events", nargs="?", type=int, default=100_000)
    count = parser.parse_args().events
    values = quotes(count)
    array = pa.array(values, pa.binary())
    typed = msgspec.json.Decoder(Quote)
    grid = Grid.of(QUOTE)
    nested = trades(values)
    longer = padded(values, [len(value) for value in nested])
    headers = map_events(grid, decode(QUOTE, values).ranks)

    def msgspec_struct() -> Ranks:
        places = {side: place for place, side in enumerate(SIDES)}
        ranks = np.empty((count, 5), np.int64)
        for row, value in enumerate(values):
            quote = typed.decode(value)
            ranks[row] = (
                _text(quote.symbol),
                _double(quote.price),
                quote.volume,
                places.get(quote.side, ABSENT),
                _micros(quote.at),
            )
        return ranks

    ways: dict[str, Callable[[], Ranks | None]] = {
        "json.loads + Python loop": lambda: by_hand(values, json.loads),
        "orjson.loads + Python loop": lambda: by_hand(values, orjson.loads),
        "msgspec.json.decode + Python loop": lambda: by_hand(values, msgspec.json.decode),
        "msgspec Struct + Python loop": msgspec_struct,
        "json.loads, objects only": lambda: _only(values, json.loads),
        "orjson.loads, objects only": lambda: _only(values, orjson.loads),
        "hilcast decode, list of bytes": lambda: decode(QUOTE, values).ranks,
        "hilcast decode_arrow, no copy": lambda: decode_arrow(QUOTE, array).ranks,
        "hilcast flat, as long as nested": lambda: decode(QUOTE, longer).ranks,
        "hilcast nested": lambda: decode(NESTED, nested).ranks,
        "hilcast headers, mapped by clients": lambda: read_event_mappings(headers, grid).ranks,
    }
    warm()
    best = dict.fromkeys(ways, float("inf"))
    for _ in range(ROUNDS):
        for name, way in ways.items():
            started = time.process_time()
            ranks = way()
            best[name] = min(best[name], time.process_time() - started)
            if ranks is not None:
                assert np.array_equal(ranks, decode(QUOTE, values).ranks), name
    ours = best["hilcast decode, list of bytes"]
    print(f"{count:,} events of 5 attributes, {sum(map(len, values)) / count:.0f} bytes each; equal ranks asserted")
    print(f"{'way':36}{'ns/event':>10}{'MB/s':>8}{'ratio':>8}")
    for name, seconds in best.items():
        speed = sum(map(len, nested if "nested" in name else values)) / seconds / 1e6
        print(f"{name:36}{seconds / count * 1e9:>10.0f}{speed:>8.0f}{seconds / ours:>8.1f}")
    ratio = best["json.loads + Python loop"] / ours
    print(f"{ratio:.1f} times json.loads and a loop (asked for: {TARGET})")
    ratio = best["hilcast nested"] / best["hilcast flat, as long as nested"]
    size = sum(map(len, nested)) / count
    print(f"nested, {size:.0f} bytes each: {ratio:.2f} times the flat time a byte (at most {NESTED_MAX})")
    draw(best, count)


def _only(values: list[bytes], loads: Callable[[bytes], object]) -> None:
    for value in values:
        loads(value)


if __name__ == "__main__":
    main()
