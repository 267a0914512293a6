"""What a run was: everything that is needed to repeat it, for `summary.json` and the decision log.

Paths are as they were given; a file's content is named by its SHA-256 as well, so that runs over
different files of one name differ.
"""

import hashlib
import math
import platform
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from am.ask.registry import asker_parameters
from am.plan.registry import planner_parameters
from rm.match.registry import matcher_parameters
from sim.request import Request
from sim.settings import SimSettings, manager_settings, master_settings
from weft.model.cluster import ClusterSpec
from weft.model.job import Job
from weft.model.json_types import Json, Table
from weft.model.queues import QueueSpec
from weft.model.resources import Vector

BLOCK = 1 << 20
# These are told elsewhere, or belong to one job.
_PER_JOB = ("address", "history", "planner", "planner_options")
KEYS = (
    "workload",
    "cluster",
    "matcher",
    "planner",
    "asker",
    "settings",
    "faults",
    "arrivals",
    "load",
    "estimate_error",
    "pace",
    "members",
    "until_s",
    "version",
    "command",
)


def described(
    request: Request, cluster: ClusterSpec, jobs: Sequence[Job], settings: SimSettings
) -> Json:
    """Return the keys of `KEYS`: `request` is the command line, the rest what ran.

    Raises InputError where a part does not know one of its parameters.
    """
    chosen = settings.scheduler
    matcher = matcher_parameters(chosen.matcher, chosen.matcher_options)
    planner = planner_parameters(chosen.planner, chosen.planner_options) if chosen.planner else {}
    asker = asker_parameters(chosen.asker, chosen.asker_options)
    return {
        "workload": _workload(request, jobs),
        "cluster": _cluster(request.cluster, cluster),
        "matcher": {"name": chosen.matcher, "parameters": plain(matcher)},
        "planner": {"name": chosen.planner, "parameters": plain(planner)},
        "asker": {"name": chosen.asker, "parameters": plain(asker)},
        "settings": {
            "manager": plain(manager_settings(settings)),
            "master": _without(plain(master_settings(settings)), _PER_JOB),
            "node": plain(settings.node),
        },
        "faults": {"given": request.faults, **plain(settings.faults)},
        "arrivals": request.arrivals,
        "load": request.load,
        "estimate_error": request.estimate_error,
        "pace": request.pace,
        "members": request.members,
        "until_s": plain(settings.until_s),
        "version": {"weft": _version(), "python": platform.python_version()},
        # jobs or a cluster that were handed over as data have no command line
        "command": command_of(request) if request.workload and request.cluster else "",
    }


def command_of(request: Request) -> str:
    """Return the command line that repeats a run, with every option not at its default."""
    words = ["weft", "simulate", *request.workload, "--cluster", request.cluster]
    given = {
        "--scheduler": request.scheduler,
        "--matcher": request.matcher,
        "--planner": request.planner,
        "--asker": request.asker,
        "--seed": request.seed,
        "--format": "" if request.format == "auto" else request.format,
        "--jobs": request.jobs_max,
        "--estimate-error": request.estimate_error,
        "--load": "" if request.load == 1 else request.load,
        "--arrivals": "" if request.arrivals == "file" else request.arrivals,
        "--faults": request.faults,
        "--pace": "" if request.pace == "yarn" else request.pace,
        "--members": "" if request.members == 1 else request.members,
        "--until": "" if math.isinf(request.until_s) else request.until_s,
    }
    for flag, value in given.items():
        if value not in ("", 0):
            words += [flag, str(value)]
    for key, value in request.options.items():
        words += ["--set", f"{key}={value}"]
    return shlex.join(words)


def plain(value: object) -> Any:
    """Return plain data that JSON can hold: dataclasses as tables, an infinite number by name."""
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(each) for each in value]
    if isinstance(value, Enum):
        return plain(value.value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def file_digest(path: Path) -> str:
    """Return SHA-256 of a file, or of a folder's files with their names; raises OSError."""
    found = hashlib.sha256()
    files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    for each in files:
        if path.is_dir():
            found.update(str(each.relative_to(path)).encode() + b"\0")
        with each.open("rb") as file:
            while block := file.read(BLOCK):
                found.update(block)
    return found.hexdigest()


def _workload(request: Request, jobs: Sequence[Job]) -> Json:
    files = [{"path": text, "sha256": file_digest(Path(text))} for text in request.workload]
    return {
        "files": files,
        "format": request.format,
        "jobs": len(jobs),
        "stages": sum(len(job.stages) for job in jobs),
        "tasks": sum(job.task_count for job in jobs),
    }


def _cluster(given: str, cluster: ClusterSpec) -> Json:
    names = cluster.types.names
    path = Path(given)
    counts: dict[tuple[Vector, tuple[str, ...]], int] = {}
    for node in cluster.nodes:
        key = (node.capacity, node.labels)
        counts[key] = counts.get(key, 0) + 1
    return {
        "given": given,
        "sha256": file_digest(path) if path.is_file() else "",
        "resources": {each.name: each.kind.value for each in cluster.types},
        "nodes": [
            {"count": n, "capacity": dict(zip(names, capacity, strict=True)), "labels": [*labels]}
            for (capacity, labels), n in counts.items()
        ],
        "queues": _queues(cluster.queues.walk()),
    }


def _queues(queues: Iterable[tuple[str, QueueSpec]]) -> Json:
    return {
        path: {"capacity": queue.capacity, "max_capacity": queue.max_capacity}
        | ({"max_applications": queue.max_applications} if queue.max_applications else {})
        | ({"max_am_share": queue.max_am_share} if queue.max_am_share < 1 else {})
        | ({"submit": [*queue.submit]} if queue.submit is not None else {})
        | ({"administer": [*queue.administer]} if queue.administer else {})
        for path, queue in queues
    }


def _without(table: Table, names: tuple[str, ...]) -> Json:
    return {name: each for name, each in table.items() if name not in names}


def _version() -> str:
    try:
        return version("weft-rm")
    except PackageNotFoundError:
        return "unknown"
