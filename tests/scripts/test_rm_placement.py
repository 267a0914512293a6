"""Rules say to which queue an application goes, and queues are made and go at runtime."""

import gc
import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rm.dynamic_queues import grown, with_made
from rm.ledger.queues import QueueTree
from rm.match.registry import make_matcher
from rm.settings import ManagerSettings
from testkit.builders import ask, job, stage
from testkit.manager import Rig
from weft.model.errors import InputError
from weft.model.json_types import Json
from weft.model.queues import QUEUES_MAX, QueueSpec, queues_from_dict, queues_to_dict
from weft.protocol.access import Caller
from weft.protocol.effects import ClientRequested, Send, TimerFired
from weft.protocol.requests import (
    ApplicationAccepted,
    GetApplication,
    KillApplication,
    QueuesSet,
    Refused,
    SetQueues,
    SubmitApplication,
)

FREE = ManagerSettings(master_demand={}, master_expiry_s=10_000.0, node_expiry_s=10_000.0)
RULES = [
    {"user": "ops", "queue": "root.b"},
    {"application": "etl", "queue": "root.users.%application"},
    {"group": "dev", "queue": "root.users.%primary_group.%user"},
    {"user": "eve", "then": "reject"},
    {"queue": "root.users.%user"},
]
TREE = {
    "b": {"capacity": 0.5, "weight": 1},
    "users": {
        "capacity": 0.5,
        "creates": {
            "expires_s": 60,
            "most": 3,
            "leaf": {"max_capacity": 0.5, "weight": 2},
            "parent": {"creates": {"expires_s": 60}},
        },
    },
}


def tree(**more: object) -> QueueSpec:
    placement = {"rules": RULES, "groups": {"ann": ["dev"]}, "overrides": True}
    return queues_from_dict({"root": {"placement": placement} | TREE | more})


def cluster(queues: QueueSpec | None = None, matcher: str = "yarn") -> Rig:
    rig = Rig(matcher, FREE, queues or tree())
    for number in range(4):
        rig.add_node(f"n{number}")
    return rig


def submit(
    rig: Rig,
    user: str,
    name: str = "j",
    queue: str = "default",
    caller: str = "",
    submission_id: str = "",
) -> str:
    """Return the path of the queue that an application went to, or why it was refused."""
    wanted = SubmitApplication(job(name, stage(tasks=1), queue=queue, user=user), submission_id)
    who = Caller(caller, everything=not caller)
    (heard,) = [
        one.message for one in rig.tell(ClientRequested("t", wanted, who)) if isinstance(one, Send)
    ]
    if isinstance(heard, Refused):
        return heard.problem
    assert isinstance(heard, ApplicationAccepted)
    return str(rig.ask_manager(GetApplication(heard.app_id)).queue)


def pass_time(rig: Rig, later_s: float) -> None:
    """Let nothing but time pass: the manager looks for silent nodes once."""
    rig.tell(TimerFired("liveness"), later_s)


def restarted(rig: Rig, queues: QueueSpec) -> Rig:
    """Return a manager that starts anew from the journal, with queues of its settings."""
    return Rig("yarn", FREE, queues, records=tuple(rig.records))


def paths(rig: Rig) -> list[str]:
    return list(rig.manager.books.queues.paths)


@pytest.mark.parametrize("matcher", ["yarn", "capacity", "yarn_fair", "drf"])
def test_the_first_rule_that_says_a_queue_is_followed_and_makes_it(matcher: str) -> None:
    rig = cluster(matcher=matcher)
    assert submit(rig, "ops", queue="root.users.x") == "root.b"
    assert submit(rig, "kim") == "root.users.kim"
    assert submit(rig, "kim", "etl") == "root.users.etl"
    assert submit(rig, "ann") == "root.users.dev.ann"
    assert "rejects" in submit(rig, "eve")
    assert "has 3 queues below it, the most" in submit(rig, "lee")
    books = rig.manager.books
    made = dict(books.queues.specs)
    assert made["root.users.kim"].max_capacity == 0.5
    assert made["root.users.kim"].capacity == pytest.approx(0.4), "2 of the weights 2, 2 and 1"
    assert made["root.users.dev"].capacity == pytest.approx(0.2)
    told = [record["queue"] for record in rig.records if record["kind"] == "made"]
    assert told == ["root.users.kim", "root.users.etl", "root.users.dev.ann"], "each one once"


def test_rules_that_do_not_override_leave_alone_who_names_a_queue() -> None:
    rules = replace(tree().placement, overrides=False)
    rig = cluster(replace(tree(), placement=rules))
    assert submit(rig, "kim", queue="b") == "root.b"
    assert submit(rig, "kim", queue="root.users.other") == "root.users.other"
    assert "unknown queue" in submit(rig, "kim", queue="root.b.other")
    assert submit(rig, "kim") == "root.users.kim"


def test_an_empty_queue_that_was_made_goes_after_its_time_and_its_parent_then() -> None:
    rig = cluster()
    assert submit(rig, "ann") == "root.users.dev.ann"
    pass_time(rig, 300.0)
    assert "root.users.dev.ann" in paths(rig), "an application is there"
    (app,) = rig.manager.books.apps
    rig.ask_manager(KillApplication(app))
    pass_time(rig, 0.5)
    pass_time(rig, 50.0)
    assert "root.users.dev.ann" in paths(rig)
    pass_time(rig, 15.0)
    assert paths(rig)[-1] == "root.users.dev"
    pass_time(rig, 1.0)
    pass_time(rig, 60.0)
    assert paths(rig) == ["root", "root.b", "root.users"]
    assert [record["state"] for record in rig.records if record["kind"] == "made"] == ["made", ""]
    assert rig.ask_manager(GetApplication(app)).queue == "root.users.dev.ann", "as it was"


def test_what_was_made_is_there_after_a_restart_and_after_other_queues_are_set() -> None:
    rig = cluster()
    assert submit(rig, "ann") == "root.users.dev.ann"
    rig = restarted(rig, tree())
    assert "root.users.dev.ann" in paths(rig)
    changed = tree(new={"capacity": 0.0})
    assert isinstance(rig.ask_manager(SetQueues(changed)), QueuesSet)
    assert {"root.new", "root.users.dev.ann"} <= set(paths(rig))
    none = queues_from_dict({"root": {"b": {}}})
    heard = rig.ask_manager(SetQueues(none))
    assert isinstance(heard, Refused)
    assert "root.users.dev.ann" in heard.problem
    rig = restarted(rig, tree())
    assert {"root.new", "root.users.dev.ann"} <= set(paths(rig))


def test_who_may_submit_to_the_queue_above_may_have_one_made() -> None:
    users = {**TREE["users"], "submit": ["kim"]}
    rig = cluster(tree(users=users))
    assert submit(rig, "kim", caller="kim") == "root.users.kim"
    assert "may not submit" in submit(rig, "lee", caller="lee")


@pytest.mark.parametrize("matcher", ["yarn", "yarn_fair", "capacity", "fifo"])
def test_what_asks_for_more_than_a_container_of_its_queue_may_have_is_refused(matcher: str) -> None:
    small = {"max_allocation": {"memory_mb": 2048}, "x": {}, "y": {"max_allocation": {"vcores": 1}}}
    rig = cluster(queues_from_dict({"root": {"a": small}}), matcher)
    for queue, demand, most in (("x", {"memory_mb": 4096.0}, "2048"), ("y", {"vcores": 2.0}, "1")):
        large = job("j", stage(tasks=1, demand=demand), queue=queue)
        heard = rig.ask_manager(SubmitApplication(large, ""))
        assert isinstance(heard, Refused)
        assert f"more than the {most}" in heard.problem
    master = rig.start(job("open", queue="x"))
    rig.allocate(master, ask(total=1, demand=(1.0, 4096.0)))
    assert not rig.manager.books.rows.live


def test_a_container_runs_in_a_queue_that_was_made() -> None:
    rig = cluster()
    master = rig.start(job("j", stage(tasks=2), user="kim"))
    rig.allocate(master, ask(total=2))
    for _ in range(4):
        rig.beat(later_s=1.0)
    books = rig.manager.books
    slot = books.queues.slot_of("root.users.kim")
    assert books.ledger.by_queue.containers[slot] == 3, "the master and two tasks"


def test_a_tree_with_rules_is_read_as_it_is_written() -> None:
    assert queues_from_dict(queues_to_dict(tree())) == tree()


def test_leaf_queues_of_one_name_are_told_apart_by_their_paths() -> None:
    rig = cluster(queues_from_dict({"root": {"a": {"x": {}}, "b": {"x": {}}}}))
    assert "is one of root.a.x, root.b.x" in submit(rig, "ann", queue="x")
    assert submit(rig, "ann", queue="b.x") == "root.b.x"


@pytest.mark.parametrize(
    "name", ["submit", "capacity", "creates", "placement", "", "x.", "a" * 2000]
)
def test_no_queue_is_made_that_a_tree_cannot_be_written_with(name: str) -> None:
    rules = replace(tree().placement, overrides=False)
    rig = cluster(replace(tree(), placement=rules))
    assert not submit(rig, "eve", queue=f"root.users.{name}").startswith("root.")
    assert not submit(rig, "eve", queue=f"root.users.{name}.x").startswith("root.")
    if name.isalpha():
        assert not submit(rig, name).startswith("root.")
    assert paths(rig) == ["root", "root.b", "root.users"]


@given(weights=st.lists(st.floats(0.001, 1000), min_size=1, max_size=30))
def test_a_tree_in_which_queues_were_made_is_read_as_it_is_written(weights: list[float]) -> None:
    below = {f"w{at}": {"capacity": 0.0, "weight": weight} for at, weight in enumerate(weights)}
    creates = {"most": 100, "depth": 3}
    root = queues_from_dict({"root": {"users": {"creates": creates, **below}}})
    names = [f"root.users.u{at}" for at in range(len(weights))]
    found = with_made(root, [*names, "root.users.deep.x"])
    assert len(found) == 4 + 2 * len(weights)
    assert queues_from_dict(queues_to_dict(found.root)) == found.root
    one_by_one = QueueTree(root)
    for name in [*names, "root.users.deep.x"]:
        one_by_one = grown(one_by_one, name)
    assert one_by_one.root == found.root


def test_who_submits_to_a_queue_that_is_made_is_said_by_what_it_is_like() -> None:
    like = {"expires_s": 60, "leaf": {"submit": ["kim"], "administer": ["ops"]}}
    rig = cluster(queues_from_dict({"root": {"b": {}, "users": {"creates": like}}}))
    assert "may not submit to root.users.q" in submit(rig, "lee", queue="users.q", caller="lee")
    assert "root.users.q" not in paths(rig)
    assert submit(rig, "ops", queue="users.o", caller="ops") == "root.users.o"
    assert submit(rig, "kim", queue="users.q", caller="kim") == "root.users.q"
    assert "may not submit to root.users.q" in submit(rig, "lee", queue="users.q", caller="lee")
    closed = {"submit": [], "creates": {"leaf": {"submit": ["kim"]}}}
    rig = cluster(queues_from_dict({"root": {"b": {}, "users": closed}}))
    assert submit(rig, "kim", queue="users.q", caller="kim") == "root.users.q"


def test_a_cluster_has_so_many_queues_whoever_makes_them() -> None:
    below = {f"q{at}": {"weight": 1} for at in range(QUEUES_MAX - 4)}
    users = {"creates": {"most": QUEUES_MAX, "depth": 50}, **below}
    top = QueueTree(queues_from_dict({"root": {"users": users}}))
    with pytest.raises(InputError, match="at most 10000 queues"):
        grown(top, "root.users.a.b.c")
    full = grown(top, "root.users.a.b")
    assert len(full) == QUEUES_MAX
    with pytest.raises(InputError, match="at most 10000 queues"):
        grown(full, "root.users.c")
    deep = ".".join(["root.users", *"abcdefghij" * 5])
    with pytest.raises(InputError, match="at most 50 below"):
        grown(QueueTree(queues_from_dict({"root": {"users": {"creates": {"depth": 50}}}})), deep)


def test_many_queues_that_were_made_cost_a_start_little() -> None:
    root = queues_from_dict({"root": {"users": {"creates": {"most": QUEUES_MAX}}}})

    def cost_s(count: int) -> float:
        # Collections look at all that other tests left behind, which is no cost of this.
        gc.disable()
        try:
            begin_s = time.process_time()
            with_made(root, [f"root.users.u{at}" for at in range(count)])
            return time.process_time() - begin_s
        finally:
            gc.enable()

    few_s, many_s = (min(cost_s(count) for _ in range(3)) for count in (500, 5_000))
    assert many_s < 40 * few_s, "ten times as many, not a hundred times the cost"


def test_an_application_whose_queue_can_be_nowhere_is_ended_at_a_restart() -> None:
    kept = queues_from_dict({"root": {"users": {"creates": {"expires_s": 60}}}})
    rig = cluster(kept)
    assert submit(rig, "kim", queue="users.q") == "root.users.q"
    none = queues_from_dict({"root": {"users": {"creates": {"most": 0}}}})
    rig = restarted(rig, none)
    (app,) = rig.manager.books.apps
    found = rig.ask_manager(GetApplication(app))
    assert found.state == "FAILED"
    assert "queue root.users.q is gone" in found.diagnostics
    assert restarted(rig, none).ask_manager(GetApplication(app)).state == "FAILED"


@pytest.mark.parametrize("more", [{"creates": {}}, {"placement": {"fair": True}}])
def test_plans_of_one_line_are_not_made_where_submissions_make_queues(more: Json) -> None:
    policy = make_matcher("fifo", {"backfill": "easy"})
    makes = queues_from_dict({"root": {"a": {}, **more}})
    with pytest.raises(InputError, match="made at submissions"):
        Rig(policy, FREE, makes)
    heard = Rig(policy, FREE, queues_from_dict({"root": {"a": {}}})).ask_manager(SetQueues(makes))
    assert isinstance(heard, Refused)


def test_a_master_is_a_container_of_its_queue_too() -> None:
    settings = ManagerSettings(master_demand={"memory_mb": 1024.0})
    small = {"x": {"max_allocation": {"memory_mb": 512}}, "y": {}}
    rig = Rig("yarn", settings, queues_from_dict({"root": small}))
    assert "more than the 512" in submit(rig, "kim", queue="x")
    assert submit(rig, "kim", queue="y") == "root.y"
    smaller = {"x": {}, "y": {"max_allocation": {"memory_mb": 512}}}
    heard = rig.ask_manager(SetQueues(queues_from_dict({"root": smaller})))
    assert isinstance(heard, QueuesSet)
    assert [one.queue for one in heard.never_held] == ["root.y"]


def test_a_submission_that_is_sent_again_is_accepted_whatever_the_queues_are_by_now() -> None:
    rig = cluster(tree(users={**TREE["users"], "submit": ["kim"]}))
    assert submit(rig, "kim", caller="kim", submission_id="s") == "root.users.kim"
    rig.ask_manager(SetQueues(tree(users={**TREE["users"], "submit": []})))
    assert submit(rig, "kim", caller="kim", submission_id="s") == "root.users.kim"
    assert "may not submit" in submit(rig, "kim", caller="kim", submission_id="t")
    assert "another user" in submit(rig, "lee", caller="lee", submission_id="s")
    assert len(rig.manager.books.apps) == 1


def test_a_refusal_names_some_of_many_queues() -> None:
    rig = cluster(queues_from_dict({"root": {f"queue{at}": {} for at in range(1_000)}}), "fifo")
    told = submit(rig, "kim", queue="other")
    assert told.startswith("unknown queue 'other'; known: queue0, queue1, ")
    assert told.endswith("queue19 and 980 more")
