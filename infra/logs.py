"""Logging, set up once for each process: lines with time, level, query and logger, and no secret in any of them.

    2026-11-17T03:07:59.123Z INFO control hilcast.redis: redis is back
    time in UTC                   query   logger

The query is `job` in the driver, `control` or `route` in the Python workers of Spark. Secrets are masked by a filter of
every logger of ours, before any handler sees the line, also the handlers that an application adds. Where nothing is set
up, as in the command line and in applications, our loggers say nothing by themselves.
"""

from __future__ import annotations

import datetime
import logging
import re
import sys
import time
from typing import TextIO

from state.config import Config
from state.secrets import masked, url_secrets

ROOT = "hilcast"
REPEATED_S = 10.0
"""A line of librdkafka's is not said again within this time."""
LINES_MAX = 1000
_LINE = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]{12}Z [A-Z]+ \S+ (?P<logger>[\w.]+): (?P<message>.*)", re.DOTALL)


class SecretFilter(logging.Filter):
    """Masks secrets in what is logged: those that it was told, and whatever looks like one."""

    def __init__(self) -> None:
        super().__init__()
        self.known: set[str] = set()

    def hide(self, config: Config) -> None:
        """From now on the secrets of this configuration are masked."""
        settings = (config.kafka, config.redis, config.spark)
        self.known.update(url_secrets(config.deployment.redis), *(each.secrets() for each in settings))
        if config.schemas is not None:
            self.known.update(config.schemas.secrets())

    def filter(self, record: logging.LogRecord) -> bool:
        """Let every record pass, rewritten: text and traceback are made here, so that nobody makes them again."""
        record.msg, record.args = masked(record.getMessage(), self.known), None
        if record.exc_info:
            record.exc_text = masked(logging.Formatter().formatException(record.exc_info), self.known)
            record.exc_info = None
        if record.stack_info:
            record.stack_info = masked(record.stack_info, self.known)
        return True


class RepeatFilter(logging.Filter):
    """Lets a line pass once in a while, numbers aside: of a Kafka that is away clients say so 200 times a second."""

    def __init__(self) -> None:
        super().__init__()
        self._said_s: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the like of it was not said within `REPEATED_S`."""
        text, now_s = re.sub(r"\d+", "#", record.getMessage()), time.monotonic()
        if now_s - self._said_s.get(text, float("-inf")) < REPEATED_S:
            return False
        if len(self._said_s) >= LINES_MAX:
            self._said_s.clear()
        self._said_s[text] = now_s
        return True


_secrets, _repeats = SecretFilter(), RepeatFilter()
logging.getLogger(ROOT).addHandler(logging.NullHandler())


def logger(name: str) -> logging.Logger:
    """The logger `hilcast.NAME`; get it here, and it masks secrets."""
    found = logging.getLogger(f"{ROOT}.{name}")
    found.addFilter(_secrets)  # the same one again is not added
    return found


def hide(secret: str) -> None:
    """From now on this secret is masked in every line."""
    _secrets.known.add(secret)


def kafka_logger(config: Config) -> logging.Logger:
    """The logger of librdkafka's own lines, which then cannot show the secrets of this configuration."""
    _secrets.hide(config)
    found = logger("kafka")
    found.addFilter(_repeats)
    return found


def set_up(config: Config, query: str, out: TextIO | None = None) -> None:
    """Write the lines of our loggers to standard error (or `out`) from INFO on, and nowhere else."""
    _secrets.hide(config)
    handler = logging.StreamHandler(sys.stderr if out is None else out)
    handler.setFormatter(_Lines(query))
    ours = logging.getLogger(ROOT)
    ours.handlers = [handler]
    ours.setLevel(logging.INFO)
    ours.propagate = False  # Spark and its libraries have handlers of their own


class _Lines(logging.Formatter):
    """Time in UTC as ISO 8601 has it, with milliseconds."""

    def __init__(self, query: str) -> None:
        super().__init__("{asctime} {levelname} {query} {name}: {message}", style="{", defaults={"query": query})

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        moment = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
        return f"{moment.replace(tzinfo=None).isoformat(timespec='milliseconds')}Z"


def message_of(line: str) -> str | None:
    """What a line of ours says, for whoever shows a log; None for any other line.

    >>> message_of("2026-11-17T03:07:59.123Z INFO job hilcast.job: starting Spark")
    'starting Spark'
    """
    found = _LINE.fullmatch(line)
    return None if found is None else found["message"]
