"""A client's connection to a Resource Manager: `weft.protocol.requests` in, answers out."""

import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

import grpc
import grpc.aio

from weft.model.errors import InputError, WeftError
from weft.protocol.requests import ClientAnswer, ClientRequest, Refused, SubmitApplication
from weft.wire import channel as wire
from weft.wire.auth import TOKEN_KEY, USER_KEY
from weft.wire.client_pb2 import Events, WatchEventsRequest
from weft.wire.client_pb2_grpc import ResourceManagerClientStub
from weft.wire.codec import CALLS
from weft.wire.containers_pb2 import LogChunk, ReadLogRequest
from weft.wire.containers_pb2_grpc import ContainerManagerStub
from weft.wire.tokens import numbered

_MANAGER, _SERVICE = "Resource Manager", "/weft.ResourceManagerClient"
# With several managers, one may take so long to take over from another.
TAKEOVER_S = 20.0
LOG_TOKENS_MAX = 100_000


class ManagerConnection:
    """Unary calls with a deadline each; safe to use for as long as the loop that made it runs.

    `address` may be a list with commas between: the one who leads is looked for. `patience_s` is
    how long a Resource Manager that is not there is tried again, s.
    """

    def __init__(
        self,
        address: str,
        deadline_s: float = 30.0,
        patience_s: float = 2.0,
        user: str = "",
        token: str = "",
    ) -> None:
        """`user`, or the user whose `token` it is, is whom a gateway calls for."""
        said = ((USER_KEY, user), (TOKEN_KEY, token))
        self._log_tokens: dict[int, bytes] = {}
        self._metadata = tuple((key, value) for key, value in said if value)
        self.address = address
        self.deadline_s = deadline_s
        self.patience_s = patience_s
        self._dialled = wire.Dialled(address, ResourceManagerClientStub)
        if self._dialled.several:
            self.patience_s = max(patience_s, TAKEOVER_S)

    async def close(self) -> None:
        """Close the connection; calls under way are cancelled."""
        await self._dialled.close()

    async def ask(
        self,
        request: ClientRequest,
        patience_s: float = 0.0,
        user: str = "",
        *,
        passed_on: bool = False,
    ) -> ClientAnswer:
        """Ask and wait for the answer; raises WeftError if there is none in time.

        `patience_s` is of this call, where it is more than usual, and so is the `user`. What is
        only `passed_on` to another caller stays the bytes that came.
        """
        row = CALLS[type(request)]
        message = row.encode_request(request)
        method = row.method
        what = "job" if isinstance(request, SubmitApplication) else row.method
        wire.check_size(message, what, wire.REQUEST_BYTES_MAX)
        dialled = self._dialled
        tried = dialled.address

        def elsewhere(leader: str) -> Any:
            nonlocal tried
            dialled.turn(leader, tried)
            tried = dialled.address
            return tried_once()

        def tried_once() -> Any:
            if passed_on:
                return dialled.passing(f"{_SERVICE}/{method}")
            rpc = getattr(dialled.stub, method)
            return rpc if not isinstance(request, SubmitApplication) else partial(_stale, rpc)

        metadata = (*self._metadata, (USER_KEY, user)) if user else self._metadata
        how = {"timeout": self.deadline_s, "metadata": metadata}
        try:
            answer = await wire.call(
                tried_once(),
                message,
                _MANAGER,
                self.address,
                self.deadline_s,
                max(self.patience_s, patience_s),
                metadata,
                elsewhere if dialled.several else None,
            )
        except grpc.aio.AioRpcError as error:
            refused, found = self._refused(error, what), None
            if refused.code == "unavailable":
                found = await self._of_another(lambda: tried_once()(message, **how))
            if found is None:
                return refused
            answer = found
        if passed_on:
            return answer  # type: ignore[no-any-return]
        for token in getattr(answer, "tokens", ()):
            self._log_tokens[numbered(token)[1]] = token
        while len(self._log_tokens) > LOG_TOKENS_MAX:
            del self._log_tokens[next(iter(self._log_tokens))]
        return row.decode_answer(answer)  # type: ignore[no-any-return]

    async def _of_another(self, ask: Callable[[], Awaitable[Any]]) -> Any:
        """Return what another manager answers that leads, where this one refused; None: none does.

        One that has lost most of its store cannot say whether it leads, and refuses what is new.
        Then another one may lead by the rest of the store.
        """
        dialled = self._dialled
        own = dialled.address
        while dialled.several:
            dialled.turn()
            if dialled.address == own:
                break
            with contextlib.suppress(grpc.aio.AioRpcError):
                return await ask()
        return None

    def log_token(self, container: int) -> bytes:
        """Return the leave to read what a container wrote, which came with its newest report."""
        return self._log_tokens.get(container, b"")

    def _refused(self, error: grpc.aio.AioRpcError, what: str) -> Refused:
        metadata = dict(error.trailing_metadata() or ())
        if wire.PROBLEM_KEY in metadata:
            place, problem = (_text(metadata.get(k)) for k in (wire.PLACE_KEY, wire.PROBLEM_KEY))
            return Refused(error.code().name.lower(), place, problem)
        if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED:
            raise InputError(what, f"too large for one message: {error.details()}") from None
        if error.code() in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED):
            return Refused(error.code().name.lower(), "", error.details() or "")
        if error.code() is grpc.StatusCode.UNIMPLEMENTED:
            raise WeftError(
                f"what listens at {self.address} is no {_MANAGER}: {error.details()}"
            ) from None
        raise WeftError(
            f"the {_MANAGER} at {self.address} failed: {error.code().name}: {error.details()}"
        ) from None

    async def watch(self, after: int = 0) -> AsyncIterator[tuple[int, list[dict[str, Any]]]]:
        """Yield batches of facts as they happen, as plain data, each with the number of its first.

        `after`: the facts with larger numbers that are still kept come first; 0: none. Ends with
        WeftError when the connection breaks.
        """
        tried = self._dialled.address
        stream = self._dialled.stub.WatchEvents(
            WatchEventsRequest(after=after), metadata=self._metadata
        )
        try:
            while True:
                batch = await stream.read()
                # The end is grpc.aio.EOF.
                if not isinstance(batch, Events):
                    return
                yield batch.first, [json.loads(line) for line in batch.json]
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.CANCELLED:
                return
            if error.code() in (
                grpc.StatusCode.INVALID_ARGUMENT,
                grpc.StatusCode.RESOURCE_EXHAUSTED,
            ):
                text = f"the {_MANAGER} at {self.address} refused: {error.details()}"
                raise WeftError(text) from None
            self._dialled.turn(wire.leader_of(error), tried)
            raise wire.unreachable(_MANAGER, self.address, error) from None
        finally:
            stream.cancel()


async def read_log(
    address: str,
    node: str,
    container: int,
    stream: str = "stdout",
    deadline_s: float = 30.0,
    skip: int = 0,
    token: bytes = b"",
) -> AsyncIterator[tuple[bytes, int]]:
    """Yield what a container's command wrote so far, in chunks, from its node manager at host:port.

    With each chunk comes what to `skip` to read on after it.

    `skip` bytes at the beginning are left out. A user shows the `token` that came with the
    container's report.
    """
    async with wire.dial(address) as connection:
        request = ReadLogRequest(
            container_id=container, node_id=node, stream=stream, offset=skip, token=token
        )
        chunks = ContainerManagerStub(connection).ReadLog(request, timeout=deadline_s)
        try:
            while True:
                chunk = await chunks.read()
                # The end is grpc.aio.EOF.
                if not isinstance(chunk, LogChunk):
                    return
                yield chunk.data, chunk.end
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.NOT_FOUND:
                raise InputError("container", error.details() or "no log") from None
            if error.code() is grpc.StatusCode.PERMISSION_DENIED:
                raise InputError("container", error.details() or "may not be read") from None
            if error.code() is grpc.StatusCode.UNAVAILABLE:
                raise wire.unreachable("Node Manager", address, error) from None
            raise WeftError(f"the Node Manager at {address} failed: {error.details()}") from None


async def _stale(rpc: Any, message: Any, **how: Any) -> Any:
    """Send a submission, whose id is not fresh any more afterwards."""
    try:
        return await rpc(message, **how)
    finally:
        message.fresh = False


def _text(value: str | bytes | None) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value or "")
