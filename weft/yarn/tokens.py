"""Tokens after YARN's model: an identifier that anyone may read, a password that only we can make.

The password is an HMAC of the identifier under a key that the identifier names by its number, so
that keys can be replaced while tokens of the last one are still in use. The keys live in a file of
their own (0600), or a gateway that starts again would lock out every running master.
"""

import hashlib
import hmac
import io
import json
import secrets
import struct
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError

from weft.model.errors import InputError
from weft.runtime.kept_file import read_kept, write_kept
from weft.yarn import hadoop_pb2 as pb
from weft.yarn.sasl import Refused

MASTER, NODE, CONTAINER = "YARN_AM_RM_TOKEN", "NMToken", "ContainerToken"
# A key makes tokens for so long, and they are accepted for so much longer.
KEY_LIFE_S = 24 * 3600.0
KEY_GRACE_S = 7 * KEY_LIFE_S


class Credential(NamedTuple):
    """A token as it stands in a credentials file."""

    identifier: bytes
    password: bytes
    kind: str
    service: str


# `made_s` is Unix time.
@dataclass(slots=True)
class _Key:
    number: int
    made_s: float
    secret: bytes


class TokenKeeper:
    """Makes and checks tokens; `path` keeps the keys over a restart."""

    def __init__(self, path: Path | None = None, clock: Callable[[], float] = time.time) -> None:
        self._path = path
        self._clock = clock
        self._keys: list[_Key] = [] if path is None else _load(path)
        self._fresh()

    # -- making ------------------------------------------------------------------------------------

    def master(self, attempt: Any) -> Credential:
        """Return the token by which a master proves which attempt it is."""
        return self._signed(pb.MasterTokenIdentifier(attempt=attempt), MASTER)

    def node(self, attempt: Any, node: Any, user: str) -> Credential:
        """Return the token by which a master may start containers on one node."""
        identifier = pb.NodeTokenIdentifier(attempt=attempt, node=node, submitter=user)
        return self._signed(identifier, NODE)

    def container(self, identifier: Any) -> Credential:
        """Return the token of a granted container: what a node may start, and with how much."""
        return self._signed(identifier, CONTAINER)

    def ticket(self, container: str) -> str:
        """Return the secret by which a container's launcher fetches what it is to run."""
        mixed = hmac.new(self._fresh().secret, f"launch {container}".encode(), hashlib.sha256)
        return mixed.hexdigest()

    # -- checking ----------------------------------------------------------------------------------

    def password(self, kind: str, identifier: bytes) -> bytes:
        """Return the password of a token; raises Refused for a key that is unknown or too old."""
        types = {
            MASTER: pb.MasterTokenIdentifier,
            NODE: pb.NodeTokenIdentifier,
            CONTAINER: pb.ContainerTokenIdentifier,
        }
        read = types[kind]()
        try:
            read.ParseFromString(identifier)
        except DecodeError:
            raise Refused("the token cannot be read") from None
        now_s = self._clock()
        for key in self._keys:
            if key.number == read.key_id and now_s - key.made_s < KEY_LIFE_S + KEY_GRACE_S:
                return _mac(key.secret, kind, identifier)
        raise Refused("the token's key is unknown or too old")

    def holds(self, kind: str, identifier: bytes, password: bytes) -> bool:
        """Return whether a token that came back is one of ours, unchanged."""
        try:
            return hmac.compare_digest(self.password(kind, identifier), password)
        except Refused:
            return False

    def admits(self, container: str, ticket: str) -> bool:
        """Return whether a launcher's ticket is that of its container."""
        for key in self._keys:
            mixed = hmac.new(key.secret, f"launch {container}".encode(), hashlib.sha256)
            if hmac.compare_digest(mixed.hexdigest().encode(), ticket.encode("utf-8", "replace")):
                return True
        return False

    # -- keys --------------------------------------------------------------------------------------

    def rotate(self) -> None:
        """Begin a new key; tokens of the old ones go on being taken until they are too old."""
        now_s = self._clock()
        self._keys = [k for k in self._keys if now_s - k.made_s < KEY_LIFE_S + KEY_GRACE_S]
        number = 1 + max((k.number for k in self._keys), default=0)
        self._keys.append(_Key(number, now_s, secrets.token_bytes(32)))
        if self._path is not None:
            _save(self._path, self._keys)

    def _fresh(self) -> _Key:
        if not self._keys or self._clock() - self._keys[-1].made_s >= KEY_LIFE_S:
            self.rotate()
        return self._keys[-1]

    def _signed(self, identifier: Any, kind: str) -> Credential:
        key = self._fresh()
        identifier.key_id = key.number
        data = identifier.SerializeToString()
        return Credential(data, _mac(key.secret, kind, data), kind, "")


def token(credential: Credential, service: str = "") -> Any:
    """Return a credential as a message; its four fields are all required by Java's readers."""
    return pb.Token(
        identifier=credential.identifier,
        password=credential.password,
        kind=credential.kind,
        service=service or credential.service,
    )


def _mac(secret: bytes, kind: str, identifier: bytes) -> bytes:
    return hmac.new(secret, kind.encode() + b"\0" + identifier, hashlib.sha256).digest()[:20]


def _load(path: Path) -> list[_Key]:
    kept = read_kept(path)
    if kept is None:
        return []
    try:
        rows = json.loads(kept)
        return [_Key(int(n), float(made), bytes.fromhex(secret)) for n, made, secret in rows]
    except (ValueError, TypeError) as error:
        raise InputError(str(path), f"cannot be read as token keys: {error}") from None


def _save(path: Path, keys: Iterable[_Key]) -> None:
    rows = [[k.number, k.made_s, k.secret.hex()] for k in keys]
    write_kept(path, json.dumps(rows).encode())


# -- credentials files -----------------------------------------------------------------------------


def read_credentials(data: bytes) -> tuple[dict[str, Credential], dict[str, bytes]]:
    """Read a credentials file ("HDTS", version 0); returns tokens and secrets by alias.

    Raises ValueError for damage or another version.
    """
    if not data:
        return {}, {}
    if data[:4] != b"HDTS" or len(data) < 5:
        raise ValueError("no credentials file")
    if data[4] != 0:
        raise ValueError(f"credentials of version {data[4]} are not read here")
    file = io.BytesIO(data[5:])
    tokens: dict[str, Credential] = {}
    for _ in range(_vint(file)):
        alias = _text(file)
        tokens[alias] = read_token(file)
    found: dict[str, bytes] = {}
    for _ in range(_vint(file)):
        alias = _text(file)
        found[alias] = _blob(file)
    return tokens, found


def read_token(file: io.BytesIO) -> Credential:
    """Read a token as Java writes it (`Token.write`); raises ValueError."""
    identifier, password = _blob(file), _blob(file)
    return Credential(identifier, password, _text(file), _text(file))


def write_credentials(tokens: dict[str, Credential], found: dict[str, bytes]) -> bytes:
    """Write a credentials file of version 0."""
    out = bytearray(b"HDTS\0")
    out += write_vint(len(tokens))
    for alias, one in tokens.items():
        out += _put(alias.encode()) + _put(one.identifier) + _put(one.password)
        out += _put(one.kind.encode()) + _put(one.service.encode())
    out += write_vint(len(found))
    for alias, secret in found.items():
        out += _put(alias.encode()) + _put(secret)
    return bytes(out)


def _vint(file: io.BytesIO) -> int:
    """Read Hadoop's variable-length integer (WritableUtils)."""
    head = struct.unpack("b", _exactly(file, 1))[0]
    if head >= -112:
        return int(head)
    negative = head < -120
    size = -(head + 120) if negative else -(head + 112)
    number = int.from_bytes(_exactly(file, size), "big")
    return ~number if negative else number


def write_vint(number: int) -> bytes:
    """Return Hadoop's variable-length integer of a number that is not negative."""
    if 0 <= number <= 127:
        return struct.pack("b", number)
    data = number.to_bytes((number.bit_length() + 7) // 8, "big")
    return struct.pack("b", -112 - len(data)) + data


def _exactly(file: io.BytesIO, size: int) -> bytes:
    left = len(file.getbuffer()) - file.tell()
    data = file.read(size) if 0 <= size <= left else b""
    if size < 0 or len(data) != size:
        raise ValueError("the credentials end too early")
    return data


def _blob(file: io.BytesIO) -> bytes:
    return _exactly(file, _vint(file))


def _text(file: io.BytesIO) -> str:
    return _blob(file).decode("utf-8")


def write_text(text: str) -> bytes:
    """Return a text as Hadoop writes it (`Text.writeString`)."""
    return _put(text.encode())


def _put(data: bytes) -> bytes:
    return write_vint(len(data)) + data
