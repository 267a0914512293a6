"""Nodes that say nothing: which of them are heard, and what their process is told."""

from collections.abc import Callable, Iterable
from typing import Any

from weft.model.ids import NodeId
from weft.protocol.messages import Address, NodeAnswered
from weft.wire.idle import IdleHeard, IdleTold
from weft.wire.outbound_queues import Lane


class Hearing:
    """One message of a stream about nodes that say nothing, until it is answered."""

    def __init__(
        self, lane: Lane, told: IdleTold, own: Iterable[NodeId], admits: Callable[[NodeId], bool]
    ) -> None:
        """`own`: whom the stream is known to speak for; of others `admits` says, and tells them."""
        self._lane = lane
        self._number = told.number
        self._unheard: list[NodeId] = []
        self.heard = list(own)
        if len(self.heard) < len(told.node_ids):
            known = set(self.heard)
            for name in told.node_ids:
                if name not in known:
                    (self.heard if admits(name) else self._unheard).append(name)

    def collect(self, to: Address, message: Any) -> bool:
        """Note a node that is asked to register: the manager does not know it, so it was not heard.

        A collector (`Shell.post`) that takes nothing.
        """
        if isinstance(message, NodeAnswered) and message.resync:
            self._unheard.append(message.node_id)
        return False

    def answer(self) -> None:
        """Tell the process, once the core took it in."""
        self._lane.send((IdleHeard(self._number, tuple(self._unheard)),))
