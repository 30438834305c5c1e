"""Whether a record fits Kafka, and what is left of one that does not.

    key | value | name, content | name, content | ...     and what Kafka adds: some bytes a record, a batch, a header

A sink that meets a record beyond its limit throws, the batch is replayed, and meets it again. So nothing leaves the
core that does not fit: quotations, reasons and keys in receipts are cut where they are written, control messages are
split (`control/streams.py`), publications are refused before they are copied (`routing/admission.py`), and of a dead
letter, which repeats what somebody sent, as much is kept as there is room for.
"""

from __future__ import annotations

from collections.abc import Iterable

from state.config import Config
from state.limits import HEADER_OVERHEAD_BYTES, INPUT_BYTES_MAX, OUTPUT_BYTES_MAX, RECORD_OVERHEAD_BYTES
from state.messages import REASONS, Headers, Output, Record, dead_letter_headers
from state.topics import Topics

TRUNCATED = "hilcast_truncated"
"""The header of a dead letter that says what of it was cut."""


def header_bytes(headers: Headers) -> int:
    """Bytes of headers with what Kafka adds to each."""
    names = sum(len(name.encode("utf-8", "replace")) for name, _ in headers)
    return names + sum(len(value or b"") for _, value in headers) + HEADER_OVERHEAD_BYTES * len(headers)


def record_bytes(output: Output) -> int:
    """What a record takes at most, alone in its batch and not compressed."""
    return RECORD_OVERHEAD_BYTES + len(output.key or b"") + len(output.value or b"") + header_bytes(output.headers)


def misfits(outputs: Iterable[Output], topics: Topics) -> list[Output]:
    """Those that Kafka would not take; there must never be any. The registry keeps the limit that topics have."""
    limits = {topics.registry: INPUT_BYTES_MAX}
    return [output for output in outputs if record_bytes(output) > limits.get(output.topic, OUTPUT_BYTES_MAX)]


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
