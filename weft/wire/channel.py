"""Dialling, deadlines, retries with back-off and jitter, and errors that a person can act on."""

import asyncio
import random
import re
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

import grpc
import grpc.aio

from weft.model.errors import InputError, WeftError
from weft.wire import pieces, tls
from weft.wire.addresses import places

# What is asked of a server, in pieces of a message each, and what one answers in one message. A job
# of 100,000 tasks that differ is about 15 MB; what a master is told with it may be as much again.
REQUEST_BYTES_MAX = 16 * 1024 * 1024
MESSAGE_BYTES_MAX = 64 * 1024 * 1024
# gRPC and the enclosing message add at most so much to a message.
ENVELOPE_BYTES_MAX = 1024
# The metadata of a call: a token, a user's name, what gRPC adds.
METADATA_BYTES_MAX = 2 << 10
# A connection must send its first words of HTTP/2 within this, TLS included.
HANDSHAKE_MS = 10_000
# A connection without a call is closed; its client opens another at the next.
IDLE_MS = 300_000
# A connection may have so many calls at a time, each of which takes 25 kB before anybody is asked;
# a server so many that it has not looked at yet.
STREAMS_MAX, PENDING_MAX = 40, 10_000
# Calls over a connection whose identity was renewed, or to an address that was left, end by then.
RENEWED_IDENTITY_GRACE_S = 600.0
# The wait before a retry doubles from here.
BACKOFF_S = 0.05
BACKOFF_S_MAX = 2.0
# Of a list of addresses one may serve any moment.
SEARCH_BACKOFF_S_MAX = 0.5
LEFT_ADDRESS_GRACE_S = 5.0
# An address of a list is probed after so long a silence, and left if that is not answered.
PROBE_S, PROBE_TIMEOUT_S = 2.0, 3.0

# A refused request has these in its trailing metadata, LEADER_KEY (host:port of the manager that
# leads) where a standby refuses; a stream that is served has SERVES_KEY in its leading metadata.
PLACE_KEY = "weft-place-bin"
PROBLEM_KEY = "weft-problem-bin"
SERVES_KEY = "weft-serves"
LEADER_KEY = "weft-leader-bin"

Stub = TypeVar("Stub")

_LIMITS = [
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    # A small message that grows when it is unpacked is refused: nobody here packs.
    ("grpc.compression_enabled_algorithms_bitset", 1),
    ("grpc.per_message_decompression", 0),
]
_KEEPALIVE = [
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
]
# What is on its way is read in pieces that waste no memory, and not before it is wanted: megabytes
# would be kept of each stream that is read slowly, as a router reads a member for a slow watcher.
_READING = [
    ("grpc.tcp_receive_buffer_size", 1 << 18),
    ("grpc.experimental.tcp_max_read_chunk_size", 1 << 12),
    ("grpc.experimental.tcp_read_chunk_size", 1 << 12),
    ("grpc.http2.bdp_probe", 0),
]
CHANNEL_OPTIONS: list[tuple[str, Any]] = [
    *_LIMITS,
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    *_READING,
    *_KEEPALIVE,
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    # A cluster is reached directly.
    ("grpc.enable_http_proxy", 0),
    # Channels do not share each other's back-off.
    ("grpc.use_local_subchannel_pool", 1),
]
# One of several managers may be paused with its connections open, which only silence shows.
_WATCHFUL = {
    "grpc.keepalive_time_ms": int(PROBE_S * 1000),
    "grpc.keepalive_timeout_ms": int(PROBE_TIMEOUT_S * 1000),
    "grpc.http2.ping_timeout_ms": int(PROBE_TIMEOUT_S * 1000),
    "grpc.http2.max_pings_without_data": 0,
    "grpc.max_reconnect_backoff_ms": int(SEARCH_BACKOFF_S_MAX * 1000),
}
SERVER_OPTIONS: list[tuple[str, Any]] = [
    *_LIMITS,
    ("grpc.max_receive_message_length", pieces.PIECE_BYTES + pieces.HEAD_BYTES),
    *_KEEPALIVE,
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 1_000),
    ("grpc.keepalive_permit_without_calls", 1),
    # A quiet connection is not hostile.
    ("grpc.http2.max_ping_strikes", 0),
    # A port in use is an error, never shared by accident.
    ("grpc.so_reuseport", 0),
    *_READING,
    # Calls that Python has not seen yet: gRPC drops anybody's above this, honest ones among them.
    ("grpc.server.max_pending_requests", PENDING_MAX),
    ("grpc.server.max_pending_requests_hard_limit", PENDING_MAX),
    # What one connection may ask for at a time.
    ("grpc.max_concurrent_streams", STREAMS_MAX),
    # Who never acknowledges this is held to it at the call.
    ("grpc.max_metadata_size", METADATA_BYTES_MAX),
    ("grpc.absolute_max_metadata_size", METADATA_BYTES_MAX),
    # A peer that connects and stays silent is dropped, and so is one without a call for long.
    ("grpc.server_handshake_timeout_ms", HANDSHAKE_MS),
    ("grpc.max_connection_idle_ms", IDLE_MS),
]


_IN_WORDS = {
    "name resolution failed": "unknown host",
    "dns resolution failed": "unknown host",
    "cancelling all calls": "it is stopping",
    "goaway": "it is stopping",
}


def dial(address: str, *, watchful: bool = False) -> grpc.aio.Channel:
    """Return a channel to host:port, by TLS where this process has an identity for it.

    Nothing is sent before the first call; what is large is sent in pieces, as our servers take it.
    `watchful`: a peer that is silent is soon left.
    """
    identity = tls.current()
    options = list((dict(CHANNEL_OPTIONS) | _WATCHFUL).items()) if watchful else CHANNEL_OPTIONS
    if identity is None:
        return pieces.in_pieces(grpc.aio.insecure_channel(address, options=options))
    credentials = grpc.ssl_channel_credentials(identity.ca, identity.key, identity.cert)
    return pieces.in_pieces(grpc.aio.secure_channel(address, credentials, options=options))


class Dialled(Generic[Stub]):
    """A channel to one host:port of a list, made anew when this process's identity is."""

    def __init__(self, address: str, stub: Callable[[grpc.aio.Channel], Stub]) -> None:
        """Connect to an address: one host:port, or several with commas between.

        `stub` is the generated class of a service's calls.
        """
        self._places = places(address)
        self._at = 0
        self._make = stub
        self._identity = tls.current()
        self._channel = self._dial()
        self._stub = stub(self._channel)
        self._closing: set[asyncio.Task[None]] = set()

    @property
    def stub(self) -> Stub:
        """Stub to make the next call by; calls under way go on for a while."""
        identity = tls.current() if self._identity is not None and self._identity.files else None
        if identity is not None and identity.files and identity != self._identity:
            self._identity = identity
            self._anew(RENEWED_IDENTITY_GRACE_S)
        return self._stub

    def passing(self, method: str) -> Any:
        """Return what makes the next call of a method by its whole name; its answer stays bytes."""
        # It is by the newest identity.
        assert self.stub is not None
        return self._channel.unary_unary(method, _serialized)

    @property
    def several(self) -> bool:
        """Whether there is more than one address."""
        return len(self._places) > 1

    @property
    def address(self) -> str:
        """The host:port that is tried now."""
        return self._places[self._at]

    def turn(self, hint: str = "", tried: str = "") -> None:
        """Go on to the next address, or to `hint` where that is one of the list.

        `tried` is the address that did not serve: where another call went on already, this stays.
        """
        if not self.several or (tried and tried != self.address):
            return
        if hint in self._places and hint != self.address:
            self._at = self._places.index(hint)
        else:
            self._at = (self._at + 1) % len(self._places)
        self._anew(LEFT_ADDRESS_GRACE_S)

    def backoffs(self) -> Iterator[float]:
        """Return waits between tries, s; short ones where another address may serve any moment."""
        return backoffs(SEARCH_BACKOFF_S_MAX if self.several else BACKOFF_S_MAX)

    def _dial(self) -> grpc.aio.Channel:
        return dial(self.address, watchful=self.several)

    def _anew(self, grace_s: float) -> None:
        old, self._channel = self._channel, self._dial()
        self._stub = self._make(self._channel)
        task = asyncio.get_running_loop().create_task(old.close(grace_s))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Close what is open."""
        for task in self._closing:
            task.cancel()
        await self._channel.close()


def _serialized(message: Any) -> bytes:
    return message.SerializeToString()  # type: ignore[no-any-return]


def backoffs(most_s: float = BACKOFF_S_MAX) -> Iterator[float]:
    """Yield waits between tries, s: exponential, with full jitter so that peers spread."""
    wait_s = BACKOFF_S
    while True:
        yield wait_s * random.uniform(0.5, 1.0)
        wait_s = min(wait_s * 2, most_s)


def check_size(message: Any, what: str, most: int) -> None:
    """Raise InputError for a message over a limit, bytes, before anything is sent."""
    size = len(message) if isinstance(message, bytes) else message.ByteSize()
    if size > most - ENVELOPE_BYTES_MAX:
        limit = most / 1e6
        raise InputError(what, f"{size / 1e6:.1f} MB are more than the limit of {limit:.0f} MB")


# gRPC's words for a handshake that failed, and what they mean.
_HANDSHAKES = {
    "wrong_version_number": "it does not speak TLS, and --tls-ca asks for it",
    "hostname verification check failed": "its certificate is for another host",
    "certificate has expired": "its certificate has expired",
    "certificate_verify_failed": "another authority than --tls-ca signed its certificate",
    "tls handshake failed": "the TLS handshake failed",
}
_HUNG_UP_PLAIN = "it hung up: does it want TLS (--tls-ca, --tls-cert, --tls-key)?"
_HUNG_UP_TLS = "it hung up: does its authority know our certificate (--tls-cert)?"


def _handshake_of(details: str) -> str:
    """Return what went wrong between the connection and the first call; empty: something else."""
    for said, means in _HANDSHAKES.items():
        if said in details:
            return means
    if "failed to connect" in details and "socket closed" in details:
        return _HUNG_UP_PLAIN if tls.current() is None else _HUNG_UP_TLS
    return ""


def reason_of(error: grpc.RpcError) -> str:
    """Return why a peer was not reached, in few words."""
    details = str(getattr(error, "details", lambda: "")() or "")
    if handshake := _handshake_of(details.lower()):
        return handshake
    known = re.search(
        r"(connection refused|connection reset|no route to host|timed? ?out|"
        r"name resolution failed|dns resolution failed|network is unreachable|socket closed|"
        r"goaway|cancelling all calls)",
        details,
        re.IGNORECASE,
    )
    if known is None:
        return details or "unavailable"
    found = known[1].lower()
    return _IN_WORDS.get(found, found)


class UnreachableError(WeftError):
    """A peer is not there; `sent`: it may have received what was asked of it."""

    def __init__(self, text: str, *, sent: bool) -> None:
        super().__init__(text)
        self.sent = sent


# With these words a router tells that it is a member that does not answer.
MEMBER_GONE = "a member is gone: "


def unreachable(who: str, address: str, error: grpc.RpcError) -> UnreachableError:
    """Return the error for a peer that is not there."""
    details = str(getattr(error, "details", lambda: "")() or "")
    if details.startswith(MEMBER_GONE):
        return UnreachableError(details, sent=True)
    sent = "failed to connect" not in details.lower()
    return UnreachableError(f"no {who} at {address}: {reason_of(error)}", sent=sent)


async def call(
    method: Any,
    request: Any,
    who: str,
    address: str,
    deadline_s: float,
    patience_s: float,
    metadata: tuple[tuple[str, str], ...] = (),
    turn: Callable[[str], Any] | None = None,
) -> Any:
    """Make a unary call, safe to repeat; an unavailable peer is tried again for `patience_s`.

    `turn` goes on to another address (to the one that it is told of, if that is one) and gives the
    method to call there; without it there is but one.
    Raises WeftError when the peer is not reached or does not answer in time; statuses that the
    peer chose itself come up as `grpc.aio.AioRpcError`.
    """
    loop = asyncio.get_running_loop()
    give_up = loop.time() + patience_s
    for wait_s in backoffs(BACKOFF_S_MAX if turn is None else SEARCH_BACKOFF_S_MAX):
        try:
            return await method(request, timeout=deadline_s, metadata=metadata)
        except grpc.aio.AioRpcError as error:
            code = error.code()
            if code is grpc.StatusCode.DEADLINE_EXCEEDED:
                raise WeftError(
                    f"the {who} at {address} did not answer within {deadline_s:g} s"
                ) from None
            if code is not grpc.StatusCode.UNAVAILABLE or _chosen(error):
                raise
            if loop.time() + wait_s > give_up:
                raise unreachable(who, address, error) from None
            if turn is not None:
                method = turn(leader_of(error))
        await asyncio.sleep(wait_s)
    raise AssertionError("unreachable")


def leader_of(error: grpc.RpcError) -> str:
    """Return the host:port of the leader, as a standby named it; empty: it named none."""
    metadata = getattr(error, "trailing_metadata", lambda: ())() or ()
    found = next((value for key, value in metadata if key == LEADER_KEY), b"")
    return found.decode("utf-8", "replace") if isinstance(found, bytes) else str(found)


def _chosen(error: grpc.aio.AioRpcError) -> bool:
    """Return whether the peer's core refused, rather than the transport."""
    return any(key == PROBLEM_KEY for key, _ in error.trailing_metadata() or ())
