"""Matching: snapshot, filter, score, place (the matcher), grant (here)."""

import enum
from collections.abc import Iterator, Set
from typing import Final

import numpy as np

from rm.applications import move_attempt, persist_attempt
from rm.containers import (
    ALLOCATED,
    count_master,
    hold,
    next_ids,
)
from rm.ledger.asks import AskEntry
from rm.ledger.columns import Bools
from rm.ledger.ledger_kernels import with_room
from rm.match.candidates import limits_of_masters, shares_of
from rm.match.filter_kernels import fits
from rm.match.limit_kernels import ADMITTED, USER, Limits, held_back
from rm.match.protocol import Placement, every_term
from rm.placing.feasible import ROUND_GRANTS_MAX, usable
from rm.placing.gang_room import spoils
from rm.placing.hosting import full_of_masters, hosts, masters_may_grow, nodes_alike
from rm.state.books import Books
from rm.state.lifecycle import CONTAINER, AttemptEvent, ContainerEvent, RmNodeState
from rm.state.records import AGAIN, Attempt, Holding, Node
from rm.state.waiting import Group
from weft.model.dag import Floats
from weft.model.errors import InvariantError
from weft.model.resources import TOLERANCE, Vector
from weft.policies.compiled import steady
from weft.protocol.effects import Note
from weft.protocol.facts import Placed, PlacedRun
from weft.protocol.messages import Ask, AskType, Container, MasterLaunch
from weft.protocol.record import changed

_RUNNING: Final = RmNodeState.RUNNING
_with_room = steady(with_room)
# A match could come to one of these.
NOTHING_NEW, NO_ROOM, MAY_GRANT = range(3)
# A smaller bound on a node's containers divides slots, not the manager's time.
_CROWD_BOUND_MIN: Final = 100
# A host's heartbeat may come too early by this part of the interval.
_HEARTBEAT_JITTER_FRACTION: Final = 0.1
# A master avoids at most this part of the nodes for past failures.
MASTER_AVOIDS_MAX = 0.8


def match_node(books: Books, node: Node, granted: int = 0) -> int:
    """Grant what can be granted on one node now; `granted` containers were in the same pass.

    Return how many were granted in the pass by then.
    """
    if node.state is not _RUNNING:
        return granted
    waits = bool(books.waiting) and not books.matcher.reserves
    gave_way = waits and _place_masters(books, node)
    granted = _match_asks(books, node, granted)
    if gave_way:
        _place_masters(books, node, first=False)
    return granted


def _match_asks(books: Books, node: Node, granted: int) -> int:
    expected = outlook(books, node)
    if expected != MAY_GRANT:
        if expected == NO_ROOM:
            node.settled_at = books.matching.version
        return granted
    slot, settings, matcher = node.slot, books.settings, books.matcher
    kept = books.ledger.nodes.reserved.item(slot)
    crowd: list[int] = []
    # A policy with books of its own sees no hidden rows.
    many = 2 * books.ledger.by_queue.containers.item(0) >= settings.node_containers_max
    if many and not matcher.reserves:
        crowd = _crowd(books)
    before = books.rows.hide(crowd) if crowd else None
    match, whole, version = matcher.match(books.view, slot, books.now), True, books.matching.version
    if before is not None:
        books.rows.show(crowd, before)
    # Whatever fits, a round must end soon.
    may_get = settings.node_containers_max - len(node.holdings.by_id)
    may_get = min(may_get, ROUND_GRANTS_MAX - granted)
    for placement in match.placements:
        copies = placement.copies
        if copies > may_get:
            whole, copies = False, may_get
        if copies <= 0:
            break
        may_get -= copies
        if placement.row < 0:
            _start_chosen(books, node, -1 - placement.row)
            continue
        grant(books, node, placement if whole else changed(placement, copies=copies))
        granted += copies
    if books.hears_matches:
        matcher.matched(books.view, slot, match, books.now)
    if books.rows.gangs and match.placements:
        books.matching.gangs_at = -1
    if match.declined:
        _missed(books, node, match.declined)
    node.settled_at = version if match.settled and whole else AGAIN
    if not whole and len(node.holdings.by_id) < settings.node_containers_max:
        # The rest comes with the next round.
        books.matching.cut = True
    if kept and books.ledger.nodes.reserved.item(slot) != kept:
        # What is left is for others.
        return _match_asks(books, node, granted)
    return granted


def _crowd(books: Books) -> list[int]:
    """Return the rows of applications that hold more than their part of what nodes may hold.

    That is counted in containers: each costs the manager time, however little it needs. The nodes'
    bound is divided among the applications that ask; where one alone asks, all of it is its own. A
    bound of a few containers a node is a number of slots, which the policy divides.
    """
    bound, ledger = books.settings.node_containers_max, books.ledger
    if bound < _CROWD_BOUND_MIN:
        return []
    may_hold, queues = bound * sum(books.classes.values()), ledger.by_queue
    if queues.containers.item(0) * queues.apps.item(0) <= may_hold:
        # All of them together hold no more than the part of one.
        return []
    apps, n, rows = ledger.apps, ledger.app_slots, books.rows
    asking = apps.active[:n] & (apps.pending[:n] > 0)
    count = int(np.count_nonzero(asking))
    if count < 2:
        return []
    part = may_hold / count
    over = asking & (apps.containers[:n] > part)
    if not over.any():
        return []
    at = rows.app[: rows.count]
    found: list[int] = np.flatnonzero((rows.pending[: rows.count] > 0) & over[at]).tolist()
    return found


def _missed(books: Books, node: Node, declined: tuple[int, ...]) -> None:
    """Count declined opportunities of asks that wait for a nearer node.

    That is done once a heartbeat interval and node. Else delay scheduling, which counts
    opportunities where it means time, would be over at once in prompt pace, where a node may be
    matched at any event.
    """
    if books.now - node.missed_s < books.settings.heartbeat_s * (1 - _HEARTBEAT_JITTER_FRACTION):
        return
    node.missed_s = books.now
    books.rows.let_go_by(declined)


def match_all(books: Books) -> None:
    """Match all nodes with room in one pass, which each time begins at another node."""
    ledger = books.ledger
    n = ledger.node_count
    if n == 0 or not books.anything_waits:
        return
    floor = books.rows.floor()
    if books.waiting:
        floor = np.minimum(floor, books.least_master)
    nodes, cursor = ledger.nodes, books.matching.cursor
    books.matching.begin_pass()
    granted = 0
    for slot in slots_with_room(books, nodes.up, floor, cursor if cursor < n else 0):
        granted = match_node(books, books.node_at[slot], granted)
        if granted >= ROUND_GRANTS_MAX or not books.anything_waits:
            break
    books.matching.cursor = (cursor + 1) % n


def slots_with_room(books: Books, among: Bools, floor: Floats, start: int = 0) -> list[int]:
    """Return the slots of nodes `among` (slots,) that have room for a floor (d,), from one on.

    `among` is an array that nobody writes on, as the ledger's own are shown.
    """
    nodes, slots = books.ledger.nodes, np.empty(books.ledger.node_count, np.int64)
    count = _with_room.code(
        start, among, nodes.available, nodes.capacity, floor, books.slack, slots
    )
    found: list[int] = slots[:count].tolist()
    return found


def outlook(books: Books, node: Node) -> int:
    """Return what matching a node in service now could come to, masters apart.

    NOTHING_NEW: nothing is pending, or nothing changed since it was matched in vain; NO_ROOM: for
    the least that is pending; else MAY_GRANT.
    """
    rows = books.rows
    if books.matcher.reserves:
        return MAY_GRANT if books.matcher.wants(books.view, node.slot) else NOTHING_NEW
    if rows.live == 0 or node.settled_at == books.matching.version:
        return NOTHING_NEW
    if books.ledger.too_small(node.slot, rows.floor(), books.slack):
        return NO_ROOM
    return MAY_GRANT


def heartbeat_outlook(books: Books, node: Node, now: float) -> int:
    """Return what a heartbeat of a node could come to, as `outlook`; MAY_GRANT where unsure."""
    if books.settings.prompt:
        again = books.rows.live > 0 and node.settled_at == AGAIN
        return MAY_GRANT if again else NOTHING_NEW
    if (books.waiting and not books.matcher.reserves) or books.must_keep_nodes(now):
        return MAY_GRANT
    return outlook(books, node)


def grant(books: Books, node: Node, placement: Placement) -> None:
    """Book a placement, hold its containers as one run, and owe them to the master."""
    rows, now, count = books.rows, books.now, placement.copies
    entry = rows.entries[placement.row]
    if entry is None or not 0 < count <= entry.ask.total - entry.granted:
        raise InvariantError(f"matcher {books.matcher.name} placed {placement}: not pending")
    ask, app = entry.ask, books.app_at[entry.app]
    if app is None or app.attempt is None:
        raise InvariantError(f"row {placement.row} belongs to no application")
    attempt = app.attempt
    limit = 1.0 + books.slack if placement.overbooked else None
    scores = placement.scores
    if books.names_terms:
        # The grant itself changes them.
        scores = every_term(books.matcher, books.view, placement)
    books.ledger.grant(node.slot, entry.app, entry.demand, count, limit, now)
    queues = books.queues
    shared = queues.limited and queues.user_limit.item(app.queue) < 1.0
    if shared and not books.ledger.user_waits(entry.app):
        books.matching.eased()
    first = next_ids(books, attempt, count)
    demand, node_id = ask.demand, node.node_id
    vector: Vector = demand
    if books.raises or not any(demand):
        vector = tuple(entry.demand.tolist())
        demand = vector if books.raises else demand
    queue, out = queues.paths[app.queue], books.out
    stage, end_s = ask.stage, now + ask.duration_s
    # A master of its own kind knows no runs.
    alone = count > 1 and app.job.master is not None
    size = 1 if alone else count
    for number in range(first, first + count) if alone else (first,):
        run = Holding(
            number, node, attempt, entry, entry.demand, vector, now, ALLOCATED, stage, end_s, size
        )
        hold(books, run)
        attempt.outbox.put(number, Container(number, node_id, ask.ask_id, node.boot, size))
        placed: Placed | PlacedRun
        if size == 1:
            placed = Placed(number, node_id, ask.ask_id, stage, demand, ask.kind, queue, scores)
        else:
            placed = PlacedRun(
                number, size, node_id, ask.ask_id, stage, demand, ask.kind, queue, scores
            )
        out.append(Note(placed))
    if stage >= 0:
        app.running[stage] += count
    books.pace.note(ask.duration_s, count)
    rows.take(entry, count, now)
    if books.matching.reserved or books.claimed:
        _keep_no_more(books, entry)
    if attempt.attempt_id not in books.dirty_attempts:
        books.owe_attempt(attempt)
    if books.hears_grants:
        books.matcher.granted(books.view, node.slot, placement, entry.app, now)


def _keep_no_more(books: Books, entry: AskEntry) -> None:
    """Reserve no node for an ask that was served, nor what was preempted for one that is whole.

    Others may use what it leaves there at once.
    """
    kept = books.matching.reserved.pop(entry.serial, None)
    slots = [] if kept is None else list(kept[1])
    if entry.pending <= 0:
        slots += [slot for slot, serial in books.claimed.items() if serial == entry.serial]
    if slots and books.ledger.unreserve(slots, entry.serial):
        books.matching.eased()


def _place_masters(books: Books, node: Node, *, first: bool = True) -> bool:
    """Place waiting masters, spread over nodes, up to their cluster share.

    They go `first`, before other asks; but where an ask of a queue below its guarantee is served
    next, those of queues that are not give way. Return whether one did.
    """
    columns, slot, gave_way = books.ledger.nodes, node.slot, False
    kept = columns.reserved.item(slot)
    if kept > 0:
        return False
    up = max(1, sum(books.classes.values()))
    for _ in range(-(-len(books.waiting) // up)):
        room = columns.available[slot]
        attempt = _next_master(books, node, room, kept)
        if attempt is not None and first and not kept:
            served = _served_next(books, node, attempt)
            if _gives_way(books, attempt, served):
                gave_way = True
                attempt = _next_master(books, node, room, kept, served)
        if attempt is None:
            break
        books.waiting.remove(attempt)
        _start_master(books, node, attempt)
        if kept:
            books.ledger.unreserve([slot], kept)
            books.claimed.pop(slot, None)
            books.matching.reserved.pop(kept, None)
            books.matching.changed()
            break
    return gave_way


def _served_next(books: Books, node: Node, attempt: Attempt) -> set[int]:
    """Return the leaf queues that are served next on a node; none where a master's own is owed."""
    leaf = attempt.app.queue
    if not books.queues.several or _is_below(books, leaf) or outlook(books, node) != MAY_GRANT:
        return set()
    match = books.matcher.would_match(books.view, node.slot, books.now)
    rows, queue = books.rows.app, books.ledger.apps.queue
    return {queue.item(rows.item(one.row)) for one in match.placements}


def _gives_way(books: Books, attempt: Attempt, served: Set[int]) -> bool:
    """Return whether one of the leaf queues that are `served` is owed more than a master's own.

    That is one that is below its guarantee, or has a queue above it that is, where the master's is
    not, below the queue that both are in. The master is placed after the match in what that leaves.
    """
    for leaf in served:
        own, theirs = books.queues.apart(attempt.app.queue, leaf)
        if any(_is_below(books, at) for at in theirs) and not any(
            _is_below(books, at) for at in own
        ):
            return True
    return False


def _is_below(books: Books, queue: int) -> bool:
    """Return whether a queue holds less than its guarantee of everything."""
    shares = shares_of(books.ledger.by_queue.held[queue], books.ledger.total)
    return bool(shares.max() < books.queues.capacity.item(queue) * (1 - TOLERANCE))


def _suits(books: Books, attempt: Attempt, node: Node) -> bool:
    """Return whether a node suits an attempt's master: nothing failed there, no gang needs it.

    Where it failed on nearly all nodes whose labels suit it, it may go to each of them again.
    """
    if node.node_id in attempt.avoid:
        most = MASTER_AVOIDS_MAX * nodes_alike(books, attempt)
        if len(attempt.avoid) <= most:
            return False
    return not spoils(books, attempt.app, node)


class MasterLimit(enum.Enum):
    """What keeps a waiting master from starting."""

    # All masters together hold what they may of the cluster (master_share_max).
    ALL_MASTERS = enum.auto()
    # Those of a queue hold what they may of its guarantee (max_am_share).
    QUEUE_MASTERS = enum.auto()
    # A queue, or the user in the leaf queue, holds what it may.
    QUEUE = enum.auto()
    USER = enum.auto()


# What holds a master, and the slot of the queue whose limit it is.
Holder = tuple[MasterLimit, int]


class MasterLimits:
    """The limits of the cluster, queues and users on masters as they are, for a look at many."""

    def __init__(self, books: Books) -> None:
        self._books = books
        self._may_grow: dict[Vector, bool] = {}
        self._full: dict[tuple[int, Vector], int] = {}
        self._limits: Limits | None = None

    def admit(self, attempt: Attempt) -> bool:
        """Return whether they let a master start."""
        return self.holder(attempt) is None

    def holder(self, attempt: Attempt) -> Holder | None:
        """Return what keeps a master from starting, None where no limit does.

        A matcher that places masters itself goes by the share that those of a queue may have only.
        """
        books, alike = self._books, (attempt.app.queue, attempt.vector)
        itself = books.matcher.reserves
        if attempt.vector not in self._may_grow:
            self._may_grow[attempt.vector] = itself or masters_may_grow(books, attempt)
        if not self._may_grow[attempt.vector]:
            return MasterLimit.ALL_MASTERS, 0
        if alike not in self._full:
            self._full[alike] = full_of_masters(books, attempt)
        if self._full[alike] >= 0:
            return MasterLimit.QUEUE_MASTERS, self._full[alike]
        if itself or not books.queues.limited:
            return None
        if self._limits is None:
            self._limits = limits_of_masters(books.view)
        part = shares_of(attempt.demand, books.view.total)
        held = held_back(self._limits, attempt.app.slot, part)
        if held == ADMITTED:
            return None
        own = (MasterLimit.USER, attempt.app.queue)
        return own if held == USER else (MasterLimit.QUEUE, held)


def admitted_masters(books: Books, passed: set[Group]) -> Iterator[tuple[Group, Attempt]]:
    """Yield the masters that wait for room only, in order, with their groups.

    Groups in `passed` are left out; the caller may add some meanwhile, as this does.
    """
    limits = MasterLimits(books)
    admitted: set[Group] = set()
    first = next(iter(books.waiting), None)
    if first is None or (not books.open_jobs and not masters_may_grow(books, first)):
        # Weft's own masters are all of one size.
        return
    for group, attempt in books.waiting.in_turn(passed):
        if group in admitted or limits.admit(attempt):
            admitted.add(group)
            yield group, attempt
        else:
            passed.add(group)


def as_ask(books: Books, attempt: Attempt) -> tuple[AskEntry, Bools]:
    """Return a waiting master as an ask, and the nodes that it may go to, (nodes,)."""
    spec = attempt.app.job.master
    label = "" if spec is None else spec.label
    wanted = Ask(0, 1, attempt.vector, 0.0, 1.0, AskType.DEFAULT, 0, label=label)
    entry = AskEntry(wanted, attempt.app.slot, attempt.demand, kept_for_master(attempt))
    # Where no node without a label could hold a master, all of its hosts have one.
    entry.any_label = not label and any(labels for _, labels in hosts(books))
    able = usable(books, entry, entry.serial)
    if not MasterLimits(books).admit(attempt):
        able[:] = False
    for slot in np.flatnonzero(able).tolist():
        node, whole = books.node_at[slot], books.ledger.nodes.capacity[slot]
        able[slot] = _suits(books, attempt, node) and master_fits(books, attempt, node, whole)
    return entry, able


def kept_for_master(attempt: Attempt) -> int:
    """Return the serial of a node reserved for a master: negative, asks' count from 1."""
    return -attempt.attempt_id


def _next_master(
    books: Books, node: Node, room: Floats, kept: int = 0, served: Set[int] = frozenset()
) -> Attempt | None:
    """Return the first waiting master that may go to a node with `room`.

    It gives way to none of the leaf queues that are `served`.

    `kept` is the node's reservation. Weft's own masters are all of one size, so where one does not
    fit, none does; those that jobs bring along differ, and a large one does not hold up the rest.
    """
    passed: set[Group] = set()
    for group, attempt in admitted_masters(books, passed):
        if kept and kept != kept_for_master(attempt):
            continue
        if _gives_way(books, attempt, served):
            passed.add(group)
            continue
        if not _suits(books, attempt, node):
            continue
        if master_fits(books, attempt, node, room):
            return attempt
        if not books.open_jobs:
            return None
        passed.add(group)
    return None


def master_fits(books: Books, attempt: Attempt, node: Node, room: Floats) -> bool:
    """Return whether a master may go to a node with `room`; a label that it names must be there."""
    spec = attempt.app.job.master
    if spec is not None and spec.label:
        able = spec.label in node.labels
    else:
        able = (node.capacity, int(books.ledger.nodes.labels[node.slot])) in hosts(books)
    return able and fits(attempt.demand, room, books.ledger.nodes.capacity[node.slot])


def _start_chosen(books: Books, node: Node, slot: int) -> None:
    """Start the master that the matcher chose, of an application slot."""
    app = books.app_at[slot]
    attempt = None if app is None else app.attempt
    if attempt is None or attempt not in books.waiting:
        raise InvariantError(f"matcher {books.matcher.name} placed a master: none waits")
    books.waiting.remove(attempt)
    _start_master(books, node, attempt)


def _start_master(books: Books, node: Node, attempt: Attempt) -> None:
    books.matching.master_s = books.now
    demand, vector, spec = attempt.demand, attempt.vector, attempt.app.job.master
    limit = 1.0 + books.slack if books.matcher.reserves else None
    books.ledger.book(node.slot, attempt.app.slot, demand, 1, limit)
    count_master(books, attempt.app.queue, demand)
    books.ledger.count_masters(attempt.app.slot, 1)
    number = next_ids(books, attempt, 1)
    now = books.now
    holding = Holding(number, node, attempt, None, demand, vector, now, ALLOCATED, -1, now)
    hold(books, holding)
    attempt.master = holding
    attempt.master_id = number
    holding.state = CONTAINER.next(holding.state, ContainerEvent.LAUNCH_ORDERED)
    attempt.seen_s = now
    command, environment = ((), ()) if spec is None else (spec.command, spec.environment)
    launch = MasterLaunch(number, attempt.attempt_id, vector, command, environment)
    node.outbox.put(number, launch)
    books.owe_node(node)
    move_attempt(books, attempt, AttemptEvent.CONTAINER_ALLOCATED)
    persist_attempt(books, attempt, node.node_id)
