"""The local services, for real: Kafka and Redis started, used, broken and stopped."""

from __future__ import annotations

from redis import Redis

from tests.services import Services


def test_redis_of_the_run_answers(services: Services) -> None:
    """The shared Redis is there and new enough."""
    with Redis.from_url(services.redis) as link:
        assert link.ping()
