"""Relations between two runs: what changes nothing, and what makes nobody wait much longer."""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

from testkit.meetings.drawn import Meeting
from testkit.meetings.evidence import Evidence
from weft.model.cluster import ClusterSpec, NodeSpec
from weft.model.job import Job, MasterSpec, Preference, Stage
from weft.model.queues import QueueSpec
from weft.model.recording import Recording
from weft.model.resources import Vector

# A power of two changes no digit.
FACTOR = 1024.0
# What is done so often is done at least once where nothing but an idle node is more.
OFTEN = 8
# One wait may grow by the first factor and so many seconds, by what the longest container lasts, or
# to the longest of its queue: of like jobs another one may come last. All may grow by the second
# factor on average.
LONGER_FACTOR, LONGER_S = 2.0, 120.0
MEAN_FACTOR, MEAN_LONGER_S = 1.25, 6.0


class Relation(NamedTuple):
    """Makes the other meeting; None where it does not apply.

    `same`: nothing may change at all. It is always tried where a row has its `topic`.
    """

    other: Callable[[Meeting], Meeting | None]
    same: bool = True
    topic: Mapping[str, str] = {}


def compare(name: str, one: Evidence, other: Evidence) -> str:
    """Return how a relation is broken; empty: it holds."""
    if name == TOGETHER or RELATIONS[name].same:
        return _first_difference(one, other)
    if name == USELESS_NODE and _overbooked(one) >= OFTEN and not _overbooked(other):
        return f"nothing is overbooked any more [{_overbooked(one)} were]"
    after = {end.job.name: end for end in other.jobs}
    longer_s = max([LONGER_S, *one.lifetimes_s()])
    longest_s: dict[str, float] = defaultdict(float)
    for end in one.jobs:
        queue = end.job.queue
        longest_s[queue] = max(longest_s[queue], end.finish_s - end.job.arrival_s)
    sums = [0.0, 0.0]
    for end in one.jobs:
        later = after.get(end.job.name)
        if later is None or end.state != "FINISHED" or end.job.lifetime_s:
            continue
        before_s, after_s = (each.finish_s - each.job.arrival_s for each in (end, later))
        if later.state != "FINISHED":
            return f"a job does not end any more [{end.job.name}: {later.state}]"
        if after_s > max(LONGER_FACTOR * before_s + longer_s, longest_s[end.job.queue]):
            return f"a job waits much longer [{end.job.name}: {before_s:.0f} s, now {after_s:.0f}]"
        sums[0], sums[1] = sums[0] + before_s, sums[1] + after_s
    if sums[1] > MEAN_FACTOR * sums[0] + MEAN_LONGER_S * len(one.jobs):
        return f"jobs wait longer [{sums[0]:.0f} s in sum, now {sums[1]:.0f}]"
    return ""


def _overbooked(seen: Evidence) -> int:
    """Return how many tries took more of what may be promised twice than their node had left."""
    found, names = 0, seen.cluster.types.names
    for name in set(seen.overbooked) & set(names):
        held: dict[int, list[tuple[float, float]]] = defaultdict(list)
        for one in sorted(seen.starts, key=lambda start: start.start_s):
            job = seen.jobs[one.job].job
            need = 0.0
            if job.master is None:
                need = job.stages[one.stage].demand_of(one.task).get(name, 0.0)
            now = [(end_s, amount) for end_s, amount in held[one.node] if end_s > one.start_s]
            held[one.node] = [*now, (one.end_s, need)]
            most = seen.cluster.nodes[one.node].capacity[names.index(name)]
            found += need > 0 and sum(amount for _, amount in now) + need > most * (1 + 1e-9)
    return found


def _first_difference(one: Evidence, other: Evidence) -> str:
    ends = [[(end.state, round(end.finish_s, 5)) for end in seen.jobs] for seen in (one, other)]
    for a, b in zip(one.starts, other.starts, strict=False):
        if a[:5] != b[:5] or any(abs(x - y) > 1e-4 for x, y in zip(a[5:], b[5:], strict=True)):
            return f"a start is another one [{tuple(a)}, now {tuple(b)}]"
    if len(one.starts) != len(other.starts):
        return f"there are more or fewer starts [{len(one.starts)}, now {len(other.starts)}]"
    return "" if ends[0] == ends[1] else f"a job ends otherwise [{ends[0]}, now {ends[1]}]"


# -- the other run ---------------------------------------------------------------------------------


def _scaled(resource: str) -> Callable[[Meeting], Meeting | None]:
    def other(meeting: Meeting) -> Meeting | None:
        names = meeting.cluster.types.names
        if resource not in names:
            return None
        place = names.index(resource)

        def more(amounts: Mapping[str, float]) -> dict[str, float]:
            return {k: v * FACTOR if k == resource else v for k, v in amounts.items()}

        def larger(capacity: Vector) -> Vector:
            return tuple(v * FACTOR if r == place else v for r, v in enumerate(capacity))

        nodes = tuple(replace(n, capacity=larger(n.capacity)) for n in meeting.cluster.nodes)
        least = {"vcores": 0.001, "memory_mb": 1.0}
        own = {"vcores": 0.1, "memory_mb": 256.0}
        manager = {**meeting.manager, "min_demand": more(least), "master_demand": more(own)}
        return replace(
            meeting,
            cluster=replace(meeting.cluster, nodes=nodes),
            jobs=tuple(_with_demands(job, more) for job in meeting.jobs),
            manager=manager,
        )

    return other


def _with_demands(job: Job, more: Callable[[Mapping[str, float]], Mapping[str, float]]) -> Job:
    def stage(one: Stage) -> Stage:
        own = tuple(
            replace(each, demand=None if each.demand is None else more(each.demand))
            for each in one.overrides
        )
        return replace(one, demand=more(one.demand), overrides=own)

    if job.master is not None:
        recorded = job.master.recorded or Recording(0.0)
        requests = tuple(replace(one, demand=more(one.demand)) for one in recorded.requests)
        master = MasterSpec(more(job.master.demand), recorded=replace(recorded, requests=requests))
        return replace(job, master=master)
    return replace(job, stages=tuple(map(stage, job.stages)))


def _renamed(meeting: Meeting) -> Meeting:
    """Every name another one, and in the opposite order."""

    def new(name: str) -> str:
        return "".join(chr(219 - ord(c)) if "a" <= c <= "z" else c for c in name)

    def digits(name: str) -> str:
        return "".join(chr(105 - ord(c)) if c.isdigit() else c for c in name)

    def node(name: str) -> str:
        return digits(new(name))

    def place(prefer: Preference) -> Preference:
        return Preference(tuple(map(node, prefer.nodes)), tuple(map(node, prefer.racks)))

    def stage(one: Stage) -> Stage:
        return replace(
            one,
            name=node(one.name),
            parents=tuple(replace(edge, stage=node(edge.stage)) for edge in one.parents),
            label=new(one.label),
            prefer=place(one.prefer),
        )

    def job(one: Job) -> Job:
        common = replace(one, queue=new(one.queue), user=new(one.user), name=node(one.name))
        if one.master is None:
            return replace(common, stages=tuple(map(stage, one.stages)))
        recorded = one.master.recorded or Recording(0.0)
        requests = tuple(
            replace(r, nodes=tuple(map(node, r.nodes)), racks=tuple(map(node, r.racks)))
            for r in recorded.requests
        )
        return replace(
            common, master=replace(one.master, recorded=replace(recorded, requests=requests))
        )

    def queue(one: QueueSpec) -> QueueSpec:
        name = one.name if one.name == "root" else new(one.name)
        return replace(one, name=name, children=tuple(map(queue, one.children)))

    nodes = tuple(
        replace(n, node_id=node(n.node_id), rack=node(n.rack), labels=tuple(map(new, n.labels)))
        for n in meeting.cluster.nodes
    )
    cluster = ClusterSpec(meeting.cluster.types, nodes, queue(meeting.cluster.queues))
    return replace(meeting, cluster=cluster, jobs=tuple(map(job, meeting.jobs)))


def _with_cluster(
    change: Callable[[ClusterSpec], ClusterSpec],
) -> Callable[[Meeting], Meeting | None]:
    return lambda meeting: replace(meeting, cluster=change(meeting.cluster))


def _single_child(cluster: ClusterSpec) -> ClusterSpec:
    """Put the whole tree below one more queue, and each leaf by itself below another."""

    def below(queue: QueueSpec) -> QueueSpec:
        children = tuple(map(below, queue.children))
        if children:
            return replace(queue, children=children)
        alone = replace(queue, capacity=1.0, max_capacity=1.0)
        own = QueueSpec(
            f"{queue.name}_", queue.capacity, queue.max_capacity, max_am_share=queue.max_am_share
        )
        return replace(own, children=(alone,))

    tree = below(cluster.queues)
    alone = QueueSpec("only", children=tree.children)
    return replace(cluster, queues=replace(tree, children=(alone,)))


def _limits_of_all(cluster: ClusterSpec) -> ClusterSpec:
    """Limits of 100 %, spelled out: what a queue may hold anyway."""

    def own(queue: QueueSpec, above: float) -> QueueSpec:
        # However large a part of no guarantee at all is nothing.
        guarantee = above * queue.capacity
        return replace(
            queue,
            user_limit_factor=min(queue.user_limit_factor, 1e9 if guarantee else math.inf),
            max_applications=queue.max_applications or 100_000,
            children=tuple(own(child, guarantee) for child in queue.children),
        )

    return replace(cluster, queues=own(cluster.queues, 1.0))


def _labelled(meeting: Meeting) -> Meeting | None:
    """Give all nodes a label that all tasks need."""
    if any(spec.labels for spec in meeting.cluster.nodes):
        return None
    if any(job.master is not None for job in meeting.jobs):
        return None
    nodes = tuple(replace(spec, labels=("all",)) for spec in meeting.cluster.nodes)
    jobs = tuple(
        replace(job, stages=tuple(replace(stage, label="all") for stage in job.stages))
        for job in meeting.jobs
    )
    return replace(meeting, cluster=replace(meeting.cluster, nodes=nodes), jobs=jobs)


def _plain_ones(meeting: Meeting) -> Meeting | None:
    """Gangs of one task, as plain tasks."""
    if meeting.row["gang"] != "one":
        return None
    jobs = tuple(
        replace(
            job,
            stages=tuple(
                replace(stage, gang=stage.gang and stage.tasks > 1) for stage in job.stages
            ),
        )
        for job in meeting.jobs
    )
    return replace(meeting, jobs=jobs)


def _far_lifetime(meeting: Meeting) -> Meeting:
    jobs = tuple(
        job if job.lifetime_s else replace(job, lifetime_s=90_000.0) for job in meeting.jobs
    )
    return replace(meeting, jobs=jobs)


def _one_more(meeting: Meeting, labels: tuple[str, ...]) -> ClusterSpec:
    nodes = meeting.cluster.nodes
    # Nobody sees how fast a node is: a slow one could draw in all that runs one after another.
    spare = NodeSpec(
        f"n{len(nodes) + 1}",
        nodes[0].capacity,
        nodes[0].rack,
        labels,
        speed=max(node.speed for node in nodes),
    )
    return replace(meeting.cluster, nodes=(*nodes, spare))


def _useless_node(meeting: Meeting) -> Meeting | None:
    """One more node that nobody may use."""
    return replace(meeting, cluster=_one_more(meeting, ("nobody",)))


def _more_room(meeting: Meeting) -> Meeting:
    return replace(meeting, cluster=_one_more(meeting, ()))


def _emptied(meeting: Meeting) -> Meeting | None:
    """Without the jobs of one queue."""
    queues = sorted({job.queue for job in meeting.jobs})
    if len(queues) < 2:
        return None
    jobs = tuple(job for job in meeting.jobs if job.queue != queues[0])
    return replace(meeting, jobs=jobs)


def _idle_preemption(meeting: Meeting) -> Meeting | None:
    """Preemption for queues, where there is one queue."""
    if meeting.row["tree"] != "one" or meeting.row["preemption"] != "off":
        return None
    return replace(meeting, manager={**meeting.manager, "preemption": True})


USELESS_NODE = "there is a node that nobody may use"
TOGETHER = "all is done at once that changes nothing"
_UNITS = ("cores are counted in other units", "memory is counted in other units")
RELATIONS: dict[str, Relation] = {
    _UNITS[0]: Relation(_scaled("vcores")),
    _UNITS[1]: Relation(_scaled("memory_mb")),
    "everything has another name": Relation(_renamed),
    "queues have a single child": Relation(_with_cluster(_single_child)),
    "limits of 100 % are spelled out": Relation(_with_cluster(_limits_of_all)),
    "a lifetime is never reached": Relation(_far_lifetime),
    "a gang of one is a task": Relation(_plain_ones),
    "all nodes have the label that all need": Relation(_labelled),
    "one queue needs no preemption": Relation(_idle_preemption),
    USELESS_NODE: Relation(
        _useless_node, same=False, topic={"matcher": "graphene", "overbook": "network"}
    ),
    "there is one more node": Relation(_more_room, same=False),
    "a queue is emptied": Relation(_emptied, same=False),
}


def others(meeting: Meeting, most: int) -> list[tuple[str, Meeting]]:
    """Return the other meetings of `most` relations; of all that apply where `most` is as many.

    Of fewer, every second meeting is the one of all relations at once that change nothing, the
    others are of one in turn that makes nobody wait much longer. Those whose topic the row has
    come beside them.
    """
    row, found = meeting.row, []
    if row["faults"] != "none" or most < 1:
        return []
    for name, relation in RELATIONS.items():
        other = relation.other(meeting)
        if other is not None:
            found.append((name, other))
    together = (TOGETHER, _together(meeting))
    if len(found) <= most:
        return [*found, together]

    def on_topic(name: str) -> bool:
        topic = RELATIONS[name].topic
        return bool(topic) and all(row[key] == value for key, value in topic.items())

    longer = [one for one in found if not RELATIONS[one[0]].same]
    turn = meeting.seed // 2 % len(longer)
    chosen = [together] if meeting.seed % 2 else [longer[turn]]
    return [one for one in found if on_topic(one[0]) and one not in chosen] + chosen


def _together(meeting: Meeting) -> Meeting:
    """Return what all relations make of a meeting that change nothing; of units one is another."""
    units = _UNITS[meeting.seed // 2 % len(_UNITS)]
    for name, relation in RELATIONS.items():
        if relation.same and (name == units or name not in _UNITS):
            meeting = relation.other(meeting) or meeting
    return meeting
