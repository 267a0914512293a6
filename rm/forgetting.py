"""Names that anybody may make up, of nodes and racks, are given up when nobody needs them."""

from typing import Final

import numpy as np

from rm.state.books import Books
from rm.state.lifecycle import ENDED_APPS, NodeState
from rm.state.records import Node
from weft.ids import app_of_container

RACKS_KEPT: Final = 100  # before the places of racks without nodes are used again
_GONE: Final = (NodeState.LOST, NodeState.SHUTDOWN)


def slot_of_forgotten(books: Books) -> int:
    """The slot of the node that is gone for longest and needed by nobody; -1 for none.

    Only where more than `gone_nodes_max` nodes are gone: until then they are shown in listings.
    The node itself is forgotten; should it come back it is a new one.
    """
    n = books.ledger.node_count
    columns, most = books.ledger.nodes, books.settings.gone_nodes_max
    away = np.flatnonzero(~columns.up[:n])
    if len(away) <= most:
        return -1
    gone = [slot for slot in away.tolist() if books.node_at[slot].state in _GONE]
    if len(gone) <= most:
        return -1
    for slot in sorted(gone, key=lambda slot: float(columns.seen_s[slot])):
        node = books.node_at[slot]
        if not _is_needed(books, node):
            _forget(books, node)
            return slot
    return -1


def _is_needed(books: Books, node: Node) -> bool:
    name = node.node_id
    if node.present or node.holdings or name in books.missing or name in books.expected:
        return True
    if node.slot in books.claimed or books.ledger.nodes.reserved[node.slot]:
        return True
    for number in node.lost:  # should it come back with these, it must be known what they are
        app = books.apps.get(app_of_container(number))
        if app is not None and app.state not in ENDED_APPS:
            return True
    return False


def _forget(books: Books, node: Node) -> None:
    del books.nodes[node.node_id]
    books.dirty_nodes.pop(node.node_id, None)
    books.view.forget(node.slot)
    books.ledger.clear_node(node.slot)


def rack_of(books: Books, name: str) -> int:
    """The number of a rack; a new one takes the place of one without nodes once there are many."""
    names = books.view.rack_names
    if name in names:
        return names.index(name)
    if len(names) >= RACKS_KEPT:
        used = {node.rack for node in books.node_at if node.present}
        for place, old in enumerate(names):
            if old not in used:
                names[place] = name
                return place
    names.append(name)
    return len(names) - 1
