"""One door to the core: `handle` a key's records of one batch, whoever drives it.

The Spark operator and the simulator are thin drivers of this function; the rebuild drives the same homes and cubes, but
keeps them from wave to wave. It is deterministic: the same state and records give the same bytes, so that a batch
replayed after a crash repeats itself exactly.
"""

from __future__ import annotations

import msgspec

from state.compiled_part import compile_part
from state.control.context import Context, Result
from state.control.home import Home, refusal
from state.control.part import Part
from state.control.protocol import Change, Expire, Forget, Message, Republish, Resync, Seed, decode
from state.errors import HilcastError
from state.keys import UNROUTABLE, Key
from state.messages import Record, dead_letter, read_registration


def handle(key: str, state: bytes | None, records: list[Record], context: Context) -> Result:
    """Apply all records of one batch to one key.

    Records come in several frames and in no order across topics: they are sorted by (topic, partition, offset) first,
    seeds before everything else.
    """
    if key == UNROUTABLE:
        return _unroutable(records, context)
    messages: list[tuple[Record, Message | None]] = []
    bad: list[tuple[Record, str]] = []
    for record in sorted(records, key=lambda r: r.place):
        if record.topic != context.topics.control:
            messages.append((record, None))
            continue
        try:
            messages.append((record, decode(record.value or b"")))
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            bad.append((record, str(error)))
    state = _seeded(state, [m for _, m in messages if isinstance(m, Seed)])
    parsed = Key.parse(key)
    result = (_home if parsed.is_home else _cube)(parsed, state, messages, context)
    for record, reason in bad:
        result.outputs.append(dead_letter(context.topics, record, "bad-value", f"not a control message: {reason}"))
    return result


def _seeded(state: bytes | None, seeds: list[Seed]) -> bytes | None:
    """The state a generation begins with, if this batch brings it."""
    if not seeds:
        return state
    newest = max(seed.generation for seed in seeds)
    parts = {seed.part: seed.blob for seed in seeds if seed.generation == newest}
    assert len(parts) == seeds[0].parts, "a seed's parts stand together in one partition and one batch"
    return b"".join(parts[i] for i in sorted(parts))


def _home(key: Key, state: bytes | None, messages: list[tuple[Record, Message | None]], context: Context) -> Result:
    home = Home(key, state, context)
    for record, message in messages:
        if message is None:
            home.register(record)
        elif isinstance(message, Expire):
            home.expire(message)
        elif isinstance(message, Forget):
            home.forget(message)
        elif isinstance(message, Resync):
            home.resync(message)
    return home.finish()


def _cube(key: Key, state: bytes | None, messages: list[tuple[Record, Message | None]], context: Context) -> Result:
    cube = Part(key, state, context)
    publish = False
    for _, message in messages:
        if isinstance(message, Change):
            cube.apply(message)
        elif isinstance(message, Resync):
            cube.resync(message)
        elif isinstance(message, Republish | Seed):
            publish = True
    result = cube.finish()
    if publish:
        result.index = result.index or compile_part(cube.compiled())
        result.forwarding = cube.forwarding(cube.neighbours)
        result.reduced = cube.reduced(cube.neighbours)
    return result


def _unroutable(records: list[Record], context: Context) -> Result:
    """Answer what names no broker or type of ours: a refused receipt and a dead letter each."""
    result = Result(None)
    for record in sorted(records, key=lambda r: r.place):
        try:
            read_registration(record, context.config)
        except HilcastError as error:
            result.outputs.append(refusal(record, context, error, None, None))
            result.outputs.append(dead_letter(context.topics, record, error.code, error.reason))
    return result
