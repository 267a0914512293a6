"""The life cycles that a node manager keeps: its own and its containers', as tables."""

from enum import IntEnum, auto
from typing import Never

from weft.protocol.lifecycle import Lifecycle


class NodeState(IntEnum):
    """Where a node manager stands with the Resource Manager.

    A node repeats its registration while it is REGISTERING, until it is accepted.
    """

    NEW = auto()
    REGISTERING = auto()
    RUNNING = auto()
    STOPPED = auto()


class NodeEvent(IntEnum):
    """What moves a node manager.

    RESYNC: the Resource Manager does not know the node, which has to register again.
    """

    STARTED = auto()
    ACCEPTED = auto()
    RESYNC = auto()
    STOP = auto()


class ContainerState(IntEnum):
    """Where a container stands on its node.

    STOPPING: its process group was sent the signal to end.
    """

    NEW = auto()
    RUNNING = auto()
    STOPPING = auto()
    DONE = auto()


class ContainerEvent(IntEnum):
    """What moves a container."""

    LAUNCH = auto()
    STOP = auto()
    EXIT = auto()


class NodeAction(IntEnum):
    """What a node manager does at a step.

    REGISTER sends what runs here. REPORT_AGAIN repeats every report, as a manager that did not know
    this node dropped them.
    """

    REGISTER = auto()
    REPORT_AGAIN = auto()
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
