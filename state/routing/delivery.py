"""From matches to what clients get: deliveries to their own topics, messages to shared ones, and the headers of both.

    matches by broker ──unite──> one delivery per event, client and destination ──> hilcast_delivery, hilcast_client...
    messages of sharing ───────> one copy per event and group ────────────────────> hilcast_members, hilcast_event...

A delivery to a destination that takes nothing now goes to the dead-letter topic instead, with all that it would have
said, and why: nobody else waits for that destination, and whoever owns it can still be given what was for it.

Guarantee: an id of a delivery depends on the event's source and id and on the client, never on batch, offset or time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from state.arrays import Bools, Bytes, Ints, Offsets
from state.columns import column, copy_at
from state.counting_sort import stable_order
from state.digests import delivery_ids, event_digests, hexadecimal
from state.distribution.assignment import shared_topic
from state.kernels import njit
from state.lanes import delivery_lanes
from state.messages import SUBSCRIPTIONS_BYTES_MAX, cut, joined_ids, write_members
from state.routing.assemble import Outgoing, fixed
from state.routing.envelope import Envelopes
from state.routing.junction import Junction, Pairs
from state.routing.sharing import Message
from state.routing.snapshot import Snapshot

COMMA = ord(",")
SORTED_MAX = 64
"""Ids of a delivery that are sorted by insertion: of more that costs more than to sort them in Python."""
REASON_MAX = 500
"""Bytes of the reason why a destination takes nothing: the room for our headers is kept free when an event comes in."""


@dataclass(frozen=True)
class Deliveries:
    """One delivery each: an event, a client at a destination, the ids that matched."""

    rows: Ints
    recipients: Ints
    """Places in the columns of recipients."""
    ids: pa.Array
    """The ids of the subscriptions that matched, as one text."""
    clients: pa.Array
    destinations: pa.Array
    """The recipients, no two of them equal in both columns."""


def unite(matches: Mapping[str, Pairs], junctions: Mapping[str, Junction]) -> Deliveries:
    """One delivery per event, client and destination, whichever brokers matched. Cost: O(pairs log pairs)."""
    rows, recipients, ids, clients, destinations, known = [], [], [], [], [], 0
    for broker, pairs in sorted(matches.items()):
        if len(pairs.rows):
            place, *table = junctions[broker].recipients(pairs.numbers)
            rows.append(pairs.rows)
            recipients.append(place + known)
            ids.append(junctions[broker].ids_of(pairs.numbers))
            clients.append(table[0])
            destinations.append(table[1])
            known += len(table[0])
    if not rows:
        nothing, none = np.empty(0, np.int64), pa.array([], pa.binary())
        return Deliveries(nothing, nothing, none, none, none)
    first_of, place_of = _distinct(pa.concat_arrays(clients), pa.concat_arrays(destinations))
    place = np.concatenate(rows) * len(first_of) + place_of[np.concatenate(recipients)]
    order = stable_order(place)
    place = place[order]
    first = np.flatnonzero(np.diff(place, prepend=-1))
    joined = _joined(pa.concat_arrays(ids), order, first)
    once = pa.array(first_of)
    columns = (pa.concat_arrays(some).take(once) for some in (clients, destinations))
    return Deliveries(place[first] // len(first_of), place[first] % len(first_of), joined, *columns)


def _distinct(clients: pa.Array, destinations: pa.Array) -> tuple[Ints, Ints]:
    """Where each pair of the two columns stands first, in that order, and by row which of the pairs it is.

    >>> one, two = pa.array([b"ann", b"bob", b"ann", b"ann"]), pa.array([b"t", b"t", b"u", b"t"])
    >>> first, place = _distinct(one, two)
    >>> first.tolist(), place.tolist()
    ([0, 1, 2], [0, 1, 2, 0])
    """
    left, right = clients.dictionary_encode(), destinations.dictionary_encode()
    codes = [np.asarray(column.indices.to_numpy(), np.int64) for column in (left, right)]
    pairs = codes[0] * len(right.dictionary) + codes[1]
    _, first, place = np.unique(pairs, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return first[order], rank[place]


def _joined(ids: pa.Array, order: Ints, first: Ints) -> pa.Array:
    """The ids of each delivery in one text: `ids[order]` in groups that begin at `first`.

    Guarantee: `joined_ids` of each group. Cost: compiled, but for groups of very many ids or of very long ones.
    """
    ends, members, sizes = np.append(first[1:], len(order)), order.copy(), np.empty(len(first), np.int64)
    data, offsets = column(ids)
    _sort_ids(data, offsets, members, ends, sizes)
    sorted_here, given = sizes >= 0, {}
    for group in np.flatnonzero(~sorted_here).tolist():
        some = ids.take(pa.array(order[first[group] : ends[group]])).to_pylist()
        given[group] = joined_ids([id.decode() for id in some]).encode()
        sizes[group] = len(given[group])
    at = np.concatenate([[0], np.cumsum(sizes)])
    assert at[-1] < 2**31, "a column of Arrow holds 2 GB"
    text = np.empty(at[-1], np.uint8)
    _write_ids(data, offsets, members, ends, sorted_here, at, text)
    for group, joined in given.items():
        text[at[group] : at[group + 1]] = np.frombuffer(joined, np.uint8)
    buffers = [None, pa.py_buffer(at.astype(np.int32)), pa.py_buffer(text)]
    return pa.Array.from_buffers(pa.binary(), len(first), buffers)


@njit
def _sort_ids(data: Bytes, at: Offsets, members: Ints, ends: Ints, sizes: Ints) -> None:
    """Sort the ids of each group, with -1 in the place of a repeated one, and say how long their text is.

    -1: not done, for there are too many of them to be sorted by insertion, or their text has to be cut.
    """
    first = 0
    for group in range(len(ends)):
        end = ends[group]
        size = np.int64(end - first - 1)
        for k in range(first, end):
            size += at[members[k] + 1] - at[members[k]]
        if end - first > SORTED_MAX or size > SUBSCRIPTIONS_BYTES_MAX:
            size = np.int64(-1)
        else:
            for k in range(first + 1, end):
                id, to = members[k], k
                while to > first and _order(data, at, members[to - 1], id) > 0:
                    members[to] = members[to - 1]
                    to -= 1
                members[to] = id
            for k in range(end - 1, first, -1):
                if _order(data, at, members[k - 1], members[k]) == 0:
                    size -= 1 + at[members[k] + 1] - at[members[k]]
                    members[k] = -1
        sizes[group] = size
        first = end


@njit
def _order(data: Bytes, at: Offsets, one: int, other: int) -> np.int64:
    """Below 0, 0 or above: how two ids follow each other, byte by byte, as their code points do."""
    a, b = at[one], at[other]
    size, more = at[one + 1] - a, at[other + 1] - b
    for i in range(min(size, more)):
        if data[a + i] != data[b + i]:
            return np.int64(data[a + i]) - np.int64(data[b + i])
    return np.int64(size - more)


@njit
def _write_ids(data: Bytes, at: Offsets, members: Ints, ends: Ints, chosen: Bools, to: Ints, text: Bytes) -> None:
    """Write the ids of the chosen groups, each group where it is to begin, with commas between them."""
    first, source, target = 0, data.ctypes.data, text.ctypes.data
    for group in range(len(ends)):
        place, end = to[group], ends[group]
        if chosen[group]:
            for k in range(first, end):
                id = members[k]
                if id >= 0:
                    if k > first:
                        text[place] = COMMA
                        place += 1
                    copy_at(source + at[id], target + place, at[id + 1] - at[id])
                    place += at[id + 1] - at[id]
        first = end


class Written(NamedTuple):
    """How many deliveries went out, and how many of them to the dead-letter topic."""

    copies: int
    refused: int


def write_deliveries(
    outgoing: Outgoing, envelopes: Envelopes, snapshot: Snapshot, rows: Ints, what: Deliveries
) -> Written:
    """Add deliveries, of the events in `rows` of the batch, to what goes out."""
    if not len(rows):
        return Written(0, 0)
    clients = what.clients
    digests, event = _digests(envelopes, rows)
    each, same = np.arange(len(rows)), np.zeros(len(rows), np.int64)
    extras = {
        "hilcast_delivery": outgoing.pool(fixed(delivery_ids(digests, event, clients, what.recipients))) + each,
        "hilcast_subscriptions": outgoing.pool(what.ids) + each,
        "hilcast_client": outgoing.pool(clients) + what.recipients,
        "hilcast_epoch": outgoing.pool([snapshot.epoch.encode()]) + same,
    }
    if snapshot.stale:
        extras["hilcast_stale"] = outgoing.pool([b"true"]) + same
    if not snapshot.closed:
        outgoing.add(rows, _codes(outgoing, snapshot, what)[what.recipients], extras)
        return Written(len(rows), 0)
    return _write_open_and_closed(outgoing, envelopes, snapshot, rows, what, extras)


def _codes(outgoing: Outgoing, snapshot: Snapshot, what: Deliveries) -> Ints:
    """By place of a recipient: the code of its topic. In which partition of a sink a copy lies, Kafka chooses."""
    head, lanes = snapshot.config.topics.deliver(""), delivery_lanes(snapshot.config)
    each = what.destinations.cast(pa.string()).dictionary_encode()
    topics = each.dictionary.to_pylist()
    codes = np.array([outgoing.code(topic, lanes if topic.startswith(head) else 0) for topic in topics], np.int64)
    return np.asarray(codes[each.indices.to_numpy()])


def _write_open_and_closed(
    outgoing: Outgoing,
    envelopes: Envelopes,
    snapshot: Snapshot,
    rows: Ints,
    what: Deliveries,
    extras: Mapping[str, Ints],
) -> Written:
    """Add deliveries, some of which may be for destinations that take nothing now."""
    destinations = what.destinations.cast(pa.string()).to_pylist()
    shut = np.array([destination in snapshot.closed for destination in destinations], bool)[what.recipients]
    codes = _codes(outgoing, snapshot, what)
    outgoing.add(rows[~shut], codes[what.recipients[~shut]], {name: at[~shut] for name, at in extras.items()})
    if shut.any():
        to, where = what.recipients[shut], rows[shut]
        letter = {name: at[shut] for name, at in extras.items()}
        letter |= _refusal(outgoing, envelopes, snapshot, where, destinations, to)
        outgoing.add(where, np.full(len(where), outgoing.code(snapshot.config.topics.deadletter)), letter)
    return Written(len(rows) - int(shut.sum()), int(shut.sum()))


def _refusal(
    outgoing: Outgoing, envelopes: Envelopes, snapshot: Snapshot, rows: Ints, destinations: list[str], to: Ints
) -> dict[str, Ints]:
    """The headers that make a dead letter of a delivery: where the event stood, where it was to go, and why not."""
    reasons = [cut(snapshot.closed.get(destination, ""), REASON_MAX) for destination in destinations]
    same = np.zeros(len(rows), np.int64)
    place = {}
    for name in ("topic", "partition", "offset"):
        values = envelopes.table.column(name).take(pa.array(rows)).cast(pa.string())
        place[f"hilcast_{name}"] = outgoing.pool(values.cast(pa.binary())) + np.arange(len(rows))
    return {
        "hilcast_code": outgoing.pool([b"sink-refused"]) + same,
        "hilcast_reason": outgoing.pool([reason.encode() for reason in reasons]) + to,
        **place,
        "hilcast_destination": outgoing.pool([destination.encode() for destination in destinations]) + to,
    }


def write_messages(
    outgoing: Outgoing, envelopes: Envelopes, snapshot: Snapshot, rows: Ints, messages: Mapping[str, list[Message]]
) -> int:
    """Add messages for several clients, by broker, to what goes out; return how many.

    `rows`: of the batch, by row of a message. One that names too many clients for a header is written several times.
    """
    at, codes, members = [], [], []
    for broker, some in sorted(messages.items()):
        for message in some:
            topic = shared_topic(snapshot.config.topics, broker, message.group, message.set)
            # the assignment's own count: its readers' spans are of those partitions
            code = outgoing.code(topic, snapshot.sharing[broker].assignment.lanes)
            for header, _ in write_members(message.matched):
                at.append(message.row)
                codes.append(code)
                members.append(header)
    if not at:
        return 0
    which = rows[np.array(at, np.int64)]
    digests, event = _digests(envelopes, which)
    extras = {
        "hilcast_members": outgoing.pool(members) + np.arange(len(at)),
        "hilcast_event": outgoing.pool(fixed(hexadecimal(digests))) + event,
        "hilcast_epoch": outgoing.pool([snapshot.epoch.encode()]) + np.zeros(len(at), np.int64),
    }
    outgoing.add(which, np.array(codes, np.int64), extras)
    return len(at)


def _digests(envelopes: Envelopes, rows: Ints) -> tuple[Bytes, Ints]:
    """The digests of the distinct events in `rows`, and by place in `rows` which of them it is."""
    there = np.zeros(len(envelopes), bool)
    there[rows] = True
    return event_digests(*envelopes.identity(np.flatnonzero(there))), (np.cumsum(there) - 1)[rows]
