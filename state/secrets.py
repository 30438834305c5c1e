"""Settings with secrets in them: passed on whole, printed masked."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

T = TypeVar("T")

_SECRET = re.compile(r"password|passwd|secret|token|credential|jaas|key|user\.info", re.IGNORECASE)
_NO_SECRET = re.compile(r"(location|file|path|type|alias|serializer)$|^username$", re.IGNORECASE)
_USER_INFO = re.compile(r"(://[^:/@]*:).*@", re.DOTALL)
_QUERY = re.compile(r"([?&]([^=&]*)=)[^&]*")
_URL_IN_TEXT = re.compile(r"(://[^\s:/@]*:)\S*@")
_NAMED_IN_TEXT = re.compile(
    r"""((?:password|passwd|secret|token|credential)[^\s=:"']*["']?\s*[=:]\s*)("(?:[^"\\]|\\.)*"|'[^']*'|[^\s,;&]+)""",
    re.I,
)
KNOWN_MIN = 4
"""A secret of fewer characters is masked only where it is named: anywhere else it would be found in every word."""


def redacted(value: str) -> str:
    """Return a URL without its password, in the user part or the query.

    >>> redacted("redis://me:pa@ss/word@127.0.0.1:6379/0?ssl_keyfile=k.pem&password=x")
    'redis://me:***@127.0.0.1:6379/0?ssl_keyfile=k.pem&password=***'
    """
    value = _USER_INFO.sub(r"\1***@", value)
    return _QUERY.sub(lambda m: m[1] + "***" if _is_secret(m[2]) else m[0], value)


def masked(text: str, known: Iterable[str] = ()) -> str:
    """Return a text for people without secrets: those that are known, and whatever looks like one.

    >>> masked("redis://me:hush@h:1 went away, sasl.password=tell, said it", known=["went"])
    'redis://me:***@h:1 *** away, sasl.password=***, said it'
    """
    for secret in sorted({secret for secret in known if len(secret) >= KNOWN_MIN}, key=len, reverse=True):
        text = text.replace(secret, "***")
    return _NAMED_IN_TEXT.sub(r"\1***", _URL_IN_TEXT.sub(r"\1***@", text))


def url_secrets(url: str) -> list[str]:
    """The secrets of a URL, as they are written and as they are meant.

    >>> url_secrets("redis://me:p%40ss@h:1/0?password=x&db=0")
    ['p%40ss', 'p@ss', 'x']
    """
    found = re.search(_USER_INFO.pattern.replace(".*", "(.*)"), url, re.DOTALL)
    written = found[2] if found else ""
    named = [value for name, value in parse_qsl(urlsplit(url).query) if _is_secret(name)]
    return list(dict.fromkeys(secret for secret in (written, unquote(written), *named) if secret))


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

    def secrets(self) -> list[str]:
        """What is masked of them, also line by line and as Java's settings quote it."""
        whole = [str(value) for name, value in self.items() if _is_secret(name)]
        whole += [secret for value in self.values() if "://" in str(value) for secret in url_secrets(str(value))]
        quoted = [secret.replace("\\", "\\\\").replace('"', '\\"') for secret in whole]
        return list(dict.fromkeys([*whole, *quoted, *(line for secret in whole for line in secret.splitlines())]))

    def __repr__(self) -> str:
        return repr(self.redacted())

    __str__ = __repr__
