"""Where masters go: nodes without a label first, labelled ones where there is no other."""

from rm.settings import ManagerSettings
from testkit.builders import job, stage
from testkit.manager import Rig
from weft.requests import Refused, SubmitApplication

SETTINGS = ManagerSettings(master_demand={"vcores": 1.0})


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
