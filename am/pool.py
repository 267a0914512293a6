"""The reusable containers that a job holds (COBRA section IV)."""

from am.launching import LaunchedTask
from am.progress import RUNNING, Progress
from weft.model.errors import InvariantError
from weft.model.ids import ContainerId, NodeId
from weft.model.resources import Vector


class Pooled:
    """A reusable container that the job holds.

    The node has `label`, which the tasks in the container need; `boot` is the life of the node's
    process on which it was granted. `tasks` and `needs`, the estimates when they started, are
    by (stage, task). `notice`: it is about to be taken back; `confirmed`: its node has started
    something in it. An earlier attempt used the try numbers below `first_try`.
    """

    __slots__ = (
        "before",
        "boot",
        "confirmed",
        "container_id",
        "first_try",
        "free",
        "idle_since_s",
        "label",
        "needs",
        "node",
        "notice",
        "size",
        "tasks",
        "use_count",
        "use_sum",
    )

    def __init__(
        self,
        container_id: ContainerId,
        node: NodeId,
        size: Vector,
        now: float,
        boot: int = 0,
        label: str = "",
    ) -> None:
        self.container_id = container_id
        self.label = label
        self.node = node
        self.boot = boot
        self.size = size
        self.free = list(size)
        self.tasks: dict[tuple[int, int], LaunchedTask] = {}
        self.needs: dict[tuple[int, int], Vector] = {}
        # tasks that failed here: an answer may be to their first order, so it does not count
        self.before: set[tuple[int, int]] = set()
        self.idle_since_s = now
        self.use_sum = [0.0] * len(size)
        self.use_count = 0
        self.notice = False
        self.confirmed = False
        self.first_try = 0

    @property
    def busy(self) -> int:
        """Tasks in it."""
        return len(self.tasks)

    def put(self, held: LaunchedTask, need: Vector) -> None:
        """Count what a task is expected to need as used."""
        key = held.group.stage, held.task
        self.tasks[key], self.needs[key] = held, need
        self.free = [f - n for f, n in zip(self.free, need, strict=True)]

    def drop(self, stage: int, task: int) -> None:
        """Count it as free again."""
        del self.tasks[stage, task]
        need = self.needs.pop((stage, task))
        self.free = [f + n for f, n in zip(self.free, need, strict=True)]
        if not self.tasks:
            # Set it anew, so that it does not drift over thousands of tasks.
            self.free = list(self.size)


def check_pool(
    pool: dict[ContainerId, Pooled], progress: Progress, running: bool, alone: int
) -> None:
    """Raise InvariantError where what is used and free of a container is not its size.

    While the job is `running`, every running task is in one of them, but for `alone` others.
    """
    tasks = alone
    for pooled in pool.values():
        used = [0.0] * len(pooled.size)
        for key, held in pooled.tasks.items():
            # A task that finished elsewhere does not count.
            tasks += held.stage.state[held.task] == RUNNING
            used = [u + d for u, d in zip(used, pooled.needs[key], strict=True)]
        for u, f, s in zip(used, pooled.free, pooled.size, strict=True):
            if abs(u + f - s) > 1e-6 * (1.0 + s):
                raise InvariantError(f"container {pooled.container_id}: {u} used, {f} free of {s}")
            if u > s * (1 + 1e-6) + 1e-9:
                raise InvariantError(f"container {pooled.container_id} holds more than its size")
    if running and tasks != progress.running:
        raise InvariantError(f"{progress.running} tasks run, {tasks} are in a container")
