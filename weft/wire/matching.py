"""Asking a matcher of another process (proto/matcher.proto), one blocking call a decision."""

from collections.abc import Sequence
from typing import NamedTuple

import grpc

from weft.model.errors import WeftError
from weft.wire import matcher_pb2, matcher_pb2_grpc, tls
from weft.wire.channel import CHANNEL_OPTIONS, reason_of

# This holds half a million picks.
ANSWER_BYTES_MAX = 4 << 20
_OPTIONS = [
    *(one for one in CHANNEL_OPTIONS if one[0] != "grpc.max_receive_message_length"),
    ("grpc.max_receive_message_length", ANSWER_BYTES_MAX),
]


class Offer(NamedTuple):
    """One ask that may be served, as the fields of `MatchCandidate`."""

    application: int
    stage: int
    queue: int
    priority: int
    demand: Sequence[float]
    pending: int
    duration_s: float
    preferred: float
    remaining: float
    path_s: float
    share: float
    waited_s: float
    distance: int


class Offers(NamedTuple):
    """A question: what a node could serve now; amounts by resource type."""

    now_s: float
    node: str
    free: Sequence[float]
    capacity: Sequence[float]
    total: Sequence[float]
    candidates: Sequence[Offer]


class MatcherChannel:
    """A connection to somebody's matcher; calls block, as a decision must."""

    def __init__(self, address: str, timeout_s: float) -> None:
        self.address = address
        self._timeout_s = timeout_s
        identity = tls.current()
        if identity is None or address.startswith("unix:"):
            channel = grpc.insecure_channel(address, options=_OPTIONS)
        else:
            credentials = grpc.ssl_channel_credentials(identity.ca, identity.key, identity.cert)
            channel = grpc.secure_channel(address, credentials, options=_OPTIONS)
        self._channel = channel
        stub = matcher_pb2_grpc.MatcherStub(channel)
        self._describe, self._match = stub.Describe, stub.Match

    def describe(self, resources: Sequence[str], queues: Sequence[str], patience_s: float) -> str:
        """Return the matcher's name; waits `patience_s` for it. Raises WeftError."""
        setting = matcher_pb2.MatcherSetting(resource=resources, queue=queues)
        try:
            answer = self._describe(setting, timeout=patience_s, wait_for_ready=True)
        except grpc.RpcError as error:
            raise self._trouble(error) from None
        return str(answer.name)

    def match(self, offers: Offers) -> list[tuple[int, int]]:
        """Return (candidate, copies) in the order in which they are picked; raises WeftError."""
        question = matcher_pb2.MatchQuestion(
            now_s=offers.now_s,
            node=offers.node,
            free=offers.free,
            capacity=offers.capacity,
            total=offers.total,
            candidate=[matcher_pb2.MatchCandidate(**each._asdict()) for each in offers.candidates],
        )
        try:
            answer = self._match(question, timeout=self._timeout_s)
        except grpc.RpcError as error:
            raise self._trouble(error) from None
        return [(pick.candidate, pick.copies) for pick in answer.pick]

    def close(self) -> None:
        """Hang up."""
        self._channel.close()

    def _trouble(self, error: grpc.RpcError) -> WeftError:
        return WeftError(f"no answer of the matcher at {self.address}: {reason_of(error)}")
