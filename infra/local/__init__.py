"""Kafka and Redis on this machine, without root: fetched, started, watched and stopped.

Imported by the command line, the demo and the tests only; `LocalServices` in `services.py` is the way in.
"""
