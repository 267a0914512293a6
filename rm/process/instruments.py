"""What the Resource Manager's process measures around its core: policy, journal, the books' state.

The core has no clock; so the policy and the journal are wrapped, and the books are looked at when
Prometheus asks: on the loop's thread arrays are copied, on the endpoint's series are made of them.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np

from rm.core import ResourceManager
from rm.ledger.view import View
from rm.match.protocol import Match, Matcher
from rm.process.remote import RemoteMatcher
from rm.report.reports import dominant
from rm.state.books import Books
from rm.state.lifecycle import AppState, RmNodeState
from weft.model.dag import Floats
from weft.model.ids import format_app
from weft.model.resources import TOLERANCE
from weft.runtime.exposition import DURATION_BUCKETS_S, Exposition, base_unit
from weft.runtime.interfaces import Store
from weft.runtime.scrape import Labels

Series = dict[Labels, float]
PHASE = "weft_scheduler_phase_seconds"
PHASE_TEXT = (
    "Time of the scheduler by phase, s: a policy's decision for a node, the journal's write"
)


def instrument(out: Exposition, manager: ResourceManager) -> None:
    """Measure the policy of a manager, and let its books be scraped."""
    books = manager.books
    manager.wrap_matcher(lambda policy: cast(Matcher, MeteredMatcher(policy, out)))
    told = 0
    text = "Ends refused because the container never ran on the node that reported them"
    out.count("weft_ends_refused", text, 0)

    def sample() -> Callable[[], None]:
        nonlocal told
        out.count("weft_ends_refused", text, books.refused_ends - told)
        told = books.refused_ends
        return look(books, out)

    out.sample(sample)


class MeteredMatcher:
    """A policy, with the time of its decisions and the wait of what it places measured."""

    def __init__(self, matcher: Matcher, out: Exposition) -> None:
        self._matcher = matcher
        inner = getattr(matcher, "inner", matcher)
        self._remote = inner if isinstance(inner, RemoteMatcher) else None
        self._out = out
        self._took = out.histogram(PHASE, PHASE_TEXT, (("phase", "match"),))
        self._waited = out.histogram(
            "weft_allocation_wait_seconds",
            "Time from an ask, or from its last grant, to a container's grant, s of cluster time",
            bounds=DURATION_BUCKETS_S,
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self._matcher, name)

    def match(self, view: View, node: int, now: float) -> Match:
        """Decide as the policy does, and measure."""
        began_s = time.perf_counter()
        match = self._matcher.match(view, node, now)
        self._took.observe(time.perf_counter() - began_s)
        if self._remote is not None:
            self._count_troubles(self._remote)
        since_s = view.rows.since_s
        for placement in match.placements:
            self._waited.observe(max(0.0, now - float(since_s[placement.row])), placement.copies)
            if placement.overbooked:
                text = "Containers granted beyond a node's capacity of a divisible resource"
                self._out.count("weft_containers_overbooked", text, placement.copies)
        if match.declined:
            text = "Opportunities declined by asks that wait for a nearer node"
            self._out.count("weft_opportunities_declined", text, len(match.declined))
        return match

    def _count_troubles(self, remote: RemoteMatcher) -> None:
        unanswered, refused = remote.troubles()
        if unanswered:
            text = "Decisions that a matcher of another process left unanswered"
            self._out.count("weft_matcher_unanswered", text, unanswered)
        if refused:
            text = "Picks of a matcher of another process that broke a rule and were passed over"
            self._out.count("weft_matcher_refused", text, refused)


class MeteredStore:
    """The journal, with the time of its durable writes measured."""

    def __init__(self, journal: Store, out: Exposition) -> None:
        self._journal = journal
        self._out = out
        text = "Time of one durable write of the state store, s"
        self._took = out.histogram("weft_store_write_seconds", text)

    def append(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Write as the journal does, and measure; called on another thread."""
        began_s = time.perf_counter()
        self._journal.append(records)
        self._took.observe(time.perf_counter() - began_s)
        self._out.count("weft_store_records", "Records that the state store wrote", len(records))


def look(books: Books, out: Exposition) -> Callable[[], None]:
    """Copy what the books say now; the answer turns the copy into series."""
    parts = [_nodes(books), _queues(books), _apps(books)]

    def publish() -> None:
        for part in parts:
            for name, (text, series) in part().items():
                out.show(name, text, series)

    return publish


Families = dict[str, tuple[str, Series]]


def _by_resource(books: Books) -> list[tuple[Labels, float]]:
    return [base_unit(name) for name in books.types.names]


def _spread(labels: Labels, amounts: Any, units: list[tuple[Labels, float]]) -> Series:
    """Return one series a resource, in base units."""
    pairs = zip(units, amounts, strict=False)
    return {(*labels, *unit): float(amount) * factor for (unit, factor), amount in pairs}


def _nodes(books: Books) -> Callable[[], Families]:
    """Return the source of nodes' series: those in service or being drained."""
    n, columns, now = books.ledger.node_count, books.ledger.nodes, books.now
    units = _by_resource(books)
    shown = (RmNodeState.RUNNING, RmNodeState.UNHEALTHY, RmNodeState.DECOMMISSIONING)
    up = [node for node in books.node_at if node.state in shown and node.present]
    names = [node.node_id for node in up]
    use = [node.use for node in up]
    slots = np.array([node.slot for node in up], dtype=np.int64)
    capacity: Floats = columns.capacity[:n][slots]
    held: Floats = columns.held[:n][slots]
    counts, kept = columns.containers[:n][slots], columns.reserved[:n][slots]
    silent_s = now - columns.seen_s[:n][slots]
    # Nobody may use what is left of a node that is drained.
    serves = columns.up[:n][slots]

    def families() -> Families:
        rows: list[Labels] = [(("node", name),) for name in names]
        found: list[Series] = [{}, {}, {}]
        for row, labels in enumerate(rows):
            found[0].update(_spread(labels, capacity[row].tolist(), units))
            found[1].update(_spread(labels, held[row].tolist(), units))
            found[2].update(_spread(labels, use[row], units))
        beyond = held - capacity
        over = np.where(beyond > TOLERANCE * capacity, beyond, 0.0).sum(axis=0)
        free = np.maximum(capacity - held, 0.0)[serves].sum(axis=0)
        return {
            "weft_node_capacity": ("What a node has", found[0]),
            "weft_node_allocated": ("What a node's containers were granted", found[1]),
            "weft_node_used": ("What a node measured as used", found[2]),
            "weft_node_containers": (
                "Containers on a node",
                dict(zip(rows, counts.tolist(), strict=True)),
            ),
            "weft_node_reserved": (
                "1 where a node is kept for an ask that fits nowhere",
                {labels: float(kept[row] > 0) for row, labels in enumerate(rows)},
            ),
            "weft_node_silence_seconds": (
                "Time since a node's last heartbeat, s of cluster time",
                {labels: max(0.0, float(silent_s[row])) for row, labels in enumerate(rows)},
            ),
            "weft_cluster_capacity": (
                "What all nodes in service have",
                _spread((), capacity[serves].sum(axis=0).tolist(), units),
            ),
            "weft_cluster_allocated": (
                "What all containers were granted",
                _spread((), held.sum(axis=0).tolist(), units),
            ),
            "weft_cluster_leftover": ("What nobody was granted", _spread((), free.tolist(), units)),
            "weft_cluster_overbooked": (
                "What was granted beyond nodes' capacities",
                _spread((), over.tolist(), units),
            ),
        }

    return families


def _queues(books: Books) -> Callable[[], Families]:
    """Return the source of queues' series: every queue with all below it."""
    tree, columns, units = books.queues, books.ledger.by_queue, _by_resource(books)
    size, total, asks = len(tree), books.ledger.total.copy(), books.rows
    held, pending = columns.held[:size].copy(), columns.pending[:size].copy()
    deficits = np.array(books.matcher.deficits(books.view), dtype=np.float64)
    capacity, most = tree.capacity, tree.max_capacity
    n = asks.count
    queue = books.ledger.apps.queue[asks.app[:n]]
    wanted = asks.pending[:n, None] * asks.demand[:n]
    running = np.zeros((size, 2))
    for app in books.app_at:
        if app is not None:
            running[list(tree.chains[app.queue]), int(app.state is AppState.RUNNING)] += 1

    def families() -> Families:
        asked = np.zeros((size, len(units)))
        for leaf in set(queue.tolist()):
            asked[list(tree.chains[leaf])] += wanted[queue == leaf].sum(axis=0)
        rows: list[Labels] = [(("queue", path),) for path in tree.paths]
        found: list[Series] = [{}, {}]
        for slot, labels in enumerate(rows):
            found[0].update(_spread(labels, held[slot].tolist(), units))
            found[1].update(_spread(labels, asked[slot].tolist(), units))
        apps = {
            (*labels, ("state", state)): float(running[slot, position])
            for slot, labels in enumerate(rows)
            for position, state in enumerate(("waiting", "running"))
        }

        def plain(values: Any) -> Series:
            return {labels: float(value) for labels, value in zip(rows, values, strict=True)}

        used = [dominant(held[slot], total) for slot in range(size)]
        return {
            "weft_queue_allocated": ("What a queue's containers were granted", found[0]),
            "weft_queue_pending": ("What a queue's pending containers would need", found[1]),
            "weft_queue_pending_containers": ("Containers asked for, not granted", plain(pending)),
            "weft_queue_apps": ("Applications that have not ended, by queue", apps),
            "weft_queue_used_ratio": ("A queue's dominant share of the cluster", plain(used)),
            "weft_queue_capacity_ratio": ("Share guaranteed to a queue", plain(capacity)),
            "weft_queue_max_capacity_ratio": ("Share that a queue may reach", plain(most)),
            "weft_queue_deficit": ("The policy's deficit counter of a queue", plain(deficits)),
        }

    return families


def _apps(books: Books) -> Callable[[], Families]:
    """Return the source of applications' series: those that have not ended, by YARN's id."""
    columns, cluster_ts, now = books.ledger.apps, books.cluster_ts, books.now
    live = [app for app in books.app_at if app is not None]
    rows = [
        (
            (
                ("app", format_app(cluster_ts, app.app_id)),
                ("name", app.job.name),
                ("queue", books.queue_of(app)),
            ),
            float(columns.containers[app.slot]),
            float(columns.pending[app.slot]),
            float(app.job.task_count),
            float(sum(app.finished_by_stage)),
            now - app.submitted_s,
        )
        for app in live
    ]

    def families() -> Families:
        texts = {
            "weft_app_containers": "Containers that an application holds",
            "weft_app_pending_containers": "Containers that an application asks for",
            "weft_app_tasks": "Tasks of an application",
            "weft_app_finished_tasks": "Finished tasks of an application",
            "weft_app_age_seconds": "Time since an application was submitted, s of cluster time",
        }
        return {
            name: (text, {row[0]: cast(float, row[1 + position]) for row in rows})
            for position, (name, text) in enumerate(texts.items())
        }

    return families
