"""Whole-cluster invariants, judged from outside: from recorded facts, never from a core's books.

A violation raises `InvariantError` at the moment of the fact that broke the rule, so the event that
caused it is the last one delivered.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from weft.model.cluster import ClusterSpec
from weft.model.errors import InvariantError
from weft.model.ids import AppId, ContainerId, NodeId, app_of_container
from weft.model.job import EdgeKind, Job
from weft.model.resources import Vector
from weft.protocol.facts import (
    Closed,
    Fact,
    NodeChanged,
    Placed,
    QueueChanged,
    TaskStarted,
    TaskStopped,
)
from weft.protocol.messages import Outcome

SLACK = 1e-6
JobOf = Callable[[AppId], Job | None]


class Checkers:
    """Capacity, precedence, completion, conservation of containers, queue limits, nodes in service.

    `strict`: nothing was made to fail, so that every task must succeed exactly once; otherwise a
    task whose end was lost may run, and succeed, again.
    """

    def __init__(self, cluster: ClusterSpec, job_of: JobOf, *, strict: bool) -> None:
        self._cluster = cluster
        self._job_of = job_of
        self._strict = strict
        self._restarted = False
        self._rigid = [r for r, hard in enumerate(cluster.types.rigid) if hard]
        self._capacity = {spec.node_id: spec.capacity for spec in cluster.nodes}
        self._placed: dict[ContainerId, Placed] = {}
        self._closed: dict[ContainerId, Outcome] = {}
        self._started: dict[NodeId, set[tuple[ContainerId, int, int, int]]] = defaultdict(set)
        self._running: dict[NodeId, dict[tuple[ContainerId, int, int, int], Vector]] = defaultdict(
            dict
        )
        self._containers: dict[NodeId, Counter[ContainerId]] = defaultdict(Counter)
        self._done: dict[AppId, dict[int, Counter[int]]] = {}
        self._held: dict[str, list[float]] = {}
        self._limits = _queue_limits(cluster)
        # They cannot be checked where something happened that no fact tells.
        self._limits_hold = True
        # The state of each node that is out of service.
        self._out_of_service: dict[NodeId, str] = {}
        self._watch: Mapping[type, Callable[[Any], None]] = {
            Placed: self._on_placed,
            NodeChanged: self._on_node_changed,
            QueueChanged: self._on_queue_changed,
            Closed: self._on_closed,
            TaskStarted: self._on_started,
            TaskStopped: self._on_stopped,
        }

    def note(self, now: float, fact: Fact) -> None:
        """Take one fact; raises InvariantError."""
        watch = self._watch.get(type(fact))
        if watch is not None:
            watch(fact)

    def restarted(self) -> None:
        """Note that the Resource Manager starts again: it may learn of the same ends once more."""
        self._restarted = True
        # No fact tells of what ended while the manager was away.
        self._limits_hold = False

    def crashed(self, node: NodeId) -> None:
        """Note that all that ran on a node is gone, unreported."""
        self._running.pop(node, None)
        # The orders are repeated to the node that comes back.
        self._started.pop(node, None)
        self._containers.pop(node, None)

    def finish(self, ended: Iterable[tuple[AppId, str]]) -> None:
        """Raise InvariantError unless every job that succeeded ran every task."""
        for app, state in ended:
            job = self._job_of(app)
            if job is None or state != "FINISHED":
                continue
            done = self._done.get(app, {})
            for number, stage in enumerate(job.stages):
                counts = done.get(number, Counter())
                if len(counts) != stage.tasks:
                    missing = stage.tasks - len(counts)
                    raise InvariantError(
                        f"application {app} finished without {missing} tasks of {stage.name!r}"
                    )
                if self._strict and max(counts.values(), default=0) > 1:
                    raise InvariantError(
                        f"application {app} finished a task of {stage.name!r} more than once"
                    )

    # -- the books of the manager, as it tells them ------------------------------------------------

    def _on_node_changed(self, fact: NodeChanged) -> None:
        if fact.node not in self._capacity:
            # Somebody made the node up, and queues may have a part of it, too.
            self._limits_hold = False
        if fact.state == "RUNNING":
            self._out_of_service.pop(fact.node, None)
        else:
            self._out_of_service[fact.node] = fact.state

    def _on_queue_changed(self, fact: QueueChanged) -> None:
        self._limits.pop(fact.queue, None)
        if fact.change != "removed" and fact.max_capacity < 1:
            most = tuple(fact.max_capacity * amount for amount in self._cluster.total)
            self._limits[fact.queue] = most

    def _on_placed(self, fact: Placed) -> None:
        if fact.node in self._out_of_service:
            state = self._out_of_service[fact.node]
            raise InvariantError(f"container {fact.container} was placed on {fact.node}: {state}")
        if fact.container in self._placed:
            raise InvariantError(f"container {fact.container} was placed twice")
        self._placed[fact.container] = fact
        limit = self._limits.get(fact.queue)
        held = self._held.setdefault(fact.queue, [0.0] * len(fact.demand))
        for r, amount in enumerate(fact.demand):
            held[r] += amount
            if limit is None or not self._limits_hold:
                continue
            # A queue may pass its limit by one container, as in YARN.
            if held[r] - amount > limit[r] * (1 + SLACK):
                raise InvariantError(f"queue {fact.queue} holds {held[r]} over its limit {limit}")

    def _on_closed(self, fact: Closed) -> None:
        before = self._closed.get(fact.container)
        if before is not None:
            if before is not Outcome.LOST and not self._restarted:
                raise InvariantError(f"container {fact.container} was closed twice")
            # It was given up with its node, and kept in the books until the node confirmed its end.
            return
        self._closed[fact.container] = Outcome(fact.outcome)
        placed = self._placed.get(fact.container)
        if placed is None:
            # It is a master's container, or one of an earlier life of the manager.
            return
        if placed.node != fact.node:
            raise InvariantError(f"container {fact.container} moved from its node")
        held = self._held.get(placed.queue)
        if held is not None:
            for r, amount in enumerate(placed.demand):
                held[r] -= amount

    # -- what nodes did ----------------------------------------------------------------------------

    def _on_started(self, fact: TaskStarted) -> None:
        key = (fact.container, fact.stage, fact.task, fact.attempt)
        if key in self._started[fact.node]:
            raise InvariantError(f"task {key} was started twice in one container")
        self._started[fact.node].add(key)
        self._running[fact.node][key] = fact.demand
        self._containers[fact.node][fact.container] += 1
        placed = self._placed.get(fact.container)
        if placed is not None and placed.node != fact.node:
            raise InvariantError(f"container {fact.container} runs on {fact.node}, not its node")
        if fact.stage >= 0:
            if placed is None:
                raise InvariantError(f"container {fact.container} runs but was never placed")
            self._check_parents(fact)
        self._check_capacity(fact.node)

    def _check_capacity(self, node: NodeId) -> None:
        capacity = self._capacity[node]
        for r in self._rigid:
            granted = 0.0
            for container in self._containers[node]:
                placed = self._placed.get(container)
                granted += placed.demand[r] if placed is not None else 0.0
            if granted > capacity[r] * (1 + SLACK):
                raise InvariantError(f"{node}: {granted} granted of {capacity[r]} (rigid {r})")

    def _check_parents(self, fact: TaskStarted) -> None:
        app = app_of_container(fact.container)
        job = self._job_of(app)
        if job is None:
            raise InvariantError(f"a task of unknown application {app} runs")
        done = self._done.setdefault(app, {})
        for parent, edge in job.edges_of(fact.stage):
            finished = done.get(parent, Counter())
            tasks = job.stages[parent].tasks
            if edge.kind in (EdgeKind.ONE_TO_ONE, EdgeKind.PAIRS):
                block = edge.parent_tasks(tasks, job.stages[fact.stage].tasks, fact.task)
                missing = [task for task in block if task not in finished]
            else:
                missing = [] if len(finished) == tasks else [0]
            if missing:
                name, before = job.stages[fact.stage].name, job.stages[parent].name
                raise InvariantError(
                    f"application {app}: task {fact.task} of {name!r} began before {before!r} ended"
                )

    def _on_stopped(self, fact: TaskStopped) -> None:
        key = (fact.container, fact.stage, fact.task, fact.attempt)
        demand = self._running[fact.node].pop(key, None)
        if demand is None:
            raise InvariantError(f"task {key} ended on {fact.node} without having begun there")
        containers = self._containers[fact.node]
        containers[fact.container] -= 1
        if not containers[fact.container]:
            del containers[fact.container]
        if fact.stage >= 0 and fact.outcome is Outcome.SUCCEEDED:
            app = app_of_container(fact.container)
            stages = self._done.setdefault(app, {})
            stages.setdefault(fact.stage, Counter())[fact.task] += 1


def _queue_limits(cluster: ClusterSpec) -> dict[str, Vector]:
    """Return the absolute maximum of each leaf queue that has one, by path."""
    limits: dict[str, Vector] = {}
    shares: dict[str, float] = {}
    for path, queue in cluster.queues.walk():
        above = path.rpartition(".")[0]
        shares[path] = shares.get(above, 1.0) * queue.max_capacity
        if queue.is_leaf and shares[path] < 1:
            limits[path] = tuple(shares[path] * amount for amount in cluster.total)
    return limits
