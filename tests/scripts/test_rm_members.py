"""A member of a cluster gives its own numbers, and finds what was submitted under an id."""

from typing import Any

from rm.settings import ManagerSettings
from testkit.builders import job, stage
from testkit.manager import Rig
from weft.protocol.access import Caller
from weft.protocol.requests import (
    ApplicationAccepted,
    ApplicationReserved,
    FindSubmission,
    GetMetrics,
    NewApplication,
    Refused,
    SubmitApplication,
)

MEMBER = ManagerSettings(member=2, members=3)
NEED = {"vcores": 1.0, "memory_mb": 512.0}


def work(user: str = "") -> Any:
    return job("w", stage("a", 4, 10.0, NEED), user=user)


def test_numbers_leave_the_members_remainder_also_after_a_restart() -> None:
    rig = Rig(settings=MEMBER)
    assert [rig.submit(work()) for _ in range(2)] == [2, 5]
    reserved = rig.ask_manager(NewApplication())
    assert isinstance(reserved, ApplicationReserved)
    assert reserved.app_id == 8
    rig = Rig(settings=MEMBER, records=rig.records)
    assert rig.submit(work()) == 11
    accepted = rig.ask_manager(SubmitApplication(work(), "reserved", 8))
    assert isinstance(accepted, ApplicationAccepted)
    assert accepted.app_id == 8


def test_a_number_of_another_member_is_not_reserved_here() -> None:
    rig = Rig(settings=MEMBER)
    assert [rig.submit(work()) for _ in range(2)] == [2, 5]
    refused = rig.ask_manager(SubmitApplication(work(), "other", 3))
    assert isinstance(refused, Refused)
    assert refused.place == "app_id"


def test_a_submission_is_found_by_its_id_by_whom_it_concerns() -> None:
    rig = Rig(settings=MEMBER)
    rig.ask_manager(SubmitApplication(work("ann"), "key"))
    found = rig.ask_manager(FindSubmission("key"), caller=Caller("ann"))
    assert isinstance(found, ApplicationAccepted)
    assert found.app_id == 2
    for key, user in (("key", "bob"), ("none", "ann"), ("", "ann")):
        refused = rig.ask_manager(FindSubmission(key), caller=Caller(user))
        assert isinstance(refused, Refused)
        assert refused.code == "not_found"


def test_outstanding_work_is_what_did_not_start_and_half_of_what_runs() -> None:
    rig = Rig(settings=MEMBER)
    rig.add_node("n1")
    total = rig.manager.books.types.mapping(rig.manager.books.ledger.total.tolist())
    rig.submit(work())
    metrics: Any = rig.ask_manager(GetMetrics())
    whole = 4 * 10.0 * sum(NEED[name] / total[name] for name in NEED)
    assert abs(metrics.outstanding_s - whole) < 1e-9
