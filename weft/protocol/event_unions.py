"""What each core may be told: one union of events a role.

`handle(event, now) -> list[Effect]` is a core's only door. Each member of its union has a handler,
which a test compares; anything else raises one error. The messages among them are listed where they
are (`weft.protocol.messages`).
"""

from weft.model.errors import InvariantError
from weft.protocol.effects import (
    ClientRequested,
    ContainersMeasured,
    Heard,
    NodeExamined,
    NodesIdle,
    NodeSlowed,
    PlanReady,
    ProcessEnded,
    ProcessesFound,
    Recovered,
    ReportsWaited,
    Started,
    StopRequested,
    TimerFired,
)
from weft.protocol.messages import (
    FromMaster,
    FromNode,
    MasterToNode,
    NodeToMaster,
    ToMaster,
    ToNode,
)

ManagerTold = (
    FromNode | FromMaster | NodesIdle | ReportsWaited | ClientRequested | Recovered | TimerFired
)
MasterTold = ToMaster | NodeToMaster | Started | PlanReady | StopRequested | TimerFired
NodeTold = (
    ToNode
    | MasterToNode
    | ProcessEnded
    | ContainersMeasured
    | Started
    | ProcessesFound
    | NodeSlowed
    | NodeExamined
    | Heard
    | StopRequested
    | TimerFired
)


class UnknownEventError(InvariantError):
    """A core was told something that it has no handler for."""

    def __init__(self, core: str, event: object) -> None:
        super().__init__(f"{core} takes no {type(event).__name__}")
