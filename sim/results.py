"""Numbers of a run: JCT, makespan, fairness, utilisation, running tasks over time, rows of CSV."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np

from sim.recorder import JobRow, TaskColumns
from weft.model.cluster import ClusterSpec
from weft.model.dag import Floats, Ints
from weft.model.ids import format_container
from weft.model.job import EdgeKind, Job, one_to_one_parents
from weft.protocol.messages import Outcome

Row = tuple[str | int | float, ...]
WINDOWS_S = (10, 60, 240)
POINTS_MAX = 2000
JOB_COLUMNS = (
    "job",
    "name",
    "queue",
    "arrival_s",
    "start_s",
    "finish_s",
    "jct_s",
    "tasks",
    "state",
)
TASK_COLUMNS = (
    "job",
    "stage",
    "index",
    "attempt",
    "node",
    "container",
    "ready_s",
    "start_s",
    "end_s",
    "state",
)
STAGE_COLUMNS = ("job", "stage", "tasks", "duration_s", "parents")
NODE_COLUMNS = ("node", "rack", "tasks", "busy_s", "failed")


@dataclass(frozen=True, slots=True)
class Run:
    """A finished run, as the reports read it."""

    cluster: ClusterSpec
    jobs: Sequence[JobRow]
    tasks: TaskColumns


def jct_s(row: JobRow) -> float:
    """Return the job completion time from arrival to end; negative where it did not end."""
    return row.finish_s - row.job.arrival_s if row.finish_s >= 0 else -1.0


def percentiles(values: Floats) -> dict[str, float]:
    """Return the mean and the percentiles of the contract; zeros without values."""
    if not len(values):
        return dict.fromkeys(("mean", "p25", "p50", "p75", "p95"), 0.0)
    found = {"mean": float(values.mean())}
    for p in (25, 50, 75, 95):
        found[f"p{p}"] = float(np.percentile(values, p))
    return found


def makespan_s(run: Run) -> float:
    """Return the time from the first arrival to the last end, s."""
    ends = [row.finish_s for row in run.jobs if row.finish_s >= 0]
    if not ends:
        return 0.0
    return max(ends) - min(row.job.arrival_s for row in run.jobs)


def jain(values: Floats) -> float:
    """Return Jain's index: (sum)^2 / (n x sum of squares); 1 where nothing is shared."""
    squares = float((values * values).sum())
    return float(values.sum()) ** 2 / (len(values) * squares) if squares > 0 else 1.0


def dominant_shares(run: Run) -> Floats:
    """Return the dominant share of C that each task attempt holds, by its estimated demand."""
    return _task_shares(run, lambda parts: float(parts.max()))


def held_over_time(
    run: Run, altruistic: Sequence[int]
) -> tuple[str, list[float], list[float], list[float]]:
    """Return what tasks hold of the busiest resource, as parts of C: by DEFAULT asks, of leftover.

    `altruistic` are the containers that were granted to ALTRUISTIC asks. Answers (resource, times
    s, held by DEFAULT ones, held by ALTRUISTIC ones), thinned to some thousand points.
    """
    used = utilisation(run)
    name = max(used, key=lambda each: used[each])
    place = run.cluster.types.names.index(name)
    shares = _task_shares(run, lambda parts: float(parts[place]))
    spare = np.isin(run.tasks.container, np.array(altruistic, dtype=np.int64))
    end_s = float(run.tasks.end_s.max(initial=0.0))
    grid = np.linspace(0.0, end_s, min(POINTS_MAX, max(2, 2 * len(run.tasks))))
    levels = []
    for mask in (~spare, spare):
        times = np.concatenate([run.tasks.start_s[mask], run.tasks.end_s[mask]])
        order = np.argsort(times, kind="stable")
        steps = np.concatenate([shares[mask], -shares[mask]])[order]
        level = np.concatenate([[0.0], np.cumsum(steps)])
        found = level[np.searchsorted(times[order], grid, side="right")]
        levels.append(np.round(np.maximum(found, 0.0), 6).tolist())
    return name, np.round(grid, 3).tolist(), levels[0], levels[1]


def _task_shares(run: Run, fold: Callable[[Floats], float]) -> Floats:
    """Return by task attempt what `fold` makes of its estimated demand over C."""
    total = np.array(run.cluster.total)
    total[total == 0] = np.inf
    shares = np.zeros(len(run.tasks))
    for app, stage, rows in _groups(run.tasks):
        job = _job(run, app)
        if job is None:
            continue
        spec = job.stages[stage]
        vector = run.cluster.types.vector
        if spec.overrides:
            for row in rows:
                demand = vector(spec.demand_of(int(run.tasks.task[row])))
                shares[row] = fold(np.array(demand) / total)
        else:
            shares[rows] = fold(np.array(vector(spec.demand)) / total)
    return shares


def jain_index(run: Run, window_s: float, shares: Floats) -> float:
    """Return the mean of Jain's index over windows; nan where no window says anything."""
    found = jain_by_window(run, window_s, shares)
    return float(found.mean()) if len(found) else float("nan")


def jain_by_window(run: Run, window_s: float, shares: Floats) -> Floats:
    """Return Jain's index of each window, over the jobs that were there all the time.

    A job's value is the dominant share that it held on average in the window. A window in which
    fewer than two jobs were present throughout says nothing and is left out.
    """
    end_s = max((row.finish_s for row in run.jobs), default=0.0)
    windows = int(end_s // window_s) if window_s > 0 else 0
    apps = {row.app: place for place, row in enumerate(run.jobs) if row.app and row.finish_s >= 0}
    if not windows or len(apps) < 2:
        return np.zeros(0)
    total, squares, present = (np.zeros(windows) for _ in range(3))
    rows_of = _rows_by_app(run.tasks)
    for app, place in apps.items():
        row = run.jobs[place]
        first = int(-(-row.job.arrival_s // window_s))
        last = min(windows, int(row.finish_s // window_s))
        if first >= last or app not in rows_of:
            continue
        edges = window_s * np.arange(first, last + 1, dtype=np.float64)
        held = np.diff(_held_until(run.tasks, rows_of[app], shares, edges))
        total[first:last] += held
        squares[first:last] += held * held
        present[first:last] += 1
    shared = present >= 2
    # Where nobody holds anything, nothing is shared unfairly.
    none = squares[shared] <= 0
    below = np.where(none, 1.0, present[shared] * squares[shared])
    return np.asarray(np.where(none, 1.0, total[shared] ** 2 / below))


def _rows_by_app(tasks: TaskColumns) -> dict[int, Ints]:
    order = np.argsort(tasks.app, kind="stable")
    apps, first = np.unique(tasks.app[order], return_index=True)
    return dict(zip(apps.tolist(), np.split(order, first[1:]), strict=True))


def _held_until(tasks: TaskColumns, rows: Ints, shares: Floats, times: Floats) -> Floats:
    """Return share x s that one job's tasks held until each of some times."""
    held = np.zeros(len(times))
    for at, sign in ((tasks.start_s[rows], 1.0), (tasks.end_s[rows], -1.0)):
        order = np.argsort(at, kind="stable")
        weight = shares[rows][order]
        count = np.searchsorted(at[order], times)
        sums = np.concatenate([[0.0], np.cumsum(weight)])[count]
        moments = np.concatenate([[0.0], np.cumsum(weight * at[order])])[count]
        held += sign * (sums * times - moments)
    return np.maximum(held, 0.0)


def utilisation(run: Run) -> dict[str, float]:
    """Return the mean true use of each resource over the makespan, as a fraction of C."""
    span_s = makespan_s(run)
    names = run.cluster.types.names
    total = np.array(run.cluster.total)
    if span_s <= 0:
        return dict.fromkeys(names, 0.0)
    used = np.zeros(len(names))
    ran_s = run.tasks.end_s - run.tasks.start_s
    for app, stage, rows in _groups(run.tasks):
        job = _job(run, app)
        if job is None:
            continue
        spec = job.stages[stage]
        vector = run.cluster.types.vector
        for row in rows if spec.overrides else rows[:1]:
            index = int(run.tasks.task[row])
            demand = np.array(vector(spec.actual_demand_of(index)))
            taken = ran_s[row] if spec.overrides else ran_s[rows].sum()
            used += demand * taken
    return {
        name: float(min(1.0, amount / (capacity * span_s))) if capacity else 0.0
        for name, amount, capacity in zip(names, used, total, strict=True)
    }


def running_over_time(tasks: TaskColumns) -> tuple[list[float], list[int]]:
    """Return (times s, running tasks from then on), thinned to some thousand points."""
    if not len(tasks):
        return [], []
    times = np.concatenate([tasks.start_s, tasks.end_s])
    steps = np.concatenate([np.ones(len(tasks)), -np.ones(len(tasks))])
    order = np.argsort(times, kind="stable")
    level = np.cumsum(steps[order])
    times = times[order]
    grid = np.linspace(0.0, float(times[-1]), min(POINTS_MAX, max(2, 2 * len(tasks))))
    at = np.searchsorted(times, grid, side="right") - 1
    values = np.where(at >= 0, level[np.maximum(at, 0)], 0)
    return grid.tolist(), values.astype(int).tolist()


def job_rows(run: Run) -> Iterator[Row]:
    """Yield rows of jobs.csv."""
    starts: dict[int, float] = {}
    if len(run.tasks):
        order = np.argsort(run.tasks.app, kind="stable")
        apps, first = np.unique(run.tasks.app[order], return_index=True)
        lows = np.minimum.reduceat(run.tasks.start_s[order], first)
        starts = dict(zip(apps.tolist(), lows.tolist(), strict=True))
    for number, row in zip(_numbers(run), run.jobs, strict=True):
        job = row.job
        yield (
            number,
            job.name,
            job.queue,
            _s(job.arrival_s),
            _s(starts[row.app]) if row.app in starts else "",
            _s(row.finish_s) if row.finish_s >= 0 else "",
            _s(jct_s(row)) if row.finish_s >= 0 else "",
            job.task_count,
            row.end,
        )


def task_rows(run: Run) -> Iterator[Row]:
    """Yield rows of tasks.csv, in the order in which the tasks ended."""
    ready = ready_times(run)
    tasks = run.tasks
    names = {outcome.value: outcome.name for outcome in Outcome}
    columns = (
        tasks.app,
        tasks.stage,
        tasks.task,
        tasks.attempt,
        tasks.node,
        tasks.container,
        tasks.start_s,
        tasks.end_s,
        tasks.outcome,
        ready,
    )
    jobs = {row.app: row.job for row in run.jobs}
    for app, stage, task, attempt, node, container, start, end, outcome, since in zip(
        *(column.tolist() for column in columns), strict=True
    ):
        job = jobs.get(app)
        yield (
            app,
            job.stages[stage].name if job else stage,
            task,
            attempt,
            tasks.nodes[node],
            format_container(0, container),
            _s(since),
            _s(start),
            _s(end),
            names[outcome],
        )


def node_rows(run: Run) -> Iterator[Row]:
    """Yield rows of nodes.csv."""
    count = len(run.tasks.nodes)
    ran_s = np.bincount(run.tasks.node, run.tasks.end_s - run.tasks.start_s, count)
    ended = np.bincount(run.tasks.node, minlength=count)
    bad = np.isin(run.tasks.outcome, [each for each in Outcome if each.is_failed_attempt])
    failed = np.bincount(run.tasks.node[bad], minlength=count)
    place = {name: i for i, name in enumerate(run.tasks.nodes)}
    for node in run.cluster.nodes:
        i = place.get(node.node_id)
        if i is None:
            yield (node.node_id, node.rack, 0, _s(0.0), 0)
        else:
            yield (node.node_id, node.rack, int(ended[i]), _s(float(ran_s[i])), int(failed[i]))


def ready_times(run: Run) -> Floats:
    """Return when each task's parents had ended (the arrival without parents), s, by row."""
    tasks = run.tasks
    ready = np.zeros(len(tasks))
    good = tasks.outcome == Outcome.SUCCEEDED
    # Maps (application, stage) to the end of each task.
    ends: dict[tuple[int, int], Floats] = {}
    groups = list(_groups(tasks))
    for app, stage, rows in groups:
        job = _job(run, app)
        if job is not None:
            mine = np.full(job.stages[stage].tasks, np.inf)
            # The first end counts.
            done = rows[good[rows]][::-1]
            mine[tasks.task[done]] = tasks.end_s[done]
            ends[app, stage] = mine
    arrivals = {row.app: row.job.arrival_s for row in run.jobs}
    for app, stage, rows in groups:
        job = _job(run, app)
        if job is None:
            continue
        own = np.full(job.stages[stage].tasks, arrivals[app])
        for parent, edge in job.edges_of(stage):
            before = ends.get((app, parent))
            if before is None:
                continue
            if edge.kind is EdgeKind.ONE_TO_ONE:
                blocks = (
                    one_to_one_parents(len(before), len(own), child) for child in range(len(own))
                )
                since = np.array([before[block.start : block.stop].max() for block in blocks])
            elif edge.kind is EdgeKind.PAIRS:
                since = np.zeros(len(own))
                above, below = (
                    np.frombuffer(c, np.uint32) for c in (edge.pairs.parent, edge.pairs.child)
                )
                np.maximum.at(since, below, before[above])
            else:
                since = np.full(len(own), before.max())
            own = np.maximum(own, np.where(np.isfinite(since), since, 0.0))
        ready[rows] = own[tasks.task[rows]]
    return ready


def _groups(tasks: TaskColumns) -> Iterator[tuple[int, int, Ints]]:
    """Yield (app, stage, rows) of every stage that ran, rows in order."""
    if not len(tasks):
        return
    key = tasks.app * (int(tasks.stage.max()) + 1) + tasks.stage
    order = np.argsort(key, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(key[order])) + 1):
        yield int(tasks.app[rows[0]]), int(tasks.stage[rows[0]]), rows


def _job(run: Run, app: int) -> Job | None:
    # Applications are mostly numbered as they came.
    for row in run.jobs[max(0, app - 1) : app]:
        if row.app == app:
            return row.job
    return next((row.job for row in run.jobs if row.app == app), None)


def _numbers(run: Run) -> list[int]:
    """Return the number of each job in all tables: its application's, or one that none has."""
    taken = {row.app for row in run.jobs}
    free = count(max(taken, default=0) + 1)
    return [row.app or next(free) for row in run.jobs]


def _s(value: float) -> float:
    return round(value, 6)


def stage_rows(run: Run) -> Iterator[Row]:
    """Yield rows of stages.csv, every job's DAG; `parents` as `name:edge`, separated by `;`."""
    for number, row in zip(_numbers(run), run.jobs, strict=True):
        for stage in row.job.stages:
            parents = ";".join(f"{edge.stage}:{edge.kind.value}" for edge in stage.parents)
            yield number, stage.name, stage.tasks, stage.duration_s, parents
