"""What an operator says of a node counts instead of what the node itself says: size and labels.

As YARN's updateNodeResource and replaceLabelsOnNode. It is kept over restarts of the node and of
the manager, until it is said anew or taken back. Containers keep running: a node that holds more
than it has by now gets nothing until it fits. No node is made larger than its manager offers,
which would refuse to start more.
"""

from rm.forgetting import rack_of
from rm.leaving import count_class
from rm.state.books import Books
from rm.state.lifecycle import RmNodeState
from rm.state.records import NEVER, Node
from weft.model.errors import InputError
from weft.model.ids import NodeId
from weft.model.json_types import Json
from weft.model.resources import TOLERANCE, Vector
from weft.protocol.facts import NodeChanged
from weft.protocol.requests import UpdateNode


def update(books: Books, node: Node, request: UpdateNode) -> None:
    """Take what an operator says of a node; raises InputError where that cannot be."""
    before = books.updates.get(node.node_id, {})
    said: Json = {} if request.own else dict(before)
    if request.capacity:
        said["capacity"] = {**said.get("capacity", {}), **request.capacity}
        _check_capacity(books, node, said["capacity"])
    if request.relabel:
        said["labels"] = list(request.labels)
    if said == before:
        return
    if said.get("labels") != before.get("labels"):
        if books.matcher.reserves and node.holdings:
            why = (
                f"the policy {books.matcher.name} counts by labels what runs: drain the node first"
            )
            raise InputError("labels", why)
        books.label_mask(tuple(said.get("labels", node.said[1])))
    remember(books, node.node_id, said)
    books.persist({"kind": "update", "node": node.node_id, **said})
    if node.present:
        _describe(books, node)


def remember(books: Books, name: NodeId, said: Json) -> None:
    """Note what an operator said of a node; nothing: the node's own word counts."""
    books.updates.pop(name, None)
    if said:
        books.updates[name] = said


def in_force(
    books: Books, name: NodeId, capacity: Vector, labels: tuple[str, ...]
) -> tuple[Vector, tuple[str, ...]]:
    """Return a node's size and labels, which offers so much and is labelled so by itself."""
    said = books.updates.get(name)
    if said is None:
        return capacity, labels
    wanted: Json = said.get("capacity", {})
    least = zip(books.types.names, capacity, strict=True)
    sizes = tuple(min(own, float(wanted.get(kind, own))) for kind, own in least)
    return sizes, tuple(said.get("labels", labels))


def _check_capacity(books: Books, node: Node, wanted: Json) -> None:
    amounts = books.types.vector(wanted, "capacity")
    rows = zip(books.types.names, amounts, node.said[0], strict=False)
    for kind, amount, own in rows:
        if amount > own * (1 + TOLERANCE):
            raise InputError(
                f"capacity.{kind}",
                f"{node.node_id} offers {own:g}; start its node manager with more",
            )


def _describe(books: Books, node: Node) -> None:
    """Let the books say of a node that is there what is in force."""
    capacity, labels = in_force(books, node.node_id, *node.said)
    smaller = any(now < before for now, before in zip(capacity, node.capacity, strict=True))
    for holding in list(node.holdings.values()):
        # It is not held to what the node has now.
        holding.adopted |= smaller
    serves = node.state is RmNodeState.RUNNING
    if serves:
        count_class(books, node, -1)
    node.capacity, node.labels = capacity, labels
    mask = books.label_mask(labels)
    books.ledger.describe_node(node.slot, rack_of(books, node.rack), mask)
    books.ledger.set_node(node.slot, capacity, up=serves)
    if serves:
        count_class(books, node, 1)
    node.settled_at = NEVER
    books.matching.changed()
    books.note(NodeChanged(node.node_id, node.state.name, capacity))
