"""Whether a gang fits: all of its containers on the nodes together, now or on an empty cluster.

The second question is asked before a job is accepted: a gang that no empty cluster could hold would
wait for ever. Packing with several resources is hard, so the answer errs to one side: a found
packing is one, while a gang that would just fit may be refused.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from rm.ledger.asks import NODE_LOCAL, RACK_LOCAL, REMOTE
from rm.ledger.columns import Bools
from rm.ledger.queues import QueueTree
from rm.match.filter_kernels import copies_on
from rm.placing.feasible import NoRoomError, labelled
from rm.placing.hosting import NodeClass, hosts
from rm.state.books import Books
from rm.state.records import App, Node
from weft.model.dag import Floats, Ints
from weft.model.job import Job, Stage
from weft.model.resources import TOLERANCE


class Need(NamedTuple):
    """Like containers by row, wanted together: shapes (k, d), (k,), (k, n), (k, n).

    `usable` says which of n nodes a row may use, `far` how near its input is to each.
    """

    demand: Floats
    wanted: Ints
    usable: Bools
    far: Ints

    @property
    def total(self) -> Floats:
        """All of it together, shape (d,)."""
        return np.asarray(self.wanted @ self.demand)

    def on(self, nodes: Bools) -> "Need":
        """Return the same need, on a part of the nodes (n,)."""
        return self._replace(usable=self.usable & nodes)


# -- when a job is submitted, and where its master goes --------------------------------------------


def check_gangs(books: Books, job: Job, tree: QueueTree, queue: int) -> None:
    """Raise NoRoomError for a gang that could not start on the empty cluster beside its master."""
    if not books.classes:
        return
    needs = []
    for position, stage in enumerate(job.stages):
        if not stage.together:
            continue
        place = f"stages[{position}].gang"
        need = _need_of_stage(books, stage)
        needs.append(need)
        if next(_classes_left_room(books, [need]), None) is None:
            most = most_of(need, capacity_of(books))
            room = f"room for {most}" if most < stage.tasks else "room for them or the master"
            raise NoRoomError(
                place,
                f"the {stage.tasks} tasks of stage {stage.name!r} start together, and beside its "
                f"master even an empty cluster could not hold them: it has {room}",
            )
        _check_queue(books, tree, queue, need.total + books.master_demand, place, stage)
    if needs and next(_classes_left_room(books, needs), None) is None:
        raise NoRoomError("stages", "no node could hold the job's master beside each of its gangs")


def spoils(books: Books, app: App, node: Node) -> bool:
    """Return whether the application's master on this node would obstruct its own gangs."""
    needs = [_need_of_stage(books, s) for s in app.job.stages if s.together]
    if not needs:
        return False
    good = set(_classes_left_room(books, needs))
    key = (node.capacity, int(books.ledger.nodes.labels[node.slot]))
    return bool(good) and key not in good


def _classes_left_room(books: Books, needs: Sequence[Need]) -> Iterator[NodeClass]:
    """Yield classes of nodes on which a master leaves room for each need in an empty cluster."""
    capacity, master = capacity_of(books), books.master_demand
    for key in hosts(books):
        slot = next(
            node.slot
            for node in books.node_at
            if (node.capacity, int(books.ledger.nodes.labels[node.slot])) == key
            and books.ledger.nodes.up[node.slot]
        )
        left = capacity.copy()
        left[slot] -= master
        if (left[slot] < -TOLERANCE * capacity[slot]).any():
            continue
        if all(pack(need, left, capacity) is not None for need in needs):
            yield key


def _need_of_stage(books: Books, stage: Stage) -> Need:
    """Return what all tasks of a stage need together, on the nodes that are up."""
    n = books.ledger.node_count
    counts: dict[tuple[float, ...], int] = {}
    for index in range(stage.tasks) if stage.overrides else (0,):
        demand = books.types.vector(stage.demand_of(index))
        counts[demand] = counts.get(demand, 0) + (1 if stage.overrides else stage.tasks)
    usable = books.ledger.nodes.up[:n] & labelled(books, stage.label)
    return Need(
        np.array(list(counts), dtype=np.float64).reshape(len(counts), len(books.types)),
        np.array(list(counts.values()), dtype=np.int64),
        np.array([usable] * len(counts)),
        np.zeros((len(counts), n), dtype=np.int64),
    )


def _check_queue(
    books: Books, tree: QueueTree, queue: int, demand: Floats, place: str, stage: Stage
) -> None:
    """Raise unless a gang stays, with its master, within its queues' and its user's limits."""
    total = books.ledger.total
    for at in tree.chains[queue]:
        most = np.full(len(total), np.inf)
        if tree.max_capacity[at] < 1:
            most = tree.max_capacity[at] * total
        if at == queue and np.isfinite(tree.user_limit_factor[at]):
            most = np.minimum(most, tree.capacity[at] * tree.user_limit_factor[at] * total)
        for r in np.flatnonzero(demand > most * (1 + TOLERANCE)).tolist():
            raise NoRoomError(
                place,
                f"the {stage.tasks} tasks of stage {stage.name!r} start together and need "
                f"{demand[r]:g} {books.types.names[r]} with their master; queue {tree.paths[at]} "
                f"and its users may hold {most[r]:g}",
            )


# -- packing ---------------------------------------------------------------------------------------


def pack(need: Need, free: Floats, capacity: Floats) -> Ints | None:
    """Return how many of each row go on each node, shape (k, n), so that all fit.

    None if no way was found. Exact for one row. Several are tried largest first, by several
    measures of large, on the emptiest nodes first and on the fullest ones.
    """
    k = len(need.wanted)
    if k == 0 or not _may_fit(need, free, capacity):
        return None
    scale = np.where(capacity.max(axis=0) > 0, capacity.max(axis=0), 1.0)
    size = need.demand / scale
    room = need.usable.sum(axis=1)
    keys = [size.max(axis=1), size.sum(axis=1), *size.T] if k > 1 else [size.max(axis=1)]
    near = [need.far, np.zeros_like(need.far)] if k > 1 and need.far.any() else [need.far]
    for far in near:
        tried: set[tuple[int, ...]] = set()
        for key in keys:
            order = tuple(np.lexsort((-key, room)).tolist())
            if order in tried:
                continue
            tried.add(order)
            for emptiest in (True, False) if k > 1 else (True,):
                placed = _place(need._replace(far=far), order, free, capacity, scale, emptiest)
                if (placed.sum(axis=1) == need.wanted).all():
                    return placed
    return None


def _place(
    need: Need, order: Sequence[int], free: Floats, capacity: Floats, scale: Floats, emptiest: bool
) -> Ints:
    """Place rows one after the other, each on the nearest nodes first, as many as fit."""
    left = np.maximum(free, 0.0)
    placed = np.zeros(need.usable.shape, dtype=np.int64)
    for row in order:
        room = _room(need.demand[row], left, capacity, int(need.wanted[row]))
        room[~need.usable[row]] = 0
        fullness = (left / scale).sum(axis=1)
        nodes = np.lexsort((-fullness if emptiest else fullness, need.far[row]))
        before = np.cumsum(room[nodes]) - room[nodes]
        placed[row, nodes] = np.clip(need.wanted[row] - before, 0, room[nodes])
        left = np.maximum(left - placed[row][:, None] * need.demand[row], 0.0)
    return placed


def _room(demand: Floats, free: Floats, capacity: Floats, most: int) -> Ints:
    """Return how many containers of a demand fit on each node, at most `most`."""
    count = np.full(len(free), most, dtype=np.int64)
    copies_on(demand, free, capacity, count)
    return count


def _may_fit(need: Need, free: Floats, capacity: Floats) -> bool:
    """Return by a quick check whether all may fit: in sum, and every row by itself."""
    some = need.usable.any(axis=0)
    room = (np.maximum(free, 0.0) + TOLERANCE * capacity)[some].sum(axis=0)
    if (need.total > room).any():
        return False
    return all(
        int(
            _room(need.demand[row], np.maximum(free, 0.0), capacity, int(need.wanted[row]))[
                need.usable[row]
            ].sum()
        )
        >= need.wanted[row]
        for row in range(len(need.wanted))
    )


def most_of(need: Need, capacity: Floats) -> int:
    """Return how many of the containers could be placed on empty nodes at once, by one try."""
    scale = np.where(capacity.max(axis=0) > 0, capacity.max(axis=0), 1.0)
    order = np.argsort(-(need.demand / scale).max(axis=1), kind="stable").tolist()
    placed = int(_place(need, order, capacity, capacity, scale, True).sum())
    return min(placed, int(need.wanted.sum()))


# -- nodes -----------------------------------------------------------------------------------------


def free_of(books: Books) -> Floats:
    """Return what each node has left, shape (n, d)."""
    n = books.ledger.node_count
    return np.asarray(np.maximum(books.ledger.nodes.available[:n], 0.0))


def capacity_of(books: Books) -> Floats:
    """Return what each node has, shape (n, d)."""
    return np.asarray(books.ledger.nodes.capacity[: books.ledger.node_count])


def distances(books: Books, nodes: Sequence[str], racks: Sequence[str]) -> Ints:
    """Return NODE_LOCAL, RACK_LOCAL or REMOTE of each node for a preference, shape (n,)."""
    n = books.ledger.node_count
    if not nodes and not racks:
        return np.full(n, NODE_LOCAL, dtype=np.int64)
    found = np.full(n, REMOTE, dtype=np.int64)
    named = {books.nodes[name].slot for name in nodes if name in books.nodes}
    near = {*racks, *(books.node_at[slot].rack for slot in named)}
    for slot, node in enumerate(books.node_at):
        if slot in named:
            found[slot] = NODE_LOCAL
        elif node.rack in near:
            found[slot] = RACK_LOCAL if nodes else NODE_LOCAL
    return found
