"""Throw-away credentials of secured local services: who may enter, with what, and a configuration for each of them.

    DATA/secure/                 only its owner looks in
      ca.pem                     what clients trust; the authority's key is gone
      server.pem                 key and certificate of Kafka, and of a Redis that speaks TLS
      {user}.password            of one principal; made once
      {user}.toml                the configuration with which this principal works: `hilcast --config …`
      {user}.properties          the same for any other program on librdkafka: `kcat -F …`
      signing.key                of the job and of operators, unless the configuration names one

`bootstrap` is Kafka's super user: it makes principals, rights and topics, and nothing else should use it.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import cast

from infra.kafka.scram import MECHANISM, new_password
from infra.local import certificates
from infra.local.toml_text import written
from infra.secret_files import write_secret
from state.config import Config

BOOTSTRAP = "bootstrap"
"""The super user of Kafka; it logs in by PLAIN, since nobody can have a SCRAM credential before Kafka runs."""
INSPECTOR = "inspector"
"""The user of Redis that reads the index and changes nothing."""


def user_of(principal: str) -> str:
    """The name by which a principal logs in.

    >>> user_of("User:alice")
    'alice'
    """
    return principal.partition(":")[2]


class Credentials:
    """What is in the folder `DATA/secure`; made where it is missing, and kept."""

    def __init__(self, data: Path) -> None:
        self.folder = data.absolute() / "secure"

    @property
    def authority(self) -> Path:
        return self.folder / "ca.pem"

    @property
    def server(self) -> Path:
        return self.folder / "server.pem"

    def prepare(self) -> None:
        """Have the folder and its certificates."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o700)
        if not (self.authority.exists() and self.server.exists()):
            authority, server = certificates.make()
            write_secret(self.server, server)
            write_secret(self.authority, authority)

    def password(self, user: str) -> str:
        """The password of a user; made the first time."""
        path = self.folder / f"{user}.password"
        if not path.exists():
            write_secret(path, new_password().encode())
        return path.read_text(encoding="ascii")

    def kafka(self, user: str) -> dict[str, str]:
        """The settings with which a user enters Kafka."""
        return {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.authority),
            "sasl.mechanisms": "PLAIN" if user == BOOTSTRAP else MECHANISM,
            "sasl.username": user,
            "sasl.password": self.password(user),
        }

    def redis(self, user: str, tls: bool) -> dict[str, str]:
        """The settings with which a user enters Redis."""
        trust = {"ssl_ca_certs": str(self.authority)} if tls else {}
        return {"username": user, "password": self.password(user), **trust}

    def write_configuration(
        self, config: Config, directory: Path, user: str, *, url: str, redis_user: str | None, signs: bool
    ) -> Path:
        """Write the configuration of a principal, which was read in `directory`; return where.

        `redis_user` None: this principal has no business in Redis. `signs`: it may write what is signed.
        """
        tables = _absolute(config.tables, directory)
        deployment = {k: v for k, v in _table(tables, "deployment").items() if not k.startswith(("kafka.", "redis."))}
        tables["deployment"] = {**deployment, "kafka": config.deployment.kafka, "redis": url}
        tables["kafka"] = {**_without(_table(tables, "kafka"), ("sasl.", "ssl.", "security.")), **self.kafka(user)}
        tables.pop("redis", None)
        if redis_user is not None:
            tables["redis"] = self.redis(redis_user, url.startswith("rediss:"))
        if not signs:
            tables.pop("signing", None)
        elif "signing" not in tables:
            # the second is where a key that was followed by another is put, and may be missing
            files = {"key_file": self._signing_key(), "previous_file": self.folder / "signing.previous"}
            tables["signing"] = {name: str(path) for name, path in files.items()}
        path = self.folder / f"{user}.toml"
        write_secret(path, written(tables).encode())
        settings = {"bootstrap.servers": config.deployment.kafka, **self.kafka(user)}
        lines = [f"{name}={value}\n" for name, value in settings.items()]
        write_secret(self.folder / f"{user}.properties", "".join(lines).encode())
        return path

    def _signing_key(self) -> Path:
        path = self.folder / "signing.key"
        if not path.exists():
            write_secret(path, secrets.token_hex(32).encode())
        return path


def _table(tables: Mapping[str, object], name: str) -> dict[str, object]:
    return dict(cast(Mapping[str, object], tables.get(name, {})))


def _without(table: Mapping[str, object], heads: Iterable[str]) -> dict[str, object]:
    return {key: value for key, value in table.items() if not key.startswith(tuple(heads))}


def _absolute(tables: Mapping[str, object], directory: Path) -> dict[str, object]:
    """The tables with every relative path of a file as it is seen from elsewhere."""

    def placed(table: Mapping[str, object], *names: str) -> dict[str, object]:
        paths = {n: str(directory / v) for n in names if isinstance(v := table.get(n), str) and "://" not in v}
        return {**table, **paths}

    found = dict(tables)
    found["deployment"] = placed({"checkpoint": "var/checkpoint", **_table(tables, "deployment")}, "checkpoint")
    types = cast(Mapping[str, Mapping[str, object]], tables["types"])
    found["types"] = {name: placed(table, "schema") for name, table in types.items()}
    if "signing" in tables:
        found["signing"] = placed(_table(tables, "signing"), "key_file", "previous_file")
    return found
