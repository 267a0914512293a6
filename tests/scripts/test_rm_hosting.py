"""Where masters go: nodes without a label first, labelled ones where there is no other."""

from rm.match.registry import make_matcher
from rm.settings import ManagerSettings
from testkit.builders import ask, job, stage
from testkit.manager import Rig
from weft.model.job import Job, MasterSpec
from weft.protocol.messages import ContainerEnd, Outcome, RunningContainer
from weft.protocol.requests import Refused, SubmitApplication

SETTINGS = ManagerSettings(master_demand={"vcores": 1.0})


def test_a_master_that_failed_on_the_only_node_for_masters_starts_there_again() -> None:
    """Nodes with a label, where it may not go, are none that are left to it."""
    rig = Rig("capacity", ManagerSettings(master_demand={}, max_attempts=10))
    rig.add_node("plain")
    for number in range(4):
        rig.add_node(f"fast{number}", labels=("gpu",))
    rig.submit(job())
    for _ in range(2):
        rig.beat()
        attempt = rig.manager.books.apps[1].attempt
        assert attempt.master is not None, "it waits for ever"
        rig.beat("plain", ContainerEnd(attempt.master_id, Outcome.FAILED, 1))


def test_a_cluster_of_labelled_nodes_only_places_masters() -> None:
    rig = Rig("capacity", SETTINGS)
    rig.add_node("fast", labels=("gpu",))
    master = rig.start(job("j", stage(label="gpu")))
    assert master.accepted is not None


def test_masters_leave_labelled_nodes_alone_while_there_are_others() -> None:
    rig = Rig("capacity", SETTINGS)
    rig.add_node("fast", labels=("gpu",))
    rig.add_node("plain", vcores=2.0)
    for _ in range(3):
        rig.submit(job())
    rig.beat()
    where = [holding.node.node_id for holding in rig.manager.books.holdings.values()]
    assert where == ["plain"] * 2, "the third waits for the plain node"


def test_a_plain_node_that_is_too_small_for_a_master_does_not_count() -> None:
    rig = Rig("capacity", SETTINGS)
    rig.add_node("tiny", vcores=0.5)
    rig.add_node("fast", labels=("gpu",))
    assert rig.start(job("j", stage(label="gpu"))).accepted is not None


def test_a_job_whose_master_fits_nowhere_is_refused() -> None:
    rig = Rig("capacity", SETTINGS)
    rig.add_node("tiny", vcores=0.5)
    wanted = job("j", stage(demand={"vcores": 0.25, "memory_mb": 1.0}))
    answer = rig.ask_manager(SubmitApplication(wanted, ""))
    assert isinstance(answer, Refused)
    assert answer.problem == "no node could hold its master (1 vcores)"


# -- what a node has too little of matters to those who need it ------------------------------------


def test_a_master_starts_on_a_node_that_is_overbooked_in_what_it_does_not_need() -> None:
    """A long task has most of the cores, a short one beside it overbooks them; memory is free."""
    graphene = make_matcher("graphene", {"overbook": "vcores", "kappa": -1, "eta_m": 0})
    rig = Rig(graphene, ManagerSettings(master_demand={"memory_mb": 256.0}))
    rig.add_node()
    first = rig.start(job("first", stage(tasks=4)))
    long = ask(1, 1, (3.9, 10.0), duration_s=100.0)
    rig.allocate(first, long)
    rig.beat(later_s=1.0)
    rig.allocate(first, long, ask(2, 1, (0.5, 10.0), duration_s=1.0))
    rig.beat(later_s=1.0)
    assert rig.manager.books.ledger.nodes.available[0, 0] < 0
    rig.submit(job("second"))
    rig.beat(later_s=1.0)
    assert not rig.manager.books.waiting


def test_a_node_that_came_back_smaller_serves_asks_that_need_none_of_what_it_lacks() -> None:
    rig = Rig("capacity", ManagerSettings(master_demand={"vcores": 0.0}))
    rig.add_node()
    master = rig.start(job("j", stage(tasks=4)))
    rig.allocate(master, ask(1, 1, (1.0, 8192.0)))
    rig.beat()
    rig.allocate(master)
    carried = [RunningContainer(own, (0.0, 0.0), ()) for own in rig.nodes["n1"].masters]
    carried += [RunningContainer(c, (1.0, 8192.0), ((0, 0, 0),)) for c in master.containers]
    rig.restart_node("n1", 5, memory_mb=4096.0, running=carried)
    assert rig.manager.books.ledger.nodes.available[0, 1] < 0
    rig.allocate(master, ask(1, 1, (1.0, 8192.0)), ask(2, 2, (1.0, 0.0)))
    rig.beat(later_s=1.0)
    rig.allocate(master)
    assert len(master.containers) == 3


def test_a_master_s_share_of_one_resource_holds_nobody_off_who_needs_another() -> None:
    """One master may always run, however much it takes of the cores that masters may have."""
    settings = ManagerSettings(master_demand={"memory_mb": 256.0}, master_share_max=0.25)
    rig = Rig("capacity", settings)
    rig.add_node()
    rig.submit(Job("own", (), master=MasterSpec({"vcores": 2.0}, ("true",))))
    rig.submit(job("plain"))
    rig.beat()
    assert not rig.manager.books.waiting
