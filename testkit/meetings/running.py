"""One meeting, run in virtual time: the evidence of it, and what the fault search finds wrong."""

from dataclasses import replace
from typing import NamedTuple

from sim import fuzz
from sim.cluster import Simulation
from sim.promises import Promises
from sim.recorder import Recorder
from sim.results import Run, job_rows
from testkit.meetings.drawn import HEARTBEAT_S, PATIENCE_S, Meeting
from testkit.meetings.evidence import Ended, Evidence, Kept, Start
from weft.model.ids import AppId, NodeId
from weft.protocol.facts import (
    AppChanged,
    Closed,
    Fact,
    Placed,
    PreemptionChosen,
    TaskStarted,
    TaskStopped,
)
from weft.protocol.messages import Address, ContainersAsked, NodeAnswered

_WATCHED = (AppChanged, Placed, Closed, PreemptionChosen, TaskStarted, TaskStopped)


class Ran(NamedTuple):
    """What a run left: evidence, and what broke it (an exception, or what is left afterwards)."""

    evidence: Evidence
    problem: str


class _Listener:
    """Keeps facts and messages in the order of time."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._kept: dict[NodeId, AppId] = {}
        self.events: list[tuple[float, object]] = []
        simulation.watchers.append(self.note)
        simulation.listen(self.message)

    def note(self, now: float, fact: Fact) -> None:
        if isinstance(fact, _WATCHED):
            self._look(now)
            self.events.append((now, fact))

    def message(self, to: Address, message: object) -> None:
        now = self._simulation.engine.now
        if isinstance(message, ContainersAsked):
            self.events.append((now, message))
        elif isinstance(message, NodeAnswered):
            self._look(now)

    def _look(self, now: float) -> None:
        books = self._simulation.manager.books
        reserved = books.ledger.nodes.reserved
        slots = reserved[: len(books.node_at)].nonzero()[0].tolist()
        if not slots and not self._kept:
            return
        asks = [entry for entry in books.rows.entries if entry is not None and not entry.ask.gang]
        apps = {entry.serial: books.app_at[entry.app] for entry in asks}
        kept = {}
        for slot in slots:
            serial = int(reserved[slot])
            app = apps.get(serial) if serial in books.matching.reserved else None
            kept[books.node_at[slot].node_id] = 0 if app is None else app.app_id
        if kept != self._kept:
            self._kept = kept
            self.events.append((now, Kept(kept)))


def run(meeting: Meeting, *, watched: bool = True) -> Ran:
    """Run a meeting to its end; one that is not `watched` leaves its starts and no events."""
    if not watched:
        until_s = meeting.until_s + fuzz.CALM_S
        quick = replace(meeting.settings, checks=False, skip_idle=True, until_s=until_s)
        simulation = Simulation(meeting.cluster, meeting.jobs, quick, Recorder())
        try:
            simulation.run()
        # What a core raises is the finding, as in a run that is watched.
        except Exception as error:
            return Ran(_evidence(meeting, simulation, []), f"{type(error).__name__}: {error}")
        return Ran(_evidence(meeting, simulation, []), "")
    simulation = Simulation(meeting.cluster, meeting.jobs, meeting.settings, Recorder())
    listener = _Listener(simulation)
    if meeting.faults.script or not meeting.faults.network.perfect:
        Promises(simulation, expiry_s=meeting.manager["node_expiry_s"], early=False)
    problem = fuzz.prove(simulation)
    return Ran(_evidence(meeting, simulation, listener.events), problem)


def _evidence(
    meeting: Meeting, simulation: Simulation, events: list[tuple[float, object]]
) -> Evidence:
    row, cluster = meeting.row, meeting.cluster
    results = Run(cluster, simulation.recorder.jobs, simulation.recorder.columns())
    jobs = [
        Ended(one.job, one.app, one.state, one.finish_s, one.diagnostics)
        for one in simulation.recorder.jobs
    ]
    return Evidence(
        cluster,
        row["matcher"],
        row["pace"],
        HEARTBEAT_S,
        PATIENCE_S,
        events,
        jobs,
        _starts(simulation),
        row["preemption"] == "users",
        ("network_mbps",) if row["matcher"] == "graphene" else (),
        numbers=[int(one[0]) for one in job_rows(results)],
        ended_by_itself=not simulation.recorder.open_jobs or bool(simulation.stuck),
    )


def _starts(simulation: Simulation) -> list[Start]:
    """Return every try of every task, by places in the workload and the cluster."""
    recorder = simulation.recorder
    columns = recorder.columns()
    jobs = {row.app: row.number for row in recorder.jobs}
    places = {spec.node_id: place for place, spec in enumerate(simulation.cluster.nodes)}
    rows = zip(
        columns.app.tolist(),
        columns.stage.tolist(),
        columns.task.tolist(),
        columns.attempt.tolist(),
        [places[columns.nodes[node]] for node in columns.node.tolist()],
        columns.start_s.tolist(),
        columns.end_s.tolist(),
        columns.outcome.tolist(),
        strict=True,
    )
    found = [
        Start(jobs[app], stage, task, attempt, node, round(start_s, 6), round(end_s, 6), outcome)
        for app, stage, task, attempt, node, start_s, end_s, outcome in rows
    ]
    return sorted(found)
