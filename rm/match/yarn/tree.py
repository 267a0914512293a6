"""The queues of a cluster as the walk keeps them: fractions in single precision, as in YARN."""

from rm.ledger.queues import QueueTree
from rm.match.yarn.amounts import single
from rm.match.yarn.books import InPartition, Leaf, Queue
from rm.match.yarn.rules import Rules
from weft.model.queues import QueueSpec


def queues_of(tree: QueueTree, rules: Rules) -> list[Queue]:
    """Return the queues of a tree by slot, parents first."""
    labels = sorted({label for _, spec in tree.specs for label in spec.labels})
    made: list[Queue] = []
    for slot, (path, spec) in enumerate(tree.specs):
        above = int(tree.parent[slot])
        parent = made[above] if above >= 0 else None
        queue = Queue(slot, path, parent) if spec.children else Leaf(slot, path, parent)
        _describe(queue, spec, rules, labels)
        made.append(queue)
    return made


def _describe(queue: Queue, spec: QueueSpec, rules: Rules, labels: list[str]) -> None:
    none = rules.calculator.none
    queue.by.append(InPartition(none, _fraction(spec.capacity), _fraction(spec.max_capacity)))
    for label in labels:
        least, most = (1.0, 1.0) if queue.parent is None else spec.labels.get(label, (0.0, 0.0))
        queue.by.append(InPartition(none, _fraction(least), _fraction(most)))
    if queue.parent is not None and (spec.labels or queue.parent.labels is not None):
        queue.labels = frozenset(spec.labels)
    queue.priority = spec.priority
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
