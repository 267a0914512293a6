"""A client of etcd's API v3: what a store that several Resource Managers share needs of it.

Calls are made from threads and block. An endpoint that does not answer is left for the next one of
the list; when none answers, or etcd takes nothing now, `EtcdAwayError` says why: whether a change
was made is not known then. etcd's answers of another kind are errors that no repetition mends.
"""

import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import grpc

from weft.ha import etcd_pb2 as pb
from weft.ha.etcd_pb2_grpc import AuthStub, KVStub, LeaseStub
from weft.model.errors import InputError, WeftError
from weft.runtime.role_settings import StoreSettings
from weft.wire.channel import reason_of

SCHEME = "etcd://"
DEFAULT_PORT = 2379
CALL_TIMEOUT_S = 2.0
# One change may be so large; etcd's own limit is 1.5 MB.
REQUEST_BYTES_MAX = 1_000_000
# This is etcd's default.
TRANSACTION_OPERATIONS_MAX = 128
# A larger answer is refused before it is taken in, and fewer keys are asked for.
ANSWER_BYTES_MAX = 64 * 1024 * 1024
_TOO_LARGE_DETAILS = "larger than max"
_OPTIONS = [
    ("grpc.max_receive_message_length", ANSWER_BYTES_MAX),
    ("grpc.enable_http_proxy", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.use_local_subchannel_pool", 1),
]
_AWAY = {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.UNKNOWN,
}

# etcd answers so where users or rights changed after the token was issued.
_STALE_TOKEN_DETAILS = "revision of auth store is old"
_HOST = re.compile(r"[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+(%[A-Za-z0-9]+)?\]")

T = TypeVar("T")


class EtcdAwayError(WeftError):
    """etcd does not answer, or takes nothing now; it may again later."""


@dataclass(frozen=True, slots=True)
class EtcdSettings:
    """Where etcd is, and who asks: PEM texts for TLS, a name and password where it wants them.

    The keys of this cluster begin with `prefix`.
    """

    endpoints: tuple[str, ...]
    prefix: str = "weft"
    ca: bytes = b""
    cert: bytes = b""
    key: bytes = field(default=b"", repr=False)
    user: str = ""
    password: str = field(default="", repr=False)

    @property
    def text(self) -> str:
        """The endpoints, for people."""
        return f"{SCHEME}{','.join(self.endpoints)}/{self.prefix}"


def parse(text: str) -> tuple[tuple[str, ...], str]:
    """Return endpoints and prefix of `etcd://host[:port],.../prefix`; raises InputError."""
    if not text.startswith(SCHEME):
        raise InputError("--store", f"expected {SCHEME}host:port,..., got {text!r}")
    places, _, prefix = text.removeprefix(SCHEME).partition("/")
    if "@" in places:
        # A password is never repeated in a message or a log.
        raise InputError("--store", "a name and password go by --store-user, --store-password-file")
    endpoints = []
    for place in places.split(","):
        host, colon, port = place.strip().rpartition(":")
        if not colon:
            host, port = place.strip(), str(DEFAULT_PORT)
        if not _HOST.fullmatch(host) or not port.isdecimal() or not 0 < int(port) < 65536:
            raise InputError("--store", f"{place!r} is no host:port")
        endpoints.append(f"{host}:{port}")
    prefix = prefix.strip("/") or "weft"
    if not prefix.isprintable() or len(prefix) > 200:
        raise InputError("--store", "the prefix is at most 200 printable characters")
    return tuple(endpoints), prefix


def settings_of(
    store: str,
    ca: Path | None = None,
    cert: Path | None = None,
    key: Path | None = None,
    user: str = "",
    password_file: Path | None = None,
) -> EtcdSettings:
    """Read what a command or a file says of an etcd; raises InputError naming the setting."""
    endpoints, prefix = parse(store)
    if (cert or key) and not ca:
        raise InputError("--store-ca", "is needed too: by it etcd's own certificate is checked")
    if bool(cert) != bool(key):
        raise InputError("--store-cert", "goes with --store-key")
    password = _read("--store-password-file", password_file).decode("utf-8", "replace").strip()
    if bool(user) != bool(password):
        raise InputError("--store-user", "goes with --store-password-file")
    authority, own, secret = (
        _read(f"--store-{name}", path) for name, path in (("ca", ca), ("cert", cert), ("key", key))
    )
    return EtcdSettings(endpoints, prefix, authority, own, secret, user, password)


def etcd_settings(settings: StoreSettings) -> EtcdSettings | None:
    """Return where the shared store is, None if nowhere; raises InputError naming the setting."""
    if not settings.store:
        return None
    return settings_of(
        settings.store,
        settings.store_ca,
        settings.store_cert,
        settings.store_key,
        settings.store_user,
        settings.store_password_file,
    )


def _read(flag: str, path: Path | None) -> bytes:
    if path is None:
        return b""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InputError(flag, f"cannot read {path}: {error.strerror}") from None


def after(prefix: bytes) -> bytes:
    """Return the end of the range of all keys that begin with `prefix`."""
    return prefix[:-1] + bytes([prefix[-1] + 1])


# -- parts of transactions -------------------------------------------------------------------------


def created(key: bytes, revision: int) -> pb.Compare:
    """Return the condition that a key was made at a revision; 0: that there is no such key."""
    target = pb.Compare.CompareTarget.CREATE
    return pb.Compare(target=target, key=key, create_revision=revision)


def holds(key: bytes, value: bytes) -> pb.Compare:
    """Return the condition that a key has a value."""
    return pb.Compare(target=pb.Compare.CompareTarget.VALUE, key=key, value=value)


def put(key: bytes, value: bytes, lease: int = 0) -> pb.RequestOp:
    """Set a key; with a lease it goes when that ends."""
    return pb.RequestOp(request_put=pb.PutRequest(key=key, value=value, lease=lease))


def get(key: bytes) -> pb.RequestOp:
    """Read one key."""
    return pb.RequestOp(request_range=pb.RangeRequest(key=key))


def delete(first: bytes, end: bytes) -> pb.RequestOp:
    """Remove the keys from `first` on, before `end`."""
    deleted = pb.DeleteRangeRequest(key=first, range_end=end)
    return pb.RequestOp(request_delete_range=deleted)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a transaction gave.

    `found` has the values of each read, in order.
    """

    succeeded: bool
    revision: int
    found: tuple[tuple[pb.KeyValue, ...], ...]


class Etcd:
    """Calls to the first endpoint that answers; safe to use from several threads."""

    def __init__(self, settings: EtcdSettings, took: Callable[[str, float], None] | None = None):
        """`took` is told of every call that was answered, and how long it took, s."""
        self.settings = settings
        self._took = took
        self._lock = threading.Lock()
        self._at = 0
        self._channel: grpc.Channel | None = None
        self._token = ""

    def close(self) -> None:
        """Close the connection; calls under way end."""
        with self._lock:
            self._leave()

    # -- calls -------------------------------------------------------------------------------------

    def transact(
        self,
        when: Sequence[pb.Compare],
        then: Sequence[pb.RequestOp],
        otherwise: Sequence[pb.RequestOp] = (),
    ) -> Answer:
        """Do `then` where everything of `when` is so, else `otherwise`, at one moment."""
        request = pb.TxnRequest(compare=when, success=then, failure=otherwise)
        answer = self._call(lambda c: KVStub(c).Txn, request, "txn")
        found = [
            tuple(one.response_range.kvs)
            for one in answer.responses
            if one.HasField("response_range")
        ]
        return Answer(answer.succeeded, answer.header.revision, tuple(found))

    def get(self, key: bytes, within_s: float = CALL_TIMEOUT_S) -> tuple[pb.KeyValue | None, int]:
        """Return a key as it is now, and the store's revision."""
        request = pb.RangeRequest(key=key)
        answer = self._call(lambda c: KVStub(c).Range, request, "range", within_s)
        return (answer.kvs[0] if answer.kvs else None), answer.header.revision

    def pages(self, prefix: bytes, first: bytes = b"") -> Iterator[list[pb.KeyValue]]:
        """Yield all keys that begin with a prefix, ascending, some at a time."""
        start, end, limit = first or prefix, after(prefix), 32
        while True:
            request = pb.RangeRequest(key=start, range_end=end, limit=limit)
            try:
                answer = self._call(lambda c: KVStub(c).Range, request, "range")
            except AnswerTooLargeError:
                if limit == 1:
                    raise
                limit = max(1, limit // 8)
                continue
            if answer.kvs:
                yield list(answer.kvs)
            if not answer.more:
                return
            start = answer.kvs[-1].key + b"\0"
            size = sum(len(one.value) + len(one.key) for one in answer.kvs) / len(answer.kvs)
            limit = max(1, min(10_000, int(16e6 / size)))

    def compact(self, revision: int) -> None:
        """Let etcd forget what keys were before a revision."""
        request = pb.CompactionRequest(revision=revision)
        self._call(lambda c: KVStub(c).Compact, request, "compact")

    def grant(self, ttl_s: int) -> int:
        """Make a new lease; return its number."""
        answer = self._call(
            lambda c: LeaseStub(c).LeaseGrant, pb.LeaseGrantRequest(TTL=ttl_s), "lease"
        )
        if answer.error:
            raise WeftError(f"etcd gives no lease: {answer.error}")
        return int(answer.ID)

    def renew(self, lease: int, within_s: float = CALL_TIMEOUT_S) -> float:
        """Keep a lease; returns how long it lasts from the call on, s; 0: it is gone."""
        request = pb.LeaseKeepAliveRequest(ID=lease)

        def method(channel: grpc.Channel) -> Any:
            def call(request: Any, **options: Any) -> Any:
                stream = LeaseStub(channel).LeaseKeepAlive(iter((request,)), **options)
                try:
                    return next(stream)
                finally:
                    stream.cancel()

            return call

        return float(self._call(method, request, "renew", within_s).TTL)

    def revoke(self, lease: int) -> None:
        """End a lease, and the keys with it."""
        self._call(lambda c: LeaseStub(c).LeaseRevoke, pb.LeaseRevokeRequest(ID=lease), "revoke")

    # -- connections -------------------------------------------------------------------------------

    def _call(
        self,
        method: Callable[[grpc.Channel], Any],
        request: Any,
        what: str,
        within_s: float = CALL_TIMEOUT_S,
    ) -> Any:
        """Ask endpoints in turn; raises EtcdAwayError when none answered."""
        reasons: dict[str, str] = {}
        for _ in range(2 * len(self.settings.endpoints)):
            channel, place = self._connected()
            began_s = time.monotonic()
            try:
                made = method(channel)
                answer = made(request, timeout=within_s, metadata=self._metadata(channel))
            except (grpc.RpcError, StopIteration) as error:
                problem = self._problem(error)
                if problem is None:
                    # The token expired, so the call is tried once more with a new one.
                    reasons.setdefault(place, "the token ended")
                    continue
                reasons[place] = problem
                self._turn(channel)
                if len(reasons) == len(self.settings.endpoints):
                    break
                continue
            except ValueError:
                # Another thread closed the channel.
                reasons.setdefault(place, "closed")
                continue
            if self._took is not None:
                self._took(what, time.monotonic() - began_s)
            return answer
        said = ", ".join(f"{place}: {reason}" for place, reason in reasons.items())
        raise EtcdAwayError(f"etcd does not answer ({said})")

    def _problem(self, error: Exception) -> str | None:
        """Return why an endpoint did not answer; None: its token ended. Raises other errors."""
        if not isinstance(error, grpc.RpcError):
            return "it closed the stream"
        code, details = error.code(), str(error.details() or "")
        # Another thread may have seen it first, and have a new token by now.
        ended = code is grpc.StatusCode.UNAUTHENTICATED or _STALE_TOKEN_DETAILS in details
        if ended and self.settings.user:
            self._token = ""
            return None
        if code is grpc.StatusCode.RESOURCE_EXHAUSTED and _TOO_LARGE_DETAILS in details:
            raise AnswerTooLargeError(f"etcd: {details}") from None
        if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
            # The disk is full, or there are too many requests.
            raise EtcdAwayError(f"etcd takes nothing: {details}") from None
        if code in _AWAY:
            return (
                "no answer in time"
                if code is grpc.StatusCode.DEADLINE_EXCEEDED
                else (reason_of(error))
            )
        if code is grpc.StatusCode.NOT_FOUND and "lease" in details:
            raise LeaseGoneError(f"etcd: {details}") from None
        raise WeftError(f"etcd refused: {details or code.name}") from None

    def _connected(self) -> tuple[grpc.Channel, str]:
        with self._lock:
            settings = self.settings
            place = settings.endpoints[self._at % len(settings.endpoints)]
            if self._channel is None:
                if settings.ca:
                    credentials = grpc.ssl_channel_credentials(
                        settings.ca, settings.key or None, settings.cert or None
                    )
                    self._channel = grpc.secure_channel(place, credentials, _OPTIONS)
                else:
                    self._channel = grpc.insecure_channel(place, _OPTIONS)
            return self._channel, place

    def _turn(self, channel: grpc.Channel) -> None:
        """Leave an endpoint, unless another thread did."""
        with self._lock:
            if self._channel is channel and len(self.settings.endpoints) > 1:
                self._leave()
                self._at += 1

    def _leave(self) -> None:
        if self._channel is not None:
            self._channel.close()
        self._channel, self._token = None, ""

    def _metadata(self, channel: grpc.Channel) -> tuple[tuple[str, str], ...]:
        settings = self.settings
        if not settings.user:
            return ()
        if not self._token:
            request = pb.AuthenticateRequest(name=settings.user, password=settings.password)
            self._token = AuthStub(channel).Authenticate(request, timeout=CALL_TIMEOUT_S).token
        return (("token", self._token),)


class AnswerTooLargeError(WeftError):
    """etcd's answer is more than this process takes in."""


class LeaseGoneError(WeftError):
    """etcd knows no such lease."""


def joined(parts: Iterable[str]) -> bytes:
    """Return a key of parts."""
    return "/".join(parts).encode()
