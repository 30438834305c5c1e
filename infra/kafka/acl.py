"""Kafka's ACLs through its admin API: what is there, granted and taken back; as commands of its own tool, too."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from infra.kafka.dialects import librdkafka
from infra.kafka.transport import away
from state.access import CLUSTER, Grant, Pattern, Resource
from state.config import Config
from state.errors import HilcastError

_TIMEOUT_S = 30.0
_RESOURCES: dict[Resource, ResourceType] = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "cluster": ResourceType.BROKER,  # librdkafka's name of it
}
_PATTERNS: dict[Pattern, ResourcePatternType] = {
    "literal": ResourcePatternType.LITERAL,
    "prefixed": ResourcePatternType.PREFIXED,
}
_OPERATIONS: dict[str, AclOperation] = {
    "read": AclOperation.READ,
    "write": AclOperation.WRITE,
    "create": AclOperation.CREATE,
    "delete": AclOperation.DELETE,
    "alter": AclOperation.ALTER,
    "describe": AclOperation.DESCRIBE,
    "describe-configs": AclOperation.DESCRIBE_CONFIGS,
    "alter-configs": AclOperation.ALTER_CONFIGS,
}
_RESOURCE_OF = {value: name for name, value in _RESOURCES.items()}
_PATTERN_OF = {value: name for name, value in _PATTERNS.items()}
_OPERATION_OF = {value: name for name, value in _OPERATIONS.items()}


class UnguardedError(HilcastError):
    """Kafka has no authorizer: everybody may do everything."""


class Acls:
    """The ACLs of a cluster, as far as they allow something to a principal from any host."""

    def __init__(self, config: Config) -> None:
        self._address = config.deployment.kafka
        self._admin = AdminClient(librdkafka(config))

    def there(self) -> set[Grant]:
        """What is granted; `UnguardedError` where nothing has to be, `not-allowed` where we may not look."""
        everything = AclBindingFilter(
            ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
        )
        try:
            found = self._admin.describe_acls(everything, request_timeout=_TIMEOUT_S).result()
        except KafkaException as error:
            raise self._told(error, "look at the ACLs") from error
        return {grant for binding in found if (grant := _grant(binding)) is not None}

    def give(self, grants: Sequence[Grant]) -> None:
        """Grant these; what is granted already stays so."""
        if grants:
            answers = self._admin.create_acls([_binding(each) for each in grants], request_timeout=_TIMEOUT_S)
            self._settle(answers.values())

    def take(self, grants: Sequence[Grant]) -> None:
        """Take these back."""
        if grants:
            answers = self._admin.delete_acls([_exactly(each) for each in grants], request_timeout=_TIMEOUT_S)
            self._settle(answers.values())

    def _settle(self, answers: Iterable[object]) -> None:
        for answer in answers:
            try:
                answer.result()  # type: ignore[attr-defined]
            except KafkaException as error:
                raise self._told(error, "change ACLs") from error

    def _told(self, error: KafkaException, what: str) -> HilcastError:
        reason: KafkaError = error.args[0]
        if reason.code() == KafkaError.SECURITY_DISABLED:
            return UnguardedError("no-authorizer", "Kafka has no authorizer: everybody may do everything")
        if reason.code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED:
            return HilcastError("not-allowed", f"this principal may not {what}: it takes rights on the cluster")
        return away(self._address, reason.str())


def commands(grants: Iterable[Grant], kafka: str) -> list[str]:
    """The same rights as commands of Kafka's own tool, for whoever keeps them by hand.

    >>> (line,) = commands([Grant("User:a", "topic", "prefixed", "p.link.", "read")], "h:9092")
    >>> print(line.partition("--add ")[2])
    --allow-principal User:a --operation Read --topic p.link. --resource-pattern-type prefixed
    """
    lines = []
    for grant in grants:
        operation = "".join(word.capitalize() for word in grant.operation.split("-"))
        place = "--cluster" if grant.resource == "cluster" else f"--{grant.resource} {grant.name}"
        pattern = " --resource-pattern-type prefixed" if grant.pattern == "prefixed" else ""
        who = f"--add --allow-principal {grant.principal} --operation {operation}"
        lines.append(f"kafka-acls.sh --bootstrap-server {kafka} {who} {place}{pattern}")
    return lines


def _binding(grant: Grant) -> AclBinding:
    return AclBinding(
        _RESOURCES[grant.resource],
        grant.name,
        _PATTERNS[grant.pattern],
        grant.principal,
        "*",
        _OPERATIONS[grant.operation],
        AclPermissionType.ALLOW,
    )


def _exactly(grant: Grant) -> AclBindingFilter:
    binding = _binding(grant)
    return AclBindingFilter(
        binding.restype,
        binding.name,
        binding.resource_pattern_type,
        binding.principal,
        binding.host,
        binding.operation,
        binding.permission_type,
    )


def _grant(binding: AclBinding) -> Grant | None:
    """What a binding allows, in our words; None for what forbids, or is of a kind that we do not speak of."""
    resource = _RESOURCE_OF.get(binding.restype)
    pattern = _PATTERN_OF.get(binding.resource_pattern_type)
    if binding.permission_type != AclPermissionType.ALLOW or resource is None or pattern is None:
        return None
    operation = _OPERATION_OF.get(binding.operation)
    name = CLUSTER if resource == "cluster" else binding.name
    # an operation that we never grant (alter, all, ...) is named as Kafka has it, and so never wanted
    return Grant(binding.principal, resource, pattern, name, operation or binding.operation.name.lower())
