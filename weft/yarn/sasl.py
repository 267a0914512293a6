"""DIGEST-MD5 (RFC 2831) as Hadoop's tokens use it: the server's half.

The user's name is the token's identifier and the secret its password, both in base64. Only
`qop=auth` is offered: peers are authenticated, what follows is neither signed nor encrypted.
"""

import hashlib
import hmac
import re
import secrets
from base64 import b64decode, b64encode
from collections.abc import Callable

REALM = "default"
_PAIR = re.compile(r'\s*([a-zA-Z-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^,\s]*))\s*(?:,|$)')
# A token's identifier is far below 1 kB.
RESPONSE_CHARACTERS_MAX = 64 * 1024


class Refused(Exception):
    """The peer did not prove that it has the token's password."""


class DigestServer:
    """One handshake: `challenge`, then `finish` once with the peer's response."""

    def __init__(self, nonce: str = "") -> None:
        self._nonce = nonce or secrets.token_urlsafe(24)

    def challenge(self) -> bytes:
        """Return what the peer has to answer."""
        text = f'realm="{REALM}",nonce="{self._nonce}",qop="auth",charset=utf-8,algorithm=md5-sess'
        return text.encode()

    def finish(self, response: bytes, password_of: Callable[[bytes], bytes]) -> tuple[bytes, bytes]:
        """Check a response; returns the token's identifier and the server's own proof.

        `password_of` gives the password of an identifier, or raises Refused.
        """
        told = read_pairs(response)
        missing = {"username", "nonce", "cnonce", "nc", "digest-uri", "response"} - told.keys()
        if missing:
            raise Refused(f"the response lacks {', '.join(sorted(missing))}")
        if told["nonce"] != self._nonce:
            raise Refused("the response is to another challenge")
        if told.get("qop", "auth") != "auth":
            raise Refused(f"qop {told['qop']!r} was not offered")
        try:
            identifier = b64decode(told["username"], validate=True)
        except ValueError:
            raise Refused("the user's name is no token") from None
        password = b64encode(password_of(identifier)).decode()
        wanted = digest(told, password, "AUTHENTICATE:")
        if not hmac.compare_digest(wanted.encode(), told["response"].encode("utf-8", "replace")):
            raise Refused("the password does not fit the token")
        return identifier, f"rspauth={digest(told, password, ':')}".encode()


def read_pairs(text: bytes) -> dict[str, str]:
    """Read `key=value` pairs; raises Refused for anything else."""
    if len(text) > RESPONSE_CHARACTERS_MAX:
        raise Refused("the response is too long")
    try:
        rest = text.decode("utf-8")
    except UnicodeDecodeError:
        raise Refused("the response is no text") from None
    found: dict[str, str] = {}
    at = 0
    while at < len(rest):
        match = _PAIR.match(rest, at)
        if match is None or match.end() == at:
            raise Refused(f"the response cannot be read at character {at}")
        quoted = match[2]
        found[match[1].lower()] = match[3] if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
        at = match.end()
    return found


def digest(told: dict[str, str], password: str, method: str) -> str:
    """Return the digest of RFC 2831, section 2.1.2.1; `method` is "AUTHENTICATE:" or ":"."""
    secret = _md5(f"{told['username']}:{told.get('realm', '')}:{password}".encode())
    first = secret + f":{told['nonce']}:{told['cnonce']}".encode()
    parts = (
        _md5(first).hex(),
        told["nonce"],
        told["nc"],
        told["cnonce"],
        told.get("qop", "auth"),
        _md5(f"{method}{told['digest-uri']}".encode()).hex(),
    )
    return _md5(":".join(parts).encode()).hex()


def _md5(data: bytes) -> bytes:
    return hashlib.md5(data, usedforsecurity=False).digest()
