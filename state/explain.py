"""Why an event does or does not reach a subscription: `hilcast explain`.

    predicates     which of the filter's hold, with the values that they saw
    conformance    whether an advertisement of the publisher at the entry broker holds (types with advertisements)
    path, hops     the brokers from the entry to the subscription; which link carries the event, because of which entry
    forwarding     what became of the subscription at each broker: forwarded, covered, merged; the path's come first

Pure: what is in Kafka and Redis is handed in. An answer is None, "not known", where Redis does not hold what it needs;
nothing is guessed. The index is that of now: an event that was routed earlier may have met another one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from itertools import islice, pairwise
from typing import Protocol

import msgspec
import numpy as np

from state.compiled_part import IMPRECISE_RANGES_MAX, CompiledPart
from state.config import Config
from state.control.facts import Fact
from state.control.fates import HELD_BACK
from state.errors import HilcastError
from state.filters.cloudevents import read_filter
from state.filters.evaluate import Explained, matches
from state.filters.evaluate import explain as explain_predicates
from state.filters.geometry import geometry
from state.filters.printing import to_text, value_text
from state.filters.tree import Filter
from state.keys import Key, wide_part
from state.reductions.interval_table import range_id, range_ids, range_of
from state.reductions.parameters import forwards_ranges, range_cap
from state.reductions.reduction import Fate
from state.space.boxes import Boxes, Ranks
from state.space.event_type import Attribute, EventType
from state.space.grid import Grid
from state.space.packing import Geometry, unpack
from state.space.points import rank_spans
from state.space.ranges import Ranges
from state.space.ranks import ABSENT, present_span, unrank

PARTS_MAX = 8
"""Parts that forwarding is told of, where the event lies in none of them."""
OTHERS, SHARED, OWN = 0, 1, 2
"""Whose what carries an event is, seen from the subscription."""
NOT_REACHED = "it does not come this far"
BOXES_SAID = 4
SEARCHED_MAX = 16
"""Brokers behind a link that are searched for the entry that a box on it comes from."""


class Seen(Enum):
    """What became of an entry, where its broker did not say: judged by what the neighbour holds."""

    COVERED_BY_LARGER = auto()
    EQUAL_HELD = auto()
    """The entry itself, or one that is equal."""
    NOT_HELD = auto()
    NEVER_CAME = auto()
    """The broker itself does not hold it."""


class Index(Protocol):
    """What Redis holds, as far as it can be read."""

    def part(self, key: Key) -> CompiledPart | None:
        """The compiled index of a part; None where it is missing."""

    def fates(self, key: Key, neighbour: str, entries: Sequence[str]) -> list[Fate | None]:
        """What became of entries towards a neighbour; None where that is not known."""


@dataclass(frozen=True)
class Event:
    """One publication, read."""

    broker: str
    type: str
    source: str
    id: str
    attributes: Mapping[str, object]


@dataclass(frozen=True)
class Registered:
    """A subscription or an advertisement as the registry knows it."""

    broker: str
    type: str
    id: str
    fact: Fact

    @property
    def state(self) -> str:
        """`live`, `withdrawn` or `expired`."""
        return "live" if self.fact.live else self.fact.ended or "withdrawn"


@dataclass(frozen=True)
class Announced:
    """An advertisement of the publisher, and whether it holds for the event."""

    id: str
    filter: str
    holds: bool


@dataclass(frozen=True)
class Conformance:
    """The check at the entry broker: some advertisement of the publisher must hold."""

    publisher: str
    conforms: bool
    advertisements: tuple[Announced, ...]


@dataclass(frozen=True)
class Hop:
    """One link on the path: whether it carries the event, and because of what the next broker asked for."""

    origin: str
    target: str
    carried: bool | None
    part: str | None
    entry: str | None
    """The entry that holds the event, BROKER/ID or a range; None where it is not known."""
    asked: str | None
    """The box (in values) or range that holds the event."""
    why: str


@dataclass(frozen=True)
class Stand:
    """What became of an entry of one part at a broker, towards a neighbour; `how` is None where it is not known."""

    broker: str
    towards: str
    part: str
    entry: str | None
    """The subscription itself, or what stands for it here; None where nothing does, or that is not known."""
    how: Fate | Seen | None


@dataclass(frozen=True)
class Explanation:
    """The whole answer."""

    event: Event
    subscription: str
    client: str | None
    state: str
    filter: str | None
    matches: bool
    because: str
    predicates: tuple[Explained, ...]
    conformance: Conformance | None
    path: tuple[str, ...]
    hops: tuple[Hop, ...]
    parts: tuple[str, ...]
    """Parts of the subscription's broker that hold it: with the event, else the first ones."""
    forwarding: tuple[Stand, ...]
    boxes: tuple[str, ...]
    """What the filter asks for as boxes, in values: the first ones."""
    boxes_total: int
    reaches: bool | None
    """Whether the event would be delivered now; None where the index is not known."""


def explained(
    config: Config, event: Event, subscription: Registered, advertisements: Sequence[Registered], index: Index
) -> Explanation:
    """Explain one event and one subscription; `advertisements`: those of the entry broker and the event's type.

    Raises HilcastError where the event's or subscription's broker or type is not in the configuration.
    Guarantee: `matches` is what docs/filters.md says; `hops` agree with the router's look-up of the same index.
    Cost: reads the parts of the event's cubes at each broker of the path, and the words on the subscription, part by
    part, at every broker.
    """
    for name, broker in (("event", event.broker), ("subscription", subscription.broker)):
        if broker not in config.overlay.brokers:
            raise HilcastError("unknown-broker", f"{broker!r} (of the {name}) is not a broker of this overlay")
    for name, type_name in (("event", event.type), ("subscription", subscription.type)):
        if type_name not in config.types:
            raise HilcastError("unknown-type", f"{type_name!r} (of the {name}) is not a configured event type")
    tree, fault = _read(subscription, config.types[subscription.type])
    holds, because, leaves = _judged(event, subscription, tree, fault, config.types[event.type])
    path = config.overlay.path(event.broker, subscription.broker)
    way = _Way(config, event, subscription, tree, index)
    same = event.type == subscription.type
    conformance = _conformance(event, advertisements, config.types[event.type])
    refused = conformance is not None and not conformance.conforms
    hops = tuple(_come(way, path, refused)) if same else ()
    forwarding = tuple(way.forwarding(path[::-1])) if tree is not None and same else ()
    return Explanation(
        event=event,
        subscription=f"{subscription.broker}/{subscription.type}/{subscription.id}",
        client=subscription.fact.owner,
        state=subscription.state if fault is None else "dormant",
        filter=None if tree is None else to_text(tree),
        matches=holds,
        because=because,
        predicates=leaves,
        conformance=conformance,
        path=path,
        hops=hops,
        parts=tuple(way.parts) if same else (),
        forwarding=forwarding,
        boxes=tuple(box_text(way.type, low, high) for low, high in islice(way.own, BOXES_SAID)),
        boxes_total=len(way.own),
        reaches=_reaches(holds, conformance, hops, way),
    )


# --- the filter ---------------------------------------------------------------------------------------------


def _read(subscription: Registered, event_type: EventType) -> tuple[Filter | None, str | None]:
    """The filter, or why the present configuration cannot use it; neither for what is withdrawn."""
    if not subscription.fact.live:
        return None, None
    try:
        return read_filter(msgspec.json.decode(subscription.fact.filter or "null"), event_type), None
    except HilcastError as error:
        return None, str(error)


def _judged(
    event: Event, subscription: Registered, tree: Filter | None, fault: str | None, event_type: EventType
) -> tuple[bool, str, tuple[Explained, ...]]:
    """Whether it matches, why, and what each predicate says."""
    if fault is not None:
        return False, f"the configuration cannot use its filter ({fault}): it lies dormant", ()
    if tree is None:
        return False, f"the subscription is {subscription.state}", ()
    if event.type != subscription.type:
        return False, f"the event is of type {event.type}, the subscription of {subscription.type}", ()
    leaves = tuple(explain_predicates(tree, event.attributes, event_type))
    if matches(tree, event.attributes, event_type):
        return True, "the filter holds", leaves
    failing = [leaf.predicate for leaf in leaves if not leaf.holds]
    return False, f"the filter does not hold: {', '.join(failing)}", leaves


def _conformance(event: Event, advertisements: Sequence[Registered], event_type: EventType) -> Conformance | None:
    if not event_type.advertisements:
        return None
    announced = []
    for advertisement in advertisements:
        tree, _ = _read(advertisement, event_type)
        theirs = (advertisement.broker, advertisement.type) == (event.broker, event.type)
        if tree is not None and theirs and advertisement.fact.owner == event.source:
            holds = matches(tree, event.attributes, event_type)
            announced.append(Announced(advertisement.id, to_text(tree), holds))
    return Conformance(event.source, any(ad.holds for ad in announced), tuple(announced))


def _come(way: _Way, path: Sequence[str], refused: bool) -> Iterator[Hop]:
    """The links of the path; behind one that stops the event, or a refusal at its entry, none is reached."""
    for origin, target in pairwise(path):
        hop = Hop(origin, target, False, None, None, None, NOT_REACHED) if refused else way.hop(origin, target)
        refused = hop.carried is False
        yield hop


def _reaches(holds: bool, conformance: Conformance | None, hops: Sequence[Hop], way: _Way) -> bool | None:
    if not holds or (conformance is not None and not conformance.conforms):
        return False
    carried = {hop.carried for hop in hops} | {way.stands_here}
    return False if False in carried else None if None in carried else True


# --- the way ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Visit:
    """A broker on the subscription's way outwards, and what stands for it there."""

    broker: str
    came_from: str | None
    entries: list[str]
    own: dict[str, Geometry]
    """The geometry of those entries of which it is known."""
    lost: Seen | None
    """Why nothing stands for it, where that is known."""


class _Way:
    """One event and one subscription between their brokers."""

    def __init__(
        self, config: Config, event: Event, subscription: Registered, tree: Filter | None, index: Index
    ) -> None:
        self.config, self.subscription, self.index = config, subscription, index
        self.type = config.types[subscription.type]
        self.grid = Grid.of(self.type)
        self.low, self.high = rank_spans(config.types[event.type], event.attributes)
        self.own = Boxes.empty(self.type.d) if tree is None else geometry(tree, self.type).boxes
        self.event_parts: list[str] = []
        if event.type == subscription.type:
            cubes = self.grid.cubes_of(Boxes(self.low[None], self.high[None]))
            wide = [f"wide:{i}" for i in range(config.settings.wide_shards)]
            self.event_parts = [*(f"cube:{int(cube)}" for cube in cubes), *wide]
        self.stands_here: bool | None = False
        self.parts = self._parts() if tree is not None else []

    def _key(self, broker: str, part: str) -> Key:
        return Key(broker, self.type.name, part)

    def _parts(self) -> list[str]:
        """Where the subscription stands at its own broker: with the event, else anywhere."""
        home, id = self.subscription.broker, self.subscription.id
        candidates = [f"cube:{int(cube)}" for cube in self.grid.cubes_of(self.own)]
        candidates.append(wide_part(id, self.config))
        found = {part: self.index.part(self._key(home, part)) for part in candidates}
        standing = [part for part, compiled in found.items() if compiled is not None and id in compiled.ids]
        here = [part for part in standing if part in self.event_parts]
        unknown = any(compiled is None for part, compiled in found.items() if part in self.event_parts)
        self.stands_here = True if here else None if unknown else False
        return here or standing[:PARTS_MAX]

    # ── events towards the subscription ─────────────────────────────────────────────────────────────────────────

    def hop(self, origin: str, target: str) -> Hop:
        """Whether the link carries the event: the index at `origin` of what `target` asked for."""
        found: list[tuple[int, str, str | None, str]] = []
        missing = []
        for part in self.event_parts:
            compiled = self.index.part(self._key(origin, part))
            if compiled is None:
                missing.append(part)
            elif target in compiled.links:
                held = self._holding(unpack(compiled.links[target]), origin, target, part)
                found += [] if held is None else [(held[0], part, *held[1:])]
        if found:
            share, part, entry, asked = max(found, key=lambda one: one[0])
            why = f"{target} asked for it" + (", for this very subscription or an equal one" if share == OWN else "")
            return Hop(origin, target, True, part, entry, asked, why)
        if missing:
            why = f"not known: Redis does not hold {', '.join(missing)} of {origin}"
            return Hop(origin, target, None, None, None, None, why)
        return Hop(origin, target, False, None, None, None, f"stopped: nothing that {target} asked for holds it")

    def _holding(self, asked: Geometry, origin: str, target: str, part: str) -> tuple[int, str | None, str] | None:
        """What of it holds the event: the subscription's share in that, whose it is, and in words.

        The subscription's own box is preferred, then what covers it, or a range that it has a share in.
        """
        if isinstance(asked, Boxes):
            return self._holding_box(asked, origin, target, part)
        place = _first_met(asked, self._event_ranges())
        if place is None:
            return None
        wanted = self._asked_in(part)
        assert isinstance(wanted, Ranges), "a link that is asked in ranges is of a type that forwards them"
        shared = _shared(asked, wanted, self._event_ranges())
        name = range_id(*(int(ends[place if shared is None else shared]) for ends in (asked.starts, asked.ends)))
        return OTHERS if shared is None else SHARED, name, f"range {name}"

    def _holding_box(self, asked: Boxes, origin: str, target: str, part: str) -> tuple[int, str | None, str] | None:
        rows = np.flatnonzero(((asked.lows <= self.high) & (asked.highs >= self.low)).all(axis=1))
        if len(rows) == 0:
            return None
        held, own = Boxes(asked.lows[rows], asked.highs[rows]), self._own_in(part)
        share = np.full(len(rows), OTHERS)
        for low, high in own:
            share[((held.lows <= low) & (held.highs >= high)).all(axis=1)] = SHARED
        share[[_has_row(own, low, high) for low, high in held]] = OWN
        best = int(share.argmax())
        low, high = held.lows[best], held.highs[best]
        is_own = share[best] == OWN and part in self.parts
        entry = f"{self.subscription.broker}/{self.subscription.id}" if is_own else None
        entry = entry or self._owner(origin, target, part, low, high)
        return int(share[best]), entry, box_text(self.type, low, high)

    def _owner(self, origin: str, target: str, part: str, low: Ranks, high: Ranks) -> str | None:
        """Whose box this is: a subscription that stands behind the link, nearest first, among some brokers."""
        for broker in islice(self._behind(origin, target), SEARCHED_MAX):
            compiled = self.index.part(self._key(broker, part))
            if compiled is None or compiled.boxes.size == 0:
                continue
            boxes = unpack(compiled.boxes)
            assert isinstance(boxes, Boxes)
            rows = np.flatnonzero((boxes.lows == low).all(axis=1) & (boxes.highs == high).all(axis=1))
            if len(rows):
                return f"{broker}/{compiled.ids[int(np.frombuffer(compiled.owners, '<i4')[rows[0]])]}"
        return None

    def _behind(self, origin: str, target: str) -> Iterator[str]:
        """The brokers behind a link, nearest first."""
        level = [(origin, target)]
        while level:
            yield from (broker for _, broker in level)
            level = [(b, n) for came, b in level for n in self.config.overlay.neighbours(b) if n != came]

    def _own_in(self, part: str) -> Boxes:
        """The subscription's boxes in a part."""
        if part.startswith("wide:"):
            return self.own
        return self.own.clipped(*self.grid.cube_box(int(part.split(":")[1])))

    def _event_ranges(self) -> Ranges:
        """The event on the curve, as the router sees it: an index, or the ranges of an imprecise one."""
        if (self.low == self.high).all():
            at = self.grid.index(self.low[None])
            return Ranges(at, at)
        return self.grid.ranges(Boxes(self.low[None], self.high[None]), IMPRECISE_RANGES_MAX)

    # ── the subscription against the path ───────────────────────────────────────────────────────────────────────

    def forwarding(self, way: Sequence[str]) -> list[Stand]:
        """What became of the subscription at every broker; those of `way`, which begins at its own, come first."""
        return [stand for part in self.parts for stand in self._walk(part, way)]

    def _walk(self, part: str, way: Sequence[str]) -> Iterator[Stand]:
        name = f"{self.subscription.broker}/{self.subscription.id}"
        pending = deque([_Visit(way[0], None, [name], {name: self._asked_in(part)}, None)])
        while pending:
            visit = pending.popleft()
            for n in self.config.overlay.neighbours(visit.broker):
                if n == visit.came_from:
                    continue
                hows = self._how(visit.broker, n, part, visit.entries, visit.own)
                yield from (Stand(visit.broker, n, part, e, how) for e, how in zip(visit.entries, hows, strict=True))
                if not visit.entries:
                    yield Stand(visit.broker, n, part, None, visit.lost)
                onward = self._onward(visit, n, hows)
                pending.appendleft(onward) if n in way else pending.append(onward)

    def _onward(self, visit: _Visit, neighbour: str, hows: Sequence[Fate | Seen | None]) -> _Visit:
        """What stands for the subscription at the next broker."""
        if not visit.entries:
            return _Visit(neighbour, visit.broker, [], {}, visit.lost)
        told = list(zip(visit.entries, hows, strict=True))
        held_back = all(how in (HELD_BACK, Seen.NOT_HELD) for _, how in told)
        names = [name for entry, how in told if isinstance(how, Fate) for name in how.carriers(entry)]
        entries, own = self._named_at_next(visit.broker, {name: visit.own.get(name) for name in names})
        return _Visit(neighbour, visit.broker, entries, own, Seen.NEVER_CAME if held_back else None)

    def _named_at_next(
        self, broker: str, onward: Mapping[str, Geometry | None]
    ) -> tuple[list[str], dict[str, Geometry]]:
        """The entries as the next broker calls them: ranges are told apart by where they came from."""
        if not forwards_ranges(self.type):
            return list(onward), {name: known for name, known in onward.items() if known is not None}
        return [f"{broker}>{name}" for name in onward], {
            f"{broker}>{name}": Ranges.of([range_of(name)]) for name in onward
        }

    def _asked_in(self, part: str) -> Geometry:
        boxes = self._own_in(part)
        if not forwards_ranges(self.type):
            return boxes
        ranges = self.grid.ranges(boxes, range_cap(self.type))
        whole = (0, 2**self.grid.index_bits - 1)
        return ranges.clipped(*(whole if part.startswith("wide:") else self.grid.cube_range(int(part.split(":")[1]))))

    def _how(
        self, broker: str, neighbour: str, part: str, entries: Sequence[str], own: Mapping[str, Geometry]
    ) -> list[Fate | Seen | None]:
        """What became of entries: as the broker says, or as what the neighbour holds shows it.

        The table of a range reduction is what the neighbour holds, so there that is asked first: it is complete.
        """
        told = self.index.fates(self._key(broker, part), neighbour, entries)
        if None not in told and not forwards_ranges(self.type):
            return list(told)
        there = self.index.part(self._key(neighbour, part))
        seen = [None if there is None else self._seen(there, broker, own.get(entry)) for entry in entries]
        if forwards_ranges(self.type):
            return [s if s is not None and s != Seen.NOT_HELD else t or s for t, s in zip(told, seen, strict=True)]
        return [t if t is not None else s for t, s in zip(told, seen, strict=True)]

    def _seen(self, there: CompiledPart, broker: str, entry: Geometry | None) -> Fate | Seen | None:
        """What became of an entry, judged by what the neighbour holds for the link back."""
        if entry is None:
            return None
        if broker not in there.links:
            return Seen.NOT_HELD
        held = unpack(there.links[broker])
        if isinstance(held, Ranges) and isinstance(entry, Ranges):
            return _merged(held, entry, self._event_ranges())
        assert isinstance(held, Boxes)
        assert isinstance(entry, Boxes)
        if all(_has_row(held, low, high) for low, high in entry):
            return Seen.EQUAL_HELD
        inside = [((held.lows <= low) & (held.highs >= high)).all(axis=1).any() for low, high in entry]
        return Seen.COVERED_BY_LARGER if all(inside) else None


def _merged(held: Ranges, entry: Ranges, event: Ranges) -> Fate | Seen:
    """The ranges that hold an entry; where the event lies in it, just the one that carries the event."""
    at = np.searchsorted(held.starts, entry.starts, side="right") - 1
    if not ((at >= 0) & (held.ends[at] >= entry.ends)).all():
        return Seen.NOT_HELD
    with_event = _first_met(entry, event)
    rows = np.unique(at) if with_event is None else at[[with_event]]
    holding = Ranges(held.starts[rows], held.ends[rows])
    mine = entry if with_event is None else Ranges(entry.starts[[with_event]], entry.ends[[with_event]])
    return Fate.of("forwarded" if holding == mine else "merged", range_ids(holding))


def _first_met(ranges: Ranges, event: Ranges) -> int | None:
    """The first of `ranges` that shares an index with the event."""
    at = np.searchsorted(ranges.ends, event.starts)
    inside = np.flatnonzero(at < len(ranges))
    met = inside[ranges.starts[at[inside]] <= event.ends[inside]]
    return int(at[met[0]]) if len(met) else None


def _shared(asked: Ranges, own: Ranges, event: Ranges) -> int | None:
    """The place of the range that holds what `own` and the event have in common; None where they have nothing."""
    first = _first_met(own, event)
    if first is None:
        return None
    at = int(np.searchsorted(asked.starts, own.starts[first], side="right")) - 1
    return at if at >= 0 and asked.ends[at] >= own.ends[first] else None


def _has_row(boxes: Boxes, low: Ranks, high: Ranks) -> bool:
    return bool(((boxes.lows == low).all(axis=1) & (boxes.highs == high).all(axis=1)).any())


# --- boxes in words -----------------------------------------------------------------------------------------


def box_text(event_type: EventType, low: Ranks, high: Ranks) -> str:
    """A box as values of its attributes; those that it leaves open are left out.

    >>> quote = EventType("quote", (Attribute("price", "int"), Attribute("symbol", "text")))
    >>> box_text(quote, np.array([ABSENT + 1, ABSENT]), np.array([99, ABSENT]))
    'price up to 99, symbol absent'
    >>> from state.space.ranks import rank
    >>> price = Attribute("price", "float")
    >>> box_text(EventType("offer", (price,)), np.array([ABSENT]), np.array([rank(price, 5) - 1]))
    'price absent or below 5.0'
    """
    spans = zip(event_type.attributes, low.tolist(), high.tolist(), strict=True)
    said = [text for attribute, a, b in spans if (text := _span_text(attribute, a, b)) is not None]
    return ", ".join(said) or "everything"


def _span_text(attribute: Attribute, low: int, high: int) -> str | None:
    lowest, highest = present_span(attribute)
    absent = "absent or " if low == ABSENT else ""
    if high == ABSENT:
        return f"{attribute.name} absent"
    if high >= highest and low <= lowest:
        return None if absent else f"{attribute.name} present"
    if low == high:
        return f"{attribute.name} {_value(attribute, low)}"
    upper, lower = _bound(attribute, high, +1), _bound(attribute, low, -1)
    if low <= lowest:
        return f"{attribute.name} {absent}{'below' if upper else 'up to'} {upper or _value(attribute, high)}"
    if high >= highest:
        return f"{attribute.name} {'above' if lower else 'from'} {lower or _value(attribute, low)}"
    if upper or lower:
        first = f"above {lower}" if lower else f"from {_value(attribute, low)}"
        return f"{attribute.name} {first} and " + (f"below {upper}" if upper else f"up to {_value(attribute, high)}")
    return f"{attribute.name} {_value(attribute, low)} to {_value(attribute, high)}"


def _bound(attribute: Attribute, rank: int, step: int) -> str | None:
    """The value next to a bound, outside, where it says the same in fewer characters: below 100 for up to 99.99999."""
    if attribute.kind in ("int", "category", "boolean") or unrank(attribute, rank + step) is None:
        return None
    outside = _value(attribute, rank + step)
    return outside if len(outside) < len(_value(attribute, rank)) else None


def _value(attribute: Attribute, rank: int) -> str:
    value = unrank(attribute, rank)
    # a rank between those of values, such as the border of a cell in a text
    return f"rank {rank}" if value is None else value_text(value)  # type: ignore[arg-type]
