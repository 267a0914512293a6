"""Taking over what an earlier attempt left running (YARN's keep-containers-across-attempts).

The manager tells which containers there are, their nodes what runs in them. Until that is known of
all of them nothing is asked for, so that no task is started a second time.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import inf
from typing import NamedTuple

from am.asking import AskTable
from am.launching import Launcher
from am.progress import DONE, READY, Progress
from weft.model.ids import ContainerId
from weft.model.resources import Vector
from weft.protocol.messages import Container, ItemAnswer, StartAnswered

# Each stage has its containers and the tasks that they run.
Found = Mapping[int, list[tuple[Container, int]]]
# A node that reports a higher try would leave no numbers for the tries to come.
TRIES_MAX = 1_000_000
# What an earlier attempt left running is waited for for so long, s, then given back.
TAKEOVER_WAIT_S = 10.0
# A try is (stage, task, number of the try).
TaskTry = tuple[int, int, int]


class Takeover:
    """The containers of earlier attempts whose tasks are not known yet: `waiting`, by id.

    One that is of no use is `refused`: it was given back, and its end is waited for all the same,
    as its task may just have succeeded. After `wait_s` the rest is given back as well.
    """

    __slots__ = ("_book", "_launcher", "_progress", "_since_s", "_wait_s", "refused", "waiting")

    def __init__(
        self,
        held: tuple[Container, ...],
        wait_s: float,
        progress: Progress,
        book: AskTable,
        launcher: Launcher,
    ) -> None:
        self.waiting: dict[ContainerId, Container] = {one.container_id: one for one in held}
        self.refused: set[ContainerId] = set()
        self._progress = progress
        self._book = book
        self._launcher = launcher
        self._wait_s = wait_s
        # When the nodes were asked; infinite before, as a clock that was put back may be below 0.
        self._since_s = inf

    def step(self, now: float) -> float | None:
        """Ask the nodes; when that took too long, go on without. Return when to look again, s."""
        if self._since_s == inf:
            self._since_s = now
            for container in self.waiting.values():
                self._launcher.query(container.node_id, container.container_id, now)
            return self._wait_s
        left_s = self._since_s + self._wait_s - now
        if left_s > 0:
            return left_s
        for container_id in list(self.waiting):
            self.refuse(container_id)
        self.waiting.clear()
        return None

    def answered(self, event: StartAnswered) -> Found:
        """Take a node's answer about its containers; return the tasks to follow, by stage."""
        found: dict[int, list[tuple[Container, int]]] = {}
        taken: set[tuple[int, int]] = set()
        for container_id, told in self._told(event.items).items():
            running = [(item.stage, item.task) for item in told if item.stage >= 0]
            key = running[0] if len(running) == 1 else (-1, -1)
            if container_id in self.refused or key in taken or not self._may_run(told, *key):
                self.refuse(container_id)
                continue
            taken.add(key)
            found.setdefault(key[0], []).append((self.waiting.pop(container_id), key[1]))
        return found

    def _told(self, items: Iterable[ItemAnswer]) -> Mapping[ContainerId, list[ItemAnswer]]:
        """Return the text about containers that are waited for."""
        told: dict[ContainerId, list[ItemAnswer]] = {}
        for item in items:
            if item.container_id in self.waiting:
                told.setdefault(item.container_id, []).append(item)
        return told

    def _may_run(self, told: Sequence[ItemAnswer], stage: int, task: int) -> bool:
        """Return whether a container is for a single task that is still to be run."""
        # An asker of another kind left a reusable container.
        reusable = any(item.granted for item in told)
        return not reusable and self.state_of(stage, task) == READY

    def ended(self, container_id: ContainerId) -> None:
        """Forget a container that ended."""
        self.refused.discard(container_id)
        if self.waiting.pop(container_id, None) is not None:
            self._launcher.answered(container_id)

    def refuse(self, container_id: ContainerId) -> None:
        """Give a container back, once."""
        if container_id not in self.refused:
            self.refused.add(container_id)
            self._book.release(container_id)
        self._launcher.answered(container_id)

    def state_of(self, stage: int, task: int) -> int:
        """Return how far a task is; -1 if there is none."""
        stages = self._progress.stages
        if not (0 <= stage < len(stages) and 0 <= task < stages[stage].tasks):
            return -1
        return stages[stage].state[task]


class Kept(NamedTuple):
    """A reusable container of an earlier attempt, as its node describes it.

    Whatever is started in it from now on has a try number of at least `first_try`, as those below
    are taken.
    """

    container: Container
    size: Vector
    first_try: int
    tasks: tuple[TaskTry, ...]


class PoolTakeover(Takeover):
    """The same for reusable containers, which run several tasks or none: `kept`, by id.

    What is to become of them is decided once all nodes have answered, as one may know of the
    success that made the task of another ready.
    """

    __slots__ = ("_ended", "_gangs", "_types", "kept")

    def __init__(
        self,
        held: tuple[Container, ...],
        wait_s: float,
        progress: Progress,
        book: AskTable,
        launcher: Launcher,
        types: int,
        gangs: Collection[int] = (),
    ) -> None:
        """`types`: how many resource types a size has."""
        super().__init__(held, wait_s, progress, book, launcher)
        self._types = types
        self.kept: dict[ContainerId, Kept] = {}
        # Stages whose tasks have containers of their own.
        self._gangs = gangs
        # Ends that came before the node's answer did.
        self._ended: set[tuple[ContainerId, TaskTry]] = set()

    def answered(self, event: StartAnswered) -> Found:
        """Note what reusable containers run. Return the tasks of gangs to follow, by stage."""
        for container_id, told in self._told(event.items).items():
            first = next((item for item in told if item.granted), None)
            if first is None or container_id in self.refused:
                continue
            if len(first.granted) != self._types or first.attempt > TRIES_MAX:
                # Its size is not one of this cluster, or no number is left for a task, so the base
                # class refuses it.
                continue
            tasks = tuple((item.stage, item.task, item.attempt) for item in told if item.stage >= 0)
            container = self.waiting.pop(container_id)
            self.kept[container_id] = Kept(container, first.granted, first.attempt, tasks)
        return super().answered(event)

    def _may_run(self, told: Sequence[ItemAnswer], stage: int, task: int) -> bool:
        return stage in self._gangs and super()._may_run(told, stage, task)

    def knows(self, container_id: ContainerId) -> bool:
        """Return whether it is still to be decided what becomes of a container."""
        return container_id in self.waiting or container_id in self.kept

    def task_ended(self, container_id: ContainerId, key: TaskTry) -> None:
        """Note the end of a task in such a container: the node's answer may be older, and late."""
        if self.knows(container_id):
            self._ended.add((container_id, key))

    def ended(self, container_id: ContainerId) -> None:
        """Forget a container that ended."""
        super().ended(container_id)
        self.kept.pop(container_id, None)

    def decide(self) -> list[Kept]:
        """Return the containers to go on with, and what of their tasks still runs.

        One with a task that is not to be run now, or that another runs, is given back: a task in it
        cannot be stopped alone. So is one that is reported to run a task twice. A task that is
        done may run to its end.
        """
        found: list[Kept] = []
        taken: set[tuple[int, int]] = set()
        for container_id, kept in sorted(self.kept.items()):
            tasks = tuple(key for key in kept.tasks if (container_id, key) not in self._ended)
            states = {(stage, task): self.state_of(stage, task) for stage, task, _ in tasks}
            wanted = {key for key, state in states.items() if state == READY}
            if (
                len(states) < len(tasks)
                or wanted & taken
                or any(state not in (READY, DONE) for state in states.values())
            ):
                self.refuse(container_id)
                continue
            taken |= wanted
            found.append(kept._replace(tasks=tasks))
        self.kept.clear()
        self._ended.clear()
        return found
