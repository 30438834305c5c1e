"""A record that was set aside, as it stands in Kafka: the event as it came, and behind its headers where that was.

    key, value, headers of the event | topic, partition, offset, schema, since | outcome, once it was given back

Who sets it aside and who gives it back: `state/routing/waiting_room.py`.
"""

from __future__ import annotations

from state.messages import Record

OURS = ("hilcast_topic", "hilcast_partition", "hilcast_offset", "hilcast_schema", "hilcast_since")
"""What a record that waits has behind its own headers; the last is empty until it was given back once."""
OUTCOME = "hilcast_waited"
"""What one that is given back has behind those: whether its schema was had."""
HAD, VAIN = b"had", b"vain"


def place_of(record: Record) -> tuple[str, int, int] | None:
    """Where an event was sent to that waits or has waited; None for what is neither.

    >>> waits = Record("p.waiting.d", 0, 7, 0, None, b"v", tuple(zip(OURS, (b"in", b"1", b"5", b"9", b""))))
    >>> place_of(waits), place_of(Record("p.waiting.d", 0, 8, 0, None, b"v", ()))
    (('in', 1, 5), None)
    """
    headers = record.headers[:-1] if record.headers and record.headers[-1][0] == OUTCOME else record.headers
    if [name for name, _ in headers[-len(OURS) :]] != list(OURS):
        return None
    topic, partition, offset = (value or b"" for _, value in headers[-len(OURS) :][:3])
    try:
        return topic.decode(), int(partition), int(offset)
    except ValueError:
        return None
