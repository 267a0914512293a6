"""Kill the leading Resource Manager again and again under load: is anything lost, or run twice?

`make failover` (NODES=300 JOBS=50 KILLS=20): two managers over an etcd, emulated nodes and hosted
masters on loopback. Each time the leader is killed by SIGKILL, the time is told until the other one
accepts a job, and until every node is with it. Then the leader is paused for 30 s and woken, and
etcd is killed and started again. In the end every task of every job must have succeeded exactly
once, by what the nodes recorded.
"""

import argparse
import signal
import statistics
import sys
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

from testkit.live import recorded
from tools.waiting import wait
from weft.client.api import Client, RefusedError
from weft.client.local import LocalCluster, LocalSettings
from weft.model.errors import WeftError
from weft.model.ids import app_of_container
from weft.model.job import Edge, Job, Stage

# Once the leader is lost, a new one must accept a job within this time.
ACCEPTED_AGAIN_WITHIN_S = 10.0
PAUSE_S = 30.0
TASKS_PER_STAGE, TASK_S = 20, 2.0
# The load must last as long as the kills.
STAGES_PER_KILL = 5
NODE = "16vcores,65536memory_mb"


def job(name: str, stages: int, tasks: int, duration_s: float) -> Job:
    """Return stages behind each other."""
    demand = {"vcores": 1.0, "memory_mb": 1024.0}
    return Job(
        name,
        tuple(
            Stage(f"s{n}", tasks, duration_s, demand, (Edge(f"s{n - 1}"),) if n else ())
            for n in range(stages)
        ),
    )


class Run:
    """A cluster under load, and what was asked of it."""

    def __init__(self, cluster: LocalCluster, client: Client, nodes: int) -> None:
        self.cluster = cluster
        self.client = client
        self.nodes = nodes
        # Each application must run so many tasks.
        self.wanted: dict[int, int] = {}
        self.probes = 0

    def submit(self, made: Job) -> None:
        """Submit a job and remember what it owes."""
        self.wanted[self.client.submit(made)] = sum(stage.tasks for stage in made.stages)

    def standing(self, name: str) -> str:
        """Return how a manager stands."""
        with Client(str(self.cluster.ready[name]["address"]), deadline_s=3.0) as client:
            try:
                said = client.manager()
            except WeftError:
                return "UNREACHABLE"
            return said.standing if not said.reason or said.standing == "STANDBY" else said.reason

    def leader(self) -> str:
        """Return the name of the process that leads and serves."""
        found = ""

        def looked() -> bool:
            nonlocal found
            standings = {name: self.standing(name) for name in self.cluster.managers}
            found = next((name for name, said in standings.items() if said == "LEADER"), "")
            return bool(found)

        wait("a manager leads", looked)
        return found

    def served_again(self) -> tuple[float, float]:
        """Return the s until a job is accepted, and until every node is there."""
        began_s = time.monotonic()
        self.probes += 1
        self.submit(job(f"probe {self.probes}", 1, 2, 0.05))
        accepted_s = time.monotonic() - began_s
        count = self.nodes
        wait("nodes", lambda: self.client.metrics().nodes.get("RUNNING", 0) == count)
        return accepted_s, time.monotonic() - began_s

    def kill(self) -> tuple[float, float]:
        """Kill the leader; it stands by again afterwards."""
        name = self.leader()
        self.cluster.processes[name].kill()
        self.cluster.processes[name].wait()
        took = self.served_again()
        self.cluster.start_manager(name)
        wait(f"{name} stands by", lambda: self.standing(name) == "STANDBY")
        return took

    def pause(self) -> tuple[float, float]:
        """Have the leader stand still, and wake it; it must find that another one leads."""
        name = self.leader()
        process = self.cluster.processes[name]
        process.send_signal(signal.SIGSTOP)
        took = self.served_again()
        time.sleep(PAUSE_S - min(PAUSE_S, took[1]))
        process.send_signal(signal.SIGCONT)
        wait(f"{name} stands by", lambda: self.standing(name) == "STANDBY")
        if process.poll() is not None:
            raise SystemExit(f"{name} ended when it was woken")
        return took

    def without_etcd(self, for_s: float) -> tuple[str, float]:
        """Take etcd away; returns what a submission is told, and the s until one is accepted."""
        name = self.leader()
        etcd = self.cluster.processes["etcd"]
        etcd.kill()
        etcd.wait()
        wait("the leader is suspended", lambda: self.standing(name) not in ("LEADER", "STANDBY"))
        told = ""
        try:
            self.client.submit(job("refused", 1, 1, 0.05))
        except RefusedError as error:
            told = str(error)
        # Reads must go on without a leader.
        self.client.applications()
        time.sleep(for_s)
        self.cluster.mend()
        began_s = time.monotonic()
        self.leader()
        self.served_again()
        return told, time.monotonic() - began_s

    def verdict(self) -> list[str]:
        """Return what was lost or ran twice, by what the nodes recorded."""
        ended = self.client.wait(list(self.wanted))
        bad = [
            f"{r.name} {r.final_status}" for r in ended.values() if r.final_status != "SUCCEEDED"
        ]
        counts: Counter[tuple[int, int, int]] = Counter()
        for event in recorded(self.cluster.folder, "nm*.events"):
            if event["fact"] != "TaskStopped" or event["stage"] < 0:
                continue
            if event["outcome"] == "SUCCEEDED":
                counts[app_of_container(event["container"]), event["stage"], event["task"]] += 1
        done = Counter(app for app, _, _ in counts)
        bad += [
            f"application {a}: {done[a]} of {n}" for a, n in self.wanted.items() if done[a] != n
        ]
        bad += [f"task {key} succeeded {n} times" for key, n in counts.items() if n > 1]
        return bad


def main(arguments: list[str]) -> int:
    """Run it, print what it took; 1 where a promise was broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=300)
    parser.add_argument("--jobs", type=int, default=50)
    parser.add_argument("--kills", type=int, default=20)
    given = parser.parse_args(arguments)
    settings = LocalSettings(
        nodes=given.nodes, cluster=f"{given.nodes}x{NODE}", managers=2, events=True, nm_processes=2
    )
    with (
        TemporaryDirectory(prefix="weft-failover-") as folder,
        LocalCluster(settings, Path(folder)) as cluster,
        Client(cluster.address) as client,
    ):
        run = Run(cluster, client, given.nodes)
        stages = max(2, STAGES_PER_KILL * (given.kills + 6))
        for number in range(given.jobs):
            run.submit(job(f"load {number}", stages, TASKS_PER_STAGE, TASK_S))
        wait("tasks run", lambda: client.metrics().containers_running > given.jobs)
        took = []
        for number in range(given.kills):
            took.append(run.kill())
            print(f"kill {number + 1}: accepted {took[-1][0]:.1f} s, nodes {took[-1][1]:.1f} s")
        paused = run.pause()
        print(f"paused {PAUSE_S:g} s: accepted {paused[0]:.1f} s, nodes {paused[1]:.1f} s")
        told, again_s = run.without_etcd(10.0)
        print(f"without etcd: {told}; all nodes {again_s:.1f} s after its return")
        running = client.metrics().containers_running
        bad = run.verdict()
    accepted = [one for one, _ in [*took, paused]]
    slow = [one for one in accepted if one > ACCEPTED_AGAIN_WITHIN_S]
    tasks = sum(run.wanted.values())
    print(f"{len(run.wanted)} jobs, {tasks:,} tasks, {running} running at the last fault")
    print(
        f"a job accepted after {statistics.median(accepted):.1f} s, {max(accepted):.1f} s at most"
    )
    print(f"lost or run again: {len(bad)}")
    for line in bad[:20]:
        print(line)
    return 1 if bad or slow or not told else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
