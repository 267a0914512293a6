"""Queues that are made at a submission, and go when they were empty for long enough.

After YARN's auto-queue-creation-v2 (CapacitySchedulerQueueManager.createAutoQueue), and the queues
that the Fair Scheduler makes. The journal names them; what they are like, the queues above say.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import lru_cache, partial

from rm.ledger.queues import QueueTree
from weft.model.errors import InputError
from weft.model.queues import DEPTH_MAX, QUEUES_MAX, Creates, QueueSpec, read_queue_name

# A queue of the Fair Scheduler that nobody declared goes at the next look, once it is empty.
_FAIR = Creates(depth=50, most=10_000, expires_s=10.0)
_USUAL = QueueSpec("", 0.0, weight=1.0)


def creatable(tree: QueueTree, path: str) -> bool:
    """Return whether a queue that is not there may be made at a path, as far as its place goes."""
    above = path.rpartition(".")[0]
    slot = tree.slot_of(above)
    if slot < 0:
        slot = tree.slot_of(above.rpartition(".")[0])
    if slot < 0:
        return False
    queue, root = tree.specs[slot][1], tree.root
    return _terms_of(root, queue, leaf=bool(tree.is_leaf[slot]), fair=_is_fair(root)) is not None


@lru_cache(maxsize=1)
def grown(tree: QueueTree, path: str) -> QueueTree:
    """Return a tree in which there is a queue of a path; raises InputError where none is made.

    What was made last is kept, as who may submit is asked before the queue is wanted.
    """
    if tree.slot_of(path) >= 0:
        return tree
    top = _Place(tree.root)
    _Growth(top, fair=_is_fair(tree.root)).make(path)
    return QueueTree(top.queue)


def with_made(root: QueueSpec, paths: Iterable[str]) -> QueueTree:
    """Return a tree with the leaf queues that were made before, as far as it still makes such."""
    top = _Place(root)
    growth = _Growth(top, fair=_is_fair(root))
    for path in paths:
        try:
            growth.make(path)
        except InputError:
            continue
    return QueueTree(top.queue)


class _Place:
    """A queue and those below it, to which more come: many at the cost of few."""

    __slots__ = ("_grown", "_said", "below", "weighted")

    def __init__(self, said: QueueSpec) -> None:
        self._said, self._grown = said, False
        self.below = {one.name: _Place(one) for one in said.children}
        self.weighted = all(one.weight for one in said.children)

    def __len__(self) -> int:
        """Return how many queues there are here and below."""
        return 1 + sum(map(len, self.below.values()))

    @property
    def said(self) -> QueueSpec:
        """The queue as it was before; what is below it may be more by now."""
        return self._said

    @property
    def queue(self) -> QueueSpec:
        """The queue as it is now; new ones change what those beside them have by weight."""
        below = tuple(one.queue for one in self.below.values())
        if self._grown:
            return _by_weight(replace(self._said, children=below))
        same = all(new is old for new, old in zip(below, self._said.children, strict=True))
        return self._said if same else replace(self._said, children=below)

    def add(self, made: QueueSpec) -> "_Place":
        """Put a queue below this one."""
        self._grown = True
        place = self.below[made.name] = _Place(made)
        return place


class _Growth:
    """A tree in which queues are made, one by one."""

    def __init__(self, top: _Place, *, fair: bool) -> None:
        self._top, self._fair, self._count = top, fair, len(top)

    def make(self, path: str) -> None:
        """Make a leaf queue, and those above it, unless it is there; raises InputError."""
        first, *names = path.split(".")
        upper = said = self._top
        at, said_at = 0, 0
        while at < len(names) and names[at] in upper.below:
            upper, at = upper.below[names[at]], at + 1
            if upper.said.expires_s < 0:
                said, said_at = upper, at
        if first != self._top.said.name:
            raise InputError("queue", f"queue {path} does not lie below {self._top.said.name}")
        if at == len(names):
            return
        above = ".".join([first, *names[:at]])
        terms = self._terms(upper)
        if terms is None:
            raise InputError("queue", f"no queue is made below {above}")
        if (deep := len(names) - said_at) > (most := (self._terms(said) or terms).depth):
            whole = ".".join([first, *names[:said_at]])
            raise InputError("queue", f"queue {path} lies {deep} below {whole}, at most {most}")
        for name in names[at:]:
            read_queue_name(name, "queue")
        more = len(names) - at
        if len(names) > DEPTH_MAX or self._count + more > QUEUES_MAX:
            text = f"a cluster has at most {QUEUES_MAX} queues, at most {DEPTH_MAX} below its root"
            raise InputError("queue", text)
        if (beside := len(upper.below)) >= terms.most:
            raise InputError("queue", f"queue {above} has {beside} queues below it, the most")
        if not self._fair and not upper.weighted:
            raise InputError(
                "queue", f"not all queues below {above} have a weight, so none is made"
            )
        upper.add(_made(names[at:], terms))
        self._count += more

    def _terms(self, place: _Place) -> Creates | None:
        """Return how queues are made below one, None if they are not."""
        return _terms_of(self._top.said, place.said, leaf=not place.below, fair=self._fair)


def without(root: QueueSpec, paths: Iterable[str]) -> QueueSpec:
    """Return a tree without some queues."""
    for path in paths:
        *upper, name = path.split(".")[1:]
        root = _changed(root, upper, partial(_less, name))
    return root


def _less(name: str, queue: QueueSpec) -> QueueSpec:
    return replace(queue, children=tuple(one for one in queue.children if one.name != name))


def made_in(tree: QueueTree) -> list[str]:
    """Return the paths of the leaf queues that were made, which those above them come with."""
    return [path for path, queue in tree.specs if queue.expires_s >= 0 and queue.is_leaf]


def makes_queues(tree: QueueTree) -> bool:
    """Return whether submissions may make queues."""
    return _is_fair(tree.root) or any(queue.creates is not None for _, queue in tree.specs)


def _is_fair(root: QueueSpec) -> bool:
    return root.placement is not None and root.placement.fair


def _terms_of(root: QueueSpec, queue: QueueSpec, *, leaf: bool, fair: bool) -> Creates | None:
    """Return how queues are made below one, None if they are not; a `leaf` has none below it."""
    if leaf and queue.creates is None:
        return None
    return (root.creates or _FAIR) if fair else queue.creates


def _made(names: list[str], terms: Creates) -> QueueSpec:
    """Return the queue of the first name, with those of the others below it."""
    name, *below = names
    like = (terms.parent if below else terms.leaf) or _USUAL
    own = like.creates or replace(terms, leaf=None, parent=None)
    return replace(
        like,
        name=name,
        weight=like.weight or 1.0,
        expires_s=terms.expires_s,
        creates=own if below else None,
        children=(replace(_made(below, own), capacity=1.0),) if below else (),
    )


def _changed(
    queue: QueueSpec, names: list[str], change: Callable[[QueueSpec], QueueSpec]
) -> QueueSpec:
    """Return a queue with a change at the end of a way down, and its capacities by weight."""
    if not names:
        return _by_weight(change(queue))
    below = tuple(
        _changed(one, names[1:], change) if one.name == names[0] else one for one in queue.children
    )
    return replace(queue, children=below)


def _by_weight(queue: QueueSpec) -> QueueSpec:
    """Return a queue whose weighted queues share what the others leave."""
    total = sum(one.weight for one in queue.children) or 1.0
    left = max(0.0, 1.0 - sum(one.capacity for one in queue.children if not one.weight))
    return replace(
        queue,
        children=tuple(
            replace(one, capacity=left * one.weight / total) if one.weight else one
            for one in queue.children
        ),
    )
