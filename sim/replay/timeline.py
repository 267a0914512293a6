"""What happened in a run, as columns that a page can scrub through.

One row a container (masters included), in the order of their grants, and the changes of everything
else with their times. A page that has the columns knows every moment of the run and asks nobody.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rm.core import ResourceManager
from rm.ledger.queues import QueueTree
from rm.state.records import App, Attempt
from sim.replay.recorded_run import RecordedRun, Rerun
from sim.replay.unheard_ends import UnheardEnds
from weft.model.ids import AppId, ContainerId, NodeId, app_of_attempt, app_of_container
from weft.model.json_types import Json
from weft.model.resources import Vector
from weft.protocol.effects import ClientRequested, Effect, Note
from weft.protocol.event_unions import ManagerTold
from weft.protocol.facts import (
    AppChanged,
    AttemptChanged,
    Closed,
    NodeChanged,
    Placed,
    PreemptionChosen,
    facts_of,
)
from weft.protocol.messages import ContainersAsked, NodeHeartbeated
from weft.protocol.requests import MoveApplication

# What had not ended when the run was over has this outcome.
RUNS = -1
# A master's container has this stage.
MASTER = -1
# So a queue is told that there is none of any more.
_GONE = -1.0, 0
_DIGITS = 6
_SIGNIFICANT = 7


@dataclass(slots=True)
class Timeline:
    """Columns of a run; times in s on its clock, `end` and `ran` are -1 where there is none.

    Containers: `start` (grant), `end` (when the manager learned of it), `ran` (of the task itself),
    `job`, `stage` (-1: the master), `task`, `attempt`, `node`, `demand` (of `demands`), `spare`
    (granted to an ALTRUISTIC ask), `outcome`, `step` (of the run) and `turn` (among the grants of
    the step), `scores` by term, `end_step`. Of the changes each tells its time and step first:
    `asked` (job, stage, containers pending from then on), `progress` (job, tasks finished),
    `states` (job, state), `moved` (job, queue that it is in from then on), `node_states` (node,
    state, capacity), `queue_states` (queue, what it is guaranteed of the cluster, whether it is a
    leaf; -1: it is gone), `preempted` (container, chosen to go). `queues` are the paths of all
    that ever were.
    What happened in one step happened in this order: queues, moved, ends, asked, grants, all else.
    The first submission was at `first_s`, the last change at `last_s`.
    """

    jobs: list[Json] = field(default_factory=list)
    nodes: list[Json] = field(default_factory=list)
    queues: list[str] = field(default_factory=list)
    demands: list[Vector] = field(default_factory=list)
    start: list[float] = field(default_factory=list)
    end: list[float] = field(default_factory=list)
    ran: list[float] = field(default_factory=list)
    job: list[int] = field(default_factory=list)
    stage: list[int] = field(default_factory=list)
    task: list[int] = field(default_factory=list)
    attempt: list[int] = field(default_factory=list)
    node: list[int] = field(default_factory=list)
    demand: list[int] = field(default_factory=list)
    spare: list[int] = field(default_factory=list)
    outcome: list[int] = field(default_factory=list)
    step: list[int] = field(default_factory=list)
    turn: list[int] = field(default_factory=list)
    scores: dict[str, list[float | None]] = field(default_factory=dict)
    end_step: list[int] = field(default_factory=list)
    asked: list[tuple[float, int, int, int, int]] = field(default_factory=list)
    progress: list[tuple[float, int, int, int]] = field(default_factory=list)
    states: list[tuple[float, int, int, str]] = field(default_factory=list)
    moved: list[tuple[float, int, int, int]] = field(default_factory=list)
    node_states: list[tuple[float, int, int, str, list[float]]] = field(default_factory=list)
    queue_states: list[tuple[float, int, int, float, int]] = field(default_factory=list)
    preempted: list[tuple[float, int, int]] = field(default_factory=list)
    first_s: float = 0.0
    last_s: float = 0.0

    @property
    def decisions(self) -> int:
        """Grants of containers that are no master's."""
        return sum(stage != MASTER for stage in self.stage)


class _Maker:
    """Hears what a manager answers and writes the columns."""

    def __init__(self, played: RecordedRun) -> None:
        self.timeline = Timeline()
        self._types = played.types
        self._jobs: dict[AppId, int] = {}
        self._nodes: dict[NodeId, int] = {}
        self._demands: dict[Vector, int] = {}
        self._rows: dict[ContainerId, int] = {}
        self._pending: dict[tuple[int, int], int] = {}
        self._finished: dict[int, int] = {}
        self._tree: QueueTree | None = None
        self._queues: dict[str, int] = {}
        # Each queue has what was said of it last.
        self._queue_states: dict[int, tuple[float, int]] = {}
        self._queue_of_job: dict[int, int] = {}
        self._unheard = UnheardEnds(self._runs)
        self._step = self._turn = 0

    def answered(
        self, event: ManagerTold, now: float, orders: list[Effect], manager: ResourceManager
    ) -> None:
        """Take what a step led to."""
        self._turn = 0
        self._queues_are(manager.books.queues, now)
        for order in orders:
            for fact in facts_of(order.fact) if type(order) is Note else ():
                take = _TAKES.get(type(fact))
                if take is not None:
                    take(self, fact, now, manager)
                    self.timeline.last_s = now
        if type(event) is ContainersAsked:
            app = manager.books.apps.get(app_of_attempt(event.attempt_id))
            if app is not None and app.attempt is not None:
                self._asked(app.attempt, now)
        elif type(event) is ClientRequested and type(event.request) is MoveApplication:
            app = manager.books.apps.get(event.request.app_id)
            if app is not None:
                self._in_queue(self._job(app.app_id, now, manager), app, now, manager)
        elif type(event) is NodeHeartbeated:
            for number in {app_of_container(end.container_id) for end in event.ended}:
                self._progress(manager.books.apps.get(number), now)
        for closed, ended_s in self._unheard.answered(event, now, manager):
            self._closed(closed, ended_s, manager)
        self._step += 1

    def _runs(self) -> dict[ContainerId, NodeId]:
        timeline = self.timeline
        return {
            number: timeline.nodes[timeline.node[row]]["name"]
            for number, row in self._rows.items()
            if timeline.end[row] < 0
        }

    def _queues_are(self, tree: QueueTree, now: float) -> None:
        """Note which queues are others than before: a changed tree is another object."""
        if tree is self._tree:
            return
        self._tree = tree
        told = dict.fromkeys(self._queue_states, _GONE)
        for slot, path in enumerate(tree.paths):
            if path not in self._queues:
                self._queues[path] = len(self.timeline.queues)
                self.timeline.queues.append(path)
            told[self._queues[path]] = float(tree.capacity[slot]), int(tree.is_leaf[slot])
        for place, state in told.items():
            if self._queue_states.get(place) != state:
                self.timeline.queue_states.append((_s(now), self._step, place, *state))
        self._queue_states = told

    def _in_queue(self, place: int, app: App, now: float, manager: ResourceManager) -> None:
        queue = self._queues[manager.books.queue_of(app)]
        if self._queue_of_job.get(place) != queue:
            self._queue_of_job[place] = queue
            self.timeline.moved.append((_s(now), self._step, place, queue))

    def _job(self, number: AppId, now: float, manager: ResourceManager) -> int:
        place = self._jobs.get(number)
        if place is None:
            timeline, app = self.timeline, manager.books.apps[number]
            place = self._jobs[number] = len(timeline.jobs)
            if not timeline.jobs:
                timeline.first_s = app.submitted_s
            names = {stage.name: i for i, stage in enumerate(app.job.stages)}
            timeline.jobs.append(
                {
                    "app": number,
                    "name": app.job.name,
                    "user": app.job.user,
                    "priority": app.priority,
                    "submitted": _s(app.submitted_s),
                    "finished": -1.0,
                    "final": "",
                    "stages": [
                        {
                            "name": stage.name,
                            "tasks": stage.tasks,
                            "duration": stage.duration_s,
                            "demand": list(self._types.vector(stage.demand)),
                            "parents": [names[edge.stage] for edge in stage.parents],
                        }
                        for stage in app.job.stages
                    ],
                }
            )
            self._in_queue(place, app, now, manager)
        return place

    def _node(self, name: NodeId, manager: ResourceManager) -> int:
        place = self._nodes.get(name)
        if place is None:
            place = self._nodes[name] = len(self._nodes)
            known = manager.books.nodes.get(name)
            self.timeline.nodes.append(
                {
                    "name": name,
                    "rack": known.rack if known else "",
                    "labels": list(known.labels) if known else [],
                }
            )
        return place

    def _container(
        self, number: ContainerId, stage: int, node: int, demand: Vector, now: float, job: int
    ) -> int:
        timeline = self.timeline
        row = self._rows[number] = len(timeline.start)
        place = self._demands.get(demand)
        if place is None:
            place = self._demands[demand] = len(timeline.demands)
            timeline.demands.append(demand)
        timeline.start.append(_s(now))
        for column, value in (
            (timeline.job, job),
            (timeline.stage, stage),
            (timeline.task, -1),
            (timeline.attempt, 0),
            (timeline.node, node),
            (timeline.demand, place),
            (timeline.outcome, RUNS),
            (timeline.step, self._step),
        ):
            column.append(value)
        timeline.end.append(-1.0)
        timeline.ran.append(-1.0)
        timeline.end_step.append(-1)
        return row

    def _placed(self, fact: Placed, now: float, manager: ResourceManager) -> None:
        timeline = self.timeline
        job = self._job(app_of_container(fact.container), now, manager)
        node = self._node(fact.node, manager)
        self._container(fact.container, fact.stage, node, tuple(fact.demand), now, job)
        timeline.spare.append(int(fact.kind))
        timeline.turn.append(self._turn)
        self._turn += 1
        self._score(dict(fact.scores))

    def _score(self, scores: Mapping[str, float]) -> None:
        """Append a row to every score column."""
        timeline = self.timeline
        before = len(timeline.start) - 1
        for name in scores:
            if name not in timeline.scores:
                timeline.scores[name] = [None] * before
        for name, column in timeline.scores.items():
            value = scores.get(name)
            column.append(None if value is None else float(f"{value:.{_SIGNIFICANT}g}"))

    def _closed(self, fact: Closed, now: float, manager: ResourceManager) -> None:
        timeline, row = self.timeline, self._rows.get(fact.container)
        if row is None:
            return
        if timeline.end[row] < 0:
            timeline.end[row], timeline.end_step[row] = _s(now), self._step
        timeline.outcome[row] = int(fact.outcome)
        timeline.task[row], timeline.attempt[row] = fact.task, fact.attempt
        if fact.run_s > 0:
            timeline.ran[row] = _s(fact.run_s)

    def _app(self, fact: AppChanged, now: float, manager: ResourceManager) -> None:
        place = self._job(fact.app, now, manager)
        self.timeline.states.append((_s(now), self._step, place, fact.state))
        job = self.timeline.jobs[place]
        if fact.state in ("FINISHED", "FAILED", "KILLED"):
            # A manager that starts anew notes the ends that it knows of, which were earlier.
            restarts = now == manager.books.started_s
            ended_s = manager.books.apps[fact.app].finished_s if restarts else now
            job["finished"], job["final"] = _s(ended_s), fact.final_status

    def _attempt(self, fact: AttemptChanged, now: float, manager: ResourceManager) -> None:
        if fact.state != "ALLOCATED":
            return
        app = manager.books.apps.get(app_of_attempt(fact.attempt))
        attempt = None if app is None else app.attempt
        if attempt is None or attempt.master is None:
            return
        job = self._job(app_of_attempt(fact.attempt), now, manager)
        node = self._node(attempt.master.node.node_id, manager)
        self._container(attempt.master_id, MASTER, node, attempt.vector, now, job)
        self.timeline.spare.append(0)
        self.timeline.turn.append(-1)
        self._score({})

    def _node_changed(self, fact: NodeChanged, now: float, manager: ResourceManager) -> None:
        place = self._node(fact.node, manager)
        change = _s(now), self._step, place, fact.state, list(fact.capacity)
        self.timeline.node_states.append(change)

    def _preempted(self, fact: PreemptionChosen, now: float, manager: ResourceManager) -> None:
        row = self._rows.get(fact.container)
        if row is not None:
            self.timeline.preempted.append((_s(now), self._step, row))

    def _asked(self, attempt: Attempt, now: float) -> None:
        """Note what the master has pending by stage, where that does not follow from the grants."""
        job = self._jobs.get(attempt.app.app_id)
        if job is None:
            return
        found: dict[int, int] = {}
        for entry in attempt.entries.values():
            if entry.row >= 0:
                found[entry.ask.stage] = found.get(entry.ask.stage, 0) + entry.pending
        known = self._pending
        for stage in range(len(attempt.app.job.stages)):
            pending = found.get(stage, 0)
            if pending or known.get((job, stage), 0):
                self.timeline.asked.append((_s(now), self._step, job, stage, pending))
                known[job, stage] = pending

    def _progress(self, app: App | None, now: float) -> None:
        """Note how many of an application's tasks are done."""
        job = None if app is None else self._jobs.get(app.app_id)
        if app is None or job is None:
            return
        finished = sum(app.finished_by_stage)
        if finished != self._finished.get(job, 0):
            self._finished[job] = finished
            self.timeline.progress.append((_s(now), self._step, job, finished))


_TAKES: dict[type, Callable[[_Maker, Any, float, ResourceManager], None]] = {
    Placed: _Maker._placed,
    Closed: _Maker._closed,
    AppChanged: _Maker._app,
    AttemptChanged: _Maker._attempt,
    NodeChanged: _Maker._node_changed,
    PreemptionChosen: _Maker._preempted,
}


def timeline_of(played: RecordedRun, rerun: Rerun | None = None) -> Timeline:
    """Run it through once, from its first step to its last."""
    maker = _Maker(played)
    (rerun or Rerun(played.steps)).seek(len(played.steps), maker.answered)
    timeline = maker.timeline
    if timeline.jobs:
        timeline.first_s = min(job["submitted"] for job in timeline.jobs)
    return timeline


def _s(value: float) -> float:
    return round(value, _DIGITS)
