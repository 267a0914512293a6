"""Pods of Alibaba's cluster-trace-gpu-v2023 (`openb_pod_list_*.csv`; FGD, ATC 2023).

A pod is a job of one task: the trace has no jobs of several pods and no order between pods.
`openb_node_list_*.csv` is the cluster (`--cluster FILE.csv`).
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from weft.model.errors import InputError
from weft.model.job import Job, Stage
from weft.workloads.imported import Imported
from weft.workloads.reading import each_file, expand, gather, unique
from weft.workloads.table_rows import Row, amount, columns_of, needed, rows_of, text, whole

FORMAT = "alibaba_gpu2023"
PODS = (
    "name",
    "cpu_milli",
    "memory_mib",
    "num_gpu",
    "gpu_milli",
    "gpu_spec",
    "qos",
    "pod_phase",
    "creation_time",
    "deletion_time",
    "scheduled_time",
)
PHASES = ("Succeeded", "Running", "Pending", "Failed")
_MILLI = 1000.0


def stream(sources: Sequence[Path], result: Imported, *, jobs_max: int = 0) -> Iterator[Job]:
    """Yield one job a pod, in order of creation; the first one of each file arrives at 0.

    A pod lasts from when it was scheduled to when it was deleted. `jobs_max` caps the jobs; 0 is
    no cap.
    """
    if jobs_max < 0:
        raise InputError("options", "expected numbers >= 0")
    counts: Counter[str] = Counter()
    given = 0
    for job in each_file(expand(sources), result, lambda path: _pods(path, result, counts)):
        given += 1
        if jobs_max and given > jobs_max:
            counts[f"jobs after the first {jobs_max} (option jobs_max)"] += 1
            continue
        yield job
    result.warnings.append(
        "alibaba_gpu2023: a part of a GPU is a part of its machine's GPUs together: that the parts "
        "of a task lie on one GPU is not kept"
    )
    result.warnings.extend(f"alibaba_gpu2023: {count} {what}" for what, count in counts.items())


def read(sources: Sequence[Path], **options: Any) -> Imported:
    """Return the pods; the options are those of `stream`; raises InputError when none is usable."""
    return gather(stream, sources, options)


def _pods(path: Path, result: Imported, counts: Counter[str]) -> list[Job]:
    columns = columns_of(path)
    missing = [name for name in PODS if name not in columns]
    if missing:
        raise InputError(str(path), f"is no list of pods: it has no column {missing[0]}")
    jobs: list[Job] = []
    taken: set[str] = set()
    for place, row in rows_of(path, result, (), PODS):
        try:
            job = _pod(row, taken, counts)
        except InputError as error:
            result.drop("malformed row", f"{place}: {error}")
            continue
        if job is None:
            phase = text(row, "pod_phase")
            result.drop(f"pod that was never scheduled or deleted (phase {phase})", place)
            continue
        jobs.append(job)
    if not jobs:
        why = f"; {result.warnings[-1]}" if result.warnings else ""
        raise InputError(str(path), f"holds no pod that can be used{why}")
    jobs.sort(key=lambda job: (job.arrival_s, job.name))
    first_s = jobs[0].arrival_s
    return [_later(job, -first_s) for job in jobs]


def _later(job: Job, by_s: float) -> Job:
    return Job(job.name, job.stages, arrival_s=job.arrival_s + by_s)


def _pod(row: Row, taken: set[str], counts: Counter[str]) -> Job | None:
    """Return the pods; options as of `stream`; raises InputError when none is usable."""
    phase, name = text(row, "pod_phase"), text(row, "name")
    if phase not in PHASES:
        raise InputError("pod_phase", f"unknown: {phase[:40]!r}")
    if not name:
        raise InputError("name", "is blank")
    created_s = needed(amount(row, "creation_time"), "creation_time")
    scheduled_s, deleted_s = amount(row, "scheduled_time"), amount(row, "deletion_time")
    gpus, part = whole(row, "num_gpu") or 0, amount(row, "gpu_milli") or 0.0
    if gpus < 0 or part > _MILLI:
        raise InputError("num_gpu", f"{gpus} GPUs of {part:g} thousandths each")
    if scheduled_s is None or deleted_s is None:
        return None
    if deleted_s < scheduled_s:
        raise InputError("deletion_time", "is before scheduled_time")
    if phase != "Succeeded":
        counts[f"pods of phase {phase} are used, as they have times"] += 1
    if text(row, "gpu_spec"):
        counts["pods name types of GPU (gpu_spec); any GPU is taken for them"] += 1
    demand = {
        "vcores": needed(amount(row, "cpu_milli"), "cpu_milli") / _MILLI,
        "memory_mb": needed(amount(row, "memory_mib"), "memory_mib"),
    }
    if gpus:
        demand["gpus"] = gpus * part / _MILLI
    stage = Stage("pod", 1, deleted_s - scheduled_s, demand)
    return Job(unique(name, taken), (stage,), arrival_s=created_s)
