"""Containers that run one task each: what is granted is started, what ends is counted once.

All of `am.work` is such containers; of `am.reuse` those of gangs are, as all of a gang's tasks
start at once.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from am.job_state import JobState
from am.launching import LaunchedTask
from am.progress import RUNNING
from am.takeover import Found, Takeover
from am.task_groups import TaskGroup
from weft.model.ids import ContainerId
from weft.protocol.messages import (
    Container,
    ContainerEnd,
    Outcome,
    StartAnswered,
    containers_of,
    ends_of,
)

_SUCCEEDED: Final = Outcome.SUCCEEDED


def _differ(tasks: Iterable[int], tries: Mapping[int, int]) -> bool:
    """Return whether some of these tasks were tried more often than others."""
    return len({tries.get(task, 0) for task in tasks}) > 1


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
        spoilt = (
            self.gangs.spoilt(containers_of(containers), state.nodes.avoided, state.ended_first)
            if self.gangs.stages
            else set[int]()
        )
        first, ask_id = 0, containers[0].ask_id if containers else 0
        for place, container in enumerate(containers):
            if container.ask_id != ask_id:
                self._take_under(ask_id, containers[first:place], spoilt, now)
                first, ask_id = place, container.ask_id
        self._take_under(ask_id, containers[first:], spoilt, now)
        if state.follows_share:
            state.review = True

    def _take_under(
        self, ask_id: int, told: Sequence[Container], spoilt: Collection[int], now: float
    ) -> None:
        """Take containers granted under one ask: all at once, or by runs, or one by one."""
        if not spoilt and self._take_alike(ask_id, told, now):
            return
        for one in told:
            if spoilt or one.count == 1 or not self._take_alike(ask_id, (one,), now):
                for container in containers_of((one,)):
                    self._take_one(container, spoilt, now)

    def _take_one(self, container: Container, spoilt: Collection[int], now: float) -> None:
        """Start a task in a container, or give it back."""
        state, book, progress = self.state, self.book, self.progress
        container_id, node = container.container_id, container.node_id
        if container_id in state.seen:
            self.granted_late(container_id, container.ask_id)
            return
        state.seen.add(container_id)
        row = book.granted(container.ask_id)
        if row is None or state.verdict is not None:
            book.release(container_id)
            return
        group = row.group
        if node in state.nodes.avoided or group.stage in spoilt:
            book.release(container_id)
            progress.mark(group)
            return
        if not group.ready:
            group = self._other_group(group)
        rank = progress.take(group)
        if rank < 0:
            book.release(container_id)
            return
        if row.surplus:
            # The container is used all the same, and less is wanted under its other row.
            progress.mark(group)
        task = group.tasks[rank]
        stage = progress.stages[group.stage]
        tries = stage.tries.get(task, 0) if stage.tries else 0
        self.launcher.start(
            LaunchedTask(container_id, node, group, stage, task, tries, now, container.boot)
        )

    def _take_alike(self, ask_id: int, told: Sequence[Container], now: float) -> bool:
        """Start a task in each container granted under one ask, if it is a plain case.

        If not, return False and do nothing: the containers are then taken one after the other.
        """
        state, progress = self.state, self.progress
        row, avoided = self.book.rows.get(ask_id), state.nodes.avoided
        if row is None or state.verdict is not None:
            return False
        if avoided and any(one.node_id in avoided for one in told):
            return False
        group, stage = row.group, progress.stages[row.group.stage]
        numbers: list[ContainerId] = []
        for one in told:
            if one.count == 1:
                numbers.append(one.container_id)
            else:
                numbers.extend(range(one.container_id, one.container_id + one.count))
        count = len(numbers)
        if len(group.ready) < count or stage.copies or not state.seen.isdisjoint(numbers):
            return False
        if len(set(numbers)) < count or not self.book.granted_run(row, count):
            return False
        state.seen.update(numbers)
        tasks, tries = progress.take_run(group, count), stage.tries
        alike, first = self.launcher.truths[group.stage].plain, 0
        starts: list[LaunchedTask] = []
        for one in told:
            number, node, boot = one.container_id, one.node_id, one.boot
            task = tasks[first]
            attempt = tries.get(task, 0) if tries else 0
            if one.count == 1:
                first += 1
                starts.append(LaunchedTask(number, node, group, stage, task, attempt, now, boot))
                continue
            mine = tuple(tasks[first : first + one.count])
            first += one.count
            if alike and not (tries and _differ(mine, tries)):
                starts.append(
                    LaunchedTask(number, node, group, stage, task, attempt, now, boot, (), mine)
                )
                continue
            for task in mine:
                attempt = tries.get(task, 0) if tries else 0
                starts.append(LaunchedTask(number, node, group, stage, task, attempt, now, boot))
                number += 1
        self.launcher.start_all(starts)
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
                # Less is wanted there now.
                self.progress.mark(other)
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
        launcher = self.launcher
        for item in event.items:
            if item.stage < 0:
                launcher.answered(item.container_id)
            for number in launcher.waiting_among(item.container_id, item.count):
                known = launcher.answered_start(number)
                if not item.error:
                    state.refusals.count = 0 if known else state.refusals.count
                    continue
                held = launcher.one(number) if known or launcher.lossless else None
                if held is not None:
                    state.give_up(held)
                    state.refused(held.node, held.group.label, item.error, now)

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

    def ended(self, ends: Iterable[ContainerEnd], now: float) -> None:
        """Handle ends of containers, or of runs of them; what succeeded in a row is one step."""
        state = self.state
        first: LaunchedTask | None = None
        tasks: list[int] = []
        runs_s: list[float] = []
        for end in ends:
            held = self._succeeded(end)
            if first is not None and (held is None or held.stage is not first.stage):
                state.succeeded_run(first.stage, first.group, tasks, runs_s)
                first, tasks, runs_s = None, [], []
            if held is None:
                for one in ends_of(end):
                    self.one_ended(one, now)
                continue
            first = first or held
            if end.tasks:
                tasks.extend(end.tasks)
                runs_s.extend([end.run_s] * len(end.tasks))
            else:
                tasks.append(held.task)
                runs_s.append(end.run_s)
        if first is not None:
            state.succeeded_run(first.stage, first.group, tasks, runs_s)

    def run_succeeded(self, end: ContainerEnd) -> bool:
        """Finish identical tasks that ended alike; False, and nothing is done, in no plain case."""
        held = self._succeeded(end)
        if held is not None:
            runs_s = [end.run_s] * len(end.tasks)
            self.state.succeeded_run(held.stage, held.group, end.tasks, runs_s)
        return held is not None

    def _succeeded(self, end: ContainerEnd) -> LaunchedTask | None:
        """Return the (first) task of an end, held no longer, if it is plain success; else None.

        It is where each task of a run is what its container was granted for, and none has copies.
        """
        number, tasks, launcher = end.container_id, end.tasks, self.launcher
        held = launcher.by_key.get(number)
        if held is None or end.outcome is not _SUCCEEDED or self.takeover.waiting:
            return None
        stage = held.stage
        state = stage.state
        if held.stopping or stage.copies:
            return None
        if not tasks:
            if held.tasks:
                held = launcher.one(number)
            if held is None or state[held.task] != RUNNING:
                return None
            launcher.drop(number, 1)
            return held
        if held.tasks != tasks or held.container_id != number:
            # It is part of a run, or the run was taken apart before.
            held = launcher.one(number)
            if held is None or not self._are_held(held, tasks):
                return None
        for task in tasks:
            if state[task] != RUNNING:
                return None
        launcher.drop(number, len(tasks))
        return held

    def _are_held(self, first: LaunchedTask, tasks: Iterable[int]) -> bool:
        """Return whether containers from one on have just these tasks, all of its group."""
        for number, task in enumerate(tasks, first.container_id):
            one = self.launcher.one(number)
            if one is None or one.group is not first.group or one.task != task:
                return False
        return True

    def one_ended(self, end: ContainerEnd, now: float) -> None:
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
            elif end.by_node:
                state.node_failed(held, end.message)
        else:
            state.failed(held, end)
        if state.follows_share:
            state.review = True
