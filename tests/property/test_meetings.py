"""Where two features of the scheduler meet: each is right alone, and so are both together."""

from itertools import pairwise
from typing import Any

import pytest

import weft
from rm.settings import ManagerSettings
from sim.cluster import Simulation
from sim.faults import Fault, FaultKind, Faults
from sim.settings import SimSettings
from testkit import builders
from testkit.manager import Rig
from testkit.matching import VIEWING
from weft.model.cluster import cluster_from_dict
from weft.model.errors import InputError
from weft.model.job import OPEN_STAGE, Job, MasterSpec
from weft.model.jobfile import job_from_dict
from weft.policies.presets import choose

pytestmark = pytest.mark.slow

TYPES = [{"name": "vcores", "kind": "divisible"}, {"name": "memory_mb", "kind": "rigid"}]
SMALL = {"vcores": 1, "memory_mb": 512}
every_matcher = pytest.mark.parametrize("matcher", VIEWING)


def cluster(*nodes: dict[str, Any], **queues: dict[str, Any]) -> dict[str, Any]:
    """Nodes by `count`, `vcores` and what else they have; queues below the root."""
    listed = [
        {"capacity": {"vcores": node.pop("vcores", 8), "memory_mb": 65536}, **node}
        for node in map(dict, nodes)
    ]
    tree = {"queues": {"root": queues}} if queues else {}
    return {"resources": TYPES, "nodes": listed, **tree}


def job(name: str, tasks: int, demand: dict[str, float] = SMALL, **more: Any) -> dict[str, Any]:
    """One stage; `queue`, `user`, `arrival_s`, `priority` are the job's, the rest the stage's."""
    own = {key: more.pop(key) for key in ("queue", "user", "arrival_s", "priority") if key in more}
    return {
        "name": name,
        **own,
        "stages": [{"name": "s", "tasks": tasks, "demand": demand, **more}],
    }


def run(jobs: list[dict[str, Any]], spec: dict[str, Any], preset: str, **more: Any) -> Any:
    """One checked simulation; `options` are settings by name."""
    return weft.simulate(jobs, spec, preset, seed=1, checks=True, **more)


def states(result: Any) -> list[str]:
    """How each job stands at the end."""
    return [row["state"] for row in result.jobs.to_pylist()]


def held_by(result: Any, name: str, from_s: float, to_s: float) -> float:
    """Containers that a job held on average in a window of time."""
    number = next(row["job"] for row in result.jobs.to_pylist() if row["name"] == name)
    held_s = 0.0
    for row in result.tasks.to_pylist():
        if row["job"] == number and row["start_s"] is not None:
            end_s = to_s if row["end_s"] is None else min(row["end_s"], to_s)
            held_s += max(0.0, end_s - max(row["start_s"], from_s))
    return held_s / (to_s - from_s)


# -- limits of queues and users -------------------------------------------------------------------


@pytest.mark.slow
@every_matcher
def test_users_at_their_limits_do_not_wait_for_each_other(matcher: str) -> None:
    """A third of the queue each is less than one task; on an idle cluster all of them start."""
    spec = cluster({"count": 2}, a={"capacity": 0.5, "user_limit": 0.25}, b={"capacity": 0.5})
    jobs = [
        job(user, 2, {"vcores": 3, "memory_mb": 512}, queue="root.a", user=user, duration_s=10)
        for user in "uvw"
    ]
    assert states(run(jobs, spec, matcher, until_s=200.0)) == ["SUCCEEDED"] * 3


@pytest.mark.slow
@every_matcher
def test_who_waits_for_a_master_halves_nobodys_limit(matcher: str) -> None:
    """The queue takes one master at a time: the other user asks for no container meanwhile."""
    limits = {"capacity": 0.0, "user_limit": 0.25, "max_am_share": 0.01}
    spec = cluster({"count": 2}, a=limits, b={"capacity": 1.0})
    jobs = [job(user, 32, queue="root.a", user=user, duration_s=10) for user in "uv"]
    result = run(jobs, spec, matcher, until_s=100.0)
    assert held_by(result, "u", 3.0, 8.0) == pytest.approx(16, abs=1.0)


@pytest.mark.slow
@every_matcher
def test_masters_alone_do_not_use_a_queues_maximum_up(matcher: str) -> None:
    """Two masters beside one task would be too much, so tasks start one after the other."""
    spec = cluster({"count": 1}, a={"capacity": 0.25, "max_capacity": 0.25}, b={"capacity": 0.75})
    full = {"vcores": 2, "memory_mb": 512}
    jobs = [job(name, 2, full, queue="root.a", duration_s=5) for name in "xy"]
    result = run(jobs, spec, matcher, until_s=200.0)
    assert states(result) == ["SUCCEEDED"] * 2
    times = sorted((row["start_s"], row["end_s"]) for row in result.tasks.to_pylist())
    assert all(end <= start for (_, end), (start, _) in pairwise(times))


@pytest.mark.slow
def test_what_a_maximum_can_never_hold_is_refused_by_name() -> None:
    spec = cluster({"count": 2}, a={"capacity": 0.25, "max_capacity": 0.25}, b={"capacity": 0.75})
    wide = job("wide", 1, {"vcores": 5, "memory_mb": 512}, queue="root.a", duration_s=5)
    with pytest.raises(InputError, match=r"queue root\.a may hold 4 at most"):
        run([wide], spec, "capacity", until_s=100.0)


# -- queues of queues ------------------------------------------------------------------------------


@every_matcher
def test_a_leaf_gets_its_guarantee_whatever_its_sibling_holds(matcher: str) -> None:
    """The tree of Bhattacharya et al., section 3: its sibling holds what the leaf needs none of."""
    names = ("cpu", "gpu")
    share = {"capacity": 0.5}
    tree = {"n1": share, "n2": {**share, "x": share, "y": share}}
    spec = {
        "resources": [{"name": name, "kind": "rigid"} for name in names],
        "nodes": [{"count": 4, "capacity": {"cpu": 8, "gpu": 8}}],
        "queues": {"root": tree},
    }
    lasts = [5.0 + (5 * i) % 11 for i in range(500)]
    jobs = [
        job(name, 500, {what: 1}, queue=f"root.{name}", duration_s=10, actual_duration_s=lasts)
        for name, what in (("n1", "cpu"), ("n2.x", "cpu"), ("n2.y", "gpu"))
    ]
    result = run(jobs, spec, matcher, until_s=120.0)
    assert held_by(result, "n2.x", 60.0, 120.0) > (12.0 if matcher == "drf" else 5.0)
    assert held_by(result, "n1", 60.0, 120.0) > 12.0


def test_queues_that_are_guaranteed_nothing_share_alike() -> None:
    spec = cluster({"count": 2}, a={"capacity": 0.0}, b={"capacity": 0.0}, c={"capacity": 1.0})
    jobs = [job(name, 60, queue=f"root.{name}", duration_s=10) for name in "ab"]
    result = run(jobs, spec, "capacity", until_s=60.0)
    held = [held_by(result, name, 10.0, 60.0) for name in "ab"]
    assert abs(held[0] - held[1]) < 1.5


# -- labels and reusable containers ----------------------------------------------------------------

POOLS = ["cobra", "srs", "drs", "tez_tetris", "default_container"]


@pytest.mark.parametrize("preset", POOLS)
def test_reusable_containers_stand_where_their_tasks_may_run(preset: str) -> None:
    """Tasks with a label run on nodes with it, and those without run on none that has one."""
    spec = cluster({"count": 2}, {"count": 1, "labels": ["gpu"]})
    stages = [
        {"name": name, "tasks": 6, "duration_s": 5, "demand": SMALL, "parents": parents, **more}
        for name, parents, more in [
            ("before", [], {}),
            ("gpu", ["before"], {"label": "gpu"}),
            ("after", ["gpu"], {}),
        ]
    ]
    result = run([{"name": "j", "stages": stages}], spec, preset, until_s=500.0)
    assert states(result) == ["SUCCEEDED"]
    where = {(row["stage"], row["node"] == "n3") for row in result.tasks.to_pylist()}
    assert where == {("before", False), ("gpu", True), ("after", False)}


@pytest.mark.parametrize("preset", POOLS)
def test_a_container_for_all_that_waits_is_one_that_some_node_holds(preset: str) -> None:
    """The labelled node is smaller than what the other stage needs."""
    spec = cluster({"count": 2, "vcores": 16}, {"count": 1, "labels": ["gpu"]})
    stages = [
        {"name": "gpu", "tasks": 2, "duration_s": 5, "demand": SMALL, "label": "gpu"},
        {"name": "big", "tasks": 2, "duration_s": 5, "demand": {"vcores": 10, "memory_mb": 512}},
    ]
    result = run([{"name": "j", "stages": stages}], spec, preset, until_s=500.0)
    assert states(result) == ["SUCCEEDED"]


# -- overbooking -----------------------------------------------------------------------------------


def test_a_node_that_nobody_may_use_changes_no_overbooking() -> None:
    """An idle node with a label is no opportunity that tasks without one could wait for."""
    types = [*TYPES, {"name": "network_mbps", "kind": "divisible"}]
    size = {"vcores": 16, "memory_mb": 65536, "network_mbps": 1000}
    nodes: list[dict[str, Any]] = [{"count": 3, "capacity": size}]
    demand = {"vcores": 1, "memory_mb": 512, "network_mbps": 600}
    alone = {"resources": types, "nodes": nodes}
    labelled = {"count": 1, "capacity": size, "labels": ["gpu"]}
    beside = {"resources": types, "nodes": [*nodes, labelled]}

    def makespan_s(spec: dict[str, Any], **more: Any) -> float:
        """Return the sum over five workloads: one alone moves by a task's time with any change."""
        return sum(
            run(
                [
                    job(f"j{i}", 6, demand, arrival_s=3.0 * i, duration_s=10 + i + later)
                    for i in range(5)
                ],
                spec,
                "graphene",
                **more,
            ).summary["makespan_s"]
            for later in (0.0, 0.1, 0.2, 0.3, 0.4)
        )

    before = makespan_s(alone)
    assert makespan_s(beside) == pytest.approx(before, rel=0.1)
    assert before < 0.8 * makespan_s(alone, options={"matcher.overbook": ""})


# -- reservations ----------------------------------------------------------------------------------


@pytest.mark.parametrize("matcher", ["tetris", "fifo"])
def test_no_node_stays_reserved_for_an_ask_that_was_served(matcher: str) -> None:
    """Figure 1 of the Tetris paper: each job maps beside the reduces of the one before it."""

    def phases(name: str, maps: int, vcores: int, memory_mb: int) -> dict[str, Any]:
        of_map = {"vcores": vcores, "memory_mb": memory_mb}
        reduce = {"tasks": 3, "duration_s": 10, "demand": {"network_mbps": 1000}}
        stages = [
            {"name": "map", "tasks": maps, "duration_s": 10, "demand": of_map},
            {"name": "reduce", "parents": ["map"], **reduce},
        ]
        return {"name": name, "stages": stages}

    jobs = [phases("a", 18, 1, 2048), phases("b", 6, 3, 1024), phases("c", 6, 3, 1024)]
    capacity = {"vcores": 18.5, "memory_mb": 38912, "network_mbps": 3000}
    types = [*TYPES, {"name": "network_mbps", "kind": "divisible"}]
    spec = {"resources": types, "nodes": [{"count": 1, "capacity": capacity}]}
    done_s = sorted(run(jobs, spec, matcher, pace="prompt").jobs["finish_s"].to_pylist())
    assert done_s == pytest.approx([20, 30, 40], abs=0.5)


# -- gangs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("matcher", ["capacity", "drf", "graphene", "fifo"])
@pytest.mark.parametrize("size", [1, 2])
def test_gangs_are_no_way_round_a_queues_share(matcher: str, size: int) -> None:
    """They wait their turn as any ask does; at most one more than the queue's share is held."""
    spec = cluster({"count": 5}, a={"capacity": 0.1}, b={"capacity": 0.9})
    lasts = [[5.0 + (7 * i + 3 * k) % 11 for k in range(size)] for i in range(300)]
    stages = [
        {
            "name": f"g{i}",
            "tasks": size,
            "duration_s": 10,
            "demand": SMALL,
            "gang": True,
            "actual_duration_s": lasts[i],
        }
        for i in range(300 // size)
    ]
    plain = [5.0 + (5 * i) % 11 for i in range(900)]
    jobs = [
        {"name": "a", "queue": "root.a", "stages": stages},
        job("b", 900, queue="root.b", arrival_s=1, duration_s=10, actual_duration_s=plain),
    ]
    result = run(jobs, spec, matcher, until_s=150.0)
    assert 2.0 < held_by(result, "a", 50.0, 150.0) < 4.0 + size


@every_matcher
def test_a_gang_starts_on_an_idle_cluster_after_those_before_it(matcher: str) -> None:
    """What is left when others were served is its own at once: nothing else has to happen."""
    spec = cluster({"count": 2})
    jobs = [job("plain", 3, duration_s=100), job("gang", 8, gang=True, duration_s=10)]
    rows = run(jobs, spec, matcher).jobs.to_pylist()
    assert max(row["start_s"] for row in rows) < 10.0
    assert [row["state"] for row in rows] == ["SUCCEEDED"] * 2
    assert rows[1]["finish_s"] < 25.0


@pytest.mark.parametrize("matcher", ["capacity", "fair", "drf"])
def test_a_gang_among_endless_small_tasks_starts(matcher: str) -> None:
    """Its nodes are kept where its turn came: it is later, but holds less, or has a queue."""
    spec = cluster({"count": 4}, a={"capacity": 0.5}, b={"capacity": 0.5})
    lasts = [5.0 + (5 * i) % 11 for i in range(1500)]
    small = job("small", 1500, queue="root.a", duration_s=10, actual_duration_s=lasts)
    same = "root.b" if matcher == "capacity" else "root.a"
    gang = job("gang", 8, gang=True, queue=same, arrival_s=20.0, duration_s=10)
    rows = run([small, gang], spec, matcher, until_s=300.0).jobs.to_pylist()
    assert rows[1]["state"] == "SUCCEEDED"
    assert rows[1]["jct_s"] < 120.0


# -- bounded waits ---------------------------------------------------------------------------------


@pytest.mark.parametrize("matcher", ["capacity", "fair", "graphene", "fifo"])
def test_later_large_tasks_do_not_overtake_an_earlier_one_for_ever(matcher: str) -> None:
    """One node suits both; there is always another large one to keep it for."""
    spec = cluster({"count": 1, "labels": ["gpu"]}, {"count": 3})
    large = {"vcores": 7, "memory_mb": 512}
    jobs = [job("first", 1, large, label="gpu", duration_s=10)]
    jobs.append(job("early", 6, {**SMALL, "vcores": 4}, arrival_s=5, label="gpu", duration_s=10))
    jobs += [
        job(f"later{i}", 1, large, arrival_s=5.0 + 9 * i, label="gpu", duration_s=10)
        for i in range(1, 40)
    ]
    rows = run(jobs, spec, matcher, pace="prompt", until_s=250.0).jobs.to_pylist()
    early = next(row for row in rows if row["name"] == "early")
    assert early["state"] == "SUCCEEDED"


@pytest.mark.parametrize("matcher", ["capacity", "graphene"])
def test_asks_that_a_limit_holds_back_hide_nobody_who_starves(matcher: str) -> None:
    """Thirty large ones wait for their queue's maximum; their masters sit on one node."""
    spec = cluster(
        {"count": 4},
        a={"capacity": 0.5},
        b={"capacity": 0.4},
        x={"capacity": 0.1, "max_capacity": 0.4},
    )
    lasts = [5.0 + (5 * i) % 11 for i in range(900)]
    wide = {"vcores": 5, "memory_mb": 512}
    jobs = [
        job("small", 900, queue="root.b", duration_s=10, actual_duration_s=lasts),
        job("held", 1, {"vcores": 7, "memory_mb": 512}, queue="root.x", duration_s=3000),
    ]
    jobs += [
        job(f"x{i}", 1, wide, queue="root.x", arrival_s=5 + i / 10, duration_s=10)
        for i in range(30)
    ]
    jobs.append(job("large", 1, wide, queue="root.b", arrival_s=60.0, duration_s=10))
    rows = run(jobs, spec, matcher, until_s=200.0).jobs.to_pylist()
    large = next(row for row in rows if row["name"] == "large")
    assert large["jct_s"] is not None
    assert large["jct_s"] < 80.0


def test_a_large_master_gets_a_node_kept() -> None:
    """A job brings a master of its own that never fits while small tasks take all room."""
    rig = Rig("capacity", ManagerSettings(master_demand={"vcores": 0.0}, reserve_after_s=5.0))
    rig.add_node("n1", vcores=4.0)
    small = rig.start(builders.job("small", builders.stage(tasks=1000)))
    rig.allocate(small, builders.ask(1, 1000))
    rig.beat()
    rig.allocate(small)
    running = list(small.containers)
    spec = MasterSpec({"vcores": 3.0, "memory_mb": 512.0}, ("spark",))
    app = rig.submit(Job("own", (OPEN_STAGE,), master=spec))
    for tick in range(40):
        ended = builders.succeeded(running.pop(0), 0, tick)
        rig.beat("n1", ended, later_s=1.0)
        rig.allocate(small)
        running = [c for c in small.containers if rig.manager.books.holdings.peek(c)]
        if rig.manager.books.apps[app].attempt.master is not None or not running:
            break
    assert rig.manager.books.apps[app].attempt.master is not None
    assert not rig.manager.books.matching.reserved


# -- preemption ------------------------------------------------------------------------------------

TAKES = {"manager.preemption": "true", "manager.preemption_grace_s": "3"}


def taken(result: Any) -> int:
    """How many containers were preempted."""
    return sum(row["state"] == "PREEMPTED" for row in result.tasks.to_pylist())


@pytest.mark.parametrize("matcher", ["capacity", "drf", "graphene", "fifo"])
def test_a_container_is_taken_though_its_queue_falls_below_its_guarantee(matcher: str) -> None:
    """Two of six cores are more than a third of twenty, one is less; the others have nothing."""
    third = {"capacity": 1 / 3}
    spec = cluster({"count": 2, "vcores": 10}, a=third, b=third, c=third)
    six = {"vcores": 6, "memory_mb": 512}
    jobs = [
        job(name, 9, six, queue=f"root.{name}", arrival_s=at, duration_s=90)
        for name, at in (("a", 0), ("b", 5), ("c", 5))
    ]
    result = run(jobs, spec, matcher, options=TAKES, until_s=130.0)
    begun = [row["start_s"] for row in result.tasks.to_pylist() if row["start_s"] is not None]
    assert sorted(begun)[2] < 20.0
    assert taken(result) == 1, "for the third queue nothing is left to take"


def test_a_queue_that_is_guaranteed_less_than_a_container_gets_one() -> None:
    spec = cluster({"count": 2, "vcores": 10}, a={"capacity": 0.99}, b={"capacity": 0.01})
    jobs = [
        job("a", 100, queue="root.a", duration_s=190),
        job("b", 1, queue="root.b", arrival_s=5, duration_s=10),
    ]
    result = run(jobs, spec, "capacity", options=TAKES, until_s=100.0)
    assert states(result)[1] == "SUCCEEDED"
    assert taken(result) == 1


def test_nobody_takes_back_what_was_taken_from_him() -> None:
    """One task at a time fits; each of two queues is below its guarantee while the other runs."""
    half = {"capacity": 0.5}
    spec = cluster({"count": 1, "vcores": 10}, a=half, b=half)
    six = {"vcores": 6, "memory_mb": 512}
    jobs = [
        job("a", 9, six, queue="root.a", duration_s=40),
        job("b", 9, six, queue="root.b", arrival_s=5, duration_s=40),
    ]
    assert taken(run(jobs, spec, "capacity", options=TAKES, until_s=400.0)) == 0


def test_preemption_takes_those_with_the_least_work_to_lose() -> None:
    """One task saves its work every 7 s, the other began later."""
    half = {"capacity": 0.5}
    spec = cluster({"count": 1, "vcores": 2.2}, a=half, b=half)
    jobs = [
        job("saves", 1, queue="root.a", duration_s=300, checkpoint_s=7.0),
        job("begins", 1, queue="root.a", arrival_s=20, duration_s=300),
        job("other", 1, queue="root.b", arrival_s=58, duration_s=5),
    ]
    result = run(jobs, spec, "capacity", options=TAKES, until_s=100.0)
    names = {row["job"]: row["name"] for row in result.jobs.to_pylist()}
    gone = [names[r["job"]] for r in result.tasks.to_pylist() if r["state"] == "PREEMPTED"]
    assert gone == ["saves"]


# -- runs that have no end -------------------------------------------------------------------------


def test_a_simulation_in_which_nothing_can_start_ends_with_a_word() -> None:
    """The task would fit on the one node, but for the job's own master there."""
    spec = cluster({"count": 1, "vcores": 4})
    jobs = [job("short", 2, duration_s=5)]
    jobs.append(job("whole", 1, {"vcores": 4, "memory_mb": 512}, arrival_s=1, duration_s=5))
    result = run(jobs, spec, "capacity")
    assert states(result) == ["SUCCEEDED", "RUNNING"]
    assert "nothing can happen any more: 'whole' wait" in result.summary["stopped"]


def test_a_simulation_whose_nodes_all_left_ends_with_a_word() -> None:
    """Faults are over, so nothing will mend it."""
    spec = cluster_from_dict(cluster({"count": 2}))
    jobs = [job_from_dict(job("long", 4, duration_s=60))]
    names = tuple(node.node_id for node in spec.nodes)
    gone = Faults((Fault(30.0, FaultKind.DECOMMISSION, names, timeout_s=0.0),))
    simulation = Simulation(spec, jobs, SimSettings(choose("capacity"), faults=gone))
    simulation.run()
    expected = "nothing can happen any more: 'long' wait (no node is in service)"
    assert simulation.stuck == expected


@pytest.mark.parametrize(
    ("more", "problem"),
    [({"arrival_s": 1.7e9}, "is this a Unix time"), ({"duration_s": 1e12}, "--until")],
)
def test_times_that_no_run_comes_to_are_refused(more: dict[str, float], problem: str) -> None:
    spec = cluster({"count": 1})
    with pytest.raises(InputError, match=problem):
        run([job("late", 1, **{"duration_s": 5.0, **more})], spec, "capacity")
    run([job("late", 1, **{"duration_s": 5.0, **more})], spec, "capacity", until_s=50.0)


# -- names and numbers -----------------------------------------------------------------------------


def test_a_queue_goes_by_its_name_or_its_path_with_or_without_the_root() -> None:
    half = {"capacity": 0.5}
    spec = cluster({"count": 1}, n1=half, n2={**half, "x": {}, "y": {}})
    jobs = [
        job(name, 1, queue=name, duration_s=1)
        for name in ("n1", "root.n1", "x", "n2.x", "root.n2.x")
    ]
    assert states(run(jobs, spec, "capacity")) == ["SUCCEEDED"] * 5


def test_a_refused_job_has_a_number_of_its_own() -> None:
    spec = cluster({"count": 1})
    jobs = [job(str(i), 1, {"vcores": 99.0 if i == 1 else 1.0}, duration_s=1) for i in range(4)]
    numbers = [row["job"] for row in run(jobs, spec, "capacity").jobs.to_pylist()]
    assert len(set(numbers)) == 4


def test_nothing_is_proven_of_machines_of_unlike_speeds() -> None:
    """The plan for like ones is timed anew, and gives way to a shorter one."""
    spec = {"resources": [{"name": "cpu", "kind": "rigid"}]}
    spec["nodes"] = [{"count": 1, "capacity": {"cpu": 1}, "speed": speed} for speed in (1, 4)]
    one = {
        "name": "j",
        "stages": [{"name": "a", "tasks": 3, "duration_s": 3, "demand": {"cpu": 1}}],
    }
    told = {name: weft.plan(one, spec, name, seed=1) for name in ("graphene", "heft")}
    assert told["graphene"]["makespan_s"] <= told["heft"]["makespan_s"]


# -- one job beside others ------------------------------------------------------------------------


def test_one_application_does_not_use_up_the_containers_that_nodes_may_have() -> None:
    """Tasks that need nothing fill nodes to their bound; another job has its part of it."""
    settings = ManagerSettings(master_demand={"vcores": 0.0}, node_containers_max=100)
    rig = Rig("capacity", settings)
    rig.add_node("n1", vcores=16.0)
    many = rig.start(builders.job("many", builders.stage(tasks=10_000)))
    rig.allocate(many, builders.ask(1, 10_000, (0.0, 0.0)))
    rig.beat()
    rig.allocate(many)
    assert len(many.containers) == 99, "and its master"
    few = rig.start(builders.job("few", builders.stage(tasks=4)))
    rig.allocate(few, builders.ask(1, 4))
    for container in list(many.containers)[:5]:
        rig.beat("n1", builders.succeeded(container, 0, container % 4))
    rig.allocate(few)
    assert len(few.containers) == 4


def test_requests_are_raised_to_the_least_allocation_in_steps() -> None:
    settings = ManagerSettings(
        master_demand={"vcores": 0.0},
        min_vcores=1.0,
        min_memory_mb=1024.0,
        increment_memory_mb=512.0,
    )
    rig = Rig("capacity", settings)
    rig.add_node("n1", vcores=16.0, memory_mb=16384.0)
    master = rig.start(builders.job("j", builders.stage(tasks=9)))
    asked = [(0.0, 0.0), (0.1, 1100.0), (2.5, 512.0)]
    rig.allocate(master, *(builders.ask(i + 1, 1, need) for i, need in enumerate(asked)))
    rig.beat()
    rig.allocate(master)
    held = [rig.manager.books.holdings[c].vector for c in master.containers]
    assert sorted(held) == [(1.0, 1024.0), (1.0, 1536.0), (2.5, 1024.0)]


@pytest.mark.parametrize("label", ["", "all"])
def test_masters_get_room_where_all_nodes_have_a_label(label: str) -> None:
    """Preemption makes room for a master on the nodes that hold masters, labelled or not."""
    nodes = {"count": 2, "vcores": 4, "labels": [label] if label else []}
    spec = cluster(nodes, a={"capacity": 0.5}, b={"capacity": 0.5})
    jobs = [
        job(name, 4, {"vcores": 0.975, "memory_mb": 64}, queue="a", duration_s=400, label=label)
        for name in ("first", "second")
    ]
    jobs.append(job("third", 2, queue="b", arrival_s=20.0, duration_s=5, label=label))
    result = run(jobs, spec, "capacity", options={"manager.preemption": True})
    assert result.jobs.to_pylist()[2]["finish_s"] < 120
