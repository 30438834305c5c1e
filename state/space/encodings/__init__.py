"""Publications that are not JSON: Avro and Protobuf, read into the same rank columns (docs/messages.md).

    schema ──compile──> program ─┐
    values ──────────────────────┴─scan──> leaves ──> ranks          compiled, by batch, only what attributes need
                                              └─────> values         Python, for what ranks cannot decide

| module | holds |
|---|---|
| `leaves.py` | what a scan finds, and which JSON value a leaf of a schema stands for |
| `avro_schema.py`, `protobuf_schema.py` | schemas, where attributes lie in them, programs for the scans |
| `avro_scan.py`, `protobuf_scan.py` | the compiled scans: bounded in depth and steps, whatever the bytes |
| `leaf_columns.py` | columns of leaves to columns of ranks |
| `avro_reader.py`, `protobuf_reader.py` | one value at a time, in plain Python: for people, and for `hilcast verify` |
| `writing.py` | a JSON object in the format of its type: for publishers |
| `wire.py`, `schemas.py` | Confluent's wire format; where schemas come from |

What needs no numpy is kept apart, so that a client can read its configuration and its deliveries without it.
"""
