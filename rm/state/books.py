"""The Resource Manager's state: its records of applications, attempts, nodes and containers.

Functions of the sibling modules take the `Books` first, change them, and append effects to `out`
(and records to `records`, which become durable before anything else of the same answer is done).
"""

from collections import Counter, deque
from collections.abc import Callable, Mapping
from math import ceil, inf
from typing import Any

import numpy as np

from rm.ledger.asks import AskRows
from rm.ledger.ledger import Ledger
from rm.ledger.queues import QueueTree
from rm.ledger.running import RunningByEnd
from rm.ledger.view import View
from rm.match.limit_kernels import headroom
from rm.match.protocol import BaseMatcher, Matcher
from rm.settings import ManagerSettings
from rm.state.records import App, Attempt, Holdings, MatchState, Node
from rm.state.waiting import WaitingMasters
from weft.model.dag import Floats
from weft.model.errors import InputError
from weft.model.ids import AppId, AttemptId, ContainerId, NodeId, first_number
from weft.model.job import Job
from weft.model.json_types import Json, Table
from weft.model.queues import QueueSpec
from weft.model.resources import TOLERANCE, ResourceTypes, Vector
from weft.policies.compiled import steady
from weft.policies.plugins import kind_of
from weft.protocol.effects import Effect, Note, Persist
from weft.protocol.facts import Fact
from weft.protocol.outbox import Outbox

_headroom = steady(headroom)
LABELS_MAX = 62
# No node carries this label.
UNKNOWN_LABEL = 1 << LABELS_MAX
# It is so much of the first type, where the cluster has none of `min_demand`.
LEAST_AMOUNT = 0.001


class Pace:
    """How long tasks last: the running mean of estimated durations, over about the last hundred."""

    __slots__ = ("count", "mean_s")

    def __init__(self) -> None:
        self.mean_s = 0.0
        self.count = 0

    def note(self, duration_s: float, count: int) -> None:
        """Learn that `count` identical containers of an estimated duration were granted."""
        seen = self.count
        self.count = seen = (seen if seen < 100 else 100) + count
        self.mean_s += count / seen * (duration_s - self.mean_s)


class Books:
    """Everything that the Resource Manager knows.

    After every event:

    * `apps` and `nodes` have each record by its name, `app_at` and `node_at` by its slot of the
      ledger; a record and its slot name each other;
    * `holdings` has every container that is booked, and each is booked on exactly one node;
    * `waiting` has the attempts in SCHEDULED that no master was placed for yet;
    * `master_usage` sums what the containers of masters hold, by queue with all below it, and
      `classes` counts the nodes in service: limits and submissions ask for them;
    * `unseen_containers` (by node) are containers that masters say to hold and that no node has
      brought along since the manager's restart. They are not booked: they are found, end, or are
      given up;
    * `out`, `records` and `unsaved_tasks` are the answer under way, and empty between events. What
      is in the last two is durable before anything in `out` is done (`answer`).
    """

    # There are more than 30 attributes: without slots each would be looked up in a dictionary.
    __slots__ = (
        "_rooms",
        "_rooms_at",
        "_shares",
        "app_at",
        "apps",
        "brought_along",
        "claimed",
        "classes",
        "cluster_ts",
        "dirty_attempts",
        "dirty_nodes",
        "early",
        "ended",
        "ended_bytes",
        "ended_small",
        "epoch",
        "hears_ends",
        "hears_grants",
        "hears_matches",
        "holdings",
        "labels",
        "least",
        "least_asked",
        "least_master",
        "ledger",
        "live_bytes",
        "marks",
        "master_demand",
        "master_usage",
        "master_vector",
        "matcher",
        "matching",
        "names_terms",
        "next_app",
        "next_serial",
        "next_token",
        "node_at",
        "nodes",
        "now",
        "on_owed",
        "open_jobs",
        "out",
        "pace",
        "queues",
        "queues_empty",
        "raises",
        "records",
        "refused_ends",
        "returning_masters",
        "rng",
        "rows",
        "settings",
        "slack",
        "started_s",
        "steps",
        "submissions",
        "tasks_in",
        "types",
        "unlike",
        "unsaved_tasks",
        "unseen_containers",
        "updates",
        "view",
        "waiting",
        "with_files",
    )

    def __init__(  # noqa: PLR0915
        self,
        cluster_ts: int,
        types: ResourceTypes,
        queues: QueueSpec,
        matcher: Matcher,
        settings: ManagerSettings,
        rng: np.random.Generator,
    ) -> None:
        self.cluster_ts = cluster_ts
        self.types = types
        self.queues = QueueTree(queues)
        self.decide_by(matcher)
        self.settings = settings
        self.rng = rng
        self.ledger = Ledger(types, self.queues)
        self.rows = AskRows(len(types))
        self.view = View(types, self.queues, self.ledger, self.rows, self._runs)
        # A node may be overbooked so far over its capacity; it is an array that kernels may rely
        # on.
        self.slack: Floats = np.array(matcher.slack(self.view), np.float64)
        self.apps: dict[AppId, App] = {}
        self.app_at: list[App | None] = []
        # Ended applications are kept whole, and of those before only a little, the oldest first.
        self.ended: deque[AppId] = deque()
        self.ended_small: deque[AppId] = deque()
        # Jobs of the whole ones take so much memory, and those of applications in the ledger.
        self.ended_bytes = 0
        self.live_bytes = 0
        self.submissions: dict[str, AppId] = {}
        self.nodes: dict[NodeId, Node] = {}
        # What an operator said of nodes: `capacity` by resource, `labels`.
        self.updates: dict[NodeId, Json] = {}
        # Applications leave files on these nodes.
        self.with_files: dict[NodeId, None] = {}
        self.node_at: list[Node] = []
        self.holdings = Holdings()
        # What nodes said runs in a container: stage, task, try; for reports only.
        self.tasks_in: dict[ContainerId, tuple[int, int, int]] = {}
        # A node ever had containers that this life of the manager did not grant it.
        self.brought_along = False
        # These were held before a restart and not seen since, by node: each with whose it is and
        # since when it is waited for.
        self.unseen_containers: dict[NodeId, dict[ContainerId, tuple[Attempt, float]]] = {}
        # These attempts lived before a restart.
        self.returning_masters: dict[NodeId, list[Attempt]] = {}
        # These registered while nodes were still to come back after a restart, and hear when one
        # does.
        self.early: dict[AttemptId, Attempt] = {}
        # Since when queues that were made at submissions are empty, by path.
        self.queues_empty: dict[str, float] = {}
        # Nodes reported so many ends of containers which never ran there.
        self.refused_ends = 0
        # These are the attempts whose master has no container yet.
        self.waiting = WaitingMasters()
        self.master_usage: Floats = np.zeros((len(self.queues), len(types)))
        # Nodes in service are counted by their capacity and labels.
        self.classes: Counter[tuple[Vector, int]] = Counter()
        # It is set once any node says that it is faster or slower than others.
        self.unlike = False
        self.labels: dict[str, int] = {"": 0}
        self.view.label_bits = self.labels
        self.next_app = self.own_number(1)
        self.next_serial = 1
        # It numbers the questions whether a node manager lives.
        self.next_token = 1
        # The manager was started so often before.
        self.epoch = 0
        self.matching = MatchState()
        # These are owed a message, until it is sent; `on_owed` is called for each.
        self.dirty_attempts: dict[AttemptId, Attempt] = {}
        self.dirty_nodes: dict[NodeId, Node] = {}
        self.on_owed: Callable[[AttemptId | NodeId], None] | None = None
        # Each container that is chosen to be preempted has until when it may run, and for which
        # ask; each node slot that is kept has the ask that it is kept for.
        self.marks: dict[ContainerId, tuple[float, int]] = {}
        self.claimed: dict[int, int] = {}
        self.pace = Pace()
        self.started_s = 0.0
        self.now = 0.0
        # Whoever keeps the decisions wants all that each went by, which costs time.
        self.names_terms = False
        self.out: list[Effect] = []
        self.records: list[Table] = []
        # A task is [stage, task, run_s].
        self.unsaved_tasks: dict[AppId, list[list[float]]] = {}
        known = {n: a for n, a in settings.master_demand.items() if n in types.names}
        # What the container of a master of Weft's own holds.
        self.master_vector: Vector = matcher.normalised(types, types.vector(known))
        self.master_demand: Floats = np.array(self.master_vector)
        # No master needs less.
        self.least_master: Floats = np.array(self.master_vector)
        # A job with a master of its own was ever seen.
        self.open_jobs = False
        self.least: Vector = _least(types, settings.min_demand)
        self.least_asked = _amounts(types, settings.min_vcores, settings.min_memory_mb)
        steps = settings.increment_vcores, settings.increment_memory_mb
        self.steps: Vector = _amounts(types, *steps)
        # Requests that ask for something may be booked with more.
        self.raises = any(self.least_asked) or any(self.steps)
        self._shares: tuple[int, Floats] = (-1, np.zeros((0, len(types))))
        self._rooms: dict[int, Vector] = {}
        self._rooms_at = -1

    def decide_by(self, matcher: Matcher) -> None:
        """Take a policy, and note what it has to be told: most keep nothing of what they decide."""
        self.matcher = matcher
        self.hears_grants = _hears(matcher, "granted")
        self.hears_matches = _hears(matcher, "matched")
        self.hears_ends = _hears(matcher, "ended")

    def own_number(self, least: AppId) -> AppId:
        """Return the smallest number from `least` on that this member gives to an application."""
        member, members = self.settings.member, self.settings.members
        return least + (member - least) % members

    def queue_of(self, app: App) -> str:
        """Return the path of an application's queue, of an ended one also where that is gone."""
        return app.left_queue or self.queues.paths[app.queue]

    def owe_node(self, node: Node) -> None:
        """Note that the next answer to a node has something for it."""
        self.dirty_nodes[node.node_id] = node
        if self.on_owed is not None:
            self.on_owed(node.node_id)

    def owe_attempt(self, attempt: Attempt) -> None:
        """Note that the next answer to a master has something for it."""
        self.dirty_attempts[attempt.attempt_id] = attempt
        if self.on_owed is not None:
            self.on_owed(attempt.attempt_id)

    @property
    def nodes_return(self) -> bool:
        """Whether this manager started anew, and nodes of before may be away without being lost."""
        return self.epoch > 0 and self.now - self.started_s < self.settings.node_expiry_s

    @property
    def anything_waits(self) -> bool:
        """Whether room on a node would be of use to anybody: a master, or a pending ask."""
        return bool(self.waiting) or self.rows.live > 0

    def must_keep_nodes(self, now: float) -> bool:
        """Return whether a gang may fit, or it is time to look for starving asks."""
        matching = self.matching
        if self.rows.gangs and matching.gangs_due:
            return True
        return not self.matcher.reserves and now >= matching.reserve_at

    def demand_of_master(self, job: Job) -> Vector:
        """Return what the container of a job's master holds, in the types' order."""
        if job.master is None:
            return self.master_vector
        vector = self.fitted(self.types.vector(job.master.demand))
        self.open_jobs = True
        self.least_master = np.minimum(self.least_master, vector)
        return vector

    def fitted(self, demand: Vector) -> Vector:
        """Return what the policy grants for a demand.

        It rounds up, but makes nothing larger than the largest node is. A queue's maximum bounds
        what is asked for alone, as in YARN.
        """
        rounded = self.matcher.normalised(self.types, demand)
        if rounded == demand:
            return demand
        rows = zip(rounded, demand, self.largest(), strict=True)
        return tuple([min(one, max(asked, most)) for one, asked, most in rows])

    def largest(self) -> Vector:
        """Return the most that a node in service has of each type, without limit where none is."""
        if not self.classes:
            return (inf,) * len(self.types)
        return tuple(map(max, zip(*[capacity for capacity, _ in self.classes], strict=True)))

    def raised(self, demand: Vector) -> Vector:
        """Return what a container that asks for so much is booked with, in the types' order.

        It is the cluster's least allocation or more, in steps of an increment (YARN's
        yarn.scheduler.minimum-allocation-* and increment-allocation); one of nothing takes the
        least that any container may have.
        """
        if not any(demand):
            demand = self.least
        if not self.raises:
            return demand
        rows = zip(demand, self.least_asked, self.steps, strict=True)
        return tuple(
            ceil(max(d, least) / step - TOLERANCE) * step if step > 0 else max(d, least)
            for d, least, step in rows
        )

    def note(self, fact: Fact) -> None:
        """Append a fact to the answer."""
        self.out.append(Note(fact))

    def persist(self, record: Table) -> None:
        """Append a record that is durable before any other effect of the answer."""
        if self.settings.recovery:
            self.records.append(record)

    def rarely(self, point: str) -> bool:
        """Return whether the fault search wants a rare path taken here."""
        buggify = self.settings.buggify
        return buggify is not None and buggify(point)

    def answer(self) -> list[Effect]:
        """Hand out what was decided: records first."""
        out = self.out
        if self.records or self.unsaved_tasks:
            done = [
                {"kind": "tasks", "app": app, "tasks": tasks}
                for app, tasks in self.unsaved_tasks.items()
            ]
            out = [*map(Persist, done), *map(Persist, self.records), *out]
            self.records, self.unsaved_tasks = [], {}
        self.out = []
        return out

    def outbox(self) -> Outbox[Any, Any]:
        """Return an outbox whose numbers were never used by an earlier life of the manager."""
        settings = self.settings
        first = first_number(self.epoch)
        return Outbox(settings.resend_after_s, first, lossless=settings.lossless)

    def label_bit(self, label: str) -> int:
        """Return the bit that an ask's label needs, 0 for none; unknown labels take no bit."""
        return self.labels.get(label, UNKNOWN_LABEL)

    def label_mask(self, labels: tuple[str, ...]) -> int:
        """Return the bits of a node's labels; raises InputError beyond 62 labels on all nodes."""
        fresh = [label for label in dict.fromkeys(labels) if label not in self.labels]
        if fresh:
            if len(self.labels) - 1 + len(fresh) > LABELS_MAX:
                self._forget_labels(labels)
            if len(self.labels) - 1 + len(fresh) > LABELS_MAX:
                raise InputError("labels", f"a cluster has at most {LABELS_MAX} labels")
            used = set(self.labels.values())
            free = (1 << place for place in range(LABELS_MAX) if 1 << place not in used)
            self.labels.update(zip(fresh, free, strict=False))
            self._relabel()
        mask = 0
        for label in labels:
            mask |= self.labels[label]
        return mask

    def _forget_labels(self, wanted: tuple[str, ...]) -> None:
        """Give back the bits of labels that no node has any more, and that are not wanted."""
        carried = {label for node in self.node_at if node.present for label in node.labels}
        for label in [name for name in self.labels if name and name not in carried]:
            if label not in wanted:
                del self.labels[label]

    def _relabel(self) -> None:
        """Update pending asks after a change of the labels' bits."""
        self.rows.relabel(self.label_bit)

    def share_of(self, app: App) -> Vector:
        """Return what an application may count on now."""
        if self._shares[0] != self.matching.version:
            self._shares = (self.matching.version, self.matcher.shares(self.view, self.now))
        shares = self._shares[1]
        if not 0 <= app.slot < len(shares):
            return tuple(0.0 for _ in self.types)
        return tuple(shares[app.slot].tolist())

    def headroom_of(self, app: App) -> Vector:
        """Return what its queue's limits and the cluster leave an application."""
        if self._rooms_at != self.matching.version:
            self._rooms_at = self.matching.version
            self._rooms.clear()
        own = self.matcher.headroom(self.view, app.slot)
        if own is not None:
            return own
        room = self._rooms.get(app.queue)
        if room is None:
            tree, ledger = self.queues, self.ledger
            left = _headroom.code(
                app.queue, ledger.total, ledger.by_queue.held, tree.max_capacity, tree.parent
            )
            room = self._rooms[app.queue] = tuple(left.tolist())
        return room

    def _runs(self, slot: int) -> RunningByEnd:
        """Return what runs on a node, kept from the first call on (most policies never ask)."""
        node = self.node_at[slot]
        runs = node.runs
        if runs is None:
            runs = node.runs = RunningByEnd(len(self.types))
            for held in node.holdings.values():
                runs.add(held.container_id, 1, held.end_s, held.demand)
        return runs


def _hears(matcher: Matcher, word: str) -> bool:
    """Return whether a policy may do anything when it is told: a method of its own."""
    return getattr(kind_of(matcher), word, None) is not getattr(BaseMatcher, word)


def _amounts(types: ResourceTypes, vcores: float, memory_mb: float) -> Vector:
    """Return amounts of these two, in the cluster's types."""
    named = {"vcores": vcores, "memory_mb": memory_mb}
    return types.vector({name: amount for name, amount in named.items() if name in types.names})


def _least(types: ResourceTypes, wanted: Mapping[str, float]) -> Vector:
    """Return the least that a container may have, in the cluster's types; never nothing."""
    least = types.vector({name: amount for name, amount in wanted.items() if name in types.names})
    return least if any(least) else (LEAST_AMOUNT,) + (0.0,) * (len(types) - 1)


Handler = Callable[[Books, Any], None]
