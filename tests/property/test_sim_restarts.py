"""Reusable containers live through restarts of the Resource Manager without ghosts and orphans."""

import pytest

from sim.cluster import Simulation
from sim.faults import Fault, FaultKind, Faults
from sim.network import LinkSettings
from sim.settings import SimSettings
from weft.model.cluster import cluster_from_text
from weft.model.job import Job, Stage
from weft.policies.presets import preset
from weft.protocol.messages import node_address


@pytest.mark.parametrize("scheduler", ["srs", "drs", "cobra"])
def test_a_task_whose_end_only_the_journal_kept_leaves_its_container(scheduler: str) -> None:
    """Its end was acknowledged by the manager before the restart, its own word was cut off."""
    jobs = [Job("one", (Stage("a", 20, 3.0, {"vcores": 1, "memory_mb": 1024}),))]
    script = (
        Fault(5.0, FaultKind.PARTITION, ("n2",), for_s=7.0),
        Fault(10.0, FaultKind.RESTART_MANAGER, for_s=0.5),
    )
    settings = SimSettings(preset(scheduler), faults=Faults(script), checks=True, until_s=120.0)
    simulation = Simulation(cluster_from_text("3x4vcores,4096memory_mb"), jobs, settings)
    assert [row.state for row in simulation.run().jobs] == ["FINISHED"]


@pytest.mark.parametrize("prompt", [False, True], ids=["yarn", "prompt"])
def test_a_node_that_refuses_what_is_granted_is_avoided(prompt: bool) -> None:
    """It holds something that the manager does not know: it is granted few containers, not many."""
    jobs = [Job("j", (Stage("a", 12, 5.0, {"vcores": 1, "memory_mb": 2048}),), arrival_s=5.0)]
    settings = SimSettings(
        preset("capacity"),
        prompt=prompt,
        until_s=120.0,
        faults=Faults(network=LinkSettings(0.01, 0.01)),
    )
    simulation = Simulation(cluster_from_text("4x8vcores,8192memory_mb"), jobs, settings)
    simulation.engine.run(simulation._hand_over, 3.0)
    node = simulation.actors[node_address("n1")].core
    node._runner.book.add(999 << 40 | 1, (1.0, 7000.0), False, False)  # type: ignore[attr-defined]
    recorder = simulation.run()
    assert [row.state for row in recorder.jobs] == ["FINISHED"]
    assert recorder.decisions < 80, "12 tasks, a master, and what n1 refused before it was avoided"


@pytest.mark.parametrize("scheduler", ["cobra", "graphene", "default_container"])
def test_a_master_that_came_before_the_nodes_were_back_goes_by_all_of_them(scheduler: str) -> None:
    """It was told of one machine of eight, and under COBRA its job kept to a part of them."""
    jobs = [Job("j", (Stage("a", 64, 10.0, {"vcores": 1, "memory_mb": 1024}),), arrival_s=10.2)]
    away = tuple(f"n{number}" for number in range(2, 9))
    script = (
        Fault(9.0, FaultKind.PARTITION, away, for_s=8.0),
        Fault(9.5, FaultKind.RESTART_MANAGER, for_s=0.5),
    )
    settings = SimSettings(preset(scheduler), faults=Faults(script), checks=True, until_s=300.0)
    simulation = Simulation(cluster_from_text("8x4vcores,8192memory_mb"), jobs, settings)
    (row,) = simulation.run().jobs
    assert row.state == "FINISHED"
    assert row.finish_s < 100.0  # 185 under COBRA by one machine


@pytest.mark.parametrize("scheduler", ["cobra", "srs", "drs"])
@pytest.mark.parametrize("again", [False, True], ids=["once", "twice"])
def test_what_was_given_up_before_its_node_came_back_is_not_kept_for_its_master(
    scheduler: str, again: bool
) -> None:
    """Its master had been told that it is lost, and it held its room for nobody."""
    jobs = [Job("one", (Stage("a", 80, 30.0, {"vcores": 1, "memory_mb": 1024}),))]
    for prompt, name in ((False, "n1"), (True, "n2")):  # the master runs elsewhere
        script = [
            Fault(5.0, FaultKind.PARTITION, (name,), for_s=22.0 if again else 17.0),
            Fault(5.5, FaultKind.RESTART_MANAGER, for_s=0.5),
            *([Fault(20.0, FaultKind.RESTART_MANAGER, for_s=0.5)] if again else []),
        ]
        settings = SimSettings(
            preset(scheduler),
            prompt=prompt,
            faults=Faults(tuple(script)),
            checks=True,
            until_s=50.0,
            manager={"node_expiry_s": 10.0, "master_expiry_s": 12.0},
        )
        cluster = cluster_from_text("3x4vcores,4096memory_mb")
        simulation = Simulation(cluster, jobs, settings)
        simulation.run()
        (master,) = [a.core for name, a in simulation.actors.items() if name.startswith("am:")]
        held = {number for number, _ in master._work.holdings()}  # type: ignore[attr-defined]
        found = [h for h in simulation.manager.books.holdings.values() if h.attempt is not None]
        kept = {h.container_id for h in found if h is not h.attempt.master}
        assert kept
        assert kept <= held
