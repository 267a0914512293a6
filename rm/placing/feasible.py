"""Which nodes could take an ask, and what keeps it off the others.

This asks the matchers' own filter (`rm.match.filter_kernels`) about one ask over all nodes.
"""

from collections.abc import Collection

import numpy as np

from rm.ledger.asks import ANY_LABEL, AskEntry
from rm.ledger.columns import Bools
from rm.ledger.queues import QueueTree
from rm.match.filter_kernels import (
    NO_ROOM,
    OPEN,
    TOO_LARGE,
    Nodes,
    Want,
    allowed,
    blocked_on,
    copies_on,
    fits,
)
from rm.state.books import Books
from weft.model.dag import Floats, Ints
from weft.model.errors import InputError
from weft.model.resources import TOLERANCE, Vector
from weft.policies.compiled import steady

_blocked_on, _copies_on = steady(blocked_on), steady(copies_on)
# A new attempt waits so long after the manager's start for nodes that may still report
# containers, s.
RETURN_WAIT_S = 10.0
# One heartbeat, or one pass over all nodes, grants at most so many containers.
ROUND_GRANTS_MAX = 5_000


class NoRoomError(InputError):
    """The nodes that are in service could not hold what is asked for, were they empty."""


def nodes_may_come(books: Books) -> bool:
    """Return whether nodes may still come back to a manager that started anew."""
    return books.epoch > 0 and books.now - books.started_s < return_wait_s(books)


def return_wait_s(books: Books) -> float:
    """Return for how long a manager that started anew waits for nodes to come back."""
    return min(RETURN_WAIT_S, books.settings.node_expiry_s) if books.settings.nodes_return else 0.0


def blocked(books: Books, entry: AskEntry, amounts: Floats, serial: int = 0) -> tuple[Ints, Ints]:
    """Return what keeps an ask off each node slot, and the first resource that is lacking there.

    `amounts` (nodes, d) is what it may count on: what is available, or the capacity. Nodes that are
    kept for `serial` (0: for the ask itself) are open to it.
    """
    return _blocked(books, entry, amounts, serial, slice(0, books.ledger.node_count))


def suits(books: Books, entry: AskEntry, slot: int) -> bool:
    """Return whether an ask may use one node and would fit there, were it empty."""
    capacity = books.ledger.nodes.capacity
    reason, _ = _blocked(books, entry, capacity, 0, slice(slot, slot + 1))
    return bool(reason[0] == OPEN)


def _blocked(
    books: Books, entry: AskEntry, amounts: Floats, serial: int, some: slice
) -> tuple[Ints, Ints]:
    """Return what `blocked` does, of some node slots."""
    columns, at = books.ledger.nodes, books.node_at[some]
    n = len(at)
    named = np.ones(n, dtype=np.bool_)
    if entry.strict:
        named = np.array([entry.admits(node.node_id, node.rack) for node in at], dtype=np.bool_)
    nodes = Nodes(
        columns.up[some],
        columns.labels[some],
        named,
        _banned(books, entry.app)[some],
        columns.reserved[some],
        np.ascontiguousarray(amounts[some]),
        columns.capacity[some],
    )
    reason, lacks = np.zeros(n, np.int64), np.zeros(n, np.int64)
    label = ANY_LABEL if entry.any_label else books.label_bit(entry.ask.label)
    want = Want(label, serial or entry.serial, entry.demand)
    _blocked_on.code(want, nodes, reason, lacks)
    return reason, lacks


def usable(books: Books, entry: AskEntry, serial: int = 0) -> Bools:
    """Return which nodes nothing but the size of an ask keeps it off, shape (nodes,)."""
    reason, _ = blocked(books, entry, books.ledger.nodes.capacity, serial)
    return np.asarray((reason == OPEN) | (reason == TOO_LARGE) | (reason == NO_ROOM))


def room_for(books: Books, entry: AskEntry, amounts: Floats) -> Ints:
    """Return how many of an ask's containers fit into `amounts` of each node that it may use."""
    columns, n = books.ledger.nodes, books.ledger.node_count
    reason, _ = blocked(books, entry, amounts)
    spare = books.settings.node_containers_max - columns.containers[:n]
    count = np.where(reason == OPEN, np.clip(entry.pending, 0, np.maximum(spare, 0)), 0)
    _copies_on.code(entry.demand, np.ascontiguousarray(amounts[:n]), columns.capacity[:n], count)
    return np.asarray(count)


def labelled(books: Books, label: str) -> Bools:
    """Return which nodes a label lets an ask use, shape (nodes,)."""
    masks = books.ledger.nodes.labels[: books.ledger.node_count]
    kinds, kind = np.unique(masks, return_inverse=True)
    able = np.array([allowed(books.label_bit(label), mask) for mask in kinds], dtype=np.bool_)
    return np.asarray(able[kind])


def fits_a_class(books: Books, demand: Vector, label: str) -> bool:
    """Return whether a demand with a label fits on any node in service, were it empty."""
    bit, need = books.label_bit(label), np.array(demand)
    for vector, labels in books.classes:
        if allowed(bit, labels) and fits_empty(need, vector):
            return True
    return False


def fits_empty(demand: Floats, vector: Vector) -> bool:
    """Return whether a demand (d,) fits on an empty node."""
    capacity = np.array(vector)
    return fits(demand, capacity, capacity)


def within_maximum(
    books: Books, tree: QueueTree, queue: int, demand: Vector, place: str, what: str
) -> None:
    """Raise NoRoomError where a demand alone passes the maximum of a queue or of one above it."""
    total = books.ledger.total
    for at in tree.chains[queue]:
        for r, most in enumerate((tree.most[at] * total).tolist()):
            if demand[r] > most * (1 + TOLERANCE):
                name, path = books.types.names[r], tree.paths[at]
                raise NoRoomError(
                    place,
                    f"{what} needs {demand[r]:g} {name}; queue {path} may hold {most:g} at most",
                )


def banned_for(books: Books, app: int) -> Collection[str]:
    """Return the nodes that the master of an application keeps off, by their names."""
    held = books.app_at[app]
    return held.attempt.blacklist if held is not None and held.attempt is not None else ()


def _banned(books: Books, app: int) -> Bools:
    """Return which nodes the master of an application keeps off, shape (nodes,)."""
    banned = np.zeros(books.ledger.node_count, dtype=np.bool_)
    for name in banned_for(books, app):
        if name in books.nodes:
            banned[books.nodes[name].slot] = True
    return banned
