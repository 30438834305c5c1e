"""What changes when a deployment takes another configuration: told before it is done.

before, after, facts of the registry ──> brokers, links, types, sources, groups that come, go or change; topics that
                                         are created; parts that are rebuilt; registrations that fall asleep or wake
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from state.config import SHARED_SETTINGS, Config
from state.control.facts import Fact
from state.control.travelling import Filters
from state.errors import HilcastError
from state.keys import index_keys
from state.messages import permit
from state.topics import needed

Registered = Iterable[tuple[str, str, str, str, Fact]]
"""Kind, broker, type, id and what is known of it."""


@dataclass
class Changes:
    """All that differs, in words that name what is meant."""

    lines: list[str] = field(default_factory=list)
    topics: list[str] = field(default_factory=list)
    """Topics that will be created."""
    parts: int = 0
    """Parts of the index that are built anew."""
    dormant: list[str] = field(default_factory=list)
    """Registrations, BROKER/TYPE/ID, that the new configuration does not allow: they stay, and match nothing."""
    awake: list[str] = field(default_factory=list)
    """Registrations that were dormant and are in force again."""

    def __bool__(self) -> bool:
        return bool(self.lines)


def changes(before: Config, after: Config, facts: Registered = ()) -> Changes:
    """Compare two configurations of one overlay, and what becomes of what is registered."""
    found = Changes()
    found.lines += _sets("broker", before.overlay.brokers, after.overlay.brokers)
    found.lines += _sets("link", *(sorted("-".join(sorted(link)) for link in c.overlay.links) for c in (before, after)))
    found.lines += _tables("type", before.types, after.types)
    found.lines += _tables("groups of", before.distribution, after.distribution)
    found.lines += _tables("source", _sources(before), _sources(after))
    found.lines += _permissions(before, after)
    for name in SHARED_SETTINGS:
        old, new = (getattr(config.settings, name) for config in (before, after))
        found.lines += [f"~ {name}: {old or 'not set'} -> {new or 'not set'}"] if old != new else []
    if not found.lines and before.shared != after.shared:
        found.lines.append("~ the order in which things are written")
    found.topics = sorted(set(needed(after)) - set(needed(before)))
    found.parts = len(index_keys(after, after.overlay.brokers))
    was, will = _usable(before), _usable(after)
    for kind, broker, type_name, id, fact in facts:
        stood, stands = (
            (look(kind, broker, type_name, id, fact) for look in (was, will)) if fact.live else (False, False)
        )
        if stood != stands:
            (found.dormant if stood else found.awake).append(f"{broker}/{type_name}/{id}")
    found.dormant.sort()
    found.awake.sort()
    return found


def _sources(config: Config) -> dict[str, object]:
    """By topic, or by pattern."""
    named = {source.topic: source for source in config.sources}
    return {**named, **{f"like {pattern.pattern}": pattern.source for pattern in config.patterns}}


def _sets(noun: str, before: Iterable[str], after: Iterable[str]) -> list[str]:
    old, new = list(before), list(after)
    gone = [f"- {noun} {name}" for name in old if name not in new]
    return gone + [f"+ {noun} {name}" for name in new if name not in old]


def _tables(noun: str, before: Mapping[str, object], after: Mapping[str, object]) -> list[str]:
    lines = _sets(noun, before, after)
    for name in before:
        if name in after and before[name] != after[name]:
            lines.append(f"~ {noun} {name}: {', '.join(_differing(before[name], after[name]))}")
    return lines


def _differing(one: object, other: object) -> list[str]:
    """The names of the fields in which two values of one class differ."""
    fields: dict[str, object] = getattr(type(one), "__dataclass_fields__", {})
    return [name for name in fields if getattr(one, name) != getattr(other, name)] or ["changed"]


def _permissions(before: Config, after: Config) -> list[str]:
    """Who may do what."""
    lines = _tables("client", before.security.clients, after.security.clients)
    for name in ("inboxes", "dead_letters", "job", "operators"):
        old, new = getattr(before.security, name), getattr(after.security, name)
        lines += [f"~ {name}: {old} -> {new}"] if old != new else []
    lines += _tables("sink", *({sink.topic: sink for sink in config.sinks} for config in (before, after)))
    lines += ["~ limits"] if before.limits != after.limits else []
    return lines


def _usable(config: Config) -> Callable[[str, str, str, str, Fact], bool]:
    """Whether a configuration allows a registration."""
    filters = {name: Filters(event_type) for name, event_type in config.types.items()}

    def usable(kind: str, broker: str, type_name: str, id: str, fact: Fact) -> bool:
        if broker not in config.overlay.brokers or type_name not in filters:
            return False
        try:
            permit(id, kind == "advertisement", fact.owner or "", fact.sink, config)
            filters[type_name].sent(fact.sent)
        except HilcastError:
            return False
        return True

    return usable
