"""A Spark event log becomes jobs that hold what ran, and nothing that the log does not show."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from weft.model.errors import InputError
from weft.model.job import Job
from weft.workloads.spark_log import read

MB = 2**20
START_MS = 1_000_000


def stage_info(number: int, tasks: int, parents: list[int] | None = None, **more: Any) -> dict:
    info = {
        "Stage ID": number,
        "Stage Attempt ID": 0,
        "Stage Name": "collect at /home/someone/secret.py:1",
        "Number of Tasks": tasks,
        "RDD Info": [{"RDD ID": more.pop("rdd", 100 + number)}],
        "Parent IDs": parents or [],
    }
    return info | more


def job_start(number: int, stages: list[dict], at_ms: int = 0, sql: int | None = None) -> dict:
    return {
        "Event": "SparkListenerJobStart",
        "Job ID": number,
        "Submission Time": START_MS + at_ms,
        "Stage Infos": stages,
        "Properties": {} if sql is None else {"spark.sql.execution.id": str(sql)},
    }


def job_end(number: int, result: str = "JobSucceeded") -> dict:
    return {"Event": "SparkListenerJobEnd", "Job ID": number, "Job Result": {"Result": result}}


def task_end(stage: int, index: int, duration_ms: int = 1000, **more: Any) -> dict:
    metrics = {
        "Executor Run Time": duration_ms,
        "Executor CPU Time": duration_ms * 500_000,
        "Peak Execution Memory": 64 * MB,
        "Disk Bytes Spilled": 0,
        "Input Metrics": {"Bytes Read": 10 * MB},
        "Shuffle Read Metrics": {"Remote Bytes Read": 2 * MB, "Local Bytes Read": 1 * MB},
        "Shuffle Write Metrics": {"Shuffle Bytes Written": 3 * MB},
    }
    info = {"Index": index, "Attempt": 0, "Launch Time": 5000, "Finish Time": 5000 + duration_ms}
    return {
        "Event": "SparkListenerTaskEnd",
        "Stage ID": stage,
        "Stage Attempt ID": more.get("attempt", 0),
        "Task Type": more.get("kind", "ShuffleMapTask"),
        "Task End Reason": {"Reason": more.get("reason", "Success")},
        "Task Info": info | more.get("info", {}),
        "Task Metrics": metrics | more.get("metrics", {}),
    }


def ran(info: dict, durations_ms: list[int], **more: Any) -> list[dict]:
    """A stage's whole life: submitted, its tasks, completed."""
    tasks = [task_end(info["Stage ID"], i, ms, **more) for i, ms in enumerate(durations_ms)]
    return [
        {"Event": "SparkListenerStageSubmitted", "Stage Info": info},
        *tasks,
        {"Event": "SparkListenerStageCompleted", "Stage Info": info},
    ]


def application(*events: dict, ended: bool = True) -> list[dict]:
    head = {
        "Event": "SparkListenerApplicationStart",
        "App Name": "report",
        "App ID": "app-1",
        "Timestamp": START_MS,
        "User": "someone",
    }
    last = [{"Event": "SparkListenerApplicationEnd", "Timestamp": START_MS + 1}] if ended else []
    return [{"Event": "SparkListenerLogStart", "Spark Version": "3.5.9"}, head, *events, *last]


def lines_of(events: list[dict]) -> bytes:
    return b"".join(json.dumps(event).encode() + b"\n" for event in events)


def write(path: Path, events: list[dict]) -> Path:
    path.write_bytes(lines_of(events))
    return path


def small_log() -> list[dict]:
    """Two scans and a join: 2 + 1 -> 2 tasks."""
    scan, other = stage_info(0, 2), stage_info(1, 1)
    join = stage_info(2, 2, [0, 1])
    return application(
        job_start(0, [scan, other, join], at_ms=2500),
        *ran(scan, [1000, 3000]),
        *ran(other, [500]),
        *ran(join, [2000, 2000], kind="ResultTask"),
        job_end(0),
    )


def only(path: Path, **options: Any) -> Job:
    (job,) = read([path], **options).jobs
    return job


def parents(job: Job) -> dict[str, list[str]]:
    return {stage.name: [edge.stage for edge in stage.parents] for stage in job.stages}


def test_a_job_has_the_stages_edges_and_times_of_its_log(tmp_path: Path) -> None:
    job = only(write(tmp_path / "log", small_log()))
    assert parents(job) == {"stage0": [], "stage1": [], "stage2": ["stage0", "stage1"]}
    assert job.arrival_s == 2.5
    assert job.input_mb == 50
    assert job.stage("stage0").duration_s == 2.0
    assert job.stage("stage0").actual_duration_s == (1.0, 3.0)


def test_demands_are_measured_totals_over_task_time(tmp_path: Path) -> None:
    stage = only(write(tmp_path / "log", small_log()), memory_base_mb=100).stage("stage0")
    assert stage.demand == {
        "vcores": 0.5,
        "memory_mb": 164,
        "disk_mbps": 5.0,
        "network_mbps": 3.0,
    }


def test_the_median_may_be_the_estimate(tmp_path: Path) -> None:
    info = stage_info(0, 3)
    events = application(job_start(0, [info]), *ran(info, [1, 2, 9]), job_end(0))
    path = write(tmp_path / "log", events)
    assert only(path, estimate="median").stages[0].duration_s == 0.002
    assert only(path).stages[0].duration_s == 0.004


def test_nothing_of_the_machine_or_its_user_is_kept(tmp_path: Path) -> None:
    assert not re.search("someone|secret|home", repr(only(write(tmp_path / "log", small_log()))))


def test_the_last_successful_attempt_of_a_task_counts(tmp_path: Path) -> None:
    info = stage_info(0, 2)
    events = application(
        job_start(0, [info]),
        task_end(0, 1, 9000, reason="ExceptionFailure"),
        task_end(0, 1, 4000),
        *ran(info, [1000, 2000]),
        job_end(0),
    )
    result = read([write(tmp_path / "log", events)])
    assert result.jobs[0].stages[0].actual_duration_s == (1.0, 2.0)
    assert result.dropped["failed task attempt"] == 1
    assert result.dropped["task attempt that a later one replaced"] == 1


@pytest.mark.parametrize("tells_partition", [True, False])
def test_a_second_stage_attempt_fills_what_the_first_lost(
    tmp_path: Path, tells_partition: bool
) -> None:
    info = stage_info(0, 3)
    again = info | {"Stage Attempt ID": 1, "Number of Tasks": 1}
    part = {"Partition ID": 2} if tells_partition else {}
    events = application(
        job_start(0, [info]),
        {"Event": "SparkListenerStageSubmitted", "Stage Info": info},
        task_end(0, 0, 1000, info={"Partition ID": 0} if tells_partition else {}),
        task_end(0, 1, 2000, info={"Partition ID": 1} if tells_partition else {}),
        {
            "Event": "SparkListenerStageCompleted",
            "Stage Info": info | {"Failure Reason": "FetchFailed"},
        },
        {"Event": "SparkListenerStageSubmitted", "Stage Info": again},
        task_end(0, 0, 7000, attempt=1, info=part),
        {"Event": "SparkListenerStageCompleted", "Stage Info": again},
        job_end(0),
    )
    job = only(write(tmp_path / "log", events))
    assert job.stages[0].actual_duration_s == (1.0, 2.0, 7.0)


def adaptive_log() -> list[dict]:
    """One SQL execution in two Spark jobs: the second skips what the first has written."""
    scan, skipped = stage_info(0, 2, rdd=7), stage_info(1, 2, rdd=7)
    last = stage_info(2, 1, [1])
    return application(
        job_start(0, [scan], sql=3),
        *ran(scan, [1000, 1000]),
        job_end(0),
        job_start(1, [skipped, last], at_ms=4000, sql=3),
        *ran(last, [1000], kind="ResultTask"),
        job_end(1),
    )


def test_a_skipped_stage_is_bridged_to_the_stage_that_made_its_output(tmp_path: Path) -> None:
    path = write(tmp_path / "log", adaptive_log())
    for group in ("execution", "application"):
        result = read([path], group=group)
        assert parents(result.jobs[0]) == {"stage0": [], "stage2": ["stage0"]}
        assert result.dropped["skipped stage, its output existed"] == 1


def test_an_edge_to_output_of_another_job_is_cut_and_counted(tmp_path: Path) -> None:
    result = read([write(tmp_path / "log", adaptive_log())])
    assert [parents(job) for job in result.jobs] == [{"stage0": []}, {"stage2": []}]
    assert [job.arrival_s for job in result.jobs] == [0.0, 4.0]
    assert result.dropped["edge to output that another job had made"] == 1


def test_a_stage_without_tasks_is_bridged(tmp_path: Path) -> None:
    first, empty, last = stage_info(0, 1), stage_info(1, 0, [0]), stage_info(2, 1, [1])
    events = application(
        job_start(0, [first, empty, last]),
        *ran(first, [10]),
        *ran(empty, []),
        *ran(last, [10]),
        job_end(0),
    )
    assert parents(only(write(tmp_path / "log", events))) == {"stage0": [], "stage2": ["stage0"]}


def test_recurring_applications_share_their_history_keys(tmp_path: Path) -> None:
    path = write(tmp_path / "log", adaptive_log())
    assert [job.history_key for job in read([path]).jobs] == ["report#0", "report#1"]
    assert only(path, group="application").history_key == "report"


def test_malformed_lines_are_counted_and_the_first_named(tmp_path: Path) -> None:
    path = tmp_path / "log"
    good = lines_of(small_log())
    bad = [b'{"Event":"SparkListenerTaskEnd","Stage ID":"x"}', b'{"Event', b"[]", b"\xff", b"7"]
    path.write_bytes(good + b"\n".join(bad) + b"\n")
    result = read([path])
    assert result.dropped["malformed line"] == len(bad)
    named = [warning for warning in result.warnings if "malformed" in warning]
    assert len(named) == 4
    assert "line 17" in named[0]
    assert len(result.jobs) == 1


def test_unknown_events_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "log"
    vendor = {"Event": "com.databricks.backend.daemon.Something", "x": 1}
    path.write_bytes(lines_of([{"Event": "DBCEventLoggingListenerMetadata"}, vendor, *small_log()]))
    result = read([path])
    assert len(result.jobs) == 1
    assert not result.dropped


def test_of_a_log_that_is_cut_off_the_finished_stages_are_used(tmp_path: Path) -> None:
    scan, join = stage_info(0, 2), stage_info(1, 2, [0])
    events = application(
        job_start(0, [scan, join, stage_info(2, 1, [1])]),
        *ran(scan, [1, 2]),
        *ran(join, [5, 5])[:2],
        ended=False,
    )
    path = tmp_path / "log"
    path.write_bytes(lines_of(events) + b'{"Event":"SparkListenerTas')
    result = read([path])
    assert parents(result.jobs[0]) == {"stage0": []}
    assert result.dropped["stage that did not finish"] == 1
    assert result.dropped["stage not run yet"] == 1
    assert any("cut off" in warning for warning in result.warnings)


def test_a_task_that_the_log_lost_is_given_the_mean_and_said_so(tmp_path: Path) -> None:
    info = stage_info(0, 3)
    events = application(job_start(0, [info]), *ran(info, [1000, 3000]), job_end(0))
    result = read([write(tmp_path / "log", events)])
    assert result.jobs[0].stages[0].actual_duration_s == (1.0, 3.0, 2.0)
    assert result.dropped["task whose end the log lacks"] == 1
    assert any("given their mean of 2000 ms" in warning for warning in result.warnings)


def test_edges_that_a_log_hides_are_refused_not_guessed(tmp_path: Path) -> None:
    def old(*stages: dict) -> Path:
        hidden = [{k: v for k, v in info.items() if k != "Parent IDs"} for info in stages]
        runs = [event for info in hidden for event in ran(info, [1])]
        return write(tmp_path / "log", application(job_start(0, hidden), *runs, job_end(0)))

    with pytest.raises(InputError, match="does not say how they depend"):
        read([old(stage_info(0, 1), stage_info(1, 1))])
    assert len(read([old(stage_info(0, 1))]).jobs) == 1


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "no Spark event log"),
        (b"some text\n", "no Spark event log"),
        (b'{"name": "q"}\n', "no Spark event log"),
        (lines_of(application()), "the log has no job"),
        (b"ZV\x01\x00\x00", "LZF"),
        (b"\x28\xb5\x2f\xfd\x00", "damaged"),
        (b"\x1f\x8b\x08\x00", "damaged"),
    ],
)
def test_what_is_no_log_is_refused_with_its_reason(
    tmp_path: Path, text: bytes, reason: str
) -> None:
    path = tmp_path / "log"
    path.write_bytes(text)
    with pytest.raises(InputError, match=reason):
        read([path])


def test_unknown_options_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "log", small_log())
    for options in ({"group": "task"}, {"estimate": "mode"}, {"memory_base_mb": -1}):
        with pytest.raises(InputError):
            read([path], **options)


def places(value: Any, path: tuple = ()) -> list[tuple]:
    """Every place in a nest of lists and tables."""
    found = [path]
    if isinstance(value, list):
        value = dict(enumerate(value))
    for key, child in value.items() if isinstance(value, dict) else ():
        found += places(child, (*path, key))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("odd", [None, -1, "x", [], {}, [[]], 1e999, 2**70, True, {"a": 1}])
def test_no_odd_value_at_any_place_is_more_than_bad_input(tmp_path: Path, odd: Any) -> None:
    environment = {"Event": "SparkListenerEnvironmentUpdate"}
    events = [environment | {"Spark Properties": {"spark.task.cpus": "1"}}, *small_log()]
    path = tmp_path / "log"
    for place in places(events)[1:]:
        changed = json.loads(json.dumps(events))
        target = changed
        for key in place[:-1]:
            target = target[key]
        target[place[-1]] = odd
        write(path, changed)
        try:
            result = read([path])
        except InputError:
            continue
        assert result.jobs
