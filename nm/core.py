"""The Node Manager: runs containers on one host and reports their ends until they are known.

What arrives twice is done once: a container is known by its id while it lives and, as a tombstone,
for some time after. A stop order that overtakes its start is remembered and the start refused.
"""

from collections.abc import Callable, Mapping
from math import inf
from typing import Any, Final

import numpy as np

from nm.lifecycle import NODE, NodeAction, NodeEvent, NodeState
from nm.runner import TAKEN_OVER, Runner
from nm.settings import NodeSettings
from weft.model.ids import AttemptId, ContainerId, NodeId
from weft.model.resources import ResourceTypes, Vector
from weft.protocol.effects import (
    Clean,
    ContainersMeasured,
    Effect,
    Heard,
    NodeExamined,
    NodeSlowed,
    Note,
    ProcessEnded,
    ProcessesFound,
    Send,
    SetTimer,
    Started,
    Stop,
    StopRequested,
    TimerFired,
)
from weft.protocol.event_unions import NodeTold, UnknownEventError
from weft.protocol.facts import Remark
from weft.protocol.messages import (
    MANAGER,
    BegunTask,
    ContainerEnd,
    ContainerUse,
    ItemAnswer,
    NodeAccepted,
    NodeAnswered,
    NodeHeartbeated,
    NodeRegistered,
    NodeUnregistered,
    QueryContainers,
    StartAnswered,
    StartContainers,
    StopContainers,
    TaskEnd,
    TasksEnded,
    launches_of,
)
from weft.protocol.outbox import Outbox

_RUNNING: Final = NodeState.RUNNING
_STOPPED: Final = NodeState.STOPPED
ASKED_TO_STOP = "asked to stop"
BOOT_MAX = 1 << 53
# The numbers of a process's reports begin with this much of its name (`boot`), so those of two
# processes of a node differ.
BOOT_MODULUS, REPORT_BITS = 1 << 31, 22
TICK_S = 1e-6
PROBE_TIMEOUT_HEARTBEATS = 3.0
HEARTBEAT, REPORT, REGISTER, TASKS = "heartbeat", "report", "register", "tasks"


class NodeManager:
    """One node. `rng` spreads the heartbeats of many nodes over their interval.

    `boot` names this process of the node: another one has another, or the Resource Manager takes
    what both say for the words of one. By default it is drawn from `rng`.
    """

    __slots__ = (
        "_acks",
        "_apps_leave_files",
        "_beating",
        "_begun_told_s",
        "_boot",
        "_cluster_ts",
        "_expiry_s",
        "_fired_early",
        "_handlers",
        "_heartbeat_s",
        "_heartbeat_timer",
        "_known_health",
        "_lease_lapsed",
        "_lease_start_s",
        "_life",
        "_missing_isolation",
        "_newest_registration",
        "_outbox",
        "_probe",
        "_prompt",
        "_registration",
        "_report_timer_set",
        "_reported_use",
        "_rng",
        "_runner",
        "_settings",
        "_tasks_timer_s",
        "_timer_interval_s",
        "_token",
        "_types",
        "_unacknowledged_health",
        "_unhealthy_reason",
        "node_id",
        "state",
    )

    def __init__(
        self,
        node_id: NodeId,
        address: str,
        capacity: Mapping[str, float],
        rack: str,
        labels: tuple[str, ...],
        settings: NodeSettings,
        rng: np.random.Generator,
        boot: int = 0,
        lacking: str = "",
        files: bool = False,
    ) -> None:
        self.node_id = node_id
        self.state = NODE.initial
        self._registration = (address, rack, labels, dict(capacity))
        self._apps_leave_files = files
        self._missing_isolation = lacking
        self._settings = settings
        self._rng = rng
        self._runner = Runner(node_id, settings)
        self._acks: list[int] = []
        # None until the manager accepts the node.
        self._types: ResourceTypes | None = None
        self._boot = boot or int(rng.spawn(1)[0].integers(1, BOOT_MAX))
        # These are not the numbers of an earlier process.
        first = 1 + (self._boot % BOOT_MODULUS << REPORT_BITS)
        self._outbox: Outbox[Any, Any] = Outbox(
            settings.resend_after_s, first, lossless=settings.lossless
        )
        self._runner.outbox = self._outbox
        # The start of the cluster that accepted the node, and the life of the manager that did or
        # asked it to register, which wants its token repeated.
        self._cluster_ts = 0
        self._life = 0
        self._token = 0
        # The number of the newest registration, and when it was first sent.
        self._newest_registration = (first, 0.0)
        self._expiry_s = inf
        # When the newest report was sent that the manager answered; without a newer answer nothing
        # may begin here after the expiry.
        self._lease_start_s = 0.0
        self._lease_lapsed = False
        # The number of a report whose answer is waited for, and when it was sent.
        self._probe = (0, 0.0)
        # The interval that the manager asked for, and the one of the timer that is set.
        self._heartbeat_s = self._timer_interval_s = 0.0
        self._heartbeat_timer = SetTimer(0.0, HEARTBEAT)
        self._beating = False
        self._prompt = False
        self._unhealthy_reason = ""
        # What the manager knows of the host's health; None: nobody can say.
        self._known_health: str | None = ""
        # as said since the report, or in the registration, of a number
        self._unacknowledged_health: tuple[float, str | None] = (inf, "")
        self._report_timer_set = False
        self._tasks_timer_s = inf
        # Whether that timer fired before anything was due.
        self._fired_early = False
        self._reported_use: Vector = ()
        # Tasks that began before are told.
        self._begun_told_s = 0.0
        self._handlers: dict[type, Callable[[Any, float, list[Effect]], None]] = {
            StartContainers: self._on_start,
            TimerFired: self._on_timer,
            NodeAnswered: self._on_answer,
            StopContainers: self._on_stop,
            NodeAccepted: self._on_accepted,
            ProcessEnded: self._runner.process_ended,
            ContainersMeasured: self._runner.measured,
            QueryContainers: self._on_query,
            Started: self._on_started,
            ProcessesFound: self._runner.found,
            NodeSlowed: self._on_slowed,
            NodeExamined: self._on_examined,
            StopRequested: self._on_stop_requested,
            Heard: self._on_heard,
        }

    # -- the door ----------------------------------------------------------------------------------

    def handle(self, event: NodeTold, now: float) -> list[Effect]:
        """Handle an event at `now` (s); return what to do, in order."""
        effects: list[Effect] = []
        if self.state is _STOPPED:
            return effects
        runner = self._runner
        # What was due before comes first, even if its timer is late.
        if self._tasks_timer_s <= now:
            runner.end_due(now, effects)
        # Most events are timers.
        if type(event) is TimerFired:
            self._on_timer(event, now, effects)
        else:
            handler = self._handlers.get(type(event))
            if handler is None:
                raise UnknownEventError("a node manager", event)
            handler(event, now, effects)
        if runner.emulation.next_end_s != self._tasks_timer_s:
            self._set_timer(now, effects)
        elif self._fired_early:
            self._fired_early = False
        if (
            self._prompt
            and not self._report_timer_set
            and self._outbox.fresh
            and self.state is _RUNNING
        ):
            self._report_timer_set = True
            effects.append(SetTimer(0.0, REPORT))
        return effects

    def check(self) -> None:
        """Raise InvariantError where the node's books contradict themselves."""
        self._runner.check()

    def _rarely(self, point: str) -> bool:
        buggify = self._settings.buggify
        return buggify is not None and buggify(point)

    @property
    def owes(self) -> bool:
        """Whether the manager does not know of all ends yet."""
        return self._outbox.owes

    @property
    def silent(self) -> bool:
        """Whether a heartbeat now would say nothing (the simulator leaves such beats out)."""
        box, runner = self._outbox, self._runner
        return (
            self.state is _RUNNING
            and not (box.owes or self._acks or runner.had_reusable or runner.measures)
            and (runner.emulation.used or runner.use()) == self._reported_use
            and self._known_health == self._unhealthy_reason
            and self._timer_interval_s == self._heartbeat_s
            and not (self._settings.report_tasks and self._begun())
        )

    @property
    def due_s(self) -> float:
        """The time when the next emulated task ends, s; infinite: none runs."""
        return self._tasks_timer_s

    @property
    def containers(self) -> tuple[ContainerId, ...]:
        """The containers that the node holds."""
        return tuple(self._runner.book.containers)

    def holds(self, container: ContainerId) -> bool:
        """Return whether the node holds a container."""
        return container in self._runner.book.containers

    def owner_of(self, container: ContainerId) -> AttemptId:
        """Return the attempt whose orders a container follows; 0: not here, or one of a run."""
        held = self._runner.book.containers.get(container)
        return 0 if held is None or held.count > 1 else held.owner

    # -- registration and pace ---------------------------------------------------------------------

    def _on_started(self, event: Started, now: float, effects: list[Effect]) -> None:
        self._lease_start_s = now
        self._runner.leave_idle()
        self._newest_registration = (self._newest_registration[0], now)
        self._step(NodeEvent.STARTED, effects)

    def _step(self, event: NodeEvent, effects: list[Effect]) -> None:
        self.state, action = NODE.step(self.state, event)
        if action is NodeAction.REGISTER:
            self._register(effects)
        elif action is NodeAction.REPORT_AGAIN:
            effects.append(SetTimer(None, REGISTER))
            self._outbox.again()
        elif action is NodeAction.UNREGISTER:
            effects.append(Send(MANAGER, NodeUnregistered(self.node_id)))

    def _register(self, effects: list[Effect]) -> None:
        address, rack, labels, capacity = self._registration
        running = self._runner.book.running()
        message = NodeRegistered(
            self.node_id,
            address,
            rack,
            labels,
            capacity,
            running,
            self._boot,
            self._life,
            self._token,
            self._newest_registration[0],
            self._unhealthy_reason,
            self._missing_isolation,
            self._settings.speed,
            self._apps_leave_files,
        )
        number, said = self._newest_registration[0], self._unhealthy_reason
        again = self.state is NodeState.REGISTERING and self._unacknowledged_health[0] == number
        # of a registration that is repeated the manager may have taken any copy
        same = not again or self._unacknowledged_health[1] == said
        self._unacknowledged_health = (number, said if same else None)
        effects.append(Send(MANAGER, message))
        effects.append(SetTimer(self._settings.register_retry_s, REGISTER))

    def _resync(self, life: int, token: int, now: float, effects: list[Effect]) -> None:
        """Register anew with a manager that does not know what runs here.

        What answers an earlier registration says nothing about this one.
        """
        asked = (life or self._life, token)
        if self.state is _RUNNING or asked != (self._life, self._token):
            self._newest_registration = (self._newest_registration[0] + 1, now)
        self._life, self._token = asked
        self._step(NodeEvent.RESYNC, effects)

    def _on_accepted(self, event: NodeAccepted, now: float, effects: list[Effect]) -> None:
        if event.life and self._life and event.life != self._life:
            # a manager that restarted took a late copy of an earlier registration for ours
            self._resync(event.life, 0, now, effects)
            return
        # A late answer does not count: the manager may have given this node up since.
        if event.request_id not in (0, self._newest_registration[0]):
            return
        if event.cluster_ts not in (0, self._cluster_ts):
            # A cluster that began anew gives ids a second time.
            if self._cluster_ts:
                self._runner.forget(now, effects)
            self._cluster_ts = event.cluster_ts
        self._life = self._runner.life = event.life or self._life
        self._lease_start_s = max(self._lease_start_s, self._newest_registration[1])
        self._probe = (0, 0.0)
        self._expiry_s = event.expiry_s or inf
        if self.state is not _RUNNING:
            self._known_health = self._unacknowledged_health[1]
            self._unacknowledged_health = (inf, "")
        self._step(NodeEvent.ACCEPTED, effects)
        self._prompt = event.prompt
        self._heartbeat_s = event.heartbeat_s
        if self._types is None:
            self._types = event.types
            capacity = event.types.vector(self._registration[3], f"capacity of {self.node_id}")
            self._runner.size(event.types, capacity, now)
            self._reported_use = (0.0,) * len(event.types)
        if not self._beating:
            self._beating, self._timer_interval_s = True, self._heartbeat_s
            effects.append(SetTimer(self._heartbeat_s * float(self._rng.random()), HEARTBEAT))

    def _on_timer(self, event: TimerFired, now: float, effects: list[Effect]) -> None:
        key = event.key
        if key == HEARTBEAT:
            self._beat(now, effects, periodic=True)
            pace_s = self._timer_interval_s = self._heartbeat_s
            if self._heartbeat_timer.delay_s != pace_s:
                self._heartbeat_timer = SetTimer(pace_s, HEARTBEAT)
            effects.append(self._heartbeat_timer)
        elif key == TASKS:
            # `handle` ended what was due; a timer may fire a little early, so it is set again where
            # something still runs.
            self._tasks_timer_s = inf
            self._fired_early = True
        elif key == REPORT:
            self._report_timer_set = False
            if self._outbox.fresh:
                self._beat(now, effects, periodic=False)
        elif key == REGISTER and self.state is NodeState.REGISTERING:
            self._register(effects)

    def _beat(self, now: float, effects: list[Effect], *, periodic: bool) -> None:
        settings = self._settings
        if self.state is not _RUNNING:
            return
        if settings.buggify is not None and settings.buggify("a heartbeat is left out"):
            return
        runner = self._runner
        number, items = self._outbox.take(now)
        if settings.lease and (
            not self._probe[0]
            or now - self._probe[1] > PROBE_TIMEOUT_HEARTBEATS * self._heartbeat_s
        ):
            self._probe = (number, now)
        ended: tuple[Any, ...] = tuple(items)
        tasks_ended: tuple[TaskEnd, ...] = ()
        if runner.had_reusable:
            tasks_ended = tuple(item for item in items if isinstance(item, TaskEnd))
            ended = tuple(item for item in items if isinstance(item, ContainerEnd))
        container_use: tuple[ContainerUse, ...] = ()
        if periodic and (runner.had_reusable or runner.measures):
            container_use = runner.measure(now, effects)
        use: Vector = ()
        current = runner.emulation.used or runner.use()
        # A beat at the end of a task would always find the node emptier than it mostly is.
        if (periodic or settings.lossless) and current != self._reported_use:
            use = self._reported_use = current
        acks: tuple[int, ...] = ()
        if self._acks:
            acks, self._acks = tuple(self._acks), []
        unhealthy = self._unhealthy_reason
        begun: tuple[BegunTask, ...] = ()
        # Those that last a heartbeat are told: of the others their ends tell.
        if periodic and settings.report_tasks:
            begun, self._begun_told_s = self._begun(), now
        beat = NodeHeartbeated(
            self.node_id, number, acks, ended, tasks_ended, use, container_use, unhealthy, begun
        )
        if unhealthy != self._known_health or not settings.lossless:
            self._say_health(number)
        effects.append(Send(MANAGER, beat))

    def _begun(self) -> tuple[BegunTask, ...]:
        """Return the tasks that run and that no heartbeat named."""
        runner = self._runner
        return runner.book.begun(self._begun_told_s, in_order=not runner.had_reusable)

    def _say_health(self, number: int) -> None:
        """Note that a report tells the host's health; the manager knows once it has answered."""
        since, said = self._unacknowledged_health
        if self._settings.lossless:
            self._known_health = self._unhealthy_reason
        elif self._unhealthy_reason != (self._known_health if since == inf else said):
            self._known_health, self._unacknowledged_health = None, (number, self._unhealthy_reason)

    def _on_answer(self, event: NodeAnswered, now: float, effects: list[Effect]) -> None:  # noqa: C901, PLR0912
        """Handle orders of the manager, if it is the one that this node registered with.

        A manager that restarted knows nothing of what runs here, and one of before knows nothing of
        what was decided since: of both no order is carried out, and what is reported here goes to
        the one of today, as a registration. An order to start is left unacknowledged while the
        node may not start anything (`_may_start`), so it is sent again; to stop is always right.
        """
        runner = self._runner
        if event.resync:
            if not event.token or self.state is NodeState.REGISTERING:
                self._resync(event.life, event.token, now, effects)
            return
        if event.life and event.life != self._life:
            # of an earlier life of the manager, or of a later one that has not asked yet; either
            # way the manager of today says whether it knows this node
            if self.state is _RUNNING:
                self._resync(event.life, 0, now, effects)
            return
        if event.acks:
            self._outbox.acknowledge(event.acks)
            if self._probe[0] in event.acks:
                self._lease_start_s, self._probe = self._probe[1], (0, 0.0)
            if max(event.acks) >= self._unacknowledged_health[0] and self.state is _RUNNING:
                self._known_health = self._unacknowledged_health[1]
                self._unacknowledged_health = (inf, "")
        if event.next_heartbeat_s:
            self._heartbeat_s = event.next_heartbeat_s
        # The manager repeats its orders to a node that does not know the resource types yet.
        if (event.start or event.stop or event.over or event.spare) and self._types is not None:
            if not event.start or self._may_start(now, effects):
                if not self._settings.lossless:
                    self._acks.append(event.response_id)
                for launch in event.start:
                    runner.start_master(launch, now, effects)
            for container in event.stop:
                if not runner.report_again(container):
                    runner.stop(container, now, effects)
            for container in event.spare:
                if runner.is_spare(container) and not runner.report_again(container):
                    runner.stop(container, now, effects)
            effects.extend(map(Clean, event.over))
        if event.shutdown:
            self._leave(event.shutdown, now, effects)

    def _on_heard(self, event: Heard, now: float, effects: list[Effect]) -> None:
        """Note that idle heartbeats were left out, and that the manager learned of it."""
        self._lease_start_s = max(self._lease_start_s, event.at_s)

    def _set_timer(self, now: float, effects: list[Effect]) -> None:
        """Set the timer for the next end, which is another one than it is set for."""
        next_s = self._tasks_timer_s = self._runner.emulation.next_end_s
        if next_s == inf:
            effects.append(SetTimer(None, TASKS))
        elif self._fired_early:
            # one that was early goes off later than now, however coarse the clock's numbers are
            least_s = TICK_S if next_s > now else 0.0
            effects.append(SetTimer(max(least_s, next_s - now), TASKS))
        else:
            effects.append(SetTimer(next_s - now if next_s > now else 0.0, TASKS))
        self._fired_early = False

    def _may_start(self, now: float, effects: list[Effect]) -> bool:
        """Return whether what the manager granted here may begin, be it a task or a master.

        Not while the node registers, as the manager is being sent what runs here; nor without an
        answer for the expiry: the manager has given up its grants, and has the node register again.
        """
        lapsed = self._settings.lease and now - self._lease_start_s >= self._expiry_s
        if lapsed is not self._lease_lapsed:
            self._lease_lapsed, fields = lapsed, (("node", self.node_id),)
            remark = Remark("info", "starts tasks again", fields)
            if lapsed:
                text = (
                    f"starts no tasks: no report was answered for {now - self._lease_start_s:.1f} s"
                )
                remark = Remark("warning", text, fields)
            effects.append(Note(remark))
        return self.state is _RUNNING and not lapsed

    # -- orders of masters -------------------------------------------------------------------------

    def _on_start(self, event: StartContainers, now: float, effects: list[Effect]) -> None:
        # The sender repeats what is not answered.
        if self._types is None or not self._may_start(now, effects):
            return
        answers: list[ItemAnswer] = []
        # Over lossless links a sender that gets no answer knows that the task runs.
        lossless = self._settings.lossless
        known = event.boot in (0, self._boot)
        runner, attempt = self._runner, event.attempt_id
        for order in event.items:
            if order.tasks and runner.start_run(order, now, effects, known=known):
                if not lossless:
                    first, count = order.container_id, len(order.tasks)
                    answers.append(ItemAnswer(first, order.stage, order.task, count=count))
                continue
            for item in launches_of(order) if order.tasks else (order,):
                error = runner.start(item, now, effects, known=known, by=attempt)
                if error or item.reusable or not lossless:
                    answers.append(ItemAnswer(item.container_id, item.stage, item.task, error))
        if not answers or self._rarely("a start is not answered"):
            return
        message = StartAnswered(self.node_id, attempt, tuple(answers))
        effects.append(Send(runner.master(attempt), message))

    def _on_stop(self, event: StopContainers, now: float, effects: list[Effect]) -> None:
        if self._types is None:
            return
        answers: list[ItemAnswer] = []
        book = self._runner.book
        for container in event.containers:
            held = book.containers.get(container)
            if held is not None and event.attempt_id < held.owner:
                answers.append(ItemAnswer(container, error=TAKEN_OVER))
                continue
            if book.end_of(container) is None:
                self._runner.stop(container, now, effects)
            answers.append(ItemAnswer(container))
        message = StartAnswered(self.node_id, event.attempt_id, tuple(answers))
        effects.append(Send(self._runner.master(event.attempt_id), message))

    def _on_query(self, event: QueryContainers, now: float, effects: list[Effect]) -> None:
        answers: list[ItemAnswer] = []
        ended: list[TaskEnd] = []
        for container in event.containers:
            held = self._runner.held(container)
            if held is None:
                answers.append(ItemAnswer(container, error="no such container runs here"))
                continue
            if not held.claim(event.attempt_id):
                answers.append(ItemAnswer(container, error=TAKEN_OVER))
                continue
            holds: Vector = ()
            if held.reusable:
                holds = held.granted or (0.0,) * len(self._types or ())
            answers.append(ItemAnswer(container, attempt=held.tries, granted=holds))
            answers.extend(
                ItemAnswer(container, stage, task, attempt=attempt)
                for stage, task, attempt in held.tasks
            )
            ended.extend(held.ended.values())
        # Ends go first, so that a master that gets the answer need not guess what became of a task.
        if ended:
            told = TasksEnded(self.node_id, event.attempt_id, tuple(ended), (), now)
            effects.append(Send(self._runner.master(event.attempt_id), told))
        message = StartAnswered(self.node_id, event.attempt_id, tuple(answers))
        effects.append(Send(self._runner.master(event.attempt_id), message))

    # -- the host ----------------------------------------------------------------------------------

    def _on_examined(self, event: NodeExamined, now: float, effects: list[Effect]) -> None:
        """Note the host's health; every heartbeat says it, so that none of them matters."""
        self._unhealthy_reason = event.unhealthy

    def _on_slowed(self, event: NodeSlowed, now: float, effects: list[Effect]) -> None:
        self._runner.emulation.slow(event.speed, now)

    def _on_stop_requested(self, event: StopRequested, now: float, effects: list[Effect]) -> None:
        self._leave(ASKED_TO_STOP, now, effects)

    def _leave(self, reason: str, now: float, effects: list[Effect]) -> None:
        """Leave on purpose: the Resource Manager counts what still runs here as lost."""
        for container in self.containers:
            self._runner.stop(container, now, effects)
        self._step(NodeEvent.STOP, effects)
        effects.append(Stop(reason))
