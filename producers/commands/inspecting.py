"""`inspect`: what each broker holds, read from the readable half of the index in Redis.

For one broker and type, by neighbour n, summed over its parts (of each part where TYPE is given):

    received         entries that its clients and its other neighbours asked for
    forwarded        what n was told: entries, or ranges (mics)
    withheld         what that makes unnecessary, in the same
    held back        entries that no advertisement of n meets
    negative boxes   what no forwarded entry covers, where the reduction keeps that
    bytes            what deciding this takes in the state of the parts
    asked by it      boxes or ranges that n asked for here

An entry that lies in several parts counts in each.
For a broker with groups also who shares which topic, and what that saved (`sharing.py`).
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import redis

from producers.cli import config_path
from producers.commands.output import print_json, table
from producers.commands.shared_topics import describe_sharing, sharing_for_people
from state.config import Config, load
from state.errors import HilcastError
from state.keys import Key, index_keys
from state.redis_index import RedisIndex, Version, away

FIGURES = ("received", "forwarded", "withheld", "held_back", "ranges", "negative_boxes", "bytes")
SOMETIMES = ("held_back", "ranges", "negative_boxes")
"""What reductions tell of themselves, and what of it only some do (`state/control/fates.py`)."""


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
    reduced: Mapping[str, Mapping[str, int]]
    """By neighbour: what its reduction holds, in numbers."""
    size: int
    ids: frozenset[str]
    """Of all its subscriptions; `local` shows some."""

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
    brokers = config.overlay.brokers if chosen.broker is None else (chosen.broker,)
    types = list(config.types) if chosen.type is None else [chosen.type]
    parts = read_parts(config, [key for key in index_keys(config, brokers) if key.type in types])
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


def read_parts(config: Config, keys: Sequence[Key]) -> dict[Key, Part]:
    """These parts, as far as this Redis knows of them."""
    index = RedisIndex(config)
    client: Any = redis.Redis.from_url(config.deployment.redis, **config.redis)
    try:
        run, generation = index.current()
        vector = {} if generation is None else index.vector(generation)[1]
        pipe = client.pipeline(transaction=False)
        for key in keys:
            name = f"{config.deployment.prefix}:{key.broker}:{key.type}:{key.part}"
            for what in ("meta", "local", "links"):
                pipe.hgetall(f"{name}:{what}")
        told = [_texts(stored) for stored in pipe.execute()]
        for key, meta in zip(keys, told[::3], strict=True):
            name = f"{config.deployment.prefix}:{key.broker}:{key.type}:{key.part}"
            pipe.strlen(f"{name}:index:{meta.get('generation')}")
        answers, sizes = iter(told), iter(pipe.execute())
        reduced = iter(index.reduced([(key, n) for key in keys for n in config.overlay.neighbours(key.broker)]))
        parts = {}
        for key in keys:
            version, neighbours = vector.get(str(key)), config.overlay.neighbours(key.broker)
            meta, local, links = (next(answers) for _ in range(3))
            towards = {n: next(reduced) for n in neighbours}
            valid = version is not None and version.run == run
            parts[key] = Part(key, version, valid, meta, local, links, towards, next(sizes), frozenset(local))
        return _complete(index, parts)
    except redis.RedisError as error:
        raise away(error) from error
    finally:
        index.close()
        client.close()


def _complete(index: RedisIndex, parts: dict[Key, Part]) -> dict[Key, Part]:
    """Read the ids of parts with more subscriptions than the readable half shows from the packed one."""
    cut = [key for key, part in parts.items() if part.count("subscriptions") > len(part.local)]
    for key, loaded in zip(cut, index.newest(cut), strict=True):
        if loaded is not None:
            parts[key] = replace(parts[key], ids=frozenset(loaded[1].ids))
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
        "subscriptions": len({id for part in held for id in part.ids}),
        "boxes": sum(part.count("boxes") for part in held),
        "checked_exactly": sum(part.count("residual") for part in held),
        "advertisements": max((part.count("advertisements") for part in held), default=0),
        "parts": len(held),
        "parts_in_use": sum(part.valid for part in held),
        "parts_wanted": len(here),
        "bytes": sum(part.size for part in held),
        "epoch": None if newest is None else newest.epoch,
        "built": max((part.meta.get("built", "") for part in held), default=None),
        "neighbours": [_towards(here, n) for n in config.overlay.neighbours(broker)],
    }


def _towards(parts: Sequence[Part], neighbour: str) -> dict[str, Any]:
    """What these parts of a broker do for one neighbour, summed."""
    figures = [part.reduced[neighbour] for part in parts]

    def told(name: str) -> bool:
        return name not in SOMETIMES or any(name in f for f in figures)

    asked = [part for part in parts if neighbour in part.links]
    return {
        "neighbour": neighbour,
        **{name: sum(f.get(name, 0) for f in figures) for name in FIGURES if told(name)},
        "asked_by_neighbour": sum(part.asked(neighbour) for part in asked),
        "kind": next(iter(sorted({part.links[neighbour].split()[1] for part in asked})), "boxes"),
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
                "neighbours": [_towards([part], n) for n in sorted(part.reduced)],
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
    links = [([f["broker"], n["neighbour"], f["type"]], n) for f in found for n in f["neighbours"]]
    if links:
        text += ["", _reductions(["from", "to", "type"], links)]
    if chosen.type is not None:
        text += ["", *_details_for_people(found[0])]
    missing = [f"{f['broker']} {f['type']}" for f in found if f["parts_in_use"] < f["parts_wanted"]]
    if missing:
        text += [
            "",
            f"not complete in this Redis (hosted by another deployment, or being written): {', '.join(missing)}",
        ]
    return "\n".join(text)


def _reductions(heads: list[str], rows: list[tuple[list[str], dict[str, Any]]]) -> str:
    """A table of what reductions hold; of the figures that only some have, those that one here has."""
    shown = [name for name in FIGURES if any(name in figures for _, figures in rows)]
    heads = [*heads, *(name.replace("_", " ") for name in shown), "asked by it"]
    cells = [
        [*names, *(n.get(name) for name in shown), f"{n['asked_by_neighbour']:,} {n['kind']}"] for names, n in rows
    ]
    return table(heads, cells)


def _details_for_people(found: Mapping[str, Any]) -> list[str]:
    heads = ["part", "epoch", "subscriptions", "boxes", "bytes"]
    parts = [p for p in found["by_part"] if p["subscriptions"] or p["links"]]
    rows = [[p[name] for name in heads] for p in parts]
    text = [table(heads, rows)] if rows else ["nobody asks for anything here"]
    towards = [([p["part"], n["neighbour"]], n) for p in parts for n in p["neighbours"]]
    if towards:
        text += ["", _reductions(["part", "to"], towards)]
    if found["local"]:
        text += ["", table(["subscription", "client -> destination | checked exactly"], list(found["local"].items()))]
    return text
