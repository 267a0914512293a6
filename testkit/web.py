"""For tests only: a client that knows a cluster of any size, and the pages over it."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import replace
from typing import Any

from weft.client.api import ENDED, RefusedError
from weft.model.errors import WeftError
from weft.model.ids import AppId, attempt_id, container_id
from weft.model.job import Edge, EdgeKind, Job, Stage
from weft.model.queues import QueueSpec
from weft.protocol.requests import (
    ApplicationReport,
    ClusterMetrics,
    ContainerReport,
    Contender,
    Explanation,
    ManagerReport,
    NodeReport,
    QueueChange,
    QueueReport,
    QueuesSet,
    Refused,
    Setting,
    StageExplanation,
    StageReport,
    Turn,
)

CLUSTER_TS = 1_700_000_000_000
NOW_S = 5_000.0
STATES = ("FINISHED", "RUNNING", "ACCEPTED", "FAILED", "KILLED")
CAPACITY = {"vcores": 16.0, "memory_mb": 65536.0}


def diamond(name: str) -> Job:
    """Return four stages: one, then two beside each other, then one."""
    demand = {"vcores": 1.0, "memory_mb": 2048.0}

    def stage(own: str, tasks: int, *parents: Edge) -> Stage:
        return Stage(own, tasks, 20.0, demand, parents, command=("true",) if own == "right" else ())

    sides = (Edge("left", EdgeKind.ONE_TO_ONE), Edge("right", EdgeKind.BROADCAST))
    return Job(
        name,
        (
            stage("read", 12),
            stage("left", 12, Edge("read", EdgeKind.ONE_TO_ONE)),
            stage("right", 4, Edge("read")),
            stage("join", 6, *sides),
        ),
    )


class FakeClient:
    """The calls of `weft.client.api.AsyncClient` over a cluster that stands still."""

    missing: tuple[int, ...] = ()

    def __init__(
        self, nodes: int = 1_000, apps: int = 500, jobs: Mapping[AppId, Job] | None = None
    ) -> None:
        self.cluster_ts = CLUSTER_TS
        prod, dev = QueueSpec("prod", 0.7), QueueSpec("dev", 0.3, 0.5, submit=("ann",))
        self._tree = QueueSpec("root", children=(prod, dev))
        # If true, act as if no manager could be reached.
        self.down = False
        self.calls: Counter[str] = Counter()
        self.facts: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._nodes = tuple(_node(number) for number in range(1, nodes + 1))
        self._apps = {number: _app(number) for number in range(1, apps + 1)}
        # Applications that are no diamonds, and run.
        self._jobs = dict(jobs or {})
        for number, job in self._jobs.items():
            self._apps[number] = replace(_app(6), app_id=number, name=job.name, submitted_s=4_000.0)

    def _called(self, name: str) -> None:
        self.calls[name] += 1
        if self.down:
            raise WeftError("the Resource Manager at 127.0.0.1:1 cannot be reached")

    async def metrics(self) -> ClusterMetrics:
        """Return counts of what the listings hold."""
        self._called("metrics")
        nodes = Counter(node.state for node in self._nodes)
        apps = Counter(app.state for app in self._apps.values())
        count = len(self._nodes)
        capacity = {name: amount * count for name, amount in CAPACITY.items()}
        held = {name: sum(n.allocated[name] for n in self._nodes) for name in CAPACITY}
        running = sum(app.running_containers for app in self._apps.values())
        return ClusterMetrics(
            "tetris", 1.0, NOW_S, dict(nodes), dict(apps), capacity, held, running, 77, CLUSTER_TS
        )

    async def manager(self) -> ManagerReport:
        """Return a manager without others."""
        self._called("manager")
        return ManagerReport("127.0.0.1:1", "ALONE", "127.0.0.1:1")

    async def nodes(self, states: Iterable[str] = ()) -> tuple[NodeReport, ...]:
        """Return all nodes, whatever is asked."""
        self._called("nodes")
        return self._nodes

    async def applications(self, states: Iterable[str] = ()) -> tuple[ApplicationReport, ...]:
        """Return the applications in the given states; none: all."""
        self._called("applications")
        return tuple(a for a in self._apps.values() if not states or a.state in states)

    async def application(self, app: AppId) -> ApplicationReport:
        """Return one application with its stages."""
        self._called("application")
        if app not in self._apps:
            raise RefusedError(Refused("not_found", "app_id", f"there is no application {app}"))
        if app in self._jobs:
            return _reported(self._apps[app], self._jobs[app])
        stages = (
            StageReport("read", 12, 0, 0, 12, 1),
            StageReport("left", 12, 2, 6, 4, 0, (("read", "one_to_one"),)),
            StageReport("right", 4, 4, 0, 0, 0, (("read", "all_to_all"),)),
            StageReport("join", 6, 0, 0, 0, 0, (("left", "one_to_one"), ("right", "broadcast"))),
        )
        return replace(self._apps[app], stages=stages)

    async def job(self, app: AppId) -> Job:
        """Return a diamond for every application but those that were given jobs."""
        self._called("job")
        if app in self._jobs:
            return self._jobs[app]
        return diamond(self._apps[app].name)

    async def explain(self, app: AppId) -> Explanation:
        """Return an explanation: two stages lack room, one its parents."""
        self._called("explain")
        state = self._apps[app].state
        if state in ENDED:
            return Explanation(app, state, f"it ended: {state}")
        ahead = (
            Contender(app - 1, "nightly", "map", 30, {"perf": 0.4375, "pri": 0.7, "pack": 0.625}),
            Contender(0, "", "", 4, {"perf": 0.4, "pri": 1.0, "pack": 0.5}),
        )
        work = {"vcores": 36_000.0, "memory_mb": 3.6e7}
        own = {"perf": 0.3125, "pri": 0.5, "pack": 0.625}
        turn = Turn("n3", 2, 34, work, False, own, ahead, NOW_S + 95.0)
        full = {"does not fit: vcores": 700, "node has a label": 300}
        stages = (
            StageExplanation("left", 2, full, turns=(turn,)),
            StageExplanation("right", 4, {"queue root.prod is at its limit": 1_000}),
            StageExplanation("join", 6, {"waiting for parents": 0}),
        )
        return Explanation(app, state, "3 stages are pending", stages, NOW_S)

    async def containers(self, app: AppId) -> tuple[ContainerReport, ...]:
        """Return a master, twelve ended tasks, six that run."""
        self._called("containers")
        attempt = attempt_id(app, 1)
        if app in self._jobs:
            return _ran(self._apps[app], self._jobs[app])
        start_s = self._apps[app].submitted_s

        def one(number: int, stage: str, index: int, state: str, end_s: float) -> ContainerReport:
            at = start_s + 2.0 * number
            node = f"n{number % 40 + 1}"
            known = container_id(attempt, number)
            return ContainerReport(known, node, stage, index, 0, state, at, end_s, "127.0.0.1:1")

        return (
            one(1, "", -1, "RUNNING", 0.0),
            *(one(14 + i, "left", -1, "RUNNING", 0.0) for i in range(6)),
            *(one(2 + i, "read", i, "SUCCEEDED", start_s + 30.0 + i) for i in range(12)),
        )

    async def queues(self) -> QueueReport:
        """Return two leaves below the root; one is over its guarantee."""
        self._called("queues")
        held = {"vcores": 4000.0, "memory_mb": 9e6}
        dev = QueueReport("root.dev", 0.3, 0.5, 0.41, "RUNNING", 40, 3, held, 20, -0.11)
        prod = QueueReport("root.prod", 0.7, 1.0, 0.22, "RUNNING", 60, 97, held, 57, 0.48)
        root = QueueReport("root", 1.0, 1.0, 0.63, "RUNNING", 100, 100, held, 77)
        return replace(root, children=(prod, dev))

    async def queue_tree(self) -> QueueSpec:
        """Return the tree whose reports `queues` has, as it was set last."""
        self._called("queue_tree")
        return self._tree

    async def set_queues(self, queues: QueueSpec, *, dry_run: bool = False) -> QueuesSet:
        """Take a tree at once; refuse one without `prod`, as if that were in use."""
        self._called(f"set_queues dry_run={dry_run}")
        if "prod" not in {child.name for child in queues.children}:
            raise RefusedError(Refused("failed_precondition", "queues", "root.prod is in use"))
        if not dry_run:
            self._tree = queues
        return QueuesSet((QueueChange("root.dev", "changed", "capacity 0.3"),), (), CLUSTER_TS)

    async def settings(self) -> tuple[Setting, ...]:
        """Return three settings, one of which is set."""
        self._called("settings")
        return (
            Setting("scheduler", "graphene", "capacity", "Preset: matcher, planner and asker."),
            Setting("port", "8030", "8030", "Port of the gRPC service; 0: any free one."),
            Setting("matcher.kappa", "0.1", "0.1", "bound of unfairness, part of the cluster"),
        )

    async def event_batches(
        self, after: int = 0
    ) -> AsyncIterator[tuple[int, list[dict[str, Any]]]]:
        """Yield the facts that a test puts into `facts`."""
        while True:
            yield max(after, 1), [await self.facts.get()]
            after = max(after, 1) + 1

    async def new_application(self) -> AppId:
        """Reserve a number that no application has."""
        self._called("new_application")
        return max(self._apps) + 1

    async def move(self, app: AppId, queue: str) -> str:
        """Move an application at once."""
        self._called("move")
        self._apps[app] = replace(self._apps[app], queue=queue)
        return "RUNNING"

    async def set_priority(self, app: AppId, priority: int) -> str:
        """Set a priority, which counts at once."""
        self._called("set_priority")
        self._apps[app] = replace(self._apps[app], priority=priority)
        return "RUNNING"

    async def set_expiry(self, app: AppId, expires_s: float) -> str:
        """Set an expiry, which counts at once."""
        self._called("set_expiry")
        self._apps[app] = replace(self._apps[app], expires_s=expires_s)
        return "RUNNING"

    async def decommission(self, node: str, timeout_s: float) -> str:
        """Decommission a node: it leaves from now on."""
        self._called(f"decommission {timeout_s:g}")
        return self._turn(node, "DECOMMISSIONING")

    async def recommission(self, node: str) -> str:
        """Recommission a node: it runs again."""
        self._called("recommission")
        return self._turn(node, "RUNNING")

    def _turn(self, node: str, state: str) -> str:
        self._nodes = tuple(
            replace(one, state=state) if one.node_id == node else one for one in self._nodes
        )
        return state

    async def kill(self, app: AppId, diagnostics: str = "") -> str:
        """Kill an application, which ends at once."""
        self._called("kill")
        now = replace(
            self._apps[app],
            state="KILLED",
            final_status="KILLED",
            finished_s=NOW_S,
            diagnostics=diagnostics,
            running_containers=0,
        )
        self._apps[app] = now
        return "KILLED"


def _node(number: int) -> NodeReport:
    state = {7: "LOST", 8: "UNHEALTHY", 9: "DECOMMISSIONED"}.get(number, "RUNNING")
    share = (number * 37 % 101) / 100 if state == "RUNNING" else 0.0
    held = {name: amount * share for name, amount in CAPACITY.items()}
    labels = ("gpu",) if number % 50 == 0 else ()
    return NodeReport(
        f"n{number}",
        f"10.0.{number // 250}.{number % 250}:8041",
        f"r{number % 20 + 1}",
        labels,
        state,
        CAPACITY,
        held,
        held,
        round(share * 16),
        NOW_S - 1.0,
    )


def _app(number: int) -> ApplicationReport:
    state = STATES[number % 5]
    begun = state != "ACCEPTED"
    ended = state in ENDED
    final = {"FINISHED": "SUCCEEDED", "FAILED": "FAILED", "KILLED": "KILLED"}
    done = 34 if state == "FINISHED" else 16 if begun else 0
    at = 8.0 * number
    return ApplicationReport(
        number,
        f"query {number}",
        ("ada", "grace", "")[number % 3],
        ("root.prod", "root.dev")[number % 2],
        number % 4,
        state,
        final.get(state, "UNDEFINED"),
        done / 34,
        attempt_id(number, 1) if begun else 0,
        "n1" if begun else "",
        at,
        at + 3.0 if begun else 0.0,
        at + 60.0 if ended else 0.0,
        34,
        done,
        7 if state == "RUNNING" else 0,
        6 if state == "RUNNING" else 0,
        {"vcores": 7.0, "memory_mb": 14336.0} if state == "RUNNING" else {},
        "a task failed 4 times" if state == "FAILED" else "",
        (),
        CLUSTER_TS,
    )


def _reported(report: ApplicationReport, job: Job) -> ApplicationReport:
    """Return a report: the first third of the stages is done, the next few run, others wait."""
    done, running = len(job.stages) // 3, max(1, len(job.stages) // 12)
    stages = []
    for i, stage in enumerate(job.stages):
        ends = stage.tasks if i < done else 0
        runs = min(stage.tasks, 4) if done <= i < done + running else 0
        parents = tuple((edge.stage, edge.kind.value) for edge in stage.parents)
        pending = min(stage.tasks - runs, 3) if runs else 0
        ends = ends or (stage.tasks - runs - pending if runs else 0)
        stages.append(StageReport(stage.name, stage.tasks, pending, runs, ends, 0, parents))
    finished = sum(stage.finished for stage in stages)
    return replace(report, stages=tuple(stages), tasks=job.task_count, finished_tasks=finished)


def _ran(report: ApplicationReport, job: Job) -> tuple[ContainerReport, ...]:
    """Return tries of each stage's tasks: one in 50 straggles, one in 100 failed once."""
    found, number, attempt = [], 2, attempt_id(report.app_id, 1)
    for stage, told in zip(job.stages, _reported(report, job).stages, strict=True):
        for task in range(told.finished + told.running):
            begun_s = report.submitted_s + 5.0 + number % 200
            run_s = 15.0 + task * 7919 % 1000 / 100 + (30.0 if task % 50 == 7 else 0.0)
            runs = task >= told.finished
            fails = task % 100 == 3
            for tries in range(2 if fails and not runs else 1):
                failed = fails and tries == 0 and not runs
                state = "RUNNING" if runs else "FAILED" if failed else "SUCCEEDED"
                known = container_id(attempt, number)
                found.append(
                    ContainerReport(
                        known,
                        f"n{number % 40 + 1}",
                        stage.name,
                        -1 if runs else task,
                        tries,
                        state,
                        begun_s + 40.0 * tries,
                        0.0 if runs else begun_s + 40.0 * tries + run_s,
                        "127.0.0.1:1",
                        3 if failed else 0,
                        0.0 if runs else run_s - 0.2,
                        "no space left on its disk" if failed else "",
                    )
                )
                number += 1
    return tuple(found)
