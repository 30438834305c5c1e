"""One door to the core: `handle` a key's records of one batch, whoever drives it.

    records ── genuine, decode, plausible ──┬─> attempt: home or part ──> Result, signed
                                            └─> dead letters                └─ raises: narrowing.py

The Spark operator and the simulator are thin drivers of this function; the rebuild drives the same homes and parts, but
keeps them from wave to wave. It is deterministic: the same state and records give the same bytes, so that a batch
replayed after a crash repeats itself exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from state.compiled_part import compile_part
from state.control import home as homes
from state.control import part as parts
from state.control.context import Context, Result
from state.control.home import Home, refusal
from state.control.narrowing import narrowed
from state.control.part import Part
from state.control.plausible import existing, implausible, of_another_dialect
from state.control.protocol import (
    Amend,
    Change,
    Expire,
    Forget,
    Message,
    Renew,
    Republish,
    Resync,
    Seed,
    decode,
    encode,
)
from state.control.streams import seeded
from state.errors import ENVIRONMENT, HilcastError, Quarantined, StateUnreadable
from state.fitting import dead_letter, misfits
from state.keys import UNROUTABLE, Key
from state.messages import Output, Record, own_receipts, read_registration, receipt, speaker
from state.signing import all_signed, genuine


class Taken(NamedTuple):
    """A record that can be applied, and what it says; None: it is of an inbox."""

    record: Record
    message: Message | None


def handle(key: str, state: bytes | None, records: list[Record], context: Context) -> Result:
    """Apply all records of one batch to one key.

    Records come in several frames and in no order across topics: they are sorted by (topic, partition, offset) first,
    seeds before everything else.
    Guarantee: every output fits Kafka. No record stops a key: what cannot be used, or fails inside, is answered, and
    everything else is applied. A control record that is not signed with a key of ours, where there is one, is not even
    read. Raises `StateUnreadable` if the state is none that this version can go on with.
    """
    ordered = sorted(records, key=lambda r: r.place)
    if key == UNROUTABLE:
        every = [Taken(record, None) for record in ordered]
        result = narrowed(
            None,
            every,
            lambda _, some: _unroutable(some, context),
            lambda _, one, error: _left_out(None, None, one, error, context),
        )
    else:
        believed, forged = _judged(key, ordered, context)
        result = _handled(key, state, believed, context) if believed or forged is None else Result(state)
        result.outputs = all_signed(result.outputs, context.topics, context.keyring)
        result = result if forged is None else forged.then(result)
    if context.config.security.own:
        result.topics |= own_receipts(result.outputs, context.topics)
    return result


def _judged(key: str, records: list[Record], context: Context) -> tuple[list[Record], Result | None]:
    """The records without those that nobody of ours has written, and what becomes of these: a dead letter each."""
    if context.keyring is None:
        return records, None
    control = context.topics.control
    forged = [record for record in records if record.topic == control and not genuine(record, context.keyring)]
    if not forged:
        return records, None
    reason = "not signed with a key of this deployment"
    letters = [dead_letter(context.config, record, "forged", reason) for record in forged]
    first = forged[0]
    where = f"{first.topic}/{first.partition} offset {first.offset}"
    said = f"{key}: {len(forged)} control records are {reason}, and not used; the first at {where}"
    places = {record.place for record in forged}
    believed = [record for record in records if record.place not in places]
    return believed, Result(None, letters, figures={"forged": len(forged)}, faults=[said])


def _handled(text: str, state: bytes | None, records: list[Record], context: Context) -> Result:
    key = existing(text, context)
    if key is not None and key.broker not in context.hosts:
        key = None
    taken, letters = _sorted_out(text, key, records, context)
    if key is None or not (state or taken):
        return Result(None, letters)  # a key begins with something that can be used: with its seeds, if it has any
    if state is None:
        state, damaged = _begun(key, taken, context)
        letters += damaged
        # they belong to the beginning, as seeds do: what the inboxes say came later
        taken.sort(key=lambda one: not isinstance(one.message, Amend))
    else:
        # a key that has a state has begun: what belongs to the beginning and comes again is no new one
        taken = [one for one in taken if not isinstance(one.message, Amend)]
    home_or_part = _home if key.is_home else _part
    lost: list[Taken] = []

    def attempt(state: bytes | None, some: Sequence[Taken]) -> Result:
        _refuse_quarantined(some, context)
        result = home_or_part(key, state, some, context)
        assert not misfits(result.outputs, context.topics), "what would not fit is cut or split where it is made"
        return result

    def left_out(state: bytes | None, one: Taken, error: Exception) -> Result:
        if state is not None and not _stands(key, state, context):
            raise StateUnreadable(str(key), f"nothing can be done with it: {type(error).__name__}: {error}") from error
        lost.append(one)
        return _left_out(key, state, one, error, context)

    result = narrowed(state, taken, attempt, left_out)
    if lost:
        result.outputs = [output for output in result.outputs if not _is_vain(output, lost, context)]
    result.outputs += letters
    return result


def _sorted_out(
    text: str, key: Key | None, records: list[Record], context: Context
) -> tuple[list[Taken], list[Output]]:
    """What can be applied, and the dead letters of what cannot; without a key nothing can."""
    taken: list[Taken] = []
    letters: list[Output] = []

    def refuse(record: Record, code: str, reason: str) -> None:
        letters.append(dead_letter(context.config, record, code, reason))

    for record in records:
        if record.topic != context.topics.control:
            taken.append(Taken(record, None))
            continue
        try:
            message = decode(record.value or b"")
        except HilcastError as error:
            refuse(record, "bad-value", f"not a control message: {error.reason}")
            continue
        if key is None or of_another_dialect(text, message, context):
            continue  # said under another configuration, which had such a key: the one before ours, or the next
        why = implausible(key, message, context)
        if why is None:
            taken.append(Taken(record, message))
        else:
            refuse(record, "bad-value", why)
    return taken, letters


def _refuse_quarantined(some: Sequence[Taken], context: Context) -> None:
    """Fail for a record that must not be handled: it is then narrowed down to, and left out."""
    if context.quarantined and any(one.record.place in context.quarantined for one in some):
        raise Quarantined("no query could be got past it")


def _begun(key: Key, taken: list[Taken], context: Context) -> tuple[bytes | None, list[Output]]:
    """The state that seeds bring, and the dead letters of those that bring none."""
    seeds = [(record, message) for record, message in taken if isinstance(message, Seed)]
    read = homes.decode_state if key.is_home else parts.decode_state

    def readable(blob: bytes) -> bool:
        try:
            read(blob)
        except HilcastError:
            return False
        return True

    state = seeded([seed for _, seed in seeds], context.generation, readable)
    if state is not None:
        return state, []
    reason = "a piece of a state that is not whole, or cannot be read"
    vain = [record for record, seed in seeds if seed.generation == context.generation]
    return None, [dead_letter(context.config, record, "bad-value", reason) for record in vain]


# ── attempts ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _home(key: Key, state: bytes | None, some: Sequence[Taken], context: Context) -> Result:
    home = Home(key, state, context)
    for record, message in some:
        if message is None:
            home.register(record)
        elif isinstance(message, Amend) and message.generation == context.generation:
            home.amend(message)
        elif isinstance(message, Expire):
            home.expire(message)
        elif isinstance(message, Forget):
            home.forget(message)
        elif isinstance(message, Resync):
            home.resync(message)
        elif isinstance(message, Renew):
            home.renew()
    return home.finish()


def _part(key: Key, state: bytes | None, some: Sequence[Taken], context: Context) -> Result:
    part = Part.of(key, state, context)
    publish = False
    for _, message in some:
        if isinstance(message, Change):
            part.apply(message)
        elif isinstance(message, Resync):
            part.resync(message)
        elif isinstance(message, Republish | Seed):
            publish = True
    result = part.finish()
    if publish:
        result.index, result.deltas = compile_part(part.compiled()), []
        result.figures["index_bytes_written"] = len(result.index)
        result.forwarding = part.forwarding(part.neighbours)
        result.reduced = part.reduced(part.neighbours)
    if result.state is not None:
        context.parts.keep(str(key), result.state, part)
    return result


def whole_index(key: Key, state: bytes, context: Context) -> bytes:
    """All of the index of a part, where a change of it cannot be written. Cost: nothing is unpacked of a kept part."""
    part = Part.of(key, state, context)
    index = compile_part(part.compiled())
    context.parts.keep(str(key), state, part)
    return index


def _unroutable(some: Sequence[Taken], context: Context) -> Result:
    """Answer what names no broker or type of ours: a refused receipt and a dead letter each."""
    _refuse_quarantined(some, context)
    result = Result(None)
    for record, _ in some:
        try:
            read_registration(record, context.config)
        except HilcastError as error:
            result.outputs.append(refusal(record, context, error, None, None))
            result.outputs.append(dead_letter(context.config, record, error.code, error.reason))
    assert not misfits(result.outputs, context.topics), "what would not fit is cut where it is made"
    return result


# ── what fails inside ───────────────────────────────────────────────────────────────────────────────────────────────


def _stands(key: Key, state: bytes, context: Context) -> bool:
    """Whether a state can be gone on with: read to its last part, and finished with nothing to do."""
    try:
        if key.is_home:
            Home(key, state, context).finish()
        else:
            part = Part(key, state, context)
            part.forwarding(part.neighbours)
            part.finish()
    except ENVIRONMENT:
        raise
    except Exception:  # whatever it is: the caller says that the state cannot be gone on with
        return False
    return True


def _left_out(key: Key | None, state: bytes | None, one: Taken, error: Exception, context: Context) -> Result:
    """The answer to a record whose handling failed; the state stays. A change that is left out is asked for again.

    Not so a snapshot: it would come as it was, and fail again, for ever. The next change shows the gap anew.
    """
    record, message = one
    name, topics = type(error).__name__, context.topics
    unreadable = isinstance(error, HilcastError) and message is not None
    code = "bad-value" if unreadable else "internal"
    reason = f"what it says cannot be read: {error}" if unreadable else f"handling it failed inside: {name}"
    outputs = [dead_letter(context.config, record, code, reason)]
    figures = {code: 1}
    if message is None:
        outputs.insert(0, _refused(record, HilcastError(code, reason), context))
        figures["refused"] = 1
    elif isinstance(message, Change) and not message.snapshot and key is not None:
        request = encode(Resync(str(key), context.dialect(key.type)))
        outputs.append(Output(topics.control, message.source.encode(), request))
    where = f"{record.topic}/{record.partition} offset {record.offset}"
    said = f"{key or 'what names no key of ours'}: the record at {where} is left out: {name}: {error} {_place(error)}"
    return Result(state, outputs, figures=figures, faults=[said])


def _refused(record: Record, error: HilcastError, context: Context) -> Output:
    """The receipt of a record of which perhaps nothing can be read."""
    try:
        return refusal(record, context, error, None, None)
    except Exception:  # reading it is what fails: an answer without what it says
        return receipt(
            context.topics, kind="refused", key=None, owner=None, version=None, broker=None, epoch=context.epoch,
            origin=record.place, code=error.code, reason=error.reason, client=speaker(record.topic, context.config)[1],
        )  # fmt: skip


def _is_vain(output: Output, lost: Sequence[Taken], context: Context) -> bool:
    """Whether this asks for a snapshot that has just been left out."""
    sources = {m.source.encode() for _, m in lost if isinstance(m, Change) and m.snapshot}
    if output.topic != context.topics.control or output.key not in sources:
        return False
    return isinstance(decode(output.value or b""), Resync)


def _place(error: BaseException) -> str:
    """Where it was raised."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else f"({trace.tb_frame.f_code.co_qualname}, line {trace.tb_lineno})"
