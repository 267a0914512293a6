"""A seed's workload and its swarm of faults: each seed switches kinds of faults on and off.

Swarms find more than a mean of everything: a kind that hides another's effect is absent in half of
them (Groce et al., "Swarm Testing", ISSTA 2012).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from am.ask.registry import HoldAsker
from am.ask.registry import asker as asker_named
from sim.case_generator import varied
from sim.faults import OF_ROUTER, Fault, FaultKind, Faults
from sim.network import LinkSettings
from sim.queue_cases import other_queues
from weft.model.cluster import ClusterSpec, cluster_from_text
from weft.model.job import Edge, EdgeKind, Job, Stage
from weft.model.json_types import Table
from weft.model.queues import QueueSpec
from weft.policies.presets import PRESETS, PROMISING

# All faults begin before.
HORIZON_S = 45.0
# The cluster of so many of the seeds has two members.
MEMBERS_SHARE = 0.1
# No preset has this asker, so this share of the seeds does.
ASKER_IN_NO_PRESET, OWN_ASKER_SHARE = "reuse", 0.08


@dataclass(frozen=True, slots=True)
class Case:
    """One run of the search: everything follows from it.

    `asker` is another than the preset's, `manager` and `master` are settings of this seed. The
    cluster may be divided into `members`.
    """

    seed: int
    preset: str
    prompt: bool
    cluster: ClusterSpec
    jobs: tuple[Job, ...]
    faults: Faults
    asker: str = ""
    manager: Table = field(default_factory=dict)
    master: Table = field(default_factory=dict)
    members: int = 1


def case(
    seed: int,
    preset: str = "",
    pace: str = "",
    faults: Faults | None = None,
    *,
    asker: str = "",
    plain: bool = False,
    members: int = 0,
) -> Case:
    """Return the case of a seed; what is given replaces the seed's own (`pace`: yarn, prompt).

    `asker` takes the place of the preset's; the one that no preset has is some seeds' own, where
    no preset is given. `plain`: without what `sim.case_generator` adds to it. `members` 0: the
    seed's own number, which is 1 where faults are given.
    """
    rng = np.random.default_rng([seed, 21])
    names = PROMISING
    own = names[int(rng.integers(len(names)))]
    prompt = bool(rng.random() < 0.5)
    cluster = _cluster(rng)
    jobs = _jobs(rng)
    chosen = preset or own
    if not preset and not asker and np.random.default_rng([seed, 26]).random() < OWN_ASKER_SHARE:
        asker = ASKER_IN_NO_PRESET
    drawn = faults is None
    if faults is None:
        nodes = [spec.node_id for spec in cluster.nodes]
        faults = swarm(np.random.default_rng([seed, 22]), nodes, len(jobs))
        if isinstance(asker_named(asker or PRESETS[chosen].asker), HoldAsker):
            faults = _losing_masters(np.random.default_rng([seed, 25]), faults, jobs)
    if pace:
        prompt = pace == "prompt"
    if plain:
        return Case(seed, chosen, prompt, cluster, jobs, faults, asker)
    more = varied(np.random.default_rng([seed, 24]), cluster, jobs)
    own_cluster, own_jobs = more.cluster, more.jobs
    rng = np.random.default_rng([seed, 28])
    own_members = 2 if rng.random() < MEMBERS_SHARE else 1
    members = min(members or (own_members if drawn else 1), len(own_cluster.nodes))
    if members > 1:
        own_cluster, own_jobs = _between_members(rng, own_cluster, own_jobs)
    if drawn:
        faults = _changing_queues(np.random.default_rng([seed, 27]), faults, own_cluster.queues)
    if drawn and members > 1:
        faults = _of_members(rng, faults, members)
    return Case(
        seed,
        chosen,
        prompt,
        own_cluster,
        own_jobs,
        faults,
        asker,
        more.manager,
        more.master,
        members,
    )


def _cluster(rng: np.random.Generator) -> ClusterSpec:
    nodes = int(rng.integers(2, 6))
    cores = int(rng.choice([2, 4]))
    return cluster_from_text(f"{nodes}x{cores}vcores,{cores * 1024}memory_mb")


def _jobs(rng: np.random.Generator) -> tuple[Job, ...]:
    jobs = []
    for number in range(int(rng.integers(1, 4))):
        stages: list[Stage] = []
        for place in range(int(rng.integers(1, 4))):
            parents: tuple[Edge, ...] = ()
            if stages and rng.random() < 0.7:
                kind = EdgeKind.ONE_TO_ONE if rng.random() < 0.3 else EdgeKind.ALL_TO_ALL
                parents = (Edge(stages[int(rng.integers(len(stages)))].name, kind),)
            demand = {
                "vcores": float(rng.choice([0.5, 1.0])),
                "memory_mb": float(rng.choice([128, 512, 1024])),
            }
            tasks, duration_s = int(rng.integers(1, 11)), float(rng.choice([0.0, 0.5, 3.0, 9.0]))
            stages.append(Stage(f"s{place}", tasks, duration_s, demand, parents))
        jobs.append(
            Job(
                f"j{number}",
                tuple(stages),
                arrival_s=float(rng.random() * 30),
                max_task_attempts=99,
            )
        )
    return tuple(jobs)


_NODE_KINDS = (
    FaultKind.CRASH,
    FaultKind.SLOW,
    FaultKind.PARTITION,
    FaultKind.DEAF,
    FaultKind.MUTE,
    FaultKind.PAUSE,
    FaultKind.DECOMMISSION,
    FaultKind.CLOCK,
)
_OTHER_KINDS = (
    FaultKind.LOSE_MASTER,
    FaultKind.RESTART_MANAGER,
    FaultKind.PAUSE_MANAGER,
    FaultKind.DISK_FULL,
    FaultKind.REPLAY,
    FaultKind.HOSTILE,
)
_MEANWHILE = (
    FaultKind.CRASH,
    FaultKind.CRASH,
    FaultKind.LOSE_MASTER,
    FaultKind.PARTITION,
    FaultKind.PAUSE,
    FaultKind.REPLAY,
)


def swarm(rng: np.random.Generator, nodes: Sequence[str], jobs: int) -> Faults:
    """Return some kinds of faults, several of each, some close together; all end in time."""
    kinds = [kind for kind in (*_NODE_KINDS, *_OTHER_KINDS) if rng.random() < 0.4]
    script: list[Fault] = []
    for _ in range(int(rng.integers(1, 9)) if kinds else 0):
        kind = kinds[int(rng.integers(len(kinds)))]
        near = script[-1].at_s if script and rng.random() < 0.4 else -1.0
        at_s = near + float(rng.random() * 2) if near >= 0 else float(rng.random() * HORIZON_S)
        script.append(_fault(rng, kind, at_s, nodes, jobs))
    script.extend(_inside(rng.spawn(1)[0], nodes, jobs))
    chance = [0.0, 0.02, 0.1, 0.3, 0.5]
    loss, twice = (float(rng.choice(chance, p=[0.5, 0.2, 0.15, 0.1, 0.05])) for _ in range(2))
    delay_s = float(rng.choice([0.0, 0.05, 0.5, 3.0], p=[0.4, 0.3, 0.2, 0.1]))
    rare = float(rng.choice([0.0, 0.01, 0.1], p=[0.5, 0.3, 0.2]))
    links = LinkSettings(0.0, delay_s, loss, twice)
    # This draw comes last, so that older seeds break what they broke.
    if rng.random() < 0.25:
        for _ in range(int(rng.integers(1, 3))):
            at_s = float(rng.random() * HORIZON_S)
            script.append(_fault(rng, FaultKind.UNHEALTHY, at_s, nodes, jobs))
    return Faults(tuple(sorted(script, key=lambda f: f.at_s)), links, rare)


def _losing_masters(rng: np.random.Generator, faults: Faults, jobs: Sequence[Job]) -> Faults:
    """Return faults that, for half of the seeds, also lose masters with reusable containers.

    Those who follow take tasks over in containers that are neither new nor empty.
    """
    if rng.random() < 0.5:
        return faults
    lost = []
    for _ in range(int(rng.integers(1, 5))):
        number = int(rng.integers(len(jobs)))
        at_s = round(jobs[number].arrival_s + float(rng.random() * 15), 3)
        effect = int(rng.integers(0, 4)) if rng.random() < 0.3 else -1
        lost.append(Fault(at_s, FaultKind.LOSE_MASTER, job=number, effect=effect))
    return replace(faults, script=tuple(sorted((*faults.script, *lost), key=lambda f: f.at_s)))


def _changing_queues(rng: np.random.Generator, faults: Faults, queues: QueueSpec) -> Faults:
    """Return faults among which, for a third of the seeds, an operator changes the queues.

    The first ones come back in the end: others may never hold a gang that was accepted before.
    """
    if rng.random() < 0.67:
        return faults
    changes = [
        Fault(
            round(float(rng.random() * HORIZON_S), 3),
            FaultKind.QUEUES,
            queues=other_queues(rng, queues),
        )
        for _ in range(int(rng.integers(1, 5)))
    ]
    changes.append(Fault(HORIZON_S, FaultKind.QUEUES, queues=queues))
    return replace(faults, script=tuple(sorted((*faults.script, *changes), key=lambda f: f.at_s)))


def _between_members(
    rng: np.random.Generator, cluster: ClusterSpec, jobs: tuple[Job, ...]
) -> tuple[ClusterSpec, tuple[Job, ...]]:
    """Return a cluster in which guarantees may move, most often, and jobs with work in it."""
    leaves = [path for path, _ in cluster.queues.leaves()]
    if len(leaves) > 1 or rng.random() < 0.2:
        return cluster, jobs
    part = float(rng.choice([0.2, 0.5]))
    queues = QueueSpec("root", children=(QueueSpec("a", part), QueueSpec("b", 1.0 - part)))
    moved = tuple(replace(job, queue=str(rng.choice(["a", "b"]))) for job in jobs)
    return replace(cluster, queues=queues), moved


def _of_members(rng: np.random.Generator, faults: Faults, members: int) -> Faults:
    """Return faults with a member for each that befalls a manager, and some of the router."""
    script = [
        fault if fault.nodes else replace(fault, member=int(rng.integers(members)) + 1)
        for fault in faults.script
    ]
    for _ in range(int(rng.integers(0, 4))):
        for_s = round(float(rng.choice([0.1, 5.0, 20.0])) * (0.5 + float(rng.random())), 3)
        kind = OF_ROUTER[int(rng.integers(len(OF_ROUTER)))]
        script.append(Fault(round(float(rng.random() * HORIZON_S), 3), kind, for_s=for_s))
    return replace(faults, script=tuple(sorted(script, key=lambda f: f.at_s)))


def _inside(rng: np.random.Generator, nodes: Sequence[str], jobs: int) -> list[Fault]:
    """Return two faults, one inside the other, for a third of the seeds.

    The manager is away, and meanwhile something else happens that is over before it is back. Nobody
    but those who were there can know of that.
    """
    if rng.random() < 0.67:
        return []
    away = FaultKind.PAUSE_MANAGER if rng.random() < 0.25 else FaultKind.RESTART_MANAGER
    first = _fault(rng, away, float(rng.random() * HORIZON_S), nodes, jobs)
    first = replace(first, for_s=round(float(rng.uniform(1.0, 8.0)), 3), effect=-1)
    kind = _MEANWHILE[int(rng.integers(len(_MEANWHILE)))]
    at_s = first.at_s + float(rng.random()) * first.for_s * 0.6
    second = _fault(rng, kind, at_s, nodes, jobs)
    left_s = first.at_s + first.for_s - at_s
    # A fault of 0 s would never end.
    for_s = max(0.05, round(float(rng.random()) * left_s, 3))
    return [first, replace(second, for_s=for_s, effect=-1)]


def _fault(
    rng: np.random.Generator, kind: FaultKind, at_s: float, nodes: Sequence[str], jobs: int
) -> Fault:
    some: tuple[str, ...] = ()
    if kind in (*_NODE_KINDS, FaultKind.HOSTILE, FaultKind.UNHEALTHY):
        count = 1 if rng.random() < 0.7 else int(rng.integers(1, len(nodes) + 1))
        some = tuple(nodes[int(i)] for i in sorted(rng.choice(len(nodes), count, replace=False)))
    if kind is FaultKind.CLOCK and rng.random() < 0.3:
        # No node is named, so it is the manager's clock.
        some = ()
    effect = int(rng.integers(0, 4)) if rng.random() < 0.5 else -1
    amid = kind in (FaultKind.CRASH, FaultKind.LOSE_MASTER, FaultKind.RESTART_MANAGER)
    return Fault(
        at_s=round(at_s, 3),
        kind=kind,
        nodes=some,
        job=int(rng.integers(jobs)),
        for_s=round(float(rng.choice([0.1, 1.0, 5.0, 20.0])) * (0.5 + rng.random()), 3),
        speed=round(float(rng.uniform(0.2, 0.9)), 3),
        timeout_s=float(rng.choice([-1.0, 0.0, 5.0])),
        effect=effect if amid else -1,
        step_s=float(rng.choice([-1000.0, -5.0, -0.5, 0.5, 5.0, 1000.0])),
        count=int(rng.integers(1, 30)),
    )
