"""Nodes in and out of service: graceful decommission, as an operator orders it.

A node that is being decommissioned is given nothing new; what it runs may finish. When it is empty
it is DECOMMISSIONED. When its time is over first, its containers are stopped on the manager's
order, which is no failure of theirs, and it is empty once it said that they ended. Unlike in YARN,
such a node stays connected: so what it may still run is always stopped, and a recommission needs no
restart. One that is silent for too long or leaves meanwhile is DECOMMISSIONED as well, and what it
ran is lost: what the operator waits for has happened, and it must get nothing should it come back.
"""

from collections.abc import Callable
from typing import Final

from rm.containers import order_stop
from rm.state.books import Books
from rm.state.lifecycle import (
    LEAVING,
    NODE,
    AttemptState,
    NodeAction,
    NodeEvent,
    RmContainerState,
    RmNodeState,
)
from rm.state.records import NEVER, Node
from weft.model.ids import NodeId
from weft.protocol.effects import SetTimer
from weft.protocol.facts import NodeChanged

# A timer's key is this and the node's name.
DECOMMISSION = "decommission"
FOR_EVER = -1.0
# In an outbox to a master it says that more machines came; no container has this number.
MACHINES = 0


def decommission(books: Books, node: Node, timeout_s: float) -> None:
    """Take a node out of service; said again, only its time is changed. `timeout_s` < 0: any."""
    if node.state is RmNodeState.DECOMMISSIONED:
        return
    node.drain_until_s = FOR_EVER if timeout_s < 0 else books.now + timeout_s
    if node.state is RmNodeState.DECOMMISSIONING:
        _begin_drain(books, node)
    else:
        step(books, node, NodeEvent.DECOMMISSION)


def recommission(books: Books, node: Node) -> None:
    """Put a node back into service; one that is away is in service when it registers."""
    back = NodeEvent.RECOMMISSION if node.present else NodeEvent.READMIT
    if NODE.allows(node.state, back):
        books.out.append(SetTimer(None, (DECOMMISSION, node.node_id)))
        step(books, node, back)


def examine(books: Books, node: Node, unhealthy: str) -> None:
    """Note what a node says of its health: an ill one gets nothing new, what it runs goes on."""
    node.unhealthy = unhealthy
    event = NodeEvent.FELL_ILL if unhealthy else NodeEvent.RECOVERED
    if NODE.allows(node.state, event):
        step(books, node, event)


def _begin_drain(books: Books, node: Node) -> None:
    _set_alarm(books, node)
    _persist(books, node)
    drain(books, node)


def _return(books: Books, node: Node) -> None:
    _persist(books, node)
    examine(books, node, node.unhealthy)


def drain(books: Books, node: Node) -> None:
    """Look how far a decommissioning node is: stop what is left in time, end when it is empty."""
    if not NODE.allows(node.state, NodeEvent.DRAINED) or not node.present:
        # A node that has not come back since a restart may run anything.
        return
    if 0 <= node.drain_until_s <= books.now:
        for holding in node.holdings.values():
            if holding.state is not RmContainerState.STOPPING:
                holding.stop_reason = "its node was decommissioned"
                order_stop(books, holding)
    if not node.holdings:
        step(books, node, NodeEvent.DRAINED)


def alarm(books: Books, name: NodeId) -> None:
    """Handle the decommission timeout of a node; timers may fire slightly early."""
    node = books.nodes[name]
    if node.state is RmNodeState.DECOMMISSIONING and node.drain_until_s >= 0:
        drain(books, node)
        if books.now < node.drain_until_s:
            # Timers of hosts may be a little early.
            _set_alarm(books, node)


def _set_alarm(books: Books, node: Node) -> None:
    """Have `alarm` called when a node's time is over."""
    delay_s = None if node.drain_until_s < 0 else max(0.0, node.drain_until_s - books.now)
    books.out.append(SetTimer(delay_s, (DECOMMISSION, node.node_id)))


def step(books: Books, node: Node, event: NodeEvent) -> None:
    """Step a node's life cycle; it is matched, and counts as capacity, while it is RUNNING."""
    before = node.state
    node.state, action = NODE.step(before, event)
    if before is RmNodeState.RUNNING:
        count_class(books, node, -1)
    if node.state is RmNodeState.RUNNING:
        count_class(books, node, 1)
        node.settled_at = NEVER
    else:
        # `rm.placing.reserve` finds another node for the ask.
        books.ledger.reserve([node.slot], 0)
    books.ledger.set_node(node.slot, node.capacity, up=node.state is RmNodeState.RUNNING)
    books.matching.changed()
    books.note(NodeChanged(node.node_id, node.state.name, node.capacity))
    if action is not None:
        _ACTIONS[action](books, node)


def count_class(books: Books, node: Node, by: int) -> None:
    """Count a node among those of its capacity and labels that are in service."""
    key = (node.capacity, int(books.ledger.nodes.labels[node.slot]))
    books.classes[key] += by
    if not books.classes[key]:
        del books.classes[key]
    if by > 0 and books.early:
        _tell_early(books)


def _tell_early(books: Books) -> None:
    """Have the next answer to masters that came before all nodes were back tell the machines."""
    returning = books.nodes_return
    for number, attempt in list(books.early.items()):
        if attempt.state is not AttemptState.RUNNING:
            del books.early[number]
        elif returning:
            attempt.outbox.put(MACHINES, None)


def _persist(books: Books, node: Node) -> None:
    """Have a restarted manager know whether the node is in service."""
    state = node.state.name if node.state in LEAVING else ""
    books.persist(
        {"kind": "node", "node": node.node_id, "state": state, "until_s": node.drain_until_s}
    )


_ACTIONS: Final[dict[NodeAction, Callable[[Books, Node], None]]] = {
    NodeAction.KEEP: _persist,
    NodeAction.DRAIN: _begin_drain,
    NodeAction.ALARM: _set_alarm,
    NodeAction.EXAMINE: _return,
}
