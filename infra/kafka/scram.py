"""Passwords that Kafka itself keeps (SCRAM): made through its admin API, never on a command line."""

from __future__ import annotations

import os
import secrets

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from infra.kafka.dialects import librdkafka
from infra.kafka.transport import away
from state.config import Config
from state.errors import HilcastError

MECHANISM = "SCRAM-SHA-512"
ITERATIONS = 4096
"""Kafka's own default: its guard is the length of a generated password."""
_TIMEOUT_S = 30.0


class ScramUsers:
    """The users of a cluster that log in by SCRAM."""

    def __init__(self, config: Config) -> None:
        self._address = config.deployment.kafka
        self._admin = AdminClient(librdkafka(config))

    def exists(self, user: str) -> bool:
        """Whether Kafka has a password of this user."""
        answer = self._admin.describe_user_scram_credentials([user], request_timeout=_TIMEOUT_S)[user]
        try:
            answer.result()
        except KafkaException as error:
            if error.args[0].code() == KafkaError.RESOURCE_NOT_FOUND:
                return False
            raise self._told(error) from error
        return True

    def put(self, passwords: dict[str, str]) -> None:
        """Give these users these passwords, in place of those that they had."""
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, ITERATIONS)
        changes = [
            UserScramCredentialUpsertion(user, info, password.encode(), os.urandom(32))
            for user, password in passwords.items()
        ]
        for answer in self._admin.alter_user_scram_credentials(changes, request_timeout=_TIMEOUT_S).values():
            try:
                answer.result()
            except KafkaException as error:
                raise self._told(error) from error

    def _told(self, error: KafkaException) -> HilcastError:
        if error.args[0].code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED:
            return HilcastError("not-allowed", "this principal may not change passwords: it takes alter on the cluster")
        return away(self._address, error.args[0].str())


def new_password() -> str:
    """32 characters that need no quoting anywhere."""
    return secrets.token_urlsafe(24)
