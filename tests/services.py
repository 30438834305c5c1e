"""One Kafka and one Redis for each worker of a run of the tests, started when the first test asks for them.

A test takes the fixture `services` and uses names of its own (topics, groups, prefixes: `unique`), for the
services are shared by all. Tests that stop or break one start their own by `LocalServices.on_free_ports`.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from infra.local.services import LocalServices


@dataclass(frozen=True)
class Services:
    """Where the services of this run are."""

    kafka: str
    redis: str
    data: Path


@pytest.fixture(scope="session")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    """Kafka and Redis on free ports, stopped at the end of the run."""
    data = tmp_path_factory.mktemp("services")
    with LocalServices.on_free_ports(data) as local:
        yield Services(kafka=local.kafka, redis=local.redis, data=data)


@pytest.fixture
def unique(request: pytest.FixtureRequest) -> str:
    """Return a name that no other test uses, fit for topics, prefixes and clients."""
    return f"t{uuid.uuid4().hex[:12]}"
