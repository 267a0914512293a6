"""Hadoop's transport: frames, DIGEST-MD5, errors by Java class, and no harm from anything odd."""

import asyncio
import contextlib
import struct
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from testkit.hadoop import Peer
from weft.yarn import hadoop_pb2 as pb
from weft.yarn import rpc, tokens
from weft.yarn.errors import yarn

PROTOCOL = "org.example.EchoPB"


async def _echo(caller: rpc.Caller, request: Any) -> Any:
    if request.name == "no":
        raise yarn("refused on purpose")
    if request.name == "bug":
        raise RuntimeError("a fault of the server")
    return pb.QueueQuery(name=f"{caller.user}:{request.name}")


def _server(**more: Any) -> rpc.Server:
    return rpc.Server({PROTOCOL: {"echo": rpc.Method(pb.QueueQuery, _echo)}}, **more)


async def say(peer: Peer, name: str, method: str = "echo", protocol: str = "") -> Any:
    return await peer.exchange(pb.QueueQuery(name=name), pb.QueueQuery, method, protocol)


def talk(conversation: Callable[[Peer], Awaitable[None]], **more: Any) -> None:
    """Run a conversation with a server of its own; the server must be there afterwards."""

    async def both() -> None:
        server = _server(**more)
        port = await server.start("127.0.0.1", 0)
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            await conversation(Peer(reader, writer, PROTOCOL))
            writer.close()
            if not more.get("tokens_only"):
                after = Peer(*await asyncio.open_connection("127.0.0.1", port), PROTOCOL)
                after.hello(0, "ada")
                assert (await say(after, "still here"))[1].name == "ada:still here"
                after.writer.close()
        finally:
            await server.stop()

    asyncio.run(asyncio.wait_for(both(), 20))


def test_calls_are_answered_by_their_ids_and_refused_by_java_class() -> None:
    async def conversation(peer: Peer) -> None:
        peer.hello(0, "ada")
        head, body = await say(peer, "q")
        assert (head.call_id, head.status, head.client_id, body.name) == (0, 0, b"x" * 16, "ada:q")
        head, _ = await say(peer, "no")
        assert head.exception_class == "org.apache.hadoop.yarn.exceptions.YarnException"
        assert (head.call_id, head.error, head.error_detail) == (1, "refused on purpose", 1)
        head, _ = await say(peer, "q", method="nothing")
        assert head.exception_class == "org.apache.hadoop.ipc.RpcNoSuchMethodException"
        head, _ = await say(peer, "q", protocol="nobody")
        assert head.exception_class == "org.apache.hadoop.ipc.RpcNoSuchProtocolException"
        head, _ = await say(peer, "bug")
        assert (head.status, head.exception_class) == (1, "java.io.IOException")
        assert (await say(peer, "q"))[1].name == "ada:q"

    talk(conversation)


def test_a_peer_whose_tokens_are_for_others_goes_on_as_itself() -> None:
    """A master that calls the clients' port has tokens, none of which is for it."""

    async def conversation(peer: Peer) -> None:
        peer.hello(0xDF)
        envelope = pb.RequestEnvelope(rpc_kind=2, rpc_op=0, call_id=-33, client_id=b"x" * 16)
        peer.frame(envelope, pb.Sasl(state=1))
        _, offer = await peer.answer(pb.Sasl)
        (simple,) = [one for one in offer.auths if one.method == "SIMPLE"]
        chosen = pb.Sasl(state=2)
        chosen.auths.add().CopyFrom(simple)
        peer.frame(envelope, chosen)
        peer.context("ada")
        head, body = await say(peer, "q")
        assert (head.call_id, body.name) == (0, "ada:q"), "the first answer is that of the call"

    talk(conversation)


def test_a_token_proves_who_calls() -> None:
    keeper = tokens.TokenKeeper()
    made = keeper.master(pb.AttemptId(attempt=2))

    def authenticate(identifier: bytes) -> tuple[str, bytes]:
        return tokens.MASTER, keeper.password(tokens.MASTER, identifier)

    async def good(peer: Peer) -> None:
        assert (await peer.prove(made.identifier, made.password)).status == 0
        peer.context("")
        assert (await say(peer, "q"))[1].name == ":q"

    async def forged(peer: Peer) -> None:
        head = await peer.prove(made.identifier, b"not the password")
        assert head.status == 2
        assert head.exception_class.endswith("InvalidToken")
        assert await peer.reader.read() == b""

    async def of_another(peer: Peer) -> None:
        other = tokens.TokenKeeper().master(pb.AttemptId(attempt=2))
        head = await peer.prove(other.identifier, other.password)
        assert head.status == 2

    async def plain(peer: Peer) -> None:
        peer.hello(0, "mallory")
        head, _ = await peer.answer()
        assert head.status == 2
        assert "AccessControlException" in head.exception_class

    for conversation in (good, forged, of_another, plain):
        talk(conversation, authenticate=authenticate, tokens_only=True)


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"hrpc\x08\x00\x00",
        b"hrpc\x09\x00\x77",
        b"hrpc\x09\x00\x00\xff\xff\xff\xff",
        b"hrpc\x09\x00\x00\x00\x00\x00\x02\xff\xff",
        b"hrpc\x09\x00\x00\x00\x00\x00\x00",
        b"hrpc\x09\x00\xdf\x00\x00\x00\x03\x02\x08\x02",
    ],
)
def test_bytes_of_no_meaning_end_their_connection_only(data: bytes) -> None:
    async def conversation(peer: Peer) -> None:
        peer.writer.write(data)
        peer.writer.write_eof()
        await peer.reader.read()

    talk(conversation)


@settings(max_examples=40, deadline=None)
@given(st.binary(max_size=200), st.integers(0, 60), st.binary(min_size=1, max_size=3))
def test_damaged_frames_end_their_connection_only(tail: bytes, at: int, change: bytes) -> None:
    call = pb.MethodCall(method="echo", protocol=PROTOCOL, version=1)
    envelope = pb.RequestEnvelope(rpc_kind=2, rpc_op=0, call_id=1, client_id=b"x" * 16)
    whole = b"".join(map(Peer.delimited, (envelope, call, pb.QueueQuery(name="q"))))
    broken = (whole[:at] + change + whole[at + len(change) :]) + tail

    async def conversation(peer: Peer) -> None:
        peer.hello(0, "ada")
        peer.writer.write(struct.pack(">I", len(broken)) + broken)
        peer.writer.write_eof()
        await peer.reader.read()

    talk(conversation)


def test_keys_are_replaced_while_their_tokens_are_in_use(tmp_path: Any) -> None:
    now = [1000.0]
    keeper = tokens.TokenKeeper(tmp_path / "keys", clock=lambda: now[0])
    old = keeper.master(pb.AttemptId(attempt=1))
    now[0] += tokens.KEY_LIFE_S + 1
    new = keeper.master(pb.AttemptId(attempt=1))
    assert old.identifier != new.identifier
    again = tokens.TokenKeeper(tmp_path / "keys", clock=lambda: now[0])
    for one in (old, new):
        assert again.holds(one.kind, one.identifier, one.password)
        assert not again.holds(tokens.NODE, one.identifier, one.password)
    assert (tmp_path / "keys").stat().st_mode & 0o777 == 0o600
    now[0] += tokens.KEY_LIFE_S + tokens.KEY_GRACE_S
    assert not again.holds(old.kind, old.identifier, old.password)


@pytest.mark.slow
@given(
    st.dictionaries(st.text(max_size=8), st.binary(max_size=300), max_size=4),
    st.dictionaries(st.text(max_size=8), st.binary(max_size=300), max_size=4),
)
def test_credentials_files_come_back(found: dict[str, bytes], secrets: dict[str, bytes]) -> None:
    given_tokens = {a: tokens.Credential(b, b[::-1], "kind", "host:1") for a, b in found.items()}
    data = tokens.write_credentials(given_tokens, secrets)
    assert tokens.read_credentials(data) == (given_tokens, secrets)


@given(st.binary(max_size=100))
@example(b"\x01\x88" + b"\x7f" * 8)  # a length of 2^63 and more
def test_damaged_credentials_are_refused(data: bytes) -> None:
    with contextlib.suppress(ValueError):
        tokens.read_credentials(b"HDTS\0" + data)
