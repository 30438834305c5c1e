"""Hostile input: each must be answered or become a dead letter, and hold up nothing else.

A fault of this module sends its records and nothing more; that the probe is delivered afterwards and that everything
is answered is what the judge asks of every fault.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable

from confluent_kafka.admin import NewTopic

from benchmarks.faults.judge import STRANGE, Tail
from benchmarks.faults.kind import Fault, known
from benchmarks.faults.load import Sent
from benchmarks.faults.scene import Scene

BIG = 600_000
BIGGER = 900_000
DULL = 3_000_000
"""Bytes that are all the same: compressed, Kafka takes them."""
LONG_MAX = 2**63 - 1
MALLORY = "symbol = 'mallory'"
"""A filter that no event of the load satisfies."""
ANSWER_S = 60.0


class Hostile(Fault):
    """Sends what `records` makes of the scene."""

    expects = "answered or a dead letter; nothing else is held up"

    def __init__(self, name: str, records: Callable[[Scene], None]) -> None:
        self.name = name
        self.strike = records  # type: ignore[method-assign]


def type_of(scene: Scene) -> str:
    """A type without advertisements."""
    return scene.deployment.types[0]


def subscribe(scene: Scene, **more: object) -> Sent:
    """A subscription of Mallory's at any broker."""
    key = f"b{scene.rng.randint(1, 5)}/{type_of(scene)}/m{scene.rng.randrange(10**9)}"
    return scene.load.send("subscriptions", key, {"client": "mallory", "filter": MALLORY, **more})


def publish(
    scene: Scene, body: object, key: bytes | None = None, headers: dict[str, bytes] | None = None, **changed: str | None
) -> None:
    """A publication that is the fault's own business, apart from being routed or refused."""
    about: dict[str, str | None] = {"specversion": "1.0", "id": f"{STRANGE}{scene.rng.randrange(10**12)}"}
    about |= {"source": "any", "type": type_of(scene), "broker": "b1", **changed}
    given = [(f"ce_{k}", v.encode()) for k, v in about.items() if v is not None] + list((headers or {}).items())
    value = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    scene.load.produce("publications", key, value, given, scene.judge.strange.append)


def huge_key(scene: Scene) -> None:
    """Subscriptions and an advertisement under keys of 600 KB that are no UTF-8, of 600 KB that are, and of 3 MB."""
    value = {"client": "mallory", "filter": MALLORY}
    scene.load.send("subscriptions", b"\xff\xfe" + scene.rng.randbytes(BIG), value)
    scene.load.send("subscriptions", b"b1/" + b"k" * BIG, value)
    scene.load.send("subscriptions", b"b1/" + b"k" * DULL, value)
    scene.load.send("advertisements", b"\xc3\x28" * (BIG // 2), {"publisher": "mallory", "filter": MALLORY})


def deep_json(scene: Scene) -> None:
    """Filters of JSON nested 946 to 992 deep, where reading succeeds and printing fails, and far deeper ones."""
    key = f"b2/{type_of(scene)}/deep{scene.rng.randrange(10**9)}"
    shapes = ["%s", '{"exact":{"symbol":%s}}', '{"not":%s}', '[{"a":%s}]']
    for depth in (*range(scene.rng.randint(940, 945), 995, 3), 50_000):
        for shape in shapes:
            inner = shape % ("[" * depth + "]" * depth)
            scene.load.send("subscriptions", key, f'{{"client": "mallory", "filter": {inner}}}'.encode())


def huge_publisher(scene: Scene) -> None:
    """Advertisements, several in one batch, by publishers whose names have 600 KB."""
    name = next(each for each in scene.deployment.types if each.endswith(".adv"))
    for letter in "pqr":
        value = {"publisher": letter * BIG, "filter": "price < 5"}
        scene.load.send("advertisements", f"b1/{name}/huge{scene.rng.randrange(10**9)}", value)


def huge_headers(scene: Scene) -> None:
    """Publications that match, with 900 KB and 3 MB of headers: one large one, many small ones."""
    publish(scene, {"symbol": "probe", "price": 1}, headers={"x-large": b"h" * DULL})
    publish(scene, {"symbol": "probe", "price": 1}, headers={"x-large": b"h" * BIGGER})
    publish(scene, {"symbol": "probe", "price": 1}, headers={f"x-{n}": b"h" * 60 for n in range(10_000)})


def huge_publication_key(scene: Scene) -> None:
    """Publications that match, with keys of 900 KB and 3 MB, and values of 1 MB and 3 MB."""
    publish(scene, {"symbol": "probe", "price": 1}, key=b"k" * DULL)
    publish(scene, {"symbol": "probe", "note": "x" * DULL})
    publish(scene, {"symbol": "probe", "price": 1}, key=scene.rng.randbytes(BIGGER))
    publish(scene, {"symbol": "probe", "note": "x" * 1_040_000})


def sinks_collide(scene: Scene) -> None:
    """Sinks whose names are one to Kafka's metrics: creation of the second is refused by Kafka."""
    stem = f"{scene.deployment.prefix}-alerts{scene.rng.randrange(10**6)}"
    subscribe(scene, sink=f"{stem}.eu")
    subscribe(scene, sink=f"{stem}_eu")


def sink_compacted(scene: Scene) -> None:
    """A sink that is compacted takes no record without a key."""
    name = f"{scene.deployment.prefix}-compacted{scene.rng.randrange(10**6)}"
    new = NewTopic(name, num_partitions=1, replication_factor=1, config={"cleanup.policy": "compact"})
    for future in scene.admin.create_topics([new]).values():
        future.result(30.0)
    subscribe(scene, sink=name)
    scene.in_force()
    publish(scene, {"symbol": "mallory", "price": 1}, key=None)


def sink_invalid(scene: Scene) -> None:
    """Sinks that no topic can be: bad characters, too long, dots, Kafka's own."""
    for name in ("a b", "x" * 250, "..", "__consumer_offsets", "", "é", f"{scene.deployment.prefix}.publications"):
        subscribe(scene, sink=name)


def control_forged(scene: Scene) -> None:
    """Records in `control` that no job wrote: random bytes, and real ones damaged, cut, repeated or readdressed."""
    tail = Tail(scene.world.services.kafka, f"{scene.deployment.prefix}-forger")
    real = tail.read([f"{scene.deployment.prefix}.control"])
    tail.close()
    keys = sorted({message.key() for message in real if message.key()})
    rng = scene.rng
    for _ in range(10):
        scene.load.produce(
            "control", rng.choice([*keys, b"", None, rng.randbytes(9)]), rng.randbytes(rng.randint(0, 99))
        )
    for message in rng.sample(real, min(40, len(real))):
        value = bytearray(message.value() or b"")
        way = rng.randrange(5)
        if way == 0 and value:
            value = value[: rng.randrange(len(value))]
        elif way == 1 and value:
            value[rng.randrange(len(value))] ^= 1 << rng.randrange(8)
        elif way == 2:
            value = bytearray(bytes(value).replace(b"b1/", b"b9/").replace(b"cube", b"cubs"))
        elif way == 3:
            value += rng.randbytes(5)
        key = rng.choice(keys) if way == 4 else message.key()
        scene.load.produce("control", key, bytes(value))


class VersionMax(Fault):
    """A subscription of version 2^63-1 must not become one that nobody can withdraw."""

    name = "version-max"
    expects = "answered; withdrawn without a version afterwards"

    def strike(self, scene: Scene) -> None:
        first = subscribe(scene, version=LONG_MAX)
        subscribe(scene, version=LONG_MAX + 1)
        subscribe(scene, version=-1)
        assert first.key is not None
        scene.notes["withdrawal"] = scene.load.send("subscriptions", first.key, None)

    def after(self, scene: Scene) -> list[str]:
        sent = scene.notes["withdrawal"]
        assert isinstance(sent, Sent)
        deadline = time.monotonic() + ANSWER_S
        while sent.place not in scene.judge.answers and time.monotonic() < deadline:
            time.sleep(0.5)
            scene.judge.look()
        answer = scene.judge.answers.get(sent.place) if sent.place else None
        kind = None if answer is None else answer["kind"]
        return [] if kind == "withdrawn" else [f"a withdrawal without version after 2^63-1 was answered with {answer}"]


def junk(scene: Scene) -> None:
    """The usual rubbish: no JSON, no key, no headers, wrong kinds, unknown names, numbers and texts at their limits."""
    key = f"b3/{type_of(scene)}/junk"
    values = [b"", b"{", b"null", b"[1]", b'{"client": 1}', b'{"client": "x", "filter": "price <"}', b"\xff\xfe",
              b'{"client": "x", "filter": "TRUE", "note": NaN}', b'{"client": "../x", "filter": "TRUE"}']  # fmt: skip
    for value in values:
        scene.load.send("subscriptions", key, value)
    for other in (None, b"", b"nonsense", b"b9/q0/x", b"b1/unknown/x", b"b1/q0/" + b"x" * 65, b"\x00/\x00/\x00"):
        scene.load.send("subscriptions", other, {"client": "x", "filter": "price < 1"})
        scene.load.send("advertisements", other, {"publisher": "x", "filter": "price < 1"})
    bodies = [b"", None, b"{", b"[]", b"\xff", b"[" * 100_000, b'{"price": 1e999}', b'{"symbol": "\\ud800"}']
    bodies += [b'{"price": ' + b"9" * 5000 + b"}", b'{"price": true, "volume": "x", "symbol": 3, "side": null}']
    for body in bodies:
        publish(scene, body)
    for name, other_value in [("type", None), ("broker", None), ("id", None), ("type", "unknown"), ("broker", "b9")]:
        publish(scene, {"price": 1}, **{name: other_value})
    scene.load.produce("publications", None, b'{"price": 1}', (), scene.judge.strange.append)


known(
    Hostile("huge-key", huge_key),
    Hostile("deep-json", deep_json),
    Hostile("huge-publisher", huge_publisher),
    Hostile("huge-headers", huge_headers),
    Hostile("huge-publication-key", huge_publication_key),
    Hostile("sinks-collide", sinks_collide),
    Hostile("sink-compacted", sink_compacted),
    Hostile("sink-invalid", sink_invalid),
    Hostile("control-forged", control_forged),
    Hostile("junk", junk),
    VersionMax(),
)
