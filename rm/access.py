"""What a client may do to applications and queues: refused before anything changes.

`administer` of a queue holds for all below it; `submit` is said by the nearest queue up the tree
that says anything, and whoever administers a queue may submit to it.
"""

from rm.dynamic_queues import grown
from rm.ledger.queues import QueueTree
from rm.placement import queue_of
from rm.state.books import Books
from rm.state.records import App
from weft.protocol.access import Caller, Who, may
from weft.protocol.requests import (
    ClientRequest,
    MoveApplication,
    Refused,
    SetQueues,
    SubmitApplication,
)


def problem(books: Books, request: ClientRequest, caller: Caller) -> Refused | None:
    """Return why this caller may not ask this, None where it may.
    A request that names nothing known passes.
    """
    if caller.everything:
        return None
    kind, user = type(request).__name__, caller.user
    if isinstance(request, SubmitApplication):
        return _submit(books, request, user)
    if isinstance(request, SetQueues):
        if administers(books.queues, 0, user):
            return None
        return _denied("", f"{user!r} administers neither the cluster nor its root queue")
    number = getattr(request, "app_id", None)
    app = None if number is None else books.apps.get(number)
    if app is None:
        # It is about no application: an operator's request, or one that all users may make.
        if may(kind, Who.OTHER) or (number is not None and may(kind, Who.OWNER)):
            return None
        return _denied("", f"{user!r} is no operator of the cluster")
    if not may(kind, stands(books, app, user)):
        return _denied("app_id", f"{user!r} may not touch application {number}")
    if isinstance(request, MoveApplication):
        return _into(books.queues, books.queues.leaf(request.queue), user)
    return None


def stands(books: Books, app: App, user: str) -> Who:
    """Return how a user stands to an application."""
    if app.job.user == user:
        return Who.OWNER
    return Who.QUEUE_ADMIN if administers(books.queues, app.queue, user) else Who.OTHER


def administers(tree: QueueTree, queue: int, user: str) -> bool:
    """Return whether a user may administer a queue."""
    return any(_names(tree.administer[at], user) for at in tree.chains[queue])


def sees(books: Books, app: App, caller: Caller) -> bool:
    """Return whether a caller may know of an application."""
    return caller.everything or stands(books, app, caller.user) is not Who.OTHER


def _submit(books: Books, request: SubmitApplication, user: str) -> Refused | None:
    if request.job.user != user:
        return _denied("user", f"{user!r} submits as {request.job.user!r}")
    known = books.submissions.get(request.submission_id) if request.submission_id else None
    app = None if known is None else books.apps.get(known)
    if app is not None:
        # It was accepted, whatever the queues are by now.
        if app.job.user == user:
            return None
        return _denied("submission_id", f"{request.submission_id!r} is another user's")
    path = queue_of(books.queues, request.job)
    # A queue that is to be made is judged as it will be: what it is like may say who submits.
    tree = grown(books.queues, path)
    return _into(tree, tree.slot_of(path), user)


def _into(tree: QueueTree, queue: int, user: str) -> Refused | None:
    for at in tree.chains[queue]:
        names = tree.submit[at]
        if names is not None:
            if _names(names, user):
                return None
            break
    else:
        return None
    if administers(tree, queue, user):
        return None
    return _denied("queue", f"{user!r} may not submit to {tree.paths[queue]}")


def _names(names: tuple[str, ...], user: str) -> bool:
    return "*" in names or user in names


def _denied(place: str, text: str) -> Refused:
    return Refused("permission_denied", place, text)
