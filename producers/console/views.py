"""What the page is told: pure functions of what the poller knows, as JSON can say it."""

from __future__ import annotations

import bisect
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from producers.commands.inspecting import describe, summed
from producers.commands.live import counted, queries
from producers.console.layout import layout
from producers.console.poller import RATE_S, Known, Moment
from state.config import Config
from state.errors import HilcastError
from state.explain import Registered
from state.filters.cloudevents import read_filter
from state.filters.printing import to_text
from state.keys import index_keys
from state.space.grid import Grid

SUBSCRIPTIONS_SHOWN = 200
LETTERS_SHOWN = 50
FILTER_SHOWN = 400
BATCHES_SENT = 120

Link = tuple[str, str]


def hello(config: Config, *, write: bool, client: str | None) -> dict[str, Any]:
    """What does not change while the page is open."""
    return {
        "deployment": config.deployment.name,
        "prefix": config.deployment.prefix,
        "brokers": {broker: list(place) for broker, place in layout(config.overlay).items()},
        "links": [list(link) for link in config.overlay.links],
        "types": {name: _type(config, name) for name in config.types},
        "write": write,
        "client": client,
    }


def _type(config: Config, name: str) -> dict[str, Any]:
    event_type = config.types[name]
    grid = Grid.of(event_type)
    return {
        "attributes": [{"name": a.name, "kind": a.kind, "values": list(a.values)} for a in event_type.attributes],
        "reduction": event_type.reduction,
        "advertisements": event_type.advertisements,
        "dimensions": list(grid.dimensions),
        "bits": grid.k,
        "cubes": grid.cubes,
    }


# ── what changes ────────────────────────────────────────────────────────────────────────────────────────────────


def live(known: Known, links: Sequence[Link], sent: Mapping[str, int] | None) -> dict[str, Any]:
    """Everything that moves; of items, those that were not `sent` yet; the first time (None) all, and lines till now.

    Cost: O(brokers + links + parts), whatever the number of subscriptions.
    """
    first, sent = sent is None, sent or {}
    return {
        **({"lines": rate_lines(known)} if first else {}),
        "seq": known.seq,
        "t": known.history[-1].t_ms if known.history else 0,
        "faults": dict(known.faults),
        "deployments": deployments(known),
        "brokers": brokers(known),
        "links": moving(known, links),
        "totals": totals(known),
        "rates": rates(known),
        "items": {kind: [item for item in kept if item["n"] > sent.get(kind, 0)] for kind, kept in known.items.items()},
        "kept": {kind: len(kept) for kind, kept in known.items.items()},
        "seen": dict(known.counts),
        "followed": list(known.followed),
        "registered": len(known.facts),
    }


def window(history: Sequence[Moment]) -> tuple[Moment, Moment] | None:
    """The moments that a rate is taken between: now, and some seconds before."""
    if len(history) < 2:
        return None
    last = history[-1]
    at = bisect.bisect_left([moment.t_ms for moment in history], last.t_ms - RATE_S * 1000)
    first = history[min(at, len(history) - 2)]
    # two looks that follow each other at once tell nothing of a second
    return (first, last) if last.t_ms - first.t_ms > 900 else None


def _per_second(now: float, before: float, first: Moment, last: Moment) -> float:
    # a count that fell is one that was lost with Redis, and begins anew
    return max(0.0, round((now - before) * 1000 / (last.t_ms - first.t_ms), 2))


def rates(known: Known) -> dict[str, float]:
    """Events a second: published, routed, delivered, refused."""
    names = ("published", "routed", "copies", "dead_letters", "unmatched")
    between = window(list(known.history))
    if between is None:
        return dict.fromkeys(names, 0.0)
    first, last = between
    return {n: _per_second(last.totals.get(n, 0.0), first.totals.get(n, 0.0), first, last) for n in names}


def rate_lines(known: Known) -> list[list[float]]:
    """The rates at every moment that is kept: time, published, routed, delivered, refused."""
    history = list(known.history)
    names = ("published", "routed", "copies", "dead_letters")
    found = []
    for i in range(2, len(history)):
        between = window(history[:i])
        if between is not None:
            first, last = between
            speed = [_per_second(last.totals.get(n, 0.0), first.totals.get(n, 0.0), first, last) for n in names]
            found.append([last.t_ms, *speed])
    return found


def moving(known: Known, links: Sequence[Link]) -> list[list[Any]]:
    """By directed link: crossed, for nothing, both in total and a second; what the far end asked for here."""
    between = window(list(known.history))
    asked: Counter[Link] = Counter()
    for key, part in known.parts.items():
        for neighbour in part.links:
            asked[key.broker, neighbour] += part.asked(neighbour)
    found = []
    for i, (a, b) in enumerate(links):
        crossed, wasted = known.history[-1].links[i].tolist() if known.history else (0.0, 0.0)
        speed = [0.0, 0.0]
        if between is not None:
            first, last = between
            speed = [_per_second(last.links[i, k], first.links[i, k], first, last) for k in (0, 1)]
        found.append([a, b, int(crossed), int(wasted), *speed, asked[a, b]])
    return found


def totals(known: Known) -> dict[str, Any]:
    """The counts of all deployments together, as `status` names them."""
    joined: Counter[str] = Counter()
    for standing in known.standings.values():
        joined.update({name: float(value) for name, value in standing.figures.items()})
    named = counted({name: str(value) for name, value in joined.items()})
    return {name: value for name, value in named.items() if name not in ("links", "distribution")}


def hosts(known: Known) -> dict[str, str]:
    """By broker the deployment that routes it, as its last batch said; else as the configuration says."""
    config = known.config
    found = dict.fromkeys(config.deployment.hosts, config.deployment.name)
    lines = [batches[-1] for batches in known.batches.values() if batches]
    for line in sorted(lines, key=lambda line: line["time_ms"]):
        found |= dict.fromkeys(line["hosts"], line["deployment"])
    return found


def deployments(known: Known) -> list[dict[str, Any]]:
    """By deployment: whether it runs, its generation and how far the next one is, its queries and their batches."""
    said = queries({name: list(lines) for name, lines in known.batches.items()}, known.lag)
    names = sorted({known.config.deployment.name, *known.standings, *(str(q["deployment"]) for q in said)})
    wanted = {name: sum(1 for host in hosts(known).values() if host == name) for name in names}
    parts = len(index_keys(known.config, known.config.overlay.brokers[:1]))
    found = []
    for name in names:
        standing = known.standings.get(name)
        building = None if standing is None else standing.building
        found.append(
            {
                "name": name,
                "driver": known.drivers.get(name),
                "brokers": wanted[name],
                "generation": None if standing is None else standing.generation,
                "building": None if building is None else [*building, parts * wanted[name]],
                "queries": [q | _percentiles(known, q) for q in said if q["deployment"] == name],
            }
        )
    return found


def _percentiles(known: Known, query: Mapping[str, Any]) -> dict[str, Any]:
    lines = list(known.batches.get((query["deployment"], query["query"]), ()))
    return {
        **percentiles([line["batch_ms"] for line in lines]),
        "line": [[line["time_ms"], line["batch_ms"], line["rows"]] for line in lines[-BATCHES_SENT:]],
    }


def percentiles(times: Sequence[float]) -> dict[str, float | None]:
    """The middle and the slowest hundredth of some times.

    >>> percentiles([1, 2, 3, 4])
    {'p50': 2.5, 'p99': 4}
    """
    if not times:
        return {"p50": None, "p99": None}
    ordered = sorted(times)
    return {"p50": statistics.median(ordered), "p99": ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]}


def brokers(known: Known) -> dict[str, dict[str, Any]]:
    """By broker: who hosts it, whether it works, what it holds, what enters there."""
    config, by_host = known.config, hosts(known)
    entering = Counter(item["broker"] for item in known.items["publications"])
    sampled = sum(entering.values())
    speed = rates(known)["published"]
    held = Counter[str]()
    for key, part in known.parts.items():
        held[key.broker] += part.count("subscriptions")
    parts = {b: index_keys(config, (b,)) for b in config.overlay.brokers}
    found = {}
    for broker in config.overlay.brokers:
        standing = known.standings.get(by_host.get(broker, ""))
        versions = {} if standing is None else standing.versions
        run = None if standing is None else standing.run
        using = sum((v := versions.get(str(key))) is not None and v.run == run for key in parts[broker])
        found[broker] = {
            "host": by_host.get(broker),
            "state": _state(known, by_host.get(broker), using, len(parts[broker])),
            "subscriptions": sum(known.live[broker, name] for name in config.types),
            "clients": len(known.clients[broker]) if broker in known.clients else 0,
            "entries": held[broker],
            "parts": [using, len(parts[broker])],
            "in": round(speed * entering[broker] / sampled, 2) if sampled else 0.0,
            "letters": known.letters_by_broker[broker],
        }
    return found


def _state(known: Known, host: str | None, using: int, wanted: int) -> str:
    """One word: `unhosted`, `stopped` (nobody has the lease), `waiting` (parts of its index are missing), `ok`.

    `unknown` where Redis does not answer.
    """
    if host is None:
        return "unhosted"
    if known.drivers.get(host) is False:
        return "stopped"
    if "redis" in known.faults or host not in known.standings:
        return "unknown"
    return "ok" if using == wanted else "waiting"


# ── a click ─────────────────────────────────────────────────────────────────────────────────────────────────────


def broker_view(known: Known, broker: str) -> dict[str, Any]:
    """One broker: clients, subscriptions, what it holds by type, dead letters."""
    if broker not in known.config.overlay.brokers:
        raise HilcastError("unknown-broker", f"{broker!r} is none of this overlay")
    own = [r for r in known.registrations("subscription", broker) if r.fact.live]
    ads = [r for r in known.registrations("advertisement", broker) if r.fact.live]
    figures: dict[str, str] = {}
    for standing in known.standings.values():
        figures |= {k: v for k, v in standing.figures.items() if k.startswith(f"distribution:{broker}:")}
    return {
        "broker": broker,
        **brokers(known)[broker],
        "types": [held(known, broker, name) for name in known.config.types],
        "clients": [list(pair) for pair in known.clients[broker].most_common(SUBSCRIPTIONS_SHOWN)],
        "clients_total": len(known.clients[broker]),
        "subscriptions": [registration(known.config, r) for r in own[:SUBSCRIPTIONS_SHOWN]],
        "subscriptions_total": len(own),
        "advertisements": [registration(known.config, r) for r in ads[:SUBSCRIPTIONS_SHOWN]],
        "advertisements_total": len(ads),
        "letters": [item for item in reversed(known.items["letters"]) if item["broker"] == broker][:LETTERS_SHOWN],
        "distribution": counted(figures).get("distribution", {}).get(broker),  # type: ignore[attr-defined]
    }


def held(known: Known, broker: str, type_name: str) -> dict[str, Any]:
    """What `inspect` says of a broker and type; who subscribed is counted from the registry."""
    parts = {key: part for key, part in known.parts.items() if (key.broker, key.type) == (broker, type_name)}
    found = describe(known.config, parts, broker, type_name)
    found["parts_wanted"] = len([k for k in index_keys(known.config, (broker,)) if k.type == type_name])
    return found | {"subscriptions": known.live[broker, type_name]}


def registration(config: Config, registered: Registered) -> dict[str, Any]:
    """A subscription or advertisement as the registry has it, its filter in words."""
    try:
        text = to_text(read_filter(registered.fact.sent, config.types[registered.type]))
    except (HilcastError, KeyError):
        text = str(registered.fact.sent)  # the present configuration cannot use it: it lies dormant
    return {
        "key": f"{registered.broker}/{registered.type}/{registered.id}",
        "type": registered.type,
        "id": registered.id,
        "owner": registered.fact.owner,
        "filter": text[:FILTER_SHOWN],
        "version": registered.fact.version,
        "groups": registered.fact.groups,
        "expires_ms": registered.fact.expires_ms,
    }


def link_view(known: Known, links: Sequence[Link], a: str, b: str) -> dict[str, Any]:
    """One link, both ways: what crossed; what its reductions received, forwarded, withheld by type, and over time."""
    if (a, b) not in links:
        raise HilcastError("unknown-link", f"{a} and {b} are not linked")
    return {"a": a, "b": b, "ways": [_way(known, links, a, b), _way(known, links, b, a)]}


def _way(known: Known, links: Sequence[Link], a: str, b: str) -> dict[str, Any]:
    i = list(links).index((a, b))
    history = list(known.history)
    types = []
    for k, name in enumerate(known.config.types):
        parts = [part for key, part in known.parts.items() if (key.broker, key.type) == (a, name)]
        back = [part for key, part in known.parts.items() if (key.broker, key.type) == (b, name)]
        figures = summed(parts, b)
        told = figures["forwarded"] + figures["withheld"]
        types.append(
            {
                "type": name,
                "reduction": known.config.types[name].reduction,
                **figures,
                "held_there": summed(back, a)["asked_by_neighbour"],
                "saved": round(figures["withheld"] / told, 4) if told else None,
                "line": [[m.t_ms, *m.reduced[i, k].tolist()] for m in history[:: max(1, len(history) // 60)]],
            }
        )
    return {
        "origin": a,
        "target": b,
        "crossed": int(history[-1].links[i, 0]) if history else 0,
        "wasted": int(history[-1].links[i, 1]) if history else 0,
        "line": [[m.t_ms, *m.links[i].tolist()] for m in history],
        "types": types,
    }
