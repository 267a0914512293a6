"""The Application Master of one attempt: plans, asks, starts tasks, follows their ends, finishes.

`handle(event, now)` is the only way in; time and chance are arguments. Messages may be lost,
doubled or late: what is owed is repeated until answered, what is known is dropped by id.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from am.ask.registry import Asker
from am.ask.view import JobView, RunningTask
from am.asking import AskBook
from am.estimates import Estimates, EstimateSettings, History
from am.launching import Held, Launcher, totals
from am.lifecycle import MASTER, MasterEvent, MasterState
from am.lots import Lot, LotLimits, build_lots
from am.progress import Progress
from weft.effects import (
    Effect,
    MakePlan,
    Note,
    PlanReady,
    Send,
    SetTimer,
    Started,
    Stop,
    StopRequested,
    TimerFired,
)
from weft.errors import InvariantError
from weft.facts import Fact, JobProgressed, MasterPlanned, Remark
from weft.ids import AttemptId, ContainerId, app_of_container, attempt_of_container
from weft.job import EdgeKind, Job
from weft.messages import (
    MANAGER,
    AttemptAccepted,
    AttemptFinished,
    AttemptRegistered,
    AttemptStopped,
    AttemptUnregistered,
    Container,
    ContainerEnd,
    ContainersGranted,
    FinishedTask,
    Outcome,
    StartAnswered,
    TasksEnded,
)
from weft.plan import Plan


@dataclass(frozen=True, slots=True)
class MasterSettings:
    """What a master is configured with; times in s on the cluster's clock.

    `planner` may be empty: breadth first order without a placement. `resend_s` is the time after
    which something unanswered is sent again. A node is blacklisted after `node_failures_max`
    failed tasks, unless more than `blacklist_share_max` of the nodes already are.
    """

    planner: str = "bfs"
    planner_options: Mapping[str, Any] = field(default_factory=dict)
    address: str = ""
    resend_s: float = 3.0
    lots: LotLimits = field(default_factory=LotLimits)
    estimates: EstimateSettings = field(default_factory=EstimateSettings)
    history: History = field(default_factory=dict)
    node_failures_max: int = 3
    blacklist_share_max: float = 0.33
    speculate: bool = False
    straggler_factor: float = 1.5
    straggler_finished_min: float = 0.75


class ApplicationMaster:
    """One attempt at one job."""

    def __init__(
        self,
        attempt_id: AttemptId,
        settings: MasterSettings,
        asker: Asker,
        rng: np.random.Generator,
    ) -> None:
        self.attempt_id = attempt_id
        self.state = MASTER.initial
        self.job: Job | None = None
        self._settings = settings
        self._asker = asker
        self._rng = rng
        self._accepted: AttemptAccepted | None = None
        self._estimates: Estimates | None = None
        self._progress: Progress | None = None
        self._view = JobView()
        self._book = AskBook(settings.resend_s)
        self._launcher = Launcher(attempt_id)
        self._seen: set[ContainerId] = set()  # every container ever granted or ended
        self._ended_first: set[ContainerId] = set()  # ended before its grant arrived
        self._unreported: list[FinishedTask] = []
        self._node_failures: dict[str, int] = {}
        self._blacklist: set[str] = set()
        self._heartbeat_s = 1.0
        self._prompt = False
        self._ask_armed = False
        self._review = False  # the asker must look again whatever the lots say
        self._registering = False
        self._noted: tuple[int, int, int, int] = (-1, -1, -1, -1)
        self._told_work = 0.0
        self._verdict: AttemptFinished | None = None
        self._out: list[Effect] = []
        self._doors: dict[type, Callable[[Any, float], None]] = {
            Started: self._started,
            AttemptAccepted: self._attempt_accepted,
            PlanReady: self._plan_ready,
            ContainersGranted: self._containers_granted,
            StartAnswered: self._start_answered,
            TasksEnded: self._tasks_ended,
            AttemptUnregistered: self._unregistered,
            AttemptStopped: self._stopped,
            StopRequested: self._stop_requested,
            TimerFired: self._timer_fired,
        }

    def handle(self, event: Any, now: float) -> list[Effect]:
        """Tell the master what happened; answers with what to do, in order."""
        door = self._doors.get(type(event))
        if door is None:
            raise InvariantError(f"an application master takes no {type(event).__name__}")
        door(event, now)
        self._launcher.flush(self._out)
        if self._prompt and not self._ask_armed and self._wants_to_ask():
            self._ask_armed = True
            self._out.append(SetTimer(0.0, "ask"))
        out, self._out = self._out, []
        return out

    def check(self) -> None:
        """Raise InvariantError when the books contradict themselves."""
        self._book.check()
        if self._progress is not None:
            self._progress.check()
            self._check_containers(self._progress)

    def history_record(self) -> Mapping[str, Mapping[str, float]]:
        """What this run adds to the history of its job's key."""
        return self._estimates.record() if self._estimates is not None else {}

    # -- registering and planning ------------------------------------------------------------------

    def _move(self, event: MasterEvent) -> None:
        self.state = MASTER.next(self.state, event)

    def _started(self, event: Started, now: float) -> None:
        if self.state is MasterState.NEW:
            self._move(MasterEvent.START)
            self._register()

    def _register(self) -> None:
        self._registering = True
        self._send(AttemptRegistered(self.attempt_id, self._settings.address))
        self._out.append(SetTimer(self._settings.resend_s, "register"))

    def _attempt_accepted(self, event: AttemptAccepted, now: float) -> None:
        if event.attempt_id != self.attempt_id or not self._registering:
            return
        self._registering = False
        self._out.append(SetTimer(None, "register"))
        self._heartbeat_s, self._prompt = event.heartbeat_s, event.prompt
        if self.state is not MasterState.REGISTERING:
            self._accepted_again(event)
            return
        self._move(MasterEvent.ACCEPT)
        self._accepted, self.job = event, event.job
        self._estimates = Estimates(event.job, self._settings.history, self._settings.estimates)
        self._unreported.extend(event.finished)
        self._launcher.prepare(event.job, event.types)
        self._view.share = event.share
        self._view.capacity = totals(event.machines)
        self._out.append(SetTimer(self._heartbeat_s, "heartbeat"))
        if not self._settings.planner:
            self._begin(None)
            return
        self._out.append(
            MakePlan(
                self._settings.planner, self._estimates.applied(), event.types, event.machines,
                event.seed, self._settings.planner_options,
            )
        )  # fmt: skip

    def _accepted_again(self, event: AttemptAccepted) -> None:
        """The manager restarted and took the attempt back: it knows no ask any more."""
        self._view.share = event.share
        self._book.restart()
        for held in self._launcher.held.values():
            if held.stopping:
                self._book.release(held.container_id)
        if self._blacklist:
            self._book.blacklist(tuple(sorted(self._blacklist)))
        if self._verdict is not None:
            self._send(self._verdict)

    def _plan_ready(self, event: PlanReady, now: float) -> None:
        if self.state is not MasterState.PLANNING:
            return
        plan, planner = event.plan, self._settings.planner
        if plan is None:
            text = f"planner {planner} failed, breadth first order instead: {event.error}"
            self._note(Remark("warning", text))
        else:
            self._note(
                MasterPlanned(
                    self.attempt_id, plan.planner, plan.makespan_s, event.planning_time_s,
                    plan.candidates,
                )
            )  # fmt: skip
        self._begin(plan)

    def _begin(self, plan: Plan | None) -> None:
        """The order is known: ask from now on."""
        assert self._accepted is not None
        assert self._estimates is not None
        accepted, view = self._accepted, self._view
        self._move(MasterEvent.PLAN)
        progress = self._progress = Progress(accepted.job, self._unreported)
        self._unreported = []
        lots = build_lots(
            accepted.job, accepted.types, view.capacity, plan, self._estimates.base_s,
            self._settings.lots,
        )  # fmt: skip
        progress.adopt(lots)
        view.lots = progress.lots
        view.parents = [
            [
                (parent, kind is not EdgeKind.ONE_TO_ONE)
                for parent, kind in accepted.job.parents_of(s)
            ]
            for s in range(len(accepted.job.stages))
        ]
        self._review = True
        if progress.done:
            self._finish(True, "")

    # -- asking ------------------------------------------------------------------------------------

    def _wants_to_ask(self) -> bool:
        if self.state is not MasterState.RUNNING or self._registering:
            return False
        progress = self._progress
        changed = progress is not None and bool(progress.changed)
        return self._review or self._book.owes or changed

    def _ask(self, now: float) -> None:
        """Let the asker look, then tell the manager what changed; also the heartbeat."""
        progress, estimates = self._progress, self._estimates
        if progress is None or estimates is None:
            self._send(self._book.message(self.attempt_id, now, _no_duration, 0.0, 0.0))
            return
        if progress.changed or self._review:
            self._consult(progress, estimates, now)
        work = self._told_work = self._remaining_work(progress, estimates)
        done = progress.finished / max(progress.tasks, 1)
        self._send(self._book.message(self.attempt_id, now, estimates.duration_s, done, work))

    def _consult(self, progress: Progress, estimates: Estimates, now: float) -> None:
        view, asker = self._view, self._asker
        view.changed = progress.changed
        view.version = progress.version
        if asker.follows_share:
            view.available = [lot for lot in progress.lots if lot.ready]
            view.durations_s = [estimates.duration_s(s) for s in range(len(progress.stages))]
            view.running = [
                RunningTask(held.lot.stage, held.lot.number, held.launched_s)
                for held in self._launcher.held.values()
                if not held.stopping
            ]
        wish = asker.ask(view, now, self._rng)
        for wanted in wish.rows:
            self._book.want(progress.lots[wanted.lot], wanted.kind, wanted.containers)
        progress.changed = {}
        self._review = False
        if wish.wake_after_s is not None:
            self._out.append(SetTimer(wish.wake_after_s, "wake"))

    def _remaining_work(self, progress: Progress, estimates: Estimates) -> float:
        """srpt: sum over unstarted tasks of duration x L1 norm (ALGORITHMS section 7)."""
        factor = estimates.factor
        return sum(lot.unstarted_s * factor[lot.stage] * lot.norm for lot in progress.lots)

    # -- grants ------------------------------------------------------------------------------------

    def _containers_granted(self, event: ContainersGranted, now: float) -> None:
        if event.attempt_id != self.attempt_id:
            return
        if event.resync:
            self._resync()
            return
        if self.state not in (MasterState.RUNNING, MasterState.PLANNING):
            return
        self._book.received(event.response_id, event.acks)
        if event.containers:
            self._take_containers(event.containers, now)
        for end in event.ended:
            self._container_ended(end, now)
        if event.share and event.share != self._view.share:
            self._view.share = event.share
            self._review = self._review or self._asker.follows_share

    def _resync(self) -> None:
        if not self._registering and MASTER.allows(self.state, MasterEvent.RESYNC):
            self._move(MasterEvent.RESYNC)
            self._register()

    def _take_containers(self, containers: tuple[Container, ...], now: float) -> None:
        seen, book, progress = self._seen, self._book, self._progress
        for container_id, node, ask_id in containers:
            if container_id in seen:
                if container_id in self._ended_first:
                    self._ended_first.discard(container_id)
                    self._want_again(ask_id)
                continue
            seen.add(container_id)
            row = book.granted(ask_id)
            if row is None or progress is None or node in self._blacklist:
                book.release(container_id)
                if row is not None and progress is not None:
                    progress.changed[row.lot.number] = row.lot
                continue
            lot = row.lot if row.lot.ready else self._other_lot(progress, row.lot)
            rank = -1 if lot is None else progress.take(lot)
            if lot is None or rank < 0:
                book.release(container_id)
                continue
            task = lot.tasks[rank]
            attempt = progress.stages[lot.stage].tries.get(task, 0)
            self._launcher.start(Held(container_id, node, lot, task, attempt, now))
        if self._asker.follows_share:
            self._review = True

    def _want_again(self, ask_id: int) -> None:
        """A container ended before its grant arrived: it never ran anything."""
        row = self._book.granted(ask_id)
        if row is not None and self._progress is not None:
            self._progress.changed[row.lot.number] = row.lot

    def _other_lot(self, progress: Progress, lot: Lot) -> Lot | None:
        """Another lot of the stage that the container serves as well."""
        for other in progress.stages[lot.stage].lots:
            if other.ready and other.demand == lot.demand and other.label == lot.label:
                progress.changed[other.number] = other  # less is wanted there now
                return other
        return None

    def _start_answered(self, event: StartAnswered, now: float) -> None:
        if event.attempt_id != self.attempt_id:
            return
        unanswered = self._launcher.unanswered
        for item in event.items:
            held = unanswered.pop(item.container_id, None)
            if held is not None and item.error:
                self._book.release(item.container_id)  # refused: the task runs elsewhere
                self._drop(held)

    # -- ends --------------------------------------------------------------------------------------

    def _tasks_ended(self, event: TasksEnded, now: float) -> None:
        """Ends inside reusable containers; none are held by this kind of asker."""

    def _container_ended(self, end: ContainerEnd, now: float) -> None:
        held = self._launcher.held.pop(end.container_id, None)
        if held is None:
            self._unknown_ended(end)
            return
        self._launcher.unanswered.pop(end.container_id, None)
        progress, estimates = self._progress, self._estimates
        if progress is None or estimates is None:
            return
        lot = held.lot
        stage = progress.stages[lot.stage]
        if end.outcome is Outcome.SUCCEEDED:
            if held.task in stage.copies:
                self._stop_copies(held)
            if progress.finish(stage, held.task):
                if estimates.observe(lot.stage, lot.declared_of(held.task), end.run_s):
                    self._estimate_changed(progress, lot.stage)
                if progress.done:
                    self._finish(True, "")
        elif end.outcome in (Outcome.FAILED, Outcome.OUT_OF_MEMORY) and not held.stopping:
            self._task_failed(progress, held, end)
        else:
            progress.give_back(stage, held.task)
        if self._asker.follows_share:
            self._review = True

    def _unknown_ended(self, end: ContainerEnd) -> None:
        """A doubled end, one that overtook its grant, or one of an earlier attempt's tasks."""
        if attempt_of_container(end.container_id) == self.attempt_id:
            if end.container_id not in self._seen:
                self._seen.add(end.container_id)
                self._ended_first.add(end.container_id)
            return
        same_app = app_of_container(end.container_id) == app_of_container(self.attempt_id << 32)
        if not same_app or end.outcome is not Outcome.SUCCEEDED or end.stage < 0:
            return
        if self._progress is None:
            self._unreported.append(FinishedTask(end.stage, end.task, end.run_s))
            return
        copies = [
            held
            for held in self._launcher.held.values()
            if held.lot.stage == end.stage and held.task == end.task
        ]
        if self._progress.finish_early(end.stage, end.task):
            for held in copies:
                self._release_running(held)
            if self._progress.done:
                self._finish(True, "")

    def _task_failed(self, progress: Progress, held: Held, end: ContainerEnd) -> None:
        stage = progress.stages[held.lot.stage]
        progress.failed += 1
        failures = stage.failures[held.task] = stage.failures.get(held.task, 0) + 1
        self._count_node_failure(held.node)
        job = self.job
        assert job is not None
        if failures < job.max_task_attempts:
            progress.give_back(stage, held.task)
            return
        progress.give_back(stage, held.task)
        why = "out of memory" if end.outcome is Outcome.OUT_OF_MEMORY else f"exit {end.exit_code}"
        message = f": {end.message}" if end.message else ""
        name = job.stages[held.lot.stage].name
        text = f"stage {name!r} task {held.task} failed {failures} times, last on {held.node}, "
        self._finish(False, f"{text}{why}{message}")

    def _count_node_failure(self, node: str) -> None:
        count = self._node_failures[node] = self._node_failures.get(node, 0) + 1
        assert self._accepted is not None
        nodes = sum(number for _, number in self._accepted.machines)
        if count < self._settings.node_failures_max or node in self._blacklist:
            return
        if len(self._blacklist) + 1 > self._settings.blacklist_share_max * nodes:
            return  # the job is at fault rather than the nodes, as YARN's masters reckon
        self._blacklist.add(node)
        self._book.blacklist(tuple(sorted(self._blacklist)))
        self._note(Remark("warning", f"node {node} is blacklisted after {count} failed tasks"))

    def _drop(self, held: Held) -> None:
        """A container came to nothing: its task is ready again."""
        self._launcher.held.pop(held.container_id, None)
        if self._progress is not None:
            self._progress.give_back(self._progress.stages[held.lot.stage], held.task)

    def _stop_copies(self, winner: Held) -> None:
        """The first copy to finish wins."""
        for held in self._launcher.held.values():
            if held.task == winner.task and held.lot.stage == winner.lot.stage:
                self._release_running(held)

    def _release_running(self, held: Held) -> None:
        if not held.stopping:
            self._launcher.stop(held)
            self._book.release(held.container_id)

    def _estimate_changed(self, progress: Progress, stage: int) -> None:
        for lot in progress.stages[stage].lots:
            self._book.touch(lot)
        self._review = self._review or self._asker.follows_share

    # -- finishing ---------------------------------------------------------------------------------

    def _finish(self, succeeded: bool, diagnostics: str) -> None:
        if self.state is not MasterState.RUNNING:
            return
        self._move(MasterEvent.FINISH)
        for held in self._launcher.held.values():
            self._launcher.stop(held)
        self._launcher.unanswered.clear()
        for key in ("heartbeat", "ask", "wake"):
            self._out.append(SetTimer(None, key))
        self._note_progress()
        self._verdict = AttemptFinished(self.attempt_id, succeeded, diagnostics)
        self._send(self._verdict)
        self._out.append(SetTimer(self._settings.resend_s, "finish"))

    def _unregistered(self, event: AttemptUnregistered, now: float) -> None:
        if event.attempt_id == self.attempt_id and self.state is MasterState.FINISHING:
            self._leave(MasterEvent.ACKNOWLEDGE, "finished")

    def _stopped(self, event: AttemptStopped, now: float) -> None:
        if event.attempt_id == self.attempt_id and self.state is not MasterState.STOPPED:
            for held in self._launcher.held.values():
                self._launcher.stop(held)
            self._leave(MasterEvent.STOP, event.reason)

    def _stop_requested(self, event: StopRequested, now: float) -> None:
        if self.state is not MasterState.STOPPED:
            self._leave(MasterEvent.STOP, "stopped on request")

    def _leave(self, event: MasterEvent, reason: str) -> None:
        self._move(event)
        self._launcher.unanswered.clear()
        for key in ("register", "heartbeat", "ask", "wake", "finish"):
            self._out.append(SetTimer(None, key))
        self._out.append(Stop(reason))

    # -- timers and notes --------------------------------------------------------------------------

    def _timer_fired(self, event: TimerFired, now: float) -> None:
        key = event.key
        if key == "ask":
            self._ask_armed = False
            if self._wants_to_ask():
                self._ask(now)
        elif key == "heartbeat":
            self._heartbeat(now)
        elif key == "wake":
            self._review = self.state is MasterState.RUNNING
        elif key == "register":
            if self._registering and self.state is not MasterState.STOPPED:
                self._register()
        elif key == "finish" and self.state is MasterState.FINISHING and self._verdict:
            self._send(self._verdict)
            self._out.append(SetTimer(self._settings.resend_s, "finish"))

    def _heartbeat(self, now: float) -> None:
        if self.state not in (MasterState.PLANNING, MasterState.RUNNING):
            return
        self._launcher.repeat(now, self._settings.resend_s)
        if not self._registering:
            self._ask(now)
        self._note_progress()
        self._out.append(SetTimer(self._heartbeat_s, "heartbeat"))

    def _note_progress(self) -> None:
        progress = self._progress
        if progress is None:
            return
        pending = progress.tasks - progress.running - progress.finished
        counts = (pending, progress.running, progress.finished, progress.failed)
        if counts != self._noted:
            self._noted = counts
            self._note(JobProgressed(self.attempt_id, *counts))

    def _send(self, message: Any) -> None:
        self._out.append(Send(MANAGER, message))

    def _note(self, fact: Fact) -> None:
        self._out.append(Note(fact))

    def _check_containers(self, progress: Progress) -> None:
        copies: dict[tuple[int, int], int] = {}
        for container_id, held in self._launcher.held.items():
            if container_id not in self._seen:
                raise InvariantError(f"container {container_id} is held but was never granted")
            key = (held.lot.stage, held.task)
            copies[key] = copies.get(key, 0) + 1
        if self.state is not MasterState.RUNNING:
            return
        running = sum(
            1
            for (stage, task) in copies
            if progress.stages[stage].state[task] == 2  # RUNNING
        )
        if running != progress.running:
            raise InvariantError(f"{progress.running} tasks run, {running} have a container")
        for lot in progress.lots:
            wanted = sum(row.wanted for row in lot.rows if row is not None)
            if wanted > len(lot.ready) and lot.number not in progress.changed:
                raise InvariantError(f"lot {lot.number} asks for more than it can start")


def _no_duration(stage: int) -> float:
    return 0.0
