"""Heartbeats of nodes that say nothing, many in one message.

They are words of a stream, not messages of the cores: the process of a Resource Manager makes one
event of those whose node is heard on that very stream (`weft.protocol.effects.NodesIdle`), and
answers which were heard.
"""

from typing import NamedTuple

from weft.model.ids import NodeId

# One message names at most so many nodes.
IDLE_MAX = 10_000


class IdleTold(NamedTuple):
    """These nodes are alive and say nothing. `number` counts such messages of a stream."""

    number: int
    node_ids: tuple[NodeId, ...]


class IdleHeard(NamedTuple):
    """The manager took them for alive, but for some, which it has register."""

    number: int
    unheard: tuple[NodeId, ...] = ()
