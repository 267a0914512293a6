"""`weft plan`, `weft bounds`, `weft validate`: one job's schedule, built and judged offline."""

import json
import math
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import click

from sim.process.compile_time import compiling
from weft.client.text import plural
from weft.model.errors import InputError, WeftError
from weft.model.extras import require

F = TypeVar("F", bound=Callable[..., object])
_SHOW_PROGRESS_AFTER_S = 0.7


def _job_and_cluster(command: F) -> F:
    """Add JOB, `--cluster` and `--job`."""
    command = click.option("--job", "name", default="", help="Which job of a file with several.")(
        command
    )
    command = click.option(
        "--cluster", required=True, metavar="C", help="A file, or 100x16vcores,65536memory_mb."
    )(command)
    return click.argument("job_file", metavar="JOB")(command)


def _load(job_file: str, cluster: str, name: str) -> tuple[Any, Any, Any]:
    """Return the job, the cluster and the job's DAG over it; raises InputError."""
    from weft.model.dag import dag_of_job
    from weft.workloads.cluster_file import load_cluster
    from weft.workloads.jobs_file import read_jobs

    spec = load_cluster(cluster)
    jobs = read_jobs(Path(job_file))
    if name:
        job = next((job for job in jobs if job.name == name), None)
        if job is None:
            raise InputError(job_file, f"holds no job {name!r}")
    else:
        found = list(islice(jobs, 2))
        if len(found) > 1:
            raise InputError(job_file, "holds several jobs; choose one with --job NAME")
        job = found[0]
    return job, spec, dag_of_job(job, spec.types)


@click.command()
@_job_and_cluster
@click.option("--planner", "planner_name", default="graphene", show_default=True)
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0))
@click.option("--time-limit-s", type=float, help="Stop searching after this; 0: any valid plan.")
@click.option("--set", "pairs", multiple=True, metavar="KEY=VALUE", help="A planner's parameter.")
@click.option("--workers", type=click.IntRange(1), help="Cores to use; default: all.")
@click.option("--out", type=click.Path(path_type=Path), help="Write the plan to this file.")
@click.option("--plot", type=click.Path(path_type=Path), help="Draw the plan (.svg, .png, .pdf).")
@click.option("--watch", is_flag=True, help="Print makespan, bound and gap whenever they improve.")
@click.option("--explain", is_flag=True, help="Say which candidate won and why.")
@click.option("--no-reuse", is_flag=True, help="Plan a recurring job anew.")
@click.option("--json", "as_json", is_flag=True, help="Print the plan, not a summary.")
def plan(  # noqa: PLR0913
    job_file: str,
    cluster: str,
    name: str,
    planner_name: str,
    seed: int,
    time_limit_s: float | None,
    pairs: tuple[str, ...],
    workers: int | None,
    out: Path | None,
    plot: Path | None,
    watch: bool,
    explain: bool,
    no_reuse: bool,
    as_json: bool,
) -> None:
    """Build a job's schedule offline."""
    options = _options(pairs)
    if time_limit_s is not None and not time_limit_s >= 0:
        raise InputError("--time-limit-s", f"expected a number from 0, got {time_limit_s}")
    from am.plan.registry import planner_parameters

    planner_parameters(planner_name, options)
    job, spec, dag = _load(job_file, cluster, name)

    from am.plan.bounds.bounds import bounds_of
    from lab.commands.kept_plans import KeptPlans
    from lab.commands.plan_file import plan_data

    machines = spec.machines()
    if plot is not None:
        require("matplotlib", "plot", "--plot")
    bounds = bounds_of(dag, machines)
    kept = KeptPlans("" if no_reuse else job.history_key)
    decided = options | {"seed": seed, "time_limit_s": time_limit_s}
    began = time.perf_counter()
    with compiling() as compiled:
        made = kept.find(dag, machines, planner_name, decided)
        reused = made is not None
        if made is None:
            show = _Progress(planner_name, bounds.strong_lb_s, watch)
            made = run_planner(
                planner_name, dag, machines, seed, time_limit_s, options, workers, show
            )
            kept.keep(dag, machines, planner_name, decided, made)
    took_s = time.perf_counter() - began - compiled.took_s
    data = plan_data(job.name, dag, made, bounds, took_s)
    data["reused"] = reused
    if explain:
        data["explain"] = dict(made.explain)
    if out is not None:
        _write(out, data)
    if plot is not None:
        from lab.report.gantt import draw_plan

        draw_plan(job.name, dag, made, bounds, plot)
    if as_json:
        click.echo(json.dumps(data))
    else:
        _summary(data, explain)


@click.command()
@_job_and_cluster
@click.option("--json", "as_json", is_flag=True, help="Print data, not a table.")
def bounds(job_file: str, cluster: str, name: str, as_json: bool) -> None:
    """Print the lower bounds of a job's makespan."""
    from am.plan.bounds.bounds import bounds_of

    job, spec, dag = _load(job_file, cluster, name)
    found = bounds_of(dag, spec.machines())
    data = {"job": job.name, "tasks": dag.tasks, "parts": found.parts, "bounds": found.as_dict()}
    if as_json:
        click.echo(json.dumps(data))
        return
    click.echo(
        f"{job.name}: {plural(dag.tasks, 'task')} in {plural(dag.stages, 'stage')}, "
        f"{plural(found.parts, 'part')}"
    )
    _print_bounds(found.as_dict())


@click.command()
@_job_and_cluster
@click.argument("plan_file", metavar="PLAN", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print data, not lines.")
def validate(job_file: str, cluster: str, name: str, plan_file: Path, as_json: bool) -> None:
    """Check a plan against its job and cluster; exit 1 and each violation named."""
    from am.plan.validate import violations
    from lab.commands.plan_file import read_schedule

    _, spec, dag = _load(job_file, cluster, name)
    schedule = read_schedule(plan_file, dag, spec)
    found = schedule.problems or violations(
        dag, spec.machines(), schedule.machine, schedule.start_s, schedule.end_s
    )
    if as_json:
        click.echo(json.dumps({"valid": not found, "violations": found}))
    elif not found:
        click.echo(f"valid: {plural(dag.tasks, 'task')}")
    else:
        for line in found:
            click.echo(line)
    if found:
        raise WeftError(f"{plan_file}: {len(found)} violations")


commands: list[click.Command] = [plan, bounds, validate]


def _options(pairs: tuple[str, ...]) -> dict[str, str]:
    options = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not key or not equals:
            raise InputError("--set", f"expected key=value, got {pair!r}")
        options[key] = value
    return options


def run_planner(
    name: str,
    dag: Any,
    machines: Any,
    seed: int,
    limit_s: float | None,
    options: dict[str, str],
    workers: int | None,
    show: "_Progress | None" = None,
) -> Any:
    """Call a planner on as many cores as asked for, each with a board of its own."""
    from concurrent.futures import ThreadPoolExecutor

    import numpy as np

    from am.plan.registry import PlanRequest, planned

    began = time.monotonic()
    show = show or _Progress(name, 0.0, False)
    limit = math.inf if limit_s is None else limit_s
    cores = workers or len(os.sched_getaffinity(0))
    with ThreadPoolExecutor(cores) as pool:
        try:
            request = PlanRequest(
                dag=dag,
                machines=machines,
                rng=np.random.default_rng(seed),
                options=options,
                time_left_s=lambda: limit - (time.monotonic() - began),
                progress=show,
                watch=show.better,
                workers=cores,
                spread=pool.map if cores > 1 else map,
            )
            made: Any = planned(name, request)
            show.better(made.makespan_s, 0.0)
            return made
        finally:
            show.close()


class _Progress:
    """A bar on stderr that appears only when the search lasts; without a terminal there is none.

    With `watch`, a line on stderr for every better plan.
    """

    def __init__(self, name: str, bound_s: float, watch: bool) -> None:
        self._name, self._bound_s, self._watch = name, bound_s, watch
        self._began = time.monotonic()
        self._best_s = math.inf
        self._bar: Any = None
        self._wanted = sys.stderr is not None and sys.stderr.isatty()

    def __call__(self, done: int, total: int) -> None:
        if not self._wanted or time.monotonic() - self._began < _SHOW_PROGRESS_AFTER_S:
            return
        if self._bar is None:
            from rich.console import Console
            from rich.progress import Progress

            self._bar = Progress(console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task(self._title(), total=total)
            self._bar.start()
        self._bar.update(self._task, completed=done, total=total, description=self._title())

    def better(self, makespan_s: float, bound_s: float) -> None:
        """Take note of a plan that is shorter, or of a bound that is higher."""
        if makespan_s >= self._best_s and bound_s <= self._bound_s:
            return
        if self._best_s == math.inf:
            self._tell(f"{'time s':>10} {'makespan s':>14} {'bound s':>14} {'gap':>8}")
        self._best_s = min(self._best_s, makespan_s)
        self._bound_s = max(self._bound_s, bound_s)
        passed_s = time.monotonic() - self._began
        told = f"{passed_s:>10.3f} {self._best_s:>14,.6g} {self._bound_s:>14,.6g}"
        self._tell(f"{told} {self._gap():>8}")

    def _tell(self, line: str) -> None:
        """Say a line to who watches; nobody there any more is no reason to give up the search."""
        if not self._watch or sys.stderr is None:
            return
        try:
            click.echo(line, err=True)
        except OSError:
            self._watch = False

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()

    def _title(self) -> str:
        return f"{self._name}: schedules tried, gap {self._gap()}"

    def _gap(self) -> str:
        """Return how far the plan may be above the best there is, in %."""
        if not 0 < self._bound_s < math.inf or self._best_s == math.inf:
            return "-"
        return f"{100 * max(self._best_s / self._bound_s - 1, 0.0):.2f} %"


def _write(path: Path, data: dict[str, Any]) -> None:
    """Write a file that appears whole or not at all; a device or a pipe is not replaced."""
    if path.exists() and not path.is_file():
        raise InputError("--out", f"{path} is no regular file")
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        partial.write_text(json.dumps(data) + "\n", encoding="utf-8")
        os.replace(partial, path)
    except OSError as error:
        raise WeftError(f"{path}: cannot be written: {error.strerror or error}") from None
    finally:
        partial.unlink(missing_ok=True)


# So many runs of troublesome tasks are named.
TROUBLESOME_MAX = 4
# Their names in data are those of Graphene's figure 17.
_BOUNDS = {
    "cp_len_s": "longest path",
    "t_work_s": "work over the cluster",
    "mod_cp_s": "path of whole stages (ModCP)",
    "new_lb_s": "parts in turn (NewLB)",
    "strong_lb_s": "strong bound",
}


def _print_bounds(bounds: dict[str, float]) -> None:
    for name, value in bounds.items():
        click.echo(f"  {_BOUNDS.get(name, name):<28} {value:>10,.6g} s")


def _summary(data: dict[str, Any], explain: bool) -> None:
    from weft.client.tables import say

    makespan, least = data["makespan_s"], data["bounds"]["strong_lb_s"]
    over = f"{makespan / least:.3f} x the strong bound" if least > 0 else "no time at all"
    tasks = len(data["tasks"])
    click.echo(f"{data['job']}: {plural(tasks, 'task')} by {data['planner']}")
    say(f"  {'makespan':<28} {makespan:>10,.6g} s, {over}")
    _print_bounds(data["bounds"])
    how = (
        "a plan kept from before"
        if data["reused"]
        else f"{plural(data['candidates'], 'schedule')} built"
    )
    say(f"  {'planned in':<28} {data['planning_time_s']:>10,.3f} s, {how}")
    if explain:
        names = [f"{task['stage']}[{task['index']}]" for task in data["tasks"]]
        for line in explained(data["explain"], names):
            say(f"  {line}")


def explained(explain: dict[str, Any], tasks: Sequence[str] = ()) -> list[str]:
    """Return what a planner says of its choice, a line for each thing of a part, and plain facts.

    `tasks` are the names of all tasks by number: the troublesome ones are named by them.
    """
    lines = list[str]()
    for number, part in enumerate(explain.get("parts", []), start=1):
        first, *others = _part(part, tasks) or [""]
        lines += [f"part {number}: {first}", *(f"  {one}" for one in others)]
    for key, value in explain.items():
        if key != "parts":
            lines.append(f"{key.replace('_', ' ')}: {_fact(value)}")
    return lines or ["this planner makes no choice among schedules"]


# Graphene places the troublesome tasks first and then what stands to them as its letter says.
_LETTERS = {
    "S": "those that no order binds to them",
    "P": "those that come before them",
    "C": "those that come after them",
}
_RULES = {"longest": "the longest task", "cp": "the longest path"}
_LISTS = {"bfs": "breadth first", "critical_path": "longest path first"}


def _part(part: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    """Return what won in a part of the DAG, in words."""
    tasks = part.get("tasks", 0)
    told = [f"{tasks} task{'s' if tasks > 1 else ''}"] if tasks else []
    if part.get("bypass") or part.get("frag") == "bypass":
        told.append("placed in one pass")
        # Plans that were kept by an earlier version do not say why a part was not searched.
        if part.get("bypass_why") == "simple":
            told[-1] += (
                ", as no order is better than another: its tasks are alike and wait for none"
            )
    elif "list" in part:
        name = _LISTS.get(part["list"], part["list"])
        told.append(f"the list schedule, {name}, was the shortest")
    elif "troublesome" in part:
        told += _searched(part, names)
    if "span_s" in part:
        bound_s = part.get("bound_s", 0.0)
        told.append(f"{part['span_s']:.4g} s" + (f", at least {bound_s:.4g} s" if bound_s else ""))
    told += [f"{key.replace('_', ' ')} {_fact(part[key])}" for key in part if key not in _WORDED]
    return told


# What `_part` and `_searched` tell in words.
_WORDED = {
    *(
        "tasks",
        "bypass",
        "bypass_why",
        "list",
        "long_at_least",
        "frag_at_most",
        "frag",
        "rule",
        "troublesome",
    ),
    *("troublesome_share", "troublesome_work_share", "troublesome_ranges", "order", "heading"),
    *("span_s", "bound_s"),
}


def _searched(part: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    """Return which tasks were troublesome, and in which order the others were placed."""
    which = ""
    ranges = part.get("troublesome_ranges", ())
    if names and ranges:
        ends = [(names[first], names[last]) for first, last in ranges[:TROUBLESOME_MAX]]
        named = [first if first == last else f"{first} to {last}" for first, last in ends]
        which = f" ({', '.join([*named, *(['...'] if len(ranges) > TROUBLESOME_MAX else [])])})"
    share = part.get("troublesome_work_share")
    told = f"troublesome: {part['troublesome']}{which}"
    told += f" with {share:.0%} of the work" if share is not None else ""
    limits = []
    if (long := part.get("long_at_least")) is not None:
        limits.append(f"last at least {_fact(long)} of the longest task")
    if (frag := part.get("frag_at_most")) is not None:
        limits.append(f"use at most {_fact(frag)} of the machines while they run")
    told += f", as they {' or '.join(limits)}" if limits else ""
    found = [told]
    if order := part.get("order"):
        rest = ", then ".join(_LETTERS[letter] for letter in order if letter in _LETTERS)
        found.append(f"they are placed first, then {rest} ({order})")
    if heading := part.get("heading"):
        found.append(f"from the {'start onward' if heading == 'forward' else 'end backward'}")
    if rule := part.get("rule"):
        found.append(f"of what is ready {_RULES.get(rule, rule)} goes first")
    return found


def _fact(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return "-" if value is None else str(value)
