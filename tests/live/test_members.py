"""Members behind one router: numbers name them, jobs are spread, one that is gone holds nobody."""

import os
import re
import signal
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from click.testing import CliRunner

from lab.cli import weft
from testkit.builders import job, stage
from weft.client.api import Client
from weft.client.calls import RefusedError
from weft.client.local import LocalCluster, LocalSettings
from weft.model.errors import WeftError
from weft.model.queues import QueueSpec

MEMBERS, NODES, SCALE = 2, 6, 20.0
NEED = {"vcores": 1.0, "memory_mb": 512.0}


def until(true: Callable[[], object], what: str, timeout_s: float = 90.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.05)


def work(name: str, *durations_s: float) -> Any:
    return job(name, *(stage(f"s{i}", 8, lasts, NEED) for i, lasts in enumerate(durations_s)))


def member_of(app: int) -> int:
    return (app - 1) % MEMBERS + 1


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    settings = LocalSettings(
        nodes=NODES,
        time_scale=SCALE,
        state=True,
        members=MEMBERS,
        web=True,
        flags={"router": ["shares_s=0.5"]},
    )
    with LocalCluster(settings, tmp_path_factory.mktemp("members")) as cluster:
        yield cluster


@pytest.fixture
def client(members: LocalCluster) -> Iterator[Client]:
    with Client(members.address, deadline_s=60.0) as made:
        yield made


def direct(members: LocalCluster, number: int) -> Client:
    """A client of one member alone."""
    return Client(str(members.ready[members.managers[number - 1]]["address"]), deadline_s=60.0)


def test_jobs_are_spread_and_listings_are_of_all(members: LocalCluster, client: Client) -> None:
    apps = [client.submit(work(f"spread {at}", 20.0)) for at in range(6)]
    assert {member_of(app) for app in apps} == {1, 2}
    assert {report.name for report in client.applications()} >= {f"spread {a}" for a in range(6)}
    newest = client.applications(limit=3)
    assert [report.name for report in newest] == ["spread 3", "spread 4", "spread 5"]
    for app in apps:
        with direct(members, member_of(app)) as alone:
            assert alone.application(app).name == client.application(app).name
        with direct(members, 3 - member_of(app)) as other, pytest.raises(RefusedError, match="no"):
            other.application(app)
    ended = client.wait(apps)
    assert {report.final_status for report in ended.values()} == {"SUCCEEDED"}
    assert len({report.cluster_ts for report in ended.values()}) == 1
    assert sorted(node.node_id for node in client.nodes()) == [f"n{at + 1}" for at in range(NODES)]


def test_amounts_and_shares_are_of_the_whole_cluster(client: Client) -> None:
    metrics, (leaf,) = client.metrics(), client.queues().children
    assert metrics.nodes == {"RUNNING": NODES}
    assert metrics.capacity["vcores"] == NODES * 16
    assert (leaf.capacity, leaf.max_capacity) == (pytest.approx(1.0), pytest.approx(1.0))


def test_a_node_is_drained_by_its_name(client: Client) -> None:
    assert client.decommission("n6") in ("DECOMMISSIONING", "DECOMMISSIONED")
    until(lambda: client.metrics().nodes.get("DECOMMISSIONED") == 1, "n6 is out")
    client.recommission("n6")
    until(lambda: client.metrics().nodes.get("RUNNING") == NODES, "n6 is back")
    with pytest.raises(RefusedError, match="n99"):
        client.decommission("n99")


def test_queues_are_set_everywhere_or_nowhere(members: LocalCluster, client: Client) -> None:
    tree = client.queue_tree()
    two = replace(tree, children=(QueueSpec("default", 0.5), QueueSpec("more", 0.5)))
    client.set_queues(two)
    for number in (1, 2):
        with direct(members, number) as alone:
            assert [leaf.name for leaf in alone.queues().children] == ["root.default", "root.more"]
    client.set_queues(tree)


def test_a_queue_is_guaranteed_its_share_where_its_work_is(
    members: LocalCluster, client: Client
) -> None:
    tree = client.queue_tree()
    b, rest = QueueSpec("b", 0.5), QueueSpec("default", 0.0)
    two = replace(tree, children=(QueueSpec("a", 0.5), b, rest))
    client.set_queues(two)
    apps = [
        client.submit(replace(job(name, stage("s", 500, 300.0, NEED)), queue=name))
        for name in ("b", "b", "a")
    ]
    where = member_of(apps[2])
    with direct(members, where) as there, direct(members, 3 - where) as other:
        until(lambda: there.queues().children[0].capacity > 0.9, "a has its share in one member")
        until(lambda: other.queues().children[0].capacity < 0.1, "b has it in the other one")
        assert there.queue_tree().children[0].whole_capacity == 0.5
        assert client.queue_tree() == two, "what was set is what is told"
        a = client.queues().children[0]
        assert (a.capacity, len(a.members)) == (pytest.approx(0.5), MEMBERS)
        assert re.search(rf"a +50.* {where}: 9\d\.\d%", told(members, "queues").stdout)
        # An operator's change holds, and guarantees move within it.
        client.set_queues(replace(two, children=(QueueSpec("a", 0.3), b, rest)))
        until(lambda: 0.5 < there.queues().children[0].capacity < 0.7, "a has 30 % of the whole")
        assert client.queues().children[0].capacity == pytest.approx(0.3)
    for app in apps:
        client.kill(app)
    until(lambda: client.metrics().containers_running == 0, "nothing runs")
    client.set_queues(tree)


def test_an_id_that_was_sent_before_is_the_same_application(client: Client) -> None:
    first = client.submit(work("once", 1.0), submission_id="own id")
    assert client.submit(work("once", 1.0), submission_id="own id") == first
    assert sum(report.name == "once" for report in client.applications()) == 1


def test_events_are_of_all_members(members: LocalCluster, client: Client) -> None:
    from weft.client.calls import AsyncClient

    async def seen() -> set[int]:
        found: set[int] = set()
        async with AsyncClient(members.address) as watching:
            async for fact in watching.events(after=1):
                found.add(int(fact["member"]))
                if len(found) == MEMBERS:
                    break
        return found

    import asyncio

    assert asyncio.run(asyncio.wait_for(seen(), 60.0)) == {1, 2}


def test_a_member_that_is_killed_holds_nobody_and_its_jobs_go_on(
    members: LocalCluster, client: Client
) -> None:
    apps: dict[int, int] = {}
    while len(apps) < MEMBERS:
        app = client.submit(work("under way", 60.0, 60.0))
        apps.setdefault(member_of(app), app)
    os.kill(members.processes["rm2"].pid, signal.SIGKILL)
    members.processes["rm2"].wait()

    def elsewhere() -> bool:
        try:
            return member_of(client.submit(work("meanwhile", 1.0))) == 1
        except WeftError:
            # The router had not noticed.
            return False

    until(elsewhere, "new jobs go to the other member")
    assert all(member_of(client.submit(work("meanwhile", 1.0))) == 1 for _ in range(4))
    ended = client.wait([apps[1]])
    assert ended[apps[1]].final_status == "SUCCEEDED"
    assert member_of(client.applications(limit=1)[0].app_id) == 1
    what_is_missing_is_said(members, client)
    with pytest.raises(WeftError, match="a member is gone: 2"):
        client.application(apps[2])
    # Nobody knows whether member 2 took it, so a client asks again until its deadline.
    with (
        Client(members.address, deadline_s=2.0) as hasty,
        pytest.raises(WeftError, match="a member is gone: 2"),
    ):
        hasty.submit(work("again", 1.0), submission_id="again")
    members.start_manager("rm2")
    assert client.wait([apps[2]])[apps[2]].final_status == "SUCCEEDED"
    for command in (["apps"], ["nodes"], ["queues"]):
        assert not told(members, *command).stderr
    assert header(members, "/ws/v1/cluster/apps") is None
    until(lambda: client.submit(work("again", 1.0), submission_id="again") > 0, "it is taken")


def told(members: LocalCluster, *command: str) -> Any:
    return CliRunner().invoke(weft, [*command, "--rm", members.address], catch_exceptions=False)


def header(members: LocalCluster, path: str) -> str | None:
    """What REST says of members that are gone."""
    with urllib.request.urlopen(f"http://{members.web_address}{path}", timeout=60) as answer:
        found: str | None = answer.headers["Weft-Missing-Members"]
        return found


def what_is_missing_is_said(members: LocalCluster, client: Client) -> None:
    """Member 2 is gone, and whoever lists anything is told."""
    for command in (["apps"], ["nodes"], ["queues"], ["top", "--once"], ["nodes", "--json"]):
        found = told(members, *command)
        assert found.exit_code == 0
        assert found.stderr.count("member 2 did not answer: what it has is not listed") == 1
    for read in (client.applications, client.nodes, client.queues, client.metrics):
        read()
        assert client.missing == (2,), read
    assert (client.queues().missing, client.metrics().missing) == ((2,), (2,))
    for path in ("apps", "nodes", "scheduler", "metrics"):
        until(lambda path=path: header(members, f"/ws/v1/cluster/{path}") == "2", f"{path} says so")  # type: ignore[misc]
    shown = told(members, "managers").stdout
    assert re.search(r"1: 127\.0\.0\.1:\d+ +ALONE", shown)
    assert re.search(r"2: .* +UNREACHABLE .*connection refused", shown)
    assert "a router of 2 members, gone: 2" in shown


def test_of_two_nodes_of_one_name_the_member_is_named(members: LocalCluster) -> None:
    """Each member may have an n1, so `n1` alone drains neither."""
    flags = {"nm": ["first_node=1"]}
    settings = LocalSettings(nodes=2, time_scale=SCALE, members=MEMBERS, flags=flags)
    with LocalCluster(settings) as cluster, Client(cluster.address, deadline_s=60.0) as client:
        assert [node.node_id for node in client.nodes()] == ["n1", "n1"]
        for ask in (client.decommission, client.recommission, client.update_node):
            with pytest.raises(RefusedError, match=r"2 members have a node 'n1': 1/n1 .*, 2/n1 "):
                ask("n1")
        with pytest.raises(RefusedError, match="there are 2 members"):
            client.decommission("3/n1")
        with pytest.raises(RefusedError, match="no node '2/n7' ever registered"):
            client.decommission("2/n7")
        found = told(cluster, "nodes", "--decommission", "2/n1", "--wait")
        assert found.stdout == "2/n1 DECOMMISSIONED\n"
        assert [node.state for node in client.nodes()] == ["RUNNING", "DECOMMISSIONED"]
        (drained,) = client.nodes(node="2/n1")
        assert (drained.node_id, drained.state) == ("n1", "DECOMMISSIONED")


def test_the_router_keeps_nothing(members: LocalCluster, client: Client) -> None:
    until(lambda: client.metrics().nodes.get("RUNNING") == NODES, "both members are there")
    before = {report.app_id for report in client.applications()}
    os.kill(members.processes["router"].pid, signal.SIGKILL)
    members.processes["router"].wait()
    assert "router was ended by SIGKILL: started again" in members.mend()
    until(lambda: client.metrics().nodes.get("RUNNING") == NODES, "the router knows both")
    assert {report.app_id for report in client.applications()} == before
