"""A client's request is answered with one clear line, and a refusal changes nothing."""

import math
from dataclasses import replace
from typing import Any

import pytest

from rm.report.pages import PAGE_BYTES_MAX
from rm.settings import ManagerSettings
from testkit.builders import ask, chain, job, stage, succeeded
from testkit.manager import Rig
from weft.model.errors import InputError
from weft.model.job import Job, Preference, TaskOverride
from weft.model.queues import QueueSpec
from weft.model.resources import ResourceType, ResourceTypes, guess_kind
from weft.protocol.messages import BegunTask, ContainerEnd, Outcome, TaskEnd
from weft.protocol.requests import (
    ApplicationAccepted,
    Done,
    Explain,
    GetApplication,
    GetMetrics,
    KillApplication,
    ListApplications,
    ListContainers,
    ListNodes,
    ListQueues,
    MoveApplication,
    NewApplication,
    Page,
    Refused,
    SetPriority,
    SubmitApplication,
)
from weft.wire.codec_client import CALLS

TREE = QueueSpec(
    "root",
    children=(
        QueueSpec("prod", 0.7, 1.0),
        QueueSpec("dev", 0.3, 0.5, children=(QueueSpec("x", 0.5), QueueSpec("y", 0.5))),
    ),
)
FREE = ManagerSettings(master_demand={})


@pytest.mark.parametrize(
    ("wanted", "place", "problem"),
    [
        (job(queue="nope"), "queue", "unknown queue 'nope'; known: prod, x, y"),
        (job(queue="root.dev"), "queue", "has queues below it"),
        (
            job("j", stage(demand={"gpus": 1}), queue="prod"),
            "stages[0].demand.gpus",
            "unknown resource; the cluster has vcores, memory_mb",
        ),
        (
            job("j", stage(), stage("wide", demand={"vcores": 5}), queue="prod"),
            "stages[1].demand",
            "a task of stage 'wide' (5 vcores) fits on no node; nodes have at most 4 vcores, "
            "8192 memory_mb",
        ),
        (
            job("j", stage(tasks=1, overrides=(TaskOverride(demand={"vcores": 9}),)), queue="x"),
            "stages[0].demand",
            "fits on no node",
        ),
        (
            job("j", stage(demand={"memory_mb": 9999999}), queue="x"),
            "stages[0].demand",
            "(9999999 memory_mb) fits on no node",
        ),
        (job("j", stage(label="gpu"), queue="x"), "stages[0].demand", "with label 'gpu'"),
        (job("j", queue="x", resources=("r1",)), "resources.r1", "unknown resource"),
    ],
)
def test_a_bad_submission_names_the_place(wanted: Job, place: str, problem: str) -> None:
    rig = Rig(queues=TREE)
    rig.add_node()
    answer = rig.ask_manager(SubmitApplication(wanted, "s"))
    assert isinstance(answer, Refused)
    assert (answer.code, answer.place) == ("invalid_argument", place)
    assert problem in answer.problem
    assert not rig.manager.books.apps
    assert rig.ask_manager(SubmitApplication(job(queue="x"), "s")) == ApplicationAccepted(1, 7)


def test_what_yarn_would_raise_beyond_every_node_is_refused_at_once() -> None:
    """The least allocation of YARN, 1024 MB, is more than a node of 512 MB has."""
    rig = Rig("yarn")
    rig.add_node(memory_mb=512.0)
    answer = rig.ask_manager(SubmitApplication(job("j", stage(demand={"vcores": 0.5})), "s"))
    assert isinstance(answer, Refused)
    assert "1 vcores, 1024 memory_mb" in answer.problem


def test_yarn_needs_the_resource_that_it_counts() -> None:
    types = ResourceTypes(tuple(ResourceType(name, guess_kind(name)) for name in ("cpu", "memory")))
    with pytest.raises(InputError, match="yarn counts memory_mb; the cluster has cpu, memory"):
        Rig("yarn", types=types)


def test_before_the_first_node_anything_may_come_and_a_repeated_submission_is_one() -> None:
    rig = Rig(queues=TREE)
    big = job("j", stage(demand={"vcores": 50}), queue="root.dev.y")
    assert rig.submit(big, "once") == rig.submit(big, "once") == 1
    assert rig.submit(big) == 2, "without an id each submission is a new one"


@pytest.mark.parametrize(
    "request_", [GetApplication(9), KillApplication(9), Explain(9), SetPriority(9, 1)]
)
def test_an_unknown_application_is_not_found(request_: object) -> None:
    answer = Rig().ask_manager(request_)
    assert answer == Refused("not_found", "app_id", "there is no application 9")


def test_priority_and_moves_change_who_goes_first() -> None:
    rig = Rig("capacity", FREE, TREE)
    rig.add_node()
    first = rig.start(job("first", stage(tasks=9), queue="prod"))
    second = rig.start(job("second", stage(tasks=9), queue="prod"))
    assert rig.ask_manager(SetPriority(2, 5)) == Done("RUNNING")
    rig.allocate(first, ask(total=9))
    rig.allocate(second, ask(total=3))
    rig.beat()
    rig.allocate(second)
    rig.allocate(first)
    assert (len(second.containers), len(first.containers)) == (3, 1)

    assert rig.ask_manager(MoveApplication(2, "x")) == Done("RUNNING")
    queues = rig.ask_manager(ListQueues())
    dev = queues.children[1]
    assert (dev.name, dev.running_apps, dev.allocated["vcores"]) == ("root.dev", 1, 3.0)
    assert queues.children[0].allocated["vcores"] == 1.0
    assert queues.allocated["vcores"] == 4.0
    assert rig.ask_manager(GetApplication(2)).queue == "root.dev.x"
    assert {r["kind"] for r in rig.records} >= {"move", "priority"}


def test_listings_filter_and_count() -> None:
    rig = Rig(settings=FREE, queues=TREE)
    rig.add_node("n1")
    rig.add_node("n2")
    master = rig.start(job("a", stage(tasks=3), queue="prod", user="u"))
    rig.submit(job("b", queue="x", user="v"))
    rig.allocate(master, ask(total=3))
    rig.beat("n1")
    rig.allocate(master)
    rig.beat("n1", succeeded(min(master.containers), 0, 2))

    def names(**which: object) -> list[str]:
        answer = rig.ask_manager(ListApplications(**which))  # type: ignore[arg-type]
        return [report.name for report in answer.items]

    assert names() == ["a", "b"]
    assert names(limit=1) == ["b"]
    assert names(states=("RUNNING",)) == ["a"]
    assert names(queue="x") == names(queue="root.dev.x") == names(user="v") == ["b"]
    nodes = rig.ask_manager(ListNodes(("RUNNING",))).items
    assert [n.node_id for n in nodes] == ["n1", "n2"]
    assert nodes[0].allocated["vcores"] == 2.0
    assert rig.ask_manager(ListNodes(("LOST",))).items == ()
    metrics = rig.ask_manager(GetMetrics())
    assert metrics.nodes == {"RUNNING": 2}
    assert metrics.apps == {"RUNNING": 1, "ACCEPTED": 1}
    assert metrics.capacity["vcores"] == 8.0
    found = rig.ask_manager(ListContainers(1)).items
    assert [c.state for c in found] == ["RUNNING", "ACQUIRED", "ACQUIRED", "SUCCEEDED"]
    assert (found[3].stage, found[3].index) == ("work", 2)
    report = rig.ask_manager(GetApplication(1))
    assert (report.stages[0].running, report.stages[0].finished) == (2, 1)


def pages(rig: Rig, request: Any) -> list[tuple[Any, ...]]:
    """All pages of a listing, as a client follows them."""
    found = []
    while True:
        page = rig.ask_manager(request)
        found.append(page.items)
        if not page.next:
            return found
        request = replace(request, page=page.next)


def test_listings_come_in_pages_that_have_everything_once() -> None:
    rig = Rig(settings=FREE)
    for number in range(1, 8):
        rig.add_node(f"n{number}")
    reserved = rig.ask_manager(NewApplication()).app_id
    for number in range(6):
        rig.submit(job(f"j{number}"))
    late = rig.ask_manager(SubmitApplication(job("late"), "s", reserved))
    assert late.app_id == reserved
    found = pages(rig, ListApplications(limit=3))
    assert [len(page) for page in found] == [3, 3, 1]
    names = [report.name for page in reversed(found) for report in page]
    assert names == [f"j{number}" for number in range(6)] + ["late"], "in order of submission"
    found = pages(rig, ListNodes(limit=2))
    assert [report.node_id for page in found for report in page] == [f"n{n}" for n in range(1, 8)]
    assert [len(page) for page in found] == [2, 2, 2, 1]
    odd = ("x", "-1", " 1", "+1", "1_0", "01", "\u0661", "9" * 30, "1 ")
    never = {
        ListNodes(): (*odd, "7", "h1"),
        ListApplications(): (*odd, "8", "h1"),
        ListContainers(late.app_id): (*odd, "h", "e", "x4294967296", "h-1", "e1_0"),
    }
    for request, tokens in never.items():
        for token in tokens:
            refused = rig.ask_manager(replace(request, page=token))
            assert isinstance(refused, Refused), (request, token)
            assert (refused.code, refused.place) == ("invalid_argument", "page")


def test_containers_come_in_pages_those_held_first() -> None:
    rig = Rig(settings=FREE)
    rig.add_node("n1", vcores=8.0)
    master = rig.start(job("j", stage("w", 6)))
    rig.allocate(master, ask(total=6))
    rig.beat("n1")
    rig.allocate(master)
    first, second, *held = sorted(master.containers)
    rig.beat("n1", succeeded(first, 0, 0))
    rig.beat("n1", succeeded(second, 0, 1))
    (whole,) = pages(rig, ListContainers(1))
    for limit in (1, 2, 3, 4):
        found = pages(rig, ListContainers(1, limit))
        assert max(map(len, found)) == limit
        assert [report for page in found for report in page] == list(whole)
    assert [report.container_id for report in whole][-2:] == [second, first]
    assert len(whole) == 1 + len(held) + 2


@pytest.mark.slow
def test_a_page_is_never_larger_than_a_message_whatever_jobs_say() -> None:
    """64 kB of reasons in each of 600 applications are more than one message may hold."""
    rig = Rig(settings=FREE)
    for number in range(600):
        rig.submit(job(f"j{number}"))
        rig.manager.books.apps[number + 1].diagnostics = "\u20ac" * 16_000
    found = pages(rig, ListApplications())
    assert len(found) > 1
    call = CALLS[ListApplications]
    for page in found:
        wire = call.encode_answer(Page(page)).SerializeToString()
        assert len(wire) <= PAGE_BYTES_MAX
    assert sum(map(len, found)) == 600


def test_what_health_scripts_say_makes_no_listing_fail_either() -> None:
    rig = Rig(settings=FREE)
    for number in range(400):
        rig.add_node(f"n{number}", vcores=1.0)
        rig.manager.books.nodes[f"n{number}"].unhealthy = "\u20ac" * 16_000
    found = pages(rig, ListNodes())
    assert len(found) > 1
    call = CALLS[ListNodes]
    for page in found:
        assert len(call.encode_answer(Page(page)).SerializeToString()) <= PAGE_BYTES_MAX
    assert sum(map(len, found)) == 400


class TestExplain:
    """Every pending stage has reasons, counted over nodes."""

    def reasons(self, rig: Rig, app: int = 1) -> dict[str, dict[str, int]]:
        answer = rig.ask_manager(Explain(app))
        return {stage.stage: stage.reasons for stage in answer.stages}

    def test_a_master_that_waits(self) -> None:
        rig = Rig()
        rig.submit()
        assert "no node is in service" in rig.ask_manager(Explain(1)).text

    def test_what_does_not_fit_and_what_was_never_asked(self) -> None:
        rig = Rig(settings=FREE)
        rig.add_node("n1")
        rig.add_node("n2", memory_mb=512.0)
        rig.add_node("n3", labels=("gpu",))
        master = rig.start(chain("c", [6, 2]))
        rig.allocate(master, ask(total=6))
        rig.beat()
        assert self.reasons(rig) == {
            "s0": {
                "does not fit: vcores": 1,
                "larger than the node: memory_mb": 1,
                "node has a label": 1,
            },
            "s1": {"waiting for parents": 0},
        }

    def test_limits_locality_black_lists_and_chance(self) -> None:
        tree = QueueSpec("root", children=(QueueSpec("default", 0.5, 0.5), QueueSpec("o", 0.5)))
        rig = Rig("capacity", FREE, tree)
        rig.add_node("n1", vcores=8.0)
        rig.add_node("n2", vcores=8.0)
        master = rig.start(job("j", stage(tasks=9)))
        rig.allocate(master, ask(1, 1))
        assert self.reasons(rig)["work"] == {"would fit: waiting for a heartbeat": 2}
        rig.allocate(master, ask(1, 1, nodes=("n2",)), blacklist=("n1",))
        assert self.reasons(rig)["work"] == {
            "node is on the application's black list": 1,
            "would fit: waiting for a heartbeat": 1,
        }
        rig.allocate(master, ask(1, 1, nodes=("elsewhere",)), blacklist=())
        assert self.reasons(rig)["work"] == {"waiting for locality": 2}
        rig.allocate(master, ask(1, 9))
        rig.beat()
        rig.beat()
        assert self.reasons(rig)["work"] == {
            "does not fit: vcores": 1,
            "queue root.default is at its limit": 1,
        }

    def test_a_node_is_counted_once_however_many_asks_a_stage_has(self) -> None:
        """Its reason is that of the ask that comes furthest there."""
        rig = Rig(settings=FREE)
        for number in range(6):
            rig.add_node(f"n{number}")
        master = rig.start(job("j", stage(tasks=9)))
        rig.allocate(master, ask(1, 3, (9.0, 1.0)), ask(2, 3, (5.0, 1.0)), ask(3, 3))
        found = self.reasons(rig)["work"]
        assert found == {"would fit: waiting for a heartbeat": 6}


def test_capacity_shares_queues_and_limits_users() -> None:
    tree = QueueSpec(
        "root",
        children=(
            QueueSpec("a", 0.75, 1.0, user_limit=0.5),
            QueueSpec("b", 0.25, 1.0, user_limit_factor=math.inf),
        ),
    )
    rig = Rig("capacity", FREE, tree)
    rig.add_node("n1", vcores=16.0, memory_mb=65536.0)
    masters = [
        rig.start(job(f"{q}{u}", stage(tasks=16), queue=q, user=u))
        for q, u in (("a", "u"), ("a", "v"), ("b", "u"))
    ]
    for master in masters:
        rig.allocate(master, ask(total=16, demand=(1.0, 0.0)))
    rig.beat()
    for master in masters:
        rig.allocate(master)
    assert [len(m.containers) for m in masters] == [7, 5, 4], "who is at his limit may take one"


@pytest.mark.parametrize("matcher", ["capacity"])
def test_delay_scheduling_waits_for_the_node_then_takes_any(matcher: str) -> None:
    rig = Rig(matcher, FREE)
    for name, rack in (("n1", "r1"), ("n2", "r1"), ("n3", "r2")):
        rig.add_node(name, rack=rack)
    master = rig.start(job("j", stage(tasks=2, prefer=Preference(nodes=("n2",)))))
    rig.allocate(master, ask(total=1, nodes=("n2",)))
    rig.beat("n1")
    rig.beat("n3")
    rig.allocate(master)
    assert not master.containers
    rig.beat("n2")
    rig.allocate(master)
    assert [c.node_id for c in master.containers.values()] == ["n2"]

    rig.allocate(master, ask(2, total=1, nodes=("n2",)))
    for _ in range(3):
        rig.beat("n3", later_s=1.0)
    rig.beat("n1")
    rig.allocate(master)
    assert [c.node_id for c in master.containers.values()] == ["n2", "n1"], "its rack after three"


def test_labels_and_black_lists_bind() -> None:
    rig = Rig(settings=FREE)
    rig.add_node("plain")
    rig.add_node("fast", labels=("gpu", "ssd"))
    master = rig.start(job("j", stage(tasks=9), stage("g", tasks=9, label="gpu")))
    rig.allocate(master, ask(1, 2), ask(2, 3, label="gpu", stage=1))
    rig.beat()
    rig.allocate(master)
    where = sorted((c.ask_id, c.node_id) for c in master.containers.values())
    assert where == [(1, "plain")] * 2 + [(2, "fast")] * 3

    rig.add_node("other")
    rig.allocate(master, ask(1, 4), blacklist=("plain",))
    rig.beat("plain")
    rig.beat("other")
    rig.allocate(master)
    assert sorted(c.node_id for c in master.containers.values()) == [
        "fast",
        "fast",
        "fast",
        "other",
        "other",
        "plain",
        "plain",
    ]


def test_masters_together_stay_under_their_share() -> None:
    rig = Rig(settings=ManagerSettings(master_demand={"vcores": 1.0}, master_share_max=0.5))
    rig.add_node()
    for _ in range(4):
        rig.submit()
    for _ in range(3):
        rig.beat()
    assert len(rig.nodes["n1"].masters) == 2


def test_what_runs_in_a_container_is_known_while_it_runs() -> None:
    rig = Rig()
    rig.add_node("n1")
    rig.add_node("n2")
    master = rig.start(job("j", stage("w", 4)))
    rig.allocate(master, ask(total=2))
    rig.beat()
    rig.allocate(master)
    first, second = master.containers
    home = rig.manager.books.holdings[first].node.node_id
    other = {"n1": "n2", "n2": "n1"}[home]

    def tasks() -> dict[int, tuple[str, int, int]]:
        told = rig.ask_manager(ListContainers(1)).items
        return {one.container_id: (one.stage, one.index, one.attempt) for one in told}

    assert tasks()[first] == ("w", -1, 0)
    wrong = [BegunTask(first, 0, 4, 0), BegunTask(first, 1, 0, 0), BegunTask(first + 9, 0, 0, 0)]
    rig.tell(rig.nodes[home].heartbeat(begun=tuple(wrong)))
    rig.tell(rig.nodes[other].heartbeat(begun=(BegunTask(first, 0, 1, 0),)))
    assert tasks()[first] == ("w", -1, 0), "no such task, and no container of that node"
    rig.tell(rig.nodes[home].heartbeat(begun=(BegunTask(first, 0, 3, 1),)))
    assert tasks()[first] == ("w", 3, 1)
    told = {one.container_id: one.state for one in rig.ask_manager(ListContainers(1)).items}
    assert (told[first], told[second]) == ("RUNNING", "ACQUIRED")
    inside = TaskEnd(first, 0, 3, 1, Outcome.SUCCEEDED, 0, 1.0)
    rig.tell(rig.nodes[home].heartbeat(tasks_ended=(inside,)))
    assert tasks()[first] == ("w", -1, 0), "it is idle"
    rig.tell(rig.nodes[home].heartbeat(begun=(BegunTask(first, 0, 2, 0),)))
    end = ContainerEnd(first, Outcome.SUCCEEDED, 0, 0, 2, 0, 1.0)
    rig.tell(rig.nodes[home].heartbeat(end, begun=(BegunTask(first, 0, 2, 0),)))
    assert tasks()[first] == ("w", 2, 0)
    assert not rig.manager.books.tasks_in
    assert second in tasks()


def test_use_is_told_once_the_nodes_have_told_theirs() -> None:
    """A sum without those that have just come would seem to fall."""
    rig = Rig("fifo")
    for name in ("n1", "n2"):
        rig.add_node(name)
    assert rig.ask_manager(GetMetrics()).use == {}
    rig.tell(rig.nodes["n1"].heartbeat(use=(1.0, 512.0)))
    assert rig.ask_manager(GetMetrics()).use == {}
    rig.tell(rig.nodes["n2"].heartbeat(use=(2.0, 512.0)))
    assert rig.ask_manager(GetMetrics()).use == {"vcores": 3.0, "memory_mb": 1024.0}
