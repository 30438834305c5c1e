"""`inspect`: what each broker holds, read from the readable half of the index in Redis.

For one broker and type, by neighbour n:

    asked here   what its clients and its other neighbours want, in boxes (or ranges)
    forwarded    what of it n was told: what n holds for the link from here
    withheld     the rest: covered by what was forwarded

For a broker with groups also who shares which topic, and what that saved (`sharing.py`).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import redis

from producers.cli import config_path
from producers.commands.output import print_json, table
from producers.commands.sharing import describe_sharing, sharing_for_people
from state.broker.keys import Key, index_keys
from state.config import Config, load
from state.errors import HilcastError
from state.redis_index import RedisIndex, Version


@dataclass(frozen=True)
class Part:
    """One cube or wide part of a broker, as Redis shows it."""

    key: Key
    version: Version | None
    valid: bool
    """Written under the Redis that is up now; otherwise the router does not use it."""
    meta: Mapping[str, str]
    local: Mapping[str, str]
    links: Mapping[str, str]
    size: int

    def count(self, name: str) -> int:
        return int(self.meta.get(name, 0))

    def asked(self, neighbour: str) -> int:
        """How many boxes or ranges a neighbour asked for here."""
        return int(self.links.get(neighbour, "0").split()[0])


def inspect(chosen: argparse.Namespace) -> int:
    """Print what all brokers, one broker, or one type at one broker hold."""
    config = load(config_path(chosen))
    if chosen.broker is not None and chosen.broker not in config.overlay.brokers:
        raise HilcastError("unknown-broker", f"{chosen.broker!r} is none of {', '.join(config.overlay.brokers)}")
    if chosen.type is not None and chosen.type not in config.types:
        raise HilcastError("unknown-type", f"{chosen.type!r} is none of {', '.join(config.types)}")
    parts = read_parts(config)
    brokers = config.overlay.brokers if chosen.broker is None else (chosen.broker,)
    types = list(config.types) if chosen.type is None else [chosen.type]
    found = [describe(config, parts, broker, name) for broker in brokers for name in types]
    if chosen.type is not None:
        found[0] |= _details(parts, chosen.broker, chosen.type)
    sharing = describe_sharing(config, brokers)
    if chosen.json:
        shown = [f | {"distribution": sharing[f["broker"]]} if f["broker"] in sharing else f for f in found]
        print_json(shown if chosen.type is None else shown[0])
    else:
        print("\n".join([_for_people(found, chosen), *(sharing_for_people(sharing, chosen.type) if sharing else [])]))
    return 0


def read_parts(config: Config) -> dict[Key, Part]:
    """Every part of every broker that this Redis knows of."""
    index = RedisIndex(config)
    client: Any = redis.Redis.from_url(config.deployment.redis, **config.redis)
    try:
        run, vector = index.vector()
        keys = index_keys(config, config.overlay.brokers)
        pipe = client.pipeline(transaction=False)
        for key in keys:
            name = f"{config.deployment.prefix}:{key.broker}:{key.type}:{key.part}"
            for what in ("meta", "local", "links"):
                pipe.hgetall(f"{name}:{what}")
            pipe.strlen(f"{name}:index")
        answers = iter(pipe.execute())
    except redis.RedisError as error:
        raise HilcastError(
            "redis-away", f"Redis does not answer ({type(error).__name__}): see `hilcast doctor`"
        ) from error
    finally:
        index.close()
        client.close()
    parts = {}
    for key in keys:
        meta, local, links, size = _texts(next(answers)), _texts(next(answers)), _texts(next(answers)), next(answers)
        version = vector.get(str(key))
        parts[key] = Part(key, version, version is not None and version.run == run, meta, local, links, size)
    return parts


def _texts(stored: Mapping[bytes, bytes]) -> dict[str, str]:
    return {name.decode(): value.decode() for name, value in stored.items()}


def describe(config: Config, parts: Mapping[Key, Part], broker: str, type_name: str) -> dict[str, Any]:
    """One broker and type in figures."""
    here = [part for key, part in parts.items() if (key.broker, key.type) == (broker, type_name)]
    held = [part for part in here if part.meta]
    epochs = [part.version for part in held if part.version is not None]
    newest = max(epochs, key=lambda v: (v.generation, v.batch), default=None)
    return {
        "broker": broker,
        "type": type_name,
        "reduction": config.types[type_name].reduction,
        "subscriptions": len({id for part in held for id in part.local}),
        "boxes": sum(part.count("boxes") for part in held),
        "checked_exactly": sum(part.count("residual") for part in held),
        "advertisements": max((part.count("advertisements") for part in held), default=0),
        "parts": len(held),
        "parts_in_use": sum(part.valid for part in held),
        "parts_wanted": len(here),
        "bytes": sum(part.size for part in held),
        "epoch": None if newest is None else newest.epoch,
        "built": max((part.meta.get("built", "") for part in held), default=None),
        "neighbours": [_towards(config, parts, here, broker, n) for n in config.overlay.neighbours(broker)],
    }


def _towards(
    config: Config, parts: Mapping[Key, Part], here: Iterable[Part], broker: str, neighbour: str
) -> dict[str, Any]:
    """What was asked at a broker by all but this neighbour, and what of it the neighbour was told."""
    others = [n for n in config.overlay.neighbours(broker) if n != neighbour]
    asked = forwarded = received = 0
    for part in here:
        asked += part.count("boxes") + sum(part.asked(other) for other in others)
        received += part.asked(neighbour)
        forwarded += parts[part.key.at(neighbour)].asked(broker)
    kinds = {part.links[neighbour].split()[1] for part in here if neighbour in part.links}
    return {
        "neighbour": neighbour,
        "asked_here": asked,
        "forwarded": forwarded,
        "withheld": max(0, asked - forwarded),
        "received": received,
        "kind": next(iter(sorted(kinds)), "boxes"),
    }


def _details(parts: Mapping[Key, Part], broker: str, type_name: str) -> dict[str, Any]:
    here = [part for key, part in parts.items() if (key.broker, key.type) == (broker, type_name)]
    clients = {id: text for part in here for id, text in part.local.items()}
    return {
        "local": dict(sorted(clients.items())),
        "by_part": [
            {
                "part": part.key.part,
                "epoch": None if part.version is None else part.version.epoch,
                "in_use": part.valid,
                "subscriptions": part.count("subscriptions"),
                "boxes": part.count("boxes"),
                "bytes": part.size,
                "links": dict(sorted(part.links.items())),
            }
            for part in here
        ],
    }


def _for_people(found: list[dict[str, Any]], chosen: argparse.Namespace) -> str:
    heads = [
        "broker",
        "type",
        "reduction",
        "subscriptions",
        "boxes",
        "exact",
        "ads",
        "parts",
        "bytes",
        "epoch",
        "built",
    ]
    rows = [
        [
            f["broker"],
            f["type"],
            f["reduction"],
            f["subscriptions"],
            f["boxes"],
            f["checked_exactly"],
            f["advertisements"],
            f"{f['parts_in_use']}/{f['parts_wanted']}",
            f["bytes"],
            f["epoch"],
            f["built"] or None,
        ]
        for f in found
    ]
    text = [table(heads, rows)]
    links = [
        [
            f["broker"],
            n["neighbour"],
            f["type"],
            n["asked_here"],
            n["forwarded"],
            n["withheld"],
            n["received"],
            n["kind"],
        ]
        for f in found
        for n in f["neighbours"]
    ]
    if links:
        heads = ["from", "to", "type", "asked here", "forwarded", "withheld", "received", "kind"]
        text += ["", table(heads, links)]
    if chosen.type is not None:
        text += ["", *_details_for_people(found[0])]
    missing = [f"{f['broker']} {f['type']}" for f in found if f["parts_in_use"] < f["parts_wanted"]]
    if missing:
        text += [
            "",
            f"not complete in this Redis (hosted by another deployment, or being written): {', '.join(missing)}",
        ]
    return "\n".join(text)


def _details_for_people(found: Mapping[str, Any]) -> list[str]:
    heads = ["part", "epoch", "subscriptions", "boxes", "bytes", "asked for by neighbours"]
    rows = [
        [
            p["part"],
            p["epoch"],
            p["subscriptions"],
            p["boxes"],
            p["bytes"],
            ", ".join(f"{n}: {w}" for n, w in p["links"].items()),
        ]
        for p in found["by_part"]
        if p["subscriptions"] or p["links"]
    ]
    text = [table(heads, rows)] if rows else ["nobody asks for anything here"]
    if found["local"]:
        text += ["", table(["subscription", "client -> destination | checked exactly"], list(found["local"].items()))]
    return text
