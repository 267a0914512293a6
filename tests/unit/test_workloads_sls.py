"""Hadoop's simulator inputs and histories: several objects a file, and only what succeeded."""

import json

import pytest

from weft.model.errors import InputError
from weft.workloads import sls


def read(tmp_path, *values, name="a.json", **options):
    path = tmp_path / name
    path.write_text("\n".join(v if isinstance(v, str) else json.dumps(v) for v in values))
    return sls.read([path], **options)


def task(start, end, kind="map", **extra):
    return {
        "container.host": "/r1/n1",
        "container.start.ms": start,
        "container.end.ms": end,
        "container.priority": 20,
        "container.type": kind,
        **extra,
    }


def job(tasks, key="am.type", kind="mapreduce", **extra):
    return {
        key: kind,
        "job.start.ms": 1500,
        "job.queue.name": "q",
        "job.id": "j",
        "job.user": "u",
        "job.tasks": tasks,
        **extra,
    }


def test_objects_one_after_the_other_are_jobs_and_reduces_wait_for_maps(tmp_path):
    tasks = [task(0, 1000), task(0, 3000), task(5000, 6000, "reduce")]
    result = read(tmp_path, job(tasks), job(tasks[:1], key="yarn.sls.am.type"))
    first, second = result.jobs
    assert (first.name, first.queue, first.user, first.arrival_s) == ("j", "q", "u", 1.5)
    assert [(s.name, s.actual_duration_s) for s in first.stages] == [
        ("map", (1.0, 3.0)),
        ("reduce", (1.0,)),
    ]
    assert [edge.stage for edge in first.stage("reduce").parents] == ["map"]
    assert first.stage("map").prefer.nodes == ("n1",)
    assert second.task_count == 1


def test_hosts_that_differ_are_preferences_task_by_task(tmp_path):
    tasks = [task(0, 1000), {**task(0, 1000), "container.host": "/r2/n2"}]
    stage = read(tmp_path, job(tasks)).jobs[0].stages[0]
    own = [stage.override(i).prefer or stage.prefer for i in range(2)]
    assert [prefer.nodes for prefer in own] == [("n1",), ("n2",)]
    assert own[1].racks == ("r2",)


def test_an_sls_dag_has_no_dependencies_and_that_is_said(tmp_path):
    tasks = [task(0, 10, **{"container.request.delay": 5}), task(5, 9, "reduce")]
    result = read(tmp_path, job(tasks, kind="dag"))
    assert not result.jobs[0].stage("reduce").parents
    assert any("no dependencies" in warning for warning in result.warnings)
    assert any("1 container.request.delay" in warning for warning in result.warnings)


def test_counts_durations_and_demands_of_new_files_are_read(tmp_path):
    row = {"duration.ms": 2000, "count": 3, "container.memory-mb": 512, "container.vcores": 2}
    result = read(tmp_path, job([row], **{"job.count": 2}))
    assert len(result.jobs) == 2
    (stage,) = result.jobs[0].stages
    assert (stage.tasks, stage.duration_s) == (3, 2.0)
    assert stage.demand == {"vcores": 2.0, "memory_mb": 512.0}


def test_lists_of_nodes_and_configurations_are_refused(tmp_path):
    with pytest.raises(InputError, match="a list of nodes, not of jobs"):
        read(tmp_path, {"rack": "r", "nodes": [{"node": "n"}]})
    with pytest.raises(InputError, match="is XML"):
        read(tmp_path, "<configuration/>")
    with pytest.raises(InputError, match="neither a job of"):
        read(tmp_path, {"x": 1})
    with pytest.raises(InputError, match=r"before container\.start"):
        read(tmp_path, job([task(5, 1)]))


def synthetic(**extra):
    return {
        "num_jobs": 200,
        "rand_seed": 2,
        "workloads": [
            {
                "queue_name": "q",
                "workload_weight": 1,
                "job_classes": [{"class_name": "c", "class_weight": 1, **extra}],
                "time_distribution": [{"time": 1, "weight": 1}, {"time": 60, "weight": 0}],
            }
        ],
    }


NEW_FORM = {
    "tasks": [
        {
            "type": "map",
            "count": {"val": 5, "std": 1},
            "time": {"val": 10, "std": 2},
            "max_memory": {"val": 1024},
            "max_vcores": {"val": 1},
        },
        {
            "type": "reduce",
            "count": {"val": 2},
            "time": {"val": 20},
            "max_memory": {"val": 2048},
            "max_vcores": {"val": 2},
        },
    ]
}
OLD_FORM = {
    "mtasks_avg": 5,
    "mtasks_stddev": 1,
    "rtasks_avg": 2,
    "rtasks_stddev": 0,
    "mtime_avg": 10,
    "mtime_stddev": 2,
    "rtime_avg": 20,
    "rtime_stddev": 0,
    "map_max_memory_avg": 1024,
    "reduce_max_memory_avg": 2048,
    "map_max_vcores_avg": 1,
    "reduce_max_vcores_avg": 2,
}


@pytest.mark.parametrize("form", [NEW_FORM, OLD_FORM], ids=["new", "old"])
def test_jobs_drawn_from_a_description_follow_it_and_its_seed(tmp_path, form):
    result = read(tmp_path, synthetic(**form))
    assert result.jobs == read(tmp_path, synthetic(**form)).jobs
    assert len(result.jobs) == 200
    assert all(1 <= one.arrival_s <= 60 for one in result.jobs)
    maps = [one.stage("map") for one in result.jobs]
    assert sum(s.tasks for s in maps) / 200 == pytest.approx(5, rel=0.1)
    assert sum(s.duration_s for s in maps) / 200 == pytest.approx(10, rel=0.1)
    reduce = result.jobs[0].stage("reduce")
    assert (reduce.tasks, reduce.duration_s) == (2, 20.0)
    assert reduce.demand == {"vcores": 2.0, "memory_mb": 2048.0}
    assert "drawn from a statistical description" in result.warnings[0]


def rumen(submit=1_000_000, result="SUCCESS", **extra):
    attempt = {
        "result": result,
        "startTime": submit + 5,
        "finishTime": submit + 2005,
        "hostName": "/rack/host",
    }
    return {
        "jobID": f"job_{submit}",
        "submitTime": submit,
        "queue": "q",
        "user": "u",
        "jobMapMB": 200,
        "mapTasks": [{"attempts": [{"result": "FAILED"}, attempt]}],
        "reduceTasks": [{"attempts": []}],
        "otherTasks": [{}],
        **extra,
    }


def test_a_rumen_job_is_its_successful_attempts_with_arrivals_from_the_first(tmp_path):
    result = read(tmp_path, rumen(), rumen(1_004_000))
    assert [one.arrival_s for one in result.jobs] == [0.0, 4.0]
    (stage,) = result.jobs[0].stages
    assert (stage.name, stage.tasks, stage.duration_s) == ("map", 1, 2.0)
    assert stage.demand["memory_mb"] == 200.0
    assert result.dropped == {
        "unsuccessful attempt": 2,
        "task without a successful attempt": 2,
        "set-up or clean-up task": 2,
    }
    with pytest.raises(InputError, match="no task of the job succeeded"):
        read(tmp_path, rumen(result="KILLED"))


def event(kind, **data):
    return json.dumps({"type": kind, "event": {f"{HISTORY}X": data}})


HISTORY = "org.apache.hadoop.mapreduce.jobhistory."


def history(*events):
    head = ["Avro-Json", "{}", event("JOB_SUBMITTED", jobid="job_1", submitTime=9000)]
    return "\n".join([*head, *events])


MAP = {"taskid": "t1", "attemptId": "a1", "taskType": "MAP"}


def test_a_history_is_the_attempts_that_finished(tmp_path):
    events = [
        event("TASK_STARTED", taskid="t1"),
        event("TASK_STARTED", taskid="t2"),
        event("MAP_ATTEMPT_STARTED", **MAP, startTime=10_000),
        event("MAP_ATTEMPT_FAILED", taskid="t2"),
        "not json",
        event("MAP_ATTEMPT_FINISHED", **MAP, finishTime=12_500, hostname="h", rackname="/r"),
        event("JOB_FAILED"),
    ]
    result = read(tmp_path, history(*events), name="a.jhist")
    (stage,) = result.jobs[0].stages
    assert (stage.duration_s, stage.prefer.nodes) == (2.5, ("h",))
    assert result.jobs[0].arrival_s == 0.0
    assert result.dropped == {
        "unsuccessful attempt": 1,
        "task without a successful attempt": 1,
        "unreadable event": 1,
    }
    assert any("did not finish (JOB_FAILED)" in warning for warning in result.warnings)


def test_a_history_in_which_nothing_finished_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"no task of the job finished \(JOB_FAILED\)"):
        read(tmp_path, history(event("JOB_FAILED")), name="a.jhist")
