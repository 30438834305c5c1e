"""As much of kcat as the README's tour uses, for machines that do not have it: plain Kafka, nothing of ours."""

from __future__ import annotations

import argparse
import sys

from confluent_kafka import Consumer, Producer, TopicPartition


def main() -> int:
    """Produce lines of standard input, or print records."""
    parser = argparse.ArgumentParser()
    parser.add_argument("-b", dest="broker", required=True)
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


def produce(options: argparse.Namespace) -> int:
    producer = Producer({"bootstrap.servers": options.broker})
    headers = [tuple(header.split("=", 1)) for header in options.headers]
    for line in sys.stdin.read().splitlines():
        key, _, value = line.partition(options.delimiter) if options.delimiter else (None, "", line)
        producer.produce(options.topic, key=key, value=None if options.Z and not value else value, headers=headers)
    return producer.flush(30.0)


def consume(options: argparse.Namespace) -> int:
    consumer = Consumer({"bootstrap.servers": options.broker, "group.id": "kcat", "enable.auto.commit": False})
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
