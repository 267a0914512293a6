"""Reads the event logs of a local cluster and judges them, without the scheduler's own books."""

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from weft.model.ids import app_of_container
from weft.model.job import EdgeKind, Job

# Two processes read their clocks at slightly different instants, which the time scale stretches.
TOLERANCE_S = 1e-3


@dataclass
class Recorded:
    """Facts of all node managers, in order of time."""

    facts: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def of(cls, folder: Path) -> "Recorded":
        """Read every node manager's event log in a folder."""
        facts = [
            json.loads(line)
            for path in folder.glob("nm*.events")
            for line in path.read_text().splitlines()
            if line.endswith("}")
        ]
        return cls(sorted(facts, key=lambda fact: fact["now_s"]))

    def starts(self, app: int) -> Iterable[dict[str, Any]]:
        """Yield TaskStarted facts of an application's tasks."""
        return [f for f in self.facts if f["fact"] == "TaskStarted" and _of(f, app)]

    def ends(self, app: int) -> Iterable[dict[str, Any]]:
        """Yield TaskStopped facts of an application's tasks."""
        return [f for f in self.facts if f["fact"] == "TaskStopped" and _of(f, app)]

    def check_once(self, app: int, job: Job) -> None:
        """Check that every task succeeded exactly once, and nothing else ran."""
        succeeded: dict[tuple[int, int], int] = defaultdict(int)
        for fact in self.ends(app):
            if fact["outcome"] == "SUCCEEDED":
                succeeded[fact["stage"], fact["task"]] += 1
        wanted = {(s, t) for s, stage in enumerate(job.stages) for t in range(stage.tasks)}
        assert set(succeeded) == wanted, f"{job.name}: tasks missing or unknown"
        twice = {task: n for task, n in succeeded.items() if n != 1}
        assert not twice, f"{job.name}: ran more than once: {twice}"

    def check_precedence(self, app: int, job: Job, slack_s: float) -> None:
        """Check that no task started before all of its parents had succeeded."""
        done: dict[tuple[int, int], float] = {}
        for fact in self.ends(app):
            if fact["outcome"] == "SUCCEEDED":
                done[fact["stage"], fact["task"]] = fact["now_s"]
        last = {
            s: max(done[s, t] for t in range(stage.tasks)) for s, stage in enumerate(job.stages)
        }
        for fact in self.starts(app):
            child = job.stages[fact["stage"]]
            for parent, edge in job.edges_of(fact["stage"]):
                if edge.kind in (EdgeKind.ONE_TO_ONE, EdgeKind.PAIRS):
                    sizes = job.stages[parent].tasks, child.tasks
                    block = edge.parent_tasks(*sizes, fact["task"])
                    ready = max((done[parent, t] for t in block), default=0.0)
                else:
                    ready = last[parent]
                assert fact["now_s"] >= ready - slack_s, (
                    f"{job.name}: {child.name}[{fact['task']}] started at {fact['now_s']}, "
                    f"its parent {job.stages[parent].name} ended at {ready}"
                )

    def check_capacity(self, capacity: list[float], rigid: list[bool]) -> None:
        """Check that no node was ever over capacity in a rigid resource, masters included."""
        held: dict[str, list[float]] = defaultdict(lambda: [0.0] * len(capacity))
        running: dict[tuple[int, int, int], tuple[str, list[float]]] = {}
        for fact in self.facts:
            if fact["fact"] not in ("TaskStarted", "TaskStopped"):
                continue
            key = (fact["container"], fact["stage"], fact["task"])
            if fact["fact"] == "TaskStarted":
                running[key] = (fact["node"], fact["demand"])
                sign = 1.0
            elif key in running:
                sign = -1.0
            else:
                continue
            node, demand = running[key] if sign > 0 else running.pop(key)
            for r, amount in enumerate(demand):
                held[node][r] += sign * amount
                if rigid[r]:
                    assert held[node][r] <= capacity[r] * (1 + 1e-6), f"{node} is over: {fact}"


def _of(fact: dict[str, Any], app: int) -> bool:
    return fact["stage"] >= 0 and app_of_container(fact["container"]) == app
