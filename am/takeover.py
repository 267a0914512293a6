"""Taking over what an earlier attempt left running (YARN's keep-containers-across-attempts).

The manager tells which containers there are, their nodes what runs in them. Until that is known of
all of them nothing is asked for, so that no task is started a second time.
"""

from collections.abc import Mapping

from am.asking import AskBook
from am.launching import Launcher
from am.progress import READY, Progress
from weft.ids import ContainerId
from weft.messages import Container, StartAnswered

Found = Mapping[int, list[tuple[Container, int]]]  # by stage: containers and the tasks they run


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
        book: AskBook,
        launcher: Launcher,
    ) -> None:
        self.waiting: dict[ContainerId, Container] = {one.container_id: one for one in held}
        self.refused: set[ContainerId] = set()
        self._progress = progress
        self._book = book
        self._launcher = launcher
        self._wait_s = wait_s
        self._since_s = -1.0  # when the nodes were asked; below 0: not yet

    def step(self, now: float) -> float | None:
        """Ask the nodes; when that took too long, go on without. Return when to look again, s."""
        if self._since_s < 0:
            self._since_s = now
            for container in self.waiting.values():
                self._launcher.query(container.node_id, container.container_id, now)
            return self._wait_s
        left_s = self._since_s + self._wait_s - now
        if left_s > 0:
            return left_s
        for container_id in list(self.waiting):
            self._refuse(container_id)
        self.waiting.clear()
        return None

    def answered(self, event: StartAnswered) -> Found:
        """A node says what runs in its containers. Return the tasks to follow, by stage."""
        tasks: dict[ContainerId, list[tuple[int, int]]] = {}
        for item in event.items:
            if item.container_id in self.waiting:
                told = tasks.setdefault(item.container_id, [])
                if item.stage >= 0:
                    told.append((item.stage, item.task))
        found: dict[int, list[tuple[Container, int]]] = {}
        taken: set[tuple[int, int]] = set()
        for container_id, running in tasks.items():
            key = running[0] if len(running) == 1 else (-1, -1)
            if container_id in self.refused or key in taken or not self._wanted(*key):
                self._refuse(container_id)
                continue
            taken.add(key)
            found.setdefault(key[0], []).append((self.waiting.pop(container_id), key[1]))
        return found

    def ended(self, container_id: ContainerId) -> None:
        """A container's end was told."""
        self.refused.discard(container_id)
        if self.waiting.pop(container_id, None) is not None:
            self._launcher.answered(container_id)

    def _refuse(self, container_id: ContainerId) -> None:
        if container_id not in self.refused:
            self.refused.add(container_id)
            self._book.release(container_id)
        self._launcher.answered(container_id)

    def _wanted(self, stage: int, task: int) -> bool:
        """Whether a task is one that could be started now."""
        stages = self._progress.stages
        if not (0 <= stage < len(stages) and 0 <= task < stages[stage].tasks):
            return False
        return stages[stage].state[task] == READY
