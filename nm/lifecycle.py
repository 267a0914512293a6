"""The life cycles that a node manager keeps: its own and its containers', as tables."""

from enum import IntEnum, auto

from weft.lifecycle import Lifecycle


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


NODE: Lifecycle[NodeState, NodeEvent] = Lifecycle(
    "node_manager",
    NodeState.NEW,
    {
        (NodeState.NEW, NodeEvent.STARTED): NodeState.REGISTERING,
        (NodeState.REGISTERING, NodeEvent.ACCEPTED): NodeState.RUNNING,
        (NodeState.REGISTERING, NodeEvent.RESYNC): NodeState.REGISTERING,
        (NodeState.RUNNING, NodeEvent.ACCEPTED): NodeState.RUNNING,
        (NodeState.RUNNING, NodeEvent.RESYNC): NodeState.REGISTERING,
        (NodeState.NEW, NodeEvent.STOP): NodeState.STOPPED,
        (NodeState.REGISTERING, NodeEvent.STOP): NodeState.STOPPED,
        (NodeState.RUNNING, NodeEvent.STOP): NodeState.STOPPED,
    },
)

CONTAINER: Lifecycle[ContainerState, ContainerEvent] = Lifecycle(
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
    Lifecycle[NodeState, NodeEvent] | Lifecycle[ContainerState, ContainerEvent], ...
] = (NODE, CONTAINER)
