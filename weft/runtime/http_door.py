"""Who may ask an HTTP server of Weft at all: the one rule that all of them have at their door.

On loopback the only guard of a server is that others do not reach it. A visitor's browser does, for
any page of another site that it has open: with that site's own name in `Host` if the name leads
here (DNS rebinding), or with the site's `Origin` where a page sends a form.
"""

import ipaddress
import socket
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

from weft.runtime.bind_check import is_loopback

READS = frozenset({"GET", "HEAD", "OPTIONS"})
MISDIRECTED, FORBIDDEN = 421, 403
FOREIGN_FETCH_SITES = frozenset({"cross-site", "same-site"})
# What a server answers that is no page is shown as nothing else, whatever it holds.
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; sandbox; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def _named(target: str) -> list[str]:
    """Return the server that a request's target names, where it is more than a path of this one."""
    if target.startswith("/") or target == "*":
        return []
    _, scheme, rest = target.partition("://")
    return [(rest if scheme else target).partition("/")[0].partition("?")[0].partition("#")[0]]


class Door:
    """The names of a server, and whom it refuses by them. `*` among the names: any."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = {*(name.lower() for name in names), socket.gethostname().lower()}

    def refusal(
        self, method: str, target: str, headers: Mapping[str, str]
    ) -> tuple[int, str] | None:
        """Return the status and the words with which a request is refused; None: it is not.

        `target` is as the request line has it: it may name a server, too (RFC 9112, section 3.2.2).
        """
        host = headers.get("Host", "")
        for name in (host, *_named(target)):
            if not self.is_ours(name):
                text = f"{name or 'nothing'} is no name of this server: --allowed-hosts adds one"
                return MISDIRECTED, text
        if method in READS:
            return None
        origin = headers.get("Origin")
        elsewhere = headers.get("Sec-Fetch-Site", "") in FOREIGN_FETCH_SITES
        if elsewhere or (origin and urlsplit(origin).netloc != host):
            return FORBIDDEN, f"a page of {origin or 'another site'} may not do this"
        return None

    def is_ours(self, host: str) -> bool:
        """Return whether a request's Host is an address, or a name that the server goes by."""
        try:
            name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
        except ValueError:
            return False
        if "*" in self._names or name in self._names or is_loopback(name):
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True
