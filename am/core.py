"""The Application Master of one attempt: plans, asks, starts tasks, follows their ends, finishes.

`handle(event, now)` is the only way in; time and chance are arguments. Messages may be lost,
doubled or late: what is owed is repeated until answered, what is known is dropped by id.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from am.ask.registry import Asker, HoldAsker
from am.job_state import JobState
from am.lifecycle import MASTER, MasterAction, MasterEvent, MasterState
from am.recorded import RecordedExecution
from am.reuse import PoolExecution
from am.settings import MasterSettings
from am.work import JobExecution
from weft.model.ids import AttemptId
from weft.model.job import Job
from weft.protocol.effects import (
    Effect,
    Note,
    PlanReady,
    Send,
    SetTimer,
    Started,
    Stop,
    StopRequested,
    TimerFired,
)
from weft.protocol.event_unions import MasterTold, UnknownEventError
from weft.protocol.facts import JobProgressed, MasterPlanned, Remark
from weft.protocol.messages import (
    MANAGER,
    AttemptAccepted,
    AttemptFinished,
    AttemptRegistered,
    AttemptStopped,
    AttemptUnregistered,
    ContainersGranted,
    FinishedTask,
    StartAnswered,
    TasksEnded,
)

AnyWork = JobExecution | PoolExecution | RecordedExecution
_RUNNING: Final = MasterState.RUNNING
REGISTER, PLAN, HEARTBEAT, ASK, WAKE, FINISH = TIMERS = (
    "register",
    "plan",
    "heartbeat",
    "ask",
    "wake",
    "finish",
)


class ApplicationMaster:
    """One attempt at one job. `job` is known once the manager has accepted the attempt."""

    def __init__(
        self,
        attempt_id: AttemptId,
        settings: MasterSettings,
        asker: Asker | HoldAsker,
        rng: np.random.Generator,
    ) -> None:
        self.attempt_id = attempt_id
        self.state = MASTER.initial
        self.job: Job | None = None
        self._settings = settings
        self._asker = asker
        self._rng = rng
        self._work: AnyWork | None = None
        self._heartbeat_s = 1.0
        self._prompt = False
        self._ask_armed = False
        self._registering = False
        self._noted: tuple[int, ...] = ()
        self._verdict: AttemptFinished | None = None
        self._out: list[Effect] = []

    def handle(self, event: MasterTold, now: float) -> list[Effect]:
        """Handle an event at `now` (s); return what to do, in order."""
        door = _DOORS.get(type(event))
        if door is None:
            raise UnknownEventError("an application master", event)
        door(self, event, now)
        work = self._work
        if work is not None and self.state is _RUNNING:
            again_s = work.settle(now)
            if again_s is not None:
                self._out.append(SetTimer(again_s, WAKE))
            state = work.state
            if state.verdict is not None:
                self._verdict = AttemptFinished(self.attempt_id, *state.verdict)
                self._step(MasterEvent.FINISH)
            if work.launcher.due:
                work.launcher.flush(self._out)
            if state.notes:
                self._out.extend(Note(fact) for fact in state.notes)
                state.notes.clear()
            if self._prompt and not self._ask_armed and self._may_ask and work.wants_to_ask:
                self._ask_armed = True
                self._out.append(SetTimer(0.0, ASK))
        out, self._out = self._out, []
        return out

    @property
    def silent(self) -> bool:
        """Whether a heartbeat now would change nothing (the simulator leaves such beats out)."""
        work = self._work
        return (
            work is not None
            and self.state is _RUNNING
            and not self._registering
            and not self._settings.speculate
            and work.silent
        )

    def check(self) -> None:
        """Raise InvariantError when the books contradict themselves."""
        if self._work is not None and self.state is MasterState.RUNNING:
            self._work.check()

    def history_record(self) -> Mapping[str, Mapping[str, float]]:
        """Return what this run adds to its job's history key (`am.estimates.merge_history`)."""
        return self._work.state.estimates.record() if self._work is not None else {}

    # -- registering and planning ------------------------------------------------------------------

    def _started(self, event: Started, now: float) -> None:
        if MASTER.allows(self.state, MasterEvent.START):
            self._step(MasterEvent.START)

    def _register(self) -> None:
        self._registering = True
        held = () if self._work is None else self._work.holdings()
        address = self._settings.address
        self._send(AttemptRegistered(self.attempt_id, address, held, takes_over=True))
        self._out.append(SetTimer(self._settings.resend_s, REGISTER))

    def _attempt_accepted(self, event: AttemptAccepted, now: float) -> None:
        if event.attempt_id != self.attempt_id or not self._registering:
            return
        self._registering = False
        self._out.append(SetTimer(None, REGISTER))
        master = event.job.master
        recorded = master is not None and master.recorded is not None
        self._heartbeat_s, self._prompt = event.heartbeat_s, event.prompt or recorded
        if self.state is MasterState.REGISTERING:
            self._begin(event, now)
        else:
            self._accepted_again(event, now)

    def _begin(self, event: AttemptAccepted, now: float) -> None:
        settings, asker = self._settings, self._asker
        self._step(MasterEvent.ACCEPT)
        self.job = event.job
        master = event.job.master
        if master is not None and master.recorded is not None:
            recorded = RecordedExecution(self.attempt_id, settings, master.recorded, event, now)
            self._follow(recorded, event)
            self._adopt(recorded, None)
            return
        state = JobState(self.attempt_id, settings, event)
        work: JobExecution | PoolExecution
        # The protocol's check inspects every attribute, so ask for one before.
        if hasattr(asker, "hold") and isinstance(asker, HoldAsker):
            work = PoolExecution(state, asker, self._rng)
        else:
            work = JobExecution(state, asker, self._rng)
        self._follow(work, event)
        if not settings.planner or work.progress.done or isinstance(work, PoolExecution):
            self._adopt(work, None)
            return
        self._out.append(state.order_plan())
        self._out.append(SetTimer(settings.plan_wait_s, PLAN))

    def _see_machines(self, event: AttemptAccepted | ContainersGranted) -> None:
        """Go by machines that came after this master did, and by a plan for them."""
        work = self._work
        if work is None or isinstance(work, RecordedExecution):
            return
        if work.see_machines(event):
            self._out.append(work.state.order_plan())

    def _follow(self, work: AnyWork, event: AttemptAccepted) -> None:
        self._work = work
        work.book.epoch = event.epoch
        self._out.append(SetTimer(self._heartbeat_s, HEARTBEAT))

    def _accepted_again(self, event: AttemptAccepted, now: float) -> None:
        """Go on after a restart of the manager, which took the attempt back and tells its ends."""
        work = self._work
        if work is None:
            return
        work.restart(now)
        work.book.epoch = event.epoch
        work.state.follow_share(event.share)
        self._see_machines(event)
        for done in event.finished:
            work.state.finish_early(FinishedTask(*done))
        known = {number for number, _ in work.holdings()}
        for container in event.held:
            if container.container_id not in known:
                # It was held for a takeover that does not happen.
                work.book.release(container.container_id)
        if self._verdict is not None:
            self._send(self._verdict)

    def _plan_ready(self, event: PlanReady, now: float) -> None:
        work, plan = self._work, event.plan
        may = MASTER.allows(self.state, MasterEvent.PLAN)
        if work is None or isinstance(work, RecordedExecution) or not may:
            return
        self._out.append(SetTimer(None, PLAN))
        if work.state.plan_came():
            self._out.append(work.state.order_plan())
        error = event.error
        if plan is not None and len(plan.pri_score) != work.progress.tasks:
            error = f"a plan of {len(plan.pri_score)} tasks for {work.progress.tasks}"
            plan = None
        if plan is None:
            instead = "its order stays" if self.state is _RUNNING else "breadth first instead"
            text = f"planner {self._settings.planner} failed, {instead}: {error}"
            self._out.append(Note(Remark("warning", text)))
            if self.state is MasterState.PLANNING:
                self._adopt(work, None)
            return
        planned = MasterPlanned(
            self.attempt_id, plan.planner, plan.makespan_s, event.planning_time_s, plan.candidates
        )
        self._out.append(Note(planned))
        self._step(MasterEvent.PLAN)
        work.adopt(plan)

    def _adopt(self, work: AnyWork, plan: None) -> None:
        self._step(MasterEvent.PLAN)
        work.adopt(plan)

    # -- while it runs -----------------------------------------------------------------------------

    @property
    def _may_ask(self) -> bool:
        return self.state is _RUNNING and not self._registering

    def _ask(self, work: AnyWork, now: float) -> None:
        again_s = work.consult(now)
        if again_s is not None:
            self._out.append(SetTimer(again_s, WAKE))
        self._out.append(Send(MANAGER, work.message(now)))

    def _containers_granted(self, event: ContainersGranted, now: float) -> None:
        """Handle the manager's answer to a request, in both paces.

        `resync` says that the manager does not know this attempt's asks: it restarted. The answer
        is to register anew, once, whichever copy of that word comes first; while that lasts nothing
        is asked, as asks of one life mean nothing to the other.
        """
        if event.attempt_id != self.attempt_id:
            return
        if event.resync:
            known = self._work is not None and self._work.book.epoch == event.epoch
            if known or self._registering:
                # The message was doubled or late.
                return
            if MASTER.allows(self.state, MasterEvent.RESYNC):
                self._step(MasterEvent.RESYNC)
            return
        work = self._work
        if work is None or self.state not in (MasterState.PLANNING, MasterState.RUNNING):
            return
        work.book.received(event.response_id, event.acks)
        if event.racks:
            work.state.racks.update(event.racks)
        if event.containers and not work.state.gangs.stages:
            work.take(event.containers, now)
        if event.ended:
            work.ended(event.ended, now)
        # A gang is taken after the ends, as what ended spoils its start.
        if event.containers and work.state.gangs.stages:
            work.take(event.containers, now)
        if event.preempt:
            work.preempted(event.preempt)
        if event.share:
            work.state.follow_share(event.share)
        if event.machines:
            self._see_machines(event)

    def _start_answered(self, event: StartAnswered, now: float) -> None:
        if event.attempt_id == self.attempt_id and self._work is not None:
            self._work.start_answered(event, now)

    def _tasks_ended(self, event: TasksEnded, now: float) -> None:
        if event.attempt_id == self.attempt_id and self._work is not None:
            self._work.tasks_ended(event, now)

    # -- finishing ---------------------------------------------------------------------------------

    def _report(self) -> None:
        """Tell the manager how the job ended, after all that is held was asked to stop."""
        assert self._work is not None
        assert self._verdict is not None
        self._work.stop_all()
        self._cancel(PLAN, HEARTBEAT, ASK, WAKE)
        self._note_progress(self._work)
        self._send_verdict(self._verdict)

    def _send_verdict(self, verdict: AttemptFinished) -> None:
        self._send(verdict)
        self._out.append(SetTimer(self._settings.resend_s, FINISH))

    def _unregistered(self, event: AttemptUnregistered, now: float) -> None:
        known = event.attempt_id == self.attempt_id
        if known and MASTER.allows(self.state, MasterEvent.ACKNOWLEDGE):
            self._leave(MasterEvent.ACKNOWLEDGE, "finished")

    def _stopped(self, event: AttemptStopped, now: float) -> None:
        if event.attempt_id == self.attempt_id and MASTER.allows(self.state, MasterEvent.STOP):
            # The manager stops what this attempt holds, or keeps it for the next attempt.
            self._leave(MasterEvent.STOP, event.reason)

    def _stop_requested(self, event: StopRequested, now: float) -> None:
        if MASTER.allows(self.state, MasterEvent.STOP):
            self._leave(MasterEvent.STOP, "stopped on request")

    def _leave(self, event: MasterEvent, reason: str) -> None:
        self._step(event)
        self._out.append(Stop(reason))

    # -- timers and notes --------------------------------------------------------------------------

    def _timer_fired(self, event: TimerFired, now: float) -> None:
        key, work = event.key, self._work
        if key == ASK:
            self._ask_armed = False
            if work is not None and self._may_ask and work.wants_to_ask:
                self._ask(work, now)
        elif key == HEARTBEAT:
            self._heartbeat(now)
        elif key == WAKE and work is not None:
            work.wake()
        elif key == REGISTER:
            if self._registering and self.state is not MasterState.STOPPED:
                self._register()
        elif key == PLAN:
            if work is not None and self.state is MasterState.PLANNING:
                text = f"no plan after {self._settings.plan_wait_s:g} s, breadth first until then"
                self._out.append(Note(Remark("info", text)))
                self._adopt(work, None)
        elif key == FINISH and self.state is MasterState.FINISHING and self._verdict is not None:
            self._send_verdict(self._verdict)

    def _heartbeat(self, now: float) -> None:
        work = self._work
        if work is None or self.state not in (MasterState.PLANNING, MasterState.RUNNING):
            return
        settings = self._settings
        if work.launcher.waits:
            work.launcher.repeat(now, settings.resend_s)
        if settings.speculate:
            work.speculate(now)
        buggify = settings.buggify
        if not self._registering and not (buggify and buggify("a master skips a heartbeat")):
            self._ask(work, now)
        self._note_progress(work)
        self._out.append(SetTimer(self._heartbeat_s, HEARTBEAT))

    def _note_progress(self, work: AnyWork) -> None:
        progress = work.progress
        pending = progress.tasks - progress.running - progress.finished
        counts = (pending, progress.running, progress.finished, progress.failed)
        if counts != self._noted:
            self._noted = counts
            self._out.append(Note(JobProgressed(self.attempt_id, *counts)))

    def _step(self, event: MasterEvent) -> None:
        self.state, action = MASTER.step(self.state, event)
        if action is MasterAction.REGISTER:
            self._register()
        elif action is MasterAction.REPORT:
            self._report()
        elif action is MasterAction.LEAVE:
            self._cancel(*TIMERS)

    def _send(self, message: AttemptRegistered | AttemptFinished) -> None:
        self._out.append(Send(MANAGER, message))

    def _cancel(self, *timers: str) -> None:
        self._out.extend(SetTimer(None, key) for key in timers)


# Of the class, not bound to each master: one that ended is then freed at once, without a collector.
_DOORS: dict[type, Callable[[ApplicationMaster, Any, float], None]] = {
    Started: ApplicationMaster._started,
    AttemptAccepted: ApplicationMaster._attempt_accepted,
    PlanReady: ApplicationMaster._plan_ready,
    ContainersGranted: ApplicationMaster._containers_granted,
    StartAnswered: ApplicationMaster._start_answered,
    TasksEnded: ApplicationMaster._tasks_ended,
    AttemptUnregistered: ApplicationMaster._unregistered,
    AttemptStopped: ApplicationMaster._stopped,
    StopRequested: ApplicationMaster._stop_requested,
    TimerFired: ApplicationMaster._timer_fired,
}

__all__ = ["ApplicationMaster", "MasterSettings"]
