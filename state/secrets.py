"""Settings with secrets in them: passed on whole, printed masked."""

from __future__ import annotations

import re
from typing import TypeVar

T = TypeVar("T")

_SECRET = re.compile(r"password|passwd|secret|token|credential|jaas|key", re.IGNORECASE)
_NO_SECRET = re.compile(r"(location|file|path|type|alias|serializer)$|^username$", re.IGNORECASE)
_USER_INFO = re.compile(r"(://[^:/@]*:).*@", re.DOTALL)
_QUERY = re.compile(r"([?&]([^=&]*)=)[^&]*")


def redacted(value: str) -> str:
    """Return a URL without its password, in the user part or the query.

    >>> redacted("redis://me:pa@ss/word@127.0.0.1:6379/0?ssl_keyfile=k.pem&password=x")
    'redis://me:***@127.0.0.1:6379/0?ssl_keyfile=k.pem&password=***'
    """
    value = _USER_INFO.sub(r"\1***@", value)
    return _QUERY.sub(lambda m: m[1] + "***" if _is_secret(m[2]) else m[0], value)


def _is_secret(name: str) -> bool:
    return _SECRET.search(name) is not None and _NO_SECRET.search(name) is None


class ClientSettings(dict[str, T]):
    """Settings that are passed through to a client; printed without their secrets.

    >>> ClientSettings({"sasl.username": "me", "sasl.password": "hush"})
    {'sasl.username': 'me', 'sasl.password': '***'}
    """

    def redacted(self) -> dict[str, str]:
        """The settings as text for people: what is named like a secret is masked, and passwords in URLs."""
        return {name: "***" if _is_secret(name) else redacted(str(value)) for name, value in self.items()}

    def __repr__(self) -> str:
        return repr(self.redacted())

    __str__ = __repr__
