"""When a waiting or running job will start and end: the manager's state, gone on with many times.

Each time, every task takes its estimate times a ratio that is drawn from what is known of tasks
that ended and run (`sim.replay.estimate_error`). What is drawn for a stage holds for all of its
tasks: errors of estimates come by the stage, not by the task.

The state knows neither the order that a master planned nor which of a stage's tasks ended, nor what
will be submitted later. Masters plan and ask anew at once, as after a restart.
"""

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from math import exp

import numpy as np

from nm.core import HEARTBEAT
from sim.engine import Actor
from sim.recorder import ENDED
from sim.replay.estimate_error import Ratios
from sim.replay.recorded_delays import Delays, MeasuredSimulation
from sim.replay.snapshot import OpenApplication, State
from sim.settings import SimSettings
from weft.model.errors import InputError
from weft.model.ids import AppId, app_of_container, attempt_id, container_id
from weft.model.job import Job, Stage
from weft.model.jobfile import job_to_dict
from weft.protocol.effects import Launch, MakePlan, Send, SetTimer, Started
from weft.protocol.facts import AppChanged, StartedRun, TaskStarted
from weft.protocol.messages import (
    MANAGER,
    Address,
    MasterLaunch,
    NodeAccepted,
    NodeAnswered,
    StartContainers,
    TaskLaunch,
)

_OVER = frozenset({"FINISHING", *ENDED})
DRAWS = 40
BAND = (0.05, 0.5, 0.95)
_TRIES = 20
# A task that ran longer than any draw takes at most this part of its time so far more.
_OVERDUE_FRACTION_MAX = 0.5
# After so long masters have found again what they hold, where messages take time.
SETTLED_S = 0.2
# Where messages take no time, nobody asks meanwhile, so this is enough.
AT_ONCE_S = 0.001
# The attempt whose tasks run, and the one that takes them over.
_EARLIER_ATTEMPT, _NEW_ATTEMPT = 1, 2
# Lives of the manager count from 1.
_MANAGER_LIFE = 2


@dataclass(frozen=True, slots=True)
class Band:
    """Times at the quantiles of BAND, s on the cluster's clock."""

    early_s: float
    usual_s: float
    late_s: float


@dataclass(frozen=True, slots=True)
class Prediction:
    """When a job's first task starts and when the job ends.

    `waits`: no task of it ran by then. `start` is None where it runs. In `unended` of the draws it
    did not end.
    """

    app: AppId
    name: str
    waits: bool
    start: Band | None
    end: Band
    unended: int


class Drawn:
    """One draw of all ratios: what holds for whole jobs and stages is drawn once."""

    def __init__(self, ratios: Ratios, rng: np.random.Generator) -> None:
        self._ratios, self._rng = ratios, rng
        self._apps: dict[AppId, float] = {}
        self._stages: dict[tuple[AppId, str], tuple[float, Sequence[float]]] = {}

    def ratio(self, one: OpenApplication, stage: Stage) -> float:
        """Return the ratio of one more task of a stage."""
        ratios, rng = self._ratios, self._rng
        app, key = one.report.app_id, one.job.history_key
        drawn = self._stages.get((app, stage.name))
        if drawn is None:
            if app not in self._apps:
                self._apps[app] = ratios.app(app, key, rng)
            factor = exp(ratios.stage(app, key, stage.name, self._apps[app], rng))
            drawn = factor, ratios.tasks(app, stage.name, stage.tasks, rng)
            self._stages[app, stage.name] = drawn
        factor, parts = drawn
        return factor * parts[int(rng.integers(len(parts)))]

    def left_s(self, one: OpenApplication, stage: Stage, task: int, ran_s: float) -> float:
        """Return what is left of a task that ran so long and has not ended, s."""
        estimate_s = stage.duration_of(task)
        for _ in range(_TRIES):
            left_s = estimate_s * self.ratio(one, stage) - ran_s
            if left_s > 0:
                return left_s
        return max(ran_s * _OVERDUE_FRACTION_MAX * float(self._rng.random()), 1e-3)


class Foreseen(MeasuredSimulation):
    """One way in which a state may go on; `wanted` are the applications that are asked about."""

    def __init__(
        self,
        state: State,
        settings: SimSettings,
        delays: Delays,
        drawn: Drawn,
        wanted: Collection[AppId],
    ) -> None:
        self._state, self._drawn = state, drawn
        self._plain = not delays.samples
        self._of_app = {one.report.app_id: one for one in state.apps}
        self._left = set(wanted)
        self._planned_before: set[Address] = set()
        self._phases = np.random.default_rng([settings.seed, 10])
        # The first task of each application began at this time, s.
        self.started: dict[AppId, float] = {}
        self.ended: dict[AppId, float] = {}
        jobs = [replace(one.job, arrival_s=0.0) for one in state.apps]
        # all nodes are back at once: none is waited for
        back = replace(settings, manager={**settings.manager, "nodes_return": False})
        super().__init__(state.cluster, jobs, back, delays)

    def _start(self) -> None:
        """Start as after a restart of everything: from a journal, and nodes that tell what runs."""
        state, engine = self._state, self.engine
        engine.now = state.now_s
        # There was a life before, whose containers run.
        self._records = [{"kind": "start"}]
        self._records += [record for one in state.apps for record in _journal(one, self._true(one))]
        self.start_manager()
        for number, one in enumerate(state.apps):
            self.recorder.accepted(self.recorder.jobs[number], one.report.app_id, state.now_s)
        orders: dict[str, list[StartContainers]] = {}
        masters: dict[str, list[MasterLaunch]] = {}
        for one in state.apps:
            if not one.report.master_node:
                continue
            for order in self._running(one):
                orders.setdefault(order.node_id, []).append(order)
            attempt = attempt_id(one.report.app_id, _NEW_ATTEMPT)
            master = MasterLaunch(
                container_id(attempt, 1), attempt, self.manager.books.master_vector
            )
            masters.setdefault(one.report.master_node, []).append(master)
        for spec in state.cluster.nodes:
            name = spec.node_id
            self._go_on(self._new_node(spec), orders.get(name, ()), masters.get(name, ()))
        self.watchers.append(self._noted)

    def _true(self, one: OpenApplication) -> Job:
        """Return a job whose tasks take what is drawn; ratios hold what contention there was."""
        stages = [
            replace(
                stage,
                actual_duration_s=tuple(
                    stage.duration_of(task) * self._drawn.ratio(one, stage)
                    for task in range(stage.tasks)
                ),
                actual_demand=dict.fromkeys(stage.demand, 0.0),
                overrides=tuple(
                    replace(other, actual_duration_s=None, actual_demand=None)
                    for other in stage.overrides
                ),
            )
            for stage in one.job.stages
        ]
        return replace(one.job, stages=tuple(stages))

    def _running(self, one: OpenApplication) -> Iterator[StartContainers]:
        """Yield the orders of tasks that run, with what is left of them."""
        app, types, now = one.report.app_id, self._state.cluster.types, self._state.now_s
        before, number = attempt_id(app, _EARLIER_ATTEMPT), 1
        next_task = list(one.finished)
        for held in one.held:
            stage, task = one.job.stages[held.stage], next_task[held.stage]
            if task >= stage.tasks:
                # This is a second copy of a task.
                continue
            next_task[held.stage] += 1
            number += 1
            left_s = self._drawn.left_s(one, stage, task, max(0.0, now - held.since_s))
            booked = types.vector(stage.demand_of(task))
            item = TaskLaunch(
                container_id(before, number),
                held.stage,
                task,
                0,
                left_s,
                (0.0,) * len(booked),
                granted=booked,
            )
            yield StartContainers(before, held.node, (item,))

    def _go_on(
        self, actor: Actor, orders: Sequence[StartContainers], masters: Sequence[MasterLaunch]
    ) -> None:
        """Have a node run what it runs, and tell the manager, as one that was asked to register."""
        name, settings = actor.name, self.manager.books.settings
        accepted = NodeAccepted(
            name,
            self._state.cluster.types,
            settings.heartbeat_s,
            settings.prompt,
            0,
            expiry_s=settings.node_expiry_s,
        )
        launch = NodeAnswered(name, 0, start=tuple(masters))
        ask = NodeAnswered(name, 0, resync=True, life=_MANAGER_LIFE)
        events = [Started(), accepted, *orders, launch, ask]
        for event in events:
            for effect in actor.handle(event, self.engine.now):
                if isinstance(effect, SetTimer) and effect.key == HEARTBEAT:
                    self._idle.arm(actor, effect.delay_s or 0.0)
                elif isinstance(effect, SetTimer):
                    self.engine.set_timer(actor, effect.key, effect.delay_s)
                elif isinstance(effect, Launch) and isinstance(effect.item, MasterLaunch):
                    self._take_over(self._new_master(actor, effect.item), effect.item)
                elif isinstance(effect, Send) and event is ask:
                    self.engine.soon(self.actors[MANAGER], effect.message)

    def _take_over(self, master: Actor, item: MasterLaunch) -> None:
        """Take over a master that was there: it beats at some phase, and has its plan.

        One that waits begins a moment later, or it would ask before those that hold containers have
        found them again.
        """
        one = self._of_app[app_of_container(item.container_id)]
        settled_s = AT_ONCE_S if self._plain else SETTLED_S
        begins_s = self.engine.now + (0.0 if one.held or any(one.finished) else settled_s)
        beat_s = self.manager.books.settings.master_heartbeat_s * float(self._phases.random())
        self._first_beats[master.address] = max(begins_s + settled_s, self.engine.now + beat_s)
        self._planned_before.add(master.address)
        self.engine.at(begins_s, master, Started())

    def _make_plan(self, actor: Actor, effect: MakePlan, now: float) -> None:
        if actor.address in self._planned_before:
            self.plan_after(actor, effect, 0.0)
        else:
            super()._make_plan(actor, effect, now)

    def _noted(self, now: float, fact: object) -> None:
        if isinstance(fact, TaskStarted | StartedRun):
            self.started.setdefault(app_of_container(fact.container), now)
        elif isinstance(fact, AppChanged) and fact.state in _OVER:
            self.ended.setdefault(fact.app, now)
            self._left.discard(fact.app)
            if not self._left and not self.enough:
                self.enough = True
                self.engine.stop()


def _journal(one: OpenApplication, job: Job) -> Iterator[dict[str, object]]:
    """Yield what a manager's journal would say of an application."""
    app, report = one.report.app_id, one.report
    yield {
        "kind": "app",
        "app": app,
        "job": job_to_dict(job),
        "queue": report.queue,
        "submitted_s": report.submitted_s,
        "submission_id": "",
        "priority": report.priority,
    }
    tasks = [
        [place, task, one.job.stages[place].duration_of(task)]
        for place, count in enumerate(one.finished)
        for task in range(count)
    ]
    if tasks:
        yield {"kind": "tasks", "app": app, "tasks": tasks}
    if not report.master_node:
        return
    before, now = attempt_id(app, _EARLIER_ATTEMPT), attempt_id(app, _NEW_ATTEMPT)
    yield {"kind": "failed", "app": app, "attempt": before, "counts": False, "kept": True}
    yield {
        "kind": "attempt",
        "app": app,
        "attempt": now,
        "seed": 0,
        "container": container_id(now, 1),
        "node": report.master_node,
    }


def predict(
    state: State,
    settings: SimSettings,
    apps: Sequence[AppId],
    delays: Delays | None = None,
    draws: int = DRAWS,
    seed: int = 0,
) -> list[Prediction]:
    """Return when applications will start and end; raises InputError for one that is not open."""
    standing = {one.report.app_id: one for one in state.apps}
    for app in apps:
        if app not in standing:
            ended = state.ended.get(app)
            how = "is not known" if ended is None else f"has ended: {ended.final_status}"
            raise InputError(f"application {app}", how)
    if not apps:
        return []
    ratios = Ratios(state.learned, state.apps, state.now_s)
    starts: dict[AppId, list[float]] = {app: [] for app in apps}
    ends: dict[AppId, list[float]] = {app: [] for app in apps}
    for number in range(draws):
        drawn = Drawn(ratios, np.random.default_rng([seed, number, 9]))
        one = Foreseen(
            state, replace(settings, seed=seed + number), delays or Delays({}), drawn, apps
        )
        one.run()
        for app in apps:
            starts[app].append(one.started.get(app, math.inf))
            ends[app].append(one.ended.get(app, math.inf))
    return [_prediction(standing[app], starts[app], ends[app]) for app in apps]


def _prediction(one: OpenApplication, starts: list[float], ends: list[float]) -> Prediction:
    unended = sum(end == math.inf for end in ends)
    start = _band(starts) if one.waits else None
    return Prediction(one.report.app_id, one.job.name, one.waits, start, _band(ends), unended)


def _band(times: Sequence[float]) -> Band:
    """Return quantiles of draws, as wide as so few allow (Weibull's plotting positions)."""
    found = np.quantile(np.array(times), BAND, method="weibull")
    early_s, usual_s, late_s = [math.inf if math.isnan(one) else float(one) for one in found]
    return Band(early_s, usual_s, late_s)
