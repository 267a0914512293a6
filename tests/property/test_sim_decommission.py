"""Nodes are drained one after the other under a running job: the same core, in virtual time."""

from collections import Counter

import pytest

from sim.cluster import Simulation
from sim.faults import FaultKind, Faults, faults_from_dict, random_faults
from sim.process.walk import CLUSTER, HORIZON_S, JOBS
from sim.recorder import Recorder
from sim.settings import SimSettings
from weft.model.cluster import cluster_from_text
from weft.model.errors import InputError
from weft.model.job import Edge, Job, Stage
from weft.policies.presets import preset
from weft.protocol.facts import AttemptChanged, NodeChanged, TaskStarted, TaskStopped
from weft.protocol.messages import Outcome

FOUR = cluster_from_text("4x4vcores,8192memory_mb")
NODES = [spec.node_id for spec in FOUR.nodes]
DEMAND = {"vcores": 1.0, "memory_mb": 512.0}


class Watch:
    """What nodes run and which state they are in, from facts alone."""

    def __init__(self) -> None:
        self.running: Counter[str] = Counter()
        self.states: dict[str, str] = {}
        self.history: list[tuple[float, str, str]] = []
        self.outcomes: Counter[Outcome] = Counter()
        self.failed_attempts = 0
        self.left_busy: list[str] = []

    def note(self, now: float, fact: object) -> None:
        if isinstance(fact, TaskStarted):
            self.running[fact.node] += 1
        elif isinstance(fact, TaskStopped):
            self.running[fact.node] -= 1
            self.outcomes[Outcome(fact.outcome)] += fact.stage >= 0
        elif isinstance(fact, AttemptChanged):
            self.failed_attempts += fact.state == "FAILED"
        elif isinstance(fact, NodeChanged):
            self.history.append((now, fact.node, fact.state))
            if fact.state == "DECOMMISSIONED" and self.running[fact.node]:
                self.left_busy.append(fact.node)


def work(duration_s: float = 20.0) -> Job:
    """Two stages with a barrier, larger than the cluster at once."""
    return Job(
        "work",
        (
            Stage("a", 60, duration_s, DEMAND),
            Stage("b", 30, duration_s, DEMAND, (Edge("a"),)),
        ),
        max_task_attempts=1,
    )


def run(
    script: Faults, scheduler: str = "capacity", prompt: bool = True, **manager: object
) -> Watch:
    """One run with every checker on; the job must succeed."""
    watch = Watch()
    settings = SimSettings(
        preset(scheduler),
        prompt=prompt,
        checks=True,
        faults=script,
        until_s=5_000.0,
        manager={"master_expiry_s": 30.0, **manager},
    )
    simulation = Simulation(FOUR, [work()], settings, Recorder())
    simulation.watchers.append(watch.note)
    simulation.run()
    simulation.check()
    assert [row.state for row in simulation.recorder.jobs] == ["FINISHED"]
    return watch


def rolling(timeout_s: float | None, after_s: float = 30.0) -> Faults:
    """Each node in turn is drained, and taken back before the next."""
    rows: list[dict[str, object]] = []
    for number, node in enumerate(NODES):
        at_s = 5.0 + after_s * number
        row: dict[str, object] = {"at_s": at_s, "fault": "decommission", "node": node}
        rows.append(row if timeout_s is None else {**row, "timeout_s": timeout_s})
        rows.append({"at_s": at_s + after_s - 1.0, "fault": "recommission", "nodes": [node]})
    return faults_from_dict({"faults": rows}, NODES, 1)


@pytest.mark.slow
@pytest.mark.parametrize("scheduler", ["capacity", "graphene", "carbyne", "cobra"])
@pytest.mark.parametrize("prompt", [True, False], ids=["prompt", "yarn"])
def test_a_patient_roll_over_all_nodes_costs_no_task(scheduler: str, prompt: bool) -> None:
    """Nobody is stopped; the master's own node waits for the job's end, as there is no time-out."""
    watch = run(rolling(None), scheduler, prompt)
    assert set(watch.outcomes) <= {Outcome.SUCCEEDED, Outcome.RELEASED}
    assert watch.outcomes[Outcome.SUCCEEDED] == 90
    assert not watch.failed_attempts
    assert not watch.left_busy
    drained = {node for _, node, state in watch.history if state == "DECOMMISSIONED"}
    assert len(drained) >= 3 or scheduler == "cobra", "COBRA's containers outlive their tasks"


@pytest.mark.parametrize("prompt", [True, False], ids=["prompt", "yarn"])
def test_a_hasty_roll_stops_tasks_and_counts_nothing_against_the_job(prompt: bool) -> None:
    """One attempt a task and one of the master are allowed, and every node is emptied by force."""
    watch = run(rolling(2.0), prompt=prompt, max_attempts=1)
    assert watch.outcomes[Outcome.KILLED] > 0
    assert watch.outcomes[Outcome.SUCCEEDED] == 90, "what was done is not done again"
    assert watch.failed_attempts >= 1, "the master's node was among them"
    assert not watch.left_busy
    states = [(node, state) for _, node, state in watch.history if state != "DECOMMISSIONING"]
    assert [s for s in states if s[1] == "DECOMMISSIONED"] == [(n, "DECOMMISSIONED") for n in NODES]
    for at_s, node, state in watch.history:
        if state == "DECOMMISSIONING":
            done = min(t for t, n, s in watch.history if (n, s) == (node, "DECOMMISSIONED"))
            assert done <= at_s + 2.0 + 5.0


def test_a_decommission_outlives_the_manager() -> None:
    rows = [
        {"at_s": 5.0, "fault": "decommission", "node": NODES[1], "timeout_s": 8.0},
        {"at_s": 7.0, "fault": "restart_manager", "for_s": 3.0},
        {"at_s": 8.0, "fault": "decommission", "node": NODES[2], "timeout_s": 0.0},  # it is gone
        {"at_s": 60.0, "fault": "restart_manager", "for_s": 1.0},
        {"at_s": 70.0, "fault": "recommission", "nodes": NODES[1:3]},
    ]
    watch = run(faults_from_dict({"faults": rows}, NODES, 1), max_attempts=4)
    for node in NODES[1:3]:
        seen = [(t, s) for t, n, s in watch.history if n == node]
        assert min(t for t, s in seen if s == "DECOMMISSIONED") < 30.0
        assert min(t for t, s in seen if s == "RUNNING" and t > 30.0) >= 70.0
    assert not watch.left_busy


def test_the_walks_drain_nodes_too() -> None:
    """What `test_sim_faults` walks through holds decommissions of every kind."""
    nodes = [spec.node_id for spec in cluster_from_text(CLUSTER).nodes]
    found = [
        fault
        for seed in range(50)
        for fault in random_faults(seed, nodes, JOBS, HORIZON_S).script
        if fault.kind is FaultKind.DECOMMISSION
    ]
    assert any(f.timeout_s < 0 for f in found)
    assert any(f.timeout_s == 0 for f in found)
    assert any(f.timeout_s > 0 for f in found)
    assert all(f.for_s > 0 for f in found), "so that jobs can end"


@pytest.mark.parametrize(
    ("row", "place"),
    [
        ({"fault": "decommission"}, r"faults\[0\]\.nodes"),
        ({"fault": "recommission"}, r"faults\[0\]\.nodes"),
        ({"fault": "decommission", "node": "n99"}, "unknown node"),
        ({"fault": "decommission", "node": "n1", "timeout_s": -5}, "timeout_s"),
    ],
)
def test_a_broken_line_is_named(row: dict[str, object], place: str) -> None:
    with pytest.raises(InputError, match=place):
        faults_from_dict({"faults": [row]}, NODES, 1)


@pytest.mark.slow
@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize(
    "scheduler",
    ["fifo", "capacity", "fair", "drf", "sjf", "tetris", "graphene", "carbyne", "cobra"],
)
def test_a_cluster_without_any_node_in_service_goes_on_when_they_are_back(scheduler: str) -> None:
    """No policy may divide by a capacity that is nothing."""
    rows = [{"at_s": 5.0, "fault": "decommission", "nodes": NODES, "timeout_s": 0.0, "for_s": 30.0}]
    for prompt in (True, False):
        watch = run(faults_from_dict({"faults": rows}, NODES, 1), scheduler, prompt)
        assert not watch.left_busy
        assert watch.outcomes[Outcome.KILLED] > 0
