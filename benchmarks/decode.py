"""Events to rank columns: `state.space.decode` against reading every event into objects first.

    python -m benchmarks.decode [EVENTS]

100,000 events of 5 attributes (text, float, int, category, timestamp). The alternatives read each value with a
public JSON library and take the ranks in one Python loop that is written for these five attributes alone, as one
would by hand: no dispatch by kind, `datetime` for time, `struct` for doubles, and none of the rarer rules.
`objects only` is what a library needs before that loop. `headers` are the ranks that clients mapped themselves
([MICS09] §6.1), read and checked instead of the events. `nested` are the same attributes two and three objects deep,
among members that nobody asked for; `flat, as long` has those members too, as text beside the attributes, so that the
two have equal bytes: asked for are 1.5 times its time a byte. `Avro` and `Protobuf` are the nested documents in these
formats, beside what fastavro and protobuf need to make all of it objects, before any attribute is looked at. All ranks
are asserted equal. Times are CPU times, the best of a few rounds taken in turns, so that a busy machine slows all sides
alike. The picture goes to `benchmarks/out/decode.png`.
"""

from __future__ import annotations

import argparse
import io
import json
import random
import struct
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import fastavro
import msgspec
import numpy as np
import orjson
import pyarrow as pa
from google.protobuf import descriptor_pb2, message_factory
from matplotlib import pyplot

from benchmarks.peers.event_headers import map_events, read_event_mappings
from benchmarks.report import save
from state.space.boxes import Ranks
from state.space.decode import decode, decode_arrow, warm
from state.space.encodings.schemas import Schema
from state.space.event_type import Attribute, EventType
from state.space.grid import Grid
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
AVRO = {
    "type": "record", "name": "Event", "fields": [{"name": "version", "type": "int"}, {"name": "trade", "type": {
        "type": "record", "name": "Trade", "fields": [
            {"name": "instrument", "type": {"type": "record", "name": "Instrument", "fields": [
                {"name": "isin", "type": "string"}, {"name": "symbol", "type": "string"},
                {"name": "venues", "type": {"type": "array", "items": {"type": "record", "name": "Venue", "fields": [
                    {"name": "mic", "type": "string"}]}}}]}},
            {"name": "terms", "type": {"type": "record", "name": "Terms", "fields": [
                {"name": "price", "type": "double"}, {"name": "volume", "type": "long"},
                {"name": "side", "type": {"type": "enum", "name": "Side", "symbols": list(SIDES)}},
                {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}}]}}]}}],
}  # fmt: skip
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


def avro_of(documents: list[dict[str, Any]]) -> list[bytes]:
    """The same documents as fastavro writes them."""
    schema, made = fastavro.parse_schema(AVRO), []
    for document in documents:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, schema, document)
        made.append(out.getvalue())
    return made


def protobuf_schema() -> Schema:
    """Their messages."""
    file = descriptor_pb2.FileDescriptorProto(name="trade.proto", package="t", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    side = file.enum_type.add(name="Side")
    for number, name in enumerate(SIDES):
        side.value.add(name=name, number=number)
    messages = {
        "Venue": [("mic", 9, "")],
        "Instrument": [("isin", 9, ""), ("symbol", 9, ""), ("venues", 11, ".t.Venue")],
        "Terms": [
            ("price", 1, ""),
            ("volume", 3, ""),
            ("side", 14, ".t.Side"),
            ("at", 11, ".google.protobuf.Timestamp"),
        ],
        "Trade": [("instrument", 11, ".t.Instrument"), ("terms", 11, ".t.Terms")],
        "Event": [("version", 5, ""), ("trade", 11, ".t.Trade")],
    }
    for message, fields in messages.items():
        made = file.message_type.add(name=message)
        for number, (name, type, of) in enumerate(fields, 1):
            made.field.add(
                name=name, number=number, label=3 if name == "venues" else 1, type=type, type_name=of or None
            )
    return Schema("protobuf", files=(file.SerializeToString(),), message="t.Event")


def protobuf_of(made: Any, documents: list[dict[str, Any]]) -> list[bytes]:
    """The same documents as protobuf writes them; `made` is the class of the message."""
    values = []
    for document in documents:
        instrument, terms = document["trade"]["instrument"], document["trade"]["terms"]
        event = made(version=document["version"])
        event.trade.instrument.isin, event.trade.instrument.symbol = instrument["isin"], instrument["symbol"]
        for venue in instrument["venues"]:
            event.trade.instrument.venues.add(mic=venue["mic"])
        event.trade.terms.price, event.trade.terms.volume = terms["price"], terms["volume"]
        event.trade.terms.side = SIDES.index(terms["side"])
        event.trade.terms.at.FromDatetime(terms["at"])
        values.append(event.SerializeToString())
    return values


def format_ways(nested: list[bytes]) -> tuple[dict[str, Callable[[], Ranks | None]], dict[str, int]]:
    """Avro and Protobuf of the nested documents, and how many bytes each of them has."""
    documents = [json.loads(value) for value in nested]
    for document in documents:
        terms = document["trade"]["terms"]
        terms["at"] = datetime.fromisoformat(terms["at"])
    parsed, schema = fastavro.parse_schema(AVRO), protobuf_schema()
    made = message_factory.GetMessageClass(schema.protobuf())
    avro, protobuf = avro_of(documents), protobuf_of(made, documents)
    by_avro = replace(NESTED, format="avro", schema=Schema("avro", json.dumps(AVRO)))
    by_protobuf = replace(NESTED, format="protobuf", schema=schema)
    ways: dict[str, Callable[[], Ranks | None]] = {
        "hilcast Avro": lambda: decode(by_avro, avro).ranks,
        "fastavro, objects only": lambda: _only(avro, lambda v: fastavro.schemaless_reader(io.BytesIO(v), parsed)),
        "hilcast Protobuf": lambda: decode(by_protobuf, protobuf).ranks,
        "protobuf, objects only": lambda: _only(protobuf, made.FromString),
    }
    sizes = dict.fromkeys(list(ways)[:2], sum(map(len, avro))) | dict.fromkeys(list(ways)[2:], sum(map(len, protobuf)))
    return ways, sizes


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
    others, sizes = format_ways(nested)
    ways |= others
    best = timed(ways, decode(QUOTE, values).ranks)
    sizes |= {name: sum(map(len, nested if "nested" in name else values)) for name in ways if name not in sizes}
    report(best, sizes, count)
    draw(best, count)


def timed(ways: dict[str, Callable[[], Ranks | None]], expected: Ranks) -> dict[str, float]:
    """The best CPU time of each way, in rounds; what gives ranks gives these."""
    warm(("avro", "protobuf"))
    best = dict.fromkeys(ways, float("inf"))
    for _ in range(ROUNDS):
        for name, way in ways.items():
            started = time.process_time()
            ranks = way()
            best[name] = min(best[name], time.process_time() - started)
            if ranks is not None:
                assert np.array_equal(ranks, expected), name
    return best


def report(best: dict[str, float], sizes: dict[str, int], count: int) -> None:
    """A line for each way, and what was asked for."""
    ours, flat, nested = (
        best[f"hilcast {way}"] for way in ("decode, list of bytes", "flat, as long as nested", "nested")
    )
    size = sizes["hilcast decode, list of bytes"] / count
    print(f"{count:,} events of 5 attributes, {size:.0f} bytes each; equal ranks asserted")
    print(f"{'way':36}{'bytes':>7}{'ns/event':>10}{'MB/s':>8}{'ratio':>8}")
    for name, seconds in best.items():
        line = f"{name:36}{sizes[name] / count:>7.0f}{seconds / count * 1e9:>10.0f}"
        print(f"{line}{sizes[name] / seconds / 1e6:>8.0f}{seconds / ours:>8.1f}")
    print(f"{best['json.loads + Python loop'] / ours:.1f} times json.loads and a loop (asked for: {TARGET})")
    size = sizes["hilcast nested"] / count
    print(f"nested, {size:.0f} bytes each: {nested / flat:.2f} times the flat time a byte (at most {NESTED_MAX})")
    for format, library in (("Avro", "fastavro"), ("Protobuf", "protobuf")):
        ratio = best[f"{library}, objects only"] / best[f"hilcast {format}"]
        print(f"{format}: {ratio:.1f} times as fast as {library} makes objects")


def _only(values: list[bytes], loads: Callable[[bytes], object]) -> None:
    for value in values:
        loads(value)


if __name__ == "__main__":
    main()
