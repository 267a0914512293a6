"""What clients ask: each request is answered once, and a refusal changes nothing.

A handler checks first and changes then, and whatever it raises before its first change becomes a
refusal that names the field. A client that hears nothing asks again, so what may be asked twice is
the same twice: a submission by its id, a kill and a move by their outcome. What is accepted is in
the answer's records, which are durable before the client hears of it.
"""

from collections.abc import Callable
from math import isfinite

from rm import access, queue_changes
from rm.admission import check_fits, check_limits, no_memory, refusal
from rm.applications import OVER, kill_app, move_app, open_app, schedule_attempt
from rm.containers import move_masters
from rm.dynamic_queues import grown
from rm.forgetting import ENDED_WHOLE_MAX
from rm.leaving import decommission, recommission
from rm.lifetime import limit
from rm.nodes.updating import update
from rm.placement import queue_of
from rm.placing.feasible import NoRoomError, nodes_may_come
from rm.placing.hosting import check_master
from rm.report import explain, reports
from rm.state.books import Books
from rm.state.lifecycle import AppEvent, RmNodeState, reported
from rm.state.records import App, Node
from weft.model.errors import InputError, PolicyError
from weft.model.ids import AppId, NodeId, format_app
from weft.model.jobfile import job_to_dict
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
    FindSubmission,
    GetApplication,
    GetJob,
    GetMetrics,
    GetQueues,
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
    Queues,
    RecommissionNode,
    Refused,
    SetExpiry,
    SetPriority,
    SetQueues,
    SubmitApplication,
    UpdateNode,
)

# What a job takes is told in its record from so many bytes on: how many of those that ended are
# kept goes by that.
RECORDED_BYTES_MIN = 100_000


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
        if isinstance(request, ListApplications | Explain | FindSubmission):
            return handler(books, request, caller)
        return handler(books, request)
    except InputError as error:
        if isinstance(error, NoRoomError) and nodes_may_come(books):
            later = "the manager was just started anew, and nodes still come: try again"
            return Refused("unavailable", error.place, f"{error.problem} ({later})")
        return Refused("invalid_argument", error.place, error.problem)
    except NotFoundError as error:
        return Refused("not_found", error.place, str(error))
    except PolicyError as error:
        if type(request) not in READS:
            raise
        books.note(Remark("warning", str(error)))
        return Refused("internal", "", str(error))
    except Exception as error:
        if type(request) not in READS:
            # The books may be wrong: the journal brings the manager back.
            raise
        what = f"{type(error).__name__}: {error}"
        books.note(Remark("warning", f"a bug: {type(request).__name__} failed: {what}"))
        return Refused("internal", "", f"a bug of the Resource Manager: {what}")


def _new(books: Books, request: NewApplication) -> ApplicationReserved:
    number = books.next_app
    books.next_app = books.own_number(number + 1)
    # It is the journal's own record of the next id: a restart does not give this one away either.
    books.persist({"kind": "next", "app": books.next_app})
    return ApplicationReserved(number, books.cluster_ts)


def _submit(books: Books, request: SubmitApplication) -> Refused | ApplicationAccepted:
    known = books.submissions.get(request.submission_id) if request.submission_id else None
    if known is not None:
        return ApplicationAccepted(known, books.cluster_ts)
    job = request.job
    path = queue_of(books.queues, job)
    tree = grown(books.queues, path)
    queue = tree.slot_of(path)
    if refused := refusal(books, tree, queue, job.user) or no_memory(books, job):
        return refused
    check_fits(books, job)
    if job.master is None:
        check_master(books)
    check_limits(books, job, tree, queue)
    number = request.app_id or books.next_app
    reserved = number < books.next_app and books.own_number(number) == number
    if request.app_id and (not reserved or number in books.apps):
        raise InputError("app_id", f"{number} is not reserved, or another submission has it")
    if tree is not books.queues:
        queue_changes.make_or_drop(books, tree)
    app = App(number, job, request.submission_id, queue, books.now, len(books.types))
    books.next_app = max(books.next_app, books.own_number(number + 1))
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
                **({"bytes": app.job_bytes} if app.job_bytes > RECORDED_BYTES_MIN else {}),
            }
        )
    open_app(books, app)
    move_app(books, app, AppEvent.ACCEPT)
    schedule_attempt(books, app)
    limit(books, app)
    return ApplicationAccepted(app.app_id, books.cluster_ts)


def _find_submission(books: Books, request: FindSubmission, caller: Caller) -> ApplicationAccepted:
    number = books.submissions.get(request.submission_id)
    app = None if number is None else books.apps.get(number)
    if app is None or not access.sees(books, app, caller):
        raise NotFoundError("submission_id", f"there is no {request.submission_id!r}")
    return ApplicationAccepted(app.app_id, books.cluster_ts)


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


def _over(books: Books, app: App) -> Refused:
    text = f"{format_app(books.cluster_ts, app.app_id)} has ended: {app.final_status}"
    return Refused("failed_precondition", "app_id", text)


def _move(books: Books, request: MoveApplication) -> Refused | Done:
    app = _find(books, request.app_id)
    queue = books.queues.leaf(request.queue)
    if app.state in OVER:
        return _over(books, app)
    if queue != app.queue:
        if refused := refusal(books, books.queues, queue, app.job.user, app.queue):
            return refused
        check_limits(books, app.job, books.queues, queue)
        move_masters(books, app, queue)
        app.queue = queue
        books.ledger.move_app(app.slot, queue, app.job.user)
        books.waiting.queues_changed()
        books.rows.gangs_moved(app.slot)
        books.matcher.app_changed(books.view, app.slot)
        limit(books, app)
        books.matching.changed()
        books.persist({"kind": "move", "app": app.app_id, "queue": books.queues.paths[queue]})
    return Done(reported(app.state))


def _set_priority(books: Books, request: SetPriority) -> Refused | Done:
    app = _find(books, request.app_id)
    if app.state in OVER:
        return _over(books, app)
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
        return _over(books, app)
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


def _update(books: Books, request: UpdateNode) -> Done:
    node = _node(books, request.node_id)
    update(books, node, request)
    return Done(node.state.name)


def _queues(books: Books, request: ListQueues) -> QueueReport:
    return reports.queue(books, 0)


def _tree(books: Books, request: GetQueues) -> Queues:
    return Queues(books.queues.root)


def _metrics(books: Books, request: GetMetrics) -> ClusterMetrics:
    return reports.metrics(books)


def _explain(books: Books, request: Explain, caller: Caller) -> Explanation:
    return explain.application(books, _find(books, request.app_id), caller)


def _containers(books: Books, request: ListContainers) -> Page[ContainerReport]:
    return reports.containers(books, _find(books, request.app_id), request)


_HANDLERS: dict[type, Callable[..., ClientAnswer]] = {
    NewApplication: _new,
    SubmitApplication: _submit,
    FindSubmission: _find_submission,
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
    UpdateNode: _update,
    ListQueues: _queues,
    SetQueues: queue_changes.set_queues,
    GetQueues: _tree,
    GetMetrics: _metrics,
    Explain: _explain,
    ListContainers: _containers,
}
