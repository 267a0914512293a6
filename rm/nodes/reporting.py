"""A node's heartbeats: what ended there, and what it is told to do."""

from collections.abc import Iterable
from typing import Final

from rm.applications import container_ended, settle
from rm.containers import (
    close_done,
    is_done,
    journal,
    late_success,
    may_have_run,
    note_tasks,
    refuse_end,
    relay,
    relay_task,
)
from rm.leaving import drain, examine
from rm.ledger.asks import HOLES_MAX
from rm.nodes.registering import ask_to_register
from rm.placing.allocation import MAY_GRANT, NO_ROOM, heartbeat_outlook, match_node
from rm.placing.gangs import planner_of
from rm.placing.reserve import before_match, start_gangs
from rm.state.books import Books
from rm.state.lifecycle import AppState, RmNodeState
from rm.state.records import AGAIN, ApplicationOver, Node, Spared
from weft.model.ids import app_of_container, attempt_of_container
from weft.protocol.effects import NodesIdle, Send
from weft.protocol.messages import (
    ContainerEnd,
    MasterLaunch,
    NodeAnswered,
    NodeHeartbeated,
    Outcome,
    end_of,
    ends_of,
    node_address,
)

_GOING_ON: Final = AppState.RUNNING
_DRAINING: Final = RmNodeState.DECOMMISSIONING


def heartbeat(books: Books, event: NodeHeartbeated) -> None:
    """Handle a node's report: ends first, then a match on what is free, then the answer.

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
        ask_to_register(books, event.node_id)
        return
    books.ledger.heard_of(node.slot, books.now)
    if event.acks:
        node.outbox.acknowledge(event.acks)
    if not books.settings.lossless:
        node.acks.append(event.request_id)
    if event.use:
        node.use = event.use
    # A late report says how it was before.
    if event.request_id > node.unhealthy_at:
        node.unhealthy_at = event.request_id
        if event.unhealthy != node.unhealthy:
            examine(books, node, event.unhealthy)
    held = books.holdings.by_id
    for done in event.tasks_ended:
        relay_task(books, node, done)
    for end in event.ended:
        run = held.get(end.container_id)
        if run is not None and run.node is node and is_done(run, end):
            app = close_done(books, run, end)
            if app.state is not _GOING_ON:
                settle(books, app)
            continue
        for one in _each_of(books, node, end) if end.tasks else (end,):
            _ended(books, node, one)
    if event.begun:
        note_tasks(books, node, event.begun)
    for number, _ in event.container_use:
        if number not in held:
            # Nobody else would ever free it.
            node.outbox.put(number, number)
    _match_and_answer(books, node)


def _match_and_answer(books: Books, node: Node) -> None:
    """Do what every heartbeat gives occasion to: drain, match, answer."""
    settings = books.settings
    if node.state is _DRAINING:
        drain(books, node)
    if not settings.prompt:
        rows = books.rows
        if rows.count > 2 * rows.live + HOLES_MAX:
            rows.compact()
        if (rows.gangs or books.now >= books.matching.reserve_at) and books.must_keep_nodes(
            books.now
        ):
            before_match(books)
        match_node(books, node)
        if rows.gangs:
            start_gangs(books)
    elif node.settled_at == AGAIN and books.rows.live:
        # Asks that wait for a nearer node get one opportunity a heartbeat; a promised time comes.
        if books.rows.gangs and planner_of(books) is not None:
            start_gangs(books)
        match_node(books, node)
    if settings.buggify is None or not books.rarely("a node is answered late"):
        answer_node(books, node)


def idle(books: Books, event: NodesIdle) -> None:
    """Handle heartbeats of many nodes that say nothing: do what each would, one after the other.

    Most would do nothing, and that is known without one (`heartbeat_outlook`, as in the simulator,
    which leaves such beats out): no order waits, and nothing that is pending could go there.
    """
    slots: list[int] = []
    for name in event.node_ids:
        node = books.nodes.get(name)
        if node is None or not node.present:
            ask_to_register(books, name)
            continue
        slots.append(node.slot)
        if node.state is RmNodeState.RUNNING and not (node.outbox.owes or node.acks):
            expected = heartbeat_outlook(books, node, books.now)
            if expected == NO_ROOM:
                node.settled_at = books.matching.version
            if expected != MAY_GRANT:
                continue
        _match_and_answer(books, node)
    books.ledger.heard_of_all(slots, books.now)


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
    if claimed := books.unseen_containers.get(node.node_id):
        known |= claimed.keys() & numbers
    return [end_of(end, number - first) for number in sorted(known)]


def _ended(books: Books, node: Node, end: ContainerEnd) -> None:
    holding = books.holdings.by_id.get(end.container_id)
    if holding is None:
        _unknown_ended(books, node, end)
    elif holding.node is node:
        if holding.count > 1:
            # The others of its run go on, so it is taken apart.
            holding = books.holdings[end.container_id]
        if holding.attempt is None:
            late_success(books, node, end, holding)
        container_ended(books, holding, end)
    else:
        refuse_end(books, node, end)


def _unknown_ended(books: Books, node: Node, end: ContainerEnd) -> None:
    """Handle the end of a container that this manager did not know; tell a recovered master."""
    claimed = books.unseen_containers.get(node.node_id, {}).pop(end.container_id, None)
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
        # The end is refused there.
        late_success(books, node, end)
        return
    if end.outcome is Outcome.SUCCEEDED:
        journal(books, app, end.stage, end.task, end.run_s)
    if end.container_id != attempt.master_id:
        relay(books, attempt, end)


def answer_node(books: Books, node: Node) -> None:
    """Send a node its orders."""
    if books.dirty_nodes:
        books.dirty_nodes.pop(node.node_id, None)
    if books.settings.lossless and node.outbox.nothing():
        return
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
    else:
        answer = NodeAnswered(node.node_id, number, acks, life=books.epoch + 1)
    books.out.append(Send(node_address(node.node_id), answer))
