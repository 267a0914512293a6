"""The queues of a cluster as the walk keeps them: fractions in single precision, as in YARN."""

from collections.abc import Sequence

from rm.ledger.queues import QueueTree
from rm.match.yarn.amounts import single
from rm.match.yarn.books import InPartition, Leaf, Queue
from rm.match.yarn.rules import Rules
from weft.model.queues import QueueSpec


def labels_of(tree: QueueTree) -> list[str]:
    """Return the labels that queues of a tree name, in order."""
    return sorted({label for _, spec in tree.specs for label in spec.labels})


def queues_of(tree: QueueTree, rules: Rules, labels: Sequence[str]) -> list[Queue]:
    """Return the queues of a tree by slot, parents first; `labels` are those of the partitions.

    One that no queue names is open to all of them.
    """
    named = frozenset(labels_of(tree))
    made: list[Queue] = []
    for slot, (path, spec) in enumerate(tree.specs):
        above = int(tree.parent[slot])
        parent = made[above] if above >= 0 else None
        queue = Queue(slot, path, parent) if not spec.is_leaf else Leaf(slot, path, parent)
        _describe(queue, spec, rules, labels, named)
        made.append(queue)
    return made


def _describe(
    queue: Queue, spec: QueueSpec, rules: Rules, labels: Sequence[str], named: frozenset[str]
) -> None:
    none = rules.calculator.none
    # A weight is divided by the sum of the weights, in single precision and without a percentage.
    part = single if spec.weight else _fraction
    queue.by.append(InPartition(none, part(spec.capacity), _fraction(spec.max_capacity)))
    for label in labels:
        usual = (0.0, 0.0) if label in named else (0.0, 1.0)
        least, most = (1.0, 1.0) if queue.parent is None else spec.labels.get(label, usual)
        queue.by.append(InPartition(none, part(least), _fraction(most)))
    if queue.parent is not None and (spec.labels or queue.parent.labels is not None):
        queue.labels = frozenset(spec.labels) | (frozenset(labels) - named)
    queue.priority = spec.priority
    queue.most_running = spec.max_parallel_apps
    queue.made = spec.expires_s >= 0
    above = queue.parent
    for name, said in (
        ("keeps", spec.disable_preemption),
        ("keeps_inside", spec.disable_intra_queue_preemption),
    ):
        inherited = above is not None and getattr(above, name)
        setattr(queue, name, inherited if said is None else said)
    queue.respects = spec.order == "priority"
    if not spec.order and queue.parent is not None:
        queue.respects = queue.parent.respects
    if isinstance(queue, Leaf):
        queue.fair = spec.order if spec.order in ("fair", "weighted") else ""
        queue.user_limit = single(round(spec.user_limit * 100, 6))
        factor = spec.user_limit_factor
        queue.factor = -1.0 if factor == float("inf") else single(factor)
        queue.am_share = single(spec.max_am_share)
        queue.most_asked = rules.maximum_allocation


def _fraction(part: float) -> float:
    """Return a fraction as YARN has it from a percentage: both in single precision."""
    return single(single(round(part * 100, 9)) / 100.0)
