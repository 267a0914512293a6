"""A node manager that is killed and started again finds its processes: their tasks run once."""

import os
import stat
from pathlib import Path

import psutil

from nm.process.records import Record, Records
from testkit.live import Cluster, Part, chain, until, wait_for_nodes
from weft.client.api import Client
from weft.model.job import Job
from weft.model.jobfile import job_from_dict
from weft.protocol.effects import ProcessEnded, Started
from weft.runtime.tapefile import find_tapes
from weft.tape.rows import Handled


def node(cluster: Cluster, manager: Part, *flags: str) -> Part:
    """The one host of the cluster, in process mode, with masters as processes."""
    return cluster.nodes(
        manager,
        "--mode=process",
        "--launch=process",
        f"--work-dir={cluster.folder / 'work'}",
        "--cluster=1x4vcores,8192memory_mb,800disk_mbps,1000network_mbps",
        "--cgroups=off",
        *flags,
    )


def commands(out: Path) -> Job:
    """Tasks that say when they begin and end; each waits for a word, the last one fails first."""
    script = (
        f"echo begin $WEFT_TASK >> {out}/log; echo from $WEFT_TASK; "
        f"while [ ! -e {out}/go$WEFT_TASK ]; do sleep 0.05; done; echo end $WEFT_TASK >> {out}/log"
    )
    demand = {"vcores": 1, "memory_mb": 64}
    return job_from_dict(
        {
            "name": "kept",
            "stages": [
                {
                    "name": "a",
                    "tasks": 3,
                    "duration_s": 1,
                    "demand": demand,
                    "command": ["sh", "-c", script],
                }
            ],
        }
    )


def files(cluster: Cluster) -> list[Path]:
    """What a node manager writes of its processes, for the next one."""
    return list((cluster.folder / "work").glob("*/.processes/*"))


def records(cluster: Cluster) -> list[Record]:
    return [one for path in files(cluster) for one in Records(path.parents[1]).read()]


def test_tasks_go_on_when_their_node_manager_is_killed_and_run_once(
    cluster: Cluster, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    manager = cluster.manager()
    first = node(cluster, manager)
    with Client(manager.address) as client:
        wait_for_nodes(client, 1)
        app = client.submit(commands(out))
        log = out / "log"
        until(lambda: log.exists() and log.read_text().count("begin") == 3, "all tasks run")
        found = until(lambda: len(records(cluster)) == 4 and records(cluster), "are written down")
        written = files(cluster)
        assert {stat.S_IMODE(path.stat().st_mode) for path in written} == {0o600}
        assert {stat.S_IMODE(path.parent.stat().st_mode) for path in written} == {0o700}
        pids = [one.pid for one in found]
        first.kill()
        (out / "go0").touch()  # ends while nobody watches
        until(lambda: "end 0" in log.read_text(), "the first task ends")
        assert sum(psutil.pid_exists(pid) for pid in pids) >= 3, "the others go on"
        second = node(cluster, manager)
        until(lambda: "found what an earlier run left" in second.log.read_text(), "it says so")
        until(lambda: client.application(app).finished_tasks == 1, "the end is told")
        (out / "go1").touch()
        (out / "go2").touch()
        report = client.wait([app])[app]
        assert report.final_status == "SUCCEEDED", report.diagnostics
        assert report.attempt_id & 0xFF == 1, "the master went on as well"
        lines = sorted(log.read_text().split("\n"))
        assert lines == sorted(["", *(f"{w} {t}" for w in ("begin", "end") for t in range(3))])
        until(lambda: not files(cluster), "what was heard is forgotten")
        logs = list((cluster.folder / "work").rglob("stdout"))
        assert sum("from" in path.read_text() for path in logs) == 3
    assert second.stop() == 0


def test_what_was_killed_meanwhile_is_told_and_runs_again(cluster: Cluster, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    manager = cluster.manager()
    first = node(cluster, manager)
    with Client(manager.address) as client:
        wait_for_nodes(client, 1)
        app = client.submit(commands(out))
        log = out / "log"
        until(lambda: log.exists() and log.read_text().count("begin") == 3, "all tasks run")
        until(lambda: len(records(cluster)) == 4, "all are written down")
        found = records(cluster)
        first.kill()
        (victim,) = [one for one in found if not one.master and one.task == 1]
        os.killpg(victim.pid, 9)
        until(lambda: not psutil.pid_exists(victim.pid), "it is gone")
        node(cluster, manager)
        for task in range(3):
            (out / f"go{task}").touch()
        report = client.wait([app])[app]
        assert report.final_status == "SUCCEEDED", report.diagnostics
        ends = [e for e in cluster.events() if e["fact"] == "Closed" and e["stage"] >= 0]
        (failed,) = [e for e in ends if e["outcome"] != "SUCCEEDED"]
        assert (failed["container"], failed["outcome"]) == (victim.container_id, "FAILED")
        assert failed["message"] == "ended by SIGKILL", "the spawner waited for it meanwhile"
    assert log.read_text().count("begin") == 4


def test_a_node_that_is_back_says_what_tasks_ended_before_it_registers_and_of_masters_after(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Else it registers as running what ended; one without its master is taken to have had none."""
    out, tapes = tmp_path / "out", tmp_path / "tapes"
    out.mkdir()
    manager = cluster.manager()
    first = node(cluster, manager)
    with Client(manager.address) as client:
        wait_for_nodes(client, 1)
        app = client.submit(commands(out))
        log = out / "log"
        until(lambda: log.exists() and log.read_text().count("begin") == 3, "all tasks run")
        until(lambda: len(records(cluster)) == 4, "all are written down")
        found = records(cluster)
        first.kill()
        (out / "go0").touch()
        (master,) = [one.pid for one in found if one.master]
        os.kill(master, 9)
        (task,) = [one.pid for one in found if not one.master and one.task == 0]
        until(lambda: not (psutil.pid_exists(task) or psutil.pid_exists(master)), "both are gone")
        second = node(cluster, manager, f"--tape={tapes}")
        for one in (1, 2):
            (out / f"go{one}").touch()
        report = client.wait([app])[app]
        assert report.final_status == "SUCCEEDED", report.diagnostics
    assert second.stop() == 0
    (tape,) = [tape for tape in find_tapes(tapes) if tape.role == "nm"]
    events = [row.event for row in tape.rows() if isinstance(row, Handled)]
    began = next(place for place, event in enumerate(events) if isinstance(event, Started))
    before = [event.task for event in events[:began] if isinstance(event, ProcessEnded)]
    assert before == [0]
    after = [event for event in events[began:] if isinstance(event, ProcessEnded)]
    assert (after[0].container_id, after[0].task) == (
        next(one.container_id for one in found if one.master),
        -1,
    )


def test_a_second_node_manager_of_the_same_name_is_refused_and_the_first_goes_on(
    cluster: Cluster,
) -> None:
    manager = cluster.manager()
    host = cluster.host(manager)
    flags = ("--cluster=1x4vcores,8192memory_mb", f"--am-host={host.address}", "--nodes=1")
    cluster.nodes(manager, *flags)
    with Client(manager.address) as client:
        wait_for_nodes(client, 1)
        app = client.submit(chain("j", 1, 3, 8.0))
        until(lambda: client.application(app).running_containers >= 3, "they run")
        second = cluster.nodes(manager, *flags)
        until(lambda: "give one of them another name" in second.log.read_text(), "it is told")
        line = next(x for x in second.log.read_text().splitlines() if "another name" in x)
        assert line.count("ipv4:127.0.0.1:") == 2, "which two they are"
        assert client.wait([app])[app].final_status == "SUCCEEDED"
    starts = [e for e in cluster.events() if e["fact"] == "TaskStarted" and e["stage"] >= 0]
    assert len(starts) == 3, "nothing was taken from the first"
