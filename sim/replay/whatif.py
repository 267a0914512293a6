"""What if: the jobs of a recorded run, at the times when they came, under other settings.

A closed loop: masters and nodes are simulated, and the tape gives the inputs only: jobs, what
clients changed, and when nodes came. So times are those of the simulator (no delay on the way,
plans at once), which is why the recorded settings are simulated as well: what a change does is the
difference between two simulations.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import chain
from math import inf
from statistics import median

from am.making import MasterParts
from am.settings import MasterSettings
from nm.making import NodeParts
from nm.settings import Mode, NodeSettings
from rm.core import ResourceManager
from rm.making import ManagerParts
from rm.settings import ManagerSettings
from rm.state.books import Books
from rm.state.lifecycle import AttemptState, RmNodeState
from sim.recorder import ENDED, JobRow
from sim.replay.client_view import AskedManager
from sim.replay.foreign import Foreign, is_foreign, played
from sim.replay.recorded_delays import Delays, MeasuredSimulation, Recorded
from sim.replay.verify import Replay
from sim.settings import SimSettings
from weft.model.cluster import ClusterSpec, NodeSpec
from weft.model.errors import InputError, WeftError
from weft.model.ids import AppId, NodeId, app_of_attempt, app_of_container
from weft.model.job import Job, Stage
from weft.model.json_types import Json, Table
from weft.model.queues import DEFAULT_QUEUES, QueueSpec, queues_from_dict
from weft.model.recording import Recording
from weft.policies.presets import PARTS, Preset, preset
from weft.protocol.effects import ClientRequested, Effect, Note, Recovered, Send
from weft.protocol.facts import (
    AppChanged,
    AttemptChanged,
    Closed,
    ClosedRun,
    Fact,
    NodeChanged,
    RunFact,
    count_of,
)
from weft.protocol.messages import (
    MANAGER,
    TASK_FAULTS,
    Address,
    NodeHeartbeated,
    NodeRegistered,
    Outcome,
    ends_of,
    node_address,
)
from weft.protocol.requests import (
    ApplicationAccepted,
    DecommissionNode,
    KillApplication,
    MoveApplication,
    RecommissionNode,
    SetExpiry,
    SetPriority,
    SetQueues,
    SubmitApplication,
    UpdateNode,
)
from weft.tape.made import from_data
from weft.tape.rows import CoreAdded, Row

# What clients change about jobs, and what jobs find.
_OF_JOBS = (KillApplication, MoveApplication, SetPriority, SetExpiry)
_OF_NODES = (DecommissionNode, RecommissionNode, UpdateNode)
_CHANGES = (*_OF_JOBS, *_OF_NODES, SetQueues)
Listener = Callable[[Address, object, float, list[Effect]], None]
# What befell a node that moved to one of these states.
_BROKEN = {RmNodeState.LOST.name: "lost node", RmNodeState.UNHEALTHY.name: "unhealthy node"}
# Nodes are up for so long before the first job comes.
WARM_S = 5.0
# The simulation sets these of the manager's settings.
_ELSEWHERE = frozenset({"prompt", "recovery", "buggify"})
_PLANNED = frozenset({"planner", "planner_options", "history", "address", "buggify"})


@dataclass(slots=True)
class Seen:
    """What tapes of a manager tell of a run; times in s on the cluster's clock.

    `starts` has when each process of a node registered first. `beats` has the last heartbeat of
    each node before the first job came, `boots` its newest process; `faults` counts by words what
    broke, of which a simulation has nothing. `jobs` are with their arrivals, those that were open
    when the tapes began with that time. `commands`: some job brought commands, so its tasks ran as
    processes. `run_s` is by (application, stage, task). `foreign` has the masters that are not
    Weft's. The tapes are from `began_s` until `until_s`. `changes` are those that clients made and
    that the first journal tells; `queues` is the tree with which the manager began, where that is
    not its settings'.
    """

    parts: ManagerParts | None = None
    nodes: dict[str, NodeSpec] = field(default_factory=dict)
    starts: list[tuple[float, NodeId]] = field(default_factory=list)
    beats: dict[str, float] = field(default_factory=dict)
    boots: dict[str, int] = field(default_factory=dict)
    faults: Counter[str] = field(default_factory=Counter)
    jobs: dict[AppId, tuple[Job, float]] = field(default_factory=dict)
    ended: dict[AppId, tuple[str, float]] = field(default_factory=dict)
    commands: bool = False
    run_s: dict[tuple[AppId, int, int], float] = field(default_factory=dict)
    changes: list[tuple[float, ClientRequested]] = field(default_factory=list)
    queues: QueueSpec | None = None
    foreign: Foreign = field(init=False)
    began_s: float = inf
    until_s: float = 0.0

    _recovered: bool = False
    _failed_masters: Counter[AppId] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.foreign = Foreign(self._is_foreign)

    def _is_foreign(self, app: AppId) -> bool:
        known = self.jobs.get(app)
        return known is not None and is_foreign(known[0])

    @property
    def all_foreign(self) -> bool:
        """Whether every job brought its own master."""
        return all(is_foreign(job) for job, _ in self.jobs.values())

    def listen(self, core: Address, event: object, now: float, orders: list[Effect]) -> None:
        """Follow an event of the manager and its answer."""
        self.began_s, self.until_s = min(self.began_s, now), max(self.until_s, now)
        if self.parts is not None:
            self.foreign.listen(event, now, orders, self.parts.types)
        if isinstance(event, NodeRegistered) and self.parts is not None:
            before = self.boots.get(event.node_id)
            if before not in (None, event.boot):
                self.faults["restarted node"] += 1
            if before != event.boot:
                self.starts.append((now, event.node_id))
            self.boots[event.node_id] = event.boot
            capacity = self.parts.types.vector(event.capacity)
            self.nodes[event.node_id] = NodeSpec(
                event.node_id, capacity, event.rack, tuple(event.labels), event.speed
            )
        elif isinstance(event, NodeHeartbeated):
            if not self.jobs:
                self.beats[event.node_id] = now
            for end in chain.from_iterable(map(ends_of, event.ended)):
                if end.outcome is Outcome.SUCCEEDED and end.stage >= 0:
                    key = (app_of_container(end.container_id), end.stage, end.task)
                    node = self.nodes.get(event.node_id)
                    self.run_s[key] = end.run_s * (1.0 if node is None else node.speed)
        elif isinstance(event, ClientRequested):
            self._asked(event, now, orders)
        if isinstance(event, Recovered):
            if self._recovered:
                self.faults["manager restart"] += 1
            else:
                self._recovered = True
                self._remember(event.records, now)
            # A manager that starts anew notes the ends that it knows of, which were earlier.
            return
        for order in orders:
            if type(order) is Note:
                self._noted(order.fact, now)

    def _noted(self, fact: Fact | RunFact, now: float) -> None:
        if isinstance(fact, AppChanged):
            if fact.state in ENDED:
                self.ended[fact.app] = (fact.final_status, now)
                self._count_failed_masters(fact.app)
        elif isinstance(fact, NodeChanged):
            if fact.state in _BROKEN:
                self.faults[_BROKEN[fact.state]] += 1
        elif isinstance(fact, AttemptChanged):
            app = app_of_attempt(fact.attempt)
            if fact.state == AttemptState.FAILED.name:
                self._failed_masters[app] += 1
            if app in self.ended or fact.state == AttemptState.RUNNING.name:
                self._count_failed_masters(app)
        elif isinstance(fact, Closed | ClosedRun):
            failed = fact.stage >= 0 and fact.outcome in TASK_FAULTS
            self.faults["failed task"] += failed * count_of(fact)

    def _count_failed_masters(self, app: AppId) -> None:
        """Count those after which the job went on or ended; the others went with the cluster."""
        if failed := self._failed_masters.pop(app, 0):
            self.faults["failed master"] += failed

    def _asked(self, event: ClientRequested, now: float, orders: list[Effect]) -> None:
        """Follow a client's request."""
        if isinstance(event.request, _CHANGES):
            self.changes.append((now, event))
        elif isinstance(event.request, SubmitApplication):
            job = event.request.job
            for order in orders:
                if isinstance(order, Send) and isinstance(order.message, ApplicationAccepted):
                    self.jobs.setdefault(order.message.app_id, (job, now))
                    self.commands |= any(stage.command for stage in job.stages)

    def _remember(self, records: Sequence[Table], now: float) -> None:
        """Note what clients had changed before the tape begins."""
        for record in records:
            if record["kind"] == "queues":
                self.queues = queues_from_dict(record["queues"])
            elif record["kind"] == "update":
                node, labels = str(record["node"]), record.get("labels")
                asked = UpdateNode(
                    node, dict(record.get("capacity", {})), tuple(labels or ()), labels is not None
                )
                self.changes.append((now, ClientRequested("", replace(asked, own=True))))
            elif record["kind"] == "node" and record["state"]:
                timeout_s = max(0.0, float(record["until_s"]) - now)
                drain = DecommissionNode(str(record["node"]), timeout_s)
                self.changes.append((now, ClientRequested("", drain)))

    def recovered(self, books: Books, now: float) -> None:
        """Note the jobs that a manager knows from its journal, and that no tape names.

        They were open when the first tape began, or came in the last moment of a killed process,
        which is lost.
        """
        for app in books.apps.values():
            if app.app_id in self.jobs or 0 < app.finished_s <= self.began_s:
                continue
            self.jobs[app.app_id] = (app.job, max(app.submitted_s, self.began_s))
            asked: list[KillApplication | MoveApplication | SetPriority | SetExpiry] = [
                MoveApplication(app.app_id, books.queue_of(app)),
                SetPriority(app.app_id, app.priority),
            ]
            if app.wished_s:
                asked.append(SetExpiry(app.app_id, app.wished_s))
            self.changes += [(now, ClientRequested("", one)) for one in asked]

    def close(self, manager: ResourceManager, now: float) -> None:
        """Note how applications ended when the manager's process ends, earlier ones included."""
        asked = AskedManager(manager, now)
        for report in asked.applications():
            if report.app_id in self.jobs and report.finished_s > 0:
                # Its master's container may have ended a little later.
                self.ended.setdefault(report.app_id, (report.final_status, report.finished_s))


@dataclass(frozen=True, slots=True)
class Jct:
    """One job: completion times in s, as it was and as simulated; negative: it did not end.

    `why` says for the first of them that is negative what became of it. Means have all draws.
    """

    app: AppId
    name: str
    recorded_s: float
    same_s: float
    changed_s: float
    why: str = ""
    same_by_draw_s: tuple[float, ...] = ()
    changed_by_draw_s: tuple[float, ...] = ()


def look(tapes: Sequence[Callable[[], Iterable[Row]]], also: Listener = lambda *told: None) -> Seen:
    """Return what tapes of a manager's processes, the oldest first, tell; raises InputError.

    `also` is notified of every event as well.
    """
    seen, run = Seen(), Replay()

    def listen(core: Address, event: object, now: float, orders: list[Effect]) -> None:
        seen.listen(core, event, now, orders)
        if isinstance(event, Recovered):
            seen.recovered(_manager_of(run).books, now)
        also(core, event, now, orders)

    for tape in tapes:
        run = Replay(on_answer=listen)
        whole(run.run(_noting(tape(), seen)))
        if MANAGER in run.cores:
            seen.close(_manager_of(run), run.now)
    if seen.parts is None or not seen.nodes or not seen.jobs:
        raise InputError("TAPE", "tells of no job that ran: nothing to simulate")
    return seen


def _manager_of(run: Replay) -> ResourceManager:
    manager = run.cores[MANAGER]
    assert isinstance(manager, ResourceManager)
    return manager


def whole(run: Replay) -> None:
    """Raise WeftError where a tape was not replayed to its end: what follows is not known."""
    if run.difference is not None:
        where, when = run.difference.core, run.difference.now
        raise WeftError(
            f"{where} decides otherwise than it did at {when:.6f} s (weft replay shows it): "
            "ask the code that recorded the tape"
        )


def _noting(rows: Iterable[Row], seen: Seen) -> Iterable[Row]:
    for row in rows:
        if isinstance(row, CoreAdded) and row.address == MANAGER:
            seen.parts = from_data(ManagerParts, row.made)
        yield row


def first_core(rows: Iterable[Row]) -> Table | None:
    """Return what the first core of a tape was made with."""
    return next((row.made for row in rows if isinstance(row, CoreAdded)), None)


def settings_of(
    manager: ManagerParts, master: Table | None, node: Table | None, *, foreign: bool = False
) -> SimSettings:
    """Return the recorded run's settings for a simulation; raises InputError without a master's.

    `master` and `node` are what cores of theirs were made with. `foreign`: all jobs brought their
    own masters, so that no planner or asker of Weft's was at work.
    """
    own = MasterParts(0, "all_ready", {}, MasterSettings(), ()) if foreign else None
    if master is not None:
        own = from_data(MasterParts, master)
    if own is None:
        raise InputError("TAPE", "no master's tape is there, which tells planner and asker")
    scheduler = Preset(
        manager.matcher,
        own.settings.planner,
        own.asker,
        "",
        manager.matcher_options,
        own.settings.planner_options,
        own.asker_options,
    )
    nodes = NodeSettings()
    if node is not None:
        # each node's own speed is in its registration
        own_node = from_data(NodeParts, node).settings
        nodes = replace(own_node, mode=Mode.EMULATED, speed=1.0, report_tasks=False)
    return SimSettings(
        scheduler,
        prompt=manager.settings.prompt,
        node=nodes,
        manager=_held(manager.settings, _ELSEWHERE),
        master=_held(own.settings, _PLANNED),
    )


def exchanged(recorded: Preset, scheduler: str, parts: Mapping[str, str]) -> Preset:
    """Return the recorded scheduler, or a preset by name, with some of its parts exchanged.

    Raises InputError for an unknown preset. An exchanged part forgets its options.
    """
    chosen = preset(scheduler) if scheduler else recorded
    for part in PARTS:
        given = parts.get(part)
        if given and given != getattr(chosen, part):
            forgets: Json = {part: given, f"{part}_options": {}}
            chosen = replace(chosen, **forgets)
    return chosen


def _held(settings: ManagerSettings | MasterSettings, leave_out: frozenset[str]) -> Json:
    names = [one.name for one in fields(settings) if one.name not in leave_out]
    return {name: getattr(settings, name) for name in names}


def cluster_of(seen: Seen) -> ClusterSpec:
    """Return the nodes that registered, with the queues with which the manager began."""
    assert seen.parts is not None
    queues = seen.parts.queues if seen.queues is None else seen.queues
    return ClusterSpec(seen.parts.types, tuple(seen.nodes.values()), queues)


def instead(seen: Seen, wanted: ClusterSpec) -> ClusterSpec:
    """Return other nodes; where nothing says what queues they have, with those of the run."""
    if wanted.queues == DEFAULT_QUEUES:
        return replace(wanted, queues=cluster_of(seen).queues)
    return wanted


def jobs_of(seen: Seen, measured: bool) -> list[Job]:
    """Return the jobs by application, with arrivals from WARM_S on.

    `measured`: tasks take what they took, contention of that run included; else what their file
    says. Jobs with masters that are not Weft's ask and hold as they did.
    """
    later_s = _later_s(seen)
    return [
        replace(job, arrival_s=seen.jobs[app][1] + later_s)
        for app, job in jobs_again(seen, measured).items()
    ]


def jobs_again(seen: Seen, measured: bool) -> dict[AppId, Job]:
    """Return the jobs as `jobs_of` does, by application, with arrivals of their own."""
    ends = {app: ended_s for app, (_, ended_s) in seen.ended.items()}
    recordings = seen.foreign.recordings(ends, seen.until_s)
    jobs = {}
    for app, (job, _) in seen.jobs.items():
        jobs[app] = job
        if is_foreign(job):
            # A job without a recording never began.
            jobs[app] = played(job, recordings.get(app, Recording(0.0, succeeded=False)))
        elif measured:
            stages = tuple(_measured(stage, i, app, seen) for i, stage in enumerate(job.stages))
            jobs[app] = replace(job, stages=stages)
    return jobs


def _first_s(seen: Seen) -> float:
    return min(arrival_s for _, arrival_s in seen.jobs.values())


def _later_s(seen: Seen) -> float:
    """Return by how much the time of `jobs_of` is ahead of the run's."""
    return WARM_S - _first_s(seen)


def beats_of(seen: Seen) -> dict[Address, float]:
    """Return when nodes beat last before the first job came, in the time of `jobs_of`."""
    first_s = _first_s(seen)
    ago = {node: first_s - beat_s for node, beat_s in seen.beats.items()}
    return {node_address(node): WARM_S - s for node, s in ago.items() if 0 <= s < WARM_S}


def recorded_of(seen: Seen, *, own_nodes: bool = True, own_queues: bool = True) -> Recorded:
    """Return what happened beside the jobs, in the time of `jobs_of`.

    What was changed before the first job came is when the nodes are there. Nodes that came by then
    are there, too, and stay.
    """
    later_s, first_s = _later_s(seen), _first_s(seen)
    came = {node: at_s for at_s, node in reversed(seen.starts)}
    nodes = [(at_s, node) for node, at_s in came.items() if at_s > first_s]
    again = [
        (max(WARM_S / 2, at_s + later_s), _moved(event, later_s))
        for at_s, event in _changes(seen, own_nodes, own_queues)
    ]
    late = [(at_s + later_s, seen.nodes[node]) for at_s, node in nodes] if own_nodes else []
    return Recorded(tuple(seen.jobs), late, again)


def rest_of(seen: Seen, apps: Sequence[AppId], after_s: float, *, own_nodes: bool) -> Recorded:
    """Return what happened beside these jobs after a time of the run, in the run's time."""
    nodes = [(at_s, seen.nodes[node]) for at_s, node in seen.starts if at_s > after_s]
    again = [(at_s, event) for at_s, event in _changes(seen, own_nodes, True) if at_s > after_s]
    return Recorded(apps, nodes if own_nodes else (), again)


def _changes(
    seen: Seen, own_nodes: bool, own_queues: bool
) -> Iterable[tuple[float, ClientRequested]]:
    """Return what clients changed, but for what of the cluster is another one's."""
    for at_s, event in seen.changes:
        of_nodes, of_queues = (isinstance(event.request, kind) for kind in (_OF_NODES, SetQueues))
        if not (of_nodes and not own_nodes) and not (of_queues and not own_queues):
            yield at_s, event


def _moved(event: ClientRequested, later_s: float) -> ClientRequested:
    """Return a request as it is made so much later."""
    request = event.request
    if isinstance(request, SetExpiry) and request.expires_s:
        return replace(event, request=replace(request, expires_s=request.expires_s + later_s))
    return event


def _measured(stage: Stage, place: int, app: AppId, seen: Seen) -> Stage:
    """Return a stage whose tasks take what they took; for those without end, the median."""
    found = [seen.run_s.get((app, place, task)) for task in range(stage.tasks)]
    known = [one for one in found if one is not None]
    usual = median(known) if known else None
    took = tuple(
        usual
        if one is None and usual is not None
        else stage.duration_of(task)
        if one is None
        else one
        for task, one in enumerate(found)
    )
    overrides = tuple(replace(one, actual_duration_s=None) for one in stage.overrides)
    return replace(stage, actual_duration_s=took, overrides=overrides)


def completion_times(
    cluster: ClusterSpec,
    jobs: Sequence[Job],
    settings: SimSettings,
    delays: Delays,
    first_beats: Mapping[Address, float],
) -> list[float]:
    """Return JCTs of the jobs in virtual time, s; negative: it was refused or did not end."""
    rows = MeasuredSimulation(cluster, jobs, settings, delays, None, first_beats).run().jobs
    return [_jct_s(row, row.job.arrival_s) for row in rows]


def _jct_s(row: JobRow, arrival_s: float) -> float:
    return row.finish_s - arrival_s if row.final_status == "SUCCEEDED" else -1.0


def _became(seen: Seen, app: AppId, row: JobRow) -> str:
    """Return how a simulated job ended; empty: it succeeded, or as it did live."""
    if row.final_status in ("SUCCEEDED", seen.ended.get(app, ("it ran", 0.0))[0]):
        return ""
    text = f"simulated, it was {row.end}"
    return f"{text}: {row.diagnostics}" if row.diagnostics else text


def compared(
    seen: Seen,
    apps: Sequence[AppId],
    before: Sequence[JobRow],
    after: Sequence[JobRow],
    later_s: float = 0.0,
) -> list[Jct]:
    """Return these jobs as they were and as two simulations have them, `later_s` ahead in time."""
    found = []
    for app, one, other in zip(apps, before, after, strict=True):
        job, arrival_s = seen.jobs[app]
        times = [_jct_s(row, arrival_s + later_s) for row in (one, other)]
        why = _became(seen, app, one) or _became(seen, app, other) or unended(seen, app)
        found.append(Jct(app, job.name, recorded_s(seen, app, arrival_s), times[0], times[1], why))
    return found


def compare(
    seen: Seen,
    same: SimSettings,
    changed: SimSettings,
    cluster: ClusterSpec,
    measured: bool,
    delays: Delays,
) -> list[Jct]:
    """Return every job as it was, simulated as it was, and simulated with what is changed.

    Clients change what they changed; of another `cluster` its nodes and queues stay as they are.
    """
    jobs, beats, own = jobs_of(seen, measured), beats_of(seen), cluster_of(seen)

    def rows(nodes: ClusterSpec, settings: SimSettings) -> list[JobRow]:
        recorded = recorded_of(
            seen, own_nodes=nodes.nodes == own.nodes, own_queues=nodes.queues == own.queues
        )
        return MeasuredSimulation(nodes, jobs, settings, delays, None, beats, recorded).run().jobs

    before, after = rows(own, same), rows(cluster, changed)
    return compared(seen, tuple(seen.jobs), before, after, _later_s(seen))


def seeded(settings: SimSettings, count: int) -> list[SimSettings]:
    """Return the settings for so many runs that differ in chance."""
    return [replace(settings, seed=seed) for seed in range(count)]


def mean_of(runs: Sequence[Sequence[Jct]]) -> list[Jct]:
    """Return every job's mean over runs that differ in chance; it must have ended in all."""

    def mean(times: Sequence[float]) -> float:
        return sum(times) / len(times) if min(times) >= 0 else -1.0

    return [
        replace(
            of_job[0],
            same_s=mean([row.same_s for row in of_job]),
            changed_s=mean([row.changed_s for row in of_job]),
            why=next((row.why for row in of_job if row.why), ""),
            same_by_draw_s=tuple(row.same_s for row in of_job),
            changed_by_draw_s=tuple(row.changed_s for row in of_job),
        )
        for of_job in zip(*runs, strict=True)
    ]


def recorded_s(seen: Seen, app: AppId, arrival_s: float) -> float:
    """Return how long a job took live, s; negative: it did not succeed."""
    status, ended_s = seen.ended.get(app, ("", 0.0))
    return ended_s - arrival_s if status == "SUCCEEDED" else -1.0


def unended(seen: Seen, app: AppId) -> str:
    """Return why a job has no completion time live; empty: it succeeded."""
    status, _ = seen.ended.get(app, ("", 0.0))
    if status == "SUCCEEDED":
        return ""
    return status if status else "had not ended when the tape did"
