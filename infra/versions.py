"""Every version that hilcast starts or fetches, in one place.

Python packages are pinned in `pyproject.toml`; what is not a Python package is pinned here. The digests of
the jars that these coordinates resolve to are in `jars.toml` beside this file: after a change here, run
`python -m infra.local lock > jars.new && mv jars.new infra/jars.toml` and commit both.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Coordinate:
    """One artifact of a Maven registry.

    >>> str(Coordinate("org.apache.kafka", "kafka-clients", "3.9.2"))
    'org.apache.kafka:kafka-clients:3.9.2'
    """

    group: str
    artifact: str
    version: str

    def __str__(self) -> str:
        return f"{self.group}:{self.artifact}:{self.version}"


@dataclass(frozen=True)
class JarSet:
    """Jars that are fetched together into one folder."""

    name: str
    roots: tuple[Coordinate, ...]
    transitive: bool


JAVA = (17, 21)
"""Releases of Java that Spark 4.2 and Kafka 4.3 both run on."""

REDIS_MIN = (6, 2)
"""`ZRANGE … BYLEX REV` and `GETDEL` came with 6.2."""

SPARK = "4.2.0"
SCALA = "2.13"
KAFKA = "4.3.0"

KAFKA_MIN = (3, 0)
"""Older brokers were not considered; the tests run on `KAFKA`."""

# slf4j 1.7 without a binding makes the broker silent; log4j is the one its own distribution carries.
BROKER = JarSet(
    name=f"kafka-broker-{KAFKA}",
    roots=(
        Coordinate("org.apache.kafka", f"kafka_{SCALA}", KAFKA),
        Coordinate("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4"),
    ),
    transitive=True,
)

# Everything else that the connector needs is inside pyspark, so nothing is resolved transitively. What the
# connector calls in the token provider is the same in 4.0.0, which can be had where a mirror lacks its 4.2.0.
CONNECTOR = JarSet(
    name=f"spark-connector-{SPARK}",
    roots=(
        Coordinate("org.apache.spark", f"spark-sql-kafka-0-10_{SCALA}", SPARK),
        Coordinate("org.apache.spark", f"spark-token-provider-kafka-0-10_{SCALA}", "4.0.0"),
        Coordinate("org.apache.kafka", "kafka-clients", "3.9.2"),
        Coordinate("org.apache.commons", "commons-pool2", "2.13.1"),
    ),
    transitive=False,
)

# What `python -m benchmarks.engines` races against; nothing else needs it, and nothing else fetches it.
RULER = JarSet(
    name="event-ruler-1.8.1",
    roots=(Coordinate("software.amazon.event.ruler", "event-ruler", "1.8.1"),),
    transitive=True,
)

# Images of the examples in `compose/` and `kubernetes/`; a test keeps the files there equal to these.
KAFKA_IMAGE = f"apache/kafka:{KAFKA}"
REDIS_IMAGE = "redis:7.4.2-alpine"
PYTHON_IMAGE = "python:3.11.11-slim-bookworm"
