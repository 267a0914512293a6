"""Tasks of real hosts are held to what they asked for: a hog is killed alone, CPU is shared out.

Tests of the kernel's part skip where the host gives no control groups.
"""

import os
from pathlib import Path

import pytest

from nm.cgroups import Cgroups, Use, find
from nm.limits import Limits
from weft.client.api import Client
from weft.job import Job, Stage
from weft.live.testing import Cluster, until, wait_for_nodes

HOST = "--cluster=1x8vcores,16384memory_mb"
GROUPS, REASON = find(f"test-{os.getpid()}")

pytestmark = pytest.mark.xdist_group("live")
kernel = pytest.mark.skipif(GROUPS is None, reason=REASON)


def stage(name: str, script: str, **demand: float) -> Stage:
    amounts = {"vcores": 1.0, "memory_mb": 128.0} | demand
    return Stage(name, 1, 1.0, amounts, command=("python3", "-c", script))


def real_host(cluster: Cluster, *more: str) -> str:
    manager = cluster.manager()
    host = cluster.host(manager)
    cluster.nodes(
        manager, f"--am-host={host.address}", "--mode=process", HOST,
        f"--work-dir={cluster.folder / 'work'}", *more,
    )  # fmt: skip
    return manager.address


@kernel
def test_a_memory_hog_is_killed_alone_and_told_apart_from_a_failure(cluster: Cluster) -> None:
    hog = "x = bytearray(600 << 20)\nimport time\ntime.sleep(60)"
    with Client(real_host(cluster)) as client:
        wait_for_nodes(client, 1)
        bad = client.submit(Job("hog", (stage("eat", hog),), max_task_attempts=1))
        good = client.submit(Job("good", (stage("sit", "import time; time.sleep(3)"),)))
        ended = client.wait([bad, good])
        assert ended[good].final_status == "SUCCEEDED"
        assert ended[bad].final_status == "FAILED"
        assert "out of memory" in ended[bad].diagnostics.lower()
        outcomes = {c.state for c in client.containers(bad) if c.stage == "eat"}
    assert outcomes == {"OUT_OF_MEMORY"}


@kernel
def test_a_task_uses_no_more_cpu_than_it_asked_for_and_is_measured(cluster: Cluster) -> None:
    burn = "import time\nwhile True: pass"
    with Client(real_host(cluster)) as client:
        wait_for_nodes(client, 1)
        app = client.submit(Job("burn", (stage("burn", burn, vcores=0.5),)))
        use = until(
            lambda: next((n.use["vcores"] for n in client.nodes() if n.use.get("vcores")), 0.0),
            "its use is measured",
        )
        assert 0.0 < use < 0.75
        client.kill(app, "enough")


def test_without_groups_tasks_run_all_the_same_and_are_measured(cluster: Cluster) -> None:
    sit = "import time\nx = bytearray(64 << 20)\ntime.sleep(30)"
    with Client(real_host(cluster, "--cgroups=off")) as client:
        wait_for_nodes(client, 1)
        app = client.submit(Job("sit", (stage("sit", sit),)))
        until(
            lambda: [n for n in client.nodes() if n.use.get("memory_mb", 0.0) > 64.0],
            "its memory is measured",
        )
        client.kill(app, "enough")
    log = next(cluster.folder.glob("*nm.log")).read_text()
    assert log.count("tasks run without limits") == 1


@kernel
def test_a_group_goes_with_its_container(tmp_path: Path) -> None:
    assert GROUPS is not None
    limits = Limits(["memory_mb", "vcores"], GROUPS)
    command = limits.enter(7, "c7", (64.0, 0.5), ("true",), os.environ, tmp_path)
    assert command[-1] == "true"
    groups = [Path(name).parent for name in command[3].split(":")]
    assert all(group.is_dir() for group in groups)
    limits.close(7)
    limits.end()
    assert not [group for group in groups if group.exists()]


def test_a_command_that_cannot_start_is_left_to_its_own_error(tmp_path: Path) -> None:
    limits = Limits(["vcores"], Cgroups(True, {"cpu": tmp_path / "g", "memory": tmp_path / "g"}))
    for command in (("no-such-program-here",), ("./none",)):
        assert limits.enter(1, "c1", (1.0,), command, os.environ, tmp_path) == command


def test_the_second_version_is_written_as_the_kernel_reads_it(tmp_path: Path) -> None:
    groups = Cgroups(True, {"cpu": tmp_path, "memory": tmp_path})
    files = groups.open("c1", 1.5, 1 << 20)
    assert files == str(tmp_path / "c1" / "cgroup.procs")
    assert (tmp_path / "c1" / "cpu.max").read_text() == "150000 100000"
    assert (tmp_path / "c1" / "memory.max").read_text() == "1048576"
    (tmp_path / "c1" / "memory.events").write_text("low 0\noom 1\noom_kill 1\n")
    (tmp_path / "c1" / "cpu.stat").write_text("usage_usec 2500000\nuser_usec 1\n")
    (tmp_path / "c1" / "memory.current").write_text("4096\n")
    assert groups.killed_for_memory("c1")
    assert groups.use("c1") == Use(2.5, 4096.0)


def test_a_host_without_groups_says_why(tmp_path: Path) -> None:
    (tmp_path / "mounts").write_text("")
    found, reason = find("n1", tmp_path)
    assert found is None
    assert reason == "no control groups for CPU and memory"
