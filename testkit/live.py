"""For tests only: a cluster of real processes, and the proofs that its recorded events give."""

import itertools
import json
import os
import subprocess
import time
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from testkit import forked
from weft.client.api import Client
from weft.model.ids import app_of_container
from weft.model.job import Edge, Job, Stage

# This is a limit for what must happen, never a measure, because the machine may be busy.
PATIENCE_S = 120.0


def until(condition: Callable[[], Any], what: str, patience_s: float = PATIENCE_S) -> Any:
    """Wait for a condition; fails naming it."""
    give_up = time.monotonic() + patience_s
    while not (found := condition()):
        assert time.monotonic() < give_up, f"never happened: {what}"
        time.sleep(0.02)
    return found


@dataclass
class Part:
    """One process of the cluster."""

    role: str
    process: forked.Forked | subprocess.Popen[Any]
    ready: dict[str, Any]
    log: Path

    @property
    def address(self) -> str:
        """host:port of its service."""
        return str(self.ready["address"])

    def kill(self) -> None:
        """Kill it as a crash does: no chance to say goodbye."""
        self.process.kill()
        self.process.wait(PATIENCE_S)

    def stop(self) -> int:
        """Stop it as an administrator does, by SIGTERM; return its exit code."""
        self.process.terminate()
        return self.process.wait(PATIENCE_S)


@dataclass
class Cluster:
    """Starts processes and reads what they recorded."""

    folder: Path
    parts: list[Part] = field(default_factory=list)
    # `forked.run` gives a process a command of its own.
    begin: Callable[..., Any] = forked.start
    # Threads may start parts at the same time, so their numbers come from a counter.
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def start(self, role: str, *flags: str) -> Part:
        """Start `python -m <role>` (`testkit.forked`) and wait until it is ready."""
        number = next(self.numbers)
        log = self.folder / f"{number}-{role}.log"
        flags = ("--host=127.0.0.1", f"--die-with={os.getpid()}", "--check", *flags)
        if not any(flag.startswith("--port") for flag in flags):
            flags = ("--port=0", *flags)
        events = f"--events={self.folder / f'{number}-{role}.jsonl'}"
        with log.open("w") as stderr:
            process = self.begin(
                role,
                [*flags, "--metrics-port=0", events],
                stdout=subprocess.PIPE,
                stderr=stderr,
                folder=self.folder,
            )
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, f"{role} did not start: {log.read_text()}"
        part = Part(role, process, json.loads(line), log)
        self.parts.append(part)
        return part

    def manager(self, *flags: str) -> Part:
        """Start a Resource Manager."""
        return self.start("rm", "--resend-after-s=1", *flags)

    def host(self, manager: Part, *flags: str) -> Part:
        """Start an AM host."""
        return self.start("am", "--hosting", f"--manager={manager.address}", "--resend-s=1", *flags)

    def pages(self, manager: Part, *flags: str) -> Part:
        """Start the pages and YARN's REST API."""
        return self.start("weft.web", f"--manager={manager.address}", *flags)

    def nodes(self, manager: Part, *flags: str) -> Part:
        """Start a process of node managers."""
        return self.start(
            "nm",
            f"--manager={manager.address}",
            "--resend-after-s=1",
            "--register-retry-s=0.5",
            "--master-args=--check",
            *flags,
        )

    def close(self) -> None:
        """End everything and make sure that nothing is left."""
        families = [
            child
            for part in self.parts
            if part.process.poll() is None
            for child in psutil.Process(part.process.pid).children(recursive=True)
        ]
        for part in reversed(self.parts):
            if part.process.poll() is None:
                part.process.terminate()
        for part in self.parts:
            try:
                part.process.wait(20)
            except subprocess.TimeoutExpired:
                part.process.kill()
                part.process.wait()
            if part.process.stdout is not None:
                part.process.stdout.close()
        _, alive = psutil.wait_procs(families, timeout=20)
        for child in alive:
            child.kill()
        assert not alive, f"left behind: {alive}"

    def events(self) -> list[dict[str, Any]]:
        """Return what all processes recorded so far, in time order."""
        return recorded(self.folder, "*.jsonl")


def recorded(folder: Path, names: str = "*.events") -> list[dict[str, Any]]:
    """Return the events of all files, in time order; a torn last line is left out."""
    found = []
    for path in sorted(folder.glob(names)):
        for line in path.read_text().splitlines():
            try:
                found.append(json.loads(line))
            except ValueError:
                continue
    return sorted(found, key=lambda event: event["now_s"])


def series(address: str) -> str:
    """Return what a process exposes at host:port."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=60) as answer:
        return str(answer.read().decode())


def wait_for_nodes(client: Client, count: int, state: str = "RUNNING") -> None:
    """Wait until so many nodes are in a state."""
    until(lambda: len(client.nodes([state])) >= count, f"{count} nodes {state}")


def chain(name: str, stages: int, tasks: int, duration_s: float, **fields: Any) -> Job:
    """Return stages of identical tasks, each behind a barrier."""
    return Job(
        name,
        tuple(
            Stage(
                name=f"s{i}",
                tasks=tasks,
                duration_s=duration_s,
                demand={"vcores": 1.0, "memory_mb": 1024.0},
                parents=(Edge(f"s{i - 1}"),) if i else (),
                **fields,
            )
            for i in range(stages)
        ),
    )


def assert_ran_right(
    events: list[dict[str, Any]], app: int, job: Job, capacity_mb: float, repeats: bool = False
) -> None:
    """Check by recorded events that every task succeeded once, in order, memory never over.

    `repeats`: a task may succeed again after the node that ran it was lost.
    """
    starts: dict[tuple[int, int], list[float]] = defaultdict(list)
    ends: dict[tuple[int, int], list[float]] = defaultdict(list)
    for event in events:
        if event["fact"] not in ("TaskStarted", "TaskStopped") or event["stage"] < 0:
            continue
        if app_of_container(event["container"]) != app:
            continue
        key = (event["stage"], event["task"])
        if event["fact"] == "TaskStarted":
            starts[key].append(event["now_s"])
        elif event["outcome"] == "SUCCEEDED":
            ends[key].append(event["now_s"])
    wanted = {(s, t) for s, stage in enumerate(job.stages) for t in range(stage.tasks)}
    assert set(ends) == wanted
    if not repeats:
        twice = [key for key, times in ends.items() if len(times) > 1]
        assert not twice, f"ran more than once: {twice[:5]}"
    for child, stage in enumerate(job.stages):
        for edge in stage.parents:
            parent = job.index_of(edge.stage)
            done = max(min(ends[parent, t]) for t in range(job.stages[parent].tasks))
            early = [t for t in range(stage.tasks) if min(starts[child, t]) < done]
            assert not early, f"{stage.name} tasks {early[:5]} began before {edge.stage} ended"
    assert_memory(events, capacity_mb)


def assert_memory(events: list[dict[str, Any]], capacity_mb: float, position: int = 1) -> None:
    """Check that no node ever held more of the rigid resource than it has."""
    held: dict[str, float] = defaultdict(float)
    of: dict[tuple[Any, ...], float] = {}
    for event in events:
        if event["fact"] == "TaskStarted":
            key = (event["container"], event["stage"], event["task"], event["attempt"])
            of[key] = event["demand"][position]
            held[event["node"]] += of[key]
            assert held[event["node"]] <= capacity_mb + 1e-6, f"{event['node']} is over capacity"
        elif event["fact"] == "TaskStopped":
            key = (event["container"], event["stage"], event["task"], event["attempt"])
            held[event["node"]] -= of.pop(key, 0.0)
