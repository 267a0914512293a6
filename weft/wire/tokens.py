"""Tokens after YARN's model: what they say is signed, and ends.

A token is bytes: its kind, the number of the key, when it ends, whom or what it is for, and an
HMAC-SHA256 over all of that. It is no secret message, but whoever has it may do what it says, so it
goes to that one only and is never written where others read. Keys are changed while in use: a new
one is made known before anything is signed with it, an old one is kept as long as its tokens last.

Nothing here looks at a clock or draws a number: time (unix, s) and secrets are arguments.
"""

import base64
import hmac
import math
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from hashlib import sha256
from typing import Any, NamedTuple

from weft.model.errors import InputError
from weft.model.ids import AttemptId, ContainerId, NodeId, attempt_of_container
from weft.protocol.access import URI, Role, role_of

# The file is in the Resource Manager's state folder.
FILE = "keys.json"
SECRET_BYTES = 32
MAC_BYTES = 32
# On the wall clock, a new key is made every ROTATE_S and known for ACTIVATE_S before anything is
# signed with it.
ROTATE_S = 86_400.0
ACTIVATE_S = 30.0
# Tokens of masters and nodes outlive so many changes of keys, should nobody renew them.
TOKEN_LIFE_ROTATIONS = 5
# Kept are those, the key that signs and the one that does next.
KEYS_MAX = TOKEN_LIFE_ROTATIONS + 2
# A container is started so long after it was granted, at most.
CONTAINER_S = 600.0
# The first key's number is drawn from 1 to one more than this.
FIRST_MAX = 2**30 - 1
NUMBER_MAX = 2**32 - 1
_HEAD = struct.Struct(">BId")
_NUMBER = struct.Struct(">Q")
# Tokens without their signature: for a number; of a container, for an attempt that it was not
# granted to; of so many containers with consecutive ids that were granted together.
_PLAIN_TOKEN = struct.Struct(">BIdQ")
_PLAIN_TOKEN_BYTES = _PLAIN_TOKEN.size + MAC_BYTES
_HANDED_TOKEN = struct.Struct(">BIdQQ")
_HANDED_TOKEN_BYTES = _HANDED_TOKEN.size + MAC_BYTES
_RUN_TOKEN = struct.Struct(">BIdQI")
_RUN_TOKEN_BYTES = _RUN_TOKEN.size + MAC_BYTES
NODE_KEYS_CACHED_MAX = 100_000
# Kept is the state of the hash after the key's block, with which each signature begins.
MAC_STATES_CACHED_MAX = 10_000
_SHA256_BLOCK_BYTES = 64
_TOKEN_BYTES_MAX = 2_000


class Kind(IntEnum):
    """What a token lets its holder do.

    ATTEMPT lets it speak for one attempt of an application and NODE for one node. CONTAINER lets it
    start, stop and query one container on its node, and LOG read what one container wrote. USER
    lets it be a user, `client/NAME` or `admin/NAME`.
    """

    ATTEMPT = 1
    NODE = 2
    CONTAINER = 3
    LOG = 4
    USER = 5


class Shown(NamedTuple):
    """Tokens that go along with the messages of a stream."""

    tokens: tuple[bytes, ...]


class KeysTold(NamedTuple):
    """All of a node's own keys, by which it checks tokens of its containers: no other holds.

    `keys` are (number, secret), ascending.
    """

    node_id: NodeId
    keys: tuple[tuple[int, bytes], ...]

    def __repr__(self) -> str:
        return f"KeysTold({self.node_id!r}, {[number for number, _ in self.keys]})"


class TimeTold(NamedTuple):
    """What time it is where tokens are made: unix, s."""

    now_s: float


class Claim(NamedTuple):
    """What a token says, whether or not it is true."""

    kind: int
    key: int
    ends_s: float
    subject: bytes

    @property
    def number(self) -> int:
        """The attempt or container that it is for; raises InputError for another subject."""
        if len(self.subject) != _NUMBER.size:
            raise InputError("token", "is for no number")
        return int(_NUMBER.unpack(self.subject)[0])

    @property
    def name(self) -> str:
        """The node that it is for."""
        return self.subject.decode("utf-8", "replace")


def sign(secret: bytes, kind: Kind, key: int, ends_s: float, subject: int | str) -> bytes:
    """Make a token."""
    what = _NUMBER.pack(subject) if isinstance(subject, int) else subject.encode()
    said = _HEAD.pack(kind, key, ends_s) + what
    return said + signature(secret, said)


@lru_cache(MAC_STATES_CACHED_MAX)
def _begun(secret: bytes) -> tuple[Any, Any]:
    """Return the inner and the outer hash of RFC 2104 as they are before there is a text."""
    block = (secret if len(secret) <= _SHA256_BLOCK_BYTES else sha256(secret).digest()).ljust(
        _SHA256_BLOCK_BYTES, b"\0"
    )
    inner, outer = (bytes([byte ^ pad for byte in block]) for pad in (0x36, 0x5C))
    return sha256(inner), sha256(outer)


def signature(secret: bytes, said: bytes) -> bytes:
    """Return the HMAC-SHA256 of a text.

    What each secret begins with is kept, as `hmac` looks up and begins everything anew each time:
    17 us instead of 6 where other work was done in between.
    """
    inner, outer = _begun(secret)
    inner, outer = inner.copy(), outer.copy()
    inner.update(said)
    outer.update(inner.digest())
    made: bytes = outer.digest()
    return made


def read(token: bytes) -> Claim:
    """Return what a token says; raises InputError where it is none."""
    if not _HEAD.size + MAC_BYTES < len(token) <= _TOKEN_BYTES_MAX:
        raise InputError("token", "is no token")
    kind, key, ends_s = _HEAD.unpack_from(token)
    return Claim(kind, key, ends_s, token[_HEAD.size : -MAC_BYTES])


def check(token: bytes, kinds: tuple[Kind, ...], keys: Mapping[int, bytes], now_s: float) -> Claim:
    """Return what a true token says; raises InputError saying why it is not."""
    claim = read(token)
    secret = keys.get(claim.key)
    if claim.kind not in kinds or secret is None:
        raise InputError("token", "is of another kind" if secret else "is signed by no key of ours")
    if not hmac.compare_digest(signature(secret, token[:-MAC_BYTES]), token[-MAC_BYTES:]):
        raise InputError("token", "is not signed by its key")
    if not now_s < claim.ends_s:
        raise InputError("token", "has expired")
    return claim


def user_of(text: str) -> str:
    """Return the user whom a user's token names, true or not; empty: none, or an operator."""
    try:
        found = role_of(f"{URI}{read(base64.urlsafe_b64decode(text.encode('ascii'))).name}")
    except (ValueError, InputError):
        return ""
    return found[1] if found is not None and found[0] is Role.CLIENT else ""


def numbered(token: bytes) -> tuple[int, int, int]:
    """Return what a token for numbers claims: its kind, the first, how many; zeros for any other.

    Nothing is checked, so the count may be any of 32 bits.
    """
    if len(token) not in (_PLAIN_TOKEN_BYTES, _HANDED_TOKEN_BYTES, _RUN_TOKEN_BYTES):
        return 0, 0, 0
    kind, _, _, number = _PLAIN_TOKEN.unpack_from(token)
    if kind != Kind.CONTAINER and len(token) != _PLAIN_TOKEN_BYTES:
        return 0, 0, 0
    return kind, number, _RUN_TOKEN.unpack_from(token)[4] if len(token) == _RUN_TOKEN_BYTES else 1


def container_problem(
    token: bytes,
    container: ContainerId,
    keys: Mapping[int, bytes],
    now_s: float,
    wanted: Kind = Kind.CONTAINER,
    attempt: AttemptId = 0,
) -> str:
    """Return what keeps a token from being a container's; empty: nothing. As `check`, for the many.

    `attempt`: the one that orders by it, 0 for any. A token is good for the attempt that it was
    given to: whom the container was granted to, or another that it names.
    """
    if len(token) == _PLAIN_TOKEN_BYTES:
        kind, key, ends_s, number = _PLAIN_TOKEN.unpack_from(token)
        secret = keys.get(key)
        good = kind == wanted and number == container and secret is not None and now_s < ends_s
        if good and hmac.compare_digest(
            signature(secret or b"", token[:-MAC_BYTES]), token[-MAC_BYTES:]
        ):
            own = not attempt or attempt == attempt_of_container(container)
            return "" if own else f"container {container} was not handed to attempt {attempt}"
    try:
        claim = check(token, (wanted,), keys, now_s)
        if wanted == Kind.CONTAINER and len(token) == _RUN_TOKEN_BYTES:
            first, count = _RUN_TOKEN.unpack_from(token)[3:]
            if not first <= container < first + count:
                return f"the token is of containers {first} to {first + count - 1}"
            own = attempt in (0, attempt_of_container(container))
            return "" if own else f"container {container} was not handed to attempt {attempt}"
        if wanted == Kind.CONTAINER and len(token) == _HANDED_TOKEN_BYTES:
            number, given = _HANDED_TOKEN.unpack_from(token)[3:]
            if number == container and attempt in (0, given):
                return ""
            return f"the token is of container {number} for attempt {given}"
    except InputError as error:
        return f"the token of container {container} {error.problem}"
    return f"the token is of container {claim.number}"


def node_secret(secret: bytes, node: NodeId) -> bytes:
    """Return the key of one node: it can sign for no other."""
    return hmac.digest(secret, b"node " + node.encode(), "sha256")


@dataclass(slots=True)
class _Key:
    number: int
    # It began to sign at `from_s`.
    from_s: float
    secret: bytes


def _saved(data: Any) -> list[_Key]:
    """Return the keys that `Keys.data` gave; raises InputError."""
    try:
        keys = [
            _Key(int(one["number"]), float(one["from_s"]), bytes.fromhex(one["secret"]))
            for one in data["keys"]
        ]
    except (KeyError, TypeError, ValueError, OverflowError):
        raise InputError("keys", "are not what this version wrote") from None
    if not 1 <= len(keys) <= KEYS_MAX:
        raise InputError("keys", f"are {len(keys)}: expected 1 to {KEYS_MAX}")
    last = 0
    for place, one in enumerate(keys):
        if not last < one.number < NUMBER_MAX:
            text = f"is {one.number}: expected {last + 1} to {NUMBER_MAX - 1}, ascending"
            raise InputError(f"keys[{place}].number", text)
        if not math.isfinite(one.from_s):
            raise InputError(f"keys[{place}].from_s", "is no time")
        if len(one.secret) != SECRET_BYTES:
            raise InputError(f"keys[{place}].secret", f"has not {SECRET_BYTES} bytes")
        last = one.number
    return keys


class Keys:
    """The Resource Manager's keys, the newest last."""

    def __init__(
        self,
        now_s: float,
        draw: Callable[[int], bytes],
        rotate_s: float = ROTATE_S,
        saved: Mapping[str, Any] | None = None,
    ) -> None:
        """`draw(n)` gives n secret random bytes; `saved` is what `data` gave. Raises InputError."""
        self._draw = draw
        self._rotate_s = rotate_s
        self._activate_s = min(ACTIVATE_S, rotate_s / 2)
        self._keys: list[_Key] = []
        # These are the nodes' own keys.
        self._derived: dict[tuple[int, NodeId], bytes] = {}
        if saved is not None:
            self._keys = _saved(saved)
        if not self._keys:
            # The number distinguishes tokens of these keys from those of keys that were lost.
            first = 1 + (int.from_bytes(draw(4), "big") & FIRST_MAX)
            self._keys = [_Key(first, now_s, draw(SECRET_BYTES))]

    def data(self) -> dict[str, Any]:
        """Return the keys as plain data, for their file."""
        return {
            "keys": [
                {"number": one.number, "from_s": one.from_s, "secret": one.secret.hex()}
                for one in self._keys
            ]
        }

    def turn(self, now_s: float) -> bool:
        """Make a new key when it is time; returns whether there is one that nobody knows yet."""
        newest = self._keys[-1]
        if newest.from_s > now_s + self._activate_s:
            # The clock went back, so that everything continues from now.
            for one in self._keys:
                one.from_s = min(one.from_s, now_s + self._activate_s)
        if now_s < newest.from_s + self._rotate_s:
            return False
        self._keys = self._keys[1 - KEYS_MAX :]
        made = _Key(newest.number + 1, now_s + self._activate_s, self._draw(SECRET_BYTES))
        self._keys.append(made)
        return True

    def _signs(self, now_s: float) -> _Key:
        return next((one for one in reversed(self._keys) if one.from_s <= now_s), self._keys[0])

    def lasts_s(self) -> float:
        """Return how long tokens of parts last: its key is kept for longer."""
        return self._rotate_s * TOKEN_LIFE_ROTATIONS

    def attempt(self, attempt: AttemptId, now_s: float) -> bytes:
        """Return the token of a master."""
        key = self._signs(now_s)
        return sign(key.secret, Kind.ATTEMPT, key.number, now_s + self.lasts_s(), attempt)

    def node(self, node: NodeId, now_s: float) -> bytes:
        """Return the token of a node."""
        key = self._signs(now_s)
        return sign(key.secret, Kind.NODE, key.number, now_s + self.lasts_s(), node)

    def container(
        self,
        container: ContainerId,
        node: NodeId,
        now_s: float,
        kind: Kind = Kind.CONTAINER,
        attempt: AttemptId = 0,
        count: int = 1,
    ) -> bytes:
        """Return the token of a container, or to read its logs, which its node checks.

        `attempt`: whom it is given to, if the container may have been granted to an earlier one.
        `count`: of so many with consecutive ids, granted together to that attempt.
        """
        key = self._signs(now_s)
        secret = self._derived.get((key.number, node))
        if secret is None:
            if len(self._derived) >= NODE_KEYS_CACHED_MAX:
                self._derived.clear()
            secret = self._derived[key.number, node] = node_secret(key.secret, node)
        ends_s = now_s + CONTAINER_S
        if count > 1:
            said = _RUN_TOKEN.pack(kind, key.number, ends_s, container, count)
        elif attempt in (0, attempt_of_container(container)):
            said = _PLAIN_TOKEN.pack(kind, key.number, ends_s, container)
        else:
            said = _HANDED_TOKEN.pack(kind, key.number, ends_s, container, attempt)
        return said + signature(secret, said)

    def user(self, role: Role, name: str, now_s: float, lasts_s: float) -> str:
        """Return the token of a user or operator, as text."""
        key = self._signs(now_s)
        ends_s = now_s + min(lasts_s, self.lasts_s())
        token = sign(key.secret, Kind.USER, key.number, ends_s, f"{role.value}/{name}")
        return base64.urlsafe_b64encode(token).decode()

    def true_user(self, text: str, now_s: float) -> tuple[Role, str]:
        """Return whose token a text is; raises InputError."""
        try:
            token = base64.urlsafe_b64decode(text.encode("ascii"))
        except ValueError:
            raise InputError("token", "is no token") from None
        known = {one.number: one.secret for one in self._keys}
        found = role_of(f"{URI}{check(token, (Kind.USER,), known, now_s).name}")
        if found is None or found[0] not in (Role.CLIENT, Role.ADMIN):
            raise InputError("token", "is no user's")
        return found

    def of_node(self, node: NodeId) -> KeysTold:
        """Return what a node must know to check its containers' tokens."""
        told = tuple((one.number, node_secret(one.secret, node)) for one in self._keys)
        return KeysTold(node, told)

    def true(self, token: bytes, kind: Kind, now_s: float) -> Claim:
        """Return what a true token of a master or a node says; raises InputError."""
        known = {one.number: one.secret for one in self._keys}
        return check(token, (kind,), known, now_s)
