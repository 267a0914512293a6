"""Scenarios written from YARN's documentation: what it predicts, what YARN 3.5 and Weft do.

`python -m lab.yarn.documented` asks the real Resource Manager (Java) and Weft, and prints a table;
`--keep FILE` writes what YARN did, for tests without Java. Each scenario has what the documentation
says (CapacityScheduler.html, FairScheduler.html), and how many containers it predicts by name of
queue or user at the end.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab.yarn.cases import case_of
from lab.yarn.compare import BUILD, ask_yarn
from lab.yarn.generate import CAPACITY, PREEMPTION
from lab.yarn.weft_side import Loop

FAIR_CLASS = "org.apache.hadoop.yarn.server.resourcemanager.scheduler.fair.FairScheduler"
Counts = dict[str, int]


@dataclass(frozen=True, slots=True)
class Documented:
    """A scenario of four nodes of 8 GB; `by` says whether queues or users are counted."""

    name: str
    says: str
    predicts: Counts
    applications: Sequence[dict[str, Any]]
    configuration: dict[str, Any] = field(default_factory=dict)
    allocations: str = ""
    by: str = "queue"
    rounds: int = 30

    def data(self) -> dict[str, Any]:
        """Return the scenario's file."""
        given: dict[str, Any] = {"yarn.scheduler.maximum-allocation-vcores": 8}
        if self.allocations:
            given["yarn.resourcemanager.scheduler.class"] = FAIR_CLASS
            given["yarn.scheduler.fair.assignmultiple"] = "true"
            given["yarn.scheduler.fair.dynamic.max.assign"] = "false"
        for key, value in self.configuration.items():
            given[key if key.startswith("yarn.") else CAPACITY + key] = value
        nodes = [{"name": f"n{i}", "mem": 8192, "vcores": 8} for i in range(1, 5)]
        made = {"configuration": given, "rounds": self.rounds, "nodes": nodes}
        made["applications"] = [{"id": i, "at": 0} | a for i, a in enumerate(self.applications, 1)]
        return made | ({"allocations": self.allocations} if self.allocations else {})


def _app(queue: str, user: str = "u", count: int = 40, **others: Any) -> dict[str, Any]:
    asks = [{"pri": 1, "mem": 1024, "vcores": 1, "count": count, "dur": 9999}] if count else []
    return {"queue": queue, "user": user, "asks": asks} | others


def _queues(**shares: float) -> dict[str, Any]:
    names = {f"root.{name}.capacity": share for name, share in shares.items()}
    return {"root.queues": ",".join(shares), "maximum-am-resource-percent": 1} | names


_MASTER = {"am": {"mem": 1024, "vcores": 1}}
_HALVES = _queues(a=50, b=50)
_MONITOR = {
    "yarn.resourcemanager.scheduler.monitor.enable": "true",
    PREEMPTION + "natural_termination_factor": 0.5,
    PREEMPTION + "total_preemption_per_round": 1.0,
    PREEMPTION + "max_wait_before_kill": 1000,
    PREEMPTION + "max_ignored_over_capacity": 0,
}
SCENARIOS = (
    Documented(
        "user-limit-factor",
        "by default 1: one user never takes more than the queue's configured capacity",
        {"a": 16},
        [_app("a")],
        _HALVES,
    ),
    Documented(
        "elasticity",
        "what other queues do not use may be taken beyond a queue's capacity",
        {"a": 32},
        [_app("a")],
        _HALVES | {"root.a.user-limit-factor": 2},
    ),
    Documented(
        "maximum-capacity",
        "limits the elasticity of applications in the queue",
        {"a": 24},
        [_app("a")],
        _HALVES | {"root.a.user-limit-factor": 9, "root.a.maximum-capacity": 75},
    ),
    Documented(
        "two users",
        "minimum-user-limit-percent 25: of two users, none takes more than 50 percent",
        {"u": 16, "v": 16},
        [_app("a", "u"), _app("a", "v")],
        _queues(a=100) | {"root.a.minimum-user-limit-percent": 25},
        by="user",
    ),
    Documented(
        "four users",
        "minimum-user-limit-percent 25: with four users or more, none takes more than 25 percent",
        {"u": 8, "v": 8, "w": 8, "x": 8},
        [_app("a", user) for user in "uvwx"],
        _queues(a=100) | {"root.a.minimum-user-limit-percent": 25},
        by="user",
    ),
    Documented(
        "users who want nothing more",
        "the limit varies with the number of users who have submitted applications",
        {"u": 1, "v": 1, "w": 1, "x": 8},
        [*[_app("a", user, 1) for user in "uvw"], _app("a", "x")],
        _queues(a=100) | {"root.a.minimum-user-limit-percent": 25},
        by="user",
    ),
    Documented(
        "masters",
        "maximum-am-resource-percent 0.1: the most that masters use",
        {"a": 3},
        [_app("a", f"u{i}", 0, **_MASTER) for i in range(8)],
        _queues(a=100) | {"maximum-am-resource-percent": 0.1},
    ),
    Documented(
        "priority",
        "an application with a larger number goes first",
        {"u": 0, "v": 32},
        [_app("a", "u"), _app("a", "v", priority=5)],
        _queues(a=100)
        | {"root.a.user-limit-factor": 9, "root.a.minimum-user-limit-percent": 100}
        | {"yarn.cluster.max-application-priority": 10},
        by="user",
    ),
    Documented(
        "ordering-policy fair",
        "the application that uses least goes first",
        {"u": 16, "v": 16},
        [_app("a", "u"), _app("a", "v")],
        _queues(a=100) | {"root.a.ordering-policy": "fair", "root.a.user-limit-factor": 9},
        by="user",
    ),
    Documented(
        "off-switch",
        "maximum-offswitch-assignments is 1: so many in a node's heartbeat",
        {"a": 8},
        [_app("a")],
        _queues(a=100),
        rounds=2,
    ),
    Documented(
        "preemption",
        "a factor of 0.5 takes almost 95 percent within five waits",
        {"a": 17, "b": 15},
        [_app("a"), _app("b", "v", 16, at=12)],
        _HALVES | _MONITOR | {"root.a.user-limit-factor": 9},
        rounds=24,
    ),
    Documented(
        "disable_preemption",
        "true: nothing of the queue is preempted",
        {"a": 32, "b": 0},
        [_app("a"), _app("b", "v", 16, at=12)],
        _HALVES | _MONITOR | {"root.a.user-limit-factor": 9, "root.a.disable_preemption": "true"},
        rounds=24,
    ),
    Documented(
        "weights",
        "Fair Scheduler: a queue of weight 3 receives about three times as much as one of weight 1",
        {"a": 24, "b": 8},
        [_app("root.a"), _app("root.b")],
        allocations="<allocations><queue name='a'><weight>3</weight></queue><queue name='b'/>"
        "</allocations>",
    ),
    Documented(
        "minResources",
        "Fair Scheduler: below its minimum share a queue is offered resources before others",
        {"a": 8, "b": 24},
        [_app("root.a"), _app("root.b")],
        allocations="<allocations><queue name='a'/><queue name='b'>"
        "<minResources>24576 mb, 24 vcores</minResources></queue></allocations>",
    ),
    Documented(
        "maxResources in percent",
        "Fair Scheduler: a queue never gets a container beyond its maximum",
        {"a": 16},
        [_app("root.a")],
        allocations="<allocations><queue name='a'><maxResources>50.0% memory, 100.0% cpu"
        "</maxResources></queue></allocations>",
    ),
    Documented(
        "maxAMShare",
        "Fair Scheduler: by default masters take up to half of the fair share",
        {"a": 16},
        [_app("root.a", f"u{i}", 0, **_MASTER) for i in range(40)],
        allocations="<allocations><queue name='a'/></allocations>",
    ),
    Documented(
        "maxRunningApps",
        "Fair Scheduler: so many applications of a queue run at once",
        {"u": 8, "v": 0},
        [_app("root.a", "u", 8), _app("root.a", "v", 8)],
        allocations="<allocations><queue name='a'><maxRunningApps>1</maxRunningApps></queue>"
        "</allocations>",
        by="user",
    ),
)


def held(one: Documented, grants: Iterable[Any], preempted: Iterable[Any]) -> Counts:
    """Return how many containers are held in the end, by what the scenario counts."""
    names = {i: app[one.by] for i, app in enumerate(one.applications, 1)}
    found = Counter(dict.fromkeys(one.predicts, 0))
    found.update(names[row[2]].rpartition(".")[2] for row in grants)
    found.subtract(names[row[3]].rpartition(".")[2] for row in preempted if row[1][0] == "K")
    return dict(found)


def by_weft(one: Documented) -> Counts:
    """Return what Weft's core comes to."""
    answer = Loop(case_of(one.name, one.data())).run()
    return held(one, answer.grants, answer.preemptions)


def by_yarn(folder: Path) -> dict[str, Counts]:
    """Return what the real scheduler comes to, by scenario."""
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / f"{one.name.replace(' ', '-')}.json" for one in SCENARIOS]
    for path, one in zip(files, SCENARIOS, strict=True):
        path.write_text(json.dumps(one.data()), encoding="utf-8")
    ask_yarn(files, folder / "answers")
    found: dict[str, Counts] = {}
    for path, one in zip(files, SCENARIOS, strict=True):
        answer = json.loads((folder / "answers" / path.name).read_text(encoding="utf-8"))
        if "refused" in answer:
            print(f"{one.name}: {answer['refused']}")
            continue
        found[one.name] = held(one, answer["grants"], answer["preemptions"])
    return found


def main() -> int:
    """Print the table; 1 where Weft does otherwise than YARN."""
    parser = argparse.ArgumentParser(description="Compare with YARN's documentation.")
    parser.add_argument("--keep", type=Path, help="write what YARN did")
    chosen = parser.parse_args()
    yarn = by_yarn(BUILD / "documented")
    if chosen.keep is not None:
        chosen.keep.write_text(json.dumps(yarn, indent=1) + "\n", encoding="utf-8")
    other = 0
    print("| scenario | the documentation | it predicts | YARN 3.5 | Weft |\n|---|---|---|---|---|")
    for one in SCENARIOS:
        weft = by_weft(one)
        other += weft != yarn.get(one.name)
        cells = [_text(row) for row in (one.predicts, yarn.get(one.name, {}), weft)]
        print(f"| {one.name} | {one.says} | {' | '.join(cells)} |")
    return int(bool(other))


def _text(counts: Counts) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))


if __name__ == "__main__":
    sys.exit(main())
