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
from producers.commands.open_choices import with_choices
from producers.commands.output import print_json, table
from producers.commands.range_words import RangeWords
from producers.commands.shared_topics import describe_sharing, sharing_for_people
from state.compiled_part import join_ranges
from state.config import Config, load
from state.errors import HilcastError
from state.explain import box_text
from state.keys import Key, index_keys
from state.redis_client import open_redis
from state.redis_index import RedisIndex, Version, away
from state.reductions.interval_table import range_ids
from state.space.boxes import Boxes
from state.space.event_type import EventType
from state.space.packing import Geometry, unpack
from state.space.ranges import Ranges

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
    config = with_choices(load(config_path(chosen)))
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
        found[0]["asked"] = asked_words(config, chosen.broker, chosen.type, chosen.ranges)
    sharing = describe_sharing(config, brokers)
    if chosen.json:
        shown = [f | {"distribution": sharing[f["broker"]]} if f["broker"] in sharing else f for f in found]
        print_json(shown if chosen.type is None else shown[0])
    else:
        print("\n".join([_for_people(found, chosen), *(sharing_for_people(sharing, chosen.type) if sharing else [])]))
    return 0


def read_parts(config: Config, keys: Sequence[Key]) -> dict[Key, Part]:
    """These parts, as far as this Redis knows of them."""
    reader = PartReader(config)
    try:
        return reader.complete(reader.read(keys))
    except redis.RedisError as error:
        raise away(error) from error
    finally:
        reader.close()


class PartReader:
    """Reads parts, again and again, on one connection; raises what Redis's client raises."""

    def __init__(self, config: Config, *, timeout_s: float = 5.0) -> None:
        self.index = RedisIndex(config, timeout_s=timeout_s)
        self._config = config
        self._client: Any = open_redis(config, socket_timeout=timeout_s, socket_connect_timeout=timeout_s)

    def standing(self) -> tuple[str, Mapping[str, Version]]:
        """The Redis that is up now, and the version of every part that is in force."""
        run, generation = self.index.current()
        return run, {} if generation is None else self.index.vector(generation)[1]

    def read(
        self, keys: Sequence[Key], standing: tuple[str, Mapping[str, Version]] | None = None, *, local: bool = True
    ) -> dict[Key, Part]:
        """The readable half of these parts; without `local` not who subscribed, so that its size has a bound."""
        run, vector = self.standing() if standing is None else standing
        told = ("meta", "links", "local") if local else ("meta", "links")
        pipe = self._client.pipeline(transaction=False)
        for key in keys:
            for what in told:
                pipe.hgetall(f"{self._name(key)}:{what}")
        answers = [_texts(stored) for stored in pipe.execute()]
        for key, meta in zip(keys, answers[:: len(told)], strict=True):
            pipe.strlen(f"{self._name(key)}:index:{meta.get('generation')}")
        sizes, read = iter(pipe.execute()), iter(answers)
        near = {key: self._config.overlay.neighbours(key.broker) for key in keys}
        reduced = iter(self.index.reduced([(key, n) for key in keys for n in near[key]]))
        parts = {}
        for key in keys:
            meta, links, ids = next(read), next(read), next(read) if local else {}
            version = vector.get(str(key))
            valid = version is not None and version.run == run
            towards = {n: next(reduced) for n in near[key]}
            parts[key] = Part(key, version, valid, meta, ids, links, towards, next(sizes), frozenset(ids))
        return parts

    def _name(self, key: Key) -> str:
        return f"{self.index.prefix}:{key.broker}:{key.type}:{key.part}"

    def complete(self, parts: dict[Key, Part]) -> dict[Key, Part]:
        """Read the ids of parts with more subscriptions than the readable half shows from the packed one."""
        cut = [key for key, part in parts.items() if part.count("subscriptions") > len(part.local)]
        for key, loaded in zip(cut, self.index.newest(cut), strict=True):
            if loaded is not None:
                parts[key] = replace(parts[key], ids=frozenset(loaded[1].ids))
        return parts

    def close(self) -> None:
        self.index.close()
        self._client.close()


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
        "neighbours": [summed(here, n) for n in config.overlay.neighbours(broker)],
    }


def summed(parts: Sequence[Part], neighbour: str) -> dict[str, Any]:
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
                "neighbours": [summed([part], n) for n in sorted(part.reduced)],
            }
            for part in here
        ],
    }


def asked_words(config: Config, broker: str, type_name: str, all_of_them: bool) -> dict[str, list[str]]:
    """By neighbour what it asked for here, in words, from the index itself; with `all_of_them` each box and range."""
    event_type = config.types[type_name]
    index = RedisIndex(config)
    try:
        held = index.newest([key for key in index_keys(config, (broker,)) if key.type == type_name])
    except redis.RedisError as error:
        raise away(error) from error
    finally:
        index.close()
    links: dict[str, list[Geometry]] = {}
    for loaded in held:
        for neighbour, packed in (loaded[1].links if loaded is not None else {}).items():
            links.setdefault(neighbour, []).append(unpack(packed))
    return {n: _asked(event_type, some, all_of_them) for n, some in sorted(links.items())}


def _asked(event_type: EventType, held: Sequence[Geometry], all_of_them: bool) -> list[str]:
    boxes = Boxes.concatenated([one for one in held if isinstance(one, Boxes)], event_type.d)
    ranges = join_ranges([one for one in held if isinstance(one, Ranges)])
    if all_of_them:
        return [*(box_text(event_type, low, high) for low, high in boxes), *range_ids(ranges)]
    said = [RangeWords(event_type).say(ranges)] if len(ranges) else []
    if len(boxes):
        ((low, high),) = boxes.bounding()
        counted = f"{len(boxes):,} box{'' if len(boxes) == 1 else 'es'}"
        said.append(f"{counted}, within {box_text(event_type, low, high)}")
    return said


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
    asked = [[neighbour, one] for neighbour, said in found["asked"].items() for one in said]
    if asked:
        text += ["", table(["asked by", "what"], asked)]
    if found["local"]:
        text += ["", table(["subscription", "client -> destination | checked exactly"], list(found["local"].items()))]
    return text
