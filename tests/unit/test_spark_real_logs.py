"""Public Spark event logs are read whole, or refused with a reason that a person can act on."""

import os
import re
from pathlib import Path
from typing import Any

import pytest

from weft.model.errors import InputError
from weft.model.job import Job
from weft.workloads.spark_log import GROUPS, read

DATA = Path(os.environ.get("WEFT_DATA", "../shared/data")) / "spark-eventlogs"


def real_logs() -> list[Any]:
    files = sorted(p for p in DATA.rglob("*") if p.is_file()) if DATA.is_dir() else []
    found = [pytest.param(path, id=path.name) for path in files]
    reason = f"no event logs at {DATA}: set WEFT_DATA"
    return found or [pytest.param(None, id="none", marks=pytest.mark.skip(reason=reason))]


@pytest.mark.slow
@pytest.mark.parametrize("path", real_logs())
def test_every_real_log_is_read_or_refused_with_its_reason(path: Path) -> None:
    try:
        result = read([path])
    except InputError as error:
        refusal = error.problem
    else:
        refusal = ""
        assert result.jobs
        check_measures(result.jobs)
    assert re.match("$|.*(status marker|has no job|does not say how they depend)", refusal)


def check_measures(jobs: list[Job]) -> None:
    """The truth has one duration a task, the estimate is their mean, the demand is plausible."""
    for job in jobs:
        for stage in job.stages:
            truth = stage.actual_duration_s
            assert isinstance(truth, tuple)
            assert stage.tasks == len(truth)
            assert stage.duration_s == pytest.approx(sum(truth) / len(truth), abs=1e-4)
            assert 0 < stage.demand["vcores"] <= 1
            assert stage.demand["memory_mb"] >= 512


@pytest.mark.slow
@pytest.mark.parametrize("path", real_logs())
def test_grouping_neither_loses_nor_doubles_a_task(path: Path) -> None:
    try:
        results = [read([path], group=group) for group in GROUPS]
    except InputError:
        pytest.skip("this log is refused")
    counts = [sum(job.task_count for job in result.jobs) for result in results]
    assert counts == [counts[0]] * len(GROUPS)


def readme_rows() -> dict[str, int]:
    """Good tasks by file, from the table beside the logs."""
    readme = DATA.parent / "README.md"
    if not readme.is_file():
        return {}
    _, _, section = readme.read_text(encoding="utf-8").partition("spark-eventlogs/ :")
    rows = re.findall(r"^\| (\S+) \|(?:[^|]*\|){4} [^|]*\| (\d+) \((\d+)\) \|", section, re.M)
    return {name: int(tasks) - int(failed) for name, tasks, failed in rows}


@pytest.mark.slow
@pytest.mark.parametrize("path", real_logs())
def test_task_counts_are_those_of_the_table(path: Path) -> None:
    rows = readme_rows()
    name = str(path.relative_to(DATA))
    if name not in rows:
        pytest.skip("not in the table")
    try:
        result = read([path])
    except InputError:
        pytest.skip("this log is refused")
    if result.dropped["stage that did not finish"]:
        pytest.skip("the log is cut off, unfinished stages have tasks too")
    kept = sum(job.task_count for job in result.jobs)
    kept += result.dropped["task of a job whose start the log lacks"]
    kept += result.dropped["task attempt that a later one replaced"]
    assert kept == rows[name]
