"""What is forgotten, so that nothing grows for ever.

Nodes and racks that nobody needs any more, as anybody may make up their names, and applications
that ended long ago.
"""

from collections import deque
from typing import Any, Final

import numpy as np

from rm.state.books import Books
from rm.state.lifecycle import ENDED_APPS, RmNodeState
from rm.state.records import App, Holding, Node
from weft.model.ids import app_of_container
from weft.model.job import Job, Stage
from weft.model.jobfile import TASKS_MAX
from weft.protocol.messages import ContainerEnd

# With so many racks, the places of those without nodes are used again.
RACKS_BEFORE_REUSE: Final = 100
# At most so many nodes that are LOST or left are kept for reports.
GONE_NODES_MAX: Final = 1000
# So many ended applications are kept with all that is known of them, and of large ones as many as
# take so many bytes; the newest always is.
ENDED_WHOLE_MAX = 200
ENDED_WHOLE_BYTES_MAX = 100_000_000
# Those before them keep so many characters.
DIAGNOSTICS_CHARS_MAX = 300
# Ended applications share it, as they get no more.
_NOTHING: Final[dict[Any, Any]] = {}
_NONE_CLOSED: deque[tuple[Holding, ContainerEnd, float]] = deque(maxlen=0)
_GONE: Final = (RmNodeState.LOST, RmNodeState.SHUTDOWN)


def slot_of_forgotten(books: Books) -> int:
    """Return the slot of the node that is gone for longest and needed by nobody; -1 for none.

    Only where more than `GONE_NODES_MAX` nodes are gone: until then they are shown in listings.
    The node itself is forgotten; should it come back it is a new one.
    """
    n = books.ledger.node_count
    columns = books.ledger.nodes
    away = np.flatnonzero(~columns.up[:n])
    if len(away) <= GONE_NODES_MAX:
        return -1
    gone = [slot for slot in away.tolist() if books.node_at[slot].state in _GONE]
    if len(gone) <= GONE_NODES_MAX:
        return -1
    for slot in sorted(gone, key=lambda slot: float(columns.seen_s[slot])):
        node = books.node_at[slot]
        if not _is_needed(books, node):
            _forget(books, node)
            return slot
    return -1


def _is_needed(books: Books, node: Node) -> bool:
    name = node.node_id
    if (
        node.present
        or node.holdings
        or name in books.unseen_containers
        or name in books.returning_masters
    ):
        return True
    if node.slot in books.claimed or books.ledger.nodes.reserved[node.slot]:
        return True
    # It must be known what these are should the node come back.
    for number in node.unconfirmed:
        app = books.apps.get(app_of_container(number))
        if app is not None and app.state not in ENDED_APPS:
            return True
    return False


def _forget(books: Books, node: Node) -> None:
    del books.nodes[node.node_id]
    books.with_files.pop(node.node_id, None)
    books.dirty_nodes.pop(node.node_id, None)
    books.view.forget(node.slot)
    books.ledger.clear_node(node.slot)


def rack_of(books: Books, name: str) -> int:
    """Return the number of a rack; where there are many, a new one replaces one without nodes."""
    names = books.view.rack_names
    if name in names:
        return names.index(name)
    if len(names) >= RACKS_BEFORE_REUSE:
        used = {node.rack for node in books.node_at if node.present}
        for place, old in enumerate(names):
            if old not in used:
                names[place] = name
                return place
    names.append(name)
    return len(names) - 1


def remember(books: Books, app: App) -> None:
    """Keep a bounded number of ended applications for reports, the newest; few of them whole."""
    books.ended.append(app.app_id)
    books.ended_bytes += app.job_bytes
    while len(books.ended) > ENDED_WHOLE_MAX or (
        books.ended_bytes > ENDED_WHOLE_BYTES_MAX and len(books.ended) > 1
    ):
        number = books.ended.popleft()
        books.ended_bytes -= books.apps[number].job_bytes
        shorten(books.apps[number])
        books.ended_small.append(number)
    while len(books.apps) > books.settings.completed_apps_max:
        if not books.ended_small and not books.ended:
            return
        if not books.ended_small:
            books.ended_bytes -= books.apps[books.ended[0]].job_bytes
        number = (books.ended_small or books.ended).popleft()
        books.submissions.pop(books.apps.pop(number).submission_id, None)


def shorten(app: App) -> None:
    """Keep of an ended application what a list of applications says."""
    job = app.job
    all_tasks = Stage("all", max(1, min(job.task_count, TASKS_MAX)), 0.0, {})
    app.job = Job(
        job.name, (all_tasks,), job.queue, job.user, job.priority, kind=job.kind, tags=job.tags
    )
    app.whole = False
    app.attempt = None
    app.attempts = []
    app.closed = _NONE_CLOSED
    app.held_on = app.given_back = _NOTHING
    app.finished_by_stage = [sum(app.finished_by_stage)]
    app.running, app.failed = [0], [sum(app.failed)]
    app.diagnostics = app.diagnostics[:DIAGNOSTICS_CHARS_MAX]
