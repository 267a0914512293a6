"""Tasks of real hosts are held to what they asked for: a hog is killed alone, CPU is shared out.

Tests of the kernel's part skip where the host gives no control groups.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nm.process.cgroups import Cgroups, Use, find, find_disk
from nm.process.limits import Limits
from testkit.live import Cluster, until, wait_for_nodes
from weft.client.api import Client
from weft.job import Job, Stage

HOST = "--cluster=1x8vcores,16384memory_mb"
GROUPS, REASON = find(f"test-{os.getpid()}")

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
    groups = [Path(name).parent for name in limits.enter(7, "c7", (64.0, 0.5)).split(":")]
    assert all(group.is_dir() for group in groups)
    limits.close(7)
    limits.end()
    assert not [group for group in groups if group.exists()]


DIRECT = """
import os, mmap, sys, time
path, size = "blob", 6 << 20
block = mmap.mmap(-1, 1 << 20)  # aligned, as direct I/O wants it
out = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_DIRECT)
began_s = time.monotonic()
for _ in range(6):
    os.write(out, block)
os.close(out)
print(time.monotonic() - began_s)
"""
ENTERED = f"import sys; from nm.process.spawner import enter; enter(sys.argv[1])\n{DIRECT}"


def disk_groups(folder: Path) -> Cgroups:
    """Groups that limit the disk under a folder; skips where there are none."""
    groups, reason = find(f"test-disk-{os.getpid()}", work=folder)
    if groups is None or not groups.disk:
        pytest.skip(reason or (groups.no_disk if groups is not None else ""))
    return groups


def test_a_task_gets_no_more_of_the_disk_than_it_asked_for(tmp_path: Path) -> None:
    """6 MiB by direct writes, held to 2 MB/s; without a limit they take a fraction of that."""
    groups = disk_groups(tmp_path)
    limits = Limits(["vcores", "disk_mbps"], groups)
    took_s = {}
    try:
        for container, disk_mbps in enumerate((0.0, 2.0), 1):
            name = f"c{container}"
            files = limits.enter(container, name, (1.0, disk_mbps))
            done = subprocess.run(
                [sys.executable, "-c", ENTERED, files], cwd=tmp_path, capture_output=True,
                text=True, check=False,
            )  # fmt: skip
            if "Invalid argument" in done.stderr:
                pytest.skip("the file system has no direct I/O")
            assert done.returncode == 0, done.stderr
            took_s[disk_mbps] = float(done.stdout)
            assert groups.use(name).io_bytes >= 6 << 20
            limits.close(container)
    finally:
        limits.end()
    assert took_s[2.0] > 6 * (1 << 20) / 2e6 * 0.7, "slower than the limit, but for a first burst"
    assert took_s[2.0] > 2 * took_s[0.0]


@pytest.mark.parametrize(
    ("shares", "second", "first"),
    [
        (False, {"cpu.max": "150000 100000"}, {"cpu.cfs_quota_us": "150000"}),
        (True, {"cpu.weight": "150"}, {"cpu.shares": "1536"}),
    ],
)
def test_cores_are_a_quota_or_a_share(
    tmp_path: Path, shares: bool, second: dict[str, str], first: dict[str, str]
) -> None:
    for v2, kinds, wanted in (
        (True, ("cpu", "memory"), second), (False, ("cpu", "cpuacct", "memory"), first),
    ):  # fmt: skip
        groups = Cgroups(v2, {kind: tmp_path / f"v{v2}" / kind for kind in kinds})
        groups.shares = shares
        groups.open("c1", 1.5, 0.0)
        folder = tmp_path / f"v{v2}/cpu/c1"
        found = {file.name: file.read_text() for file in folder.iterdir()}
        found.pop("cpu.cfs_period_us", None)
        assert found == wanted


def test_disk_limits_are_written_as_each_kernel_reads_them(tmp_path: Path) -> None:
    second = Cgroups(True, dict.fromkeys(("cpu", "memory", "io"), tmp_path / "v2"), "8:0")
    second.open("c1", 0.0, 0.0, 5e6)
    assert (tmp_path / "v2/c1/io.max").read_text() == "8:0 rbps=5000000 wbps=5000000"
    (tmp_path / "v2/c1/io.stat").write_text(
        "7:0 rbytes=9 wbytes=9\n8:0 rbytes=10 wbytes=5 rios=1\n"
    )
    assert second.use("c1").io_bytes == 15.0

    kinds = ("cpu", "cpuacct", "memory", "io")
    first = Cgroups(False, {kind: tmp_path / "v1" / kind for kind in kinds}, "8:0")
    first.open("c1", 0.0, 0.0, 5e6)
    group = tmp_path / "v1/io/c1"
    for way in ("read", "write"):
        assert (group / f"blkio.throttle.{way}_bps_device").read_text() == "8:0 5000000"
    (group / "blkio.throttle.io_service_bytes").write_text(
        "8:0 Read 10\n8:0 Write 5\n8:0 Sync 15\n8:0 Total 15\n7:0 Read 3\nTotal 18\n"
    )
    assert first.use("c1").io_bytes == 15.0


def test_use_of_the_disk_is_a_rate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    groups = Cgroups(True, dict.fromkeys(("cpu", "memory", "io"), tmp_path / "g"), "8:0")
    limits = Limits(["disk_mbps", "vcores"], groups)
    limits.enter(1, "c1", (5.0, 1.0))
    clock = iter((10.0, 14.0))
    monkeypatch.setattr("nm.process.limits.time.monotonic", lambda: next(clock))
    stat = tmp_path / "g/c1/io.stat"
    stat.write_text("8:0 rbytes=1000000 wbytes=0\n")
    assert limits.measure({1: []}) == ((1, (0.0, 0.0)),)
    stat.write_text("8:0 rbytes=9000000 wbytes=4000000\n")
    assert limits.measure({1: []}) == ((1, (3.0, 0.0)),)


def test_a_disk_that_the_kernel_does_not_limit_is_found_out_at_the_start(tmp_path: Path) -> None:
    """Without a controller, and where the limit cannot be written: tasks run, CPU is limited."""
    file = tmp_path / "io"
    (file / "weft-try" / "blkio.throttle.read_bps_device").mkdir(parents=True)  # cannot be written
    kinds = ("cpu", "cpuacct", "memory")
    parents = {kind: tmp_path / kind for kind in kinds} | {"io": file}
    groups = Cgroups(False, parents, "8:0")
    assert groups.disk == ""
    assert groups.no_disk.startswith("disk 8:0: ")
    groups.open("c1", 1.0, 0.0, 5e6)
    assert (tmp_path / "cpu/c1/cpu.cfs_quota_us").read_text() == "100000"
    assert not list((file / "c1").iterdir())


def fake_host(tmp_path: Path, controllers: str) -> Path:
    """A proc folder of a host with cgroup v2 and these controllers."""
    tree = tmp_path / "cgroup"
    tree.mkdir()
    (tree / "cgroup.controllers").write_text(controllers)
    (tree / "cgroup.subtree_control").write_text("")
    proc = tmp_path / "proc"
    (proc / "self").mkdir(parents=True)
    (proc / "self" / "cgroup").write_text("0::/\n")
    (proc / "mounts").write_text(f"cgroup2 {tree} cgroup2 rw 0 0\n")
    return proc


def fake_disk(tmp_path: Path) -> Path:
    """A sys folder in which the work folder's device is the second partition of disk 8:0."""
    number = tmp_path.stat().st_dev
    disk = tmp_path / "sys" / "devices" / "sda"
    (disk / "sda2").mkdir(parents=True)
    (disk / "dev").write_text("8:0\n")
    (disk / "sda2" / "dev").write_text("8:2\n")
    (disk / "sda2" / "partition").write_text("2\n")
    block = tmp_path / "sys" / "dev" / "block"
    block.mkdir(parents=True)
    (block / f"{os.major(number)}:{os.minor(number)}").symlink_to(disk / "sda2")
    return tmp_path / "sys"


def test_the_whole_disk_under_the_work_folder_is_limited(tmp_path: Path) -> None:
    if os.major(tmp_path.stat().st_dev) == 0:
        pytest.skip("the test's own folder is on no disk")
    proc, sys_ = fake_host(tmp_path, "cpu io memory"), fake_disk(tmp_path)
    assert find_disk(tmp_path / "not" / "yet" / "there", proc, sys_) == ("8:0", "")
    groups, _ = find("n1", proc, tmp_path / "work", sys_)
    assert groups is not None
    assert (groups.disk, groups.no_disk) == ("8:0", "")
    assert (tmp_path / "cgroup/weft-n1/cgroup.subtree_control").read_text() == "+cpu +memory +io"


def test_a_host_without_the_controller_or_the_disk_says_so(tmp_path: Path) -> None:
    proc = fake_host(tmp_path, "cpu memory")
    if os.major(tmp_path.stat().st_dev):
        groups, _ = find("n1", proc, tmp_path, fake_disk(tmp_path))
        assert groups is not None
        assert (groups.disk, groups.no_disk) == ("", "no control groups for I/O")
    groups, _ = find("n1", proc, tmp_path, tmp_path / "nothing")
    assert groups is not None
    assert groups.disk == ""
    assert str(tmp_path) in groups.no_disk


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
