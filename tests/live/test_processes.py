"""How processes begin and end: clear refusals, clean stops, nothing left behind."""

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from testkit.forked import POSSIBLE, Forked, ended
from testkit.live import Cluster, chain, series, until, wait_for_nodes
from weft.client.api import Client
from weft.model.job import Edge, EdgeKind, Job, Stage

NODE = "--cluster=1x8vcores,16384memory_mb,800disk_mbps,1000network_mbps"
HOST = "--cluster=1x8vcores,16384memory_mb"


def refused(*command: str) -> tuple[int, str]:
    """Exit code and stderr of a process that must not start."""
    done = ended(*command)
    return done.returncode, done.stderr.strip()


@pytest.mark.skipif(not POSSIBLE, reason="it was asked for: WEFT_FORKED=0")
def test_roles_are_forked_whatever_the_other_tests_import(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start of their own costs a second of a core each, which was most of `make test`."""
    monkeypatch.setenv("SET_BY_A_PACKAGE", "as it was imported")
    # As Dask does where an earlier test of this process started a worker.
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("PYTHONHASHSEED", "6640")
    assert isinstance(cluster.manager().process, Forked)


@pytest.mark.parametrize("role", ["rm", "nm", "am"])
def test_a_port_in_use_is_one_line_and_exit_1(cluster: Cluster, role: str) -> None:
    taken = cluster.manager().address.rpartition(":")[2]
    more = ["--hosting"] if role == "am" else []
    code, said = refused(role, f"--port={taken}", "--metrics-port=-1", *more)
    assert code == 1
    assert said == f"error: cannot listen on 127.0.0.1:{taken}: is the port in use?"


@pytest.mark.parametrize(
    ("command", "place"),
    [
        (["rm", "--scheduler=best"], "unknown scheduler 'best'"),
        (["rm", "--matcher=best"], "unknown matcher 'best'"),
        (["rm", "--set=matcher.eta=1"], "matcher.eta"),
        (["rm", "--cluster=16"], "cluster"),
        (["nm", "--cluster=3x16vcores", "--nodes=4"], "--nodes"),
        (["nm", "--mode=process", "--nodes=2"], "--nodes"),
        (["am", "--hosting", "--planner=best"], "unknown planner 'best'"),
        (["am"], "--attempt ID or --hosting"),
        (["am", "--hosting", "--time-scale=-1"], "--time-scale"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(command: list[str], place: str) -> None:
    code, said = refused(command[0], "--port=0", "--metrics-port=-1", *command[1:])
    assert code == 2, said
    assert said.startswith("error: ")
    assert place in said
    assert "\n" not in said


TOLD_AT_ONCE = """
import asyncio, os, signal
from weft.runtime.process import Process
from weft.runtime.role_settings import RmSettings

async def serve():
    process = Process(RmSettings())
    process.ready()
    os.kill(os.getpid(), signal.SIGTERM)  # by somebody who waited for that line, and for no more
    await process.until_end()
    await process.close()
    print("in order", process.told)

asyncio.run(serve())
"""


def test_who_says_that_it_serves_ends_in_order_from_then_on() -> None:
    done = subprocess.run(
        [sys.executable, "-c", TOLD_AT_ONCE],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "in order True"), done


def test_a_cluster_stops_in_order(cluster: Cluster) -> None:
    manager = cluster.manager()
    host = cluster.host(manager)
    nodes = cluster.nodes(manager, f"--am-host={host.address}", "--nodes=3", NODE)
    with Client(manager.address) as client:
        wait_for_nodes(client, 3)
        client.submit(chain("long", 1, 10, 1000.0))
        until(lambda: client.metrics().containers_running >= 10, "tasks run")
        assert nodes.stop() == 0
        wait_for_nodes(client, 3, "SHUTDOWN")  # it said goodbye: nobody waits for the expiry
    assert host.stop() == 0
    assert manager.stop() == 0


def test_metrics_are_served_and_those_of_gone_jobs_go_away(cluster: Cluster) -> None:
    manager = cluster.manager()
    host = cluster.host(manager)
    nodes = cluster.nodes(manager, f"--am-host={host.address}", "--nodes=2", NODE)

    def metrics(part: object) -> str:
        return series(part.ready["metrics"])  # type: ignore[attr-defined]

    with Client(manager.address) as client:
        wait_for_nodes(client, 2)
        app = client.submit(chain("j", 2, 8, 3.0))
        until(lambda: 'weft_job_tasks{attempt="257"' in metrics(host), "the job has series")
        client.wait([app])
        until(lambda: 'attempt="257"' not in metrics(host), "the job's series are gone")
    assert 'weft_handle_seconds_bucket{event="NodeHeartbeated",le="0.005"}' in metrics(manager)
    assert 'weft_containers_granted_total{queue="root.default"} 16.0' in metrics(manager)
    assert 'weft_apps_ended_total{state="FINISHED"} 1.0' in metrics(manager)
    assert 'weft_tasks_ended_total{outcome="SUCCEEDED"} 17.0' in metrics(nodes)  # and the master


def test_a_killed_application_frees_everything(cluster: Cluster) -> None:
    manager = cluster.manager()
    host = cluster.host(manager)
    cluster.nodes(manager, f"--am-host={host.address}", "--nodes=2", NODE)
    with Client(manager.address) as client:
        wait_for_nodes(client, 2)
        app = client.submit(chain("doomed", 1, 50, 1000.0))
        until(lambda: client.application(app).running_containers > 10, "tasks run")
        client.kill(app, "enough")
        report = client.wait([app])[app]
        assert (report.state, report.final_status) == ("KILLED", "KILLED")
        until(lambda: client.metrics().containers_running == 0, "all containers are free")
        again = client.submit(chain("next", 1, 5, 0.0))
        assert client.wait([again])[again].final_status == "SUCCEEDED"


def test_twenty_shell_commands_leave_the_right_files(cluster: Cluster, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    write = f'echo "$WEFT_STAGE $WEFT_TASK" > {out}/a.$WEFT_TASK; echo out $WEFT_TASK; echo err >&2'
    double = f"cat {out}/a.$WEFT_TASK {out}/a.$WEFT_TASK > {out}/b.$WEFT_TASK"
    merge = f"cat {out}/b.* | sort > {out}/all.$WEFT_TASK"
    demand = {"vcores": 1.0, "memory_mb": 512.0}

    def stage(name: str, tasks: int, command: str, *parents: Edge) -> Stage:
        return Stage(name, tasks, 0.1, demand, parents, command=("sh", "-c", command))

    job = Job(
        "files",
        (
            stage("write", 9, write),
            stage("double", 9, double, Edge("write", EdgeKind.ONE_TO_ONE)),
            stage("merge", 2, merge, Edge("double")),
        ),
    )
    manager = cluster.manager()
    host = cluster.host(manager)
    for name in ("left", "right"):
        cluster.nodes(
            manager,
            f"--am-host={host.address}",
            "--mode=process",
            f"--node-name={name}",
            HOST,
            f"--work-dir={tmp_path / 'work'}",
        )
    with Client(manager.address) as client:
        wait_for_nodes(client, 2)
        app = client.submit(job)
        report = client.wait([app])[app]
        assert report.final_status == "SUCCEEDED", report.diagnostics
        containers = client.containers(app)
    wanted = sorted(f"write {task}" for task in range(9) for _ in range(2))
    for task in range(2):
        assert (out / f"all.{task}").read_text().splitlines() == wanted
    assert {c.node_id for c in containers} == {"left", "right"}
    written = sorted((tmp_path / "work").rglob("stdout"))
    texts = sorted(path.read_text() for path in written)
    assert [text for text in texts if text] == [f"out {task}\n" for task in range(9)]
    _logs_are_read_over_the_wire(containers)


def _logs_are_read_over_the_wire(containers: object) -> None:
    import asyncio

    from weft.model.errors import InputError
    from weft.wire.client import read_log

    async def main() -> None:
        report = next(c for c in containers if c.stage == "write")  # type: ignore[attr-defined]
        where = (report.node_address, report.node_id, report.container_id)
        data = b"".join([chunk async for chunk, _ in read_log(*where)])
        assert data == f"out {report.index}\n".encode()
        data = b"".join([chunk async for chunk, _ in read_log(*where, "stderr")])
        assert data == b"err\n"
        with pytest.raises(InputError):
            _ = [chunk async for chunk in read_log(*where[:2], 1)]

    asyncio.run(main())


def test_a_failing_command_is_tried_again_and_its_exit_code_told(cluster: Cluster) -> None:
    manager = cluster.manager()
    host = cluster.host(manager)
    cluster.nodes(
        manager,
        f"--am-host={host.address}",
        "--mode=process",
        HOST,
        f"--work-dir={cluster.folder / 'work'}",
    )
    flaky = 'test "$WEFT_ATTEMPT" = 2'
    stages = [Stage("s", 3, 0.1, {"vcores": 1.0}, command=("sh", "-c", flaky))]
    hopeless = [Stage("s", 1, 0.1, {"vcores": 1.0}, command=("sh", "-c", "exit 3"))]
    with Client(manager.address) as client:
        wait_for_nodes(client, 1)
        fine = client.submit(Job("flaky", tuple(stages), max_task_attempts=3))
        lost = client.submit(Job("hopeless", tuple(hopeless), max_task_attempts=2))
        reports = client.wait([fine, lost])
        assert reports[fine].final_status == "SUCCEEDED", reports[fine].diagnostics
        assert reports[lost].final_status == "FAILED"
        assert "exit code 3" in reports[lost].diagnostics


def test_nothing_survives_a_killed_parent(tmp_path: Path) -> None:
    """A command that starts a cluster and is killed leaves no process behind."""
    script = tmp_path / "parent.py"
    script.write_text(
        "import os, subprocess, sys\n"
        "started = subprocess.Popen([sys.executable, '-m', 'rm', '--port=0', '--metrics-port=-1',"
        " f'--die-with={os.getpid()}'], stdout=subprocess.PIPE)\n"
        "started.stdout.readline()\n"
        "print(started.pid, flush=True)\n"
        "sys.stdin.read()\n"
    )
    parent = subprocess.Popen(
        [sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    assert parent.stdin is not None
    child = psutil.Process(int(parent.stdout.readline()))
    parent.kill()
    parent.wait()
    until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE, "it ended")
    parent.stdout.close()
    parent.stdin.close()
