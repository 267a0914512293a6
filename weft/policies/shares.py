"""Which guarantee a queue has in which member: a pure function of what the members report.

An operator guarantees a queue a part of the whole cluster, and its work may lie in one member. So
each member guarantees the queue what it wants there, as far as its part of the whole reaches: the
sum over the members stays, and so does the sum over a member's queues. The tree of a member keeps
both numbers (`QueueSpec.whole_capacity`), so whoever begins anew finds what the operator said.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from weft.model.dag import Floats
from weft.model.queues import QueueSpec, as_set
from weft.protocol.requests import ClusterMetrics, QueueReport

# The guarantees are looked at so often, s.
SHARES_S = 5.0
# Of its guarantee a queue keeps this part in each member, in the proportion of their sizes, so that
# what comes to another member begins at once.
FLOOR = 0.01
# Less than this part of its guarantee, gained or gone astray, is not worth a change.
STEP = 0.01
# Where this part of its guarantee lies elsewhere than what it wants, its jobs in one member wait
# for those in another one, though it gets all of it.
MISPLACED = 0.1
# A member of which less is wanted gives everybody all that they ask.
CONTENDED = 0.95
# After so many rounds whoever gets least of what he wants gets all but 1 % of what he could.
_ROUNDS = 200


@dataclass(frozen=True, slots=True)
class Member:
    """What is known of a member that is there.

    `wanted` is by a queue's path what it holds and asks, the dominant share of the member; `size`
    is the member's part of the whole cluster, on any scale.
    """

    tree: QueueSpec
    wanted: Mapping[str, float]
    size: float


def shared(members: Sequence[Member]) -> list[QueueSpec]:
    """Return the trees that the members are to have from now on, most often those that they have.

    Nothing changes unless a queue gains by it in members that are contended what `STEP` says, its
    guarantee lies wrong there (`MISPLACED`), or its sum over the members is another one. Members of
    which an operator said different things, as not all have heard of it yet, keep what they have.
    """
    trees = [one.tree for one in members]
    sizes = np.array([one.size for one in members])
    if not sizes.sum() > 0:
        return trees
    sizes = sizes / sizes.sum()
    said = whole(trees[0])
    if any(whole(tree) != said for tree in trees[1:]):
        return trees
    paths = [path for path, _ in said.walk()]
    wanted = np.array([[one.wanted.get(path, 0.0) for one in members] for path in paths]) * sizes
    before = np.array([_absolute(tree, paths) for tree in trees]).T * sizes
    guaranteed = np.array(_absolute(said, paths))
    astray = np.abs(before.sum(axis=1) - guaranteed) > STEP * guaranteed + 1e-9
    contended = wanted[0] >= CONTENDED * sizes
    if not (astray.any() or contended.any()):
        return trees
    parts = dict(_level(said, said.name, sizes, dict(zip(paths, wanted, strict=True))))
    after_trees = [_with_parts(tree, parts, at) for at, tree in enumerate(trees)]
    after = np.array([_absolute(tree, paths) for tree in after_trees]).T * sizes
    gains = (np.minimum(after, wanted) - np.minimum(before, wanted))[:, contended].sum(axis=1)
    gained = gains > STEP * guaranteed + 1e-9
    apart = np.abs(after - before)[:, contended].sum(axis=1) / 2
    misplaced = apart > MISPLACED * guaranteed + 1e-9
    return after_trees if astray.any() or gained.any() or misplaced.any() else trees


def wanted_of(report: QueueReport, total: Mapping[str, float]) -> dict[str, float]:
    """Return by path what queues hold and ask, the dominant share of a member's capacity."""
    amounts = (
        (report.allocated.get(name, 0.0) + report.asked.get(name, 0.0)) / of
        for name, of in total.items()
        if of > 0
    )
    found = {report.name: max(amounts, default=0.0)}
    for child in report.children:
        found |= wanted_of(child, total)
    return found


def sizes_of(found: Sequence[ClusterMetrics]) -> list[float]:
    """Return which part of the whole cluster each member is, the mean over the resources."""
    total = Counter[str]()
    for one in found:
        total.update(one.capacity)
    some = {name: amount for name, amount in total.items() if amount}
    if not some:
        return [1.0 / len(found)] * len(found)
    parts = [sum(one.capacity.get(name, 0.0) / some[name] for name in some) for one in found]
    return [part / len(some) for part in parts]


def whole(tree: QueueSpec) -> QueueSpec:
    """Return the queues as the operator set them: with their guarantees over all members.

    Queues that a member made at a submission (`Creates`) are its own, and are left out.
    """
    return _kept(as_set(tree))


def _kept(queue: QueueSpec) -> QueueSpec:
    below = tuple(_kept(child) for child in queue.children if child.expires_s < 0)
    return queue if below == queue.children else replace(queue, children=below)


def moves(tree: QueueSpec) -> bool:
    """Return whether there are guarantees that may move between members."""
    return any(_may_move(queue) for _, queue in tree.walk())


def _may_move(queue: QueueSpec) -> bool:
    """Return whether what is below a queue is guaranteed by fractions that nothing else changes."""
    below = queue.children
    return len(below) > 1 and queue.creates is None and not any(one.absolute for one in below)


def _guarantee(queue: QueueSpec) -> float:
    # Nobody is guaranteed more than he may hold.
    return min(queue.capacity, queue.max_capacity)


def _absolute(tree: QueueSpec, paths: Sequence[str]) -> list[float]:
    """Return what a member guarantees queues, as fractions of the member."""
    found: dict[str, float] = {}
    for path, queue in tree.walk():
        found[path] = found.get(path.rpartition(".")[0], 1.0) * _guarantee(queue)
    return [found[path] for path in paths]


def _level(
    queue: QueueSpec, path: str, room: Floats, wanted: Mapping[str, Floats]
) -> Iterator[tuple[str, Floats]]:
    """Yield by path which part of the queue above each member guarantees a queue (members,).

    `room` is what the members guarantee `queue`, as `wanted` a fraction of the whole cluster.
    """
    below = queue.children
    if not below:
        return
    fractions = np.array([_guarantee(child) for child in below])
    amounts = np.outer(fractions, room)
    if _may_move(queue) and room.sum() > 0:
        asked = np.array([wanted[f"{path}.{child.name}"] for child in below])
        most = np.outer([child.max_capacity for child in below], room)
        amounts = _spread(fractions * room.sum(), asked, room, most)
    for child, fraction, amount in zip(below, fractions, amounts, strict=True):
        own = f"{path}.{child.name}"
        if _may_move(queue):
            part = np.divide(amount, room, out=np.full(len(room), fraction), where=room > 0)
            # Rounded up, it would be more than a tree of queues may say.
            yield own, np.minimum(part, 1.0)
        yield from _level(child, own, amount, wanted)


def _spread(guaranteed: Floats, asked: Floats, room: Floats, most: Floats) -> Floats:
    """Return who is guaranteed how much where (queues, members).

    `guaranteed` (queues,) are the sums over members, `room` (members,) what they divide: all of it,
    but for what is guaranteed to nobody. `asked` and `most` are what queues want and may hold. One
    that may not hold more in a member than the members' sizes give it has that in each of them.
    """
    even = np.outer(guaranteed, room / room.sum())
    free = guaranteed > 0
    while free.any():
        found = even.copy()
        # What nobody is guaranteed is like a queue that asks nothing.
        nobody = room.sum() - guaranteed.sum()
        left = even[free].sum(axis=0) + max(0.0, nobody) * room / room.sum()
        needs = _needs(
            guaranteed[free], np.minimum(asked[free], np.minimum(most[free], left)), left
        )
        # What is left of the guarantees and of the members is divided by both.
        owed, rest = guaranteed[free] - needs.sum(axis=1), left - needs.sum(axis=0)
        found[free] = needs + np.outer(owed, rest / rest.sum() if rest.sum() > 0 else 0.0 * rest)
        found[free] = (1 - FLOOR) * found[free] + FLOOR * even[free]
        over = free & (found > most * (1 + 1e-9)).any(axis=1)
        if not over.any():
            return found
        free &= ~over
    return even


def _needs(guaranteed: Floats, asked: Floats, room: Floats) -> Floats:
    """Return how much of what they ask queues get where (queues, members), nobody over anything.

    Whoever gets the least part of what he could have gets as much as possible, then the next, in
    the limit: in each round all raise in the same proportion what they have, up to what they ask
    and are guaranteed, and what is too much for a member is taken back in one proportion.
    """
    target = np.minimum(guaranteed, asked.sum(axis=1))
    got = asked.astype(np.float64)
    for _ in range(_ROUNDS):
        before = got
        got = np.minimum(got * _over(target, got.sum(axis=1))[:, None], asked)
        got = got * np.minimum(1.0, _over(room, got.sum(axis=0)))
        if np.allclose(got, before, rtol=0.0, atol=1e-9):
            break
    return got


def _over(amounts: Floats, of: Floats) -> Floats:
    return np.divide(amounts, of, out=np.ones_like(amounts), where=of > 0)


def _with_parts(
    queue: QueueSpec, parts: Mapping[str, Floats], member: int, path: str = ""
) -> QueueSpec:
    """Return a member's tree with these guarantees."""
    path = f"{path}.{queue.name}" if path else queue.name
    below = tuple(_with_parts(child, parts, member, path) for child in queue.children)
    found = (
        queue
        if all(map(lambda a, b: a is b, below, queue.children))
        else replace(queue, children=below)
    )
    if path not in parts:
        return found
    said = queue.capacity if queue.whole_capacity < 0 else queue.whole_capacity
    return replace(found, capacity=float(parts[path][member]), whole_capacity=said)
