"""Log lines: their form, and that no secret of a configuration is in any of them."""

from __future__ import annotations

import io
import logging
import re
from types import SimpleNamespace

import pytest

from infra import logs
from infra.kafka.dialects import java, librdkafka
from infra.logs import logger, message_of, set_up
from state.config import parse
from state.secrets import masked

TEXT = """
[deployment]
redis = "redis://me:re%40dis-hush@127.0.0.1:1/0?password=query-hush"
[kafka]
"sasl.username" = "somebody"
"sasl.password" = 'say "hush" \\ now'
"sasl.mechanism" = "PLAIN"
"ssl.key.pem" = '''
-----BEGIN PRIVATE KEY-----
MIIEvQIBADANBgkq
'''
[redis]
password = "redis-argument-hush"
[spark]
"spark.hadoop.fs.s3a.secret.key" = "spark-hush"
[overlay]
brokers = ["b1"]
links = []
[types.t.attributes]
x = { kind = "int" }
"""
CONFIG = parse(TEXT)
PLANTED = [
    "re%40dis-hush",
    "re@dis-hush",
    "query-hush",
    'say "hush" \\ now',
    'say \\"hush\\" \\\\ now',
    "MIIEvQIBADANBgkq",
    "redis-argument-hush",
    "spark-hush",
]


@pytest.fixture
def lines():
    """What is logged during a test; afterwards our loggers are as they were."""
    ours = logging.getLogger("hilcast")
    before = ours.handlers, ours.level, ours.propagate
    out = io.StringIO()
    set_up(CONFIG, "control", out)
    yield lambda: out.getvalue().splitlines()
    ours.handlers, ours.level, ours.propagate = before


def test_a_line_has_time_level_query_and_logger(lines):
    """A line tells when (UTC, milliseconds), how bad, which query, who, and what, and can be taken apart again."""
    logger("redis").warning("redis is away, waiting for it: %s", "TimeoutError")
    (line,) = lines()
    said = "redis is away, waiting for it: TimeoutError"
    assert re.fullmatch(rf"\d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{{3}}Z WARNING control hilcast\.redis: {said}", line)
    assert message_of(line) == said
    assert message_of("26/11/17 03:07:59 WARN NativeCodeLoader: Unable to load") is None


def test_setting_up_again_repeats_nothing(lines):
    """A second set-up of a process replaces the first: one line stays one line."""
    out = io.StringIO()
    set_up(CONFIG, "route", out)
    set_up(CONFIG, "route", out)
    logger("job").info("once")
    assert lines() == []
    assert [message_of(line) for line in out.getvalue().splitlines()] == ["once"]


def test_no_secret_of_the_configuration_is_logged(lines):
    """Whatever way a secret gets into a line, as text, argument, object, settings or traceback, it is masked."""
    log = logger("test")
    for secret in PLANTED:
        log.info(f"as text {secret}")
        log.info("as an argument %s", secret)
    log.info("whole: %s %s %s", CONFIG.deployment.redis, CONFIG, TEXT)
    log.info("%s", {name: value for name, value in librdkafka(CONFIG).items() if name != "logger"})
    log.info("%s", java(CONFIG))
    try:
        raise RuntimeError(f"cannot use {PLANTED[3]} with {CONFIG.deployment.redis}")
    except RuntimeError:
        log.exception("failed", stack_info=True)
    told = "\n".join(lines())
    assert "somebody" in told
    assert "RuntimeError: cannot use ***" in told
    for secret in PLANTED:
        assert secret not in told
        assert repr(secret)[1:-1] not in told


def test_handlers_of_others_see_no_secret_either(lines, caplog):
    """The mask is on the logger: a handler that an application adds gets lines without secrets, too."""
    logging.getLogger("hilcast").addHandler(caplog.handler)
    librdkafka(CONFIG)["logger"].warning("SASL failed for %s", PLANTED[3])
    assert [(record.name, record.getMessage()) for record in caplog.records] == [
        ("hilcast.kafka", "SASL failed for ***")
    ]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("redis://h:6379/0 is away, ask me@example.org", "redis://h:6379/0 is away, ask me@example.org"),
        ("redis://:hush@h:1/0 and redis://u:p@ss@h/1", "redis://:***@h:1/0 and redis://u:***@h/1"),
        ("sasl.password = hush and more", "sasl.password = *** and more"),
        ('username="u" password="a \\" b";', 'username="u" password=***;'),
        ("{'sasl.password': 'hush', 'acks': 'all'}", "{'sasl.password': ***, 'acks': 'all'}"),
        ("the key b1/t/s1: 3 records", "the key b1/t/s1: 3 records"),
    ],
)
def test_what_looks_like_a_secret_is_masked(text, shown):
    """Secrets that nobody told of are masked where they are named or stand in a URL; nothing else is."""
    assert masked(text) == shown


def test_a_kafka_that_is_away_does_not_fill_the_log(lines, monkeypatch):
    """What librdkafka says again and again, numbers aside, is said once in ten seconds; other lines pass."""
    now = [0.0]
    monkeypatch.setattr(logs, "time", SimpleNamespace(monotonic=lambda: now[0]))
    kafka = logs.kafka_logger(CONFIG)
    for n in range(100):
        kafka.error("FAIL consumer-%d: connection refused after %d ms", n % 3, n)
        now[0] += 0.15
    kafka.error("FATAL consumer: fenced")
    assert [(message_of(line) or "").split()[0] for line in lines()] == ["FAIL", "FAIL", "FATAL"]
