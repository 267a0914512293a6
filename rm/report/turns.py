"""Who goes first: the matcher's own order, and when an ask's turn comes by the estimates.

Nothing here knows a policy. The matcher is asked who would get a node if that were empty
(`Matcher.ranked`), and says by what. When the turn of an ask comes is found by letting what runs
end when it is expected to, and giving each room to the first in that order that fits there.
"""

import heapq
from itertools import count
from math import inf
from typing import NamedTuple

import numpy as np

from rm.ledger.asks import AskEntry
from rm.ledger.columns import Bools
from rm.match.candidates import shares_of
from rm.match.filter_kernels import OPEN, RESERVED
from rm.match.protocol import APPS_TURNS, NO_TURNS, QUEUES_TURNS, Matcher, Scores, every_term
from rm.placing.ends import Release, releases
from rm.placing.feasible import blocked
from rm.state.books import Books
from rm.state.records import App
from weft.model.dag import Floats, Ints
from weft.model.resources import TOLERANCE

# The order is followed so far; each place asks the matcher once.
RANKED_MAX = 128
# So many ends of containers are looked at, in order of time.
_RELEASES_MAX = 2_000


class Turn(NamedTuple):
    """An ask in its place: the matcher's terms of it."""

    entry: AskEntry
    app: App
    scores: Scores


class Line(NamedTuple):
    """The asks in the order in which a node's room goes to them; `whole`: no others follow."""

    slot: int
    turns: tuple[Turn, ...]
    whole: bool


def next_releases(books: Books) -> list[Release]:
    """Return the first releases of room by what runs, of those whose time is known, in order."""
    known = [one for one in releases(books, books.now) if one.at_s < inf]
    return heapq.nsmallest(_RELEASES_MAX, known, key=lambda one: one[:3])


def next_node(books: Books, entry: AskEntry, soon: list[Release]) -> int:
    """Return the slot of the node, of those that an ask may use, where something ends next.

    -1 where it may use none.
    """
    may = _may_use(books, entry)
    if not may.any():
        return -1
    return next((one.slot for one in soon if may[one.slot]), int(np.argmax(may)))


def line(books: Books, slot: int) -> Line:
    """Return in which order the matcher would serve the asks if a node were empty.

    Whom it is kept for does not matter either: that says who gets this room, not whose turn it is.
    """
    ledger = books.ledger
    kept_for, available = int(ledger.nodes.reserved[slot]), ledger.empty(slot)
    ledger.reserve([slot], 0)
    try:
        ranked = books.matcher.ranked(books.view, slot, books.now, RANKED_MAX)
    finally:
        ledger.refill(slot, available)
        ledger.reserve([slot], kept_for)
    turns: list[Turn] = []
    for placement in ranked:
        entry = books.rows.entries[placement.row]
        app = None if entry is None else books.app_at[entry.app]
        if entry is not None and app is not None:
            scores = every_term(books.matcher, books.view, placement)
            # A place only counts the picks of one answer.
            kept = tuple([term for term in scores if term[0] != "place"])
            turns.append(Turn(entry, app, kept))
    return Line(slot, tuple(turns), len(ranked) < RANKED_MAX)


def moves(matcher: Matcher) -> bool:
    """Return whether grants may move a matcher's order in a way that `starts_s` does not know.

    A line stays as it is, and who takes turns says so; all else may go by anything.
    """
    return matcher.turns == NO_TURNS and not getattr(matcher, "in_line", False)


def work_of(entry: AskEntry) -> Floats:
    """Return what is pending of an ask x its estimated duration, shape (d,), absolute x s."""
    return np.asarray(entry.demand * (entry.pending * entry.ask.duration_s))


def starts_s(
    books: Books, turns: tuple[Turn, ...], soon: list[Release], wanted: set[int]
) -> dict[int, float]:
    """Return when the first container of each wanted turn starts, by its place, s of cluster time.

    That is by the estimates of what runs and what goes before, and supposes that nothing else comes
    to ask and that no limit binds. A place is missing whose turn is further off than was looked.
    The order of now is where it begins; where the matcher's `turns` say so, each grant puts its
    queue and application behind others, as if what they hold now never ended.
    """
    n, now, strict = books.ledger.node_count, books.now, books.matcher.strict
    free = np.array(books.ledger.nodes.available[:n])
    needs: Floats = np.array([turn.entry.demand for turn in turns])
    left: Ints = np.array([turn.entry.pending for turn in turns])
    may: Bools = np.array([_may_use(books, turn.entry) for turn in turns])
    shares, grants = _shares(books, turns)
    # Nodes that have room for any of them come first, now.
    roomy = (free + TOLERANCE >= needs.min(axis=0)).all(axis=1).nonzero()[0].tolist()
    nothing = np.zeros(needs.shape[1])
    ends = [Release(now, slot, -1, nothing) for slot in roomy] + soon
    heapq.heapify(ends)
    number, found = count(-2, -1), dict[int, float]()
    for _ in range(_RELEASES_MAX):
        if not ends or wanted <= found.keys():
            break
        end = heapq.heappop(ends)
        room = free[end.slot]
        room += end.amount
        waits = (left > 0) & may[:, end.slot]
        while waits.any():
            fits = waits & (needs <= room + TOLERANCE).all(axis=1)
            able = np.flatnonzero(waits if strict else fits)
            if not len(able):
                break
            # Of equals the first place goes first.
            place = int(able[np.lexsort(shares[:, able])[0]])
            if not fits[place]:
                break
            shares += grants[place]
            found.setdefault(place, end.at_s)
            left[place] -= 1
            waits[place] = left[place] > 0
            room -= needs[place]
            end_s = end.at_s + turns[place].entry.ask.duration_s
            heapq.heappush(ends, Release(end_s, end.slot, next(number), needs[place]))
    return found


def _shares(books: Books, turns: tuple[Turn, ...]) -> tuple[Floats, Floats]:
    """Return what the turns go by, the last first, (2, n), and what a container adds, (n, 2, n).

    That is the dominant share that a turn's application holds, and its leaf queue over its
    guarantee; both are raised where the order of now says otherwise.
    """
    ledger, level = books.ledger, books.matcher.turns
    queue: Ints = np.array([turn.app.queue for turn in turns])
    app: Ints = np.array([turn.app.slot for turn in turns])
    per_queue = np.maximum(books.queues.capacity[queue], TOLERANCE)
    held = [ledger.apps.held[app], ledger.by_queue.held[queue]]
    of_app, of_queue = [shares_of(one, ledger.total).max(axis=1) for one in held]
    one = [shares_of(turn.entry.demand, ledger.total).max() for turn in turns]
    counts = np.array([[level >= APPS_TURNS], [level >= QUEUES_TURNS]])
    by = np.stack([np.ones(len(turns)), per_queue])
    shares = counts * np.stack([of_app, of_queue]) / by
    alike = np.stack([app[:, None] == app, queue[:, None] == queue], axis=1)
    grants = counts * alike * np.array(one)[:, None, None] / by
    return np.maximum.accumulate(shares, axis=1), grants


def _may_use(books: Books, entry: AskEntry) -> Bools:
    """Return which nodes could hold an ask, were they empty and kept for nobody, shape (nodes,)."""
    capacity = books.ledger.nodes.capacity[: books.ledger.node_count]
    reason, _ = blocked(books, entry, capacity)
    large_enough = (entry.demand <= capacity + TOLERANCE).all(axis=1)
    return np.asarray((reason == OPEN) | ((reason == RESERVED) & large_enough))
