"""Fixtures of all tests."""

from __future__ import annotations

from tests.services import services, unique

__all__ = ["services", "unique"]
