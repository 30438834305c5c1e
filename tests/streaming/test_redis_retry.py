"""A Redis that refuses: what is waited for, what is said, and versions that no clock makes."""

from __future__ import annotations

import pytest
import redis

from state.config import parse
from state.errors import HilcastError
from state.redis_index import RedisIndex, groups_field, version_beside
from state.redis_retry import redis_retried
from tests.services import Services

REFUSALS = [
    redis.exceptions.ReadOnlyError("READONLY You can't write against a read only replica."),
    redis.exceptions.OutOfMemoryError("OOM command not allowed when used memory > 'maxmemory'."),
    redis.exceptions.AuthenticationError("NOAUTH Authentication required."),
    redis.exceptions.NoPermissionError("NOPERM this user has no permissions"),
    redis.exceptions.BusyLoadingError("LOADING Redis is loading the dataset in memory"),
    redis.exceptions.MasterDownError("MASTERDOWN Link with MASTER is down"),
    redis.ResponseError("MISCONF Redis is configured to save RDB snapshots"),
    redis.ConnectionError("refused"),
]
CONFIG = """
[deployment]
prefix = "{prefix}"
redis = "{redis}"
[overlay]
brokers = ["b1"]
[types.t.attributes]
x = {{ kind = "int" }}
"""


def configured(services, prefix):
    return parse(CONFIG.format(prefix=prefix, redis=services.redis))


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda error: str(error).split()[0])
def test_a_refusal_of_a_moment_is_waited_for_and_said_once(refusal):
    """Whatever a full, loading, read-only or locked Redis answers, the caller waits; it is said once, and the end."""
    answers, said = [refusal, refusal, None], []

    def call():
        answer = answers.pop(0)
        if answer is not None:
            raise answer
        return "done"

    assert redis_retried(call, say=said.append, first_wait_s=0.001) == "done"
    assert len(said) == 2
    assert said[1] == "redis is back"
    assert not answers


def test_what_no_waiting_mends_is_raised():
    """A wrong command is our bug: it is not repeated for ever."""

    def call():
        raise redis.ResponseError("ERR unknown command")

    with pytest.raises(redis.ResponseError):
        redis_retried(call, say=lambda line: None, first_wait_s=0.001)


@pytest.mark.services
def test_full_and_read_only(services: Services, unique: str):
    """A real Redis that is full or read-only refuses the script in a way that is waited for, then takes it."""
    index = RedisIndex(configured(services, unique))
    client = redis.Redis.from_url(services.redis)
    for setting, hostile, normal in (("maxmemory", "1", "0"), ("min-replicas-to-write", "3", "0")):
        client.config_set(setting, hostile)
        said = []

        def mend(line, setting=setting, normal=normal, said=said):
            said.append(line)
            client.config_set(setting, normal)

        try:
            redis_retried(lambda: index.publish_groups("b1", 1, b"x", {}), say=mend, first_wait_s=0.01)
        finally:
            client.config_set(setting, normal)
        assert said[0].startswith("redis is away, waiting for it: ")
        assert said[-1] == "redis is back"


@pytest.mark.services
def test_versions_of_groups_are_counted(services: Services, unique: str, monkeypatch):
    """A clock that is set back an hour between two assignments does not keep the second from being used; one who was
    overtaken is told so.
    """
    config = configured(services, unique)
    index = RedisIndex(config)
    monkeypatch.setattr("time.time_ns", lambda: 2_000_000_000_000_000_000)
    index.publish_groups("b1", 1, b"first", {})
    run, vector = index.vector(1)
    first = version_beside(vector, groups_field("b1"), run, 1)
    monkeypatch.setattr("time.time_ns", lambda: 1_000_000_000_000_000_000)
    RedisIndex(config).publish_groups("b1", 1, b"second", {})
    run, vector = index.vector(1)
    second = version_beside(vector, groups_field("b1"), run, 1)
    assert second.batch == first.batch + 1 == 2
    assert index.load_groups("b1", 1) == (second.epoch, b"second")
    index.point(2, b"{}")  # another life has taken over
    with pytest.raises(HilcastError, match="index-superseded"):
        index.publish_groups("b1", 1, b"third", {})


@pytest.mark.services
def test_a_primary_that_was_demoted_does_not_count(services: Services, unique: str):
    """Its process is the same and its old index is complete: as a replica it is away, and promoted again it has lost
    everything that was written before.
    """
    index = RedisIndex(configured(services, unique))
    index.point(3, b"{}")
    run, generation = index.current()
    assert generation == 3
    client = redis.Redis.from_url(services.redis)
    client.replicaof("127.0.0.1", "1")
    try:
        for asked in (index.current, index.run_id, lambda: index.vector(3)):
            with pytest.raises(redis.ConnectionError, match="READONLY"):
                asked()
    finally:
        client.replicaof("NO", "ONE")
    again, generation = index.current()
    assert generation is None
    assert again != run
