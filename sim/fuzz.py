"""The search for faults that break a promise: one seed, one run of the whole cluster, one verdict.

Judged from outside, by `sim.checkers` and by what is left 60 s after the end: every job ends well,
a task is done once in its job's eyes, nothing runs that was not granted, nothing is over capacity,
and no book, outbox, row or node keeps anything.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from nm.settings import NodeSettings
from rm.ledger.queues import QueueTree
from sim.cluster import Simulation
from sim.faults import Fault, FaultKind, Faults
from sim.members import Members
from sim.network import LinkSettings
from sim.promises import Promises
from sim.recorder import Recorder
from sim.settings import SimSettings
from sim.swarm import Case
from weft.model.queues import queues_to_dict
from weft.policies.presets import choose
from weft.policies.shares import STEP, sizes_of, whole
from weft.protocol.buggify import Buggify
from weft.protocol.messages import MANAGER
from weft.protocol.requests import QueueReport

# Links stay bad and rare paths are taken for so long.
FAULTS_S = 900.0
# A job that has not ended by so much later hangs.
CALM_S = 300.0
# So long after the last end and the last fault nothing may be left.
REST_S = 60.0
# A core checks its own books once in so many events.
EVENTS_PER_CHECK = 40
# More events for a few dozen tasks are a storm.
EVENTS_MAX = 400_000
MANAGER_SETTINGS = {
    "node_expiry_s": 10.0,
    "master_expiry_s": 12.0,
    "max_attempts": 250,
    "reserve_after_s": 10.0,
    "node_ends_max": 0,
}
MASTER_SETTINGS = {"node_failures_max": 50, "node_ends_max": 0}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a run showed; an empty `problem` is none.

    `repeated` counts successes of tasks that had succeeded before.
    """

    problem: str
    at_s: float
    events: int
    tasks: int
    repeated: int

    @property
    def kind(self) -> str:
        """The problem without its numbers and names, to tell one bug from another."""
        return "".join(c for c in self.problem.split(" [")[0] if not c.isdigit())


def settings_of(case: Case) -> SimSettings:
    """Return how a case is run: with patience short enough that it runs out."""
    rare = case.faults.rare
    chance = Buggify(np.random.default_rng([case.seed, 23]), rare) if rare else None
    return SimSettings(
        choose(case.preset, asker=case.asker),
        seed=case.seed,
        prompt=case.prompt,
        checks=True,
        check_every=EVENTS_PER_CHECK,
        faults=case.faults,
        node=NodeSettings(tombstone_s=120.0, buggify=chance),
        manager={**MANAGER_SETTINGS, **case.manager, "buggify": chance},
        master={**MASTER_SETTINGS, **case.master, "buggify": chance},
        until_s=FAULTS_S,
        skip_idle=False,
        events_max=EVENTS_MAX,
    )


def run(case: Case) -> Verdict:
    """Run one case to its verdict."""
    simulation: Simulation | Members | None = None
    try:
        settings, recorder = settings_of(case), Recorder()
        if case.members > 1:
            simulation = Members(case.cluster, case.jobs, settings, recorder, case.members)
        else:
            simulation = Simulation(case.cluster, case.jobs, settings, recorder)
        for one in _parts(simulation):
            Promises(one, expiry_s=MANAGER_SETTINGS["node_expiry_s"], early=case.faults.rare > 0)
        problem = prove(simulation)
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
    if simulation is None:
        return Verdict(" ".join(problem.split()), 0.0, 0, 0, 0)
    done = simulation.recorder.finished_tasks
    wanted = sum(job.task_count for job in case.jobs)
    return Verdict(problem, simulation.now_s, simulation.events, wanted, max(0, done - wanted))


def _parts(simulation: Simulation | Members) -> Sequence[Simulation]:
    """Return the members of a cluster, or the cluster without any."""
    return simulation.members if isinstance(simulation, Members) else [simulation]


def prove(simulation: Simulation | Members) -> str:
    """Run a simulation to its end and to rest; return what is wrong then, empty: nothing."""
    problem = ""
    try:
        simulation.run()
        # Bad enough links let no master live for long.
        if _unfinished(simulation) and not simulation.stuck:
            _calm_down(simulation)
            simulation.go_on(simulation.settings.until_s + CALM_S)
        problem = _unfinished(simulation)
        if not problem:
            rest(simulation)
            problem = next(chain.from_iterable(map(leftovers, _parts(simulation))), "")
        if not problem and isinstance(simulation, Members):
            problem = next(astray(simulation), "")
    # Whatever a core raises ends its process: that is the finding.
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
    return " ".join(problem.split())


def _unfinished(simulation: Simulation | Members) -> str:
    for row in simulation.recorder.jobs:
        if row.finish_s < 0:
            return f"a job hangs [{row.job.name}: {row.state}]"
        if row.state == "KILLED" and row.job.lifetime_s:
            continue
        # It was never accepted: an empty cluster could not hold the gang beside its master.
        if row.state == "REFUSED" and any(stage.gang for stage in row.job.stages):
            continue
        if row.state != "FINISHED":
            return f"a job ended {row.state} [{row.job.name}: {row.diagnostics}]"
    return ""


def _calm_down(simulation: Simulation | Members) -> None:
    """Stop all losses and rare paths."""
    for one in _parts(simulation):
        one.network.settings = LinkSettings()
    chance = simulation.settings.node.buggify
    if isinstance(chance, Buggify):
        chance.stop()


def rest(simulation: Simulation | Members) -> None:
    """Let the last fault pass, repair the links, and wait until nothing more should happen."""
    last_s = max((f.at_s + f.for_s for f in simulation.settings.faults.script), default=0.0)
    _calm_down(simulation)
    simulation.go_on(max(simulation.now_s, last_s))
    simulation.mend()
    simulation.go_on(simulation.now_s + REST_S)
    for one in _parts(simulation):
        one.check()


def astray(cluster: Members) -> Iterator[str]:
    """Yield what is wrong with the guarantees of members, 60 s after the last fault.

    All go by what was set last, and what a queue has in all of them is what it was set.
    """
    set_later = [f.queues for f in cluster.settings.faults.script if f.kind is FaultKind.QUEUES]
    said = whole(set_later[-1] if set_later else cluster.cluster.queues)
    told = [member.told() for member in cluster.members]
    sizes = sizes_of([metrics for *_, metrics in told])
    sums = defaultdict[str, float](float)
    for at, ((tree, report, _), size) in enumerate(zip(told, sizes, strict=True), 1):
        if whole(tree) != said:
            yield f"a member has other queues than were set [{at}: {queues_to_dict(whole(tree))}]"
        for path, capacity in _guarantees(report):
            sums[path] += capacity * size
    tree_said = QueueTree(said)
    for path, capacity in zip(tree_said.paths, tree_said.capacity.tolist(), strict=True):
        if abs(sums[path] - capacity) > 2 * STEP * capacity + 1e-6:
            yield f"a queue is guaranteed another part [{path}: {sums[path]:.4f}, {capacity:.4f}]"


def _guarantees(report: QueueReport) -> Iterator[tuple[str, float]]:
    yield report.name, report.capacity
    for child in report.children:
        yield from _guarantees(child)


def leftovers(simulation: Simulation) -> Iterator[str]:
    """Yield what a cluster whose jobs are all over still keeps."""
    if MANAGER not in simulation.actors:
        yield "the Resource Manager is gone"
        return
    books, names = simulation.manager.books, {spec.node_id for spec in simulation.cluster.nodes}
    kept: dict[str, object] = {
        "containers in the manager's books": list(books.holdings),
        "containers waited for": {n: list(m) for n, m in books.unseen_containers.items()},
        "masters waited for": list(books.returning_masters),
        "masters to be notified of machines": list(books.early),
        "masters to be placed": list(books.waiting),
        "asks": books.rows.live,
        "reserved nodes": dict(books.matching.reserved),
        "applications in the ledger": [a.app_id for a in books.app_at if a is not None],
        "ends to be journalled": dict(books.unsaved_tasks),
    }
    for node in books.node_at:
        # A hostile sender made this node up.
        if node.node_id not in names:
            continue
        if not node.present and node.state.name != "DECOMMISSIONED":
            yield f"a node did not come back [{node.node_id}: {node.state.name}]"
        kept[f"orders to a node [{node.node_id}]"] = node.outbox.owes
        kept[f"lost containers of a node [{node.node_id}]"] = list(node.unconfirmed)
    for name, core in simulation.node_cores():
        kept[f"containers on a node [{name}]"] = list(core.containers)
        kept[f"reports of a node [{name}]"] = core.owes
    kept["masters"] = [address for address in simulation.actors if address.startswith("am:")]
    for what, left in kept.items():
        if left:
            text = what if "[" in what else f"{what} ["
            yield f"60 s after the end there are {text.rstrip(']')} {left}]"
    done = {
        row.app: row.job.task_count for row in simulation.recorder.jobs if row.state == "FINISHED"
    }
    for number, app in books.apps.items():
        counted = sum(app.finished_by_stage)
        if number in done and counted != done[number]:
            yield f"a job counts another number of finished tasks [{counted} of {done[number]}]"


# -- shrinking -------------------------------------------------------------------------------------


def shrink(
    case: Case, kind: str, judge: Callable[[Case], Verdict] = run, tries_max: int = 200
) -> Case:
    """Return the smallest script found that shows the same kind of problem (delta debugging)."""
    left = [tries_max]

    def still(faults: Faults) -> bool:
        if left[0] <= 0:
            return False
        left[0] -= 1
        return judge(replace(case, faults=faults)).kind == kind

    faults = _calm(case.faults, still)
    script = _fewest(faults, still)
    faults = replace(faults, script=script)
    faults = _calm(faults, still)
    return replace(case, faults=_simplest(faults, still))


def _calm(faults: Faults, still: Callable[[Faults], bool]) -> Faults:
    """Return faults without bad links and rare paths, as far as they show the same."""
    links = faults.network
    calmer = [
        replace(faults, network=LinkSettings(), rare=0.0),
        replace(faults, rare=0.0),
        replace(faults, network=LinkSettings()),
    ]
    for quiet in calmer:
        if quiet != faults and still(quiet):
            return quiet
    for field in ("loss", "duplicate"):
        quiet = replace(faults, network=replace(links, **{field: 0.0}))
        if quiet != faults and still(quiet):
            faults, links = quiet, quiet.network
    quiet = replace(faults, network=replace(links, delay_s_min=0.0, delay_s_max=0.0))
    return quiet if quiet != faults and still(quiet) else faults


def _fewest(faults: Faults, still: Callable[[Faults], bool]) -> tuple[Fault, ...]:
    """Drop ever smaller parts of the script (Zeller and Hildebrandt's ddmin)."""
    script, parts = list(faults.script), 2
    while script:
        size = max(1, len(script) // parts)
        for first in range(0, len(script), size):
            fewer = script[:first] + script[first + size :]
            if still(replace(faults, script=tuple(fewer))):
                script, parts = fewer, max(2, parts - 1)
                break
        else:
            if size == 1:
                break
            parts = min(len(script), parts * 2)
    return tuple(script)


def _simplest(faults: Faults, still: Callable[[Faults], bool]) -> Faults:
    """Return simpler faults: one node for several, no death amid effects, round durations."""
    for place in range(len(faults.script)):
        fault = faults.script[place]
        simpler = [replace(fault, nodes=(node,)) for node in fault.nodes if len(fault.nodes) > 1]
        simpler += [replace(fault, effect=-1)] if fault.effect >= 0 else []
        for one in simpler:
            script = (*faults.script[:place], one, *faults.script[place + 1 :])
            if still(replace(faults, script=script)):
                faults = replace(faults, script=script)
                break
    return faults
