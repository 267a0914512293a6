"""An unhealthy node gets nothing new, what it runs goes on, and everybody is told why."""

import asyncio
import os
from pathlib import Path

import numpy as np
import pytest

from nm.core import NodeManager
from nm.process.health import LINE_BYTES_MAX, Findings, check_script, examine
from nm.settings import NodeSettings
from rm.settings import ManagerSettings
from sim.cluster import Simulation
from sim.faults import faults_from_dict
from sim.settings import SimSettings
from testkit.builders import TWO_TYPES, ask, job, node_registered, noted, sent, stage
from testkit.manager import Rig, granted
from weft.model.cluster import cluster_from_text
from weft.model.errors import InputError
from weft.policies.presets import preset
from weft.protocol.effects import NodeExamined, Started, TimerFired
from weft.protocol.facts import NodeChanged, TaskStarted
from weft.protocol.messages import NodeAccepted, NodeHeartbeated, NodeRegistered
from weft.protocol.requests import DecommissionNode, Explain, ListNodes, RecommissionNode

FREE = ManagerSettings(master_demand={}, node_expiry_s=10.0, master_expiry_s=60.0)
ILL = "ERROR: the disk is full"


def report(rig: Rig, name: str = "n1") -> tuple[str, str]:
    """A node's state and what its health script says."""
    answer = rig.ask_manager(ListNodes())
    rows = getattr(answer, "items", answer)
    return next((r.state, r.health_report) for r in rows if r.node_id == name)


def beat(rig: Rig, unhealthy: str, name: str = "n1") -> list[object]:
    """A node's heartbeat that says how it is."""
    return rig.tell(rig.nodes[name].heartbeat(unhealthy=unhealthy))


def test_an_unhealthy_node_gets_nothing_new_and_what_it_runs_goes_on() -> None:
    rig, master = granted(FREE, 2)
    assert len(master.containers) == 2
    changed = noted(beat(rig, ILL), NodeChanged)
    assert [(f.node, f.state) for f in changed] == [("n1", "UNHEALTHY")]
    assert report(rig) == ("UNHEALTHY", ILL)
    rig.allocate(master, ask(total=4))
    for _ in range(3):
        assert not noted(beat(rig, ILL), NodeChanged), "said again it is no news"
    rig.allocate(master)
    assert len(master.containers) == 2, "nothing new"
    assert not rig.nodes["n1"].stops, "nothing is stopped"
    reasons = rig.ask_manager(Explain(1)).stages[0].reasons
    assert reasons["node is unhealthy"] == 1
    beat(rig, "")
    rig.allocate(master)
    assert len(master.containers) == 4
    assert report(rig) == ("RUNNING", "")


def test_a_late_word_of_before_changes_nothing() -> None:
    rig = Rig(settings=FREE)
    node = rig.add_node("n1")
    late = node.heartbeat()
    beat(rig, ILL)
    rig.tell(late)
    assert report(rig) == ("UNHEALTHY", ILL)
    rig.restart_node("n1", 9)
    assert report(rig) == ("RUNNING", ""), "another process of the node finds nothing wrong"
    rig.tell(node_registered("n2", unhealthy=ILL))
    assert report(rig, "n2") == ("UNHEALTHY", ILL)


def test_an_unhealthy_node_may_be_lost_leave_and_be_decommissioned() -> None:
    rig = Rig(settings=FREE)
    rig.add_node("n1")
    rig.add_node("n2")
    beat(rig, ILL)
    rig.ask_manager(DecommissionNode("n1", 60.0))
    assert report(rig)[0] == "DECOMMISSIONED"
    rig.ask_manager(RecommissionNode("n1"))
    assert report(rig) == ("UNHEALTHY", ILL), "it is as ill as before"
    rig.beat("n2", later_s=11.0)
    rig.tell(TimerFired("liveness"))
    assert report(rig)[0] == "LOST"
    rig.tell(node_registered("n1"))
    assert report(rig) == ("RUNNING", "")


def test_a_node_says_how_it_is_with_every_heartbeat_and_registration() -> None:
    capacity = {"vcores": 4.0, "memory_mb": 1024.0}
    node = NodeManager("n1", "", capacity, "r1", (), NodeSettings(), np.random.default_rng(0))
    node.handle(NodeExamined(ILL), 0.0)
    (registered,) = sent(node.handle(Started(), 0.0), NodeRegistered)
    assert registered.unhealthy == ILL
    node.handle(NodeAccepted("n1", TWO_TYPES, 1.0, False, 0), 0.0)
    assert node.silent
    node.handle(NodeExamined(""), 0.5)
    assert not node.silent, "there is something to tell"
    for _ in range(2):
        (told,) = sent(node.handle(TimerFired("heartbeat"), 1.0), NodeHeartbeated)
        assert told.unhealthy == ""


# -- the script ------------------------------------------------------------------------------------


def script(folder: Path, text: str) -> Path:
    """A script that may be run."""
    path = folder / "health.sh"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o700)
    return path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("echo fine", ""),
        ("echo fine; exit 3", ""),
        ("echo ERROR disk $1 of $WEFT_NODE is full", "ERROR disk a of n1 is full"),
        ("echo first; echo ERROR one; echo ERROR two; exit 1", "ERROR one; ERROR two"),
        ("echo an ERROR in the middle", ""),
        ("echo ERROR >&2", ""),
        ("sleep 60 & sleep 60", "the health script was not done after 0.5 s"),
    ],
)
def test_the_protocol_is_yarns(tmp_path: Path, text: str, wanted: str) -> None:
    environment = {**os.environ, "WEFT_NODE": "n1"}
    found = asyncio.run(
        examine(script(tmp_path, text), ["a"], 0.5 if wanted.startswith("the") else 60, environment)
    )
    assert found == wanted


def test_a_script_that_cannot_be_run_is_told_of_at_once(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="health_script"):
        check_script(tmp_path / "none")
    path = script(tmp_path, "echo fine")
    check_script(path)
    path.write_text("no program")
    path.chmod(0o700)
    assert "cannot be run" in asyncio.run(examine(path, [], 5.0, dict(os.environ)))


def test_a_report_is_one_bounded_line_without_control_characters() -> None:
    assert report_of(b"ERROR \x1b[31m red\nfine\nERROR b") == "ERROR  [31m red; ERROR b"
    assert len(report_of(b"ERROR " + b"x" * 100_000)) == 1000


def report_of(output: bytes, step: int = 0) -> str:
    findings = Findings()
    for first in range(0, len(output), step or len(output)):
        findings.feed(output[first : first + (step or len(output))])
        kept = len(findings._unfinished_line) + sum(map(len, findings._errors))
        assert kept <= 3 * LINE_BYTES_MAX, "only what is reported is kept"
    return findings.report()


def test_an_error_is_found_however_much_comes_before_it_and_however_it_is_cut(
    tmp_path: Path,
) -> None:
    noise = "x" * 70_000 + "\nERRO\n an ERROR\n" + "fine\n" * 20_000
    output = f"{noise}ERROR the disk\r\n{noise}ERROR last".encode()
    for step in (0, 1, 7, 4096):
        assert report_of(output, step) == "ERROR the disk; ERROR last"
    (tmp_path / "said").write_bytes(output)
    path = script(tmp_path, f"cat {tmp_path}/said")
    assert asyncio.run(examine(path, [], 60.0, dict(os.environ))) == "ERROR the disk; ERROR last"


# -- in virtual time -------------------------------------------------------------------------------


def test_a_fault_of_health_moves_new_work_elsewhere_and_breaks_nothing() -> None:
    faults = faults_from_dict(
        {"faults": [{"at_s": 5, "fault": "unhealthy", "node": "n1", "for_s": 40}]}, ["n1", "n2"], 1
    )
    simulation = Simulation(
        cluster_from_text("2x4vcores,8192memory_mb"),
        [job("j", stage("a", 8, 10.0), stage("b", 12, 5.0, parents=["a"]))],
        SimSettings(preset("capacity"), checks=True, faults=faults),
    )
    began: list[tuple[float, str]] = []

    def note(now: float, fact: object) -> None:
        if isinstance(fact, TaskStarted) and fact.stage >= 0:
            began.append((now, fact.node))

    simulation.watchers.append(note)
    recorder = simulation.run()
    assert recorder.jobs[0].state == "FINISHED"
    assert len(began) == 20, "what ran on the unhealthy node went on"
    ill = [node for at_s, node in began if 8.0 < at_s < 44.0]
    assert len(ill) >= 8
    assert set(ill) == {"n2"}
