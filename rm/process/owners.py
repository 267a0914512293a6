"""Of two processes that say to be one node, the one that is heard keeps it.

Two hosts that were given one name by mistake would take the node from each other for ever, and end
each other's tasks. A node manager that started anew is no such case: its former stream closes, or
falls silent. So a registration of another process waits while the first stream is heard; where both
go on speaking, the second is refused, and told both addresses.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from weft.protocol.messages import NodeAnswered, NodeHeartbeated, NodeRegistered
from weft.wire.outbound_queues import Lane

# Beyond so many nodes nobody is told apart: who would be, would be hostile.
NODES_MAX = 100_000
# One node has at most so many rivals; who comes after them takes the place of the first.
RIVALS_MAX = 8


class Rival(NamedTuple):
    """Another process that registers under the same name."""

    lane: Lane
    boot: int
    since_s: float


class Owner:
    """The stream that a node was last heard on; `boot` is 0 if not known since this manager
    started.
    """

    __slots__ = ("boot", "heard_s", "lane", "rivals")

    def __init__(self, lane: Lane, boot: int, heard_s: float) -> None:
        self.lane = lane
        self.boot = boot
        self.heard_s = heard_s
        self.rivals: list[Rival] = []


class Owners:
    """Who speaks for which node."""

    def __init__(self, silence_s: float) -> None:
        """Take nodes from a stream that was not heard for `silence_s` (wall clock)."""
        self._silence_s = silence_s
        self._of: dict[str, Owner] = {}
        self._on: dict[Lane, set[str]] = {}

    def hear(
        self, lane: Lane, message: Any, now_s: float, *, shown: bool = True
    ) -> NodeAnswered | bool:
        """Return whether a message of a node may pass; where it may not, the answer that says why.

        `now_s`: monotonic wall clock. `shown`: the stream showed the node's token.
        """
        owner = self._of.get(message.node_id)
        boot = message.boot if type(message) is NodeRegistered else 0
        if owner is not None and owner.lane is lane:
            owner.heard_s = now_s
            owner.boot = boot or owner.boot
            return True
        if owner is None or self._over(owner, now_s) or (shown and boot and boot == owner.boot):
            self._own(lane, message.node_id, boot, now_s)
            return True
        if not boot:
            # A node that comes back on a new stream registers again, and is known by its boot.
            resync = NodeAnswered(message.node_id, 0, resync=True)
            return resync if type(message) is NodeHeartbeated else False
        # A process may come on other streams, and name another boot on the same one.
        same = (r for r in owner.rivals if r.lane is lane or r.boot == boot)
        rival = next(same, None)
        if rival is None:
            owner.rivals = [*owner.rivals[1 - RIVALS_MAX :], Rival(lane, boot, now_s)]
        elif owner.heard_s - rival.since_s > self._silence_s:
            # Both of them live.
            why = (
                f"node {message.node_id!r} is at {owner.lane.peer} already, which is alive; "
                f"this is {lane.peer}: give one of them another name"
            )
            return NodeAnswered(message.node_id, 0, shutdown=why)
        return False

    def hear_idle(self, lane: Lane, names: Sequence[str], now_s: float) -> list[str]:
        """Return those of the nodes that are heard on a stream, as `hear` would find.

        A stream that may speak for a node no more, as another one showed its token, does not keep
        the node by it.
        """
        own, subjects = [], lane.subjects
        for name in names:
            owner = self._of.get(name)
            if owner is not None and owner.lane is lane and name in subjects:
                owner.heard_s = now_s
                own.append(name)
        return own

    def closed(self, lane: Lane) -> None:
        """Release the nodes of a stream that is gone to whichever stream they come on next."""
        for name in self._on.pop(lane, ()):
            if self._of[name].lane is lane:
                del self._of[name]

    def _over(self, owner: Owner, now_s: float) -> bool:
        return owner.lane.closed or now_s - owner.heard_s > self._silence_s

    def _own(self, lane: Lane, name: str, boot: int, now_s: float) -> None:
        old = self._of.get(name)
        if old is not None:
            self._on[old.lane].discard(name)
        elif len(self._of) >= NODES_MAX:
            return
        self._of[name] = Owner(lane, boot, now_s)
        self._on.setdefault(lane, set()).add(name)
