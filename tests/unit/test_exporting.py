"""What is exported is read again by the importers of the same formats, or said to be lost."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from lab.cli import weft
from weft.model.errors import InputError
from weft.model.job import Edge, EdgeKind, Job, Stage
from weft.workloads import swf, wfformat
from weft.workloads.exporting import spans_of, write_swf, write_wfformat
from weft.workloads.jobs_file import write_jobs

ONE = {"vcores": 1.0, "memory_mb": 512.0}
RIGID = [
    Job("job1", (Stage("run", 4, 60.0, ONE, actual_duration_s=45.0, gang=True),), user="user7"),
    Job(
        "job2",
        (Stage("run", 1, 30.0, ONE, actual_duration_s=30.0),),
        user="user9",
        queue="q2",
        arrival_s=12.0,
    ),
]
DIAMOND = Job(
    "a b/c",
    (
        Stage("load", 2, 5.0, ONE),
        Stage("left", 2, 7.0, ONE, (Edge("load", EdgeKind.ONE_TO_ONE),)),
        Stage("right", 3, 9.0, ONE, (Edge("load"),)),
        Stage("join", 1, 2.0, {"vcores": 2.0, "memory_mb": 100.0}, (Edge("left"), Edge("right"))),
    ),
    queue="a",
    arrival_s=3.0,
)


def test_rigid_jobs_come_back_from_swf(tmp_path: Path) -> None:
    """Processors, estimates, true times, memory, users and queues."""
    out = tmp_path / "log.swf"
    assert not write_swf(out, RIGID, {})
    back = swf.read([out], queues=True).jobs
    assert [job.stages for job in back] == [job.stages for job in RIGID]
    assert [(job.user, job.arrival_s) for job in back] == [("user7", 0.0), ("user9", 12.0)]
    assert back[1].queue == "q2"


def test_a_graph_in_swf_keeps_one_parent_and_says_so(tmp_path: Path) -> None:
    """Field 17 names one job; what else a stage waits for is counted as lost."""
    lost = write_swf(tmp_path / "log.swf", [DIAMOND], {})
    assert lost["dependencies on more than one stage"] == 1
    lines = [line.split() for line in (tmp_path / "log.swf").read_text().splitlines()]
    rows = [line for line in lines if line[0] != ";"]
    assert [row[16] for row in rows] == ["-1", "1", "1", "3"]
    assert [row[4] for row in rows] == ["2", "2", "3", "2"]
    assert all(len(row) == swf.FIELDS for row in rows)


def test_a_graph_comes_back_from_wfformat(tmp_path: Path) -> None:
    """Stages, tasks, times, demands and every edge."""
    lost = write_wfformat(tmp_path, [DIAMOND, DIAMOND])
    assert lost == {"queues": 2, "times of arrival": 2}
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == ["a_b_c.json", "a_b_c_.json"]
    (job,) = wfformat.read([files[0]]).jobs
    assert [(s.name, s.tasks, dict(s.demand)) for s in job.stages] == [
        (s.name, s.tasks, dict(s.demand)) for s in DIAMOND.stages
    ]
    for stage in DIAMOND.stages:
        found = job.stage(stage.name)
        assert [found.actual_duration_of(i) for i in range(stage.tasks)] == [
            stage.duration_s
        ] * stage.tasks
        assert {e.stage for e in found.parents} == {e.stage for e in stage.parents}
        for edge, other in zip(
            sorted(stage.parents, key=lambda e: e.stage),
            sorted(found.parents, key=lambda e: e.stage),
            strict=True,
        ):
            parents = DIAMOND.stage(edge.stage).tasks
            for i in range(stage.tasks):
                assert list(edge.parent_tasks(parents, stage.tasks, i)) == list(
                    other.parent_tasks(parents, stage.tasks, i)
                )


def test_a_run_tells_waits_and_run_times(tmp_path: Path) -> None:
    """The command: a simulation of a workload gives its log, which is read again."""
    jobs, run, out = tmp_path / "jobs.jsonl", tmp_path / "run", tmp_path / "log.swf"
    write_jobs(jobs, [RIGID[0], Job("job3", RIGID[0].stages, arrival_s=1.0)])
    cluster = ["--cluster", "1x4vcores,4096memory_mb"]
    cluster += ["--set", "manager.master_vcores=0", "--set", "manager.master_memory_mb=0"]
    told = [*cluster, "--pace", "prompt", "--out", str(run)]
    assert CliRunner().invoke(weft, ["simulate", str(jobs), *told]).exit_code == 0
    shown = CliRunner().invoke(
        weft, ["export", "swf", str(jobs), "--run", str(run), "--out", str(out)]
    )
    assert shown.exit_code == 0, shown.output
    rows = [line.split() for line in out.read_text().splitlines() if line[0] != ";"]
    assert [row[2:4] for row in rows] == [["0", "45"], ["44", "45"]]


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    """A folder without a table of tasks."""
    with pytest.raises(InputError, match=r"tasks\.csv: is no table"):
        spans_of(tmp_path)
