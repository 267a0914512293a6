"""Every public input file is read by its importer, or refused for a reason that is named."""

import gzip
import importlib
import json
import os
from collections import Counter
from pathlib import Path

import pytest

from weft.model.errors import InputError
from weft.model.job import Job
from weft.model.jobfile import job_from_dict, job_to_dict
from weft.workloads.imported import Imported
from weft.workloads.registry import FORMATS, format_of, import_jobs

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("WEFT_DATA", ROOT / ".." / "shared" / "data")).resolve()
FOLDERS = sorted(p.name for p in DATA.iterdir() if p.is_dir()) if DATA.is_dir() else []
ROUND_TRIPS_MAX = 60  # jobs of a folder that are written and read back

needs_data = pytest.mark.skipif(not FOLDERS, reason=f"no input files under WEFT_DATA ({DATA})")


def files(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.rglob("*")) if path.is_file()]


def importable(name: str) -> bool:
    try:
        importlib.import_module(FORMATS[name])
    except ModuleNotFoundError:
        return False
    return True


@pytest.mark.slow
@needs_data
@pytest.mark.parametrize("folder", FOLDERS)
def test_every_file_is_read_or_refused_with_its_name_and_a_reason(folder, record_property):
    counts: Counter[str] = Counter()
    reasons: list[tuple[str, str]] = []
    left = ROUND_TRIPS_MAX
    for path in files(DATA / folder):
        name = format_of(path)
        if name is None:
            counts["no workload"] += 1
            continue
        if not importable(name):
            counts[f"{name} not there"] += 1
            continue
        result = Imported()
        try:
            for job in import_jobs(name, [path], {}, result):
                counts["jobs"] += 1
                if left > 0:
                    left -= 1
                    assert job_from_dict(job_to_dict(job)) == job
        except InputError as error:
            reasons.append((path.name, str(error)))
            counts["refused"] += 1
        else:
            counts["read"] += 1
    assert all(name in reason for name, reason in reasons), reasons
    for what, count in counts.items():
        record_property(what, count)
    print(folder, dict(counts))
    assert sum(v for k, v in counts.items() if k != "jobs") == len(files(DATA / folder))
    if counts["refused"]:  # a folder of which nothing can be read is a fault of the importer
        assert counts["read"]


@needs_data
def test_what_the_folders_hold_is_told_by_content():
    told = {folder: {format_of(path) for path in files(DATA / folder)} for folder in FOLDERS}
    known = {folder: names - {None} for folder, names in told.items()}
    assert all(len(names) <= 1 for names in known.values()), known
    assert set().union(*known.values()) <= set(FORMATS)


def document(path: Path):
    packed = path.read_bytes()
    return json.loads(gzip.decompress(packed) if packed[:2] == b"\x1f\x8b" else packed)


def job_edges(job: Job) -> Counter[tuple[float, float]]:
    """Task-level edges of a job, each by the true durations of its two tasks."""
    edges: Counter[tuple[float, float]] = Counter()
    for child, stage in enumerate(job.stages):
        for parent, edge in job.edges_of(child):
            above = job.stages[parent]
            for index in range(stage.tasks):
                for i in edge.parent_tasks(above.tasks, stage.tasks, index):
                    edges[above.actual_duration_of(i), stage.actual_duration_of(index)] += 1
    return edges


@pytest.mark.slow
@needs_data
def test_workflows_keep_every_edge_of_their_files_and_add_none():
    paths = [p for p in files(DATA) if ".json" in p.name and format_of(p) == "wfformat"]
    if not paths:
        pytest.skip("no WfFormat file among the inputs")
    for path in paths:
        workflow = document(path)["workflow"]
        runtimes = {t["id"]: t["runtimeInSeconds"] for t in workflow["execution"]["tasks"]}
        tasks = workflow["specification"]["tasks"]
        wanted = Counter((runtimes[p], runtimes[t["id"]]) for t in tasks for p in t["parents"])
        (job,) = import_jobs("wfformat", [path], {}, Imported())
        assert job.task_count == len(tasks)
        assert job_edges(job) == wanted, path
