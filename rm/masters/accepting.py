"""Masters that come: a new one, one that says so again, and one of before a restart."""

from typing import Final

from rm.applications import begin, hands_over, move_app, move_attempt, stop_earlier, withdraw
from rm.containers import relay_lost
from rm.masters.asking import current, machines_of
from rm.placing.feasible import nodes_may_come
from rm.state.books import Books
from rm.state.lifecycle import AppEvent, AttemptEvent, AttemptState, RmContainerState
from rm.state.records import Attempt
from weft.model.ids import ContainerId, NodeId, app_of_container, attempt_of_container
from weft.model.job import Job
from weft.protocol.effects import Send
from weft.protocol.messages import (
    AttemptAccepted,
    AttemptRegistered,
    Container,
    FinishedTask,
    master_address,
)

_RUNNING: Final = AttemptState.RUNNING
# A new attempt waits so long for the containers of the old one to end, s.
TAKEOVER_WAIT_S: Final = 3.0


def register(books: Books, event: AttemptRegistered) -> None:
    """Register a master that is up (or repeats itself): tell it its job and what is already done.

    The answer may be lost and the message doubled, so every step may be taken twice:

    * in ALLOCATED it is let in, once nothing of an earlier attempt runs that it would not know of,
      and, after a restart of the manager, once the nodes had their time to say what runs there,
      and one is in service. A master goes by the machines that it is told of here; where others
      may come back it is told of them with later answers (`rm.leaving.count_class`);
    * what it holds and the books do not have is waited for (`Books.unseen_containers`), but only
      for one that lived before the manager did: nobody else holds what this life has not granted;
    * a `fresh` one remembers nothing of what it asked: that is withdrawn, and its requests are
      numbered from 1 again;
    * the answer is the same for all, and made anew: share, machines and finished tasks are today's.
    """
    attempt = current(books, event.attempt_id)
    if attempt is None or books.rarely("a registration of a master is refused"):
        return
    app = attempt.app
    attempt.seen_s = books.now
    attempt.takes_over = event.takes_over
    if attempt.state is AttemptState.SCHEDULED:
        # This cannot be: it was never launched.
        return
    if attempt.state is AttemptState.ALLOCATED:
        if not (event.takes_over and hands_over(books, app)):
            stop_earlier(books, app)
        if _old_ones_linger(books, attempt) or _nodes_may_come(books, attempt, event):
            # The master repeats itself until it is accepted.
            return
        if app.job.master is None and not (event.held or machines_of(books)[0]):
            # The master can neither plan nor size what it holds by machines that are yet to come.
            return
        _hand_over(attempt)
        attempt.address = event.address
        app.tracking_url = event.tracking_url
        move_attempt(books, attempt, AttemptEvent.REGISTERED)
        move_app(books, app, AppEvent.ATTEMPT_REGISTERED)
        begin(books, app)
    if attempt.recovered:
        # Whenever it registers it says what it holds: a late copy of before may have come first.
        _wait_for_held(books, attempt, event.held)
    elif event.fresh and attempt.state is _RUNNING:
        withdraw(books, attempt)
        attempt.request_id = 0
    if books.nodes_return and app.job.master is None:
        books.early[attempt.attempt_id] = attempt
    attempt.share = books.share_of(app)
    finished = tuple(
        FinishedTask(stage, task, run_s)
        for stage, done in enumerate(app.finished)
        for task, run_s in sorted(done.items())
    )
    machines, speeds, labels = machines_of(books)
    held = _handed_over(attempt)
    answer = AttemptAccepted(
        attempt_id=attempt.attempt_id,
        job=app.job,
        types=books.types,
        machines=machines,
        share=attempt.share,
        finished=finished,
        heartbeat_s=books.settings.master_heartbeat_s,
        prompt=books.settings.prompt,
        cluster_ts=books.cluster_ts,
        seed=attempt.seed,
        epoch=books.epoch,
        racks=_racks_of_preferred(books, app.job, held),
        held=held,
        addresses=tuple({one.node_id: books.nodes[one.node_id].address for one in held}.items()),
        speeds=speeds,
        labels=labels,
    )
    books.out.append(Send(master_address(attempt.attempt_id), answer))


def _wait_for_held(
    books: Books, attempt: Attempt, held: tuple[tuple[ContainerId, NodeId], ...]
) -> None:
    """Await what a master of before the manager's restart holds, until its nodes report it."""
    app = attempt.app
    for number, node_id in held:
        if app_of_container(number) != app.app_id:
            # It is another application's, and would be stopped where it is not found in time.
            continue
        holding = books.holdings.peek(number)
        if holding is not None and holding.attempt is None:
            # Its node came first, and is told to stop it.
            relay_lost(books, attempt, number)
        elif holding is None:
            missing = books.unseen_containers.setdefault(node_id, {})
            missing.setdefault(number, (attempt, books.now))
            app.held_on.setdefault(number, node_id)


def _old_ones_linger(books: Books, attempt: Attempt) -> bool:
    """Return whether containers that are being stopped may still finish tasks: waiting pays."""
    if books.now - attempt.created_s >= TAKEOVER_WAIT_S:
        return False
    earlier = (one for one in attempt.app.attempts if one is not attempt)
    return any(h.state is RmContainerState.STOPPING for one in earlier for h in one.holdings.once())


def _nodes_may_come(books: Books, attempt: Attempt, event: AttemptRegistered) -> bool:
    """Return whether nodes may still come back with what earlier attempts ran or finished.

    A manager that started anew knows no container of before, until its node tells (YARN waits as
    well: yarn.resourcemanager.work-preserving-recovery.scheduling-wait-ms).
    """
    if not nodes_may_come(books):
        return False
    if not event.takes_over or not hands_over(books, attempt.app) or event.held:
        return False
    before = (one for one in attempt.app.attempts if one is not attempt)
    return any(one.created_s <= books.started_s for one in before)


def _hand_over(attempt: Attempt) -> None:
    """Hand over to an attempt what earlier attempts left running."""
    for one in attempt.app.attempts:
        if one is attempt:
            continue
        for number, holding in list(one.holdings.items()):
            if holding.state is not RmContainerState.STOPPING:
                del one.holdings[number]
                attempt.holdings[number] = holding
                holding.attempt = attempt


def _handed_over(attempt: Attempt) -> tuple[Container, ...]:
    """Return the containers that an attempt has from earlier ones."""
    return tuple(
        Container(number, holding.node.node_id, 0, holding.node.boot)
        for number, holding in attempt.holdings.items()
        if attempt_of_container(number) != attempt.attempt_id
        and holding.state is not RmContainerState.STOPPING
    )


def _racks_of_preferred(
    books: Books, job: Job, held: tuple[Container, ...]
) -> tuple[tuple[NodeId, str], ...]:
    """Return the racks of all nodes that a job's stages prefer, or that it has containers on.

    Nothing while there is one rack.
    """
    if len(books.view.rack_names) < 2:
        return ()
    wishes = [s.prefer for s in job.stages]
    wishes += [o.prefer for s in job.stages for o in s.overrides if o.prefer is not None]
    named = dict.fromkeys(name for wish in wishes for name in wish.nodes)
    named.update(dict.fromkeys(one.node_id for one in held))
    return tuple((name, books.nodes[name].rack) for name in named if name in books.nodes)
