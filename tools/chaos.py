"""Live chaos: a cluster of real processes on loopback, killed and paused at random.

`make chaos`, or `python -m tools.chaos --seconds S --mode process|emulated --seed N`. Killed with
SIGKILL, or stopped with SIGSTOP for up to longer than the expiry: the Resource Manager, Node
Managers, the AM host and the pages. As root, in namespaces of its own: `--loss PERCENT` has
loopback drop so many packets, `--partitions` cuts a part's port off from all others now and then,
and `--disks` puts each node's work on a small disk and fills one now and then (process mode).
Judged from outside: every job must end SUCCEEDED, the
pages must list all of them, and in process mode, by the lines that tasks write, each task finished;
how many did so more than once is told, and for each why, from what the manager recorded
(docs/operations.md lists the causes). A task that was started again after its success was heard is
a broken promise, and so is one that finished again for any cause but a node that was silent for
longer than the expiry. Every such pause costs what the node ran, so that of all tasks finish again
about (duration of a task) / (time between two such pauses of one node): `--long-pauses` says how
many of the breaks are one, `--nodes` over how many nodes they are spread. Half way a node is paused
for so long in any case. Jobs come at a steady pace, whatever is broken meanwhile. `--keep FOLDER`
keeps logs and events.
"""

import argparse
import contextlib
import itertools
import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from testkit.live import Cluster, Part, until, wait_for_nodes
from weft.client.api import Client
from weft.model.errors import WeftError
from weft.model.job import Edge, Job, Stage

EXPIRY_S = 6.0
# Shares of kills and long pauses among the breaks; the others are pauses of 1 s.
KILLS, LONG_PAUSES = 0.65, 0.175
NODES, JOB_EVERY_S = 3, 2.0
NODE = "1x8vcores,16384memory_mb,800disk_mbps,1000network_mbps"
ENDED = ("FINISHED", "FAILED", "KILLED")
# The jobs that still run when nothing breaks any more get so long to end.
DRAIN_S = 240.0
# The pages get so long to hear of the last of them.
PAGES_WAIT_S = 60.0
# The disk of a node is so large where disks are filled, and stays full for so long.
DISK_MB = 16
FULL_S = 3.0
# Of the breaks so many are partitions, and of those of nodes full disks.
OWN_SHARE = 0.3


@dataclass
class Chaos:
    """One run: the cluster, who breaks what, what was submitted.

    `causes` tells why tasks finished again; once `over` is set, no more jobs come.
    """

    cluster: Cluster
    mode: str
    seed: int
    nodes: int = NODES
    long_pauses: float = LONG_PAUSES
    partitions: bool = False
    disks: bool = False
    expiry_s: float = EXPIRY_S
    events: Counter[str] = field(default_factory=Counter)
    parts: dict[str, Part] = field(default_factory=dict)
    apps: list[int] = field(default_factory=list)
    jobs: dict[int, Job] = field(default_factory=dict)
    causes: list[str] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    @property
    def ends(self) -> Path:
        """Path where tasks say that they finished."""
        return self.cluster.folder / "ends"

    def start(self, name: str) -> None:
        """Start a part, at the address that it had before."""
        flags = []
        if name in self.parts:
            flags.append(f"--port={self.parts[name].address.rpartition(':')[2]}")
        manager = self.parts.get("rm")
        if name == "rm":
            part = self.cluster.manager(
                f"--state-dir={self.cluster.folder / 'state'}",
                f"--node-expiry-s={self.expiry_s}",
                f"--master-expiry-s={self.expiry_s}",
                "--max-attempts=200",
                "--pace=prompt",
                *flags,
            )
        elif name == "am":
            assert manager is not None
            part = self.cluster.host(manager, *flags)
        elif name == "web":
            assert manager is not None
            part = self.cluster.pages(manager, *flags)
        else:
            assert manager is not None
            mine = [f"--am-host={self.parts['am'].address}", f"--node-name={name}", *flags]
            if self.mode == "process":
                mine += ["--mode=process", f"--work-dir={self.cluster.folder / 'work'}"]
            if self.disks:
                mine += ["--disk-free-mb=0"]
            part = self.cluster.nodes(manager, f"--cluster={NODE}", *mine)
        self.parts[name] = part

    def begin(self) -> None:
        """Start everything."""
        self.ends.mkdir()
        for number in range(self.nodes if self.disks else 0):
            disk = self.disk(f"n{number}")
            disk.mkdir(parents=True)
            small = ["-t", "tmpfs", "-o", f"size={DISK_MB}m", "tmpfs", str(disk)]
            subprocess.run(["mount", *small], check=True)
        for name in ("rm", "am", "web", *(f"n{i}" for i in range(self.nodes))):
            self.start(name)
        with Client(self.parts["rm"].address) as client:
            wait_for_nodes(client, self.nodes)

    def disk(self, name: str) -> Path:
        """Return the folder that a node's disk is mounted on."""
        return self.cluster.folder / "work" / name

    def fill(self, name: str) -> None:
        """Fill a node's disk, for a while; the node must say so meanwhile."""
        self.events["fill a disk"] += 1
        path = self.disk(name) / "fill"
        with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(65_536))
        time.sleep(FULL_S)
        with contextlib.suppress(WeftError), Client(self.parts["rm"].address, 2.0) as client:
            for node in client.nodes():
                if node.node_id == name and node.state == "UNHEALTHY":
                    self.events["a full disk was told"] += 1
        path.unlink()

    def cut_off(self, name: str, *, long: bool) -> None:
        """Let nothing reach a part by its port, nor leave it, for longer than the expiry or not."""
        kind = "beyond" if long else "within"
        self.events[f"partition {_role(name)} {kind} the expiry"] += 1
        port = self.parts[name].address.rpartition(":")[2]
        rules = [["INPUT", "-p", "tcp", way, port, "-j", "DROP"] for way in ("--dport", "--sport")]
        for rule in rules:
            subprocess.run(["iptables", "-w", "-I", *rule], check=True)
        time.sleep(self.expiry_s * 1.3 if long else 1.0)
        for rule in rules:
            subprocess.run(["iptables", "-w", "-D", *rule], check=True)

    def job(self, number: int) -> Job:
        """Return three stages; each task says once that it finished, in one write."""

        def stage(name: str, tasks: int, *parents: str) -> Stage:
            line = "$WEFT_STAGE.$WEFT_TASK $WEFT_CONTAINER $(date +%s.%N)"
            say = f'sleep 0.2; echo "{line}" >> {self.ends}/{number}'
            real = ("sh", "-c", say) if self.mode == "process" else ()
            demand = {"vcores": 1.0, "memory_mb": 512.0}
            return Stage(name, tasks, 0.5, demand, tuple(Edge(p) for p in parents), command=real)

        stages = (stage("a", 6), stage("b", 4, "a"), stage("c", 1, "b"))
        return Job(f"chaos-{number}", stages, max_task_attempts=50)

    def submit(self, client: Client) -> None:
        """Submit one more job, however often the manager goes down meanwhile."""
        number = len(self.apps)
        job = self.job(number)
        app = client.submit(job, submission_id=f"chaos-{number}")
        self.apps.append(app)
        self.jobs[app] = job

    def submit_steadily(self) -> None:
        """Submit one job after the other until it is `over`, in a thread of its own."""
        with Client(self.parts["rm"].address) as client:
            while not self.over.is_set():
                self.submit(client)
                self.over.wait(JOB_EVERY_S)

    def break_something(self, rng: random.Random) -> None:
        """Kill a part and start it again, or let it stand still."""
        name = rng.choice(["rm", "rm", "am", "web", *(f"n{i}" for i in range(self.nodes))])
        part = self.parts[name]
        role = _role(name)
        if self.partitions and rng.random() < OWN_SHARE:
            self.cut_off(name, long=rng.random() < self.long_pauses)
            return
        if self.disks and role == "nm" and rng.random() < OWN_SHARE:
            self.fill(name)
            return
        kind = rng.random()
        if kind < KILLS:
            self.events[f"kill {role}"] += 1
            part.kill()
            time.sleep(rng.choice([0.0, 0.3, 1.5]))
            self.start(name)
            return
        self.pause(name, long=kind >= 1.0 - self.long_pauses)

    def pause(self, name: str, *, long: bool) -> None:
        """Let a part stand still, for longer than the expiry or not."""
        part = self.parts[name]
        self.events[f"pause {_role(name)} {'beyond' if long else 'within'} the expiry"] += 1
        part.process.send_signal(signal.SIGSTOP)
        time.sleep(self.expiry_s * 1.3 if long else 1.0)
        part.process.send_signal(signal.SIGCONT)

    def judge(self) -> list[str]:
        """Return what is wrong; empty: nothing."""
        wrong = []
        until = time.monotonic() + DRAIN_S
        with Client(self.parts["rm"].address) as client:
            for app in self.apps:
                report = client.application(app)
                while report.state not in ENDED and time.monotonic() < until:
                    time.sleep(0.1)
                    report = client.application(app)
                if report.final_status != "SUCCEEDED":
                    wrong.append(f"application {app}: {report.state}: {report.diagnostics}")
        wrong += self._judge_pages()
        if self.mode == "process":
            wrong += self._judge_files()
        return wrong

    def _judge_pages(self) -> list[str]:
        """Return what is wrong with the pages: they must list every application as ended."""
        url = f"http://{self.parts['web'].address}/ws/v1/cluster/apps"
        until, found = time.monotonic() + PAGES_WAIT_S, 0
        while time.monotonic() < until:
            try:
                with urllib.request.urlopen(url, timeout=10) as answer:
                    apps = json.load(answer)["apps"]["app"]
            except OSError:
                # The pages may just have begun to serve.
                apps = []
            found = sum(app["state"] == "FINISHED" for app in apps)
            if found == len(self.apps):
                return []
            time.sleep(0.2)
        return [f"the pages list {found} of {len(self.apps)} applications as FINISHED"]

    def _judge_files(self) -> list[str]:
        wrong: list[str] = []
        total = twice = 0
        # For each container, the first end that was heard of.
        closed: dict[int, dict[str, Any]] = {}
        placed: dict[int, float] = {}
        events = self.cluster.events()
        for event in events:
            if event["fact"] == "Closed":
                closed.setdefault(event["container"], event)
            elif event["fact"] == "Placed":
                placed.setdefault(event["container"], event["now_s"])
        for number, app in enumerate(self.apps):
            path = self.ends / str(number)
            ends = [End.of(line) for line in path.read_text().splitlines()] if path.exists() else []
            for stage in self.jobs[app].stages:
                for task in range(stage.tasks):
                    total += 1
                    name = f"{stage.name}.{task}"
                    mine = sorted(end for end in ends if end.task == name)
                    twice += max(0, len(mine) - 1)
                    if not mine:
                        wrong.append(f"application {app}: {name} never finished")
                    for end, later in pairwise(mine):
                        heard = closed.get(end.container) or unheard(end, events, self.expiry_s)
                        cause = why(end, heard)
                        self.causes.append(f"application {app}, {name}: {cause}")
                        if not excused(end, heard, self.expiry_s):
                            wrong.append(f"application {app}: {name} finished again: {cause}")
                        if (
                            heard["outcome"] == "SUCCEEDED"
                            and placed.get(later.container, 0.0) > heard["now_s"]
                        ):
                            wrong.append(f"application {app}: {name} after its success was heard")
        self.events["tasks"] += total
        self.events["tasks finished again"] += twice
        return wrong


class End(NamedTuple):
    """A task's own word that it finished."""

    at_s: float
    task: str
    container: int

    @classmethod
    def of(cls, line: str) -> "End":
        """Return what one line says."""
        task, container, at = line.split()
        _, _, app, attempt, number = container.split("_")
        return cls(float(at), task, (int(app) << 8 | int(attempt)) << 32 | int(number))


def _role(name: str) -> str:
    return name if name in ("rm", "am", "web") else "nm"


def unheard(end: End, events: Sequence[Mapping[str, Any]], expiry_s: float) -> dict[str, Any]:
    """Return what a manager that started anew would say of a container which it never knew.

    Its node was back too late, or in time.
    """
    nodes = (e["node"] for e in events if e["fact"] == "TaskStarted")
    started = (e["container"] for e in events if e["fact"] == "TaskStarted")
    node = dict(zip(started, nodes, strict=True)).get(end.container, "?")
    back = (
        e["now_s"]
        for e in events
        if e["fact"] == "NodeChanged" and e["node"] == node and e["state"] == "RUNNING"
    )
    back_s = next((at_s for at_s in back if at_s > end.at_s), math.inf)
    late = "was silent for" if back_s - end.at_s >= expiry_s else "came back within"
    text = f"its node {late} {back_s - end.at_s:.1f} s, to a manager that started anew"
    return {"node": node, "outcome": "LOST", "message": text, "now_s": back_s}


def excused(end: End, heard: Mapping[str, Any], expiry_s: float) -> bool:
    """Return whether a task was given up with a node silent for longer than the expiry.

    Node Managers that were killed are back before, and know how their tasks ended. A success that
    was heard so late was of such a node, too, whatever the manager had been told of it before.
    """
    given_up = heard["outcome"] == "LOST" and "was silent for" in heard["message"]
    return given_up or heard["now_s"] - end.at_s >= expiry_s


def why(end: End, heard: Mapping[str, Any]) -> str:
    """Return why a task that finished was run again."""
    before_s = end.at_s - heard["now_s"]
    when = "after" if before_s > 0 else "before"
    text = f"{heard['node']}: finished {abs(before_s):.2f} s {when} the manager heard"
    return f"{text} {heard['outcome']} {heard['message']}".rstrip()


def run(
    folder: Path,
    mode: str,
    seconds: float,
    seed: int,
    long_pauses: float = LONG_PAUSES,
    nodes: int = NODES,
    partitions: bool = False,
    disks: bool = False,
    expiry_s: float = EXPIRY_S,
    breaks: int = 0,
) -> tuple[Chaos, list[str]]:
    """Break things for so many s; return what happened, and what is wrong.

    With `breaks`, so many times instead, and how long that takes is up to the host.
    """
    rng = random.Random(seed)
    cluster = Cluster(folder)
    chaos = Chaos(cluster, mode, seed, nodes, long_pauses, partitions, disks, expiry_s)
    jobs = ThreadPoolExecutor(1)
    try:
        chaos.begin()
        coming = jobs.submit(chaos.submit_steadily)
        until(lambda: chaos.apps or coming.done(), "the first job is accepted")
        began_s, half = time.monotonic(), False
        for number in itertools.count():
            over = number / breaks if breaks else (time.monotonic() - began_s) / seconds
            if over >= 1.0:
                break
            time.sleep(rng.random())
            if not half and over >= 0.5:
                half = True
                chaos.pause(rng.choice([f"n{i}" for i in range(nodes)]), long=True)
            else:
                chaos.break_something(rng)
        chaos.over.set()
        coming.result()
        wrong = chaos.judge()
    finally:
        chaos.over.set()
        jobs.shutdown()
        cluster.close()
        for number in range(nodes if disks else 0):
            subprocess.run(["umount", "-l", str(chaos.disk(f"n{number}"))], check=False)
    chaos.events["jobs"] = len(chaos.apps)
    return chaos, wrong


def drop_packets(percent: float) -> str:
    """Make loopback lose packets, each way; return how, or "" where this host cannot.

    Only ever called in a network namespace of our own.
    """
    by_queue = ["tc", "qdisc", "add", "dev", "lo", "root", "netem", "loss", f"{percent}%"]
    by_filter = [
        "iptables",
        "-A",
        "INPUT",
        "-i",
        "lo",
        "-p",
        "tcp",
        "-m",
        "statistic",
        "--mode",
        "random",
        "--probability",
        str(percent / 100),
        "-j",
        "DROP",
    ]
    for way in (by_queue, by_filter):
        if (
            shutil.which(way[0])
            and not subprocess.run(way, check=False, capture_output=True).returncode
        ):
            return way[0]
    return ""


def _inside_namespace(arguments: list[str]) -> int:
    """Run this again in a network namespace of its own."""
    tools = ["unshare", "ip", *(["iptables"] if "--partitions" in arguments else [])]
    if os.geteuid() or not all(map(shutil.which, tools)):
        print(f"this needs root and {', '.join(tools)}", file=sys.stderr)
        return 2
    command = [
        "unshare",
        "--net",
        "--mount",
        sys.executable,
        "-m",
        "tools.chaos",
        *arguments,
        "--inside",
    ]
    return subprocess.run(command, check=False).returncode


def main() -> int:
    """Run and print what happened; 1 where a promise was broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--mode", choices=["process", "emulated"], default="process")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--loss", type=float, default=0.0, help="Percent of packets (root).")
    parser.add_argument("--partitions", action="store_true", help="Cut parts off (root).")
    parser.add_argument("--disks", action="store_true", help="Fill nodes' disks (root, process).")
    parser.add_argument(
        "--long-pauses",
        type=float,
        default=LONG_PAUSES,
        metavar="PART",
        help="Of all breaks so many are pauses beyond the expiry.",
    )
    parser.add_argument("--nodes", type=int, default=NODES, help="Node managers.")
    parser.add_argument("--keep", default="", help="A new folder for logs and events.")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    disks = given.disks and given.mode == "process"
    if (given.loss or given.partitions or disks) and not given.inside:
        return _inside_namespace(sys.argv[1:])
    if given.inside:
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    way = drop_packets(given.loss) if given.loss else ""
    if given.loss and not way:
        print("this host's kernel drops no packets on order", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="weft-chaos-") as made:
        folder = Path(given.keep or made)
        if given.keep:
            # The folder must be new, as this run would take another one's files for its own.
            folder.mkdir(parents=True)
        chaos, wrong = run(
            folder,
            given.mode,
            given.seconds,
            given.seed,
            given.long_pauses,
            given.nodes,
            given.partitions,
            disks,
        )
    lossy = f", {given.loss:g} % of packets dropped by {way}" if way else ""
    print(f"{given.mode}, seed {given.seed}{lossy}: {dict(sorted(chaos.events.items()))}")
    if chaos.events["tasks"]:
        share = 1000 * chaos.events["tasks finished again"] / chaos.events["tasks"]
        print(f"finished again: {share:.1f} of 1,000 tasks")
    for line in chaos.causes:
        print(f"  finished again: {line}")
    for line in wrong:
        print(line, file=sys.stderr)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
