"""Work in reusable containers: a job holds containers and runs several tasks in each (COBRA).

The asker decides (`am.ask.registry.HoldAsker`); here its wishes become asks, starts and releases,
and ends are booked once each whichever way they arrive: directly from the node (`TasksEnded`), or
relayed by the Resource Manager as ends that name a task.
"""

import numpy as np

from am.ask.registry import HoldAsker
from am.ask.view import HoldView, JobView, WaitingTasks, Wish
from am.demands import Demands
from am.launching import Held
from am.lots import Lot
from am.progress import READY, RUNNING, Progress, StageProgress
from am.settings import MasterSettings
from am.sizes import at_least, container_size, held_by_some, pool_max
from am.takeover import Kept, PoolTakeover
from am.work import Work
from weft.errors import InvariantError
from weft.ids import AttemptId, ContainerId, NodeId
from weft.job import NO_PREFERENCE
from weft.messages import (
    NODE_ENDED,
    AskType,
    AttemptAccepted,
    Container,
    ContainerEnd,
    ContainersAsked,
    FinishedTask,
    Outcome,
    Preemption,
    StartAnswered,
    TaskEnd,
    TasksEnded,
    containers_of,
)
from weft.plan import Plan
from weft.resources import Vector


class Pooled:
    """A reusable container that the job holds."""

    __slots__ = (
        "before",
        "boot",
        "confirmed",
        "container_id",
        "first_try",
        "free",
        "idle_since_s",
        "needs",
        "node",
        "notice",
        "size",
        "tasks",
        "use_count",
        "use_sum",
    )

    def __init__(
        self, container_id: ContainerId, node: NodeId, size: Vector, now: float, boot: int = 0
    ) -> None:
        self.container_id = container_id
        self.node = node
        self.boot = boot  # of the node's process that it was granted on
        self.size = size
        self.free = list(size)
        self.tasks: dict[tuple[int, int], Held] = {}  # by stage and task
        self.needs: dict[tuple[int, int], Vector] = {}  # what was believed when they started
        # tasks that failed here: an answer may be to their first order, so it does not count
        self.before: set[tuple[int, int]] = set()
        self.idle_since_s = now
        self.use_sum = [0.0] * len(size)
        self.use_count = 0
        self.notice = False  # it is about to be taken back
        self.confirmed = False  # its node has started something in it
        self.first_try = 0  # of a task started in it: an earlier attempt used the numbers below

    @property
    def busy(self) -> int:
        """Tasks in it."""
        return len(self.tasks)

    def put(self, held: Held, need: Vector) -> None:
        """Count what a task is expected to need as used."""
        key = held.lot.stage, held.task
        self.tasks[key], self.needs[key] = held, need
        self.free = [f - n for f, n in zip(self.free, need, strict=True)]

    def drop(self, stage: int, task: int) -> None:
        """Count it as free again."""
        del self.tasks[stage, task]
        need = self.needs.pop((stage, task))
        self.free = [f + n for f, n in zip(self.free, need, strict=True)]
        if not self.tasks:
            self.free = list(self.size)  # no drift over thousands of tasks


class HoldingWork(Work):
    """The running part of a master whose asker holds containers; it follows no plan."""

    def __init__(
        self,
        attempt_id: AttemptId,
        settings: MasterSettings,
        asker: HoldAsker,
        rng: np.random.Generator,
        accepted: AttemptAccepted,
    ) -> None:
        super().__init__(attempt_id, settings, _Silent(), rng, accepted)
        self.holder = asker
        self.base = container_size(asker.container, accepted.types, accepted.machines)
        self.demands = Demands(asker.over_estimate, self.base, accepted.machines)
        self.pool: dict[ContainerId, Pooled] = {}
        self._leaving: dict[ContainerId, NodeId] = {}  # given back, their ends not heard yet
        self._sizes: dict[tuple[Vector, str], Lot] = {}  # what is asked for, by size and label
        self._waiting: dict[int, Lot] = {}
        self._due = True  # the asker must look again
        self.takeover = self._takeover = PoolTakeover(
            accepted.held, settings.takeover_wait_s, self.progress, self.book, self.launcher,
            len(accepted.types), self.gangs.stages,
        )  # fmt: skip

    def adopt(self, plan: Plan | None) -> None:
        """Begin, in the order in which tasks become ready."""
        self.progress.keep_times(0.0)
        super().adopt(None)

    # -- deciding ----------------------------------------------------------------------------------

    def wake(self) -> None:
        """The asker's time has come."""
        self._due = True

    def settle(self, now: float) -> float | None:
        """Let the asker decide if anything changed; answers when it wants to look again."""
        progress = self.progress
        if not self.planned or self.verdict is not None:
            return None
        if self.takeover.waiting:
            again_s = self.takeover.step(now)
            if self.takeover.waiting:
                return again_s
        for kept in self._takeover.decide() if self._takeover.kept else ():
            self._go_on(kept, now)
        if not (self._due or progress.changed):
            return None
        self.gangs.ask()
        for number, lot in progress.changed.items():
            if lot.ready:
                self._waiting[number] = lot
            else:
                self._waiting.pop(number, None)
        progress.changed = {}
        self._due = self.review = False
        view = self._hold_view()
        wish = self.holder.hold(view, now, self.rng)
        for container_id, number in wish.start:
            self._start(self.pool[container_id], progress.lots[number], now)
        target, give_back = wish.target, wish.give_back
        if self.gangs.stages and not self._waiting and self.gangs.waiting:
            # what stands idle may be just the room that the gang waits for
            target, give_back = 0, [c for c, pooled in self.pool.items() if not pooled.tasks]
        gone = [c for c, p in self.pool.items() if p.notice and not p.tasks]
        for container_id in dict.fromkeys((*give_back, *gone)):
            self._give_back(self.pool[container_id])
        self._want(view.size, target)
        return wish.wake_after_s

    def _hold_view(self) -> HoldView:
        size, machines = self.base, self.accepted.machines
        waiting = []
        for lot in self._waiting.values():
            stage = self.progress.stages[lot.stage]
            since = stage.ready_at[lot.tasks[lot.ready[0]]] if stage.ready_at else 0.0
            known = self.estimates.known(lot.stage)
            duration = self.estimates.duration_s(lot.stage) if known else None
            demand = self.demands.of(lot)
            waiting.append(WaitingTasks(lot, since, duration, demand))
            larger = at_least(size, demand)
            if larger == size or not waiting[1:] or held_by_some(larger, machines):
                size = larger  # else no machine serves both: this one's turn comes
        pending = sum(lot.rows[0].wanted for lot in self._sizes.values() if lot.rows[0])
        most = pool_max(size, machines)
        pool = [pooled for pooled in self.pool.values() if not pooled.notice]
        return HoldView(waiting, pool, size, most, pending, self.racks)

    def _want(self, size: Vector, target: int) -> None:
        """Ask for what is missing, of the size that serves all that waits."""
        label = next((lot.label for lot in self._waiting.values() if lot.label), "")
        missing = max(0, target - sum(not pooled.notice for pooled in self.pool.values()))
        if missing and (size, label) not in self._sizes:
            first = next(iter(self._waiting.values()), None)
            stage = first.stage if first is not None else 0
            wanted = Lot(stage, (), size, NO_PREFERENCE, 1.0)
            wanted.label = label
            self._sizes[size, label] = wanted
        for key, lot in self._sizes.items():
            self.book.want(lot, AskType.DEFAULT, missing if key == (size, label) else 0)

    def _start(self, pooled: Pooled, lot: Lot, now: float) -> None:
        rank = self.progress.take(lot)
        if rank < 0:
            raise InvariantError(f"the asker starts a task that lot {lot.number} has not")
        if not lot.ready:
            self._waiting.pop(lot.number, None)
        task = lot.tasks[rank]
        stage = self.progress.stages[lot.stage]
        attempt = stage.tries.get(task, 0)
        if attempt < pooled.first_try:
            attempt = stage.tries[task] = pooled.first_try
        held = Held(
            pooled.container_id, pooled.node, lot, stage, task, attempt, now, pooled.boot,
            pooled.size,
        )  # fmt: skip
        pooled.put(held, self.demands.of(lot))
        self.launcher.start(held)

    def _go_on(self, kept: Kept, now: float) -> None:
        """Have a container of an earlier attempt in the pool, with what runs in it."""
        one = kept.container
        container_id, node, boot = one.container_id, one.node_id, one.boot
        self._seen.add(container_id)
        pooled = self.pool[container_id] = Pooled(container_id, node, kept.size, now, boot)
        pooled.confirmed, pooled.first_try = True, kept.first_try
        for position, task, attempt in kept.tasks:
            stage = self.progress.stages[position]
            lot, _ = stage.place_of(task)
            if stage.state[task] == READY:
                self.progress.begin(stage, [task])
            held = Held(container_id, node, lot, stage, task, attempt, now, boot, kept.size)
            self.launcher.held[held.key] = held
            # the earlier attempt may have known better what it needs
            pooled.put(held, tuple(map(min, self.demands.of(lot), pooled.free)))
        self._due = True

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
        self._due = True

    def _forget(self, held: Held) -> None:
        self.launcher.held.pop(held.key, None)
        self.launcher.unanswered.pop(held.key, None)

    # -- telling the manager -----------------------------------------------------------------------

    @property
    def wants_to_ask(self) -> bool:
        """Whether there is something to tell the manager before the next heartbeat."""
        return self.book.owes and not self.refusals.count

    @property
    def silent(self) -> bool:
        """Whether the next heartbeat would say nothing that the manager does not know."""
        return self.book.silent and not (self.launcher.waits or self._due)

    def message(self, now: float) -> ContainersAsked:
        """The next request; remaining work and path are of the available stages only."""
        progress, factor = self.progress, self.estimates.factor
        path_s = max(
            (self.estimates.duration_s(lot.stage) for lot in self._waiting.values()), default=0.0
        )
        seconds = sum(
            len(lot.ready) * lot.declared_of(lot.tasks[lot.ready[0]]) * factor[lot.stage] * lot.norm
            for lot in self._waiting.values()
            if lot.ready
        )
        done = progress.finished / max(progress.tasks, 1)
        return self.book.message(
            self.attempt_id, now, self.estimates.duration_s, done, seconds, path_s
        )

    def holdings(self) -> tuple[tuple[ContainerId, NodeId], ...]:
        """The containers held, with their nodes."""
        pooled = tuple((pooled.container_id, pooled.node) for pooled in self.pool.values())
        waiting = [one.container for one in self._takeover.kept.values()]
        waiting += self.takeover.waiting.values()
        alone = ((held.container_id, held.node) for held in self._alone())
        return (*pooled, *alone, *((one.container_id, one.node_id) for one in waiting))

    def _alone(self) -> list[Held]:
        """Tasks of gangs: each has a container of its own, as all of a gang starts at once."""
        if not self.gangs.stages:
            return []
        return [held for held in self.launcher.held.values() if not held.size]

    def restart(self, now: float) -> None:
        """The manager restarted; containers that no node was seen to run are given up.

        So are those that were given back before, as that may not have been heard. And ends of tasks
        may have been lost on their way through the manager: the nodes know them.
        """
        self.progress.now = now
        self.book.restart()
        for held in self._alone():
            if held.key in self.launcher.unanswered:
                self.launcher.stop(held)
                self._give_up(held)
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
        if self.nodes.avoided:
            self.book.blacklist(tuple(sorted(self.nodes.avoided)))
        self._due = True

    # -- grants ------------------------------------------------------------------------------------

    def take(self, containers: tuple[Container, ...], now: float) -> None:
        """Add new containers to the pool; the asker fills them."""
        self.progress.now = now
        containers = containers_of(containers)
        if self.gangs.stages:
            own = [c for c in containers if self._is_gangs(c.ask_id)]
            super().take(tuple(own), now)
            containers = tuple(c for c in containers if not self._is_gangs(c.ask_id))
            self._due = True
        for container in containers:
            container_id, node, ask_id = container.container_id, container.node_id, container.ask_id
            if container_id in self._seen:
                self._granted_late(container_id, ask_id)
                continue
            self._seen.add(container_id)
            row = self.book.granted(ask_id)
            self._due = True
            if row is None or self.verdict is not None or node in self.nodes.avoided:
                self.book.release(container_id)
                continue
            self.pool[container_id] = Pooled(container_id, node, row.lot.grant, now, container.boot)

    def _is_gangs(self, ask_id: int) -> bool:
        row = self.book.rows.get(ask_id)
        return row is not None and row.lot.gang

    def _granted_late(self, container_id: ContainerId, ask_id: int) -> None:
        if self._is_gangs(ask_id):
            super()._granted_late(container_id, ask_id)
        elif container_id in self._ended_first:
            self._ended_first.discard(container_id)
            self.book.granted(ask_id)
            self._due = True

    def start_answered(self, event: StartAnswered, now: float) -> None:
        """What was answered runs; a container that refuses is given up."""
        self.progress.now = now
        if self.gangs.stages or self.takeover.waiting:
            super().start_answered(event, now)
        for item in event.items:
            if item.stage < 0:
                self.launcher.answered(item.container_id)
            pooled = self.pool.get(item.container_id)
            if pooled is None:
                self._leaving.pop(item.container_id, None)
                continue
            if item.error:
                self._give_back(pooled)
                self._refused(pooled.node, item.error, now)
                continue
            pooled.confirmed = True
            self.refusals.count = 0
            held = pooled.tasks.get((item.stage, item.task))
            if held is not None and (item.stage, item.task) not in pooled.before:
                self.launcher.unanswered.pop(held.key, None)

    # -- ends --------------------------------------------------------------------------------------

    def tasks_ended(self, event: TasksEnded, now: float) -> None:
        """Ends of tasks, and the use of their containers."""
        self.progress.now = now
        for use in event.container_use:
            pooled = self.pool.get(use.container_id)
            if pooled is not None and len(use.use) == len(pooled.size):
                pooled.use_sum = [a + b for a, b in zip(pooled.use_sum, use.use, strict=True)]
                pooled.use_count += 1
        for end in event.ended:
            self._task_ended(end, now)

    def ended(self, end: ContainerEnd, now: float) -> None:
        """A container ended, or a run of them: tasks of a gang."""
        if end.tasks:
            self.progress.now = now  # when what waited for them became ready
            self._due = True
        super().ended(end, now)

    def container_ended(self, end: ContainerEnd, now: float) -> None:
        """A container ended, or one of its tasks if the end names it."""
        self.progress.now = now
        if end.container_id in self.launcher.held:  # of a gang
            super().container_ended(end, now)
            self._due = True
            return
        # a lost node takes the whole container along, whatever task its end names
        number, apart = end.container_id, end.stage in self.gangs.stages
        known = number in self._seen or (self._takeover.knows(number) and not apart)
        if end.stage >= 0 and end.outcome is not Outcome.LOST and known:
            self._task_ended(
                TaskEnd(
                    end.container_id, end.stage, end.task, end.attempt, end.outcome,
                    end.exit_code, end.run_s, end.message,
                ),
                now,
            )  # fmt: skip
            return
        self._leaving.pop(number, None)
        self.launcher.answered(number)
        self.takeover.ended(number)
        pooled = self.pool.pop(number, None)
        if pooled is None:
            self._unknown_ended(end)
            return
        if end.outcome is Outcome.LOST and end.exit_code == NODE_ENDED:
            for held in pooled.tasks.values():
                self.ended_node(held, end.message, now)
        self._lose_tasks(pooled)

    def _task_ended(self, end: TaskEnd, now: float) -> None:
        key = (end.container_id, end.stage, end.task, end.attempt)
        held = self.launcher.held.get(key)
        if held is None:  # known, or its container was given up before its end was heard of
            self._takeover.task_ended(end.container_id, key[1:])
            if end.outcome is Outcome.SUCCEEDED:
                self.finish_early(FinishedTask(end.stage, end.task, end.run_s))
            return
        self._forget(held)
        self._due = True
        pooled = self.pool[end.container_id]
        pooled.confirmed = True
        pooled.drop(end.stage, end.task)
        if end.outcome is Outcome.SUCCEEDED:
            self.demands.measured(held.lot, end.use)
        elif end.outcome is Outcome.OUT_OF_MEMORY:
            self.demands.too_little(held.lot)
        if end.outcome is not Outcome.SUCCEEDED:
            pooled.before.add((end.stage, end.task))
        if not pooled.tasks:
            pooled.idle_since_s = now
        if end.outcome is Outcome.SUCCEEDED:
            self._succeeded(held, end.run_s)
        elif end.outcome.is_task_fault:
            how = ContainerEnd(
                end.container_id, end.outcome, end.exit_code, end.stage, end.task, end.attempt,
                end.run_s, end.message,
            )  # fmt: skip
            self._failed(held, how)
        else:
            self.progress.give_back(held.stage, held.task)

    def _stop_copies(self, stage: StageProgress, task: int) -> None:
        """A task in a pool cannot be stopped alone: what runs twice runs to its end."""
        for held in self._alone():
            if held.task == task and held.stage is stage and not held.stopping:
                self.launcher.stop(held)
                self.book.release(held.container_id)

    def preempted(self, notices: tuple[Preemption, ...]) -> None:
        """No task begins in a container that goes, and one that is idle goes at once."""
        for notice in notices:
            pooled = self.pool.get(notice.container_id)
            if pooled is not None:
                pooled.notice = True
                self._due = True

    def speculate(self, now: float) -> None:
        """No copies here, for the same reason."""

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
        runs = sum(not held.stopping for held in alone)  # else its task ended elsewhere
        _check_pool(self.pool, self.progress, self.verdict is None, runs)
        held = len(alone) + sum(len(pooled.tasks) for pooled in self.pool.values())
        if held != len(self.launcher.held):
            raise InvariantError(f"{held} tasks in containers, {len(self.launcher.held)} are held")


def _check_pool(
    pool: dict[ContainerId, Pooled], progress: Progress, running: bool, alone: int
) -> None:
    tasks = alone
    for pooled in pool.values():
        used = [0.0] * len(pooled.size)
        for key, held in pooled.tasks.items():
            tasks += held.stage.state[held.task] == RUNNING  # not one that finished elsewhere
            used = [u + d for u, d in zip(used, pooled.needs[key], strict=True)]
        for u, f, s in zip(used, pooled.free, pooled.size, strict=True):
            if abs(u + f - s) > 1e-6 * (1.0 + s):
                raise InvariantError(f"container {pooled.container_id}: {u} used, {f} free of {s}")
            if u > s * (1 + 1e-6) + 1e-9:
                raise InvariantError(f"container {pooled.container_id} holds more than its size")
    if running and tasks != progress.running:
        raise InvariantError(f"{progress.running} tasks run, {tasks} are in a container")


class _Silent:
    """A stub: a job with reusable containers never asks per task."""

    follows_share = False

    def ask(self, view: JobView, now: float, rng: np.random.Generator) -> Wish:
        raise InvariantError("a holding asker's job asks by container, not by task")
