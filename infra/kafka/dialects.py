"""One set of Kafka client settings, spoken in three dialects: librdkafka, the Java client inside Spark, kafka-python.

Users write `kafka.*` settings once, under librdkafka's or Java's own names. Where the two differ (how a password or a
certificate is given) the missing half is derived here; nothing that was given is changed, and nothing is printed.
"""

from __future__ import annotations

from typing import Any

from infra.logs import kafka_logger
from state.config import Config

_JAVA_LOGIN = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_JAVA_ONLY = (
    "sasl.jaas.config",
    "ssl.truststore.",
    "ssl.keystore.",
    "sasl.login.callback",
    "sasl.client.callback",
)
_RDKAFKA_ONLY = (
    "sasl.username",
    "sasl.password",
    "ssl.ca.",
    "ssl.certificate.",
    "ssl.key.",
    "enable.ssl.",
    "oauthbearer.",
)


def librdkafka(config: Config) -> dict[str, Any]:
    """Settings for confluent-kafka; librdkafka's own lines go to the logger `hilcast.kafka`."""
    settings = {name: value for name, value in config.kafka.items() if not name.startswith(_JAVA_ONLY)}
    mechanism = settings.pop("sasl.mechanism", None)
    if mechanism is not None:
        settings.setdefault("sasl.mechanisms", mechanism)
    return {"bootstrap.servers": config.deployment.kafka, **settings, "logger": kafka_logger(config)}


def java(config: Config) -> dict[str, str]:
    """Settings for the Java client inside Spark, without the `kafka.` that Spark wants in front."""
    given = dict(config.kafka)
    settings = {name: value for name, value in given.items() if not name.startswith(_RDKAFKA_ONLY)}
    mechanism = settings.pop("sasl.mechanisms", None) or settings.get("sasl.mechanism")
    if mechanism is not None:
        settings["sasl.mechanism"] = mechanism
    if "sasl.username" in given and "sasl.jaas.config" not in settings and mechanism in _JAVA_LOGIN:
        user, password = _quoted(given["sasl.username"]), _quoted(given.get("sasl.password", ""))
        settings["sasl.jaas.config"] = f"{_JAVA_LOGIN[mechanism]} required username={user} password={password};"
    if "ssl.ca.location" in given:
        settings.setdefault("ssl.truststore.type", "PEM")
        settings.setdefault("ssl.truststore.location", given["ssl.ca.location"])
    return {"bootstrap.servers": config.deployment.kafka, **settings}


def kafka_python(config: Config) -> dict[str, object]:
    """Settings for kafka-python."""
    given = dict(config.kafka)
    names = {
        "security.protocol": "security_protocol",
        "sasl.mechanism": "sasl_mechanism",
        "sasl.mechanisms": "sasl_mechanism",
        "sasl.username": "sasl_plain_username",
        "sasl.password": "sasl_plain_password",
        "ssl.ca.location": "ssl_cafile",
        "ssl.certificate.location": "ssl_certfile",
        "ssl.key.location": "ssl_keyfile",
        "ssl.key.password": "ssl_password",
    }
    settings: dict[str, object] = {names[name]: value for name, value in given.items() if name in names}
    return {"bootstrap_servers": config.deployment.kafka.split(","), **settings}


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
