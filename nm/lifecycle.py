"""The life cycles that a node manager keeps: its own and its containers', as tables."""

from enum import IntEnum, auto
from typing import Never

from weft.protocol.lifecycle import Lifecycle


class NodeState(IntEnum):
    """Where a node manager stands with the Resource Manager."""

    NEW = auto()
    REGISTERING = auto()  # repeats its registration until it is accepted
    RUNNING = auto()
    STOPPED = auto()


class NodeEvent(IntEnum):
    """What moves a node manager."""

    STARTED = auto()
    ACCEPTED = auto()
    RESYNC = auto()  # the Resource Manager does not know the node: register again
    STOP = auto()


class ContainerState(IntEnum):
    """Where a container stands on its node."""

    NEW = auto()
    RUNNING = auto()
    STOPPING = auto()  # its process group was told to end
    DONE = auto()


class ContainerEvent(IntEnum):
    """What moves a container."""

    LAUNCH = auto()
    STOP = auto()
    EXIT = auto()


class NodeAction(IntEnum):
    """What a node manager does at a step."""

    REGISTER = auto()  # say what runs here
    REPORT_AGAIN = auto()  # who did not know this node heard no report of it
    UNREGISTER = auto()


NODE: Lifecycle[NodeState, NodeEvent, NodeAction] = Lifecycle(
    "node_manager",
    NodeState.NEW,
    {
        (NodeState.NEW, NodeEvent.STARTED): (NodeState.REGISTERING, NodeAction.REGISTER),
        (NodeState.REGISTERING, NodeEvent.ACCEPTED): (NodeState.RUNNING, NodeAction.REPORT_AGAIN),
        (NodeState.REGISTERING, NodeEvent.RESYNC): (NodeState.REGISTERING, NodeAction.REGISTER),
        (NodeState.RUNNING, NodeEvent.ACCEPTED): NodeState.RUNNING,
        (NodeState.RUNNING, NodeEvent.RESYNC): (NodeState.REGISTERING, NodeAction.REGISTER),
        (NodeState.NEW, NodeEvent.STOP): (NodeState.STOPPED, NodeAction.UNREGISTER),
        (NodeState.REGISTERING, NodeEvent.STOP): (NodeState.STOPPED, NodeAction.UNREGISTER),
        (NodeState.RUNNING, NodeEvent.STOP): (NodeState.STOPPED, NodeAction.UNREGISTER),
    },
)

CONTAINER: Lifecycle[ContainerState, ContainerEvent, Never] = Lifecycle(
    "node_container",
    ContainerState.NEW,
    {
        (ContainerState.NEW, ContainerEvent.LAUNCH): ContainerState.RUNNING,
        (ContainerState.RUNNING, ContainerEvent.EXIT): ContainerState.DONE,
        (ContainerState.RUNNING, ContainerEvent.STOP): ContainerState.STOPPING,
        (ContainerState.STOPPING, ContainerEvent.STOP): ContainerState.STOPPING,
        (ContainerState.STOPPING, ContainerEvent.EXIT): ContainerState.DONE,
    },
)

LIFECYCLES: tuple[
    Lifecycle[NodeState, NodeEvent, NodeAction] | Lifecycle[ContainerState, ContainerEvent, Never],
    ...,
] = (NODE, CONTAINER)
