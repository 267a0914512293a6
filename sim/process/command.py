"""`weft simulate`: a workload, a cluster and a scheduler in; a folder of comparable results out."""

import gc
import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nm.settings import NodeSettings
from rm.match.registry import matcher_row
from sim.cluster import Simulation
from sim.faults import NO_FAULTS, Faults, faults_from_dict, random_faults
from sim.members import Members
from sim.process.compile_time import compiling
from sim.process.outputs import check_folder, clear_others, logged, summarise, write_run
from sim.process.provenance import described
from sim.recorder import Recorder
from sim.request import Request
from sim.reshape import fit, misestimate, parse_error, with_arrivals, with_load
from sim.results import Run, task_rows
from sim.settings import SimSettings, role_settings
from weft.model.cluster import ClusterSpec
from weft.model.errors import InputError, PolicyError, WeftError
from weft.model.extras import require
from weft.model.job import Job
from weft.policies import plugins
from weft.policies.presets import PARTS, Preset, choose, label, with_options
from weft.results import write_parquet
from weft.results.perfetto import check_trace, write_trace
from weft.workloads.carbon_trace import inlined
from weft.workloads.cluster_file import load_cluster
from weft.workloads.documents import load_document
from weft.workloads.imported import Imported
from weft.workloads.registry import import_jobs

TIME_MAX_S = 1e9  # of an arrival, or a task: 31 years
_LOOK_MAX = 1000  # tasks of a stage whose times are looked at
# The cyclic collector rarely looks, because next to no garbage needs it.
GC_THRESHOLD_OBJECTS = 5_000_000


def main_simulate(
    request: Request, *, progress: bool = False, warn: Callable[[str], None] = lambda text: None
) -> dict[str, Any]:
    """Run one simulation and return its summary; raises InputError for bad input."""
    return simulated(request, progress=progress, warn=warn)[0]


def simulated(
    request: Request,
    *,
    cluster: ClusterSpec | None = None,
    jobs: Sequence[Job] | None = None,
    progress: bool = False,
    warn: Callable[[str], None] = lambda text: None,
    make: Callable[[ClusterSpec, Sequence[Job], SimSettings, Recorder], Simulation] = Simulation,
) -> tuple[dict[str, Any], Run]:
    """Run one simulation; returns its summary and all that was recorded.

    `cluster` and `jobs` stand in for what the request names, `make` for what makes the simulation.
    Raises InputError for bad input.
    """
    if request.parquet and not request.out:
        raise InputError("--parquet", "needs --out DIR")
    if request.report and not request.out:
        raise InputError("--report", "needs --out DIR")
    if request.members > 1 and make is not Simulation:
        raise InputError("--members", "one manager is played: leave --play out")
    if request.out:
        check_folder(request.out)
    if request.parquet:
        require("pyarrow.parquet", "results", "--parquet")
    if request.trace:
        check_trace(request.trace)
    cluster = with_load(cluster or load_cluster(request.cluster), request.load)
    jobs = reshaped(request, cluster, jobs or read_workload(request, warn))
    settings = read_settings(request, cluster, len(jobs))
    check_times(jobs, settings.until_s)
    what = described(request, cluster, jobs, settings)
    with _decision_log(request, what) as log:
        recorder = Recorder(log=log)
        simulation: Simulation | Members
        if request.members == 1:
            simulation = make(cluster, jobs, settings, recorder)
        else:
            simulation = Members(cluster, jobs, settings, recorder, request.members)
        with quiet_collector(), _progress(progress, jobs, simulation), compiling() as compiled:
            start = time.perf_counter()
            _run(simulation, settings.scheduler.matcher)
            wall_s = time.perf_counter() - start
        wall_s -= compiled.took_s
    if simulation.stuck:
        warn(f"stopped at {simulation.now_s:.0f} s: {simulation.stuck}")
    refused = [row for row in recorder.jobs if row.state == "REFUSED"]
    if len(refused) == len(jobs):
        raise InputError(f"job {refused[0].job.name!r}", refused[0].diagnostics)
    for row in refused[:3]:
        warn(f"job {row.job.name!r} was refused: {row.diagnostics}")
    run = Run(cluster, recorder.jobs, recorder.columns())
    summary = summarise(
        run,
        recorder,
        scheduler=_label(request, settings),
        seed=request.seed,
        events=simulation.events,
        wall_s=wall_s,
        master=simulation.manager.books.master_vector,
    )
    summary |= what
    if simulation.stuck:
        summary["stopped"] = simulation.stuck
    if request.out:
        _write(request, run, summary, warn)
    if request.trace:
        names = {row.app: row.job.name for row in run.jobs}
        write_trace(request.trace, task_rows(run), names)
    return summary, run


def _write(
    request: Request, run: Run, summary: dict[str, Any], warn: Callable[[str], None]
) -> None:
    for gone in clear_others(Path(request.out), decisions=request.decisions):
        warn(f"{gone} was of an earlier run and is removed")
    write_run(Path(request.out), run, summary)
    if request.parquet:
        write_parquet(request.out)


def check_times(jobs: Sequence[Job], until_s: float) -> None:
    """Raise InputError for times that no simulation without an end comes to."""
    if until_s < math.inf:
        return
    for job in jobs:
        if job.arrival_s > TIME_MAX_S:
            text = (
                f"{job.arrival_s:g} s: arrivals count from 0; is this a Unix time? or say --until"
            )
            raise InputError(f"job {job.name!r}: arrival_s", text)
        for stage in job.stages:
            looked = range(min(stage.tasks, _LOOK_MAX))
            longest_s = max(map(stage.actual_duration_of, looked), default=0.0)
            if longest_s > TIME_MAX_S:
                text = f"{longest_s:g} s is more than {TIME_MAX_S:g}: say how long with --until"
                raise InputError(f"job {job.name!r}: stage {stage.name!r}", text)


def _run(simulation: Simulation | Members, matcher: str) -> None:
    """Run to the end; what breaks in another package's matcher is one PolicyError."""
    try:
        simulation.run()
    except (WeftError, PolicyError):
        raise
    except Exception as error:
        if not plugins.is_outside(plugins.MATCHERS, matcher):
            raise
        raise plugins.broken(plugins.MATCHERS, matcher, error) from error


def read_workload(request: Request, warn: Callable[[str], None]) -> list[Job]:
    """Return the jobs of the files, as many as asked for."""
    if request.jobs_max < 0:
        raise InputError("--jobs", f"expected a whole number from 1, got {request.jobs_max}")
    result = Imported()
    jobs: list[Job] = []
    if "" in request.workload:
        # A path without a name would be the current folder.
        raise InputError("workload", "expected a file or folder, got an empty name")
    sources = [Path(source) for source in request.workload]
    for job in import_jobs(request.format, sources, {}, result):
        jobs.append(job)
        if request.jobs_max and len(jobs) >= request.jobs_max:
            break
    if not jobs:
        raise InputError(", ".join(request.workload), "holds no job")
    for text in result.warnings[:3]:
        warn(text)
    dropped = sum(result.dropped.values())
    if dropped:
        warn(f"{dropped} rows were not used: {dict(result.dropped)}")
    return jobs


def reshaped(request: Request, cluster: ClusterSpec, jobs: Sequence[Job]) -> list[Job]:
    """Return the jobs with the arrivals and estimates that were asked for."""
    if request.seed < 0:
        raise InputError("--seed", f"expected a whole number from 0, got {request.seed}")
    jobs = with_arrivals(jobs, request.arrivals, request.seed)
    if request.estimate_error:
        low, high = parse_error(request.estimate_error)
        jobs = fit(misestimate(jobs, low, high, request.seed), cluster)
    return jobs


def read_settings(request: Request, cluster: ClusterSpec, jobs: int) -> SimSettings:
    """Return scheduler, faults and pace; raises InputError for what is not known."""
    if not request.until_s > 0:
        raise InputError("--until", f"expected a positive number, got {request.until_s:g}")
    if request.pace not in ("yarn", "prompt"):
        raise InputError("--pace", f"expected yarn or prompt, got {request.pace!r}")
    scheduler = choose(
        request.scheduler, matcher=request.matcher, planner=request.planner, asker=request.asker
    )
    options, roles = read_options(request.options, scheduler)
    settings = SimSettings(
        scheduler=with_options(scheduler, inlined(options)),
        seed=request.seed,
        prompt=request.pace == "prompt",
        checks=request.checks,
        faults=_faults(request, cluster, jobs),
        node=NodeSettings(**roles["node"]),
        manager=roles["manager"],
        master=roles["master"],
        until_s=request.until_s,
    )
    return settings


def read_options(
    given: Mapping[str, str], scheduler: Preset
) -> tuple[dict[str, str], dict[str, dict[str, Any]]]:
    """Return what `--set` says of the scheduler's parts, and of each role's settings (read).

    Raises InputError for what is not known.
    """
    roles: dict[str, dict[str, str]] = {"manager": {}, "master": {}, "node": {}}
    options: dict[str, str] = {}
    for key, value in given.items():
        part, dot, name = key.partition(".")
        if dot and part in roles:
            roles[part][name] = value
        else:
            options[_qualified(key, scheduler)] = value
    return options, {role: role_settings(role, values) for role, values in roles.items()}


def _qualified(key: str, scheduler: Preset) -> str:
    """Return a parameter with its part: `fairness` is the matcher's if it has such a one.

    Raises InputError for one of nobody.
    """
    if key.partition(".")[0] in PARTS:
        return key
    if key in matcher_row(scheduler.matcher).parameters:
        return f"matcher.{key}"
    if "." in key:
        known = ", ".join(f"{part}.NAME" for part in (*PARTS, "manager", "master", "node"))
        raise InputError(f"--set {key}", f"expected one of {known}")
    names = ", ".join(f"{part}.{key}" for part in PARTS)
    raise InputError(
        f"--set {key}", f"matcher {scheduler.matcher} has no such parameter ({names}?)"
    )


def _label(request: Request, settings: SimSettings) -> str:
    """Return the preset's name, as long as its own parts ran."""
    if request.matcher or request.planner or request.asker:
        return label(settings.scheduler)
    return request.scheduler


def _faults(request: Request, cluster: ClusterSpec, jobs: int) -> Faults:
    if not request.faults:
        return NO_FAULTS
    nodes = [spec.node_id for spec in cluster.nodes]
    kind, _, value = request.faults.partition(":")
    if kind == "random":
        seed, _, horizon = value.partition(":")
        try:
            number, horizon_s = int(seed), float(horizon or 300.0)
            if number < 0 or not 0 < horizon_s < math.inf:
                raise ValueError
        except ValueError:
            raise InputError(
                "--faults",
                "expected random:SEED or random:SEED:HORIZON_S, with SEED from 0 and "
                "HORIZON_S above 0",
            ) from None
        return random_faults(number, nodes, jobs, horizon_s)
    return faults_from_dict(load_document(Path(request.faults)), nodes, jobs)


@contextmanager
def _decision_log(
    request: Request, what: Mapping[str, Any]
) -> Iterator[Callable[[Mapping[str, Any]], None] | None]:
    """Yield what takes the lines of the decision log; the first line says what the run is."""
    if not request.decisions:
        yield None
        return
    if not request.out:
        raise InputError("--decisions", "needs --out DIR")
    folder = Path(request.out)
    folder.mkdir(parents=True, exist_ok=True)
    with logged(folder / "decisions.jsonl") as file:
        print(
            json.dumps({"t": 0.0, "fact": "RunDescribed", "seed": request.seed, **what}), file=file
        )
        yield lambda line: print(json.dumps(line), file=file)


@contextmanager
def quiet_collector() -> Iterator[None]:
    """Have the cyclic garbage collector run rarely during a simulation.

    A process that has frozen what it began with keeps it so: to thaw it would have every later
    collection walk all of it.
    """
    before, frozen = gc.get_threshold(), gc.get_freeze_count() > 0
    if not frozen:
        gc.collect()
        gc.freeze()
    gc.set_threshold(GC_THRESHOLD_OBJECTS, 20, 100)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        if not frozen:
            gc.unfreeze()


@contextmanager
def _progress(
    wanted: bool, jobs: Sequence[Job], simulation: Simulation | Members
) -> Iterator[None]:
    """Show a bar of finished tasks on stderr, where that is a terminal."""
    if not wanted or not sys.stderr.isatty():
        yield
        return
    from weft.client.progress import following

    def told() -> tuple[float, str]:
        text = f"tasks, at {simulation.now_s:,.0f} s of virtual time"
        return simulation.recorder.finished_tasks, text

    with following("simulating", sum(job.task_count for job in jobs), told):
        yield
