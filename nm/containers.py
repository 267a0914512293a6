"""What a node holds: its containers, what they were granted, and tombstones of those that ended."""

from collections import deque
from collections.abc import Iterable, Mapping

from nm.emulation import Work
from nm.lifecycle import CONTAINER, ContainerEvent, ContainerState
from weft.errors import InvariantError
from weft.ids import ContainerId
from weft.messages import ContainerEnd, ContainerUse, Outcome, RunningContainer, TaskEnd
from weft.resources import Vector

TaskKey = tuple[int, int, int]  # stage, task, attempt
_LAUNCHED = CONTAINER.next(ContainerState.NEW, ContainerEvent.LAUNCH)
_NONE_ENDED: dict[TaskKey, TaskEnd] = {}  # shared and never changed, as the three that follow
_NONE_RUN: dict[TaskKey, Work] = {}
_UNUSED: list[float] = []
_UNMETERED: dict[TaskKey, float] = {}
RIGID_SLACK = 1e-7  # relative, docs/rules.md rule 2


class Held:
    """One container on this node with the tasks inside."""

    __slots__ = ("_one", "_several", "container_id", "ended", "granted", "master", "metered",
                 "reusable", "state", "used")  # fmt: skip

    def __init__(
        self, container_id: ContainerId, granted: Vector, reusable: bool, master: bool
    ) -> None:
        self.container_id = container_id
        self.state = _LAUNCHED
        self.granted = granted
        self.reusable = reusable
        self.master = master
        # what only a reusable container keeps; one for each task would cost more than the rest
        self._one: Work | None = None
        self._several: dict[TaskKey, Work] = {} if reusable else _NONE_RUN
        # tasks that already ended inside: a master that missed their ends asks for them
        self.ended: dict[TaskKey, TaskEnd] = {} if reusable else _NONE_ENDED
        self.used = _UNUSED  # amount x s since the last measurement, of ended tasks; replaced
        self.metered = {} if reusable else _UNMETERED  # work done at the last measurement, s

    @property
    def tasks(self) -> Mapping[TaskKey, Work]:
        """What runs inside."""
        one = self._one
        if one is None:
            return self._several
        return {(one.item.stage, one.item.task, one.item.attempt): one}

    def begin(self, key: TaskKey, work: Work) -> None:
        """A task runs inside from now on."""
        if self.reusable:
            self._several[key] = work
        else:
            self._one = work

    def end(self, key: TaskKey, end: TaskEnd) -> None:
        """A task of a reusable container ended."""
        self._several.pop(key, None)
        self.ended[key] = end

    def step(self, event: ContainerEvent) -> None:
        """Take a step of the life cycle; raises InvariantError where there is none."""
        self.state = CONTAINER.next(self.state, event)

    def meter(self, key: TaskKey, work: Work, now: float) -> None:
        """Add what a task used since it was last looked at (demand x work done)."""
        done_s = work.done_s(now)
        delta_s = done_s - self.metered.get(key, 0.0)
        self.metered[key] = done_s
        if not self.used:
            self.used = [0.0] * len(work.demand)
        for r, amount in enumerate(work.demand):
            self.used[r] += amount * delta_s

    def measure(self, now: float, interval_s: float) -> ContainerUse | None:
        """The mean use over the last interval, of an idle container zeros; None without one."""
        for key, work in self.tasks.items():
            self.meter(key, work, now)
        if interval_s <= 0:
            return None
        use = tuple(amount / interval_s for amount in self.used) or (0.0,) * len(self.granted)
        self.used = []
        self.metered = {key: done for key, done in self.metered.items() if key in self.tasks}
        return ContainerUse(self.container_id, use)


class Book:
    """The containers of one node, by id, and for `tombstone_s` after their end."""

    __slots__ = (
        "_buried", "_buried_s", "_rigid", "containers", "granted", "tombstone_s", "tombstones",
    )  # fmt: skip

    def __init__(self, tombstone_s: float) -> None:
        self.tombstone_s = tombstone_s
        self.containers: dict[ContainerId, Held] = {}
        self.tombstones: dict[ContainerId, ContainerEnd] = {}
        self.granted: list[float] = []  # of rigid resources, by position
        self._buried: deque[ContainerId] = deque()  # in the order of their ends, and ...
        self._buried_s: deque[float] = deque()  # ... when that was
        self._rigid: list[tuple[int, float]] = []  # (position, limit)

    def size(self, capacity: Vector, rigid: tuple[bool, ...]) -> None:
        """Learn what the node has, which may not be exceeded where it is rigid."""
        self._rigid = [
            (r, amount * (1 + RIGID_SLACK))
            for r, (amount, hard) in enumerate(zip(capacity, rigid, strict=True))
            if hard
        ]
        if not self.granted:
            self.granted = [0.0] * len(capacity)
            for held in self.containers.values():  # of an earlier process of the node
                if len(held.granted) != len(capacity):
                    held.granted = ()  # the cluster's resource types changed meanwhile
                elif held.granted:
                    for r, _ in self._rigid:
                        self.granted[r] += held.granted[r]

    def fits(self, granted: Vector) -> bool:
        """Whether the rigid part of a grant fits beside all others."""
        if granted:
            for r, limit in self._rigid:
                if self.granted[r] + granted[r] > limit:
                    return False
        return True

    def add(self, container_id: ContainerId, granted: Vector, reusable: bool, master: bool) -> Held:
        """Hold a new container."""
        held = Held(container_id, granted, reusable, master)
        self.containers[container_id] = held
        if granted:
            for r, _ in self._rigid if self.granted else ():
                self.granted[r] += granted[r]
        return held

    def close(self, held: Held, end: ContainerEnd, now: float) -> None:
        """Let a container go and remember its end."""
        held.step(ContainerEvent.EXIT)
        del self.containers[held.container_id]
        if not self.containers:
            self.granted = [0.0] * len(self.granted)  # forget what rounding left over
        elif held.granted:
            for r, _ in self._rigid:
                self.granted[r] -= held.granted[r]
        self.bury(end, now)

    def bury(self, end: ContainerEnd, now: float) -> None:
        """Remember that a container ended, or must never start."""
        buried, buried_s, number = self._buried, self._buried_s, end.container_id
        self.tombstones[number] = end
        buried.append(number)
        buried_s.append(now)
        before = now - self.tombstone_s
        while buried_s[0] < before:
            buried_s.popleft()
            self.tombstones.pop(buried.popleft(), None)

    def running(self) -> tuple[RunningContainer, ...]:
        """What a registration carries."""
        return tuple(
            RunningContainer(held.container_id, held.granted, tuple(held.tasks))
            for held in self.containers.values()
        )

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
        for r, limit in self._rigid:
            total = sum(held.granted[r] for held in self.containers.values() if held.granted)
            if total > limit * (1 + RIGID_SLACK):
                raise InvariantError(f"node: {total} granted of rigid resource {r}, over {limit}")
            if abs(total - self.granted[r]) > RIGID_SLACK * max(1.0, limit):
                raise InvariantError(f"node: {self.granted[r]} booked of {r}, {total} granted")


def never_started(end: ContainerEnd) -> bool:
    """Whether a tombstone stands for a container in which nothing ever ran."""
    return end.outcome is Outcome.RELEASED and end.stage < 0


def measure_all(
    containers: Iterable[Held], now: float, interval_s: float
) -> tuple[ContainerUse, ...]:
    """The measured use of every reusable container (COBRA's monitor)."""
    found = (held.measure(now, interval_s) for held in containers if held.reusable)
    return tuple(use for use in found if use is not None)
