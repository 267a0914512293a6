"""Containers begin and end here, once each: books, counters, journal, relay."""

from collections.abc import Iterable
from typing import Final

from rm.state.books import Books
from rm.state.lifecycle import CONTAINER, AttemptState, ContainerEvent, RmContainerState
from rm.state.records import App, Attempt, Holding, Node, Spared
from weft.model.dag import Floats
from weft.model.ids import (
    EPOCHS,
    ContainerId,
    app_of_container,
    attempt_of_container,
    format_container,
    life_of_container,
)
from weft.protocol.effects import Note
from weft.protocol.facts import Closed, ClosedRun, Remark
from weft.protocol.messages import NODE_ENDED, BegunTask, ContainerEnd, Outcome, TaskEnd
from weft.protocol.record import changed

PREEMPTED = "it was taken back for another queue or application"
# The reason of an end has at most so many characters in a fact.
MESSAGE_CHARS_MAX = 200
# A node has so many reusable containers whose tasks' ends may be told after their own.
EMPTIED_MAX = 1_000
# A node's refused ends in between are only counted.
REFUSAL_INTERVAL_S = 10.0

_HOW = {
    Outcome.RELEASED: ContainerEvent.GIVEN_BACK,
    Outcome.KILLED: ContainerEvent.WAS_KILLED,
    Outcome.LOST: ContainerEvent.WAS_KILLED,
    Outcome.PREEMPTED: ContainerEvent.WAS_KILLED,
}
# These are looked up once, as to find a member in its enum costs as much as a call.
_SUCCEEDED: Final = Outcome.SUCCEEDED
_ENDED: Final = ContainerEvent.ENDED
_RUNNING: Final = AttemptState.RUNNING
_FINISHING: Final = AttemptState.FINISHING
_ALLOCATED: Final = AttemptState.ALLOCATED
_MASTERLESS: Final = (AttemptState.FAILED, AttemptState.SCHEDULED)
ALLOCATED: Final = CONTAINER.next(RmContainerState.NEW, ContainerEvent.START)
_ACQUIRED: Final = RmContainerState.ACQUIRED
_STOPPING: Final = RmContainerState.STOPPING
# Most containers take this step.
_COMPLETED: Final = CONTAINER.next(_ACQUIRED, _ENDED)


def count_master(books: Books, queue: int, demand: Floats) -> None:
    """Count a master's demand (d,) as held in its leaf queue and those above; negative: no more."""
    for at in books.queues.chains[queue]:
        held = books.master_usage[at]
        held += demand
        if held.max() < 1e-9:
            # Rounding must leave no rest.
            held[:] = 0.0


def move_masters(books: Books, app: App, queue: int) -> None:
    """Move what the masters of an application hold to another leaf queue."""
    for attempt in app.attempts:
        if attempt.master is not None and attempt.master.container_id in books.holdings:
            count_master(books, app.queue, -attempt.master.demand)
            count_master(books, queue, attempt.master.demand)


def next_ids(books: Books, attempt: Attempt, count: int) -> ContainerId:
    """Return the first of `count` ids in a row that no life of the manager used before.

    Number 1 is the first master's. Ids that a node only says it runs are passed over; where none
    ever said so, each id is new.
    """
    known = books.holdings.by_id
    while True:
        number = attempt.next_number
        attempt.next_number = number + count
        first = attempt.id_before | number
        if not books.brought_along or known.keys().isdisjoint(range(first, first + count)):
            return first


def hold(books: Books, run: Holding) -> None:
    """Write a container, or a run of them, into the books; its demand is booked by the caller.

    For it is the caller who knows how far a node may be filled: what is granted fits, or overbooks
    by the matcher's leave; what a node brings along is there, whether it fits or not.
    """
    number, node, attempt = run.container_id, run.node, run.attempt
    if run.count == 1:
        books.holdings.by_id[number] = node.holdings.by_id[number] = run
        if attempt is not None:
            attempt.holdings.by_id[number] = run
    else:
        books.holdings.hold_run(run)
    if attempt is not None and (node.files or attempt.app.job.master is not None):
        attempt.app.nodes[node.node_id] = node
    if node.runs is not None:
        node.runs.add(number, run.count, run.end_s, run.demand)


def note_tasks(books: Books, node: Node, begun: Iterable[BegunTask]) -> None:
    """Note what runs in containers of a node, for whoever looks at them before they end."""
    for number, stage, task, attempt in begun:
        run = books.holdings.by_id.get(number)
        if run is None or run.attempt is None or run.node is not node:
            continue
        stages = run.attempt.app.job.stages
        if 0 <= stage < len(stages) and 0 <= task < stages[stage].tasks:
            books.tasks_in[number] = (stage, task, attempt)


def is_done(run: Holding, end: ContainerEnd) -> bool:
    """Return whether an end is the success of a task's container, or of a run and no others."""
    attempt = run.attempt
    if attempt is None or end.outcome is not _SUCCEEDED or end.stage < 0 or attempt.master is run:
        return False
    if attempt.state is not _RUNNING and attempt.state is not _FINISHING:
        return False
    if run.count == 1:
        return not end.tasks
    return run.container_id == end.container_id and len(end.tasks) == run.count


def close_done(books: Books, run: Holding, end: ContainerEnd) -> App:
    """Close a container that did its task, or a run of them: what `close` does with each.

    What it did is journaled before its end is noted and relayed. Return the application, which may
    have waited for that (`rm.applications.settle`).
    """
    first, count, node, attempt = run.container_id, run.count, run.node, run.attempt
    assert attempt is not None
    app, demand, now = attempt.app, run.demand, books.now
    if run.state is _STOPPING:
        books.matcher.stopped_ends()
    run.state = _COMPLETED if run.state is _ACQUIRED else CONTAINER.next(run.state, _ENDED)
    if count == 1:
        del books.holdings.by_id[first], node.holdings.by_id[first], attempt.holdings.by_id[first]
        # Nothing is ordered of a run.
        node.outbox.drop(first, -first)
    else:
        books.holdings.drop_run(run)
    if books.tasks_in:
        for number in range(first, first + count):
            books.tasks_in.pop(number, None)
    if node.runs is not None:
        for number in range(first, first + count):
            node.runs.drop(number)
    lasted_s = now - run.started_s
    if not books.hears_ends:
        books.ledger.end(node.slot, app.slot, demand, count, app.held_s, lasted_s)
    else:
        for _ in range(count):
            books.ledger.end(node.slot, app.slot, demand, 1, app.held_s, lasted_s)
            books.matcher.ended(books.view, node.slot, app.slot, demand, now)
    books.matching.changed()
    stage, tasks, run_s, message = end.stage, end.tasks, end.run_s, end.message[:MESSAGE_CHARS_MAX]
    how, name = (end.attempt, end.exit_code, run_s, message), node.node_id
    closed: Closed | ClosedRun
    if tasks:
        journal_run(books, app, end)
        closed = ClosedRun(first, name, _SUCCEEDED, stage, tasks, *how)
    else:
        journal(books, app, stage, end.task, run_s)
        closed = Closed(first, name, _SUCCEEDED, stage, end.task, *how)
    books.out.append(Note(closed))
    app.closed.append((run, end, now))
    if run.stage >= 0:
        app.running[run.stage] -= count
    relay(books, attempt, end)
    return app


def order_stop(books: Books, holding: Holding) -> None:
    """Order the node to stop a container; its end frees it."""
    if holding.state is _STOPPING:
        return
    holding.state = CONTAINER.next(holding.state, ContainerEvent.STOP_ORDERED)
    holding.node.outbox.put(holding.container_id, holding.container_id)
    books.owe_node(holding.node)
    if holding.attempt is not None:
        app = holding.attempt.app.slot
        books.matcher.stop_ordered(books.view, holding.node.slot, app, holding.demand)


def order_spare(books: Books, holding: Holding) -> None:
    """Order the node to stop a container in which nothing runs."""
    holding.node.outbox.put(-holding.container_id, Spared(holding.container_id))
    books.owe_node(holding.node)


def close(books: Books, holding: Holding, end: ContainerEnd) -> None:
    """Close a container that ended: free it, journal what it finished, relay its end.

    What its node says of the end is not always the whole truth: a node cannot know that it stopped
    a container for another queue, or because it was itself taken out of service. Such an end is
    told to the master in the manager's words, as that counts no failure and asks again.

    Nothing is left of it then but its line in `App.closed`: whatever is told of it later is of a
    container that is booked nowhere (`late_success`, `may_have_run`).
    """
    number, node, attempt = holding.container_id, holding.node, holding.attempt
    if holding.preempted and end.outcome in (Outcome.RELEASED, Outcome.KILLED):
        end = changed(end, outcome=Outcome.PREEMPTED, message=PREEMPTED)
    elif holding.stop_reason and end.outcome in (Outcome.RELEASED, Outcome.KILLED):
        # Nobody gave it back, so its master has to hear that it is gone.
        outcome = Outcome.LOST if end.outcome is Outcome.RELEASED else Outcome.KILLED
        code = NODE_ENDED if holding.ended_node and outcome is Outcome.LOST else end.exit_code
        end = changed(end, outcome=outcome, message=holding.stop_reason, exit_code=code)
    if holding.state is _STOPPING and attempt is not None:
        books.matcher.stopped_ends()
    holding.state = CONTAINER.next(holding.state, _HOW.get(end.outcome, _ENDED))
    del books.holdings.by_id[number], node.holdings.by_id[number]
    books.tasks_in.pop(number, None)
    if node.runs is not None:
        node.runs.drop(number)
    node.outbox.drop(number, -number)
    if end.stage < 0 and not holding.claimed and (attempt is None or attempt.master is not holding):
        _remember_emptied(node, number)
    books.matching.changed()
    if attempt is None:
        books.ledger.free(node.slot, -1, holding.demand)
    else:
        app, slot = attempt.app, attempt.app.slot
        lasted_s = books.now - holding.started_s
        books.ledger.end(node.slot, slot, holding.demand, 1, app.held_s, lasted_s)
        del attempt.holdings.by_id[number]
        _of_attempt(books, attempt, holding, end)
        books.matcher.ended(books.view, node.slot, slot, holding.demand, books.now)
    closed = Closed(
        number,
        node.node_id,
        end.outcome,
        end.stage,
        end.task,
        end.attempt,
        end.exit_code,
        end.run_s,
        end.message[:MESSAGE_CHARS_MAX],
    )
    books.out.append(Note(closed))


def _of_attempt(books: Books, attempt: Attempt, holding: Holding, end: ContainerEnd) -> None:
    app = attempt.app
    if attempt.master is holding:
        count_master(books, app.queue, -holding.demand)
        books.ledger.count_masters(app.slot, -1)
        return
    if end.outcome is Outcome.PREEMPTED:
        app.preempted += 1
        for r, amount in enumerate(holding.vector):
            app.preempted_amounts[r] += amount
    app.closed.append((holding, end, books.now))
    if holding.stage >= 0:
        app.running[holding.stage] -= 1
    if end.outcome is _SUCCEEDED:
        journal(books, app, end.stage, end.task, end.run_s)
    elif 0 <= end.stage < len(app.failed) and end.outcome.is_failed_attempt:
        app.failed[end.stage] += 1
    relay(books, attempt, end)


def _remember_emptied(node: Node, number: ContainerId) -> None:
    """Remember a container that ended without a task: ends of tasks in it may still be repeated."""
    node.emptied[number] = None
    if len(node.emptied) > EMPTIED_MAX:
        del node.emptied[next(iter(node.emptied))]


def relay_task(books: Books, node: Node, done: TaskEnd) -> None:
    """Relay the end of a task in a reusable container, as the node's own message may be lost.

    The node tells the master directly as well, a heartbeat sooner, and once. Whichever word comes
    second is known by its container, stage, task and try, and changes nothing.
    """
    end = ContainerEnd(
        done.container_id,
        done.outcome,
        done.exit_code,
        done.stage,
        done.task,
        done.attempt,
        done.run_s,
        done.message,
    )
    holding = books.holdings.get(done.container_id)
    if books.tasks_in.get(done.container_id) == (done.stage, done.task, done.attempt):
        del books.tasks_in[done.container_id]
    if holding is not None and holding.node is not node:
        refuse_end(books, node, end)
        return
    attempt = None if holding is None else holding.attempt
    if attempt is None or attempt.master is holding or attempt.state is not _RUNNING:
        late_success(books, node, end, holding, of_task=True)
        if holding is not None and attempt is not None and attempt.state in _MASTERLESS:
            # Nobody would give it back once it is idle.
            order_spare(books, holding)
        return
    if done.outcome is _SUCCEEDED:
        journal(books, attempt.app, done.stage, done.task, done.run_s)
    _relay_end_of_task(books, attempt, end)


def _relay_end_of_task(books: Books, attempt: Attempt, end: ContainerEnd) -> None:
    """Relay the end of a task in a reusable container to a live master.

    It has a key of its own: it stands in neither for the end of its container, which the master has
    to hear of as well, nor for that of another task there.
    """
    if attempt.state is _RUNNING or attempt.state is _ALLOCATED:
        attempt.outbox.put((end.container_id, end.stage, end.task, end.attempt), end)
        books.owe_attempt(attempt)


def late_success(
    books: Books,
    node: Node,
    end: ContainerEnd,
    holding: Holding | None = None,
    *,
    of_task: bool = False,
) -> None:
    """Count a success in a container that was given up, if the task is still open.

    Its node was cut off, or its master was replaced; whoever runs the job now is told, so that the
    task is not run once more for nothing. `holding`: the container, if it is in the books; it must
    be one that can have run on that node. `of_task`: the success is of a task in a reusable
    container, whose own end is told beside it.
    """
    app = books.apps.get(app_of_container(end.container_id))
    if app is None or end.outcome is not _SUCCEEDED or app.attempt is None:
        return
    if not is_open(app, end.stage, end.task):
        return
    if holding.claimed if holding is not None else not may_have_run(books, node, end.container_id):
        refuse_end(books, node, end)
        return
    if journal(books, app, end.stage, end.task, end.run_s):
        (_relay_end_of_task if of_task else relay)(books, app.attempt, end)


def may_have_run(books: Books, node: Node, number: ContainerId) -> bool:
    """Return whether a container that is booked nowhere may have run on a node.

    What this life of the manager granted is in its books until its node says that it ended, or
    else was given up with the node. Of what an earlier life granted the journal has the attempts,
    not the containers: such a one is only not believed in where its master names another node.
    """
    life, epoch = life_of_container(number), books.epoch
    if life == epoch % EPOCHS:
        return number in node.unconfirmed or number in node.emptied
    if life > epoch and epoch < EPOCHS:
        # No life was ever numbered so.
        return False
    app = books.apps.get(app_of_container(number))
    owner = attempt_of_container(number)
    if app is None or not any(one.attempt_id == owner and one.recovered for one in app.attempts):
        return False
    where = app.held_on.get(number, node.node_id)
    return where == node.node_id or number not in books.unseen_containers.get(where, ())


def refuse_end(books: Books, node: Node, end: ContainerEnd) -> None:
    """Refuse the end of a container that cannot have run there; tell the operator at times."""
    books.refused_ends += 1
    if books.now - node.refused_s < REFUSAL_INTERVAL_S:
        return
    node.refused_s = books.now
    number = format_container(books.cluster_ts, end.container_id)
    fields = (("node", node.node_id), ("container", number), ("outcome", end.outcome.name))
    books.note(Remark("warning", "refused the end of a container that never ran there", fields))


def is_open(app: App, stage: int, task: int) -> bool:
    """Return whether an application has such a task, and its success would be news."""
    sizes = app.sizes
    return 0 <= stage < len(sizes) and 0 <= task < sizes[stage] and task not in app.finished[stage]


def journal(books: Books, app: App, stage: int, task: int, run_s: float) -> bool:
    """Journal a finished task for later attempts and restarted managers.

    Return False if it was known. The first end counts, whichever copy of the task it is of and
    however it came here. It is durable before the master hears of it, so no master ever builds on
    what could be forgotten.
    """
    sizes = app.sizes
    if not (0 <= stage < len(sizes) and 0 <= task < sizes[stage]):
        return False
    finished = app.finished[stage]
    if task in finished:
        return False
    finished[task] = run_s
    app.finished_by_stage[stage] += 1
    if books.settings.recovery:
        books.unsaved_tasks.setdefault(app.app_id, []).append([stage, task, run_s])
    return True


def journal_run(books: Books, app: App, end: ContainerEnd) -> None:
    """Journal the tasks of a run, as `journal` does each: at once where all of them are news."""
    stage, news, run_s = end.stage, dict.fromkeys(end.tasks, end.run_s), end.run_s
    if (
        books.settings.recovery
        or not (is_open(app, stage, min(news)) and is_open(app, stage, max(news)))
        or not app.finished[stage].keys().isdisjoint(news)
    ):
        for task in news:
            journal(books, app, stage, task, run_s)
        return
    app.finished[stage].update(news)
    app.finished_by_stage[stage] += len(news)


def relay_lost(books: Books, attempt: Attempt, number: ContainerId) -> None:
    """Tell a master that a container which it held before a restart is no more."""
    message = "it was gone when the Resource Manager came back"
    relay(books, attempt, ContainerEnd(number, Outcome.LOST, message=message))


def relay(books: Books, attempt: Attempt, end: ContainerEnd) -> None:
    """Relay the end of a container to a live master."""
    if attempt.state is _RUNNING or attempt.state is _ALLOCATED:
        number = end.container_id
        # A run's end is not replaced by what is told again of its first container.
        attempt.outbox.put((number, len(end.tasks)) if end.tasks else -number, end)
        if attempt.attempt_id not in books.dirty_attempts:
            books.owe_attempt(attempt)
