"""Tasks of real hosts are held to what they asked for: a hog is killed alone, CPU is shared out.

Tests of the kernel's part skip where the host gives no control groups.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from nm.process.cgroups import Cgroups, Use, find
from nm.process.folders import find_disk
from nm.process.limits import Limits
from testkit.live import Cluster, until, wait_for_nodes
from weft.client.api import Client
from weft.model.job import Edge, Job, Stage
from weft.model.resources import Vector

HOST = "--cluster=1x8vcores,16384memory_mb"
GROUPS, REASON = find(f"test-{os.getpid()}")

if GROUPS is not None:
    GROUPS.remove()
kernel = pytest.mark.skipif(GROUPS is None, reason=REASON)


def stage(name: str, script: str, **demand: float) -> Stage:
    amounts = {"vcores": 1.0, "memory_mb": 128.0} | demand
    return Stage(name, 1, 1.0, amounts, command=("python3", "-c", script))


def real_host(cluster: Cluster, *more: str) -> str:
    manager = cluster.manager()
    host = cluster.host(manager)
    cluster.nodes(
        manager,
        f"--am-host={host.address}",
        "--mode=process",
        HOST,
        f"--work-dir={cluster.folder / 'work'}",
        *more,
    )
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


# A fork bomb of 2,047 processes: each forks twice, and what cannot fork stays.
BOMB = """
import os, time
depth = 0
while depth < 10:
    try:
        if os.fork() and os.fork():
            break
    except OSError:
        break
    depth += 1
time.sleep(3 if depth == 0 else 600)
raise SystemExit(7)
"""


@pytest.mark.parametrize("groups", [pytest.param("auto", marks=kernel), "off"])
def test_a_fork_bomb_stays_below_its_limit_and_its_end_says_so(
    cluster: Cluster, groups: str
) -> None:
    if groups == "auto" and GROUPS is not None and "pids" not in GROUPS._parents:
        pytest.skip("no control groups for processes")
    most = 0
    with Client(real_host(cluster, f"--cgroups={groups}", "--task-processes-max=60")) as client:
        wait_for_nodes(client, 1)
        bad = client.submit(Job("bomb", (stage("fork", BOMB),), max_task_attempts=1))
        good = client.submit(Job("good", (stage("sit", "import time; time.sleep(2)"),)))

        def over() -> bool:
            nonlocal most
            most = max(most, sum(1 for _ in processes_of(BOMB)))
            return client.application(bad).final_status == "FAILED"

        until(over, "the bomb's job ended")
        assert client.wait([good])[good].final_status == "SUCCEEDED"
        assert "more than 60 processes" in client.application(bad).diagnostics
        assert {node.state for node in client.nodes()} == {"RUNNING"}
        until(lambda: not list(processes_of(BOMB)), "nothing of the bomb is left")
    # Without groups they are counted once a second, and may be more until then.
    assert groups == "off" or most <= 60


def processes_of(script: str) -> Iterator[int]:
    """Processes that run a script of Python's."""
    for process in psutil.process_iter(["cmdline"]):
        if script in (process.info["cmdline"] or []):
            yield process.pid


@kernel
def test_a_group_in_which_a_process_was_refused_serves_nobody_else() -> None:
    groups, _ = find(f"test-{os.getpid()}")
    assert groups is not None
    if "pids" not in groups._parents:
        pytest.skip("no control groups for processes")
    held = Limits(["memory_mb", "vcores"], groups, processes_max=2)
    try:
        name, _ = enter(held, 1)
        assert run_in(held, 1, "sleep 5 & sleep 5 & wait") != 0
        assert held.refused_a_process(1)
        assert not held.refused_a_process(1), "it was told"
        held.close(1)
        until(lambda: not groups.processes(name), "they are killed")
        held.sweep()
        assert enter(held, 2)[0] != name
        assert not held.refused_a_process(2)
        held.close(2)
    finally:
        held.end()


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


@pytest.fixture
def limits() -> Iterator[Limits]:
    own, _ = find(f"test-{os.getpid()}")
    made = Limits(["memory_mb", "vcores"], own)
    yield made
    made.end()


DEMAND = (64.0, 1.0)


def enter(limits: Limits, container: int, demand: Vector = DEMAND) -> tuple[str, list[Path]]:
    """The name of a container's group, and its folders."""
    name, doors = limits.enter(container, demand)
    return name, [Path(door).parent for door in doors.split(":")]


def run_in(limits: Limits, container: int, script: str, demand: Vector = DEMAND) -> int:
    """The exit code of a shell's script in a container's group."""
    _, doors = limits.enter(container, demand)
    words = [sys.executable, "-c", IN_GROUP, doors, script]
    return subprocess.run(words, check=False).returncode


IN_GROUP = """
import os, sys
from nm.process.places import enter
enter(sys.argv[1])
os.execv("/bin/sh", ["sh", "-c", sys.argv[2]])
"""


@kernel
def test_groups_go_with_their_node_manager(limits: Limits) -> None:
    folders = [folder for number in (7, 8) for folder in enter(limits, number)[1]]
    assert all(folder.is_dir() for folder in folders)
    limits.close(7)
    limits.close(8)
    limits.end()
    assert not [folder for folder in folders if folder.exists()]


@kernel
def test_a_group_that_is_left_empty_serves_the_next_container_of_its_limits(limits: Limits) -> None:
    first, _ = enter(limits, 1)
    assert run_in(limits, 1, "exit 7") == 7
    limits.close(1)
    other, _ = enter(limits, 2, (128.0, 1.0))
    assert other != first, "it has other limits"
    assert enter(limits, 3)[0] == first
    assert enter(limits, 4)[0] not in (first, other), "it is in use"
    assert enter(limits, 3)[0] == first, "a container that has one stays in it"


@kernel
def test_processes_that_a_container_left_are_gone_before_its_group_serves_the_next(
    limits: Limits,
) -> None:
    name, (folder, *_) = enter(limits, 1)
    run_in(limits, 1, "sleep 600 & sleep 600 &")
    assert len((folder / "cgroup.procs").read_text().split()) == 2
    limits.close(1)
    assert enter(limits, 2)[0] != name
    until(lambda: not (folder / "cgroup.procs").read_text(), "they are killed")
    limits.sweep()
    assert enter(limits, 3)[0] == name


@kernel
@pytest.mark.parametrize("what", ["memory", "cpu"])
def test_limits_that_a_task_lifted_hold_for_the_next_container(limits: Limits, what: str) -> None:
    """Of a task that may write them, as one that runs as root and is not kept apart."""
    files = {
        "memory": ("memory.max", "memory.limit_in_bytes"),
        "cpu": ("cpu.max", "cpu.cfs_quota_us"),
    }
    name, folders = enter(limits, 1)
    (file,) = [
        folder / one for folder in set(folders) for one in files[what] if (folder / one).exists()
    ]
    wanted = file.read_text()
    # its swap limit goes first, as both together may be no less than one
    extra = file.with_name("memory.memsw.limit_in_bytes")
    lift = f"echo -1 > {extra}; " if what == "memory" and extra.exists() else ""
    none = "max" if GROUPS is not None and GROUPS.v2 else "-1"
    run_in(limits, 1, f"{lift}echo {none} > {file}")
    assert file.read_text() != wanted
    limits.close(1)
    assert enter(limits, 2)[0] == name
    assert file.read_text() == wanted


@kernel
def test_a_kill_for_memory_is_told_of_one_task_of_a_reusable_container(limits: Limits) -> None:
    """Else whatever failed there later, for any reason, would have run out of memory as well."""
    hog = f"{sys.executable} -c 'x = bytearray(200 << 20)'"
    enter(limits, 1)
    told = []
    for script in (f"{hog} 2>/dev/null; exit 3", "exit 3", f"{hog} 2>/dev/null; exit 3"):
        assert run_in(limits, 1, script) == 3
        told.append(limits.killed_for_memory(1))
    assert told == [True, False, True]
    limits.close(1)


@pytest.mark.parametrize("what", ["memory", "a kill", "a group"])
def test_a_group_in_which_something_is_left_serves_nobody_and_goes(
    limits: Limits, what: str
) -> None:
    _, folders = enter(limits, 1)
    file = Path("/dev/shm") / f"left-{os.getpid()}"
    hog = f"{sys.executable} -c 'x = bytearray(200 << 20)'"
    inner = folders[0] / "inner"
    scripts = {
        "memory": f"dd if=/dev/zero of={file} bs=1M count=9 status=none",
        "a kill": f"{hog} 2>/dev/null; true",
        "a group": f"mkdir {inner}",
    }
    try:
        assert run_in(limits, 1, scripts[what]) == 0
        limits.close(1)
        _, (fresh, *_) = enter(limits, 2)
        assert fresh != folders[0]
        assert not limits.killed_for_memory(2)
        (use,) = limits.measure({2: []})
        assert use[1][0] < 1.0, "MB"
    finally:
        file.unlink(missing_ok=True)
        if inner.exists():
            inner.rmdir()
    limits.sweep()
    assert not folders[0].exists()


@kernel
def test_a_kill_in_a_container_is_not_the_next_one_s(cluster: Cluster) -> None:
    """The first task survives what was killed in it; the second fails, in the same group or not."""
    survive = "import subprocess\nsubprocess.run(['python3', '-c', 'bytearray(600 << 20)'])"
    fail = Stage(
        "fail",
        1,
        1.0,
        {"vcores": 1.0, "memory_mb": 128.0},
        (Edge("survive"),),
        command=("sh", "-c", "exit 3"),
    )
    with Client(real_host(cluster)) as client:
        wait_for_nodes(client, 1)
        app = client.submit(Job("two", (stage("survive", survive), fail), max_task_attempts=1))
        assert client.wait([app])[app].final_status == "FAILED"
        states = {c.stage: c.state for c in client.containers(app)}
    assert (states["survive"], states["fail"]) == ("SUCCEEDED", "FAILED")


def test_cpu_time_that_was_spent_is_given_back_for_the_next_container(tmp_path: Path) -> None:
    for v2, kinds, file in (
        (True, ("cpu", "memory"), "cpu.max"),
        (False, ("cpu", "cpuacct", "memory"), "cpu.cfs_quota_us"),
    ):
        groups = Cgroups(v2, {kind: tmp_path / f"v{v2}" / kind for kind in kinds})
        groups.open("c1", 1.5, 0.0)
        quota = tmp_path / f"v{v2}/cpu/c1" / file
        told = quota.read_text()
        quota.write_text("")  # the kernel fills it up whenever it is told
        assert not groups.renew("c1", 1.5, 0.0), "nobody can say what the last one left"
        memory = tmp_path / f"v{v2}/memory/c1"
        (memory / ("memory.current" if v2 else "memory.usage_in_bytes")).write_text("0\n")
        (memory / ("memory.events" if v2 else "memory.oom_control")).write_text("oom_kill 0\n")
        assert groups.renew("c1", 1.5, 0.0)
        assert quota.read_text() == told


@kernel
@pytest.mark.parametrize("name", ["..", ".", "container-group/../..", ""])
def test_no_group_but_a_container_s_is_taken_for_one(limits: Limits, name: str) -> None:
    """What is written down may be garbled, and all that is in a container's group is killed."""
    limits.find(1, name)
    assert 1 not in limits._group_of


LEAVES = """
import os, sys
from nm.process.cgroups import find
from nm.process.limits import Limits
limits = Limits(["memory_mb", "vcores"], find(sys.argv[1])[0])
for container in (1, 2):
    limits.enter(container, (64.0, 1.0))
limits.close(1)
print(*limits.enter(2, (64.0, 1.0)), flush=True)
os.kill(os.getpid(), 9)
"""


@kernel
def test_groups_of_a_node_manager_that_was_killed_go_unless_something_runs_there() -> None:
    node = f"test-left-{os.getpid()}"
    words = [sys.executable, "-c", LEAVES, node]
    said = subprocess.run(words, capture_output=True, text=True, check=False).stdout
    name, doors = said.split()
    running = subprocess.Popen([sys.executable, "-c", IN_GROUP, doors, "exec sleep 60"])
    folder = Path(doors.split(":")[0]).parent
    until((folder / "cgroup.procs").read_text, "it runs there")
    groups, _ = find(node)
    assert groups is not None
    limits = Limits(["memory_mb", "vcores"], groups)
    assert len(groups.names()) == 2
    limits.find(2, name)
    limits.sweep()
    assert groups.names() == [name]
    running.kill()
    running.wait()
    limits.close(2)
    limits.end()
    assert not folder.parent.exists()


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
ENTERED = f"import sys; from nm.process.places import enter; enter(sys.argv[1])\n{DIRECT}"


def disk_groups(folder: Path) -> Cgroups:
    """Groups that limit the disk under a folder; skips where there are none."""
    groups, reason = find(f"test-disk-{os.getpid()}", work=folder)
    if groups is None or not groups.disk:
        pytest.skip(reason or (groups.why_no_disk_limit if groups is not None else ""))
    return groups


def test_a_task_gets_no_more_of_the_disk_than_it_asked_for(tmp_path: Path) -> None:
    """6 MiB by direct writes, held to 2 MB/s; without a limit they take a fraction of that."""
    groups = disk_groups(tmp_path)
    limits = Limits(["vcores", "disk_mbps"], groups)
    took_s = {}
    try:
        for container, disk_mbps in enumerate((0.0, 2.0), 1):
            name, files = limits.enter(container, (1.0, disk_mbps))
            done = subprocess.run(
                [sys.executable, "-c", ENTERED, files],
                cwd=tmp_path,
                capture_output=True,
                text=True,
                check=False,
            )
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
        (True, ("cpu", "memory"), second),
        (False, ("cpu", "cpuacct", "memory"), first),
    ):
        groups = Cgroups(v2, {kind: tmp_path / f"v{v2}" / kind for kind in kinds})
        groups.cpu_by_share = shares
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
    name, _ = limits.enter(1, (5.0, 1.0))
    clock = iter((10.0, 14.0))
    monkeypatch.setattr("nm.process.limits.time.monotonic", lambda: next(clock))
    stat = tmp_path / "g" / name / "io.stat"
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
    assert groups.why_no_disk_limit.startswith("disk 8:0: ")
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
    assert (groups.disk, groups.why_no_disk_limit) == ("8:0", "")
    assert (tmp_path / "cgroup/weft-n1/cgroup.subtree_control").read_text() == "+cpu +memory +io"


def test_a_host_without_the_controller_or_the_disk_says_so(tmp_path: Path) -> None:
    proc = fake_host(tmp_path, "cpu memory")
    if os.major(tmp_path.stat().st_dev):
        groups, _ = find("n1", proc, tmp_path, fake_disk(tmp_path))
        assert groups is not None
        assert (groups.disk, groups.why_no_disk_limit) == ("", "no control groups for I/O")
    groups, _ = find("n1", proc, tmp_path, tmp_path / "nothing")
    assert groups is not None
    assert groups.disk == ""
    assert str(tmp_path) in groups.why_no_disk_limit


def test_the_second_version_is_written_as_the_kernel_reads_it(tmp_path: Path) -> None:
    groups = Cgroups(True, {"cpu": tmp_path, "memory": tmp_path})
    files = groups.open("c1", 1.5, 1 << 20)
    assert files == str(tmp_path / "c1" / "cgroup.procs")
    assert (tmp_path / "c1" / "cpu.max").read_text() == "150000 100000"
    assert (tmp_path / "c1" / "memory.max").read_text() == "1048576"
    (tmp_path / "c1" / "memory.events").write_text("low 0\noom 1\noom_kill 1\n")
    (tmp_path / "c1" / "cpu.stat").write_text("usage_usec 2500000\nuser_usec 1\n")
    (tmp_path / "c1" / "memory.current").write_text("4096\n")
    assert groups.memory_kills("c1") == 1
    assert groups.use("c1") == Use(2.5, 4096.0)


def test_one_of_two_processes_of_a_node_that_ends_leaves_the_other_its_limits(
    tmp_path: Path,
) -> None:
    kinds = ("cpu", "cpuacct", "memory")
    ending, begun = (Cgroups(False, {kind: tmp_path / kind for kind in kinds}) for _ in "12")
    ending.remove()  # before the other one made its first group
    assert not any((tmp_path / kind).exists() for kind in kinds)
    name, doors = Limits(["vcores", "memory_mb"], begun).enter(1, (1.0, 1.0))
    assert doors == begun.doors(name)
    assert (tmp_path / "memory" / name / "memory.limit_in_bytes").read_text() == "1048576"


def test_a_host_without_groups_says_why(tmp_path: Path) -> None:
    (tmp_path / "mounts").write_text("")
    found, reason = find("n1", tmp_path)
    assert found is None
    assert reason == "no control groups for CPU and memory"
