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

from state.arrays import Bytes, Ints
from state.counting_sort import stable_order
from state.digests import delivery_ids, event_digests, hexadecimal
from state.distribution.assignment import shared_topic
from state.messages import cut, joined_ids, write_members
from state.routing.assemble import Outgoing, fixed
from state.routing.envelope import Envelopes
from state.routing.junction import Junction, Pairs
from state.routing.sharing import Message
from state.routing.snapshot import Snapshot

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
    """The ids of each delivery in one text: `ids[order]` in groups that begin at `first`."""
    ends = np.append(first[1:], len(order))
    several = np.flatnonzero(ends - first > 1)
    if not len(several):
        return ids.take(pa.array(order[first]))
    where = order[first]
    where[several] = len(ids) + np.arange(len(several))
    members = ids.take(pa.array(order[_spread(first[several], (ends - first)[several])])).to_pylist()
    texts, at = [], 0
    for size in (ends - first)[several].tolist():
        texts.append(joined_ids([id.decode() for id in members[at : at + size]]).encode())
        at += size
    return pa.concat_arrays([ids, pa.array(texts, pa.binary())]).take(pa.array(where))


def _spread(starts: Ints, counts: Ints) -> Ints:
    """For each i the numbers starts[i], starts[i]+1, ... counts[i] of them, one after the other.

    >>> _spread(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    ends = np.cumsum(counts)
    return np.arange(int(counts.sum())) + np.repeat(starts - ends + counts, counts)


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
        outgoing.add(rows, _codes(outgoing, what)[what.recipients], extras)
        return Written(len(rows), 0)
    return _write_open_and_closed(outgoing, envelopes, snapshot, rows, what, extras)


def _codes(outgoing: Outgoing, what: Deliveries) -> Ints:
    """By place of a recipient: the code of its topic."""
    each = what.destinations.cast(pa.string()).dictionary_encode()
    codes = np.array([outgoing.code(destination) for destination in each.dictionary.to_pylist()], np.int64)
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
    codes = _codes(outgoing, what)
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
