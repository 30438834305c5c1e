"""Schemas by id from a schema registry, through confluent-kafka's client: kept, bounded, and waited for a bounded time.

    known           at once, whether the registry is there or not; a shelf keeps them for workers that are new
    away            asked again until `wait_ms` are over, for all ids of a batch together
    not registered  the same, once in a while: a producer registers before it sends, so such an id seldom comes later

What cannot be had is not known to this call; the next one asks again. That is for batches: whoever reads one event
after another would wait at each of them, and has `PromptSchemas`.
"""

from __future__ import annotations

import base64
import binascii
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

POLL_S = 0.2
ASKED_MAX = 200
"""New ids that are asked for in one call: a batch that names more is not of a producer who registers its schemas."""
ROUND = 4
"""In so many times `wait_ms` all new ids of a batch are asked for once."""
REST = 10
"""After waiting in vain for what is not registered, nobody waits for such ids for so many times as long."""
DEPTH_MAX = 16
"""References of references."""
SLOW_S = 1.0
"""Those who do not wait give it so long to answer, whatever `wait_ms` says."""
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


def open_schemas(config: Config, shelf: Shelf | None = None) -> Schemas:
    """The registry of the configuration, for batches; without one no id is known."""
    return NO_SCHEMAS if config.schemas is None else RegistrySchemas(config.schemas, shelf=shelf)


def prompt_schemas(config: Config, *, strict: bool) -> Schemas:
    """The same for whoever reads one event after another."""
    return NO_SCHEMAS if config.schemas is None else PromptSchemas(RegistrySchemas(config.schemas), strict=strict)


class RegistrySchemas:
    """A registry, asked over HTTP. One per process; not for several threads."""

    def __init__(
        self,
        settings: SchemaRegistry,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        shelf: Shelf | None = None,
    ) -> None:
        require("formats")
        self._settings = settings
        self._shelf: Shelf = shelf or NoShelf()
        self._clock, self._sleep = clock, sleep
        self._known: OrderedDict[int, Schema] = OrderedDict()
        self._client: Any = None
        self._rest_until = -1.0

    def of(self, ids: Collection[int]) -> dict[int, Schema]:
        """The schemas of these ids, as far as they can be had within `wait_ms`."""
        found = self.had(ids)
        missing = sorted(set(ids) - set(found))[:ASKED_MAX]
        if missing:
            shelved = self._shelf.had(missing)
            self._keep(shelved)
            found |= shelved
            missing = [id for id in missing if id not in found]
        if missing:
            new = self._wait_for(missing)
            self._shelf.put(new)
            found |= new
        return found

    def had(self, ids: Collection[int]) -> dict[int, Schema]:
        """The schemas of these ids that are kept."""
        found = {id: self._known[id] for id in ids if id in self._known}
        for id in found:
            self._known.move_to_end(id)
        return found

    def at_once(self, ids: Collection[int]) -> tuple[dict[int, Schema], bool]:
        """The same without waiting, and whether the registry is away, or as slow as if it were."""
        self._opened()
        found, deadline = self.had(ids), self._clock() + max(SLOW_S, self._settings.wait_ms / 1000)
        new, away = self._ask(sorted(set(ids) - set(found)), deadline)
        self._keep(new)
        return found | new, away or self._clock() > deadline

    def _wait_for(self, missing: list[int]) -> dict[int, Schema]:
        wait_s = self._settings.wait_ms / 1000
        self._opened()  # takes seconds in a process that never did it: nobody's fault, and not what is waited for
        deadline, told = self._clock() + wait_s, False
        # the first round lasts longer: while the registry answers, an id that it has must not be given up unasked
        limit = self._clock() + ROUND * max(SLOW_S, wait_s)
        found: dict[int, Schema] = {}
        while True:
            had, away = self._ask([id for id in missing if id not in found], max(limit, deadline))
            limit = deadline
            found |= had
            self._keep(had)
            left = deadline - self._clock()
            if len(found) == len(missing) or left <= 0 or (not away and self._clock() < self._rest_until):
                break
            if not told:
                absent = [id for id in missing if id not in found]
                why = "does not answer" if away else "does not have it"
                _log.warning("events wait for schema %s: the registry %s", absent[0], why)
                told = True
            self._sleep(min(POLL_S, left))
        if len(found) < len(missing) and not away:
            self._rest_until = self._clock() + REST * wait_s
        return found

    def _ask(self, ids: list[int], deadline: float) -> tuple[dict[int, Schema], bool]:
        """What the registry has of these ids, and whether it is away."""
        found: dict[int, Schema] = {}
        # those of a registry count up from 1: what it has comes before what somebody made up
        for number, id in enumerate(ids):
            if number and self._clock() > deadline:
                break
            try:
                schema = self._fetch(id)
            except OSError:
                return found, True
            if schema is not None:
                found[id] = schema
        return found, False

    def _keep(self, had: dict[int, Schema]) -> None:
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

    def _opened(self) -> Any:
        if self._client is None:
            from confluent_kafka.schema_registry import SchemaRegistryClient

            # waiting and asking again are done here, within a bound
            ours = {"timeout": max(0.5, self._settings.wait_ms / 1000), "max.retries": 0}
            self._client = SchemaRegistryClient({**ours, **self._settings.settings, "url": self._settings.url})
        return self._client

    def _fetch(self, id: int) -> Schema | None:
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

        client = self._opened()
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
            found, away = self._registry.at_once(wanted)
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
