"""What hosts do to a cluster, each tried on a live one on loopback.

`python -m tools.hardships [NAME]`, or `make hardships`. `clocks`: the wall clock of the manager, a
node manager and the AM host jumps an hour forth and back, also over a restart. `memory`: each may
have 64 MB more than it has at rest (RLIMIT_AS), and is asked for more. `processes`: tasks leave
hundreds of processes that ignore SIGTERM, with control groups and without. `full`: the journal's
disk fills, the manager is killed and starts on the full disk; what was accepted is listed (needs
root). `journal`: it is cut, flipped and read-only under a manager that starts on it. `members`: two
managers over three members of etcd, of which one is killed, paused, and comes back (needs etcd).
`split`: the manager that leads knows one member of three, which is cut off, and another one knows
the other two (needs etcd). `many`: 300 node managers, a process each. `files`: 20,000 tasks leave
files and logs, and the node manager is killed when they ended. Each says what it saw, and fails
where a promise broke.
"""

import argparse
import contextlib
import json
import os
import random
import resource
import runpy
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import IO

import psutil

from rm.process.durable import mark_of
from testkit import forked
from testkit.etcd import data_folder, free_ports
from testkit.live import PATIENCE_S, Cluster, Part, until, wait_for_nodes
from weft.client.api import Client
from weft.client.local import LocalCluster, LocalSettings
from weft.ha import local_etcd
from weft.model.errors import WeftError
from weft.model.job import Job, Stage
from weft.runtime.kept_clock import clock_in

HOUR_S = 3600
MEMORY_BYTES = 64 << 20
NODE_MANAGERS, FEW_NODE_MANAGERS = 300, 30
STARTED_AT_ONCE = 8
SPLIT_NODES = "10x4vcores,8192memory_mb"
TWO_NODES = "2x4vcores,4096memory_mb"


class Shifted(LocalCluster):
    """A cluster whose processes each have a wall clock that can be set."""

    def _begin(self, module: str, flags: list[str], output: IO[bytes]) -> subprocess.Popen[bytes]:
        if not self.clock(module).exists():
            self.clock(module).write_text("+0")
        shifted = ["tools.hardships", "--shifted", str(self.clock(module).absolute()), module]
        return super()._begin(shifted[0], [*shifted[1:], *flags], output)

    def clock(self, module: str) -> Path:
        """Return the file that says how far a role's clock is off."""
        return self.folder / f"{module}.clock"


def _run_shifted(clock: Path, module: str, flags: list[str]) -> None:
    """Run a role whose wall clock a file sets; the monotonic clock stays as it is, as the kernel's.

    Debian's faketime (0.9.10) would do the same, if Python could sleep under it: it breaks
    clock_nanosleep(2) to a time of the monotonic clock.
    """
    real = time.time

    def shifted() -> float:
        return real() + float(clock.read_text() or 0.0)

    time.time = shifted
    sys.argv = [module, *flags]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _job(name: str, tasks: int = 4, seconds: float = 0.5, command: tuple[str, ...] = ()) -> Job:
    stage = Stage("s", tasks, seconds, {"vcores": 1.0, "memory_mb": 64.0}, command=command)
    return Job(name, (stage,))


def _succeed(client: Client, apps: list[int], wrong: list[str], what: str) -> None:
    """Wait for jobs, and note those that did not succeed."""
    for app, report in client.wait(apps).items():
        if report.final_status != "SUCCEEDED":
            wrong.append(f"{what}: application {app} {report.final_status}: {report.diagnostics}")


def clocks(folder: Path, *, short: bool = False) -> list[str]:
    """Set clocks of processes an hour forth and back while jobs run."""
    wrong: list[str] = []
    settings = LocalSettings(mode="process", cluster=TWO_NODES, state=True, events=True)
    ran = folder / "ran"
    command = ("sh", "-c", f"sleep 0.5; echo $WEFT_CONTAINER >> {ran}")
    with Shifted(settings, folder) as cluster, Client(cluster.address) as client:
        count = 0
        for module in ("rm", "nm", "am"):
            for off in (f"-{HOUR_S}",) if short else (f"+{HOUR_S}", f"-{HOUR_S}", "+0"):
                before = client.submit(_job("before", command=command))
                time.sleep(0.3)
                cluster.clock(module).write_text(off)
                apps = [before, client.submit(_job("after", command=command))]
                began_s = time.monotonic()
                _succeed(client, apps, wrong, f"{module} {off}")
                took_s = time.monotonic() - began_s
                lost = [one.node_id for one in client.nodes() if one.state != "RUNNING"]
                if lost:
                    wrong.append(f"{module} {off}: not running: {lost}")
                count += 8
                print(f"  {module:3} {off:>6}: two jobs after {took_s:.1f} s", flush=True)
        for off in (f"+{HOUR_S}",) if short else (f"+{HOUR_S}", f"-{HOUR_S}", "+0"):
            app = client.submit(_job("over a restart", command=command))
            cluster.processes["rm"].kill()
            cluster.processes["rm"].wait()
            cluster.clock("rm").write_text(off)
            cluster.start_manager()
            began_s = time.monotonic()
            apps = [app, client.submit(_job("after it", command=command))]
            _succeed(client, apps, wrong, f"manager started anew at {off}")
            took_s = time.monotonic() - began_s
            count += 8
            print(f"  rm started at {off:>6}: two jobs after {took_s:.1f} s", flush=True)
        if died := cluster.failed():
            wrong.append(died)
        lines = ran.read_text().splitlines()
        if len(lines) != count or len(set(lines)) != count:
            wrong.append(
                f"{len(lines)} tasks ran, {len(set(lines))} of them other ones, of {count}"
            )
        print(f"  {len(lines)} tasks of {count} ran once each", flush=True)
    return wrong


def memory(folder: Path, *, short: bool = False) -> list[str]:
    """Have each service run out of memory while it works."""
    wrong: list[str] = []
    for role in ("rm",) if short else ("rm", "am", "nm0", "web"):
        place = folder / role
        settings = LocalSettings(nodes=50, state=True, web=True)
        with LocalCluster(settings, place) as cluster, Client(cluster.address) as client:
            _succeed(client, [client.submit(_job("first"))], wrong, "before")
            process = psutil.Process(cluster.processes[role].pid)
            most = process.memory_info().vms + MEMORY_BYTES
            resource.prlimit(process.pid, resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))
            apps = []
            with contextlib.suppress(WeftError):
                apps += [client.submit(_job(f"large{n}", 20_000, 0.1)) for n in range(5)]
                time.sleep(3 if short else 10)
            code = cluster.processes[role].poll()
            said = (place / f"{role}.log").read_text().strip().splitlines()[-1:]
            if code is None:
                unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
                resource.prlimit(process.pid, resource.RLIMIT_AS, unlimited)
            elif role == "rm":
                cluster.start_manager()
            elif role == "web":
                cluster.start_web()
            elif role == "am":
                cluster._launch("am", "am", cluster._am_flags("am"))
            else:
                cluster._launch("nm0", "nm", cluster._nm_flags(0))
            ended = "lives on" if code is None else f"ended with {code}"
            with Client(cluster.address) as again:
                for app in apps:
                    again.kill(app)
                wait_for_nodes(again, 50)
                _succeed(again, [again.submit(_job("last"))], wrong, f"after {role} {ended}")
            print(f"  {role:4} {ended}; the last it said: {''.join(said)[:150]}", flush=True)
    return wrong


STUBBORN = (
    "trap '' TERM HUP INT; for i in $(seq 100); do (trap '' TERM; setsid sh -c"
    " \"trap '' TERM; sleep {0} & sleep {0}\" & ) ; done; while :; do sleep 1; done"
)


def processes(folder: Path, *, short: bool = False) -> list[str]:
    """Have tasks leave hundreds of processes that ignore SIGTERM, and kill their jobs."""
    wrong: list[str] = []
    for groups in ("off",) if short else ("auto", "off"):
        mark = f"{7000 + os.getpid() % 1000}.{'1' if groups == 'auto' else '2'}"
        settings = LocalSettings(
            mode="process", cluster="1x4vcores,4096memory_mb", flags={"nm": [f"cgroups={groups}"]}
        )
        place = folder / groups
        with LocalCluster(settings, place) as cluster, Client(cluster.address) as client:
            command = ("sh", "-c", STUBBORN.format(mark))
            app = client.submit(_job("stubborn", 2, 600.0, command))
            until(lambda mark=mark: len(_named(mark)) >= 400, "they are there")  # type: ignore[misc]
            began_s = time.monotonic()
            _succeed(client, [client.submit(_job("beside"))], wrong, "beside them")
            beside_s, began_s = time.monotonic() - began_s, time.monotonic()
            client.kill(app)
            try:
                until(lambda mark=mark: not _named(mark), "they are gone")  # type: ignore[misc]
                gone_s = time.monotonic() - began_s
                print(
                    f"  cgroups {groups:4}: a job beside 400 processes took {beside_s:.1f} s, all"
                    f" were gone {gone_s:.1f} s after the kill",
                    flush=True,
                )
            except AssertionError:
                wrong.append(f"cgroups {groups}: {len(_named(mark))} processes stay")
                for one in _named(mark):
                    one.kill()
            if died := cluster.failed():
                wrong.append(died)
    return wrong


def _named(mark: str) -> list[psutil.Process]:
    """Return processes that sleep for just so long."""
    found = []
    for one in psutil.process_iter(["cmdline"]):
        if (one.info["cmdline"] or [])[-2:] == ["sleep", mark]:
            found.append(one)
    return found


def full(folder: Path, *, short: bool = False) -> list[str]:
    """Fill the journal's disk, kill the manager, and start it on the full disk."""
    wrong: list[str] = []
    state = folder / "state"
    state.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", str(state)], check=True)
    try:
        settings = LocalSettings(nodes=2, state=True)
        with LocalCluster(settings, folder) as cluster:
            accepted, refused = [], 0
            with Client(cluster.address, deadline_s=5) as client:
                for number in range(3_000):
                    try:
                        accepted.append(client.submit(_job(f"j{number}", 1, 1000.0)))
                    except WeftError as error:
                        refused += 1
                        if refused == 1:
                            print(f"  after {len(accepted)}: {error}", flush=True)
                        if refused > 5:
                            break
            for turn in range(1 if short else 3):
                cluster.processes["rm"].kill()
                cluster.processes["rm"].wait()
                cluster.start_manager()
                with Client(cluster.address) as client:
                    listed = {one.app_id for one in client.applications()}
                lost, more = set(accepted) - listed, listed - set(accepted)
                print(
                    f"  start {turn + 1} on the full disk: {len(listed)} listed, {len(lost)} of"
                    f" {len(accepted)} accepted lost, {len(more)} of {refused} refused listed",
                    flush=True,
                )
                if lost:
                    wrong.append(f"lost though accepted: {sorted(lost)[:10]}")
    finally:
        subprocess.run(["umount", str(state)], check=False)
    return wrong


def journal(folder: Path, *, short: bool = False) -> list[str]:
    """Damage the journal of a manager that was killed, and start another one on it."""
    wrong: list[str] = []
    state, rng = folder / "state", random.Random(7)
    with LocalCluster(LocalSettings(nodes=2, state=True), folder) as cluster:
        with Client(cluster.address) as client:
            accepted = {client.submit(_job(f"j{number}", 1, 1000.0)) for number in range(30)}
        cluster.processes["rm"].kill()
    lines = (state / "journal.jsonl").read_bytes()
    _, durable = mark_of(state / "durable")
    ways: dict[str, Callable[[], bytes]] = {
        "whole": lambda: lines,
        "torn behind what was durable": lambda: lines[:durable] + b'{"half',
        "cut": lambda: lines[: rng.randrange(1, durable)],
        "flipped": lambda: _flipped(lines, rng.randrange(8 * durable)),
        "zeroed at its end": lambda: lines[: -(cut := rng.randrange(1, 500))] + bytes(cut),
    }
    for way, damage in ways.items():
        for turn in range(1 if short or way == "whole" else 10):
            place = folder / f"{way}-{turn}".replace(" ", "-")
            shutil.copytree(state, place)
            (place / "journal.jsonl").write_bytes(damage())
            listed, said = _started_on(place)
            lost = accepted - listed if listed is not None else set()
            if lost or (listed is None and "journal" not in said):
                wrong.append(f"{way}: {len(lost)} accepted ones lost; {said}")
            if listed is None and way in ("whole", "torn behind what was durable"):
                wrong.append(f"{way}: it did not start: {said}")
        how = f"not started: {said}" if listed is None else f"{len(listed)} listed of 30"
        print(f"  {way}: {how}", flush=True)
    place = folder / "read-only"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)], check=True)
    try:
        shutil.copytree(state, place / "state")
        subprocess.run(["mount", "-o", "remount,ro", str(place)], check=True)
        listed, said = _started_on(place / "state")
        if listed is None and ("\n" in said or "Traceback" in said):
            wrong.append(f"read-only: {said}")
        elif listed is not None and accepted - listed:
            wrong.append(f"read-only: {len(accepted - listed)} accepted ones lost")
        print(f"  read-only: {said if listed is None else f'{len(listed)} listed'}", flush=True)
    finally:
        subprocess.run(["umount", str(place)], check=False)
    return wrong


def _flipped(data: bytes, bit: int) -> bytes:
    return data[: bit // 8] + bytes([data[bit // 8] ^ 1 << bit % 8]) + data[bit // 8 + 1 :]


def _started_on(state: Path) -> tuple[set[int] | None, str]:
    """Start a manager on a state folder; return what it lists, or None and its last line."""
    flags = ["--port=0", "--metrics-port=0", f"--state-dir={state}", f"--die-with={os.getpid()}"]
    if (clock := clock_in(state)) is not None:
        flags += [f"--epoch-s={clock.epoch_s!r}", f"--time-scale={clock.time_scale!r}"]
    with TemporaryFile("w+") as errors:
        process = forked.start("rm", flags, stdout=subprocess.PIPE, stderr=errors)
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            if not line:
                errors.seek(0)
                lines = errors.read().strip().splitlines()
                return None, "\n".join(lines if "Traceback" in "".join(lines) else lines[-1:])
            with Client(json.loads(line)["address"]) as client:
                return {one.app_id for one in client.applications()}, ""
        finally:
            process.kill()
            process.wait()
            process.stdout.close()


@contextlib.contextmanager
def _etcds(folder: Path) -> Iterator[list[tuple[str, Callable[[], subprocess.Popen[bytes]]]]]:
    ports = free_ports(6)
    peers = ",".join(f"m{n}=http://127.0.0.1:{ports[n + 3]}" for n in range(3))
    started: list[subprocess.Popen[bytes]] = []
    data = data_folder()

    def starter(number: int) -> Callable[[], subprocess.Popen[bytes]]:
        client, peer = (f"http://127.0.0.1:{ports[n]}" for n in (number, number + 3))

        def start() -> subprocess.Popen[bytes]:
            command = [
                shutil.which("etcd") or "etcd",
                f"--name=m{number}",
                f"--data-dir={data / f'm{number}'}",
                f"--listen-client-urls={client}",
                f"--advertise-client-urls={client}",
                f"--listen-peer-urls={peer}",
                f"--initial-advertise-peer-urls={peer}",
                f"--initial-cluster={peers}",
            ]
            with (folder / f"etcd{number}.log").open("ab") as log:
                started.append(subprocess.Popen(command, stdout=log, stderr=log))
            return started[-1]

        return start

    try:
        yield [(f"127.0.0.1:{ports[number]}", starter(number)) for number in range(3)]
    finally:
        for one in started:
            one.kill()
            one.wait()
        shutil.rmtree(data)


def members(folder: Path, *, short: bool = False) -> list[str]:
    """Lose each member of an etcd of three in turn, by a kill and by a pause."""
    wrong: list[str] = []
    folder.mkdir(parents=True)
    with _etcds(folder) as etcds:
        running = [start() for _, start in etcds]
        for address, _ in etcds:
            until(partial(local_etcd.healthy, address), f"the member at {address} serves")
        store = f"etcd://{','.join(address for address, _ in etcds)}/weft"
        settings = LocalSettings(nodes=10, managers=2, store=store)
        with LocalCluster(settings, folder / "cluster") as cluster:
            for number, (address, start) in enumerate(etcds[:1] if short else etcds):
                for how in ("killed",) if short else ("killed", "paused"):
                    with Client(cluster.address) as client:
                        apps = [client.submit(_job("before", 10))]
                        began_s = time.monotonic()
                        running[number].send_signal(
                            signal.SIGKILL if how == "killed" else signal.SIGSTOP
                        )
                        apps.append(_accepted(client))
                        accepted_s = time.monotonic() - began_s
                        _succeed(client, apps, wrong, f"member {number} {how}")
                        if how == "killed":
                            running[number].wait()
                            running[number] = start()
                        else:
                            running[number].send_signal(signal.SIGCONT)
                        until(partial(local_etcd.healthy, address), f"member {number} serves again")
                        apps = [client.submit(_job("after", 10))]
                        _succeed(client, apps, wrong, f"member {number} back")
                    print(
                        f"  member {number} {how}: a job was accepted {accepted_s:.1f} s later",
                        flush=True,
                    )
            if died := cluster.failed():
                wrong.append(died)
    return wrong


def split(folder: Path, **_: object) -> list[str]:
    """Cut the leading manager off from most of an etcd of three, with the member that it knows.

    A member that stands still answers nobody, as one does that has no majority.
    """
    wrong: list[str] = []
    folder.mkdir(parents=True)
    cluster = Cluster(folder)
    with _etcds(folder) as etcds:
        running = [start() for _, start in etcds]
        places = [address for address, _ in etcds]
        for address in places:
            until(partial(local_etcd.healthy, address), f"the member at {address} serves")
        ports = free_ports(2)
        managers = [f"127.0.0.1:{port}" for port in ports]

        def manager(number: int, members: list[str]) -> Part:
            return cluster.manager(
                f"--store=etcd://{','.join(members)}/split",
                f"--port={ports[number]}",
                f"--cluster={SPLIT_NODES}",
                "--lease-s=2",
                f"--ready-file={folder / f'{number}.ready'}",
            )

        try:
            first = manager(0, places[:1])
            until(lambda: _standing(managers[0]) == "LEADER", "the first one leads")
            manager(1, places[1:])
            everybody = Part("rm", first.process, {"address": ",".join(managers)}, Path())
            host = cluster.host(everybody)
            cluster.nodes(
                everybody, "--nodes=10", f"--cluster={SPLIT_NODES}", f"--am-host={host.address}"
            )
            with Client(everybody.address) as client:
                wait_for_nodes(client, 10)
                apps = [client.submit(_job("before", 40, 2.0))]
                running[0].send_signal(signal.SIGSTOP)
                began_s = time.monotonic()
                until(lambda: _standing(managers[0]) != "LEADER", "the minority's steps down")
                left_s = time.monotonic() - began_s
                apps += [_accepted(client)]
                accepted_s = time.monotonic() - began_s
                _succeed(client, apps, wrong, "with two of three")
            if _standing(managers[1]) != "LEADER":
                wrong.append("the majority's manager does not lead")
            running[0].send_signal(signal.SIGCONT)
            until(lambda: _standing(managers[0]) == "STANDBY", "the first one stands by")
            with Client(everybody.address) as client:
                listed = {one.app_id: one.final_status for one in client.applications()}
                if listed != dict.fromkeys(apps, "SUCCEEDED"):
                    wrong.append(f"of applications {apps} there are {listed}")
            print(
                f"  the one without a majority stepped down after {left_s:.1f} s,"
                f" a job was accepted after {accepted_s:.1f} s",
                flush=True,
            )
        finally:
            for one in running:
                one.send_signal(signal.SIGCONT)
            cluster.close()
    ran = [
        (event["container"], event["task"])
        for event in cluster.events()
        if event["fact"] == "TaskStopped" and event["stage"] >= 0
    ]
    if len(set(ran)) != len(ran):
        wrong.append("a task ended twice")
    return wrong


def _standing(address: str) -> str:
    """Return what a manager says that it is; empty: nothing."""
    with contextlib.suppress(WeftError), Client(address, deadline_s=3.0) as client:
        return client.manager().standing
    return ""


def _accepted(client: Client) -> int:
    """Submit a job until it is accepted."""
    give_up = time.monotonic() + PATIENCE_S
    while True:
        try:
            return client.submit(_job("meanwhile", 10))
        except WeftError:
            if time.monotonic() > give_up:
                raise
            time.sleep(0.1)


def many(folder: Path, *, short: bool = False) -> list[str]:
    """Run 300 node managers, each a process; kill the manager beside them."""
    wrong: list[str] = []
    count = FEW_NODE_MANAGERS if short else NODE_MANAGERS
    folder.mkdir(parents=True)
    cluster = Cluster(folder)
    try:
        manager = cluster.manager(f"--state-dir={folder / 'state'}", "--node-expiry-s=60")
        host = cluster.host(manager)
        began_s = time.monotonic()

        def start(number: int) -> None:
            cluster.nodes(
                manager,
                "--cluster=1x4vcores,8192memory_mb",
                f"--am-host={host.address}",
                f"--first-node={number}",
                f"--node-name=n{number}",
            )

        with ThreadPoolExecutor(STARTED_AT_ONCE) as pool:
            list(pool.map(start, range(1, count + 1)))
        with Client(manager.address) as client:
            wait_for_nodes(client, count)
            up_s = time.monotonic() - began_s
            began_s = time.monotonic()
            _succeed(client, [client.submit(_job("wide", 4 * count, 2.0))], wrong, "wide")
            ran_s = time.monotonic() - began_s
            parts = [psutil.Process(part.process.pid) for part in cluster.parts]
            own = [one.memory_full_info().uss / 1e6 for one in parts]
            print(
                f"  {count} up after {up_s:.0f} s; {4 * count} tasks of 2 s took {ran_s:.1f} s;"
                f" memory of their own: manager {own[0]:.0f} MB, AM host {own[1]:.0f} MB, a node"
                f" manager {sorted(own[2:])[len(own) // 2]:.1f} MB",
                flush=True,
            )
        apps = []
        with Client(manager.address) as client:
            apps.append(client.submit(_job("over it", 4 * count, 5.0)))
            time.sleep(2)
        manager.kill()
        began_s = time.monotonic()
        port = manager.address.rpartition(":")[2]
        again = cluster.manager(
            f"--state-dir={folder / 'state'}", "--node-expiry-s=60", f"--port={port}"
        )
        with Client(again.address) as client:
            wait_for_nodes(client, count)
            back_s = time.monotonic() - began_s
            _succeed(client, apps, wrong, "over a restart of the manager")
        print(f"  manager killed: all {count} were back after {back_s:.1f} s", flush=True)
    finally:
        cluster.close()
    return wrong


WRITES = (
    "mkdir -p a/b; echo x >a/b/c; ln -s / a/l; head -c 20000 /dev/zero >a/big;"
    " echo line; echo e >&2"
)
LOGS = ("stdout", "stderr")


def _on_disk(work: Path) -> tuple[int, int, int]:
    """Return how many logs are in folders of applications, what else is, and the disk's bytes."""
    logs = others = used = 0
    for place, _, names in os.walk(work):
        for name in ("", *names):
            # It may go meanwhile.
            with contextlib.suppress(FileNotFoundError):
                used += os.lstat(os.path.join(place, name)).st_blocks * 512
        if "application_" in place:
            kept = sum(name in LOGS for name in names)
            logs, others = logs + kept, others + len(names) - kept
    return logs, others, used


def files(folder: Path, *, short: bool = False) -> list[str]:
    """Have 20,000 tasks leave files and logs, and start their node manager anew."""
    wrong: list[str] = []
    jobs, tasks = (2, 20) if short else (20, 1_000)
    settings = LocalSettings(mode="process", cluster="1x8vcores,8192memory_mb", state=True)
    work = folder / "work"
    with LocalCluster(settings, folder) as cluster, Client(cluster.address) as client:
        before, began_s = _on_disk(work)[2], time.monotonic()
        apps = [
            client.submit(_job(f"j{number}", tasks, 0.1, ("sh", "-c", WRITES)))
            for number in range(jobs)
        ]
        first, *others = apps
        _succeed(client, [first], wrong, "the first")
        most = _on_disk(work)[2]
        _succeed(client, others, wrong, "the others")
        took_s = time.monotonic() - began_s
        wanted = 2 * jobs * tasks
        until(lambda: _on_disk(work)[:2] == (wanted, 0), "only logs are left")
        kept = _on_disk(work)[2]
        print(
            f"  {jobs * tasks} tasks in {took_s:.0f} s; disk: {before / 1e6:.1f} MB before, "
            f"{most / 1e6:.1f} MB after the first job, {kept / 1e6:.1f} MB with {wanted} logs",
            flush=True,
        )
        for retain_s, left in ((10_800, wanted), (0, 0)):
            # Ends are written down until the manager has heard of them.
            until(lambda: not list(work.glob("*/.processes/*.log")), "ends were heard")
            cluster.processes["nm0"].kill()
            cluster.processes["nm0"].wait()
            said = len((folder / "nm0.log").read_text())
            flags = [*cluster._nm_flags(0), f"--log-retain-s={retain_s}"]
            cluster._launch("nm0", "nm", flags)
            cluster._await("nm0")
            until(lambda left=left: _on_disk(work)[:2] == (left, 0), "logs as long as told")  # type: ignore[misc]
            text = (folder / "nm0.log").read_text()[said:]
            if "found what an earlier run left" in text or "cannot be removed" in text:
                wrong.append(f"started anew, it says {text[-500:]}")
            print(
                f"  started anew, logs kept {retain_s} s: {left} logs, nothing else, "
                f"{_on_disk(work)[2] / 1e6:.1f} MB",
                flush=True,
            )
        if list(work.rglob("container_*")):
            wrong.append("folders of containers are left")
    return wrong


HARDSHIPS: dict[str, Callable[..., list[str]]] = {
    one.__name__: one
    for one in (clocks, memory, processes, full, journal, members, split, many, files)
}


def main() -> int:
    """Try each; 1 where a promise broke."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(HARDSHIPS))
    if sys.argv[1:2] == ["--shifted"]:
        _run_shifted(Path(sys.argv[2]), sys.argv[3], sys.argv[4:])
        return 0
    given = parser.parse_args()
    failed = 0
    for name in given.names or HARDSHIPS:
        with TemporaryDirectory(prefix="weft-hardships-") as made:
            print(f"{name}: {HARDSHIPS[name].__doc__}", flush=True)
            wrong = HARDSHIPS[name](Path(made) / name)
        for line in wrong:
            print(f"  WRONG {line}", file=sys.stderr, flush=True)
        failed += bool(wrong)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
