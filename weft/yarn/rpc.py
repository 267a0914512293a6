"""Hadoop RPC, version 9, on asyncio: frames in, calls out, answers back by call id.

A connection begins with seven bytes (`hrpc`, version, service class, authentication), then frames:
a big-endian length and varint-delimited protobuf messages. A bad frame ends its connection, a
refused call does not; nothing that a peer sends ends the server.

What peers send and do not read is bounded in bytes and in time: a frame, all frames together,
answers that nobody takes, calls under way, connections. Of listings, which make much work, few are
made at a time, and first for whom least was done.
"""

import asyncio
import contextlib
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from google.protobuf.message import DecodeError, Message

from weft.yarn import hadoop_pb2 as pb
from weft.yarn import sasl
from weft.yarn.errors import (
    FatalError,
    HadoopError,
    invalid_token,
    no_method,
    no_protocol,
    server_error,
    unauthorized,
)
from weft.yarn.wire import Budget, Turns, Wire

MAGIC, VERSION = b"hrpc", 9
AUTH_NONE, AUTH_SASL = 0x00, 0xDF
CONTEXT_CALL_ID, SASL_CALL_ID = -3, -33
SUCCESS_STATE, ERROR_STATE, FATAL_STATE = 0, 1, 2
NEGOTIATE, INITIATE, SASL_SUCCESS = 1, 2, 0
FRAME_MAX = 16 << 20
# Nearly all frames are no larger, and these have room of their own.
SMALL_FRAME_MAX = 64 << 10
# All frames in memory take so much.
SMALL_FRAMES_BYTES, LARGE_FRAMES_BYTES = 16 << 20, 32 << 20
# A frame may take so long from its first byte to its last.
FRAME_TIMEOUT_S = 30.0
HANDSHAKE_S = 20.0
# A connection may have so many calls until their answers have left; more wait in the socket.
CONNECTION_CALLS_MAX = 32
CONNECTIONS_MAX = 2_000
LISTINGS_AT_A_TIME = 2
# With so much unsent in answers no listing is made.
UNSENT_BYTES_MAX = 32 << 20
ERROR_CHARACTERS_MAX = 2_000
BACKLOG = 1_024
POLL_S = 0.1

_LENGTH: Final = struct.Struct(">I")


@dataclass(slots=True)
class Caller:
    """Who is at the other end; `identifier` is that of the token it proved to have, if any.

    `kind` is that of the token.
    """

    user: str = ""
    kind: str = ""
    identifier: bytes = b""
    peer: str = ""


Handler = Callable[[Caller, Any], Awaitable[Message]]


@dataclass(frozen=True, slots=True)
class Method:
    """One method of a protocol: what it reads, and who answers it.

    `lists` says whether its answer grows with the cluster.
    """

    request: type[Message]
    handler: Handler
    lists: bool = False


Protocol = Mapping[str, Method]
# Returns the kind and the password of the token with an identifier.
Authenticate = Callable[[bytes], tuple[str, bytes]]
# Takes a method, its outcome and how long it took, in s.
Observer = Callable[[str, str, float], None]


def _nobody(identifier: bytes) -> tuple[str, bytes]:
    raise sasl.Refused("this port takes no tokens")


@dataclass(slots=True)
class Server:
    """A port that speaks the given protocols.

    `tokens_only` refuses callers without a token; `authenticate` gives the password of a token's
    identifier or raises `sasl.Refused`.
    """

    protocols: Mapping[str, Protocol]
    authenticate: Authenticate = _nobody
    tokens_only: bool = False
    observe: Observer = lambda method, outcome, seconds: None
    _server: asyncio.Server | None = None
    _connections: set[asyncio.Task[None]] = field(default_factory=set)
    # Connections without a call; the one that has waited longest comes first.
    _waiting_for_call: dict[Wire, None] = field(default_factory=dict)
    _all: set[Wire] = field(default_factory=set)
    small: Budget = field(init=False)
    large: Budget = field(init=False)
    listings: Turns = field(init=False)

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the port."""
        self.small, self.large = Budget(SMALL_FRAMES_BYTES), Budget(LARGE_FRAMES_BYTES)
        self.listings = Turns(LISTINGS_AT_A_TIME)
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: Wire(self._connected), host, port, backlog=BACKLOG
        )
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Close the port and every connection."""
        if self._server is not None:
            self._server.close()
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def _connected(self, wire: Wire) -> None:
        # A connection without a call makes room for a new one.
        if len(self._all) >= CONNECTIONS_MAX:
            silent = next(iter(self._waiting_for_call), None)
            if silent is None:
                wire.abort()
                return
            self.busy(silent)
            self._all.discard(silent)
            silent.abort()
        self._all.add(wire)
        self.idle(wire)
        task = asyncio.get_running_loop().create_task(self._serve(wire))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _serve(self, wire: Wire) -> None:
        try:
            await Connection(self, wire).serve()
        except (asyncio.CancelledError, ConnectionError, TimeoutError):
            wire.abort()
        finally:
            self._all.discard(wire)
            self.busy(wire)
            with contextlib.suppress(asyncio.CancelledError):
                await wire.close()

    def idle(self, wire: Wire) -> None:
        """Note that a connection waits for a call."""
        self._waiting_for_call.pop(wire, None)
        self._waiting_for_call[wire] = None

    def busy(self, wire: Wire) -> None:
        """Note that it does not any more."""
        self._waiting_for_call.pop(wire, None)

    async def room_for_listing(self) -> None:
        """Wait until peers took their answers; who takes none is dropped after a while."""
        while sum(wire.unsent for wire in self._all if wire.held_up) > UNSENT_BYTES_MAX:
            await asyncio.sleep(POLL_S)


class Connection:
    """One peer: handshake, connection context, then calls until either end closes."""

    def __init__(self, server: Server, wire: Wire) -> None:
        self._server = server
        self._wire = wire
        self.caller = Caller(peer=wire.peer)
        self.spent = 0.0
        self._calls: set[asyncio.Task[None]] = set()
        self._room = asyncio.Semaphore(CONNECTION_CALLS_MAX)
        self._listing = asyncio.Lock()

    async def serve(self) -> None:
        """Serve the peer until it leaves; raises what the socket raises."""
        try:
            async with asyncio.timeout(HANDSHAKE_S):
                ready = await self._begin()
            while ready:
                if not self._calls:
                    self._server.idle(self._wire)
                await self._next()
        except FatalError as error:
            self._fatal(error)
        finally:
            for task in list(self._calls):
                task.cancel()

    async def _next(self) -> None:
        """Read one frame and begin what it asks for."""
        async with self._framed() as (frame, budget):
            self._server.busy(self._wire)
            task = await self._call(frame)
        size = len(frame)
        if task is None:
            budget.give_back(size)
        else:
            task.add_done_callback(lambda done: budget.give_back(size))

    # -- handshake ---------------------------------------------------------------------------------

    async def _begin(self) -> bool:
        head = await self._wire.read(7)
        # Whoever speaks another protocol would understand no answer.
        if head[:4] != MAGIC:
            return False
        if head[4] != VERSION:
            raise FatalError(
                "org.apache.hadoop.ipc.RPC$VersionMismatch",
                f"RPC version {head[4]} is not spoken here, {VERSION} is",
                14,
            )
        if head[6] == AUTH_SASL:
            await self._authenticate()
        elif head[6] != AUTH_NONE:
            raise unauthorized(f"unknown authentication {head[6]:#x}")
        elif self._server.tokens_only:
            raise unauthorized("SIMPLE authentication is not enabled.  Available:[TOKEN]")
        return True

    async def _authenticate(self) -> None:
        """Offer tokens, and SIMPLE where the port admits it."""
        digest = sasl.DigestServer()
        frame = await self._frame()
        header, at = _read(pb.RequestEnvelope, frame, 0)
        asked, _ = _read(pb.Sasl, frame, at)
        if header.call_id != SASL_CALL_ID or asked.state != NEGOTIATE:
            raise unauthorized("expected the beginning of a SASL negotiation")
        offer = pb.Sasl(state=NEGOTIATE)
        offer.auths.add(
            method="TOKEN",
            mechanism="DIGEST-MD5",
            protocol="",
            server_id=sasl.REALM,
            challenge=digest.challenge(),
        )
        if not self._server.tokens_only:
            offer.auths.add(method="SIMPLE", mechanism="")
        self._answer(header, offer)
        frame = await self._frame()
        header, at = _read(pb.RequestEnvelope, frame, 0)
        # A peer that sends its context has chosen SIMPLE.
        if header.call_id == CONTEXT_CALL_ID and not self._server.tokens_only:
            self._context(frame, at)
            return
        answered, _ = _read(pb.Sasl, frame, at)
        if header.call_id != SASL_CALL_ID or answered.state != INITIATE or not answered.auths:
            raise unauthorized("expected an answer to the SASL negotiation")
        # The peer waits for no answer, and would take one for that of a call.
        if answered.auths[0].method == "SIMPLE" and not self._server.tokens_only:
            return

        def password_of(identifier: bytes) -> bytes:
            self.caller.kind, password = self._server.authenticate(identifier)
            return password

        try:
            identifier, proof = digest.finish(answered.token, password_of)
        except sasl.Refused as error:
            raise invalid_token(str(error)) from None
        self.caller.identifier = identifier
        self._answer(header, pb.Sasl(state=SASL_SUCCESS, token=proof))

    def _context(self, frame: bytearray, at: int) -> None:
        context, _ = _read(pb.ConnectionContext, frame, at)
        if context.HasField("user"):
            self.caller.user = context.user.effective or context.user.real

    # -- calls -------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _framed(self) -> AsyncIterator[tuple[bytearray, Budget]]:
        """Read a frame; whoever takes it gives the room back, unless it fails."""
        (length,) = _LENGTH.unpack(await self._wire.read(4))
        if length > FRAME_MAX:
            raise FatalError("java.io.IOException", f"a frame of {length} bytes is too long", 13)
        self._server.busy(self._wire)
        server = self._server
        budget = server.small if length <= SMALL_FRAME_MAX else server.large
        async with asyncio.timeout(FRAME_TIMEOUT_S):
            await budget.take(self._wire, length)
            try:
                frame = await self._wire.read(length)
            except BaseException:
                budget.give_back(length)
                raise
            finally:
                budget.whole(self._wire)
        try:
            yield frame, budget
        except BaseException:
            budget.give_back(length)
            raise

    async def _frame(self) -> bytearray:
        async with self._framed() as (frame, budget):
            pass
        budget.give_back(len(frame))
        return frame

    async def _call(self, frame: bytearray) -> asyncio.Task[None] | None:
        header, at = _read(pb.RequestEnvelope, frame, 0)
        if header.call_id == CONTEXT_CALL_ID:
            self._context(frame, at)
            return None
        # A ping, like anything else with such an id, wants no answer.
        if header.call_id < 0:
            return None
        if header.rpc_kind != 2 or header.rpc_op != 0:
            raise FatalError("java.io.IOException", "only calls in protobuf are spoken here", 12)
        call, at = _read(pb.MethodCall, frame, at)
        await self._room.acquire()
        task = asyncio.get_running_loop().create_task(self._carry_out(header, call, frame, at))
        self._calls.add(task)
        task.add_done_callback(self._over)
        return task

    def _over(self, task: asyncio.Task[None]) -> None:
        self._calls.discard(task)
        self._room.release()
        if not self._calls:
            self._server.idle(self._wire)

    async def _carry_out(self, header: Any, call: Any, frame: bytearray, at: int) -> None:
        began_s = asyncio.get_running_loop().time()
        outcome, known = "OK", "?"
        try:
            protocol = self._server.protocols.get(call.protocol)
            if protocol is None:
                raise no_protocol(call.protocol)
            method = protocol.get(call.method)
            if method is None:
                raise no_method(call.method, call.protocol)
            known = call.method
            try:
                request, _ = _read(method.request, frame, at)
            except FatalError as error:
                raise HadoopError(error.java_class, error.text, 4) from None
            if method.lists:
                await self._list(header, method, request)
            else:
                self._answer(header, await method.handler(self.caller, request))
        except HadoopError as error:
            outcome = error.java_class.rpartition(".")[2]
            self._refuse(header, error)
        except asyncio.CancelledError:
            raise
        # A fault of this server is an error for its caller, and no end of the connection.
        except Exception as error:
            outcome = type(error).__name__
            self._refuse(header, server_error(f"{type(error).__name__}: {error}"))
        finally:
            seconds = asyncio.get_running_loop().time() - began_s
            self._server.observe(known, outcome, seconds)
        # The call is over when there is room for its answer.
        await self._wire.drained()

    async def _list(self, header: Any, method: Method, request: Any) -> None:
        """Answer with a listing: one at a time for each peer, once its last answers have left."""
        async with self._listing:
            await self._wire.drained()
            await self._server.room_for_listing()
            await self._server.listings.begin(self)
            began_s = time.perf_counter()
            try:
                self.spent += self._answer(header, await method.handler(self.caller, request))
            finally:
                # As long as it took no other is made in its place, so that half of the time is
                # for calls that are no listings.
                took_s = time.perf_counter() - began_s
                asyncio.get_running_loop().call_later(took_s, self._server.listings.end)
            await self._wire.drained()

    # -- answers -----------------------------------------------------------------------------------

    def _answer(self, header: Any, message: Message) -> int:
        envelope = _envelope(header, SUCCESS_STATE)
        return self._send(_delimited(envelope) + _delimited(message))

    def _refuse(self, header: Any, error: HadoopError) -> None:
        envelope = _envelope(header, ERROR_STATE)
        envelope.exception_class = error.java_class
        envelope.error = error.text[:ERROR_CHARACTERS_MAX]
        envelope.error_detail = error.detail
        self._send(_delimited(envelope))

    def _fatal(self, error: FatalError) -> None:
        envelope = pb.ResponseEnvelope(
            call_id=0xFFFFFFFF,
            status=FATAL_STATE,
            server_version=VERSION,
            error=error.text[:ERROR_CHARACTERS_MAX],
            exception_class=error.java_class,
            error_detail=error.detail,
        )
        self._send(_delimited(envelope))

    def _send(self, data: bytes) -> int:
        """Send a frame; return its bytes."""
        self._wire.write(_LENGTH.pack(len(data)) + data)
        return len(data)


def _envelope(header: Any, status: int) -> Any:
    """Return the head of an answer; ids below 0 are told as unsigned numbers."""
    return pb.ResponseEnvelope(
        call_id=header.call_id & 0xFFFFFFFF,
        status=status,
        server_version=VERSION,
        client_id=header.client_id,
        retry_count=header.retry_count,
    )


def _delimited(message: Message) -> bytes:
    data = message.SerializeToString()
    return _varint(len(data)) + data


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _read(kind: type[Message], frame: bytes | bytearray, at: int) -> tuple[Any, int]:
    """Read one delimited message; returns it with the place after it; raises FatalError."""
    length = shift = 0
    while True:
        if at >= len(frame) or shift > 28:
            raise FatalError("java.io.IOException", "a frame ends inside a message", 13)
        byte = frame[at]
        at += 1
        length |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if at + length > len(frame):
        raise FatalError("java.io.IOException", "a message is longer than its frame", 13)
    message = kind()
    try:
        message.ParseFromString(bytes(memoryview(frame)[at : at + length]))
    except DecodeError as error:
        raise FatalError("java.io.IOException", f"a message cannot be read: {error}", 13) from None
    return message, at + length
