"""Sizes of records: what may come in, and how much larger it may be when it goes out."""

INPUT_BYTES_MAX = 1_048_588
"""Kafka's default limit of one record batch: what publishers may send."""
HEADROOM_BYTES = 64 * 1024
"""What our headers may add: output topics and the sink allow this much more."""
