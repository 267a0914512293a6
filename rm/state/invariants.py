"""What must hold in the Resource Manager's books between any two events."""

from collections import Counter

import numpy as np

from rm.state.books import Books
from rm.state.lifecycle import LEAVING, AttemptState, RmNodeState
from rm.state.records import Node
from weft.model.dag import Ints
from weft.model.errors import InvariantError
from weft.model.job_size import live_bytes


def check(books: Books) -> None:
    """Raise InvariantError where two views of the same thing differ."""
    _check_containers(books)
    _check_rows(books)
    _check_apps(books)
    _check_queues(books)
    classes: Counter[object] = Counter()
    for node in books.node_at:
        _check_node(books, node)
        if node.state is RmNodeState.RUNNING:
            classes[node.capacity, int(books.ledger.nodes.labels[node.slot])] += 1
    if classes != books.classes:
        raise InvariantError("the classes of nodes do not count the nodes that are up")
    books.matcher.check(books.view)


def _check_node(books: Books, node: Node) -> None:
    running, left = node.state is RmNodeState.RUNNING, node.state is RmNodeState.DECOMMISSIONED
    if bool(books.ledger.nodes.up[node.slot]) is not running:
        raise InvariantError(f"{node.node_id} is {node.state.name}, but the ledger differs")
    here = running or node.state is RmNodeState.UNHEALTHY
    if node.state not in LEAVING and node.present is not here:
        raise InvariantError(f"{node.node_id} is {node.state.name}, but present: {node.present}")
    if left and any(held.attempt is not None for _, held in node.holdings.runs()):
        raise InvariantError(
            f"{node.node_id} is DECOMMISSIONED, but an application's containers run"
        )


def _check_containers(books: Books) -> None:
    held = []
    masters, count = np.zeros_like(books.master_usage), np.zeros(len(books.queues), np.int64)
    for number, holding in books.holdings.runs():
        if holding.node.holdings.peek(number) is not holding:
            raise InvariantError(f"container {number} is not on its node")
        attempt = holding.attempt
        if attempt is not None and attempt.holdings.peek(number) is not holding:
            raise InvariantError(f"container {number} is not with its attempt")
        slot = -1 if attempt is None else attempt.app.slot
        if attempt is not None and slot < 0:
            raise InvariantError(f"container {number} outlives its application")
        if attempt is not None and attempt.master is holding:
            for queue in books.queues.chains[attempt.app.queue]:
                masters[queue] += holding.demand
                count[queue] += 1
        held.append((holding.node.slot, slot, holding.vector))
    counted = books.ledger.by_queue.masters[: len(count)]
    if not np.allclose(masters, books.master_usage, atol=1e-6) or (count != counted).any():
        raise InvariantError("the books of what masters hold contradict their containers")
    if strangers := books.tasks_in.keys() - books.holdings.keys():
        raise InvariantError(f"tasks run in containers that are not held: {sorted(strangers)}")
    on_nodes = sum(len(node.holdings) for node in books.node_at)
    if on_nodes != len(books.holdings):
        raise InvariantError(f"{on_nodes} containers on nodes, {len(books.holdings)} in all")
    # What a node brought along is booked as it is, so such a node is not held to its capacity.
    given = {h.node.slot for _, h in books.holdings.runs() if h.adopted}
    books.ledger.check(held, 1.0 + books.slack, given)


def _check_rows(books: Books) -> None:
    rows = books.rows
    live = 0
    for row, entry in enumerate(rows.entries):
        if entry is None:
            if rows.pending[row]:
                raise InvariantError(f"row {row} is empty but has something pending")
            continue
        live += 1
        if entry.row != row or rows.pending[row] != entry.pending or entry.pending <= 0:
            raise InvariantError(f"row {row} and ask {entry.ask.ask_id} differ")
    if live != rows.live or rows.count != len(rows.entries):
        raise InvariantError(f"{live} rows are in use, {rows.live} are counted")


def _check_queues(books: Books) -> None:
    """Raise unless the books of queues count what is in them, under the one tree that holds."""
    tree, ledger = books.queues, books.ledger
    if ledger.queues is not tree or books.view.queues is not tree:
        raise InvariantError("the books, the ledger and the view go by different trees of queues")
    counted: dict[str, Ints] = {
        name: np.zeros(len(tree), np.int64) for name in ("apps", "containers", "pending", "users")
    }
    users: Counter[tuple[int, str]] = Counter()
    for slot, app in enumerate(books.app_at):
        if app is None:
            continue
        if not tree.is_leaf[app.queue] or ledger.apps.queue[slot] != app.queue:
            raise InvariantError(f"application {app.app_id} is not in its leaf queue {app.queue}")
        users[app.queue, app.job.user] += int(ledger.apps.pending[slot])
        chain = list(tree.chains[app.queue])
        counted["apps"][chain] += 1
        counted["containers"][chain] += ledger.apps.containers[slot]
        counted["pending"][chain] += ledger.apps.pending[slot]
    for (queue, _), pending in users.items():
        counted["users"][queue] += int(pending > 0)
    if set(users) != set(ledger.user_slots):
        raise InvariantError("the users of leaf queues are not those of the applications there")
    for name, numbers in counted.items():
        if (numbers != getattr(ledger.by_queue, name)[: len(tree)]).any():
            raise InvariantError(f"the books of queues do not count their {name}")


def _check_apps(books: Books) -> None:
    pending = taken = 0
    for slot, app in enumerate(books.app_at):
        if app is None:
            continue
        if app.slot != slot or not books.ledger.apps.active[slot]:
            raise InvariantError(f"application {app.app_id} is not in its slot {slot}")
        attempt = app.attempt
        wanted = 0 if attempt is None else sum(e.pending for e in attempt.entries.values())
        if books.ledger.apps.pending[slot] != wanted:
            raise InvariantError(f"application {app.app_id} has {wanted} containers pending")
        pending += wanted
        taken += live_bytes(app.job, app.job_bytes)
        held = sum(len(a.holdings) for a in app.attempts)
        if books.ledger.apps.containers[slot] != held:
            raise InvariantError(f"application {app.app_id} holds {held} containers")
    if books.ledger.by_queue.pending[0] != pending:
        raise InvariantError(f"{pending} containers are pending in all")
    if books.live_bytes != taken:
        raise InvariantError(f"jobs that have not ended take {taken} bytes in all")
    if books.ended_bytes != sum(books.apps[number].job_bytes for number in books.ended):
        raise InvariantError("the bytes of ended applications are not those of their jobs")
    books.waiting.check()
    for attempt in books.waiting:
        if attempt.state is not AttemptState.SCHEDULED:
            raise InvariantError(f"attempt {attempt.attempt_id} waits but is {attempt.state.name}")
