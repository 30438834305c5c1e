"""As much of kcat as the tours of README and docs use, for machines without it: plain Kafka, nothing of ours."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition


def main() -> int:
    """Produce lines of standard input, or print records."""
    parser = argparse.ArgumentParser()
    parser.add_argument("-b", dest="broker")
    parser.add_argument("-F", dest="properties", type=Path)
    parser.add_argument("-t", dest="topic", required=True)
    parser.add_argument("-H", dest="headers", action="append", default=[])
    parser.add_argument("-K", dest="delimiter")
    parser.add_argument("-c", dest="count", type=int)
    parser.add_argument("-o", dest="offset")
    parser.add_argument("-f", dest="format", default="%s\n")
    for flag in "PCZeq":
        parser.add_argument(f"-{flag}", dest=flag, action="store_true")
    options = parser.parse_args()
    return produce(options) if options.P else consume(options)


def settings(options: argparse.Namespace) -> dict[str, str]:
    """Of the file of properties, or the address alone."""
    if options.properties is None:
        return {"bootstrap.servers": options.broker}
    return dict(line.split("=", 1) for line in options.properties.read_text().splitlines())


def produce(options: argparse.Namespace) -> int:
    producer = Producer(settings(options))
    headers = [tuple(header.split("=", 1)) for header in options.headers]
    failed: list[object] = []

    def told(error: object, _: object) -> None:
        if error is not None:
            print(error, file=sys.stderr)
            failed.append(error)

    for line in sys.stdin.read().splitlines():
        key, _, value = line.partition(options.delimiter) if options.delimiter else (None, "", line)
        value = None if options.Z and not value else value
        producer.produce(options.topic, key=key, value=value, headers=headers, on_delivery=told)
    return producer.flush(30.0) or len(failed)


def consume(options: argparse.Namespace) -> int:
    consumer = Consumer({**settings(options), "group.id": "kcat", "enable.auto.commit": False, "log_level": 0})
    seen = 0
    for number in consumer.list_topics(options.topic, timeout=10.0).topics[options.topic].partitions:
        partition = TopicPartition(options.topic, number)
        low, end = consumer.get_watermark_offsets(partition, timeout=10.0)
        consumer.assign([TopicPartition(options.topic, number, low)])
        position = low
        while position < end or (options.count and seen < options.count):
            message = consumer.poll(1.0)
            if message is None or message.error():
                continue
            position = message.offset() + 1
            seen += 1
            headers = ",".join(f"{k}={(v or b'').decode(errors='replace')}" for k, v in message.headers() or [])
            line = options.format.replace("%s", (message.value() or b"").decode()).replace("%h", headers)
            sys.stdout.write(line.replace("\\n", "\n"))
            if options.count and seen >= options.count:
                return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
