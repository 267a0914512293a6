"""What a master does when tasks, nodes, plans or managers fail it."""

import numpy as np
import pytest

from am.ask.registry import asker
from am.core import ApplicationMaster
from am.estimates import UNKNOWN_S, Estimates, merge_history
from am.lifecycle import MasterState
from am.settings import MasterSettings
from testkit.master import (
    ATTEMPT,
    PretendedCluster,
    accepted,
    assert_ran_in_order,
    chain,
    messages_of,
    stage,
)
from weft.model.dag import dag_of_job
from weft.model.errors import InputError, InvariantError
from weft.model.ids import attempt_id, container_id
from weft.model.job import Edge, Job, Preference, TaskOverride
from weft.model.plan import Plan, plan_of_starts
from weft.protocol.effects import MakePlan, Note, SetTimer, Started, Stop, TimerFired
from weft.protocol.facts import MasterPlanned, Remark
from weft.protocol.messages import (
    NO_TOKEN,
    NODE_FAULT,
    AttemptFinished,
    AttemptRegistered,
    AttemptStopped,
    AttemptUnregistered,
    Container,
    ContainerEnd,
    ContainersAsked,
    ContainersGranted,
    ItemAnswer,
    Outcome,
    StartAnswered,
    StartContainers,
    StopContainers,
    TaskLaunch,
    launches_of,
)
from weft.protocol.record import changed

DIRECT = MasterSettings(planner="")


def begun(job: Job, settings: MasterSettings = DIRECT, **fields: object) -> ApplicationMaster:
    """A master that was accepted, without a planner, in prompt pace."""
    master = ApplicationMaster(ATTEMPT, settings, asker("all_ready"), np.random.default_rng(0))
    master.handle(Started(), 0.0)
    master.handle(accepted(job, **fields), 0.0)
    return master


def asked(master: ApplicationMaster, now: float = 0.0) -> ContainersAsked:
    """What it says when its zero-delay timer fires."""
    (message,) = messages_of(master.handle(TimerFired("ask"), now), ContainersAsked)
    assert isinstance(message, ContainersAsked)
    return message


def heartbeat(master: ApplicationMaster, now: float) -> ContainersAsked:
    """What it says at its next heartbeat."""
    (message,) = messages_of(master.handle(TimerFired("heartbeat"), now), ContainersAsked)
    assert isinstance(message, ContainersAsked)
    return message


def grant(number: int, ask: int = 1, node: str = "n1") -> Container:
    return Container(container_id(ATTEMPT, number), node, ask)


def granted(*containers: Container, response: int = 1, **fields: object) -> ContainersGranted:
    return ContainersGranted(ATTEMPT, response, (), containers, **fields)  # type: ignore[arg-type]


def ended(number: int, outcome: Outcome, task: int = 0, **fields: object) -> ContainersGranted:
    container = container_id(ATTEMPT, number)
    end = ContainerEnd(container, outcome, 3, 0, task, 0, 10.0, **fields)  # type: ignore[arg-type]
    return ContainersGranted(ATTEMPT, 99, ended=(end,))


def test_a_registration_is_repeated_until_it_is_accepted() -> None:
    master = ApplicationMaster(ATTEMPT, DIRECT, asker("all_ready"), np.random.default_rng(0))
    first = master.handle(Started(), 0.0)
    assert messages_of(first, AttemptRegistered) == [AttemptRegistered(ATTEMPT, takes_over=True)]
    again = master.handle(TimerFired("register"), 3.0)
    assert messages_of(again, AttemptRegistered)
    answered = master.handle(accepted(Job("j", (stage("a", 1),))), 3.5)
    assert SetTimer(None, "register") in answered
    assert not messages_of(master.handle(TimerFired("register"), 6.0), AttemptRegistered)


def test_a_task_that_fails_too_often_fails_the_job_and_says_where() -> None:
    job = Job("j", (stage("a", 2), stage("b", 1, "a")), max_task_attempts=3)

    def outcome_of(launch: TaskLaunch, node: str) -> Outcome:
        return Outcome.FAILED if launch.task == 1 else Outcome.SUCCEEDED

    cluster = PretendedCluster(job, outcome_of=outcome_of).run(1000)
    assert cluster.verdict is not None
    assert not cluster.verdict.succeeded
    assert "stage 'a' task 1 failed 3 times" in cluster.verdict.diagnostics
    assert "exit code 1" in cluster.verdict.diagnostics
    assert [launch.attempt for _, launch, _ in cluster.starts if launch.task == 1] == [0, 1, 2]


@pytest.mark.parametrize("outcome", [Outcome.KILLED, Outcome.LOST, Outcome.RELEASED])
def test_ends_that_are_not_the_tasks_fault_do_not_count(outcome: Outcome) -> None:
    left = [20]

    def outcome_of(launch: TaskLaunch, node: str) -> Outcome:
        left[0] -= 1
        return outcome if left[0] > 0 else Outcome.SUCCEEDED

    job = Job("j", (stage("a", 1),), max_task_attempts=2)
    cluster = PretendedCluster(job, outcome_of=outcome_of).run(10_000)
    assert cluster.verdict is not None
    assert cluster.verdict.succeeded


@pytest.mark.parametrize("policy", ["all_ready", "cobra"])
def test_a_nodes_own_fault_is_no_failure_of_its_task_and_is_limited(policy: str) -> None:
    options = {"container": {"vcores": 1.0, "memory_mb": 1024.0}} if policy == "cobra" else {}
    job = Job("j", (stage("a", 6),), max_task_attempts=1)

    def outcome_of(launch: TaskLaunch, node: str) -> Outcome:
        return Outcome.LOST if node == "n4" else Outcome.SUCCEEDED

    cluster = PretendedCluster(job, asker_name=asker(policy, options), outcome_of=outcome_of)
    cluster.lost_code = NODE_FAULT
    cluster.run(10_000)
    assert cluster.verdict is not None
    assert cluster.verdict.succeeded, cluster.verdict.diagnostics
    faults = [how for _, _, how in cluster.ends if how is Outcome.LOST]
    assert 0 < len(faults) <= 20, "a container of such a node starts nothing more"

    cluster = PretendedCluster(
        job, asker_name=asker(policy, options), outcome_of=lambda *_: Outcome.LOST
    )
    cluster.lost_code = NODE_FAULT
    cluster.run(10_000)
    assert cluster.verdict is not None
    assert not cluster.verdict.succeeded
    assert "was failed by its node 4 times" in cluster.verdict.diagnostics


def test_out_of_memory_is_named() -> None:
    job = Job("j", (stage("a", 1),), max_task_attempts=1)
    cluster = PretendedCluster(job, outcome_of=lambda *_: Outcome.OUT_OF_MEMORY).run(1000)
    assert cluster.verdict is not None
    assert "out of memory" in cluster.verdict.diagnostics


def test_a_node_that_fails_tasks_is_avoided() -> None:
    def outcome_of(launch: TaskLaunch, node: str) -> Outcome:
        return Outcome.FAILED if node == "n3" else Outcome.SUCCEEDED

    job = Job("j", (stage("a", 300, duration_s=1.0),), max_task_attempts=50)
    cluster = PretendedCluster(job, outcome_of=outcome_of, slots=20).run(10_000)
    assert cluster.verdict is not None
    assert cluster.verdict.succeeded
    on_bad = [at for at, _, node in cluster.starts if node == "n3"]
    assert 3 <= len(on_bad) < 10
    told = [m.blacklist for _, m in cluster.sent if getattr(m, "blacklist", None)]
    assert told[-1] == ("n3",)
    assert any(isinstance(fact, Remark) for fact in cluster.notes)


def test_a_job_that_fails_on_more_than_a_third_of_the_nodes_blames_none_of_them() -> None:
    job = Job("j", (stage("a", 50),), max_task_attempts=10)
    cluster = PretendedCluster(job, outcome_of=lambda *_: Outcome.FAILED).run(10_000)
    told = [m.blacklist for _, m in cluster.sent if getattr(m, "blacklist", None) is not None]
    assert told[-1] == (), "with a fourth one the list is ignored"
    assert any(cluster.master._work.state.nodes.failures_on(f"n{n}") >= 3 for n in range(10))


def test_a_refused_start_is_tried_elsewhere() -> None:
    master = begun(Job("j", (stage("a", 1),)))
    assert asked(master).asks[0].total == 1
    master.handle(granted(grant(2)), 1.0)
    refused = ItemAnswer(container_id(ATTEMPT, 2), 0, 0, "a rigid resource would be over capacity")
    master.handle(StartAnswered("n1", ATTEMPT, (refused,)), 1.0)
    message = asked(master, 1.0)
    assert message.asks[0].total == 2
    assert message.releases == (container_id(ATTEMPT, 2),)
    master.check()


def test_a_node_that_takes_no_tokens_is_avoided_and_that_is_told_once() -> None:
    master = begun(Job("j", (stage("a", 9),)))
    asked(master)
    notes = []
    for number in range(2, 8):
        master.handle(granted(grant(number), response=number - 1), 1.0)
        why = f"{NO_TOKEN}: the token of container {container_id(ATTEMPT, number)} has expired"
        refused = ItemAnswer(container_id(ATTEMPT, number), 0, number - 2, why)
        effects = master.handle(StartAnswered("n1", ATTEMPT, (refused,)), 1.0)
        notes += [one.fact.text for one in effects if isinstance(one, Note)]
    assert heartbeat(master, 1.0).blacklist == ("n1",)
    (note,) = [text for text in notes if "avoided" in text]
    assert "node n1 is avoided after 3 refused starts (refused for want of a token: " in note
    assert "has expired" in note


def refuse(master: ApplicationMaster, number: int, now: float) -> list[object]:
    """A container is granted, and its node takes no token of it."""
    master.handle(granted(grant(number), response=number), now)
    item = ItemAnswer(container_id(ATTEMPT, number), 0, 0, f"{NO_TOKEN}: it was signed long ago")
    return master.handle(StartAnswered("n1", ATTEMPT, (item,)), now)


def test_a_job_whose_only_node_takes_no_tokens_fails_in_the_end_and_says_why() -> None:
    master = begun(Job("j", (stage("a", 1),)), machines=(((16.0, 65536.0, 800.0, 1000.0), 1),))
    asked(master)
    for number in range(2, 62):
        now = 10.0 * number
        effects = refuse(master, number, now)
        assert SetTimer(0.0, "ask") not in effects, "it asks again with its heartbeat, not at once"
        assert not messages_of(effects, AttemptFinished)
        heartbeat(master, now + 1.0)
    (verdict,) = messages_of(refuse(master, 62, 620.0), AttemptFinished)
    assert not verdict.succeeded
    assert verdict.diagnostics == (
        "nothing could be started for 600 s: 61 starts in a row were refused, the last by n1 "
        f"({NO_TOKEN}: it was signed long ago)"
    )


def test_one_start_that_is_taken_ends_a_row_of_refusals() -> None:
    master = begun(Job("j", (stage("a", 2),)))
    asked(master)
    for number in range(2, 40):
        refuse(master, number, 10.0 * number)
        heartbeat(master, 10.0 * number + 1.0)
    master.handle(granted(grant(40), response=40), 400.0)
    taken = ItemAnswer(container_id(ATTEMPT, 40), 0, 0)
    master.handle(StartAnswered("n1", ATTEMPT, (taken,)), 400.0)
    for number in range(41, 90):
        effects = refuse(master, number, 10.0 * number)
        assert not messages_of(effects, AttemptFinished)
        heartbeat(master, 10.0 * number + 1.0)


def test_an_unanswered_start_is_repeated_and_a_doubled_grant_is_not_used_twice() -> None:
    master = begun(Job("j", (stage("a", 2),)))
    asked(master)
    first = master.handle(granted(grant(2)), 1.0)
    assert len(messages_of(first, StartContainers)) == 1
    assert not messages_of(master.handle(granted(grant(2)), 1.1), StartContainers)
    assert not messages_of(master.handle(TimerFired("heartbeat"), 2.0), StartContainers)
    (again,) = messages_of(master.handle(TimerFired("heartbeat"), 5.0), StartContainers)
    assert again == messages_of(first, StartContainers)[0]
    done = ItemAnswer(container_id(ATTEMPT, 2), 0, 0)
    master.handle(StartAnswered("n1", ATTEMPT, (done,)), 5.0)
    assert not messages_of(master.handle(TimerFired("heartbeat"), 9.0), StartContainers)


def test_starts_go_to_each_node_in_one_message() -> None:
    master = begun(Job("j", (stage("a", 4),)))
    asked(master)
    nodes = ("n1", "n2", "n1", "n1")
    grants = [grant(number + 2, node=node) for number, node in enumerate(nodes)]
    starts = messages_of(master.handle(granted(*grants), 1.0), StartContainers)
    told = [(s.node_id, [one.task for i in s.items for one in launches_of(i)]) for s in starts]
    assert told == [
        ("n1", [0, 2, 3]),
        ("n2", [1]),
    ]


def test_containers_that_are_not_needed_are_given_back() -> None:
    master = begun(Job("j", (stage("a", 1),)))
    asked(master)
    master.handle(granted(grant(2), grant(3), grant(4, ask=77)), 1.0)
    message = asked(master, 1.0)
    assert set(message.releases) == {container_id(ATTEMPT, 3), container_id(ATTEMPT, 4)}
    assert message.asks[0].total == 2  # what was granted, so nothing is pending
    master.check()


def test_an_end_that_overtakes_its_grant_is_asked_for_again() -> None:
    master = begun(Job("j", (stage("a", 1),)))
    asked(master)
    master.handle(ended(2, Outcome.LOST), 1.0)
    master.handle(granted(grant(2)), 2.0)
    assert asked(master, 2.0).asks[0].total == 2
    master.check()


def test_ends_are_counted_once() -> None:
    master = begun(Job("j", (stage("a", 2),)))
    asked(master)
    master.handle(granted(grant(2)), 1.0)
    for _ in range(3):
        effects = master.handle(ended(2, Outcome.SUCCEEDED), 9.0)
        assert not messages_of(effects, AttemptFinished)
        master.check()


def test_tasks_beside_their_input_are_not_remote() -> None:
    near = stage("a", 2, prefer=Preference(("n1",)), actual_duration_s=(4.0, 5.0))
    master = begun(Job("j", (near,)))
    ask = asked(master).asks[0]
    assert ask.nodes == ("n1",)
    (start, other) = messages_of(
        master.handle(granted(grant(2), grant(3, node="n2")), 1.0), StartContainers
    )
    assert (start.items[0].remote, other.items[0].remote) == (False, True)
    assert (start.items[0].duration_s, other.items[0].duration_s) == (4.0, 5.0)
    assert start.items[0].granted == ask.demand


def test_tasks_that_differ_are_asked_apart() -> None:
    own = (TaskOverride(), TaskOverride(demand={"vcores": 2.0}), TaskOverride())
    first = stage("a", 3, overrides=own, label="gpu", gang=True)
    asks = asked(begun(Job("j", (first,)))).asks
    assert sorted((a.total, a.demand[0], a.label, a.gang) for a in asks) == [
        (1, 2.0, "gpu", True),
        (2, 1.0, "gpu", True),
    ]


def test_a_command_knows_its_task() -> None:
    master = begun(Job("j", (stage("a", 1, command=("true",)),)))
    asked(master)
    (start,) = messages_of(master.handle(granted(grant(2)), 1.0), StartContainers)
    assert start.items[0].command == ("true",)
    assert dict(start.items[0].environment) == {"WEFT_JOB": "j", "WEFT_STAGE": "a"}


def test_commands_of_a_stage_are_ordered_as_a_run() -> None:
    master = begun(Job("j", (stage("a", 3, command=("true",)),)))
    asked(master)
    run = changed(grant(2), count=3)
    (start,) = messages_of(master.handle(granted(run), 1.0), StartContainers)
    assert [(item.command, item.tasks) for item in start.items] == [(("true",), (0, 1, 2))]


def reverse_plan(order: MakePlan) -> Plan:
    dag = dag_of_job(order.job, order.types)
    starts = np.arange(dag.tasks)[::-1].astype(float)
    return plan_of_starts("reverse", dag, np.zeros(dag.tasks, np.int64), starts)


def test_a_plan_decides_the_order_and_its_levels_are_bounded() -> None:
    job = Job("j", (stage("a", 100, duration_s=1.0),))
    cluster = PretendedCluster(job, plan=reverse_plan, slots=1).run(10_000)
    assert [launch.task for _, launch, _ in cluster.starts] == list(reversed(range(100)))
    assert len(cluster.rows) == 16
    assert cluster.notes[0] == MasterPlanned(ATTEMPT, "reverse", 100.0, 0.0, 1)


def test_a_planner_that_fails_does_not_stop_the_job() -> None:
    cluster = PretendedCluster(Job("j", (stage("a", 3),)), plan=lambda order: None).run(100)
    assert cluster.stopped
    assert isinstance(cluster.notes[0], Remark)


def test_a_late_plan_is_adopted_while_tasks_run() -> None:
    job = Job("j", (stage("a", 40), stage("b", 2, "a")))
    settings = MasterSettings(plan_wait_s=5.0)
    cluster = PretendedCluster(
        job, slots=4, settings=settings, plan_after_s=12.0, plan=reverse_plan
    ).run(10_000)
    assert_ran_in_order(cluster)
    order = [launch.task for _, launch, _ in cluster.starts if launch.stage == 0]
    assert order == [0, 1, 2, 3, *reversed(range(4, 40))]
    assert cluster.stopped


def test_asks_fall_due_again_after_a_restart_of_the_manager() -> None:
    job = Job("j", (stage("a", 5),))
    master = begun(job)
    assert [a.total for a in asked(master).asks] == [5]
    running = ItemAnswer(container_id(ATTEMPT, 2), 0, 0)
    master.handle(granted(grant(2), grant(3)), 1.0)
    master.handle(StartAnswered("n1", ATTEMPT, (running,)), 1.0)
    resync = ContainersGranted(ATTEMPT, 0, resync=True, epoch=1)
    assert messages_of(master.handle(resync, 2.0), AttemptRegistered)
    assert not messages_of(master.handle(TimerFired("heartbeat"), 2.0), ContainersAsked)
    master.handle(accepted(job, epoch=1), 3.0)
    message = asked(master, 3.0)
    assert message.epoch == 1
    assert not master.handle(resync, 3.0)  # doubled: it is of the manager that heard everything
    # container 3 was not known to run, so it is given up; container 2 goes on
    assert [(a.ask_id, a.total) for a in message.asks] == [(2, 4)]
    assert message.releases == (container_id(ATTEMPT, 3),)
    master.check()


def test_tasks_that_an_earlier_attempt_finishes_late_are_not_run_again() -> None:
    earlier = container_id(attempt_id(1, 1), 9)
    master = ApplicationMaster(
        attempt_id(1, 2), DIRECT, asker("all_ready"), np.random.default_rng(0)
    )
    master.handle(Started(), 0.0)
    master.handle(accepted(Job("j", (stage("a", 2),)), attempt_id=attempt_id(1, 2)), 0.0)
    assert asked(master).asks[0].total == 2
    end = ContainerEnd(earlier, Outcome.SUCCEEDED, 0, 0, 1, 0, 5.0)
    master.handle(ContainersGranted(attempt_id(1, 2), 1, ended=(end,)), 1.0)
    assert asked(master, 1.0).asks[0].total == 1
    master.check()


def test_a_master_that_is_stopped_leaves_its_tasks_to_the_manager() -> None:
    master = begun(Job("j", (stage("a", 2),)))
    asked(master)
    master.handle(granted(grant(2), grant(3, node="n2")), 1.0)
    effects = master.handle(AttemptStopped(ATTEMPT, "killed by user"), 2.0)
    assert not messages_of(effects, StopContainers), "they may go on for the next attempt"
    assert effects[-1] == Stop("killed by user")
    assert master.state is MasterState.STOPPED
    assert master.handle(TimerFired("heartbeat"), 3.0) == []


def test_the_end_is_repeated_until_acknowledged() -> None:
    master = begun(Job("j", (stage("a", 1),)))
    asked(master)
    master.handle(granted(grant(2)), 1.0)
    assert messages_of(master.handle(ended(2, Outcome.SUCCEEDED), 9.0), AttemptFinished)
    assert messages_of(master.handle(TimerFired("finish"), 12.0), AttemptFinished)
    assert Stop("finished") in master.handle(AttemptUnregistered(ATTEMPT), 13.0)
    assert master.handle(TimerFired("finish"), 15.0) == []


def test_an_unknown_event_is_refused() -> None:
    with pytest.raises(InvariantError):
        begun(Job("j", (stage("a", 1),))).handle(object(), 0.0)


def test_stragglers_get_a_second_copy_and_the_first_to_finish_wins() -> None:
    slow = stage("a", 8, actual_duration_s=(*[10.0] * 7, 500.0))
    job = Job("j", (slow, stage("b", 1, "a")))
    settings = MasterSettings(speculate=True)
    cluster = PretendedCluster(job, settings=settings, slots=20, luck={(0, 7, 1): 10.0}).run(5000)
    assert cluster.stopped
    assert cluster.now < 60
    assert len(cluster.starts) == 10
    killed = [launch.task for _, launch, how in cluster.ends if how is Outcome.KILLED]
    assert killed == [7]


def test_readiness_follows_one_to_one_edges_task_by_task() -> None:
    first = stage("a", 2, actual_duration_s=(1.0, 100.0))
    job = Job("j", (first, stage("b", 4, chain("a"))))
    cluster = PretendedCluster(job).run(1000)
    early = {launch.task: at for at, launch, _ in cluster.starts if launch.stage == 1}
    assert {task for task, at in early.items() if at < 100} == {0, 1}


def test_estimates_come_from_the_file_then_from_history_then_from_what_finishes() -> None:
    job = Job("j", (stage("a", 4), stage("b", 4, "a", duration_s=0.0)), history_key="k")
    told = Estimates(job, {})
    assert told.duration_s(0) == 10.0
    assert told.duration_s(1) == UNKNOWN_S
    assert not told.known(1)
    assert told.observe(1, (0.0,), (3.0,))[0]
    assert told.duration_s(1) == pytest.approx(3.0)
    assert told.observe(0, (10.0,), (20.0,))[0]  # (2 * 10 + 20) / 3
    assert told.duration_s(0) == pytest.approx(40 / 3)
    history = merge_history({}, "k", told.record())
    again = Estimates(job, history)
    assert again.duration_s(0) == pytest.approx(20.0)
    assert again.duration_s(1) == pytest.approx(3.0)
    assert again.applied().stages[0].duration_s == pytest.approx(20.0)


def test_history_scales_with_the_input() -> None:
    past = {"k": {"a": {"run_s": 8.0, "tasks": 4.0, "input_mb": 100.0}}}
    job = Job("j", (stage("a", 4),), history_key="k", input_mb=200.0)
    assert Estimates(job, past).duration_s(0) == pytest.approx(16.0)


def test_changed_estimates_are_told() -> None:
    master = begun(Job("j", (stage("a", 9, actual_duration_s=40.0),)))
    first = asked(master)
    assert first.asks[0].duration_s == 10.0
    assert first.remaining_work == pytest.approx(9 * 10 * (1 / 160 + 1024 / 655360))
    master.handle(granted(grant(2)), 1.0)
    master.handle(
        ContainersGranted(
            ATTEMPT,
            2,
            ended=(ContainerEnd(grant(2).container_id, Outcome.SUCCEEDED, 0, 0, 0, 0, 40.0),),
        ),
        41.0,
    )
    message = asked(master, 41.0)
    assert message.asks[0].duration_s == pytest.approx(20.0)
    assert message.remaining_work == pytest.approx(8 * 20 * (1 / 160 + 1024 / 655360))


def test_bad_asker_names_and_options_are_input_errors() -> None:
    with pytest.raises(InputError, match="unknown asker"):
        asker("nobody")
    with pytest.raises(InputError):
        asker("all_ready", {"no_such": 1})


def test_an_edge_to_a_finished_stage_does_not_block() -> None:
    job = Job("j", (stage("a", 1), stage("b", 1, Edge("a")), stage("c", 1, "a", "b")))
    assert_ran_in_order(PretendedCluster(job).run(1000))
