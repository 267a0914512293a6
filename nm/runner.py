"""Running what a node was asked to run: containers start once, end once, and every end is owed."""

from typing import Any, Final

from nm.containers import HeldContainer, NodeContainers, TaskKey, measure_all, never_started
from nm.emulation import Emulation, RunningTask, real_task
from nm.lifecycle import ContainerEvent, ContainerState
from nm.mishaps import FAILED_BY_CHANCE, Mishaps
from nm.settings import Mode, NodeSettings
from weft.model.errors import InvariantError
from weft.model.ids import AttemptId, ContainerId, NodeId, granted_before
from weft.model.resources import ResourceTypes, Vector
from weft.protocol.effects import (
    ContainersMeasured,
    Effect,
    Kill,
    Launch,
    Note,
    ProcessEnded,
    ProcessesFound,
    Send,
)
from weft.protocol.facts import StartedRun, StoppedRun, TaskStarted, TaskStopped
from weft.protocol.messages import (
    NODE_FULL,
    Address,
    ContainerEnd,
    ContainerUse,
    MasterLaunch,
    Outcome,
    TaskEnd,
    TaskLaunch,
    TasksEnded,
    launches_of,
    master_address,
)
from weft.protocol.outbox import Outbox

_SUCCEEDED: Final = Outcome.SUCCEEDED
_FAILED: Final = Outcome.FAILED
_OUT_OF_MEMORY: Final = Outcome.OUT_OF_MEMORY
# A shell shows a process that SIGKILL ended as 128 + 9.
OOM_EXIT_CODE = 137
# A task whose input is remote needs as much more of the one as it needs of the other.
REMOTE_RESOURCE, REMOTE_OF = "network_mbps", "disk_mbps"
TAKEN_OVER = "a later attempt took the container over"
Report = ContainerEnd | TaskEnd


def _key_of(item: TaskLaunch) -> tuple[ContainerId, TaskKey]:
    return item.container_id, (item.stage, item.task, item.attempt)


class Runner:
    """The containers of one node. Effects are appended to the list that the core answers with."""

    __slots__ = (
        "_buggify",
        "_failing_by_chance",
        "_measured_at_s",
        "_mischance",
        "_mishaps",
        "_remote_of_position",
        "_remote_position",
        "_resource_count",
        "_settings",
        "book",
        "emulated",
        "emulation",
        "had_reusable",
        "life",
        "measures",
        "node_id",
        "outbox",
    )

    def __init__(self, node_id: NodeId, settings: NodeSettings) -> None:
        self.node_id = node_id
        self.outbox: Outbox[Any, Report] = Outbox(settings.resend_after_s)
        self.book = NodeContainers(settings.tombstone_s)
        self.emulation = Emulation((), ())
        self.emulated = settings.mode is Mode.EMULATED
        # The life of the manager that accepted the node, from 1 on; 0: none did.
        self.life = 0
        self.had_reusable = False
        self._settings = settings
        self._buggify = settings.buggify
        self._mishaps = Mishaps(settings)
        self._mischance = self._mishaps.any
        self._failing_by_chance: set[tuple[ContainerId, TaskKey]] = set()
        # Positions of `REMOTE_RESOURCE` and `REMOTE_OF`; -1: there is none.
        self._remote_position = self._remote_of_position = -1
        # the newest of real containers; heartbeats tell it, as they do of reusable ones
        self.measures: dict[ContainerId, Vector] = {}
        self._measured_at_s = 0.0
        self._resource_count = 0

    def size(self, types: ResourceTypes, capacity: Vector, now: float) -> None:
        """Learn what the host has, in the cluster's resource types."""
        self.emulation = Emulation(capacity, types.rigid)
        self._resource_count = len(types)
        self.book.size(capacity, types.rigid)
        self._measured_at_s = now
        places = {name: place for place, name in enumerate(types.names)}
        self._remote_position = places.get(REMOTE_RESOURCE, -1)
        self._remote_of_position = places.get(REMOTE_OF, -1)
        # A host may tell no capacity of its network, which limits nothing then.
        if self._remote_position >= 0 and capacity[self._remote_position] <= 0:
            self._remote_position = -1

    def start(
        self,
        item: TaskLaunch,
        now: float,
        effects: list[Effect],
        *,
        known: bool = True,
        by: AttemptId = 0,
    ) -> str:
        """Start one task; the answer is empty, or says why not.

        An order may be doubled, late, overtaken by the order to stop, or of a manager or a process
        of this node that is no more, so what is known of the container is asked first: one that is
        here takes a further task only where it is reusable, and one that ended here never comes
        back. Only then is the host's room looked at. What is refused for want of room is buried: an
        order that comes a second time must not be carried out, as the manager was sent otherwise.

        `known`: what was granted on this process; else only what already runs takes more tasks in.
        `by`: the attempt that orders it; 0: whose container it is.
        """
        container, granted, d, book = (
            item.container_id,
            item.granted,
            self._resource_count,
            self.book,
        )
        if len(item.demand) != d or (granted and len(granted) != d):
            return f"refused: its demand has not {d} amounts"
        held = book.containers.get(container)
        if held is not None:
            held = self.held(container) or held
            if by and not held.claim(by):
                return TAKEN_OVER
            key = (item.stage, item.task, item.attempt)
            # An order may be repeated.
            if key in held.tasks or key in held.ended:
                return ""
            if not held.reusable or held.state is not ContainerState.RUNNING:
                return "the container is in use" if not held.reusable else "it is being stopped"
        else:
            end = book.tombstones.get(container)
            if end is not None:
                return "stopped before it was started" if never_started(end) else ""
            # What an earlier process started may have ended meanwhile.
            if not known:
                return "granted to an earlier process of this node manager"
            if self.life and granted_before(container, self.life - 1):
                # the manager was told what runs here without it, so it will not free it
                return "granted before the Resource Manager's last start"
            if self._buggify is None or not book.fits(granted) or not self._refuses():
                held = book.take_in(container, granted, item.demand, item.reusable)
            if held is None:
                self._bury(container, now)
                return NODE_FULL
            if item.reusable:
                self.had_reusable = True
        if self.emulated:
            self._emulate(held, item, now, effects)
        else:
            key = (item.stage, item.task, item.attempt)
            held.begin(key, real_task(item, now))
            effects.append(Note(TaskStarted(container, self.node_id, *key, item.demand)))
            effects.append(Launch(item))
        return ""

    def start_run(
        self, item: TaskLaunch, now: float, effects: list[Effect], *, known: bool
    ) -> bool:
        """Start a run of identical tasks as one, if it is a plain case.

        If not, return False and do nothing: one start after the other then says what is to become
        of each.
        """
        first, count, book, d = item.container_id, len(item.tasks), self.book, self._resource_count
        if (
            count == 1
            or not known
            or item.reusable
            or (self.emulated and self._mischance)
            or len(item.demand) != d
            or (item.granted and len(item.granted) != d)
        ):
            return False
        # An order may be repeated.
        if book.has_run(item):
            return True
        if not book.is_new(first, count) or (self._buggify is not None and self._refuses()):
            return False
        if self.life and (
            granted_before(first, self.life - 1) or granted_before(first + count - 1, self.life - 1)
        ):
            return False
        if not self.emulated:
            return self._launch_run(item, now, effects)
        demand = item.demand
        if item.remote and self._remote_position >= 0:
            demand = self._from_afar(demand)
        fact = StartedRun(first, self.node_id, item.stage, item.tasks, item.attempt, demand)
        # Each ends before the next begins, and contends with nobody.
        if item.duration_s <= 0.0:
            if not book.fits(item.granted):
                return False
            effects.append(Note(fact))
            book.bury(self._run_ended(item, 0.0, effects), now)
            return True
        if not book.fits(item.granted, count):
            return False
        lasts_s = item.duration_s / self._settings.speed
        work = self.emulation.start_run(item, demand, lasts_s, now)
        if work is None:
            return False
        book.add_run(first, item.granted or item.demand, work)
        effects.append(Note(fact))
        return True

    def _launch_run(self, item: TaskLaunch, now: float, effects: list[Effect]) -> bool:
        """Start a run of real tasks, each of which ends alone; False where it has no room."""
        book, count = self.book, len(item.tasks)
        if not book.fits(item.granted, count):
            return False
        for one in launches_of(item):
            held = book.add(one.container_id, item.granted or item.demand, False, False)
            work = real_task(one, now)
            held.begin((one.stage, one.task, one.attempt), work)
        first, stage, attempt = item.container_id, item.stage, item.attempt
        effects.append(
            Note(StartedRun(first, self.node_id, stage, item.tasks, attempt, item.demand))
        )
        effects.append(Launch(item))
        return True

    def held(self, container: ContainerId) -> HeldContainer | None:
        """Return a container alone: a run in which it was is taken apart."""
        held = self.book.containers.get(container)
        if held is None or held.count == 1:
            return held
        self.emulation.take_apart()
        return self.book.one(container)

    def found(self, event: ProcessesFound, now: float, effects: list[Effect]) -> None:
        """Hold what an earlier process of this node started: it runs, or its end follows.

        Ends that are known already come before the node registers, so that it does not say of them
        that they run: of short tasks those of a minute may be many times what a node has room for.
        """
        for item, began_s, taken_by in event.items:
            container = item.container_id
            held = self.book.containers.get(container)
            if isinstance(item, MasterLaunch):
                if held is None:
                    self.book.add(container, item.demand, False, True, began_s)
                continue
            if held is None:
                held = self.book.add(container, item.granted or item.demand, item.reusable, False)
                self.had_reusable = self.had_reusable or item.reusable
            if taken_by:
                held.claim(taken_by)
            if held.reusable or not held.tasks:
                work = real_task(item, began_s)
                held.begin((item.stage, item.task, item.attempt), work)

    def leave_idle(self) -> None:
        """Let reusable containers go that were found with nothing in them any more.

        What was written down are processes, so nobody knows which of these containers were given
        back before. As the node does not register them, the manager gives up those that were not.
        """
        containers = self.book.containers
        for number in [n for n, held in containers.items() if held.reusable and not held.tasks]:
            del containers[number]

    def _refuses(self) -> bool:
        return self._buggify is not None and self._buggify("a start is refused")

    def _emulate(
        self, held: HeldContainer, item: TaskLaunch, now: float, effects: list[Effect]
    ) -> None:
        demand = item.demand
        if item.remote and self._remote_position >= 0:
            demand = self._from_afar(demand)
        fact = TaskStarted(
            item.container_id, self.node_id, item.stage, item.task, item.attempt, demand
        )
        effects.append(Note(fact))
        lasts_s, fails = item.duration_s / self._settings.speed, False
        if self._mischance:
            lasts_s, fails = self._mishaps.of(item, not (held.tasks or held.ended))
        # A task without work ends at once and contends with nobody.
        if lasts_s <= 0.0:
            work = RunningTask(item, demand, 0.0, now, now, -1)
            if fails:
                self._end_task(held, work, _FAILED, now, effects, 1, FAILED_BY_CHANCE)
            else:
                self._end_task(held, work, _SUCCEEDED, now, effects)
            return
        began = self.emulation.start(item, demand, lasts_s, now)
        if began is None:
            killed = RunningTask(item, demand, lasts_s, now, now + lasts_s, -1)
            self._end_task(held, killed, Outcome.OUT_OF_MEMORY, now, effects)
            return
        if held.reuse is None and not fails:
            held.work = began
            return
        container, key = _key_of(item)
        if fails:
            self._failing_by_chance.add((container, key))
        held.begin(key, began)

    def _from_afar(self, demand: Vector) -> Vector:
        """Return a demand with what reading the input over the network costs on top."""
        at, of = self._remote_position, self._remote_of_position
        amount = demand[at] + (demand[of] if of >= 0 else 0.0)
        return (*demand[:at], amount, *demand[at + 1 :])

    def start_master(self, launch: MasterLaunch, now: float, effects: list[Effect]) -> None:
        """Start an application master; the same order again changes nothing."""
        container, book = launch.container_id, self.book
        if container in book.containers or len(launch.demand) != self._resource_count:
            return
        end = book.end_of(container)
        if end is not None:
            self.outbox.put(container, end)
        elif not book.fits(launch.demand):
            self._bury(container, now)
        else:
            book.add(container, launch.demand, False, True, now)
            fact = TaskStarted(container, self.node_id, -1, -1, 0, launch.demand)
            effects.append(Note(fact))
            effects.append(Launch(launch))

    def check(self) -> None:
        """Raise InvariantError where the books contradict the running tasks."""
        self.book.check()
        self.emulation.check()
        if self.emulated:
            tasks = sum(len(held.tasks) for held in self.book.containers.values())
            if tasks != len(self.emulation):
                raise InvariantError(f"{self.node_id}: {tasks} tasks, {len(self.emulation)} run")

    # -- ending ------------------------------------------------------------------------------------

    def end_due(self, now: float, effects: list[Effect]) -> None:
        """End the emulated tasks that were due by `now`, each at its own time."""
        containers = self.book.containers
        for work, end_s in self.emulation.due(now):
            held = containers[work.item.container_id]
            if work.count > 1:
                run_s = end_s - work.start_s
                self.book.close(held, self._run_ended(work.item, run_s, effects), end_s)
                continue
            if held.count > 1:
                held = self.held(work.item.container_id) or held
            if held.reuse is None and not self._failing_by_chance:
                self._task_over(held, work, end_s, effects)
            elif self._failing_by_chance and _key_of(work.item) in self._failing_by_chance:
                self._end_task(held, work, _FAILED, end_s, effects, 1, FAILED_BY_CHANCE)
            else:
                self._end_task(held, work, _SUCCEEDED, end_s, effects)

    def _run_ended(self, item: TaskLaunch, run_s: float, effects: list[Effect]) -> ContainerEnd:
        """Note and report that all tasks of a run succeeded; returns how."""
        first, stage, attempt, tasks = item.container_id, item.stage, item.attempt, item.tasks
        fact = StoppedRun(first, self.node_id, stage, tasks, attempt, _SUCCEEDED, run_s)
        effects.append(Note(fact))
        end = ContainerEnd(first, _SUCCEEDED, 0, stage, tasks[0], attempt, run_s, "", tasks)
        # a key of its own: the end of its first container alone must not stand in for the run's
        self.outbox.put((first, len(tasks)), end)
        return end

    def _task_over(
        self, held: HeldContainer, work: RunningTask, now: float, effects: list[Effect]
    ) -> None:
        """Book the plain case of `_end_task`: an emulated task that did all of its work."""
        item, run_s = work.item, now - work.start_s
        container, stage, task, attempt = item.container_id, item.stage, item.task, item.attempt
        effects.append(
            Note(TaskStopped(container, self.node_id, stage, task, attempt, _SUCCEEDED, run_s))
        )
        end = ContainerEnd(container, _SUCCEEDED, 0, stage, task, attempt, run_s)
        self.book.close(held, end, now)
        self.outbox.put(container, end)

    def _end_task(
        self,
        held: HeldContainer,
        work: RunningTask,
        outcome: Outcome,
        now: float,
        effects: list[Effect],
        exit_code: int = 0,
        message: str = "",
        use: Vector = (),
    ) -> None:
        """Book a task's end; its container ends with it unless it is reusable.

        `use`: the most that a real one was measured to use.
        """
        item = work.item
        container, stage, task, attempt = item.container_id, item.stage, item.task, item.attempt
        run_s = now - work.start_s
        if self._failing_by_chance:
            self._failing_by_chance.discard(_key_of(item))
        if outcome is _OUT_OF_MEMORY and not message:
            exit_code, message = OOM_EXIT_CODE, "out of memory: the node has no more"
        fact = TaskStopped(container, self.node_id, stage, task, attempt, outcome, run_s)
        effects.append(Note(fact))
        if not held.reusable:
            end = ContainerEnd(container, outcome, exit_code, stage, task, attempt, run_s, message)
            self.book.close(held, end, now)
            self.outbox.put(container, end)
            if self.measures:
                self.measures.pop(container, None)
            return
        key = (stage, task, attempt)
        held.meter(key, work, now)
        use = work.demand if self.emulated else use
        ended = TaskEnd(container, stage, task, attempt, outcome, exit_code, run_s, message, use)
        held.end(key, ended)
        self.outbox.put((container, key), ended)
        owner = held.owner
        told = TasksEnded(self.node_id, owner, (ended,), (), now)
        effects.append(Send(self.master(owner), told))

    def report_again(self, container: ContainerId) -> bool:
        """Report the end of a container again; return False where it has not ended."""
        end = self.book.end_of(container)
        if end is not None:
            self.outbox.put(container, end)
        return end is not None

    def is_spare(self, container: ContainerId) -> bool:
        """Return whether nothing runs in a container."""
        held = self.book.containers.get(container)
        return held is None or (held.reusable and not held.tasks)

    def stop(self, container: ContainerId, now: float, effects: list[Effect]) -> None:
        """Stop a container; one that is not known here must never start later."""
        held = self.held(container)
        if held is None:
            self._bury(container, now)
            return
        if held.state is ContainerState.RUNNING:
            held.step(ContainerEvent.STOP)
            # `ProcessEnded` follows and ends it.
            if held.master or (held.tasks and not self.emulated):
                effects.append(Kill(container))
                return
            was_idle = not held.tasks
            for work in list(held.tasks.values()):
                self.emulation.stop(work, now)
                self._end_task(held, work, Outcome.KILLED, now, effects)
            if held.reusable:
                outcome = Outcome.RELEASED if was_idle else Outcome.KILLED
                self._end_container(held, outcome, 0, "", now)

    def forget(self, now: float, effects: list[Effect]) -> None:
        """Stop all, and forget what ended: it was another cluster's."""
        for container in tuple(self.book.containers):
            self.stop(container, now, effects)
        self.book.forget()
        self.outbox.clear()

    def _end_container(
        self, held: HeldContainer, outcome: Outcome, exit_code: int, message: str, now: float
    ) -> None:
        """Book the end of a container that no task ended: a master's or a reusable one."""
        end = ContainerEnd(held.container_id, outcome, exit_code, message=message)
        self.book.close(held, end, now)
        self.outbox.put(held.container_id, end)
        self.measures.pop(held.container_id, None)

    def _bury(self, container: ContainerId, now: float) -> None:
        """Refuse a container that never runs here, now and later."""
        end = ContainerEnd(container, Outcome.RELEASED)
        self.book.bury(end, now)
        self.outbox.put(container, end)

    def process_ended(self, event: ProcessEnded, now: float, effects: list[Effect]) -> None:
        """Handle the end of a process or a master; what was asked to stop counts as killed."""
        held = self.held(event.container_id)
        if held is None:
            return
        stopping = held.state is ContainerState.STOPPING
        outcome = event.outcome
        if stopping and outcome is not Outcome.SUCCEEDED:
            outcome = Outcome.KILLED
        if held.master:
            fact = TaskStopped(held.container_id, self.node_id, -1, -1, 0, outcome, 0.0)
            effects.append(Note(fact))
            self._end_container(held, outcome, event.exit_code, event.message, now)
            return
        key = (event.stage, event.task, event.attempt)
        if event.task < 0 and len(held.tasks) == 1:
            key = next(iter(held.tasks))
        work = held.tasks.get(key)
        if work is not None:
            code, text = event.exit_code, event.message
            self._end_task(held, work, outcome, now, effects, code, text, event.use)
        if held.reusable and stopping and not held.tasks:
            self._end_container(held, Outcome.KILLED, event.exit_code, event.message, now)

    def measured(self, event: ContainersMeasured, now: float, effects: list[Effect]) -> None:
        """Keep what real containers were measured to use."""
        for container, use in event.use:
            if container in self.book.containers:
                self.measures[container] = use

    def measure(self, now: float, effects: list[Effect]) -> tuple[ContainerUse, ...]:
        """Return the use of containers since the last heartbeat; tell masters of reusable ones."""
        if self.emulated:
            every = self.book.containers.values()
            uses = measure_all(every, now, now - self._measured_at_s)
            self._measured_at_s = now
        else:
            idle = (0.0,) * len(self.emulation.capacity)
            for container, one in self.book.containers.items():
                # No process is left that could be measured.
                if one.reusable and not one.tasks:
                    self.measures[container] = idle
            uses = tuple(ContainerUse(c, use) for c, use in self.measures.items())
        by_master: dict[AttemptId, list[ContainerUse]] = {}
        for use in uses:
            held = self.book.containers[use.container_id]
            if held.reusable:
                by_master.setdefault(held.owner, []).append(use)
        for owner, found in by_master.items():
            message = TasksEnded(self.node_id, owner, (), tuple(found), now)
            effects.append(Send(self.master(owner), message))
        return uses

    def use(self) -> Vector:
        """Return what the host's containers use now, per resource."""
        if self.emulated:
            return self.emulation.use
        columns = list(zip(*self.measures.values(), strict=True))
        return tuple(map(sum, columns)) if columns else (0.0,) * len(self.emulation.capacity)

    def master(self, attempt: AttemptId) -> Address:
        """Return where an attempt's master is reached."""
        return master_address(attempt)
