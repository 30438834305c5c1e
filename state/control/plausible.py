"""Which control messages can be true: judged before any of them touches a state.

    key      is there such a key here: a broker that is hosted, a type, a part that the configuration has
    source   does it speak to this key at all: a home of the same broker, the same part at a neighbour
    members  names that are names, numbers in their range, geometry of this type, filters that can be read

Whoever may write to the control topic can forge what is plausible; what is not must not stop a key, nor leave anything
behind in its state. Messages of another dialect come from a deployment that has another configuration: they are
nobody's fault and are ignored, as they always were.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from state.compiled_part import LocalEntry
from state.control.context import Context
from state.control.facts import decode_fact
from state.control.overlap import WORDING_BYTES_MAX, Wordings
from state.control.protocol import (
    Advertised,
    Amend,
    Change,
    Entry,
    Expire,
    Forget,
    Message,
    Renew,
    Republish,
    Resync,
    Seed,
)
from state.errors import FilterError, HilcastError
from state.filters.grammar import parse
from state.filters.imprecise import check_decidable
from state.formats import UNREADABLE
from state.keys import Key
from state.limits import PUBLISHER_BYTES_MAX
from state.messages import VERSION_MAX, is_sink, quoted
from state.names import ID, NAME, TYPE_NAME, parted
from state.reductions.parameters import forwards_ranges
from state.space.event_type import EventType
from state.space.packing import BOXES, RANGES, Packed

_KEY = re.compile(rf"{NAME.pattern}/{TYPE_NAME.pattern}/(?:home|cube|wide):(?:0|[1-9][0-9]{{0,8}})")
_EVERYWHERE = re.compile(rf"{NAME.pattern}/{ID.pattern}")
PIECES_MAX = 1_000_000
"""Of a change or a seed: no state is that long."""


def existing(text: str, context: Context) -> Key | None:
    """The key of this name, if the configuration has it.

    >>> from state import config
    >>> types = "[types.t]\\ncubes = 4\\n[types.t.attributes]\\nx = { kind = 'int' }"
    >>> context = Context(config.parse("[overlay]\\nbrokers = ['b1']\\nlinks = []\\n" + types), 1, 0)
    >>> existing("b1/t/cube:3", context), existing("b1/t/cube:4", context), existing("b1/t/cube:03", context)
    (Key(broker='b1', type='t', part='cube:3'), None, None)
    """
    if not _KEY.fullmatch(text):
        return None
    key = Key.parse(text)
    if key.broker not in context.config.overlay.brokers or key.type not in context.config.types:
        return None
    settings = context.config.settings
    parts = {
        "home": settings.home_shards,
        "wide": settings.wide_shards,
        "cube": context.config.types[key.type].cubes,
    }
    return key if key.number < parts[key.part.split(":")[0]] else None


def of_another_dialect(key: str, message: Message, context: Context) -> bool:
    """Whether this comes from a deployment whose configuration is another one, as far as can be told."""
    if not isinstance(message, Change | Resync) or not _KEY.fullmatch(message.source) or not _KEY.fullmatch(key):
        return False
    type_name = Key.parse(key).type
    return type_name not in context.config.types or message.grid != context.dialect(type_name)


def implausible(key: Key, message: Message, context: Context) -> str | None:
    """Why this message, in the dialect of the key, cannot be true; None if it can."""
    match message:
        case Change():
            return _of_change(key, message, context)
        case Resync():
            return _of_resync(key, message, context)
        case Expire() | Forget():
            if not key.is_home:
                return "a part has no registrations that could end"
            return None if ID.fullmatch(message.id) and 0 <= message.version <= VERSION_MAX else "no such registration"
        case Republish():
            return "a home key has no index" if key.is_home else None
        case Renew():
            return None if key.is_home else "a part has no facts"
        case Amend():
            return _of_amend(key, message)
        case Seed():
            inside = 0 <= message.piece < message.pieces <= PIECES_MAX
            return None if inside else f"piece {message.piece} of {message.pieces}"


def _of_amend(key: Key, message: Amend) -> str | None:
    if not key.is_home or not ID.fullmatch(message.id):
        return "no such registration"
    try:
        if message.fact is not None:
            decode_fact(message.fact)
    except UNREADABLE as error:
        return f"no fact: {error}"
    return None


def _of_resync(key: Key, message: Resync, context: Context) -> str | None:
    source = existing(message.source, context)
    if source is None or source.type != key.type or source.is_home:
        return f"{quoted(message.source)} is no part of {key.type}"
    asks = source.broker == key.broker if key.is_home else _is_neighbour(key, source, context)
    return None if asks else f"{quoted(message.source)} is told nothing by {key}"


def _of_change(key: Key, message: Change, context: Context) -> str | None:
    if key.is_home:
        return "a home key is told nothing by others"
    source = existing(message.source, context)
    if source is None or source.type != key.type:
        return f"{quoted(message.source)} is no key of {key.type}"
    if not (source.broker == key.broker if source.is_home else _is_neighbour(key, source, context)):
        return f"{quoted(message.source)} has nothing to say to {key}"
    if not (0 <= message.piece < message.pieces <= PIECES_MAX and message.sequence > message.piece):
        return f"piece {message.piece} of {message.pieces}, message {message.sequence}"
    if message.generation < 0 or (source.broker in context.hosts and message.generation > context.generation):
        return f"generation {message.generation} has not begun"
    if message.entries if source.is_home else message.local:
        return "homes speak of their clients, neighbours of entries"
    return _of_items(key, message, context)


def _is_neighbour(key: Key, source: Key, context: Context) -> bool:
    return source.part == key.part and source.broker in context.config.overlay.neighbours(key.broker)


def _of_items(key: Key, message: Change, context: Context) -> str | None:
    for bad in (_bad_local(key, message.local, context), _bad_entry(key, message.entries, context)):
        if bad is not None:
            return f"the entry {quoted(bad)} cannot be true"
    wordings = context.wordings(key.type)
    items: list[LocalEntry | Entry | Advertised] = [*message.local, *message.entries, *message.advertised]
    unread = next((one.id for one in items if one.wording is not None and not _is_wording(one.wording, wordings)), None)
    if unread is not None:
        return f"what {quoted(unread)} asks for in words cannot be read"
    at_home = Key.parse(message.source).is_home
    for advertised in message.advertised:
        if not _is_advertised(key, advertised, context, at_home):
            return f"the advertisement {quoted(advertised.id)} cannot be true"
    return None


def _bad_local(key: Key, entries: Sequence[LocalEntry], context: Context) -> str | None:
    event_type, prefix = context.config.types[key.type], context.config.deployment.prefix
    d, imprecise = event_type.d, any(attribute.imprecise for attribute in event_type.attributes)
    own, deliver = context.config.security.own, context.topics.deliver
    all_placed = _are_all_boxes([*(e.geometry for e in entries), *(e.wider for e in entries if e.wider is not None)], d)
    for e in entries:
        named = ID.fullmatch(e.id) and NAME.fullmatch(e.client)
        theirs = parted(e.id)[0] == (e.client if own else None)
        known = e.destination == deliver(e.client) or is_sink(e.destination, prefix)
        placed = all_placed or (_are_boxes(e.geometry, d) and (e.wider is None or _are_boxes(e.wider, d)))
        decided = e.exact and not imprecise if e.residual is None else _is_filter(e.residual, event_type)
        if not (named and theirs and known and placed and decided):
            return e.id
    return None


def _is_filter(text: str, event_type: EventType) -> bool:
    """Whether this is a filter that routing can ask; printing may have lengthened an admitted one beyond the limits."""
    try:
        check_decidable(parse(text, event_type, limits=False), event_type)
    except (HilcastError, RecursionError):
        return False
    return True


def _bad_entry(key: Key, entries: Sequence[Entry], context: Context) -> str | None:
    event_type = context.config.types[key.type]
    if forwards_ranges(event_type):
        return next((e.id for e in entries if e.geometry.kind != RANGES), None)
    if _are_all_boxes([e.geometry for e in entries], event_type.d):
        return None
    return next(e.id for e in entries if not _are_boxes(e.geometry, event_type.d))


def _is_advertised(key: Key, advertised: Advertised, context: Context, at_home: bool) -> bool:
    event_type = context.config.types[key.type]
    named = _EVERYWHERE.fullmatch(advertised.id) and len(advertised.publisher.encode()) <= PUBLISHER_BYTES_MAX
    told = (not at_home and not advertised.filter) or _is_filter(advertised.filter, event_type)
    return bool(named) and told and _are_boxes(advertised.geometry, event_type.d)


def _is_wording(wording: str, wordings: Wordings) -> bool:
    if len(wording.encode("utf-8", "replace")) > WORDING_BYTES_MAX:
        return False
    try:
        wordings.read(wording)
    except (FilterError, RecursionError):
        return False
    return True


def _are_all_boxes(some: Sequence[Packed], d: int) -> bool:
    """Whether each is boxes, asked of all at once."""
    size = 8 * d
    if not all(
        one.kind == BOXES and one.d == d and len(one.lows) == len(one.highs) and not len(one.lows) % size
        for one in some
    ):
        return False
    lows, highs = b"".join([one.lows for one in some]), b"".join([one.highs for one in some])
    return bool((np.frombuffer(lows, "<i8") <= np.frombuffer(highs, "<i8")).all())


def _are_boxes(packed: Packed, d: int) -> bool:
    return _are_all_boxes([packed], d)
