"""What each core may be told: one union of events a role.

`handle(event, now) -> list[Effect]` is a core's only door. Each member of its union has a handler,
which a test compares; anything else raises one error.
"""

from weft.effects import (
    ClientRequested,
    ContainersMeasured,
    NodeExamined,
    NodeSlowed,
    PlanReady,
    ProcessEnded,
    ProcessesFound,
    Recovered,
    Started,
    StopRequested,
    TimerFired,
)
from weft.errors import InvariantError
from weft.messages import (
    AttemptAccepted,
    AttemptFinished,
    AttemptRegistered,
    AttemptStopped,
    AttemptUnregistered,
    ContainersAsked,
    ContainersGranted,
    NodeAccepted,
    NodeAnswered,
    NodeHeartbeated,
    NodeRegistered,
    NodeUnregistered,
    QueryContainers,
    StartAnswered,
    StartContainers,
    StopContainers,
    TasksEnded,
)

ManagerTold = (
    NodeHeartbeated
    | ContainersAsked
    | NodeRegistered
    | NodeUnregistered
    | AttemptRegistered
    | AttemptFinished
    | ClientRequested
    | Recovered
    | TimerFired
)
MasterTold = (
    Started
    | AttemptAccepted
    | PlanReady
    | ContainersGranted
    | StartAnswered
    | TasksEnded
    | AttemptUnregistered
    | AttemptStopped
    | StopRequested
    | TimerFired
)
NodeTold = (
    StartContainers
    | NodeAnswered
    | StopContainers
    | NodeAccepted
    | ProcessEnded
    | ContainersMeasured
    | QueryContainers
    | Started
    | ProcessesFound
    | NodeSlowed
    | NodeExamined
    | StopRequested
    | TimerFired
)


class UnknownEventError(InvariantError):
    """A core was told something that it has no handler for."""

    def __init__(self, core: str, event: object) -> None:
        super().__init__(f"{core} takes no {type(event).__name__}")
