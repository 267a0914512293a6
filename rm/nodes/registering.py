"""A node registers: it is described, and what it runs is adopted or stopped."""

from typing import Final

import numpy as np

from rm.applications import DEAD, fail_attempt, hands_over
from rm.containers import (
    close,
    count_master,
    hold,
    may_have_run,
    note_tasks,
    order_stop,
    relay_lost,
)
from rm.forgetting import rack_of, slot_of_forgotten
from rm.leaving import count_class, drain, examine, step
from rm.nodes.updating import in_force
from rm.state.books import Books
from rm.state.lifecycle import (
    CONTAINER,
    NODE,
    AttemptState,
    ContainerEvent,
    NodeEvent,
    RmContainerState,
    RmNodeState,
)
from rm.state.records import NEVER, Attempt, Holding, Holdings, Node, Order
from weft.model.errors import InputError
from weft.model.ids import ContainerId, NodeId, app_of_container, attempt_of_container
from weft.model.resources import Vector
from weft.protocol.effects import Send
from weft.protocol.facts import NodeChanged
from weft.protocol.messages import (
    BegunTask,
    ContainerEnd,
    NodeAccepted,
    NodeAnswered,
    NodeRegistered,
    Outcome,
    RunningContainer,
    node_address,
)
from weft.protocol.outbox import Outbox

_BROUGHT_ALONG: Final = CONTAINER.next(RmContainerState.NEW, ContainerEvent.RECOVER)


def register(books: Books, event: NodeRegistered) -> None:
    """Register a node that is up; adopt what it runs, or stop it where nobody wants it.

    A registration may be old, doubled or of a process that is gone, so it is taken in steps, each
    of which may end the matter:

    * told to an earlier life of the manager: the node is asked for a new one;
    * of another process than the one that is present: either that one ended, or this is a late word
      of one before. The node is asked with a token, and the process that answers it is believed;
    * said again by the process that is present: it lives, and nothing else is new;
    * else it is taken in. What the books have on the node and it does not run ended with its last
      process. What it runs and the books do not know is adopted (after a restart of the manager) or
      stopped. What was given up in its absence (`Node.unconfirmed`) holds room, for nobody, until
      the node says that it ended. Then those who waited for the node after a restart are settled:
      ends that it still owes come with its next heartbeats; a master that it lost has failed.
    """
    try:
        own = books.types.vector(event.capacity, f"node {event.node_id}: capacity")
        capacity, labels = in_force(books, event.node_id, own, event.labels)
        mask = books.label_mask(labels)
    except InputError as error:
        answer = NodeAnswered(event.node_id, 0, shutdown=str(error))
        books.out.append(Send(node_address(event.node_id), answer))
        return
    life = books.epoch + 1
    if event.life not in (0, life):
        # It was told to an earlier life of the manager, perhaps long ago.
        ask_to_register(books, event.node_id)
        return
    node = books.nodes.get(event.node_id) or _new_node(books, event.node_id)
    if node.present and event.boot != node.boot and (event.boot, event.token) != node.challenge:
        # A node manager was started anew, or this is a stale message of an earlier one: the process
        # that lives answers.
        if node.challenge[0] != event.boot:
            node.challenge = (event.boot, books.next_token)
            books.next_token += 1
        ask_to_register(books, event.node_id, node.challenge[1])
        return
    if node.present and event.boot == node.boot and (event.life == 0 or node.sure):
        # It is repeated because the answer was lost; nothing else is new than that it lives.
        books.ledger.heard_of(node.slot, books.now)
        _accept(books, node, event.request_id)
        return
    node.boot, node.sure, node.challenge = event.boot, event.life == life, (0, 0)
    smaller = any(now < before for now, before in zip(capacity, node.capacity, strict=False))
    node.said, node.labels = (own, event.labels), labels
    _describe(books, node, event, capacity, mask)
    running = {item.container_id for item in event.running}
    for holding in list(node.holdings.values()):
        holding.adopted |= smaller
        if holding.container_id not in running:
            holding.stop_reason, holding.ended_node = "its node manager was started anew", True
            order_stop(books, holding)
    for item in event.running:
        if item.container_id not in node.holdings:
            _adopt(books, node, item)
    for number, demand in node.unconfirmed.items():
        if number not in node.holdings:
            _keep_for_nobody(books, node, number, demand)
    node.unconfirmed.clear()
    books.matching.changed()
    _accept(books, node, event.request_id)
    missing = books.unseen_containers.get(node.node_id)
    if missing:
        # Ends that the node still owes come with its next heartbeats.
        waiting = {n: (a, books.now) for n, (a, _) in missing.items() if n not in books.holdings}
        books.unseen_containers[node.node_id] = waiting
    for attempt in books.returning_masters.pop(node.node_id, ()):
        if attempt.state is AttemptState.ALLOCATED and attempt.master is None:
            # The order to launch it, if it is still on its way, must find it stopped.
            _keep_for_nobody(books, node, attempt.master_id, attempt.vector)
            why = "its node came back without its master"
            fail_attempt(books, attempt, why, counts=False)
    drain(books, node)


def recover_leaving(books: Books, name: NodeId, state: str, until_s: float) -> None:
    """Restore a node that was out of service before the manager's restart, and still is."""
    node = _new_node(books, name)
    books.ledger.heard_of(node.slot, books.now)
    node.drain_until_s = until_s
    if state == RmNodeState.DECOMMISSIONING.name:
        step(books, node, NodeEvent.RECOVER_DECOMMISSIONING)
    else:
        step(books, node, NodeEvent.RECOVER_DECOMMISSIONED)


def _new_node(books: Books, name: NodeId) -> Node:
    outbox: Outbox[int, Order] = books.outbox()
    slot = slot_of_forgotten(books)
    at = books.ledger.add_node() if slot < 0 else slot
    node = Node(name, at, outbox, len(books.types), Holdings(books.holdings))
    books.nodes[name] = node
    if slot < 0:
        books.node_at.append(node)
        books.view.node_names.append(name)
    else:
        books.node_at[slot] = node
        books.view.node_names[slot] = name
    return node


def _describe(books: Books, node: Node, event: NodeRegistered, capacity: Vector, mask: int) -> None:
    """Take over what a registration says about the node itself."""
    known = NODE.allows(node.state, NodeEvent.RECONNECTED)
    if node.state is RmNodeState.RUNNING:
        count_class(books, node, -1)
    node.state = NODE.next(node.state, NodeEvent.RECONNECTED if known else NodeEvent.REGISTERED)
    node.present = True
    node.address, node.rack = event.address, event.rack
    node.capacity, node.use, node.speed = capacity, (), event.speed
    books.unlike = books.unlike or event.speed != 1.0
    node.settled_at = NEVER
    books.ledger.describe_node(node.slot, rack_of(books, event.rack), mask)
    books.ledger.heard_of(node.slot, books.now)
    in_service = node.state is RmNodeState.RUNNING
    books.ledger.set_node(node.slot, capacity, up=in_service)
    if in_service:
        count_class(books, node, 1)
    books.note(NodeChanged(node.node_id, node.state.name, capacity))
    node.lacking, node.files = event.lacking, event.files
    if event.files:
        books.with_files[node.node_id] = None
    node.unhealthy_at = 0
    examine(books, node, event.unhealthy)


def _accept(books: Books, node: Node, request_id: int) -> None:
    settings = books.settings
    answer = NodeAccepted(
        node.node_id,
        books.types,
        settings.heartbeat_s,
        settings.prompt,
        books.cluster_ts,
        books.epoch + 1,
        settings.node_expiry_s,
        request_id,
    )
    books.out.append(Send(node_address(node.node_id), answer))


def ask_to_register(books: Books, name: NodeId, token: int = 0) -> None:
    """Have a node say what it runs; with a `token`, only a process that registers answers."""
    answer = NodeAnswered(name, 0, resync=True, life=books.epoch + 1, token=token)
    books.out.append(Send(node_address(name), answer))


def _adopt(books: Books, node: Node, item: RunningContainer) -> None:
    """Adopt or stop a container that the node runs and the books do not know."""
    number = item.container_id
    held = books.holdings.get(number)
    if held is not None:
        # It is booked on another node; where both cannot be true, it is nobody's here.
        if not held.claimed or not may_have_run(books, node, number):
            return
        close(books, held, ContainerEnd(number, Outcome.LOST, message="it never was there"))
    app = books.apps.get(app_of_container(number))
    attempt = None if app is None else app.attempt
    # On a DECOMMISSIONED node it was given up, and its master told.
    if (
        attempt is None
        or attempt.state in DEAD
        or attempt.state is AttemptState.FINISHING
        or not _claims(books, node, attempt, item)
        or number in node.unconfirmed
        or node.state is RmNodeState.DECOMMISSIONED
    ):
        _keep_for_nobody(books, node, number, item.demand)
        ran = may_have_run(books, node, number)
        books.holdings.by_id[number].claimed = not ran
        own = attempt is not None and attempt_of_container(number) == attempt.attempt_id
        if attempt is not None and own and ran and attempt.recovered:
            # The master may have heard of it after it registered.
            relay_lost(books, attempt, number)
        return
    holding = _book_as_is(books, node, attempt, number, item.demand)
    if item.started_s > 0.0:
        # Whatever the node's clock says, it was not there before its application.
        holding.started_s = min(books.now, max(attempt.app.submitted_s, item.started_s))
    if number == attempt.master_id:
        attempt.master = holding
        attempt.seen_s = books.now
        count_master(books, attempt.app.queue, holding.demand)
        books.ledger.count_masters(attempt.app.slot, 1)
        return
    if item.tasks and 0 <= item.tasks[0][0] < len(attempt.app.running):
        holding.stage = item.tasks[0][0]
        attempt.app.running[holding.stage] += 1
    note_tasks(books, node, [BegunTask(number, *key) for key in item.tasks])
    if number in attempt.app.given_back:
        # Its master did not wait for the node's return.
        del attempt.app.given_back[number]
        order_stop(books, holding)


def _claims(books: Books, node: Node, attempt: Attempt, item: RunningContainer) -> bool:
    """Return whether a container that a node brings along belongs to an attempt.

    It does if it is the attempt's own, or an earlier one's that it took over or may yet take over.
    A master that registered has said which it holds, and was told of those that came too late.
    """
    number, owner = item.container_id, attempt_of_container(item.container_id)
    if not may_have_run(books, node, number):
        return False
    own = owner == attempt.attempt_id
    if not (attempt.recovered if own else hands_over(books, attempt.app)):
        return False
    if attempt.state is AttemptState.RUNNING and number != attempt.master_id:
        return number in books.unseen_containers.get(node.node_id, {})
    if own:
        return True
    if not item.tasks:
        # It is an earlier master's own, or a reusable one that is idle.
        return False
    return any(one.attempt_id == owner and one.takes_over for one in attempt.app.attempts)


def _keep_for_nobody(books: Books, node: Node, number: ContainerId, demand: Vector) -> None:
    """Book what a node may still run, until it confirms the end of it."""
    if number in books.holdings:
        return
    order_stop(books, _book_as_is(books, node, None, number, demand))


def _book_as_is(
    books: Books, node: Node, attempt: Attempt | None, number: ContainerId, demand: Vector
) -> Holding:
    """Book a running container whatever the capacity: it is there."""
    # Nodes know what tasks declare, and containers were granted in the policy's sizes.
    demand = books.raised(books.fitted(demand))
    array = np.array(demand, dtype=np.float64)
    slot = -1 if attempt is None else attempt.app.slot
    books.ledger.book(node.slot, slot, array, 1, np.full(len(array), np.inf))
    now, vector = books.now, tuple(demand)
    holding = Holding(number, node, attempt, None, array, vector, now, _BROUGHT_ALONG, -1, now)
    holding.adopted = books.brought_along = True
    hold(books, holding)
    return holding
