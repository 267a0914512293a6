"""What a node manager writes down of its processes is enough for the next one, and not too much."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import psutil
import pytest

from nm.core import NodeManager
from nm.process.host import ProcessHost
from nm.process.records import FOLDER, Record, Records, name_of
from nm.settings import Mode, NodeSettings
from testkit.builders import TWO_TYPES, sent
from weft.model.ids import attempt_id, container_id
from weft.protocol.effects import (
    FoundProcess,
    Kill,
    Launch,
    ProcessEnded,
    ProcessesFound,
    Started,
    TimerFired,
)
from weft.protocol.messages import (
    MasterLaunch,
    NodeAccepted,
    NodeHeartbeated,
    NodeRegistered,
    Outcome,
    QueryContainers,
    StartAnswered,
    StartContainers,
    StopContainers,
    TaskLaunch,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
Act = Callable[[ProcessHost, list[ProcessEnded]], Awaitable[None]]


def launch(number: int, *command: str) -> TaskLaunch:
    """A task in a container of its own."""
    one = container_id(attempt_id(1, 1), number)
    return TaskLaunch(one, 0, number, 0, 1.0, (1.0,), command)


async def until(condition: Callable[[], object]) -> None:
    """Wait for a condition."""
    give_up = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < give_up
        await asyncio.sleep(0.01)


def ended(root: Path) -> list[int]:
    """The tasks of which it is written down how they ended."""
    records = Records(root)
    return [one.task for one in records.read() if records.code(name_of(one)) is not None]


def written(root: Path) -> Path:
    """The one file in which all is written down."""
    (path,) = (root / FOLDER).iterdir()
    return path


def drive(
    root: Path, act: Act, *, close: bool = True, spawners: int = 1, grace_s: float = 0.5
) -> list[ProcessEnded]:
    """One life of a process host; without `close` it ends as a crash would."""

    async def main() -> list[ProcessEnded]:
        ends: list[ProcessEnded] = []
        records = Records(root)
        host = ProcessHost(root, ends.extend, grace_s=grace_s, records=records, spawners=spawners)
        await act(host, ends)
        if close:
            await host.close(0.1)
        return ends

    return asyncio.run(main())


def test_exit_codes_are_those_of_a_command_without_a_keeper(tmp_path: Path) -> None:
    commands = {
        2: ("sh", "-c", "exit 7"),
        3: ("sh", "-c", "kill -9 $$"),
        4: ("true",),
        5: ("/no/such/command",),
        6: ("exit", "3"),
        7: ("echo", "a  b", "$HOME"),
    }

    async def act(host: ProcessHost, ends: list[ProcessEnded]) -> None:
        for number, command in commands.items():
            host.start(launch(number, *command))
        await until(lambda: len(ends) == len(commands))
        folder = host.folder(launch(7).container_id)
        assert (folder / "stdout").read_text() == "a  b $HOME\n"

    ends = {end.task: end for end in drive(tmp_path, act)}
    codes = {task: end.exit_code for task, end in ends.items()}
    assert codes == {2: 7, 3: -9, 4: 0, 5: 127, 6: 127, 7: 0}, "no builtin of the shell is run"
    assert ends[3].message == "ended by SIGKILL"
    assert not list((tmp_path / FOLDER).iterdir())


def test_a_task_may_end_in_its_own_time_when_it_is_told_to(tmp_path: Path) -> None:
    script = "trap 'sleep 0.2; echo bye; exit 5' TERM; echo up; while :; do sleep 0.05; done"

    async def act(host: ProcessHost, ends: list[ProcessEnded]) -> None:
        item = launch(2, "sh", "-c", script)
        host.start(item)
        out = host.folder(item.container_id) / "stdout"
        await until(lambda: out.exists() and "up" in out.read_text())
        host.stop(item.container_id)
        await until(lambda: ends)
        assert out.read_text() == "up\nbye\n"

    (end,) = drive(tmp_path, act, grace_s=60.0)
    assert (end.outcome, end.exit_code) == (Outcome.KILLED, 5)


def test_the_next_host_keeps_what_runs_and_tells_how_the_rest_ended(tmp_path: Path) -> None:
    scripts = {2: f"while [ ! -e {tmp_path}/go ]; do sleep 0.02; done; exit 4", 3: "exit 6"}

    async def before(host: ProcessHost, ends: list[ProcessEnded]) -> None:
        for number, script in scripts.items():
            host.start(launch(number, "sh", "-c", script))
        await until(lambda: len(ends) == 1)

    drive(tmp_path, before, close=False)

    async def after(host: ProcessHost, ends: list[ProcessEnded]) -> None:
        found, gone = host.find()
        assert sorted(record.task for record in found) == [2, 3]
        assert [(end.task, end.outcome, end.exit_code) for end in gone] == [(3, Outcome.FAILED, 6)]
        assert len(host) == 1
        (tmp_path / "go").touch()
        await until(lambda: ends)

    (end,) = drive(tmp_path, after)
    assert (end.task, end.outcome, end.exit_code) == (2, Outcome.FAILED, 4)


NODE = """
import asyncio, os, signal, sys, time
from pathlib import Path
from nm.process.host import ProcessHost
from nm.process.records import Records
from tests.unit.test_nm_records import ended, launch

async def main(root, stopped, commands):
    host = ProcessHost(root, print, records=Records(root))
    host.start(launch(9, "true"))
    while ended(root) != [9]:
        await asyncio.sleep(0.01)
    (spawner,) = host._spawning.pids
    if stopped:
        os.kill(spawner, signal.SIGSTOP)
    for number, command in commands.items():
        host.start(launch(number, *command))
    while not stopped and len(list(Records(root).read())) <= len(commands):
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.05)
    print(spawner, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main(Path(sys.argv[1]), sys.argv[2] == "stopped", eval(sys.argv[3])))
"""


def node_that_dies(root: Path, how: str, commands: dict[int, tuple[str, ...]]) -> int:
    """Start commands on a node manager that is killed; the number of its spawner."""
    done = subprocess.run(
        [sys.executable, "-c", NODE, str(root), how, repr(commands)],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == -9, done.stderr
    return int(done.stdout.split()[-1])


@pytest.mark.slow
def test_what_ended_is_known_although_its_node_manager_was_killed(tmp_path: Path) -> None:
    commands = {2: ("true",), 3: ("sh", "-c", "sleep 0.3; exit 6"), 4: ("sleep", "60")}
    node_that_dies(tmp_path, "running", commands)

    async def after(host: ProcessHost, ends: list[ProcessEnded]) -> None:
        await until(lambda: len(ended(tmp_path)) == 3)
        found, gone = host.find()
        assert len(found) == 4
        assert sorted((end.task, end.outcome, end.exit_code) for end in gone) == [
            (2, Outcome.SUCCEEDED, 0),
            (3, Outcome.FAILED, 6),
            (9, Outcome.SUCCEEDED, 0),
        ]
        assert len(host) == 1, "what goes on is kept"
        host.stop(launch(4).container_id)
        await until(lambda: ends)
        assert (ends[0].outcome, ends[0].exit_code) == (Outcome.KILLED, -15)

    drive(tmp_path, after)


@pytest.mark.slow
def test_nothing_is_started_for_a_node_manager_that_is_gone(tmp_path: Path) -> None:
    """The next one may have looked already: what began then would run unseen."""
    spawner = node_that_dies(tmp_path, "stopped", {2: ("touch", f"{tmp_path}/started")})
    os.kill(spawner, signal.SIGCONT)

    async def after(host: ProcessHost, ends: list[ProcessEnded]) -> None:
        await until(lambda: not Path(f"/proc/{spawner}/fd/0").exists())
        assert [record.task for record in host.find()[0]] == [9]

    drive(tmp_path, after)
    assert not (tmp_path / "started").exists()


def test_what_a_spawner_leaves_is_lost_and_the_next_one_goes_on(tmp_path: Path) -> None:
    async def act(host: ProcessHost, ends: list[ProcessEnded]) -> None:
        host.start(launch(2, "sleep", "60"))
        await until(lambda: list(Records(tmp_path).read()))
        (record,) = Records(tmp_path).read()
        os.kill(min(host._spawning.pids), signal.SIGKILL)
        await until(lambda: ends)
        assert (ends[0].task, ends[0].outcome) == (2, Outcome.LOST)
        await until(lambda: not record.alive)
        host.start(launch(3, "true"))
        await until(lambda: len(ends) == 2)

    ends = drive(tmp_path, act)
    assert (ends[1].task, ends[1].outcome) == (3, Outcome.SUCCEEDED)


def test_an_order_that_was_lost_with_its_spawner_is_not_carried_out_by_the_next(
    tmp_path: Path,
) -> None:
    """It ends between the order and the end of the loop's turn, in which another order comes."""

    async def act(host: ProcessHost, ends: list[ProcessEnded]) -> None:
        host.start(launch(2, "true"))
        await until(lambda: ends)
        host.start(launch(3, "touch", f"{tmp_path}/started"))
        host._spawning._all[0]._ended()
        host.start(launch(4, "true"))
        await until(lambda: len(ends) == 3)
        assert [(end.task, end.outcome) for end in ends[1:]] == [
            (3, Outcome.LOST),
            (4, Outcome.SUCCEEDED),
        ]
        assert not (tmp_path / "started").exists()

    drive(tmp_path, act)


def test_what_a_spawner_wrote_and_could_not_say_counts(tmp_path: Path) -> None:
    records = Records(tmp_path)

    async def act(host: ProcessHost, ends: list[ProcessEnded]) -> None:
        for number in (2, 3):
            host.start(launch(number, "sleep", "60"))
        await asyncio.sleep(0)  # they are ordered
        host._loop.remove_reader(host._spawning._all[0]._link)  # nothing that it says is heard
        await until(lambda: len(list(records.read())) == 2)
        one, other = records.read()
        os.kill(min(host._spawning.pids), signal.SIGKILL)
        written(tmp_path).open("a").write(f"\nE {name_of(one)} 0 .")
        host._lost(sorted(host._unended_by_order))
        assert [(end.task, end.outcome) for end in ends] == [
            (2, Outcome.SUCCEEDED),
            (3, Outcome.LOST),
        ]
        await until(lambda: not one.alive)
        await until(lambda: not other.alive)

    drive(tmp_path, act)


@pytest.mark.slow
def test_an_end_that_nobody_looked_at_yet_is_waited_for(tmp_path: Path) -> None:
    """The node manager is back before the spawner of the one before had a moment to run."""
    waits = f"while [ ! -e {tmp_path}/go ]; do sleep 0.02; done; exit 6"
    spawner = node_that_dies(tmp_path, "running", {3: ("sh", "-c", waits)})
    os.kill(spawner, signal.SIGSTOP)
    (record,) = [one for one in Records(tmp_path).read() if one.task == 3]
    (tmp_path / "go").touch()

    async def after(host: ProcessHost, ends: list[ProcessEnded]) -> None:
        await until(lambda: record.there and not record.alive)
        _, gone = host.find()
        assert 3 not in {end.task for end in gone}
        os.kill(spawner, signal.SIGCONT)
        await until(lambda: ends)
        assert [(end.task, end.outcome, end.exit_code) for end in ends] == [(3, Outcome.FAILED, 6)]

    drive(tmp_path, after)


def test_a_number_that_is_another_process_s_by_now_is_left_alone(tmp_path: Path) -> None:
    async def before(host: ProcessHost, ends: list[ProcessEnded]) -> None:
        host.start(launch(2, "sleep", "60"))
        await until(lambda: list(Records(tmp_path).read()))

    drive(tmp_path, before, close=False)
    records = Records(tmp_path)
    (record,) = records.read()
    os.killpg(record.pid, 9)
    asyncio.run(until(lambda: ended(tmp_path)))
    path = written(tmp_path)
    for changed in (
        replace(record, pid=os.getpid()),
        replace(record, pid=os.getpid(), host_boot="another"),
    ):
        path.write_text(line_of(changed))  # nobody knows how it ended

        async def after(host: ProcessHost, ends: list[ProcessEnded]) -> None:
            _, (gone,) = host.find()
            assert gone.outcome is Outcome.LOST
            assert len(host) == 0

        async def again(host: ProcessHost, ends: list[ProcessEnded]) -> None:
            await after(host, ends)

        drive(tmp_path, again, close=False)


def test_a_process_is_known_by_its_start_as_the_system_tells_it(tmp_path: Path) -> None:
    """Whoever started it asks for that only where the clock leaves a choice."""

    async def act(host: ProcessHost, ends: list[ProcessEnded]) -> None:
        for number in range(2, 42):
            host.start(launch(number, "sleep", "60"))
        await until(lambda: len(list(Records(tmp_path).read())) == 40)
        assert all(record.alive for record in Records(tmp_path).read())

    drive(tmp_path, act)


def test_several_spawners_share_what_there_is_to_start(tmp_path: Path) -> None:
    """A second one helps where the first has its hands full; one that dies takes its own along."""

    async def act(host: ProcessHost, ends: list[ProcessEnded]) -> None:
        host.start(launch(2, "sleep", "60"))
        await until(lambda: len(list(Records(tmp_path).read())) == 1)
        (first,) = host._spawning.pids
        for number in range(3, 33):
            host.start(launch(number, "sleep", "60"))
        await until(lambda: len(list(Records(tmp_path).read())) == 31)
        (second,) = host._spawning.pids - {first}
        parents = {one.task: psutil.Process(one.pid).ppid() for one in Records(tmp_path).read()}
        assert set(parents.values()) == {first, second}
        os.kill(second, signal.SIGKILL)
        theirs = {task for task, parent in parents.items() if parent == second}
        await until(lambda: len(ends) == len(theirs))
        assert {end.task for end in ends} == theirs
        assert {end.outcome for end in ends} == {Outcome.LOST}

    rest = drive(tmp_path, act, spawners=2)
    assert len(rest) == 31


ONE = Record("n1", 7, 0, 3, 0, 5, 6, "boot", 1000.25, 1, (1.0,))
OTHER = replace(ONE, task=4)


def line_of(record: Record) -> str:
    before, after = record.around_start()
    return f'\nS {before}"pid":{record.pid},"start":{record.start}{after}'


@pytest.mark.slow
def test_a_torn_line_tears_no_other(tmp_path: Path) -> None:
    """A disk may be full in the middle of a line, and have room again for the next."""
    records = Records(tmp_path)
    path = tmp_path / FOLDER / "a.log"
    name, whole = name_of(ONE), line_of(ONE)
    end = f"\nE {name} 137 ."
    for cut in range(1, len(whole)):
        path.write_text(whole[:cut] + line_of(OTHER))
        assert list(records.read()) == [OTHER]
    for cut in range(1, len(end)):
        path.write_text(whole + end[:cut] + line_of(OTHER))
        assert list(records.read()) == [ONE, OTHER]
        assert records.code(name) is None
    path.write_text(whole + end + line_of(OTHER))
    assert records.code(name) == -9, "137 is a shell's word for signal 9"
    for last in (f"\nF {name} .", f"\nT {name} 12 ."):
        path.write_text(whole + last[:-1])
        assert list(records.read()) == [ONE], "a torn word is none"
    path.write_text('\nS {"node": "n1"}')
    assert records.take() == []
    assert not list((tmp_path / FOLDER).iterdir())


_GARBLED = {
    f"{name} is {str(value)[:9]}": line_of(ONE).replace(
        f'"{name}":{json.dumps(asdict(ONE)[name])}', f'"{name}":{json.dumps(value)}'
    )
    for name in asdict(ONE)
    for value in ("x", None, [1], [[]], {}, 10**400, float("inf"))
    if not (isinstance(value, str) and isinstance(asdict(ONE)[name], str))
    and not (name in ("demand", "granted") and value in ([1], {}))
}


@pytest.mark.parametrize("how", [*_GARBLED, "it is deep"])
def test_a_garbled_record_keeps_no_node_manager_from_its_start(tmp_path: Path, how: str) -> None:
    records = Records(tmp_path)
    line = _GARBLED.get(how, "\nS " + "[" * 100_000)
    assert line != line_of(ONE)
    (tmp_path / FOLDER / "a.log").write_text(line + line_of(OTHER))
    assert records.take() == [OTHER], how


def test_what_cannot_be_read_is_left_alone(tmp_path: Path) -> None:
    records, other = Records(tmp_path), tmp_path / FOLDER / "a.log"
    other.mkdir()
    (tmp_path / FOLDER / "b.log").write_text(line_of(ONE))
    assert list(records.read()) == records.take() == [ONE]
    records.clear()
    assert list((tmp_path / FOLDER).iterdir()) == [other]


@pytest.mark.parametrize("word", ["", " x", " 1e3", " " + "9" * 20, " " + "9" * 5_000])
def test_a_garbled_word_is_none(tmp_path: Path, word: str) -> None:
    records, name = Records(tmp_path), name_of(ONE)
    (tmp_path / FOLDER / "a.log").write_text(f"{line_of(ONE)}\nE {name}{word} .\nT {name}{word} .")
    assert records.take() == [ONE]
    assert records.code(name) is None


def test_a_file_goes_once_all_of_it_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nm.process.records.FILE_PROCESSES_MAX", 3)
    monkeypatch.setattr("nm.process.records.ENDS_KEPT_S", 0.0)

    async def act(host: ProcessHost, ends: list[ProcessEnded]) -> None:
        goes_on = f"while [ ! -e {tmp_path}/go ]; do sleep 0.02; done"
        for number in range(2, 9):
            host.start(launch(number, "sh", "-c", goes_on if number == 3 else "true"))
        await until(lambda: len(ends) == 6)
        assert len(list((tmp_path / FOLDER).iterdir())) == 3
        host.forget(heard=False)
        assert [one.task for one in Records(tmp_path).read()] == [3], "what runs is remembered"
        written(tmp_path)
        host.start(launch(9, "true"))
        await until(lambda: len(ends) == 7)
        assert {one.task for one in Records(tmp_path).read()} == {3, 9}
        (tmp_path / "go").touch()
        await until(lambda: len(ends) == 8)
        host.forget(heard=False)
        assert not list((tmp_path / FOLDER).iterdir())

    drive(tmp_path, act)


def test_a_container_s_number_that_is_given_again_is_another_process(tmp_path: Path) -> None:
    """A cluster that begins anew counts from the beginning; what was before has ended."""

    async def act(host: ProcessHost, ends: list[ProcessEnded]) -> None:
        host.start(launch(2, "sh", "-c", "exit 7"))
        await until(lambda: ends)
        host.start(launch(2, "sleep", "60"))
        await until(lambda: len(list(Records(tmp_path).read())) == 2)

    drive(tmp_path, act, close=False)

    async def after(host: ProcessHost, ends: list[ProcessEnded]) -> None:
        found, gone = host.find()
        assert len(found) == len(host) == 1, "the second one runs"
        assert not gone, "the first one's end would be taken for its own"

    drive(tmp_path, after)


def test_the_next_host_knows_who_took_a_container_over(tmp_path: Path) -> None:
    later = attempt_id(1, 2)

    async def before(host: ProcessHost, ends: list[ProcessEnded]) -> None:
        for number in (2, 3, 4):
            host.start(launch(number, "sleep", "60"))
            if number == 2:  # before and after its process began
                host.taken_over(launch(2).container_id, later)
        await until(lambda: len(list(Records(tmp_path).read())) == 3)
        host.taken_over(launch(3).container_id, later)
        await until(lambda: len(host.pids) == 4)
        assert not ended(tmp_path)

    drive(tmp_path, before, close=False)

    async def after(host: ProcessHost, ends: list[ProcessEnded]) -> None:
        found, gone = host.find()
        assert not gone
        assert {one.task: one.taken_by for one in found} == {2: later, 3: later, 4: 0}
        host.start(replace(launch(3, "sleep", "60"), attempt=1))
        await until(lambda: len(list(Records(tmp_path).read())) == 4)
        names = {(r.task, r.attempt): r.taken_by for r in Records(tmp_path).read()}
        assert names[3, 1] == later

    drive(tmp_path, after)


def test_a_node_that_starts_anew_obeys_who_took_a_container_over() -> None:
    first, second = attempt_id(1, 1), attempt_id(1, 2)
    task = TaskLaunch(container_id(first, 2), 0, 3, 0, 9.0, (1.0, 100.0))
    settings = NodeSettings(mode=Mode.PROCESS)
    capacity = {"vcores": 4.0, "memory_mb": 1200.0}
    node = NodeManager("n1", "", capacity, "r1", (), settings, np.random.default_rng(0))
    node.handle(ProcessesFound((FoundProcess(task, -5.0, second),)), 0.0)
    node.handle(Started(), 0.0)
    node.handle(NodeAccepted("n1", TWO_TYPES, 1.0, False, 0), 0.1)
    for kind in (QueryContainers, StopContainers):
        for attempt, obeys in ((first, False), (second, True)):
            order = kind(attempt, "n1", (task.container_id,))
            (answer,) = sent(node.handle(order, 1.0), StartAnswered)
            assert (not answer.items[0].error) == obeys, (kind, attempt)


def test_a_run_of_commands_starts_whole_and_each_ends_by_itself() -> None:
    first = container_id(attempt_id(1, 1), 2)
    run = TaskLaunch(first, 0, 3, 0, 9.0, (1.0, 100.0), ("true",), tasks=(3, 4, 7))
    settings = NodeSettings(mode=Mode.PROCESS)
    capacity = {"vcores": 4.0, "memory_mb": 1200.0}
    node = NodeManager("n1", "", capacity, "r1", (), settings, np.random.default_rng(0))
    node.handle(Started(), 0.0)
    node.handle(NodeAccepted("n1", TWO_TYPES, 1.0, False, 0), 0.1)
    order = StartContainers(attempt_id(1, 1), "n1", (run,))
    effects = node.handle(order, 1.0)
    assert [one.item for one in effects if isinstance(one, Launch)] == [run]
    (answer,) = sent(effects, StartAnswered)
    assert [(item.container_id, item.count) for item in answer.items] == [(first, 3)]
    again = node.handle(order, 1.5)
    assert not [one for one in again if isinstance(one, Launch)], "a doubled order"
    node.handle(ProcessEnded(first + 1, Outcome.FAILED, 1, "", (), 0, 4, 0), 2.0)
    node.check()
    assert node.containers == (first, first + 2)
    (stopped,) = [
        one.container_id
        for one in node.handle(StopContainers(attempt_id(1, 1), "n1", (first,)), 2.5)
        if isinstance(one, Kill)
    ]
    assert stopped == first
    (beat,) = sent(node.handle(TimerFired("heartbeat"), 3.0), NodeHeartbeated)
    assert [(end.container_id, end.task, end.outcome) for end in beat.ended] == [
        (first + 1, 4, Outcome.FAILED)
    ]


def test_a_node_registers_with_what_it_found_and_reports_its_ends() -> None:
    task = TaskLaunch(
        container_id(attempt_id(1, 1), 2), 0, 3, 0, 9.0, (1.0, 100.0), granted=(2.0, 1000.0)
    )
    master = MasterLaunch(container_id(attempt_id(1, 1), 1), attempt_id(1, 1), (0.1, 50.0))
    capacity = {"vcores": 4.0, "memory_mb": 1200.0}
    settings = NodeSettings(mode=Mode.PROCESS)
    node = NodeManager("n1", "", capacity, "r1", (), settings, np.random.default_rng(0))
    found = (FoundProcess(task, -5.0), FoundProcess(master, -6.0))
    node.handle(ProcessesFound(found), 0.0)
    (registered,) = sent(node.handle(Started(), 0.0), NodeRegistered)
    assert {(one.container_id, one.demand, one.tasks) for one in registered.running} == {
        (task.container_id, (2.0, 1000.0), ((0, 3, 0),)),
        (master.container_id, (0.1, 50.0), ()),
    }
    node.handle(NodeAccepted("n1", TWO_TYPES, 1.0, False, 0), 0.1)
    node.check()
    node.handle(ProcessEnded(task.container_id, Outcome.SUCCEEDED, 0, "", (), 0, 3, 0), 2.0)
    (beat,) = sent(node.handle(TimerFired("heartbeat"), 3.0), NodeHeartbeated)
    (end,) = beat.ended
    assert (end.container_id, end.outcome, end.task, end.run_s) == (
        task.container_id,
        Outcome.SUCCEEDED,
        3,
        7.0,
    )
    node.check()


def test_a_node_does_not_register_what_ended_before_it_was_back() -> None:
    """Its room is free again, and many times that may have ended there within a minute."""
    first = container_id(attempt_id(1, 1), 2)
    need = (1.0, 1000.0)
    single = [TaskLaunch(first + n, 0, n, 0, 9.0, need, granted=need) for n in range(3)]
    pooled = [
        TaskLaunch(first + n, 1, n, 0, 9.0, need, reusable=True, granted=need) for n in (3, 4)
    ]
    settings = NodeSettings(mode=Mode.PROCESS)
    capacity = {"vcores": 4.0, "memory_mb": 2400.0}
    node = NodeManager("n1", "", capacity, "r1", (), settings, np.random.default_rng(0))
    found = tuple(FoundProcess(task, -5.0) for task in (*single, *pooled))
    node.handle(ProcessesFound(found), 0.0)
    for item in (single[0], single[1], pooled[0]):
        key = (item.stage, item.task, item.attempt)
        node.handle(ProcessEnded(item.container_id, Outcome.SUCCEEDED, 0, "", (), *key), 0.0)
    (registered,) = sent(node.handle(Started(), 0.0), NodeRegistered)
    assert {one.container_id for one in registered.running} == {
        single[2].container_id,
        pooled[1].container_id,
    }
    node.handle(NodeAccepted("n1", TWO_TYPES, 1.0, False, 0), 0.1)
    node.check()
    (beat,) = sent(node.handle(TimerFired("heartbeat"), 1.0), NodeHeartbeated)
    assert [end.task for end in beat.ended] == [0, 1]
    assert [(end.stage, end.task) for end in beat.tasks_ended] == [(1, 3)]
    assert (beat.ended[0].outcome, beat.tasks_ended[0].outcome) == (Outcome.SUCCEEDED,) * 2
