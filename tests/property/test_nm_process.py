"""Real processes are started in their own group and folder, and reaped with all they started."""

import asyncio
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from nm.process.disks import Disk
from nm.process.host import ProcessHost
from nm.process.leftovers import ROOT_VARIABLE, kill_orphans
from nm.process.places import OpenFiles, read
from nm.process.records import FOLDER, Records, before_start, named, of_run, started
from weft.model.ids import attempt_id, container_id
from weft.protocol.effects import ProcessEnded
from weft.protocol.messages import NODE_FAULT, Outcome, TaskLaunch
from weft.runtime.role_settings import ENV_WHITELIST

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")


def launch(number: int, script: str, **more) -> TaskLaunch:
    return TaskLaunch(
        container_id(attempt_id(1, 1), number),
        0,
        number,
        0,
        1.0,
        (1.0,),
        ("sh", "-c", script),
        (("WEFT_JOB", "job"),),
        **more,
    )


def drive(root: Path, act, ends_wanted: int = 1) -> list[ProcessEnded]:
    async def main() -> list[ProcessEnded]:
        ends: list[ProcessEnded] = []
        host = ProcessHost(root, ends.extend, grace_s=0.3)
        await act(host)
        until = time.monotonic() + 30
        while len(ends) < ends_wanted and time.monotonic() < until:
            await asyncio.sleep(0.01)
        await host.close(0.1)
        assert len(host) == 0
        return ends

    return asyncio.run(main())


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_a_command_gets_its_environment_its_folder_and_its_log_files(tmp_path: Path) -> None:
    item = launch(2, 'echo "$WEFT_JOB $WEFT_TASK $WEFT_NODE"; echo bad >&2; pwd > here')

    async def act(host: ProcessHost) -> None:
        host.start(item, "n1")

    (end,) = drive(tmp_path, act)
    assert (end.outcome, end.exit_code, end.task) == (Outcome.SUCCEEDED, 0, 2)

    async def read(host: ProcessHost) -> None:
        folder = host.folder(item.container_id)
        assert host.logs(item.container_id) == ["stderr", "stdout"]
        assert host.read_log(item.container_id, "stdout")[0] == b"job 2 n1\n"
        assert host.read_log(item.container_id, "stdout", 4, 1) == (b"2", 5)
        assert host.read_log(item.container_id, "stderr")[0] == b"bad\n"
        assert (folder / "here").read_text().strip() == str(folder)
        with pytest.raises(FileNotFoundError):
            host.read_log(item.container_id, "../../secret")

    drive(tmp_path, read, 0)


def test_what_a_host_cannot_start_for_its_own_reasons_is_its_own_fault(tmp_path: Path) -> None:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    said: list[str] = []

    async def main() -> dict[int, ProcessEnded]:
        ends: list[ProcessEnded] = []
        host = ProcessHost(tmp_path / "root", ends.extend, grace_s=0.3, on_fault=said.append)

        async def run(item: TaskLaunch) -> None:
            count = len(ends)
            host.start(item, "n1")
            while len(ends) == count:
                await asyncio.sleep(0.01)

        resource.setrlimit(resource.RLIMIT_NOFILE, (1, limit[1]))
        try:
            await run(launch(1, "true"))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limit)
        (tmp_path / "root").rename(tmp_path / "away")
        (tmp_path / "root").mkdir(mode=0o700)
        (tmp_path / "root" / ".spawner.log").touch()
        await run(launch(2, "true"))
        await run(replace(launch(3, ""), command=("no-such-program",)))
        (tmp_path / "root").rename(tmp_path / "gone")
        await run(replace(launch(4, "true"), container_id=container_id(attempt_id(2, 1), 4)))
        (tmp_path / "gone").rename(tmp_path / "root")
        await host.close(0.1)
        return {end.task: end for end in ends}

    ends = asyncio.run(main())
    assert ends[2].outcome is Outcome.SUCCEEDED
    assert (ends[3].outcome, ends[3].exit_code) == (Outcome.FAILED, 127)
    for number, why in (1, "Too many open files"), (4, "No such file or directory"):
        end = ends[number]
        assert (end.outcome, end.exit_code) == (Outcome.LOST, NODE_FAULT)
        assert why in end.message
    assert [why.partition(": ")[2] for why in said] == [
        "Too many open files",
        "No such file or directory",
    ]


def test_a_task_that_fails_on_a_full_disk_is_not_to_blame(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Disk, "full", True)

    async def act(host: ProcessHost) -> None:
        for item in launch(1, "exit 1"), launch(2, "exit 0"):
            host.start(item, "n1")

    ends = {end.task: end for end in drive(tmp_path, act, 2)}
    assert (ends[1].outcome, ends[1].exit_code) == (Outcome.LOST, NODE_FAULT)
    assert "disk is full (exit code 1)" in ends[1].message
    assert ends[2].outcome is Outcome.SUCCEEDED


@pytest.mark.parametrize("whitelist", [None, ["PATH", "SPECIAL*"], ["*"]])
def test_tasks_are_given_an_environment_that_was_chosen(
    whitelist: list[str] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("WEFT_")]:
        monkeypatch.delenv(name)
    given = {"AWS_SECRET": "1", "SPECIAL_ONE": "2", "GRPC_VERBOSITY": "NONE", "LC_ALL": "C"}
    for name, value in {**given, "WEFT_TOKEN_FILE": "x", "WEFT_NM_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    item = replace(launch(1, "env"), environment=(("WEFT_JOB", "job"), ("AWS_SECRET", "own")))
    if whitelist is None:
        item = launch(1, "env")
    more = {} if whitelist is None else {"whitelist": whitelist}

    async def main() -> tuple[set[str], set[str]]:
        ends: list[ProcessEnded] = []
        host = ProcessHost(tmp_path, ends.extend, grace_s=0.3, **more)
        host.start(item, "n1")
        number = container_id(attempt_id(2, 1), 1)
        host.run(number, ["sh", "-c", "env"], {}, own=True)
        while len(ends) < 2:
            await asyncio.sleep(0.01)
        said = []
        for one in (item.container_id, number):
            lines = host.read_log(one, "stdout")[0].decode().splitlines()
            said.append({line.partition("=")[0] for line in lines} - {"_", "PWD", "SHLVL"})
        await host.close(0.1)
        return said[0], said[1]

    task, master = asyncio.run(main())
    own = {name for name in task if name.startswith("WEFT_")}
    assert own == {
        "WEFT_ATTEMPT",
        "WEFT_CONTAINER",
        "WEFT_JOB",
        "WEFT_NODE",
        "WEFT_PYTHON",
        "WEFT_STAGE",
        "WEFT_TASK",
        "WEFT_WORK_DIR",
        "WEFT_WORK_ROOT",
    }
    assert set(given) <= master, "a part of Weft's own is told all"
    if whitelist is None:
        assert task - own <= set(ENV_WHITELIST) | {"LC_ALL", "LC_CTYPE"}
        assert "LC_ALL" in task
    elif whitelist == ["*"]:
        assert set(given) <= task
    else:
        assert task - own <= {"PATH", "SPECIAL_ONE", "AWS_SECRET"}


def test_each_task_of_a_run_is_told_its_own_number_and_writes_to_a_folder_of_its_own(
    tmp_path: Path,
) -> None:
    tasks = tuple(range(5, 45))
    run = replace(launch(2, 'echo "$WEFT_JOB $WEFT_TASK $WEFT_CONTAINER"'), task=5, tasks=tasks)
    later = replace(run, container_id=run.container_id + 100)
    folders: list[Path] = []

    async def act(host: ProcessHost) -> None:
        for item in (run, later):
            host.start(item, "n1")
            while len(host):
                await asyncio.sleep(0.01)
            for place, task in enumerate(tasks):
                folders.append(host.folder(item.container_id + place))
                said = host.read_log(item.container_id + place, "stdout")[0].decode()
                assert said == f"job {task} {folders[-1].name}\n"
            shutil.rmtree(folders[-1].parent)  # as it is kept open where tasks are started

    ends = drive(tmp_path, act, 80)
    assert [end.outcome for end in ends] == [Outcome.SUCCEEDED] * 80
    assert sorted(end.task for end in ends) == sorted(tasks * 2)
    assert len({end.container_id for end in ends}) == len(set(folders)) == 80


def test_files_that_stay_open_are_opened_anew_where_they_cannot_be_read(tmp_path: Path) -> None:
    files, seen = OpenFiles(2), list[int]()

    def first_fails(file: int) -> bytes:
        seen.append(file)
        if len(seen) == 2:
            raise OSError("as of a control group that is gone")
        return read(file)

    for name in "abc":
        (tmp_path / name).write_text(name * 5000)
    one = str(tmp_path / "a")
    assert files.use(one, os.O_RDONLY, first_fails) == b"a" * 5000
    assert files.use(one, os.O_RDONLY, first_fails) == b"a" * 5000
    assert len(seen) == 3, "once more with a file that was opened anew"
    before = len(os.listdir("/proc/self/fd"))
    for name in "bcabc":
        assert files.use(str(tmp_path / name), os.O_RDONLY, read) == name.encode() * 5000
    assert len(os.listdir("/proc/self/fd")) == before + 1, "two are open"
    files.close_in([str(tmp_path)])
    assert len(os.listdir("/proc/self/fd")) == before - 1
    with pytest.raises(FileNotFoundError):
        files.use(str(tmp_path / "d"), os.O_RDONLY, read)


@pytest.mark.slow
def test_a_command_is_told_nothing_of_the_nodes_keys_and_what_it_used_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEFT_TLS_KEY", "/etc/weft/key.pem")
    large_mb = 64 + resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    script = 'test -z "$WEFT_TLS_KEY" && dd if=/dev/zero of=/dev/null count=1 bs='

    async def act(host: ProcessHost) -> None:
        host.follow(1, ("vcores", "disk_mbps", "memory_mb"))
        host.start(launch(1, f"{script}{large_mb}M"))
        host.start(launch(2, f"{script}1M"))

    large, small = sorted(drive(tmp_path, act, 2), key=lambda end: end.task)
    assert large.outcome is small.outcome is Outcome.SUCCEEDED
    cores, disk, memory_mb = large.use
    assert cores > 0.0
    assert disk < 0, "not measured"
    assert large_mb < memory_mb < large_mb + 16
    assert small.use[2] < 0, "no more than its parent had when it was copied"


def test_a_task_ignores_no_signal_that_those_who_started_it_did(tmp_path: Path) -> None:
    """Its spawner ignores some, and whoever started the node manager (`nohup`) may others."""
    item = replace(launch(1, ""), command=("grep", "-E", "SigBlk|SigIgn", "/proc/self/status"))

    async def act(host: ProcessHost) -> None:
        host.start(item, "n1")

    ignored = (signal.SIGQUIT, signal.SIGUSR1, signal.SIGTERM, signal.SIGRTMIN + 3)
    before = [signal.signal(number, signal.SIG_IGN) for number in ignored]
    try:
        (end,) = drive(tmp_path, act)
    finally:
        for number, handler in zip(ignored, before, strict=True):
            signal.signal(number, handler)
    assert end.exit_code == 0
    (log,) = tmp_path.rglob("stdout")
    masks = [int(mask, 16) for mask in log.read_text().split()[1::2]]
    own = 1 << 31 | 1 << 32  # of the C library, which has it ignore them
    assert [mask & ~own for mask in masks] == [0, 0]


def test_an_exit_code_is_passed_on_and_a_missing_command_is_a_failure(tmp_path: Path) -> None:
    async def act(host: ProcessHost) -> None:
        host.start(launch(2, "exit 7"))
        host.start(replace(launch(3, ""), command=("/no/such/command",)))

    ends = {end.task: end for end in drive(tmp_path, act, 2)}
    assert (ends[2].outcome, ends[2].exit_code) == (Outcome.FAILED, 7)
    assert (ends[3].outcome, ends[3].exit_code) == (Outcome.FAILED, 127)
    assert "/no/such/command" in ends[3].message


def test_stopping_ends_the_whole_group_even_if_it_will_not_listen(tmp_path: Path) -> None:
    script = "trap '' TERM; sleep 60 & echo $$ $! > pids.new; mv pids.new pids; wait"
    item = launch(2, script)
    seen: list[int] = []

    async def act(host: ProcessHost) -> None:
        host.start(item)
        file = host.folder(item.container_id) / "pids"
        while not file.exists():
            await asyncio.sleep(0.01)
        seen.extend(int(text) for text in file.read_text().split())
        host.stop(item.container_id)

    (end,) = drive(tmp_path, act)
    assert end.outcome is Outcome.KILLED
    until = time.monotonic() + 30  # a busy machine takes its time to bury them
    while any(alive(pid) for pid in seen) and time.monotonic() < until:
        time.sleep(0.01)
    assert not any(alive(pid) for pid in seen)


def test_what_a_command_leaves_behind_is_killed_with_it(tmp_path: Path) -> None:
    item = launch(2, "sleep 60 & echo $! > pid")

    async def act(host: ProcessHost) -> None:
        host.start(item)

    (end,) = drive(tmp_path, act)
    assert end.outcome is Outcome.SUCCEEDED
    (file,) = tmp_path.rglob("pid")
    until = time.monotonic() + 5
    while alive(int(file.read_text())) and time.monotonic() < until:
        time.sleep(0.01)
    assert not alive(int(file.read_text()))


def test_orphans_of_an_earlier_manager_are_found_by_their_environment(tmp_path: Path) -> None:
    environment = {**os.environ, ROOT_VARIABLE: str(tmp_path)}
    pid = os.posix_spawn("/bin/sleep", ["/bin/sleep", "60"], environment, setpgroup=0)
    assert kill_orphans(tmp_path / "elsewhere") == []
    assert kill_orphans(tmp_path) == [pid]
    os.waitpid(pid, 0)


@pytest.mark.parametrize("reusable", [False, True])
def test_what_a_spawner_began_and_never_said_is_ended_with_it(
    tmp_path: Path, reusable: bool
) -> None:
    """It says what it began of several together: here the last one takes long to fail."""
    item = replace(
        launch(1, "echo $$ > pid; exec sleep 60", reusable=reusable), task=1, tasks=(1, 2, 3)
    )
    pids: list[int] = []

    async def act(host: ProcessHost) -> None:
        # a program that is nowhere, looked for in so many places that it takes a while
        slow = (("PATH", ":".join(["/proc/self/fd"] * 100_000)),)
        host.start(item, "n")
        host.start(replace(launch(9, ""), command=("nowhere",), environment=slow), "n")
        while not pids:
            await asyncio.sleep(0.001)
            for path in tmp_path.glob("*/*/**/pid"):
                pids.extend(map(int, path.read_text().split()))
        begun = {process.pid for group in host._running.values() for process in group.values()}
        assert begun == {0}
        for spawner in host.pids:
            os.kill(spawner, signal.SIGKILL)

    ends = drive(tmp_path, act, 4)
    assert [end.outcome for end in ends] == [Outcome.LOST] * 4
    # So the job of a task that ends what runs it is not tried again for ever.
    assert [end.exit_code for end in ends] == [NODE_FAULT] * 4
    until = time.monotonic() + 5
    while any(map(alive, pids)) and time.monotonic() < until:
        time.sleep(0.01)
    assert not any(map(alive, pids))


def test_an_end_that_is_written_down_while_it_is_looked_for_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its spawner writes down how it ended and collects it between two looks of the next node."""
    child = subprocess.Popen(["sleep", "60"])
    item = launch(1, "")
    began_s, after = of_run(item, "n", 0)
    key = (0, 1, 0)
    name = named(item.container_id, key, began_s)
    log = tmp_path / FOLDER / "1.log"
    log.parent.mkdir()
    start = started(child.pid)
    before = before_start(item.container_id, key, "", 0)
    log.write_text(f'\nS {before}"pid":{child.pid},"start":{start}{after}')
    look = Records.code

    def late(records: Records, wanted: str) -> int | None:
        code = look(records, wanted)
        if code is None and child.returncode is None:
            log.write_text(f"{log.read_text()}\nE {name} 0 .")
            child.wait()
        return code

    monkeypatch.setattr(Records, "code", late)
    ends: list[ProcessEnded] = []

    async def main() -> None:
        host = ProcessHost(tmp_path, ends.extend, records=Records(tmp_path))
        assert [one.pid for one in host.find()[0]] == [child.pid]
        child.kill()
        while len(host):
            await asyncio.sleep(0.01)
        await host.close(0.1)

    asyncio.run(main())
    assert [end.outcome for end in ends] == [Outcome.SUCCEEDED]


def test_tasks_of_one_reusable_container_have_their_own_files(tmp_path: Path) -> None:
    items = [replace(launch(2, f"echo {n}", reusable=True), task=n) for n in (5, 6)]

    async def act(host: ProcessHost) -> None:
        for item in items:
            host.start(item)

    assert {end.task for end in drive(tmp_path, act, 2)} == {5, 6}

    async def read(host: ProcessHost) -> None:
        assert host.read_log(items[0].container_id, "0-6-0/stdout")[0] == b"6\n"

    drive(tmp_path, read, 0)
