"""Nodes that leave, or are not heard of any more: what ran there is lost."""

import numpy as np

from rm.applications import container_ended
from rm.containers import relay_lost
from rm.leaving import step
from rm.state.books import Books
from rm.state.lifecycle import LEAVING, AttemptState, NodeEvent, RmNodeState
from rm.state.records import Attempt, Holding, Node
from weft.protocol.messages import NODE_ENDED, ContainerEnd, NodeUnregistered, Outcome


def unregister(books: Books, event: NodeUnregistered) -> None:
    """Give up a node that leaves on purpose."""
    node = books.nodes.get(event.node_id)
    if node is not None and node.present:
        _gone(books, node, NodeEvent.UNREGISTERED, "its node left")


def expire(books: Books) -> None:
    """Give up the nodes that were silent for too long, with all that ran there."""
    ledger, limit = books.ledger, books.settings.node_expiry_s
    if books.rarely("nodes expire early"):
        limit /= 2
    n = ledger.node_count
    silent = ledger.nodes.up[:n] & (books.now - ledger.nodes.seen_s[:n] >= limit)
    _give_up_missing(books, limit)
    # What is not back by now is lost.
    if books.returning_masters and books.now - books.started_s >= limit:
        for name in [
            name for name, waiting in books.returning_masters.items() if _none_lives(waiting)
        ]:
            del books.returning_masters[name]
    for slot in np.flatnonzero(silent).tolist():
        _gone(books, books.node_at[slot], NodeEvent.EXPIRED, f"its node was silent for {limit:g} s")
    for slot in np.flatnonzero(books.now - ledger.nodes.seen_s[:n] >= limit).tolist():
        node = books.node_at[slot]
        waited = node.present or node.state is RmNodeState.DECOMMISSIONING
        idle = node.state is RmNodeState.UNHEALTHY or node.state in LEAVING
        if idle and waited:
            _gone(books, node, NodeEvent.EXPIRED, f"its node was silent for {limit:g} s")


def _none_lives(attempts: list[Attempt]) -> bool:
    """Return whether nobody waits for the masters of these attempts any more."""
    return all(a.state is not AttemptState.ALLOCATED for a in attempts)


def forgive(books: Books, pause_s: float) -> None:
    """Count a pause of the manager as nobody's silence: shift the nodes' last signs of life."""
    books.ledger.forgive(pause_s, books.now)
    for missing in books.unseen_containers.values():
        for number, (attempt, since_s) in missing.items():
            missing[number] = (attempt, min(since_s + pause_s, books.now))


def _give_up_missing(books: Books, limit_s: float) -> None:
    """Give up containers that masters held before a restart and that no node brought back in time.

    A node that is back gets the time to send the ends that it owes again, should they be lost.
    """
    patience_s = 3 * books.settings.resend_after_s
    for where, missing in list(books.unseen_containers.items()):
        node = books.nodes.get(where)
        back = node is not None and node.present
        for number, (attempt, since_s) in list(missing.items()):
            if number in books.holdings:
                del missing[number]
            elif books.now - (since_s if back else books.started_s) >= (
                patience_s if back else limit_s
            ):
                del missing[number]
                relay_lost(books, attempt, number)
                if node is not None:
                    # It may be there all the same, or be started yet.
                    node.outbox.put(number, number)
        if not missing:
            del books.unseen_containers[where]


def _gone(books: Books, node: Node, event: NodeEvent, why: str) -> None:
    """Give up a node: what it holds ends as LOST, and is wanted again elsewhere.

    It may run all the same (a partition, a long pause). Its room is not given away when it comes
    back: `Node.unconfirmed` remembers it, and the node is told to stop it.
    """
    node.present = False
    step(books, node, event)
    code = NODE_ENDED if event is NodeEvent.EXPIRED else -1
    for holding in list(node.holdings.values()):
        if not holding.claimed:
            node.unconfirmed[holding.container_id] = holding.vector
        task = _task_of(holding)
        lost = ContainerEnd(holding.container_id, Outcome.LOST, code, *task, message=why)
        container_ended(books, holding, lost)


def _task_of(holding: Holding) -> tuple[int, int]:
    """Return what the manager knows of a lost container's task: its stage, not its number."""
    return holding.stage, -1
