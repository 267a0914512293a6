"""Logs of the Parallel Workloads Archive become rigid jobs, with what the log does not say."""

import gzip
from pathlib import Path

import pytest

from weft.model.errors import InputError
from weft.model.job import Job
from weft.workloads.imported import Imported
from weft.workloads.registry import detect, import_jobs
from weft.workloads.swf import read

HEADER = """; Version: 2.2
; Computer: a cluster
; MaxNodes: 64
; MaxProcs: 128
;
"""
FULL = "1 100 5 60 4 55 2048 4 120 1024 1 7 1 3 2 1 -1 -1"
BARE = "2 130 -1 30 2 -1 -1 -1 -1 -1 1 -1 -1 -1 -1 -1 -1 -1"
USED = "3 160 -1 10 1 -1 4096 -1 20 -1 0 9 -1 -1 -1 -1 -1 -1"
CANCELLED = "4 170 -1 -1 -1 -1 -1 8 60 -1 5 9 -1 -1 -1 -1 -1 -1"
AFTER = "5 200 -1 10 1 -1 -1 1 20 -1 1 9 -1 -1 -1 -1 3 10"


def jobs_of(path: Path, **options: str) -> tuple[list[Job], Imported]:
    result = Imported()
    return list(import_jobs("auto", [path], options, result)), result


@pytest.mark.parametrize("header", [HEADER, ""])
def test_a_log_is_told_by_its_content_and_packed(tmp_path: Path, header: str) -> None:
    path = tmp_path / "log.swf.gz"
    path.write_bytes(gzip.compress(f"{header}{FULL}\n".encode()))
    assert detect([path]) == "swf"
    [job], result = jobs_of(path)
    [stage] = job.stages
    assert (stage.tasks, stage.gang, stage.duration_s) == (4, True, 120.0)
    assert stage.actual_duration_of(0) == 60.0
    assert stage.demand == {"vcores": 1.0, "memory_mb": 1.0}
    assert (job.name, job.user, job.queue, job.arrival_s) == ("job1", "user7", "default", 0.0)
    assert ("its machine had MaxNodes 64, MaxProcs 128" in str(result.warnings)) == bool(header)


def test_what_is_not_known_is_taken_from_what_is(tmp_path: Path) -> None:
    path = tmp_path / "log.swf"
    path.write_text("\n".join([HEADER, FULL, BARE, USED, CANCELLED, AFTER]))
    jobs, result = jobs_of(path)
    assert [job.arrival_s for job in jobs] == [0.0, 30.0, 60.0, 100.0]
    bare, used = jobs[1].stages[0], jobs[2].stages[0]
    assert (bare.tasks, bare.duration_s, bare.demand["memory_mb"]) == (2, 30.0, 0.0)
    assert (used.tasks, used.gang, used.demand["memory_mb"]) == (1, False, 4.0)
    assert jobs[1].user == ""
    assert result.dropped == {"it never ran": 1, "waits for another job, which jobs here cannot": 0}


def test_options_choose_queues_and_loose_tasks(tmp_path: Path) -> None:
    path = tmp_path / "log.swf"
    path.write_text(FULL)
    [job], _ = jobs_of(path, gangs="false", queues="true")
    assert (job.queue, job.stages[0].gang) == ("q2", False)


BAD = [
    ("1 2 3", "expected 18 fields, got 3"),
    (FULL.replace("120", "x"), "field 9 is no number"),
    (FULL.replace("120", "inf"), "field 9 is no number"),
]


@pytest.mark.parametrize(("line", "why"), BAD)
def test_a_bad_line_is_named_dropped_and_counted(tmp_path: Path, line: str, why: str) -> None:
    path = tmp_path / "log.swf"
    path.write_text("\n".join([line, FULL, line]))
    found = read([path])
    assert len(found.jobs) == 1
    assert found.dropped[why] == 2
    assert f"{path} line 1: {why} (the first one)" in found.warnings


@pytest.mark.parametrize(("line", "why"), [*BAD, ("", "holds no job that can be used$")])
def test_a_log_without_a_good_line_is_refused_with_a_reason(
    tmp_path: Path, line: str, why: str
) -> None:
    path = tmp_path / "log.swf"
    path.write_text(line)
    with pytest.raises(InputError, match=why):
        read([path])
