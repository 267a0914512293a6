"""What application masters say: registration, asks, the end of their job."""

from typing import Final

import numpy as np

from rm.applications import (
    DEAD,
    fail_attempt,
    finish_attempt,
    hands_over,
    move_app,
    move_attempt,
    stop_earlier,
    withdraw,
)
from rm.containers import order_stop, relay_lost
from rm.ledger.asks import AskEntry
from rm.state.books import Books
from rm.state.lifecycle import (
    CONTAINER,
    AppEvent,
    AttemptEvent,
    AttemptState,
    ContainerEvent,
    NodeState,
)
from rm.state.lifecycle import ContainerState as Container_
from rm.state.records import App, Attempt
from weft.dag import Floats
from weft.effects import Send
from weft.facts import Remark
from weft.ids import (
    AttemptId,
    ContainerId,
    NodeId,
    app_of_attempt,
    app_of_container,
    attempt_of_container,
    granted_before,
)
from weft.job import Job
from weft.messages import (
    Ask,
    AttemptAccepted,
    AttemptFinished,
    AttemptRegistered,
    AttemptStopped,
    AttemptUnregistered,
    Container,
    ContainerEnd,
    ContainersAsked,
    ContainersGranted,
    FinishedTask,
    Preemption,
    master_address,
)
from weft.resources import Vector

_RUNNING: Final = AttemptState.RUNNING
_UNTOLD: Final = Container_.ALLOCATED
_TOLD: Final = CONTAINER.next(Container_.ALLOCATED, ContainerEvent.ACQUIRED)
ASKED_PER_TASK, ASKED_MIN = 2, 1_000  # containers pending: a task, and another copy of it
OPEN_ASKED = 100_000  # of an open job, of which only its master knows what it needs
GIVEN_BACK_MAX = 10_000  # by an application, of nodes that have yet to return after a restart
ASKS_PER_TASK, ASKS_MIN = 8, 1_000  # asks of an attempt: those of before stay
_SAY_AGAIN = 8  # answers after which share and headroom are told although unchanged


def register(books: Books, event: AttemptRegistered) -> None:
    """A master is up (or says so again): tell it its job and what is already done.

    The answer may be lost and the message doubled, so every step may be taken twice:

    * in ALLOCATED it is let in, once nothing of an earlier attempt runs that it would not know of,
      and, after a restart of the manager, once the nodes had their time to say what runs there;
    * what it holds and the books do not have is waited for (`Books.missing`), but only for one that
      lived before the manager did: nobody else can hold what this life has not granted;
    * a `fresh` one remembers nothing of what it asked: that is withdrawn, and its requests are
      numbered from 1 again;
    * the answer is the same for all, and made anew: share, machines and finished tasks are today's.
    """
    attempt = _live(books, event.attempt_id)
    if attempt is None or books.rarely("a registration of a master is not heard"):
        return
    app = attempt.app
    attempt.seen_s = books.now
    attempt.takes_over = event.takes_over
    if attempt.state is AttemptState.SCHEDULED:
        return  # cannot be: it was never launched
    if attempt.state is AttemptState.ALLOCATED:
        if not (event.takes_over and hands_over(books, app)):
            stop_earlier(books, app)
        if _old_ones_linger(books, attempt) or _nodes_may_come(books, attempt, event):
            return  # it repeats itself until it is accepted
        _hand_over(attempt)
        attempt.address = event.address
        app.tracking_url = event.tracking_url
        move_attempt(books, attempt, AttemptEvent.REGISTERED)
        move_app(books, app, AppEvent.ATTEMPT_REGISTERED)
        app.started_s = app.started_s or books.now
    if attempt.recovered:  # whenever it says so: a late copy of before may have come first
        _wait_for_held(books, attempt, event.held)
    elif event.fresh and attempt.state is _RUNNING:
        withdraw(books, attempt)
        attempt.request_id = 0
    attempt.share = books.share_of(app)
    finished = tuple(
        FinishedTask(stage, task, run_s)
        for stage, done in enumerate(app.finished)
        for task, run_s in sorted(done.items())
    )
    machines, speeds = _machines(books)
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
    )
    books.out.append(Send(master_address(attempt.attempt_id), answer))


def _wait_for_held(
    books: Books, attempt: Attempt, held: tuple[tuple[ContainerId, NodeId], ...]
) -> None:
    """What a master of before the manager's restart says to hold, by node: its nodes will tell."""
    app = attempt.app
    for number, node_id in held:
        if app_of_container(number) != app.app_id:
            continue  # another's: it would be stopped where it is not found in time
        holding = books.holdings.peek(number)
        if holding is not None and holding.attempt is None:
            relay_lost(books, attempt, number)  # its node came first, and is told to stop it
        elif holding is None:
            missing = books.missing.setdefault(node_id, {})
            missing.setdefault(number, (attempt, books.now))
            app.held_on.setdefault(number, node_id)


def _machines(books: Books) -> tuple[tuple[tuple[Vector, int], ...], tuple[float, ...]]:
    """The nodes in service as a master's planner sees them: capacities with their counts, and the
    speed of each where any has one of its own.
    """
    classes: dict[Vector, int] = {}
    if not books.unlike:
        for (capacity, _), count in sorted(books.classes.items()):
            classes[capacity] = classes.get(capacity, 0) + count
        return tuple(classes.items()), ()
    paced: dict[tuple[Vector, float], int] = {}
    for node in books.nodes.values():
        if node.state is NodeState.RUNNING:
            key = (node.capacity, node.speed)
            paced[key] = paced.get(key, 0) + 1
    kinds = sorted(paced.items())
    machines = tuple([(capacity, count) for (capacity, _), count in kinds])
    return machines, tuple([speed for (_, speed), _ in kinds])


def asked(books: Books, event: ContainersAsked) -> None:
    """A master's heartbeat: asks, releases, acknowledgements; it is always answered."""
    attempt = _live(books, event.attempt_id)
    if attempt is None:
        return
    attempt.seen_s = books.now
    if attempt.state is not _RUNNING or event.epoch != books.epoch:
        # also where a late registration overtook the news of the restart: its master would go on
        # believing that asks of before were heard
        if attempt.state in (AttemptState.ALLOCATED, AttemptState.RUNNING):
            answer = ContainersGranted(attempt.attempt_id, 0, resync=True, epoch=books.epoch)
            books.out.append(Send(master_address(attempt.attempt_id), answer))
        return
    attempt.outbox.acknowledge(event.acks)
    if not books.settings.lossless:
        attempt.acks.append(event.request_id)
    for ask in event.asks:
        _ask(books, attempt, ask, event.request_id)
    for number in event.releases:
        holding = attempt.holdings.get(number)
        if holding is None:
            _given_back_early(books, attempt.app, number)
        elif holding is not attempt.master:
            order_stop(books, holding)
    if event.request_id > attempt.request_id:
        attempt.request_id = event.request_id
        app = attempt.app
        app.progress = event.progress
        books.ledger.set_work_left(app.slot, event.remaining_work, event.remaining_path_s)
        if event.blacklist is not None:
            _blacklist(books, attempt, event.blacklist)
    books.owe_attempt(attempt)
    if not books.settings.prompt and not books.rarely("a master is answered late"):
        answer_attempt(books, attempt)


def _given_back_early(books: Books, app: App, number: ContainerId) -> None:
    """A master gives back what an earlier life granted; its node may not have returned yet."""
    if app_of_container(number) != app.app_id or not granted_before(number, books.epoch):
        return
    app.given_back[number] = None
    if len(app.given_back) > GIVEN_BACK_MAX:
        del app.given_back[next(iter(app.given_back))]


def finished(books: Books, event: AttemptFinished) -> None:
    """A master is done; told again, it is answered again."""
    app = books.apps.get(app_of_attempt(event.attempt_id))
    attempt = None if app is None else app.attempt
    if attempt is not None and attempt.attempt_id == event.attempt_id:
        if attempt.state is AttemptState.ALLOCATED:  # the manager restarted meanwhile
            move_attempt(books, attempt, AttemptEvent.REGISTERED)
            move_app(books, attempt.app, AppEvent.ATTEMPT_REGISTERED)
            attempt.app.started_s = attempt.app.started_s or books.now
        if attempt.state is AttemptState.RUNNING:
            attempt.seen_s = books.now
            attempt.app.tracking_url = event.tracking_url or attempt.app.tracking_url
            status = event.status or ("SUCCEEDED" if event.succeeded else "FAILED")
            finish_attempt(books, attempt, status, event.diagnostics)
    answer = AttemptUnregistered(event.attempt_id)
    books.out.append(Send(master_address(event.attempt_id), answer))


def answer_attempt(books: Books, attempt: Attempt) -> None:
    """Send a master what it is owed."""
    books.dirty_attempts.pop(attempt.attempt_id, None)
    number, items = attempt.outbox.take(books.now)
    containers: list[Container] = []
    ended: list[ContainerEnd] = []
    notices: list[Preemption] = []
    addresses: dict[NodeId, str] = {}
    racks: dict[NodeId, str] = {}
    several_racks = len(books.view.rack_names) > 1
    for item in items:
        if isinstance(item, Container):
            containers.append(item)
            node = books.nodes[item.node_id]
            addresses[item.node_id] = node.address
            if several_racks:
                racks[item.node_id] = node.rack
            _told(attempt, item)
        elif isinstance(item, Preemption):
            notices.append(item)
        else:
            ended.append(item)
    share, headroom = books.share_of(attempt.app), books.headroom_of(attempt.app)
    same = share == attempt.share and headroom == attempt.headroom
    if same and not items and books.settings.lossless:
        return
    again = number % _SAY_AGAIN == 0  # an answer may be lost, so do not rely on the last one
    answer = ContainersGranted(
        attempt.attempt_id,
        number,
        tuple(attempt.acks),
        tuple(containers),
        tuple(ended),
        () if share == attempt.share and not again else share,
        () if headroom == attempt.headroom and not again else headroom,
        tuple(addresses.items()),
        racks=tuple(racks.items()),
        preempt=tuple(notices),
    )
    attempt.share, attempt.headroom = share, headroom
    attempt.acks.clear()
    books.out.append(Send(master_address(attempt.attempt_id), answer))


def _told(attempt: Attempt, item: Container) -> None:
    """A master hears of a container, or of a run of them."""
    run = attempt.holdings.peek(item.container_id)
    if run is not None and (run.container_id, run.count) == (item.container_id, item.count):
        if run.state is _UNTOLD:
            run.state = _TOLD
        return
    for number in range(item.container_id, item.container_id + item.count):
        holding = attempt.holdings.get(number)
        if holding is not None and holding.state is _UNTOLD:
            holding.state = _TOLD


def expire(books: Books) -> None:
    """Masters that were silent for too long have failed."""
    limit = books.settings.master_expiry_s
    if books.rarely("masters expire early"):
        limit /= 2
    for app in list(books.app_at):
        attempt = None if app is None else app.attempt
        if attempt is None:
            continue
        if attempt.state is AttemptState.SCHEDULED and app is not None:
            if books.now - attempt.created_s >= books.settings.reserve_after_s:
                stop_earlier(books, app)  # what goes on may be what its next master lacks room for
            continue
        if books.now - attempt.seen_s < limit:
            continue
        if attempt.state in (AttemptState.ALLOCATED, AttemptState.RUNNING):
            fail_attempt(books, attempt, f"its master was silent for {limit:g} s")
        elif attempt.state is AttemptState.FINISHING and attempt.master is not None:
            order_stop_if_held(books, attempt)


def forgive(books: Books, pause_s: float) -> None:
    """The manager was paused: that time counts for nobody's silence."""
    for app in books.app_at:
        if app is not None and app.attempt is not None:
            app.attempt.seen_s = min(app.attempt.seen_s + pause_s, books.now)


def order_stop_if_held(books: Books, attempt: Attempt) -> None:
    """Stop a master's own container if it is still there."""
    # its node may have told of it once more, so what is booked now counts
    held = None if attempt.master is None else books.holdings.get(attempt.master.container_id)
    if held is not None:
        order_stop(books, held)


def _live(books: Books, number: AttemptId) -> Attempt | None:
    """The attempt, if it is its application's current one and not over; else it is told to stop."""
    app = books.apps.get(app_of_attempt(number))
    attempt = None if app is None else app.attempt
    if attempt is not None and attempt.attempt_id == number:
        if attempt.state is AttemptState.FINISHING:
            return None
        if attempt.state not in DEAD:
            return attempt
    elif attempt is not None and attempt.attempt_id < number:
        return None  # cannot be: attempts are numbered here
    why = "unknown application" if app is None else "this attempt is over"
    if attempt is not None and attempt.attempt_id == number and attempt.diagnostics:
        why = attempt.diagnostics
    books.out.append(Send(master_address(number), AttemptStopped(number, why)))
    return None


def _old_ones_linger(books: Books, attempt: Attempt) -> bool:
    """Whether containers that are being stopped may still finish tasks, so that waiting pays."""
    if books.now - attempt.created_s >= books.settings.takeover_wait_s:
        return False
    earlier = (one for one in attempt.app.attempts if one is not attempt)
    return any(h.state is Container_.STOPPING for one in earlier for h in one.holdings.once())


def _nodes_may_come(books: Books, attempt: Attempt, event: AttemptRegistered) -> bool:
    """Whether nodes may still be on their way back with what earlier attempts ran or finished.

    A manager that started anew knows no container of before, until its node tells (YARN waits as
    well: yarn.resourcemanager.work-preserving-recovery.scheduling-wait-ms).
    """
    wait_s = min(books.settings.return_wait_s, books.settings.node_expiry_s)
    if books.epoch == 0 or books.now - books.started_s >= wait_s:
        return False
    if not event.takes_over or not hands_over(books, attempt.app) or event.held:
        return False
    before = (one for one in attempt.app.attempts if one is not attempt)
    return any(one.created_s <= books.started_s for one in before)


def _hand_over(attempt: Attempt) -> None:
    """What earlier attempts left running is this one's from now on."""
    for one in attempt.app.attempts:
        if one is attempt:
            continue
        for number, holding in list(one.holdings.items()):
            if holding.state is not Container_.STOPPING:
                del one.holdings[number]
                attempt.holdings[number] = holding
                holding.attempt = attempt


def _handed_over(attempt: Attempt) -> tuple[Container, ...]:
    """The containers that an attempt has of earlier ones."""
    return tuple(
        Container(number, holding.node.node_id, 0, holding.node.boot)
        for number, holding in attempt.holdings.items()
        if attempt_of_container(number) != attempt.attempt_id
        and holding.state is not Container_.STOPPING
    )


def _ask(books: Books, attempt: Attempt, ask: Ask, request_id: int) -> None:
    """Bring an ask up to date; an older message than the last one about it is dropped."""
    entry = attempt.entries.get(ask.ask_id)
    problem = _problem_of(books, attempt, ask, entry)
    if problem:
        text = f"refused ask {ask.ask_id}: {problem}"
        books.note(Remark("warning", text, (("attempt", str(attempt.attempt_id)),)))
        return
    if entry is None:
        demand = _at_least(books, ask.demand)
        entry = AskEntry(ask, attempt.app.slot, demand, books.next_serial)
        books.next_serial += 1
        attempt.entries[ask.ask_id] = entry
        before = 0
    else:
        if request_id < entry.request_id or ask == entry.ask:
            return
        before = entry.pending
        if ask.demand != entry.ask.demand:
            entry.demand = _at_least(books, ask.demand)
        entry.ask = ask
    entry.request_id = request_id
    label = books.label_bit(ask.label)
    if entry.pending and entry.row >= 0:
        books.rows.write(entry, label, _racks(books, ask))
    elif entry.pending:
        books.rows.open(entry, label, _racks(books, ask), books.now)
    elif entry.row >= 0:
        books.rows.close(entry)
    books.ledger.add_pending(entry.app, entry.pending - before)
    books.matching.changed()


def _problem_of(books: Books, attempt: Attempt, ask: Ask, entry: AskEntry | None) -> str:
    """What is wrong with an ask, seen with its job; empty: nothing.

    What is pending is at most a container for each task of the job and one more copy of each.
    """
    if len(ask.demand) != len(books.types):
        return f"{len(ask.demand)} resources, not {len(books.types)}"
    job = attempt.app.job
    stages = len(attempt.app.running)
    if ask.stage >= stages:
        return f"stage {ask.stage} of a job with {stages}"
    granted, before = (0, 0) if entry is None else (entry.granted, entry.pending)
    pending = int(books.ledger.apps.pending[attempt.app.slot]) - before
    pending += max(0, ask.total - granted)
    if pending > max(
        ASKED_MIN, ASKED_PER_TASK * job.task_count, OPEN_ASKED * (job.master is not None)
    ):
        return f"{pending} containers pending for a job of {job.task_count} tasks"
    if ask.gang and ask.total - granted > books.settings.round_grants_max:
        return f"a gang of more than {books.settings.round_grants_max}"
    if entry is None and len(attempt.entries) >= ASKS_PER_TASK * job.task_count + ASKS_MIN:
        return f"{len(attempt.entries)} asks for a job of {job.task_count} tasks"
    return ""


def _at_least(books: Books, demand: Vector) -> Floats:
    """A demand in the books: one of nothing takes the least that a container may have."""
    return np.array(demand if any(demand) else books.least, dtype=np.float64)


def _racks_of_preferred(
    books: Books, job: Job, held: tuple[Container, ...]
) -> tuple[tuple[NodeId, str], ...]:
    """The racks of all nodes that a job's stages prefer, or that it has containers on.

    Nothing while there is one rack.
    """
    if len(books.view.rack_names) < 2:
        return ()
    wishes = [s.prefer for s in job.stages]
    wishes += [o.prefer for s in job.stages for o in s.overrides if o.prefer is not None]
    named = dict.fromkeys(name for wish in wishes for name in wish.nodes)
    named.update(dict.fromkeys(one.node_id for one in held))
    return tuple((name, books.nodes[name].rack) for name in named if name in books.nodes)


def _racks(books: Books, ask: Ask) -> tuple[str, ...]:
    """Preferred racks: those named, and those of the preferred nodes."""
    if not ask.nodes:
        return ask.racks
    near = [books.nodes[name].rack for name in ask.nodes if name in books.nodes]
    return tuple(dict.fromkeys((*ask.racks, *near)))


def _blacklist(books: Books, attempt: Attempt, names: tuple[NodeId, ...]) -> None:
    slot = attempt.app.slot
    for name, on in [(n, False) for n in attempt.blacklist] + [(n, True) for n in names]:
        node = books.nodes.get(name)
        if node is not None:
            books.view.ban(node.slot, slot, on)
    attempt.blacklist = names
    books.matching.changed()
