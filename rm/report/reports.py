"""What clients are told, built from the books on demand.

A report is a copy: it does not change with the books, and its numbers belong together, as it is
made within one event. Listings are cut into pages by size and not by number only, as one message
has a limit. The next page begins after what its token names and not at a place in the list, so what
comes or goes between two pages hides no other entry.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, dropwhile, islice
from math import inf

import numpy as np

from rm.access import sees
from rm.applications import attempts_max, held_until_now
from rm.placing.feasible import return_wait_s
from rm.report.pages import number_of, page
from rm.state.books import Books
from rm.state.lifecycle import AppState, AttemptState, RmContainerState, reported
from rm.state.records import ENDED_SHOWN_MAX, App, Holding, Node
from weft.model.dag import Floats
from weft.model.ids import ContainerId, attempt_id
from weft.model.queues import RUNNING, STOPPED
from weft.protocol.access import TRUSTED, Caller
from weft.protocol.messages import ContainerEnd, ends_of
from weft.protocol.requests import (
    ApplicationReport,
    ClusterMetrics,
    ContainerReport,
    ListApplications,
    ListContainers,
    ListNodes,
    NodeReport,
    Page,
    QueueReport,
    StageReport,
)

# The token of a page of containers begins with one of these.
HELD, ENDED = "h", "e"


def returning(books: Books, app: App) -> str:
    """Return what an application waits for whose master has not told the manager of its new life.

    "" where none is awaited.
    """
    attempt = app.attempt
    if attempt is None or not attempt.recovered or attempt.state is not AttemptState.ALLOCATED:
        return ""
    ago_s, wait_s = books.now - books.started_s, return_wait_s(books)
    return (
        f"the manager was started anew {ago_s:.0f} s ago and waits for this master to register; "
        f"it waits up to {wait_s:g} s for nodes to come back"
    )


def application(books: Books, app: App, *, stages: bool = False) -> ApplicationReport:
    """Return the report of one application."""
    attempt, ledger = app.attempt, books.ledger
    held = app.slot >= 0
    tasks, finished = app.job.task_count, sum(app.finished_by_stage)
    # A master tells its progress with its next heartbeat; ends of its tasks may be known before.
    progress = finished / tasks if tasks else app.progress
    amounts = ledger.apps.held[app.slot].tolist() if held else [0.0] * len(books.types)
    return ApplicationReport(
        cluster_ts=books.cluster_ts,
        app_id=app.app_id,
        name=app.job.name,
        user=app.job.user,
        queue=books.queue_of(app),
        priority=app.priority,
        state=reported(app.state),
        final_status=app.final_status,
        progress=progress,
        attempt_id=attempt_id(app.app_id, app.last_number) if app.last_number else 0,
        master_node=(attempt.master.node.node_id if attempt is not None and attempt.master else ""),
        submitted_s=app.submitted_s,
        started_s=app.started_s,
        finished_s=app.finished_s,
        tasks=tasks,
        finished_tasks=finished,
        running_containers=int(ledger.apps.containers[app.slot]) if held else 0,
        pending_containers=int(ledger.apps.pending[app.slot]) if held else 0,
        allocated=books.types.mapping(amounts),
        diagnostics=app.diagnostics or returning(books, app),
        stages=_stages(app) if stages else (),
        held_s=books.types.mapping(held_until_now(books, app)),
        kind=app.job.kind,
        tags=app.job.tags,
        tracking_url=app.tracking_url,
        master_address="" if attempt is None or app.job.master is None else attempt.address,
        preempted_containers=app.preempted,
        preempted=books.types.mapping(app.preempted_amounts),
        expires_s=0.0 if app.expires_s == inf else app.expires_s,
        max_attempts=attempts_max(books, app.job),
    )


def pending_by_stage(app: App) -> dict[int, int]:
    """Return containers asked for and not granted, by stage position."""
    pending: Counter[int] = Counter()
    if app.attempt is not None:
        for entry in app.attempt.entries.values():
            pending[entry.ask.stage] += entry.pending
    return pending


def _stages(app: App) -> tuple[StageReport, ...]:
    pending = pending_by_stage(app)
    return tuple(
        StageReport(
            name=stage.name,
            tasks=stage.tasks,
            pending=pending.get(position, 0),
            running=app.running[position],
            finished=app.finished_by_stage[position],
            failed_attempts=app.failed[position],
            parents=tuple((edge.stage, edge.kind.value) for edge in stage.parents),
        )
        for position, stage in enumerate(app.job.stages)
    )


def applications(
    books: Books, request: ListApplications, caller: Caller = TRUSTED
) -> Page[ApplicationReport]:
    """Return a page of the applications that match, the newest that is not listed yet first.

    It tells a caller of no application that it may not see.
    """

    def wanted(app: App) -> bool:
        path = books.queue_of(app)
        return (
            (not request.states or reported(app.state) in request.states)
            and (not request.queue or request.queue in (path, path.rpartition(".")[2]))
            and (not request.user or request.user == app.job.user)
            and (caller.everything or sees(books, app, caller))
        )

    older: Iterator[App] = reversed(books.apps.values())
    if request.page:
        last = number_of(request.page, books.next_app)
        # A number that was reserved may come after younger ones.
        if last in books.apps:
            older = islice(dropwhile(lambda app: app.app_id != last, older), 1, None)
        else:
            older = (app for app in older if app.app_id < last)
    made = page(
        filter(wanted, older),
        lambda app: application(books, app),
        lambda app: str(app.app_id),
        request.limit,
    )
    return Page(made.items[::-1], made.next)


def nodes(books: Books, request: ListNodes) -> Page[NodeReport]:
    """Return a page of the nodes in the given states, in order of their slots."""
    columns, names = books.ledger.nodes, books.types.mapping

    def report(node: Node) -> NodeReport:
        return NodeReport(
            node_id=node.node_id,
            address=node.address,
            rack=node.rack,
            labels=node.labels,
            state=node.state.name,
            capacity=names(node.capacity),
            allocated=names(columns.held[node.slot].tolist()),
            use=names(node.use) if node.use else {},
            containers=int(columns.containers[node.slot]),
            last_heartbeat_s=float(columns.seen_s[node.slot]),
            health_report=node.unhealthy,
            lacking=node.lacking,
        )

    first = number_of(request.page, len(books.node_at)) + 1 if request.page else 0
    wanted = (
        node
        for node in books.node_at[first:]
        if (not request.states or node.state.name in request.states)
        and request.node in ("", node.node_id)
    )
    return page(wanted, report, lambda node: str(node.slot), request.limit)


def dominant(held: Floats, total: Floats) -> float:
    """Return the largest share of any resource."""
    return float((held / np.where(total > 0, total, np.inf)).max(initial=0.0))


def queue(books: Books, slot: int) -> QueueReport:
    """Return a queue's report with all below it."""
    counts = Counter(
        (above, app.state is AppState.RUNNING)
        for app in books.app_at
        if app is not None
        for above in books.queues.chains[app.queue]
    )
    return _queue(books, slot, counts, books.matcher.deficits(books.view), _asked(books))


def _asked(books: Books) -> Floats:
    """Return what pending containers need by queue, shape (queues, d)."""
    rows, tree = books.rows, books.queues
    n = rows.count
    found = np.zeros((len(tree), len(books.types)))
    leaf = books.ledger.apps.queue[rows.app[:n]]
    np.add.at(found, leaf, rows.pending[:n, None] * rows.demand[:n])
    # Parents come before their children.
    for slot in range(len(tree) - 1, 0, -1):
        found[tree.parent[slot]] += found[slot]
    return found


def _queue(
    books: Books, slot: int, counts: Counter[tuple[int, bool]], deficits: Floats, asked: Floats
) -> QueueReport:
    columns, tree = books.ledger.by_queue, books.queues
    return QueueReport(
        name=tree.paths[slot],
        capacity=float(tree.capacity[slot]),
        max_capacity=float(tree.max_capacity[slot]),
        used=dominant(columns.held[slot], books.ledger.total),
        state=_state(books, slot),
        running_apps=counts[slot, True],
        pending_apps=counts[slot, False],
        allocated=books.types.mapping(columns.held[slot].tolist()),
        pending_containers=int(columns.pending[slot]),
        deficit=float(deficits[slot]),
        max_applications=_most_apps(books, slot),
        max_am_share=float(tree.max_am_share[slot]),
        children=tuple(
            _queue(books, child, counts, deficits, asked) for child in tree.children[slot]
        ),
        asked=books.types.mapping(asked[slot].tolist()),
    )


def _state(books: Books, slot: int) -> str:
    """Return a queue's state; a stopped one drains as long as applications are there."""
    if not books.queues.stopped[slot]:
        return RUNNING
    return "DRAINING" if books.ledger.by_queue.apps[slot] else STOPPED


def _most_apps(books: Books, slot: int) -> int:
    """Return how many applications that have not ended a queue takes; 0: any number."""
    leaf = books.settings.queue_apps_max if books.queues.is_leaf[slot] else 0
    return int(books.queues.max_applications[slot]) or leaf


# Use is told where so many of the nodes in service have told theirs.
_MEASURED_MIN = 0.95


def metrics(books: Books) -> ClusterMetrics:
    """Return counts over the whole cluster."""
    names, columns = books.types.mapping, books.ledger.nodes
    n = books.ledger.node_count
    up = columns.up[:n]
    held = columns.held[:n][up].sum(axis=0)
    measured = [node.use for node in books.node_at if node.use and up[node.slot]]
    # Nodes that have just come did not tell theirs, and a sum without them would seem to fall.
    tell = len(measured) >= _MEASURED_MIN * up.sum()
    return ClusterMetrics(
        cluster_ts=books.cluster_ts,
        scheduler=books.matcher.name,
        started_s=books.started_s,
        now_s=books.now,
        nodes=dict(Counter(node.state.name for node in books.node_at)),
        apps=dict(Counter(reported(app.state) for app in books.apps.values())),
        capacity=names(books.ledger.total.tolist()),
        allocated=names(held.tolist()),
        containers_running=len(books.holdings),
        containers_pending=int(books.ledger.by_queue.pending[0]),
        use=names(np.array(measured).sum(axis=0).tolist()) if measured and tell else {},
        labels=tuple(sorted(_labels(books))),
        outstanding_s=_running_s(books, held) + _unstarted_s(books),
    )


def _labels(books: Books) -> set[str]:
    """Return the labels of the nodes in service."""
    bits = 0
    for _, each in books.classes:
        bits |= each
    return {name for name, bit in books.labels.items() if name and bits & bit}


def _unstarted_s(books: Books) -> float:
    """Return the work that did not start, s of the whole cluster.

    Masters report theirs; until one does, that is all of its job.
    """
    apps, total, n = books.ledger.apps, books.ledger.total, books.ledger.app_slots
    some = total > 0
    waits = [app is not None and app.state is AppState.ACCEPTED for app in books.app_at[:n]]
    whole_s: Floats = (apps.work[:n, some] / total[some]).sum(axis=1)
    left_s: Floats = np.where(waits, whole_s, apps.remaining[:n])
    return float(left_s[apps.active[:n]].sum())


def _running_s(books: Books, held: Floats) -> float:
    """Return about how much is left of what runs, s of the whole cluster: half of a mean task."""
    total = books.ledger.total
    shares: Floats = held[total > 0] / total[total > 0]
    return float(shares.sum()) * books.pace.mean_s / 2


def containers(books: Books, app: App, request: ListContainers) -> Page[ContainerReport]:
    """Return a page of an application's containers: held ones, then ended ones, newest first."""
    held = sorted(number for attempt in app.attempts for number in attempt.holdings)
    ended = _ended_last(app)
    which, last = request.page[:1], request.page[1:]
    if which == ENDED:
        numbers = [holding.container_id for holding, *_ in ended]
        number = number_of(last)
        held, ended = [], ended[numbers.index(number) + 1 if number in numbers else 0 :]
    elif request.page:
        number = number_of(last if which == HELD else "")
        held = held[bisect_right(held, number) :]
    rows: Iterator[int | tuple[Holding, ContainerEnd, float]] = chain(held, ended)

    def report(row: int | tuple[Holding, ContainerEnd, float]) -> ContainerReport:
        if isinstance(row, int):
            # A run is not taken apart for this.
            holding = books.holdings.peek(row)
            assert holding is not None
            stage, task, attempt = books.tasks_in.get(row, (holding.stage, -1, 0))
            # Its node has said so; to what is decided that makes no difference.
            state = RmContainerState.RUNNING if row in books.tasks_in else holding.state
            running = _container(app, holding, row, stage, state.name)
            return replace(running, index=task, attempt=attempt)
        return _ended(app, *row)

    def key(row: int | tuple[Holding, ContainerEnd, float]) -> str:
        return f"{HELD}{row}" if isinstance(row, int) else f"{ENDED}{row[0].container_id}"

    return page(rows, report, key, request.limit)


def _ended_last(app: App) -> list[tuple[Holding, ContainerEnd, float]]:
    """Return the containers that ended last, each by itself, the newest first."""
    rows: list[tuple[Holding, ContainerEnd, float]] = []
    for holding, end, ended_s in reversed(app.closed):
        for one in reversed(ends_of(end)):
            own = holding if holding.count == 1 else holding.part(one.container_id)
            rows.append((own, one, ended_s))
        if len(rows) >= ENDED_SHOWN_MAX:
            break
    return rows[:ENDED_SHOWN_MAX]


def _ended(app: App, holding: Holding, end: ContainerEnd, ended_s: float) -> ContainerReport:
    return replace(
        _container(app, holding, holding.container_id, end.stage, end.outcome.name),
        index=end.task,
        attempt=end.attempt,
        finished_s=ended_s,
        exit_code=end.exit_code,
        run_s=end.run_s,
        message=end.message,
    )


def _container(
    app: App, holding: Holding, number: ContainerId, stage: int, state: str
) -> ContainerReport:
    return ContainerReport(
        container_id=number,
        node_id=holding.node.node_id,
        stage=app.job.stages[stage].name if 0 <= stage < len(app.job.stages) else "",
        index=-1,
        attempt=0,
        state=state,
        started_s=holding.started_s,
        finished_s=0.0,
        node_address=holding.node.address,
    )
