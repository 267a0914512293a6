"""A process that a node manager has started, or is about to."""

import asyncio

from weft.model.ids import ContainerId

TaskKey = tuple[int, int, int]  # stage, task, attempt


class RunningProcess:
    """A process of a container, from the order to start it until its end was heard of."""

    __slots__ = (
        "container_id",
        "key",
        "pid",
        "pidfd",
        "program",
        "stopping",
        "timer",
        "written",
    )

    def __init__(self, container_id: ContainerId, key: TaskKey, program: str, pid: int = 0) -> None:
        self.written = ""  # the name under which it is written down, and how it ends; or nothing
        self.program = program
        self.container_id = container_id
        self.key = key
        self.pid = pid  # also the number of its group; 0: it has not begun
        self.pidfd = -1  # of one that an earlier node manager started
        self.stopping = False
        self.timer: asyncio.TimerHandle | None = None
