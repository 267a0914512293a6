"""A process that a node manager has started, or is about to."""

import asyncio

from weft.model.ids import ContainerId

# Stage, task, attempt.
TaskKey = tuple[int, int, int]


class RunningProcess:
    """A process of a container, from the order to start it until its end was reported."""

    __slots__ = (
        "container_id",
        "crowded",
        "key",
        "pid",
        "pidfd",
        "program",
        "stopping",
        "timer",
        "written",
    )

    def __init__(self, container_id: ContainerId, key: TaskKey, program: str, pid: int = 0) -> None:
        # Under this name it and its end are written down; empty: it is not.
        self.written = ""
        self.program = program
        self.container_id = container_id
        self.key = key
        # It is also the number of its process group; 0: it has not begun.
        self.pid = pid
        # A process that an earlier node manager started is watched by this.
        self.pidfd = -1
        self.stopping = False
        # It was killed as its group had more processes than a container may.
        self.crowded = False
        self.timer: asyncio.TimerHandle | None = None
