"""What ends its nodes is contained: limits, lists of nodes to avoid, a lifetime."""

from functools import partial

import numpy as np
import pytest

from am.ask.registry import asker
from am.core import ApplicationMaster
from am.failures import NodeFailures
from am.settings import MasterSettings
from rm.recovery import compact
from rm.settings import ManagerSettings
from rm.state.lifecycle import AttemptState
from sim.cluster import Simulation
from sim.faults import Fault, FaultKind, Faults
from sim.settings import SimSettings
from testkit.builders import ask, job, noted, sent, stage
from testkit.manager import Rig
from testkit.master import accepted
from weft.model.cluster import cluster_from_dict, cluster_from_text
from weft.model.errors import InputError
from weft.model.ids import app_of_container, attempt_id, container_id
from weft.model.jobfile import job_from_dict, job_to_dict
from weft.policies.presets import preset
from weft.protocol.effects import SetTimer, Started, TimerFired
from weft.protocol.facts import AppChanged, TaskStarted
from weft.protocol.messages import (
    NODE_ENDED,
    AttemptFinished,
    Container,
    ContainerEnd,
    ContainersAsked,
    ContainersGranted,
    Outcome,
)
from weft.protocol.requests import Done, Explain, GetApplication, MoveApplication, SetExpiry

FREE = ManagerSettings(master_demand={}, node_expiry_s=10.0, master_expiry_s=60.0, node_ends_max=3)


# -- nodes that end --------------------------------------------------------------------------------


def lose_node(rig: Rig, name: str) -> None:
    """A node falls silent while the others go on."""
    rig.now += 9.0
    for other in rig.nodes:
        if other != name:
            rig.beat(other)
    rig.tell(TimerFired("liveness"), 2.0)
    del rig.nodes[name]


def test_an_application_whose_masters_end_their_nodes_fails_and_says_so() -> None:
    rig = Rig(settings=FREE)
    for number in range(1, 6):
        rig.add_node(f"n{number}")
    app = rig.submit(job("bad"))
    hit = []
    for _ in range(3):
        rig.beat()
        number = rig.manager.books.apps[app].attempt.attempt_id
        (where,) = [n.node_id for n in rig.nodes.values() if number in n.masters.values()]
        hit.append(where)
        lose_node(rig, where)
    report = rig.ask_manager(GetApplication(app))
    assert (report.state, report.final_status) == ("FAILED", "FAILED")
    wanted = f"3 masters ended with their nodes ({', '.join(hit)}), which they may have caused"
    assert wanted in report.diagnostics
    assert "\n" not in report.diagnostics
    assert wanted in rig.ask_manager(Explain(app)).text
    changed = [f for e in [rig.records[-1]] for f in [e] if e["kind"] == "final"]
    assert wanted in changed[0]["diagnostics"]
    assert len(rig.manager.books.nodes) - len(rig.nodes) == 3, "two nodes live"


def test_the_count_of_masters_that_ended_their_nodes_survives_a_restart() -> None:
    rig = Rig(settings=FREE)
    for number in range(1, 4):
        rig.add_node(f"n{number}")
    rig.submit(job("bad"))
    for _ in range(2):
        rig.beat()
        number = rig.manager.books.apps[1].attempt.attempt_id
        (where,) = [n.node_id for n in rig.nodes.values() if number in n.masters.values()]
        lose_node(rig, where)
    again = Rig(settings=FREE, records=rig.records)
    past = again.manager.books.apps[1].attempts
    assert [one.ended_node for one in past] == [True, True, False]
    assert past[2].avoid == {one.failed_on for one in past[:2]} != {""}


def test_a_node_that_leaves_on_purpose_is_nobodys_fault() -> None:
    rig = Rig(settings=FREE)
    rig.add_node("n1")
    master = rig.start(job("j", stage(tasks=2)))
    rig.add_node("n2")
    rig.allocate(master, ask(total=8))
    rig.beat("n2")
    rig.allocate(master)
    here = [c for c in master.containers.values() if c.node_id == "n2"]
    assert here
    from weft.protocol.messages import NodeUnregistered

    rig.tell(NodeUnregistered("n2"))
    rig.allocate(master)
    assert {master.ended[c.container_id].exit_code for c in here} == {-1}


def test_a_task_that_ends_its_nodes_fails_its_job_and_says_so() -> None:
    master = ApplicationMaster(
        attempt_id(1, 1),
        MasterSettings(planner="", node_ends_max=3),
        asker("all_ready"),
        np.random.default_rng(0),
    )
    master.handle(Started(), 0.0)
    master.handle(accepted(job("j", stage("map", 2))), 0.0)
    (request,) = sent(master.handle(TimerFired("ask"), 0.0), ContainersAsked)
    ask_id, effects, fine = request.asks[0].ask_id, [], 0
    for number in range(2, 10):
        one = container_id(attempt_id(1, 1), number)
        grant = ContainersGranted(
            attempt_id(1, 1), number, containers=(Container(one, f"n{number}", ask_id),)
        )
        master.handle(grant, 1.0 * number)
        if number == 2:
            continue  # task 0 goes on
        code, fine = (-1, fine + 1) if number == 4 else (NODE_ENDED, fine)
        end = ContainerEnd(one, Outcome.LOST, code, 0, -1, message="its node was silent for 10 s")
        effects = master.handle(ContainersGranted(attempt_id(1, 1), 100 + number, ended=(end,)), 9)
        verdicts = sent(effects, AttemptFinished)
        if verdicts:
            break
        sent(master.handle(TimerFired("ask"), 9.0), ContainersAsked)
    assert number == 6, "the node that left counts for nothing"
    assert not verdicts[0].succeeded
    assert verdicts[0].diagnostics == (
        "stage 'map' task 1 ended with its node 3 times (n3, n5, n6), which it may have caused; "
        "the last: its node was silent for 10 s"
    )


def test_a_master_that_lived_for_long_is_not_blamed_for_its_node() -> None:
    rig = Rig(settings=FREE)
    for number in range(1, 4):
        rig.add_node(f"n{number}")
    rig.start(job("long"))
    (where,) = [n.node_id for n in rig.nodes.values() if n.masters]
    rig.now += 3600.0
    rig.tell(TimerFired("liveness"), paused=True)
    lose_node(rig, where)
    first = rig.manager.books.apps[1].attempts[0]
    assert (first.state, first.ended_node) == (AttemptState.FAILED, False)


def test_a_poisonous_task_ends_its_job_and_no_more_nodes_than_the_limit() -> None:
    simulation = Simulation(
        cluster_from_text("6x4vcores,8192memory_mb"),
        [job("bad", stage("map", 6, 5.0)), job("good", stage("a", 8, 5.0))],
        SimSettings(
            preset("capacity"),
            faults=Faults((Fault(500.0, FaultKind.REPLAY),)),
            manager={"node_expiry_s": 5.0, "max_attempts": 9},
            master={"node_ends_max": 3},
            until_s=400.0,
        ),
    )
    crashed: list[str] = []

    def note(now: float, fact: object) -> None:
        if not isinstance(fact, TaskStarted) or (fact.stage, fact.task) != (0, 3):
            return
        row = simulation.recorder.by_app.get(app_of_container(fact.container))
        if row is not None and row.job.name == "bad":
            crashed.append(fact.node)
            simulation._fault_executor.later(1.0, partial(simulation.crash_node, fact.node))

    simulation.watchers.append(note)
    recorder = simulation.run()
    bad, good = recorder.jobs
    assert bad.diagnostics.startswith("stage 'map' task 3 ended with its node 3 times (")
    assert "was silent for 5 s" in bad.diagnostics
    assert len(crashed) == 3
    assert good.state == "FINISHED"


# -- nodes to avoid --------------------------------------------------------------------------------


def test_a_black_list_of_too_many_nodes_is_ignored_as_a_whole() -> None:
    nodes = NodeFailures(lambda _: 6, failures_max=2, share_max=0.34)
    assert [nodes.count("n1", ""), nodes.count("n1", "")] == [False, True]
    assert [nodes.count("n2", ""), nodes.count("n2", "")] == [False, True]
    assert nodes.avoided == {"n1", "n2"}
    found = [nodes.count("n3", ""), nodes.count("n3", "")]
    assert found == [False, True], "the list changes: it is empty"
    assert nodes.avoided == set()
    assert nodes.ignored("")
    assert [nodes.count("n4", ""), nodes.count("n4", "")] == [False, False]


def test_too_many_are_counted_among_the_nodes_that_a_label_opens() -> None:
    """The only node with a label is never avoided, however many others there are."""
    nodes = NodeFailures({"": 5, "gpu": 1}.__getitem__, failures_max=1, share_max=0.34)
    assert not nodes.count("n5", "gpu")
    assert nodes.count("n1", "")
    assert nodes.avoided == {"n1"}


def test_masters_go_where_none_of_them_failed_unless_that_is_nearly_everywhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rm.placing.allocation.MASTER_AVOIDS_MAX", 0.5)
    settings = ManagerSettings(master_demand={}, max_attempts=10)
    rig = Rig(settings=settings)
    for number in range(1, 5):
        rig.add_node(f"n{number}")
    rig.submit(job("j"))
    places = []
    for _ in range(5):
        rig.beat()
        attempt = rig.manager.books.apps[1].attempt
        assert attempt.state is AttemptState.ALLOCATED
        places.append(attempt.master.node.node_id)
        rig.beat(places[-1], ContainerEnd(attempt.master_id, Outcome.FAILED, 1))
    assert len(set(places[:3])) == 3, "neither on the last node nor on the one before"
    assert places[3] in places[:3], "half may be avoided: after three failures all may be used"


# -- lifetime --------------------------------------------------------------------------------------

QUEUES = cluster_from_dict(
    {
        "nodes": [{"capacity": {"vcores": 4, "memory_mb": 8192}}],
        "queues": {
            "root": {
                "max_lifetime_s": 100,
                "quick": {"default_lifetime_s": 20, "capacity": 0.5},
                "slow": {"capacity": 0.5},
            }
        },
    }
).queues


@pytest.mark.parametrize(
    ("queue", "own_s", "lasts_s"),
    [("quick", 0.0, 20.0), ("quick", 50.0, 50.0), ("quick", 500.0, 100.0), ("slow", 0.0, 100.0)],
)
def test_an_application_is_killed_at_the_end_of_its_lifetime(
    queue: str, own_s: float, lasts_s: float
) -> None:
    rig = Rig(settings=FREE, queues=QUEUES)
    rig.add_node("n1")
    rig.now = 7.0
    app = rig.submit(job("j", queue=queue, lifetime_s=own_s))
    (alarm,) = [e for e in rig.effects if isinstance(e, SetTimer) and e.key == ("lifetime", app)]
    assert alarm.delay_s == lasts_s
    assert rig.ask_manager(GetApplication(app)).expires_s == 7.0 + lasts_s
    early = rig.tell(TimerFired(alarm.key), lasts_s - 0.5)
    assert [e.delay_s for e in early if isinstance(e, SetTimer) and e.key == alarm.key] == [0.5]
    effects = rig.tell(TimerFired(alarm.key), 0.5)
    (changed,) = [f for f in noted(effects, AppChanged) if f.final_status == "KILLED"][:1]
    why = f"it exceeded its lifetime of {lasts_s:g} s after its submission"
    assert changed.diagnostics == why
    report = rig.ask_manager(GetApplication(app))
    assert (report.state, report.diagnostics, report.expires_s) == ("KILLED", why, 0.0)
    assert why in rig.ask_manager(Explain(app)).text


def test_a_lifetime_survives_a_restart_and_follows_a_move() -> None:
    rig = Rig(settings=FREE, queues=QUEUES)
    rig.add_node("n1")
    app = rig.submit(job("j", queue="slow"))
    rig.ask_manager(MoveApplication(app, "quick"))
    assert rig.ask_manager(GetApplication(app)).expires_s == 20.0
    again = Rig(settings=FREE, queues=QUEUES, records=rig.records)
    assert again.ask_manager(GetApplication(app)).expires_s == 20.0
    again.tell(TimerFired(("lifetime", app)), 21.0)
    assert again.ask_manager(GetApplication(app)).state == "KILLED"


def test_a_client_changes_until_when_an_application_may_last() -> None:
    rig = Rig(settings=FREE, queues=QUEUES)
    rig.add_node("n1")
    rig.now = 7.0
    app = rig.submit(job("j", queue="quick", lifetime_s=50.0))
    expires = lambda rig: rig.ask_manager(GetApplication(app)).expires_s  # noqa: E731
    assert rig.ask_manager(SetExpiry(app, 30.0)) == Done("ACCEPTED")
    assert expires(rig) == 30.0
    assert rig.ask_manager(SetExpiry(app, 500.0)) == Done("ACCEPTED")
    assert expires(rig) == 107.0, "never more than its queue's most"
    for past in (7.0, 6.5):
        refused = rig.ask_manager(SetExpiry(app, past))
        assert (refused.code, refused.place) == ("invalid_argument", "expires_s")
    assert expires(rig) == 107.0
    rig.ask_manager(SetExpiry(app, 40.0))
    assert expires(Rig(settings=FREE, queues=QUEUES, records=rig.records)) == 40.0
    again = Rig(settings=FREE, queues=QUEUES, records=compact(compact(rig.records)))
    assert expires(again) == 40.0, "it outlives a restart"
    again.ask_manager(SetExpiry(app, 0.0))
    assert expires(again) == 57.0, "as its job says"
    again.ask_manager(SetExpiry(app, 41.0))
    again.tell(TimerFired(("lifetime", app)), 42.0)
    assert again.ask_manager(GetApplication(app)).state == "KILLED"
    assert again.ask_manager(SetExpiry(app, 99.0)).code == "failed_precondition"


def test_an_end_in_time_calls_the_alarm_off() -> None:
    rig = Rig(settings=FREE, queues=QUEUES)
    rig.add_node("n1")
    master = rig.start(job("j", queue="quick"))
    effects = rig.tell(AttemptFinished(master.attempt_id, True))
    assert SetTimer(None, ("lifetime", 1)) in effects
    rig.tell(TimerFired(("lifetime", 1)), 30.0)
    assert rig.ask_manager(GetApplication(1)).final_status == "SUCCEEDED"


def test_a_job_file_says_a_lifetime() -> None:
    text = {"name": "j", "stages": [{"name": "a", "tasks": 1, "duration_s": 1, "demand": {}}]}
    assert job_from_dict(text).lifetime_s == 0.0
    found = job_from_dict({**text, "lifetime_s": 60})
    assert found.lifetime_s == 60.0
    assert job_from_dict(job_to_dict(found)) == found
    with pytest.raises(InputError, match="lifetime_s"):
        job_from_dict({**text, "lifetime_s": -1})
