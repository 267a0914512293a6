"""One answer of several members': sums, and trees of queues over the whole cluster."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from weft.policies.shares import sizes_of
from weft.protocol.requests import ClusterMetrics, QueueReport


def metrics(found: Sequence[ClusterMetrics]) -> ClusterMetrics:
    """Return the counts and amounts of members together; the clock is the first one's."""
    return replace(
        found[0],
        nodes=_sum(one.nodes for one in found),
        apps=_sum(one.apps for one in found),
        capacity=_sum(one.capacity for one in found),
        allocated=_sum(one.allocated for one in found),
        use=_sum(one.use for one in found),
        containers_running=sum(one.containers_running for one in found),
        containers_pending=sum(one.containers_pending for one in found),
        labels=tuple(sorted({label for one in found for label in one.labels})),
        outstanding_s=sum(
            one.outstanding_s * weight for one, weight in zip(found, sizes_of(found), strict=True)
        ),
    )


def queues(
    found: Sequence[QueueReport],
    parts: Sequence[float],
    total: Mapping[str, float],
    numbers: Sequence[int],
) -> QueueReport:
    """Return a tree of queues whose shares are of the whole cluster.

    `parts` are the members' parts of it (`sizes_of`), `total` is its capacity, `numbers` are the
    members'. A queue that only some members have is there as well.
    """
    first = found[0]
    allocated = _sum(one.allocated for one in found)
    children: dict[str, list[tuple[QueueReport, float, int]]] = {}
    for one, part, number in zip(found, parts, numbers, strict=True):
        for child in one.children:
            children.setdefault(child.name, []).append((child, part, number))
    states = {one.state for one in found}
    return replace(
        first,
        capacity=_mean([one.capacity for one in found], parts),
        max_capacity=_mean([one.max_capacity for one in found], parts),
        used=max((allocated.get(name, 0.0) / of for name, of in total.items() if of), default=0.0),
        state=first.state if len(states) == 1 else "RUNNING",
        running_apps=sum(one.running_apps for one in found),
        pending_apps=sum(one.pending_apps for one in found),
        pending_containers=sum(one.pending_containers for one in found),
        max_applications=sum(one.max_applications for one in found),
        allocated=allocated,
        deficit=_mean([one.deficit for one in found], parts),
        children=tuple(
            queues(reports, own_parts, total, own_numbers)
            for rows in children.values()
            for reports, own_parts, own_numbers in [tuple(zip(*rows, strict=True))]
        ),
        asked=_sum(one.asked for one in found),
        members=tuple((number, one.capacity) for number, one in zip(numbers, found, strict=True)),
    )


def _mean(values: Sequence[float], parts: Sequence[float]) -> float:
    """Return a share of members as one of the whole; what a member does not have counts as 0."""
    return sum(value * part for value, part in zip(values, parts, strict=True))


def _sum(found: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    total: Counter[str] = Counter()
    for one in found:
        total.update(one)
    return dict(total)
