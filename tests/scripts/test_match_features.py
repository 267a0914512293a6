"""What stands beside the scores: labels, black lists, gangs, reservations, locality, reasons."""

from typing import Any

import numpy as np
import pytest

from am.progress import Progress, RemainingPath
from nm.core import NodeManager
from nm.settings import NodeSettings
from rm.match.registry import make_matcher
from rm.settings import ManagerSettings
from sim.cluster import Simulation
from sim.faults import faults_from_dict
from sim.settings import SimSettings
from testkit.builders import ask, job, noted, stage, succeeded
from testkit.manager import Rig
from testkit.master import stage as plain_stage
from testkit.matching import VIEWING
from weft.model.cluster import ClusterSpec, NodeSpec
from weft.model.job import Job, Preference, Stage
from weft.model.queues import DEFAULT_QUEUES, QueueSpec
from weft.model.resources import DEFAULT_RESOURCE_TYPES
from weft.policies.presets import preset
from weft.protocol.effects import Started
from weft.protocol.facts import Placed, TaskStarted
from weft.protocol.messages import NodeAccepted, StartContainers, TaskLaunch
from weft.protocol.requests import Explain

FREE = ManagerSettings(master_demand={"vcores": 0.0})
every_matcher = pytest.mark.parametrize("matcher", VIEWING)


@every_matcher
def test_labels_and_black_lists_bind_under_every_matcher(matcher: str) -> None:
    """They are preconditions: no score gets past them."""
    rig = Rig(matcher, FREE)
    rig.add_node("plain")
    rig.add_node("fast", labels=("gpu",))
    rig.add_node("other")
    master = rig.start(job("j", stage(tasks=9), stage("g", tasks=9, label="gpu")))
    more = {"blacklist": ("other",)}
    rig.allocate(master, ask(1, 9), ask(2, 3, label="gpu", stage=1), **more)
    rig.beat()
    rig.allocate(master)
    where = sorted((c.ask_id, c.node_id) for c in master.containers.values())
    assert where == [(1, "plain")] * 4 + [(2, "fast")] * 3


@every_matcher
def test_a_gang_starts_whole_under_every_matcher(matcher: str) -> None:
    """Six do not fit beside another job's task, so none starts before that one ends."""
    rig = Rig(matcher, FREE)
    rig.add_node("n1")
    rig.add_node("n2", vcores=2.0)
    other, master = rig.start(), rig.start(job("gang", stage(tasks=6, gang=True)))
    rig.allocate(other, ask())
    rig.beat()
    rig.allocate(other)
    (busy,) = other.containers.values()
    rig.allocate(master, ask(total=6, gang=True))
    rig.beat()
    rig.allocate(master)
    assert not master.containers
    rig.beat(busy.node_id, succeeded(busy.container_id))
    rig.beat()
    rig.allocate(master)
    assert len(master.containers) == 6


@every_matcher
def test_a_large_ask_gets_its_node_under_every_matcher(matcher: str) -> None:
    """Small tasks of another job end one at a time, so that a whole node is never free."""
    settings = ManagerSettings(master_demand={"vcores": 0.0}, reserve_after_s=10.0)
    rig = Rig(matcher, settings)
    rig.add_node("n1")
    big = rig.start(job("big", stage(tasks=1, demand={"vcores": 4})))
    small = rig.start(job("small", stage(tasks=1000)))
    rig.allocate(small, ask(1, 1000), remaining_work=1.0)
    rig.beat()
    rig.allocate(big, ask(1, 1, (4.0, 1024.0)), remaining_work=900.0)
    rig.allocate(small, remaining_work=1.0)
    running = list(small.containers)
    for tick in range(60):
        rig.beat("n1", succeeded(running.pop(0), 0, tick), later_s=1.0)
        placed = [p for p in noted(rig.effects, Placed) if p.demand == (1.0, 1024.0)]
        running.extend(p.container for p in placed)
        rig.allocate(big)
        if big.containers or not running:
            break
    assert big.containers


def test_backfill_promises_a_start_and_lets_by_what_does_not_delay_it() -> None:
    """4 cores, 2 busy for 10 s: 3 cores are promised then; of two small ones the short one runs."""
    rig = Rig(make_matcher("fifo", {"backfill": "easy"}), FREE)
    rig.add_node("n1")
    names = ("busy", "head", "long", "short")
    masters = [rig.start(job(name, stage(tasks=1))) for name in names]
    sizes = ((2.0, 10.0), (3.0, 10.0), (2.0, 60.0), (2.0, 9.0))
    for master, (vcores, duration_s) in zip(masters, sizes, strict=True):
        rig.allocate(master, ask(1, 1, (vcores, 0.0), duration_s=duration_s))
        rig.beat("n1")
    for master in masters:
        rig.allocate(master)
    assert [len(master.containers) for master in masters] == [1, 0, 0, 1]
    reasons = rig.ask_manager(Explain(2)).stages[0].reasons
    assert "by the estimates it starts in 10 s, which is promised" in reasons


@pytest.mark.parametrize("matcher", ["capacity", "fair"])
def test_delay_scheduling_waits_for_the_node_then_for_the_rack_then_takes_any(
    matcher: str,
) -> None:
    """Two opportunities for the node, one more for the rack."""
    delays = {"node_locality_delay": 2, "rack_locality_delay": 1}
    rig = Rig(make_matcher(matcher, delays), FREE)
    for name, rack in (("n1", "r1"), ("n2", "r1"), ("n3", "r2")):
        rig.add_node(name, rack=rack)
    master = rig.start(job("j", stage(tasks=4, prefer=Preference(nodes=("n2",)))))
    rig.allocate(master, ask(1, 1, nodes=("n2",)))
    reasons = rig.ask_manager(Explain(1)).stages[0].reasons
    assert reasons == {"waiting for locality": 2, "would fit: waiting for a heartbeat": 1}
    for tries in range(1, 4):
        rig.beat("n3", later_s=1.0)
        if tries < 3:
            rig.beat("n3")  # within the interval: the same opportunity
        rig.allocate(master)
        assert not master.containers, f"declined {tries} times"
    rig.beat("n3", later_s=1.0)
    rig.allocate(master)
    assert [c.node_id for c in master.containers.values()] == ["n3"]
    rig.allocate(master, ask(2, 1, nodes=("n2",)))
    rig.beat("n1", later_s=1.0)
    rig.beat("n3")
    rig.beat("n1", later_s=1.0)
    rig.allocate(master)
    assert [c.node_id for c in master.containers.values()] == ["n3", "n1"], "rack after two"


@pytest.mark.parametrize("matcher", ["tetris", "graphene"])
def test_the_remote_penalty_prefers_the_task_whose_input_is_here(matcher: str) -> None:
    """The same task wins at home and loses to an equal one elsewhere."""
    rig = Rig(matcher, FREE)
    rig.add_node("n1", vcores=1.0)
    rig.add_node("n2", vcores=1.0)
    master = rig.start(job("j", stage("a", tasks=2), stage("b", tasks=2)))
    rig.allocate(master, ask(1, 1, nodes=("n2",)), ask(2, 1, nodes=("n1",), stage=1))
    rig.beat("n1")
    rig.beat("n2")
    rig.allocate(master)
    assert {c.ask_id: c.node_id for c in master.containers.values()} == {1: "n2", 2: "n1"}


@pytest.mark.parametrize("matcher", ["tetris", "graphene", "carbyne"])
def test_the_rack_of_the_input_is_better_than_another_rack(matcher: str) -> None:
    """Of two identical tasks the one with its input in the rack wins, whoever asked first."""
    rig = Rig(matcher, FREE)
    rig.add_node("n1", vcores=1.0, rack="r1")
    rig.add_node("near", vcores=0.1, rack="r1")
    rig.add_node("far", vcores=0.1, rack="r2")
    master = rig.start(job("j", stage("a", tasks=2), stage("b", tasks=2)))
    rig.allocate(master, ask(1, 1, nodes=("far",)), ask(2, 1, nodes=("near",), stage=1))
    rig.beat("n1")
    rig.allocate(master)
    assert [c.ask_id for c in master.containers.values()] == [2]


def test_where_there_is_one_rack_it_is_nobodys_advantage() -> None:
    """Figure 15's penalty: the task that prefers this rack by name only is at home, others pay."""
    rig = Rig(make_matcher("graphene", {"kappa": -1}), FREE)
    rig.add_node("n1", vcores=1.0)
    rig.add_node("n2", vcores=0.1)
    master = rig.start(job("j", stage("a", tasks=2), stage("b", tasks=2)))
    # packing scores 1 against 0.85: half of the penalty would still let the larger one win
    large, small = ask(1, 1, nodes=("n2",)), ask(2, 1, (0.85, 1024.0), stage=1)
    rig.allocate(master, large, small)
    rig.beat("n1")
    rig.allocate(master)
    assert [c.ask_id for c in master.containers.values()] == [2]


def test_reading_from_afar_costs_the_network_what_it_reads() -> None:
    """A task that reads 80 MB/s from its disk takes 80 of the network where its input is not."""
    capacity = {"vcores": 4.0, "memory_mb": 1000.0, "disk_mbps": 100.0, "network_mbps": 100.0}
    node = NodeManager("n1", "", capacity, "r1", (), NodeSettings(), np.random.default_rng(1))
    node.handle(Started(), 0.0)
    node.handle(NodeAccepted("n1", DEFAULT_RESOURCE_TYPES, 1.0, False, 0), 0.0)
    items = tuple(
        TaskLaunch((1 << 40 | 1 << 32) + n, 0, n, 0, 5.0, (1.0, 1.0, 40.0, 5.0), remote=n == 2)
        for n in (1, 2)
    )
    effects = node.handle(StartContainers(1 << 8 | 1, "n1", items), 0.0)
    started = {f.task: f.demand for f in noted(effects, TaskStarted)}
    assert started == {1: (1.0, 1.0, 40.0, 5.0), 2: (1.0, 1.0, 40.0, 45.0)}


# -- the whole stack in virtual time ---------------------------------------------------------------


def cluster_of(*nodes: NodeSpec) -> ClusterSpec:
    return ClusterSpec(DEFAULT_RESOURCE_TYPES, nodes, DEFAULT_QUEUES)


def node(name: str, **more: Any) -> NodeSpec:
    return NodeSpec(name, (4.0, 8192.0, 100.0, 100.0), **more)


def run(jobs: list[Job], cluster: ClusterSpec, scheduler: str, **more: Any) -> Simulation:
    simulation = Simulation(
        cluster, jobs, SimSettings(scheduler=preset(scheduler), checks=True, **more)
    )
    simulation.run()
    return simulation


@pytest.mark.parametrize("scheduler", ["fair", "graphene", "tez"])
def test_remote_tasks_take_longer_where_they_share_the_network(scheduler: str) -> None:
    """Four readers on a node without their input share its network; at home they do not."""
    demand = {"vcores": 1.0, "memory_mb": 512.0, "disk_mbps": 50.0}
    ends = []
    for home in ("n1", "elsewhere"):
        reader = Stage("r", 2, 20.0, demand, prefer=Preference(nodes=(home,)))
        busy = Stage("n", 1, 20.0, {"vcores": 1.0, "memory_mb": 512.0, "network_mbps": 100.0})
        jobs = [Job("j", (reader,)), Job("k", (busy,))]
        simulation = run(jobs, cluster_of(node("n1")), scheduler)
        ends.append(max(row.finish_s for row in simulation.recorder.jobs))
    assert ends[1] > ends[0] + 5.0


def test_a_straggler_gets_a_copy_that_wins() -> None:
    """One slow node: with copies the job ends long before the slow task would."""
    jobs = [Job("j", (Stage("a", 8, 10.0, {"vcores": 1.0, "memory_mb": 512.0}),))]
    spec = cluster_of(node("n0"), node("n1"), NodeSpec("n2", (1.1, 8192.0, 100.0, 100.0)))
    slow = faults_from_dict(
        {"faults": [{"at_s": 0.5, "fault": "slow", "node": "n2", "speed": 0.02}]},
        ["n0", "n1", "n2"],
        1,
    )
    ends = []
    for speculate in (False, True):
        simulation = run(jobs, spec, "drf", faults=slow, master={"speculate": speculate})
        row = simulation.recorder.jobs[0]
        assert row.state == "FINISHED"
        ends.append(row.finish_s)
    assert ends[1] < 0.5 * ends[0]


# -- reasons ---------------------------------------------------------------------------------------

TWO = QueueSpec("root", children=(QueueSpec("a", 0.5), QueueSpec("b", 0.5)))


def reasons(rig: Rig, app: int) -> dict[str, int]:
    answer = rig.ask_manager(Explain(app))
    return {why: count for part in answer.stages for why, count in part.reasons.items()}


@pytest.mark.parametrize("matcher", ["fair", "drf", "carbyne"])
def test_who_holds_more_is_told_that_fairness_holds_it(matcher: str) -> None:
    """There is room for one: the other application has less."""
    rig = Rig(matcher, FREE)
    rig.add_node("n1")
    rich, poor = rig.start(job("rich", stage(tasks=9))), rig.start(job("poor", stage(tasks=9)))
    rig.allocate(rich, ask(1, 9))
    rig.beat()
    rig.add_node("n2", vcores=1.0)
    rig.allocate(poor, ask(1, 9))
    found = reasons(rig, 1)
    assert any(why.startswith("held by fairness: 1 applications") for why in found), found
    assert reasons(rig, 2)["would fit: waiting for a heartbeat"] == 1


def test_graphene_names_the_queue_that_is_owed_and_the_stage_that_won() -> None:
    """With a tight bound fairness decides, without one the score."""
    for kappa, words in ((0.0, "held by fairness: queue root.b is owed"), (-1, "outscored by")):
        rig = Rig(make_matcher("graphene", {"kappa": kappa}), FREE, TWO)
        rig.add_node("n1", vcores=3.0)
        first = rig.start(job("first", stage(tasks=9), queue="a"))
        other = rig.start(job("other", stage("win", tasks=9), queue="b"))
        rig.allocate(first, ask(1, 9, pri_score=0.1))
        rig.allocate(other, ask(1, 9, pri_score=0.05))
        rig.beat()  # the first one gets what its score and the bound let it have
        rig.allocate(other, ask(1, 9, pri_score=1.0))
        rig.add_node("n2", vcores=1.0)
        assert any(words in why for why in reasons(rig, 1)), reasons(rig, 1)
    assert "would fit: outscored by stage win of other" in reasons(rig, 1)


# -- what masters tell -----------------------------------------------------------------------------


def test_the_remaining_path_shrinks_as_stages_end() -> None:
    """Longest path by believed durations; a stage that is done counts nothing."""
    parts = (
        plain_stage("a", 2),
        plain_stage("b", 1, "a", duration_s=30.0),
        plain_stage("c", 1, "a"),
    )
    made = Job("j", parts)
    progress = Progress(made)
    path = RemainingPath(made, [10.0, 30.0, 10.0])
    assert path.longest_s(progress, [1.0, 1.0, 1.0]) == 40.0
    assert path.longest_s(progress, [1.0, 0.2, 1.0]) == 20.0
    progress.finish_early(0, 0)
    progress.finish_early(0, 1)
    assert path.longest_s(progress, [1.0, 1.0, 1.0]) == 30.0
    progress.finish_early(1, 0)
    assert path.longest_s(progress, [1.0, 1.0, 1.0]) == 10.0


def test_sjf_goes_by_the_path_not_by_the_work() -> None:
    """A wide short job before a narrow long one, although it has more work."""
    rig = Rig("sjf", FREE)
    rig.add_node("n1", vcores=1.0)
    long, wide = rig.start(job("long", stage(tasks=2))), rig.start(job("wide", stage(tasks=2)))
    rig.allocate(long, ask(1, 1), remaining_work=1.0, remaining_path_s=500.0)
    rig.allocate(wide, ask(1, 1), remaining_work=9.0, remaining_path_s=5.0)
    rig.beat()
    rig.allocate(wide)
    assert len(wide.containers) == 1


def test_the_head_of_a_strict_line_is_found_wherever_it_was_asked_for() -> None:
    """The largest priScore goes first, also behind asks that go after the first one looked at."""
    rig = Rig("fifo", FREE)
    rig.add_node("n1", vcores=2.0)
    master = rig.start(job("j", *(stage(f"s{i}", tasks=1) for i in range(4))))
    scores = (0.5, 0.1, 0.9, 0.7)
    asks = [ask(i + 1, 1, stage=i, pri_score=score) for i, score in enumerate(scores)]
    rig.allocate(master, *asks)
    rig.beat()
    placed = [fact.ask for fact in noted(rig.effects, Placed)]
    assert placed == [3, 4]


def test_half_a_fairness_knob_holds_only_those_behind_the_neediest_half() -> None:
    """Of four applications the two with the least share compete under f = 0.5."""
    rig = Rig(make_matcher("tetris", {"fairness": 0.5}), FREE)
    rig.add_node("n1", vcores=10.0, memory_mb=20480.0)
    masters = [rig.start(job(f"j{i}", stage(tasks=99))) for i in range(4)]
    for held, master in enumerate(masters):
        rig.allocate(master, ask(1, held, (1.0, 1024.0)))
        rig.beat()
    for held, master in enumerate(masters):
        rig.allocate(master, ask(1, held + 1, (1.0, 1024.0)))
    books = rig.manager.books
    rows = {e.app: e.row for e in books.rows.entries if e is not None}
    why = [
        books.matcher.why_not(books.view, 0, rows[slot])
        for slot in sorted(rows, key=lambda slot: books.ledger.apps.held[slot, 0])
    ]
    assert why == [
        "",
        "",
        *(f"held by fairness: {n} applications have a smaller share" for n in (2, 3)),
    ]
