"""Hostile tasks on real hosts: what they may not see, touch, signal or leave behind."""

import asyncio
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from nm.process.host import ProcessHost
from nm.process.isolation import isolation
from nm.process.leftovers import Strays
from testkit.live import until
from weft.client.api import Client
from weft.client.local import LocalCluster, LocalSettings
from weft.client.show import show_nodes
from weft.model.errors import InputError
from weft.model.ids import attempt_id, container_id
from weft.model.job import Job, Stage
from weft.protocol.effects import ProcessEnded
from weft.protocol.messages import Outcome, TaskLaunch

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root runs tasks as somebody else")
KINDS = [("nobody", "off"), ("nobody", "on"), ("", "on")]
HIDES = "setsid sh -c 'env -i sleep {0} & env -i sleep {0} &' & env -i setsid sleep {0} & sleep 0.2"


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user of the host may walk through."""
    path = Path(tempfile.mkdtemp(prefix="weft-isolation-", dir="/dev/shm"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


def task(number: int, script: str, **more) -> TaskLaunch:
    return TaskLaunch(
        container_id(attempt_id(1, 1), number),
        0,
        number,
        0,
        1.0,
        (1.0,),
        ("sh", "-c", script),
        **more,
    )


def drive(root: Path, user: str, sandbox: str, act, ends_wanted: int, hidden=()):
    """Run a host for `act`; its ends by container, and what the logs say."""

    async def main():
        ends: dict[int, ProcessEnded] = {}
        apart = isolation(root, user=user, sandbox=sandbox, hidden=hidden)
        host = ProcessHost(
            root,
            lambda some: ends.update({end.task: end for end in some}),
            grace_s=2.0,
            isolation=apart,
        )
        await act(host)
        give_up = time.monotonic() + 60
        while len(ends) < ends_wanted and time.monotonic() < give_up:
            await asyncio.sleep(0.01)
        said = {}
        for n in ends:
            container = container_id(attempt_id(1, 1), n)
            said[n] = {
                name: host.read_log(container, name)[0].decode() for name in host.logs(container)
            }
        await host.close(0.1)
        return ends, said

    return asyncio.run(main())


@root_only
@pytest.mark.parametrize(("user", "sandbox"), KINDS)
def test_a_task_reaches_no_key_no_journal_no_other_task_and_no_node(open_folder, user, sandbox):
    key = open_folder / "node.key"
    key.write_text("secret-of-the-node")
    key.chmod(0o600)
    journal = open_folder / "state"
    journal.mkdir(mode=0o700)
    (journal / "journal").write_text("secret-of-the-manager")
    root = open_folder / "work"
    script = (
        f"cat {key} {journal}/journal; cat {root}/*/*/mine; ls -A {root}/*; "
        f"kill -9 {os.getpid()} && echo KILLED; echo uid $(id -u); "
        "grep NoNewPrivs /proc/self/status; "
        "echo private > /tmp/weft-isolation-seen 2>/dev/null; echo end"
    )

    async def act(host: ProcessHost) -> None:
        host.start(task(1, "echo secret-of-a-task > mine; sleep 20"), "n")
        folder = host.folder(container_id(attempt_id(1, 1), 1))
        while not (folder / "mine").exists():
            await asyncio.sleep(0.01)
        host.start(task(2, script), "n")
        while len(host) > 1:
            await asyncio.sleep(0.01)
        assert folder.stat().st_mode & 0o077 == 0

    ends, said = drive(root, user, sandbox, act, 1, hidden=(key, journal))
    assert ends[2].exit_code == 0, said
    text = "".join(said[2].values())
    assert "secret-of-the" not in text
    if sandbox == "on":  # one user for all tasks keeps them from the node, not from each other
        assert "secret" not in text
    assert "KILLED" not in text
    assert "end" in said[2]["stdout"]
    uid = pwd.getpwnam(user).pw_uid if user else os.geteuid()
    assert f"uid {uid}\n" in said[2]["stdout"]
    assert "NoNewPrivs:\t1" in said[2]["stdout"]
    if sandbox == "on":
        assert not Path("/tmp/weft-isolation-seen").exists()
    Path("/tmp/weft-isolation-seen").unlink(missing_ok=True)


@root_only
@pytest.mark.parametrize("sandbox", ["off", "on"])
def test_no_variable_of_a_job_makes_what_keeps_it_apart_run_something(open_folder, sandbox):
    """A planted library, a planted `env`, and a program that only the task's folder leads to."""
    planted = open_folder / "work" / "application_0_0001" / "container_0_0001_01_000001"
    planted.mkdir(parents=True)
    (planted / "env").write_text('#!/bin/sh\n/usr/bin/id -u\nexec /usr/bin/env "$@"\n')
    (planted / "env").chmod(0o755)
    (open_folder / "evil").write_text("#!/bin/sh\nid -u\n")
    (open_folder / "evil").chmod(0o755)
    own = {"LD_PRELOAD": "/nowhere.so", "PATH": f"{planted}:/usr/bin:/bin", "LATER": "a=b"}
    told = replace(
        task(1, ""),
        command=("/bin/sh", "-c", 'echo "$LD_PRELOAD $LATER"; /usr/bin/id -u'),
        environment=tuple(own.items()),
    )
    found = replace(task(2, ""), command=("evil",), environment=(("PATH", "../../.."),))
    missing = replace(task(3, ""), command=("./none",))
    odd = replace(task(4, ""), command=("./a\0b",))

    async def act(host: ProcessHost) -> None:
        for item in (told, found, missing, odd):
            host.start(item, "n")

        assert host.folder(container_id(attempt_id(1, 1), 1)) == planted

    ends, said = drive(open_folder / "work", "nobody", sandbox, act, 4)
    uid = pwd.getpwnam("nobody").pw_uid
    assert said[1]["stdout"] == f"/nowhere.so a=b\n{uid}\n"
    # whoever is to load it complains: only the task's two programs
    assert said[1]["stderr"].count("LD_PRELOAD") == 2
    assert ends[2].exit_code == 127 or said[2]["stdout"] == f"{uid}\n"
    assert [ends[n].exit_code for n in (3, 4)] == [127, 127]
    assert "cannot be started" in ends[3].message


def running(mark: str) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if words[:2] == [b"sleep", mark.encode()]:
            found.append(path.parent.name)
    return found


@root_only
@pytest.mark.parametrize("user", ["nobody", ""])
def test_in_a_sandbox_nothing_outlives_its_task(open_folder, user):
    mark = f"31{os.getpid()}.25"

    async def act(host: ProcessHost) -> None:
        host.start(task(1, HIDES.format(mark)), "n")

    ends, _ = drive(open_folder / "work", user, "on", act, 1)
    assert ends[1].outcome is Outcome.SUCCEEDED
    until(lambda: not running(mark), "nothing is left", 20)


def test_without_a_sandbox_strays_are_found_however_they_hide(tmp_path):
    """The node manager is their subreaper, so they become its children."""
    mark = f"32{os.getpid()}.25"
    code = f"""
import asyncio, sys, time
from pathlib import Path
from nm.process.host import ProcessHost
from nm.process.leftovers import Strays, adopt
from weft.protocol.messages import TaskLaunch
async def main():
    ends = []
    host = ProcessHost(Path({str(tmp_path)!r}), ends.extend)
    assert adopt()
    strays = Strays(lambda: host.pids)
    host.start(TaskLaunch(5, 0, 0, 0, 1.0, (), ("sh", "-c", {HIDES.format(mark)!r})), "n")
    host.start(TaskLaunch(6, 0, 1, 0, 1.0, (), ("sleep", "600")), "n")
    while not ends:
        await asyncio.sleep(0.01)
    killed = set()
    while len(killed) < 3:
        await asyncio.sleep(0.05)
        killed |= set(strays.sweep(host.holds))
    assert len(host) == 1, "the other container goes on"
    await host.close(0.1)
    print("killed", len(killed))
asyncio.run(main())
"""
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.stdout == "killed 3\n", ran.stderr
    assert not running(mark)


def test_a_child_that_was_just_made_is_no_stray():
    # Else it would kill what forks the roles of all later tests, too.
    others = {child.pid for child in psutil.Process().children()}
    held = subprocess.Popen(["sleep", "60"])
    try:
        strays = Strays(lambda: others)
        assert strays.sweep(lambda name: False) == []
        assert Strays(lambda: {*others, held.pid}).sweep(lambda name: False) == []
        assert strays.sweep(lambda name: False) == [held.pid]
    finally:
        held.kill()
        held.wait()


@root_only
@pytest.mark.parametrize(("user", "sandbox"), [*KINDS, ("", "off")])
def test_a_stop_reaches_the_task_itself_and_its_end_is_told(tmp_path, open_folder, user, sandbox):
    async def act(host: ProcessHost) -> None:
        host.start(task(1, "trap 'echo bye; exit 7' TERM; echo up; while :; do sleep 0.05; done"))
        host.start(task(2, "kill -11 $$"), "n")
        container = container_id(attempt_id(1, 1), 1)
        give_up = time.monotonic() + 30
        while time.monotonic() < give_up:
            await asyncio.sleep(0.02)
            if host.logs(container) and host.log_size(container, "stdout"):
                break
        host.stop(container)

    ends, said = drive(open_folder / "work", user, sandbox, act, 2)
    assert (ends[1].outcome, ends[1].exit_code) == (Outcome.KILLED, 7)
    assert said[1]["stdout"] == "up\nbye\n"
    assert ends[2].exit_code == -signal.SIGSEGV
    assert "SIGSEGV" in ends[2].message


def test_logs_are_never_read_or_written_through_a_link(tmp_path):
    """A task puts links where the node writes and reads as somebody mightier."""
    secret = tmp_path / "secret"
    secret.write_text("secret\n")
    script = (
        f"rm stdout; ln -s {secret} stdout; mkdir -p deep; ln -s {secret} deep/stderr; "
        "mkdir ../0-7-0; mkfifo ../0-7-0/stdout; mkdir ../2; "
        f"mkdir ../0-9-0; ln -s {secret} ../0-9-0/stderr"
    )

    async def act(host: ProcessHost) -> None:
        host.start(task(8, script, reusable=True), "n")
        while len(host):
            await asyncio.sleep(0.01)
        container = container_id(attempt_id(1, 1), 8)
        names = host.logs(container)
        assert names == ["0-8-0/stderr"]
        # a pipe, which would be read for ever, and what lies where no log is written
        for name in ("0-7-0/stdout", "0-8-0/stdout", "0-8-0/deep/stderr"):
            with pytest.raises(FileNotFoundError):
                host.read_log(container, name)
        again = replace(task(9, "echo more", reusable=True), container_id=container)
        host.start(again, "n")

    async def main() -> list[ProcessEnded]:
        ends: list[ProcessEnded] = []
        host = ProcessHost(tmp_path / "work", ends.extend)
        await act(host)
        while len(ends) < 2:
            await asyncio.sleep(0.01)
        await host.close(0.1)
        return ends

    ends = asyncio.run(main())
    assert secret.read_text() == "secret\n"
    assert ends[1].exit_code == 126
    assert "cannot be started" in ends[1].message


def test_a_pipe_in_place_of_a_log_holds_up_nobody(tmp_path):
    root = tmp_path / "work"

    async def main() -> list[ProcessEnded]:
        ends: list[ProcessEnded] = []
        host = ProcessHost(root, ends.extend)
        folder = host.folder(container_id(attempt_id(1, 1), 1))
        folder.mkdir(parents=True)
        os.mkfifo(folder / "stdout")
        host.start(task(1, "echo lost"), "n")
        host.start(task(2, "echo kept"), "n")
        give_up = time.monotonic() + 20
        while len(ends) < 2 and time.monotonic() < give_up:
            await asyncio.sleep(0.01)
        for spawner in host.pids:
            if len(ends) < 2:
                os.kill(spawner, signal.SIGKILL)
        await host.close(0.1)
        return ends

    codes = {end.task: end.exit_code for end in asyncio.run(main())}
    assert codes == {1: 126, 2: 0}


def test_what_a_host_cannot_do_is_told(tmp_path, monkeypatch):
    with pytest.raises(InputError, match="no user 'nobody-there'"):
        isolation(tmp_path, user="nobody-there")
    monkeypatch.setattr(shutil, "which", lambda name: None)
    found = isolation(tmp_path, sandbox="auto", network=False)
    assert not found.on
    assert [line.partition(":")[0] for line in found.lacking] == [
        "no sandbox, tasks see each other and this host",
        "tasks reach the network",
    ]
    with pytest.raises(InputError, match="this host cannot: bubblewrap"):
        isolation(tmp_path, sandbox="on")
    with pytest.raises(InputError, match="needs --sandbox"):
        isolation(tmp_path, network=False)


def test_what_a_host_lacks_is_shown_with_its_node_once(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))  # no bwrap there
    settings = LocalSettings(
        cluster="2x4vcores,4096memory_mb", mode="process", flags={"nm": ["sandbox=auto"]}
    )
    with LocalCluster(settings, tmp_path / "c") as cluster, Client(cluster.address) as client:
        nodes = client.nodes()
    assert [node.lacking.partition(":")[0] for node in nodes] == [
        "no sandbox, tasks see each other and this host"
    ] * 2
    show_nodes(nodes)
    told = " ".join(capsys.readouterr().out.split())
    assert told.count(" among them: no sandbox") == 1


@root_only
def test_a_live_cluster_keeps_its_tasks_apart(tmp_path):
    """Through the whole stack, with network gone as well: the manager's journal is beside it."""
    settings = LocalSettings(
        cluster="1x4vcores,4096memory_mb",
        mode="process",
        flags={
            "nm": [
                "task_user=nobody",
                "sandbox=on",
                "task_network=none",
                f"hide={tmp_path}/c",
                "launch=process",
            ]
        },
    )
    script = (
        f"id -un; cat {tmp_path}/c/rm.events {tmp_path}/c/*/*; ls /proc | grep -c '^[0-9]'; "
        "grep -c : /proc/net/dev"
    )
    demand = {"vcores": 1.0, "memory_mb": 64.0}
    stages = tuple(Stage(f"s{n}", 1, 1.0, demand, command=("sh", "-c", script)) for n in range(2))
    with LocalCluster(settings, tmp_path / "c") as cluster, Client(cluster.address) as client:
        app = client.submit(Job("nosy", stages))
        client.wait([app])
        for one in client.tasks(app):
            out = client.read_log(one, "stdout").decode().split()
            assert out[0] == "nobody"
            assert int(out[1]) <= 5, "its own processes only"
            assert out[2] == "1", "the loopback alone"
