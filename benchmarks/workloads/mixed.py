"""Random filters and events for any event type: every operator and kind, from a seed.

Values are drawn from small pools, so that filters and events meet often: about a third of the pairs that a run makes
match somewhere. Used by the demo, the soak and the tests; nothing here is tuned to the router.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from state.space.event_type import Attribute, EventType

WORDS = (
    "IBM",
    "SAP",
    "ORCL",
    "MSFT",
    "AAPL",
    "Société Générale",
    "Berkshire Hathaway A",
    "ß",
    "a%b_c",
    "it's",
)
TIMES = tuple(f"2026-0{month}-1{day}T0{day}:30:00.00000{month}Z" for month in (1, 5, 9) for day in (1, 5, 9))


def events(event_type: EventType, seed: int) -> Callable[[], dict[str, object]]:
    """A source of random events of this type; now and then an attribute is missing, null or of the wrong kind."""
    rng = random.Random(f"events {seed}")

    def event() -> dict[str, object]:
        made: dict[str, object] = {}
        for attribute in event_type.attributes:
            chance = rng.random()
            if chance < 0.06:
                continue
            made[attribute.name] = None if chance < 0.08 else "?!" if chance < 0.10 else _value(attribute, rng)
        made["note"] = rng.randint(0, 10**6)
        return made

    return event


def filters(event_type: EventType, seed: int) -> Callable[[], str]:
    """A source of random filter texts for this type."""
    rng = random.Random(f"filters {seed}")
    return lambda: _tree(event_type, rng, depth=rng.choice((0, 0, 1, 1, 1, 2, 3)))


def _tree(event_type: EventType, rng: random.Random, depth: int) -> str:
    if depth == 0:
        return _predicate(rng.choice(event_type.attributes), rng)
    parts = [_tree(event_type, rng, depth - 1) for _ in range(rng.choice((2, 2, 3)))]
    text = f" {rng.choice(('AND', 'AND', 'OR'))} ".join(f"({part})" for part in parts)
    return f"NOT ({text})" if rng.random() < 0.15 else text


def _predicate(attribute: Attribute, rng: random.Random) -> str:
    name = attribute.name
    chance = rng.random()
    if chance < 0.04:
        return f"{name} IS NULL"
    if chance < 0.08:
        return f"EXISTS {name}"
    negate = "NOT " if rng.random() < 0.2 else ""
    if attribute.kind == "boolean":
        return f"{name} {rng.choice(('=', '!='))} {rng.choice(('true', 'false'))}"
    literals = [_literal(attribute, _value(attribute, rng)) for _ in range(3)]
    if chance < 0.22:
        return f"{name} {negate}IN ({', '.join(literals)})"
    if chance < 0.40:
        low, high = sorted(literals[:2], key=lambda text: (len(text), text))
        return f"{name} {negate}BETWEEN {low} AND {high}"
    if attribute.kind == "text" and chance < 0.60:
        return f"{name} {negate}LIKE {_pattern(rng)}"
    return f"{name} {rng.choice(('=', '!=', '<', '<=', '>', '>='))} {literals[0]}"


def _pattern(rng: random.Random) -> str:
    word = rng.choice(WORDS)
    pattern = rng.choice((word[:1] + "%", "%" + word[-1:], word[:2] + "_%", "%a%", word[:8] + "%"))
    return "'" + pattern.replace("'", "''") + "'"


def _value(attribute: Attribute, rng: random.Random) -> object:
    if attribute.kind == "boolean":
        return rng.random() < 0.5
    if attribute.kind == "category":
        return rng.choice(attribute.values)
    if attribute.kind == "text":
        return rng.choice(WORDS)
    if attribute.kind == "timestamp":
        return rng.choice(TIMES)
    low = float(attribute.min) if isinstance(attribute.min, int | float) else -1000.0
    high = float(attribute.max) if isinstance(attribute.max, int | float) else 1000.0
    step = low + (high - low) * rng.randint(-1, 21) / 20
    return int(step) if attribute.kind == "int" else step + rng.choice((0.0, 0.5, 0.1))


def _literal(attribute: Attribute, value: object) -> str:
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return repr(value)
