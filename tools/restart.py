"""How long after a restart of the Resource Manager is everything adopted that ran before?

`make restart` (NODES=1000 JOBS=500): emulated nodes in two processes and hosted masters on
loopback, one container for each of 40 tasks a job. The manager is killed and started again three
times: as it comes, with the masters held back until all nodes are in, and with the nodes held back
for some s. Told are the s from the moment when nobody is held back until every node runs, every
master is registered and every container is in the books, and the manager's CPU time until then.
"""

import argparse
import contextlib
import signal
import sys
import time
from collections.abc import Iterator

import psutil

from tools.waiting import wait
from weft.client.api import Client
from weft.client.local import LocalCluster, LocalSettings
from weft.model.job import Job, Stage

TASKS_PER_JOB = 40
NODE = "24vcores,65536memory_mb"


@contextlib.contextmanager
def held_back(cluster: LocalCluster, role: str) -> Iterator[None]:
    """Have the processes of a role stand still meanwhile."""
    chosen = [p for name, p in cluster.processes.items() if role and name.startswith(role)]
    for process in chosen:
        process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for process in chosen:
            process.send_signal(signal.SIGCONT)


def restart(cluster: LocalCluster, client: Client, late: str, nodes: int, jobs: int) -> str:
    """Kill the manager and start it again; `late`: the role that is held back ("": none)."""
    containers = jobs * (TASKS_PER_JOB + 1)

    def nodes_in() -> bool:
        return client.metrics().nodes.get("RUNNING", 0) == nodes

    def masters_in() -> bool:
        return client.metrics().apps.get("RUNNING", 0) == jobs

    def all_in() -> bool:
        found = client.metrics()
        return found.containers_running == containers and nodes_in() and masters_in()

    with held_back(cluster, late):
        cluster.processes["rm"].kill()
        cluster.processes["rm"].wait()
        began_s = time.monotonic()
        cluster.start_manager()
        ready_s = time.monotonic() - began_s
        if late == "am":
            wait("all nodes are in", nodes_in)
        elif late == "nm":
            # Meanwhile masters say that they are there and what they hold.
            time.sleep(5.0)
    took_s = wait("everything is adopted", all_in)
    used = psutil.Process(cluster.processes["rm"].pid).cpu_times()
    return f"ready after {ready_s:4.1f} s, adopted after {took_s:5.2f} s, CPU {used.user:5.2f} s"


def main() -> int:
    """Fill a cluster, restart its manager in three ways, print a line each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=500)
    given = parser.parse_args()
    nodes, jobs = given.nodes, given.jobs
    stage = Stage("s", TASKS_PER_JOB, 36_000.0, {"vcores": 0.5, "memory_mb": 64.0})
    settings = LocalSettings(cluster=f"{nodes}x{NODE}", nm_processes=2, state=True)
    with LocalCluster(settings) as cluster, Client(cluster.address) as client:
        for number in range(jobs):
            client.submit(Job(f"j{number}", (stage,)))
        wanted = jobs * (TASKS_PER_JOB + 1)
        wait("every task runs", lambda: client.metrics().containers_running == wanted)
        time.sleep(3.0)
        print(f"{nodes} nodes, {jobs} jobs, {wanted} containers")
        for late, how in (("", "as it comes"), ("am", "nodes first"), ("nm", "masters first")):
            print(f"{how:14} {restart(cluster, client, late, nodes, jobs)}", flush=True)
            time.sleep(2.0)
        states = {report.state for report in client.applications()}
        print(f"jobs are {', '.join(sorted(states))}")
    return int(states != {"RUNNING"})


if __name__ == "__main__":
    sys.exit(main())
