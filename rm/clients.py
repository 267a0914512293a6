"""What clients ask: each request is answered once, and a refusal changes nothing.

A handler checks first and changes then, and whatever it raises before its first change becomes a
refusal that names the field. A client that hears nothing asks again, so what may be asked twice is
the same twice: a submission by its id, a kill and a move by their outcome. What is accepted is in
the answer's records, which are durable before the client hears of it.
"""

from collections.abc import Callable
from math import isfinite
from typing import Any

from rm import access
from rm.applications import OVER, kill_app, move_app, open_app, schedule_attempt
from rm.containers import move_masters
from rm.forgetting import ENDED_WHOLE_MAX
from rm.leaving import decommission, recommission
from rm.lifetime import limit
from rm.masters.asking import ASKS_MIN, OPEN_JOB_ASKED_MAX
from rm.placing.feasible import NoRoomError, fits_a_class, nodes_may_come, within_maximum
from rm.placing.gang_room import check_gangs
from rm.placing.hosting import check_master
from rm.report import explain, reports
from rm.state.books import Books
from rm.state.lifecycle import AppEvent, RmNodeState, reported
from rm.state.records import App, Node
from weft.model.errors import InputError
from weft.model.ids import AppId, NodeId
from weft.model.job import Job, Stage
from weft.model.jobfile import job_to_dict
from weft.model.recording import Recording
from weft.model.resources import Vector
from weft.protocol.access import Caller
from weft.protocol.effects import ClientRequested, Send
from weft.protocol.facts import Remark
from weft.protocol.messages import client_address
from weft.protocol.requests import (
    READS,
    ApplicationAccepted,
    ApplicationJob,
    ApplicationReport,
    ApplicationReserved,
    ClientAnswer,
    ClientRequest,
    ClusterMetrics,
    ContainerReport,
    DecommissionNode,
    Done,
    Explain,
    Explanation,
    GetApplication,
    GetJob,
    GetMetrics,
    KillApplication,
    ListApplications,
    ListContainers,
    ListNodes,
    ListQueues,
    MoveApplication,
    NewApplication,
    NodeReport,
    Page,
    QueueReport,
    RecommissionNode,
    Refused,
    SetExpiry,
    SetPriority,
    SubmitApplication,
)


class NotFoundError(Exception):
    """The request names an application or a node that there is not; `place` is the field."""

    def __init__(self, place: str, text: str) -> None:
        self.place = place
        super().__init__(text)


def answer(books: Books, event: ClientRequested) -> None:
    """Carry out a request and send its answer."""
    got = _answer(books, event.request, event.caller)
    books.out.append(Send(client_address(event.token), got))


def _answer(books: Books, request: ClientRequest, caller: Caller) -> ClientAnswer:
    handler = _HANDLERS.get(type(request))
    if handler is None:
        return Refused("invalid_argument", "request", f"unknown request {type(request).__name__}")
    try:
        if denied := access.problem(books, request, caller):
            return denied
        if isinstance(request, ListApplications):
            return reports.applications(books, request, caller)
        return handler(books, request)
    except InputError as error:
        if isinstance(error, NoRoomError) and nodes_may_come(books):
            later = "the manager was just started anew, and nodes still come: try again"
            return Refused("unavailable", error.place, f"{error.problem} ({later})")
        return Refused("invalid_argument", error.place, error.problem)
    except NotFoundError as error:
        return Refused("not_found", error.place, str(error))
    except Exception as error:
        if type(request) not in READS:
            # The books may be wrong: the journal brings the manager back.
            raise
        what = f"{type(error).__name__}: {error}"
        books.note(Remark("warning", f"a bug: {type(request).__name__} failed: {what}"))
        return Refused("internal", "", f"a bug of the Resource Manager: {what}")


def _new(books: Books, request: NewApplication) -> ApplicationReserved:
    number = books.next_app
    books.next_app += 1
    # It is the journal's own record of the next id: a restart does not give this one away either.
    books.persist({"kind": "next", "app": books.next_app})
    return ApplicationReserved(number, books.cluster_ts)


def _submit(books: Books, request: SubmitApplication) -> Refused | ApplicationAccepted:
    known = books.submissions.get(request.submission_id) if request.submission_id else None
    if known is not None:
        return ApplicationAccepted(known, books.cluster_ts)
    job = request.job
    queue = books.queues.leaf(job.queue)
    if full := _full(books, queue, job.user):
        return Refused("resource_exhausted", "queue", full)
    _check_fits(books, job)
    if job.master is None:
        check_master(books)
    _check_limits(books, job, queue)
    number = request.app_id or books.next_app
    if request.app_id and (number >= books.next_app or number in books.apps):
        raise InputError("app_id", f"{number} is not reserved, or another submission has it")
    app = App(number, job, request.submission_id, queue, books.now, len(books.types))
    books.next_app = max(books.next_app, number + 1)
    books.apps[app.app_id] = app
    if request.submission_id:
        books.submissions[request.submission_id] = app.app_id
    move_app(books, app, AppEvent.SUBMIT)
    if books.settings.recovery:
        books.persist(
            {
                "kind": "app",
                "app": app.app_id,
                "submission_id": app.submission_id,
                "job": job_to_dict(job),
                "queue": books.queues.paths[queue],
                "priority": app.priority,
                "submitted_s": books.now,
            }
        )
    open_app(books, app)
    move_app(books, app, AppEvent.ACCEPT)
    schedule_attempt(books, app)
    limit(books, app)
    return ApplicationAccepted(app.app_id, books.cluster_ts)


def _full(books: Books, queue: int, user: str, left: int = -1) -> str:
    """Return why a queue takes no more applications, of anybody or of this user; empty: it does.

    What an application that leaves the queue `left` is in already takes it whatever their number.
    """
    settings, ledger, tree = books.settings, books.ledger, books.queues
    path, there = tree.paths[queue], tree.chains[left] if left >= 0 else ()
    for at in tree.chains[queue]:
        most = int(tree.max_applications[at]) or (settings.queue_apps_max if at == queue else 0)
        if at not in there and 0 < most <= int(ledger.by_queue.apps[at]):
            return f"{tree.paths[at]} has {most} applications, the most that it takes"
    slot = ledger.user_slots.get((queue, user))
    own, there_now = tree.specs[queue][1].max_user_applications, 0
    if own >= 0:
        there_now = 0 if slot is None else int(ledger.users.apps[slot])
        if there_now >= own:
            return f"user {user!r} has {there_now} applications in {path}, the most"
    if slot is not None and 0 < settings.user_apps_max <= int(ledger.users.apps[slot]):
        return f"user {user!r} has {settings.user_apps_max} applications in {path}, the most"
    return ""


def _check_fits(books: Books, job: Job) -> None:
    """Raise unless every task fits on some node that is up; without nodes, any job passes."""
    for name in job.resources:
        books.types.vector({name: 0.0}, "resources")
    if job.master is not None:
        vector = books.types.vector(job.master.demand, "master.demand")
        if books.classes and not fits_a_class(books, vector, job.master.label):
            raise NoRoomError("master.demand", "the master fits on no node")
        if job.master.recorded is not None:
            _check_recording(books, job.master.recorded)
        return
    for position, stage in enumerate(job.stages):
        place = f"stages[{position}].demand"
        if stage.together and stage.tasks > (most := books.settings.round_grants_max):
            raise InputError(
                f"stages[{position}].tasks",
                f"{stage.tasks} in a gang; at most {most} start together",
            )
        for demand in _demands(books, stage, place):
            if books.classes and not fits_a_class(books, demand, stage.label):
                what = ", ".join(f"{a:g} {n}" for n, a in books.types.mapping(demand).items() if a)
                label = f" with label {stage.label!r}" if stage.label else ""
                raise NoRoomError(
                    place, f"a task of stage {stage.name!r} ({what}) fits on no node{label}"
                )


def _check_limits(books: Books, job: Job, queue: int) -> None:
    """Raise where a queue, or its users, may never hold what a task or a gang of a job needs."""
    if not books.queues.limited or not books.classes:
        check_gangs(books, job, queue)
        return
    if job.master is not None and job.master.recorded is not None:
        for position, request in enumerate(job.master.recorded.requests):
            place = f"master.recorded.requests[{position}].demand"
            within_maximum(books, queue, books.types.vector(request.demand), place, "it")
    for position, stage in enumerate(job.stages if job.master is None else ()):
        place = f"stages[{position}].demand"
        for demand in _demands(books, stage, place):
            within_maximum(books, queue, demand, place, f"a task of stage {stage.name!r}")
    check_gangs(books, job, queue)


def _check_recording(books: Books, recording: Recording) -> None:
    """Raise unless all that a recorded master waits for is possible: it would wait without end."""
    place = "master.recorded.requests"
    if len(recording.requests) > ASKS_MIN:
        text = f"{len(recording.requests)} are more than the {ASKS_MIN} that an open job may have"
        raise InputError(place, text)
    racks = {node.rack for node in books.nodes.values()}
    for position, request in enumerate(recording.requests):
        demand = books.types.vector(request.demand, f"{place}[{position}].demand")
        if not request.held_s or not books.classes:
            continue
        if not fits_a_class(books, demand, request.label):
            label = f" with label {request.label!r}" if request.label else ""
            raise NoRoomError(f"{place}[{position}].demand", f"it fits on no node{label}")
        if request.strict and (request.nodes or request.racks):
            near = racks.intersection(request.racks)
            if not near and not any(name in books.nodes for name in request.nodes):
                raise NoRoomError(f"{place}[{position}].nodes", "none of them is there")
    pending, asked = 0, [0] * len(recording.requests)
    # This is of a full cluster, which has granted nothing.
    for position, ask in enumerate(recording.asks):
        pending += ask.total - asked[ask.request]
        asked[ask.request] = ask.total
        if pending > OPEN_JOB_ASKED_MAX:
            raise InputError(
                f"master.recorded.asks[{position}]",
                f"{pending} containers pending; at most {OPEN_JOB_ASKED_MAX} of an open job",
            )


def _demands(books: Books, stage: Stage, place: str) -> set[Vector]:
    """Return what a stage's tasks need, and what their containers would be booked with."""
    wanted = [books.types.vector(stage.demand, place)]
    for index, override in enumerate(stage.overrides):
        if override.demand is not None:
            where = place.replace(".demand", f".tasks[{index}].demand")
            wanted.append(books.types.vector(override.demand, where))
    granted = [books.matcher.normalised(books.types, demand) for demand in wanted]
    return {books.raised(demand) for demand in (*wanted, *granted)}


def _find(books: Books, number: AppId) -> App:
    app = books.apps.get(number)
    if app is None:
        raise NotFoundError("app_id", f"there is no application {number}")
    return app


def _kill(books: Books, request: KillApplication) -> Done:
    app = _find(books, request.app_id)
    if app.state not in OVER:
        kill_app(books, app, request.diagnostics or "killed by a client")
    return Done(reported(app.state))


def _move(books: Books, request: MoveApplication) -> Refused | Done:
    app = _find(books, request.app_id)
    queue = books.queues.leaf(request.queue)
    if app.state in OVER:
        return Refused("failed_precondition", "app_id", f"it is {reported(app.state)}")
    if queue != app.queue:
        if full := _full(books, queue, app.job.user, app.queue):
            return Refused("resource_exhausted", "queue", full)
        _check_limits(books, app.job, queue)
        move_masters(books, app, queue)
        app.queue = queue
        books.ledger.move_app(app.slot, queue, app.job.user)
        books.rows.gangs_moved(app.slot)
        books.matcher.app_changed(books.view, app.slot)
        limit(books, app)
        books.matching.changed()
        books.persist({"kind": "move", "app": app.app_id, "queue": books.queues.paths[queue]})
    return Done(reported(app.state))


def _set_priority(books: Books, request: SetPriority) -> Refused | Done:
    app = _find(books, request.app_id)
    if app.state in OVER:
        return Refused("failed_precondition", "app_id", f"it is {reported(app.state)}")
    app.priority = request.priority
    books.ledger.set_priority(app.slot, request.priority)
    books.rows.gangs_moved(app.slot)
    books.matcher.app_changed(books.view, app.slot)
    books.matching.changed()
    books.persist({"kind": "priority", "app": app.app_id, "priority": request.priority})
    return Done(reported(app.state))


def _set_expiry(books: Books, request: SetExpiry) -> Refused | Done:
    app = _find(books, request.app_id)
    if app.state in OVER:
        return Refused("failed_precondition", "app_id", f"it is {reported(app.state)}")
    if 0 < request.expires_s <= books.now:
        late_s = books.now - request.expires_s
        return Refused("invalid_argument", "expires_s", f"that was {late_s:.3f} s ago")
    app.wished_s = request.expires_s
    limit(books, app)
    books.matching.changed()
    books.persist({"kind": "expiry", "app": app.app_id, "expires_s": request.expires_s})
    return Done(reported(app.state))


def _get(books: Books, request: GetApplication) -> ApplicationReport:
    return reports.application(books, _find(books, request.app_id), stages=True)


def _job(books: Books, request: GetJob) -> ApplicationJob:
    app = _find(books, request.app_id)
    if not app.whole:
        text = (
            f"the jobs of the newest {ENDED_WHOLE_MAX} ended applications are kept, this is older"
        )
        raise NotFoundError("app_id", text)
    return ApplicationJob(app.job)


def _nodes(books: Books, request: ListNodes) -> Page[NodeReport]:
    return reports.nodes(books, request)


def _node(books: Books, name: NodeId) -> Node:
    node = books.nodes.get(name)
    if node is None:
        raise NotFoundError("node_id", f"no node {name!r} ever registered")
    return node


def _decommission(books: Books, request: DecommissionNode) -> Refused | Done:
    if not isfinite(request.timeout_s):
        raise InputError("timeout_s", f"expected a number, got {request.timeout_s}")
    node = _node(books, request.node_id)
    if node.state is RmNodeState.NEW:
        return Refused("failed_precondition", "node_id", f"{node.node_id} was never in service")
    decommission(books, node, request.timeout_s)
    return Done(node.state.name)


def _recommission(books: Books, request: RecommissionNode) -> Done:
    node = _node(books, request.node_id)
    recommission(books, node)
    return Done(node.state.name)


def _queues(books: Books, request: ListQueues) -> QueueReport:
    return reports.queue(books, 0)


def _metrics(books: Books, request: GetMetrics) -> ClusterMetrics:
    return reports.metrics(books)


def _explain(books: Books, request: Explain) -> Explanation:
    return explain.application(books, _find(books, request.app_id))


def _containers(books: Books, request: ListContainers) -> Page[ContainerReport]:
    return reports.containers(books, _find(books, request.app_id), request)


_HANDLERS: dict[type, Callable[[Books, Any], ClientAnswer]] = {
    NewApplication: _new,
    SubmitApplication: _submit,
    KillApplication: _kill,
    MoveApplication: _move,
    SetPriority: _set_priority,
    SetExpiry: _set_expiry,
    GetApplication: _get,
    GetJob: _job,
    ListApplications: reports.applications,
    ListNodes: _nodes,
    DecommissionNode: _decommission,
    RecommissionNode: _recommission,
    ListQueues: _queues,
    GetMetrics: _metrics,
    Explain: _explain,
    ListContainers: _containers,
}
