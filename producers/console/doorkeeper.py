"""Who may come in: names of this host, pages of this server, holders of the token.

Host     a name of the address that is bound, so that no foreign name that resolves to it (DNS rebinding) is served
Origin   where a browser says it, the page must be ours
token    where another address than loopback is bound: once in the query, from then on in a cookie
page     what changes or computes is asked by POST with a header that only our page knows
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

COOKIE = "hilcast_console"
PAGE_HEADER = "x-hilcast-page"
LOOPBACK = ("127.0.0.1", "localhost", "::1")

SAFE = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; style-src 'self'; script-src 'self'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
"""Headers of every answer."""


def is_loopback(address: str) -> bool:
    """
    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0"), is_loopback("10.1.2.3")
    (True, True, False, False)
    """
    if address in LOOPBACK:
        return True
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True)
class Doorkeeper:
    """What is asked of every request."""

    address: str
    token: str | None
    """None: nobody is asked, because only this host can come."""
    page: str = field(default_factory=lambda: secrets.token_urlsafe(24))

    def refusal(self, method: str, headers: Mapping[str, str], cookie: str | None) -> tuple[int, str] | None:
        """Why a request is not served: status and words; None if it is.

        >>> Doorkeeper("127.0.0.1", None).refusal("GET", {"host": "evil.example:8765"}, None)
        (421, "host: 'evil.example:8765' is not a name of this console")
        """
        host = headers.get("host", "")
        if not self._is_ours(host):
            return 421, f"host: {host!r} is not a name of this console"
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc != host:
            return 403, "origin: another page asks"
        if self.token is not None and not (cookie and hmac.compare_digest(cookie, self.token)):
            return 401, "token: open the address that `hilcast ui` printed"
        if method != "GET" and not hmac.compare_digest(headers.get(PAGE_HEADER, ""), self.page):
            return 403, "page: load the page again"
        return None

    def admits(self, token: str | None) -> bool:
        """Whether a token in the query is the right one."""
        return self.token is not None and token is not None and hmac.compare_digest(token, self.token)

    def _is_ours(self, host: str) -> bool:
        name = urlsplit(f"//{host}").hostname or ""
        if is_loopback(self.address):
            return is_loopback(name)
        return name in (self.address, socket.gethostname(), *LOOPBACK) or _is_address(name)


def _is_address(name: str) -> bool:
    """A number cannot be made to resolve to anything else."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
