"""Why the stages of an application are pending: reasons counted over nodes."""

from collections import Counter
from dataclasses import replace
from itertools import islice

import numpy as np

from rm.access import sees
from rm.ledger.asks import AskEntry
from rm.match.candidates import limit_of
from rm.match.filter_kernels import NO_ROOM, OPEN, WORDS
from rm.match.limit_kernels import ADMITTED, USER
from rm.match.protocol import Match
from rm.placing import gangs
from rm.placing.allocation import MasterLimit, MasterLimits
from rm.placing.feasible import blocked
from rm.placing.gang_room import capacity_of, free_of, most_of, pack
from rm.placing.gangs import planner_of
from rm.report.reports import returning
from rm.report.turns import Line, line, moves, next_node, next_releases, starts_s, work_of
from rm.report.turns import Turn as Placed
from rm.state.books import Books
from rm.state.lifecycle import ENDED_APPS, AppState, AttemptState, RmNodeState, reported
from rm.state.records import App
from weft.protocol.access import Caller
from weft.protocol.messages import AskType
from weft.protocol.requests import Contender, Explanation, StageExplanation, Turn

# An ask can come further than the filter's reasons.
_LIMITED, _UNSEEN, _MATCHED = range(NO_ROOM + 1, NO_ROOM + 4)
# So many asks of an application are looked at node by node.
_LOOKED_ASKS_MAX = 1_000
# The matcher is asked for so many nodes with room, for each ask and explanation.
_MATCHED_NODES_MAX = 256
# So many of those that go before are named.
_TOLD_MAX = 5


class _Asked:
    """What one explanation has found out: the matcher's answers, by node slot.

    Of applications that the `caller` may not know nothing is named.
    """

    def __init__(self, caller: Caller) -> None:
        self.caller = caller
        self.answers: dict[int, Match] = {}


def application(books: Books, app: App, caller: Caller) -> Explanation:
    """Return the reasons of each pending stage, and of each that was never asked for.

    The answer is worked out anew from the rules that decide (`filter_kernels`, the gate, and the
    matcher itself), not kept while deciding: what stood in the way at the last match is not what
    stands in the way now. It is bounded, as one request must not hold up the manager: so many asks
    are held against all nodes, and of those that would fit, the matcher is asked about so many.
    """
    state = reported(app.state)
    if app.state in ENDED_APPS or app.state is AppState.FINISHING:
        why = f": {app.diagnostics}" if app.diagnostics else ""
        return Explanation(app.app_id, state, f"it ended: {app.final_status}{why}")
    attempt = app.attempt
    if attempt is None or attempt.state is not AttemptState.RUNNING:
        return Explanation(app.app_id, state, _of_master(books, app))
    found: list[StageExplanation] = []
    asked, stands_at = _Asked(caller), dict[int, AskEntry]()
    by_stage: dict[int, list[AskEntry]] = {}
    looked_max = _LOOKED_ASKS_MAX
    for entry in attempt.entries.values():
        if entry.row >= 0:
            by_stage.setdefault(entry.ask.stage, []).append(entry)
    for position, stage in enumerate(app.job.stages):
        entries = by_stage.get(position, [])
        if entries:
            if entries[0].ask.gang:
                reasons = _of_gang(books, entries[0])
            else:
                looked = entries[: max(0, looked_max)]
                reasons = _reasons_of(books, app, looked, asked)
                stands_at[len(found)] = entries[0]
                looked_max -= len(looked)
                if len(looked) < len(entries):
                    reasons["not looked at: too many asks"] = len(entries) - len(looked)
            coming = sum(serial in {e.serial for e in entries} for serial in books.claimed.values())
            if coming:
                reasons["others are preempted here to make room for it"] = coming
            planner = planner_of(books)
            promised_s = None if planner is None else planner.promised_s(entries[0])
            if promised_s is not None:
                wait_s = max(0.0, promised_s - books.now)
                reasons[f"by the estimates it starts in {wait_s:.3g} s, which is promised"] = 0
            pending = sum(entry.pending for entry in entries)
            yielding = sum(e.pending for e in entries if e.ask.kind is AskType.ALTRUISTIC)
            found.append(StageExplanation(stage.name, pending, dict(reasons), yielding))
        else:
            left = stage.tasks - app.finished_by_stage[position] - app.running[position]
            if left > 0:
                why = "waiting for parents" if stage.parents else "not asked for yet"
                found.append(StageExplanation(stage.name, left, {why: 0}))
    for at, turn in _turns(books, stands_at, asked).items():
        found[at] = replace(found[at], turns=(turn,))
    text = (
        "nothing is pending"
        if not found
        else f"{len(found)} stage{'s are' if len(found) > 1 else ' is'} pending"
    )
    return Explanation(app.app_id, state, text, tuple(found), books.now)


def _turns(books: Books, entries: dict[int, AskEntry], asked: _Asked) -> dict[int, Turn]:
    """Return where asks stand, by the same numbers, of those that compete for any node."""
    by_slot: dict[int, list[int]] = {}
    soon = next_releases(books) if entries else []
    for at, entry in entries.items():
        slot = next_node(books, entry, soon)
        if slot >= 0 and limit_of(books.view, entry.app, entry.demand) == ADMITTED:
            by_slot.setdefault(slot, []).append(at)
    found: dict[int, Turn] = {}
    for slot, numbers in by_slot.items():
        order = line(books, slot)
        # A stage stands where the first of its asks does.
        stages = [(turn.app.app_id, turn.entry.ask.stage) for turn in order.turns]
        places: dict[int, int] = {}
        for at in numbers:
            entry = entries[at]
            owner = books.app_at[entry.app]
            mine = 0 if owner is None else owner.app_id, entry.ask.stage
            if mine in stages:
                places[at] = stages.index(mine)
            elif not order.whole:
                places[at] = len(stages)
        last = max(places.values(), default=-1)
        turns = order.turns[: last + 1]
        starts = starts_s(books, turns, soon, set(places.values())) if turns else {}
        for at, place in places.items():
            found[at] = _turn(books, order, place, starts.get(place, 0.0), asked.caller)
    return found


def _turn(books: Books, order: Line, place: int, start_s: float, caller: Caller) -> Turn:
    """Return what is told of a place in an order; the place behind all is beyond what is known.

    Asks of one stage of an application are one contender, where the first of them stands.
    """
    before = order.turns[:place]
    stages: dict[tuple[int, int], list[Placed]] = {}
    for turn in before:
        stages.setdefault((turn.app.app_id, turn.entry.ask.stage), []).append(turn)
    work = sum((work_of(turn.entry) for turn in before), np.zeros(len(books.types)))
    own = order.turns[place] if place < len(order.turns) else None
    planner = planner_of(books)
    promised_s = None if planner is None or own is None else planner.promised_s(own.entry)
    return Turn(
        books.node_at[order.slot].node_id,
        len(stages),
        sum(turn.entry.pending for turn in before),
        dict(zip(books.types.names, work.tolist(), strict=True)),
        own is None,
        {} if own is None else dict(own.scores),
        tuple(_contender(books, turns, caller) for turns in islice(stages.values(), _TOLD_MAX)),
        start_s if promised_s is None else promised_s,
        promised_s is None and moves(books.matcher),
    )


def _contender(books: Books, turns: list[Placed], caller: Caller) -> Contender:
    entry, app, scores = turns[0].entry, turns[0].app, dict(turns[0].scores)
    pending = sum(turn.entry.pending for turn in turns)
    if not sees(books, app, caller):
        return Contender(0, "", "", pending, scores)
    return Contender(app.app_id, app.job.name, _stage(app, entry), pending, scores)


def _stage(app: App, entry: AskEntry) -> str:
    return app.job.stages[entry.ask.stage].name if entry.ask.stage >= 0 else ""


def _of_master(books: Books, app: App) -> str:
    attempt = app.attempt
    if attempt is not None and attempt.state is AttemptState.ALLOCATED:
        where = attempt.master.node.node_id if attempt.master else "its node"
        return returning(books, app) or f"waiting for its master on {where} to register"
    if not books.classes:
        return "waiting for a container for its master: no node is in service"
    held = None if attempt is None else MasterLimits(books).holder(attempt)
    return "waiting for a container for its master" + ("" if held is None else _held(books, *held))


def _held(books: Books, limit: MasterLimit, queue: int) -> str:
    """Return which limit keeps a master waiting, in words that go on."""
    path = books.queues.paths[queue]
    if limit is MasterLimit.ALL_MASTERS:
        share = books.settings.master_share_max
        return f": masters hold all that they may, {share:.3g} of the cluster (master_share_max)"
    if limit is MasterLimit.QUEUE_MASTERS:
        share = float(books.queues.max_am_share[queue])
        return f": masters in {path} hold all that they may, {share:.3g} of its guarantee"
    who = "its user" if limit is MasterLimit.USER else "queue"
    where = f"in {path} is at the" if limit is MasterLimit.USER else f"{path} is at its"
    return f": {who} {where} limit"


class _Found:
    """By node slot: how far along the filter an ask came there, and why no further."""

    def __init__(self, nodes: int) -> None:
        self.step = np.full(nodes, -1, dtype=np.int64)
        # It is a position in `texts`.
        self.why = np.zeros(nodes, dtype=np.int64)
        self.texts: dict[str, int] = {}

    def tell(self, mask: np.ndarray | int, step: int, text: str) -> None:
        """Set this reason for the nodes of `mask`."""
        self.step[mask] = step
        self.why[mask] = self.texts.setdefault(text, len(self.texts))

    def merge(self, other: "_Found") -> None:
        """Take the reasons of `other` where it came further."""
        numbers = [self.texts.setdefault(text, len(self.texts)) for text in other.texts]
        if numbers:
            further = other.step > self.step
            self.why[further] = np.array(numbers)[other.why[further]]
            self.step[further] = other.step[further]

    def counts(self) -> Counter[str]:
        """Return how many nodes have each reason."""
        told = self.why[self.step >= 0]
        nodes = np.bincount(told, minlength=len(self.texts)).tolist()
        return Counter({text: n for text, n in zip(self.texts, nodes, strict=True) if n})


def _reasons_of(books: Books, app: App, entries: list[AskEntry], asked: _Asked) -> Counter[str]:
    """Return one reason a node: that of the ask of the stage that came furthest there."""
    found = _Found(books.ledger.node_count)
    for entry in entries:
        found.merge(_reasons(books, app, entry, asked))
    reasons: Counter[str] = Counter()
    ill = sum(node.state is RmNodeState.UNHEALTHY for node in books.node_at)
    if ill:
        reasons["node is unhealthy"] = ill
    leaving = sum(node.state is RmNodeState.DECOMMISSIONING for node in books.node_at)
    if leaving:
        reasons["node is being decommissioned"] = leaving
    return reasons + found.counts()


def _reasons(books: Books, app: App, entry: AskEntry, asked: _Asked) -> _Found:
    """Return one reason a node, the first that holds in the order of the filter."""
    columns, n = books.ledger.nodes, books.ledger.node_count
    found = _Found(n)
    reason, lacks = blocked(books, entry, columns.available)
    for code in WORDS:
        for r in np.unique(lacks[reason == code]).tolist():
            found.tell((reason == code) & (lacks == r), code, _said(books, entry, code, r))
    open_nodes = reason == OPEN
    limit = _limit(books, app, entry)
    if limit and open_nodes.any():
        found.tell(open_nodes, _LIMITED, limit)
        open_nodes[:] = False
    slots = np.flatnonzero(open_nodes)
    for slot in slots[:_MATCHED_NODES_MAX].tolist():
        found.tell(slot, _MATCHED, _of_match(books, slot, entry, asked))
    if len(slots) > _MATCHED_NODES_MAX:
        found.tell(slots[_MATCHED_NODES_MAX:], _UNSEEN, "would fit: not looked at one by one")
    return found


def why_not_on(books: Books, slot: int, entry: AskEntry) -> str:
    """Return what keeps a pending ask off a node slot, as `application` says it.

    Empty where nothing does: it was outscored, or its turn had not come.
    """
    found = _reason_on(books, slot, entry)
    if found:
        return found
    app = books.app_at[entry.app]
    limit = "" if app is None else _limit(books, app, entry)
    return limit or books.matcher.why_not(books.view, slot, entry.row)


def _reason_on(books: Books, slot: int, entry: AskEntry) -> str:
    """Return what the filter says of one node, "" where it is open to the ask."""
    if entry.ask.gang:
        return "waiting for room for the whole gang"
    reason, lacks = blocked(books, entry, books.ledger.nodes.available)
    return _said(books, entry, int(reason[slot]), int(lacks[slot]))


def _said(books: Books, entry: AskEntry, reason: int, lacks: int) -> str:
    """Return a reason of the filter in words; "" for OPEN, and for a node not in service."""
    label = f"without label {entry.ask.label}" if entry.ask.label else "has a label"
    return WORDS.get(reason, "").format(label=label, resource=books.types.names[lacks])


def _of_gang(books: Books, entry: AskEntry) -> Counter[str]:
    """Return why a gang waits: one reason for all of it, over the nodes in service."""
    gang = gangs.of_entry(books, entry)
    need, capacity = gangs.need_of(books, gang), capacity_of(books)
    size, up = int(need.wanted.sum()), int(books.ledger.nodes.up[: books.ledger.node_count].sum())
    kept = books.matching.reserved.get(gang.serial)
    if pack(need.on(books.ledger.nodes.up[: len(capacity)]), capacity, capacity) is None:
        return Counter({"even an empty cluster could not hold the whole gang": up})
    if not gangs.within_limits(books, gang.app, need.total):
        return Counter({"its queue or user may not hold the whole gang now": up})
    if kept is not None:
        return Counter({"kept for the gang until they are empty enough": len(kept[1])})
    why = "waiting for room for the whole gang"
    if size > 1:
        why += f": {most_of(need, free_of(books))} of {size} would fit"
    if len(gangs.nodes_for(books, gang, need)) > gangs.nodes_max(books):
        why += f"; it needs more nodes than may be kept for gangs ({gangs.nodes_max(books)})"
    return Counter({why: up})


def _of_match(books: Books, slot: int, entry: AskEntry, asked: _Asked) -> str:
    """Return what the matcher would do on a node now; it is asked as a heartbeat would ask it."""
    answer = asked.answers.get(slot)
    if answer is None:
        answer = asked.answers[slot] = books.matcher.would_match(books.view, slot, books.now)
    placed = [placement.row for placement in answer.placements]
    if entry.row in placed:
        return "would fit: waiting for a heartbeat"
    if entry.row in answer.declined:
        return "waiting for locality"
    why = books.matcher.why_not(books.view, slot, entry.row)
    if why or not placed:
        return why or "would fit: outscored"
    # A policy that places masters says whose instead of a row.
    winner = books.rows.entries[placed[0]] if placed[0] >= 0 else None
    first = books.app_at[-1 - placed[0] if winner is None else winner.app]
    if first is None or (winner is not None and winner.ask.stage < 0):
        return "would fit: outscored"
    if not sees(books, first, asked.caller):
        return "would fit: outscored by another user's application"
    what = "the master" if winner is None else f"stage {_stage(first, winner)}"
    return f"would fit: outscored by {what} of {first.job.name}"


def _limit(books: Books, app: App, entry: AskEntry) -> str:
    """Return which limit of its queues or user the ask would pass, if any."""
    full = limit_of(books.view, app.slot, entry.demand)
    if full == ADMITTED:
        return ""
    who = "its user" if full == USER else f"queue {books.queues.paths[full]}"
    return f"{who} is at {'the' if full == USER else 'its'} limit"
