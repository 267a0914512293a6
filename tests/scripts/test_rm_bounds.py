"""How much one caller may have: applications, submissions a second, facts that wait for it."""

import asyncio

import pytest

from rm.process.rate import Rate
from rm.process.service import WATCHED_MAX, _Watcher
from rm.settings import ManagerSettings
from testkit.builders import job
from testkit.manager import Rig
from weft.errors import InputError
from weft.requests import KillApplication, Refused, SubmitApplication


def test_a_user_and_a_queue_have_so_many_applications_at_a_time() -> None:
    settings = ManagerSettings(prompt=True, user_apps_max=2, queue_apps_max=3)
    rig = Rig(settings=settings)
    first = rig.submit(job(user="ann"))
    rig.submit(job(user="ann"))
    refused = rig.ask_manager(SubmitApplication(job(user="ann"), "x"))
    assert isinstance(refused, Refused)
    assert refused.code == "resource_exhausted"
    assert "'ann' has 2" in refused.problem
    rig.submit(job(user="bob"))
    refused = rig.ask_manager(SubmitApplication(job(user="cyd"), ""))
    assert "has 3 applications" in refused.problem
    rig.ask_manager(KillApplication(first))
    assert rig.submit(job(user="ann"), "x") == 4, "what was refused may be said again"


def test_submissions_beyond_the_rate_are_told_when_to_come_back() -> None:
    now = [0.0]
    rate = Rate(10.0, 3.0, lambda: now[0])
    assert [rate.wait_s() for _ in range(3)] == [0.0] * 3
    assert rate.wait_s() == pytest.approx(0.1)
    now[0] += 0.1
    assert rate.wait_s() == 0.0
    assert rate.wait_s() == pytest.approx(0.1)
    now[0] += 100.0
    assert sum(rate.wait_s() == 0.0 for _ in range(10)) == 3
    assert Rate(0.0, 0.0, lambda: now[0]).wait_s() == 0.0


def test_a_slow_watcher_is_dropped_with_a_word_and_keeps_nothing() -> None:
    watcher = _Watcher(0, [])
    for _ in range(WATCHED_MAX + 10):
        watcher.put("{}")
    with pytest.raises(InputError, match="reads too slowly"):
        asyncio.run(watcher.take())
    assert not watcher._lines
