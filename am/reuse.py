"""A job in reusable containers: a job holds containers and runs several tasks in each (COBRA).

The asker decides (`am.ask.registry.HoldAsker`); here its wishes become asks, starts and releases,
and ends are booked once each whichever way they arrive: directly from the node (`TasksEnded`), or
relayed by the Resource Manager as ends that name a task.
"""

from copy import deepcopy

import numpy as np

from am.ask.registry import HoldAsker
from am.ask.view import HoldView, WaitingTasks
from am.demands import Demands
from am.job_state import JobState
from am.launching import LaunchedTask
from am.pool import Pooled, check_pool
from am.progress import READY
from am.single import SingleTasks
from am.sizes import Machines, at_least, held_by_some, pool_max, pool_size
from am.takeover import TAKEOVER_WAIT_S, Kept, PoolTakeover
from am.task_groups import TaskGroup
from weft.model.errors import InvariantError
from weft.model.ids import ContainerId, NodeId
from weft.model.job import NO_PREFERENCE
from weft.model.plan import Plan
from weft.model.resources import Vector
from weft.protocol.messages import (
    NODE_FAULT,
    AskType,
    AttemptAccepted,
    Container,
    ContainerEnd,
    ContainersAsked,
    ContainersGranted,
    FinishedTask,
    Outcome,
    Preemption,
    StartAnswered,
    TaskEnd,
    TasksEnded,
    containers_of,
    ends_of,
)


class _Part:
    """The part of a pool that stands on the nodes of one label, decided about alone.

    No task needs a container larger than `size`. `most` has how many containers of a size fit,
    until there are more machines.
    """

    __slots__ = ("holder", "most", "size")

    def __init__(self, holder: HoldAsker, size: Vector) -> None:
        self.holder = holder
        self.size = size
        self.most: dict[Vector, int] = {}


class PoolExecution:
    """The running part of a master whose asker holds containers; it follows no plan.

    Tasks of gangs have a container each (`single`), as all of a gang starts at once.
    """

    def __init__(self, state: JobState, asker: HoldAsker, rng: np.random.Generator) -> None:
        accepted = state.accepted
        self.state = state
        # The parts by label: containers on labelled nodes serve the tasks that need the label, and
        # no others.
        self._parts: dict[str, _Part] = {}
        for label in dict.fromkeys(stage.label for stage in state.job.stages):
            own = deepcopy(asker) if self._parts else asker
            self._parts[label] = _Part(own, self._size_for(asker, label))
        self.rng = rng
        self.progress = state.progress
        self.book = state.book
        self.gangs = state.gangs
        self.launcher = state.launcher
        self.estimates = state.estimates
        self.demands = Demands(asker.over_estimate, self._room_for)
        self.pool: dict[ContainerId, Pooled] = {}
        # Containers that were given back and whose ends were not heard yet.
        self._leaving: dict[ContainerId, NodeId] = {}
        self._requested_by_size_and_label: dict[tuple[Vector, str], TaskGroup] = {}
        self._waiting: dict[int, TaskGroup] = {}
        self._sent_remaining = (0.0, 0.0)
        self._asker_is_due = True
        self.takeover = PoolTakeover(
            accepted.held,
            TAKEOVER_WAIT_S,
            self.progress,
            self.book,
            self.launcher,
            len(accepted.types),
            self.gangs.stages,
        )
        self.single = SingleTasks(state, self.takeover)

    def adopt(self, plan: Plan | None) -> None:
        """Begin, in the order in which tasks become ready."""
        self.progress.keep_times(0.0)
        self.state.adopt(None)

    def see_machines(self, event: AttemptAccepted | ContainersGranted) -> bool:
        """Go by the reported machines, if they are more; return False: no plan is followed."""
        if not self.state.see_machines(event):
            return False
        for label, part in self._parts.items():
            part.size = self._size_for(part.holder, label)
            part.most.clear()
        self.demands.follow()
        self._asker_is_due = True
        return False

    def _size_for(self, asker: HoldAsker, label: str) -> Vector:
        state = self.state
        machines = state.open_to(label)
        return pool_size(asker.container, state.job, state.accepted.types, machines)

    def _room_for(self, label: str) -> tuple[Vector, Machines]:
        """Return what a container on nodes of a label holds, and the machines of these."""
        return self._parts[label].size, self.state.open_to(label)

    def consult(self, now: float) -> float | None:
        """Return None: nothing is asked for but what `settle` decided."""
        return None

    # -- deciding ----------------------------------------------------------------------------------

    def wake(self) -> None:
        """Have `settle` consult the asker, whose time has come."""
        self._asker_is_due = True

    def settle(self, now: float) -> float | None:
        """Let the asker decide if anything changed; return when it wants to look again.

        Unlike an asker that counts tasks, this one is asked after every event and not with each
        heartbeat only: a task that ended leaves a container idle that is paid for meanwhile. Its
        wish is carried out in this order: tasks start in what is held, what is not needed goes
        back, and only what is missing then is asked for.
        """
        progress = self.progress
        if not self.state.planned or self.state.verdict is not None:
            return None
        if self.takeover.waiting:
            again_s = self.takeover.step(now)
            if self.takeover.waiting:
                return again_s
        for kept in self.takeover.decide() if self.takeover.kept else ():
            self._go_on(kept, now)
        if not (self._asker_is_due or progress.changed):
            return None
        self.gangs.ask()
        for number, group in progress.changed.items():
            if group.ready:
                self._waiting[number] = group
            else:
                self._waiting.pop(number, None)
        progress.changed = {}
        self._asker_is_due = self.state.review = False
        waits = [self._settle(label, part, now) for label, part in self._parts.items()]
        return min((wait_s for wait_s in waits if wait_s is not None), default=None)

    def _settle(self, label: str, part: _Part, now: float) -> float | None:
        """Let the asker decide about the nodes of one label; return when it looks again, s."""
        here = [pooled for pooled in self.pool.values() if pooled.label == label]
        view = self._hold_view(label, part, here)
        wish = part.holder.hold(view, now, self.rng)
        for container_id, number in wish.start:
            self._start(self.pool[container_id], self.progress.groups[number], now)
        target, give_back = wish.target, wish.give_back
        if not view.waiting and (self._waiting or (self.gangs.stages and self.gangs.waiting)):
            # Tasks of another label, or a gang, may wait for exactly what idle containers hold.
            target, give_back = 0, [p.container_id for p in here if not p.tasks]
        gone: list[ContainerId] = []
        if len(view.containers) < len(here):
            # Some containers are about to be taken back.
            gone = [p.container_id for p in here if p.notice and not p.tasks]
        for container_id in dict.fromkeys((*give_back, *gone)):
            self._give_back(self.pool[container_id])
        self._want(label, view.size, target)
        return wish.wake_after_s

    def _hold_view(self, label: str, part: _Part, here: list[Pooled]) -> HoldView:
        size, machines = part.size, self.state.open_to(label)
        waiting = []
        for group in self._waiting.values():
            if group.label != label:
                continue
            stage = self.progress.stages[group.stage]
            since = stage.ready_at[group.tasks[group.ready[0]]] if stage.ready_at else 0.0
            known = self.estimates.known(group.stage)
            duration = self.estimates.duration_s(group.stage) if known else None
            demand = self.demands.of(group)
            waiting.append(WaitingTasks(group, since, duration, demand))
            larger = at_least(size, demand)
            if larger == size or held_by_some(larger, machines):
                # If no machine serves both, this group waits for its turn.
                size = larger
            elif not waiting[1:]:
                size = demand if held_by_some(demand, machines) else larger
        wanted = [
            group.rows[0]
            for (_, name), group in self._requested_by_size_and_label.items()
            if name == label
        ]
        pending = sum(row.wanted for row in wanted if row)
        if size not in part.most:
            part.most[size] = pool_max(size, machines)
        pool = [pooled for pooled in here if not pooled.notice]
        return HoldView(waiting, pool, size, part.most[size], pending, self.state.racks)

    def _want(self, label: str, size: Vector, target: int) -> None:
        """Ask for what is missing on the nodes of a label, of the size that serves all there."""
        here = [p for p in self.pool.values() if p.label == label and not p.notice]
        missing = max(0, target - len(here))
        if missing and (size, label) not in self._requested_by_size_and_label:
            first = next((g for g in self._waiting.values() if g.label == label), None)
            stage = first.stage if first is not None else 0
            wanted = TaskGroup(stage, (), size, NO_PREFERENCE, 1.0)
            wanted.label = label
            self._requested_by_size_and_label[size, label] = wanted
        for key, group in self._requested_by_size_and_label.items():
            if key[1] == label:
                self.book.want(group, AskType.DEFAULT, missing if key == (size, label) else 0)

    def _start(self, pooled: Pooled, group: TaskGroup, now: float) -> None:
        rank = self.progress.take(group)
        if rank < 0:
            raise InvariantError(f"the asker starts a task that group {group.number} has not")
        if not group.ready:
            self._waiting.pop(group.number, None)
        task = group.tasks[rank]
        stage = self.progress.stages[group.stage]
        attempt = stage.tries.get(task, 0)
        if attempt < pooled.first_try:
            attempt = stage.tries[task] = pooled.first_try
        held = LaunchedTask(
            pooled.container_id,
            pooled.node,
            group,
            stage,
            task,
            attempt,
            now,
            pooled.boot,
            pooled.size,
        )
        pooled.put(held, self.demands.of(group))
        self.launcher.start(held)

    def _go_on(self, kept: Kept, now: float) -> None:
        """Have a container of an earlier attempt in the pool, with what runs in it."""
        one = kept.container
        container_id, node, boot = one.container_id, one.node_id, one.boot
        self.state.seen.add(container_id)
        stages = self.state.job.stages
        labels = [stages[position].label for position, _, _ in kept.tasks] or list(self._parts)
        pooled = Pooled(container_id, node, kept.size, now, boot, labels[0])
        self.pool[container_id] = pooled
        pooled.confirmed, pooled.first_try = True, kept.first_try
        for position, task, attempt in kept.tasks:
            stage = self.progress.stages[position]
            group, _ = stage.place_of(task)
            if stage.state[task] == READY:
                self.progress.begin(stage, [task])
            held = LaunchedTask(
                container_id, node, group, stage, task, attempt, now, boot, kept.size
            )
            self.launcher.held[held.key] = held
            # The earlier attempt may have known better what the task needs.
            pooled.put(held, tuple(map(min, self.demands.of(group), pooled.free)))
        self._asker_is_due = True
        if not kept.tasks and len(self._parts) > 1:
            # Nobody says which label its node has.
            self._give_back(pooled)

    def _give_back(self, pooled: Pooled) -> None:
        """Return a container; whatever ran in it is ready again."""
        del self.pool[pooled.container_id]
        self._leaving[pooled.container_id] = pooled.node
        self.book.release(pooled.container_id)
        self.launcher.stop_container(pooled.node, pooled.container_id)
        self._lose_tasks(pooled)

    def _lose_tasks(self, pooled: Pooled) -> None:
        for held in list(pooled.tasks.values()):
            self._forget(held)
            self.progress.give_back(held.stage, held.task)
        pooled.tasks.clear()
        pooled.needs.clear()
        self._asker_is_due = True

    def _forget(self, held: LaunchedTask) -> None:
        self.launcher.held.pop(held.key, None)
        self.launcher.unanswered.pop(held.key, None)

    # -- telling the manager -----------------------------------------------------------------------

    @property
    def wants_to_ask(self) -> bool:
        """Whether there is something to tell the manager before the next heartbeat."""
        return self.book.owes and not self.state.refusals.count

    @property
    def silent(self) -> bool:
        """Whether the next heartbeat would say nothing that the manager does not know."""
        return (
            self.book.silent
            and not (self.launcher.waits or self._asker_is_due)
            and self._remaining() == self._sent_remaining
        )

    def message(self, now: float) -> ContainersAsked:
        """Return the next request; remaining work and path are of the available stages only."""
        progress = self.progress
        work, path_s = self._sent_remaining = self._remaining()
        done = progress.finished / max(progress.tasks, 1)
        return self.book.message(
            self.state.attempt_id, now, self.estimates.duration_s, done, work, path_s
        )

    def _remaining(self) -> tuple[float, float]:
        """Return the work (demand x s) and the path (s) that remain in the available stages."""
        factor = self.estimates.factor
        path_s = max(
            (self.estimates.duration_s(group.stage) for group in self._waiting.values()),
            default=0.0,
        )
        work = sum(
            len(group.ready)
            * group.declared_of(group.tasks[group.ready[0]])
            * factor[group.stage]
            * group.norm
            for group in self._waiting.values()
            if group.ready
        )
        return work, path_s

    def holdings(self) -> tuple[tuple[ContainerId, NodeId], ...]:
        """Return the containers held, with their nodes."""
        pooled = tuple((pooled.container_id, pooled.node) for pooled in self.pool.values())
        waiting = [one.container for one in self.takeover.kept.values()]
        waiting += self.takeover.waiting.values()
        alone = ((held.container_id, held.node) for held in self._alone())
        return (*pooled, *alone, *((one.container_id, one.node_id) for one in waiting))

    def _alone(self) -> list[LaunchedTask]:
        """Return tasks of gangs: each has its own container, as all of a gang start at once."""
        if not self.gangs.stages:
            return []
        return [held for held in self.launcher.held.values() if not held.size]

    def restart(self, now: float) -> None:
        """Ask again after a restart of the manager.

        Containers that no node was seen to run are given up. So are those that were given back
        before, as that may have been lost. And ends of tasks may have been lost on their way
        through the manager: the nodes know them.
        """
        self.progress.now = now
        self.book.restart()
        for held in self._alone():
            if held.key in self.launcher.unanswered:
                self.launcher.stop(held)
                self.state.give_up(held)
        for pooled in [p for p in self.pool.values() if not p.confirmed]:
            self._give_back(pooled)
        for container_id in self.takeover.refused:
            self.book.release(container_id)
        for container_id, node in self._leaving.items():
            self.book.release(container_id)
            self.launcher.stop_surely(node, container_id, now)
        for pooled in self.pool.values():
            if pooled.tasks:
                self.launcher.query(pooled.node, pooled.container_id, now)
        self.state.blacklist_again()
        self._asker_is_due = True

    # -- grants ------------------------------------------------------------------------------------

    def take(self, containers: tuple[Container, ...], now: float) -> None:
        """Add new containers to the pool; the asker fills them."""
        self.progress.now = now
        containers = containers_of(containers)
        if self.gangs.stages:
            own = [c for c in containers if self._is_gangs(c.ask_id)]
            self.single.take(tuple(own), now)
            containers = tuple(c for c in containers if not self._is_gangs(c.ask_id))
            self._asker_is_due = True
        for container in containers:
            container_id, node, ask_id = container.container_id, container.node_id, container.ask_id
            if container_id in self.state.seen:
                self._granted_late(container_id, ask_id)
                continue
            self.state.seen.add(container_id)
            row = self.book.granted(ask_id)
            self._asker_is_due = True
            if row is None or self.state.verdict is not None or node in self.state.nodes.avoided:
                self.book.release(container_id)
                continue
            self.pool[container_id] = Pooled(
                container_id, node, row.group.grant, now, container.boot, row.group.label
            )

    def _is_gangs(self, ask_id: int) -> bool:
        row = self.book.rows.get(ask_id)
        return row is not None and row.group.gang

    def _granted_late(self, container_id: ContainerId, ask_id: int) -> None:
        if self._is_gangs(ask_id):
            self.single.granted_late(container_id, ask_id)
        elif container_id in self.state.ended_first:
            self.state.ended_first.discard(container_id)
            self.book.granted(ask_id)
            self._asker_is_due = True

    def start_answered(self, event: StartAnswered, now: float) -> None:
        """Note what a node runs; give up a container that it refuses."""
        self.progress.now = now
        if self.gangs.stages or self.takeover.waiting:
            self.single.start_answered(event, now)
        for item in event.items:
            pooled = self.pool.get(item.container_id)
            if item.stage < 0 and (pooled is None or item.error or not self._misses(event, pooled)):
                self.launcher.answered(item.container_id)
            if pooled is None:
                self._leaving.pop(item.container_id, None)
                continue
            if item.error:
                self._give_back(pooled)
                self.state.refused(pooled.node, pooled.label, item.error, now)
                continue
            pooled.confirmed = True
            self.state.refusals.count = 0
            held = pooled.tasks.get((item.stage, item.task))
            if held is not None and (item.stage, item.task) not in pooled.before:
                self.launcher.unanswered.pop(held.key, None)

    def _misses(self, event: StartAnswered, pooled: Pooled) -> bool:
        """Return whether a task's end was lost, so that its node is asked again."""
        runs = {(i.stage, i.task) for i in event.items if i.container_id == pooled.container_id}
        return any(
            key not in runs and held.key not in self.launcher.unanswered
            for key, held in pooled.tasks.items()
        )

    # -- ends --------------------------------------------------------------------------------------

    def tasks_ended(self, event: TasksEnded, now: float) -> None:
        """Handle ends of tasks, and the use of their containers."""
        self.progress.now = now
        for use in event.container_use:
            pooled = self.pool.get(use.container_id)
            if pooled is not None and len(use.use) == len(pooled.size):
                pooled.use_sum = [a + b for a, b in zip(pooled.use_sum, use.use, strict=True)]
                pooled.use_count += 1
        for end in event.ended:
            self._task_ended(end, now)

    def ended(self, ends: tuple[ContainerEnd, ...], now: float) -> None:
        """Handle ends of containers, or of runs of them (tasks of a gang)."""
        for end in ends:
            if end.tasks:
                # What waited for these tasks became ready now.
                self.progress.now = now
                self._asker_is_due = True
            if not end.tasks or not self.single.run_succeeded(end):
                for one in ends_of(end):
                    self._container_ended(one, now)

    def _container_ended(self, end: ContainerEnd, now: float) -> None:
        """Handle the end of a container, or of one of its tasks if the end names it."""
        self.progress.now = now
        if end.container_id in self.launcher.held:
            # A task of a gang ended.
            self.single.one_ended(end, now)
            self._asker_is_due = True
            return
        # A lost node takes the whole container along, whatever task its end names.
        number, apart = end.container_id, end.stage in self.gangs.stages
        known = number in self.state.seen or (self.takeover.knows(number) and not apart)
        if end.stage >= 0 and end.outcome is not Outcome.LOST and known:
            self._task_ended(
                TaskEnd(
                    end.container_id,
                    end.stage,
                    end.task,
                    end.attempt,
                    end.outcome,
                    end.exit_code,
                    end.run_s,
                    end.message,
                ),
                now,
            )
            return
        self._leaving.pop(number, None)
        self.launcher.answered(number)
        self.takeover.ended(number)
        pooled = self.pool.pop(number, None)
        if pooled is None:
            self.state.unknown_ended(end)
            return
        if end.with_node:
            for held in pooled.tasks.values():
                self.state.ended_node(held, end.message, now)
        self._lose_tasks(pooled)

    def _task_ended(self, end: TaskEnd, now: float) -> None:
        key = (end.container_id, end.stage, end.task, end.attempt)
        held = self.launcher.held.get(key)
        if held is None:
            # It is known, or its container was given up before its end was heard of.
            self.takeover.task_ended(end.container_id, key[1:])
            if end.outcome is Outcome.SUCCEEDED:
                self.state.finish_early(FinishedTask(end.stage, end.task, end.run_s))
            return
        self._forget(held)
        self._asker_is_due = True
        pooled = self.pool[end.container_id]
        pooled.confirmed = True
        pooled.drop(end.stage, end.task)
        if end.outcome is Outcome.SUCCEEDED:
            self.demands.measured(held.group, end.use)
        elif end.outcome is Outcome.OUT_OF_MEMORY:
            self.demands.too_little(held.group)
        if end.outcome is not Outcome.SUCCEEDED:
            pooled.before.add((end.stage, end.task))
        if not pooled.tasks:
            pooled.idle_since_s = now
        if end.outcome is Outcome.SUCCEEDED:
            self.state.succeeded(held, end.run_s)
        elif end.outcome.is_task_fault:
            how = ContainerEnd(
                end.container_id,
                end.outcome,
                end.exit_code,
                end.stage,
                end.task,
                end.attempt,
                end.run_s,
                end.message,
            )
            self.state.failed(held, how)
        else:
            self.progress.give_back(held.stage, held.task)
            if end.exit_code == NODE_FAULT:
                self.state.node_failed(held, end.message)
                # Nothing more is started there.
                pooled.notice = True

    def preempted(self, notices: tuple[Preemption, ...]) -> None:
        """Start no task in a container that is taken back; one that is idle goes at once."""
        for notice in notices:
            pooled = self.pool.get(notice.container_id)
            if pooled is not None:
                pooled.notice = True
                self._asker_is_due = True

    def speculate(self, now: float) -> None:
        """Do nothing: a task in a pool cannot be stopped alone, so no copy could win."""

    def stop_all(self) -> None:
        """Order the end of every container."""
        for pooled in self.pool.values():
            self.launcher.stop_container(pooled.node, pooled.container_id)
        for held in self._alone():
            self.launcher.stop(held)
        self.launcher.unanswered.clear()

    # -- the books ---------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise InvariantError where pool, progress and asks contradict each other."""
        self.book.check()
        self.progress.check()
        alone = self._alone()
        # A task whose copy is being stopped ended elsewhere.
        runs = sum(not held.stopping for held in alone)
        check_pool(self.pool, self.progress, self.state.verdict is None, runs)
        held = len(alone) + sum(len(pooled.tasks) for pooled in self.pool.values())
        if held != len(self.launcher.held):
            raise InvariantError(f"{held} tasks in containers, {len(self.launcher.held)} are held")
