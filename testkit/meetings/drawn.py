"""A row of features and a seed, drawn as a small cluster and workload."""

import random
from dataclasses import dataclass, field, replace

from nm.settings import NodeSettings
from sim.faults import NO_FAULTS, Fault, FaultKind, Faults
from sim.network import LinkSettings
from sim.settings import SimSettings
from testkit.meetings.features import Row
from weft.model.cluster import ClusterSpec, cluster_from_dict
from weft.model.job import Edge, EdgeKind, Job, MasterSpec, Preference, Stage, TaskOverride
from weft.model.json_types import Json
from weft.model.recording import Asked, Recording, Request
from weft.policies.presets import PRESETS, choose

CORES, MEMORY_MB, MBPS = 8.0, 8192.0, 1000.0
# The matchers' `reserve_after_s` is short, so that a search need not wait.
PATIENCE_S = 10.0
HEARTBEAT_S = 1.0
UNTIL_S = 900.0
# Where no node is left, so long is more than is needed to see that nothing can happen.
GONE_UNTIL_S = 4 * 3600.0
# A user whose limit is a multiple of nothing runs one task at a time. Who got few containers when
# it asked for all that it will ever have runs all its tasks on those.
SLOW_UNTIL_S = 3000.0
EVENTS_MAX = 400_000
_LEAVES = {"one": ("a",), "two": ("a", "b"), "deep": ("a", "x", "y")}
_USERS = ("u", "v", "w")


@dataclass(frozen=True, slots=True)
class Meeting:
    """One run: what a row and a seed are drawn as."""

    row: Row
    seed: int
    cluster: ClusterSpec
    jobs: tuple[Job, ...]
    manager: Json = field(default_factory=dict)
    node: NodeSettings = field(default_factory=NodeSettings)
    faults: Faults = NO_FAULTS

    @property
    def until_s(self) -> float:
        """When a run is cut off, s."""
        if self.row["faults"] == "gone":
            return GONE_UNTIL_S
        one_by_one = self.row["weights"] == "zero" and self.row["users"] == "factor"
        return SLOW_UNTIL_S if one_by_one or self.row["asker"] == "static" else UNTIL_S

    @property
    def settings(self) -> SimSettings:
        """What the simulation is told."""
        row = self.row
        matcher = row["matcher"]
        base = matcher if matcher in PRESETS else "capacity"
        scheduler = choose(base, matcher=matcher, planner=row["planner"], asker=row["asker"])
        # The optimal planner is for small jobs, and would think for a minute.
        if row["planner"] == "optimal":
            scheduler = replace(scheduler, planner_options={"effort": 0.02})
        return SimSettings(
            scheduler,
            seed=self.seed,
            prompt=row["pace"] == "prompt",
            skip_idle=False,
            checks=True,
            check_every=50,
            faults=self.faults,
            node=self.node,
            manager=self.manager,
            master={"node_failures_max": 1, "node_ends_max": 0},
            until_s=self.until_s,
            events_max=EVENTS_MAX,
        )


def draw(row: Row, seed: int) -> Meeting:
    """Return the meeting of a row and a seed."""
    chance = random.Random(f"{seed}")
    cluster = _cluster(chance, row)
    jobs = _jobs(chance, row, cluster)
    manager: Json = {
        "reserve_after_s": PATIENCE_S,
        "max_attempts": 250,
        "node_ends_max": 0,
        "gang_nodes_max": 1.0,
    }
    if row["preemption"] != "off":
        manager.update(preemption=True, preemption_grace_s=3.0, preemption_round_max=0.5)
        manager["preemption_intra_queue"] = row["preemption"] == "users"
    failing = 0.1 if row["black"] == "failing" else 0.0
    faults = _faults(chance, row["faults"], cluster, len(jobs))
    if faults is not NO_FAULTS:
        manager.update(node_expiry_s=10.0, master_expiry_s=12.0)
    return Meeting(row, seed, cluster, jobs, manager, NodeSettings(failure_share=failing), faults)


# -- the cluster -----------------------------------------------------------------------------------


def _cluster(chance: random.Random, row: Row) -> ClusterSpec:
    resources = [{"name": "vcores", "kind": "divisible"}, {"name": "memory_mb", "kind": "rigid"}]
    capacity = {"vcores": CORES, "memory_mb": MEMORY_MB}
    if row["overbook"] == "network":
        resources.append({"name": "network_mbps", "kind": "divisible"})
        capacity["network_mbps"] = MBPS
    count = chance.randint(4, 6)
    labelled = {"none": 0, "one": 1, "half": count // 2}[row["label"]]
    nodes = []
    for number in range(count):
        node: Json = {"count": 1, "capacity": capacity, "rack": f"r{number % 2 + 1}"}
        # Of two unlike nodes neither is the smaller one.
        if row["nodes"] == "unlike":
            wide = number % 2 == 0
            more = {"vcores": 8.0 if wide else 10.0, "memory_mb": 12288.0 if wide else 7168.0}
            node["capacity"] = {**capacity, **more}
        if number >= count - labelled:
            node["labels"] = ["gpu"]
        if row["speed"] == "mixed":
            node["speed"] = (1.0, 2.0, 4.0)[number % 3]
        nodes.append(node)
    return cluster_from_dict({"resources": resources, "nodes": nodes, "queues": _queues(row)})


def _queues(row: Row) -> Json:
    limits: Json = {}
    if row["users"] == "shared":
        limits["user_limit"] = 0.25
    if row["users"] == "factor":
        limits["user_limit_factor"] = 1.0
    least: Json = {}
    if row["maximum"] == "queue":
        least["max_capacity"] = 0.5
    if row["maximum"] == "masters":
        limits["max_am_share"] = 0.1
    first = {"even": 0.5, "skewed": 0.2, "zero": 0.0}[row["weights"]]
    if row["tree"] == "one":
        return {"root": {"a": {"capacity": 1.0, **limits}}}
    own = {"capacity": first, **limits, **least}
    if row["tree"] == "two":
        return {"root": {"a": own, "b": {"capacity": 1.0 - first, **limits}}}
    below = {"x": {"capacity": 0.5, **limits}, "y": {"capacity": 0.5, **limits}}
    return {"root": {"a": own, "n": {"capacity": 1.0 - first, **below}}}


# -- the jobs --------------------------------------------------------------------------------------


def _jobs(chance: random.Random, row: Row, cluster: ClusterSpec) -> tuple[Job, ...]:
    leaves = _LEAVES[row["tree"]]
    count = 8 if row["masters"] == "many" else 4
    jobs = [_job(chance, row, cluster, number) for number in range(count)]
    if row["line"] == "stream":
        jobs += [_later(chance, row, number) for number in range(count, count + 30)]
    if row["line"] == "crowd":
        jobs += _crowd(chance, row, cluster, count)
    if row["place"] in ("node", "rack") or row["masters"] == "foreign":
        jobs.append(_foreign(chance, row, cluster))
    jobs += _biting(chance, row)
    for number, job in enumerate(jobs):
        user = _USERS[number // len(leaves) % 3] if row["users"] != "one" else "u"
        jobs[number] = replace(
            job,
            queue=job.queue if job.queue in leaves else leaves[number % len(leaves)],
            user=user if job.user not in _USERS else job.user,
            priority=number % 3 if row["priority"] == "mixed" else 0,
            lifetime_s=_lifetime_s(row, number),
        )
    return tuple(sorted(jobs, key=lambda job: job.arrival_s))


def _lifetime_s(row: Row, number: int) -> float:
    """Return how long a job may take; where no node is left, it is all that ends a job."""
    far_s = UNTIL_S if row["faults"] == "gone" else 50_000.0
    return {"none": 0.0, "far": far_s, "near": 60.0 if number % 3 == 1 else 0.0}[row["lifetime"]]


def _job(chance: random.Random, row: Row, cluster: ClusterSpec, number: int) -> Job:
    stages: list[Stage] = []
    for place in range(chance.randint(1, 3)):
        parents: tuple[Edge, ...] = ()
        if stages and chance.random() < 0.7:
            kind = EdgeKind.ONE_TO_ONE if chance.random() < 0.4 else EdgeKind.ALL_TO_ALL
            parents = (Edge(stages[-1].name, kind),)
        stages.append(_stage(chance, row, cluster, number, f"s{place}", parents))
    arrival_s = 0.0 if row["line"] == "backlog" else round(chance.uniform(0, 20), 1)
    return Job(f"j{number}", tuple(stages), arrival_s=arrival_s, max_task_attempts=99)


def _stage(
    chance: random.Random,
    row: Row,
    cluster: ClusterSpec,
    number: int,
    name: str,
    parents: tuple[Edge, ...],
) -> Stage:
    labelled = [spec for spec in cluster.nodes if spec.labels]
    label = "gpu" if labelled and chance.random() < 0.4 else ""
    able = len(labelled) if label else len(cluster.nodes) - len(labelled)
    demand = _demand(chance, row, number)
    tasks = chance.randint(1, 12)
    if row["line"] == "backlog":
        tasks = chance.randint(3, 8) if label or demand["vcores"] > 1 else chance.randint(10, 40)
    gang = row["gang"] != "none" and chance.random() < 0.5
    if gang:
        each = int((CORES - 0.2) // demand["vcores"])
        if "network_mbps" in demand:
            each = min(each, int(MBPS // demand["network_mbps"]))
        most = max(1, each * able)
        tasks = {"one": 1, "few": min(3, most), "wide": max(1, most * 2 // 3)}[row["gang"]]
    duration_s = chance.choice([4.0, 8.0, 15.0])
    wrong = (0.3, 0.7, 1.0, 1.5, 3.0) if row["estimates"] == "wrong" else (0.8, 0.9, 1.0, 1.1, 1.2)
    prefer = Preference()
    if row["place"] == "prefer" and chance.random() < 0.5:
        prefer = Preference((chance.choice(cluster.nodes).node_id,))
    own: tuple[TaskOverride, ...] = ()
    if row["sizes"] == "mixed" and not gang and chance.random() < 0.4:
        own = tuple(TaskOverride(demand=_demand(chance, row, number)) for _ in range(tasks))
    return Stage(
        name,
        tasks,
        duration_s,
        demand,
        parents,
        actual_duration_s=tuple(round(duration_s * chance.choice(wrong), 2) for _ in range(tasks)),
        prefer=prefer,
        label=label,
        gang=gang,
        overrides=own,
    )


def _demand(chance: random.Random, row: Row, number: int) -> dict[str, float]:
    small = {"vcores": 1.0, "memory_mb": float(chance.choice([256, 512, 1024]))}
    large = {"vcores": float(chance.choice([3, 5, 7])), "memory_mb": 2048.0}
    part = {"small": 0.0, "large": 0.8, "mixed": 0.4, "unlike": 0.0}[row["sizes"]]
    demand = large if chance.random() < part else small
    # A queue's jobs are large in either cores or memory.
    if row["sizes"] == "unlike":
        last = number % len(_LEAVES[row["tree"]]) == len(_LEAVES[row["tree"]]) - 1
        demand = (
            {"vcores": 0.1, "memory_mb": 1024.0} if last else {"vcores": 1.0, "memory_mb": 64.0}
        )
    if row["overbook"] == "network":
        demand["network_mbps"] = float(chance.choice([50, 300, 600, 600]))
    return demand


def _biting(chance: random.Random, row: Row) -> list[Job]:
    """Return jobs beside which a feature has something to decide, whatever the others are."""
    leaves = _LEAVES[row["tree"]]
    small = {"vcores": 1.0, "memory_mb": 64.0}
    jobs: list[Job] = []
    # Whether all promises hold in time is not judged where something breaks.
    if row["faults"] != "none":
        return jobs

    def add(tasks: int, demand: dict[str, float], **more: object) -> None:
        if row["overbook"] == "network":
            demand = {"network_mbps": 20.0, **demand}
        own = _one_stage(chance, 100 + len(jobs), tasks, 8.0, demand, 5.0, "")
        jobs.append(replace(own, **more))  # type: ignore[arg-type]

    # No two fit but with more than there is.
    if row["overbook"] == "network" and row["matcher"] == "graphene":
        for _ in range(4):
            add(12, {**small, "network_mbps": 600.0})
    # The queue could use more than it may hold.
    if row["maximum"] == "queue" and row["tree"] != "one":
        add(40, small, queue="a")
    # A small part of a small queue is less than one container.
    if row["users"] != "one":
        for user in _USERS:
            add(2, {"vcores": 3.0, "memory_mb": 512.0}, queue="a", user=user)
    # Gangs of one queue are beside small tasks of another.
    if row["gang"] in ("few", "wide") and row["tree"] != "one":
        for _ in range(6):
            add(3, small, queue="a")
            jobs[-1] = replace(jobs[-1], stages=(replace(jobs[-1].stages[0], gang=True),))
        add(60, small, queue=leaves[-1])
    return jobs


def _later(chance: random.Random, row: Row, number: int) -> Job:
    """Return a small job of those that keep coming."""
    demand = {"vcores": 1.0, "memory_mb": 512.0}
    if chance.random() < {"small": 0.0, "large": 0.5, "mixed": 0.3, "unlike": 0.0}[row["sizes"]]:
        demand["vcores"] = 7.0
    if row["overbook"] == "network":
        demand["network_mbps"] = 50.0
    tasks = 1 if demand["vcores"] > 1 else chance.randint(10, 25)
    label = "gpu" if row["label"] != "none" and chance.random() < 0.4 else ""
    return _one_stage(chance, number, tasks, 8.0, demand, 5.0 + 5.0 * (number - 4), label)


def _crowd(chance: random.Random, row: Row, cluster: ClusterSpec, first: int) -> list[Job]:
    """Return many large asks in one queue, endless small ones in another, and then a large one."""
    leaves = _LEAVES[row["tree"]]
    large = {"vcores": 5.0 if row["maximum"] == "queue" else 7.0, "memory_mb": 512.0}
    small = {"vcores": 1.0, "memory_mb": 256.0}
    if row["overbook"] == "network":
        small["network_mbps"] = 50.0
    label = "gpu" if row["label"] == "one" else ""
    jobs = []
    # The queue is full for long: what it may hold beside is less than a large one.
    if row["maximum"] == "queue":
        cores = (0.5 * cluster.total[0] - 4.0) / 4
        held = _one_stage(chance, first, 4, 240.0, {"vcores": cores, "memory_mb": 512.0}, 0.0, "")
        jobs.append(replace(held, queue=leaves[0]))
    step_s = 0.1 if row["maximum"] == "queue" else 8.0
    for number in range(22):
        one = _one_stage(chance, first + 1 + number, 1, 10.0, large, 3.0 + step_s * number, label)
        jobs.append(replace(one, queue=leaves[0]))
    count = 640 if row["maximum"] == "queue" else 320
    endless = _one_stage(chance, first + 30, count, 8.0, small, 0.0, "")
    last = _one_stage(chance, first + 31, 1, 8.0, large, 30.0, "")
    return [*jobs, replace(endless, queue=leaves[-1]), replace(last, queue=leaves[-1])]


def _one_stage(
    chance: random.Random,
    number: int,
    tasks: int,
    duration_s: float,
    demand: dict[str, float],
    arrival_s: float,
    label: str,
) -> Job:
    actual = tuple(round(duration_s * chance.uniform(0.7, 1.3), 2) for _ in range(tasks))
    stage = Stage("s0", tasks, duration_s, demand, actual_duration_s=actual, label=label)
    return Job(f"j{number}", (stage,), arrival_s=arrival_s, max_task_attempts=99)


def _foreign(chance: random.Random, row: Row, cluster: ClusterSpec) -> Job:
    """Return a job with a master of its own, which may want certain nodes and no others."""
    open_nodes = [spec for spec in cluster.nodes if not spec.labels]
    there = chance.choice(open_nodes)
    held_s = tuple(round(chance.uniform(4, 12), 1) for _ in range(chance.randint(2, 6)))
    demand = {"vcores": float(chance.choice([1, 5])), "memory_mb": 1024.0}
    request = Request(
        demand,
        held_s,
        nodes=(there.node_id,) if row["place"] == "node" else (),
        racks=(there.rack,) if row["place"] == "rack" else (),
        strict=row["place"] in ("node", "rack"),
    )
    asked = Asked(0.0, 0, len(held_s), 8.0, 1.0)
    master = MasterSpec(
        {"vcores": 0.5, "memory_mb": 512.0}, recorded=Recording(60.0, (request,), (asked,))
    )
    return Job("foreign", (), arrival_s=chance.choice([5.0, 15.0]), master=master)


# -- what breaks -----------------------------------------------------------------------------------


def _faults(chance: random.Random, kind: str, cluster: ClusterSpec, jobs: int) -> Faults:
    if kind == "none":
        return NO_FAULTS
    if kind == "gone":
        every = tuple(spec.node_id for spec in cluster.nodes)
        return Faults((Fault(30.0, FaultKind.DECOMMISSION, every, timeout_s=0.0),))
    if kind == "loss":
        return Faults((), LinkSettings(0.0, 0.2, 0.05, 0.05))
    kinds = {
        "crash": (FaultKind.CRASH, FaultKind.LOSE_MASTER),
        "restart": (FaultKind.RESTART_MANAGER, FaultKind.LOSE_MASTER),
        "pause": (FaultKind.PAUSE, FaultKind.PARTITION),
        "decommission": (FaultKind.DECOMMISSION, FaultKind.DECOMMISSION),
    }[kind]
    script = [
        Fault(
            at_s=round(chance.uniform(2, 40), 2),
            kind=each,
            nodes=(chance.choice(cluster.nodes).node_id,),
            job=chance.randrange(jobs),
            for_s=chance.choice([1.0, 6.0, 20.0]),
            timeout_s=chance.choice([-1.0, 0.0, 5.0]),
        )
        for each in kinds
    ]
    return Faults(tuple(sorted(script, key=lambda fault: fault.at_s)))
