"""Whether a record fits Kafka, and what is left of one that does not.

    key | value | name, content | name, content | ...     and what Kafka adds: some bytes a record, a batch, a header

A sink that meets a record beyond its limit throws, the batch is replayed, and meets it again. So nothing leaves the
core that does not fit: quotations, reasons and keys in receipts are cut where they are written, control messages are
split (`control/streams.py`), publications are refused before they are copied (`routing/admission.py`), and of a dead
letter, which repeats what somebody sent, as much is kept as there is room for.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from state.config import Config
from state.limits import (
    CLIPPED_BYTES,
    FLOOD_BYTES,
    FLOOD_RECORD_BYTES,
    INPUT_BYTES_MAX,
    OUTPUT_BYTES_MAX,
    RECORD_OVERHEAD_BYTES,
)
from state.messages import REASONS, TRUNCATED, Output, Record, content_bytes, dead_letter_headers, header_bytes
from state.topics import Topics


def record_bytes(output: Output) -> int:
    """What a record takes at most, alone in its batch and not compressed."""
    return RECORD_OVERHEAD_BYTES + content_bytes(output)


def misfits(outputs: Iterable[Output], topics: Topics) -> list[Output]:
    """Those that Kafka would not take; there must never be any. The registry keeps the limit that topics have."""
    limits = {topics.registry: INPUT_BYTES_MAX}
    return [output for output in outputs if record_bytes(output) > limits.get(output.topic, OUTPUT_BYTES_MAX)]


def clipped(record: Record, size_max: int) -> Record:
    """A record as it is; of one that has more bytes a piece of key and value, and a header that says so.

    What is larger than anything that is taken need not be held in memory, shuffled and sent to workers to be refused.
    `streaming/control.py` does the same in SQL, before anything is shuffled.

    >>> small, large = Record("t", 0, 0, 0, b"k", b"v"), Record("t", 0, 1, 0, b"k", b"v" * 100_000, (("x", b"1"),))
    >>> clipped(small, 1000) is small, len(clipped(large, 1000).value), clipped(large, 1000).headers
    (True, 4096, (('hilcast_truncated', b'value,headers'),))
    """
    if content_bytes(record) <= size_max:
        return record
    long = {"value": len(record.value or b"") > CLIPPED_BYTES, "headers": bool(record.headers)}
    long["key"] = len(record.key or b"") > CLIPPED_BYTES
    said = ",".join(name for name, was in long.items() if was).encode()
    key = None if record.key is None else record.key[:CLIPPED_BYTES]
    value = None if record.value is None else record.value[:CLIPPED_BYTES]
    return msgspec.structs.replace(record, key=key, value=value, headers=((TRUNCATED, said),))


def held(records: Iterable[Record], topics: Topics, flood: int = FLOOD_BYTES) -> list[Record]:
    """The records of one key and batch as a worker holds them: in a flood from the inboxes the large ones are cut.

    What is cut is refused, with a dead letter; what hilcast tells itself never is.
    Guarantee: whether a record is cut depends on which others there are, not on their order, so a replay cuts the same.
    At no time more is held of the inboxes than `flood`, one record, and 16 KiB of each.

    >>> some = [Record("t", 0, i, 0, b"k", b"v" * size) for i, size in enumerate((90_000, 9, 20_000))]
    >>> [[len(one.value) for one in held(some, Topics("hilcast"), flood)] for flood in (120_000, 100_000)]
    [[90000, 9, 20000], [4096, 9, 4096]]
    """
    taken: list[Record] = []
    size = 0

    def cut(record: Record) -> Record:
        return record if record.topic == topics.control else clipped(record, FLOOD_RECORD_BYTES)

    for record in records:
        if size > flood:
            taken.append(cut(record))
            continue
        taken.append(record)
        size += 0 if record.topic == topics.control else content_bytes(record)
        if size > flood:
            taken = [cut(one) for one in taken]
    return taken


def dead_letter(config: Config, record: Record, code: str, reason: str) -> Output:
    """The original key, value and headers, plus where it stood and why it could not be used, cut where it does not fit.

    The value is cut first, then headers are left out, then the key is cut; a header says which of them. Where dead
    letters are to be references, nothing of the original is in it, nor of a reason that could quote it.

    >>> from state.config import parse
    >>> config = parse('[overlay]\\nbrokers = ["b1"]\\n[types.t.attributes]\\nx = { kind = "int" }')
    >>> record = Record("t", 0, 0, 0, b"k", b"v" * 2_000_000, (("ce_id", b"1"),))
    >>> letter = dead_letter(config, record, "bad-key", "no such key")
    >>> record_bytes(letter) <= OUTPUT_BYTES_MAX, letter.key, letter.headers[0], letter.headers[-1]
    (True, b'k', ('ce_id', b'1'), ('hilcast_truncated', b'value'))
    """
    topics = config.topics
    if config.security.dead_letters == "reference":
        said = dead_letter_headers(code, REASONS.get(code, "it could not be used"), *record.place)
        return Output(topics.deadletter, None, None, said)
    extra = dead_letter_headers(code, reason, *record.place)
    whole = Output(topics.deadletter, record.key, record.value, (*record.headers, *extra))
    if record_bytes(whole) <= OUTPUT_BYTES_MAX:
        return whole
    room = OUTPUT_BYTES_MAX - RECORD_OVERHEAD_BYTES - header_bytes((*extra, (TRUNCATED, b"value,headers,key")))
    key, kept = record.key, []
    if len(key or b"") > room:
        key = (key or b"")[:room]
    room -= len(key or b"")
    for header in record.headers:
        size = header_bytes((header,))
        if size <= room:
            kept.append(header)
            room -= size
    value = None if record.value is None else record.value[:room]
    cut = {"value": value != record.value, "headers": len(kept) < len(record.headers), "key": key != record.key}
    marked = (TRUNCATED, ",".join(name for name, was in cut.items() if was).encode())
    return Output(topics.deadletter, key, value, (*kept, *extra, marked))
