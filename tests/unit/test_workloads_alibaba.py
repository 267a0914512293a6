"""Alibaba's trace: every form and quirk is read as stated, and each dropped row is counted."""

import tracemalloc

import pytest

from weft.model.errors import InputError
from weft.workloads import alibaba2018, buckets
from weft.workloads.imported import Imported

MEMORY_MB = 1000.0


def read(tmp_path, *texts, **options):
    paths = []
    for number, text in enumerate(texts):
        paths.append(tmp_path / f"{number}.csv")
        paths[-1].write_text(text)
    return alibaba2018.read(paths, machine_memory_mb=MEMORY_MB, **options)


ROWS = """J3_1_2,3,j_1,,Terminated,100,110,50.0,0.5
M1,7,j_1,,Terminated,100,104,100.0,0.2
M1,1,j_2,,Terminated,90,95,100.0,0.2
R2_1,2,j_1,,Terminated,101,109,100.0,0.2
"""


def names(job):
    return {stage.name: [edge.stage for edge in stage.parents] for stage in job.stages}


def test_dependencies_are_the_numbers_in_the_names_wherever_the_rows_stand(tmp_path):
    result = read(tmp_path, ROWS)
    assert [job.name for job in result.jobs] == ["j_2", "j_1"]
    assert [job.arrival_s for job in result.jobs] == [0.0, 10.0]
    job = result.jobs[1]
    assert names(job) == {"J3_1_2": ["M1", "R2_1"], "M1": [], "R2_1": ["M1"]}
    stage = job.stage("J3_1_2")
    assert (stage.tasks, stage.duration_s) == (3, 10.0)
    assert stage.demand == {"vcores": 0.5, "memory_mb": 5.0}
    assert any("4 stages last end - start" in warning for warning in result.warnings)


def test_mean_instance_durations_replace_end_minus_start(tmp_path):
    durations = "job_name,task_name,mean_instance_duration_s\nj_1,M1,2.25\n"
    result = read(tmp_path, ROWS, durations)
    assert result.jobs[1].stage("M1").duration_s == 2.25
    assert result.jobs[1].stage("R2_1").duration_s == 8.0


def test_a_job_with_an_unusable_row_is_dropped_whole_and_counted(tmp_path):
    rows = ROWS + "R4_3,,j_1,,Waiting,0,0,,\nM1,2,j_3,,Running,50,0,100,0.1\n"
    result = read(tmp_path, rows)
    assert [job.name for job in result.jobs] == ["j_2"]
    assert result.dropped == {
        "row without instances (status Waiting)": 1,
        "row without an end (status Running)": 1,
        "row of a job that has an unusable row": 3,
    }


def test_blank_plans_are_replaced_and_counted(tmp_path):
    result = read(tmp_path, "M1,1,j,,Failed,1,2,,\n", plan_cpu=200.0, plan_mem=2.0)
    assert result.jobs[0].stages[0].demand == {"vcores": 2.0, "memory_mb": 20.0}
    for text in ("1 rows with a blank plan_cpu", "1 rows with a blank plan_mem", "status Failed"):
        assert any(text in warning for warning in result.warnings)


def test_suffixes_cut_names_and_names_without_numbers_are_said(tmp_path):
    rows = [
        "M1_Stg8,1,j,,Terminated,1,2,1,1",
        "R9_1_Stg8,1,j,,Terminated,1,2,1,1",
        "J30_1_9_25_,1,j,,Terminated,1,2,1,1",
        "R31_30_30,1,j,,Terminated,1,1,1,1",
        "task_LTYx=,1,j,,Terminated,1,2,1,1",
        "task_LTYx=,1,j,,Terminated,1,2,1,1",
    ]
    result = read(tmp_path, "\n".join(rows))
    assert names(result.jobs[0]) == {
        "M1_Stg8": [],
        "R9_1_Stg8": ["M1_Stg8"],
        "J30_1_9_25_": ["M1_Stg8", "R9_1_Stg8"],
        "R31_30_30": ["J30_1_9_25_"],
        "task_LTYx=": [],
        "task_LTYx=_2": [],
    }
    for text in (
        "1 stages have a name that is cut",
        "1 edges name a task that",
        "2 stages have n",
        "1 edges are named twice",
        "1 stages last 0 s",
    ):
        assert any(text in warning for warning in result.warnings), text


def test_a_parents_number_may_be_greater_than_its_childs_but_not_in_a_cycle(tmp_path):
    result = read(tmp_path, "M2_5,1,j,,Terminated,1,2,1,1\nM5,1,j,,Terminated,1,2,1,1\n")
    assert names(result.jobs[0]) == {"M2_5": ["M5"], "M5": []}
    rows = ROWS + "M2_5,1,j,,Terminated,1,2,1,1\nM5_2,1,j,,Terminated,1,2,1,1\n"
    assert read(tmp_path, rows).dropped == {"row of a job whose DAG cannot be read": 2}


def test_usage_is_divided_by_the_instances(tmp_path):
    rows = (
        ",".join(alibaba2018.TASK_USAGE)
        + "\nj_1,R2_1,4.0,Terminated,10,20,10,2.5,100.0,200.0,0.5,0.8\n"
    )
    (stage,) = read(tmp_path, rows).jobs[0].stages
    assert (stage.tasks, stage.duration_s) == (4, 2.5)
    assert stage.demand == {"vcores": 1.0, "memory_mb": 5.0}
    assert stage.actual_demand == {"vcores": 0.5, "memory_mb": 2.0}


def test_the_hour_slice_gives_true_arrivals_and_caps_are_said(tmp_path):
    rows = ",".join(alibaba2018.HOUR_SLICE) + "\n7,j_1,M1,3,50,0.1,90000\n9,j_2,M1,3,50,0.1,1\n"
    result = read(tmp_path, rows, instances_max=1000, jobs_max=1)
    (job,) = result.jobs
    assert (job.arrival_s, job.task_count) == (0.0, 1000)
    assert any("89000 instances over the cap" in warning for warning in result.warnings)
    assert any("1 jobs after the first 1" in warning for warning in result.warnings)


def test_malformed_rows_are_dropped_and_counted(tmp_path):
    rows = ROWS + "M1,1,j_4\nM1,x,j_5,,Terminated,1,2,1,1\nM1,1,j_6,,Odd,1,2,1,1\n"
    assert read(tmp_path, rows).dropped == {"row that has not 9 columns": 1, "malformed row": 2}


@pytest.mark.parametrize("text", ["", "hello\n", "a,b,c\n", ",".join(alibaba2018.BATCH_TASK)])
def test_a_file_without_rows_is_refused(tmp_path, text):
    with pytest.raises(InputError):
        read(tmp_path, text)


def test_an_unknown_file_beside_a_good_one_is_counted(tmp_path):
    result = read(tmp_path, "hello\n", ROWS)
    assert len(result.jobs) == 2
    assert result.dropped == {"unusable file": 1}


def peak_bytes(use):
    tracemalloc.start()
    use()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


@pytest.mark.slow
def test_a_large_file_needs_bounded_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(buckets, "BUCKET_MEMORY_BYTES_MAX", 1024)
    path = tmp_path / "large.csv"
    with path.open("w") as out:  # the rows of a job are far from each other
        for number in (1, 2):
            parent = "" if number == 1 else "_1"
            for job in range(3000):
                out.write(f"M{number}{parent},5,j_{job},,Terminated,{job * 7},{job * 8},50,0.2\n")
    arrivals = []

    def stream():
        for job in alibaba2018.stream([path], Imported()):
            assert len(job.stages) == 2
            arrivals.append(job.arrival_s)

    assert peak_bytes(stream) < peak_bytes(lambda: alibaba2018.read([path])) / 3
    assert len(arrivals) == 3000
    assert arrivals == sorted(arrivals)
