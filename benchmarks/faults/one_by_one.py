"""Hostile records one at a time, as a stranger with a grudge would send them; after each a probe must be delivered.

    record ──> probe ──> delivered? ──> record ──> probe ...      and in the end: N sent, N answered, routed or refused

A list of records is a function that sends one and yields its name, again and again. Records of our own topics
(`foreign`) are answered by nobody; that they hold up nothing is all that is asked of them.
"""

from __future__ import annotations

import base64
import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping

from confluent_kafka import KafkaException, Message, Producer
from kafka import KafkaProducer

from benchmarks.faults.inputs import MALLORY, publish, subscribe, type_of
from benchmarks.faults.judge import STRANGE, STRANGER
from benchmarks.faults.kind import Fault, known
from benchmarks.faults.load import Sent
from benchmarks.faults.scene import Broken, Scene

Names = Iterator[str]
DEPTHS = (31, 32, 33, 63, 64, 65, 126, 127, 128, 129, 130, 500, 997, 1000, 10_000, 100_000)
"""Around every limit of ours, of Python's and of the parsers'."""
FAR_MS = 253_402_300_799_000
ANSWERS = 100
"""So many of the newest control events must be answered before the next record is sent."""
LARGE = 1_000_000
LARGE_COUNT = 2_500
"""More than 2 GB, which is what one Arrow column can hold."""
OPEN_MS = 20_000
"""A transaction that nobody ends is aborted by Kafka after so long."""


class OneByOne(Fault):
    """Sends the records of a list, and has a probe delivered after each."""

    expects = "each is answered, routed or refused, and a probe comes through after it"

    def __init__(self, name: str, records: Callable[[Scene], Names]) -> None:
        self.name = name
        self.records = records

    def strike(self, scene: Scene) -> None:
        names: list[str] = []
        for name in self.records(scene):
            names.append(name)
            if len(names) % scene.size.at_once == 0:
                self._through(scene, names[-scene.size.at_once :])
        self._through(scene, names[-scene.size.at_once :])
        scene.outcome.remarks.append(f"{len(names)} records one by one")

    def _through(self, scene: Scene, names: list[str]) -> None:
        """Return once a probe came through after these records, and each control event is answered."""
        since_s, sent = time.time(), scene.load.control[-ANSWERS:]
        scene.load.probe()
        try:
            scene.routing_since(since_s, self)
            scene.until(lambda: self._answered(scene, sent), "the answers")
        except Broken as broken:
            raise Broken(f"{broken}; the last records were: {', '.join(names)}") from broken

    def _answered(self, scene: Scene, sent: list[Sent]) -> bool:
        scene.judge.look()
        return all(each.place in scene.judge.answers or each.place in scene.judge.letters for each in sent)


def subscriptions(scene: Scene, values: Mapping[str, bytes | None], filters: Mapping[str, str] | None = None) -> Names:
    """Each value under a key of its own; `filters`: what of it an event of the load may satisfy."""
    for n, (name, value) in enumerate(values.items()):
        id = f"o{scene.rng.randrange(10**9)}"
        scene.load.odd |= {id: filters[name]} if filters and name in filters else {}
        scene.load.send("subscriptions", f"b{n % 5 + 1}/{type_of(scene)}/{id}", value)
        yield name


def odd_keys(scene: Scene) -> Names:
    """Keys of subscriptions and advertisements that are empty, null, cut, doubled, of other bytes, or nearly right."""
    name = type_of(scene)
    keys: dict[str, bytes | None] = {
        "null": None,
        "empty": b"",
        "slash": b"/",
        "slashes": b"/" * 100_000,
        "no id": f"b1/{name}/".encode(),
        "no type": b"b1//x",
        "four parts": f"b1/{name}/x/y".encode(),
        "NUL in the id": f"b1/{name}/a\0b".encode(),
        "newline behind": f"b1/{name}/x\n".encode(),
        "space": f"b1/{name}/ x".encode(),
        "BOM": b"\xef\xbb\xbf" + f"b1/{name}/x".encode(),
        "UTF-16": f"b1/{name}/x".encode("utf-16"),
        "surrogate": f"b1/{name}/".encode() + b"\xed\xa0\x80",
        "overlong": f"b1/{name}/".encode() + b"\xc0\xaf",
        "fullwidth": f"b1/{name}/\uff53".encode(),
        "digits of another script": f"b1/{name}/\u0663".encode(),
        "64 letters": f"b1/{name}/{'x' * 64}".encode(),
        "65 letters": f"b1/{name}/{'x' * 65}".encode(),
        "a home key": f"b1/{name}/home:0".encode(),
        "a cube key": f"b1/{name}/cube:0".encode(),
        "unroutable": b"!",
        "1 MB": b"k" * 1_000_000,
        "1 MB of no UTF-8": b"\xff" * 1_000_000,
        "registry's": f"subscription/b1/{name}/x".encode(),
    }
    for topic, who in (("subscriptions", "client"), ("advertisements", "publisher")):
        for about, key in keys.items():
            scene.load.send(topic, key, {who: "mallory", "filter": MALLORY})
            yield f"{topic}: {about}"
            if topic == "subscriptions" and len(key or b"") < 1000:
                scene.load.send(topic, key, None)
    yield "withdrawn"


def around(member: str) -> bytes:
    """A subscription with one more member, as it stands."""
    return f'{{"client": "mallory", "filter": "{MALLORY}", {member}}}'.encode()


def odd_values(scene: Scene) -> Names:
    """Values of subscriptions: depth, numbers, duplicates, encodings, kinds, versions, leases, sinks."""
    values: dict[str, bytes | None] = {}
    for depth in DEPTHS:
        values[f"note {depth} deep"] = around(f'"note": {"[" * depth + "]" * depth}')
        values[f"filter {depth} deep"] = (
            '{"client": "mallory", "filter": ' + '{"not":' * depth + "1" + "}" * depth + "}"
        ).encode()
    plain = around('"x": 1')
    values |= {
        "BOM": b"\xef\xbb\xbf" + plain,
        "UTF-16": plain.decode().encode("utf-16"),
        "UTF-32": plain.decode().encode("utf-32"),
        "array": b"[" + plain + b"]",
        "twice": plain + plain,
        "text": b'"' + b"x" * 1000 + b'"',
        "number": b"1e400",
        "true": b"true",
        "NUL": b"\0",
        "cut": plain[:-1],
        "trailing": plain + b"\0",
        "NaN": around('"note": NaN'),
        "Infinity": around('"version": Infinity'),
        "digits": around(f'"note": {"9" * 300_000}'),
        "exponent": around('"note": 1e999999999999'),
        "lone surrogate": around('"note": "\\ud800"'),
        "lone surrogate as client": f'{{"client": "\\udfff", "filter": "{MALLORY}"}}'.encode(),
        "NUL in client": f'{{"client": "a\\u0000", "filter": "{MALLORY}"}}'.encode(),
        "client twice": f'{{"client": 1, "client": "mallory", "filter": 3, "filter": "{MALLORY}"}}'.encode(),
        "100,000 members": around(",".join(f'"m{n}": {n}' for n in range(60_000))),
        "no UTF-8 inside": around('"note": "x"').replace(b'"x"', b'"\xff"'),
        "client is a list": f'{{"client": ["mallory"], "filter": "{MALLORY}"}}'.encode(),
        "client of 1 MB": f'{{"client": "{"c" * 1_000_000}", "filter": "{MALLORY}"}}'.encode(),
        "ranges of 1 MB": around(f'"ranges": "{"r" * 1_000_000}"'),
        "ranges a list": around('"ranges": [1]'),
        "groups a number": around('"groups": 1'),
        "groups and sink": around('"groups": true, "sink": "x"'),
    }
    for version in (
        "0",
        "-1",
        str(2**63 - 1),
        str(2**63),
        str(2**64),
        "1.0",
        "1.5",
        '"1"',
        "null",
        "1e3",
        "true",
        "[]",
    ):
        values[f"version {version}"] = around(f'"version": {version}')
    for ttl in ("0", "-1", "1", str(2**63 - 1), str(2**63), "1e300", "0.5", "null", '"1"', "true"):
        values[f"ttl_ms {ttl}"] = around(f'"ttl_ms": {ttl}')
    for sink in ('""', '"."', '".."', '"a b"', '"a/b"', '"\\u0000"', '"\\ud800"', "1", "null", '"__consumer_offsets"'):
        values[f"sink {sink}"] = around(f'"sink": {sink}')
    for sink in ("publications", "control", "registry", "deliver.c1", "x_y"):
        values[f"sink in the prefix: {sink}"] = around(f'"sink": "{scene.deployment.prefix}.{sink}"')
    yield from subscriptions(scene, values)


def odd_filters(scene: Scene) -> Names:
    """Filters that blow up, if anything does: many predicates, patterns that make matchers go back, odd names."""
    many = range(64)
    lists = ", ".join(str(2 * n) for n in range(200))
    texts = {
        "64 NOT IN": " AND ".join(f"volume NOT IN ({n}, {n + 2}, {n + 4})" for n in many),
        "NOT IN over all": " AND ".join(f"{a} NOT IN ({lists})" for a in ("volume", "price")) + " AND " + MALLORY,
        "OR of ANDs": " OR ".join(f"(price > {n} AND volume < {n} AND side = 'buy')" for n in range(21)),
        "AND of ORs": " AND ".join(f"(price > {n} OR volume < {n} OR side = 'buy')" for n in range(21)),
        "NOT 30 deep": "NOT (" * 30 + MALLORY + ")" * 30,
        "NOT 40 deep": "NOT (" * 40 + MALLORY + ")" * 40,
        "brackets": "(" * 2000 + MALLORY + ")" * 2000,
        "going back": "symbol LIKE '" + "%a" * 400 + "%b'",
        "going back, one letter": "symbol LIKE '" + "%_" * 400 + "%'",
        "only percents": "symbol LIKE '" + "%" * 3900 + "'",
        "escapes": "symbol LIKE '!%!_!!' ESCAPE '!'",
        "bad escape": "symbol LIKE 'a!' ESCAPE '!'",
        "escape of two": "symbol LIKE 'a' ESCAPE 'ab'",
        "4097 bytes": f"symbol = '{'x' * 4085}'",
        "4096 bytes": f"symbol = '{'x' * 4085}'"[:4095] + "'",
        "1 MB": f"symbol = '{'x' * 1_000_000}'",
        "1 MB of IN": "volume IN (" + ",".join(str(n) for n in range(140_000)) + ")",
        "500 digits": f"volume < {'9' * 500}",
        "overflow": "price < 1e400",
        "least": "price > 5e-324 AND price < 1e-323 AND price > 1",
        "2^63": f"volume = {2**63} OR volume = {-(2**63)}",
        "quoted name": "\"symbol\" = 'mallory'",
        "name of nothing": '"" = 1',
        "name with NUL": '"a\0b" = 1',
        "unknown in any script": "\u0430 = 1",
        "comment": f"{MALLORY} -- 1",
        "semicolon": f"{MALLORY}; DROP TABLE x",
        "NUL": f"{MALLORY}\0",
        "lone": "'",
        "nothing": "",
        "blank": " \t\n",
        "TRUE AND": "TRUE AND TRUE",
        "emoji": "symbol = '\U0001f4a9' OR symbol LIKE '\U0001f4a9%'",
        "above all": "symbol > '\U0010ffff\U0010ffff\U0010ffff'",
        "impossible": "price < 1 AND price > 2",
        "always but absent": "price < 1 OR price >= 1 AND symbol = 'mallory'",
    }
    values = {name: json.dumps({"client": "mallory", "filter": text}).encode() for name, text in texts.items()}
    trees: dict[str, object] = {
        "exact of 1000": {"exact": {f"a{n}": "x" for n in range(1000)}},
        "all of 10000": {"all": [{"exact": {"symbol": "mallory"}}] * 10_000},
        "any of none": {"any": []},
        "sql of sql": {"sql": {"sql": MALLORY}},
        "not of list": {"not": []},
        "two keys": {"exact": {"symbol": "mallory"}, "prefix": {"symbol": "m"}},
        "prefix number": {"prefix": {"price": "1"}},
        "suffix": {"suffix": {"symbol": "allory"}},
        "null": None,
        "number": 5,
        "empty": {},
    }
    values |= {name: json.dumps({"client": "mallory", "filter": tree}).encode() for name, tree in trees.items()}
    yield from subscriptions(scene, values, texts)
    for name, body in {"long text": "a" * 60_000 + "b", "of the pattern": "a" * 900}.items():
        publish(scene, {"symbol": body, "price": 1})
        yield f"event for the patterns: {name}"
    for key in {sent.key for sent in scene.load.control[-200:] if sent.key and b"/o" in sent.key}:
        scene.load.send("subscriptions", key, None)
    yield "withdrawn"


def odd_events(scene: Scene) -> Names:
    """Values of publications: depth, numbers, duplicates, encodings; keys; tombstones."""
    bodies: dict[str, bytes | None] = {}
    for depth in DEPTHS:
        bodies[f"{depth} deep"] = b'{"symbol": "x", "note": ' + b"[" * depth + b"]" * depth + b"}"
        bodies[f"{depth} deep, not closed"] = b'{"symbol": "x", "note": ' + b'{"a":' * depth
    whole = b'{"symbol": "x", "price": 1}'
    bodies |= {
        "tombstone": None,
        "empty": b"",
        "BOM": b"\xef\xbb\xbf" + whole,
        "UTF-16": whole.decode().encode("utf-16"),
        "array": b"[" + whole + b"]",
        "twice": whole + whole,
        "NaN": b'{"price": NaN}',
        "huge number": b'{"price": ' + b"9" * 900_000 + b"}",
        "long fraction": b'{"price": 0.' + b"1" * 900_000 + b"}",
        "exponent": b'{"price": 1e' + b"9" * 10_000 + b"}",
        "minus": b'{"price": -}',
        "leading zero": b'{"price": 01}',
        "same member": b"{" + b",".join([b'"price": 1'] * 80_000) + b"}",
        "100,000 members": b"{" + b",".join(b'"m%d":1' % n for n in range(80_000)) + b"}",
        "escapes": b'{"symbol": "' + b"\\u0041" * 100_000 + b'"}',
        "bad escape": b'{"symbol": "\\x"}',
        "lone surrogate": b'{"symbol": "\\ud800x"}',
        "lone surrogate as name": b'{"\\ud800": 1, "symbol": "x"}',
        "no UTF-8": b'{"symbol": "\xff"}',
        "no UTF-8 as name": b'{"\xff": 1, "symbol": "x"}',
        "NUL": b'{"symbol": "a\\u0000b"}',
        "raw NUL": b'{"symbol": "a\0b"}',
        "raw newline": b'{"symbol": "a\nb"}',
        "blanks": b" " * 900_000 + whole,
        "text of 900 KB": b'{"symbol": "' + b"x" * 900_000 + b'"}',
        "member objects": b'{"symbol": {"min": 1, "max": 2}, "price": [1], "volume": {"min": 0, "max": 1}}',
        "names escaped": b'{"\\u0073ymbol": "x", "pr\\u0069ce": 1}',
    }
    for name, body in bodies.items():
        publish(scene, body)
        yield name
    for about, key in {
        "no key": None,
        "empty key": b"",
        "no UTF-8": b"\xff\xfe",
        "NUL": b"\0",
        "900 KB": b"k" * 900_000,
    }.items():
        publish(scene, whole, key=key)
        yield f"key: {about}"


def headed(
    scene: Scene, headers: list[tuple[str, bytes | None]], body: bytes = b'{"symbol": "x"}', timestamp_ms: int = 0
) -> None:
    """A publication with these headers as they stand."""
    scene.load.produce("publications", None, body, headers, scene.judge.strange.append, timestamp_ms)


def usual(scene: Scene, **changed: bytes | None) -> list[tuple[str, bytes | None]]:
    """The headers of a good event, some of them changed."""
    about: dict[str, bytes | None] = {"specversion": b"1.0", "id": f"{STRANGE}{scene.rng.randrange(10**12)}".encode()}
    about |= {"source": b"any", "type": type_of(scene).encode(), "broker": b"b1", **changed}
    return [(f"ce_{name}", value) for name, value in about.items()]


def odd_headers(scene: Scene) -> Names:
    """Headers by thousands, repeated, null, huge, of other bytes, in another case, ours forged."""
    good = usual(scene)
    lists: dict[str, list[tuple[str, bytes | None]]] = {
        "10,000 of them": [*good, *((f"h{n}", b"x") for n in range(10_000))],
        "the same 10,000 times": [*good, *[("h", b"x")] * 10_000],
        "every one twice": good + good,
        "type twice, the first unknown": [("ce_type", b"unknown"), *usual(scene)],
        "type twice, the last unknown": [*usual(scene), ("ce_type", b"unknown")],
        "null value": [*good, ("h", None)],
        "no name": [*good, ("", b"x")],
        "name of 10 KB": [*good, ("n" * 10_000, b"x")],
        "900 KB": [*good, ("h", b"x" * 900_000)],
        "no UTF-8 in a value": [*good, ("h", b"\xff\xfe")],
        "NUL": [*good, ("h\0", b"\0")],
        "ours forged": [
            *good,
            ("hilcast_client", b"c1"),
            ("hilcast_delivery", b"0" * 32),
            ("hilcast_members", b"c1=x"),
        ],
        "ours forged in another case": [*good, ("HILCAST_client", b"c1"), ("Hilcast_Epoch", b"9")],
        "upper case": [(name.upper(), value) for name, value in good],
        "content-type of avro": [*good, ("content-type", b"application/avro")],
        "content-type of protobuf": [*good, ("content-type", b"application/protobuf")],
        "content-type of nothing": [*good, ("content-type", b"\xff")],
        "dataformat unknown": [*good, ("ce_dataformat", b"x" * 1000)],
        "structured without": [("content-type", b"application/cloudevents+json")],
        "none": [],
    }
    for member in ("specversion", "id", "source", "type", "broker"):
        lists[f"{member} null"] = usual(scene, **{member: None})
        lists[f"{member} empty"] = usual(scene, **{member: b""})
        begins = STRANGE.encode() if member == "id" else b""  # such an event may be routed, and must be known for ours
        lists[f"{member} no UTF-8"] = usual(scene, **{member: begins + b"\xff\xfe"})
        lists[f"{member} of 100 KB"] = usual(scene, **{member: begins + b"x" * 100_000})
        lists[f"{member} with NUL"] = usual(scene, **{member: begins + b"a\0b"})
    lists["id of a probe"] = usual(scene, id=f"{STRANGE};=,\n".encode())
    for name, headers in lists.items():
        headed(scene, headers)
        yield name


class Raw(str):
    """A header's name that is sent as bytes which are no UTF-8; only kafka-python lets us."""

    def encode(self, *_: object) -> bytes:
        return b"x\xff\xfey"


def raw_names(scene: Scene) -> Names:
    """Headers whose names are no UTF-8, in every topic that somebody reads."""
    made = KafkaProducer(bootstrap_servers=scene.world.services.kafka)
    key = f"b1/{type_of(scene)}/raw{scene.rng.randrange(10**9)}".encode()
    value = json.dumps({"client": "mallory", "filter": MALLORY}).encode()
    for topic in ("publications", "subscriptions", "registry", "groups", "control", "progress"):
        headers = [*(usual(scene) if topic == "publications" else [(STRANGER, b"1")]), (Raw("r"), b"1")]
        found = made.send(f"{scene.deployment.prefix}.{topic}", value, key, headers).get(60.0)
        if topic == "publications":
            scene.judge.strange.append((found.topic, found.partition, found.offset))
        yield topic
    made.close()


def odd_structures(scene: Scene) -> Names:
    """CloudEvents in structured mode, with hostile data."""
    about = {"specversion": "1.0", "source": "any", "type": type_of(scene), "broker": "b1"}
    made: dict[str, bytes] = {}

    def event(name: str, **more: object) -> None:
        id = f"{STRANGE}{scene.rng.randrange(10**12)}"
        made[name] = json.dumps({**about, "id": id, **more}).encode()

    event("good", data={"symbol": "x"})
    event("no data")
    event("data null", data=None)
    event("data a list", data=[{"symbol": "x"}])
    event("data a text", data='{"symbol": "x"}')
    event("base64", data_base64=base64.b64encode(b'{"symbol": "x"}').decode())
    event("base64 of nothing", data_base64="")
    event("no base64", data_base64="!!!!")
    event("base64 of 600 KB", data_base64=base64.b64encode(b"[" * 400_000).decode())
    event("base64 a number", data_base64=5)
    event("both", data={"symbol": "x"}, data_base64="e30=")
    event("id a number", id=5, data={})
    event("type a list", type=["x"], data={})
    event("broker an object", broker={}, data={})
    event("source of 500 KB", source="s" * 500_000, data={})
    event("lone surrogate", data={"symbol": "\ud800"})
    event("content type", datacontenttype="application/avro", data={"symbol": "x"})
    good = made["good"]
    for depth in DEPTHS:
        made[f"data {depth} deep"] = good.replace(b'{"symbol": "x"}', b'{"a":' * depth + b"1" + b"}" * depth)
    made |= {
        "list": b"[" + good + b"]",
        "BOM": b"\xef\xbb\xbf" + good,
        "cut": good[:-5],
        "empty": b"",
        "data twice": good[:-1] + b', "data": [], "data": {"symbol": "y"}}',
        "type twice": good[:-1] + b', "type": "unknown"}',
    }
    for name, body in made.items():
        headed(scene, [("content-type", b"application/cloudevents+json; charset=utf-8")], body)
        yield name
    headed(scene, [("content-type", b"application/cloudevents-batch+json")], b"[" + good + b"]")
    yield "batch"


def foreign(scene: Scene) -> Names:
    """Records of a stranger in the topics that only the router writes: nobody may trip over them."""
    values = [b"", None, b"\xff\xfe", b"{", b"[]", b"null", b'{"kind": 5}', b"\x01" * 50, b"x" * 100_000]
    keys = [None, b"", b"\xff", f"subscription/b1/{type_of(scene)}/stranger".encode(), b"generation/main", b"b1/c1"]
    # `receipts`, `routed` and deliveries are what the judge itself goes by: junk there must fool it as little as others
    for topic in ("control", "registry", "groups", "progress", "routed", "receipts", "deadletter", "deliver.probe"):
        for n, value in enumerate(values):
            scene.load.produce(
                topic, keys[n % len(keys)], value, [(STRANGER, b"1"), ("h", b"\xff"), ("hilcast_client", b"x")]
            )
            if n % 3 == 2:
                yield f"{topic}: up to value {n}"


def tombstones(scene: Scene) -> Names:
    """Null values where one is never wanted, and withdrawals of what nobody has, with odd versions."""
    name = type_of(scene)
    for n, version in enumerate(
        [None, b"", b"x", b"-1", b"0", str(2**63 - 1).encode(), str(2**63).encode(), b"\xff", b"1.0"]
    ):
        headers = [] if version is None else [("hilcast_version", version)]
        sent = scene.load.send(
            "subscriptions", f"b1/{name}/none{n}x{scene.rng.randrange(10**6)}", None, headers=headers
        )
        assert sent.key is not None
        yield f"version {version!r}"
        scene.load.send("advertisements", sent.key, None, headers=[*headers, *headers])
        yield f"advertisement, version {version!r} twice"


def producer(scene: Scene, **settings: object) -> Producer:
    given = {"bootstrap.servers": scene.world.services.kafka, "log_level": 0, "message.max.bytes": 1_000_000}
    return Producer({**given, **settings})


def codecs(scene: Scene) -> Names:
    """Batches in every codec, with good and bad records mixed."""
    topic = f"{scene.deployment.prefix}.publications"
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        made = producer(scene, **{"compression.type": codec, "linger.ms": 200})
        for n in range(200):
            headers = usual(scene) if n % 3 else usual(scene, type=b"unknown")
            made.produce(
                topic,
                b'{"symbol": "x"}' if n % 5 else b"{",
                headers=headers,
                on_delivery=lambda _, m: scene.judge.strange.append((m.topic(), m.partition(), m.offset())),
            )
        made.flush(60.0)
        yield codec


def times(scene: Scene) -> Names:
    """Timestamps of the sender's own, before the beginning and after the end of time: ours are the broker's."""
    ahead = int(time.time() * 1000) + 86_400_000
    for name, stamp in {"1 ms": 1, "far": FAR_MS, "farther": 2**62, "a day ahead": ahead}.items():
        key = f"b1/{type_of(scene)}/time{scene.rng.randrange(10**9)}"
        value = {"client": "mallory", "filter": MALLORY, "ttl_ms": 3000}
        scene.load.send("subscriptions", key, value, timestamp_ms=stamp)
        headed(scene, usual(scene), timestamp_ms=stamp)
        yield name


def aborted(scene: Scene) -> Names:
    """Publications of a transaction that is aborted: none is routed; those around it are."""
    made = producer(scene, **{"transactional.id": f"t{scene.rng.randrange(10**9)}"})
    made.init_transactions(60.0)
    for n in range(3):
        made.begin_transaction()
        for _ in range(50):
            made.produce(
                f"{scene.deployment.prefix}.publications",
                b'{"symbol": "probe", "price": 1}',
                headers=usual(scene, id=b"aborted"),
            )
            made.produce(
                f"{scene.deployment.prefix}.subscriptions",
                b'{"client": "aborted", "filter": "TRUE"}',
                f"b1/{type_of(scene)}/aborted{n}".encode(),
            )
        made.flush(60.0)
        made.abort_transaction(60.0)
        yield f"aborted {n}"
    made.begin_transaction()
    for _ in range(50):
        made.produce(f"{scene.deployment.prefix}.publications", b'{"symbol": "x"}', headers=usual(scene))
    made.commit_transaction(60.0)
    yield "committed"


def flood(scene: Scene) -> Names:
    """Ten thousand subscriptions at once by one client, most of them bad, then their withdrawals."""
    name, stamp = type_of(scene), scene.rng.randrange(10**6)
    for n in range(3000):
        filter = MALLORY if n % 3 else "price <"
        scene.load.send("subscriptions", f"b1/{name}/flood{stamp}x{n}", {"client": "mallory", "filter": filter})
    yield "subscribed"
    for n in range(3000):
        scene.load.send("subscriptions", f"b1/{name}/flood{stamp}x{n}", None)
    yield "withdrawn"


def flood_of_large(scene: Scene) -> Names:
    """Gigabytes that are megabytes on the wire: thousands of records of 1 MB, all alike, in one batch of each query."""
    body = json.dumps({"symbol": "x", "note": "n" * LARGE}).encode()
    for _ in range(LARGE_COUNT):
        headed(scene, usual(scene), body)
    yield "publications"
    name, stamp = type_of(scene), scene.rng.randrange(10**6)
    value = json.dumps({"client": "mallory", "filter": MALLORY, "note": "n" * LARGE}).encode()
    for n in range(LARGE_COUNT):
        scene.load.send("subscriptions", f"b1/{name}/large{stamp}x{n % 100}", value)
    yield "subscriptions"


def bombs(scene: Scene) -> Names:
    """Records of 20 and 100 MB that are some kilobytes on the wire, for Kafka measures what is compressed."""
    made = producer(scene, **{"compression.type": "zstd", "message.max.bytes": 1_000_000_000})
    for megabytes in (20, 100):
        for topic, headers in (("publications", usual(scene)), ("subscriptions", [])):
            key = f"b1/{type_of(scene)}/bomb{scene.rng.randrange(10**9)}".encode()
            sent = Sent(key)
            scene.load.control += [sent] if topic == "subscriptions" else []

            def told(error: object, message: Message, sent: Sent = sent, topic: str = topic) -> None:
                assert error is None, error
                sent.place = (message.topic(), message.partition(), message.offset())
                scene.judge.strange += [sent.place] if topic == "publications" else []

            name = f"{scene.deployment.prefix}.{topic}"
            made.produce(name, b"x" * (megabytes * 1_000_000), key, headers=headers, on_delivery=told)
            made.flush(60.0)
            yield f"{topic}: {megabytes} MB"


class OpenTransaction(Fault):
    """A transaction over publications and subscriptions that nobody ends: Kafka lets nobody read on behind it.

    It aborts the transaction by itself after the time that the producer chose, `transaction.max.timeout.ms` at most.
    """

    name = "open-transaction"
    expects = "what is behind it waits until Kafka aborts it, and the job says so; nothing is lost"
    bound_s = 90.0

    def strike(self, scene: Scene) -> None:
        scene.notes["told"] = scene.job.log.stat().st_size
        settings = {"transactional.id": f"t{scene.rng.randrange(10**9)}", "transaction.timeout.ms": OPEN_MS}
        made = scene.notes["open"] = producer(scene, **settings)
        made.init_transactions(60.0)
        made.begin_transaction()
        for _ in range(30):
            made.produce(f"{scene.deployment.prefix}.publications", b"{}", headers=usual(scene))
        made.produce(f"{scene.deployment.prefix}.subscriptions", b"{}", f"b1/{type_of(scene)}/open".encode())
        made.flush(30.0)
        behind = subscribe(scene)
        scene.in_force()  # not before Kafka has ended the transaction
        scene.judge.look(whole=True)
        if behind.place not in scene.judge.answers:
            scene.outcome.findings.append("`hilcast wait` returned before what is behind the transaction was read")

    def after(self, scene: Scene) -> list[str]:
        with contextlib.suppress(KafkaException):  # Kafka has done it
            scene.notes["open"].abort_transaction(10.0)  # type: ignore[attr-defined]
        said = scene.job.said(int(str(scene.notes["told"])))
        return [] if "open transaction" in said else ["nobody said that a transaction is open"]


known(
    OneByOne("odd-keys", odd_keys),
    OneByOne("odd-values", odd_values),
    OneByOne("odd-filters", odd_filters),
    OneByOne("odd-events", odd_events),
    OneByOne("odd-headers", odd_headers),
    OneByOne("odd-structures", odd_structures),
    OneByOne("raw-header-names", raw_names),
    OneByOne("foreign-records", foreign),
    OneByOne("tombstones", tombstones),
    OneByOne("codecs", codecs),
    OneByOne("times", times),
    OneByOne("transactions-aborted", aborted),
    OneByOne("flood", flood),
    OneByOne("flood-of-large", flood_of_large),
    OneByOne("bombs", bombs),
    OpenTransaction(),
)
