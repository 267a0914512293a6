"""What node managers say, and what silence means."""

from collections.abc import Iterable
from typing import Final

import numpy as np

from rm.applications import DEAD, container_ended, fail_attempt, hands_over, run_ended
from rm.containers import (
    Demand,
    close,
    count_master,
    hold,
    is_end_of,
    journal,
    late_success,
    may_have_run,
    order_stop,
    refuse_end,
    relay,
    relay_lost,
    relay_task,
)
from rm.forgetting import rack_of, slot_of_forgotten
from rm.leaving import count_class, drain, examine, persist, set_alarm, step
from rm.placing.allocation import match_node
from rm.placing.reserve import before_match
from rm.state.books import Books
from rm.state.lifecycle import LEAVING, NODE, AttemptState, ContainerEvent, NodeEvent, NodeState
from rm.state.match_state import AGAIN, NEVER
from rm.state.records import ApplicationOver, Attempt, Holding, Holdings, Node, Order, Spared
from weft.effects import Send
from weft.errors import InputError
from weft.facts import NodeChanged
from weft.ids import ContainerId, NodeId, app_of_container, attempt_of_container
from weft.messages import (
    NODE_ENDED,
    ContainerEnd,
    MasterLaunch,
    NodeAccepted,
    NodeAnswered,
    NodeHeartbeated,
    NodeRegistered,
    NodeUnregistered,
    Outcome,
    RunningContainer,
    end_of,
    ends_of,
    node_address,
)
from weft.outbox import Outbox
from weft.resources import Vector

_DRAINING: Final = NodeState.DECOMMISSIONING
_KNOWN: Final = (NodeState.RUNNING, NodeState.UNHEALTHY, *LEAVING)


def register(books: Books, event: NodeRegistered) -> None:
    """A node is up; what it runs is adopted, or stopped where nobody wants it.

    A registration may be old, doubled or of a process that is gone, so it is taken in steps, each
    of which may end the matter:

    * told to an earlier life of the manager: the node is asked for a new one;
    * of another process than the one that is present: either that one ended, or this is a late word
      of one before. The node is asked with a token, and the process that answers it is believed;
    * said again by the process that is present: it lives, and nothing else is new;
    * else it is taken in. What the books have on the node and it does not run ended with its last
      process. What it runs and the books do not know is adopted (after a restart of the manager) or
      stopped. What was given up in its absence (`Node.lost`) holds its room, for nobody, until the
      node says that it ended. Then those who waited for the node after a restart are settled: ends
      that it still owes come with its next heartbeats; a master that it has no more has failed.
    """
    try:
        capacity = books.types.vector(event.capacity, f"node {event.node_id}: capacity")
        mask = books.label_mask(event.labels)
    except InputError as error:
        answer = NodeAnswered(event.node_id, 0, shutdown=str(error))
        books.out.append(Send(node_address(event.node_id), answer))
        return
    life = books.epoch + 1
    if event.life not in (0, life):
        _ask_to_register(books, event.node_id)  # told to an earlier life: it may be long ago
        return
    node = books.nodes.get(event.node_id) or _new_node(books, event.node_id)
    if node.present and event.boot != node.boot and (event.boot, event.token) != node.challenge:
        # a node manager that started anew, or a late word of an earlier one: the living answers
        if node.challenge[0] != event.boot:
            node.challenge = (event.boot, books.next_token)
            books.next_token += 1
        _ask_to_register(books, event.node_id, node.challenge[1])
        return
    if node.present and event.boot == node.boot and (event.life == 0 or node.sure):
        # said again: the answer was lost, nothing else is new than that it lives
        books.ledger.heard_of(node.slot, books.now)
        _accept(books, node, event.request_id)
        return
    node.boot, node.sure, node.challenge = event.boot, event.life == life, (0, 0)
    _describe(books, node, event, capacity, mask)
    running = {item.container_id for item in event.running}
    for holding in list(node.holdings.values()):
        if holding.container_id not in running:
            holding.lost, holding.ended_node = "its node manager was started anew", True
            order_stop(books, holding)
    for item in event.running:
        if item.container_id not in node.holdings:
            _adopt(books, node, item)
    for number, demand in node.lost.items():
        if number not in node.holdings:
            _keep_for_nobody(books, node, number, demand)
    node.lost.clear()
    books.matching.changed()
    _accept(books, node, event.request_id)
    missing = books.missing.get(node.node_id)
    if missing:  # ends that the node still owes come with its next heartbeats
        waiting = {n: (a, books.now) for n, (a, _) in missing.items() if n not in books.holdings}
        books.missing[node.node_id] = waiting
    for attempt in books.expected.pop(node.node_id, ()):
        if attempt.state is AttemptState.ALLOCATED and attempt.master is None:
            # the order to launch it, if it is still on its way, must find it stopped
            _keep_for_nobody(books, node, attempt.master_id, attempt.vector)
            why = "its node came back without its master"
            fail_attempt(books, attempt, why, counts=False)
    drain(books, node)


def heartbeat(books: Books, event: NodeHeartbeated) -> None:
    """A node's report: ends first, then a match on what is free, then the answer.

    The order matters. Acknowledgements come first, so that no order is said again in the answer
    that the node has just confirmed. Ends come before the match, as what they free is matched in
    the same event: in YARN's pace the next opportunity is a heartbeat away. The match comes before
    the answer, which carries a master that was placed right now. And of two reports, whichever way
    they come, the one with the larger number says how the node's health is; ends have no order, as
    each is counted once by its container.

    A report of a node that is not registered is not looked into: its registration says whole what
    a report only says changes of.
    """
    node = books.nodes.get(event.node_id)
    if node is None or not node.present:
        _ask_to_register(books, event.node_id)
        return
    settings = books.settings
    books.ledger.heard_of(node.slot, books.now)
    if event.acks:
        node.outbox.acknowledge(event.acks)
    if not settings.lossless:
        node.acks.append(event.request_id)
    if event.use:
        node.use = event.use
    if event.request_id > node.unhealthy_at:  # a late one says how it was before
        node.unhealthy_at = event.request_id
        if event.unhealthy != node.unhealthy:
            examine(books, node, event.unhealthy)
    for done in event.tasks_ended:
        relay_task(books, node, done)
    for end in event.ended:
        if not end.tasks:
            _ended(books, node, end)
            continue
        run = books.holdings.peek(end.container_id)
        if run is not None and run.node is node and is_end_of(run, end):
            run_ended(books, run, end)
            continue
        for one in _each_of(books, node, end):
            _ended(books, node, one)
    for number, _ in event.container_use:
        if number not in books.holdings:  # nobody would ever free it
            node.outbox.put(number, number)
    if node.state is _DRAINING:
        drain(books, node)
    if not settings.prompt:
        books.rows.compact()
        before_match(books)
        books.matching.begin_pass()
        match_node(books, node)
    elif node.settled_at == AGAIN and books.rows.live:
        books.matching.begin_pass()
        match_node(books, node)  # one opportunity a heartbeat for asks that wait for a nearer node
    if settings.buggify is None or not books.rarely("a node is answered late"):
        answer_node(books, node)


def _each_of(books: Books, node: Node, end: ContainerEnd) -> Iterable[ContainerEnd]:
    """Return the end of each container of a run.

    Of a run with more tasks than its stage has, which no master can have started, only those of
    containers that the node is known to hold: all others would be looked up for nothing.
    """
    count = len(end.tasks)
    app = books.apps.get(app_of_container(end.container_id))
    most = 0
    if app is not None:
        stages = app.job.stages
        most = books.settings.node_containers_max
        if 0 <= end.stage < len(stages):
            most = stages[end.stage].tasks
    if count <= most:
        return ends_of(end)
    first = end.container_id
    numbers = range(first, first + count)
    known = node.holdings.keys() & numbers
    if claimed := books.missing.get(node.node_id):
        known |= claimed.keys() & numbers
    return [end_of(end, number - first) for number in sorted(known)]


def _ended(books: Books, node: Node, end: ContainerEnd) -> None:
    holding = books.holdings.by_id.get(end.container_id)
    if holding is None:
        _unknown_ended(books, node, end)
    elif holding.node is node:
        if holding.count > 1:  # by itself
            holding = books.holdings[end.container_id]
        if holding.attempt is None:
            late_success(books, node, end, holding)
        container_ended(books, holding, end)
    else:
        refuse_end(books, node, end)


def unregister(books: Books, event: NodeUnregistered) -> None:
    """A node leaves on purpose."""
    node = books.nodes.get(event.node_id)
    if node is not None and node.present:
        _gone(books, node, NodeEvent.UNREGISTERED, "its node left")


def expire(books: Books) -> None:
    """Nodes that were silent for too long are lost, with all that ran there."""
    ledger, limit = books.ledger, books.settings.node_expiry_s
    if books.rarely("nodes expire early"):
        limit /= 2
    n = ledger.node_count
    silent = ledger.nodes.up[:n] & (books.now - ledger.nodes.seen_s[:n] >= limit)
    _give_up_missing(books, limit)
    if books.expected and books.now - books.started_s >= limit:  # what is not back by now is lost
        for name in [name for name, waiting in books.expected.items() if _none_lives(waiting)]:
            del books.expected[name]
    for slot in np.flatnonzero(silent).tolist():
        _gone(books, books.node_at[slot], NodeEvent.EXPIRED, f"its node was silent for {limit:g} s")
    for node in books.node_at:
        waited = node.present or node.state is NodeState.DECOMMISSIONING
        idle = node.state is NodeState.UNHEALTHY or node.state in LEAVING
        if idle and waited and books.now - ledger.nodes.seen_s[node.slot] >= limit:
            _gone(books, node, NodeEvent.EXPIRED, f"its node was silent for {limit:g} s")


def _none_lives(attempts: list[Attempt]) -> bool:
    """Whether nobody waits for the masters of these attempts any more."""
    return all(a.state is not AttemptState.ALLOCATED for a in attempts)


def forgive(books: Books, pause_s: float) -> None:
    """The manager was paused: that time counts for nobody's silence."""
    books.ledger.forgive(pause_s, books.now)
    for missing in books.missing.values():
        for number, (attempt, since_s) in missing.items():
            missing[number] = (attempt, min(since_s + pause_s, books.now))


def _give_up_missing(books: Books, limit_s: float) -> None:
    """What masters held before a restart is lost when its node is back without it, or not back.

    A node that is back gets the time to send the ends that it owes again, should they be lost.
    """
    patience_s = 3 * books.settings.resend_after_s
    for where, missing in list(books.missing.items()):
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
                if node is not None:  # should it be there all the same, or be started yet
                    node.outbox.put(number, number)
        if not missing:
            del books.missing[where]


def answer_node(books: Books, node: Node) -> None:
    """Send a node its orders."""
    books.dirty_nodes.pop(node.node_id, None)
    number, items = node.outbox.take(books.now)
    acks, node.acks = tuple(node.acks), []
    if items:
        start = tuple(item for item in items if isinstance(item, MasterLaunch))
        stop = tuple(item for item in items if isinstance(item, int))
        over = tuple(item.app_id for item in items if isinstance(item, ApplicationOver))
        spare = tuple(item.container_id for item in items if isinstance(item, Spared))
        life = books.epoch + 1
        answer = NodeAnswered(
            node.node_id, number, acks, start, stop, life=life, over=over, spare=spare
        )
    elif books.settings.lossless:
        return
    else:
        answer = NodeAnswered(node.node_id, number, acks, life=books.epoch + 1)
    books.out.append(Send(node_address(node.node_id), answer))


def recover_leaving(books: Books, name: NodeId, state: str, until_s: float) -> None:
    """A node was out of service before the manager's restart, and still is."""
    node = _new_node(books, name)
    books.ledger.heard_of(node.slot, books.now)
    node.drain_until_s = until_s
    if state == NodeState.DECOMMISSIONING.name:
        step(books, node, NodeEvent.RECOVER_DECOMMISSIONING)
        set_alarm(books, node)
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
    known = node.state in _KNOWN
    if node.state is NodeState.RUNNING:
        count_class(books, node, -1)
    node.state = NODE.next(node.state, NodeEvent.RECONNECTED if known else NodeEvent.REGISTERED)
    node.present = True
    node.address, node.rack, node.labels = event.address, event.rack, event.labels
    node.capacity, node.use, node.speed = capacity, (), event.speed
    books.unlike = books.unlike or event.speed != 1.0
    node.settled_at = NEVER
    books.ledger.describe_node(node.slot, rack_of(books, event.rack), mask)
    books.ledger.heard_of(node.slot, books.now)
    in_service = node.state is NodeState.RUNNING
    books.ledger.set_node(node.slot, capacity, up=in_service)
    if in_service:
        count_class(books, node, 1)
    books.note(NodeChanged(node.node_id, node.state.name, capacity))
    node.lacking = event.lacking
    node.unhealthy_at = 0
    examine(books, node, event.unhealthy)


def _accept(books: Books, node: Node, request_id: int) -> None:
    settings = books.settings
    answer = NodeAccepted(
        node.node_id, books.types, settings.heartbeat_s, settings.prompt, books.cluster_ts,
        books.epoch + 1, settings.node_expiry_s, request_id,
    )  # fmt: skip
    books.out.append(Send(node_address(node.node_id), answer))


def _ask_to_register(books: Books, name: NodeId, token: int = 0) -> None:
    """Have a node say what it runs; with a `token`, only a process that registers answers."""
    answer = NodeAnswered(name, 0, resync=True, life=books.epoch + 1, token=token)
    books.out.append(Send(node_address(name), answer))


def _adopt(books: Books, node: Node, item: RunningContainer) -> None:
    """A container that the node carries and the books do not know: taken over or stopped."""
    number = item.container_id
    held = books.holdings.get(number)
    if held is not None:  # on another node: an impossible double is nobody's here
        if not held.claimed or not may_have_run(books, node, number):
            return
        close(books, held, ContainerEnd(number, Outcome.LOST, message="it never was there"))
    app = books.apps.get(app_of_container(number))
    attempt = None if app is None else app.attempt
    if (
        attempt is None
        or attempt.state in DEAD
        or attempt.state is AttemptState.FINISHING
        or not _claims(books, node, attempt, item)
        or number in node.lost
        or node.state is NodeState.DECOMMISSIONED  # it was given up, and the master told
    ):
        _keep_for_nobody(books, node, number, item.demand)
        books.holdings.by_id[number].claimed = not may_have_run(books, node, number)
        return
    _book_as_is(books, node, attempt, number, item.demand)
    holding = books.holdings[number]
    if number == attempt.master_id:
        attempt.master = holding
        attempt.seen_s = books.now
        count_master(books, attempt.app.queue, holding.demand)
        return
    if item.tasks and 0 <= item.tasks[0][0] < len(attempt.app.running):
        holding.stage = item.tasks[0][0]
        attempt.app.running[holding.stage] += 1
    if number in attempt.app.given_back:  # its master did not wait for the node's return
        del attempt.app.given_back[number]
        order_stop(books, holding)


def _claims(books: Books, node: Node, attempt: Attempt, item: RunningContainer) -> bool:
    """Whether a container that a node brings along is an attempt's own, or an earlier one's that
    it took over (it said so) or may yet take over.
    """
    number, owner = item.container_id, attempt_of_container(item.container_id)
    if not may_have_run(books, node, number):
        return False
    if owner == attempt.attempt_id:
        return attempt.recovered
    if not hands_over(books, attempt.app):
        return False
    if attempt.state is AttemptState.RUNNING:
        return number in books.missing.get(node.node_id, {})
    if not item.tasks:
        return False  # an earlier master's own, or a reusable one that is idle
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
    demand = demand if any(demand) else books.least
    array = np.array(demand, dtype=np.float64)
    slot = -1 if attempt is None else attempt.app.slot
    books.ledger.book(node.slot, slot, array, 1, np.full(len(array), np.inf))
    both = Demand(array, tuple(demand))
    return hold(books, number, node, attempt, None, both, ContainerEvent.RECOVER)


def _unknown_ended(books: Books, node: Node, end: ContainerEnd) -> None:
    """A container ended before this manager knew of it; its master, if recovered, is told."""
    claimed = books.missing.get(node.node_id, {}).pop(end.container_id, None)
    app = books.apps.get(app_of_container(end.container_id))
    attempt = None if app is None else app.attempt
    own = attempt is not None and attempt.attempt_id == attempt_of_container(end.container_id)
    if (
        app is None
        or attempt is None
        or not attempt.recovered
        or not (own or (claimed is not None and claimed[0] is attempt))
    ):
        late_success(books, node, end)
        return
    if claimed is None and not may_have_run(books, node, end.container_id):
        late_success(books, node, end)  # which refuses it
        return
    if end.outcome is Outcome.SUCCEEDED:
        journal(books, app, end.stage, end.task, end.run_s)
    if end.container_id != attempt.master_id:
        relay(books, attempt, end)


def _gone(books: Books, node: Node, event: NodeEvent, why: str) -> None:
    """A node is given up: what it holds ends as LOST, and is wanted again elsewhere.

    It may run all the same (a partition, a long pause). Its room is not given away when it comes
    back: `Node.lost` remembers it, and the node is told to stop it.
    """
    node.present = False
    before = node.state
    step(books, node, event)
    if node.state in LEAVING and node.state is not before:
        persist(books, node)
    code = NODE_ENDED if event is NodeEvent.EXPIRED else -1
    for holding in list(node.holdings.values()):
        if not holding.claimed:
            node.lost[holding.container_id] = holding.vector
        task = _task_of(holding)
        lost = ContainerEnd(holding.container_id, Outcome.LOST, code, *task, message=why)
        container_ended(books, holding, lost)


def _task_of(holding: Holding) -> tuple[int, int]:
    """What the manager knows of a lost container's task: its stage, not its number."""
    return holding.stage, -1
