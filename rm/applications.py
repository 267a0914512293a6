"""Applications and their attempts: from acceptance to the last container's end."""

from collections.abc import Iterable
from math import inf

from rm.containers import close, order_spare, order_stop
from rm.forgetting import remember
from rm.state.books import Books
from rm.state.lifecycle import (
    APP,
    ATTEMPT,
    ENDED_APPS,
    AppEvent,
    AppState,
    AttemptEvent,
    AttemptState,
    RmContainerState,
    reported,
)
from rm.state.records import App, ApplicationOver, Attempt, Holding, Holdings
from weft.model.ids import NodeId, attempt_id, attempt_of_container, container_id, number_in_life
from weft.model.job import Job
from weft.model.job_size import live_bytes
from weft.model.json_types import Json
from weft.model.resources import ResourceTypes, Vector
from weft.protocol.effects import Send, SetTimer
from weft.protocol.facts import AppChanged, AttemptChanged
from weft.protocol.messages import AttemptStopped, ContainerEnd, Outcome, master_address

OVER = (*ENDED_APPS, AppState.FINISHING, AppState.KILLING)
# An attempt's number is one byte of its id.
ATTEMPTS_MAX = 255
# The end of a node counts against a master that was made at most so long before, s.
NODE_ENDS_WITHIN_S = 3600.0
DEAD = (AttemptState.FINISHED, AttemptState.FAILED, AttemptState.KILLED)


def move_app(books: Books, app: App, event: AppEvent, diagnostics: str = "") -> None:
    """Step an application's life cycle and note it."""
    before = app.state
    app.state = APP.next(before, event)
    if diagnostics:
        app.diagnostics = diagnostics
    if app.state is not before:
        path = books.queue_of(app)
        status = app.final_status
        books.note(AppChanged(app.app_id, app.job.name, path, app.state.name, diagnostics, status))


def move_attempt(
    books: Books, attempt: Attempt, event: AttemptEvent, diagnostics: str = ""
) -> None:
    """Step an attempt's life cycle and note it."""
    attempt.state = ATTEMPT.next(attempt.state, event)
    attempt.diagnostics = diagnostics or attempt.diagnostics
    if attempt.state in DEAD:
        books.early.pop(attempt.attempt_id, None)
    books.note(AttemptChanged(attempt.attempt_id, attempt.state.name, diagnostics))


def open_app(books: Books, app: App) -> None:
    """Give an accepted application its slot in the ledger."""
    work = work_of(books.types, app.job)
    app.slot = books.ledger.open_app(app.queue, app.job.user, app.priority, app.app_id, work)
    while len(books.app_at) < books.ledger.app_slots:
        books.app_at.append(None)
    books.app_at[app.slot] = app
    books.live_bytes += live_bytes(app.job, app.job_bytes)
    books.matching.changed()
    books.matcher.app_joined(books.view, app.slot, books.now)


def work_of(types: ResourceTypes, job: Job) -> Vector:
    """Return declared demand x duration over all tasks of a job, absolute; in the types' order."""
    total = dict.fromkeys(types.names, 0.0)
    for stage in job.stages:
        for index in range(stage.tasks) if stage.overrides else (0,):
            lasts_s = stage.duration_of(index) * (1 if stage.overrides else stage.tasks)
            for name, amount in stage.demand_of(index).items():
                if name in total:
                    total[name] += amount * lasts_s
    return tuple(total.values())


def new_attempt(books: Books, app: App, number: int) -> Attempt:
    """Make the application's next attempt its current one."""
    vector = books.demand_of_master(app.job)
    holdings = Holdings(books.holdings)
    attempt = Attempt(attempt_id(app.app_id, number), app, books.outbox(), vector, holdings)
    attempt.id_before = container_id(attempt.attempt_id, number_in_life(books.epoch, 0))
    attempt.seed = int(books.rng.integers(2**31))
    attempt.created_s = attempt.seen_s = books.now
    attempt.avoid = frozenset(one.failed_on for one in app.attempts if one.failed_on)
    app.attempt, app.last_number = attempt, number
    app.attempts.append(attempt)
    return attempt


def schedule_attempt(books: Books, app: App) -> None:
    """Queue the application for a container for its (next) master.

    An unmanaged one (its master runs outside of the cluster) needs none: it only has to register.
    """
    number = len(app.attempts) + 1
    attempt = new_attempt(books, app, number)
    move_attempt(books, attempt, AttemptEvent.SCHEDULE)
    books.matching.changed()
    if app.job.unmanaged:
        move_attempt(books, attempt, AttemptEvent.CONTAINER_ALLOCATED)
        persist_attempt(books, attempt, "")
        books.matcher.attempt_added(books.view, app.slot, None, "")
    else:
        books.waiting.append(attempt)
        spec = app.job.master
        label = "" if spec is None else spec.label
        books.matcher.attempt_added(books.view, app.slot, attempt.vector, label)


def begin(books: Books, app: App) -> None:
    """Keep when the first master of an application came, also over restarts of the manager."""
    if app.started_s == 0.0:
        app.started_s = books.now
        books.persist({"kind": "started", "app": app.app_id, "started_s": books.now})


def persist_attempt(books: Books, attempt: Attempt, node: NodeId) -> None:
    """Keep that an attempt's master has its container (an unmanaged one has none)."""
    books.persist(
        {
            "kind": "attempt",
            "app": attempt.app.app_id,
            "attempt": attempt.attempt_id,
            "container": attempt.master_id,
            "node": node,
            "seed": attempt.seed,
        }
    )


def fail_attempt(
    books: Books, attempt: Attempt, why: str, *, counts: bool = True, ended_node: bool = False
) -> None:
    """Fail an attempt whose master is lost: stop what it left, and start another.

    None is started where too many failed. `counts`: False where the node was lost and the master
    with it, which is no failure of its own (YARN's RMAppAttempt.shouldCountTowardsMaxAttemptRetry).
    `ended_node`: the node ended; where that happens to one master after the other, they are taken
    for the cause.
    """
    move_attempt(books, attempt, AttemptEvent.FAIL, why)
    app = attempt.app
    early = books.now - attempt.created_s <= NODE_ENDS_WITHIN_S
    attempt.counts, attempt.ended_node = counts, ended_node and early
    attempt.failed_on = attempt.master.node.node_id if attempt.master is not None else ""
    failures = sum(one.counts for one in app.attempts)
    number = len(app.attempts)
    nodes_ended = [one.failed_on for one in app.attempts if one.ended_node]
    poison = 0 < books.settings.node_ends_max <= len(nodes_ended)
    again = failures < attempts_max(books, app.job) and number < ATTEMPTS_MAX and not poison
    keep = again and hands_over(books, app)
    _retire(books, attempt, why, keep=keep)
    record = {"kind": "failed", "app": app.app_id, "attempt": number, "why": why, "counts": counts}
    more: Json = {"kept": True} if keep and attempt.takes_over else {}
    if attempt.ended_node:
        more["ended_node"] = True
    if attempt.failed_on:
        more["node"] = attempt.failed_on
    books.persist({**record, **more})
    if again:
        if app.state is AppState.RUNNING:
            move_app(books, app, AppEvent.ATTEMPT_FAILED, why)
        schedule_attempt(books, app)
        return
    if poison:
        text = f"{len(nodes_ended)} masters ended with their nodes ({', '.join(nodes_ended)}), "
        text += f"which they may have caused; the last: {why}"
        end_app(books, app, AppEvent.ATTEMPTS_EXHAUSTED, "FAILED", text)
        settle(books, app)
        return
    text = f"{why}; {failures} attempts failed"
    if failures < number:
        text += f", and {number - failures} went with their nodes"
    end_app(books, app, AppEvent.ATTEMPTS_EXHAUSTED, "FAILED", text)
    settle(books, app)


def hands_over(books: Books, app: App) -> bool:
    """Return whether containers of a lost attempt may go on, as with YARN's keep-containers.

    Those of Weft's own masters may, where the manager's settings say so. A master that a job brings
    along does not know what runs in them.
    """
    return books.settings.takeover and app.job.master is None


def stop_earlier(books: Books, app: App) -> None:
    """Stop what earlier attempts left running."""
    for attempt in app.attempts:
        for number, holding in list(attempt.holdings.items()):
            if app.attempt is None or attempt_of_container(number) != app.attempt.attempt_id:
                order_stop(books, holding)


def attempts_max(books: Books, job: Job) -> int:
    """Return how many attempts may fail: the job may lower the manager's limit, never raise it."""
    most = books.settings.max_attempts
    asked = 0 if job.master is None else job.master.max_attempts
    return min(asked, most) if asked else most


def finish_attempt(books: Books, attempt: Attempt, status: str, diagnostics: str) -> None:
    """End an attempt and its application as its master reported; its container ends by itself."""
    move_attempt(books, attempt, AttemptEvent.UNREGISTERED, diagnostics)
    _retire(books, attempt, "")
    end_app(books, attempt.app, AppEvent.ATTEMPT_UNREGISTERED, status, diagnostics)
    settle(books, attempt.app)


def kill_app(books: Books, app: App, why: str) -> None:
    """Stop an application on a client's order."""
    attempt = app.attempt
    if attempt is not None and ATTEMPT.allows(attempt.state, AttemptEvent.KILL):
        move_attempt(books, attempt, AttemptEvent.KILL, why)
        _retire(books, attempt, why)
    end_app(books, app, AppEvent.KILL, "KILLED", why)
    settle(books, app)


def end_app(books: Books, app: App, event: AppEvent, status: str, diagnostics: str) -> None:
    """Decide an application's end, durably.

    Its containers may take long to end after that (FINISHING, KILLING), but how it ended is final
    from here on: clients are told so, and a manager that restarts meanwhile finds it decided.
    """
    app.final_status = status
    app.sizes = []
    app.finished_s = books.now
    if status == "SUCCEEDED":
        app.progress = 1.0
        # The ends that its master heard first are still on their way to the manager.
        app.finished_by_stage = [stage.tasks for stage in app.job.stages]
    move_app(books, app, event, diagnostics)
    if app.expires_s < inf:
        app.expires_s = inf
        books.out.append(SetTimer(None, ("lifetime", app.app_id)))
    more: Json = {}
    if any(app.failed):
        more["failed_tasks"] = [[stage, n] for stage, n in enumerate(app.failed) if n]
    if app.preempted:
        more["preempted"] = app.preempted
        more["preempted_amounts"] = books.types.mapping(app.preempted_amounts)
    books.persist(
        {
            "kind": "final",
            "app": app.app_id,
            "state": reported(app.state),
            "status": status,
            "diagnostics": app.diagnostics,
            "started_s": app.started_s,
            "finished_s": app.finished_s,
            "tracking_url": app.tracking_url,
            "progress": app.progress,
            "held_s": books.types.mapping(held_until_now(books, app)),
            "attempt": 0 if app.attempt is None else app.attempt.attempt_id,
            **more,
        }
    )


def held_until_now(books: Books, app: App) -> list[float]:
    """Return amount x s that an application held so far, masters included; in the types' order."""
    held_s: list[float] = app.held_s.tolist()
    for attempt in app.attempts:
        for holding in attempt.holdings.once():
            lasted_s = holding.count * (books.now - holding.started_s)
            for r, amount in enumerate(holding.vector):
                held_s[r] += amount * lasted_s
    return held_s


def settle(books: Books, app: App) -> None:
    """Take an ended application out of the ledger once its last container is gone.

    Called after whatever may have been the last thing that it waited for, so no caller has to know
    whether it was. The matcher is told while the slot is still this application's, as its own
    notes are kept by slot, and the next application may get it within the same event.
    """
    if app.state is AppState.RUNNING or app.slot < 0 or app.state not in OVER:
        return
    if books.ledger.apps.containers[app.slot]:
        if not _master_runs(app):
            books.ledger.app_over(app.slot)
            books.matcher.app_over(books.view, app.slot)
        return
    books.matcher.app_left(books.view, app.slot, books.now)
    books.ledger.close_app(app.slot)
    books.app_at[app.slot] = None
    books.live_bytes -= live_bytes(app.job, app.job_bytes)
    app.slot = -1
    app.finished = []
    books.matching.changed()
    if app.attempt and ATTEMPT.allows(app.attempt.state, AttemptEvent.CONTAINERS_GONE):
        move_attempt(books, app.attempt, AttemptEvent.CONTAINERS_GONE)
    if APP.allows(app.state, AppEvent.CONTAINERS_GONE):
        move_app(books, app, AppEvent.CONTAINERS_GONE)
    if app.nodes or app.job.master is not None or books.with_files:
        _clean_up(books, app)
    remember(books, app)


def _master_runs(app: App) -> bool:
    """Return whether the master's container runs on, which nobody ordered to stop."""
    attempt = app.attempt
    master = None if attempt is None else attempt.master
    return (
        attempt is not None
        and master is not None
        and master.container_id in attempt.holdings
        and master.state is not RmContainerState.STOPPING
    )


def _clean_up(books: Books, app: App) -> None:
    """Tell the nodes that an application is over on which it may have left files: they may go.

    Of one that was there before the manager's restart nobody knows where it ran, so all are told.
    """
    names: Iterable[NodeId] = app.nodes
    if any(attempt.recovered for attempt in app.attempts):
        names = books.nodes if app.job.master is not None else books.with_files
    for name in tuple(names):
        node = books.nodes.get(name)
        if node is None:
            # It went long ago, and nothing is known of it.
            continue
        node.outbox.put(-app.app_id, ApplicationOver(app.app_id))
        books.owe_node(node)
    app.nodes = {}


def container_ended(books: Books, holding: Holding, end: ContainerEnd) -> None:
    """Book the end of a container; where it was the master's, its attempt fails.

    The end of a master's own is the end of its attempt. Whose fault that was decides whether it
    counts: a node that was lost takes its masters along, and one that was told to stop is not to
    blame either (`Holding.stop_reason`); whatever else ends a master is its own.
    """
    close(books, holding, end)
    attempt = holding.attempt
    if attempt is None:
        return
    if attempt.master is holding and ATTEMPT.allows(attempt.state, AttemptEvent.FAIL):
        text = holding.stop_reason or end.message or f"exit code {end.exit_code}"
        stopped = holding.stop_reason and end.outcome in (Outcome.KILLED, Outcome.RELEASED)
        own = end.outcome is not Outcome.LOST and not stopped
        why = f"its master ended: {end.outcome.name}, {text}"
        fail_attempt(books, attempt, why, counts=own, ended_node=end.with_node)
    settle(books, attempt.app)


def withdraw(books: Books, attempt: Attempt) -> None:
    """Forget everything that an attempt asked for.

    What it holds is another matter: that stays booked until nodes say that it ended.
    """
    for entry in attempt.entries.values():
        if entry.row >= 0:
            books.ledger.add_pending(entry.app, -entry.pending)
            books.rows.close(entry)
    attempt.entries.clear()
    for name in attempt.blacklist:
        node = books.nodes.get(name)
        if node is not None:
            books.view.ban(node.slot, attempt.app.slot, False)
    attempt.blacklist = ()
    books.ledger.no_work_left(attempt.app.slot)
    books.matching.changed()


def _retire(books: Books, attempt: Attempt, why: str, *, keep: bool = False) -> None:
    """Clear up after an attempt that is over.

    Withdraw its asks, tell its master if it is stopped, and stop its containers. `keep`: those that
    its master was told of may run tasks, and go on for the next attempt. Where masters of its kind
    do not take them over, they would only be in the next one's way.
    """
    withdraw(books, attempt)
    if attempt in books.waiting:
        books.waiting.remove(attempt)
        books.matcher.attempt_over(books.view, attempt.app.slot)
    books.dirty_attempts.pop(attempt.attempt_id, None)
    if not keep:
        stop_earlier(books, attempt.app)
    for holding in list(attempt.holdings.values()):
        if (
            keep
            and attempt.takes_over
            and holding is not attempt.master
            and holding.state is not RmContainerState.ALLOCATED
        ):
            # A start that was lost must not hold room for ever.
            order_spare(books, holding)
            continue
        if why or holding is not attempt.master:
            order_stop(books, holding)
    if why and attempt.master is not None:
        stopped = AttemptStopped(attempt.attempt_id, why)
        books.out.append(Send(master_address(attempt.attempt_id), stopped))
