"""Schemas by id from a schema registry, through confluent-kafka's client: kept and bounded.

    RegistrySchemas   asks, and says whether the registry is away; nobody waits here
    BesideSchemas     for route workers: a thread of its own asks, and a batch waits a moment for it, now and then
    PromptSchemas     for tools and samples, which read one event after another

An event whose schema was not to be had is set aside (`state/routing/waiting_room.py`), and the driver asks on.
"""

from __future__ import annotations

import base64
import binascii
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

from infra.extras import require
from infra.logs import logger
from state.config import Config
from state.errors import HilcastError
from state.schema_settings import SchemaRegistry
from state.space.encodings.schemas import NO_SCHEMAS, Schema, Schemas

_log = logger("schemas")

ASKED_MAX = 200
"""New ids that wait to be asked for: whoever names more does not register schemas."""
MISSING_MAX = 2000
"""New ids that are looked at in one call: those of a registry count up from 1, so what it has comes first."""
REST = 10
"""After waiting in vain, no batch waits for so many times as long: others are held up for a tenth of the time."""
AGAIN_S = 1.0
"""A route worker asks for one id not more often."""
DEPTH_MAX = 16
"""References of references."""
SLOW_S = 1.0
"""A batch waits no longer for an answer; those who read one event after another give it so long at least."""
FAILED_MAX = 3
"""Without an answer to so many ids it is not asked for the others now."""
AWAY_S = 10.0
"""A registry that did not answer is left alone for so long by those who do not wait for it."""
UNREGISTERED_MAX = 10_000
"""Ids that are remembered as not registered."""


class Shelf(Protocol):
    """Where schemas are kept that some process of ours has had; it may lose them."""

    def had(self, ids: Sequence[int]) -> dict[int, Schema]: ...
    def put(self, had: Mapping[int, Schema]) -> None: ...


class NoShelf:
    """None."""

    def had(self, ids: Sequence[int]) -> dict[int, Schema]:
        return {}

    def put(self, had: Mapping[int, Schema]) -> None:
        """Kept nowhere."""


def beside_schemas(config: Config, shelf: Shelf | None = None) -> Schemas:
    """The registry of the configuration, for batches; without one no id is known."""
    return NO_SCHEMAS if config.schemas is None else BesideSchemas(RegistrySchemas(config.schemas), shelf)


def prompt_schemas(config: Config, *, strict: bool) -> Schemas:
    """The same for whoever reads one event after another."""
    return NO_SCHEMAS if config.schemas is None else PromptSchemas(RegistrySchemas(config.schemas), strict=strict)


class RegistrySchemas:
    """A registry, asked over HTTP. One per process; not for several threads."""

    def __init__(self, settings: SchemaRegistry, clock: Callable[[], float] = time.monotonic) -> None:
        require("formats")
        self._settings, self._clock = settings, clock
        self._known: OrderedDict[int, Schema] = OrderedDict()
        self._client: Any = None

    def had(self, ids: Collection[int]) -> dict[int, Schema]:
        """The schemas of these ids that are kept."""
        found = {id: self._known[id] for id in ids if id in self._known}
        for id in found:
            self._known.move_to_end(id)
        return found

    def at_once(self, ids: Collection[int]) -> tuple[dict[int, Schema], bool]:
        """The schemas of these ids, asked for in this order; and whether the registry is away, or as slow as that."""
        self.open()
        found, deadline = self.had(ids), self._clock() + max(SLOW_S, self._settings.wait_ms / 1000)
        new, away = self._ask([id for id in ids if id not in found], deadline)
        self.keep(new)
        return found | new, away or self._clock() > deadline

    def _ask(self, ids: list[int], deadline: float) -> tuple[dict[int, Schema], bool]:
        """What the registry has of these ids, and whether it did not answer for some."""
        found: dict[int, Schema] = {}
        failed = 0
        for number, id in enumerate(ids):
            if (number and self._clock() > deadline) or failed == FAILED_MAX:
                break
            try:
                schema = self.fetch(id)
            except OSError:
                failed += 1  # perhaps of this one alone
                continue
            if schema is not None:
                found[id] = schema
        return found, failed > 0

    def keep(self, had: Mapping[int, Schema]) -> None:
        """Keep these, and of all the most recently used."""
        self._known.update(had)
        while len(self._known) > self._settings.cached:
            self._known.popitem(last=False)

    # --- the client -----------------------------------------------------------------------------------------

    @staticmethod
    def prepare() -> None:
        """Import what takes long, before the first batch needs it."""
        import confluent_kafka.schema_registry  # noqa: F401

    def answers(self) -> None:
        """Return if the registry answers. Raises OSError."""
        self._answered(lambda client: client.get_subjects())

    def open(self) -> Any:
        """The client; takes seconds in a process that never did it."""
        if self._client is None:
            from confluent_kafka.schema_registry import SchemaRegistryClient

            # waiting and asking again are done here, within a bound
            ours = {"timeout": max(0.5, self._settings.wait_ms / 1000), "max.retries": 0}
            self._client = SchemaRegistryClient({**ours, **self._settings.settings, "url": self._settings.url})
        return self._client

    def fetch(self, id: int) -> Schema | None:
        """One schema with what it refers to; None if the registry does not have it. Raises OSError if it is away."""
        return self._answered(lambda client: _schema(client, client.get_schema(id, fmt="serialized")))

    def latest(self, subject: str) -> tuple[int, Schema]:
        """The newest schema of a subject, with its id: what publishers write with."""
        try:
            found = self._answered(lambda client: _registered(client, subject))
        except OSError as error:
            raise HilcastError("registry-away", f"the schema registry does not answer ({error})") from error
        if found is None:
            raise HilcastError("unknown-schema", f"the registry has no subject {subject!r}")
        return found

    def _answered(self, ask: Callable[[Any], Any]) -> Any:
        """What the client answers; None for what is not there."""
        from confluent_kafka.schema_registry.error import SchemaRegistryError

        client = self.open()
        try:
            return ask(client)
        except SchemaRegistryError as error:
            if error.http_status_code == 404:
                return None
            raise OSError(f"HTTP {error.http_status_code}") from error
        except HilcastError:
            raise
        except Exception as error:  # its HTTP library's own, which has changed between versions
            raise OSError(type(error).__name__) from error
        finally:
            client.clear_caches()  # its own is without a bound


class BesideSchemas:
    """A registry for route workers: what it has not given yet is asked for by a thread of its own.

    Guarantee: a call returns at once for what was had, and otherwise after `SLOW_S` at the latest; all calls together
    wait in vain for a tenth of the time at most, whatever ids come and however the registry behaves.
    """

    def __init__(
        self, registry: RegistrySchemas, shelf: Shelf | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._registry, self._shelf, self._clock = registry, shelf or NoShelf(), clock
        self._changed = threading.Condition()
        """Guards all of what is below, and what the registry keeps."""
        self._asked: set[int] = set()
        """What the thread has still to ask for."""
        self._answered: OrderedDict[int, float] = OrderedDict()
        """Ids that were not to be had, and when that was, the oldest first."""
        self._rest_until = float("-inf")
        self._thread: threading.Thread | None = None

    def of(self, ids: Collection[int]) -> dict[int, Schema]:
        """The schemas of these ids, as far as they are had by the time that a batch may wait."""
        with self._changed:
            found = self._registry.had(ids)
        missing = sorted(set(ids) - set(found))[:MISSING_MAX]
        if missing:
            shelved = self._shelf.had(missing)
            with self._changed:
                self._registry.keep(shelved)
            found |= shelved
            missing = [id for id in missing if id not in shelved]
        return found | self._waited_for(missing) if missing else found

    def _waited_for(self, missing: list[int]) -> dict[int, Schema]:
        """Have these asked for, and give them a moment, unless that was in vain of late."""
        self._begin()
        with self._changed:
            began = self._clock()
            new = {id for id in missing if began - self._answered.get(id, float("-inf")) >= AGAIN_S}
            self._asked |= set(sorted(new)[: max(0, ASKED_MAX - len(self._asked))])
            self._changed.notify_all()
            if began >= self._rest_until:
                self._changed.wait_for(lambda: self._asked.isdisjoint(missing), SLOW_S)
            found = self._registry.had(missing)
            if len(found) < len(missing) and began >= self._rest_until:
                self._rest_until = self._clock() + REST * (self._clock() - began)
            return found

    def _begin(self) -> None:
        """Have the thread run; opening the client is nobody's fault, and not what is waited for."""
        if self._thread is None:
            self._registry.open()
            self._thread = threading.Thread(target=self._ask_on, name="schemas", daemon=True)
            self._thread.start()

    def _ask_on(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._asked)
                id = min(self._asked)
            had = self._asked_for(id)
            with self._changed:
                self._registry.keep(had)
                self._asked.discard(id)
                self._answered.pop(id, None)
                if not had:
                    self._answered[id] = self._clock()
                    while len(self._answered) > UNREGISTERED_MAX:
                        self._answered.popitem(last=False)
                self._changed.notify_all()

    def _asked_for(self, id: int) -> dict[int, Schema]:
        try:
            schema = self._registry.fetch(id)
            had = {} if schema is None else {id: schema}
            self._shelf.put(had)
        except Exception as error:  # whatever it is, the thread goes on
            _log.warning("schema %d is not to be had from the registry (%s): its events are set aside", id, error)
            return {}
        return had


class PromptSchemas:
    """A registry for tools and samples: nobody waits for it, and one that is away is not asked at every event.

    `strict`: a registry that is away is `registry-away`, for who judges events must not take one for unreadable.
    Else its ids are not known for a while: a sample may lack a few.
    """

    def __init__(self, registry: RegistrySchemas, *, strict: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._registry, self._strict, self._clock = registry, strict, clock
        self._unregistered: set[int] = set()
        self._away_until = float("-inf")

    def of(self, ids: Collection[int]) -> dict[int, Schema]:
        """The schemas of these ids that the registry has."""
        wanted = set(ids) - self._unregistered
        if self._clock() < self._away_until:
            found, away = self._registry.had(wanted), True
        else:
            found, away = self._registry.at_once(sorted(wanted))
            if away:
                self._away_until = self._clock() + AWAY_S
            elif len(self._unregistered) < UNREGISTERED_MAX:
                self._unregistered |= wanted - set(found)
        if away and self._strict and wanted - set(found):
            raise HilcastError("registry-away", "the schema registry does not answer, and events name schemas of it")
        return found


def _registered(client: Any, subject: str) -> tuple[int, Schema]:
    latest = client.get_latest_version(subject, fmt="serialized")
    return latest.schema_id, _schema(client, latest.schema)


def _schema(client: Any, given: Any) -> Schema:
    """A schema as the registry gives it, its references fetched, those that others need first."""
    kind = (given.schema_type or "AVRO").upper()
    named: dict[str, str] = {}
    _refer(client, given, named, 0)
    if kind == "AVRO":
        return Schema("avro", text=given.schema_str, references=tuple(named.values()))
    if kind != "PROTOBUF":
        return Schema("other", text=given.schema_str)
    try:
        files = [_file("default", given.schema_str), *(_file(name, text) for name, text in named.items())]
    except ValueError:
        return Schema("other", text=given.schema_str)
    return Schema("protobuf", files=tuple(files))


def _refer(client: Any, given: Any, named: dict[str, str], depth: int) -> None:
    for reference in given.references or ():
        if reference.name in named or depth == DEPTH_MAX:
            continue
        below = client.get_version(reference.subject, reference.version, fmt="serialized").schema
        _refer(client, below, named, depth + 1)
        named[reference.name] = below.schema_str


def _file(name: str, text: str) -> bytes:
    """A serialised file descriptor, named as those that import it name it. Raises ValueError."""
    from google.protobuf import descriptor_pb2
    from google.protobuf.message import DecodeError

    try:
        file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (binascii.Error, DecodeError) as error:
        raise ValueError("the registry gives Protobuf schemas as text only") from error
    file.name = name
    return file.SerializeToString()
