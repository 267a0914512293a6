"""What masters ask for, and what they are answered."""

from typing import Final

import numpy as np

from rm.applications import DEAD
from rm.containers import order_stop
from rm.ledger.asks import AskEntry
from rm.placing.feasible import ROUND_GRANTS_MAX
from rm.state.books import Books
from rm.state.lifecycle import (
    CONTAINER,
    AttemptState,
    ContainerEvent,
    RmContainerState,
    RmNodeState,
)
from rm.state.records import App, Attempt, Owed
from weft.model.dag import Floats
from weft.model.ids import (
    AttemptId,
    ContainerId,
    NodeId,
    app_of_attempt,
    app_of_container,
    granted_before,
)
from weft.model.resources import TOLERANCE, Vector
from weft.protocol.effects import Send
from weft.protocol.facts import Remark
from weft.protocol.messages import (
    Ask,
    AsksRefused,
    AttemptStopped,
    Container,
    ContainerEnd,
    ContainersAsked,
    ContainersGranted,
    Preemption,
    master_address,
)
from weft.protocol.record import changed

_RUNNING: Final = AttemptState.RUNNING
# The share and the maximum of a label that a queue may not use.
BARRED: Final = (0.0, 0.0)
_UNTOLD: Final = RmContainerState.ALLOCATED
_TOLD: Final = CONTAINER.next(RmContainerState.ALLOCATED, ContainerEvent.ACQUIRED)
# A task may have one container pending and another for a copy of it.
ASKED_PER_TASK, ASKED_MIN = 2, 1_000
# Only the master of an open job knows what it needs.
OPEN_JOB_ASKED_MAX = 100_000
# An application gives back so many containers of nodes that have yet to return after a restart.
GIVEN_BACK_MAX = 10_000
# An attempt has so many asks, as those of before stay.
ASKS_PER_TASK, ASKS_MIN = 8, 1_000
# An answer has containers, ends, addresses and racks of nodes, notices of preemption, and refusals.
Told = tuple[
    tuple[Container, ...],
    tuple[ContainerEnd, ...],
    tuple[tuple[NodeId, str], ...],
    tuple[tuple[NodeId, str], ...],
    tuple[Preemption, ...],
    tuple[AsksRefused, ...],
]
_NOTHING: Final[Told] = ((), (), (), (), (), ())
# Share and headroom are told every so many answers, although unchanged.
_ANSWERS_PER_REPEAT = 8


def asked(books: Books, event: ContainersAsked) -> None:
    """Handle a master's heartbeat (asks, releases, acknowledgements); it is always answered."""
    attempt = current(books, event.attempt_id)
    if attempt is None:
        return
    attempt.seen_s = books.now
    if attempt.state is not _RUNNING or event.epoch != books.epoch:
        # A late registration may also have overtaken the news of the restart: its master would
        # continue to believe that asks of before were heard.
        if attempt.state in (AttemptState.ALLOCATED, AttemptState.RUNNING):
            answer = ContainersGranted(attempt.attempt_id, 0, resync=True, epoch=books.epoch)
            books.out.append(Send(master_address(attempt.attempt_id), answer))
        return
    if event.acks:
        attempt.outbox.acknowledge(event.acks)
    if not books.settings.lossless:
        attempt.acks.append(event.request_id)
    if event.asks:
        _take(books, attempt, event)
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
    settings = books.settings
    if settings.prompt or (
        settings.buggify is not None and books.rarely("a master is answered late")
    ):
        books.owe_attempt(attempt)
    else:
        answer_attempt(books, attempt)


def _given_back_early(books: Books, app: App, number: ContainerId) -> None:
    """Note a container of an earlier life that a master gives back before its node returned."""
    if app_of_container(number) != app.app_id or not granted_before(number, books.epoch):
        return
    app.given_back[number] = None
    if len(app.given_back) > GIVEN_BACK_MAX:
        del app.given_back[next(iter(app.given_back))]


def answer_attempt(books: Books, attempt: Attempt) -> None:
    """Send a master what it is owed."""
    books.dirty_attempts.pop(attempt.attempt_id, None)
    number, items = attempt.outbox.take(books.now)
    app, lossless = attempt.app, books.settings.lossless
    share, headroom = books.share_of(app), books.headroom_of(app)
    new_share, new_headroom = share != attempt.share, headroom != attempt.headroom
    if lossless and not (items or new_share or new_headroom):
        return
    told = _by_kind(books, attempt, items) if items else _NOTHING
    containers, ended, addresses, racks, notices, refused = told
    # An answer may be lost, so what the last one said is not relied on.
    again = number % _ANSWERS_PER_REPEAT == 0
    answer = ContainersGranted(
        attempt.attempt_id,
        number,
        tuple(attempt.acks) if attempt.acks else (),
        containers,
        ended,
        share if new_share or again else (),
        headroom if new_headroom or again else (),
        addresses,
        racks=racks,
        preempt=notices,
        refused=refused,
    )
    if books.early and None in items:
        machines, speeds, labels = machines_of(books)
        answer = changed(answer, machines=machines, speeds=speeds, labels=labels)
    attempt.share, attempt.headroom = share, headroom
    attempt.acks.clear()
    books.out.append(Send(master_address(attempt.attempt_id), answer))


def _by_kind(books: Books, attempt: Attempt, items: list[Owed]) -> Told:
    """Return what a master is owed as its answer says it; it knows its containers from now on."""
    containers: list[Container] = []
    ended: list[ContainerEnd] = []
    notices: list[Preemption] = []
    refused: list[AsksRefused] = []
    addresses: dict[NodeId, str] = {}
    racks: dict[NodeId, str] = {}
    nodes, held = books.nodes, attempt.holdings.by_id
    several_racks = len(books.view.rack_names) > 1
    for item in items:
        if isinstance(item, Container):
            containers.append(item)
            name, run = item.node_id, held.get(item.container_id)
            node = nodes[name]
            addresses[name] = node.address
            if several_racks:
                racks[name] = node.rack
            if run is None or run.count != item.count or run.container_id != item.container_id:
                _told(attempt, item)
            elif run.state is _UNTOLD:
                run.state = _TOLD
        elif isinstance(item, ContainerEnd):
            ended.append(item)
        elif isinstance(item, AsksRefused):
            refused.append(item)
        elif item is not None:
            # MACHINES is None, and comes with the answer itself.
            notices.append(item)
    return (
        tuple(containers),
        tuple(ended),
        tuple(addresses.items()),
        tuple(racks.items()),
        tuple(notices),
        tuple(refused),
    )


def machines_of(
    books: Books,
) -> tuple[tuple[tuple[Vector, int], ...], tuple[float, ...], tuple[tuple[str, ...], ...]]:
    """Return the nodes in service as a master sees them.

    These are capacities with their counts, the speed of each where any has one of its own, and the
    labels of each where any has some.
    """
    kinds: dict[tuple[Vector, float, tuple[str, ...]], int] = {}
    if not books.unlike:
        for (capacity, mask), count in books.classes.items():
            kind = (capacity, 1.0, _labels(books, mask))
            kinds[kind] = kinds.get(kind, 0) + count
    else:
        for node in books.nodes.values():
            if node.state is RmNodeState.RUNNING:
                kind = (node.capacity, node.speed, tuple(sorted(set(node.labels))))
                kinds[kind] = kinds.get(kind, 0) + 1
    ordered = sorted(kinds.items())
    machines = tuple([(capacity, count) for (capacity, _, _), count in ordered])
    speeds = tuple([speed for (_, speed, _), _ in ordered]) if books.unlike else ()
    labels = tuple([names for (_, _, names), _ in ordered])
    return machines, speeds, labels if any(labels) else ()


def _labels(books: Books, mask: int) -> tuple[str, ...]:
    """Return the names of a node's labels, by their bits."""
    return tuple(sorted([name for name, bit in books.labels.items() if bit & mask]))


def _told(attempt: Attempt, item: Container) -> None:
    """Mark each container of a run as known to its master, as far as it is held."""
    for number in range(item.container_id, item.container_id + item.count):
        holding = attempt.holdings.get(number)
        if holding is not None and holding.state is _UNTOLD:
            holding.state = _TOLD


def current(books: Books, number: AttemptId) -> Attempt | None:
    """Return the attempt if it is its application's current one; else have it stopped."""
    app = books.apps.get(app_of_attempt(number))
    attempt = None if app is None else app.attempt
    if attempt is not None and attempt.attempt_id == number:
        if attempt.state is _RUNNING:
            return attempt
        if attempt.state is AttemptState.FINISHING:
            return None
        if attempt.state not in DEAD:
            return attempt
    elif attempt is not None and attempt.attempt_id < number:
        # This cannot be: attempts are numbered here.
        return None
    why = "unknown application" if app is None else "this attempt is over"
    if attempt is not None and attempt.attempt_id == number and attempt.diagnostics:
        why = attempt.diagnostics
    books.out.append(Send(master_address(number), AttemptStopped(number, why)))
    return None


def _take(books: Books, attempt: Attempt, event: ContainersAsked) -> None:
    """Take a request's asks; none where an open master's has one that can never be granted.

    So YARN fails the whole call (`RMServerUtils.normalizeAndValidateRequests`). The jobs whose
    masters are Weft's own were checked when they were submitted, and only such an ask is dropped.
    """
    never = [_never_granted(books, attempt, ask) for ask in event.asks]
    reason = next(filter(None, never), "")
    if reason and attempt.app.job.master is not None:
        asks = tuple([ask.ask_id for ask in event.asks])
        refusal = AsksRefused(event.request_id, asks, reason)
        attempt.outbox.put((event.request_id, "refused"), refusal)
        _warn(books, attempt, f"refused all {len(asks)} asks of a call: {reason}")
        return
    for ask, why in zip(event.asks, never, strict=True):
        _ask(books, attempt, ask, event.request_id, why)


def _warn(books: Books, attempt: Attempt, text: str) -> None:
    books.note(Remark("warning", text, (("attempt", str(attempt.attempt_id)),)))


def _ask(books: Books, attempt: Attempt, ask: Ask, request_id: int, never: str) -> None:
    """Bring an ask up to date; an older message than the last one about it is dropped.

    `never` is why it can never be granted, if it cannot.
    """
    if len(ask.demand) == len(books.types):
        fit = books.fitted(ask.demand)
        ask = ask if fit == ask.demand else changed(ask, demand=fit)
    entry = attempt.entries.get(ask.ask_id)
    problem = never or _problem_of(books, attempt, ask, entry)
    if problem:
        _warn(books, attempt, f"refused ask {ask.ask_id}: {problem}")
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


def _never_granted(books: Books, attempt: Attempt, ask: Ask) -> str:
    """Return why its queue never has what an ask wants beyond what it got; empty: it may."""
    if len(ask.demand) != len(books.types):
        return f"{len(ask.demand)} resources, not {len(books.types)}"
    entry = attempt.entries.get(ask.ask_id)
    if ask.total <= (0 if entry is None else entry.granted):
        return ""
    tree, queue = books.queues, attempt.app.queue
    if tree.specs[queue][1].labels.get(ask.label) == BARRED:
        return f"{tree.paths[queue]} has no access to nodes of the label {ask.label!r}"
    for name, most in tree.max_allocation[queue].items():
        amount = ask.demand[books.types.names.index(name)] if name in books.types.names else 0.0
        if amount > most * (1 + TOLERANCE):
            return f"more {name} than the {most:g} of a container in {tree.paths[queue]}"
    if attempt.app.job.master is not None and not books.nodes_return:
        for name, amount, most in zip(books.types.names, ask.demand, books.largest(), strict=True):
            if amount > most * (1 + TOLERANCE):
                return f"more {name} than the {most:g} that the largest node has"
    return ""


def _problem_of(books: Books, attempt: Attempt, ask: Ask, entry: AskEntry | None) -> str:
    """Return what is wrong with an ask, seen with its job; empty: nothing.

    What is pending is at most a container for each task of the job and one more copy of each.
    """
    job = attempt.app.job
    stages = len(attempt.app.running)
    if ask.stage >= stages:
        return f"stage {ask.stage} of a job with {stages}"
    granted, before = (0, 0) if entry is None else (entry.granted, entry.pending)
    pending = int(books.ledger.apps.pending[attempt.app.slot]) - before
    pending += max(0, ask.total - granted)
    if pending > ASKED_MIN and pending > max(
        ASKED_PER_TASK * job.task_count, OPEN_JOB_ASKED_MAX * (job.master is not None)
    ):
        return f"{pending} containers pending for a job of {job.task_count} tasks"
    if ask.gang and ask.total - granted > ROUND_GRANTS_MAX:
        return f"a gang of more than {ROUND_GRANTS_MAX}"
    asks = len(attempt.entries)
    if entry is None and asks >= ASKS_MIN and asks >= ASKS_PER_TASK * job.task_count + ASKS_MIN:
        return f"{asks} asks for a job of {job.task_count} tasks"
    return ""


def _at_least(books: Books, demand: Vector) -> Floats:
    """Return a demand as an array, raised to what a container is booked with."""
    return np.array(books.raised(demand), dtype=np.float64)


def _racks(books: Books, ask: Ask) -> tuple[str, ...]:
    """Return the preferred racks: those named, and those of the preferred nodes."""
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
            books.matcher.banned(books.view, node.slot, slot, on)
    attempt.blacklist = names
    books.rows.gangs_moved(slot)
    books.ledger.freed += 1
    books.matching.changed()
