"""A job under way whose tasks have a container each: what is asked for, and when.

What is granted and what ends is `am.single`'s, what is known of the job `am.job_state`'s.
`am.reuse` keeps containers for several tasks (COBRA).
"""

from collections.abc import Iterable

import numpy as np

from am.ask.registry import Asker
from am.ask.view import JobView, RunningTask
from am.job_state import JobState
from am.launching import LaunchedTask
from am.progress import RUNNING, Progress, RemainingPath
from am.single import SingleTasks
from am.sizes import Wanted
from am.takeover import TAKEOVER_WAIT_S, Takeover
from weft.model.errors import InvariantError
from weft.model.ids import ContainerId, NodeId
from weft.model.job import EdgeKind
from weft.model.plan import Plan
from weft.protocol.messages import (
    AttemptAccepted,
    Container,
    ContainerEnd,
    ContainersAsked,
    ContainersGranted,
    Preemption,
    StartAnswered,
    TasksEnded,
)

# Edges by which a task waits for tasks, not for a stage.
_TASK_EDGES = (EdgeKind.ONE_TO_ONE, EdgeKind.PAIRS)
# Remaining work is told again once it fell below this part of what was told last.
RETELL_FRACTION = 0.9
# A task that runs so many times longer than expected gets a second copy once nothing else of its
# stage waits and this part of the stage is done.
STRAGGLER_FACTOR, STRAGGLER_FINISHED_MIN = 1.5, 0.75


class JobExecution:
    """The running part of a master whose asker counts tasks; the job is over with a verdict."""

    def __init__(self, state: JobState, asker: Asker, rng: np.random.Generator) -> None:
        job, accepted = state.job, state.accepted
        self.state = state
        state.follows_share = asker.follows_share
        self.asker = asker
        self.rng = rng
        self.progress = state.progress
        self.book = state.book
        self.launcher = state.launcher
        self.path = RemainingPath(job, state.estimates.base_s)
        self.takeover = Takeover(
            accepted.held, TAKEOVER_WAIT_S, state.progress, state.book, state.launcher
        )
        self.single = SingleTasks(state, self.takeover)
        self._container: Wanted = getattr(asker, "container", "task")
        self._told_work = 0.0
        self._parents = [
            [(parent, kind not in _TASK_EDGES) for parent, kind in job.parents_of(stage)]
            for stage in range(len(job.stages))
        ]
        self._pairs = {
            (parent, child): edge.pairs
            for child in range(len(job.stages))
            for parent, edge in job.edges_of(child)
            if edge.kind is EdgeKind.PAIRS
        }

    def adopt(self, plan: Plan | None) -> None:
        """Follow a plan's order from now on (None: breadth first); running tasks go on."""
        self.state.adopt(plan, self._container, getattr(self.asker, "sees", ()))

    def see_machines(self, event: AttemptAccepted | ContainersGranted) -> bool:
        """Go by the reported machines, if they are more; return whether to plan
        anew.

        Containers sized by the machines are asked for anew, where no new plan does that.
        """
        state = self.state
        if not state.see_machines(event):
            return False
        if state.settings.planner:
            return state.planning_for is None and not state.progress.done
        if state.planned and self._container != "task":
            self.adopt(None)
        return False

    # -- asking ------------------------------------------------------------------------------------

    @property
    def wants_to_ask(self) -> bool:
        """Whether there is something to tell the manager before the next heartbeat.

        That work was done is no reason alone, though each end changes what is left: policies
        that go by remaining work are served well enough by a figure that is a tenth off.
        """
        progress = self.progress
        if self.takeover.waiting:
            return self.book.owes
        if self.state.refusals.count:
            # Asking again at once would be refused as fast.
            return False
        if self.state.review or progress.changed or self.book.owes:
            return True
        return progress.remaining_work < RETELL_FRACTION * self._told_work

    @property
    def silent(self) -> bool:
        """Whether the next heartbeat would say nothing that the manager does not know."""
        progress = self.progress
        return (
            not (self.state.review or progress.changed or self.launcher.waits)
            and not self.asker.follows_share
            and self.book.silent
            and progress.remaining_work == self._told_work
            and self.path.told(progress, self.state.estimates.factor)
        )

    def message(self, now: float) -> ContainersAsked:
        """Return the next request; it is also the heartbeat."""
        progress, estimates = self.progress, self.state.estimates
        work = self._told_work = progress.remaining_work
        done = progress.finished / max(progress.tasks, 1)
        path_s = self.path.longest_s(progress, estimates.factor)
        return self.book.message(
            self.state.attempt_id, now, estimates.duration_s, done, work, path_s
        )

    def wake(self) -> None:
        """Have the asker look again, as its time has come."""
        self.state.review = True

    def settle(self, now: float) -> float | None:
        """Decide what needs no answer from the manager: what to take over of an earlier attempt."""
        if not self.takeover.waiting or not self.state.planned:
            return None
        again_s = self.takeover.step(now)
        self.single.taken_over()
        return again_s

    def consult(self, now: float) -> float | None:
        """Let the asker look, if there is anything new; return when it wants to look again."""
        state, progress = self.state, self.progress
        if not state.planned or not (progress.changed or state.review) or self.takeover.waiting:
            return None
        state.gangs.hold_back()
        wish = self.asker.ask(self._view(), now, self.rng)
        for group, containers, kind in wish.rows:
            self.book.want(progress.groups[group], kind, containers)
        progress.changed = {}
        state.review = False
        return wish.wake_after_s

    def _view(self) -> JobView:
        state, progress = self.state, self.progress
        if not self.asker.follows_share:
            return JobView(progress.changed, (), state.share, state.capacity)
        return JobView(
            changed=progress.changed,
            available=[
                group
                for group in progress.groups
                if group.ready and not state.gangs.awaits_parents(group)
            ],
            share=state.share,
            capacity=state.capacity,
            groups=progress.groups,
            factors=state.estimates.factor,
            states=[stage.state for stage in progress.stages],
            parents=self._parents,
            pairs=self._pairs,
            running=[
                RunningTask(held.group.stage, held.task, held.launched_s)
                for held in self.launcher.held.values()
                if not held.stopping
            ],
            version=progress.version,
        )

    def holdings(self) -> tuple[tuple[ContainerId, NodeId], ...]:
        """Return the containers held, with their nodes."""
        own = tuple((held.container_id, held.node) for held in self.launcher.held.values())
        return own + tuple(
            (one.container_id, one.node_id) for one in self.takeover.waiting.values()
        )

    def restart(self, now: float) -> None:
        """Ask, release and black-list again, as a restarted manager knows nothing of it.

        Nor does it know of containers that their node had not started by then: those are given up.
        """
        self.book.restart()
        for held in list(self.launcher.unanswered.values()):
            if not held.stopping:
                self.launcher.stop_surely(held.node, held.container_id, now)
                self.state.give_up(held)
        for held in self.launcher.held.values():
            if held.stopping:
                self.book.release(held.container_id)
        for container_id in self.takeover.refused:
            self.book.release(container_id)
        self.state.blacklist_again()

    # -- what comes --------------------------------------------------------------------------------

    def take(self, containers: tuple[Container, ...], now: float) -> None:
        """Use containers that were granted."""
        self.single.take(containers, now)

    def start_answered(self, event: StartAnswered, now: float) -> None:
        """Handle a node's answer to orders to start."""
        self.single.start_answered(event, now)

    def ended(self, ends: tuple[ContainerEnd, ...], now: float) -> None:
        """Handle ends of containers, or of runs of them."""
        self.single.ended(ends, now)

    def tasks_ended(self, event: TasksEnded, now: float) -> None:
        """Do nothing: no reusable containers are held here."""

    def preempted(self, notices: tuple[Preemption, ...]) -> None:
        """Do nothing: what runs in containers that are taken back has until then to end."""

    def stop_all(self) -> None:
        """Order the end of everything that runs."""
        self.launcher.stop_all()

    # -- stragglers --------------------------------------------------------------------------------

    def speculate(self, now: float) -> None:
        """Want a second copy of what runs much longer than expected, near the end of a stage."""
        progress = self.progress
        for held in self.launcher.held.values():
            stage = held.stage
            factor = self.state.estimates.factor[held.group.stage]
            expected = held.group.declared_of(held.task) * factor
            if (
                now - held.launched_s > STRAGGLER_FACTOR * expected
                and stage.finished + stage.running == stage.tasks
                and stage.finished >= STRAGGLER_FINISHED_MIN * stage.tasks
                and held.task not in stage.copies
                and stage.state[held.task] == RUNNING
            ):
                progress.speculate(stage, held.task)

    # -- the books ---------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise InvariantError where progress, containers and asks contradict each other."""
        self.book.check()
        progress = self.progress
        progress.check()
        for held in self.launcher.listed():
            if held.container_id not in self.state.seen:
                raise InvariantError(f"container {held.container_id} is held but was never granted")
        if self.state.verdict is not None:
            return
        _check_running(self.launcher.listed(), self.progress)
        for group in progress.groups:
            wanted = sum(row.wanted for row in group.rows if row is not None)
            if wanted > len(group.ready) and group.number not in progress.changed:
                raise InvariantError(f"group {group.number} asks for more than it can start")


def _check_running(held: Iterable[LaunchedTask], progress: Progress) -> None:
    """Raise unless running tasks have containers (one a copy) and no other task has one."""
    copies: dict[tuple[int, int], int] = {}
    for one in held:
        key = (one.group.stage, one.task)
        copies[key] = copies.get(key, 0) + (not one.stopping)
    running = 0
    for (position, task), count in copies.items():
        stage = progress.stages[position]
        if stage.state[task] == RUNNING:
            running += 1
            if count != stage.copies.get(task, 1):
                raise InvariantError(f"stage {position} task {task} has {count} copies")
        elif count:
            raise InvariantError(f"stage {position} task {task} runs though it is not wanted")
    if running != progress.running:
        raise InvariantError(f"{progress.running} tasks run, {running} have a container")
