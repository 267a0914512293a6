"""SLS's SYNTH files: statistical descriptions of jobs, from which jobs are drawn.

The seed of the file seeds the draw, so a file always gives the same jobs; they are not the jobs
that Hadoop's own generator would draw from it, only of the same distributions.
"""

from math import ceil, log, sqrt
from typing import Any

import numpy as np

from weft.model.errors import InputError
from weft.model.job import Edge, Job, Stage
from weft.model.resources import read_amount
from weft.workloads.imported import Imported
from weft.workloads.reading import items, table, task_count

JOBS_MAX = 1_000_000
_TASKS_MAX = 1_000_000
_Draw = np.random.Generator


def synthetic_jobs(
    entry: dict[str, Any], place: str, default: tuple[float, float], result: Imported
) -> list[Job]:
    """Return the jobs of a SYNTH file, by arrival; raises InputError for what it lacks."""
    count = task_count(entry["num_jobs"], f"{place}: num_jobs")
    seed = entry.get("rand_seed", 0)
    if count > JOBS_MAX:
        raise InputError(f"{place}: num_jobs", f"over the limit of {JOBS_MAX} jobs")
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise InputError(f"{place}: rand_seed", f"expected a whole number, got {seed!r}")
    rng = np.random.default_rng(abs(seed))
    where = f"{place}: workloads"
    workloads = [table(item, where) for item in items(entry["workloads"], where)]
    shares = _shares([load.get("workload_weight", 1) for load in workloads], where)
    jobs = []
    for number in range(count):
        load = workloads[int(rng.choice(len(workloads), p=shares))]
        classes = [
            table(c, f"{where}.job_classes")
            for c in items(load.get("job_classes"), f"{where}.job_classes")
        ]
        weights = _shares([c.get("class_weight", 1) for c in classes], f"{where}.job_classes")
        chosen = classes[int(rng.choice(len(classes), p=weights))]
        stages = _stages(chosen, f"{where}.job_classes", rng, default)
        arrival_s = _arrival_s(load, f"{where}.time_distribution", rng)
        name = _name(chosen.get("class_name"), "job")
        jobs.append(
            Job(
                f"{name}-{number}",
                stages,
                queue=_name(load.get("queue_name"), "default"),
                user=_name(chosen.get("user_name"), ""),
                arrival_s=arrival_s,
                history_key=name,
            )
        )
    result.warnings.append(
        f"{place}: {count} jobs are drawn from a statistical description with seed {seed}; "
        "deadlines and reservations are not used"
    )
    return sorted(jobs, key=lambda job: job.arrival_s)


def _name(value: object, default: str) -> str:
    return value.replace("\0", "") or default if isinstance(value, str) else default


def _shares(weights: list[Any], place: str) -> list[float]:
    amounts = [read_amount(weight, f"{place}.weight") for weight in weights]
    total = sum(amounts)
    if not 0 < total < float("inf"):
        raise InputError(place, "expected weights with a positive sum")
    return [amount / total for amount in amounts]


def _arrival_s(load: dict[str, Any], place: str, rng: _Draw) -> float:
    """Return a step of the time distribution by weight, then a time inside it, evenly, s."""
    steps = [table(item, place) for item in items(load.get("time_distribution"), place)]
    times = [read_amount(step.get("time"), f"{place}.time") for step in steps]
    number = int(rng.choice(len(steps), p=_shares([s.get("weight") for s in steps], place)))
    end = times[number + 1] if number + 1 < len(times) else times[number]
    return times[number] + float(rng.random()) * max(0.0, end - times[number])


def _stages(
    job_class: dict[str, Any], place: str, rng: _Draw, default: tuple[float, float]
) -> tuple[Stage, ...]:
    kinds = _kinds(job_class, place)
    maps: list[Edge] = []
    stages = []
    for kind, count, time, memory, vcores in kinds:
        tasks = round(_sample(count, f"{place}.count", rng))
        if tasks < 1:
            continue
        if tasks > _TASKS_MAX:
            raise InputError(f"{place}.count", f"over {_TASKS_MAX} tasks in a stage")
        durations_s = tuple(_sample(time, f"{place}.time", rng) for _ in range(tasks))
        memory_mb = default[1] if memory is None else _sample(memory, f"{place}.memory", rng)
        cores = default[0] if vcores is None else _sample(vcores, f"{place}.vcores", rng)
        stages.append(
            Stage(
                kind,
                tasks,
                sum(durations_s) / tasks,
                {"vcores": float(ceil(cores - 0.01)), "memory_mb": float(round(memory_mb))},
                tuple(maps) if kind == "reduce" else (),
                actual_duration_s=durations_s,
            )
        )
        if kind == "map":
            maps.append(Edge(kind))
    if not stages:
        raise InputError(place, "a job without tasks was drawn")
    return tuple(stages)


# A kind of task is (type, count, time, memory, vcores).
_Kind = tuple[str, Any, Any, Any, Any]


def _kinds(job_class: dict[str, Any], place: str) -> list[_Kind]:
    """Return the task types of a class, of the new form (`tasks`) or the old (`mtasks_avg`)."""
    if "tasks" in job_class:
        kinds: list[_Kind] = []
        for item in items(job_class["tasks"], f"{place}.tasks"):
            row = table(item, f"{place}.tasks")
            kind = _name(row.get("type"), "task")
            if any(kind == known[0] for known in kinds):
                raise InputError(f"{place}.tasks", f"task type {kind!r} occurs twice")
            kinds.append(
                (
                    kind,
                    row.get("count"),
                    row.get("time"),
                    row.get("max_memory"),
                    row.get("max_vcores"),
                )
            )
        return kinds

    def old(prefix: str) -> Any:
        if f"{prefix}_avg" not in job_class:
            return None
        return {"val": job_class[f"{prefix}_avg"], "std": job_class.get(f"{prefix}_stddev", 0)}

    return [
        ("map", old("mtasks"), old("mtime"), old("map_max_memory"), old("map_max_vcores")),
        ("reduce", old("rtasks"), old("rtime"), old("reduce_max_memory"), old("reduce_max_vcores")),
    ]


def _sample(spec: Any, place: str, rng: _Draw) -> float:
    """Draw from `{val}`, `{val, std}` (log-normal with that mean), or `{discrete, weights}`."""
    row = table(spec, place)
    if "discrete" in row:
        values = [read_amount(v, f"{place}.discrete") for v in items(row["discrete"], place)]
        weights = row.get("weights", [1] * len(values))
        shares = _shares(items(weights, f"{place}.weights"), f"{place}.weights")
        if len(shares) != len(values):
            raise InputError(f"{place}.weights", f"expected {len(values)} weights")
        return values[int(rng.choice(len(values), p=shares))]
    mean = read_amount(row.get("val"), f"{place}.val")
    spread = read_amount(row.get("std", 0), f"{place}.std")
    if mean == 0 or spread <= 1e-3:
        return mean
    variance = log(1 + min(spread / mean, 1e6) ** 2)
    return float(rng.lognormal(log(mean) - variance / 2, sqrt(variance)))
