"""Fixtures of all tests."""

from __future__ import annotations

import os

from tests.services import services, unique

# Kafka and Spark live for a minute or two here: what the second compiler costs them it never gives back
os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

__all__ = ["services", "unique"]
