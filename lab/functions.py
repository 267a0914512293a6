"""`weft.simulate(...)` and `weft.plan(...)`: the commands of the same names, for scripts.

Jobs and clusters are files, data as in the files, or objects of `weft.model.job` and
`weft.model.cluster`.
"""

from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral, Real
from pathlib import Path
from time import perf_counter
from typing import Any

from am.plan.bounds.bounds import bounds_of
from am.plan.registry import planner_parameters
from lab.commands.plan import run_planner
from lab.commands.plan_file import plan_data
from sim.process.command import simulated
from sim.request import Request
from sim.results import job_rows, node_rows, stage_rows, task_rows
from weft.model.cluster import ClusterSpec, cluster_from_dict
from weft.model.dag import dag_of_job
from weft.model.errors import InputError
from weft.model.extras import require
from weft.model.job import Job
from weft.model.jobfile import job_from_dict
from weft.results import Results, table_of
from weft.workloads.cluster_file import load_cluster
from weft.workloads.jobs_file import read_jobs

JobLike = Job | Mapping[str, Any] | str | Path
ClusterLike = ClusterSpec | Mapping[str, Any] | str | Path


def simulate(
    workload: JobLike | Sequence[JobLike],
    cluster: ClusterLike,
    scheduler: str = "capacity",
    *,
    options: Mapping[str, Any] | None = None,
    **more: Any,
) -> Results:
    """Run a workload in virtual time; returns its summary and tables (`weft.results.Results`).

    `more` are the options of `weft simulate` by name: `matcher`, `planner`, `asker`, `seed`,
    `arrivals`, `load`, `estimate_error`, `faults`, `pace`, `until_s`, `out`, `report`, `trace`, ...
    `options` are those of `--set`, as `{"matcher.fairness": 0.5}`. Raises InputError for bad input.
    """
    if isinstance(workload, Job | Mapping | str | Path):
        given: list[Any] = [workload]
    elif isinstance(workload, Iterable):
        given = [*workload]
    else:
        raise InputError("workload", f"expected jobs, got {type(workload).__name__}")
    files = tuple(str(each) for each in given if isinstance(each, str | Path))
    jobs = [_job(each) for each in given if not isinstance(each, str | Path)]
    if files and jobs:
        raise InputError("workload", "give either files or jobs")
    spec = None if isinstance(cluster, str | Path) else cluster_of(cluster)
    known = Request.__dataclass_fields__
    for name, value in more.items():
        if name not in known or name in ("workload", "cluster", "scheduler", "options"):
            raise InputError(name, f"unknown option; known: {', '.join(list(known)[3:])}")
        more[name] = _option(name, value, known[name].default)
    request = Request(
        files,
        "" if spec is not None else str(cluster),
        scheduler,
        options=_texts(options),
        **more,
    )
    if request.report:
        require("matplotlib", "plot", "report")
    summary, run = simulated(request, cluster=spec, jobs=jobs or None)
    folder = Path(request.out) if request.out else None
    if folder and request.report:
        from lab.report.html import write_report

        write_report([folder])
    return Results(
        folder,
        summary,
        table_of("jobs", job_rows(run)),
        table_of("tasks", task_rows(run)),
        table_of("nodes", node_rows(run)),
        table_of("stages", stage_rows(run)),
    )


def _texts(options: Any) -> dict[str, str]:
    """Return parameters by name, as the command line gives them; raises InputError."""
    if not isinstance(options or {}, Mapping):
        raise InputError("options", f"expected parameters by name, got {options!r}")
    return {str(key): str(value) for key, value in (options or {}).items()}


def _option(name: str, value: Any, default: Any) -> Any:
    """Return a value of the kind of its option's default; raises InputError naming it."""
    if isinstance(default, str):
        if value is None:
            return default
        kind, fits, value = "text", isinstance(value, str | Path), str(value)
    elif isinstance(default, bool):
        kind, fits = "True or False", isinstance(value, bool)
    elif isinstance(default, int):
        kind, fits = "a whole number", isinstance(value, Integral) and not isinstance(value, bool)
    else:
        kind, fits = "a number", isinstance(value, Real) and not isinstance(value, bool)
    if not fits:
        raise InputError(name, f"expected {kind}, got {value!r}")
    return value


def plan(
    job: JobLike,
    cluster: ClusterLike,
    planner: str = "graphene",
    *,
    seed: int = 0,
    time_limit_s: float | None = None,
    options: Mapping[str, Any] | None = None,
    workers: int = 1,
) -> dict[str, Any]:
    """Build one job's schedule; returns the data of `weft plan --json`.

    Raises InputError for bad input, such as a task that fits on no machine.
    """
    chosen = _texts(options)
    if workers < 1:
        raise InputError("workers", f"expected a whole number from 1, got {workers}")
    if time_limit_s is not None and not time_limit_s > 0:
        raise InputError("time_limit_s", f"expected a positive number, got {time_limit_s:g}")
    planner_parameters(planner, chosen)
    spec, one = cluster_of(cluster), _one(job)
    dag, machines = dag_of_job(one, spec.types), spec.machines()
    began = perf_counter()
    made = run_planner(planner, dag, machines, seed, time_limit_s, chosen, workers)
    bounds = bounds_of(dag, machines)
    return plan_data(one.name, dag, made, bounds, perf_counter() - began)


def _job(given: JobLike) -> Job:
    if isinstance(given, Job):
        return given
    if isinstance(given, Mapping):
        return job_from_dict(dict(given))
    raise InputError("job", f"expected a job or its data, got {type(given).__name__}")


def _one(given: JobLike) -> Job:
    if not isinstance(given, str | Path):
        return _job(given)
    found = list(read_jobs(Path(given)))
    if len(found) != 1:
        raise InputError(str(given), f"holds {len(found)} jobs, one is planned at a time")
    return found[0]


def jobs_of(given: JobLike | Sequence[JobLike]) -> list[Job]:
    """Return jobs of files, data or objects, one or several; raises InputError."""
    each = [given] if isinstance(given, Job | Mapping | str | Path) else list(given)
    found: list[Job] = []
    for one in each:
        found += read_jobs(Path(one)) if isinstance(one, str | Path) else [_job(one)]
    return found


def cluster_of(given: ClusterLike) -> ClusterSpec:
    """Return a cluster of a file, data or an object; raises InputError."""
    if isinstance(given, ClusterSpec):
        return given
    if isinstance(given, Mapping):
        return cluster_from_dict(dict(given))
    return load_cluster(str(given))
