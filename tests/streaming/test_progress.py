"""The thread that tells how far the queries are: what it says, and that nothing that fails there ends it."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException

from producers.progress_lines import progress_lines
from state.config import parse
from state.messages import Record
from streaming import progress
from streaming.progress import ProgressListener

CONFIG = parse(
    '[deployment]\nkafka = "127.0.0.1:1"\n[overlay]\nbrokers = ["b1"]\n[types.t.attributes]\nx = { kind = "int" }'
)


@pytest.mark.parametrize(
    "error", [KafkaException(KafkaError(KafkaError._TRANSPORT)), ValueError("damaged"), KeyError("x")]
)
def test_what_fails_is_told_again(monkeypatch, error):
    """Kafka away, a mark in Redis that cannot be read, or a bug of ours: the same line is told once that is over."""
    told, failures, done = [], [error, error], threading.Event()

    def write_one(self, line, producer):
        if failures:
            raise failures.pop()
        told.append(line["batchId"])
        if len(told) == 2:
            done.set()

    monkeypatch.setattr(progress, "AGAIN_S", 0.001)
    monkeypatch.setattr(ProgressListener, "_write_one", write_one)
    listener = ProgressListener(CONFIG, 1, lambda places: None, lambda: None)
    for batch in (7, 8):
        listener._events.put({"name": "route", "batchId": batch})
    assert done.wait(60.0)
    assert told == [7, 8]
    listener.close()


def test_an_event_is_read_in_one_piece(monkeypatch):
    """The JVM is asked for the event as JSON and for nothing else: each further call would hold up the next event."""
    told, done = [], threading.Event()

    def write_one(self, line, producer):
        told.append(line)
        done.set()

    class Event:
        def progress(self):
            return SimpleNamespace(json=lambda: json.dumps({"name": "control", "batchId": 9}))

        def __getattr__(self, name):
            raise AssertionError(f"the JVM was asked for {name}")

    monkeypatch.setattr(ProgressListener, "_write_one", write_one)
    listener = ProgressListener(CONFIG, 1, lambda places: None, lambda: None)
    monkeypatch.setattr(
        progress,
        "SparkContext",
        SimpleNamespace(_jvm=SimpleNamespace(PythonStreamingQueryListenerWrapper=lambda it: it)),
    )
    assert listener._jlistener is listener  # nothing stands between
    listener.onQueryProgress(Event())
    assert done.wait(60.0)
    assert told == [{"name": "control", "batchId": 9}]
    listener.close()


BATCH = {"name": "route", "batchId": 7, "timestamp": "2026-01-01T00:00:00.000Z", "numInputRows": 3, "sources": []}


def line(generation):
    """The line of one batch, as whoever reads the topic has it."""
    listener = SimpleNamespace(config=replace(CONFIG, version=4), generation=generation)
    value = json.dumps(ProgressListener._line(listener, BATCH, {"t": {"0": 5}})).encode()
    ((_, found),) = progress_lines([Record("hilcast.progress", 0, 0, 1, None, value)])
    return found


def test_a_line_names_the_version_that_is_in_force():
    """Once a generation is in force its configuration is what routing goes by."""
    assert (line(2).configuration, line(2).epoch, line(2).offsets) == (4, "2.7", {"t": {0: 5}})


def test_a_driver_that_has_no_generation_yet_names_no_version():
    """A life that begins may route by the generation before, which was made from another configuration."""
    assert line(0).configuration is None
