"""A foreign client and master of YARN's wire, written from the protocol and not from our server."""

import asyncio
import hashlib
import struct
from base64 import b64encode
from collections.abc import Mapping
from typing import Any

from testkit.builders import TWO_TYPES
from weft.model.ids import attempt_id
from weft.model.job import Job, MasterSpec
from weft.protocol.messages import (
    AttemptAccepted,
    AttemptFinished,
    AttemptRegistered,
    AttemptUnregistered,
    ContainersAsked,
    ContainersGranted,
)
from weft.yarn import hadoop_pb2 as pb
from weft.yarn import rpc, sasl
from weft.yarn.masters import ForeignMaster, Site
from weft.yarn.tokens import TokenKeeper

CLIENTS = "org.apache.hadoop.yarn.api.ApplicationClientProtocolPB"
MASTERS = "org.apache.hadoop.yarn.api.ApplicationMasterProtocolPB"
ADMIN = "org.apache.hadoop.yarn.server.api.ResourceManagerAdministrationProtocolPB"
NODES = "org.apache.hadoop.yarn.api.ContainerManagementProtocolPB"


class CallFailed(Exception):
    """The server refused a call; `java_class` is what a Java client would raise."""

    def __init__(self, java_class: str, text: str) -> None:
        self.java_class = java_class
        super().__init__(f"{java_class}: {text}")


class Peer:
    """A client's half of one connection."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, protocol: str
    ) -> None:
        self.reader, self.writer, self.protocol = reader, writer, protocol
        self._next = 0

    @classmethod
    async def dial(cls, address: str, protocol: str, user: str = "", token: Any = None) -> "Peer":
        """Connect; with a token, prove to have it."""
        host, _, port = address.rpartition(":")
        peer = cls(*await asyncio.open_connection(host, int(port)), protocol)
        if token is None:
            peer.hello(0, user)
        else:
            head = await peer.prove(token.identifier, token.password)
            if head.status:
                raise CallFailed(head.exception_class, head.error)
            peer.context("")
        return peer

    @staticmethod
    def delimited(message: Any) -> bytes:
        """Return a message with its length before it."""
        data: bytes = message.SerializeToString()
        out, number = bytearray(), len(data)
        while number > 0x7F:
            out.append(number & 0x7F | 0x80)
            number >>= 7
        return bytes([*out, number]) + data

    def frame(self, *messages: Any) -> None:
        """Send messages as one frame."""
        data = b"".join(map(self.delimited, messages))
        self.writer.write(struct.pack(">I", len(data)) + data)

    async def answer(self, kind: Any = None) -> tuple[Any, Any]:
        """Read one answer: its head, and its body if it is no refusal."""
        (length,) = struct.unpack(">I", await self.reader.readexactly(4))
        data = await self.reader.readexactly(length)
        head, at = rpc._read(pb.ResponseEnvelope, data, 0)
        body = rpc._read(kind, data, at)[0] if kind is not None and head.status == 0 else None
        return head, body

    def hello(self, auth: int, user: str = "") -> None:
        """Begin the connection."""
        self.writer.write(b"hrpc" + bytes((9, 0, auth)))
        if auth == 0:
            self.context(user)

    def context(self, user: str) -> None:
        """Say who calls."""
        envelope = pb.RequestEnvelope(rpc_kind=2, rpc_op=0, call_id=-3, client_id=b"x" * 16)
        context = pb.ConnectionContext(protocol=self.protocol)
        if user:
            context.user.effective = user
        self.frame(envelope, context)

    async def exchange(
        self, request: Any, kind: Any, method: str, protocol: str = ""
    ) -> tuple[Any, Any]:
        """Call; returns head and body."""
        envelope = pb.RequestEnvelope(
            rpc_kind=2, rpc_op=0, call_id=self._next, client_id=b"x" * 16, retry_count=0
        )
        self._next += 1
        call = pb.MethodCall(method=method, protocol=protocol or self.protocol, version=1)
        self.frame(envelope, call, request)
        return await self.answer(kind)

    async def call(self, method: str, request: Any, kind: Any) -> Any:
        """Call; raises CallFailed for a refusal."""
        head, body = await self.exchange(request, kind, method)
        if head.status:
            raise CallFailed(head.exception_class, head.error)
        return body

    async def prove(self, identifier: bytes, password: bytes) -> Any:
        """Prove the password as a client of DIGEST-MD5 does (RFC 2831); return the last head."""
        self.hello(0xDF)
        envelope = pb.RequestEnvelope(rpc_kind=2, rpc_op=0, call_id=-33, client_id=b"x" * 16)
        self.frame(envelope, pb.Sasl(state=1))
        _, offer = await self.answer(pb.Sasl)
        (auth,) = [one for one in offer.auths if one.method == "TOKEN"]
        nonce = sasl.read_pairs(auth.challenge)["nonce"]
        user, secret = b64encode(identifier).decode(), b64encode(password).decode()
        first = hashlib.md5(f"{user}:default:{secret}".encode()).digest()
        a1 = hashlib.md5(first + f":{nonce}:cn".encode()).hexdigest()
        proof = _md5(f"{a1}:{nonce}:00000001:cn:auth:{_md5('AUTHENTICATE:/default')}")
        response = (
            f'charset=utf-8,username="{user}",realm="default",nonce="{nonce}",nc=00000001,'
            f'cnonce="cn",digest-uri="/default",maxbuf=65536,response={proof},qop=auth'
        )
        said = pb.Sasl(state=2, token=response.encode())
        said.auths.add(method="TOKEN", mechanism="DIGEST-MD5", server_id="default", protocol="")
        self.frame(envelope, said)
        head, done = await self.answer(pb.Sasl)
        if done is not None:
            server = _md5(f"{a1}:{nonce}:00000001:cn:auth:{_md5(':/default')}")
            assert done.token == f"rspauth={server}".encode(), "the server has no password either"
        return head

    async def close(self) -> None:
        """Hang up."""
        self.writer.close()


class FakeManager:
    """The Resource Manager's side of one foreign master: accepts, and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[ContainersAsked] = []
        self.deaf = False
        self.master: Any = None

    def send(self, message: Any) -> None:
        """Hear the master, and answer at once."""
        number, job = self.master.attempt, Job("j", (), master=MasterSpec({}))
        if isinstance(message, AttemptRegistered):
            accepted = AttemptAccepted(number, job, TWO_TYPES, (), (), (), 1.0, True, 7, 1)
            self.master.hear(accepted)
        elif isinstance(message, ContainersAsked) and not self.deaf:
            self.asked.append(message)
            answer = ContainersGranted(number, message.request_id, (message.request_id,))
            self.master.hear(answer)
        elif isinstance(message, AttemptFinished):
            self.master.hear(AttemptUnregistered(number))


def foreign_master(
    manager: FakeManager,
    name: str = "",
    kind: str = "",
    hosts: Mapping[str, tuple[str, ...]] | None = None,
    states: Mapping[str, str] | None = None,
) -> ForeignMaster:
    """Return a master's face on a cluster of 10 cores and 10,000 MB.

    `hosts` has the nodes of each, `states` is that of each node.
    """
    known = hosts or {}
    site = Site(
        names=lambda: ("vcores", "memory_mb"),
        node=lambda node: pb.NodeId(host=node, port=1),
        largest=lambda: {"vcores": 4.0, "memory_mb": 4_000.0},
        nodes_up=lambda: 1,
        weft_node=lambda host: known.get(host, ()),
        total=lambda: (10.0, 10_000.0),
        http_address=lambda node: "",
        node_states=lambda: {} if states is None else states,
        node_report=lambda node: pb.NodeReport(node=pb.NodeId(host=node, port=1)),
    )
    made = ForeignMaster(attempt_id(3, 1), 7, "ada", TokenKeeper(), site, manager.send, name, kind)
    manager.master = made
    return made


def _md5(text: str) -> str:
    return hashlib.md5(text.encode()).hexdigest()
