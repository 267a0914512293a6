"""A node manager's conversation, event by event: what is said once is done once."""

from dataclasses import replace

import numpy as np
import pytest

from nm.core import HEARTBEAT, REPORT, TASKS, NodeManager
from nm.settings import Mode, NodeSettings
from testkit.builders import noted
from weft.model.ids import EPOCH_BITS, attempt_id, container_id
from weft.model.resources import DEFAULT_RESOURCE_TYPES
from weft.protocol.effects import (
    Clean,
    Kill,
    Launch,
    NodeSlowed,
    ProcessEnded,
    Send,
    SetTimer,
    Started,
    Stop,
    StopRequested,
    TimerFired,
)
from weft.protocol.facts import Remark, TaskStopped
from weft.protocol.messages import (
    MasterLaunch,
    NodeAccepted,
    NodeAnswered,
    NodeHeartbeated,
    NodeRegistered,
    NodeUnregistered,
    Outcome,
    QueryContainers,
    StartAnswered,
    StartContainers,
    StopContainers,
    TaskLaunch,
    TasksEnded,
)

ATTEMPT = attempt_id(1, 1)
CAPACITY = {"vcores": 4.0, "memory_mb": 1000.0, "disk_mbps": 100.0, "network_mbps": 100.0}


def build(prompt: bool = False, **settings) -> NodeManager:
    node = NodeManager(
        "n1", "h:1", CAPACITY, "r1", (), NodeSettings(**settings), np.random.default_rng(1)
    )
    (registered, _) = node.handle(Started(), 0.0)
    assert isinstance(registered.message, NodeRegistered)
    node.handle(NodeAccepted("n1", DEFAULT_RESOURCE_TYPES, 1.0, prompt, 0), 0.0)
    return node


def task(number: int, duration_s: float = 2.0, demand=(1.0, 100.0, 0.0, 0.0), **more) -> TaskLaunch:
    return TaskLaunch(container_id(ATTEMPT, number), 0, number, 0, duration_s, demand, **more)


def start(node: NodeManager, now: float, *items: TaskLaunch) -> list[str]:
    effects = node.handle(StartContainers(ATTEMPT, "n1", items), now)
    (answer,) = [e.message for e in sent(effects) if isinstance(e.message, StartAnswered)]
    node.check()
    return [item.error for item in answer.items]


def sent(effects) -> list[Send]:
    return [e for e in effects if isinstance(e, Send)]


def stopped(effects) -> list[TaskStopped]:
    return noted(effects, TaskStopped)


def beat(node: NodeManager, now: float) -> NodeHeartbeated:
    effects = node.handle(TimerFired(HEARTBEAT), now)
    node.check()
    (message,) = [e.message for e in sent(effects) if isinstance(e.message, NodeHeartbeated)]
    return message


def test_a_registration_is_repeated_until_accepted() -> None:
    node = NodeManager("n1", "", CAPACITY, "r", (), NodeSettings(), np.random.default_rng(1))
    first = node.handle(Started(), 1.0)
    again = node.handle(TimerFired("register"), 3.0)
    assert sent(first)[0].message == sent(again)[0].message
    effects = node.handle(NodeAccepted("n1", DEFAULT_RESOURCE_TYPES, 1.0, False, 0), 4.0)
    assert SetTimer(None, "register") in effects


def test_a_cluster_that_was_begun_anew_gives_ids_a_second_time() -> None:
    """What ran and ended for the former one is not taken for what the new one orders."""
    node = build()
    for cluster_ts, now in ((7, 0.0), (8, 5.0)):
        accepted = NodeAccepted("n1", DEFAULT_RESOURCE_TYPES, 1.0, False, cluster_ts)
        effects = node.handle(accepted, now)
        if now:
            assert [f.outcome for f in stopped(effects)] == [Outcome.KILLED]
            assert beat(node, now).ended == (), "the new one is told nothing of the former's"
            assert not node.containers
        assert start(node, now, task(2), task(3, 100.0)) == ["", ""]
        effects = node.handle(TimerFired(TASKS), now + 2.0)
        assert [f.outcome for f in stopped(effects)] == [Outcome.SUCCEEDED]
    assert [end.container_id for end in beat(node, 7.5).ended] == [task(2).container_id]
    accepted = NodeAccepted("n1", DEFAULT_RESOURCE_TYPES, 1.0, False, 8)
    assert stopped(node.handle(accepted, 8.0)) == [], "the same cluster: all goes on"


def test_a_task_runs_its_true_duration_and_its_end_is_owed_until_acknowledged() -> None:
    node = build()
    assert start(node, 0.0, task(2)) == [""]
    effects = node.handle(TimerFired(TASKS), 2.0)
    assert [f.outcome for f in stopped(effects)] == [Outcome.SUCCEEDED]
    first = beat(node, 2.5)
    assert [end.run_s for end in first.ended] == [2.0]
    assert beat(node, 3.5).ended == ()
    late = beat(node, 6.0)  # the first was lost
    assert late.ended == first.ended
    node.handle(NodeAnswered("n1", 1, (late.request_id,)), 6.0)
    assert beat(node, 20.0).ended == ()


def test_prompt_pace_reports_an_end_at_once_and_together() -> None:
    node = build(prompt=True)
    start(node, 0.0, task(2), task(3))
    effects = node.handle(TimerFired(TASKS), 2.0)
    assert effects.count(SetTimer(0.0, REPORT)) == 1
    (message,) = [e.message for e in sent(node.handle(TimerFired(REPORT), 2.0))]
    assert len(message.ended) == 2


def test_starting_twice_starts_once_even_after_the_end() -> None:
    node = build()
    assert start(node, 0.0, task(2)) == [""]
    assert start(node, 1.0, task(2)) == [""]
    node.handle(TimerFired(TASKS), 2.0)
    assert start(node, 3.0, task(2)) == [""]
    assert node.containers == ()


def test_a_stop_that_overtakes_its_start_wins_and_is_answered_with_the_end() -> None:
    node = build()
    node.handle(StopContainers(ATTEMPT, "n1", (task(2).container_id,)), 0.0)
    assert start(node, 0.5, task(2)) != [""]
    (end,) = beat(node, 1.0).ended
    assert end.outcome is Outcome.RELEASED


def test_a_stop_of_the_manager_for_an_ended_container_repeats_its_true_end() -> None:
    node = build()
    start(node, 0.0, task(2))
    node.handle(TimerFired(TASKS), 2.0)
    message = beat(node, 2.0)
    node.handle(NodeAnswered("n1", 1, (message.request_id,)), 2.0)
    node.handle(NodeAnswered("n1", 2, (), stop=(task(2).container_id,)), 3.0)
    again = beat(node, 3.0)
    assert again.acks == (2,)
    assert [end.outcome for end in again.ended] == [Outcome.SUCCEEDED]


def test_tombstones_are_forgotten_in_time() -> None:
    node = build(tombstone_s=5.0)
    start(node, 0.0, task(2, 0.0))
    start(node, 10.0, task(3, 0.0))
    assert start(node, 11.0, task(2, 50.0)) == [""]
    assert node.containers == (task(2).container_id,)


def test_grants_beyond_a_rigid_resource_are_refused_and_reported() -> None:
    node = build()
    demand = (1.0, 600.0, 0.0, 0.0)
    errors = start(node, 0.0, *(task(n, demand=demand, granted=demand) for n in (2, 3)))
    assert [bool(error) for error in errors] == [False, True]
    (end,) = beat(node, 1.0).ended
    assert (end.container_id, end.outcome) == (task(3).container_id, Outcome.RELEASED)


def test_the_task_that_needs_more_memory_than_is_left_is_killed() -> None:
    node = build()
    small = (1.0, 100.0, 0.0, 0.0)
    start(node, 0.0, task(2, demand=(1.0, 600.0, 0.0, 0.0), granted=small))
    assert start(node, 0.0, task(3, demand=(1.0, 600.0, 0.0, 0.0), granted=small)) == [""]
    (end,) = beat(node, 1.0).ended
    assert (end.outcome, end.exit_code, end.task) == (Outcome.OUT_OF_MEMORY, 137, 3)
    assert node.containers == (task(2).container_id,)


def test_a_zero_duration_task_ends_at_once() -> None:
    node = build()
    effects = node.handle(StartContainers(ATTEMPT, "n1", (task(2, 0.0),)), 0.0)
    assert [f.run_s for f in stopped(effects)] == [0.0]


def test_a_straggler_runs_at_its_own_pace() -> None:
    node = build()
    start(node, 0.0, task(2, 2.0))
    effects = node.handle(NodeSlowed(0.5), 1.0)
    assert SetTimer(2.0, TASKS) in effects
    node.handle(TimerFired(TASKS), 3.0)
    assert [end.run_s for end in beat(node, 3.0).ended] == [3.0]


def test_reusable_containers_outlive_their_tasks_and_tell_their_master() -> None:
    node = build()
    items = [replace(task(2, reusable=True), task=n) for n in (5, 6)]
    assert start(node, 0.0, *items) == ["", ""]
    effects = node.handle(TimerFired(TASKS), 2.0)
    told = [e.message for e in sent(effects) if isinstance(e.message, TasksEnded)]
    assert [end.task for m in told for end in m.ended] == [5, 6]
    message = beat(node, 2.0)
    assert {end.task for end in message.tasks_ended} == {5, 6}
    assert message.ended == ()
    (use,) = message.container_use
    assert use.use[0] == pytest.approx(2.0)  # two tasks of one core each, all the time
    node.handle(StopContainers(ATTEMPT, "n1", (task(2).container_id,)), 3.0)
    assert [end.outcome for end in beat(node, 3.5).ended] == [Outcome.RELEASED]


def test_masters_are_launched_once_and_their_end_is_reported() -> None:
    node = build()
    launch = MasterLaunch(container_id(ATTEMPT, 1), ATTEMPT, (1.0, 100.0, 0.0, 0.0))
    for number in (1, 2):
        effects = node.handle(NodeAnswered("n1", number, (), start=(launch,)), 1.0)
        assert effects.count(Launch(launch)) == (number == 1)
    assert beat(node, 1.0).acks == (1, 2)
    node.handle(ProcessEnded(launch.container_id, Outcome.SUCCEEDED, 0), 2.0)
    (end,) = beat(node, 2.0).ended
    assert (end.outcome, end.stage) == (Outcome.SUCCEEDED, -1)


def test_files_of_an_application_that_is_over_go_and_the_word_is_acknowledged() -> None:
    node = build()
    effects = node.handle(NodeAnswered("n1", 1, (), over=(4, 7)), 1.0)
    assert [e for e in effects if isinstance(e, Clean)] == [Clean(4), Clean(7)]
    assert beat(node, 1.0).acks == (1,)


def test_real_processes_are_launched_killed_and_reported() -> None:
    node = build(mode=Mode.PROCESS)
    item = task(2)
    effects = node.handle(StartContainers(ATTEMPT, "n1", (item,)), 0.0)
    assert Launch(item) in effects
    order = StopContainers(ATTEMPT, "n1", (item.container_id,))
    assert Kill(item.container_id) in node.handle(order, 1.0)
    assert beat(node, 1.5).ended == ()
    node.handle(ProcessEnded(item.container_id, Outcome.FAILED, -15), 2.0)
    (end,) = beat(node, 2.5).ended
    assert (end.outcome, end.run_s) == (Outcome.KILLED, 2.0)


def test_a_manager_that_forgot_the_node_is_told_what_runs() -> None:
    node = build()
    start(node, 0.0, task(2, 9.0, granted=(2.0, 200.0, 0.0, 0.0)))
    effects = node.handle(NodeAnswered("n1", 1, resync=True), 1.0)
    (running,) = sent(effects)[0].message.running
    assert running.demand == (2.0, 200.0, 0.0, 0.0)
    assert running.tasks == ((0, 2, 0),)


def test_a_query_answers_what_runs_and_what_does_not() -> None:
    node = build()
    start(node, 0.0, task(2, 9.0))
    ids = (task(2).container_id, task(3).container_id)
    (answer,) = sent(node.handle(QueryContainers(ATTEMPT, "n1", ids), 1.0))
    said = [(item.container_id, item.task, bool(item.error)) for item in answer.message.items]
    assert said == [(ids[0], -1, False), (ids[0], 2, False), (ids[1], -1, True)]


def test_a_query_tells_again_what_ended_in_a_reusable_container() -> None:
    node = build()
    own = task(2, 1.0, reusable=True)
    start(node, 0.0, own, replace(own, task=3, duration_s=9.0))
    node.handle(TimerFired(TASKS), 1.0)
    ends, answer = sent(node.handle(QueryContainers(ATTEMPT, "n1", (own.container_id,)), 2.0))
    assert [(end.task, end.outcome) for end in ends.message.ended] == [(2, Outcome.SUCCEEDED)]
    assert [item.task for item in answer.message.items] == [-1, 3]


def accepted(life: int, expiry_s: float = 0.0) -> NodeAccepted:
    return NodeAccepted("n1", DEFAULT_RESOURCE_TYPES, 1.0, False, 0, life, expiry_s)


def granted(life: int, number: int, **more) -> TaskLaunch:
    return replace(
        task(number, **more), container_id=container_id(ATTEMPT, (life - 1) << EPOCH_BITS | number)
    )


def test_what_an_earlier_life_of_the_manager_granted_is_not_started_unknown_to_the_next() -> None:
    node = build()
    node.handle(accepted(1), 0.0)
    running = granted(1, 2, duration_s=60.0, reusable=True)
    assert start(node, 0.0, running) == [""]
    (asked,) = sent(node.handle(NodeAnswered("n1", 0, resync=True, life=2), 1.0))
    assert (asked.message.life, len(asked.message.running)) == (2, 1)
    late = StartContainers(ATTEMPT, "n1", (granted(1, 3),))
    assert not sent(node.handle(late, 1.5)), "the manager was told what runs here without it"
    node.handle(accepted(2), 2.0)
    assert "last start" in start(node, 2.5, granted(1, 3))[0]
    assert start(node, 2.5, replace(running, task=7), granted(2, 4)) == ["", ""]


def test_an_acceptance_by_a_manager_that_took_a_late_registration_is_answered_by_a_true_one() -> (
    None
):
    node = build()
    node.handle(accepted(1), 0.0)
    start(node, 0.0, granted(1, 2, duration_s=60.0))
    (again,) = sent(node.handle(accepted(2), 1.0))
    assert isinstance(again.message, NodeRegistered)
    assert (again.message.life, len(again.message.running)) == (2, 1)
    node.handle(accepted(2), 1.1)
    (again,) = sent(node.handle(NodeAnswered("n1", 9, acks=(1,), stop=(5,), life=1), 2.0))
    assert isinstance(again.message, NodeRegistered), "a late word is not obeyed, but asked after"


def test_only_a_process_that_registers_answers_whether_it_lives() -> None:
    node = build()
    node.handle(accepted(1), 0.0)
    assert not sent(node.handle(NodeAnswered("n1", 0, resync=True, life=1, token=4), 1.0))
    fresh = NodeManager("n1", "", CAPACITY, "r", (), NodeSettings(), np.random.default_rng(2))
    first = sent(fresh.handle(Started(), 0.0))[0].message
    told = sent(fresh.handle(NodeAnswered("n1", 0, resync=True, life=1, token=4), 1.0))[0].message
    assert (first.token, told.token) == (0, 4)
    assert first.boot == told.boot > 0


def test_a_node_that_had_no_answer_for_the_expiry_starts_nothing_until_it_is_accepted() -> None:
    node = build()
    node.handle(accepted(1, expiry_s=10.0), 0.0)
    first = beat(node, 4.0)
    node.handle(NodeAnswered("n1", 1, acks=(first.request_id,), life=1), 12.0)
    assert start(node, 13.0, granted(1, 2)) == [""], "what was sent at 4 s was answered"
    late = StartContainers(ATTEMPT, "n1", (granted(1, 3),))
    refused = node.handle(late, 14.5)
    (remark,) = noted(refused, Remark)
    assert (remark.level, remark.text[-7:]) == ("warning", " 10.5 s")
    assert not sent(refused)
    assert not node.handle(late, 14.6), "said once"
    (asked,) = sent(node.handle(NodeAnswered("n1", 0, resync=True, life=1), 14.9))
    node.handle(answering(asked.message, 10.0), 15.0)
    taken = node.handle(late, 15.5)
    assert [item.error for item in sent(taken)[0].message.items] == [""]
    assert [remark.text for remark in noted(taken, Remark)] == ["starts tasks again"]


def answering(registered: NodeRegistered, expiry_s: float) -> NodeAccepted:
    return replace(accepted(1, expiry_s), request_id=registered.request_id)


def test_an_acceptance_that_waited_renews_no_lease() -> None:
    """The node stood still: what lies in its socket was said before the manager gave it up."""
    node = NodeManager("n1", "", CAPACITY, "r", (), NodeSettings(), np.random.default_rng(1))
    (registered, _) = node.handle(Started(), 0.0)
    again = sent(node.handle(TimerFired("register"), 2.0))[0].message
    assert again.request_id == registered.message.request_id > 0
    node.handle(answering(again, 10.0), 3.0)
    node.handle(answering(again, 10.0), 25.0)  # the answer to what was said twice
    late = StartContainers(ATTEMPT, "n1", (granted(1, 2),))
    assert not sent(node.handle(late, 25.0))


def test_an_acceptance_of_an_earlier_registration_ends_no_later_one() -> None:
    node = build()
    (first,) = sent(node.handle(NodeAnswered("n1", 0, resync=True, life=1), 1.0))
    node.handle(answering(first.message, 10.0), 2.0)
    (second,) = sent(node.handle(NodeAnswered("n1", 0, resync=True, life=1), 30.0))
    node.handle(answering(first.message, 10.0), 30.5)
    late = StartContainers(ATTEMPT, "n1", (granted(1, 2),))
    assert not sent(node.handle(late, 30.5)), "it was given up, and is not accepted yet"
    node.handle(answering(second.message, 10.0), 31.0)
    assert start(node, 31.5, granted(1, 2)) == [""]


def test_a_master_is_started_under_the_same_lease_as_a_task() -> None:
    node = build()
    (asked,) = sent(node.handle(NodeAnswered("n1", 0, resync=True, life=1), 0.0))
    node.handle(answering(asked.message, 10.0), 0.0)
    launch = MasterLaunch(granted(1, 1).container_id, ATTEMPT, (1.0, 100.0, 0.0, 0.0))
    order = NodeAnswered("n1", 7, start=(launch,), stop=(granted(1, 9).container_id,), life=1)
    effects = node.handle(order, 12.0)
    assert not [e for e in effects if isinstance(e, Launch)], "the manager gave its container up"
    probe = beat(node, 12.5)
    assert 7 not in probe.acks, "it is said again, if it is still wanted"
    assert [end.container_id for end in probe.ended] == [granted(1, 9).container_id]
    node.handle(NodeAnswered("n1", 8, acks=(probe.request_id,), life=1), 13.0)
    assert [e.item for e in node.handle(order, 13.5) if isinstance(e, Launch)] == [launch]


def test_leaving_stops_everything() -> None:
    node = build()
    start(node, 0.0, task(2, 9.0))
    effects = node.handle(StopRequested(), 1.0)
    assert [f.outcome for f in stopped(effects)] == [Outcome.KILLED]
    assert isinstance(sent(effects)[-1].message, NodeUnregistered)
    assert any(isinstance(effect, Stop) for effect in effects)
    assert node.handle(TimerFired(HEARTBEAT), 2.0) == []


def test_a_heartbeat_names_the_tasks_that_began_and_still_run_and_once() -> None:
    node = build(report_tasks=True)
    node.handle(TimerFired(HEARTBEAT), 0.5)
    assert node.silent
    run = replace(task(2, 9.0), task=4, tasks=(4, 7))
    short, pool = task(5, 0.2), replace(task(6, 9.0, reusable=True), task=1)
    start(node, 1.0, run, short, pool)
    assert not node.silent, "it has something to say"
    node.handle(TimerFired(TASKS), 1.2)
    first = task(2).container_id
    assert set(beat(node, 1.5).begun) == {
        (first, 0, 4, 0),
        (first + 1, 0, 7, 0),
        (pool.container_id, 0, 1, 0),
    }
    start(node, 2.0, replace(pool, task=3))
    assert beat(node, 2.5).begun == ((pool.container_id, 0, 3, 0),)
    assert beat(node, 3.5).begun == ()
    unasked = build()
    start(unasked, 1.0, task(2, 9.0))
    assert beat(unasked, 1.5).begun == ()


def test_the_use_of_a_node_is_told_at_its_period_and_not_when_tasks_end() -> None:
    """In prompt pace every end is told at once: the node was never so empty as just then."""
    node = build(prompt=True)
    start(node, 0.25, task(1, duration_s=1.5))
    assert beat(node, 1.0).use[0] == 1.0
    effects = list(node.handle(TimerFired(TASKS), 1.75))
    effects += node.handle(TimerFired(REPORT), 1.75)
    (told,) = [e.message for e in sent(effects) if isinstance(e.message, NodeHeartbeated)]
    assert (len(told.ended), told.use) == (1, ())
    assert beat(node, 2.0).use[0] == 0.0
