"""Members in virtual time: jobs are spread as the live router spreads them."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from lab.cli import weft
from sim.cluster import Simulation
from sim.faults import OF_ROUTER, Fault, FaultKind, Faults
from sim.members import Members
from sim.recorder import Recorder
from sim.settings import SimSettings
from testkit.builders import job, stage
from weft.model.cluster import cluster_from_text
from weft.model.errors import InputError
from weft.model.job import Job
from weft.model.queues import QueueSpec
from weft.policies.presets import choose
from weft.policies.shares import SHARES_S, whole

CLUSTER = cluster_from_text("8x4vcores,8192memory_mb")
NEED = {"vcores": 1.0, "memory_mb": 512.0}


def workload(count: int = 24, every_s: float = 2.0) -> list[Job]:
    return [
        replace(
            job(f"j{at}", stage("a", 3 + at % 5, 4.0 + at % 3, NEED), stage("b", 2, 3.0, NEED)),
            arrival_s=every_s * at,
        )
        for at in range(count)
    ]


def ran(count: int, jobs: list[Job], scheduler: str = "capacity") -> Recorder:
    recorder = Recorder()
    settings = SimSettings(choose(scheduler), seed=3, checks=True)
    Members(CLUSTER, jobs, settings, recorder, count).run()
    return recorder


@pytest.mark.parametrize("scheduler", ["capacity", "graphene", "cobra"])
def test_all_jobs_end_and_numbers_name_the_members(scheduler: str) -> None:
    recorder = ran(4, workload(), scheduler)
    assert {row.end for row in recorder.jobs} == {"SUCCEEDED"}
    assert {row.app % 4 for row in recorder.jobs} == {0, 1, 2, 3}
    columns = recorder.columns()
    member_of_node = {name: (int(name[1:]) - 1) // 2 for name in columns.nodes}
    nodes = np.array([member_of_node[name] for name in columns.nodes])
    assert (nodes[columns.node] == (columns.app - 1) % 4).all()


def test_a_run_is_repeated_to_the_last_decision() -> None:
    assert ran(3, workload()).digest() == ran(3, workload()).digest()


def test_one_member_decides_as_a_cluster_without_router() -> None:
    alone = Recorder()
    settings = SimSettings(choose("capacity"), seed=3, checks=True)
    Simulation(CLUSTER, workload(), settings, alone).run()
    assert ran(1, workload()).digest() == alone.digest()


def test_work_is_even_where_jobs_are_alike() -> None:
    alike = [replace(job(f"j{at}", stage("a", 4, 5.0, NEED)), arrival_s=0.0) for at in range(20)]
    numbers = [row.app % 4 for row in ran(4, alike).jobs]
    assert np.bincount(numbers).tolist() == [5, 5, 5, 5]


def test_a_member_that_is_full_gets_no_more() -> None:
    large = job("large", stage("a", 400, 10.0, NEED))
    small = [replace(job(f"s{at}", stage("a", 1, 1.0, NEED)), arrival_s=20.0) for at in range(6)]
    rows = ran(2, [large, *small]).jobs
    assert {row.app % 2 for row in rows[1:]} == {1 - rows[0].app % 2}


def test_more_members_than_nodes_are_refused() -> None:
    with pytest.raises(InputError, match="1 to 8"):
        Members(CLUSTER, workload(), SimSettings(choose("capacity")), Recorder(), 9)


def test_the_command_writes_a_run(tmp_path: Path) -> None:
    file = tmp_path / "jobs.jsonl"
    table = {"name": "s", "tasks": 4, "demand": NEED, "duration_s": 3}
    lines = [json.dumps({"name": f"j{at}", "stages": [table]}) for at in range(4)]
    file.write_text("\n".join(lines))
    words = ["simulate", str(file), "--cluster", "4x4vcores,8192memory_mb", "--members", "2"]
    done = CliRunner().invoke(weft, [*words, "--out", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert (summary["states"], summary["members"]) == ({"SUCCEEDED": 4}, 2)
    assert "--members 2" in summary["command"]


TWO_QUEUES = replace(
    cluster_from_text("8x16vcores,32768memory_mb"),
    queues=QueueSpec("root", children=(QueueSpec("a", 0.5), QueueSpec("b", 0.5))),
)


def large(name: str, queue: str, tasks: int = 2400) -> Job:
    return replace(job(name, stage("a", tasks, 4.0, NEED)), queue=queue)


def test_a_queue_gets_its_share_of_the_whole_in_the_member_where_its_work_is() -> None:
    """b's jobs are in both members and a's in one, where it then gets what is in the other b's."""
    recorder = Recorder()
    jobs = [large("b1", "b"), large("b2", "b"), large("a1", "a")]
    settings = SimSettings(choose("capacity"), seed=3, checks=True)
    members = Members(TWO_QUEUES, jobs, settings, recorder, 2)
    members.run()
    columns = recorder.columns()
    apps = {row.app: row.job.queue for row in recorder.jobs}
    early = (columns.start_s < 100) & (columns.end_s > 60)
    of_a = np.array([apps[app] == "a" for app in columns.app.tolist()])
    used = np.minimum(columns.end_s, 100) - np.maximum(columns.start_s, 60)
    share = used[early & of_a].sum() / used[early].sum()
    assert share == pytest.approx(0.5, abs=0.02)
    changes = sum(one.queues_set for one in members.members)
    looks = 2 * members.now_s / SHARES_S
    assert 0 < changes < looks / 5, "guarantees move when they have to, and not every time"


def test_what_is_left_out_of_a_run_is_left_out_where_guarantees_move_too() -> None:
    def digest(*, skip_idle: bool) -> str:
        recorder = Recorder()
        jobs = [large("b1", "b", 90), large("b2", "b", 90), large("a1", "a", 90)]
        settings = SimSettings(choose("capacity"), seed=3, skip_idle=skip_idle)
        Members(TWO_QUEUES, jobs, settings, recorder, 2).run()
        return recorder.digest()

    assert digest(skip_idle=True) == digest(skip_idle=False)


def broken(*script: Fault, jobs: list[Job]) -> tuple[Members, Recorder]:
    recorder = Recorder()
    settings = SimSettings(choose("capacity"), seed=3, checks=True, faults=Faults(script))
    members = Members(TWO_QUEUES, jobs, settings, recorder, 2)
    members.run()
    assert {row.end for row in recorder.jobs} == {"SUCCEEDED"}
    return members, recorder


def test_jobs_of_a_member_that_is_gone_wait_and_others_and_new_ones_do_not() -> None:
    jobs = [replace(large(f"j{at}", "a", 60), arrival_s=float(at)) for at in range(6)]
    gone = Fault(3.5, FaultKind.RESTART_MANAGER, for_s=60.0, member=2)
    _, recorder = broken(gone, jobs=jobs)
    rows = recorder.jobs
    other = [row for row in rows if row.app % 2 == 1]
    assert {row.job.name for row in other} >= {"j4", "j5"}, "new ones go elsewhere"
    assert all(row.finish_s < 60 for row in other)
    assert all(row.finish_s > 60 for row in rows if row.app % 2 == 0 and row.job.name != "j1")


def test_jobs_wait_for_a_router_that_is_gone_and_what_runs_goes_on() -> None:
    jobs = [large("early", "a", 50), replace(large("late", "a", 50), arrival_s=12.0)]
    _, recorder = broken(Fault(10.0, FaultKind.LOSE_ROUTER, for_s=30.0), jobs=jobs)
    early, late = recorder.jobs
    assert early.finish_s < 15
    assert recorder.columns().start_s[recorder.columns().app == late.app].min() > 40


@pytest.mark.parametrize("kind", OF_ROUTER)
def test_guarantees_end_where_they_belong_whatever_befell_a_change(kind: FaultKind) -> None:
    jobs = [large("b1", "b"), large("b2", "b"), large("a1", "a")]
    members, _ = broken(Fault(0.0, kind, for_s=21.0), jobs=jobs)
    assert max(one.queues_set for one in members.members) > 0
    for one in members.members:
        assert whole(one.manager.books.queues.root) == TWO_QUEUES.queues
    told = [one.told()[1] for one in members.members]
    for place in range(2):
        assert sum(one.children[place].capacity for one in told) / 2 == pytest.approx(0.5)
