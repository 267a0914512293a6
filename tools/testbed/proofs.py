"""The promises: each is a function that makes something happen and holds what was recorded to it.

Each answers one line about what was seen, for the summary.
"""

import hashlib
import json
import re
import shutil
import urllib.request
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from sim.replay.verify import Replay
from testkit.live import assert_ran_right
from tools.testbed.bed import COUNT, MEMORY_MB, Bed, Gate
from tools.testbed.host import Host
from tools.testbed.words import NEXT_WHEELHOUSE, RESULT, WHEELHOUSE, hold, until
from weft.model.errors import WeftError
from weft.model.ids import app_of_container
from weft.model.job import Edge, Job, Stage
from weft.runtime.tapefile import TapeFile, find_tapes

PYTHON = "/opt/weft/current/bin/python"
LOSS = 0.05
# The tapes are left for `weft replay` and `weft play`.
TAPES_COPIED = RESULT.with_name("tapes")
QUOTA, SMALL_QUOTA, TASK_MB = 0.25, 0.05, 128
BYTES = 4_000_000
# What a task is and is held to, as it sees it from inside; then it computes until 0.1 s of CPU.
REPORT = """
import hashlib, json, os, socket, time
from pathlib import Path
own = dict(line.strip().split(":", 2)[1:] for line in open("/proc/self/cgroup"))
def read(controller, v1, v2):
    for names, path in own.items():
        if controller in names.split(","):
            return open(f"/sys/fs/cgroup/{controller}{path}/{v1}").read()
    return open(f"/sys/fs/cgroup{own['']}/{v2}").read()
began = time.perf_counter()
while time.process_time() < 0.1:
    hashlib.sha256(bytes(100_000)).digest()
stat = dict(line.split() for line in read("cpu", "cpu.stat", "cpu.stat").splitlines())
print(json.dumps({
    "host": socket.gethostname(), "uid": os.getuid(), "group": list(own.values()),
    "memory": int(read("memory", "memory.limit_in_bytes", "memory.max")),
    "quota": int(read("cpu", "cpu.cfs_quota_us", "cpu.max").split()[0]),
    "throttled": int(stat["nr_throttled"]),
}))
"""
WAIT = f"import socket; socket.create_connection(('10.77.0.1', {Gate.PORT})).recv(1)"
# Where tasks are kept apart: reads what is not its own, signals the node manager (process $0), and
# leaves three processes in sessions of their own behind.
SPY = """
echo on $(hostname); [ $(hostname) = {host} ] || exit 0
cat /etc/weft/tls/key.pem /var/lib/weft/nm/*/*/*/mine /var/lib/weft/nm/*/*/*/*/mine
kill -9 $0 && echo KILLED
setsid sh -c 'env -i sleep {mark} & env -i sleep {mark} &' & env -i setsid sleep {mark} & sleep 0.2
echo done
"""
MARK = "4321.25"
HOG = "import time\nx = bytearray(600 << 20)\ntime.sleep(60)"


def installed(bed: Bed) -> str:
    """Prove that the role installs on four hosts, and a second run finds nothing to do."""
    bed.ansible.play("install.yml")
    bed.wait_for_nodes()
    release = (WHEELHOUSE / "RELEASE").read_text().strip()
    pids = bed.manager_pids()
    for host in bed.hosts:
        user = host.run("ps", "-o", "user=", "-p", pids[host.name]).strip()
        hold(user == "weft", f"the node manager of {host.name} is the user weft's, not {user}'s")
        hold(runs(host) == release, f"{host.name} runs {runs(host)}")
    url = f"http://{bed.hosts[0].address}:8088/ws/v1/cluster/nodes"
    nodes = until(lambda: fetched(url), "the pages are served")["nodes"]["node"]
    hold({node["state"] for node in nodes} == {"RUNNING"}, f"the pages say: {nodes}")
    again = bed.ansible.play("install.yml", "--limit", "localhost,h1")
    hold(again["h1"].changed == 0, f"a second run changed {again['h1'].changed} things")
    hold(bed.manager_pids() == pids, "a second run started a node manager again")
    return f"release {release}, user weft, mutual TLS, pages; a second run changed nothing"


def limited_job(bed: Bed) -> str:
    """Prove that fifty real commands run once each, in order, within limits, over a lossy link."""
    lossy = bed.hosts[2]
    demand = {"vcores": QUOTA, "memory_mb": float(TASK_MB)}
    # A busy machine would give it more than this anyhow.
    small = demand | {"vcores": SMALL_QUOTA}
    digest = f"head -c {BYTES} /dev/zero | sha256sum | cut -d' ' -f1"
    command = ("sh", "-c", f'{digest}; exec {PYTHON} -c "$0"', REPORT)
    job = Job(
        "fifty",
        (
            Stage("hash", 40, 1.0, demand, command=command),
            Stage("check", 10, 1.0, small, parents=(Edge("hash"),), command=command),
        ),
    )
    lossy.lose(LOSS)
    app = bed.client.submit(job)
    report = bed.ended(app)
    dropped = lossy.dropped()
    lossy.lose(LOSS, begin=False)
    hold(report.final_status == "SUCCEEDED", f"the job {report.final_status}: {report.diagnostics}")
    hold(dropped > 0, "the lossy link lost nothing")
    assert_ran_right(bed.cluster.events(), app, job, MEMORY_MB)
    text = bed.weft("logs", report_name(bed, app))
    seen = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    digests = re.findall(r"^[0-9a-f]{64}$", text, re.M)
    hold(digests == [hashlib.sha256(bytes(BYTES)).hexdigest()] * 50, "50 right digests")
    hold(len(seen) == 50, f"{len(seen)} tasks reported")
    hosts = Counter(task["host"] for task in seen)
    hold(set(hosts) == {host.name for host in bed.hosts}, f"all hosts took part: {hosts}")
    for task in seen:
        hold(task["memory"] == TASK_MB << 20, f"a task's memory limit: {task}")
        hold(task["uid"] != 0, f"a task ran as root: {task}")
        inside = any(f"/{task['host']}/weft/" in group for group in task["group"])
        hold(inside, f"a task ran outside of its host's groups: {task}")
    quotas = Counter(task["quota"] for task in seen)
    hold(quotas == {QUOTA * 100_000: 40, SMALL_QUOTA * 100_000: 10}, f"CPU quotas: {quotas}")
    throttled = sum(task["throttled"] for task in seen)
    hold(throttled > 0, "no task was held to its quota")
    until(lambda: not own_groups(bed), "nothing is left in the tasks' groups")
    by_host = ", ".join(f"{name} {count}" for name, count in sorted(hosts.items()))
    return (
        f"50 tasks once each, in order ({by_host}); {TASK_MB} MB and {QUOTA} or {SMALL_QUOTA} cores"
        f" each, throttled {throttled} times; {lossy.name} lost {dropped} packets"
    )


def partitioned(bed: Bed) -> str:
    """Prove that a host cut off is LOST, alone; its tasks run elsewhere; it is used again."""
    host = bed.hosts[1]
    bed.gate.shut()
    app = bed.client.submit(waiting("cut", 4 * COUNT))
    all_wait(bed, app, 4 * COUNT)
    held = {node.node_id: node.containers for node in bed.client.nodes()}
    host.cut(True)
    until(lambda: bed.states()[host.name] == "LOST", f"{host.name} is LOST")
    others = {name: state for name, state in bed.states().items() if name != host.name}
    hold(set(others.values()) == {"RUNNING"}, f"it alone is LOST: {others}")
    bed.gate.open()
    report = bed.ended(app)
    hold(report.final_status == "SUCCEEDED", f"the job {report.final_status}: {report.diagnostics}")
    hold(bed.states()[host.name] == "LOST", f"{host.name} was cut off until the job's end")
    host.cut(False)
    until(lambda: bed.states()[host.name] == "RUNNING", f"{host.name} is back")
    states = [fact["state"] for fact in bed.facts("NodeChanged") if fact["node"] == host.name]
    hold(states[-2:] == ["LOST", "RUNNING"], f"recorded: {states}")
    until(lambda: not running(bed, app), "what it ran for the old attempt is stopped")
    until(lambda: not own_groups(bed), "nothing is left in its groups")
    bed.gate.shut()
    after = bed.client.submit(waiting("after", 4 * COUNT))
    all_wait(bed, after, 4 * COUNT)
    used = Counter(fact["node"] for fact in running(bed, after))
    bed.gate.open()
    ended = bed.ended(after)
    hold(ended.final_status == "SUCCEEDED", f"the next job {ended.final_status}")
    hold(used[host.name] > 0, f"{host.name} is used again: {used}")
    return (
        f"{host.name} LOST with {held[host.name]} containers, the others RUNNING, the job "
        f"SUCCEEDED; back RUNNING by itself, {used[host.name]} tasks of the next job"
    )


def hog(bed: Bed) -> str:
    """Prove that a task over its memory limit is killed alone, beside others on every host."""
    before = bed.manager_pids()
    bed.gate.shut()
    # Three hosts have room for twelve, so the hog is never alone.
    count = 3 * COUNT + 1
    good = bed.client.submit(waiting("innocents", count))
    all_wait(bed, good, count)
    demand = {"vcores": 0.9, "memory_mb": 64.0}
    stage = Stage("eat", 1, 1.0, demand, command=(PYTHON, "-c", HOG))
    bad = bed.client.submit(Job("hog", (stage,), max_task_attempts=1))
    ended = bed.ended(bad)
    beside = running(bed, good)
    hold(len(beside) == count, f"{len(beside)} of {count} others still run")
    bed.gate.open()
    others = bed.ended(good)
    hold(ended.final_status == "FAILED", f"the hog {ended.final_status}")
    hold("out of memory" in ended.diagnostics.lower(), f"the hog's end: {ended.diagnostics}")
    hold(others.final_status == "SUCCEEDED", f"the others {others.final_status}")
    stops = bed.facts("TaskStopped")
    mine = [fact for fact in stops if app_of_container(fact["container"]) == bad]
    eaten = [fact for fact in mine if fact["stage"] >= 0]
    hold([fact["outcome"] for fact in eaten] == ["OUT_OF_MEMORY"], f"recorded: {eaten}")
    killed = [fact for fact in stops if fact["outcome"] == "OUT_OF_MEMORY"]
    hold(len(killed) == 1, f"killed for memory: {killed}")
    ends = Counter(
        fact["outcome"]
        for fact in stops
        if app_of_container(fact["container"]) == good and fact["stage"] >= 0
    )
    hold(ends == {"SUCCEEDED": count}, f"the others' ends: {ends}")
    hold(bed.manager_pids() == before, "every node manager is the process that it was")
    neighbours = sum(fact["node"] == eaten[0]["node"] for fact in beside)
    hold(neighbours > 0, "the hog had no neighbour")
    return (
        f"OUT_OF_MEMORY on {eaten[0]['node']} beside {neighbours} of {count} others, which "
        "all SUCCEEDED; no node manager was harmed"
    )


def kept_apart(bed: Bed) -> str:
    """Prove that a sandboxed task reads no key or other task's files, and leaves no process."""
    host, before = bed.hosts[1], bed.manager_pids()
    bed.gate.shut()
    secret = f'echo the-secret-of-a-task > mine; exec {PYTHON} -c "$0"'
    demand = {"vcores": 0.9, "memory_mb": 64.0}
    stage = Stage("wait", 4 * COUNT, 1.0, demand, command=("sh", "-c", secret, WAIT))
    good = bed.client.submit(Job("victims", (stage,)))
    all_wait(bed, good, 4 * COUNT)
    until(lambda: len(secrets(host)) == COUNT, f"the tasks of {host.name} have a secret")
    script = SPY.format(host=host.name, mark=MARK)
    # Four fit beside the others of each host.
    small = {"vcores": 0.09, "memory_mb": 64.0}
    stage = Stage("spy", 4 * COUNT, 1.0, small, command=("sh", "-c", script, before[host.name]))
    spies = bed.ended(app := bed.client.submit(Job("spies", (stage,))))
    hold(spies.final_status == "SUCCEEDED", f"the spies {spies.final_status}: {spies.diagnostics}")
    text = bed.weft("logs", report_name(bed, app))
    there = text.count(f"on {host.name}\n")
    hold(there > 0 and text.count("done\n") == there, f"spies on {host.name}: {text}")
    for word in ("PRIVATE KEY", "the-secret", "KILLED"):
        hold(word not in text, f"a task saw or did what it may not, {word}: {text}")
    left = [line for line in host.processes() if MARK in line]
    hold(not left, f"tasks left processes behind: {left}")
    hold(bed.manager_pids() == before, "every node manager is the process that it was")
    bed.gate.open()
    victims = bed.ended(good)
    hold(victims.final_status == "SUCCEEDED", f"the others {victims.final_status}")
    return (
        f"{there} tasks in a sandbox on {host.name} read neither the node's key nor what {COUNT} "
        "others wrote there, signalled nobody, and left no process behind"
    )


def upgraded(bed: Bed) -> str:
    """Prove that a node is drained, upgraded and let in again: tasks end, no new ones come."""
    host, other = bed.hosts[0], bed.hosts[1]
    old, new = (
        (folder / "RELEASE").read_text().strip() for folder in (WHEELHOUSE, NEXT_WHEELHOUSE)
    )
    before = bed.manager_pids()
    bed.gate.shut()
    app = bed.client.submit(waiting("through", 4 * COUNT + 4))
    all_wait(bed, app, 4 * COUNT)
    with ThreadPoolExecutor(1) as pool:
        playing = pool.submit(
            bed.ansible.play,
            "upgrade.yml",
            "--limit",
            host.name,
            weft_wheelhouse=str(NEXT_WHEELHOUSE),
        )
        try:
            until(
                lambda: playing.done() or bed.states()[host.name] == "DECOMMISSIONING",
                f"{host.name} is drained",
            )
            held = [fact for fact in running(bed, app) if fact["node"] == host.name]
        finally:
            bed.gate.open()
        playing.result()
    report = bed.ended(app)
    hold(report.final_status == "SUCCEEDED", f"the job {report.final_status}: {report.diagnostics}")
    hold(held, f"{host.name} ran nothing when it was drained")
    ends = Counter(
        fact["outcome"]
        for fact in bed.facts("TaskStopped")
        if app_of_container(fact["container"]) == app and fact["stage"] >= 0
    )
    hold(ends == {"SUCCEEDED": 4 * COUNT + 4}, f"the tasks' ends: {ends}")
    placed = 0
    states: list[str] = []
    for fact in bed.facts("NodeChanged", "Placed"):
        if fact["node"] == host.name and fact["fact"] == "NodeChanged":
            if states[-1:] != [fact["state"]]:
                # A new process reports its state again, so only changes count.
                states.append(fact["state"])
        elif fact["node"] == host.name and states[-1].startswith("DECOMMISSION"):
            placed += 1
    way = ["RUNNING", "DECOMMISSIONING", "DECOMMISSIONED", "RUNNING"]
    hold(states[-4:] == way, f"recorded: {states}")
    hold(placed == 0, f"{placed} containers were placed on a node that was drained")
    hold(runs(host) == new, f"{host.name} runs {runs(host)}")
    hold(runs(other) == old, f"{other.name} runs {runs(other)}")
    after = bed.manager_pids()
    changed = [name for name in after if after[name] != before[name]]
    hold(changed == [host.name], f"node managers that were started again: {changed}")
    return (
        f"{host.name} finished its {len(held)} tasks, got nothing new, and came back with {new}; "
        f"all {ends['SUCCEEDED']} tasks of the job ran once"
    )


def replayed(bed: Bed) -> str:
    """Prove that every process kept a tape, and cores made of it decide as on the hosts."""

    def replays() -> list[tuple[TapeFile, Replay]]:
        shutil.rmtree(TAPES_COPIED, ignore_errors=True)
        bed.copy_tapes(TAPES_COPIED)
        # A block may be copied while it is being written.
        with suppress(WeftError):
            return [(tape, Replay().run(tape.rows())) for tape in find_tapes(TAPES_COPIED)]
        return []

    found = until(replays, "all tapes can be read")
    for tape, run in found:
        hold(run.difference is None, f"{tape.path.name}: {run.difference}")
    count = Counter(tape.role for tape, _ in found)
    hold(count["rm"] == 1 and count["am"] == 1 and count["nm"] > COUNT, f"tapes of all: {count}")
    placed, events = sum(run.placements for _, run in found), sum(run.events for _, run in found)
    hold(placed > 0, "something was placed")
    return f"{len(found)} tapes, {events} events, {placed} placements: all decided the same"


def uninstalled(bed: Bed) -> str:
    """Prove that nothing is left of Weft on any host: no file, no user, no process."""
    bed.ansible.play("uninstall.yml")
    bed.wait_for_nodes("SHUTDOWN")
    for host in bed.hosts:
        hold(not host.written("weft"), f"left on {host.name}: {host.written('weft')}")
        passwd = host.path("/etc/passwd").read_text()
        hold("weft" not in passwd, f"the user is left on {host.name}")
        hold(not host.processes(), f"left running on {host.name}: {host.processes()}")
        hold(not bed.groups.left(host.name), f"groups are left of {host.name}")
    bed.ansible.play("uninstall.yml", "--limit", "h1", weft_drain=False)
    return "all SHUTDOWN; no file, user, process or group left; a second run is content"


PROOFS = (
    installed,
    limited_job,
    partitioned,
    hog,
    kept_apart,
    upgraded,
    replayed,
    uninstalled,
)


# -- what they share -------------------------------------------------------------------------------


def runs(host: Host) -> str:
    """Return the release that a host's node manager was started from."""
    pid = host.run("/opt/weft/weft-service", "pid", "nm").strip()
    return next(
        (
            part.removeprefix("/opt/weft/releases/").split("/")[0]
            for part in host.run("cat", f"/proc/{pid}/maps").split()
            if part.startswith("/opt/weft/releases/")
        ),
        "nothing of the role's",
    )


def fetched(url: str) -> Any:
    """Return what a page of data says; None while it is not there."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=10) as answer:
            return json.load(answer)
    except OSError:
        return None


def report_name(bed: Bed, app: int) -> str:
    """Return YARN's name of an application."""
    from weft.model.ids import format_app

    return format_app(bed.client.cluster_ts, app)


def waiting(name: str, tasks: int) -> Job:
    """Return tasks that wait for the gate; four fill a host."""
    demand = {"vcores": 0.9, "memory_mb": 64.0}
    stage = Stage("wait", tasks, 1.0, demand, command=(PYTHON, "-c", WAIT))
    return Job(name, (stage,))


def running(bed: Bed, app: int) -> list[dict[str, Any]]:
    """Return tasks of an application that node managers started and did not end."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for fact in bed.facts("TaskStarted", "TaskStopped"):
        if fact["stage"] < 0 or app_of_container(fact["container"]) != app:
            continue
        key = (fact["container"], fact["stage"], fact["task"], fact["attempt"])
        if fact["fact"] == "TaskStarted":
            found[key] = fact
        else:
            found.pop(key, None)
    return list(found.values())


def all_wait(bed: Bed, app: int, count: int) -> None:
    """Wait until every task of an application runs."""
    until(lambda: len(running(bed, app)) == count, f"{count} tasks run")


def secrets(host: Host) -> list[str]:
    """Return files of secrets below a node's folder, as the host's administrator finds them."""
    return host.run("find", "/var/lib/weft/nm", "-name", "mine").split()


def own_groups(bed: Bed) -> list[str]:
    """Return groups of containers in which something runs: empty ones wait for others' tasks."""
    return [
        path
        for host in bed.hosts
        for path in bed.groups.left(host.name)
        if "container" in path and _runs_in(Path(path))
    ]


def _runs_in(group: Path) -> bool:
    try:
        return bool((group / "cgroup.procs").read_text().strip())
    except OSError:
        # The group went meanwhile.
        return False
