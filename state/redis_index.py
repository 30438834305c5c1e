"""The hot index in Redis: the one module of `state` that does I/O. Redis may be lost at any moment; nothing else is.

Layout (prefix `hilcast`, in a cluster `{hilcast}`; also under the key `hilcast:help`):

    hilcast:generations:DEPLOYMENT       hash: current -> GENERATION.RUNID, what routing goes by; GENERATION -> JSON:
                                         the configuration that it has in common with other deployments
    hilcast:vector:DEPLOYMENT:GENERATION hash: BROKER/TYPE/PART -> GENERATION.BATCH.RUNID, one field per part, always;
                                         //writes -> how many writes there were (`index_mark.py`)
    hilcast:changes:DEPLOYMENT:GENERATION sorted set: each field of the vector by the count of its last write, so that
                                         whoever knows the vector of a count reads what came since
    hilcast:BROKER:TYPE:PART:index:GENERATION    packed index, headed by epoch and checksum, for the route workers
    hilcast:BROKER:TYPE:PART:deltas:GENERATION   list: what the index is now, then what changed of it since, each headed
                                         in the same way (`index_delta.py`)
    hilcast:BROKER:TYPE:PART:meta        hash: generation, epoch, built, entries ... for people
    hilcast:BROKER:TYPE:PART:local       hash: subscription id -> client, destination, boxes
    hilcast:BROKER:TYPE:PART:links       hash: neighbour -> what it asked for
    hilcast:BROKER:TYPE:PART:forwarding:NEIGHBOUR    hash: entry -> JSON: how (forwarded, covered, merged), by
    hilcast:BROKER:TYPE:PART:reduction:NEIGHBOUR     hash: entries received, forwarded, withheld ..., bytes of state
    hilcast:grid:TYPE                    JSON: the Hilbert grid, for clients that map by themselves
    hilcast:schemas:REGISTRY             hash: id -> a schema of that registry, so that new workers need not ask it
    hilcast:BROKER:groups                hash: shared topic -> the clients that read it
    hilcast:BROKER:groups:index:GENERATION       the same, packed
    hilcast:hand:DEPLOYMENT:QUERY        JSON: the records that a query has in hand, while it is done carefully
    hilcast:closed:DEPLOYMENT:GENERATION  sealed JSON: destinations that nothing can be written to now -> the reason

Where there is a signing key (`signing.py`), an index bears a signature between epoch and content, and the hash of
generations a field NAME:signature for each of its fields. What is not genuine counts as lost.

A generation is written aside, whole, before `current` moves to it; then those before it go. What people read is of the
generation that was written last. Index or delta and vector entry are written by one script that refuses a lower batch,
and any generation below the one in force; a delta also where the part is at another version than the one that was
looked at and found to be what the delta was made from: then all of the part is written. An entry counts only under the
run id of the Redis that is up now: after a restart from an old dump everything is written again. A replica counts for
nothing, and neither does what was written to a Redis before it was one.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec
import redis

from state.compiled_part import NOTHING, CompiledPart, load_part
from state.config import Config
from state.control.fates import READABLE_MAX
from state.errors import HilcastError
from state.formats import UNREADABLE
from state.index_delta import Head, IndexDelta, amended, decode_delta, led_on
from state.keys import Key
from state.redis_client import key_prefix, open_redis
from state.reductions.reduction import Fate
from state.signing import SIGNATURE_BYTES, Keyring
from state.space.grid import Grid
from state.space.packing import unpack

Forwarding = Mapping[str, Mapping[str, Fate]]
"""By neighbour: what became of each entry (`state/control/fates.py`)."""
Reduced = Mapping[str, Mapping[str, int]]
"""By neighbour: the same in numbers."""
Figures = Mapping[str, int | float]
"""What is counted, by name."""
NO_FIGURES: Figures = MappingProxyType({})

WRITES = "//writes"
"""The field of the version vector that counts its writes, as a version: 0, count, lineage (`index_mark.py`)."""
CLOSED = "//closed"
"""The field of the version vector that tells of closed destinations."""
DELETE_MAX = 1000
GENERATIONS_AHEAD = 4
"""So many behind the one in force are looked at for one that is being built: some may have come to nothing."""
READS_MAX = 3
"""So often an index is read that is folded while it is read."""
WHOLE = "whole"
"""What the script says where a delta cannot be written."""
MGET_MAX = 16
"""Parts asked for at once: a large index is not copied whole by Redis, nor held twice here."""
_PUBLISH = """
local current = redis.call('HGET', KEYS[3], 'current')
if current then
  local generation, run = string.match(current, '^(%d+)%.(.*)$')
  if run == ARGV[4] and tonumber(generation) > tonumber(ARGV[2]) then
    return generation
  end
end
local old = redis.call('HGET', KEYS[1], ARGV[1])
if old then
  local batch, run = string.match(old, '^%d+%.(%d+)%.(.*)$')
  if run == ARGV[4] and tonumber(batch) > tonumber(ARGV[3]) then
    return old
  end
end
if ARGV[7] ~= '' then
  if old ~= ARGV[7] or redis.call('LINDEX', KEYS[5], 0) ~= ARGV[8] or redis.call('EXISTS', KEYS[2]) == 0 then
    return 'whole'
  end
  redis.call('LSET', KEYS[5], 0, ARGV[9])
else
  redis.call('SET', KEYS[2], ARGV[5])
  if KEYS[5] ~= KEYS[2] then
    redis.call('DEL', KEYS[5])
  end
  if ARGV[9] ~= '' then
    redis.call('RPUSH', KEYS[5], ARGV[9])
  end
end
for i = 10, #ARGV do
  redis.call('RPUSH', KEYS[5], ARGV[i])
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2] .. '.' .. ARGV[3] .. '.' .. ARGV[4])
local writes, lineage = string.match(redis.call('HGET', KEYS[1], '//writes') or '', '^0%.(%d+)%.(.*)$')
if not lineage then
  redis.call('DEL', KEYS[4])
end
local count = tonumber(writes or '0') + 1
redis.call('HSET', KEYS[1], '//writes', string.format('0.%d.%s', count, lineage or ARGV[6]))
redis.call('ZADD', KEYS[4], count, ARGV[1])
return ''
"""
"""Writes all of an index and deltas that lead to it, or deltas to follow those that there are (ARGV[7], ARGV[8]: the
version and head that they follow). Returns the newer version that stands against it, `whole` where these are others, or
nothing. What it writes first is a SET or LSET: a Redis that is full refuses a script at its first write, unless that
only removes.
"""
_CHANGED = """
local stored = redis.call('HGET', KEYS[1], '//writes') or ''
local writes, lineage = string.match(stored, '^0%.(%d+)%.(.*)$')
local last = redis.call('ZREVRANGE', KEYS[2], 0, 0, 'WITHSCORES')[2]
local whole = redis.call('ZCARD', KEYS[2]) == redis.call('HLEN', KEYS[1]) - 1
if writes and lineage == ARGV[2] and tonumber(writes) >= tonumber(ARGV[1]) and whole and last == writes then
  local fields = redis.call('ZRANGEBYSCORE', KEYS[2], '(' .. ARGV[1], '+inf')
  local found = {'//writes', stored}
  for _, field in ipairs(fields) do
    local version = redis.call('HGET', KEYS[1], field)
    if not version then
      return {'all', redis.call('HGETALL', KEYS[1])}
    end
    found[#found + 1] = field
    found[#found + 1] = version
  end
  return {'some', found}
end
return {'all', redis.call('HGETALL', KEYS[1])}
"""
"""Returns what the vector says that was written after a count of a lineage; all of it where that is not known for
certain: there every field must be in the sorted set, the last one under the present count."""
_SHOW = """
for i = 2, #ARGV, 2 do
  if redis.call('HEXISTS', KEYS[1], ARGV[i]) == 1 or redis.call('HLEN', KEYS[1]) < tonumber(ARGV[1]) then
    redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
  end
end
"""
"""Shows entries to people: those that are shown already, and others while there is room."""
_POINT = """
local old = redis.call('HGET', KEYS[1], 'current')
if old then
  local generation, run = string.match(old, '^(%d+)%.(.*)$')
  if run == ARGV[2] and tonumber(generation) > tonumber(ARGV[1]) then
    return generation
  end
end
redis.call('HSET', KEYS[1], 'current', ARGV[1] .. '.' .. ARGV[2], ARGV[1], ARGV[3])
if ARGV[4] ~= '' then
  redis.call('HSET', KEYS[1], 'current:signature', ARGV[4], ARGV[1] .. ':signature', ARGV[5])
end
return ''
"""
"""Returns the newer generation that stands against it, or nothing."""

HELP = """hilcast keeps its routing index here. It is derived: everything can be deleted, and comes back by itself.
{p}:generations:DEPLOYMENT   hash: current -> GENERATION.RUNID that is in force; GENERATION -> its configuration
{p}:vector:DEPLOYMENT:GENERATION   hash, BROKER/TYPE/PART -> GENERATION.BATCH.RUNID: the version of every part's index
{p}:changes:DEPLOYMENT:GENERATION  sorted set of the same fields: which were written last (not for people)
{p}:BROKER:TYPE:PART:meta    hash: generation, epoch, time of building, number of subscriptions, boxes, links
{p}:BROKER:TYPE:PART:local   hash: id of a subscription entered at this broker -> client, destination, boxes
{p}:BROKER:TYPE:PART:links   hash: neighbour -> what it asked for (boxes or Hilbert ranges)
{p}:BROKER:TYPE:PART:forwarding:NEIGHBOUR   hash: entry -> JSON: how (forwarded, covered, merged, held-back), by
                             which entries or ranges the neighbour holds it, how many more there are
{p}:BROKER:TYPE:PART:reduction:NEIGHBOUR    hash: the same in numbers: entries received, forwarded, withheld,
                             held_back (no advertisement meets them), ranges, negative_boxes, bytes of state
{p}:BROKER:TYPE:PART:index:GENERATION   packed form of the same for the route workers (not for people)
{p}:BROKER:TYPE:PART:deltas:GENERATION  list of what changed of it since (not for people)
{p}:grid:TYPE                JSON: the Hilbert grid of a type, for clients that map by themselves
{p}:schemas:REGISTRY         hash: id -> JSON: a schema that events name, as the schema registry gave it
{p}:BROKER:groups            hash: group or broadcast topic -> the clients that read it (brokers with groups)
{p}:hand:DEPLOYMENT:QUERY    JSON: records that a query has in hand, while it looks for one that it cannot get past
{p}:closed:DEPLOYMENT:GENERATION   destinations that nothing can be written to now, and why (not for people)
PART is cube:N (a block of the Hilbert grid) or wide:N (filters that touch many cubes).
At most {n} entries of a part are shown. The same and more: hilcast inspect BROKER TYPE"""


def away(error: redis.RedisError) -> HilcastError:
    """What users are told when Redis does not answer."""
    return HilcastError("redis-away", f"Redis does not answer ({type(error).__name__}): see `hilcast doctor`")


@dataclass(frozen=True, slots=True)
class Version:
    """The version of a part's index: generation, control batch, and the Redis run it was written under."""

    generation: int
    batch: int
    run: str

    @classmethod
    def parse(cls, text: bytes) -> Version:
        generation, batch, run = text.decode().split(".", 2)
        return cls(int(generation), int(batch), run)

    @property
    def epoch(self) -> str:
        return f"{self.generation}.{self.batch}"


@dataclass(frozen=True, slots=True)
class Look:
    """The version vector of a generation at one moment."""

    run: str
    """Which Redis answered."""
    in_force: int | None
    """The generation that routing goes by."""
    generation: int
    """The one whose vector this is."""
    versions: Mapping[str, Version]
    changed: frozenset[str] | None = None
    """Fields that were written since the look that was known; None: all of it was read."""

    @property
    def writes(self) -> Version | None:
        """How many writes there were, and of which lineage."""
        return self.versions.get(WRITES)


class Holding(NamedTuple):
    """Which state of a part somebody holds."""

    stamp: bytes
    at: int
    """How many deltas stood there when it was read; a hint at where the next one stands."""


class Loaded(NamedTuple):
    """What was read of a part's index."""

    epoch: str
    holding: Holding
    """What is held once it is taken in."""
    part: CompiledPart | None
    """All of it, before `deltas`; None: these lead on from what was held."""
    deltas: list[IndexDelta]

    def whole(self) -> CompiledPart:
        """All of the index."""
        assert self.part is not None, "what was held is not known here"
        return amended(self.part, self.deltas)


class RedisIndex:
    """Reads and writes the index of one deployment."""

    def __init__(
        self, config: Config, *, timeout_s: float = 5.0, keys: Callable[[], Keyring | None] = lambda: None
    ) -> None:
        """`keys`: what is signed with, and judged by; who has none, as a person who looks, takes everything."""
        self._keys = keys
        self.forged = 0
        """How often something was met that is not genuine."""
        self.prefix = key_prefix(config)
        self.deployment = config.deployment.name
        limits = {"socket_timeout": timeout_s, "socket_connect_timeout": timeout_s}
        self._client: Any = open_redis(config, health_check_interval=0, **limits)
        self._publish = self._client.register_script(_PUBLISH)
        self._point = self._client.register_script(_POINT)
        self._looked: Look | None = None
        self._beside: dict[str, int] = {}
        """By field of the vector that is no part's: the version that was last written here."""

    @property
    def _generations(self) -> str:
        return f"{self.prefix}:generations:{self.deployment}"

    def vector_key(self, generation: int | str) -> str:
        return f"{self.prefix}:vector:{self.deployment}:{generation}"

    def _changes_key(self, generation: int | str) -> str:
        return f"{self.prefix}:changes:{self.deployment}:{generation}"

    def _name(self, key: Key, what: str) -> str:
        return f"{self.prefix}:{key.broker}:{key.type}:{key.part}:{what}"

    def run_id(self) -> str:
        """Which Redis this is: its process, and the history of its data."""
        return self._together(self._client.pipeline(transaction=False))[0]

    def _together(self, pipe: Any) -> tuple[str, list[Any]]:
        """Which Redis answers, and what it answers to these commands, in one trip."""
        pipe.info("server")
        pipe.info("replication")
        with self._anew():
            *answers, server, replication = pipe.execute()
            return _primary(server, replication), answers

    # ── writing ─────────────────────────────────────────────────────────────────────────────────────────────────

    def publish(
        self,
        parts: Mapping[Key, bytes],
        generation: int,
        batch: int,
        forwarding: Mapping[Key, Forwarding] | None = None,
        reduced: Mapping[Key, Reduced] | None = None,
        figures: Figures = NO_FIGURES,
    ) -> None:
        """Write these parts' indexes and readable forms.

        `forwarding` and `reduced` replace what is said of the neighbours that they name, and leave that of others;
        `figures` are added to the live ones (`count`) in the same trip.
        Guarantee: once this returns, tasks that begin use these; `index-superseded` if Redis holds newer ones.
        """
        run = self.run_id()
        pipe = self._client.pipeline(transaction=False)
        for key, blob in parts.items():
            part = load_part(blob)
            self._write_part(key, blob, part, [], generation, batch, run)
            self._describe(pipe, key, part, generation, batch)
        self._tell_people(pipe, forwarding or {}, reduced or {}, figures)

    def publish_deltas(
        self,
        key: Key,
        deltas: Sequence[bytes],
        whole: Callable[[], bytes],
        generation: int,
        batch: int,
        forwarding: Forwarding,
        reduced: Reduced,
        figures: Figures = NO_FIGURES,
    ) -> int:
        """Write what changed of a part's index; return how many bytes of the index were written, which is counted.

        All of it is written (`whole`) where Redis does not hold what was changed, or where it is time to fold.

        Guarantee: as `publish`; a delta is only written on exactly the version that it was made from.
        """
        read = [decode_delta(delta) for delta in deltas]
        pipe = self._client.pipeline(transaction=False)
        run, version, head = self._head(key, generation)
        size = sum(map(len, deltas))
        if version == Version(generation, batch, run) and head is not None and head.stamp == read[-1].stamp:
            size = 0  # a batch that is repeated: it was written before
        elif not self._append(key, deltas, read, (version, head), Version(generation, batch, run)):
            blob = whole()
            size = len(blob)
            part = load_part(blob)
            self._write_part(key, blob, part, deltas, generation, batch, run)
            self._describe(pipe, key, part, generation, batch)
            read = []
        for delta in read:
            self._describe_delta(pipe, key, delta, generation, batch)
        self._tell_people(pipe, {key: forwarding}, {key: reduced}, {**figures, "index_bytes_written": size})
        return size

    def _head(self, key: Key, generation: int) -> tuple[str, Version | None, Head | None]:
        """Which Redis this is, the version of a part, and what stands before its deltas."""
        pipe = self._client.pipeline(transaction=False)
        pipe.hget(self.vector_key(generation), str(key))
        pipe.lindex(self._name(key, f"deltas:{generation}"), 0)
        run, (version, head) = self._together(pipe)
        return run, _versions({b"": version or b""}).get(""), Head.parse(head or b"")

    def _append(
        self,
        key: Key,
        deltas: Sequence[bytes],
        read: Sequence[IndexDelta],
        found: tuple[Version | None, Head | None],
        ours: Version,
    ) -> bool:
        """Write deltas behind those that there are; return whether they follow these, and it is no time to fold."""
        version, head = found
        if version is None or head is None or (version.generation, version.run) != (ours.generation, ours.run):
            return False
        after = head.after(read, sum(map(len, deltas)))
        if after is None:
            return False
        stored = f"{version.epoch}.{version.run}"
        said = self._script(
            str(key),
            self._name(key, f"index:{ours.generation}"),
            ours,
            b"",
            [stored, bytes(head), bytes(after)],
            deltas,
        )
        if said not in ("", WHOLE):
            # the same is said of the whole, and judged there
            return False
        return not said

    def _write_part(
        self,
        key: Key,
        blob: bytes,
        part: CompiledPart,
        deltas: Sequence[bytes],
        generation: int,
        batch: int,
        run: str,
    ) -> None:
        """Write all of an index, and beside it the deltas that lead to it: who holds what was before takes these."""
        head, beside = Head.of(part, deltas)
        name = self._name(key, f"index:{generation}")
        newer = self._write(str(key), name, Version(generation, batch, run), blob, bytes(head), beside)
        if newer:
            raise _superseded(key, newer, f"{generation}.{batch}")

    def _write(
        self, field: str, name: str, version: Version, blob: bytes, head: bytes = b"", deltas: Sequence[bytes] = ()
    ) -> str:
        """Write one sealed blob and its entry of the vector; return the newer version that stands against it."""
        while True:
            newer = self._script(field, name, version, blob, ["", "", head], deltas)
            ours = not newer or self._keys() is None
            if ours or not self._clear(field, name, version.generation, newer, version.run):
                return newer

    def _script(
        self,
        field: str,
        name: str,
        version: Version,
        blob: bytes,
        heads: Sequence[str | bytes],
        deltas: Sequence[bytes],
    ) -> str:
        """Have the script write, everything sealed under its name; return what it says."""
        ring, generation, run = self._keys(), version.generation, version.run
        beside = _beside(name, generation)
        sealed = [_seal(blob, generation, version.batch, name, run, ring)]
        sealed += [_seal(delta, generation, version.batch, beside, run, ring) for delta in deltas]
        keys = [self.vector_key(generation), name, self._generations, self._changes_key(generation), beside]
        args = [field, generation, version.batch, run, sealed[0], uuid.uuid4().hex, *heads, *sealed[1:]]
        with self._anew():
            return bytes(self._publish(keys=keys, args=args)).decode()

    def _clear(self, field: str, name: str, generation: int, newer: str, run: str) -> bool:
        """Take away what stands against an index of ours, if nobody of ours has written it; return whether it was so.

        A pointer is signed itself; an entry of the vector is borne out by an index of at least its version.
        """
        if newer.isdigit():
            return self._clear_pointer(run)
        claimed = _versions({b"": newer.encode()}).get("")
        if claimed is not None and self._borne_out(name, generation, run) >= claimed.batch:
            return False
        self.forged += 1
        self._client.hdel(self.vector_key(generation), field)  # the set of changes is then not whole: all is read
        return True

    def _borne_out(self, name: str, generation: int, run: str) -> int:
        """The newest batch that wrote an index, or a delta of it, that is genuine; -1: none."""
        ring, beside = self._keys(), _beside(name, generation)
        sealed = [(name, self._client.get(name))]
        sealed += [(beside, one) for one in self._client.lrange(beside, 1, -1)] if beside != name else []
        opened = [_opened(blob, of, run, ring) for of, blob in sealed]
        return max((_batch(one[0]) for one in opened if one is not None), default=-1)

    def _clear_pointer(self, run: str) -> bool:
        """Take away the pointer if nobody of ours has written it; return whether it was so."""
        stored, signature = self._client.hmget(self._generations, "current", "current:signature")
        if stored is None or _pointed(self._genuine("current", stored, signature), run) is not None:
            return False
        self._client.hdel(self._generations, "current", "current:signature")
        return True

    def _genuine(self, field: str, stored: bytes | None, signature: bytes | None) -> bytes | None:
        """A field of the hash of generations, if it is signed as it must be."""
        ring = self._keys()
        if stored is None or ring is None or ring.believes(signature, b"pointer", *self._field(field, stored)):
            return stored
        self.forged += 1
        return None

    def _field(self, field: str, stored: bytes) -> tuple[bytes, bytes, bytes]:
        return self._generations.encode(), field.encode(), stored

    @contextlib.contextmanager
    def _anew(self) -> Iterator[None]:
        """Whoever refuses may no longer be the one in force: the next call then connects anew."""
        try:
            yield
        except redis.RedisError:
            self._client.connection_pool.disconnect()
            raise

    def _describe(self, pipe: Any, key: Key, part: CompiledPart, generation: int, batch: int) -> None:
        """Write what people read of a part; in a plain pipeline, since nothing depends on it."""
        for what in ("meta", "local", "links"):
            pipe.delete(self._name(key, what))
        pipe.hset(self._name(key, "meta"), mapping=_meta(_counts(part), generation, batch))
        local = _local(part, READABLE_MAX)
        if local:
            pipe.hset(self._name(key, "local"), mapping=local)
        links = {n: f"{len(unpack(g))} {_noun(g.kind)}" for n, g in part.links.items()}
        if links:
            pipe.hset(self._name(key, "links"), mapping=links)
        pipe.set(f"{self.prefix}:help", HELP.format(p=self.prefix, n=READABLE_MAX))

    def _describe_delta(self, pipe: Any, key: Key, delta: IndexDelta, generation: int, batch: int) -> None:
        """Write what people read of what changed of a part."""
        pipe.hset(self._name(key, "meta"), mapping=_meta(delta.counts, generation, batch))
        if delta.gone:
            pipe.hdel(self._name(key, "local"), *delta.gone)
        local = [text for shown in _local(delta.put, len(delta.put.ids)).items() for text in shown]
        if local:
            # not as a registered script: that would cost a pipeline one trip more
            pipe.eval(_SHOW, 1, self._name(key, "local"), READABLE_MAX, *local)
        kinds = {n: _noun(g.kind) for n, g in (delta.links_gone | delta.put.links).items()}
        links = {n: f"{count} {kinds[n]}" for n, count in delta.asked.items() if count}
        if links:
            pipe.hset(self._name(key, "links"), mapping=links)
        if len(links) < len(delta.asked):
            pipe.hdel(self._name(key, "links"), *(n for n in delta.asked if n not in links))

    def _tell_people(
        self, pipe: Any, forwarding: Mapping[Key, Forwarding], reduced: Mapping[Key, Reduced], figures: Figures
    ) -> None:
        self._tell(pipe, "forwarding", {key: _as_json(told) for key, told in forwarding.items()})
        self._tell(pipe, "reduction", reduced)
        self._add(pipe, figures)
        pipe.execute()

    def _tell(self, pipe: Any, what: str, told: Mapping[Key, Mapping[str, Mapping[str, bytes | int]]]) -> None:
        """Replace what people read of these neighbours."""
        for key, by_neighbour in told.items():
            for neighbour, fields in by_neighbour.items():
                pipe.delete(self._name(key, f"{what}:{neighbour}"))
                if fields:
                    pipe.hset(self._name(key, f"{what}:{neighbour}"), mapping=dict(fields))

    def describe_grids(self, grids: Mapping[str, Grid]) -> None:
        """Let clients fetch the grids ([MICS09] §6.1)."""
        pipe = self._client.pipeline(transaction=False)
        for name, grid in grids.items():
            pipe.set(f"{self.prefix}:grid:{name}", json.dumps(grid.describe()))
        pipe.execute()

    def publish_groups(self, broker: str, generation: int, blob: bytes, readers: Mapping[str, Sequence[str]]) -> None:
        """Hand the assignment of a broker's clients to shared topics to the route workers.

        Guarantee: once this returns, tasks that begin use this assignment, whatever the clock did since the last one.
        """
        self._write_beside(groups_field(broker), generation, blob)
        pipe = self._client.pipeline(transaction=False)
        pipe.delete(f"{self.prefix}:{broker}:groups")
        if readers:
            shown = {topic: _some(clients) for topic, clients in readers.items()}
            pipe.hset(f"{self.prefix}:{broker}:groups", mapping=shown)
        pipe.execute()

    def close_destinations(self, generation: int, closed: Mapping[str, str]) -> None:
        """Tell the route workers which destinations nothing can be written to now, and why.

        Guarantee: once this returns, tasks that begin use these and no others.
        """
        self._write_beside(CLOSED, generation, json.dumps(dict(closed)).encode())

    def _write_beside(self, field: str, generation: int, blob: bytes) -> None:
        """Write something that is no part's index, under a version that no worker has seen yet."""
        run, vector = self.followed(generation)
        before = vector.get(field)
        # a version that workers have seen already, or a lower one, would be passed over: they would use the old one
        last = max(self._beside.get(field, 0), 0 if before is None else before.batch)
        version = self._beside[field] = last + 1
        newer = self._write(field, self._name_beside(field, generation), Version(generation, version, run), blob)
        if newer:
            raise _superseded(field, newer, f"{generation}.{version}")

    def _name_beside(self, field: str, generation: int) -> str:
        broker = field.split("//")[0]
        if not broker:
            return f"{self.prefix}:closed:{self.deployment}:{generation}"
        return f"{self.prefix}:{broker}:groups:index:{generation}"

    def point(self, generation: int, shared: bytes) -> None:
        """Have routing go by a generation, whose index must be complete, from its next task on.

        `index-superseded`: a later one is in force already.
        """
        run, ring = self.run_id(), self._keys()
        fields = {"current": f"{generation}.{run}".encode(), str(generation): shared}
        signatures = [b"" if ring is None else ring.sign(b"pointer", *self._field(*one)) for one in fields.items()]
        while True:
            with self._anew():
                newer = self._point(keys=[self._generations], args=[generation, run, shared, *signatures])
            if not newer or ring is None or not self._clear_pointer(run):
                break
        if newer:
            raise _superseded("routing", bytes(newer).decode(), str(generation))

    def disown(self, generation: int) -> None:
        """Have nobody go by what is here of a generation: it is older than what was in force."""
        self._client.delete(self.vector_key(generation), self._changes_key(generation))

    def retire(self, generation: int, keys: Iterable[Key]) -> None:
        """Drop all generations but this one, and what people read of parts that it does not have."""
        wanted = {str(key) for key in keys}
        gone: set[str] = set()
        # also of generations that were never in force: their job died before
        for name in list(self._client.scan_iter(match=self.vector_key("*"), count=1000)):
            number = name.decode("utf-8", "replace").rsplit(":", 1)[1]
            if number.isdecimal() and int(number) < generation:
                gone |= self._drop(int(number)) - wanted
        if not gone:
            return
        for name in self._client.scan_iter(match=f"{self.prefix}:*:*:*:*", count=1000):
            broker, type_name, kind, number = name.decode().split(":")[1:5]
            if f"{broker}/{type_name}/{kind}:{number}" in gone:
                self._client.delete(name)

    def _drop(self, generation: int) -> set[str]:
        """Drop the index of a generation; return the parts that it had."""
        fields = [field.decode() for field in self._client.hkeys(self.vector_key(generation))]
        parts = [field for field in fields if "//" not in field]
        names = [self._name(Key.parse(part), f"{what}:{generation}") for part in parts for what in ("index", "deltas")]
        names += [self._name_beside(field, generation) for field in fields if "//" in field and field != WRITES]
        for first in range(0, len(names), DELETE_MAX):
            self._client.delete(*names[first : first + DELETE_MAX])
        self._client.delete(self.vector_key(generation), self._changes_key(generation))
        self._client.hdel(self._generations, str(generation), f"{generation}:signature")
        return set(parts)

    # ── reading ─────────────────────────────────────────────────────────────────────────────────────────────────

    def current(self) -> tuple[str, int | None]:
        """The present run id, and the generation that is in force under it; None where Redis has lost that."""
        pipe = self._client.pipeline(transaction=False)
        pipe.hmget(self._generations, "current", "current:signature")
        run, (stored,) = self._together(pipe)
        return run, _pointed(self._genuine("current", *stored), run)

    def look(self, generation: int, known: Look | None = None) -> Look:
        """The present run id, the generation in force, and the version of every part of this one, in one trip.

        Guarantee: the same as if all of it had been read, though of a vector that is `known` only what was written
        since is read: nothing where nothing was. Another run, another lineage and a set of changes that lacks anything
        have all of it read. Cost: fields that changed; a copy of the vector in memory where any has.
        """
        pipe = self._client.pipeline(transaction=False)
        pipe.hmget(self._generations, "current", "current:signature")
        if known is None or known.generation != generation or known.writes is None:
            pipe.hgetall(self.vector_key(generation))  # who may only look may run no script
            run, (stored, read) = self._together(pipe)
            return Look(run, _pointed(self._genuine("current", *stored), run), generation, _versions(read))
        keys = [self.vector_key(generation), self._changes_key(generation)]
        # not as a registered script: that would cost a pipeline one trip more
        pipe.eval(_CHANGED, len(keys), *keys, known.writes.batch, known.writes.run)
        run, (stored, (how, flat)) = self._together(pipe)
        entries = _versions(dict(zip(flat[::2], flat[1::2], strict=True)))
        in_force = _pointed(self._genuine("current", *stored), run)
        if how != b"some":
            return Look(run, in_force, generation, entries)
        if run != known.run:  # a copy of it, perhaps: what was known of the other counts for nothing
            return self.look(generation)
        changed = frozenset(entries) - {WRITES}
        versions = {**known.versions, **entries} if changed else known.versions
        return Look(run, in_force, generation, versions, changed)

    def configuration(self, generation: int) -> bytes | None:
        """What a generation's configuration has in common with other deployments (`Config.shared`)."""
        stored = self._client.hmget(self._generations, str(generation), f"{generation}:signature")
        return self._genuine(str(generation), *stored)

    def vector(self, generation: int) -> tuple[str, Mapping[str, Version]]:
        """The present run id and the version of every part of a generation, read together."""
        look = self.look(generation)
        return look.run, look.versions

    def followed(self, generation: int) -> tuple[str, Mapping[str, Version]]:
        """The same for who asks again and again: what was read before is remembered, and not read again."""
        look = self._looked = self.look(generation, self._looked)
        return look.run, look.versions

    def newest_generation(self) -> int:
        """The newest generation of which anything is stored, 0 if nothing is."""
        stored = self._client.hgetall(self._generations)
        numbers = [field.decode() for field in stored if field.isdigit()]
        known = [n for n in numbers if self._genuine(n, stored[n.encode()], stored.get(f"{n}:signature".encode()))]
        return max(map(int, known), default=0)

    def building(self, current: int | None) -> tuple[int, int] | None:
        """The generation that is being built beside the one in force, and how many parts of its index are written."""
        ahead = range((current or 0) + 1, (current or 0) + 1 + GENERATIONS_AHEAD)
        pipe = self._client.pipeline(transaction=False)
        for generation in ahead:
            pipe.hkeys(self.vector_key(generation))
        written = [sum(b"//" not in field for field in fields) for fields in pipe.execute()]
        return next(((n, parts) for n, parts in zip(reversed(ahead), reversed(written), strict=True) if parts), None)

    def load(self, keys: Sequence[Key], generation: int, run: str = "") -> list[tuple[str, CompiledPart] | None]:
        """Epoch and index of each part; None where it is missing, damaged, or not signed under this run of Redis."""
        found = self.follow(dict.fromkeys(keys), generation, run)
        return [None if one is None else (one.epoch, one.whole()) for one in found]

    def follow(self, held: Mapping[Key, Holding | None], generation: int, run: str = "") -> list[Loaded | None]:
        """What leads on from what is held of each part, or all of it where nothing does; None as `load` has it.

        Guarantee: what it leads to was in Redis at some moment since this was called.
        Cost: where the state that is held is still known there, that of what was written since.
        """
        keys, found = list(held), dict[Key, Loaded | None]()
        for first in range(0, len(keys), MGET_MAX):
            some = {key: held[key] for key in keys[first : first + MGET_MAX]}
            known = {key: holding for key, holding in some.items() if holding is not None}
            found |= self._led_on(known, [holding.at for holding in known.values()], generation, run)[0]
            for _ in range(READS_MAX):
                left = {key: holding for key, holding in some.items() if key not in found}
                found |= self._whole(left, generation, run) if left else {}
        return [found.get(key) for key in keys]

    def _led_on(
        self, held: Mapping[Key, Holding | None], places: Sequence[int], generation: int, run: str
    ) -> tuple[dict[Key, Loaded], dict[Key, list[tuple[str, IndexDelta]] | None]]:
        """What the deltas from some place on lead to from what is held; and the deltas of each part, if sound."""
        names = [self._name(key, f"deltas:{generation}") for key in held]
        pipe = self._client.pipeline(transaction=False)
        for name, place in zip(names, places, strict=True):
            pipe.lrange(name, 1 + place, -1)
        found, read = dict[Key, Loaded](), dict[Key, list[tuple[str, IndexDelta]] | None]()
        answers = pipe.execute() if names else []
        for (key, holding), name, place, stored in zip(held.items(), names, places, answers, strict=True):
            opened = [self._open(one, name, run) for one in stored]
            sound = [(one[0], decode_delta(one[1])) for one in opened if one is not None]
            read[key] = sound if len(sound) == len(opened) else None
            lead = None if holding is None else led_on(holding.stamp, [delta for _, delta in sound])
            if lead and read[key] is not None:
                found[key] = Loaded(sound[-1][0], Holding(lead[-1].stamp, place + len(sound)), None, lead)
        return found, read

    def _whole(self, held: Mapping[Key, Holding | None], generation: int, run: str) -> dict[Key, Loaded | None]:
        """All of the index of each part, less where deltas lead on; None where something is lost or damaged.

        A part that is not in what is returned was folded between two reads: base and deltas do not fit each other.
        """
        led, read = self._led_on(held, [0] * len(held), generation, run)
        found: dict[Key, Loaded | None] = dict(led)
        left = [key for key in held if key not in found]
        names = [self._name(key, f"index:{generation}") for key in left]
        for key, name, blob in zip(left, names, self._client.mget(names) if names else [], strict=True):
            opened, deltas = self._open(blob, name, run), read[key]
            if opened is None or deltas is None:
                found[key] = None
                continue
            part, holding = load_part(opened[1]), held[key]
            lead = led_on(part.stamp, [delta for _, delta in deltas])
            if lead is not None:
                epoch, stamp = (deltas[-1][0], lead[-1].stamp) if lead else (opened[0], part.stamp)
                now = Holding(stamp, len(deltas))
                same = holding is not None and holding.stamp == stamp != NOTHING
                found[key] = Loaded(epoch, now, None, []) if same else Loaded(epoch, now, part, lead)
        return found

    def _open(self, sealed: bytes | None, name: str, run: str) -> tuple[str, bytes] | None:
        opened = _opened(sealed, name, run, self._keys())
        if opened is None and _opened(sealed, name, run, None) is not None:
            self.forged += 1
        return opened

    def newest(self, keys: Sequence[Key]) -> list[tuple[str, CompiledPart] | None]:
        """Epoch and index of each part as they were written last, whichever deployment did; for people."""
        pipe = self._client.pipeline(transaction=False)
        for key in keys:
            pipe.hget(self._name(key, "meta"), "generation")
        written = [None if stored is None else int(stored) for stored in pipe.execute()]
        return [None if n is None else self.load([key], n)[0] for key, n in zip(keys, written, strict=True)]

    def load_groups(self, broker: str, generation: int, run: str = "") -> tuple[str, bytes] | None:
        """Epoch and packed assignment of a broker; None where it is missing, damaged, or not genuine."""
        return self._load_beside(groups_field(broker), generation, run)

    def load_closed(self, generation: int, run: str = "") -> tuple[str, dict[str, str]] | None:
        """Epoch and destinations that nothing can be written to; None where it is missing, damaged, or not genuine."""
        found = self._load_beside(CLOSED, generation, run)
        return None if found is None else (found[0], json.loads(found[1]))

    def _load_beside(self, field: str, generation: int, run: str) -> tuple[str, bytes] | None:
        name = self._name_beside(field, generation)
        return self._open(self._client.get(name), name, run)

    def closed_missing(self, generation: int) -> bool:
        """Whether Redis has lost which destinations are closed, or that it was told."""
        run, vector = self.followed(generation)
        told = version_beside(vector, CLOSED, run, generation) is not None
        return not told or self.load_closed(generation, run) is None

    def groups_missing(self, brokers: Iterable[str], generation: int) -> set[str]:
        """Brokers whose assignment Redis has lost."""
        run, vector = self.followed(generation)
        fields = {broker: groups_field(broker) for broker in brokers}
        return {b for b, field in fields.items() if version_beside(vector, field, run, generation) is None}

    def groups(self, broker: str) -> dict[str, str]:
        """The shared topics of a broker and who reads them, in words."""
        stored = self._client.hgetall(f"{self.prefix}:{broker}:groups")
        return {k.decode(): v.decode() for k, v in stored.items()}

    def meta(self, key: Key) -> dict[str, str]:
        """The readable summary of one part."""
        return {k.decode(): v.decode() for k, v in self._client.hgetall(self._name(key, "meta")).items()}

    def forwarding(self, key: Key, neighbour: str, entries: Sequence[str]) -> list[Fate | None]:
        """What became of these entries of a part towards a neighbour; None where that is not known."""
        if not entries:
            return []
        told = self._client.hmget(self._name(key, f"forwarding:{neighbour}"), list(entries))
        return [None if stored is None else _fate(stored) for stored in told]

    def reduced(self, keys: Sequence[tuple[Key, str]]) -> list[dict[str, int]]:
        """What the reductions of these parts hold towards these neighbours, in numbers; empty: nothing."""
        pipe = self._client.pipeline(transaction=False)
        for key, neighbour in keys:
            pipe.hgetall(self._name(key, f"reduction:{neighbour}"))
        return [{name.decode(): int(n) for name, n in stored.items()} for stored in pipe.execute()]

    def grid(self, type_name: str) -> Grid | None:
        """The grid of a type as the running job uses it; None where Redis has none."""
        stored = self._client.get(f"{self.prefix}:grid:{type_name}")
        return None if stored is None else Grid.from_description(json.loads(stored))

    def missing(self, keys: Iterable[Key], generation: int, *, whole: bool = True) -> list[Key]:
        """Parts without a valid entry of this generation under the present run: what must be written again.

        Unless `whole`, an entry that somebody else has changed without counting it may go unnoticed.
        """
        if whole:
            self._looked = None
        run, entries = self.followed(generation)
        return [key for key in keys if (version := entries.get(str(key))) is None or version.run != run]

    def figures(self) -> dict[str, str]:
        """Live figures that the running job left for `status`."""
        stored = self._client.hgetall(f"{self.prefix}:figures:{self.deployment}")
        return {k.decode(): v.decode() for k, v in stored.items()}

    def count(self, figures: Figures) -> None:
        """Add to the live figures."""
        pipe = self._client.pipeline(transaction=False)
        self._add(pipe, figures)
        pipe.execute()

    def _add(self, pipe: Any, figures: Figures) -> None:
        for name, value in figures.items():
            pipe.hincrbyfloat(f"{self.prefix}:figures:{self.deployment}", name, value)

    def note(self, figures: Mapping[str, str | int | float]) -> None:
        """Set live figures."""
        self._client.hset(f"{self.prefix}:figures:{self.deployment}", mapping=dict(figures))

    def schemas(self, registry: str, ids: Sequence[int]) -> dict[int, bytes]:
        """Schemas of a registry that workers have put down here, as `keep_schema` was given them."""
        found = self._client.hmget(f"{self.prefix}:schemas:{registry}", [str(id) for id in ids]) if ids else []
        return {id: blob for id, blob in zip(ids, found, strict=True) if blob is not None}

    def keep_schema(self, registry: str, id: int, blob: bytes, most: int) -> None:
        """Put a schema down for other workers; where so many are there, in the place of any other."""
        name = f"{self.prefix}:schemas:{registry}"
        if self._client.hlen(name) >= most and (other := self._client.hrandfield(name)) is not None:
            self._client.hdel(name, other)
        self._client.hset(name, str(id), blob)

    def take_in_hand(self, query: str, places: Sequence[tuple[str, int, int]]) -> bool:
        """Note what a query has in hand, unless something is noted already."""
        return bool(self._client.set(self._hand(query), json.dumps([list(place) for place in places]), nx=True))

    def in_hand(self, query: str) -> list[tuple[str, int, int]]:
        """What a query has in hand, or had when it died."""
        noted = self._client.get(self._hand(query))
        return [] if noted is None else [(str(t), int(p), int(o)) for t, p, o in json.loads(noted)]

    def put_down(self, query: str) -> None:
        """Nothing is in hand any more."""
        self._client.delete(self._hand(query))

    def _hand(self, query: str) -> str:
        return f"{self.prefix}:hand:{self.deployment}:{query}"

    def ping(self) -> bool:
        return bool(self._client.ping())

    def close(self) -> None:
        self._client.close()


def _as_json(told: Forwarding) -> dict[str, dict[str, bytes]]:
    return {n: {entry: msgspec.json.encode(fate) for entry, fate in fates.items()} for n, fates in told.items()}


def _fate(stored: bytes) -> Fate | None:
    """A fate as it was written; None for what another version wrote: it is for people, and comes anew."""
    try:
        return msgspec.json.decode(stored, type=Fate)
    except UNREADABLE:
        return None


def _superseded(what: object, newer: str, ours: str) -> HilcastError:
    return HilcastError(
        "index-superseded",
        f"redis holds {newer} of {what}, which is newer than our {ours}: another job of this deployment runs (stop "
        "one), or the checkpoint was put back to an older copy (delete it: everything is rebuilt from the registry)",
    )


def _primary(server: Mapping[str, Any], replication: Mapping[str, Any]) -> str:
    """The run id of a Redis, as versions name it. One that is, or was made, a replica has other data than was written
    to it, maybe older, and under the same id of its process: so the id of its history is a part of it.
    """
    if replication.get("role", "master") != "master":
        raise redis.ConnectionError("READONLY: it is a replica")
    return f"{server['run_id']}-{str(replication.get('master_replid', ''))[:8]}"


def _pointed(stored: bytes | None, run: str) -> int | None:
    """The generation that a pointer names, if it was written under this run."""
    generation, _, written = (stored or b"").decode().partition(".")
    return int(generation) if written == run and generation.isdecimal() else None


def _versions(entries: Mapping[bytes, bytes]) -> dict[str, Version]:
    """The entries of a vector; one that is none counts as missing."""
    found = {}
    for key, value in entries.items():
        with contextlib.suppress(ValueError):
            found[key.decode()] = Version.parse(value)
    return found


def _beside(name: str, generation: int) -> str:
    """Where the deltas stand of an index of this name; what has none is its own."""
    return name.replace(f":index:{generation}", f":deltas:{generation}")


def _batch(epoch: str) -> int:
    return int(epoch.partition(".")[2])


_SIGNED = 0x80
"""The bit of an epoch's length that says that a signature follows the epoch."""


def _seal(blob: bytes, generation: int, batch: int, name: str, run: str, ring: Keyring | None) -> bytes:
    """checksum (8 bytes) | length of the epoch | epoch | perhaps a signature | blob"""
    epoch = f"{generation}.{batch}".encode()
    checksum = hashlib.blake2b(epoch + blob, digest_size=8).digest()
    if ring is None:
        return checksum + bytes([len(epoch)]) + epoch + blob
    signature = ring.sign(b"index", name.encode(), run.encode(), epoch, blob)
    return checksum + bytes([len(epoch) | _SIGNED]) + epoch + signature + blob


def _opened(sealed: bytes | None, name: str, run: str, ring: Keyring | None) -> tuple[str, bytes] | None:
    """Epoch and blob of what is whole and, where there is a key, genuine."""
    if sealed is None or len(sealed) < 10:
        return None
    end = 9 + (sealed[8] & ~_SIGNED)
    begin = end + (SIGNATURE_BYTES if sealed[8] & _SIGNED else 0)
    epoch, signature, blob = sealed[9:end], sealed[end:begin] or None, sealed[begin:]
    if hashlib.blake2b(epoch + blob, digest_size=8).digest() != sealed[:8]:
        return None
    if ring is not None and not ring.believes(signature, b"index", name.encode(), run.encode(), epoch, blob):
        return None
    return epoch.decode(), blob


def groups_field(broker: str) -> str:
    """The field of the version vector that tells of a broker's groups; no key of a part has two slashes in a row."""
    return f"{broker}//groups"


def version_beside(vector: Mapping[str, Version], field: str, run: str, generation: int) -> Version | None:
    """The version of what is no part's index, if it was written in this generation under the Redis that is up now."""
    version = vector.get(field)
    return version if version is not None and (version.run, version.generation) == (run, generation) else None


def _some(names: Sequence[str]) -> str:
    more = len(names) - READABLE_MAX
    return ", ".join(names[:READABLE_MAX]) + (f" and {more} more" if more > 0 else "")


def _noun(kind: int) -> str:
    return "ranges" if kind else "boxes"


def _meta(counts: Mapping[str, int], generation: int, batch: int) -> dict[str, str | int]:
    return {
        "generation": generation,
        "epoch": f"{generation}.{batch}",
        "built": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        **counts,
    }


def _counts(part: CompiledPart) -> dict[str, int]:
    return {
        "subscriptions": len(part.ids),
        "boxes": len(part.owners) // 4,
        "residual": len(part.residuals),
        "links": len(part.links),
        "advertisements": len(part.advertisements),
    }


def _local(part: CompiledPart, most: int) -> dict[str, str]:
    return {
        part.ids[i]: f"{part.clients[i]} -> {part.destinations[i]}"
        + (f" | {part.residuals[i]}" if i in part.residuals else "")
        for i in range(min(len(part.ids), most))
    }
