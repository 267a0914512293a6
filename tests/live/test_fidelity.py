"""A live run that is recorded, and its simulations: what is compared is the same work."""

from pathlib import Path

import pytest

from lab.studies.fidelity import compare, drawn_jobs, errors_of, moved, read, record, told
from sim.replay.whatif import Jct
from weft.client.local import LocalSettings
from weft.model.errors import WeftError
from weft.model.job import Job


def path_s(job: Job) -> float:
    """The job's longest path: no run of it is shorter."""
    ends: dict[str, float] = {}
    for stage in job.stages:
        before = max((ends[edge.stage] for edge in stage.parents), default=0.0)
        ends[stage.name] = before + stage.duration_s
    return max(ends.values())


def test_a_recorded_run_is_compared_job_by_job(tmp_path: Path) -> None:
    """Three jobs: none is faster than its longest path, live or simulated."""
    jobs = drawn_jobs(3, 1)
    assert jobs == drawn_jobs(3, 1)
    settings = LocalSettings(
        cluster="3x4vcores,16384memory_mb", time_scale=10.0, tape=tmp_path / "tapes"
    )
    record(jobs, settings, tmp_path / "c")
    recorded = read(tmp_path / "tapes")
    rows = compare(recorded, 2)
    assert [row.name for row in rows] == [job.name for job in jobs]
    for row, job in zip(rows, jobs, strict=True):
        assert min(row.recorded_s, row.same_s, row.changed_s) >= path_s(job) * (1 - 1e-6)
    assert errors_of(rows, "same_s").shape == (3,)
    assert moved(recorded, 1, 0.0) == (0.0, 0.0), "the same jobs take the same time"
    mean, worst = moved(recorded, 2, 1.0)
    assert 0 < mean < worst < 1


def test_errors_are_over_the_live_time() -> None:
    """Two jobs of 10 and 20 s, simulated 1 s too long and 1 s too short."""
    rows = [Jct(1, "a", 10.0, 11.0, 10.0), Jct(2, "b", 20.0, 19.0, 20.0)]
    assert errors_of(rows, "same_s").tolist() == pytest.approx([0.1, -0.05])
    assert "mean 7.50 %, bias +2.50 %, worst 10.00 %" in told(rows, "same_s")
    with pytest.raises(WeftError, match="nothing to compare"):
        errors_of([*rows, Jct(3, "c", -1.0, 1.0, 1.0)], "same_s")
