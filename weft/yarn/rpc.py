"""Hadoop RPC, version 9, on asyncio: frames in, calls out, answers back by call id.

A connection begins with seven bytes (`hrpc`, version, service class, authentication), then frames:
a big-endian length and varint-delimited protobuf messages. A bad frame ends its connection, a
refused call does not; nothing that a peer sends ends the server.
"""

import asyncio
import contextlib
import struct
from collections.abc import Awaitable, Callable, Mapping
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

MAGIC, VERSION = b"hrpc", 9
AUTH_NONE, AUTH_SASL = 0x00, 0xDF
CONTEXT, SASL = -3, -33  # call ids
SUCCESS, ERROR, FATAL = 0, 1, 2  # states of an answer
NEGOTIATE, INITIATE, SASL_SUCCESS = 1, 2, 0
FRAME_MAX = 64 << 20
HANDSHAKE_S = 20.0
CALLS_MAX = 128  # under way on one connection; more wait in the socket
CONNECTIONS_MAX = 2_000

_LENGTH: Final = struct.Struct(">I")


@dataclass(slots=True)
class Caller:
    """Who is at the other end; `identifier` is that of the token it proved to have, if any."""

    user: str = ""
    kind: str = ""  # of the token
    identifier: bytes = b""
    peer: str = ""


Handler = Callable[[Caller, Any], Awaitable[Message]]


@dataclass(frozen=True, slots=True)
class Method:
    """One method of a protocol: what it reads, and who answers it."""

    request: type[Message]
    handler: Handler


Protocol = Mapping[str, Method]
Authenticate = Callable[[bytes], tuple[str, bytes]]  # identifier -> token's kind, its password
Observer = Callable[[str, str, float], None]  # method, outcome, s


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

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the port."""
        self._server = await asyncio.start_server(self._connected, host, port, limit=1 << 20)
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Close the port and every connection."""
        if self._server is not None:
            self._server.close()
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            if len(self._connections) <= CONNECTIONS_MAX:
                await Connection(self, reader, writer).serve()
        except (asyncio.CancelledError, ConnectionError, asyncio.IncompleteReadError, TimeoutError):
            pass
        finally:
            self._connections.discard(task)
            writer.close()
            with contextlib.suppress(ConnectionError, asyncio.CancelledError, TimeoutError):
                await writer.wait_closed()


class Connection:
    """One peer: handshake, connection context, then calls until either end closes."""

    def __init__(
        self, server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._server = server
        self._reader = reader
        self._writer = writer
        name = writer.get_extra_info("peername") or ("", 0)
        self.caller = Caller(peer=f"{name[0]}:{name[1]}")
        self._calls: set[asyncio.Task[None]] = set()
        self._room = asyncio.Semaphore(CALLS_MAX)

    async def serve(self) -> None:
        """Serve the peer until it leaves; raises what the socket raises."""
        try:
            async with asyncio.timeout(HANDSHAKE_S):
                ready = await self._begin()
            while ready:
                await self._call(await self._frame())
        except FatalError as error:
            self._fatal(error)
            await self._writer.drain()
        finally:
            for task in list(self._calls):
                task.cancel()

    # -- handshake ---------------------------------------------------------------------------------

    async def _begin(self) -> bool:
        head = await self._reader.readexactly(7)
        if head[:4] != MAGIC:
            return False  # somebody else's protocol: nothing that it would understand
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
        if header.call_id != SASL or asked.state != NEGOTIATE:
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
        if header.call_id == CONTEXT and not self._server.tokens_only:
            self._context(frame, at)  # it chose SIMPLE
            return
        answered, _ = _read(pb.Sasl, frame, at)
        if header.call_id != SASL or answered.state != INITIATE or not answered.auths:
            raise unauthorized("expected an answer to the SASL negotiation")
        if answered.auths[0].method == "SIMPLE" and not self._server.tokens_only:
            return  # the peer waits for no answer, and would take one for that of a call

        def password_of(identifier: bytes) -> bytes:
            self.caller.kind, password = self._server.authenticate(identifier)
            return password

        try:
            identifier, proof = digest.finish(answered.token, password_of)
        except sasl.Refused as error:
            raise invalid_token(str(error)) from None
        self.caller.identifier = identifier
        self._answer(header, pb.Sasl(state=SASL_SUCCESS, token=proof))

    def _context(self, frame: bytes, at: int) -> None:
        context, _ = _read(pb.ConnectionContext, frame, at)
        if context.HasField("user"):
            self.caller.user = context.user.effective or context.user.real

    # -- calls -------------------------------------------------------------------------------------

    async def _frame(self) -> bytes:
        (length,) = _LENGTH.unpack(await self._reader.readexactly(4))
        if length > FRAME_MAX:
            raise FatalError("java.io.IOException", f"a frame of {length} bytes is too long", 13)
        return await self._reader.readexactly(length)

    async def _call(self, frame: bytes) -> None:
        header, at = _read(pb.RequestEnvelope, frame, 0)
        if header.call_id == CONTEXT:
            self._context(frame, at)
            return
        if header.call_id < 0:
            return  # a ping, or something that wants no answer
        if header.rpc_kind != 2 or header.rpc_op != 0:
            raise FatalError("java.io.IOException", "only calls in protobuf are spoken here", 12)
        call, at = _read(pb.MethodCall, frame, at)
        await self._room.acquire()
        task = asyncio.get_running_loop().create_task(self._carry_out(header, call, frame, at))
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)

    async def _carry_out(self, header: Any, call: Any, frame: bytes, at: int) -> None:
        began_s = asyncio.get_running_loop().time()
        outcome = "OK"
        try:
            protocol = self._server.protocols.get(call.protocol)
            if protocol is None:
                raise no_protocol(call.protocol)
            method = protocol.get(call.method)
            if method is None:
                raise no_method(call.method, call.protocol)
            try:
                request, _ = _read(method.request, frame, at)
            except FatalError as error:
                raise HadoopError(error.java_class, error.text, 4) from None
            self._answer(header, await method.handler(self.caller, request))
        except HadoopError as error:
            outcome = error.java_class.rpartition(".")[2]
            self._refuse(header, error)
        except asyncio.CancelledError:
            raise
        except Exception as error:  # a fault of this server is told to its caller, not to all
            outcome = type(error).__name__
            self._refuse(header, server_error(f"{type(error).__name__}: {error}"))
        finally:
            self._room.release()
            seconds = asyncio.get_running_loop().time() - began_s
            self._server.observe(
                call.method if outcome != "RpcNoSuchMethodException" else "?", outcome, seconds
            )
        with contextlib.suppress(ConnectionError):
            await self._writer.drain()

    # -- answers -----------------------------------------------------------------------------------

    def _answer(self, header: Any, message: Message) -> None:
        envelope = _envelope(header, SUCCESS)
        self._send(_delimited(envelope) + _delimited(message))

    def _refuse(self, header: Any, error: HadoopError) -> None:
        envelope = _envelope(header, ERROR)
        envelope.exception_class = error.java_class
        envelope.error = error.text
        envelope.error_detail = error.detail
        self._send(_delimited(envelope))

    def _fatal(self, error: FatalError) -> None:
        envelope = pb.ResponseEnvelope(
            call_id=0xFFFFFFFF,
            status=FATAL,
            server_version=VERSION,
            error=error.text,
            exception_class=error.java_class,
            error_detail=error.detail,
        )
        self._send(_delimited(envelope))

    def _send(self, data: bytes) -> None:
        if not self._writer.is_closing():
            self._writer.write(_LENGTH.pack(len(data)) + data)


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


def _read(kind: type[Message], frame: bytes, at: int) -> tuple[Any, int]:
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
        message.ParseFromString(frame[at : at + length])
    except DecodeError as error:
        raise FatalError("java.io.IOException", f"a message cannot be read: {error}", 13) from None
    return message, at + length
