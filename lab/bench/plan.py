"""`weft bench plan`: how long does Graphene's whole search take, and what do the kernels save?

Stage-structured DAGs with 4 resources, every candidate, both headings of T, every order, no early
stop; one machine per ten tasks and, harder, per hundred. The plain-Python board is the textbook
one: profiles in lists, every task fitted by itself on every machine.
"""

import resource
import sys
import time
from bisect import bisect_left, bisect_right, insort
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from am.ask.carbyne import Carbyne
from am.job_state import JobState
from am.plan import search
from am.plan.part import Grid
from am.plan.paths import dependencies_of, levels
from am.plan.population import Inserter
from am.plan.registry import PlanRequest, planner
from am.progress import RUNNING
from am.settings import MasterSettings
from am.work import JobExecution
from weft.model.dag import Dag, Ints, Link, Machines, StageEdge
from weft.model.ids import attempt_id
from weft.model.job import Edge, EdgeKind, Job, Stage
from weft.model.resources import Kind, ResourceType, ResourceTypes
from weft.protocol.messages import AttemptAccepted

SIZES = (1_000, 10_000, 100_000)
CORES = 2
_BASELINE_TASKS = 3_000


def run(quick: bool = False) -> list[dict[str, Any]]:
    """Return a row per size; `growth` is of processor time against the size before."""
    # The first plan compiles the kernels, or loads what was compiled.
    _plan(stage_dag(60, 6), Machines.alike(6, [1.0] * 4))
    rows: list[dict[str, Any]] = []
    for per_machine in (10, 100):
        before_s = 0.0
        for tasks in SIZES[: 2 if quick else None]:
            dag, machines = stage_dag(tasks), Machines.alike(tasks // per_machine, [1.0] * 4)
            wall_s, cpu_s, plan = _plan(dag, machines)
            row = {
                "case": "graphene, whole search, 2 threads",
                "tasks": dag.tasks,
                "stages": dag.stages,
                "machines": machines.count,
                "candidates": plan.candidates,
                "wall_s": round(wall_s, 3),
                "cpu_s": round(cpu_s, 3),
                "peak_mb": _peak_rss_mb(),
            }
            if before_s:
                # Others' load on the machine cancels out of a ratio less well.
                row["growth"] = round(cpu_s / before_s, 1)
            before_s = cpu_s
            rows.append(row)
    return [*rows, altruism(), _boards()]


def altruism(tasks: int = 1_000, rounds: int = 200) -> dict[str, Any]:
    """Measure Carbyne in a master when the share changes: T_k, the reversed packing, asks.

    A job of stages like the above, two of them under way; the share moves at every call, so that
    nothing can be kept. The paper adds at most 10 ms to the master's decision (section 5.2.4).
    """
    dag = stage_dag(tasks)
    state = JobState(attempt_id(1, 1), MasterSettings(planner=""), _accepted(dag))
    work = JobExecution(state, Carbyne(), np.random.default_rng(0))
    work.adopt(None)
    work.consult(0.0)
    for stage in work.progress.stages[:2]:
        stage.state[: len(stage.state) // 2] = bytes([RUNNING]) * (len(stage.state) // 2)
    took = []
    for number in range(rounds):
        level = 0.1 + 0.1 * (number % 7)
        state.follow_share(tuple(level * amount for amount in state.capacity))
        began_s = time.process_time()
        work.consult(float(number))
        took.append(1e3 * (time.process_time() - began_s))
    return {
        "case": "carbyne in the master, a new share",
        "tasks": dag.tasks,
        "stages": dag.stages,
        "median_ms": round(float(np.median(took)), 2),
        "p99_ms": round(float(np.percentile(took, 99)), 2),
        "target_ms": 10,
    }


def _accepted(dag: Dag) -> AttemptAccepted:
    """Return the Resource Manager's answer to a DAG's master, as many machines as stages."""
    first = dag.first
    parents: dict[int, list[Edge]] = {}
    for edge in dag.edges:
        kind = EdgeKind.ALL_TO_ALL if edge.link is Link.ALL else EdgeKind.ONE_TO_ONE
        parents.setdefault(edge.child, []).append(Edge(dag.stage_names[edge.parent], kind))
    stages = tuple(
        Stage(
            name,
            int(first[i + 1] - first[i]),
            float(dag.duration_s[first[i]]),
            dict(zip(dag.resources, dag.demand[first[i]].tolist(), strict=True)),
            tuple(parents.get(i, ())),
        )
        for i, name in enumerate(dag.stage_names)
    )
    types = ResourceTypes(tuple(ResourceType(name, Kind.DIVISIBLE) for name in dag.resources))
    slot = (1.0,) * len(types)
    return AttemptAccepted(
        attempt_id(1, 1),
        Job("job", stages),
        types,
        ((slot, dag.stages),),
        slot,
        (),
        1.0,
        True,
        0,
        0,
    )


def stage_dag(tasks: int, stages: int | None = None, seed: int = 0) -> Dag:
    """Return a random DAG of sqrt(n) stages of unlike sizes, up to three parents each.

    Durations are log-normal (median 12 s), half of the demands 0.02 and the others up to 0.64 of a
    machine; four edges in five are barriers, the others one to one.
    """
    rng = np.random.default_rng(seed)
    stages = stages or max(2, round(tasks**0.5))
    sizes = 1 + rng.multinomial(tasks - stages, rng.dirichlet(np.ones(stages)))
    duration = np.round(np.exp(rng.normal(2.5, 1.0, stages)), 2)
    demand = np.round(rng.uniform(0.02, 0.62, (stages, 4)) * (rng.random((stages, 4)) < 0.5), 3)
    edges = []
    for child in range(1, stages):
        for parent in rng.permutation(child)[: rng.integers(0, 4)].tolist():
            link = Link.ALL if rng.random() < 0.8 else Link.ONE
            edges.append(StageEdge(parent, child, link))
    return Dag(
        resources=("r1", "r2", "r3", "r4"),
        stage_names=tuple(f"s{i}" for i in range(stages)),
        first=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        duration_s=np.repeat(duration, sizes),
        demand=np.repeat(demand + 0.02, sizes, axis=0),
        edges=tuple(edges),
    )


def _plan(dag: Dag, machines: Machines) -> tuple[float, float, Any]:
    with ThreadPoolExecutor(CORES) as pool:
        request = PlanRequest(
            dag,
            machines,
            np.random.default_rng(0),
            {"early_stop": False},
            workers=CORES,
            spread=pool.map,
        )
        began_s, used_s = time.perf_counter(), time.process_time()
        plan = planner("graphene")(request)
        return time.perf_counter() - began_s, time.process_time() - used_s, plan


def _peak_rss_mb() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak / (1 << 20) if sys.platform == "darwin" else peak / 1024)


def _boards() -> dict[str, Any]:
    """Measure one forward placement of a DAG on both boards; the makespans must agree."""
    dag = stage_dag(_BASELINE_TASKS)
    machines = Machines.alike(_BASELINE_TASKS // 10, [1.0] * 4)
    prepared = search.PreparedPart.of(dag, machines, Grid.of(dag, machines))
    level = levels(dependencies_of(dag))
    order = np.lexsort((prepared.kind, -prepared.dominant, level))
    kernel_s, span = float("inf"), 0
    inserter = Inserter(prepared, PlanRequest(dag, machines, np.random.default_rng(0), {}))
    for _ in range(5):
        began_s = time.perf_counter()
        span = int(inserter.insert(-level.reshape(1, -1), 1).span[0])
        kernel_s = min(kernel_s, time.perf_counter() - began_s)
    began_s = time.perf_counter()
    plain = PlainBoard(prepared.room).insert(dag, order, prepared.part.length, prepared.part.demand)
    python_s = time.perf_counter() - began_s
    return {
        "case": "one forward placement, plain Python board",
        "tasks": dag.tasks,
        "machines": machines.count,
        "wall_s": round(python_s, 3),
        "kernel_s": round(kernel_s, 5),
        "times_faster": round(python_s / kernel_s),
        "same_makespan": bool(plain == span),
    }


class PlainBoard:
    """The resource-time space as one would first write it; times in ticks, amounts in units."""

    def __init__(self, room: Ints) -> None:
        self.times: list[list[int]] = [[-(1 << 61)] for _ in room]
        self.free: list[list[list[int]]] = [[list(map(int, row))] for row in room]

    def insert(self, dag: Dag, order: Ints, length: Ints, demand: Ints) -> int:
        """Place the tasks, parents first, each at its earliest fit; return the makespan."""
        parents: list[list[int]] = [[] for _ in range(dag.tasks)]
        for above, below in dag.task_edges():
            parents[below].append(above)
        end = [0] * dag.tasks
        for task in order.tolist():
            ready = max((end[p] for p in parents[task]), default=0)
            need = [int(x) for x in demand[task]]
            lasts = int(length[task])
            starts = [self.fit(m, ready, lasts, need) for m in range(len(self.times))]
            start = min(starts)
            self.take(starts.index(start), start, start + lasts, need)
            end[task] = start + lasts
        return max(end)

    def fit(self, machine: int, ready: int, lasts: int, need: list[int]) -> int:
        """Return the earliest start at or after `ready` on one machine."""
        times, free = self.times[machine], self.free[machine]
        row, start = bisect_right(times, ready) - 1, ready
        while True:
            if any(have < want for have, want in zip(free[row], need, strict=True)):
                row += 1
                start = times[row]
            else:
                row += 1
                if row == len(times) or times[row] >= start + lasts:
                    return start

    def take(self, machine: int, start: int, end: int, need: list[int]) -> None:
        """Reserve an amount on a machine in [start, end)."""
        times, free = self.times[machine], self.free[machine]
        for time_ in (start, end):
            if times[bisect_right(times, time_) - 1] != time_:
                row = bisect_right(times, time_)
                insort(times, time_)
                free.insert(row, list(free[row - 1]))
        for row in range(bisect_left(times, start), bisect_left(times, end)):
            free[row] = [have - want for have, want in zip(free[row], need, strict=True)]
