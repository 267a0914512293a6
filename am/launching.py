"""The containers that a master holds, and the bulk orders that start tasks in them.

The truth (`actual_*`) is copied into launches here and nowhere else: node managers run it.
"""

from collections.abc import Hashable, Iterator, Sequence

from am.progress import StageProgress
from am.task_groups import TaskGroup
from weft.model.ids import AttemptId, ContainerId, NodeId
from weft.model.job import Job, Stage
from weft.model.resources import ResourceTypes, Vector
from weft.protocol.effects import Effect, Send
from weft.protocol.messages import (
    QueryContainers,
    StartContainers,
    StopContainers,
    TaskLaunch,
    node_address,
)
from weft.protocol.record import slotted


@slotted
class LaunchedTask:
    """A task in a container. `key` names it among all that is held.

    That is the container's id, or for a reusable container (whose `size` is given) id, stage, task
    and attempt. With `tasks` it is a run of like ones that began together on one node, in
    containers with consecutive ids, of which nothing has befallen one alone; what else it says is
    of the first.

    `boot` is the life of the node's process on which the container was granted. Its order was last
    sent again at `repeated_s` (0: never). `stopping`: the task is no longer wanted here.
    """

    container_id: ContainerId
    node: NodeId
    group: TaskGroup
    stage: StageProgress
    task: int
    attempt: int
    launched_s: float
    boot: int = 0
    size: Vector = ()
    tasks: tuple[int, ...] = ()
    repeated_s: float = 0.0
    stopping: bool = False

    @property
    def key(self) -> Hashable:
        """Its name among all that is held."""
        if self.size:
            return (self.container_id, self.stage.position, self.task, self.attempt)
        return self.container_id

    @property
    def sent_s(self) -> float:
        """The time when its order was last sent."""
        return self.repeated_s or self.launched_s


class Truth:
    """What really happens to the tasks of one stage."""

    __slots__ = (
        "_stage",
        "_types",
        "command",
        "demand",
        "duration_s",
        "durations_s",
        "environment",
        "plain",
    )

    def __init__(self, job: Job, stage: Stage, types: ResourceTypes) -> None:
        self._stage = stage
        self._types = types
        several = stage.overrides or isinstance(stage.actual_duration_s, tuple)
        # Every launch looks alike, so nodes can tell commands their tasks.
        self.plain = not several
        self.duration_s = stage.actual_duration_of(0) if self.plain else 0.0
        # Durations are by task where the tasks differ in nothing else.
        self.durations_s: tuple[float, ...] = ()
        if isinstance(stage.actual_duration_s, tuple) and not stage.overrides:
            self.durations_s = stage.actual_duration_s
        self.demand = types.vector(stage.actual_demand_of(0)) if not stage.overrides else ()
        self.command = stage.command
        self.environment = (("WEFT_JOB", job.name), ("WEFT_STAGE", stage.name))

    def launch(self, order: "Order") -> TaskLaunch:
        """Return the order for a task, or for a run of them, which only plain ones make.

        It is `remote` when its preferred nodes do not include the node.
        """
        held = order[0]
        group, task, size, tasks = held.group, held.task, held.size, held.tasks
        if len(order) > 1:
            tasks = tuple([number for one in order for number in one.tasks or (one.task,)])
        duration_s, demand, command = self.duration_s, self.demand, self.command
        if self.durations_s:
            duration_s = self.durations_s[task]
        elif not self.plain:
            stage = self._stage
            duration_s, command = stage.actual_duration_of(task), stage.command_of(task)
            demand = demand or self._types.vector(stage.actual_demand_of(task))
        return TaskLaunch(
            held.container_id,
            group.stage,
            task,
            held.attempt,
            duration_s,
            demand,
            command,
            self.environment if command else (),
            bool(size),
            bool(group.nodes) and held.node not in group.nodes,
            size or group.grant,
            tasks,
        )


# like tasks, or runs of them, to start in containers with consecutive ids of one node
Order = list[LaunchedTask]


def _takes(order: Order, held: LaunchedTask) -> bool:
    """Return whether another task is one more of these."""
    last = order[-1]
    return (
        held.container_id == last.container_id + (len(last.tasks) or 1)
        and held.group is last.group
        and held.attempt == last.attempt
        and not held.size
    )


def _parts(run: LaunchedTask) -> list[LaunchedTask]:
    """Return each task of a run alone."""
    parts = []
    for number, task in enumerate(run.tasks, run.container_id):
        one = LaunchedTask(
            number, run.node, run.group, run.stage, task, run.attempt, run.launched_s, run.boot
        )
        one.repeated_s = run.repeated_s
        parts.append(one)
    return parts


class Launcher:
    """Held containers by id; start orders are repeated until the node answers."""

    __slots__ = (
        "_attempt",
        "_batches_by_node_and_boot",
        "_queries",
        "_runs",
        "_stops",
        "_unanswered",
        "asked",
        "by_key",
        "due",
        "lossless",
        "stopped",
        "truths",
    )

    def __init__(self, attempt_id: AttemptId, *, lossless: bool = False) -> None:
        self._attempt = attempt_id
        # On lossless links a node answers only for reusable containers, and with refusals.
        self.lossless = lossless
        self.truths: list[Truth] = []
        # Code that handles runs looks in `by_key`, which has a run under the id of each of its
        # containers; other code looks in `held`.
        self.by_key: dict[Hashable, LaunchedTask] = {}
        # Orders stay in the order in which they were sent.
        self._unanswered: dict[Hashable, LaunchedTask] = {}
        # Runs that were not taken apart, by their first id.
        self._runs: dict[ContainerId, LaunchedTask] = {}
        # stops and queries that no node has answered yet: the node, when it was told last
        self.stopped: dict[ContainerId, tuple[NodeId, float]] = {}
        self.asked: dict[ContainerId, tuple[NodeId, float]] = {}
        self._batches_by_node_and_boot: dict[tuple[NodeId, int], list[Order]] = {}
        self._queries: dict[NodeId, list[ContainerId]] = {}
        self._stops: dict[NodeId, list[ContainerId]] = {}
        # `flush` has something to send.
        self.due = False

    def prepare(self, job: Job, types: ResourceTypes) -> None:
        """Read the truth of every stage."""
        self.truths = [Truth(job, stage, types) for stage in job.stages]

    # -- what is held ------------------------------------------------------------------------------

    @property
    def held(self) -> dict[Hashable, LaunchedTask]:
        """All tasks in containers by their keys, each alone: runs are taken apart."""
        self._take_all_apart()
        return self.by_key

    @property
    def unanswered(self) -> dict[Hashable, LaunchedTask]:
        """Those of them whose orders no node has answered, in the order of sending."""
        self._take_all_apart()
        return self._unanswered

    def listed(self) -> Iterator[LaunchedTask]:
        """Yield all that `held` has, to be looked at only: runs stay runs."""
        for held in dict.fromkeys(self.by_key.values()):
            yield from _parts(held) if held.tasks else (held,)

    def _take_all_apart(self) -> None:
        while self._runs:
            self._take_apart(self._runs.popitem()[1])

    def _take_apart(self, run: LaunchedTask) -> None:
        unanswered = self._unanswered
        for one in _parts(run):
            self.by_key[one.key] = one
            if one.key in unanswered:
                unanswered[one.key] = one

    def one(self, container_id: ContainerId) -> LaunchedTask | None:
        """Return the one task of a container, alone; None: it is not held."""
        held = self.by_key.get(container_id)
        if held is not None and held.tasks:
            self._take_apart(self._runs.pop(held.container_id))
            return self.by_key[container_id]
        return held

    def drop(self, container_id: ContainerId, count: int) -> None:
        """Forget what is held in containers with consecutive ids: one, or all of a run."""
        held, unanswered = self.by_key, self._unanswered
        if count == 1:
            del held[container_id]
            if unanswered:
                unanswered.pop(container_id, None)
            return
        self._runs.pop(container_id, None)
        for number in range(container_id, container_id + count):
            del held[number]
        if unanswered:
            for number in range(container_id, container_id + count):
                unanswered.pop(number, None)

    # -- orders ------------------------------------------------------------------------------------

    def start(self, held: LaunchedTask) -> None:
        """Order one task; the order leaves with the next `flush`."""
        self.by_key[held.key] = held
        if held.size or not self.lossless:
            self._unanswered[held.key] = held
        self._order(held)

    def start_all(self, starts: Sequence[LaunchedTask]) -> None:
        """Order tasks and runs of them, none in a reusable container."""
        for held in starts:
            first, tasks = held.container_id, held.tasks
            if not tasks:
                self.by_key[first] = held
                if not self.lossless:
                    self._unanswered[first] = held
                self._order(held)
                continue
            self._runs[first] = held
            numbers = range(first, first + len(tasks))
            members: dict[Hashable, LaunchedTask] = dict.fromkeys(numbers, held)
            self.by_key.update(members)
            if not self.lossless:
                self._unanswered.update(members)
            self.due = True
            to = (held.node, held.boot)
            batch = self._batches_by_node_and_boot.get(to)
            if batch is None:
                self._batches_by_node_and_boot[to] = [[held]]
            else:
                batch.append([held])

    def waiting_among(self, container_id: ContainerId, count: int) -> Sequence[ContainerId]:
        """Return consecutive ids, at most as many as orders wait for an answer."""
        numbers, waiting = range(container_id, container_id + count), self._unanswered
        if count > len(waiting) + 1:
            return [key for key in waiting if isinstance(key, int) and key in numbers]
        return numbers

    def answered_start(self, container_id: ContainerId) -> bool:
        """Note that a node has answered an order to start; False: that was known."""
        return self._unanswered.pop(container_id, None) is not None

    def _order(self, held: LaunchedTask) -> None:
        self.due = True
        to = (held.node, held.boot)
        batch = self._batches_by_node_and_boot.get(to)
        if batch is None:
            self._batches_by_node_and_boot[to] = [[held]]
        elif self.truths[held.group.stage].plain and _takes(batch[-1], held):
            batch[-1].append(held)
        else:
            batch.append([held])

    @property
    def waits(self) -> bool:
        """Whether a node owes an answer, so that something may have to be sent again."""
        return bool(self._unanswered or self.stopped or self.asked)

    def stop(self, held: LaunchedTask) -> None:
        """Order the end of one container."""
        held.stopping = True
        self.stop_container(held.node, held.container_id)

    def stop_container(self, node: NodeId, container_id: ContainerId) -> None:
        """Order the end of a container by its id."""
        self.due = True
        stops = self._stops.setdefault(node, [])
        if container_id not in stops:
            stops.append(container_id)

    def stop_surely(self, node: NodeId, container_id: ContainerId, now: float) -> None:
        """Order the end of a container until its node answers: nobody else may know of it."""
        self.stop_container(node, container_id)
        self.stopped[container_id] = (node, now)

    def query(self, node: NodeId, container_id: ContainerId, now: float) -> None:
        """Ask what runs and what ended in a container, until its node answers."""
        self.due = True
        self._queries.setdefault(node, []).append(container_id)
        self.asked[container_id] = (node, now)

    def answered(self, container_id: ContainerId) -> None:
        """Note that a node answered for a container as a whole."""
        self.stopped.pop(container_id, None)
        self.asked.pop(container_id, None)

    def stop_all(self) -> None:
        """Order the end of everything held; the manager frees what these orders miss."""
        for held in self.held.values():
            self.stop(held)
        self.unanswered.clear()
        self.asked.clear()

    def repeat(self, now: float, resend_after_s: float) -> None:
        """Order again what was not answered for too long."""
        oldest = next(iter(self._unanswered.values()), None)
        late = oldest is not None and now - oldest.sent_s >= resend_after_s
        for key, held in list(self.unanswered.items()) if late else ():
            if now - held.sent_s < resend_after_s:
                break
            del self._unanswered[key]
            held.repeated_s = now
            self._unanswered[key] = held
            if held.stopping:
                self.stop_container(held.node, held.container_id)
            else:
                self._order(held)
        for container_id, (node, sent_s) in list(self.stopped.items()):
            if now - sent_s >= resend_after_s:
                self.stop_surely(node, container_id, now)
        for container_id, (node, sent_s) in list(self.asked.items()):
            if now - sent_s >= resend_after_s:
                self.query(node, container_id, now)

    def flush(self, effects: list[Effect]) -> None:
        """Turn the collected orders into one message per node."""
        self.due = False
        if self._batches_by_node_and_boot:
            truths = self.truths
            for (node, boot), batch in self._batches_by_node_and_boot.items():
                items: tuple[TaskLaunch, ...]
                if len(batch) == 1:
                    items = (truths[batch[0][0].group.stage].launch(batch[0]),)
                else:
                    items = tuple([truths[one[0].group.stage].launch(one) for one in batch])
                message = StartContainers(self._attempt, node, items, boot)
                effects.append(Send(node_address(node), message))
            self._batches_by_node_and_boot = {}
        if self._stops:
            for node, containers in self._stops.items():
                stop = StopContainers(self._attempt, node, tuple(containers))
                effects.append(Send(node_address(node), stop))
            self._stops = {}
        if self._queries:
            for node, containers in self._queries.items():
                query = QueryContainers(self._attempt, node, tuple(containers))
                effects.append(Send(node_address(node), query))
            self._queries = {}
