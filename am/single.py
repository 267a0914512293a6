"""Containers that run one task each: what is granted is started, what ends is counted once.

All of `am.work` is such containers; of `am.reuse` those of gangs are, as all of a gang's tasks
start at once.
"""

from collections.abc import Hashable, Iterable, Mapping
from typing import Final

from am.job_state import JobState
from am.launching import LaunchedTask
from am.progress import RUNNING
from am.takeover import Found, Takeover
from am.task_groups import TaskGroup
from weft.ids import ContainerId
from weft.messages import (
    Container,
    ContainerEnd,
    ItemAnswer,
    Outcome,
    StartAnswered,
    containers_of,
)

_SUCCEEDED: Final = Outcome.SUCCEEDED


def _answered(item: ItemAnswer, waiting: Mapping[Hashable, LaunchedTask]) -> Iterable[Hashable]:
    """Return the containers that an answer is for, at most as many as wait for one."""
    numbers = range(item.container_id, item.container_id + item.count)
    if item.count > len(waiting) + 1:
        return [key for key in waiting if isinstance(key, int) and key in numbers]
    return numbers


class SingleTasks:
    """The containers of one task each that a job holds: those of its launcher without a size."""

    def __init__(self, state: JobState, takeover: Takeover) -> None:
        self.state = state
        self.takeover = takeover
        self.progress = state.progress
        self.book = state.book
        self.gangs = state.gangs
        self.launcher = state.launcher

    # -- grants ------------------------------------------------------------------------------------

    def take(self, containers: tuple[Container, ...], now: float) -> None:
        """Start a task in every new container, or give the container back."""
        state = self.state
        seen, book, progress, launcher = state.seen, self.book, self.progress, self.launcher
        avoided = state.nodes.avoided
        spoilt = (
            self.gangs.spoilt(containers_of(containers), avoided, state.ended_first)
            if self.gangs.stages
            else ()
        )
        for told in containers:
            if told.count > 1 and not spoilt and self._take_run(told, now):
                continue
            for container in containers_of((told,)):
                container_id, node = container.container_id, container.node_id
                if container_id in seen:
                    self.granted_late(container_id, container.ask_id)
                    continue
                seen.add(container_id)
                row = book.granted(container.ask_id)
                if row is None or state.verdict is not None:
                    book.release(container_id)
                    continue
                group = row.group
                if node in avoided or group.stage in spoilt:
                    book.release(container_id)
                    progress.mark(group)
                    continue
                if not group.ready:
                    group = self._other_group(group)
                rank = progress.take(group)
                if rank < 0:
                    book.release(container_id)
                    continue
                if row.surplus:
                    progress.mark(group)  # used all the same: less is wanted under its other row
                task = group.tasks[rank]
                stage = progress.stages[group.stage]
                tries = stage.tries.get(task, 0) if stage.tries else 0
                launcher.start(
                    LaunchedTask(container_id, node, group, stage, task, tries, now, container.boot)
                )
        if state.follows_share:
            state.review = True

    def _take_run(self, run: Container, now: float) -> bool:
        """Start a task in each container of a run, if it is a plain case.

        If not, return False and do nothing: the containers are then taken one after the other.
        """
        state, first, count, node = self.state, run.container_id, run.count, run.node_id
        row = self.book.rows.get(run.ask_id)
        if row is None or state.verdict is not None or node in state.nodes.avoided:
            return False
        group, progress = row.group, self.progress
        stage = progress.stages[group.stage]
        numbers = range(first, first + count)
        if len(group.ready) < count or stage.copies or not state.seen.isdisjoint(numbers):
            return False
        if not self.book.granted_run(row, count):
            return False
        state.seen.update(numbers)
        tries = stage.tries
        self.launcher.start_run([
            LaunchedTask(
                first + place, node, group, stage, task, tries.get(task, 0) if tries else 0, now,
                run.boot,
            )
            for place, task in enumerate(progress.take_run(group, count))
        ])  # fmt: skip
        return True

    def granted_late(self, container_id: ContainerId, ask_id: int) -> None:
        """Want another container where a grant is doubled or its own end overtook it."""
        if container_id not in self.state.ended_first:
            return
        self.state.ended_first.discard(container_id)
        row = self.book.granted(ask_id)
        if row is not None:
            self.progress.mark(row.group)

    def _other_group(self, group: TaskGroup) -> TaskGroup:
        """Return another group of the stage that the container serves as well; the same if none."""
        for other in self.progress.stages[group.stage].groups:
            if other.ready and other.demand == group.demand:
                self.progress.mark(other)  # less is wanted there now
                return other
        return group

    # -- what nodes answer -------------------------------------------------------------------------

    def start_answered(self, event: StartAnswered, now: float) -> None:
        """Run elsewhere what was refused; follow tasks of containers that are taken over."""
        state = self.state
        if self.takeover.waiting and state.planned:
            found = self.takeover.answered(event)
            if found:
                self._begin(found, now)
            self.taken_over()
        unanswered = self.launcher.unanswered
        for item in event.items:
            if item.stage < 0:
                self.launcher.answered(item.container_id)
            for number in _answered(item, unanswered):
                held = unanswered.pop(number, None)
                if item.error and self.launcher.lossless:
                    held = held or self.launcher.held.get(number)
                if held is not None and item.error:
                    state.give_up(held)
                    state.refused(held.node, item.error, now)
                elif held is not None:
                    state.refusals.count = 0

    def taken_over(self) -> None:
        """Have the asker look again once nothing is left to be taken over."""
        if not self.takeover.waiting:
            self.state.review = True

    def _begin(self, found: Found, now: float) -> None:
        """Follow tasks, by stage, that already run in containers of an earlier attempt."""
        for position, tasks in found.items():
            stage = self.progress.stages[position]
            self.progress.begin(stage, [task for _, task in tasks])
            for container, task in tasks:
                group, _ = stage.place_of(task)
                number, tries = container.container_id, stage.tries.get(task, 0)
                held = LaunchedTask(
                    number, container.node_id, group, stage, task, tries, now, container.boot
                )
                self.launcher.held[held.key] = held
                self.state.seen.add(number)

    # -- ends --------------------------------------------------------------------------------------

    def ended(self, end: ContainerEnd, now: float) -> None:
        """Handle a container's end; each is counted once."""
        state = self.state
        if self.takeover.waiting:
            self.takeover.ended(end.container_id)
            self.taken_over()
        held = self.launcher.held.pop(end.container_id, None)
        if held is None:
            state.unknown_ended(end)
            return
        self.launcher.unanswered.pop(end.container_id, None)
        if end.outcome is _SUCCEEDED:
            state.succeeded(held, end.run_s)
        elif held.stopping or not end.outcome.is_task_fault:
            self.progress.give_back(held.stage, held.task)
            if end.with_node:
                state.ended_node(held, end.message, now)
        else:
            state.failed(held, end)
        if state.follows_share:
            state.review = True

    def run_succeeded(self, end: ContainerEnd) -> bool:
        """Finish identical tasks that ended alike, as `ended` would each.

        Return False, and do nothing, where one of them is not what it was granted for, or has
        copies.
        """
        first, tasks, all_held = end.container_id, end.tasks, self.launcher.held
        held = all_held.get(first)
        if held is None or end.outcome is not _SUCCEEDED or self.takeover.waiting:
            return False
        stage, group = held.stage, held.group
        if stage.copies:
            return False
        for place, task in enumerate(tasks):
            one = all_held.get(first + place)
            if one is None or one.group is not group or one.task != task:
                return False
            if stage.state[task] != RUNNING:
                return False
        state, unanswered = self.state, self.launcher.unanswered
        ended = [all_held.pop(number) for number in range(first, first + len(tasks))]
        for number in range(first, first + len(tasks)):
            unanswered.pop(number, None)
        self.progress.finish_run(stage, tasks)
        for one in ended:
            state.measured(one, end.run_s)
        if stage.finished == stage.tasks:
            state.judge()
        state.review = state.review or state.follows_share
        return True
