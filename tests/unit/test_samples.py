"""The shipped sample jobs are whole recordings that anybody may have."""

import re
from pathlib import Path
from statistics import fmean

import pytest

from weft.model.job import Job
from weft.model.resources import DEFAULT_RESOURCE_TYPES
from weft.workloads.jobs_file import load_jobs

SAMPLES = Path(__file__).resolve().parents[2] / "weft" / "client" / "samples"
FILES = sorted((SAMPLES / "tpch").glob("*.json"))


def load(path: Path) -> Job:
    (job,) = load_jobs([path])
    return job


def critical_path_s(job: Job) -> float:
    """The longest chain of stages, each as long as its slowest task."""
    ends_s: dict[int, float] = {}
    for position in job.topological_order():
        stage = job.stages[position]
        slowest_s = max(stage.actual_duration_of(i) for i in range(stage.tasks))
        before_s = max((ends_s[parent] for parent, _ in job.parents_of(position)), default=0.0)
        ends_s[position] = before_s + slowest_s
    return max(ends_s.values())


def test_there_are_at_least_ten_queries_each_under_its_own_name() -> None:
    jobs = [load(path) for path in FILES]
    assert len(jobs) >= 10
    assert [job.name for job in jobs] == [path.stem for path in FILES]
    assert len({job.history_key for job in jobs}) == len(jobs)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_task_has_its_measured_time_and_the_estimate_is_their_mean(path: Path) -> None:
    for stage in load(path).stages:
        assert isinstance(stage.actual_duration_s, tuple)
        assert len(stage.actual_duration_s) == stage.tasks
        assert min(stage.actual_duration_s) > 0
        assert stage.duration_s == pytest.approx(fmean(stage.actual_duration_s), abs=1e-4)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_task_fits_on_any_plausible_node_and_uses_something(path: Path) -> None:
    for stage in load(path).stages:
        assert set(stage.demand) == set(DEFAULT_RESOURCE_TYPES.names)
        assert 0 < stage.demand["vcores"] <= 1
        assert 0 < stage.demand["memory_mb"] <= 2048
        assert stage.demand["disk_mbps"] + stage.demand["network_mbps"] > 0


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_query_is_a_real_dag_that_ends_within_half_a_minute(path: Path) -> None:
    job = load(path)
    scans = [stage for stage in job.stages if not stage.parents]
    assert 1 < len(scans) < len(job.stages)
    assert 1 < critical_path_s(job) < 30


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_stage_that_ends_early_is_at_most_one_sampling_of_a_sort(path: Path) -> None:
    """More sinks would be subqueries or broadcasts whose edge the log does not show."""
    job = load(path)
    feeding = {edge.stage for stage in job.stages for edge in stage.parents}
    sinks = [stage for stage in job.stages if stage.name not in feeding]
    assert len(sinks) <= 2


def test_samples_are_small_and_tell_nothing_of_where_they_were_made() -> None:
    files = [path for path in SAMPLES.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 1_000_000
    for path in files:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"/(home|root|tmp|work|Users)/|localhost|127\.0\.0", text), path.name


def test_the_readme_tells_of_every_choice() -> None:
    text = (SAMPLES / "README.md").read_text(encoding="utf-8")
    for word in ("3.5.9", "1.1.3", "sf=5", "record_tpch.py", "188 MB"):
        assert word in text
