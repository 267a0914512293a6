"""An id that was reserved is the id that its submission gets, and nobody else ever gets it."""

import pytest

from rm.settings import ManagerSettings
from testkit.builders import job
from testkit.manager import Rig
from weft.protocol.requests import (
    ApplicationAccepted,
    ApplicationJob,
    ApplicationReserved,
    GetJob,
    NewApplication,
    Refused,
    SubmitApplication,
)


def test_a_reserved_id_is_the_one_the_application_gets() -> None:
    rig = Rig()
    assert rig.ask_manager(NewApplication()) == ApplicationReserved(1, 7)
    assert rig.ask_manager(NewApplication()) == ApplicationReserved(2, 7)
    assert rig.submit() == 3, "a submission without an id passes the reserved ones by"
    second = SubmitApplication(job("second"), "two", 2)
    assert rig.ask_manager(second) == ApplicationAccepted(2, 7)
    assert rig.ask_manager(second) == ApplicationAccepted(2, 7), "said twice, done once"
    assert rig.ask_manager(GetJob(2)) == ApplicationJob(job("second"))


@pytest.mark.parametrize("wanted", [9, 1])
def test_an_id_that_is_free_or_taken_is_refused(wanted: int) -> None:
    rig = Rig()
    rig.submit(submission_id="first")
    answer = rig.ask_manager(SubmitApplication(job(), "other", wanted))
    assert isinstance(answer, Refused)
    assert (answer.code, answer.place) == ("invalid_argument", "app_id")
    assert rig.ask_manager(NewApplication()) == ApplicationReserved(2, 7), "nothing changed"


def test_a_reserved_id_survives_a_restart_of_the_manager() -> None:
    settings = ManagerSettings(recovery=True)
    before = Rig(settings=settings)
    assert before.ask_manager(NewApplication()) == ApplicationReserved(1, 7)
    after = Rig(settings=settings, records=before.records)
    assert after.submit() == 2
    assert after.ask_manager(SubmitApplication(job(), "late", 1)) == ApplicationAccepted(1, 7)
