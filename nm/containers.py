"""What a node holds: its containers, what they were granted, and tombstones of those that ended."""

from collections import deque
from collections.abc import Iterable, Mapping

from nm.emulation import RunningTask
from nm.lifecycle import CONTAINER, ContainerEvent, ContainerState
from weft.model.errors import InvariantError
from weft.model.ids import (
    AttemptId,
    ContainerId,
    app_of_attempt,
    app_of_container,
    attempt_of_container,
)
from weft.model.resources import TOLERANCE, Vector
from weft.protocol.messages import (
    BegunTask,
    ContainerEnd,
    ContainerUse,
    Outcome,
    RunningContainer,
    TaskEnd,
    TaskLaunch,
    end_of,
)
from weft.protocol.record import slotted

# Stage, task, attempt.
TaskKey = tuple[int, int, int]
_LAUNCHED = CONTAINER.next(ContainerState.NEW, ContainerEvent.LAUNCH)
_ENDED = CONTAINER.next(_LAUNCHED, ContainerEvent.EXIT)
# Both are shared and never changed.
_NONE_ENDED: dict[TaskKey, TaskEnd] = {}
_NONE_RUN: dict[TaskKey, RunningTask] = {}


class _Reuse:
    """What only a reusable container keeps; one for each task would cost more than the rest."""

    __slots__ = ("ended", "ended_amount_s", "metered_work_s", "tasks")

    def __init__(self) -> None:
        self.tasks: dict[TaskKey, RunningTask] = {}
        # tasks that already ended inside: a master that missed their ends asks for them
        self.ended: dict[TaskKey, TaskEnd] = {}
        self.ended_amount_s: list[float] = []
        self.metered_work_s: dict[TaskKey, float] = {}


@slotted
class HeldContainer:
    """One container on this node with the tasks inside.

    It takes room from the order to start until its last process is gone, and its end is reported
    once it is: so the manager never gives a node's room away before it is there. Its tasks are
    known by stage, task and try, as one task may be tried here more than once. Its id says whose
    orders it heeds, until a later attempt takes it over (`claim`), and never an earlier one's
    again.

    Or `count` of them with consecutive ids, that began alike, each with one task
    (`NodeContainers.add_run`).

    Only a reusable one has `reuse`. `taken_by` is a later attempt than the one it was granted to;
    0: none took it over. `start_s` is when a master began; of tasks each knows its own.
    """

    container_id: ContainerId
    granted: Vector
    reuse: _Reuse | None = None
    master: bool = False
    state: ContainerState = _LAUNCHED
    count: int = 1
    taken_by: AttemptId = 0
    # the task, or the run of tasks, of what is not reusable
    work: RunningTask | None = None
    start_s: float = 0.0

    @property
    def started_s(self) -> float:
        """When the first of what runs inside began; 0: nothing does."""
        if self.work is not None:
            return self.work.start_s
        return min([work.start_s for work in self.tasks.values()], default=self.start_s)

    @property
    def reusable(self) -> bool:
        """Whether it may take in one task after the other, and several at once."""
        return self.reuse is not None

    @property
    def ended(self) -> Mapping[TaskKey, TaskEnd]:
        """Tasks that already ended inside: a master that missed their ends asks for them."""
        return _NONE_ENDED if self.reuse is None else self.reuse.ended

    @property
    def owner(self) -> AttemptId:
        """The attempt whose orders it follows: the last that asked what runs in it."""
        return self.taken_by or attempt_of_container(self.container_id)

    def claim(self, attempt: AttemptId) -> bool:
        """Return whether an attempt may order what happens inside.

        A later one takes the container over. Then the one before may not: it was lost, or only
        taken for lost.
        """
        if app_of_attempt(attempt) != app_of_container(self.container_id):
            return False
        if attempt > self.owner:
            self.taken_by = attempt
        return attempt >= self.owner

    @property
    def tries(self) -> int:
        """A number above those of all tries that ran or run inside."""
        return 1 + max((attempt for _, _, attempt in [*self.tasks, *self.ended]), default=-1)

    @property
    def tasks(self) -> Mapping[TaskKey, RunningTask]:
        """Tasks that run inside."""
        one = self.work
        if one is None:
            return _NONE_RUN if self.reuse is None else self.reuse.tasks
        return {(one.item.stage, one.item.task, one.item.attempt): one}

    def tasks_in(self, container_id: ContainerId) -> tuple[TaskKey, ...]:
        """Return what runs in one container of a run."""
        if self.count == 1 or self.work is None:
            return tuple(self.tasks)
        item = self.work.item
        return ((item.stage, item.tasks[container_id - self.container_id], item.attempt),)

    def begin(self, key: TaskKey, work: RunningTask) -> None:
        """Note that a task runs inside from now on."""
        if self.reuse is not None:
            self.reuse.tasks[key] = work
        else:
            self.work = work

    def end(self, key: TaskKey, end: TaskEnd) -> None:
        """Note the end of a task of a reusable container."""
        reuse = self.reuse
        assert reuse is not None
        reuse.tasks.pop(key, None)
        reuse.ended[key] = end

    def step(self, event: ContainerEvent) -> None:
        """Take a step of the life cycle; raises InvariantError where there is none."""
        self.state = CONTAINER.next(self.state, event)

    def meter(self, key: TaskKey, work: RunningTask, now: float) -> None:
        """Add what a task used since it was last looked at (demand x work done)."""
        reuse, done_s = self.reuse, work.done_s(now)
        assert reuse is not None
        delta_s = done_s - reuse.metered_work_s.get(key, 0.0)
        reuse.metered_work_s[key] = done_s
        if not reuse.ended_amount_s:
            reuse.ended_amount_s = [0.0] * len(work.demand)
        for r, amount in enumerate(work.demand):
            reuse.ended_amount_s[r] += amount * delta_s

    def measure(self, now: float, interval_s: float) -> ContainerUse | None:
        """Return the mean use over the last interval, zeros if idle; None without an interval."""
        for key, work in self.tasks.items():
            self.meter(key, work, now)
        reuse = self.reuse
        if interval_s <= 0 or reuse is None:
            return None
        use = tuple(amount / interval_s for amount in reuse.ended_amount_s) or (0.0,) * len(
            self.granted
        )
        reuse.ended_amount_s = []
        reuse.metered_work_s = {
            key: done for key, done in reuse.metered_work_s.items() if key in reuse.tasks
        }
        return ContainerUse(self.container_id, use)


class NodeContainers:
    """The containers of one node, by id, and for `tombstone_s` after their end."""

    __slots__ = (
        "_buried",
        "_rigid_limits",
        "containers",
        "granted",
        "tombstone_s",
        "tombstones",
    )

    def __init__(self, tombstone_s: float) -> None:
        self.tombstone_s = tombstone_s
        self.containers: dict[ContainerId, HeldContainer] = {}
        # ends by id, one object for all ids of a run: `end_of` answers one container's
        self.tombstones: dict[ContainerId, ContainerEnd] = {}
        # By position, of the rigid resources only.
        self.granted: list[float] = []
        # in the order of their ends: when, the first id, how many in a row
        self._buried: deque[tuple[float, ContainerId, int]] = deque()
        # Positions of the rigid resources, each with the node's limit.
        self._rigid_limits: list[tuple[int, float]] = []

    def size(self, capacity: Vector, rigid: tuple[bool, ...]) -> None:
        """Learn what the node has, which may not be exceeded where it is rigid."""
        self._rigid_limits = [
            (r, amount * (1 + TOLERANCE))
            for r, (amount, hard) in enumerate(zip(capacity, rigid, strict=True))
            if hard
        ]
        if not self.granted:
            self.granted = [0.0] * len(capacity)
            # What an earlier process of the node started has room already.
            for held in self.containers.values():
                # Amounts of another length are from before the cluster's resource types changed.
                if len(held.granted) != len(capacity):
                    held.granted = ()
                elif held.granted:
                    for r, _ in self._rigid_limits:
                        self.granted[r] += held.granted[r]

    def fits(self, granted: Vector, count: int = 1) -> bool:
        """Return whether the rigid part of `count` identical grants fits beside all others."""
        if not granted:
            return True
        for r, limit in self._rigid_limits:
            total = self.granted[r] + granted[r]
            for _ in range(1, count):
                total += granted[r]
            if total > limit:
                return False
        return True

    def has_run(self, item: TaskLaunch) -> bool:
        """Return whether a run began as it is ordered, and is whole still, or ended so."""
        held = self.containers.get(item.container_id)
        work = None if held is None else held.work
        if held is not None and work is not None and held.count > 1:
            same = (held.container_id, work.item.stage, work.item.attempt, work.item.tasks)
            return same == (item.container_id, item.stage, item.attempt, item.tasks)
        end = self.tombstones.get(item.container_id)
        if end is None or not end.tasks:
            return False
        return (end.container_id, end.tasks) == (item.container_id, item.tasks)

    def is_new(self, first: ContainerId, count: int) -> bool:
        """Return whether none of so many ids in a row was ever received."""
        numbers = range(first, first + count)
        return self.containers.keys().isdisjoint(numbers) and self.tombstones.keys().isdisjoint(
            numbers
        )

    def take_in(
        self, container_id: ContainerId, granted: Vector, demand: Vector, reusable: bool
    ) -> HeldContainer | None:
        """Hold a new container, whose amounts are its demand where no grant is known.

        None where the rigid part of its grant does not fit beside all others.
        """
        booked = self.granted
        if granted:
            for r, limit in self._rigid_limits:
                if booked[r] + granted[r] > limit:
                    return None
        holds = granted or demand
        for r, _ in self._rigid_limits:
            booked[r] += holds[r]
        held = HeldContainer(container_id, holds, _Reuse() if reusable else None)
        self.containers[container_id] = held
        return held

    def add(
        self,
        container_id: ContainerId,
        granted: Vector,
        reusable: bool,
        master: bool,
        start_s: float = 0.0,
    ) -> HeldContainer:
        """Hold a new container; a master says when it began."""
        held = HeldContainer(
            container_id, granted, _Reuse() if reusable else None, master, start_s=start_s
        )
        self.containers[container_id] = held
        if granted:
            for r, _ in self._rigid_limits if self.granted else ():
                self.granted[r] += granted[r]
        return held

    def add_run(self, first: ContainerId, granted: Vector, work: RunningTask) -> HeldContainer:
        """Hold as many new containers as tasks began in one `work`."""
        count = work.count
        held = HeldContainer(first, granted, count=count, work=work)
        self.containers.update(dict.fromkeys(range(first, first + count), held))
        if granted:
            for r, _ in self._rigid_limits if self.granted else ():
                for _ in range(count):
                    self.granted[r] += granted[r]
        return held

    def one(self, container_id: ContainerId) -> HeldContainer | None:
        """Return a container alone; the run in which it was is taken apart.

        The works of the run must have been taken apart (`Emulation.take_apart`).
        """
        held = self.containers.get(container_id)
        if held is None or held.count == 1:
            return held
        run = held.work
        assert run is not None
        for part in run.parts:
            item = part.item
            single = HeldContainer(item.container_id, held.granted, work=part)
            self.containers[item.container_id] = single
        return self.containers[container_id]

    def close(self, held: HeldContainer, end: ContainerEnd, now: float) -> None:
        """Let a container, or a run of them, go and remember its end."""
        if held.state is _LAUNCHED:
            held.state = _ENDED
        else:
            held.step(ContainerEvent.EXIT)
        first, count, containers = held.container_id, held.count, self.containers
        if count == 1:
            del containers[first]
        else:
            for number in range(first, first + count):
                del containers[number]
        # Without containers what rounding left over is forgotten.
        if not containers:
            self.granted = [0.0] * len(self.granted)
        elif held.granted:
            for r, _ in self._rigid_limits:
                for _ in range(count):
                    self.granted[r] -= held.granted[r]
        self._remember(end, first, count, now)

    def bury(self, end: ContainerEnd, now: float) -> None:
        """Remember that a container ended, or must never start; or all of a run."""
        self._remember(end, end.container_id, len(end.tasks) or 1, now)

    def _remember(self, end: ContainerEnd, first: ContainerId, count: int, now: float) -> None:
        buried, tombstones = self._buried, self.tombstones
        if count == 1:
            tombstones[first] = end
        else:
            tombstones.update(dict.fromkeys(range(first, first + count), end))
        buried.append((now, first, count))
        before = now - self.tombstone_s
        while buried[0][0] < before:
            _, first, count = buried.popleft()
            if count == 1:
                tombstones.pop(first, None)
                continue
            for old in range(first, first + count):
                tombstones.pop(old, None)

    def forget(self) -> None:
        """Forget all that ended."""
        self.tombstones.clear()
        self._buried.clear()

    def end_of(self, container_id: ContainerId) -> ContainerEnd | None:
        """Return how a container ended; None where that is not known (any more)."""
        end = self.tombstones.get(container_id)
        if end is None or not end.tasks:
            return end
        return end_of(end, container_id - end.container_id)

    def running(self) -> tuple[RunningContainer, ...]:
        """Return what a registration carries."""
        return tuple(
            RunningContainer(number, held.granted, held.tasks_in(number), held.started_s)
            for number, held in self.containers.items()
        )

    def begun(self, since_s: float, *, in_order: bool) -> tuple[BegunTask, ...]:
        """Return the tasks that run and began at `since_s` or later.

        With `in_order` no container holds a younger task than one that was taken in after it.
        """
        found: list[BegunTask] = []
        for number, held in reversed(self.containers.items()):
            if held.reusable:
                for key, work in held.tasks.items():
                    if work.start_s >= since_s:
                        found.append(BegunTask(number, *key))
            elif held.started_s >= since_s:
                found.extend([BegunTask(number, *key) for key in held.tasks_in(number)])
            elif in_order:
                break
        return tuple(found)

    def check(self) -> None:
        """Raise InvariantError where the books contradict the containers."""
        both = self.containers.keys() & self.tombstones.keys()
        if both:
            raise InvariantError(f"node: containers {sorted(both)} both run and ended")
        for held in self.containers.values():
            if held.state is ContainerState.DONE:
                raise InvariantError(f"node: container {held.container_id} is done but held")
            if not held.reusable and not held.master and len(held.tasks) != 1:
                raise InvariantError(f"node: container {held.container_id} has no task")
        for r, limit in self._rigid_limits:
            total = sum(held.granted[r] for held in self.containers.values() if held.granted)
            if total > limit * (1 + TOLERANCE):
                raise InvariantError(f"node: {total} granted of rigid resource {r}, over {limit}")
            if abs(total - self.granted[r]) > TOLERANCE * max(1.0, limit):
                raise InvariantError(f"node: {self.granted[r]} booked of {r}, {total} granted")


def never_started(end: ContainerEnd) -> bool:
    """Return whether a tombstone stands for a container in which nothing ever ran."""
    return end.outcome is Outcome.RELEASED and end.stage < 0


def measure_all(
    containers: Iterable[HeldContainer], now: float, interval_s: float
) -> tuple[ContainerUse, ...]:
    """Return the measured use of every reusable container (COBRA's monitor)."""
    found = (held.measure(now, interval_s) for held in containers if held.reusable)
    return tuple(use for use in found if use is not None)
