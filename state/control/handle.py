"""One door to the core: `handle` a key's records of one batch, whoever drives it.

The Spark operator and the simulator are thin drivers of this function; the rebuild drives the same homes and parts, but
keeps them from wave to wave. It is deterministic: the same state and records give the same bytes, so that a batch
replayed after a crash repeats itself exactly.
"""

from __future__ import annotations

from state.compiled_part import compile_part
from state.control.context import Context, Result
from state.control.home import Home, refusal
from state.control.part import Part
from state.control.protocol import Amend, Change, Expire, Forget, Message, Republish, Resync, Seed, decode
from state.control.streams import seeded
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
        except HilcastError as error:
            bad.append((record, error.reason))
    if state is None:
        state = seeded([m for _, m in messages if isinstance(m, Seed)], context.generation)
    else:
        # a key that has a state has begun: what belongs to the beginning and comes again is no new one
        messages = [(record, m) for record, m in messages if not isinstance(m, Amend)]
    parsed = Key.parse(key)
    result = (_home if parsed.is_home else _part)(parsed, state, messages, context)
    for record, reason in bad:
        result.outputs.append(dead_letter(context.topics, record, "bad-value", f"not a control message: {reason}"))
    return result


def _home(key: Key, state: bytes | None, messages: list[tuple[Record, Message | None]], context: Context) -> Result:
    home = Home(key, state, context)
    for _, message in messages:
        # they belong to the beginning, as seeds do: what the inboxes say came later
        if isinstance(message, Amend) and message.generation == context.generation:
            home.amend(message)
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


def _part(key: Key, state: bytes | None, messages: list[tuple[Record, Message | None]], context: Context) -> Result:
    part = Part(key, state, context)
    publish = False
    for _, message in messages:
        if isinstance(message, Change):
            part.apply(message)
        elif isinstance(message, Resync):
            part.resync(message)
        elif isinstance(message, Republish | Seed):
            publish = True
    result = part.finish()
    if publish:
        result.index = result.index or compile_part(part.compiled())
        result.forwarding = part.forwarding(part.neighbours)
        result.reduced = part.reduced(part.neighbours)
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
