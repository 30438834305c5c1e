"""A delivery as a subscriber sees it, and what makes two of them one.

The router delivers at least once. Every copy of one publication for one client carries the same `hilcast_delivery`,
also those that other deployments or other destination topics add; each names the subscriptions that matched where
it was routed. A message of a group or broadcast topic names several clients; the delivery of each has the id that its
own topic would have given it.
"""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

from producers.client.encoding import Encoder
from state.messages import Headers, Record, delivery_id, read_members

CUT = "…"
"""Ends a list of ids that was too long for its header."""
_DIGEST = re.compile("(?:[0-9a-f]{2})+")


@dataclass(eq=False)
class Delivery:
    """One publication for one client."""

    record: Record
    id: str
    """Equal on every copy: `hilcast_delivery`."""
    client: str
    _subscriptions: set[str] = field(repr=False)
    _encoder: Encoder | None = field(default=None, repr=False)

    @property
    def subscriptions(self) -> tuple[str, ...]:
        """Ids of the client's subscriptions that matched, sorted; those of later copies join in as they come."""
        return tuple(sorted(self._subscriptions))

    @property
    def value(self) -> bytes:
        """The publication's value, byte for byte."""
        return self.record.value or b""

    @property
    def key(self) -> bytes | None:
        return self.record.key

    @property
    def headers(self) -> Headers:
        return self.record.headers

    @property
    def epoch(self) -> str | None:
        return header(self.headers, "hilcast_epoch")

    @property
    def stale(self) -> bool:
        """Routed with the last known index while Redis was away (`stale = "route"`)."""
        return header(self.headers, "hilcast_stale") == "true"

    @property
    def source(self) -> str | None:
        return self._attribute("source")

    @property
    def event_id(self) -> str | None:
        return self._attribute("id")

    @property
    def type(self) -> str | None:
        return self._attribute("type")

    @property
    def broker(self) -> str | None:
        """Where it entered the overlay."""
        return self._attribute("broker")

    @property
    def event(self) -> dict[str, object]:
        """What the event says; of a type that is not JSON, as JSON would say it."""
        if self._structured:
            return self._structured.get("data", {})  # type: ignore[return-value]
        read = None if self._encoder is None else self._encoder.read(self.type, self.record)
        return json.loads(self.value) if read is None else read  # type: ignore[no-any-return]

    def _attribute(self, name: str) -> str | None:
        if self._structured:
            found = self._structured.get(name)
            return found if isinstance(found, str) else None
        return header(self.headers, f"ce_{name}")

    @cached_property
    def _structured(self) -> dict[str, object]:
        kinds = [value or b"" for name, value in self.headers if name.lower() == "content-type"]
        is_structured = bool(kinds) and kinds[-1].lower().startswith(b"application/cloudevents")
        return json.loads(self.value) if is_structured else {}


class Memory:
    """Remembers the last `size` deliveries, so that a repeat is known and its ids are united with those before.

    >>> memory = Memory(size=2)
    >>> memory.new("d1", {"s1"}) is not None, memory.new("d1", {"s2"}) is None
    (True, True)
    """

    def __init__(self, size: int) -> None:
        assert size > 0
        self._size = size
        self._known: OrderedDict[str, set[str]] = OrderedDict()
        self.repeats = 0
        self.discarded = 0
        """Messages for several clients, but not for this one."""

    def new(self, id: str, subscriptions: Iterable[str]) -> set[str] | None:
        """The set of ids of a delivery that was not seen before; None for a repeat, whose ids join the first one's."""
        known = self._known.get(id)
        if known is not None:
            known.update(subscriptions)
            self.repeats += 1
            return None
        fresh = self._known[id] = set(subscriptions)
        if len(self._known) > self._size:
            self._known.popitem(last=False)
        return fresh


def header(headers: Headers, name: str) -> str | None:
    """The last header of a name, as text."""
    found = [value for key, value in headers if key == name]
    return None if not found or found[-1] is None else found[-1].decode("utf-8", "replace")


def read_delivery(record: Record, client: str, memory: Memory, encoder: Encoder | None = None) -> Delivery | None:
    """The delivery that a record brings to a client; None for a repeat and for what is somebody else's."""
    found = read_named(record, client)
    if found is None:
        memory.discarded += any(name == "hilcast_members" for name, _ in record.headers)
        return None
    id, named = found
    subscriptions = memory.new(id, [name for name in named.split(",") if name and name != CUT])
    return None if subscriptions is None else Delivery(record, id, client, subscriptions, encoder)


def read_named(record: Record, client: str) -> tuple[str, str] | None:
    """The delivery id, and the ids that matched, of what a record brings to a client; None if it is not for it."""
    shared = read_shared(record)
    if shared is not None:
        named = shared[1].get(client)
        return None if named is None else (delivery_id(shared[0], client), named)
    id = header(record.headers, "hilcast_delivery")
    if id is None or header(record.headers, "hilcast_client") != client:
        return None
    return id, header(record.headers, "hilcast_subscriptions") or ""


def read_shared(record: Record) -> tuple[bytes, dict[str, str]] | None:
    """The digest of the event and, by client, the ids that matched; None if it is no message for several clients."""
    members, event = header(record.headers, "hilcast_members"), header(record.headers, "hilcast_event")
    if members is None or event is None or not _DIGEST.fullmatch(event):
        return None
    return bytes.fromhex(event), read_members(members.encode())
